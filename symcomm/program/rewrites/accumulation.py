"""Gradient accumulation: gradients are reduced for each microbatch, or once when all are added."""

from __future__ import annotations

from dataclasses import replace

from symcomm.program.instructions import Program, Rewrite


def _rewritten(program: Program) -> Program:
    """What finishes the step runs once, but for gradients that are reduced for each microbatch."""
    often = program.accounting.accumulation == "reduced_every_microbatch"
    turns = (replace(turn, once=turn.finishes and not (often and turn.accumulates)) for turn in program.turns)
    return replace(program, turns=tuple(turns))


REWRITE = Rewrite("accumulation", 4, _rewritten)
