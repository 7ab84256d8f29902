"""Where each op cuts its loops and where each tensor rests, so that the least bytes are sent.

Along one axis of the mesh an op has a few modes: it cuts one of its loops, it runs whole on every rank, or it lets a
partial sum pass. A tensor has a few resting places, and copies of it in each phase. The price of a plan is a sum over
tensors of the bytes sent from where they are made to where they rest, and from there to where they are read; the least
is found exactly, by elimination, for all axes of the mesh together: what moves along one of them is cut along the
others, sums over several are one call, and where two cut one axis, the parts of the later lie in those of the earlier.
An axis along which nothing has to move, such as that of the data, is settled first.

What is not free: products, and what makes a weight's gradient, stay cut where the strategy cuts them; weights,
what comes from outside or leaves, and what a rule puts somewhere to save memory rest at their wanted places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import field
from functools import cached_property, lru_cache
from itertools import combinations, product
from math import inf, prod
from typing import Any, Literal, NamedTuple, cast

from symcomm.core.elimination import PriceTable, Values, cheapest
from symcomm.core.graph.axis_roles import whole_indices
from symcomm.core.graph.graph import Graph
from symcomm.core.parallel.copies import COPIES
from symcomm.core.parallel.layouts import PARTIAL, holds, moves
from symcomm.core.parallel.lowering import OpStep
from symcomm.core.parallel.reference import RANKS, TOKENS, VOCABULARY, reference
from symcomm.core.parallel.strategy import Placed
from symcomm.core.records import dataclass, replace

WHOLE, EITHER = -2, -3  # besides positions and PARTIAL: on every rank; for an addend: whole, or a partial sum
RunPhase = Literal["forward", "backward", "update"]
PHASES: tuple[RunPhase, ...] = ("forward", "backward", "update")
_VALUES, _ENTRIES = 32, 10**7  # of a step or a tensor along all axes of the mesh, and of a table, at once
_BYTES, _CALLS = 1 << 24, 1 << 12  # bytes count before calls, and calls before places that were not wanted

State = tuple[int, ...]  # where a tensor is, or is needed, along each axis of the mesh
_Held = tuple[State, tuple[State, ...]]  # where it rests, and its copies in a phase
_Fitting = list[tuple[int, int]]  # the numbers of a step's ways and of a tensor's places that go together
# Of a tensor: what values of some variables send, in parts of it, and what else they cost.
_Table = tuple[str, Values, dict[Values, tuple[int, int]]]
# The values of each variable, what they cost, which one is each tensor's place, and which are copies that are chosen.
_Tables = tuple[list[Sequence[Any]], list[_Table], list[int], dict[tuple[str, "RunPhase"], int]]


@dataclass(frozen=True)
class Mode:
    """How an op runs along one axis of the mesh: the loop that is cut, and the operands that are partial sums."""

    cut: int | None = None
    passing: tuple[int, ...] = ()


class Way(NamedTuple):
    """A mode of an op with what it needs of each operand, and how the result comes out."""

    mode: Mode
    needs: tuple[int, ...]
    makes: int


@dataclass(frozen=True)
class Choice:
    """The answer: the way of each step by axis of the mesh, where each tensor rests, and its copies in each phase."""

    ways: Mapping[str, Sequence[Way]]
    rests: Mapping[str, State]
    copies: Mapping[tuple[str, RunPhase], tuple[State, ...]]


@dataclass(frozen=True)
class Allowed:
    """The choices along one axis of the mesh: the ways of each step, and where each tensor may rest."""

    ways: Sequence[tuple[Way, ...]]
    rests: Sequence[tuple[int, ...]]

    @property
    def certain(self) -> bool:
        """Whether nothing is left to choose."""
        return all(len(some) == 1 for some in (*self.ways, *self.rests))

    def only(self, chosen: Sequence[int], rests: Sequence[int]) -> Allowed:
        """One answer: the number of each step's way, and where each tensor rests."""
        ways = [some if len(some) == 1 else some[k : k + 1] for k, some in zip(chosen, self.ways, strict=True)]
        return Allowed(ways, [some if len(some) == 1 else (r,) for r, some in zip(rests, self.rests, strict=True)])


def phase_of(piece: OpStep) -> RunPhase:
    """The phase that a step runs in."""
    return "update" if piece.op.kind == "update" else piece.op.phase


