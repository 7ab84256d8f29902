"""Draws the op graph: as text for a terminal, as DOT for Graphviz, as SVG for a page.

All three draw the same picture: a box (or a line) an op, an edge a tensor that flows. Weights and constants stand with
the op that reads them; drawn as nodes they would hide what matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from symcomm.errors import RenderError
from symcomm.graph.graph import Graph, Op
from symcomm.notation import split_name

SVG_LIMIT = 400  # boxes; beyond that the picture cannot be read and its layout takes minutes

# What an op is to a reader: the name of the group, and its colours (line, fill); chosen to differ for the colour-blind.
GROUPS: dict[str, tuple[str, str]] = {
    "input": ("#52606d", "#ffffff"),
    "weighted product": ("#1f5fa8", "#e8f0fa"),
    "product": ("#7a4d9e", "#f3ecf8"),
    "view": ("#8a94a0", "#f5f6f8"),
    "sum": ("#8a6d1c", "#faf5e3"),
    "function": ("#b3541e", "#fdf0e7"),
}


@dataclass(frozen=True)
class Box:
    """A node of the picture: a tensor that an op makes, or one that comes from outside."""

    key: str
    name: str
    what: str
    shape: str
    group: str
    weights: tuple[str, ...] = ()
    next: str = ""  # what the tensor becomes when the graph is repeated


@dataclass(frozen=True)
class Drawing:
    """Boxes in an order in which they can run, and edges as pairs of their keys with the tensor that flows."""

    title: str
    boxes: tuple[Box, ...]
    edges: tuple[tuple[str, str, str], ...]
    repeat: str = ""


def shown_name(name: str) -> str:
    """The name of a tensor for a reader: what is computed on the way to it goes by its name, too.

    >>> shown_name("score_i·7")
    'score_i'
    """
    return name.partition("·")[0]


def shape_text(graph: Graph, name: str) -> str:
    """The shape of a tensor as its author wrote it: ``B × L × 4D``; ``scalar`` for a number."""
    tensor = graph.tensors[name]
    labels = tuple(graph.axes[axis].label for axis in tensor.axes)
    # A family has its axis before the shape in the table; where an axis was split, the table's own size is shown.
    family = len(tensor.shape) < len(labels) and labels[len(labels) - len(tensor.shape) :] == tensor.shape
    return " × ".join(labels if family else tensor.shape or labels) or "scalar"


def kind_text(graph: Graph, op: Op) -> str:
    """What an op does, in a word or two."""
    if op.attribute("view"):
        return "view"
    if op.kind != "contraction":
        return op.kind.replace("_", " ")
    if op.attribute("lookup"):
        return "lookup" if any(graph.tensors[n].role == "weight" for n in op.inputs) else "routing"
    if not op.summed:
        return "scale" if len(op.inputs) == 1 else "elementwise product"
    return "sum" if len(op.inputs) == 1 else "matrix product"


def group_of(graph: Graph, op: Op) -> str:
    """The group of an op, which gives its box a colour."""
    kind = kind_text(graph, op)
    if kind in ("view", "lookup", "routing"):
        return "view"
    if kind == "sum" or op.kind == "add":
        return "sum"
    if op.kind in ("contraction", "convolution"):
        return "weighted product" if any(graph.tensors[n].role == "weight" for n in op.inputs) else "product"
    return "function"


def picture(graph: Graph) -> Drawing:
    """What there is to draw of a graph's forward pass."""
    boxes: list[Box] = []
    edges: list[tuple[str, str, str]] = []
    home: dict[str, str] = {}
    carried = dict(graph.carried)
    for op in graph.ops:
        if op.phase != "forward":
            continue
        weights: list[str] = []
        key = f"op {len(boxes)}"
        for name in dict.fromkeys(op.inputs):
            tensor = graph.tensors[name]
            if name in home:
                edges.append((home[name], key, name))
            elif tensor.role == "weight":
                weights.append(f"{name}: {shape_text(graph, name)}")
            elif tensor.role == "input" or (tensor.role == "constant" and not boxes):
                home[name] = f"in {name}"
                boxes.append(Box(home[name], name, tensor.role, shape_text(graph, name), "input"))
                edges.append((home[name], key, name))
        shape, what = shape_text(graph, op.output), kind_text(graph, op)
        becomes = carried.get(op.output, "") if graph.repeat else ""
        boxes.append(Box(key, shown_name(op.output), what, shape, group_of(graph, op), tuple(weights), becomes))
        home[op.output] = key
    return Drawing(graph.name, tuple(boxes), tuple(edges), graph.repeat)


