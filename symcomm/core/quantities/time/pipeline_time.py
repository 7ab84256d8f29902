"""The time of a pipeline: of a pass in chunks, with a fixed cost for each chunk and stage, or of a schedule's step.

Source of the pass: Huang et al., GPipe, arXiv 1811.06965, section 2.3 (the bubble).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal, Unpack

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form, Largest, Num, Ratio, Total, num, product, total
from symcomm.core.optimum.minimum import minimise
from symcomm.core.optimum.writing import SECOND, Name, continued, known, made, step
from symcomm.core.program.events import Times, simulate
from symcomm.core.program.orders import forward_only
from symcomm.core.program.schedules import USUAL_SCHEDULE, find
from symcomm.core.quantities.declared import Meaning, OneOf
from symcomm.core.quantities.options import NoModel, ScheduleName, ScheduleTimes
from symcomm.core.quantities.time import schedule_time
from symcomm.core.setting import Setting
from symcomm.core.units import ONE, Quantity, Unit

ROWS = (
    Name("m", "", "number of chunks, or microbatches", True),
    Name("p", "", "number of pipeline stages", True),
    Name("t", "second", "time of one stage for the whole batch"),
    Name("o", "second", "overhead of one chunk in one stage"),
)
M, P, T, O = (row.sym for row in ROWS)  # noqa: E741
WANTED = ("time", "chunks", "whole_chunks", "least", "utilisation", "full_steps")


def stage_times(text: str) -> tuple[Fraction, ...]:
    """The times of stages from text, ``6, 2, 2, 2`` or ``6 ms, 2 ms``; raises ``ValuesError`` where one is no time.

    >>> stage_times("6, 500 ms")
    (Fraction(6, 1), Fraction(1, 2))
    """
    found: list[Fraction] = []
    for part in text.split(","):
        quantity = Quantity.parse(part)
        if quantity.unit not in (ONE, SECOND) or quantity.value <= 0:
            raise ValuesError(f"'{part.strip()[:40]}' is no time of a stage", hint="write for instance 6 ms, 2 ms")
        found.append(quantity.value)
    if len(found) > 1000:
        raise ValuesError(f"{len(found)} stages: at most 1000 are taken one by one")
    return tuple(found)


def slots(setting: Setting) -> Derivation:
    """The time slots of a pass, and how many of them all stages work in."""
    text = "The first chunk passes `p` stages, and one more chunk ends in each slot after that."
    return made(setting, ROWS, "Slots", [step("n_slot", Total((M, P, num(-1))), ONE, "schedule", text, witness=_ran)])


def _pass(ranks: int, chunks: int, times: Sequence[Fraction | int], overhead: Fraction = Fraction(0)) -> Fraction:
    """When a pass through stages of these times is over, event by event."""
    orders = forward_only(find(USUAL_SCHEDULE).ranks(ranks, chunks))
    return simulate(orders, Times(times, overhead=overhead)).makespan


def _ran(numbers: Numbers) -> Fraction:
    return _pass(int(numbers["p"]), int(numbers["m"]), [1] * int(numbers["p"]))


def _timed(numbers: Numbers) -> Fraction:
    """Even stages, each with its share of the batch's time."""
    ranks, chunks = int(numbers["p"]), int(numbers["m"])
    return _pass(ranks, chunks, [numbers["t"] / chunks] * ranks, numbers["o"])


def _uneven(times: Sequence[Fraction], per: str, numbers: Numbers) -> Fraction:
    chunks = int(numbers["m"])
    if per == "chunk":
        return _pass(len(times), chunks, times)
    return _pass(len(times), chunks, [t / chunks for t in times], numbers["o"])


def time(setting: Setting, stages: str | None = None, per: str = "batch") -> Derivation:
    """The time of one pass through all stages."""
    if stages is None:
        steps = [
            step("n_slot", Total((M, P, num(-1))), ONE, "schedule",
                 "The first chunk passes `p` stages, and one more chunk ends in each slot after that."),
            step("tau", total(Ratio(T, M), O), SECOND, "one slot",
                 "A stage works on a chunk for its share of the batch's time, and has the overhead."),
            step("T", product(forms.Sym("n_slot"), forms.Sym("tau")), SECOND, "add up", "All slots take equally long.",
                 witness=_timed),
        ]  # fmt: skip
        return made(setting, ROWS, "Pipeline time", steps)
    times = stage_times(stages)
    amounts: list[Form] = [Num(t, SECOND) for t in times]
    listed = "per chunk" if per == "chunk" else "for the whole batch"
    total_time = step("t_sum", Total(tuple(amounts)), SECOND, "add up", f"The times of all stages, {listed}.")
    longest = step(
        "t_max", Largest(tuple(amounts)), SECOND, "slowest stage", "Every chunk waits for the slowest stage."
    )
    after: Form = Total((M, num(-1)))
    whole, slow = forms.Sym("t_sum"), forms.Sym("t_max")
    if per == "chunk":
        form = total(whole, product(after, slow))
    else:
        form = total(
            Ratio(whole, M), product(after, Ratio(slow, M)),
            product(Total((M, num(len(times)), num(-1))), O),
        )  # fmt: skip
    text = "The first chunk passes all stages; each further one leaves the slowest stage that much later"
    text += "." if per == "chunk" else ", and every slot has the overhead of a chunk."
    return made(setting, ROWS, "Pipeline time with uneven stages", [total_time, longest,
                step("T", form, SECOND, "schedule", text, witness=partial(_uneven, times, per))])  # fmt: skip


