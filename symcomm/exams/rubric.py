"""Points for an answer: by itself, by steps that were reached, and by following from an earlier answer."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import prod

from symcomm.core.accounting import CONVENTIONS
from symcomm.core.blocks import Section
from symcomm.core.errors import DocumentError, nearest
from symcomm.core.records import dataclass
from symcomm.exams.mistakes import BY_NAME
from symcomm.exams.problems.exam_keys import CREDIT
from symcomm.exams.problems.problem import Ask, Problem
from symcomm.exams.verdict import Verdict

_OPEN = ("undecided", "unreadable", "refused")  # a person decides


@dataclass(frozen=True)
class Mark:
    """The points of one answer out of how many, and why; ``open`` says that a person has to look."""

    points: Fraction
    of: Fraction
    verdict: str
    names: tuple[str, ...]
    says: str
    open: bool = False
    follows: bool = False

    @property
    def told(self) -> str:
        """Points as they are written: ``3.5 of 5``."""
        return f"{points_text(self.points)} of {points_text(self.of)}"


def points_text(points: Fraction) -> str:
    """Points with at most two decimals.

    >>> points_text(Fraction(7, 2)), points_text(Fraction(10, 3)), points_text(Fraction(5))
    ('3.5', '3.33', '5')
    """
    return f"{float(round(points, 2)):.2f}".rstrip("0").rstrip(".")


def share_of(verdict: Verdict, ask: Ask, problem: Problem) -> Fraction:
    """The share of its points that an answer earns by itself; of several mistakes, each takes its part.

    A number that several mistakes come to earns the most that one of them does, as the formula of that one would. What
    the question says of a mistake comes before what the document says, and a mistake's name before all of its kind.
    """
    if verdict.right:
        return Fraction(1)
    if verdict.verdict not in ("mistake", "other_convention"):
        return Fraction(0)
    found = ((*verdict.conventions, *verdict.mistakes), *verdict.alternatives)
    apart = (([n for n in names if ":" in n], [n for n in names if ":" not in n]) for names in found)
    return max(credit_of(tuple(others), tuple(mistakes), ask, problem) for others, mistakes in apart)


def credit_of(conventions: tuple[str, ...], mistakes: tuple[str, ...], ask: Ask, problem: Problem) -> Fraction:
    """The share of the points of an answer under other conventions or with mistakes, by their names."""
    return _credits(conventions, mistakes, ask.exam.credit, problem.exam.credit)


@lru_cache(4096)
def _credits(
    conventions: tuple[str, ...], mistakes: tuple[str, ...], *said: tuple[tuple[str, Fraction], ...]
) -> Fraction:
    told: list[Mapping[str, Fraction]] = [*map(dict, said), CREDIT]
    names = [*((name, "other_convention") for name in conventions), *((name, "mistake") for name in mistakes)]
    return prod((_credit(name, kind, told) for name, kind in names), start=Fraction(1))


def check_credit(problem: Problem, head: Section) -> None:
    """Raises ``DocumentError`` for a credit for what is neither a mistake nor a convention."""
    known = [*CREDIT, *BY_NAME, *(said.name for said in problem.mistakes)]
    known += [name for row in CONVENTIONS for name in (row.name, f"{row.field}: {row.name}")]
    exam = head.section("exam", "exam")
    for section in (exam, *(ask.section for ask in problem.asks)):
        credit = section.get("credit") if section else None
        for key, _ in credit.entries if isinstance(credit, Section) else ():
            if key.text.replace(" ", "_") not in known and key.text not in known:
                near = nearest(key.text, known)
                raise DocumentError(f"no mistake or convention is called '{key.text[:40]}'", key.span, near)


def _credit(name: str, kind: str, told: list[Mapping[str, Fraction]]) -> Fraction:
    short = name.split(":")[-1].strip()
    for credit in told:
        for key in (name, short, name.replace("_", " "), kind):
            if key in credit:
                return credit[key]
    return CREDIT[kind]


def mark_of(
    verdict: Verdict, ask: Ask, problem: Problem, points: Fraction, reached: tuple[str, ...] = (), carried: str = ""
) -> Mark:
    """The points of an answer with its verdict.

    ``reached`` are the steps whose values the student wrote down. ``carried`` says from which earlier answer of the
    student's own it follows; it is then right as it stands.
    """
    lines = {line.step: line for line in ask.exam.rubric}
    by_steps = sum((lines[step].points for step in reached if step in lines), Fraction(0))
    share = share_of(verdict, ask, problem)
    earned = max(points * share, min(by_steps, points))
    names = (*verdict.conventions, *verdict.mistakes)
    says = [*verdict.says]
    if verdict.right and carried:
        says = [f"right, as it follows from the answer to {carried}"]
    elif verdict.right:
        says = ["right"]
    elif verdict.verdict == "other_convention":
        says[:1] = [f"right under another convention: {says[0]}"]
    elif not says:
        says = [_SAID.get(verdict.verdict, "")]
    if not verdict.right and reached:
        told = ", ".join(lines[step].says or step for step in reached if step in lines)
        says.append(f"reached: {told} ({points_text(by_steps)} points)")
    if verdict.hint and not verdict.right:
        says.append(verdict.hint)
    text = "; ".join(part.rstrip(".") for part in says if part)
    return Mark(earned, points, verdict.verdict, names, text, verdict.verdict in _OPEN, bool(carried and verdict.right))


_SAID = {"different": "not right", "unreadable": "could not be read", "undecided": "has to be looked at",
         "refused": "not read as an answer; a person looks at it"}  # fmt: skip
