"""States of optimizers that depend on the shapes of weights, against sums over the weights that were made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from api import SymcommError

import symcomm as sc

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_long_context.json").read_text())
BOUNDS = {"block": "block", "min": "elements", "min_dim": "side", "max_dim": "most"}


def model_of(sizes: dict[str, int]) -> sc.Model:
    config = {
        "model_type": "mixtral" if "E" in sizes else "llama", "hidden_size": sizes["D"], "vocab_size": sizes["V"],
        "intermediate_size": sizes["F"], "num_hidden_layers": sizes["N"], "num_attention_heads": sizes["nh"],
        "num_key_value_heads": sizes["nkv"], "head_dim": sizes["H"],
    }  # fmt: skip
    if "E" in sizes:
        config |= {"num_local_experts": sizes["E"], "num_experts_per_tok": sizes["k"]}
    return sc.load(config)


STATES = [c for c in GOLDEN["cases"] if c["area"] == "optimizer.state"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in STATES])
def test_the_states_of_an_optimizer_are_those_of_each_weight(case: dict[str, Any]) -> None:
    bounds = ", ".join(f"{name}={case['options'][key]}" for key, name in BOUNDS.items() if key in case["options"])
    recipe = "fp32_" + case["question"].split()[-1] + (f"({bounds})" if bounds else "")
    answer = model_of(GOLDEN["models"][case["model"]]).state_memory(recipe=recipe, of="states")
    assert answer.at().value == int(case["value"])
    answer.check(deep=True)


LAYER = sc.load("Computation\tInput\tOutput\ny = xW + b\tx [B, D], W [D, F], b [F]\ty [B, F]\n")


def test_an_fp32_copy_is_kept_beside_the_states() -> None:
    made = LAYER.state_memory(recipe="mixed_muon", of="states").at(D=6, F=10)
    assert made.value == 60 * (4 + 4) + 10 * (4 + 8)


def test_tensor_parallelism_cuts_the_sides_of_a_matrix() -> None:
    model = model_of({"D": 64, "F": 96, "N": 1, "nh": 4, "nkv": 2, "H": 16, "V": 32})
    whole = 4 * (64 + 32) * 2 + 4 * 2 * 64 + 4 * 64  # two tables, two norms, the last norm
    attention = 4 * ((64 + 64) + 2 * (64 + 32) + (64 + 64)) + 4 * 3 * (64 + 96)
    assert model.state_memory(recipe="fp32_adafactor(side=8)", of="states").at().value == whole + attention
    # The loss lets the vocabulary be cut, too.
    tables = 4 * (64 + 16) * 2 + 4 * 2 * 64 + 4 * 64
    half = 4 * ((32 + 64) + 2 * (64 + 16) + (32 + 64)) + 4 * 3 * (64 + 48)
    cut = model.state_memory("tensor(2)", recipe="fp32_adafactor(side=8)", of="states")
    assert cut.at().value == tables + half


def test_a_bound_that_decided_is_a_condition_of_the_answer() -> None:
    answer = LAYER.at(D=128, F=256).state_memory(recipe="fp32_adafactor", of="states")
    assert [str(one) for one in answer.where] == ["F >= 128", "D >= 128"]
    assert answer.at().value == 4 * (128 + 256) + 4 * 256


@pytest.mark.parametrize(
    ("recipe", "strategy", "message"),
    [
        ("fp32_adafactor", None, "what fp32_adafactor keeps depends on the sizes: no value is given for F\n"
         "hint: for instance model.at(F=1024), or given: {F: 1024}"),
        ("fp32_adafactor(block=3)", None, "fp32_adafactor has no 'block'\nhint: known: side"),
        ("fp32_adafactor(side=0)", None, "side of fp32_adafactor is '0'\nhint: a whole number of at least 1"),
        ("fp32_muon", "zero-1(8)", "fp32_muon keeps rows, columns or blocks of whole weights; a shard of a weight is "
         "none of them\nhint: tensor(8), or a recipe of bytes a parameter, such as fp32_adam"),
    ],
)  # fmt: skip
def test_what_is_not_derived_is_refused(recipe: str, strategy: str | None, message: str) -> None:
    with pytest.raises(SymcommError) as caught:
        LAYER.state_memory(strategy, recipe=recipe)
    assert str(caught.value) == message


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["adamw8bit", "adafactor(side=10)", "muon", "shampoo"])
@pytest.mark.parametrize(
    ("strategy", "more"),
    [(None, {}), ("tensor(2)", {}), ("data(2)", {}), ("pipeline(3, microbatches=2)", {"stage": 2})],
)
def test_the_peak_has_the_states_of_each_shape(name: str, strategy: str | None, more: dict[str, int]) -> None:
    """The states are there during the whole step, so that a recipe without any has a peak that is less by them."""
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
              "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128}  # fmt: skip
    model = sc.load(config).at(B=2, L=16)
    for format_, size in (("fp32", 4), ("mixed", 2)):
        recipe = f"{format_}_{name}"
        peaks = [model.peak_memory(strategy, recipe=said, **more).at().value
                 for said in (recipe, {"weights": size, "gradients": size})]  # fmt: skip
        assert peaks[0] - peaks[1] == model.state_memory(strategy, recipe=recipe, of="states", **more).at().value


def test_the_peak_of_states_by_shape_is_told_and_refused_as_the_states_are() -> None:
    model = LAYER.at(B=2, D=4, F=8)
    model.peak_memory(recipe="mixed_muon").check(deep=True)
    there = model.peak_memory(recipe="mixed_muon", accounting="states_on_host")
    assert there.at() == model.peak_memory(recipe="2+2+0").at()
    assert "offloading" in there.touched
    with pytest.raises(SymcommError, match="mixed_muon keeps rows, columns or blocks of whole weights"):
        model.peak_memory("zero-1(2)", recipe="mixed_muon")


TIED = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, "head_dim": 16}  # fmt: skip
MATRICES = [(64, 64), (64, 32), (64, 32), (64, 64), (64, 160), (64, 160), (160, 64)]  # of a layer
TABLES, VECTORS = [(128, 64), (128, 64)], [64] * 7


@pytest.mark.few(3)
@pytest.mark.parametrize(("recipe", "table", "hidden", "vector"), [
    ("fp32_sgd for tables, fp32_muon", lambda n: 0, lambda n: 4 * n, lambda n: 8 * n),
    ("mixed_momentum for vectors, mixed_adam", lambda n: 12 * n, lambda n: 12 * n, lambda n: 8 * n),
    ("fp32_lion for hidden, fp32_adamw8bit(block=32, elements=100) for matrices, fp32_adam",
     lambda n: 2 * n + 8 * -(-n // 32), lambda n: 4 * n, lambda n: 8 * n),
])  # fmt: skip
def test_each_weight_has_the_states_of_the_first_recipe_that_is_for_it(
    recipe: str, table: Any, hidden: Any, vector: Any
) -> None:
    model = sc.load(TIED)
    by_hand = (sum(table(r * c) for r, c in TABLES) + 3 * sum(hidden(r * c) for r, c in MATRICES)
               + sum(map(vector, VECTORS)))  # fmt: skip
    made = model.state_memory(recipe=recipe, of="states")
    assert made.at().value == by_hand
    made.check(deep=True)
    size = 2 if recipe.startswith("mixed") else 4
    peaks = [model.at(B=2, L=16).peak_memory(recipe=said).at().value
             for said in (recipe, {"weights": size, "gradients": size})]  # fmt: skip
    assert peaks[0] - peaks[1] == by_hand


@pytest.mark.parametrize("strategy", ["zero-1(4)", "fully-sharded(4)"])
def test_states_of_so_many_bytes_a_number_are_sharded_whatever_weight_they_are_of(strategy: str) -> None:
    model, recipe = sc.load(TIED).at(B=8, L=16), "fp32_lion for hidden, fp32_adam"
    numbers = 3 * sum(r * c for r, c in MATRICES), sum(r * c for r, c in TABLES) + sum(VECTORS)
    made = model.state_memory(strategy, recipe=recipe, of="states")
    assert made.at().value == (4 * numbers[0] + 8 * numbers[1]) / 4
    made.check(deep=True)
    peaks = [model.peak_memory(strategy, recipe=said).at().value for said in (recipe, "4+4+0")]
    assert peaks[0] - peaks[1] == made.at().value
    with pytest.raises(SymcommError) as caught:
        model.state_memory(strategy, recipe=recipe, accounting="padded_shards")
    assert str(caught.value) == (
        f"filled-up shards of {recipe} are not counted\nhint: shards: mean_shard"
    )


def test_two_axes_of_the_mesh_that_cut_one_side_both_count() -> None:
    """A side of 48 over 2 x 3 ranks is 8 long, and a block has 16 of 8 x 10 numbers."""
    cut = LAYER.at(B=6, D=48, F=10).state_memory(
        "cut(D, 2, mesh=a) + cut(D, 3, mesh=b)", recipe="fp32_adamw8bit(block=16, elements=50)", of="states"
    )
    assert cut.at().value == 2 * 80 + 8 * 5 + 8 * 10


def test_recipes_by_the_name_of_a_weight_and_with_weights_of_several_formats() -> None:
    one = LAYER.at(D=6, F=10)
    assert one.state_memory(recipe="fp32_sgd for b, fp32_adam", of="states").at().value == 8 * 60
    mixed = one.state_memory(recipe="fp32_adam for vectors, 2+2+2")
    assert mixed.at().value == 10 * (4 + 4 + 8) + 60 * (2 + 2 + 2)
    mixed.check(deep=True)


def test_a_frozen_matrix_of_qlora_has_four_bits_and_doubly_quantized_scales() -> None:
    """Hidden matrices are 0.5 bytes, a byte for 64 numbers and 4 bytes for 256 of these: 0.127 bits, as printed."""
    model, frozen = sc.load(TIED), "W*"
    made = model.state_memory(recipe="qlora_adam", frozen=frozen, of="weights")
    four_bits = sum(n / 2 + -(-n // 64) + 4 * -(-n // 2**14) for r, c in MATRICES for n in [r * c])
    assert made.at().value == 3 * four_bits + 2 * (sum(r * c for r, c in TABLES) + sum(VECTORS))
    made.check(deep=True)
    assert model.state_memory(recipe="qlora_adam", frozen=frozen, of="states").at().value == 8 * sum(VECTORS)
    large = LAYER.at(D=4096, F=4096).state_memory(recipe="qlora_adam", frozen="W", of="weights").at().value
    assert float(8 * (large - 2 * 4096) / 4096**2) == pytest.approx(4 + 0.127, abs=5e-4)


def test_weights_in_fp8_have_a_scale_for_each_tile() -> None:
    config = {**TIED, "hidden_size": 320, "num_attention_heads": 4, "head_dim": 80}
    matrices = [(320, 320), (320, 160), (320, 160), (320, 320), (320, 160), (320, 160), (160, 320)]
    tiles = sum(-(-r // 128) * -(-c // 128) for r, c in matrices)
    numbers, rest = sum(r * c for r, c in matrices), 2 * 128 * 320 + 7 * 320
    weights = sc.load(config).state_memory(recipe="fp8_adam", of="weights")
    assert weights.at().value == 3 * (numbers + 4 * tiles) + 2 * rest
    weights.check(deep=True)
    states = sc.load(config).state_memory(recipe="fp8_adam", of="states").at().value
    assert states == 8 * (3 * numbers + rest)  # a copy in fp32 and two moments in bf16


@pytest.mark.parametrize(("recipe", "message"), [
    ("fp32_muon for hidden", "the recipe 'fp32_muon for hidden' leaves weights without a recipe\n"
     "hint: such as fp32_muon for hidden, fp32_adam"),
    ("fp32_sgd, fp32_muon for hidden, fp32_adam", "the recipe 'fp32_sgd, fp32_muon for hidden, fp32_adam' comes before "
     "the last recipe, but is for all weights\nhint: such as fp32_muon for hidden, fp32_adam"),
    ("mixed_muon for hidden, fp32_adam", "of 'mixed_muon for hidden, fp32_adam' only some have a copy of the weights\n"
     "hint: all mixed_, or all fp32_"),
    ("fp32_muon for hiden, fp32_adam", "no weight is called 'hiden'\nhint: did you mean 'hidden'?"),
])  # fmt: skip
def test_recipes_that_leave_a_weight_out_or_name_none_are_refused(recipe: str, message: str) -> None:
    with pytest.raises(SymcommError) as caught:
        LAYER.at(D=6, F=10).state_memory(recipe=recipe)
    assert str(caught.value) == message
