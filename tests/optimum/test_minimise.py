"""Optima in closed form agree with trying every whole number; what cannot be told is said."""

import random
from fractions import Fraction as F  # noqa: N817

import pytest
import sympy as sp
from api import (
    ONE,
    Accounting,
    AccountingError,
    CountQuestion,
    Derivation,
    Domain,
    Irrational,
    Largest,
    Logarithm,
    Num,
    Power,
    Ratio,
    Reason,
    RefusedError,
    Root,
    Smallest,
    Step,
    Sym,
    Total,
    Unit,
    ValuesError,
    amount,
    break_even,
    course,
    maximise,
    minimise,
    neat,
    num,
    product,
    sensitivity,
    sign_at,
    symbol,
    terms,
    total,
)
from api import cost_written as written
from api import form as forms
from api import optimum_search as search

SECOND = Unit.parse("second")
n, s, w, o, x = (Sym(name, False) for name in "nswox")
OVERHEAD = total(product(n, o), Ratio(s, product(n, w)))


def least(form: forms.Form, low: int, high: int, sense: int = 1, **values: F) -> tuple[list[int], F]:
    """The best whole numbers by trying each."""
    worth = {k: sense * forms.evaluate(form, {**values, "n": F(k)}) for k in range(low, high + 1)}
    best = min(worth.values())
    return [k for k, v in worth.items() if v == best], sense * best


def number(rng: random.Random) -> F:
    return F(rng.randint(1, 200), rng.randint(1, 20))


# -- closed forms and brute force ----------------------------------------------------------------------


@pytest.mark.long
def test_the_closed_whole_optimum_is_the_best_of_all_whole_numbers_in_1000_cases_with_ties_and_bounds():
    """The smaller one of two that tie is given, and bounds are kept."""
    rng = random.Random(1)
    plain = minimise(OVERHEAD, "n")
    bounded = {(low, high): minimise(OVERHEAD, "n", lower=low, upper=high) for low, high in
               ((1, 3), (4, 9), (2, 2), (7, 60), (1, 12))}  # fmt: skip
    ties = 0
    for case in range(1000):
        values = {"s": number(rng), "w": number(rng), "o": number(rng)}
        if case % 4 == 0:  # s / (w o) = k (k + 1): two neighbours cost the same
            k = rng.randint(1, 20)
            values["s"] = k * (k + 1) * values["w"] * values["o"]
        top = 2 + sp.integer_nthroot(int(values["s"] / values["w"] / values["o"]) + 1, 2)[0]
        expected, _ = least(OVERHEAD, 1, int(top) + 2, **values)
        ties += len(expected) > 1
        if case % 3:
            assert plain.at(**values).value == expected[0]
        else:
            (low, high), found = rng.choice(list(bounded.items()))
            assert found.at(**values).value == least(OVERHEAD, low, high, **values)[0][0]
    assert ties >= 200


def test_the_exact_condition_of_a_whole_optimum_holds_exactly_for_the_best_ones():
    made = minimise(OVERHEAD, "n")
    low, ratio, high = (made.exhibits[0].rows[0][i] for i in range(3))
    rng = random.Random(2)
    for _ in range(20):
        values = {"s": number(rng), "w": number(rng), "o": number(rng)}
        best, _ = least(OVERHEAD, 1, 100, **values)
        middle = forms.evaluate(ratio, values)
        holds = [
            k for k in range(1, 100)
            if forms.evaluate(low, {"n": F(k)}) <= middle <= forms.evaluate(high, {"n": F(k)})
        ]  # fmt: skip
        assert not holds or holds == best


