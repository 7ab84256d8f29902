"""The ops:byte ratio of a machine: operations it can do while one byte arrives from memory."""

from __future__ import annotations

from typing import Annotated, Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.form import Form, Ratio, Sym
from symcomm.core.quantities.counting.load import ONE_DEVICE
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.machine import machine
from symcomm.core.quantities.options import Clock, Fma, NoModel, Roofs, Units
from symcomm.core.quantities.time import peak_rate
from symcomm.core.quantities.time.terms import TimeWriter
from symcomm.core.records import replace
from symcomm.core.setting import StepWriter
from symcomm.core.units import Unit


def derive(
    setting: NoModel,
    clock: Annotated[Clock, Meaning("the clock rate, if the peak rate is derived")] = None,
    units: Units = None,
    fma: Fma = None,
    **rates: Unpack[Roofs],
) -> Derivation:
    """The ops:byte ratio of a machine.

    Peak rate over memory bandwidth; the peak rate is given, or follows from clock, units and multiply-adds.

    Source: NVIDIA, GPU Performance Background, "ops:byte ratio"; the ridge point of the roofline.
    """
    made = machine(setting, **rates)
    given = dict(made.given)
    work = StepWriter(setting, *made.symbols)
    writer = TimeWriter(work, made, ONE_DEVICE)
    rate: Form = made.peak
    if any(value is not None for value in (clock, units, fma)):
        from_parts = peak_rate.derive(setting, clock=clock, units=units, fma=fma)
        work.steps, work.known = [*from_parts.steps], dict(from_parts.worth)
        given = {**dict(from_parts.given), **{k: v for k, v in given.items() if k != made.peak.name}}
        rate = Sym(from_parts.answer.name)
    else:
        rate = writer.rate()
    work.combine("I_machine", Ratio(rate, made.memory), Unit.parse("FLOP/byte"), "ops:byte ratio",
                 "Operations that the machine can do while one byte arrives.")  # fmt: skip
    answer = setting.derivation("Ops:byte ratio", work.steps)
    return replace(answer, given=tuple({**dict(answer.given), **given}.items()))
