"""A derivation is a value: checked steps whose last expression is the answer.

It cannot be built wrong: every name is defined before it is used, every ``=`` is an identity that was proved, every
unit is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from symcomm import form as forms
from symcomm.accounting import Accounting, Convention
from symcomm.collected import Collected, collect
from symcomm.errors import AccountingError, DerivationError, IrrationalError, Span, ValuesError, nearest
from symcomm.form import Form
from symcomm.identity import UndecidedError, identical
from symcomm.irrational import Irrational
from symcomm.notation import Notation
from symcomm.units import ONE, Quantity, Unit

if TYPE_CHECKING:
    from sympy import Expr

Relation = Literal[":=", "=", "≈"]


# What a step must be worth at some numbers, by a brute-force run; or whether such a run bears it out.
Witness = Callable[["Numbers"], "Fraction | int | bool"]


@dataclass(frozen=True)
class Reason:
    """Why a step holds: the rule's short name, one sentence, and the table cell it comes from, if any.

    The ``witness`` of a rule knows what the step is worth without its formula; ``check(deep=True)`` asks it.
    """

    rule: str
    text: str
    source: Span | None = None
    witness: Witness | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return Reason, (self.rule, self.text, self.source)  # what a witness runs stays where it was made


@dataclass(frozen=True)
class Step:
    """One line: ``name relation form`` in a unit, with its reason.

    ``:=`` a rule says so and defines the name; ``=`` algebra, checked; ``≈`` holds under ``condition`` only and
    never enters an exact answer.
    """

    name: str
    form: Form
    unit: Unit
    reason: Reason
    relation: Relation = ":="
    condition: str = ""


Comparison = Literal["<=", ">=", "="]
RELATIONS: tuple[Comparison, ...] = ("<=", ">=", "=")


@dataclass(frozen=True)
class Condition:
    """What has to hold of the symbols for a closed form to be right: two forms, and ``<=``, ``>=`` or ``=`` between.

    >>> print(Condition(forms.Sym("m"), ">=", forms.product(forms.num(2), forms.Sym("p"))))
    m >= 2·p
    """

    left: Form
    relation: Comparison
    right: Form

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols in it."""
        return forms.names(forms.Total((self.left, self.right)))

    def holds(self, values: Mapping[str, Fraction]) -> bool:
        """Whether it holds for numbers; all names in it need one."""
        a, b = forms.evaluate(self.left, values), forms.evaluate(self.right, values)
        return a == b or (a < b if self.relation == "<=" else a > b and self.relation == ">=")

    def __str__(self) -> str:
        from symcomm.printing import plain

        return f"{plain(self.left)} {self.relation} {plain(self.right)}"


