"""Every crossing is found, or it is said where there may be more; a search that takes too long is given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import ceil

import pytest
from api import ValuesError, crossovers, no_model, patience
from mpmath import mp, mpf

import symcomm as sc

UNSURE = "did not try every"


def flips(gap, low: int, high: int) -> int:
    """How often a sequence changes its sign, zeros left out."""
    signs = [g > 0 for n in range(low, high + 1) if (g := gap(n))]
    return sum(a != b for a, b in pairwise(signs))


@pytest.mark.few(2)
@pytest.mark.parametrize("latency", [Fraction(n, 10**11) for n in (3003, 3001, 37, 2)])
def test_ring_and_doubling_on_five_ranks_cross_at_every_byte_where_rounding_says_so(latency: Fraction) -> None:
    """8 chunks of ceil(n/5) bytes in 8 rounds, doubling's, whose time is read off two payloads."""
    link = {"ranks": 5, "payload": "1 MB", "latency": f"{latency.numerator}/{latency.denominator} s",
            "bandwidth": "100 GB/s"}  # fmt: skip
    ring, doubling = (no_model().derive("collective_time", algorithm=a, **link) for a in ("ring", "recursive_doubling"))
    one, two = (doubling.at(n=n).value for n in (1, 2))
    found = crossovers(ring, doubling, "n")

    def gap(n: int) -> Fraction:
        return 8 * (latency + Fraction(-(-n // 5), 10**11)) - (one + (n - 1) * (two - one))

    assert gap(12_347) == ring.at(n=12_347).value - doubling.at(n=12_347).value
    assert len(found.crossings) == flips(gap, 1, 20_000)
    for crossing, side in zip(found.crossings, found.less[1:], strict=True):
        at = gap(int(crossing.high) + (0 if gap(int(crossing.high)) else 1))
        assert (at > 0) - (at < 0) == side
    assert not any(UNSURE in note for note in found.derivation.notes)


def test_nested_steps_and_maxima_are_tried_where_they_may_decide() -> None:
    steps, line = "10 ceil(ceil(n/7)/3) + max(3, n/50)", "n/2 + 2"
    found = crossovers(sc_count(steps), sc_count(line), "n", between=(1, 10**9))

    def gap(n: int) -> Fraction:
        up = ceil(Fraction(ceil(Fraction(n, 7)), 3))
        return 10 * up + max(Fraction(3), Fraction(n, 50)) - Fraction(n, 2) - 2

    assert len(found.crossings) == flips(gap, 1, 20_000) > 1
    assert not any(UNSURE in note for note in found.derivation.notes)


def test_steps_that_may_decide_everywhere_are_said_not_to_be_tried_everywhere() -> None:
    found = crossovers(sc_count("ceil(n/2)"), sc_count("n/2 + 1/4"), "n", between=(1, 10**6))
    assert any(UNSURE in note for note in found.derivation.notes)


def sc_count(text: str) -> sc.Derivation:
    """A cost over a whole number n."""
    from api import ONE, Accounting, Reason, Step, Sym, derived, substitute

    form = substitute(derived(text).answer.form, lambda s: Sym(s.name))
    return sc.Derivation(text, Accounting(), (Step("T", form, ONE, Reason("given", "A test.")),))


def test_two_scaling_laws_cross_at_digits_that_high_precision_confirms() -> None:
    """1.69 + 406.4/N^0.34 against 1.5 + 300/N^0.28: two crossings, each bracketed to twelve digits."""
    given = {"A": "406.4", "B": 300}
    found = crossovers("1.69 + A/N^0.34", "1.5 + B/N^0.28", "N", given=given)
    mp.dps = 60

    def gap(n: Fraction) -> mpf:
        x = mpf(n.numerator) / n.denominator
        return mpf("0.19") + mpf("406.4") * x ** mpf("-0.34") - 300 * x ** mpf("-0.28")

    assert len(found.crossings) == 2
    for c in found.crossings:
        assert gap(c.low) * gap(c.high) < 0
        assert c.high - c.low < c.low / 10**12
    grid = [Fraction(10) ** k for k in range(-10, 19)]
    assert flips(lambda i: gap(grid[i]), 0, len(grid) - 1) == 2


def test_a_rule_and_a_law_cross_where_the_powers_say() -> None:
    """0.1 C^0.5 = 0.5987 C^0.4516: C = 5.987^(1/0.0484)."""
    made = sc.crossover("0.1 C^0.5", "0.5987 C^0.4516", "C")
    assert abs(float(made.at().value) / 5.987 ** (1 / 0.0484) - 1) < 1e-11


def test_a_search_is_given_up_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.05)
    monkeypatch.setattr(
        "symcomm.core.optimum.minimum.answer", lambda question: [time.sleep(0.001) for _ in range(10_000)]
    )
    with pytest.raises(ValuesError) as caught:
        sc.minimise("n + 1/n", "n")
    assert str(caught.value) == (
        "the search for the least value over n was given up after 0.05 s\n"
        "hint: give a narrower range (lower, upper), or numbers for all names"
    )


@pytest.mark.parametrize(
    ("solver", "ask", "told"),
    [
        ("optimum.pair.sure_root", lambda: sc.crossover("a + n", "3n", "n"),
         "the search for where they cross over n was given up after 0.05 s: tried a root in closed form"),
        ("optimum.equality.positive_root", lambda: _square().crossover("compute, memory", over="D", device="H100-SXM"),
         "the search for the D at which computing and the memory take equally long was given up after 0.05 s: tried "
         "the powers of D in both times and the roots of their difference in closed form"),
    ],
    ids=["costs", "times"],
)  # fmt: skip
def test_a_crossing_that_takes_too_long_is_refused_with_what_was_tried(
    monkeypatch: pytest.MonkeyPatch, solver: str, ask: Callable[[], object], told: str
) -> None:
    def forever(*given: object) -> None:
        while True:  # only work counts, as another program may have the processor
            pass

    monkeypatch.setattr(patience, "CROSSING", 0.05)
    monkeypatch.setattr(f"symcomm.core.{solver}", forever)
    with pytest.raises(ValuesError) as caught:
        ask()
    assert caught.value.message == told


def _square() -> sc.Model:
    return sc.load("| Computation | Input | Output |\n|---|---|---|\n| y = x W | x [B, D], W [D, D] | y [B, D] |\n")


def test_giving_up_works_in_any_thread_and_leaves_what_is_in_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SECONDS", 0.05)
    said: list[str] = []

    def search() -> None:
        try:
            with patience.patience("it", "less"):
                while True:
                    time.sleep(0.001)
        except ValuesError as error:
            said.append(error.message)

    thread = threading.Thread(target=search)
    thread.start()
    thread.join(20)
    assert said == ["it was given up after 0.05 s"]
    with patience.patience("quick", ""):
        pass
    time.sleep(0.1)  # nothing comes afterwards
