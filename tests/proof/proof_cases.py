"""A case of the proof: a layer under a strategy and an accounting, on one machine and on every rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
from api import Accounting, Collective, Compute, Graph, Plan, summed_first, update_ops, value
from proof_ranks import Mesh, MissingBlockError, Ranks, WrongCallError
from proof_reference import Array, ShapeMismatchError, Sizes, outside, run
from proof_tables import ALL, graph, planned

# (op kind, strategy) -> how often it ran, for the summary at the end of the session.
RAN: dict[tuple[str, str], int] = {}

PASSES = ("training", "without input gradients", "forward")


@dataclass(frozen=True)
class Case:
    """A plan, the numbers it runs on, and what one machine makes of them."""

    plan: Plan
    sizes: Sizes
    mesh: Mesh
    accounting: Accounting
    given: Mapping[str, Array]
    reference: Mapping[str, Array]

    def start(self) -> Ranks:
        """The ranks with their blocks of what comes from outside."""
        ranks = Ranks(self.plan, self.sizes, self.mesh, self.accounting)
        ranks.load(self.given)
        return ranks

    def wrong(self, ranks: Ranks) -> list[str]:
        """What came out wrong of what a training step is for."""
        return ranks.differences(self.reference, ranks.results())


@cache
def used(layer: str, passes: str) -> Graph:
    """The graph that a plan of a layer runs: with its updates, where there is a backward pass."""
    if passes == "forward":
        return graph(layer).forward()
    return update_ops(graph(layer, passes == "training"))


@cache
def numbers(
    layer: str, passes: str, mesh: tuple[int, ...], groups: int = 1, apart: bool = False
) -> tuple[Sizes, Mapping[str, Array], Mapping[str, Array]]:
    """A layer on one machine, at sizes that fit a mesh; tokens may fill slots in groups, as ranks do by themselves.

    What products give back to a gradient may be added ``apart`` from the rest.
    """
    made = used(layer, passes)
    sizes = Sizes(summed_first(made) if apart else made, ALL[layer].values(mesh), groups)
    given = outside(sizes)
    reference = run(sizes, given)
    assert all(np.isfinite(array).all() for array in reference.values())
    return sizes, given, reference


def case(layer: str, strategy: str, accounting: Accounting | None = None, passes: str = "training") -> Case:
    """The case; raises ``StrategyError`` where the strategy does not apply."""
    accounting = accounting or Accounting()
    made = planned(layer, strategy, accounting, passes)
    mesh = Mesh({name: int(value(size)) for name, size in made.strategy.sizes.items()})
    routes = [c for c in made.steps if isinstance(c, Compute) and c.op.kind == "route"]
    parts = {prod(mesh.sizes[m] for m, i in c.cuts if i == c.op.output_indices[-3]) for c in routes}
    assert len(parts) <= 1
    apart = any(rule.rests for _, rule in made.strategy.rules)
    sizes, given, reference = numbers(layer, passes, tuple(mesh.sizes.values()), *(parts or {1}), apart)
    assert [(op.output, op.kind) for op in made.graph.ops] == [(op.output, op.kind) for op in sizes.graph.ops]
    if accounting.gathered_activations != "regather":  # else gradients read heads before they are repeated
        assert made.graph.ops == sizes.graph.ops
    for kind in {op.kind for op in made.graph.ops}:
        RAN[kind, strategy] = RAN.get((kind, strategy), 0) + 1
    # The statistics of maps are tensors of the plan, but of no table.
    return Case(made, Sizes(made.graph, sizes.values, sizes.groups), mesh, accounting, given, reference)


def superfluous(one: Case) -> list[Collective]:
    """The collectives without which every rank still has the right results."""
    ranks, found = one.start(), []
    for number in ranks.steps():
        step = one.plan.steps[number]
        if not isinstance(step, Collective):
            continue
        other = ranks.fork()
        try:
            with np.errstate(all="ignore"):
                for _ in other.steps(without=number, start=number):
                    pass
                fails = bool(one.wrong(other))
        except (MissingBlockError, WrongCallError, ShapeMismatchError):
            fails = True
        if not fails:
            found.append(step)
    assert not one.wrong(ranks)
    return found
