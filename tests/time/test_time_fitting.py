"""Fits of measured collectives: exact, checked by NumPy and SciPy, and honest about what they explain."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from api import MODELS, ValuesError, compare, fit, measurements
from hypothesis import given, settings
from hypothesis import strategies as st
from time_models import all_reduce_times, published


def rows(ranks: int) -> list[tuple[str, int, str]]:
    return [row for row in all_reduce_times() if row[1] == ranks]


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_a_fit_of_the_measured_all_reduces_has_its_published_latency_and_bandwidth(ranks: int) -> None:
    made = fit(rows(ranks))
    assert made["alpha"].value == published(f"002.table8.alpha{ranks}")
    assert made.bandwidth.value / 10**6 == published(f"002.table8.algbw{ranks}")
    assert made.bus_bandwidth(ranks).value == made.bandwidth.value * Fraction(2 * (ranks - 1), ranks)


@pytest.mark.parametrize("ranks", [2, 4, 6])
def test_numpy_finds_the_same_parameters(ranks: int) -> None:
    made = fit(rows(ranks))
    data = made.measurements
    columns = np.array([[1.0, float(m.size)] for m in data])
    times = np.array([float(m.time) for m in data])
    (alpha, beta), squares, *_ = np.linalg.lstsq(columns, times, rcond=None)
    assert float(made["alpha"].value) == pytest.approx(alpha, rel=1e-12)
    assert float(made["beta"].value) == pytest.approx(beta, rel=1e-9)
    assert float(sum(r * r for r in made.residuals)) == pytest.approx(squares[0], rel=1e-9)


def test_scipy_finds_the_same_errors_and_the_same_r_squared() -> None:
    from scipy.stats import linregress

    made = fit(rows(4))
    found = linregress([float(m.size) for m in made.measurements], [float(m.time) for m in made.measurements])
    assert made["beta"].error == pytest.approx(found.stderr, rel=1e-9)
    assert made["alpha"].error == pytest.approx(found.intercept_stderr, rel=1e-9)
    assert float(made.r_squared) == pytest.approx(found.rvalue**2, rel=1e-9)


def test_the_measured_all_reduces_are_told_to_be_set_up_and_not_bandwidth() -> None:
    for ranks in (2, 4, 6):
        made = fit(rows(ranks))
        assert not made.explains
        assert any("set-up, not communication" in text for text in made.findings)
    assert "0.374 s of fixed cost" in str(fit(rows(2)))
    assert any("not determined" in text for text in fit(rows(2)).findings)  # four times do not tell a bandwidth


def test_a_ring_alone_does_not_explain_the_measured_all_reduces_and_a_set_up_does_better() -> None:
    best, *_, worst = compare(all_reduce_times())
    assert worst.model.name == "algorithm"
    assert worst.r_squared < Fraction(1, 2)
    assert "setup" in best.model.name
    assert best.r_squared > Fraction(95, 100)
    assert any("less than 95%" in text for text in worst.findings)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.sampled_from([*MODELS]))
@settings(max_examples=25, deadline=None)
def test_a_fit_of_times_made_by_its_own_model_finds_what_made_them(one: int, other: int, name: str) -> None:
    kept = {"setup": one, "alpha": one, "latency": one, "per_rank": other, "beta": other, "per_byte": other}
    ranks = (4,) if name == "alpha_beta" else (2, 3, 4, 8)
    empty = [(size, k, 1) for size in (0, 10, 1000, 5000) for k in ranks]
    from api import TERMS

    made = [
        (m.size, m.ranks, sum(kept[t] * TERMS[t].column(m, "all-reduce", "ring") for t in MODELS[name].terms))
        for m in measurements(empty)
    ]
    found = fit(made, name)
    assert {p.name: p.value for p in found.parameters} == {t: kept[t] for t in MODELS[name].terms}
    assert not any(found.residuals)
    assert found.r_squared == 1


def test_a_clean_measurement_is_explained() -> None:
    noise = [Fraction(n, 10**7) for n in (1, -2, 1, 2, -1, -1)]
    sizes = [10**6 * n for n in (1, 10, 50, 100, 500, 1000)]
    made = fit([(s, 8, Fraction(1, 10**4) + Fraction(s, 10**10) + e) for s, e in zip(sizes, noise, strict=True)])
    assert made.explains
    assert made.predict("100 MB", 8) == pytest.approx(0.0101, rel=1e-3)
    assert "Nothing speaks against" in str(made)


def test_a_negative_latency_is_found_to_be_impossible() -> None:
    made = fit([(1, 2, "1 s"), (2, 2, "5 s"), (3, 2, "9 s")])
    assert any("is positive" in text for text in made.findings)


def test_a_model_that_falls_with_the_size_has_no_bandwidth() -> None:
    with pytest.raises(ValuesError, match="no bandwidth"):
        _ = fit([(1, 2, "9 s"), (2, 2, "5 s"), (3, 2, "2 s")]).bandwidth


@pytest.mark.parametrize(
    ("given_rows", "model", "said"),
    [
        ([("1 MB", 2, 1), ("2 MB", 2, 1)], "alpha_beta", "cannot test a model"),
        ([("1 MB", 2, 1), ("1 MB", 2, 2), ("1 MB", 2, 3)], "alpha_beta", "cannot tell the terms"),
        ([("1 MB", 2, 1), ("2 MB", 4, 2), ("3 MB", 4, 3)], "alpha_beta", "one number of ranks"),
        ([("1 MB", 2, 1)], "alpa_beta", "unknown model"),
        ([("1 MB/s", 2, 1)], "alpha_beta", "row 1: a size is given in B/s"),
        ([("1 MB", 1, 1)], "alpha_beta", "row 1: 1 ranks"),
        ([("1 MB", 2, 0)], "alpha_beta", "row 1"),
        ([("1 MB", 2, "3 GB")], "alpha_beta", "a time is given in B"),
        ([("1 MB", 2, float("nan"))], "alpha_beta", "a time is nan"),
        ([("1 MB", 2)], "alpha_beta", r"row 1 is \('1 MB', 2\)"),
    ],
)
def test_measurements_that_make_no_sense_are_refused(
    given_rows: list[tuple[object, ...]], model: str, said: str
) -> None:
    with pytest.raises(ValuesError, match=said):
        fit(given_rows, model)


def test_a_fit_without_scipy_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(ValuesError, match="need SciPy"):
        fit(rows(2))
