"""Small sizes for a model: what a strategy may cut is divisible, and different axes differ where they can."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import product

from symcomm.core.derivation.relations import Relations
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import names
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.graph.graph import Graph
from symcomm.core.setting import Setting


def small_sizes(
    graph: Graph, given: Mapping[str, Fraction], unit: int = 2, microbatches: int = 1, layers: int = 2
) -> dict[str, int]:
    """Numbers for all sizes of a graph: those that are ``given``, and small ones for the others.

    ``unit`` divides all that may be cut. Raises ``ValuesError`` for an unknown size, and for one that is no whole
    number.

    >>> from symcomm.core.model import load
    >>> small_sizes(load("Computation\\tInput\\tOutput\\ny = xW\\tx [B, D], W [D, F]\\ty [B, F]\\n").graph, {})
    {'B': 2, 'D': 4, 'F': 6}
    """
    from sympy import Integer

    symbols = Setting(graph).symbols
    unknown = [name for name in given if name not in symbols]
    if unknown:
        raise ValuesError(f"the model has no size '{unknown[0][:40]}'", hint=nearest(unknown[0], sorted(symbols)))
    derived = {name for name, _ in graph.relations.equations}
    free = sorted(symbols - derived | {n for _, f in graph.relations.equations for n in names(f)})
    times = {region.times for region in graph.regions}
    batch = {s.name for a in batch_axes(graph) for s in graph.axes[a].size.free_symbols}
    taps = {
        s.name for op in graph.ops if op.kind == "convolution"
        for i in op.indices[1][2:] for s in graph.axes[graph.index_axes(op)[i]].size.free_symbols
    }  # fmt: skip
    routes = [op for op in graph.ops if op.kind == "route"]
    tops = {s.name for op in routes for s in getattr(op.attribute("k"), "free_symbols", ())}
    experts = {s.name for op in routes for s in graph.sizes(op.inputs[0])[-1].free_symbols} if tops else set()
    below, above = set(), set()
    turned = {s.name for op in graph.ops if op.attribute("features") is not None for table in op.inputs[1:]
              for s in graph.sizes(table)[-1].free_symbols if op.kind == "rope"}  # fmt: skip
    for axis in graph.axes.values():
        over, under = axis.size.as_numer_denom()
        if under.free_symbols:
            below |= {s.name for s in under.free_symbols}
            above |= {s.name for s in over.free_symbols}
    found: dict[str, int] = {}
    turn = 0
    for name in free:
        if name in given:
            continue
        if name in times:
            found[name] = layers
        elif name in batch:
            found[name] = unit * microbatches
        elif name in turned:
            found[name] = 2
        elif name in taps:
            found[name] = 3
        elif name in tops:
            found[name] = 2 if graph.step is None else unit  # the few tokens of a step fill no expert
        elif name in below:
            some = name in experts and graph.step is None  # a token leaves some experts out
            found[name] = unit * 2 if some else unit
        elif name in above:
            found[name] = 2 * unit
        else:
            turn = turn % 4 + 1
            found[name] = unit * (turn + 1)
    for length, rows, unused in graph.limits:  # a table of positions reaches as far as the sequence
        if rows in found and rows not in given:
            found[rows] = max(found[rows], int(given.get(length, found.get(length, 1))) + unused)
    known = _completed(graph.relations, found, given, unit)
    broken = [n for n, v in known.items() if v.denominator != 1 or v < 1]
    if broken:
        raise ValuesError(f"{broken[0]} is {known[broken[0]]}, which is no size of an axis")
    made = {n: int(v) for n, v in known.items() if n in symbols}
    for length, rows, unused in graph.limits:
        if {length, rows} <= made.keys() and rows not in given:
            made[rows] = max(made[rows], made[length] + unused)  # a position has a row of its table
    for op in routes:
        chosen, there = (Integer(0) + size for size in (op.attribute("k"), graph.sizes(op.inputs[0])[-1]))
        k, every = (size.subs({s: made[s.name] for s in size.free_symbols}) for size in (chosen, there))
        if k > every:
            raise ValuesError(f"a token goes to {k} of {every} experts", hint=f"{chosen} is at most {there}: --at ...")
    for tensor in graph.tensors.values():
        for name in tensor.axes:
            size = graph.axes[name].size.subs({s: made[s.name] for s in graph.axes[name].size.free_symbols})
            if not size.is_Integer or size < 1:
                raise ValuesError(f"the axis {graph.axes[name].label} of {tensor.name} would have the size {size}",
                                  hint="give sizes that divide: --at ...")  # fmt: skip
    return dict(sorted(made.items()))


def _completed(
    relations: Relations, found: Mapping[str, int], given: Mapping[str, Fraction], unit: int
) -> dict[str, Fraction]:
    """All sizes; where a product such as D = n_H·H is given, one of its factors follows from it and the small ones."""
    small = {n: Fraction(v) for n, v in found.items()}
    factors = {n for left, form in relations.equations if left in given for n in names(form) if n in small}
    for left_out, others in product(sorted(factors), (small, dict.fromkeys(small, Fraction(unit)))):
        chosen = small | {n: others[n] for n in factors}
        del chosen[left_out]
        try:
            known = relations.complete(chosen | dict(given))
        except ValuesError:
            continue
        if all(v.denominator == 1 and v >= 1 for v in known.values()):
            return known
    return relations.complete(small | dict(given))
