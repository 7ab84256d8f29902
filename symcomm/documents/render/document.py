"""The parts of a write-up: prose, tables, questions and answers, in the order of the page.

A document is read from a problem file and handed to a template; it holds derivations and computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.derivation.chosen import chosen
from symcomm.core.errors import Span
from symcomm.core.notation import Notation
from symcomm.core.records import dataclass
from symcomm.core.text.table import Table
from symcomm.core.units import Quantity
from symcomm.documents.editions import EDITIONS, ONLY, Detail, Edition


@dataclass(frozen=True)
class Prose:
    """The author's Markdown with LaTeX maths, as written.

    ``room`` is what a paper leaves above it to work in: ``lines``, ``box`` or ``blank``, and how many millimetres.
    """

    markdown: str
    span: Span
    room: tuple[str, int] | None = None


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
class StepPoints:
    """The points of one step of an answer, and what they are for."""

    what: str
    points: Fraction


@dataclass(frozen=True)
class Answer:
    """One derived answer: its derivation, the values used, and the exact quantity (None where a value is missing)."""

    label: str
    derivation: Derivation
    given: tuple[Given, ...]  # the values that the question gives
    quantity: Quantity | None
    span: Span
    asked: str = ""  # the name of the quantity
    others: Exhibit | None = None  # the same number under other conventions
    mistakes: tuple[str, ...] = ()  # what goes wrong often, and which number that gives
    points: int | None = None  # of the question, where it has its own
    rubric: tuple[StepPoints, ...] = ()  # the author's: what steps are worth
    shared: Fraction = Fraction(0)  # points that are divided among the steps where there is no rubric
    options: tuple[tuple[str, str], ...] = ()  # of the quantity, as they were written
    unasked: bool = False  # no sentence of the document asks for it
    reading: str = ""  # how its table was read, for the author and those who grade

    @property
    def grading(self) -> tuple[StepPoints, ...]:
        """The points of the steps, for those who grade."""
        return self.rubric or (share_points(self.derivation, self.shared) if self.shared else ())


def share_points(derivation: Derivation, points: Fraction) -> tuple[StepPoints, ...]:
    """Points shared among the lines of a derivation and its number; the first ones take what does not divide.

    >>> from symcomm.core.accounting import Accounting
    >>> from symcomm.core.derivation import Reason, Step
    >>> from symcomm.core.form import Sym, num, product
    >>> from symcomm.core.units import ONE
    >>> step = Step("V", product(num(2), Sym("n")), ONE, Reason("bytes", "Two each."))
    >>> share_points(Derivation("bytes", Accounting(), (step,)), Fraction(5))
    (StepPoints(what='`V`', points=Fraction(3, 1)), StepPoints(what='the number, with its unit', points=Fraction(2, 1)))
    """
    lines = [line for line in chosen(derivation) if line.forms and line.name]
    what = [f"`{line.name}`" for line in lines[-max(1, min(4, int(points) - 1)) :]] if points > 1 else []
    what.append("the number, with its unit")
    each, left = divmod(points, len(what))
    return tuple(StepPoints(name, each + min(Fraction(1), max(Fraction(0), left - i))) for i, name in enumerate(what))


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


@dataclass(frozen=True)
class Only:
    """From here on, what is in the document is for some editions only; ``name`` is empty where it is for all."""

    name: str
    span: Span


Block = Prose | LayerTable | Heading | Answer | Picture | Only


@dataclass(frozen=True)
class Document:
    """A whole write-up."""

    title: str
    subtitle: str
    authors: tuple[str, ...]
    date: str  # what the author gave, or empty: nothing is taken from the clock
    language: str
    file: str
    notation: Notation
    blocks: tuple[Block, ...]
    course: str = ""
    detail: Detail = "normal"  # how much of each derivation is shown
    extra: tuple[tuple[str, str], ...] = ()  # the author's own keys, for a template of theirs
    leaks: tuple[Span, ...] = ()  # where prose that belongs to the paper refers to an answer
    told: tuple[str, ...] = ()  # what an author should look at
    code: str = ""  # what a QR code on the first page says
    written: tuple[str, ...] = ()  # the texts of its blocks, whose numbers a paper may tell
    mistakes_in: tuple[Edition, ...] = EDITIONS  # the editions that have the mistakes of its answers

    def answers(self) -> Iterator[Answer]:
        """The answers, in order."""
        return (block for block in self.blocks if isinstance(block, Answer))

    def shown(self, edition: Edition = "solution") -> tuple[Block, ...]:
        """The blocks of an edition, in order: of answers, a paper has those that its words do not ask for."""
        found: list[Block] = []
        only = ""
        for block in self.blocks:
            if isinstance(block, Only):
                only = block.name
            elif (not only or edition in ONLY[only]) and _belongs(block, edition):
                if isinstance(block, Answer) and edition not in self.mistakes_in:
                    block = replace(block, mistakes=())
                found.append(block)
        return tuple(found)


def _belongs(block: Block, edition: Edition) -> bool:
    if edition == "key":
        return isinstance(block, (Answer, Heading))
    if isinstance(block, Answer):
        return edition != "paper" or block.unasked  # of which a paper has the question
    return edition != "paper" or not isinstance(block, Picture) or block.paper
