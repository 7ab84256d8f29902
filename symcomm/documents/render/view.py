"""The page of a document as a template sees it: every block written in the template's language, in order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from symcomm.core.accounting import Convention
from symcomm.core.derivation import Exhibit
from symcomm.core.errors import Span
from symcomm.core.form import Form
from symcomm.core.printing import short
from symcomm.core.records import ByIdentity
from symcomm.core.text.table import Table
from symcomm.documents.editions import Edition
from symcomm.documents.render import pictures
from symcomm.documents.render.answers import AnswerWriter, FullWriter
from symcomm.documents.render.document import Answer, Block, Document, Heading, LayerTable, Picture, Prose
from symcomm.documents.render.page import BlockView, ConventionView, FigureView, PageView, TableView, matrix_code
from symcomm.documents.render.prose import InlinePiece, Target, convert
from symcomm.documents.render.questions import Questions, questions
from symcomm.documents.render.writer import Kind, PageWriter, shares, table_view

if TYPE_CHECKING:
    from markupsafe import Markup

_CALLED = {"fma2": "two operations a multiply-add"}
_Run = tuple[list[Block], Exhibit | None]  # blocks that are written together, and the table that their answers are
_TARGET: dict[str, Target] = {"tex": "latex", "html": "html", "typ": "typst"}


def page(
    document: Document, kind: Kind, edition: Edition = "solution", name: str = "document",
    say: Callable[[str], str] = str,
) -> PageView:  # fmt: skip
    """An edition of the document as a template of the given kind sees it.

    ``name`` is that of the document's file, after which the files of its pictures are called; ``say`` tells our
    sentences in the document's language.
    """
    blocks = document.shown(edition)
    prose = _prose(blocks, kind)
    writer = PageWriter(kind, document.notation, say)
    found = [b for b in blocks if isinstance(b, Answer)]
    head = _shared_conventions(blocks)
    made = FullWriter if document.detail == "full" else AnswerWriter
    answers = made(writer, document.detail, {c.field: c for c in head}, len(found), edition == "graders")
    if edition == "key":
        views = [BlockView("table", table=_key(blocks, answers, writer, prose))]
    else:
        views = [*_views(document, blocks, edition, answers, writer, prose, name)]
    if not any(view.answer and view.answer.before for view in views):  # nothing refers to a number
        views = [replace(v, answer=replace(v.answer, number="")) if v.answer else v for v in views]
    headings = [b for b in document.blocks if isinstance(b, Heading)]
    top = min((h.level for h in headings if h.points is not None), default=0)
    counted = [h.points or 0 for h in headings if h.level == top and h.points is not None]
    told = head if edition != "paper" and found else ()
    return PageView(
        title=document.title,
        subtitle=document.subtitle,
        course=document.course,
        authors=document.authors,
        date=document.date,
        language=document.language,
        edition=edition,
        conventions=tuple(ConventionView(c.field, c.name.replace("_", " "), say(c.statement)) for c in told),
        points=sum(counted),
        questions=len(counted),
        blocks=tuple(views),
        extra=dict(document.extra),
        name=name,
        code=matrix_code(document.code) if document.code else None,
    )


def _shared_conventions(blocks: Sequence[Block]) -> tuple[Convention, ...]:
    """The conventions of several questions, of each kind the most frequent one: told once, at the beginning.

    One that a single question of several has stands with it.
    """
    question, questions = 0, set()
    fields: dict[str, Counter[Convention]] = {}
    places: dict[Convention, set[int]] = {}
    for number, block in enumerate(blocks):
        question = number if isinstance(block, Heading) else question
        if isinstance(block, Answer):
            questions.add(question)
            for convention in block.derivation.conventions:
                fields.setdefault(convention.field, Counter())[convention] += 1
                places.setdefault(convention, set()).add(question)
    most = (counted.most_common(1)[0] for counted in fields.values())
    return tuple(convention for convention, answers in most
                 if answers > 1 and len(places[convention]) >= min(2, len(questions)))  # fmt: skip


def _views(
    document: Document, blocks: Sequence[Block], edition: Edition, answers: AnswerWriter, writer: PageWriter,
    prose: Callable[[str, bool], Markup], name: str,
) -> Iterator[BlockView]:  # fmt: skip
    figures = depth = 0
    lowest = min((b.level for b in blocks if isinstance(b, Heading)), default=1)
    asked = questions(document.language or "en")
    runs = [*_runs(blocks, edition, answers, asked)]
    groups = [[b for b in run if isinstance(b, Answer)] for run, _ in runs]
    words = [run[0].markdown if isinstance(run[0], Heading) else "" for run, _ in runs]
    sections: Iterator[str] = accumulate(words, lambda above, own: own or above)
    places = [section for section, group in zip(sections, groups, strict=True) if group]
    called = iter(asked.headings([group for group in groups if group], places))
    for (run, made), alike in zip(runs, groups, strict=True):
        block = run[0]
        match block:
            case Prose(markdown, _, room):
                yield BlockView("prose", prose(markdown, False), room)
            case Heading(level, markdown, points):
                # Readers of a tagged document need levels without gaps.
                depth = min(level - lowest + 1, depth + 1)
                answers.here.clear()
                yield BlockView("heading", prose(markdown, True), level=depth, points=points)
            case LayerTable(table):
                yield BlockView("table", table=_laid_out(ByIdentity(table), writer.kind))
            case Answer() if edition == "paper":
                text = answers.question(alike, asked)
                yield BlockView("prose", writer.markup(f"<p>{text}</p>") if writer.kind == "html" else text)
            case Answer():
                heading, row = next(called), asked.row(alike)
                one = answers.together(alike, made, row, heading) if made else answers.one(block, row, heading)
                yield BlockView("answer", level=depth + 1, answer=one)
            case Picture():
                figures += 1
                caption = prose(block.caption, True) if block.caption else writer.markup("")
                yield BlockView("figure", figure=figure_view(block, figures, caption, writer, name))


def _runs(blocks: Sequence[Block], edition: Edition, answers: AnswerWriter, asked: Questions) -> Iterator[_Run]:
    """The blocks; answers to one quantity that follow one another and are one table, or one question, together."""
    run: list[Block] = []
    for block in blocks:
        before = run[-1] if run else None
        same = isinstance(block, Answer) and isinstance(before, Answer) and block.asked == before.asked != ""
        if run and not same:
            yield from _apart(run, edition, answers, asked)
            run = []
        run.append(block)
    yield from _apart(run, edition, answers, asked)


def _apart(run: list[Block], edition: Edition, answers: AnswerWriter, asked: Questions) -> list[_Run]:
    """A run with its table where its answers are one; else, and in a paper, each group with one question."""
    alike = [one for one in run if isinstance(one, Answer)]
    if len(alike) < 2:
        return [(run, None)] if run else []
    if edition != "paper":
        table = answers.alike(alike)
        return [(run, table)] if table else [([one], None) for one in run]
    found: dict[str, list[Block]] = {}
    for one in alike:
        found.setdefault(asked.row([one]).question, []).append(one)
    return [(group, None) for group in found.values()]


def _key(
    blocks: Sequence[Block], answers: AnswerWriter, writer: PageWriter, prose: Callable[[str, bool], Markup]
) -> TableView:
    """Question, formula, number and convention of every answer, in one table."""
    from symcomm.core.derivation.chosen import chosen

    rows: list[tuple[str | Form, ...]] = []
    questions: list[Markup] = []
    question = writer.markup("")
    for block in blocks:
        if isinstance(block, Heading):
            question = prose(block.markdown, True)
        elif isinstance(block, Answer):
            own = answers.of(block)
            label = own.sentence(block.label)
            questions.append(writer.markup(f"{question}: {label}" if label else str(question)))
            form = chosen(block.derivation)[-1].last
            number = short(block.quantity) if block.quantity else ""
            differing = [c for c in block.derivation.conventions if answers.head.get(c.field) != c]
            named = ", ".join(_CALLED.get(c.name, c.name.replace("_", " ")) for c in differing)
            rows.append((form, number, named))
    made = table_view(Exhibit("", ("", "formula", "number", "conventions"), tuple(("", *row) for row in rows)), writer)
    told = tuple((q, *row[1:]) for q, row in zip(questions, made.rows, strict=True))
    return TableView("", ("question", *made.columns[1:]), told, True, (0.34, 0.24, 0.22, 0.2), (False,) * 4)


def prepare(documents: Iterable[Document], kind: Kind, edition: Edition) -> None:
    """Converts the prose of many documents at once, so that none of them has to wait for it alone."""
    if kind != "md":
        convert([piece for document in documents for piece in _pieces(document.shown(edition))], _TARGET[kind])


def _prose(blocks: Sequence[object], kind: Kind) -> Callable[[str, bool], Markup]:
    """What turns the author's Markdown into the format; what is ``inline`` is one run of words."""
    from markupsafe import Markup

    if kind == "md":
        return lambda text, inline: Markup(" ".join(text.split()) if inline else text.strip("\n"))  # noqa: S704
    pieces = _pieces(blocks)
    converted = convert(pieces, _TARGET[kind]) if pieces else {}
    texts = {(p.markdown, p.inline): text for p, text in converted.items()}
    return lambda text, inline: Markup(texts[(text, inline)])  # noqa: S704  (pandoc wrote it)


