"""Pipeline schedules, event by event: in which order a stage works, and when each piece of work then runs.

A schedule is one record: the order in which every stage takes up its forwards and backwards. When they run follows from
that order, from the data each one waits for, and from the times of the stages; nothing else is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from symcomm.errors import StrategyError, ValuesError, nearest

STAGE_LIMIT, EVENT_LIMIT = 256, 40_000


@dataclass(frozen=True)
class Task:
    """One piece of work: a microbatch passes a chunk of layers, forward or backward. All count from 0."""

    phase: str
    microbatch: int
    chunk: int = 0


@dataclass(frozen=True)
class Event:
    """A task on a stage, from ``start`` to ``stop``."""

    stage: int
    task: Task
    start: Fraction
    stop: Fraction


@dataclass(frozen=True)
class Order:
    """A schedule: how a stage orders its tasks, given its number, the stages, the microbatches and the chunks."""

    name: str
    why: str
    tasks: Callable[[int, int, int, int], list[Task]]
    source: str


@dataclass(frozen=True)
class Schedule:
    """The events of one batch on a pipeline, in the order in which they start."""

    name: str
    stages: int
    microbatches: int
    chunks: int
    events: tuple[Event, ...]

    @property
    def finish(self) -> Fraction:
        """When the last piece of work is done."""
        return max(event.stop for event in self.events)

    def of_stage(self, stage: int) -> tuple[Event, ...]:
        """The events of one stage, in order."""
        return tuple(event for event in self.events if event.stage == stage)

    def busy(self, stage: int) -> Fraction:
        """How long a stage works."""
        return sum((event.stop - event.start for event in self.of_stage(stage)), Fraction(0))

    @property
    def utilisation(self) -> Fraction:
        """The share of the time of all stages in which they work."""
        return sum((self.busy(s) for s in range(self.stages)), Fraction(0)) / (self.stages * self.finish)

    def in_flight(self, stage: int) -> int:
        """The most microbatches (of a chunk each) that a stage has run forward and not yet backward, at any time."""
        most = now = 0
        for event in self.of_stage(stage):
            now += 1 if event.task.phase == "forward" else -1
            most = max(most, now)
        return most


def _gpipe(stage: int, stages: int, microbatches: int, chunks: int) -> list[Task]:
    forward = [Task("forward", m) for m in range(microbatches)]
    return forward + [Task("backward", m) for m in range(microbatches)]


def _one_by_one(forward: list[Task], backward: list[Task], warm: int) -> list[Task]:
    """``warm`` forwards, then a forward and a backward in turn, then the backwards that are left."""
    warm = min(warm, len(forward))
    found = forward[:warm]
    for one, back in zip(forward[warm:], backward, strict=False):
        found += [one, back]
    return found + backward[len(forward) - warm :]


def _1f1b(stage: int, stages: int, microbatches: int, chunks: int) -> list[Task]:
    forward = [Task("forward", m) for m in range(microbatches)]
    return _one_by_one(forward, [Task("backward", m) for m in range(microbatches)], stages - stage - 1)


def _interleaved(stage: int, stages: int, microbatches: int, chunks: int) -> list[Task]:
    forward, backward = [], []
    for n in range(microbatches * chunks):
        # The stages take turns: as many microbatches as stages pass one chunk before the next chunk has its turn.
        turn, place = divmod(n, stages * chunks)
        chunk, microbatch = place // stages, turn * stages + place % stages
        forward.append(Task("forward", microbatch, chunk))
        backward.append(Task("backward", microbatch, chunks - 1 - chunk))
    return _one_by_one(forward, backward, 2 * (stages - stage - 1) + (chunks - 1) * stages)


SCHEDULES: dict[str, Order] = {
    order.name: order
    for order in (
        Order("gpipe", "All microbatches run forward before the first one runs backward: all of them are in flight.",
              _gpipe, "Huang et al., arXiv 1811.06965"),
        Order("1f1b", "A stage runs one forward and one backward in turn: as many microbatches are in flight as stages "
              "follow.", _1f1b, "Narayanan et al., PipeDream, SOSP 2019"),
        Order("interleaved", "A rank holds several chunks of layers and runs one forward and one backward in turn.",
              _interleaved, "Narayanan et al., arXiv 2104.04473, section 2.2"),
    )
}  # fmt: skip


def schedule(
    name: str, stages: int, microbatches: int, forward: Sequence[Fraction | int] | Fraction | int = 1,
    backward: Sequence[Fraction | int] | Fraction | int = 2, chunks: int = 1,
) -> Schedule:  # fmt: skip
    """The events of a schedule; ``forward`` and ``backward`` are times of one microbatch, for all stages or for each.

    With ``chunks`` (of the layers of a stage, for ``interleaved``) a stage's time is that of all its chunks together. A
    backward time of 0 leaves the backward pass out. Raises ``ValuesError`` for an unknown schedule and sizes that are
    not positive or too many, ``StrategyError`` for chunks where a schedule has none or that do not fit.

    >>> made = schedule("gpipe", stages=4, microbatches=4, forward=1, backward=0)
    >>> str(made.finish), str(made.utilisation)
    ('7', '4/7')
    >>> str(schedule("1f1b", stages=4, microbatches=8, forward=1, backward=2).finish)
    '33'
    """
    if name not in SCHEDULES:
        raise ValuesError(f"unknown schedule '{name[:40]}'", hint=nearest(name, [*SCHEDULES]))
    for what, size in (("stages", stages), ("microbatches", microbatches), ("chunks", chunks)):
        if size < 1:
            raise ValuesError(f"{what} = {size}: at least one is needed")
    if stages > STAGE_LIMIT or 2 * stages * microbatches * chunks > EVENT_LIMIT:
        raise ValuesError(
            f"{stages} stages and {microbatches} microbatches are too many to be followed one by one",
            hint=f"at most {STAGE_LIMIT} stages and {EVENT_LIMIT:,} pieces of work",
        )
    if chunks > 1 and name != "interleaved":
        raise StrategyError(f"the schedule {name} has no chunks", hint="interleaved has")
    if name == "interleaved" and microbatches % stages:
        raise StrategyError(
            f"{microbatches} microbatches are no multiple of {stages} stages",
            hint="the interleaved schedule passes as many microbatches as there are stages at a time",
        )
    times = {"forward": _times(forward, stages, "forward"), "backward": _times(backward, stages, "backward")}
    if not any(times["forward"]):
        raise ValuesError("the forward pass takes no time", hint="give each stage a positive time")
    orders = [SCHEDULES[name].tasks(s, stages, microbatches, chunks) for s in range(stages)]
    if not any(times["backward"]):
        orders = [[task for task in order if task.phase == "forward"] for order in orders]
    return Schedule(name, stages, microbatches, chunks, _run(orders, times, stages, chunks))


def _times(given: Sequence[Fraction | int] | Fraction | int, stages: int, what: str) -> list[Fraction]:
    listed = [given] * stages if isinstance(given, (int, Fraction)) else [*given]
    if len(listed) != stages:
        raise ValuesError(
            f"{len(listed)} {what} times are given for {stages} stages", hint="one for each, or one for all"
        )
    found = [Fraction(time) for time in listed]
    if any(time < 0 for time in found):
        raise ValuesError(f"a {what} time is negative")
    return found


def _needed(stage: int, task: Task, stages: int, chunks: int) -> tuple[tuple[int, Task], ...]:
    """What has to be done before a task: the same microbatch, one place earlier on its way."""
    m, c = task.microbatch, task.chunk
    if task.phase == "forward":
        if stage:
            return ((stage - 1, task),)
        return ((stages - 1, Task("forward", m, c - 1)),) if c else ()
    if stage < stages - 1:
        return ((stage + 1, task),)
    if c < chunks - 1:
        return ((0, Task("backward", m, c + 1)),)
    return ((stage, Task("forward", m, c)),)


def _run(orders: list[list[Task]], times: dict[str, list[Fraction]], stages: int, chunks: int) -> tuple[Event, ...]:
    """Every task starts as soon as its stage is free and what it needs is there, in its stage's order."""
    done: dict[tuple[int, Task], Fraction] = {}
    free, at = [Fraction(0)] * stages, [0] * stages
    events: list[Event] = []
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while at[stage] < len(order):
                task = order[at[stage]]
                needed = _needed(stage, task, stages, chunks)
                if not all(one in done for one in needed):
                    break
                start = max([free[stage], *(done[one] for one in needed)])
                stop = start + times[task.phase][stage] / chunks
                events.append(Event(stage, task, start, stop))
                done[stage, task] = free[stage] = stop
                at[stage] += 1
                moved = True
    if any(n < len(order) for n, order in zip(at, orders, strict=True)):
        raise StrategyError("the schedule waits for itself")  # no order above does
    return tuple(sorted(events, key=lambda e: (e.start, e.stage, e.stop)))
