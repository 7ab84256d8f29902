"""Closed forms of pipeline schedules, conjectured from their events and proved on a grid.

No schedule has a formula of its own. A makespan is the longest way through the events: for given sizes it is the
greatest of many sums of times, so it is convex in the times. Where it equals one sum at every edge of the cone that the
conditions cut out and at a point inside, it equals it everywhere in the cone: a few runs prove it for all times. How
often each time is in the sum is solved for as a polynomial in the sizes, from a grid of sizes that have to agree, many
more than there are unknowns. Where they do not, the next condition is tried, a stronger one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, lru_cache
from itertools import product as pairs
from math import gcd, lcm
from operator import mul
from typing import Literal

from symcomm.core import form as forms
from symcomm.core.derivation import Condition
from symcomm.core.errors import StrategyError, SymcommError, ValuesError
from symcomm.core.form import Floor, Form, Num, Ratio, Smallest, Sym, Total, num, product
from symcomm.core.parallel.strategy import degree
from symcomm.core.program.events import Execution, Times, simulate
from symcomm.core.program.orders import Item, Schedule, conditions, in_flight
from symcomm.core.program.schedules import USUAL_SCHEDULE, find, schedules
from symcomm.core.records import dataclass, replace
from symcomm.core.units import Unit

SECOND = Unit.parse("second")
P, M, V, R = (Sym(name) for name in "pmvr")
_SYMBOLS = tuple(Sym(name, False, SECOND) for name in ("t_F", "t_B", "t_W", "t_FB", "c", "o"))
FORWARD, INPUT, WEIGHT, PAIR, HOP, OVERHEAD = _SYMBOLS
Sizes = tuple[tuple[str, Fraction], ...]  # p, m and v with their numbers
_CONFIRMING, _RANKS = 24, 6  # how many runs have to confirm what others gave; how many numbers of ranks are tried


@dataclass(frozen=True)
class ClosedForm:
    """A form in the sizes p, m, v (and the rank r) and the times, right where ``conditions`` hold.

    ``cases`` simulated ones agree with it.
    """

    form: Form
    conditions: tuple[Condition, ...]
    cases: int

    def holds(self, values: Mapping[str, Fraction]) -> bool:
        """Whether the conditions hold for numbers, as far as these are known."""
        return all(c.holds(values) for c in self.conditions if all(name in values for name in c.names))

    def said(self, names: Mapping[str, Form]) -> ClosedForm:
        """The same with other forms for its symbols; conditions that hold whatever they are worth are left out."""

        def put(form: Form) -> Form:
            return forms.substitute(form, lambda s: names.get(s.name, s))

        put_in = [Condition(put(c.left), c.relation, put(c.right)) for c in self.conditions]
        ones = {name: Fraction(1) for c in put_in for name in c.names}
        kept = (c for c in put_in if (c.names and c.left != c.right) or not c.holds(ones))
        return ClosedForm(put(self.form), tuple(kept), self.cases)


# From the weakest to the strongest; the first under which all cases agree is taken.
_SIZES = ("", "m >= p", "m >= 2p - 1", "m >= 2p", "p >= 2", "p >= 2, m >= 2p", "m >= 3p")
_TIMES = (
    "", "t_W <= t_F, 2 t_W <= t_F + t_B", "t_W <= t_F, t_W <= t_B", "t_B = t_F", "t_B = t_F, t_W <= t_B",
    "t_B = t_F, t_W <= t_B, 2 t_B <= t_FB, t_FB <= t_F + t_B + t_W", "t_B = t_F, t_W = t_F",
)  # fmt: skip


# -- the cases ----------------------------------------------------------------------------------------------


@lru_cache(1024)
def _orders(schedule: Schedule, p: int, m: int, v: int) -> list[list[Item]]:
    return schedule.ranks(p, m, v)


@cache
def grid(schedule: Schedule, ranks: int = _RANKS, where: tuple[Condition, ...] = ()) -> tuple[Sizes, ...]:
    """Sizes that a schedule takes and that keep the conditions: few and many microbatches on so many numbers of ranks.

    None where these are too few to tell a line from a curve.
    """
    found: dict[int, list[Sizes]] = {}
    for p in range(1, 2 * ranks + 2):
        for v in (schedule.chunks,) if schedule.chunks else (1, 2, 3):
            fitting = [at for m in range(1, 3 * p + 7) if (at := _fitting(schedule, p, m, v, where))]
            if fitting:  # at the edge of the conditions is where a rule fails first
                found.setdefault(p, []).extend(dict.fromkeys([*fitting[:4], *fitting[4::p], fitting[-1]]))
        if len(found) == ranks:
            break
    return tuple(at for sizes in found.values() for at in sizes) if len(found) > 3 else ()


def _fitting(schedule: Schedule, p: int, m: int, v: int, where: tuple[Condition, ...]) -> Sizes | None:
    try:
        schedule.fitting(p, m, v)
    except SymcommError:
        return None
    at = (("p", Fraction(p)), ("m", Fraction(m)), ("v", Fraction(v)))
    return at if all(condition.holds(dict(at)) for condition in where) else None


@cache
def cone(columns: tuple[Sym, ...], where: tuple[Condition, ...]) -> tuple[tuple[int, ...], ...]:
    """A point inside of the cone of times that keep the conditions, and its edges.

    >>> cone((FORWARD, WEIGHT), conditions("t_W <= t_F", _SYMBOLS))
    ((2, 1), (1, 0), (1, 1))
    """
    units = [{column.name: Fraction(n == k) for n, column in enumerate(columns)} for k in range(len(columns))]
    walls = [[at[column.name] for at in units] for column in columns]  # no time is negative
    for condition in where:
        sign = -1 if condition.relation == "<=" else 1
        wall = [sign * (forms.evaluate(condition.left, at) - forms.evaluate(condition.right, at)) for at in units]
        walls += [wall, [-a for a in wall]] if condition.relation == "=" else [wall]
    edges = []
    for point in pairs(range(4), repeat=len(columns)):
        heights = [sum(map(mul, wall, point)) for wall in walls]
        if gcd(*point) == 1 and min(heights) >= 0:
            solver = Solver()
            for wall, height in zip(walls, heights, strict=True):
                if not height:
                    solver.add(wall, Fraction(0))
            if len(solver.rows) == len(columns) - 1:
                edges.append(point)
    return (tuple(map(sum, zip(*edges, strict=True))), *edges)


class Solver:
    """Equations one by one: each says something new, or confirms those before it, or contradicts them."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, list[Fraction]]] = []
        self.confirmed = 0

    def add(self, left: Sequence[Fraction], right: Fraction) -> bool:
        """Whether an equation may hold other than those before it."""
        row = [*left, right]
        for pivot, other in self.rows:
            if row[pivot]:
                row = [a - row[pivot] * b if b else a for a, b in zip(row, other, strict=True)]
        new = next((n for n, entry in enumerate(row[:-1]) if entry), None)
        if new is not None:
            self.rows.append((new, [entry / row[new] for entry in row]))
        self.confirmed += new is None
        return new is not None or not row[-1]

    def solution(self) -> list[Fraction]:
        """The coefficients; an unnamed one is 0."""
        found = [Fraction(0)] * (len(self.rows[0][1]) - 1)
        for pivot, row in reversed(self.rows):
            found[pivot] = row[-1] - sum((a * b for a, b in zip(row, found, strict=False) if b), Fraction(0))
        return found