def _pieces(blocks: Sequence[object]) -> list[InlinePiece]:
    """The author's words of some blocks."""
    pieces: list[InlinePiece] = []
    for block in blocks:
        if isinstance(block, Prose):
            pieces.append(InlinePiece(block.markdown, block.span))
        elif isinstance(block, Heading):
            pieces.append(InlinePiece(block.markdown, block.span, True))
        elif isinstance(block, Picture) and block.caption:
            pieces.append(InlinePiece(block.caption, block.span, True))
        elif isinstance(block, LayerTable):
            pieces += _cells(ByIdentity(block.table))
    return pieces


@lru_cache(maxsize=64)  # the papers of a class share their tables
def _laid_out(held: ByIdentity[Table], kind: Kind) -> TableView:
    """A layer table as it was written, with its prose converted."""
    table, prose = held.it, _prose((LayerTable(held.it),), kind)
    columns = tuple(prose(c, True) for c in table.columns)
    rows = tuple(tuple(prose(_set(c.text), True) for c in row) for row in table.rows)
    cells = [[row[i].text for row in table.rows if i < len(row)] for i in range(len(columns))]
    longest = [max([len(c) + 6, *map(len, cell)]) for c, cell in zip(table.columns, cells, strict=True)]
    return TableView("", columns, rows, True, shares(longest), (False,) * len(columns))


