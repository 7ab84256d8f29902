"""Identities are proved by cases: against grids of numbers, which know no algebra."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product

import pytest
import sympy as sp
from api import (
    ONE,
    Accounting,
    Ceiling,
    Derivation,
    DerivationError,
    Floor,
    Form,
    Largest,
    Ratio,
    Reason,
    Smallest,
    Step,
    Sym,
    Total,
    UndecidedError,
    ValuesError,
    amount,
    identical,
    identity,
    num,
    symbol,
)
from api import form as forms
from hypothesis import given, settings
from hypothesis import strategies as st

n, k, m = (symbol(name) for name in "nkm")
x, y, w = (amount(name) for name in "xyw")
Max, Min, ceil, floor = sp.Max, sp.Min, sp.ceiling, sp.floor

TRUE = [
    (Max(x, y) + Min(x, y), x + y),
    (Max(x * w, y * w), w * Max(x, y)),
    (y + Max(0, x - y), Max(x, y)),
    (Max(x, y) ** 2, Max(x**2, y**2)),
    (floor(Max(x, y)), Max(floor(x), floor(y))),
    (ceil(n / k), floor((n + k - 1) / k)),
    (ceil(-x), -floor(x)),
    (floor((n - 1) / n), sp.Integer(0)),
    (floor(floor(n / 2) / 3), floor(n / 6)),
    (ceil(ceil(n / k) / m), ceil(n / (k * m))),
    (ceil(n / 2) + floor(n / 2), n),
    (1 / (sp.sqrt(x) - 1), (sp.sqrt(x) + 1) / (x - 1)),
]
FALSE = [
    (ceil(x / 1000), sp.Integer(1)),
    (Max(x, 1000), sp.Integer(1000)),
    (ceil(x / y), floor(x / y) + 1),
    (ceil(n / k), floor(n / k) + 1),
    (Max(x, 1), x),
    (Max(n, 10**12), sp.Integer(10**12)),
    (Min(x, 10**12), x),
    (floor(x) + floor(y), floor(x + y)),
    (Max(k - n + 1, 0), k - n + 1),
    (sp.sqrt(x) + sp.sqrt(y), sp.sqrt(x + y)),
    (n**2, n),
]


@pytest.mark.parametrize(("left", "right"), TRUE, ids=str)
def test_what_holds_in_every_case_is_proved(left, right) -> None:
    assert identical(left, right)


@pytest.mark.parametrize(("left", "right"), FALSE, ids=str)
def test_what_fails_somewhere_is_refuted(left, right) -> None:
    assert not identical(left, right)


def test_no_values_are_needed_for_a_false_identity_to_be_refused(monkeypatch) -> None:
    monkeypatch.setattr("symcomm.core.identity._refuted", lambda left, right: False)
    identical.cache_clear()  # what was decided before is kept
    for left, right in FALSE:
        with pytest.raises(UndecidedError, match="could not be decided"):
            identical(left, right)


def test_a_rewrite_that_cannot_be_decided_is_an_error(monkeypatch) -> None:
    monkeypatch.setattr("symcomm.core.identity._CASES", 0)
    identical.cache_clear()
    why = Reason("rule", "because")
    left = Largest((Sym("x", whole=False), Sym("y", whole=False)))
    right = Total((left.choices[1], Largest((num(0), Total((left.choices[0], forms.negative(left.choices[1])))))))
    with pytest.raises(DerivationError) as caught:
        Derivation("the larger", Accounting(), (Step("V", left, ONE, why), Step("V", right, ONE, why, "=")))
    assert str(caught.value) == (
        "V: whether Max(x, y) is y + Max(0, x - y) could not be decided in the derivation of the larger"
    )


SYMBOLS = [Sym("n"), Sym("k"), Sym("x", whole=False), num(1), num(2), num(3)]


def made(random_: random.Random, depth: int) -> Form:
    """A random piecewise form of few symbols."""
    if not depth:
        return random_.choice(SYMBOLS)
    a, b = made(random_, depth - 1), made(random_, random_.randrange(depth))
    return random_.choice([
        Total((a, b)), Total((a, forms.negative(b))), forms.product(a, b), Ratio(a, b), Ceiling(Ratio(a, b)),
        Floor(Ratio(a, b)), Largest((a, b)), Smallest((a, b)),
    ])  # fmt: skip


def spoilt(form: Form, random_: random.Random) -> Form:
    """The same with one piece of another kind."""
    pieces = [p for p in forms.walk(form) if isinstance(p, (Ceiling, Floor, Largest, Smallest))]
    if not pieces:
        return Largest((form, num(2)))
    chosen = random_.choice(pieces)
    match chosen:
        case Ceiling(inside):
            other: Form = Total((Floor(inside), num(1)))
        case Floor(inside):
            other = Total((Ceiling(inside), num(-1)))
        case Largest(choices) | Smallest(choices):
            other = random_.choice(choices)

    def go(f: Form) -> Form:
        return other if f is chosen else f.mapped(go)

    return go(form)


GRID = [
    {"n": Fraction(a), "k": Fraction(b), "x": c}
    for a, b, c in product(
        (1, 2, 3, 4, 5, 6, 7, 12, 10**13), (1, 2, 3, 4, 6, 10**13),
        (Fraction(1, 10**13), Fraction(1, 2), Fraction(1), Fraction(7, 3), Fraction(10**14 + 1, 2)),
    )
]  # fmt: skip


def apart(left: Form, right: Form) -> bool:
    for point in GRID:
        try:
            if forms.evaluate(left, point) != forms.evaluate(right, point):
                return True
        except ValuesError:
            continue
    return False


def judged(left: Form, right: Form) -> bool | None:
    try:
        return identical(forms.value(left), forms.value(right))
    except UndecidedError:
        return None


def defined(form: Form) -> bool:
    return not forms.value(form).has(sp.zoo, sp.nan, sp.oo)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_a_random_false_identity_never_passes(seed: int) -> None:
    random_ = random.Random(seed)
    left = made(random_, 2)
    right = spoilt(left, random_)
    if defined(left) and defined(right) and apart(left, right):
        assert judged(left, right) is not True


@pytest.mark.long
@settings(max_examples=600, deadline=None)
@given(st.integers(0, 10**9))
def test_many_random_identities_are_judged_as_the_grid_judges_them(seed: int) -> None:
    random_ = random.Random(seed)
    left = made(random_, 2)
    right = random_.choice([spoilt(left, random_), left, Total((left, num(0)))])
    if defined(left) and defined(right):
        assert judged(left, right) in ((False, None) if apart(left, right) else (True, None, False))


def test_a_proof_by_cases_ends_after_two_seconds_and_says_how_far_it_came(monkeypatch):
    """A maximum of maxima in many symbols has more cases than can be told apart; no clock is read here."""
    a, b, c, d, e, f = (amount(name) for name in "abcdef")
    left = sp.Max(sp.Max(a, b) * c, sp.Max(d, e) * f)
    right = sp.Max(a * c, b * c, d * f, e * f)
    monkeypatch.setattr(identity, "SECONDS", 0.0)
    identical.cache_clear()
    with pytest.raises(UndecidedError, match=r"24 sets of numbers make no difference, and \d+ of its cases"):
        identical(left, right)
    identical.cache_clear()


def test_a_maximum_that_stands_on_both_sides_is_not_split_into_cases(monkeypatch):
    """Seven maxima have more cases than are tried, but each is one factor of a quotient."""
    x, y, z = (amount(name) for name in "xyz")
    pieces = [sp.Max(x * n, y, z / n) for n in range(1, 8)]
    monkeypatch.setattr(identity, "_CASES", 0)
    total = sp.Add(*pieces)
    assert identical((total * x + pieces[0]) / x, total + pieces[0] / x)
    identical.cache_clear()
    with pytest.raises(UndecidedError, match="0 of its cases were proved, but not all"):
        identical(sp.Max(x, y) + sp.Min(x, y), x + y)
    identical.cache_clear()


@pytest.mark.parametrize(
    ("numbers", "least", "most"),
    [
        ((sp.Integer(2), sp.sqrt(3), sp.Rational(5, 2)), 1, 2),
        ((sp.sqrt(2) * sp.sqrt(5), sp.pi), 1, 0),  # 3.16 and 3.14
        ((1 + sp.Rational(1, 10**30), sp.Integer(1)), 1, 0),  # floats are the same
        ((sp.sqrt(10**30 + 1), sp.Integer(10**15)), 1, 0),
        ((sp.sqrt(2), sp.Integer(0)), 1, 0),
        ((sp.Integer(7),), 0, 0),
    ],
)  # fmt: skip
def test_the_largest_of_several_numbers_is_told_however_near_they_are(numbers, least, most):
    assert forms.extreme(Max, [*numbers]) == numbers[most]
    assert forms.extreme(Min, [*numbers]) == numbers[least]
