r"""Data or weight: what each tensor that no row computes is, read from the contractions.

The data are followed from where they come in. A tensor at which a product sums an axis of the data is a weight, unless
the product keeps an axis of the data that both have (a batch, as queries and keys do). One that is added to data, or
multiplied with it point by point, is a weight if it lacks an axis of the data (a bias, a gain, a table of positions).
What is computed from tensors from outside alone, :math:`W_0 + BA`, passes on what it turns out to be. Names settle a
doubt but never speak against a contraction; where two readings remain, an error names both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Literal

from symcomm.core.errors import ShapeError
from symcomm.core.graph.graph import Graph, Op, Role, Tensor
from symcomm.core.graph.ops import MAP
from symcomm.core.notation import split_name
from symcomm.core.records import dataclass, replace

Reading = Literal["data", "weight"]
_WEIGHTS = frozenset({"W", "w", "b", "bias", "weight", "gamma", "beta", "γ", "β"})
_DATA = frozenset({"x", "X", "h"})
_TRIED = 64  # tensors that are tried as the data: those that a table reads first


def with_roles(
    graph: Graph, *, inputs: Iterable[str], weights: Iterable[str], families: Iterable[str] = ()
) -> Graph:  # fmt: skip
    """The graph with a role for each tensor that no row computes; those that are constants already keep theirs.

    ``inputs`` and ``weights`` are what the author says of tensors by name; ``families`` are axes that an index stands
    for, which are no axes of the data. Raises ``ShapeError`` naming both readings where two remain.
    """
    told: dict[str, Reading] = {**dict.fromkeys(inputs, "data"), **dict.fromkeys(weights, "weight")}
    # Q names the family Q_i, unless there is a tensor Q besides.
    said = {n: told[b] for n in graph.tensors if (b := n.rpartition("_")[0]) in told and b not in graph.tensors}
    said |= {n: told[n] for n in graph.tensors if n in told}
    found = _Follower(graph, said, frozenset(families)).run()
    roles: dict[str, Role] = {name: "input" if read == "data" else "weight" for name, read in found.items()}
    tensors = {n: replace(t, role=roles[n]) if n in roles else t for n, t in graph.tensors.items()}
    return replace(graph, tensors=tensors)


def is_outside(tensor: Tensor, graph: Graph) -> bool:
    """Whether a tensor comes from outside and is not a constant: data or a weight."""
    return tensor.name not in graph.producers and tensor.role != "constant"


def _named(tensor: str, names: frozenset[str]) -> bool:
    return split_name(tensor)[0].rstrip("0123456789") in names  # W1 as W_1


@dataclass
class _Follower:
    """Follows the data through the ops, round by round, until every tensor has been read."""

    graph: Graph
    said: Mapping[str, Reading]
    families: frozenset[str]
    read: dict[str, Reading] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    data_axes: set[str] = field(default_factory=set)
    matrices: set[str] = field(default_factory=set)  # weights at which a product sums

    def run(self) -> dict[str, Reading]:
        """The role of every tensor from outside."""
        graph = self.graph
        outside = [n for op in graph.ops for n in op.inputs if is_outside(graph.tensors[n], graph)]
        outside = list(dict.fromkeys(outside))
        for name in outside:
            if name in self.said:
                self.tell(name, self.said[name])
        for name in (n for op in graph.ops for n in op.inputs):
            tensor = graph.tensors[name]
            if self.given_ids(tensor):
                self.data_axes |= self.counted(tensor.axes)
        if self.data_axes:
            self.follow()  # a name does not speak against what follows from what is said
        for letter in ("x", "X"):
            for name in outside:
                if name not in self.read and _named(name, frozenset({letter})):
                    self.tell(name, "data")
            if self.data_axes:
                self.follow()
        while left := [n for n in outside if n not in self.read]:
            if doubtful := [n for n in left if n in self.doubts]:
                self.ask(doubtful[0])
            self.seed(left)
        return self.read

    def given_ids(self, tensor: Tensor) -> bool:
        """Whether these are token ids or labels: constants that a table declares as whole numbers."""
        graph = self.graph
        readers = graph.consumers.get(tensor.name, ())
        return tensor.name not in graph.producers and bool(readers) and all(op.kind == "onehot" for op in readers)

    def counted(self, axes: Iterable[str]) -> set[str]:
        return {a for a in axes if a not in self.families and self.graph.axes[a].size != 1}

    def tell(self, name: str, reading: Reading) -> None:
        self.read[name] = reading
        self.doubts.pop(name, None)
        if reading == "data":
            self.data_axes |= self.counted(self.graph.tensors[name].axes)

    # -- where the data come in, if nobody said so ---------------------------------------------------------

    def seed(self, left: list[str]) -> None:
        """Reads what is left from the tensor that is best taken for data; asks where two do equally well."""
        candidates = [n for n in left if not _named(n, _WEIGHTS)][:_TRIED] or left[:1]
        tried: list[tuple[tuple[int, int], str, _Follower]] = []
        for name in candidates:
            one = replace(self, read=dict(self.read), doubts={}, data_axes=set(self.data_axes), matrices=set())
            one.tell(name, "data")
            one.follow()
            tried.append((one.strangeness(left), name, one))
        least = min(cost for cost, _, _ in tried)
        best = [(name, one) for cost, name, one in tried if cost == least]
        first, chosen = best[0]
        for other, one in best[1:]:
            if any(one.read.get(n, r) != r for n, r in chosen.read.items()):
                self.refuse(first, other)
        self.read, self.doubts, self.data_axes = chosen.read, chosen.doubts, chosen.data_axes

    def strangeness(self, left: list[str]) -> tuple[int, int]:
        """How much in a reading is unusual: names, doubts, and matrices with an axis of the batch or the sequence.

        Between readings that are equal in this, capital letters are for matrices rather than for data.
        """
        strange = 0
        capitals = [n for n in left if self.read.get(n) == "data" and n[0].isupper() and not _named(n, _DATA)]
        for name in left:
            reading = self.read.get(name)
            axes = [self.graph.axes[a] for a in self.graph.tensors[name].axes]
            strange += reading is not None and _named(name, _DATA if reading == "weight" else _WEIGHTS)
            strange += reading == "weight" and name in self.matrices and any(a.role for a in axes)
        return strange + len(self.doubts), len(capitals)

    def refuse(self, first: str, second: str) -> None:
        raise ShapeError(
            f"{self.graph.name} can be read in two ways: {first} is the data and {second} a weight, or the other way "
            "round",
            self.graph.tensors[first].source,
            f"say which: inputs: [{first}] or inputs: [{second}]",
        )

    def ask(self, name: str) -> None:
        raise ShapeError(
            f"{name} can be read in two ways, as data or as a weight: {self.doubts[name]}",
            self.graph.tensors[name].source,
            f"say which: inputs: [{name}] or weights: [{name}]",
        )

    # -- following -----------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Reads tensors until a round over all ops finds nothing new."""
        before = -1
        while len(self.read) != before:
            before = len(self.read)
            kinds: dict[str, str] = {}  # what each tensor is made of: data, weight, unknown, or nothing of these
            for op in self.graph.ops:
                for name in op.inputs:
                    if name not in self.graph.producers:
                        kinds[name] = self.kind_of(name)
                told = [kinds[name] for name in op.inputs]
                if "data" in told and "unknown" in told:
                    self.judge(op, told)
                    kinds |= {n: self.kind_of(n) for n in op.inputs if n not in self.graph.producers}
                    told = [kinds[name] for name in op.inputs]
                kinds[op.output] = next((k for k in ("data", "unknown", "weight") if k in told), "constant")

    def kind_of(self, name: str) -> str:
        tensor = self.graph.tensors[name]
        if is_outside(tensor, self.graph):
            return self.read.get(name, "unknown")
        return "data" if self.given_ids(tensor) else "constant"

    def judge(self, op: Op, kinds: list[str]) -> None:
        """Reads the unknown operands of an op from its data."""
        for j, name in enumerate(op.inputs):
            if kinds[j] != "unknown":
                continue
            if op.kind in MAP and not MAP[op.kind].carries:
                if j:
                    self.assign(name, "data")  # targets of a loss
            elif op.attribute("joined") == -1:
                self.assign(name, "data")  # features beside features of the data
            elif op.kind in ("add", "contraction", "convolution", "scan"):
                others = {i for k, ix in enumerate(op.indices) if kinds[k] == "data" for i in ix}
                self.weigh(op, name, op.indices[j], others)

    def weigh(self, op: Op, name: str, indices: tuple[int, ...], others: set[int]) -> None:
        graph = self.graph
        axes = dict(zip(indices, graph.tensors[name].axes, strict=True))
        leaves = self.leaves(name)
        known = all(_named(leaf, _WEIGHTS) for leaf in leaves)
        names = graph.index_axes(op)
        wanted = {i for i in others if names[i] in self.data_axes} & {*op.output_indices}
        kept = wanted & axes.keys()
        summed = {i for i in axes if i in others and i not in op.output_indices}
        if not known and any(graph.axes[a].role == "batch" for a in axes.values()):
            self.assign(name, "data")
        elif summed:
            outer = [i for i in axes if i not in summed]
            alone = len(axes) > 1 and all(n == name or self.square(n) for n in op.inputs)  # such as an adjacency
            if not (known or kept) and _named(name, _DATA) and alone:
                self.assign(name, "data")
            elif not (known or kept) and self.mixing(op, name, axes):
                self.doubt(leaves, "it mixes positions of the data, as a graph's adjacency or a learned matrix does")
            elif not known and (kept or any(graph.axes[axes[i]].role == "sequence" for i in outer)):
                self.assign(name, "data")
            elif not known and any(graph.axes[axes[i]].role == "sequence" for i in summed):
                self.doubt(leaves, "a product sums the sequence")
            elif not known and self.mixed(name):
                self.doubt(leaves, f"{_shown(name)} is a product of its own, and data are multiplied with it")
            else:
                self.matrices |= {*leaves}
                self.assign(name, "weight")
        elif not kept and self.mixed(name, strict=True):
            self.doubt(leaves, f"in {_shown(op.output)} the data meet a product that has none of their axes")
        elif kept != wanted or not kept or known:
            self.assign(name, "weight")
        elif _named(name, _DATA):
            self.assign(name, "data")
        else:
            self.doubt(leaves, f"it has the shape of the data that it meets in {_shown(op.output)}")

    def square(self, name: str) -> bool:
        """Whether a tensor is a matrix of as many rows as columns."""
        sizes = [self.graph.axes[a].size for a in self.graph.tensors[name].axes]
        return len(sizes) == 2 and sizes[0] == sizes[1]

    def mixing(self, op: Op, name: str, axes: Mapping[int, str]) -> bool:
        """Whether a square matrix adds up positions of the data, each with features: ``A X`` of a graph's nodes.

        What a weight makes is a feature, so that the matrix of a recurrence in columns, ``W x + U a``, is none.
        """
        if not (self.square(name) and is_outside(self.graph.tensors[name], self.graph)):
            return False
        made = {self.graph.axes[a].size for n, reading in self.read.items() if reading == "weight"
                for a in self.graph.tensors[n].axes}  # fmt: skip
        others = [ix for n, ix in zip(op.inputs, op.indices, strict=True) if n != name and axes.keys() & {*ix}]
        rows = self.graph.axes[self.graph.tensors[name].axes[0]].size
        return rows not in made and any(len(ix) > 1 and ix[-1] not in axes for ix in others)

    def leaves(self, name: str) -> list[str]:
        """The unknown tensors from outside that a tensor is made of."""
        graph, found, stack = self.graph, list[str](), [name]
        while stack:
            one = stack.pop()
            if one in graph.producers:
                stack += graph.producers[one].inputs
            elif one not in found and is_outside(graph.tensors[one], graph) and one not in self.read:
                found.append(one)
        return found

    def mixed(self, name: str, strict: bool = False) -> bool:
        """Whether an unknown tensor is multiplied in the making of one, with something of which names say otherwise.

        ``strict`` also counts products where the names say nothing.
        """
        graph, stack = self.graph, [name]
        while stack:
            op = graph.producers.get(stack.pop())
            if op is None:
                continue
            stack += op.inputs
            sides = [self.leaves(n) for n in op.inputs]
            summing = op.kind == "contraction" and op.summed and not op.attribute("elementwise")
            if summing and len(sides) > 1 and any(sides):
                weights = [all(_named(leaf, _WEIGHTS) for leaf in side) for side in sides]
                if (strict and not all(weights)) or any(weights) != all(weights):
                    return True
        return False

    def assign(self, name: str, reading: Reading) -> None:
        """Passes a reading to all unknown tensors that one is made of; data, to those with an axis of the data.

        What has fewer of these axes than another one is read from that, in the next round: a gain of the other.
        """
        graph, leaves = self.graph, self.leaves(name)
        if reading == "data" and len(leaves) > 1:
            has = [x for x in leaves if any(graph.axes[a].role or a in self.data_axes for a in graph.tensors[x].axes)]
            leaves = [x for x in has if not _named(x, _WEIGHTS)] or has
            axes = {x: {*graph.tensors[x].axes} & self.data_axes for x in leaves}
            leaves = [x for x in leaves if not any(axes[x] < axes[y] for y in leaves)]
        for leaf in leaves:
            self.tell(leaf, reading)

    def doubt(self, leaves: list[str], why: str) -> None:
        """Keeps a question for the end, unless a name settles it."""
        data = [leaf for leaf in leaves if _named(leaf, _DATA)]
        for leaf in data:
            self.tell(leaf, "data")
        if not data:
            for leaf in leaves:
                self.doubts.setdefault(leaf, why)


def _shown(name: str) -> str:
    return name.split("·")[0]
