"""Peak rates as derivations: from clock, units and multiply-adds, or from a data sheet; and operations per byte."""

from __future__ import annotations

from fractions import Fraction

from symcomm.accounting import Accounting
from symcomm.derivation import Derivation, Reason, Relations, Step, exact
from symcomm.errors import ValuesError
from symcomm.form import Num, Product, Ratio, Sym
from symcomm.hardware.devices import Device, PeakRate, device
from symcomm.notation import Notation
from symcomm.units import Quantity, Unit

_FACTOR = {"fma2": 2, "mac": 1}
_UNITS = {
    "SM": "multiprocessor",
    "CU": "compute unit",
    "MXU": "matrix unit",
    "core": "core",
}


def peak_rate(
    clock: object = None,
    units: object = None,
    fma: object = None,
    device: str | Device | None = None,
    dtype: str | None = None,
    accounting: Accounting | None = None,
    notation: Notation | None = None,
    relations: Relations | None = None,
) -> Derivation:
    """Clock x multiprocessors x multiply-adds per clock and multiprocessor x operations per multiply-add.

    Values may be left out; the answer is then symbolic in ``f``, ``n_SM`` and ``n_FMA``. With a ``device`` and a
    ``dtype`` the values are those of the device, and the result is compared with its data sheet.
    """
    accounting = accounting or Accounting()
    rate: PeakRate | None = None
    unit, source = "SM", ""
    notes: tuple[str, ...] = ()
    if device is not None:
        rate, unit, source, notes = _of_device(device, dtype, (clock, units, fma))
        if rate.parts is not None:
            clock, units, fma = rate.parts.clock, rate.parts.units, rate.parts.fma
    elif dtype is not None:
        raise ValuesError("a number format needs a device", hint="give device: and dtype:, or clock, units and fma")
    if accounting.flops not in _FACTOR:
        raise ValuesError(f"a peak rate is not counted under flops: {accounting.flops}", hint="use fma2 or mac")
    factor = _FACTOR[accounting.flops]
    counted = rate.unit if rate else Unit.parse("FLOP/second")
    title = f"Peak rate of {source} in {rate.dtype.upper().replace('_', ' ')}" if rate else "Peak rate"
    if rate is not None and rate.parts is None:
        assert rate.dense is not None
        assert rate.published is not None
        worth = Num(rate.dense.value * factor / 2, counted)
        text = f"{rate.published.source}: {rate.published.text}"
        text += " with sparsity, which counts twice the operations of a dense product." if rate.sparse else "."
        text += " Only one operation is counted for each multiply-add." if factor == 1 else ""
        return Derivation(
            title, accounting, (Step("R", worth, counted, Reason("data sheet", text)),), ("flops",),
            relations or Relations(), (), (), notation or Notation(),
        )  # fmt: skip
    # A count of compute units cancels against the multiply-adds of each, whatever it is called.
    name = f"n_{unit}"
    rows = (
        ("f", clock, "cycle/second", "the clock rate"),
        (name, units, "SM", f"the number of {_UNITS[unit]}s"),
        ("n_FMA", fma, "FMA/(cycle*SM)", f"multiply-adds in one cycle of one {_UNITS[unit]}"),
    )
    given: list[tuple[str, Fraction]] = []
    for symbol, value, wanted, meaning in rows:
        if value is None:
            continue
        if isinstance(value, str):
            quantity = Quantity.parse(value)
            bare = not quantity.unit.powers
            if not bare and quantity.unit != Unit.parse(wanted):
                raise ValuesError(f"{symbol} is given in {quantity.unit}, but {meaning} is in {Unit.parse(wanted)}")
        number = exact(value, symbol)
        if number <= 0:
            raise ValuesError(f"{symbol} = {number}: {meaning} must be positive")
        given.append((symbol, number))
    per = Num(Fraction(factor), Unit.parse("operation/FMA" if counted != Unit.parse("FLOP/second") else "FLOP/FMA"))
    form = Product((*(Sym(s, whole=False, unit=Unit.parse(wanted)) for s, _, wanted, _ in rows), per))
    text = f"Every {_UNITS[unit]} starts its multiply-adds in every cycle"
    text += "; a multiply-add is two operations." if factor == 2 else "."
    step = Step("R", form, counted, Reason("peak rate", text))
    meanings = {s: meaning.removeprefix("the ") for s, _, _, meaning in rows} if rate else {}
    written = notation or Notation()
    written = Notation(written.latex, {**meanings, **written.meanings})
    return Derivation(
        title, accounting, (step,), ("flops",), relations or Relations(), (), tuple(given), written, tuple(notes)
    )


def _of_device(
    name: str | Device, dtype: str | None, parts: tuple[object, ...]
) -> tuple[PeakRate, str, str, tuple[str, ...]]:
    """The rate of a device, what its units are called, its name, and how the data sheet agrees."""
    if any(part is not None for part in parts):
        raise ValuesError("a device brings its clock, units and fma", hint="leave them out, or leave out the device")
    found = device(name)
    if dtype is None:
        raise ValuesError(f"a peak rate of {found.name} needs a number format", hint=f"dtype: {', '.join(found.rates)}")
    rate = found.rate(dtype)
    notes: list[str] = []
    if rate.derived is not None and rate.dense is not None and rate.published is not None:
        near = "agrees with" if rate.agrees else "differs from"
        rounding = f", rounded to {_said(rate.rounded_to, rate.unit)}" if rate.rounded_to else ""
        notes.append(
            f"The derived rate {near} the published {rate.published.text}{rounding} ({rate.published.source})."
        )
    return rate, rate.parts.unit if rate.parts else "SM", found.name, tuple(notes)


def _said(value: Fraction, unit: Unit) -> str:
    return Quantity(value, unit).lines()[-1][1]


def balance(
    name: str | Device, dtype: str, accounting: Accounting | None = None, notation: Notation | None = None
) -> Derivation:
    """The operations a device does in the time it moves one byte of its memory: the ridge of its roofline.

    >>> balance("A100-80GB-SXM", "fp16").at().value
    Fraction(7796736, 50975)
    """
    found = device(name)
    rate = peak_rate(device=found, dtype=dtype, accounting=accounting, notation=notation)
    bandwidth = found.memory.bandwidth
    per_second = Unit.parse("byte/second")
    memory = Sym("W", whole=False, unit=per_second)
    unit = rate.unit / per_second
    reason = Reason("balance", "Below this many operations per byte the memory limits, above it the processor.")
    step = Step("I", Ratio(Sym("R"), memory), unit, reason)
    told = f"W is the bandwidth of the memory, {bandwidth.text} ({bandwidth.source})."
    written = Notation(rate.notation.latex, {"W": "bandwidth of the memory", **rate.notation.meanings})
    return Derivation(
        f"Operations per byte of {found.name} in {dtype.upper()}", rate.accounting, (*rate.steps, step), rate.touched,
        rate.relations, (), (*rate.given, ("W", bandwidth.quantity.value)), written, (*rate.notes, told),
    )  # fmt: skip
