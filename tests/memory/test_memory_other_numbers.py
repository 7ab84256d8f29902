"""The peak at other numbers: what is kept of one walk answers for all sizes with which the same tensors are alive."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import memory_tables as tables
import pytest
import whole_models as models
from api import SymcommError
from hypothesis import given
from hypothesis import strategies as st
from walked_steps import Walk

MODEL = tables.load(
    tables.table("u = relu(x W) ; x [T,D], W [D,F] ; u [T,F]", "y = u U ; U [F,D] ; y [T,D]"),
    repeat="N_layer", dtype="fp32",
)  # fmt: skip
NAMES = ("T", "D", "F", "N_layer")
SIZES = st.tuples(*[st.integers(1, 60)] * 3, st.integers(1, 5))
OPTIONS = (
    {}, {"recomputation": "full"}, {"step": "first", "update_copies": 2}, {"held": "u", "workspace": "1 MiB"},
    {"strategy": "fsdp(2)"}, {"step": "backward"}, {"rounding": "blocks"}, {"microbatches": 2, "strategy": "data(2)"},
    *({"strategy": "pipeline(2, microbatches=6)", "schedule": schedule, "stage": stage, **more} for stage in (0, 1)
      for schedule, more in (("1f1b", {}), ("gpipe", {}), ("zb-h1", {}), ("zb-v", {}), ("dualpipe", {}),
                             ("interleaved", {"chunks": 2}))),
)  # fmt: skip


def at(sizes):
    return MODEL.at(**dict(zip(NAMES, sizes, strict=True)))


def peak(sizes, recipe="fp32_adam", **options):
    return at(sizes).peak_memory(recipe=recipe, **options)


@given(SIZES)
def test_the_peak_at_any_sizes_is_that_of_a_walk_through_every_layer(sizes):
    assert peak(sizes).at().value == Walk(*sizes, ends=False).run()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_kept_walk_answers_as_one_that_is_made_for_the_sizes_alone(options, monkeypatch):
    several = [(40, 8, 24, 3), (8, 40, 4, 2), (2, 50, 2, 4), (50, 2, 2, 1), (40, 10, 24, 3), (6, 6, 60, 5)]
    if "microbatches" in str(options):  # of the rows, and stages of the layers
        several = [(6 * rows, width, hidden, 4 * layers) for rows, width, hidden, layers in [*several, *several[:1]]]
    kept = [peak(sizes, **options) for sizes in several]
    monkeypatch.setattr("symcomm.core.quantities.memory.snapshots.StepWalk.is_alike", lambda walk, values: False)
    for sizes, made in zip(several, kept, strict=True):
        alone = peak(sizes, **options)
        assert (made.steps, made.exhibits, made.touched) == (alone.steps, alone.exhibits, alone.touched)


@pytest.mark.parametrize(("schedule", "stage"), [("zb-v", 1), ("zb-v", 2), ("interleaved", 0), ("v-half", 1)])
def test_sizes_decide_which_microbatch_begins_with_the_most_where_its_chunks_differ(schedule, stage, monkeypatch):
    """A chunk of the first stage has the table of words, too: which of two has more at once, the sizes say."""
    chunks = {"chunks": 2} if schedule == "interleaved" else {}
    asked = {"schedule": schedule, "stage": stage, "recipe": "fp32_adam", **chunks}
    several = [(240, 4, 6, 12), (12, 8, 24, 12), (480, 2, 3, 6), (24, 40, 3, 12), (24, 3, 40, 18), (60, 1, 59, 12)]
    layer = tables.table("u = relu(x W) ; x [T,D], W [D,F] ; u [T,F]", "y = u U ; U [F,D] ; y [T,D]")
    whole = models.whole(models.TOY_ENDS, layer, {})
    every = [whole.at(**dict(zip(NAMES, sizes, strict=True))) for sizes in several]
    kept = [one.peak_memory("pipeline(3, microbatches=6)", **asked) for one in every]
    monkeypatch.setattr("symcomm.core.quantities.memory.snapshots.StepWalk.is_alike", lambda walk, values: False)
    for sizes, made in zip(several, kept, strict=True):
        alone = whole.at(**dict(zip(NAMES, sizes, strict=True))).peak_memory("pipeline(3, microbatches=6)", **asked)
        assert (made.steps, made.exhibits) == (alone.steps, alone.exhibits)


@given(SIZES, SIZES)
def test_numbers_that_are_said_to_lead_to_the_same_steps_do(first, second):
    made, other = peak(first), peak(second)
    values = {name: Fraction(size) for name, size in zip(NAMES, second, strict=True)}
    if made.serves(values):
        assert (made.steps, made.touched) == (other.steps, other.touched)
        assert replace(made, given=()).at(**values) == other.at()
    else:
        assert made.steps != other.steps or made.touched != other.touched or 1 in {first[3], second[3]}


LAYER = tables.table("y = x W ; x [T,D], W [D,F] ; y [T,F]", "z = y U ; y [T,F], U [F,D] ; z [T,D]")
ENDS = models.whole(models.TOY_ENDS, LAYER, {})


@pytest.mark.parametrize("options", [
    {"strategy": "pipeline(2, microbatches=4)"}, {"strategy": "pipeline(2, microbatches=4)", "stage": 1},
    {"strategy": "pipeline(2, microbatches=4)", "schedule": "gpipe"},
    {"strategy": "pipeline(2, microbatches=4)", "schedule": "zb-v"},
    {"strategy": "fsdp(2)", "recomputation": "full", "every": 2}, {"microbatches": 4}, {"recipe": "fp32_muon"},
    {"strategy": "tensor(2)"},
], ids=str)  # fmt: skip
def test_what_serves_other_numbers_has_the_steps_of_those_numbers(options):
    drawn = random.Random(7)
    sizes = [(drawn.randint(1, 60), drawn.choice([2, 6, 40]), drawn.choice([2, 8, 64]), drawn.randint(1, 3))
             for _ in range(14)]  # fmt: skip
    every = [dict(zip(NAMES, (4 * rows, width, hidden, 4 * layers), strict=True))
             for rows, width, hidden, layers in sizes]  # fmt: skip
    made = [ENDS.at(**values).peak_memory(**options) for values in every]
    served = 0
    for one in made:
        for values, other in zip(every, made, strict=True):
            if one.serves({name: Fraction(value) for name, value in values.items()}):
                served += 1
                assert (one.steps, one.touched, one.notes) == (other.steps, other.touched, other.notes)
                assert replace(one, given=()).at(**values) == other.at()
    sized = {"recipe": "fp32_muon"}, {"strategy": "pipeline(2, microbatches=4)", "schedule": "zb-v"}
    assert served > len(made) or options in sized  # there sizes decide more than the peak


def test_numbers_that_decide_what_is_kept_of_a_weight_are_not_said_to_lead_to_the_same():
    """Of D x 8 weights AdaFactor keeps a number a row and column where both are at least 4, else one an element."""
    made = {size: peak((8, size, 8, 2), "fp32_adafactor(side=4)") for size in (4, 3)}
    states = {size: one.at().value - peak((8, size, 8, 2), "4+4+0").at().value for size, one in made.items()}
    assert states == {4: 2 * 2 * (4 + 8) * 4, 3: 2 * 2 * 3 * 8 * 4}
    assert not made[4].serves({"T": Fraction(8), "D": Fraction(3), "F": Fraction(8), "N_layer": Fraction(2)})


@pytest.mark.parametrize(("strategy", "sizes", "refused"), [
    (None, {"h": 6}, {"h": 5}),  # which is a H
    ("data(2)", {"b": 6}, {"b": 5}),
])  # fmt: skip
def test_numbers_that_are_refused_are_not_said_to_lead_to_the_same(strategy, sizes, refused):
    known = {"b": 4, "s": 4, "a": 2, "H": 3, "h": 6, "N": 4}
    made = tables.load(tables.PAPER, repeat="N").at(**known).peak_memory(strategy)
    with pytest.raises(SymcommError):
        tables.load(tables.PAPER, repeat="N").at(**(known | refused)).peak_memory(strategy)
    assert made.serves({name: Fraction(n) for name, n in (known | sizes).items()})
    assert not made.serves({name: Fraction(n) for name, n in (known | refused).items()})
