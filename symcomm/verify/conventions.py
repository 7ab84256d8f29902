"""Where PyTorch moves or counts otherwise than the derivation, each way by name.

A convention rewrites what is derived into what PyTorch does by that rule; it never looks at what was measured. What
is then still different is a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from math import prod

from symcomm.core.graph.gradient import gradient_name
from symcomm.core.graph.graph import Graph, Op
from symcomm.core.parallel.placement import PARTIAL, Collective, Compute
from symcomm.core.program import instructions
from symcomm.core.quantities.counting import flops
from symcomm.core.records import dataclass

_DOCS = "https://docs.pytorch.org/docs/stable"


@dataclass(frozen=True)
class CallEntry:
    """Calls that are alike: kind, phase, group, tensor, elements of one call, and how many there are.

    ``calls`` is None where several tensors share a call.
    """

    kind: str
    phase: str
    group: str
    tensor: str
    elements: Fraction
    calls: int | None = 1
    times: int = 1

    @property
    def total(self) -> Fraction:
        """The elements of all of them."""
        return self.elements * self.times


@dataclass(frozen=True)
class RunContext:
    """The facts of a run that a convention may look at."""

    shapes: Mapping[str, tuple[int, ...]]  # of weights as they are held
    mesh: Mapping[str, int]  # the ranks of each axis
    shards: int = 1  # the ranks over which weights are sharded
    routing_flops: Fraction = Fraction(0)
    handed_on: Mapping[str, int] = field(default_factory=dict)  # of a sum: its operands that were reduced and cut
    finished: Sequence[CallEntry] = ()  # calls whose sums are finished before a product reads them
    spared: Fraction = Fraction(0)  # operations that a step with such calls lacks
    tables: Fraction = Fraction(0)  # elements of what the module holds besides weights
    microbatches: int = 1
    outside: frozenset[str] = frozenset()  # the axes that what stands around DTensor looks after
    shared_rows: Mapping[str, int] = field(default_factory=dict)  # of tables that ids alone read


CallEntries = list[CallEntry]
FINISHED = "reduced_before_product"


@dataclass(frozen=True)
class TorchConvention:
    """A way of PyTorch's: its name, one sentence, where it is documented, and what it makes of derived calls."""

    name: str
    statement: str
    source: str
    rewrite: Callable[[CallEntries, RunContext], CallEntries] = field(default=lambda made, context: made, repr=False)
    flops: Callable[[Fraction, RunContext], Fraction] = field(default=lambda count, context: count, repr=False)
    parameters: Callable[[Fraction, RunContext], Fraction] = field(default=lambda count, context: count, repr=False)


Rewrite = Callable[[CallEntries, RunContext], CallEntries]


def _each(change: Callable[[CallEntry, RunContext], CallEntry]) -> Rewrite:
    return lambda entries, context: [change(e, context) for e in entries]


def _shared(e: CallEntry, context: RunContext) -> CallEntry:
    return replace(e, calls=None) if e.tensor in context.shapes and e.group != "pipe" else e


