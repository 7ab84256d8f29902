"""Which weights are those of experts that a router chooses from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symcomm.graph.graph import Graph

if TYPE_CHECKING:
    from sympy import Expr


def chosen_experts(graph: Graph) -> dict[str, tuple[str, Expr]]:
    """The weights of experts, each with its axis of experts and how many of these a token goes to.

    An axis of experts is one along which a router spreads tokens; what is computed from them keeps it, until their
    results are added up.
    """
    found: dict[str, tuple[str, Expr]] = {}
    routed: dict[str, dict[int, Expr]] = {}  # of a tensor, the places of such axes
    for op in graph.ops:
        routes = [n for n in op.inputs if n in graph.producers and graph.producers[n].kind == "route"]
        along: dict[int, Expr] = {}
        for name, indices in zip(op.inputs, op.indices, strict=True):
            if name in routes:
                # The last axis of a route are the slots of an expert, the one before it are the experts.
                chosen = graph.producers[name].attribute("k")
                along[indices[-2]] = chosen
            along |= {indices[place]: chosen for place, chosen in routed.get(name, {}).items()}
        for name, indices in zip(op.inputs, op.indices, strict=True):
            tensor = graph.tensors[name]
            for place, index in enumerate(indices):
                if tensor.role == "weight" and index in along:
                    found[name] = tensor.axes[place], along[index]
        routed[op.output] = {place: along[i] for place, i in enumerate(op.output_indices) if i in along}
    return found
