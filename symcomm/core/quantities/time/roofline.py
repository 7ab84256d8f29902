"""The roofline: the rate that an op can reach on a machine, and whether computing or memory limits it."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Unpack

from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Ratio, Smallest, Sym, evaluate, from_expr, names, num, product
from symcomm.core.libraries import Expr
from symcomm.core.quantities.counting.load import Load
from symcomm.core.quantities.machine import RATES
from symcomm.core.quantities.options import Dtype, Frozen, OpName, Phase, Rates, StrategyOption
from symcomm.core.quantities.time import time
from symcomm.core.quantities.time.terms import TimeWriter
from symcomm.core.quantities.witnesses import number
from symcomm.core.setting import Setting
from symcomm.core.units import Unit

INTENSITY = Unit.parse("FLOP/byte")


def derive(
    setting: Setting,
    op: OpName | None = None,
    phase: Phase = "forward",
    strategy: StrategyOption | None = None,
    dtype: Dtype | None = None,
    frozen: Frozen | None = None,
    **rates: Unpack[Rates],
) -> Derivation:
    """The rate an op can reach on a machine, and what limits it.

    The attainable rate of one row, or of all counted ops of a pass: the smaller of two roofs.

    Below the ops:byte ratio of the machine the memory limits, above it the computing units.

    Source: Williams, Waterman and Patterson, Roofline, 2009.
    """
    setting = setting.freeze(frozen)
    setting, work, writer, terms, shown = time.write(setting, strategy, phase, op, dtype, None, rates, True)
    if terms.flops is None or terms.moved is None:
        raise ValuesError(f"{op or setting.graph.name} has no op that is counted", hint="use operations: all_ops")
    machine = writer.machine
    work.steps = time.ending(work, terms.flops, terms.moved)
    work.known = {name: worth for name, worth in work.known.items() if any(s.name == name for s in work.steps)}
    writer.forget_rate()
    rate = writer.rate()
    intensity = work.define(
        "I",
        Ratio(terms.flops, terms.moved),
        INTENSITY,
        "intensity",
        "Operations for each byte that is moved.",
        witness=partial(_met, writer, writer.load, None),
    )
    balance = work.combine("I_machine", Ratio(rate, machine.memory), INTENSITY, "ops:byte ratio",
                           "The memory limits below this intensity, the computing units above it.")  # fmt: skip
    roofs = (machine.sustained(rate), product(intensity, machine.sustained(machine.memory)))
    work.define(
        "P",
        Smallest(roofs),
        RATES["peak"].unit,
        "the lower roof",
        "No more than the peak rate, and no more than the bytes that arrive allow.",
        witness=partial(_met, writer, writer.load, rate),
    )
    note = limits(work.known, intensity, balance, {**setting.values, **dict(machine.given)})
    notes = (note,) if note else ()
    return time.with_rates(
        setting.derivation(f"Roofline{f' of {op}' if op else ''}", work.steps, exhibits=shown, notes=notes), writer
    )


def _met(writer: TimeWriter, load: Load, rate: Form | None, numbers: Numbers) -> Fraction:
    """The operations of a load over its bytes; or at a ``rate`` over the time of what takes longer."""
    machine, one = writer.machine, num(1)
    done = writer.computes(load, one, numbers)
    moving = writer.moves(load, numbers)
    if rate is None:
        return done / (moving * number(machine.sustained(machine.memory), numbers))
    return done / max(done / number(machine.sustained(rate), numbers), moving)


def limits(known: Mapping[str, Expr], intensity: Form, balance: Form, values: Mapping[str, Fraction]) -> str:
    """One sentence that says what limits, where all numbers are known; else nothing."""
    assert isinstance(intensity, Sym)
    assert isinstance(balance, Sym)
    pair = [from_expr(known[s.name]) for s in (intensity, balance)]
    if not all(name in values for form in pair for name in names(form)):
        return ""
    mine, ridge = (evaluate(form, values) for form in pair)
    said = f"{float(mine):.5g} operations for each byte, and the machine does {float(ridge):.5g} while a byte arrives"
    return f"{said}: {'computing' if mine >= ridge else 'the memory'} limits."
