"""A derivation cannot be built wrong."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
import sympy as sp
from api import (
    BYTE,
    ELEMENT,
    FLOP,
    ONE,
    Accounting,
    AccountingError,
    Derivation,
    DerivationError,
    Exhibit,
    Num,
    Power,
    Product,
    Ratio,
    Reason,
    Relations,
    Short,
    Step,
    Sym,
    Total,
    Unit,
    ValuesError,
    exact,
    identical,
    in_one_unit,
    num,
    product,
    symbol,
)
from api import form as forms
from hypothesis import given
from hypothesis import strategies as st

import symcomm as sc

WHY = Reason("rule", "because")
HEADS = Relations((("D", product(Sym("n_H"), Sym("H"))),))


def derivation(*steps: Step, relations: Relations = HEADS, **more: object) -> Derivation:
    return Derivation("volume", Accounting(), steps, relations=relations, **more)  # type: ignore[arg-type]


def test_a_column_of_bare_numbers_has_no_unit_to_share() -> None:
    cells = [Short(Fraction(1, 2)), Short(Fraction(1, 7)), Short(Fraction(1, 100))]
    exhibit = Exhibit("Errors", ("error",), tuple((cell,) for cell in cells))
    assert in_one_unit(exhibit) == exhibit


def test_a_false_rewrite_cannot_be_built() -> None:
    with pytest.raises(DerivationError, match=r"V: 2\*D\*\*2 is not 3\*D\*\*2 in the derivation of volume"):
        derivation(
            Step("V", product(num(2), Sym("D"), Sym("D")), ONE, WHY),
            Step("V", product(num(3), Power(Sym("D"), num(2))), ONE, WHY, "="),
        )


def test_a_rewrite_may_use_the_relation_between_sizes() -> None:
    d = derivation(
        Step("V", product(Sym("D"), Sym("n_H"), Sym("H")), ONE, WHY), Step("V", Power(Sym("D"), num(2)), ONE, WHY, "=")
    )
    assert d.expr == symbol("D") ** 2


def test_a_rewrite_that_holds_only_without_the_relation_is_refused() -> None:
    with pytest.raises(DerivationError):
        derivation(
            Step("V", product(Sym("D"), Sym("n_H"), Sym("H")), ONE, WHY),
            Step("V", Power(Sym("D"), num(2)), ONE, WHY, "="),
            relations=Relations(),
        )


def test_a_name_must_be_defined_before_it_is_rewritten() -> None:
    with pytest.raises(DerivationError, match="V is used before it is defined in the derivation of volume"):
        derivation(Step("V", Sym("D"), ONE, WHY, "="))


def test_a_name_cannot_be_defined_twice_or_by_itself() -> None:
    with pytest.raises(DerivationError, match="V is defined twice"):
        derivation(Step("V", Sym("D"), ONE, WHY), Step("V", Sym("D"), ONE, WHY))
    with pytest.raises(DerivationError, match="V is defined by itself"):
        derivation(Step("V", product(num(2), Sym("V")), ONE, WHY))


def test_a_symbol_cannot_become_the_name_of_a_step() -> None:
    with pytest.raises(DerivationError, match="F is a symbol and a step's name in the derivation of volume"):
        derivation(Step("V", product(num(2), Sym("F")), ONE, WHY), Step("F", Sym("V"), ONE, WHY))


def test_a_step_keeps_its_unit() -> None:
    with pytest.raises(DerivationError, match="V changes its unit from B to FLOP"):
        derivation(
            Step("V", Product((Sym("D"), Num(Fraction(2), Unit.parse("byte/element")))), BYTE, WHY),
            Step("V", product(num(2), Sym("D")), FLOP, WHY, "="),
        )


def test_bytes_cannot_be_declared_to_be_operations() -> None:
    with pytest.raises(DerivationError, match="F has the unit FLOP, but its form is in B"):
        derivation(Step("F", Product((Sym("D"), Num(Fraction(2), BYTE))), FLOP, WHY))


def test_terms_of_different_units_cannot_be_added() -> None:
    with pytest.raises(DerivationError, match="terms of different units are added: B and FLOP"):
        derivation(Step("a", Num(Fraction(2), BYTE), BYTE, WHY), Step("b", Num(Fraction(2), FLOP), FLOP, WHY),
                   Step("c", Total((Sym("a"), Sym("b"))), BYTE, WHY))  # fmt: skip


def test_a_derivation_without_steps_is_refused() -> None:
    with pytest.raises(DerivationError, match="the derivation of volume has no steps"):
        derivation()


def test_an_approximation_needs_its_condition_and_never_is_the_answer() -> None:
    exactly = Step("V", Ratio(Total((Sym("k"), num(-1))), Sym("k")), ONE, WHY)
    with pytest.raises(DerivationError, match="V is approximated without a condition"):
        derivation(exactly, Step("V", num(1), ONE, WHY, "≈"))
    d = derivation(exactly, Step("V", num(1), ONE, WHY, "≈", condition="many ranks"))
    assert d.at(k=8).value == Fraction(7, 8)


def test_a_missing_value_is_named() -> None:
    d = derivation(Step("V", product(Sym("N_layer"), Sym("D")), ONE, WHY))
    with pytest.raises(ValuesError) as caught:
        d.at(D=3)
    assert str(caught.value) == (
        "volume needs a value for N_layer\nhint: for instance at(N_layer=8), --at N_layer=8, "
        "or given: {N_layer: 8} in a document"
    )


def test_a_value_that_the_relation_implies_need_not_be_given() -> None:
    d = derivation(Step("V", Sym("H"), ONE, WHY))
    assert d.at(D=4096, n_H=32).value == 128


def test_numbers_that_break_a_relation_are_refused_with_both_sides() -> None:
    d = derivation(Step("V", Sym("D"), ONE, WHY))
    with pytest.raises(ValuesError) as caught:
        d.at(D=4096, n_H=32, H=120)
    text = str(caught.value)
    assert "the given numbers break D = " in text
    assert "3840" in text
    assert "D = 4096" in text


def test_two_derivations_under_different_conventions_are_not_combined() -> None:
    from api import ratio

    step = Step("V", Num(Fraction(8), BYTE), BYTE, WHY)
    a = Derivation("first", Accounting(), (step,), ("communication",))
    b = Derivation("second", Accounting(communication="all_links"), (step,), ("communication",))
    with pytest.raises(AccountingError) as caught:
        ratio(a, b)
    assert str(caught.value) == (
        "'first' is counted under communication: payload, but 'second' under communication: all_links\n"
        "hint: derive both under one accounting, or compare them over it: compared=['communication']"
    )


def test_a_ratio_keeps_the_numbers_of_both_and_takes_names_that_are_free():
    """Its steps are called a, b and r, which the sizes of a model may be called, too."""
    model = sc.load("Computation\tInput\tOutput\ny = x W\tx [B, r], W [r, a]\ty [B, a]\n")
    made = sc.ratio(model.flops("training"), model.flops())
    assert [step.name for step in made.steps] == ["a'", "b", "r'", "r'"]
    assert made.at(B=2, r=3, a=5).value == 3
    made.check(deep=True)
    with pytest.raises(ValuesError, match="B is 2 in 'Forward FLOPs', but 4 in 'Forward FLOPs'"):
        sc.ratio(model.at(B=2).flops(), model.at(B=4).flops())
    nothing = derivation(Step("V", num(0), ONE, WHY))
    with pytest.raises(ValuesError, match="'volume' is 0: nothing is divided by it"):
        sc.ratio(nothing, nothing)


@pytest.mark.parametrize(("field", "one", "other"), [("communication", "sent_per_rank", "payload"),
                                                     ("communication", "all_links", "sent_per_rank")])  # fmt: skip
def test_a_ratio_of_two_conventions_says_both(field: str, one: str, other: str):
    model = sc.load("Computation\tInput\tOutput\ny = x W\tx [B, D], W [D, F]\ty [B, F]\n")
    a, b = (model.communication("data(k)", accounting=name) for name in (one, other))
    with pytest.raises(AccountingError, match=f"is counted under {field}: {one}"):
        sc.ratio(a, b)
    made = sc.ratio(a, b, compared=[field])
    assert made.notes == (f"Compared: {field} {one} with {other}.",)
    assert made.at(k=4).value == a.at(D=8, F=8, k=4).value / b.at(D=8, F=8, k=4).value


def test_floats_are_refused_because_they_are_not_exact() -> None:
    with pytest.raises(ValuesError, match=r"D is the float 0\.1, which is not exact"):
        exact(0.1, "D")


def test_probes_find_a_difference_that_small_numbers_hide() -> None:
    k = symbol("k")
    assert not identical(k**2, k)
    assert identical((k - 1) * (k + 1), k**2 - 1)


small = st.integers(min_value=1, max_value=9)


@st.composite
def written(draw: st.DrawFn, depth: int = 3) -> forms.Form:
    """A random form of sums, products, quotients, powers and roundings."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.one_of(small.map(num), st.sampled_from([Sym("D"), Sym("L"), Sym("k")])))
    parts = st.lists(written(depth - 1), min_size=2, max_size=3).map(tuple)  # type: ignore[call-arg]
    one = written(depth - 1)  # type: ignore[call-arg]
    return draw(
        st.one_of(
            parts.map(Total),
            parts.map(Product),
            st.tuples(one, one).map(lambda p: Ratio(*p)),
            st.tuples(one, st.integers(0, 3)).map(lambda p: Power(p[0], num(p[1]))),
            one.map(forms.Ceiling),
            one.map(forms.Floor),
            parts.map(forms.Largest),
        )
    )


