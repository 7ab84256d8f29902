"""Costs written as text: read by the grammar, never evaluated."""

import pytest
from api import SymcommError

import symcomm as sc


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("n*o + s/(n*w)", "sqrt(s)/(sqrt(o)*sqrt(w))"),
        (r"\frac{s}{n_b w} + n_b o", "sqrt(s)/(sqrt(o)*sqrt(w))"),
        (r"\alpha n_{b} + \beta / n_b", "sqrt(beta)/sqrt(alpha)"),
        ("4x^2 - 3x", "3/8"),
    ],
)
def test_a_cost_is_read_from_plain_text_and_from_latex(text: str, place: str):
    over = "x" if "x" in text else "n" if "n_" not in text else "n_b"
    assert str(sc.minimise(text, over=over, integer=False).expr) == place


def test_a_text_with_a_ceiling_or_a_maximum_has_its_whole_optimum():
    # 12/n rounded up plus n: 3 costs 4 + 3 = 7, as 4 does (3 + 4); 2 and 5 cost 8.
    assert sc.minimise("ceil(L/n) + n", over="n", given={"L": 12}, lower=1, upper=12).at().value == 3
    assert sc.minimise("max(n, L/n)", over="n", given={"L": 16}).at().value == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n + ", "something is missing after"),
        ("__import__('os')", "a quotation cannot stand here"),
        ("softmax(n)", "unknown function"),
        ("9^9^9^9 n", "two exponents stand above each other"),
        ("n" * 3000, "characters"),
    ],
)
def test_a_text_that_is_no_formula_is_an_error_with_its_place(text: str, said: str):
    with pytest.raises(SymcommError, match=said):
        sc.minimise(text, over="n")


def test_what_is_given_and_what_is_looked_for_are_known_names():
    # n + 100/n is least at 10, where it is 20: 9 costs 20.1, 11 costs 20.09.
    given = {"s": 100, "o": 1, "w": 1}
    assert sc.minimise(r"n o + \frac{s}{nw}", over="n", given=given).at().value == 10
    assert sc.minimise("3E+1 + 27/E", over="E").at().value == 3


def test_a_given_name_that_is_never_used_is_an_error():
    with pytest.raises(SymcommError) as caught:
        sc.minimise("n o + s/n", over="n", given={"s": 100, "o": 1, "w": 1})
    assert str(caught.value) == "'w' is given, but the cost does not depend on it\nhint: known: n, o, s"
