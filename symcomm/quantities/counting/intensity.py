"""Arithmetic intensity: operations per byte that must move."""

from __future__ import annotations

from symcomm.derivation import Derivation
from symcomm.errors import ValuesError
from symcomm.form import Ratio, Total
from symcomm.quantities.counting import flops, traffic
from symcomm.quantities.options import Dtype, OpName
from symcomm.quantities.setting import Setting, Work
from symcomm.units import FLOP, Unit


def derive(setting: Setting, op: OpName | None = None, dtype: Dtype | None = None) -> Derivation:
    """The arithmetic intensity: operations per byte moved.

    Operations over bytes, of one row or of all counted ops of the forward pass.

    Source: Williams, Waterman and Patterson, Roofline, 2009.
    """
    work = Work(setting)
    names = flops.row_totals(work, setting.graph, setting.rows(op).ops, "")
    if not names:
        raise ValuesError(f"{op or setting.graph.name} has no op that is counted", hint="use operations: all_ops")
    count = names[0]
    if len(names) > 1:
        count = work.define("F", Total(tuple(names)), FLOP, "add the rows", "The forward pass of one layer.")
    moved = traffic.write_down(work, op, dtype)
    work.define(
        "I", Ratio(count, moved), Unit.parse("FLOP/byte"), "definition", "Operations for each byte that is moved."
    )
    title = "Arithmetic intensity" + (f" of {op}" if op else "")
    fields = flops.touched(setting, setting.graph, setting.rows(op).ops)
    return setting.derivation(title, work.steps, (*fields, "traffic"))