@pytest.mark.parametrize("sense", [1, -1])
def test_the_search_with_numbers_agrees_with_brute_force_on_piecewise_and_rational_costs(sense):
    rng = random.Random(3 + sense)
    for case in range(60):
        a, b, c, d = (num(rng.randint(1, 60)) for _ in range(4))
        rising, falling = product(a, n), Ratio(product(b, num(5)), n)
        form = rng.choice(
            [
                Largest((total(rising, c), total(falling, d))),
                total(Largest((rising, falling)), Ratio(c, n)),
                Smallest((total(rising, falling), total(product(d, n), c))),
                total(product(a, Power(n, num(3))), forms.negative(product(b, Power(n, num(2)))), Ratio(c, n)),
                Ratio(total(product(n, n), a), total(n, b)),
                Largest((Largest((rising, c)), Smallest((falling, d)))),
            ]
        )
        low, high = rng.randint(1, 4), rng.randint(4, 40)
        expected, value = least(form, low, high, sense)
        found = search.whole(forms.value(form), amount("n"), Domain(F(low), F(high), True), sense)
        assert (set(found.best) <= set(expected), found.value) == (True, value)
        if case % 20 == 0:
            best = minimise if sense > 0 else maximise
            assert best(form, "n", lower=low, upper=high).at().value in expected
            assert best(form, "n", lower=low, upper=high, wanted="value").at().value == value


def test_a_divisor_is_the_best_of_all_divisors():
    rng = random.Random(5)
    for _ in range(15):
        values = {"s": number(rng), "w": number(rng), "o": number(rng)}
        batch = rng.choice([1, 12, 64, 60, 97])
        allowed = [k for k in range(1, batch + 1) if batch % k == 0]
        worth = {k: forms.evaluate(OVERHEAD, {**values, "n": F(k)}) for k in allowed}
        assert worth[int(minimise(OVERHEAD, "n", values, divides=batch).at().value)] == min(worth.values())


def test_a_tie_is_said():
    made = minimise(Largest((product(num(1), n), Ratio(num(6), n))), "n")
    assert made.at().value in (2, 3)
    assert "shares the least cost with 3" in made.steps[-1].reason.text


# -- the working ------------------------------------------------------------------------------------------


def test_the_working_shows_slope_second_order_place_value_and_one_more():
    made = minimise(OVERHEAD, "n")
    assert [step.name for step in made.steps] == ["f", "f'", "f''", "n^*", "f^*", "f^*", "Delta", "Delta", "n^whole"]
    worth = made.worth
    S, W, overhead, N = (amount(name) for name in "swon")
    assert sp.expand(worth["f'"] - sp.diff(worth["f"], N)) == 0
    assert sp.expand(worth["f''"] - sp.diff(worth["f"], N, 2)) == 0
    assert worth["n^*"] == sp.sqrt(S / (W * overhead))
    assert sp.expand(forms.value(made.steps[5].form) - 2 * sp.sqrt(S * overhead / W)) == 0
    assert "Every term is positive" in made.steps[2].reason.text


def test_units_are_followed():
    units = {"o": SECOND, "s": Unit.parse("byte"), "w": Unit.parse("byte/second")}
    form = forms.substitute(OVERHEAD, lambda y: Sym(y.name, False, units.get(y.name, ONE)))
    made = minimise(form, "n", integer=False, wanted="value")
    assert made.unit == SECOND
    assert made.steps[1].unit == SECOND


def test_an_irrational_optimum_is_exact_with_a_decimal_reading():
    made = minimise(OVERHEAD, "n", {"s": 8, "w": 1, "o": 1}, integer=False)
    found = made.at()
    assert isinstance(found, Irrational)
    assert str(found) == "2·√(2) ≈ 2.82843"
    assert "≈ 2.82843" in made.text()
    assert r"2\,\sqrt{2} \approx 2.82843" in made.latex()
    assert abs(found.value**2 - 8) < F(1, 10**25)


def test_an_irrational_number_is_not_taken_for_an_exact_one():
    found = minimise(OVERHEAD, "n", {"s": 8, "w": 1, "o": 1}, integer=False).at()
    with pytest.raises(ValuesError, match=r"s is irrational, about 2\.82843: an exact number is needed"):
        minimise(OVERHEAD, "n", {"s": found})


def test_the_square_root_of_a_negative_number_is_no_answer():
    step = Step("r", Root(Total((x, num(-3)))), ONE, Reason("r", "t."))
    made = Derivation("root", Accounting(), (step,))
    with pytest.raises(ValuesError, match="is not a real number"):
        made.at(x=1)


def test_real_optima_are_brought_into_their_range():
    made = minimise(OVERHEAD, "n", integer=False, lower=3, upper=5)
    assert made.at(s=1, w=1, o=1).value == 3
    assert made.at(s=16, w=1, o=1).value == 4
    assert made.at(s=100, w=1, o=1).value == 5


