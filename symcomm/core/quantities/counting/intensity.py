"""Arithmetic intensity: operations per byte that must move."""

from __future__ import annotations

from functools import partial

from symcomm.core.derivation import Derivation
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Ratio, Total, total
from symcomm.core.graph.graph import Region
from symcomm.core.quantities.counting import flops, traffic
from symcomm.core.quantities.options import Dtype, OpName
from symcomm.core.setting import Setting, StepWriter, times
from symcomm.core.units import FLOP, Unit


def derive(setting: Setting, op: OpName | None = None, dtype: Dtype | None = None) -> Derivation:
    """The arithmetic intensity: operations per byte moved.

    Operations over bytes, of one row or of all counted ops of the forward pass.

    Source: Williams, Waterman and Patterson, Roofline, 2009.
    """
    setting = setting.in_format(dtype)
    work = StepWriter(setting)
    chosen = setting.rows(op)
    terms: list[Form] = []
    ran = [(region if len(chosen.regions) > 1 else Region(region.name), o) for region in chosen.regions or (
        Region(setting.graph.name),) for o, _ in flops.counted(setting, setting.graph, chosen.ops)
        if o.region == region.name]  # fmt: skip
    by_loops = partial(flops.looped, setting.accounting, setting.graph, ran)
    for region in chosen.regions or (Region(setting.graph.name),):
        mine = [o for o in chosen.ops if o.region == region.name]
        names = flops.row_totals(work, setting.graph, flops.counted(setting, setting.graph, mine), "")
        if names:
            count = total(*names)
            terms.append(times(region, count) if len(chosen.regions) > 1 else count)
    if not terms:
        raise ValuesError(f"{op or setting.graph.name} has no op that is counted", hint="use operations: all_ops")
    count = terms[0]
    if len(terms) > 1 or isinstance(count, Total):
        text = "All parts of the model together." if len(terms) > 1 else "The forward pass of one layer."
        whole = Total(tuple(terms)) if len(terms) > 1 else count
        count = work.define("F", whole, FLOP, "add the parts" if len(terms) > 1 else "add the rows", text,
                            witness=by_loops)  # fmt: skip
    moved = traffic.write_down(work, op)
    work.combine("I", Ratio(count, moved), Unit.parse("FLOP/byte"), "definition",
                 "Operations for each byte that is moved.")  # fmt: skip
    title = "Arithmetic intensity" + (f" of {op}" if op else "")
    return setting.derivation(title, work.steps)
