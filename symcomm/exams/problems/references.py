r"""References in a problem document: ``{{ D }}`` and ``{{ M in GiB }}`` stand for values, in prose and in blocks.

A reference is written between two pairs of braces: a name (of a value that was drawn or given), perhaps a topic before
it (``{{ answer:2.1 }}``) and a unit behind it. What it stands for is put there as text and never read as anything
else. LaTeX may have two pairs of braces of its own: in maths, what is no known name is left as it stands.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from symcomm.core.blocks import BRACES, Listing, Scalar, Value
from symcomm.core.errors import DocumentError, Span, SymcommError, nearest
from symcomm.core.records import dataclass, replace
from symcomm.core.units import Quantity, exact_text

_INSIDE = re.compile(
    r"\s*(?:(?P<topic>[a-z]{1,20})\s*:\s*)?(?P<name>[^\W\d][\w'^]{0,39}(?:\.\w{1,40})*|(?<=:)\s*[\w.\-]{1,60}?)"
    r"(?:\s+in\s+(?P<unit>[^\s].{0,40}?))?\s*"
)
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_MATHS = re.compile(r"\$\$.+?\$\$|(?<!\\)\$[^$\n]+?(?<!\\)\$", re.DOTALL)


@dataclass(frozen=True)
class Reference:
    """One reference and where it is; ``topic`` is empty for a value, and ``maths`` says that it is in a formula."""

    topic: str
    name: str
    unit: str
    maths: bool
    span: Span


@dataclass(frozen=True)
class NamedValue:
    """The value of a name: the text as it was written or drawn, and the quantity where it is one."""

    text: str
    quantity: Quantity | None = None

    @classmethod
    def of(cls, quantity: Quantity, text: str = "") -> NamedValue:
        """A quantity, as it is written or (without a text) with its exact number."""
        return cls(text or f"{exact_text(quantity.value)} {quantity.unit if str(quantity.unit) != '1' else ''}".strip(),
                   quantity)  # fmt: skip


Lookup = Callable[[Reference], "NamedValue | None"]


def references(text: str, span: Span) -> Iterator[Reference]:
    """The references of a text, in order; ``span`` is the place of its first line.

    Raises ``DocumentError`` for braces in prose that hold no reference.

    >>> [r.name for r in references("{{ D }} and $2^{{ k }}$", Span("t.md", 1, "", 0, 0))]
    ['D', 'k']
    """
    return (found for found, _ in _found(text, span))


def fill(text: str, span: Span, lookup: Lookup, maths: bool | None = None) -> str:
    r"""The text with what its references stand for.

    ``lookup`` says what a reference stands for, or None where it has to stay. ``maths`` says for the whole text
    whether it is a formula; without it dollar signs tell. Raises ``DocumentError`` for a unit that does not fit.

    >>> gib = NamedValue.of(Quantity.parse("8 GiB"), "8 GiB")
    >>> fill("has {{ M }}, $M = {{ M in MiB }}$", Span("t.md", 1, "", 0, 0), lambda reference: gib)
    'has 8 GiB, $M = 8192\\ \\text{MiB}$'
    """
    if "{{" not in text:
        return text
    parts, end = [], 0
    for reference, match in _found(text, span):
        said = lookup(reference)
        if said is None:
            continue
        inside = reference.maths if maths is None else maths
        parts += [text[end : match.start()], _written(said, reference, inside)]
        end = match.end()
    return "".join(parts) + text[end:]


def of_values(values: Mapping[str, NamedValue], *, final: bool = False) -> Lookup:
    """The numbers of named values. A topic is left for later; so is an unknown name, if this is not ``final``.

    Raises ``DocumentError`` for an unknown name.
    """

    def lookup(reference: Reference) -> NamedValue | None:
        if reference.topic:
            return None
        said = values.get(reference.name)
        if said is None and final and not (reference.maths and reference.span.word[2:3] != " "):
            known = nearest(reference.name, [*values]) if values else "no value is given or drawn in this document"
            raise DocumentError(f"nothing is called '{reference.name[:60]}' here", reference.span, known)
        return said

    return lookup


@lru_cache(maxsize=4096)  # the papers of a class fill the same texts
def _found(text: str, span: Span) -> tuple[tuple[Reference, re.Match[str]], ...]:
    return tuple(_find(text, span))


def _find(text: str, span: Span) -> Iterator[tuple[Reference, re.Match[str]]]:
    code = [found.span() for found in _CODE.finditer(text)]
    maths = [found.span() for found in _MATHS.finditer(text)]
    for match in BRACES.finditer(text):
        at = match.start()
        if any(start <= at < stop for start, stop in code):
            continue
        inside = any(start <= at < stop for start, stop in maths)
        line = text.count("\n", 0, at)
        first = text.rfind("\n", 0, at) + 1
        shown = text[first:].split("\n", 1)[0]
        begin = at - first
        if not line and span.text != shown:  # the text stands somewhere in its line
            begin, shown = max(0, span.text.find(match[0])), span.text or shown
        place = Span(span.file, span.line + line, shown, begin, begin + len(match[0]), span.cell)
        said = _INSIDE.fullmatch(match[1])
        if said is None:
            if inside:
                continue
            hint = "write {{ D }} for a value, {{ D in GiB }} for a unit; braces as text stand in `code`"
            raise DocumentError(f"'{match[0][:60]}' is no reference", place, hint)
        yield Reference(said["topic"] or "", said["name"].strip(), said["unit"] or "", inside, place), match


def _written(said: NamedValue, reference: Reference, maths: bool) -> str:
    text = said.text
    if reference.unit:
        if said.quantity is None:
            raise DocumentError(f"{reference.name} is '{text[:40]}', which has no unit", reference.span)
        text = in_unit(said.quantity, reference.unit, reference.span)
    if maths and said.quantity is not None:
        number, gap, unit = text.partition(next((c for c in " " if c in text), " "))
        while unit[:1].isdigit():  # digits in groups
            more, _, unit = unit.partition(" ")
            number += r"\," + more
        return number + (rf"\ \text{{{unit}}}" if gap and unit else "")
    return text


def filled(value: Value, lookup: Lookup) -> Any:
    """The value with what its references stand for; every place is that of the reference.

    >>> from symcomm.core.blocks import section_of
    >>> filled(section_of("strategy: tensor({{ k }})", "t.md"), of_values({"k": NamedValue("8")})).plain
    {'strategy': 'tensor(8)'}
    """
    if isinstance(value, Scalar):
        return replace(value, text=fill(value.text, value.span, lookup)) if "{{" in value.text else value
    if isinstance(value, Listing):
        items = tuple(filled(item, lookup) for item in value.items)
        return value if all(map(operator.is_, items, value.items)) else replace(value, items=items)
    entries = tuple((filled(key, lookup), filled(one, lookup)) for key, one in value.entries)
    same = all(a is b for pairs in zip(entries, value.entries, strict=True) for a, b in zip(*pairs, strict=True))
    return value if same else replace(value, entries=entries)


def referred(value: Value) -> frozenset[str]:
    """The names of values that a block refers to."""
    texts = [one for one in value.scalars() if "{{" in one.text]
    return frozenset(one.name for said in texts for one in references(said.text, said.span) if not one.topic)


def in_unit(quantity: Quantity, unit: str, span: Span) -> str:
    """A quantity in a unit with its prefix, exact where that takes few digits and with six of them elsewhere.

    >>> in_unit(Quantity.parse("12 GiB"), "GB", Span("t.md", 1, "", 0, 0))
    '12.8849 GB'
    """
    try:
        one = Quantity.parse(f"1 {unit}")
    except SymcommError as error:
        raise DocumentError(error.message, span, error.hint) from None
    if one.unit != quantity.base().unit:
        raise DocumentError(f"{quantity.reading} is not measured in {unit}", span)
    scaled = quantity.base().value / one.value
    exact = scaled.denominator == 1 or (scaled * Fraction(10) ** 6).denominator == 1
    return f"{exact_text(scaled) if exact else Quantity(scaled).rounded(6)} {unit}"
