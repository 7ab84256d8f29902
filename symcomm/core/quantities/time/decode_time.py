"""The time of a decode step: what a reader waits for between two tokens."""

from __future__ import annotations

from typing import Annotated, Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import step_of
from symcomm.core.quantities.options import Dtype, LinkedRates, StrategyOption, Whole
from symcomm.core.quantities.time import time
from symcomm.core.records import replace
from symcomm.core.setting import Setting

Past = Annotated[Whole, Meaning("the tokens of each sequence before the step; c unless told")]


def derive(
    setting: Setting,
    strategy: StrategyOption | None = None,
    past: Past | None = None,
    new: Annotated[Whole | None, Meaning("the new positions of a sequence; more than 1 verify drafts")] = None,
    dtype: Dtype | None = None,
    **rates: Unpack[LinkedRates],
) -> Derivation:
    """The time of a decode step: the time per output token.

    The forward pass over the new position of each sequence behind the cached ones, on one rank of a strategy. How
    computing, memory and network combine, the accounting says (``time``); what moves, ``traffic``.

    Source: Pope et al., arXiv 2211.05102, section 2.
    """
    made = time.derive(step_of(setting, "decode", new, past), strategy, "forward", dtype=dtype, **rates)
    return replace(made, title="Time of a decode step")
