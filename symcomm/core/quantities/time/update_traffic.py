"""The memory traffic of an update: what the optimizer reads and writes of each weight."""

from __future__ import annotations

from symcomm.core.derivation import Derivation
from symcomm.core.form import num
from symcomm.core.quantities.memory.shaped_states import ShapeChoice, shaped_states
from symcomm.core.quantities.options import Frozen, RecipeName
from symcomm.core.quantities.recipes import recipe_of
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter, times

EXTENT = "model all"


def derive(setting: Setting, recipe: RecipeName = "mixed_adam", frozen: Frozen | None = None) -> Derivation:
    """The bytes that one update of the weights reads and writes.

    It reads each gradient, and reads and writes the states and the weight once. Where the states have a copy of the
    weights, the weight itself is only written. Products of matrices, as Muon's, move more; that is not counted.

    >>> import symcomm as sc
    >>> table = "Computation\\tInput\\tOutput\\ny = x W\\tx [B, D], W [D, F]\\ty [B, F]"
    >>> str(sc.load(table).at(D=7, F=5).update_traffic("fp32_adam").at())
    '980 byte'
    """
    setting, kept = setting.freeze(frozen), recipe_of(recipe)
    work, choice = StepWriter(setting), ShapeChoice(kept, setting)
    there = [
        (region.name, times(region, num(1)), [w for w in part.graph.weights if w.name not in setting.frozen])
        for region, part in zip(setting.regions, setting.parts, strict=True)
    ]
    text = "The update reads gradients, states and weights, and writes states and weights."
    shaped_states(work, choice, None, "traffic", "M_update", text, there, lambda *_: ())
    return replace(setting.derivation("Memory traffic of an update", work.steps), where=tuple(choice.where))
