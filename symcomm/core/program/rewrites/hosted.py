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
    turns: list[Instruction] = []
    apart = program.accounting.gathered_weights == "each_run"
    there, makers = set[tuple[str, bool, bool, str]](), _makers(program) if "gradient" in host else {}
    for turn in program.turns:
        for name, layout in _rested(program, turn) if "weight" in host else ():
            again = turn.phase == "recompute"
            at = turn.region.name, turn.phase == "forward", again and apart, name
            if at not in there:
                there.add(at)
                phase = "forward" if at[1] else "backward"
                copy = Send(name, program.part(name, layout), phase, "the host has the weight", "copy", HOST, layout)
                every, half = _always(program, at[:2], name), turn.half and "B"
                by = (*turn.by, *["gathered_weights"] * again)
                made = replace(turn, work=copy, phase=phase, every=every, half=half, kernel="", ring="", by=by)
                turns += passed_on(program, made, "weight", out=False)
        turns.append(turn)
        if (found := makers.get(id(turn))) is not None:
            name, layout = found
            copy = Send(name, program.part(name, layout), "backward", "the host has the gradient", "copy", HOST, layout)
            once = program.accounting.accumulation == "reduced_once"
            by = (*turn.by, *(() if once else ("accumulation",)))
            out = replace(turn, work=copy, finishes=True, once=once, kernel="", ring="", by=by)
            turns += passed_on(program, out, "gradient", out=True)
    return replace(program, turns=tuple(turns), host=program.host | host)


def _rested(program: Program, turn: Instruction) -> Iterator[tuple[str, Layout]]:
    """The weights that an instruction reads as they rest, each with its part on a rank."""
    work = turn.work
    if isinstance(work, Collective) and gathers_weight(program.graph, work) and "@" not in work.tensor:
        yield work.tensor, work.before
    elif isinstance(work, Compute) and turn.phase != "update":
        for name, layout in zip(work.reads, work.layouts, strict=True):
            if "@" not in name and program.graph.tensors[name].role == "weight":
                yield name, layout


def _always(program: Program, at: tuple[str, bool], weight: str) -> bool:
    """Whether the first repetition of a region reads a weight in a pass, too."""
    region, forward = at
    return any(turn.every and weight in dict(_rested(program, turn)) for turn in program.turns
               if turn.region.name == region and (turn.phase == "forward") == forward)  # fmt: skip


def _makers(program: Program) -> dict[int, tuple[str, Layout]]:
    """The instructions that make gradients of weights as they rest, but for those that stages have to add up."""
    last: dict[str, tuple[Instruction, Layout]] = {}
    of = {gradient_name(weight.name) for weight in program.graph.weights if not between_stages(program, weight.name)}
    for turn in program.turns:
        if turn.phase == "backward" and isinstance(turn.work, (Compute, Collective)):
            work = turn.work
            made, layout = (work.op.output, work.output) if isinstance(work, Compute) else (work.stored, work.after)
            last |= {made: (turn, layout)} if made in of else {}
    return {id(turn): (name, layout) for name, (turn, layout) in last.items()}


REWRITE = Rewrite("hosted", 73, _rewritten, "offloading")
