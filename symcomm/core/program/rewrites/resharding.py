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
    stored = {call.stored for turn, call in weights_gathered(program.turns, program.graph) if turn.phase == "forward"}
    turns: list[Instruction] = []
    kept, units = set[str](), set[str]()
    for turn in program.turns:
        call = next((call for _, call in weights_gathered([turn], program.graph)), None)
        if call is not None and (how in ("keep", "at_once") or (how == "layers" and not turn.region.times)):
            kept.add(call.stored)
            if turn.phase == "backward" and call.stored in stored:
                continue
            turn = replace(turn, once=how == "at_once")
        elif call is not None:
            units.add(call.stored)
        turns.append(turn)
    made = replace(program, turns=tuple(turns), kept=frozenset(kept), units=frozenset(units))
    return replace(made, turns=tuple(_unit_by_unit(made))) if units else made


def _unit_by_unit(program: Program) -> Iterator[Instruction]:
    """The turns with the weights of each unit gathered as a whole, before both passes of its region.

    What another region has gathered for its backward pass is there, unless it is on another stage.
    """
    gathers = [(t, call) for t, call in weights_gathered(program.turns, program.graph) if call.stored in program.units]
    moved, begun = {id(turn) for turn, _ in gathers}, set[tuple[str, str]]()
    apart = cut_into_stages(program.graph, program.strategy)
    known = {(call.tensor, call.meshes, apart and t.region.name) for t, call in gathers if t.phase == "backward"}
    why = "its module is gathered as a whole, though no gradient reads it"
    for turn in program.turns:
        at = turn.region.name, turn.phase
        if at not in begun:
            begun.add(at)
            mine = [(t, call) for t, call in gathers if t.region.name == at[0]]
            yield from (t for t, _ in mine if t.phase == turn.phase)
            if turn.phase == "backward":
                yield from (
                    replace(t, work=replace(call, phase="backward", why=why), phase="backward") for t, call in mine
                    if t.phase == "forward" and (call.tensor, call.meshes, apart and at[0]) not in known
                )  # fmt: skip
        if id(turn) not in moved:
            yield turn


REWRITE = Rewrite("resharding", 10, _rewritten)
