"""Draws the op graph: as text for a terminal, as DOT for Graphviz, as SVG for a page.

All three draw the same picture: a box (or a line) an op, an edge a tensor that flows, a frame a region with how often
it stands. Weights stand with the op that reads them; drawn as nodes they would hide what matters, as would constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from symcomm.errors import RenderError
from symcomm.graph.graph import Graph, Op, Region, bare
from symcomm.notation import split_name
from symcomm.printing import GREEK_NAMES

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
    region: str = ""


@dataclass(frozen=True)
class Drawing:
    """Boxes in an order in which they can run, and edges as pairs of their keys with the tensor that flows.

    ``regions`` are those that get a frame: all, or none where there is one that stands once.
    """

    title: str
    boxes: tuple[Box, ...]
    edges: tuple[tuple[str, str, str], ...]
    regions: tuple[Region, ...] = ()

    @property
    def frames(self) -> tuple[tuple[Region | None, Drawing], ...]:
        """The picture of each region by itself; of the whole where no region has a frame."""
        return tuple((r, self.inside(r.name)) for r in self.regions) or ((None, self),)

    def inside(self, region: str) -> Drawing:
        """The picture of one region, without the edges that leave it."""
        boxes = tuple(box for box in self.boxes if box.region == region)
        keys = {box.key for box in boxes}
        return Drawing(region, boxes, tuple(e for e in self.edges if e[0] in keys and e[1] in keys))

    @property
    def between(self) -> tuple[tuple[Box, Box, str], ...]:
        """The edges from one region to another one."""
        at = {box.key: box for box in self.boxes}
        pairs = ((at[a], at[b], name) for a, b, name in self.edges)
        return tuple((a, b, name) for a, b, name in pairs if a.region != b.region)


def shown_name(name: str) -> str:
    """The name of a tensor for a reader: without its region's mark; what is computed on the way to it has its name.

    >>> shown_name("score_i·7"), shown_name("head:o"), shown_name("gamma^1")
    ('score_i', 'o', 'γ^1')
    """
    shown = bare(name).partition("·")[0]
    letters = shown.rstrip("'").partition("_")[0].partition("^")[0]
    return GREEK_NAMES.get(letters, letters) + shown.removeprefix(letters)


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
    if any(graph.tensors[n].dtype == "bool" and n not in graph.producers for n in op.inputs):
        return "dropout"
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
    home: dict[tuple[str, str], str] = {}  # where in a region a tensor comes from
    handed = {made: into for region in graph.regions if region.times for made, into in region.carried}
    place = {region.name: n for n, region in enumerate(graph.regions)}
    for op in sorted((op for op in graph.ops if op.phase == "forward"), key=lambda op: place.get(op.region, 0)):
        weights: list[str] = []
        ids = all(graph.tensors[n].role in ("constant", "weight") and n not in graph.producers for n in op.inputs)
        for name in dict.fromkeys(op.inputs):
            tensor, shape, maker = graph.tensors[name], shape_text(graph, name), graph.producers.get(name)
            where = (op.region, name)
            if tensor.role == "weight":
                weights.append(f"{shown_name(name)}: {shape}")
            elif where not in home and (maker is not None or tensor.role == "input" or ids):
                home[where] = f"in {op.region} {name}"
                what = f"from {maker.region}" if maker else "indices" if op.kind == "onehot" else tensor.role
                boxes.append(Box(home[where], shown_name(name), what, shape, "input", region=op.region))
                if maker is not None:
                    edges.append((home[maker.region, name], home[where], name))
            if where in home:
                edges.append((home[where], f"op {op.output}", name))
        home[op.region, op.output] = f"op {op.output}"
        boxes.append(Box(
            f"op {op.output}", shown_name(op.output), kind_text(graph, op), shape_text(graph, op.output),
            group_of(graph, op), tuple(weights), shown_name(handed.get(op.output, "")), op.region,
        ))  # fmt: skip
    framed = graph.regions if len(graph.regions) > 1 or graph.repeat else ()
    return Drawing(graph.name, tuple(boxes), tuple(edges), framed)


# -- text ---------------------------------------------------------------------------------------------


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
        out += [f"╭─ {_line(_title(region))}", *(f"│ {line}" for line in lines)]
        sent = [f"▶ {a.name}  {a.shape}  to {b.region}" for a, b, _ in drawn.between if a.region == region.name]
        out += [f"├─{_line(one)}" for one in sent[:-1]] + [f"╰─{_line(''.join(sent[-1:]))}"]
    return "\n".join(out)


def _title(region: Region) -> str:
    return f"{region.name} × {region.times}" if region.times else region.name


def rails(drawn: Drawing) -> list[str]:
    """One line a box: a rail leads down from each box to those that read it.

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
        padded = (f"{_line(cell):<{width}}" for cell, width in zip(cells, (*widths, 0), strict=True))
        lines.append("  ".join(padded).rstrip())
    return lines


