"""The events of pipeline schedules, against a simulation of messages in unit steps and the closed forms of papers."""

from __future__ import annotations

from collections import Counter, deque
from fractions import Fraction
from itertools import pairwise

import pytest

from symcomm.accounting import Accounting
from symcomm.errors import SymcommError
from symcomm.exam.deriving import derive, no_model
from symcomm.parallel.schedule import SCHEDULES, Schedule, Task, schedule

SIZES = [(1, 1), (1, 5), (2, 3), (3, 2), (4, 4), (4, 8), (5, 13), (8, 8)]


def simulated(orders: list[list[Task]], forward: list[int], backward: list[int], chunks: int) -> int:
    """The finishing time, tick by tick: a stage has an inbox of messages and begins its next task when it is there."""
    stages = len(orders)
    inbox: list[set[Task]] = [set() for _ in range(stages)]
    waiting = [deque(order) for order in orders]
    running: list[tuple[Task, int] | None] = [None] * stages
    made: list[set[Task]] = [set() for _ in range(stages)]
    clock = 0
    while any(waiting) or any(running):
        for stage in range(stages):
            current = running[stage]
            if current is not None and current[1] == clock:
                task = current[0]
                running[stage] = None
                made[stage].add(task)
                if task.phase == "forward":
                    last = stage == stages - 1
                    if not last:
                        inbox[stage + 1].add(task)
                    elif task.chunk < chunks - 1:
                        inbox[0].add(Task("forward", task.microbatch, task.chunk + 1))
                    else:
                        inbox[stage].add(Task("backward", task.microbatch, task.chunk))
                elif stage:
                    inbox[stage - 1].add(task)
                elif task.chunk:
                    inbox[stages - 1].add(Task("backward", task.microbatch, task.chunk - 1))
        for stage in range(stages):
            if running[stage] is None and waiting[stage]:
                task = waiting[stage][0]
                enters = task.phase == "forward" and stage == 0 and task.chunk == 0
                if enters or task in inbox[stage]:
                    assert task.phase == "forward" or Task("forward", task.microbatch, task.chunk) in made[stage]
                    waiting[stage].popleft()
                    length = (forward if task.phase == "forward" else backward)[stage]
                    running[stage] = (task, clock + length)
        clock += 1
        assert clock < 100_000, "the stages wait for one another"
    return clock - 1


def checked(made: Schedule, both: bool = True) -> None:
    """Every task once, no two at a time on a stage, and nothing before what it needs."""
    stops = {(e.stage, e.task): e.stop for e in made.events}
    assert len(stops) == len(made.events) == (2 if both else 1) * made.stages * made.microbatches * made.chunks
    for stage in range(made.stages):
        mine = made.of_stage(stage)
        for one, two in pairwise(mine):
            assert one.stop <= two.start
    for e in made.events:
        m, c, last = e.task.microbatch, e.task.chunk, made.stages - 1
        if e.task.phase == "forward":
            before = (e.stage - 1, e.task) if e.stage else (last, Task("forward", m, c - 1)) if c else None
        elif e.stage < last:
            before = (e.stage + 1, e.task)
        else:
            before = (0, Task("backward", m, c + 1)) if c < made.chunks - 1 else (last, Task("forward", m, c))
        assert before is None or stops[before] <= e.start


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_even_stages_finish_after_m_plus_p_minus_one_slots(name: str, p: int, m: int) -> None:
    made = schedule(name, p, m, forward=1, backward=2)
    checked(made)
    assert made.finish == 3 * (m + p - 1)
    assert made.utilisation == Fraction(m, m + p - 1)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 2, 2), (2, 6, 3), (4, 4, 2), (4, 8, 2), (4, 12, 3), (8, 16, 4)])
def test_the_bubble_of_an_interleaved_schedule_is_smaller_by_the_number_of_chunks(p: int, m: int, v: int) -> None:
    made = schedule("interleaved", p, m, forward=v, backward=2 * v, chunks=v)
    checked(made)
    assert made.finish == 3 * v * m + 3 * (p - 1)  # arXiv 2104.04473, section 2.2: the bubble is (p-1)(f+b)/v
    for stage in range(p):
        orders = [SCHEDULES["interleaved"].tasks(s, p, m, v) for s in range(p)]
        assert simulated(orders, [1] * p, [2] * p, v) == made.finish
        assert Counter(e.task.chunk for e in made.of_stage(stage)) == Counter(dict.fromkeys(range(v), 2 * m))


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize("forward", [[6, 2, 2, 2], [1, 5, 2, 3], [2, 2, 2, 7], [4, 1, 4, 1]])
@pytest.mark.parametrize("m", [1, 2, 5, 8])
def test_uneven_stages_finish_when_a_tick_by_tick_simulation_does(name: str, forward: list[int], m: int) -> None:
    backward = [2 * f - 1 for f in forward]
    made = schedule(name, 4, m, forward, backward)
    checked(made)
    orders = [SCHEDULES[name].tasks(s, 4, m, 1) for s in range(4)]
    assert made.finish == simulated(orders, forward, backward, 1)


@pytest.mark.parametrize("stages", ["6, 2, 2, 2", "1, 5, 2, 3", "1/2, 1/3, 3/4, 2"])
@pytest.mark.parametrize("m", [1, 4, 9])
def test_a_forward_pass_takes_the_time_that_pipeline_time_derives(stages: str, m: int) -> None:
    times = [Fraction(part) for part in stages.split(",")]
    made = schedule("gpipe", len(times), m, times, 0)
    checked(made, both=False)
    derived = derive("pipeline_time", no_model(), {"stages": stages, "per": "chunk"}, Accounting(), {"m": Fraction(m)})
    assert made.finish == derived.at(m=m).value


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_microbatches_in_flight_are_those_that_memory_counts(p: int, m: int) -> None:
    for stage in range(p):
        assert schedule("gpipe", p, m).in_flight(stage) == m
        assert schedule("1f1b", p, m).in_flight(stage) == min(p - stage, m)
    if m % p == 0:
        for stage in range(p):
            warm = 2 * (p - stage - 1) + (2 - 1) * p
            assert schedule("interleaved", p, m, chunks=2).in_flight(stage) == min(warm + 1, 2 * m)


REFUSED = [
    ({"name": "gpip"}, "unknown schedule 'gpip'\nhint: did you mean 'gpipe'?"),
    ({"stages": 0}, "stages = 0: at least one is needed"),
    ({"microbatches": 100_000}, "4 stages and 100000 microbatches are too many"),
    ({"chunks": 2}, "the schedule gpipe has no chunks"),
    ({"name": "interleaved", "microbatches": 6, "chunks": 2}, "6 microbatches are no multiple of 4 stages"),
    ({"forward": [1, 2]}, "2 forward times are given for 4 stages"),
    ({"backward": -1}, "a backward time is negative"),
    ({"forward": 0}, "the forward pass takes no time"),
]


@pytest.mark.parametrize(("changed", "told"), REFUSED, ids=[told[:30] for _, told in REFUSED])
def test_a_schedule_that_makes_no_sense_is_refused(changed: dict[str, object], told: str) -> None:
    options: dict[str, object] = {"name": "gpipe", "stages": 4, "microbatches": 4} | changed
    with pytest.raises(SymcommError) as caught:
        schedule(**options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(told)
