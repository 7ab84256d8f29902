"""Closed forms of schedules: those that papers print, and all of them against runs at other sizes and times."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import pytest
from api import (
    HOP,
    OVERHEAD,
    PAIR,
    Accounting,
    Action,
    Schedule,
    Sym,
    SymcommError,
    Times,
    closed_forms,
    conditions,
    cone,
    derive,
    find,
    held,
    in_flight,
    measures,
    no_model,
    simulate,
    time,
    value,
)
from api import _registry as registered
from api import form_evaluate as evaluate
from api import orders_passes as passes
from api import schedules_register as register
from api import schedules_schedules as schedules

RECORDS = [schedule for schedule in schedules() if schedule.name != "registered"]
MEASURES = ("makespan", "span", "work", "bubble", "span bubble")


def sizes(schedule: Schedule, most: int):
    """All sizes that a schedule takes, up to so many ranks."""
    for p, m, v in product(range(1, most + 1), range(1, 3 * most), (1, 2, 3, 4)):
        if schedule.chunks in (None, v):
            try:
                schedule.fitting(p, m, v)
            except SymcommError:
                continue
            yield p, m, v


def checked(schedule: Schedule, most: int, share: float, seed: int, others=(HOP, OVERHEAD)) -> int:
    """Every closed form against runs at random times, where its conditions hold; how many were compared."""
    dice, compared = random.Random(seed), 0
    with_pairs = ((PAIR,),) if "+" in schedule.kinds else ()
    every = ((), *((one,) for one in others), *with_pairs)
    found = [(besides, measure, time(schedule, measure, besides)) for besides in every for measure in MEASURES]
    for p, m, v in sizes(schedule, most):
        if dice.random() > share:
            continue
        orders = schedule.ranks(p, m, v)
        for until in "WB":
            counts = [in_flight(order, until) for order in orders]
            for ranked, places in ((True, enumerate(counts)), (False, [(0, max(counts))])):
                form = held(schedule, until, ranked)
                for r, count in places:
                    at = {"p": Fraction(p), "m": Fraction(m), "v": Fraction(v), "r": Fraction(r)}
                    if form is not None and form.holds(at):
                        assert evaluate(form.form, at) == count, (schedule.name, until, at)
                        compared += 1
        for besides in dict.fromkeys(b for b, _, _ in found):
            for _ in range(2):
                times = {
                    name: Fraction(dice.choice((1, 2, 3, 7, 50))) for name in ("t_F", "t_B", "t_W", "t_FB", "c", "o")
                }
                if dice.random() < 0.6:  # most conditions are equalities
                    times["t_B"] = times["t_F"]
                    times["t_W"] = dice.choice((times["t_F"], times["t_F"] / 2, times["t_F"] / 3))
                    low = 2 * times["t_B"]
                    times["t_FB"] = low + dice.randint(0, 4) * times["t_W"] / 4
                said = {s.name: times[s.name] for s in besides}
                first = (times[name] for name in ("t_F", "t_B", "t_W"))
                made = simulate(orders, Times(*first, said.get("t_FB"), said.get("c", 0), said.get("o", 0)))
                at = {**times, "p": Fraction(p), "m": Fraction(m), "v": Fraction(v)}
                for other, measure, form in found:
                    if other == besides and form is not None and form.holds(at):
                        assert evaluate(form.form, at) == measures(made)[measure], (schedule.name, measure, at)
                        compared += 1
    return compared


SLOW = ("v-min", "v-half", "dualpipe", "zb-v")
FEW = [pytest.param(s, id=s.name, marks=[pytest.mark.long] if s.name in SLOW else []) for s in RECORDS]


@pytest.mark.few(3)
@pytest.mark.parametrize("schedule", FEW)
def test_every_closed_form_is_what_runs_at_other_sizes_and_times_give(schedule):
    assert checked(schedule, 6, 0.15 if schedule.name != "dualpipe" else 1, 1, ()) > 40


@pytest.mark.long
@pytest.mark.parametrize("schedule", RECORDS, ids=lambda s: s.name)
def test_every_closed_form_is_what_runs_on_many_ranks_give(schedule):
    assert checked(schedule, 13, 0.35, 2) > 500


# The printed formulas (the gradient of the input is t_B), with the conditions under which they were checked.
PRINTED = [
    ("gpipe", "bubble", "(p - 1)*(t_F + t_B + t_W)", ""),
    ("1f1b", "bubble", "(p - 1)*(t_F + t_B + t_W)", ""),
    ("interleaved", "bubble", "(p - 1)*(t_F + t_B + t_W)", ""),  # of a chunk: 1/v of a rank's
    ("zb-h1", "bubble", "(p - 1)*(t_F + t_B - t_W)", "m >= p, t_W <= t_F, t_W <= t_B"),
    ("zb-h1", "span bubble", "(p - 1)*(t_F + t_B - t_W)", "m >= p, t_W <= t_F, t_W <= t_B"),
    ("zb-h2", "span bubble", "(p - 1)*(t_F + t_B - 2*t_W)", "m >= 2p - 1, t_W <= t_F, 2 t_W <= t_F + t_B"),
    ("zb-v", "span bubble", "0", "m >= 2p - 1, t_B = t_F, t_W = t_F"),
]


@pytest.mark.few(6)
@pytest.mark.parametrize(("name", "measure", "text", "where"), PRINTED, ids=[f"{n} {m}" for n, m, _, _ in PRINTED])
def test_a_printed_bubble_is_derived_and_holds_at_least_where_it_was_printed_for(name, measure, text, where):
    found = time(find(name), measure)
    symbols = (closed_forms.FORWARD, closed_forms.INPUT, closed_forms.WEIGHT)
    dice = random.Random(3)
    for _ in range(60):
        t = Fraction(dice.randint(1, 9))
        at = {
            "p": Fraction(dice.randint(1, 9)),
            "m": Fraction(dice.randint(1, 40)),
            "v": Fraction(2),
            "t_F": t,
            "t_B": t,
            "t_W": t,
        }
        if "=" not in where.replace(">=", "").replace("<=", ""):
            at |= {"t_B": Fraction(dice.randint(1, 9)), "t_W": Fraction(dice.randint(1, 9))}
        if all(c.holds(at) for c in conditions(where, symbols)) and all(c.holds(at) for c in find(name).conditions):
            assert found.holds(at), at
            f, b, w, p = at["t_F"], at["t_B"], at["t_W"], at["p"]
            printed = {"t_F + t_B + t_W": f + b + w, "t_F + t_B - t_W": f + b - w, "t_F + t_B - 2*t_W": f + b - 2 * w}
            inner = next((printed[key] for key in printed if f"({key})" in text), Fraction(0))
            assert evaluate(found.form, at) == (p - 1) * inner


@pytest.mark.long
def test_memory_in_flight_is_what_papers_print():
    p, m = (value(Sym(name)) for name in "pm")
    at = {"p": 8, "m": 32, "v": 3, "r": 2}
    expected = {"gpipe": 32, "1f1b": 8 - 2, "interleaved": 2 * (8 - 1 - 2) + (3 - 1) * 8 + 1, "zb-h1": 8, "zb-h2": 15,
                "zb-v": 16, "v-half": 2 * 5, "dualpipe": 9, "dualpipev": 17}  # fmt: skip
    for name, count in expected.items():
        assert evaluate(held(find(name)).form, {k: Fraction(x) for k, x in at.items()}) == count, name
    assert value(held(find("v-min"), rank=False).form).subs({p: 8, m: 32}) == 2 * ((8 + 4) // 3)
    assert held(find("v-min")) is None  # it goes up and down from rank to rank


def test_the_time_of_ranks_where_the_directions_of_dualpipe_meet_is_the_printed_one():
    """(PP/2 - 1)(F&B + B - 3W) with B the whole backward, if F = B - W, W <= B - W; repository and report."""
    for p, m, f, w, pair in ((4, 8, 2, 1, 5), (4, 12, 3, 2, 7), (6, 12, 2, 2, 5), (8, 20, 4, 1, 9)):
        made = simulate(find("dualpipe").ranks(p, m), Times(f, f, w, pair))
        assert made.idle[p // 2] == made.idle[p // 2 - 1] == (p // 2 - 1) * (pair + (f + w) - 3 * w)


def test_a_cone_is_told_by_its_edges():
    symbols = (closed_forms.FORWARD, closed_forms.INPUT, closed_forms.WEIGHT)
    inside, *edges = cone(symbols, conditions("t_W <= t_F, 2 t_W <= t_F + t_B", symbols))
    assert sorted(edges) == [(0, 1, 0), (1, 0, 0), (1, 1, 1), (2, 0, 1)]
    assert inside == tuple(map(sum, zip(*edges, strict=True)))


def test_a_rule_that_small_sizes_do_not_show_is_not_conjectured():
    """It waits one more forward from eight microbatches on: no formula with the wrong number is given."""

    def order(rank, p, m, v):
        warm = min(p - 1 - rank + (m >= 8), m)
        forward, backward = passes("F", range(m)), passes("D", range(m))
        turns = [item for pair in zip(forward[warm:], backward, strict=False) for item in pair]
        return forward[:warm] + turns + backward[m - warm :]

    odd = Schedule("odd", "It changes its mind.", order, "a test")
    found = held(odd)
    for p, m in product((1, 2, 3, 5, 8), (1, 3, 7, 8, 9, 20)):
        at = {"p": Fraction(p), "m": Fraction(m), "v": Fraction(1), "r": Fraction(0)}
        if found is not None and found.holds(at):
            assert evaluate(found.form, at) == in_flight(odd.rank(0, p, m))


# -- asked as a user does ------------------------------------------------------------------------------------


def asked(options, **given):
    values = {name: Fraction(number) for name, number in given.items()}
    return derive("pipeline_time", no_model(), options, Accounting(), values)


def test_a_bubble_is_written_with_sizes_alone_where_the_times_cancel():
    made = asked({"schedule": "1f1b", "want": "bubble_total"})
    assert made.needs == ("p", "m")
    assert made.at(p=4, m=8).value == Fraction(3, 11)
    assert asked({"schedule": "1f1b", "want": "bubble_ideal"}).at(p=4, m=8).value == Fraction(3, 8)
    assert asked({"want": "bubble_ideal"}).title == "Bubble over the ideal time of a training step under 1f1b"
    assert asked({"schedule": "interleaved", "want": "bubble_ideal", "chunks": 2}).at(p=4, m=8).value == Fraction(3, 16)
    assert asked({"schedule": "gpipe", "want": "utilisation"}).at(p=4, m=8).value == Fraction(8, 11)
    assert asked({"schedule": "zb-v", "want": "bubble_span"}).at(p=4, m=8, t_F=3, t_W=2).value == Fraction(6, 134)


# Conjectures of the V schedules with a hop or an overhead take seconds.


@pytest.mark.few(3)
@pytest.mark.parametrize("schedule", FEW)
@pytest.mark.parametrize(
    "options", [{}, {"hop": "1/2"}, {"overhead": "1/3"}, {"forward": "1, 2, 3, 4", "hop": "2"}], ids=str
)
def test_numbers_are_those_of_the_events_whether_or_not_a_form_is_known(schedule, options):
    v, p, m = schedule.chunks or 2, 4, 8
    if "forward" in options and v / schedule.placement.copies(p, v) == 2:
        options = {**options, "forward": "1, 2, 3, 4, 5, 6, 7, 8"}
    forward = [Fraction(part) for part in options.get("forward", "3").split(",")]
    times = Times(forward if len(forward) > 1 else forward[0], 2, 1, None, Fraction(options.get("hop", 0)),
                  Fraction(options.get("overhead", 0)))  # fmt: skip
    made = simulate(schedule.ranks(p, m, v), times)
    said = {"schedule": schedule.name, "forward": "3", "input_gradient": "2", "weight_gradient": "1", **options}
    said |= {"chunks": v} if schedule.chunks is None else {}
    expected = {"time": made.makespan, "bubble_total": made.bubble_total, "bubble_ideal": made.bubble_ideal,
                "bubble_span": measures(made)["span bubble"] / made.longest_span,
                "utilisation": made.utilisation}  # fmt: skip
    for want, number in expected.items():
        assert asked({**said, "want": want}, p=p, m=m).at().value == number, want
    for rank in range(p):
        counted = {k: said[k] for k in ("schedule", "chunks") if k in said}
        assert asked({**counted, "want": "in_flight", "stage": str(rank)}, p=p, m=m).at().value == made.in_flight[rank]


REFUSED = [
    ({"schedule": "zb-h1"}, {"p": 4, "m": 2},
     "the closed form for the makespan of zb-h1 holds where `m >= p`, `t_W <= t_F` and `t_W <= t_B`\n"
     "hint: with numbers for t_F, t_B, t_W, the events are followed one by one"),
    ({"schedule": "1f1b", "hop": "c"}, {}, "no closed form is known for the makespan of 1f1b\nhint: with"),
    ({"schedule": "v-min", "want": "in_flight", "stage": "1"}, {}, "no closed form is known for the number in flight"),
    ({"schedule": "gpipe", "want": "in_flight", "stage": "4"}, {"p": 4, "m": 8}, "there is no stage 4 of 4"),
    ({"schedule": "interleaved"}, {"p": 4, "m": 6, "v": 2}, "6 microbatches are no multiple of 4 stages"),
    ({"schedule": "gpipe", "want": "chunks"}, {}, "'chunks' is not derived for a schedule\nhint: known: bubble_ideal"),
    ({"want": "bubbles"}, {}, "unknown choice 'bubbles' of 'want'\nhint: did you mean"),
    ({"hop": "2"}, {}, "'hop' belongs to a schedule\nhint: say schedule: 1f1b, for instance"),
    ({"schedule": "gpipe", "hop": "2 GB"}, {}, "'2 GB' is no time for 'hop'\nhint: 6 ms, or the name of a symbol"),
    ({"schedule": "gpipe", "hop": "2, 3"}, {}, "'2, 3' is no time for 'hop'"),
    ({"schedule": "gpipe", "chunks": "2"}, {}, "the schedule gpipe has no chunks\nhint: interleaved has"),
    ({"schedule": "gpipe", "stage": "2"}, {}, "'stage' says where what is in flight is counted, not the time"),
    ({"schedule": "gpipe", "stages": "2, 3"}, {}, "'stages' is 2, 3, but it is a number of stages\nhint: forward"),
    ({"schedule": "gpip"}, {}, "unknown schedule 'gpip'\nhint: did you mean 'gpipe'?"),
    ({"schedule": "gpipe", "forward": "1, 2"}, {"p": 3, "m": 2, "t_B": 1, "t_W": 1},
     "2 forward times are given for 3 stages"),
]  # fmt: skip


@pytest.mark.few(8)
@pytest.mark.parametrize(("options", "given", "told"), REFUSED, ids=[told[:40] for _, _, told in REFUSED])
def test_what_a_schedule_cannot_answer_is_refused(options, given, told):
    from api import QUANTITIES

    known = {option.name: option for option in QUANTITIES["pipeline_time"].options}
    with pytest.raises(SymcommError) as caught:
        asked({name: known[name].read(text) for name, text in options.items()}, **given)
    assert str(caught.value).startswith(told)


def test_a_closed_form_refuses_numbers_for_which_it_does_not_hold():
    made = asked({"schedule": "zb-h1"})
    assert made.at(p=4, m=8, t_F=1, t_B=1, t_W=1).value == 27
    with pytest.raises(SymcommError, match="the closed form holds where m >= p, and m = 2, p = 4"):
        made.at(p=4, m=2, t_F=1, t_B=1, t_W=1)
    assert asked({"schedule": "zb-h1"}, p=4, m=2, t_F=1, t_B=1, t_W=1).at().value == 11


def test_a_schedule_that_is_registered_at_run_time_has_all_quantities(monkeypatch: pytest.MonkeyPatch):
    """Two microbatches at a time, forward and then backward: a flush after each pair."""
    from api import parse_problem, solve

    import symcomm as sc

    def order(rank, p, m, v):
        pairs = [range(i, min(i + 2, m)) for i in range(0, m, 2)]
        return [(Action(kind, 0, i),) for pair in pairs for kind in "FD" for i in pair]

    mine = Schedule("registered", "Two at a time.", order, "a test")
    monkeypatch.setitem(registered(), "registered", mine)  # gone again after this test
    assert register(mine) == mine
    assert asked({"schedule": "registered"}, p=3, m=4, t_F=1, t_B=1, t_W=1).at().value == 2 * (2 + 3 - 1) * 3
    assert asked(
        {"schedule": "registered", "want": "bubble_total"}, p=3, m=4, t_F=1, t_B=1, t_W=1
    ).at().value == Fraction(1, 2)
    assert asked({"schedule": "registered", "want": "in_flight", "stage": "1"}, p=3, m=9).at().value == 2
    layer = sc.load("Computation\tInput\tOutput\ny = x W\tx [T, D], W [D, D]\ty [T, D]\n", repeat="N",
                    values={"T": 24, "D": 4, "N": 6}, dtype="fp32")  # fmt: skip
    kept = layer.activation_memory("pipeline(3, microbatches=8)", schedule="registered", stage=1).at().value
    assert kept == 2 * 2 * (24 // 8 * 4 * 4)  # two microbatches, two layers, x of three tokens in four columns
    assert layer.peak_memory("pipeline(3, microbatches=8)", schedule="registered", recipe="fp32_sgd").at().value > kept
    block = "figure: pipeline_schedule\nschedule: registered\nstages: 3\nmicrobatches: 4\n"
    text = f"---\ntitle: t\n---\n```symcomm\n{block}```\n"
    pytest.importorskip("matplotlib")
    assert "Finished after 24" in str(solve(parse_problem(text, "t.md")))


def test_activations_are_counted_under_every_schedule_on_every_stage():
    """A microbatch's share of a layer's input, as often as the order holds it, over the stages a rank runs."""
    import symcomm as sc

    layer = sc.load("Computation\tInput\tOutput\ny = x W\tx [T, D], W [D, D]\ty [T, D]\n", repeat="N",
                    values={"T": 64, "D": 4, "N": 16}, dtype="fp32")  # fmt: skip
    for schedule in RECORDS:
        v, p, m = schedule.chunks or 2, 4, 8
        stages = 1 + max(a.stage for order in schedule.ranks(p, m, v) for item in order for a in item)
        for rank, order in enumerate(schedule.ranks(p, m, v)):
            chunks = {"chunks": 2} if schedule.chunks is None else {}
            made = layer.activation_memory(
                f"pipeline({p}, microbatches={m})", schedule=schedule.name, stage=rank, **chunks
            )
            assert made.at().value == in_flight(order) * (16 // stages) * (64 // m * 4 * 4), (schedule.name, rank)


def test_a_step_of_chunks_takes_the_slots_of_the_interleaved_schedule():
    import symcomm as sc

    layer = sc.load("Computation\tInput\tOutput\ny = x W\tx [T, D], W [D, D]\ty [T, D]\n", repeat="N",
                    values={"T": 192, "D": 64, "N": 16})  # fmt: skip
    rates = {"peak": "1 GFLOP/s", "memory": "1000000 GB/s", "network": "1000000 GB/s"}
    one, two = (
        layer.step_time("pipeline(4, microbatches=8)", **rates, **more).worth["n_slots"]
        for more in ({}, {"schedule": "interleaved", "chunks": 2})
    )
    assert (one, two) == (11, 19)
    # 3 (m + p - 1) pieces of work become 3 m + p - 1; the messages take next to nothing.
    step = layer.step_time("pipeline(4, microbatches=8)", schedule="zb-h1", **rates).at().value
    piece = Fraction(4 * 2 * 24 * 64 * 64, 10**9)  # four layers, a product of 24 tokens
    assert 27 * piece <= step < Fraction(271, 10) * piece
    with pytest.raises(SymcommError, match="6 microbatches are no multiple of 4"):
        layer.step_time("pipeline(4, microbatches=6)", schedule="interleaved", chunks=2, **rates)
    with pytest.raises(SymcommError, match="'schedule' and 'chunks' belong to a pipeline"):
        layer.step_time("data(2)", schedule="1f1b", **rates)
