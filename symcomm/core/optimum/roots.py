"""Where an expression of one name is zero or changes its sign. No float takes part in a decision.

A quotient of polynomials has its roots; a sum of powers and exponentials, and whatever only rises or only falls, has at
most one root between two points whose signs are proved by interval arithmetic; the rest is scanned, and said to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from symcomm.core.derivation import rational
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Largest, Num, Smallest
from symcomm.core.libraries import Expr, Poly, Symbol, sp
from symcomm.core.notation import amount
from symcomm.core.records import dataclass
from symcomm.core.units import Unit

Growing = tuple[tuple["Expr", "Expr", "Expr", "Expr"], ...]
RANGE = (Fraction(1, 2**60), Fraction(2**60))  # between which is searched where no range is given
FAR = (Fraction(1, 2**1000), Fraction(2**1000))  # the same for an optimum
DIGITS = 40
_PIECES = 64
_SCAN = 5000  # so many whole numbers are tried one by one; a wider range on a grid
_HIGHEST_DEGREE = 60  # roots of polynomials of higher degrees take too long to be told apart
_MOST_STEPS = 6  # roundings in one expression
_FINE = Fraction(1, 2**40)  # relative width of a bracket of a number that need not be whole


@dataclass(frozen=True)
class Domain:
    """The values of a name that are looked at: between bounds, None where there is none; ``whole``, or divisors."""

    low: Fraction | None = None
    high: Fraction | None = None
    whole: bool = False
    divides: int | None = None

    def numbers(self) -> Sequence[int]:
        """The whole numbers among them in their order, from 1 on where there is no lower bound.

        >>> Domain(low=Fraction(2), divides=12).numbers()
        [2, 3, 4, 6, 12]
        """
        low, high = 1 if self.low is None else int(self.low), int(FAR[1] if self.high is None else self.high)
        within = range(low, high + 1)
        return within if self.divides is None else [n for n in map(int, sp.divisors(self.divides)) if n in within]

    def __contains__(self, value: Fraction) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def nearest(self, form: Form, unit: Unit) -> Form:
        """The value between the bounds that is nearest to a form's."""
        if self.low:
            form = Largest((Num(self.low, unit), form))
        return form if self.high is None else Smallest((Num(self.high, unit), form))


@dataclass(frozen=True)
class Crossing:
    """One place where the sign of the difference changes: between ``low`` and ``high``, which are equal where exact."""

    low: Fraction
    high: Fraction

    @property
    def exact(self) -> bool:
        """Whether both costs are equal there."""
        return self.low == self.high


@dataclass(frozen=True)
class SignChanges:
    """The crossings in a range, and the intervals in which there may be more of them."""

    crossings: tuple[Crossing, ...]
    unsure: tuple[tuple[Fraction, Fraction], ...] = ()


# -- signs, proved ------------------------------------------------------------------------------------------------


def bounds(expr: Expr, x: Symbol, at: Fraction, digits: int = DIGITS) -> Any:
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


def sign_at(expr: Expr, x: Symbol, at: Fraction, digits: int = DIGITS) -> int:
    """The sign of an expression at a fraction, proved: the interval that holds its value leaves out zero; else 0.

    >>> import sympy as sp
    >>> x = sp.Symbol("x", positive=True)
    >>> sign_at(sp.log(x) - 1, x, Fraction(2)), sign_at(sp.log(x) - 1, x, Fraction(3))
    (-1, 1)
    """
    value = bounds(expr, x, at, digits)
    return 1 if value.a > 0 else -1 if value.b < 0 else 0


def sign_of(expr: Expr, x: Symbol, at: Fraction) -> int:
    """The sign of an expression at a fraction, proved; raises ``ValuesError`` where it is too small to be told."""
    way = sign_at(expr, x, at) or sign_at(expr, x, at, 640)
    if not way and not expr.subs(x, rational(at)).equals(0):
        raise ValuesError(f"the two costs are too near to one another at {x.name} = {float(at):.9g} to tell them apart")
    return way


def _interval(e: Expr, x: Symbol, at: Any, iv: Any) -> Any:
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


# -- changes of a sign ----------------------------------------------------------------------------------------------


