"""The derived numbers of a case to run: operations, parameters, saved bytes and calls, of the ranks that count.

A case is a model under a strategy at small sizes, with the way of PyTorch's that runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from math import ceil, prod
from typing import Any

from symcomm.core.accounting import Accounting
from symcomm.core.errors import StrategyError, nearest
from symcomm.core.form import evaluate, from_expr, num
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.graph.gradient import gradient_name
from symcomm.core.graph.graph import Graph, Op, Tensor
from symcomm.core.model import Model
from symcomm.core.parallel.placement import PARTIAL, Compute, Plan
from symcomm.core.parallel.strategy import Strategy, parse_strategy
from symcomm.core.program import instructions, loops, pipeline, vocabulary
from symcomm.core.program.program import ONE_RANK, program
from symcomm.core.program.schedules import find
from symcomm.core.quantities.communication.call import calls
from symcomm.core.quantities.counting import flops
from symcomm.core.quantities.counting.load import repeated
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting
from symcomm.verify.attention import KernelError, attentions, with_kernels
from symcomm.verify.conventions import CONVENTIONS, CallEntry, RunContext, finished, is_product
from symcomm.verify.launch import RANK_LIMIT, VerificationError
from symcomm.verify.methods import SCHEDULES, Method, batch_meshes, method, shard_rules
from symcomm.verify.sizes import small_sizes

WIDTH = 4  # bytes of fp32
PROCESS = 150 * 10**6  # bytes that a forked process takes of its own
COPIES = {"weight": 7, "other": 2}  # of a tensor in a rank at once: data(2) of 50 M parameters took 7 times as much


@dataclass(frozen=True)
class RunCase:
    """A model, a strategy and numbers, ready to be derived and run."""

    model: Model
    strategy: Strategy
    method: Method
    sizes: Mapping[str, int]
    mesh: Mapping[str, int]
    schedule: str
    stages: int
    chunks: int
    microbatches: int
    accounting: Accounting
    degrees: Mapping[str, Fraction]
    written_out: str = ""  # why attention is, where it is derived as one kernel
    early: bool = False  # whether sums are finished before products read them

    @property
    def graph(self) -> Graph:
        """The graph of the model."""
        return self.model.graph

    @property
    def known(self) -> dict[str, Fraction]:
        """The sizes and degrees as exact numbers."""
        return {n: Fraction(v) for n, v in self.sizes.items()} | dict(self.degrees)

    @property
    def ranks(self) -> int:
        """The number of processes."""
        return prod(self.mesh.values())

    @property
    def pipelined(self) -> bool:
        """Whether ranks hold stages, which do not do the same."""
        return self.strategy.pipeline is not None

    @property
    def inside(self) -> Strategy:
        """The strategy without its pipeline."""
        return replace(self.strategy, pipeline=None) if self.strategy.mesh else ONE_RANK

    @cached_property
    def homes(self) -> list[int]:
        """The rank that runs each stage."""
        stage, every = find(self.schedule).placement.stage, product(range(self.stages), range(self.chunks))
        return [rank for _, rank in sorted((stage(rank, chunk, self.stages), rank) for rank, chunk in every)]

    @property
    def ends(self) -> int:
        """How many ranks hold the first and the last stage."""
        return len({self.homes[0], self.homes[-1]})

    def number(self, expression: Any) -> Fraction:
        """The worth of a size."""
        return evaluate(from_expr(expression), self.known)

    def times(self, region: str) -> Fraction:
        """How often a region occurs."""
        stands = {r.name: r.times for r in self.graph.regions}
        return self.known[stands[region]] if stands.get(region) else Fraction(1)

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape of a tensor as the written module holds it."""
        sizes = ([self.number(self.graph.axes[a].size) for a in axes] for axes in tensor.own_axes)
        return tuple(int(prod(some, start=Fraction(1))) for some in sizes)

    @cached_property
    def weights(self) -> frozenset[str]:
        """The names of the weights."""
        return frozenset(w.name for w in self.graph.weights)

    @property
    def parts(self) -> Graph:
        """The graph with the words of the first rank, which has the largest part; all ranks together have them once."""
        inside = ONE_RANK if self.pipelined else self.inside
        return vocabulary.in_parts(self.graph, inside, self.accounting, self.known)

    @property
    def smaller(self) -> int:
        """How many ranks have fewer words than the first one."""
        cut = vocabulary.cut_vocabulary(self.graph, self.inside)
        if cut is None or not cut.uneven(self.graph, self.known):
            return 0
        words, ranks = self.number(self.graph.axes[cut.axes[0]].size), evaluate(cut.ranks, self.known)
        full = words // ceil(words / ranks)
        return int((ranks - full) * self.ranks / ranks)

    def program(self, strategy: Strategy) -> instructions.Program:
        """The program of a training step; where sums are ``early``, as DTensor runs it."""
        setting = self.setting(strategy)
        made = program(setting.graph, strategy, setting.accounting)
        return finished(made) if self.early else made

    def setting(self, strategy: Strategy) -> Setting:
        """The setting that quantities of a strategy are derived from."""
        graph = self.parts if strategy.mesh else self.graph
        return Setting(graph, self.accounting, "fp32", self.model.notation, self.known)

    @cached_property
    def plan(self) -> Plan:
        """The work of every rank in one stage."""
        return program(self.parts, self.inside, self.accounting).plan


