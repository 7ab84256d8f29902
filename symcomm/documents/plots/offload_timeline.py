"""Copies between a rank and its host beside its computing: what goes out and what comes back, and when.

A scheme of three layers, in the order of the program of one; the boxes are not to scale.
"""

from __future__ import annotations

from symcomm.core.errors import ValuesError
from symcomm.core.program.instructions import Program
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, TINT, Sketch

_WIDTH, _BOX, _HIGH, _LAYERS = 470.0, 30.0, 16.0, 3
_LETTER = {"weight": "W", "gradient": "G", "activation": "A", "input": "A"}
_NAMES = {"W": "W: weights.", "G": "G: gradients.", "A": "A: kept activations."}


def offload_timeline(made: Program) -> tuple[Sketch, str]:
    """The picture, and a sentence on what is in it; raises ``ValuesError`` where nothing rests on the host."""
    found: dict[tuple[str, bool], dict[str, None]] = {}
    for copy in made.host_copies:
        new = made.tensor(copy).role != "gradient" and copy.phase == "update"
        letter = "W" if new else _LETTER[made.tensor(copy).role]
        out = letter == "G" or (letter == "A" and copy.phase == "forward")
        found.setdefault((copy.phase, out), {})[letter] = None
    if not found:
        raise ValuesError("nothing is copied to the host and back", hint="accounting: {offloading: states_on_host}")
    drawing, lanes = Sketch(_WIDTH, 96), {"to the host": 20.0, "computing": 44.0, "from the host": 68.0}
    for name, y in lanes.items():
        drawing.text(2, y + 11, name, 8, SOFT, "start")
        drawing.line(60, y + _HIGH + 3, _WIDTH - 2, y + _HIGH + 3)
    free = dict.fromkeys(lanes, 64.0)

    def put(lane: str, text: str, wide: float, after: float = 0.0) -> float:
        x, calls = max(free[lane], after), lane != "computing"
        drawing.box(x, lanes[lane], wide, _HIGH, "none" if calls else TINT, MARK if calls else INK)
        drawing.text(x + wide / 2, lanes[lane] + 11, text, 7.5, MARK if calls else "#1b1b1b")
        free[lane] = x + wide + 2
        return free[lane]

    start = free["computing"]
    for phase, letter, wide in (("forward", "F", _BOX), ("backward", "B", 1.5 * _BOX)):
        layers = range(1, _LAYERS + 1) if phase == "forward" else range(_LAYERS, 0, -1)
        for layer in layers:
            ready = start
            for what in found.get((phase, False), ()):
                ready = put("from the host", f"{what} {layer}", 0.8 * _BOX, start)
            ended = put("computing", f"{letter} {layer}", wide, ready)
            for what in found.get((phase, True), ()):
                put("to the host", f"{what} {layer}", 0.8 * _BOX, ended)
        drawing.text((start + free["computing"]) / 2, 12, phase, 7.5, SOFT)
        start = free["computing"] + 6
        if phase == "forward":
            drawing.line(start - 3, 14, start - 3, 88, LINE, dashed=True)
    update = {out: "G" if out else "new W" for phase, out in found if phase == "update"}
    for out in sorted(update, reverse=True):  # the host updates between the two
        lane, after = ("to the host" if out else "from the host"), max(free["to the host"], start)
        put(lane, update[out], 1.3 * _BOX, after if out else after + 6)
        drawing.text(free[lane] - 0.65 * _BOX, 12, "update", 7.5, SOFT)
    used = dict.fromkeys(letter for letters in found.values() for letter in letters)
    return drawing, " ".join([*(_NAMES[letter] for letter in used), "Three of the layers, not to scale."])
