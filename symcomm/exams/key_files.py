"""The keys of a class as JSON and CSV: what each paper drew, and each answer with its number and formula."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from symcomm.exams.papers import Exam, Paper
from symcomm.exams.problems.randomness import NAME
from symcomm.exams.roster import csv_text

COLUMNS = ("student", "name", "seat", "paper", "attempt", "number", "id", "points", "choice", "answer", "value",
           "unit", "formula")  # fmt: skip


def key_record(exam: Exam, paper: Paper) -> dict[str, Any]:
    """The key of one paper as plain data."""
    answers = []
    for part, answer in zip(paper.parts, exam.answers(paper), strict=True):
        quantity = answer.quantity
        record: dict[str, Any] = {
            "number": part.number, "id": part.id, "points": str(part.points),
            "answer": "" if quantity is None else str(quantity),
            "value": "" if quantity is None else str(quantity.value), "unit": str(answer.derivation.unit),
            "formula": exam.kept.formula(answer.derivation),
        }  # fmt: skip
        if part.choices:
            record |= {"choice": part.right, "options": [choice.text for choice in part.choices]}
        answers.append(record)
    student = paper.student
    return {
        "student": student.id, "name": student.name, "seat": student.seat, "paper": paper.code,
        "attempt": paper.attempt, "drawn": {name: told.text for name, told in paper.drawn.items()},
        "answers": answers,
    }  # fmt: skip


def keys_json(exam: Exam, records: Iterable[dict[str, Any]]) -> str:
    """All keys as one JSON file."""
    head = {"file": exam.example.title, "seed": exam.seed, "generator": NAME, "draws": exam.template.draws.digest}
    lines = ",\n".join(json.dumps(record, ensure_ascii=False) for record in records)
    return json.dumps(head, ensure_ascii=False)[:-1] + f', "papers": [\n{lines}\n]}}\n'


def keys_csv(records: Iterable[dict[str, Any]]) -> str:
    """All keys as CSV: one row an answer."""
    rows = []
    for record in records:
        head = [record[key] for key in COLUMNS[:5]]
        rows += [[*head, *(answer.get(key, "") for key in COLUMNS[5:])] for answer in record["answers"]]
    return csv_text(COLUMNS, rows)
