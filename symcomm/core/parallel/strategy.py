"""Parallel strategies: each is one record of rules that say which axis is cut along which axis of the mesh.

No strategy has a communication formula. The rules place tensors; ``symcomm.core.parallel.placement`` derives from the
placements which collectives the ops then need.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache, partial, reduce
from inspect import Parameter, signature
from operator import or_
from typing import Any, Literal

from symcomm.core.errors import StrategyError, nearest
from symcomm.core.form import Form, Num, Sym, evaluate, names, num, product
from symcomm.core.graph import axis_roles
from symcomm.core.graph.graph import Graph
from symcomm.core.records import dataclass, replace

# Which tensors a rule may cut. A gradient of an activation is placed as the activation.
EVERYTHING = frozenset({"input", "activation", "weight", "gradient", "state"})
SHARDS = frozenset({"weight", "gradient", "state"})


@dataclass(frozen=True)
class Rule:
    """``axis -> mesh``: the first axis of a tensor that ``axis`` names is cut along the mesh axis.

    ``axis`` is a label of the table (``"L"``), or ``batch``, ``sequence``, ``heads``, ``paired``, ``experts``,
    ``tables``, ``vocabulary``, ``first axis`` (of images), which are found in the graph (``axis_roles``), or ``first``:
    whichever axis comes first, or ``whole``: none, so that gradients of weights rest whole on each rank, wherever a
    part would be cheaper.
    ``where`` limits the rule: ``across`` to ops with the positions of queries and of keys, ``lookups`` to ops on a
    table that is only looked up. Such an op follows those rules of a mesh axis that are limited to it; all other ops
    follow the other rules.
    """

    axis: str
    mesh: str
    on: frozenset[str] = EVERYTHING  # activations, weights, the gradients of weights, the states of the optimizer
    rests: bool = False  # the cut saves memory: what it cuts rests so between ops, wherever it would be cheaper
    where: Literal["", "across", "lookups"] = ""
    passes: bool = False  # keys and values go round the ranks in blocks, and are never gathered
    spares: bool = False  # rows of tables in which ids are looked up stay whole
    nodes: int = 0  # on which the experts of one token may lie; 0 is no limit


@dataclass(frozen=True)
class PipelineCut:
    """The repeated region is cut into stages; ``microbatches`` is the number a batch is split into.

    ``layers`` are those of each stage where they are not all as many.
    """

    stages: Form | None
    layers_per_stage: Form | None
    microbatches: Form
    layers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Strategy:
    """Rules, the mesh axes they need with their sizes, and one sentence why.

    ``precedence`` orders rules when strategies are composed: experts before tensor before context before Ulysses
    before sequence before data before the sharding of weights, so that each tensor takes the most specific rule first.
    Compose with ``|``.
    """

    name: str
    rules: tuple[tuple[int, Rule], ...]
    mesh: tuple[tuple[str, Form | None], ...]
    why: str
    pipeline: PipelineCut | None = None

    def __or__(self, other: Strategy) -> Strategy:
        sizes: dict[str, Form | None] = dict(self.mesh)
        for axis, size in other.mesh:
            known = sizes.get(axis)
            if known is not None and size is not None and known != size:
                raise StrategyError(f"the mesh axis '{axis}' has two sizes: {_said(known)} and {_said(size)}")
            sizes[axis] = size if size is not None else known
        if self.pipeline and other.pipeline:
            raise StrategyError("the graph is cut into pipeline stages twice")
        for _, rule in self.rules:
            if rule in (one for _, one in other.rules):
                what = f"the mesh axis '{rule.mesh}' cuts the same axes twice: {self.name} and {other.name} both do"
                raise StrategyError(what, hint="name each strategy once, such as tensor(4); zero-1(4) is data parallel")
        return Strategy(
            f"{self.name} + {other.name}",
            tuple(sorted((*self.rules, *other.rules), key=lambda pair: pair[0])),
            tuple(sizes.items()),
            f"{self.why} {other.why}",
            self.pipeline or other.pipeline,
        )

    __add__ = __or__

    @property
    def sizes(self) -> dict[str, Form]:
        """The size of each mesh axis."""
        for axis, size in self.mesh:
            if size is None:
                raise StrategyError(f"the mesh axis '{axis}' has no size", hint=f"combine with a strategy on '{axis}'")
        return {axis: size for axis, size in self.mesh if size is not None}

    @property
    def forms(self) -> tuple[Form, ...]:
        """The sizes of the mesh and of the pipeline: their symbols are in use, so no step may bear their names."""
        cut = self.pipeline
        staged = (cut.stages, cut.layers_per_stage, cut.microbatches) if cut is not None else ()
        return (*self.sizes.values(), *(form for form in staged if form is not None))

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols of these sizes."""
        return tuple(dict.fromkeys(name for form in self.forms for name in names(form)))

    @property
    def mesh_order(self) -> tuple[str, ...]:
        """The axes of the mesh, those of neighbouring ranks first: tensor, context, experts, sharding, data.

        An axis stands where the innermost of its rules does; of equal ones the first that is named is further in.

        >>> (Data(4) | Tensor(8)).mesh_order, HybridSharded(8, 4).mesh_order
        (('tensor', 'data'), ('shard', 'replicate'))
        """
        places = {mesh: [_INNER_FIRST.index(at) for at, r in self.rules if r.mesh == mesh] for mesh, _ in self.mesh}
        return tuple(sorted(places, key=lambda mesh: min(places[mesh], default=0)))

    def at(self, values: Mapping[str, Fraction]) -> Strategy:
        """The strategy on the mesh that it is at some numbers: an axis of one rank cuts nothing and sends nothing.

        >>> [axis for axis, _ in (Data("k") | Tensor(1)).at({"k": Fraction(8)}).mesh]
        ['data']
        """
        alone = {axis for axis, size in self.mesh if size is not None and _number(size, values) == 1}
        cut = self.pipeline
        if cut is not None and cut.stages is not None and _number(cut.stages, values) == 1:
            cut = replace(cut, stages=num(1))
        if not alone and cut == self.pipeline:
            return self
        rules = tuple((place, rule) for place, rule in self.rules if rule.mesh not in alone)
        mesh = tuple((axis, size) for axis, size in self.mesh if axis not in alone)
        return replace(self, rules=rules, mesh=mesh, pipeline=cut)

    def parts(self, values: Mapping[str, Fraction]) -> tuple[str, ...]:
        """The strategies that it is made of, each with the number of its ranks where it has one of its own.

        >>> (FullySharded("k") | Tensor(8) | Sequence()).parts({"k": Fraction(4)})
        ('Fully sharded: 4', 'Tensor: 8', 'Sequence')
        """
        parts = self.name.split(" + ")
        alone = self.mesh[0][0] if len(self.mesh) == len(parts) == 1 else ""
        sizes = {part: dict(self.mesh).get(_MESHES.get(part, alone)) for part in parts}
        sizes |= {"Pipeline": self.pipeline.stages} if self.pipeline is not None and "Pipeline" in parts else {}
        told = []
        for part, size in sizes.items():
            number = _number(size, values) if size is not None else None
            shown = number if number is not None else f"`{size.name}`" if isinstance(size, Sym) else size
            told.append(part if shown is None else f"{part}: {shown}")
        return tuple(told)

    def ranks(self, meshes: Iterable[str]) -> Form:
        """The number of ranks of a group over some axes of the mesh, those of one rank left out."""
        return product(*(self.sizes[axis] for axis in meshes))


