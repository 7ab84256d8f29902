"""Tables as they stand in a text: cells that know where they come from, whatever the format."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cached_property
from typing import NamedTuple

from symcomm.core.errors import Span, TableError
from symcomm.core.records import dataclass, replace

TEXT_LIMIT = 2_000_000  # characters of one input
CELL_LIMIT = 2_000  # characters of one cell
ROW_LIMIT = 20_000  # rows of one table
LAYER_COLUMNS = ("Computation", "Input", "Output")


class Jump(NamedTuple):
    """From ``offset`` of a cell's text on, the text is in ``line`` from ``column`` on."""

    offset: int
    line: int
    line_text: str
    column: int


@dataclass(frozen=True)
class Cell:
    """One cell: its text, and where in which line that text begins.

    ``column`` is the header above it. A cell that runs over several lines, or whose quotes were
    doubled (CSV), has ``jumps``: the places from which on its text stands somewhere else.

    >>> cell = Cell("$y = x$", "t.md", 3, "| $y = x$ | ...", 2, "Computation")
    >>> cell.span(1, 2).word, cell.span(1, 2).place
    ('y', 't.md:3, column Computation')
    """

    text: str
    file: str
    line: int
    line_text: str
    start: int
    column: str = ""
    jumps: tuple[Jump, ...] = ()

    def span(self, start: int = 0, stop: int | None = None) -> Span:
        """Where ``text[start:stop]`` is in its line; the whole cell without arguments."""
        stop = len(self.text) if stop is None else stop
        if not self.jumps:
            first, last, most = self.start + start, self.start + stop, len(self.line_text)
            if not (first <= last <= most and stop <= len(self.text)):
                first, most = min(first, most), min(most, self.start + len(self.text))
                last = max(first, min(last, most))
            return Span(self.file, self.line, self.line_text, first, last, self.name)
        here, end = Jump(0, self.line, self.line_text, self.start), len(self.text)
        for jump in self.jumps:
            if jump.offset > start:
                end = jump.offset
                # A jump within one line (a doubled quote) may be crossed; a line end may not.
                if jump.line != here.line:
                    break
                if stop <= end:
                    break
                first = here.column + start - here.offset
                last = jump.column + stop - jump.offset
                return self._span(here, first, min(last, len(here.line_text)))
            here, end = jump, len(self.text)
        first = here.column + start - here.offset
        return self._span(here, first, min(here.column + min(stop, end) - here.offset, len(here.line_text)))

    def _span(self, here: Jump, first: int, last: int) -> Span:
        first = min(first, len(here.line_text))
        return Span(self.file, here.line, here.line_text, first, max(first, last), self.name)

    @cached_property
    def name(self) -> str:
        """``column Input``: what errors call this cell."""
        return f"column {self.column}" if self.column else ""


@dataclass(frozen=True)
class Table:
    """A table: its header, its rows, and the line its header is in.

    Every row has at least as many cells as there are columns; a missing cell is empty.
    """

    file: str
    line: int
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    line_text: str = ""
    headings: tuple[str, ...] = ()  # rows of words alone, which a layer table leaves out

    @property
    def span(self) -> Span:
        """The header's line."""
        return Span(self.file, self.line, self.line_text, 0, len(self.line_text))


def single(text: str, file: str = "<text>", column: str = "") -> Cell:
    """A cell of its own, for a formula outside of tables.

    >>> single("24 N D^2").span(3, 4).word
    'N'
    """
    return Cell(text, file, 1, text, 0, column)


class PlacedText(str):
    """Text that knows where it is: ``span`` is the place of its first line.

    >>> text = PlacedText("a = 1; b = 2")
    >>> [cell.text for cell in PlacedText.cells_of(text)]
    ['a = 1', ' b = 2']
    """

    span: Span | None = None

    @classmethod
    def at(cls, text: str, span: Span) -> PlacedText:
        """Text at a place: in the line of the span, or in the lines below it where it does not stand there."""
        made = cls(text)
        made.span = span
        return made

    @staticmethod
    def cells_of(text: str) -> list[Cell]:
        """The pieces of a text between line ends and semicolons, each with its place where the text has one."""
        span = text.span if isinstance(text, PlacedText) else None
        inside = -1 if span is None or "\n" in text else span.text.find(text)
        found: list[Cell] = []
        for number, line in enumerate(text.split("\n")):
            start = 0
            for piece in line.split(";"):
                if span is None:
                    found.append(Cell(piece, "<text>", number + 1, line, start))
                elif inside >= 0:
                    found.append(Cell(piece, span.file, span.line, span.text, inside + start))
                else:  # a block of lines stands below the mark that begins it
                    found.append(Cell(piece, span.file, span.line + number + 1, line, start))
                start += len(piece) + 1
        return found


def trimmed(cell: Cell) -> Cell:
    """The cell without the white space around its text."""
    text = cell.text.strip()
    lead = len(cell.text) - len(cell.text.lstrip()) if text else 0
    return cell if text == cell.text else cut(cell, lead, lead + len(text))


