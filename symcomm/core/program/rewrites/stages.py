"""The cut into stages: what stages send to one another, and what weights need that two of them share."""

from __future__ import annotations

from collections.abc import Iterator

from symcomm.core.errors import StrategyError
from symcomm.core.graph.gradient import gradient_name
from symcomm.core.libraries import Expr
from symcomm.core.parallel.placement import Collective
from symcomm.core.program import pipeline
from symcomm.core.program.instructions import BETWEEN_STAGES, Instruction, Program, Rewrite, Send
from symcomm.core.records import replace


def _rewritten(program: Program) -> Program:
    if not pipeline.cut_into_stages(program.graph, program.strategy):
        return program  # one stage sends nothing
    instructions, ties = [*program.instructions], list[Instruction]()
    for tie in _ties(program):
        read = next((n for n, instruction in enumerate(instructions) if _waits(program, instruction, tie)), None)
        if read is None:
            ties.append(tie)
        else:
            instructions.insert(read, tie)
    return replace(program, instructions=(*instructions, *ties, *_messages(program)))


def _waits(program: Program, instruction: Instruction, tie: Instruction) -> bool:
    """Whether an instruction of the last stage reads what is gathered for that, or is the first one of its unit."""
    if (instruction.region, instruction.phase) != (tie.region, tie.phase):
        return False
    stored = getattr(tie.work, "stored", "")
    return stored in program.units or stored in getattr(instruction.work, "reads", ())


def _ties(program: Program) -> Iterator[Instruction]:
    """What weights need that the first and the last stage of a pipeline share.

    Each of the two stages gathers its own copy of them where they are sharded, and finishes its own part of the
    gradient over the data; then the two add them.
    """
    graph, layers = program.graph, pipeline.stacked(program.graph)
    at, behind = graph.regions.index(layers[0]), graph.regions.index(layers[-1]) + 1
    before, after = ({r.name for r in some} for some in (graph.regions[:at], graph.regions[behind:]))
    why = "the first and the last stage use the same weight, and each has a part of its gradient"
    for weight in graph.weights:
        homes = {op.region for op in graph.consumers[weight.name] if op.phase == "forward"}
        if weight.name in program.frozen or not (homes & before and homes & after):
            continue
        last, gradient = next(r for r in graph.regions[behind:] if r.name in homes), gradient_name(weight.name)
        mine = (n for n, op in graph.producers.items() if op.region == last.name and graph.tensors[n].of == weight.name)
        part = next(mine, gradient)
        for instruction in program.instructions:
            if not isinstance(instruction.work, Collective):
                continue
            moved = program.tensor(instruction.work)
            gathers = moved.name == weight.name and instruction.phase == "forward"
            if gathers:
                yield replace(instruction, region=last)
            elif instruction.finishes and moved.of == weight.name:
                yield replace(instruction, region=last, work=replace(instruction.work, tensor=part))
        if gradient not in graph.tensors:
            continue
        # Cut as the weight is: the gradients of both stages are placed alike.
        layout = program.plan.placements[gradient]
        tie = Collective("all-reduce", gradient, program.part(gradient, layout), BETWEEN_STAGES, "backward", gradient,
                         why, layout, layout, gradient)  # fmt: skip
        yield Instruction(tie, last, "backward", finishes=True)


def _messages(program: Program) -> list[Instruction]:
    """What the stages of a pipeline send: what one repetition of the layers hands to the next one.

    Raises ``StrategyError`` where one kind of layer hands on more than another one.
    """
    graph = program.graph
    forward = replace(graph, ops=tuple(op for op in graph.ops if op.phase == "forward"))
    same: list[tuple[str, Expr, str | None]] | None = None
    instructions: list[Instruction] = []
    for region in pipeline.stacked(graph):
        messages = pipeline.messages(forward.region(region.name))
        placed = program.plan.placements
        sent = [Send(m.tensor, program.part(m.tensor, placed[m.tensor]), m.phase, m.why) for m in messages]
        amounts = [(one.phase, graph.relations.expand(one.elements), program.tensor(one).dtype) for one in sent]
        if same is not None and amounts != same:
            raise StrategyError(
                f"{' and '.join(r.name for r in pipeline.stacked(graph))} hand on different tensors, so that the "
                "boundaries between stages differ",
                hint="data, tensor and sharded parallelism cut both; a pipeline cuts one kind of layer: part(...)",
            )  # fmt: skip
        same, instructions = amounts, [Instruction(one, region, one.phase) for one in sent]
    return instructions


REWRITE = Rewrite("stages", 30, _rewritten)
