"""The time of a training step under a strategy: microbatches, layers, stages, and the end of the batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Literal, Unpack

from symcomm import form as forms
from symcomm.accounting import Accounting
from symcomm.derivation import Condition, Derivation, Numbers, Witness
from symcomm.errors import StrategyError, ValuesError, nearest
from symcomm.form import Form, Largest, Num, Ratio, Total, negative, num, product
from symcomm.graph.graph import Graph, Region
from symcomm.parallel.strategy import PipelineCut, Size, Strategy, degree, parse_strategy
from symcomm.program import pipeline
from symcomm.program.closed_forms import ClosedForm, chunks_of
from symcomm.program.closed_forms import slots as slots_of
from symcomm.program.schedules import USUAL_SCHEDULE, find
from symcomm.program.uneven import APART, WHOLE, Makespan, makespan
from symcomm.quantities.counting.load import ONE_DEVICE, Load, OpLoad, load, microbatched
from symcomm.quantities.declared import Meaning
from symcomm.quantities.options import (
    Chunks,
    Dtype,
    Frozen,
    GradientDtype,
    LinkedRates,
    Microbatches,
    ScheduleName,
    StrategyOption,
)
from symcomm.quantities.time.links import linked
from symcomm.quantities.time.terms import SECOND, Terms, TimeWriter, exhibit, need, touched
from symcomm.quantities.time.time import with_rates
from symcomm.quantities.witnesses import largest, number, over, together
from symcomm.setting import Setting, Work, mark
from symcomm.units import ONE

ANSWERS = ("step", "exposed", "hidden", "network")


@dataclass(frozen=True)
class StepTime:
    """What the steps of a step's time have settled, for what is derived from it."""

    setting: Setting
    strategy: Strategy
    work: Work
    writer: TimeWriter
    time: Form
    alone: Form | None
    network: Form | None
    fields: tuple[str, ...]
    load: Load
    notes: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class RegionTime:
    """The times of one repetition of a region and one microbatch, and of the end of the batch.

    ``work`` are those of the pieces of work that are timed apart: a whole microbatch (``""``), or its forward ``F`` and
    its backward ``D``, or ``B`` and ``W``, the gradients of the input and of the weights. ``alone`` are those without
    collectives, ``network`` those of the calls. ``last`` is the time of the last piece of work where the reduction of
    gradients runs beside it.
    """

    region: Region
    work: Mapping[str, Form]
    alone: Mapping[str, Form]
    network: Mapping[str, Form]
    end: Form | None = None
    last: Form | None = None
    end_network: Form | None = None


@dataclass(frozen=True)
class Run:
    """How a schedule is timed: in ``slots`` of a whole microbatch, or pieces of work apart, by their ``letters``.

    A rank's share of the layers is ``share`` stages.
    """

    said: str
    sizes: Mapping[str, Form]
    letters: str = ""
    slots: ClosedForm | None = None
    share: Form = Num(Fraction(1))  # noqa: RUF009  # frozen


def placed(strategy: Strategy | str | None) -> Strategy:
    """A strategy from what was said; one device where nothing was."""
    return parse_strategy(strategy) if isinstance(strategy, str) else strategy or ONE_DEVICE


