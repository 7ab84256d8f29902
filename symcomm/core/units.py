"""Units as powers of named bases, decimal and binary prefixes, and exact quantities."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache, cached_property, lru_cache, total_ordering
from numbers import Rational
from typing import cast

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.records import dataclass

# One row a unit: the spellings people write, the power of bases it is, and whether it takes prefixes.
# A hertz is a clock cycle a second, so that clock x SMs x FMA/clock/SM works out as a unit, too.
_BASES: dict[str, tuple[tuple[str, ...], bool]] = {
    "byte": (("B", "bytes"), True),
    "bit": (("bits",), True),
    "FLOP": (("FLOPs", "flop", "flops"), True),
    "operation": (("op", "ops", "operations"), True),
    "second": (("s", "sec", "seconds"), True),
    "minute": (("minutes", "min", "mins"), False),
    "hour": (("hours", "h"), False),
    "day": (("days", "d"), False),
    "week": (("weeks",), False),
    "cycle": (("clock", "clk", "cycles"), True),
    "FMA": (("fma",), False),
    "SM": (("SMs",), False),
    "element": (("elements",), False),
    "parameter": (("parameters", "params"), False),
    "token": (("tokens",), False),
    "sample": (("samples",), False),
    "layer": (("layers",), False),
    "stage": (("stages",), False),
    "step": (("steps",), False),
    "device": (("devices", "GPU", "GPUs", "rank", "ranks"), False),
    "word": (("words",), False),
    "link": (("links",), False),
    "message": (("messages",), False),
    "iteration": (("iterations",), False),
    "dollar": (("dollars", "USD"), True),
    "watt": (("watts", "W"), True),
    "joule": (("joules",), True),
    "kgCO2": (("kg_CO2", "kgCO2e"), False),
}
_DERIVED = {
    "Hz": "cycle/second", "Wh": "watt*hour", "FLOPS": "FLOP/second", "FLOP/s": "FLOP/second", "bps": "bit/second",
}  # fmt: skip

# What else people write for an amount of bytes or seconds: a quantity that is read is in these.
_WORTH = {
    "bit": (Fraction(1, 8), "byte"),
    "minute": (Fraction(60), "second"),
    "hour": (Fraction(3600), "second"),
    "day": (Fraction(86_400), "second"),
    "week": (Fraction(604_800), "second"),
}

DECIMAL = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "m": -3, "u": -6, "µ": -6, "n": -9}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

# Units that only count things: a formula without a unit may be declared to count them.
COUNTS = frozenset(
    {"FLOP", "operation", "element", "parameter", "token", "sample", "layer", "stage", "step", "device", "message"}
)
_SYMBOLS = {"byte": "B", "second": "s", "device": "GPU"}
# What stands in the singular in a unit is counted in the plural: 8 elements, 18 links/GPU.
_COUNTED = re.compile(
    r"^(element|parameter|token|sample|layer|stage|step|word|link|message|iteration|operation|dollar|GPU|SM|minute|hour"
    r"|day|week)(?=$|/)"
)
_NAMED = {(("cycle", 1), ("second", -1)): "Hz", (("hour", 1), ("watt", 1)): "Wh"}  # printed by their names


@dataclass(frozen=True)
class Unit:
    """A product of powers of base units, as sorted pairs.

    >>> str(Unit.parse("FLOP/s") / Unit.parse("byte/s")), str(Quantity.parse("1.41 GHz"))
    ('FLOP/B', '1 410 000 000 Hz = 1.41 GHz')
    """

    powers: tuple[tuple[str, int], ...] = ()

    @staticmethod
    @cache
    def parse(text: str) -> Unit:
        """The unit of a spelling without prefixes, such as ``FLOP/byte`` or ``1``."""
        scale, unit = _parse(text, prefixes=False)
        assert scale == 1
        return unit

    def __mul__(self, other: Unit) -> Unit:
        return _combined(self.powers, other.powers, 1)

    def __truediv__(self, other: Unit) -> Unit:
        return _combined(self.powers, other.powers, -1)

    def __pow__(self, n: int) -> Unit:
        return Unit(tuple((base, p * n) for base, p in self.powers if p * n))

    def __str__(self) -> str:
        return self._spelled

    @cached_property
    def _spelled(self) -> str:
        def side(sign: int) -> str:
            return "·".join(
                _SYMBOLS.get(base, base) + (f"^{abs(p)}" if abs(p) > 1 else "")
                for base, p in self.powers
                if p * sign > 0
            )

        if self.powers in _NAMED:
            return _NAMED[self.powers]
        top, bottom = side(1), side(-1)
        return (top or "1") + (f"/{bottom}" if "·" not in bottom else f"/({bottom})") if bottom else top or "1"

    @property
    def is_count(self) -> bool:
        """Whether it only counts things, so that a bare number can be declared to have it."""
        return not self.powers or (len(self.powers) == 1 and self.powers[0][1] == 1 and self.powers[0][0] in COUNTS)


@lru_cache(maxsize=4096)
def _combined(left: tuple[tuple[str, int], ...], right: tuple[tuple[str, int], ...], sign: int) -> Unit:
    a, b = dict(left), dict(right)
    total = {base: a.get(base, 0) + sign * b.get(base, 0) for base in {*a, *b}}
    return Unit(tuple(sorted((base, p) for base, p in total.items() if p)))


ONE = Unit()
BYTE = Unit((("byte", 1),))
FLOP = Unit((("FLOP", 1),))
ELEMENT = Unit((("element", 1),))
PARAMETER = Unit((("parameter", 1),))


_OWN: dict[str, str] = {}  # words that worksheets declare, and the units that they spell


def declare(words: Sequence[str]) -> None:
    """Makes the first word a unit of its own, without prefixes, which the others spell, too.

    Raises ``ValuesError`` for a word that is another unit already.

    >>> declare(["pallet", "pallets"])
    >>> str(2 * Quantity.parse("3 pallets"))
    '6 pallet'
    """
    for word in words:
        try:
            _lookup(word, prefixes=True)
        except ValuesError:
            continue
        if _OWN.get(word) != words[0]:
            raise ValuesError(f"'{word[:40]}' is a unit already", hint="leave it out, or choose another word")
    _OWN.update(dict.fromkeys(words, words[0]))


def _lookup(word: str, prefixes: bool) -> tuple[Fraction, Unit]:
    if word in _OWN:
        return Fraction(1), Unit(((_OWN[word], 1),))
    word = word.replace("\N{GREEK SMALL LETTER MU}", "\N{MICRO SIGN}")
    if word == "%" and prefixes:
        return Fraction(1, 100), ONE
    if word in _DERIVED:
        return Fraction(1), _parse(_DERIVED[word], False)[1]
    for base, (spellings, takes) in _BASES.items():
        for spelling in (base, *spellings):
            if word == spelling:
                return Fraction(1), Unit(((base, 1),))
            prefix = word[: -len(spelling)] if word.endswith(spelling) else ""
            if prefixes and takes and prefix and prefix in BINARY:
                return Fraction(2 ** BINARY[prefix]), Unit(((base, 1),))
            if prefixes and takes and prefix and prefix in DECIMAL:
                return Fraction(10) ** DECIMAL[prefix], Unit(((base, 1),))
    for derived, meaning in _DERIVED.items():
        if prefixes and word.endswith(derived) and (prefix := word.removesuffix(derived)) in DECIMAL:
            return Fraction(10) ** DECIMAL[prefix], _parse(meaning, False)[1]
    if word.endswith("b") and word[:-1] in DECIMAL | BINARY:
        raise ValuesError(f"unknown unit '{word}'", hint=f"write {word}it for bits, {word[:-1]}B for bytes")
    if word and word in DECIMAL | BINARY:
        out = f"1e{DECIMAL[word]} for 1{word}" if DECIMAL.get(word, 0) > 3 else "8192, or 8000, for 8K"
        raise ValuesError(f"unknown unit '{word}'", hint=f"write the number out: {out}")
    if word == "$":
        raise ValuesError("unknown unit '$'", hint="write dollar, such as 2 dollar/hour")
    known = [*_OWN, *_BASES, *(s for spellings, _ in _BASES.values() for s in spellings), *_DERIVED]
    number = "write a unit such as GB, and a calculation as its result: 2048, not 2^11"
    raise ValuesError(f"unknown unit '{word}'", hint=number if word[:1].isdigit() or not word else nearest(word, known))


def _parse(text: str, prefixes: bool) -> tuple[Fraction, Unit]:
    text = text.strip().replace(" per ", "/").replace("·", "*")
    scale, unit, sign = Fraction(1), ONE, 1
    if len(text) > 80:
        raise ValuesError(f"a unit of {len(text)} characters: units have at most 80")
    outside: list[int] = [1]  # the signs of the powers in front of the brackets that are open
    for piece in re.findall(r"[/*()]|[^\s/*()]+", text):
        if piece == "/":
            sign = -outside[-1]
        elif piece == "*":
            sign = outside[-1]
        elif piece == "(":
            outside.append(sign)
        elif piece == ")":
            sign = outside.pop()
        elif piece != "1":
            word, raised, power = piece.partition("^")
            factor, part = _lookup(word, prefixes)
            if raised and not re.fullmatch(r"-?\d", power):
                raise ValuesError(f"'{piece}' is no power of a unit", hint=f"a whole number of one digit: {word}^2")
            times = sign * int(power or 1)
            scale, unit = scale * factor**times, unit * part**times
        if not outside:
            break
    if len(outside) != 1:
        raise ValuesError(f"the brackets of the unit '{text}' do not match")
    return scale, unit


@total_ordering
@dataclass(frozen=True, eq=False)
class Quantity:
    """An exact number with its unit: it can be added, multiplied and compared, and comparisons are exact.

    A bare number beside it is taken to be in its unit, a text is read as a number with a unit. Raises ``ValuesError``
    for units that do not fit together, and for a float, which is not exact.

    >>> str(Quantity(Fraction(12 * 2**30), BYTE))
    '12 884 901 888 B = 12 GiB ≈ 12.88 GB'
    >>> str(Quantity(Fraction(4096, 3), Unit.parse("FLOP/byte")))
    '4096/3 FLOP/B ≈ 1365.33 FLOP/B'
    >>> sent = Quantity.parse("12 GiB")
    >>> str(2 * sent / "50 GB/s"), sent > "12 GB", float(sent.to("GiB"))
    ('0.51539607552 s ≈ 515.4 ms', True, 12.0)
    """

    value: Fraction
    unit: Unit = ONE

    def __str__(self) -> str:
        return " ".join(part for pair in self.lines()[self.is_long :] for part in pair if part)

    @property
    def exact(self) -> str:
        """The exact number with its unit, also where that is a fraction of many digits.

        >>> made = Quantity(Fraction(10**10, 7), BYTE)
        >>> str(made), made.exact
        ('≈ 1.429 GB ≈ 1.33 GiB', '10 000 000 000/7 B')
        """
        return self.lines()[0][1]

    @property
    def is_long(self) -> bool:
        """Whether its exact number is a fraction with more than four digits, which nobody reads."""
        if type(self) is Quantity and self.value.denominator == 1:
            return False
        parts = re.match(r"-?([\d ]+)/([\d ]+)", self.exact)
        return len(self.lines()) > 1 and parts is not None and any(len(part.strip()) > 4 for part in parts.groups())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def _repr_html_(self) -> str:
        """Its readings as a notebook shows them, without a library that sets formulas."""
        text = re.sub(r"\^(-?\d+)", r"<sup>\1</sup>", str(self))
        return f"<span>{re.sub(r'(?<=[0-9]) (?=[^=≈])', '&nbsp;', text)}</span>"

    # -- arithmetic ----------------------------------------------------------------------------

    def _other(self, other: object, unit: Unit) -> Quantity | None:
        """What stands beside it; a bare number is in ``unit``. None for what is no number."""
        if isinstance(other, str):
            other = Quantity.parse(other)
        if isinstance(other, Quantity):
            return other
        if isinstance(other, float):
            raise ValuesError(f"{other!r} is a float, which is not exact", hint=f'write "{other!r}" or a Fraction')
        if isinstance(other, Rational) and not isinstance(other, bool):
            return Quantity(Fraction(int(other.numerator), int(other.denominator)), unit)
        return None

    def _same(self, other: object, does: Callable[[Fraction, Fraction], Fraction], word: str) -> Quantity:
        found = self._other(other, self.unit)
        if found is None:
            return cast("Quantity", NotImplemented)
        return Quantity(does(self.value, self._alike(found, word)), self.unit)

    def _alike(self, other: Quantity, word: str) -> Fraction:
        """The value of another quantity in this one's unit."""
        other = other.within(self.unit)
        if other.unit != self.unit:
            raise ValuesError(f"{self.reading} and {other.reading} cannot be {word}: they are in different units")
        return other.value

    def __add__(self, other: object) -> Quantity:
        return self._same(other, lambda a, b: a + b, "added")

    def __sub__(self, other: object) -> Quantity:
        return self._same(other, lambda a, b: a - b, "subtracted")

    def __rsub__(self, other: object) -> Quantity:
        return self._same(other, lambda a, b: b - a, "subtracted")

    def __mul__(self, other: object) -> Quantity:
        found = self._other(other, ONE)
        return NotImplemented if found is None else Quantity(self.value * found.value, self.unit * found.unit)

    def __truediv__(self, other: object) -> Quantity:
        found = self._other(other, ONE)
        if found is not None and not found.value:
            raise ValuesError(f"{self.reading} is divided by zero")
        return NotImplemented if found is None else Quantity(self.value / found.value, self.unit / found.unit)

    def __rtruediv__(self, other: object) -> Quantity:
        found = self._other(other, ONE)
        return NotImplemented if found is None else found / self

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Quantity:
        return Quantity(-self.value, self.unit)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Quantity) and other.unit == self.unit:
            return other.value == self.value
        try:
            found = self._other(other, self.unit)
        except ValuesError:  # what is no number is not equal to one
            return isinstance(other, float) and self.value == other
        if found is None:
            return NotImplemented
        found = found.within(self.unit)
        return (found.value, found.unit) == (self.value, self.unit)

    def __lt__(self, other: object) -> bool:
        found = self._other(other, self.unit)
        return NotImplemented if found is None else self.value < self._alike(found, "compared")

    def __hash__(self) -> int:
        return hash(self.base().value)

    def __float__(self) -> float:
        try:
            return float(self.value)
        except OverflowError:
            raise ValuesError(f"{self} is no float: these end at 10^308", hint=".value is exact") from None

    def __int__(self) -> int:
        """The whole number that it is; raises ``ValuesError`` where it is none."""
        if self.value.denominator != 1:
            raise ValuesError(f"{self} is no whole number", hint="float() or .value gives the number")
        return int(self.value)

    def to(self, unit: str) -> Quantity:
        """The same amount said in another unit, with its prefix; ``float`` gives the number in it.

        Raises ``ValuesError`` for a unit that measures something else.

        >>> str(Quantity.parse("12 GiB").to("GB")), float(Quantity.parse("90 min").to("h"))
        ('12.884901888 GB', 1.5)
        """
        if not isinstance(unit, str):
            raise ValuesError(f"a unit is a text, not a {type(unit).__name__}", hint='to("GiB")')
        scale, parsed = _parse(unit, prefixes=True)
        one, mine = Quantity(scale, parsed).base(), self.base()
        if one.unit != mine.unit:
            raise ValuesError(f"{self.reading} has no number in {unit.strip()[:40]}", hint=f"it is in {self.unit}")
        return Converted(self.value, self.unit, unit.strip(), mine.value / one.value)

    def rounded(self, digits: int = 4) -> str:
        """The number with so many digits, without the unit."""
        return decimal_text(self.value, digits)

    def lines(self) -> tuple[tuple[str, str], ...]:
        """The ways to say it, each as (relation, text): exact ones first, then rounded ones, marked ``≈``."""
        first, *ways = self._ways
        return (first, *sorted(ways, key=lambda way: way[0] == "≈"))

    @property
    def reading(self) -> str:
        """How a table or a label shows it: rounded, with its decimal prefix where it has one.

        >>> Quantity(Fraction(12 * 2**30), BYTE).reading, Quantity(Fraction(7, 3)).reading
        ('12.88 GB', '2.33333')
        """
        ways = self._ways
        return ways[min(1, len(ways) - 1)][1]

    @cached_property
    def _ways(self) -> list[tuple[str, str]]:
        """The exact number, its decimal reading and its binary one, as far as they differ."""
        suffix = "" if self.unit == ONE else f" {self.counted(self.value, str(self.unit))}"
        if endless(self.value):
            return [("", decimal_text(self.value) + suffix)]
        said: list[tuple[str, str]] = [("", exact_text(self.value) + suffix)]
        bases = dict(self.unit.powers)
        # Prefixes go on what the unit measures; a count of layers or stages takes none.
        rest = {b: power for b, power in bases.items() if (power != 1 or b == "second") and b not in ("link", "device")}
        plain = rest in ({}, {"second": -1}, {"second": 1})
        leads = ("byte", "FLOP", "operation", "cycle", "second")
        named = self.unit.powers in _NAMED
        lead = str(self.unit) if named else next((b for b in leads if plain and bases.get(b) == 1), None)
        if lead and (abs(self.value) >= 1000 or (lead == "second" and self.value and abs(self.value) < 1)):
            binary = BINARY if lead == "byte" and bases.get("second") != -1 else {}
            for table, base in ((_DISPLAY, 10), (binary, 2)):
                long = lead == "second" and len(bases) == 1 and abs(self.value) >= 1000  # nobody reads ks
                text = _in_clock(self.value) if long else _prefixed(self.value, self.unit, table, base)
                if text and text[1] not in [t for _, t in said]:
                    said.append(text)
        elif self.value.denominator != 1 or abs(self.value) >= 10**15:
            read = decimal_text(self.value)
            if not decimals(self.value) or len(said[0][1]) - len(suffix) > 12:
                said.append((_relation(read, self.value), read + suffix))
        return said

    @staticmethod
    def counted(number: Fraction, unit: str) -> str:
        """A unit as it is written behind a number.

        >>> Quantity.counted(Fraction(8), "layer"), Quantity.counted(Fraction(18), "link/GPU")
        ('layers', 'links/GPU')
        """
        return unit if abs(number) == 1 else _COUNTED.sub(r"\1s", unit)

    @property
    def relation(self) -> str:
        """The sign before its first reading: ``=``, or ``≈`` where that one is rounded."""
        return "≈" if endless(self.value) else "="

    @classmethod
    def parse(cls, text: str) -> Quantity:
        """``1.41 GHz``, ``80 GiB``, ``512 FMA/clock/SM``, ``1/2``, ``4096``, ``50 %``; exact.

        Bits are read as bytes; minutes, hours, days and weeks as seconds.

        >>> Quantity.parse("1.41 GHz").value
        Fraction(1410000000, 1)
        >>> str(Quantity.parse("400 Gbit/s")), str(Quantity.parse("5 min"))
        ('50 000 000 000 B/s = 50 GB/s', '300 s')
        """
        return cls.written(text).base()

    @classmethod
    def written(cls, text: str) -> Quantity:
        """The same in the unit that is written: hours stay hours."""
        return _written(text)

    def base(self) -> Quantity:
        """The same amount in bytes and seconds, not in bits and hours.

        >>> str(Quantity(Fraction(3), Unit.parse("hour")).base())
        '10 800 s = 3 h'
        """
        scale, unit = _based(self.unit)
        if scale == 1 and unit == self.unit and type(self) is Quantity:
            return self
        return Quantity(self.value * scale, unit)

    def within(self, unit: Unit) -> Quantity:
        """The same amount in a unit that measures the same; as it is where the unit does not.

        >>> str(Quantity.parse("36 h").within(Unit.parse("day")))
        '3/2 days = 1.5 days'
        """
        one, mine = Quantity(Fraction(1), unit).base(), self.base()
        return Quantity(mine.value / one.value, unit) if one.unit == mine.unit else self


