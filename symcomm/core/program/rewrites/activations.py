"""Activations on the host: each layer copies what it keeps there, and gets it back before its backward pass."""

from __future__ import annotations

from symcomm.core.program.autograd import saved
from symcomm.core.program.instructions import HOST, Instruction, Program, Rewrite, Send
from symcomm.core.program.rewrites.offloading import on_host
from symcomm.core.records import replace

_HELD = ("activation", "input")


def _rewritten(program: Program) -> Program:
    """A layer's copies go out behind its forward pass and come back before the first thing that its backward runs."""
    if "activation" not in on_host(program.accounting):
        return program
    turns: list[Instruction] = []
    back: dict[str, list[Instruction]] = {}
    layers = {turn.region.name for turn in program.turns if turn.region.times}
    last = {turn.region.name: n for n, turn in enumerate(program.turns) if turn.phase == "forward"}
    for n, turn in enumerate(program.turns):
        name = turn.region.name
        if turn.phase != "forward":
            turns += back.pop(name, [])
        turns.append(turn)
        if name not in layers or last.get(name) != n:
            continue
        for item in saved(program, name):
            if item.is_tensor and program.graph.tensors[item.tensor].role in _HELD:
                out, home = (Send(item.tensor, item.elements, phase, "the host holds it until then", "copy", HOST)
                             for phase in ("forward", "backward"))  # fmt: skip
                turns.append(Instruction(out, turn.region, "forward"))
                back.setdefault(name, []).append(Instruction(home, turn.region, "backward"))
    return replace(program, turns=tuple(turns))


REWRITE = Rewrite("activations", 75, _rewritten, "offloading")
