"""The peak rate of a processor, from its clock, units and multiply-adds or from a device."""

from __future__ import annotations

from typing import Annotated

from symcomm.core.derivation import Derivation, Reason, Step
from symcomm.core.errors import ValuesError
from symcomm.core.form import Num
from symcomm.core.hardware.devices import Device, PeakRate, known_devices
from symcomm.core.hardware.devices import device as find
from symcomm.core.quantities.declared import Meaning, OneOf
from symcomm.core.quantities.options import Clock, Fma, NoModel, Units
from symcomm.core.records import replace
from symcomm.core.setting import Setting
from symcomm.core.units import Quantity
from symcomm.core.worksheets import built_in

_UNITS = {"SM": "multiprocessor", "CU": "compute unit", "MXU": "matrix unit", "core": "core"}


def derive(
    setting: NoModel,
    clock: Clock = None,
    units: Units = None,
    fma: Fma = None,
    device: Annotated[
        str | Device | None,
        OneOf(known_devices, open=True),
        Meaning("a device that brings clock, units and fma, such as A100-80GB-SXM"),
    ] = None,
    dtype: Annotated[str | None, Meaning("the number format of the device's rate")] = None,
) -> Derivation:
    """The peak rate of a processor from its clock, its units and their operations per cycle.

    Clock x multiprocessors x multiply-adds x operations per multiply-add; the numbers may be those of a ``device``.

    With a ``device`` and a ``dtype`` the numbers are those of the device, and the result is held against its data
    sheet. Raises ``ValuesError`` where both are given, or one of them is missing.
    """
    sheet = built_in()["peak_rate"]
    if device is None:
        if dtype is not None:
            raise ValuesError("a number format needs a device", hint="give device: and dtype:, or clock, units and fma")
        return sheet.derive(setting, clock=clock, units=units, fma=fma)
    if any(part is not None for part in (clock, units, fma)):
        raise ValuesError("a device brings its clock, units and fma", hint="leave them out, or leave out the device")
    return of_device(find(device), dtype, setting)


def of_device(found: Device, dtype: str | None, setting: Setting) -> Derivation:
    """The peak rate of a device in a number format: from its parts where they are known, else from its data sheet."""
    if dtype is None:
        raise ValuesError(f"a peak rate of {found.name} needs a number format", hint=f"dtype: {', '.join(found.rates)}")
    rate = found.rate(dtype)
    title = f"Peak rate of {found.name} in {rate.dtype.upper().replace('_', ' ')}"
    if rate.parts is not None:
        of, counted = rate.parts.unit, str(rate.unit).partition("/")[0]
        sheet = built_in()["peak_rate"].spelled(n_SM=f"n_{of}", multiprocessor=_UNITS[of], FLOP=counted)
        made = sheet.derive(setting, clock=rate.parts.clock, units=rate.parts.units, fma=rate.parts.fma)
        return replace(made, title=title, notes=_agreement(rate))
    assert rate.dense is not None
    assert rate.published is not None
    factor = built_in()["peak_rate"].derive(setting).at(f=1, n_SM=1, n_FMA=1).value  # operations of a multiply-add
    text = f"{rate.published.source}: {rate.published.text}"
    text += " with sparsity, which counts twice the operations of a dense product." if rate.sparse else "."
    text += " Only one operation is counted for each multiply-add." if factor == 1 else ""
    told = rate.dense.value * factor / 2
    step = Step(
        "R",
        Num(rate.dense.value * factor / 2, rate.unit),
        rate.unit,
        Reason("data sheet", text, witness=lambda _: told),
        by=("flops",),
    )
    return setting.derivation(title, [step])


def _agreement(rate: PeakRate) -> tuple[str, ...]:
    """How the data sheet agrees with what was derived."""
    if rate.derived is None or rate.dense is None or rate.published is None:
        return ()
    near = "agrees with" if rate.agrees else "differs from"
    rounding = f", rounded to {Quantity(rate.rounded_to, rate.unit).lines()[-1][1]}" if rate.rounded_to else ""
    return (f"The derived rate {near} the published {rate.published.text}{rounding} ({rate.published.source}).",)
