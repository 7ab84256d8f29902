"""The page as a template sees it: everything on it is already written in the template's language.

A view holds text to be escaped by the template, and ``Markup`` that the printers and pandoc made.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from symcomm.core.records import dataclass
from symcomm.documents.render.codes import MatrixCode

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
    """One answer, in the order of the page: what is cut or counted (``lead``), why (``reasons``), algebra, the box.

    Below the box stand other exhibits, ``others`` (the number under other conventions), what goes wrong often, and the
    points of the steps. ``together`` is a table in the place of the box where several answers are one derivation.
    ``number`` counts the answers of a document with several, and ``before`` names lines that an earlier one has shown.
    """

    number: str
    label: Markup
    lead: tuple[Markup, ...]
    given: tuple[GivenView, ...]
    conventions: tuple[ConventionView, ...]
    before: Markup
    reasons: tuple[TableView, ...]
    steps: tuple[StepView, ...]
    lefts: tuple[Markup, ...]
    box: tuple[RowView, ...]
    together: TableView | None
    unit: str
    exhibits: tuple[TableView, ...]
    others: TableView | None
    mistakes: tuple[Markup, ...]
    notes: tuple[Markup, ...]
    points: int | None
    grading: tuple[tuple[Markup, Fraction], ...]
    right_width: float


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
