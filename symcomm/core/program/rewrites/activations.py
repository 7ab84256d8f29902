"""Activations on the host: each layer copies what it keeps there, and gets it back before its backward pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from symcomm.core.libraries import Expr
from symcomm.core.program.autograd import saved
from symcomm.core.program.instructions import HOST, Instruction, Program, Rewrite, Send
from symcomm.core.program.rewrites.offloading import passed_on
from symcomm.core.records import replace

_HELD = ("activation", "input")


def _rewritten(program: Program) -> Program:
    """A layer's copies go out behind its forward pass and come back before the first thing that its backward runs."""
    if "activation" not in program.accounting.off_device:
        return program
    instructions: list[Instruction] = []
    back: dict[str, list[Instruction]] = {}
    layers = {instruction.region.name for instruction in program.instructions if instruction.region.times}
    last = {one.region.name: n for n, one in enumerate(program.instructions) if one.phase == "forward"}
    for n, instruction in enumerate(program.instructions):
        name = instruction.region.name
        if instruction.phase != "forward":
            instructions += back.pop(name, [])
        instructions.append(instruction)
        if name not in layers or last.get(name) != n:
            continue
        copied, by = _copied(program, name), tuple(_decided(program, name))
        for tensor, elements in copied:
            out, home = (Send(tensor, elements, phase, "the host holds it until then", "copy", HOST)
                         for phase in ("forward", "backward"))  # fmt: skip
            left = Instruction(out, instruction.region, "forward", by=by)
            instructions += passed_on(program, left, "activation", out=True)
            fetched = Instruction(home, instruction.region, "backward", by=by)
            there = passed_on(program, fetched, "activation", out=False)
            back.setdefault(name, []).extend(there)
    return replace(program, instructions=tuple(instructions))


def _copied(program: Program, region: str) -> list[tuple[str, Expr]]:
    """The tensors of a layer that the host holds, with the numbers of them that a rank has.

    What all repetitions read, as what comes from an encoder, is none of a layer's own and stays on the device.
    """
    shared = next(program.graph.shared(one) for one in program.graph.regions if one.name == region)
    return [(item.tensor, item.elements) for item in saved(program, region)
            if item.is_tensor and program.graph.tensors[item.tensor].role in _HELD
            and item.tensor not in shared]  # fmt: skip


def _decided(program: Program, region: str) -> Iterator[str]:
    """The conventions by which these are the tensors."""
    if {op.output for op in program.region(region).graph.ops} & program.graph.scores:
        yield "softmax"  # which says whether scores are kept
    how = program.accounting
    other = replace(how, saved="ideal" if how.saved == "pytorch" else "pytorch")
    ours, theirs = (Counter(n for _, n in _copied(replace(program, accounting=said), region)) for said in (how, other))
    if ours != theirs:
        yield "saved"


REWRITE = Rewrite("activations", 75, _rewritten, "offloading")