# The axis of a mesh that a strategy of this name has to itself.
_MESHES = {"Data": "data", "ZeRO-1": "data", "ZeRO-2": "data", "Optimizer sharded": "data", "Fully sharded": "data",
           "Tensor": "tensor", "Context": "context", "Ring": "ring", "Ulysses": "ulysses",
           "Spatial": "spatial"}  # fmt: skip
OF_A_HEAD = "_of_a_head"  # ends the name of the mesh axis whose ranks share a key/value head


def _number(size: Form, values: Mapping[str, Fraction]) -> Fraction | None:
    return evaluate(size, values) if {*names(size)} <= values.keys() else None


def _said(size: Form) -> str:
    return size.name if isinstance(size, Sym) else str(size.number) if isinstance(size, Num) else str(size)


Size = int | str | Form


def degree(size: Size) -> Form:
    """The size of a mesh axis: a number or the name of a symbol."""
    if isinstance(size, Form):
        return size
    text = str(size).strip()
    if re.fullmatch(r"\d{1,12}", text):
        if int(text) < 1:
            raise StrategyError(f"a mesh axis of {text} ranks", hint="a degree is at least 1")
        return num(int(text))
    if isinstance(size, bool) or not re.fullmatch(r"[^\W\d]\w{0,39}", text):
        raise StrategyError(f"'{text[:60]}' is no size of a mesh axis", hint="a whole number or the name of a symbol")
    return Sym(text)


