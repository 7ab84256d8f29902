"""The time of a decode step: what a reader waits for between two tokens."""

from __future__ import annotations

from typing import Annotated, Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.form import Form, num
from symcomm.core.parallel.strategy import Strategy, parse_strategy
from symcomm.core.program.pipeline import stage_count
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import step_of
from symcomm.core.quantities.options import Dtype, LinkedRates, StrategyOption, Whole
from symcomm.core.quantities.time import step_time, time
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
    computing, memory and network combine, the accounting says (``time``); what moves, ``traffic``. Under a pipeline the
    batch is cut into groups (``microbatches``) that follow one another through the stages; it is the time between two
    tokens of a sequence.

    Source: Pope et al., arXiv 2211.05102, section 2.
    """
    made = forward(step_of(setting, "decode", new, past), strategy, dtype, rates)
    return replace(made, title="Time of a decode step")


def forward(
    setting: Setting, strategy: Strategy | str | None, dtype: str | None, rates: LinkedRates
) -> Derivation:  # fmt: skip
    """The time of a forward pass: on one rank, or through the stages of a pipeline."""
    if staged(setting, strategy) is not None:
        return step_time.derive(setting, strategy, dtype=dtype, **rates)
    return time.derive(setting, strategy, "forward", dtype=dtype, **rates)


def staged(setting: Setting, strategy: Strategy | str | None) -> Form | None:
    """The number of stages that a strategy cuts the layers into; None where there is only one."""
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if placed is None or placed.pipeline is None:
        return None
    stages = stage_count(placed.pipeline, setting.graph)
    return None if stages == num(1) else stages
