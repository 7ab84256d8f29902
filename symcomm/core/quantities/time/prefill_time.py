"""The time of a prefill: what a reader waits for before the first token."""

from __future__ import annotations

from typing import Annotated, Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import step_of
from symcomm.core.quantities.options import Dtype, LinkedRates, StrategyOption, Whole
from symcomm.core.quantities.time.decode_time import forward
from symcomm.core.records import replace
from symcomm.core.setting import Setting


def derive(
    setting: Setting,
    strategy: StrategyOption | None = None,
    prompt: Annotated[Whole | None, Meaning("the tokens of the prompt; all positions of the model unless told")] = None,
    past: Annotated[Whole | None, Meaning("the tokens before them, where the prompt is read in chunks")] = None,
    dtype: Dtype | None = None,
    **rates: Unpack[LinkedRates],
) -> Derivation:
    """The time of a prefill: the time to the first token, without waiting in a queue.

    The forward pass over the prompt of each sequence, on one rank of a strategy. How computing, memory and network
    combine, the accounting says (``time``); what moves, ``traffic``. Under a pipeline it is the time until the last of
    its groups of sequences (``microbatches``) has crossed all stages.

    Source: Pope et al., arXiv 2211.05102, section 2.
    """
    made = forward(step_of(setting, "prefill", prompt, past), strategy, dtype, rates)
    note = "Waiting in a queue is not counted."
    return replace(made, title="Time of a prefill", notes=(*made.notes, note))
