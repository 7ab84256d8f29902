"""The results of grading: grades as CSV, a summary of each question, a picture, and a list of answers to look at."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from symcomm.core.errors import DocumentError, Span
from symcomm.core.records import dataclass
from symcomm.exams.papers import Paper, PaperPart
from symcomm.exams.roster import csv_text, no_column, read_csv
from symcomm.exams.rubric import Mark, points_text

if TYPE_CHECKING:
    from pandas import DataFrame

MANY = 3  # students who gave the same unknown wrong answer, so that a person should look at it
VERDICTS = ("right", "other_convention", "mistake", "different", "undecided", "unreadable", "refused", "decided",
            "none")  # fmt: skip
LOOK = ("question", "answer", "verdict", "count", "students", "points", "says")


@dataclass(frozen=True)
class Graded:
    """One answer with its mark: the question's id and number, what was written, and the key's number and formula."""

    student: str
    part: PaperPart
    text: str
    mark: Mark
    key: str


@dataclass(frozen=True)
class Decision:
    """A grader's decision on an answer, for everybody who gave it."""

    question: str
    answer: str
    points: Fraction
    says: str = ""


@dataclass(frozen=True)
class Grades:
    """The marks of a class, in the order of its papers."""

    papers: tuple[Paper, ...]
    graded: tuple[Graded, ...]

    @cached_property
    def by_student(self) -> Mapping[str, tuple[Graded, ...]]:
        """The marks of each student."""
        found: dict[str, list[Graded]] = {paper.student.id: [] for paper in self.papers}
        for one in self.graded:
            found[one.student].append(one)
        return {name: tuple(marks) for name, marks in found.items()}

    @cached_property
    def by_question(self) -> Mapping[str, tuple[Graded, ...]]:
        """The marks of each question by its id."""
        found: dict[str, list[Graded]] = {}
        for one in self.graded:
            found.setdefault(one.part.id, []).append(one)
        return {name: tuple(found[name]) for name in sorted(found)}

    def points(self, student: str) -> Fraction:
        """All points of a student."""
        return sum((one.mark.points for one in self.by_student[student]), Fraction(0))

    def frame(self, table: Literal["students", "questions", "look at"] = "students") -> DataFrame:
        """A table for pandas: the points of each student, the summary of each question, or what has to be looked at.

        Raises ``DocumentError`` where pandas is missing.
        """
        try:
            import pandas
        except ImportError as error:
            raise DocumentError.lacking("search", "pandas is missing: no table can be made") from error
        written = {"students": grades_csv, "questions": summary_csv, "look at": look_csv}[table](self)
        text = ("id", "name", "seat", "paper", "question", "answer", "students", "feedback", "mistakes", "says")
        return pandas.read_csv(io.StringIO(written), dtype=dict.fromkeys(text, str), keep_default_na=False,
                               na_values={"points": [""]})  # fmt: skip

    def __repr__(self) -> str:
        return f"<Grades of {len(self.papers)} students, {len(self.graded)} answers>"

    def _repr_html_(self) -> str:
        return html(self)

    def _repr_markdown_(self) -> str:
        return markdown(self)


@dataclass(frozen=True)
class SummaryLine:
    """One question in the summary: points on average and at most, and how often each verdict and mistake."""

    question: str
    answers: int
    average: Fraction
    of: Fraction
    verdicts: tuple[tuple[str, int], ...]
    mistakes: tuple[tuple[str, int], ...]


def summary(grades: Grades) -> tuple[SummaryLine, ...]:
    """One line a question, by the ids of the document."""
    made = []
    for name, marks in grades.by_question.items():
        verdicts = Counter("right" if one.mark.follows else one.mark.verdict for one in marks)
        mistakes = Counter(
            " and ".join(one.mark.names) for one in marks if one.mark.names and one.mark.verdict != "right"
        )
        points = sum((one.mark.points for one in marks), Fraction(0))
        made.append(
            SummaryLine(
                name, len(marks), points / len(marks), marks[0].part.points,
                tuple((v, verdicts[v]) for v in VERDICTS if verdicts[v]), tuple(mistakes.most_common()),
            )
        )  # fmt: skip
    return tuple(made)


