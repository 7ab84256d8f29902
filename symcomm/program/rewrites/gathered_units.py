"""Units of modules whose sharded weights are gathered as a whole, as a convention says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from symcomm.parallel.placement import Collective
from symcomm.program.instructions import Program, Rewrite, Turn


def _rewritten(program: Program) -> Program:
    """With ``whole_units`` all weights are gathered again for backward, also those that no gradient reads; ``layers``
    keeps what stands before and behind the layers.
    """
    convention, turns = program.accounting.gathered_weights, program.turns
    if convention not in ("whole_units", "layers"):
        return program
    if convention == "layers":
        outside = {id(t) for t, _ in _gathers(program, turns) if t.phase == "backward" and not t.region.times}
        turns = tuple(turn for turn in turns if id(turn) not in outside)
    gathers = [one for one in _gathers(program, turns) if convention == "whole_units" or one[0].region.times]
    again = {(call.tensor, call.meshes) for turn, call in gathers if turn.phase == "backward"}
    why = "the unit it belongs to is gathered as a whole, though no gradient reads it"
    added = (
        replace(turn, work=replace(call, phase="backward", why=why), phase="backward") for turn, call in gathers
        if turn.phase == "forward" and (call.tensor, call.meshes) not in again
    )  # fmt: skip
    return replace(program, turns=(*turns, *added))


def _gathers(program: Program, turns: Iterable[Turn]) -> Iterator[tuple[Turn, Collective]]:
    for turn in turns:
        work = turn.work
        if isinstance(work, Collective) and work.kind == "all-gather" and program.tensor(work).role == "weight":
            yield turn, work


REWRITE = Rewrite("gathered units", 1, _rewritten)
