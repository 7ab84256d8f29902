"""The points of the steps of an answer: as the author says, or shared among the lines a person writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from symcomm.derivation import Derivation
from symcomm.derivation.chosen import chosen
from symcomm.problems.problem import Problem
from symcomm.render.document import Answer, Block, StepPoints


def graded(problem: Problem, made: Sequence[Block]) -> list[Block]:
    """The blocks, with the points of the steps in every answer whose points are known."""
    answers = iter(problem.asks)
    alone = {id(q.asks[0]): q.points for q in problem.questions if len(q.asks) == 1}
    blocks: list[Block] = []
    for block in made:
        if isinstance(block, Answer):
            ask = next(answers)
            points = ask.points if ask.points is not None else alone.get(id(ask))
            told = tuple(StepPoints(f"`{line.step}`", line.points) for line in ask.exam.rubric)
            block = replace(block, grading=told or (shared(block.derivation, points) if points else ()))
        blocks.append(block)
    return blocks


def shared(derivation: Derivation, points: int) -> tuple[StepPoints, ...]:
    """Points shared among the lines of a derivation and its number; the first ones take what does not divide.

    >>> from symcomm.accounting import Accounting
    >>> from symcomm.derivation import Reason, Step
    >>> from symcomm.form import Sym, num, product
    >>> from symcomm.units import ONE
    >>> step = Step("V", product(num(2), Sym("n")), ONE, Reason("bytes", "Two each."))
    >>> shared(Derivation("bytes", Accounting(), (step,)), 5)
    (StepPoints(what='`V`', points=Fraction(3, 1)), StepPoints(what='the number, with its unit', points=Fraction(2, 1)))
    """
    lines = [line for line in chosen(derivation) if line.forms and line.name]
    what = [f"`{line.name}`" for line in lines[-max(1, min(4, points - 1)) :]] if points > 1 else []
    what.append("the number, with its unit")
    each, left = divmod(points, len(what))
    return tuple(StepPoints(name, Fraction(each + (i < left))) for i, name in enumerate(what))
