"""The exact search: where a function of one number can be least, found from its pieces, kinks, poles and slopes.

Between neighbouring special points a function is monotone, so that the least value over the whole numbers of a range
is at an end of the range or beside a special point. Every value compared is an exact fraction.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.derivation import rational
from symcomm.core.errors import IrrationalError, ValuesError
from symcomm.core.records import dataclass

if TYPE_CHECKING:
    from sympy import Expr, Symbol

MOST = 100_000  # whole numbers that are tried one by one where nothing better is known
_PIECES = 64
_HIGHEST_DEGREE = 60  # roots of polynomials of higher degrees take too long to be told apart


class NotRationalError(ValuesError):
    """A function that is no quotient of polynomials on its pieces."""


def pieces(expr: Expr) -> tuple[Expr, ...]:
    """The expressions without maxima and minima that an expression is made of.

    >>> import sympy as sp
    >>> x = sp.Symbol("x", positive=True)
    >>> [str(e) for e in pieces(sp.Max(x, 1 / x) + 1)]
    ['x + 1', '1 + 1/x']
    """
    import sympy as sp

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


@dataclass(frozen=True)
class Special:
    """The polynomials whose roots are the special points: ``slopes`` and ``kinks``, and ``poles``."""

    slopes: tuple[Expr, ...]
    kinks: tuple[Expr, ...]
    poles: tuple[Expr, ...]


def special(expr: Expr, x: Symbol) -> Special:
    """The special points of a function, as polynomials. Raises ``NotRationalError`` where there are none."""
    import sympy as sp

    slopes: list[Expr] = []
    kinks: list[Expr] = []
    poles: list[Expr] = []

    if any(p.exp.is_Integer and abs(p.exp) > _HIGHEST_DEGREE for p in expr.atoms(sp.Pow)):
        raise NotRationalError(f"a polynomial of a degree above {_HIGHEST_DEGREE}")

    def top(e: Expr) -> Expr:
        above, below = sp.fraction(sp.together(e))
        above, below = sp.expand(above), sp.expand(below)
        if not (above.is_polynomial(x) and below.is_polynomial(x)):
            raise NotRationalError(f"{e} is no quotient of polynomials")
        if below.has(x):
            poles.append(below)
        return above

    for piece in pieces(expr):
        top(piece)
        slopes.append(top(sp.diff(piece, x)))
    for atom in expr.atoms(sp.Max, sp.Min):
        for a, b in combinations(atom.args, 2):
            for one in pieces(a):
                kinks += [top(one - other) for other in pieces(b)]

    def proper(found: list[Expr]) -> tuple[Expr, ...]:
        return tuple(e for e in dict.fromkeys(found) if e.has(x))

    return Special(proper(slopes), proper(kinks), proper(poles))


def _intervals(poly: Expr, x: Symbol) -> list[tuple[Fraction, Fraction]]:
    import sympy as sp

    found = sp.Poly(poly, x, domain="QQ").intervals(eps=sp.Rational(1, 4), inf=0)
    return [(Fraction(int(a.p), int(a.q)), Fraction(int(b.p), int(b.q))) for (a, b), _ in found]


def function(expr: Expr) -> forms.Form:
    """The expression as a form, which is evaluated exactly and fast."""
    return forms.from_expr(expr)


@dataclass(frozen=True)
class Found:
    """The best whole numbers, their value, and everything that was compared."""

    best: tuple[int, ...]
    value: Fraction
    tried: tuple[tuple[int, Fraction], ...]
    how: str


def whole(expr: Expr, x: Symbol, low: int, high: int | None, divides: int | None, sense: int = 1) -> Found:
    """The whole numbers of a range, or the divisors of a number in it, where a cost is least (``sense`` -1: greatest).

    Raises ``ValuesError`` where there is none.
    """
    form = function(expr)

    def worth(n: int) -> Fraction:
        return sense * forms.evaluate(form, {x.name: Fraction(n)})

    if high is not None and low > high:
        raise ValuesError(f"there is no whole number from {low} to {high}")
    if divides is not None:
        allowed = [n for n in _divisors(divides) if n >= low and (high is None or n <= high)]
        if not allowed:
            raise ValuesError(f"no divisor of {divides} lies from {low} to {high}")
        return _best([(n, worth(n)) for n in allowed], sense, f"Every divisor of {divides} in the range is compared.")
    try:
        points = special(sense * expr, x)
    except NotRationalError:
        if high is None or high - low > MOST:
            raise
        try:
            every = [(n, worth(n)) for n in range(low, high + 1)]
        except IrrationalError:
            raise NotRationalError("values that are not rational") from None
        found = _best(every, sense, "Every whole number of the range is compared.")
        near = {n + d for n in found.best for d in (-1, 0, 1)}
        return Found(found.best, found.value, tuple(t for t in found.tried if t[0] in near), found.how)
    last = high if high is not None else low
    tries = {low, last}
    for poly in points.poles:
        for a, b in _intervals(poly, x):
            if b >= low and (high is None or a <= high):
                raise ValuesError(f"the cost is not defined near {x.name} = {float(a):g}: a division by zero")
    furthest = Fraction(low)
    for poly in (*points.slopes, *points.kinks):
        for a, b in _intervals(poly, x):
            furthest = max(furthest, b)
            tries |= {n for n in range(a.__floor__(), b.__ceil__() + 1) if n >= low and (high is None or n <= high)}
    found = _best([(n, worth(n)) for n in sorted(tries)], sense, _HOW)
    if high is None:
        beyond = furthest.__ceil__() + 1
        if worth(beyond + 1) < worth(beyond):
            _check_limit(sense * expr, x, beyond, sense * found.value)
    return found


_HOW = "Between the points where the slope is zero or a piece ends, the cost only rises or falls: these are compared."


def _best(tried: list[tuple[int, Fraction]], sense: int, how: str) -> Found:
    least = min(value for _, value in tried)
    best = tuple(n for n, value in tried if value == least)
    return Found(best, sense * least, tuple((n, sense * value) for n, value in tried), how)


def _divisors(n: int) -> list[int]:
    import sympy as sp

    return [int(d) for d in sp.divisors(n)]


def _check_limit(expr: Expr, x: Symbol, beyond: int, best: Fraction) -> None:
    """Raises where a cost that falls for ever goes below everything that was found."""
    import sympy as sp

    probe = [sp.Integer(beyond + i) for i in range(3)]
    piece = next(p for p in pieces(expr) if all(p.subs(x, n) == expr.subs(x, n) for n in probe))
    end = sp.limit(piece, x, sp.oo)
    if end == -sp.oo:
        raise ValuesError(f"there is no optimum: the cost has no bound as {x.name} grows", hint="give an upper bound")
    if sp.Rational(best.numerator, best.denominator) > end:
        raise ValuesError(
            f"there is no optimum: the cost comes ever nearer to {end} as {x.name} grows, and never reaches it",
            hint="give an upper bound",
        )


@dataclass(frozen=True)
class CandidatePoint:
    """A real point where a cost may be least: an exact number, or (not ``closed``) a root between two fractions."""

    number: Expr
    low: Fraction
    high: Fraction
    kind: str
    closed: bool = True


def real(expr: Expr, x: Symbol, low: Fraction, high: Fraction | None, open_below: bool) -> tuple[CandidatePoint, ...]:
    """The points of a range where a cost is least, the cost a quotient of polynomials on its pieces.

    ``open_below`` says that ``low`` itself is not allowed. Raises ``ValuesError`` where there is no optimum.
    """
    import sympy as sp

    if high is not None and low > high:
        raise ValuesError(f"there is no number from {low} to {high}")
    points = special(expr, x)
    for poly in points.poles:
        for r in sp.Poly(poly, x, domain="QQ").real_roots(multiple=True):
            if r >= rational(low) and not (open_below and r == rational(low)) and (high is None or r <= rational(high)):
                raise ValuesError(f"the cost is not defined at {x.name} = {r}: a division by zero")
    found: list[CandidatePoint] = [] if open_below else [CandidatePoint(rational(low), low, low, "lower bound")]
    if high is not None:
        found.append(CandidatePoint(rational(high), high, high, "upper bound"))
    eps = Fraction(1, 10**15)
    for kind, polys in (("slope zero", points.slopes), ("kink", points.kinks)):
        for poly in polys:
            p = sp.Poly(poly, x, domain="QQ").sqf_part()  # of simple roots, at each of which the sign changes
            for r in p.real_roots():
                if not (r > rational(low) and (high is None or r < rational(high))):
                    continue
                if r.is_Rational:
                    exact = Fraction(int(r.p), int(r.q))
                    found.append(CandidatePoint(r, exact, exact, kind))
                    continue
                middle = Fraction(int(sp.N(r * 10**16, 40 + len(str(int(r)))))) / 10**16
                if p.eval(rational(middle - eps)) * p.eval(rational(middle + eps)) >= 0:
                    near = f"near {float(middle):.6g}"
                    raise ValuesError(f"two candidates for the optimum are closer than 10^-15, {near}")
                found.append(CandidatePoint(r, middle - eps, middle + eps, kind, not r.has(sp.CRootOf)))

    def worth(point: CandidatePoint) -> Expr:
        return sp.N(expr.subs(x, point.number), 60)

    best = min((worth(p) for p in found), default=None)
    edge = max([p.high for p in found], default=low)
    ends: list[tuple[Expr, str]] = []
    if high is None:
        beyond = edge.__ceil__() + 1
        piece = _active(expr, x, [sp.Integer(beyond + i) for i in range(3)])
        ends.append((sp.limit(piece, x, sp.oo), f"as {x.name} grows"))
    if open_below:
        first = min([p.low for p in found if p.low > low], default=low + 1)
        step = (first - low) / 8
        piece = _active(expr, x, [rational(low + step * i) for i in (1, 2, 3)])
        ends.append((sp.limit(piece, x, rational(low), "+"), f"as {x.name} comes near {low}"))
    for end, where in sorted(ends, key=lambda e: sp.N(e[0])):
        if end == -sp.oo:
            raise ValuesError(f"there is no optimum: the cost has no bound {where}", hint="give bounds")
        if best is None or (end.is_finite and sp.N(end, 60) < best - sp.Float(10, 60) ** -40 * abs(best)):
            said = f"the cost comes ever nearer to {end} {where}, and never reaches it"
            raise ValuesError(f"there is no optimum: {said}", hint="give bounds")
    assert best is not None  # where nothing was found, an end is lower, and that was refused
    near = sp.Float(10, 60) ** -40 * (1 + abs(best))
    winners = [p for p in found if worth(p) <= best + near]
    return tuple({str(p.number): p for p in winners}.values())


def _active(expr: Expr, x: Symbol, probe: list[Expr]) -> Expr:
    return next(p for p in pieces(expr) if all(p.subs(x, n) == expr.subs(x, n) for n in probe))