@dataclass(frozen=True)
class Exhibit:
    """A small table beside the steps, such as the list of collectives; cells are text or forms."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Form | Quantity, ...], ...]


@dataclass(frozen=True)
class Relations:
    """Equations that hold between symbols, such as ``D = n_H H``: each eliminates the symbol on its left.

    >>> str(Relations((("D", forms.product(forms.Sym("n_H"), forms.Sym("H"))),)).expand(forms.value(forms.Sym("D"))))
    'H*n_H'
    """

    equations: tuple[tuple[str, Form], ...] = ()

    def expand(self, expr: Expr) -> Expr:
        """The expression without the eliminated symbols."""
        from symcomm.notation import symbol

        for name, right in reversed(self.equations):
            if expr.has(symbol(name)):
                expr = expr.xreplace({symbol(name): forms.value(right)})
        return expr

    def gather(self, expr: Expr) -> Expr:
        """The expression with a whole right-hand side written as its symbol: ``n_H H`` becomes ``D``."""
        import sympy as sp

        from symcomm.notation import symbol

        def one(term: Expr, left: Expr, right: dict[Expr, Expr], scale: Expr) -> Expr:
            coefficient, rest = term.as_coeff_Mul()
            powers = dict(rest.as_powers_dict())
            times = min((powers.get(s, 0) // p for s, p in right.items()), default=0)
            if times < 1:
                return term
            for s, p in right.items():
                powers[s] -= p * times
            powers[left] = powers.get(left, 0) + times
            return coefficient / scale**times * sp.Mul(*(s**p for s, p in powers.items()))

        for name, right_form in self.equations:
            scale, monomial = forms.value(right_form).as_coeff_Mul()
            right = dict(monomial.as_powers_dict())
            if len(right) < 2 or not all(s.is_Symbol and p.is_Integer and p > 0 for s, p in right.items()):
                continue
            left = symbol(name)
            if all(expr.has(s) for s in right):
                expr = sp.Add(*(one(t, left, right, scale) for t in sp.Add.make_args(sp.expand(expr))))
        return expr

    def complete(self, values: Mapping[str, Fraction]) -> dict[str, Fraction]:
        """The values with what the equations imply; raises ``ValuesError`` where they contradict one another."""
        import sympy as sp

        from symcomm.notation import symbol

        known = dict(values)
        for _ in range(len(self.equations) + 1):
            before = len(known)
            for name, right in self.equations:
                unknown = [n for n in (name, *forms.names(right)) if n not in known]
                if not unknown:
                    given = forms.evaluate(right, known)
                    if given != known[name]:
                        from symcomm.printing.forms import plain

                        numbers = plain(right, {n: known[n] for n in forms.names(right)})
                        raise ValuesError(
                            f"the given numbers break {name} = {plain(right)}: {name} = {known[name]}, "
                            f"but {plain(right)} = {numbers} = {given}",
                            hint=f"change one of {', '.join((name, *forms.names(right)))}",
                        )
                elif unknown == [name]:
                    known[name] = forms.evaluate(right, known)
                elif len(unknown) == 1:
                    x = symbol(unknown[0])
                    equation = forms.value(right, {n: rational(known[n]) for n in forms.names(right) if n in known})
                    solved = sp.solve(equation - rational(known[name]), x) if equation.has(x) else []
                    if equation.has(x) and not solved:  # a size is a whole number
                        from symcomm.printing.forms import plain

                        said = ", ".join(f"{n} = {known[n]}" for n in (name, *forms.names(right)) if n in known)
                        raise ValuesError(f"{said} leaves no whole number for {x} in {name} = {plain(right)}")
                    if len(solved) == 1 and solved[0].is_Rational:
                        known[unknown[0]] = Fraction(int(solved[0].p), int(solved[0].q))
            if len(known) == before:
                return known
        return known


def _irrational(number: Expr, unit: Unit) -> Quantity:
    """A number that exact fractions cannot say: SymPy's exact one, with a fraction within 10^-30 to read it by."""
    import sympy as sp

    if number.is_Rational:  # a floor or a ceiling of a root
        return Quantity(Fraction(int(number.p), int(number.q)), unit)
    if not (number.is_real and number.is_finite):
        raise ValuesError(f"{number} is not a real number")
    from symcomm.printing.forms import plain

    near = sp.Rational(str(sp.N(number, 40)))
    halves = all(p.exp.is_Rational and p.exp.q <= 2 for p in number.atoms(sp.Pow)) and not number.has(sp.log)
    form = forms.from_expr(number)
    text = plain(form) if halves else ""
    text = f"({text})" if isinstance(form, forms.Total) and unit != ONE else text
    return Irrational(Fraction(int(near.p), int(near.q)), unit, form, text if len(text) <= 40 else "")


def rational(number: Fraction) -> Expr:
    """An exact number as SymPy has it."""
    import sympy as sp

    return sp.Rational(number.numerator, number.denominator)


_RUNS, _SEEDS = 3, 40
_TINY = (12, 24, 8, 36, 6, 48, 18, 4, 60, 16, 2, 72)