_EXPERT, _TENSOR, _CONTEXT, _HEADS, _SEQUENCE, _DATA, _SHARD = range(7)
# What sends more often lies between nearer ranks.
_INNER_FIRST = (_TENSOR, _SEQUENCE, _HEADS, _CONTEXT, _EXPERT, _SHARD, _DATA)


def Data(size: Size = "N_DP", mesh: str = "data") -> Strategy:  # noqa: N802  (a strategy reads like a type)
    """Data parallelism: the batch is cut, every rank has all weights.

    >>> Data("k").rules[0][1].axis
    'batch'
    """
    return Strategy(
        "Data", ((_DATA, Rule("batch", mesh)),), ((mesh, degree(size)),),
        "Each rank works on a part of the batch with all weights.",
    )  # fmt: skip


def Zero1(size: Size = "N_DP", mesh: str = "data", over: str = "") -> Strategy:  # noqa: N802
    """ZeRO stage 1: data parallelism with the optimizer states sharded.

    Source: Rajbhandari et al., arXiv 1910.02054, section 5.1.
    """
    return _shard("ZeRO-1", size, mesh, frozenset({"state"}), "optimizer states are", over)


def OptimizerSharded(size: Size = "N_DP", mesh: str = "data") -> Strategy:  # noqa: N802
    """Sharded optimizer states beside plain data parallelism: gradients are all-reduced, updated weights broadcast.

    Each rank updates a part of the weights and sends it to all, so a ring carries 3 times the weights, where ZeRO-1,
    which reduces a gradient only where it is used, carries 2.

    Source: the assignment that wraps an optimizer (CS336, assignment 2, optimizer_state_sharding).
    """
    made = _shard("Optimizer sharded", size, mesh, frozenset({"state"}), "gradients are whole, optimizer states are")
    return replace(made, rules=(*made.rules, (_SHARD, Rule("whole", mesh, frozenset({"gradient"})))))


def Zero2(size: Size = "N_DP", mesh: str = "data", over: str = "") -> Strategy:  # noqa: N802
    """ZeRO stage 2: optimizer states and gradients sharded.

    Source: Rajbhandari et al., arXiv 1910.02054, section 5.2.
    """
    return _shard("ZeRO-2", size, mesh, frozenset({"state", "gradient"}), "optimizer states and gradients are", over)


def FullySharded(size: Size = "N_DP", mesh: str = "data", over: str = "") -> Strategy:  # noqa: N802
    """Fully sharded data parallelism (ZeRO stage 3): weights, gradients and states sharded.

    ``over`` is another axis of the mesh that shards them, too, such as ``context``: one call gathers over both.

    >>> (FullySharded(8, over="context") | Context(4)).sizes["context"].number
    Fraction(4, 1)

    Source: Rajbhandari et al., arXiv 1910.02054, section 5.3; Zhao et al., arXiv 2304.11277.
    """
    return _shard("Fully sharded", size, mesh, SHARDS, "weights, gradients and optimizer states are", over)


