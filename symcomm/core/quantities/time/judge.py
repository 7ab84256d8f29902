"""Holds a measured time against a derived bound: a time below it is impossible."""

from __future__ import annotations

from fractions import Fraction

from symcomm.core.derivation import Derivation, exact
from symcomm.core.errors import ValuesError
from symcomm.core.quantities.time.terms import SECOND
from symcomm.core.records import dataclass
from symcomm.core.units import Quantity


@dataclass(frozen=True)
class Judgement:
    """Whether a measured time is possible, the bound it was held against, and one sentence that says so."""

    possible: bool
    measured: Quantity
    bound: Quantity

    @property
    def text(self) -> str:
        """The verdict as a sentence with the bound."""
        if self.possible:
            factor = float(self.measured.value / self.bound.value) if self.bound.value else float("inf")
            return f"{_said(self.measured)} is possible: {factor:.3g} times the bound of {_said(self.bound)}."
        factor = float(self.bound.value / self.measured.value)
        return (
            f"{_said(self.measured)} is impossible: it takes at least {_said(self.bound)}, {factor:.3g} times as long. "
            "Something else was timed, such as an asynchronous launch."
        )


def _said(quantity: Quantity) -> str:
    return quantity.lines()[-1][1]


def judge(bound: Derivation, measured: object, /, **values: object) -> Judgement:
    """Holds a measured time against a derived bound.

    Raises ``ValuesError`` where the bound is no time or the measured time is not positive.

    >>> from symcomm.core.accounting import Accounting
    >>> from symcomm.core.derivation import Reason, Step
    >>> from symcomm.core.form import num
    >>> floor = Derivation("floor", Accounting(), (Step("t", num(3, SECOND), SECOND, Reason("given", "so")),))
    >>> judge(floor, "2 s").possible, judge(floor, "4 s").possible
    (False, True)
    """
    if bound.unit != SECOND:
        raise ValuesError(f"{bound.title} is in {bound.unit}, but a bound of a time is in s")
    return Judgement(
        exact_time(measured) >= bound.at(**values).value, Quantity(exact_time(measured), SECOND), bound.at(**values)
    )


def exact_time(measured: object) -> Fraction:
    """A measured time in seconds. Raises ``ValuesError`` for another unit, or zero and less."""
    quantity = Quantity.parse(measured) if isinstance(measured, str) else measured
    if isinstance(quantity, Quantity) and quantity.unit != SECOND:
        said = quantity.unit if quantity.unit.powers else "no unit"
        raise ValuesError(f"measured is given in {said}, but a time is in s", hint="for instance 0.000222 s")
    number = exact(quantity, "measured")
    if number <= 0:
        raise ValuesError(f"measured = {measured}: a measured time is positive")
    return number
