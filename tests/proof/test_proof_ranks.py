"""The proof: every rank's run, shards, collectives and all, equals the run of one machine.

Each layer and each op kind, under each strategy that applies to it: forward, gradients, and the updated weights.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import prod

import pytest
from api import (
    MAPS,
    Accounting,
    StrategyError,
    dy,
    num,
    parse_strategy,
    plan,
    resolve,
    share,
    training,
    update_ops,
    value,
)
from api import STRATEGIES as RECORDS
from api import form_evaluate as evaluate
from proof_cases import PASSES, Case, case, superfluous
from proof_ranks import Mesh
from proof_reference import Sizes, outside, run
from proof_tables import ALL, LAYERS, STRATEGIES, applies, graph, parts

import symcomm as sc

APPLICABLE = [(layer, strategy) for layer in ALL for strategy in STRATEGIES if applies(layer, strategy)]
VARIANTS = {
    "weights kept": Accounting(gathered_weights="keep"),
    "weights gathered at once": Accounting(gathered_weights="at_once"),
    "weights gathered in units": Accounting(gathered_weights="whole_units"),
    "activations gathered again": Accounting(gathered_activations="regather"),
    "weights kept, activations gathered again": Accounting(gathered_weights="keep", gathered_activations="regather"),
    "activations kept": Accounting(gathered_activations="keep"),
}


@cache
def _share(kind: str, ranks: int, groups: int) -> Fraction:
    return evaluate(share(kind, "all_links", "ring", num(ranks), num(groups)), {})


def all_links(one: Case) -> Fraction:
    """The numbers that the calls of a plan send over all links, as they are counted for an answer."""
    total, every = Fraction(0), prod(one.mesh.sizes.values())
    for call in one.plan.collectives:
        ranks = prod(one.mesh.sizes[m] for m in call.meshes)
        total += _share(call.kind, ranks, every // ranks) * Fraction(one.sizes.number(call.elements))
    return total


def prove(layer: str, strategy: str, accounting: Accounting | None = None, passes: str = "training") -> None:
    """Runs every rank and compares every tensor with that of one machine."""
    one = case(layer, strategy, accounting, passes)
    ranks = one.start()
    for _ in ranks.steps():
        pass
    assert ranks.sent == all_links(one)
    graph = one.plan.graph
    made = [name for name in ranks.store if name in graph.producers]
    assert set(made) == set(graph.producers)
    assert ranks.differences(one.reference, made) == []
    for name in ranks.results():
        tensor = graph.tensors[name]
        if tensor.axes:  # a loss may stay a sum, since nothing reads it
            assert not ranks.store[name].pending, name
        if tensor.axes and not graph.consumers.get(name):
            ranks.narrow(name, name, one.plan.placements[name])  # fails where a rank lacks a part of its own


# Of the small tables the default run takes the strategies that differ in kind; the long run takes all.
CORE = {"data(2)", "zero-3(2)", "tensor(2)", "tensor(2) + sequence", "context(2)", "cut(D, 2)", "expert + data(2)"}


@pytest.mark.few(161)
@pytest.mark.parametrize(
    ("layer", "strategy"),
    [(layer, s) if layer in LAYERS or s in CORE else pytest.param(layer, s, marks=pytest.mark.long)
     for layer, s in APPLICABLE],
)  # fmt: skip
def test_every_rank_agrees_with_one_machine(layer: str, strategy: str) -> None:
    prove(layer, strategy)


@pytest.mark.parametrize("layer", ALL)
def test_a_strategy_is_refused_exactly_where_it_finds_nothing_to_cut(layer: str) -> None:
    refused = set()
    for strategy in STRATEGIES:
        try:
            resolve(parse_strategy(strategy), graph(layer).forward())
        except StrategyError:
            refused.add(strategy)
    assert refused == {strategy for strategy in STRATEGIES if not applies(layer, strategy)}


_GATHER = {"zero-3", "fully-sharded", "hybrid-sharded", "sequence", "context", "ring", "cut", "expert"}


def _gathers(strategy: str) -> bool:
    return bool(parts(strategy) & _GATHER)


_VARIED = [(layer, s) for layer, s in APPLICABLE if layer in LAYERS and _gathers(s)]


@pytest.mark.few(55)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("layer", "strategy"),
    [(layer, s) if "(2)" in s and "(2, 2)" not in s and "+" not in s else pytest.param(layer, s, marks=pytest.mark.long)
     for layer, s in _VARIED],
)  # fmt: skip
def test_what_is_kept_between_the_phases_changes_no_number(layer: str, strategy: str, variant: str) -> None:
    prove(layer, strategy, VARIANTS[variant])


@pytest.mark.few(79)
@pytest.mark.parametrize("passes", PASSES[1:])
@pytest.mark.parametrize(
    ("layer", "strategy"),
    [(layer, s) if layer in LAYERS and "+" not in s else pytest.param(layer, s, marks=pytest.mark.long)
     for layer, s in APPLICABLE],
)  # fmt: skip
def test_parts_of_a_training_step_agree_as_well(layer: str, strategy: str, passes: str) -> None:
    prove(layer, strategy, passes=passes)


def test_every_op_kind_is_in_some_layer() -> None:
    found = {op.kind for layer in ALL for op in update_ops(graph(layer)).ops}
    gradients = {f"{kind.name}_gradient" for kind in MAPS if kind.differentiable and kind.derivative != dy}
    maps = {kind.name for kind in MAPS}
    assert found == {"contraction", "add", "convolution", "onehot", "route", "update", *maps, *gradients}


def test_every_strategy_has_a_case_and_a_pipeline_cuts_no_tensor() -> None:
    named = frozenset().union(*(parts(strategy) for strategy in STRATEGIES))
    assert named | {"pipeline", "spatial"} == set(RECORDS)  # images have cases of their own: test_proof_halos
    made = plan(graph("homework"), parse_strategy("pipeline(4)"))
    assert made.collectives == ()
    assert not any(made.placements.values())


@pytest.mark.long
@pytest.mark.parametrize(
    "strategy", ["data(2)", "zero-3(2)", "tensor(2)", "tensor(2) + sequence", "context(2)", "data(2) + tensor(2)"]
)
def test_every_rank_of_an_encoder_with_a_decoder_agrees_with_one_machine(strategy: str) -> None:
    """A whole model whose decoder reads the encoder's result; each of its layers stands once."""
    config = {"model_type": "t5", "d_model": 8, "num_layers": 1, "num_heads": 4, "d_kv": 2, "d_ff": 8, "vocab_size": 8,
              "relative_attention_num_buckets": 6}  # fmt: skip
    both = training(sc.load(config).graph)
    made = plan(both, parse_strategy(strategy), Accounting())
    values = {"B": 4, "L_enc": 4, "L_dec": 8, "D": 8, "n_H": 4, "H": 2, "F": 8, "V": 8, "n_bucket": 6}
    sizes = Sizes(update_ops(both), values)
    given = outside(sizes)
    mesh = Mesh({name: int(value(size)) for name, size in made.strategy.sizes.items()})
    one = Case(made, Sizes(made.graph, values), mesh, Accounting(), given, run(sizes, given))
    assert superfluous(one) == []  # which also compares every result of the whole run
