"""The amounts and feasibility of many configurations at once, and the best of them.

A unit of work is a block of a grid. A name is an array along its own axis of the block, and each part of a formula is
worked out along the axes that it depends on only. Numbers here are float64, and are compared as if they had 12 digits,
so that rounding neither makes nor breaks a tie; what a search reports is computed again exactly. What must divide is
checked with whole numbers, and what is within a billionth of its limit is compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache, lru_cache, partial, reduce
from operator import add, mul
from typing import Any

from symcomm.core import form as forms
from symcomm.core.collected import Monomial, Terms
from symcomm.core.errors import ValuesError
from symcomm.core.libraries import np
from symcomm.core.records import ByIdentity, dataclass
from symcomm.searching.space import Grid
from symcomm.searching.structure import Core, Limit, Objective

CHUNK = 2**18  # configurations evaluated together: two megabytes an array
_BITS = 40  # of a number that is compared: 12 digits
_MARGIN = 1 + 2.0 ** (2 - _BITS)  # what is larger by this much is larger when both are rounded
_FEW = 2**10  # points that may as well be sorted
_RUN = 2**8  # values of which the least is looked for together


@dataclass(frozen=True)
class EvaluationTask:
    """A block of the configurations of one structure: a unit of work that another process can do."""

    number: int
    core: Core
    names: tuple[tuple[str, str], ...]  # which symbol each axis or list of the grid is
    grid: Grid
    start: int
    stop: int
    objective: Objective
    top: int


@dataclass(frozen=True)
class Points:
    """Configurations by the two amounts of a front, structure and number in its grid, each a column.

    ``over`` is the largest of their limited amounts, each over its limit.
    """

    first: np.ndarray
    second: np.ndarray
    over: np.ndarray
    structure: np.ndarray
    index: np.ndarray

    def take(self, chosen: Any) -> Points:
        """Some of them."""
        return Points(*(getattr(self, name)[chosen] for name in Points.__dataclass_fields__))


@dataclass(frozen=True)
class Part:
    """A summary of some configurations: how many, why some cannot be, and the best ones.

    ``too_large`` counts by limit. ``refused`` counts, for each structure, what does not divide by constraint, then what
    has no closed form.
    """

    tried: int
    fits: int
    too_large: tuple[int, ...]
    refused: tuple[tuple[int, tuple[int, ...]], ...]
    front: Points
    top: Points
    near: Points


def evaluate(task: EvaluationTask) -> Part:
    """Evaluates a unit of work."""
    first, columns = task.grid.block(task.start, task.stop)
    sizes = {symbol: columns[name] for name, symbol in task.names}
    count = task.stop - task.start
    divides = np.ones((1,) * len(first), dtype=bool)
    refused: list[int] = []
    for rule in task.core.constraints:
        worth = rule.collected.evaluated(sizes, _whole, arrays)
        fails = worth["size"] % worth["divisor"] != 0
        failing = divides & fails
        refused.append(int(np.count_nonzero(failing)) * count // failing.size)
        divides = divides & ~fails
    # What no configuration can have is left out of the block.
    places: list[np.ndarray] = []
    for axis, (start, length) in enumerate(first):
        keep = np.arange(length)
        if divides.shape[axis] > 1:
            keep = np.flatnonzero(divides.any(axis=tuple(n for n in range(divides.ndim) if n != axis)))
            divides = divides.take(keep, axis)
            sizes = {name: c.take(keep, axis) if c.shape[axis] > 1 else c for name, c in sizes.items()}
        places.append(keep + start)
    shape = tuple(map(len, places))
    known = {name: column.astype(np.float64) for name, column in sizes.items()}
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = task.core.collected.evaluated(known, summed, arrays)
    limits = task.objective.limits
    amounts = {name: np.broadcast_to(found[name], shape).ravel() for name in task.objective.amounts()}
    time, second = (amounts[name] for name in task.objective.front)
    over = np.maximum.reduce([amounts[one.amount] / float(one.most) for one in limits])
    divides = np.broadcast_to(divides, shape).ravel()
    sound = divides & np.isfinite(time) & (time > 0)
    refused.append(int(np.count_nonzero(divides)) - int(np.count_nonzero(sound)))

    def points(some: np.ndarray) -> Points:
        at = np.zeros(len(some), dtype=np.int64)
        for along, place, length in zip(np.unravel_index(some, shape) if len(some) else (), places, task.grid.lengths,
                                        strict=False):  # fmt: skip
            at = at * length + place[along]
        one, two, most = (rounded(amount[some]) for amount in (time, second, over))
        return Points(one, two, most, np.full(len(some), task.number), at)

    fits, too_large = sound, list[int]()
    for one in limits:
        kept = fits & _fits(task, sizes, shape, amounts[one.amount], fits, one)
        too_large.append(int(np.count_nonzero(fits & ~kept)))
        fits = kept
    inside = np.flatnonzero(fits)
    large = sound & ~fits
    chosen = np.zeros(len(inside), dtype=bool)
    chosen[undominated(time[inside], second[inside])] = chosen[_smallest(time[inside], task.top)] = True
    best = points(inside[chosen])
    ordered = best.take(_order(best))
    outside = _smallest(np.where(large, over, np.inf), min(task.top, int(np.count_nonzero(large))))
    return Part(
        count, len(inside), tuple(too_large), ((task.number, tuple(refused)),),
        ordered.take(pareto(ordered.first, ordered.second)), ordered.take(slice(task.top)),
        nearest(points(outside), task.top),
    )  # fmt: skip


def merged(parts: Sequence[Part], top: int) -> Part:
    """Several summaries as one."""
    refused: dict[int, tuple[int, ...]] = {}
    for part in parts:
        for number, counts in part.refused:
            known = refused.get(number, (0,) * len(counts))
            refused[number] = tuple(a + b for a, b in zip(known, counts, strict=True))
    front, best = _joined([p.front for p in parts]), _joined([p.top for p in parts])
    front, best = front.take(_order(front)), best.take(_order(best))
    return Part(
        sum(p.tried for p in parts), sum(p.fits for p in parts),
        tuple(map(sum, zip(*(p.too_large for p in parts), strict=True))),
        tuple(sorted(refused.items())), front.take(pareto(front.first, front.second)), best.take(slice(top)),
        nearest(_joined([p.near for p in parts]), top),
    )  # fmt: skip


def pareto(time: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """The points that no other one beats in time and memory, in this order; of equal ones the first.

    >>> import numpy as np
    >>> pareto(np.array([1., 1., 2., 3.]), np.array([5., 6., 5., 4.])).tolist()
    [True, False, False, True]
    """
    if not len(memory):
        return np.zeros(0, dtype=bool)
    before = np.concatenate(([np.inf], np.minimum.accumulate(memory)[:-1]))
    return np.asarray(memory < before)


def undominated(time: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Points among which are all that no other point beats in both: those that a few good ones do not beat.

    >>> import numpy as np
    >>> undominated(np.arange(1.0, 5000.0), np.arange(1.0, 5000.0)).tolist()
    [0]
    """
    left: np.ndarray | None = None
    for weight in (1.0, 4.0, 0.25, 16.0, 0.0625):
        if len(time) <= _FEW:
            break
        best = np.argmin(time * memory if weight == 1 else np.log(time) + weight * np.log(memory))
        t, m = time[best], memory[best]
        keep = np.flatnonzero((time < t * _MARGIN) | (memory < m))
        time, memory = time[keep], memory[keep]
        again = np.flatnonzero((memory < m * _MARGIN) | (time < t))
        time, memory, keep = time[again], memory[again], keep[again]
        left = keep if left is None else left[keep]
    return np.arange(len(time)) if left is None else left


