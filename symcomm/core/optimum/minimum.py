"""The least and the greatest value of a derived cost, with the working: slope, stationary point, bounds, whole numbers.

Where the cost is a sum of powers of the variable, Descartes' rule of signs says how it runs and the optimum is a closed
form; otherwise its numbers are needed, and every point where it can be least is compared exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Derivation, Exhibit
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Sym
from symcomm.core.libraries import Expr, sp
from symcomm.core.notation import amount
from symcomm.core.optimum import powers, search
from symcomm.core.optimum.cost import read, written
from symcomm.core.optimum.dimension import counted, in_unit
from symcomm.core.optimum.equality import holding, sure_root
from symcomm.core.optimum.question import CostQuestion, OptimumSteps, Wanted, ask
from symcomm.core.patience import patience
from symcomm.core.units import Quantity, decimal_text

_NARROW = "give a narrower range (lower, upper), or numbers for all names"
_HIGHEST_POWER = 12  # of the difference of neighbours, which is expanded
_MOST_ROWS = 12


def minimise(
    cost: Derivation | Form | Expr | str,
    over: str,
    given: Mapping[str, object] | None = None,
    *,
    integer: bool = True,
    lower: object = None,
    upper: object = None,
    divides: int | None = None,
    wanted: Wanted = "place",
    title: str = "",
) -> Derivation:
    """Where a cost is least over the whole (or, without ``integer``, the real) positive values of a name.

    ``lower`` and ``upper`` bound the range, ``divides`` allows only divisors of a number; ``wanted`` is the ``place``
    or the ``value`` there. Raises ``ValuesError`` where there is no optimum, or where it hangs on numbers not given.

    >>> from symcomm.core.form import Ratio, Sym, product, total
    >>> s, o, w, n = (Sym(name, False) for name in "sown")
    >>> overhead = total(product(n, o), Ratio(s, product(n, w)))
    >>> minimise(overhead, over="n", integer=False).expr
    sqrt(s)/(sqrt(o)*sqrt(w))
    >>> str(minimise(overhead, over="n", given={"s": 8, "w": 1, "o": 1}).at())
    '3'
    """
    with patience(f"the search for the least value over {over[:40]}", _NARROW):
        return answer(ask(read(cost, over, given, title), 1, integer, lower, upper, divides, wanted))


def maximise(
    cost: Derivation | Form | Expr | str,
    over: str,
    given: Mapping[str, object] | None = None,
    *,
    integer: bool = True,
    lower: object = None,
    upper: object = None,
    divides: int | None = None,
    wanted: Wanted = "place",
    title: str = "",
) -> Derivation:
    """Where a gain is greatest; the options of ``minimise``.

    >>> from symcomm.core.form import Sym, negative, num, product, total
    >>> n = Sym("n", False)
    >>> gain = total(product(num(7), n), negative(product(n, n)))
    >>> str(maximise(gain, over="n").at())
    '3'
    """
    with patience(f"the search for the greatest value over {over[:40]}", _NARROW):
        return answer(ask(read(cost, over, given, title), -1, integer, lower, upper, divides, wanted))


def answer(question: CostQuestion) -> Derivation:
    """The optimum; at numbers that break a condition of its closed form it is found anew."""
    made = _closed(question)
    own = tuple(condition for condition in made.where if condition not in question.cost.holds)
    return replace(made, otherwise=partial(_again, question, own)) if own else made


def _again(
    question: CostQuestion, where: Sequence[Condition], known: Mapping[str, Fraction]
) -> Derivation | None:  # fmt: skip
    if all(condition.holds(known) for condition in where if known.keys() >= {*condition.names}):
        return None
    cost = question.cost
    given = {name: value for name, value in known.items() if name in forms.names(cost.form) and name != cost.over}
    return answer(replace(question, cost=replace(cost, given=given)))


def _closed(question: CostQuestion) -> Derivation:
    """In closed form where the signs of the slope's terms are known, else by comparing with known numbers."""
    cost, working = question.cost, OptimumSteps(question)
    found = powers.terms(cost.expr, cost.x)
    if found is None:
        unknown = powers.Monotonicity("unknown", "the cost is not a sum of powers")
        return _where_equal(working) or _compared(working, unknown)

    way = _course(question, cost.expr)
    if way.kind == "unknown" and question.domain.divides is None:
        more = powers.told_more(cost)
        told = next((one for one in more if _course(question, one.expr).kind != "unknown"), None)
        if told is not None:
            return _closed(replace(question, cost=told))
    slope = cost.write(sp.Add(*(c * cost.x**e for e, c in powers.slope_of(found))))
    text = f"The derivative with respect to `{cost.over}`."
    working.define("f'", slope, cost.unit / cost.x_unit, "differentiate", text)
    if question.domain.divides is not None or way.kind == "unknown":
        return _compared(working, way)
    return _in_closed_form(working, found, way)


