"""The time of a schedule whose stages differ: as the largest of a few sums where these are known, else by its events.

For given sizes a makespan is the greatest of many sums of times. Those that count are found exactly: the largest of the
sums that are known is compared with the events at every edge of its pieces, and where the events take longer, the way
that they take is one more sum. Where no edge is left the two are equal everywhere. What these sums are for all sizes is
conjectured from some, and has to be what is found for each size of a grid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache, reduce
from math import gcd
from operator import add, mul
from typing import Any

from symcomm.core import form as forms
from symcomm.core.derivation import Condition
from symcomm.core.errors import SymcommError, ValuesError
from symcomm.core.form import Form, Largest, Num, NumericFunction, Smallest, Sym, num
from symcomm.core.libraries import np
from symcomm.core.program.closed_forms import SECOND, ClosedForm, M, P, Solver, written_sum
from symcomm.core.program.events import Needs, Times, simulate
from symcomm.core.program.orders import Item, Schedule
from symcomm.core.program.schedules import EVENT_LIMIT, RANK_LIMIT, find
from symcomm.core.records import dataclass

WHOLE, APART = "FD", "FBW"  # the pieces of work that are timed: a backward in one, or its two gradients apart
_MOST = 6  # sums that a reader is shown; the events tell more
_EDGES = 400
_SIZES = tuple((p, m) for p in (4, 5, 2, 3) for m in sorted({1, 2, p - 1, p, p + 1, 2 * p, 2 * p + 1}, reverse=True))
Vector = tuple[int, ...]


@dataclass(frozen=True)
class Makespan(NumericFunction):
    """The makespan of a schedule by its events: a function of p, m, v, and of the times of each piece of work.

    Times of the ``tails`` come last: what a stage does after its last piece of work.
    """

    said: str
    letters: str  # the pieces of work
    kinds: int  # times of a piece: one for all stages, three (first, between, last), or one for each stage
    tails: bool = False
    sends: bool = False  # the times are of stages that send what they make, and as many follow of those that do not

    def number(self, arguments: tuple[Fraction, ...]) -> Fraction:
        """The makespan. Raises ``ValuesError`` and ``StrategyError`` for sizes that the schedule does not take."""
        if any(size.denominator != 1 for size in arguments[:3]):
            raise ValuesError(f"{', '.join(map(str, arguments[:3]))} are no numbers of stages, microbatches and chunks")
        return self.events(self.orders(*map(int, arguments[:3])), arguments[3:])

    def numbers(self, arguments: Sequence[Any]) -> Any:
        """The makespans of many times: for each number of stages, microbatches and chunks the events once.

        >>> import numpy as np
        >>> rule = Makespan("1f1b", SECOND, "1f1b", "FD", 3)
        >>> columns = [np.array([n, n]) for n in (4, 8, 1)] + [np.array([1.0, n]) for n in (1, 2, 3, 2, 1, 4)]
        >>> rule.numbers(columns).tolist() == [float(rule.number(tuple(map(Fraction, r)))) for r in zip(*columns)]
        True
        """
        sizes, where = np.unique(np.stack(arguments[:3]), axis=1, return_inverse=True)
        found, hidden = np.full(len(arguments[0]), np.nan), self.hidden(arguments)
        for n, column in enumerate(sizes.T):
            if np.isfinite(column).all() and (column == np.floor(column)).all():
                mine = np.flatnonzero(where.ravel() == n)
                if hidden is not None and column[0] > 1 and hidden[mine].any():
                    find(self.said).fitting(*map(int, column))
                    rows = mine[hidden[mine]]
                    found[rows] = _largest(self.said, self.letters, column, [a[rows] for a in arguments[3:]])
                    mine = mine[~hidden[mine]]
                if len(mine):
                    found[mine] = self.several(self.orders(*map(int, column)), [a[mine] for a in arguments[3:]])
        return found

    def hidden(self, arguments: Sequence[Any]) -> Any:
        """Where messages take no longer than the work beside them, and no stage between others is longest; None where
        no sums are known for that.
        """
        known = _known(find(self.said), self.letters, 3) if self.kinds == 3 and self.sends and not self.tails else None
        if known is None:
            return None
        times = [np.stack(arguments[3 + n : 6 + n]) for n in range(0, 6 * len(self.letters), 3)]
        same = [(sent == alone).all(axis=0) for sent, alone in zip(times[::2], times[1::2], strict=True)]
        return np.logical_and.reduce([*same, *((t >= t[1]).all(axis=0) for t in times[1::2])])

    def orders(self, p: int, m: int, v: int) -> Sequence[Sequence[Item]]:
        """The order of each rank. Raises ``ValuesError`` and ``StrategyError`` for sizes that there are none for."""
        record = find(self.said)
        record.fitting(p, m, v)
        if p > RANK_LIMIT or 3 * p * m * v > EVENT_LIMIT:
            raise ValuesError(
                f"{p} stages and {m} microbatches are too many to be followed one by one",
                hint=f"at most {RANK_LIMIT} stages and {EVENT_LIMIT:,} pieces of work",
            )
        return record.ranks(p, m, v)

    def several(self, orders: Sequence[Sequence[Item]], times: Sequence[Any]) -> Any:
        """The makespan of orders for arrays of times."""
        stages, sending = _boundaries(orders)

        def columns(kind: str, stage: int) -> list[int]:
            letters = "BW" if kind == "D" and self.letters == APART else kind
            return [self.column(letter, stage, stages, sending) for letter in letters]

        ways = _Ways(orders, columns)
        lengths = {key: reduce(add, (times[n] for n in key)) for key in {*map(tuple, ways.columns)}}
        ends: list[Any] = [None] * len(ways.order)
        for node in ways.order:
            before = [ends[other] for other in ways.before[node]]
            start = reduce(np.maximum, before) if before else 0.0
            ends[node] = start + lengths[tuple(ways.columns[node])]
        last, longest, tails = -1, [], times[-self.kinds :]
        for order in orders:
            last += len(order)
            held = sorted({a.stage for item in order for a in item}) if self.tails else []
            longest.append(reduce(add, (tails[kind_of(s, stages, self.kinds)] for s in held), ends[last]))
        return reduce(np.maximum, longest)

    def events(self, orders: Sequence[Sequence[Item]], times: Sequence[Fraction]) -> Fraction:
        """The makespan of orders."""
        stages, sending = _boundaries(orders)
        f, b, *w = (
            [times[self.column(letter, stage, stages, sending)] for stage in range(stages)] for letter in self.letters
        )
        made = simulate(orders, Times(f, b, w[0] if w else [Fraction(0)] * stages))
        if not self.tails:
            return made.makespan
        tails = times[-self.kinds :]
        mine = ({a.stage for item in order for a in item} for order in orders)
        ends = zip(made.last_end, mine, strict=True)
        return max(end + sum((tails[kind_of(s, stages, self.kinds)] for s in held), Fraction(0)) for end, held in ends)

    def column(self, letter: str, stage: int, stages: int, sending: frozenset[int]) -> int:
        """The index of the time that a piece of work takes on a stage."""
        alone = self.sends and not _sends(letter, stage, sending)
        at = self.letters.index(letter) * (1 + self.sends) + alone
        return at * self.kinds + kind_of(stage, stages, self.kinds)


def _boundaries(orders: Sequence[Sequence[Item]]) -> tuple[int, frozenset[int]]:
    """How many stages there are, and between which of them and the next one messages go from rank to rank."""
    ranks = {(a.stage, a.microbatch): rank for rank, order in enumerate(orders) for item in order for a in item
             if a.kind == "F"}  # fmt: skip
    sending = frozenset(stage for (stage, i), rank in ranks.items() if ranks.get((stage + 1, i), rank) != rank)
    return 1 + max(stage for stage, _ in ranks), sending


def _sends(letter: str, stage: int, sending: frozenset[int]) -> bool:
    """Whether a stage sends what a piece of work makes: results to the next one, gradients of inputs back."""
    return (stage if letter == "F" else stage - 1) in sending and letter != "W"


def kind_of(stage: int, stages: int, kinds: int) -> int:
    """The index of a stage's time in a list."""
    if kinds == 3 and stages != 3:
        return 0 if stage == 0 else 2 if stage == stages - 1 else 1
    return min(stage, kinds - 1)