def _shard(name: str, size: Size, mesh: str, on: frozenset[str], what: str, over: str = "") -> Strategy:
    if over == mesh:
        raise StrategyError(f"over={over} is sharded anyway", hint="another axis, such as over=context")
    also = f" and those of '{over}'" if over else ""
    return Strategy(
        name,
        ((_DATA, Rule("batch", mesh)), *((_SHARD, Rule("first", axis, on)) for axis in (mesh, over) if axis)),
        ((mesh, degree(size)), *([(over, None)] if over else [])),
        f"Each rank works on a part of the batch; {what} sharded over the same ranks{also}.",
    )


def HybridSharded(shard: Size = "N_shard", replicate: Size = "N_replicate") -> Strategy:  # noqa: N802
    """Hybrid sharding: fully sharded inside a group of ranks, replicated across groups.

    Source: Zhao et al., arXiv 2304.11277, section 3.2.2.
    """
    return Strategy(
        "Hybrid sharded",
        (
            (_DATA, Rule("batch", "replicate")),
            (_DATA, Rule("batch", "shard")),
            (_SHARD, Rule("first", "shard", SHARDS)),
        ),
        (("replicate", degree(replicate)), ("shard", degree(shard))),
        "Weights, gradients and states are sharded inside each group of ranks and replicated across the groups.",
    )


def Tensor(size: Size = "N_TP", mesh: str = "tensor", *, embedding: str = "cut") -> Strategy:  # noqa: N802
    """Tensor parallelism: the axes that one weight introduces and another sums away are cut.

    With a ``whole`` embedding each rank looks up all words and sends nothing; a table that is the head, too, is cut.

    >>> Tensor(8, embedding="whole").rules[0][1].spares
    True

    Source: Shoeybi et al., arXiv 1909.08053, section 3, where these are the hidden columns and the heads.
    """
    if embedding not in ("cut", "whole"):
        raise StrategyError(f"embedding is '{str(embedding)[:60]}'", hint="cut or whole: tensor(8, embedding=whole)")
    why = "Ranks cut axes that one weight introduces and a later one sums away, so nothing moves between the two."
    rule = Rule("paired", mesh, spares=embedding == "whole")
    return Strategy("Tensor", ((_TENSOR, rule),), ((mesh, degree(size)),),
                    f"{why} Each rank has the whole embedding." if rule.spares else why)  # fmt: skip


def Sequence(size: Size | None = None, mesh: str = "tensor") -> Strategy:  # noqa: N802
    """Sequence parallelism: where tensor parallelism cuts nothing, activations are cut along the sequence.

    Source: Korthikanti et al., arXiv 2205.05198, section 4.2.2.
    """
    on = frozenset({"input", "activation"})
    return Strategy(
        "Sequence", ((_SEQUENCE, Rule("sequence", mesh, on, rests=True)),),
        ((mesh, None if size is None else degree(size)),),
        "Activations that tensor parallelism leaves whole are cut along the sequence over the same ranks.",
    )  # fmt: skip


def Context(size: Size = "N_CP", mesh: str = "context") -> Strategy:  # noqa: N802
    """Context parallelism: all activations are cut along the sequence; keys and values are gathered."""
    on = frozenset({"input", "activation"})
    return Strategy(
        "Context", ((_CONTEXT, Rule("sequence", mesh, on)),), ((mesh, degree(size)),),
        "Activations are cut along the sequence; a query needs the keys and values of all positions.",
    )  # fmt: skip


