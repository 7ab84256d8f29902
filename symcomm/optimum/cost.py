"""A cost as a function of one name: its terms, their signs, and how its pieces are written with their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cmp_to_key
from itertools import pairwise
from typing import TYPE_CHECKING

from symcomm import form as forms
from symcomm.accounting import Accounting
from symcomm.derivation import Derivation, Relations, Step, exact
from symcomm.errors import DerivationError, ValuesError, nearest
from symcomm.form import Form, Sym
from symcomm.notation import Notation, amount, symbol
from symcomm.units import ONE, Unit

if TYPE_CHECKING:
    from sympy import Expr, Symbol


@dataclass(frozen=True)
class Cost:
    """A form as a function of the name ``over``, which is treated as a real, positive number.

    ``bare`` is true where units cannot be followed through the algebra; the cost is then a plain number, counted in
    ``unit``.
    """

    title: str
    form: Form
    over: str
    unit: Unit
    given: Mapping[str, Fraction]
    accounting: Accounting = field(default_factory=Accounting)
    touched: tuple[str, ...] = ()
    relations: Relations = field(default_factory=Relations)
    notation: Notation = field(default_factory=Notation)
    bare: bool = False

    @property
    def x(self) -> Symbol:
        """The variable."""
        return amount(self.over)

    @property
    def expr(self) -> Expr:
        """The worth of the form."""
        return forms.value(self.form)

    @property
    def syms(self) -> dict[str, Sym]:
        """The names of the form, with their units."""
        return {s.name: s for s in forms.walk(self.form) if isinstance(s, Sym)}

    @property
    def step_unit(self) -> Unit:
        """The unit that steps with the cost's value have."""
        return ONE if self.bare else self.unit

    @property
    def x_unit(self) -> Unit:
        """The unit of the variable."""
        return self.syms[self.over].unit

    @property
    def missing(self) -> tuple[str, ...]:
        """The names, besides the variable, without a number."""
        return tuple(n for n in forms.names(self.form) if n != self.over and n not in self.given)

    @property
    def numbers(self) -> Expr:
        """The cost with the given numbers: a function of the variable alone, where no name is missing."""
        import sympy as sp

        put: dict[Symbol, Expr] = {}
        for name, value in self.given.items():
            number = sp.Rational(value.numerator, value.denominator)
            put |= {symbol(name): number, amount(name): number} if name != self.over else {}
        return self.expr.subs(put)

    def write(self, expr: Expr) -> Form:
        """An expression as a form, square roots gathered and units put back."""
        syms = self.syms
        return forms.substitute(written(expr), lambda s: replace(s, unit=syms[s.name].unit) if s.name in syms else s)

    def derivation(self, title: str, steps: Sequence[Step], **more: object) -> Derivation:
        """The steps as a derivation under the cost's accounting."""
        return Derivation(
            title, self.accounting, tuple(steps), self.touched, self.relations, given=tuple(self.given.items()),
            notation=self.notation, **more,  # type: ignore[arg-type]
        )  # fmt: skip

    def free(self, name: str, *taken: str) -> str:
        """A name for a step that no symbol has."""
        while name in self.syms or name in taken:
            name += "'"
        return name


def read(cost: Derivation | Form | Expr, over: str, given: Mapping[str, object] | None, title: str = "") -> Cost:
    """A cost from a derivation, a form or a SymPy expression.

    Raises ``ValuesError`` where it does not depend on ``over``, or a given number is not positive.
    """
    known: dict[str, Fraction] = {}
    more: dict[str, object] = {}
    if isinstance(cost, Derivation):
        known = dict(cost.given)
        defined = {step.name: step.form for step in cost.steps if step.relation == ":="}

        def unfold(s: Sym) -> Form:
            return forms.substitute(defined[s.name], unfold) if s.name in defined else s

        form = forms.substitute(cost.answer.form, unfold)
        unit, title = cost.unit, title or cost.title
        more = {"accounting": cost.accounting, "touched": cost.touched, "relations": cost.relations,
                "notation": cost.notation}  # fmt: skip
    elif isinstance(cost, Form):
        form = cost
        try:
            unit = forms.unit_of(form, {})
        except DerivationError:
            unit = ONE
    else:
        form, unit = forms.from_expr(cost), ONE
    for name, value in (given or {}).items():
        known[name] = exact(value, name)
        if known[name] <= 0:
            raise ValuesError(f"{name} = {known[name]}: costs are functions of positive numbers")
    known.pop(over, None)
    names = forms.names(form)
    if over not in names:
        raise ValuesError(f"the cost does not depend on '{over[:60]}'", hint=nearest(over, [*names]))
    form = forms.substitute(form, lambda s: Sym(s.name, False, s.unit) if s.name == over else s)
    made = Cost(title or "Cost", form, over, unit, known, **more)  # type: ignore[arg-type]
    try:
        # The algebra takes terms apart and adds them again: units must survive that.
        if forms.unit_of(made.write(made.expr.expand()), {}) == unit:
            return made
    except DerivationError:
        pass
    bare = forms.substitute(form, lambda s: Sym(s.name, s.whole))
    return replace(made, form=_without_units(bare), bare=True)


def _without_units(form: Form) -> Form:
    from dataclasses import fields

    if isinstance(form, forms.Num):
        return forms.num(form.number)
    if not form.parts:
        return form
    changed: dict[str, object] = {}
    for f in fields(form):
        value = getattr(form, f.name)
        if isinstance(value, Form):
            changed[f.name] = _without_units(value)
        elif isinstance(value, tuple):
            changed[f.name] = tuple(_without_units(v) for v in value)
    return replace(form, **changed)


# -- writing ----------------------------------------------------------------------------------------


