"""Grading as it is called: a problem document, the answer sheets of a class, and which papers they belong to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from symcomm.core.errors import DocumentError
from symcomm.exams.grading import grade as graded
from symcomm.exams.papers import Exam
from symcomm.exams.problems.problem import read_template
from symcomm.exams.roster import numbered, read_roster
from symcomm.exams.sheets import papers_of, read_sheets
from symcomm.exams.summary import Grades, read_decisions


def grade(
    file: str | Path, answers: str | Path, *, keys: str | Path | None = None, roster: str | Path | None = None,
    variants: int | None = None, seed: str | int = "0", decisions: str | Path | None = None,
    progress: Callable[[int, int, str], None] | None = None, processes: int | None = 1,
) -> Grades:  # fmt: skip
    """The grades of a class: answer sheets (CSV, or JSON of forms) against the papers drawn from a problem document.

    The papers are those of ``keys`` (the ``keys.json`` beside them), or of a ``roster`` or so many ``variants`` with
    their ``seed``. ``decisions`` is a ``look-at.csv`` with points filled in. Several ``processes`` (None: one for each
    core) share the questions. In a notebook the grades show as tables; ``frame`` gives them to pandas. Nothing is
    written.

    Raises ``DocumentError`` where it is not said which papers, and for a file that cannot be read.

    ``symcomm.grade("midterm.md", "answers.csv", keys="out/keys.json").frame("questions")``
    """
    if sum(given is not None for given in (keys, roster, variants)) != 1:
        raise DocumentError("say which papers: keys (out/keys.json), or the roster or variants they were made with",
                            hint="one of the three")  # fmt: skip
    template, sheets = read_template(Path(file)), read_sheets(Path(answers))
    decided = read_decisions(Path(decisions)) if decisions is not None else ()
    if keys is not None:
        exam, papers = papers_of(template, Path(keys))
    else:
        exam = Exam(template, str(seed))
        papers = exam.settle(read_roster(Path(roster)) if roster is not None else numbered(variants or 0))
    return graded(exam, papers, sheets, decided, progress, processes)
