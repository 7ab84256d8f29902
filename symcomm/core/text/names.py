r"""The names in a run of letters and scripts: ``xW^Q`` is ``x W^Q``, ``QK^\top`` is ``Q K^\top``.

LaTeX writes products without spaces, so a run is split into names that are known; it is refused where two splits
are possible. Exponents are only told apart from names here; :mod:`symcomm.core.text.expressions` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from symcomm.core.errors import FormulaError, nearest
from symcomm.core.text.context import Context
from symcomm.core.text.scripts import check_key
from symcomm.core.text.spelling import Script, Spelling, Stem, latex, spelling
from symcomm.core.text.syntax import Branch, start_of
from symcomm.core.text.tokens import NAME_LIMIT
from symcomm.core.text.tree import Identifier

_UNIT = re.compile(r"[kKMGTP]i?B|[kMGT]?bits?|[kMGTP]?FLOPs?|bytes?|[kMG]Hz|ms|µs|us")


class NamedFactor(NamedTuple):
    """One name of a run, and the exponent and transposes behind it; it is at ``start``."""

    name: Identifier
    start: int
    scripts: tuple[Script, ...] = ()

    def shown(self) -> str:
        """The factor as an error shows it."""
        key = f"{self.name.key}_{self.name.index}" if self.name.index else self.name.key
        return key + "".join("^T" if script.kind == "T" else "^..." for script in self.scripts)


Reading = tuple[NamedFactor, ...]
_LOGARITHMS = frozenset({"ln", "log", "log2"})  # which are written without parentheses more than other functions


def read_names(context: Context, part: Branch, stem: Stem, scripts: list[Script]) -> Reading:
    """The names a stem with its scripts stands for; an error where there are none, or two ways to read them."""
    found = readings(context, stem, scripts)
    if len(found) > 1:
        ways = " or ".join("`" + " ".join(factor.shown() for factor in reading) + "`" for reading in found)
        raise context.wrong(f"'{context.source(part)}' may be {ways}", part, "put spaces between the names")
    if found:
        return found[0]
    if context.scope.sizes is None and context.scope.kind != "tensor":
        word = stem.word.lower()
        if word in _LOGARITHMS and context.scope.kind == "answer":
            hint = f"write {context.source(part)}(x), with parentheses"
            raise context.wrong(f"'{context.source(part)}' is the name of a function", part, hint)
        return (_undeclared_size(context, part, stem, scripts),)
    raise _unknown(context, part, stem, scripts)


def readings(context: Context, stem: Stem, scripts: list[Script]) -> list[Reading]:
    """The ways to read a run; at most two are looked for. One whole name wins over any split."""
    search = _Search(context)
    whole = search.one(stem, scripts)
    if whole is not None:
        return [(whole,)]
    if stem.letters is None:  # a word that is whole, such as a Greek letter: only its scripts may have a tail
        return search.with_tail(stem, scripts)[:2]
    if len(stem.word) + sum(len(script.text) for script in scripts if script.word is not None) > 3 * NAME_LIMIT:
        return []
    return search.splits(stem.word, scripts, stem.letters)


def find(context: Context, stem: Stem, scripts: Sequence[Script]) -> Identifier | None:
    """The known name that a stem with all its scripts is."""
    if any(script.kind == "T" for script in scripts):
        return None
    own = spelling(stem.word, scripts)
    step = Spelling(re.sub(r"('+)(.+)", r"\2\1", own.key))  # names of steps have their primes behind scripts: T_n'
    known = context.scope.find(own) or context.scope.find(step)
    if known is None:
        return None
    key, index = known
    span = context.span(stem.start, stem.stop(scripts))
    return Identifier(span, key, latex(context.cell.text, stem, scripts), index)


class _Search:
    """Looks for the ways to split a run; a way from one place on is looked for once."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.known: dict[tuple[int, int], list[Reading]] = {}

    def one(self, stem: Stem, scripts: list[Script]) -> NamedFactor | None:
        """One known name with all scripts; those at the end may be an exponent and transposes."""
        end = len(scripts)
        while end and scripts[end - 1].kind == "T":
            end -= 1
        own, after = scripts[:end], scripts[end:]
        name = find(self.context, stem, own)
        if name is not None or not own or own[-1].kind != "^":
            return NamedFactor(name, stem.start, tuple(after)) if name is not None else None
        raised = own[-1]
        name = find(self.context, stem, own[:-1])
        if name is None:
            return None
        scope = self.context.scope
        if raised.text == "T" and scope.transposes(name):
            raised = replace(raised, kind="T")
        elif raised.word is not None and not scope.is_size(raised.text):
            return None
        return NamedFactor(name, stem.start, (raised, *after))

    def splits(self, word: str, scripts: list[Script], start: int) -> list[Reading]:
        """Splits of a word into known names; its last name takes the scripts."""
        place = (start, len(scripts))
        if place not in self.known:
            found: list[Reading] = []
            for length in range(1, len(word)):
                head = self.one(Stem(word[:length], word[:length], start), [])
                if head is not None:
                    found += [(head, *tail) for tail in self.splits(word[length:], scripts, start + length)]
                if len(found) > 1:
                    break
            stem = Stem(word, word, start)
            last = self.one(stem, scripts)
            found += [(last,)] if last is not None else self.with_tail(stem, scripts)
            self.known[place] = found[:2]
        return self.known[place]

    def with_tail(self, stem: Stem, scripts: list[Script]) -> list[Reading]:
        """The stem with its scripts, the tail of one of which begins the next name."""
        found: list[Reading] = []
        for number, script in enumerate(scripts):
            if script.word is None:
                continue
            for length in range(1, len(script.text)):
                head = self.one(stem, [*scripts[:number], script.cut(length)])
                if head is not None:
                    after = start_of(script.word) + length
                    tails = self.splits(script.text[length:], scripts[number + 1 :], after)
                    found += [(head, *tail) for tail in tails]
                if len(found) > 1:
                    return found
        return found


