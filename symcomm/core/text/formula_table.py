"""A layer table of one row, from one formula with the shapes of its operands."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

from symcomm.core.blocks import Scalar
from symcomm.core.errors import DocumentError
from symcomm.core.text.table import Cell, Table, build


@lru_cache(maxsize=1024)  # the papers of a class have the same ones
def formula_table(scalar: Scalar) -> Table:
    r"""A layer table of one row, from a formula such as ``$Y = XW, X \in \mathbb{R}^{4 \times 8}, W \in ...$``."""
    text, span = scalar.text, scalar.span
    if scalar.style == '"' and "\\" in span.word:
        raise DocumentError("a formula in double quotes loses its backslashes", span, "write it in single quotes")
    if "\n" in text.strip():
        raise DocumentError("write a formula on one line", span, "write several rows below table: |")
    where = span.text.find(text.strip())
    body = text.strip().strip("$").strip()
    if where < 0:  # a quote doubled inside single quotes: the text is not in the line as it is
        where, line = 0, text.strip()
    else:
        line = span.text
    offset = where + text.strip().find(body)
    equation, declared = _split_formula(body)
    if not declared or "=" not in body[: equation[1]]:
        raise DocumentError(
            "a formula needs an equation and the shapes of its operands",
            span,
            r"for instance $Y = XW, X \in \mathbb{R}^{64 \times 32}, W \in \mathbb{R}^{32 \times 16}$",
        )
    target = body[: body.index("=")].strip()
    output = [d for d in declared if re.split(r"\\in(?![a-z])|∈", body[d[0] : d[1]])[0].strip() == target]
    given = [d for d in declared if d not in output]

    def cell(parts: list[tuple[int, int]], column: str) -> Cell:
        start, stop = (parts[0][0], parts[-1][1]) if parts else (0, 0)
        return Cell(body[start:stop], span.file, span.line, line, offset + start, column)

    header = [Cell(name, span.file, span.line, line, offset, name) for name in ("Computation", "Input", "Output")]
    last = cell(output, "Output") if output else Cell(target, span.file, span.line, line, offset, "Output")
    return build(span.file, header, [[cell([equation], "Computation"), cell(given, "Input"), last]])


def _split_formula(body: str) -> tuple[tuple[int, int], list[tuple[int, int]]]:
    """Where the equation stands, and where each declaration after it stands."""
    cuts, depth = [-1], 0
    for position, char in enumerate(body):
        depth += char in "{[("
        depth -= char in "}])"
        if char == "," and not depth:
            cuts.append(position)
    cuts.append(len(body))
    parts = [(a + 1, b) for a, b in itertools.pairwise(cuts)]
    declares = [bool(re.search(r"\\in(?![a-z])|∈", body[a:b])) for a, b in parts]
    first = next((n for n, declared in enumerate(declares) if declared), len(parts))
    # "X, W \in R" declares both: bare names before a declaration belong to it.
    while first > 1 and re.fullmatch(r"\s*[A-Za-z][\w'^{}\\]*\s*", body[slice(*parts[first - 1])]):
        first -= 1
    equation = (parts[0][0], parts[first - 1][1]) if first else parts[0]
    groups: list[tuple[int, int]] = []
    start: int | None = None
    for n in range(first, len(parts)):
        start = parts[n][0] if start is None else start
        if declares[n]:
            groups.append((start, parts[n][1]))
            start = None
        elif groups and ("=" in body[slice(*parts[n])] or "dots" in body[slice(*parts[n])]):
            groups[-1] = (groups[-1][0], parts[n][1])  # the range of a family
            start = None
        elif groups and "=" in body[groups[-1][0] : groups[-1][1]]:
            groups[-1] = (groups[-1][0], parts[n][1])
            start = None
    strip = [(a + len(body[a:b]) - len(body[a:b].lstrip()), b) for a, b in (equation, *groups)]
    return strip[0], strip[1:]
