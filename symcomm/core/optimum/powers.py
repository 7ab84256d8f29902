"""Sums of powers of one variable: their terms and signs, how they run (Descartes' rule of signs), their one root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cmp_to_key, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.derivation import Condition
from symcomm.core.errors import SymcommError, ValuesError
from symcomm.core.form import Num, Sym
from symcomm.core.libraries import Expr, Symbol, sp
from symcomm.core.optimum.cost import written
from symcomm.core.optimum.dimension import with_units
from symcomm.core.printing import plain
from symcomm.core.records import dataclass
from symcomm.core.units import ONE

if TYPE_CHECKING:
    from symcomm.core.optimum.cost import Cost

_FAR = 2**24  # has whole roots and logarithms

Terms = tuple[tuple["Expr", "Expr"], ...]  # (exponent, coefficient), exponents growing


@lru_cache(maxsize=1024)
def terms(expr: Expr, x: Symbol) -> Terms | None:
    """The expression as a sum of powers of ``x``, exponents growing; None where it is none or they cannot be sorted.

    >>> from symcomm.core.notation import amount
    >>> x, o = amount("x"), amount("o")
    >>> terms(o * x + 3 / x, x)
    ((-1, 3), (1, o))
    """
    if any(one.has(x) for one in expr.atoms(sp.Max, sp.Min, sp.ceiling, sp.floor)):
        return None
    found: dict[Expr, list[Expr]] = {}
    for term in sp.Add.make_args(sp.expand(expr)):
        rest, power = term.as_independent(x, as_Add=False)
        base, exponent = power.as_base_exp()
        if power == 1:
            exponent = sp.Integer(0)
        elif base != x or exponent.has(x):
            return None
        found.setdefault(exponent, []).append(rest)

    def compare(a: Expr, b: Expr) -> int:
        way = sign(a - b)
        if way is None:
            raise ValuesError("unsorted")
        return way

    try:
        order = sorted(found, key=cmp_to_key(compare))
    except ValuesError:
        return None
    return tuple((e, neat(sp.Add(*found[e]))) for e in order)


def slope_of(found: Terms) -> Terms:
    """The terms of the derivative."""
    return tuple((sp.expand(e - 1), e * c) for e, c in found if e != 0)


@lru_cache(maxsize=1024)  # the same expressions are compared under other conventions and numbers
def sign(expr: Expr) -> int | None:
    """The sign of an expression under the assumptions of its symbols: 1, 0 or -1, or None where they do not tell.

    A value that may be zero but never negative counts as 1.

    >>> from symcomm.core.notation import symbol
    >>> sign(symbol("p") - 1), sign(symbol("p") - 2)
    (1, None)
    """
    if has_both_signs(expr):
        return None
    if expr.is_zero:
        return 0
    for way in (expr, sp.factor_terms(sp.together(expr))):  # X - 1 is a sign, X/N - 1/N is none
        if way.is_nonnegative or way.is_nonpositive:
            return 1 if way.is_nonnegative else -1
    return None


@lru_cache(maxsize=1024)
def has_both_signs(expr: Expr) -> bool:
    """Whether an expression is above zero at some numbers and below zero at others: no assumption tells its sign.

    Numbers show that in a hundredth of the time that SymPy takes to find no proof.

    >>> from symcomm.core.notation import symbol
    >>> has_both_signs(symbol("p") - 1), has_both_signs(symbol("p") - symbol("q"))
    (False, True)
    """
    mixed = any(len({term.could_extract_minus_sign() for term in one.args}) > 1 for one in expr.atoms(sp.Add))
    if not (mixed and all(s.is_positive for s in expr.free_symbols)):
        return False
    names = [s.name for s in expr.free_symbols]
    ones, far = (dict.fromkeys(names, Fraction(n)) for n in (1, _FAR))
    points = (ones, *({**ones, name: far[name]} for name in names), *({**far, name: ones[name]} for name in names))
    found = set[bool]()
    try:
        form = forms.from_expr(expr)
        for point in points:
            worth = forms.evaluate(form, point)
            found |= {worth > 0} if worth else set()
            if len(found) > 1:
                return True
    except (TypeError, SymcommError):  # what no form says, or no fraction: the assumptions decide
        return False
    return False


def at_least(expr: Expr) -> bool:
    """Whether an expression is above zero for sure, not only never below."""
    return bool(expr.is_positive or expr.is_negative)


def told_more(cost: Cost) -> Iterator[Cost]:
    """The cost with more known of the signs of its terms: the given numbers put in, or names that count things.

    A name that may count something is taken to be at least one; that is a condition of what is derived from it.

    >>> from symcomm.core.optimum.cost import read
    >>> [str(one.where[0]) for one in told_more(read("(m + p - 1) o", "m", None)) if one.where][:2]
    ['p >= 1', 'o >= 1']
    """
    if {*cost.given} & {*forms.names(cost.form)}:
        cost = replace(
            cost,
            form=forms.substitute(cost.form, lambda s: Num(cost.given[s.name], s.unit) if s.name in cost.given else s),
            said=" The signs of its terms depend on the given numbers, so we put these in.",
        )
        yield cost
    syms = dict.fromkeys(piece for piece in forms.walk(cost.form) if isinstance(piece, Sym))
    amounts = [s for s in syms if not s.whole and s.unit == ONE and s.name != cost.over]
    for chosen in (*((s,) for s in amounts), tuple(amounts)):
        names = {s.name for s in chosen}

        def count(s: Sym, names: set[str] = names) -> Sym:
            return Sym(s.name, s.name in names or s.whole, s.unit)

        where = (*cost.where, *(Condition(Sym(s.name, False), ">=", forms.num(1)) for s in chosen))
        yield replace(cost, form=forms.substitute(cost.form, count), where=where)


@dataclass(frozen=True)
class Monotonicity:
    """How a sum of powers runs for positive ``x``, by Descartes' rule of signs.

    ``kind`` is ``falls``, ``rises``, ``valley`` (falls, then rises), ``hill``, ``flat`` or ``unknown``; ``why`` names
    the coefficient whose sign is not known, or says that the signs change more than once.
    """

    kind: str
    why: str = ""
    sure: bool = True


def course(slope: Terms) -> Monotonicity:
    """How a function runs whose slope has these terms."""
    signs: list[int] = []
    sure = True
    for _, coefficient in slope:
        way = sign(coefficient)
        if way is None:
            return Monotonicity("unknown", f"the sign of {plain(with_units(written(coefficient), {}))} is not known")
        if way:
            signs.append(way)
            sure = sure and at_least(coefficient)
    changes = sum(a != b for a, b in pairwise(signs))
    if not signs:
        return Monotonicity("flat")
    if not changes:
        return Monotonicity("rises" if signs[0] > 0 else "falls", sure=sure)
    if changes == 1:
        return Monotonicity("valley" if signs[0] < 0 else "hill", sure=sure)
    return Monotonicity("unknown", f"the signs of its slope's terms change {changes} times")


def root(slope: Terms) -> tuple[Expr, Expr, Expr] | None:
    """The one positive root of a slope with one change of sign, as ``inside ** (1 / degree)``: all three.

    None where there is no closed form.
    """
    slope = tuple((e, c) for e, c in slope if c != 0)
    if len(slope) == 2:
        (low, a), (high, b) = slope
        degree = sp.expand(high - low)
        inside = neat(-a) / neat(b)
        return inside ** (1 / degree), inside, degree
    if len(slope) == 3:
        (e0, c), (e1, b), (e2, a) = slope
        degree = sp.expand(e1 - e0)
        if sp.expand(e2 - e1) == degree:
            half, rest = sp.cancel(b / a) / 2, sp.cancel(c / a)
            y = -half + sp.sqrt(sp.factor_terms(half**2 - rest))
            return y ** (1 / degree), y, degree
    return None


def neat(expr: Expr) -> Expr:
    """Common factors outside the sums, and each sum with a positive symbol in it.

    >>> from symcomm.core.notation import symbol
    >>> t, p = symbol("t"), symbol("p")
    >>> neat(t - t * p), neat(t * p - t)
    (-t*(p - 1), t*(p - 1))
    """
    made = sp.factor_terms(expr)
    flipped: list[Expr] = []
    for factor in sp.Mul.make_args(made):
        base, exponent = factor.as_base_exp()
        symbols = [t for t in sp.Add.make_args(base) if not t.is_number]
        if base.is_Add and exponent.is_Integer and symbols and all(t.could_extract_minus_sign() for t in symbols):
            flipped += [sp.Add(*(-t for t in base.args)) ** exponent, sp.Integer(-1) ** exponent]
        else:
            flipped.append(factor)
    return sp.Mul(*flipped)
