"""The input of an exporter: questions of drawn papers, as text, numbers and forms; nothing is derived after this.

Texts are XHTML whose formulas are MathML with their TeX as an annotation; an exporter takes the one or the other
(``markup``). Numbers are exact, in the unit that the question asks for.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Literal

from symcomm.core.errors import DocumentError, Span
from symcomm.core.form import Form
from symcomm.core.records import dataclass
from symcomm.core.units import BINARY, DECIMAL, Quantity, Unit

Kind = Literal["numeric", "choice", "symbolic"]
LEAST, MOST = Fraction(1, 1000), 100_000  # numbers of answers lie between: Canvas makes 0 of smaller ones
# What XML cannot hold, and a noncharacter that we mark places with.
_REFUSED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


@dataclass(frozen=True)
class Recognised:
    """A known wrong answer: number or formula, share of the points, why, and its place in a list of all variants."""

    names: tuple[str, ...]
    value: Fraction | None
    form: Form | None
    credit: Fraction
    feedback: str
    place: int = 1


@dataclass(frozen=True)
class QuestionOption:
    """One of several answers to choose from."""

    text: str
    right: bool
    credit: Fraction
    feedback: str


@dataclass(frozen=True)
class QuestionPart:
    """One answer: what comes before its field, its points, what is right and what is recognised."""

    id: str
    kind: Kind
    prompt: str
    points: Fraction
    answer: Fraction | None
    unit: str  # of the answer
    units: tuple[tuple[str, Fraction], ...]  # all in which it may be said, and what the number is multiplied by
    tolerance: Fraction | None  # a share of the number; None is half a unit of its third digit
    form: Form
    symbols: tuple[str, ...]  # those that a formula may have
    recognised: tuple[Recognised, ...]
    options: tuple[QuestionOption, ...]
    worked: str
    relations: tuple[tuple[str, Form], ...] = ()  # between the symbols: a name, and what it stands for

    @property
    def answers(self) -> tuple[Recognised, ...]:
        """The right answer, then those that are recognised; of options their places from 1 on."""
        if self.options:
            made = enumerate(sorted(enumerate(self.options, start=1), key=lambda one: not one[1].right))
            return tuple(Recognised(("option",), Fraction(n), None, o.credit, o.feedback, at) for at, (n, o) in made)
        return Recognised((), self.answer, self.form, Fraction(1), "", 0), *self.recognised

    @property
    def text(self) -> str:
        """The right number, with more digits than the tolerance needs."""
        return self.number(self.answer)

    def number(self, value: Fraction | None) -> str:
        """A number in the unit of the answer."""
        return self.texts(value)[0]

    def spread(self, value: Fraction | None) -> Fraction:
        """How far a number may be off; at least a little, so that a rounded number is never missed."""
        assert value is not None
        return Fraction(*spread_of(value, self.tolerance))

    def texts(self, value: Fraction | None) -> tuple[str, str]:
        """A number in the unit of the answer, and how far it may be off, as decimals."""
        assert value is not None
        over, under = spread_of(value, self.tolerance)
        said = decimal_text(value.numerator, value.denominator, over, 10 * under)
        return said, decimal_text(over, under, over, under)

    def bounds(self, value: Fraction | None) -> tuple[str, str]:
        """The numbers between which one lies that is not off by more."""
        assert value is not None
        over, under = spread_of(value, self.tolerance)
        middle, below = value.numerator * under, value.denominator * under
        off = over * value.denominator
        return decimal_text(middle - off, below, over, under), decimal_text(middle + off, below, over, under)


@dataclass(frozen=True)
class PictureFile:
    """A picture: its file name, what is in the file, and what it shows."""

    name: str
    data: bytes
    alt: str

    @property
    def encoded(self) -> str:
        """Its bytes as text, in base 64."""
        return base64.b64encode(self.data).decode("ascii")


@dataclass(frozen=True)
class Item:
    """A question of one variant: blocks of text with the answers where they stand, and its pictures.

    In the text a picture is ``<img src="media:NAME" alt="..."/>``.
    """

    id: str
    variant: int
    title: str
    blocks: tuple[str | QuestionPart, ...]
    media: tuple[PictureFile, ...]
    span: Span | None = None

    @cached_property
    def parts(self) -> tuple[QuestionPart, ...]:
        """The answers, in order."""
        return tuple(block for block in self.blocks if isinstance(block, QuestionPart))

    @property
    def kind(self) -> str:
        """``numeric``, ``choice`` or ``symbolic``; ``multi-part`` where there are several answers."""
        return self.parts[0].kind if len(self.parts) == 1 else "multi-part"

    @property
    def points(self) -> Fraction:
        """The points of all parts."""
        return sum((part.points for part in self.parts), Fraction(0))

    @cached_property
    def worked(self) -> str:
        """The solutions of all parts."""
        return "".join(f"<p>{part.prompt} {part.worked}</p>" for part in self.parts)

    @property
    def group(self) -> str:
        """An identifier of the question, the same for all variants: a letter, then letters, digits and ``_``."""
        return identifier(self.id)

    @property
    def name(self) -> str:
        """An identifier of this variant."""
        return f"{self.group}_v{self.variant:04d}"

    def check(self) -> None:
        """Raises ``DocumentError`` for a character that the formats cannot hold."""
        for found in filter(None, map(_refused, self._texts())):
            said = f"{self.id}, variant {self.variant}: the character U+{ord(found[0]):04X} is in none of the formats"
            raise DocumentError(said, self.span, "leave it out")

    def _texts(self) -> Iterator[str]:
        """All that is the author's."""
        yield from (self.id, self.title, *(block for block in self.blocks if isinstance(block, str)))
        for part in self.parts:
            yield from (part.id, part.prompt, part.unit, part.worked, *part.symbols, *(name for name, _ in part.units))
            yield from (text for one in part.recognised for text in (*one.names, one.feedback))
            yield from (text for one in part.options for text in (one.text, one.feedback))
        yield from (text for medium in self.media for text in (medium.name, medium.alt))


