"""A model as a reader found it: its parts as layer tables, how often each one repeats, and the known sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.errors import SymcommError
from symcomm.core.graph.regions import Edge, chain, joined, split
from symcomm.core.records import dataclass

if TYPE_CHECKING:
    from symcomm.core.graph.graph import Graph

# Weights that are one tensor, each as (part, weight).
Ties = tuple[tuple[tuple[str, str], tuple[str, str]], ...]
HEADER = "Computation\tInput\tOutput\n"


class ReaderError(SymcommError):
    """A configuration or a module tree that cannot be read."""


@dataclass(frozen=True)
class PartTable:
    """A part of a model: a layer table, and the symbol that says how often the part occurs (or nothing).

    >>> PartTable("head", "y = xW\\tx [B, D], W [D, F]\\ty [B, F]\\n").graph().weights[0].name
    'W'
    """

    name: str
    rows: str
    repeat: str = ""
    inputs: tuple[str, ...] = ()  # tensors that are inputs or weights, where the table alone would mislead
    weights: tuple[str, ...] = ()
    layers_before: str = ""  # the tensor that stands for the result of the layers: what makes it runs before them

    @property
    def text(self) -> str:
        """The layer table as text."""
        return HEADER + self.rows

    def graph(self) -> Graph:
        """The graph of the table; equal tables share one graph."""
        return _graph(self)


@dataclass(frozen=True)
class PartGraph:
    """A part of a model whose graph is there already, as a ``PartTable`` says it."""

    name: str
    made: Graph
    text: str = ""
    layers_before: str = ""

    def graph(self) -> Graph:
        """The graph, under the name of the part."""
        return replace(self.made, name=self.name)


@lru_cache(maxsize=64)
def _graph(part: PartTable) -> Graph:
    from symcomm.core.graph.build import build
    from symcomm.core.text.finder import layer_tables
    from symcomm.core.text.formula import parse_layer

    [table] = layer_tables(part.text, f"<{part.name}>")
    return build(parse_layer(table), name=part.name, repeat=part.repeat, inputs=part.inputs, weights=part.weights)


@dataclass(frozen=True)
class Blueprint:
    """The parts of a model with the sizes a reader found."""

    name: str
    parts: tuple[PartTable | PartGraph, ...]
    values: Mapping[str, int]
    meanings: Mapping[str, str] = field(default_factory=dict)  # of the symbols
    notes: tuple[str, ...] = ()  # what was repaired or left out
    flow: bool = True  # else only the weights are known, and not what feeds what
    literal: Blueprint | None = None  # the other reading of a damaged text
    one_axis: tuple[str, ...] = ()  # sizes that mean one axis in all parts, such as the vocabulary
    dtype: str = ""  # the number format that a configuration says
    edges: tuple[Edge, ...] = ()  # what flows where; without edges the parts are a chain
    ties: Ties = ()  # weights of different parts that are one
    limits: tuple[tuple[str, str, int], ...] = ()  # as those of ``Graph``
    fused: bool = False  # the library runs attention as one kernel
    order: tuple[str, ...] = ()  # as that of ``Graph``

    @cached_property
    def graph(self) -> Graph:
        """One graph of all parts, in the order in which they run; a part that the layers stand in becomes two."""
        before: list[Graph] = []
        middle: list[Graph] = []
        after: list[Graph] = []
        ties = [*self.ties]
        for part in self.parts:
            made = part.graph()
            made = replace(made, name=part.name, fused=made.fused or self.fused)
            if not part.layers_before:
                # A graph of one region under a name.
                [region] = made.regions
                ops = tuple(replace(op, region=part.name) for op in made.ops)
                middle.append(replace(made, name=part.name, ops=ops, regions=(replace(region, name=part.name),)))
                continue
            first, last = split(made, part.layers_before)
            shared = {w.name for w in first.weights} & {w.name for w in last.weights}
            ties += [((first.name, name), (last.name, name)) for name in sorted(shared)]
            (middle if self.edges else before).append(first)  # first of a chain, wherever it is written
            if last.ops:
                after.append(last)
        graphs = [*before, *middle, *after]
        edges = (self.edges or chain(graphs)) if self.flow else ()
        whole = joined(self.name, graphs, edges, ties=ties, one_axis=self.one_axis, notes=self.notes, flow=self.flow)
        explicit = all(isinstance(part, PartTable) for part in self.parts)  # a reader writes every mask
        return replace(whole, limits=self.limits, explicit=explicit, order=self.order)

    def count(self) -> int | None:
        """The number of parameters, or None where a size is unknown."""
        graph = self.graph
        known = graph.relations.complete({name: Fraction(value) for name, value in self.values.items()})
        repeats = {region.name: region.times for region in graph.regions}
        total = Fraction(0)
        for weight in graph.weights:
            size = forms.from_expr(graph.relations.gather(graph.elements(weight.name)))
            times = repeats[graph.consumers[weight.name][0].region]
            if any(name not in known for name in (*forms.names(size), *([times] if times else []))):
                return None
            total += forms.evaluate(size, known) * (known[times] if times else 1)
        return int(total)
