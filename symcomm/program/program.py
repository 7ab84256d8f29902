"""The program of a training step: what every rank computes and exchanges, in loops with symbolic counts.

A program is made from the graph of the whole model, a strategy and the conventions. The instructions of one region
in one phase are a loop, run as often as the region stands. Quantities are folds over it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

from symcomm.accounting import Accounting
from symcomm.graph.gradient import training
from symcomm.graph.graph import Graph
from symcomm.parallel.placement import Collective, Compute, Plan, plan
from symcomm.parallel.strategy import Strategy

Instruction = Collective | Compute
Kept = TypeVar("Kept")
ONE_RANK = Strategy("one rank", (), (), "Everything is on one rank.")


@dataclass(frozen=True)
class Program:
    """The instructions of a training step in the order in which they run: the plan of the whole graph.

    ``spared`` are the calls (kind, tensor, phase) that the first repetition of a region does not make, because what
    the model itself reads needs no gradient.
    """

    plan: Plan
    accounting: Accounting
    spared: frozenset[tuple[str, str, str]] = frozenset()

    @property
    def graph(self) -> Graph:
        """Forward, backward and update ops of all regions."""
        return self.plan.graph

    @property
    def strategy(self) -> Strategy:
        """The strategy that the program carries out."""
        return self.plan.strategy

    def region_of(self, step: Instruction) -> str:
        """The region that an instruction belongs to."""
        return self.graph.producers[step.op].region if isinstance(step, Collective) else step.op.region

    def phase_of(self, step: Instruction) -> str:
        """The phase of an instruction; what finishes the gradient of a weight is a phase of its own."""
        if isinstance(step, Compute):
            return "update" if step.op.kind == "update" else step.op.phase
        tensor = self.graph.tensors[step.tensor.split(" @ ")[0]]
        finishing = tensor.role == "gradient" and self.graph.tensors[tensor.of].role == "weight"
        return "gradients" if finishing and step.phase == "backward" else step.phase

    def region(self, name: str) -> Plan:
        """The plan of one region: what it reads of other regions comes from outside."""
        if len(self.graph.regions) < 2:
            return self.plan
        graph = self.graph.region(name)
        steps = tuple(step for step in self.plan.steps if self.region_of(step) == name)
        return replace(self.plan, graph=graph, steps=steps)


def program(
    graph: Graph,
    strategy: Strategy | None = None,
    accounting: Accounting | None = None,
    frozen: Collection[str] = (),
    input_gradient: bool | None = None,
) -> Program:
    """The program of a training step; ``frozen`` weights get no gradient.

    ``input_gradient`` is that of the accounting where it is not said. Raises ``StrategyError`` where the strategy
    names an axis that the graph does not have.
    """
    accounting = accounting or Accounting()
    needed = accounting.input_gradient == "needed" if input_gradient is None else input_gradient
    return _program(Same(graph), strategy or ONE_RANK, accounting, frozenset(frozen), needed)


def unstaged(strategy: Strategy) -> Strategy:
    """What a strategy does inside a stage, by no name: two that do the same are equal."""
    return replace(strategy, pipeline=None, name="", why="")


@dataclass(frozen=True, eq=False)
class Same(Generic[Kept]):
    """A value as a key: the very same one, not one that is equal."""

    it: Kept

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.it is self.it


@lru_cache(maxsize=64)
def _program(
    held: Same[Graph], strategy: Strategy, accounting: Accounting, frozen: frozenset[str], needed: bool
) -> Program:
    # Neither the stages of a pipeline nor what is computed again change what a rank does for one microbatch, and what
    # is counted does not change what is done.
    shared = Accounting(gathered_weights=accounting.gathered_weights,
                        gathered_activations=accounting.gathered_activations)  # fmt: skip
    alone = unstaged(strategy)
    if (alone, shared) != (strategy, accounting):
        same = _program(held, alone, shared, frozen, needed)
        return replace(same, plan=replace(same.plan, strategy=strategy), accounting=accounting)
    made = plan(training(held.it, needed, frozen), strategy, accounting)
    if needed:
        return Program(made, accounting)
    # The first repetition of a region that reads the model's input does without the gradient of that input.
    first = plan(_without_inputs(held.it, frozen), strategy, accounting)
    kept = {(c.kind, c.tensor, c.phase) for c in first.collectives}
    spared = frozenset((c.kind, c.tensor, c.phase) for c in made.collectives) - kept
    return Program(made, accounting, spared)


def _without_inputs(graph: Graph, frozen: frozenset[str]) -> Graph:
    single = tuple(replace(region, times="") for region in graph.regions)
    return training(replace(graph, regions=single), False, frozen)