@lru_cache(1024)  # what stands before all questions of a variant is in each of them
def _refused(text: str) -> re.Match[str] | None:
    return _REFUSED.search(text)


def identifier(name: str) -> str:
    """A name as the formats allow it; different names stay different.

    >>> identifier("peak"), identifier("2 a")
    ('peak', 'q2_a_1f46d0')
    """
    kept = re.sub(r"[^A-Za-z0-9_]+", "_", name)[:40]
    kept = kept if kept[:1].isalpha() else f"q{kept}"
    return kept if kept == name else f"{kept}_{sha256(name.encode(errors='surrogatepass')).hexdigest()[:6]}"


def spread_of(value: Fraction, share: Fraction | None) -> tuple[int, int]:
    """How far a number may be off, above and below the line: whole numbers that are not cancelled.

    ``share`` is a share of it. None is half a unit of its third digit, and a thousandth of a unit more: systems compare
    floating-point numbers.

    >>> spread_of(Fraction("32.175"), None), spread_of(Fraction(2), Fraction(1, 100))
    ((501, 10000), (2, 100))
    """
    top, bottom = abs(value.numerator), value.denominator
    if not top:
        return 1, 10**9
    if share is not None:
        return top * share.numerator, bottom * share.denominator
    power = len(str(top // bottom)) - 1 if top >= bottom else -len(str((bottom - 1) // top))  # of the first digit
    return 501 * 10 ** max(power - 5, 0), 10 ** max(5 - power, 0)


def number_text(value: Fraction, spread: Fraction) -> str:
    """A decimal that is exact where it is short, and else closer than a hundredth of ``spread``.

    >>> number_text(Fraction(1029, 2), Fraction(1, 2)), number_text(Fraction(-1, 3), Fraction(1, 100))
    ('514.5', '-0.3333')
    """
    return decimal_text(value.numerator, value.denominator, spread.numerator, spread.denominator)


def decimal_text(top: int, bottom: int, over: int, under: int) -> str:
    """The same of whole numbers above and below the line, whether cancelled or not: a class has a hundred thousand."""
    if bottom == 1:
        return str(top)
    places = 9
    scaled, rest = divmod(abs(top) * 10**9, bottom)
    if rest:
        places, under = 0, 50 * under
        while places < 400 and over < under:
            places, over = places + 1, over * 10
        scaled, rest = divmod(abs(top) * 10**places, bottom)
        scaled += 2 * rest > bottom or (2 * rest == bottom and scaled % 2)
    digits = str(scaled).zfill(places + 1)
    text = f"{digits[:-places]}.{digits[-places:]}".rstrip("0").rstrip(".") if places else digits
    return f"-{text}" if top < 0 and scaled else text


def shown_in(quantity: Quantity, wanted: str = "") -> tuple[Fraction, str, tuple[tuple[str, Fraction], ...]]:
    """A quantity's number in a unit where it lies between 0.001 and 100 000, that unit, and others for it.

    The others are those with another prefix, each with what the number is multiplied by; none where the unit is only
    a count. ``wanted`` is the unit that the question names.

    >>> shown_in(Quantity.parse("12 GiB"))[:2], shown_in(Quantity.parse("3 us"))[:2]
    ((Fraction(12, 1), 'GiB'), (Fraction(3, 1), 'µs'))
    """
    value, unit = quantity.value, quantity.unit
    names, lead = _spellings(unit, wanted)
    top, bottom = abs(value.numerator), value.denominator
    fitting = {}
    for name, scale in names.items():
        over, under = top * scale.denominator, bottom * scale.numerator
        if not top or (LEAST.numerator * under <= LEAST.denominator * over and over < MOST * under):
            fitting[name] = Fraction(over, under)
    if not fitting:  # a count, or a number beyond all prefixes
        power = 0
        while abs(value) >= Fraction(10) ** (power + 3):
            power += 3
        while abs(value) < Fraction(10) ** power:
            power -= 3
        return value / Fraction(10) ** power, f"10^{power} {unit if unit.powers else ''}".strip(), ()

    def worse(name: str) -> tuple[bool, bool, bool, int, int]:
        number = fitting[name]
        long = (number * 10**6).denominator != 1
        digits = 12 if long else len(number_text(number, Fraction(1)))
        return name != wanted, long and "i" in name, not 1 <= number < 1000, digits, len(name)

    chosen = min(fitting, key=worse)
    others = _multiples(unit, wanted, chosen) if lead else ()
    return value / names[chosen], chosen if unit.powers else "", others


@lru_cache(maxsize=1024)
def _spellings(unit: Unit, wanted: str) -> tuple[dict[str, Fraction], str]:
    """The ways to write a unit, each with how many units it is, and the base that takes a prefix."""
    bases = dict(unit.powers)
    rest = {base: power for base, power in bases.items() if power != 1 or base == "second"}
    plain = rest in ({}, {"second": -1}, {"second": 1})
    lead = next((b for b in ("byte", "FLOP", "operation", "cycle", "second") if plain and bases.get(b) == 1), "")
    scales = {"": Fraction(1)}
    if lead:
        signs = (-1, 0) if lead == "second" else (0, 1)
        prefixes = {n: p for n, p in DECIMAL.items() if n not in ("K", "u") and (p > 0) - (p < 0) in signs}
        scales |= {n: Fraction(10) ** p for n, p in prefixes.items()}
    if lead == "byte" and "second" not in bases:
        scales |= {n: Fraction(2) ** p for n, p in BINARY.items()}
    names = {f"{prefix}{unit}": scale for prefix, scale in scales.items()}
    return ({wanted: Quantity.parse(f"1 {wanted}").value, **names} if wanted else names), lead


@lru_cache(maxsize=4096)
def _multiples(unit: Unit, wanted: str, chosen: str) -> tuple[tuple[str, Fraction], ...]:
    """The ways to write a unit that are not far from one of them, each with how many of it that one is."""
    names, _ = _spellings(unit, wanted)
    others = {n: names[chosen] / s for n, s in names.items() if Fraction(1, 10**6) <= names[chosen] / s <= 10**6}
    others = {chosen: Fraction(1), **others} | {n.replace("µ", "u"): m for n, m in others.items() if "µ" in n}
    return tuple(others.items())
