"""Which results of the forward pass are computed again for backward instead of being kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.graph.gradient import training
from symcomm.core.graph.graph import Graph
from symcomm.core.parallel.placement import Collective, Compute
from symcomm.core.program.instructions import Program, Rewrite, Send, Turn, gathers_weight
from symcomm.core.records import replace

Step = Collective | Compute | Send

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
        found = frozenset(op.output for op in forward if has_scores(graph, op.output))
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


def has_scores(graph: Graph, name: str) -> bool:
    """Whether a tensor has the positions of both queries and keys."""
    axes = graph.tensors[name].axes
    for queries, keys in graph.attention_pairs:
        if queries in axes and keys in [a for n, a in enumerate(axes) if n != axes.index(queries)]:
            return True
    return False


def run_again(graph: Graph, recomputation: str, frozen: frozenset[str] = frozenset()) -> frozenset[str]:
    """The forward ops that run a second time.

    Selective recomputation runs the whole core of attention, up to the product with the values, as one function.
    """
    found = recomputed_ops(graph, recomputation)
    if recomputation == "selective":
        core = {op.output for op in graph.ops if op.phase == "forward" and any(has_scores(graph, n) for n in op.inputs)}
        return found | core
    return _read_again(graph, found, frozen) if recomputation == "needed" else found


def _read_again(graph: Graph, names: frozenset[str], frozen: frozenset[str]) -> frozenset[str]:
    """Of results that could run again those that the backward pass of their own layer needs."""
    both = training(graph, frozen=frozen)
    wanted = {n for op in both.ops if op.phase == "backward" for n in op.inputs}
    for op in reversed(graph.ops):
        if op.output in wanted & names and op.output not in {out for out, _ in graph.carried}:
            wanted |= {*op.inputs}
    return frozenset(names & wanted) - {out for out, _ in graph.carried}


def gathered_again(
    graph: Graph, steps: Iterable[Step], again: Iterable[Step], kept: Collection[str]
) -> list[Collective]:
    """The gathers of weights that stand before what runs again, for it and for backward: each is one, not two.

    Of those among the ``steps`` that are of the backward pass it is that one, else one like that of the forward pass.
    """
    read = {stored for step in again if isinstance(step, Compute) for stored in step.reads} - {*kept}
    found: dict[str, list[Collective]] = {"forward": [], "backward": []}
    for step in steps:
        if isinstance(step, Collective) and step.stored in read and gathers_weight(graph, step):
            found[step.phase].append(step)
    known = {step.stored for step in found["backward"]}
    more = (step for step in found["forward"] if step.stored not in known)
    why = "what is computed again reads it"
    return [*found["backward"], *(replace(step, phase="backward", why=why) for step in more)]


def _rewritten(program: Program) -> Program:
    """What runs again stands before the backward pass of its region, with its collectives."""
    how = RECOMPUTED[program.accounting.recomputation]
    if how == "none":
        return program
    graph = replace(program.graph, ops=tuple(op for op in program.graph.ops if op.phase == "forward"))
    names = run_again(graph, how, program.frozen)
    again: dict[str, list[Turn]] = {}
    for turn in program.turns:
        made = _again(program, turn, names) if turn.phase == "forward" else None
        if made is not None:
            again.setdefault(turn.region.name, []).append(made)
    turns, moved = list[Turn](), set[int]()
    for turn in program.turns:
        if turn.phase == "backward" and turn.region.name in again:
            mine = again.pop(turn.region.name)
            there = {id(t.work): t for t in program.turns if t.region == turn.region}
            works = [t.work for t in there.values()]
            gathers = gathered_again(graph, works, [t.work for t in mine], program.kept)
            moved |= {id(call) for call in gathers}
            turns += [*(there.get(id(call)) or Turn(call, turn.region, "backward") for call in gathers), *mine]
        turns += [turn] if id(turn.work) not in moved else []
    return replace(program, turns=tuple(turns))


def _again(program: Program, turn: Turn, names: frozenset[str]) -> Turn | None:
    """An instruction of the forward pass as it runs a second time; None where it does not."""
    work = turn.work
    if isinstance(work, Compute) and work.op.output in names:
        return replace(turn, phase="recompute")
    if isinstance(work, Collective) and work.op in names and program.tensor(work).role != "weight":
        why = "the forward pass of the layer is computed again, with its collectives"
        return replace(turn, work=replace(work, why=why), phase="recompute")
    return None


REWRITE = Rewrite("recomputation", 2, _rewritten, "recomputation")
