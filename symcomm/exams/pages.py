"""The pages of one student: the paper with room for answers, and its solution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from symcomm.core.errors import RenderError, Span
from symcomm.core.printing import markdown_text
from symcomm.core.units import ONE, Quantity
from symcomm.documents.render.document import Answer, Block, Document, Prose
from symcomm.documents.render.words import Words, words
from symcomm.exams.papers import Exam, Paper, PaperPart, check_prose, without_number
from symcomm.exams.problems.figures import Figure
from symcomm.exams.problems.problem import Ask, ModelBlock, Problem
from symcomm.exams.problems.solve import picture_of, solve
from symcomm.exams.rubric import points_text

_ROOM = "." * 60  # where the answer is written
_DIGITS = 3  # that an answer shall have, as in exports; two are enough to be right
_BLANK = "\N{NO-BREAK SPACE}" * 5  # where points are written


def paper_page(exam: Exam, paper: Paper) -> Document:
    """The paper of a student: questions with room for answers, and nothing that tells one.

    Raises ``DocumentError`` where the prose refers to an answer.
    """
    problem = paper.problem
    check_prose(problem.items)
    several, said = _several(paper), words_of(paper.problem.language)
    parts = exam.answered(paper)
    blocks: list[Block] = [_points_box(problem, said)] if problem.exam.points_box else []
    for item in problem.items:
        if isinstance(item, Ask):
            part, _, answer = next(parts)
            room = part.ask.exam.room or problem.exam.room
            blocks += [replace(field, room=room) for field in _field(part, part.number in several, said, answer)]
        elif isinstance(item, Figure):
            if item.paper:
                blocks.append(picture_of(problem, item, exam.kept.model(problem, item.model)))
        elif not isinstance(item, ModelBlock):
            blocks.append(item)
    return _page(exam, paper, tuple(blocks))


def solution_page(exam: Exam, paper: Paper) -> Document:
    """The same with the worked solution below each question."""
    parts, several, said = iter(paper.parts), _several(paper), words_of(paper.problem.language)
    blocks: list[Block] = []
    for block in solve(paper.problem, answering=exam.kept).blocks:
        if isinstance(block, Answer):
            part = next(parts)
            blocks += _field(part, part.number in several, said)
            block = replace(block, label=f"{part.number}" + (f" ({part.right})" if part.right else ""))
        blocks.append(block)
    return _page(exam, paper, tuple(blocks))


def _several(paper: Paper) -> set[str]:
    """The numbers of parts that share a heading with another one."""
    groups = [question.asks for question in paper.problem.questions]
    return {part.number for part in paper.parts for asks in groups if len(asks) > 1 and part.ask in asks}


def _page(exam: Exam, paper: Paper, blocks: tuple[Block, ...]) -> Document:
    problem, student = paper.problem, paper.student
    said = words_of(problem.language)
    seat = said.seat.replace("#", student.seat) if student.seat else ""
    told = [student.name, seat, said.sheet.replace("#", paper.code), problem.subtitle]
    # The title is repeated on every page, so that no loose sheet is without its student.
    return Document(
        f"{problem.title} · {student.id}", " · ".join(part for part in told if part), problem.authors, problem.date,
        problem.language, problem.file, problem.notation, blocks, problem.course, problem.detail, problem.extra,
    )  # fmt: skip


def words_of(language: str) -> Words:
    """The words of a language; the English ones of one whose words are in somebody's own templates."""
    return words(language if has_words(language) else "en")


def has_words(language: str) -> bool:
    """Whether symcomm itself has words in a language."""
    try:
        return bool(words(language))
    except RenderError:
        return False


def _points_box(problem: Problem, said: Words) -> Prose:
    """A table with a field for the points of each question, their sum and the grader."""
    asked = [question for question in problem.questions if question.points is not None]
    headings = [question.heading.markdown if question.heading else "" for question in asked]
    printed = [heading.removesuffix(without_number(heading)).strip(" .:)").split() for heading in headings]
    numbers = [words[-1] if words else f"{n}" for n, words in enumerate(printed, start=1)]
    points = [f"{_BLANK}/ {question.points}" for question in asked]
    total = f"{_BLANK}/ {sum(question.points or 0 for question in asked)}"
    rows = [
        [said.question_number, *numbers, said.total, said.grader], [":--", *["--:"] * (len(numbers) + 1), ":--"],
        [said.marks, *points, total, _BLANK * 3],
    ]  # fmt: skip
    return Prose("\n".join(f"| {' | '.join(row)} |" for row in rows), Span(problem.file, 0, "", 0, 0))


def _field(part: PaperPart, several: bool, said: Words, answer: Answer | None = None) -> Iterator[Prose]:
    """The place of an answer: its number, its points where there are several, and its options or room to write.

    On a paper the ``answer`` decides what is asked for, a formula or a number with so many digits and its unit.
    """
    told = [markdown_text(part.ask.label)] if part.ask.label else []
    if answer is not None and not part.choices:
        told += _asked_for(part.ask.answer.unit, answer.quantity, said)
    if several:
        told.append(said["point" if part.points == 1 else "points"].replace("#", points_text(part.points)))
    named = f"**{said.answer.replace('#', part.number)}**" + (f" ({', '.join(told)})" if told else "")
    if part.choices:
        letters = "ABCDEFGHIJ"
        lines = [f"{named}:" if answer is None else f"{named}: {said.one_of}", ""]
        for letter, choice in zip(letters, part.choices, strict=False):
            says = [markdown_text(said.catalogue(one)) for one in choice.says] if answer is None else []
            why = f" ({' '.join(says)})" if says else ""
            mark = " ✓" if answer is None and choice.right else ""
            tick = "[ ] " if answer is not None else ""
            lines.append(f"- {tick}**{letter}** {markdown_text(choice.text)}{mark}{why}")
        yield Prose("\n".join(lines), part.ask.span)
    elif answer is not None:
        yield Prose(f"{named}: {_ROOM}", part.ask.span)


def _asked_for(unit: str, right: Quantity | None, said: Words) -> Iterator[str]:
    """What an answer has to have: the unit that is named, or one of its own where it is no mere count, and digits."""
    if right is None:
        yield said.formula
        return
    if unit or right.unit != ONE:
        yield f"{said.unit} {markdown_text(unit)}" if unit else said.with_unit
    yield said.digits.replace("#", f"{_DIGITS}")
