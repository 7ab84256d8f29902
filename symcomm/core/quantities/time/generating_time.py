"""The times of generating text: of a prefill, of a decode step, of a request."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Annotated, Unpack

from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.form import Form, Num, Total, evaluate, num, substitute
from symcomm.core.optimum.cost import closed
from symcomm.core.parallel.strategy import Strategy, degree, parse_strategy
from symcomm.core.program.pipeline import stage_count
from symcomm.core.quantities.counting.generation_flops import Generated, Prompt
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import pieces, step_of, up_to
from symcomm.core.quantities.memory.caches import too_large
from symcomm.core.quantities.options import Dtype, LinkedRates, StrategyOption, Whole
from symcomm.core.quantities.time import step_time, time
from symcomm.core.quantities.time.terms import SECOND
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter

Past = Annotated[Whole, Meaning("the tokens of each sequence before the step; c unless told")]


def derive_decode_time(
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


def derive_prefill_time(
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


def derive_request_latency(
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
    first = derive_prefill_time(setting, strategy, next(iter(put), prompt), None, dtype, **rates)
    step = derive_decode_time(setting, strategy, None, None, dtype, **rates)
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
    prefill = step_of(setting, "prefill")
    fit = partial(too_large, prefill, strategy, dtype, rates.get("device"))
    sooner, full = fit(size), fit(Total((size, degree(tokens), num(-1))))
    notes = [note for note in dict.fromkeys((*first.notes, *step.notes)) if note not in sooner]
    made = setting.derivation("Time of a request", work.steps, notes=[*notes, *full])
    given = {**dict(made.given), **dict(first.given), **dict(step.given)}
    checks = (checked, *step.checks, *((check,) if check is not None else ()))
    return replace(made, given=tuple(given.items()), named=made.named | first.named | step.named,
                   where=(*first.where, *step.where), checks=(*made.checks, *checks))  # fmt: skip
