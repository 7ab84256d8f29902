"""Finds the tables of a text line by line and hands each to the reader of its format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from symcomm.core.errors import TableError
from symcomm.core.text import html_table, latex_table, markdown_table, separated_table
from symcomm.core.text.table import (
    LAYER_COLUMNS,
    Cell,
    Table,
    as_layer_table,
    build,
    check_text,
    header_name,
    layer_columns,
    layer_places,
)

_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})\s*([^`\s]*)")
_SIMPLE = re.compile(r"\s*=+(?: +=+)+\s*")
# Fences whose content is a table by what they say; any other fence shows code and is not read.
_TABLE_FENCES = {"csv", "tsv", "tex", "latex", "markdown", "md", "table"}


def read_tables(text: str, file: str, first_line: int = 1) -> list[Table]:
    """Find every table of a text: Markdown, tab- or comma-separated, LaTeX ``tabular``.

    ``file`` names the text in errors, and its ending may say what to expect (``.csv``, ``.tsv``, ``.tex``);
    ``first_line`` is the number of the text's first line there.

    >>> [table] = read_tables("prose\\n\\nComputation\\tInput\\tOutput\\n$y = x$\\t$x$\\t$y$\\n", "t.txt")
    >>> table.columns, table.rows[0][1].text
    (('Computation', 'Input', 'Output'), '$x$')
    """
    check_text(text, file)
    lines = [line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n")]
    ending = file.rpartition(".")[2].lower() if "." in file else ""
    return list(_Finder(lines, file, first_line, ending).tables())


def layer_tables(text: str, file: str, first_line: int = 1) -> list[Table]:
    """The layer tables of a text: those with the columns Computation, Input and Output.

    The columns may stand in any order, in any case, in the plural, with others beside them. A table with
    a column Computation and only one of the other two is taken for a layer table with a mistake, and refused.
    One with Input and Output whose computations are in a column of another name is one, too.

    >>> len(layer_tables("| Computation | Input | Output |\\n|---|---|---|\\n| $y = x$ | $x$ | $y$ |", "t.md"))
    1
    """
    found: list[Table] = []
    for table in read_tables(text, file, first_line):
        columns = layer_places(table)
        if "Computation" in columns and len(columns) >= 2:
            found.append(as_layer_table(table))
    return found


def missing_table(text: str, file: str) -> str:
    """The hint for a text without a layer table: the columns that one has, and what is there instead.

    >>> missing_table("Computation  Input  Output", "t.txt")
    'a layer table has the columns Computation, Input and Output; put tabs or | between its cells'
    """
    said = "a layer table has the columns Computation, Input and Output"
    tables = read_tables(text, file)
    if tables:
        nameless = len(layer_columns(tables[0].columns)) == 2
        hint = "; call the column of formulas Computation" if nameless else ""
        return f"{said}; a table here has {', '.join(filter(None, tables[0].columns))}"[:300] + hint
    lowered = text.casefold()
    return f"{said}; put tabs or | between its cells" if all(n.casefold() in lowered for n in LAYER_COLUMNS) else said


class _Finder:
    def __init__(self, lines: list[str], file: str, shift: int, ending: str) -> None:
        self.lines, self.file, self.shift, self.ending = lines, file, shift, ending
        self.unclosed = 0  # no table of HTML ends before this line

    def tables(self) -> Iterator[Table]:
        if self.ending in ("csv", "tsv"):
            yield from self._whole(0, len(self.lines), "\t" if self.ending == "tsv" else "")
            return
        yield from self._within(0, len(self.lines))

    def _whole(self, index: int, stop: int, separator: str) -> Iterator[Table]:
        """A file or fence that says it is one table: blank lines only separate tables."""
        while index < stop:
            if not self.lines[index].strip():
                index += 1
                continue
            mark = separator or max(",;\t", key=self.lines[index].count)
            table, index = self._separated(index, stop, mark)
            yield table

    def _within(self, index: int, stop: int) -> Iterator[Table]:
        while index < stop:
            line = self.lines[index]
            fence = _FENCE.match(line) if self.ending != "tex" else None
            if fence:
                end = self._fence_end(index, stop, fence.group(1))
                kind = fence.group(2).lower().strip("{}.")
                if kind in ("csv", "tsv"):
                    yield from self._whole(index + 1, end, "\t" if kind == "tsv" else "")
                elif kind in _TABLE_FENCES:
                    yield from self._within(index + 1, end)
                index = end + 1
                continue
            begin = _latex_begin(line)
            if begin >= 0:
                latex, last = latex_table.read(self.lines, index, stop, begin, self.shift, self.file)
                if latex is not None:
                    yield latex
                index = last + 1
                continue
            if index >= self.unclosed and html_table.BEGIN.search(line) and "`" not in line:
                last = html_table.end_of(self.lines, index, stop)
                if last == stop:
                    self.unclosed = stop  # so that no line before it looks again
                    continue
                html = html_table.read(self.lines, index, last, self.shift, self.file)
                if html is not None:
                    yield html
                index = last + 1
                continue
            if _SIMPLE.fullmatch(line):
                simple, index = self._simple(index, stop)
                if simple is not None:
                    yield simple
                continue
            if index + 1 < stop and self._barred(index) and markdown_table.is_ruler(self.lines[index + 1]):
                table, index = self._markdown(index, stop)
                yield table
                continue
            if "\t" in line.strip() and self._tab_row(index + 1, stop):
                table, index = self._tabbed(index, stop)
                yield table
                continue
            mark = _layer_separator(line)
            if mark:
                table, index = self._separated(index, stop, mark)
                yield table
                continue
            index += 1

    def _fence_end(self, index: int, stop: int, mark: str) -> int:
        """The index of the line that closes a fence, or the text's end."""
        for end in range(index + 1, stop):
            stripped = self.lines[end].strip()
            if stripped.startswith(mark) and not stripped.strip(mark[0]):
                return end
        return stop

    def _markdown(self, index: int, stop: int) -> tuple[Table, int]:
        def cells(position: int) -> list[Cell]:
            return markdown_table.split_line(self.lines[position], position + self.shift, self.file)

        end = index + 2
        while end < stop and (self._barred(end) or markdown_table.is_ruler(self.lines[end])):
            end += 1
        rows = [row for row in range(index + 2, end) if not markdown_table.is_ruler(self.lines[row])]
        return build(self.file, cells(index), map(cells, rows)), end

    def _simple(self, index: int, stop: int) -> tuple[Table | None, int]:
        """A simple table of reST, whose columns begin where its rules do, if its header is that of a layer table."""
        rule = self.lines[index].rstrip()
        same = (place for place in range(index + 1, stop) if self.lines[place].rstrip() == rule)
        below, end = next(same, stop), next(same, stop)
        starts = [found.start() for found in re.finditer("=+", rule)]

        def cells(place: int) -> list[Cell]:
            line = self.lines[place]
            return [Cell(line[a:b], self.file, place + self.shift, line, min(a, len(line)))
                    for a, b in pairwise([*starts, max(len(line), starts[-1])])]  # fmt: skip

        if end == stop or below != index + 2 or not _is_layer_like(cells(index + 1)):
            return None, index + 1
        rows = [place for place in range(below + 1, end) if self.lines[place].strip()]
        for place in (index + 1, *rows):
            line = self.lines[place]
            for start in starts[1:]:
                if line[start - 1 : start].strip():
                    at = Cell(line, self.file, place + self.shift, line, 0).span(start - 1, start + 1)
                    raise TableError("this cell is wider than its column", at, "make its rules as long as it is")
        return build(self.file, cells(index + 1), map(cells, rows)), end + 1

    def _barred(self, index: int) -> bool:
        line = self.lines[index]
        return any(bar in line for bar in markdown_table.BARS) and not markdown_table.is_ruler(line)

    def _tab_row(self, index: int, stop: int) -> bool:
        return index < stop and "\t" in self.lines[index] and bool(self.lines[index].strip())

    def _tabbed(self, index: int, stop: int) -> tuple[Table, int]:
        header = separated_table.split_line(self.lines[index], index + self.shift, self.file, "\t")
        layer = _is_layer_like(header)
        end = index + 1
        while end < stop and (
            self._tab_row(end, stop)
            # A formula alone in a line right below is a row that lost its tabs: better refused than dropped.
            or (layer and self.lines[end].strip().startswith("$"))
        ):
            end += 1
        rows = separated_table.records(self.lines, index, end, index + self.shift, self.file, "\t")
        parsed = [cells for cells, _ in rows]
        return build(self.file, parsed[0], parsed[1:]), end

    def _separated(self, index: int, stop: int, mark: str) -> tuple[Table, int]:
        """A separated table from its header to the first blank line."""
        rows: list[list[Cell]] = []
        end = index
        for cells, end in separated_table.records(self.lines, index, stop, index + self.shift, self.file, mark):
            if rows and len(cells) > len(rows[0]) and mark != "\t" and cells[0].line == cells[-1].line:
                # Commas of a formula that nobody quoted: keep them, if the row then fits its header.
                line = cells[0].line_text
                kept = separated_table.split_line(line, cells[0].line, self.file, mark, keep_math=True)
                rows.append(kept if len(kept) == len(rows[0]) else cells)
            else:
                rows.append(cells)
            if end < stop and not self.lines[end].strip():
                break
        return build(self.file, rows[0], rows[1:]), end


def _layer_separator(line: str) -> str:
    """The separator, if the line is a layer table's header with commas or semicolons; prose is full of commas."""
    lowered = line.casefold()
    if len(line) > 500 or not all(name.casefold() in lowered for name in LAYER_COLUMNS):
        return ""
    for mark in ",;":
        if mark in line and _is_layer(line.split(mark)):
            return mark
    return ""


def _is_layer_like(header: list[Cell]) -> bool:
    """Whether a header has two columns of a layer table: the computations may have another name."""
    return len(layer_columns(header_name(cell.text) for cell in header)) > 1


def _is_layer(columns: list[str]) -> bool:
    return len(layer_columns(header_name(column.strip().strip('"')) for column in columns)) == len(LAYER_COLUMNS)


def _latex_begin(line: str) -> int:
    r"""Where a LaTeX table begins in a line, or -1; one in a comment, in math or in backticks does not count."""
    if "\\begin" not in line:
        return -1
    found = latex_table.BEGIN.search(line)
    if found is None:
        return -1
    before = line[: found.start()].replace("\\%", "")
    if "%" in before or before.count("`") % 2 or before.count("$") % 2:
        return -1
    return found.start()