def _course(question: CostQuestion, expr: Expr) -> powers.Monotonicity:
    """How a sum of powers runs, where small is better; flat for what is none."""
    found = powers.slope_of(powers.terms(expr, question.cost.x) or ())
    return powers.course(_times(question.sense, found))


def _where_equal(working: OptimumSteps) -> Derivation | None:
    """The least of the larger of two costs, of which one rises and one falls; None for all others."""
    cost, question = working.cost, working.question
    larger = sp.Max if question.sense > 0 else sp.Min
    pieces = cost.expr.args if isinstance(cost.expr, larger) and not question.domain.whole else ()
    ways = [_course(question, piece).kind for piece in pieces]
    if sorted(ways) != ["falls", "rises"]:
        return None
    rising, falling = pieces[:: 1 if ways[0] == "rises" else -1]
    root = sure_root(rising - falling, cost.x)
    if root is None:
        return None
    text = f"One cost rises with `{cost.over}`, the other one falls: the larger is least where both are equal."
    if question.sense < 0:
        text = f"One cost rises with `{cost.over}`, the other one falls: the smaller is greatest where both are equal."
    working.place = working.define(f"{cost.over}^*", cost.write(root), cost.x_unit, "equal", text)
    held = holding(rising - falling, cost.x, root, cost.given)
    working.where += [] if held is None else [held]
    return working.finish(_into_the_range(working))


# -- in closed form --------------------------------------------------------------------------------------------------


def _in_closed_form(working: OptimumSteps, found: powers.Terms, runs: powers.Monotonicity) -> Derivation:
    """The optimum of a sum of powers whose course is known.

    Raises ``ValuesError`` where there is no optimum.
    """
    cost, question = working.cost, working.question
    slope = powers.slope_of(found)
    if not runs.sure and not cost.missing:  # the numbers tell whether a coefficient is zero
        told = powers.course(_times(question.sense, powers.slope_of(powers.terms(cost.numbers, cost.x) or ())))
        runs = told if told.kind in ("rises", "falls", "flat") else runs
    if runs.kind in ("rises", "falls", "flat"):
        return _at_an_end(working, runs)
    if runs.kind == "hill":
        return _at_one_of_two_ends(working, runs)
    _second_order(working, slope)
    solved = powers.root(slope)
    if solved is None:
        _needs_numbers(working, "its slope has no root in closed form")
        return _compared(working, runs)
    worth, inside, degree = solved
    text = f"The derivative has a single zero (Descartes' rule of signs), so this is the {question.words[1]}."
    working.place = working.define(f"{cost.over}^*", _power(working, inside, degree), cost.x_unit, "slope zero", text)
    if not runs.sure:
        working.where += _turning(working, _times(question.sense, slope))
    _show_value(working, found, worth, degree)
    if question.domain.whole:
        return _whole_number(working, found, runs)
    return working.finish(_into_the_range(working))


def _times(sense: int, found: powers.Terms) -> powers.Terms:
    return tuple((e, sense * c) for e, c in found)


