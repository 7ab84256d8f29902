"""Numbers in the words of a paper that tell an answer, or a step on the way to one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from symcomm.core import form as forms
from symcomm.core.derivation import writing
from symcomm.core.errors import Span
from symcomm.core.records import dataclass
from symcomm.core.units import Quantity
from symcomm.documents.render.document import Document, Heading, Only, Picture, Prose

_HIDDEN = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)|https?://\S+|\{\{.*?\}\}", re.DOTALL)
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12, "Tausend": 3, "Millionen": 6, "Milliarden": 9,
           "Billionen": 12, "万": 4, "亿": 8}  # fmt: skip
_NUMBER = re.compile(
    r"(?<![\w.,^_/\\-])(?P<digits>\d{1,3}(?:(?:\\,|\\ |[\u00a0\u2009\u202f ,])\d{3})+(?!\d)|\d+)(?P<decimals>[.]\d+)?"
    r"(?:\s*(?:·|×|\\cdot|\\times)\s*10\s*\^\s*\{?(?P<power>-?\d{1,3})\}?)?(?:/(?P<below>\d+))?"
    rf"(?P<percent>\s*\\?%|\s+(?:percent|Prozent)\b)?(?:\s*(?P<scale>{'|'.join(_SCALES)}))?"
    r"(?:[\s~]*(?P<unit>(?:(?:[kMGTPEµμnm]|[KMGT]i)?(?:FLOPs?|B|s)|bytes?|seconds?|min|h|days?|tokens?)"
    r"(?:/(?:s|B|token))?)(?![\w]))?"
)
_GONE = re.compile(r"\\text\{|\\mathrm\{|\\left|\\right|\\approx|[$}{]")


@dataclass(frozen=True)
class _Typed:
    """A number as it is typed: what it is worth, the worth of its last digit, its digits, and its unit.

    ``number`` is the same without its unit.
    """

    value: Fraction
    last: Fraction
    digits: int
    unit: str
    exact: bool
    number: Fraction

    def says(self, value: Fraction) -> bool:
        """Whether a value, rounded to so many digits, is this number."""
        return value == self.value if self.exact else abs(value - self.value) <= self.last / 2


def telling(document: Document) -> Iterator[Span]:
    """Where prose, a heading or a caption of the paper has a number that rounds to an answer or to a step's value.

    A number that is given is no answer; of a step, and of an answer without a unit, few digits may agree by chance.
    """
    values = [*_worth(document)]
    if not values:
        return
    given = {number for text in document.written for number in numbers_in(text)}
    hidden = False
    for block in document.blocks:
        match block:
            case Only(name):
                hidden = bool(name) and name != "paper"
            case Prose(text, span) | Heading(_, text, _, span) if not hidden:
                yield from _found(text, span, values, given)
            case Picture() if block.paper and not hidden:
                yield from _found(block.caption, block.span, values, given)


def numbers_in(text: str) -> set[Fraction]:
    """The values of the numbers in a text, with their units and without.

    >>> sorted(map(int, numbers_in("{N: 32, n: 12 GiB}")))
    [12, 32, 12884901888]
    """
    typed = [_typed(match) for match in _NUMBER.finditer(text)]
    return {one.value for one in typed} | {one.number for one in typed}


def _worth(document: Document) -> Iterator[tuple[Fraction, str, bool]]:
    """The values of answers and steps with their units, and whether each is an answer's."""
    for answer in document.answers():
        derivation = answer.derivation
        known = writing.numbers(derivation, {g.name: g.quantity.value for g in answer.given})
        if answer.quantity is not None and isinstance(answer.quantity.value, Fraction):
            base = answer.quantity.base()
            yield base.value, str(base.unit), True
        for step in derivation.steps:
            value = known.get(step.name)
            if value is not None and forms.names(step.form):  # a number that stands there by itself is a constant
                yield value, str(step.unit), False
                factors = step.form.factors if isinstance(step.form, forms.Product) else ()
                for factor in factors:  # the bytes of so many elements tell the elements
                    if isinstance(factor, forms.Num) and factor.number not in (0, 1):
                        yield value / factor.number, "1", False


def _found(text: str, span: Span, values: list[tuple[Fraction, str, bool]], given: set[Fraction]) -> Iterator[Span]:
    blank = _HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    blank = _GONE.sub(lambda match: " " * len(match[0]), blank.replace("\\ ", "  ").replace("\\,", "\u202f "))
    blank = re.sub("(?<=\\d)\u202f (?=\\d)", "\\,", blank)
    for match in _NUMBER.finditer(blank):
        typed = _typed(match)
        if {typed.value, typed.number} & given or not any(_tells(typed, *one) for one in values):
            continue
        line, first = text.count("\n", 0, match.start()), text.rfind("\n", 0, match.start()) + 1
        shown, begin = text[first:].split("\n", 1)[0], match.start() - first
        if not line and span.text and span.text != shown:
            shown, begin = span.text, max(0, span.text.find(text[match.start() : match.end()]))
        yield Span(span.file, span.line + line, shown, begin, begin + len(match[0]), span.cell)


def _typed(match: re.Match[str]) -> _Typed:
    digits, decimals = re.sub(r"\D", "", match["digits"]), match["decimals"] or ""
    scale = Fraction(10) ** (int(match["power"] or 0) + _SCALES.get(match["scale"] or "", 0))
    scale *= Fraction(1, 100) if match["percent"] else 1
    unit = ""
    if match["unit"]:
        one = Quantity.parse(f"1 {match['unit']}")
        scale, unit = scale * one.value, str(one.unit)
    number = Fraction(digits + decimals)
    below = int(match["below"] or 0)
    last = scale / 10 ** max(0, len(decimals) - 1)
    significant = len((digits + decimals[1:]).lstrip("0"))
    return _Typed(number / (below or 1) * scale, last, significant + len(match["below"] or ""), unit, below > 0,
                  number)  # fmt: skip


def _tells(typed: _Typed, value: Fraction, unit: str, answer: bool) -> bool:
    fits = typed.unit == unit or (not typed.unit and (unit not in ("B", "s") or typed.digits > 4))
    least = (2 if typed.unit or not typed.last < 1 else 3) if answer else 3
    least -= 1 if answer and typed.unit and typed.value == value else 0
    return fits and typed.digits >= least and typed.says(value) and abs(value) not in (10, 100, 1000, 10**6, 10**9)
