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