@dataclass(frozen=True, eq=False, repr=False)
class Converted(Quantity):
    """An amount in a unit of one's choice: ``number`` is how many of ``spelling`` it is."""

    spelling: str = ""
    number: Fraction = Fraction(0)

    def __float__(self) -> float:
        return float(self.number)

    def __int__(self) -> int:
        return int(Quantity(self.number))

    def lines(self) -> tuple[tuple[str, str], ...]:
        unit = self.counted(self.number, self.spelling)
        if endless(self.number):
            return (("≈", f"{decimal_text(self.number)} {unit}"),)
        exact = exact_text(self.number)
        if self.number.denominator == 1 or decimals(self.number):
            return (("", f"{exact} {unit}"),)
        return (("", f"{exact} {unit}"), ("≈", f"{decimal_text(self.number)} {unit}"))


Number = int | Fraction | str | Quantity  # how a number may be given: a text has its unit


@lru_cache(maxsize=4096)
def _based(unit: Unit) -> tuple[Fraction, Unit]:
    """How many of its base unit a unit is, and that one."""
    scale, base = Fraction(1), ONE
    for name, power in unit.powers:
        worth, inside = _WORTH.get(name, (Fraction(1), name))
        scale, base = scale * worth**power, base * Unit(((inside, power),))
    return scale, base