def changes(
    sign: Callable[[Fraction], int], expr: Expr, x: Symbol, low: Fraction, high: Fraction, whole: bool
) -> SignChanges:
    """Where the sign of an expression changes. Every change is found, but in the intervals that are named.

    ``sign`` says the sign of the expression at a fraction. A quotient of polynomials has its roots; a sum of real
    powers changes its sign at most once between two zeros of its slope; of steps and maxima see ``_steps``.
    """
    solved = roots(expr, x, low, high)
    if solved is not None:
        return SignChanges(solved)
    if whole and high - low <= _SCAN:
        return SignChanges(tuple(scan(sign, points(low, high, whole), whole)))
    doubtful = _steps(expr, x, low, high)
    tried: set[Fraction] = {low, high}
    unsure: list[tuple[Fraction, Fraction]] = []
    for start, stop in doubtful:
        if whole:
            start, stop = max(low, Fraction(start.__floor__())), min(high, Fraction(stop.__ceil__()))
        interval = points(start, stop, whole)
        tried |= {*interval}
        if not whole or stop - start > _SCAN:
            unsure.append((start, stop))
    return SignChanges(tuple(scan(sign, sorted(tried), whole)), tuple(unsure))


def roots(expr: Expr, x: Symbol, low: Fraction, high: Fraction) -> tuple[Crossing, ...] | None:
    """Where an expression is zero in a range; None for what has no such proof, as roundings and maxima.

    Those of a quotient of polynomials and of a sum of powers, exponentials and logarithms, and the one of what only
    rises or only falls.

    >>> from symcomm.core.notation import amount
    >>> x = amount("x")
    >>> [str(root.low) for root in roots(x - 6 / x - 1, x, Fraction(1), Fraction(9))]
    ['3']
    """
    poly = polynomial(expr, x)
    if poly is not None:
        return _exact(poly, low, high)
    found = growing_terms(expr, x)
    if found is not None:
        return _growing(found, x, low, high)
    if expr.has(sp.Max, sp.Min, sp.ceiling, sp.floor):
        return None
    slope = sp.diff(expr, x)
    one_way = any(e.is_nonnegative for way in (slope, -slope) for e in (way, sp.together(sp.expand(way))))
    return tuple(scan(lambda at: sign_of(expr, x, at), [low, high], whole=False)) if one_way else None


def _steps(expr: Expr, x: Symbol, low: Fraction, high: Fraction) -> list[tuple[Fraction, Fraction]]:
    """The intervals in which rounding, or which piece of a maximum counts, may decide the sign of an expression.

    A number rounded up is at least itself and less than one more, and a maximum is one of its choices. Where all the
    expressions that are so made have one sign, that is the sign. The whole range, where they cannot be solved.
    """
    made: list[Expr] = [expr]
    thetas: list[Symbol] = []
    for _ in range(_MOST_STEPS):
        inside_out = (a for a in sp.postorder_traversal(made[0]) if isinstance(a, (sp.ceiling, sp.floor)))
        atom = next((a for a in inside_out if a.has(x)), None)
        if atom is None:
            break
        thetas.append(amount(f"rounding*{len(thetas)}"))  # no name of a person's has it
        more = thetas[-1] if isinstance(atom, sp.ceiling) else -thetas[-1]
        made = [made[0].xreplace({atom: atom.args[0] + more})]
    try:
        made = [*pieces(made[0])]
    except ValuesError:
        return [(low, high)]
    for theta in thetas:
        if any(sp.diff(e, theta, 2) != 0 for e in made):
            return [(low, high)]
        made = [e.subs(theta, end) for e in made for end in (0, 1)]
    if len(made) > 2**_MOST_STEPS:
        return [(low, high)]
    solved: list[Crossing] = []
    for e in made:
        found_here = roots(e, x, low, high)
        if found_here is None:
            return [(low, high)]
        solved += found_here
    ends = sorted({low, high, *(end for c in solved for end in (c.low, c.high))})
    found: list[tuple[Fraction, Fraction]] = []
    for start, stop in pairwise(ends):
        if len({sign_of(e, x, (start + stop) / 2) for e in made}) > 1 or stop - start < start * _FINE:
            joined = bool(found) and found[-1][1] == start
            found = [*found[:-1], (found[-1][0], stop)] if joined else [*found, (start, stop)]
    return found + [(c.low, c.high) for c in solved if c.exact]


