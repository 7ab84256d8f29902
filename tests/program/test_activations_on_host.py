"""Activations on the host: every quantity answers for the convention as for the rewrite that it is."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from api import accounting_CONVENTIONS, from_expr
from api import form_evaluate as evaluate

import symcomm as sc

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_long_context.json").read_text())["cases"]
T, D, N = 4096, 16, 6
ROWS = """Computation\tInput\tOutput
a = x W\tx [T, D], W [D, F]\ta [T, F]
u = relu(a)\ta [T, F]\tu [T, F]
y = u U\tU [F, D]\ty [T, D]
"""
LAYER = 4 * T * (D + 4 * D)  # bytes of x and u; the gradient of relu reads u
RATES = {"peak": "1 PFLOP/s", "network": "1 TB/s", "memory": "1 PB/s", "latency": "0 s", "links": {"host": "1 GB/s"}}
THERE = "activations_on_host"


def layers() -> sc.Model:
    return sc.load(ROWS, repeat="N", dtype="fp32", values={"T": T, "D": D, "F": 4 * D, "N": N})


def test_the_device_keeps_nothing_of_a_layer_between_its_passes() -> None:
    """The peak is in the first layer, when the gradients of the others are there: two matrices of 4 D^2 each."""
    here, there = layers(), {"accounting": THERE}
    assert (here.activation_memory().at().value, here.activation_memory(**there).at().value) == (N * LAYER, 0)
    peaks = [here.peak_memory(recipe="fp32_sgd", **how).at().value for how in ({}, there)]
    assert peaks[0] - peaks[1] == (N - 1) * (LAYER - 4 * 2 * 4 * D**2)
    assert "offloading" in here.peak_memory(recipe="fp32_sgd", **there).touched


@pytest.mark.parametrize("strategy", ["data(2)", "tensor(2)"])
def test_each_kept_byte_goes_out_and_comes_back_once(strategy: str) -> None:
    """Half of the tokens; or all of x and half of the columns of u."""
    kept = LAYER // 2 if strategy == "data(2)" else 4 * T * (D + 2 * D)
    made = layers().communication(strategy, level="host", accounting=THERE)
    assert made.at().value == 2 * N * kept
    assert layers().communication(strategy, level="host", phase="forward", accounting=THERE).at().value == N * kept
    assert layers().communication(strategy, accounting=THERE).at() == layers().communication(strategy).at()
    made.check(deep=True)


def test_with_full_recomputation_a_layer_keeps_its_input_on_the_host() -> None:
    how = {"accounting": ["full_recomputation", THERE]}
    moved = layers().communication("data(2)", level="host", **how).at().value
    assert moved == 2 * N * 4 * T * D // 2
    assert layers().activation_memory(recomputation="full", accounting=THERE).at().value == 0


def test_states_and_activations_are_both_there() -> None:
    both = layers().communication("zero-1(2)", level="host", accounting="states_and_activations_on_host").at().value
    apart = [layers().communication("zero-1(2)", level="host", accounting=how).at().value
             for how in ("states_on_host", THERE)]  # fmt: skip
    assert both == sum(apart)


@pytest.mark.parametrize("how", ["overlap", "serial"])
def test_a_search_fits_what_it_copies_and_takes_its_time(how: str) -> None:
    asked: dict[str, Any] = {"capacity": "1 MB", "capacity_is": "usable", "recipe": "fp32_sgd",
                             "microbatches": "1", **RATES}  # fmt: skip
    found = [
        sc.search(layers(), devices=2, strategies="data", recomputation="none", jobs=1, accounting=said, **asked)
        for said in ([how], [how, THERE])
    ]
    assert [len(one.top) for one in found] == [0, 1]
    step = layers().step_time("data(2)", microbatches=1, accounting=[how, THERE], **RATES)
    assert found[1].top[0].time.value == step.at().value
    step.check(deep=True)


@pytest.mark.parametrize("case", [case for case in GOLDEN if case["area"] == "offload.activations"][:1])
def test_a_checkpoint_of_each_layer_goes_out_and_comes_back(case: dict[str, Any]) -> None:
    at = {name: int(value) for name, value in case["at"].items()}
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": at["D"], "n_head": 32, "vocab_size": 64,
              "n_positions": at["L"]}  # fmt: skip
    model = sc.load(config).at(B=1, L=at["L"])
    rates = {"peak": Fraction(at["R"]), "memory": Fraction(10**18), "network": Fraction(10**18),
             "links": {"host": f"{at['W'] // 10**9} GB/s"}, "dtype": "fp16"}  # fmt: skip
    how = ["full_recomputation", "library", THERE]
    computing, copying, hidden, _ = map(Fraction, case["value"])
    step = model.step_time("data(1)", accounting=how, **rates)
    numbers = {name: evaluate(from_expr(form), step.values()) for name, form in step.worth.items()}
    # Forward, again, and both gradients; out, and back.
    times = [numbers["t_compute_layer"] / 4, numbers["t_network_layer"] / 2]
    assert times == [computing, copying]
    assert min(Fraction(1), times[0] / times[1]) == hidden


def test_what_a_function_keeps_besides_its_result_stays_on_the_device() -> None:
    """GELU written out keeps its operand, its sigmoid and, for U, its result; of one shape, and the sigmoid stays."""
    model = sc.load(
        ROWS.replace("relu", "quick_gelu"), repeat="N", dtype="fp32", values={"T": T, "D": D, "F": 8, "N": N}
    )
    there = {"saved": "pytorch", "offloading": THERE}
    assert model.activation_memory(accounting="pytorch").at().value == N * 4 * T * (D + 3 * 8)
    assert model.activation_memory(accounting=there).at().value == N * 4 * T * 8
    moved = model.communication("data(2)", level="host", accounting=there)
    assert moved.at().value == 2 * N * 4 * T * (D + 2 * 8) // 2


def test_a_table_whose_gradients_read_what_pytorch_keeps_does_not_name_it() -> None:
    """GELU that is one function keeps its operand either way; the one that is written out keeps more."""
    asked = [sc.load(ROWS.replace("relu", name), values={"T": 48, "D": 4, "F": 10}) for name in ("gelu", "quick_gelu")]
    assert ["saved" in model.activation_memory().touched for model in asked] == [False, True]
    assert ["saved" in model.peak_memory().touched for model in asked] == [False, True]


def test_each_choice_says_in_its_row_what_rests_on_the_host_and_on_its_disks() -> None:
    rows = [row for row in accounting_CONVENTIONS if row.field == "offloading"]
    model = {"weight", "gradient", "state"}
    assert {row.name: (row.roles - row.deeper, row.deeper) for row in rows if row.deeper} == {
        "states_on_nvme": (set(), {"state"}), "activations_on_nvme": (set(), {"activation"}),
        "states_and_gradients_on_nvme": (set(), {"state", "gradient"}),
        "states_on_nvme_model_on_host": ({"weight", "gradient"}, {"state"}),
        "states_on_nvme_rest_on_host": ({"weight", "gradient", "activation"}, {"state"}),
        "model_on_nvme": (set(), model), "model_on_nvme_activations_on_host": ({"activation"}, model),
        "everything_on_nvme": (set(), model | {"activation"}),
    }  # fmt: skip
    assert {row.name: row.roles for row in rows if not row.deeper} == {
        "on_device": set(), "states_on_host": {"state"}, THERE: {"activation"},
        "states_and_activations_on_host": {"state", "activation"},
        "states_and_gradients_on_host": {"state", "gradient"}, "model_on_host": {"weight", "gradient", "state"},
        "everything_on_host": {"weight", "gradient", "state", "activation"},
    }  # fmt: skip
    assert not any(row.roles for row in accounting_CONVENTIONS if row.field != "offloading")
