"""A graph as text: a column of boxes, with rails for what skips some of them; and as Graphviz source."""

from __future__ import annotations

from collections.abc import Sequence

from symcomm.core.drawing.picture import GROUPS, Drawing, graph_title, picture, small_print
from symcomm.core.graph.graph import Graph
from symcomm.core.printing.escape import printable


def text(graph: Graph) -> str:
    """The graph for a terminal: one line an op, rails for the tensors that are still needed, a bracket a region."""
    drawn = picture(graph)
    arts = [(region, inner, _art(inner)) for region, inner in drawn.frames]
    widths = _widths(drawn, [line for *_, art in arts for line in art])
    out: list[str] = []
    for region, inner, art in arts:
        lines = _lines(inner, art, widths)
        if region is None:
            return "\n".join(lines)
        out += [f"╭─ {printable(graph_title(region))}", *(f"│ {line}" for line in lines)]
        sent = [f"▶ {a.name}  {a.shape}  to {b.region}" for a, b, _ in drawn.between if a.region == region.name]
        out += [f"├─{printable(one)}" for one in sent[:-1]] + [f"╰─{printable(''.join(sent[-1:]))}"]
    return "\n".join(out)


def rails(drawn: Drawing) -> list[str]:
    """One line a box: a rail leads down from each box to its readers.

    >>> from symcomm.core.drawing import Box
    >>> a, b = Box("a", "x", "input", "D", "input"), Box("b", "y", "relu", "D", "function")
    >>> print("\\n".join(rails(Drawing("", (a, b), (("a", "b", "x"),)))))
    ○  x  input  D
    ●  y  relu   D
    """
    art = _art(drawn)
    return _lines(drawn, art, _widths(drawn, art))


def _art(drawn: Drawing) -> list[str]:
    wanted: dict[str, int] = {}
    inputs: dict[str, list[str]] = {}
    for source, target, _ in drawn.edges:
        wanted[source] = wanted.get(source, 0) + 1
        inputs.setdefault(target, []).append(source)
    columns: list[str | None] = []  # which box's rail runs in each column
    art: list[str] = []
    for box in drawn.boxes:
        sources = inputs.get(box.key, [])
        ends = []
        for source in sources:
            wanted[source] -= 1
            if not wanted[source]:
                ends.append(columns.index(source))
        places = [columns.index(source) for source in sources]
        if ends:
            own = min(ends)
        elif None in columns:
            own = columns.index(None)
        else:
            own = len(columns)
            columns.append(None)
        touched = [*places, own]
        left, right = min(touched), max(touched)
        line = ""
        for column, held in enumerate(columns):
            if column == own:
                mark = "●" if box.group != "input" else "○"
            elif column in places:
                mark = _corner(column in ends, column < own, left < column < right)
            elif held is not None:
                mark = "│"
            else:
                mark = "─" if left < column < right else " "
            line += mark + ("─" if left <= column < right else " ")
        art.append(line.rstrip())
        for column in ends:
            columns[column] = None
        columns[own] = box.key if wanted.get(box.key) else None
        while columns and columns[-1] is None:
            columns.pop()
    return art


def _widths(drawn: Drawing, art: Sequence[str]) -> tuple[int, int, int, int]:
    columns = zip(*((b.name, b.what, b.shape) for b in drawn.boxes), strict=True)
    names, kinds, shapes = (min(32, max(map(len, column))) for column in columns) if drawn.boxes else (0, 0, 0)
    return max(map(len, art), default=0), names, kinds, shapes


def _lines(drawn: Drawing, art: Sequence[str], widths: tuple[int, int, int, int]) -> list[str]:
    lines = []
    for line, box in zip(art, drawn.boxes, strict=True):
        more = ", ".join([*box.weights, *([f"→ {box.next} of the next {box.region}"] if box.next else [])])
        cells = (line, box.name, box.what, box.shape, more)
        padded = (f"{printable(cell):<{width}}" for cell, width in zip(cells, (*widths, 0), strict=True))
        lines.append("  ".join(padded).rstrip())
    return lines


def _corner(ends: bool, right: bool, inner: bool) -> str:
    """Where a rail meets the line of the box that reads it; ``right``: the box is to its right."""
    if ends:
        return "┴" if inner else "╰" if right else "╯"
    return "┼" if inner else "├" if right else "┤"


def dot(graph: Graph) -> str:
    """The graph in the language of Graphviz."""
    drawn = picture(graph)
    number = {box.key: f"n{i}" for i, box in enumerate(drawn.boxes)}
    lines = [
        f"digraph {_quoted(drawn.title)} {{",
        '  rankdir=TB; node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11];',
        '  edge [color="#7b8794", arrowsize=0.7];',
        '  graph [fontname="Helvetica", fontsize=11, style="rounded,dashed", color="#9aa5b1"];',
    ]
    for n, (region, inner) in enumerate(drawn.frames):
        if region is not None:
            lines.append(f"  subgraph cluster_{n} {{ label={_quoted(graph_title(region))}; labeljust=l;")
        for box in inner.boxes:
            line, fill = GROUPS[box.group]
            label = _quoted("\n".join((box.name, *(words for _, words in small_print(box)))))
            lines.append(f'  {number[box.key]} [label={label}, color="{line}", fillcolor="{fill}"];')
        lines += ["  }"] if region is not None else []
    for source, target, name in drawn.edges:
        lines.append(f"  {number[source]} -> {number[target]} [tooltip={_quoted(name)}];")
    return "\n".join([*lines, "}", ""])


def _quoted(words: str) -> str:
    """A quoted string of DOT: quotes and backslashes escaped, line ends as its own escape."""
    lines = (printable(part).replace("\\", "\\\\").replace('"', '\\"') for part in words.split("\n"))
    return '"' + "\\n".join(lines) + '"'
