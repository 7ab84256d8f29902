"""Resharding: how long the copies of sharded weights that a rank gathers are there, as a convention says."""

from __future__ import annotations

from collections.abc import Iterator

from symcomm.core.program.instructions import Instruction, Program, Rewrite, weights_gathered
from symcomm.core.program.pipeline import cut_into_stages
from symcomm.core.records import replace


def _rewritten(program: Program) -> Program:
    """``keep`` gathers a weight for the forward pass alone, and ``layers`` what stands before and behind the layers.

    ``whole_units`` and, of the layers, ``layers`` gather all weights of a region before its first op, in backward, too,
    also those that no gradient reads, and drop them behind its last one. ``at_once`` gathers the weights of the whole
    model before the first op of a step, and drops them behind the last one.
    """
    how = program.accounting.gathered_weights
    if how in ("reshard", "each_run"):
        return program
    gathered = weights_gathered(program.instructions, program.graph)
    stored = {call.stored for one, call in gathered if one.phase == "forward"}
    instructions: list[Instruction] = []
    kept, units = set[str](), set[str]()
    for instruction in program.instructions:
        call = next((call for _, call in weights_gathered([instruction], program.graph)), None)
        if call is not None and (how in ("keep", "at_once") or (how == "layers" and not instruction.region.times)):
            kept.add(call.stored)
            if instruction.phase == "backward" and call.stored in stored:
                continue
            instruction = replace(instruction, once=how == "at_once")
        elif call is not None:
            units.add(call.stored)
        instructions.append(instruction)
    made = replace(program, instructions=tuple(instructions), kept=frozenset(kept), units=frozenset(units))
    return replace(made, instructions=tuple(_unit_by_unit(made))) if units else made


def _unit_by_unit(program: Program) -> Iterator[Instruction]:
    """The instructions with the weights of each unit gathered as a whole, before both passes of its region.

    What another region has gathered for its backward pass is there, unless it is on another stage.
    """
    every = weights_gathered(program.instructions, program.graph)
    gathers = [(one, call) for one, call in every if call.stored in program.units]
    moved, begun = {id(instruction) for instruction, _ in gathers}, set[tuple[str, str]]()
    apart = cut_into_stages(program.graph, program.strategy)
    known = {(call.tensor, call.meshes, apart and t.region.name) for t, call in gathers if t.phase == "backward"}
    why = "its module is gathered as a whole, though no gradient reads it"
    for instruction in program.instructions:
        at = instruction.region.name, instruction.phase
        if at not in begun:
            begun.add(at)
            mine = [(t, call) for t, call in gathers if t.region.name == at[0]]
            yield from (t for t, _ in mine if t.phase == instruction.phase)
            if instruction.phase == "backward":
                yield from (
                    replace(t, work=replace(call, phase="backward", why=why), phase="backward") for t, call in mine
                    if t.phase == "forward" and (call.tensor, call.meshes, apart and at[0]) not in known
                )  # fmt: skip
        if id(instruction) not in moved:
            yield instruction


REWRITE = Rewrite("resharding", 10, _rewritten)
