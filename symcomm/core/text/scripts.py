"""The parts of a factor: the stem that may begin a name, and the scripts attached to it."""

from __future__ import annotations

import re

from lark import Token

from symcomm.core.text.context import Context
from symcomm.core.text.spelling import Script, Stem, spelling
from symcomm.core.text.syntax import (
    Branch,
    Part,
    branches,
    canonical,
    ends_transposed,
    only_atom,
    only_factor,
    start_of,
    stop_of,
)
from symcomm.core.text.tokens import NAME_LIMIT


def stem_of(context: Context, atom: Branch) -> Stem | None:
    """The stem, if the atom can begin a name."""
    source, start = context.source(atom), start_of(atom)
    if atom.data == "word":
        return Stem(str(atom.children[0]), source, start, start)
    if atom.data == "text":
        return Stem(str(atom.children[0]), source, start)
    if atom.data == "accent":
        accented = canonical(branches(atom)[0])
        if not re.fullmatch(r"[A-Za-z0-9_^']+", accented):
            raise context.wrong("an accent belongs over a name", atom, r"for example \hat{x}")
        return Stem(f"{accented}_{atom.children[0]}", source, start)
    if atom.data in ("font", "braces") and branches(atom):
        inner = branches(atom)[-1]
        only = inner if atom.data == "font" and inner.data != "braces" else only_atom(inner)
        if only is not None and only.data in ("word", "text", "accent", "font"):
            found = stem_of(context, only)
            return found and found._replace(source=source, start=start)
    return None


def check_sign(context: Context, tree: Branch) -> None:
    """Raises ``FormulaError`` for a signed script without braces: how far would it go in x^-kN?"""
    if tree.data == "signed":
        sign, raised = (context.source(part) for part in tree.children)
        hint = "write braces: x^{-k}"
        raise context.wrong(f"something is missing between `{sign}` and `{raised}`", tree.children[1], hint)


def scripts_of(context: Context, factor: Branch) -> list[Script]:
    """The scripts attached to a factor, in order."""
    found: list[Script] = []
    for script in branches(factor)[1:]:
        mark = script.children[0]
        assert isinstance(mark, Token)
        start, stop = start_of(script), stop_of(script)
        if mark.type in ("PRIME", "TRANSPOSED"):
            found.append(Script("'" if mark.type == "PRIME" else "T", str(mark), start, stop))
            continue
        tree = script.children[1]
        assert isinstance(tree, Branch)
        check_sign(context, tree)
        text = canonical(tree)
        if len(text) > NAME_LIMIT and stem_of(context, tree) is not None:
            raise context.wrong(f"this script has more than {NAME_LIMIT} characters", tree, "shorten the name")
        if mark.type == "CARET" and text and not text.strip("'"):
            found.append(Script("'", text, start, stop))
        elif mark.type == "CARET" and ends_transposed(tree):
            if text[:-1]:  # ^{Q\top}: a name's superscript, then a transpose
                found.append(Script("^", text[:-1], start, stop, tree))
            found.append(Script("T", "T", start, stop))
        elif text:
            word = tree.children[0] if tree.data == "word" else None
            kind = "_" if mark.type == "UNDER" else "^"
            found.append(Script(kind, text, start, stop, tree, word if isinstance(word, Token) else None))
    return found


def only_name(context: Context, item: Branch) -> tuple[Branch, Stem] | None:
    """The factor and its stem, if an item is one factor that can begin a name."""
    factor = only_factor(item)
    stem = stem_of(context, branches(factor)[0]) if factor is not None else None
    return (factor, stem) if factor is not None and stem is not None else None


def lone_name(context: Context, part: Branch) -> str:
    """The key of the one letter, with subscripts or without, that a part consists of; empty where it is more."""
    inner = branches(part)
    part = inner[0] if part.data in ("braces", "paren") and inner else part
    factor = only_factor(part)
    atom = part if factor is None else branches(factor)[0]
    stem = stem_of(context, atom) if atom.data in ("word", "text") else None
    scripts = [] if factor is None else scripts_of(context, factor)
    if stem is None or any(one.kind != "_" for one in scripts) or (stem.letters is not None and len(stem.word) > 1):
        return ""
    return spelling(stem.word, scripts).key


def check_key(context: Context, key: str, part: Part) -> None:
    """Refuse a name that is too long."""
    if len(key) > NAME_LIMIT:
        raise context.wrong(
            f"this name has {len(key)} characters; names have at most {NAME_LIMIT}", part, "shorten the name"
        )
