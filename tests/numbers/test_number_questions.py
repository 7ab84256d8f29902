"""The questions about einsums, number formats, sums and loss scaling: their answers, witnesses and errors."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from api import FORMATS, derive, no_model, number_format, symbol

import symcomm as sc

DATA = Path(__file__).parents[1] / "data"
EINSUMS = json.loads((DATA / "golden_einsum.json").read_text(encoding="utf-8"))
FORMATS_SAID = json.loads((DATA / "golden_formats.json").read_text(encoding="utf-8"))


def asked(quantity: str, **options: Any) -> Any:
    derivation = derive(quantity, no_model(), options, sc.Accounting(), {})
    derivation.check(deep=True)
    return derivation


def answer(quantity: str, **options: Any) -> Fraction:
    return asked(quantity, **options).at().value  # type: ignore[no-any-return]


def shapes(case: dict[str, Any]) -> str:
    return ", ".join(f"{list(shape)}" for shape in case["shapes"])


@pytest.mark.parametrize("case", EINSUMS["cases"], ids=lambda case: case["id"])
def test_an_einsum_is_asked_for(case: dict[str, Any]) -> None:
    told = {"subscripts": case["einsum"], "shapes": shapes(case)}
    for count, value in case["flops"].items():
        assert answer("einsum", **told, count=count) == value
    assert answer("einsum", **told, want="backward") == case["backward_fma2"]
    elements = 1
    for size in case["output_shape"]:
        elements *= size
    assert answer("einsum", **told, want="elements") == elements
    if "presum_fma2" in case:
        assert answer("einsum", **told, want="sums_first") == case["presum_fma2"]
    if "orders" in case:
        row = case["orders"]
        wanted = {
            "best_order": "best_fma2", "worst_order": "worst_fma2", "left_to_right": "left_to_right",
            "sums_first": "best_with_presum", "largest_intermediate": "smallest_largest_intermediate_of_best",
        }  # fmt: skip
        for want, key in wanted.items():
            assert answer("einsum", **told, want=want) == row[key], want
        best = answer("einsum", **told, want="best_order", count="opt_einsum")
        assert best == row["opt_einsum_count_of_best"]


def test_symbols_may_be_sizes_and_the_best_order_follows_from_numbers() -> None:
    told = {"subscripts": "ij,jk,kl->il", "shapes": "X [B, D], W [D, F], V [F, D]"}
    B, D, F = (symbol(name) for name in "BDF")
    assert (asked("einsum", **told).expr - 3 * B * D * F * D).expand() == 0
    with pytest.raises(sc.SymcommError, match="the best order depends on the size of index i, B"):
        asked("einsum", **told, want="best_order")
    known = {"B": Fraction(2), "D": Fraction(30), "F": Fraction(100)}
    found = derive("einsum", no_model(), {**told, "want": "best_order"}, sc.Accounting(), known)
    assert found.at().value == 2 * 2 * 30 * 100 * 2


WANTED = {
    "largest": "max", "smallest_normal": "min_normal", "smallest_subnormal": "min_subnormal", "epsilon": "epsilon",
    "unit_roundoff": "unit_roundoff", "integers_exact_up_to": "integers_exact_up_to", "finite_values": "finite_values",
    "nan_codes": "nan_codes",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in FORMATS_SAID["formats"] if name != "int8"])
def test_a_format_is_asked_for(name: str) -> None:
    for want, key in WANTED.items():
        assert answer("number_format", dtype=name, want=want) == Fraction(FORMATS_SAID["formats"][name][key]), want


@pytest.mark.parametrize("name", [f.name for f in FORMATS.values() if f.floating])
def test_every_format_is_told_in_steps_that_their_witnesses_bear_out(name: str) -> None:
    for want in WANTED:
        asked("number_format", dtype=name, want=want)
    for x in ("0.1", "1/3", "0", "-2.3", "0.0001"):
        found = answer("rounded", x=x, dtype=name)
        assert found == number_format(name).rounded(Fraction(x))
        assert answer("rounded", x=x, dtype=name, want="error") == found - Fraction(x)
    asked("rounded", x="1.5", dtype=name, want="spacing")


def test_whole_numbers_are_asked_for() -> None:
    assert answer("number_format", dtype="int8") == 127
    assert answer("number_format", dtype="int8", want="finite_values") == 256
    assert answer("accumulation", x="1", n=300, accumulator="int8") == 44
    assert answer("accumulation", x="1", n=300, accumulator="int8", want="overflow") == 128
    assert answer("rounded", x="2.7", dtype="int8") == 2


@pytest.mark.few(8)
@pytest.mark.parametrize("row", FORMATS_SAID["sums"] + FORMATS_SAID["programs"], ids=lambda row: row["id"])
def test_a_sum_is_asked_for_with_its_errors_and_its_end(row: dict[str, Any]) -> None:
    told = {"x": row["x"], "n": row["n"], "accumulator": row["accumulator"], "x_format": row["x_format"]}
    assert answer("accumulation", **told, want="representation_error") == Fraction(row["representation_error"])
    if row["result"] == "inf":
        assert answer("accumulation", **told, want="overflow") == row["overflow_at_addition"]
        with pytest.raises(sc.SymcommError, match="the sum becomes inf at addition 66"):
            asked("accumulation", **told)
        return
    assert answer("accumulation", **told) == Fraction(row["result"])
    assert answer("accumulation", **told, want="accumulation_error") == Fraction(row["accumulation_error"])
    total = Fraction(row["result"]) - Fraction(row["exact_sum"])
    assert answer("accumulation", **told, want="error") == total
    if row["stops_growing"]:
        assert answer("accumulation", **told, want="last_change") == row["stops_growing"]["after_additions"]
        assert answer("accumulation", **told, want="limit") == Fraction(row["stops_growing"]["value"])
        if row["n"] > 1 and row["promoted"] is None:
            bound = answer("accumulation", **told, want="bound")
            assert abs(Fraction(row["accumulation_error"])) <= bound


def test_pairs_and_compensation_are_asked_for() -> None:
    told = {"x": "1", "n": 4096, "accumulator": "fp16"}
    assert answer("accumulation", **told) == 2048
    assert answer("accumulation", **told, method="pairwise") == 4096
    assert answer("accumulation", **told, method="compensated") == 4096
    assert answer("accumulation", **told, want="bound") == 4095 * Fraction(4096, 2048)
    assert answer("accumulation", **told, method="pairwise", want="bound") == 12 * Fraction(4096, 2048)


def test_the_scale_of_the_loss_moves_what_gradients_are_kept() -> None:
    told = {"dtype": "fp16", "scale": "1024"}
    smallest = Fraction(1, 2**24)
    assert answer("loss_scaling", **told) == smallest / 1024
    assert answer("loss_scaling", **told, want="flushed_up_to") == smallest / 2048
    assert answer("loss_scaling", **told, want="smallest_normal") == Fraction(1, 2**14) / 1024
    assert answer("loss_scaling", **told, want="largest") == Fraction(65504, 1024)
    assert answer("loss_scaling", gradient="0.0000000001", want="least_scale") == 512
    assert answer("loss_scaling", gradient="3", want="largest_scale") == 2**14
    assert answer("loss_scaling", dtype="bf16", gradient="0.0000000001", want="least_scale") < Fraction(1, 2**90)


ONES = {"x": "1", "n": 5, "accumulator": "fp16"}
PAIR = {"subscripts": "i,i", "shapes": "[2], [2]"}


@pytest.mark.parametrize(
    ("quantity", "options", "message"),
    [
        ("einsum", {"subscripts": "ij,jk->ik", "shapes": "[2, 3]"}, "2 subscripts for 1 operand"),
        ("einsum", {"subscripts": "ij", "shapes": "2, 3"}, "'2, 3' are no shapes"),
        ("einsum", {"subscripts": "ij", "shapes": "[2, 3] [4]"}, "a comma is missing between two shapes"),
        ("einsum", {"subscripts": "ij", "shapes": "[2, ]"}, "a size is missing"),
        ("einsum", {"subscripts": "ij", "shapes": "[2, 0]"}, "a size of '0'"),
        ("einsum", {"subscripts": "ij", "shapes": "[2, 2.5]"}, "a size of '2.5'"),
        ("einsum", {"subscripts": "ij->i", "shapes": "[2, 3]", "want": "best_order"}, "of one operand has no order"),
        ("einsum", {**PAIR, "want": "backward", "count": "mul_add"}, "counted in fma2"),
        ("einsum", {"subscripts": "i,", "shapes": "[2]," * 25}, "more than 20 shapes"),
        ("number_format", {"dtype": "fp12"}, "unknown number format 'fp12'"),
        ("number_format", {"dtype": "fp8"}, "'fp8' has variants: which one is meant?"),
        ("number_format", {"dtype": "int8", "want": "epsilon"}, "a format of whole numbers: it has no epsilon"),
        ("rounded", {"x": "70000", "dtype": "fp16"}, "70000 in fp16 becomes inf"),
        ("rounded", {"x": "0", "dtype": "fp16", "want": "relative_error"}, "there is no relative one"),
        ("accumulation", {**ONES, "want": "overflow"}, "the sum never leaves fp16"),
        ("accumulation", {"x": "1000", "n": 5, "accumulator": "fp16", "want": "limit"}, "does not stop growing"),
        ("accumulation", {**ONES, "method": "pairwise", "want": "limit"}, "of a sum in order"),
        ("accumulation", {"x": "1", "n": 5, "accumulator": "int8", "want": "bound"}, "exact until they wrap round"),
        ("accumulation", {**ONES, "method": "compensated", "want": "bound"}, "higher order"),
        ("accumulation", {**ONES, "x_format": "fp8_e5m2", "method": "pairwise"}, "own format"),
        ("loss_scaling", {"scale": "0"}, "the loss is multiplied by 0"),
        ("loss_scaling", {"want": "least_scale"}, "the least scale is that for a gradient"),
        ("loss_scaling", {"want": "least_scale", "gradient": "0"}, "is kept under every scale"),
        ("loss_scaling", {"dtype": "int8"}, "gradients are not kept in int8"),
    ],
)  # fmt: skip
def test_each_wrong_question_has_an_error_of_its_own(quantity: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(sc.SymcommError) as error:
        asked(quantity, **options)
    assert message in str(error.value)
    assert error.value.hint or "relative" in message