def _turning(working: OptimumSteps, slope: powers.Terms) -> list[Condition]:
    """That no coefficient of the slope is zero: else the cost runs one way, and the stationary point is no optimum.

    Where only the first one may be zero, the place is zero and the lower bound is the nearest value to it.
    """
    found: list[Condition] = []
    first = next(c for _, c in slope if c != 0)
    amounts = {name for condition in working.cost.where for name in condition.names}  # that were taken for counts
    for _, c in slope:
        bounded = c is first and working.question.domain.low
        if c == 0 or powers.at_least(c) or bounded:
            continue
        above = sp.expand(c if powers.sign(c) == 1 else -c)
        for factor in sp.Mul.make_args(sp.factor_terms(above)):
            less = sp.Add(*(-t for t in sp.Add.make_args(factor) if t.could_extract_minus_sign()))
            if not factor.is_positive:
                sides = (working.cost.write(side) for side in (factor + less, less))
                left, right = (forms.substitute(side, lambda s: replace(s, whole=s.whole and s.name not in amounts))
                               for side in sides)  # fmt: skip
                found.append(Condition(left, ">", right))
    return found


def _second_order(working: OptimumSteps, slope: powers.Terms) -> None:
    cost, question = working.cost, working.question
    second = powers.slope_of(slope)
    bend = powers.course(_times(question.sense, second))
    side = "positive" if question.sense > 0 else "negative"
    ways = ("falls", "rises") if question.sense > 0 else ("rises", "falls")
    if bend.kind == "rises":
        why = f"Every term is {side} for `{cost.over}` > 0, so the stationary point is the only {question.words[1]}."
    else:
        why = f"The cost {ways[0]} below the stationary point and {ways[1]} above it."
    unit = cost.unit / cost.x_unit**2
    curve = cost.write(sp.Add(*(c * cost.x**e for e, c in second)))
    working.define("f''", curve, unit, "second order", why)


def _power(working: OptimumSteps, inside: Expr, degree: Expr) -> Form:
    cost = working.cost
    base = cost.write(inside)
    if degree == 1:
        return base
    if degree == 2:
        return forms.Root(base)
    return forms.Power(base, written(1 / degree))


def _show_value(working: OptimumSteps, found: powers.Terms, worth: Expr, degree: Expr) -> None:
    cost, words = working.cost, working.question.words
    text = f"The {words[0]} cost over the real numbers, at `{working.place}`."
    working.value = working.define("f^*", working.put(working.place), cost.unit, words[1], text)
    if degree in (1, 2):
        flat = sp.expand(sp.Add(*(c * worth**e for e, c in found)))
        form = cost.write(_gathered(found, worth, flat))
        working.rewrite(working.value, form, cost.unit, "Substitute it and collect terms.")


def _gathered(found: powers.Terms, worth: Expr, flat: Expr) -> Expr:
    """The value at the optimum, its roots collected: the terms of equal powers cancel into one."""
    rest = sp.Add(*(c for e, c in found if e == 0))
    roots = sp.Add(*(c * worth**e for e, c in found if e != 0))
    whole = sp.Add(rest, roots)
    return whole if whole.count_ops() <= flat.count_ops() else flat


def _into_the_range(working: OptimumSteps) -> str:
    """The name of the stationary point, brought into the range."""
    cost, question = working.cost, working.question
    unit = cost.x_unit
    bounded = question.domain.nearest(Sym(working.place, False, unit), unit)
    if isinstance(bounded, Sym):
        return working.place
    text = "If the stationary point is outside the range, the nearest end of the range is best."
    return working.define(f"{cost.over}^best", bounded, unit, "bounds", text)


def _at_an_end(working: OptimumSteps, runs: powers.Monotonicity) -> Derivation:
    """The optimum of a cost that runs one way: a bound of the range."""
    cost, question = working.cost, working.question
    at_low = runs.kind in ("rises", "flat")
    end = question.domain.low if at_low else question.domain.high
    words = {"rises": "rises", "falls": "falls", "flat": "does not change"}
    moves = runs.kind if question.sense > 0 else {"rises": "falls", "falls": "rises", "flat": "flat"}[runs.kind]
    says = f"the cost {words[moves]} for all `{cost.over}` > 0"
    plain = says.replace("`", "")
    if end is None and runs.kind == "flat":
        raise ValuesError(f"the cost does not change with {cost.over}: every value is as good as another")
    if end is None or (not end and not question.domain.whole):
        hint = "give a lower bound above zero" if at_low else "give an upper bound"
        raise ValuesError(f"there is no optimum: {plain}", hint=hint)
    text = f"T{says[1:]}, so the {question.words[1]} is at the {'lower' if at_low else 'upper'} bound."
    working.place = working.define(f"{cost.over}^*", forms.Num(end, cost.x_unit), cost.x_unit, "bounds", text)
    return working.finish(working.place)


