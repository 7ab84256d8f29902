"""The peak rate of a device."""

from __future__ import annotations

from typing import Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.parallel.strategy import parse_strategy
from symcomm.core.quantities.counting.load import ONE_DEVICE
from symcomm.core.quantities.machine import RATES, machine
from symcomm.core.quantities.options import Dtype, PeakRates, StrategyOption
from symcomm.core.quantities.time.terms import TimeWriter
from symcomm.core.quantities.time.time import with_rates
from symcomm.core.setting import Setting, StepWriter

EXTENT = "rank"


def derive(
    setting: Setting,
    strategy: StrategyOption | None = None,
    dtype: Dtype | None = None,
    **rates: Unpack[PeakRates],
) -> Derivation:
    """The peak rate of a device in the format of the products, unlowered; its symbol is none of the strategy."""
    setting = setting.in_format(dtype)
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy or ONE_DEVICE
    made = machine(setting, placed.forms, **rates)
    work = StepWriter(setting, *placed.forms, *made.symbols)
    writer = TimeWriter(work, made, placed)
    if writer.rate() == made.peak:
        work.combine("R_peak", made.peak, RATES["peak"].unit, "peak rate", "The peak rate of a device.")
    return with_rates(setting.derivation("Peak rate of a device", work.steps), writer)