@lru_cache(maxsize=4096)
def _written(text: str) -> Quantity:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValuesError(
            f"'{text[:60]}' is not a number with a unit",
            hint="write for instance 80 GiB, 1.41 GHz or 12 345 B, digits in groups of three",
        )
    written = re.sub(r"[^\d+\-./eE]", "", re.sub(r"\s?[·*×]\s?10\^", "e", match[1]))
    if re.search(r"/0+$", written):
        raise ValuesError(f"'{text[:60]}' divides by zero")
    if "/" in written and not re.fullmatch(r"[-+]?\d+/\d+", written):
        hint = "write for instance 3/4 GB or 0.75 GB"
        raise ValuesError(f"'{text[:60]}' is not a fraction of whole numbers", hint=hint)
    scale, unit = _parse(match[2], prefixes=True) if match[2] else (Fraction(1), ONE)
    return Quantity(Fraction(written) * scale, unit)


_INTEGER = r"(?:\d{1,3}(?:[ _\u00a0\u2009\u202f]\d{3}){1,13}(?!\d)|\d{1,42})"
_QUANTITY = re.compile(
    rf"\s*([-+]?{_INTEGER}(?:\.\d{{1,40}})?(?:[eE][-+]?\d{{1,3}}|\s?[·*×]\s?10\^-?\d{{1,3}})?(?:\s*/\s*{_INTEGER})?)"
    r"\s*([^\d\s].*)?"
)
_DISPLAY = {name: power for name, power in DECIMAL.items() if name not in ("", "K", "u", "m", "µ", "n")}
_SMALL = {"m": -3, "µ": -6, "n": -9}


