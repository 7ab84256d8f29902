"""The peak rate of a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.parallel.strategy import Strategy, parse_strategy
from symcomm.core.quantities.counting.load import ONE_DEVICE
from symcomm.core.quantities.machine import RATES, machine
from symcomm.core.quantities.options import Dtype, NoModel, PeakRates, StrategyOption
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter

EXTENT = "rank"


def derive(
    setting: NoModel,
    strategy: StrategyOption | None = None,
    dtype: Dtype | None = None,
    **rates: Unpack[PeakRates],
) -> Derivation:
    """The peak rate of a device in the format of the products, unlowered; its symbol is none of the strategy."""
    return rate(setting, "peak", strategy, dtype, rates, sustained=False)


def rate(
    setting: Setting, of: str, strategy: Strategy | str | None, dtype: str | None, rates: Mapping[str, Any],
    sustained: bool,
) -> Derivation:  # fmt: skip
    """The ``peak`` or the ``memory`` rate of a device, times its utilisation where it is the ``sustained`` one."""
    setting = setting.in_format(dtype)
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy or ONE_DEVICE
    made = machine(setting, placed.forms, **rates)
    known, named = {**setting.values, **dict(made.given)}, setting.named | {symbol.name for symbol in made.symbols}
    setting = replace(setting, values=known, named=named)
    work = StepWriter(setting, *placed.forms, *made.symbols)
    found = made.rate_of(work) if of == "peak" else made.memory
    form = made.sustained(found) if sustained else found
    if form != found or found in made.symbols:
        name = f"{RATES[of].symbol[0]}_{'sustained' if form != found else 'peak'}"
        work.combine(name, form, RATES[of].unit, "rate", f"{RATES[of].meaning.capitalize()} of a device.")
    return setting.derivation(f"{RATES[of].meaning[4:].capitalize()} of a device", work.steps)
