"""A derivation is a value: checked steps whose last expression is the answer.

It cannot be built wrong: every name is defined before it is used, every ``=`` is an identity that was proved, every
unit is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from fractions import Fraction
from functools import cached_property
from math import ceil
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting, Convention
from symcomm.core.collected import Collected, collect
from symcomm.core.derivation.numbers import Numbers, worked_out
from symcomm.core.derivation.relations import Relations, exact, rational
from symcomm.core.derivation.steps import Condition, Exhibit, Step
from symcomm.core.derivation.writing import written
from symcomm.core.errors import (
    DerivationError,
    IrrationalError,
    LongNumberError,
    SymcommError,
    ValuesError,
    nearest,
    where_given,
)
from symcomm.core.identity import UndecidedError, identical
from symcomm.core.irrational import Irrational
from symcomm.core.libraries import Expr, Symbol, sp
from symcomm.core.notation import Notation, symbol
from symcomm.core.printing.forms import plain
from symcomm.core.real_numbers import number_of
from symcomm.core.records import dataclass, replace
from symcomm.core.units import BYTE, ONE, Quantity, Unit

if TYPE_CHECKING:
    from pandas import DataFrame


_LOOKED_AT = 50_000  # pairs of a name that means nothing and one without a value that are compared for a slip


def _irrational(form: forms.Form, known: Mapping[str, Fraction], unit: Unit) -> Quantity:
    """A number that exact fractions cannot say: SymPy's exact one, with a fraction within 10^-30 to read it by.

    Of one that is too long for SymPy, too, there is the fraction alone.
    """
    try:
        for piece in forms.walk(form):  # one irrational power hides another one that is too long
            if isinstance(piece, forms.Power):
                with suppress(IrrationalError):
                    forms.evaluate(piece, known)
    except LongNumberError:
        near = number_of(form, known)
        if near is None:
            raise
        return Irrational(near, unit)
    number = forms.value(form, {name: rational(known[name]) for name in forms.names(form)})
    if number.is_Rational:  # a floor or a ceiling of a root
        return Quantity(Fraction(int(number.p), int(number.q)), unit)
    if not (number.is_real and number.is_finite):
        raise ValuesError(f"{number} is not a real number")
    near = sp.Rational(str(sp.N(number, 40)))
    halves = all(p.exp.is_Rational and p.exp.q <= 2 for p in number.atoms(sp.Pow)) and not number.has(sp.log)
    exact_form = forms.from_expr(number)
    text = plain(exact_form) if halves else ""
    text = f"({text})" if isinstance(exact_form, forms.Total) and unit != ONE else text
    return Irrational(Fraction(int(near.p), int(near.q)), unit, exact_form, text if len(text) <= 40 else "")


# At how many tiny sizes witnesses run, and how often such sizes are looked for.
_RUNS, _SEEDS = 3, 40
_HOLDS = "This holds where "


class _Checked(tuple[Step, ...]):
    """Steps that hold under some relations, with what each name is worth: a copy of their derivation needs no proof."""

    relations: Relations
    worth: dict[str, Expr]

    @classmethod
    def of(cls, steps: Iterable[Step], relations: Relations, worth: dict[str, Expr]) -> _Checked:
        """Steps as they were found to hold."""
        made = cls(steps)
        made.relations, made.worth = relations, worth
        return made


class Continued(tuple[Step, ...]):
    """Steps that go on from other derivations: what these have proved is not proved again."""

    before: tuple[Derivation, ...]

    @classmethod
    def of(cls, steps: Iterable[Step], before: Iterable[Derivation]) -> Continued:
        """Steps, some of which belong to derivations ``before``."""
        made = cls(steps)
        made.before = tuple(before)
        return made


def unread(steps: Iterable[Step], relations: Relations) -> tuple[Step, ...]:
    """Steps that nobody reads, and that are not proved: what a search evaluates, in a derivation."""
    return _Checked.of(steps, relations, {})


@dataclass(frozen=True)
class Derivation:
    """Checked steps; the last one's expression is the answer.

    ``touched`` names the fields of ``accounting`` that changed this number. ``given`` are values known when it was
    made; ``at`` takes more, and refuses numbers that break ``where`` or one of the ``checks``. ``sizes`` are the
    symbols of the model, which count things, and ``named`` what else was named in the question: they have a meaning
    though the answer may not depend on them. ``lead`` says in a sentence or two what is cut or counted; ``otherwise``
    what is derived in its place at some numbers, such as an axis of one rank. Of a question that needs numbers,
    ``same_at`` says whether others lead to the same steps; None where that is not known. Sizes ``from_zero`` on may be
    none.
    ``results`` are what else belongs beside the answer: the name of a step, or each equation that was asked for and
    its number.
    Combining derivations under different accountings raises ``AccountingError``.

    >>> from symcomm.core.derivation import Reason
    >>> from symcomm.core.form import Sym, product
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
    otherwise: Callable[[Mapping[str, Fraction]], Derivation | None] | None = field(
        default=None, compare=False, repr=False
    )
    same_at: Callable[[Mapping[str, Fraction]], bool] | None = field(default=None, compare=False, repr=False)
    lead: tuple[str, ...] = ()
    from_zero: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    results: tuple[str | tuple[forms.Related, Quantity | forms.Form], ...] = ()
    # The model that was asked, and what checks answers: no part of it, so that no copy has it.
    kept: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.steps:
            raise DerivationError(f"the derivation of {self.title} has no steps")
        notes = (*(n for n in self.notes if not n.startswith(_HOLDS)), *([self._holding] if self._holding else []))
        object.__setattr__(self, "notes", notes)
        self.check()

    @property
    def _holding(self) -> str:
        """A note of the conditions that the given numbers do not decide."""
        known = {name for name, _ in self.given}
        told = [condition.told for condition in self.where if not known.issuperset(condition.names)]
        return f"{_HOLDS}{' and '.join(dict.fromkeys(told))}." if told else ""

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "kept": {}}

    # -- what it is worth ----------------------------------------------------------------------

    @property
    def own_names(self) -> frozenset[str]:
        """The symbols and steps that can be renamed; sizes of the model and options keep their names."""
        found = {step.name for step in self.steps} | {n for step in self.steps for n in forms.names(step.form)}
        return frozenset(found | {n for one in self.where for n in one.names}) - self.sizes - self.named

    @cached_property
    def worth(self) -> dict[str, Expr]:
        """The SymPy expression of every defined name, fully expanded into symbols."""
        if isinstance(self.steps, _Checked):
            return dict(self.steps.worth)
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

    @cached_property
    def _form(self) -> forms.Form:
        """The answer as a form, all of its names worked out."""
        return forms.from_expr(self.expr)

    @property
    def answer_form(self) -> forms.Form:
        """The answer in symbols alone: as it is written, or worked out where it names a step."""
        form = self.answer.form
        return form if {step.name for step in self.steps}.isdisjoint(forms.names(form)) else self._form

    @property
    def unit(self) -> Unit:
        """The unit of the answer."""
        return self.answer.unit

    @property
    def is_laid_out(self) -> bool:
        """Whether a table says what the steps say, so that a page shows that table instead of them."""
        return any(exhibit.laid_out for exhibit in self.exhibits)

    @cached_property
    def conventions(self) -> tuple[Convention, ...]:
        """The conventions that touched this number."""
        return self.accounting.statements(self.touched)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The symbols the answer depends on, without those already given, in the order of its form."""
        answer = {symbol.name for symbol in self.expr.free_symbols}
        have = {name for name, _ in self.given}
        ordered = forms.names(self._form)
        return tuple(n for n in ordered if n in answer and n not in have)

    def values(self, several: Mapping[str, object] | None = None, /, **values: object) -> dict[str, Fraction]:
        """All known numbers: those given before, these, and what the relations imply; as ``at`` takes them."""
        known = self._completed(several or {}, values)
        self._check_numbers(known, {**(several or {}), **values})
        return known

    def _completed(self, several: Mapping[str, object], values: Mapping[str, object]) -> dict[str, Fraction]:
        every, before = {**several, **values}, dict(self.given).keys()
        self.check_names(several.keys() - before, slips=every)
        self.check_names(values.keys() - before)
        return self.relations.complete(dict(self.given) | {n: self.number(n, value) for n, value in every.items()})

    def _check_numbers(self, known: Mapping[str, Fraction], values: Mapping[str, object]) -> None:
        if values:
            for name in known if self.sizes else ():
                if known[name].denominator != 1 and name in self.sizes:
                    raise ValuesError(f"{name} is {known[name]}, but a size is a whole number")
        for check in self.checks:
            check(known)

    def check_names(self, values: Iterable[str], slips: Collection[str] | None = None) -> None:
        """Raises ``ValuesError`` for a value of a name that means nothing here, with near names.

        Where ``slips`` are the names that have values, only what looks like a slip is refused: a name near to one that
        has none. Other names are let be, so that one dictionary of numbers serves several questions.
        """
        unknown = [name for name in values if name not in self.valued_names]
        lacking = sorted(self.valued_names.difference(slips or ())) if unknown else []
        for name in unknown[: 1 + _LOOKED_AT // (1 + len(lacking))]:
            hint = nearest(name, lacking)
            near = hint.startswith("did you mean")
            if slips is None or near:
                said = self.notation.meanings  # a word of what a symbol means, such as stages
                word = next((n for n in lacking if len(name) > 3 and name.lower() in said.get(n, "").split()), "")
                hint = f"{word} is the {said[word]}" if word and not near else hint
                several = "" if near or word else "numbers of several questions go in a mapping: at({...})"
                hint = "; ".join(one for one in (hint, several) if one)
                raise ValuesError(f"{self.title} has no symbol '{name[:60]}'", hint=hint)

    @cached_property
    def valued_names(self) -> frozenset[str]:
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
        counts = name in self._counts
        if counts and found.denominator != 1:
            raise ValuesError(f"{name} is {found}, but it counts things: it must be whole", hint=f"{name}: 8")
        positive = counts or name in self.sizes or (name in self.named and name not in self._units)
        if found == 0 and positive and name not in self.from_zero:
            raise ValuesError(f"{name} is 0, but it counts things: it must be positive")
        other = not unit.is_count and unit != self.symbol_unit(name)
        if other and counts:
            raise ValuesError(f"{name} is given in {unit}, but it is a number of things", hint=f"{name}: 8")
        return found

    def symbol_unit(self, name: str) -> Unit:
        """The unit of a symbol, as far as a step says it."""
        return self._units.get(name, ONE)

    @cached_property
    def _counts(self) -> frozenset[str]:
        """The symbols of the answer that are numbers of things."""
        pieces = (p for c in self.where for side in (c.left, c.right) for p in forms.walk(side))
        amounts = {p.name for p in pieces if isinstance(p, forms.Sym) and not p.whole}  # at least one, but not whole
        return frozenset(s.name for s in self.expr.free_symbols if s.is_integer) - amounts

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

    def at(self, several: Mapping[str, object] | None = None, /, **values: object) -> Quantity:
        """The exact quantity at given numbers (int, Fraction, or text such as ``"80 GiB"``).

        ``several`` are the numbers of several questions: those that mean nothing to this one are let be. Raises
        ``ValuesError`` where a number is missing or the numbers contradict one another.
        """
        every = {**(several or {}), **values}
        known = self._completed(several or {}, values)
        other = self.otherwise(known) if self.otherwise is not None else None
        if other is not None:
            return other.at(every)
        self._check_numbers(known, every)
        self.holds(known)
        with suppress(ValuesError):  # what has no number, or no rational one, is told below
            collected, names = self._collected
            if all(known.get(name, 0) > 0 for name in names):  # a zero may stand where others cancel it
                return Quantity(self.whole(collected.at(known)["="]), self.unit)
        result = self._form
        missing = [name for name in forms.names(result) if name not in known]
        if missing:
            raise ValuesError(f"{self.title} needs a value for {', '.join(missing)}", hint=where_given(missing[0]))
        try:
            return Quantity(self.whole(forms.evaluate(result, known)), self.unit)
        except (IrrationalError, LongNumberError):
            return _irrational(result, known, self.unit)

    @property
    def _mean(self) -> bool:
        """Whether the answer is a mean of the ranks' parts in bytes."""
        return self.unit == BYTE and "shards" in self.touched and self.accounting.shards == "mean_shard"

    def whole(self, value: Fraction, /) -> Fraction:
        """A mean of the ranks' parts in whole bytes, rounded up; any other answer as it is."""
        return whole_bytes(value, self.touched, self.accounting) if self.unit == BYTE else value

    def serves(self, known: Mapping[str, Fraction]) -> bool:
        """Whether numbers are known to lead to the same steps as the ones it was made with; refused ones do not."""
        if self.same_at is None:
            return False
        try:
            complete = self.relations.complete(known)
            self._check_numbers(complete, complete)
            return self.same_at(complete)
        except SymcommError:
            return False

    def holds(self, known: Mapping[str, Fraction]) -> None:
        """Raises ``ValuesError`` where numbers break a condition under which the closed form holds."""
        for condition in self.where:
            if all(name in known for name in condition.names) and not condition.holds(known):
                numbers = ", ".join(f"{name} = {known[name]}" for name in condition.names)
                if condition.refusal:
                    raise ValuesError(f"{condition.refusal}, where {numbers}", hint=condition.remedy)
                raise ValuesError(
                    f"{self.title}: the closed form holds where {condition}, and {numbers}",
                    hint="give the numbers when it is derived, not afterwards",
                )

    def sweep(self, /, **values: object) -> DataFrame:
        """The answer at every combination of numbers, ``k=[2, 4, 8]``: a pandas frame with a row each.

        Raises ``ValuesError`` as ``at`` does, telling the combination.
        """
        from symcomm.core.sweep import sweep

        def known_at(**numbers: object) -> dict[str, Fraction]:
            known = self._completed({}, numbers)
            if self.otherwise is None or self.otherwise(known) is None:
                self._check_numbers(known, numbers)
                self.holds(known)
            return known

        def other(known: Mapping[str, Fraction]) -> Fraction | None:
            found = self.otherwise(known) if self.otherwise is not None else None
            if found is None:
                return self.whole(self._collected[0].at(known)["="]) if self._mean else None
            return found.at({n: v for n, v in known.items() if n in values}).value

        return sweep(self.expr, str(self.unit), values, known_at, other)

    # -- checks --------------------------------------------------------------------------------

    def check(self, deep: bool = False) -> None:
        """Raises ``DerivationError`` unless names, identities and units hold; called when it is built.

        ``deep`` has the witness of every rule run at tiny sizes, too (at the given ones, where there are any). A step
        without a witness of its own has to lead to one that has.
        """
        if not (isinstance(self.steps, _Checked) and self.steps.relations == self.relations):
            object.__setattr__(self, "steps", _Checked.of(self.steps, self.relations, self._hold()))
        if deep:
            self._witnessed()

    def _hold(self) -> dict[str, Expr]:
        """What each name is worth; raises ``DerivationError`` where a name, an identity or a unit does not hold."""
        units: dict[str, Unit] = {}
        known: dict[str, Expr] = {}
        free: set[str] = set()
        before = self.steps.before if isinstance(self.steps, Continued) else ()
        proved = {id(step): made for made in before if made.relations == self.relations for step in made.steps}
        plain: dict[forms.Form, tuple[Unit, tuple[str, ...], Expr]] = {}  # of symbols alone, as rows of a table are
        for step in self.steps:
            if id(step) in proved and step.name not in free:
                if step.relation == ":=":
                    known[step.name], units[step.name] = proved[id(step)].worth[step.name], step.unit
                continue
            if step.form in plain:
                found, inside, worth = plain[step.form]
            else:
                found, inside = forms.unit_of(step.form, units), forms.names(step.form)
                worth = forms.value(step.form, known)
                if known.keys().isdisjoint(inside):
                    plain[step.form] = found, inside, worth
            free.update([n for n in inside if n not in known])
            if step.relation == ":=":
                if step.name in units:
                    raise DerivationError(f"{step.name} is defined twice in the derivation of {self.title}")
                if step.name in inside:
                    raise DerivationError(f"{step.name} is defined by itself in the derivation of {self.title}")
                if step.name in free:
                    what = f"{step.name} is a symbol and a step's name"
                    raise DerivationError(f"{what} in the derivation of {self.title}")
                # A product of sizes counts something (elements, operations); what it counts is the step's to say.
                if found != step.unit and not (step.unit / found).is_count:
                    raise DerivationError(f"{step.name} has the unit {step.unit}, but its form is in {found}")
                known[step.name], units[step.name] = worth, step.unit
                continue
            if step.name not in known:
                raise DerivationError(f"{step.name} is used before it is defined in the derivation of {self.title}")
            if step.unit != units[step.name] or found not in (ONE, step.unit):
                raise DerivationError(f"{step.name} changes its unit from {units[step.name]} to {step.unit} ({found})")
            if step.relation == "≈":
                if not step.condition:
                    raise DerivationError(f"{step.name} is approximated without a condition")
            else:
                self._proved(step, known[step.name], worth)
        return known

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
            what = f"{step.name}: whether {str(left)[:200]} is {str(right)[:200]} could not be decided"
            raise DerivationError(f"{what} in the derivation of {self.title}") from undecided
        if not same:
            raise DerivationError(
                f"{step.name}: {str(left)[:200]} is not {str(right)[:200]} in the derivation of {self.title}"
            )

    # -- combining -----------------------------------------------------------------------------

    def with_given(self, /, **values: object) -> Derivation:
        """The same derivation with more numbers known."""
        return replace(self, given=tuple(self.values(**values).items()))

    # -- shown ---------------------------------------------------------------------------------

    def latex(self) -> str:
        """The steps as one LaTeX ``align*``."""
        return written(self, "latex")

    def markdown(self) -> str:
        """The steps as Markdown with LaTeX maths."""
        return written(self, "markdown")

    def text(self) -> str:
        """The steps as plain text, for a terminal."""
        return written(self, "text")

    def html(self) -> str:
        """The steps as HTML with MathML."""
        return written(self, "html")

    def __repr__(self) -> str:
        unit = "" if self.unit == ONE else f" {self.unit}"
        return f"<Derivation {self.title}: {shorten(plain(self.answer.form) + unit, 200, placeholder=' ...')}>"

    # As notebooks ask for it.
    __str__, _repr_latex_, _repr_markdown_, _repr_html_ = text, latex, markdown, html


