"""Weights and gradients on the host: a weight is copied in before what reads it, a gradient out when it is made."""

from __future__ import annotations

from collections.abc import Iterator

from symcomm.core.graph.gradient import gradient_name
from symcomm.core.parallel.layouts import Layout
from symcomm.core.parallel.placement import Collective, Compute
from symcomm.core.program.instructions import HOST, Instruction, Program, Rewrite, Send, gathers_weight
from symcomm.core.program.rewrites.offloading import between_stages, passed_on
from symcomm.core.records import replace


def _rewritten(program: Program) -> Program:
    """A pass of a region has each weight for itself; what is kept longer, as a convention says, is copied once.

    What runs again has the weights of the backward pass, or its own, as a convention says.
    """
    host = program.accounting.off_device & {"weight", "gradient"}
    if not host:
        return program
    instructions: list[Instruction] = []
    apart = program.accounting.gathered_weights == "each_run"
    there, makers = set[tuple[str, bool, bool, str]](), _makers(program) if "gradient" in host else {}
    for instruction in program.instructions:
        for name, layout in _rested(program, instruction) if "weight" in host else ():
            again = instruction.phase == "recompute"
            at = instruction.region.name, instruction.phase == "forward", again and apart, name
            if at not in there:
                there.add(at)
                phase = "forward" if at[1] else "backward"
                copy = Send(name, program.part(name, layout), phase, "the host has the weight", "copy", HOST, layout)
                every, half = _always(program, at[:2], name), instruction.half and "B"
                by = (*instruction.by, *["gathered_weights"] * again)
                made = replace(instruction, work=copy, phase=phase, every=every, half=half, kernel="", ring="", by=by)
                instructions += passed_on(program, made, "weight", out=False)
        instructions.append(instruction)
        if (found := makers.get(id(instruction))) is not None:
            name, layout = found
            copy = Send(name, program.part(name, layout), "backward", "the host has the gradient", "copy", HOST, layout)
            once = program.accounting.accumulation == "reduced_once"
            by = (*instruction.by, *(() if once else ("accumulation",)))
            out = replace(instruction, work=copy, finishes=True, once=once, kernel="", ring="", by=by)
            instructions += passed_on(program, out, "gradient", out=True)
    return replace(program, instructions=tuple(instructions), host=program.host | host)


def _rested(program: Program, instruction: Instruction) -> Iterator[tuple[str, Layout]]:
    """The weights that an instruction reads as they rest, each with its part on a rank."""
    work = instruction.work
    if isinstance(work, Collective) and gathers_weight(program.graph, work) and "@" not in work.tensor:
        yield work.tensor, work.before
    elif isinstance(work, Compute) and instruction.phase != "update":
        for name, layout in zip(work.reads, work.layouts, strict=True):
            if "@" not in name and program.graph.tensors[name].role == "weight":
                yield name, layout


def _always(program: Program, at: tuple[str, bool], weight: str) -> bool:
    """Whether the first repetition of a region reads a weight in a pass, too."""
    region, forward = at
    return any(one.every and weight in dict(_rested(program, one)) for one in program.instructions
               if one.region.name == region and (one.phase == "forward") == forward)  # fmt: skip


def _makers(program: Program) -> dict[int, tuple[str, Layout]]:
    """The instructions that make gradients of weights as they rest, but for those that stages have to add up."""
    last: dict[str, tuple[Instruction, Layout]] = {}
    of = {gradient_name(weight.name) for weight in program.graph.weights if not between_stages(program, weight.name)}
    for instruction in program.instructions:
        if instruction.phase == "backward" and isinstance(instruction.work, (Compute, Collective)):
            work = instruction.work
            made, layout = (work.op.output, work.output) if isinstance(work, Compute) else (work.stored, work.after)
            last |= {made: (instruction, layout)} if made in of else {}
    return {id(instruction): (name, layout) for name, (instruction, layout) in last.items()}


REWRITE = Rewrite("hosted", 73, _rewritten, "offloading")
