"""Writes a document in a template's language: every formula, number and sentence of the page that the template sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from symcomm import printing
from symcomm.derivation import Exhibit, writing
from symcomm.derivation.tables import cell_maths, to_the_right
from symcomm.errors import Span
from symcomm.form import Form, Sym, names
from symcomm.notation import Notation
from symcomm.printing import DialectName
from symcomm.render import pictures
from symcomm.render.document import Answer, Document, Given, Heading, LayerTable, Picture, Prose
from symcomm.render.environment import ESCAPES
from symcomm.render.page import (
    AnswerView,
    BlockView,
    ConventionView,
    FigureView,
    GivenView,
    PageView,
    RowView,
    StepView,
    TableView,
)
from symcomm.render.prose import InlinePiece, Target, convert
from symcomm.render.repeats import Repeat, repeats
from symcomm.units import Quantity

if TYPE_CHECKING:
    from markupsafe import Markup

Kind = Literal["md", "tex", "html", "typ"]
_DIALECT: dict[str, DialectName] = {"md": "latex", "tex": "latex", "html": "mathml", "typ": "typst"}
_TARGET: dict[str, Target] = {"tex": "latex", "html": "html", "typ": "typst"}

# Widths in em of the text's font, on A4 with the margins of our templates.
PAGE_WIDTH = 42.0
_TABLE_CHARACTERS, _TABLE_ROWS = 100, 30  # more than these and a table has to be broken
_NUMBER, _RELATION, _REASON, _GAP = 2.2, 1.6, 14.5, 1.0


class _PageWriter:
    """Writes formulas, numbers and names inline in one format."""

    def __init__(self, kind: Kind, notation: Notation) -> None:
        from markupsafe import Markup

        self.kind, self.notation, self.dialect = kind, notation, _DIALECT[kind]
        self.markup: Callable[[str], Markup] = Markup

    def maths(self, content: str, alt: str) -> Markup:
        """Inline maths in the format; an empty formula is empty."""
        if not content:
            return self.markup("")
        match self.kind:
            case "md":
                text = printing.markdown_maths(content)
            case "tex":
                text = f"${content}$"
            case "html":
                text = printing.math_element(content, alt)
            case _:
                text = f"#eq({printing.typst_string(alt)})[${content}$]"
        return self.markup(text)

    def bare(self, content: str, alt: str) -> Markup:
        """Maths that the template puts between dollar signs, together with its neighbours."""
        if self.kind != "html":
            return self.markup(content)
        return self.markup(printing.math_element(content, alt, display=True) if content else "")

    def sentence(self, text: str) -> Markup:
        """A sentence of ours, with its names as maths."""
        if not text:
            return self.markup("")
        escape = ESCAPES[self.kind]

        def dressed(printed: str, alt: str) -> str:
            return str(self.maths(printed, alt))

        return self.markup(printing.sentence(self.dialect, text, escape, dressed, self.notation))

    def form(self, form: Form, names: printing.Names | None = None) -> Markup:
        return self.maths(printing.PRINTERS[self.dialect](form, names, self.notation), printing.plain(form, names))

    def quantity(self, quantity: Quantity) -> Markup:
        return self.maths(printing.quantity_in(self.dialect, quantity), printing.quantity_plain(quantity))

    def equation(self, left: Form, right: Form | Quantity) -> Markup:
        equals = printing.RELATIONS[self.dialect]["="]
        if isinstance(right, Quantity):
            written, said = printing.quantity_in(self.dialect, right), printing.quantity_plain(right)
        else:
            written, said = printing.PRINTERS[self.dialect](right, None, self.notation), printing.plain(right)
        head = printing.PRINTERS[self.dialect](left, None, self.notation)
        return self.maths(f"{head} {equals} {written}", f"{printing.plain(left)} = {said}")

    def row(self, name: str, relation: str, form: Form, limit: float, names: printing.Names | None = None) -> RowView:
        said = printing.plain(form, names)
        broken = printing.broken(self.dialect, form, limit, names, self.notation)
        right = tuple(self.bare(line, "continued" if i else said) for i, line in enumerate(broken))
        left = printing.name_in(self.dialect, name, self.notation) if name else ""
        sign = printing.RELATIONS[self.dialect][relation]
        mark = relation.lstrip(":")
        alt = f"{name} {mark} {said}".strip()
        tall = printing.tall(form, names, self.notation) if len(broken) == 1 else "frac" in broken[0]
        return RowView(self.bare(left, name), self.bare(sign, mark), right, alt, tall)

    def amounts(self, name: str, quantity: Quantity, limit: float) -> RowView:
        """``= 12 884 901 888 B = 12 GiB ≈ 12.88 GB``, in as many lines as it needs."""
        left = printing.name_in(self.dialect, name, self.notation) if name else ""
        ways = list(zip(printing.amounts(self.dialect, quantity), printing.amounts("text", quantity), strict=True))
        lines: list[tuple[str, str]] = []
        space = "" if self.kind == "html" else " "
        for (relation, text), (said_relation, said) in ways:
            joined = f"{lines[-1][1]} {said_relation} {said}" if lines else said
            if lines and 0.55 * len(joined) <= limit:
                lines[-1] = (f"{lines[-1][0]}{space}{relation}{space}{text}", joined)
            else:
                lines.append((f"{relation}{space}{text}" if relation else text, f"{said_relation} {said}".strip()))
        right = tuple(self.bare(text, said) for text, said in lines)
        sign = self.bare(printing.RELATIONS[self.dialect][quantity.relation], quantity.relation)
        alt = f"{name} {quantity.relation} {printing.quantity_plain(quantity)}".strip()
        return RowView(self.bare(left, name), sign, right, alt, quantity.value.denominator != 1)


def page(document: Document, kind: Kind, solutions: bool, name: str = "document") -> PageView:
    """The document as a template of the given kind sees it; without ``solutions`` the answers are left out.

    ``name`` is that of the document's file, after which the files of its pictures are called.
    """
    blocks = document.shown(solutions)
    prose = _prose(blocks, kind)
    writer = _PageWriter(kind, document.notation)
    views: list[BlockView] = []
    again = repeats([b.derivation for b in blocks if isinstance(b, Answer)])
    answers = 0
    figures = 0
    depth, lowest = 0, min((b.level for b in blocks if isinstance(b, Heading)), default=1)
    for block in blocks:
        match block:
            case Prose(markdown, span):
                views.append(BlockView("prose", prose(markdown, span, False)))
            case Heading(level, markdown, points, span):
                # Readers of a tagged document need levels without gaps.
                depth = min(level - lowest + 1, depth + 1)
                views.append(BlockView("heading", prose(markdown, span, True), depth, points))
            case LayerTable(table):
                columns = tuple(prose(c, Span(document.file, 0, c, 0, len(c)), True) for c in table.columns)
                rows = tuple(tuple(prose(c.text, c.span(), True) for c in row) for row in table.rows)
                cells = [[row[i].text for row in table.rows if i < len(row)] for i in range(len(columns))]
                longest = [max(len(c) + 6, *map(len, cell)) for c, cell in zip(table.columns, cells, strict=True)]
                left = (False,) * len(columns)
                views.append(BlockView("table", table=TableView("", columns, rows, True, _shares(longest), left)))
            case Answer():
                answers += 1
                number = str(answers) if any(again) else ""
                views.append(BlockView("answer", answer=answer_view(block, writer, number, again[answers - 1])))
            case Picture():
                figures += 1
                caption = prose(block.caption, block.span, True) if block.caption else writer.markup("")
                views.append(BlockView("figure", figure=figure_view(block, figures, caption, writer, name)))
    headings = [b for b in blocks if isinstance(b, Heading)]
    top = min((h.level for h in headings if h.points is not None), default=0)
    counted = [h.points or 0 for h in headings if h.level == top and h.points is not None]
    return PageView(
        document.title,
        document.subtitle,
        document.authors,
        document.date,
        document.language,
        solutions,
        sum(counted),
        len(counted),
        tuple(views),
    )


def _shares(longest: Sequence[int], needed: Sequence[int] = ()) -> tuple[float, ...]:
    """How the width is shared among columns with cells of these lengths, whose longest words need so much."""
    least = needed or [0] * len(longest)
    weights = [max(8.0, 1.5 * word + 3.5, min(45.0, n)) for n, word in zip(longest, least, strict=True)]
    return tuple(round(w / sum(weights), 3) for w in weights)


def _prose(blocks: Sequence[object], kind: Kind) -> Callable[[str, Span, bool], Markup]:
    from markupsafe import Markup

    if kind == "md":
        return lambda text, span, inline: Markup(" ".join(text.split()) if inline else text.strip("\n"))  # noqa: S704
    pieces: list[InlinePiece] = []
    for block in blocks:
        if isinstance(block, Prose):
            pieces.append(InlinePiece(block.markdown, block.span))
        elif isinstance(block, Heading):
            pieces.append(InlinePiece(block.markdown, block.span, True))
        elif isinstance(block, Picture) and block.caption:
            pieces.append(InlinePiece(block.caption, block.span, True))
        elif isinstance(block, LayerTable):
            pieces += [InlinePiece(c, Span("", 0, c, 0, len(c)), True) for c in block.table.columns]
            pieces += [InlinePiece(cell.text, cell.span(), True) for row in block.table.rows for cell in row]
    converted = convert(pieces, _TARGET[kind]) if pieces else {}
    texts = {(p.markdown, p.inline): text for p, text in converted.items()}
    return lambda text, span, inline: Markup(texts[(text, inline)])  # noqa: S704  (pandoc wrote it)


def figure_view(picture: Picture, number: int, caption: Markup, writer: _PageWriter, name: str) -> FigureView:
    """One picture in the writer's format."""
    inline = writer.kind == "html"
    source = (
        writer.markup(pictures.inline(picture, number)) if inline else pictures.file_name(name, number, writer.kind)
    )
    alt = " ".join(re.sub(r"[`$*{}\\]", "", f"{picture.caption} {picture.says}").split())
    return FigureView(number, source, caption, writer.sentence(picture.says), alt)


