"""Whole models: the graphs of several tables joined into one graph of regions.

What one region makes and the next one reads becomes one tensor, and the axes of the two are joined. Axes and weights
of different regions are otherwise never one because of their names: what is one and the same must be declared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field, replace
from itertools import pairwise

from symcomm.core.derivation import Relations
from symcomm.core.errors import ShapeError, ValuesError, nearest
from symcomm.core.form import Form
from symcomm.core.graph.graph import Axis, Graph, Op, Region, Tensor
from symcomm.core.records import dataclass


@dataclass(frozen=True)
class Edge:
    """A tensor that flows between two regions: ``tensor`` of ``source`` becomes ``becomes`` of ``target``."""

    source: str
    tensor: str
    target: str
    becomes: str


def split(graph: Graph, at: str, names: tuple[str, str] = ("embedding", "head")) -> tuple[Graph, Graph]:
    """The ops before a tensor and those after it, as two graphs; other layers stand between the two.

    A row that only names the tensor (``h = x``) is left out.

    Raises ``ValuesError`` where no row makes it.
    """
    if at not in graph.producers:
        raise ValuesError(f"no row of {graph.name} computes '{at[:60]}'", hint=nearest(at, [*graph.producers]))
    needed, queue = set[str](), [at]
    while queue:
        if (name := queue.pop()) not in needed:
            needed.add(name)
            queue += graph.producers[name].inputs if name in graph.producers else ()
    last = graph.producers[at]
    bare = last.attribute("view") and graph.tensors[last.inputs[0]].axes == graph.tensors[at].axes
    found = []
    for n in (0, 1):
        mine = [op for op in graph.ops if (op.output in needed) == (n == 0) and not (bare and op is last)]
        ops = tuple(replace(op, region=names[n]) for op in mine)
        used = {name for op in ops for name in (*op.inputs, op.output)}
        tensors = {name: t for name, t in graph.tensors.items() if name in used}
        if n == 1 and at in tensors:
            tensors[at] = replace(tensors[at], role="input")
        axes = {a: graph.axes[a] for t in tensors.values() for a in t.axes}
        found.append(replace(graph, name=names[n], axes=axes, tensors=tensors, ops=ops, regions=(Region(names[n]),)))
    return found[0], found[1]


def chain(graphs: Sequence[Graph]) -> tuple[Edge, ...]:
    """The edges between graphs that run one after the other: the result of each is the input of the next.

    The input is the one that has the result's shape; of several, that which the next repetition would get.

    Raises ``ShapeError`` where nothing that a graph makes can be what the next one reads.
    """
    found = []
    for one, other in pairwise(graphs):
        results = [out for out, _ in one.carried] or [t.name for t in reversed(one.outputs)]
        wanted = [into for _, into in other.carried] or [t.name for t in other.inputs]
        pairs = [(a, b) for a in results for b in wanted if _alike(one, a, other, b)]
        if not pairs:
            raise ShapeError(
                f"nothing that {one.name} makes has the shape of what {other.name} reads",
                hint="the result of a part is the input of the next one; give both one shape",
            )
        found.append(Edge(one.name, pairs[0][0], other.name, pairs[0][1]))
    return tuple(found)


def _alike(one: Graph, a: str, other: Graph, b: str) -> bool:
    left, right = one.tensors[a].axes, other.tensors[b].axes
    relations = Relations(tuple({**dict(one.relations.equations), **dict(other.relations.equations)}.items()))
    return len(left) == len(right) and all(
        (relations.expand(one.axes[x].size) - relations.expand(other.axes[y].size)).expand() == 0
        for x, y in zip(left, right, strict=True)
    )


@dataclass
class _Names:
    """Names that are free: of two things with one name, the later one bears its region's mark."""

    taken: set[str] = field(default_factory=set)

    def free(self, name: str, mark: str) -> str:
        shown = name
        while shown in self.taken:
            base, dot, number = shown.partition("·")
            shown = f"{mark}:{base}{dot}{number}" if not base.startswith(f"{mark}:") else f"{base}'{dot}{number}"
        self.taken.add(shown)
        return shown


