"""When the work of a pipeline schedule runs: the orders of the ranks, event by event.

An action starts when its rank is free and what it waits for is there: a forward waits for the forward of the stage
before; a B or D for its own forward and for the B or D of the stage behind; a W for its own B. A result reaches another
rank one hop after it is made; sending occupies no rank. Nothing else is assumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import lcm
from typing import NamedTuple, NoReturn

from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.program.orders import Item, in_flight, written
from symcomm.core.records import dataclass

Time = Sequence[Fraction | int] | Fraction | int  # of every stage, or of each one


class OrderError(StrategyError):
    """An order that cannot be run; ``rank`` and ``position`` say where."""

    def __init__(self, message: str, rank: int, position: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.rank, self.position = rank, position


@dataclass(frozen=True)
class Times:
    """How long actions take, each in one stage: for every stage, or a list in the order of the model."""

    forward: Time = 1
    input_gradient: Time = 1  # a D takes this and the next one together
    weight_gradient: Time = 1
    pair: Fraction | int | None = None  # of an overlapped pair; else the sum of its parts
    hop: Fraction | int = 0  # the latency between two ranks
    overhead: Fraction | int = 0  # added to each item


class Event(NamedTuple):
    """An item on a rank, from ``start`` to ``stop``."""

    rank: int
    item: Item
    start: Fraction
    stop: Fraction


@dataclass(frozen=True)
class Execution:
    """The events of one batch; ``starts`` and ``stops`` are counted in parts of 1/``scale`` of a unit of time."""

    orders: Sequence[Sequence[Item]]
    starts: tuple[list[int], ...]
    stops: tuple[list[int], ...]
    scale: int
    name: str = ""

    @property
    def makespan(self) -> Fraction:
        """From the start of the first action to the end of the last one, on any rank."""
        return max(self.last_end)

    @property
    def busy(self) -> list[Fraction]:
        """How long each rank works."""
        each = zip(self.starts, self.stops, strict=True)
        return [Fraction(sum(stops) - sum(starts), self.scale) for starts, stops in each]

    @property
    def idle(self) -> list[Fraction]:
        """How long each rank does not work, before its first and after its last action, too."""
        return [self.makespan - busy for busy in self.busy]

    @property
    def first_start(self) -> list[Fraction]:
        """When each rank begins."""
        return [Fraction(starts[0], self.scale) for starts in self.starts]

    @property
    def last_end(self) -> list[Fraction]:
        """When each rank is done."""
        return [Fraction(stops[-1], self.scale) for stops in self.stops]

    @property
    def bubble_total(self) -> Fraction:
        """The idle part of the time of all ranks."""
        return sum(self.idle, Fraction(0)) / (len(self.orders) * self.makespan)

    @property
    def bubble_ideal(self) -> Fraction:
        """The idle time of all ranks over the time in which they work."""
        return sum(self.idle, Fraction(0)) / sum(self.busy, Fraction(0))

    @property
    def utilisation(self) -> Fraction:
        """The part of the time of all ranks in which they work."""
        return 1 - self.bubble_total

    @property
    def longest_span(self) -> Fraction:
        """From the first start to the last end of a rank, of the rank for which that is longest."""
        return max(last - first for first, last in zip(self.first_start, self.last_end, strict=True))

    @property
    def bubble_span(self) -> Fraction:
        """The idle part of the longest span: what papers on zero bubbles call their bubble rate."""
        spans = zip(self.first_start, self.last_end, self.busy, strict=True)
        span, busy = max((last - first, busy) for first, last, busy in spans)
        return (span - busy) / span

    @property
    def in_flight(self) -> list[int]:
        """The most microbatches of a chunk that each rank holds at once."""
        return [in_flight(order) for order in self.orders]

    @property
    def stages(self) -> int:
        """The stages of the model."""
        return 1 + max(a.stage for order in self.orders for item in order for a in item)

    @property
    def microbatches(self) -> int:
        """The microbatches of the batch."""
        return 1 + max(a.microbatch for order in self.orders for item in order for a in item)

    def events(self) -> Iterator[Event]:
        """Every item with its times, rank by rank."""
        for rank, (order, starts, stops) in enumerate(zip(self.orders, self.starts, self.stops, strict=True)):
            for item, start, stop in zip(order, starts, stops, strict=True):
                yield Event(rank, item, Fraction(start, self.scale), Fraction(stop, self.scale))

    def messages(self, backward: bool = False) -> Counter[tuple[int, int]]:
        """The activations that pass from a rank to another one, or the gradients that come back."""
        at = {a[1:]: rank for rank, order in enumerate(self.orders) for item in order for a in item if a.kind == "F"}
        step = -1 if backward else 1
        found: Counter[tuple[int, int]] = Counter()
        for order in self.orders:
            for kind, stage, i in (a for item in order for a in item):
                here, there = at[stage, i], at.get((stage + step, i))
                if (kind in "BD" if backward else kind == "F") and there not in (None, here):
                    found[here, there] += 1
        return found


def simulate(orders: Sequence[Sequence[Item]], times: Times | None = None, name: str = "") -> Execution:
    """Runs the orders of the ranks.

    Raises ``ValuesError`` for times that do not fit and ``OrderError`` for what is done twice, for what is needed and
    done nowhere, and for ranks that wait for one another, with the cycle of waits.

    >>> from symcomm.core.program.schedules import find
    >>> made = simulate(find("gpipe").ranks(4, 4), Times(1, 1, 1))
    >>> str(made.makespan), str(made.bubble_total), str(made.bubble_ideal)
    ('21', '3/7', '3/4')
    """
    times = times or Times()
    plan = Needs(orders)
    lengths, scale = plan.lengths(times)
    hop = int(Fraction(times.hop) * scale)
    ends, where = [-1] * len(plan.where), plan.where
    free, at = [0] * len(orders), [0] * len(orders)
    starts: tuple[list[int], ...] = tuple([] for _ in orders)
    stops: tuple[list[int], ...] = tuple([] for _ in orders)
    waiting: dict[int, list[int]] = {}
    ready = [*range(len(orders))]
    while ready:
        rank = ready.pop()
        now, done, needs, makes = free[rank], at[rank], plan.needs[rank], plan.makes[rank]
        length, begun, ended = lengths[rank], starts[rank], stops[rank]
        while done < len(makes):
            start = now
            for key in needs[done]:
                end = ends[key]
                if end < 0:
                    waiting.setdefault(key, []).append(rank)
                    break
                if where[key] != rank:
                    end += hop
                if end > start:
                    start = end
            else:
                now = start + length[done]
                begun.append(start)
                ended.append(now)
                for key in makes[done]:
                    ends[key] = now
                    if key in waiting:
                        ready += waiting.pop(key)
                done += 1
                continue
            break
        free[rank], at[rank] = now, done
    if waiting:
        raise plan.deadlock(at, {rank: key for key, ranks in waiting.items() for rank in ranks})
    return Execution(orders, starts, stops, scale, name)


def once(stages: int, microbatches: int, times: Times, backward: bool = True) -> Times:
    """The same times, checked: not negative, one for every stage or each; raises ``ValuesError``."""
    said = {"forward": times.forward, "input gradient": times.input_gradient, "weight gradient": times.weight_gradient}
    for what, given in said.items():
        listed = [given] if isinstance(given, (int, Fraction)) else [*given]
        if len(listed) not in (1, stages):
            raise ValuesError(
                f"{len(listed)} {what} times are given for {stages} stages", hint="one for each, or one for all"
            )
        if any(time < 0 for time in listed):
            raise ValuesError(f"a {what} time is negative")
    for what, time in (("pair", times.pair or 0), ("hop", times.hop), ("overhead", times.overhead)):
        if time < 0:
            raise ValuesError(f"the time of a {what} is negative")
    return times


class Needs:
    """The needs and results of every item of the orders, by keys that are whole numbers."""

    def __init__(self, orders: Sequence[Sequence[Item]]) -> None:
        self.orders = orders
        if not orders or not all(orders):
            rank = next((r for r, order in enumerate(orders) if not order), 0)
            raise OrderError(f"rank {rank} has nothing to do", rank, 0)
        self.stages = stages = 1 + max(a[1] for order in orders for item in order for a in item)
        self.count = count = 1 + max(a[2] for order in orders for item in order for a in item)
        size = stages * count
        done = {a[1] * count + a[2] for order in orders for item in order for a in item if a[0] == "F"}
        if len(done) < size:  # said before anything as large is made
            stage, i = divmod(next(place for place in range(size) if place not in done), count)
            self._nowhere("F", stage, i)
        self.where = where = [-1] * (3 * size)
        self.needs: list[list[tuple[int, ...]]] = []
        self.makes: list[list[tuple[int, ...]]] = []
        last, block = (stages - 1) * count, {"F": 0, "B": size, "D": size, "W": 2 * size}
        for rank, order in enumerate(orders):
            needs: list[tuple[int, ...]] = []
            makes: list[tuple[int, ...]] = []
            for item in order:
                need: tuple[int, ...] = ()
                make: tuple[int, ...] = ()
                for kind, stage, i in item:
                    place = stage * count + i
                    key = block[kind] + place
                    if kind == "F":
                        need += (key - count,) if stage else ()
                    elif kind == "W":
                        need += (key - size,)
                    else:
                        need += (place, key + count) if place < last else (place,)
                    make += (key, key + size) if kind == "D" else (key,)
                for key in make:
                    if where[key] >= 0:
                        action = next(a for a in item if key % size == a.stage * count + a.microbatch)
                        raise OrderError(f"{action} is done twice", rank, len(makes), "write each action once")
                    where[key] = rank
                needs.append(need)
                makes.append(make)
            self.needs.append(needs)
            self.makes.append(makes)
        self._complete(size)

    def letter(self, kind: str) -> str:
        """The kind as it is written: D where no backward is split."""
        split = kind == "F" or any(a.kind == kind for order in self.orders for item in order for a in item)
        return kind if split else "D"

    def said(self, key: int) -> str:
        """A key as its action is written."""
        kind, place = divmod(key, self.stages * self.count)
        stage, i = divmod(place, self.count)
        return f"{self.letter('FBW'[kind])}{stage}.{i}"

    def _nowhere(self, kind: str, stage: int, i: int) -> NoReturn:
        """Tells of an action that is missing, and of the first one that needs it."""
        needing = {
            "F": (("F", stage + 1), ("B", stage), ("D", stage)),
            "B": (("B", stage - 1), ("D", stage - 1), ("W", stage)),
        }
        name = f"{self.letter(kind)}{stage}.{i}"
        for other, behind in needing.get(kind, ()):
            for rank, order in enumerate(self.orders):
                for n, item in enumerate(order):
                    if (other, behind, i) in item:
                        raise OrderError(f"{name} is nowhere; {other}{behind}.{i} needs it", rank, n)
        rank, n = next(
            ((r, n) for r, order in enumerate(self.orders) for n, item in enumerate(order)
             if ("F", stage, i) in item), (0, 0)
        )  # fmt: skip
        raise OrderError(f"{name} is nowhere", rank, n, f"each stage does it for each of {self.count} microbatches")

    def _complete(self, size: int) -> None:
        """Each microbatch runs backward where one does, on the rank where it ran forward."""
        where, backward = self.where, any(r >= 0 for r in self.where[size:])
        for key in range(size, 3 * size if backward else size):
            if where[key] < 0:
                self._nowhere("FBW"[key // size], *divmod(key % size, self.count))
        for key in range(size, 3 * size if backward else size):
            if where[key] != where[key % size]:
                here, there = where[key], where[key % size]
                raise OrderError(
                    f"{self.said(key)} is on rank {here}, and {self.said(key % size)} on rank {there}", here, 0,
                    "a backward runs where its forward has saved the activations",
                )  # fmt: skip

    def lengths(self, times: Times) -> tuple[list[list[int]], int]:
        """How long every item takes, in whole parts of a unit of time, and how many these are."""
        once(self.stages, self.count, times)

        def listed(given: Time) -> list[Fraction]:
            found = [given] if isinstance(given, (int, Fraction)) else [*given]
            return [Fraction(time) for time in (found * self.stages if len(found) == 1 else found)]

        each = [listed(t) for t in (times.forward, times.input_gradient, times.weight_gradient)]
        more = [Fraction(times.overhead), Fraction(times.hop), *([] if times.pair is None else [Fraction(times.pair)])]
        scale = lcm(*(time.denominator for group in (*each, more) for time in group))
        f, b, w = ([int(time * scale) for time in group] for group in each)
        by_kind = {"F": f, "B": b, "W": w, "D": [x + y for x, y in zip(b, w, strict=True)]}
        over, pair = int(more[0] * scale), None if times.pair is None else int(more[2] * scale)
        return [
            [
                over + (by_kind[item[0][0]][item[0][1]] if len(item) == 1
                        else sum(by_kind[a[0]][a[1]] for a in item) if pair is None else pair)
                for item in order
            ]
            for order in self.orders
        ], scale  # fmt: skip

    def deadlock(self, at: list[int], waits: dict[int, int]) -> OrderError:
        """The ranks that wait for one another, each with what it waits for."""
        path = [min(waits)]
        while (behind := self.where[waits[path[-1]]]) not in path:
            path.append(behind)
        cycle = path[path.index(behind) :]
        turn = cycle.index(min(cycle))
        cycle = cycle[turn:] + cycle[:turn]
        standing = [written([self.orders[rank][at[rank]]]) for rank in cycle]
        if len(cycle) == 1:
            rank, needed = cycle[0], self.said(waits[cycle[0]])
            text = f"{standing[0]} stands before {needed} on rank {rank} and needs it"
            if waits[rank] in self.makes[rank][at[rank]]:
                text = f"{standing[0]} on rank {rank} overlaps {needed} and needs it"
        else:
            told = [
                f"rank {rank} at {stands} needs {self.said(waits[rank])} of rank {self.where[waits[rank]]}"
                for rank, stands in zip(cycle, standing, strict=True)
            ]
            text = "; ".join(told) + f", behind {standing[0]}"
        return OrderError(f"the ranks wait for one another: {text}" if len(cycle) > 1 else text, cycle[0], at[cycle[0]])
