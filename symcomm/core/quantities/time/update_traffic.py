"""The memory traffic of an update: what the optimizer reads and writes of each weight."""

from __future__ import annotations

from symcomm.core.derivation import Derivation
from symcomm.core.quantities.memory.shaped_states import ShapeChoice
from symcomm.core.quantities.options import Frozen, RecipeName
from symcomm.core.quantities.recipes import recipe_of
from symcomm.core.quantities.time.update_flops import update
from symcomm.core.setting import Setting

EXTENT = "model all"


def derive(setting: Setting, recipe: RecipeName = "mixed_adam", frozen: Frozen | None = None) -> Derivation:
    """The bytes that one update of the weights reads and writes.

    It reads each gradient, and reads and writes the states and the weight once. Where the states have a copy of the
    weights, the weight itself is only written. Products of matrices, as Muon's, move more; that is not counted.

    >>> import symcomm as sc
    >>> table = "Computation\\tInput\\tOutput\\ny = x W\\tx [B, D], W [D, F]\\ty [B, F]"
    >>> str(sc.load(table).at(D=7, F=5).update_traffic("fp32_adam").at())
    '980 B'
    """
    setting, kept = setting.freeze(frozen), recipe_of(recipe)
    text = "The update reads gradients, states and weights, and writes states and weights."
    return update(setting, ShapeChoice(kept, setting), "traffic", "M_update", text, "Memory traffic of an update")
