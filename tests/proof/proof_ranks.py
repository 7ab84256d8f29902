"""Every rank of a mesh run in NumPy: each holds its own blocks, and sees another rank only through a collective.

A plan is followed step by step. A computation runs on each rank's blocks; a collective hands blocks between the ranks
of one group, and nothing else does. What a step reads must be there: a block that a rank does not hold is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

import numpy as np
from api import PARTIAL, Accounting, Collective, Compute, Layout, Plan
from proof_maps import compute_part, parts
from proof_reference import Array, ShapeMismatchError, Sizes, compute

Coordinates = tuple[int, ...]
Block = tuple[tuple[int, int], ...]  # for each axis of a tensor, where a rank's part begins and ends


class MissingBlockError(Exception):
    """A rank would need numbers that it does not hold."""


class WrongCallError(Exception):
    """A collective does not do what its name and its layouts say."""


# Whether each collective finishes a sum, and whether its result is cut.
FORMS = {
    "all-reduce": (True, False),
    "reduce-scatter": (True, True),
    "all-gather": (False, False),
    "all-to-all": (False, True),
}


@dataclass(frozen=True)
class Mesh:
    """Named axes with sizes; a rank is its coordinates."""

    sizes: Mapping[str, int]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(self.sizes)

    @cached_property
    def ranks(self) -> tuple[Coordinates, ...]:
        return tuple(product(*(range(n) for n in self.sizes.values())))

    def coordinate(self, rank: Coordinates, name: str) -> int:
        return rank[self.names.index(name)]

    def groups(self, names: tuple[str, ...]) -> list[list[Coordinates]]:
        """The ranks that differ only along some axes of the mesh, in the order of those coordinates."""
        found: dict[Coordinates, list[Coordinates]] = {}
        for rank in self.ranks:
            same = tuple(c for c, name in zip(rank, self.names, strict=True) if name not in names)
            found.setdefault(same, []).append(rank)
        return list(found.values())

    def part(self, length: int, meshes: Iterable[str], rank: Coordinates) -> tuple[int, int]:
        """A rank's part of an axis that is cut by mesh axes, the first one outermost."""
        start = 0
        for name in meshes:
            if length % self.sizes[name]:
                raise ShapeMismatchError(f"{length} is not divisible by {self.sizes[name]} ({name})")
            length //= self.sizes[name]
            start += length * self.coordinate(rank, name)
        return start, start + length


def inside(block: Block, other: Block) -> bool:
    return all(a >= c and b <= d for (a, b), (c, d) in zip(block, other, strict=True))


def volume(block: Block) -> int:
    return int(np.prod([b - a for a, b in block], dtype=int))


def common(block: Block, other: Block) -> int:
    return int(np.prod([max(0, min(b, d) - max(a, c)) for (a, b), (c, d) in zip(block, other, strict=True)], dtype=int))


def cut_out(array: Array, held: Block, wanted: Block) -> Array:
    """The part ``wanted`` of a block; a view."""
    if not inside(wanted, held):
        raise MissingBlockError(f"{wanted} is not in {held}")
    return array[tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(wanted, held, strict=True))]


@dataclass
class RankShare:
    """What the ranks hold of one tensor: the layout all of them know, and each one's own block."""

    layout: Layout
    blocks: dict[Coordinates, Array]

    @property
    def pending(self) -> frozenset[str]:
        return frozenset(mesh for mesh, position in self.layout if position == PARTIAL)


