"""The fold over what a step keeps and frees, against walking every repetition of every loop."""

from __future__ import annotations

from fractions import Fraction

import memory_tables as tables
import pytest
import whole_models as models
from api import (
    GRADIENT,
    ONE_RANK,
    PASSING,
    SAVED,
    Accounting,
    Action,
    Fold,
    Form,
    Free,
    Keep,
    Loop,
    OpRun,
    RankStep,
    Setting,
    StepOptions,
    StepRun,
    StorageEvent,
    StrategyError,
    Sym,
    ValuesError,
    from_expr,
    num,
    parse_strategy,
    recipe_of,
    step_of,
)
from api import form_evaluate as evaluate
from hypothesis import given
from hypothesis import strategies as st

VALUES = {"n": Fraction(5), "k": Fraction(3), "D": Fraction(7)}
SIZES = st.sampled_from([num(1), num(4), Sym("D")])
LEAVES = st.one_of(
    st.builds(Keep, st.sampled_from(["a", "b"]), SIZES), st.builds(Free, st.sampled_from(["a", "b"]), SIZES),
    st.just(OpRun("forward", "y")),
)  # fmt: skip
COUNTS = st.sampled_from([num(1), Sym("n"), Sym("k")])


def loop(count: Form, body: list[StorageEvent], reverse: bool) -> Loop:
    return Loop("layer", count, tuple(body), ("first", "last"), reverse)


PROGRAMS = st.recursive(
    st.lists(LEAVES, max_size=5),
    lambda inner: st.lists(st.one_of(LEAVES, st.builds(loop, COUNTS, inner, st.booleans())), max_size=4),
    max_leaves=12,
)


@given(PROGRAMS)
def test_the_most_at_the_ends_of_loops_is_the_most_of_all_repetitions(program: list[StorageEvent]) -> None:
    def most(unrolled: bool) -> Fraction:
        return max((sum(i.bytes.values()) for i in Fold(VALUES, unrolled).walk(program)), default=Fraction(0))

    assert most(unrolled=False) == most(unrolled=True)


LAYER = tables.table(
    "a = x W ; x [T,D], W [D,F] ; a [T,F]", "u = relu(a) ; a [T,F] ; u [T,F]", "y = u U ; U [F,D] ; y [T,D]"
)
STRATEGIES = ["", "data(2)", "fsdp(2)", "zero-2(2)", "tensor(2)"]
WAYS = [{}, {"recomputation": "full"}, {"every": 1}, {"every": 2}, {"every": 4}]
TASKS = [(Action("F", 0, 0),), (Action("D", 0, 0),)]
CONVENTIONS = [Accounting(gathered_weights=how) for how in ("reshard", "at_once", "whole_units", "keep")]


def steps() -> list[tuple[RankStep, dict[str, Fraction]]]:
    values = {"T": 24, "D": 4, "F": 6, "N_layer": 4}
    made = [models.whole(models.TOY_ENDS, LAYER, values),
            tables.load(LAYER, repeat="N_layer", values=values)]  # fmt: skip
    return [
        (step_of(Setting(model.graph, how, dtype="fp32"),
                 StepRun(parse_strategy(said) if said else ONE_RANK, recipe_of("fp32_adam"), StepOptions(**ways))),
         model.graph.relations.complete(model.values))
        for model in made for said in STRATEGIES for ways in WAYS
        for how in (CONVENTIONS if said.startswith("fsdp") else CONVENTIONS[:1])
    ]  # fmt: skip


@pytest.mark.long
def test_the_peak_of_a_step_is_found_at_the_ends_of_its_loops() -> None:
    for step, values in steps():
        ends, every = (
            max(sum(one.bytes.values()) for one, _, _ in step.walk(TASKS, values, unrolled))
            for unrolled in (False, True)
        )
        assert ends == every, step.options


def test_all_that_a_step_keeps_for_backward_is_freed_again() -> None:
    """And the gradients that its passes make are those that its update reads."""
    for step, values in steps():
        fold = Fold(values)
        for one in [one for (task,) in TASKS for one in step.body(task)]:
            fold.skip(one)
        assert not any(fold.bytes.get(kind) for kind in (SAVED, PASSING)), step.options
        if not step.made.early:
            assert fold.bytes[GRADIENT] == sum(
                fold.worth(k.size) * fold.worth(k.times) for k in step.all("", "gradient")
            )


@pytest.mark.parametrize(("strategy", "often", "share"), [
    ("fsdp(4)", False, 1), ("fsdp(4)", True, 4), ("zero-2(4)", False, 1), ("zero-2(4)", True, 4),
    ("zero-1(4)", False, 1), ("data(4)", True, 1),
])  # fmt: skip
def test_gradients_that_are_reduced_once_are_whole_until_all_microbatches_are_added(strategy, often, share):
    """With large weights and few tokens the peak is in the second microbatch, with 2 D F numbers a layer, or a part."""
    layer = tables.load(LAYER, repeat="N_layer", dtype="fp32", values={"T": 8, "D": 256, "F": 256, "N_layer": 6})
    said = {"accumulation": "reduced_every_microbatch"} if often else None
    made = layer.peak_memory(strategy, microbatches=2, recipe="fp32_sgd", accounting=said)
    gradients = evaluate(from_expr(made.worth["M_G"]), made.values())
    assert gradients == 4 * 6 * 2 * 256**2 // share
    assert ("accumulation" in made.touched) == (strategy in ("fsdp(4)", "zero-2(4)"))


def test_a_pipeline_of_sharded_stages_has_whole_gradients_while_it_accumulates() -> None:
    layer = tables.load(LAYER, repeat="N_layer", dtype="fp32", values={"T": 8, "D": 256, "F": 256, "N_layer": 6})
    made = layer.peak_memory("fsdp(2) + pipeline(2, microbatches=4)", recipe="fp32_sgd", stage=1)
    assert evaluate(from_expr(made.worth["M_G"]), made.values()) == 4 * 3 * 2 * 256**2


def test_microbatches_are_refused_beside_those_of_a_pipeline_and_what_is_of_one_microbatch() -> None:
    layer = tables.load(LAYER, repeat="N_layer", dtype="fp32", values={"T": 8, "D": 4, "F": 4, "N_layer": 6})
    with pytest.raises(StrategyError, match="a pipeline takes its microbatches from its strategy"):
        layer.peak_memory("pipeline(2, microbatches=4)", microbatches=2)
    with pytest.raises(ValuesError, match="'held' is of a step of one microbatch"):
        layer.peak_memory("data(2)", microbatches=2, held="u")
