"""Exports of drawn questions to the systems where exams are held: one file and one row of ``EXPORTERS`` each.

An exporter derives nothing: several processes make what it needs of each item, and it puts the pieces together.
``register`` adds a teacher's own one.
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
class Exporter:
    """A format: its name, what it is for, what it needs of one item, and the files that it makes of all.

    A piece goes from process to process. The items of a question stand together, in the order of their variants.
    """

    name: str
    says: str
    piece: Callable[[str, Item], Any]
    whole: Callable[[str, Sequence[Any]], Files]

    def files(self, title: str, items: Sequence[Item]) -> Files:
        """The files of some items."""
        return self.whole(title, [self.piece(title, item) for item in items])


EXPORTERS = {
    exporter.name: exporter for exporter in (
        Exporter("moodle", "Moodle XML: numerical, multiple choice, cloze", moodle.piece, moodle.whole),
        Exporter("stack", "STACK questions as Moodle XML: formulas compared by Maxima", stack.piece, stack.whole),
        Exporter("qti12", "QTI 1.2 for Canvas: a question bank for each question", qti12.piece, qti12.whole),
        Exporter("qti12-mathjax", r"The same with \(...\) instead of Canvas' own equations",
                 partial(qti12.piece, mathjax=True), partial(qti12.whole, name="qti12-mathjax")),
        Exporter("qti21", "QTI 2.1: items and a test that draws a variant of each", qti21.piece, qti21.whole),
        Exporter("prairielearn", "PrairieLearn: a folder for each question", prairielearn.piece, prairielearn.whole),
        Exporter("gradescope", "An outline of answers and rubrics as CSV", gradescope.piece, gradescope.whole),
    )
}  # fmt: skip
OURS = frozenset(EXPORTERS)  # which every process knows


def register(exporter: Exporter) -> None:
    """Adds an exporter; raises ``DocumentError`` where another one has its name."""
    if EXPORTERS.setdefault(exporter.name, exporter) is not exporter:
        raise DocumentError(f"there is an exporter '{exporter.name[:40]}' already")
