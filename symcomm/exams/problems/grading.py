"""The points of each question, and of the steps of its answer as the author says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from symcomm.core.errors import DocumentError
from symcomm.documents.render.document import Answer, Block, StepPoints
from symcomm.exams.problems.problem import Problem


def graded(problem: Problem, made: Sequence[Block]) -> list[Block]:
    """The blocks, with what the steps are worth in every answer whose points are known."""
    answers = iter(problem.asks)
    worth = points_of(problem)
    said = {id(a) for q in problem.questions if q.heading and q.heading.points is not None for a in q.asks}
    blocks: list[Block] = []
    for block in made:
        if isinstance(block, Answer):
            ask = next(answers)
            points = worth[id(ask)] if ask.points is not None or id(ask) in said else Fraction(0)
            told = tuple(StepPoints(f"`{line.step}`", line.points) for line in ask.exam.rubric)
            block = replace(block, rubric=told, shared=points)
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
