"""A key: a question with its derivation, the same under other conventions, and under every mistake.

It is symbolic: its candidates are forms, made once; given numbers are put in when an answer is checked, so that every
student's paper shares the work. Residues of the candidates at random points are kept in tables, and most answers are
decided by one look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

from symcomm import form as forms
from symcomm.accounting import CONVENTIONS
from symcomm.errors import DocumentError, SymcommError, ValuesError, nearest
from symcomm.exam.changes import Draft, Prefixes, same_names
from symcomm.exam.mistakes import BY_NAME, MISTAKES, Misconception, own_mistake
from symcomm.exam.points import NoNumberError, Point, Residues, points
from symcomm.exam.question import Question, worth
from symcomm.exam.reading.formula import Reader, as_spellings
from symcomm.form import Form
from symcomm.problems.answer_keys import AnswerKeys
from symcomm.problems.deriving import accounting_of, no_model
from symcomm.problems.problem import Ask, Problem
from symcomm.problems.solve import known_of, load_model
from symcomm.units import BYTE, ONE, Quantity, Unit

if TYPE_CHECKING:
    from sympy import Expr

    from symcomm.derivation import Derivation, Relations
    from symcomm.exam.verdict import Verdict
    from symcomm.model import Model
    from symcomm.problems.keys import Known

_PAIRS_LIMIT = 4_000
_OPEN = ("unit: GiB", "GB was taken for 2^30 bytes, or GiB for 10^9.")
_ELEMENTS = ("word", "element")
Choices = tuple[tuple[tuple[str, str], ...], ...]


@dataclass(frozen=True)
class Wrong:
    """What a question comes to under another convention or a mistake (one or two names), and one sentence on each.

    ``prefix`` is the power of 1000 that was taken for 1024, where that is the mistake.
    """

    names: tuple[str, ...]
    says: tuple[str, ...]
    form: Form = field(repr=False)
    unit: Unit
    convention: bool = False
    prefix: int = 0
    mixed: bool = False  # a convention and a mistake

    @cached_property
    def expr(self) -> Expr:
        """The wrong expression."""
        return worth(self.form)

    def at(self, values: Mapping[str, Fraction]) -> Quantity | None:
        """Its number; None where a number is missing or there is none."""
        number = number_of(self.form, values)
        return None if number is None else Quantity(number, self.unit)


def number_of(form: Form, values: Mapping[str, Fraction]) -> Fraction | None:
    """The number of a form, to 40 digits where it is irrational; None where there is none."""
    import sympy as sp

    from symcomm.derivation import rational
    from symcomm.errors import IrrationalError

    try:
        return forms.evaluate(form, values)
    except IrrationalError:
        if any(name not in values for name in forms.names(form)):
            return None
        near = sp.N(forms.value(form, {n: rational(values[n]) for n in forms.names(form)}), 40)
        return Fraction(str(near)) if near.is_Float or near.is_Integer else None
    except (ValuesError, OverflowError):
        return None


@dataclass
class Candidates:
    """The answers that are known: the right one, those of other conventions, of mistakes, and of pairs of mistakes."""

    question: Question
    right: Form
    scale: Fraction
    unit: Unit
    conventions: tuple[Wrong, ...]
    mistakes: tuple[Misconception, ...]
    others: tuple[tuple[Question, Wrong], ...] = ()  # the same question under other conventions

    @cached_property
    def _draft(self) -> Draft:
        return Draft(self.question, self.question.form)

    @cached_property
    def _made(self) -> dict[tuple[str, int], list[Draft]]:
        """What each change of each mistake comes to alone."""
        return {
            (mistake.name, n): _tried(change.apply(self._draft))
            for mistake in self.mistakes for n, change in enumerate(mistake.changes)
        }  # fmt: skip

    @cached_property
    def singles(self) -> tuple[Wrong, ...]:
        """What every mistake comes to, where it changes something."""
        found = []
        for mistake in self.mistakes:
            for n in range(len(mistake.changes)):
                found += [self._wrong((mistake,), draft) for draft in self._made[mistake.name, n]]
        return self._new(found)

    @cached_property
    def pairs(self) -> tuple[Wrong, ...]:
        """What two mistakes come to together, where both change something and the two are not one."""
        apply = {name for wrong in self.singles for name in wrong.names}
        found: list[Wrong] = []
        for one, other in combinations([m for m in self.mistakes if m.name in apply], 2):
            if other.name in one.never_with or one.name in other.never_with:
                continue
            for n, first in enumerate(one.changes):
                for m, second in enumerate(other.changes):
                    if first.alone or second.alone:
                        continue
                    turned = second.again and not first.again
                    made, then = (self._made[other.name, m], first) if turned else (self._made[one.name, n], second)
                    for draft in made:
                        found += [self._wrong((one, other), d) for d in _tried(then.apply(draft))]
                        if len(found) > _PAIRS_LIMIT:
                            return self._new(found)
        return self._new(found, {self._residues(wrong.form) for wrong in self.singles})

    @cached_property
    def mixed(self) -> tuple[Wrong, ...]:
        """What one mistake comes to under another convention."""
        found = []
        for question, wrong in self.others:
            start = Draft(question, same_names(self.question, question))
            for mistake in self.mistakes:
                for change in mistake.changes:
                    if not change.alone:
                        found += [
                            replace(self._wrong((mistake,), draft), names=(*wrong.names, mistake.name),
                                    says=(*wrong.says, mistake.says), mixed=True)
                            for draft in _tried(change.apply(start))
                        ]  # fmt: skip
        known = (*self.conventions, *self.singles, *self.pairs)
        return self._new(found, {self._residues(wrong.form) for wrong in known})

    def _wrong(self, mistakes: Sequence[Misconception], draft: Draft) -> Wrong:
        form = draft.form if self.scale == 1 else forms.product(forms.num(self.scale), draft.form)
        return Wrong(tuple(m.name for m in mistakes), tuple(m.says for m in mistakes), form, self.unit, False,
                     draft.prefix)  # fmt: skip

    def _new(self, found: Iterable[Wrong], known: Iterable[Residues | None] = ()) -> tuple[Wrong, ...]:
        """Those that differ from the right answer and from one another."""
        right = {self._residues(self.right), None, *known}
        kept: dict[tuple[tuple[str, ...], Residues | None, int], Wrong] = {}
        for wrong in found:
            residues = self._residues(wrong.form)
            if residues not in right and any(residues or ()):
                kept.setdefault((wrong.names, residues, wrong.prefix), wrong)
        return tuple(kept.values())

    @cached_property
    def _point(self) -> tuple[Point, ...]:
        return points(self.question.symbols, self.question.derivation.relations, {}, 1)[0]

    def _residues(self, form: Form) -> Residues | None:
        return residues(form, self._point)


def residues(form: Form, at: tuple[Point, ...]) -> Residues | None:
    """A form modulo each prime; None where it has no number."""
    try:
        return tuple(point.worth(form) for point in at)
    except (NoNumberError, KeyError, SymcommError):
        return None


def _tried(drafts: Iterator[Draft]) -> list[Draft]:
    """The drafts of a change, as far as it can be made."""
    made: list[Draft] = []
    try:
        for draft in drafts:
            made.append(draft)
    except (SymcommError, TypeError, ZeroDivisionError):
        pass
    return made


@dataclass(frozen=True)
class Key:
    """A question that is ready to check answers; made by ``key_of``, and quick for thousands of answers."""

    candidates: Candidates = field(repr=False, compare=False)
    spec: AnswerKeys
    spellings: tuple[tuple[str, str], ...]
    given: tuple[tuple[str, Fraction], ...]
    seen: dict[str, Verdict] = field(default_factory=dict, repr=False, compare=False)

    @property
    def derivation(self) -> Derivation:
        """The derivation of the right answer."""
        return self.candidates.question.derivation

    @property
    def unit(self) -> Unit:
        """The unit of the right answer."""
        return self.candidates.unit

    @property
    def relations(self) -> Relations:
        """What holds between the symbols."""
        return self.derivation.relations

    @cached_property
    def values(self) -> dict[str, Fraction]:
        """The given numbers, and what the relations imply."""
        known = {**self.candidates.question.named_numbers, **dict(self.given)}
        return {n: v for n, v in self.relations.complete(known).items() if n in self.candidates.question.symbols}

    @cached_property
    def number(self) -> Quantity | None:
        """The right number, where all that it needs is given."""
        found = number_of(self.candidates.right, self.values)
        return None if found is None else Quantity(found, self.unit)

    @property
    def expr(self) -> Expr:
        """The right expression."""
        return worth(self.candidates.right)

    @property
    def conventions(self) -> tuple[Wrong, ...]:
        """The answers under other conventions."""
        return self.candidates.conventions

    @property
    def mistakes(self) -> tuple[Wrong, ...]:
        """The answers under one mistake each."""
        return self.candidates.singles

    @cached_property
    def bare(self) -> tuple[Fraction, int]:
        """What a number without a unit is multiplied by, and the power of the prefix in that."""
        if not self.spec.unit:
            return Fraction(1), 0
        from symcomm.exam.reading.measures import measure

        found = measure(self.spec.unit)
        return Quantity.parse(f"1 {self.spec.unit}").value, found[2] if found is not None else 0

    @cached_property
    def reader(self) -> Reader:
        """What reads answers to this question."""
        question = self.candidates.question
        real = frozenset(name for name, whole in question.symbols.items() if not whole)
        return Reader(dict(self.spellings), self.spec.left, self.unit, self.spec.decimal_comma, real)

    def at(self, values: Mapping[str, Fraction]) -> Key:
        """The same question with other given numbers; nothing is derived again."""
        made = replace(self, given=tuple({**dict(self.given), **values}.items()), seen={})
        made.__dict__["reader"] = self.reader
        return made

    def check(self, answer: str) -> Verdict:
        """The verdict on an answer; one that was seen before is not decided again."""
        from symcomm.exam.check import decide

        found = self.seen.get(answer)
        if found is None:
            found = decide(answer, self)
            if len(self.seen) < 100_000 and len(answer) < 4_000:
                self.seen[answer] = found
        return found


def key_of(
    problem: Problem, ask: Ask, models: Mapping[str, Model] | None = None, carried: Iterable[Known] = ()
) -> Key:
    """The key of one question of a problem document; ``models`` are those already loaded, by name.

    Raises ``DocumentError`` for an unknown name in ``answer``, and what deriving the question raises.
    """
    model = (models or {}).get(ask.model) or (load_model(problem, ask.model) if ask.model else no_model(problem.notation))
    block = problem.models.get(ask.model)
    notation = block.notation if block else problem.notation
    question = Question(
        ask.sheet or ask.quantity, model, ask.options, accounting_of(problem.conventions, ask.conventions),
        tuple((known.name, known.quantity.value) for known in known_of(problem, ask, carried)),
        step=ask.answer.step, notation=notation,
    )  # fmt: skip
    own = tuple(own_mistake(said) for said in problem.mistakes)
    return _key(question, ask.answer, dict(notation.spellings), own)


def key_for(derivation: Derivation, **values: object) -> Key:
    """The key of a derivation alone: only what rewrites its answer can be tried, no other convention."""
    model = no_model(derivation.notation)
    question = Question("", model, (), derivation.accounting, tuple(derivation.values(**values).items()))
    question.__dict__["derivation"] = derivation
    question.__dict__["declared"] = _NOTHING
    return _key(question, AnswerKeys(), dict(derivation.notation.spellings), (), conventions=())


def _key(
    question: Question, spec: AnswerKeys, spellings: dict[str, tuple[str, ...]], own: tuple[Misconception, ...],
    conventions: Choices | None = None,
) -> Key:  # fmt: skip
    steps = {step.name for step in question.derivation.steps}
    if spec.step and spec.step not in steps:
        raise DocumentError(f"there is no step '{spec.step[:40]}'", spec.span, nearest(spec.step, sorted(steps)))
    scale, unit = _counted(question, spec)
    chosen = conventions if conventions is not None else spec.conventions
    known = {**BY_NAME, **{mistake.name: mistake for mistake in own}}
    if spec.mistakes is None:
        mistakes = tuple(known.values()) if question.asked else tuple(m for m in MISTAKES if not m.again)
    else:
        for name in spec.mistakes:
            if name not in known:
                raise DocumentError(f"no mistake is called '{name[:40]}'", spec.span, nearest(name, [*known]))
        mistakes = tuple(known[name] for name in spec.mistakes)
    right = question.form if scale == 1 else forms.product(forms.num(scale), question.form)
    open_prefixes = spec.open_prefixes or (chosen is not None and (("unit", "GiB"),) in chosen)
    others = tuple(_others(question, chosen, scale, unit))
    made = Candidates(question, right, scale, unit, (), mistakes, others)
    made.conventions = made._new([*(w for _, w in others), *(_prefixes(question, unit) if open_prefixes else ())])
    if spec.ruled_out:
        ruled = [replace(w, convention=False) for _, w in _others(question, spec.ruled_out, scale, unit)]
        made.singles = (*made._new(ruled), *made.singles)
    symbols = spec.symbols or tuple(question.symbols)
    extra = dict(spec.names)
    spelled = as_spellings((name, (*spellings.get(name, ()), *extra.get(name, ()))) for name in symbols)
    return Key(made, spec, tuple(spelled.items()), question.values)


def _counted(question: Question, spec: AnswerKeys) -> tuple[Fraction, Unit]:
    """What the answer is multiplied by and its unit, where it counts words or elements instead of bytes."""
    unit = Quantity.parse(f"1 {spec.unit}").unit if spec.unit else question.unit
    if unit == question.unit or question.unit != BYTE or str(unit) not in _ELEMENTS:
        return Fraction(1), question.unit if question.unit != ONE else unit
    from symcomm.dtypes import element_bytes

    said = question.option("dtype") or question.model.dtype
    return 1 / element_bytes(said).number, unit


def _others(question: Question, chosen: Choices | None, scale: Fraction, unit: Unit) -> Iterator[tuple[Question, Wrong]]:
    """The answers under other choices: those named, or all of the fields that touched this one."""
    if chosen is None:
        touched = {*question.derivation.touched} | ({"parameters"} if question.asked == "parameters" else set())
        chosen = tuple(((row.field, row.name),) for row in CONVENTIONS if row.field in touched)
    statements = {(row.field, row.name): row.statement for row in CONVENTIONS}
    for some in chosen:
        changed = {name: choice for name, choice in some if getattr(question.accounting, name, choice) != choice}
        again = question.again(accounting=replace(question.accounting, **changed)) if changed else None
        if again is not None:
            form = same_names(question, again)
            form = form if scale == 1 else forms.product(forms.num(scale), form)
            names = tuple(f"{name}: {choice}" for name, choice in changed.items())
            yield again, Wrong(names, tuple(statements[pair] for pair in changed.items()), form, unit, True)


def _prefixes(question: Question, unit: Unit) -> tuple[Wrong, ...]:
    drafts = [d for turned in (False, True) for d in Prefixes(turned=turned).apply(Draft(question, question.form))]
    return tuple(Wrong((_OPEN[0],), (_OPEN[1],), d.form, unit, True, d.prefix) for d in drafts)


def mistakes_of(key: Key) -> tuple[Wrong, ...]:
    """The mistakes that change the answer of a question, each with its wrong expression."""
    return key.mistakes


@dataclass(frozen=True)
class _Nothing:
    """What is asked of a derivation alone: nothing that has options."""

    options: tuple[()] = ()


_NOTHING = _Nothing()
