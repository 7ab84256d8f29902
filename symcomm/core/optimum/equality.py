"""Where two costs are equal in closed form: the positive root of their difference, and the condition for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Numbers, put, worked_out
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form
from symcomm.core.libraries import Expr, Symbol, sp
from symcomm.core.optimum.powers import course, terms
from symcomm.core.optimum.powers import root as powers_root
from symcomm.core.optimum.roots import RANGE, changes
from symcomm.core.patience import trying
from symcomm.core.records import dataclass

_HAIR = Fraction(1, 10**6)  # of a crossing
_SIDES = {True: "at_least", False: "at_most", None: ""}  # by whether the first is the larger one above
_Given = tuple[tuple[str, Fraction], ...]


def _numbers(known: Mapping[str, Fraction], expr: Expr) -> _Given:
    """The given numbers of an expression's symbols; other conventions and papers ask the same of them again."""
    return tuple((s.name, known[s.name]) for s in sorted(expr.free_symbols, key=str) if s.name in known)


@lru_cache(maxsize=1024)
def coefficients(gap: Expr, x: Expr) -> tuple[Expr, ...] | None:
    """The coefficients of a difference's numerator, highest power first; None where it is no polynomial.

    >>> from symcomm.core.notation import amount
    >>> x, a = amount("x"), amount("a")
    >>> coefficients(a - 3 / x, x)
    (a, -3)
    """
    if not gap.is_rational_function(x):
        return None
    top = sp.expand(sp.fraction(sp.together(gap))[0])
    top = sp.factor_terms(top).as_independent(x, as_Add=False)[1] if top.is_polynomial(x) else top
    if not top.is_polynomial(x):
        return None
    found: list[Expr] = sp.Poly(top, x).all_coeffs()
    while len(found) > 1 and found[-1] == 0:  # a factor x has no positive root
        found.pop()
    return tuple(found)


@lru_cache(maxsize=1024)  # other numbers do not change where it is
def sure_root(gap: Expr, x: Expr) -> Expr | None:
    """The root of a line or of two powers, or the one of a parabola, or of powers like it, whose signs change once.

    None for all others.
    """
    found = coefficients(gap, x)
    if found is not None and len(found) == 2:
        return sp.cancel(-found[1] / found[0])
    if found is not None and len(found) == 3:
        p, q, r = found if found[0].is_positive else (-c for c in found)
        if p.is_positive and r.is_negative:
            return sp.sqrt(-r / p) if q == 0 else (-q + sp.sqrt(sp.expand(q**2 - 4 * p * r))) / (2 * p)
        return None
    solved = _of_powers(gap, x)
    if solved is None or not solved[1].is_number:
        return None if solved is None else solved[0]
    return sp.Pow(solved[1], 1 / solved[2], evaluate=False)  # a number would be spelled out, with all its digits


def _of_powers(gap: Expr, x: Expr) -> tuple[Expr, Expr, Expr] | None:
    """The root of two powers, or the one of three whose signs change once: ``inside ** (1 / degree)``, all three."""
    found = terms(gap, x) or ()
    once = course(found).kind in ("valley", "hill")
    solved = powers_root(found) if once or len(found) == 2 else None
    return solved if once or (solved is not None and solved[2].is_Integer) else None


@lru_cache(maxsize=1024)
def _every_root(gap: Expr, x: Expr) -> tuple[Expr, ...]:
    sure = sure_root(gap, x)
    if sure is not None:
        return (sure,)
    found = coefficients(gap, x) or ()
    if len(found) == 3:  # the roots as they are: SymPy would take its time to simplify them
        p, q, r = found
        apart = sp.sqrt(sp.expand(q**2 - 4 * p * r))
        return tuple(dict.fromkeys(((-q - apart) / (2 * p), (-q + apart) / (2 * p))))
    return tuple(sp.solve(sp.expand(sp.numer(sp.together(gap))), x, simplify=False))


def positive_root(gap: Expr, x: Expr, known: Mapping[str, Fraction], names: Sequence[str] = ()) -> Expr:
    """The one positive value of ``x`` at which a difference is zero; ``names`` are those of the two, for errors.

    Raises ``ValuesError`` where there is none, or several.
    """
    positive = _positive_roots(gap, x, _numbers(known, gap))
    if not positive:
        always = gap.subs(put(known, x.name)).subs(x, 1)
        raise _never(x, names, (-1 if always < 0 else 1) if always.is_number else None)
    if len(positive) > 1:
        lacking = sorted({s.name for s in gap.free_symbols} - {*known, x.name})
        raise ValuesError(f"the two terms are equal at {len(positive)} values of {x.name}",
                          hint=f"numbers may leave one: give {lacking[0]} a value" if lacking else "")  # fmt: skip
    return positive[0]