def makespan(
    said: str, letters: str, kinds: int, sizes: Mapping[str, Form], times: Sequence[Form], ordered: bool,
    tails: Sequence[Form] = (), sends: bool = False, shown: Mapping[str, Form] | None = None,
) -> ClosedForm:  # fmt: skip
    """The makespan of a schedule for forms of its sizes and times (see ``Makespan``), its sizes written as ``shown``.

    It is the largest of a few sums where these are known: where all stages are alike, or ``ordered``, which says that
    no stage between takes longer than the first one or the last one for anything. Else it is followed by its events.
    """
    record, shown = find(said), shown or sizes
    alike = kinds == 1 or (kinds == 3 and ordered and not sends)
    known = _known(record, letters, kinds, sends) if not tails and alike else None
    if known is not None:
        names = {name.name: time for name, time in zip(_columns(letters, kinds + sends), times, strict=True)}
        where = known.said({**sizes, **names}).conditions
        own = ClosedForm(known.form, record.conditions, 0).said(sizes).conditions
        if not sends or {*where} <= {*own}:  # else there may be fewer ranks
            return ClosedForm(known.said({**shown, **names}).form, where, known.cases)
    rule = Makespan(record.name, SECOND, said, letters, kinds, bool(tails), sends)
    events = forms.Applied(rule, (*(shown[size] for size in "pmv"), *times, *tails))
    several = (Condition(sizes["p"], ">=", num(2)),) if kinds == 3 and forms.names(sizes["p"]) else ()
    return ClosedForm(events, (*record.conditions, *several), 0)


