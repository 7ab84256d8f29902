"""Where each op cuts its loops and where each tensor rests, so that the least bytes are sent.

Along one axis of the mesh an op has a few modes: it cuts one of its loops, it runs whole on every rank, or it lets a
partial sum pass. A tensor has a few resting places, and copies of it in each phase. The price of a plan is a sum over
tensors of the bytes sent from where they are made to where they rest, and from there to where they are read; the least
is found exactly, by elimination. With several axes of the mesh, each is solved given the others, until none changes.

What is not free: products, and what makes a weight's gradient, stay cut where the strategy cuts them; weights,
what comes from outside or leaves, and what a rule puts somewhere to save memory rest at their wanted places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import field
from functools import cached_property
from typing import Any, Literal

from symcomm.graph.graph import Graph
from symcomm.parallel.elimination import PriceTable, cheapest
from symcomm.parallel.layouts import PARTIAL, Positions, moves
from symcomm.parallel.lowering import Piece
from symcomm.parallel.strategy import Placed
from symcomm.records import dataclass

WHOLE, EITHER = -2, -3  # besides positions and PARTIAL: on every rank; for an addend: whole, or a partial sum
RANKS = 4  # of each axis of the mesh, where prices are compared
RunPhase = Literal["forward", "backward", "update"]
PHASES: tuple[RunPhase, ...] = ("forward", "backward", "update")
_BYTES, _CALLS = 1 << 24, 1 << 12  # bytes count before calls, and calls before places that were not wanted


@dataclass(frozen=True)
class Mode:
    """How an op runs along one axis of the mesh: the loop that is cut, and the operands that are partial sums."""

    cut: int | None = None
    passing: tuple[int, ...] = ()


@dataclass(frozen=True)
class Rest:
    """Where a tensor rests along one axis of the mesh, and in which phases another copy of it is made, and how cut."""

    place: int
    copies: tuple[tuple[str, int], ...] = ()

    def has(self, phase: str, need: int, keep: bool) -> bool:
        """Whether a reader finds what it needs: a part of what is there is there, too."""
        if self.place == PARTIAL:
            return need in (PARTIAL, EITHER)
        need = WHOLE if need == EITHER else need
        there = [self.place, *(place for at, place in self.copies if at == phase or (keep and _before(at, phase)))]
        return need in there or (need >= 0 and WHOLE in there)


def _before(a: str, b: str) -> bool:
    return PHASES.index(a) < PHASES.index(b)


@dataclass(frozen=True)
class Choice:
    """The answer, by axis of the mesh: the mode of each step, and how each tensor rests."""

    modes: Mapping[str, Sequence[Mode]]
    rests: Mapping[str, Mapping[str, Rest]]


@dataclass(frozen=True)
class Allowed:
    """What is allowed along one axis of the mesh: the modes of each step and the ways each tensor may rest.

    ``domains`` are the numbers of those that some choice of all others allows, ``pairs`` what two of them allow.
    """

    modes: list[list[Mode]]
    rests: list[list[Rest]]
    domains: list[list[int]]
    pairs: Mapping[tuple[int, int], list[tuple[int, int]]]


def phase_of(piece: Piece) -> RunPhase:
    """The phase that a step runs in."""
    return "update" if piece.op.kind == "update" else piece.op.phase


@dataclass
class PlacementProblem:
    """The question: steps and tensors, wanted places, and the sizes at which prices are compared.

    ``memory`` are (tensor, mesh axis) that a rule puts somewhere to save memory, ``resting`` those that rest there;
    ``whole`` are the axes of the mesh along which gradients of weights rest as they are wanted;
    ``shards`` those of weights, gradients and states that are stored in parts but not computed with in parts.
    ``keeps`` says whether copies of a tensor are kept from one phase to the next. ``slots`` gives for an axis of
    experts' slots that of the tokens that fill them: where tokens are cut, each rank's tokens fill its own slots.
    """

    graph: Graph
    steps: tuple[Piece, ...]
    rules: tuple[Placed, ...]
    meshes: tuple[str, ...]
    wanted: Mapping[str, Mapping[str, int]]
    memory: frozenset[tuple[str, str]]
    resting: frozenset[tuple[str, str]]
    shards: frozenset[tuple[str, str]]
    keeps: Callable[[str, str], bool]
    sizes: Mapping[str, int]
    slots: Mapping[str, str] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    made: dict[str, int] = field(init=False, default_factory=dict)
    readers: dict[str, list[tuple[int, int]]] = field(init=False, default_factory=dict)
    known: dict[object, tuple[int, int]] = field(init=False, default_factory=dict)
    tied: dict[int, dict[int, int]] = field(init=False, default_factory=dict)
    shapes: dict[str, Allowed] = field(init=False, default_factory=dict)
    conditions: Any = field(init=False, default=None)  # where the choice is the cheapest, once it was asked for

    def __post_init__(self) -> None:
        for number, step in enumerate(self.steps):
            self.made[step.output] = number
            for j, name in enumerate(step.inputs):
                self.readers.setdefault(name, []).append((number, j))
        self.names = list(dict.fromkeys(n for s in self.steps for n in (*s.inputs, s.output)))

    def at(self, sizes: Mapping[str, int]) -> PlacementProblem:
        """The same question at other sizes; what does not depend on them is worked out once for both."""
        other = copy(self)
        other.sizes = sizes
        return other

    # -- the whole mesh ------------------------------------------------------------------------------------------

    def solve(self) -> Choice:
        """The cheapest modes and resting places."""
        modes: dict[str, list[Mode]] = {}
        rests: dict[str, dict[str, Rest]] = {}
        # How a tensor is made and rests along each axis; first as it is wanted.
        self.states = {
            mesh: {name: (self.wanted[name].get(mesh, WHOLE),) * 2 for name in self.names} for mesh in self.meshes
        }
        seen: dict[str, object] = {}
        for _ in range(3):
            before = dict(seen)
            for mesh in self.meshes:
                others = {m: s for m, s in self.states.items() if m != mesh}
                if seen.get(mesh) == others:
                    continue
                seen[mesh] = {m: dict(s) for m, s in others.items()}
                modes[mesh], rests[mesh] = self.along(mesh)
                self.states[mesh] = {
                    name: (
                        self.makes(self.made[name], mesh, modes[mesh][self.made[name]])
                        if name in self.made else rests[mesh][name].place, rests[mesh][name].place,
                    )
                    for name in self.names
                }  # fmt: skip
            if seen == before or len(self.meshes) == 1:
                break
        return Choice(modes, rests)

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
        small = not self.features & {*self.graph.tensors[name].axes}  # a number a token: memory has no say
        named = self.meant[mesh] if small else self.named[mesh]
        found = [p for p, a in enumerate(self.graph.tensors[name].axes) if a in named]
        wish = self.wanted[name].get(mesh)
        return tuple(found) if wish is None or wish in found else (*found, wish)

    def operands(self, step: Piece) -> list[tuple[str, tuple[int, ...]]]:
        return [*zip(step.inputs, step.indices, strict=True), (step.output, step.output_indices)]

    def own(self, step: Piece, mesh: str) -> tuple[int, bool] | None:
        """The loop that the strategy cuts: that of most operands as wanted, then of the result, then the first.

        Also whether only a rule about resting places says so. A shard of a weight is a way to store it.
        """
        votes: dict[int, list[int]] = {}
        meant: set[int] = set()
        for name, indices in self.operands(step):
            wish = self.wanted[name].get(mesh)
            stored = step.op.kind != "update" and (name, mesh) in self.shards
            if wish is None or stored or indices[wish] in self.uncut(step, mesh):
                continue
            index = self.filled(step).get(indices[wish], indices[wish])
            votes.setdefault(index, [0, 0])[name == step.output] += 1
            if (name, mesh) not in self.memory:
                meant.add(index)
        if not votes:
            return None
        best = max(votes, key=lambda index: votes[index])
        return best, best not in meant

    def uncut(self, step: Piece, mesh: str) -> set[int]:
        """The loops that a step needs whole; tokens that fill slots of their own choose experts by themselves."""
        own = self.filled(step).items() if step.op.kind == "route" else ()
        return {*step.whole} - {token for slot, token in own if self.axis(step, slot) in self.named[mesh]}

    def axis(self, step: Piece, index: int) -> str:
        return self.graph.index_axes(step.op)[index]

    def modes(self, step: Piece, mesh: str, pending: set[str]) -> list[Mode]:
        """The modes of a step, the wanted one first; ``pending`` are the tensors that may be partial sums."""
        op, own = step.op, self.own(step, mesh)
        if op.kind == "onehot":
            return [Mode()]  # never stored: every rank makes the part that is read
        if own is not None and op.kind == "update":
            return [Mode(own[0])]  # the states of an optimizer are updated where they are
        summing = step.part == "whole" and (op.kind == "convolution" or (op.kind == "contraction" and bool(op.summed)))
        made = self.graph.tensors[step.output]
        weight = made.role == "gradient" and self.graph.tensors[made.of].role == "weight"
        passing = [Mode(None, p) for p in self.passes(step, pending)]
        if own is not None and summing and (weight or (len(op.inputs) > 1 and not own[1])):
            return [Mode(own[0]), *(passing if own[1] else [])]
        if own is None and weight and (summing or op.attribute("cast")) and mesh in self.data and passing:
            return passing  # over the ranks that share the data, gradients of weights are what is summed, not of copies
        cuts = [own[0]] if own is not None else []
        for name, indices in self.operands(step):
            if op.kind != "update" and (name, mesh) in self.shards:
                continue
            cuts += [self.filled(step).get(indices[p], indices[p]) for p in self.positions(name, mesh)]
        found = [Mode(i) for i in dict.fromkeys(cuts) if i not in self.uncut(step, mesh)]
        return [*found, Mode(), *passing]

    def passes(self, step: Piece, pending: set[str]) -> list[tuple[int, ...]]:
        """The operands that may be partial sums together, because the step is linear in them."""
        kind, count = step.op.kind, len(step.inputs)
        if step.part == "whole" and kind == "add":
            return [tuple(range(count))] if any(n in pending for n in step.inputs) else []
        if step.part == "whole" and kind == "contraction":
            if not {*step.output_indices} <= {i for indices in step.indices for i in indices}:
                return []  # a sum is smaller before it is repeated
            return [(j,) for j, n in enumerate(step.inputs) if n in pending and step.inputs.count(n) == 1]
        return [step.linear] if step.linear and all(step.inputs[j] in pending for j in step.linear) else []

    def needs(self, step: Piece, mode: Mode, j: int) -> int:
        """What a mode needs of an operand."""
        if j in mode.passing:
            return EITHER if step.op.kind == "add" else PARTIAL
        found = self.position(step, step.indices[j], mode)
        return WHOLE if found is None else found

    def position(self, step: Piece, indices: tuple[int, ...], mode: Mode) -> int | None:
        """Which axis of a tensor a mode cuts: that of the loop, or of the slots that go with it."""
        if mode.cut in indices:
            return indices.index(mode.cut)
        tied = [slot for slot, token in self.filled(step).items() if token == mode.cut and slot in indices]
        return indices.index(tied[0]) if tied else None

    def filled(self, step: Piece) -> dict[int, int]:
        """The loops over slots of an op that also runs over the tokens which fill them."""
        number = self.made[step.output]
        if number not in self.tied:
            axes = self.graph.index_axes(step.op) if self.slots else {}
            loops = {axis: index for index, axis in axes.items()}
            self.tied[number] = {
                loops[slot]: loops[token] for slot, token in self.slots.items() if slot in loops and token in loops
            }
        return self.tied[number]

    def makes(self, number: int, mesh: str, mode: Mode) -> int:
        """How a result comes out."""
        step = self.steps[number]
        if mode.passing:
            return PARTIAL
        if mode.cut is None:
            return WHOLE
        found = self.position(step, step.output_indices, mode)
        return PARTIAL if found is None else found

    def leaves(self, name: str) -> bool:
        """Whether a result ends at its wanted place: nothing reads it, or another region does."""
        return name not in self.readers or name in self.graph.crossing

    def places(self, name: str, mesh: str, pending: bool, needed: set[int], forward: set[int]) -> list[int]:
        """Where a tensor may rest; ``needed`` are the places that its readers may need."""
        tensor, wish = self.graph.tensors[name], self.wanted[name].get(mesh, WHOLE)
        step = self.steps[self.made[name]] if name in self.made else None
        if step is None or (self.leaves(name) and tensor.axes):
            # What the data do not cut has a gradient as a weight has it: each rank's part is summed where it is used.
            summed = pending and wish == WHOLE and mesh in self.data and name in self.graph.crossing
            return [PARTIAL] if summed and tensor.role == "gradient" else [wish]
        if step.reduces == "max":  # the largest of parts is no sum, so it never rests in parts
            return [*dict.fromkeys((wish, WHOLE))]
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
        """What is allowed along one axis of the mesh, whatever the sizes are and however the other axes cut."""
        if mesh not in self.shapes:
            self.shapes[mesh] = self._shape(mesh)
        return self.shapes[mesh]

    def _shape(self, mesh: str) -> Allowed:
        pending: set[str] = set()
        modes: list[list[Mode]] = []
        for number, step in enumerate(self.steps):
            modes.append(self.modes(step, mesh, pending))
            if any(self.makes(number, mesh, mode) == PARTIAL for mode in modes[-1]):
                pending.add(step.output)
        rests = [self.rests(name, mesh, modes, name in pending) for name in self.names]
        domains: list[list[int]] = [[*range(len(m))] for m in modes] + [[*range(len(r))] for r in rests]
        first = len(modes)
        pairs: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for n, name in enumerate(self.names):
            keep = self.keeps(name, mesh)
            by_reader: dict[int, list[int]] = {}
            for number, j in self.readers.get(name, ()):
                by_reader.setdefault(number, []).append(j)
            for number, js in by_reader.items():
                step = self.steps[number]
                phase = phase_of(step)
                wants = [[self.needs(step, mode, j) for j in js] for mode in modes[number]]
                pairs[number, first + n] = [
                    (k, r) for k, want in enumerate(wants) for r, rest in enumerate(rests[n])
                    if all(rest.has(phase, need, keep) for need in want)
                ]  # fmt: skip
        _narrow(domains, pairs)
        return Allowed(modes, rests, domains, pairs)

    def along(self, mesh: str) -> tuple[list[Mode], dict[str, Rest]]:
        """The cheapest answer along one axis of the mesh, the others being as they are."""
        shape = self.shape(mesh)
        modes, rests, domains, pairs = shape.modes, shape.rests, shape.domains, shape.pairs
        first = len(modes)
        at = {name: first + n for n, name in enumerate(self.names)}
        tables: list[PriceTable] = []
        free = {v: n for n, v in enumerate(v for v, d in enumerate(domains) if len(d) > 1)}

        def table(variables: tuple[int, ...], prices: Mapping[tuple[int, ...], int]) -> None:
            """A table of the variables that are open; of the others the only value is taken."""
            kept = [n for n, v in enumerate(variables) if v in free]
            if kept:
                found = {tuple([values[n] for n in kept]): price for values, price in prices.items()}
                tables.append(PriceTable(tuple(free[variables[n]] for n in kept), found))

        for (a, b), allowed in pairs.items():
            if a in free and b in free:
                table((a, b), {(i, j): 0 for i, j in allowed if i in domains[a] and j in domains[b]})
        for n, name in enumerate(self.names):
            v, wish = at[name], self.wanted[name].get(mesh, WHOLE)
            copying: dict[tuple[int, ...], int] = {}
            if v in free:
                copying = {(r,): self.copying(name, mesh, rests[n][r]) for r in domains[v]}
            table((v,), copying)
            if name not in self.made:
                continue
            number = self.made[name]
            if v not in free and number not in free:
                continue
            prices: dict[tuple[int, ...], int] = {}
            for k in domains[number]:
                made = self.makes(number, mesh, modes[number][k])
                for r in domains[v]:
                    price = self.price(name, mesh, made, rests[n][r].place)
                    if price is not None:
                        prices[k, r] = price + (made != wish) + (rests[n][r].place != wish)
            table((number, v), prices)
        answer = cheapest(tables, len(free))
        assert answer is not None, f"nothing is allowed along {mesh}"
        value = {v: domains[v][0] for v in range(len(domains)) if v not in free}
        value |= {v: answer[1][n] for v, n in free.items()}
        return (
            [m[value[n]] for n, m in enumerate(modes)],
            {name: rests[n][value[first + n]] for n, name in enumerate(self.names)},
        )

    def rests(self, name: str, mesh: str, modes: list[list[Mode]], pending: bool) -> list[Rest]:
        """The ways a tensor may rest, with the copies that its readers might need."""
        needed: dict[str, set[int]] = {}
        for number, j in self.readers.get(name, ()):
            step = self.steps[number]
            found = {self.needs(step, mode, j) for mode in modes[number]}
            needed.setdefault(phase_of(step), set()).update(WHOLE if n == EITHER else n for n in found if n != PARTIAL)
        result: list[Rest] = []
        for place in self.places(
            name, mesh, pending, {n for some in needed.values() for n in some}, needed.get("forward", set())
        ):
            ways: list[tuple[tuple[str, int], ...]] = [()]
            if place >= 0 and not self.graph.tensors[name].virtual:
                for phase in PHASES:
                    more = sorted(needed.get(phase, set()) - {place})
                    ways = [*ways, *((*way, (phase, copy)) for way in ways for copy in more)]
            result += [Rest(place, way) for way in ways]
        return result

    # -- prices ------------------------------------------------------------------------------------------------------

    def copying(self, name: str, mesh: str, rest: Rest) -> int:
        """The price of the copies of a tensor."""
        total = 0
        for n, (phase, place) in enumerate(rest.copies):
            if self.keeps(name, mesh) and Rest(rest.place, rest.copies[:n]).has(phase, place, True):
                continue
            price = self.price(name, mesh, rest.place, place, copies=True)
            assert price is not None
            total += price
        return total

    def price(self, name: str, mesh: str, have: int, need: int, copies: bool = False) -> int | None:
        """The price of moving a tensor along one axis of the mesh; None where it cannot be moved.

        Along the other axes it moves from how it is made to where it rests, or rests, where it is only copied.
        """
        tensor = self.graph.tensors[name]
        if need == PARTIAL and have != PARTIAL:
            return None
        if have in (need, WHOLE):
            if all(s[name][0] == s[name][1] for m, s in self.states.items() if m != mesh):
                return 0
        elif tensor.virtual:
            return None
        before, after = {mesh: have}, {mesh: need}
        for other, states in self.states.items():
            if other != mesh:
                made, rests = states[name]
                before[other], after[other] = (rests if copies else made), rests
        key = (self.sizes[name], tuple(before.items()), tuple(after.items()))
        if key not in self.known:
            self.known[key] = self.sent(self.sizes[name], before, after)
        sent, calls = self.known[key]
        return sent * _BYTES + calls * _CALLS

    def sent(self, size: int, have: Positions, need: Positions) -> tuple[int, int]:
        """The bytes that a rank sends between two layouts, but for a factor of (k - 1)/k, and the calls."""
        sent = calls = 0
        now = {m: p for m, p in have.items() if p != WHOLE}
        wanted = {m: p for m, p in need.items() if p != WHOLE}
        for kind, group, after in moves(now, wanted, self.meshes):
            local = size // RANKS ** sum(p != PARTIAL for m, p in now.items() if m not in group)
            sent += {"all-reduce": 2 * local, "all-to-all": local // RANKS}.get(kind, local)
            calls += 1
            now = after
        return sent, calls


def _narrow(domains: list[list[int]], pairs: dict[tuple[int, int], list[tuple[int, int]]]) -> None:
    """Takes out of the domains what no value of a neighbour allows, until all that is left is allowed by some."""
    near: dict[int, list[tuple[int, int]]] = {}
    for a, b in pairs:
        near.setdefault(a, []).append((a, b))
        near.setdefault(b, []).append((a, b))
    queue = list(pairs)
    while queue:
        pair = queue.pop()
        a, b = pair
        mine, theirs = set(domains[a]), set(domains[b])
        allowed = [(i, j) for i, j in pairs[pair] if i in mine and j in theirs]
        for v, left in ((a, {i for i, _ in allowed}), (b, {j for _, j in allowed})):
            if len(left) < len(domains[v]):
                domains[v] = [x for x in domains[v] if x in left]
                assert domains[v], "a step finds no operand that it can read"
                queue += [p for p in near[v] if p != pair]
        pairs[pair] = allowed
