"""How often a model repeats its layer."""

from __future__ import annotations

from symcomm.core.derivation import Derivation
from symcomm.core.program import pipeline
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import ONE

EXTENT = "layers"


def derive(setting: Setting) -> Derivation:
    """The layers of a model."""
    work = StepWriter(setting)
    work.combine("n_layers", pipeline.layer_count(setting.graph), ONE, "layers", "All layers of the model.")
    return setting.derivation("Layers", work.steps)
