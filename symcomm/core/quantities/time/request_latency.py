"""The time of a request: its first token, and the steps that make the others."""

from __future__ import annotations

from typing import Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.form import Total, num
from symcomm.core.optimum.cost import closed
from symcomm.core.parallel.strategy import degree
from symcomm.core.quantities.counting.generation_flops import Generated, Prompt
from symcomm.core.quantities.generating import pieces, up_to
from symcomm.core.quantities.options import Dtype, LinkedRates, StrategyOption
from symcomm.core.quantities.time import decode_time, prefill_time
from symcomm.core.quantities.time.terms import SECOND
from symcomm.core.quantities.witnesses import together
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter


def derive(
    setting: Setting,
    prompt: Prompt,
    tokens: Generated,
    strategy: StrategyOption | None = None,
    dtype: Dtype | None = None,
    **rates: Unpack[LinkedRates],
) -> Derivation:
    """The time from a prompt to its last token: a prefill, and a decode step for each token behind the first one.

    The context grows by one from step to step; where what limits a step changes (computing or memory), or a window is
    full, the sum falls into parts. Waiting in a queue is not counted.

    Raises ``ValuesError`` where numbers are missing that decide what limits a step.
    """
    setting = up_to(setting, degree(prompt), degree(tokens), num(-1))
    first = prefill_time.derive(setting, strategy, prompt, None, dtype, **rates)
    step = decode_time.derive(setting, strategy, None, None, dtype, **rates)
    work = StepWriter(setting, degree(prompt), degree(tokens))
    parts = [work.define("t_prefill", closed(first), SECOND, "prefill", "The prompt, and the first token.",
                         witness=first.again, by=first.touched)]  # fmt: skip
    steps, check = pieces(setting, step, prompt, tokens, "t_decode")
    for name, form, witness in steps:
        text = "Decode steps, whose time grows linearly: that at the mean context, as often."
        parts.append(work.define(name, form, SECOND, "add the steps", text, witness=witness, by=step.touched))
    work.define("t", Total(tuple(parts)), SECOND, "add", "The whole request.", witness=together(parts))
    made = setting.derivation("Time of a request", work.steps, notes=[*dict.fromkeys((*first.notes, *step.notes))])
    given = {**dict(made.given), **dict(first.given), **dict(step.given)}
    checks = (*first.checks, *step.checks, *((check,) if check is not None else ()))
    return replace(made, given=tuple(given.items()), named=made.named | first.named | step.named,
                   where=(*first.where, *step.where), checks=(*made.checks, *checks))  # fmt: skip
