"""The time of a pipeline: of a schedule's step with its bubbles, of a pass in chunks, of decoding through its stages.

Source of the pass: Huang et al., GPipe, arXiv 1811.06965, section 2.3 (the bubble).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import Annotated, Literal, Unpack

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Derivation, Exhibit, Numbers, Step, worked_out
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form, Largest, Num, Ratio, Sym, Total, combined, negative, num, product
from symcomm.core.libraries import sp
from symcomm.core.optimum.minimum import minimise
from symcomm.core.optimum.writing import SECOND, Name, continued, known, made, step
from symcomm.core.parallel.strategy import degree
from symcomm.core.program import closed_forms
from symcomm.core.program.closed_forms import ClosedForm, Measure
from symcomm.core.program.events import Execution, Times, simulate
from symcomm.core.program.orders import Schedule, forward_only, in_flight
from symcomm.core.program.schedules import RANK_LIMIT, USUAL_SCHEDULE, find, run
from symcomm.core.quantities.declared import Meaning, OneOf
from symcomm.core.quantities.options import Microbatches, NoModel, ScheduleName, ScheduleTimes, Whole
from symcomm.core.quantities.witnesses import between_tokens, number
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import ONE, Quantity, Unit

# The shares: one time over another, and what that is.
SHARES: dict[str, tuple[Measure, Measure, str, str]] = {
    "bubble_total": ("bubble", "makespan", "Bubble over the total time", "The idle part of the time of all ranks."),
    "bubble_ideal": ("bubble", "work", "Bubble over the ideal time", "Idle time over the time in which ranks work."),
    "bubble_span": ("span bubble", "span", "Bubble within the longest span",
                    "The idle part of the time between a rank's own first start and last end."),
    "utilisation": ("work", "makespan", "Utilisation", "The part of the time in which the ranks work."),
}  # fmt: skip
MEASURES: dict[Measure, tuple[str, str]] = {
    "makespan": ("T", "From the first start to the last end, on any rank."),
    "span": ("T_span", "From the first start to the last end of a rank, for the rank with the longest span."),
    "work": ("T_work", "The time in which a rank works, the mean of all ranks."),
    "bubble": ("t_bubble", "The time in which a rank does not work, the mean of all ranks."),
    "span bubble": ("t_bubble", "The part of the longest span in which a rank does not work."),
}
SCHEDULED = ("time", *SHARES, "in_flight")
_SIZES = {
    "stages": Name("p", "", "number of ranks of the pipeline", True),
    "microbatches": Name("m", "", "number of microbatches", True),
}
# What takes time: its usual symbol, and what it is.
_TIMES = {
    "forward": Name("t_F", "second", "forward of one microbatch through one chunk of a rank"),
    "input_gradient": Name("t_B", "second", "gradient of the input, of one microbatch in one chunk"),
    "weight_gradient": Name("t_W", "second", "gradient of the weights, of one microbatch in one chunk"),
    "backward": Name("t_BW", "second", "both gradients, of one microbatch in one chunk"),
    "pair": Name("t_FB", "second", "forward and backward that overlap"),
    "hop": Name("c", "second", "latency between two ranks"),
    "overhead": Name("o", "second", "overhead of each piece of work"),
}
GRADIENTS, _BESIDES = ("input_gradient", "weight_gradient"), ("t_FB", "c", "o")


def time_of(text: str, option: str = "forward") -> Fraction:
    """A time from text; raises ``ValuesError`` where it is none.

    >>> str(time_of("500 ms"))
    '1/2'
    """
    quantity = None if "," in text else Quantity.parse(text)
    if quantity is None or quantity.unit not in (ONE, SECOND) or quantity.value < 0:
        raise ValuesError(f"'{text.strip()[:40]}' is no time for '{option}'", hint="6 ms, or the name of a symbol")
    return quantity.value


def named(row: Name, option: str, said: object, values: dict[str, Fraction]) -> Name:
    """The row of a symbol, with the name that an option gives it; a number is put into ``values``.

    Raises ``ValuesError`` for what is neither, and where the symbol has another number.
    """
    text = str(said).strip()
    if text.isidentifier():
        return replace(row, name=text)
    if row.whole and not (text.isdecimal() and len(text) < 13 and int(text)):
        raise ValuesError(f"'{option}' is {text[:40]}", hint="a whole number, or the name of a symbol")
    value = Fraction(int(text)) if row.whole else time_of(text, option)
    if values.setdefault(row.name, value) != value:
        raise ValuesError(f"'{option}' is {text[:40]}, but {row.name} = {values[row.name]} is given",
                          hint=f"say one of them: '{option}' is {row.name}")  # fmt: skip
    return row


def halves(said: Mapping[str, Sequence[Form]], values: Mapping[str, Fraction]) -> dict[str, list[Form]]:
    """The gradients of input and weights, each of every stage or of one after the other, as far as they are ``said``.

    A ``backward`` is both: half each, or what the one that is said leaves of it. Raises ``ValuesError`` where all three
    are said, and where a part takes longer than the whole.
    """
    parts = {name: [*said[name]] for name in GRADIENTS if name in said}
    whole = [*said.get("backward", ())]
    if not whole:
        return parts
    if len(parts) > 1:
        raise ValuesError("'backward' is both gradients, but you also gave each of them", hint="leave one of them out")
    if not parts:
        return {name: [Ratio(one, num(2)) for one in whole] for name in GRADIENTS}
    ((name, part),) = parts.items()
    if 1 not in (len(whole), len(part)) and len(whole) != len(part):
        raise ValuesError(f"{len(whole)} times are given for 'backward', and {len(part)} for '{name}'",
                          hint="one for each stage, or one for all")  # fmt: skip
    many = max(len(whole), len(part))
    both = zip(whole * (many // len(whole)), part * (many // len(part)), strict=True)
    rest: list[Form] = [Total((all_of_it, forms.negative(one))) for all_of_it, one in both]
    if any(values.keys() >= {*forms.names(left)} and forms.evaluate(left, values) < 0 for left in rest):
        raise ValuesError(f"'{name}' is more than 'backward'", hint="it is a part of it")
    return {**parts, next(one for one in GRADIENTS if one != name): rest}


def of_stages(
    schedule: str, stages: int, microbatches: int, chunks: int | None, times: Mapping[str, Sequence[Fraction]],
    pair: Fraction | None = None, hop: Fraction = Fraction(0), overhead: Fraction = Fraction(0),
) -> tuple[Execution, bool]:  # fmt: skip
    """The events of a schedule with the ``times`` of each stage, and whether half of a backward is for the weights.

    Without times of its own the backward pass takes twice as long as the forward pass.
    """
    if stages > RANK_LIMIT:
        raise ValuesError(f"{stages} stages are too many to be drawn", hint=f"at most {RANK_LIMIT}")
    record = find(schedule)
    v = record.fitting(stages, microbatches, (record.chunks or 1) if chunks is None else chunks)
    forward = times["forward"]
    if not any(forward):
        raise ValuesError("the forward pass takes no time", hint="give each stage a positive time")
    parts: dict[str, list[Form]] = {name: [*map(forms.rational, some)] for name, some in times.items()}
    if not {*GRADIENTS} <= parts.keys():
        parts.setdefault("backward", [forms.rational(2 * time) for time in forward])
    gradients = [[forms.evaluate(time, {}) for time in halves(parts, {})[name]] for name in GRADIENTS]
    share = v / record.placement.copies(stages, v)  # a rank's chunks share its time
    places = {record.placement.stage(rank, chunk, stages): rank for rank in range(stages) for chunk in range(v)}
    f, b, w = ([some[places[s]] / share for s in sorted(places)] for some in (forward, *gradients))
    backward = any(map(any, gradients))
    made = run(record, stages, microbatches, v, Times(f, b, w, pair, hop, overhead), backward)
    return made, "B" in record.kinds and backward and not {*GRADIENTS} & times.keys()


@dataclass
class _AskedSchedule:
    """A schedule with the forms of its sizes and times, and their symbols; ``listed`` are the times of uneven stages.

    ``backward`` says whether there is a backward pass.
    """

    record: Schedule
    names: Mapping[str, Form]
    rows: Sequence[Name]
    values: Mapping[str, Fraction]
    listed: Mapping[str, list[Fraction]]
    backward: bool
    where: list[Condition]

    def missing(self) -> list[str]:
        """The symbols that have no number."""
        return [n for form in self.names.values() for n in forms.names(form) if n not in self.values]

    @cached_property
    def events(self) -> Execution | None:
        """The events, where all numbers are known."""
        if self.missing():
            return None
        return self.run({name: forms.evaluate(form, self.values) for name, form in self.names.items()})

    def run(self, said: Mapping[str, Fraction]) -> Execution:
        """The events at some sizes and times, one by one."""
        for size in "pmv":
            if said[size].denominator != 1:
                raise ValuesError(f"{size} = {said[size]}: a whole number is needed")
        p, m, v = (int(said[size]) for size in "pmv")
        f, b, w = (self.listed.get(name) or said[name] for name in ("t_F", "t_B", "t_W"))
        times = Times(f, b, w, said.get("t_FB"), said.get("c", 0), said.get("o", 0))
        return run(self.record, p, m, v, times, self.backward)

    def step(self, measure: Measure) -> Step:
        """The step that gives a time: a closed form where one holds, else the number of the events."""
        name, text = MEASURES[measure]
        besides = tuple(row.sym for row in _TIMES.values() if row.name in _BESIDES and row.name in self.names)
        closed = None if self.listed or not self.backward else closed_forms.time(self.record, measure, besides)
        if closed is not None:
            closed = closed.said(self.names)
            if closed.holds(self.values):
                return step(name, closed.form, SECOND, "events", f"{text} {self.told(closed)}",
                            witness=partial(self.followed, measure))  # fmt: skip
        if self.events is None:
            raise closed_forms.no_form(self.record, measure, closed, self.missing())
        text += " The events are followed one by one."
        return step(name, Num(closed_forms.measures(self.events)[measure], SECOND), SECOND, "events", text,
                    witness=partial(self.followed, measure))  # fmt: skip

    def followed(self, measure: Measure, numbers: Numbers) -> Fraction:
        """A time of the events at some numbers."""
        said = {name: number(form, numbers) for name, form in self.names.items()}
        return closed_forms.measures(self.run(said))[measure]

    def told(self, closed: ClosedForm) -> str:
        """The assumptions of a closed form; its conditions go with the answer."""
        self.where.extend(c for c in closed.conditions if c not in self.where)
        text = f"The longest path through the events; {closed.cases} simulated cases agree." if closed.cases else ""
        return text + (f" It holds where {closed_forms.listed(closed.conditions)}." if closed.conditions else "")


def _asked(
    setting: Setting, schedule: str, chunks: object, stage: object, given: Mapping[str, object]
) -> _AskedSchedule:  # fmt: skip
    record, values = find(schedule), dict(setting.values)
    sizes = {option: row.name if given.get(option) is None else given[option] for option, row in _SIZES.items()}
    rows = [named(row, option, sizes[option], values) for option, row in _SIZES.items()]
    names: dict[str, Form] = {"p": rows[0].sym, "m": rows[1].sym, "v": closed_forms.V}
    if chunks is not None or record.chunks:
        names["v"] = closed_forms.chunks_of(record, chunks)
    rows.append(Name("v", "", "number of chunks of a rank", True))
    if stage is not None:
        names["r"] = num(0) if str(stage) == "0" else degree(str(stage))
    if isinstance(rank := names.get("r"), Sym):
        rows.append(Name(rank.name, "", "rank of the pipeline, from 0", True))
    said: dict[str, list[Form]] = {}
    for option, row in _TIMES.items():
        text = given.get(option)
        besides = row.name in _BESIDES
        if text is None and (
            (besides and row.name not in values)
            or option == "backward"
            or (option in GRADIENTS and given.get("backward") is not None)
        ):
            continue
        listed = str(text or row.name).split(",")
        if len(listed) > 1 and not besides:
            said[option] = [Num(time_of(one, option), SECOND) for one in listed]
        else:
            rows.append(named(row, option, text or row.name, values))
            said[option] = [rows[-1].sym]
    back = said.get("backward", [])
    where = [Condition(back[0], ">=", said[part][0]) for part in GRADIENTS
             if part in said and len(back) == len(said[part]) == 1]  # fmt: skip
    gradients = halves(said, values)
    said = {option: column for option, column in said.items() if option != "backward"} | gradients
    names |= {_TIMES[option].name: column[0] for option, column in said.items() if len(column) == 1}
    uneven = {_TIMES[option].name: [forms.evaluate(one, values) for one in column]
              for option, column in said.items() if len(column) > 1}  # fmt: skip
    none = all(values.keys() >= {*forms.names(one)} and forms.evaluate(one, values) == 0 for one in back)
    if not [n for size in "pmv" for n in forms.names(names[size]) if n not in values]:
        at = [forms.evaluate(names[size], values) for size in "pmv"]
        if all(one.denominator == 1 for one in at):
            record.fitting(*map(int, at))
    return _AskedSchedule(record, names, rows, values, uneven, not (back and none), where)


def derived(
    setting: Setting, schedule: str, want: str = "time", chunks: object = None, stage: object = None,
    **said: object,
) -> Derivation:  # fmt: skip
    """The ``time`` of a step from its first start to its last end, one of the bubbles, the ``utilisation``, or the
    microbatches of a chunk ``in_flight``, on a ``stage`` or where they are the most.

    A closed form is taken where one is known and holds, else the numbers of the events. What is ``said`` besides are
    ``stages``, ``microbatches``, ``forward``, ``backward`` or its parts ``input_gradient`` and ``weight_gradient``
    (each for all stages, or a list for uneven ones), ``pair``, ``hop`` and ``overhead``; the last three are left out
    where nothing is said. Raises ``ValuesError`` where neither is there.
    """
    if want not in SCHEDULED:
        raise ValuesError(f"'{want[:40]}' is not derived for a schedule", hint=nearest(want, [*SCHEDULED]))
    if stage is not None and want != "in_flight":
        raise ValuesError(f"'stage' says where what is in flight is counted, not the {want}", hint="leave it out")
    ask = _asked(setting, schedule, chunks, stage, said)
    if want == "in_flight":
        title = "Microbatches in flight"
        closed = closed_forms.held_on(ask.record, {k: v for k, v in ask.names.items() if k in "pmvr"}, ask.values)
        text = f"{ask.record.why} Each counts once for each chunk of the rank." + ask.told(replace(closed, cases=0))
        steps = [step("w", closed.form, ONE, "in flight", text, witness=partial(_held, ask))]
    elif want == "time":
        title, steps = "Time", [ask.step("makespan")]
    else:
        first, second, title, text = SHARES[want]
        steps = [ask.step(first), ask.step(second)]
        share = Ratio(*(Sym(one.name) for one in steps))
        steps.append(step("u" if want == "utilisation" else "b", share, ONE, "definition", text,
                          witness=partial(worked_out, share)))  # fmt: skip
        steps += _put_in(steps)
    title += f" of a training step under {ask.record.name}"
    exhibits = (_exhibit(ask.events),) if ask.events is not None and len(ask.events.orders) <= 16 else ()
    known = replace(setting, values=ask.values)
    return made(known, ask.rows, title, steps, where=tuple(ask.where), exhibits=exhibits)


def _held(ask: _AskedSchedule, numbers: Numbers) -> int:
    """The most that a rank holds, or that any does."""
    ranks, batch, pieces = (int(number(ask.names[n], numbers)) for n in "pmv")
    every = [in_flight(order) for order in ask.record.ranks(ranks, batch, pieces)]
    return every[int(number(ask.names["r"], numbers))] if "r" in ask.names else max(every)


def _put_in(steps: Sequence[Step]) -> list[Step]:
    """The share with the times put in, where times cancel or it is one over the other."""
    known: dict[str, sp.Expr] = {}
    for one in steps:
        known[one.name] = forms.value(one.form, known)
    share = steps[-1]
    neat = forms.from_expr(sp.cancel(known[share.name]))
    written = forms.substitute(share.form, lambda s: next(one.form for one in steps if one.name == s.name))
    form = neat if len(forms.names(neat)) < len(forms.names(written)) else written
    return [step(share.name, form, ONE, "algebra", "Put in.", "=")] if forms.names(form) else []


def _exhibit(events: Execution) -> Exhibit:
    """What each rank does, and when."""
    columns = ("rank", "works", "idle", "first start", "last end", "in flight")
    each = zip(events.busy, events.idle, events.first_start, events.last_end, events.in_flight, strict=True)
    rows = tuple((str(rank), *map(str, row)) for rank, row in enumerate(each))
    return Exhibit("The ranks, in seconds", columns, rows)


# -- a pass through stages, in chunks --------------------------------------------------------------------

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
    found = tuple(time_of(part) for part in text.split(","))
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
            rows[option] = named(rows[option], option, said[option], values)
    stages = values.get(rows["stages"].name, len(times))
    if times and stages != len(times):
        raise ValuesError(f"{len(times)} forward times are given for {stages} stages",
                          hint="one for each, or one for all")  # fmt: skip
    overhead = not each or said.get("overhead") is not None or rows["overhead"].name in values
    return _Pass(replace(setting, values=values), rows, times, each, overhead)


def derive_pipeline_time(
    setting: NoModel,
    want: Annotated[
        str, OneOf(dict.fromkeys((*WANTED, *SCHEDULED, *_BEFORE))), Meaning("the result to derive")
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
    ``utilisation``; ``full_steps`` have no bubble. ``bubble_total`` divides the idle time by the whole time,
    ``bubble_ideal`` by the time of work; ``bubble_span`` looks at one rank from its first start to its last end.

    ``forward`` is the time of a stage, or a list of those of uneven stages, ``per`` microbatch or whole batch. With a
    ``schedule`` (the usual one for what only a schedule has) it is that of a training step, one of its bubbles, or what
    is in flight. ``stages`` and ``microbatches`` are numbers or symbols; numbers are given for ``m``, ``p``, ``t`` and
    ``o`` as well, and under a schedule for ``v`` and its times.
    """
    if schedule is None and want in SCHEDULED and want not in WANTED:
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
        return derived(setting, schedule, want, **said)
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


# -- decoding --------------------------------------------------------------------------------------------

MOST = 1000  # groups: a check follows each, event by event


def derive_decode_pipeline_time(
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
