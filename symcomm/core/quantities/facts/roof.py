"""The rate that a device sustains: of its computing units, or of its memory."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.facts.peak import rate
from symcomm.core.quantities.options import Dtype, NoModel, Roofs, StrategyOption, Utilisation

EXTENT = "rank"


def derive(
    setting: NoModel,
    of: Annotated[Literal["peak", "memory"], Meaning("the rate of operations, or of bytes")],
    strategy: StrategyOption | None = None,
    dtype: Dtype | None = None,
    utilisation: Utilisation | None = None,
    **rates: Unpack[Roofs],
) -> Derivation:
    """The rate that a device sustains: the peak rate or the bandwidth of its memory, times the utilisation."""
    return rate(setting, of, strategy, dtype, {**rates, "utilisation": utilisation}, sustained=True)
