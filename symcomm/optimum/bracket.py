"""Where there is no closed form: a root of the slope between two fractions, its sign proved by interval arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from symcomm.errors import ValuesError
from symcomm.optimum.candidates import Found, Point
from symcomm.optimum.cost import course, terms

if TYPE_CHECKING:
    from sympy import Expr, Symbol

_DIGITS = 40


def sign_at(expr: Expr, x: Symbol, at: Fraction) -> int:
    """The sign of an expression at a fraction, proved: the interval that holds its value leaves out zero; else 0.

    >>> import sympy as sp
    >>> x = sp.Symbol("x", positive=True)
    >>> sign_at(sp.log(x) - 1, x, Fraction(2)), sign_at(sp.log(x) - 1, x, Fraction(3))
    (-1, 1)
    """
    import sympy as sp
    from mpmath import iv  # type: ignore[import-untyped]

    before = iv.dps
    iv.dps = _DIGITS
    try:
        value = _interval(expr.subs(x, sp.Rational(at.numerator, at.denominator)), iv)
        return 1 if value.a > 0 else -1 if value.b < 0 else 0
    finally:
        iv.dps = before


def _interval(e: Expr, iv: Any) -> Any:
    import sympy as sp

    if e.is_Rational:
        return iv.mpf(int(e.p)) / iv.mpf(int(e.q))
    if e.is_Add:
        total = iv.mpf(0)
        for term in e.args:
            total += _interval(term, iv)
        return total
    if e.is_Mul:
        made = iv.mpf(1)
        for factor in e.args:
            made *= _interval(factor, iv)
        return made
    if e.is_Pow:
        base, exponent = e.as_base_exp()
        if exponent.is_Integer:
            return _interval(base, iv) ** int(exponent)
        return iv.exp(_interval(exponent, iv) * iv.log(_interval(base, iv)))
    if isinstance(e, sp.log):
        return iv.log(_interval(e.args[0], iv))
    if isinstance(e, sp.exp):
        return iv.exp(_interval(e.args[0], iv))
    raise ValuesError(f"the cost has a function that cannot be bounded: {type(e).__name__}")


def _one_valley(expr: Expr, x: Symbol) -> Expr:
    """The slope of a cost that is shown to fall and then rise; raises ``ValuesError`` where that is not shown."""
    import sympy as sp

    slope = sp.diff(expr, x)
    found = terms(expr, x)
    if found is not None and course(tuple((e - 1, e * c) for e, c in found if e != 0)).kind in (
        "valley",
        "rises",
        "falls",
    ):
        return slope
    bend = sp.expand(sp.diff(slope, x))
    if bend.is_nonnegative or sp.together(bend).is_nonnegative:
        return slope
    raise ValuesError(
        "where the cost is best cannot be told: it is not shown to have one valley", hint="give a whole, bounded range"
    )


def real(expr: Expr, x: Symbol, low: Fraction, high: Fraction | None) -> Point:
    """The least point of a cost with one valley, between two fractions.

    >>> import sympy as sp
    >>> x = sp.Symbol("x", positive=True)
    >>> point = real(x - sp.log(x) * 2, x, Fraction(0), None)
    >>> bool(point.low <= 2 <= point.high)
    True
    """
    import sympy as sp

    slope = _one_valley(expr, x)
    bottom = low if low else Fraction(1, 2**60)
    top = high if high is not None else Fraction(2**60)
    if sign_at(slope, x, bottom) >= 0:
        if low:
            return Point(sp.Rational(low.numerator, low.denominator), low, low, "lower bound")
        raise ValuesError("there is no optimum: the cost rises from the start", hint="give a lower bound above zero")
    if sign_at(slope, x, top) <= 0:
        if high is not None:
            return Point(sp.Rational(high.numerator, high.denominator), high, high, "upper bound")
        raise ValuesError("there is no optimum: the cost falls as far as it was followed", hint="give an upper bound")
    while top - bottom > Fraction(1, 10**12) * max(Fraction(1), bottom):
        middle = (bottom + top) / 2 if top < 4 * bottom else Fraction(_power_between(bottom, top))
        way = sign_at(slope, x, middle)
        if not way:
            break
        bottom, top = (middle, top) if way < 0 else (bottom, middle)
    middle = (bottom + top) / 2
    return Point(sp.Rational(middle.numerator, middle.denominator), bottom, top, "slope zero", closed=False)


def _power_between(a: Fraction, b: Fraction) -> Fraction:
    """A power of two between two numbers far apart, near their geometric mean."""

    def log(f: Fraction) -> int:
        return f.numerator.bit_length() - f.denominator.bit_length()

    return Fraction(2) ** ((log(a) + log(b)) // 2)


def whole(expr: Expr, x: Symbol, low: int, high: int | None, sense: int) -> Found:
    """The best whole number of a cost with one valley: one of the two beside its real optimum, compared."""
    import sympy as sp

    expr = sense * expr
    point = real(expr, x, Fraction(low), None if high is None else Fraction(high))
    near = sorted({max(low, point.low.__floor__()), point.high.__ceil__()})
    near = [n for n in range(near[0], near[-1] + 1) if high is None or n <= high]
    best = near[0]
    for n in near[1:]:
        if sign_at(expr.subs(x, n) - expr.subs(x, best), x, Fraction(1)) < 0:
            best = n
    values = [(n, Fraction(str(sp.N(sense * expr.subs(x, n), 30)))) for n in near]
    how = "There is no closed form: the slope changes its sign between the numbers compared, by interval arithmetic."
    return Found((best,), dict(values)[best], tuple(values), how)
