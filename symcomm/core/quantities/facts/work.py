"""The operations that one rank does in a pass, and the bytes that it moves."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.errors import ValuesError
from symcomm.core.form import num
from symcomm.core.quantities.counting.flops import counts
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Dtype, Frozen, OpName, Phase, Rates, StrategyOption
from symcomm.core.quantities.time import time
from symcomm.core.quantities.time.terms import SECOND
from symcomm.core.setting import Setting

EXTENT = "{layer} rank microbatch"
_OF = {"operations": "flops", "bytes": "moved", "computing": "compute", "memory": "memory"}


def derive(
    setting: Setting,
    of: Annotated[Literal["operations", "bytes", "computing", "memory"], Meaning("an amount, or its time")],
    strategy: StrategyOption | None = None,
    phase: Phase = "forward",
    op: OpName | None = None,
    dtype: Dtype | None = None,
    frozen: Frozen | None = None,
    **rates: Unpack[Rates],
) -> Derivation:
    """The operations of a rank in a pass or the bytes that it moves, or the time that these take."""
    setting, amounts = setting.freeze(frozen), of in ("operations", "bytes")
    only = ("compute" if of in ("operations", "computing") else "memory",)
    setting, work, writer, terms, shown = time.write(setting, strategy, phase, op, dtype, None, rates, amounts, only)
    found = getattr(terms, _OF[of])
    if found is None and (amounts or not writer.load.ops):
        raise ValuesError(f"{op or setting.graph.name} has no op that is counted", hint="use operations: all_ops")
    if found is None:
        found = work.combine("t_none", num(0, SECOND), SECOND, "nothing", "No op is counted.")
    for one in setting.rows(op).ops:
        counts(setting, setting.graph, one)  # reads the convention that leaves an op out
    steps = time.ending(work, found)
    return time.with_rates(setting.derivation(f"{of.capitalize()} of a rank", steps, exhibits=shown), writer)