@lru_cache(maxsize=1024)
def _positive_roots(gap: Expr, x: Expr, known: _Given) -> tuple[Expr, ...]:
    found = [s for s in _every_root(gap, x) if not (s.is_negative or s.is_zero)]
    at, names = put(dict(known), x.name), {name for name, _ in known}
    told = {s: {symbol.name for symbol in s.free_symbols} <= names for s in found}
    return tuple(s for s in found if not told[s] or s.subs(at).is_positive)


@dataclass(frozen=True)
class Reached:
    """Where a time is at least another: from the value of a form on, up to it, always or never."""

    kind: str  # at_least, at_most, always, never; either where both change alike, "" where numbers decide the side
    form: Form | None = None
    rises: bool | None = None  # the first is the larger one above; None where numbers decide that
    where: Condition | None = None  # for there to be such values
    compared: tuple[Expr, Expr] = (0, 0)  # the first and the second of the power that decides
    below: Fraction | None = None  # where a bracket begins, of which the form is the upper end

    @property
    def ratio(self) -> Expr:
        """The second over the first of the power that decides."""
        first, second = self.compared
        return cancelled(second / first) if first != 0 else sp.Integer(0)


def meeting(gap: Expr, x: Symbol, known: Mapping[str, Fraction], names: Sequence[str]) -> Reached:
    """Where a difference of two terms is zero: in closed form, or by numbers where roundings and functions forbid that.

    By numbers every change of sign between 2^-60 and 2^60 is found. Raises ``ValuesError`` where there is none, there
    are several, or numbers are missing that are needed.
    """
    from sympy.core.function import AppliedUndef

    steps = gap.atoms(AppliedUndef, sp.Min, sp.Max, sp.ceiling, sp.floor)
    if not any(x in step.free_symbols for step in steps):
        trying("the roots of their difference in closed form")
        root = positive_root(gap, x, known, names)
        way = rises(gap, x, known)
        return Reached(_SIDES[way], forms.from_expr(root), way, holding(gap, x, root, known))
    form = forms.from_expr(gap)
    missing = [name for name in forms.names(form) if name not in known and name != x.name]
    if missing:
        have = f"{', '.join(missing)} {'has' if len(missing) == 1 else 'have'} no value"
        raise ValuesError(f"where the {names[0]} and the {names[1]} term are equal has no closed form in {x.name}, "
                          f"and {have}", hint=f"give {missing[0]} a value")  # fmt: skip

    def sign(at: Fraction) -> int:
        worth = forms.evaluate(form, {**known, x.name: at})
        return (worth > 0) - (worth < 0)

    trying("the changes of its sign between 2^-60 and 2^60")
    found = changes(sign, _spelled_out(gap).subs(put(known, x.name)), x, *RANGE, whole=False)
    if len(found.crossings) > 1 or found.unsure:
        many = f"{len(found.crossings)} values" if not found.unsure else "some values, not all of which can be found,"
        raise ValuesError(f"the two terms are equal at {many} of {x.name}")
    if not found.crossings:
        raise _never(x, names, sign(Fraction(1)))
    place = found.crossings[0]
    way = sign(2 * place.high) > 0
    return Reached(_SIDES[way], forms.rational(place.high), way, below=place.low)


def meets(gap: Form, over: str, whole: bool, name: str, numbers: Numbers) -> bool:
    """Whether a difference is zero where a step says, or changes its sign within a hair of it: a witness."""
    x = next(numbers[n] for n in reversed(numbers) if n.startswith(name))
    if x <= 0:
        raise ValuesError("no crossing at these numbers")
    beside = (x, x - 1, x) if whole else (x, x * (1 - _HAIR), x * (1 + _HAIR))
    here, low, high = (worked_out(gap, numbers.moved(over, y)) for y in beside)
    return here == 0 or low * high < 0


def _never(x: Symbol, names: Sequence[str], sign: int | None) -> ValuesError:
    longer = f": the {names[1 if sign < 0 else 0]} term is longer at every one" if names and sign is not None else ""
    return ValuesError(f"the two terms are equal for no positive {x.name}{longer}")