# -- text ---------------------------------------------------------------------------------------------


def text(graph: Graph) -> str:
    """The graph for a terminal: one line an op, rails for the tensors that are still needed."""
    return "\n".join(rails(picture(graph)))


def rails(drawn: Drawing) -> list[str]:
    """One line a box: a rail leads down from each box to those that read it.

    >>> a, b = Box("a", "x", "input", "D", "input"), Box("b", "y", "relu", "D", "function")
    >>> print("\\n".join(rails(Drawing("", (a, b), (("a", "b", "x"),)))))
    ○  x  input  D
    ●  y  relu   D
    """
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
    width = max((len(line) for line in art), default=0) + 2
    names, kinds = _widest(b.name for b in drawn.boxes), _widest(b.what for b in drawn.boxes)
    lines = []
    for line, box in zip(art, drawn.boxes, strict=True):
        more = [*box.weights, *([f"→ {box.next} of the next layer"] if box.next else [])]
        weights = f"   {', '.join(more)}" if more else ""
        shown = (
            f"{line:<{width}}{_line(box.name):<{names}}  {_line(box.what):<{kinds}}  {_line(box.shape)}{_line(weights)}"
        )
        lines.append(shown.rstrip())
    return lines


def _corner(ends: bool, right: bool, inner: bool) -> str:
    """Where a rail meets the line of the box that reads it; ``right``: the box is to its right."""
    if ends:
        return "┴" if inner else "╰" if right else "╯"
    return "┼" if inner else "├" if right else "┤"


def _widest(words: Iterable[str]) -> int:
    return min(32, max((len(word) for word in words), default=0))


def _line(words: str) -> str:
    """Text that stays on its line, whatever is in it."""
    return "".join(c if c.isprintable() else "�" for c in words)


# -- DOT ----------------------------------------------------------------------------------------------


def dot(graph: Graph) -> str:
    """The graph in the language of Graphviz."""
    drawn = picture(graph)
    number = {box.key: f"n{i}" for i, box in enumerate(drawn.boxes)}
    lines = [
        f"digraph {_quoted(drawn.title)} {{",
        '  rankdir=TB; node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11];',
        '  edge [color="#7b8794", arrowsize=0.7];',
    ]
    if drawn.repeat:
        lines.append(f"  label={_quoted('repeated ' + drawn.repeat + ' times')}; labelloc=b;")
    for box in drawn.boxes:
        line, fill = GROUPS[box.group]
        label = _quoted("\n".join((box.name, box.what, box.shape, *box.weights)))
        lines.append(f'  {number[box.key]} [label={label}, color="{line}", fillcolor="{fill}"];')
    for source, target, name in drawn.edges:
        lines.append(f"  {number[source]} -> {number[target]} [tooltip={_quoted(name)}];")
    return "\n".join([*lines, "}", ""])


def _quoted(words: str) -> str:
    """A quoted string of DOT: quotes and backslashes escaped, line ends as its own escape."""
    lines = (_line(part).replace("\\", "\\\\").replace('"', '\\"') for part in words.split("\n"))
    return '"' + "\\n".join(lines) + '"'


# -- SVG ----------------------------------------------------------------------------------------------

_LETTER, _SMALL = 7.4, 6.3  # widths of a letter in a title and in small print, in pixels
_MARGIN, _ROW = 28.0, 16.0


