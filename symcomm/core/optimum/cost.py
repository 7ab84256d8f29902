"""A cost as a function of one name: its terms, their signs, and how its pieces are written with their units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.derivation import Condition, Derivation, Reason, Relations, Step, exact, put
from symcomm.core.errors import DerivationError, SymcommError, ValuesError, nearest
from symcomm.core.form import Form, Sym
from symcomm.core.libraries import Expr, Symbol, sp
from symcomm.core.notation import Notation, amount
from symcomm.core.optimum.dimension import counted, times, with_units, worth
from symcomm.core.printing import plain
from symcomm.core.records import dataclass
from symcomm.core.text.formula import read_form
from symcomm.core.units import ONE, Quantity, Unit


@dataclass(frozen=True)
class Cost:
    """A form as a function of the name ``over``, which is treated as a real, positive number."""

    title: str
    form: Form
    over: str
    unit: Unit
    given: Mapping[str, Fraction]
    accounting: Accounting = field(default_factory=Accounting)
    touched: tuple[str, ...] = ()
    relations: Relations = field(default_factory=Relations)
    notation: Notation = field(default_factory=Notation)
    counts: bool = False  # the name is a number of things, of which there is at least one
    where: tuple[Condition, ...] = ()  # for the signs to be as they were taken
    said: str = ""  # a sentence about the form
    holds: tuple[Condition, ...] = ()  # for the cost itself
    checks: tuple[Callable[[Mapping[str, Fraction]], None], ...] = ()  # these refuse numbers

    @property
    def x(self) -> Symbol:
        """The variable."""
        return amount(self.over)

    @cached_property
    def expr(self) -> Expr:
        """The worth of the form, its units as symbols."""
        when = "with these numbers" if self.said else f"for any {self.over}"
        return _defined(forms.value(counted(self.form)), when)

    @cached_property
    def units(self) -> dict[str, Unit]:
        """The unit of each name that has one."""
        return units_of(self.form)

    @property
    def x_unit(self) -> Unit:
        """The unit of the variable."""
        return self.units.get(self.over, ONE)

    def number(self, value: object, name: str, of: str) -> Fraction:
        """An exact number for a name of the cost; raises ``ValuesError`` where it is given in another unit."""
        return exact(value, name, self.units.get(of, ONE))

    @property
    def missing(self) -> tuple[str, ...]:
        """The names, other than the variable, without a number."""
        return tuple(n for n in forms.names(self.form) if n != self.over and n not in self.given)

    @cached_property
    def numbers(self) -> Expr:
        """The cost with the given numbers, without units: of the variable alone, where no name is missing."""
        return _defined(worth(self.expr.subs(put(self.given, self.over))), "with these numbers")

    def allows(self, number: int) -> bool:
        """Whether the cost can have a number for its variable: ranks that cut no head in two, what it holds for."""
        known = self.relations.complete({**self.given, self.over: Fraction(number)})
        try:
            for check in self.checks:
                check(known)
        except SymcommError:
            return False
        return all(condition.holds(known) for condition in self.holds if {*condition.names} <= known.keys())

    def write(self, expr: Expr) -> Form:
        """An expression as a form, square roots gathered and units put back."""
        return with_units(written(expr), self.units)

    def derivation(self, title: str, steps: Sequence[Step], **more: object) -> Derivation:
        """The steps as a derivation under the cost's accounting."""
        return Derivation(
            title, self.accounting, tuple(steps), self.touched, self.relations, given=tuple(self.given.items()),
            notation=self.notation, where=(*self.where, *self.holds), checks=self.checks, **more,  # type: ignore[arg-type]
        )  # fmt: skip

    def free(self, name: str, *taken: str) -> str:
        """A name for a step that no symbol has."""
        names = forms.names(self.form)
        while name in names or name in taken:
            name += "'"
        return name


Formula = Derivation | Form | str  # or a SymPy expression


def derived(
    cost: Formula | Expr, given: Mapping[str, object] | None = None, title: str = "", over: str = ""
) -> Derivation:
    """A derivation of a cost, whatever a person has at hand: a derivation, a form, an expression, or text.

    In a text ``over`` and the given names are known names, and a symbol has the unit of the number that is given for it
    (also that of the variable, whose number is not used). Raises ``ValuesError`` where amounts of different units are
    added, ``FormulaError`` for a text that is no formula.

    >>> str(derived("s/w + o", {"s": "8 GB", "w": "1 GB/s", "o": "1 ms"}).unit)
    's'
    """
    if isinstance(cost, Derivation):
        return replace(cost, title=title) if title else cost
    if isinstance(cost, str):
        units = {name: _said_unit(value) for name, value in (given or {}).items()}
        cost = forms.substitute(
            read_form(cost, None, {over, *units} - {""}),
            lambda s: Sym(s.name, False, units.get(s.name, ONE)),
        )
    form = cost if isinstance(cost, Form) else forms.from_expr(cost)
    _bounded(form)
    try:
        unit = forms.unit_of(form, {})
    except DerivationError as error:
        raise ValuesError(
            f"the cost makes no sense: {error.message}", hint="give each number its unit, or none of them one"
        ) from None
    said = Step("f", form, unit, Reason("given", "As it is given."))
    while said.name in forms.names(form):
        said = replace(said, name=said.name + "'")
    return Derivation(title or _title(form), Accounting(), (said,))


