"""What a cost is told by its units, by some of its numbers, and by what counts things: checked by hand and by grids."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
import sympy as sp
from api import (
    BYTE,
    FormulaError,
    Num,
    Power,
    Ratio,
    Root,
    Sym,
    Unit,
    ValuesError,
    amount,
    has_both_signs,
    minimise,
    no_model,
    num,
    product,
    symbol,
    total,
)

import symcomm as sc

SECOND = Unit.parse("second")
n = Sym("n", False)


def seconds(number: int) -> Num:
    return Num(Fraction(number), SECOND)


# -- units ---------------------------------------------------------------------------------------------------------


def test_amounts_of_different_units_are_not_minimised() -> None:
    mixed = total(product(Num(Fraction(4), BYTE), n), Ratio(seconds(9), n))
    with pytest.raises(ValuesError) as caught:
        minimise(mixed, "n")
    assert str(caught.value) == (
        "the cost makes no sense: terms of different units are added: B and s\n"
        "hint: give each number its unit, or none of them one"
    )


def test_numbers_with_units_are_combined_and_keep_them() -> None:
    """4 s n + 5 s n + 36 s/n: 9 n = 36/n, so n = 2, and 36 s."""
    cost = total(product(seconds(4), n), product(seconds(5), n), Ratio(seconds(36), n))
    assert minimise(cost, "n", integer=False).at().value == 2
    assert str(minimise(cost, "n", wanted="value").at()) == "36 s"
    # their difference decides a sign: 5 s n - 4 s n + 36 s/n is least at 6
    less = total(product(seconds(5), n), product(seconds(-4), n), Ratio(seconds(36), n))
    assert minimise(less, "n").at().value == 6


def test_a_number_with_a_unit_stays_below_the_root_that_it_comes_to_stand_in() -> None:
    made = minimise(total(Ratio(seconds(6), n), product(n, Sym("o", False, SECOND))), "n", integer=False)
    assert made.answer.form == Root(Ratio(seconds(6), Sym("o", False, SECOND)))
    assert made.at(o="1.5 s").value == 2


def test_the_unit_of_a_whole_number_of_bytes_is_that_of_the_variable() -> None:
    """x/w + s o/x over bytes: the whole byte beside the root of s o w."""
    x, w = Sym("x", False, BYTE), Sym("w", False, BYTE / SECOND)
    cost = total(Ratio(x, w), Ratio(product(Sym("s", False, BYTE), Sym("o", False, SECOND)), x))
    made = minimise(cost, "x", {"s": "50 B", "o": "2 s", "w": 3})
    worth = {k: Fraction(k, 3) + Fraction(100, k) for k in range(1, 60)}
    assert made.unit == BYTE
    assert worth[int(made.at().value)] == min(worth.values())


def test_a_power_of_an_amount_keeps_its_unit_in_the_slope() -> None:
    x = Sym("x", False, BYTE)
    cost = total(Power(x, num(2)), Ratio(Num(Fraction(16), BYTE * BYTE * BYTE), x))  # 2 x^3 = 16 B^3
    made = minimise(cost, "x", integer=False)
    assert (made.at().value, made.unit) == (2, BYTE)


def test_text_takes_the_units_of_the_numbers_that_are_given() -> None:
    given = {"s": "8 GB", "w": "120 GB/s", "o": "0.1 ms"}
    least = sc.minimise("n*o + s/(n*w)", "n", given, wanted="value")
    worth = {k: k * Fraction(1, 10_000) + Fraction(8, 120 * k) for k in range(1, 99)}
    assert (least.at().value, str(least.unit)) == (min(worth.values()), "s")
    with pytest.raises(ValuesError, match="terms of different units are added: B and s"):
        sc.minimise("n*o + s/(n*w)", "n", {**given, "o": "0.1 GB"})


# -- signs ---------------------------------------------------------------------------------------------------------


def test_some_of_the_numbers_decide_a_sign() -> None:
    """a n + (b - c)/n with b - c = 9 is least at 3/sqrt(a)."""
    made = sc.minimise("a n + (b - c)/n", "n", {"b": 13, "c": 4}, integer=False)
    assert made.at(a=Fraction(1, 4)).value == 6
    assert "The signs of its terms depend on the given numbers, so we put these in." in made.steps[0].reason.text
    whole = sc.minimise("a n + (b - c)/n", "n", {"b": 13, "c": 4})
    for a in (Fraction(1, 4), Fraction(1, 3), Fraction(2), Fraction(30)):
        worth = {k: a * k + Fraction(9, k) for k in range(1, 40)}
        assert worth[int(whole.at(a=a).value)] == min(worth.values())
    with pytest.raises(ValuesError, match="there is no optimum"):
        sc.minimise("a n + (b - c)/n", "n", {"b": 4, "c": 13}, integer=False)


def test_a_number_of_stages_is_at_least_one_and_that_is_said() -> None:
    made = sc.minimise("(m + p - 1)(t/m + o)", "m")
    assert [str(condition) for condition in made.where] == ["p >= 1"]
    for p, t, o in ((1, 5, 1), (4, 32, 1), (7, Fraction(5, 2), 3), (Fraction(3, 2), 9, 1)):
        worth = {m: (m + p - 1) * (Fraction(t) / m + o) for m in range(1, 60)}
        assert worth[int(made.at(p=p, t=t, o=o).value)] == min(worth.values())
    assert made.at(p="1/2", t=5, o=1).value == 1  # beyond the condition: the cost rises from the first m on


def test_numbers_refute_no_sign_that_the_assumptions_of_the_symbols_prove() -> None:
    """Random sums of three terms of two counts and an amount: SymPy's assumptions tell the signs by themselves."""
    rng, p, q, w = random.Random(5), symbol("p"), symbol("q"), amount("w")
    refuted = proved = 0
    for _ in range(300):
        powers = ([rng.choice((-1, 0, 1, 2)) for _ in range(3)] for _ in range(3))
        expr = sp.Add(*(rng.randint(-2, 2) * p**i * q**j * w**k for i, j, k in powers))
        told = sp.factor(expr).is_nonnegative or sp.factor(expr).is_nonpositive
        refuted, proved = refuted + has_both_signs(expr), proved + bool(told)
        assert not (told and has_both_signs(expr)), expr
    assert refuted > 100
    assert proved > 100


