"""A search over whole models, with their embedding and head, against deriving every configuration by itself."""

from fractions import Fraction
from functools import cache

import pytest
from search_oracle import RATES, meshes

import symcomm as sc

CONFIGURATIONS = {
    "llama": {
        "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 120,
    },
    "gpt2": {"model_type": "gpt2", "n_embd": 32, "n_layer": 4, "n_head": 4, "n_positions": 16, "vocab_size": 120},
    "deepseek": {
        "model_type": "deepseek_v2", "hidden_size": 8, "num_hidden_layers": 8, "num_attention_heads": 2,
        "num_key_value_heads": 2, "intermediate_size": 96, "moe_intermediate_size": 16, "vocab_size": 40,
        "q_lora_rank": None, "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 4,
        "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 2,
    },
}  # fmt: skip
CONVENTION = {"none": "activations_kept", "full": "full_recomputation", "selective": "selective_recomputation"}


@cache
def whole(name: str):
    return sc.load(CONFIGURATIONS[name])


def searched(name: str, devices: int, strategies: str, **options):
    given = {"capacity": "1 TB", "capacity_is": "nominal_GB", "top": 1000, "recomputation": "none"} | RATES | options
    return sc.search(whole(name).at(B=8, L=16), devices=devices, strategies=strategies, **given)


def by_hand(name: str, c, time: str = "overlap") -> tuple[Fraction, Fraction]:
    """The time and the memory of one configuration: of the stage that holds most."""
    model, m = whole(name).at(B=8, L=16), c.microbatches
    said = None if c.strategy == "one device" else c.strategy
    how = {"recomputation": CONVENTION[c.recomputation], "time": time}
    order = {"schedule": c.schedule} if c.schedule else {}
    step = model.step_time(said, microbatches=m, accounting=how, **order, **RATES).at().value
    stages = dict(c.mesh).get("pipeline", 1)
    if stages == 1:
        small = whole(name).at(B=Fraction(8, m), L=16)
        held = [small.activation_memory(said, recomputation=c.recomputation).at().value
                + model.state_memory(said, microbatches=m).at().value]  # fmt: skip
    else:
        held = [
            model.activation_memory(said, recomputation=c.recomputation, schedule=c.schedule, stage=stage).at().value
            + model.derive("state_memory", strategy=said, stage=stage).at().value
            for stage in (range(stages) if name == "deepseek" else (0, stages - 1))
        ]
    return step, max(held)


@pytest.mark.long
@pytest.mark.parametrize(("name", "devices"), [("llama", 2), *((n, 4) for n in ("llama", "gpt2"))])
def test_every_configuration_of_a_whole_model_is_that_derived_by_hand(name, devices):
    found = searched(name, devices, "zero-1 + tensor + pipeline", microbatches="1,2", schedules="1f1b,gpipe")
    shapes = {tuple(dict(c.mesh).get(axis, 1) for axis in ("data", "tensor", "pipeline")) for c in found.top}
    # Two key/value heads of Llama go no further than two ranks; GPT-2 has four heads.
    assert shapes == {shape for shape in meshes(devices) if shape[1] <= (2 if name == "llama" else 4)}
    for c in found.top:
        assert (c.time.value, c.memory.value) == by_hand(name, c), c.strategy


@pytest.mark.long
@pytest.mark.parametrize("devices", [2, pytest.param(8, marks=pytest.mark.long)])
def test_stages_of_two_kinds_of_layers_are_those_derived_by_hand(devices):
    every = {"microbatches": "1,2", "schedules": "1f1b,gpipe"} if devices > 2 else {"microbatches": "2"}
    found = searched("deepseek", devices, "data + tensor + pipeline" if devices > 2 else "pipeline", **every)
    stages = {dict(c.mesh).get("pipeline", 1) for c in found.top}
    assert stages == ({1, 2, 4, 8} if devices > 2 else {2})  # eight stages have one layer each: two have a dense one
    for c in found.top:
        assert (c.time.value, c.memory.value) == by_hand("deepseek", c), c.strategy
        assert sum(s.amount for s in c.shares) == c.time.value
        assert sum(s.amount for s in c.held) == c.memory.value


