"""The message about an uneven split: the axis, the tensor, its region and row, and the degrees that would work."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import gcd

import sympy as sp

from symcomm.core.errors import StrategyError
from symcomm.core.graph.graph import Axis, Graph, Tensor, bare
from symcomm.core.parallel.strategy import OF_A_HEAD


def uneven(
    graph: Graph,
    strategy: str,
    tensor: Tensor,
    axis: Axis,
    meshes: tuple[str, ...],
    length: Fraction,
    count: Fraction | int,
    others: Iterable[Fraction] = (),
    words: bool = False,
) -> StrategyError:
    """The error for an axis of ``length`` that does not fall into ``count`` equal parts over the ``meshes``.

    ``others`` are the lengths of all axes that they cut: what would work divides each of them. Of ``words`` a part may
    be smaller than the others, and a vocabulary may be filled up.

    >>> from symcomm.core.graph.graph import Axis, Graph, Tensor
    >>> x, batch = Tensor("x", ("B",), "input"), Axis("B", "B", 12)
    >>> uneven(Graph("layer", {}, {"x": x}, ()), "Data", x, batch, ("data",), Fraction(12), 8).hint
    'data may be 6 or 12, the next that divide 12'
    """
    shown = axis.label if axis.label == str(length) else f"{axis.label} = {length}"
    made = graph.producers.get(tensor.name)
    where = ""
    for op in [made] if made else list(graph.consumers.get(tensor.name, ()))[:1]:
        region = f" of {op.region}" if op.region and len(graph.regions) > 1 else ""
        where = f" (row {op.row}{region})" if op.row else ""
    message = (
        f"{strategy} cuts {shown} of {bare(tensor.name)}{where} into {count} parts, but {length} is not divisible by "
        f"{count}"
    )
    if length.denominator != 1:
        return StrategyError(message, hint=f"{axis.label} must be whole first: choose other sizes")
    if length == 1 and (graph.step is None or axis.name not in graph.step.stream):
        return StrategyError(
            message,
            hint=f"an axis that is always 1 is written as 1 in the table, not as {axis.label}: it is not cut then",
        )
    if words:
        full = -(-length // count) * count
        return StrategyError(
            message, hint=f"fill the vocabulary up to {axis.label} = {full}; or give {axis.label} and the ranks before "
            "it is derived: then each part is of whole words",
        )  # fmt: skip
    whole = gcd(int(length), *(int(other) for other in others if other.denominator == 1))
    fits = [int(d) for d in sp.divisors(whole)]
    near = [*[d for d in fits if d < count][-1:], *[d for d in fits if d > count][:1]]
    head = next((m.removesuffix(OF_A_HEAD) for m in meshes if m.endswith(OF_A_HEAD)), "")
    named = f"the ranks of {head} that share a key/value head" if head else " × ".join(meshes)
    near_by, s = " or ".join(map(str, near)), "s" * (len(near) == 1)
    what = str(length) if whole == length else "all that it cuts"
    return StrategyError(message, hint=f"{named} may be {near_by}, the next that divide{s} {what}")
