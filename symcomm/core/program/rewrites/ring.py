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
        self.turns = self.program.turns
        self.makers = {t.work.makes: t for t in self.turns if isinstance(t.work, Compute)}
        for turn in self.turns:
            call = turn.work
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
            self.passed |= {id(turn): names} if names else {}
            self.summed |= {id(turn): parts} if parts else {}
        self.regions = {turn.region.name for turn in self.turns if id(turn) in self.passed}

    def across(self, work: Compute) -> bool:
        """Whether a step belongs to the core of attention."""
        return any(self.program.graph.pair(name) for name in (*work.op.inputs, work.op.output))

    def carried(self, call: Collective) -> frozenset[str]:
        """The names of what is gathered, and of what is made of it position by position until attention reads it.

        None where another op needs all positions at once.
        """
        places, attends = {call.stored: dict(call.before)[self.mesh]}, False
        for work in (turn.work for turn in self.turns if isinstance(turn.work, Compute)):
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
            turn = self.makers.get(queue.pop())
            if turn is None or not isinstance(turn.work, Compute):
                return frozenset()
            found.add(id(turn))
            if self.mesh not in dict(turn.work.cuts):
                found_in = zip(turn.work.inputs, turn.work.layouts, strict=True)
                queue += [name for name, layout in found_in if (self.mesh, PARTIAL) in layout]
            elif not self.across(turn.work):
                return frozenset()
        return frozenset(found)

    def turned(self) -> Program:
        """The program with its gathers and sums passed on; attention runs once for each block."""
        every = frozenset[str]().union(*self.passed.values())
        inside = frozenset[int]().union(*self.summed.values())
        again = {n: names for n, names in self.passed.items() if self.turn(n).phase == "forward"}
        for n, names in self.passed.items():
            if self.turn(n).phase != "forward":
                again = {m: some for m, some in again.items() if not some & names}
        turns: list[Instruction] = []
        for turn in self.turns:
            begins = turn.phase != "forward" and any(self.reads(turn, names) for names in again.values())
            here = {n for n in again if begins and self.turn(n).region == turn.region}  # keys and values in one loop
            turns += self.once_more(here, frozenset[str]().union(*(again.pop(n) for n in here)))
            if id(turn) in self.passed:
                turns.append(self.passing(turn))
            elif id(turn) in self.summed:
                turns.append(self.summing(turn))
            else:
                inner = id(turn) in inside or self.reads(turn, every) or self.attends(turn)
                turns.append(replace(turn, ring=self.mesh) if inner else turn)
        views = every & self.makers.keys()
        made = replace(self.program, turns=tuple(turns))
        return replace(made, dropped=made.dropped | views, runs=made.runs | views, needed=made.needed | views)

    def turn(self, number: int) -> Instruction:
        return next(turn for turn in self.turns if id(turn) == number)

    def reads(self, turn: Instruction, names: Collection[str]) -> bool:
        """Whether an instruction reads a block, or what is made of one."""
        return isinstance(turn.work, Compute) and any(name in names for name in turn.work.reads)

    def attends(self, turn: Instruction) -> bool:
        """Whether an instruction belongs to the core of attention of a region in which something goes round."""
        return isinstance(turn.work, Compute) and turn.region.name in self.regions and self.across(turn.work)

    def once_more(self, gathers: Collection[int], names: frozenset[str]) -> Iterator[Instruction]:
        """The passes of the backward pass, and what makes of the blocks that go by what attention reads."""
        for turn in self.turns:
            if id(turn) in gathers:
                yield self.passing(replace(turn, phase="backward"))
            elif turn.phase == "forward" and isinstance(turn.work, Compute) and turn.work.makes in names:
                yield replace(turn, phase="recompute", ring=self.mesh)

    def passing(self, turn: Instruction) -> Instruction:
        call = turn.work
        assert isinstance(call, Collective)
        work = replace(call, kind="ring-pass", phase="backward" if turn.phase == "backward" else call.phase, why=PASSED)
        by = tuple(name for name in turn.by if name != "gathered_activations")  # nothing is gathered
        return replace(turn, work=work, ring=self.mesh, by=by)

    def summing(self, turn: Instruction) -> Instruction:
        """A reduction whose sums travel with their blocks, as conventions say."""
        call, how = turn.work, self.program.accounting
        assert isinstance(call, Collective)
        dtype = "fp32" if how.ring_format == "fp32" else ""
        moved = replace(call, kind=SUMS[how.ring_gradients], dtype=dtype)  # type: ignore[arg-type]  # one of the kinds
        return replace(turn, work=moved, ring=self.mesh, by=(*turn.by, "ring_format"))


REWRITE = Rewrite("ring", 5, _rewritten)
