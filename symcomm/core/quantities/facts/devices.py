"""The devices that a strategy uses."""

from __future__ import annotations

from typing import Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.form import product
from symcomm.core.parallel.strategy import degree, parse_strategy
from symcomm.core.program import pipeline
from symcomm.core.quantities.options import DeviceCount, StrategyOption
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import ONE

EXTENT = "devices"


def derive(
    setting: Setting,
    strategy: StrategyOption | None = None,
    **more: Unpack[DeviceCount],
) -> Derivation:
    """The devices that a strategy uses: its mesh, times its stages."""
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    parts = [] if strategy is None else [*strategy.sizes.values()]
    if strategy is not None and strategy.pipeline is not None:
        parts.append(pipeline.stage_count(strategy.pipeline, setting.graph))
    said = more.get("devices_used")
    number = product(*parts) if said is None else degree(str(said))
    work = StepWriter(setting, number)
    text = "One device for each place of the mesh and each stage."
    work.combine("n_devices", number, ONE, "devices", text)
    return setting.derivation("Devices", work.steps)
