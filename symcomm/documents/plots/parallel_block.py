"""A layer under a strategy as it runs: its products with their weights, what is cut, and where ranks communicate.

Read from the program of a training step: forward from left to right, and the calls of the backward pass below it.
"""

from __future__ import annotations

from dataclasses import field

from symcomm.core.errors import ValuesError
from symcomm.core.graph.graph import bare
from symcomm.core.graph.ops import MAP
from symcomm.core.parallel.placement import Collective, Compute
from symcomm.core.program.instructions import Program
from symcomm.core.records import dataclass
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, TINT, Sketch

_MARKS = {"all-reduce": "+", "reduce-scatter": "+", "all-gather": "⇉", "all-to-all": "⤨"}
NAMES = {"all-reduce": "AllReduce", "reduce-scatter": "ReduceScatter", "all-gather": "AllGather",
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
            drawing.text(x + wide / 2, middle - 13, NAMES[station.lines[0]], 6.5, MARK)
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