def write(
    setting: Setting,
    strategy: Strategy | str | None,
    microbatches: Size | None,
    dtype: str | None,
    gradient_dtype: str | None,
    rates: Mapping[str, object],
    schedule: str | None = None,
    chunks: Size | None = None,
    parts: bool = False,
) -> StepTime:
    """The steps of a step's time; with ``parts`` those of the step without the network, and of the network alone."""
    setting = setting.in_format(dtype)
    chosen = placed(strategy)
    cut = chosen.pipeline
    if cut is not None and microbatches is not None:
        chosen = replace(chosen, pipeline=replace(cut, microbatches=degree(microbatches)))
        cut = chosen.pipeline
    if cut is None and (schedule is not None or chunks is not None):
        raise StrategyError("'schedule' and 'chunks' belong to a pipeline", hint="such as pipeline(8, microbatches=32)")
    m = cut.microbatches if cut is not None else degree(microbatches or 1)
    setting = setting.divided(chosen)
    micro = microbatched(setting, m)
    every = load(micro, chosen, gradient_dtype)
    between = [(p, c) for p, c in every.calls if c.meshes == ("pipe",)]
    every = replace(every, calls=tuple(one for one in every.calls if one not in between))
    stages: tuple[Form, ...] = (pipeline.stage_count(cut, setting.graph),) if cut is not None else ()
    made = linked(setting, chosen, rates, m, *stages)
    work = Work(micro, *chosen.forms, *made.symbols, m, *stages)
    writer = TimeWriter(work, made, chosen)

    kinds: Mapping[str, pipeline.Held] = pipeline.kinds(setting.graph, cut, setting.values)
    run = _run(setting, kinds, schedule, chunks, {"p": stages[0] if stages else num(1), "m": m}, every)
    found = [_region_time(writer, every, region, run.letters, parts) for region in every.regions]
    if not any(one.work for one in found):
        need(None, "a training step")
    p = work.called("p", stages[0], ONE, "stages", "The number of stages.") if stages else num(1)
    if cut is not None and not cut.layers:
        kinds = _layers_named(work, setting.graph, cut, kinds, p)
    pipe = _Pipe(writer, found, kinds, run, p, replace(every, ops=(), calls=tuple(between)))
    time = pipe.step(ordered=len([region for region in setting.graph.regions if region.times]) == 1)
    fields = [*touched(micro, every), *(["gradient_sync"] if every.of("end").calls else [])]
    often = setting.accounting.accumulation != Accounting.accumulation  # then one microbatch, too, reduces earlier
    if (m != num(1) or often) and any(c.accumulates for _, c in every.calls):
        fields.append("accumulation")
    alone, network = (pipe.without_network(), pipe.network_alone()) if parts else (None, None)
    return StepTime(
        setting, chosen, work, writer, time, alone, network, tuple(fields), every, tuple(pipe.notes), tuple(pipe.where)
    )


def _run(
    setting: Setting, kinds: Mapping[str, pipeline.Held], schedule: str | None, chunks: Size | None,
    sizes: Mapping[str, Form], every: Load,
) -> Run:  # fmt: skip
    """How the schedule of a pipeline is timed. Raises ``StrategyError`` for sizes that it does not take."""
    if schedule is None and (sizes["p"] == num(1) and "only" in kinds):
        return Run(USUAL_SCHEDULE, {**sizes, "v": num(1)})
    said = schedule or USUAL_SCHEDULE
    record = find(said)
    v = chunks_of(record, chunks)
    sizes = {**sizes, "v": v}
    values = setting.graph.relations.complete(setting.values)
    if all(name in values for form in sizes.values() for name in forms.names(form)):
        record.fitting(*(int(forms.evaluate(sizes[name], values)) for name in "pmv"))
    copies = record.placement.copies(2, int(v.number)) if isinstance(v, forms.Num) else Fraction(1)
    share = v if copies == 1 else num(v.number / copies)  # type: ignore[attr-defined]  # copies are of a number
    if share != num(1) and ("1" in kinds or len([r for r in setting.graph.regions if r.times]) > 1):
        raise StrategyError(
            f"the stages hold different numbers or kinds of layers, and {record.name} cuts them into chunks as well",
            hint="schedule: 1f1b",
        )
    passes = slots_of(record) if "only" in kinds else None
    beside = setting.accounting.gradient_sync == "with_backward" and bool(every.of("end").calls)
    if passes is not None and not (beside and v != num(1)):
        return Run(said, sizes, "", passes, share)
    return Run(said, sizes, APART if "B" in record.kinds else WHOLE, None, share)


def _layers_named(
    work: Work, graph: Graph, cut: PipelineCut, kinds: Mapping[str, pipeline.Held], p: Form
) -> Mapping[str, pipeline.Held]:
    """The stages with a name for the layers of one of them."""
    usual = kinds.get("middle", kinds.get("only"))
    if usual is None or not usual.counts:
        return kinds
    share = usual.counts[0][1]
    form = cut.layers_per_stage or Ratio(pipeline.layer_count(graph), p)
    n = work.define("n_stage", form, ONE, "layers of a stage", "Each stage holds its share of the layers.",
                    witness=together([form]) if cut.layers_per_stage else over(pipeline.layer_count(graph), p))

    def put(count: Form) -> Form:
        rest = count.terms[1:] if isinstance(count, Total) and count != share else ()
        return n if count == share else Total((n, *rest)) if rest else count

    return {
        kind: replace(held, counts=tuple((name, put(count)) for name, count in held.counts))
        for kind, held in kinds.items()
    }