def test_three_terms_of_a_slope_are_solved_by_the_quadratic_formula():
    form = total(product(num(2), Power(x, num(2))), product(num(3), x), negative_log := Ratio(num(5), Sym("y", False)))
    assert negative_log in form.parts
    made = minimise(total(Power(x, num(3)), product(o, x, x), forms.negative(product(s, x))), "x", integer=False)
    for a, b in ((1, 7), (3, 2), (F(1, 2), 9)):
        place = made.at(o=a, s=b).value
        assert abs(3 * place**2 + 2 * a * place - b) < F(1, 10**20)


def test_powers_that_are_symbols_have_a_closed_form():
    alpha, beta = Sym("alpha", False), Sym("beta", False)
    made = minimise(total(Ratio(s, Power(x, alpha)), product(o, Power(x, beta))), "x", integer=False)
    assert "rises above it" in made.steps[2].reason.text
    place = made.at(s=3, o=2, alpha=F(1, 2), beta=F(1, 3)).value
    assert abs(float(F(3, 2) * F(1, 2) * 3) ** (6 / 5) - float(place)) < 1e-9


def test_without_a_closed_form_the_optimum_is_bracketed_by_exact_fractions():
    quintic = total(Power(x, num(5)), Power(x, num(3)), Ratio(num(3), x))
    made = minimise(quintic, "x", integer=False)
    high = made.at().value
    slope = sp.diff(made.worth["f"], amount("x"))
    assert "There is no closed form" in made.notes[-1]
    below, above = (slope.subs(amount("x"), sp.Rational(v.numerator, v.denominator)) for v in
                    (high - F(1, 10**10), high))  # fmt: skip
    assert below < 0 < above


def test_a_logarithm_is_bracketed_by_interval_arithmetic():
    form = total(product(num(3), n), forms.negative(product(num(10), Logarithm(n))))
    made = minimise(form, "n", integer=False)
    assert abs(made.at().value - F(10, 3)) < F(1, 10**10)
    assert minimise(form, "n").at().value == 3
    assert sign_at(sp.log(amount("n")) - 1, amount("n"), F(3)) == 1


def test_a_kink_is_found_exactly():
    made = minimise(Largest((product(num(2), x), Ratio(num(7), x))), "x", integer=False)
    assert made.expr == sp.sqrt(14) / 2
    assert "larger is least where both are equal" in made.steps[-1].reason.text
    made = minimise(Largest((product(num(2), x), Ratio(num(7), x), num(1))), "x", integer=False)
    assert made.expr == sp.sqrt(14) / 2
    assert "two pieces of the cost meet" in made.steps[-1].reason.text


def test_maximise_finds_the_top():
    form = total(product(num(7), x), forms.negative(product(x, x)))
    assert maximise(form, "x", integer=False).at().value == F(7, 2)
    assert maximise(form, "x").at().value == 3
    assert maximise(form, "x", integer=False, wanted="value").at().value == F(49, 4)


# -- what cannot be told ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        (OVERHEAD, {"over": "q"}, "does not depend on 'q'"),
        (OVERHEAD, {"lower": 9, "upper": 3}, "there is no n from 9 to 3"),
        (OVERHEAD, {"lower": F(5, 2), "upper": F(14, 5)}, "there is no whole n from 3 to 2"),
        (OVERHEAD, {"upper": -1}, "upper = -1: the values are positive"),
        (OVERHEAD, {"divides": 12}, "we cannot decide where the cost is least: whether a divisor above or below"),
        (OVERHEAD, {"divides": 12, "integer": False}, "only whole numbers divide"),
        (OVERHEAD, {"divides": 0}, "a positive whole number is needed"),
        (OVERHEAD, {"given": {"s": -3}}, "s = -3: costs are functions of positive numbers"),
        (OVERHEAD, {"given": {"s": 1, "w": 1, "o": 1}, "divides": 7, "lower": 2, "upper": 6}, "no divisor of 7 lies"),
        (product(s, n), {"integer": False}, "there is no optimum: the cost"),
        (Ratio(s, n), {}, "the cost falls for all n > 0"),
        (forms.negative(product(s, n)), {}, "the cost falls for all n > 0"),
        (total(product(s, n), forms.negative(product(n, n))), {}, "its greatest value"),
        (total(product(Total((s, forms.negative(w))), n), Ratio(o, n)), {}, "the sign of s - w is not known"),
        (total(Power(n, num(3)), forms.negative(product(s, n, n)), product(w, n)), {}, "change 2 times"),
        (Largest((product(s, n), Ratio(w, n))), {}, "give numbers for s, w"),
        (Largest((Ratio(num(1), n), Ratio(num(3), product(n, n)))), {}, "comes ever nearer to 0 as n grows"),
        (Smallest((total(num(5), forms.negative(n)), Ratio(num(1), n))), {}, "the cost has no bound as n grows"),
        (Ratio(num(1), Total((n, num(-3)))), {"upper": 9}, "a division by zero"),
        (total(Power(n, num(4)), product(s, n, n), Ratio(w, n)), {}, "its slope has no root in closed form"),
        (total(n, Logarithm(n), forms.negative(product(Logarithm(n), n))), {}, "the cost has no bound as n grows"),
    ],
)  # fmt: skip
def test_what_has_no_optimum_or_cannot_be_told_is_said(form, options, message):
    with pytest.raises(ValuesError) as error:
        minimise(form, **{"over": "n", **options})
    assert message in str(error.value)


