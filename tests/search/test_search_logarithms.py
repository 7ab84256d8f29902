"""Rounded logarithms over arrays of ranks, where the quotient of two logarithms in float64 is no whole number."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from api import BinaryOnes, Ceiling, Floor, Form, Logarithm, Sym, arrays
from api import form_evaluate as evaluate

RANKS = [2, 3, 4, 7, 8, 12, 100, *(2**29 + n for n in (-1, 0, 1, 4)), 2**31, 3 * 2**40]
LOGARITHM = Logarithm(Sym("k"), 2)


@pytest.mark.parametrize("form", [Ceiling(LOGARITHM), Floor(LOGARITHM)], ids=["up", "down"])
def test_a_rounded_logarithm_over_ranks_is_the_exact_one(form: Form) -> None:
    found = arrays(form, {"k": np.array(RANKS, float)})
    assert [int(n) for n in found] == [evaluate(form, {"k": Fraction(k)}) for k in RANKS]


def test_the_ones_of_all_smaller_numbers_are_those_of_their_digits() -> None:
    ranks = [1, 2, 3, 8, 100, 1025]
    found = arrays(BinaryOnes(Sym("k")), {"k": np.array(ranks, float)})
    assert [int(n) for n in found] == [sum(bin(n).count("1") for n in range(k)) for k in ranks]
