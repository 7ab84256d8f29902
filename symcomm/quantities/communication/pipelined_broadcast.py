"""A broadcast along a chain of links, cut into chunks that follow one another.

Source: the chain (pipelined) broadcast under the alpha-beta model, Chan et al., Collective communication, 2007.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from symcomm.derivation import Derivation
from symcomm.form import Ratio, Sym, Total, num, product, total
from symcomm.optimum.minimum import minimise
from symcomm.optimum.writing import SECOND, Name, continued, known, made, step
from symcomm.quantities.declared import Meaning
from symcomm.quantities.options import NoModel
from symcomm.units import ONE

ROWS = (
    Name("c", "", "number of chunks", True),
    Name("h", "", "number of links (hops) of the chain", True),
    Name("a", "second", "latency of one message"),
    Name("S", "byte", "bytes to be broadcast"),
    Name("B", "byte/second", "bandwidth of one link in one direction"),
)
C, H, A, S, B = (row.sym for row in ROWS)


def derive(
    setting: NoModel,
    want: Annotated[Literal["time", "chunks", "whole_chunks", "least"], Meaning("what is asked for")] = "time",
) -> Derivation:
    """The time of a broadcast along a chain in chunks, and the best number of chunks.

    The ``time`` of the broadcast, the best number of ``chunks`` (real or whole), or the ``least`` time.
    Numbers are given for ``c``, ``h``, ``a``, ``S`` and ``B``.
    """
    steps = [
        step("n_slot", Total((C, H, num(-1))), ONE, "schedule",
             "The first chunk passes `h` links, and one more chunk arrives in each slot after that."),
        step("tau", total(Ratio(S, product(C, B)), A), SECOND, "one message", "A chunk's transfer and its latency."),
        step("T", product(Sym("n_slot"), Sym("tau")), SECOND, "add up", "All slots take equally long."),
    ]  # fmt: skip
    cost = made(setting, ROWS, "Pipelined broadcast", steps)
    if want == "time":
        return cost
    cost = replace(cost, given=tuple(known(setting, ROWS, ("c",)).items()))  # type: ignore[arg-type]
    if want == "least":
        return continued(cost, minimise(cost, "c", integer=False, wanted="value"))
    return continued(cost, minimise(cost, "c", integer=want == "whole_chunks"))
