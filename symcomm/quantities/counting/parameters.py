"""The number of parameters: the elements of the weights."""

from __future__ import annotations

from symcomm.derivation import Derivation
from symcomm.form import Form, Total, num
from symcomm.quantities.setting import Setting, Work, mark, times
from symcomm.units import PARAMETER


def derive(setting: Setting) -> Derivation:
    """The number of parameters.

    Those of all layers and of what stands before and behind them; a tied weight counts once.
    """
    graph, work = setting.graph, Work(setting)
    alone = len(setting.regions) == 1
    known: set[str] = set()
    parts: list[Form] = []
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
        layer = work.define(name, one, PARAMETER, "count the weights", text)
        parts.append(times(region, layer))
    if not alone:
        listed = ", ".join(region.name for region in setting.regions)
        work.define("P", Total(tuple(parts)), PARAMETER, "add the parts", f"Together: {listed}.")
    elif setting.regions[0].times:
        work.define("P", parts[0], PARAMETER, "repeat", "All layers are alike.")
    return setting.derivation("Parameters", work.steps)
