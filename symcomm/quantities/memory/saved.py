"""Which tensors the backward pass reads of what the forward pass made: what has to be kept in between.

Nothing here knows a layer. The plan of a training step says what every rank computes and moves; whatever a step of the
backward pass reads that was there before it began is saved, each storage once. A tensor that is a view of another has
that one's storage. Weights, and tables that never change (rotations, causal masks), are not activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

import sympy as sp

from symcomm import form as forms
from symcomm.accounting import Accounting
from symcomm.dtypes import element_bytes, row_dtype
from symcomm.errors import ValuesError, nearest
from symcomm.form import Form
from symcomm.graph.axis_roles import whole_indices
from symcomm.graph.drafts import size_form
from symcomm.graph.gradient import differentiable
from symcomm.graph.graph import Graph, Op, Tensor
from symcomm.graph.ops import BY_HAND, MAP
from symcomm.parallel.placement import PARTIAL, Collective, Compute, Layout, Plan
from symcomm.parallel.strategy import Strategy
from symcomm.program.program import program
from symcomm.program.rewrites.recomputation import has_scores, recomputed_ops
from symcomm.records import dataclass
from symcomm.setting import Setting
from symcomm.text.formula import parse_answer

if TYPE_CHECKING:
    from sympy import Expr


# What a function keeps besides operands, by the words of ``MapKind.eager``.
PARTS = {"row": "statistics of its rows", "copy": "intermediate values of {kind}", "one": "a number"}


@dataclass(frozen=True)
class Saved:
    """A tensor that is kept for backward: the numbers of it that one rank keeps, and which gradients read it.

    ``row`` is the table row that makes it. ``scores`` says that it has the positions of queries and of keys.
    """

    tensor: str
    what: str
    elements: Expr
    dtype: str
    row: int
    readers: tuple[str, ...]
    scores: bool = False


def storage(graph: Graph, name: str, accounting: Accounting) -> str:
    """The tensor whose storage a tensor uses: a view has that of what it views.

    A repeated key/value head is a view in principle, but eager PyTorch copies it, unless attention is one kernel, which
    reads each head as often as it needs it. Of a slice only that part need be kept, but eager PyTorch keeps the whole
    storage that it is a view of.
    """
    eager = accounting.saved == "pytorch"
    while name in graph.producers:
        op = graph.producers[name]
        if op.attribute("slice") and eager:
            name = op.inputs[0]
            continue
        if not op.attribute("view") or len(op.inputs) != 1:
            break
        larger = not graph.same_size(graph.elements(op.output), graph.elements(op.inputs[0]))
        if larger and eager and not (accounting.softmax == "fused" and _in_attention(graph, name)):
            break
        name = op.inputs[0]
    return name


def _in_attention(graph: Graph, name: str) -> bool:
    """Whether what reads a tensor makes scores, or reads them besides."""
    return any(has_scores(graph, other) for op in graph.consumers.get(name, ()) for other in (op.output, *op.inputs))


def held_outside(setting: Setting, said: str) -> Form | None:
    """The bytes of a tensor that is not the model's, from its shape and format: ``labels [B, L] int64``.

    None where no shape is said. Raises ``ValuesError`` for sizes that the model does not have.
    """
    name, bracket, rest = said.partition("[")
    if not bracket:
        return None
    shape, _, dtype = rest.partition("]")
    sizes = [size_form(parse_answer(size.strip(), None)) for size in shape.split(",")]
    unknown = [n for size in sizes for n in forms.names(size) if n not in setting.symbols]
    if unknown:
        raise ValuesError(f"{name.strip()} has the size {unknown[0]}, which the model has not",
                          hint=nearest(unknown[0], sorted(setting.symbols)))  # fmt: skip
    return forms.product(*sizes, element_bytes(dtype.strip() or setting.dtype))


@dataclass
class Keeper:
    """Collects what a plan's backward pass reads from its forward pass, per rank.

    ``recomputed`` are the results that are computed again; what they are computed from is kept instead.
    """

    setting: Setting
    plan: Plan
    recomputed: frozenset[str] = frozenset()
    found: dict[tuple[str, str, tuple[str, ...]], Saved] = field(default_factory=dict)

    @property
    def eager(self) -> bool:
        return self.setting.accounting.saved == "pytorch"

    def collect(self) -> tuple[Saved, ...]:
        """Every storage that is kept, in the order of the table."""
        fresh: set[str] = set()  # what the backward pass makes itself: gradients, copies gathered again
        for step in self.plan.steps:
            if isinstance(step, Collective):
                if step.phase == "backward" and self.is_backward(step):
                    if step.tensor not in fresh:
                        self.keep(step.tensor, step.before, self.label(step.op))
                    fresh.add(step.stored)
                continue
            if step.op.phase != "backward" or step.op.kind == "update":
                continue
            fresh.add(step.op.output)
            self.read(step, fresh)
        order = {op.output: n for n, op in enumerate(self.plan.graph.ops)}
        return tuple(sorted(self.found.values(), key=lambda s: (order.get(s.tensor, -1), s.tensor)))

    def fused(self, softmax: Op) -> None:
        """A fused attention computes the scores again from a number a row, and reads its own result.

        Source: Dao et al., arXiv 2205.14135, section 3.1.
        """
        graph = self.plan.graph
        kept = [i for i in softmax.output_indices if i not in whole_indices(softmax)]
        sizes = graph.loops(softmax)
        elements = sp.Mul(*(sizes[i] for i in kept))
        for mesh, index in self.plan.cuts[softmax.output].items():
            elements = elements / self.degree(mesh) if index in kept else elements
        dtype = self.setting.dtype if self.setting.dtype == "fp64" else "fp32"
        self.found[softmax.output, "log-sum-exp", ()] = Saved(
            softmax.output, "log-sum-exp of its rows", elements, dtype, softmax.row, (softmax.output.split("·")[0],)
        )
        for op in graph.ops:
            reads = op.phase == "forward" and any(has_scores(graph, n) for n in op.inputs)
            if reads and not has_scores(graph, op.output) and op.output not in self.recomputed:
                self.keep(op.output, self.plan.placements.get(op.output, ()), softmax.output.split("·")[0])

    def is_backward(self, step: Collective) -> bool:
        """Whether a collective of the backward phase moves something of the forward pass, and not a gradient."""
        return self.plan.graph.tensors[step.tensor.split(" @ ")[0]].role != "gradient"

    def label(self, op: str) -> str:
        graph = self.plan.graph
        made = graph.tensors.get(graph.producers[op].output) if op in graph.producers else None
        return (made.of if made is not None else op).split("·")[0]

    def read(self, step: Compute, fresh: set[str]) -> None:
        graph, op = self.plan.graph, step.op
        gradient_of = graph.tensors[op.output].of.split("·")[0]
        forward = self.forward_of(op)
        if forward is not None:
            self.eager_parts(forward, gradient_of)
        for name, stored, layout, indices in self.operands(step):
            tensor = graph.tensors[name]
            if tensor.role == "statistic":
                self.keep_statistics(step, name, layout, gradient_of)
                continue
            if tensor.role in ("gradient", "weight") or stored in fresh:
                continue
            if tensor.role == "constant":  # of a constant only the part that is read has to be there
                layout = tuple((mesh, indices.index(i)) for mesh, i in step.cuts if i in indices)
            normed = self.before_gain(op, name)
            if normed is not None:  # the library's function has the gain, too: it keeps the same whoever needs it
                self.eager_parts(normed, gradient_of)
            if self.eager and op.attribute("lookup") and not tensor.virtual and self.weighs(step, name, gradient_of):
                continue
            self.keep(normed.inputs[0] if normed is not None else stored, layout, gradient_of)

    def operands(self, step: Compute) -> list[tuple[str, str, Layout, tuple[int, ...]]]:
        """What a step reads, as name, copy, layout and indices; of a function's gradient what the function keeps."""
        forward = self.forward_of(step.op)
        found = [*zip(step.inputs, step.reads, step.layouts, step.step.indices, strict=True)]
        parts = self.parts_of(forward) if forward is not None else None
        if forward is None or parts is None:
            return found
        words = dict(zip(step.op.inputs, ("dy", *MAP[forward.kind].gradient_reads), strict=True))
        return [one for one in found if words.get(one[0], "dy") in ("dy", *parts)]

    def parts_of(self, forward: Op) -> tuple[str, ...] | None:
        """What a function keeps in eager PyTorch, by the words of ``MapKind.eager``; None where its gradient says."""
        by_hand = BY_HAND.get(forward.kind) if self.setting.accounting.softmax == "by_hand" else None
        parts = by_hand or MAP[forward.kind].eager if self.eager else None
        own = self.plan.graph.tensors[forward.output].dtype or self.setting.dtype
        wide = row_dtype(own)
        return None if parts is None else tuple(p.replace(":wide", f":{wide}" if wide != own else "") for p in parts)

    def keep_statistics(self, step: Compute, name: str, layout: Layout, reader: str) -> None:
        """Statistics that several ranks have put together are kept, where a framework does not keep them anyway."""
        graph, tensor = self.plan.graph, self.plan.graph.tensors[name]
        made = graph.producers[tensor.of]
        if made.phase == "backward" or made.output in self.recomputed:
            return
        if self.eager and MAP[made.kind].eager is not None:
            return  # what the function keeps is enough for its gradient
        elements = graph.elements(name)
        for mesh, position in layout:
            elements = elements / self.degree(mesh) if position != PARTIAL else elements
        dtype = row_dtype(tensor.dtype or self.setting.dtype)
        kept = Saved(made.output, f"statistics of its rows: {name}", elements, dtype, made.row, (reader,))
        self.found[made.output, name, ()] = kept

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

    def weighs(self, step: Compute, name: str, reader: str) -> bool:
        """Adds what eager PyTorch keeps of the experts' results, in the order of tokens: unweighted for the gradient of
        the router, which reads no more; weighted because ``index_add`` keeps what it adds.
        """
        graph, op, axes = self.plan.graph, step.op, self.plan.graph.index_axes(step.op)
        of_gates = graph.tensors[op.output].axes in graph.routed
        gates, indices = (op.output, op.output_indices) if of_gates else (name, op.indices[op.inputs.index(name)])
        if graph.tensors[gates].axes not in graph.routed:
            return False
        features = dict.fromkeys(i for operand in op.indices for i in operand if i not in indices)
        elements = graph.elements(gates) * sp.Mul(*(graph.axes[axes[i]].size for i in features))
        for mesh, index in step.cuts:
            elements = elements / self.degree(mesh) if index in (*indices, *features) else elements
        what, key = ("activation", "") if of_gates else ("results weighted by the router", "weighted")
        kept = Saved(name, what, elements, self.setting.dtype, graph.producers[name].row, (reader,))
        self.found[name, key, ()] = kept
        return of_gates

    def eager_parts(self, forward: Op, reader: str) -> None:
        """Adds what a function keeps in eager PyTorch that is no tensor of the graph."""
        graph = self.plan.graph
        along, sizes = whole_indices(forward), graph.loops(forward)
        for n, part in enumerate(self.parts_of(forward) or ()):
            word, _, dtype = part.partition(":")
            if (word not in PARTS and not dtype) or forward.output in self.recomputed:
                continue
            kept = [i for i in dict.fromkeys(forward.indices[0]) if word != "row" or i not in along]
            kept = kept if word != "one" else []
            elements = sp.Mul(*(sizes[i] for i in kept))
            for mesh, index in self.plan.cuts[forward.output].items():
                elements = elements / self.degree(mesh) if index in kept else elements
            what = PARTS.get(word, f"the operand in {dtype}").format(kind=forward.kind)
            what = "places of the maxima of its rows" if part == "row:int64" else what
            scores = word == "copy" and has_scores(graph, forward.output)
            key = (forward.output, f"{part} {n}", ())
            dtype = dtype or graph.tensors[forward.output].dtype or self.setting.dtype
            self.found[key] = Saved(forward.output, what, elements, dtype, forward.row, (reader,), scores)

    def forward_of(self, op: Op) -> Op | None:
        """The forward op whose gradient an op computes, where that is a function."""
        graph, kind = self.plan.graph, op.kind.removesuffix("_gradient")
        made = graph.consumers.get(graph.tensors[op.output].of, ()) if kind != op.kind else ()
        return next((m for m in made if m.kind == kind and m.phase == "forward" and op.row == m.row), None)

    def keep(self, stored: str, layout: Layout, reader: str) -> None:
        graph = self.plan.graph
        base = stored.split(" @ ")[0]
        tensor = graph.tensors[base]
        if tensor.role in ("weight", "gradient"):
            return
        if tensor.role == "constant":
            self.keep_constant(tensor, layout, reader)
            return
        for name in self.sources(base):
            if name != base:
                layout = self.plan.placements.get(name, ())
            root = storage(graph, name, self.setting.accounting)
            part = tuple(sorted(mesh for mesh, position in layout if position != PARTIAL))
            self.add(graph.tensors[root], root, part, reader)

    def keep_constant(self, tensor: Tensor, layout: Layout, reader: str) -> None:
        """A random mask is kept, and of a one-hot tensor its indices; what never changes is no activation."""
        graph = self.plan.graph
        part = tuple(sorted(mesh for mesh, position in layout if position != PARTIAL))
        made = graph.producers.get(tensor.name)
        if tensor.virtual and made is not None:
            if made.output in self.recomputed:
                return
            ids = graph.tensors[made.inputs[0]]
            part = tuple(sorted(m for m, p in layout if p != PARTIAL and made.output_indices[p] in made.indices[0]))
            names, elements = [ids.name], graph.elements(ids.name)
            if made.kind == "route":
                names, elements = [f"{ids.name} chosen"], graph.elements(tensor.name)
                if self.eager:  # the choice keeps its indices; tokens and gates are put in order by some of their own
                    chosen = names if reader == ids.name.split("·")[0] else []
                    names = [*chosen, f"{ids.name} ordered for {reader}"]
            for name in names:
                self.put(ids, name, "indices", elements, "int64", part, reader)
            return
        if tensor.dtype != "bool":
            return
        uses = [op for op in graph.consumers.get(tensor.name, ()) if op.phase == "forward"]
        if uses and all(op.output in self.recomputed for op in uses):
            return  # the same random numbers are drawn again
        self.put(tensor, tensor.name, "mask", graph.elements(tensor.name), "bool", part, reader)

    def sources(self, name: str) -> tuple[str, ...]:
        """The tensor itself, or what it is computed again from."""
        graph = self.plan.graph
        found: dict[str, None] = {}
        seen: set[str] = set()
        queue = [name]
        while queue:
            one = queue.pop(0)
            if one in seen:
                continue
            seen.add(one)
            made = graph.producers.get(one)
            if one in self.recomputed and made is not None:
                queue += [n for n in made.inputs if graph.tensors[n].role in ("input", "activation")]
            else:
                found[one] = None
        return tuple(found)

    def add(self, tensor: Tensor, root: str, part: tuple[str, ...], reader: str) -> None:
        graph = self.plan.graph
        what = "input" if tensor.role == "input" else "activation"
        self.put(tensor, root, what, graph.elements(root), tensor.dtype or self.setting.dtype, part, reader)

    def put(self, tensor: Tensor, root: str, what: str, elements: Expr, dtype: str, part: tuple[str, ...],
            reader: str) -> None:  # fmt: skip
        graph = self.plan.graph
        key = (root, "", part)
        known = self.found.get(key)
        if known is not None:
            self.found[key] = replace(known, readers=tuple(dict.fromkeys((*known.readers, reader))))
            return
        for mesh in part:
            elements = elements / self.degree(mesh)
        made = graph.producers.get(root)
        uses = [op.row for op in graph.consumers.get(tensor.name, ()) if op.phase == "forward"]
        row = made.row if made is not None else uses[0] if uses else 0
        self.found[key] = Saved(root, what, elements, dtype, row, (reader,), has_scores(graph, tensor.name))

    def degree(self, mesh: str) -> Expr:
        return forms.value(self.plan.strategy.sizes[mesh])