def pieces(expr: Expr) -> tuple[Expr, ...]:
    """The expressions without maxima and minima that an expression is made of.

    >>> import sympy as sp
    >>> x = sp.Symbol("x", positive=True)
    >>> [str(e) for e in pieces(sp.Max(x, 1 / x) + 1)]
    ['x + 1', '1 + 1/x']
    """
    done: list[Expr] = []
    todo = [expr]
    while todo:
        one = todo.pop()
        atom = next((a for a in sp.preorder_traversal(one) if isinstance(a, (sp.Max, sp.Min))), None)
        if atom is None:
            done.append(one)
        else:
            todo += [one.xreplace({atom: choice}) for choice in atom.args]
        if len(done) + len(todo) > _PIECES:
            raise ValuesError(f"a cost of more than {_PIECES} pieces")
    return tuple(sorted(dict.fromkeys(done), key=str, reverse=True))


def polynomial(expr: Expr, x: Symbol) -> Poly | None:
    """The numerator of a quotient of polynomials with rational numbers; None where it is none."""
    high = any(p.exp.is_Integer and abs(p.exp) > _HIGHEST_DEGREE for p in expr.atoms(sp.Pow))
    if high or not expr.is_rational_function(x):
        return None
    top = sp.expand(sp.fraction(sp.together(expr))[0])
    if not top.is_polynomial(x) or not all(c.is_Rational for c in sp.Poly(top, x).all_coeffs()):
        return None
    return sp.Poly(top, x, domain="QQ")


def _exact(poly: Poly, low: Fraction, high: Fraction) -> tuple[Crossing, ...]:
    """The roots of a polynomial in a range: rational ones exactly, others in brackets."""
    if poly.is_zero or poly.degree() < 1:
        return ()
    lines = [factor.all_coeffs() for factor, _ in poly.factor_list()[1] if factor.degree() == 1]
    rationals = [Fraction(int((-q / p).p), int((-q / p).q)) for p, q in lines]
    found: list[Crossing] = []
    for (left, right), _ in poly.intervals(eps=sp.Rational(1, 2**60), inf=0):
        lo, hi = Fraction(int(left.p), int(left.q)), Fraction(int(right.p), int(right.q))
        exactly = [r for r in rationals if lo <= r <= hi]
        root = Crossing(exactly[0], exactly[0]) if exactly else Crossing(lo, hi)
        if low <= root.low and root.high <= high:
            found.append(root)
    return tuple(found)


def growing_terms(expr: Expr, x: Symbol) -> Growing | None:
    """An expression as a sum of ``c x**e exp(r x) log(x)**k``, each as (r, e, k, c) of numbers; None where it is none.

    >>> from symcomm.core.notation import amount
    >>> x = amount("x")
    >>> growing_terms(3 * x - 2 ** (x + 1), x)
    ((0, 1, 0, 3), (log(2), 0, 0, -2))
    """
    if expr.has(sp.Max, sp.Min, sp.ceiling, sp.floor):
        return None
    split = {e: sp.expand_log(e, force=True) for e in expr.atoms(sp.log) if e.has(x)}
    found: dict[tuple[Expr, Expr, Expr], Expr] = {}
    for term in sp.Add.make_args(sp.expand(expr.xreplace(split), log=False, power_base=False, power_exp=False)):
        rate, power, logs, rest = sp.Integer(0), sp.Integer(0), sp.Integer(0), sp.Integer(1)
        for factor in sp.Mul.make_args(term):
            base, exponent = factor.as_base_exp()
            slope = sp.diff(exponent, x)
            if base == x and exponent.is_number:
                power += exponent
            elif base == sp.log(x) and exponent.is_Integer and exponent > 0:
                logs += exponent
            elif not (base.has(x) or slope.has(x)) and (slope == 0 or base.is_positive):
                rate += slope * sp.log(base)
                rest *= base ** (exponent - slope * x)
            else:
                return None
        if not (rest.is_number and rate.is_number):
            return None
        found[rate, power, logs] = found.get((rate, power, logs), sp.Integer(0)) + rest
    order = sorted(found, key=lambda k: (k[0] != 0, str(k[0]), sp.N(k[1]), k[2]))
    return tuple((*kind, found[kind]) for kind in order if found[kind] != 0)


