"""Our own output, plain and LaTeX, is read back to the same value: random forms, evaluated by rules written here."""

from __future__ import annotations

import math
from collections.abc import Callable
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
    Ratio,
    Root,
    Smallest,
    Sym,
    Total,
    inline,
    parse_answer,
    plain,
    size_form,
    tex,
    walk,
)
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

# Values that are far from one another and from whole numbers, so that two different readings differ.
NAMES = {
    "k": 2.37, "n": 3.81, "m": 5.29, "D": 7.43, "B": 1.93, "E": 6.17, "e": 2.59, "N_layer": 4.41, "n_kv": 3.07,
    "n_h": 1.77, "d_ff": 8.23, "alpha": 2.11, "beta": 1.31, "lambda": 2.83, "W'": 3.49, "V_AR": 5.71, "x_1": 1.49,
    "n^*": 2.21, "Out": 4.87, "T_days": 3.31, "L_2'": 1.63, "q_up^K": 2.03, "P_0,1": 1.27, "log": 3.13, "T": 1.87,
}  # fmt: skip


def worth(form: Form) -> float:
    """The value of a form, by the rules of school; nan where there is none."""
    match form:
        case Num(number):
            return float(number)
        case Sym(name):
            return NAMES[name]
        case Total(terms):
            return sum(map(worth, terms))
        case Product(factors):
            return math.prod(map(worth, factors))
        case Ratio(top, bottom):
            below = worth(bottom)
            return worth(top) / below if below else math.nan
        case Power(base, exponent):
            return _power(worth(base), worth(exponent))
        case Root(inside):
            return _power(worth(inside), 0.5)
        case Ceiling(inside) | Floor(inside):
            found = worth(inside)
            step = math.ceil if isinstance(form, Ceiling) else math.floor
            return step(found) if math.isfinite(found) else math.nan
        case Largest(choices):
            return max(map(worth, choices))
        case Smallest(choices):
            return min(map(worth, choices))
        case Logarithm(inside, base):
            found = worth(inside)
            return math.log(found) / (math.log(base) if base else 1) if found > 0 else math.nan
    raise AssertionError(form)


def _power(base: float, exponent: float) -> float:
    try:
        found = base**exponent
    except (OverflowError, ZeroDivisionError):
        return math.nan
    return found if isinstance(found, float) else math.nan


numbers = st.one_of(
    st.integers(0, 12), st.integers(-5, 2_000_000), st.fractions(-20, 20, max_denominator=12),
    st.sampled_from(["0.34", "406.4", "12345.6", "1234567.25", "1.3572168946266174", "-0.017"]),
).map(lambda n: Num(Fraction(n)))  # fmt: skip
leaves = st.one_of(numbers, st.sampled_from(sorted(NAMES)).map(Sym))
exponents = st.one_of(st.integers(-3, 4), st.sampled_from([Fraction(1, 2), Fraction(-3, 2), Fraction(1, 3)])).map(
    lambda n: Num(Fraction(n))
)


def _larger(inner: st.SearchStrategy[Form]) -> st.SearchStrategy[Form]:
    some = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return st.one_of(
        some.map(Total), some.map(Product), some.map(Total), some.map(Product),
        st.builds(Ratio, inner, inner), st.builds(Ratio, inner, inner),
        st.builds(Power, inner, st.one_of(exponents, exponents, leaves, inner)), st.builds(Root, inner),
        st.builds(Ceiling, inner), st.builds(Floor, inner), some.map(Largest), some.map(Smallest),
        st.builds(Logarithm, inner, st.sampled_from([0, 2, 10])),
    )  # fmt: skip


forms = st.recursive(leaves, _larger, max_leaves=7)


def read_back(form: Form, *printers: Callable[[Form], str]) -> None:
    expected = worth(form)
    assume(all(abs(worth(one.exponent)) < 100 for one in walk(form) if isinstance(one, Power)))
    for printer in printers:
        text = printer(form)
        again = worth(size_form(parse_answer(text, NAMES)))
        same = math.isnan(expected) or math.isclose(again, expected, rel_tol=1e-9, abs_tol=1e-9)
        assert same, f"{text} is {again}, not {expected}"


_TWO_FIFTEEN = Ratio(Num(Fraction(2)), Num(Fraction(15)))


@example(Power(Sym("V_AR"), Sym("V_AR")))
@example(Power(Num(Fraction(8)), Power(Num(Fraction(8)), Num(Fraction(0)))))
@example(Product((Num(Fraction(9)), Num(Fraction(-20)), _TWO_FIFTEEN, Sym("L_2'"))))
@example(Ratio(Sym("k"), Num(Fraction(10_000))))
@example(Product((Ratio(Num(Fraction(12_345)), Sym("E")), Sym("n^*"), Power(Sym("k"), Num(Fraction(-1))))))
@example(Smallest((Sym("P_0,1"), Num(Fraction("12345.6")), Logarithm(Product((Num(Fraction(2)), Sym("n")))))))
@given(forms)
def test_what_is_printed_is_read_back_to_the_same_value(form: Form) -> None:
    read_back(form, plain, tex)


@pytest.mark.long
@settings(max_examples=4000, deadline=None)
@given(forms)
def test_thousands_of_printed_forms_are_read_back_to_the_same_value(form: Form) -> None:
    read_back(form, plain, tex, lambda one: f"${inline('latex', one)}$")
