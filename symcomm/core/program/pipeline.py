"""Pipeline parallelism as a cut of the repeated graph: the edges that cross a boundary are the messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from symcomm.core.derivation import Condition
from symcomm.core.errors import StrategyError, ValuesError, where_given
from symcomm.core.form import Form, Num, Ratio, Sym, Total, evaluate, names, negative, num, product
from symcomm.core.graph.gradient import differentiable
from symcomm.core.graph.graph import Graph, Region, Tensor
from symcomm.core.parallel.placement import check_cuts
from symcomm.core.parallel.strategy import PipelineCut, Strategy
from symcomm.core.program.orders import LOOP, Schedule
from symcomm.core.records import dataclass, replace


@dataclass(frozen=True)
class Message:
    """The message over one boundary: a tensor from stage i to i+1 in forward, its gradient back in backward."""

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
    needed = differentiable(graph) if graph.step is None else frozenset[str]()
    forward = [Message(name, "forward", why) for name, why in crossing]
    back = [
        Message(name, "backward", f"the gradient of `{name}` flows back to the stage that made it")
        for name, _ in reversed(crossing)
        if name in needed
    ]
    return (*forward, *back)


def stacked(graph: Graph) -> tuple[Region, ...]:
    """The regions that are cut into stages: those that are repeated, in order.

    Raises ``StrategyError`` where none is.
    """
    found = tuple(region for region in graph.regions if region.times)
    if not found:
        raise StrategyError("one layer cannot be cut into stages", hint="say 'repeat: N_layer'")
    return found


def layer_count(graph: Graph) -> Form:
    """The number of layers of all kinds together."""
    counts = tuple(Sym(region.times) for region in stacked(graph))
    return counts[0] if len(counts) == 1 else Total(counts)


def stage_count(cut: PipelineCut, graph: Graph) -> Form:
    """The number of stages: given, or the layers divided by the layers of a stage."""
    if cut.stages is not None:
        return cut.stages
    assert cut.layers_per_stage is not None
    return Ratio(layer_count(graph), cut.layers_per_stage)


def cut_into_stages(graph: Graph, strategy: Strategy) -> bool:
    """Whether a strategy has a pipeline of more than one stage."""
    return strategy.pipeline is not None and stage_count(strategy.pipeline, graph) != num(1)


def check_stages(graph: Graph, cut: PipelineCut, values: Mapping[str, Fraction]) -> None:
    """Raises ``StrategyError`` where layers and stages are known numbers and the stages do not divide the layers."""
    counted, stages = layer_count(graph), stage_count(cut, graph)
    if not {*names(counted)} <= values.keys():
        return
    layers = evaluate(counted, values)
    if cut.layers:
        if layers != sum(cut.layers):
            listed = " + ".join(map(str, cut.layers))
            said = " + ".join(names(counted))
            raise StrategyError(f"the stages have {listed} = {sum(cut.layers)} layers, but the model {layers}",
                                hint=f"{said} is {layers}")  # fmt: skip
        return
    if not {*names(stages)} <= values.keys():
        return
    count = evaluate(stages, values)
    if count.denominator != 1 or layers % count:
        fitting = [n for n in range(1, int(layers) + 1) if layers % n == 0]
        hint = f"{layers} layers make {', '.join(map(str, fitting[:-1]))} or {fitting[-1]} equal stages"
        if count.denominator == 1 and 1 < count <= min(int(layers), 16):  # the first ones have a layer more
            each = [str(layers // count + (n < layers % count)) for n in range(int(count))]
            hint += f"; of uneven ones say the layers: pipeline(layers={':'.join(each)})"
        raise StrategyError(f"{layers} layers are not divisible into {count} stages",
                            hint=hint if len(fitting) > 1 else "one layer makes one stage")  # fmt: skip


def check_divisible(
    graph: Graph, strategy: Strategy, values: Mapping[str, Fraction], only: Container[str] | None = None
) -> None:
    """Raises ``StrategyError`` where stages or mesh axes do not divide what they cut (``only`` these tensors)."""
    if strategy.pipeline is not None:
        check_stages(graph, strategy.pipeline, values)
    check_cuts(graph, strategy, values, only)


@dataclass(frozen=True)
class RankShare:
    """The share of a model that a rank holds: regions, and how many repetitions of each (all, by default).

    ``where`` are the conditions under which it does; ``begins`` says that the first layer of the model is there.
    """

    regions: frozenset[str]
    counts: tuple[tuple[str, Form], ...] = ()
    notes: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    begins: bool = True

    def times(self, region: Region) -> Form:
        """How often a region occurs on the rank."""
        return dict(self.counts).get(region.name, Sym(region.times)) if region.times else num(1)

    def weights(self, graph: Graph) -> Iterator[tuple[Region, list[Tensor]]]:
        """The weights of each region that the rank holds; one that two of them share is on it once."""
        known: set[str] = set()
        for region in graph.regions:
            if region.name in self.regions:
                mine = [w for w in graph.region(region.name).weights if w.name not in known]
                known |= {w.name for w in mine}
                yield region, mine


def kinds(graph: Graph, cut: PipelineCut | None, values: Mapping[str, Fraction] | None = None) -> dict[str, RankShare]:
    """The tensors on the stages of a pipeline. Stages that are alike are together: the only kind, or ``first``,
    ``middle`` and ``last``, or each one by its number, from 1.

    What stands before the layers is on the first stage, what stands behind them on the last one, and what stands
    between two kinds of layers with the layer before it. Of several kinds of layers all but the last kind are on the
    first stage, or the numbers of layers and stages have to be known, as where kinds alternate. Raises
    ``StrategyError`` where they are not.
    """
    every = [region.name for region in graph.regions] or [graph.name]
    if cut is None:
        return {"only": RankShare(frozenset(every))}
    layers, known = stacked(graph), graph.relations.complete(values or {})
    check_stages(graph, cut, known)
    stages = stage_count(cut, graph)
    if stages == num(1) and not cut.layers:
        return {"only": RankShare(frozenset(every))}
    numbers = [known.get(region.times) for region in layers]
    counts = [int(number) for number in numbers if number is not None]
    each = evaluate(layer_count(graph), known) / evaluate(stages, known) if (
        len(counts) == len(layers) and {*names(stages)} <= known.keys()) else None  # fmt: skip
    if cut.layers and (len(layers) == 1 or len(counts) == len(layers)):
        return _listed(graph, list(cut.layers), counts)
    early = layers[:-1]
    fits = not graph.order and (each is None or sum(counts[:-1]) <= each)
    if cut.layers or not fits:
        if each is not None and isinstance(stages, Num):
            return _listed(graph, [int(each)] * int(stages.number), counts)
        said = " and ".join([*(region.times for region in layers), *(["the stages"] if not cut.layers else [])])
        raise StrategyError(
            f"{' and '.join(r.name for r in layers)} {'alternate' if graph.order else 'follow one another'}, so the "
            "layers of a stage depend on how many there are", hint=f"give numbers for {said}, such as pipeline(4)",
        )  # fmt: skip
    share = cut.layers_per_stage or Ratio(layer_count(graph), stages)
    others = [Sym(region.times) for region in early]
    where: tuple[Condition, ...] = ()
    if others:
        condition = Condition(Total(tuple(others)) if len(others) > 1 else others[0], "<=", share)
        where = (condition,) if each is None else ()
    at, last = every.index(layers[0].name), layers[-1].name
    behind = every.index(last)
    middle = RankShare(frozenset([last]), ((last, share),), (), where)
    if every == [last]:
        return {"only": middle}
    mixed = Total((share, *map(negative, others))) if others else share
    first = (*((region.name, Sym(region.times)) for region in early), (last, mixed))
    found = {"first": RankShare(frozenset(every[: behind + 1]), first, (), where), "middle": middle,
             "last": RankShare(frozenset(every[behind:]), ((last, share),), (), where)}  # fmt: skip
    return found if at or behind + 1 < len(every) or others else {"only": middle}


def fullest(
    graph: Graph, cut: PipelineCut | None, values: Mapping[str, Fraction]
) -> list[tuple[str, str | None]]:  # fmt: skip
    """The kinds of stages that may hold the most, each with a stage of its kind; of one kind a name for none.

    Of the stages between, the second one has the most microbatches in flight; where the layers are of one kind, the
    first one holds no less.
    """
    found = kinds(graph, cut, values)
    if cut is None or len(graph.regions) < 2 or "only" in found:
        return [("", None)]
    if "first" not in found:
        return [(kind, str(int(kind) - 1)) for kind in found]
    alike = len(stacked(graph)) == 1
    return [("first", "first"), *([] if alike else [("middle", "1")]), ("last", "last")]


def _listed(graph: Graph, stages: list[int], counts: list[int]) -> dict[str, RankShare]:
    """What each stage holds of a chain of layers that is cut into stages of so many layers."""
    every, layers = [region.name for region in graph.regions], stacked(graph)
    counts = counts if len(counts) == len(layers) else [sum(stages)]
    ends = [sum(counts[: n + 1]) for n in range(len(counts))]
    in_order = Counter(graph.order) == {region.name: n for region, n in zip(layers, counts, strict=True)}
    found: dict[str, RankShare] = {}
    begin = 0
    for number, size in enumerate(stages, 1):
        end = begin + size
        mine: list[tuple[str, Form]] = []
        regions: list[str] = []
        seen = 0  # the layers before what stands once
        for name in every:
            at = next((n for n, region in enumerate(layers) if region.name == name), None)
            if at is None:
                here = begin < seen <= end if seen else begin == 0
            else:
                shared = min(end, ends[at]) - max(begin, ends[at] - counts[at])
                shared = graph.order[begin:end].count(name) if in_order else shared
                here, seen = shared > 0, ends[at]
                mine += [(name, num(shared))] if here else []
            regions += [name] if here else []
        found[str(number)] = RankShare(frozenset(regions), tuple(mine))
        begin = end
    return found


def held(
    graph: Graph, cut: PipelineCut | None, stage: object = None, values: Mapping[str, Fraction] | None = None,
    schedule: Schedule | None = None,
) -> RankShare:  # fmt: skip
    """The layers that a rank holds: everything, or its stage of a pipeline (0 is the first, where the embedding is).

    A ``schedule`` may place the first and the last stage on one rank. Raises ``StrategyError`` for a stage that there
    is not, and where what it holds is not known (see ``kinds``).
    """
    if cut is None:
        return kinds(graph, None)["only"]
    known = graph.relations.complete(values or {})
    if schedule is not None and chunks_differ(graph, cut, schedule):
        if schedule.chunks is None and not cut.layers:
            raise StrategyError(f"which kinds of layers a rank of {schedule.name} holds depends on its chunks",
                                hint="peak_memory and activation_memory take chunks: 2")  # fmt: skip
        rank = stage_number(stage, Fraction(whole(stage_count(cut, graph), known, "stages")))
        return joined(graph, held_in_chunks(graph, cut, rank, values or {}, schedule), rank)
    found = kinds(graph, cut, known)
    stages = stage_count(cut, graph)
    count = evaluate(stages, known) if {*names(stages)} <= known.keys() else None
    number = stage_number(stage, count)
    last = number == -1 or (count is not None and number == count - 1)
    if "only" in found:
        mine = found["only"]
    elif "first" not in found:
        mine = [*found.values()][number]
    else:
        first = number == 0
        if schedule is not None and schedule.chunks:
            first, last = schedule.ends(number, 4 if count is None else int(count))
        mine = found["first" if first else "last" if last else "middle"]
        if first and last:
            mine = replace(mine, regions=mine.regions | found["last"].regions)
    if count is None and number > 0:  # at fewer stages it is the last one, or there is none
        least = num(number + 2 if "first" in found else number + 1)
        mine = replace(mine, where=(*mine.where, Condition(stages, ">=", least)))
    every = [region.name for region in graph.regions]
    if len(every) > 1 and count != 1:
        which = "first" if number == 0 else "last" if last else f"{number + 1}."
        listed = ", ".join(name for name in every if name in mine.regions)
        mine = replace(mine, notes=(f"Counted for the {which} stage, which holds {listed}.",))
    return replace(mine, begins=number == 0)


def unlike(
    graph: Graph, cut: PipelineCut, values: Mapping[str, Fraction], schedule: Schedule | None = None,
    messages: bool = False,
) -> tuple[list[int], int]:  # fmt: skip
    """The stages that may have the most, and the last one of all; -1 where numbers have to say how many there are.

    Of each kind it is the first stage, which has most microbatches in flight; none is named where all are alike. Every
    rank is, under a ``schedule`` that runs back over the ranks, or gradients of weights apart. Of the ``messages``, the
    ends send one way, and those between both ways.
    """
    known, stages = graph.relations.complete(values), stage_count(cut, graph)
    found = kinds(graph, cut, known)
    ranks = schedule is not None and (schedule.placement != LOOP or "W" in schedule.kinds)
    alike = "only" in found and not ranks and not messages
    if alike or not {*names(stages)} <= known.keys():
        return [], 0 if alike else -1
    count = int(evaluate(stages, known))
    if ranks:
        return [*range(count)], count - 1
    each = [*found.values()]
    firsts = [n for n, one in enumerate(each) if one not in each[:n]] if "1" in found else []
    return sorted({*firsts, *({0, 1, count - 1} if messages or not firsts else ())} & {*range(count)}), count - 1


def whole(form: Form, values: Mapping[str, Fraction], what: str) -> int:
    """A number of stages, layers or microbatches; raises ``ValuesError`` where it is not known, or no whole number."""
    missing = [n for n in names(form) if n not in values]
    if missing:
        raise ValuesError(f"no value is given for {missing[0]}: the schedule of a pipeline is followed step by step",
                          hint=where_given(missing[0], "model."))  # fmt: skip
    found = evaluate(form, values)
    if found.denominator != 1 or found < 1:
        raise ValuesError(f"{what} = {found}: a whole number is needed")
    return int(found)


def chunks_differ(graph: Graph, cut: PipelineCut, schedule: Schedule) -> bool:
    """Whether a rank has several chunks of layers, which may be unlike one another."""
    return schedule.chunks != 1 and (bool(cut.layers) or len(stacked(graph)) > 1)


def held_in_chunks(
    graph: Graph, cut: PipelineCut, stage: object, values: Mapping[str, Fraction], schedule: Schedule,
    chunks: int | None = None,
) -> tuple[RankShare, ...]:  # fmt: skip
    """The layers in each of a rank's chunks, in the order in which a microbatch passes them.

    A chunk is a stage of the pipeline that all chunks make. Raises ``ValuesError`` where the number of stages is not
    known, ``StrategyError`` for layers that are given for each stage where a rank has several of them.
    """
    v, known = schedule.chunks or chunks or 1, graph.relations.complete(values)
    p = whole(stage_count(cut, graph), known, "stages")
    pieces = p * v / schedule.placement.copies(p, v)
    if cut.layers and (pieces != p or (schedule.chunks or chunks) is None):
        raise StrategyError(f"layers are given for each stage, and a rank of {schedule.name} has several",
                            hint="say how many stages")  # fmt: skip
    if v == 1:
        return (held(graph, cut, stage, values),)
    rank = stage_number(stage, Fraction(p))
    every = cut if cut.layers else replace(cut, stages=num(int(pieces)), layers_per_stage=None)
    places = sorted(schedule.placement.stage(rank, chunk, p) for chunk in range(v))
    return tuple(held(graph, every, place, values) for place in places)


def joined(graph: Graph, shares: Sequence[RankShare], rank: int) -> RankShare:
    """The layers of a rank in all of its chunks together."""
    regions = [region for region in graph.regions if any(region.name in share.regions for share in shares)]
    counts = [(region.name, added(share.times(region) for share in shares if region.name in share.regions))
              for region in regions if region.times]  # fmt: skip
    note = f"Counted for rank {rank}, which holds {', '.join(region.name for region in regions)}."
    where = tuple(dict.fromkeys(condition for share in shares for condition in share.where))
    return RankShare(frozenset(region.name for region in regions), tuple(counts), (note,), where, shares[0].begins)


def added(counts: Iterable[Form]) -> Form:
    """The sum of some numbers of layers: one number where they are numbers, a multiple of those that are alike.

    >>> added([num(2), num(3)]) == num(5), added([Sym("n"), Sym("n")]) == product(num(2), Sym("n"))
    (True, True)
    """
    often = Counter(counts)
    numbers = sum(form.number * count for form, count in often.items() if isinstance(form, Num))
    terms = [product(num(count), form) for form, count in often.items() if not isinstance(form, Num)]
    terms += [num(numbers)] if numbers or not terms else []
    return Total(tuple(terms)) if len(terms) > 1 else terms[0]


def messages_of(
    graph: Graph, cut: PipelineCut, stage: object, values: Mapping[str, Fraction]
) -> dict[str, tuple[int, int]]:
    """How many messages a stage sends and receives in each direction, for each microbatch."""
    known, stages = graph.relations.complete(values), stage_count(cut, graph)
    count = evaluate(stages, known) if {*names(stages)} <= known.keys() else None
    number = stage_number(stage, count)
    before, behind = int(number != 0), int(number != -1 and (count is None or number != count - 1))
    return {"forward": (behind, before), "backward": (before, behind)}


def stage_number(stage: object, count: Fraction | None) -> int:
    """The number of a stage, -1 for the last of an unknown number; raises ``StrategyError`` for one there is not."""
    said = str(0 if stage is None else stage).strip()
    named = {"first": 0, "last": -1 if count is None else int(count) - 1}
    number = named[said] if said in named else int(said) if said.isdecimal() and len(said) < 7 else None
    if number is None or (count is not None and number >= count):
        most = f", {int(count) - 1} the last" if count is not None else ""
        raise StrategyError(f"there is no stage {said[:20]}" + (f" of {count}" if count is not None else ""),
                            hint=f"0 is the first one{most}; or say first, last")  # fmt: skip
    return number