def _growing(found: Growing, x: Symbol, low: Fraction, high: Fraction) -> tuple[Crossing, ...]:
    """Where a sum of powers, exponentials and logarithms changes its sign: in brackets, the sign at each end proved.

    Divided by the first power and exponential it has a slope with a term less of that kind, so that between the roots
    of that slope it only rises or falls (the proof of Descartes' rule of signs).

    >>> import sympy as sp
    >>> from symcomm.core.notation import amount
    >>> x = amount("x")
    >>> [root] = roots(sp.sqrt(x) - 2 * sp.cbrt(x), x, Fraction(1), Fraction(99))
    >>> bool(root.low <= 64 <= root.high)
    True
    """
    if not found or (len(found) == 1 and not found[0][2]):
        return ()
    rate, lowest, *_ = found[0]
    terms = (c * x ** (e - lowest) * sp.exp((r - rate) * x) * sp.log(x) ** k for r, e, k, c in found)
    expr = sp.Add(*terms)
    slope = growing_terms(sp.diff(expr, x), x)
    assert slope is not None
    ends = sorted({low, high, *(end for c in _growing(slope, x, low, high) for end in (c.low, c.high))})
    return tuple(scan(lambda at: sign_of(expr, x, at), ends, whole=False))


def scan(sign: Callable[[Fraction], int], tried: Sequence[Fraction], whole: bool) -> list[Crossing]:
    """Every change of sign between neighbouring points, narrowed by bisection."""
    found: list[Crossing] = []
    before, last = tried[0], sign(tried[0])
    if last == 0:
        found.append(Crossing(before, before))
    for point in tried[1:]:
        now = sign(point)
        if now == 0 and last != 0:
            found.append(Crossing(point, point))
        elif now and last and now != last:
            found.append(bisect(sign, before, point, last, whole))
        before, last = point, now
    return found


def points(low: Fraction, high: Fraction, whole: bool) -> list[Fraction]:
    """The points of a scan: each whole number of a short range, else eight an octave."""
    if whole and high - low <= _SCAN:
        return [Fraction(i) for i in range(int(low), int(high) + 1)]
    found, x = [low], low
    while x < high:
        # Eight steps an octave, each a fraction with a small denominator.
        x = x * Fraction(1116, 1024)
        # With as many digits at every size: a fixed denominator would make 0 of a very small number.
        x = Fraction(x.__ceil__()) if whole else x.limit_denominator(10**12 * max(1, (1 / x).__ceil__()))
        found.append(min(x, high))
        x = found[-1]
    return found


def bisect(sign: Callable[[Fraction], int], low: Fraction, high: Fraction, left: int, whole: bool) -> Crossing:
    """The change of a sign between two points, narrowed; ``left`` is the sign at ``low``."""
    while (high - low > 1) if whole else (high - low > low * _FINE):
        middle = Fraction((low + high) // 2) if whole else _between(low, high)
        here = sign(middle)
        if here == 0:
            return Crossing(middle, middle)
        low, high = (middle, high) if here == left else (low, middle)
    return Crossing(low, high)


def _between(low: Fraction, high: Fraction) -> Fraction:
    """A number near the middle of two others with few decimal digits; of two far apart a power of two."""
    if high > 16 * low:
        digits = (f.numerator.bit_length() - f.denominator.bit_length() for f in (low, high))
        return Fraction(2) ** (sum(digits) // 2)
    width = (high - low) / 4
    step = Fraction(10) ** (len(str(width.numerator)) - len(str(width.denominator)) - 1)
    return round((low + high) / 2 / step) * step


def signs_between(
    sign: Callable[[Fraction], int], crossings: Sequence[Crossing], low: Fraction, high: Fraction, whole: bool
) -> tuple[int, ...]:
    """The sign in each interval between crossings; the intervals at the ends may be empty."""
    ends = [low, *(x for c in crossings for x in (c.low, c.high)), high]
    found: list[int] = []
    for left, right in zip(ends[::2], ends[1::2], strict=True):
        tried = [(left + right) / 2, left, right, left + 1, right - 1]
        inside = [Fraction(x.__floor__()) if whole else x for x in tried]
        found.append(next((s for x in inside if left <= x <= right and (s := sign(x))), 0))
    return tuple(found)


def real_changes(
    crossings: tuple[Crossing, ...], less: tuple[int, ...]
) -> tuple[tuple[Crossing, ...], tuple[int, ...]]:
    """Without the places where the costs touch but keep their order, or where no number lies on one side."""
    kept: list[Crossing] = []
    sides = [less[0]]
    for c, side in zip(crossings, less[1:], strict=True):
        if side and sides[-1] and side != sides[-1]:
            kept.append(c)
            sides.append(side)
        elif side and not sides[-1]:
            sides[-1] = side
    return tuple(kept), tuple(sides)
