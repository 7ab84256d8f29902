"""Numbers as people write them: thousands with any mark, decimal points and commas, powers of ten."""

from __future__ import annotations

import re
from collections.abc import Container
from fractions import Fraction

from symcomm.core.answers import UnreadError
from symcomm.core.records import dataclass
from symcomm.core.text.tokens import EXPONENT_LIMIT

_DIGITS_LIMIT = 100

# Groups of three, one of them only before the other mark (3,914.68), or of two in India: 3,40,68,09,600.
_THOUSANDS = re.compile(
    r"\d{1,3}(\{,\}|,|\.|'|_| {1,2})\d{3}(?:(?:\1\d{3})+(?!\d)|(?=(?!\1)[.,]\d))|\d{1,2}(?:,\d{2})+,\d{3}(?![\d,])",
    re.ASCII,
)
_GROUPED_ONCE = re.compile(r"([1-9]\d{0,2})(?:['_]| +)(\d{3}(?:\.\d+)?)(?![\d.,'_])", re.ASCII)
_PLAIN = re.compile(r"\d+(?:\.\d*)?|\.\d+", re.ASCII)
_COMMA = re.compile(r"(\d+)(?:\{,\}|,)(\d+)", re.ASCII)
_EXPONENT = re.compile(r"(\s*[eE])([+-]?\d+)(?![\w.])", re.ASCII)
_TIMES_TEN = re.compile(r"\s*(?:[*·×⋅∙∗•✕xX]|\\cdot|\\times)\s*10\s*(?:\^|\*\*|[⁻⁰-⁹¹²³])")


@dataclass(frozen=True)
class Literal:
    """A number as it was written: its worth, its last place, how many digits it has, and whether it has a point."""

    value: Fraction
    place: Fraction
    digits: int
    decimal: bool

    def times(self, scale: Fraction) -> Literal:
        """The same with a power of ten or a unit behind it."""
        return Literal(self.value * scale, abs(self.place * scale), self.digits, self.decimal)

    def says(self, number: Fraction) -> bool:
        """Whether this is a number, rounded to two digits or more, cut off at three or more, or exactly.

        >>> number, _ = scan("12.8", 0)
        >>> number.says(Fraction("12.884")), number.says(Fraction("12.92")), scan("3", 0)[0].says(Fraction("2.9"))
        (True, False, False)
        >>> number.times(Fraction(-1)).says(Fraction("-12.84"))
        True
        """
        if number == self.value:
            return True
        if self.digits < 2 or (number < 0) != (self.value < 0):
            return False
        apart = abs(number) - abs(self.value)
        return 2 * abs(apart) <= self.place or (self.digits >= 3 and 0 <= apart < self.place)


def scan(
    text: str, start: int, decimal_comma: bool = False, known: Container[str] = ()
) -> tuple[Literal, int]:
    """The number that begins at a place of a text, and where it ends; raises ``UnreadError`` where it is ambiguous.

    A space may stand before the exponent where the letter is none of the ``known`` names.

    >>> [int(scan(t, 0)[0].value) for t in ("12,884,901,888", "12 884 901 888", "1.5e9")]
    [12884901888, 12884901888, 1500000000]
    >>> scan("12,885", 0)
    Traceback (most recent call last):
        ...
    symcomm.core.answers.UnreadError: 12.885 or 12885? write a point, or no mark
    """
    if text[start] == "0" and text[start + 1 : start + 2] in ("x", "X") and text[start + 2 : start + 3].isalnum():
        raise UnreadError("write the number in decimal")
    match = _THOUSANDS.match(text, start)
    if match is not None:
        whole, mark, stop, behind = re.sub(r"\D", "", match[0]), match[1] or ",", match.end(), ""
        point = "." if mark in (",", "{,}") else ",." if mark != "." else ","
        if text[stop : stop + 1] and text[stop] in point and text[stop + 1 : stop + 2].isdigit():
            tail = _PLAIN.match(text, stop + 1)
            assert tail is not None
            behind, stop = tail[0], tail.end()
            if "." in behind:
                raise UnreadError("the marks in this number do not fit together")
        elif text[stop : stop + 1] == "," and text[stop + 1 : stop + 2].isdigit():
            raise UnreadError("the commas are neither thousands nor a decimal comma")
    elif (match := _GROUPED_ONCE.match(text, start)) is not None:
        (whole, _, behind), stop = (match[1] + match[2]).partition("."), match.end()
    elif (match := _COMMA.match(text, start)) is not None:
        whole, behind, stop = match[1], match[2], match.end()
        if text[stop : stop + 1] in (",", ".") and text[stop + 1 : stop + 2].isdigit():
            raise UnreadError("the commas are neither thousands nor a decimal comma")
        power = len(whole) == 1 and _TIMES_TEN.match(text, stop) is not None
        if len(behind) == 3 and len(whole) <= 3 and whole != "0" and not decimal_comma and not power:
            raise UnreadError(f"{whole}.{behind} or {whole}{behind}? write a point, or no mark")
    else:
        match = _PLAIN.match(text, start)
        assert match is not None
        whole, point, behind = match[0].partition(".")
        stop = match.end()
        if point and text[stop : stop + 1] == "." and text[stop + 1 : stop + 2].isdigit():
            raise UnreadError("the number has two decimal points")
        if point and not behind and text[stop : stop + 1] == ".":
            raise UnreadError("the number has two points")
    if len(whole) + len(behind) > _DIGITS_LIMIT:
        raise UnreadError(f"a number has at most {_DIGITS_LIMIT} digits", refused=True)
    scale = 0
    exponent = _EXPONENT.match(text, stop)
    if exponent is not None and (len(exponent[1]) == 1 or exponent[1].strip() not in known):
        if len(exponent[2]) > 6 or abs(int(exponent[2])) > EXPONENT_LIMIT:
            raise UnreadError(f"an exponent is at most {EXPONENT_LIMIT:,}", refused=True)
        scale, stop = int(exponent[2]), exponent.end()
    return _literal(whole or "0", behind, scale), stop


def _literal(whole: str, behind: str, scale: int) -> Literal:
    number = int(whole + behind)
    places = len(behind)
    digits = (whole + behind).lstrip("0")
    if not behind:  # the zeros at the end of a whole number do not count
        kept = digits.rstrip("0")
        places -= len(digits) - len(kept)
        digits = kept
    ten = Fraction(10)
    value = Fraction(number) * ten ** (scale - len(behind)) if scale or behind else Fraction(number)
    return Literal(value, ten ** (scale - places), max(1, len(digits)), bool(behind) or scale != 0)