def _spelled_out(expr: Expr) -> Expr:
    """The expression with the formulas of functions that are evaluated by a rule."""
    from sympy.core.function import AppliedUndef

    found: dict[Expr, Expr] = {}
    for one in expr.atoms(AppliedUndef):
        rule = getattr(one.func, "rule", None)
        formula = rule and rule.written(tuple(map(forms.from_expr, one.args)))
        if formula is not None:
            found[one] = forms.value(formula)
    return expr.xreplace(found)


def holding(gap: Expr, x: Expr, root: Expr, known: Mapping[str, Fraction]) -> Condition | None:
    """The condition under which a root is positive, as two sums of positive terms; None where it always is.

    >>> from symcomm.core.notation import amount
    >>> x, b = amount("x"), amount("b")
    >>> print(holding(3 + x - b * x, x, 3 / (b - 1), {}))
    b > 1
    """
    found = coefficients(gap, x) or ()
    if len(found) == 3 and sure_root(gap, x) is not None:
        return None
    solved = _of_powers(gap, x) if len(found) != 2 else None
    if solved is not None:
        return above_zero(solved[1], x, known) if len(terms(gap, x) or ()) == 2 else None
    return above_zero(root, x, known)


def above_zero(root: Expr, x: Expr, known: Mapping[str, Fraction]) -> Condition | None:
    """The condition under which a root is positive. Raises ``ValuesError`` where it is not with the given numbers."""
    signed, condition = _deciding(root)
    numbers = signed.subs(put(dict(_numbers(known, signed)), ""))
    if signed.free_symbols and numbers.is_number and not numbers.is_positive:
        raise _never(x, (), None)
    return None if numbers.is_number or numbers.is_positive else condition


@lru_cache(maxsize=1024)
def _deciding(root: Expr) -> tuple[Expr, Condition]:
    """The factors of a root on which its sign depends; that they are positive together, as two sums."""
    number, factors = sp.factor(root).as_coeff_Mul()
    above = (1 / factor if factor.is_Pow and factor.exp.is_negative else factor for factor in sp.Mul.make_args(factors))
    unsure = [factor for factor in above if not factor.is_positive]
    unsure = [factor for factor in unsure if not factor.is_nonnegative] or unsure  # k - 1 alone decides, or not at all
    signed = sp.sign(number) * sp.Mul(*unsure)
    terms = sp.Add.make_args(sp.expand(signed))
    more, less = (sp.Add(*(t * sign for t in terms if t.could_extract_minus_sign() == (sign < 0))) for sign in (1, -1))
    return signed, Condition(forms.from_expr(sp.factor_terms(more)), ">", forms.from_expr(sp.factor_terms(less)))


def rises(gap: Expr, x: Expr, known: Mapping[str, Fraction]) -> bool | None:
    """Whether a difference goes from below zero to above where it vanishes; None where that depends on numbers."""
    return _rises(gap, x, _numbers(known, gap))


@lru_cache(maxsize=1024)
def _rises(gap: Expr, x: Expr, known: _Given) -> bool | None:
    gap = gap.subs(put(dict(known), x.name))
    once = course(terms(gap, x) or ()).kind  # by the signs of its powers
    if once in ("valley", "hill"):
        return once == "valley"
    top, bottom = sp.fraction(sp.together(gap))
    sign = sp.factor(sp.diff(top, x)) / bottom
    if sign.is_positive is None and top.is_polynomial(x):  # it crosses once: from its sign at first to the other one
        sign = -sp.Poly(top, x).terms()[-1][1] / bottom
    return True if sign.is_positive else False if sign.is_negative else None


@lru_cache(maxsize=1024)
def cancelled(expr: Expr) -> Expr:
    """One fraction of polynomials without common factors."""
    return sp.cancel(expr)


@lru_cache(maxsize=1024)
def limit(gap: Expr, x: Expr) -> Expr | None:
    """Where a difference closes that is positive below; None where it is no straight line that falls."""
    top = sp.expand(sp.numer(sp.together(gap)))
    if not top.is_polynomial(x) or sp.degree(top, x) != 1:
        return None
    slope, rest = sp.Poly(top, x).all_coeffs()
    return cancelled(-rest / slope) if slope.is_negative and rest.is_positive else None