def test_a_sign_that_nothing_tells_is_still_asked_for() -> None:
    with pytest.raises(ValuesError, match="the sign of a - b is not known\nhint: give numbers for a, b, c"):
        sc.minimise("(a - b) n + c/n", "n")


# -- at least one --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("want", "value"), [("number", 1), ("whole_number", 1), ("size", 10**6), ("least", Fraction(101, 100_000))]
)
def test_there_is_at_least_one_bucket(want: str, value: object) -> None:
    """1 MB over 100 GB/s takes 10 us, a call 1 ms: one bucket, 1.01 ms."""
    made = no_model().derive("buckets", want=want)
    assert made.at(s="1 MB", w="100 GB/s", o="1 ms").value == value


@pytest.mark.parametrize("numbers", [{"p": 1, "t": 5, "o": 1}, {"p": 4, "t": 1, "o": 100}])
def test_there_is_at_least_one_microbatch_and_one_chunk(numbers: dict[str, int]) -> None:
    p, t, o = numbers.values()
    assert no_model().derive("pipeline_time", want="chunks").at(**numbers).value == 1
    assert no_model().derive("pipeline_time", want="least").at(**numbers).value == p * (t + o)
    link = {"h": p, "S": t, "B": 1, "a": o}
    assert no_model().derive("pipelined_broadcast", want="chunks").at(**link).value == 1
    assert no_model().derive("pipelined_broadcast", want="least").at(**link).value == p * (t + o)


# -- text in crossovers and break-evens ------------------------------------------------------------------------------


def test_crossover_and_break_even_take_text_in_two_spellings() -> None:
    assert sc.crossover(r"\alpha + n/W", "3 alpha", "n").at(alpha=2, W=5).value == 20
    assert sc.crossover("x^2", "x + a", "x", given={"a": 6}).at().value == 3
    assert sc.break_even("o n", r"\frac{s}{n}", "n").at(o=2, s=18).value == 3
    made = sc.break_even("o + n/w", "p", "n", {"o": "1 ms", "w": "2 GB/s", "p": "3 ms", "n": "1 B"})
    assert (made.at().value, made.unit) == (4 * 10**6, BYTE)


def test_crossover_takes_a_derivation_against_a_number_that_no_convention_touches() -> None:
    ring = no_model().derive("collective_time", algorithm="ring", ranks=8, accounting={"chunks": "divisible"})
    made = sc.crossover(ring, Num(Fraction(1), SECOND), "n", given={"alpha": "20 us", "W": "1 GB/s"})
    assert made.at().value == (1 - 14 * Fraction(20, 10**6)) * 10**9 * Fraction(8, 14)


def test_costs_of_two_units_do_not_cross() -> None:
    with pytest.raises(sc.SymcommError, match=r"is in s, but .* is in B"):
        sc.crossover("o n", "s/n", "n", given={"o": "1 s", "s": "1 B"})


@pytest.mark.parametrize("cost", ["4 GB n + 9/n", "n o + 4 ms/n", "2 TFLOP/n + n"])
def test_a_unit_in_a_text_is_refused_and_asked_for_with_the_number(cost: str) -> None:
    said = "is a unit, and a formula has names(?s:.*)give it as a number with this unit"
    with pytest.raises(FormulaError, match=said):
        sc.minimise(cost, "n")
