"""An outline for Gradescope: a row for each answer of each variant, with its points and what a rubric gives."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from symcomm.exams.exports.item import Item, QuestionPart, number_text
from symcomm.exams.exports.markup import plain_text
from symcomm.exams.roster import csv_text

COLUMNS = ("variant", "question", "title", "points", "answer", "unit", "tolerance", "rubric")


def piece(title: str, item: Item) -> dict[str, Any]:
    """The rows of an item, each but for the number of its question."""
    return {"id": item.id, "variant": item.variant, "rows": [_row(item, part) for part in item.parts]}


def whole(title: str, pieces: Sequence[dict[str, Any]]) -> dict[str, bytes]:
    """One CSV file, the questions of a variant together."""
    numbers = {name: n for n, name in enumerate(dict.fromkeys(one["id"] for one in pieces), start=1)}
    rows = []
    for one in sorted(pieces, key=lambda one: (one["variant"], numbers[one["id"]])):
        for n, row in enumerate(one["rows"], start=1):
            number = f"{numbers[one['id']]}.{n}" if len(one["rows"]) > 1 else str(numbers[one["id"]])
            rows.append([str(one["variant"]), number, *row])
    return {"gradescope.csv": csv_text(COLUMNS, rows).encode()}


def _row(item: Item, part: QuestionPart) -> list[str]:
    if part.kind == "numeric":
        answer, tolerance = part.texts(part.answer)
    else:
        answer, tolerance = plain_text(next((o.text for o in part.options if o.right), part.worked)), ""
    lines = [(part.points, "right")]
    if part.kind != "choice":
        lines += [(part.points * one.credit, plain_text(one.feedback)) for one in part.recognised]
    rubric = "; ".join(f"{_points(points)}: {said}" for points, said in dict.fromkeys(lines))
    return [item.title, _points(part.points), answer, part.unit, tolerance, rubric]


def _points(points: Fraction) -> str:
    return number_text(points, Fraction(1, 100))
