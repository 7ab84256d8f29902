"""An outline for Gradescope: a row for each answer of each variant, with its points and what a rubric gives."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from symcomm.exam.exports.item import Item, QuestionPart, number_text
from symcomm.exam.exports.markup import plain_text
from symcomm.exam.roster import csv_text

COLUMNS = ("variant", "question", "title", "points", "answer", "unit", "tolerance", "rubric")


def files(title: str, items: Sequence[Item]) -> dict[str, bytes]:
    """One CSV file, the questions of a variant together."""
    numbers = {name: n for n, name in enumerate(dict.fromkeys(item.id for item in items), start=1)}
    rows = [
        _row(item, part, f"{numbers[item.id]}.{n}" if len(item.parts) > 1 else str(numbers[item.id]))
        for item in sorted(items, key=lambda item: (item.variant, numbers[item.id]))
        for n, part in enumerate(item.parts, start=1)
    ]
    return {"gradescope.csv": csv_text(COLUMNS, rows).encode()}


def _row(item: Item, part: QuestionPart, number: str) -> list[str]:
    if part.kind == "numeric":
        assert part.answer is not None
        spread = part.spread(part.answer)
        answer, tolerance = part.text, number_text(spread, spread)
    elif part.kind == "choice":
        answer, tolerance = plain_text(next(o.text for o in part.options if o.right)), ""
    else:
        answer, tolerance = plain_text(part.worked), ""
    lines = [(part.points, "right")]
    if part.kind != "choice":
        lines += [(part.points * one.credit, plain_text(one.feedback)) for one in part.recognised]
    rubric = "; ".join(f"{_points(points)}: {said}" for points, said in dict.fromkeys(lines))
    return [str(item.variant), number, item.title, _points(part.points), answer, part.unit, tolerance, rubric]


def _points(points: Fraction) -> str:
    return number_text(points, Fraction(1, 100))