def _at_one_of_two_ends(working: OptimumSteps, runs: powers.Monotonicity) -> Derivation:
    question = working.question
    if question.domain.low is None or not question.domain.low or question.domain.high is None:
        raise ValuesError(
            f"there is no {question.words[1]} inside: the stationary point of the cost is its "
            f"{'greatest' if question.sense > 0 else 'least'} value",
            hint="give a lower bound above zero and an upper bound; the ends are then compared",
        )
    return _compared(working, runs)


# -- whole numbers in closed form ------------------------------------------------------------------------------------


def _whole_number(working: OptimumSteps, found: powers.Terms, runs: powers.Monotonicity) -> Derivation:
    """The best whole number, where the cost first falls and then rises.

    Raises ``ValuesError`` where it has no closed form and numbers are missing.
    """
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
        return _compared(working, runs)
    after, condition = solved
    following = forms.Total((Sym(cost.over, False, cost.x_unit), one))
    shifted = forms.substitute(cost.form, lambda s: following if s.name == cost.over else s)
    change = working.define(
        "Delta", forms.Total((shifted, forms.negative(cost.form))), cost.unit, "one more",
        f"The cost of one more `{cost.over}`: f at `{cost.over}` + 1 minus f at `{cost.over}`.",
    )  # fmt: skip
    short = cost.write(sp.Add(*(_shift(e, c, x, unit) for e, c in found if e != 0)))
    working.rewrite(change, short, cost.unit, "Cancel the terms that do not change.")
    moves, end = ("lowers", "≥") if question.sense > 0 else ("raises", "≤")
    low, high = question.domain.low or Fraction(1), question.domain.high
    if low == 1 and runs.sure and after.is_positive:  # else one more may cost more from the first number on
        low = Fraction(0)
    form = replace(question.domain, low=low).nearest(forms.Ceiling(cost.write(after)), cost.x_unit)
    text = f"Go up while one more {moves} the cost: take the first whole number with `{change}` {end} 0"
    text += ", or the nearest one in the range." if high is not None or low > 1 else "."
    best = working.define(f"{cost.over}^whole", form, cost.x_unit, "whole numbers", text)
    if condition is not None:
        _show_condition(working, condition)
    _show_neighbours(working)
    return working.finish(best)


def _show_condition(working: OptimumSteps, condition: tuple[Expr, Expr, Expr]) -> None:
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
        f"If the ratio equals its upper bound, `{cost.over}` and `{cost.over}` + 1 cost the same; we give the "
        "smaller one."
    )


def _show_neighbours(working: OptimumSteps) -> None:
    """With all numbers: the best whole number beside its neighbours, as a table."""
    cost, low, high = working.cost, working.question.domain.low, working.question.domain.high
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


def _difference(found: powers.Terms, x: Expr, unit: Expr) -> powers.Terms | None:
    """The numerator of f(x + unit) - f(x) as a polynomial, lowest power first; None for powers that are not whole."""
    if not all(e.is_Integer for e, _ in found):
        return None
    k = max(0, *(-int(e) for e, _ in found))
    if k + max(int(e) for e, _ in found) > _HIGHEST_POWER:
        return None
    numerator = sp.expand(
        sp.Add(*(c * ((x + unit) ** (e + k) * x**k - x ** (e + k) * (x + unit) ** k) for e, c in found if e != 0))
    )
    made = powers.terms(numerator, x)
    return None if made is None else tuple((e - made[0][0], c) for e, c in made if c != 0)


