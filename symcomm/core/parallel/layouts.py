"""Where tensors are on the mesh: wanted layouts, and the collectives that lead from one layout to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from symcomm.core.errors import StrategyError
from symcomm.core.graph.graph import KEPT, Graph, Tensor
from symcomm.core.parallel.strategy import EVERYTHING, Placed

CollectiveKind = Literal[
    "all-reduce", "reduce-scatter", "all-gather", "all-to-all", "ring-pass", "ring-sum", "ring-sum-home",
    "halo-exchange", "halo-shift",
]  # fmt: skip
PARTIAL = -1

# Where a tensor is along each axis of the mesh: the position of its axis that is cut there, or PARTIAL for a sum that
# is still spread over the ranks. A mesh axis that is not named holds the whole tensor on every rank.
Layout = tuple[tuple[str, int], ...]
Positions = Mapping[str, int]
_PLACED_AS: dict[str, str] = dict.fromkeys(("input", "constant", "statistic", *KEPT), "activation")


def place(tensor: Tensor, graph: Graph, rules: tuple[Placed, ...], role: str = "") -> Layout:
    """The wanted layout of a tensor: it takes the rules in order, each mesh axis once.

    ``role`` overrides the tensor's own: ``gradient`` for the gradient of a weight, ``state`` for optimizer states.
    """
    return tuple((placed.rule.mesh, position) for placed, position in placings(tensor, graph, rules, role))


def placings(tensor: Tensor, graph: Graph, rules: tuple[Placed, ...], role: str = "") -> tuple[tuple[Placed, int], ...]:
    """The rules that a tensor takes, with the positions of the axes they cut."""
    role = role or _PLACED_AS.get(tensor.role, tensor.role)
    if tensor.role == "gradient" and tensor.of:
        role = "gradient" if graph.tensors[tensor.of].role == "weight" else "activation"
    if role not in EVERYTHING:
        raise StrategyError(f"{tensor.name} is placed as '{role}', and no rule says where that lies")
    found: list[tuple[Placed, int]] = []
    for placed in rules:
        rule = placed.rule
        if role not in rule.on or any(other.rule.mesh == rule.mesh for other, _ in found):
            continue
        if rule.where and not holds(rule.where, graph, tensor):
            continue
        spared = rows(graph) if rule.spares and holds("lookups", graph, tensor) else ()  # not heads, of a bias for each
        cut = {position for _, position in found}
        for position, axis in enumerate(tensor.axes):
            if placed.axes is None:
                # Any axis will do: the one of the other shards, else a longer one that nothing cuts, so shards stay
                # blocks. An axis of length 1, as in the kernels of a depthwise convolution, has no parts.
                shards = [p for other, p in found if other.axes is None]
                free = [p for p, name in enumerate(tensor.axes) if p not in cut and graph.axes[name].size != 1]
                found.append((placed, (*shards, *free, 0)[0]))
                break
            if axis in placed.axes and axis not in spared:
                found.append((placed, position))
                break
    return tuple(found)


def holds(where: str, graph: Graph, tensor: Tensor) -> bool:
    """Whether a rule that is limited to some ops holds for an op that touches a tensor."""
    if where == "lookups":
        return not {tensor.name, tensor.of}.isdisjoint(looked_up(graph))
    return graph.pair(tensor.name) is not None


@lru_cache(maxsize=64)
def looked_up(graph: Graph) -> frozenset[str]:
    """The tables in which ids are looked up and that nothing else reads, and the ids as rows of zeros and a one."""
    readers = {n: [o for o in graph.ops if n in o.inputs and o.phase == "forward"] for n in graph.tensors}
    rows = {op.output for op in graph.ops if op.kind == "onehot"}
    looking = [op for op in graph.ops if op.attribute("lookup") and rows & {*op.inputs}]
    found = {name for op in looking for name in op.inputs}
    return frozenset(name for name in found if all(op in looking for op in readers[name]))


@lru_cache(maxsize=64)
def rows(graph: Graph) -> frozenset[str]:
    """The axes of the rows that ids choose."""
    return frozenset(graph.tensors[op.output].axes[-1] for op in graph.ops if op.kind == "onehot")


def moves(have: Positions, need: Positions, meshes: Sequence[str]) -> Iterator[
    tuple[CollectiveKind, tuple[str, ...], dict[str, int], dict[str, int]]
]:  # fmt: skip
    """The calls from one layout to another: which kind, over which mesh axes, and the layouts before and after it.

    Sums are scattered before they are reduced; what is left to reduce over several mesh axes is one call over the
    joint group, and so is what is gathered or scattered along one axis over several. ``meshes`` are in order: where
    two cut one axis, the later cuts inside the parts of the earlier, and is gathered first. What then differs only in
    that a rank drops a part of what it has costs nothing; a part of the earlier does not lie in one of the later alone.
    So a rank drops what the earlier cuts off before a sum is scattered inside it.
    """
    now = dict(have)

    def inside(mesh: str, *axes: int) -> list[str]:
        """The mesh axes that cut inside the parts of another one: what changes outside needs them whole."""
        return [m for m in reversed(meshes[meshes.index(mesh) + 1 :]) if now.get(m, PARTIAL) in axes]

    for mesh in meshes:
        if now.get(mesh) == PARTIAL and need.get(mesh, PARTIAL) != PARTIAL:
            # What cuts the same axis next is scattered to by the same call.
            group: tuple[str, ...] = (mesh,)
            for other in meshes[meshes.index(mesh) + 1 :]:
                if now.get(other) == PARTIAL and need.get(other) == need[mesh]:
                    group = (*group, other)
                elif now.get(other) == need[mesh]:
                    break
            for inner in inside(mesh, need[mesh]):
                yield "all-gather", (inner,), now, (now := {m: p for m, p in now.items() if m != inner})
            outer = [m for m in meshes[: meshes.index(mesh)] if m not in now and need.get(m) == need[mesh]]
            now = now | dict.fromkeys(outer, need[mesh])
            yield "reduce-scatter", group, now, (now := now | dict.fromkeys(group, need[mesh]))
    joint = tuple(mesh for mesh in meshes if now.get(mesh) == PARTIAL and mesh not in need)
    if joint:
        yield "all-reduce", joint, now, (now := {m: p for m, p in now.items() if m not in joint})
    gathered = {m for m, p in now.items() if p != PARTIAL and m not in need}
    gathered |= {n for m, p in need.items() if m not in now for n in inside(m, p) if need.get(n) == p}
    gathered |= {inner for mesh in gathered for inner in inside(mesh, now[mesh])}
    for position in dict.fromkeys(now[m] for m in reversed(meshes) if m in gathered):
        group = tuple(m for m in meshes if m in gathered and now.get(m) == position)
        yield "all-gather", group, now, (now := {m: p for m, p in now.items() if m not in group})
    group = tuple(m for m in meshes if m in need and now.get(m, need[m]) != need[m])
    for inner in dict.fromkeys(n for m in group for n in inside(m, now[m], need[m]) if n not in group):
        yield "all-gather", (inner,), now, (now := {m: p for m, p in now.items() if m != inner})
    if group:
        yield "all-to-all", group, now, now | {m: need[m] for m in group}
