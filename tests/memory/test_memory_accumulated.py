"""Gradients of several microbatches: added whole and reduced once, or reduced for each of them. By hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from api import SymcommError
from api import form_evaluate as evaluate

import symcomm as sc

D, F, N = 8, 24, 4
TABLE = (
    "Computation\tInput\tOutput\n"
    "A = xW^1\tx [B, L, D], W^1 [D, F]\tA [B, L, F]\n"
    "A' = relu(A)\tA [B, L, F]\tA' [B, L, F]\n"
    "x' = A'W^2\tA' [B, L, F], W^2 [F, D]\tx' [B, L, D]\n"
)
WEIGHTS = 2 * D * F * N  # of the whole model
EVERY = {"accumulation": "reduced_every_microbatch"}


def model() -> sc.Model:
    return sc.load(TABLE, repeat="N", values={"N": N, "D": D, "F": F, "B": 16, "L": 2}, dtype="fp32")


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("strategy", "tensor", "stages", "shard"),
    [
        ("fully-sharded(4)", 1, 1, 4),
        ("zero-2(4)", 1, 1, 4),
        ("zero-1(4)", 1, 1, 1),
        ("fully-sharded(4) + tensor(2)", 2, 1, 4),
        ("fully-sharded(4) + pipeline(2, microbatches=M)", 1, 2, 4),
        ("zero-2(2) + tensor(4) + pipeline(4, microbatches=M)", 4, 4, 2),
    ],
)
@pytest.mark.parametrize(("microbatches", "how"), [(1, None), (4, None), (4, EVERY)])
def test_gradients_that_are_added_are_whole_until_they_are_reduced(strategy, tensor, stages, shard, microbatches, how):
    text = strategy.replace("M", str(microbatches))
    beside = {} if stages > 1 else {"microbatches": microbatches}
    once = how is None and microbatches > 1
    states = model().state_memory(text, of="gradients", recipe="fp32_sgd", accounting=how, **beside)
    assert states.at().value == Fraction(4 * WEIGHTS, tensor * stages * (1 if once else shard))
    # The same while the step runs: what is alive as gradients when the update begins is that much or, reduced, a shard.
    peak = model().peak_memory(text, recipe="weights=4, gradients=4000, states=0", accounting=how, **beside)
    gradients = next(step for step in peak.steps if step.name == "M_G")
    worth = evaluate(gradients.form, model().graph.relations.complete(model().values))
    assert worth == Fraction(4000 * WEIGHTS, tensor * stages * (1 if once else shard))


def test_one_microbatch_or_several_has_to_be_known_where_it_counts():
    several = model().state_memory("fully-sharded(4)", microbatches="m", of="gradients", recipe="fp32_sgd")
    assert several.at(m=3).value == 4 * WEIGHTS
    with pytest.raises(SymcommError, match="the closed form holds where m >= 2, and m = 1"):
        several.at(m=1)
    assert "whole while microbatches add to them" in several.markdown()
    with pytest.raises(SymcommError, match="a pipeline takes its microbatches from its strategy"):
        model().state_memory("fully-sharded(4) + pipeline(2, microbatches=2)", microbatches=2)


def test_tensor_parallel_weights_that_are_not_cut_are_whole():
    config = {"model_type": "gpt2", "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 4, "vocab_size": 20}
    gpt = sc.load(config).at(B=8, L=4)
    whole, cut = 20 * 8 + 4 * 8 + 2 * (12 * 64 + 13 * 8) + 16, 2 * (12 * 64 + 7 * 8) + 20 * 8
    added = gpt.state_memory("fully-sharded(4) + tensor(2)", of="gradients", microbatches=2, recipe="fp32_sgd")
    assert added.at().value == 4 * (whole - cut + cut // 2)


def test_a_search_counts_gradients_as_they_are_added():
    found = sc.search(model(), devices=4, capacity="1 TB", capacity_is="nominal_GB", strategies="fully-sharded",
                      microbatches="1,2,4", recomputation="none", recipe="fp32_sgd", peak=10**12,
                      memory=10**11, network=10**10)  # fmt: skip
    gradients = {c.microbatches: next(s.amount for s in c.held if s.what == "gradients") for c in found.top}
    assert gradients == {1: WEIGHTS, 2: 4 * WEIGHTS, 4: 4 * WEIGHTS}
