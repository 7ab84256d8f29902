"""The time of a request: its first token, and the steps that make the others."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Unpack

from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.form import Form, Num, Total, evaluate, num, substitute
from symcomm.core.optimum.cost import closed
from symcomm.core.parallel.strategy import degree
from symcomm.core.quantities.counting.generation_flops import Generated, Prompt
from symcomm.core.quantities.generating import pieces, up_to
from symcomm.core.quantities.options import Dtype, LinkedRates, StrategyOption
from symcomm.core.quantities.time import decode_time, prefill_time
from symcomm.core.quantities.time.terms import SECOND
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
    size, put = degree(prompt), dict[str, Form]()
    if isinstance(size, Num):  # one derivation for prompts of every length
        put = {next(n for n in ("S", "S'", "S''") if n not in setting.symbols): size}
    first = prefill_time.derive(setting, strategy, next(iter(put), prompt), None, dtype, **rates)
    step = decode_time.derive(setting, strategy, None, None, dtype, **rates)
    known = {name: evaluate(number, {}) for name, number in put.items()}
    work = StepWriter(setting, size, degree(tokens))
    form = substitute(closed(first), lambda one: put.get(one.name, one))

    def again(numbers: Numbers) -> Fraction:
        for name, length in known.items():
            numbers = numbers.moved(name, length)
        return first.again(numbers)

    def checked(numbers: Mapping[str, Fraction]) -> None:
        for one in first.checks:
            one({**numbers, **known})

    checked(setting.values)
    parts = [work.define("t_prefill", form, SECOND, "prefill", "The prompt, and the first token.", witness=again,
                         by=first.touched)]  # fmt: skip
    steps, check = pieces(setting, step, prompt, tokens, "t_decode")
    for name, form, witness in steps:
        text = "Decode steps, whose time grows linearly: that at the mean context, as often."
        parts.append(work.define(name, form, SECOND, "add the steps", text, witness=witness, by=step.touched))
    work.combine("t", Total(tuple(parts)), SECOND, "add", "The whole request.")
    made = setting.derivation("Time of a request", work.steps, notes=[*dict.fromkeys((*first.notes, *step.notes))])
    given = {**dict(made.given), **dict(first.given), **dict(step.given)}
    checks = (checked, *step.checks, *((check,) if check is not None else ()))
    return replace(made, given=tuple(given.items()), named=made.named | first.named | step.named,
                   where=(*first.where, *step.where), checks=(*made.checks, *checks))  # fmt: skip
