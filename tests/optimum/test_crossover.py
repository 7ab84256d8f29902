"""Crossovers: worked out by hand, by exact evaluation on both sides, and refused where they mean nothing."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise

import pytest
import sympy as sp
from api import (
    ONE,
    Accounting,
    AccountingError,
    Ceiling,
    Crossing,
    Derivation,
    Form,
    Power,
    Product,
    Ratio,
    Reason,
    Step,
    Sym,
    Total,
    Unit,
    ValuesError,
    amount,
    crossover,
    crossovers,
    envelope,
    holding,
    no_model,
    num,
    product,
    sure_root,
)

import symcomm as sc

N, X = Sym("n"), Sym("x", whole=False)


def cost(title: str, form: Form, unit: Unit = ONE, accounting: Accounting | None = None, **given: int) -> Derivation:
    step = Step("T", form, unit, Reason("given", "A test."))
    touched = () if accounting is None else ("message_cost", "algorithm")
    values = tuple((name, Fraction(v)) for name, v in given.items())
    return Derivation(title, accounting or Accounting(), (step,), touched, given=values)


def timed(name: str, accounting: object = None, **options: object) -> Derivation:
    return no_model().derive("collective_time", accounting=accounting, algorithm=name, **options)


LINK = {"latency": "20 us", "bandwidth": "100 GB/s"}
DIVISIBLE = {"chunks": "divisible"}


# -- solved symbolically -------------------------------------------------------------------------------------


def test_two_lines_cross_where_algebra_says() -> None:
    d = crossover(cost("a", Total((Sym("c"), product(num(2), N)))), cost("b", product(num(5), N)), "n")
    assert d.at(c=12).value == 4
    assert [s.reason.rule for s in d.steps] == ["first cost", "second cost", "difference", "solve"]
    assert "Below the crossover b is less, above it a." in d.notes


def test_ring_and_doubling_cross_at_the_payload_worked_out_by_hand() -> None:
    """Eight ranks: 14 alpha + 14/8 n/W = 3 alpha + 3 n/W, so n = 11 alpha W / (5/4)."""
    one, two = (timed(name, DIVISIBLE, ranks=8) for name in ("ring", "recursive_doubling"))
    d = crossover(one, two, "n")
    alpha, width = Fraction(1, 50_000), Fraction(10**11)
    assert d.at(alpha=alpha, W=width).value == 11 * alpha * width / Fraction(5, 4)
    assert str(d.unit) == "B"


def test_ring_and_tree_cross_at_a_closed_form_in_the_ranks() -> None:
    d = crossover(timed("ring", DIVISIBLE), timed("tree", DIVISIBLE), "n")
    for k, rounds in ((4, 2), (6, 3), (16, 4)):
        n = Fraction((2 * (k - 1) - 2 * rounds) * k, 2 * rounds * k - 2 * (k - 1))
        assert d.at(k=k, alpha=1, W=1).value == n


def test_the_bandwidth_of_a_crossover_is_solved_for_with_whole_chunks_too() -> None:
    """c = ceil(10^6/6): 10 alpha + 10 c/W = 3 * 2 (alpha + n/W)."""
    one, two = (timed(name, ranks=6, payload="1 MB", **LINK) for name in ("ring", "tree"))
    found = crossovers(one, two, "W")
    chunk = -(-(10**6) // 6)
    expected = Fraction(6 * 10**6 - 10 * chunk) / (4 * Fraction(1, 50_000))
    assert found.crossings == (Crossing(expected, expected),)
    assert found.derivation.at().value == expected
    assert found.less == (-1, 1)  # with little bandwidth the ring's fewer bytes count


def test_the_positive_root_of_a_quadratic_is_taken() -> None:
    square = cost("square", Power(X, num(2)))
    line = cost("line", Total((X, Sym("a"))))
    assert crossover(square, line, "x").at(a=6).value == 3  # x^2 = x + 6


def test_an_irrational_root_is_bracketed_by_fractions() -> None:
    found = crossovers(cost("square", Power(X, num(2))), cost("two", num(2)), "x")
    (root,) = found.crossings
    assert root.low**2 < 2 < root.high**2
    assert root.high - root.low < Fraction(1, 10**12)


def test_all_crossings_of_a_cubic_are_found() -> None:
    """(x - 1)(x - 2)(x - 4) = x^3 - 7 x^2 + 14 x - 8."""
    left = cost("left", Total((Power(X, num(3)), product(num(14), X))))
    right = cost("right", Total((product(num(7), Power(X, num(2))), num(8))))
    found = crossovers(left, right, "x")
    assert [c.low for c in found.crossings] == [1, 2, 4]
    assert found.less == (-1, 1, -1, 1)
    assert any("cross 3 times" in note for note in found.derivation.notes)


def test_costs_that_touch_but_do_not_cross_have_no_crossover() -> None:
    """(x - 3)^2 + x against x."""
    left = cost("left", Total((Power(X, num(2)), num(9), X)))
    right = cost("right", product(num(7), X))
    found = crossovers(left, right, "x")
    assert found.crossings == ()
    assert found.less == (1,)


# -- bracketed exactly ---------------------------------------------------------------------------------------


def test_a_crossover_with_whole_chunks_is_the_first_payload_on_the_other_side() -> None:
    one, two = (timed(name, ranks=8, payload="1 MB", **LINK) for name in ("ring", "tree"))
    found = crossovers(one, two, "n")
    (c,) = found.crossings
    assert c.high - c.low == 1
    assert one.at(n=int(c.low)).value > two.at(n=int(c.low)).value
    assert one.at(n=int(c.high)).value < two.at(n=int(c.high)).value
    assert found.derivation.at().value == c.high


def test_a_crossover_in_the_ranks_is_a_whole_number_found_by_trying_each() -> None:
    options = {"payload": "1 MB", **LINK}
    one, two = (timed(name, ranks=2, **options) for name in ("ring", "tree"))
    found = crossovers(one, two, "k", between=(2, 300))
    assert found.crossings
    signs = [one.at(k=k).value < two.at(k=k).value for k in range(2, 301) if one.at(k=k).value != two.at(k=k).value]
    flips = sum(a != b for a, b in pairwise(signs))
    assert flips == len(found.crossings)
    # Each whole number has its side.
    for c, side in zip(found.crossings, found.less[1:], strict=True):
        gap = one.at(k=int(c.high)).value - two.at(k=int(c.high)).value
        assert (gap > 0) - (gap < 0) == side


def test_a_step_cost_is_overtaken_where_its_step_is() -> None:
    steps = cost("steps", product(num(10), Ceiling(Ratio(N, num(16)))))
    flat = cost("flat", num(35))
    found = crossovers(steps, flat, "n", between=(1, 1000))
    assert found.crossings == (Crossing(Fraction(48), Fraction(49)),)


def test_one_that_is_always_better_is_said_to_be() -> None:
    one, two = (timed(name, ranks=8, payload="1 MB", **LINK) for name in ("tree", "recursive_doubling"))
    d = crossover(one, two, "n")
    assert any(
        "There is no crossover: time of all-reduce by recursive doubling is less than time of all-reduce by tree "
        "for every n" in note for note in d.notes
    )  # fmt: skip
    assert d.exhibits[0].rows[0][2] == "time of all-reduce by recursive doubling"


def test_a_number_of_a_crossover_that_there_is_not_is_refused_with_the_reason() -> None:
    none = sc.crossover("a D + 3", "D + 1", over="D", given={"a": 2}, between=(1, 1000))
    for known in ({}, {"D": 8}):
        with pytest.raises(ValuesError) as caught:
            none.at(**known)
        assert str(caught.value) == (
            "There is no crossover: D + 1 is less than a·D + 3 for every D from 1 to 1000\n"
            "hint: another range, with between"
        )
    with pytest.raises(ValuesError, match="Both are equal for every D from 1 to 9"):
        sc.crossover("2 D", "D + D", over="D", between=(1, 9)).at()


def test_equal_costs_are_said_to_be_equal() -> None:
    found = crossovers(cost("a", product(num(2), N)), cost("b", Total((N, N))), "n")
    assert found.less == (0,)
    assert any("Both are equal" in note for note in found.derivation.notes)


# -- strategies ----------------------------------------------------------------------------------------------


def test_two_strategies_cross_at_a_batch_size() -> None:
    """One product: data parallelism reduces 2 D F bytes of gradients, tensor parallelism partial sums of B x D."""
    table = "Computation\tInput\tOutput\nh = xU\tx [B, D], U [D, F]\th [B, F]\ny = hW\th [B, F], W [F, D]\ty [B, D]\n"
    model = sc.load(table)
    data, tensor = model.communication("data(8)", "all-reduce"), model.communication("tensor(8)", "all-reduce")
    d = crossover(data, tensor, "B")
    for D, F in ((64, 256), (96, 304)):
        batch = d.at(D=D, F=F).value
        values = {"D": D, "F": F}
        below, above = int(batch) - 1, int(batch) + 1
        assert tensor.at(B=below, **values).value < data.at(**values).value < tensor.at(B=above, **values).value


# -- refused -------------------------------------------------------------------------------------------------


def test_costs_counted_differently_are_refused_unless_that_is_compared() -> None:
    one = cost("a", N, accounting=Accounting(message_cost="alpha_beta", algorithm="ring"))
    two = cost("b", Total((N, num(-3))), accounting=Accounting(message_cost="bandwidth_only", algorithm="tree"))
    with pytest.raises(AccountingError) as caught:
        crossover(one, two, "n")
    assert "message_cost: alpha_beta, but 'b' under message_cost: bandwidth_only" in str(caught.value)
    assert "compared=['message_cost']" in str(caught.value)
    made = crossover(one, two, "n", compared=("message_cost", "algorithm"))
    assert "Compared: message_cost alpha_beta with bandwidth_only." in made.notes


def test_costs_in_different_units_are_refused() -> None:
    with pytest.raises(AccountingError, match="'a' is in B, but 'b' is in s"):
        crossover(
            cost("a", Sym("n", unit=Unit.parse("byte")), Unit.parse("byte")),
            cost("b", Sym("n", unit=Unit.parse("second")), Unit.parse("second")), "n",
        )  # fmt: skip


def test_a_variable_that_is_in_neither_is_refused_with_near_ones() -> None:
    with pytest.raises(ValuesError) as caught:
        crossover(cost("a", Sym("batch")), cost("b", num(3)), "bacth")
    assert str(caught.value) == "neither cost depends on 'bacth'\nhint: did you mean 'batch'?"


def test_a_crossover_that_needs_numbers_says_which() -> None:
    with pytest.raises(ValuesError) as caught:
        crossover(timed("ring", ranks=8), timed("tree", ranks=8), "n")
    assert "the crossover over n has no closed form, and W, alpha have no value" in str(caught.value)


def test_two_values_of_one_symbol_are_refused() -> None:
    form = Product((Sym("c"), N))
    with pytest.raises(ValuesError, match="c is 2 in 'a', but 3 in 'b'"):
        crossover(cost("a", form, c=2), cost("b", Total((form, num(1))), c=3), "n")


@pytest.mark.parametrize("between", [(5, 5), (9, 2), (0, 4)])
def test_an_empty_range_is_refused(between: tuple[int, int]) -> None:
    with pytest.raises(ValuesError, match="is empty or not positive"):
        crossover(cost("a", N), cost("b", num(3)), "n", between)


def test_an_algorithm_is_not_compared_with_itself() -> None:
    with pytest.raises(ValuesError, match="'ring' is compared with itself"):
        no_model().derive("collective_crossover", algorithm="ring", other="ring")


def test_a_crossover_over_an_unknown_number_is_refused() -> None:
    with pytest.raises(ValuesError, match="unknown choice 'bandwith' of 'over'"):
        no_model().derive("collective_crossover", over="bandwith")


# -- the lower envelope --------------------------------------------------------------------------------------


def test_the_envelope_changes_hands_at_every_whole_number_where_the_least_changes() -> None:
    costs = [cost("flat", num(50)), cost("line", N), cost("half", Total((num(20), Ratio(N, num(2)))))]
    found = envelope(costs, "n", (1, 1000))
    assert [(int(s.low), int(s.high), s.best) for s in found] == [(1, 40, 1), (41, 59, 2), (60, 1000, 0)]


def test_the_envelope_of_rounded_costs_misses_no_number_where_the_least_changes() -> None:
    """Parts of 97, of which a begun one counts whole: near 40 000 they and the line change places with each part.

    Against trying every number there.
    """
    worth = (lambda n: 40_000 + 9 * n, lambda n: 970 * -(-n // 97))
    costs = [cost("line", Total((num(40_000), product(num(9), N)))),
             cost("parts", product(num(970), Ceiling(Ratio(N, num(97)))))]  # fmt: skip
    tried: list[tuple[int, int]] = []  # where each stretch begins
    for n in range(30_000, 50_001):
        now = min((0, 1), key=lambda k, n=n: worth[k](n))
        if not tried or tried[-1][1] != now:
            tried.append((n, now))
    found = envelope(costs, "n", (30_000, 10**12))
    assert [(int(s.low), s.best) for s in found] == tried
    assert len(tried) > 10
    assert all(b.low == a.high + 1 for a, b in pairwise(found))


# -- the condition of a crossing in symbols ------------------------------------------------------------


def test_a_crossing_in_symbols_says_where_it_is_one_and_refuses_other_numbers():
    made = sc.crossover("a + n", "b n", over="n")  # a = (b - 1) n
    assert made.notes[-1] == "This holds where `b` > 1."
    assert made.at(a=4, b=3).value == 2
    for b in (1, "1/2"):
        with pytest.raises(ValuesError, match="the closed form holds where b > 1"):
            made.at(a=4, b=b)
    assert sc.crossover("a + n", "3 n", over="n").where == ()
    assert sc.crossover("o n + a", "s/n", over="n").where == ()  # a parabola with roots of different signs


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(40))
def test_the_condition_of_a_line_is_where_its_root_is_positive(seed):
    """The root of p x + q with drawn signs, by hand, is positive exactly where the condition holds."""
    rng = random.Random(seed)
    a, b, c, d, x = (amount(name) for name in "abcdx")
    p, q = (rng.choice((1, -1)) * one + rng.choice((1, -1)) * other for one, other in ((a, b), (c, d)))
    gap = p * x + q
    solved = sure_root(gap, x)
    condition = holding(gap, x, solved, {})
    for _ in range(20):
        at = {s: rng.randint(1, 9) for s in (a, b, c, d)}
        slope, rest = p.subs(at), q.subs(at)
        if slope == 0 or rest == 0:
            continue
        kept = condition is None or condition.holds({s.name: Fraction(n) for s, n in at.items()})
        assert solved.subs(at) == -rest / slope
        assert kept == (-rest / slope > 0) or (condition is None and solved.is_negative)


def test_a_sure_root_is_the_positive_one_of_a_parabola():
    a, b, c, x = (amount(name) for name in "abcx")
    for gap in (a * x**2 + b * x - c, c - b * x - a * x**2, a * x - c / x, a + b / x - c / x**2):
        found = sure_root(gap, x)
        at = {a: 2, b: 3, c: 5}
        assert found.subs(at) > 0
        assert sp.simplify(gap.subs(at).subs(x, found.subs(at))) == 0
    assert sure_root(a * x**2 - b * x + c, x) is None  # both roots have one sign
    assert sure_root(sp.log(x) - a, x) is None