def _add(terms: Sequence[Form]) -> Form:
    return terms[0] if len(terms) == 1 else Total(tuple(terms))


_WORK = {
    "": "forward and backward", "F": "forward", "D": "backward", "B": "gradients of its input",
    "W": "gradients of its weights",
}  # fmt: skip


def _piece(inner: Load, letter: str) -> Load:
    """What a rank does in a piece of work of one microbatch; collectives of a backward are with its first piece."""
    if letter in ("", "F", "D"):
        return inner.of(*{"": ("forward", "backward"), "F": ("forward",), "D": ("backward",)}[letter])
    back = inner.of("backward")
    tensors = back.graph.tensors

    def of_weight(op: OpLoad) -> bool:
        made = tensors[op.op.output]
        return made.role == "gradient" and tensors[made.of].role == "weight"

    ops = tuple(op for op in back.ops if of_weight(op) == (letter == "W"))
    return replace(back, ops=ops, calls=back.calls if letter == "B" else ())


def _region_time(writer: TimeWriter, every: Load, region: Region, letters: str, parts: bool) -> RegionTime:
    """The steps to the times of one repetition of a region."""
    work, lone = writer.work, len(every.regions) == 1
    mine = every.region(region.name)
    end = mine.of("end")
    label = "" if lone else mark(region)
    what = "One layer and microbatch" if region.times else f"The {region.name}, one microbatch"
    times: dict[str, Form] = {}
    alone: dict[str, Form] = {}
    network: dict[str, Form] = {}
    terms = Terms()
    for letter in letters or ("",):
        tag = f"_{','.join(filter(None, (letter, label)))}" if letter or label else ""
        terms = writer.terms(_piece(mine, letter), tag)
        one = writer.time(f"t{tag or '_layer'}", terms, f"{what}, {_WORK[letter]}")
        local = writer.local(f"t_alone{tag}", terms, f"{what} without its collectives") if parts else None
        for found, form in ((times, one), (alone, local), (network, terms.network)):
            if form is not None:
                found[letter] = form
    if writer.setting.accounting.gradient_sync == "with_backward" and bool(every.of("end").calls):
        beside = writer.terms(replace(mine, ops=(), calls=end.calls), f"_sync{label}")
        together = joined(work, terms, beside)
        last = writer.time(f"t_last{tag}", together, "The last microbatch, with the reduction of the gradients")
        return RegionTime(region, times, alone, network, None, last, beside.network)
    ends = writer.terms(end, f"_end{label}" if lone else f"_end,{label}")
    whose = "one layer" if region.times else f"the {region.name}"
    name = "t_end" if lone else f"t_end,{label}"
    return RegionTime(region, times, alone, network, writer.time(name, ends, f"The end of the batch, {whose}"),
                      end_network=ends.network)  # fmt: skip