def _full(numbers: Numbers) -> int:
    """The slots in which every stage has a chunk: stage r works on chunk i in slot r + i."""
    ranks, chunks = int(numbers["p"]), int(numbers["m"])
    return sum(all(0 <= slot - rank < chunks for rank in range(ranks)) for slot in range(ranks + chunks))


def derive(
    setting: NoModel,
    want: Annotated[str, OneOf(dict.fromkeys((*WANTED, *schedule_time.WANTED))), Meaning("what is asked for")] = "time",
    stages: Annotated[str | None, Meaning("the times of uneven stages of a pass, such as 6 ms, 2 ms")] = None,
    per: Annotated[Literal["batch", "chunk"], Meaning("whether these are for the whole batch or one chunk")] = "batch",
    schedule: ScheduleName | None = None,
    **options: Unpack[ScheduleTimes],
) -> Derivation:
    """The time of a pipeline's pass in chunks, or of a step under a schedule, its bubbles and what is in flight.

    The ``time`` of a pass, the best number of ``chunks`` (real or whole), the ``least`` time, the ``utilisation``.

    ``stages`` lists the times of uneven stages, ``per`` chunk or whole batch; ``full_steps`` have no bubble. With a
    ``schedule`` (the usual one for what only a schedule has) it is that of a training step, one of its bubbles, or what
    is in flight. Numbers are given for ``m``, ``p``, ``t`` and ``o``, and under a schedule for ``v`` and its times.
    """
    if schedule is None and want in schedule_time.WANTED and want not in WANTED:
        schedule = USUAL_SCHEDULE
    if schedule is not None:
        if stages is not None or per != "batch":
            raise ValuesError(
                "'stages' and 'per' are of a pass", hint="forward: 6 ms, 2 ms for uneven stages of a schedule"
            )
        return schedule_time.derived(setting, schedule, want, **options)
    for option, said in options.items():
        if said is not None:
            raise ValuesError(f"'{option}' belongs to a schedule", hint=f"say schedule: {USUAL_SCHEDULE}, for instance")
    if want not in WANTED:
        raise ValuesError(f"'{want[:40]}' is not derived for a pipeline", hint=nearest(want, [*WANTED]))
    if want in ("utilisation", "full_steps") and stages is not None:
        raise ValuesError(f"{want} is derived for even stages", hint="leave stages out")
    if want == "utilisation":
        busy = step("n_busy", M, ONE, "work", "Each stage works in `m` slots.")
        last = step(
            "u",
            Ratio(forms.Sym("n_busy"), forms.Sym("n_slot")),
            ONE,
            "definition",
            "Busy slots over all slots.",
            witness=lambda numbers: numbers["m"] / _ran(numbers),
        )
        base = slots(setting)
        return replace(base, title="Utilisation of the pipeline", steps=(*base.steps, busy, last,
                       step("u", Ratio(M, Total((M, P, num(-1)))), ONE, "algebra", "Put in.", "=")))  # fmt: skip
    if want == "full_steps":
        form = Largest((num(0), Total((M, forms.negative(P), num(1)))))
        text = (
            "All stages work from the slot in which the last one starts, `p`, to that in which the first one ends, `m`."
        )
        return made(setting, ROWS, "Slots in which all stages work", [
            step("n_full", form, Unit.parse("step"), "schedule", text, witness=_full)])  # fmt: skip
    cost = time(setting, stages, per)
    if want == "time":
        return cost
    if per == "chunk" and stages is not None:
        raise ValuesError("the best number of chunks needs the stages' times for the whole batch", hint="per: batch")
    cost = replace(cost, given=tuple(known(setting, ROWS, ("m",)).items()))  # type: ignore[arg-type]
    if want == "least":
        return continued(cost, minimise(cost, "m", integer=False, wanted="value"))
    return continued(cost, minimise(cost, "m", integer=want == "whole_chunks"))
