"""Number formats, rounding and sums against values made with NumPy, ml_dtypes and PyTorch, and against NumPy here."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api import FORMATS, NumberFormat, ValuesError, added, compensated, number_format, pairwise, promoted, summed
from hypothesis import given, settings
from hypothesis import strategies as st

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_formats.json").read_text(encoding="utf-8"))
FLOATING = [f for f in FORMATS.values() if f.floating]
NUMPY: dict[str, Any] = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


def said(text: str) -> Fraction | str:
    return text if text in ("inf", "-inf", "nan") else Fraction(text)


@pytest.mark.parametrize("name", GOLDEN["formats"])
def test_what_a_format_holds_follows_from_its_bits(name: str) -> None:
    row, f = GOLDEN["formats"][name], number_format(name)
    assert (f.bits, f.bytes * 8, f.largest) == (row["bits"], row["stored_bits"], Fraction(row["max"]))
    if "exponent_bits" not in row:
        assert (f.least, f.epsilon, f.finite_values) == (int(row["min"]), int(row["step"]), row["values"])
        return
    assert (f.exponent, f.mantissa, f.bias) == (row["exponent_bits"], row["mantissa_bits"], row["bias"])
    assert f.smallest_normal == Fraction(row["min_normal"])
    assert f.smallest_subnormal == Fraction(row["min_subnormal"])
    assert (f.epsilon, f.unit_roundoff) == (Fraction(row["epsilon"]), Fraction(row["unit_roundoff"]))
    assert (f.integers_up_to, f.finite_values) == (row["integers_exact_up_to"], row["finite_values"])
    assert (f.infinity, f.nan_codes) == (row["infinity"], row["nan_codes"])


@pytest.mark.parametrize("row", GOLDEN["rounding"], ids=lambda row: row["x"])
def test_a_decimal_becomes_the_nearest_number_of_each_format(row: dict[str, str]) -> None:
    for name, value in row.items():
        if name != "x":
            assert number_format(name).rounded(Fraction(row["x"])) == said(value), name


@pytest.mark.parametrize("row", GOLDEN["sums"] + GOLDEN["programs"], ids=lambda row: row["id"])
def test_a_sum_is_that_of_the_machine_bit_for_bit(row: dict[str, Any]) -> None:
    own, accumulator = number_format(row["x_format"]), number_format(row["accumulator"])
    found = summed(Fraction(row["x"]), row["n"], accumulator, own)
    assert found.x == Fraction(row["x_rounded"])
    assert found.result == said(row["result"])
    assert (found.through.name if found.through else None) == row["promoted"]
    if row["stops_growing"]:
        stop = row["stops_growing"]
        assert (found.last_change, found.end) == (stop["after_additions"], Fraction(stop["value"]))
        assert found.last_change is not None
        assert (found.last_change < row["n"]) == stop["within_n"]
    elif accumulator.floating:
        assert found.overflow_at == row["overflow_at_addition"]
    if not accumulator.floating:
        assert found.overflow_at is not None
        assert (found.overflow_at <= row["n"]) == row["wraps"]


def test_the_four_programs_of_the_document_print_what_they_printed() -> None:
    for row in GOLDEN["programs"]:
        own, accumulator = number_format(row["x_format"]), number_format(row["accumulator"])
        found = summed(Fraction(1, 100), 1000, accumulator, own)
        assert f"tensor({float(found.result):.4f}" in row["printed_in_document"]
        exact = found.result == 1000 * found.x  # whether the accumulator makes no error at all
        assert exact == (row["source_of_error"] == "representation only")


def listed(f: NumberFormat) -> list[Fraction]:
    """All numbers of a format that are not negative, by its codes."""
    found = []
    for exponent in range(2**f.exponent):
        for mantissa in range(2**f.mantissa):
            last = exponent == 2**f.exponent - 1
            if last and (f.specials == "ieee" or (f.specials == "last" and mantissa == 2**f.mantissa - 1)):
                continue
            lead = Fraction(mantissa, 2**f.mantissa) + (exponent > 0)
            found.append(lead * Fraction(2) ** (max(exponent, 1) - f.bias))
    return found


@pytest.mark.few(3)
@pytest.mark.parametrize("f", [f for f in FLOATING if f.bits <= 16], ids=lambda f: f.name)
def test_every_code_of_a_small_format_is_a_number_that_rounds_to_itself(f: NumberFormat) -> None:
    numbers = listed(f)
    assert numbers == sorted(set(numbers))
    assert (numbers[-1], numbers[1], 2 * len(numbers) - 1) == (f.largest, f.smallest_subnormal, f.finite_values)
    for n in range(0, len(numbers) - 1, max(1, len(numbers) // 120)):
        low, high = numbers[n], numbers[n + 1]
        assert f.rounded(low) == low
        assert f.neighbours((low + high) / 2) == (low, high)
        assert f.rounded((low + high) / 2) == (high if n % 2 else low)  # the code with an even last bit


ML_DTYPES = {
    "bf16": "bfloat16", "fp8_e4m3fn": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2", "fp8_e4m3fnuz": "float8_e4m3fnuz",
    "fp8_e5m2fnuz": "float8_e5m2fnuz", "fp6_e3m2fn": "float6_e3m2fn", "fp6_e2m3fn": "float6_e2m3fn",
    "fp4_e2m1": "float4_e2m1fn", "fp8_e4m3b11fnuz": "float8_e4m3b11fnuz",
    "fp8_e3m4": "float8_e3m4",
}  # fmt: skip


@pytest.mark.parametrize("name", ML_DTYPES)
def test_numbers_are_rounded_as_ml_dtypes_rounds_them(name: str) -> None:
    kind = getattr(pytest.importorskip("ml_dtypes"), ML_DTYPES[name])
    f = FORMATS[name]
    rng = random.Random(20241122)
    tops = [float(f.largest) * scale for scale in (0.99, 1, 1.001, 1.03, 1.07, 1.13, 2)] if name != "bf16" else []
    for x in [*(rng.uniform(-2, 2) * 2.0 ** rng.randint(-20, 8) for _ in range(400)), *tops, 0.0]:
        x = float(np.float32(x))  # ml_dtypes rounds through fp32
        with np.errstate(over="ignore", invalid="ignore"):
            theirs = float(np.float32(x).astype(kind))
        ours = f.rounded(Fraction(x))
        assert (str(theirs) if isinstance(ours, str) else Fraction(theirs)) == ours, x


@pytest.mark.parametrize("name", ML_DTYPES)
def test_sums_step_by_step_are_those_of_ml_dtypes(name: str) -> None:
    kind = getattr(pytest.importorskip("ml_dtypes"), ML_DTYPES[name])
    rng = random.Random(20241123)
    for _ in range(12):
        x = kind(rng.uniform(0.01, 1) * float(FORMATS[name].largest) ** rng.uniform(0, 0.5))
        s, n = kind(0), rng.randint(1, 200)
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(n):
                s = kind(s + x)
        found = summed(Fraction(float(x)), n, FORMATS[name]).result
        assert (found if isinstance(found, str) else float(found)) == (
            str(float(s)) if isinstance(found, str) else float(s)
        )


@settings(max_examples=40, deadline=None)
@given(st.fractions(Fraction(1, 10**9), 10**5), st.sampled_from(["fp16", "fp32"]), st.integers(1, 400), st.booleans())
def test_sums_step_by_step_are_numpys(x: Fraction, name: str, n: int, minus: bool) -> None:
    x = -x if minus else x
    kind = NUMPY[name]
    s = kind(0)
    with np.errstate(over="ignore"):
        own = kind(float(x)) if name != "fp32" else np.float32(float(x))
        exactly = Fraction(float(own)) if np.isfinite(own) else None
        for _ in range(n):
            s = kind(s + own)
    if exactly is None:
        with pytest.raises(ValuesError, match="it becomes"):
            summed(x, n, FORMATS[name])
        return
    found = summed(exactly, n, FORMATS[name]).result
    assert (found if isinstance(found, str) else float(found)) == (str(s) if np.isinf(s) else float(s))


@settings(max_examples=50, deadline=None)
@given(
    st.fractions(Fraction(1, 2**20), 40),
    st.sampled_from(FLOATING[1:]),
    st.sampled_from(FLOATING[1:]),
    st.integers(1, 150),
)
def test_strides_are_what_single_additions_are(x: Fraction, own: NumberFormat, f: NumberFormat, n: int) -> None:
    if isinstance(own.rounded(x), str):
        return
    found = summed(x, n, f, own)
    s: Any = Fraction(0)
    changed = 0
    for k in range(n):
        after = added(s, found.x, f, promoted(own, f))
        changed = k + 1 if after != s else changed
        s = after
    assert found.result == s
    assert sum(stride.additions for stride in found.strides) == changed or isinstance(s, str)


def test_a_number_of_additions_beyond_all_replays_takes_no_time() -> None:
    found = summed(Fraction(1, 10), 10**30, FORMATS["fp64"])
    assert (found.last_change, found.end) == (9703254357782019, 2**50)
    assert found.result == found.end


def test_pairs_and_compensation_lose_less_than_a_sum_in_order() -> None:
    x, n, f = Fraction(1, 100), 1000, FORMATS["fp16"]
    exact = n * f.rounded(x)  # type: ignore[operator]
    errors = [abs(found - exact) for found in (summed(x, n, f).result, pairwise(x, n, f), compensated(x, n, f))]  # type: ignore[operator]
    assert errors[0] > errors[1] >= errors[2]
    assert errors[2] <= f.spacing(exact) / 2


def test_numbers_of_two_formats_are_added_in_one_that_has_both() -> None:
    names = lambda a, b: getattr(promoted(FORMATS[a], FORMATS[b]), "name", None)  # noqa: E731
    assert names("bf16", "fp16") == "fp32"
    assert names("fp16", "fp32") is None
    assert names("fp8_e4m3fn", "fp8_e5m2") == "fp16"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: number_format("fp8"), "'fp8' has variants: which one is meant?"),
        (lambda: number_format("fp33"), "unknown number format 'fp33'"),
        (lambda: number_format("bool"), "'bool' holds no numbers"),
        (lambda: summed(Fraction(1), -1, FORMATS["fp16"]), "-1 additions"),
        (lambda: summed(Fraction(10**6), 2, FORMATS["fp16"]), "fp16 has no number near 1000000: it becomes inf"),
        (lambda: summed(Fraction(1), 2, FORMATS["int8"], FORMATS["fp16"]), "are not added up in int8"),
        (lambda: compensated(Fraction(1), 10**9, FORMATS["fp16"]), "is made one by one"),
        (lambda: FORMATS["fp16"].neighbours(Fraction(10**400)), "outside the range of fp16"),
    ],
)  # fmt: skip
def test_what_cannot_be_added_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValuesError) as error:
        call()
    assert message in str(error.value)
    assert error.value.hint


@pytest.mark.long
def test_many_sums_step_by_step_are_those_of_single_additions() -> None:
    rng = random.Random(20241124)
    for _ in range(300):
        own, f = rng.choice(FLOATING), rng.choice(FLOATING[1:])
        x = Fraction(rng.uniform(-1, 1)) * Fraction(2) ** rng.randint(-25, 8)
        n = rng.randint(1, 600)
        if isinstance(own.rounded(x), str) or (promoted(own, f) or f).name == "fp64":
            continue
        found = summed(x, n, f, own)
        s: Any = Fraction(0)
        for _ in range(n):
            s = added(s, found.x, f, promoted(own, f))
        assert found.result == s, (x, n, own.name, f.name)


@pytest.mark.torch
def test_sums_of_two_formats_are_pytorchs() -> None:
    torch: Any = pytest.importorskip("torch")
    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
    rng = random.Random(20241125)
    for own in kinds:
        for name in kinds:
            x, n = rng.uniform(0.001, 3), rng.randint(100, 900)
            s, number = torch.tensor(0, dtype=kinds[name]), torch.tensor(x, dtype=kinds[own])
            for _ in range(n):
                s += number
            found = summed(Fraction(x), n, FORMATS[name], FORMATS[own])
            assert (float(found.x), float(found.result)) == (float(number), float(s)), (own, name)


@pytest.mark.torch
def test_decimals_become_the_numbers_that_pytorch_makes_of_them() -> None:
    torch: Any = pytest.importorskip("torch")
    kinds = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8_e5m2": torch.float8_e5m2, "fp32": torch.float32}
    rng = random.Random(20241126)
    for name, kind in kinds.items():
        for _ in range(200):
            x = float(np.float32(rng.uniform(-2, 2) * 2.0 ** rng.randint(-18, 10)))
            assert Fraction(float(torch.tensor(x).to(kind))) == FORMATS[name].rounded(Fraction(x)), (name, x)
