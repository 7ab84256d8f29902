"""The backward pass, derived: the gradient of a contraction is a contraction, of a map the map's own derivative.

Nothing here knows a layer. Every op's gradients follow from its indices or from the record of its map.
"""

from __future__ import annotations

from functools import lru_cache

from symcomm.core.graph import ops as kinds
from symcomm.core.graph.graph import Graph, Op
from symcomm.core.records import replace


def gradient_name(tensor: str) -> str:
    """The name of a tensor's gradient."""
    return f"d({tensor})"


def inputs_to_train(graph: Graph, needed: bool = True) -> frozenset[str]:
    """The inputs whose gradient is computed: all where that is ``needed``, else those that a repeated region reads.

    The gradient of what a layer reads is what the layer before it learns from; only the first one's is not needed. The
    gradient of a state is what the position before learns from.
    """
    repeated = {region.name for region in graph.regions if region.times}
    return frozenset(
        t.name for t in graph.inputs
        if needed or t.of or any(op.region in repeated for op in graph.consumers.get(t.name, ()))
    )


def trains_inputs(graph: Graph) -> bool:
    """Whether an input of the graph has a gradient: token ids and labels have none."""
    return any(op.kind not in ("onehot", "route") for t in graph.inputs for op in graph.consumers.get(t.name, ()))


def _learns(graph: Graph, name: str) -> bool:
    """Whether a target gets a gradient: where it is computed, a weight, or an input of the rest of a model, too."""
    reads = [op for op in graph.consumers[name] if op.kind not in ("onehot", "route")]
    return graph.tensors[name].role != "input" or any(
        op.kind not in kinds.MAP or kinds.MAP[op.kind].carries or op.inputs[0] == name for op in reads
    )


def differentiable(graph: Graph, inputs: frozenset[str] | None = None) -> frozenset[str]:
    """The tensors that need a gradient: weights, ``inputs`` (all, where not said), and all that depends on them."""
    inputs = inputs_to_train(graph) if inputs is None else inputs
    needed = {t.name for t in graph.tensors.values() if t.role == "weight"} | inputs
    for op in graph.ops:
        if any(name in needed for name in op.inputs) and op.kind not in ("onehot", "route"):
            needed.add(op.output)
    return frozenset(needed)


@lru_cache(maxsize=64)
def training(graph: Graph, needed: bool = True, frozen: frozenset[str] = frozenset()) -> Graph:
    """Forward and backward ops of a step; ``needed`` is that of ``inputs_to_train``, ``frozen`` weights get none.

    A step of generating text has no backward pass.
    """
    if graph.step is not None:
        return graph
    held = {name: replace(graph.tensors[name], role="constant") for name in frozen}
    inputs = inputs_to_train(graph, needed)
    both = backward(replace(graph, tensors={**graph.tensors, **held}) if held else graph, inputs)
    given = {n: graph.tensors[n] if n in frozen else t for n, t in both.tensors.items()}
    return replace(both, tensors=given) if frozen else both