def make_case(
    model: Model, strategy: Strategy | str | None, values: Mapping[str, Fraction], schedule: str, chunks: int,
    softmax: str = "as_given",
) -> RunCase:  # fmt: skip
    """A case at small sizes; raises ``StrategyError`` for what PyTorch has no way to run.

    Attention is one kernel where ``softmax`` says so, and PyTorch's kernel does what is written.
    """
    strategy = parse_strategy(strategy) if isinstance(strategy, str) and strategy else strategy or ONE_RANK
    assert isinstance(strategy, Strategy)
    model = model.open_step()
    if model.graph.step is not None:  # its sizes are taken as they are where they are small
        said = [str(size) for size in (model.graph.step.new, model.graph.step.past)]
        values = {**{name: model.values[name] for name in said if model.values.get(name, 65) <= 64}, **values}
    graph = batch_first(model.graph)
    if graph.step is not None:
        method(strategy, graph.step)
    model = replace(model, graph=replace(graph, fused=_asked_fused(graph, softmax)))
    missing = [n for n in strategy.names if n not in values]
    if missing:
        raise StrategyError(f"{missing[0]} of {strategy.name} has no number", hint=f"--at {missing[0]}=2")
    degrees = {n: values[n] for n in strategy.names}
    degree = {axis: int(evaluate(size, values)) for axis, size in strategy.sizes.items()}
    strategy = _without_ones(strategy, degree)
    used = method(strategy, graph.step)
    if not graph.weights and {"ddp", "zero1"} & {*used.name.split("+")}:
        raise StrategyError(f"{graph.name} has no weights, and {used.interface} takes only what is trained",
                            hint="one process runs it: leave the strategy out")  # fmt: skip
    mesh = {axis: degree[axis] for axis in reversed(strategy.mesh_order)}
    stages = microbatches = 1
    cut = strategy.pipeline
    if cut is not None:
        if cut.layers or cut.stages is None:
            raise StrategyError(
                "PyTorch runs here a pipeline of stages that are all alike", hint="pipeline(2, microbatches=4)"
            )
        stages, microbatches = (int(evaluate(f, values)) for f in (cut.stages, cut.microbatches))
        if stages == 1:
            raise StrategyError("a pipeline of one stage sends nothing", hint="leave the pipeline out")
        if schedule not in SCHEDULES:
            raise StrategyError(
                f"torch.distributed.pipelining has no schedule '{schedule[:40]}' here",
                hint=nearest(schedule, [*SCHEDULES]),
            )
        record = find(schedule)
        chunks = record.fitting(stages, microbatches, chunks if record.chunks is None else None)
        mesh = {"pipe": stages, **mesh}
    ranks = prod(mesh.values())
    if ranks > RANK_LIMIT:
        raise VerificationError(f"{strategy.name} takes {ranks} processes; at most {RANK_LIMIT} are started",
                                hint="smaller degrees show the same")  # fmt: skip
    own = {n: v for n, v in values.items() if n not in degrees}
    unit = max(2, ranks // stages)  # one axis may be cut by all of them
    sizes = small_sizes(model.graph, own, unit, microbatches, max(2, stages * chunks))
    if graph.step is not None:  # at numbers it is known what is cheaper
        end = graph.step.past + graph.step.new
        end = int(end.subs({s: sizes[s.name] for s in end.free_symbols}))
        rows = {name: max(sizes[name], end + unused) for _, name, unused in graph.model.limits if name not in own}
        sizes = {**sizes, **rows}
        known = {**model.values, **{name: Fraction(size) for name, size in sizes.items()}}
        graph = batch_first(replace(model, values=known).open_step().graph)
        model = replace(model, graph=replace(graph, fused=False))
    accounting = Accounting.of(**dict(used.accounting))
    stacked = any(region.times for region in model.graph.regions)
    if "fsdp2" in used.name:
        dropped = stacked and resharded(strategy) and cut is None
        accounting = replace(accounting, gathered_weights="layers" if dropped else "keep")
    made = RunCase(model, strategy, used, sizes, mesh, schedule, stages, chunks, microbatches, accounting,
                   degrees)  # fmt: skip
    words = vocabulary.in_parts(model.graph, made.inside, accounting, made.known)
    pipeline.check_divisible(words, strategy, made.known)
    why = _no_kernel(made)
    if why:
        made = replace(made, model=replace(model, graph=replace(model.graph, fused=False)), written_out=why)
    return made


def _asked_fused(graph: Graph, softmax: str) -> bool:
    """Whether attention is derived as one kernel; raises ``StrategyError`` for another softmax than is written."""
    if softmax not in ("as_given", "library", "fused"):
        raise StrategyError(f"the written module has no softmax '{softmax[:40]}'",
                            hint=nearest(softmax, ["as_given", "library", "fused"]))  # fmt: skip
    if graph.step is not None and softmax == "fused":
        what = "a step is written with its attention op by op: PyTorch's kernel takes no earlier positions"
        raise StrategyError(what, hint="leave --softmax out")
    return bool(graph.scores) and graph.step is None and (graph.fused if softmax == "as_given" else softmax == "fused")


def _no_kernel(case: RunCase) -> str:
    """Why the attention of a case is written out though it is derived as one kernel; empty where it is not."""
    try:
        kernels = attentions(case.graph)
    except KernelError as error:
        return error.message
    placed = "dtensor" in case.method.name
    if placed and not all(kernel.has_whole_heads(case.plan.cuts) for kernel in kernels):
        return "a rank has no whole heads: scaled_dot_product_attention would see a part of the keys or queries"
    return ""


def batch_first(graph: Graph) -> Graph:
    """The graph with the batch before the heads where heads share keys and values: no product has to copy them.

    A batched product takes its rows from one operand without a copy only where heads and positions lie side by side.
    """
    batch = {*batch_axes(graph)}

    def turned(name: str) -> bool:
        first = graph.tensors[name].own_axes[:2]
        return len(first) == 2 and len(first[0]) == len(first[1]) == 1 and first[1][0] in batch

    def shares(op: Op) -> bool:
        if op.phase != "forward" or len(op.inputs) != 2 or not flops.is_matrix_product(op):
            return False
        one, other = op.inputs
        axes = {name: graph.tensors[name].axes for name in op.inputs}
        pairs = ((one, other), (other, one))
        return any(turned(a) and batch & {*axes[b]} and axes[a][0] not in axes[b] for a, b in pairs)

    if not any(shares(op) for op in graph.ops):
        return graph
    moved = {name for name in graph.tensors if turned(name)}

    def swapped(name: str, order: tuple[Any, ...]) -> tuple[Any, ...]:
        return (order[1], order[0], *order[2:]) if name in moved else order

    tensors = {n: replace(t, axes=swapped(n, t.axes)) for n, t in graph.tensors.items()}
    ops = tuple(
        replace(op, indices=tuple(swapped(n, ix) for n, ix in zip(op.inputs, op.indices, strict=True)),
                output_indices=swapped(op.output, op.output_indices)) for op in graph.ops
    )  # fmt: skip
    return replace(graph, tensors=tensors, ops=ops)


def _without_ones(strategy: Strategy, degree: Mapping[str, int]) -> Strategy:
    """The strategy without the axes of the mesh that have one rank: they change nothing."""
    rules = tuple(pair for pair in strategy.rules if degree[pair[1].mesh] > 1)
    mesh = tuple(pair for pair in strategy.mesh if degree[pair[0]] > 1)
    return replace(strategy, rules=rules, mesh=mesh) if mesh or strategy.pipeline else ONE_RANK


def resharded(strategy: Strategy) -> bool:
    """Whether sharded weights are dropped again after the forward pass."""
    return all("weight" in rule.on for rule in shard_rules(strategy))


def needed_memory(graph: Graph, known: Mapping[str, Fraction], ranks: int) -> int:
    """About as many bytes as a run takes: each rank holds the model of one process beside its own, and gradients."""
    stands = {region.name: known.get(region.times, Fraction(1)) for region in graph.regions}
    numbers = Fraction(0)
    for name, tensor in graph.tensors.items():
        op = graph.producers.get(name) or next(iter(graph.consumers.get(name, ())), None)
        if not tensor.virtual and op is not None:
            copies = COPIES["weight" if tensor.role == "weight" else "other"]
            numbers += evaluate(from_expr(graph.volume(name)), known) * stands.get(op.region, 1) * copies
    return int(ranks * (numbers * WIDTH + PROCESS))


# -- derived ---------------------------------------------------------------------------------------------


def _calls(case: RunCase) -> list[CallEntry]:
    """Every call that one rank makes in a step; of a pipeline those of all ranks together."""
    found: list[CallEntry] = []
    others, microbatches = case.ranks // case.stages if case.pipelined else 1, num(case.microbatches)
    strategy = case.strategy if case.ends > 1 else case.inside  # else a weight of both ends is held once
    for c in calls(case.setting(strategy), strategy, microbatches=microbatches, made=case.program(strategy)):
        times = int(evaluate(c.times, case.known))
        if c.meshes != instructions.BETWEEN_STAGES and times and prod(case.mesh[m] for m in c.meshes) > 1:
            group = "+".join(m for m in case.mesh if m in c.meshes)
            parts = 1 if c.finishes or c.tensor in case.weights else case.microbatches
            found.append(CallEntry(c.kind, c.phase, group, c.tensor, case.number(c.elements) * others,
                                   others * times * parts, times))  # fmt: skip
    # Everything is sent over each boundary; what both ends of a pipeline hold, they add up.
    sent = sum(a != b for a, b in pairwise(case.homes)) * others
    for c in calls(case.setting(case.strategy), case.strategy) if case.pipelined else ():
        ranks, parts = (sent, case.microbatches) if c.kind == "send" else (case.ends * others, 1)
        if c.meshes == instructions.BETWEEN_STAGES and (c.kind == "send" or case.ends > 1):
            found.append(CallEntry(c.kind, c.phase, "pipe", c.tensor, case.number(c.elements) * ranks, ranks * parts))
    return found


def derived_flops(case: RunCase) -> Fraction:
    """The operations of a rank; of a pipeline those of all its stages together.

    They are those that public quantities tell of the model, less what the strategy takes off one device; scores that a
    kernel makes again are among them.
    """
    scopes = ("forward", "backward") if case.graph.step is None else ("forward",)
    passes = [_public(case, "flops", scope=scope) for scope in scopes]
    if case.graph.fused:
        passes.append(_public(case, "recomputation", recomputation="none", count="flops"))
    return sum(passes) + _flops(case, case.inside) - _flops(case, ONE_RANK)


def _public(case: RunCase, quantity: str, graph: Graph | None = None, **options: Any) -> Fraction:
    """A public quantity of the model, or of another ``graph`` for it, at the numbers of the case."""
    model = replace(case.model, graph=graph or case.graph, dtype="fp32", values=case.known)
    return Fraction(model.derive(quantity, **{"accounting": case.accounting, **options}).at().value)


def _flops(case: RunCase, strategy: Strategy, chosen: Callable[[Op], bool] = flops.is_matrix_product) -> Fraction:
    """The operations of some products on one rank of a strategy, as often as they run."""
    made, setting, total = case.program(strategy), case.setting(strategy), Fraction(0)
    for one, around in loops.repeats(loops.training_step(made, pipeline.held(made.graph, None))):
        step = one.work
        if isinstance(step, Compute) and chosen(step.op):
            counts = flops.matrix_flops(setting, made.graph, step.op), *(often for _, often in around)
            ranks = prod(case.mesh[m] for m, _ in step.cuts)
            total += prod((evaluate(count, case.known) for count in counts), start=Fraction(1, ranks))
    return total


def derived_cache(case: RunCase) -> Fraction:
    """The bytes of the cache that a step reads, of all sequences of a rank."""
    step = case.graph.step
    assert step is not None
    before = replace(case.graph, step=replace(step, phase="decode"))
    return _public(case, "kv_cache", before, strategy=case.inside,
                   accounting=Accounting.of(case.accounting, window_cache="w-1"))  # fmt: skip


def derived_parameters(case: RunCase) -> Fraction:
    """The parameters of all ranks together."""
    total = Fraction(0)
    for weight in case.graph.weights:
        regions = dict.fromkeys(op.region for op in case.graph.consumers[weight.name])  # of a head, too
        count = case.number(case.graph.volume(weight.name)) * case.times(next(iter(regions)))
        cuts = (case.mesh[mesh] for mesh, at in case.plan.placements.get(weight.name, ()) if at != PARTIAL)
        total += count * (case.ends if len(regions) > 1 else 1) / prod(cuts)
    return total * (case.ranks // case.stages)


def without_dropout(graph: Graph) -> Graph:
    """The graph in which dropout hands its operand on."""

    def off(op: Op) -> Op:
        masks = [n for n in op.inputs if graph.tensors[n].dtype == "bool" and not graph.tensors[n].virtual]
        if op.kind != "contraction" or not masks or len(op.inputs) != 2:
            return op
        at = 1 - op.inputs.index(masks[0])
        return replace(op, inputs=(op.inputs[at],), indices=(op.indices[at],), attributes=(("view", True),))

    ops = tuple(map(off, graph.ops))
    return replace(graph, ops=ops) if ops != graph.ops else graph


def with_products(graph: Graph) -> Graph:
    """The graph in which products with a 0/1 tensor bring tokens to experts, as the written module does it.

    Each expert and slot has its number, as of a repeated tensor; like a one-hot tensor it gets no gradient.
    """
    routes = {op.output for op in graph.ops if op.kind == "route"}

    def made(op: Op) -> Op:
        if op.output in routes:
            return replace(op, kind="onehot", attributes=())
        kept = tuple(pair for pair in op.attributes if pair[0] != "lookup")
        return replace(op, attributes=kept) if is_product(op, graph) else op

    tensors = {n: replace(graph.tensors[n], virtual=False, role="activation", dtype=None) for n in routes}
    ops = tuple(map(made, graph.ops))
    return replace(graph, tensors={**graph.tensors, **tensors}, ops=ops) if routes else graph


def derived_saved(case: RunCase, graph: Graph) -> Fraction:
    """The bytes that eager PyTorch keeps for backward on a rank."""
    return _public(case, "activation_memory", graph, strategy=case.inside, accounting=_eager(case))


def _eager(case: RunCase) -> dict[str, str]:
    """How eager PyTorch accounts for memory."""
    return {"saved": "pytorch", "gathered_activations": case.accounting.gathered_activations}


def why_no_saved(case: RunCase) -> str:
    """Why saved bytes are not compared; empty where they are, and where there is no backward pass."""
    if case.pipelined:
        return "a stage keeps those of several microbatches at once"
    if not case.graph.fused and any(_is_lone(case, op, name) for op in case.graph.ops for name in op.inputs):
        return "PyTorch repeats one head of one sequence by a view, and a copy for each head that shares it is derived"
    routes = any(op.kind == "route" for op in case.graph.ops)
    moved = any(c.phase == "forward" and c.kind != "all-reduce" for c in case.plan.collectives)
    return "DTensor keeps what it gathers for experts" if "dtensor" in case.method.name and routes and moved else ""


def _is_lone(case: RunCase, op: Op, name: str) -> bool:
    """Whether a product reads repeated heads of which a rank has one, of one sequence: it needs no copy of them."""
    made = repeated(case.graph, name)
    if made is None or op.phase != "forward" or not flops.is_matrix_product(op):
        return False
    places = dict(zip(made.output_indices, op.indices[op.inputs.index(name)], strict=True))
    side_by_side = {*op.output_indices}.intersection(*op.indices)
    axes = [case.graph.axes[a] for a, i in zip(case.graph.tensors[made.inputs[0]].axes, made.indices[0], strict=True)
            if places[i] in side_by_side]  # fmt: skip
    ranks = prod(case.mesh[m] for m in outside(case) & {*batch_meshes(case.strategy)})
    batch = {*batch_axes(case.graph)}
    return all(case.number(axis.size) == (ranks if axis.name in batch else 1) for axis in axes)


def why_no_peak(case: RunCase) -> str:
    """Why the peak of a run is not the one that is derived, and not compared; empty where it is."""
    if any(kernel.op.attribute("grouped") for kernel in attentions(case.graph)):
        return ("the CPU's kernel of attention adds up the gradients of keys and values that heads share; derived is "
                "one for each head, as on GPUs")  # fmt: skip
    if case.method.name in ("single", "ddp"):
        return ""
    if case.method.name != "dtensor":
        return f"{case.method.interface} has buffers of its own"
    if cut_classes(case):
        return "loss_parallel makes the gradient of classes that are cut in fewer ops"
    if shared_rows(case):
        return "DTensor makes the gradient of a table whose rows are cut whole on each rank, and copies its part"
    finished = {gradient_name(name) for name in case.weights}
    calls = [(c.kind, c.tensor.partition(" @ ")[0]) for c in case.plan.collectives]
    # Sums of activations take the place of what they sum.
    sums = all(kind == "all-reduce" and tensor not in finished for kind, tensor in calls)
    return "" if sums else "DTensor gathers, scatters and sums gradients of weights through tensors of its own"


def shared_rows(case: RunCase) -> dict[str, int]:
    """The tables in which ids are looked up and whose gradients are made in parts of their rows, by how many ranks."""
    graph = case.plan.graph
    rows = {name: at.index(op.summed[0]) for op in graph.ops if op.phase == "forward" and op.attribute("lookup")
            for name, at in zip(op.inputs, op.indices, strict=True) if name in case.weights}  # fmt: skip
    found = dict.fromkeys(rows, 1)
    for step in case.plan.steps:
        of = graph.tensors[step.op.output].of if isinstance(step, Compute) and step.op.phase == "backward" else ""
        if isinstance(step, Compute) and of in rows:
            inside = [m for m, position in step.output if position == rows[of] and m not in outside(case)]
            found[of] = max(found[of], prod(case.mesh[m] for m in inside))
    return {name: ranks for name, ranks in found.items() if ranks > 1}


def cut_classes(case: RunCase) -> bool:
    """Whether the classes of a loss are cut."""
    return any(isinstance(s, Compute) and s.op.kind == "crossentropy" and s.part != "whole" for s in case.plan.steps)


def derived_peak(case: RunCase) -> Fraction:
    """The most bytes that are alive at once on a rank in the backward pass of eager PyTorch."""
    said = _eager(case) | {"gradient_buckets": "copied" if case.method.name == "ddp" else "in_place"}
    return _public(case, "peak_memory", with_products(without_dropout(case.graph)), strategy=case.inside,
                   accounting=said, recipe="fp32_sgd", step="backward")  # fmt: skip


def _routing_flops(case: RunCase) -> Fraction:
    """The products that bring tokens to experts and back, in both passes, on one rank."""
    graph = case.plan.graph

    def routes(op: Op) -> bool:
        # What is summed over one token is no matrix product in PyTorch.
        several = any(case.number(graph.axes[graph.index_axes(op)[i]].size) > 1 for i in op.summed)
        return several and bool(op.attribute("lookup")) and not flops.is_matrix_product(op) and is_product(op, graph)

    return _flops(case, case.inside, routes)


def _handed_on(case: RunCase) -> dict[str, int]:
    """For each sum, how many of its operands were reduced and cut for it alone: they all get its gradient.

    A bias may be added in between.
    """
    cut = {c.stored for c in case.plan.collectives if c.kind == "reduce-scatter" and c.phase == "forward"}
    cut = {name for name in cut if len(case.graph.consumers.get(name, ())) == 1}
    for op in case.graph.ops:
        alone = len(case.graph.consumers.get(op.output, ())) == 1
        if op.kind == "add" and alone and op.inputs[0] in cut and {*op.inputs[1:]} <= case.weights:
            cut.add(op.output)
    return {op.output: n for op in case.graph.ops if op.kind == "add" for n in [len(cut & {*op.inputs})] if n > 1}


def placed_axis(graph: Graph, name: str, position: int) -> int:
    """The axis of a tensor as it is held behind an axis of the graph.

    Raises ``StrategyError`` where that is the inner part of an axis, which PyTorch cannot cut by itself.
    """
    held = graph.tensors[name].held
    for n in range(len(held)):
        if sum(held[:n]) == position:
            return n
    raise StrategyError(f"{name} is cut inside an axis of the table, which a DTensor cannot hold")


Key = tuple[str, str, str]
Moved = dict[Key, tuple[Fraction, int | None]]  # by kind, phase and group: elements, and calls where they are known


def expected_calls(case: RunCase, context: RunContext) -> tuple[Moved, Moved, dict[Key, list[str]]]:
    """The calls as derived and under PyTorch's conventions, and the conventions that change each of them."""
    derived = entries = _calls(case)
    explained: dict[Key, list[str]] = {}
    for name in case.method.conventions:
        made = CONVENTIONS[name].rewrite(entries, context)
        before, after = _grouped(entries), _grouped(made)
        for key in (key for key in after if before.get(key) != after[key]):
            explained.setdefault(key, []).append(name)
        entries = made
    return _grouped(derived), _grouped(entries), explained


def _tables(case: RunCase) -> Fraction:
    """The elements of masks and rotations that the module holds."""
    ops = with_kernels(case.graph.ops, attentions(case.graph))
    found = {n: op.region for op in ops if op.kind in ("mask", "rope") for n in op.inputs[1:]}
    found |= {n: op.region for op in ops if op.kind == "attention" for n in op.inputs[3:]}  # of a window
    made = {n: region for n, region in found.items() if not case.graph.tensors[n].latex}
    return sum((case.number(case.graph.volume(n)) * case.times(region) for n, region in made.items()), Fraction(0))


def context_of(case: RunCase) -> RunContext:
    """The facts of a case that the conventions may look at."""
    shards, early = prod(case.mesh[rule.mesh] for rule in shard_rules(case.strategy)), replace(case, early=True)
    spared = _flops(case, case.inside) - _flops(early, case.inside)
    rows = {name: ranks for name, ranks in shared_rows(case).items()
            if all(op.attribute("lookup") for op in case.graph.consumers[name] if op.phase == "forward")}  # fmt: skip
    return RunContext(
        {w.name: case.shape(w) for w in case.graph.weights}, case.mesh, shards, _routing_flops(case), _handed_on(case),
        _calls(early), spared, _tables(case), case.microbatches, outside(case), rows,
    )  # fmt: skip


def outside(case: RunCase) -> frozenset[str]:
    """The axes of the mesh that what is around DTensor looks after: stages, and the data where it is by itself."""
    parts = case.method.name.split("+")
    if parts[-1] == "dtensor" and not {"fsdp2", "replicate"} & {*parts}:
        return frozenset({"pipe"} & {*case.mesh})
    sharded = {rule.mesh for rule in shard_rules(case.strategy)}
    return frozenset({"pipe", *sharded, *batch_meshes(case.strategy)} & {*case.mesh})


def _grouped(entries: list[CallEntry]) -> Moved:
    found: Moved = {}
    for e in entries:
        key = (e.kind, e.phase, e.group)
        size, count = found.get(key, (Fraction(0), 0))
        found[key] = (size + e.total, None if count is None or e.calls is None else count + e.calls)
    return found