def Ring(size: Size = "N_CP", mesh: str = "ring") -> Strategy:  # noqa: N802
    """Ring attention: context parallelism whose keys and values go round the ranks in blocks, not gathered.

    Each rank works on the block that it has while the next one arrives; the parts of a row are put together by its
    largest score and its sum. ``symcomm.core.program.rewrites.ring`` makes the gathers of a program into this.

    Source: Liu, Zaharia and Abbeel, arXiv 2310.01889, section 3.
    """
    on = frozenset({"input", "activation"})
    return Strategy(
        "Ring", ((_CONTEXT, Rule("sequence", mesh, on, passes=True)),), ((mesh, degree(size)),),
        "Activations are cut along the sequence; the keys and values of the other positions come by in blocks.",
    )  # fmt: skip


def Ulysses(size: Size = "N_SP", mesh: str = "ulysses") -> Strategy:  # noqa: N802
    """Ulysses sequence parallelism: activations are cut along the sequence, and attention along its heads.

    An all-to-all before attention brings all positions of a head together, one behind it takes them apart again.

    Source: Jacobs et al., arXiv 2309.14509, section 3.
    """
    on = frozenset({"input", "activation"})
    return Strategy(
        "Ulysses",
        ((_HEADS, Rule("heads", mesh, on, where="across")), (_HEADS, Rule("sequence", mesh, on))),
        ((mesh, degree(size)),),
        "Activations are cut along the sequence; attention is cut along its heads, so each head has all positions.",
    )


def Spatial(size: Size = "N_S", dim: int | str = 1, mesh: str = "") -> Strategy:  # noqa: N802
    """Spatial parallelism: images are cut along an axis of their positions; windows read the edges of neighbours.

    ``dim`` is 1 for the first axis behind batch and channels, 2 and 3 for the others.

    >>> (Spatial(2) | Spatial(4, dim=2)).mesh_order
    ('spatial', 'spatial_2')

    Source: Dryden et al., arXiv 1903.06681, section 3.
    """
    if str(dim).strip() not in ("1", "2", "3"):
        raise StrategyError(f"'{str(dim)[:40]}' is no axis of an image", hint="dim is 1, 2 or 3: spatial(4, dim=2)")
    at, on = int(dim), frozenset({"input", "activation"})
    mesh = mesh or ("spatial" if at == 1 else f"spatial_{at}")
    return Strategy(
        "Spatial", ((_CONTEXT, Rule(axis_roles.SPACES[at - 1], mesh, on)),), ((mesh, degree(size)),),
        "Images are cut along their positions; a window reads the edges of the parts beside its own.",
    )  # fmt: skip


def Expert(size: Size | None = None, mesh: str = "data", nodes: int | str = 0) -> Strategy:  # noqa: N802
    """Expert parallelism: the experts are spread over the ranks of a mesh axis, by default that of the data.

    The experts of a token are on at most so many ``nodes``, each of which gets the token once.

    >>> Expert(nodes=4).rules[0][1].nodes
    4

    Source: Lepikhin et al., arXiv 2006.16668, section 3; DeepSeek-AI, arXiv 2412.19437, section 2.1.2, for ``nodes``.
    """
    if isinstance(nodes, bool) or not re.fullmatch(r"\d{1,6}", str(nodes).strip()):
        raise StrategyError(f"'{str(nodes)[:40]}' is no number of nodes", hint="for instance expert(nodes=4)")
    name = f"Expert on {int(nodes)} node{'s' * (int(nodes) > 1)}" if int(nodes) else "Expert"
    return Strategy(
        name, ((_EXPERT, Rule("experts", mesh, nodes=int(nodes))),), ((mesh, None if size is None else degree(size)),),
        "Each rank holds some of the experts; tokens travel to their experts and back.",
    )  # fmt: skip


def Tables(size: Size | None = None, mesh: str = "data") -> Strategy:  # noqa: N802
    """Whole tables of embeddings on some of the ranks each; what they look up for a batch goes to its ranks and back.

    >>> (Data(8) | Tables()).sizes["data"].number
    Fraction(8, 1)

    Source: Naumov et al., arXiv 1906.00091, section 4 (DLRM).
    """
    rule = Rule("tables", mesh, where="lookups")
    return Strategy(
        "Tables", ((_EXPERT, rule),), ((mesh, None if size is None else degree(size)),),
        "Each rank holds some of the tables whole and looks up the ids of all ranks in them.",
    )  # fmt: skip