@dataclass
class PlacementProblem:
    """The question where tensors are put: the steps that read them, and the places that rules want."""

    graph: Graph
    steps: tuple[OpStep, ...]
    rules: tuple[Placed, ...]
    meshes: tuple[str, ...]
    wanted: Mapping[str, Mapping[str, int]]
    memory: frozenset[tuple[str, str]]  # (tensor, mesh axis) that a rule puts somewhere to save memory
    resting: frozenset[tuple[str, str]]  # those of them that rest there
    shards: frozenset[tuple[str, str]]  # weights, gradients and states that are stored, but not computed with, in parts
    keeps: Callable[[str, str], bool]  # whether copies of a tensor are kept from one phase to the next
    # By axis of experts' slots: the axis of the tokens in them. Where tokens are cut, each rank fills its own slots.
    slots: Mapping[str, str] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()  # mesh axes along which gradients of weights rest as they are wanted
    powers: tuple[int, int] = TOKENS, VOCABULARY  # of two: the sizes at which prices are compared
    made: dict[str, int] = field(init=False, default_factory=dict)
    reading: dict[str, dict[RunPhase, dict[int, tuple[int, ...]]]] = field(init=False, default_factory=dict)
    tied: dict[tuple[int, str], dict[int, int]] = field(init=False, default_factory=dict)
    shapes: dict[str, Allowed] = field(init=False, default_factory=dict)
    conditions: Any = field(init=False, default=None)  # where the choice is the cheapest, once it was asked for

    def __post_init__(self) -> None:
        # Of each tensor and each phase: the steps that read it, and as which of their operands.
        for number, step in enumerate(self.steps):
            phase = phase_of(step)
            for j, name in enumerate(step.inputs):
                readers = self.reading.setdefault(name, {}).setdefault(phase, {})
                readers[number] = _together(readers.get(number, ()), j)
            self.made[step.output] = number
            self.reading.setdefault(step.output, {})
        self.names = list(self.reading)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The bytes of each tensor at the sizes at which prices are compared."""
        return reference(self.graph, *self.powers)

    def at(self, powers: tuple[int, int]) -> PlacementProblem:
        """The same question at other sizes; what does not depend on them is worked out once for both."""
        other = copy(self)
        other.powers = powers
        other.__dict__.pop("sizes", None)
        return other

    # -- the whole mesh ------------------------------------------------------------------------------------------

    def solve(self) -> Choice:
        """The cheapest modes and resting places."""
        if len(self.meshes) < 2:
            found = self.answer(self.settled, self.tables)
        else:
            many = max(prod(map(len, v)) for v in zip(*((*s.ways, *s.rests) for s in self.settled), strict=True))
            found = self.answer(self.settled, self.tables, _ENTRIES) if many <= _VALUES else None
        return found or self.stepwise()

    def stepwise(self) -> Choice:
        """Where all axes together have too many answers: each alone, then two by two, the others as they are."""
        own = [replace(self, meshes=(mesh,)).solve() for mesh in self.meshes]
        ways = {mesh: one.ways[mesh] for mesh, one in zip(self.meshes, own, strict=True)}
        found = Choice(ways, {name: tuple([one.rests[name][0] for one in own]) for name in self.names}, {})
        for _ in range(2):
            for k in range(len(self.meshes) - 1):
                shapes = [
                    shape if n in (k, k + 1) else shape.only(
                        [some.index(way) for some, way in zip(shape.ways, found.ways[mesh], strict=True)],
                        [found.rests[name][n] for name in self.names],
                    )
                    for n, (mesh, shape) in enumerate(zip(self.meshes, map(self.shape, self.meshes), strict=True))
                ]  # fmt: skip
                better = self.answer(shapes, self.tables_of(shapes))
                assert better is not None
                found = better
        return found

    @cached_property
    def certain(self) -> bool:
        """Whether the cheapest choice is the same at all sizes: what copies are made depends on none of them."""
        return all(shape.certain for shape in self.settled)

    def answer(self, shapes: Sequence[Allowed], tables: _Tables, most: float = inf) -> Choice | None:
        """The cheapest choice of what is allowed; None where more than ``most`` combinations are to be looked at."""
        values, prices, places, held = tables
        chosen = self.least(prices, [len(some) for some in values], most)
        if chosen is None:
            return None
        answer = [some[i] for some, i in zip(values, chosen, strict=True)]
        rests: dict[str, State] = {}
        copies: dict[tuple[str, RunPhase], tuple[State, ...]] = {}
        for name, reading, v in zip(self.names, self.reading.values(), places, strict=True):
            rests[name] = answer[v]
            for phase, readers in reading.items():
                if (name, phase) in held:
                    made = answer[held[name, phase]][1]
                else:
                    needs = tuple([need for n, js in readers.items() for need in _wants(shapes, n, js, answer[n])])
                    found = _cheapest_copies(answer[v], needs, self.graph.tensors[name].virtual)
                    made = found[2] if found is not None else ()
                if made:
                    copies[name, phase] = made
        ways = {mesh: [s.ways[n][m[k]] for n, m in enumerate(answer[: len(self.steps)])]
                for k, (mesh, s) in enumerate(zip(self.meshes, shapes, strict=True))}  # fmt: skip
        return Choice(ways, rests, copies)

    def least(self, tables: Sequence[_Table], sizes: Sequence[int], most: float) -> list[int] | None:
        """The number of the value of each variable at the least price; only those that are open are looked for."""
        free = {v: n for n, v in enumerate(v for v, size in enumerate(sizes) if size > 1)}
        left: list[PriceTable] = []
        for name, variables, prices in tables:
            kept = [n for n, v in enumerate(variables) if v in free]
            if kept and (len(prices) < prod(sizes[v] for v in variables) or any(map(any, prices.values()))):
                scale = self.sizes[name] * _BYTES
                found = {tuple([at[n] for n in kept]): units * scale + rest for at, (units, rest) in prices.items()}
                left.append(PriceTable(tuple([free[variables[n]] for n in kept]), found))
        answer = cheapest(left, [sizes[v] for v in free], most)
        assert answer is not None or most < inf, "nothing is allowed"
        return answer and [answer[1][free[v]] if v in free else 0 for v in range(len(sizes))]

    # -- what is allowed along one axis of the mesh -----------------------------------------------------------------

    @cached_property
    def named(self) -> dict[str, frozenset[str]]:
        """The axes that the rules of each mesh axis name."""
        return {
            mesh: frozenset(a for p in self.rules if p.rule.mesh == mesh and p.axes is not None for a in p.axes)
            for mesh in self.meshes
        }

    @cached_property
    def meant(self) -> dict[str, frozenset[str]]:
        """The same of the rules that do not only say where tensors rest."""
        rules = [p for p in self.rules if p.axes is not None and not p.rule.rests]
        return {mesh: frozenset(a for p in rules if p.rule.mesh == mesh for a in p.axes or ()) for mesh in self.meshes}

    @cached_property
    def features(self) -> frozenset[str]:
        """The axes that weights have."""
        return frozenset(axis for weight in self.graph.weights for axis in weight.axes)

    @cached_property
    def data(self) -> frozenset[str]:
        """The mesh axes that cut axes of the data which no weight has."""
        rules = (p for p in self.rules if p.axes is not None and not p.rule.rests)
        return frozenset(p.rule.mesh for p in rules if not self.features & {*(p.axes or ())})

    def positions(self, name: str, mesh: str) -> tuple[int, ...]:
        """The positions of a tensor's axes that may be cut."""
        axes = self.graph.tensors[name].axes
        small = self.features.isdisjoint(axes) and len({*axes}) == len(axes)  # a number a token: memory has no say
        named = self.meant[mesh] if small else self.named[mesh]
        found = [p for p, a in enumerate(axes) if a in named]
        wish = self.wanted[name].get(mesh)
        return tuple(found) if wish is None or wish in found else (*found, wish)

    def look(self, name: str, mesh: str) -> object:
        """The facts of a tensor that decide the modes of a step along an axis of the mesh, and where it may rest.

        Under rules about some ops, and where slots are filled, each tensor is one of its own.
        """
        if mesh in self.limited or self.slots:
            return name
        tensor, at = self.graph.tensors[name], (name, mesh)
        of = self.graph.tensors[tensor.of].role if tensor.of else ""
        wish, finished = self.wanted[name].get(mesh), bool(of) and name == f"d({tensor.of})"
        return (
            self.positions(name, mesh), bool(tensor.axes), tensor.role, of, finished, tensor.virtual, wish,
            at in self.shards, at in self.memory, at in self.resting, name in self.graph.crossing,
        )  # fmt: skip

    def operands(self, step: OpStep) -> list[tuple[str, tuple[int, ...]]]:
        return [*zip(step.inputs, step.indices, strict=True), (step.output, step.output_indices)]

    @cached_property
    def limited(self) -> dict[str, frozenset[str]]:
        """The axes of the rules that are limited to some ops, by axis of the mesh."""
        found: dict[str, frozenset[str]] = {}
        for placed in self.rules:
            if placed.rule.where:
                found[placed.rule.mesh] = found.get(placed.rule.mesh, frozenset()) | {*(placed.axes or ())}
        return found

    def wish(self, step: OpStep, name: str, mesh: str) -> int | None:
        """The position at which the rules about a step cut one of its tensors."""
        where = {placed.rule.where for placed in self.rules if placed.rule.mesh == mesh} - {""}
        tensors = [self.graph.tensors[n] for n, _ in self.operands(step)] if where else []
        if not any(holds(one, self.graph, tensor) for one in where for tensor in tensors):
            return self.wanted[name].get(mesh)
        axes = self.graph.tensors[name].axes
        return next((n for n, axis in enumerate(axes) if axis in self.limited[mesh]), None)

    def own(self, step: OpStep, mesh: str) -> tuple[int, bool] | None:
        """The loop that the strategy cuts: that of most operands as wanted, then of the result, then the first.

        Also whether only a rule about resting places says so. A shard of a weight is a way to store it.
        """
        votes: dict[int, list[int]] = {}
        meant: set[int] = set()
        uncut, filled = self.uncut(step, mesh), self.filled(step, mesh)
        for name, indices in self.operands(step):
            wish = self.wish(step, name, mesh)
            stored = step.op.kind != "update" and (name, mesh) in self.shards
            if wish is None or stored or indices[wish] in uncut:
                continue
            index = filled.get(indices[wish], indices[wish])
            votes.setdefault(index, [0, 0])[name == step.output] += 1
            if (name, mesh) not in self.memory:
                meant.add(index)
        if not votes:
            return None
        best = max(votes, key=lambda index: votes[index])
        return best, best not in meant

    def uncut(self, step: OpStep, mesh: str) -> set[int]:
        """The loops that a step needs whole; tokens that fill slots of their own choose experts by themselves."""
        filled = self.filled(step, mesh)
        tied = {*filled, *filled.values()} if step.op.attribute("tied") else set[int]()
        return {*step.whole} - tied - ({*filled.values()} if step.op.kind == "route" else set())

    def modes(self, step: OpStep, mesh: str, pending: set[str]) -> list[Mode]:
        """The modes of a step, the wanted one first; ``pending`` are the tensors that may be partial sums."""
        op, own = step.op, self.own(step, mesh)
        if op.kind == "onehot" and self.graph.tensors[op.output].virtual:
            return [Mode()]  # never stored: every rank makes the part that is read
        if own is not None and op.kind == "update":
            return [Mode(own[0])]  # the states of an optimizer are updated where they are
        if own is not None and self.limited == {mesh: {COPIES}} and op.kind == "contraction" and len(op.inputs) == 1:
            loops = self.graph.index_axes(op)
            if COPIES in {loops[i] for i in {*op.indices[0]} ^ {*op.output_indices}}:
                return [Mode(own[0])]  # copies of the only head are made before they are exchanged, and added behind
        summing = step.part == "whole" and (op.kind == "convolution" or (op.kind == "contraction" and bool(op.summed)))
        made = self.graph.tensors[step.output]
        weight = made.role == "gradient" and self.graph.tensors[made.of].role == "weight"
        passing = [Mode(None, p) for p in self.passes(step, pending)]
        if own is not None and summing and (weight or (len(op.inputs) > 1 and not own[1])):
            return [Mode(own[0]), *(passing if own[1] else [])]
        whole = own is None and (summing or op.attribute("cast"))
        added = op.kind == "add" and (own is None or (step.output, mesh) in self.shards)
        if (whole or added) and weight and mesh in self.data and passing:
            return passing  # over the ranks that share the data, gradients of weights are what is summed, not of copies
        cuts, uncut, filled = [own[0]] if own is not None else [], self.uncut(step, mesh), self.filled(step, mesh)
        for name, indices in self.operands(step):
            if op.kind != "update" and (name, mesh) in self.shards:
                continue
            cuts += [filled.get(indices[p], indices[p]) for p in self.positions(name, mesh)]
        found = [Mode(i) for i in dict.fromkeys(cuts) if i not in uncut]
        return [*found, Mode(), *passing]

    def passes(self, step: OpStep, pending: set[str]) -> list[tuple[int, ...]]:
        """The operands that may be partial sums together, because the step is linear in them."""
        kind, count = step.op.kind, len(step.inputs)
        if step.part == "whole" and kind == "add":
            return [tuple(range(count))] if any(n in pending for n in step.inputs) else []
        if step.part == "whole" and kind == "contraction":
            if not {*step.output_indices} <= {i for indices in step.indices for i in indices}:
                return []  # a sum is smaller before it is repeated
            return [(j,) for j, n in enumerate(step.inputs) if n in pending and step.inputs.count(n) == 1]
        return [step.linear] if step.linear and all(step.inputs[j] in pending for j in step.linear) else []

    def needs(self, step: OpStep, mesh: str, mode: Mode) -> tuple[int, ...]:
        """The layouts of the operands that a mode needs."""
        if mode.cut is None and not mode.passing:
            return (WHOLE,) * len(step.inputs)
        found = [self.position(step, mesh, indices, mode, WHOLE) for indices in step.indices]
        for j in mode.passing:
            found[j] = EITHER if step.op.kind == "add" else PARTIAL
        if step.before is not None and mode.cut in whole_indices(step.op):
            found[step.before] = WHOLE
        return tuple(found)

    def position(self, step: OpStep, mesh: str, indices: tuple[int, ...], mode: Mode, otherwise: int) -> int:
        """The axis of a tensor that a mode cuts: that of the loop, or of the slots that go with it."""
        if mode.cut in indices:
            return indices.index(mode.cut)
        tied = [slot for slot, token in self.filled(step, mesh).items() if token == mode.cut and slot in indices]
        return indices.index(tied[0]) if tied else otherwise

    def filled(self, step: OpStep, mesh: str) -> dict[int, int]:
        """The loops over slots of an op, where a mesh axis cuts them with the tokens which fill them, and theirs.

        So are the positions of an image cut with the places of its windows.
        """
        if (tied := step.op.attribute("tied")) is not None or not self.slots:
            return dict(cast("Iterable[tuple[int, int]]", tied or ()))
        at = self.made[step.output], mesh
        if at not in self.tied:
            loops = {axis: index for index, axis in self.graph.index_axes(step.op).items()}
            self.tied[at] = {
                loops[slot]: loops[token] for slot, token in self.slots.items()
                if slot in loops and token in loops and slot in self.named[mesh]
            }  # fmt: skip
        return self.tied[at]

    def makes(self, step: OpStep, mesh: str, mode: Mode) -> int:
        """How a result comes out."""
        if mode.passing:
            return PARTIAL
        return WHOLE if mode.cut is None else self.position(step, mesh, step.output_indices, mode, PARTIAL)

    def leaves(self, name: str) -> bool:
        """Whether a result ends at its wanted place: nothing reads it, or another region does."""
        return not self.reading[name] or name in self.graph.crossing

    def places(self, name: str, mesh: str, pending: bool, needed: set[int], forward: set[int]) -> list[int]:
        """Where a tensor may rest; ``needed`` are the places that its readers may need."""
        tensor, wish = self.graph.tensors[name], self.wanted[name].get(mesh, WHOLE)
        step = self.steps[self.made[name]] if name in self.made else None
        if step is None or (self.leaves(name) and tensor.axes):
            # What the data do not cut has a gradient as a weight has it: each rank's part is summed where it is used.
            summed = pending and wish == WHOLE and mesh in self.data and name in self.graph.crossing
            return [PARTIAL] if summed and tensor.role == "gradient" else [wish]
        if step.reduces == "max":  # the largest of parts is no sum, so it never rests in parts
            return [*dict.fromkeys((wish, *sorted(needed, reverse=True), WHOLE))]
        weight = tensor.role == "gradient" and self.graph.tensors[tensor.of].role == "weight"
        if weight and (wish != WHOLE or mesh in self.whole) and name == f"d({tensor.of})":
            return [wish]
        # A product that only memory would cut, and that all read whole, need not be cut to be gathered again.
        product = step.op.kind == "contraction" and bool(step.op.summed) and len(step.inputs) > 1
        own = self.own(step, mesh) if product and tensor.role == "activation" and forward == {WHOLE} else None
        fixed = (name, mesh) in self.resting and not (own is not None and own[1])
        found = [wish] if fixed else [wish, *sorted(needed | {*self.positions(name, mesh)}, reverse=True), WHOLE]
        return [*dict.fromkeys(found), *([PARTIAL] if pending else [])]

    # -- one axis of the mesh ----------------------------------------------------------------------------------------

    def shape(self, mesh: str) -> Allowed:
        """The choices along one axis of the mesh, whatever the sizes are and however the other axes cut."""
        if mesh not in self.shapes:
            self.shapes[mesh] = self._shape(mesh)
        return self.shapes[mesh]

    def _shape(self, mesh: str) -> Allowed:
        # Most steps are like others, and most tensors: what is allowed is worked out once for each kind.
        pending: set[str] = set()
        ways: list[tuple[Way, ...]] = []
        kinds: dict[object, tuple[Way, ...]] = {}
        looks: dict[object, int] = {}
        look = {name: looks.setdefault(self.look(name, mesh), len(looks)) for name in self.names}
        for step in self.steps:
            kind = step.alike, *[(look[n], n in pending, step.inputs.index(n)) for n in step.inputs], look[step.output]
            if kind not in kinds:
                modes = self.modes(step, mesh, pending)
                kinds[kind] = tuple([Way(m, self.needs(step, mesh, m), self.makes(step, mesh, m)) for m in modes])
            ways.append(kinds[kind])
            if any(way.makes == PARTIAL for way in ways[-1]):
                pending.add(step.output)
        rests: list[tuple[int, ...]] = []
        places: dict[object, tuple[tuple[int, ...], list[_Fitting]]] = {}
        pairs: dict[tuple[int, int], _Fitting] = {}
        for v, (name, reading) in enumerate(self.reading.items(), len(ways)):
            near = [(n, js) for readers in reading.values() for n, js in readers.items()]
            if name in self.made:
                near.append((self.made[name], ()))
            seen = look[name], len(reading.get("forward", ())), *[(id(ways[n]), js) for n, js in near]
            if seen not in places:
                places[seen] = self._places(name, mesh, ways, name in pending, near)
            rests.append(places[seen][0])
            for (n, _), fitting in zip(near, places[seen][1], strict=True):
                if len(fitting) < len(ways[n]) * len(rests[-1]):  # a pair that allows all says nothing
                    pairs.setdefault((n, v), fitting)
        every: list[tuple[Any, ...]] = [*ways, *rests]
        kept: dict[tuple[int, Values], tuple[Any, ...]] = {}
        for v, domain in _narrowed([*map(len, every)], pairs).items():
            at = id(every[v]), domain
            every[v] = kept[at] if at in kept else kept.setdefault(at, tuple([every[v][k] for k in domain]))
        return Allowed(every[: len(ways)], every[len(ways) :])

    def _places(
        self, name: str, mesh: str, ways: Sequence[tuple[Way, ...]], pending: bool, near: list[tuple[int, Values]]
    ) -> tuple[tuple[int, ...], list[_Fitting]]:
        """Where a tensor may rest, and which ways of the steps that read and make it go with which place."""
        maker, still = self.made.get(name), self.graph.tensors[name].virtual
        needed = [(n, {way.needs[j] for way in ways[n] for j in js}) for n, js in near if js]
        every = {need for _, some in needed for need in some}
        forward = {need for n, some in needed for need in some if phase_of(self.steps[n]) == "forward"}
        if maker is not None and every == {EITHER} and {way.makes for way in ways[maker]} == {PARTIAL}:
            rests = [PARTIAL]  # what is only added to a sum that is still spread stays spread
        else:
            read = [{WHOLE if n == EITHER else n for n in some if n != PARTIAL} for some in (every, forward)]
            rests = self.places(name, mesh, pending, *read)
        fitting = [
            [
                (k, r) for k, way in enumerate(ways[n]) for r, place in enumerate(rests)
                if (_cheapest_copies((place,), tuple([(way.needs[j],) for j in js]), still) if js
                    else _reachable((way.makes,), (place,), still))
            ] for n, js in near
        ]  # fmt: skip
        return tuple(rests), fitting

    @cached_property
    def settled(self) -> list[Allowed]:
        """The open choices along each axis of the mesh: where an axis can be settled alone, nothing.

        It can where no tensor that could be made or read otherwise moves or is copied along it, each is cut if it can
        be, and no axis that is not settled cuts the same: nothing else is cheaper then, whatever the other axes do.
        """
        shapes = [self.shape(mesh) for mesh in self.meshes]
        alone: list[Allowed | None] = [self.alone(shape, []) for shape in shapes]
        while None in alone and len(alone) > 1:
            left = [shape for shape, found in zip(shapes, alone, strict=True) if found is None]
            again = [found and self.alone(shape, left) for shape, found in zip(shapes, alone, strict=True)]
            if again.count(None) == alone.count(None):
                break
            alone = again
        return [found or shape for shape, found in zip(shapes, alone, strict=True)]

    def alone(self, shape: Allowed, others: Sequence[Allowed]) -> Allowed | None:
        """The one answer along an axis of the mesh that is the cheapest whatever others do; None where that is open."""
        number = {name: t for t, name in enumerate(self.names)}
        rests = [every[0] for every in shape.rests]
        chosen: list[int] = []
        for step, ways in zip(self.steps, shape.ways, strict=True):
            at = [rests[number[name]] for name in step.inputs]
            fits = [k for k, way in enumerate(ways) if all(map(_lies, at, way.needs))] if len(ways) > 1 else [0]
            chosen.append((*fits, 0)[0])
            made, t = ways[chosen[-1]].makes, number[step.output]
            if made not in (rests[t], WHOLE) and made in shape.rests[t]:
                rests[t] = made
        for t, (name, reading) in enumerate(self.reading.items()):
            maker, every, rest = self.made.get(name), shape.rests[t], rests[t]
            makes = every[:1] if maker is None else [way.makes for way in shape.ways[maker]]
            made = every[0] if maker is None else makes[chosen[maker]]
            reads = [(n, j) for readers in reading.values() for n, js in readers.items() for j in js]
            wants = [{way.needs[j] for way in shape.ways[n]} for n, j in reads]
            if len(every) == len({*makes}) == 1 and all(len(some) == 1 for some in wants):
                continue
            read = [shape.ways[n][chosen[n]].needs[j] for n, j in reads]
            elsewhere = {
                p for o in others
                for p in (*o.rests[t], *(way.makes for way in (o.ways[maker] if maker is not None else ())),
                          *(way.needs[j] for n, j in reads for way in o.ways[n]))
            }  # fmt: skip
            if (
                (rest < 0 and any(p >= 0 for p in (*every, *makes)))
                or (made != rest and {*makes} != {WHOLE})
                or not all(_lies(rest, need) for need in read)
                or any(p >= 0 and p in elsewhere for p in (rest, *read))
            ):
                return None
        return shape.only(chosen, rests)

    # -- prices ------------------------------------------------------------------------------------------------------

    @cached_property
    def tables(self) -> _Tables:
        """The prices of all answers, worked out once for all sizes."""
        return self.tables_of(self.settled)

    def tables_of(self, shapes: Sequence[Allowed]) -> _Tables:
        """The values of each variable, what their choice costs, whatever the sizes are, and which are of each tensor.

        The variables are the modes of each step along all axes of the mesh, where each tensor rests, and its copies
        in a phase where several readers may share them; of a single one, its mode says what is copied.
        """
        modes = [_all_of(*[len(s.ways[n]) for s in shapes]) for n in range(len(self.steps))]
        values: list[Sequence[Any]] = [*modes]
        tables: list[_Table] = []
        places: list[int] = []
        held: dict[tuple[str, RunPhase], int] = {}
        for t, (name, reading) in enumerate(self.reading.items()):
            still, keeps = self.graph.tensors[name].virtual, tuple([self.keeps(name, m) for m in self.meshes])
            v, rests = len(values), _joint(*[s.rests[t] for s in shapes])
            values.append(rests)
            places.append(v)
            n = self.made.get(name, -1)
            if n >= 0 and len(modes[n]) * len(rests) > 1:
                wish = [self.wanted[name].get(mesh, WHOLE) for mesh in self.meshes]
                prices: dict[Values, tuple[int, int]] = {}
                for k, mode in enumerate(modes[n]):
                    made = tuple([s.ways[n][i].makes for s, i in zip(shapes, mode, strict=True)])
                    for r, rest in enumerate(rests):
                        if _reachable(made, rest, still):
                            units, calls, _ = move(made, rest)
                            unwanted = sum([(a != w) + (b != w) for a, b, w in zip(made, rest, wish, strict=True)])
                            prices[k, r] = units, calls * _CALLS + unwanted
                tables.append((name, (n, v), prices))
            before = -1
            for phase, readers in reading.items():
                several = [n for n in readers if len(modes[n]) > 1]
                shared = len(several) > 1 or (any(keeps) and len(reading) > 1 and not still)
                if not shared and not several and len(rests) == 1:
                    continue  # nothing to choose
                wants = {n: [_wants(shapes, n, js, mode) for mode in modes[n]] for n, js in readers.items()}
                if not shared:
                    prices, (n,) = {}, several or [*readers][:1]
                    others = tuple([need for m, some in wants.items() if m != n for need in some[0]])
                    for r, rest in enumerate(rests):
                        for k, want in enumerate(wants[n]):
                            found = _cheapest_copies(rest, (*want, *others), still)
                            if found is not None:
                                prices[k, r] = found[0], found[1] * _CALLS
                    tables.append((name, (n, v), prices))
                    continue
                w = held[name, phase] = len(values)
                linked = any(keeps) and len(reading) > 1
                ways: list[_Held] = []
                link: dict[Values, tuple[int, int]] = {}
                served: dict[int, dict[Values, tuple[int, int]]] = {n: {} for n in several}
                for r, rest in enumerate(rests):
                    for copies, sent, able in _choices(rest, wants, still, linked):
                        link[r, len(ways)] = (0, 0) if linked and before >= 0 else (sent[0], sent[1] * _CALLS)
                        for n, k in able:
                            served[n][k, len(ways)] = 0, 0
                        ways.append((rest, copies))
                values.append(ways)
                tables += [(name, (v, w), link), *((name, (n, w), some) for n, some in served.items())]
                if linked and before >= 0:
                    kept: dict[Values, tuple[int, int]] = {}
                    for p, earlier in enumerate(values[before]):
                        there = _over(earlier, keeps)
                        for q, at in enumerate(ways):
                            if earlier[0] == at[0]:
                                units, calls = _copying(*at, there)
                                kept[p, q] = units, calls * _CALLS
                    tables.append((name, (before, w), kept))
                before = w
        return values, tables, places, held