def _solved(samples: Iterable[tuple[list[Fraction], Fraction]]) -> tuple[list[Fraction], int] | None:
    """The coefficients of a sum that all samples agree with, and how many these are; None where there are none."""
    solver = Solver()
    if not all(solver.add(left, right) for left, right in samples) or solver.confirmed < _CONFIRMING:
        return None
    return solver.solution(), solver.confirmed + len(solver.rows)


# -- times --------------------------------------------------------------------------------------------------

Measure = Literal["makespan", "span", "work", "bubble", "span bubble"]


@lru_cache(8192)
def _run(
    schedule: Schedule, p: int, m: int, v: int, besides: tuple[Sym, ...], point: tuple[int, ...]
) -> dict[Measure, Fraction]:
    more = dict(zip((one.name for one in besides), point[3:], strict=True))
    f, b, w = point[:3]
    made = simulate(_orders(schedule, p, m, v), Times(f, b, w, more.get("t_FB"), more.get("c", 0), more.get("o", 0)))
    return measures(made)


def measures(made: Execution) -> dict[Measure, Fraction]:
    """The times of an execution that closed forms are known for; the work and the bubbles are the mean of all ranks."""
    busy = sum(made.busy, Fraction(0)) / len(made.orders)
    span, whole = made.longest_span, made.makespan
    return {"makespan": whole, "span": span, "work": busy, "bubble": whole - busy, "span bubble": span - busy}