def _columns(letters: str, kinds: int) -> tuple[Sym, ...]:
    return tuple(Sym(f"t_{letter}{n}", False, SECOND) for letter in letters for n in range(kinds))


def _largest(said: str, letters: str, sizes: Sequence[float], times: Sequence[Any]) -> Any:
    """The largest of the sums of stages that differ at the ends, for arrays of times: those without messages."""
    known = _known(find(said), letters, 3)
    assert known is not None
    alone = [times[6 * n + 3 + kind] for n in range(len(letters)) for kind in range(3)]
    names = (name.name for name in (P, M, *_columns(letters, 3)))
    at = dict(zip(names, (*sizes[:2], *alone), strict=True))
    return _ARRAYS.named(lambda sym, go: at[sym.name])(known.form)


_ARRAYS: forms.Algebra[Any] = forms.Algebra(forms.of_parts({
    **forms.OPERATORS, Num: lambda number, _: float(number),
    Largest: lambda choices: reduce(np.maximum, choices), Smallest: lambda choices: reduce(np.minimum, choices),
}))  # fmt: skip


# -- the sums of given sizes --------------------------------------------------------------------------------


class _Ways:
    """The ways through the events of some orders: for times, the longest one."""

    def __init__(self, orders: Sequence[Sequence[Item]], columns: Callable[[str, int], Sequence[int]]) -> None:
        plan = Needs(orders)
        offsets = [sum(map(len, orders[:rank])) for rank in range(len(orders))]
        made = {key: offsets[r] + n for r, one in enumerate(plan.makes) for n, keys in enumerate(one) for key in keys}
        self.columns: list[list[int]] = []
        self.before: list[list[int]] = []
        for r, order in enumerate(orders):
            for n, item in enumerate(order):
                self.columns.append([column for a in item for column in columns(a.kind, a.stage)])
                waits = [made[key] for key in plan.needs[r][n] if made[key] != offsets[r] + n]
                self.before.append([*([offsets[r] + n - 1] if n else []), *waits])
        events = simulate(orders)  # with no time of zero, what starts earlier is no later in any order
        starts = [start for each in events.starts for start in each]
        self.order = sorted(range(len(starts)), key=starts.__getitem__)

    def longest(self, times: Vector) -> tuple[int, Vector]:
        """The makespan, and how often each time is on the longest way."""
        ends = [0] * len(self.order)
        came = [-1] * len(self.order)
        for node in self.order:
            for other in self.before[node]:
                if came[node] < 0 or ends[other] > ends[came[node]]:
                    came[node] = other
            start = ends[came[node]] if came[node] >= 0 else 0
            ends[node] = start + sum(times[column] for column in self.columns[node])
        node = max(self.order, key=ends.__getitem__)
        most, counts = ends[node], [0] * len(times)
        while node >= 0:
            for column in self.columns[node]:
                counts[column] += 1
            node = came[node]
        return most, tuple(counts)


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(map(mul, a, b))


