"""Halos: the positions of an image that a window reads beyond a rank's own part of them.

Where a strategy cuts the positions of a convolution, a rank needs for its places the edges of its neighbours' parts.
What it then reads is a tensor of its own, made of its part and these edges: it is what is stored, and its gradient is
cut back to the rank's own part once the neighbours' contributions to the edges are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any, cast

from symcomm.core.errors import StrategyError
from symcomm.core.form import Form, Ratio, evaluate, from_expr, names, product, value
from symcomm.core.graph.axis_roles import SPACES, slides
from symcomm.core.graph.graph import Axis, Graph, Op, Tensor, bare
from symcomm.core.libraries import Expr, sp
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.records import ByIdentity, dataclass, replace

HALO_MARK = "·halo"  # behind the name of an image in that of what a rank has of it with the edges beside its part


@dataclass(frozen=True)
class Window:
    """How a convolution slides along one axis of an image: its positions, its places, and what lies between these.

    A place reads ``span`` positions from its first to its last tap; places lie ``stride`` positions apart.
    """

    dimension: int
    image: Tensor
    positions: Expr
    places: Expr
    span: Expr

    @property
    def stride(self) -> Expr:
        """How many positions lie between two places."""
        return sp.cancel(self.positions / self.places)

    @property
    def halo(self) -> Expr:
        """The positions that a rank reads of both its neighbours: what a window spans beyond the next place's start."""
        rest = self.span - self.stride
        return rest if rest.is_nonnegative or self.stride == 1 else sp.Max(rest, 0)

    @property
    def sides(self) -> int:
        """From how many neighbours a rank reads: half of a halo lies before its part, half behind, an odd one behind."""
        return 1 if self.halo == 1 else 2


def window(graph: Graph, op: Op, dimension: int) -> Window:
    """The window of a convolution along an axis of space.

    Raises ``StrategyError`` where its places do not lie evenly over the positions: then they do not in parts of these.
    """
    image, kernel, result = (graph.tensors[name] for name in (op.inputs[0], op.inputs[1], op.output))
    expand = graph.relations.expand
    positions, taps, places = (
        expand(sp.Mul(*(graph.axes[a].size for a in t.own_axes[2 + dimension]))) for t in (image, kernel, result)
    )
    found = Window(dimension, image, positions, places, (taps - 1) * op.attribute("dilation", 1) + 1)
    padded = found.span == 1 or (found.positions - found.span + 1 - found.places).expand() != 0
    if not padded or not found.stride.is_Integer:
        of, made = bare(image.name), bare(result.name)
        far = f"a stride of {found.stride}" if padded else "those without padding"
        raise StrategyError(
            f"the {positions} positions of {of} are cut, but {made} has {places} places: {far}", op.source,
            f"pad {of}, so that {made} has as many places as positions, or that over a whole stride",
        )  # fmt: skip
    return found


def spaces(strategy: Strategy) -> dict[int, Form]:
    """The axes of space that a strategy cuts, each with the number of its parts."""
    meshes: dict[int, list[Form]] = {}
    for _, rule in strategy.rules:
        if rule.axis in SPACES:
            meshes.setdefault(SPACES.index(rule.axis), []).append(strategy.sizes[rule.mesh])
    return {dimension: product(*sizes) for dimension, sizes in meshes.items()}


def windows(graph: Graph, op: Op, strategy: Strategy) -> Iterator[tuple[Window, Form]]:
    """The windows of an op that slide along cut positions, each with the number of their parts."""
    for dimension, ranks in spaces(strategy).items() if slides(op) and op.phase == "forward" else ():
        if dimension + 2 < len(graph.tensors[op.output].held):
            yield window(graph, op, dimension), ranks


def with_halos(graph: Graph, strategy: Strategy) -> Graph:
    """The graph whose convolutions read a rank's part of an image with the edges of its neighbours' parts.

    It is the same graph where no strategy cuts space.
    """
    return _with_halos(ByIdentity(graph), strategy) if spaces(strategy) else graph


