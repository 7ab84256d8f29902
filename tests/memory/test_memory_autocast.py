"""Mixed precision: the format of every tensor under autocast, its copies, and what is kept for backward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import symcomm as sc
from symcomm.dtypes import Autocast
from symcomm.errors import ValuesError
from symcomm.graph.autocast import result_format
from symcomm.setting import Setting

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_formats.json").read_text(encoding="utf-8"))
NAMES = {"matmul": "product", "linear": "product", "layer_norm": "layernorm", "cross_entropy": "crossentropy",
         "a + a": "add", "cat a, w": "elementwise"}  # fmt: skip
MODEL = r"""| Computation | Input | Output |
|---|---|---|
| $h = x W^1$ | $x$ [B, D], $W^1$ [D, F] | $h$ [B, F] |
| $r = relu(h)$ | - | $r$ [B, F] |
| $n = layernorm(r, g, b)$ | $g$ [F], $b$ [F] | $n$ [B, F] |
| $z = n W^2$ | $W^2$ [F, C] | $z$ [B, C] |
"""
LOSS = r"| $\ell = crossentropy(z, t)$ | $t \in \mathbb{Z}^{B}$ | $\ell \in \mathbb{R}$ |" + "\n"


@pytest.mark.parametrize("row", GOLDEN["autocast_ops"], ids=lambda row: row["op"])
def test_each_op_runs_in_the_format_that_pytorch_dispatches_it_in(row: dict[str, Any]) -> None:
    name = NAMES.get(row["op"], row["op"])
    for column, formats in row.items():
        if column == "op":
            continue
        device, low = column.split()
        said = Autocast(low, device)
        assert result_format(name, ("fp32", "fp32"), said) == formats["inputs_fp32"]
        assert result_format(name, (low, low), said) == formats["inputs_low"]
        if row["op"] != "a + a":
            assert result_format(name, (low, "fp32"), said) == formats["first_low_second_fp32"]


def under(text: str, said: str) -> Setting:
    model = sc.load(text)
    return Setting(model.graph).in_format(said)


def test_the_tensors_of_the_documents_model_have_the_formats_that_pytorch_gives_them() -> None:
    row = GOLDEN["autocast_model"]["cuda fp16"]
    tensors = under(MODEL + LOSS, "autocast(fp16)").graph.tensors
    assert {tensors[name].dtype for name in ("W^1", "g", "b", "W^2")} == {row["parameters"]}
    told = {"h": "fc1_output", "r": "relu_output", "n": "layer_norm_output", "z": "logits"}
    for name, key in told.items():
        assert tensors[name].dtype == row[key] == row[f"gradient_of_{key}"], name
    assert tensors[r"ell"].dtype == row["cross_entropy_loss"]


def test_copies_of_weights_are_kept_beside_them() -> None:
    model = sc.load(MODEL)
    B, D, F, C = (model.graph.axes[name].size for name in "BDFC")
    copies = model.cast_copies(dtype="autocast(bf16)")
    copies.check(deep=True)
    assert (copies.expr - 2 * (D * F + F * C)).expand() == 0
    kept = model.activation_memory(dtype="autocast(bf16)", accounting={"saved": "pytorch"})
    kept.check(deep=True)
    # x and n in bf16, r in bf16 and, for the norm, in fp32 with two numbers a row; and the copies of both weights.
    assert (kept.expr - (2 * B * (D + F) + 2 * B * F + 4 * B * F + 8 * B + 2 * (D * F + F * C))).expand() == 0
    assert any("W^1" in str(cell) and row[2] == "fp32" for row in copies.exhibits[0].rows for cell in row[:1])


def test_a_model_may_run_under_autocast_as_a_whole() -> None:
    model = sc.load(MODEL, dtype="autocast(fp16)")
    same = sc.load(MODEL).activation_memory(dtype="autocast(fp16)")
    assert model.activation_memory().expr == same.expr
    assert model.communication("data(4)").expr == sc.load(MODEL, dtype="fp32").communication("data(4)").expr
    assert model.flops("training").expr == sc.load(MODEL).flops("training").expr


def test_strategies_that_cut_weights_are_refused_under_autocast() -> None:
    model = sc.load(MODEL, dtype="autocast(fp16)")
    assert model.communication("zero-1(4)").expr == sc.load(MODEL, dtype="fp32").communication("zero-1(4)").expr
    for strategy in ("tensor(2)", "fsdp(2)"):
        with pytest.raises(sc.SymcommError, match="under autocast is not derived"):
            model.communication(strategy)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sc.load(MODEL, dtype="autocast(fp8_e5m2)"), "'autocast(fp8_e5m2)' is no autocast"),
        (lambda: sc.load(MODEL, dtype="autocast(fp16, tpu)"), "'autocast(fp16, tpu)' is no autocast"),
        (lambda: sc.load(MODEL, dtype="autocast(fp17)"), "unknown number format 'fp17'"),
        (lambda: sc.load(MODEL, dtype="autocast(fp16)").traffic(dtype="bf16"), "the model runs under autocast"),
        (lambda: sc.load(MODEL).cast_copies(), "the model runs in one format: nothing is copied"),
        (lambda: under(MODEL.replace("relu", "gelu_new"), "autocast(fp16)"), "gelu_new is written out in steps"),
    ],
)  # fmt: skip
def test_each_wrong_mixture_has_an_error_of_its_own(call: Any, message: str) -> None:
    with pytest.raises(ValuesError) as error:
        call()
    assert message in str(error.value)
    assert error.value.hint
