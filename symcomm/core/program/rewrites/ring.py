"""Ring attention: what attention would gather along an axis of the mesh goes round its ranks in blocks instead.

Each rank computes on the block that it has while the next one arrives. An op that reads a block works position by
position, or is the core of attention, whose parts of a row are put together by a running maximum and sum. Sums over the
positions of queries travel with the block that they belong to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import field

from symcomm.core.errors import StrategyError
from symcomm.core.parallel.placement import PARTIAL, Collective, Compute
from symcomm.core.program.instructions import Instruction, Program, Rewrite
from symcomm.core.records import dataclass, replace

PASSED = "each rank works on the block that it has and passes it on"
SUMS = {"shortest": "ring-sum", "from_home": "ring-sum-home"}


def _rewritten(program: Program) -> Program:
    """Gathers that attention reads become passes round the ring, once more in the backward pass; so do its sums."""
    for mesh in dict.fromkeys(rule.mesh for _, rule in program.strategy.rules if rule.passes):
        program = _Ring(program, mesh).turned()
    return program


@dataclass
class _Ring:
    """The loop round one axis of the mesh: what passes, and the instructions that run block by block.

    ``passed`` are the gathers with the names by which their blocks, and what is made of these, are read; ``summed`` the
    reductions with the instructions that make their parts. Both go by the identity of an instruction.
    """

    program: Program
    mesh: str
    passed: dict[int, frozenset[str]] = field(default_factory=dict)
    summed: dict[int, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.instructions = self.program.instructions
        self.makers = {t.work.makes: t for t in self.instructions if isinstance(t.work, Compute)}
        for instruction in self.instructions:
            call = instruction.work
            if not isinstance(call, Collective) or self.mesh not in call.meshes:
                continue
            moved = self.program.tensor(call)
            if "weight" in (moved.role, self.program.graph.tensors.get(moved.of, moved).role):
                continue  # shards of weights, their gradients and their updates are gathered and scattered as ever
            names = self.carried(call) if call.kind == "all-gather" else frozenset[str]()
            parts = self.parts(call) if call.kind in ("reduce-scatter", "all-reduce") else frozenset[int]()
            if (names or parts) and (call.meshes != (self.mesh,) or call.kind == "all-reduce"):
                others = " and ".join(f"'{mesh}'" for mesh in call.meshes)
                hint = "cut positions by one ring, or by ring(k) + ulysses(u)"
                what = f"{call.tensor} would go round the mesh axes {others} at once, which is no ring"
                raise StrategyError(what, hint=hint)
            self.passed |= {id(instruction): names} if names else {}
            self.summed |= {id(instruction): parts} if parts else {}
        self.regions = {instruction.region.name for instruction in self.instructions if id(instruction) in self.passed}

    def across(self, work: Compute) -> bool:
        """Whether a step belongs to the core of attention."""
        return any(self.program.graph.pair(name) for name in (*work.op.inputs, work.op.output))

    def carried(self, call: Collective) -> frozenset[str]:
        """The names of what is gathered, and of what is made of it position by position until attention reads it.

        None where another op needs all positions at once.
        """
        places, attends = {call.stored: dict(call.before)[self.mesh]}, False
        for work in (instruction.work for instruction in self.instructions if isinstance(instruction.work, Compute)):
            for j in [j for j, name in enumerate(work.reads) if name in places]:
                index = work.step.indices[j][places[work.reads[j]]]
                if self.across(work):
                    attends = True
                elif index in work.step.output_indices and index not in work.step.whole:
                    places[work.makes] = work.step.output_indices.index(index)
                elif work.op.kind != "contraction":
                    return frozenset()
        return frozenset(places) if attends else frozenset()

    def parts(self, call: Collective) -> frozenset[int]:
        """The instructions that make the parts of a sum, if attention does; the parts may pass through linear ops."""
        found, queue = set[int](), [call.tensor.partition(" @ ")[0]]
        while queue:
            instruction = self.makers.get(queue.pop())
            if instruction is None or not isinstance(instruction.work, Compute):
                return frozenset()
            found.add(id(instruction))
            if self.mesh not in dict(instruction.work.cuts):
                found_in = zip(instruction.work.inputs, instruction.work.layouts, strict=True)
                queue += [name for name, layout in found_in if (self.mesh, PARTIAL) in layout]
            elif not self.across(instruction.work):
                return frozenset()
        return frozenset(found)

    def turned(self) -> Program:
        """The program with its gathers and sums passed on; attention runs once for each block."""
        every = frozenset[str]().union(*self.passed.values())
        inside = frozenset[int]().union(*self.summed.values())
        again = {n: names for n, names in self.passed.items() if self.instruction(n).phase == "forward"}
        for n, names in self.passed.items():
            if self.instruction(n).phase != "forward":
                again = {m: some for m, some in again.items() if not some & names}
        instructions: list[Instruction] = []
        for instruction in self.instructions:
            begins = instruction.phase != "forward" and any(self.reads(instruction, names) for names in again.values())
            here = {n for n in again if begins and self.instruction(n).region == instruction.region}  # one loop
            instructions += self.once_more(here, frozenset[str]().union(*(again.pop(n) for n in here)))
            if id(instruction) in self.passed:
                instructions.append(self.passing(instruction))
            elif id(instruction) in self.summed:
                instructions.append(self.summing(instruction))
            else:
                inner = id(instruction) in inside or self.reads(instruction, every) or self.attends(instruction)
                instructions.append(replace(instruction, ring=self.mesh) if inner else instruction)
        views = every & self.makers.keys()
        made = replace(self.program, instructions=tuple(instructions))
        return replace(made, dropped=made.dropped | views, runs=made.runs | views, needed=made.needed | views)

    def instruction(self, number: int) -> Instruction:
        return next(instruction for instruction in self.instructions if id(instruction) == number)

    def reads(self, instruction: Instruction, names: Collection[str]) -> bool:
        """Whether an instruction reads a block, or what is made of one."""
        return isinstance(instruction.work, Compute) and any(name in names for name in instruction.work.reads)

    def attends(self, instruction: Instruction) -> bool:
        """Whether an instruction belongs to the core of attention of a region in which something goes round."""
        work = instruction.work
        return isinstance(work, Compute) and instruction.region.name in self.regions and self.across(work)

    def once_more(self, gathers: Collection[int], names: frozenset[str]) -> Iterator[Instruction]:
        """The passes of the backward pass, and what makes of the blocks that go by what attention reads."""
        for one in self.instructions:
            if id(one) in gathers:
                yield self.passing(replace(one, phase="backward"))
            elif one.phase == "forward" and isinstance(one.work, Compute) and one.work.makes in names:
                yield replace(one, phase="recompute", ring=self.mesh)

    def passing(self, instruction: Instruction) -> Instruction:
        call = instruction.work
        assert isinstance(call, Collective)
        phase = "backward" if instruction.phase == "backward" else call.phase
        work = replace(call, kind="ring-pass", phase=phase, why=PASSED)
        by = tuple(name for name in instruction.by if name != "gathered_activations")  # nothing is gathered
        return replace(instruction, work=work, ring=self.mesh, by=by)

    def summing(self, instruction: Instruction) -> Instruction:
        """A reduction whose sums travel with their blocks, as conventions say."""
        call, how = instruction.work, self.program.accounting
        assert isinstance(call, Collective)
        dtype = "fp32" if how.ring_format == "fp32" else ""
        moved = replace(call, kind=SUMS[how.ring_gradients], dtype=dtype)  # type: ignore[arg-type]  # one of the kinds
        return replace(instruction, work=moved, ring=self.mesh, by=(*instruction.by, "ring_format"))


REWRITE = Rewrite("ring", 5, _rewritten)
