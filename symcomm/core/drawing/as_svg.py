"""A graph as an SVG picture."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from symcomm.core.drawing.picture import GROUPS, Box, Drawing, graph_title, picture, small_print
from symcomm.core.errors import RenderError
from symcomm.core.graph.graph import Graph, Region
from symcomm.core.notation import split_name
from symcomm.core.printing.escape import printable

SVG_LIMIT = 400  # boxes; beyond that the picture cannot be read and its layout takes minutes


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
        f' width="{width:.0f}" height="{height:.0f}" role="img"'
        f' aria-label={quoteattr(printable("Op graph of " + drawn.title))}>',
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
    lines = [line for _, line in small_print(box)]
    width = max(_LETTER * len(box.name) + 6, *(_SMALL * len(line) for line in lines)) + 20
    return max(width, 84.0), 24 + _ROW * len(lines) + 4


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
            title = _LETTER * len(graph_title(region)) + 40
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
        vertex.view = SimpleNamespace(w=sizes[key][0], h=sizes[key][1], xy=(0.0, 0.0))
    edges = [Edge(vertices[source], vertices[target]) for source, target, _ in drawn.edges]
    for edge in edges:
        edge.view = SimpleNamespace(points=[])
        edge.view.setpath = partial(setattr, edge.view, "points")
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
    for number, (style, words) in enumerate(small_print(box), start=1):
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
    return escape(printable(words))
