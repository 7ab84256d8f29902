"""Numbers that papers print, and numbers worked out by hand, for whole models under whole strategies."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import symcomm as sc

ROOT = Path(__file__).parents[2]
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip
MIXTRAL = LLAMA | {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2}
GPT2: dict[str, Any] = {
    "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024,
}  # fmt: skip
GIB = 2**30
EVERYWHERE = {"communication": "all_links", "pipeline": "all_boundaries"}


def homework() -> sc.Model:
    return sc.load(str(ROOT / "examples" / "comp4901y-homework2" / "homework.md"))


def test_context_parallelism_gathers_keys_and_values_before_they_are_repeated() -> None:
    """32 layers x 2 tensors x 131072 positions x 8 heads x 128 x 2 bytes."""
    model = sc.load(LLAMA, dtype="bf16", values={"B": 1, "L": 131072})
    gathered = model.communication("context(8)", collective="all-gather", phase="forward").at().value
    assert gathered == 32 * 2 * 131072 * 8 * 128 * 2 == 16 * GIB


def test_messages_are_counted_over_all_pipelines_side_by_side() -> None:
    """128 x 4096 x 4096 x 2 bytes cross 7 boundaries both ways; tensor ranks each send a whole copy."""
    batch = 128 * 4096 * 4096 * 2
    assert batch == 4 * GIB
    data = homework().communication("data(2) + pipeline(8, microbatches=16)", collective="send", accounting=EVERYWHERE)
    assert data.at().value == 2 * 7 * batch == 56 * GIB
    tensor = homework().communication(
        "tensor(2) + pipeline(8, microbatches=16)", collective="send", accounting=EVERYWHERE
    )
    assert tensor.at().value == 2 * 2 * 7 * batch == 112 * GIB


def test_messages_and_gradients_add_up_over_all_links() -> None:
    """On a ring of two, all-reduces of 12 GiB send them twice over all links."""
    every = homework().communication("data(2) + pipeline(8, microbatches=16)", accounting=EVERYWHERE)
    assert every.at().value == (56 + 24) * GIB


def test_two_axes_that_share_the_tokens_reduce_gradients_as_one() -> None:
    model = sc.load(str(ROOT / "examples" / "layers" / "two-matrix-ffn.md"))
    both, one = (model.communication(said).at().value for said in ("data(2) + context(2)", "data(4)"))
    assert both == one == 108 * 2**20


def test_the_stages_of_a_pipeline_may_be_called_as_a_step_would_be() -> None:
    stages = homework().communication("pipeline(p)", accounting="all_boundaries")
    assert stages.at(p=8, m=16).value == 56 * GIB
    assert homework().step_time("pipeline(p, microbatches=m)", device="A100-80GB-SXM").at(p=8, m=16).value > 0


@pytest.mark.parametrize(("recomputation", "calls"), [("full_recomputation", 6), ("needed_recomputation", 5)])
def test_full_recomputation_runs_all_reduces_again(recomputation: str, calls: int) -> None:
    """Two forward, two backward and two again a layer; without the last result, which backward does not read, one."""
    model = homework()
    sent = model.communication("tensor(8)", collective="all-reduce", accounting=recomputation)
    assert sent.at().value == calls * 32 * 128 * 4096 * 4096 * 2
    again = model.communication("tensor(8)", phase="recompute", accounting=recomputation)
    assert again.at().value == (calls - 4) * 32 * 128 * 4096 * 4096 * 2


def test_a_whole_gpt2_with_full_recomputation_keeps_the_inputs_of_its_layers() -> None:
    """Each layer's input; of embedding and head: a mask of a byte, the last layer's result, the norm's, ids."""
    model = sc.load(GPT2, values={"B": 8, "L": 1024}, loss=False)
    kept = model.activation_memory(recomputation="full").at().value
    stream = 8 * 1024 * 768
    assert 12 * 2 * stream == 150_994_944
    assert kept == 150_994_944 + 5 * stream + 16 * 8 * 1024


