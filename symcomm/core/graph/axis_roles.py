"""The role of each axis of a model, read from what the ops do with it: batch, sequence, experts, vocabulary, pairs.

A feature is summed by a weight. A sequence is used under two names (the positions of queries and of keys), worked
along by attention or by a router, or has a table of weights of its own. The batch is mixed by nothing and is in every
input. Where that leaves two axes alike, what their symbols mean decides (``Axis.role``); where nobody said, it is
asked for, and only when a rule names the axis. Nothing depends on the order of a tensor's axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType

from symcomm.core.errors import StrategyError
from symcomm.core.form import evaluate, from_expr, names
from symcomm.core.graph.graph import SOFTMAXES, Axis, Graph, Op, Tensor, bare
from symcomm.core.graph.ops import MAP
from symcomm.core.records import dataclass


def data_tensor(graph: Graph) -> Tensor:
    """The tensor the model reads first: token ids or activations from outside."""
    for op in graph.ops:
        for name in op.inputs:
            tensor = graph.tensors[name]
            if tensor.role in ("input", "constant") and tensor.name not in graph.producers and not tensor.virtual:
                return tensor
    raise StrategyError(f"{graph.name} reads no input")


def whole_indices(op: Op) -> tuple[int, ...]:
    """The loop indices an op needs whole: the axis a map works along, the positions of a convolution."""
    along, whole = op.attribute("along", ()), op.attribute("whole", ())
    assert isinstance(along, tuple)
    assert isinstance(whole, tuple)
    return (*along, *whole)


# -- batch and sequence -----------------------------------------------------------------------------------


@dataclass
class _Uses:
    """How ops use axes, each with the first op that does so."""

    features: dict[str, Op] = field(default_factory=dict)  # axes of weights
    positions: dict[str, Op] = field(default_factory=dict)  # of a sequence
    summed: dict[str, Op] = field(default_factory=dict)  # added up between two tensors neither of which is a weight
    mixed: dict[str, Op] = field(default_factory=dict)  # all of these, and more: examples are not independent there
    # A table is shared by all examples, or an input lacks the axis: a declared meaning overrules that.
    hinted: set[str] = field(default_factory=set)

    def read(self, graph: Graph, op: Op) -> None:
        """Adds what one op does."""
        axes = graph.index_axes(op)
        weights = [graph.tensors[name].role == "weight" for name in op.inputs]
        seen: dict[str, int] = {}
        for name, indices in (*zip(op.inputs, op.indices, strict=True), (op.output, op.output_indices)):
            if graph.tensors[name].role != "weight":
                for axis, index in zip(graph.tensors[name].axes, indices, strict=True):
                    if seen.setdefault(axis, index) != index:
                        self.positions.setdefault(axis, op)
        for index in whole_indices(op) if not getattr(MAP.get(op.kind), "examples", False) else ():
            kind = self.features if op.kind in MAP and not MAP[op.kind].carries else self.positions
            kind = self.mixed if op.kind in (*SOFTMAXES, "convolution", "halo") else kind
            kind.setdefault(axes[index], op)
        for j, indices in enumerate(op.indices):
            shared = {i for k, ix in enumerate(op.indices) if k != j and not weights[k] for i in ix} & {*indices}
            away = shared & {*op.summed}
            if weights[j]:
                # A matrix or a gain has features; a table that is added to activations has positions as well.
                kind = self.features if {*indices} & {*op.summed} or len(indices) == 1 else self.positions
                for index in shared:
                    kind.setdefault(axes[index], op)
            elif not op.attribute("lookup"):
                for index in away:
                    self.summed.setdefault(axes[index], op)


@lru_cache(maxsize=64)
def _uses(graph: Graph) -> _Uses:
    found = _Uses()
    for op in graph.ops:
        if op.phase == "forward":
            found.read(graph, op)
    # A softmax along an axis that is then summed with values is attention: these are the keys' positions.
    for axis in found.mixed.keys() & found.summed.keys():
        found.positions.setdefault(axis, found.mixed[axis])
    for axis, op in (*found.positions.items(), *found.summed.items()):
        found.mixed.setdefault(axis, op)
    candidates = {*data_tensor(graph).axes} - {*found.features}
    for op in graph.ops:
        for name in op.inputs:
            tensor, has = graph.tensors[name], candidates & {*graph.tensors[name].axes}
            if name in graph.producers or not has or has == candidates:
                continue
            if tensor.role == "constant" and len(op.inputs) > 1:
                found.hinted |= has
            elif tensor.role == "input":
                found.hinted |= candidates - has
    return found


def _chosen(graph: Graph, role: str, found: list[str]) -> tuple[str, ...]:
    """The one axis of a role; raises ``StrategyError`` where several read equally well."""
    if len(found) > 1:
        first, second = (graph.axes[a].label for a in found[:2])
        other = "sequence" if role == "batch" else "batch"
        either = " or ".join(dict.fromkeys(graph.axes[a].label for a in found))
        raise StrategyError(
            f"{graph.name} can be read in two ways: the {role} is {either}, and no op tells them apart",
            hint=f"say which: axes: {{{first}: {role}, {second}: {other}}} or the other way round",
        )
    return tuple(found)


def batch_axes(graph: Graph) -> tuple[str, ...]:
    """The axis along which examples are independent: no op mixes its positions and no weight has it.

    Raises ``StrategyError`` where there is none, where two read equally well, or where the axis that is said to be the
    batch is mixed.
    """
    graph = graph.model
    data, uses = data_tensor(graph), _uses(graph)
    open_axes = [a for a in data.axes if a not in uses.features]
    said = [a for a in open_axes if graph.axes[a].role == "batch"]
    for axis in said:
        if axis in uses.mixed:
            label, mixing = graph.axes[axis].label, bare(uses.mixed[axis].output).split("·")[0]
            raise StrategyError(
                f"{label} is given as the batch of {graph.name}, but {mixing} mixes its positions",
                hint=f"say what it is: axes: {{{label}: sequence}}",
            )
    free = said or [a for a in open_axes if a not in uses.mixed and graph.axes[a].role != "sequence"]
    found = [a for a in free if a not in uses.hinted] if len(free) > 1 else free
    if free:
        return _chosen(graph, "batch", found or free)
    sequence = [graph.axes[a].label for a in open_axes if a not in uses.mixed]
    raise StrategyError(
        f"{graph.name} has no batch axis to cut: its examples are not independent along any axis of "
        + bare(data.name)
        + (f", {sequence[0]} being its sequence" if sequence else ""),
        hint="say 'batch: B' where the table leaves the batch out"
        + (f", or axes: {{{sequence[0]}: batch}}" if sequence else ""),
    )


def sequence_axes(graph: Graph) -> tuple[str, ...]:
    """The positions: an axis of the input that is neither a feature nor the batch.

    Of a model with several streams, such as an encoder and a decoder, those of each that attends to itself. Keys that
    come from outside have them under a second name, where they are as many as the queries.
    Raises ``StrategyError`` where there is none, or where two read equally well.
    """
    if graph.step is not None and graph.step.behind:
        # Of a step behind earlier ones what is long: keys are cut, new rows are few.
        return tuple(a for a in graph.step.behind if a not in graph.step.rolling)
    graph = graph.model
    data, uses = data_tensor(graph), _uses(graph)
    roles = {a: graph.axes[a].role for a in data.axes if a not in uses.features}
    rest = [a for a in roles if roles[a] != "batch"]
    free = [a for a in rest if a not in uses.mixed]
    readings = (
        [a for a in rest if roles[a] == "sequence"],
        [a for a in rest if a in uses.positions],
        [a for a in free if a in uses.hinted],
        [a for a in rest if a in uses.summed],
        free if "batch" in roles.values() or len(free) > 1 else [],
    )
    found = next(filter(None, readings), [])
    if found:
        chosen, streams = _chosen(graph, "sequence", found), [q for q, k in graph.attention_pairs if q == k]
        more = {*streams} if {*chosen} & {*streams} else {k for q, k in graph.attention_pairs if q in chosen}
        return (*chosen, *sorted(more - {*chosen} - {*uses.features}))
    raise StrategyError(
        f"{graph.name} has no sequence axis to cut: the axes of {bare(data.name)} are its batch and its features",
        hint=f"the positions are an axis of {bare(data.name)} of their own; say which: axes: {{L: sequence}}",
    )


@lru_cache(maxsize=256)
def meanings(graph: Graph) -> dict[str, str]:
    """The meanings of symbols, as far as what the ops do with an axis tells it.

    >>> from symcomm.exams.problems.load import load
    >>> table = "Computation\\tInput\\tOutput\\ny = x W\\tx [n, c], W [c, C]\\ty [n, C]\\n"
    >>> meanings(load(table).graph)
    {'n': 'batch size'}
    """
    found = {region.times: "number of layers" for region in graph.regions if region.times}
    for axes, meaning in (
        (batch_axes, "batch size"), (sequence_axes, "sequence length"), (expert_axes, "number of experts"),
        (vocabulary_axes, "vocabulary size"),
    ):  # fmt: skip
        with suppress(StrategyError):
            found |= {str(graph.axes[a].size): meaning for a in axes(graph) if graph.axes[a].size.is_Symbol}
    return found


def head_axes(graph: Graph) -> tuple[str, ...]:
    """The heads of attention: the axes of its scores other than the positions and the batch.

    Raises ``StrategyError`` where nothing attends, or where attention has one head.
    """
    batch, graph = batch_axes(graph), graph.model
    found: dict[str, None] = {}
    for tensor in graph.tensors.values():
        if (pair := graph.pair(tensor.name)) is not None:
            others = [a for n, a in enumerate(tensor.axes) if n not in pair and a not in batch]
            found |= dict.fromkeys(a for a in others if not _is_one(graph.axes[a], {}))
    if not found:
        missing = "heads" if graph.attention_pairs else "self-attention"
        raise StrategyError(f"{graph.name} has no {missing} to cut", hint="context(k) cuts positions and gathers keys")
    return tuple(found)


# -- space ----

SPACES = ("first axis", "second axis", "third axis")  # the axes of an image behind its batch and its channels


def slides(op: Op) -> bool:
    """Whether an op slides windows over the positions of an image, or widens a part of one for that."""
    return op.kind == "halo" or (op.kind == "convolution" and op.attribute("reach") is None)


def space_axes(graph: Graph, dimension: int) -> tuple[str, ...]:
    """The positions of images along one of their axes, of each the outermost where pooling cuts it into windows.

    Raises ``StrategyError`` where no convolution has so many axes.
    """
    found: dict[str, None] = {}
    for op in graph.model.ops:
        for name in (op.inputs[0], op.output) if slides(op) and op.phase == "forward" else ():
            found |= dict.fromkeys(axes[0] for axes in graph.tensors[name].own_axes[2 + dimension : 3 + dimension])
    if not found:
        hint = "conv(X, W) slides over images: batch × channels × positions"
        raise StrategyError(f"{graph.name} has no {SPACES[dimension]} of an image to cut", hint=hint)
    return tuple(found)


# -- experts, vocabulary, pairs ---------------------------------------------------------------------------


def expert_axes(graph: Graph) -> tuple[str, ...]:
    """The experts: an axis that a weight shares with the operand it multiplies and with the result."""
    graph = graph.model
    found: dict[str, None] = {}
    for op in graph.ops:
        if op.kind != "contraction" or op.phase != "forward" or op.attribute("slice"):
            continue
        for j, name in enumerate(op.inputs):
            if graph.tensors[name].role != "weight" or not set(op.indices[j]) & set(op.summed):
                continue
            others = {i for k, ix in enumerate(op.indices) if k != j for i in ix}
            for index, axis in zip(op.indices[j], graph.tensors[name].axes, strict=True):
                if index in others and index in op.output_indices:
                    found.setdefault(axis)
    if not found:
        raise StrategyError(f"{graph.name} has no experts to spread", hint="experts are weights with an index: W_e")
    return tuple(found)


def loop_axes(graph: Graph) -> frozenset[str]:
    """The positions of loops whose steps read what the one before has made.

    >>> from symcomm.core.readers.blueprint import PartTable
    >>> row = "h = GRU(x, W, U)\\tx [B, L, D], W [D, 3 H], U [H, 3 H]\\th [B, L, H]\\n"
    >>> sorted(loop_axes(PartTable("a", row).graph()))
    ['L']
    """
    ops = [op for op in graph.model.ops if op.attribute("view") and op.attribute("whole")]
    return frozenset(graph.model.index_axes(op)[i] for op in ops for i in whole_indices(op))


def table_axes(graph: Graph) -> tuple[str, ...]:
    """The tables of embeddings: an axis that the ids have, too, and what is looked up.

    Raises ``StrategyError`` where there is none.
    """
    found: dict[str, None] = {}
    for op in graph.model.ops:
        table = graph.tensors[op.inputs[-1]]
        if op.attribute("lookup") and op.phase == "forward" and table.role == "weight":
            common = {*op.indices[0]} & {*op.output_indices}
            found |= {axis: None for i, axis in zip(op.indices[-1], table.axes, strict=True) if i in common}
    if not found:
        hint = r"tables of one size are a family: e_n = EmbeddingBag(t_n, W_n), n = 1, \dots, T, such as the largest"
        raise StrategyError(f"{graph.name} has no family of tables to spread", hint=hint)
    return tuple(found)


def find_vocabulary(graph: Graph) -> tuple[str, ...]:
    """The vocabulary, where there is one: what a loss collapses or logits leave the model with, and the classes of ids.

    The table of an embedding and the matrix of a head are two weights with an axis each; one size says that their
    classes are the same tokens. Positions are looked up too, but no weight makes an axis of them.
    """
    graph = graph.model
    ends = _classes_made(graph)
    return tuple(dict.fromkeys([*ends, *(axis for axis in _looked_up(graph) if _as_many(graph, axis, ends))]))


def vocabulary_axes(graph: Graph) -> tuple[str, ...]:
    """The vocabulary; raises ``StrategyError`` where there is none."""
    found = find_vocabulary(graph)
    if not found:
        raise StrategyError(
            f"{graph.name} has no vocabulary to cut",
            hint="it is what a loss, CrossEntropy, sums over, or logits of as many words as ids choose from",
        )
    return found


def _collapses(op: Op) -> bool:
    return op.kind in MAP and MAP[op.kind].collapses


def _looked_up(graph: Graph) -> list[str]:
    """The axes of classes that ids choose from."""
    return [graph.tensors[op.output].axes[-1] for op in graph.ops if op.kind == "onehot"]


def _as_many(graph: Graph, axis: str, others: Iterable[str]) -> bool:
    return any(graph.same_size(graph.axes[axis].size, graph.axes[other].size) for other in others)


def _classes_made(graph: Graph) -> list[str]:
    """The classes that a model decides between: what a loss collapses, or logits that leave the model as many as ids.

    A loss need not be counted for that: what a weight introduces and nothing takes away are logits, if ids choose from
    as many classes.
    """
    forward = [op for op in graph.ops if op.phase == "forward"]
    found = dict.fromkeys(graph.index_axes(op)[i] for op in forward if _collapses(op) for i in whole_indices(op))
    looked = _looked_up(graph)
    away = {graph.index_axes(op)[i] for op in forward if not op.attribute("lookup") for i in op.summed}
    for _, axis in _introduced(graph) if looked else ():
        if axis not in away and _as_many(graph, axis, looked):
            found.setdefault(axis)
    return list(found)


def _introduced(graph: Graph) -> Iterator[tuple[str, str]]:
    """The weights of products, each with an axis that it gives to the result and no other operand has."""
    for op in graph.ops:
        if op.phase != "forward" or op.kind not in ("contraction", "convolution") or op.attribute("lookup"):
            continue
        for j, name in enumerate(op.inputs):
            others = {i for k, ix in enumerate(op.indices) if k != j for i in ix} | {*whole_indices(op)}
            if graph.tensors[name].role == "weight":
                for index, axis in zip(op.indices[j], graph.tensors[name].axes, strict=True):
                    if index in op.output_indices and index not in others:
                        yield name, axis


def _is_one(axis: Axis, values: Mapping[str, Fraction]) -> bool:
    size = from_expr(axis.size)
    return {*names(size)} <= values.keys() and evaluate(size, values) == 1


def paired_axes(graph: Graph, values: Mapping[str, Fraction] = MappingProxyType({})) -> tuple[str, ...]:
    """The axes that one weight introduces and another weight, or a reduction, takes away; each weight used for one.

    Taken in the order of the graph, so that weights pair up two by two: the projections to heads with the one that
    sums the heads, the first matrix of a feed-forward block with the second, the head with the loss that collapses the
    vocabulary or the ids that choose from it (and with both the embedding's table). Never an axis that a map works
    along, that comes in, that a loop carries, or of size 1 (under ``values``): multi-query attention has one key head,
    and cuts the queries' heads.
    """
    graph = graph.model
    introduces: dict[str, list[str]] = {}
    takes: dict[str, list[str]] = {}
    having: dict[str, list[str]] = {}
    for name, axis in _introduced(graph):
        introduces.setdefault(name, []).append(axis)
    for op in graph.ops:
        if op.phase != "forward" or op.kind not in ("contraction", "convolution") or op.attribute("lookup"):
            continue
        for j, name in enumerate(op.inputs):
            if graph.tensors[name].role != "weight":
                continue
            others = {i for k, ix in enumerate(op.indices) if k != j for i in ix} - {*whole_indices(op)}
            for index, axis in zip(op.indices[j], graph.tensors[name].axes, strict=True):
                if index in others and index not in op.output_indices:
                    takes.setdefault(axis, []).append(name)
            having |= {axis: [*having.get(axis, ()), name] for axis in graph.tensors[name].axes}
    ends = _classes_made(graph)
    carried = [graph.tensors[name] for pair in graph.carried for name in pair]
    blocked = {a for t in (*graph.inputs, *carried) if not t.of for a in t.axes}  # a state comes in from its own step
    blocked |= {graph.index_axes(op)[i] for op in graph.ops if not _collapses(op) for i in whole_indices(op)}
    blocked |= {a.name for a in graph.axes.values() if _is_one(a, values)}
    taken: set[str] = set()
    found: dict[str, None] = {}
    # Logits have no other partner than the head, so these two pair up first.
    for name in sorted(introduces, key=lambda name: not {*introduces[name]} & {*ends}):
        for axis in introduces[name]:
            partner = axis in ends or any(w != name and w not in taken for w in takes.get(axis, ()))
            if name not in taken and axis not in blocked and partner:
                found[axis] = None
                taken.update(having[axis])
    if found.keys() & {*ends}:
        found |= dict.fromkeys(vocabulary_axes(graph))
    if not found:
        raise StrategyError(
            f"{graph.name} has no pair of weights for tensor parallelism",
            hint="one weight must introduce an axis that a later weight sums away; or cut an axis by name: cut(D, 8)",
        )
    return tuple(found)


def grouped_axes(graph: Graph) -> tuple[str, ...]:
    """The pairs, but instead of key/value heads the query heads of the group that shares one.

    Of more ranks than there are key/value heads, those of a group share its queries, and each has a copy of the head.
    Raises ``StrategyError`` where no queries share a head.
    """
    graph = graph.model
    for axis in paired_axes(graph):
        size = graph.axes[axis].size
        others = paired_axes(graph, {str(size): Fraction(1)}) if size.is_Symbol else ()
        if any(size in graph.axes[other].size.free_symbols and other != axis for other in others):
            return others
    raise StrategyError(f"{graph.name} has no key/value heads that several queries share")


def copied_heads(graph: Graph, ranks: Fraction, values: Mapping[str, Fraction]) -> Fraction | None:
    """The number of key/value heads, where they are fewer than the ranks that cut them and divide these; else None."""
    with suppress(StrategyError):
        groups = {*grouped_axes(graph)}
        for axis in paired_axes(graph):
            size = from_expr(graph.axes[axis].size)
            if axis not in groups and {*names(size)} <= values.keys():
                heads = evaluate(size, values)
                return heads if heads < ranks and ranks % heads == 0 else None
    return None
