"""The number of parameters: the elements of the weights in the table."""

from __future__ import annotations

from symcomm.derivation import Derivation
from symcomm.form import Sym, Total, num, product
from symcomm.quantities.setting import Setting, Work
from symcomm.units import PARAMETER


def derive(setting: Setting) -> Derivation:
    """The number of parameters.

    The parameters of all layers: those of one layer times their number.
    """
    graph, work = setting.graph, Work(setting)
    sizes = [setting.sizes([graph.axes[a].size for a in w.axes]) for w in graph.weights]
    names = ", ".join(f"`{w.name}`" for w in graph.weights)
    one = Total(tuple(sizes)) if len(sizes) > 1 else sizes[0] if sizes else num(0)
    text = f"The weights are {names}; each has the product of its sizes." if names else "The table has no weights."
    layer = work.define("P_layer" if graph.repeat else "P", one, PARAMETER, "count the weights", text)
    if graph.repeat:
        work.define("P", product(Sym(graph.repeat), layer), PARAMETER, "repeat", "All layers are alike.")
    return setting.derivation("Parameters", work.steps)
