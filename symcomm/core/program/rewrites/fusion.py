"""Fusion: attention as one kernel, which writes no scores and computes them again for its backward pass.

Source: Dao et al., arXiv 2205.14135, sections 3.1 and B.4.
"""

from __future__ import annotations

from symcomm.core.accounting import Accounting
from symcomm.core.graph.gradient import training
from symcomm.core.graph.graph import Graph
from symcomm.core.parallel.placement import Compute
from symcomm.core.program.instructions import Instruction, Program, Rewrite
from symcomm.core.records import replace


def scores_again(graph: Graph, accounting: Accounting, frozen: frozenset[str] = frozenset()) -> frozenset[str]:
    """The forward ops that the backward pass of a kernel runs once more for itself, by the tensors that they make."""
    if accounting.softmax != "fused":
        return frozenset()
    both = training(graph, frozen=frozen)
    launches = both.kernels
    backward = {launch.removesuffix(" backward") for launch in launches.values() if launch.endswith(" backward")}
    made = {name for name, launch in launches.items() if launch.removesuffix(" forward") in backward}
    return frozenset(made & both.scores)


def _rewritten(program: Program) -> Program:
    """``fused`` names the launch of each op of attention, and computes the scores again in the backward one."""
    graph = program.graph
    if program.accounting.softmax != "fused" or not graph.scores:
        return program
    launches = graph.kernels
    again: dict[str, list[Instruction]] = {}
    turns: list[Instruction] = []
    for turn in program.turns:
        work = turn.work
        launch = launches.get(work.op.output, "") if isinstance(work, Compute) else ""
        turn = replace(turn, kernel=launch) if launch else turn
        if launch.endswith(" forward") and isinstance(work, Compute) and work.op.output in graph.scores:
            backward = launch.removesuffix("forward") + "backward"
            again.setdefault(backward, []).append(replace(turn, phase="recompute", kernel=backward))
        turns += [*again.pop(launch, ()), turn] if launch.endswith(" backward") else [turn]
    return replace(program, turns=tuple(turns), inside=graph.scores)


REWRITE = Rewrite("fusion", 0, _rewritten, "softmax")