@cache
def time(schedule: Schedule, measure: Measure = "makespan", besides: tuple[Sym, ...] = ()) -> ClosedForm | None:
    """The makespan of a schedule, the longest span of a rank, the time in which a rank works (the mean of all ranks),
    or the makespan or the span less that, its bubble; in the times of the actions.

    ``besides`` are further times that are asked for: of an overlapped pair, of a hop, the overhead of each item. None
    where no sum of times is right under any of the conditions that are tried.

    >>> from symcomm.core.printing import plain
    >>> from symcomm.core.program.schedules import find
    >>> found = time(find("zb-h1"))
    >>> print(plain(found.form), [str(c) for c in found.conditions])
    m·(t_F + t_B + t_W) + (p - 1)·(t_F + t_B - t_W) ['m >= p', 't_W <= t_F', 't_W <= t_B']
    """
    columns = (FORWARD, INPUT, WEIGHT, *besides)
    known = {column.name for column in columns}

    def runs(at: Sizes, times: tuple[Condition, ...]) -> list[Fraction]:
        """The measure inside of the cone and at its edges."""
        p, m, v = (int(number) for _, number in at)
        return [_run(schedule, p, m, v, besides, point)[measure] for point in cone(columns, times)]

    def samples(
        sizes: tuple[Sizes, ...], times: tuple[Condition, ...], monomials: tuple[Form, ...]
    ) -> Iterator[tuple[list[Fraction], Fraction]]:
        for at in sizes:
            worth = [forms.evaluate(monomial, dict(at)) for monomial in monomials]
            for point, found in zip(cone(columns, times), runs(at, times), strict=True):
                yield [a * b for a, b in pairs(point, worth)], found

    for text in _TIMES:
        times = conditions(text, _SYMBOLS)
        if any(name not in known for condition in times for name in condition.names):
            continue
        for floors, where in pairs((False, True) if text == _TIMES[-1] else (False,), map(conditions, _SIZES)):
            sizes = grid(schedule, 2 * _RANKS if floors else _RANKS, where)
            if any(2 * edges[0] != sum(edges) for edges in (runs(at, times) for at in reversed(sizes))):
                continue  # the point inside is the sum of the edges, and not so its time
            monomials = _monomials(schedule, floors, measure not in ("makespan", "span"))
            found = _solved(samples(sizes, times, monomials)) if sizes else None
            if found is not None:
                table: dict[tuple[Form, Form], Fraction] = {}
                table.update(zip(pairs(columns, monomials), found[0], strict=True))
                form = written_sum(table, columns, monomials)
                return ClosedForm(form, (*schedule.conditions, *where, *times), found[1])
    return None


def slots(schedule: Schedule) -> ClosedForm | None:
    """The makespan in forwards and backwards of one chunk, where it does not matter how a time is divided into them.

    >>> from symcomm.core.printing import plain
    >>> from symcomm.core.program.schedules import find
    >>> plain(slots(find("interleaved")).form), slots(find("zb-h1"))
    ('m·v + p - 1', None)
    """
    found = time(schedule)
    whole = Total((FORWARD, INPUT, WEIGHT))
    if found is None or not isinstance(found.form, forms.Product) or found.form.factors[-1] != whole:
        return None
    return replace(found, form=product(*found.form.factors[:-1]))