def group(digits: str) -> str:
    """Digits grouped in threes with a thin gap where there are more than four: ``12 884 901 888``."""
    if len(digits) <= 4:
        return digits
    head = len(digits) % 3
    parts = ([digits[:head]] if head else []) + [digits[i : i + 3] for i in range(head, len(digits), 3)]
    return " ".join(parts)


def decimals(value: Fraction) -> str:
    """The digits behind the point where a number is written as a decimal; empty for a whole number and a fraction.

    A decimal is written where it is no longer than the fraction; small numbers of halves and quarters stay fractions.

    >>> decimals(Fraction("406.4")), decimals(Fraction("1.3572168946266174"))
    ('4', '3572168946266174')
    >>> decimals(Fraction(3, 4)), decimals(Fraction(1, 3)), decimals(Fraction(1, 625))
    ('', '', '')
    """
    below = value.denominator
    twos = (below & -below).bit_length() - 1
    rest, fives = below >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    places = max(twos, fives)
    if rest != 1 or endless(value) or not places or places > 20 or (not fives and abs(value.numerator) < 100):
        return ""
    scaled = int(abs(value) * 10**places)
    written = 1 + len(str(scaled)) + (scaled < 10**places) * (places + 1 - len(str(scaled)))
    if written > len(f"{abs(value)}"):
        return ""
    return str(scaled % 10**places).zfill(places)


