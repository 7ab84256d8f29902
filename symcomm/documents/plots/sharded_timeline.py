"""The calls and the computing of a training step side by side: what is gathered, used, dropped and reduced, and when.

A scheme of three layers, in the order of the program of one; the boxes are not to scale.
"""

from __future__ import annotations

from symcomm.core.errors import ValuesError
from symcomm.core.parallel.placement import Collective
from symcomm.core.program.instructions import Program
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, TINT, Sketch

_WIDTH, _BOX, _HIGH = 470.0, 26.0, 16.0


def sharded_timeline(made: Program) -> tuple[Sketch, str]:
    """The picture, and a sentence on what is in it.

    Raises ``ValuesError`` where no weight is gathered and no gradient reduced.
    """
    kinds: dict[str, set[str]] = {"forward": set(), "backward": set()}
    for step in (instruction.work for instruction in made.instructions if not instruction.between_stages):
        if isinstance(step, Collective) and step.phase in kinds:
            tensor = made.tensor(step)
            of = made.graph.tensors.get(tensor.of, tensor)
            if of.role == "weight":
                kinds[step.phase].add(step.kind)
    if not kinds["forward"] | kinds["backward"]:
        raise ValuesError(
            "the strategy moves no weights and no gradients of weights", hint="strategy: fully-sharded(k)"
        )
    drawing = Sketch(_WIDTH, 76)
    network, compute = 22.0, 50.0
    for y, name in ((network, "network"), (compute, "compute")):
        drawing.text(2, y + 11, name, 8, SOFT, "start")
        drawing.line(46, y + _HIGH + 3, _WIDTH - 2, y + _HIGH + 3)
    x, free = 50.0, 50.0
    last = 3

    def call(at: float, text: str, colour: str) -> float:
        drawing.box(at, network, _BOX, _HIGH, "none", colour)
        drawing.text(at + _BOX / 2, network + 11, text, 7.5, colour)
        return at + _BOX + 2

    ready = free
    for layer in range(1, last + 1):
        if "all-gather" in kinds["forward"]:
            free = call(free, f"AG {layer}", MARK)
            ready = free
        x = max(x, ready)
        drawing.box(x, compute, _BOX, _HIGH, TINT, INK)
        drawing.text(x + _BOX / 2, compute + 11, f"F {layer}", 7.5)
        x += _BOX + 2
    drawing.line(x + 3, network - 8, x + 3, compute + _HIGH + 6, LINE, dashed=True)
    drawing.text((50 + x) / 2, 12, "forward", 7.5, SOFT)
    start = x + 8
    x = free = ready = start
    gathered = "all-gather" in kinds["backward"]
    reduced = kinds["backward"] & {"reduce-scatter", "all-reduce"}
    if gathered:
        free = ready = call(free, f"AG {last}", MARK)
    for layer in range(last, 0, -1):
        x, wide = max(x, ready), 1.6 * _BOX
        if gathered and layer > 1:  # asked for before this layer's backward, as PyTorch does
            free = ready = call(max(free, x), f"AG {layer - 1}", MARK)
        drawing.box(x, compute, wide, _HIGH, TINT, INK)
        drawing.text(x + wide / 2, compute + 11, f"B {layer}", 7.5)
        x += wide + 2
        if reduced:
            free = call(max(free, x), f"{'RS' if 'reduce-scatter' in reduced else 'AR'} {layer}", INK)
    drawing.text((start + x) / 2, 12, "backward", 7.5, SOFT)
    names = {"all-gather": "AG: AllGather of the weights", "reduce-scatter": "RS: ReduceScatter of the gradients",
             "all-reduce": "AR: AllReduce of the gradients"}  # fmt: skip
    used = [text for kind, text in names.items() if kind in kinds["forward"] | kinds["backward"]]
    ahead = f" AG {last - 1} runs while B {last} computes." if gathered else ""
    return drawing, f"{'; '.join(used)}; three of the layers, not to scale.{ahead}"