def timed_alike() -> list[str]:
    """The schedules under which a step takes as long as under the usual one."""
    usual = slots(find(USUAL_SCHEDULE))
    whole = [s for s in schedules() if s.chunks == 1 and s.kinds == {"F", "D"} and not s.stashes]
    found = [(s.name, slots(s)) for s in whole]
    return [name for name, form in found if form and usual and form.form == usual.form and not form.conditions]


def _monomials(schedule: Schedule, floors: bool = False, mean: bool = False) -> tuple[Form, ...]:
    """The sizes that a number of actions may be a sum of; ``mean`` over the ranks, so that one of all ranks counts."""
    found: list[Form] = [M] if schedule.chunks else [product(M, V), product(P, V), M, V]
    if floors:  # these and p: all that goes up by the same amount every two or three ranks
        found += [Floor(Ratio(P, num(2))), Floor(Ratio(P, num(3))), Floor(Ratio(Total((P, num(1))), num(3)))]
    return (*found, *([Ratio(num(1), P)] if mean else []), P, num(1))


def written_sum(
    table: Mapping[tuple[Form, Form], Fraction], columns: Sequence[Form], monomials: Sequence[Form]
) -> Form:
    """A sum of products of a size and a sum of times, as a person writes it: ``m (F + B + W) + (p - 1) (F + B)``."""
    rows = {size: [table[column, size] for column in columns] for size in monomials}
    for shift in (1, 2):
        if any(rows[num(1)]) and all(a == -shift * b for a, b in zip(rows[num(1)], rows[P], strict=True)):
            rows[Total((P, num(-shift)))] = rows.pop(P)
            rows[num(1)] = [Fraction(0)] * len(columns)
            break
    rows[num(1)] = rows.pop(num(1))
    sums: dict[Form, list[Form]] = {}  # sizes by the sum of times that they multiply
    for size, row in rows.items():
        if any(row):
            scale = Fraction(gcd(*(a.numerator for a in row)), lcm(*(a.denominator for a in row)))
            scale = -scale if max(row) <= 0 else scale
            inner = _sum([_scaled(a / scale, one) for a, one in zip(row, columns, strict=True) if a])
            sums.setdefault(inner, []).append(_scaled(scale, size))
    return _sum([product(_sum(sizes), inner) for inner, sizes in sums.items()])


def _scaled(scale: Fraction, *factors: Form) -> Form:
    found = product(*([] if abs(scale) == 1 else [forms.rational(abs(scale))]), *factors)
    return found if scale > 0 else forms.negative(found)


def _sum(terms: Sequence[Form]) -> Form:
    """A sum that does not begin with a minus sign, where it need not."""

    def falls(term: Form) -> bool:
        first = term.factors[0] if isinstance(term, forms.Product) else term
        return isinstance(first, Num) and first.number < 0

    flat = [t for term in terms for t in (term.terms if isinstance(term, Total) else (term,))]
    flat.sort(key=falls)
    return num(0) if not flat else flat[0] if len(flat) == 1 else Total(tuple(flat))


# -- in flight ----------------------------------------------------------------------------------------------


