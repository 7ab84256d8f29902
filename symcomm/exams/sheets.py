"""Answer sheets: what students wrote, as CSV (one row a student) or JSON (forms), and the papers it belongs to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from symcomm.core.errors import DocumentError, Span, nearest
from symcomm.core.files import read_text
from symcomm.core.records import dataclass
from symcomm.exams.papers import Exam, Paper
from symcomm.exams.problems.problem import Template
from symcomm.exams.problems.randomness import NAME
from symcomm.exams.roster import Student, no_column, read_csv

ANSWER_LIMIT = 200_000  # characters of one cell that are read at all; the checker refuses far shorter ones
_FORM = 'such as {"student": "s001", "answers": {"1a": "6.44 GB"}}'
_STUDENT = ("id", "student", "student id", "student_id")
_KEYED = ("number", "id", "points", "choice", "value")  # what a key has of each answer that may be compared
_OTHER = ("name", "seat", "paper", "time", "timestamp", "email")


@dataclass(frozen=True)
class Sheet:
    """The answers of one student, by the numbers or ids of the questions."""

    student: str
    answers: Mapping[str, str]
    span: Span

    def answer(self, number: str, name: str) -> str:
        """The answer to a question, by its number on the paper or its id in the document."""
        return self.answers.get(number) or self.answers.get(name, "")


def read_sheets(path: Path) -> tuple[Sheet, ...]:
    """The answer sheets of a file: JSON where its name ends so, else CSV.

    Raises ``DocumentError`` with the line for a sheet without a student, or two of one student.
    """
    made = tuple(_from_json(path) if path.suffix.lower() == ".json" else _from_csv(path))
    seen: dict[str, Span] = {}
    for sheet in made:
        if sheet.student in seen:
            first = seen[sheet.student]
            where = first.file if path.suffix.lower() == ".json" else f"line {first.line}"
            raise DocumentError(f"two answer sheets of {sheet.student[:40]}", sheet.span,
                                f"first in {where}; each student has one, with all questions in it")  # fmt: skip
        seen[sheet.student] = sheet.span
    if not made:
        raise DocumentError(f"{path} has no answers")
    return made


def _from_csv(path: Path) -> Iterable[Sheet]:
    header, rows = read_csv(path)
    at = next((n for n, name in enumerate(header) if name.lower() in _STUDENT), None)
    if at is None:
        raise no_column(path, header, "id")
    doubled = next((name for n, name in enumerate(header) if name and name in header[:n]), None)
    if doubled:
        raise DocumentError(f"the column {doubled[:40]} is there twice", Span(str(path), 1, ",".join(header), 0, 1))
    for line, row in rows:
        student = row[at].strip() if at < len(row) else ""
        span = Span(str(path), line, ",".join(row)[:400], 0, max(1, len(student)))
        if not student:
            raise DocumentError("an answer sheet without a student", span)
        if any(cell.strip() for cell in row[len(header) :]):
            said = f"the row of {student[:40]} has {len(row)} cells, but the header has {len(header)}"
            raise DocumentError(said, span, 'put an answer with commas in quotation marks: "50,331,648 B"')
        cells = {
            name: cell for name, cell in zip(header, row, strict=False) if name.lower() not in (*_STUDENT, *_OTHER)
        }
        yield Sheet(student, _cleaned(cells, span), span)


def _from_json(path: Path) -> Iterable[Sheet]:
    text = read_text(path)
    try:
        read = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (json.JSONDecodeError, RecursionError) as error:
        said = f"the file is no JSON: {getattr(error, 'msg', 'nested too deep')}"
        raise DocumentError(said, Span.in_text(str(path), text, getattr(error, "pos", 0)), _FORM) from None
    forms = read if isinstance(read, list) else read.get("sheets", [read]) if isinstance(read, dict) else []
    for number, form in enumerate(forms, start=1):
        span = Span(f"{path}, form {number}", 1, "", 0, 0)
        if not isinstance(form, dict):
            raise DocumentError("a form is a mapping of questions to answers", span, _FORM)
        student = next((str(form[key]).strip() for key in form if key.lower() in _STUDENT), "")
        if not student:
            raise DocumentError("a form without a student", span, _FORM)
        answers = form.get("answers")
        if not isinstance(answers, dict):
            answers = {key: value for key, value in form.items() if key.lower() not in (*_STUDENT, *_OTHER)}
        yield Sheet(student, _cleaned(answers, span), span)


def _cleaned(answers: Mapping[str, Any], span: Span) -> dict[str, str]:
    made = {}
    for name, value in answers.items():
        if value is not None and not isinstance(value, (str, bool)):
            raise DocumentError(f"the answer to {name[:40]} is neither text nor a number", span)
        made[name.strip()] = "" if value is None else str(value).strip()[:ANSWER_LIMIT]
    return made


def papers_of(template: Template, keys: Path) -> tuple[Exam, tuple[Paper, ...]]:
    """The papers that a key file tells of, drawn again, and their exam.

    Raises ``DocumentError`` where the draws of the document are not those that the papers were made from, and with the
    paper where something in the file was changed.
    """
    try:
        read = json.loads(read_text(keys))
        said, seed, lines = str(read["draws"]), str(read["seed"]), list(read["papers"])
        students = [Student(*(str(line[key]) for key in ("student", "name", "seat"))) for line in lines]
        attempts = [int(line["attempt"]) for line in lines]
        codes = [str(line["paper"]) for line in lines]
        generator = str(read["generator"])
        keyed = [[tuple(map(str, line["drawn"].values())),
                  *(tuple(str(part.get(key, "")) for key in _KEYED) for part in line["answers"])]
                 for line in lines]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DocumentError(f"{keys} is no key file", hint="symcomm exam ... --to json writes keys.json") from None
    if said != template.draws.digest:
        raise DocumentError(f"the draws of {keys} differ from the ones of {template.file}",
                            hint="grade with the document that the papers were made from")  # fmt: skip
    if generator != NAME:
        raise DocumentError(f"{keys}: its papers were drawn by '{generator[:40]}', and this version draws by {NAME}",
                            hint="grade with the version that made the papers")  # fmt: skip
    exam = Exam(template, seed)
    made = tuple(exam.exactly(student, attempt) for student, attempt in zip(students, attempts, strict=True))
    first: dict[str, int] = {}
    for row, (paper, code, parts) in enumerate(zip(made, codes, keyed, strict=True), start=1):
        here, name = f"{keys}, paper {row}", paper.student.id
        if first.setdefault(name, row) != row:
            raise DocumentError(f"{here}: {name[:40]} has two papers", hint=f"the first is paper {first[name]}")
        if paper.code != code:
            raise DocumentError(f"{here}: the paper {code[:20]} of {name[:40]} is not drawn again")
        drawn = [tuple(value.text for value in paper.drawn.values())]
        for part, _, answer in exam.answered(paper):
            value = "" if answer.quantity is None else str(answer.quantity.value)
            drawn.append((part.number, part.id, str(part.points), part.right, value))
        for told, own in zip_longest(parts, drawn):
            if told != own:
                was, now = (", ".join(filter(None, one or ("nothing",)))[:60] for one in (told, own))
                raise DocumentError(f"{here}: the key of {name[:40]} was changed: it has {was}, and the document {now}",
                                    hint="use the file as symcomm exam wrote it")  # fmt: skip
    return exam, made


def check_columns(sheets: Iterable[Sheet], papers: Iterable[Paper]) -> None:
    """Raises ``DocumentError`` for a sheet of nobody, and for an answer to a question that no paper has."""
    known: dict[str, set[str]] = {}
    every: set[str] = set()
    for paper in papers:
        mine = {name for part in paper.parts for name in (part.number, part.id)}
        known[paper.student.id] = mine
        every |= mine
    for sheet in sheets:
        if sheet.student not in known:
            raise DocumentError(
                f"no paper was made for {sheet.student[:40]}", sheet.span, nearest(sheet.student, [*known])
            )
        for name, text in sheet.answers.items():
            if text and name not in every:
                raise DocumentError(f"no paper has a question {name[:40]}", sheet.span, nearest(name, sorted(every)))
