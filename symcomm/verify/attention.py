"""Attention that PyTorch runs as one kernel: which ops ``scaled_dot_product_attention`` does, and where it cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import sympy as sp

from symcomm.core.errors import SymcommError
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.graph.graph import Graph, Op
from symcomm.core.quantities.counting.load import repeated
from symcomm.core.records import dataclass

Loops = tuple[int, ...]


class KernelError(SymcommError):
    """PyTorch's kernel does not do what an attention is written as."""


@dataclass(frozen=True)
class KernelOperand:
    """An operand of the kernel: a tensor, the op that reads it, and the loop behind each of its axes."""

    name: str
    reader: Op
    loops: Loops


@dataclass(frozen=True)
class AttentionKernel:
    """An attention in one kernel: its operands, and ``op``, which does what the ops ``inside`` and their last one do.

    The roles of the loops of ``op``: batch, heads (those of keys and values before those that share them), positions
    of queries and of keys, features of keys and of values.
    """

    operands: tuple[KernelOperand, ...]  # queries, keys, values, and what is added to scores but a causal mask
    op: Op
    scores: Op
    values: Op
    shared: frozenset[int]
    inside: frozenset[str]

    def has_whole_heads(self, cuts: Mapping[str, Mapping[str, int]]) -> bool:
        """Whether each rank has whole heads: then the kernel runs on the parts of ranks as they are."""
        back = dict(zip(self.values.output_indices, self.op.output_indices, strict=True))
        one = {*cuts.get(self.scores.output, {}).values()}
        two = {back.get(index, -1) for index in cuts.get(self.values.output, {}).values()}
        return one | two <= self.shared


def attentions(graph: Graph) -> tuple[AttentionKernel, ...]:
    """Every attention of a graph whose attention is one kernel, in the order of its rows.

    Raises ``KernelError`` where PyTorch's kernel does not do what one of them is written as.
    """
    if not graph.fused:
        return ()
    forward = [op for op in graph.ops if op.phase == "forward"]
    launches = dict.fromkeys(graph.kernels[op.output] for op in forward if op.output in graph.kernels)
    return tuple(_attention(graph, [o for o in forward if graph.kernels.get(o.output) == one]) for one in launches)


def with_kernels(ops: Sequence[Op], kernels: Sequence[AttentionKernel]) -> list[Op]:
    """The ops with one op for each kernel, where the last one of its own was."""
    inside = frozenset[str]().union(*(kernel.inside for kernel in kernels))
    last = {kernel.values.output: kernel.op for kernel in kernels}
    return [last.get(op.output, op) for op in ops if op.output not in inside]


