"""A key: a question with its derivation, the same under other conventions, and under every mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from symcomm.units import Quantity, Unit

if TYPE_CHECKING:
    from sympy import Expr

    from symcomm.derivation import Derivation
    from symcomm.exam.verdict import Verdict
    from symcomm.model import Model
    from symcomm.problems.problem import Ask, Problem


@dataclass(frozen=True)
class Wrong:
    """What a question comes to under another convention or a mistake (one or two names), and one sentence on each."""

    names: tuple[str, ...]
    says: tuple[str, ...]
    expr: Expr
    unit: Unit

    def at(self, values: Mapping[str, Fraction]) -> Quantity | None:
        """Its number; None where a number is missing or there is none."""
        raise NotImplementedError


@dataclass(frozen=True)
class Key:
    """A question that is ready to check answers; made by ``key_of``, and quick for thousands of answers."""

    derivation: Derivation
    given: tuple[tuple[str, Fraction], ...] = ()
    conventions: tuple[Wrong, ...] = ()
    mistakes: tuple[Wrong, ...] = ()

    def at(self, values: Mapping[str, Fraction]) -> Key:
        """The same question with other given numbers; nothing is derived again."""
        raise NotImplementedError

    def check(self, answer: str) -> Verdict:
        """The verdict on an answer."""
        raise NotImplementedError


def key_of(problem: Problem, ask: Ask, models: Mapping[str, Model] | None = None) -> Key:
    """The key of one question of a problem document; ``models`` are those already loaded, by name."""
    raise NotImplementedError


def mistakes_of(key: Key) -> tuple[Wrong, ...]:
    """The mistakes that change the answer of a question, each with its wrong expression."""
    return key.mistakes


def check(answer: str, question: Key | Derivation) -> Verdict:
    """The verdict on an answer to a derivation or a prepared key."""
    raise NotImplementedError
