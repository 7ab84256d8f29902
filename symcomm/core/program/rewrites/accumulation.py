"""Gradient accumulation: gradients are reduced for each microbatch, or once when all are added."""

from __future__ import annotations

from symcomm.core.accounting import Accounting
from symcomm.core.form import Form, num
from symcomm.core.program.instructions import Program, Rewrite
from symcomm.core.records import replace


def unreduced(accounting: Accounting, microbatches: Form) -> bool:
    """Whether the gradients of several microbatches are added on a rank before they are reduced."""
    return microbatches != num(1) and accounting.accumulation == "reduced_once"


def _rewritten(program: Program) -> Program:
    """What finishes the step runs once, but for gradients that are reduced for each microbatch."""
    often = program.accounting.accumulation == "reduced_every_microbatch"
    instructions = (
        replace(one, by=(*one.by, "accumulation")) if often and one.accumulates
        else replace(one, once=True) if one.finishes else one for one in program.instructions
    )  # fmt: skip
    return replace(program, instructions=tuple(instructions))


REWRITE = Rewrite("accumulation", 40, _rewritten)