def test_how_many_layers_of_each_kind_there_are_has_to_be_one_number():
    with pytest.raises(
        sc.SymcommError, match="the layers of a stage depend on N_dense, which has to be one number"
    ):
        searched("deepseek", 2, "pipeline", sizes={"N_dense": "1,2"})


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("how", ["selective", "full"])
def test_every_way_to_train_a_whole_model_is_that_derived_by_hand(name, how):
    for kind in ("data", "fully-sharded"):
        found = searched(name, 4, f"{kind} + tensor + sequence + pipeline", microbatches="1,4", recomputation=how)
        assert found.feasible > 8
        for c in found.top:
            assert (c.time.value, c.memory.value) == by_hand(name, c), c.strategy


@pytest.mark.long
def test_what_a_stage_of_a_whole_model_spends_adds_up_to_the_step():
    for time in ("overlap", "serial", "per_op"):
        for gradients in ("end_of_batch", "with_backward"):
            found = searched("llama", 4, "data + tensor + pipeline", microbatches="2",
                             accounting={"time": time, "gradient_sync": gradients})  # fmt: skip
            assert {len(c.mesh) for c in found.top} == {2, 3}
            for c in found.top:
                assert sum(s.amount for s in c.shares) == c.time.value
                assert all(s.amount > 0 for s in c.shares)
                network = sum(s.amount for s in c.shares if s.what == "collectives")
                assert sum(s.amount for s in c.calls) == network
                assert sum(s.amount for s in c.held) == c.memory.value


def test_a_vocabulary_that_fills_the_last_stage_makes_it_the_one_that_counts():
    found = searched("llama", 2, "pipeline", microbatches="8")
    [one] = found.top
    model = whole("llama").at(B=8, L=16)
    first, last = (
        model.activation_memory(one.strategy, schedule="1f1b", stage=stage).at().value
        + model.derive("state_memory", strategy=one.strategy, stage=stage).at().value
        for stage in (0, 1)
    )
    assert one.memory.value == max(first, last)
    assert first != last
    assert any("first and the last one hold more than layers" in note for note in found.notes)


def test_buckets_of_a_whole_model_are_refused():
    with pytest.raises(sc.SymcommError, match="buckets are of layers that are alike"):
        searched("gpt2", 2, "data", buckets="1,2", call_overhead="20 us")


@pytest.mark.parametrize(("said", "attends"), [({}, "fused"), ({"attn_implementation": "eager"}, "library")])
def test_a_search_names_how_a_configuration_attends(said, attends):
    model = sc.load(CONFIGURATIONS["llama"] | said).at(B=8, L=16)
    found = sc.search(model, devices=2, capacity="1 TB", capacity_is="nominal_GB", strategies="data", **RATES)
    assert {row.field: row.name for row in found.conventions}["softmax"] == attends


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["llama", "deepseek"])
def test_ranks_of_ulysses_that_outnumber_the_heads_share_them_as_one_by_one(name):
    """Two key/value heads over four ranks; of DeepSeek the ranks share the part of the keys that all heads have."""
    ranks = 4 if name == "llama" else 2
    found = searched(name, 2 * ranks, "data + ulysses", microbatches="1,2", links="ulysses=3 GB/s")
    told = [c for c in found.top if dict(c.mesh)["ulysses"] == ranks]
    assert [c.strategy for c in told] == [f"data(2) + ulysses({ranks})"] * 2
    model = whole(name).at(B=8, L=16)
    for c in told:
        rates = RATES | {"microbatches": c.microbatches, "links": "ulysses=3 GB/s"}
        small = whole(name).at(B=Fraction(8, c.microbatches), L=16).activation_memory(c.strategy).at().value
        states = model.state_memory(c.strategy, microbatches=c.microbatches).at().value
        assert (c.time, c.memory.value) == (model.step_time(c.strategy, **rates).at(), small + states)