def _smallest(values: np.ndarray, most: int) -> np.ndarray:
    """Where the smallest values are, and those that are as small when they are rounded."""
    if not 0 < most < len(values):
        return np.arange(min(most, len(values)))
    if len(values) <= _RUN * most:
        return np.flatnonzero(values <= np.partition(values, most - 1)[most - 1] * _MARGIN)
    # So many runs of values have one that is no larger than this bound: only what is as small can be among them.
    least = values[: len(values) // _RUN * _RUN].reshape(-1, _RUN).min(axis=1)
    some = np.flatnonzero(values <= np.partition(least, most - 1)[most - 1] * _MARGIN)
    found = values[some]
    return np.asarray(some[found <= np.partition(found, most - 1)[most - 1] * _MARGIN])


def nearest(points: Points, most: int) -> Points:
    """The points that are over their limits by the least, in order."""
    order = np.lexsort((points.index, points.structure, points.first, points.over))
    return points.take(order[:most])


def rounded(x: np.ndarray) -> np.ndarray:
    """Numbers to 40 bits: equal where they differ by rounding only."""
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, _BITS)), exponent - _BITS))


def _order(points: Points) -> np.ndarray:
    return np.lexsort((points.index, points.structure, points.second, points.first))


def _joined(points: Sequence[Points]) -> Points:
    return Points(*(np.concatenate([getattr(p, name) for p in points]) for name in Points.__dataclass_fields__))


