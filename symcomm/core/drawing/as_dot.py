"""A graph as Graphviz source."""

from __future__ import annotations

from symcomm.core.drawing.picture import GROUPS, box_line, graph_title, picture, small_print
from symcomm.core.graph.graph import Graph

# -- DOT ----------------------------------------------------------------------------------------------


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
    lines = (box_line(part).replace("\\", "\\\\").replace('"', '\\"') for part in words.split("\n"))
    return '"' + "\\n".join(lines) + '"'
