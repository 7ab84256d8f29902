"""Numbers of memory that were wrong, each derived by hand."""

from __future__ import annotations

from pathlib import Path

import memory_tables as tables
import pytest
from api import Setting, StepRun, num, parse_strategy, recipe_of, snapshots, timeline

import symcomm as sc

LAYERS = Path(__file__).parents[2] / "examples" / "layers"
PYTORCH, FUSED = {"saved": "pytorch"}, {"softmax": "fused"}
SIZES = {"N_layer": 32, "D": 4096, "L": 4096, "B": 128, "n_h": 32}
TENSOR = 128 * 4096 * 4096 * 2  # bytes of a tensor of the homework's layer
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
    "num_experts_per_tok": 2,
}  # fmt: skip


def homework() -> sc.Model:
    return tables.load(tables.HOMEWORK, repeat="N_layer", values=SIZES)


def example(name: str) -> sc.Model:
    return sc.load(LAYERS / f"{name}.md")


def test_experts_keep_nothing_where_their_layer_runs_again_as_a_whole():
    """Mixtral 8x7B with its loss keeps the input of each layer, and what its head keeps: 2 n_top B L D numbers of each
    layer less than when routed results stayed.
    """
    whole = sc.load(MIXTRAL, loss=True, values={"B": 1, "L": 4096})
    assert whole.activation_memory(recomputation="full", accounting=PYTORCH).at().value == 1_470_185_474
    assert 5_765_152_770 - 32 * 2 * (2 * 4096 * 4096) * 2 == 1_470_185_474
    layer = example("mixture-of-experts")
    assert layer.activation_memory(recomputation="full", accounting=PYTORCH).at().value == 24 * 64 * 1024 * 2048 * 2


@pytest.mark.parametrize("accounting", [{}, PYTORCH])
def test_a_table_that_runs_again_keeps_its_token_ids(accounting):
    ids = example("language-model").activation_memory(recomputation="full", accounting=accounting)
    assert ids.at().value == 2 * 8 * 1024 * 8  # token ids and labels, eight bytes each


def test_gathered_copies_of_views_are_there_once():
    model = example("grouped-query-attention")
    assert model.peak_memory("context(2)", recomputation="full").at().value == 49_358_569_472


def test_a_fused_attention_that_runs_again_makes_its_number_of_each_row():
    made = homework().peak_memory(recomputation="full", accounting=FUSED)
    assert made.at().value == 300_781_928_448 + 128 * 32 * 4096 * 4


def test_selective_recomputation_gathers_keys_and_values_again_under_context():
    """As communication has it: each rank keeps its own half of x, Q, K, V, Z, Out and of the 4 D columns of A'."""
    made = homework().activation_memory("context(2)", recomputation="selective")
    assert made.at().value == 32 * (6 + 4) * TENSOR // 2
    whole = homework().activation_memory(recomputation="selective")
    assert whole.at().value == 32 * (6 + 4) * TENSOR
    again = homework().communication("context(2)", phase="recompute", accounting="selective_recomputation")
    assert again.at().value == 32 * 2 * TENSOR


def test_fused_attention_keeps_gathered_keys_and_values_once_under_context():
    made = homework().activation_memory("context(2)", accounting=FUSED)
    assert made.at().value == 894_426_939_392 - 32 * TENSOR // 2


def test_routed_results_are_there_once_and_until_they_are_read():
    assert example("mixture-of-experts").peak_memory(accounting=PYTORCH).at().value == 873_816_129_536


@pytest.mark.parametrize("strategy", ["zero-2(2)", "fsdp(2)"])
def test_gradients_of_a_tied_table_are_sharded_behind_the_backward_pass(strategy):
    tied = {"model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 8, "n_inner": 128, "vocab_size": 128,
            "n_positions": 64}  # fmt: skip
    model = sc.load(tied, loss=True, values={"B": 8, "L": 32})
    shards = model.state_memory(strategy, of="gradients").at().value
    assert timeline(model, strategy)[-1].parts["gradients"] == shards
    often = Setting(model.graph, sc.Accounting(accumulation="reduced_every_microbatch"), values=model.values)
    for microbatches in (1, 2):
        run = StepRun(parse_strategy(strategy), recipe_of("mixed_adam"), microbatches=num(microbatches))
        assert snapshots(often, run)[-1].bytes["gradients"] == shards


@pytest.mark.parametrize("again", ["full_recomputation", "needed_recomputation"])
def test_what_experts_made_comes_back_again_where_the_routers_gradient_reads_it(again):
    """Tokens go to the experts and come back, forward and once more."""
    model, ask = example("mixture-of-experts"), {"strategy": "data(2) + expert", "accounting": again}
    forward = 24 * 2 * (2 * 64 * 1024 * 2048) * 2  # two ways in each layer, of each token two copies of two bytes
    assert model.communication(**ask, phase="forward").at().value == forward
    assert model.communication(**ask, phase="recompute").at().value == forward