def _fits(
    task: EvaluationTask, sizes: Mapping[str, np.ndarray], shape: tuple[int, ...], amount: np.ndarray,
    sound: np.ndarray, one: Limit,
) -> np.ndarray:  # fmt: skip
    limit = float(one.most)
    fits, nearly = (np.asarray(amount <= limit * (1 + less)) for less in (-1e-9, 1e-9))
    if np.count_nonzero(fits) == np.count_nonzero(nearly):
        return fits
    close = np.flatnonzero(sound & nearly & ~fits)
    decided: dict[tuple[int, ...], bool] = {}
    for at in close:
        place = np.unravel_index(at, shape)
        key = tuple(int(np.broadcast_to(sizes[name], shape)[place]) for name in task.core.variables)
        if key not in decided:
            values = {name: Fraction(n) for name, n in zip(task.core.variables, key, strict=True)}
            decided[key] = task.core.collected.at(values)[one.amount] <= one.most
        fits[at] = decided[key]
    return fits


def _whole(terms: Terms, columns: Mapping[str, Any]) -> Any:
    """A sum with whole coefficients, in whole numbers."""
    parts = [reduce(mul, (columns[name] ** p for name, p in m), np.int64(int(c))) for m, c in terms.items()]
    return reduce(add, parts, np.int64(0))


def summed(terms: Terms, columns: Mapping[str, Any]) -> Any:
    """A sum of monomials where each name has an array along axes of its own.

    What shares a factor is added before it is multiplied: first along the shortest axes, on all of them last.

    >>> import numpy as np
    >>> k, m = np.array([[1.0], [2.0]]), np.array([[4.0, 8.0]])
    >>> summed({(("k", 1), ("m", -1)): Fraction(8), (("m", -1),): Fraction(8)}, {"k": k, "m": m}).tolist()
    [[4.0, 2.0], [6.0, 3.0]]
    """
    names = {name: None for monomial in terms for name, _ in monomial}
    plan = _plan(ByIdentity(terms), tuple((name, _axes(columns[name])) for name in names))
    return _added(plan, columns, {})


def _added(part: Plan, columns: Mapping[str, Any], powers: dict[Monomial, Any]) -> Any:
    """A part of a plan; ``powers`` are those that were worked out."""
    if isinstance(part, float):
        return part
    found: Any = None
    for key, inner in part:
        term = _added(inner, columns, powers)
        if key:
            if key not in powers:
                powers[key] = reduce(mul, (columns[n] if p == 1 else columns[n] ** float(p) for n, p in key))
            term = term * powers[key]
        found = term if found is None else found + term
    return found


Plan = float | tuple[tuple[Monomial, "Plan"], ...]  # a number, or factors each with what it multiplies


