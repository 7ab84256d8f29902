"""Tables of HTML: the cells between their tags; tags within a cell are read with its formula."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate

from symcomm.core.errors import TableError
from symcomm.core.text.table import Cell, Jump, Table, build, header_name, layer_columns

BEGIN = re.compile(r"<table\b", re.IGNORECASE)
_END = re.compile(r"</table\b", re.IGNORECASE)
_TAG = re.compile(r"</?(table|t[rdh]|thead|tbody|tfoot|caption)\b([^<>]*)>", re.IGNORECASE)
_WIDE = re.compile(r"(?:row|col)span\s*=\s*[\"']?0*(?:[2-9]|1\d)", re.IGNORECASE)


def end_of(lines: list[str], index: int, stop: int) -> int:
    """The line in which a table ends that begins in ``lines[index]``; ``stop`` where none does before.

    >>> end_of(["<table>", "", "</TABLE>"], 0, 3)
    2
    """
    begin = BEGIN.search(lines[index])
    if begin is None or _END.search(lines[index], begin.end()):
        return index
    return next((number for number in range(index + 1, stop) if _END.search(lines[number])), stop)


def read(lines: list[str], index: int, last: int, shift: int, file: str) -> Table | None:
    """The table that begins in ``lines[index]`` and ends in ``lines[last]``; ``index + shift`` numbers the first.

    No table comes back where its header has less than two columns of a layer table: pages are set with tables, too.

    >>> page = "<table><tr><th>Input<th>Output</tr><tr><td>x<td><b>y</b></td></tr></table>"
    >>> [cell.text for cell in read([page], 0, 0, 1, "t.md").rows[0]]
    ['x', '<b>y</b>']
    """
    text = "\n".join(lines[index : last + 1])
    starts = [0, *accumulate(len(line) + 1 for line in lines[index:last])]

    def cell(start: int, stop: int) -> Cell:
        first, final = bisect_right(starts, start) - 1, bisect_right(starts, stop) - 1
        jumps = [Jump(starts[n] - start, n + index + shift, lines[n + index], 0) for n in range(first + 1, final + 1)]
        line, column = lines[first + index], start - starts[first]
        return Cell(text[start:stop], file, first + index + shift, line, column, "", tuple(jumps))

    outer = BEGIN.search(text)
    found = _END.search(text, outer.end() if outer else 0)
    assert outer is not None
    assert found is not None
    end = found.start()
    *_, begin = [one.start() for one in BEGIN.finditer(text, 0, end)]  # of a table within another, the inner one
    tags = list(_TAG.finditer(text, begin, end))
    rows: list[list[Cell]] = [[]]
    wide: list[tuple[list[Cell], Cell]] = []
    for tag, stops in zip(tags, [*(one.start() for one in tags[1:]), end], strict=False):
        kind = tag[0][1:3].lower()
        if kind == "tr":
            rows.append([])
        elif kind in ("td", "th") and tag[1].lower() in ("td", "th"):
            rows[-1].append(cell(tag.end(), stops))
            wide += [(rows[-1], cell(*tag.span()))] if _WIDE.search(tag[2]) else []
    header, *body = [row for row in rows if row] or [[]]
    if len(layer_columns(header_name(one.text) for one in header)) < 2:
        return None
    for row, one in wide:
        if len(row) > 1:
            hint = "write it in each of them"
            raise TableError("a cell over several rows or columns is not read here", one.span(), hint)
    for sign, what in (("<!--", "a comment"), ("<table", "a second table")):
        place = text.find(sign, begin + 1)
        if place >= 0:
            at, hint = cell(place, place + len(sign)).span(), "take it out, or put it in lines of its own"
            raise TableError(f"{what} is in the lines of this table", at, hint)
    return build(file, header, body)
