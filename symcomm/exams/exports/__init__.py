"""Exports of drawn questions to the systems where exams are held: one file and one row of ``EXPORTERS`` each.

An exporter is a function ``(title, items) -> {file name: bytes}`` that derives nothing; ``register`` adds a teacher's
own one. Ours say what they need of each item, which is made in several processes, and put it together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from symcomm.core.errors import DocumentError
from symcomm.core.records import dataclass
from symcomm.exams.exports import gradescope, moodle, prairielearn, qti12, qti21, stack
from symcomm.exams.exports.item import Item

Files = Mapping[str, bytes]


@dataclass(frozen=True)
class ExportParts:
    """A format that is put together: what it needs of one item, as plain data for JSON, and the files from all of it.

    The items of a question stand together, in the order of their variants.
    """

    piece: Callable[[str, Item], Any]
    whole: Callable[[str, Sequence[Any]], Files]

    def files(self, title: str, items: Sequence[Item]) -> Files:
        """The files of some items."""
        return self.whole(title, [self.piece(title, item) for item in items])


@dataclass(frozen=True)
class Exporter:
    """A format: its name, what it is for, and the function that writes items down as files."""

    name: str
    says: str
    files: Callable[[str, Sequence[Item]], Files]
    pieces: ExportParts | None = None


def _in_pieces(
    name: str, says: str, piece: Callable[[str, Item], Any], whole: Callable[[str, Sequence[Any]], Files]
) -> Exporter:
    pieces = ExportParts(piece, whole)
    return Exporter(name, says, pieces.files, pieces)


EXPORTERS = {
    exporter.name: exporter for exporter in (
        _in_pieces("moodle", "Moodle XML: numerical, multiple choice, cloze", moodle.piece, moodle.whole),
        _in_pieces("stack", "STACK questions as Moodle XML: formulas compared by Maxima", stack.piece, stack.whole),
        _in_pieces("qti12", "QTI 1.2 for Canvas: a question bank for each question", qti12.piece, qti12.whole),
        _in_pieces("qti12-mathjax", r"The same with \(...\) instead of Canvas' own equations",
                   partial(qti12.piece, mathjax=True), partial(qti12.whole, name="qti12-mathjax")),
        _in_pieces("qti21", "QTI 2.1: items and a test that draws a variant of each", qti21.piece, qti21.whole),
        _in_pieces("prairielearn", "PrairieLearn: a folder for each question", prairielearn.piece, prairielearn.whole),
        _in_pieces("gradescope", "An outline of answers and rubrics as CSV", gradescope.piece, gradescope.whole),
    )
}  # fmt: skip


def register(exporter: Exporter) -> None:
    """Adds an exporter; raises ``DocumentError`` where another one has its name."""
    if EXPORTERS.setdefault(exporter.name, exporter) is not exporter:
        raise DocumentError(f"there is an exporter '{exporter.name[:40]}' already")
