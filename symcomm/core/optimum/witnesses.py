"""Witnesses of an optimum: the cost beside its place is not better, and slopes are those of small steps."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from symcomm.core.derivation import Numbers, Witness, worked_out
from symcomm.core.form import Form

if TYPE_CHECKING:
    from symcomm.core.optimum.question import CostQuestion

_STEP = Fraction(1, 10**8)  # of the variable, for a slope
_NEAR = Fraction(1, 10**6)  # of what a slope may differ by, whose digits end after 40
_PLACES = ("slope zero", "bounds", "whole numbers", "compare", "bracket", "equal", "edge")


def same_near(a: Fraction, b: Fraction, size: Fraction) -> bool:
    """Whether two numbers are the same but for small steps."""
    return abs(a - b) <= _NEAR * (abs(a) + abs(b) + size)


def of_optimum(question: CostQuestion, name: str, said: Sequence[str], rule: str) -> Witness | None:
    """The witness of a step of an optimum; ``said`` are the steps before it, some of which say where it is."""
    cost, over = question.cost, question.cost.over

    def at(numbers: Numbers, x: Fraction) -> Fraction:
        return worked_out(cost.form, numbers.moved(over, x))

    def slope(numbers: Numbers) -> bool:
        x = numbers[over]
        step = x * _STEP
        low, here, high = (at(numbers, y) for y in (x - step, x, x + step))
        found = {"differentiate": (high - low) / (2 * step), "second order": (high - 2 * here + low) / step**2}[rule]
        return same_near(numbers[name], found, abs(here) * (1 / x if rule == "differentiate" else 1 / x**2))

    def best(numbers: Numbers) -> bool:
        place = numbers[name]
        if place <= 0:
            return True  # no value is there to compare with
        in_range = rule in ("bounds", "compare", "whole numbers")

        def outside(x: Fraction) -> bool:
            return in_range and x not in question.domain

        whole = rule == "whole numbers" or (rule == "compare" and question.domain.whole)
        if (whole and place.denominator != 1) or outside(place):
            return False
        beside = [place - 1, place + 1] if whole else [place * (1 - _STEP), place * (1 + _STEP)]
        inside = [y for y in beside if y > 0 and not outside(y)] if question.domain.divides is None else []
        here = question.sense * at(numbers, place)
        return all(question.sense * at(numbers, y) >= here - abs(here) / 10**30 for y in inside)

    def value(numbers: Numbers) -> bool:
        found = numbers[name]
        return any(abs(at(numbers, numbers[p]) - found) * 10**30 <= abs(found) for p in said if numbers[p] > 0)

    if rule == "the cost":
        return lambda numbers: worked_out(cost.form, numbers)
    if rule == "unit":
        return lambda numbers: numbers[name] in [numbers[p] for p in said]
    if rule == "one more":
        return lambda numbers: at(numbers, numbers[over] + 1) - at(numbers, numbers[over])
    if rule in ("differentiate", "second order"):
        return slope
    return best if rule in _PLACES else value if rule == question.words[1] else None


def no_better_beside(cost: Form, over: str, place: str) -> Witness:
    """A cost is not less a little to either side of a place."""

    def least(numbers: Numbers) -> bool:
        x = numbers[place]
        here = worked_out(cost, numbers.moved(over, x))
        beside = (worked_out(cost, numbers.moved(over, x * y)) for y in (1 - _STEP, 1 + _STEP))
        return all(one >= here - abs(here) / 10**30 for one in beside)

    return least