@lru_cache(maxsize=1 << 14)
def _joint(*every: tuple[int, ...]) -> tuple[State, ...]:
    """All combinations of places along the axes of the mesh."""
    return tuple(product(*every))


def _all_of(*sizes: int) -> tuple[Values, ...]:
    """The numbers of all combinations of ways."""
    return _joint(*[tuple(range(size)) for size in sizes])


@lru_cache
def _together(before: tuple[int, ...], j: int) -> tuple[int, ...]:
    """Operands with one more of them: one tuple for all steps that read a tensor so."""
    return (*before, j)


def _wants(shapes: Sequence[Allowed], number: int, operands: Sequence[int], mode: Values) -> tuple[State, ...]:
    """What a mode of a step needs of some of its operands."""
    rows = [shape.ways[number][i].needs for shape, i in zip(shapes, mode, strict=True)]
    return tuple([tuple([row[j] for row in rows]) for j in operands])


# -- from one state to another: these know neither the tensor nor the names of the mesh ------------------------------


class Move(NamedTuple):
    """The payload of a move, in parts of ``1/RANKS`` of a tensor for each axis of the mesh, its calls, and its end.

    What is there at the end may be more than what was needed: to drop a part of it costs nothing.
    """

    units: int
    calls: int
    after: State


@lru_cache(maxsize=1 << 14)
def move(have: State, need: State) -> Move:
    """The calls from one state to another; what is sent is without a factor of (k - 1)/k."""
    units = calls = 0
    names = [str(n) for n in range(len(have))]
    now, wanted = ({m: p for m, p in zip(names, s, strict=True) if p != WHOLE} for s in (have, need))
    for kind, group, before, after in moves(now, wanted, names):
        local = RANKS ** (len(names) - sum(p != PARTIAL for m, p in before.items() if m not in group))
        units += {"all-reduce": 2 * local, "all-to-all": local // RANKS ** len(group)}.get(kind, local)
        calls += 1
        now = after
    return Move(units, calls, tuple([now.get(m, WHOLE) for m in names]))


@lru_cache(maxsize=1 << 14)
def resolved(rest: State, need: Sequence[int]) -> State | None:
    """The share of a resting tensor that a reader needs; None where none can be made: a sum is never copied."""
    found = tuple([
        r if r == PARTIAL and n == EITHER else WHOLE if n == EITHER else n
        for r, n in zip(rest, need, strict=True)
    ])  # fmt: skip
    return found if all((r == PARTIAL) == (n == PARTIAL) for r, n in zip(rest, found, strict=True)) else None


@lru_cache
def _lies(rest: int, need: int) -> bool:
    """Whether what is needed along one axis of the mesh lies where a tensor rests."""
    return _served(((rest,), ()), ((need,),))


@lru_cache(maxsize=1 << 14)
def _reachable(made: State, rest: State, still: bool) -> bool:
    """Whether a result may rest there: sums do not come back, and what is never stored is not moved."""
    if any(r == PARTIAL != m for m, r in zip(made, rest, strict=True)):
        return False
    return not (still and move(made, rest).calls)


@lru_cache(maxsize=1 << 14)
def _copies(rest: State, slots: tuple[frozenset[State], ...]) -> tuple[tuple[State, ...], ...]:
    """The copies that readers may ask for; each of ``slots`` is what one operand may be needed as.

    None, one that serves them all, or two.
    """
    ways: list[set[State]] = []
    for slot in slots:
        needs = {resolved(rest, need) for need in slot} - {None}
        ways.append({found.after for found in (move(rest, need) for need in needs if need) if found.calls})
    one, two = set().union(*ways), set()
    for a, b in ((a, b) for some, more in combinations(ways, 2) for a in some for b in more if a != b):
        one.add(move(rest, tuple([x if x == y else WHOLE for x, y in zip(a, b, strict=True)])).after)
        if move(a, b).calls and move(b, a).calls:
            two.add((min(a, b), max(a, b)))
    return ((), *((a,) for a in sorted(one)), *sorted(two))


@lru_cache(maxsize=1 << 16)
def _served(held: _Held, needs: tuple[State, ...]) -> bool:
    """Whether readers find what they need where a tensor rests, or in a copy."""
    rest, copies = held
    found = [resolved(rest, need) for need in needs]
    return all(need is not None and not all(move(at, need).calls for at in (rest, *copies)) for need in found)


@lru_cache(maxsize=1 << 16)
def _cheapest_copies(rest: State, needs: tuple[State, ...], still: bool) -> tuple[int, int, tuple[State, ...]] | None:
    """What the cheapest copies for some readers send, their calls, and the copies; None where there are none."""
    ways = ((),) if still else _copies(rest, tuple([frozenset({need}) for need in needs]))
    return min(((*_copying(rest, c), c) for c in ways if _served((rest, c), needs)), default=None)


def _choices(
    rest: State, wants: Mapping[int, Sequence[tuple[State, ...]]], still: bool, linked: bool
) -> list[tuple[tuple[State, ...], tuple[int, int], set[tuple[int, int]]]]:
    """The copies that readers may share, what they send, and the modes that they serve of readers that have several.

    Those are left out that send no less and serve no more than others; ``linked`` ones may be kept for the next phase.
    """
    fixed = tuple([need for some in wants.values() if len(some) == 1 for need in some[0]])
    slots = tuple([frozenset(some) for ws in wants.values() for some in zip(*ws, strict=True)])
    found = [
        (c, _copying(rest, c), {
            (n, k) for n, some in wants.items() if len(some) > 1
            for k, want in enumerate(some) if _served((rest, c), want)
        })
        for c in (((),) if still else _copies(rest, slots)) if _served((rest, c), fixed)
    ]  # fmt: skip
    found.sort(key=lambda one: one[1])
    return [
        one for n, one in enumerate(found)
        if not any(one[2] <= other[2] and (not linked or {*other[0]} <= {*one[0]}) for other in found[:n])
    ]  # fmt: skip


@lru_cache(maxsize=1 << 14)
def _copying(rest: State, copies: tuple[State, ...], there: tuple[State, ...] = ()) -> tuple[int, int]:
    """What copies send, and their calls, from where a tensor rests or from other copies."""
    if not copies:
        return 0, 0
    ways = []
    for first in copies:
        units, calls, _ = min(move(at, first) for at in (rest, *there))
        more = _copying(rest, tuple([c for c in copies if c != first]), (*there, first))
        ways.append((units + more[0], calls + more[1]))
    return min(ways)


@lru_cache(maxsize=1 << 14)
def _over(held: _Held, keeps: tuple[bool, ...]) -> tuple[State, ...]:
    """The copies that are kept until the next phase: those that differ along axes of the mesh where they are kept."""
    rest, copies = held
    return tuple([c for c in copies if all(k or a == b for a, b, k in zip(rest, c, keeps, strict=True))])


def _narrowed(sizes: Sequence[int], pairs: Mapping[tuple[int, int], _Fitting]) -> dict[int, Values]:
    """The values that some value of each neighbour allows, of variables with so many, where any are taken out."""
    near: dict[int, list[tuple[int, int]]] = {}
    for pair in pairs:
        for v in pair:
            near.setdefault(v, []).append(pair)
    domains: dict[int, Values] = {}
    queue = list(pairs)
    while queue:
        pair = queue.pop()
        a, b = [domains.get(v) for v in pair]
        allowed = [(i, j) for i, j in pairs[pair] if (a is None or i in a) and (b is None or j in b)]
        for n, v in enumerate(pair):
            left = {one[n] for one in allowed}
            domain = domains.get(v, range(sizes[v]))
            if len(left) < len(domain):
                domains[v] = tuple([k for k in domain if k in left])
                assert domains[v], "a step finds no operand that it can read"
                queue += [p for p in near[v] if p != pair]
    return domains
