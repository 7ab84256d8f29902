"""The answers known to a question: the right one, and others by convention, by mistake and by pair of mistakes.

It is symbolic: candidates are forms, made once; given numbers are put in when an answer is checked, so that every
student's paper shares the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

from symcomm.core import form as forms
from symcomm.core.answers.formula import AnswerReader
from symcomm.core.errors import SymcommError
from symcomm.core.form import Form
from symcomm.core.libraries import Expr
from symcomm.core.real_numbers import FormNumber, FormNumbers, number_of
from symcomm.core.records import dataclass, replace
from symcomm.core.units import Quantity, Unit
from symcomm.exams.asking import ModelQuestion, worth
from symcomm.exams.changes import ChangedAnswer, same_names
from symcomm.exams.mistakes import Misconception
from symcomm.exams.points import NoNumberError, ResiduePoint, Residues, is_rational, points
from symcomm.exams.problems.answer_keys import AnswerKeys

if TYPE_CHECKING:
    from symcomm.core.derivation import Derivation, Relations

_PAIRS_LIMIT = 4_000
Choices = tuple[tuple[tuple[str, str], ...], ...]


@dataclass(frozen=True)
class Wrong:
    """The answer under another convention or a mistake (one or two names), and one sentence on each.

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

    @cached_property
    def number(self) -> FormNumber:
        """Its number at given values; None where a number is missing or there is none."""
        return FormNumber(self.form)

    def at(self, values: Mapping[str, Fraction]) -> Quantity | None:
        """Its number with its unit."""
        number = self.number.at(values)
        return None if number is None else Quantity(number, self.unit)


@dataclass
class Candidates:
    """The answers that are known: the right one, those of other conventions, of mistakes, and of pairs of mistakes."""

    question: ModelQuestion
    right: Form
    scale: Fraction
    unit: Unit
    conventions: tuple[Wrong, ...]
    mistakes: tuple[Misconception, ...]
    others: tuple[tuple[ModelQuestion, Wrong], ...] = ()  # the same question under other conventions

    @cached_property
    def _made(self) -> dict[tuple[str, int], list[ChangedAnswer]]:
        """What each change of each mistake comes to alone."""
        draft = ChangedAnswer(self.question, self.question.form)
        return {
            (mistake.name, n): _tried(change.apply(draft))
            for mistake in self.mistakes for n, change in enumerate(mistake.changes)
        }  # fmt: skip

    @cached_property
    def singles(self) -> tuple[Wrong, ...]:
        """The answer under every mistake that changes something."""
        found = []
        for mistake in self.mistakes:
            for n in range(len(mistake.changes)):
                found += [self._wrong((mistake,), draft) for draft in self._made[mistake.name, n]]
        return self._new(found)

    @cached_property
    def pairs(self) -> tuple[Wrong, ...]:
        """The answers under two mistakes together, where both change something and the two are not one."""
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
        """The answers under one mistake and another convention."""
        found = []
        for question, wrong in self.others:
            start = ChangedAnswer(question, same_names(self.question, question))
            for mistake in self.mistakes:
                for change in mistake.changes:
                    if not (change.alone or change.again):
                        found += [
                            replace(self._wrong((mistake,), draft), names=(*wrong.names, mistake.name),
                                    says=(*wrong.says, mistake.says), mixed=True)
                            for draft in _tried(change.apply(start))
                        ]  # fmt: skip
        known = (*self.conventions, *self.singles, *self.pairs)
        return self._new(found, {self._residues(wrong.form) for wrong in known})

    @property
    def asked(self) -> int:
        """How often the question was asked again for a convention or a mistake."""
        return len(self.question.changed)

    def serves(self, values: Mapping[str, Fraction]) -> bool:
        """Whether all that was asked until now is the same at other numbers; of all numbers, a refusal may not be."""
        self.singles  # noqa: B018  (what they ask again is looked at, too)
        question, again = self.question, self.question.changed.values()
        if question.told is None and (None in again or all(values.get(n) == v for n, v in question.known.items())):
            return all(values.get(n) == v for n, v in question.known.items())
        return all(one.serves(values) for one in (question, *again) if one is not None)

    def _wrong(self, mistakes: Sequence[Misconception], draft: ChangedAnswer) -> Wrong:
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
    def free(self) -> list[ResidueTable]:
        """Points with no symbol given, the same for all papers."""
        made = points(self.question.symbols, self.question.derivation.relations, {}, 7)
        return [ResidueTable(point, residues(self.right, point)) for point in made]

    @cached_property
    def point(self) -> tuple[ResiduePoint, ...]:
        """A point modulo each prime, with no symbol given."""
        return points(self.question.symbols, self.question.derivation.relations, {}, 1)[0]

    def _residues(self, form: Form) -> Residues | None:
        return residues(form, self.point)

    @cached_property
    def recognised(self) -> tuple[Wrong, ...]:
        """The conventions and single mistakes."""
        return (*self.conventions, *self.singles)

    @cached_property
    def numbers(self) -> FormNumbers:
        """Their numbers, worked out together."""
        return FormNumbers(tuple(one.number for one in self.recognised))

    @cached_property
    def same(self) -> tuple[int, ...]:
        """For each of them, the place of the first one that has the same formula."""
        worths = [self._residues(wrong.form) for wrong in self.recognised]
        return tuple(worths.index(worth) for worth in worths)


