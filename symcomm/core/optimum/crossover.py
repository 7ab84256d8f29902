"""Where one cost overtakes another: the payload, rank count or bandwidth at which two derivations are equal.

Solved symbolically where the difference is a polynomial of degree 1 or 2 in the variable; otherwise bracketed exactly,
by a scan of whole numbers or by bisection with fractions. No float takes part in a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations, pairwise

from symcomm.core import form as forms
from symcomm.core.accounting import field_of
from symcomm.core.derivation import Condition, Derivation, Exhibit, Reason, Step, exact
from symcomm.core.derivation.tables import Short
from symcomm.core.errors import ValuesError
from symcomm.core.form import Num
from symcomm.core.libraries import Expr
from symcomm.core.optimum.cost import Formula, derived, used
from symcomm.core.optimum.dimension import worth
from symcomm.core.optimum.equality import holding, rises
from symcomm.core.optimum.pair import Pair, comparable, differences
from symcomm.core.optimum.powers import course, terms
from symcomm.core.optimum.roots import RANGE, Crossing, bisect, changes, points, real_changes, signs_between
from symcomm.core.patience import patience, trying
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Quantity, Unit


@dataclass(frozen=True)
class Crossovers:
    """All crossings of two costs in a range, and which of them is less between the crossings (-1, 0 or 1).

    ``rises`` says whether the first one is the larger above the first crossing; None where numbers decide that.
    """

    over: str
    between: tuple[Fraction, Fraction]
    crossings: tuple[Crossing, ...]
    less: tuple[int, ...]
    rises: bool | None
    derivation: Derivation


def crossover(
    a: Formula | Expr,
    b: Formula | Expr,
    over: str,
    between: tuple[object, object] | None = None,
    compared: Iterable[str] = ("algorithm",),
    given: Mapping[str, object] | None = None,
) -> Derivation:
    """The value of ``over`` at which two costs are equal, with steps; see ``crossovers``."""
    return crossovers(a, b, over, between, compared, given).derivation


def crossovers(
    first: Formula | Expr,
    second: Formula | Expr,
    over: str,
    between: tuple[object, object] | None = None,
    compared: Iterable[str] = ("algorithm",),
    given: Mapping[str, object] | None = None,
    real: bool = False,
) -> Crossovers:
    """Every value of ``over`` in a range at which one of two costs overtakes the other.

    The costs are derivations, forms or text; ``given`` are numbers besides those of the derivations. A value of
    ``over`` that they were given is not used. Without ``between`` the range is 2 to 4096 for a
    whole number without a unit, 1 to 2^60 for one with a unit, and 2^-60 to 2^60 for any other amount, or where what
    is counted is taken as ``real``. Raises
    ``AccountingError`` where the two are counted differently in another field than ``compared``, ``ValuesError`` where
    ``over`` appears in neither or numbers are missing that would decide.

    >>> crossover("a + n", "3n", "n").expr
    a/2
    """
    with patience(f"the search for where they cross over {over[:40]}", "give a narrower range (between)", True):
        a, b = (derived(cost, given, "", over) for cost in (first, second))
        return _crossovers(Pair.of(a, b, over, real), between, compared, given or {})


def _crossovers(
    pair: Pair,
    between: tuple[object, object] | None,
    compared: Iterable[str],
    given: Mapping[str, object],
) -> Crossovers:
    a, b, over = pair.a, pair.b, pair.over
    accounting = comparable(a, b, tuple(compared))
    low, high = _range(pair, between)
    used(given, over, pair.names)
    known = {name: exact(value, name, pair.units.get(name, ONE)) for name, value in given.items()}
    known = {name: value for name, value in (pair.given | known).items() if name != over}
    missing = [name for name in pair.names if name not in known and name != over]
    steps = pair.first_steps()
    trying("a root in closed form")
    solved = pair.solution()
    crossings: tuple[Crossing, ...] = ()
    less: tuple[int, ...] = ()
    notes: list[str] = []
    where: Condition | None = None
    exhibits: tuple[Exhibit, ...] = ()
    if not missing:
        trying("every change of the sign of their difference")
        sign = pair.sign(known)
        found = changes(sign, pair.numbers(known), pair.variable, low, high, pair.whole)
        less = signs_between(sign, found.crossings, low, high, pair.whole)
        crossings, less = real_changes(found.crossings, less)
        exhibits = (_table(pair, crossings, less, low, high),)
        notes += [_unsure(pair, *interval) for interval in found.unsure]
        if not crossings:
            steps = steps[:2] + steps[3:]  # the equation has no solution to be found
            notes.append(_always(pair, less[0], low, high))
    elif solved is None:
        runs = course(terms(pair.difference, pair.variable) or ())
        if runs.kind in ("rises", "falls"):
            better = pair.titles[runs.kind == "rises"]
            raise ValuesError(f"there is no crossover: {better} is less for every {over}")
        raise ValuesError(
            f"the crossover over {over} has no closed form, and {', '.join(missing)} have no value",
            hint=f"give {missing[0]} a value",
        )
    if solved is not None and (missing or len(crossings) == 1):
        steps += pair.solved(solved)
        if missing:
            where = holding(worth(pair.difference), pair.variable, worth(solved), known)
            notes.append(pair.sides(solved))
    elif crossings:
        steps += _bracketed(pair, crossings)
    if len(crossings) > 1:
        notes.append(f"They cross {len(crossings)} times; the last crossing is the answer above, all are in the table.")
    said = differences(a, b)
    derivation = Derivation(
        f"Crossover of {pair.titles[0]} and {pair.titles[1]} over {over}", accounting, tuple(steps),
        tuple(dict.fromkeys(f for f in (*a.touched, *b.touched) if field_of(f) not in said)), pair.relations, exhibits,
        tuple(known.items()), pair.notation, (*said.values(), *notes),
        (*a.where, *b.where, *([where] if where else [])),
        checks=(*a.checks, *b.checks, *([] if missing or crossings else [partial(_refused, notes[-1].rstrip("."))])),
    )  # fmt: skip
    above = less[0] < 0 if less else rises(pair.difference, pair.variable, known)
    return Crossovers(over, (low, high), crossings, less, above, derivation)


def _range(pair: Pair, between: tuple[object, object] | None) -> tuple[Fraction, Fraction]:
    if between is None:
        counts = pair.whole and pair.over not in pair.units
        if counts:
            return Fraction(2), Fraction(4096)
        return (Fraction(1) if pair.whole else RANGE[0]), RANGE[1]
    low, high = (exact(v, f"a limit of {pair.over}", pair.units.get(pair.over, ONE)) for v in between)
    if not 0 < low < high:
        raise ValuesError(f"the range of {pair.over} from {low} to {high} is empty or not positive")
    if pair.whole and (low.denominator != 1 or high.denominator != 1):
        raise ValuesError(f"{pair.over} is a whole number, but its range is from {low} to {high}")
    return low, high


def _bracketed(pair: Pair, crossings: Sequence[Crossing]) -> list[Step]:
    """The steps that name crossings found by search."""
    unit = pair.units.get(pair.over, ONE)
    steps = []
    for i, c in enumerate(crossings, 1):
        tag = f"{pair.over}_cross" + (f",{i}" if len(crossings) > 1 else "")
        if c.exact:
            text = "Both costs are exactly equal there."
        elif pair.whole:
            text = f"The first whole number on the other side; {c.low} is the last one before the costs change places."
        else:
            text = f"Bisection: the sign, proved at both ends, changes between {float(c.low):.12g} and this value."
        name = pair.free(tag)
        steps.append(Step(name, Num(c.high, unit), unit, Reason("bracket", text, witness=pair.meet(name))))
    return steps


def _table(pair: Pair, crossings: Sequence[Crossing], less: Sequence[int], low: Fraction, high: Fraction) -> Exhibit:
    unit = pair.units.get(pair.over, ONE)
    names = {-1: pair.titles[0], 0: "equal", 1: pair.titles[1]}
    ends = [low, *(x for c in crossings for x in (c.low, c.high)), high]
    rows = tuple(
        (
            "any less" if left in RANGE and left == low else Short(left, unit),  # where a search ends says nothing
            "any more" if right in RANGE and right == high else Short(right, unit),
            names[side],
        )
        for left, right, side in zip(ends[::2], ends[1::2], less, strict=True)
    )
    return Exhibit(f"The smaller cost, by {pair.over}", ("from", "to", "less"), rows)


def _always(pair: Pair, side: int, low: Fraction, high: Fraction) -> str:
    unit = pair.units.get(pair.over, ONE)
    span = f"for every {pair.over} from {_said(low, unit)} to {_said(high, unit)}"
    if not side:
        return f"Both are equal {span}."
    better, worse = pair.titles if side < 0 else pair.titles[::-1]
    return f"There is no crossover: {better} is less than {worse} {span}."


def _refused(told: str, known: Mapping[str, Fraction]) -> None:
    raise ValuesError(told, hint="another range, with between")


def _unsure(pair: Pair, low: Fraction, high: Fraction) -> str:
    unit = pair.units.get(pair.over, ONE)
    return (
        f"From {_said(low, unit)} to {_said(high, unit)} we did not try every {pair.over}: the costs may change "
        "places more often than listed."
    )


@dataclass(frozen=True)
class CheapestInterval:
    """An interval of the variable in which one of several costs is the least, by its place in their order."""

    low: Fraction
    high: Fraction
    best: int


def envelope(
    costs: Sequence[Derivation], over: str, between: tuple[object, object] | None = None
) -> tuple[CheapestInterval, ...]:
    """The least of several costs, from interval to interval of a variable; the first one where several are.

    The costs must be in one unit, with all other numbers known. Costs that differ in the algorithm may be compared.
    """
    for other in costs[1:]:
        comparable(costs[0], other, ("algorithm", "chunks"))
    pair = Pair.of(costs[0], costs[-1], over)
    low, high = _range(pair, between)
    written = [forms.from_expr(d.expr) for d in costs]
    given = [{name: value for name, value in d.given if name != over} for d in costs]

    def best(x: Fraction) -> int:
        worth = [forms.evaluate(f, {**g, over: x}) for f, g in zip(written, given, strict=True)]
        return worth.index(min(worth))

    cuts, unsure = {low, high}, set[tuple[Fraction, Fraction]]()
    with patience(f"the search for the least over {over[:40]}", "give a narrower range (between)"):
        for (a, first), (b, second) in combinations(zip(costs, written, strict=True), 2):
            if over in {*forms.names(first), *forms.names(second)}:
                two = Pair.of(a, b, over)
                known = {name: value for name, value in two.given.items() if name != over}
                met = changes(two.sign(known), two.numbers(known), two.variable, low, high, two.whole)
                cuts |= {x for c in met.crossings for x in (c.low, c.high)}
                unsure |= {*met.unsure}
        for start, stop in unsure:
            cuts |= _changes_seen(best, points(start, stop, pair.whole), pair.whole)
    found: list[CheapestInterval] = []
    step = 1 if pair.whole else 0
    for left, right in pairwise(sorted(cuts)):  # between two cuts nothing changes places
        inside = (left + right) / 2
        inside = Fraction(inside.__floor__()) if pair.whole else inside
        found += [CheapestInterval(left, left, best(left))] * step
        found += [CheapestInterval(left + step, right - step, best(inside))] * (right - left > step)
    found += [CheapestInterval(high, high, best(high))] * step
    joined: list[CheapestInterval] = []
    for one in found:
        if joined and joined[-1].best == one.best:
            joined[-1] = CheapestInterval(joined[-1].low, one.high, one.best)
        else:
            joined.append(one)
    return tuple(joined)


def _changes_seen(best: Callable[[Fraction], int], tried: Sequence[Fraction], whole: bool) -> set[Fraction]:
    """Where the best of several costs is seen to change between numbers that are tried."""
    cuts: set[Fraction] = set()
    for before, point in pairwise(tried):
        while best(before) != best(point):

            def same(x: Fraction, here: int = best(before)) -> int:
                return 1 if best(x) == here else -1

            end = bisect(same, before, point, 1, whole)
            cuts |= {end.low, end.high}
            before = end.high
    return cuts


def _said(value: Fraction, unit: Unit) -> str:
    return str(Quantity(value, unit)).split(" = ")[0]