class _Pipe:
    """Writes the time of all microbatches and of the end of the batch, of the kinds of stages that there are."""

    def __init__(
        self, writer: TimeWriter, found: Sequence[RegionTime], kinds: Mapping[str, pipeline.Held], run: Run, p: Form,
        between: Load,
    ) -> None:  # fmt: skip
        self.writer, self.work, self.found, self.kinds, self.run = writer, writer.work, found, kinds, run
        self.shown = {**run.sizes, "p": p}  # the sizes as they are written
        self.where = list(dict.fromkeys(condition for held in kinds.values() for condition in held.where))
        self.notes: list[str] = []
        self.slots: Form = run.sizes["m"]
        self.ordered = False
        ties = replace(between, calls=tuple((p, c) for p, c in between.calls if c.kind != "send"))
        sends = replace(between, calls=tuple((p, c) for p, c in between.calls if c.kind == "send"))
        apart = {"F": sends.of("forward"), "DB"[run.letters == APART]: sends.of("backward")}
        self.sent: dict[str, Form] = {}
        for letter, part in apart.items() if run.letters else (("", sends),):
            if part.calls:
                tag = f"_send,{letter}" if letter else "_send"
                self.sent[letter] = need(writer.terms(part, tag).network, "the messages of a pipeline")
        self.tie = writer.terms(ties, "_tie").network if ties.calls else None

    # -- one stage -------------------------------------------------------------------------------

    def together(self, name: str, kind: str, forms_of: Sequence[tuple[Region, Form | None]], text: str) -> Form | None:
        """What the regions of a stage take one after the other, each as often as it stands there."""
        held = self.kinds[kind]
        mine = [(held.times(region), form) for region, form in forms_of if form is not None
                and (kind == "only" or region.name in held.regions)]  # fmt: skip
        if self.run.letters and self.run.share != num(1):
            repeated = {region.name for region, _ in forms_of if region.times}
            mine = [
                (Ratio(held.times(region), self.run.share) if region.name in repeated else num(1), form)
                for region, form in forms_of if form is not None and (kind == "only" or region.name in held.regions)
            ]  # fmt: skip
        terms = [product(count, form) for count, form in mine]
        if len(terms) == 1 and mine[0][0] == num(1) and kind == "only":
            return terms[0]
        return self.work.define(name, _add(terms), SECOND, "repeat", text, witness=_repeated(mine)) if terms else None

    def slot(self, name: str, time: Form, letter: str) -> Form:
        """The time of a stage for a piece of work, with its message."""
        if letter not in self.sent:
            return time
        overlaps = self.writer.setting.accounting.time == "overlap"
        form = Largest((time, self.sent[letter])) if overlaps else Total((time, self.sent[letter]))
        text = "A stage computes one microbatch and sends what it made"
        text += " at the same time." if overlaps else ", one after the other."
        both = (time, self.sent[letter])
        return self.work.define(name, form, SECOND, "slot of the pipeline", text,
                                witness=largest(both) if overlaps else together(both))  # fmt: skip

    def ends(self, name: str, what: str) -> Form | None:
        """The end of the batch: of the stage that it takes longest, and what stages add up between them."""
        of = [(one.region, getattr(one, what)) for one in self.found]
        each = [self.together(f"{name},{kind}" if len(self.kinds) > 1 else name, kind, of,
                              "The end of the batch, all that a stage holds.") for kind in self.kinds]  # fmt: skip
        known = list(dict.fromkeys(form for form in each if form is not None))
        tie = [] if self.tie is None else [self.tie]
        longest = [Largest(tuple(known)) if len(known) > 1 else known[0]] if known else []
        return _add([*longest, *tie]) if longest or tie else None

    # -- all stages ------------------------------------------------------------------------------

    def step(self, ordered: bool) -> Form:
        """The time of a step; ``ordered`` says that no stage holds more than the first one and the last one do."""
        self.ordered = ordered
        total = self.apart() if self.run.letters else self.even()
        end = self.ends("t_ends", "end")
        total += [end] if end is not None else []
        text = "All microbatches" + (", then the end of the batch." if end is not None else ".")
        return self.work.define("T_step", _add(total), SECOND, "add", text, witness=together(total))

    def even(self) -> list[Form]:
        """The slots of stages that are alike."""
        work, run, v = self.work, self.run, self.run.sizes["v"]
        of = [(one.region, one.work.get("")) for one in self.found]
        slot = self.together("t_stage", "only", of, "All layers of a rank, one microbatch.")
        assert slot is not None
        if run.slots is not None:
            self.where += run.slots.said(run.sizes).conditions
            if v != num(1):
                slot = work.define("t_chunk", Ratio(slot, v), SECOND, "chunks", "The layers of a rank are in chunks.",
                                   witness=over(slot, v))  # fmt: skip
            text = "The last stage gets its first microbatch after p - 1 slots."
            self.slots = work.define("n_slots", run.slots.said(self.shown).form, ONE, run.said, text,
                                     witness=self.followed([num(1) for _ in WHOLE], WHOLE, slots=2))  # fmt: skip
        whole = self.slot("t_slot", slot, "")
        if not any(one.last for one in self.found):
            return [product(self.slots, whole)]
        of = [(one.region, one.last or one.work.get("")) for one in self.found]
        last = self.together("t_stage,last", "only", of, "All layers of a rank, the last microbatch.")
        assert last is not None
        last = self.slot("t_slot,last", last, "")
        return [*([product(Total((self.slots, num(-1))), whole)] if self.slots != num(1) else []), last]

    def times(self, name: str, what: str, messages: bool) -> dict[tuple[str, str], Form]:
        """The time of each piece of work on each kind of stage."""
        found: dict[tuple[str, str], Form] = {}
        for letter in self.run.letters:
            of = [(one.region, getattr(one, what).get(letter)) for one in self.found]
            for kind in self.kinds:
                text = f"{_stage_said(kind)}, one microbatch, {_WORK[letter]}."
                form = self.together(f"{name}{letter},{kind}", kind, of, text) or Num(Fraction(0), SECOND)
                found[letter, kind] = self.slot(f"{name}slot,{letter},{kind}", form, letter) if messages else form
        return found

    def makespan(self, times: Mapping[tuple[str, str], Form], tails: Sequence[Form] = ()) -> ClosedForm:
        """The time of all microbatches, under the schedule."""
        run = self.run
        said = run.said, run.letters, len(self.kinds)
        rest = [*times.values()], self.ordered and "middle" in self.kinds, tails
        settled = makespan(*said, run.sizes, *rest)
        self.where += [condition for condition in settled.conditions if condition not in self.where]
        return makespan(*said, self.shown, *rest)

    def apart(self) -> list[Form]:
        """The longest way through the events of a schedule, its pieces of work timed apart."""
        letter, times = self.run.letters[-1], self.times("t_", "work", True)
        tails: list[Form] = []
        if any(one.last is not None for one in self.found):
            of = [(one.region, one.last or one.work.get(letter)) for one in self.found]
            for kind in self.kinds:
                last = self.together(f"t_{letter},{kind},last", kind, of, f"{_stage_said(kind)}, the last microbatch.")
                assert last is not None
                last = self.slot(f"t_slot,{letter},{kind},last", last, letter)
                form = Total((last, negative(times[letter, kind])))
                tails.append(self.work.define(f"t_more,{kind}", form, SECOND, "reduction of gradients",
                                              "What the last microbatch takes longer.",
                                              witness=_longer(last, times[letter, kind])))  # fmt: skip
        found = self.makespan(times, tails)
        text = f"The longest way through the events; {found.cases} simulated sizes agree."
        if not found.cases:
            text = "The events are followed one by one: the sizes, then the times of the stages for each piece of work."
        if "+" in find(self.run.said).kinds:
            self.notes.append("A forward and a backward that overlap are taken to last as long as one after the other.")
        if len(self.kinds) == 3 and "middle" in self.kinds:
            self.notes.append("The stages are at least two; the first and the last one hold more than layers.")
        return [self.work.define("T_pipeline", found.form, SECOND, self.run.said, text,
                                 witness=self.followed([*times.values(), *tails], tails=bool(tails)))]  # fmt: skip

    def followed(
        self, times: Sequence[Form], letters: str | None = None, slots: int = 1, tails: bool = False
    ) -> Witness:
        """The events of a batch one by one, at the times of its pieces of work."""
        run, kinds = self.run, 1 if letters else len(self.kinds)
        rule = Makespan(run.said, SECOND, run.said, letters or run.letters, kinds, tails)

        def makespan(numbers: Numbers) -> Fraction:
            given = (*(run.sizes[size] for size in "pmv"), *times)
            return rule.number(tuple(number(form, numbers) for form in given)) / slots

        return makespan

    # -- parts of the time -----------------------------------------------------------------------

    def without_network(self) -> Form | None:
        """The step if nothing had to be sent."""
        return self.part("T_alone", "alone", "without the network", "The step if nothing had to be sent.")

    def network_alone(self) -> Form | None:
        """All that is sent, as it follows one another."""
        text = "All calls of the step, as they follow one another on one rank."
        return self.part("T_network", "network", "all that is sent", text)

    def part(self, name: str, what: str, rule: str, text: str) -> Form | None:
        """The step of a part of what is done."""
        sent = self.sent if what == "network" else {}
        end = self.ends(f"{name},end", "end_network") if what == "network" else None
        terms: list[Form] = []
        witness: Witness | None = None
        if any(getattr(one, what) for one in self.found) or sent:
            if self.run.letters:
                times = self.times(f"{name},", what, False)
                if sent:
                    times = {at: Total((form, sent[at[0]])) if at[0] in sent else form for at, form in times.items()}
                terms, witness = [self.makespan(times).form], self.followed([*times.values()])
            else:
                v = self.run.sizes["v"]
                rounds = self.slots if v == num(1) else Ratio(self.slots, v)
                held = self.kinds["only"]
                parts = [(held.times(one.region), getattr(one, what).get("")) for one in self.found]
                terms = [product(product(rounds, count), form) for count, form in parts if form is not None]
                terms += [product(self.slots, form) for form in sent.values()]
                busy = [(product(rounds, count), form) for count, form in parts]
                witness = _repeated([*busy, *((self.slots, form) for form in sent.values())])
        terms += [end] if end is not None else []
        counted = _one_by_one(witness, end)
        return self.work.define(name, _add(terms), SECOND, rule, text, witness=counted) if terms else None


