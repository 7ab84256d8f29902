"""The page as a template sees it: everything on it is already written in the template's language.

A view holds text to be escaped by the template, and ``Markup`` that the printers and pandoc made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class RowView:
    """One line of aligned maths: what stands left, the relation, and the right side in one or more lines.

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
    """A numbered step with its reason; ``wide`` where the reason has no room beside the formula."""

    number: int
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
    """One answer: ``result`` are the ways to say the number, None where a value is missing.

    ``boxed`` says whether the formula stands in the box before the number; a long one has been shown in the steps.
    ``number`` counts the answers of a document in which one refers to another, and ``before`` says which of its steps
    an earlier one has shown; both are empty elsewhere.
    """

    number: str
    label: Markup
    before: Markup
    title: Markup
    name: Markup
    given: tuple[GivenView, ...]
    conventions: tuple[ConventionView, ...]
    steps: tuple[StepView, ...]
    lefts: tuple[Markup, ...]
    formula: RowView
    substituted: RowView | None
    substituted_wide: bool
    result: RowView | None
    boxed: bool
    unit: str
    exhibits: tuple[TableView, ...]
    notes: tuple[Markup, ...]
    right_width: float


@dataclass(frozen=True)
class FigureView:
    """A picture: its number, its file (in HTML the picture itself), the author's caption, and what it shows."""

    number: int
    source: str | Markup
    caption: Markup
    says: Markup
    alt: str


@dataclass(frozen=True)
class BlockView:
    """A block of the page; exactly one of the fields after ``kind`` that belong to it is filled."""

    kind: str
    text: Markup | str = ""
    level: int = 0
    points: int | None = None
    table: TableView | None = None
    answer: AnswerView | None = None
    figure: FigureView | None = None


@dataclass(frozen=True)
class PageView:
    """The whole page."""

    title: str
    subtitle: str
    authors: tuple[str, ...]
    date: str
    language: str
    solutions: bool
    points: int
    questions: int
    blocks: tuple[BlockView, ...]