def test_a_sign_that_the_symbols_do_not_tell_is_told_by_the_numbers():
    form = total(product(Total((s, forms.negative(w))), n), Ratio(o, n))
    assert minimise(form, "n", {"s": 5, "w": 1, "o": 100}).at().value == 5
    with pytest.raises(ValuesError, match="falls"):
        minimise(form, "n", {"s": 1, "w": 5, "o": 100})


def test_a_cost_that_only_rises_is_least_at_its_lower_bound():
    assert minimise(product(s, n), "n").at(s=3).value == 1
    assert minimise(product(s, n), "n", lower=4).at(s=3).value == 4
    assert minimise(Ratio(s, n), "n", upper=9, wanted="value").at(s=3).value == F(1, 3)


def test_a_weak_sign_never_gives_less_than_one():
    p, t = Sym("p"), Sym("t", False)
    form = product(Total((n, p, num(-1))), total(Ratio(t, n), o))
    made = minimise(form, "n")
    assert made.at(p=1, t=5, o=1).value == 1
    assert made.where == ()  # the first number is the lower bound, and it is the nearest one to a place of zero
    with pytest.raises(ValuesError, match="there is no optimum: the cost"):
        minimise(form, "n", {"p": 1, "t": 5, "o": 1}, integer=False)


# -- elasticities and break-even ---------------------------------------------------------------------------


def derivation(form: forms.Form, title: str = "cost", unit: Unit = ONE, **accounting: str) -> Derivation:
    step = Step("T", form, unit, Reason("r", "t."))
    return Derivation(title, Accounting.of(**accounting), (step,), ("communication",))


def test_elasticities_of_the_optimum_are_the_powers_of_its_parameters():
    made = minimise(derivation(OVERHEAD), "n", integer=False)
    assert [sensitivity(made, to=name).expr for name in "swo"] == [
        sp.Rational(1, 2),
        -sp.Rational(1, 2),
        -sp.Rational(1, 2),
    ]


def test_an_elasticity_of_a_sum_is_its_share():
    made = sensitivity(OVERHEAD, to="o")
    assert made.at(n=2, o=3, s=8, w=2).value == F(6, 8)


def test_a_ceiling_has_no_elasticity():
    with pytest.raises(ValuesError, match="steps or kinks"):
        sensitivity(minimise(derivation(OVERHEAD), "n"), to="s")


def test_break_even_says_which_cost_is_less_before_it():
    made = break_even(derivation(product(o, n), "small"), derivation(Ratio(s, n), "large"), over="n")
    assert made.at(o=1, s=9).value == 3
    assert made.notes == ("Below the crossover small is less, above it large.",)
    made.check(deep=True)


