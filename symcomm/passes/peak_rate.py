"""The peak rate of a processor: its clock, its multiprocessors and the multiply-adds each does per cycle."""

from __future__ import annotations

from fractions import Fraction

from symcomm.derivation import Derivation, Reason, Step, exact
from symcomm.errors import ValuesError
from symcomm.form import Num, Product, Sym
from symcomm.passes.setting import Setting
from symcomm.units import Quantity, Unit

_FACTOR = {"fma2": 2, "mac": 1}


def derive(
    setting: Setting, clock: object = None, units: object = None, fma: object = None
) -> Derivation:  # fmt: skip
    """Clock x multiprocessors x multiply-adds per clock and multiprocessor x operations per multiply-add.

    Values may be left out; the answer is then symbolic in ``f``, ``n_SM`` and ``n_FMA``.
    """
    rows = (
        ("f", clock, "cycle/second", "the clock rate"),
        ("n_SM", units, "SM", "the number of multiprocessors"),
        ("n_FMA", fma, "FMA/(cycle*SM)", "multiply-adds in one cycle of one multiprocessor"),
    )
    accounting = setting.accounting
    if accounting.flops not in _FACTOR:
        raise ValuesError(f"a peak rate is not counted under flops: {accounting.flops}", hint="use fma2 or mac")
    given: list[tuple[str, Fraction]] = []
    for name, value, unit, meaning in rows:
        if value is None:
            continue
        if isinstance(value, str):
            quantity = Quantity.parse(value)
            bare = not quantity.unit.powers
            if not bare and quantity.unit != Unit.parse(unit):
                raise ValuesError(f"{name} is given in {quantity.unit}, but {meaning} is in {Unit.parse(unit)}")
        number = exact(value, name)
        if number <= 0:
            raise ValuesError(f"{name} = {number}: {meaning} must be positive")
        given.append((name, number))
    per = Num(Fraction(_FACTOR[accounting.flops]), Unit.parse("FLOP/FMA"))
    form = Product((*(Sym(name, whole=False, unit=Unit.parse(unit)) for name, _, unit, _ in rows), per))
    text = "Every multiprocessor starts its multiply-adds in every cycle"
    text += "; a multiply-add is two operations." if accounting.flops == "fma2" else "."
    step = Step("R", form, Unit.parse("FLOP/second"), Reason("peak rate", text))
    return Derivation(
        "Peak rate", accounting, (step,), ("flops",), setting.graph.relations, (), tuple(given), setting.notation
    )