def residues(form: Form, at: tuple[ResiduePoint, ...]) -> Residues | None:
    """A form modulo each prime; None where it has no number."""
    try:
        return tuple(point.worth(form) for point in at)
    except (NoNumberError, KeyError, SymcommError):
        return None


def _plain(form: Form, values: Mapping[str, Fraction]) -> Form:
    """A form without its roundings; of a minimum or maximum, the part that the given numbers choose."""
    if isinstance(form, (forms.Ceiling, forms.Floor)):
        return _plain(form.inside, values)
    if isinstance(form, (forms.Largest, forms.Smallest)):
        worths = [(worth, part) for part in form.choices if (worth := number_of(part, values)) is not None]
        choose = max if isinstance(form, forms.Largest) else min
        if len(worths) == len(form.choices):
            return _plain(choose(worths, key=lambda one: one[0])[1], values)
    return form.mapped(lambda part: _plain(part, values))


def _tried(drafts: Iterator[ChangedAnswer]) -> list[ChangedAnswer]:
    """The drafts of a change, as far as it can be made."""
    made: list[ChangedAnswer] = []
    try:
        for draft in drafts:
            made.append(draft)
    except (SymcommError, TypeError, ZeroDivisionError):
        pass
    return made


@dataclass
class ResidueTable:
    """Points at which some symbols have their given numbers, and the residues of all that is known there."""

    points: tuple[ResiduePoint, ...]
    right: Residues | None
    tables: dict[str, dict[Residues, list[Wrong]]] = field(default_factory=dict)

    def known(self, level: str, wrongs: Iterable[Wrong]) -> dict[Residues, list[Wrong]]:
        """The answers of a level by their residues."""
        found = self.tables.get(level)
        if found is None:
            found = self.tables[level] = {}
            for wrong in wrongs:
                at = residues(wrong.form, self.points)
                if at is not None:
                    found.setdefault(at, []).append(wrong)
        return found


@dataclass(frozen=True)
class AnswerKey:
    """A question that is ready to check answers; what is known of it, and the numbers that are given."""

    candidates: Candidates = field(repr=False, compare=False)
    spec: AnswerKeys
    spellings: tuple[tuple[str, str], ...]
    given: tuple[tuple[str, Fraction], ...]
    supposed: frozenset[str] = field(default=frozenset(), kw_only=True)

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
        """The relations between the symbols."""
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
    def rational(self) -> bool:
        """Whether the right answer is made of sums, products and whole powers."""
        return is_rational(self.candidates.right)

    @cached_property
    def unrounded(self) -> Residues | None:
        """The residues of the right answer without what the given numbers decide: its roundings, minima and maxima.

        A question whose answer is a formula keeps them.
        """
        exact = _plain(self.candidates.right, self.values)
        if self.spec.formula or self.number is None or exact == self.candidates.right:
            return None
        if number_of(exact, self.values) != self.number.value:
            return None
        return residues(exact, self.candidates.point)

    @cached_property
    def bare(self) -> tuple[Fraction, int]:
        """The factor of a number without a unit, and the power of the prefix in it."""
        if not self.spec.unit:
            return Fraction(1), 0
        from symcomm.core.answers.measures import measure

        found = measure(self.spec.unit)
        return Quantity.parse(f"1 {self.spec.unit}").within(self.unit).value, found[2] if found is not None else 0

    @cached_property
    def reader(self) -> AnswerReader:
        """The reader of answers to this question."""
        question = self.candidates.question
        real = frozenset(name for name, whole in question.symbols.items() if not whole)
        return _reader(self.spellings, self.spec.left, self.unit, self.spec.decimal_comma, real, self.supposed)


@lru_cache(maxsize=256)
def _reader(spellings: tuple[tuple[str, str], ...], *said: Any) -> AnswerReader:
    """The same reader for all papers of a question: what it learns of their symbols serves each."""
    return AnswerReader(dict(spellings), *said)