def Pipeline(  # noqa: N802
    stages: Size | None = None, *, layers_per_stage: Size | None = None, microbatches: Size = "m",
    layers: str | Iterable[int] | None = None,
) -> Strategy:  # fmt: skip
    """Pipeline parallelism: the stack of layers is cut into stages.

    ``layers`` are those of each stage (``"7:8:8:7"``), where stages are uneven. Raises ``StrategyError`` where the
    stages are given in two ways.

    >>> Pipeline(layers="7:8:8:7").pipeline.layers
    (7, 8, 8, 7)

    Source: Huang et al., arXiv 1811.06965 (GPipe).
    """
    if (stages is not None) + (layers_per_stage is not None) + (layers is not None) > 1:
        raise StrategyError("a pipeline is given by its stages, by its layers per stage or by its layers, not by two")
    each: tuple[int, ...] = ()
    if layers is not None:
        said = layers.split(":") if isinstance(layers, str) else [str(n) for n in layers]
        if not all(n.strip().isdecimal() and 0 < int(n) < 10**6 for n in said) or len(said) > 4096:
            raise StrategyError(f"'{str(layers)[:60]}' are no layers of stages", hint="for instance layers=7:8:8:7")
        each = tuple(int(n) for n in said)
        stages = len(each)
    elif stages is None and layers_per_stage is None:
        stages = "N_PP"
    return Strategy(
        "Pipeline", (), (), "Consecutive layers form stages; each stage sends its activations to the next.",
        PipelineCut(
            None if stages is None else degree(stages),
            None if layers_per_stage is None else degree(layers_per_stage),
            degree(microbatches),
            each,
        ),
    )  # fmt: skip


def Cut(axis: str, size: Size, mesh: str = "") -> Strategy:  # noqa: N802
    """A placement of one's own: the axis with this label in the table is cut over a mesh axis.

    >>> Cut("D", 8).rules[0][1].mesh
    'D'
    """
    mesh = mesh or axis
    return Strategy(f"Cut {axis}", ((_TENSOR, Rule(axis, mesh)),), ((mesh, degree(size)),), f"{axis} is cut.")


# One row a strategy: what a problem file or the command line calls it, and which record that is.
STRATEGIES: Mapping[str, Callable[..., Strategy]] = {
    "data": Data,
    "fully-sharded": FullySharded,
    "zero-1": Zero1,
    "optimizer-sharded": OptimizerSharded,
    "zero-2": Zero2,
    "zero-3": FullySharded,
    "hybrid-sharded": HybridSharded,
    "tensor": Tensor,
    "sequence": Sequence,
    "context": Context,
    "ring": Ring,
    "ulysses": Ulysses,
    "spatial": Spatial,
    "expert": Expert,
    "tables": Tables,
    "pipeline": Pipeline,
    "cut": Cut,
}
ALIASES = {"fsdp": "fully-sharded", "ddp": "data", "hsdp": "hybrid-sharded", "zero1": "zero-1", "zero2": "zero-2",
         "zero3": "zero-3", "experts": "expert", "fullysharded": "fully-sharded", "zero": "zero-3", "dp": "data",
         "tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert"}  # fmt: skip


def parse_strategy(said: str | Mapping[str, Any] | list[Any]) -> Strategy:
    """A strategy from text (``"data(k) + tensor(8)"``) or from YAML (``{pipeline: {layers_per_stage: 4}}``).

    Raises ``StrategyError`` for an unknown name or argument, with near names.

    >>> parse_strategy("tensor(8) + sequence").name
    'Tensor + Sequence'
    """
    return _parsed(said) if isinstance(said, str) else _read_strategy(said)


