"""Tensors of the forward pass that the backward pass reads: facts of derived gradients and of eager PyTorch.

Nothing here knows a layer. The plan of a training step says what every rank computes and moves; each step of its
backward pass reads storages that were there before it began. A tensor that is a view of another has that one's storage.
Weights, and tables that never change (rotations, causal masks), are not activations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import cached_property, lru_cache

import sympy as sp

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.dtypes import row_dtype
from symcomm.core.graph.axis_roles import whole_indices
from symcomm.core.graph.graph import SOFTMAXES, Graph, Op, Tensor
from symcomm.core.graph.ops import BY_HAND, MAP
from symcomm.core.libraries import Expr
from symcomm.core.parallel.placement import PARTIAL, Collective, Compute, Layout, Plan
from symcomm.core.program.instructions import HOST, Program, Send
from symcomm.core.records import ByIdentity, dataclass, replace

Key = tuple[str, str, tuple[str, ...]]  # a storage: whose it is, what stands beside that, what of the mesh cuts it
TENSORS = ("input", "activation")
LOG_SUM_EXP = "log-sum-exp of its rows"
AS_MADE = "before its exchange"
# What a function keeps besides operands, by the words of ``MapKind.eager``.
PARTS = {"row": "statistics of its rows", "copy": "intermediate values of {kind}", "one": "a number",
         "chosen": "chosen results"}  # fmt: skip


@dataclass(frozen=True)
class Saved:
    """A storage that gradients read: the numbers of it that one rank keeps, and which gradients read it."""

    tensor: str
    what: str
    elements: Expr
    dtype: str
    row: int  # the table row that makes it
    readers: tuple[str, ...]
    scores: bool = False  # it has the positions of queries and of keys
    part: tuple[str, ...] = ()
    known: str = ""  # the name by which its readers know it: its own, or that of a view
    beside: str = ""  # masks, indices and statistics stand beside a tensor
    makers: frozenset[str] = frozenset()  # the ops that make these tensors make it, too

    @property
    def key(self) -> Key:
        """The storage that it is."""
        return self.tensor, self.beside, self.part

    @property
    def is_tensor(self) -> bool:
        """Whether it is a tensor, and nothing that is beside one."""
        return self.what in TENSORS

    @property
    def is_copy(self) -> bool:
        """Whether it is a gathered copy, which each repetition of a region makes anew."""
        return " @ " in self.known


def saved(made: Program, region: str, dtype: str = "fp16") -> tuple[Saved, ...]:
    """The tensors that one rank keeps of a repetition of a region from its forward to its backward pass, in a program.

    A tensor that it sends to the host in between is not kept; what stands beside one is.
    """
    return _saved(ByIdentity(made), region, dtype)


@lru_cache(maxsize=64)
def _saved(held: ByIdentity[Program], region: str, dtype: str) -> tuple[Saved, ...]:
    made = held.it
    sends = (t.work for t in made.instructions if t.region.name == region and t.phase == "forward")
    away = {(w.tensor, w.elements) for w in sends if isinstance(w, Send) and w.meshes == HOST}
    kept = autograd(made, region, dtype).kept(made.dropped, made.runs)
    return tuple(item for item in kept if not item.is_tensor or (item.tensor, item.elements) not in away)


def autograd(made: Program, region: str, dtype: str = "fp16") -> Autograd:
    """The tensors of the forward pass that the gradients of a region read, in a program."""
    # What gradients read does not hang on what runs again: programs that differ in nothing else share it.
    accounting = replace(made.accounting, recomputation=Accounting.recomputation)
    works = tuple(ByIdentity(work) for work in made.works(region))
    return _autograd(ByIdentity(made.plan), works, region, accounting, dtype)


@lru_cache(maxsize=64)
def _autograd(
    plan: ByIdentity[Plan], works: tuple[ByIdentity[Compute | Collective], ...], region: str, accounting: Accounting,
    dtype: str,
) -> Autograd:  # fmt: skip
    whole = plan.it.graph
    graph = whole.region(region) if whole.regions else whole
    forward = replace(graph, ops=tuple(op for op in graph.ops if op.phase == "forward"))
    return Autograd(replace(plan.it, graph=graph, steps=tuple(one.it for one in works)), accounting, dtype, forward)


@lru_cache(maxsize=64)
def _kept(held: ByIdentity[Autograd], dropped: frozenset[str], runs: frozenset[str]) -> tuple[Saved, ...]:
    found: dict[Key, Saved] = {}
    for item in (source for _, read in held.it.reads for source in held.it.sources(read, dropped, runs)):
        known = found.get(item.key)
        readers = dict.fromkeys((*known.readers, *item.readers)) if known is not None else item.readers
        found[item.key] = replace(known or item, readers=tuple(readers))
    order = {op.output: n for n, op in enumerate(held.it.plan.graph.ops)}
    return tuple(sorted(found.values(), key=lambda s: (order.get(s.tensor, -1), s.tensor)))


def cut_meshes(layout: Layout) -> tuple[str, ...]:
    """The axes of the mesh that cut a tensor."""
    return tuple(sorted(mesh for mesh, position in layout if position != PARTIAL))


def storage(graph: Graph, name: str, accounting: Accounting) -> str:
    """The tensor whose storage a tensor uses: a view has that of what it views.

    A repeated key/value head is a view in principle, but eager PyTorch copies it, unless attention is one kernel, which
    reads each head as often as it needs it. Of a slice only that part need be kept, but eager PyTorch keeps the whole
    storage that it is a view of.
    """
    *_, (root, _) = _views(graph, name, (), accounting)
    return root


def _views(graph: Graph, name: str, layout: Layout, accounting: Accounting) -> Iterator[tuple[str, Layout]]:
    """A tensor and what it is a view of, each as cut as the one before it: an axis that a view repeats cuts nothing."""
    yield name, layout
    eager = accounting.saved == "pytorch"
    while name in graph.producers or graph.tensors[name].role == "input":
        if name not in graph.producers:  # of a loop over positions a step reads what the one before it has made
            name = graph.tensors[name].of
            if name:
                yield name, layout
                continue
            return
        op = graph.producers[name]
        if op.attribute("stacked") and eager:
            return
        if not (op.attribute("slice") and eager):
            if not op.attribute("view") or len(op.inputs) != 1:
                return
            larger = not graph.same_size(graph.elements(op.output), graph.elements(op.inputs[0]))
            scored = any(graph.scores & {op.output, *op.inputs} for op in graph.consumers.get(name, ()))
            fused = eager and accounting.softmax == "fused"
            if (larger and eager and not (fused and scored)) or (fused and lies_by_heads(graph, op.inputs[0])):
                return
        name, axes = op.inputs[0], op.indices[0]
        at = [(mesh, op.output_indices[p]) for mesh, p in layout if p != PARTIAL]
        layout = tuple((mesh, axes.index(index)) for mesh, index in at if index in axes)
        yield name, layout


def lies_by_heads(graph: Graph, name: str) -> bool:
    """Whether heads lie one behind the other in the result of an attention, so that merging them copies.

    A kernel writes its result as its queries lie. What joins rotated features of a head to its others writes head after
    head.
    """
    launch = graph.kernels.get(name, "") if name not in graph.scores else ""
    forward = (op for op in graph.ops if launch.endswith(" forward"))
    first = next((op for op in forward if graph.kernels.get(op.output) == launch), None)
    pair = graph.pair(first.output) if first is not None else None
    if first is None or pair is None:
        return False
    queries = first.output_indices[pair[0]]
    made = [graph.producers.get(n) for n, loops in zip(first.inputs, first.indices, strict=True) if queries in loops]
    return any(op is not None and op.attribute("features") is not None for op in made)


@dataclass
class Autograd:
    """The forward tensors that each step of a backward plan reads, per rank; ``forward`` is their graph.

    Where attention is one kernel, what is ``inner`` to it is never stored: who reads that reads the kernel's operands.
    """

    plan: Plan
    accounting: Accounting
    dtype: str
    forward: Graph
    by_step: dict[int, list[Saved]] = field(default_factory=dict)

    @property
    def eager(self) -> bool:
        return self.accounting.saved == "pytorch"

    def root(self, name: str) -> str:
        """The tensor whose storage a tensor uses."""
        return storage(self.plan.graph, name, self.accounting)

    def part(self, name: str, layout: Layout) -> tuple[str, ...]:
        """The axes of the mesh that cut the storage of a tensor in a layout."""
        *_, (_, part) = _views(self.plan.graph, name, layout, self.accounting)
        return cut_meshes(part)

    @cached_property
    def kernels(self) -> list[Op]:
        """The softmax of each attention that is one kernel."""
        if self.accounting.softmax != "fused":
            return []
        return [op for op in self.forward.ops if op.kind in SOFTMAXES and op.output in self.forward.scores]

    @cached_property
    def inner(self) -> frozenset[str]:
        return self.forward.scores if self.kernels else frozenset()

    def kept(self, dropped: frozenset[str] = frozenset(), runs: frozenset[str] = frozenset()) -> tuple[Saved, ...]:
        """Every storage that is kept, in the order of the table, where results are ``dropped``, and what makes them
        ``runs`` again, with the calls that bring its operands.
        """
        return _kept(ByIdentity(self), dropped, runs)

    def sources(
        self, item: Saved, dropped: frozenset[str] = frozenset(), runs: frozenset[str] = frozenset()
    ) -> Iterator[Saved]:
        """The storages to keep so that one is there: itself, or those from which it is computed again or gathered."""
        if item.makers:
            gone = dropped if item.what == LOG_SUM_EXP or item.is_tensor else dropped | self.inner
            yield from () if item.makers <= gone or item.tensor in dropped else (item,)
            return
        graph, copies = self.plan.graph, self.copies
        found: dict[tuple[str, Layout], None] = {}
        queue, seen = [(item.known, self.plan.placements.get(item.known, ()))], set[str]()
        while queue:
            stored, layout = queue.pop(0)
            name, made = stored.partition(" @ ")[0], graph.producers.get(stored.partition(" @ ")[0])
            if stored in seen:
                continue
            seen.add(stored)
            if made is not None and name in dropped:
                operands = [(n, self.plan.placements.get(n, ())) for n in made.inputs]
            elif made is not None and (name in self.inner or self.viewed_again(name)):
                step = self.plan.computed[name]  # the kernel reads what its forward pass has read
                operands = list(zip(step.reads, step.layouts, strict=True))
            elif copies.get(stored, "") in runs or (stored in copies and name in self.gathered_again):
                operands = [(name, self.plan.placements.get(name, ()))]
            else:
                found[stored, layout] = None
                continue
            queue += [one for one in operands if graph.tensors[one[0].partition(" @ ")[0]].role in TENSORS]
        for stored, layout in found:
            yield item if stored == item.known else self.stored(stored, layout, *item.readers)

    def viewed_again(self, name: str) -> bool:
        """Whether a tensor is a view of a copy that the backward pass gathers itself."""
        reads = self.plan.computed[name].reads if self.root(name) != name else ()
        return any(stored in self.copies and stored.partition(" @ ")[0] in self.gathered_again for stored in reads)

    @cached_property
    def copies(self) -> dict[str, str]:
        """The gathered copies of the forward pass, each with the op that it is gathered for."""
        steps = (s for s in self.plan.steps if isinstance(s, Collective) and s.phase == "forward")
        return {step.stored: step.op for step in steps if " @ " in step.stored}

    @cached_property
    def gathered_again(self) -> frozenset[str]:
        """The tensors that the backward pass gathers itself: the copies of the forward pass are dropped."""
        steps = (s for s in self.plan.steps if isinstance(s, Collective) and s.phase == "backward")
        return frozenset(step.tensor for step in steps)

    @cached_property
    def reads(self) -> tuple[tuple[int, Saved], ...]:
        """The tensors from before the backward pass that each of its steps reads, with the number of the step."""
        fresh: set[str] = set()  # what the backward pass makes itself: gradients, sums over rows, copies gathered again
        found: list[tuple[int, Saved]] = []
        for at, step in enumerate(self.plan.steps):
            if isinstance(step, Collective):
                if step.phase == "backward":
                    found += [(at, item) for item in self.read_by(step) if step.tensor not in fresh]
                    fresh.add(step.stored)
            elif step.op.phase == "backward" and step.op.kind != "update":
                fresh |= {step.op.output, step.makes}
                found += [(at, item) for item in self.read_by(step) if item.known not in fresh]
        return tuple(found)

    def read_by(self, step: Collective | Compute) -> list[Saved]:
        """The tensors of the forward pass that a step of the backward pass reads, or copies gathered again."""
        if isinstance(step, Collective):
            return [*self.tensor(step.tensor, step.before, self.label(step.op))]
        if id(step) not in self.by_step:
            backward = step.op.phase == "backward" and step.op.kind != "update"
            self.by_step[id(step)] = [*self.of_step(step)] if backward else []
        return self.by_step[id(step)]

    def of_kernel(self, softmax: Op) -> Iterator[Saved]:
        """A fused attention computes the scores again from a number a row, and reads its own result as it made it.

        Source: Dao et al., arXiv 2205.14135, section 3.1.
        """
        graph, reader = self.plan.graph, softmax.output.split("·")[0]
        elements = self.elements(softmax, [i for i in softmax.output_indices if i not in whole_indices(softmax)])
        dtype = self.dtype if self.dtype == "fp64" else "fp32"
        yield self.beside(softmax, LOG_SUM_EXP, LOG_SUM_EXP, elements, dtype, reader)
        for op in graph.ops:
            if graph.kernels.get(op.output) == graph.kernels[softmax.output] and op.output not in graph.scores:
                made, rests = self.plan.computed[op.output].output, self.plan.placements.get(op.output, ())
                item = self.stored(op.output, made, reader)
                exchanged = made != rests and cut_meshes(made) == cut_meshes(rests)
                yield replace(item, beside=AS_MADE if exchanged else "", makers=frozenset([op.output]))

    def label(self, op: str) -> str:
        graph = self.plan.graph
        made = graph.tensors.get(graph.producers[op].output) if op in graph.producers else None
        return (made.of if made is not None else op).split("·")[0]

    def of_step(self, step: Compute) -> Iterator[Saved]:
        graph, op = self.plan.graph, step.op
        reader = graph.tensors[op.output].of.split("·")[0]
        launch = graph.kernels.get(op.output, "").replace(" backward", " forward")
        for softmax in self.kernels if launch else ():
            if graph.kernels[softmax.output] == launch:
                yield from self.of_kernel(softmax)
        forward = self.forward_of(op)
        if forward is not None:
            yield from self.parts(forward, reader)
        for name, stored, layout, indices in self.operands(step):
            tensor = graph.tensors[name]
            if tensor.role == "statistic":
                yield from self.statistics(step, name, layout, reader)
                continue
            if tensor.role in ("gradient", "weight"):
                continue
            if self.eager and op.attribute("before"):
                yield self.loop(graph.producers[name], reader)
                continue
            if tensor.role == "constant":  # of a constant only the part that is read has to be there
                layout = tuple((mesh, indices.index(i)) for mesh, i in step.cuts if i in indices)
            normed = self.before_gain(op, name)
            if normed is not None:  # the library's function has the gain, too: it keeps the same whoever needs it
                yield from self.parts(normed, reader)
            lookup = self.eager and op.attribute("lookup") and not tensor.virtual
            routed = self.routed(step, name, layout, reader) if lookup else None
            if routed is not None:
                yield routed
                if not routed.beside:
                    continue
                # what adds the results up keeps the order of tokens
                route = next(n for n in graph.producers[name].inputs if graph.tensors[n].virtual)
                yield from self.constant(graph.tensors[route], layout, reader)
            yield from self.tensor(self.known(op, name, stored), layout, reader)

    def operands(self, step: Compute) -> list[tuple[str, str, Layout, tuple[int, ...]]]:
        """The operands of a step, as name, copy, layout and indices; for a function's gradient its saved tensors."""
        forward = self.forward_of(step.op)
        found = [*zip(step.inputs, step.reads, step.layouts, step.step.indices, strict=True)]
        parts = self.parts_of(forward) if forward is not None else None
        if forward is None or parts is None:
            return found
        words = dict(zip(step.op.inputs, ("dy", *MAP[forward.kind].gradient_reads), strict=True))
        return [one for one in found if words.get(one[0], "dy") in ("dy", *parts)]

    def parts_of(self, forward: Op) -> tuple[str, ...] | None:
        """The tensors that eager PyTorch keeps of a function, by ``MapKind.eager``; None where its gradient says."""
        by_hand = BY_HAND.get(forward.kind) if self.accounting.softmax == "by_hand" else None
        parts = by_hand or MAP[forward.kind].eager if self.eager else None
        own = self.plan.graph.tensors[forward.output].dtype or self.dtype
        wide = row_dtype(own)
        return None if parts is None else tuple(p.replace(":wide", f":{wide}" if wide != own else "") for p in parts)

    def elements(self, op: Op, indices: Iterable[int]) -> Expr:
        """The numbers that a rank has of some loops of an op."""
        sizes, indices = self.plan.graph.loops(op), [*indices]
        meshes = [mesh for mesh, index in self.plan.cuts[op.output].items() if index in indices]
        return self.cut(sp.Mul(*(sizes[i] for i in indices)), meshes)

    def cut(self, elements: Expr, meshes: Iterable[str]) -> Expr:
        for mesh in meshes:
            elements = elements / forms.value(self.plan.strategy.sizes[mesh])
        return elements

    def beside(self, made: Op, name: str, what: str, elements: Expr, dtype: str, reader: str,
               scores: bool = False) -> Saved:  # fmt: skip
        """A storage that an op makes other than its result."""
        return Saved(made.output, what, elements, dtype, made.row, (reader,), scores, (), made.output, name,
                     frozenset([made.output]))  # fmt: skip

    def loop(self, made: Op, reader: str) -> Saved:
        """The results before each position but the first, which a loop over positions keeps and stacking copies."""
        positions = self.plan.graph.loops(made)[made.attribute("along")[0]]  # type: ignore[index]  # a recurrence has it
        elements = self.elements(made, made.output_indices) * (positions - 1) / positions
        dtype = self.plan.graph.tensors[made.output].dtype or self.dtype
        return self.beside(made, f"{made.output}·before", "results before each position", elements, dtype, reader)

    def statistics(self, step: Compute, name: str, layout: Layout, reader: str) -> Iterator[Saved]:
        """Statistics that several ranks have put together are kept, where a framework does not keep them anyway."""
        graph, tensor = self.plan.graph, self.plan.graph.tensors[name]
        made = graph.producers[tensor.of]
        # What a function of eager PyTorch keeps is enough for its gradient.
        if made.phase == "forward" and not (self.eager and MAP[made.kind].eager is not None):
            elements = self.cut(graph.elements(name), cut_meshes(layout))
            dtype = row_dtype(tensor.dtype or self.dtype)
            yield self.beside(made, name, f"statistics of its rows: {name}", elements, dtype, reader)

    def known(self, op: Op, name: str, stored: str) -> str:
        """The tensor that an op reads where it names one: of normalised values perhaps the one that the norm keeps."""
        normed = self.before_gain(op, name)
        return stored if normed is None else normed.inputs[0]

    def before_gain(self, op: Op, name: str) -> Op | None:
        """A norm that keeps its operand, where the normalised values are read for the gradient of a gain only."""
        graph = self.plan.graph
        made = graph.producers.get(name)
        if made is None or made.kind not in MAP or MAP[made.kind].eager is None or MAP[made.kind].collapses:
            return None
        weight = graph.tensors[op.output]
        of_weight = weight.role == "gradient" and graph.tensors[weight.of].role == "weight"
        pointwise = op.kind == "contraction" and len(op.inputs) == 2 and op.indices[0] == op.indices[1]
        fused = MAP[made.kind].fused_gain or not self.eager
        return made if of_weight and pointwise and fused else None

    def routed(self, step: Compute, name: str, layout: Layout, reader: str) -> Saved | None:
        """The experts' results that eager PyTorch keeps, in the order of tokens: unweighted for the gradient of the
        router, weighted because ``index_add`` keeps its operands.
        """
        graph, op, axes = self.plan.graph, step.op, self.plan.graph.index_axes(step.op)
        of_gates = graph.tensors[op.output].axes in graph.routed
        gates, indices = (op.output, op.output_indices) if of_gates else (name, op.indices[op.inputs.index(name)])
        if graph.tensors[gates].axes not in graph.routed:
            return None
        features = dict.fromkeys(i for operand in op.indices for i in operand if i not in indices)
        elements = graph.elements(gates) * sp.Mul(*(graph.axes[axes[i]].size for i in features))
        elements = self.cut(elements, [mesh for mesh, index in step.cuts if index in (*indices, *features)])
        what, beside = ("activation", "") if of_gates else ("results weighted by the router", "weighted")
        readers = graph.consumers[graph.tensors[op.output].of]
        made = frozenset(o.output for o in readers if not of_gates and o.phase == "forward" and name in o.inputs)
        root, part = (self.root(name), self.part(name, layout)) if of_gates else (name, ())
        return Saved(root, what, elements, self.dtype, graph.producers[name].row, (reader,), False, part, name, beside,
                     made)  # fmt: skip

    def parts(self, forward: Op, reader: str) -> Iterator[Saved]:
        """The tensors outside the graph that a function keeps in eager PyTorch."""
        graph, along = self.plan.graph, whole_indices(forward)
        for n, part in enumerate(self.parts_of(forward) or ()):
            word, _, dtype = part.partition(":")
            if word not in PARTS and not dtype:
                continue
            kept = [i for i in dict.fromkeys(forward.indices[0]) if word not in ("row", "chosen") or i not in along]
            what = PARTS.get(word, f"the operand in {dtype}").format(kind=forward.kind)
            what = {"row:int64": "places of the maxima of its rows", "chosen:int64": "indices"}.get(part, what)
            dtype = dtype or graph.tensors[forward.output].dtype or self.dtype
            elements = self.elements(forward, kept if word != "one" else [])
            elements = elements * forward.attribute("number") if word == "chosen" else elements
            scores = word == "copy" and graph.pair(forward.output) is not None
            yield self.beside(forward, f"{part} {n}", what, elements, dtype, reader, scores)

    def forward_of(self, op: Op) -> Op | None:
        """The forward op whose gradient an op computes, where that is a function."""
        graph, kind = self.plan.graph, op.kind.removesuffix("_gradient")
        made = graph.consumers.get(graph.tensors[op.output].of, ()) if kind != op.kind else ()
        return next((m for m in made if m.kind == kind and m.phase == "forward" and op.row == m.row), None)

    def tensor(self, stored: str, layout: Layout, reader: str) -> Iterator[Saved]:
        """The storage of a tensor that is read; weights and gradients are none of the forward pass."""
        name = stored.split(" @ ")[0]
        tensor = self.plan.graph.tensors[name]
        if tensor.role == "constant":
            yield from self.constant(tensor, layout, reader)
        elif tensor.role not in ("weight", "gradient"):
            yield self.stored(stored, layout, reader)

    def constant(self, tensor: Tensor, layout: Layout, reader: str) -> Iterator[Saved]:
        """A random mask is kept, and of a one-hot tensor its indices; what never changes is no activation."""
        graph = self.plan.graph
        made = graph.producers.get(tensor.name)
        if tensor.virtual and made is not None:
            ids = graph.tensors[made.inputs[0]]
            part = cut_meshes(
                tuple((m, p) for m, p in layout if p != PARTIAL and made.output_indices[p] in made.indices[0])
            )
            if made.kind != "route":  # token ids and labels are an input, whoever makes a one-hot tensor of them
                yield self.storage_of(ids, ids.name, "indices", graph.elements(ids.name), "int64", part, reader)
                return
            names = [f"{ids.name} chosen"]
            if self.eager:  # the choice keeps its indices; tokens and gates are put in order by some of their own
                chosen = names if reader == ids.name.split("·")[0] else []
                before = graph.producers.get(ids.name)  # what has chosen them itself keeps the indices, too
                again = before is None or before.kind not in MAP or "chosen:int64" not in (self.parts_of(before) or ())
                names = [*(chosen if again else ()), f"{ids.name} ordered for {reader if chosen else 'tokens'}"]
            for name in names:
                item = self.storage_of(ids, name, "indices", graph.elements(tensor.name), "int64", part, reader)
                yield replace(item, makers=frozenset([made.output]))
        elif tensor.dtype == "bool":  # where all its readers run again, the same random numbers are drawn again
            uses = frozenset(op.output for op in graph.consumers.get(tensor.name, ()) if op.phase == "forward")
            item = self.storage_of(tensor, tensor.name, "mask", graph.elements(tensor.name), "bool",
                                   cut_meshes(layout), reader)  # fmt: skip
            yield replace(item, makers=uses)

    def stored(self, name: str, layout: Layout, *readers: str) -> Saved:
        """The storage of an activation or an input, or of a copy that is gathered of it."""
        graph = self.plan.graph
        base = name.partition(" @ ")[0]
        root = self.root(base)
        tensor = graph.tensors[root]
        what = "input" if tensor.role == "input" else "activation"
        dtype, part = tensor.dtype or self.dtype, self.part(base, layout)
        return self.storage_of(tensor, root, what, graph.elements(root), dtype, part, *readers, known=name)

    def storage_of(self, tensor: Tensor, root: str, what: str, elements: Expr, dtype: str, part: tuple[str, ...],
                   *readers: str, known: str = "") -> Saved:  # fmt: skip
        graph = self.plan.graph
        made = graph.producers.get(root)
        uses = [op.row for op in graph.consumers.get(tensor.name, ()) if op.phase == "forward"]
        row = made.row if made is not None else uses[0] if uses else 0
        scores = graph.pair(tensor.name) is not None
        return Saved(root, what, self.cut(elements, part), dtype, row, readers, scores, part, known or root)
