"""The program of a training step: what every rank computes and exchanges, in loops with symbolic counts.

A program is made from the graph of the whole model, a strategy and the conventions: the placement says what every rank
does for one microbatch, and rewrites make of that the step. Quantities are folds over it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache

from symcomm.core.accounting import Accounting
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.graph.gradient import training
from symcomm.core.graph.graph import Graph, Region
from symcomm.core.parallel import placement
from symcomm.core.parallel.halo import with_halos
from symcomm.core.parallel.placement import Collective, Compute
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program.instructions import Instruction, Program, gathers_weight, home
from symcomm.core.program.rewrites import rewrites
from symcomm.core.program.rewrites.recomputation import RECOMPUTED
from symcomm.core.records import ByIdentity, replace

ONE_RANK = Strategy("one rank", (), (), "Everything is on one rank.")


def program(
    graph: Graph,
    strategy: Strategy | None = None,
    accounting: Accounting | None = None,
    frozen: Collection[str] = (),
    input_gradient: bool | None = None,
    recomputation: str | None = None,
) -> Program:
    """The program of a training step; ``frozen`` weights get no gradient.

    ``input_gradient`` and ``recomputation`` are those of the accounting where they are not said. Raises
    ``StrategyError`` where the strategy names an axis that the graph does not have.
    """
    accounting = accounting or Accounting()
    needed = accounting.input_gradient == "needed" if input_gradient is None else input_gradient
    again = RECOMPUTED[accounting.recomputation] if recomputation is None else recomputation
    return _program(graph, strategy or ONE_RANK, accounting, frozenset(frozen), needed, again)


def trained(graph: Graph, accounting: Accounting, frozen: Collection[str] = ()) -> Graph:
    """The forward and backward ops of a training step; ``frozen`` weights get no gradient."""
    return training(graph, accounting.input_gradient == "needed", frozenset(frozen))


def unstaged(strategy: Strategy) -> Strategy:
    """A strategy without its pipeline and its name: two that do the same are equal."""
    return replace(strategy, pipeline=None, name="", why="")


@lru_cache(maxsize=64)
def batch_of(graph: Graph) -> str:
    """The axis that is the batch; raises ``StrategyError`` where none is, or it cannot be told which."""
    (batch,) = batch_axes(graph)
    return batch


@lru_cache(maxsize=64)
def _program(
    graph: Graph, strategy: Strategy, accounting: Accounting, frozen: frozenset[str], needed: bool, again: str
) -> Program:
    # Neither the stages of a pipeline nor most conventions change what a rank does for one microbatch.
    shared = Accounting(gathered_activations=accounting.gathered_activations,
                        batch_statistics=accounting.batch_statistics)  # fmt: skip
    same = _placed(graph, unstaged(strategy), shared, frozen, needed)
    made = replace(same, plan=_staged(ByIdentity(same.plan), strategy), accounting=accounting, recomputation=again)
    for rewrite in rewrites():
        made = rewrite(made)
    return made


@lru_cache(maxsize=64)
def _staged(held: ByIdentity[placement.Plan], strategy: Strategy) -> placement.Plan:
    """A plan with the stages of a pipeline, which change nothing in it."""
    return held.it if held.it.strategy == strategy else replace(held.it, strategy=strategy)


@lru_cache(maxsize=64)
def _placed(
    graph: Graph, strategy: Strategy, accounting: Accounting, frozen: frozenset[str], needed: bool
) -> Program:
    """The program as the placement gives it: what every rank does for one microbatch, and what finishes the step."""
    split = with_halos(graph, strategy)
    made = placement.plan(training(split, needed, frozen), strategy, accounting)
    # The first repetition of a region that reads the model's input may do without the gradient of that input.
    first = made if needed else placement.plan(_without_inputs(split, frozen), strategy, accounting)
    there = {(c.kind, c.tensor, c.phase) for c in first.collectives}
    found, regions = Program(made, accounting, frozen=frozen), {region.name: region for region in made.graph.regions}
    instructions: list[Instruction] = []
    for step in made.steps:
        region = regions.get(home(made.graph, step)) or Region(graph.name)
        if isinstance(step, Compute):
            phase = "update" if step.op.kind == "update" else step.op.phase
            instructions.append(Instruction(step, region, phase, every=step.op.output in first.computed))
            continue
        finishes = step.phase == "update" or (step.phase == "backward" and found.of_weight(step))
        every, by = (step.kind, step.tensor, step.phase) in there, tuple(_decided(found, step, graph.windowed))
        by = by if every else (*by, "input_gradient")
        instructions.append(Instruction(step, region, step.phase, finishes, every, by=by))
    return replace(found, instructions=tuple(instructions))


def _decided(made: Program, call: Collective, windowed: bool) -> Iterator[str]:
    """The conventions by which a collective is there, and in its place."""
    moved = made.tensor(call)
    if moved.role == "statistic" and "batchnorm" in made.graph.producers[moved.of].kind:
        yield "batch_statistics"
    if gathers_weight(made.graph, call):
        yield "gathered_weights"
    elif call.kind in ("all-gather", "all-to-all") and call.phase != "update":
        yield "gathered_activations"
        if windowed and call.kind == "all-gather":
            yield "attention"  # which says that keys and values are gathered whole
    if moved.role == "gradient" and made.graph.tensors[moved.of].role == "input":
        yield "input_gradient"


def _without_inputs(graph: Graph, frozen: frozenset[str]) -> Graph:
    single = tuple(replace(region, times="") for region in graph.regions)
    return training(replace(graph, regions=single), False, frozen)