def _whole_root(difference: powers.Terms, unit: Expr) -> tuple[Expr, tuple[Expr, Expr, Expr] | None] | None:
    """The positive root of a difference with one change of sign, and (lower, ratio, upper) of the exact condition."""
    if [e for e, _ in difference] == [0, 1] and difference[1][1].is_positive:  # a line: whatever its start, it rises
        return sp.cancel(-difference[0][1] / difference[1][1]), None
    runs = powers.course(difference)
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
    after = -middle / 2 + sp.sqrt(middle**2 + 4 * powers.neat(-below)) / 2
    if middle != unit:
        return after, None
    n = amount("n")
    return after, (n * (n - 1), powers.neat(-below), n * (n + 1))


# -- by numbers ------------------------------------------------------------------------------------------------------


def _needs_numbers(working: OptimumSteps, why: str) -> None:
    """Raises ``ValuesError`` where a number is missing that would decide."""
    if working.cost.missing:
        raise ValuesError(
            f"we cannot decide where the cost is {working.question.words[0]}: {why}",
            hint=f"give numbers for {', '.join(working.cost.missing)}",
        )


def _compared(working: OptimumSteps, runs: powers.Monotonicity) -> Derivation:
    """The optimum by comparing all points where it can be; raises ``ValuesError`` where there is none."""
    why = runs.why or "the ends of the range must be compared"
    if working.question.domain.divides is not None:
        why = "whether a divisor above or below the stationary point is better depends on the numbers"
    _needs_numbers(working, why)
    return _best_whole(working) if working.question.domain.whole else _best_real(working)


def _best_whole(working: OptimumSteps) -> Derivation:
    cost, question = working.cost, working.question
    found = search.whole(cost.numbers, cost.x, question.domain, question.sense, cost.allows)
    working.notes.append(found.how)
    rows: list[tuple[str | Form | Quantity, ...]] = []
    shown = sorted(found.tried, key=lambda t: question.sense * t[1])[:_MOST_ROWS]
    for n, _ in sorted(shown):
        rows.append((str(n), working.at(n), "best" if n in found.best else ""))
    working.exhibits.append(Exhibit("Whole numbers compared", (cost.over, "cost", ""), tuple(rows)))
    text = f"No other whole number costs {'less' if question.sense > 0 else 'more'}."
    if len(found.best) > 1:
        others = ", ".join(map(str, found.best[1:]))
        text = f"It shares the {question.words[0]} cost with {others}; no other reaches it."
    number = forms.Num(Fraction(found.best[0]), cost.x_unit)
    working.place = working.define(f"{cost.over}^whole", number, cost.x_unit, "compare", text)
    return working.finish(working.place)


def _best_real(working: OptimumSteps) -> Derivation:
    cost, question = working.cost, working.question
    low = question.domain.low or Fraction(0)
    winners = search.real(question.sense * cost.numbers, cost.x, low, question.domain.high, not low)
    best = winners[0]
    if not best.closed:
        return _bracketed(working, best)
    others = "" if len(winners) == 1 else f" It is one of {len(winners)} places with the same cost."
    what = {"kink": "two pieces of the cost meet", "slope zero": "the slope is zero"}.get(best.kind, best.kind)
    reason = f"Of the bounds, kinks and stationary points, the cost is {question.words[0]} where {what}.{others}"
    if "bound" in best.kind:
        extreme = "least" if question.sense > 0 else "most"
        reason = f"Of the bounds, kinks and stationary points, the {what} costs {extreme}.{others}"
    form = in_unit(written(best.number), cost.x_unit)
    working.place = working.define(f"{cost.over}^*", form, cost.x_unit, "compare", reason)
    return working.finish(working.place)


def _bracketed(working: OptimumSteps, best: search.CandidatePoint) -> Derivation:
    """An optimum without a closed form: the upper end of a narrow bracket is given, and said to be that."""
    cost = working.cost
    working.notes.append(
        f"There is no closed form: the slope changes its sign between the two ends, {_said(best.low)} and "
        f"{_said(best.high)}, checked with exact fractions."
    )
    working.place = working.define(
        f"{cost.over}^+", forms.Num(best.high, cost.x_unit), cost.x_unit, "bracket",
        f"No closed form; the {working.question.words[1]} lies less than {_said(best.high - best.low)} below.",
    )  # fmt: skip
    return working.finish(working.place)


def _said(value: Fraction) -> str:
    return decimal_text(value, 16) if value.denominator != 1 else str(value)
