"""The makespans of stages that differ: sums that are known for all sizes, and functions worked out by the events."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from api import (
    APART,
    SECOND,
    WHOLE,
    Applied,
    Largest,
    Makespan,
    Sym,
    SymcommError,
    find,
    from_expr,
    makespan,
    num,
    plain,
    sums,
    unit_of,
    value,
    walk,
)
from api import form_evaluate as evaluate
from api import orders_written as written
from pipeline_slots import ticks

SIZES = {"p": Sym("p"), "m": Sym("m"), "v": num(1)}


def names(letters: str) -> list[Sym]:
    return [Sym(f"{letter}_{kind}", False, SECOND) for letter in letters for kind in ("first", "middle", "last")]


@pytest.mark.few(4)
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_the_largest_sum_is_the_makespan_beyond_the_sizes_it_was_found_on(schedule):
    found = makespan(schedule, WHOLE, 3, SIZES, names(WHOLE), True)
    assert found.cases > 20
    assert not any(isinstance(piece, Applied) for piece in walk(found.form))
    dice = random.Random(5)
    for p, m in ((2, 1), (2, 9), (3, 2), (6, 1), (6, 3), (6, 5), (6, 6), (7, 15), (8, 4), (8, 10)):
        for _ in range(6):
            middle = [dice.choice((0, 1, 2, 9)) for _ in WHOLE]
            first, last = ([t + dice.choice((0, 0, 1, 5, 30)) for t in middle] for _ in range(2))
            stages = [[a, *[b] * (p - 2), c] for a, b, c in zip(first, middle, last, strict=True)]
            orders = [written(order).split() for order in find(schedule).ranks(p, m)]
            end = max(stop for each in ticks(orders, *stages, [0] * p) for _, stop in each)
            times = [t for row in zip(first, middle, last, strict=True) for t in row]
            at = {name.name: Fraction(t) for name, t in zip(names(WHOLE), times, strict=True)}
            assert evaluate(found.form, {**at, "p": Fraction(p), "m": Fraction(m)}) == end, (p, m, at)


@pytest.mark.parametrize(("schedule", "letters", "ordered"), [
    ("1f1b", WHOLE, False), ("zb-h2", APART, True), ("zb-h1", APART, False), ("interleaved", WHOLE, True),
])  # fmt: skip
def test_what_has_no_short_form_is_a_function_that_the_events_work_out(schedule, letters, ordered):
    v = 2 if schedule == "interleaved" else 1
    found = makespan(schedule, letters, 3, {**SIZES, "v": num(v)}, names(letters), ordered)
    assert isinstance(found.form, Applied)
    assert value(from_expr(value(found.form))) == value(found.form)
    assert unit_of(found.form, {}) == SECOND
    dice = random.Random(7)
    for p, m in ((2, 4), (4, 8)):
        times = [dice.choice((0, 1, 3, 8)) for _ in names(letters)]
        stages = [[a, *[b] * (p * v - 2), c] for a, b, c in zip(times[::3], times[1::3], times[2::3], strict=True)]
        orders = [written(order).split() for order in find(schedule).ranks(p, m, v)]
        work = stages if letters == APART else [*stages, [0] * (p * v)]
        end = max(stop for each in ticks(orders, *work) for _, stop in each)
        at = {name.name: Fraction(t) for name, t in zip(names(letters), times, strict=True)}
        assert evaluate(found.form, {**at, "p": Fraction(p), "m": Fraction(m)}) == end


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_many_times_with_messages_are_those_that_the_events_give_one_by_one(schedule):
    """Of some, all messages take no longer than the work beside them; of the others, some are seen."""
    rule, dice = Makespan(schedule, SECOND, schedule, WHOLE, 3, False, True), random.Random(11)
    rows = []
    for p, m in ((2, 5), (3, 1), (3, 7), (4, 4), (5, 12), (6, 3)):
        for message in (0, 0, 2, 3, 9):
            middle = [dice.choice((1, 2, 4)) for _ in WHOLE]
            first, last = ([t + dice.choice((0, 1, 5, -1)) for t in middle] for _ in range(2))
            each = []
            for n, alone in enumerate(zip(first, middle, last, strict=True)):
                silent = 2 if n == 0 else 0
                each += [t if k == silent else max(t, message) for k, t in enumerate(alone)] + [*alone]
            rows.append([p, m, 1, *each])
    columns = [np.array(column, dtype=float) for column in zip(*rows, strict=True)]
    hidden = rule.hidden(columns)
    assert hidden.any()
    assert not hidden.all()
    assert rule.numbers(columns).tolist() == [float(rule.number(tuple(map(Fraction, row)))) for row in rows]


def test_zero_bubble_h1_of_stages_that_are_alike_has_a_form_for_all_times():
    times = [Sym(f"t_{letter}", False, SECOND) for letter in APART]
    found = makespan("zb-h1", APART, 1, SIZES, times, True)
    assert isinstance(found.form, Largest)
    dice = random.Random(3)
    for p, m in ((1, 1), (1, 4), (6, 2), (6, 11), (7, 7)):
        f, b, w = (dice.choice((1, 2, 7)) for _ in APART)
        orders = [written(order).split() for order in find("zb-h1").ranks(p, m)]
        end = max(stop for each in ticks(orders, [f] * p, [b] * p, [w] * p) for _, stop in each)
        at = {"t_F": f, "t_B": b, "t_W": w, "p": p, "m": m}
        assert evaluate(found.form, {name: Fraction(number) for name, number in at.items()}) == end


def test_sums_are_those_that_some_times_make_the_largest():
    def longest(x):
        return max((a * x[0] + b * x[1], (a, b)) for a, b in ((3, 0), (2, 2), (0, 3), (1, 1), (1, 2)))

    assert sorted(sums(longest, 2)) == [(0, 3), (2, 2), (3, 0)]


@pytest.mark.parametrize(("at", "message"), [
    ({"p": 2, "m": Fraction(1, 2)}, "are no numbers of stages, microbatches and chunks"),
    ({"p": 300, "m": 600}, "300 stages and 600 microbatches are too many to be followed one by one"),
    ({"p": 4, "m": 3}, "3 microbatches are no multiple of 4 stages"),
])  # fmt: skip
def test_sizes_that_a_schedule_does_not_take_are_refused_where_numbers_are_put_in(at, message):
    form = makespan("interleaved", WHOLE, 3, {**SIZES, "v": num(2)}, names(WHOLE), True).form
    numbers = {name.name: Fraction(1) for name in names(WHOLE)} | {name: Fraction(n) for name, n in at.items()}
    with pytest.raises(SymcommError, match=message):
        evaluate(form, numbers)


def test_a_function_of_the_events_is_printed_with_its_schedule_and_arguments():
    form = makespan("zb-v", APART, 1, {**SIZES, "v": num(2)}, [Sym("a"), Sym("b"), Sym("c")], True).form
    assert plain(form) == "T_zbv(p, m, 2, a, b, c)"
