"""What a program is made of: instructions in their places, in the order in which they run.

The instructions of one region in one phase are a loop, run as often as the region stands: a turn names its region, and
whoever adds up a program asks how often a rank has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from symcomm.accounting import Accounting
from symcomm.graph.graph import Graph, Region, Tensor
from symcomm.parallel.placement import Collective, Compute, Plan
from symcomm.parallel.strategy import Strategy
from symcomm.records import dataclass

if TYPE_CHECKING:
    from sympy import Expr

BETWEEN_STAGES = ("pipe",)  # the mesh axis that a pipeline adds


@dataclass(frozen=True)
class Send:
    """A message over the boundary between two stages: a tensor forward, its gradient backward, in numbers a rank."""

    tensor: str
    elements: Expr
    phase: str
    why: str
    kind: str = "send"
    meshes: tuple[str, ...] = BETWEEN_STAGES


@dataclass(frozen=True)
class Turn:
    """An instruction in its place.

    The ``phase`` is forward, recompute, backward or update. What ``finishes`` makes the gradient of a weight, or the
    weight itself, what it is to be; it has the size of the weight, and runs ``once`` in a step or for every microbatch.
    ``every`` says that the first repetition of the region has it, too.
    """

    work: Compute | Collective | Send
    region: Region
    phase: str
    finishes: bool = False
    every: bool = True
    once: bool = False

    @property
    def accumulates(self) -> bool:
        """Whether it reduces the gradient of a weight between replicas; stages that share a weight are none."""
        return self.phase == "backward" and self.finishes and getattr(self.work, "meshes", ()) != BETWEEN_STAGES


@dataclass(frozen=True)
class Program:
    """The instructions of a training step, with the plan of the whole graph that they come from."""

    plan: Plan
    accounting: Accounting
    turns: tuple[Turn, ...] = ()
    frozen: frozenset[str] = frozenset()

    @property
    def graph(self) -> Graph:
        """Forward, backward and update ops of all regions."""
        return self.plan.graph

    @property
    def strategy(self) -> Strategy:
        """The strategy that the program carries out."""
        return self.plan.strategy

    def tensor(self, work: Collective | Send) -> Tensor:
        """What is moved: a tensor of the graph, or one that is gathered of it."""
        return self.graph.tensors[work.tensor.split(" @ ")[0]]

    def of_weight(self, work: Collective | Send) -> bool:
        """Whether the gradient of a weight is moved."""
        tensor = self.tensor(work)
        return tensor.role == "gradient" and self.graph.tensors[tensor.of].role == "weight"

    def region(self, name: str) -> Plan:
        """The plan of one region: what it reads of other regions comes from outside."""
        if len(self.graph.regions) < 2:
            return self.plan
        graph = self.graph.region(name)
        steps = tuple(step for step in self.plan.steps if home(self.graph, step) == name)
        return replace(self.plan, graph=graph, steps=steps)


def home(graph: Graph, step: Collective | Compute) -> str:
    """The region that a step of a plan belongs to."""
    return graph.producers[step.op].region if isinstance(step, Collective) else step.op.region


@dataclass(frozen=True)
class Rewrite:
    """A change of a program that is no placement. Rewrites do not commute: they run in the order of their ``rank``."""

    name: str
    rank: int
    apply: Callable[[Program], Program]
