"""The operations of a request: a prefill and the decode steps behind it, added up in closed form."""

from __future__ import annotations

from typing import Annotated

from symcomm.core.derivation import Derivation
from symcomm.core.form import Total
from symcomm.core.parallel.strategy import degree
from symcomm.core.quantities.counting import flops
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import pieces, step_of
from symcomm.core.quantities.options import Whole
from symcomm.core.quantities.witnesses import together
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import FLOP

Prompt = Annotated[Whole, Meaning("the tokens of the prompt")]
Generated = Annotated[Whole, Meaning("the tokens that are generated; the first one comes from the prefill")]


def derive(setting: Setting, prompt: Prompt, tokens: Generated) -> Derivation:
    """The floating-point operations of a prompt and the tokens that are generated behind it.

    A prefill, which makes the first token, and a decode step for each further one, whose context grows by one. What
    grows linearly with the context is added up as its mean times the number of steps; a window ends the growth.

    Raises ``ValuesError`` where it hangs on numbers that are not known whether a window is reached.
    """
    first = flops.derive(step_of(setting, "prefill", prompt), "forward")
    step = flops.derive(step_of(setting, "decode"), "forward")
    work = StepWriter(setting, degree(prompt), degree(tokens))
    parts = [work.take("F_prefill", first, "prefill", "The prompt, and the first token.")]
    steps, check = pieces(setting, step, prompt, tokens, "F_decode")
    for name, form, witness in steps:
        text = "Decode steps, whose operations grow linearly: those at the mean context, as often."
        parts.append(work.define(name, form, FLOP, "add the steps", text, witness=witness, by=step.touched))
    work.define("F", Total(tuple(parts)), FLOP, "add", "The whole request.", witness=together(parts))
    made = setting.derivation("FLOPs of a request", work.steps, notes=[*dict.fromkeys((*first.notes, *step.notes))])
    return replace(made, checks=(*made.checks, check)) if check is not None else made
