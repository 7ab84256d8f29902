"""Strategies: a layer with what is cut and where ranks communicate, and a mesh with its rings; levels of networks.

A layer is read from the program of a training step: forward from left to right, and the calls of the backward pass
below it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from math import prod

from symcomm.core.errors import ValuesError
from symcomm.core.graph.graph import bare
from symcomm.core.graph.ops import MAP
from symcomm.core.parallel.placement import Collective, Compute
from symcomm.core.program.instructions import Program
from symcomm.core.records import dataclass
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, TINT, Sketch

_MARKS = {"all-reduce": "+", "reduce-scatter": "+", "all-gather": "⇉", "all-to-all": "⤨"}
_NAMES = {"all-reduce": "AllReduce", "reduce-scatter": "ReduceScatter", "all-gather": "AllGather",
          "all-to-all": "AllToAll"}  # fmt: skip
_QUIET = ("scale", "partition", "merge", "split", "concat", "view", "embedding")
_MOST = 14  # stations; a layer with more is not read from a picture
_WIDTH = 470.0


@dataclass
class _Station:
    """A place on the way: weights with how they are cut, point-by-point functions, or a call."""

    kind: str
    lines: list[str] = field(default_factory=list)
    note: str = ""
    reads: tuple[str, ...] = ()
    makes: list[str] = field(default_factory=list)
    cut: bool = False


def parallel_block(made: Program, region: str = "") -> tuple[Sketch, str]:
    """The picture of one layer, and a sentence on what is in it.

    Raises ``ValuesError`` for a layer with too many ops to be drawn.
    """
    steps = made.works(region)
    stations = _stations(made, steps)
    if len(stations) > _MOST:
        raise ValuesError(f"the layer has {len(stations)} stations, too many to be drawn", hint="draw a smaller table")
    back = [s for s in steps if isinstance(s, Collective) and s.phase == "backward"]
    back = [s for s in back if made.tensor(s).role == "gradient" and not made.of_weight(s)]
    widths = [
        16.0 if s.kind == "call" else 24.0 + 5.2 * max(len(bare(line).replace("`", "")) for line in s.lines)
        for s in stations
    ]
    gap = max(9.0, min(22.0, (_WIDTH - 40 - sum(widths)) / (len(stations) + 1)))
    scale = min(1.0, (_WIDTH - 40) / (sum(widths) + gap * (len(stations) + 1)))
    tall = max([len(s.lines) for s in stations if s.kind != "call"], default=1) * 12.0 + 8
    middle = 26 + tall / 2
    drawing = Sketch(_WIDTH, middle + tall / 2 + (44 if back else 16))
    x = 14.0
    first = next((n for s in stations for n in s.reads), "x")
    drawing.text(x - 4, middle + 3, f"`{bare(first)}`")
    ends: dict[str, float] = {bare(first): x + 6}
    x += 10
    for station, wide in zip(stations, widths, strict=True):
        drawing.line(x, middle, x + gap * scale, middle, arrow=True)
        x += gap * scale
        wide *= scale
        if station.kind == "call":
            drawing.dot(x + wide / 2, middle, 7, "#ffffff", MARK)
            _mark(drawing, x + wide / 2, middle, station.lines[0])
            drawing.text(x + wide / 2, middle - 13, _NAMES[station.lines[0]], 6.5, MARK)
        else:
            height = len(station.lines) * 12.0 + 6
            drawing.box(
                x, middle - height / 2, wide, height, TINT if station.cut else "none", INK if station.cut else LINE
            )
            for n, line in enumerate(station.lines):
                drawing.text(x + wide / 2, middle - height / 2 + 12 * n + 12, line, 9)
            drawing.text(x + wide / 2, middle + height / 2 + 9, station.note, 6.8, SOFT)
        for name in station.makes:
            ends[bare(name)] = x + wide
        x += wide
    drawing.line(x, middle, min(x + 14, _WIDTH - 2), middle, arrow=True)
    if back:
        y = middle + tall / 2 + 24
        drawing.line(min(x + 14, _WIDTH - 2), y, 8, y, SOFT, arrow=True, dashed=True)
        drawing.text(_WIDTH - 2, y - 4, "backward", 6.8, SOFT, "end")
        for call in back:
            name = made.tensor(call).of
            at = ends.get(bare(name), 20.0) + 3
            drawing.dot(at, y, 7, "#ffffff", MARK)
            _mark(drawing, at, y, call.kind)
            drawing.text(at, y + 17, f"d`{bare(name)}`", 7.5, MARK)
    calls = [s for s in stations if s.kind == "call"]
    says = f"{len(calls)} calls forward, {len(back)} backward; tinted boxes hold a part of each weight on every rank."
    return drawing, says


def _mark(drawing: Sketch, x: float, y: float, kind: str) -> None:
    if _MARKS[kind] == "+":
        drawing.line(x - 4, y, x + 4, y, MARK, wide=1.3)
        drawing.line(x, y - 4, x, y + 4, MARK, wide=1.3)
    else:
        drawing.line(x - 4, y - 1.8, x + 4, y - 1.8, MARK, arrow=True)
        drawing.line(x - 4, y + 2.2, x + 4, y + 2.2, MARK, arrow=True)


def _stations(made: Program, steps: list[Collective | Compute]) -> list[_Station]:
    """The stations of the forward pass: products with weights that read the same stand together."""
    found: list[_Station] = []
    tensors = made.graph.tensors
    for step in steps:
        if isinstance(step, Collective):
            if step.phase == "forward" and made.tensor(step).role != "weight":
                found.append(_Station("call", [step.kind], makes=[made.tensor(step).name]))
            continue
        if step.op.phase != "forward" or (step.part != "whole" and step.op.kind not in MAP):
            continue
        weights = [n for n in step.inputs if tensors[n].role == "weight" and len(tensors[n].axes) > 1]
        data = tuple(n for n in step.inputs if tensors[n].role != "weight")
        if weights:
            note, cut = _cut_of(made, step, weights[0])
            before = found[-1] if found else None
            if before is not None and before.kind == "weights" and before.reads == data:
                before.lines += [f"`{bare(w)}`" for w in weights]
                before.makes.append(step.makes)
            else:
                found.append(_Station("weights", [f"`{bare(w)}`" for w in weights], note, data, [step.makes], cut))
            continue
        word = step.op.kind if step.op.kind in MAP else ""
        if word in _QUIET or (word == "" and not step.op.summed):
            continue
        before = found[-1] if found else None
        if before is None or before.kind != "local":
            found.append(_Station("local", [], "local", cut=False))
            before = found[-1]
        said = word or f"`{bare(step.makes).split('·')[0].removesuffix('_i')}`"
        if said not in before.lines:
            before.lines.append(said)
        before.makes.append(step.makes)
    return [s for s in found if s.lines]


def _cut_of(made: Program, step: Compute, weight: str) -> tuple[str, bool]:
    """The cut of a weight where it is read: columns, rows, an axis of all (such as experts), or none."""
    j = step.inputs.index(weight)
    for _, position in step.layouts[j]:
        if 0 <= position < len(step.op.indices[j]):
            index = step.op.indices[j][position]
            if all(index in of for of in (*step.op.indices, step.op.output_indices)):  # each matrix stays whole
                return f"along `{made.graph.tensors[weight].axes[position].partition('~')[0]}`", True
            return ("columns" if index in step.op.output_indices else "rows"), True
    return ("gathered" if made.plan.placements.get(weight) else "whole"), False


# -- meshes and networks --------------------------------------------------------------------------------------

_STEP, _DRAWN = 46.0, 4  # ranks of an axis that are drawn, at most
_TALL, _UNITS = 46.0, 4  # of a level of a network


def mesh(made: Program, sizes: Mapping[str, int]) -> tuple[Sketch, str]:
    """The picture of a mesh of one or two axes of some sizes, and a sentence on what is in it.

    Raises ``ValuesError`` for a mesh of more axes, and where no axis has two ranks.
    """
    axes = [axis for axis, size in sizes.items() if size > 1]
    if not 1 <= len(axes) <= 2:
        raise ValuesError(f"a mesh of {len(axes)} axes is not drawn", hint="strategy: fully-sharded(4) + tensor(2)")
    across, *down = axes
    columns = min(sizes[across], _DRAWN)
    rows = min(sizes[down[0]], _DRAWN - 1) if down else 1
    drawing = Sketch(_WIDTH, 40 + (rows - 1) * _STEP * 0.75 + 22)
    left, top, high = 34.0, 24.0, _STEP * 0.75
    right, bottom = left + (columns - 1) * _STEP, top + (rows - 1) * high
    for row in range(rows):
        y = top + row * high
        _ring(drawing, (left, y), (right, y), INK, sizes[across] > columns)
    for column in range(columns if down else 0):
        x = left + column * _STEP
        _ring(drawing, (x, top), (x, bottom), MARK, sizes[down[0]] > rows)
    for row in range(rows):
        for column in range(columns):
            drawing.dot(left + column * _STEP, top + row * high, 7, TINT, INK)
    said = []
    for n, axis in enumerate(axes):
        colour, (calls, roles) = (INK, MARK)[n], _calls(made, axis)
        text = f"`{axis}`: rings of {sizes[axis]} ranks" if sizes[axis] > 2 else f"`{axis}`: pairs of ranks"
        drawing.line(right + 50, top + 34 * n, right + 64, top + 34 * n, colour, arrow=True)
        drawing.text(right + 70, top + 3 + 34 * n, text, 8.5, colour, "start")
        drawing.text(right + 70, top + 15 + 34 * n, "; ".join(calls), 8, SOFT, "start")
        said.append(f"{text}, for {' and '.join(roles) or 'no calls'}.")
    ranks = " × ".join(str(sizes[axis]) for axis in axes)
    return drawing, " ".join([f"A mesh of {ranks} ranks.", *said])


def _ring(drawing: Sketch, start: tuple[float, float], end: tuple[float, float], colour: str, more: bool) -> None:
    """Neighbours joined along a line, and the way back from the last to the first beside it."""
    (x, y), (to_x, to_y) = start, end
    flat = y == to_y
    drawing.line(x, y, to_x, to_y, colour, wide=1.2, dashed=more)
    if not more and max(to_x - x, to_y - y) < _STEP + 1:  # a pair
        return
    out = 12.0
    a, b = ((x - out, y), (to_x + out, y)) if flat else ((x, y - out), (x, to_y + out))
    shift = (0.0, -out) if flat else (-out, 0.0)
    points = [end, b, (b[0] + shift[0], b[1] + shift[1]), (a[0] + shift[0], a[1] + shift[1]), a]
    for one, other in pairwise(points):
        drawing.line(*one, *other, LINE)
    drawing.line(*a, *start, LINE, arrow=True)


def _calls(made: Program, axis: str) -> tuple[list[str], list[str]]:
    """The kinds of calls along an axis with the names of a few tensors, and with what these are."""
    found: dict[str, list[str]] = {}
    roles: dict[str, None] = {}
    for work in made.works():
        if isinstance(work, Collective) and axis in work.meshes and work.kind in _NAMES:
            tensor = made.tensor(work)
            of = made.graph.tensors.get(tensor.of, tensor)
            what = "activations" if of.role != "weight" else "gradients" if tensor.of else "weights"
            found.setdefault(_NAMES[work.kind], []).append(f"{'d' if tensor.of else ''}`{bare(of.name)}`")
            roles[f"{_NAMES[work.kind]} of {what}"] = None
    named = [f"{kind} of {', '.join([*dict.fromkeys(names)][:3])}" + (" ..." if len({*names}) > 3 else "")
             for kind, names in found.items()]  # fmt: skip
    return named, [*roles]


def network_levels(
    network: str, device: str, sizes: Sequence[int], rows: Sequence[tuple[str, ...]]
) -> tuple[Sketch, str]:
    """The picture of a network as a tree, and a sentence on what is in it.

    The levels have ``sizes`` units of the one below, the innermost first; ``rows`` are as a network tells them.
    """
    if len(rows) > 5:
        raise ValuesError(f"a network of {len(rows)} levels is not drawn", hint="at most 5 levels")
    drawing = Sketch(_WIDTH, 30 + _TALL * len(rows))
    left, right = 6.0, 216.0
    for n, (name, joins, devices, links, share, latency) in enumerate(reversed(rows)):
        y, size = 8 + n * _TALL, sizes[len(rows) - 1 - n]
        drawing.line(left, y + 6, right, y + 6, INK, wide=2.2)
        count = min(size, _UNITS)
        places = [left + (right - left) * (k + 0.5) / (count + (size > count)) for k in range(count)]
        for x in places:
            drawing.line(x, y + 6, x, y + 22, MARK)
            drawing.box(x - 12, y + 22, 24, 13, TINT, INK)
        drawing.text(places[0], y + 31, rows[len(rows) - 2 - n][0] if n + 1 < len(rows) else "", 7, SOFT)
        if size > count:
            drawing.text(right - (right - left) / (count + 1) / 2, y + 31, f"... {size}", 8, SOFT)
        drawing.text(right + 12, y + 8, f"{name}: {joins}, {devices} devices", 8.5, INK, "start")
        drawing.text(right + 12, y + 19, links, 7.5, SOFT, "start")
        rate = f"{share} a device" + (f", latency {latency}" if latency else "")
        drawing.text(right + 12, y + 30, rate if share else "", 7.5, MARK, "start")
        if n + 1 < len(rows):  # the first unit is what the next level draws
            drawing.line(places[0], y + 35, left, y + _TALL + 6, LINE, dashed=True)
            drawing.line(places[0], y + 35, right, y + _TALL + 6, LINE, dashed=True)
    drawing.text(left, 14 + _TALL * len(rows), f"The boxes of the last level are devices: {device}.", 7.5,
                 SOFT, "start")  # fmt: skip
    return drawing, f"The levels of {network}, {prod(sizes)} devices in all."
