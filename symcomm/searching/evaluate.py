"""Time, memory and feasibility of many configurations at once, and the best of them.

Numbers here are float64, and are compared as if they had 12 digits, so that rounding neither makes nor breaks a tie;
what a search reports is computed again exactly. What must divide is checked with whole numbers, and a memory within a
billionth of the capacity is compared exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import add, mul
from typing import TYPE_CHECKING, Any

from symcomm import form as forms
from symcomm.collectives.sweep import ceil_log2, floor_log2
from symcomm.errors import ValuesError
from symcomm.form import (
    Ceiling,
    Floor,
    Form,
    Largest,
    Logarithm,
    Num,
    Power,
    Product,
    Ratio,
    Root,
    Smallest,
    Sym,
    Total,
)
from symcomm.searching.space import Grid
from symcomm.searching.structure import Core

if TYPE_CHECKING:
    import numpy as np

CHUNK = 2**17  # configurations evaluated together: a megabyte an array
_BITS = 40  # of a number that is compared: 12 digits
_COUNTS = (Sym, Total, Product, Power)  # what keeps whole numbers whole


@dataclass(frozen=True)
class Task:
    """Some configurations of one structure: a unit of work that another process can do."""

    number: int
    core: Core
    names: tuple[tuple[str, str], ...]  # which symbol each axis or list of the grid is
    grid: Grid
    start: int
    stop: int
    capacity: Fraction
    top: int


@dataclass(frozen=True)
class Points:
    """Configurations by time, memory, structure and number in its grid, each a column."""

    time: np.ndarray
    memory: np.ndarray
    structure: np.ndarray
    index: np.ndarray

    def take(self, chosen: Any) -> Points:
        """Some of them."""
        return Points(self.time[chosen], self.memory[chosen], self.structure[chosen], self.index[chosen])


@dataclass(frozen=True)
class Part:
    """What is known of some configurations: how many, why some cannot be, and the best ones.

    ``refused`` counts, for each structure, what does not divide by constraint, then what has no closed form.
    """

    tried: int
    fits: int
    too_large: int
    refused: tuple[tuple[int, tuple[int, ...]], ...]
    front: Points
    top: Points
    near: Points


def evaluate(task: Task) -> Part:
    """Evaluates a unit of work."""
    import numpy as np

    columns = task.grid.columns(task.start, task.stop)
    sizes = {symbol: columns[name] for name, symbol in task.names}
    count = task.stop - task.start
    divides = np.ones(count, dtype=bool)
    refused: list[int] = []
    for rule in task.core.constraints:
        fails = np.asarray(arrays(rule.size, sizes, whole=True) % arrays(rule.divisor, sizes, whole=True) != 0)
        refused.append(int(np.count_nonzero(divides & fails)))
        divides &= np.logical_not(fails)
    index = np.flatnonzero(divides)
    known: dict[str, Any] = {name: column[index].astype(np.float64) for name, column in sizes.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        for name, form in task.core.steps:
            known[name] = arrays(form, known)
    time, memory = (np.broadcast_to(known[name], index.shape) for name in ("time", "memory"))
    sound = np.isfinite(time) & (time > 0)
    refused.append(int(np.count_nonzero(~sound)))
    if not sound.all():
        index, time, memory = index[sound], time[sound], memory[sound]
    fits = _fits(task, sizes, index, memory)
    every = Points(rounded(time), rounded(memory), np.full(index.shape, task.number), index + task.start)
    good, large = every.take(fits), every.take(~fits)
    ordered = good.take(_order(good))
    return Part(
        count, len(good.index), len(large.index), ((task.number, tuple(refused)),),
        ordered.take(pareto(ordered.time, ordered.memory)), ordered.take(slice(task.top)),
        nearest(large, task.top),
    )  # fmt: skip


def merged(parts: Sequence[Part], top: int) -> Part:
    """What is known of several parts together."""
    refused: dict[int, tuple[int, ...]] = {}
    for part in parts:
        for number, counts in part.refused:
            known = refused.get(number, (0,) * len(counts))
            refused[number] = tuple(a + b for a, b in zip(known, counts, strict=True))
    front, best = _joined([p.front for p in parts]), _joined([p.top for p in parts])
    front, best = front.take(_order(front)), best.take(_order(best))
    return Part(
        sum(p.tried for p in parts), sum(p.fits for p in parts), sum(p.too_large for p in parts),
        tuple(sorted(refused.items())), front.take(pareto(front.time, front.memory)), best.take(slice(top)),
        nearest(_joined([p.near for p in parts]), top),
    )  # fmt: skip


def pareto(time: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Which of some points, in order of time and then memory, no other point beats in both; of equal ones the first.

    >>> import numpy as np
    >>> pareto(np.array([1., 1., 2., 3.]), np.array([5., 6., 5., 4.])).tolist()
    [True, False, False, True]
    """
    import numpy as np

    if not len(memory):
        return np.zeros(0, dtype=bool)
    before = np.concatenate(([np.inf], np.minimum.accumulate(memory)[:-1]))
    return np.asarray(memory < before)


