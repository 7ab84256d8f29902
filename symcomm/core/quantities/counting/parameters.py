"""The number of parameters: the elements of the weights, or of those that a token passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation
from symcomm.core.form import Form, Total, num, total
from symcomm.core.graph.experts import Routing, chosen_experts
from symcomm.core.graph.graph import Graph, Region, Tensor
from symcomm.core.libraries import Expr
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.witnesses import laid_out
from symcomm.core.setting import Setting, StepWriter, mark, times
from symcomm.core.units import PARAMETER

EXTENT = "model all"


def derive(
    setting: Setting,
    of: Annotated[
        Literal["all", "active"], Meaning("all parameters, or only the ones that one token uses: a few experts")
    ] = "all",
) -> Derivation:
    """The number of parameters.

    Those of all layers and of what stands before and behind them; a tied weight counts once. Of the experts that a
    router chooses from, the ``active`` ones are those that a token goes to.
    """
    graph, work = setting.graph, StepWriter(setting)
    experts = chosen_experts(graph) if of == "active" else {}

    alone = len(setting.regions) == 1
    known: set[str] = set()
    parts: list[Form] = []
    every: list[tuple[Form, list[Expr], Fraction]] = []
    for region, part in zip(setting.regions, setting.parts, strict=True):
        weights = [w for w in part.graph.weights if w.name not in known
                   and (_of_layer(graph, region, w) or setting.choice("parameters") == "every_weight")]  # fmt: skip
        known |= {w.name for w in weights}
        if not weights and not alone:
            continue
        sizes = [_sizes(graph, experts, w.name, w.axes) for w in weights]
        names = ", ".join(f"`{w.name}`" for w in weights)
        one = total(*map(setting.sizes, sizes))
        text = (
            f"The weights {names} have as many entries as the product of their sizes."
            if names
            else "The table has no weights."
        )
        few = ", ".join(f"`{w.name}`" for w in weights if w.name in experts)
        text += f" A token uses only the part of {few} in its experts." if few else ""
        name = f"P_{mark(region)}" if not alone else "P_layer" if region.times else "P"
        one_by_one = partial(laid_out, [(num(1), lengths, Fraction(1)) for lengths in sizes])
        layer = work.define(name, one, PARAMETER, "count the weights", text, witness=one_by_one)
        parts.append(times(region, layer))
        every += [(times(region, num(1)), lengths, Fraction(1)) for lengths in sizes]
    whole = partial(laid_out, every)
    if not alone:
        listed = ", ".join(region.name for region in setting.regions)
        work.define("P", Total(tuple(parts)), PARAMETER, "add the parts", f"Together: {listed}.", witness=whole)
    elif setting.regions[0].times:
        work.define("P", parts[0], PARAMETER, "repeat", "All layers are alike.", witness=whole)
    return setting.derivation("Active parameters" if of == "active" else "Parameters", work.steps)


def _of_layer(graph: Graph, region: Region, weight: Tensor) -> bool:
    """Whether a weight is a matrix of a layer: something is summed over it, and it stands in what is repeated."""
    stacked = bool(region.times) or not any(r.times for r in graph.regions)
    return (
        stacked
        and len(weight.axes) > 1
        and any(op.summed and not op.attribute("lookup") for op in graph.consumers.get(weight.name, ()))
    )


def _sizes(graph: Graph, experts: Mapping[str, Routing], name: str, axes: Sequence[str]) -> list[Expr]:
    """The sizes of a weight; of the experts those that a token goes to."""
    sizes = [graph.axes[axis].size for axis in axes]
    if name in experts:
        sizes[experts[name].place] = experts[name].chosen
    return sizes