class Numbers(dict[str, Fraction]):
    """Numbers by name: those that are known, and tiny ones, made when they are asked for, that keep the relations."""

    def __init__(self, known: Mapping[str, Fraction], relations: Relations, seed: int = 0) -> None:
        super().__init__(known)
        self.made = seed
        self.rules = dict(relations.equations)

    def __missing__(self, name: str) -> Fraction:
        for left, right in self.rules.items():  # the rest of a whole that is known: D = n_H H
            if name in forms.names(right) and left in self:
                others = {n: self[n] for n in forms.names(right) if n != name and n in self}
                free = [n for n in forms.names(right) if n not in others]
                unit = forms.evaluate(right, {**others, **dict.fromkeys(free, Fraction(1))})
                self[name] = dict.__getitem__(self, left) / unit
                return self[name]
        if name in self.rules:
            self[name] = forms.evaluate(self.rules[name], {n: self[n] for n in forms.names(self.rules[name])})
        else:
            self[name] = Fraction(_TINY[self.made % len(_TINY)])
            self.made += 1
        return self[name]

    def only(self, names: Iterable[str]) -> Numbers:
        """Numbers that know some names and make up the same ones for others."""
        return Numbers(self.of(names), Relations(tuple(self.rules.items())), self.made)

    def moved(self, name: str, value: Fraction) -> Numbers:
        """The same with another number under a name, and what a relation makes of it."""
        made = self.only(self)
        made[name] = value
        for left, right in self.rules.items():
            if name in forms.names(right):
                made[left] = forms.evaluate(right, made.of(forms.names(right)))
        return made

    def of(self, names: Iterable[str]) -> dict[str, Fraction]:
        """The numbers of some names."""
        return {name: self[name] for name in names}


def worked_out(form: Form, numbers: Numbers) -> Fraction:
    """What a form is worth, to 40 digits where it is irrational."""
    import sympy as sp

    known = numbers.of(forms.names(form))
    try:
        return forms.evaluate(form, known)
    except IrrationalError:
        near = sp.N(forms.value(form, {name: rational(number) for name, number in known.items()}), 40)
        if not near.is_Float:
            raise ValuesError(f"{near} is not a real number") from None
        return Fraction(str(near))


