"""Exports of drawn questions to the systems where exams are held: one file and one row of ``EXPORTERS`` each.

An exporter is a function ``(title, items) -> {file name: bytes}`` that derives nothing; ``register`` adds a teacher's
own one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from symcomm.errors import DocumentError
from symcomm.exam.exports import gradescope, moodle, prairielearn, qti12, qti21, stack
from symcomm.exam.exports.item import Item

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class Exporter:
    """A format: its name, what it is for, and the function that writes items down as files."""

    name: str
    says: str
    files: Callable[[str, Sequence[Item]], Files]


EXPORTERS = {
    exporter.name: exporter for exporter in (
        Exporter("moodle", "Moodle XML: numerical, multiple choice, cloze", moodle.files),
        Exporter("stack", "STACK questions as Moodle XML: formulas compared by Maxima", stack.files),
        Exporter("qti12", "QTI 1.2 for Canvas: a question bank for each question", qti12.files),
        Exporter("qti12-mathjax", r"The same with \(...\) instead of Canvas' own equations", qti12.with_mathjax),
        Exporter("qti21", "QTI 2.1: items and a test that draws a variant of each", qti21.files),
        Exporter("prairielearn", "PrairieLearn: a folder for each question", prairielearn.files),
        Exporter("gradescope", "An outline of answers and rubrics as CSV", gradescope.files),
    )
}  # fmt: skip


def register(exporter: Exporter) -> None:
    """Adds an exporter; raises ``DocumentError`` where another one has its name."""
    if EXPORTERS.setdefault(exporter.name, exporter) is not exporter:
        raise DocumentError(f"there is an exporter '{exporter.name[:40]}' already")
