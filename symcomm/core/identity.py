"""Whether two expressions are the same for all values of their symbols: proved, refuted, or neither.

A rational expression has a normal form. A piecewise one is proved by cases: the largest of several is each of them
where it exceeds the others, a floor is a whole number ``q`` with ``q <= x < q + 1``. A case is settled where both sides
have one normal form there, or where its conditions contradict one another.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations

from symcomm.core import form as forms
from symcomm.core.errors import DerivationError, IrrationalError, ValuesError
from symcomm.core.libraries import Expr, Symbol, sp
from symcomm.core.notation import amount
from symcomm.core.notation import whole as whole_number
from symcomm.core.patience import OverdueError, limited

SECONDS = 2.0  # of processor time for one identity
_CASES = 200  # of one identity; more are not tried
_TOGETHER = 3  # conditions that are added up to find a contradiction
_ROWS = 40
_PROBES = 24
_DIGITS = 50  # for numbers that no fraction says

Condition = tuple["Expr", bool]  # what is not negative, and whether it is not zero either


class UndecidedError(DerivationError):
    """Neither a proof nor a counterexample was found."""


@lru_cache(maxsize=8192)  # the same rewrite stands in many derivations
def identical(left: Expr, right: Expr) -> bool:
    """Whether two expressions are equal wherever their symbols are positive, and whole where they count.

    Raises ``UndecidedError`` where there is neither a proof nor a counterexample.

    >>> from sympy import Max, ceiling, floor
    >>> from symcomm.core.notation import symbol
    >>> k, n = symbol("k"), symbol("n")
    >>> identical(2 * (k - 1) / k, 2 - 2 / k), identical(k, k + 1)
    (True, False)
    >>> identical(ceiling(n / k), floor((n - 1) / k) + 1), identical(Max(n, 1000), n)
    (True, False)
    """
    if left == right:
        return True
    difference = left - right
    whole, pieces = frozen(difference)  # SymPy compares all choices of a maximum that it multiplies
    if sp.expand(whole) == 0 or (not pieces and (_crosswise(left, right) or sp.cancel(difference) == 0)):
        return True
    if _refuted(left, right):
        return False
    cases = _Cases()
    try:
        with limited(SECONDS, working=True):
            if sp.cancel(whole) == 0 or cases.vanish(difference, ()):
                return True
        why = f"{cases.proved} of its cases were proved, but not all"
    except OverdueError:
        why = f"{cases.proved} of its cases were proved in {SECONDS:g} s"
    raise UndecidedError(
        f"whether {left} is {right} could not be decided: {_PROBES} sets of numbers make no difference, and {why}"
    )


def _crosswise(left: Expr, right: Expr) -> bool:
    """Whether two quotients are one when multiplied out: far sooner than a common divisor is found."""
    (top, bottom), (other, below) = sp.fraction(left), sp.fraction(right)
    return bool(sp.expand(top * below - other * bottom) == 0)


def frozen(expr: Expr) -> tuple[Expr, dict[Expr, Expr]]:
    """The expression with a symbol for each maximum and rounding, and what each stands for.

    >>> from sympy import Max, symbols
    >>> a, b = symbols("a b")
    >>> [str(e) for e in frozen(2 * Max(a, b))[1].values()]
    ['Max(a, b)']
    """
    kinds = (sp.Max, sp.Min, sp.ceiling, sp.floor)
    made: dict[Expr, Expr] = {}

    def go(e: Expr) -> Expr:
        if isinstance(e, kinds):
            return made.setdefault(e, (amount if e.is_positive else whole_number)(f"piece{len(made)}_"))
        return e.func(*map(go, e.args)) if e.args and e.has(*kinds) else e

    return go(expr), {symbol: piece for piece, symbol in made.items()}


# -- counterexamples -----------------------------------------------------------------------------------------------


def _points(symbols: Sequence[Symbol]) -> Iterator[dict[str, Fraction]]:
    """Values to try: ones, equal ones, whole multiples of one another, and sizes from tiny to far beyond 10^12."""
    rng = random.Random(20240327)  # noqa: S311  (probes, not secrets)
    for equal in (1, 2, 60):
        yield {s.name: Fraction(equal) for s in symbols}
    for n in range(_PROBES):
        chain, found = Fraction(1), {}
        for s in rng.sample(symbols, len(symbols)):
            size = rng.randrange(1, 10 ** rng.choice((1, 2, 3, 6, 15)))
            chain *= rng.randrange(1, 7)
            number = chain if n % 3 == 0 else Fraction(size)
            if not s.is_integer and n % 3:
                number /= rng.randrange(1, 10 ** rng.choice((1, 3, 15)))
            found[s.name] = number
        yield found


def _refuted(left: Expr, right: Expr) -> bool:
    """Whether some values make a difference: exact fractions, or digits where a number is irrational."""
    a, b = forms.from_expr(left), forms.from_expr(right)
    symbols = sorted(left.free_symbols | right.free_symbols, key=lambda s: str(s.name))
    for point in _points(symbols):
        try:
            if forms.evaluate(a, point) != forms.evaluate(b, point):
                return True
        except IrrationalError:
            put = {s: sp.Rational(point[s.name].numerator, point[s.name].denominator) for s in symbols}
            apart = sp.N((left - right).xreplace(put), _DIGITS)
            size = sp.N(left.xreplace(put), _DIGITS)
            if apart.is_Float and size.is_Float and abs(apart) > abs(size) * sp.Float(10) ** (10 - _DIGITS):
                return True
        except ValuesError:
            continue  # nothing is there: a division by zero, or a power that is too large
    return False


# -- proofs --------------------------------------------------------------------------------------------------------


class _Cases:
    """The cases of one identity."""

    def __init__(self) -> None:
        self.left, self.proved = _CASES, 0
        self.floors: dict[Expr, Symbol] = {}

    def vanish(self, difference: Expr, conditions: tuple[Condition, ...]) -> bool:
        """Whether an expression is zero wherever the conditions hold."""
        piece = next(
            (p for p in sp.preorder_traversal(difference)
             if isinstance(p, (sp.Max, sp.Min, sp.ceiling, sp.floor))
             and not any(a.has(sp.Max, sp.Min, sp.ceiling, sp.floor) for a in p.args)), None,
        )  # fmt: skip
        if piece is None:
            apart = sp.fraction(sp.cancel(difference))[0]
            zero = apart == 0 or all(contradict((*conditions, (side, True))) for side in (apart, -apart))
            self.proved += zero
            return zero
        if isinstance(piece, (sp.ceiling, sp.floor)):
            return self._rounded(difference, piece, conditions)
        sign = 1 if isinstance(piece, sp.Max) else -1
        choices = [c for n, c in enumerate(piece.args) if not any(
            at_least(sign * (other - c)) and (m < n or not at_least(sign * (c - other)))
            for m, other in enumerate(piece.args) if m != n)]  # fmt: skip
        self.left -= len(choices)
        return self.left >= 0 and all(
            self.vanish(
                difference.xreplace({piece: chosen}),
                (*conditions, *((sign * (chosen - other), m < n) for m, other in enumerate(choices) if m != n)),
            )
            for n, chosen in enumerate(choices)
        )

    def _rounded(self, difference: Expr, piece: Expr, conditions: tuple[Condition, ...]) -> bool:
        """A floor or a ceiling as a whole number between two bounds."""
        inside = sp.cancel(piece.args[0])
        whole = sp.Add(*(term for term in sp.Add.make_args(sp.expand(inside)) if term.is_integer))
        rest = sp.cancel(inside - whole)
        if isinstance(piece, sp.ceiling):  # ceil(n/d) is floor((n - 1)/d) + 1 for whole numbers, and -floor(-x) for all
            top, bottom = sp.fraction(rest)
            if sp.expand(top).is_integer and bottom.is_integer and bottom.is_positive:
                sign, rest, whole = 1, sp.cancel((top - 1) / bottom), whole + 1
                more = sp.Add(*(term for term in sp.Add.make_args(sp.expand(rest)) if term.is_integer))
                rest, whole = sp.cancel(rest - more), whole + more
            else:
                sign, rest = -1, sp.cancel(-rest)
        else:
            sign = 1
        if rest not in self.floors:
            self.floors[rest] = whole_number(f"floor{len(self.floors)}")
        q = self.floors[rest]
        for n in (0, -1):  # as it is for most fractions
            if at_least(rest - n) and at_least(n + 1 - rest, strictly=True):
                return self.vanish(difference.xreplace({piece: whole + sign * n}), conditions)
        bounds = ((rest - q, False), (q + 1 - rest, True))
        return self.vanish(difference.xreplace({piece: whole + sign * q}), (*conditions, *bounds))


def at_least(expr: Expr, strictly: bool = False) -> bool:
    """Whether it can be seen that an expression is never negative, or never zero either.

    Whole symbols are written as one more than what is not negative; then no coefficient may be negative.

    >>> from symcomm.core.notation import amount, symbol
    >>> at_least(symbol("n") - 1), at_least(amount("x") - 1)
    (True, False)
    """
    top, bottom = sp.fraction(sp.cancel(expr))
    if bottom.could_extract_minus_sign():
        top, bottom = -top, -bottom
    for part, apart in ((bottom, True), (top, strictly)):
        if part.is_number:
            if not (part.is_positive or (part.is_zero and not apart)):
                return False
            continue
        if not all(s.is_positive for s in part.free_symbols):
            return False
        moved = sp.expand(part.xreplace({s: s + 1 for s in part.free_symbols if s.is_integer}))
        terms = sp.Add.make_args(moved)
        if not all(term.as_coeff_Mul()[0] > 0 and term.is_nonnegative for term in terms):
            return False
        if apart and not any(all(not s.is_integer for s in term.free_symbols) for term in terms):
            return False
    return True


def contradict(conditions: Sequence[Condition]) -> bool:
    """Whether some of the conditions, added up, cannot hold.

    Symbols whose sign is not known are eliminated first (Fourier and Motzkin).

    >>> from symcomm.core.notation import symbol
    >>> n = symbol("n")
    >>> contradict([(n - 5, False), (3 - n, False)]), contradict([(n - 5, False), (9 - n, False)])
    (True, False)
    """
    rows = dict.fromkeys(_normal(*condition) for condition in conditions)
    for q in sorted({s for c, _ in rows for s in c.free_symbols if not s.is_positive}, key=str):
        if len(rows) > _ROWS:
            return False
        slopes = {row: sp.expand(sp.diff(row[0], q)) for row in rows}
        below = [row for row, a in slopes.items() if not a.has(q) and at_least(a, strictly=True)]
        above = [row for row, a in slopes.items() if not a.has(q) and at_least(-a, strictly=True)]
        made = [
            _normal(slopes[low] * high[0] - slopes[high] * low[0], low[1] or high[1]) for low in below for high in above
        ]
        rows = dict.fromkeys([*(row for row, a in slopes.items() if a == 0 and not row[0].has(q)), *made])
    return len(rows) <= _ROWS and any(
        at_least(-sp.Add(*(c for c, _ in some)), strictly=not any(strict for _, strict in some))
        for size in range(1, _TOGETHER + 1)
        for some in combinations(rows, size)
    )


def _normal(expr: Expr, strict: bool) -> Condition:
    """A condition without factors that are positive; whole numbers that are more than zero are at least one."""
    top, bottom = sp.fraction(sp.cancel(expr))
    if not at_least(bottom, strictly=True):
        top, bottom = -top, -bottom
    if not at_least(bottom, strictly=True):
        return sp.Integer(1), True  # nothing follows
    content, factors = sp.factor_list(top)
    unknown = [f**n for f, n in factors if not at_least(f, strictly=True)]
    kept = sp.expand(sp.Mul(sp.sign(content), *unknown))
    return (kept - 1, False) if strict and kept.is_integer else (kept, strict)
