"""Tables with bars between cells, of Markdown, Org, reST or a terminal; bars inside formulas are left alone."""

from __future__ import annotations

import re
from itertools import pairwise

from symcomm.core.text.table import Cell

_DELIMITER = re.compile(r"[ \t>]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")

BARS = "|│┃║"
_RULER = re.compile(r"[|+:│┃║\u250c-\u254b\u2550-\u256c][-=+|:\u2500-\u256c]*")
_LINES = re.compile("--|==|[─━═]")


def is_delimiter(line: str) -> bool:
    """Whether a line is the ruler below a header.

    >>> is_delimiter("| --- | :-: |"), is_delimiter("---"), is_delimiter("| a | b |")
    (True, False, False)
    """
    # Possible characters first: the expression would try many ways on a long line of something else.
    return "|" in line and "-" in line and not line.strip("|:- \t>") and _DELIMITER.fullmatch(line) is not None


def is_ruler(line: str) -> bool:
    """Whether a line only separates rows, in Markdown, Org, a reST grid or a box.

    >>> [is_ruler(line) for line in ("|---+---|", "+===+===+", "├─────┼─────┤", "| x | - |", "-----")]
    [True, True, True, False, False]
    """
    return is_delimiter(line) or (_RULER.fullmatch(line.strip()) is not None and _LINES.search(line) is not None)


def split_line(line: str, number: int, file: str) -> list[Cell]:
    r"""The cells of one line; a pipe inside ``$...$`` or backticks, or escaped, does not split.

    >>> [cell.text for cell in split_line(r"| $P(a|b)$ | a \| b |", 1, "t.md")]
    [' $P(a|b)$ ', ' a \\| b ']
    """
    cuts = [-1, *_pipes(line), len(line)]
    cells = [Cell(line[left + 1 : right], file, number, line, left + 1) for left, right in pairwise(cuts)]
    if len(cells) > 1 and not cells[0].text.strip(" \t>"):
        cells = cells[1:]
    if len(cells) > 1 and not cells[-1].text.strip():
        cells = cells[:-1]
    return cells


def _pipes(line: str) -> list[int]:
    """Where the pipes stand that separate cells."""
    protected = _protected(line)
    pipes: list[int] = []
    position = 0
    while position < len(line):
        if position in protected:
            position = protected[position]
        elif line[position] == "\\":
            position += 2
        else:
            if line[position] in BARS:
                pipes.append(position)
            position += 1
    return pipes


def _protected(line: str) -> dict[int, int]:
    """Start and end of the pieces in ``$...$``, ``$$...$$`` and backticks; an unpaired mark protects nothing."""
    pieces: dict[int, int] = {}
    opened: tuple[str, int] | None = None
    position = 0
    while position < len(line):
        char = line[position]
        if char == "\\" and not (opened and opened[0] == "`"):
            position += 2
            continue
        if char in "$`":
            mark = char
            while position + len(mark) < len(line) and line[position + len(mark)] == char:
                mark += char
            if opened is None:
                opened = (mark, position)
            elif opened[0] == mark:
                pieces[opened[1]] = position + len(mark)
                opened = None
            position += len(mark)
            continue
        position += 1
    return pieces
