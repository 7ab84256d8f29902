"""The one rule that derives every collective from where the tensors are placed.

A cut axis that an op sums leaves a partial sum on each rank: an all-reduce, or a reduce-scatter where a cut result is
wanted. An operand that is cut along an axis the op needs whole is gathered; one that is cut along another axis than the
op is exchanged, all to all. Nothing else communicates. Maps that reduce along a cut axis are steps of their own.

Where there is a choice, the place is taken at which the least bytes are sent: a tensor is gathered once per phase,
partial sums with one target are added before they are reduced, and a sum over several mesh axes is one call.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from symcomm.core.accounting import Accounting
from symcomm.core.form import evaluate, from_expr, names, value
from symcomm.core.graph.axis_roles import find_vocabulary, whole_indices
from symcomm.core.graph.graph import Axis, Graph, Op, Tensor
from symcomm.core.graph.ops import MAP
from symcomm.core.libraries import Expr
from symcomm.core.parallel.cheapest import (
    WHOLE,
    Choice,
    PlacementProblem,
    RunPhase,
    State,
    move,
    phase_of,
    resolved,
)
from symcomm.core.parallel.conditions import CheapestWhere, condition, sent
from symcomm.core.parallel.layouts import PARTIAL, CollectiveKind, Layout, Positions, moves, place, placings
from symcomm.core.parallel.lowering import OpStep, Part, op_steps, reducible
from symcomm.core.parallel.reference import VARIATIONS, width
from symcomm.core.parallel.strategy import Placed, Strategy, resolve
from symcomm.core.records import dataclass, replace

if TYPE_CHECKING:
    from fractions import Fraction

Value = TypeVar("Value")

__all__ = [
    "PARTIAL", "Collective", "CollectiveKind", "Compute", "Layout", "Part", "Plan", "RunPhase",
    "check_cuts", "cut_axes", "place", "plan", "update_ops",
]  # fmt: skip


@dataclass(frozen=True)
class Collective:
    """One collective call: what it moves, between which ranks, when and why."""

    kind: CollectiveKind
    tensor: str
    elements: Expr  # of the full tensor that it works on, with the cuts along other mesh axes taken off
    meshes: tuple[str, ...]  # the axes of the mesh whose ranks take part together
    phase: RunPhase
    op: str
    why: str
    before: Layout  # of the tensor
    after: Layout
    stored: str  # the name the result is known by: the tensor, or its gathered copy
    reduces: Literal["sum", "max"] = "sum"  # parts are added, or the largest is taken
    dtype: str = ""  # of what moves, where it is not the tensor's


@dataclass(frozen=True)
class Compute:
    """A step that every rank runs, and which of its loop indices each mesh axis cuts.

    The step is an op, or a part of a map that is taken apart (see ``lowering``).
    """

    step: OpStep
    cuts: tuple[tuple[str, int], ...]
    reads: tuple[str, ...]  # the names by which its operands are known
    layouts: tuple[Layout, ...]  # of the operands as read
    output: Layout
    # Operands that only the first rank of a mesh axis adds: they are whole, and the result is a partial sum.
    once: tuple[tuple[int, str], ...] = ()

    @property
    def op(self) -> Op:
        """The op that the step is, or is a part of."""
        return self.step.op

    @property
    def part(self) -> Part:
        """Whether it is the whole op, statistics of a map, or the rest of it, point by point."""
        return self.step.part

    @property
    def inputs(self) -> tuple[str, ...]:
        """The operands of the step."""
        return self.step.inputs

    @property
    def makes(self) -> str:
        """The result of the step: the op's result, or statistics."""
        return self.step.output


