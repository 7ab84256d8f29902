"""The least of a cost with known numbers: its ends, kinks and the zeros of its slope are compared.

Between neighbouring special points a function is monotone, so that the least value over the whole numbers of a range
is at an end of the range or beside a special point. Values are exact fractions, or intervals that hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import combinations

from symcomm.core import form as forms
from symcomm.core.derivation import rational
from symcomm.core.errors import IrrationalError, ValuesError
from symcomm.core.libraries import Expr, Symbol, sp
from symcomm.core.optimum.question import CountQuestion, Found
from symcomm.core.optimum.roots import FAR, Crossing, Domain, bounds, pieces, polynomial, roots, sign_at, sign_of
from symcomm.core.records import dataclass, replace

MOST = 100_000  # whole numbers that are tried one by one where nothing better is known
_SHORT = 500  # whole numbers that are compared sooner than a slope is solved
_MOST_DIGITS = 2000  # of them where intervals are compared


class UnsolvedError(ValuesError):
    """A function whose special points cannot be found."""


@dataclass(frozen=True)
class Special:
    """A point where a cost may be least: the ``kind`` of it, where it is, and the expression that is zero there."""

    kind: str
    at: Crossing
    zero: Expr


def special(expr: Expr, x: Symbol, low: Fraction, high: Fraction | None, closed: bool = True) -> list[Special]:
    """The points of a range between which a cost only rises or falls; ``closed`` says that ``low`` is one of them.

    Raises ``UnsolvedError`` where they cannot be found, ``ValuesError`` where the cost is not defined at one.
    """
    zeros: list[tuple[str, Expr]] = []
    for piece in pieces(expr):
        bottom = sp.fraction(sp.together(piece))[1]
        zeros += [("pole", bottom)] * bool(bottom.has(x)) + [("slope zero", sp.diff(piece, x))]
    for atom in expr.atoms(sp.Max, sp.Min):
        for a, b in combinations(atom.args, 2):
            zeros += [("kink", one - other) for one in pieces(a) for other in pieces(b)]
    found: list[Special] = []
    for kind, zero in dict.fromkeys(zeros):
        if not zero.has(x):
            continue
        solved = roots(zero, x, low or FAR[0], FAR[1] if high is None else high)
        if solved is None:
            told = "we cannot decide where the cost is best: its kinks and the zeros of its slope are not all found"
            raise UnsolvedError(told, hint="give a whole, bounded range")
        found += [Special(kind, at, zero) for at in solved if closed or at.high > low]
    pole = next((one for one in found if one.kind == "pole"), None)
    if pole is not None:
        raise ValuesError(f"the cost is not defined near {x.name} = {float(pole.at.low):g}: a division by zero")
    return found


_HOW = "The cost can be best only where the slope is zero or a piece ends; we compare these points."
_BY_INTERVALS = " Interval arithmetic shows which value is smaller."


def whole(
    expr: Expr, x: Symbol, domain: Domain, sense: int = 1, allows: Callable[[int], bool] = lambda number: True
) -> Found:
    """The whole numbers of a domain where a cost is least (``sense`` -1: greatest).

    ``allows`` says of a number whether the cost can have it. Raises ``ValuesError`` where there is none.
    """
    expr, divides = sense * expr, domain.divides
    low, high = 1 if domain.low is None else int(domain.low), None if domain.high is None else int(domain.high)
    if high is not None and low > high:
        raise ValuesError(f"there is no whole number from {low} to {high}")
    if divides is None and (high is None or high - low >= _SHORT):
        try:
            found = _between_special(expr, x, low, high, sense)
            if all(map(allows, found.best)):
                return found
        except UnsolvedError:
            if high is None or high - low > MOST:
                raise
        if high is None:
            place = f"{x.name} = {found.best[0]} is best, which is refused"
            raise ValuesError(f"{place}: other numbers are not looked for", hint="give an upper bound, or divides")
    every = [n for n in domain.numbers() if allows(n)]
    if divides is not None:
        if not every:
            raise ValuesError(f"no divisor of {divides} lies from {low} to {high}")
        return _least(expr, x, every, sense, f"Every divisor of {divides} in the range is compared.")
    if not every:
        raise ValuesError(f"no {x.name} from {low} to {high} will do")
    fewer = "" if high is None or len(every) == high - low + 1 else " that will do"
    found = _least(expr, x, every, sense, f"Every whole number of the range{fewer} is compared.")
    near = {n for i, n in enumerate(every) if {*every[max(0, i - 1) : i + 2]} & {*found.best}}
    return Found(found.best, found.value, tuple(t for t in found.tried if t[0] in near), found.how)


def _between_special(expr: Expr, x: Symbol, low: int, high: int | None, sense: int) -> Found:
    """The best of the numbers at the ends of a range and beside its special points."""
    points = special(expr, x, Fraction(low), None if high is None else Fraction(high))
    last = high if high is not None else max([low, *(p.at.high.__ceil__() for p in points)])
    beside = {n for p in points for n in range(p.at.low.__floor__(), p.at.high.__ceil__() + 1)}
    found = _least(expr, x, sorted({low, last, *(n for n in beside if low <= n <= last)}), sense, _HOW)
    if high is None:
        _attained([_beyond(expr, x, Fraction(last + 1), True)], _value(expr, x, rational(Fraction(found.best[0]))))
    return found


def _least(expr: Expr, x: Symbol, tried: Sequence[int], sense: int, how: str) -> Found:
    """The least of the values at some whole numbers."""
    form = forms.from_expr(sense * expr)
    try:
        found = CountQuestion(lambda n: forms.evaluate(form, {x.name: Fraction(n)}), tried).least(sense)
        return replace(found, how=how)
    except IrrationalError:
        if len(tried) > _MOST_DIGITS:
            raise UnsolvedError(f"{len(tried)} values that are not rational", hint="give a narrower range") from None
    known = [(n, bounds(expr, x, Fraction(n))) for n in tried]
    most = min(value.b for _, value in known)
    best: list[int] = []
    for n in (n for n, value in known if value.a <= most):  # as near as 40 digits tell
        gap = expr.subs(x, n) - expr.subs(x, best[0] if best else n)
        way = sign_at(gap, x, Fraction(1)) or (0 if gap.equals(0) else -1)
        best = [n] if way < 0 else [*best, n] if not way else best
    values = tuple((n, sense * Fraction(str(value.mid).strip("[]").split(",")[0])) for n, value in known)
    return Found((*best,), dict(values)[best[0]], values, how + _BY_INTERVALS)


def _value(expr: Expr, x: Symbol, at: Expr) -> Expr:
    return sp.N(expr.subs(x, at), 60)


def _beyond(expr: Expr, x: Symbol, near: Fraction, up: bool) -> tuple[Expr, str] | None:
    """What a cost comes near to beyond all special points, or (not ``up``) before them; None where it rises there."""
    probes = [rational(near + n if up else near / (n + 2)) for n in range(3)]
    piece = next(p for p in pieces(expr) if all(sp.N(p.subs(x, n) - expr.subs(x, n), 30) == 0 for n in probes))
    if sign_of(sp.diff(piece, x), x, near if up else near / 2) == (1 if up else -1):
        return None
    end = sp.limit(piece, x, sp.oo, "-") if up else sp.limit(piece, x, 0, "+")
    return end, f"as {x.name} {'grows' if up else 'comes near 0'}"


def _attained(ends: Iterable[tuple[Expr, str] | None], best: Expr | None) -> None:
    """Raises where a cost goes below everything that was found towards an end."""
    for end, where in sorted((one for one in ends if one is not None), key=lambda one: sp.N(one[0])):
        hint = "give an upper bound" if "grows" in where else "give a lower bound above zero"
        if end == -sp.oo:
            raise ValuesError(f"there is no optimum: the cost has no bound {where}", hint=hint)
        if best is None or sp.N(end, 60) < best - sp.Float(10, 60) ** -40 * abs(best):
            said = f"the cost comes ever nearer to {end} {where}, and never reaches it"
            raise ValuesError(f"there is no optimum: {said}", hint=hint)


@dataclass(frozen=True)
class CandidatePoint:
    """A real point where a cost may be least: an exact number, or (not ``closed``) a root between two fractions."""

    number: Expr
    low: Fraction
    high: Fraction
    kind: str
    closed: bool = True


def real(expr: Expr, x: Symbol, low: Fraction, high: Fraction | None, open_below: bool) -> tuple[CandidatePoint, ...]:
    """The points of a range where a cost is least. ``open_below`` says that ``low`` itself is not allowed.

    Raises ``ValuesError`` where there is no optimum.

    >>> import sympy as sp
    >>> x = sp.Symbol("x", positive=True)
    >>> (point,) = real(x - sp.log(x) * 3, x, Fraction(0), None, True)
    >>> bool(point.low <= 3 <= point.high)
    True
    """
    if high is not None and low > high:
        raise ValuesError(f"there is no number from {low} to {high}")
    ends = [*([] if open_below else [(low, "lower bound")]), *([(high, "upper bound")] if high is not None else [])]
    found = [CandidatePoint(rational(end), end, end, name) for end, name in ends]
    for one in special(expr, x, low, high, not open_below):
        if one.at.low > low and (high is None or one.at.high < high):
            number = _closed(one, x)
            closed = number is not None and not number.has(sp.CRootOf)
            middle = rational((one.at.low + one.at.high) / 2)
            found.append(
                CandidatePoint(middle if number is None else number, one.at.low, one.at.high, one.kind, closed)
            )
    worth = [_value(expr, x, point.number) for point in found]
    best = min(worth, default=None)
    last = Fraction(max([p.high for p in found], default=low).__ceil__() + 1)
    first = min([p.low for p in found if p.low > 0], default=Fraction(1))
    above = [_beyond(expr, x, last, True)] if high is None else []
    _attained([*above, _beyond(expr, x, first, False) if open_below else None], best)
    assert best is not None  # where nothing was found, an end is lower, and that was refused
    near = sp.Float(10, 60) ** -40 * (1 + abs(best))
    winners = [point for point, value in zip(found, worth, strict=True) if value <= best + near]
    return tuple({str(point.number): point for point in winners}.values())


def _closed(point: Special, x: Symbol) -> Expr | None:
    """The root of a polynomial as an exact number; None of anything else."""
    poly = polynomial(point.zero, x)
    if poly is None:
        return None
    if point.at.exact:
        return rational(point.at.low)
    low, high = rational(point.at.low), rational(point.at.high)
    return next(root for root in poly.sqf_part().real_roots() if low <= root <= high)
