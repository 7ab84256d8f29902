"""Number formats: one for all numbers, or one a tensor, in every quantity."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from api import QUANTITIES, ValuesError, formats, main
from click.testing import CliRunner
from sympy import Expr, expand, symbols

import symcomm as sc

PRODUCT = r"""| Computation | Input | Output |
|---|---|---|
| $Y = XW$ | $X \in \mathbb{R}^{B \times D}, W \in \mathbb{R}^{D \times F}$ | $Y \in \mathbb{R}^{B \times F}$ |
"""
PAIR = PRODUCT + r"| $Z = YU$ | $U \in \mathbb{R}^{F \times D}$ | $Z \in \mathbb{R}^{B \times D}$ |" + "\n"
OF_TENSORS = "X=fp8, W=fp8, Y=fp32"
B, D, F, k = symbols("B D F k", positive=True, integer=True)
R, W_mem = symbols("R W_mem", positive=True)


@pytest.mark.parametrize(
    ("quantity", "options", "expected"),
    [
        # X and W take a byte an element, Y four.
        ("traffic", {}, B * D + D * F + 4 * B * F),
        ("intensity", {}, 2 * B * D * F / (B * D + D * F + 4 * B * F)),
        ("tensor_size", {"tensor": "Y"}, 4 * B * F),
        ("tensor_size", {"tensor": "W"}, D * F),
        # The gradient of W needs X, that of X needs W, which is kept anyway.
        ("activation_memory", {}, B * D),
        # The gradient of W has the format of W; without tensors parallel nothing else is sent.
        ("communication", {"strategy": "data(k)"}, D * F),
        # Forward reads X and W and writes Y; backward reads dY and W for dX, and dY and X for dW.
        ("time", {"term": "memory"}, (3 * B * D + 3 * D * F + 12 * B * F) / W_mem),
        ("time", {"term": "compute"}, 6 * B * D * F / R),
        ("step_time", {"accounting": "serial"}, (3 * B * D + 3 * D * F + 12 * B * F) / W_mem + 6 * B * D * F / R),
    ],
)
def test_the_formats_of_tensors_are_used(quantity: str, options: dict[str, Any], expected: Expr) -> None:
    made = sc.load(PRODUCT).derive(quantity, dtype=OF_TENSORS, **options).expr
    assert expand(1 / made - 1 / expected).equals(0), made


ASKED: dict[str, dict[str, Any]] = {
    "traffic": {},
    "intensity": {},
    "tensor_size": {"tensor": "Y"},
    "activation_memory": {"strategy": "tensor(k)"},
    "peak_memory": {"strategy": "fsdp(2)"},
    "allocated_memory": {"held": "X,Y"},
    "communication": {"strategy": "fsdp(k) + tensor(t)"},
    "time": {"strategy": "tensor(k)"},
    "step_time": {"strategy": "data(k)"},
    "roofline": {},
    "bound": {},
    "compute_bound": {"strategy": "fsdp(k) + tensor(t)"},
    "throughput": {},
    "training_cost": {},
    "noise_scale_batch": {},
    "scaling": {"strategy": "data(k)"},
    "mesh_split": {"strategy": "fsdp(x) + tensor(y)", "devices": 64},
    "crossover": {"between": "compute, memory", "over": "B"},
}
WITHOUT_TENSORS = {
    "collective_time", "collective_table", "collective_crossover", "peak_rate", "number_format", "rounded",
    "loss_scaling", "cast_copies", "balance",
}  # fmt: skip
# Of the steps of a language model; their formats are in tests/inference.
OF_STEPS = {
    "kv_cache", "prefill_time", "decode_time", "request_latency", "decode_throughput", "critical_batch",
    "serving_capacity", "cache_of_sequences", "attention_intensity", "memory_bound_decode",
}  # fmt: skip


def test_every_quantity_with_a_format_is_asked_below() -> None:
    having = {name for name, q in QUANTITIES.items() if any(o.name == "dtype" for o in q.options)}
    assert having == {*ASKED} | WITHOUT_TENSORS | OF_STEPS


SLOW = {"scaling", "step_time", "mesh_split", "throughput", "compute_bound", "crossover", "roofline", "training_cost",
        "noise_scale_batch"}  # fmt: skip


@pytest.mark.few(5)
@pytest.mark.parametrize("quantity", [pytest.param(q, marks=pytest.mark.long if q in SLOW else ()) for q in ASKED])
def test_a_format_said_of_every_tensor_is_the_format_of_all(quantity: str) -> None:
    sizes, all_of_them = {"B": 64, "D": 128, "F": 512}, "X=fp8, W=fp8, Y=fp8, U=fp8, Z=fp8"
    every = sc.load(PAIR, values=sizes).derive(quantity, dtype="fp8", **ASKED[quantity])
    assert sc.load(PAIR, values=sizes).derive(quantity, dtype=all_of_them, **ASKED[quantity]).expr == every.expr
    assert sc.load(PAIR, values=sizes, dtype=all_of_them).derive(quantity, **ASKED[quantity]).expr == every.expr


@pytest.mark.parametrize("quantity", ASKED)
def test_several_formats_for_all_numbers_are_refused_everywhere(quantity: str) -> None:
    with pytest.raises(ValuesError) as caught:
        sc.load(PAIR).derive(quantity, dtype="fp8,fp8,fp32", **ASKED[quantity])
    assert str(caught.value) == (
        "'fp8,fp8,fp32' gives all numbers several formats\n"
        "hint: write one, or the names of tensors: X=fp8, W=fp8, Y=fp32"
    )


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("Q=fp8", "there is no tensor 'Q'\nhint: known: W, X, Y"),
        ("X=fp8, X=fp32", "X has two formats: fp8 and fp32"),
        ("X=fp9", "unknown number format 'fp9'\nhint: did you mean 'fp8'?"),
        ("X=", "unknown number format ''"),
        ("int4(128 fp17)", "unknown number format 'fp17'"),
        ("int4(0 fp16)", "unknown number format 'int4(0 fp16)'\nhint: int4(128 fp16), an fp16 scale for each 128"),
    ],
)
def test_what_is_no_format_is_refused(said: str, problem: str) -> None:
    with pytest.raises(ValuesError) as caught:
        sc.load(PRODUCT).traffic(dtype=said)
    assert str(caught.value).startswith(problem)


def test_operands_in_two_formats_have_no_one_rate_of_a_device() -> None:
    with pytest.raises(ValuesError, match=r"operands in fp8 \(X\) and in fp32 \(Y\), which run at different rates"):
        sc.load(PAIR).time(dtype="fp8, Y=fp32", device="H100-SXM")
    assert sc.load(PAIR).time(dtype="fp8, Z=fp32", device="H100-SXM", peak="1 TFLOP/s")


def test_a_view_has_the_format_of_what_it_views() -> None:
    table = PRODUCT + (
        r"| $Y_i = \text{Partition}_{-1}(Y), i = 1, \dots, n$ | $Y \in \mathbb{R}^{B \times F}$ | "
        r"$Y_i \in \mathbb{R}^{B \times H}$ |" + "\n"
    )
    graph = sc.load(table, dtype="Y=fp32").graph
    assert {t.name: t.dtype for t in graph.tensors.values()} == {"X": None, "W": None, "Y": "fp32", "Y_i": "fp32"}


def test_formats_of_tensors_are_read_on_the_command_line(tmp_path: Any) -> None:
    path = tmp_path / "table.md"
    path.write_text(PRODUCT, encoding="utf-8")
    said = ["derive", "traffic", "--model", str(path), "--dtype", OF_TENSORS, "--at", "B=1,D=10,F=100"]
    result = CliRunner().invoke(main, said, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "1410 B" in result.output  # 10 + 1000 + 4 · 100
    result = CliRunner().invoke(main, [*said[:5], "fp8,fp8,fp32"], catch_exceptions=False)
    assert result.exit_code == 2
    assert "gives all numbers several formats" in result.output


def test_formats_are_spelled_as_libraries_do() -> None:
    assert formats("bfloat16, x=float32") == ("bfloat16", {"x": "float32"})
    assert sc.load(PRODUCT).tensor_size("X", dtype="bfloat16").expr == 2 * B * D


def test_a_quantised_operand_is_multiplied_in_the_format_of_the_other_one() -> None:
    """By hand: 128 numbers of 4 bits and a scale of 16."""
    model = sc.load("Computation\tInput\tOutput\ny = x W\tx [B, L, D], W [D, F]\ty [B, L, F]\n", dtype="bf16")
    step = model.decode()
    said = {"device": "H100-SXM", "accounting": "weights_and_cache"}
    made = step.time(dtype="weights=int4(128 fp16)", **said)
    wide = step.time(**said)
    at = {"B": 1, "D": 4096, "F": 4096}
    group = Fraction(128 * 4 + 16, 8)
    rest = wide.at(**at).value - Fraction(2 * 4096 * 4096, 3352 * 10**9)
    assert made.at(**at).value == rest + Fraction(4096 * 4096, 128) * group / (3352 * 10**9)
    assert dict(made.given)["R"] == dict(wide.given)["R"]
    with pytest.raises(sc.SymcommError, match=r"(?s)which run at different rates.*weights=int8\(128 fp16\)"):
        step.time(dtype="weights=int4", **said)