@lru_cache(maxsize=64)
def _with_halos(same: ByIdentity[Graph], strategy: Strategy) -> Graph:
    wide = _Wide(same.it, {**same.it.axes}, {**same.it.tensors})
    for op in same.it.ops:
        for window, ranks in windows(same.it, op, strategy):
            op = wide.read(op, window, ranks)
        wide.ops.append(op)
    return replace(same.it, axes=wide.axes, tensors=wide.tensors, ops=tuple(wide.ops))


@dataclass
class _Wide:
    """The ops as they are written anew, and the images that ranks have with their halos, each once."""

    graph: Graph
    axes: dict[str, Axis]
    tensors: dict[str, Tensor]
    ops: list[Op] = field(default_factory=list)
    known: dict[tuple[str, int, Expr], str] = field(default_factory=dict)

    def read(self, op: Op, window: Window, ranks: Form) -> Op:
        """A convolution that reads the image with its halo along one axis, whose positions are cut with its places."""
        at = 2 + window.dimension
        image, result = self.tensors[op.inputs[0]], self.tensors[op.output]
        start, count = sum(image.held[:at]), image.held[at]
        mine = op.indices[0][start : start + count]
        place = op.output_indices[sum(result.held[:at])]
        tied = (*pairs(op, "tied"), (mine[0], place))
        if window.halo == 0:
            return replace(op, attributes=(*_without(op, "tied"), ("tied", tied)))
        key = image.name, at, window.halo
        if key not in self.known:
            self.known[key] = self.widen(op, image, start, count, window, ranks)
        inner = {*mine[1:]}
        indices = tuple(i for i in op.indices[0] if i not in inner)
        kept = {k: tuple(i for i in pairs(op, k) if i not in inner) for k in ("window", "whole")}
        return replace(op, inputs=(self.known[key], *op.inputs[1:]), indices=(indices, *op.indices[1:]),
                       attributes=(*_without(op, "tied", *kept), *kept.items(), ("tied", tied)))  # fmt: skip

    def widen(self, op: Op, image: Tensor, start: int, count: int, window: Window, ranks: Form) -> str:
        """Adds the op that puts the edges of its neighbours beside a rank's part, and gives the name of its result."""
        name = f"{image.name}{HALO_MARK}{len(self.known) + 1}"
        axis = Axis(name, f"{window.positions}", window.positions + value(ranks) * window.halo, uneven=True)
        axes = (*image.axes[:start], name, *image.axes[start + count :])
        held = (*image.held[: 2 + window.dimension], 1, *image.held[3 + window.dimension :])
        self.axes[name] = axis
        self.tensors[name] = Tensor(name, axes, "activation", dtype=image.dtype, parts=held)
        before, new = tuple(range(len(image.axes))), len(image.axes)
        after = (*before[:start], new, *before[start + count :])
        gone = before[start : start + count]
        self.ops.append(Op(
            name, "halo", (image.name,), name, (before,), after,
            (("rows", window.halo), ("sides", window.sides), ("tied", ((gone[0], new),)), ("whole", (*gone, new))),
            "forward", op.row, op.source, op.region,
        ))  # fmt: skip
        return name


def pairs(op: Op, name: str) -> tuple[Any, ...]:
    """An attribute of an op that has several values; none where it is not there."""
    return cast("tuple[Any, ...]", op.attribute(name, ()))


def _without(op: Op, *names: str) -> tuple[tuple[str, object], ...]:
    return tuple(one for one in op.attributes if one[0] not in names)


def check_halos(graph: Graph, strategy: Strategy, values: Mapping[str, Fraction]) -> None:
    """Raises ``StrategyError`` where a window reaches beyond the neighbour's part, all sizes known."""
    for op in graph.ops if spaces(strategy) else ():
        for one, ranks in windows(graph, op, strategy):
            part, halo = Ratio(from_expr(one.positions), ranks), from_expr(one.halo)
            if not {*names(part), *names(halo)} <= values.keys():
                continue
            side, rows = ceil(evaluate(halo, values) / 2), evaluate(part, values)
            if side > rows:
                image, made, length = bare(one.image.name), bare(op.output), evaluate(part.top, values)
                raise StrategyError(
                    f"a window of {made} reads {side} positions of a neighbour, but of {length} of {image} each of "
                    f"{evaluate(ranks, values)} ranks has {rows}", op.source,
                    f"at most {length // side} ranks: what a window reads lies in the parts beside its own",
                )  # fmt: skip
