"""Where weights, their gradients and their states rest between the passes: how the rules of a strategy cut them."""

from __future__ import annotations

from collections.abc import Callable

from symcomm.core.graph.gradient import gradient_name
from symcomm.core.graph.graph import Graph, Tensor
from symcomm.core.parallel.layouts import PARTIAL, Layout
from symcomm.core.parallel.placement import Compute, Plan, place
from symcomm.core.parallel.strategy import Strategy, resolve


def resting(graph: Graph, strategy: Strategy | None) -> Callable[[Tensor, str], Layout]:
    """How a weight is cut in the role ``weight``, ``gradient`` or ``state`` where it rests."""
    rules = resolve(strategy, graph) if strategy is not None else ()
    return lambda weight, role: place(weight, graph, rules, role)


def summed(plan: Plan, weight: str) -> Layout:
    """How the gradient of a weight is cut while it is added up: as it is computed, before it is reduced."""
    made = (step.output for step in plan.steps if isinstance(step, Compute)
            and step.op.output == gradient_name(weight) and step.part != "statistics")  # fmt: skip
    return tuple((mesh, position) for mesh, position in next(made, ()) if position != PARTIAL)
