"""The halves of a backward pass: B makes the gradients of inputs, W those of weights, where a schedule runs them apart.

What the gradient of a region's input needs is in B, by the flow of data, collectives included; the rest is in W. So all
of a region whose input needs no gradient, such as an embedding, is in W. What runs again, and weights that are gathered
again, are in B.
"""

from __future__ import annotations

from collections.abc import Iterator

from symcomm.core.graph.graph import Graph, Tensor
from symcomm.core.graph.ops import MAP
from symcomm.core.parallel.placement import Collective, Compute
from symcomm.core.program.instructions import Instruction, Program, Rewrite, gathers_weight
from symcomm.core.records import replace


def norm_weights(graph: Graph) -> frozenset[str]:
    """The gains and biases of norms: weights that meet normalised values element by element."""
    normed, made_of = set[str](), {weight.name: {weight.name} for weight in graph.weights}
    found = set[str]()
    for op in (op for op in graph.ops if op.phase == "forward"):
        weights = set[str]().union(*(made_of.get(name, ()) for name in op.inputs))
        if op.kind in MAP:
            if MAP[op.kind].along and not MAP[op.kind].collapses:
                normed.add(op.output)
        elif weights and len(op.inputs) == 2 and not op.summed and normed.intersection(op.inputs):
            found |= weights
            normed.add(op.output)
        elif weights and all(name in made_of or graph.tensors[name].role == "constant" for name in op.inputs):
            made_of[op.output] = weights  # such as 1 + g
    return frozenset(found)


def _rewritten(program: Program) -> Program:
    """Says of each instruction of the backward pass in which half it is."""
    graph, halves = program.graph, dict[int, str]()
    gains = norm_weights(graph) if program.accounting.norm_gradients == "with_inputs" else frozenset()
    regions = dict.fromkeys(instruction.region.name for instruction in program.instructions)
    for region in regions:
        mine = [t for t in program.instructions if t.region.name == region and t.phase in ("recompute", "backward")]
        halves |= {id(instruction): half for instruction, half in _halves(graph, mine, gains)}
    instructions = [replace(one, half=halves[id(one)]) if id(one) in halves else one for one in program.instructions]
    return replace(program, instructions=tuple(instructions))


def _halves(graph: Graph, instructions: list[Instruction], gains: frozenset[str]) -> Iterator[tuple[Instruction, str]]:
    """The instructions of one region from the last to the first, each with its half."""
    read = {name.partition(" @ ")[0] for t in instructions if isinstance(t.work, Compute) for name in t.work.reads}

    def first(tensor: Tensor) -> bool:
        """Whether it is the gradient of an input of the region, or of the gain or bias of a norm."""
        if tensor.role != "gradient" or tensor.name in read:
            return False
        return tensor.of in gains or graph.tensors[tensor.of].role != "weight"

    needed = set[str]()
    for instruction in reversed(instructions):
        work = instruction.work
        if not isinstance(work, (Compute, Collective)):
            continue
        made = work.makes if isinstance(work, Compute) else work.stored
        again = instruction.phase == "recompute" or gathers_weight(graph, work)
        half = "B" if again or made in needed or first(graph.tensors[made.partition(" @ ")[0]]) else "W"
        if half == "B":
            needed |= {*work.reads} if isinstance(work, Compute) else {work.tensor}
        yield instruction, half


REWRITE = Rewrite("halves", 70, _rewritten)
