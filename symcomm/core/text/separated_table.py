"""Tables with a separator between cells: comma (CSV), semicolon or tab, with the csv module's quoting."""

from __future__ import annotations

from collections.abc import Iterator

from symcomm.core.errors import TableError
from symcomm.core.text.table import CELL_LIMIT, Cell, Jump


def split_line(line: str, number: int, file: str, separator: str, keep_math: bool = False) -> list[Cell]:
    """The cells of one line without line ends inside quotes; ``keep_math`` protects separators in ``$...$``.

    >>> [cell.text for cell in split_line('a,"b, c","say ""x\"""', 1, "t.csv", ",")]
    ['a', 'b, c', 'say "x"']
    """
    return next(records([line], 0, 1, number, file, separator, keep_math))[0]


def records(
    lines: list[str], first: int, stop: int, number: int, file: str, separator: str, keep_math: bool = False
) -> Iterator[tuple[list[Cell], int]]:
    """The rows of ``lines[first:stop]``, each with the index of the line after it.

    ``number`` is the number of ``lines[first]`` in the file.
    """
    index, shift = first, number - first
    while index < stop:
        cells: list[Cell] = []
        position = 0
        while True:
            cell, index, position, done = _field(lines, index, stop, position, shift, file, separator, keep_math)
            cells.append(cell)
            if done:
                break
        index += 1
        yield cells, index


def _field(
    lines: list[str], index: int, last: int, position: int, shift: int, file: str, separator: str, keep_math: bool
) -> tuple[Cell, int, int, bool]:
    """One field from ``position`` of ``lines[index]``: the cell, the line and column after it, and if the row ends."""
    line = lines[index]
    start = position
    while separator != "\t" and start < len(line) and line[start] == " ":
        start += 1  # a space after the comma is not part of the cell (csv: skipinitialspace)
    if start < len(line) and line[start] == '"':
        return _quoted(lines, index, last, start, shift, file, separator)
    stop = _math_end(line, start, separator) if keep_math else line.find(separator, start)
    stop = len(line) if stop < 0 else stop
    cell = Cell(line[start:stop], file, index + shift, line, start)
    return cell, index, stop + 1, stop >= len(line)


def _math_end(line: str, position: int, separator: str) -> int:
    """Where the first separator outside ``$...$`` stands, or -1."""
    inside = False
    while position < len(line):
        char = line[position]
        if char == "\\":
            position += 1
        elif char == "$":
            inside = not inside
        elif char == separator and not inside:
            return position
        position += 1
    return -1


def _quoted(
    lines: list[str], index: int, last: int, opening: int, shift: int, file: str, separator: str
) -> tuple[Cell, int, int, bool]:
    """A field in quotes: ``""`` is a quote, and a line end belongs to the field."""
    begin = (index, opening)
    pieces: list[str] = []
    jumps: list[Jump] = []
    length = 0
    position = opening + 1
    while True:
        line = lines[index]
        stop = line.find('"', position)
        piece = line[position:] if stop < 0 else line[position:stop]
        pieces.append(piece)
        length += len(piece)
        if length > CELL_LIMIT or (stop < 0 and index + 1 >= last):
            place = Cell(lines[begin[0]], file, begin[0] + shift, lines[begin[0]], 0).span(opening, opening + 1)
            if length > CELL_LIMIT:
                raise TableError(
                    f"the cell that this quote opens has more than {CELL_LIMIT:,} characters",
                    place,
                    "is the closing quote missing?",
                )
            raise TableError("this quote is never closed", place, 'a quote inside a quoted cell is doubled: `""`')
        if stop < 0:  # the cell goes on in the next line
            pieces.append("\n")
            length += 1
            index, position = index + 1, 0
            jumps.append(Jump(length, index + shift, lines[index], 0))
        elif line.startswith('""', stop):
            pieces.append('"')
            length += 1
            position = stop + 2
            jumps.append(Jump(length, index + shift, line, position))
        else:
            position = stop + 1
            break
    # What stands between the closing quote and the separator belongs to the field, as in the csv module.
    stop = line.find(separator, position)
    stop = len(line) if stop < 0 else stop
    if line[position:stop]:
        jumps.append(Jump(length, index + shift, line, position))
        pieces.append(line[position:stop])
    first = lines[begin[0]]
    cell = Cell("".join(pieces), file, begin[0] + shift, first, opening + 1, "", tuple(jumps))
    return cell, index, stop + 1, stop >= len(line)
