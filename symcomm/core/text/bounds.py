"""How high the powers of a formula go, told before anything computes them."""

from __future__ import annotations

from fractions import Fraction
from math import comb, prod

from symcomm.core.text.tokens import DIGITS_LIMIT, EXPONENT_LIMIT
from symcomm.core.text.tree import Exponentiation, Multiplication, Node, Number, Quotient, Sum, children

TERM_LIMIT = 300


def degree(node: Node) -> Fraction:
    """How high the powers in a formula go together: nested exponents multiply."""
    if isinstance(node, Exponentiation):
        exponent = _constant(node.exponent)
        below = degree(node.base)
        return below * max(Fraction(1), abs(exponent)) if exponent is not None else below
    if isinstance(node, Number):  # a number of many digits counts for as many as it is long
        digits = max(abs(node.value.numerator), node.value.denominator).bit_length() * 0.302
        return Fraction(max(1, int(digits) // DIGITS_LIMIT))
    return max((degree(child) for child in children(node)), default=Fraction(1))


def terms(node: Node) -> int:
    """How many terms a formula has at most when it is multiplied out: ``(a + b + c)^2`` has six."""
    if isinstance(node, Exponentiation):
        below, exponent = terms(node.base), _constant(node.exponent)
        power = int(abs(exponent)) if exponent is not None else 1
        return comb(below + power - 1, power) if below > 1 and power > 1 else below
    if isinstance(node, Sum):
        return sum(map(terms, node.terms))
    if isinstance(node, (Multiplication, Quotient)):
        return prod(map(terms, children(node)))
    return max(map(terms, children(node)), default=1)


def _constant(node: Node) -> Fraction | None:
    """The size of a number in an exponent, or a bound that is too large; None where it has names."""
    huge = Fraction(10 * EXPONENT_LIMIT)
    value: Fraction | None = None
    if isinstance(node, Number):
        value = node.value
    elif isinstance(node, Sum):
        value = Fraction(0)
        for one, sign in zip(node.terms, node.signs, strict=True):
            term = _constant(one)
            if term is None:
                return None
            value += sign * term
    elif isinstance(node, Multiplication):
        value = Fraction(1)
        for one in node.factors:
            factor = _constant(one)
            if factor is None:
                return None
            value *= factor
    elif isinstance(node, Quotient):
        top, bottom = _constant(node.top), _constant(node.bottom)
        if top is not None and bottom:
            value = top / bottom
    elif isinstance(node, Exponentiation):
        base, exponent = _constant(node.base), _constant(node.exponent)
        if base is not None and exponent is not None:
            value = huge if abs(base) > 1 and abs(exponent) > 20 else Fraction(1)
            if abs(exponent) <= 20 and exponent.denominator == 1 and base:
                value = base ** int(exponent)
    if value is None:
        return None
    small = max(abs(value.numerator), value.denominator) < 10**DIGITS_LIMIT
    return value if small else huge