def _undeclared_size(context: Context, part: Branch, stem: Stem, scripts: list[Script]) -> NamedFactor:
    """A size that nobody declared: sizes are declared by being used in a shape."""
    if any(script.kind == "T" for script in scripts):
        raise context.wrong("a size has no transpose", part, "write a size such as 4D")
    if _UNIT.fullmatch(stem.word) and not scripts:
        counts = context.scope.kind == "size"
        said = "a size counts things" if counts else "a formula has names"
        hint = "write the number alone" if counts else "write a name, and give it as a number with this unit"
        raise context.wrong(f"'{stem.word}' is a unit, and {said}", part, hint)
    if stem.word in ("mod", "div"):
        hint = r"known: + - * / ^, \lceil, \lfloor, min, max"
        raise context.wrong(f"'{stem.word}' cannot stand in a size", part, hint)
    raised = bool(scripts) and scripts[-1].kind == "^" and scripts[-1].text != "*"
    if context.scope.kind == "size":  # D^2 is a power, but W^Q may be a name
        raised = raised and scripts[-1].text.isdigit()
    own, after = (scripts[:-1], scripts[-1:]) if raised else (scripts, [])
    key = spelling(stem.word, own).key
    check_key(context, key, part)
    context.sizes_found.add(key)
    name = Identifier(context.span(stem.start, stem.stop(own)), key, latex(context.cell.text, stem, own))
    return NamedFactor(name, stem.start, tuple(after))


def _unknown(context: Context, part: Branch, stem: Stem, scripts: list[Script]) -> FormulaError:
    """A name that nothing declares."""
    scope = context.scope
    key, family, member = spelling(stem.word, [script for script in scripts if script.text != "T"])
    check_key(context, key, part)
    if member and scope.is_family(family):
        known = sorted(scope.tensors[family] - {""})[0]
        return context.wrong(
            f"'{key}' is one member of the family {family}_{known}",
            part,
            f"a row computes all members at once: write {family}_{known}"
            + (f", or Repeat({family}_{known}) in a row of its own" if "(" in key else ""),
        )
    hint = nearest(key, scope.known())
    if scope.kind == "tensor" and not hint.startswith("did you mean"):
        hint = f"declare it among the inputs of this row, or above it; {hint}" if hint else "declare it first"
    return context.wrong(f"unknown {'size' if scope.kind == 'size' else 'name'} '{key}'", part, hint)