@given(written(), small, small, small)
def test_the_value_of_a_form_is_what_the_form_evaluates_to(f: forms.Form, d: int, length: int, k: int) -> None:
    values = {"D": Fraction(d), "L": Fraction(length), "k": Fraction(k)}
    expected = forms.evaluate(f, values)
    got = forms.value(f).subs({symbol(n): int(v) for n, v in values.items()})
    assert Fraction(int(got.p), int(got.q)) == expected


@given(written())
def test_writing_a_value_as_a_form_keeps_it(f: forms.Form) -> None:
    value = forms.value(f)
    if value.has(sp.zoo, sp.nan, sp.oo):
        with pytest.raises(ValuesError, match="a division by zero"):
            forms.from_expr(value)
        return
    assert identical(value, forms.value(forms.from_expr(value)))


def test_a_division_by_a_zero_that_only_rounding_makes_is_said() -> None:
    with pytest.raises(ValuesError, match="a division by zero"):
        forms.from_expr(forms.value(Ratio(num(1), forms.Floor(Ratio(num(1), num(2))))))


def test_a_product_of_sizes_is_gathered_into_the_symbol_it_makes() -> None:
    n, h, d, b = (symbol(s) for s in ("n_H", "H", "D", "B"))
    assert HEADS.gather(2 * b * d * n * h + n**2 * h**2 + n * h**2) == 2 * b * d**2 + d**2 + d * h