def answer_view(answer: Answer, writer: _PageWriter, number: str = "", repeat: Repeat | None = None) -> AnswerView:
    """One answer in the writer's format."""
    d = answer.derivation
    writer = _PageWriter(writer.kind, _merged(writer.notation, d.notation))
    lines = writing.lines(d)
    if repeat:
        lines = lines[repeat.steps :]
        lines = (replace(lines[0], name=lines[0].step.name), *lines[1:])
    lefts = [line.name for line in lines if line.name]
    left_width = max(printing.width(Sym(name), None, writer.notation) for name in lefts)
    room = PAGE_WIDTH - _NUMBER - left_width - _RELATION - _GAP
    beside = room - _REASON - _GAP
    steps = tuple(_step(line, writer, beside, room) for line in lines)
    used_widths = [printing.width(line.form, None, writer.notation) for line in lines]
    taken = max([w for w in used_widths if w <= beside], default=beside)
    given = {g.name: g.quantity.value for g in answer.given}
    found = _numbers(answer, given)
    substituted, wide = None, False
    # After an approximation, the exact answer says again what it is.
    name = d.answer.name if d.steps[-1] != d.answer else ""
    if found:
        used = writing.substituted(d, found)
        if used:
            needed = printing.width(d.answer.form, used, writer.notation)
            wide = needed > beside
            taken = taken if wide else max(taken, needed)
            substituted = writer.row(name, "=", d.answer.form, room if wide else beside, used)
    # A number that is its own formula is said once, a long formula has been shown in the steps.
    short = printing.width(d.answer.form, None, writer.notation) < room - 4 and bool(names(d.answer.form))
    amounts = None
    if answer.quantity is not None:
        amounts = writer.amounts("" if short else d.answer.name, answer.quantity, room - 4)
    return AnswerView(
        number=number,
        before=writer.sentence(repeat.text if repeat else ""),
        label=writer.sentence(answer.label),
        title=writer.sentence(d.title),
        name=writer.bare(printing.name_in(writer.dialect, d.answer.name, writer.notation), d.answer.name),
        given=tuple(_given(g, writer) for g in answer.given),
        conventions=tuple(ConventionView(c.field, c.name, c.statement) for c in d.conventions),
        steps=steps,
        lefts=tuple(dict.fromkeys(step.row.left for step in steps if step.row.left)),
        formula=writer.row(d.answer.name, "=", d.answer.form, room - 4),
        substituted=substituted,
        substituted_wide=wide,
        result=amounts,
        boxed=short or answer.quantity is None,
        unit=str(d.unit) if str(d.unit) != "1" else "",
        exhibits=tuple(_exhibit(e, writer) for e in d.exhibits),
        notes=tuple(writer.sentence(note) for note in d.notes),
        right_width=round(min(beside, max(8.0, taken + 1.5)), 1),
    )


