"""Gradient buckets: data parallelism copies gradients to flat buckets, and reduces those."""

from __future__ import annotations

from dataclasses import replace

from symcomm.parallel.placement import Collective
from symcomm.program.instructions import Program, Rewrite, Turn


def _rewritten(program: Program) -> Program:
    """Gradients that replicas reduce are reduced in a bucket, where a copy of them is."""
    if program.accounting.gradient_buckets == "in_place":
        return program
    replicas = {rule.mesh for _, rule in program.strategy.rules if rule.axis == "batch"}

    def bucketed(turn: Turn) -> bool:
        work = turn.work
        reduced = isinstance(work, Collective) and work.kind == "all-reduce" and turn.accumulates
        return reduced and bool(replicas.intersection(work.meshes))  # type: ignore[union-attr]

    return replace(program, turns=tuple(replace(turn, bucketed=bucketed(turn)) for turn in program.turns))


REWRITE = Rewrite("buckets", 5, _rewritten)