@lru_cache(maxsize=1024)
def _plan(held: ByIdentity[Terms], axes: tuple[tuple[str, tuple[int, ...]], ...]) -> Plan:
    """In which order a sum is worked out, where each name has values along some axes."""
    along = dict(axes)

    def go(left: Terms) -> Plan:
        groups: dict[tuple[int, ...], dict[Monomial, Terms]] = {}
        for where in {along[name] for monomial in left for name, _ in monomial}:
            mine = groups.setdefault(where, {})
            for monomial, coefficient in left.items():
                key = tuple(pair for pair in monomial if along[pair[0]] == where)
                mine.setdefault(key, {})[tuple(pair for pair in monomial if pair not in key)] = coefficient
        if not groups:
            return float(sum(left.values()))
        # Outermost: what depends on several axes, then the axis with the fewest different powers.
        chosen = groups[min(groups, key=lambda where: (-len(where), len(groups[where]), where))]
        return tuple((key, go(rest)) for key, rest in chosen.items())

    return go(held.it)


def _axes(column: Any) -> tuple[int, ...]:
    return tuple(n for n, length in enumerate(getattr(column, "shape", ())) if length > 1)


def arrays(form: forms.Form, columns: Mapping[str, Any]) -> Any:
    """The form of a node where each name has an array.

    >>> import numpy as np
    >>> arrays(forms.Largest((forms.Sym("1"), forms.Sym("k"))), {"1": 3.0, "k": np.array([1.0, 5.0])}).tolist()
    [3.0, 5.0]
    """
    return _arrays().named(lambda sym, go: columns[sym.name])(form)


@cache
def _arrays() -> forms.Algebra[Any]:
    def called(rule: forms.NumericFunction, arguments: list[Any]) -> Any:
        each = np.broadcast_arrays(*arguments)
        return rule.numbers([a.ravel() for a in each]).reshape(each[0].shape)

    # The quotient of two rounded logarithms may be 29.000...4: a binary exponent is exact.
    def rounding(plain: Callable[[Any], Any], exact: Callable[[Any], Any]) -> forms.Rule[Any]:
        def of(form: Any, go: Callable[[forms.Form], Any]) -> Any:
            match form.inside:
                case forms.Logarithm(inside, 2):
                    return exact(go(inside))
            return plain(go(form.inside))

        return of

    return forms.Algebra({**forms.of_parts({
        forms.Power: pow, forms.Root: np.sqrt, forms.BinaryOnes: binary_ones, forms.Applied: called,
        forms.Largest: partial(reduce, np.maximum), forms.Smallest: partial(reduce, np.minimum),
        forms.Logarithm: lambda inside, base: np.log(inside) / (np.log(float(base)) if base else 1.0),
    }), forms.Ceiling: rounding(np.ceil, ceil_log2), forms.Floor: rounding(np.floor, floor_log2)},
        forms.refused("array"))  # fmt: skip


def floor_log2(x: Any) -> Any:
    _, exponent = np.frexp(x)
    return exponent - 1.0


def ceil_log2(x: Any) -> Any:
    fraction, exponent = np.frexp(x)
    return exponent - (fraction == 0.5)


def binary_ones(x: Any) -> Any:
    """The ones in the binary digits of all whole numbers below x together."""
    found, bit = np.zeros_like(np.asarray(x, dtype=np.float64)), 1.0
    while (bit < x).any() if isinstance(x, np.ndarray) else bit < x:
        found = found + x // (2 * bit) * bit + np.maximum(0, x % (2 * bit) - bit)
        bit *= 2
    return found


def check_whole(core: Core, grid: Grid, names: tuple[tuple[str, str], ...]) -> None:
    """Raises ``ValuesError`` where what must divide is no whole number, or too large a one to count with."""
    if not grid.size:
        return
    table = list(zip(*grid.shapes, strict=True))
    largest = {
        symbol: Fraction(max(table[grid.axes.index(name)] if name in grid.axes else dict(grid.lists)[name]))
        for name, symbol in names
    }
    for c in core.constraints:
        worth = c.collected.at(largest)
        for name, terms in c.collected.sums:
            value = worth[name]
            if any(n.denominator != 1 or any(power < 0 for _, power in m) for m, n in terms.items()):
                raise ValuesError(f"{c.label}: {value} is no whole number")
            if value >= 2**62:
                raise ValuesError(f"{c.label}: {value} is too large to search with")