@dataclass(frozen=True)
class Plan:
    """The work of every rank, in order: computations and the collectives between them.

    The statistics of maps are among the tensors of ``graph``.
    """

    graph: Graph
    strategy: Strategy
    steps: tuple[Collective | Compute, ...]
    placements: Mapping[str, Layout]  # where each tensor rests
    problem: PlacementProblem = field(repr=False, compare=False)  # the question that the plan answers
    choice: Choice = field(repr=False, compare=False)  # its answer

    @property
    def collectives(self) -> tuple[Collective, ...]:
        """The collectives, in order."""
        return tuple(step for step in self.steps if isinstance(step, Collective))

    @cached_property
    def computed(self) -> dict[str, Compute]:
        """The computation that makes each tensor."""
        return {step.makes: step for step in self.steps if isinstance(step, Compute)}

    @property
    def sent(self) -> Expr:
        """The bytes that a rank sends, but for a factor of (k - 1)/k for each call between k ranks."""
        calls = [(c, c.elements * width(self.graph.tensors[c.tensor])) for c in self.collectives]
        return sent((c.kind, wide, value(self.strategy.ranks(c.meshes))) for c, wide in calls)

    @property
    def conditions(self) -> tuple[CheapestWhere, ...]:
        """Where this plan is the cheapest: the first inequality that fails with fewer tokens, with more, with fewer
        words. The plan stays as it is where one of them does not hold; then another place would be cheaper.
        """
        if self.problem.conditions is None:  # the same for all strategies that pose the same question
            self.problem.conditions = self._conditions()
        found: tuple[CheapestWhere, ...] = self.problem.conditions
        return found

    def _conditions(self) -> tuple[CheapestWhere, ...]:
        found: dict[str, CheapestWhere] = {}
        for powers in VARIATIONS if not self.problem.certain else ():
            # Prices are straight lines in each size: a plan that is the cheapest at the far end is so all the way.
            if self._elsewhere(powers[-1]) is None:
                continue
            other = next(sent for sent in map(self._elsewhere, powers) if sent is not None)
            expand = self.graph.relations.expand
            differs = condition(expand(self.sent), expand(other))
            found |= {str(differs): differs} if differs is not None else {}
        return tuple(found.values())

    def _elsewhere(self, powers: tuple[int, int]) -> Expr | None:
        """What is sent where the cheapest plan at these powers of two is another one."""
        problem = self.problem.at(powers)
        choice = problem.solve()
        if choice == self.choice:
            return None
        sent = _Planner(problem, choice, self.strategy).run().sent
        return None if sent == self.sent else sent

    @cached_property
    def cuts(self) -> Mapping[str, Mapping[str, int]]:
        """Of each op, by what it makes: the loop that each mesh axis cuts in it or in a part of it."""
        found: dict[str, dict[str, int]] = {}
        for step in self.steps:
            if isinstance(step, Compute):
                found.setdefault(step.op.output, {}).update(step.cuts)
        return found

    @cached_property
    def layouts(self) -> Mapping[str, Mapping[str, Layout]]:
        """Of each op, by what it makes: the layouts of its operands as read, and of its result as made."""
        found: dict[str, dict[str, Layout]] = {}
        for step in self.steps:
            if isinstance(step, Compute):
                found.setdefault(step.op.output, {}).update(zip(step.inputs, step.layouts, strict=True))
                found[step.op.output][step.makes] = step.output
        return found


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


def summed_first(graph: Graph) -> Graph:
    """The graph in which a gradient adds up what products give back before the rest: they alone may be partial sums."""
    tensors, ops = dict(graph.tensors), list[Op]()
    for op in graph.ops:
        added = op.kind == "add" and op.phase == "backward" and not op.attribute("lookup")
        made = [graph.producers.get(name) for name in op.inputs] if added else []
        sums = [n for n, one in enumerate(made) if one is not None and one.kind == "contraction" and one.summed]
        if 1 < len(sums) < len(op.inputs):
            first, rest = f"{op.output}·0", [n for n in range(len(op.inputs)) if n not in sums]
            tensors[first] = replace(tensors[op.output], name=first)
            ops.append(_part(op, sums, first))
            op = _part(op, rest, op.output, first)
        ops.append(op)
    return replace(graph, tensors=tensors, ops=tuple(ops)) if len(ops) > len(graph.ops) else graph


def _part(op: Op, operands: list[int], output: str, *before: str) -> Op:
    """A sum of some operands of a sum, and of what is there ``before``."""
    inputs = (*before, *(op.inputs[n] for n in operands))
    return replace(op, name=output, output=output, inputs=inputs, indices=(op.output_indices,) * len(inputs),
                   attributes=(("signs", (1,) * len(inputs)),))  # fmt: skip