def _one_by_one(first: Witness | None, end: Form | None) -> Witness:
    """What one witness counts, and the end of the batch."""
    return lambda numbers: (first(numbers) if first else 0) + (number(end, numbers) if end is not None else 0)


def _longer(last: Form, usual: Form) -> Witness:
    return lambda numbers: number(last, numbers) - number(usual, numbers)


def _repeated(parts: Iterable[tuple[Form, Form | None]]) -> Witness:
    """Times that follow one another, each so many times."""
    several = [(count, form) for count, form in parts if form is not None]
    return lambda numbers: sum((number(n, numbers) * number(form, numbers) for n, form in several), Fraction(0))


def _stage_said(kind: str) -> str:
    said = {"first": "The first stage", "middle": "A stage between", "last": "The last stage", "only": "A stage"}
    return said.get(kind, f"Stage {kind}")


def joined(work: Work, terms: Terms, beside: Terms) -> Terms:
    """The terms of two loads that run side by side."""

    def both(a: Form | None, b: Form | None, name: str) -> Form | None:
        if a is None or b is None:
            return a if b is None else b
        return work.define(name, Total((a, b)), SECOND, "add", "Both together.", witness=together([a, b]))

    return replace(
        terms,
        memory=both(terms.memory, beside.memory, "t_memory,last"),
        network=both(terms.network, beside.network, "t_network,last"),
    )


