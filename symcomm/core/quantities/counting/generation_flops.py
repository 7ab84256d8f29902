"""The operations of a request: a prefill and the decode steps behind it, added up in closed form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Any

from symcomm.core.derivation import Derivation
from symcomm.core.form import Form, Total, num
from symcomm.core.parallel.strategy import degree
from symcomm.core.quantities.counting import flops
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import chunked, last_chunk, pieces, step_of, up_to
from symcomm.core.quantities.options import Whole
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import FLOP

Prompt = Annotated[Whole, Meaning("the tokens of the prompt")]
Chunk = Annotated[Whole, Meaning("the tokens of a chunk, if the prompt is read in chunks")]
Generated = Annotated[Whole, Meaning("the tokens that are generated; the first one comes from the prefill")]


def derive(setting: Setting, prompt: Prompt, tokens: Generated, chunk: Chunk | None = None) -> Derivation:
    """The floating-point operations of a prompt and the tokens that are generated behind it.

    A prefill, which makes the first token, and a decode step for each further one, whose context grows by one. What
    grows linearly with the context is added up as its mean times the number of steps; a window ends the growth. Of a
    prompt in chunks only the last one has logits, and with ``attention: full`` a chunk attends to all keys up to
    its end that are in the cache; behind a window these are the last ones.

    Raises ``ValuesError`` where unknown numbers decide whether a window is reached.
    """
    setting = up_to(setting, degree(prompt), degree(tokens), num(-1))
    before, last = last_chunk(prompt, chunk) if chunk is not None else (0, prompt)
    at = before * int(chunk or 0)
    first = flops.derive(step_of(setting, "prefill", last, at or None), "forward")
    step = flops.derive(step_of(setting, "decode"), "forward")
    work = StepWriter(setting, degree(prompt), degree(tokens))
    checks: list[Callable[[Mapping[str, Fraction]], None]] = []
    parts: list[Form] = []

    def add_up(of: Derivation, text: str, *asked: Any) -> None:
        found, check = pieces(setting, of, *asked)
        for name, form, witness in found:
            parts.append(work.define(name, form, FLOP, "add the steps", text, witness=witness, by=of.touched))
        checks.extend([check] if check is not None else [])

    if before:
        early, past = chunked(setting, chunk or 1)
        text = "Chunks before the last one, whose operations grow linearly: those at the mean context, as often."
        add_up(flops.derive(early, "forward"), text, 0, before + 1, "F_chunks", past, int(chunk or 1))
    text = "The last chunk of the prompt, and the first token." if before else "The prompt, and the first token."
    parts.append(work.take("F_prefill", first, "prefill", text))
    if str(tokens) != "1":
        text = "Decode steps, whose operations grow linearly: those at the mean context, as often."
        add_up(step, text, prompt, tokens, "F_decode")
    work.combine("F", Total(tuple(parts)), FLOP, "add", "The whole request.")
    made = setting.derivation("FLOPs of a request", work.steps, notes=[*dict.fromkeys((*first.notes, *step.notes))])
    return replace(made, checks=(*made.checks, *checks))
