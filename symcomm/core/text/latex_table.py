r"""LaTeX tables: ``tabular``, ``tabular*``, ``tabularx``, ``longtable``, with or without booktabs rules."""

from __future__ import annotations

import re

from symcomm.core.errors import Span, TableError
from symcomm.core.text.table import Cell, Jump, Table, build, cut

BEGIN = re.compile(r"\\begin\s*\{(tabular\*?|tabularx|tabulary|longtable|array|tblr|longtblr)\}")
_ENVIRONMENT = re.compile(r"\\(begin|end)\s*\{([a-zA-Z*]+)\}")
_WIDTH_FIRST = {"tabular*", "tabularx", "tabulary"}
# Commands that draw lines or set colours; they stand before a row and say nothing about it.
_RULE = re.compile(
    r"\s*\\(?:hline|toprule|midrule|bottomrule|hdashline|endhead|endfirsthead|endfoot|endlastfoot|centering|small"
    r"|(?:cline|rowcolor|noalign|caption|label|cmidrule|addlinespace|specialrule|morecmidrules)"
    r"(?:\([a-z]*\))?(?:\[[^\]]*\])?(?:\{[^{}]*\})*)(?![a-zA-Z])(?:\[[^\]]*\])?"
)


# What sets several lines in a cell, one cell beside several rows, or a cell in another type.
_BOX = re.compile(
    r"\s*\\(?:makecell|shortstack|thead|textbf|textit|texttt|emph|multirow\*?(?:\[[^\]]*\])?\{[^{}]*\}\{[^{}]*\})\s*"
    r"(?:\[[^\]]*\])?\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}\s*"
)


class Body:
    """The characters of an environment with the line and column each one is at."""

    def __init__(self, lines: list[str], shift: int, file: str) -> None:
        self.lines, self.shift, self.file = lines, shift, file

    def span(self, index: int, start: int, stop: int) -> Span:
        """Columns of one line as a span."""
        return Span(self.file, index + self.shift, self.lines[index], start, stop)


def read(lines: list[str], index: int, stop: int, column: int, shift: int, file: str) -> tuple[Table | None, int]:
    r"""The table whose ``\begin`` is at ``lines[index][column:]``, and the line of its ``\end``.

    Only lines before ``stop`` are read; ``index + shift`` is the line's number in the file.
    No table comes back where there are no rows.
    """
    body = Body(lines, shift, file)
    begin = BEGIN.match(lines[index], column)
    assert begin is not None
    opening = body.span(index, begin.start(), begin.end())
    line, position = _arguments(body, index, begin.end(), 2 if begin.group(1) in _WIDTH_FIRST else 1, opening)
    rows: list[list[Cell]] = []
    row: list[Cell] = []
    cell = _Draft(body, line, position)
    depth = environments = 0
    math = False
    while True:
        if position >= len(lines[line]):
            if line + 1 >= stop:
                raise TableError(
                    f"this `{opening.word}` is never closed", opening, rf"write `\end{{{begin.group(1)}}}` after it"
                )
            line, position = line + 1, 0
            # A line end counts as one space.
            cell.pieces.append("\n")
            cell.length += 1
            cell.jumps.append(Jump(cell.length, line, cell.body.lines[line], 0))
            continue
        text = lines[line]
        char = text[position]
        if char == "%":  # a comment: the rest of the line is not there
            cell.skip(line, position, len(text))
            position = len(text)
            continue
        if char == "\\":
            found = _ENVIRONMENT.match(text, position)
            if found:
                if found.group(1) == "begin":
                    environments += 1
                elif environments == 0:
                    row.append(cell.done())
                    rows.append(row)
                    return _table(body, rows, file), line
                else:
                    environments -= 1
                cell.add(line, position, found.end())
                position = found.end()
                continue
            if text.startswith("\\\\", position) and depth == 0 and environments == 0 and not math:
                row.append(cell.done())
                rows.append(row)
                spacing = re.compile(r"\*?(?:\[[^\]]*\])?").match(text, position + 2)
                position = spacing.end() if spacing else position + 2
                row, cell = [], _Draft(body, line, position)
                continue
            cell.add(line, position, min(position + 2, len(text)))
            position += 2
            continue
        if char == "$":
            math = not math
        elif char == "{":
            depth += 1
        elif char == "}":
            depth = max(0, depth - 1)
        elif char == "&" and depth == 0 and environments == 0 and not math:
            row.append(cell.done())
            position += 1
            cell = _Draft(body, line, position)
            continue
        cell.add(line, position, position + 1)
        position += 1


def _table(body: Body, rows: list[list[Cell]], file: str) -> Table | None:
    kept: list[list[Cell]] = []
    for row in rows:
        row = [_without_rules(cell) for cell in row]
        blank = not any(cell.text.strip() for cell in row)
        # A row of one cell over all columns is a heading inside the table, not a layer.
        heading = len(row) == 1 and row[0].text.strip().startswith("\\multicolumn")
        if not blank and not (heading and kept):
            kept.append(row)
    if not kept:
        return None
    return build(file, kept[0], kept[1:])


def _without_rules(cell: Cell) -> Cell:
    """The cell without the rules before its text, and without the box around it."""
    position = 0
    while True:
        found = _RULE.match(cell.text, position)
        if found is None or found.end() == position:
            break
        position = found.end()
    cell = cut(cell, position, len(cell.text))
    boxed = _BOX.fullmatch(cell.text)
    return cell if boxed is None else cut(cell, *boxed.span(1))


def _arguments(body: Body, line: int, position: int, count: int, opening: Span) -> tuple[int, int]:
    """Skip ``[t]`` and ``count`` groups in braces: the width and the columns."""
    while count:
        text = body.lines[line]
        while position < len(text) and text[position].isspace():
            position += 1
        if position < len(text) and text[position] == "[":
            stop = text.find("]", position)
            if stop < 0:
                return line, position
            position = stop + 1
        elif position < len(text) and text[position] == "{":
            depth, position = 1, position + 1
            while depth:
                if position >= len(text):
                    raise TableError(
                        f"the columns of this `{opening.word}` are never closed", opening, "a `}` is missing"
                    )
                depth += {"{": 1, "}": -1}.get(text[position], 0)
                position += 1
            count -= 1
        else:
            break  # no columns given: the table may still be read
    return line, position


class _Draft:
    """A cell while its characters are collected, over lines and around comments."""

    def __init__(self, body: Body, line: int, position: int) -> None:
        self.body = body
        self.start = Jump(0, line, body.lines[line], position)
        self.pieces: list[str] = []
        self.jumps: list[Jump] = []
        self.length = 0

    def add(self, line: int, start: int, stop: int) -> None:
        """Take characters of a line."""
        self.pieces.append(self.body.lines[line][start:stop])
        self.length += stop - start

    def skip(self, line: int, start: int, stop: int) -> None:
        """Leave characters out: a comment."""
        self.jumps.append(Jump(self.length, line, self.body.lines[line], stop))

    def done(self) -> Cell:
        """The cell."""
        shift = self.body.shift
        jumps = tuple(jump._replace(line=jump.line + shift) for jump in self.jumps)
        start = self.start
        return Cell("".join(self.pieces), self.body.file, start.line + shift, start.line_text, start.column, "", jumps)