def _corner(ends: bool, right: bool, inner: bool) -> str:
    """Where a rail meets the line of the box that reads it; ``right``: the box is to its right."""
    if ends:
        return "┴" if inner else "╰" if right else "╯"
    return "┼" if inner else "├" if right else "┤"


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
        '  graph [fontname="Helvetica", fontsize=11, style="rounded,dashed", color="#9aa5b1"];',
    ]
    for n, (region, inner) in enumerate(drawn.frames):
        if region is not None:
            lines.append(f"  subgraph cluster_{n} {{ label={_quoted(_title(region))}; labeljust=l;")
        for box in inner.boxes:
            line, fill = GROUPS[box.group]
            label = _quoted("\n".join((box.name, *(words for _, words in _small_print(box)))))
            lines.append(f'  {number[box.key]} [label={label}, color="{line}", fillcolor="{fill}"];')
        lines += ["  }"] if region is not None else []
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
    centres, ways, frames = _stacked(drawn, sizes)
    paths = [ways[edge] for edge in drawn.edges]
    xs = [x + s * sizes[k][0] / 2 for k, (x, _) in centres.items() for s in (-1, 1)] + [x for p in paths for x, _ in p]
    ys = [y + s * sizes[k][1] / 2 for k, (_, y) in centres.items() for s in (-1, 1)] + [y for p in paths for _, y in p]
    for _, x, y, wide, high in frames:
        xs, ys = [*xs, x, x + wide], [*ys, y, y + high]
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
    for region, x, y, wide, high in frames:
        out.append(f'<rect class="frame" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="10"/>')
        out.append(_text(x + 14, y + 22, region.name, "region"))
        if region.times:
            times = f"<tspan>×\u00a0</tspan>{_name(region.times)}"
            out.append(f'<text class="times" x="{x + wide - 14:.1f}" y="{y + 22:.1f}">{times}</text>')
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
.region { font-size: 13px; font-weight: 600; fill: #52606d; }
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
    return [*lines, ("what", f"→ {box.next} of the next {box.region}")] if box.next else lines


Point = tuple[float, float]
Placed = tuple[Region, float, float, float, float]  # a region's frame: left, top, width, height
_FRAME, _HEAD, _GAP = 18.0, 40.0, 44.0  # around the boxes of a frame, above them for its title, between two frames


def _stacked(
    drawn: Drawing, sizes: dict[str, tuple[float, float]]
) -> tuple[dict[str, Point], dict[tuple[str, str, str], list[Point]], list[Placed]]:
    """Where boxes, edges and frames stand: the regions below one another, each with a layout of its own."""
    centres: dict[str, Point] = {}
    ways: dict[tuple[str, str, str], list[Point]] = {}
    found: list[tuple[Region, float, float, float]] = []  # region, half its width, top and bottom of its boxes
    at = 0.0
    for region, inner in drawn.frames:
        places, paths = _layout(inner, sizes)
        xs = [x + s * sizes[k][0] / 2 for k, (x, _) in places.items() for s in (-1, 1)]
        xs += [x for p in paths for x, _ in p]
        ys = [y + s * sizes[k][1] / 2 for k, (_, y) in places.items() for s in (-1, 1)]
        left, right, top, bottom = min(xs, default=0), max(xs, default=0), min(ys, default=0), max(ys, default=0)
        dx, dy = -(left + right) / 2, at - top
        centres |= {k: (x + dx, y + dy) for k, (x, y) in places.items()}
        ways |= {e: [(x + dx, y + dy) for x, y in p] for e, p in zip(inner.edges, paths, strict=True)}
        if region is not None:
            title = _LETTER * len(_title(region)) + 40
            found.append((region, max((right - left) / 2, title / 2), at, at + bottom - top))
        at += bottom - top + _FRAME + _GAP + _HEAD
    half = max((h for _, h, _, _ in found), default=0.0) + _FRAME
    frames = [(region, -half, top - _HEAD, 2 * half, bottom - top + _HEAD + _FRAME) for region, _, top, bottom in found]
    order, drawn_in = [region.name for region in drawn.regions], {box.key: box.region for box in drawn.boxes}
    lane = half
    for a, b, name in drawn.between:
        (x, y), (u, v) = centres[a.key], centres[b.key]
        start, stop = (x, y + sizes[a.key][1] / 2), (u, v - sizes[b.key][1] / 2)
        crossed = [
            k for k, (at_x, at_y) in centres.items()
            for mid, near in ((x, drawn_in[k] == a.region and at_y > y), (u, drawn_in[k] == b.region and at_y < v))
            if near and abs(at_x - mid) < sizes[k][0] / 2 + 8
        ]  # fmt: skip
        bends: list[Point] = []
        if crossed or order.index(b.region) != order.index(a.region) + 1:  # around what stands between
            lane += 14
            bends = [(lane, start[1] + 30), (lane, stop[1] - 30)]
        ways[a.key, b.key, name] = [start, *bends, stop]
    return centres, ways, frames


def _layout(drawn: Drawing, sizes: dict[str, tuple[float, float]]) -> tuple[dict[str, Point], list[list[Point]]]:
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
