"""Hard costs: a true optimum, found again on a grid, or a clear statement; never a wrong optimum, never a hang."""

import math
from collections.abc import Callable
from fractions import Fraction as F  # noqa: N817

import pytest
import sympy as sp
from api import (
    BYTE,
    Accounting,
    Ceiling,
    Derivation,
    Floor,
    Form,
    Largest,
    Logarithm,
    Num,
    Power,
    Ratio,
    Reason,
    Root,
    Smallest,
    Step,
    Sym,
    Total,
    Unit,
    ValuesError,
    break_even,
    crossover,
    maximise,
    minimise,
    negative,
    num,
    product,
    rational,
    real,
    sensitivity,
    total,
)

n, a, b, c = (Sym(name, False) for name in "nabc")
SECOND = Unit.parse("second")


def power(k: int) -> Form:
    return Power(n, num(k))


def minus(*terms: Form) -> Total:
    return Total((terms[0], *(negative(t) for t in terms[1:])))


FOURTH = total(
    power(4), negative(product(num(14), power(3))), product(num(61), power(2)), negative(product(num(84), n))
)
WHOLE = [
    (minus(power(3), Ratio(n, num(2))), lambda k: k**3 - k / 2, {}),
    (power(3), lambda k: k**3, {}),
    (FOURTH, lambda k: k**4 - 14 * k**3 + 61 * k**2 - 84 * k, {}),
    (FOURTH, lambda k: k**4 - 14 * k**3 + 61 * k**2 - 84 * k, {"lower": 3}),
    (Power(Total((n, rational(F(-5, 2)))), num(2)), lambda k: (k - 2.5) ** 2, {}),
    (minus(n, product(num(20), Logarithm(n))), lambda k: k - 20 * math.log(k), {}),
    (Logarithm(n), math.log, {}),
    (Ratio(Logarithm(n), n), lambda k: math.log(k) / k, {"lower": 2, "upper": 9}),
    (total(Power(num(2), n), Ratio(num(50), n)), lambda k: 2**k + 50 / k, {"upper": 40}),
    (total(Ceiling(Ratio(num(10), n)), Ratio(n, num(4))), lambda k: -(-10 // k) + k / 4, {"upper": 30}),
    (minus(Ratio(n, num(4)), Floor(Ratio(n, num(3)))), lambda k: k / 4 - k // 3, {"upper": 40}),
    (total(Root(n), Ratio(num(8), n)), lambda k: k**0.5 + 8 / k, {}),
    (minus(product(num(4), Root(n)), n), lambda k: 4 * k**0.5 - k, {"lower": 1, "upper": 30}),
    (total(Root(minus(num(10), n)), Ratio(num(1), n)), lambda k: (10 - k) ** 0.5 + 1 / k, {"upper": 10}),
    (Largest((minus(n, num(5)), minus(num(5), n))), lambda k: abs(k - 5), {}),
    (Smallest((n, minus(num(9), n))), lambda k: min(k, 9 - k), {"upper": 9}),
    (Ratio(n, total(n, num(1))), lambda k: k / (k + 1), {}),
    (total(n, Ratio(num(1), power(400))), lambda k: k + k**-400.0, {}),
    (Ratio(num(1), Total((n, num(-3)))), lambda k: 1 / (k - 3), {"lower": 4, "upper": 9}),
    (product(n, Ceiling(Ratio(num(100), n))), lambda k: k * -(-100 // k), {"upper": 100}),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WHOLE)))
def test_the_best_whole_number_of_a_hard_cost_is_that_of_a_grid(case):
    form, cost, options = WHOLE[case]
    place = int(minimise(form, "n", **options).at().value)
    grid = range(options.get("lower", 1), options.get("upper", 60) + 1)
    assert place in grid
    assert cost(place) <= min(map(cost, grid)) + 1e-12


REAL = [
    (minus(power(3), product(num(3), n)), lambda x: x**3 - 3 * x, {}),
    (FOURTH, lambda x: x**4 - 14 * x**3 + 61 * x**2 - 84 * x, {}),
    (Power(product(Total((n, num(-1))), Total((n, num(-3)))), num(2)), lambda x: ((x - 1) * (x - 3)) ** 2, {}),
    (minus(n, Logarithm(n)), lambda x: x - math.log(x), {}),
    (Power(Logarithm(n), num(2)), lambda x: math.log(x) ** 2, {}),
    (product(n, Logarithm(n)), lambda x: x * math.log(x), {}),
    (Logarithm(n), math.log, {"lower": 2}),
    (total(Power(num(2), n), Ratio(num(50), n)), lambda x: 2 ** min(x, 900) + 50 / x, {}),
    (minus(product(num(4), Root(n)), n), lambda x: 4 * x**0.5 - x, {"lower": 1, "upper": 9}),
    (total(n, Ratio(num(1), power(400))), lambda x: x + math.exp(min(-400 * math.log(x), 500)), {}),
    (Largest((minus(n, num(5)), minus(num(5), n))), lambda x: abs(x - 5), {}),
    (Ratio(num(1), n), lambda x: 1 / x, {"upper": F(7, 2)}),
]


@pytest.mark.parametrize("case", range(len(REAL)))
def test_the_best_real_number_of_a_hard_cost_is_that_of_a_grid(case):
    form, cost, options = REAL[case]
    place = float(minimise(form, "n", integer=False, **options).at().value)
    low, high = float(options.get("lower", 1e-3)), float(options.get("upper", 1e3))
    grid = [low * (high / low) ** (i / 4000) for i in range(4001)]
    assert low <= place <= high
    assert cost(place) <= min(map(cost, grid)) + 1e-9


def test_two_places_with_the_same_cost_are_said():
    made = minimise(Power(product(Total((n, num(-1))), Total((n, num(-3)))), num(2)), "n", integer=False)
    assert "one of 2 places" in made.steps[-1].reason.text


def test_an_optimum_far_away_or_very_near_zero_is_found():
    far = minimise(total(Ratio(num(10**30), n), n), "n").at().value
    assert far == 10**15
    tiny = minimise(minus(n, product(rational(F(1, 10**40)), Logarithm(n))), "n", integer=False).at().value
    assert abs(tiny * 10**40 - 1) < F(1, 10**9)


def test_a_divisor_is_wanted_even_where_numbers_tell_the_signs():
    form = total(product(minus(a, b), n), Ratio(num(20), n))
    cost = {k: k + F(20, k) for k in (1, 3, 9)}  # 4 is best of all
    assert minimise(form, "n", {"a": 3, "b": 2}, divides=9).at().value == min(cost, key=cost.__getitem__) == 3


STATED: list[tuple[Form, dict[str, object], str]] = [
    (negative(n), {}, "the cost falls for all n > 0"),
    (power(3), {"integer": False}, "the cost rises for all n > 0"),
    (Logarithm(n), {"integer": False}, "the cost has no bound as n comes near 0"),
    (Ratio(num(1), Power(num(2), n)), {}, "comes ever nearer to 0 as n grows"),
    (total(Ceiling(Ratio(num(10), n)), n), {}, "its kinks and the zeros of its slope are not all found"),
    (total(Root(minus(num(10), n)), n), {"upper": 12}, "the cost is not a real number at n = 11"),
    (Ratio(product(num(0), n), product(num(0), n)), {}, "the cost is not defined for any n: a division by zero"),
    (Ratio(num(1), product(num(0), n)), {}, "the cost is not defined for any n: a division by zero"),
    (total(Largest((Ratio(num(1), num(0)), num(2))), n), {}, "the cost is not defined for any n: a division by zero"),
    (Ratio(n, minus(a, b)), {"given": {"a": 2, "b": 2}}, "the cost is not defined with these numbers"),
    (Ratio(num(1), Power(Total((n, num(-3))), num(2))), {}, "a division by zero"),
    (total(n, negative(n), num(3)), {"integer": False}, "the cost does not change with n"),
    (total(a, num(1)), {}, "the cost does not depend on 'n'"),
    (total(product(minus(a, b), n), Ratio(c, n)), {"given": {"a": 3, "b": 3, "c": 2}}, "the cost falls for all n > 0"),
    (total(Power(n, minus(a, b)), n), {"integer": False}, "give numbers for a, b"),
    (Ratio(n, total(n, num(1))), {"integer": False}, "comes ever nearer to 0 as n comes near 0"),
    (total(Power(Total((n, num(-3))), num(3)), n), {"integer": False}, "comes ever nearer to -27 as n comes near 0"),
    (Ratio(total(power(2), num(1)), total(power(2), negative(product(num(4), n)), num(5))), {"integer": False},
     "comes ever nearer to 1/5 as n comes near 0"),
    (n, {"upper": 0}, "upper = 0"),
    (n, {"lower": 2.5}, "lower is the float 2.5"),
    (n, {"lower": 9, "upper": 3}, "there is no n from 9 to 3"),
    (n, {"divides": 2**400}, "its divisors are not looked for"),
    (n, {"divides": True}, "divides is True"),
    (n, {"divides": F(1, 2)}, "divides=1/2"),
    (n, {"wanted": "plce"}, "'plce' cannot be asked of an optimum"),
    (Largest(tuple(total(product(num(k), n), num(-k * k)) for k in range(70))), {}, "the largest of 70 terms"),
    (Power(total(n, num(1)), num(10**6)), {}, "the power 1000000 of a sum"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(STATED)))
def test_what_has_no_optimum_or_cannot_be_told_is_stated(case):
    form, options, message = STATED[case]
    with pytest.raises(ValuesError) as error:
        minimise(form, "n", **options)
    assert message in str(error.value)


def test_what_has_no_greatest_value_is_stated():
    with pytest.raises(ValuesError, match="comes ever nearer to"):
        maximise(Ratio(n, total(n, num(1))), "n")


def test_huge_powers_are_no_trouble():
    assert minimise(total(power(10**6), Ratio(num(1), n)), "n").at().value == 1
    assert minimise(power(10**9), "n").at().value == 1


# -- units ------------------------------------------------------------------------------------------------------

s, w, o, x = (
    Sym("s", False, BYTE),
    Sym("w", False, Unit.parse("byte/second")),
    Sym("o", False, SECOND),
    Sym("x", False, BYTE),
)


def seconds(form: Form, title: str = "cost") -> Derivation:
    return Derivation(title, Accounting(), (Step("T", form, SECOND, Reason("r", "t.")),))


SIZE = seconds(total(Ratio(product(o, s), x), Ratio(x, w)), "bucket")
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: minimise(SIZE, "x", {"s": "8 GB/s"}), "s is given in B/s, but it is in B"),
    (lambda: maximise(SIZE, "x", {"o": "3 GB"}), "o is given in B, but it is in s"),
    (lambda: minimise(SIZE, "x", upper="3 s"), "upper is given in s, but it is in B"),
    (lambda: minimise(SIZE, "x", lower="3 ms"), "lower is given in s, but it is in B"),
    (lambda: sensitivity(SIZE, "w", {"s": "1 s"}), "s is given in s, but it is in B"),
    (lambda: sensitivity(SIZE, "w", {"w": "1 GB"}), "w is given in B, but it is in B/s"),
    (lambda: crossover(seconds(total(o, Ratio(x, w))), seconds(product(num(3), o)), "x", ("1 s", "2 s")),
     "a limit of x is given in s, but it is in B"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_a_value_in_another_unit_is_refused_with_the_unit_that_is_wanted(case):
    ask, message = WRONG[case]
    with pytest.raises(ValuesError) as error:
        ask()
    assert message in str(error.value)
    assert "write it in" in str(error.value)


def test_values_in_the_right_unit_and_bare_numbers_are_taken():
    best = minimise(SIZE, "x", {"s": "8 GB", "o": "1 ms", "w": 10**10}, integer=False)
    assert best.unit == BYTE
    assert abs(float(best.at().value) / math.sqrt(8e9 * 1e-3 * 1e10) - 1) < 1e-12
    assert minimise(SIZE, "x", {"s": "8 GB", "o": "1 ms", "w": 10**10}, upper="1 MB").at().value == 10**6


def test_a_break_even_and_a_crossover_have_the_unit_of_their_variable():
    costs = seconds(total(o, Ratio(x, w)), "one"), seconds(product(num(3), o), "other")
    assert break_even(*costs, over="x").unit == BYTE
    assert crossover(*costs, "x").unit == BYTE
    assert crossover(seconds(Ratio(x, w), "one"), seconds(Num(F(3), SECOND), "other"), "x").unit == BYTE


def test_numbers_keep_the_unit_that_their_terms_lack():
    made = minimise(seconds(total(Ratio(Num(F(6), SECOND), n), product(n, o))), "n", integer=False, wanted="value")
    assert [step.unit for step in made.steps] == [SECOND] * 3 + [Unit()] + [SECOND] * 2
    assert str(made.at(o=6)) == "12 s"


def test_a_break_even_refuses_two_values_of_one_name():
    one, other = seconds(total(o, Ratio(x, w)), "one"), seconds(product(num(3), o), "other")
    with pytest.raises(ValuesError, match="o is 1 in 'one', but 2 in 'other'"):
        break_even(one.with_given(o=1), other.with_given(o=2), over="x")


def test_a_slope_that_only_touches_zero_does_not_blur_the_roots_behind_it() -> None:
    x = sp.Symbol("x", positive=True)
    cost = sp.integrate(sp.expand((x**2 - 2) ** 2 * (x**2 - 7)), x)  # its slope touches zero at sqrt(2)
    (best,) = real(cost, x, F(0), None, True)
    assert best.number == sp.sqrt(7)
    assert best.high - best.low <= F(2, 10**15)
    assert best.low**2 < 7 < best.high**2
