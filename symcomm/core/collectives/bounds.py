"""Lower bounds that no algorithm beats where a rank sends to one rank and receives from one at a time.

In each round at most twice as many ranks can know a datum, or have contributed to one; every byte that a rank lacks it
must receive, and the sum of k tensors takes k - 1 additions that at best are shared by all ranks.

Source: Chan, Heimlich, Purkayastha and van de Geijn, Collective communication: theory, practice, and experience, 2007,
table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from symcomm.core.collectives.cost import ONE, TWO, ZERO, log_up, minus, times
from symcomm.core.form import Form, Power, Ratio, Smallest
from symcomm.core.records import dataclass

SOURCE = "Chan, Heimlich, Purkayastha and van de Geijn, Collective communication, 2007, table 1"


@dataclass(frozen=True)
class LowerBound:
    """The least rounds, bytes and additions of one collective.

    ``share`` is the least part of the payload that one rank moves in one direction: it is also the factor between the
    algorithm bandwidth and the bus bandwidth.
    """

    kind: str
    rounds: Callable[[Form], Form]
    share: Callable[[Form], Form]
    reduces: bool = False
    source: str = SOURCE

    def path(self, n: Form, k: Form) -> Form:
        """The least bytes that follow one another."""
        return times(self.share(k), n)

    def reduced(self, n: Form, k: Form) -> Form:
        """The least bytes that one rank adds."""
        return times(minus(k, 1), Ratio(ONE, k), n) if self.reduces else ZERO


def _all_but_own(k: Form) -> Form:
    return Ratio(minus(k, 1), k)


def _whole(k: Form) -> Form:
    return ONE


BOUNDS: Mapping[str, LowerBound] = {
    b.kind: b
    for b in (
        LowerBound("all-reduce", log_up, lambda k: times(TWO, _all_but_own(k)), True),
        LowerBound("reduce-scatter", log_up, _all_but_own, True),
        LowerBound("all-gather", log_up, _all_but_own),
        LowerBound("broadcast", log_up, _whole),
        LowerBound("reduce", log_up, _whole, True),
        LowerBound("scatter", log_up, _all_but_own),
        LowerBound("gather", log_up, _all_but_own),
        # Each rank holds 1/k of the tensor and needs 1/k of what each other rank holds.
        LowerBound("all-to-all", log_up, lambda k: times(minus(k, 1), Ratio(ONE, Power(k, TWO)))),
        LowerBound("ring-pass", log_up, _all_but_own),
        LowerBound("ring-sum", log_up, _all_but_own, True),
        LowerBound("ring-sum-home", log_up, _whole, True),
        LowerBound("halo-exchange", lambda k: ONE, lambda k: Smallest((Ratio(minus(k, 1), TWO), ONE))),
        LowerBound("halo-shift", lambda k: ONE, _whole),
        LowerBound("send", lambda k: ONE, _whole),
    )
}