def _said_unit(value: object) -> Unit:
    unit = Quantity.parse(value).unit if isinstance(value, str) else value.unit if isinstance(value, Quantity) else ONE
    return ONE if unit.is_count else unit


def _title(form: Form) -> str:
    text = plain(form)
    return text if len(text) <= 60 else "Cost"


def closed(cost: Derivation) -> Form:
    """The answer with the steps put in; a number has the unit that its step says of what it counts."""
    made: dict[str, Form] = {}
    units: dict[str, Unit] = {}
    told = {name: unit for step in cost.steps for name, unit in units_of(step.form).items()}

    def in_symbols(step: Step) -> Form:
        form = step.form
        if forms.unit_of(form, units) != step.unit:  # what collects terms may leave out what the terms said
            form = forms.substitute(form, lambda s: replace(s, unit=told.get(s.name, s.unit)))
        missing = step.unit / forms.unit_of(form, units)
        return times(forms.substitute(form, lambda s: made.get(s.name, s)), missing)

    for step in cost.steps:
        if step.relation == ":=":
            made[step.name], units[step.name] = in_symbols(step), step.unit
    try:
        return in_symbols(cost.answer)
    except DerivationError:  # terms over one denominator, where a byte of a number is no more than 1
        return made[cost.answer.name]


def read(cost: Formula | Expr, over: str, given: Mapping[str, object] | None, title: str = "") -> Cost:
    """A cost as a function of one name, with numbers for others.

    Raises ``ValuesError`` where it does not depend on ``over``, or a given number is not positive, and the errors of
    ``derived``.

    >>> read("n o + s/(n w)", "n", None).expr
    n*o + s/(n*w)
    """
    made = derived(cost, given, title if isinstance(cost, Derivation) else title or "Cost", over)
    form = closed(made)
    _bounded(form)
    units = units_of(form)
    known = dict(made.given)
    for name, value in (given or {}).items():
        known[name] = exact(value, name, units.get(name, ONE))
        if known[name] <= 0:
            raise ValuesError(f"{name} = {known[name]}: costs are functions of positive numbers")
    known.pop(over, None)
    names = forms.names(form)
    if over not in names:
        raise ValuesError(f"the cost does not depend on '{over[:60]}'", hint=nearest(over, [*names]))
    counts = any(isinstance(piece, Sym) and piece.name == over and piece.whole for piece in forms.walk(form))
    used(given, over, names)
    form = forms.substitute(form, lambda s: Sym(s.name, False, s.unit) if s.name == over else s)
    return Cost(
        made.title, form, over, made.unit, known, made.accounting, made.touched, made.relations, made.notation, counts,
        holds=made.where, checks=made.checks,
    )  # fmt: skip


def used(given: Mapping[str, object] | None, over: str, names: Iterable[str]) -> None:
    """Raises ``ValuesError`` for a given name that the cost has not."""
    names = [*names]
    unused = next((n for n in given or () if n != over and n not in names), None)
    if unused is not None:
        problem = f"'{unused[:60]}' is given, but the cost does not depend on it"
        raise ValuesError(problem, hint=nearest(unused, names))


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
    if expr.has(sp.nan, sp.zoo):
        raise ValuesError(f"the cost is not defined {when}: a division by zero")
    return expr


def units_of(form: Form) -> dict[str, Unit]:
    """The unit of each name that has one."""
    return {piece.name: piece.unit for piece in forms.walk(form) if isinstance(piece, Sym) and piece.unit != ONE}


# -- writing ----------------------------------------------------------------------------------------


def written(expr: Expr) -> Form:
    """An expression as a form in which a product of square roots is one root.

    >>> from symcomm.core.printing import plain
    >>> from symcomm.core.notation import amount
    >>> import sympy as sp
    >>> plain(written(2 * sp.sqrt(amount("s") * amount("o") / amount("w"))))
    '2·√(o·s/w)'
    """
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
