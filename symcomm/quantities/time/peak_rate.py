"""The peak rate of a processor: its clock, its multiprocessors and the multiply-adds each does per cycle."""

from __future__ import annotations

from typing import Annotated

from symcomm.derivation import Derivation
from symcomm.hardware.devices import known_devices
from symcomm.hardware.rates import peak_rate
from symcomm.quantities.declared import Meaning, OneOf
from symcomm.quantities.options import Clock, Fma, NoModel, Units


def derive(
    setting: NoModel,
    clock: Clock = None,
    units: Units = None,
    fma: Fma = None,
    device: Annotated[
        str | None,
        OneOf(known_devices, open=True),
        Meaning("a device whose clock, units and fma are used, such as A100-80GB-SXM"),
    ] = None,
    dtype: Annotated[str | None, Meaning("the number format of the device's rate")] = None,
) -> Derivation:
    """The peak rate of a processor from its clock, its units and their operations per cycle.

    Clock x multiprocessors x multiply-adds x operations per multiply-add; the numbers may be those of a ``device``.

    See ``symcomm.hardware.rates.peak_rate``.
    """
    return peak_rate(clock, units, fma, device, dtype, setting.accounting, setting.notation, setting.graph.relations)
