"""Pipeline parallelism as a cut of the repeated graph: the edges that cross a boundary are the messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from symcomm.errors import StrategyError
from symcomm.form import Form, Ratio, Sym, Total, evaluate, names, num
from symcomm.graph.gradient import differentiable
from symcomm.graph.graph import Graph, Region, Tensor
from symcomm.parallel.strategy import PipelineCut
from symcomm.program.orders import Schedule


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


def stacked(graph: Graph) -> Region:
    """The region that is cut into stages: the one that is repeated.

    Raises ``StrategyError`` where none is, or where several are and a stage would hold layers of two kinds.
    """
    found = [region for region in graph.regions if region.times]
    if not found:
        raise StrategyError("one layer cannot be cut into stages", hint="say 'repeat: N_layer'")
    if len(found) > 1:
        raise StrategyError(
            f"{' and '.join(r.name for r in found)} are stacked behind one another, so that stages differ",
            hint="a pipeline cuts one kind of layer; ask one of them: part(...)",
        )
    return found[0]


def stage_count(cut: PipelineCut, graph: Graph) -> Form:
    """The number of stages: given, or the layers divided by the layers of a stage."""
    if cut.stages is not None:
        return cut.stages
    assert cut.layers_per_stage is not None
    return Ratio(Sym(stacked(graph).times), cut.layers_per_stage)


def check_stages(graph: Graph, cut: PipelineCut, values: Mapping[str, Fraction]) -> None:
    """Raises ``StrategyError`` where layers and stages are known numbers and the stages do not divide the layers."""
    layers, stages = stacked(graph).times, stage_count(cut, graph)
    if cut.layers:
        if layers in values and values[layers] != sum(cut.layers):
            listed = " + ".join(map(str, cut.layers))
            raise StrategyError(f"the stages have {listed} = {sum(cut.layers)} layers, but the model {values[layers]}",
                                hint=f"{layers} is {values[layers]}")  # fmt: skip
        return
    if layers not in values or not {*names(stages)} <= values.keys():
        return
    count = evaluate(stages, values)
    if count.denominator != 1 or values[layers] % count:
        fitting = [n for n in range(1, int(values[layers]) + 1) if values[layers] % n == 0]
        raise StrategyError(
            f"{values[layers]} layers are not divisible into {count} stages",
            hint=f"{values[layers]} layers make {', '.join(map(str, fitting[:-1]))} or {fitting[-1]} equal stages"
            if len(fitting) > 1 else "one layer makes one stage",
        )  # fmt: skip


@dataclass(frozen=True)
class Held:
    """What a rank holds of a model: the regions, and how many repetitions of a repeated one (all, where not said)."""

    regions: frozenset[str]
    layers: Form | None = None
    notes: tuple[str, ...] = ()

    def times(self, region: Region, every: bool = True) -> Form:
        """How often a region stands on the rank; one less where the first repetition is left out."""
        if not region.times:
            return num(1) if every else num(0)
        count = self.layers or Sym(region.times)
        return count if every else Total((count, num(-1)))

    def weights(self, graph: Graph) -> Iterator[tuple[Region, list[Tensor]]]:
        """The weights of each region that the rank holds; one that two of them share is on it once."""
        known: set[str] = set()
        for region in graph.regions:
            if region.name in self.regions:
                mine = [w for w in graph.region(region.name).weights if w.name not in known]
                known |= {w.name for w in mine}
                yield region, mine


def held(
    graph: Graph, cut: PipelineCut | None, stage: object = None, values: Mapping[str, Fraction] | None = None,
    schedule: Schedule | None = None,
) -> Held:  # fmt: skip
    """What a rank holds: everything, or its stage of a pipeline (0 is the first, where the embedding is).

    What stands before the layers is on the first stage, what stands behind them on the last one; a ``schedule`` may
    place both on one rank. Raises ``StrategyError`` for a stage that there is not.
    """
    every = [region.name for region in graph.regions] or [graph.name]
    if cut is None:
        return Held(frozenset(every))
    layers = stacked(graph)
    if cut.layers and schedule is not None and schedule.chunks not in (None, 1):
        raise StrategyError(
            f"layers are given for each stage, and a rank of {schedule.name} has several", hint="say how many stages"
        )
    check_stages(graph, cut, values or {})
    stages = stage_count(cut, graph)
    mine = cut.layers_per_stage or Ratio(Sym(layers.times), stages)
    at = every.index(layers.name)
    count = evaluate(stages, values or {}) if {*names(stages)} <= {*(values or {})} else None
    number = _stage_number(stage, count)
    if cut.layers:
        mine = num(cut.layers[number])
    before, after = every[:at], every[at + 1 :]
    first, last = number == 0, number == -1 or (count is not None and number == count - 1)
    if schedule is not None and schedule.chunks:
        first, last = schedule.ends(number, 4 if count is None else int(count))
    regions = [*(before if first else []), layers.name, *(after if last else [])]
    notes: tuple[str, ...] = ()
    if before or after:
        which = "first" if number == 0 else "last" if last else f"{number + 1}."
        notes = (f"Counted for the {which} stage, which holds {', '.join(regions)}.",)
    return Held(frozenset(regions), mine, notes)


def _stage_number(stage: object, count: Fraction | None) -> int:
    """The number of a stage, -1 for the last of an unknown number; raises ``StrategyError`` for one there is not."""
    said = str(0 if stage is None else stage).strip()
    named = {"first": 0, "last": -1 if count is None else int(count) - 1}
    number = named[said] if said in named else int(said) if said.isdecimal() and len(said) < 7 else None
    if number is None or (count is not None and number >= count):
        most = f", {int(count) - 1} the last" if count is not None else ""
        raise StrategyError(f"there is no stage {said[:20]}" + (f" of {count}" if count is not None else ""),
                            hint=f"0 is the first one{most}; or say first, last")  # fmt: skip
    return number