def _attention(graph: Graph, ops: list[Op]) -> AttentionKernel:
    scale, added, dropout = _between(graph, ops)
    first, last, softmax = ops[0], ops[-1], next(op for op in ops if op.kind == "softmax")
    at = ops[-2].output
    if not all(op.kind == "contraction" and len(op.inputs) == 2 for op in (first, last)) or at not in last.inputs:
        raise KernelError("its scores are no product of queries and keys")
    along = softmax.attribute("along")
    assert isinstance(along, tuple)
    keys = first.output_indices[softmax.output_indices.index(along[0])]
    n, m = next(n for n, loops in enumerate(first.indices) if keys in loops), last.inputs.index(at)
    key, query = _operand(graph, first, n), _operand(graph, first, 1 - n)
    known = dict(zip(last.indices[m], first.output_indices, strict=True))
    fresh = 1 + max(i for loops in (*first.indices, *last.indices) for i in loops)
    same = {i: known.get(i, fresh + i) for loops in (*last.indices, last.output_indices) for i in loops}
    value = _operand(graph, last, 1 - m, same)
    features, own = [*first.summed], [i for i in value.loops if i >= fresh]
    positions = [i for i in query.loops if i not in key.loops][-1]
    axes, batched = graph.index_axes(first), {*batch_axes(graph)}
    shared = [i for i in query.loops if i in key.loops and i not in features]
    group = [i for i in query.loops if i not in (*shared, positions, *features)]
    if len(features) != 1 or len(own) != 1 or {*value.loops} != {*shared, keys, *own} or (
            batched & {axes[i] for i in group}):  # fmt: skip
        raise KernelError("scaled_dot_product_attention has no such heads of keys and values")
    size = graph.axes[axes[features[0]]].size
    (wide,) = (a for a, i in zip(graph.tensors[value.name].axes, value.loops, strict=True) if i in own)
    if (graph.axes[wide].size - size).expand() != 0:
        raise KernelError("its values have other features than its keys, for which the CPU has no kernel")
    batch, heads = ([i for i in shared if (axes[i] in batched) == is_batch] for is_batch in (True, False))
    read_whole = any(op.kind == "add" or op.attribute("positions") is not None for op in added)
    roles = (tuple(batch), (*heads, *group), (positions, keys), (features[0], own[0]))
    attributes = (
        ("roles", roles), ("factor", None if (scale * sp.sqrt(size)).expand() == 1 else scale),
        ("causal", bool(added) and not read_whole), ("grouped", bool(group)), ("dropout", dropout),
    )  # fmt: skip
    read = [query, key, value]
    for op in added if read_whole else ():
        loops = dict(zip(op.output_indices, first.output_indices, strict=True))
        read.append(KernelOperand(op.inputs[1], op, tuple(loops[i] for i in op.indices[1])))
    made = replace(last, kind="attention", inputs=tuple(o.name for o in read), indices=tuple(o.loops for o in read),
                   output_indices=tuple(same[i] for i in last.output_indices), attributes=attributes)  # fmt: skip
    repeats = {o.reader.output for o in (query, key, value)} - {first.output, last.output}
    reading = {first.output, last.output}
    alone = {r for r in repeats if {o.output for o in graph.consumers[r] if o.phase == "forward"} <= reading}
    return AttentionKernel(tuple(read), made, first, last, frozenset(shared),
                           frozenset({op.output for op in ops[:-1]} | alone))  # fmt: skip


def _between(graph: Graph, ops: Sequence[Op]) -> tuple[sp.Expr, list[Op], bool]:
    """What happens to scores between the two products: a factor, a mask and constants that are added, dropout.

    Anything else is refused.
    """
    scale, dropout = sp.Mul(ops[0].attribute("scale", 1)), False
    added: list[Op] = []
    for before, op in pairwise(ops[:-1]):
        if op.inputs[0] != before.output or op.indices[0] != op.output_indices:
            raise KernelError(f"{op.output} is no step between one product and the next")
        if op.kind == "scale" and not any(one.kind == "add" for one in added):
            scale *= op.attribute("scale")
        elif op.kind == "mask":
            added.append(op)
        elif op.kind == "contraction" and len(op.inputs) == 2 and graph.tensors[op.inputs[1]].dtype == "bool":
            dropout = True
        elif op.kind == "add" and _is_constant(graph, op):
            added.append(op)
        elif op.kind == "add":
            raise KernelError("what is added to its scores gets a gradient, which PyTorch's CPU kernel lacks")
        elif op.kind != "softmax":
            raise KernelError(f"its scores run through {op.kind}, which scaled_dot_product_attention does not have")
    return scale, added, dropout


def _is_constant(graph: Graph, op: Op) -> bool:
    """Whether a sum adds a number that never changes to each score, which gets no gradient."""
    plain = len(op.inputs) == 2 and op.attribute("signs") == (1, 1) and "joined" not in dict(op.attributes)
    return plain and graph.tensors[op.inputs[1]].role == "constant" and op.inputs[1] not in graph.producers


def _operand(graph: Graph, op: Op, n: int, loops: Mapping[int, int] | None = None) -> KernelOperand:
    """An operand of a product; of heads that are repeated for a group those that are repeated."""
    name = op.inputs[n]
    own = tuple(loops[i] if loops else i for i in op.indices[n])
    made = repeated(graph, name)
    if made is None:
        return KernelOperand(name, op, own)
    places = dict(zip(made.output_indices, own, strict=True))
    return KernelOperand(made.inputs[0], made, tuple(places[i] for i in made.indices[0]))
