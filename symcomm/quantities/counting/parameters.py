"""The number of parameters: the elements of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

from symcomm.derivation import Derivation, Numbers
from symcomm.form import Form, Total, num
from symcomm.graph.graph import Graph, Region, Tensor
from symcomm.quantities.setting import Setting, Work, mark, times
from symcomm.quantities.witnesses import elements, often
from symcomm.units import PARAMETER


def derive(setting: Setting) -> Derivation:
    """The number of parameters.

    Those of all layers and of what stands before and behind them; a tied weight counts once.
    """
    graph, work = setting.graph, Work(setting)
    alone = len(setting.regions) == 1
    known: set[str] = set()
    parts: list[Form] = []
    every: list[tuple[Region, list[Tensor]]] = []
    whole = partial(_laid_out, graph, every)
    for region, part in zip(setting.regions, setting.parts, strict=True):
        weights = [w for w in part.graph.weights if w.name not in known]
        known |= {w.name for w in weights}
        if not weights and not alone:
            continue
        sizes = [setting.sizes([graph.axes[a].size for a in w.axes]) for w in weights]
        names = ", ".join(f"`{w.name}`" for w in weights)
        one = Total(tuple(sizes)) if len(sizes) > 1 else sizes[0] if sizes else num(0)
        text = f"The weights are {names}; each has the product of its sizes." if names else "The table has no weights."
        name = f"P_{mark(region)}" if not alone else "P_layer" if region.times else "P"
        one_by_one = partial(_laid_out, part.graph, [(Region(region.name), weights)])
        layer = work.define(name, one, PARAMETER, "count the weights", text, witness=one_by_one)
        parts.append(times(region, layer))
        every.append((region, weights))
    if not alone:
        listed = ", ".join(region.name for region in setting.regions)
        work.define("P", Total(tuple(parts)), PARAMETER, "add the parts", f"Together: {listed}.", witness=whole)
    elif setting.regions[0].times:
        work.define("P", parts[0], PARAMETER, "repeat", "All layers are alike.", witness=whole)
    return setting.derivation("Parameters", work.steps)


def _laid_out(graph: Graph, weights: Sequence[tuple[Region, Sequence[Tensor]]], numbers: Numbers) -> Fraction:
    """The numbers in the weights of each region, as often as it stands."""
    parts = ((often(region, numbers), elements(graph, w, numbers)) for region, mine in weights for w in mine)
    return sum((count * size for count, size in parts), Fraction(0))
