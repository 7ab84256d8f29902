"""The results of the forward pass that are computed again for backward instead of being kept."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.graph.graph import Graph
from symcomm.core.parallel.placement import Collective, Compute
from symcomm.core.program.autograd import autograd
from symcomm.core.program.instructions import Instruction, Program, Rewrite, gathers_weight, made_by, weights_gathered
from symcomm.core.records import dataclass, replace

# What a convention of recomputation computes again, as ``recomputed_ops`` calls it.
RECOMPUTED = {
    "activations_kept": "none",
    "selective_recomputation": "selective",
    "full_recomputation": "full",
    "needed_recomputation": "needed",
}


def recomputed_ops(graph: Graph, recomputation: str) -> frozenset[str]:
    """The forward ops whose results are computed again instead of kept, by the tensors they make.

    ``none``, ``full``, ``needed`` (full, up to the last result that backward reads), ``selective`` (what has the
    positions of queries and keys), or tensors of the table, separated by commas. Of a model of several regions, those
    that are repeated are computed again. Raises ``ValuesError`` for a tensor that no row computes.
    """
    stacked = {region.name for region in graph.regions if region.times} if len(graph.regions) > 1 else set()
    forward = [op for op in graph.ops if op.phase == "forward" and (not stacked or op.region in stacked)]
    if recomputation == "none":
        return frozenset()
    if recomputation in ("full", "needed"):
        return frozenset(op.output for op in forward)
    if recomputation == "selective":
        found = frozenset(op.output for op in forward if graph.pair(op.output) is not None)
        if not found:
            raise ValuesError(
                f"{graph.name} has no attention scores to compute again", hint="selective recomputation is of attention"
            )
        return found
    rows: set[int] = set()
    makers = {op.output: op.row for op in forward}
    for name in (part.strip() for part in recomputation.split(",")):
        row = makers.get(name, makers.get(f"{name}_i"))
        if row is None:
            known = ["none", "selective", "full", *(n for n in makers if "·" not in n)]
            raise ValuesError(f"nothing is computed that is called '{name[:60]}'", hint=nearest(name, known))
        rows.add(row)
    return frozenset(op.output for op in forward if op.row in rows)


def _rewritten(program: Program) -> Program:
    """What runs again stands before the first gradient that reads what it makes, with its collectives.

    What is computed again hangs together by the results that one op hands to another: each such region runs at once,
    like a function under PyTorch's checkpoint. A layer that runs again as a whole does so before its backward pass.
    """
    how = program.recomputation
    if how == "none":
        return program
    graph = replace(program.graph, ops=tuple(op for op in program.graph.ops if op.phase == "forward"))
    if how == "nothing":
        return replace(program, dropped=recomputed_ops(graph, "full"))
    dropped = recomputed_ops(graph, how)
    # Selective recomputation runs the whole core of attention, up to the product with the values, as one function.
    core = {op.output for op in graph.ops if how == "selective" and any(map(graph.pair, op.inputs))}
    blocks = program.dropped  # of keys and values that go round a ring, which is seen to already
    program = replace(program, dropped=dropped, runs=dropped | core)
    before: dict[int, list[Instruction]] = {}
    moved, needed = set[int](), {*blocks}
    for region in dict.fromkeys(t.region.name for t in program.instructions if made_by(t) in program.runs):
        mine = RecomputedOps(program, region)
        needed |= {*mine.needed, *mine.moved}
        for at, gathers, instructions in mine.pieces():
            moved |= {id(instruction.work) for instruction in gathers}
            before.setdefault(at, []).extend([*gathers, *instructions])
    found = list[Instruction]()
    for instruction in program.instructions:
        found += [*before.get(id(instruction), ()), *([instruction] if id(instruction.work) not in moved else [])]
    made = replace(program, instructions=tuple(found), needed=frozenset(needed))
    return replace(made, dropped=dropped | blocks, runs=made.runs | blocks)


@dataclass
class RecomputedOps:
    """The ops that run again in one repetition of a region, where its instructions do not say so yet."""

    program: Program
    region: str

    def __post_init__(self) -> None:
        instructions = [t for t in self.program.instructions if t.region.name == self.region and t.stays]
        self.forward, self.backward = ([t for t in instructions if t.phase == p] for p in ("forward", "backward"))
        self.facts = autograd(self.program, self.region)
        self.graph = self.facts.plan.graph
        kept = {item.key: item for item in self.facts.kept(self.program.dropped, self.program.runs)}
        self.wanted = [item for item in self.facts.kept() if item.key not in kept]
        self.roots = {item.tensor for item in kept.values() if item.is_tensor}
        known = {item.known for item in self.wanted}
        self.moved = {name: op for name, op in self.facts.copies.items() if name in known}

    @cached_property
    def needed(self) -> frozenset[str]:
        """The results that have to be made again so that what gradients read is there: down to what is kept."""
        queue = [item.tensor for item in self.wanted if item.known not in self.moved and not item.makers]
        queue += [name for item in self.wanted for name in item.makers]
        queue += [n for n in (c.partition(" @ ")[0] for c in self.moved) if self.facts.root(n) not in self.roots]
        found = set[str]()
        while queue:
            made = self.graph.producers.get(queue.pop())
            if made is not None and made.output not in found and made.phase == "forward":
                found.add(made.output)
                queue += [n for n in made.inputs if self.facts.root(n) not in self.roots]
        return frozenset(found)

    @property
    def runs(self) -> frozenset[str]:
        """The ops that run again: all of the asked ones, or only the needed ones."""
        every = self.program.runs & self.graph.producers.keys()
        return every & self.needed if self.program.recomputation == "needed" else every

    def pieces(self) -> Iterator[tuple[int, list[Instruction], list[Instruction]]]:
        """Of each piece: the instruction before which it is (by identity), the gathers of weights, its instructions."""
        for names in self.connected() if self.backward else ():
            made = names & self.needed | {name for name, op in self.moved.items() if op in names}
            first = next((n for n, t in enumerate(self.backward) if self.reads(t, made)), 0)
            first = 0 if self.program.recomputation == "full" else first
            instructions = [again for t in self.forward if (again := self.again(t, names, made)) is not None]
            yield id(self.backward[first]), [*self.gathers(first, instructions)], instructions

    def connected(self) -> list[frozenset[str]]:
        """The results that hang together, in the order of the table; those that no gradient needs are in the last."""
        runs, needed = self.runs, {*self.needed, *self.moved.values()}
        if self.program.recomputation == "full" or not needed:
            return [runs]
        apart: dict[str, set[str]] = {}  # the piece of each result
        for op in (op for op in self.graph.ops if op.output in needed):
            apart[op.output] = {op.output}
            for name in needed.intersection(op.inputs):
                less, more = sorted((apart[name], apart[op.output]), key=len)
                if less is not more:
                    more |= less
                    apart |= dict.fromkeys(less, more)
        last, *pieces = map(frozenset, {id(apart[name]): apart[name] for name in reversed(apart)}.values())
        return [*reversed(pieces), last | runs - needed]

    def reads(self, instruction: Instruction, made: frozenset[str]) -> bool:
        """Whether a step of the backward pass reads what runs again, or a mask or statistics that it makes."""
        if not isinstance(instruction.work, Compute):
            return getattr(instruction.work, "tensor", "") in made
        bases = [stored.partition(" @ ")[0] for stored in instruction.work.reads]
        drawn = {name for item in self.facts.read_by(instruction.work) for name in item.makers}
        return bool(made & {*instruction.work.reads, *bases, *drawn, *map(self.facts.root, bases)})

    def again(self, instruction: Instruction, names: frozenset[str], made: frozenset[str]) -> Instruction | None:
        """An instruction of the forward pass as it runs a second time; None where it does not."""
        work = instruction.work
        runs = made_by(instruction) in names & (self.runs | self.needed)
        if isinstance(work, Compute) and runs:
            return replace(instruction, phase="recompute")
        if isinstance(work, Collective) and (runs or work.stored in made) and not gathers_weight(self.graph, work):
            why = "the forward pass of the layer is computed again, with its collectives"
            return replace(instruction, work=replace(work, why=why), phase="recompute")
        return None

    def gathers(self, first: int, instructions: list[Instruction]) -> Iterator[Instruction]:
        """The gathers of weights before what runs again: one gather serves both that run and backward.

        It is the gather of the backward pass, where there is one, else a copy of the forward pass's. Where each run
        gathers its own weights, it is always a copy.
        """
        apart = self.program.accounting.gathered_weights == "each_run"
        reads = [(made_by(t), t.work.reads) for t in instructions if isinstance(t.work, Compute)]
        read = {stored for _, some in reads for stored in some} - self.program.kept
        needed = {stored for made, some in reads for stored in some if made in self.needed} & read
        behind, there = {id(instruction) for instruction in self.backward[first:]}, set[str]()
        for instruction, call in weights_gathered(() if apart else self.backward, self.graph):
            there.add(call.stored)
            if call.stored in needed and id(instruction) in behind:
                yield instruction
        for instruction, call in weights_gathered(self.forward, self.graph):
            if call.stored in read - there:
                again = replace(call, phase="backward", why="what is computed again reads it")
                yield replace(instruction, work=again, phase="recompute" if apart else "backward")


REWRITE = Rewrite("recomputation", 20, _rewritten, "recomputation")
