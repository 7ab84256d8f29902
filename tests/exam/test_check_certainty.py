"""No right answer is called wrong for want of digits or time; what has no proof is left to a person."""

from __future__ import annotations

import signal
import time
from fractions import Fraction

import pytest
from api import (
    Ceiling,
    Floor,
    Form,
    Largest,
    Logarithm,
    Num,
    Power,
    Product,
    Root,
    Smallest,
    TimeUpError,
    Total,
    are_apart,
    deadline,
    decision,
    parse_template,
)
from hypothesis import given
from hypothesis import strategies as st

import symcomm as sc


@pytest.mark.parametrize("answer", [
    "2 f n_SM n_FMA (sqrt(n_SM^9+1)^2 - n_SM^9)",  # more digits cancel than a number is worked out to
    "2 f n_SM n_FMA ((sqrt(n_SM^9+1)+n_SM^9)^2 - n_SM^18 - 2 n_SM^9 sqrt(n_SM^9+1) - n_SM^9)",
    "2 f n_SM n_FMA (ceil(sqrt(2)*sqrt(2)) - 1)",
    "f n_SM n_FMA ceil(sqrt(2)*sqrt(3)*sqrt(6)) / 3",
])  # fmt: skip
def test_digits_that_cancel_make_no_right_answer_wrong(answer):
    assert sc.check(answer, sc.peak_rate()).verdict == "right"


RING = """
```symcomm
ask: collective_time
algorithm: ring
accounting: [divisible]
given: {k: 12, n: 6 GB, W: 25 GB/s, alpha: 20 us}
answer: {conventions: [], mistakes: [not_divided_by_ranks, latency_forgotten]}
```
"""


@pytest.mark.parametrize(("answer", "verdict"), [
    ("2(k-1)(alpha + n/(k W))", "right"), ("0.44044 s", "right"), ("log_2(4) (k-1)(alpha + n/(k W))", "right"),
    ("ceil(log_2(8)) (k-1)(alpha + n/(k W)) 2/3", "right"), ("log_2(3)(k-1)(alpha + n/(k W))", "different"),
    ("2(k-1)(alpha + n/W)", "not_divided_by_ranks"),  # in the one term that is divided
    ("5.28 s", "not_divided_by_ranks"), ("2(k-1)(k alpha + n/W)", "not_divided_by_ranks"),
    ("2(k-1) n/(k W)", "latency_forgotten"), ("2(k-1)(alpha + k n/W)", "different"),
])  # fmt: skip
def test_a_division_is_forgotten_where_it_stands_and_whole_logarithms_are_whole(answer, verdict):
    problem = parse_template(RING).problem()
    found = sc.check(answer, sc.key_of(problem, problem.asks[0]))
    assert (found.verdict, *found.mistakes)[-1] == verdict


@pytest.mark.parametrize("answer", [
    "2 f n_SM n_FMA + sqrt(n_SM)", "2 f n_SM n_FMA ceil(sqrt(n_SM))", "2 f n_SM n_FMA + 10^{-20} sqrt(f)",
    "2 f n_SM n_FMA max(n_SM, f)/n_SM",
])  # fmt: skip
def test_intervals_tell_apart_what_differs(answer):
    verdict = sc.check(answer, sc.peak_rate())
    assert verdict.verdict in ("different", "mistake")
    assert verdict.counterexample is None or verdict.counterexample.answer != verdict.counterexample.key


numbers = st.fractions(min_value=Fraction(1, 9), max_value=60, max_denominator=9).map(Num)
trees = st.recursive(
    numbers,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(Total), st.tuples(inner, inner).map(Product), inner.map(Root),
        inner.map(Ceiling), inner.map(Floor), st.tuples(inner, inner).map(Largest),
        st.tuples(inner, inner).map(Smallest), inner.map(lambda one: Logarithm(Total((one, Num(Fraction(1)))))),
        inner.map(lambda one: Power(one, Num(Fraction(3)))),
    ),
    max_leaves=6,
)  # fmt: skip


@given(trees, trees)
def test_forms_are_apart_only_where_their_numbers_differ_by_another_library(one: Form, other: Form):
    """SymPy works both out to 60 digits; rounding of what is nearly whole is left out."""
    from api import value
    from sympy import N

    a, b = (N(value(form), 60) for form in (one, other))
    if are_apart(one, other, {}):
        assert a != b
    elif abs(a - b) > Fraction(1, 10**20):
        rounded = any(isinstance(piece, (Ceiling, Floor)) for form in (one, other) for piece in _walk(form))
        assert rounded
    assert not are_apart(one, one, {})


def _walk(form: Form):
    from api import walk

    return walk(form)


def test_what_takes_too_long_is_left_to_a_person_and_the_next_answer_is_decided(monkeypatch):
    d = sc.peak_rate()
    assert sc.check("2 f n_SM n_FMA", d).right
    monkeypatch.setattr(decision, "SECONDS", 0.05)

    def for_ever(self, form):
        while True:
            pass

    monkeypatch.setattr(decision._Decision, "_really", for_ever)
    verdict = sc.check("2 f n_SM n_FMA + sqrt(f) - sqrt(f) + sqrt(n_SM)", d)
    assert (verdict.verdict, verdict.hint) == (
        "undecided", "a person has to look at this: it takes too long to decide"
    )  # fmt: skip
    assert sc.check("n_SM * 2 * f n_FMA", d).right


def test_a_deadline_stops_what_runs_and_gives_a_timer_back():
    fired = []
    before = signal.signal(signal.SIGVTALRM, lambda number, frame: fired.append(number))
    signal.setitimer(signal.ITIMER_VIRTUAL, 60)
    try:
        with pytest.raises(TimeUpError), deadline(0.01):
            [0 for n in iter(int, 1)]
        assert signal.getitimer(signal.ITIMER_VIRTUAL)[0] > 0
        with deadline(0.01):  # who waits does not compute
            time.sleep(0.1)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert fired == []
