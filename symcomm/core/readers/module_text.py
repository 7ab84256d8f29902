"""Reads a printed PyTorch module tree, with the places of everything, and repairs a known kind of damage."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from lark import Token, Tree, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from symcomm.core.errors import Span
from symcomm.core.readers.blueprint import Blueprint, ReaderError
from symcomm.core.readers.modules import Module, Setting, declare, from_tree, leaf
from symcomm.core.records import dataclass
from symcomm.core.text.grammars import MODULE
from symcomm.core.text.table import check_text

DEPTH_LIMIT = 60
MODULE_LIMIT = 20_000
COUNT_LIMIT = 1_000_000
# What may repeat gives nothing back, so that blanks without end take no time.
_START = re.compile(
    r"\s*+(?:```\w*+[^\S\n]*+\n\s*+)?+(?:>>> [^\n]*+\n\s*+)?+(?:"
    r"[A-Za-z_]\w*+\([^\S\n]*+(?:\n|$|\([\w.\-]++\):)|[A-Z]\w*+\([^\n]*\)\s*+\Z)"
)
# From a class alone on its line, a child on the next, to the bracket below it or the end of the fence.
_TREE = re.compile(
    r"^(?P<indent>[ \t]*)[A-Za-z_]\w*\([ \t]*\n[ \t]+\([\w.\-]+\): [A-Za-z_]\w*\((?:.*\n)(?:(?![ \t]*```).*\n)*?"
    r"(?:(?P=indent)\)[ \t]*$|(?=[ \t]*```|\Z))",
    re.MULTILINE,
)
_CONFIG = re.compile(r"^\w+Config \{", re.MULTILINE)
_TOKENS = re.compile(r"'[^'\n]*'|\"[^\"\n]*\"|[()\[\]]")


def is_module_text(text: str) -> bool:
    r"""Whether a text is a printed module tree.

    >>> is_module_text("Net(\n  (fc): Linear(in_features=2, out_features=3)\n)"), is_module_text("y = f(x)\n")
    (True, False)
    """
    return _START.match(text) is not None


def module_inside(text: str, file: str = "<text>") -> str | None:
    r"""The one printed module tree that is in the prose of a document, on the lines where it is; None for none.

    >>> module_inside("Deliverable 1\n```\nNet(\n  (fc): Linear(in_features=2, out_features=3)\n)\n```\nIt prints so.")
    '\n\nNet(\n  (fc): Linear(in_features=2, out_features=3)\n)'

    Raises ``ReaderError`` where there are several.
    """
    found = [*_TREE.finditer(text)]
    if not found:
        return None
    lines = [text.count("\n", 0, one.start()) for one in found]
    if len(found) > 1:
        said = ", ".join(str(line + 1) for line in lines)
        raise ReaderError(f"{file} prints {len(found)} modules, in lines {said}", hint="give the text of one of them")
    return "\n" * lines[0] + found[0][0]


@dataclass(frozen=True)
class Printed:
    """A module tree as it literally is, the repaired one where it is damaged, and what was noticed."""

    literal: Module
    repaired: Module
    notes: tuple[str, ...] = ()


class _Text:
    """A text, and where its lines begin."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def line(self, place: int) -> int:
        return max(1, min(bisect_right(self.starts, place), len(self.lines)))

    def span(self, start: int, stop: int) -> Span:
        number = self.line(start)
        line, first = self.lines[number - 1], start - self.starts[number - 1]
        last = max(first + 1, stop - self.starts[number - 1])
        return Span(self.file, number, line, min(first, len(line)), min(last, len(line)))


def parse_module(text: str, file: str = "<module>") -> Printed:
    r"""The module tree of a printed text.

    >>> printed = parse_module("Net(\n  (fc): Linear(in_features=2, out_features=3, bias=True)\n)")
    >>> printed.literal.children[0].settings[0]
    ('in_features', 2)

    Raises ``ReaderError`` for a text that is cut off, is no module tree, or is too large.
    """
    check_text(text, file)
    body, notes = _inside(text)
    source = _Text(body, file)
    _balanced(source)
    try:
        tree = MODULE.parser().parse(body)
    except UnexpectedInput as error:
        raise _translated(error, source) from None
    counted = [0]
    root = tree.children[0]
    assert isinstance(root, Tree)
    literal = _module(root, "", source, counted)
    wrapped = _wrapped(root, source)
    if wrapped:
        lines = ", ".join(str(n) for n in wrapped)
        notes.append(f"settings that run on in the next line are read as one: line{'s' * (len(wrapped) > 1)} {lines}")
    repaired, said = _repair(literal)
    return Printed(literal, repaired, (*notes, *said))


