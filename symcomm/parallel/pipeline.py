"""Pipeline parallelism as a cut of the repeated graph: the edges that cross a boundary are the messages."""

from __future__ import annotations

from dataclasses import dataclass

from symcomm.errors import StrategyError
from symcomm.form import Form, Ratio, Sym, num
from symcomm.graph.gradient import differentiable
from symcomm.graph.graph import Graph
from symcomm.parallel.strategy import PipelineCut


@dataclass(frozen=True)
class Message:
    """What is sent over one boundary: a tensor from stage i to i+1 in forward, its gradient back in backward."""

    tensor: str
    phase: str
    why: str


def messages(graph: Graph) -> tuple[Message, ...]:
    """The tensors that cross the boundary between two repetitions of the graph, in both directions.

    An output of one repetition that is the input of the next crosses; so does an input that every repetition reads,
    since it enters at the first stage. Their gradients cross the other way.

    Raises ``StrategyError`` where nothing flows from one repetition to the next.
    """
    if not graph.carried:
        raise StrategyError(
            f"{graph.name} cannot be cut into stages: no output has the shape of an input",
            hint="a layer that is stacked takes its own output as its input",
        )
    fed = {into for _, into in graph.carried}
    crossing = [
        (out, f"the first layer of the next stage reads `{out}` as its `{into}`") for out, into in graph.carried
    ]
    crossing += [
        (t.name, f"every layer reads `{t.name}`, which enters at the first stage")
        for t in graph.inputs
        if t.name not in fed
    ]
    needed = differentiable(graph)
    forward = [Message(name, "forward", why) for name, why in crossing]
    back = [
        Message(name, "backward", f"the gradient of `{name}` flows back to the stage that made it")
        for name, _ in reversed(crossing)
        if name in needed
    ]
    return (*forward, *back)


def stage_count(cut: PipelineCut, repeat: str) -> Form:
    """The number of stages: given, or the layers divided by the layers of a stage."""
    if cut.stages is not None:
        return cut.stages
    assert cut.layers_per_stage is not None
    if not repeat:
        raise StrategyError(
            "layers per stage are given, but the model has one layer", hint="say 'repeat: N_layer', or give the stages"
        )
    return Ratio(Sym(repeat), cut.layers_per_stage)


def boundaries(cut: PipelineCut, repeat: str) -> Form:
    """The number of boundaries between stages: one less than the stages."""
    from symcomm.form import Total

    return Total((stage_count(cut, repeat), num(-1)))
