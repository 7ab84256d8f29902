"""What is asked of a cost: the least or the greatest, over which values, the place or the value there."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from symcomm.core.derivation import exact
from symcomm.core.errors import ValuesError
from symcomm.core.optimum.cost import Cost
from symcomm.core.optimum.roots import Domain
from symcomm.core.records import dataclass

Wanted = Literal["place", "value"]
_LARGEST_DIVIDED = 10**15  # factored in milliseconds


@dataclass(frozen=True)
class CostQuestion:
    """A cost as a function of one name, and the values of it over which it is made small (``sense`` 1) or large (-1).

    There is at least one of what is counted, where no lower bound is given.
    """

    cost: Cost
    domain: Domain
    sense: int
    wanted: Wanted

    @property
    def words(self) -> tuple[str, str]:
        """What is looked for, as an adjective and as a noun."""
        return ("least", "minimum") if self.sense > 0 else ("greatest", "maximum")


def ask(
    cost: Cost, sense: int, integer: bool, lower: object, upper: object, divides: object, wanted: Wanted
) -> CostQuestion:
    """The question, its range checked. Raises ``ValuesError`` where the range is empty or makes no sense."""
    low, high = _bound(lower, "lower", cost), _bound(upper, "upper", cost)
    if low is not None and high is not None and low > high:
        raise ValuesError(f"there is no {cost.over} from {low} to {high}")
    if integer:
        low = Fraction(max(1, (low or Fraction(1)).__ceil__()))
        high = None if high is None else Fraction(high.__floor__())
        if high is not None and low > high:
            raise ValuesError(f"there is no whole {cost.over} from {low} to {high}")
    elif cost.counts and low is None:
        low = Fraction(1)
        if high is not None and low > high:
            raise ValuesError(f"there is no {cost.over} from {low} to {high}", hint="there is at least one")
    if wanted not in ("place", "value"):
        raise ValuesError(f"'{str(wanted)[:40]}' cannot be asked of an optimum", hint="wanted is place or value")
    return CostQuestion(cost, Domain(low, high, integer, _divided(divides, integer)), sense, wanted)


def _divided(given: object, integer: bool) -> int | None:
    if given is None:
        return None
    number = exact(given, "divides")
    if not integer:
        raise ValuesError("only whole numbers divide a number", hint="use integer=True")
    if number < 1 or number.denominator != 1:
        raise ValuesError(f"divides={number}: a positive whole number is needed")
    if number > _LARGEST_DIVIDED:
        raise ValuesError(f"divides is larger than {_LARGEST_DIVIDED}: its divisors are not looked for")
    return int(number)


def _bound(given: object, name: str, cost: Cost) -> Fraction | None:
    if given is None:
        return None
    bound = cost.number(given, name, cost.over)
    if bound < 0 or (name == "upper" and not bound):
        raise ValuesError(f"{name} = {bound}: the values are positive")
    return bound
