"""Halos: the positions of an image that a window reads beyond a rank's own part of them.

Where a strategy cuts the positions of a convolution, a rank needs for its places the edges of its neighbours' parts.
What it then reads is a tensor of its own, made of its part and these edges: it is what is stored, and its gradient is
cut back to the rank's own part once the neighbours' contributions to the edges are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

from symcomm.core.errors import StrategyError
from symcomm.core.form import Form, Ratio, evaluate, from_expr, names, num, product, value
from symcomm.core.graph.axis_roles import SPACES, slides
from symcomm.core.graph.graph import Axis, Graph, Op, Tensor, bare
from symcomm.core.libraries import Expr, sp
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.records import replace

HALO_MARK = "·halo"  # ends the name of a rank's part of an image together with the edges beside it


def windows(graph: Graph, op: Op, strategy: Strategy) -> Iterator[tuple[int, Expr, Expr, Form]]:
    """The axes of an image that are cut, each with its positions, the halo beside a part, and the number of parts.

    A halo is what a window spans beyond the start of the next place. Half of it lies before a rank's part and half
    behind, an odd position behind. Raises ``StrategyError`` where places do not lie evenly over the positions: then
    they do not in parts of these.
    """
    cut: dict[int, Form] = {}
    for _, rule in strategy.rules if slides(op) and op.phase == "forward" else ():
        if rule.axis in SPACES:
            at, size = SPACES.index(rule.axis), strategy.sizes[rule.mesh]
            cut[at] = product(cut[at], size) if at in cut else size
    for dimension, ranks in cut.items():
        tensors = [graph.tensors[name] for name in (op.inputs[0], op.inputs[1], op.output)]
        if len(tensors[0].held) < dimension + 3:
            continue
        positions, taps, places = (
            graph.relations.expand(sp.Mul(*(graph.axes[a].size for a in t.own_axes[2 + dimension]))) for t in tensors
        )
        span, stride = (taps - 1) * op.attribute("dilation", 1) + 1, sp.cancel(positions / places)
        padded = span == 1 or (positions - span + 1 - places).expand() != 0
        if not padded or not stride.is_Integer:
            of, made = bare(op.inputs[0]), bare(op.output)
            raise StrategyError(
                f"the {positions} positions of {of} are cut, but {made} has {places} places: "
                + (f"a stride of {stride}" if padded else "those without padding"), op.source,
                f"pad {of}, so that {made} has as many places as positions, or that over a whole stride",
            )  # fmt: skip
        yield dimension, positions, span - stride if stride == 1 else sp.Max(span - stride, 0), ranks


def check_halos(graph: Graph, strategy: Strategy, values: Mapping[str, Fraction]) -> None:
    """Raises ``StrategyError`` where a window reaches beyond the neighbour's part, all sizes known."""
    for op, (_, positions, halo, ranks) in ((o, one) for o in graph.ops for one in windows(graph, o, strategy)):
        part, side = Ratio(from_expr(positions), ranks), Ratio(from_expr(halo), num(2))
        if {*names(part), *names(side)} <= values.keys() and ceil(evaluate(side, values)) > evaluate(part, values):
            reads, length = ceil(evaluate(side, values)), evaluate(part.top, values)
            raise StrategyError(
                f"a window of {bare(op.output)} reads {reads} positions of a neighbour, but of {length} of "
                f"{bare(op.inputs[0])} each of {evaluate(ranks, values)} ranks has {evaluate(part, values)}", op.source,
                f"at most {length // reads} ranks: what a window reads lies in the parts beside its own",
            )  # fmt: skip


@lru_cache(maxsize=64)
def with_halos(graph: Graph, strategy: Strategy) -> Graph:
    """The graph whose convolutions read a rank's part of an image with the edges of its neighbours' parts.

    It is the same graph where no strategy cuts space.
    """
    if not any(rule.axis in SPACES for _, rule in strategy.rules):
        return graph
    axes, tensors, ops = {**graph.axes}, {**graph.tensors}, list[Op]()
    known: dict[tuple[str, int, Expr], str] = {}  # what ranks have of an image, which several convolutions may read
    for op in graph.ops:
        for dimension, positions, halo, ranks in windows(graph, op, strategy):
            at, image = 2 + dimension, tensors[op.inputs[0]]
            start, stop = sum(image.held[:at]), sum(image.held[: at + 1])
            first, *inner = op.indices[0][start:stop]
            place = op.output_indices[sum(tensors[op.output].held[:at])]
            said: dict[str, Any] = dict(op.attributes)
            said["tied"] = (*said.get("tied", ()), (first, place))
            key = image.name, at, halo
            if halo != 0 and key not in known:
                name, new, every = f"{image.name}{HALO_MARK}{len(known) + 1}", len(image.axes), range(len(image.axes))
                axes[name] = Axis(name, f"{positions}", positions + value(ranks) * halo, uneven=True)
                tensors[name] = Tensor(
                    name, (*image.axes[:start], name, *image.axes[stop:]), "activation", dtype=image.dtype,
                    parts=(*image.held[:at], 1, *image.held[at + 1 :]),
                )  # fmt: skip
                own = (("rows", halo), ("tied", ((start, new),)), ("whole", (*every[start:stop], new)))
                ops.append(Op(name, "halo", (image.name,), name, (tuple(every),), (*every[:start], new, *every[stop:]),
                              own, "forward", op.row, op.source, op.region))  # fmt: skip
                known[key] = name
            if halo != 0:
                said |= {k: tuple(i for i in said[k] if i not in inner) for k in ("window", "whole")}
                indices = tuple(i for i in op.indices[0] if i not in inner)
                op = replace(op, inputs=(known[key], *op.inputs[1:]), indices=(indices, *op.indices[1:]))
            op = replace(op, attributes=tuple(said.items()))
        ops.append(op)
    return replace(graph, axes=axes, tensors=tensors, ops=tuple(ops))