def cut(cell: Cell, start: int, stop: int) -> Cell:
    """The cell with only ``text[start:stop]``, which is where it was."""
    here = Jump(0, cell.line, cell.line_text, cell.start)
    kept: list[Jump] = []
    for jump in cell.jumps:
        if jump.offset <= start:
            here = jump
        elif jump.offset < stop:
            kept.append(jump._replace(offset=jump.offset - start))
    column = here.column + start - here.offset
    return Cell(cell.text[start:stop], cell.file, here.line, here.line_text, column, cell.column, tuple(kept))


def build(file: str, header: list[Cell], body: Iterable[list[Cell]]) -> Table:
    """A table of a header and rows of raw cells; bounds are checked here, once for every format."""
    header = [trimmed(cell) for cell in header]
    columns = tuple(header_name(cell.text) for cell in header)
    first = header[0]
    rows: list[tuple[Cell, ...]] = []
    for raw in body:
        if len(rows) >= ROW_LIMIT:
            raise TableError(
                f"this table has more than {ROW_LIMIT:,} rows",
                raw[0].span(),
                "a table states one layer; split the file or shorten the table",
            )
        cells: list[Cell] = []
        for number, raw_cell in enumerate(raw):
            cell = trimmed(raw_cell)
            column = columns[number] if number < len(columns) else ""
            cells.append(Cell(cell.text, cell.file, cell.line, cell.line_text, cell.start, column, cell.jumps))
            check_cell(cells[-1])
        last = raw[-1]
        for number in range(len(cells), len(columns)):
            cells.append(Cell("", file, last.line, last.line_text, len(last.line_text), columns[number]))
        while len(cells) > len(columns) and not cells[-1].text:
            cells.pop()  # empty cells beyond the header say nothing
        if any(cell.text for cell in cells):
            rows.append(tuple(cells))
    return Table(file, first.line, columns, tuple(rows), first.line_text)


def check_cell(cell: Cell) -> None:
    """Refuse a cell that is longer than any formula."""
    if len(cell.text) > CELL_LIMIT:
        raise TableError(
            f"this cell has {len(cell.text):,} characters; at most {CELL_LIMIT:,} are read",
            cell.span(0, 20),
            "is a quote, a `$` or a line end missing before it?",
        )


def header_name(text: str) -> str:
    r"""The plain words of a header cell: emphasis and rulers of any format are taken off.

    >>> header_name("**Input**"), header_name(r"\textbf{Output}"), header_name("$\\text{Computation}$")
    ('Input', 'Output', 'Computation')
    """
    text = re.sub(r"<[^<>]*>", "", text).strip().strip("$").strip()
    while True:
        inner = re.fullmatch(
            r"(?:\\(?:multicolumn\{[^{}]*\}\{[^{}]*\}|[a-zA-Z]+)\s*(?:\[[^\]]*\])?)?\{(.*)\}", text, re.DOTALL
        )
        if inner is None:
            break
        text = inner.group(1).strip()
    return re.sub(r"\s+", " ", text.strip("*_`: \t"))


def check_text(text: str, file: str) -> None:
    """Refuse a text that is too long, before anything looks at it."""
    if len(text) > TEXT_LIMIT:
        raise TableError(
            f"the input {file} has {len(text):,} characters; at most {TEXT_LIMIT:,} are read",
            hint="give the file with the layer table, not a data set",
        )


# Marks around a whole cell, which set it in another type; in a computation, the number before it.
_SET = re.compile(r"(\*{1,3})((?:(?!\1).)+)\1|(_{1,2})(.+)\3", re.DOTALL)
_COUNTED = re.compile(r"(?:\(\d{1,3}\)|\d{1,3}[.)])\s+(?=[^=]*=)")
# What only a list of shapes has, for numbers of parameters may stand below the same heading.
_DECLARES = re.compile(r"∈|\\in(?![a-z])|[\w}'$]\s*(?:\[|\([^()]*[,×]"
                       r"|:\s*[^\s,;:]{0,40}(?:[\[(×·*]| [×x·*] |[A-Z\d]x[A-Z\d]))")
_HEADINGS = {
    "computation": "Computation", "computations": "Computation", "berechnung": "Computation", "计算": "Computation",
    "input": "Input", "inputs": "Input", "eingabe": "Input", "eingaben": "Input", "输入": "Input",
    "output": "Output", "outputs": "Output", "ausgabe": "Output", "ausgaben": "Output", "输出": "Output",
}  # fmt: skip
_WORDS = re.compile(r"(?:[*_\s]|<[^<>]*>)*[^\W\d_]{2,}(?:[\s,:;&/–-]+[^\W\d_]{2,})*(?:[*_:\s]|<[^<>]*>)*")
_WEIGHTS = {"weight", "weights", "parameter", "parameters", "params", "gewichte", "权重", "参数"}
_HEADING_WORD = re.compile(r"(?<![\\\w])[^\W\d_¹²³]{2,}")


