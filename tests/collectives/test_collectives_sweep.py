"""A sweep gives what the exact derivations give, point by point, and is one call of NumPy."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from api import ALGORITHMS, KINDS, ValuesError, compile_sweep, exact, from_expr, no_model
from api import form_evaluate as evaluate

NUMBERS = {"alpha": 5e-6, "W": 1e11, "q": 16, "g": 4, "k_x": 2, "k_y": 2, "alpha_out": 1e-5, "W_out": 2.5e10}
EXACT = {"alpha": "5 us", "W": 10**11, "q": 16, "g": 4, "k_x": 2, "k_y": 2, "alpha_out": "10 us", "W_out": 25 * 10**9}


def costs(kind: str) -> dict[str, object]:
    return {
        name: no_model().derive("collective_time", collective=kind, algorithm=name)
        for name, a in ALGORITHMS.items() if kind in a.runs
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_of_a_sweep_is_the_exact_one_rounded(kind: str) -> None:
    found = costs(kind)
    sweep = compile_sweep(found)
    rng = random.Random(3)
    sizes = [rng.randint(300, 10**10) for _ in range(5)] + [2**20, 3 * 2**29, 2**40 + 1]
    # Powers of two on both sides of 2^29, where the quotient of two rounded logarithms is no whole number.
    ranks = [4, 8, 16, 64, 2**29, 2**31] if "bruck" in found else [4, 8, 12, 20, 2**29, 2**29 + 4]
    arrays = {"n": np.array(sizes)[:, None], "k": np.array(ranks), **NUMBERS}
    table = sweep(**{name: array for name, array in arrays.items() if name in sweep.needs})
    known = {name: exact(value) for name, value in EXACT.items()}
    for name, row in zip(sweep.names, table, strict=True):
        form = from_expr(found[name].expr)
        for i, n in enumerate(sizes):
            for j, k in enumerate(ranks if kind != "send" else [1]):
                value = evaluate(form, {**known, "n": Fraction(n), "k": Fraction(k)})
                assert row[i, j] == pytest.approx(float(value), rel=1e-12), (name, n, k)


def test_a_cost_that_does_not_depend_on_a_number_is_spread_over_it() -> None:
    sweep = compile_sweep(costs("broadcast"))
    values = {**{n: v for n, v in NUMBERS.items() if n in sweep.needs}, "n": 1000, "k": 8, "q": [1, 2, 4]}
    assert sweep(**values).shape == (3, 3)


def test_a_sweep_asks_for_what_it_needs_and_refuses_what_it_does_not_know() -> None:
    sweep = compile_sweep(costs("reduce"))
    good = {n: v for n, v in {**NUMBERS, "n": 100, "k": 4}.items() if n in sweep.needs}
    with pytest.raises(ValuesError, match="the sweep needs a value for W"):
        sweep(**{n: v for n, v in good.items() if n != "W"})
    with pytest.raises(ValuesError) as caught:
        sweep(**good, alhpa=3)
    assert str(caught.value) == "the sweep knows no 'alhpa'\nhint: did you mean 'alpha'?"
    with pytest.raises(ValuesError, match="W must be positive everywhere"):
        sweep(**{**good, "W": [1.0, 0.0]})


def test_a_sweep_of_nothing_is_refused() -> None:
    with pytest.raises(ValuesError, match="a sweep needs at least one derivation"):
        compile_sweep([])
