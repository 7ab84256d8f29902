"""A cached decode in real processes: the step behind a prompt computes, keeps and sends what is derived.

What it must give are the rows of one pass over the whole text; a step that loses its place is found out.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import pytest
from api import Launcher, Verification, expected, main, parse_strategy, prepare, resolve, verify
from click.testing import CliRunner
from torch_source import loaded

import symcomm as sc

sys.path.insert(0, str(Path(__file__).parents[1] / "inference"))
from inference_models import model

SERVING = Path(__file__).parents[2] / "examples" / "serving" / "serving.md"
GPT2 = """{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": 64, "n_embd": 768, "n_layer": 12,
           "n_head": 12, "vocab_size": 50257}"""
OPT = """{"model_type": "opt", "architectures": ["OPTForCausalLM"], "max_position_embeddings": 1000000,
          "hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "ffn_dim": 20480,
          "vocab_size": 50272, "tie_word_embeddings": true, "torch_dtype": "bfloat16"}"""
WRITTEN = {"gpt2": GPT2, "opt": OPT}
MODELS = ("Llama-3-8B", "Gemma-2-9B", "DeepSeek-V3", "Mixtral-8x7B", "T5-base", "Mistral-7B-v0.1", "OPT-13B", *WRITTEN)


def named(name: str) -> sc.Model:
    return sc.load(WRITTEN[name]) if name in WRITTEN else model(name)


def row(found: Verification, what: str) -> Fraction:
    return next(row.measured for row in found.rows if row.what == what)


@pytest.mark.torch
@pytest.mark.few(4)
@pytest.mark.parametrize("strategy", ["tensor(2)", "", "data(2)", "data(2) + tensor(2)"])
@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_behind_a_prompt_is_the_end_of_one_pass(name: str, new: int, strategy: str) -> None:
    found = verify(named(name).decode(new=new), strategy)
    assert found.holds, [one for one in found.rows if one.difference]
    assert found.gradient_error is not None
    assert row(found, "cache that is read, one rank") > 0


def test_a_step_of_the_decoder_has_no_heads_of_the_encoder_to_cut() -> None:
    graph = model("T5-base").decode().open_step().graph
    (placed,) = resolve(parse_strategy("tensor(2)"), graph)
    assert {*placed.axes} <= graph.axes.keys()
    assert {graph.axes[axis].label for axis in placed.axes} == {"V", "n_H", "F"}


@pytest.mark.torch
def test_two_ranks_read_half_of_the_cache_and_reduce_twice_a_layer_and_once_behind_the_table() -> None:
    sizes = {"B": 3, "D": 32, "n_H": 4, "n_kv": 2, "H": 8, "F": 24, "V": 40, "N_layer": 2, "c": 7}
    found = verify(model("Llama-3-8B").decode(), "tensor(2)", {name: Fraction(n) for name, n in sizes.items()})
    assert found.holds
    assert row(found, "cache that is read, one rank") == 2 * 2 * (3 * 7 * 16) * 4 / 2  # K and V of two layers in fp32
    assert row(found, "all-reduce, forward, over tensor: calls") == 2 * 2 + 1
    assert row(found, "all-reduce, forward, over tensor") == 5 * 3 * 32 * 4
    layer = 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 24 + 2 * 8 * 32  # matrices, and pairs with 7 positions and itself
    assert row(found, "FLOPs") == 2 * 3 * (2 * layer + 32 * 40) / 2
    whole = verify(model("Llama-3-8B").decode(), "tensor(2, embedding=whole)")
    assert whole.holds
    assert row(whole, "all-reduce, forward, over tensor: calls") == 2 * 2


@pytest.mark.torch
def test_a_prefill_and_a_chunk_of_one_run_as_well() -> None:
    assert verify(model("Llama-3-8B").prefill(), "tensor(2)").holds
    chunk = verify(model("Gemma-2-9B").prefill(new=4, past=6))
    assert chunk.holds
    assert chunk.sizes["q"] == 4
    assert chunk.sizes["c"] == 6


@pytest.mark.torch
@pytest.mark.parametrize(("right", "wrong"), [
    ("angles(c + q, H)[-q:]", "angles(q, H)[-q:]"),  # positions begin anew
    ("dim=2)", "dim=2).flip(2)"),  # rows of the cache in another order
])  # fmt: skip
def test_a_step_that_loses_its_place_is_found_out(right: str, wrong: str) -> None:
    prepared = prepare(model("Llama-3-8B").decode(new=2))
    source = prepared.spec["source_text"]
    assert right in source
    with Launcher() as launch:
        found = prepared.compare(launch({**prepared.spec, "source_text": source.replace(right, wrong)}))
    assert not found.holds
    assert not any(one.difference for one in found.rows)


@pytest.mark.torch
def test_the_written_step_keeps_its_cache_from_one_token_to_the_next(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    made = CliRunner().invoke(main, ["show", str(SERVING), "--name", "step", "--to", "torch"])
    assert made.exit_code == 0, made.output
    module = loaded(made.output, tmp_path)
    sizes = {**module.SIZES, "c": 3}
    network = module.model(**sizes)
    with torch.no_grad():
        network(*module.example(**sizes))
    kept = [buffer for name, buffer in network.named_buffers() if "past" in name]
    assert {tensor.shape[2] for tensor in kept} == {4}


@pytest.mark.torch
def test_the_command_runs_the_step_of_a_document_and_says_what_was_compared() -> None:
    made = CliRunner().invoke(main, ["verify", str(SERVING), "--strategy", "tensor(2)"])
    assert made.exit_code == 0, made.output
    assert "step, Tensor: DTensor with a cache, 2 processes" in made.output
    assert "results: as in one pass over all positions" in made.output
    assert made.output.endswith("All that was compared is explained.\n")


@pytest.mark.parametrize(("more", "told"), [
    (["--strategy", "context(2)"], "error: PyTorch has no way here to run a step under Context\n"
                                   "hint: tensor(2), data(2), data(2) + tensor(2)\n"),
    (["--strategy", "pipeline(2)"], "error: PyTorch has no way here to run a step under Pipeline\n"
                                    "hint: tensor(2), data(2), data(2) + tensor(2)\n"),
    (["--softmax", "fused"], "error: a step is written with its attention op by op: PyTorch's kernel takes no earlier "
                             "positions\nhint: leave --softmax out\n"),
    (["--time"], "error: times are measured of training steps: a decode step has no backward pass\n"
                 "hint: the model itself has one\n"),
])  # fmt: skip
def test_what_a_step_cannot_have_is_told_with_what_works(more: list[str], told: str) -> None:
    made = CliRunner().invoke(main, ["verify", str(SERVING), *more])
    assert made.exit_code == 2
    assert made.output == told


def test_a_step_of_a_state_is_refused_by_its_name() -> None:
    table = (Path(__file__).parents[1] / "data" / "mamba2.tsv").read_text()
    with pytest.raises(sc.SymcommError, match=r"a step that updates a state \(`X"):
        prepare(sc.load(table).decode())


def test_experts_of_a_step_take_every_token() -> None:
    case = expected.make_case(model("Mixtral-8x7B").decode(), None, {}, "1f1b", 2)
    assert case.sizes["n_top"] == case.sizes["E"]


def test_the_written_step_is_its_model_with_a_cache() -> None:
    source = prepare(model("Gemma-2-9B").decode(new=2)).spec["source_text"]
    assert 'self.register_buffer("V_past_j", torch.randn(n_kv, B, c, H), persistent=False)' in source
    assert 'self.register_buffer("V_past_j", torch.randn(n_kv, B, min(c, L_w - 1), H), persistent=False)' in source
    assert "V_all_j = torch.cat((self.V_past_j, V_j), dim=2)" in source
    assert "self.V_past_j = V_all_j" in source
    assert ".backward()" not in source
    assert ".narrow(1, -1, 1)" in prepare(model("Llama-3-8B").prefill()).spec["source_text"]  # logits of the last one
