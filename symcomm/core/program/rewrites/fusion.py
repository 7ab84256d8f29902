"""Fusion: attention as one kernel, which writes no scores and computes them again for its backward pass.

Source: Dao et al., arXiv 2205.14135, sections 3.1 and B.4.
"""

from __future__ import annotations

from symcomm.core.parallel.placement import Compute
from symcomm.core.program.instructions import Instruction, Program, Rewrite
from symcomm.core.records import replace


def _rewritten(program: Program) -> Program:
    """``fused`` names the launch of each op of attention, and computes the scores again in the backward one."""
    graph = program.graph
    if program.accounting.softmax != "fused" or not graph.scores:
        return program
    launches = graph.kernels
    again: dict[str, list[Instruction]] = {}
    instructions: list[Instruction] = []
    for instruction in program.instructions:
        work = instruction.work
        launch = launches.get(work.op.output, "") if isinstance(work, Compute) else ""
        instruction = replace(instruction, kernel=launch) if launch else instruction
        if launch.endswith(" forward") and isinstance(work, Compute) and work.op.output in graph.scores:
            backward = launch.removesuffix("forward") + "backward"
            again.setdefault(backward, []).append(replace(instruction, phase="recompute", kernel=backward))
        instructions += [*again.pop(launch, ()), instruction] if launch.endswith(" backward") else [instruction]
    return replace(program, instructions=tuple(instructions), inside=graph.scores)


REWRITE = Rewrite("fusion", 0, _rewritten, "softmax")