def test_a_huge_power_is_refused_before_it_is_computed() -> None:
    with pytest.raises(ValuesError, match="too large"):
        forms.evaluate(Power(num(9), Power(num(9), num(9))), {})


def test_elements_and_bytes_an_element_make_bytes() -> None:
    d = derivation(Step("n", Sym("D"), ELEMENT, WHY),
                   Step("V", Product((Sym("n"), Num(Fraction(2), Unit.parse("byte/element")))), BYTE, WHY))  # fmt: skip
    assert str(d.at(D=8)) == "16 B"


def test_a_value_in_another_unit_than_its_symbol_is_refused() -> None:
    rate = Unit.parse("byte/second")
    d = derivation(Step("w", Sym("W", whole=False, unit=rate), rate, WHY))
    with pytest.raises(ValuesError) as caught:
        d.at(W="900 GB")
    assert str(caught.value) == "W is given in B, but it is in B/s\nhint: write it in B/s"
    assert d.at(W="900 GB/s").value == d.at(W=900 * 10**9).value == 900 * 10**9


def test_sums_and_products_keep_every_part() -> None:
    a, b, c = Sym("a"), Sym("b"), Sym("c")
    assert forms.total() == num(0)
    assert forms.total(a) == a
    assert forms.total(a, b) == Total((a, b))
    assert forms.total(Total((a, b)), c) == Total((a, b, c))
    assert product() == num(1)
    assert product(a, num(1)) == a
    assert product(a, Product((b, c))) == Product((a, b, c))
    assert forms.value(forms.negative(Total((a, b)))) == -forms.value(a) - forms.value(b)


def decimal_power(base: Decimal, exponent: Decimal) -> Decimal:
    """A power by Python's decimals: digits that share no code with the answers."""
    return (base.ln() * exponent).exp()


def test_a_number_with_millions_of_digits_is_worked_out_to_fifty() -> None:
    hit = sc.derive("expert_hits", experts="E", chosen=1, tokens="T").at(E=10**6, T=10**6)
    law = sc.derive("scaling_law", want="coefficient_tokens")
    fine = law.at(alpha=3, beta=10**6, A=8, B=10**6)
    with localcontext() as context:
        context.prec = 60
        all_missed = decimal_power(1 - 1 / Decimal(10**6), Decimal(10**6))
        first = decimal_power(Decimal(6), Decimal(3) / 1000003)
        second = decimal_power(Decimal(24) / 10**12, 1 / Decimal(1000003))
        for found, expected in ((hit, 10**6 * (1 - all_missed)), (fine, 1 / (first * second))):
            number = Decimal(found.value.numerator) / found.value.denominator
            assert abs(number / expected - 1) < Decimal(10) ** -45
            assert found.relation == "≈"
