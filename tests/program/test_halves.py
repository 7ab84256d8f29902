"""The halves of a backward pass, B and W: one definition for time and memory, against counts by hand."""

from __future__ import annotations

import pytest
from api import Compute, parse_strategy
from api import program_program_program as program

import symcomm as sc

LLAMA = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 16, "intermediate_size": 4096, "vocab_size": 32000,
}  # fmt: skip
GPT = {"model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 8, "n_inner": 128, "vocab_size": 128,
       "n_positions": 64}  # fmt: skip
SEQUENCE = "tensor(2) + sequence + pipeline(4, microbatches=8)"
PART = 2 * 2048 * 1024 * 2  # bytes of an activation of one microbatch


def peak(**accounting: str) -> int:
    model = sc.load(LLAMA, values={"B": 16, "L": 2048}, loss=True)
    made = model.peak_memory(SEQUENCE, schedule="zb-h1", stage=1, accounting={"softmax": "fused", **accounting})
    assert "norm_gradients" in made.touched
    return int(made.at().value)


def test_zero_bubble_with_sequence_parallelism_keeps_what_its_second_half_reads():
    """Before, 1 103 953 920 bytes. Each of the two layers of a stage keeps the gathered d(y) for the gradient of
    W^down (two halves of a tensor, of which B freed the gathered copy before W read it), but no longer the parts of
    d(m) and d(n) (half a tensor each) for the gains of its norms, which are there already: 2 x 2 x 1024 numbers.
    """
    assert peak() == 1_103_953_920 + 2 * PART - 2 * 2 * PART // 2 + 2 * 2 * 1024 * 2 == 1_103_962_112


def test_gains_of_norms_among_the_weights_keep_the_operand_of_the_norm():
    """With both gathered d(y) and the parts of d(m) and d(n), the peak was 1 120 731 136 bytes while B freed what the
    gains read in W. With the operands of the norms of this microbatch it is more.
    """
    assert peak(norm_gradients="with_weights") == 1_103_953_920 + 2 * PART + 25_034_752 == 1_145_765_888


def halves(config, strategy, **accounting):
    """What each half of the backward pass of each region makes."""
    model = sc.load(config, values={"B": 16, "L": 32}, loss=True)
    made = program(model.graph, parse_strategy(strategy), sc.Accounting(**accounting))
    found = {}
    for turn in made.turns:
        if turn.phase == "backward" and not turn.between_stages:
            name = turn.work.makes if isinstance(turn.work, Compute) else turn.work.stored
            found.setdefault(turn.region.name, {}).setdefault(name, turn.half)
    return found


def test_collectives_are_in_the_half_that_reads_what_they_make():
    """Each product in a layer of Llama reads its gathered operand for its weight alone; d(y) is read in both halves."""
    layer = halves(LLAMA, "tensor(2) + sequence")["layer"]
    gathered = {name.partition(" @ ")[0]: half for name, half in layer.items() if " @ " in name}
    assert gathered["m"] == gathered["n"] == "W"
    assert gathered["d(y)"] == "B"


def test_the_head_s_part_of_a_tied_table_is_the_gradient_of_a_weight():
    found = halves(GPT, "data(2)")
    head = next(made for region, made in found.items() if "head" in region)
    assert {half for name, half in head.items() if "W^E" in name} == {"W"}


def test_all_of_an_embedding_is_in_the_second_half():
    assert {*halves(GPT, "data(2)")["embedding"].values()} == {"W"}


@pytest.mark.parametrize(("how", "half"), [("with_inputs", "B"), ("with_weights", "W")])
def test_gains_and_biases_of_norms_go_as_the_convention_says(how, half):
    layer = halves(GPT, "data(2)", norm_gradients=how)["layer"]
    norms = {name: mine for name, mine in layer.items() if "gamma" in name or "beta" in name}
    assert len(norms) == 4
    assert {*norms.values()} == {half}
    assert {layer["d(b^1)"], layer["d(W^1)"]} == {"W"}
    assert layer["d(x)"] == "B"


def test_the_gathers_that_only_weights_need_take_their_time_in_the_second_half():
    """Of a layer B gathers d(y) and d(z) and scatters the sums d(m) and d(n); W gathers m and n."""
    model = sc.load(LLAMA, values={"B": 16, "L": 2048}, loss=True)
    made = model.step_time(SEQUENCE, schedule="zb-h1", peak="1 PFLOP/s", network="1 GB/s", latency="0 s")
    worth = {step.name: made.worth[step.name] for step in made.steps}
    assert worth["V_B,layer"] == 2 * worth["V_W,layer"]
