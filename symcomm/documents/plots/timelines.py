"""Copies and calls beside computing: what comes, is used, goes and is dropped in a training step, and when.

Schemes of three layers, in the order of the program of one; the boxes are not to scale.
"""

from __future__ import annotations

from symcomm.core.errors import ValuesError
from symcomm.core.parallel.placement import Collective
from symcomm.core.program.instructions import Program
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, TINT, Sketch

_WIDTH, _HIGH, _LAYERS = 470.0, 16.0, 3
_LETTER = {"weight": "W", "gradient": "G", "activation": "A", "input": "A"}
_NAMES = {"W": "W: weights.", "G": "G: gradients.", "A": "A: kept activations."}


class _Lanes:
    """Lanes below one another, by their names and heights, in which boxes stand side by side."""

    def __init__(self, lanes: dict[str, float], left: float, height: float) -> None:
        self.drawing, self.lanes = Sketch(_WIDTH, height), lanes
        for name, y in lanes.items():
            self.drawing.text(2, y + 11, name, 8, SOFT, "start")
            self.drawing.line(left, y + _HIGH + 3, _WIDTH - 2, y + _HIGH + 3)
        self.free = dict.fromkeys(lanes, left + 4)

    def put(self, lane: str, text: str, wide: float, after: float = 0.0, calls: str = "") -> float:
        """Puts a box into the first place of a lane, or behind one; gives where it ends. ``calls`` have a colour."""
        x = max(self.free[lane], after)
        self.drawing.box(x, self.lanes[lane], wide, _HIGH, "none" if calls else TINT, calls or INK)
        self.drawing.text(x + wide / 2, self.lanes[lane] + 11, text, 7.5, calls or "#1b1b1b")
        self.free[lane] = x + wide + 2
        return self.free[lane]

    def head(self, text: str, middle: float) -> None:
        """Writes what the boxes below are."""
        self.drawing.text(middle, 12, text, 7.5, SOFT)


def sharded_timeline(made: Program) -> tuple[Sketch, str]:
    """The picture of the calls of weights and gradients beside computing, and a sentence on what is in it.

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
    lanes, box = _Lanes({"network": 22.0, "compute": 50.0}, 46, 76), 26.0
    start = ready = lanes.free["compute"]
    for layer in range(1, _LAYERS + 1):
        if "all-gather" in kinds["forward"]:
            ready = lanes.put("network", f"AG {layer}", box, calls=MARK)
        lanes.put("compute", f"F {layer}", box, ready)
    x = lanes.free["compute"]
    lanes.drawing.line(x + 3, 14, x + 3, 72, LINE, dashed=True)
    lanes.head("forward", (start + x) / 2)
    start = ready = x + 8
    lanes.free = dict.fromkeys(lanes.free, start)
    gathered = "all-gather" in kinds["backward"]
    reduced = kinds["backward"] & {"reduce-scatter", "all-reduce"}
    if gathered:
        ready = lanes.put("network", f"AG {_LAYERS}", box, calls=MARK)
    for layer in range(_LAYERS, 0, -1):
        begins = max(lanes.free["compute"], ready)
        if gathered and layer > 1:  # asked for before this layer's backward, as PyTorch does
            ready = lanes.put("network", f"AG {layer - 1}", box, begins, MARK)
        ended = lanes.put("compute", f"B {layer}", 1.6 * box, begins)
        if reduced:
            lanes.put("network", f"{'RS' if 'reduce-scatter' in reduced else 'AR'} {layer}", box, ended, INK)
    lanes.head("backward", (start + lanes.free["compute"]) / 2)
    names = {"all-gather": "AG: AllGather of the weights", "reduce-scatter": "RS: ReduceScatter of the gradients",
             "all-reduce": "AR: AllReduce of the gradients"}  # fmt: skip
    used = [text for kind, text in names.items() if kind in kinds["forward"] | kinds["backward"]]
    ahead = f" AG {_LAYERS - 1} runs while B {_LAYERS} computes." if gathered else ""
    return lanes.drawing, f"{'; '.join(used)}; three of the layers, not to scale.{ahead}"


def offload_timeline(made: Program) -> tuple[Sketch, str]:
    """The picture of the copies between a rank and its host beside computing, and a sentence on what is in it.

    Raises ``ValuesError`` where nothing rests on the host.
    """
    found: dict[tuple[str, bool], dict[str, None]] = {}
    for copy in made.host_copies:
        new = made.tensor(copy).role != "gradient" and copy.phase == "update"
        letter = "W" if new else _LETTER[made.tensor(copy).role]
        out = letter == "G" or (letter == "A" and copy.phase == "forward")
        found.setdefault((copy.phase, out), {})[letter] = None
    if not found:
        raise ValuesError("nothing is copied to the host and back", hint="accounting: {offloading: states_on_host}")
    lanes, box = _Lanes({"to the host": 20.0, "computing": 44.0, "from the host": 68.0}, 60, 96), 30.0
    start = lanes.free["computing"]
    for phase, letter, wide in (("forward", "F", box), ("backward", "B", 1.5 * box)):
        for layer in range(1, _LAYERS + 1) if phase == "forward" else range(_LAYERS, 0, -1):
            ready = start
            for what in found.get((phase, False), ()):
                ready = lanes.put("from the host", f"{what} {layer}", 0.8 * box, start, MARK)
            ended = lanes.put("computing", f"{letter} {layer}", wide, ready)
            for what in found.get((phase, True), ()):
                lanes.put("to the host", f"{what} {layer}", 0.8 * box, ended, MARK)
        lanes.head(phase, (start + lanes.free["computing"]) / 2)
        start = lanes.free["computing"] + 6
        if phase == "forward":
            lanes.drawing.line(start - 3, 14, start - 3, 88, LINE, dashed=True)
    update = {out: "G" if out else "new W" for phase, out in found if phase == "update"}
    for out in sorted(update, reverse=True):  # the host updates between the two
        lane, after = ("to the host" if out else "from the host"), max(lanes.free["to the host"], start)
        end = lanes.put(lane, update[out], 1.3 * box, after if out else after + 6, MARK)
        lanes.head("update", end - 0.65 * box)
    used = dict.fromkeys(letter for letters in found.values() for letter in letters)
    return lanes.drawing, " ".join([*(_NAMES[letter] for letter in used), "Three of the layers, not to scale."])