def look_at(grades: Grades) -> tuple[tuple[str, str, str, int, tuple[str, ...]], ...]:
    """The answers that a grader has to look at: question, answer, verdict, how many gave it, who.

    These are answers that are undecided, unreadable or refused, and wrong ones that several gave for no known reason.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    for one in grades.graded:
        if one.mark.open or one.mark.verdict == "different":
            found.setdefault((one.part.id, one.text, one.mark.verdict), []).append(one.student)
    rows = [
        (question, text, verdict, len(students), tuple(students))
        for (question, text, verdict), students in found.items()
        if verdict != "different" or len(students) >= MANY
    ]
    return tuple(sorted(rows, key=lambda row: (-row[3], row[0], row[1])))


# -- tables -----------------------------------------------------------------------------------------


def grades_csv(grades: Grades) -> str:
    """One row a student: the points of each question by its number on the paper, their sum, and the feedback."""
    most = max((len(marks) for marks in grades.by_student.values()), default=0)
    header = ["id", "name", "seat", "paper", "points", "of"]
    for n in range(1, most + 1):
        header += [f"question {n}", f"points {n}"]
    rows = []
    for paper in grades.papers:
        marks = grades.by_student[paper.student.id]
        whole = sum((one.mark.of for one in marks), Fraction(0))
        row: list[object] = [paper.student.id, paper.student.name, paper.student.seat, paper.code,
                             points_text(grades.points(paper.student.id)), points_text(whole)]  # fmt: skip
        for one in marks:
            row += [one.part.number, points_text(one.mark.points)]
        rows.append([*row, *[""] * (len(header) - len(row)), feedback(marks)])
    return csv_text([*header, "feedback"], rows)


def feedback(marks: Iterable[Graded]) -> str:
    """The feedback to a student: for each answer its points, why, and the key where it is not right."""
    told = []
    for one in marks:
        key = "" if one.mark.verdict == "right" and not one.mark.follows else f" (key: {one.key})"
        told.append(f"{one.part.number}: {one.mark.told}, {one.mark.says or one.mark.verdict}{key}.")
    return " ".join(told)


def look_csv(grades: Grades) -> str:
    """The answers that a grader has to look at, as CSV; with points filled in it is read again as decisions."""
    rows = [[q, text, verdict, count, " ".join(who), "", ""] for q, text, verdict, count, who in look_at(grades)]
    return csv_text(LOOK, rows)


def read_decisions(path: Path) -> tuple[Decision, ...]:
    """The decisions of a person: rows of the look-at list whose points are filled in."""
    header, rows = read_csv(path)
    missing = [name for name in ("question", "answer", "points") if name not in header]
    if missing:
        raise no_column(path, header, missing[0])
    made = []
    for line, row in rows:
        told = dict(zip(header, row, strict=False))
        points, span = told.get("points", "").strip(), Span(str(path), line, ",".join(row)[:400], 0, 1)
        if not points:
            continue
        if not re.fullmatch(r"[-+]?(\d{1,9}|\d{0,9}\.\d{1,9}|\d{1,9}/0*[1-9]\d{0,8})", points, re.ASCII):
            raise DocumentError(f"'{points[:40]}' are no points", span, "such as 2, 0.5 or 1/3")
        number = Fraction(points)
        if not 0 <= number <= 10_000:
            raise DocumentError(f"{points[:40]} points", span, "from 0 to the points of the question")
        answer = told["answer"]
        answer = answer[1:] if answer[:1] == "'" and answer[1:2] in "=+-@|%" else answer
        made.append(Decision(told["question"].strip(), answer, number, told.get("says", "").strip()))
    return tuple(made)


def summary_csv(grades: Grades) -> str:
    """The summary of each question as CSV."""
    rows = []
    for line in summary(grades):
        verdicts = dict(line.verdicts)
        mistakes = "; ".join(f"{name} ({count})" for name, count in line.mistakes)
        rows.append([line.question, line.answers, points_text(line.average), points_text(line.of),
                     *(verdicts.get(v, 0) for v in VERDICTS), mistakes])  # fmt: skip
    return csv_text(["question", "answers", "average", "of", *VERDICTS, "mistakes"], rows)


def grades_json(grades: Grades) -> str:
    """Everything as plain data."""
    made: list[dict[str, Any]] = []
    for paper in grades.papers:
        marks = grades.by_student[paper.student.id]
        answers = [
            {"number": one.part.number, "id": one.part.id, "text": one.text, "points": str(one.mark.points),
             "of": str(one.mark.of), "verdict": one.mark.verdict, "names": list(one.mark.names), "says": one.mark.says,
             "follows": one.mark.follows, "open": one.mark.open, "key": one.key}
            for one in marks
        ]  # fmt: skip
        points = str(grades.points(paper.student.id))
        made.append({"student": paper.student.id, "name": paper.student.name, "points": points, "answers": answers})
    return json.dumps({"students": made}, ensure_ascii=False, indent=1) + "\n"


def markdown(grades: Grades) -> str:
    """The summary as Markdown: the points of the class, each question, and what has to be looked at."""
    from symcomm.core.printing import markdown_text

    if not grades.papers:
        return "No students.\n"
    sums = sorted(grades.points(paper.student.id) for paper in grades.papers)
    most = max(sum((m.mark.of for m in marks), Fraction(0)) for marks in grades.by_student.values())
    middle = (sums[(len(sums) - 1) // 2] + sums[len(sums) // 2]) / 2
    average = sum(sums, Fraction(0)) / len(sums)
    lines = [
        f"{len(sums)} students, {points_text(most)} points: {points_text(average)} on average, "
        f"{points_text(middle)} in the middle, {points_text(sums[0])} to {points_text(sums[-1])}.",
        "",
        "| question | answers | average | right | other convention | mistake | different | open | none | mistakes |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]  # fmt: skip
    for line in summary(grades):
        v = dict(line.verdicts)
        still = v.get("undecided", 0) + v.get("unreadable", 0) + v.get("refused", 0)
        mistakes = ", ".join(f"{markdown_text(name)} ({count})" for name, count in line.mistakes[:5])
        cells = [markdown_text(line.question), line.answers, f"{points_text(line.average)} of {points_text(line.of)}",
                 v.get("right", 0), v.get("other_convention", 0), v.get("mistake", 0),
                 v.get("different", 0), still, v.get("none", 0), mistakes]  # fmt: skip
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    looked = look_at(grades)
    if looked:
        lines += ["", "To be looked at:", ""]
        lines += [
            f"- {markdown_text(q)}: {count} × `{_code(text)}` ({verdict})" for q, text, verdict, count, _ in looked
        ]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """An answer in a line of Markdown, which it cannot leave."""
    text = "".join(c if c.isprintable() else "�" for c in text.replace("`", "'"))
    return text if len(text) <= 80 else text[:77] + "..."


def html(grades: Grades) -> str:
    """The same as HTML tables, for notebooks."""
    from html import escape

    def table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
        head = "".join(f"<th>{escape(str(cell))}</th>" for cell in header)
        body = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    told = [
        [line.question, line.answers, f"{points_text(line.average)} of {points_text(line.of)}",
         ", ".join(f"{v.replace('_', ' ')} {n}" for v, n in line.verdicts),
         ", ".join(f"{name} ({n})" for name, n in line.mistakes)]
        for line in summary(grades)
    ]  # fmt: skip
    students = [
        [who.id, who.name, points_text(grades.points(who.id)), feedback(grades.by_student[who.id])]
        for who in (paper.student for paper in grades.papers)
    ]
    return table(["question", "answers", "points", "verdicts", "mistakes"], told) + table(
        ["id", "name", "points", "feedback"], students
    )


def picture(grades: Grades) -> Any:
    """How often each verdict, one bar a question, drawn with Matplotlib."""
    from symcomm.documents.plots.figure import BLUE, GREEN, IDLE, ORANGE, PINK, RED, SKY, SOFT, below, figure

    lines = summary(grades)
    made = figure(7.2, 1.2 + 0.34 * len(lines))
    axes = made.add_subplot()
    colours = dict(zip(VERDICTS, (GREEN, SKY, ORANGE, RED, PINK, "#8C6D31", "#000000", BLUE, IDLE), strict=True))
    left = [0] * len(lines)
    for verdict in VERDICTS:
        counts = [dict(line.verdicts).get(verdict, 0) for line in lines]
        if any(counts):
            axes.barh(range(len(lines)), counts, left=left, color=colours[verdict], label=verdict.replace("_", " "))
            left = [a + b for a, b in zip(left, counts, strict=True)]
    axes.set_yticks(range(len(lines)), [line.question.replace("$", r"\$") for line in lines])
    axes.invert_yaxis()
    axes.set_xlabel("answers")
    axes.tick_params(colors=SOFT)
    axes.spines[["top", "right"]].set_visible(False)
    if lines:
        below(axes)
    return made
