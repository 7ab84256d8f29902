"""A cost as a function of one name: its terms, their signs, and how its pieces are written with their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from symcomm import form as forms
from symcomm.accounting import Accounting
from symcomm.derivation import Derivation, Relations, Step, exact, put
from symcomm.errors import DerivationError, ValuesError, nearest
from symcomm.form import Form, Sym
from symcomm.graph.drafts import size_form
from symcomm.notation import Notation, amount
from symcomm.optimum.unit_repair import with_unit
from symcomm.text.formula import parse_answer
from symcomm.units import ONE, Unit

if TYPE_CHECKING:
    from sympy import Expr, Symbol


@dataclass(frozen=True)
class Cost:
    """A form as a function of the name ``over``, which is treated as a real, positive number.

    ``bare`` is true where units cannot be followed through the algebra; the cost is then a plain number, counted in
    ``unit``. ``units`` are those of the names, as they were said.
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
    units: Mapping[str, Unit] = field(default_factory=dict)

    @property
    def x(self) -> Symbol:
        """The variable."""
        return amount(self.over)

    @cached_property
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
        """The unit that steps with the variable's value have."""
        return self.syms[self.over].unit

    def number(self, value: object, name: str, of: str) -> Fraction:
        """An exact number for a name of the cost; raises ``ValuesError`` where it is given in another unit."""
        return exact(value, name, self.units.get(of, ONE))

    @property
    def missing(self) -> tuple[str, ...]:
        """The names, besides the variable, without a number."""
        return tuple(n for n in forms.names(self.form) if n != self.over and n not in self.given)

    @cached_property
    def numbers(self) -> Expr:
        """The cost with the given numbers: a function of the variable alone, where no name is missing."""
        return _defined(self.expr.subs(put(self.given, self.over)), "with these numbers")

    def write(self, expr: Expr, unit: Unit) -> Form:
        """An expression as a form in a unit, square roots gathered and units put back (not where the cost is bare)."""
        syms = self.syms
        form = forms.substitute(written(expr), lambda s: replace(s, unit=syms[s.name].unit) if s.name in syms else s)
        return form if self.bare else with_unit(form, unit)

    def without_units(self) -> Cost:
        """The same cost as a plain number."""
        bare = forms.substitute(self.form, lambda s: Sym(s.name, s.whole))
        return replace(self, form=_without_units(bare), bare=True)

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


def read(cost: Derivation | Form | Expr | str, over: str, given: Mapping[str, object] | None, title: str = "") -> Cost:
    """A cost from a derivation, a form, a SymPy expression or a formula in plain text or LaTeX.

    In text, ``over`` and the given names are known names. Raises ``ValuesError`` where it does not depend on one of
    them, or a given number is not positive; ``FormulaError`` for a text that is no formula.

    >>> read("n o + s/(n w)", "n", None).expr
    n*o + s/(n*w)
    """
    if isinstance(cost, str):
        answer = parse_answer(cost, None, {over, *(given or ())})
        cost = forms.substitute(size_form(answer), lambda s: Sym(s.name, False))
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
    _bounded(form)
    units = units_of(form)
    for name, value in (given or {}).items():
        known[name] = exact(value, name, units.get(name, ONE))
        if known[name] <= 0:
            raise ValuesError(f"{name} = {known[name]}: costs are functions of positive numbers")
    known.pop(over, None)
    names = forms.names(form)
    if over not in names:
        raise ValuesError(f"the cost does not depend on '{over[:60]}'", hint=nearest(over, [*names]))
    unused = next((n for n in given or () if n != over and n not in names), None)
    if unused is not None:
        problem = f"'{unused[:60]}' is given, but the cost does not depend on it"
        raise ValuesError(problem, hint=nearest(unused, [*names]))
    form = forms.substitute(form, lambda s: Sym(s.name, False, s.unit) if s.name == over else s)
    made = Cost(title or "Cost", form, over, unit, known, units=units, **more)  # type: ignore[arg-type]
    _defined(made.expr, f"for any {over}")
    try:
        # The algebra takes terms apart and adds them again: units must survive that.
        made.write(made.expr.expand(), unit)
    except DerivationError:
        return made.without_units()
    return made


_MOST_CHOICES = 12  # SymPy compares all pairs of a maximum
_LARGEST_EXPANDED = 60  # the power of a sum is multiplied out


def _bounded(form: Form) -> None:
    """Refuses what would take too long."""
    for piece in forms.walk(form):
        if isinstance(piece, (forms.Largest, forms.Smallest)) and len(piece.choices) > _MOST_CHOICES:
            raise ValuesError(f"a cost with the largest of {len(piece.choices)} terms: at most {_MOST_CHOICES}")
        if isinstance(piece, forms.Power) and isinstance(piece.exponent, forms.Num):
            plain = isinstance(piece.base, (Sym, forms.Num))
            if not plain and abs(piece.exponent.number) > _LARGEST_EXPANDED:
                raise ValuesError(
                    f"a cost with the power {piece.exponent.number} of a sum or product",
                    hint=f"such powers go up to {_LARGEST_EXPANDED}",
                )


def _defined(expr: Expr, when: str) -> Expr:
    import sympy as sp

    if expr.has(sp.nan, sp.zoo):
        raise ValuesError(f"the cost is not defined {when}: a division by zero")
    return expr


def units_of(form: Form) -> dict[str, Unit]:
    """The unit of each name that has one."""
    return {piece.name: piece.unit for piece in forms.walk(form) if isinstance(piece, Sym) and piece.unit != ONE}


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
    factors = [f.as_base_exp() for f in sp.Mul.make_args(expr)]
    # A root of a number stays alone (2√2), but goes under the root of a symbol that is there anyway: √(6o).
    with_symbols = any(not b.is_Rational and e.is_Rational and e.q == 2 for b, e in factors)
    for base, exponent in factors:
        factor = base**exponent
        if (base.is_Rational and not with_symbols) or not (exponent.is_Rational and exponent.q == 2):
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
