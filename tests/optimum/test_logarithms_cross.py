"""Costs with logarithms cross where they do, over amounts of any size; a logarithm without its brackets is no name."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from api import FormulaError, points

import symcomm as sc


@pytest.mark.parametrize(
    ("low", "high"), [(Fraction(1, 2**60), Fraction(2**60)), (Fraction(1, 10**40), Fraction(1, 10**30))]
)
def test_a_scan_goes_on_from_the_smallest_amounts(low: Fraction, high: Fraction) -> None:
    found = points(low, high, whole=False)
    assert found[0] == low
    assert found[-1] == high
    assert all(0 < b / a - 1 < Fraction(1, 10) for a, b in pairwise(found))


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("cost", "root"),
    [
        (r"\log_2 x", 2**10), ("log_2(x)", 2**10), (r"\log_{2} x", 2**10), ("log2(x)", 2**10), ("ln(x)", math.exp(10)),
        (r"\ln x", math.exp(10)), (r"\log x", math.exp(10)), ("log_10(x)", 10**10),
    ],
)  # fmt: skip
def test_a_logarithm_meets_a_number_where_it_does(cost: str, root: float) -> None:
    assert float(sc.crossover(cost, "10", "x").at().value) == pytest.approx(root, rel=1e-9)


@pytest.mark.parametrize("cost", ["ln x", "log x", "log_2 x", "log2 x", "x ln x", "x log_{2} x"])
def test_a_logarithm_without_its_brackets_is_no_name(cost: str) -> None:
    with pytest.raises(FormulaError, match="is the name of a function") as caught:
        sc.crossover(cost, "10", "x")
    assert caught.value.hint.endswith("(x), with parentheses")