def unrepeated(graph: Graph) -> Graph:
    """The graph in which gradients read heads before they are repeated: the same product over fewer numbers.

    A gradient gathers the same tensor again as the forward pass, and repeats its heads by itself.
    """

    def through(op: Op, j: int) -> Op:
        view = graph.producers.get(op.inputs[j])
        if view is None or not view.attribute("view") or len(view.inputs) > 1:
            return op
        at = dict(zip(view.output_indices, op.indices[j], strict=True))
        others = {i for k, some in enumerate(op.indices) if k != j for i in some}
        repeated = {i for v, i in at.items() if v not in view.indices[0]}
        if not repeated or not repeated <= others or not at.keys() >= {*view.indices[0]}:
            return op
        inputs, indices = [*op.inputs], [*op.indices]
        inputs[j], indices[j] = view.inputs[0], tuple([at[v] for v in view.indices[0]])
        return through(replace(op, inputs=tuple(inputs), indices=tuple(indices)), j)

    def read(op: Op) -> Op:
        for j in range(len(op.inputs)) if op.kind == "contraction" and op.phase == "backward" else ():
            op = through(op, j)
        return op

    return replace(graph, ops=tuple(map(read, graph.ops)))


def plan(graph: Graph, strategy: Strategy, accounting: Accounting | None = None) -> Plan:
    """The computations and exchanges of every rank in one training step (or in the forward pass alone).

    ``graph`` may hold forward ops only, or forward and backward ops. Raises ``StrategyError`` where a rule names an
    axis the graph does not have.
    """
    accounting = accounting or Accounting()
    rules = resolve(strategy, replace(graph, ops=tuple(o for o in graph.ops if o.phase == "forward")))
    rules, slots = with_slots(rules, graph)
    if any(op.phase == "backward" for op in graph.ops):
        graph = update_ops(graph)
    if any(p.rule.rests for p in rules):
        graph = summed_first(graph)
    if accounting.gathered_activations == "regather":
        graph = unrepeated(graph)

    features = {axis for weight in graph.weights for axis in weight.axes}

    def wish(tensor: Tensor) -> tuple[tuple[Placed, int], ...]:
        if tensor.name.startswith(("state(", "new(")) and tensor.of:
            return placings(tensor, graph, rules, "state" if tensor.name.startswith("state(") else "weight")
        if tensor.role == "constant" and tensor.name not in graph.producers:
            return ()  # every rank has or makes it; a part of it costs nothing
        found = placings(tensor, graph, rules)
        # Of statistics and losses, a number a token: where they rest saves nothing.
        small = not features & {*tensor.axes}
        return tuple(one for one in found if not (small and one[0].rule.rests))

    wishes = {name: wish(t) for name, t in graph.tensors.items()}
    own = accounting.batch_statistics == "of_each_rank"
    maps = (op for op in graph.ops if reducible(op.kind) and not (own and MAP[op.kind].examples))
    apart = {op.output for op in maps if _cut_along(op, wishes)}
    steps, statistics = op_steps(graph, apart)
    graph = replace(graph, tensors={**graph.tensors, **statistics}) if statistics else graph
    wishes |= {name: wish(t) for name, t in statistics.items()}
    wanted = {name: {p.rule.mesh: position for p, position in found} for name, found in wishes.items()}
    # Which token is in which slot of which expert is known of a few of all pairs: nothing of that shape is stored.
    memory = frozenset((name, p.rule.mesh) for name, found in wishes.items() for p, _ in found if p.rule.rests)
    # A view that repeats a tensor is gathered before it repeats: it is smaller there.
    repeats = {op.output for op in graph.ops if op.attribute("view") and not {*op.output_indices} <= {*op.indices[0]}}
    stored = {n for n, t in graph.tensors.items() if not t.virtual and t.axes not in graph.routed} - repeats
    resting = frozenset((name, mesh) for name, mesh in memory if name in stored)
    if accounting.gathered_activations == "regather":  # what is saved as a shard does not rest gathered
        saved = {name for op in graph.ops if op.phase == "backward" for name in op.inputs}
        resting |= {
            (name, p.rule.mesh) for name, found in wishes.items() for p, _ in found
            if name in stored & saved and graph.tensors[name].role == "activation" and not p.rule.passes
        }  # fmt: skip
    spared = {(p.rule.mesh, axis) for p in rules if p.rule.rests for axis in p.axes or ()}
    tokens = {
        (n, mesh) for n, t in graph.tensors.items() if not features & {*t.axes} for mesh, a in spared if a in t.axes
    }
    again = resting | tokens  # what is cut to save memory is gathered again in each phase
    shards = frozenset((name, p.rule.mesh) for name, found in wishes.items() for p, _ in found if p.axes is None)
    # Where two mesh axes cut one axis, the later rule cuts inside the parts of the earlier. Shards nest as the data do.
    named = [p.rule.mesh for p in rules if p.axes is not None]
    meshes = tuple(reversed(dict.fromkeys((*reversed(named), *(p.rule.mesh for p in rules)))))

    def keeps(name: str, mesh: str) -> bool:
        if graph.tensors[name].role == "weight":
            return False  # resharding is a rewrite of the program
        if accounting.gathered_activations == "regather_sequence":
            return (name, mesh) not in again
        return accounting.gathered_activations == "keep"

    whole = frozenset(p.rule.mesh for p in rules if p.rule.axis == "whole")
    problem = PlacementProblem(graph, steps, rules, meshes, wanted, memory, resting, shards, keeps, slots, whole)
    return _Planner(problem, problem.solve(), strategy).run()


