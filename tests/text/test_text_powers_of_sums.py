"""Powers of sums are refused before anything multiplies them out."""

import pytest
from api import FormulaError

import symcomm as sc

TABLE = "Computation\tInput\tOutput\ny = x W\tx [B, {0}], W [{0}, D]\ty [B, D]\n"


@pytest.mark.parametrize(
    "size",
    ["(a+b+c+d)^200", "((a+b)^14)^{30}", "(a+b)^{1000}", "(a+b)^{20} (c+d)^{20}"],
)
def test_a_power_of_a_sum_with_too_many_terms_is_refused_where_it_stands(size):
    with pytest.raises(FormulaError) as caught:
        sc.load(TABLE.format(size))
    assert caught.value.message == "multiplied out, this formula has more than 300 terms"
    assert caught.value.hint == "write a smaller exponent, or give the sum a name"
    assert caught.value.span.line == 2
    assert caught.value.span.cell == "column Input"
    assert caught.value.span.word in size


@pytest.mark.parametrize(("size", "at"), [("(a+b)^{40}", 3**40), ("(1+a) (a+b)^{9}", 2 * 3**9), ("2^{100} a", 2**100)])
def test_a_power_with_few_terms_is_worked_out(size, at):
    assert sc.load(TABLE.format(size)).flops().at({"B": 1, "D": 1, "a": 1, "b": 2}).value == 2 * at
