"""Numbers that no fraction says: an exact form, with a fraction near it to read and compare by."""

from __future__ import annotations

from functools import cached_property

from symcomm.core.form import Form
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Quantity, decimal_text


@dataclass(frozen=True, eq=False, repr=False)
class Irrational(Quantity):
    """A number that no fraction says: ``value`` is a fraction within 10^-30 of it, for reading and comparing only.

    ``form`` is the exact number, written; ``text`` is its plain spelling, empty where that is too long to read.

    >>> from fractions import Fraction
    >>> from symcomm.core.form import Root, num
    >>> str(Irrational(Fraction(14142135623731, 10**13), ONE, Root(num(2)), "√2"))
    '√2 ≈ 1.41421'
    """

    form: Form | None = None
    text: str = ""

    @property
    def relation(self) -> str:
        return "=" if self.text else "≈"

    @cached_property
    def _ways(self) -> list[tuple[str, str]]:
        suffix = "" if self.unit == ONE else f" {self.unit}"
        read = [text for _, text in super()._ways[1:]] or [decimal_text(self.value) + suffix]
        said = [self.text + suffix, *read] if self.text else read
        return [("≈" if n else "", text) for n, text in enumerate(said)]