def _inside(text: str) -> tuple[str, list[str]]:
    """The text with what stands around the module blanked out: fences, and a configuration printed behind it."""
    notes: list[str] = []
    found = _CONFIG.search(text)
    if found and found.start() > 0:
        notes.append(f"the configuration printed behind the module is left out: {found.group()[:-2]}")
        text = text[: found.start()]
    return re.sub(r"^[ \t]*(?:```|>>> ).*$", lambda m: " " * len(m.group()), text, flags=re.MULTILINE), notes


def _balanced(source: _Text) -> None:
    """Refuses brackets that are not closed, too many, or too deep, before anything is parsed."""
    opened: list[int] = []
    text, done = source.text, False
    for found in _TOKENS.finditer(text):
        mark, at = found.group(), found.start()
        if mark in "([":
            if done:
                break
            opened.append(at)
            if len(opened) > DEPTH_LIMIT:
                raise ReaderError(f"brackets stand more than {DEPTH_LIMIT} deep", source.span(at, at + 1))
        elif mark in ")]":
            if not opened:
                raise ReaderError(
                    "this bracket closes nothing", source.span(at, at + 1), "is it, or one before it, too many?"
                )
            opened.pop()
            done = not opened
    if opened:
        name = re.search(r"(\w+)\($", text[: opened[-1] + 1])
        inner = name.group(1) if name else "a setting"
        many = len(opened)
        raise ReaderError(
            f"the module text ends inside {inner}: {many} bracket{'s are' if many > 1 else ' is'} not closed",
            source.span(opened[-1] - len(inner) if name else opened[-1], opened[-1] + 1),
            "the text is cut off; copy it to the last bracket",
        )


def _translated(error: UnexpectedInput, source: _Text) -> ReaderError:
    """Lark's error in words about the module."""
    place = error.pos_in_stream or 0
    if isinstance(error, UnexpectedToken):
        token = error.token
        place = token.start_pos if token.start_pos is not None else len(source.text)
        shown, stop = str(token), place + max(1, len(token))
        if token.type == "$END":
            last = max(0, len(source.text.rstrip()) - 1)
            return ReaderError("the module text ends too early", source.span(last, last + 1))
    elif isinstance(error, UnexpectedCharacters):
        shown, stop = source.text[place : place + 1], place + 1
    else:  # pragma: no cover - Lark has no other kinds
        shown, stop = "", place + 1
    return ReaderError(
        f"`{shown.strip()[:40]}` cannot stand here in a module tree", source.span(place, stop),
        "a module is printed as (name): Class(settings), its children on lines of their own",
    )  # fmt: skip


def _module(tree: Tree[Token], name: str, source: _Text, counted: list[int]) -> Module:
    """A module of the grammar's tree; depth was checked before."""
    counted[0] += 1
    count, kind = 1, ""
    settings: list[tuple[str, Setting]] = []
    children: list[Module] = []
    span: Span | None = None
    for child in tree.children:
        if isinstance(child, Token):
            if child.type == "REPEAT":
                count = int(child.split()[0][:9])
                if not 0 < count <= COUNT_LIMIT:
                    place = source.span(child.start_pos or 0, child.end_pos or 0)
                    hint = f"a layer stands 1 to {COUNT_LIMIT:,} times"
                    raise ReaderError(f"a module {child.split()[0][:12]} times", place, hint)
            elif child.type == "NAME":
                kind = str(child)
                span = source.span(child.start_pos or 0, child.end_pos or 0)
        elif child.data == "child":
            label, inner = child.children
            assert isinstance(label, Token)
            assert isinstance(inner, Tree)
            called = label[1 : label.index(")")]
            made = _module(inner, called, source, counted)
            given = re.fullmatch(r"(\d{1,9})-(\d{1,9})", called)
            if given and int(given[2]) - int(given[1]) + 1 != made.count:
                raise ReaderError(
                    f"({called}) are {int(given[2]) - int(given[1]) + 1} modules, but {made.count} x is written",
                    source.span(label.start_pos or 0, label.end_pos or 0),
                )
            children.append(made)
        elif child.data == "setting":
            *names, value = child.children
            settings.append((str(names[0]) if names else "", _value(value)))
    if counted[0] > MODULE_LIMIT:
        raise ReaderError(f"{source.file}: more than {MODULE_LIMIT:,} modules")
    return Module(name, kind, tuple(settings), tuple(children), count, span)


