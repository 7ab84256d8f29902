"""Numbers that no fraction says: an exact form, with a fraction near it to read and compare by."""

from __future__ import annotations

from dataclasses import dataclass

from symcomm.form import Form
from symcomm.units import ONE, Quantity, decimal_text


@dataclass(frozen=True)
class Irrational(Quantity):
    """A number that no fraction says: ``value`` is a fraction within 10^-30 of it, for reading and comparing only.

    ``form`` is the exact number, written; ``text`` is its plain spelling, empty where that is too long to read.

    >>> from fractions import Fraction
    >>> from symcomm.form import Root, num
    >>> str(Irrational(Fraction(14142135623731, 10**13), ONE, Root(num(2)), "√2"))
    '√2 ≈ 1.41421'
    """

    form: Form | None = None
    text: str = ""

    @property
    def relation(self) -> str:
        return "=" if self.text else "≈"

    def lines(self) -> tuple[tuple[str, str], ...]:
        suffix = "" if self.unit == ONE else f" {self.unit}"
        read = [text for _, text in super().lines()[1:]] or [decimal_text(self.value) + suffix]
        if self.text:
            return (("", self.text + suffix), *(("≈", text) for text in read))
        return (("", read[0]), *(("≈", text) for text in read[1:]))