@dataclass(frozen=True)
class Derivation:
    """Checked steps; the last one's expression is the answer.

    ``touched`` names the fields of ``accounting`` that changed this number. ``given`` are values known when it was
    made; ``at`` takes more, and refuses numbers that break ``where`` or one of the ``checks``. ``sizes`` are the
    symbols of the model, which count things, and ``named`` what else was named in the question: they have a meaning
    though the answer may not depend on them. Combining derivations under different accountings raises
    ``AccountingError``.

    >>> from symcomm.form import Sym, product
    >>> step = Step("A", product(Sym("D"), Sym("D")), ONE, Reason("area", "side by side."))
    >>> d = Derivation("area", Accounting(), (step,))
    >>> d.expr, str(d.at(D=3))
    (D**2, '9')
    """

    title: str
    accounting: Accounting
    steps: tuple[Step, ...]
    touched: tuple[str, ...] = ()
    relations: Relations = field(default_factory=Relations)
    exhibits: tuple[Exhibit, ...] = ()
    given: tuple[tuple[str, Fraction], ...] = ()
    notation: Notation = field(default_factory=Notation, compare=False)
    notes: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    sizes: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    named: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    checks: tuple[Callable[[Mapping[str, Fraction]], None], ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.steps:
            raise DerivationError(f"the derivation of {self.title} has no steps")
        self.check()

    # -- what it is worth ----------------------------------------------------------------------

    @cached_property
    def worth(self) -> dict[str, Expr]:
        """The SymPy expression of every defined name, fully expanded into symbols."""
        known: dict[str, Expr] = {}
        for step in self.steps:
            if step.relation == ":=":
                known[step.name] = forms.value(step.form, known)
        return known

    @property
    def answer(self) -> Step:
        """The step whose form is the answer: the last one that is not an approximation."""
        return next(step for step in reversed(self.steps) if step.relation != "≈")

    @cached_property
    def expr(self) -> Expr:
        """The answer as a SymPy expression, in the symbols of its last form."""
        return forms.value(self.answer.form, self.worth)

    @property
    def unit(self) -> Unit:
        """The unit of the answer."""
        return self.answer.unit

    @property
    def conventions(self) -> tuple[Convention, ...]:
        """The conventions that touched this number."""
        return self.accounting.statements(self.touched)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The symbols the answer depends on, without those already given, in the order of its form."""
        answer = self.expr.free_symbols
        have = {name for name, _ in self.given}
        ordered = forms.names(forms.from_expr(self.expr))
        return tuple(n for n in ordered if n not in have and any(s.name == n for s in answer))

    def values(self, /, **values: object) -> dict[str, Fraction]:
        """All known numbers: those given before, these, and what the relations imply."""
        self.check_names(values, slips={*values, *(name for name, _ in self.given)})
        given = {name: self.number(name, value) for name, value in values.items()}
        known = self.relations.complete(dict(self.given) | given)
        if given:
            for name in known if self.sizes else ():
                if known[name].denominator != 1 and name in self.sizes:
                    raise ValuesError(f"{name} is {known[name]}, but a size is a whole number")
            for check in self.checks:
                check(known)
        return known

    def check_names(self, values: Iterable[str], slips: Collection[str] | None = None) -> None:
        """Raises ``ValuesError`` for a value of a name that means nothing here, with near names.

        Where ``slips`` are the names that have values, only what looks like a slip is refused: a name near to one that
        has none. Other names are let be, so that one dictionary of numbers serves several questions.
        """
        for name in values:
            if name not in self._names:
                lacking = sorted(self._names.difference(slips or ()))
                hint = nearest(name, lacking)
                if slips is None or (name not in dict(self.given) and hint.startswith("did you mean")):
                    raise ValuesError(f"{self.title} has no symbol '{name[:60]}'", hint=hint)

    @cached_property
    def _names(self) -> frozenset[str]:
        """All names that a value may be given for."""
        used = {name for step in self.steps for name in forms.names(step.form)} - {step.name for step in self.steps}
        ruled = {n for left, right in self.relations.equations for n in (left, *forms.names(right))}
        ruled |= {name for condition in self.where for name in condition.names}
        return frozenset({*used, *ruled, *self.sizes, *self.named, *self.notation.meanings})

    def number(self, name: str, value: object) -> Fraction:
        """The exact number that a symbol is given; raises ``ValuesError`` for the unit of something else."""
        found = exact(value, name, self.symbol_unit(name))
        said = Quantity.parse(value) if isinstance(value, str) else value
        unit = said.unit if isinstance(said, Quantity) else ONE
        if found < 0:
            raise ValuesError(f"{name} is {found}, but it cannot be negative")
        counts = any(s.name == name and s.is_integer for s in self.expr.free_symbols)
        if counts and not unit.is_count and unit != self.symbol_unit(name):
            raise ValuesError(f"{name} is given in {unit}, but it is a number of things", hint=f"{name}: 8")
        return found

    def symbol_unit(self, name: str) -> Unit:
        """The unit of a symbol, as far as a step says it."""
        return self._units.get(name, ONE)

    @cached_property
    def _units(self) -> dict[str, Unit]:
        pieces = (piece for step in reversed(self.steps) for piece in [*forms.walk(step.form)][::-1])
        return {p.name: p.unit for p in pieces if isinstance(p, forms.Sym) and p.unit != ONE}

    @cached_property
    def _collected(self) -> tuple[Collected, frozenset[str]]:
        """The answer as monomials, and the names in it: what makes it quick to work out again."""
        defined = [(step.name, step.form) for step in self.steps if step.relation == ":="]
        found = collect([*defined, ("=", self.answer.form)], ("=",))
        return found, found.names

    def at(self, /, **values: object) -> Quantity:
        """The exact quantity at given numbers (int, Fraction, or text such as ``"80 GiB"``).

        Raises ``ValuesError`` where a number is missing or the numbers contradict one another.
        """
        known = self.values(**values)
        for condition in self.where:
            if all(name in known for name in condition.names) and not condition.holds(known):
                numbers = ", ".join(f"{name} = {known[name]}" for name in condition.names)
                raise ValuesError(
                    f"{self.title}: the closed form holds where {condition}, and {numbers}",
                    hint="give the numbers when it is derived, not afterwards",
                )
        with suppress(ValuesError):  # what has no number, or no rational one, is told below
            collected, names = self._collected
            if all(known.get(name, 0) > 0 for name in names):  # a zero may stand where others cancel it
                return Quantity(collected.at(known)["="], self.unit)
        result = forms.from_expr(self.expr)
        missing = [name for name in forms.names(result) if name not in known]
        if missing:
            raise ValuesError(
                f"{self.title} needs a value for {', '.join(missing)}", hint=f"for instance {missing[0]}=8"
            )
        try:
            return Quantity(forms.evaluate(result, known), self.unit)
        except IrrationalError:
            for piece in forms.walk(result):  # one irrational power hides another one that is too large
                if isinstance(piece, forms.Power):
                    with suppress(IrrationalError):
                        forms.evaluate(piece, known)
            return _irrational(forms.value(result, {n: rational(known[n]) for n in forms.names(result)}), self.unit)

    # -- checks --------------------------------------------------------------------------------

    def check(self, deep: bool = False) -> None:
        """Raises ``DerivationError`` unless names, identities and units hold; called when it is built.

        ``deep`` has the witness of every rule run at tiny sizes, too (at the given ones, where there are any). A step
        without a witness of its own has to lead to one that has.
        """
        units: dict[str, Unit] = {}
        known: dict[str, Expr] = {}
        free: set[str] = set()
        for step in self.steps:
            found = forms.unit_of(step.form, units)
            free.update(n for n in forms.names(step.form) if n not in known)
            if step.relation == ":=":
                if step.name in units:
                    raise DerivationError(f"{step.name} is defined twice in the derivation of {self.title}")
                if step.name in forms.names(step.form):
                    raise DerivationError(f"{step.name} is defined by itself in the derivation of {self.title}")
                if step.name in free:
                    what = f"{step.name} is a symbol and a step's name"
                    raise DerivationError(f"{what} in the derivation of {self.title}")
                # A product of sizes counts something (elements, operations); what it counts is the step's to say.
                if found != step.unit and not (step.unit / found).is_count:
                    raise DerivationError(f"{step.name} is said to be in {step.unit}, but its form is in {found}")
                known[step.name] = forms.value(step.form, known)
                units[step.name] = step.unit
                continue
            if step.name not in known:
                raise DerivationError(f"{step.name} is used before it is defined in the derivation of {self.title}")
            if step.unit != units[step.name] or found not in (ONE, step.unit):
                raise DerivationError(f"{step.name} changes its unit from {units[step.name]} to {step.unit} ({found})")
            if step.relation == "≈":
                if not step.condition:
                    raise DerivationError(f"{step.name} is approximated without a condition")
            else:
                self._proved(step, known[step.name], forms.value(step.form, known))

        if deep:
            self._witnessed()

    @property
    def unwitnessed(self) -> tuple[Step, ...]:
        """The steps that a rule defines and that no witness sees: neither theirs nor one of a step made of them."""
        seen: set[str] = set()
        for step in reversed(self.steps):
            if step.relation == ":=" and (step.name in seen or step.reason.witness is not None):
                seen |= {step.name, *forms.names(step.form)}
        return tuple(step for step in self.steps if step.relation == ":=" and step.name not in seen)

    def _witnessed(self) -> None:
        alone = [f"{step.name} ({step.reason.rule})" for step in self.unwitnessed]
        if alone:
            raise DerivationError(f"no witness sees {', '.join(alone)} in the derivation of {self.title}")
        runs = 0
        for seed in range(_SEEDS):
            numbers = Numbers(self.values(), self.relations, seed)
            if runs < _RUNS and all(c.holds(numbers.of(c.names)) for c in self.where):
                try:
                    self.run(numbers)
                except ValuesError:  # what is asked for does not exist at these numbers
                    continue
                runs += 1
        if not runs:
            raise DerivationError(f"no tiny numbers were found for the witnesses of the derivation of {self.title}")

    def again(self, numbers: Numbers) -> Fraction:
        """The answer as a witness of what was taken from it: worked out anew, by its own steps and witnesses."""
        free = {name for step in self.steps for name in forms.names(step.form)} - {*self.worth}
        return self.run(numbers.only(free | {name for name, _ in self.given}))

    def run(self, numbers: Numbers) -> Fraction:
        """The answer at some numbers, each step with the consent of its witness.

        Raises ``DerivationError`` for the first one that its witness does not bear out.
        """
        for step in self.steps:
            if step.relation != ":=":
                continue
            numbers[step.name] = found = worked_out(step.form, numbers)
            said = found if step.reason.witness is None else step.reason.witness(numbers)
            if said is False or (said is not True and abs(found - said) * 10**30 > abs(found)):
                names = sorted({s.name for s in self.worth[step.name].free_symbols})
                at = " at " + ", ".join(f"{name} = {numbers[name]}" for name in names) if names else ""
                counted = "no run bears that out" if said is False else f"its witness counts {said}"
                what = f"{step.name} ({step.reason.rule}) is {found}{at}, but {counted}"
                raise DerivationError(f"{what} in the derivation of {self.title}")
        return numbers[self.answer.name]

    def _proved(self, step: Step, left: Expr, right: Expr) -> None:
        """Raises ``DerivationError`` unless a rewrite holds for all values that keep the relations."""
        if left == right:
            return
        try:
            same = identical(self.relations.expand(left), self.relations.expand(right))
        except UndecidedError as undecided:
            what = f"{step.name}: whether {left} is {right} could not be decided"
            raise DerivationError(f"{what} in the derivation of {self.title}") from undecided
        if not same:
            raise DerivationError(f"{step.name}: {left} is not {right} in the derivation of {self.title}")

    # -- combining -----------------------------------------------------------------------------

    def same_accounting(self, other: Derivation) -> Accounting:
        """The accounting of both; raises ``AccountingError`` naming both where they differ in a touched field."""
        for name in dict.fromkeys((*self.touched, *other.touched)):
            mine, theirs = getattr(self.accounting, name), getattr(other.accounting, name)
            if mine != theirs:
                raise AccountingError(
                    f"'{self.title}' is counted under {name}: {mine}, but '{other.title}' under {name}: {theirs}",
                    hint="derive both under one accounting",
                )
        return self.accounting

    def with_given(self, /, **values: object) -> Derivation:
        """The same derivation with more numbers known."""
        return replace(self, given=tuple(self.values(**values).items()))

    # -- shown ---------------------------------------------------------------------------------

    def latex(self) -> str:
        """The steps as one LaTeX ``align*``."""
        from symcomm import printing

        return printing.derivation(self, "latex")

    def markdown(self) -> str:
        """The steps as Markdown with LaTeX maths."""
        from symcomm import printing

        return printing.derivation(self, "markdown")

    def text(self) -> str:
        """The steps as plain text, for a terminal."""
        from symcomm import printing

        return printing.derivation(self, "text")

    def html(self) -> str:
        """The steps as HTML with MathML."""
        from symcomm import printing

        return printing.derivation(self, "html")

    def __str__(self) -> str:
        return self.text()

    def _repr_latex_(self) -> str:
        return self.latex()

    def _repr_markdown_(self) -> str:
        return self.markdown()

    def _repr_html_(self) -> str:
        return self.html()


def exact(value: object, name: str = "a value", unit: Unit = ONE) -> Fraction:
    """An exact number from an int, a Fraction or text with a unit; floats are refused, they are not exact.

    A value in another unit than ``unit`` is refused, such as GB for a bandwidth in B/s; a bare number is taken to be in
    it, and any unit is taken where ``unit`` is not said.

    >>> exact("1.41 GHz"), exact(3), exact("2 ms", "t", Unit.parse("second"))
    (Fraction(1410000000, 1), Fraction(3, 1), Fraction(1, 500))
    """
    if isinstance(value, bool):
        raise ValuesError(f"{name} is {value}: a number is needed")
    if isinstance(value, (int, Fraction)):
        return Fraction(value)
    if isinstance(value, Irrational):
        raise ValuesError(f"{name} is irrational, about {float(value.value):.6g}: an exact number is needed")
    if isinstance(value, (str, Quantity)):
        said = (Quantity.parse(value) if isinstance(value, str) else value).within(unit)
        if ONE not in (said.unit, unit) and said.unit != unit:
            raise ValuesError(f"{name} is given in {said.unit}, but it is in {unit}", hint=f"write it in {unit}")
        return said.value
    if isinstance(value, float):
        raise ValuesError(
            f"{name} is the float {value!r}, which is not exact", hint=f'write "{value!r}" as text or a Fraction'
        )
    raise ValuesError(f"{name} is {type(value).__name__}: a number is needed")


def put(values: Mapping[str, Fraction], without: str = "") -> dict[Expr, Expr]:
    """Numbers to be put into an expression, whichever kind of symbol a name is there; none for ``without``.

    >>> [str(number) for number in put({"n": Fraction(1, 2)}).values()]
    ['1/2', '1/2']
    """
    from symcomm.notation import amount, symbol

    return {s: rational(v) for name, v in values.items() if name != without for s in (symbol(name), amount(name))}
