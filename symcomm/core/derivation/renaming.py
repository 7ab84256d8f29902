"""A derivation under other names: a symbol or a step has another name wherever it occurs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from symcomm.core import form as forms
from symcomm.core.derivation.numbers import Numbers
from symcomm.core.derivation.relations import Relations
from symcomm.core.derivation.steps import Exhibit, Reason, Step, Witness
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form
from symcomm.core.notation import Notation, symbol
from symcomm.core.records import dataclass, replace

if TYPE_CHECKING:
    from symcomm.core.derivation.derivation import Derivation

Known = Mapping[str, Fraction]
Told = TypeVar("Told")


class _AsBefore(Numbers):
    """The numbers of a renamed derivation for a witness that knows the names before."""

    def __init__(self, numbers: Numbers, by: Renaming) -> None:
        super().__init__(by.before(numbers), Relations(tuple(numbers.rules.items())), numbers.made)
        self.numbers, self.by = numbers, by

    def __missing__(self, name: str) -> Fraction:
        return self.numbers[self.by.name(name)]


@dataclass(frozen=True)
class Renaming:
    """Old names with the new ones; ``known`` are all names of the derivation, to find them in sentences."""

    names: Mapping[str, str]
    known: frozenset[str] = frozenset()

    def name(self, name: str) -> str:
        """The new name of a symbol or step; its own where it keeps that."""
        return self.names.get(name, name)

    def before(self, known: Mapping[str, Told]) -> dict[str, Told]:
        """Numbers or meanings under the names before; a name that is free now belongs to something else."""
        back = {new: old for old, new in self.names.items()}
        return {back.get(n, n): v for n, v in known.items() if n in back or n not in self.names}

    def form(self, form: Form) -> Form:
        """A form with the new names."""
        return forms.substitute(form, lambda s: replace(s, name=self.name(s.name)))

    def text(self, text: str) -> str:
        """A sentence with the new names where it has names in backquotes."""
        longest = sorted(map(re.escape, self.known), key=len, reverse=True)
        word = re.compile(rf"(?<!\w)(?:{'|'.join(longest)})(?![\w'])")
        return re.sub(r"`[^`]+`", lambda maths: word.sub(lambda m: self.name(m[0]), maths[0]), text)

    def cell(self, cell: Any) -> Any:
        """A cell of a table: words, a form, or a quantity."""
        return self.form(cell) if isinstance(cell, Form) else self.text(cell) if isinstance(cell, str) else cell

    def exhibit(self, exhibit: Exhibit) -> Exhibit:
        """A table with the new names."""
        rows = tuple(tuple(self.cell(cell) for cell in row) for row in exhibit.rows)
        beside = exhibit.beside
        return replace(exhibit, title=self.text(exhibit.title), columns=tuple(map(self.text, exhibit.columns)),
                       rows=rows, beside=beside and (lambda table: self.exhibit(beside(table))))  # fmt: skip

    def step(self, step: Step) -> Step:
        """A step with the new names; its witness is asked under the old ones."""
        why = step.reason
        seen = None if why.witness is None else partial(_witnessed, why.witness, self)
        return replace(step, name=self.name(step.name), form=self.form(step.form), condition=self.text(step.condition),
                       reason=Reason(why.rule, self.text(why.text), why.source, seen))  # fmt: skip

    def notation(self, notation: Notation) -> Notation:
        """The meanings and spellings of the new names."""
        latex, meanings = ({self.name(n): t for n, t in m.items()} for m in (notation.latex, notation.meanings))
        return replace(notation, latex=latex, meanings=meanings)

    def notation_before(self, notation: Notation) -> Notation:
        """The meanings and spellings of a document under the names before."""
        return replace(notation, latex=self.before(notation.latex), meanings=self.before(notation.meanings))

    def derivation(self, made: Derivation) -> Derivation:
        """The derivation with the new names; its proofs and witnesses are those before."""
        otherwise = made.otherwise
        results = (self.name(r) if isinstance(r, str) else (self.cell(r[0]), self.cell(r[1])) for r in made.results)
        conditions = (
            replace(c, left=self.form(c.left), right=self.form(c.right), refusal=self.text(c.refusal),
                    remedy=self.text(c.remedy))
            for c in made.where
        )
        return replace(
            made, title=self.text(made.title), steps=tuple(map(self.step, made.steps)),
            exhibits=tuple(map(self.exhibit, made.exhibits)),
            given=tuple((self.name(name), value) for name, value in made.given), notation=self.notation(made.notation),
            notes=tuple(map(self.text, made.notes)), lead=tuple(map(self.text, made.lead)), where=tuple(conditions),
            checks=tuple(partial(_checked, check, self) for check in made.checks),
            otherwise=otherwise and partial(_derived, otherwise, self), same_at=None, results=tuple(results),
        )  # fmt: skip


def renamed(made: Derivation, names: Mapping[str, str]) -> Derivation:
    """A derivation whose own symbols and steps have other names; its model and its options keep theirs.

    Raises ``ValuesError`` for a name that it has not, and for a new one that it has already or would have twice.
    """
    fixed = made.sizes | made.named
    own = made.own_names
    taken: dict[str, str] = {}
    primes = {old + p: new + p for old, new in names.items() for p in ("'", "''") if old + p in own}
    names = {**primes, **names}  # a derivative is named after its function
    for old, new in names.items():
        symbol(new)  # refuses what is no name
        if old in fixed:
            raise ValuesError(f"'{old}' is a symbol of the model or of an option", hint="rename it there")
        if old not in own:
            raise ValuesError(f"{made.title} has no symbol '{old[:60]}'", hint=nearest(old, sorted(own)))
        if new in taken or (new in own | fixed and new not in names):
            said = f"{taken[new]}, too" if new in taken else made.notation.meaning(new) or "another name"
            raise ValuesError(f"{old} cannot be called '{new}': that is {said} here", hint="choose a free name")
        taken[new] = old
    return Renaming(names, own | fixed).derivation(made)


def _witnessed(witness: Witness, by: Renaming, numbers: Numbers) -> Fraction | int | bool:
    return witness(_AsBefore(numbers, by))


def _checked(check: Callable[[Known], None], by: Renaming, known: Known) -> None:
    check(by.before(known))


def _derived(again: Callable[[Known], Derivation | None], by: Renaming, known: Known) -> Derivation | None:
    made = again(by.before(known))
    return by.derivation(made) if made is not None else None