def written(expr: Expr) -> Form:
    """An expression as a form in which a product of square roots is one root.

    >>> from symcomm.printing import plain
    >>> from symcomm.notation import amount
    >>> import sympy as sp
    >>> plain(written(2 * sp.sqrt(amount("s") * amount("o") / amount("w"))))
    '2·√(o·s/w)'
    """
    import sympy as sp

    if expr.is_Add:
        # Terms with a minus sign come last, so that no sum starts with one where it need not.
        parts = sorted(expr.args, key=lambda t: (t.could_extract_minus_sign(), t.is_number, str(t)))
        return forms.Total(tuple(written(t) for t in parts))
    if isinstance(expr, (sp.Max, sp.Min, sp.ceiling, sp.floor)):
        parts_ = tuple(written(a) for a in expr.args)
        if isinstance(expr, sp.Max):
            return forms.Largest(parts_)
        if isinstance(expr, sp.Min):
            return forms.Smallest(parts_)
        return forms.Ceiling(parts_[0]) if isinstance(expr, sp.ceiling) else forms.Floor(parts_[0])
    outside: list[Expr] = []
    inside: list[Expr] = []
    for factor in sp.Mul.make_args(expr):
        base, exponent = factor.as_base_exp()
        if base.is_Rational or not (exponent.is_Rational and exponent.q == 2):
            outside.append(factor)
            continue
        sign = 1 if exponent > 0 else -1
        outside.append(base ** ((exponent.p - sign) // 2))
        inside.append(base**sign)
    if not inside:
        if expr.is_Mul:
            return _fraction(expr)
        return forms.from_expr(expr)
    root = forms.Root(_fraction(sp.Mul(*inside)))
    rest = sp.Mul(*outside)
    return root if rest == 1 else forms.negative(root) if rest == -1 else forms.product(_fraction(rest), root)


def _fraction(expr: Expr) -> Form:
    """A product with its sums written as ``written`` writes them."""
    import sympy as sp

    top, bottom = sp.fraction(expr)
    if bottom != 1:
        if top.could_extract_minus_sign() and not top.is_Add:
            return forms.negative(forms.Ratio(_fraction(-top), _fraction(bottom)))
        return forms.Ratio(_fraction(top), _fraction(bottom))
    if not top.is_Mul:
        return written(top) if top.is_Add else forms.from_expr(top)
    sums = [f for f in top.args if f.is_Add]
    rest = sp.Mul(*(f for f in top.args if not f.is_Add))
    head = [] if rest == 1 else [forms.from_expr(rest)]
    return forms.product(*head, *(written(s) for s in sums))


def neat(expr: Expr) -> Expr:
    """Common factors outside the sums, and each sum with a positive symbol in it.

    >>> from symcomm.notation import symbol
    >>> t, p = symbol("t"), symbol("p")
    >>> neat(t - t * p), neat(t * p - t)
    (-t*(p - 1), t*(p - 1))
    """
    import sympy as sp

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


# -- terms and signs --------------------------------------------------------------------------------

Terms = tuple[tuple["Expr", "Expr"], ...]  # (exponent, coefficient), exponents growing


def terms(expr: Expr, x: Symbol) -> Terms | None:
    """The expression as a sum of powers of ``x``, exponents growing; None where it is none or they cannot be sorted.

    >>> from symcomm.notation import amount
    >>> x, o = amount("x"), amount("o")
    >>> terms(o * x + 3 / x, x)
    ((-1, 3), (1, o))
    """
    import sympy as sp

    if expr.has(sp.Max, sp.Min, sp.ceiling, sp.floor):
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


def sign(expr: Expr) -> int | None:
    """The sign of an expression under the assumptions of its symbols: 1, 0 or -1, or None where they do not tell.

    A value that may be zero but never negative counts as 1.

    >>> from symcomm.notation import symbol
    >>> sign(symbol("p") - 1), sign(symbol("p") - 2)
    (1, None)
    """
    if expr.is_zero:
        return 0
    if expr.is_nonnegative:
        return 1
    if expr.is_nonpositive:
        return -1
    return None


def at_least(expr: Expr) -> bool:
    """Whether an expression is above zero for sure, not only never below."""
    return bool(expr.is_positive or expr.is_negative)


@dataclass(frozen=True)
class Course:
    """How a sum of powers runs for positive ``x``, by Descartes' rule of signs.

    ``kind`` is ``falls``, ``rises``, ``valley`` (falls, then rises), ``hill``, ``flat`` or ``unknown``; ``why`` names
    the coefficient whose sign is not known, or says that the signs change more than once.
    """

    kind: str
    why: str = ""
    signs: tuple[int, ...] = ()
    sure: bool = True


def course(slope: Terms) -> Course:
    """How a function runs whose slope has these terms."""
    from symcomm.printing import plain

    signs: list[int] = []
    sure = True
    for _, coefficient in slope:
        way = sign(coefficient)
        if way is None:
            return Course("unknown", f"the sign of {plain(written(coefficient))} is not known")
        if way:
            signs.append(way)
            sure = sure and at_least(coefficient)
    changes = sum(a != b for a, b in pairwise(signs))
    if not signs:
        return Course("flat")
    if not changes:
        return Course("rises" if signs[0] > 0 else "falls", "", tuple(signs), sure)
    if changes == 1:
        return Course("valley" if signs[0] < 0 else "hill", "", tuple(signs), sure)
    return Course("unknown", f"the signs of its slope's terms change {changes} times", tuple(signs), sure)


def root(slope: Terms) -> tuple[Expr, Expr, Expr] | None:
    """The one positive root of a slope with one change of sign, as ``inside ** (1 / degree)``: all three.

    None where there is no closed form.
    """
    import sympy as sp

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