def saved_tensors(setting: Setting, strategy: Strategy | None = None, recomputation: str = "none") -> tuple[Saved, ...]:
    """What one rank keeps of one layer between its forward and its backward pass."""
    [(_, kept)] = saved_regions(setting, strategy, recomputation)
    return kept


def saved_regions(
    setting: Setting, strategy: Strategy | None = None, recomputation: str = "none"
) -> list[tuple[Setting, tuple[Saved, ...]]]:
    """What one rank keeps of one repetition of each region; of several, only repeated ones are computed again."""
    made = program(setting.graph, strategy, setting.accounting, setting.frozen)
    alone = len(setting.parts) == 1
    found = []
    for region, part in zip(setting.regions, setting.parts, strict=True):
        again = recomputation if alone or region.times else "none"
        found.append((part, keeper(part, made.region(region.name).plan, again).collect()))
    return found


def keeper(setting: Setting, made: Plan, recomputation: str = "none") -> Keeper:
    """What collects the saved tensors of a plan, with what recomputation and a fused attention leave out."""
    graph = setting.graph
    recomputed = recomputed_ops(graph, recomputation)
    found = Keeper(setting, made, recomputed)
    if setting.accounting.softmax == "fused" and graph.attention_pairs:
        found.recomputed = recomputed | recomputed_ops(graph, "selective")
        for op in graph.ops:
            if op.kind == "softmax" and has_scores(graph, op.output) and op.output not in recomputed:
                found.fused(op)
    return found


def conventions(
    accounting: Accounting, graphs: Sequence[Graph], strategy: Strategy | None, recomputation: object = ""
) -> list[str]:
    """The conventions that what is kept depends on, by field; the ``recomputation`` that is asked for, or None."""
    found = ["saved"]
    if recomputation is None and accounting.recomputation != Accounting.recomputation:
        found.append("recomputation")
    if any(not graph.repeat and differentiable(graph) != differentiable(graph, frozenset()) for graph in graphs):
        found.append("input_gradient")
    kept = accounting.saved == "pytorch" and any(op.kind == "softmax" for graph in graphs for op in graph.ops)
    if kept or (accounting.softmax == "fused" and any(graph.attention_pairs for graph in graphs)):
        found.append("softmax")
    if accounting.attention != "causal_half" and any(graph.windows for graph in graphs):
        found.append("attention")
    if strategy is not None and any(rule.axis == "sequence" for _, rule in strategy.rules):
        found.append("gathered_activations")
    return found