def derive(
    setting: Setting,
    strategy: StrategyOption | None = None,
    microbatches: Microbatches | None = None,
    of: Annotated[
        Literal["step", "exposed", "hidden", "network"], Meaning("the step, or a part of its communication")
    ] = "step",
    dtype: Dtype | None = None,
    gradient_dtype: GradientDtype | None = None,
    schedule: ScheduleName | None = None,
    chunks: Chunks | None = None,
    frozen: Frozen | None = None,
    **rates: Unpack[LinkedRates],
) -> Derivation:
    """The time of a training step under a strategy.

    The time of one training step; or how much of its communication is ``exposed``, ``hidden``, or there at all.

    A pipeline runs the usual ``schedule``, or the one that is named. Stages that are alike are timed in slots of a
    whole microbatch where that is enough; else forwards and backwards (or the gradients of inputs and weights) are
    timed apart, and the step is the longest way through the events of the schedule. The update is not counted.
    """
    if of not in ANSWERS:
        raise ValuesError(f"unknown answer '{of[:40]}'", hint=nearest(of, [*ANSWERS]))
    setting = setting.freeze(frozen)
    made = write(setting, strategy, microbatches, dtype, gradient_dtype, rates, schedule, chunks, of != "step")
    work, writer = made.work, made.writer
    title = f"Time of a training step under {made.strategy.name.lower()}"
    steps = work.steps
    if of == "network":
        steps = [s for s in steps if not s.name.startswith(("t_alone", "T_alone"))]
    if of != "step" and made.network is None:
        raise ValuesError(f"{made.strategy.name} sends nothing", hint="name a strategy such as data(k)")
    if of in ("exposed", "hidden"):
        assert made.alone is not None
        assert made.network is not None
        exposed = work.define(
            "T_exposed",
            Total((made.time, negative(made.alone))),
            SECOND,
            "exposed",
            "What the step takes longer than it would without the network.",
            witness=together([made.time, negative(made.alone)]),
        )
        if of == "hidden":
            work.define(
                "T_hidden",
                Total((made.network, negative(exposed))),
                SECOND,
                "hidden",
                "What is sent while something else takes longer.",
                witness=together([made.network, made.alone, negative(made.time)]),
            )
    if of != "step":
        title = {"exposed": "Exposed communication", "hidden": "Hidden communication", "network": "Communication time"}[
            of
        ] + f" of a training step under {made.strategy.name.lower()}"
    shown = [exhibit(work.setting, made.load)] if made.strategy.mesh else []
    answer = replace(made.setting.derivation(title, steps, made.fields, shown, made.notes), where=made.where)
    return with_rates(answer, writer)