def backward(graph: Graph, inputs: frozenset[str] | None = None) -> Graph:
    """The graph with its backward ops behind its forward ops.

    The gradient of a tensor is named ``d(tensor)``; the gradients of the outputs come from outside. A tensor that
    several ops read gets the sum of their contributions. ``inputs`` are those that get one, all where not said.

    Source: reverse-mode differentiation, e.g. Baydin et al., arXiv 1502.05767, section 3.2.
    """
    needed = differentiable(graph, inputs)
    tensors = dict(graph.tensors)
    ops: list[Op] = []
    parts: dict[str, list[str]] = {}  # contributions to the gradient of a tensor
    made: dict[str, int] = {}  # where the op stands that makes a contribution

    def like(name: str, of: str) -> str:
        tensors[name] = replace(
            graph.tensors[of], name=name, role="gradient", latex="", of=of, dtype=None, virtual=False
        )
        return name

    def emit(op: Op, position: int, kind: str, inputs: tuple[str, ...], indices: tuple[tuple[int, ...], ...],
             out: tuple[int, ...], attributes: dict[str, object]) -> None:  # fmt: skip
        of = op.inputs[position]
        known = parts.setdefault(of, [])
        name = like(f"{gradient_name(of)}·{len(known) + 1}", of)
        known.append(name)
        made[name] = len(ops)
        ops.append(
            Op(
                name,
                kind,
                inputs,
                name,
                indices,
                out,
                tuple(attributes.items()),
                "backward",
                op.row,
                op.source,
                op.region,
            )
        )

    def carried(op: Op, position: int, dy: str) -> None:
        """Of a recurrence: the gradient through all later positions, which is the operand's; with the result before it
        the gradient of the factor.
        """
        out, along = op.output_indices, op.attribute("along")
        whole = f"{gradient_name(op.output)}·carried"
        if whole not in tensors:
            like(whole, op.output)
            ops.append(Op(whole, f"{op.kind}_gradient", (dy, op.inputs[1]), whole, (out, op.indices[1]), out,
                          op.attributes, "backward", op.row, op.source, op.region))  # fmt: skip
        if position == 0:
            parts.setdefault(op.inputs[0], []).append(whole)
            return
        wide = {"broadcast": True} if not {*op.indices[1]} <= {*out} else {}
        emit(op, 1, "contraction", (whole, op.output), (out, out), op.indices[1], {"whole": along, "before": 1} | wide)

    def settle(name: str) -> str:
        """The finished gradient of a tensor: its only contribution, or the sum of all."""
        known = parts.pop(name)
        final = gradient_name(name)
        indices = tuple(range(len(graph.tensors[name].axes)))
        producer = made.get(known[0])
        source = graph.tensors[name].source
        own = known[0].startswith(f"{final}·")
        gates = [made[one] for one in known if one in made and ops[made[one]].attribute("gate")]
        whole = len(gates) == len(known) > 1  # parts side by side: nothing is added, and none is stored by itself
        for one in known if whole else ():
            tensors[one] = replace(tensors[one], virtual=True)
        if len(known) == 1 and own and producer is not None:
            del tensors[known[0]]
            like(final, name)
            ops[producer] = replace(ops[producer], name=final, output=final)
            return final
        if len(known) == 1 and graph.tensors[name].role == "activation":
            return known[0]  # a sum hands its gradient on unchanged
        like(final, name)
        attributes: tuple[tuple[str, object], ...] = (("signs", (1,) * len(known)),)
        attributes = (("view", True),) if len(known) == 1 else (*attributes, ("lookup", True)) if whole else attributes
        kind = "contraction" if len(known) == 1 else "add"
        homes = {ops[made[one]].region for one in known if one in made}
        maker = graph.producers.get(name) or graph.consumers[name][0]
        region = homes.pop() if len(homes) == 1 else maker.region
        ops.append(Op(final, kind, tuple(known), final, (indices,) * len(known), indices, attributes, "backward",
                      0, source, region))  # fmt: skip
        return final

    for out in graph.outputs:
        if out.name in needed:
            parts[out.name] = [like(gradient_name(out.name), out.name)]

    for op in reversed(graph.ops):
        if op.output not in parts or op.output not in needed:
            continue
        dy = settle(op.output) if parts[op.output] != [gradient_name(op.output)] else parts.pop(op.output)[0]
        for j, name in enumerate(op.inputs):
            if name not in needed:
                continue
            mine = op.indices[j]
            if op.kind == "contraction":
                others = [k for k in range(len(op.inputs)) if k != j]
                given = {*op.output_indices, *(i for k in others for i in op.indices[k])}
                keep = {k: v for k, v in op.attributes if k in ("scale", "lookup", "cast", "elementwise", "gate")}
                if op.attribute("view") and set(op.output_indices) == set(mine):
                    keep["view"] = True
                if not given >= set(mine):
                    keep["broadcast"] = True
                emit(op, j, "contraction", (dy, *(op.inputs[k] for k in others)),
                     (op.output_indices, *(op.indices[k] for k in others)), mine, keep)  # fmt: skip
            elif op.kind == "add":
                signs = op.attribute("signs")
                assert isinstance(signs, tuple)
                if signs[j] > 0 and mine == op.output_indices:
                    parts.setdefault(name, []).append(dy)
                else:
                    emit(op, j, "contraction", (dy,), (op.output_indices,), mine, {"scale": signs[j]})
            elif op.kind == "convolution":
                keep = dict(op.attributes) | {"part": "input" if j == 0 else "weight"}
                emit(op, j, "convolution", (dy, op.inputs[1 - j]), (op.output_indices, op.indices[1 - j]), mine, keep)
            elif op.kind == "halo":
                emit(op, j, "halo_sum", (dy,), (op.output_indices,), mine, dict(op.attributes))
            else:
                record = kinds.MAP[op.kind]
                if record.carries:
                    carried(op, j, dy)
                    continue
                if j > 0 and not (record.symmetric and _learns(graph, name)):
                    continue  # further operands of a map are constants
                if record.derivative == kinds.dy:
                    parts.setdefault(name, []).append(dy)
                    continue
                read, at = [dy], [op.output_indices]
                for what in record.gradient_reads:
                    place = record.operands.index(what) + 1 if what in record.operands else 0
                    place = place ^ j  # the second operand of a symmetric map is as its first
                    read.append(op.output if what == "y" else op.inputs[place])
                    at.append(op.output_indices if what == "y" else op.indices[place])
                emit(op, j, f"{op.kind}_gradient", tuple(read), tuple(at), mine, dict(op.attributes))
    for tensor in list(graph.tensors.values()):
        if tensor.name in parts and tensor.role in ("weight", "input"):
            settle(tensor.name)
    return replace(graph, tensors=tensors, ops=(*graph.ops, *ops))