def _value(part: Token | Tree[Token]) -> Setting:
    assert isinstance(part, Tree)
    if part.data == "tuple":
        return tuple(_value(child) for child in part.children if isinstance(child, Tree))
    text = str(part.children[0])
    if part.data != "number":
        return text
    if re.fullmatch(r"[-+]?\d{1,18}", text):
        return int(text)
    return Fraction(text) if len(text) < 30 and not re.search(r"[eE][-+]?\d{4}", text) else text


def _wrapped(root: Tree[Token], source: _Text) -> list[int]:
    """The lines in which settings of one module break off."""
    found = []
    for tree in root.iter_subtrees():
        if tree.data == "module":
            settings = [c for c in tree.children if isinstance(c, Tree) and c.data == "setting"]
            name = next(c for c in tree.children if isinstance(c, Token) and c.type == "NAME")
            childless = not any(isinstance(c, Tree) and c.data == "child" for c in tree.children)
            begins = [next(s.scan_values(lambda one: isinstance(one, Token)), name) for s in settings if childless]
            first, *_, last = [source.line(token.start_pos or 0) for token in (name, name, *begins)]
            if first != last:
                found.append(first)
    return sorted(found)


def _repair(module: Module) -> tuple[Module, list[str]]:
    """The tree with the named children of a ModuleList put into the module before them, and what was done.

    A ModuleList numbers its children. A named one there was cut out of the numbered one before it by a bracket that
    closed too early.
    """
    notes: list[str] = []

    def go(one: Module) -> Module:
        children: list[Module] = []
        for child in one.children:
            before = children[-1] if children else None
            numbered = re.fullmatch(r"\d+(-\d+)?", child.name) is not None
            if one.kind == "ModuleList" and not numbered and before is not None and leaf(before.kind) is None:
                children[-1] = replace(before, children=(*before.children, child))
                line = f"line {child.span.line}" if child.span else "the text"
                notes.append(
                    f"{line}: ({child.name}) stands in a ModuleList, whose children are numbered: the bracket that "
                    f"closes {before.kind} came too early, and ({child.name}) is read as part of it"
                )
            else:
                children.append(child)
        return replace(one, children=tuple(go(child) for child in children))

    return go(module), notes


def read_module_text(
    text: str, file: str = "<module>", leaves: Mapping[str, list[tuple[int, ...]]] | None = None
) -> Blueprint:
    """The blueprint of a printed module tree; of its repaired reading, with the literal one beside it.

    ``leaves`` declares the shapes of the weights of layer classes of one's own.
    """
    printed = parse_module(text, file)
    made = as_blueprint(declare(printed.repaired, dict(leaves or {})), printed.notes)
    if printed.repaired != printed.literal:
        said = ("the text is read as it literally stands",)
        literal = as_blueprint(declare(printed.literal, dict(leaves or {})), said)
        made = replace(made, literal=literal)
    return made


def as_blueprint(module: Module, notes: tuple[str, ...] = ()) -> Blueprint:
    """The blueprint of a tree: that of its architecture where it is one that is known, else that of its weights."""
    from symcomm.core.readers.recognise import recognise
    from symcomm.core.readers.unprinted import completed

    module, said = completed(module)
    known = recognise(module)
    if known is not None:
        return replace(known, notes=(*notes, *said, *known.notes))
    unseen = "a print shows modules: a weight that is none, or is used twice, stands in it only where a note says so"
    return from_tree(module, notes=(*notes, *said, unseen))
