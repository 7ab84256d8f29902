"""The time of a training step of a pipeline under a schedule, its bubbles, and what is in flight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from functools import cached_property, partial

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Derivation, Exhibit, Numbers, Step
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form, Num, Ratio, Sym, num
from symcomm.core.optimum.writing import SECOND, Name, made, step
from symcomm.core.parallel.strategy import degree
from symcomm.core.program import closed_forms
from symcomm.core.program.closed_forms import FORWARD, HOP, INPUT, OVERHEAD, PAIR, WEIGHT, ClosedForm, Measure
from symcomm.core.program.events import Execution, Times, simulate
from symcomm.core.program.orders import Schedule, in_flight
from symcomm.core.program.schedules import find, run
from symcomm.core.quantities.witnesses import number, over
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting
from symcomm.core.units import ONE, Quantity

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
    "span": ("T_span", "From a rank's own first start to its last end, for the rank for which that is longest."),
    "work": ("T_work", "The time in which a rank works, the mean of all ranks."),
    "bubble": ("t_bubble", "The time in which a rank does not work, the mean of all ranks."),
    "span bubble": ("t_bubble", "The part of the longest span in which a rank does not work."),
}
WANTED = ("time", *SHARES, "in_flight")
_SIZES = (
    Name("m", "", "number of microbatches", True), Name("p", "", "number of ranks of the pipeline", True),
    Name("v", "", "number of chunks of a rank", True),
)  # fmt: skip
# What takes time: its usual symbol, and what it is.
_TIMES = {
    "forward": (FORWARD, "forward of one microbatch through one chunk of a rank"),
    "input_gradient": (INPUT, "gradient of the input, of one microbatch in one chunk"),
    "weight_gradient": (WEIGHT, "gradient of the weights, of one microbatch in one chunk"),
    "pair": (PAIR, "forward and backward that overlap"),
    "hop": (HOP, "latency between two ranks"),
    "overhead": (OVERHEAD, "overhead of each piece of work"),
}


@dataclass
class _AskedSchedule:
    """A schedule with the forms of its sizes and times; ``listed`` are the times of uneven stages."""

    record: Schedule
    names: Mapping[str, Form]
    values: Mapping[str, Fraction]
    listed: Mapping[str, list[Fraction]]
    where: list[Condition] = field(default_factory=list)

    def size(self, name: str) -> int:
        """A size; raises ``ValuesError`` where it is no whole number."""
        found = forms.evaluate(self.names[name], self.values)
        if found.denominator != 1:
            raise ValuesError(f"{name} = {found}: a whole number is needed")
        return int(found)

    def missing(self) -> list[str]:
        """The symbols that have no number."""
        return [n for form in self.names.values() for n in forms.names(form) if n not in self.values]

    @cached_property
    def events(self) -> Execution | None:
        """The events, where all numbers are known."""
        if self.missing():
            return None
        said: dict[str, Fraction] = {name: forms.evaluate(form, self.values) for name, form in self.names.items()}
        f, b, w = (self.listed.get(s.name) or said[s.name] for s in (FORWARD, INPUT, WEIGHT))
        times = Times(f, b, w, said.get("t_FB"), said.get("c", 0), said.get("o", 0))
        return run(self.record, self.size("p"), self.size("m"), self.size("v"), times)

    def step(self, measure: Measure) -> Step:
        """The step that gives a time: a closed form where one holds, else the number of the events."""
        name, text = MEASURES[measure]
        besides = tuple(symbol for symbol, _ in [*_TIMES.values()][3:] if symbol.name in self.names)
        closed = None if self.listed else closed_forms.time(self.record, measure, besides)
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
        return closed_forms.measures(self.run(numbers))[measure]

    def run(self, numbers: Numbers) -> Execution:
        """The events at some numbers, one by one."""
        said = {name: number(form, numbers) for name, form in self.names.items()}
        f, b, w = (self.listed.get(s.name) or said[s.name] for s in (FORWARD, INPUT, WEIGHT))
        times = Times(f, b, w, said.get("t_FB"), said.get("c", 0), said.get("o", 0))
        return simulate(self.record.ranks(*(int(said[n]) for n in "pmv")), times)

    def told(self, closed: ClosedForm) -> str:
        """What a closed form rests on; its conditions go with the answer."""
        self.where.extend(c for c in closed.conditions if c not in self.where)
        text = f"The longest way through the events; {closed.cases} simulated cases agree." if closed.cases else ""
        return text + (f" It holds where {closed_forms.listed(closed.conditions)}." if closed.conditions else "")


def _asked(
    setting: Setting, schedule: str, chunks: object, stage: object, given: Mapping[str, str | None]
) -> _AskedSchedule:  # fmt: skip
    record = find(schedule)
    values = dict(setting.values)
    names: dict[str, Form] = {"p": closed_forms.P, "m": closed_forms.M, "v": closed_forms.V}
    if chunks is not None or record.chunks:
        names["v"] = closed_forms.chunks_of(record, chunks)
    if stage is not None:
        names["r"] = num(0) if str(stage) == "0" else degree(str(stage))
    uneven: dict[str, list[Fraction]] = {}
    for option, (symbol, _) in _TIMES.items():
        text = given.get(option)
        if text is None:
            if symbol in (FORWARD, INPUT, WEIGHT) or symbol.name in values:
                names[symbol.name] = symbol
        elif text.isidentifier():
            names[symbol.name] = Sym(text, False, SECOND)
        else:
            found = [Quantity.parse(part) for part in text.split(",")]
            several = len(found) > 1 and symbol in (FORWARD, INPUT, WEIGHT)
            if any(q.unit not in (ONE, SECOND) or q.value < 0 for q in found) or len(found) > 1 > several:
                raise ValuesError(f"'{text[:40]}' is no time for '{option}'", hint="6 ms, or the name of a symbol")
            if several:
                uneven[symbol.name] = [q.value for q in found]
            else:
                names[symbol.name], values[symbol.name] = symbol, found[0].value
    ask = _AskedSchedule(record, names, values, uneven)
    if not [n for size in "pmv" for n in forms.names(names[size]) if n not in values]:
        record.fitting(*(ask.size(name) for name in "pmv"))
    return ask


def derived(
    setting: Setting, schedule: str, want: str = "time", chunks: object = None, stage: object = None,
    **times: str | None,
) -> Derivation:  # fmt: skip
    """The ``time`` of a step from its first start to its last end, one of the bubbles, the ``utilisation``, or the
    microbatches of a chunk ``in_flight``, on a ``stage`` or where they are the most.

    A closed form is taken where one is known and holds, else the numbers of the events. ``times`` are ``forward``,
    ``input_gradient``, ``weight_gradient`` (each for all stages, or a list for uneven ones), ``pair``, ``hop`` and
    ``overhead``; the last three are left out where nothing is said. Raises ``ValuesError`` where neither is there.
    """
    if want not in WANTED:
        raise ValuesError(f"'{want[:40]}' is not derived for a schedule", hint=nearest(want, [*WANTED]))
    if stage is not None and want != "in_flight":
        raise ValuesError(f"'stage' says where what is in flight is counted, not the {want}", hint="leave it out")
    ask = _asked(setting, schedule, chunks, stage, times)
    rows = _SIZES + tuple(
        Name(ask.names[symbol.name].name, "second", meaning)  # type: ignore[attr-defined]  # all times are symbols
        for symbol, meaning in _TIMES.values()
        if symbol.name in ask.names
    )
    if isinstance(rank := ask.names.get("r"), Sym):
        rows += (Name(rank.name, "", "rank of the pipeline, from 0", True),)
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
                          witness=over(*(Sym(one.name) for one in steps))))  # fmt: skip
        steps += _put_in(steps)
    title += f" of a training step under {ask.record.name}"
    exhibits = (_exhibit(ask.events),) if ask.events is not None and len(ask.events.orders) <= 16 else ()
    known = replace(setting, values=ask.values)
    return made(known, rows, title, steps, where=tuple(ask.where), exhibits=exhibits)


def _held(ask: _AskedSchedule, numbers: Numbers) -> int:
    """The most that a rank holds, or that any does."""
    ranks, batch, pieces = (int(number(ask.names[n], numbers)) for n in "pmv")
    every = [in_flight(order) for order in ask.record.ranks(ranks, batch, pieces)]
    return every[int(number(ask.names["r"], numbers))] if "r" in ask.names else max(every)


def _put_in(steps: Sequence[Step]) -> list[Step]:
    """The share with the times put in, where times cancel or it is one over the other."""
    import sympy as sp

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
