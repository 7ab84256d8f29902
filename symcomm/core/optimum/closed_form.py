"""The real optimum of a sum of powers in closed form: slope, second order, stationary point, bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Derivation
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Sym
from symcomm.core.optimum import comparison, whole_number
from symcomm.core.optimum.cost import written
from symcomm.core.optimum.powers import Monotonicity, Terms, at_least, course, root, sign, slope_of, terms
from symcomm.core.optimum.working import Working

if TYPE_CHECKING:
    from sympy import Expr


def show_slope(working: Working, slope: Terms) -> None:
    """The step of the slope."""
    import sympy as sp

    cost = working.cost
    unit = cost.unit / cost.x_unit
    first = cost.write(sp.Add(*(c * cost.x**e for e, c in slope)))
    working.define("f'", first, unit, "differentiate", f"The derivative with respect to `{cost.over}`.")


def derivation(working: Working, found: Terms, runs: Monotonicity) -> Derivation:
    """The optimum of a sum of powers whose course is known.

    Raises ``ValuesError`` where there is no optimum.
    """
    cost, question = working.cost, working.question
    slope = slope_of(found)
    if not runs.sure and not cost.missing:  # the numbers tell whether a coefficient is zero
        told = course(_times(question.sense, slope_of(terms(cost.numbers, cost.x) or ())))
        runs = told if told.kind in ("rises", "falls", "flat") else runs
    if runs.kind in ("rises", "falls", "flat"):
        return _at_an_end(working, runs)
    if runs.kind == "hill":
        return _at_one_of_two_ends(working, runs)
    _second_order(working, slope)
    solved = root(slope)
    if solved is None:
        comparison.needs_numbers(working, "its slope has no root in closed form")
        return comparison.derivation(working, runs)
    worth, inside, degree = solved
    text = f"The slope is zero only here: {_once(question.sense)}."
    working.place = working.define(f"{cost.over}^*", _power(working, inside, degree), cost.x_unit, "slope zero", text)
    if not runs.sure:
        working.where += _turning(working, _times(question.sense, slope))
    _show_value(working, found, worth, degree)
    if question.integer:
        return whole_number.derivation(working, found, runs)
    return working.finish(_into_the_range(working))


def _times(sense: int, found: Terms) -> Terms:
    return tuple((e, sense * c) for e, c in found)


def _turning(working: Working, slope: Terms) -> list[Condition]:
    """That no coefficient of the slope is zero: else the cost runs one way, and the stationary point is no optimum.

    Where only the first one may be zero, the place is zero and the lower bound is the nearest value to it.
    """
    import sympy as sp

    found: list[Condition] = []
    first = next(c for _, c in slope if c != 0)
    amounts = {name for condition in working.cost.where for name in condition.names}  # that were taken for counts
    for _, c in slope:
        bounded = c is first and working.question.low
        if c == 0 or at_least(c) or bounded:
            continue
        above = sp.expand(c if sign(c) == 1 else -c)
        for factor in sp.Mul.make_args(sp.factor_terms(above)):
            less = sp.Add(*(-t for t in sp.Add.make_args(factor) if t.could_extract_minus_sign()))
            if not factor.is_positive:
                sides = (working.cost.write(side) for side in (factor + less, less))
                left, right = (forms.substitute(side, lambda s: replace(s, whole=s.whole and s.name not in amounts))
                               for side in sides)  # fmt: skip
                found.append(Condition(left, ">", right))
    return found


def _second_order(working: Working, slope: Terms) -> None:
    import sympy as sp

    cost, question = working.cost, working.question
    second = slope_of(slope)
    bend = course(_times(question.sense, second))
    side = "positive" if question.sense > 0 else "negative"
    ways = ("falls", "rises") if question.sense > 0 else ("rises", "falls")
    if bend.kind == "rises":
        why = f"Every term is {side} for `{cost.over}` > 0, so the stationary point is the only {question.words[1]}."
    else:
        why = (
            "Its sign may change, but that of the slope changes once: below the stationary point the cost "
            f"{ways[0]}, above it it {ways[1]}."
        )
    unit = cost.unit / cost.x_unit**2
    curve = cost.write(sp.Add(*(c * cost.x**e for e, c in second)))
    working.define("f''", curve, unit, "second order", why)


def _power(working: Working, inside: Expr, degree: Expr) -> Form:
    cost = working.cost
    base = cost.write(inside)
    if degree == 1:
        return base
    if degree == 2:
        return forms.Root(base)
    return forms.Power(base, written(1 / degree))


def _show_value(working: Working, found: Terms, worth: Expr, degree: Expr) -> None:
    import sympy as sp

    cost, words = working.cost, working.question.words
    text = f"The {words[0]} cost over the real numbers, at `{working.place}`."
    working.value = working.define("f^*", working.put(working.place), cost.unit, words[1], text)
    if degree in (1, 2):
        flat = sp.expand(sp.Add(*(c * worth**e for e, c in found)))
        form = cost.write(_gathered(found, worth, flat))
        working.rewrite(working.value, form, cost.unit, "Put the place in and collect.")


def _gathered(found: Terms, worth: Expr, flat: Expr) -> Expr:
    """The value at the optimum, its roots collected: the terms of equal powers cancel into one."""
    import sympy as sp

    rest = sp.Add(*(c for e, c in found if e == 0))
    roots = sp.Add(*(c * worth**e for e, c in found if e != 0))
    whole = sp.Add(rest, roots)
    return whole if whole.count_ops() <= flat.count_ops() else flat


def _once(sense: int) -> str:
    runs = ("negative", "positive") if sense > 0 else ("positive", "negative")
    return f"it is {runs[0]} below and {runs[1]} above, by Descartes' rule of signs"


def _into_the_range(working: Working) -> str:
    """The name of the stationary point, brought into the range."""
    cost, question = working.cost, working.question
    unit = cost.x_unit
    bounded: Form = Sym(working.place, False, unit)
    if question.low is not None and question.low:
        bounded = forms.Largest((forms.Num(question.low, unit), bounded))
    if question.high is not None:
        bounded = forms.Smallest((forms.Num(question.high, unit), bounded))
    if isinstance(bounded, Sym):
        return working.place
    text = "The cost runs one way on each side of its stationary point: the nearest value of the range is best."
    return working.define(f"{cost.over}^best", bounded, unit, "bounds", text)


def _at_an_end(working: Working, runs: Monotonicity) -> Derivation:
    """The optimum of a cost that runs one way: a bound of the range."""
    cost, question = working.cost, working.question
    at_low = runs.kind in ("rises", "flat")
    end = question.low if at_low else question.high
    words = {"rises": "rises", "falls": "falls", "flat": "does not change"}
    moves = runs.kind if question.sense > 0 else {"rises": "falls", "falls": "rises", "flat": "flat"}[runs.kind]
    why = "the slope is zero" if runs.kind == "flat" else "every term of the slope has one sign"
    says = f"{why}, so the cost {words[moves]} for all `{cost.over}` > 0"
    plain = says.replace("`", "")
    if end is None and runs.kind == "flat":
        raise ValuesError(f"the cost does not change with {cost.over}: every value is as good as another")
    if end is None or (not end and not question.integer):
        hint = "give a lower bound above zero" if at_low else "give an upper bound"
        raise ValuesError(f"there is no optimum: {plain}", hint=hint)
    text = f"{says[0].upper()}{says[1:]}: the {question.words[1]} is at the {'lower' if at_low else 'upper'} bound."
    working.place = working.define(f"{cost.over}^*", forms.Num(end, cost.x_unit), cost.x_unit, "bounds", text)
    return working.finish(working.place)


def _at_one_of_two_ends(working: Working, runs: Monotonicity) -> Derivation:
    question = working.question
    if question.low is None or not question.low or question.high is None:
        raise ValuesError(
            f"there is no {question.words[1]} inside: the stationary point of the cost is its "
            f"{'greatest' if question.sense > 0 else 'least'} value",
            hint="give a lower bound above zero and an upper bound; the ends are then compared",
        )
    return comparison.derivation(working, runs)
