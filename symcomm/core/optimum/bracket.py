"""Where there is no closed form: a root of the slope between two fractions, its sign proved by interval arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from symcomm.core.derivation import rational
from symcomm.core.errors import ValuesError
from symcomm.core.optimum.candidates import CandidatePoint, Found
from symcomm.core.optimum.powers import course, slope_of, terms

if TYPE_CHECKING:
    from sympy import Expr, Symbol

_DIGITS = 40
_FAR = 2**1000  # an optimum is looked for between its inverse and it
_EVERY = 2000  # so many whole numbers are compared one by one


def bounds(expr: Expr, x: Symbol, at: Fraction, digits: int = _DIGITS) -> Any:
    """An interval that holds the value of an expression at a fraction; raises ``ValuesError`` where it is not real."""
    from mpmath import iv

    before = iv.dps
    iv.dps = digits
    try:
        return _interval(expr, x, iv.mpf(at.numerator) / iv.mpf(at.denominator), iv)
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, ValuesError):
            raise
        raise ValuesError(f"the cost is not a real number at {x.name} = {at}") from None
    finally:
        iv.dps = before


def sign_at(expr: Expr, x: Symbol, at: Fraction, digits: int = _DIGITS) -> int:
    """The sign of an expression at a fraction, proved: the interval that holds its value leaves out zero; else 0.

    >>> import sympy as sp
    >>> x = sp.Symbol("x", positive=True)
    >>> sign_at(sp.log(x) - 1, x, Fraction(2)), sign_at(sp.log(x) - 1, x, Fraction(3))
    (-1, 1)
    """
    value = bounds(expr, x, at, digits)
    return 1 if value.a > 0 else -1 if value.b < 0 else 0


def _interval(e: Expr, x: Symbol, at: Any, iv: Any) -> Any:
    import sympy as sp

    def go(e: Expr) -> Any:
        if e == x:
            return at
        if e.is_Rational:
            return iv.mpf(int(e.p)) / iv.mpf(int(e.q))
        if e.is_Add:
            total = iv.mpf(0)
            for term in e.args:
                total += go(term)
            return total
        if e.is_Mul:
            made = iv.mpf(1)
            for factor in e.args:
                made *= go(factor)
            return made
        if e.is_Pow:
            base, exponent = e.as_base_exp()
            if exponent.is_Integer:
                return go(base) ** int(exponent)
            under = go(base)
            if under.b < 0 or (under.a <= 0 and exponent != sp.Rational(1, 2)):
                raise ValueError("a power of a negative number")
            return iv.sqrt(under) if exponent == sp.Rational(1, 2) else iv.exp(go(exponent) * iv.log(under))
        if isinstance(e, sp.log):
            inside = go(e.args[0])
            if inside.a <= 0:
                raise ValueError("the logarithm of a negative number")
            return iv.log(inside)
        if isinstance(e, sp.exp):
            return iv.exp(go(e.args[0]))
        raise ValuesError(f"the cost has a function that cannot be bounded: {type(e).__name__}")

    return go(e)


def _courses(expr: Expr, x: Symbol) -> tuple[Expr, str]:
    """The slope of a cost, and how it runs: ``valley`` (or one way) or ``hill``; ``ValuesError`` where not shown."""
    import sympy as sp

    slope = sp.diff(expr, x)
    found = terms(expr, x)
    kind = "" if found is None else course(slope_of(found)).kind
    if kind in ("valley", "rises", "falls", "hill"):
        return slope, "hill" if kind == "hill" else "valley"
    bend = sp.expand(sp.diff(slope, x))
    if any(e.is_nonnegative for e in (slope, -slope, bend, sp.together(bend))):
        return slope, "valley"
    raise ValuesError(
        "where the cost is best cannot be told: it is not shown to have one valley", hint="give a whole, bounded range"
    )


def real(expr: Expr, x: Symbol, low: Fraction, high: Fraction | None) -> CandidatePoint:
    """The least point of a cost with one valley, or one hill, between two fractions.

    >>> import sympy as sp
    >>> x = sp.Symbol("x", positive=True)
    >>> point = real(x - sp.log(x) * 3, x, Fraction(0), None)
    >>> bool(point.low <= 3 <= point.high)
    True
    """
    slope, kind = _courses(expr, x)

    def end(at: Fraction, name: str) -> CandidatePoint:
        return CandidatePoint(rational(at), at, at, name)

    if kind == "hill":
        if not low or high is None:
            raise ValuesError("the cost rises and then falls", hint="give a lower bound above zero and an upper bound")
        way = sign_at(expr.subs(x, rational(low)) - expr.subs(x, rational(high)), x, low)
        return end(high, "upper bound") if way > 0 else end(low, "lower bound")
    bottom, top = low or Fraction(1, _FAR), high if high is not None else Fraction(_FAR)
    if sign_at(slope, x, bottom) >= 0:
        if low:
            return end(low, "lower bound")
        raise ValuesError("there is no optimum: the cost rises from the start", hint="give a lower bound above zero")
    if sign_at(slope, x, top) <= 0:
        if high is not None:
            return end(high, "upper bound")
        raise ValuesError("there is no optimum: the cost falls as far as it was followed", hint="give an upper bound")
    while top - bottom > Fraction(1, 10**12) * bottom:
        middle = (bottom + top) / 2 if top < 4 * bottom else Fraction(_power_between(bottom, top))
        way = sign_at(slope, x, middle) or sign_at(slope, x, middle, 16 * _DIGITS)
        if not way and slope.subs(x, rational(middle)).equals(0):
            return CandidatePoint(rational(middle), middle, middle, "slope zero")
        if not way:
            raise ValuesError("where the cost is best cannot be told: its slope is too small to have a sure sign")
        bottom, top = (middle, top) if way < 0 else (bottom, middle)
    middle = (bottom + top) / 2
    return CandidatePoint(rational(middle), bottom, top, "slope zero", closed=False)


def _power_between(a: Fraction, b: Fraction) -> Fraction:
    """A power of two between two numbers far apart, near their geometric mean."""

    def log(f: Fraction) -> int:
        return f.numerator.bit_length() - f.denominator.bit_length()

    return Fraction(2) ** ((log(a) + log(b)) // 2)


def whole(expr: Expr, x: Symbol, low: int, high: int | None, sense: int) -> Found:
    """The best whole number: all of a short range are compared, else those beside the real optimum of one valley."""
    expr = sense * expr
    if high is not None and high - low < _EVERY:
        near, how = [*range(low, high + 1)], "Every whole number of the range is compared, by interval arithmetic."
    else:
        point = real(expr, x, Fraction(low), None if high is None else Fraction(high))
        ends = sorted({max(low, point.low.__floor__()), point.high.__ceil__()})
        near = [n for n in range(ends[0], ends[-1] + 1) if high is None or n <= high]
        how = "There is no closed form: the slope changes its sign between them, proved by interval arithmetic."
    known = [(n, bounds(expr, x, Fraction(n))) for n in near]
    most = min(value.b for _, value in known)
    first, *others = [n for n, value in known if value.a <= most]
    best = [first]
    for n in others:  # as near as 40 digits tell
        gap = expr.subs(x, n) - expr.subs(x, first)
        way = sign_at(gap, x, Fraction(1)) or (0 if gap.equals(0) else -1)
        best = [n] if way < 0 else [*best, n] if not way else best
        first = best[0]
    values = tuple((n, sense * _middle(value)) for n, value in known)
    return Found(tuple(best), dict(values)[first], values, how)


def _middle(value: Any) -> Fraction:
    """A fraction to read an interval by."""
    return Fraction(str(value.mid).strip("[]").split(",")[0])
