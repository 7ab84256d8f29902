"""The configurations of a search: shapes of the mesh times microbatches, buckets and sizes of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

from symcomm.core.errors import ValuesError
from symcomm.core.form import Num
from symcomm.core.libraries import np
from symcomm.core.records import dataclass
from symcomm.searching.ranges import divisors
from symcomm.searching.structure import BUCKETS, Draft
from symcomm.searching.template import PIPELINE, composed, shared_axes

MOST_CONFIGURATIONS = 10**8
MOST_SHAPES = 100_000


@dataclass(frozen=True)
class Grid:
    """The configurations of one structure, numbered: each shape of its mesh with each combination of the lists.

    ``shapes`` have one size for each of ``axes``; ``lists`` are names with their values, the last one changes first.
    """

    axes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    lists: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def size(self) -> int:
        """The number of configurations.

        >>> Grid(("data",), ((2,), (4,)), (("microbatches", (1, 2, 4)),)).size
        6
        """
        return len(self.shapes) * prod(len(values) for _, values in self.lists)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The length of each axis of the grid: the shapes of the mesh, then the lists."""
        return (len(self.shapes), *(len(values) for _, values in self.lists))

    def blocks(self, most: int) -> Iterator[tuple[int, int]]:
        """The grid cut into blocks of consecutive configurations, each a part of every axis.

        >>> [*Grid(("data",), ((2,), (4,)), (("microbatches", (1, 2, 4)),)).blocks(2)]
        [(0, 2), (2, 3), (3, 5), (5, 6)]
        """
        inner = 1
        for length in reversed(self.lengths):
            if inner * length > most:
                run = inner * max(1, most // inner)
                for start in range(0, self.size, inner * length):
                    for at in range(start, start + inner * length, run):
                        yield at, min(at + run, start + inner * length)
                return
            inner *= length
        yield 0, self.size

    def block(self, start: int, stop: int) -> tuple[list[tuple[int, int]], dict[str, np.ndarray]]:
        """Of a block: where it begins on each axis and how long it is there; and the sizes along their own axes."""
        lows, highs = (np.unravel_index(n, self.lengths) for n in (start, stop - 1))
        spans = [(int(low), int(high) - int(low) + 1) for low, high in zip(lows, highs, strict=True)]

        def along(axis: int, values: Sequence[int]) -> np.ndarray:
            low, length = spans[axis]
            shape = [length if n == axis else 1 for n in range(len(spans))]
            return np.asarray(values[low : low + length], dtype=np.int64).reshape(shape)

        found = {axis: along(0, [shape[n] for shape in self.shapes]) for n, axis in enumerate(self.axes)}
        return spans, found | {name: along(n, values) for n, (name, values) in enumerate(self.lists, 1)}

    def at(self, index: int) -> dict[str, int]:
        """The sizes of one configuration.

        >>> Grid(("data",), ((2,), (4,)), (("microbatches", (1, 2, 4)),)).at(4)
        {'data': 4, 'microbatches': 2}
        """
        return {name: int(column.flat[0]) for name, column in self.block(index, index + 1)[1].items()}


def shapes(
    devices: int, draft: Draft, allowed: Mapping[str, Sequence[int]], seen: set[object]
) -> tuple[tuple[int, ...], ...]:
    """The shapes of a draft's mesh that use all devices and that no earlier draft has.

    An axis of size one does nothing, so a shape that has one equals the draft without it. A pipeline has two
    stages at least, an axis that several parts share has two ranks, and buckets need data parallelism: without them a
    draft of its own stands. ``seen`` is added to.
    """
    sizes = draft.degrees
    choices: list[tuple[int, ...]] = []
    for axis, size in sizes.items():
        fixed = (int(size.number),) if isinstance(size, Num) else divisors(devices)
        least = 2 if axis in (PIPELINE, *shared_axes(draft.pieces)) else 1
        wanted = set(allowed[axis]) if axis in allowed else None
        choices.append(tuple(n for n in fixed if n >= least and (wanted is None or n in wanted)))
    strategy = composed(draft.pieces)
    rules = () if strategy is None else strategy.rules
    found: list[tuple[int, ...]] = []
    for shape in _factorised(devices, choices):
        used = {axis: n for axis, n in zip(sizes, shape, strict=True) if n > 1}
        if draft.bucketed and not any(rule.axis == "batch" and rule.mesh in used for _, rule in rules):
            continue  # no gradients are reduced between ranks
        kept = tuple(rule for rule in rules if rule[1].mesh in used)
        key = (kept, tuple(sorted(used.items())), draft.recomputation, draft.schedule, draft.bucketed, draft.format)
        if key not in seen:
            seen.add(key)
            found.append(shape)
        if len(found) > MOST_SHAPES:
            raise ValuesError(f"the mesh has more than {MOST_SHAPES:,} shapes", hint="allow fewer sizes of its axes")
    return tuple(found)


def _factorised(n: int, choices: list[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    if not choices:
        if n == 1:
            yield ()
        return
    if len(choices) == 1:
        if n in choices[0]:
            yield (n,)
        return
    for first in choices[0]:
        if n % first == 0:
            for rest in _factorised(n // first, choices[1:]):
                yield (first, *rest)


def grid(
    devices: int, draft: Draft, allowed: Mapping[str, Sequence[int]], lists: Mapping[str, tuple[int, ...]],
    seen: set[object],
) -> Grid:  # fmt: skip
    """The configurations of a draft; raises ``ValuesError`` for more of them than a search takes."""
    kept = tuple((name, values) for name, values in lists.items() if name != BUCKETS or draft.bucketed)
    found = Grid(draft.axes, shapes(devices, draft, allowed, seen), kept)
    if found.size > MOST_CONFIGURATIONS:
        raise ValuesError(f"there are {found.size:,} configurations; a search takes {MOST_CONFIGURATIONS:,}",
                          hint="give fewer sizes, for instance microbatches='1..64*2'")  # fmt: skip
    return found
