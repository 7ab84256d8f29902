"""Where a sign changes: the roots of a polynomial, a scan, bisection. No float takes part in a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sympy import Expr, Symbol

_SCAN = 5000  # so many whole numbers are tried one by one; a wider range on a grid
_FINE = Fraction(1, 2**40)  # relative width of a bracket of a number that need not be whole


@dataclass(frozen=True)
class Crossing:
    """One place where the sign of the difference changes: between ``low`` and ``high``, which are equal where exact."""

    low: Fraction
    high: Fraction

    @property
    def exact(self) -> bool:
        """Whether both costs are equal there."""
        return self.low == self.high


def exact_roots(expr: Expr, x: Symbol, low: Fraction, high: Fraction) -> tuple[Crossing, ...] | None:
    """The roots in a range of a quotient of polynomials: rational ones exactly, others in brackets; None for others.

    >>> from symcomm.notation import amount
    >>> x = amount("x")
    >>> [str(root.low) for root in exact_roots(x - 6 / x - 1, x, Fraction(1), Fraction(9))]
    ['3']
    """
    import sympy as sp

    top, _ = sp.fraction(sp.together(expr))
    top = sp.expand(top)
    if not top.is_polynomial(x) or not all(c.is_Rational for c in sp.Poly(top, x).all_coeffs()):
        return None
    poly = sp.Poly(top, x)
    if poly.is_zero or poly.degree() < 1:
        return ()
    found: list[Crossing] = []
    for (left, right), _ in poly.intervals(eps=sp.Rational(1, 2**60)):
        lo, hi = Fraction(int(left.p), int(left.q)), Fraction(int(right.p), int(right.q))
        exactly = [r for r in _rational_roots(poly) if lo <= r <= hi]
        root = Crossing(exactly[0], exactly[0]) if exactly else Crossing(lo, hi)
        if low <= root.low and root.high <= high:
            found.append(root)
    return tuple(found)


def _rational_roots(poly: object) -> list[Fraction]:
    import sympy as sp

    _, factors = sp.factor_list(poly)
    roots = []
    for factor, _ in factors:
        if factor.degree() == 1:
            p, q = factor.all_coeffs()
            root = -q / p
            roots.append(Fraction(int(root.p), int(root.q)))
    return roots


def scan(sign: Callable[[Fraction], int], low: Fraction, high: Fraction, whole: bool) -> list[Crossing]:
    """Every change of sign between neighbouring points of a scan, narrowed by bisection."""
    found: list[Crossing] = []
    tried = points(low, high, whole)
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
        x = Fraction(-(-x.numerator // x.denominator)) if whole else x.limit_denominator(10**12)
        found.append(min(x, high))
        x = found[-1]
    return found


def bisect(sign: Callable[[Fraction], int], low: Fraction, high: Fraction, left: int, whole: bool) -> Crossing:
    """The change of a sign between two points, narrowed; ``left`` is the sign at ``low``."""
    while (high - low > 1) if whole else (high - low > low * _FINE):
        middle = Fraction((low + high) // 2) if whole else (low + high) / 2
        here = sign(middle)
        if here == 0:
            return Crossing(middle, middle)
        low, high = (middle, high) if here == left else (low, middle)
    return Crossing(low, high)


def signs_between(
    sign: Callable[[Fraction], int], crossings: Sequence[Crossing], low: Fraction, high: Fraction, whole: bool
) -> tuple[int, ...]:
    """The sign in each stretch between crossings; the stretches at the ends may be empty."""
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
