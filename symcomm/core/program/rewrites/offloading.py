"""Offloading: what rests on the host or its disks instead of the device, as a convention says, and what goes there."""

from __future__ import annotations

from collections.abc import Iterator

from symcomm.core.graph.graph import Region
from symcomm.core.parallel.layouts import Layout
from symcomm.core.parallel.placement import Collective, Compute
from symcomm.core.program.instructions import HOST, READ, WRITTEN, Instruction, Program, Rewrite, Send
from symcomm.core.records import replace


def passed_on(program: Program, copy: Instruction, role: str, out: bool) -> tuple[Instruction, ...]:
    """A copy between a rank and its host, with what the host writes to its disks behind it, or reads before it."""
    if program.accounting.tier(role) != "nvme":
        return (copy,)
    assert isinstance(copy.work, Send)
    why = "the disks of the host have it"
    disk = replace(copy, work=replace(copy.work, meshes=WRITTEN if out else READ, why=why))
    return (copy, disk) if out else (disk, copy)


def _rewritten(program: Program) -> Program:
    """The host updates the weights whose states it has: what that reads goes there, and what it makes comes back."""
    host = program.accounting.off_device - {"activation"}
    if not host:
        return program
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        instructions.append(instruction)
        if isinstance(instruction.work, Compute) and instruction.work.op.kind == "update":
            instructions[-1:] = [*_copies(program, instruction, instruction.work, host), instruction]
        elif isinstance(instruction.work, Collective) and instruction.phase == "update" and "weight" in host:
            work = instruction.work
            copy = _copy(program, instruction, work.tensor, work.after, "the host has the weight")
            instructions += passed_on(program, copy, "weight", out=True)
    return replace(program, instructions=tuple(instructions), host=host & {"state"})


def _copies(program: Program, instruction: Instruction, update: Compute, host: frozenset[str]) -> Iterator[Instruction]:
    """The copies of one weight: of its gradient, as the update reads it, and of the new weight, as that makes it.

    Both are needed where the update runs elsewhere than they rest. Ranks exchange what is on their devices.
    """
    gradient, weight = update.op.inputs[1], update.op.inputs[0]
    shared, away = between_stages(program, weight), "state" in host
    sent = any(isinstance(t.work, Collective) and t.phase == "update" and t.work.tensor == update.op.output
               for t in program.instructions)  # fmt: skip
    for region in (instruction.region, *shared):
        here = replace(instruction, region=region)
        if away != ("gradient" in host and not shared):
            why = "the host, which has the states, reads the gradient" if away else "the update reads the gradient"
            yield _copy(program, here, gradient, update.layouts[1], why)
        if away != ("weight" in host and not sent):
            why = "the host updates the weight" if away else "the host has the weight"
            yield _copy(program, here, update.op.output, update.output, why)
    moved = [("gradient", gradient, update.layouts[1], (READ,)), ("state", update.op.inputs[2], update.layouts[2],
             (READ, WRITTEN)), ("weight", update.op.output, update.output, () if sent else (WRITTEN,))]  # fmt: skip
    for role, name, layout, ways in moved:
        for way in ways if program.accounting.tier(role) == "nvme" else ():
            yield _copy(program, instruction, name, layout, _WHY[way], way)


_WHY = {
    READ: "the host reads it from its disks to update the weight",
    WRITTEN: "the host writes it to its disks to update the weight",
}


def between_stages(program: Program, weight: str) -> tuple[Region, ...]:
    """The regions of other stages of a pipeline that share a weight, whose gradients they add up."""
    return tuple(t.region for t in program.instructions if t.between_stages and isinstance(t.work, Collective)
                 and program.tensor(t.work).of == weight)  # fmt: skip


def _copy(
    program: Program, instruction: Instruction, name: str, layout: Layout, why: str, way: tuple[str, ...] = HOST
) -> Instruction:  # fmt: skip
    work = Send(name, program.part(name, layout), "update", why, "copy", way)
    return replace(instruction, work=work, phase="update", finishes=True, once=True)


REWRITE = Rewrite("offloading", 60, _rewritten, "offloading")
