"""Gradient buckets: data parallelism copies gradients to flat buckets, and reduces those."""

from __future__ import annotations

from symcomm.core.parallel.placement import Collective
from symcomm.core.program.instructions import Instruction, Program, Rewrite
from symcomm.core.records import replace


def _rewritten(program: Program) -> Program:
    """Gradients that replicas reduce, and that are not kept in shards, are reduced in a bucket that holds a copy."""
    if program.accounting.gradient_buckets == "in_place":
        return program
    rules = [rule for _, rule in program.strategy.rules]
    shards = {rule.mesh for rule in rules if rule.axis == "first" and "gradient" in rule.on}
    replicas = {rule.mesh for rule in rules if rule.axis == "batch"} - shards

    def bucketed(instruction: Instruction) -> bool:
        work = instruction.work
        return instruction.accumulates and isinstance(work, Collective) and bool(replicas.intersection(work.meshes))

    instructions = (replace(one, bucketed=True) if bucketed(one) else one for one in program.instructions)
    return replace(program, instructions=tuple(instructions))


REWRITE = Rewrite("buckets", 50, _rewritten)
