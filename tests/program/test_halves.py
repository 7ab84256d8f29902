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


def peak(**accounting: str) -> int:
    model = sc.load(LLAMA, values={"B": 16, "L": 2048}, loss=True)
    made = model.peak_memory(SEQUENCE, schedule="zb-h1", stage=1, accounting={"softmax": "fused", **accounting})
    assert "norm_gradients" in made.touched
    return int(made.at().value)


def counted(saved: int, passing: int, layer: str) -> int:
    """The peak of stage 1, by hand in MiB: 2 layers of (4 D² + 3 D F)/2 weights, 16 bytes each, and 2 norms.

    A layer keeps 96 of a microbatch (x, n, q, k, v, z, a, m at 4; g, its SiLU, u, h at 16) and 1/8 of row statistics.
    Three microbatches are whole; of a fourth W has not run, and each layer keeps ``saved`` and ``passing`` for it.
    B makes the gradient of g: the part of d(y) and all of it, 4 + 8, d(h) and d(g), 16 each. In the first layer of
    the two, the last one has run B.
    """
    states, kept = 16 * (2 * 8 * 2**20 + 2 * 2 * 1024), 96 * 2**20 + 2**17
    last = layer == "last"
    mine = 6 * kept + 2 * saved * 2**20 if last else 5 * kept + 3 * saved * 2**20
    return states + mine + ((2 if last else 3) * passing + 44) * 2**20


def test_zero_bubble_with_sequence_parallelism_keeps_what_its_second_half_reads():
    """For W a layer keeps n, z, m (4 each) and h (16), the gradients of q, k, v (4 each), g and u (16 each), and all of
    d(a) and d(y) (8 each). Gains have one gradient, whatever number of microbatches waits for W.
    """
    assert peak() == counted(28, 60, "last") == 1_103_953_920


def test_gains_of_norms_among_the_weights_keep_the_operand_of_the_norm():
    """W reads x and a, too (4 each), and the parts of d(n) and d(m)."""
    assert peak(norm_gradients="with_weights") == counted(36, 68, "first") == 1_145_765_888


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-h2"])
def test_a_gain_has_one_gradient_though_several_microbatches_wait_for_their_second_half(schedule):
    model = sc.load(LLAMA, values={"B": 16, "L": 2048}, loss=True)
    gradients = {}
    for how in ("with_inputs", "with_weights"):
        made = model.peak_memory(SEQUENCE, schedule=schedule, stage=3, accounting={"norm_gradients": how})
        gradients[how] = next(step.form for step in made.steps if step.name == "M_G")
    assert gradients["with_inputs"] == gradients["with_weights"]


def halves(config, strategy, **accounting):
    """What each half of the backward pass of each region makes."""
    model = sc.load(config, values={"B": 16, "L": 32}, loss=True)
    made = program(model.graph, parse_strategy(strategy), sc.Accounting(**accounting))
    found = {}
    for instruction in made.instructions:
        if instruction.phase == "backward" and not instruction.between_stages:
            name = instruction.work.makes if isinstance(instruction.work, Compute) else instruction.work.stored
            found.setdefault(instruction.region.name, {}).setdefault(name, instruction.half)
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