def test_powers_that_are_no_whole_numbers_are_equal_at_a_closed_form():
    square, third, cubic = (Power(n, num(e)) for e in (F(1, 2), F(1, 3), 3))
    made = break_even(derivation(product(o, square), "root"), derivation(product(s, third), "third"), "n")
    assert made.at(o=2, s=6).value == 3**6
    assert made.notes == ("Below the crossover root is less, above it third.",)
    for p in (Sym("p"), Sym("p", False)):
        made = break_even(derivation(product(total(p, num(-1)), cubic), "cubes"), derivation(s, "constant"), over="n")
        assert [str(condition) for condition in made.where] == ["p > 1"]
        assert made.at(p=3, s=16).value == 2
        with pytest.raises(ValuesError, match="the closed form holds where p > 1"):
            made.at(p=1, s=16)


def test_costs_that_are_never_equal_have_no_break_even():
    with pytest.raises(ValuesError, match=r"never equal\nhint: There is no crossover: less is less than more"):
        break_even(derivation(product(num(2), n), "more"), derivation(n, "less"), over="n")
    with pytest.raises(ValuesError, match="there is no crossover: less is less for every n"):
        break_even(derivation(product(num(2), o, n), "more"), derivation(product(o, n), "less"), over="n")
    with pytest.raises(ValuesError, match=r"has no closed form, and s, w have no value\nhint: give s a value"):
        break_even(derivation(Largest((n, s)), "a"), derivation(w, "b"), over="n")
    with pytest.raises(ValuesError, match=r"has no closed form\nhint: use crossover with numbers"):
        break_even(derivation(Largest((n, num(2))), "a"), derivation(num(3), "b"), over="n")


def test_break_even_refuses_different_units_and_conventions():
    with pytest.raises(AccountingError, match="is in s, but"):
        break_even(derivation(product(Num(F(1), SECOND), n), "a", SECOND), derivation(s, "b"), over="n")
    with pytest.raises(AccountingError):
        break_even(derivation(n, "a"), derivation(s, "b", communication="all_links"), over="n")


def test_the_larger_of_a_rising_and_a_falling_cost_is_least_where_both_are_equal():
    """Against a search over a fine grid, for numbers that come after the closed form."""
    rng = random.Random(5)
    made = minimise(Largest((total(product(n, o), w), Ratio(s, n))), "n", integer=False)
    made.check(deep=True)
    most = maximise(Smallest((total(product(n, o), w), Ratio(s, n))), "n", integer=False)
    for _ in range(20):
        values = {name: number(rng) for name in "osw"}
        place = float(made.at(**values).value)
        a, b, c = (float(values[name]) for name in "osw")
        grid = [place * (0.5 + k / 1000) for k in range(1001)]
        best = min(grid, key=lambda y: max(y * a + c, b / y))
        assert abs(best - place) < place / 900
        assert most.at(**values).value == made.at(**values).value
    assert "larger is least where both are equal" in made.steps[-1].reason.text
    with pytest.raises(ValuesError, match="we cannot decide"):
        minimise(Largest((product(n, o), product(n, s))), "n", integer=False)


# -- pieces ---------------------------------------------------------------------------------------------------


def test_terms_are_sorted_by_their_power_and_roots_are_gathered():
    X, S = amount("x"), amount("s")
    assert terms(S * X**2 + 3 / X - X, X) == ((-1, 3), (1, -1), (2, S))
    assert terms(sp.log(X), X) is None
    assert terms(X ** amount("a") + X ** amount("b"), X) is None  # which power is the larger is not known
    assert course(((sp.Integer(-1), -S), (sp.Integer(1), S))).kind == "valley"
    assert course(()).kind == "flat"
    assert neat(3 - 3 * symbol("p")) == -3 * (symbol("p") - 1)
    assert isinstance(written(sp.sqrt(S / X)), Root)


def test_a_range_without_whole_numbers_is_refused():
    with pytest.raises(ValuesError, match="there is no whole number from 5 to 4"):
        search.whole(amount("n") + 1, amount("n"), Domain(F(5), F(4), True))


def test_the_best_whole_number_stands_among_its_neighbours():
    """100/n + 3n at 4, 5, 6, 7, 8, by hand; below 1 there is none."""
    beside = minimise("100/n + 3 n", "n").exhibits[-1].rows
    assert [(row[0], row[2]) for row in beside] == [("4", ""), ("5", ""), ("6", "best"), ("7", ""), ("8", "")]
    assert [row[1].value for row in beside] == [37, 35, F(104, 3), F(247, 7), F(73, 2)]
    assert [row[0] for row in minimise("1/n + n", "n").exhibits[-1].rows] == ["1", "2", "3"]