def with_slots(rules: tuple[Placed, ...], graph: Graph) -> tuple[tuple[Placed, ...], dict[str, str]]:
    """Rules that cut the slots of experts with the tokens that fill them; and for the axis of slots that of tokens."""
    routes = [graph.tensors[op.output].axes for op in graph.ops if op.kind == "route"]
    slots = {axes[-1]: axes[-3] for axes in routes}
    if not slots:
        return rules, {}
    more = [tuple(slot for slot, token in slots.items() if token in (p.axes or ())) for p in rules]
    return tuple(
        p if p.rule.rests or p.axes is None else replace(p, axes=(*p.axes, *also))
        for p, also in zip(rules, more, strict=True)
    ), slots


def _cut_along(op: Op, wishes: Mapping[str, tuple[tuple[Placed, int], ...]]) -> bool:
    """Whether a strategy wants the axis cut that a map works along."""
    along = whole_indices(op)
    ends = ((op.inputs[0], op.indices[0]), (op.output, op.output_indices))
    return any(indices[position] in along for name, indices in ends for _, position in wishes[name])


@dataclass
class _Planner:
    """Writes down the steps of a choice: each result is brought to its place as it is made, copies as they are read."""

    problem: PlacementProblem
    choice: Choice
    strategy: Strategy
    steps: list[Collective | Compute] = field(default_factory=list)
    layouts: dict[str, Positions] = field(default_factory=dict)
    copies: dict[str, dict[str, tuple[Positions, frozenset[str]]]] = field(default_factory=dict)
    computed: dict[str, Compute] = field(default_factory=dict)
    phase: RunPhase = "forward"
    states: dict[State, Positions] = field(default_factory=dict)
    same: dict[Any, Any] = field(default_factory=dict)  # most steps are cut as others are: each layout is made once

    def run(self) -> Plan:
        self.graph, self.meshes = self.problem.graph, self.problem.meshes
        self.order = {mesh: n for n, mesh in enumerate(self.meshes)}
        placements = {}
        for name in self.graph.tensors:
            rest = self.rest(name) if name in self.problem.reading else None
            placements[name] = self.layout(self.problem.wanted[name] if rest is None else rest)
            if name not in self.problem.made:
                self.layouts[name] = dict(placements[name])
        for number, step in enumerate(self.problem.steps):
            phase = phase_of(step)
            if phase != self.phase:
                self.new_phase(phase)
            self.run_step(number, step)
        return Plan(self.graph, self.strategy, tuple(self.steps), placements, self.problem, self.choice)

    def rest(self, name: str) -> Positions:
        """Where a tensor rests."""
        return self.positions(self.choice.rests[name])

    def positions(self, state: State) -> Positions:
        if state not in self.states:
            self.states[state] = {m: place for m, place in zip(self.meshes, state, strict=True) if place != WHOLE}
        return self.states[state]

    def state(self, at: Positions) -> State:
        return tuple([at.get(mesh, WHOLE) for mesh in self.meshes])

    def new_phase(self, phase: RunPhase) -> None:
        """Drops the copies that are not kept from one phase to the next."""
        self.phase = phase
        for name, copies in self.copies.items():
            gone = [s for s, (_, over) in copies.items() if not all(self.problem.keeps(name, m) for m in over)]
            for stored in gone:
                del copies[stored]

    def run_step(self, number: int, step: OpStep) -> None:
        op = step.op
        ways = [self.choice.ways[mesh][number] for mesh in self.meshes]
        reads = [self.bring(name, step, tuple([way.needs[j] for way in ways])) for j, name in enumerate(step.inputs)]
        out = self.positions(tuple([way.makes for way in ways]))
        once = [
            (j, mesh) for mesh, way in zip(self.meshes, ways, strict=True) if way.mode.passing and op.kind == "add"
            for j, (_, at) in enumerate(reads) if at.get(mesh) != PARTIAL
        ]  # fmt: skip
        cuts = [(m, way.mode.cut) for m, way in zip(self.meshes, ways, strict=True) if way.mode.cut is not None]
        made = Compute(
            step, self.one(tuple(cuts)), tuple([stored for stored, _ in reads]),
            self.one(tuple([self.layout(at) for _, at in reads])), self.layout(out), tuple(once),
        )  # fmt: skip
        if op.kind == "halo_sum":
            self.steps.append(self.halo(step, reads[0][1]))
        self.steps += [made, self.halo(step, out)] if op.kind == "halo" else [made]
        self.computed[step.output] = made
        rest = self.rest(step.output)
        self.move(step.output, step.output, out, rest, step, "result" if self.problem.leaves(step.output) else "sum")
        self.layouts[step.output] = rest

    def halo(self, step: OpStep, at: Positions) -> Collective:
        """The exchange of the edges of an image, once a rank's part is in its place; or of their gradients before."""
        back, rows, layout = step.op.kind == "halo_sum", cast("Expr", step.op.attribute("rows")), self.layout(at)
        name, indices = (step.inputs[0], step.indices[0]) if back else (step.output, step.output_indices)
        position = indices.index(*self.problem.filled(step, "").values())
        meshes = tuple(mesh for mesh in self.meshes if at.get(mesh) == position)
        elements = self.graph.volume(name) / self.graph.sizes(name)[position] * rows
        for mesh, axis in layout:
            elements = elements / (self.degree(mesh) if axis not in (position, PARTIAL) else 1)
        kind: CollectiveKind = "halo-shift" if rows == 1 else "halo-exchange"
        what = "the gradients of the edges are added at their ranks" if back else "a window reads the edges beside it"
        return Collective(kind, name, elements, meshes, self.phase, step.op.name, what, layout, layout, name)

    # -- moving --------------------------------------------------------------------------------

    def bring(self, name: str, step: OpStep, wanted: State) -> tuple[str, Positions]:
        """An operand as a step needs it: the tensor itself, or a copy that is gathered or exchanged."""
        need = resolved(self.choice.rests[name], wanted)
        assert need is not None, f"{step.output} cannot read {name}"
        if not move(self.choice.rests[name], need).calls:
            return name, self.layouts[name]
        known = self.copies.setdefault(name, {})
        starts = [(name, self.layouts[name], frozenset[str]()), *((s, at, over) for s, (at, over) in known.items())]
        for stored, at, _ in starts[1:]:
            if not move(self.state(at), need).calls:
                return stored, at
        # One copy may serve several readers: it is moved on only as far as this one needs, from where least is left.
        wide = next(c for c in self.choice.copies[name, self.phase] if not move(c, need).calls)
        source, at, over = min(starts, key=lambda start: move(self.state(start[1]), wide)[:2])
        short = at
        for _, _, _, short in moves(at, self.positions(wide), self.meshes):
            if not move(self.state(short), need).calls:
                break
        said = ", ".join(f"{mesh}:{position}" for mesh, position in sorted(short.items())) or "whole"
        stored = f"{name} @ {said}"
        self.move(source, stored, at, short, step, "operand")
        known[stored] = short, over | {m for m in self.meshes if at.get(m) != short.get(m)}
        return stored, short

    def move(self, source: str, stored: str, have: Positions, need: Positions, step: OpStep, why: str) -> None:
        """The collectives between two layouts."""
        if have == need:
            return
        name = stored.partition(" @ ")[0]
        tensor, made = self.graph.tensors[name], self.computed.get(name)

        def axis(position: int) -> str:
            return f"`{self.graph.axes[tensor.axes[position]].label}`"

        for kind, group, now, after in moves(have, need, self.meshes):
            elements = self.graph.volume(name)
            for mesh in self.meshes:
                if mesh not in group and now.get(mesh, PARTIAL) != PARTIAL:
                    elements = elements / self.degree(mesh)
            (first, *_), each = group, "each rank has a partial sum"
            reduces = made.step.reduces if made is not None else "sum"
            if kind in ("all-reduce", "reduce-scatter"):
                each = "each rank has the largest" if reduces == "max" else each
                each += next(filter(None, (self.summed_over(made, mesh) for mesh in group)), "")
            if kind == "reduce-scatter":
                text = f"{each}; a part along {axis(need[first])} is wanted"
            elif kind == "all-reduce":
                text = f"{each}; the {'largest of all' if reduces == 'max' else 'whole sum'} is wanted"
            elif kind == "all-gather":
                wants = ", but the op that reads it needs it whole" if why == "operand" else " and is wanted whole"
                text = f"it is cut along {axis(now[first])}{wants}"
            else:
                text = f"it is cut along {axis(now[first])}, but is needed cut along {axis(need[first])}"
            self.steps.append(
                Collective(kind, source, elements, group, self.phase, step.op.name, text, self.layout(now),
                           self.layout(after), stored, reduces)
            )  # fmt: skip
            source = stored
        # What is left differs only where a rank drops a part of what it has, which costs nothing.

    def summed_over(self, made: Compute | None, mesh: str) -> str:
        """The cut axis that was summed, for the reason of an all-reduce; sums behind other ops are followed back."""
        while made is not None:
            cut = dict(made.cuts).get(mesh)
            if cut is not None:
                return f" over its part of `{self.graph.axes[self.graph.index_axes(made.op)[cut]].label}`"
            pending = [n for n, at in zip(made.inputs, made.layouts, strict=True) if (mesh, PARTIAL) in at]
            made = self.computed.get(pending[0]) if pending else None
        return ""

    def degree(self, mesh: str) -> Expr:
        return value(self.strategy.sizes[mesh])

    def layout(self, positions: Positions) -> Layout:
        pairs = positions.items()
        return self.one(tuple(pairs if len(pairs) < 2 else sorted(pairs, key=lambda pair: self.order[pair[0]])))

    def one(self, found: Value) -> Value:
        """The equal value that was there before, or the value itself: one object for all that are equal."""
        return cast("Value", self.same.setdefault(found, found))