def svg(graph: Graph) -> str:
    """The graph as an SVG picture, laid out in layers.

    Raises ``RenderError`` for a graph with more boxes than a picture can show.
    """
    drawn = picture(graph)
    if len(drawn.boxes) > SVG_LIMIT:
        raise RenderError(
            f"a picture of {len(drawn.boxes):,} ops cannot be read; at most {SVG_LIMIT} are drawn as SVG",
            hint="use --to dot and Graphviz, or --to text",
        )
    sizes = {box.key: _size(box) for box in drawn.boxes}
    centres, paths = _layout(drawn, sizes)
    xs = [x + s * sizes[k][0] / 2 for k, (x, _) in centres.items() for s in (-1, 1)] + [x for p in paths for x, _ in p]
    ys = [y + s * sizes[k][1] / 2 for k, (_, y) in centres.items() for s in (-1, 1)]
    left, top = min(xs, default=0.0) - _MARGIN, min(ys, default=0.0) - _MARGIN - 30
    width, height = max(xs, default=0.0) - left + _MARGIN, max(ys, default=0.0) - top + _MARGIN + 34
    legend = [group for group in GROUPS if any(box.group == group for box in drawn.boxes)]
    width = max(width, sum(_SMALL * len(g) + 34 for g in legend) + 2 * _MARGIN, _LETTER * len(drawn.title) + 60)
    out = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}"'
        f' width="{width:.0f}" height="{height:.0f}" role="img" aria-label={_attribute("Op graph of " + drawn.title)}>',
        _STYLE,
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" fill="#ffffff"/>',
        _text(left + _MARGIN, top + 24, drawn.title, "title"),
    ]
    if drawn.repeat:
        frame = (left + 10, top + 34, width - 20, height - 34 - 36)
        out.append('<rect class="frame" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" rx="10"/>'.format(*frame))
        times = f"<tspan>× </tspan>{_name(drawn.repeat)}"
        out.append(f'<text class="times" x="{left + width - 22:.1f}" y="{top + 54:.1f}">{times}</text>')
    for (_, _, name), points in zip(drawn.edges, paths, strict=True):
        out.append(f'<path class="edge" d="{_curve(points)}"><title>{_xml(name)}</title></path>')
        out.append(_arrow(points[-1]))
    for box in drawn.boxes:
        out.extend(_box(box, *centres[box.key], *sizes[box.key]))
    x = left + _MARGIN
    for group in legend:
        line, fill = GROUPS[group]
        y = top + height - 22
        out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="12" height="12" rx="3" fill="{fill}" stroke="{line}"/>')
        out.append(_text(x + 18, y + 10, group, "legend"))
        x += _SMALL * len(group) + 34
    return "\n".join([*out, "</svg>", ""])


_STYLE = """<style>
text { font-family: "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif; fill: #1f2933; }
.title { font-size: 15px; font-weight: 600; }
.name { font-size: 14px; font-weight: 600; text-anchor: middle; }
.what { font-size: 11px; text-anchor: middle; fill: #52606d; }
.shape { font-size: 11px; text-anchor: middle; }
.weight { font-size: 11px; text-anchor: middle; fill: #1f5fa8; }
.legend { font-size: 11px; fill: #52606d; }
.times { font-size: 14px; text-anchor: end; fill: #52606d; }
.edge { fill: none; stroke: #7b8794; stroke-width: 1.3; }
.arrow { fill: #7b8794; }
.frame { fill: none; stroke: #9aa5b1; stroke-dasharray: 5 4; }
</style>"""


def _size(box: Box) -> tuple[float, float]:
    lines = [line for _, line in _small_print(box)]
    width = max(_LETTER * len(box.name) + 6, *(_SMALL * len(line) for line in lines)) + 20
    return max(width, 84.0), 24 + _ROW * len(lines) + 4


def _small_print(box: Box) -> list[tuple[str, str]]:
    """The lines below the name of a box, each with its style."""
    lines = [("what", box.what), ("shape", box.shape), *(("weight", w) for w in box.weights)]
    return [*lines, ("what", f"→ {box.next} of the next layer")] if box.next else lines