# -- conditions of a closed form -----------------------------------------------------------------------


def test_a_closed_form_says_where_it_holds_beside_the_formula_and_in_the_notes():
    made = minimise("s + (1 - s)/n", over="n")  # rises with n where s > 1, falls where s < 1
    assert made.expr == 1
    assert made.notes == ("This holds where `s` ≥ 1.",)
    assert made.steps[-1].condition == "`s` ≥ 1"
    for page in (made.text(), made.markdown(), made.html()):
        assert "This holds where" in page
        assert "(if" in page
    made.check(deep=True)


def test_beyond_its_condition_the_answer_is_found_anew():
    falling = minimise("s + (1 - s)/n", over="n")
    assert falling.at(s=3).value == 1
    with pytest.raises(ValuesError, match="the cost falls for all n > 0"):
        falling.at(s="1/2")
    assert minimise("s + (1 - s)/n", over="n", upper=8).at(s="1/2").value == 8


def test_a_real_optimum_at_an_open_bound_is_refused_late_as_it_is_early():
    made = minimise("(n + p - 1)(t/n + o)", over="n", integer=False)
    assert made.notes == ("This holds where `p` > 1.",)
    assert made.at(p=3, t=2, o=1).value == 2  # sqrt((3 - 1) 2/1)
    with pytest.raises(ValuesError) as early:
        minimise("(n + p - 1)(t/n + o)", over="n", integer=False, given={"p": 1})
    for p in (1, "1/2"):
        with pytest.raises(ValuesError) as late:
            made.at(p=p, t=2, o=1)
        assert str(late.value) == str(early.value)
    assert minimise("(n + p - 1)(t/n + o)", over="n", integer=False, lower=1).at(p=1, t=2, o=1).value == 1
    assert minimise("(n + p - 1)(t/n + o)", over="n").at(p=1, t=2, o=1).value == 1


def test_a_condition_that_the_numbers_decide_is_not_told():
    made = minimise("(n + p - 1)(t/n + o)", over="n", integer=False, given={"p": 3})
    assert not any("holds where" in note for note in made.notes)


def test_a_cost_worked_out_anew_at_each_number_is_least_first_within_and_passed_where_counting_finds_it():
    rng = random.Random(11)
    for _ in range(40):
        worth = {n: F(rng.randint(1, 9)) for n in sorted(rng.sample(range(1, 60), 9))}
        refused = {*rng.sample([*worth], 3)}

        def cost(number, worth=worth, refused=refused):
            if number in refused:
                raise RefusedError(f"not {number}")
            return worth[number]

        question, able = CountQuestion(cost, [*worth]), {n: v for n, v in worth.items() if n not in refused}
        for sense, extreme in ((1, min(able.values())), (-1, max(able.values()))):
            found = question.least(sense)
            assert (found.best, found.value) == (tuple(n for n in able if able[n] == extreme), extreme)
            assert found.refused == tuple((n, f"not {n}") for n in sorted(refused))
        assert question.first(F(4)) == min((n for n in able if able[n] <= 4), default=None)
        start, step, most = rng.randint(1, 9), rng.randint(1, 5), F(rng.randint(1, 9000))
        numbers = range(start, 400, step)
        within = [n for n in numbers if n**2 <= most]
        last = (within[-1], within[-1] + step) if within and len(within) < len(numbers) else None
        assert CountQuestion(lambda n: F(n**2), numbers).edge(most) == last
        assert CountQuestion(lambda n: -F(n**2), numbers).edge(-most - F(1, 2)) == last

    def never(number):
        raise RefusedError(f"not {number}")

    with pytest.raises(RefusedError, match="not 4"):
        CountQuestion(never, (4, 6)).least()


def test_the_edge_lies_in_a_range_that_has_no_length():
    """As one of 2^60 numbers has none in a browser, where Python counts with 32 bits; here it is one of 2^70."""
    numbers = range(3, 3 * (2**70 + 1), 3)
    with pytest.raises(OverflowError):
        len(numbers)
    assert CountQuestion(F, numbers).edge(F(10**20)) == (10**20 - 10**20 % 3, 10**20 - 10**20 % 3 + 3)
