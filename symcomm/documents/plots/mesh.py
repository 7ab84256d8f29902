"""The ranks of a mesh with the rings that they form along each axis, and the levels of a network of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod

from symcomm.core.errors import ValuesError
from symcomm.core.graph.graph import bare
from symcomm.core.parallel.placement import Collective
from symcomm.core.program.instructions import Program
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, TINT, Sketch
from symcomm.documents.plots.parallel_block import NAMES

_WIDTH, _STEP, _DRAWN = 470.0, 46.0, 4  # ranks of an axis that are drawn, at most
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
        if isinstance(work, Collective) and axis in work.meshes and work.kind in NAMES:
            tensor = made.tensor(work)
            of = made.graph.tensors.get(tensor.of, tensor)
            what = "activations" if of.role != "weight" else "gradients" if tensor.of else "weights"
            found.setdefault(NAMES[work.kind], []).append(f"{'d' if tensor.of else ''}`{bare(of.name)}`")
            roles[f"{NAMES[work.kind]} of {what}"] = None
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