@lru_cache(maxsize=64)
def _cells(held: ByIdentity[Table]) -> list[InlinePiece]:
    columns = [InlinePiece(c, Span("", 0, c, 0, len(c)), True) for c in held.it.columns]
    return columns + [InlinePiece(_set(cell.text), cell.span(), True) for row in held.it.rows for cell in row]


def _set(cell: str) -> str:
    r"""A cell of a layer table as it is set: shapes as maths, names of functions upright.

    >>> print(_set("$n = relu(x)$"), _set("$W^Q$ [D, n_h]"))
    $n = \operatorname{relu}(x)$ $W^Q \in \mathbb{R}^{D \times n_h}$
    """

    def shape(found: re.Match[str]) -> str:
        sizes = found[2].replace(",", r" \times")
        return rf"{' ' if found[1] else '$'}\in \mathbb{{R}}^{{{sizes}}}$"

    cell = re.sub(r"(?<=\w)(\$\s*)\[([\w\s,^{}+*]+)\](?!\()", shape, cell)
    return re.sub(r"(?<![\\a-zA-Z_^{])([a-zA-Z]{3,})(?=\()", r"\\operatorname{\1}", cell) if "$" in cell else cell


def figure_view(picture: Picture, number: int, caption: Markup, writer: PageWriter, name: str) -> FigureView:
    """One picture in the writer's format."""
    inline = writer.kind == "html"
    source = (
        writer.markup(pictures.inline(picture, number, writer.say))
        if inline
        else pictures.file_name(name, number, writer.kind)
    )
    alt = " ".join(re.sub(r"[`$*{}\\]", "", f"{picture.caption} {writer.say(picture.says)}").split())
    return FigureView(number, source, caption, writer.sentence(picture.says), alt)