def test_experts_under_context_parallelism_work_on_a_ranks_own_tokens() -> None:
    """Of one layer of Mixtral, forward: a quarter of all products, but for the keys and values of all positions."""
    model = sc.load(MIXTRAL, values={"B": 8, "L": 4096}).part("layer")
    seconds = model.time("context(4)", phase="forward", term="compute", peak="1 TFLOP/s", memory="1 TB/s",
                         network="1 TB/s").at()  # fmt: skip
    tokens, d, kv, f = 8 * 4096, 4096, 1024, 14336
    products = 2 * tokens * (2 * d * d + 2 * d * kv + d * 8 + 2 * 3 * d * f) + 2 * 2 * tokens * 4096 * d
    assert seconds.value == Fraction(products, 4 * 10**12)
    assert round(float(seconds.value), 2) == 7.01


def test_the_loss_over_a_cut_vocabulary_sends_three_numbers_a_token() -> None:
    """In fp32: the largest logit, the sum of exponentials, the logit of the label; words are cut without it, too."""
    plain, loss = (sc.load(LLAMA, dtype="bf16", loss=said) for said in (False, True))
    with_loss, without = (m.communication("tensor(8)").at(B=2, L=8192).value for m in (loss, plain))
    assert with_loss - without == 2 * 8192 * 3 * 4
    stream = 2 * 2 * 8192 * 4096  # summed behind the embedding, twice each way in a layer, and before the head
    assert without == (2 + 4 * 32) * stream


# Narayanan et al., arXiv 2104.04473, table 1: parameters in 10^9, heads, hidden size, layers.
NARAYANAN = [
    (1.7, 24, 2304, 24), (3.6, 32, 3072, 30), (7.5, 32, 4096, 36), (18.4, 48, 6144, 40), (39.1, 64, 8192, 48),
    (76.1, 80, 10240, 60), (145.6, 96, 12288, 80), (310.1, 128, 16384, 96), (529.6, 128, 20480, 105),
    (1008.0, 160, 25600, 128),
]  # fmt: skip


@pytest.mark.parametrize(("billions", "heads", "hidden", "layers"), NARAYANAN, ids=lambda v: str(v))
def test_equation_3_of_narayanan_is_the_hardware_flops_of_whole_models(
    billions: float, heads: int, hidden: int, layers: int
) -> None:
    """F = 96 B s l h^2 (1 + s/6h + V/16lh): layers four times (once again), logits three times; s 2048, V 51200."""
    vocabulary, positions, batch = 51200, 2048, 512
    config = GPT2 | {
        "n_embd": hidden, "n_layer": layers, "n_head": heads, "vocab_size": vocabulary, "n_positions": positions,
        "attn_implementation": "eager",
    }  # fmt: skip
    model = sc.load(config)
    made = model.recomputation("full", "hardware_flops").at(B=batch, L=positions).value
    inside = 1 + Fraction(positions, 6 * hidden) + Fraction(vocabulary, 16 * layers * hidden)
    assert made == 96 * batch * positions * layers * hidden**2 * inside
    assert round(float(model.parameters().at().value) / 1e9, 1) == pytest.approx(billions, rel=0.01)


# Korthikanti et al., arXiv 2205.05198, figure 1: (heads, hidden, layers, microbatch), sequence 2048, 8-way tensor.
KORTHIKANTI = {"22B": (64, 6144, 48, 4), "175B": (96, 12288, 96, 1), "530B": (128, 20480, 105, 1),
               "1T": (160, 25600, 128, 1)}  # fmt: skip


@pytest.mark.parametrize("name", KORTHIKANTI)
@pytest.mark.parametrize("selective", [False, True])
def test_the_activations_of_a_layer_are_those_of_korthikanti(name: str, selective: bool) -> None:
    """sbh/t (34 + 5as/h) bytes with tensor and sequence parallelism (equation 4); 34 with selective recomputation."""
    heads, hidden, _, batch = KORTHIKANTI[name]
    config = GPT2 | {"n_embd": hidden, "n_layer": 1, "n_head": heads, "n_positions": 2048,
                     "attn_implementation": "eager"}  # fmt: skip
    layer = sc.load(config).part("layer")
    again = "selective" if selective else "none"
    kept = layer.activation_memory("tensor(8) + sequence", recomputation=again).at(B=batch, L=2048).value
    scores = 0 if selective else Fraction(5 * heads * 2048, hidden)
    assert kept == Fraction(2048 * batch * hidden, 8) * (34 + scores)