def endless(value: Fraction) -> bool:
    """Whether a number has more digits (4,300) than Python writes; it is then read as a power of ten.

    >>> endless(Fraction(10**4200)), endless(Fraction(1, 10**4400))
    (False, True)
    """
    return max(value.numerator.bit_length(), value.denominator.bit_length()) > 14_280


def exact_text(value: Fraction) -> str:
    """The exact value: a grouped integer, a fraction of two, or a decimal number where that is no longer."""
    sign = "-" if value < 0 else ""
    behind = decimals(value)
    if behind:
        return f"{sign}{group(str(int(abs(value))))}.{behind}"
    top = group(str(abs(value.numerator)))
    return sign + top + (f"/{group(str(value.denominator))}" if value.denominator != 1 else "")


def decimal_text(value: Fraction, digits: int = 6) -> str:
    """A decimal with ``digits`` significant digits, grouped; very large and small ones as powers of ten."""
    if value == 0:
        return "0"
    size = abs(value)
    # Floats end at 10^308; a number of a formula may not.
    read = Context(prec=max(digits, 17)).divide(Decimal(value.numerator), Decimal(value.denominator))
    long = value.denominator != 1 and digits <= 6 and size >= 10**9  # its digits would look exact
    if long or size >= 10**15 or size < Fraction(1, 10**4):
        mantissa, exponent = f"{read:.{digits - 1}e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}·10^{int(exponent)}"
    text = f"{float(value):.{digits}g}"
    if "e" in text:
        text = f"{float(value):.0f}"
    whole, _, rest = text.lstrip("-").partition(".")
    return ("-" if value < 0 else "") + group(whole) + (f".{rest.rstrip('0')}" if rest.rstrip("0") else "")