def nearest(points: Points, most: int) -> Points:
    """The points with the least memory, in order."""
    import numpy as np

    if len(points.memory) > most:
        limit = np.partition(points.memory, most - 1)[most - 1]
        points = points.take(points.memory <= limit)
    order = np.lexsort((points.index, points.structure, points.time, points.memory))
    return points.take(order[:most])


def rounded(x: np.ndarray) -> np.ndarray:
    """Numbers to 40 bits: equal where they differ by rounding only."""
    import numpy as np

    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.round(np.ldexp(mantissa, _BITS)), exponent - _BITS))


def _order(points: Points) -> np.ndarray:
    import numpy as np

    return np.lexsort((points.index, points.structure, points.memory, points.time))


def _joined(points: Sequence[Points]) -> Points:
    import numpy as np

    return Points(*(np.concatenate([getattr(p, name) for p in points]) for name in Points.__dataclass_fields__))


def _fits(task: Task, sizes: dict[str, np.ndarray], index: np.ndarray, memory: np.ndarray) -> np.ndarray:
    import numpy as np

    limit = float(task.capacity)
    fits = np.asarray(memory <= limit)
    close = np.flatnonzero(np.abs(memory - limit) <= 1e-9 * limit)
    decided: dict[tuple[int, ...], bool] = {}
    for at in close:
        key = tuple(int(sizes[name][index[at]]) for name in task.core.variables)
        if key not in decided:
            values = {name: Fraction(n) for name, n in zip(task.core.variables, key, strict=True)}
            for name, form in task.core.steps:
                values[name] = forms.evaluate(form, values)
            decided[key] = values["memory"] <= task.capacity
        fits[at] = decided[key]
    return fits


def arrays(form: Form, columns: Mapping[str, Any], whole: bool = False) -> Any:
    """A form where each name has an array; numbers become floats, or stay whole ones.

    >>> import numpy as np
    >>> arrays(forms.Largest((forms.num(3), forms.Sym("k"))), {"k": np.array([1.0, 5.0])}).tolist()
    [3.0, 5.0]
    """
    import numpy as np

    def go(f: Form) -> Any:
        match f:
            case Num(number):
                return int(number) if whole else float(number)
            case Sym(name):
                return columns[name]
            case Total():
                return reduce(add, map(go, f.terms))
            case Product():
                return reduce(mul, map(go, f.factors))
            case Ratio(top, bottom):
                return np.divide(go(top), go(bottom))
            case Power(base, exponent):
                return go(base) ** go(exponent)
            case Root(inside):
                return np.sqrt(go(inside))
            # The quotient of two rounded logarithms may be 29.000...4: a binary exponent is exact.
            case Ceiling(Logarithm(inside, 2)):
                return ceil_log2(go(inside))
            case Floor(Logarithm(inside, 2)):
                return floor_log2(go(inside))
            case Ceiling(inside):
                return np.ceil(go(inside))
            case Floor(inside):
                return np.floor(go(inside))
            case Largest():
                return reduce(np.maximum, map(go, f.choices))
            case Smallest():
                return reduce(np.minimum, map(go, f.choices))
            case Logarithm(inside, base):
                return np.log(go(inside)) / (np.log(float(base)) if base else 1.0)
        raise TypeError(f"no array for {type(f).__name__}")

    return go(form)


def check_whole(core: Core, grid: Grid, names: tuple[tuple[str, str], ...]) -> None:
    """Raises ``ValuesError`` where what must divide is no whole number, or too large a one to count with."""
    if not grid.size:
        return
    largest: dict[str, Fraction] = {}
    table = list(zip(*grid.shapes, strict=True))
    for name, symbol in names:
        values = table[grid.axes.index(name)] if name in grid.axes else dict(grid.lists)[name]
        largest[symbol] = Fraction(max(values))
    for c in core.constraints:
        for form in (c.size, c.divisor):
            value = forms.evaluate(form, largest)
            counts = (
                f.number.denominator == 1 if isinstance(f, Num) else isinstance(f, _COUNTS) for f in forms.walk(form)
            )
            if not all(counts):
                raise ValuesError(f"{c.label}: {value} is no whole number")
            if value >= 2**62:
                raise ValuesError(f"{c.label}: {value} is too large to search with")
