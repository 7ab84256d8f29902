"""The peak rate of a processor: its clock, its multiprocessors and the multiply-adds each does per cycle."""

from __future__ import annotations

from symcomm.derivation import Derivation
from symcomm.hardware.rates import peak_rate
from symcomm.quantities.setting import Setting


def derive(
    setting: Setting, clock: object = None, units: object = None, fma: object = None, device: str | None = None,
    dtype: str | None = None,
) -> Derivation:  # fmt: skip
    """Clock x multiprocessors x multiply-adds x operations per multiply-add; the numbers may be those of a ``device``.

    See ``symcomm.hardware.rates.peak_rate``.
    """
    return peak_rate(clock, units, fma, device, dtype, setting.accounting, setting.notation, setting.graph.relations)