def whole_bytes(value: Fraction, touched: Collection[str], accounting: Accounting) -> Fraction:
    """Bytes of a rank; where they are a mean of the ranks' parts rounded up, for no rank holds a part of a byte."""
    return Fraction(ceil(value)) if "shards" in touched and accounting.shards == "mean_shard" else value


def symbols(names: str, of: Derivation | None = None) -> tuple[Symbol, ...]:
    """The SymPy symbols of names, as derivations have them, so that one's own formula can be compared with ``expr``.

    They are positive whole numbers; a measured amount (a bandwidth) is not whole: ``of`` takes them from a derivation.
    Raises ``ValuesError`` for what cannot be a name, and for a name that the derivation does not have.

    >>> D, N = symbols("D N_layer")
    >>> (24 * N * D**2).free_symbols == {N, D}, D.is_integer
    (True, True)
    """
    wanted = names.replace(",", " ").split()
    if of is None:
        return tuple(symbol(name) for name in wanted)
    known = {s.name: s for s in (*of.expr.free_symbols, *(s for expr in of.worth.values() for s in expr.free_symbols))}
    for name in wanted:
        if name not in known:
            raise ValuesError(f"{of.title} has no symbol '{name[:60]}'", hint=nearest(name, [*known]))
    return tuple(known[name] for name in wanted)
