"""What a write-up is made of: prose, tables, questions and answers, in the order of the page.

A document is read from a problem file and handed to a template; it holds derivations and computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from symcomm.derivation import Derivation
from symcomm.errors import Span
from symcomm.notation import Notation
from symcomm.text.table import Table
from symcomm.units import Quantity


@dataclass(frozen=True)
class Prose:
    """The author's Markdown with LaTeX maths, as written."""

    markdown: str
    span: Span


@dataclass(frozen=True)
class LayerTable:
    """A layer table as the author wrote it; its cells are Markdown with LaTeX maths."""

    table: Table


@dataclass(frozen=True)
class Given:
    """One given value: its name, what it means, and the number with its unit."""

    name: str
    meaning: str
    quantity: Quantity


@dataclass(frozen=True)
class Answer:
    """One derived answer: its derivation, the values used, and the exact quantity (None where a value is missing).

    ``label`` tells answers of one part apart ("forward", "AllGather"); empty where there is one.
    """

    label: str
    derivation: Derivation
    given: tuple[Given, ...]
    quantity: Quantity | None
    span: Span


@dataclass(frozen=True)
class Heading:
    """A heading: a question or part, with its points where it has any. ``level`` is 1 to 4."""

    level: int
    markdown: str
    points: int | None
    span: Span


@dataclass(frozen=True)
class Picture:
    """A figure: what was drawn (with Matplotlib), the author's caption in Markdown, and a sentence on what it shows.

    ``paper`` says that the paper shows it as well, and not the solution only.
    """

    drawn: Any
    caption: str
    says: str
    paper: bool
    span: Span


Block = Prose | LayerTable | Heading | Answer | Picture


@dataclass(frozen=True)
class Document:
    """A whole write-up. ``date`` is what the author gave ("2024-03-20" or empty); nothing is taken from the clock."""

    title: str
    subtitle: str
    authors: tuple[str, ...]
    date: str
    language: str
    file: str
    notation: Notation
    blocks: tuple[Block, ...]

    def answers(self) -> Iterator[Answer]:
        """The answers, in order."""
        return (block for block in self.blocks if isinstance(block, Answer))

    def shown(self, solutions: bool) -> tuple[Block, ...]:
        """The blocks of the solution, or (without ``solutions``) of the paper."""
        hidden = (Answer, Picture)
        return tuple(b for b in self.blocks if solutions or not isinstance(b, hidden) or getattr(b, "paper", False))
