"""Which steps of the forward pass the backward pass repeats, and when, so that what was dropped is there again."""

from __future__ import annotations

from collections.abc import Collection

from symcomm.accounting import Accounting
from symcomm.graph.graph import Graph, Op
from symcomm.parallel.placement import Collective, Compute
from symcomm.program.autograd import storage
from symcomm.program.instructions import gathers_weight
from symcomm.program.rewrites.recomputation import gathered_again
from symcomm.records import dataclass


@dataclass(frozen=True)
class PassStep:
    """A step of the plan when it is its turn; ``again`` is one of the forward pass that the backward pass repeats."""

    work: Collective | Compute
    again: bool = False

    @property
    def phase(self) -> str:
        """The pass during which it runs."""
        return "backward" if self.again else phase_of(self.work)


@dataclass(frozen=True)
class RecomputedSteps:
    """A plan's steps with what is ``kept`` of its forward pass; ``whole`` is for a layer that runs again as one.

    Of the copies of weights, ``there`` are those that stay until the backward pass has read them.
    """

    graph: Graph
    steps: tuple[Collective | Compute, ...]
    accounting: Accounting
    kept: frozenset[str]
    whole: bool
    there: frozenset[str] = frozenset()

    def recomputed(self, wanted: Collection[str]) -> frozenset[str]:
        """The results that have to be computed again, for some of them to be there: down to what is kept."""
        found, queue = set[str](), [*wanted]
        queue += [op.output for name in wanted for op in self.drawn_for(name)]
        while queue:
            made = self.graph.producers.get(queue.pop())
            if made is not None and made.output not in found and made.phase == "forward":
                found.add(made.output)
                queue += [n for n in made.inputs if storage(self.graph, n, self.accounting) not in self.kept]
        return frozenset(found)

    def turns(self, again: frozenset[str]) -> list[PassStep]:
        """The plan's steps, and before the first gradient that reads a result which was dropped, those that make it.

        What is computed again hangs together by the results that one op hands to another: each such region runs at
        once, like a function under PyTorch's checkpoint.
        """
        steps = [s for s in self.steps if isinstance(s, Collective) or s.op.kind != "update"]
        forward = [s for s in steps if phase_of(s) == "forward"]
        backward = [PassStep(s) for s in steps if phase_of(s) == "backward"]
        for region in (again,) if self.whole and again else self.regions(again):
            mine = [PassStep(s, True) for s in forward if made_by(s) in region and not gathers_weight(self.graph, s)]
            first = next((n for n, t in enumerate(backward) if self.whole or self.reads(t, region)), len(backward))
            before, behind = backward[:first], backward[first:]
            works, early = [t.work for t in backward], {id(t.work) for t in before}
            gathers = gathered_again(self.graph, [*forward, *works], [t.work for t in mine], self.there)
            moved = {id(call) for call in gathers}
            gathers = [call for call in gathers if id(call) not in early]
            backward = [*before, *map(PassStep, gathers), *mine, *(t for t in behind if id(t.work) not in moved)]
        return [*map(PassStep, forward), *backward]

    def regions(self, names: frozenset[str]) -> list[frozenset[str]]:
        """The results that hang together, in the order of the table."""
        import networkx as nx

        order = {op.output: n for n, op in enumerate(self.graph.ops)}
        found = nx.weakly_connected_components(self.graph.nx.subgraph(names))
        return sorted(map(frozenset, found), key=lambda region: max(order[name] for name in region))

    def reads(self, turn: PassStep, region: frozenset[str]) -> bool:
        """Whether a step of the backward pass reads what a region makes, or a mask that is drawn in it."""
        if isinstance(turn.work, Collective):
            return turn.work.tensor in region
        bases = [stored.partition(" @ ")[0] for stored in turn.work.reads]
        masks = {op.output for name in bases for op in self.drawn_for(name)}
        return bool(region & {*bases, *masks, *(storage(self.graph, name, self.accounting) for name in bases)})

    def drawn_for(self, name: str) -> list[Op]:
        """The forward ops that a random mask is drawn for."""
        mask = name in self.graph.tensors and self.graph.tensors[name].dtype == "bool"
        return [op for op in self.graph.consumers.get(name, ()) if mask and op.phase == "forward"]


def made_by(step: Collective | Compute) -> str:
    """The op that a step belongs to, by the tensor that it makes."""
    return step.op if isinstance(step, Collective) else step.op.output


def phase_of(step: Collective | Compute) -> str:
    return step.phase if isinstance(step, Collective) else step.op.phase
