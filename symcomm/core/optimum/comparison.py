"""The optimum of a cost with known numbers, of any course: every point where it can be is compared."""

from __future__ import annotations

from fractions import Fraction

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form
from symcomm.core.optimum import search
from symcomm.core.optimum.cost import written
from symcomm.core.optimum.dimension import in_unit
from symcomm.core.optimum.powers import Monotonicity
from symcomm.core.optimum.working import Working
from symcomm.core.units import Quantity, decimal_text

_MOST_ROWS = 12


def needs_numbers(working: Working, why: str) -> None:
    """Raises ``ValuesError`` where a number is missing that would decide."""
    if working.cost.missing:
        raise ValuesError(
            f"where the cost is {working.question.words[0]} cannot be told: {why}",
            hint=f"give numbers for {', '.join(working.cost.missing)}",
        )


def derivation(working: Working, runs: Monotonicity) -> Derivation:
    """The optimum by comparing all points where it can be; raises ``ValuesError`` where there is none."""
    why = runs.why or "the ends of the range must be compared"
    if working.question.divides is not None:
        why = "whether a divisor above or below the stationary point is better hangs on the numbers"
    needs_numbers(working, why)
    return _whole(working) if working.question.integer else _real(working)


def _whole(working: Working) -> Derivation:
    cost, question = working.cost, working.question
    assert question.low is not None
    low, high = int(question.low), None if question.high is None else int(question.high)
    found = search.whole(cost.numbers, cost.x, low, high, question.divides, question.sense)
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


def _real(working: Working) -> Derivation:
    cost, question = working.cost, working.question
    low = question.low or Fraction(0)
    winners = search.real(question.sense * cost.numbers, cost.x, low, question.high, not low)
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


def _bracketed(working: Working, best: search.CandidatePoint) -> Derivation:
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
