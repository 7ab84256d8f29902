"""The rate that a device sustains: of its computing units, or of its memory."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.facts.peak import rate
from symcomm.core.quantities.options import Dtype, NoModel, Roofs, StrategyOption, Utilisation

EXTENT = "rank"


class SustainedRoofs(Roofs, total=False):
    """The rates of one device, and the part of them that it sustains."""

    utilisation: Utilisation


def derive(
    setting: NoModel,
    of: Annotated[Literal["peak", "memory"], Meaning("the rate of operations, or of bytes")],
    strategy: StrategyOption | None = None,
    dtype: Dtype | None = None,
    **rates: Unpack[SustainedRoofs],
) -> Derivation:
    """The rate that a device sustains: the peak rate or the bandwidth of its memory, times the utilisation."""
    return rate(setting, of, strategy, dtype, rates, sustained=True)
