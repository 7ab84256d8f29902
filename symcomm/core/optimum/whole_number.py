"""The best whole number of a sum of powers in closed form: the first one after which the cost rises."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Sym
from symcomm.core.optimum import comparison
from symcomm.core.optimum.cost import written
from symcomm.core.optimum.dimension import counted
from symcomm.core.optimum.powers import Monotonicity, Terms, course, neat, terms
from symcomm.core.optimum.working import Working
from symcomm.core.units import Quantity

if TYPE_CHECKING:
    from sympy import Expr

_HIGHEST_POWER = 12  # of the difference of neighbours, which is expanded


def derivation(working: Working, found: Terms, runs: Monotonicity) -> Derivation:
    """The best whole number, where the cost first falls and then rises.

    Raises ``ValuesError`` where it has no closed form and numbers are missing.
    """
    import sympy as sp

    cost, x, question = working.cost, working.cost.x, working.question
    one = forms.Num(Fraction(1), cost.x_unit)
    unit = forms.value(counted(one))  # one more of what is counted, such as a byte
    difference = _difference(found, x, unit)
    solved = None
    if difference is not None:
        solved = _whole_root(tuple((e, question.sense * c) for e, c in difference), unit)
    if solved is None:
        if cost.missing:
            raise ValuesError(
                f"the best whole {cost.over} has no closed form; it is one of the two neighbours of the real one",
                hint=f"give {', '.join(cost.missing)}, or ask for integer=False",
            )
        return comparison.derivation(working, runs)
    after, condition = solved
    following = forms.Total((Sym(cost.over, False, cost.x_unit), one))
    shifted = forms.substitute(cost.form, lambda s: following if s.name == cost.over else s)
    change = working.define(
        "Delta", forms.Total((shifted, forms.negative(cost.form))), cost.unit, "one more",
        f"What one more `{cost.over}` costs: f at `{cost.over}` + 1 less f at `{cost.over}`.",
    )  # fmt: skip
    short = cost.write(sp.Add(*(_shift(e, c, x, unit) for e, c in found if e != 0)))
    working.rewrite(change, short, cost.unit, "Cancel the terms that do not change.")
    less, more = ("below", "above") if question.sense > 0 else ("above", "below")
    form: Form = forms.Ceiling(cost.write(after))
    assert question.low is not None
    if question.low > 1 or not (runs.sure and after.is_positive):  # one more may cost more from the first number on
        form = forms.Largest((forms.Num(question.low, cost.x_unit), form))
    if question.high is not None:
        form = forms.Smallest((forms.Num(question.high, cost.x_unit), form))
    text = (
        f"`{change}` is {less} zero at first and {more} zero from some number on; the best whole number is the "
        "first where it is not " + less + " zero"
    )
    text += ", brought into the range." if question.high is not None or question.low > 1 else "."
    best = working.define(f"{cost.over}^whole", form, cost.x_unit, "whole numbers", text)
    if condition is not None:
        _show_condition(working, condition)
    _show_neighbours(working)
    return working.finish(best)


def _show_condition(working: Working, condition: tuple[Expr, Expr, Expr]) -> None:
    """The exact condition under which a whole number is best, as a table."""
    cost = working.cost
    low_side, middle, high_side = condition
    n = Sym(cost.over, False)
    low, high = (
        forms.substitute(written(side), lambda s: n if s.name == cost.x.name else s) for side in (low_side, high_side)
    )
    working.exhibits.append(
        Exhibit(
            f"A whole `{cost.over}` is optimal exactly when the ratio is not outside these bounds",
            ("at least", "ratio", "at most"),
            ((low, cost.write(middle), high),),
        )
    )
    working.notes.append(
        f"Where the ratio equals its upper bound, `{cost.over}` and `{cost.over}` + 1 cost the same; the smaller one "
        "is given."
    )


def _show_neighbours(working: Working) -> None:
    """With all numbers: the best whole number beside its neighbours, as a table."""
    cost, low, high = working.cost, working.question.low, working.question.high
    if cost.missing:
        return
    made = cost.derivation("whole", [s for s in working.steps if s.relation == ":="])
    n = int(made.at().value)
    rows: list[tuple[str | Form | Quantity, ...]] = []
    for k in range(max(1, n - 2), n + 3):
        said = "outside the range" if (low and k < low) or (high and k > high) else ""
        rows.append((str(k), working.at(k), "best" if k == n else said))
    working.exhibits.append(
        Exhibit("The cost at neighbouring whole numbers", (f"`{cost.over}`", "cost", ""), tuple(rows))
    )


def _shift(e: Expr, c: Expr, x: Expr, unit: Expr) -> Expr:
    """What one more does to a term."""
    if e == 1:
        return c * unit
    if e == -1:
        return -c * unit / (x * (x + unit))
    return c * (x + unit) ** e - c * x**e


def _difference(found: Terms, x: Expr, unit: Expr) -> Terms | None:
    """The numerator of f(x + unit) - f(x) as a polynomial, lowest power first; None for powers that are not whole."""
    import sympy as sp

    if not all(e.is_Integer for e, _ in found):
        return None
    k = max(0, *(-int(e) for e, _ in found))
    if k + max(int(e) for e, _ in found) > _HIGHEST_POWER:
        return None
    numerator = sp.expand(
        sp.Add(*(c * ((x + unit) ** (e + k) * x**k - x ** (e + k) * (x + unit) ** k) for e, c in found if e != 0))
    )
    made = terms(numerator, x)
    return None if made is None else tuple((e - made[0][0], c) for e, c in made if c != 0)


def _whole_root(difference: Terms, unit: Expr) -> tuple[Expr, tuple[Expr, Expr, Expr] | None] | None:
    """The positive root of a difference with one change of sign, and (lower, ratio, upper) of the exact condition."""
    import sympy as sp

    from symcomm.core.notation import amount

    if [e for e, _ in difference] == [0, 1] and difference[1][1].is_positive:  # a line: whatever its start, it rises
        return sp.cancel(-difference[0][1] / difference[1][1]), None
    runs = course(difference)
    if runs.kind == "rises":
        return sp.Integer(0), None
    if runs.kind != "valley" or max(e for e, _ in difference) > 2:
        return None
    by = {int(e): c for e, c in difference}
    lead = by[max(by)]
    below, middle = sp.cancel(by.get(0, sp.Integer(0)) / lead), sp.cancel(by.get(1, sp.Integer(0)) / lead)
    if max(by) == 1:
        after = -below
        return after, None
    after = -middle / 2 + sp.sqrt(middle**2 + 4 * neat(-below)) / 2
    if middle != unit:
        return after, None
    n = amount("n")
    return after, (n * (n - 1), neat(-below), n * (n + 1))
