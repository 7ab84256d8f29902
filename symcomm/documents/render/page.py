"""The page as a template sees it: everything on it is already written in the template's language.

A view holds text to be escaped by the template, and ``Markup`` that the printers and pandoc made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING

from symcomm.core.errors import RenderError
from symcomm.core.records import dataclass

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class RowView:
    """One line of aligned maths: the left side, the relation, and the right side in one or more lines.

    The parts are maths without its dollar signs, except in HTML, where each is an element of its own. ``alt`` says the
    whole line, ``tall`` whether its first line is higher than text.
    """

    left: Markup
    relation: Markup
    right: tuple[Markup, ...]
    alt: str
    tall: bool


@dataclass(frozen=True)
class StepView:
    """A step with its reason, numbered in full detail; ``wide`` where the reason has no room beside the formula."""

    number: str
    row: RowView
    reason: Markup
    rule: str
    condition: Markup
    wide: bool


@dataclass(frozen=True)
class GivenView:
    """A given value: ``N = 32`` and what it means."""

    equation: Markup
    meaning: Markup


@dataclass(frozen=True)
class ConventionView:
    """A convention that touched an answer."""

    field: str
    name: str
    statement: str


@dataclass(frozen=True)
class TableView:
    """A table with a title; ``wide`` where its cells have to be broken into lines, ``shares`` of the width then.

    ``right`` says which columns are set to the right.
    """

    title: Markup | str
    columns: tuple[str | Markup, ...]
    rows: tuple[tuple[str | Markup, ...], ...]
    wide: bool
    shares: tuple[float, ...]
    right: tuple[bool, ...]


@dataclass(frozen=True)
class AnswerView:
    """One answer, in the order of the page: what is cut or counted, why, algebra, the box, and notes below it."""

    number: str  # counts the answers of a document with several
    label: Markup
    lead: tuple[Markup, ...]  # what is cut or counted
    given: tuple[GivenView, ...]
    conventions: tuple[ConventionView, ...]
    steps: tuple[StepView, ...]
    lefts: tuple[Markup, ...]
    right_width: float
    grading: tuple[tuple[Markup, Fraction], ...]  # the points of the steps
    before: Markup | str = ""  # lines that an earlier answer has shown
    reasons: tuple[TableView, ...] = ()
    box: tuple[RowView, ...] = ()
    together: TableView | None = None  # in the place of the box, where several answers are one derivation
    unit: str = ""
    exhibits: tuple[TableView, ...] = ()
    others: TableView | None = None  # the number under other conventions
    mistakes: tuple[Markup, ...] = ()
    notes: tuple[Markup, ...] = ()
    points: int | None = None


@dataclass(frozen=True)
class FigureView:
    """A picture: its number, its file (in HTML the picture itself), the author's caption, and what it shows."""

    number: int
    source: str | Markup
    caption: Markup
    says: Markup
    alt: str
    width: int = 100


@dataclass(frozen=True)
class BlockView:
    """A block of the page; exactly one of the fields after ``kind`` that belong to it is filled.

    ``room`` is what stays free above prose: what it looks like, and how many millimetres.
    """

    kind: str
    text: Markup | str = ""
    room: tuple[str, int] | None = None
    level: int = 0
    points: int | None = None
    table: TableView | None = None
    answer: AnswerView | None = None
    figure: FigureView | None = None


@dataclass(frozen=True)
class MatrixCode:
    """A QR code: its text, the modules of a side with the light margin, and dark runs as row, column, length.

    >>> MatrixCode("x", 4, ((0, 1, 2), (3, 0, 1))).path
    'M1 0h2v1h-2zM0 3h1v1h-1z'
    """

    text: str
    side: int
    runs: tuple[tuple[int, int, int], ...]

    @property
    def path(self) -> str:
        """The dark runs as the path of an SVG."""
        return "".join(f"M{column} {row}h{length}v1h-{length}z" for row, column, length in self.runs)

    @property
    def svg(self) -> str:
        """A picture of its own."""
        whole = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.side} {self.side}">'
        return f'{whole}<rect width="{self.side}" height="{self.side}" fill="#fff"/><path d="{self.path}"/></svg>'


def matrix_code(text: str) -> MatrixCode:
    """The QR code of a text. Raises ``RenderError`` where segno is missing, or the text is too long."""
    try:
        import segno
    except ImportError as error:
        raise RenderError.lacking("qr", "segno is missing: no QR code can be drawn") from error
    try:
        made = segno.make_qr(text, error="m")
    except ValueError as error:
        raise RenderError(f"'{text[:40]}' is too long for a QR code") from error
    rows = [[bool(module) for module in row] for row in made.matrix_iter(border=4)]
    return MatrixCode(text, len(rows), tuple(run for n, row in enumerate(rows) for run in _runs(n, row)))


def _runs(number: int, row: list[bool]) -> Iterator[tuple[int, int, int]]:
    column = 0
    for dark, modules in groupby(row):
        length = len([*modules])
        if dark:
            yield number, column, length
        column += length


@dataclass(frozen=True)
class PageView:
    """The whole page; ``conventions`` are those that hold wherever an answer says nothing else.

    ``code`` is the QR code of the first page.
    ``extra`` are the author's own keys, for a template of theirs, and ``name`` is what its files are called.
    """

    title: str
    subtitle: str
    course: str
    authors: tuple[str, ...]
    date: str
    language: str
    edition: str
    conventions: tuple[ConventionView, ...]
    points: int
    questions: int
    blocks: tuple[BlockView, ...]
    extra: Mapping[str, str]
    name: str
    code: MatrixCode | None = None

    @property
    def solutions(self) -> bool:
        """Whether the page has answers."""
        return self.edition != "paper"