def _prefixed(value: Fraction, unit: Unit, table: dict[str, int], base: int) -> tuple[str, str] | None:
    table = _SMALL if base == 10 and abs(value) < 1 else table
    size = abs(value)
    whole = int(size) if size >= 1 else size
    power, name = max(((power, name) for name, power in table.items() if whole >= _power(base, power)), default=(0, ""))
    if not power:
        return None
    scaled = value / _power(base, power)
    text = decimal_text(scaled, 9) if (scaled * 10**6).denominator == 1 else ""
    room = 7 if "second" in dict(unit.powers) else 9  # rates and times are measured, bytes and operations are counted
    if not text or len(text) > room:
        text = decimal_text(scaled, 4)
    return _relation(text, scaled), f"{text} {name}{unit}"


@cache
def _in_clock(seconds: Fraction) -> tuple[str, str]:
    """A long time as people say it: in minutes, hours or days.

    >>> _in_clock(Fraction(1100)), _in_clock(Fraction(86400 * 30))
    (('≈', '18.33 min'), ('=', '30 days'))
    """
    unit, worth = next(((u, w) for u, w in (("days", 86_400), ("h", 3600)) if abs(seconds) >= 2 * w), ("min", 60))
    text = decimal_text(seconds / worth, 4)
    return _relation(text, seconds / worth), f"{text} {unit}"


@cache
def _power(base: int, exponent: int) -> int | Fraction:
    return base**exponent if exponent >= 0 else Fraction(base) ** exponent


def _relation(text: str, value: Fraction) -> str:
    """What stands before a reading: ``=`` where it drops no digit, else ``≈``."""
    return "=" if Fraction(text.replace(" ", "").replace("·10^", "e")) == value else "≈"
