"""Pipeline schedules: 151 cases of an independent simulation, a simulation in ticks, and what is refused."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path

import pytest
from api import OrderError, SymcommError, Times, find, in_flight, parse_order, read_order, simulate
from api import orders_written as written
from api import schedules_register as register
from api import schedules_run as run
from api import schedules_schedules as schedules
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_slots import any_order, held, ticks

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_schedules.json").read_text(encoding="utf-8"))
NAMES = {"interleaved-1f1b": "interleaved", "dualpipe-v": "dualpipev"}
SIZES = {"dualpipe": [(2, 4), (2, 6), (4, 8), (4, 10), (6, 12)], "interleaved": [(1, 2), (2, 4), (3, 3), (4, 8)]}
USUAL = [(1, 1), (1, 3), (2, 5), (3, 2), (3, 7), (4, 4), (5, 6), (5, 11)]


def numbers(given):
    return [numbers(one) for one in given] if isinstance(given, list) else None if given is None else Fraction(given)


def orders_of(case):
    if case["schedule"] == "own-order":
        text = "\n".join(" ".join(line) for line in case["order"])
        return parse_order(text).ranks(case["p"], case["m"])
    return find(NAMES.get(case["schedule"], case["schedule"])).ranks(case["p"], case["m"], case["v"])


@pytest.mark.few(40)
@pytest.mark.parametrize("case", [c for c in GOLDEN if "refused" not in c], ids=lambda c: c["id"])
def test_a_schedule_has_the_events_of_the_golden_simulation(case):
    orders = orders_of(case)
    if "order" in case:
        assert [written(order).split() for order in orders] == case["order"]
    made = simulate(orders, Times(*(numbers(case.get(key)) for key in ("F", "B", "W", "FB", "c"))))
    for key in ("makespan", "idle", "first_start", "last_end", "longest_span", "bubble_total", "bubble_ideal"):
        assert getattr(made, key) == numbers(case[key]), key
    assert made.in_flight == case["in_flight"]
    assert [in_flight(order, "B") for order in orders] == case["in_flight_until_B"]
    for key, backward in (("messages_forward", False), ("messages_backward", True)):
        assert {f"{a}->{b}": n for (a, b), n in made.messages(backward).items()} == case[key]


@pytest.mark.parametrize("case", [c for c in GOLDEN if "refused" in c], ids=lambda c: c["id"])
def test_an_order_that_cannot_be_run_is_refused_and_the_culprits_are_named(case):
    with pytest.raises(SymcommError) as caught:
        orders_of(case)
    for told in case["waits"]:
        assert told in str(caught.value)
    assert "<text>:" in str(caught.value)
    assert "^" in str(caught.value)


def whole(count):
    return st.lists(st.integers(0, 4), min_size=count, max_size=count)


def compared(orders, data, stages):
    forward, inputs, weights = (data.draw(whole(stages)) for _ in range(3))
    pair, hop, overhead = data.draw(st.sampled_from([None, 0, 5])), data.draw(st.integers(0, 3)), data.draw(
        st.integers(0, 2))  # fmt: skip
    made = simulate(orders, Times(forward, inputs, weights, pair, hop, overhead))
    lines = [written(order).split() for order in orders]
    expected = ticks(lines, forward, inputs, weights, pair, hop, overhead)
    assert expected is not None
    assert [[*zip(a, b, strict=True)] for a, b in zip(made.starts, made.stops, strict=True)] == expected
    assert made.scale == 1
    assert made.makespan == max(stop for rank in expected for _, stop in rank)
    assert made.busy == [sum(stop - start for start, stop in rank) for rank in expected]
    assert made.in_flight == [held(line, "W") for line in lines]
    assert [in_flight(order, "B") for order in orders] == [held(line, "B") for line in lines]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
@pytest.mark.few(5)
@pytest.mark.parametrize("schedule", [s.name for s in schedules()])
def test_every_schedule_runs_as_a_simulation_in_ticks_does(schedule, data):
    p, m = data.draw(st.sampled_from(SIZES.get(schedule, [(p, max(m, 2 * p)) for p, m in USUAL]
                                                if schedule == "dualpipev" else USUAL)))  # fmt: skip
    v = data.draw(st.integers(1, 3)) if schedule == "interleaved" else None
    orders = find(schedule).ranks(p, m, v)
    compared(orders, data, 1 + max(a.stage for order in orders for item in order for a in item))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10**6), ranks=st.integers(1, 3), chunks=st.integers(1, 2),
       microbatches=st.integers(1, 3), both=st.booleans())  # fmt: skip
def test_any_order_runs_as_a_simulation_in_ticks_does(data, seed, ranks, chunks, microbatches, both):
    lines = any_order(seed, ranks, chunks, microbatches, both)
    made = parse_order("\n".join(map(" ".join, lines)))
    compared(made.ranks(ranks, microbatches), data, ranks * chunks)


@given(seed=st.integers(0, 10**6), ranks=st.integers(1, 3), microbatches=st.integers(1, 3))
def test_an_order_is_refused_where_a_simulation_in_ticks_never_ends(seed, ranks, microbatches):
    lines = any_order(seed, ranks, 1, microbatches, True)
    dice = random.Random(seed)
    line = dice.choice(lines)
    a, b = dice.randrange(len(line)), dice.randrange(len(line))
    line[a], line[b] = line[b], line[a]
    stuck = ticks(lines, [1] * ranks, [1] * ranks, [1] * ranks) is None
    try:
        parse_order("\n".join(map(" ".join, lines)))
    except SymcommError:
        assert stuck
    else:
        assert not stuck


@pytest.mark.parametrize("schedule", schedules(), ids=lambda s: s.name)
def test_a_schedule_does_everything_once_on_the_ranks_of_its_placement(schedule):
    for p, m in [(p, m) for p in range(1, 7) for m in (1, 2, 4, 6, 12, 13)]:
        try:
            orders = schedule.ranks(p, m, schedule.chunks or 2)
        except SymcommError:
            continue
        v = schedule.chunks or 2
        for rank, order in enumerate(orders):
            actions = [a for item in order for a in item]
            stages = {schedule.placement.stage(rank, chunk, p) for chunk in range(v)}
            assert {a.stage for a in actions} == stages
            done = sorted((kind, a.stage, a.microbatch) for a in actions for kind in a.kind.replace("D", "BW"))
            assert len(done) == len({*done})
        total = sum(len(a.kind.replace("D", "BW")) for order in orders for item in order for a in item)
        stages = 1 + max(a.stage for order in orders for item in order for a in item)
        assert total == 3 * m * stages


@pytest.mark.parametrize(("p", "m"), [(16, 64), pytest.param(64, 512, marks=pytest.mark.long)])
def test_a_schedule_of_a_large_machine_is_followed(p: int, m: int):
    """64 ranks, 512 microbatches, 8 chunks are half a million pieces of work. The bubble is the printed one."""
    made = run("interleaved", p, m, 8, Times(1, 1, 1))
    assert made.bubble_ideal == Fraction(p - 1, 8 * m)
    assert made.makespan == 3 * (8 * m + p - 1)


def test_a_forward_pass_has_no_backward_and_overheads_are_added_to_each_piece():
    made = run("dualpipev", 2, 4, times=Times(2, 1, 1, pair=9, overhead=1), backward=False)
    assert made.makespan == 3 * 10  # ten slots: the last microbatch begins its way of four in the seventh
    assert run("1f1b", 1, 3, times=Times(1, 1, 1, overhead=Fraction(1, 2))).makespan == 3 * (1 + 2 + 1)


REFUSED = [
    (("gpip", 2, 2), {}, "unknown schedule 'gpip'\nhint: did you mean 'gpipe'?"),
    (("none.txt", 2, 2), {}, "unknown schedule 'none.txt'\nhint: there is no such file"),
    (("gpipe", 0, 2), {}, "stages = 0: at least one is needed"),
    (("gpipe", 2, 0), {}, "microbatches = 0: at least one is needed"),
    (("gpipe", 2, 2, 0), {}, "chunks = 0: at least one is needed"),
    (("gpipe", 2, 2, 2), {}, "the schedule gpipe has no chunks\nhint: interleaved has"),
    (("zb-v", 2, 2, 3), {}, "the schedule zb-v has 2 chunks a rank, not 3\nhint: chunks=2"),
    (("interleaved", 4, 6, 2), {}, "6 microbatches are no multiple of 4 stages\nhint: the interleaved schedule passes"),
    (("dualpipe", 3, 8), {}, "3 ranks are odd: half of them is for each direction of dualpipe\nhint: an even number"),
    (("dualpipe", 2, 5), {}, "5 microbatches are odd: half of them is for each direction of dualpipe\nhint: an even"),
    (("dualpipe", 4, 6), {}, "6 microbatches are too few for dualpipe on 4 ranks\nhint: at least 8"),
    (("dualpipev", 4, 7), {}, "7 microbatches are too few for dualpipev on 4 ranks\nhint: at least 8"),
    (("gpipe", 4, 100_000), {}, "4 stages and 100000 microbatches are too many to be followed one by one"),
    (("gpipe", 257, 1), {}, "257 stages and 1 microbatches are too many to be followed one by one\nhint: at most 256"),
    (
        ("gpipe", 4, 4),
        {"forward": [1, 2]},
        "2 forward times are given for 4 stages\nhint: one for each, or one for all",
    ),
    (("gpipe", 2, 2), {"weight_gradient": -1}, "a weight gradient time is negative"),
    (("gpipe", 2, 2), {"hop": -1}, "the time of a hop is negative"),
]


@pytest.mark.parametrize(("sizes", "times", "told"), REFUSED, ids=[told[:40] for _, _, told in REFUSED])
def test_sizes_and_times_that_do_not_fit_are_refused_with_their_numbers(sizes, times, told):
    with pytest.raises(SymcommError) as caught:
        run(*sizes, times=Times(**times))
    assert str(caught.value).startswith(told)


ORDERS = [
    ("# nothing\n", "mine.txt: there is no order in it\nhint: one line a rank, such as F0.0 F0.1 D0.0 D0.1"),
    ("F0.0 G0.0", "mine.txt:1: 'G0.0' is no action\n    F0.0 G0.0\n         ^^^^\nhint: F, B, W or D, a stage, a dot"),
    ("F0.0+D0 D0.0", "mine.txt:1: 'D0' is no action\n    F0.0+D0 D0.0\n         ^^\n"),
    ("F0.0+W0.0 D0.0", "mine.txt:1: 'F0.0+W0.0' is no pair\n    F0.0+W0.0 D0.0\n    ^^^^^^^^^\nhint: a forward and"),
    (
        "F0.0 D0.0\n\nF1.0 D1.0 D1.0",
        "mine.txt:3: D1.0 is done twice\n    F1.0 D1.0 D1.0\n              ^^^^\nhint: write each action once",
    ),
    ("F0.0 D0.0\nF1.0 F1.1", "mine.txt:2: F0.1 is nowhere; F1.1 needs it\n    F1.0 F1.1\n         ^^^^\n"),
    ("F0.0 D0.0 F0.1", "mine.txt:1: D0.1 is nowhere\n    F0.0 D0.0 F0.1\n              ^^^^\nhint: each stage does it"),
    ("F0.0 B0.0", "mine.txt:1: D0.0 is nowhere\n"),
    ("F0.0 W0.0", "mine.txt:1: D0.0 is nowhere; W0.0 needs it\n"),
    ("F0.0 D0.0 F1.0\nD1.0", "mine.txt:2: D1.0 is on rank 1, and F1.0 on rank 0\n"),
    ("F0.0+D0.0", "mine.txt:1: F0.0+D0.0 on rank 0 overlaps F0.0 and needs it\n"),
    ("D0.0 F0.0", "mine.txt:1: D0.0 stands before F0.0 on rank 0 and needs it\n    D0.0 F0.0\n    ^^^^\n"),
    ("F0.0 F999999.999999", "mine.txt:1: F0.1 is nowhere\n"),
]


@pytest.mark.parametrize(("text", "told"), ORDERS, ids=[told[9:40] for _, told in ORDERS])
def test_a_file_that_is_no_order_is_refused_at_its_place(text, told):
    with pytest.raises(SymcommError) as caught:
        parse_order(text, "mine.txt")
    assert str(caught.value).startswith(told)


def test_an_order_from_a_file_is_a_schedule_of_its_own_sizes(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("F0.0 F0.1 D0.0 D0.1  # rank 0\nF1.0 D1.0 F1.1 D1.1\n", encoding="utf-8")
    assert find(str(path)).ranks(2, 2) == find("1f1b").ranks(2, 2)
    assert read_order(path).name == "mine"
    with pytest.raises(SymcommError, match=r"is an order of 2 ranks and 2 microbatches, not of 2 and 4"):
        run(str(path), 2, 4)


def test_a_name_is_registered_once():
    with pytest.raises(SymcommError, match="there is a schedule '1f1b' already"):
        register(parse_order("F0.0 D0.0", "1f1b.txt"))
    with pytest.raises(OrderError, match="rank 1 has nothing to do"):
        simulate([*find("gpipe").ranks(1, 1), []])