class _Cone:
    """The edges of the points that keep some inequalities ``a x >= 0``, none of which is negative.

    Source: the double description method, Motzkin et al. 1953.
    """

    def __init__(self, size: int) -> None:
        axes = [tuple(int(n == k) for n in range(size)) for k in range(size)]
        self.edges = {axis: sum(1 << n for n, other in enumerate(axes) if other != axis) for axis in axes}
        self.last = 1 << size

    def cut(self, wall: Vector) -> None:
        """One more inequality; each edge knows the walls it lies on, a bit for each, and a new edge has both walls'."""
        height, last = {edge: _dot(wall, edge) for edge in self.edges}, self.last
        found = {edge: on | (0 if height[edge] else last) for edge, on in self.edges.items() if height[edge] >= 0}
        for above in (edge for edge in self.edges if height[edge] > 0):
            for below in (edge for edge in self.edges if height[edge] < 0):
                both = self.edges[above] & self.edges[below]
                # Neighbours lie on all walls but two together, and no other edge lies on all of these.
                if both.bit_count() >= len(wall) - 2 and sum(both & on == both for on in self.edges.values()) == 2:
                    new = [height[above] * b - height[below] * a for a, b in zip(above, below, strict=True)]
                    found[tuple(entry // gcd(*new) for entry in new)] = both | last
        self.edges, self.last = found, 2 * last


def sums(longest: Callable[[Vector], tuple[int, Vector]], size: int) -> list[Vector] | None:
    """The sums of which a makespan is the largest, whatever times there are; None where they are many.

    >>> sorted(sums(lambda x: max((_dot(a, x), a) for a in ((2, 1), (1, 2), (1, 1))), 2))
    [(1, 2), (2, 1)]
    """
    cone, found, known = _Cone(size + 1), [longest((1,) * size)[1]], dict[Vector, tuple[int, Vector]]()
    while True:
        cone.cut((*(-count for count in found[-1]), 1))
        if len(cone.edges) > _EDGES:
            return None
        for edge in cone.edges:
            point = edge[:-1]
            if point not in known:
                known[point] = longest(point)
            if known[point][0] > edge[-1]:
                found.append(known[point][1])
                break
        else:
            return _needed(found)


def _needed(found: Sequence[Vector]) -> list[Vector]:
    """The sums that are larger than all others somewhere."""
    kept = [*dict.fromkeys(found)]
    for one in [*kept]:
        others = [other for other in kept if other != one]
        if not larger_somewhere(one, others):
            kept = others
    return kept


def larger_somewhere(one: Vector, others: Iterable[Vector]) -> bool:
    """Whether a sum is larger than all others for some times."""
    cone, walls = _Cone(len(one)), [tuple(a - b for a, b in zip(one, other, strict=True)) for other in others]
    for wall in walls:
        cone.cut(wall)
    inside = tuple(map(sum, zip(*cone.edges, strict=True)))
    return bool(cone.edges) and all(_dot(wall, inside) > 0 for wall in walls)


# -- the sums of all sizes ----------------------------------------------------------------------------------


def _of(schedule: Schedule, letters: str, kinds: int, sends: bool, p: int, m: int) -> list[Vector] | None:
    """The sums for so many ranks and microbatches.

    Of three kinds, the times are that of a stage between, and what the first one and the last one take longer; where
    stages send, that of a stage that does not, and what one that does takes longer.
    """
    orders = schedule.ranks(p, m)
    stages, sending = _boundaries(orders)
    n = len(letters)

    def columns(kind: str, stage: int) -> list[int]:
        mine = [letters.index(letter) for letter in ("BW" if kind == "D" and letters == APART else kind)]
        ends = [k for k, end in ((1, 0), (2, stages - 1)) if stage == end and kinds == 3]
        more = [column + n for column in mine if sends and _sends(letters[column], stage, sending)]
        return [column + k * n for column in mine for k in (0, *ends)] + more

    return sums(_Ways(orders, columns).longest, n * (kinds + sends))


@cache
def _known(schedule: Schedule, letters: str, kinds: int, sends: bool = False, least: int = 2) -> ClosedForm | None:
    """The makespan as the largest of a few sums, or None; of stages that send, of more than two ranks if need be."""
    found = _found(schedule, letters, kinds, sends, least)
    return _known(schedule, letters, kinds, sends, 3) if found is None and sends and least < 3 else found


def _found(schedule: Schedule, letters: str, kinds: int, sends: bool, least: int) -> ClosedForm | None:
    if schedule.chunks is None or not {*schedule.kinds} <= {*letters, "D"}:
        return None
    found: dict[tuple[int, int], list[Vector]] = {}
    for p, m in _SIZES:
        if p < least or m < least - 1:
            continue
        try:
            each = _of(schedule, letters, kinds, sends, p, m)
        except SymcommError:
            continue
        if each is None or len(each) > _MOST:
            return None
        found[p, m] = each
    many = _fitted({at: each for at, each in found.items() if at[1] >= at[0]})
    few = _fitted({at: each for at, each in found.items() if at[1] <= at[0]})
    if not many or not few:
        return None
    conjectured = [
        next(filter(None, (_joined(one, other) for other in few)), [_bounded(*c) for c in one]) for one in many
    ]
    for at, each in found.items():
        there = [tuple(_worth(column, at) for column in one) for one in conjectured]
        if not {*each} <= {*there} or any(larger_somewhere(one, each) for one in there if one not in each):
            return None
    terms = tuple(_form(one, letters, kinds + sends) for one in conjectured)
    least_sizes = (Condition(P, ">=", num(least)), *((Condition(M, ">=", num(2)),) if least > 2 else ()))
    where = (*schedule.conditions, *(least_sizes if kinds == 3 or sends else ()))
    return ClosedForm(terms[0] if len(terms) == 1 else Largest(terms), where, len(found))


Count = tuple[Fraction, Fraction, Fraction]  # of m, of p, and a number
Counted = dict[Form, Fraction]


def _fitted(found: Mapping[tuple[int, int], list[Vector]]) -> list[list[Count]] | None:
    """Each sum of the sizes that have the most of them, its counts in terms of m and p; None where that is wrong."""
    most = max(map(len, found.values()), default=0)
    largest = {at: sorted(each) for at, each in found.items() if len(each) == most}
    sums_of: list[list[Count]] = []
    for k in range(most):
        columns: list[Count] = []
        for column in zip(*(each[k] for each in largest.values()), strict=True):
            solver = Solver()
            sizes = ([Fraction(m), Fraction(p), Fraction(1)] for p, m in largest)
            if not all(solver.add(left, Fraction(right)) for left, right in zip(sizes, column, strict=True)):
                return None
            a, b, c = solver.solution()
            columns.append((a, b, c))
        sums_of.append(columns)
    return sums_of


def _joined(many: Sequence[Count], few: Sequence[Count]) -> list[Counted] | None:
    """A sum for all sizes from those for many and for few microbatches, which are equal where there are p of them."""
    if any(a - x != y - b or c != z for (a, b, c), (x, y, z) in zip(many, few, strict=True)):
        return None
    return [{Largest((M, P)): a - x, M: x, P: b, num(1): c} for (a, b, c), (x, _, _) in zip(many, few, strict=True)]


def _bounded(a: Fraction, b: Fraction, c: Fraction) -> Counted:
    """The count of a sum that few microbatches have not; no stage does anything more often than for each of them."""
    return {M: a, P: b, num(1): c} if a or b or c < 2 else {Smallest((M, num(c))): Fraction(1)}


def _worth(count: Counted, at: tuple[int, int]) -> int:
    known = {"p": Fraction(at[0]), "m": Fraction(at[1])}
    return int(sum((a * forms.evaluate(monomial, known) for monomial, a in count.items()), Fraction(0)))


def _form(found: Sequence[Counted], letters: str, kinds: int) -> Form:
    """A sum of products of sizes and times, of the times of the kinds themselves."""
    columns, n = _columns(letters, kinds), len(letters)
    table: defaultdict[tuple[Form, Form], Fraction] = defaultdict(Fraction)
    for k in range(n):
        for kind in range(kinds):
            column = columns[kinds * k + (kind if kinds == 1 else (1, 0, 2)[kind])]
            for monomial, a in found[k + n * kind].items():
                table[column, monomial] += a
                if kind:  # those of the first and the last stage were counted with all stages
                    table[columns[kinds * k + 1], monomial] -= a
    monomials = dict.fromkeys((*(monomial for _, monomial in table), M, P, num(1)))
    return written_sum(table, columns, [*monomials])
