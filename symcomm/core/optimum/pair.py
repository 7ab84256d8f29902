"""Two costs in one variable: their difference, its sign, its polynomial, and how both are written with units."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting, clashes
from symcomm.core.derivation import Derivation, Reason, Relations, Step, Witness, put, worked_out
from symcomm.core.errors import AccountingError, DerivationError, IrrationalError, ValuesError, nearest
from symcomm.core.form import Form, Sym, Total, negative
from symcomm.core.libraries import Expr, Symbol, sp
from symcomm.core.notation import Notation, amount, symbol
from symcomm.core.optimum.cost import closed, units_of
from symcomm.core.optimum.dimension import counted, in_unit, with_units, worth
from symcomm.core.optimum.equality import coefficients, meets, rises, sure_root
from symcomm.core.optimum.roots import sign_of
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Unit


def comparable(a: Derivation, b: Derivation, compared: tuple[str, ...]) -> Accounting:
    """The accounting of two costs that may be compared; raises ``AccountingError`` where they may not."""
    for name, (mine, theirs) in clashes(a.accounting, a.touched, b.accounting, b.touched).items():
        if name in a.touched and name in b.touched and name not in compared:
            raise AccountingError(
                f"'{a.title}' is counted under {name}: {mine}, but '{b.title}' under {name}: {theirs}",
                hint=f"derive both under one accounting, or compare them over it: compared=['{name}']",
            )
    if a.unit != b.unit:
        raise AccountingError(f"'{a.title}' is in {a.unit}, but '{b.title}' is in {b.unit}")
    return a.accounting


def differences(a: Derivation, b: Derivation) -> dict[str, str]:
    """The conventions in which two costs that are compared differ, each with a sentence that says both."""
    found = clashes(a.accounting, a.touched, b.accounting, b.touched)
    return {f: f"Compared: {f} {one} with {two}." for f, (one, two) in found.items()}


@dataclass(frozen=True)
class Pair:
    """Two costs in one variable."""

    a: Derivation
    b: Derivation
    over: str
    variable: Symbol
    units: dict[str, Unit]
    given: dict[str, Fraction]
    relations: Relations
    first: Expr  # the two costs, their units as symbols
    second: Expr

    @classmethod
    def of(cls, a: Derivation, b: Derivation, over: str, real: bool = False) -> Pair:
        relations = Relations(tuple((dict(a.relations.equations) | dict(b.relations.equations)).items()))
        one, two = (closed(d) for d in (a, b))
        syms = [piece for form in (one, two) for piece in forms.walk(form) if isinstance(piece, Sym)]
        if all(s.name != over for s in syms):
            near = nearest(over, list(dict.fromkeys(s.name for s in syms)))
            raise ValuesError(f"neither cost depends on '{over[:40]}'", hint=near)
        counts = {
            s.name for s in syms if s.whole and not (real and s.name == over)
        }  # a number of things in one is one in the other, too
        units = {**units_of(one), **units_of(two)}
        one, two = (forms.substitute(f, lambda s: Sym(s.name, s.name in counts, s.unit)) for f in (one, two))
        variable = symbol(over) if over in counts else amount(over)
        given = dict(a.given)
        for name, value in b.given:
            if given.setdefault(name, value) != value and name != over:
                raise ValuesError(f"{name} is {given[name]} in '{a.title}', but {value} in '{b.title}'")
        first, second = (forms.value(counted(form)) for form in (one, two))
        return cls(a, b, over, variable, units, given, relations, first, second)

    @property
    def titles(self) -> tuple[str, str]:
        """The titles of the two; told apart where their titles are equal."""
        one, two = (t[:1].lower() + t[1:] if t[1:2].islower() else t for t in (self.a.title, self.b.title))
        return (one, two) if one != two else (f"{one} (first)", f"{two} (second)")

    @property
    def whole(self) -> bool:
        """Whether the variable is a whole number."""
        return bool(self.variable.is_integer)

    @property
    def difference(self) -> Expr:
        """The first cost less the second."""
        return self.first - self.second

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols of both."""
        return tuple(dict.fromkeys(s.name for d in (self.a, self.b) for s in _ordered(d.expr)))

    @property
    def notation(self) -> Notation:
        """The names of both."""
        one, two = self.a.notation, self.b.notation
        return Notation({**two.latex, **one.latex}, {**two.meanings, **one.meanings})

    def free(self, name: str) -> str:
        """A step's name that is no symbol."""
        while name in self.names:
            name += "'"
        return name

    def written(self, expr: Expr) -> Form:
        """An expression as a form with its units."""
        return with_units(forms.from_expr(expr), self.units)

    def shown(self, cost: Derivation, expr: Expr) -> Form:
        """A cost in symbols alone: as it is written, where no step is named in it; its value otherwise."""
        return closed(cost) if cost.answer_form is cost.answer.form else self.written(expr)

    def first_steps(self) -> list[Step]:
        """Both costs, and their difference."""
        x, y, d = (self.free(name) for name in ("X_1", "X_2", "X_diff"))
        one, two, unit = self.shown(self.a, self.first), self.shown(self.b, self.second), self.a.unit
        less = Total((Sym(x), negative(Sym(y))))
        return [
            Step(x, one, unit, Reason("first cost", f"{self.titles[0]}.", witness=self.a.again)),
            Step(y, two, unit, Reason("second cost", f"{self.titles[1]}.", witness=self.b.again)),
            Step(d, less, unit, Reason("difference", "Both are equal where this is zero.",
                                       witness=partial(worked_out, less))),
        ]  # fmt: skip

    def sign(self, given: dict[str, Fraction]) -> Callable[[Fraction], int]:
        """The sign of the difference at a value of the variable, exactly."""
        one, two = forms.from_expr(self.a.expr), forms.from_expr(self.b.expr)

        def at(x: Fraction) -> int:
            values = self.relations.complete({**given, self.over: x})
            try:
                gap = forms.evaluate(one, values) - forms.evaluate(two, values)
            except IrrationalError:
                return sign_of(worth(self.difference).xreplace(put(values, self.over)), self.variable, x)
            return (gap > 0) - (gap < 0)

        return at

    def numbers(self, given: dict[str, Fraction]) -> Expr:
        """The difference with numbers put in."""
        return forms.settled(worth(self.difference).xreplace(put(given)))

    def solution(self) -> Expr | None:
        """The positive solution as an expression, where it has one form for all values."""
        root = sure_root(self.difference, self.variable)
        root = root and _readable(root)
        return None if root is None or root.is_nonpositive else root

    def solved(self, root: Expr) -> list[Step]:
        """The steps that name the solution."""
        found = coefficients(self.difference, self.variable)  # of its numerator, which is short
        powers = [c * root**power for power, c in enumerate(reversed(found or ()))]
        left = sp.Add(*powers) if found else self.difference.subs(self.variable, root)
        if sp.cancel(sp.together(sp.expand(left))) != 0:
            raise DerivationError(f"{root} does not make {self.titles[0]} and {self.titles[1]} equal")
        text = "Set the difference to zero and solve for it."
        unit, name = self.units.get(self.over, ONE), self.free(f"{self.over}_cross")
        try:
            form = self.written(root)
            forms.unit_of(form, {})
        except DerivationError:  # the unit of a number stands under a root by itself
            form = in_unit(forms.from_expr(worth(root)), unit)
        return [Step(name, form, unit, Reason("solve", text, witness=self.meet(name)))]

    def meet(self, name: str) -> Witness:
        """Whether the costs are equal at what a step says, or change places within a hair of it."""
        return partial(meets, forms.from_expr(self.a.expr - self.b.expr), self.over, self.whole, name)

    def sides(self, root: Expr) -> str:
        """The lesser cost on each side of a symbolic solution."""
        way, (first, second) = rises(self.difference, self.variable, {}), self.titles
        if way is not None:
            below, above = (first, second) if way else (second, first)
            return f"Below the crossover {below} is less, above it {above}."
        return (
            f"At a positive crossover the costs change places; without one, either {first} or {second} is less for "
            f"every {self.over}. The other numbers decide which one."
        )


def _readable(root: Expr) -> Expr:
    """A fraction whose parts are positive where all its symbols are large: minus over minus is taken away."""
    top, bottom = sp.fraction(root)
    point = {s: 997 + 2 * i for i, s in enumerate(_ordered(root))}
    if top.is_positive or not bottom.subs(point).is_negative:
        return root
    # The minus goes into a sum, so that (1 - k) / -3 becomes (k - 1) / 3.
    factors = list(sp.Mul.make_args(top))
    i = next((i for i, f in enumerate(factors) if f.is_Add), 0)
    factors[i] = -factors[i]
    return sp.Mul(*factors) / sp.Add(*(-t for t in sp.Add.make_args(sp.expand(bottom))))


def _ordered(expr: Expr) -> list[Symbol]:
    return sorted(expr.free_symbols, key=lambda s: str(s.name))