@lru_cache(maxsize=4096)
def _parsed(said: str) -> Strategy:
    return _read_strategy(said)


_COMMA = re.compile(r",(?![^\[]*\])")  # between arguments, not within a list
_WORDS = {"mesh": ("name of a mesh axis", "data"), "axis": ("axis of the table", "D")}


StrategyPart = tuple[str, dict[str, Any], Mapping[str, Parameter], Strategy]


def _read_strategy(said: str | Mapping[str, Any] | list[Any]) -> Strategy:
    return reduce(or_, (made for *_, made in strategy_parts(said)))


def strategy_parts(said: str | Mapping[str, Any] | list[Any]) -> list[StrategyPart]:
    """The parts of a strategy: each with its key, its arguments by name, all it may have, and what it is alone."""
    parts: list[tuple[str, list[tuple[str, Any]]]] = []  # names, and arguments with their names, if any
    if isinstance(said, str):
        if len(said) > 400:
            raise StrategyError(f"a strategy of {len(said)} characters: at most 400")
        for piece in re.split(r"[+|](?![^()]*\))", said):
            match = re.fullmatch(r"\s*([A-Za-z][\w -]*?)\s*(?:\(([^()]*)\))?\s*", piece)
            if match is None:
                raise StrategyError(f"'{piece.strip()[:60]}' is no strategy", hint="for instance data(k) + tensor(8)")
            written = [a.rpartition("=") for a in _COMMA.split(match[2])] if (match[2] or "").strip() else []
            parts.append((match[1], [(key.strip(), value.strip()) for key, _, value in written]))
    else:
        for item in said if isinstance(said, list) else [said]:
            for name, arguments in item.items() if isinstance(item, Mapping) else [(item, None)]:
                if isinstance(arguments, Mapping):
                    parts.append((str(name), [(str(key), value) for key, value in arguments.items()]))
                else:
                    parts.append((str(name), [] if arguments is None else [("", arguments)]))
    if not parts:
        raise StrategyError("no strategy is named", hint="known: " + ", ".join(STRATEGIES))
    return [_make(*part) for part in parts]


def _make(name: str, arguments: list[tuple[str, Any]]) -> StrategyPart:
    key = (
        name.strip().lower().replace("_", "-").replace(" ", "-").removesuffix("-parallelism").removesuffix("-parallel")
    )
    key = ALIASES.get(key, key)
    if key not in STRATEGIES:
        raise StrategyError(f"unknown strategy '{name[:60]}'", hint=nearest(name.strip().lower(), [*STRATEGIES]))
    known = signature(STRATEGIES[key]).parameters
    free = [argument.name for argument in known.values() if argument.kind is not argument.KEYWORD_ONLY]
    taken: dict[str, Any] = {}
    for place, (argument, value) in enumerate(arguments):
        if not argument and place >= len(free):
            raise StrategyError(f"'{str(value)[:60]}' in {key} has no name", hint=f"known: {', '.join(known)}")
        argument = argument or free[place]
        if argument not in known:
            raise StrategyError(f"{key} has no '{argument[:60]}'", hint=nearest(argument, [*known]))
        if argument in taken:
            raise StrategyError(f"{key} has '{argument}' twice", hint="give it once")
        if argument in _WORDS and not re.fullmatch(r"[^\W\d]\w{0,39}", str(value)):
            what, such = _WORDS[argument]
            raise StrategyError(f"'{str(value)[:60]}' is no {what}", hint=f"a word, such as {such}")
        taken[argument] = value
    missing = [name for name, argument in known.items() if argument.default is argument.empty and name not in taken]
    if missing:
        raise StrategyError(f"{key} has no {' and no '.join(missing)}", hint=f"such as {key}({', '.join(free[:2])})")
    return key, taken, known, STRATEGIES[key](**taken)


