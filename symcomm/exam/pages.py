"""The pages of one student: the paper with room for answers, and its solution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from symcomm.exam.papers import Exam, Paper, Part, check_prose
from symcomm.printing import markdown_text
from symcomm.problems.figures import Figure
from symcomm.problems.problem import Ask, ModelBlock
from symcomm.problems.solve import picture_of, solve
from symcomm.render.document import Answer, Block, Document, Prose

_ROOM = "." * 60  # where the answer is written


def paper_page(exam: Exam, paper: Paper) -> Document:
    """What a student gets: questions with room for answers, and nothing that tells one.

    Raises ``DocumentError`` where the prose refers to an answer.
    """
    problem = paper.problem
    check_prose(problem.items)
    parts = iter(paper.parts)
    blocks: list[Block] = []
    for item in problem.items:
        if isinstance(item, Ask):
            blocks += _field(next(parts))
        elif isinstance(item, Figure):
            if item.paper:
                blocks.append(picture_of(problem, item, exam.kept.model(problem, item.model)))
        elif not isinstance(item, ModelBlock):
            blocks.append(item)
    return _page(exam, paper, tuple(blocks))


def solution_page(exam: Exam, paper: Paper) -> Document:
    """The same with the worked solution below each question."""
    parts = iter(paper.parts)
    blocks: list[Block] = []
    for block in solve(paper.problem, answering=exam.kept).blocks:
        if isinstance(block, Answer):
            part = next(parts)
            blocks += _field(part, solved=True)
            block = replace(block, label=f"{part.number}" + (f" ({part.right})" if part.right else ""))
        blocks.append(block)
    return _page(exam, paper, tuple(blocks))


def _page(exam: Exam, paper: Paper, blocks: tuple[Block, ...]) -> Document:
    problem, student = paper.problem, paper.student
    seat = f"seat {student.seat}" if student.seat else ""
    told = [student.name, seat, f"paper {paper.code}", problem.subtitle]
    # The title is repeated on every page, so that no loose sheet is without its student.
    return Document(
        f"{problem.title} · {student.id}", " · ".join(part for part in told if part), problem.authors, problem.date,
        problem.language, problem.file, problem.notation, blocks,
    )  # fmt: skip


def _field(part: Part, solved: bool = False) -> Iterator[Prose]:
    """The place of an answer: its number, its points, and its options or room to write."""
    label = f" {markdown_text(part.ask.label)}" if part.ask.label else ""
    word = "point" if part.points == 1 else "points"
    yield Prose(f"**{part.number}**{label} *({part.points} {word})*", part.ask.span)
    if part.choices:
        letters = "ABCDEFGHIJ"
        lines = []
        for letter, choice in zip(letters, part.choices, strict=False):
            why = f" ({'; '.join(markdown_text(says) for says in choice.says)})" if solved and choice.says else ""
            mark = " ✓" if solved and choice.right else ""
            lines.append(f"- **{letter}** {markdown_text(choice.text)}{mark}{why}")
        yield Prose("\n".join(lines), part.ask.span)
    elif not solved:
        yield Prose(f"Answer {part.number}: {_ROOM}", part.ask.span)