def joined(
    name: str,
    graphs: Sequence[Graph],
    edges: Iterable[Edge],
    *,
    ties: Iterable[tuple[tuple[str, str], tuple[str, str]]] = (),
    one_axis: Collection[str] = (),
    notes: tuple[str, ...] = (),
    flow: bool = True,
) -> Graph:
    """One graph whose regions are those of the graphs, in the order in which they run.

    ``ties`` pair weights that are one tensor, each as (region, weight). ``one_axis`` are labels that mean one axis in
    all regions, as the vocabulary does; classes of one-hot tensors of one size are one axis, too.

    >>> from symcomm.core.readers.blueprint import PartTable
    >>> a = PartTable("a", "y = xW\\tx [B, D], W [D, F]\\ty [B, F]\\n").graph()
    >>> b = PartTable("b", "y = xW\\tx [B, F], W [F, D]\\ty [B, D]\\n").graph()
    >>> whole = joined("model", (a, b), chain((a, b)))
    >>> [t.name for t in whole.weights], [op.inputs[0] for op in whole.ops], len(whole.axes)
    (['W', 'b:W'], ['x', 'y'], 4)
    """
    edges = tuple(edges)
    same = _Joins()
    for edge in edges:
        left, right = (_graph(graphs, edge.source), edge.tensor), (_graph(graphs, edge.target), edge.becomes)
        for x, y in zip(left[0].tensors[left[1]].axes, right[0].tensors[right[1]].axes, strict=True):
            same.join((edge.source, x), (edge.target, y))
    for (one, w), (other, v) in ties:
        for x, y in zip(_graph(graphs, one).tensors[w].axes, _graph(graphs, other).tensors[v].axes, strict=True):
            same.join((one, x), (other, y))
    classes: dict[str, tuple[str, str]] = {}
    for graph in graphs:
        for op in graph.ops:
            if op.kind == "onehot":
                last = graph.tensors[op.output].axes[-1]
                same.join(classes.setdefault(str(graph.axes[last].size), (graph.name, last)), (graph.name, last))
        for axis in graph.axes.values():
            if axis.label in one_axis:
                same.join(classes.setdefault(str(axis.size), (graph.name, axis.name)), (graph.name, axis.name))

    names = _Names()
    axes: dict[str, Axis] = {}
    counted: Counter[str] = Counter()
    of_axis: dict[tuple[str, str], str] = {}
    for graph in graphs:
        for axis in graph.axes.values():
            root = same.root((graph.name, axis.name))
            if root not in of_axis:
                unique = axis.label
                while unique in axes:
                    counted[axis.label] += 1
                    unique = f"{axis.label}~{counted[axis.label] + 1}"
                axes[unique] = replace(axis, name=unique)
                of_axis[root] = unique
            of_axis[graph.name, axis.name] = of_axis[root]

    owner: dict[tuple[str, str], tuple[str, str]] = {}  # an input of a region -> the tensor of another one that it is
    for edge in edges:
        owner[edge.target, edge.becomes] = (edge.source, edge.tensor)
    for first, second in ties:
        owner[second] = first

    def home(key: tuple[str, str]) -> tuple[str, str]:
        while key in owner:
            key = owner[key]
        return key

    called: dict[tuple[str, str], str] = {}
    # A tensor between two regions has the name that the repeated one knows it by.
    for edge in edges:
        source, target = _graph(graphs, edge.source), _graph(graphs, edge.target)
        known = edge.becomes if target.repeat and not source.repeat else edge.tensor
        key = home((edge.source, edge.tensor))
        if key not in called:
            called[key] = names.free(known, edge.source)
    tensors: dict[str, Tensor] = {}
    ops: list[Op] = []
    above = 0
    for graph in graphs:
        mark = graph.name.split()[0]
        for tensor in graph.tensors.values():
            key = home((graph.name, tensor.name))
            if key not in called:
                called[key] = names.free(tensor.name, mark)
            called[graph.name, tensor.name] = called[key]
            if key == (graph.name, tensor.name):
                moved = tuple(of_axis[graph.name, a] for a in tensor.axes)
                tensors[called[key]] = replace(tensor, name=called[key], axes=moved)
        start = above + 1 - min((op.row for op in graph.ops), default=1)
        for op in graph.ops:
            inputs = tuple(called[graph.name, n] for n in op.inputs)
            made = called[graph.name, op.output]
            ops.append(replace(op, name=made, inputs=inputs, output=made, row=op.row + start, region=graph.name))
            above = max(above, op.row + start)
    equations: dict[str, Form] = {}
    for graph in graphs:
        equations.update(graph.relations.equations)
    regions = tuple(
        replace(region, name=graph.name, carried=tuple(
            (called[graph.name, a], called[graph.name, b]) for a, b in region.carried
        ))
        for graph in graphs for region in graph.regions
    )  # fmt: skip
    said = tuple(dict.fromkeys((*(n for g in graphs for n in g.notes), *notes)))
    attending = [graph for graph in graphs if graph.attention_pairs]
    fused = bool(attending) and all(graph.fused for graph in attending)
    return Graph(
        name, axes, tensors, tuple(ops), Relations(tuple(equations.items())), regions, said, flow, fused=fused
    )  # fmt: skip


def _graph(graphs: Sequence[Graph], name: str) -> Graph:
    return next(graph for graph in graphs if graph.name == name)


@dataclass
class _Joins:
    """Which axes are one, each as (region, axis)."""

    parent: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)

    def root(self, key: tuple[str, str]) -> tuple[str, str]:
        while key in self.parent:
            key = self.parent[key]
        return key

    def join(self, a: tuple[str, str], b: tuple[str, str]) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self.parent[b] = a