@dataclass
class Ranks:
    """All ranks following one plan."""

    plan: Plan
    sizes: Sizes
    mesh: Mesh
    accounting: Accounting = field(default_factory=Accounting)
    store: dict[str, RankShare] = field(default_factory=dict)
    owner: dict[str, str] = field(default_factory=dict)  # gathered copy -> its tensor
    dropped: frozenset[str] = frozenset()  # copies that do not outlive their phase
    phase: str = "forward"
    sent: int = 0  # numbers, over all links, by the least that each collective must send
    known: dict[tuple[str, Layout], dict[Coordinates, Block]] = field(default_factory=dict)

    def fork(self) -> Ranks:
        """The same ranks at the same step, to go on in another way."""
        return replace(self, store=dict(self.store), owner=dict(self.owner))

    # -- blocks ----------------------------------------------------------------------------------

    def block(self, tensor: str, layout: Layout, rank: Coordinates) -> Block:
        """Where a rank's block of a tensor is under a layout."""
        if (tensor, layout) not in self.known:
            cuts = [[m for m, p in layout if p == n] for n in range(len(self.sizes.shape(tensor)))]
            self.known[tensor, layout] = {
                r: tuple(self.mesh.part(n, c, r) for n, c in zip(self.sizes.shape(tensor), cuts, strict=True))
                for r in self.mesh.ranks
            }
        return self.known[tensor, layout][rank]

    def load(self, given: Mapping[str, Array]) -> None:
        """Gives each rank its own blocks of what comes from outside."""
        for name, array in given.items():
            layout = self.plan.placements[name]
            whole = tuple((0, n) for n in array.shape)
            self.store[name] = RankShare(
                layout,
                {r: cut_out(array, whole, self.block(name, layout, r)).copy() for r in self.mesh.ranks},
            )

    def narrow(self, stored: str, tensor: str, layout: Layout) -> RankShare:
        """What the ranks hold, cut down to a layout that the plan says it has: dropping a part is free."""
        if stored not in self.store:
            raise MissingBlockError(f"no rank holds {stored}")
        held = self.store[stored]
        if held.layout == layout:
            return held
        if held.pending != frozenset(m for m, p in layout if p == PARTIAL):
            raise WrongCallError(f"{stored} is {held.layout} where the plan has {layout}")
        blocks = {
            r: cut_out(a, self.block(tensor, held.layout, r), self.block(tensor, layout, r)).copy()
            for r, a in held.blocks.items()
        }
        self.store[stored] = RankShare(layout, blocks)
        return self.store[stored]

    # -- steps -----------------------------------------------------------------------------------

    def steps(self, without: int | None = None, start: int = 0) -> Iterator[int]:
        """Runs the plan from a step on; yields the number of each step before it is run."""
        for number in range(start, len(self.plan.steps)):
            yield number
            step = self.plan.steps[number]
            if isinstance(step, Compute):
                self.run(step)
            elif number == without:
                self.leave_out(step)
            else:
                self.call(step)

    def enter(self, phase: str) -> None:
        """Drops the copies that the accounting says are not kept from one phase to the next."""
        self.phase = phase
        for stored in self.dropped & self.owner.keys():
            self.store.pop(stored, None)
            del self.owner[stored]
        self.dropped = frozenset()

    def run(self, step: Compute) -> None:
        """One op on every rank."""
        op = step.op
        phase = "update" if op.kind == "update" else op.phase
        if phase != self.phase:
            self.enter(phase)
        cut: dict[int, list[str]] = {}
        for mesh, index in step.cuts:
            cut.setdefault(index, []).append(mesh)
        lengths = self.sizes.loops(op)
        inner: dict[int, int] = {}  # tokens and their slots are cut together, but for results that have both
        for tokens, slots in self.sizes.filled(op) if self.sizes.groups > 1 else ():
            if tokens in cut and op.kind != "route":
                cut[slots] = [m for m in cut[tokens] if m in self.routing]
                inner = {slots: tokens} if {tokens, slots} <= {*op.output_indices} else {}
        results: dict[Coordinates, Array] = {}
        operands = [
            self.narrow(stored, name, layout)
            for stored, name, layout in zip(step.reads, step.inputs, step.layouts, strict=True)
        ]
        whole = step.part == "whole"
        inside, made = (op.indices, op.output_indices) if whole else (step.step.indices, step.step.output_indices)
        for rank in self.mesh.ranks:
            ranges = {i: self.mesh.part(n, cut.get(i, ()), rank) for i, n in lengths.items()}
            arrays = []
            for j, (held, name, indices) in enumerate(zip(operands, step.inputs, inside, strict=True)):
                earlier = op.attribute("whole") if j == op.attribute("before") else ()
                wanted = tuple((max(ranges[i][0] - (i in earlier), 0), ranges[i][1]) for i in indices)
                arrays.append(cut_out(held.blocks[rank], self.block(name, held.layout, rank), wanted))
            for j, mesh in step.once:
                if self.mesh.coordinate(rank, mesh):
                    arrays[j] = np.zeros_like(arrays[j])
            local = {i: b - a for i, (a, b) in ranges.items()}
            starts = {i: a for i, (a, _) in ranges.items()}
            if whole:
                results[rank] = compute(op, arrays, self.sizes, local, starts)
            else:
                results[rank] = compute_part(step, arrays, self.statistics, local, lengths)
            for slots in inner:
                at = made.index(slots)
                start, stop = ranges[slots]
                around = [(0, 0)] * len(made)
                around[at] = (start, lengths[slots] - stop)
                results[rank] = np.pad(results[rank], around)
                ranges[slots] = (0, lengths[slots])
            if tuple(ranges[i] for i in made) != self.block(step.makes, step.output, rank):
                raise ShapeMismatchError(f"{step.makes} has another block than {step.output} says")
        self.store[step.makes] = RankShare(step.output, results)

    @cached_property
    def routing(self) -> set[str]:
        """The mesh axes along which ranks route their tokens by themselves."""
        steps = [s for s in self.plan.steps if isinstance(s, Compute) and s.op.kind == "route"]
        return {m for s in steps for m, i in s.cuts if i == s.op.output_indices[-3]}

    @cached_property
    def statistics(self) -> dict[str, str]:
        return parts(self.plan.steps)

    def call(self, step: Collective) -> None:
        """One collective: the ranks of each group exchange blocks."""
        tensor = self.begin(step)
        held = self.narrow(step.tensor, tensor, step.before)
        before, after = dict(step.before), dict(step.after)
        moved = [(before.pop(m, None), after.pop(m, None)) for m in step.meshes]
        self.check(before == after and (len({*moved}) == 1 or step.kind == "all-to-all"), step)  # which joins several
        for was, becomes in moved:
            form = (was == PARTIAL, becomes is not None)
            self.check(was is not None and was != becomes and form == FORMS[step.kind], step)
        results: dict[Coordinates, Array] = {}
        for group in self.mesh.groups(step.meshes):
            have = [self.block(tensor, step.before, r) for r in group]
            want = [self.block(tensor, step.after, r) for r in group]
            sent = [held.blocks[r] for r in group]
            if was == PARTIAL:
                total = np.max(sent, axis=0) if step.reduces == "max" else np.sum(sent, axis=0)
                for rank, mine, theirs in zip(group, want, have, strict=True):
                    results[rank] = cut_out(total, theirs, mine).copy()
                moved = sum(map(volume, want)) // (1 if becomes is not None else len(group))
                self.check(volume(have[0]) == moved, step)
            else:
                for rank, mine in zip(group, want, strict=True):
                    results[rank] = self.joined(sent, have, mine)
                distinct = sum(map(volume, want)) // (len(group) if becomes is None else 1)
                self.check(sum(map(volume, have)) == distinct, step)
            size = volume(have[0]) if was == PARTIAL else sum(map(volume, have))
            self.check(size == self.sizes.number(step.elements), step)
            # Each number of a sum meets those of the k - 1 other ranks, and then goes to as many; what is gathered or
            # exchanged is what a rank does not hold.
            if was == PARTIAL:
                self.sent += (len(group) - 1) * volume(have[0]) * (2 if becomes is None else 1)
            else:
                self.sent += sum(volume(mine) - common(mine, held) for mine, held in zip(want, have, strict=True))
        self.keep(step, tensor, RankShare(step.after, results))

    def begin(self, step: Collective) -> str:
        """The tensor that a collective moves; what a later phase gathers begins that phase."""
        if step.kind in ("all-gather", "all-to-all") and step.phase != self.phase:
            self.enter(step.phase)
        return self.tensor(step.tensor)

    def keep(self, step: Collective, tensor: str, held: RankShare) -> None:
        self.store[step.stored] = held
        if step.stored != tensor:
            self.owner[step.stored] = tensor
            if step.tensor in self.dropped or not self.outlives(step, tensor):
                self.dropped |= {step.stored}

    def outlives(self, step: Collective, tensor: str) -> bool:
        """Whether the accounting keeps a copy from one phase to the next."""
        if self.plan.graph.tensors[tensor].role == "weight":
            return self.accounting.gathered_weights in ("keep", "at_once")
        if self.accounting.gathered_activations != "regather_sequence":
            return self.accounting.gathered_activations == "keep"
        # Sequence parallelism keeps its parts of the sequence, along the mesh axis that it shares with others.
        mine = {rule.mesh for _, rule in self.plan.strategy.rules if rule.rests}
        axes = self.plan.graph.tensors[tensor].axes
        labels = [self.plan.graph.axes[axes[p]].label for m, p in step.before if m in mine and m in step.meshes]
        return not {*labels} & {"L"}

    def tensor(self, stored: str) -> str:
        """The tensor that a stored name is a copy of."""
        return self.owner.get(stored, stored)

    def check(self, fits: bool, step: Collective) -> None:
        if not fits:
            raise WrongCallError(f"{step.kind} of {step.tensor} over {step.meshes}: {step.before} to {step.after}")

    def joined(self, arrays: list[Array], blocks: list[Block], wanted: Block) -> Array:
        """A block put together from those of a group."""
        result = np.zeros([b - a for a, b in wanted])
        filled = 0
        for array, held in zip(arrays, blocks, strict=True):
            common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(held, wanted, strict=True))
            if any(a >= b for a, b in common):
                continue
            part = cut_out(array, held, common)
            result[tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(common, wanted, strict=True))] = part
            filled += volume(common)
        if filled != volume(wanted):
            raise MissingBlockError(f"a group of ranks does not hold {wanted}")
        return result

    def leave_out(self, step: Collective) -> None:
        """The step as if no rank sent anything: each has the part it holds, and NaN where it holds nothing."""
        tensor = self.begin(step)
        held = self.narrow(step.tensor, tensor, step.before)
        results: dict[Coordinates, Array] = {}
        for rank in self.mesh.ranks:
            mine, wanted = self.block(tensor, step.before, rank), self.block(tensor, step.after, rank)
            result = np.full([b - a for a, b in wanted], np.nan)
            common = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(mine, wanted, strict=True))
            if all(a < b for a, b in common):
                at = tuple(slice(a - c, b - c) for (a, b), (c, _) in zip(common, wanted, strict=True))
                result[at] = cut_out(held.blocks[rank], mine, common)
            results[rank] = result
        self.keep(step, tensor, RankShare(step.after, results))

    # -- what came out ---------------------------------------------------------------------------

    def differences(self, reference: Mapping[str, Array], names: Iterable[str]) -> list[str]:
        """The tensors of which some rank holds other numbers than the one machine; sums are finished first."""
        found = []
        for name in names:
            held = self.store[name]
            sums: dict[tuple[int | None, ...], Array] = {}
            for rank, array in held.blocks.items():
                key = tuple(None if m in held.pending else c for m, c in zip(self.mesh.names, rank, strict=True))
                sums[key] = sums[key] + array if key in sums else array
            whole = tuple((0, n) for n in reference[name].shape)
            for rank in self.mesh.ranks:
                key = tuple(None if m in held.pending else c for m, c in zip(self.mesh.names, rank, strict=True))
                expected = cut_out(reference[name], whole, self.block(name, held.layout, rank))
                if not same(sums[key], expected):
                    found.append(name)
                    break
        return found

    def results(self) -> list[str]:
        """What a training step is for: the outputs, the gradients of weights and inputs, the new weights."""
        graph = self.plan.graph
        of = {t.name for t in graph.tensors.values() if t.role in ("weight", "input")}
        return [
            t.name
            for t in graph.tensors.values()
            if t.name in graph.producers
            and (
                t.name in self.outputs
                or (t.role == "gradient" and t.of in of and t.name == f"d({t.of})")
                or t.name.startswith("new(")
            )
        ]

    @cached_property
    def outputs(self) -> frozenset[str]:
        return frozenset(t.name for t in self.plan.graph.forward().outputs)


def same(a: Array, b: Array) -> bool:
    """Whether two arrays agree up to rounding, which grows with the numbers in them."""
    if a.shape != b.shape:
        return False
    scale = max(1.0, float(np.max(np.abs(b), initial=0.0)))
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-9 * scale))
