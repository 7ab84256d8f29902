"""The points of the steps of an answer: as the author says, or shared among the lines a person writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from symcomm.core.derivation import Derivation
from symcomm.core.derivation.chosen import chosen
from symcomm.core.errors import DocumentError
from symcomm.documents.render.document import Answer, Block, StepPoints
from symcomm.exams.problems.problem import Problem


def graded(problem: Problem, made: Sequence[Block]) -> list[Block]:
    """The blocks, with the points of the steps in every answer whose points are known."""
    answers = iter(problem.asks)
    worth = points_of(problem)
    said = {id(a) for q in problem.questions if q.heading and q.heading.points is not None for a in q.asks}
    blocks: list[Block] = []
    for block in made:
        if isinstance(block, Answer):
            ask = next(answers)
            points = worth[id(ask)] if ask.points is not None or id(ask) in said else Fraction(0)
            told = tuple(StepPoints(f"`{line.step}`", line.points) for line in ask.exam.rubric)
            block = replace(block, grading=told or (shared(block.derivation, points) if points else ()))
        blocks.append(block)
    return blocks


def points_of(problem: Problem) -> dict[int, Fraction]:
    """The points of each ask, by its identity: its own, or a share of its heading's; one where none are given.

    Raises ``DocumentError`` where the points of asks are more than those of their heading.
    """
    made: dict[int, Fraction] = {}
    for question in problem.questions:
        open_asks = [ask for ask in question.asks if ask.points is None]
        rubrics = {id(ask): sum((line.points for line in ask.exam.rubric), Fraction(0)) for ask in open_asks}
        made |= {id(ask): Fraction(ask.points) for ask in question.asks if ask.points is not None}
        made |= {key: points for key, points in rubrics.items() if points}
        left = [ask for ask in open_asks if not rubrics[id(ask)]]
        whole = question.heading.points if question.heading else None
        spent = sum((made[id(ask)] for ask in question.asks if id(ask) in made), Fraction(0))
        if whole is not None and (spent > whole or (not left and spent != whole)):
            span = question.heading.span if question.heading else None
            raise DocumentError(f"the parts have {spent} points, but the question {whole}", span)
        share = Fraction(1) if whole is None else (whole - spent) / max(1, len(left))
        made |= {id(ask): share for ask in left}
    return made


def shared(derivation: Derivation, points: Fraction) -> tuple[StepPoints, ...]:
    """Points shared among the lines of a derivation and its number; the first ones take what does not divide.

    >>> from symcomm.core.accounting import Accounting
    >>> from symcomm.core.derivation import Reason, Step
    >>> from symcomm.core.form import Sym, num, product
    >>> from symcomm.core.units import ONE
    >>> step = Step("V", product(num(2), Sym("n")), ONE, Reason("bytes", "Two each."))
    >>> shared(Derivation("bytes", Accounting(), (step,)), Fraction(5))
    (StepPoints(what='`V`', points=Fraction(3, 1)), StepPoints(what='the number, with its unit', points=Fraction(2, 1)))
    """
    lines = [line for line in chosen(derivation) if line.forms and line.name]
    what = [f"`{line.name}`" for line in lines[-max(1, min(4, int(points) - 1)) :]] if points > 1 else []
    what.append("the number, with its unit")
    each, left = divmod(points, len(what))
    return tuple(StepPoints(name, each + min(Fraction(1), max(Fraction(0), left - i))) for i, name in enumerate(what))
