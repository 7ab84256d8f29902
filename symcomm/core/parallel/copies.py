"""Attention over more ranks than it has key/value heads: each rank gets a copy of a head, and some of its queries.

The queries of a head are cut in as many groups as ranks share the head. Its keys and values are copied once for each
group, so the same all-to-all serves them and the queries; gradients of copies are added where they come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import prod

from symcomm.core.errors import StrategyError
from symcomm.core.form import evaluate, from_expr, names, num
from symcomm.core.graph.axis_roles import head_axes
from symcomm.core.graph.graph import Axis, Graph, Op
from symcomm.core.libraries import sp
from symcomm.core.parallel.strategy import OF_A_HEAD, Rule, Strategy, with_copies
from symcomm.core.records import replace

COPIES = "copies of a head"  # of the axis over the ranks that share a key/value head


def with_copied_heads(graph: Graph, strategy: Strategy, values: Mapping[str, Fraction]) -> tuple[Graph, Strategy]:
    """The graph and the strategy with a copy of a key/value head on each rank, where ranks outnumber these heads.

    Both are as they were where ranks are fewer. Raises ``StrategyError`` where the ranks are no multiple of the heads,
    or more than the queries have.
    """
    for _, rule in strategy.rules:
        size = strategy.sizes.get(rule.mesh)
        if rule.axis != "heads" or size is None or graph.step is not None or not {*names(size)} <= values.keys():
            continue
        every = head_axes(graph)
        found = next((one for op in graph.ops for one in _readers(graph, op, every)), None)
        if found is None:
            return graph, strategy
        _, mine, theirs = found
        heads, group = (from_expr(graph.axes[axis].size) if axis else num(1) for axis in (mine, theirs))
        if not {*names(heads), *names(group)} <= values.keys():
            return graph, strategy
        ranks, number, queries = evaluate(size, values), evaluate(heads, values), evaluate(group, values)
        beside = [strategy.sizes[one.mesh] for _, one in strategy.rules if one.axis == "paired"]
        if not {name for other in beside for name in names(other)} <= values.keys():
            return graph, strategy
        number /= prod(evaluate(other, values) for other in beside)  # those that tensor parallelism leaves to a rank
        if number.denominator > 1:
            return graph, strategy
        if ranks > number:
            copies = _copies(strategy.name, ranks, number, queries)
            return _copied(graph, mine, theirs, copies), _over(strategy, rule, mine, int(number), copies)
    return graph, strategy


def with_shared_heads(graph: Graph, strategy: Strategy, values: Mapping[str, Fraction]) -> tuple[Graph, Strategy]:
    """The same; while text is generated, also where it is tensor parallelism that cuts the heads."""
    placed = strategy if graph.step is None else with_copies(strategy, graph, values)
    return with_copied_heads(graph, placed, values)


def _copies(name: str, ranks: Fraction, heads: Fraction, queries: Fraction) -> int:
    """The number of ranks that share a key/value head."""
    fits = [heads * n for n in range(1, int(queries) + 1) if queries % n == 0]
    hint = f"{name.lower()} may be a divisor of {heads}" + "".join(f", or {fit}" for fit in fits[1:])
    if ranks > heads * queries:
        raise StrategyError(f"{name} over {ranks} ranks: there are only {heads * queries} query heads", hint=hint)
    if ranks not in fits:
        what = f"{heads} key/value heads" if ranks % heads else f"{heads * queries} query heads"
        raise StrategyError(f"{name} over {ranks} ranks: {what} cannot be shared evenly", hint=hint)
    return int(ranks / heads)


def _over(strategy: Strategy, rule: Rule, heads: str, number: int, each: int) -> Strategy:
    """The strategy whose mesh axis is two: the heads, and the ranks that share one."""
    mine = [(rule.mesh, heads, number), (f"{rule.mesh}{OF_A_HEAD}", COPIES, each)]
    mine = mine if number > 1 else [(rule.mesh, COPIES, each)]
    mesh = [new for axis, size in strategy.mesh
            for new in ([(m, num(n)) for m, _, n in mine] if axis == rule.mesh else [(axis, size)])]  # fmt: skip
    rules = [
        (place, replace(one, mesh=m, axis=axis if one == rule else one.axis) if one.mesh == rule.mesh else one)
        for place, one in strategy.rules for m, axis, _ in (mine if one.mesh == rule.mesh else mine[:1])
    ]  # fmt: skip
    return replace(strategy, mesh=tuple(mesh), rules=tuple(rules))


def _readers(graph: Graph, op: Op, heads: tuple[str, ...]) -> Iterator[tuple[int, str, str]]:
    """The operands of an op whose heads several queries share.

    Each comes with its place, its axis of heads (none where all queries share one), and the axis of the queries.
    """
    loops = {*graph.index_axes(op).values()} & {*heads}
    for j, name in enumerate(op.inputs):
        tensor = graph.tensors[name]
        has, others = [*loops & {*tensor.axes}], [*loops - {*tensor.axes}]
        if len(others) == 1 and len(has) < 2 and tensor.role == "activation" and (has or _attends(graph, op, name)):
            yield j, "".join(has), others[0]


def _attends(graph: Graph, op: Op, name: str) -> bool:
    """Whether an op weighs an operand by scores, or repeats it for one that does."""
    ops = graph.consumers.get(op.output, ()) if op.attribute("view") else (op,)
    return graph.pair(name) is None and any(graph.pair(n) for o in ops for n in (*o.inputs, o.output))


def _copied(graph: Graph, heads: str, group: str, copies: int) -> Graph:
    """The graph whose ops read ``copies`` of each head, for as many parts of the axis ``group`` of its queries."""
    size = graph.axes[group].size
    first = Axis(COPIES, str(copies), sp.Integer(copies), "copies")
    second = Axis(f"{group} of a copy", str(size / copies), size / copies, "copies")
    both = (first.name, second.name)
    tensors = {
        name: replace(t, axes=tuple(a for axis in t.axes for a in (both if axis == group else (axis,))))
        for name, t in graph.tensors.items()
    }
    ops: list[Op] = []
    for op in graph.ops:
        axes = graph.index_axes(op)
        new = max(axes, default=0) + 1  # the loop over copies; that over the queries of a copy keeps its number
        split = {i: (new, i) if axis == group else (i,) for i, axis in axes.items()}
        indices = [tuple(n for i in operand for n in split[i]) for operand in op.indices]
        inputs = [*op.inputs]
        for j, *_ in _readers(graph, op, tuple(filter(None, (heads, group)))):
            read = tensors[op.inputs[j]]
            at = read.axes.index(heads) + 1 if heads else 0
            every = tuple(range(len(read.axes)))
            made = (*every[:at], len(every), *every[at:])
            inputs[j] = f"{read.name} × {copies}"
            if inputs[j] not in tensors:
                tensors[inputs[j]] = replace(
                    read, name=inputs[j], role="activation", axes=(*read.axes[:at], first.name, *read.axes[at:])
                )
                ops.append(replace(
                    op, name=inputs[j], kind="contraction", inputs=(read.name,), output=inputs[j], indices=(every,),
                    output_indices=made, attributes=(("view", True),),
                ))  # fmt: skip
            indices[j] = (*indices[j][:at], new, *indices[j][at:])
        ops.append(replace(op, inputs=tuple(inputs), indices=tuple(indices),
                           output_indices=tuple(n for i in op.output_indices for n in split[i])))  # fmt: skip
    return replace(graph, axes={**graph.axes, **{a.name: a for a in (first, second)}}, tensors=tensors, ops=tuple(ops))