def cut_axes(
    graph: Graph, strategy: Strategy, only: Container[str] | None = None
) -> Iterator[tuple[Tensor, Axis, tuple[str, ...]]]:
    """The axes that must divide: each named axis that is cut, with the mesh axes that cut it; ``only`` of some tensors.

    A shard of a weight may be any part of its numbers, padded where need be, and is left out.
    """
    rules = tuple(placed for placed in with_slots(resolve(strategy, graph), graph)[0] if placed.axes is not None)
    for tensor in graph.tensors.values():
        if tensor.role not in ("weight", "input", "activation") or (only is not None and tensor.name not in only):
            continue
        ways: dict[int, list[str]] = {}
        for mesh, position in place(tensor, graph, rules):
            ways.setdefault(position, []).append(mesh)
        for position, meshes in ways.items():
            if not (axis := graph.axes[tensor.axes[position]]).uneven:
                yield tensor, axis, tuple(meshes)


def check_cuts(
    graph: Graph, strategy: Strategy, values: Mapping[str, Fraction], only: Container[str] | None = None
) -> None:
    """Raises ``StrategyError`` where a mesh axis of known size does not divide a cut axis of known size.

    All positions of a step behind earlier ones grow from step to step: ranks have the mean of them.
    """
    from symcomm.core.parallel.divisible import uneven

    sizes = strategy.sizes
    if not any({*names(size)} <= values.keys() for size in sizes.values()):
        return
    known, growing = [], graph.step.behind if graph.step is not None else {}
    for tensor, axis, meshes in cut_axes(graph, strategy, only):
        size = from_expr(axis.size)
        if axis.name not in growing and {*names(size), *(n for m in meshes for n in names(sizes[m]))} <= values.keys():
            known.append((tensor, axis, meshes, evaluate(size, values)))

    def count(meshes: tuple[str, ...]) -> Fraction | int:
        return prod(evaluate(sizes[m], values) for m in meshes)

    failing = [one for one in known if (one[3] / count(one[2])).denominator != 1]
    if failing:
        words = find_vocabulary(graph)
        tensor, axis, meshes, length = min(failing, key=lambda one: one[1].name in words)
        # Parts of a vocabulary are whole words by a convention: they allow every degree.
        others = [other for _, cut, along, other in known if along == meshes and cut.name not in words]
        raise uneven(graph, strategy.name, tensor, axis, meshes, length, count(meshes), others, axis.name in words)