def layer_columns(columns: Iterable[str]) -> dict[str, int]:
    """The positions of the columns Computation, Input and Output, as far as they are there.

    More words may stand behind Input and Output, and marks of footnotes behind each.

    >>> layer_columns(("Output (shape)", "Note", "computation[^1]"))
    {'Computation': 2, 'Output': 0}
    """
    found: dict[str, int] = {}
    words = [_HEADING_WORD.findall(column.casefold()) for column in columns]
    for longest in (1, 6):
        for position, said in enumerate(words):
            name = _HEADINGS.get(said[0]) if said and len(said) <= longest else None
            if name is not None and (longest == 1 or name != "Computation"):
                found.setdefault(name, position)
    return found


def layer_places(table: Table) -> dict[str, int]:
    """The positions of the columns of a layer table, as far as its headings tell, or its first row where they do not.

    Without a column Computation, the only one with an `=` has the computations, whatever it is called. Weights may have
    a column of their own, where it lists shapes: it may count them as well.

    >>> from symcomm.core.text.finder import read_tables
    >>> text = "Op\\tInput\\tWeights\\tOutput\\ny = x W\\tx [B, D]\\tW [D, D]\\ty [B, D]"
    >>> layer_places(read_tables(text, "t.txt")[0])
    {'Input': 1, 'Output': 3, 'Computation': 0, 'Weights': 2}
    """
    found = layer_columns(table.columns)
    if "Input" not in found or "Output" not in found:
        return found
    others = [place for place in range(len(table.columns)) if place not in found.values()]
    first = next((row for row in table.rows if not _is_heading(row)), ())
    if "Computation" not in found and first and _DECLARES.search(first[found["Output"]].text):
        equations = [place for place in others if "=" in first[place].text]
        found |= {"Computation": equations[0]} if len(equations) == 1 else {}
    for place in others:
        said = _HEADING_WORD.findall(table.columns[place].casefold())
        if said and said[0] in _WEIGHTS and any(_DECLARES.search(row[place].text) for row in table.rows):
            found.setdefault("Weights", place)
    return found


def as_layer_table(table: Table) -> Table:
    """The table, if it has the columns of a layer table and no row too wide; else an error that says what is missing.

    >>> from symcomm.core.errors import TableError
    >>> from symcomm.core.text.finder import read_tables
    >>> [table] = read_tables("Computation\\tInput\\n$y = x$\\t$x$", "t.txt")
    >>> try:
    ...     as_layer_table(table)
    ... except TableError as error:
    ...     print(error.message)
    this table lacks the column Output of a layer table
    """
    found = layer_places(table)
    missing = [name for name in LAYER_COLUMNS if name not in found]
    if missing:
        which = " and ".join([", ".join(missing[:-1]), missing[-1]]) if len(missing) > 1 else missing[0]
        close = [(near[0], name) for name in missing if (near := get_close_matches(name, table.columns, n=1))]
        meant = "".join(f"; is '{column}' meant for {name}?" for column, name in close[:1])
        shown = ", ".join(column for column in table.columns if column)
        raise TableError(
            f"this table lacks the column{'s' if len(missing) > 1 else ''} {which} of a layer table",
            table.span,
            f"its columns are {shown}{meant}",
        )
    for row in table.rows:
        if len(row) > len(table.columns):
            extra = row[len(table.columns)]
            raise TableError(
                f"this row has {len(row)} cells, the header has {len(table.columns)}",
                extra.span(),
                "a separator inside a formula must stand within $...$ (or in quotes in CSV)",
            )
    rows = [tuple(map(_plain, row)) for row in table.rows if not _is_heading(row)]
    headings = (row[0].text.strip(" *_") for row in table.rows if _is_heading(row))
    return replace(table, rows=tuple(rows), headings=(*table.headings, *headings))


def _plain(cell: Cell) -> Cell:
    """The cell without marks around all of it, and without the number of its row.

    >>> _plain(single("**1. y = x W**")).text
    'y = x W'
    """
    for _ in range(3):  # one within another
        if inner := _SET.fullmatch(cell.text):
            cell = trimmed(cut(cell, *inner.span(inner.lastindex or 0)))
    counted = _COUNTED.match(cell.text)
    return cut(cell, counted.end(), len(cell.text)) if counted else cell


def _is_heading(row: tuple[Cell, ...]) -> bool:
    """Whether a row names those below it: one cell of words alone, since a formula without its sizes is a mistake.

    >>> [_is_heading((Cell(said, "t.md", 1, said, 0),)) for said in ("**The head**", "relu(A)")]
    [True, False]
    """
    said = [cell.text for cell in row if cell.text]
    return len(said) == 1 and row[0].text == said[0] and _WORDS.fullmatch(said[0]) is not None


def as_text(table: Table) -> str:
    """The three columns of a layer table as text with tabs, which reads as the same table.

    >>> from symcomm.core.text.finder import layer_tables
    >>> [table] = layer_tables("| Input | Computation | Output |\\n|---|---|---|\\n| $x$ | $y = x$ | $y$ |", "t.md")
    >>> as_text(table)
    'Computation\\tInput\\tOutput\\n$y = x$\\t$x$\\t$y$\\n'
    """
    places = layer_places(table)
    columns = [name for name in (*LAYER_COLUMNS, "Weights") if name in places]
    rows = [[" ".join(row[places[name]].text.split()) for name in columns] for row in table.rows]
    return "".join("\t".join(cells) + "\n" for cells in (columns, *rows))
