"""The one rule that derives every collective from where the tensors are placed.

An op runs where most of its tensors already are. A cut axis that it sums leaves a partial sum on each rank: an
all-reduce, or a reduce-scatter where a cut result is wanted. An operand that is cut along an axis the op needs whole
is gathered; one that is cut along another axis than the op is exchanged, all to all. Nothing else communicates.

Two points save calls that a naive reading would make twice: a tensor is gathered once per phase, and partial sums
with one target are added before they are reduced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Literal

from symcomm.accounting import Accounting
from symcomm.errors import StrategyError
from symcomm.graph.graph import Axis, Graph, Op, Tensor
from symcomm.graph.ops import MAP
from symcomm.parallel.strategy import Placed, Strategy, resolve, whole_indices

if TYPE_CHECKING:
    from fractions import Fraction

    from sympy import Expr

CollectiveKind = Literal["all-reduce", "reduce-scatter", "all-gather", "all-to-all"]
RunPhase = Literal["forward", "backward", "update"]
PARTIAL = -1

# Where a tensor is along each axis of the mesh: the position of its axis that is cut there, or PARTIAL for a sum that
# is still spread over the ranks. A mesh axis that is not named holds the whole tensor on every rank.
Layout = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Collective:
    """One collective call: what it moves, between which ranks, when and why.

    ``elements`` is the size of the full tensor the call works on (the cuts along other mesh axes taken off).
    ``before`` and ``after`` are the layouts of the tensor; ``dtype`` is that of its elements where it differs.
    """

    kind: CollectiveKind
    tensor: str
    elements: Expr
    mesh: str
    phase: RunPhase
    op: str
    why: str
    before: Layout
    after: Layout
    stored: str  # the name the result is known by: the tensor, or its gathered copy


@dataclass(frozen=True)
class Compute:
    """One op run on every rank: which of its loop indices each mesh axis cuts.

    ``layouts`` are those of the operands as read. ``once`` names operands that only the first rank of a mesh axis
    contributes, because the result is a partial sum and they are whole.
    """

    op: Op
    cuts: tuple[tuple[str, int], ...]
    reads: tuple[str, ...]
    layouts: tuple[Layout, ...]
    output: Layout
    once: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Plan:
    """What every rank does, in order: computations and the collectives between them."""

    graph: Graph
    strategy: Strategy
    steps: tuple[Collective | Compute, ...]
    placements: Mapping[str, Layout]

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """The collectives, in order."""
        return tuple(step for step in self.steps if isinstance(step, Collective))


def place(tensor: Tensor, graph: Graph, rules: tuple[Placed, ...], role: str = "") -> Layout:
    """The wanted layout of a tensor: it takes the rules in order, each mesh axis once.

    ``role`` overrides the tensor's own: ``gradient`` for the gradient of a weight, ``state`` for optimizer states.
    """
    role = role or tensor.role
    if tensor.role == "gradient" and tensor.of:
        role = "gradient" if graph.tensors[tensor.of].role == "weight" else "activation"
    role = "activation" if role in ("input", "constant") else role
    found: list[tuple[str, int]] = []
    for placed in rules:
        rule = placed.rule
        if role not in rule.on or any(mesh == rule.mesh for mesh, _ in found):
            continue
        cut = {position for _, position in found}
        for position, axis in enumerate(tensor.axes):
            if placed.axes is None:
                # Any axis will do: prefer one that no other mesh axis cuts, so that shards stay simple blocks.
                free = [p for p in range(len(tensor.axes)) if p not in cut]
                found.append((rule.mesh, free[0] if free else 0))
                break
            if axis in placed.axes:
                found.append((rule.mesh, position))
                break
    return tuple(found)


def update_ops(graph: Graph) -> Graph:
    """The graph with one update a weight: the optimizer reads the weight, its gradient and its states."""
    tensors, ops = dict(graph.tensors), list(graph.ops)
    for weight in graph.weights:
        gradient = f"d({weight.name})"
        if gradient not in tensors:
            continue
        state, new = f"state({weight.name})", f"new({weight.name})"
        tensors[state] = replace(weight, name=state, role="constant", of=weight.name)
        tensors[new] = replace(weight, name=new, role="activation", of=weight.name)
        axes = tuple(range(len(weight.axes)))
        home = graph.consumers[weight.name][0].region
        ops.append(Op(new, "update", (weight.name, gradient, state), new, (axes,) * 3, axes, (), "backward",
                      region=home))  # fmt: skip
    return replace(graph, tensors=tensors, ops=tuple(ops))


def plan(graph: Graph, strategy: Strategy, accounting: Accounting | None = None) -> Plan:
    """What every rank computes and exchanges in one training step (or in the forward pass alone).

    ``graph`` may hold forward ops only, or forward and backward ops. Raises ``StrategyError`` where a rule names an
    axis the graph does not have.
    """
    return _Planner(graph, strategy, accounting or Accounting()).run()


@dataclass
class _Planner:
    graph: Graph
    strategy: Strategy
    accounting: Accounting
    steps: list[Collective | Compute] = field(default_factory=list)
    layouts: dict[str, dict[str, int]] = field(default_factory=dict)
    copies: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    computed: dict[str, Compute] = field(default_factory=dict)
    phase: RunPhase = "forward"

    def run(self) -> Plan:
        forward_only = self.graph
        rules = resolve(
            self.strategy, replace(forward_only, ops=tuple(o for o in self.graph.ops if o.phase == "forward"))
        )
        if any(op.phase == "backward" for op in self.graph.ops):
            self.graph = update_ops(self.graph)
        graph = self.graph
        self.wanted = {name: dict(self.wish(t, rules)) for name, t in graph.tensors.items()}
        # Where two mesh axes cut one axis, the later rule cuts inside the parts of the earlier: it is gathered first.
        self.meshes = tuple(reversed(dict.fromkeys(p.rule.mesh for p in reversed(rules))))
        self.order = {mesh: n for n, mesh in enumerate(self.meshes)}
        named = tuple(p for p in rules if p.axes is not None)
        self.shards = {
            (weight.name, mesh)
            for weight in graph.weights
            for mesh, _ in place(weight, graph, rules)
            if mesh not in dict(place(weight, graph, named))
        }
        for name in graph.tensors:
            if name not in graph.producers:
                self.layouts[name] = dict(self.wanted[name])
        for op in graph.ops:
            phase: RunPhase = "update" if op.kind == "update" else op.phase
            if phase != self.phase:
                self.new_phase(phase)
            self.run_op(op)
        placements = {name: self.layout(d) for name, d in self.wanted.items()}
        return Plan(graph, self.strategy, tuple(self.steps), placements)

    def wish(self, tensor: Tensor, rules: tuple[Placed, ...]) -> Layout:
        if tensor.name.startswith("state(") and tensor.of:
            return place(tensor, self.graph, rules, "state")
        if tensor.name.startswith("new(") and tensor.of:
            return place(tensor, self.graph, rules, "weight")
        if tensor.role == "constant" and tensor.name not in self.graph.producers:
            return ()  # every rank has or makes it; a part of it costs nothing
        return place(tensor, self.graph, rules)

    def new_phase(self, phase: RunPhase) -> None:
        """Drops the copies that the accounting does not keep from one phase to the next."""
        self.phase = phase
        for tensor, stored in list(self.copies):
            weight = self.graph.tensors[tensor].role == "weight"
            keep = self.accounting.gathered_weights if weight else self.accounting.gathered_activations
            if keep != "keep":
                del self.copies[tensor, stored]

    # -- one op --------------------------------------------------------------------------------

    def run_op(self, op: Op) -> None:
        whole = whole_indices(op)
        states: dict[str, list[str | int | None]] = {}
        for mesh in self.meshes:
            states[mesh] = [self.state(name, ix, mesh) for name, ix in zip(op.inputs, op.indices, strict=True)]
        passing: list[str] = []
        cuts: dict[str, int] = {}
        unfinished: dict[str, None] = {}
        for mesh in self.meshes:
            pending = [j for j, s in enumerate(states[mesh]) if s == "partial"]
            if pending and self.may_pass(op, pending, states[mesh]):
                passing.append(mesh)
                continue
            unfinished.update((op.inputs[j], None) for j in pending)
            chosen = self.choose(op, mesh, whole)
            if chosen is not None:
                cuts[mesh] = chosen
        for name in unfinished:
            self.finish(name, op.indices[op.inputs.index(name)], cuts, passing, op)
        reads, layouts = [], []
        for name, indices in zip(op.inputs, op.indices, strict=True):
            stored, layout = self.bring(name, indices, cuts, op)
            reads.append(stored)
            layouts.append(self.layout(layout))
        out: dict[str, int] = {}
        once: list[tuple[int, str]] = []
        for mesh in self.meshes:
            if mesh in passing:
                out[mesh] = PARTIAL
                if op.kind == "add":
                    once += [(j, mesh) for j, s in enumerate(states[mesh]) if s != "partial"]
            elif mesh in cuts:
                out[mesh] = op.output_indices.index(cuts[mesh]) if cuts[mesh] in op.output_indices else PARTIAL
        self.layouts[op.output] = out
        step = Compute(op, tuple(cuts.items()), tuple(reads), tuple(layouts), self.layout(out), tuple(once))
        self.steps.append(step)
        self.computed[op.output] = step
        self.after(op)

    def after(self, op: Op) -> None:
        """Brings a result to its place where that costs nothing, where it is needed soon, or where it stays."""
        name, out = op.output, self.layouts[op.output]
        tensor = self.graph.tensors[name]
        readers = self.graph.consumers.get(name, ())
        pending = [m for m, p in out.items() if p == PARTIAL]
        # A part of a weight's gradient waits for the others: sums with one target are added before they are reduced.
        waits = any(reader.kind == "add" for reader in readers)
        stays = tensor.role == "gradient" and self.graph.tensors[tensor.of].role == "weight" and not waits
        # A pending sum that several ops read is finished once, here; with one reader it may still pass through.
        # The end of the graph finishes it as well; a loss may stay a sum, since no op reads it.
        if pending and (len(readers) > 1 or (stays and any(m in self.wanted[name] for m in pending))):
            self.restore(name, op, "sum")
        elif not readers and tensor.axes:
            self.restore(name, op, "result")
        elif not pending:
            for mesh, position in self.wanted[name].items():
                if mesh not in self.layouts[name]:
                    self.layouts[name][mesh] = position  # each rank keeps its part: free

    def state(self, name: str, indices: tuple[int, ...], mesh: str) -> str | int | None:
        """Where an operand is along a mesh axis: the loop index that is cut, ``partial``, or None for whole."""
        position = self.layouts[name].get(mesh)
        return None if position is None else "partial" if position == PARTIAL else indices[position]

    def may_pass(self, op: Op, pending: list[int], states: list[str | int | None]) -> bool:
        """Whether an op may work on partial sums: it is linear in them, nobody else reads them, nothing is cut."""
        if any(len(self.graph.consumers[op.inputs[j]]) > 1 for j in pending):
            return False
        if any(s not in ("partial", None) for s in states):
            return False
        if op.kind == "add":
            return True
        if op.kind == "contraction":
            return len(pending) == 1 and op.inputs.count(op.inputs[pending[0]]) == 1
        if op.kind.endswith("_gradient"):
            return pending == [0]  # every gradient is linear in what arrives
        return op.kind in MAP and MAP[op.kind].linear and pending == [0]

    def choose(self, op: Op, mesh: str, whole: tuple[int, ...]) -> int | None:
        """The loop index that a mesh axis cuts: that on which most operands agree, then the result, then the first.

        A shard of a weight is a way to store it, not to compute with it: it has no say but in the update.
        """
        votes: dict[int, list[int]] = {}
        for name, indices in zip(op.inputs, op.indices, strict=True):
            if op.kind != "update" and (name, mesh) in self.shards:
                continue
            index = self.state(name, indices, mesh)
            if isinstance(index, int) and index not in whole:
                votes.setdefault(index, [0, 0])[0] += 1
        wanted = self.wanted[op.output].get(mesh)
        if wanted is not None and op.output_indices[wanted] not in whole:
            votes.setdefault(op.output_indices[wanted], [0, 0])[1] += 1
        if not votes:
            return None
        return max(votes, key=lambda index: votes[index])

    # -- moving --------------------------------------------------------------------------------

    def bring(self, name: str, indices: tuple[int, ...], cuts: dict[str, int], op: Op) -> tuple[str, dict[str, int]]:
        """An operand as an op needs it: the tensor itself, or a copy that is gathered or exchanged."""
        have = self.layouts[name]
        need = dict(have)
        for mesh, position in have.items():
            if position == PARTIAL:
                continue
            chosen = cuts.get(mesh)
            if chosen is None or chosen not in indices:
                del need[mesh]
            elif indices[position] != chosen:
                need[mesh] = indices.index(chosen)
        if need == have:
            return name, dict(have)
        stored = f"{name} @ {self.said(need)}"
        if (name, stored) not in self.copies:
            self.move(name, stored, dict(have), need, op, "operand")
            self.copies[name, stored] = need
        return stored, dict(need)

    def said(self, layout: Mapping[str, int]) -> str:
        return ", ".join(f"{mesh}:{position}" for mesh, position in sorted(layout.items())) or "whole"

    def finish(self, name: str, indices: tuple[int, ...], cuts: dict[str, int], passing: list[str], op: Op) -> None:
        """Ends a pending sum before an op that cannot work on it.

        It is scattered where its own place or the op that reads it wants a part, and reduced to all ranks elsewhere.
        """
        have = self.layouts[name]
        need = dict(have)
        for mesh, position in have.items():
            if position != PARTIAL or mesh in passing:
                continue
            place = self.wanted[name].get(mesh)
            if place is None and cuts.get(mesh) in indices:
                place = indices.index(cuts[mesh])
            if place is None:
                del need[mesh]
            else:
                need[mesh] = place
        if need != have:
            self.move(name, name, dict(have), need, op, "sum")
            self.layouts[name] = need

    def restore(self, name: str, op: Op, why: str) -> None:
        """Brings a tensor to its wanted layout in place."""
        have, need = self.layouts[name], self.wanted[name]
        if have == need:
            return
        self.move(name, name, dict(have), dict(need), op, why)
        self.layouts[name] = dict(need)

    def move(self, name: str, stored: str, have: dict[str, int], need: dict[str, int], op: Op, why: str) -> None:
        """The collectives between two layouts; sums are scattered before they are reduced."""
        now = dict(have)
        made = self.graph.producers.get(name)
        summing = made.phase if made is not None and made.kind != "update" else self.phase
        at, source = self.graph.tensors[name], name

        def call(kind: CollectiveKind, mesh: str, after: dict[str, int], phase: RunPhase, text: str) -> None:
            nonlocal now, source
            others = [m for m in self.meshes if m != mesh and now.get(m, PARTIAL) != PARTIAL]
            elements = self.graph.elements(name)
            for other in others:
                elements = elements / self.degree(other)
            self.steps.append(
                Collective(
                    kind, source, elements, mesh, phase, op.name, text, self.layout(now), self.layout(after), stored
                )
            )
            now, source = after, stored

        def axis(position: int) -> str:
            return f"`{self.graph.axes[at.axes[position]].label}`"

        for mesh in self.meshes:
            if now.get(mesh) == PARTIAL and need.get(mesh, PARTIAL) != PARTIAL:
                over = self.summed_over(made, mesh)
                text = f"each rank has a partial sum{over}; a part along {axis(need[mesh])} is wanted"
                call("reduce-scatter", mesh, now | {mesh: need[mesh]}, summing, text)
        for mesh in self.meshes:
            if now.get(mesh) == PARTIAL and mesh not in need:
                text = f"each rank has a partial sum{self.summed_over(made, mesh)}; the whole sum is wanted"
                call("all-reduce", mesh, {m: p for m, p in now.items() if m != mesh}, summing, text)
        for mesh in reversed(self.meshes):
            if mesh in now and mesh not in need:
                text = f"it is cut along {axis(now[mesh])}, but the op that reads it needs it whole"
                if why != "operand":
                    text = f"it is cut along {axis(now[mesh])} and is wanted whole"
                call("all-gather", mesh, {m: p for m, p in now.items() if m != mesh}, self.phase, text)
        for mesh in self.meshes:
            if mesh in now and mesh in need and now[mesh] != need[mesh]:
                text = f"it is cut along {axis(now[mesh])}, but is needed cut along {axis(need[mesh])}"
                call("all-to-all", mesh, now | {mesh: need[mesh]}, self.phase, text)
        # What is left differs only where a rank drops a part of what it has, which costs nothing.

    def summed_over(self, made: Op | None, mesh: str) -> str:
        """Which cut axis was summed, for the reason of an all-reduce; sums that passed other ops are followed back."""
        while made is not None:
            step = self.computed[made.output]
            cut = dict(step.cuts).get(mesh)
            if cut is not None:
                return f" over its part of `{self.graph.axes[self.graph.index_axes(step.op)[cut]].label}`"
            pending = [n for n, at in zip(made.inputs, step.layouts, strict=True) if (mesh, PARTIAL) in at]
            made = self.graph.producers.get(pending[0]) if pending else None
        return ""

    def degree(self, mesh: str) -> Expr:
        from symcomm.form import value

        return value(self.strategy.sizes[mesh])

    def layout(self, positions: Mapping[str, int]) -> Layout:
        return tuple(sorted(positions.items(), key=lambda pair: self.order[pair[0]]))


def cut_axes(graph: Graph, strategy: Strategy) -> Iterator[tuple[Tensor, Axis, tuple[str, ...]]]:
    """The axes that must divide: each named axis that is cut, with the mesh axes that cut it.

    A shard of a weight may be any part of its numbers, padded where need be, and is left out.
    """
    rules = tuple(placed for placed in resolve(strategy, graph) if placed.axes is not None)
    for tensor in graph.tensors.values():
        if tensor.role not in ("weight", "input", "activation"):
            continue
        ways: dict[int, list[str]] = {}
        for mesh, position in place(tensor, graph, rules):
            ways.setdefault(position, []).append(mesh)
        for position, meshes in ways.items():
            yield tensor, graph.axes[tensor.axes[position]], tuple(meshes)


def check_divisible(graph: Graph, strategy: Strategy, values: Mapping[str, Fraction]) -> None:
    """Raises ``StrategyError`` where a mesh axis of known size does not divide a cut axis of known size."""
    from symcomm.form import evaluate, from_expr, names

    sizes = strategy.sizes
    if not any({*names(size)} <= values.keys() for size in sizes.values()):
        return
    for tensor, axis, meshes in cut_axes(graph, strategy):
        size = from_expr(axis.size)
        parts = [sizes[m] for m in meshes]
        needed = {*names(size), *(n for p in parts for n in names(p))}
        if not needed <= values.keys():
            continue
        length = evaluate(size, values)
        count = prod(evaluate(p, values) for p in parts)
        if (length / count).denominator != 1:
            shown = axis.label if axis.label == str(length) else f"{axis.label} = {length}"
            raise StrategyError(
                f"{strategy.name} cuts {shown} of {tensor.name} into {count} parts, "
                f"but {length} is not divisible by {count}",
                hint=f"choose a degree that divides {length}",
            )