def _layout(
    drawn: Drawing, sizes: dict[str, tuple[float, float]]
) -> tuple[dict[str, tuple[float, float]], list[list[tuple[float, float]]]]:
    """Where the boxes stand (their centres) and through which points each edge runs."""
    from grandalf.graphs import Edge, Vertex
    from grandalf.graphs import Graph as Drawing
    from grandalf.layouts import SugiyamaLayout

    vertices = {box.key: Vertex(box.key) for box in drawn.boxes}
    for key, vertex in vertices.items():
        vertex.view = _View(*sizes[key])
    edges = [Edge(vertices[source], vertices[target]) for source, target, _ in drawn.edges]
    for edge in edges:
        edge.view = _Way()
    shift = 0.0
    centres: dict[str, tuple[float, float]] = {}
    moved: dict[Any, float] = {}
    for component in Drawing([*vertices.values()], edges).C:
        layout = SugiyamaLayout(component)
        layout.xspace, layout.yspace = 26, 34
        layout.init_all(optimize=True)
        layout.draw(8)
        members = [*component.sV]
        left = min(v.view.xy[0] - v.view.w / 2 for v in members)
        right = max(v.view.xy[0] + v.view.w / 2 for v in members)
        for vertex in members:
            x, y = vertex.view.xy
            moved[vertex] = shift - left
            centres[vertex.data] = (x + shift - left, y)
        shift += right - left + 50  # graphs that do not hang together stand side by side
    paths = []
    for edge, (source, target, _) in zip(edges, drawn.edges, strict=True):
        inner = []
        for x, y in edge.view.points[1:-1]:
            # Straight down past the boxes of a layer the edge only crosses, so that it does not cut their corners.
            half = max((sizes[k][1] / 2 for k, (_, at) in centres.items() if abs(at - y) < 1), default=0.0)
            inner += [(x + moved[edge.v[0]], y - half), (x + moved[edge.v[0]], y + half)]
        (x0, y0), (x1, y1) = centres[source], centres[target]
        start, stop = (x0, y0 + sizes[source][1] / 2), (x1, y1 - sizes[target][1] / 2)
        paths.append([start, *inner, stop])
    return centres, paths


class _View:
    """What grandalf asks of a box: its size; it sets the place."""

    def __init__(self, w: float, h: float) -> None:
        self.w, self.h, self.xy = w, h, (0.0, 0.0)


class _Way:
    """What grandalf asks of an edge: a place for its points."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []

    def setpath(self, points: list[tuple[float, float]]) -> None:
        """Keeps the points the layout found."""
        self.points = points


def _curve(points: list[tuple[float, float]]) -> str:
    """A smooth line that leaves and enters boxes straight down."""
    (x, y), *rest = points
    path = f"M{x:.1f},{y:.1f}"
    for number, (nx, ny) in enumerate(rest):
        stop = ny - (7 if number == len(rest) - 1 else 0)  # the arrow's length
        bend = (stop - y) / 2
        path += f" C{x:.1f},{y + bend:.1f} {nx:.1f},{stop - bend:.1f} {nx:.1f},{stop:.1f}"
        x, y = nx, stop
    return path


def _arrow(tip: tuple[float, float]) -> str:
    x, y = tip
    return f'<path class="arrow" d="M{x:.1f},{y:.1f} l-4,-8 l8,0 z"/>'


def _box(box: Box, x: float, y: float, width: float, height: float) -> list[str]:
    line, fill = GROUPS[box.group]
    left, top = x - width / 2, y - height / 2
    radius = height / 2 if box.group == "input" else 7
    lines = [
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:.1f}"'
        f' fill="{fill}" stroke="{line}" stroke-width="1.2"/>',
        f'<text class="name" x="{x:.1f}" y="{top + 19:.1f}">{_name(box.name)}</text>',
    ]
    for number, (style, words) in enumerate(_small_print(box), start=1):
        lines.append(f'<text class="{style}" x="{x:.1f}" y="{top + 19 + number * _ROW:.1f}">{_words(words)}</text>')
    return ["<g>", *lines, "</g>"]


def _words(words: str) -> str:
    """Small print, the names in it set with their subscripts and superscripts."""
    return " ".join(_name(word, 8) if set("_^") & set(word) else _xml(word) for word in words.split(" "))


def _name(name: str, small: int = 10) -> str:
    """A name with its subscript and superscript set small; what follows is back on the line."""
    body, colon = (name[:-1], ":") if name.endswith(":") else (name, "")
    base, lower, upper, primes = split_name(body)
    if "_" in upper and not lower:  # a member of a family of weights: W^1_e
        upper, _, lower = upper.partition("_")
    shown, height = _xml(base + "′" * len(primes)), 0
    for script, level in ((upper, -small // 2), (lower, small * 2 // 5)):
        if script:
            shown += f'<tspan dy="{level - height}" font-size="{small}">{_xml(script)}</tspan>'
            height = level
    return shown + (f'<tspan dy="{-height}">{colon}\u200b</tspan>' if height else colon)


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{_xml(words)}</text>'


def _xml(words: str) -> str:
    return escape(_line(words))


def _attribute(words: str) -> str:
    return quoteattr(_line(words))


WRITERS: dict[str, Callable[[Graph], str]] = {"text": text, "dot": dot, "svg": svg}