def with_copies(strategy: Strategy, graph: Graph, values: Mapping[str, Fraction]) -> Strategy:
    """The strategy where more ranks cut key/value heads than there are: those of a head share the queries of its group.

    The mesh axis becomes two, the ranks of one head being neighbours; all else is cut over both.
    """
    for place, rule in strategy.rules:
        size = strategy.sizes.get(rule.mesh)
        if rule.axis != "paired" or size is None or not {*names(size)} <= values.keys():
            continue
        ranks = evaluate(size, values)
        heads = axis_roles.copied_heads(graph, ranks, values)
        if heads is not None:
            shared = f"{rule.mesh}{OF_A_HEAD}"
            each = ((rule.mesh, num(int(heads))), (shared, num(int(ranks / heads))))
            mesh = tuple(new for one in strategy.mesh for new in (each if one[0] == rule.mesh else (one,)))
            at = strategy.rules.index((place, rule)) + 1
            rules = (*strategy.rules[:at], (place, replace(rule, axis="grouped", mesh=shared)), *strategy.rules[at:])
            return replace(strategy, mesh=mesh, rules=rules)
    return strategy


# -- which axes the rules mean in a graph ----------------------------------------------------------------

_SELECTORS: Mapping[str, Callable[[Graph], tuple[str, ...]]] = {
    "batch": axis_roles.batch_axes,
    "sequence": axis_roles.sequence_axes,
    "heads": axis_roles.head_axes,
    "experts": axis_roles.expert_axes,
    "tables": axis_roles.table_axes,
    "paired": axis_roles.paired_axes,
    "grouped": axis_roles.grouped_axes,
    "vocabulary": axis_roles.vocabulary_axes,
    **{space: partial(axis_roles.space_axes, dimension=n) for n, space in enumerate(axis_roles.SPACES)},
}


@dataclass(frozen=True)
class Placed:
    """A rule whose axes have been found in a graph; ``axes`` is None where any axis will do (``first``)."""

    rule: Rule
    axes: tuple[str, ...] | None


def resolve(strategy: Strategy, graph: Graph) -> tuple[Placed, ...]:
    """The rules of a strategy with the axes they mean in a graph."""
    beside = [rule for _, rule in strategy.rules if rule.axis != "batch" and rule.on != frozenset({"state"})]
    if beside and any(op.attribute("cast") for op in graph.ops):  # a library's own choice
        what = f"{strategy.name} under autocast is not derived: a copy may be made of a shard or of the whole"
        raise StrategyError(what, hint="data(k), zero-1(k), or one dtype")
    found: list[Placed] = []
    for _, rule in strategy.rules:
        if rule.axis == "first":
            found.append(Placed(rule, None))
        elif rule.axis == "whole":
            found.append(Placed(rule, ()))
        elif rule.rests and graph.step is not None and graph.step.behind:
            found.append(Placed(rule, ()))  # the new rows of a step are few
        elif rule.axis in _SELECTORS:
            found.append(Placed(rule, _SELECTORS[rule.axis](graph)))
        else:
            axes = tuple(a.name for a in graph.axes.values() if rule.axis in (a.label, a.name))
            if not axes:
                labels = list(dict.fromkeys(a.label for a in graph.axes.values()))
                raise StrategyError(f"{graph.name} has no axis {rule.axis}", hint=nearest(rule.axis, labels))
            found.append(Placed(rule, axes))
    for placed in found if (loops := axis_roles.loop_axes(graph)) else ():
        if loops & {*(placed.axes or ())}:
            what = f"{strategy.name} cuts the positions of a loop, each of which reads what the one before has made"
            raise StrategyError(what, hint="data(k) cuts the batch, tensor(k) the gates")
    # An axis of length 1, as of a condition beside a sequence, has no parts; a prompt is cut whatever its length is.
    prompt = graph.step.stream if graph.step is not None and graph.step.phase == "prefill" else ()
    parted = {name for name, axis in graph.axes.items() if axis.size != 1 or name in prompt}
    return tuple([replace(p, axes=p.axes and tuple([a for a in p.axes if a in parted])) for p in found])
