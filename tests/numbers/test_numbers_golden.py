"""Numbers of the documents that are sums in a format, einsums, comparisons of measurements and counts."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from api import FORMATS, derive, no_model, summed

import symcomm as sc

ENTRIES = json.loads((Path(__file__).parents[1] / "data" / "golden_numbers.json").read_text(encoding="utf-8"))
GOLDEN = {entry["id"]: entry for entry in ENTRIES}
HEAD = "| Computation | Input | Output |\n|---|---|---|\n"


def value(name: str) -> Fraction:
    return Fraction(GOLDEN[name]["value"])


def params(name: str) -> dict[str, Fraction]:
    return {key: Fraction(said) for key, said in GOLDEN[name]["params"].items()}


def answer(quantity: str, **options: Any) -> Fraction:
    derivation = derive(quantity, no_model(), options, sc.Accounting(), {})
    derivation.check(deep=True)
    return derivation.at().value


def test_the_sums_of_the_document_are_those_it_printed() -> None:
    told = {"x": "0.01", "n": 1000}
    assert answer("accumulation", **told, accumulator="fp32") == value("002.acc.1")
    assert answer("accumulation", **told, accumulator="fp16") == value("002.acc.2")
    assert answer("accumulation", **told, accumulator="fp32", x_format="fp16") == value("002.acc.3")
    rounded = answer("rounded", x="0.01", dtype="fp16")
    assert rounded == params("002.acc.3exact")["h16"]
    assert 1000 * rounded == value("002.acc.3exact")


def test_the_sum_in_fp16_reaches_8_at_the_addition_the_document_says() -> None:
    said = params("002.acc.2")
    strides = summed(Fraction(1, 100), int(said["steps"]), FORMATS["fp16"]).strides
    reached = next(n for n, stride in enumerate(strides) if stride.stop == 8)
    assert sum(stride.additions for stride in strides[: reached + 1]) == said["n8"]


def test_an_einsum_costs_two_operations_for_each_combination_of_its_indices() -> None:
    i, k, j = (int(params("001.einsum.ikkj")[name]) for name in ("i0", "k0", "j0"))
    assert answer("einsum", subscripts="ik,kj->ij", shapes=f"[{i}, {k}], [{k}, {j}]") == value("001.einsum.ikkj")
    row = '| C = einsum("ik,kj->ij", A, W) | A [I, K], W [K, J] | C [I, J] |'
    assert sc.load(HEAD + row).flops().at(I=i, K=k, J=j).value == value("001.einsum.ikkj")


def test_comparisons_of_measured_times_are_derived() -> None:
    for name, first, second in (
        ("002.flash.speedup", "t0", "t1"), ("002.table2.bwd_over_fwd", "t1", "t0"), ("002.table1.order", "t1", "t0"),
    ):  # fmt: skip
        said = params(name)
        assert answer("measurement", want="ratio", values=f"{said[first]} s, {said[second]} s") == value(name), name


def test_the_time_of_a_layer_is_the_slope_of_a_line_through_zero_and_the_measured_models() -> None:
    points = ", ".join(f"{key[1:]} layer: {said} s" for key, said in params("002.table2.ms_per_layer").items())
    assert answer("measurement", want="slope_through_zero", through=points) == value("002.table2.ms_per_layer")


def test_the_length_of_the_exam_is_the_difference_of_two_times() -> None:
    begin = params("001.exam.minutes")["h0"]
    seconds = answer("measurement", want="difference", values=f"{begin + Fraction(5, 4)} h, {begin} h")
    assert seconds == value("001.exam.minutes") * 60


def test_the_chain_rule_has_a_factor_for_each_token() -> None:
    row = r"| $p = crossentropy(z, t)$ | $z$ [L, V], $t \in \mathbb{Z}^{L}$ | $p$ [L] |"
    size = sc.load(HEAD + row).tensor_size("p", dtype="int8")
    assert size.at(L=params("001.lm.factors")["seq"]).value == value("001.lm.factors")


def test_a_matrix_of_scores_of_a_long_sequence_is_derived() -> None:
    said = params("002.flash.s65536")
    row = "| S = einsum('qd,kd->qk', Q, K) | Q [L, D], K [L, D] | S [L, L] |"
    size = sc.load(HEAD + row, inputs=["Q", "K"]).tensor_size("S", dtype="fp32")
    assert size.at(L=said["seq"]).value == value("002.flash.s65536") * 2**30
