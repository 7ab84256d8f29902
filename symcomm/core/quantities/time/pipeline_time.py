"""The time of a pipeline: of a pass in chunks, with a fixed cost for each chunk and stage, or of a schedule's step.

Source of the pass: Huang et al., GPipe, arXiv 1811.06965, section 2.3 (the bubble).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Literal, Unpack

from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Largest, Num, Ratio, Sym, Total, combined, negative, num, product
from symcomm.core.optimum.minimum import minimise
from symcomm.core.optimum.writing import SECOND, Name, continued, known, made, step
from symcomm.core.program.events import Times, simulate
from symcomm.core.program.orders import forward_only
from symcomm.core.program.schedules import USUAL_SCHEDULE, find
from symcomm.core.quantities.declared import Meaning, OneOf
from symcomm.core.quantities.options import Microbatches, NoModel, ScheduleName, ScheduleTimes
from symcomm.core.quantities.time import schedule_time
from symcomm.core.quantities.witnesses import number
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting
from symcomm.core.units import ONE, Unit

# The symbols of a pass, by the options that give them another name or a number.
ROWS = {
    "microbatches": Name("m", "", "number of microbatches", True),
    "stages": Name("p", "", "number of pipeline stages", True),
    "forward": Name("t", "second", "time of one stage for the whole batch"),
    "overhead": Name("o", "second", "overhead of one microbatch in one stage"),
}
WANTED = ("time", "microbatches", "whole_microbatches", "least", "utilisation", "full_steps")
_BEFORE = {"chunks": "microbatches", "whole_chunks": "whole_microbatches"}  # older names of what is asked for
_EVEN = "The first microbatch passes {} stages, and one more microbatch ends in each slot after that."


def stage_times(text: str) -> tuple[Fraction, ...]:
    """The times of stages from text, ``6, 2, 2, 2`` or ``6 ms, 2 ms``; raises ``ValuesError`` where one is no time.

    >>> stage_times("6, 500 ms")
    (Fraction(6, 1), Fraction(1, 2))
    """
    found = tuple(schedule_time.time_of(part) for part in text.split(","))
    if not all(found):
        raise ValuesError("a stage takes no time", hint="forward: 6 ms, 2 ms")
    if len(found) > 1000:
        raise ValuesError(f"{len(found)} stages: at most 1000 are taken one by one")
    return found


@dataclass(frozen=True)
class _Pass:
    """A pass through stages: the symbols of its sizes and times; uneven stages have their ``times``.

    They are for the whole batch, or for one microbatch ``each``; ``overhead`` says that there is one.
    """

    setting: Setting
    rows: Mapping[str, Name]
    times: tuple[Fraction, ...] = ()
    each: bool = False
    overhead: bool = True

    @property
    def symbols(self) -> tuple[Sym, ...]:
        """Microbatches, stages, the time of a stage, the overhead."""
        return tuple(row.sym for row in self.rows.values())

    @property
    def slots(self) -> Form:
        """The slots of a pass through even stages."""
        m, p, *_ = self.symbols
        return Total((m, p, num(-1)))

    def made(self, title: str, *steps: object) -> Derivation:
        """The derivation of some steps."""
        return made(self.setting, [*self.rows.values()], title, steps)  # type: ignore[arg-type]

    def followed(self, numbers: Numbers) -> Fraction:
        """When the pass is over, event by event."""
        m, p, t, o = self.symbols
        many = int(number(m, numbers))
        share = Fraction(1 if self.each else many)
        times = self.times or [number(t, numbers)] * int(number(p, numbers))
        return _ends(many, [time / share for time in times], number(o, numbers) if self.overhead else Fraction(0))

    def slots_followed(self, numbers: Numbers) -> Fraction:
        """The same where a stage takes one slot for a microbatch."""
        m, p, *_ = self.symbols
        return _ends(int(number(m, numbers)), [1] * int(number(p, numbers)))

    def full(self, numbers: Numbers) -> int:
        """The slots in which every stage has a microbatch: stage r works on microbatch i in slot r + i."""
        m, p, *_ = (int(number(size, numbers)) for size in self.symbols[:2])
        return sum(all(0 <= slot - rank < m for rank in range(p)) for slot in range(p + m))

    def time(self) -> Derivation:
        """The time of the pass."""
        m, p, t, o = self.symbols
        if not self.times:
            slot = [t if self.each else Ratio(t, m), *([o] if self.overhead else [])]
            text = "A stage works on a microbatch for its " + ("time" if self.each else "share of the batch's time")
            text += ", and has the overhead." if self.overhead else "."
            return self.made(
                "Pipeline time",
                step("n_slot", self.slots, ONE, "schedule", _EVEN.format(f"`{p.name}`")),
                step("tau", combined(Total, slot), SECOND, "one slot", text),
                step("T", product(Sym("n_slot"), Sym("tau")), SECOND, "add up", "All slots take equally long.",
                     witness=self.followed),
            )  # fmt: skip
        amounts: tuple[Form, ...] = tuple(Num(time, SECOND) for time in self.times)
        listed = "per microbatch" if self.each else "for the whole batch"
        whole, slow = Sym("t_sum"), Sym("t_max")
        after = Total((m, num(-1)))
        terms = [whole if self.each else Ratio(whole, m), product(after, slow if self.each else Ratio(slow, m))]
        terms += [product(Total((m, num(len(amounts)), num(-1))), o)] if self.overhead else []
        text = "The first microbatch passes all stages; each further one leaves the slowest stage that much later"
        text += ", and every slot has the overhead of a microbatch." if self.overhead else "."
        return self.made(
            "Pipeline time with uneven stages",
            step("t_sum", Total(amounts), SECOND, "add up", f"The times of all stages, {listed}."),
            step("t_max", Largest(amounts), SECOND, "slowest stage", "Every microbatch waits for the slowest stage."),
            step("T", Total(tuple(terms)), SECOND, "schedule", text, witness=self.followed),
        )

    def utilisation(self) -> Derivation:
        """Busy slots over all slots."""
        m, p, *_ = self.symbols
        return self.made(
            "Utilisation of the pipeline",
            step("n_slot", self.slots, ONE, "schedule", _EVEN.format(f"`{p.name}`"), witness=self.slots_followed),
            step("n_busy", m, ONE, "work", f"Each stage works in `{m.name}` slots."),
            step("u", Ratio(Sym("n_busy"), Sym("n_slot")), ONE, "definition", "Busy slots over all slots.",
                 witness=lambda numbers: number(m, numbers) / self.slots_followed(numbers)),
            step("u", Ratio(m, self.slots), ONE, "algebra", "Put in.", "="),
        )  # fmt: skip

    def full_steps(self) -> Derivation:
        """The slots in which all stages work."""
        m, p, *_ = self.symbols
        text = (f"All stages work from the slot in which the last one starts, `{p.name}`, to that in which the first "
                f"one ends, `{m.name}`.")  # fmt: skip
        form = Largest((num(0), Total((m, negative(p), num(1)))))
        return self.made("Slots in which all stages work",
                         step("n_full", form, Unit.parse("step"), "schedule", text, witness=self.full))  # fmt: skip


def _ends(microbatches: int, times: Sequence[Fraction | int], overhead: Fraction = Fraction(0)) -> Fraction:
    """When a pass through stages of these times is over, event by event."""
    orders = forward_only(find(USUAL_SCHEDULE).ranks(len(times), microbatches))
    return simulate(orders, Times(times, overhead=overhead)).makespan


def _pass(setting: Setting, each: bool, said: Mapping[str, object], listed: str) -> _Pass:
    """A pass as the options say it; ``listed`` are the times of uneven stages."""
    values, rows = dict(setting.values), dict(ROWS)
    if each:
        rows["forward"] = replace(rows["forward"], meaning="time of one stage for one microbatch")
    times = stage_times(listed) if listed else ()
    for option in rows:
        if said.get(option) is not None and not (times and option == "forward"):
            rows[option] = schedule_time.named(rows[option], option, said[option], values)
    stages = values.get(rows["stages"].name, len(times))
    if times and stages != len(times):
        raise ValuesError(f"{len(times)} forward times are given for {stages} stages",
                          hint="one for each, or one for all")  # fmt: skip
    overhead = not each or said.get("overhead") is not None or rows["overhead"].name in values
    return _Pass(replace(setting, values=values), rows, times, each, overhead)


def derive(
    setting: NoModel,
    want: Annotated[
        str, OneOf(dict.fromkeys((*WANTED, *schedule_time.WANTED, *_BEFORE))), Meaning("the result to derive")
    ] = "time",
    stages: Annotated[
        int | str | None, Meaning("the number of stages, or its symbol; default: p; for a list of times use 'forward'")
    ] = None,
    per: Annotated[
        Literal["batch", "microbatch", "chunk"],
        Meaning("whether the times of a pass are for the whole batch or for one microbatch (also called chunk)"),
    ] = "batch",
    schedule: ScheduleName | None = None,
    microbatches: Annotated[
        Microbatches | None, Meaning("the number of microbatches, or its symbol; default: m")
    ] = None,
    **options: Unpack[ScheduleTimes],
) -> Derivation:
    """The time of a pipeline's pass in microbatches, or of a step under a schedule, its bubbles and what is in flight.

    The ``time`` of a pass, the best number of ``microbatches`` (real or whole), the ``least`` time, the
    ``utilisation``; ``full_steps`` have no bubble.

    ``forward`` is the time of a stage, or a list of those of uneven stages, ``per`` microbatch or whole batch. With a
    ``schedule`` (the usual one for what only a schedule has) it is that of a training step, one of its bubbles, or what
    is in flight. ``stages`` and ``microbatches`` are numbers or symbols; numbers are given for ``m``, ``p``, ``t`` and
    ``o`` as well, and under a schedule for ``v`` and its times.
    """
    if schedule is None and want in schedule_time.WANTED and want not in WANTED:
        schedule = USUAL_SCHEDULE
    said = {"stages": stages, "microbatches": microbatches, **options}
    listed = said["forward"] if "," in str(said.get("forward")) else None
    if stages is not None and not re.fullmatch(r"\d+|[^\W\d]\w*", str(stages).strip()):  # an older name of 'forward'
        if schedule is not None or said.get("forward") is not None:
            raise ValuesError(f"'stages' is {str(stages)[:40]}, but it is a number of stages",
                              hint="forward: 6 ms, 2 ms for uneven stages")  # fmt: skip
        listed, said["stages"] = stages, None
    if schedule is not None:
        if per != "batch":
            raise ValuesError("'per' is of a pass", hint="the times of a schedule hold for one microbatch")
        return schedule_time.derived(setting, schedule, want, **said)
    for option, text in options.items():
        if text is not None and option not in ROWS:
            raise ValuesError(f"'{option}' belongs to a schedule", hint=f"say schedule: {USUAL_SCHEDULE}, for instance")
    want = _BEFORE.get(want, want)
    ran = _pass(setting, per != "batch", said, str(listed or ""))
    if want in ("utilisation", "full_steps"):
        if ran.times:
            raise ValuesError(f"{want} is derived for even stages", hint="give one forward time for all, or none")
        return ran.utilisation() if want == "utilisation" else ran.full_steps()
    if want == "time":
        return ran.time()
    if ran.each:
        told = "the best number of microbatches needs the stages' times for the whole batch"
        raise ValuesError(told, hint="per: batch")
    m = ran.rows["microbatches"].name
    if str(microbatches or "").isdecimal():
        raise ValuesError(f"'microbatches' is {microbatches}, but the question is for the best", hint="leave it out")
    cost = replace(ran.time(), given=tuple(known(ran.setting, [*ran.rows.values()], (m,)).items()))  # type: ignore[arg-type]
    if want == "least":
        return continued(cost, minimise(cost, m, integer=False, wanted="value"))
    return continued(cost, minimise(cost, m, integer=want == "whole_microbatches"))
