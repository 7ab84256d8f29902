"""Decoding through the stages of a pipeline: groups of sequences in turn, whose tokens follow one another for ever."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Largest, Num, Ratio, Total, num, product
from symcomm.core.parallel.strategy import degree
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import NoModel, Whole
from symcomm.core.quantities.time.pipeline_time import stage_times
from symcomm.core.quantities.time.schedule_time import time_of
from symcomm.core.quantities.time.terms import SECOND
from symcomm.core.quantities.witnesses import between_tokens, number
from symcomm.core.setting import StepWriter
from symcomm.core.units import Unit

MOST = 1000  # groups: a check follows each, event by event


def derive(
    setting: NoModel,
    forward: Annotated[str, Meaning("the times of a decode step of one group on each stage, such as 3 ms, 5 ms")],
    groups: Annotated[Whole, Meaning("the groups of sequences that are in the pipeline at once")] = 1,
    hop: Annotated[str, Meaning("the time of a message between two stages, or back to the first; such as 10 us")] = "",
    of: Annotated[
        Literal["gap", "rate", "groups"],
        Meaning("the time between two tokens of a sequence, the groups' tokens a second, or the groups that fill it"),
    ] = "gap",
) -> Derivation:
    """The time between two tokens of a sequence that decodes through a pipeline, or the rate of all groups.

    A group's next token starts at the first stage as soon as its last one has left the last stage. With few groups a
    token waits for nobody, and its way through all stages is the time. With many the slowest stage is always busy, and
    each group waits for its turn there. The links are never busy; waiting in a queue before the prefill is not counted.

    Source: Pope et al., arXiv 2211.05102, section 3; here for stages that need not be alike.
    """
    times = stage_times(forward)
    each = time_of(hop, "hop") if hop else Fraction(0)
    work, many = StepWriter(setting, degree(groups)), degree(groups)
    if str(groups).isdecimal() and int(groups) > MOST:
        raise ValuesError(f"{groups} groups: at most {MOST} are followed one by one", hint=f"groups: {MOST}")
    if of == "groups" and str(groups) != "1":
        raise ValuesError("groups makes no difference to the number of groups that fill the pipeline",
                          hint="leave groups out")  # fmt: skip
    parts: list[Form] = [Num(one, SECOND) for one in times]
    hops = [product(num(len(times)), Num(each, SECOND))] if each else []
    text = "A token crosses one stage after the other" + (", with a message behind each." if each else ".")
    way = work.define("t_way", Total((*parts, *hops)), SECOND, "one token", text,
                      witness=lambda numbers: between_tokens(times, 1, each))  # fmt: skip
    slowest = work.define("t_slow", Largest(tuple(parts)), SECOND, "slowest stage",
                          "No two groups are on a stage at once.", witness=lambda numbers: max(times))  # fmt: skip
    if of == "groups":
        work.combine("g_full", Ratio(way, slowest), Unit(), "solve",
                     "From this number of groups on the slowest stage is always busy.")  # fmt: skip
        return setting.derivation("Groups that fill a pipeline", work.steps)
    busy = product(many, slowest)
    gap = work.define("t_gap", Largest((way, busy)), SECOND, "steady state",
                      "A group waits until its last token is there, or for its turn on the slowest stage.",
                      witness=lambda n: between_tokens(times, int(number(many, n)), each))  # fmt: skip
    if of == "rate":
        work.combine("X", Ratio(many, gap), Unit.parse("1/second"), "rate", "A token of each group in that time.")
    title = "Time between two tokens through a pipeline" if of == "gap" else "Tokens a second of all groups"
    return setting.derivation(title, work.steps)