def _padded(e: CallEntry, context: RunContext) -> CallEntry:
    shape, ranks = context.shapes.get(e.tensor, ()), context.mesh.get(e.group, 1)
    weight = e.kind in ("all-gather", "reduce-scatter") and shape
    return replace(e, elements=e.elements * Fraction(-(-shape[0] // ranks) * ranks, shape[0])) if weight else e


def _turned(kind: str, phase: str = "", into_kind: str = "", into_phase: str = "") -> Rewrite:
    """Calls of a kind, in a phase where one is named, as those of another kind or phase."""

    def turned(e: CallEntry, context: RunContext) -> CallEntry:
        mine = e.kind == kind and phase in ("", e.phase)
        return replace(e, kind=into_kind or e.kind, phase=into_phase or e.phase) if mine else e

    return _each(turned)


def _often(e: CallEntry, times: int) -> CallEntry:
    return replace(e, times=e.times * times, calls=e.calls and e.calls * times)


def _gathered_for_each(e: CallEntry, context: RunContext) -> CallEntry:
    return _often(e, context.handed_on.get(e.tensor, 1)) if (e.kind, e.phase) == ("all-gather", "backward") else e


def is_product(op: Op, graph: Graph) -> bool:
    """Whether the written module does an op as a matrix product; it brings tokens to experts by products, too."""
    if op.kind != "contraction" or len(op.inputs) < 2:
        return False
    made = [graph.producers.get(name) for name in op.inputs]
    ids = any(one is not None and one.kind == "onehot" for one in made)
    slices = any(graph.tensors[n].virtual and one is None for n, one in zip(op.inputs, made, strict=True))
    routes = bool(op.attribute("lookup")) and not (ids or slices or op.attribute("slice"))
    return flops.is_matrix_product(op) or routes


def finished(made: instructions.Program) -> instructions.Program:
    """The program as DTensor runs it: products read no partial sums, so what they made of them is whole, or cut.

    Neither does the backward pass of a layer norm, which makes the gradients of its gain and bias, too. A gradient is
    cut where the forward pass cut its tensor.
    """
    graph, found = made.graph, list[instructions.Instruction]()
    now: dict[tuple[str, str], int | None] = {}  # where what is partial no more is along an axis
    steps = [(one, one.work) for one in made.instructions if isinstance(one.work, Compute)]
    always = {name for one, step in steps if one.every for name in step.reads}
    forward = {step.makes: {m: at for m, at in step.output if at != PARTIAL} for one, step in steps
               if one.phase == "forward"}  # fmt: skip
    rows = {op.row for op in graph.ops if op.kind == "layernorm"}
    normed = {gradient_name(op.output) for op in graph.ops if op.phase == "forward" and op.row in rows}
    for one in made.instructions:
        step = one.work
        if isinstance(step, Collective):
            after = dict(step.after)
            left = tuple(m for m in step.meshes if now.get((step.tensor, m), PARTIAL) not in (None, after.get(m)))
            found += [replace(one, work=replace(step, meshes=left))] if left else []
            continue
        for mesh, operands in _pending(step).items() if isinstance(step, Compute) else ():
            assert isinstance(step, Compute)
            loops: list[int | None] = []  # of each operand the one that is cut
            for j in operands:
                name, stored = step.inputs[j], step.reads[j]
                if (stored, mesh) not in now and (is_product(step.op, graph) or name in normed):
                    now[stored, mesh] = None
                    # For all that read it: the first layer has no gradient of its input, but of weights.
                    call = replace(one, every=stored in always, by=(*one.by, FINISHED))
                    found.append(replace(call, work=_sum(made, step, j, mesh)))
                at = now.get((stored, mesh), PARTIAL)
                at = forward.get(graph.tensors[name].of, {}).get(mesh) if at is None else at
                loops.append(at if at in (None, PARTIAL) else step.step.indices[j][at])
            if PARTIAL not in loops:
                cut = next((loop for loop in loops if loop is not None), None)
                step = step if cut is None else replace(step, cuts=(*step.cuts, (mesh, cut)))
                if cut is None or cut in step.step.output_indices:
                    now[step.makes, mesh] = None if cut is None else step.step.output_indices.index(cut)
        found.append(replace(one, work=step))
    return replace(made, instructions=tuple(found))


def _pending(step: Compute) -> dict[str, list[int]]:
    """The operands of a step that are partial sums, by axis of the mesh."""
    meshes = dict.fromkeys(mesh for layout in step.layouts for mesh, at in layout if at == PARTIAL)
    return {mesh: [j for j, layout in enumerate(step.layouts) if (mesh, PARTIAL) in layout] for mesh in meshes}


def _sum(made: instructions.Program, step: Compute, j: int, mesh: str) -> Collective:
    """The all-reduce of an operand before a step reads it."""
    graph, name, stored = made.graph, step.inputs[j], step.reads[j]
    after = tuple(pair for pair in step.layouts[j] if pair[1] != PARTIAL)
    size = made.part(name, after) * graph.volume(name) / graph.elements(name)  # with slots of experts that are empty
    return Collective("all-reduce", stored, size, (mesh,), step.op.phase, step.op.output, "a product reads it",
                      step.layouts[j], after, stored)  # fmt: skip


def _reduced_before_product(entries: CallEntries, context: RunContext) -> CallEntries:
    known = {(e.kind, e.phase, e.tensor) for e in entries}
    return sorted(context.finished, key=lambda e: (e.kind, e.phase, e.tensor) not in known)


def _tables_sent(entries: CallEntries, context: RunContext) -> CallEntries:
    return (
        [*entries, CallEntry("broadcast", "forward", "data", "", context.tables, None)] if context.tables else entries
    )


def _before_scattered(entries: CallEntries, context: RunContext) -> CallEntries:
    def inside(e: CallEntry) -> bool:
        return e.tensor in context.shapes and e.group not in context.outside

    parted = {e.tensor for e in entries if inside(e) and e.kind == "all-gather"}  # gradients that ranks make parts of
    found: CallEntries = []
    for e in entries:
        whole = Fraction(prod(context.shapes.get(e.tensor, ())))
        if e.tensor not in parted:
            gradient = inside(e) and (e.kind, e.phase) == ("all-reduce", "backward")
            found.append(replace(e, elements=e.elements * context.shards) if gradient else e)
        elif not inside(e) and e.kind != "all-gather":
            found.append(replace(e, elements=whole))
        elif (e.phase == "backward" and inside(e)) or (not inside(e) and e.elements == whole):
            found.append(e)
    return found


def _whole_tables(entries: CallEntries, context: RunContext) -> CallEntries:
    rows = {e: context.shared_rows.get(e.tensor, 1) for e in entries if e.phase == "backward"}
    return [replace(e, elements=e.elements * (1 if e.group in context.outside else rows.get(e, 1)))
            for e in entries if e.kind != "all-gather" or rows.get(e, 1) == 1]  # fmt: skip


def _axis_by_axis(entries: CallEntries, context: RunContext) -> CallEntries:
    return [replace(e, group=axis) for e in entries
            for axis in (e.group.split("+") if e.kind == "all-reduce" else [e.group])]  # fmt: skip


def _reduced_each_time(e: CallEntry, context: RunContext) -> CallEntry:
    gradient = e.phase == "backward" and e.tensor in context.shapes and e.group not in {"pipe", *context.outside}
    return _often(e, context.microbatches) if gradient else e


def _gathered_once(e: CallEntry, context: RunContext) -> CallEntry:
    weight = (e.kind, e.phase) == ("all-gather", "forward") and e.tensor in context.shapes
    return replace(e, times=e.times // context.microbatches) if weight and e.group in context.outside else e


# One row a convention.
CONVENTIONS: Mapping[str, TorchConvention] = {
    c.name: c
    for c in (
        TorchConvention(
            "buckets", "DistributedDataParallel reduces the gradients of several weights in one call.",
            f"{_DOCS}/notes/ddp.html#internal-design", _each(_shared),
        ),
        TorchConvention(
            "tables_sent", "DistributedDataParallel broadcasts the buffers of a module (masks, rotations) before each "
            "forward pass.", f"{_DOCS}/generated/torch.nn.parallel.DistributedDataParallel.html", _tables_sent,
        ),
        TorchConvention(
            "dropout_off", "Dropout is off in these runs: its masks and results are not kept.",
            f"{_DOCS}/generated/torch.nn.Dropout.html",
        ),
        TorchConvention(
            "units", "fully_shard gathers the weights of a unit in one call, and reduces their gradients in one; so "
            "does replicate.",
            f"{_DOCS}/distributed.fsdp.fully_shard.html", _each(_shared),
        ),
        TorchConvention(
            "padded_rows", "fully_shard cuts a weight into parts of whole rows, all as large as the largest; the last "
            "ones are filled up.", f"{_DOCS}/distributed.fsdp.fully_shard.html", _each(_padded),
        ),
        TorchConvention(
            "whole_gradients", "DistributedDataParallel gives all ranks the whole gradient, where ZeRO-1 needs a part.",
            f"{_DOCS}/distributed.optim.html", _turned("reduce-scatter", "backward", "all-reduce"),
        ),
        TorchConvention(
            "broadcast_by_owner", "ZeroRedundancyOptimizer broadcasts each updated weight from the rank that owns it, "
            "where weights are otherwise gathered.", f"{_DOCS}/distributed.optim.html",
            _turned("all-gather", "update", "broadcast"),
        ),
        TorchConvention(
            "gathered_when_read", "fully_shard gathers the updated weights when the next forward pass reads them.",
            f"{_DOCS}/distributed.fsdp.fully_shard.html", _turned("all-gather", "update", into_phase="forward"),
            parameters=lambda count, context: count / context.shards,
        ),
        TorchConvention(
            "gathered_for_exchange", "On the CPU, DTensor gathers the whole tensor to exchange parts, all to all.",
            f"{_DOCS}/distributed.tensor.html", _turned("all-to-all", "", "all-gather"),
        ),
        TorchConvention(
            "gathered_for_each", "Autograd gathers a gradient once for each operand of a sum that was reduced and cut, "
            "though all get the same gradient.", f"{_DOCS}/notes/autograd.html", _each(_gathered_for_each),
        ),
        TorchConvention(
            FINISHED, "DTensor carries no partial sum through a matrix product or the backward pass of a layer norm: "
            "it is reduced before.",
            f"{_DOCS}/distributed.tensor.html", _reduced_before_product,
            flops=lambda count, context: count - context.spared,
        ),
        TorchConvention(
            "reduced_before_scattered", "fully_shard and replicate take a gradient when autograd has finished it. So "
            "sums and gathers over other axes of the mesh come before, of the whole gradient.",
            f"{_DOCS}/distributed.fsdp.fully_shard.html", _before_scattered,
        ),
        TorchConvention(
            "axis_by_axis", "DTensor reduces over one axis of the mesh after the other.",
            f"{_DOCS}/distributed.tensor.html", _axis_by_axis,
        ),
        TorchConvention(
            "routing_by_product", "The written module multiplies tokens with a 0/1 tensor to bring them to experts. "
            "PyTorch counts this as a matrix product; the derivation counts a lookup, which is none.",
            f"{_DOCS}/generated/torch.einsum.html", flops=lambda count, context: count + context.routing_flops,
        ),
        TorchConvention(
            "gathered_once", "A stage of a pipeline keeps the weights that fully_shard has gathered for its first "
            "microbatch until the last one.", f"{_DOCS}/distributed.pipelining.html", _each(_gathered_once),
        ),
        TorchConvention(
            "reduced_each_time", "DTensor sums the gradient of a weight in the backward pass of each microbatch, where "
            "one sum behind the last of them would do.", f"{_DOCS}/distributed.tensor.html", _each(_reduced_each_time),
        ),
        TorchConvention(
            "scattered_from_sum", "Gloo has no reduce-scatter of its own: all ranks get the whole sum, and keep "
            "a part.",
            f"{_DOCS}/distributed.html#backends",
        ),
        TorchConvention(
            "whole_tables", "DTensor makes the gradient of an embedding whole on each rank, and sums it before a rank "
            "keeps its rows.", f"{_DOCS}/distributed.tensor.html", _whole_tables,
        ),
    )
}  # fmt: skip