@cache
def held(schedule: Schedule, until: str = "W", rank: bool = True) -> ClosedForm | None:
    """The most microbatches of a chunk that rank r holds at once; without ``rank``, that any rank holds.

    They are held until their ``W`` or their ``B``, as in ``in_flight``. None where no rule is found.

    >>> from symcomm.core.printing import plain
    >>> from symcomm.core.program.schedules import find
    >>> plain(held(find("1f1b")).form), plain(held(find("v-half"), rank=False).form)
    ('min(p - r, m)', 'min(2·⌊p/2⌋ + 2, 2·m)')
    """

    def most(at: Mapping[str, Fraction]) -> int:
        orders = _orders(schedule, int(at["p"]), int(at["m"]), int(at["v"]))
        return in_flight(orders[int(at["r"])], until) if rank else max(in_flight(order, until) for order in orders)

    v = schedule.chunks or 1
    work = _scaled(v / schedule.placement.copies(2, v), *((M,) if schedule.chunks else (M, V)))  # forwards of a rank
    ways = [("", False), ("", True), *((text, False) for text in _SIZES[1:])]
    for floors, (text, capped) in pairs((False, True), ways):
        sizes = map(dict, grid(schedule, 2 * _RANKS if floors else _RANKS, conditions(text)))
        places = [{**at, "r": Fraction(r)} for at in sizes for r in range(int(at["p"]) if rank else 1)]
        plenty = [at for at in places if at["m"] >= 2 * at["p"]] if capped else places
        monomials = (*((R,) if rank else ()), *_monomials(schedule, floors))
        if capped:
            monomials = tuple(one for one in monomials if "m" not in forms.names(one))
        found = _solved(([forms.evaluate(one, at) for one in monomials], Fraction(most(at))) for at in plenty)
        if found is not None:
            table: dict[tuple[Form, Form], Fraction] = {
                (num(1), one): a for one, a in zip(monomials, found[0], strict=True)
            }
            form = written_sum(table, (num(1),), monomials)
            form = Smallest((form, work)) if capped else form
            if not capped or all(forms.evaluate(form, at) == most(at) for at in places):
                return ClosedForm(form, (*schedule.conditions, *conditions(text)), len(places))
    return None


def chunks_of(schedule: Schedule, said: object) -> Form:
    """The chunks of a rank; raises ``StrategyError`` where they must be said or are others than the schedule's."""
    if said is None and schedule.chunks is None:
        raise StrategyError(f"the {schedule.name} schedule needs its chunks of layers per rank", hint="chunks=2")
    v = num(schedule.chunks or 1) if said is None else degree(str(said))
    if schedule.chunks and v != num(schedule.chunks):
        raise schedule.wrong_chunks(str(said))
    return v


def held_on(schedule: Schedule, sizes: Mapping[str, Form], values: Mapping[str, Fraction]) -> ClosedForm:
    """The microbatches in flight with forms for the sizes p, m, v and the rank r (the most on any rank, without r).

    The number of the order stands where no closed form holds and the sizes are numbers. Raises ``ValuesError`` where
    they are not, and for a rank that there is not.
    """
    missing = [name for form in sizes.values() for name in forms.names(form) if name not in values]
    if not missing:
        p, m, v, r = (int(forms.evaluate(sizes[name], values)) if name in sizes else 0 for name in "pmvr")
        if not 0 <= r < p:
            raise ValuesError(f"there is no stage {r} of {p}", hint=f"0 is the first one, {p - 1} the last")
        schedule.fitting(p, m, v)
    closed = held(schedule, rank="r" in sizes)
    if closed is not None:
        closed = closed.said(sizes)
        if closed.holds(values):
            simple = any(isinstance(form, Num) for form in sizes.values())
            return replace(closed, form=forms.from_expr(forms.value(closed.form))) if simple else closed
    if missing:
        raise no_form(schedule, "number in flight", closed, missing)
    ranks = [r] if "r" in sizes else [*range(p)]
    return ClosedForm(num(max(in_flight(schedule.rank(rank, p, m, v)) for rank in ranks)), (), 0)


def no_form(schedule: Schedule, what: str, closed: ClosedForm | None, missing: Iterable[str]) -> ValuesError:
    """The error where no closed form holds and numbers are missing."""
    told = f"no closed form is known for the {what} of {schedule.name}"
    if closed is not None:
        told = f"the closed form for the {what} of {schedule.name} holds where {listed(closed.conditions)}"
    names = ", ".join(dict.fromkeys(missing))
    return ValuesError(told, hint=f"with numbers for {names}, the events are followed one by one")


def listed(conditions: Sequence[Condition]) -> str:
    """Conditions as a reader meets them."""
    said = [f"`{c}`" for c in conditions]
    return " and ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)