def _merged(document: Notation, derivation: Notation) -> Notation:
    return Notation({**derivation.latex, **document.latex}, {**derivation.meanings, **document.meanings})


def _numbers(answer: Answer, given: Mapping[str, Fraction]) -> dict[str, Fraction] | None:
    if answer.quantity is None:
        return None
    found = writing.result(answer.derivation, given)
    return found[0] if found else None


def _step(line: writing.PrintedLine, writer: _PageWriter, beside: float, room: float) -> StepView:
    wide = printing.width(line.form, None, writer.notation) > beside
    row = writer.row(line.name, line.relation, line.form, room if wide else beside)
    return StepView(line.number, row, writer.sentence(line.reason), line.rule, writer.sentence(line.condition), wide)


def _given(given: Given, writer: _PageWriter) -> GivenView:
    return GivenView(writer.equation(Sym(given.name), given.quantity), writer.sentence(given.meaning))


def _exhibit(exhibit: Exhibit, writer: _PageWriter) -> TableView:
    def cell(value: str | Form | Quantity) -> str | Markup:
        found = cell_maths(writer.dialect, value, writer.notation)
        if found is None:
            return writer.sentence(str(value))
        maths = writer.maths(found, cell_maths("text", value) or "")
        # LaTeX seldom finds a place to break a formula in a narrow column; there it is set smaller.
        fitted = wide and writer.kind == "tex" and isinstance(value, Form)
        return writer.markup(rf"\fit{{{maths}}}") if fitted else maths

    def lengths(value: str | Form | Quantity) -> tuple[int, int]:
        """Characters of the whole cell, and of its longest part that cannot be broken."""
        if isinstance(value, Form):
            characters = int(1.9 * printing.width(value, None, writer.notation)) + 1
            return characters, min(24, characters)
        text = cell_maths("text", value) or str(value)
        parts = text.split(" = ") if isinstance(value, Quantity) else text.split()
        return len(text), max(map(len, parts), default=0)

    columns = list(zip(exhibit.columns, *exhibit.rows, strict=True))
    measured = [[lengths(c) for c in column] for column in columns]
    longest = [max(whole for whole, _ in column) for column in measured]
    wide = sum(longest) + 3 * len(columns) > _TABLE_CHARACTERS or len(exhibit.rows) > _TABLE_ROWS
    rows = tuple(tuple(cell(c) for c in row) for row in exhibit.rows)
    needed = [max(part for _, part in column) for column in measured]
    right = to_the_right(exhibit)
    return TableView(writer.sentence(exhibit.title), exhibit.columns, rows, wide, _shares(longest, needed), right)
