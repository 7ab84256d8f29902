"""The pieces of a Markdown file, by lines: front matter, headings, layer tables, fenced blocks, and prose between them.

markdown-it finds the block structure; nothing is rendered here. Every line of the file belongs to one piece, so that
the author's text is never lost and every error can name its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from symcomm.core.blocks import Source
from symcomm.core.errors import DocumentError, Span
from symcomm.core.records import dataclass, replace
from symcomm.core.text.finder import layer_tables, read_tables
from symcomm.core.text.latex_table import BEGIN
from symcomm.core.text.table import Table, as_layer_table
from symcomm.documents.render.document import Heading, Only, Prose
from symcomm.exams.problems.references import Lookup, fill

if TYPE_CHECKING:
    from markdown_it.token import Token

BLOCK, TABLE = "symcomm", "table"

_POINTS = re.compile(r"\s*[(\[]\s*(\d{1,4})\s*(?:points?|pts?|marks?|Punkte?|P\.)\s*[)\]]\s*[.:]?\s*$", re.IGNORECASE)
_ONLY = re.compile(r":::+[ \t]*\{?\.?(\w*)\}?[ \t]*")
_HEADING_MARKS = re.compile(r"\s{0,3}#{1,6}[ \t]+|[ \t]+#+[ \t]*$")
# A word that is nearly the name of our block is a slip of the pen, not another language.
_NEARLY_BLOCK = re.compile(r"sym{1,3}[-_ ]?com{1,3}s?|sympcomm|symcom+|simcom+|symocmm", re.IGNORECASE)


@dataclass(frozen=True)
class TablePiece:
    """A layer table that is in the text, and the lines that hold it."""

    table: Table
    markdown: str = ""
    line: int = 1


@dataclass(frozen=True)
class BlockPiece:
    """A fenced ``symcomm`` block: its YAML, and where its lines stand."""

    yaml: str
    source: Source
    span: Span


Piece = Prose | Heading | TablePiece | BlockPiece | Only
AnyPiece = TypeVar("AnyPiece", bound=Piece)


def filled(piece: AnyPiece, lookup: Lookup) -> AnyPiece:
    """A heading, prose or a layer table with what its references stand for."""
    match piece:
        case Prose(markdown, span) | Heading(_, markdown, _, span) if "{{" in markdown:
            return replace(piece, markdown=fill(markdown, span, lookup))
        case TablePiece(table, markdown, line) if "{{" in markdown:
            place = Span(table.file, line, markdown.split("\n", 1)[0], 0, 0)
            found = tables_in(fill(markdown, place, lookup), table.file, line)
            return replace(piece, table=found[0]) if found else piece
    return piece


@lru_cache(maxsize=1024)  # the papers of a class have the same ones
def tables_in(text: str, file: str, line: int) -> tuple[Table, ...]:
    """The layer tables of a text."""
    return tuple(layer_tables(text, file, line))


def front_matter(text: str, file: str) -> tuple[str, Source] | None:
    """The YAML between two lines ``---`` at the top of a file, if there is one.

    >>> front_matter("---\\ntitle: Homework\\n---\\nprose", "t.md")[0]
    'title: Homework'
    """
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return None
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() in ("---", "..."):
            inside = lines[1:number]
            return "\n".join(inside), Source(file, 2, tuple(inside))
    raise DocumentError("the front matter is never closed", Span(file, 1, lines[0], 0, 3), "end it with a line ---")


def pieces(text: str, file: str) -> tuple[Piece, ...]:
    """The pieces of a file after its front matter, in order.

    >>> [type(piece).__name__ for piece in pieces("# Q1 (5 points)\\n\\nWhy?\\n", "t.md")]
    ['Heading', 'Prose']
    """
    front = front_matter(text, file)
    lines = text.split("\n")
    used = len(front[1].lines) + 2 if front else 0
    body = [""] * used + lines[used:]
    found = sorted(_special(body, file), key=lambda item: item[0])
    made: list[Piece] = []
    position = 0
    for start, stop, piece in found:
        if start < position:
            continue  # inside a piece before it, such as a heading in a table's fence
        made.extend(_prose(body, position, start, file))
        made.append(piece)
        position = stop
    made.extend(_prose(body, position, len(body), file))
    return tuple(made)


def _prose(lines: list[str], start: int, stop: int, file: str) -> Iterator[Prose]:
    while start < stop and not lines[start].strip():
        start += 1
    while stop > start and not lines[stop - 1].strip():
        stop -= 1
    if start < stop:
        first = lines[start]
        yield Prose("\n".join(lines[start:stop]), Span(file, start + 1, first, 0, len(first)))


def _special(lines: list[str], file: str) -> Iterator[tuple[int, int, Piece]]:
    """Everything but prose: the lines it takes, and the piece."""
    from markdown_it import MarkdownIt

    text = "\n".join(lines)
    reader = MarkdownIt("commonmark").enable("table")
    reader.core.ruler.enableOnly(["normalize", "block"])  # the structure of blocks is all that is wanted
    tokens = reader.parse(text)
    fences = [t for t in tokens if t.type == "fence" and t.map]
    ours = [t for t in fences if _language(t) == BLOCK]
    for token in fences:
        language = _language(token)
        if language != BLOCK and _NEARLY_BLOCK.fullmatch(language):
            span = _line_span(lines, token, file)
            raise DocumentError(f"a fenced block called '{language}'", span, f"did you mean '{BLOCK}'?")
    for token in ours:
        yield _block(lines, token, file)
    for number, token in enumerate(tokens):
        if token.type == "heading_open" and token.level == 0 and token.map:
            yield _heading(lines, token, tokens[number + 1].content, file)
    fenced = {n for t in fences if t.map for n in range(*t.map)}
    yield from ((n, n + 1, piece) for n, piece in _only(lines, file) if n not in fenced)
    claimed: set[int] = set()
    for table in layer_tables(text, file):
        start, stop = _extent(lines, table)
        fence = next((t for t in fences if t.map and t.map[0] < start + 1 <= t.map[1]), None)
        if fence is not None and fence.map:
            start, stop = fence.map
            claimed.add(start)
        yield start, stop, TablePiece(table, "\n".join(lines[start:stop]), start + 1)
    for token in fences:
        if _language(token) == TABLE and token.map and token.map[0] not in claimed:
            span = _line_span(lines, token, file)
            for table in read_tables(token.content, file, token.map[0] + 2):
                as_layer_table(table)  # says which columns are missing
            raise DocumentError(
                "this block holds no layer table", span, "its columns are Computation, Input and Output"
            )


def _only(lines: list[str], file: str) -> Iterator[tuple[int, Only]]:
    for number, line in enumerate(lines):
        if found := _ONLY.fullmatch(line.rstrip()):
            yield number, Only(found[1], Span(file, number + 1, line, 0, len(line.rstrip())))


def _language(token: Token) -> str:
    words = token.info.strip().split(maxsplit=1)
    return words[0].strip("{}.") if words else ""


def _line_span(lines: list[str], token: Token, file: str) -> Span:
    start = token.map[0] if token.map else 0
    line = lines[start]
    return Span(file, start + 1, line, len(line) - len(line.lstrip()), len(line.rstrip()))


def _block(lines: list[str], token: Token, file: str) -> tuple[int, int, Piece]:
    assert token.map is not None
    start, stop = token.map
    span = _line_span(lines, token, file)
    last = lines[stop - 1].strip(" >\t")
    if stop - start < 2 or not last.startswith(token.markup) or last.strip(token.markup[0]):
        raise DocumentError("this block is never closed", span, f"end it with a line {token.markup}")
    inside = token.content.split("\n")[: stop - start - 2]
    written = lines[start + 1 : stop - 1]
    shifts = tuple(len(w) - len(i) if w.endswith(i) else 0 for w, i in zip(written, inside, strict=False))
    return start, stop, BlockPiece(token.content, Source(file, start + 2, tuple(written), shifts), span)


def _heading(lines: list[str], token: Token, content: str, file: str) -> tuple[int, int, Piece]:
    assert token.map is not None
    start, stop = token.map
    line = lines[start]
    words = _HEADING_MARKS.sub("", content).strip()
    points = _POINTS.search(words)
    shown = words[: points.start()].rstrip() if points else words
    level = min(int(token.tag[1]), 4)
    at = Span(file, start + 1, line, 0, len(line.rstrip()))
    return start, stop, Heading(level, shown, int(points[1]) if points else None, at)


def _extent(lines: list[str], table: Table) -> tuple[int, int]:
    """The first line of a table and the line after its last, counted from 0."""
    first = table.line - 1
    cells = [cell for row in table.rows for cell in row]
    last = max([table.line, *(line for cell in cells for line in (cell.line, *(j.line for j in cell.jumps)))]) - 1
    if not table.rows and first + 1 < len(lines) and not lines[first + 1].strip("|:- \t"):
        last = first + 1
    begin = _latex_begin(lines, first)
    if begin is None:
        return first, last + 1
    environment = BEGIN.search(lines[begin])
    assert environment is not None
    end = _find(lines, rf"\end{{{environment[1]}}}", last)
    # A float around the tabular belongs to it: its caption and label are LaTeX, not Markdown.
    for number in range(begin - 1, max(-1, begin - 12), -1):
        if "\\end{" in lines[number]:
            break
        if "\\begin{table" in lines[number]:
            return number, _find(lines, "\\end{table", end) + 1
    return begin, end + 1


def _latex_begin(lines: list[str], first: int) -> int | None:
    """The line of the ``\\begin`` of a LaTeX table whose header stands at ``first``; None for another format."""
    for number in range(first, max(-1, first - 40), -1):
        if BEGIN.search(lines[number]):
            return number
        if "\\end{" in lines[number] or lines[number].lstrip().startswith(("#", "```", "|")):
            return None
    return None


def _find(lines: list[str], text: str, start: int) -> int:
    return next((n for n in range(start, len(lines)) if text in lines[n]), start)
