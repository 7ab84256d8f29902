"""Gradient accumulation: gradients are reduced for each microbatch, or once when all are added."""

from __future__ import annotations

from symcomm.core.accounting import Accounting
from symcomm.core.form import Form, num
from symcomm.core.graph.gradient import gradient_name
from symcomm.core.parallel.layouts import PARTIAL, Layout
from symcomm.core.parallel.placement import Compute, Plan
from symcomm.core.program.instructions import Program, Rewrite
from symcomm.core.records import replace


def unreduced(accounting: Accounting, microbatches: Form) -> bool:
    """Whether the gradients of several microbatches are added on a rank before they are reduced."""
    return microbatches != num(1) and accounting.accumulation == "reduced_once"


def summed(plan: Plan, weight: str) -> Layout:
    """How the gradient of a weight is cut while it is added up: as it is computed, before it is reduced."""
    made = (step.output for step in plan.steps if isinstance(step, Compute)
            and step.op.output == gradient_name(weight) and step.part != "statistics")  # fmt: skip
    return tuple((mesh, position) for mesh, position in next(made, ()) if position != PARTIAL)


def _rewritten(program: Program) -> Program:
    """What finishes the step runs once, but for gradients that are reduced for each microbatch."""
    often = program.accounting.accumulation == "reduced_every_microbatch"
    turns = (
        replace(turn, by=(*turn.by, "accumulation")) if often and turn.accumulates
        else replace(turn, once=True) if turn.finishes else turn for turn in program.turns
    )  # fmt: skip
    return replace(program, turns=tuple(turns))


REWRITE = Rewrite("accumulation", 4, _rewritten)
