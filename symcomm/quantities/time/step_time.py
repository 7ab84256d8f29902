"""The time of a training step under a strategy: microbatches, layers, stages, and the end of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Unpack

from symcomm import form as forms
from symcomm.derivation import Condition, Derivation
from symcomm.errors import StrategyError, ValuesError, nearest
from symcomm.form import Form, Largest, Ratio, Sym, Total, negative, num, product
from symcomm.graph.graph import Region
from symcomm.parallel import pipeline
from symcomm.parallel.placement import check_divisible
from symcomm.parallel.strategy import PipelineCut, Size, Strategy, degree, parse_strategy
from symcomm.program.closed_forms import ClosedForm, chunks_of
from symcomm.program.closed_forms import slots as slots_of
from symcomm.program.schedules import USUAL_SCHEDULE, find
from symcomm.quantities.counting.load import ONE_DEVICE, Load, load, microbatched
from symcomm.quantities.declared import Meaning
from symcomm.quantities.options import (
    Chunks,
    Dtype,
    GradientDtype,
    LinkedRates,
    Microbatches,
    ScheduleName,
    StrategyOption,
)
from symcomm.quantities.setting import Setting, Work, mark
from symcomm.quantities.time.links import linked
from symcomm.quantities.time.terms import SECOND, Terms, Writer, exhibit, need, touched
from symcomm.quantities.time.time import with_rates
from symcomm.units import ONE

ANSWERS = ("step", "exposed", "hidden", "network")


@dataclass(frozen=True)
class StepTime:
    """What the steps of a step's time have settled, for what is derived from it."""

    setting: Setting
    strategy: Strategy
    work: Work
    writer: Writer
    time: Form
    alone: Form | None
    network: Form | None
    fields: tuple[str, ...]
    load: Load
    notes: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class RegionTime:
    """The times of one repetition of a region: one microbatch, without its collectives, its calls, and the end.

    ``last`` is the time of the last microbatch where the reduction of gradients runs beside it.
    """

    region: Region
    once: Form | None
    alone: Form | None
    network: Form | None
    end: Form | None = None
    last: Form | None = None
    end_network: Form | None = None


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
) -> StepTime:
    """The steps of a step's time."""
    setting = setting.in_format(dtype)
    chosen = placed(strategy)
    cut = chosen.pipeline
    if cut is not None and microbatches is not None:
        chosen = replace(chosen, pipeline=replace(cut, microbatches=degree(microbatches)))
        cut = chosen.pipeline
    if cut is None and (schedule is not None or chunks is not None):
        raise StrategyError("'schedule' and 'chunks' belong to a pipeline", hint="such as pipeline(8, microbatches=32)")
    m = cut.microbatches if cut is not None else degree(microbatches or 1)
    check_divisible(setting.graph, chosen, setting.values)
    micro = microbatched(setting, m)
    every = load(micro, chosen, gradient_dtype)
    sends = [(p, c) for p, c in every.calls if c.kind == "send"]
    every = replace(every, calls=tuple((p, c) for p, c in every.calls if c.kind != "send"))
    stages: tuple[Form, ...] = (pipeline.stage_count(cut, setting.graph),) if cut is not None else ()
    made = linked(setting, chosen, rates, m, *stages)
    work = Work(micro, *chosen.forms, *made.symbols, m, *stages)
    writer = Writer(work, made, chosen)

    found = [_region_time(writer, every, region) for region in every.regions]
    if not any(one.once for one in found):
        need(None, "a training step")
    held = pipeline.held(setting.graph, None)
    p: Form = num(1)
    if cut is not None:
        layers = pipeline.stacked(setting.graph)
        p = work.called("p", stages[0], ONE, "stages", "The number of stages.")
        per_stage = cut.layers_per_stage or Ratio(Sym(layers.times), p)
        n = work.define("n_stage", per_stage, ONE, "layers of a stage", "Each stage holds its share of the layers.")
        held = replace(held, layers=n)
    sent = _message(writer, replace(every, ops=(), calls=tuple(sends))) if sends else None
    synchronised = any(one.last is not None for one in found)
    notes: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    v: Form = num(1)
    if cut is not None and (len(found) > 1 or cut.layers):
        if schedule not in (None, "gpipe"):
            raise StrategyError(
                "stages differ, so that the time does not follow from that of one of them",
                hint=f"pipeline_time takes a list of their times for schedule: {schedule}",
            )
        total, notes = _uneven(writer, _stages(found, held, cut, p), sent, m)
        notes += ("Stages differ: all microbatches run forward before the first one runs backward (gpipe).",)
        slots: Form = Total((m, p, num(-1)))
    else:
        slot = _together(work, "t_stage", found, held, "once", "All layers of a rank, one microbatch.")
        assert slot is not None
        slots = m
        if cut is not None:
            v, passes = _slots(setting, schedule or USUAL_SCHEDULE, chunks, {"m": m, "p": stages[0]}, synchronised)
            where = passes.conditions
            if v != num(1):
                slot = work.define("t_chunk", Ratio(slot, v), SECOND, "chunks", "The layers of a rank are in chunks.")
            text = "The last stage gets its first microbatch after p - 1 slots."
            shown = slots_of(find(schedule or USUAL_SCHEDULE)) or passes
            form = shown.said({"m": m, "p": p, "v": v}).form
            slots = work.define("n_slots", form, ONE, schedule or USUAL_SCHEDULE, text)
        if sent is not None:
            slot = _slot(writer, "t_slot", slot, sent)
        total = [product(slots, slot)]
        if synchronised:
            final = _together(work, "t_stage,last", found, held, "last", "All layers of a rank, the last microbatch.")
            assert final is not None
            total = [*([product(Total((slots, num(-1))), slot)] if slots != num(1) else []), final]
    if not synchronised:
        ends = [product(held.times(one.region), one.end) for one in found if one.end is not None]
        total += [Total(tuple(ends)) if len(ends) > 1 else ends[0]] if ends else []
    text = "All microbatches" + (", then the end of the batch." if any(one.end for one in found) else ".")
    time = work.define("T_step", _add(total), SECOND, "add", text)

    def every_part(what: str) -> list[Form]:
        parts = [(held.times(one.region), getattr(one, what)) for one in found]
        rounds = slots if v == num(1) else Ratio(slots, v)
        return [product(product(rounds, count), form) for count, form in parts if form is not None]

    local = every_part("alone")
    alone = None
    if local:
        alone = work.define("T_alone", _add(local), SECOND, "without the network",
                            "The step if nothing had to be sent.")  # fmt: skip
    busy = [*every_part("network"), *([product(slots, sent)] if sent is not None else [])]
    busy += [product(held.times(one.region), one.end_network) for one in found if one.end_network is not None]
    network = None
    if busy:
        text = "All calls of the step, as they follow one another on one rank."
        network = work.define("T_network", _add(busy), SECOND, "all that is sent", text)
    fields = [*touched(micro, every), *(["gradient_sync"] if every.of("end").calls else [])]
    return StepTime(setting, chosen, work, writer, time, alone, network, tuple(fields), every, notes, where)


def _slots(
    setting: Setting, schedule: str, chunks: Size | None, sizes: dict[str, Form], synchronised: bool
) -> tuple[Form, ClosedForm]:
    """The chunks of a rank and the number of slots, each a forward and a backward of one chunk.

    Raises ``StrategyError`` for sizes that the schedule does not take, and for one whose time does not follow from that
    of whole microbatches.
    """
    record = find(schedule)
    v, passes = chunks_of(record, chunks), slots_of(record)
    if passes is None or (synchronised and v != num(1)):
        raise StrategyError(
            f"the time of {record.name} does not follow from that of whole microbatches",
            hint="pipeline_time takes the times of its forwards and backwards apart",
        )
    sizes = {**sizes, "v": v}
    values = setting.graph.relations.complete(setting.values)
    if all(name in values for form in sizes.values() for name in forms.names(form)):
        record.fitting(*(int(forms.evaluate(sizes[name], values)) for name in "pmv"))
    return v, passes.said(sizes)


def _add(terms: list[Form]) -> Form:
    return terms[0] if len(terms) == 1 else Total(tuple(terms))


def _region_time(writer: Writer, every: Load, region: Region) -> RegionTime:
    """The steps to the times of one repetition of a region."""
    work, lone = writer.work, len(every.regions) == 1
    mine = every.region(region.name)
    inner, end = mine.of("forward", "backward"), mine.of("end")
    tag = "" if lone else f"_{mark(region)}"
    what = "One layer and microbatch" if region.times else f"The {region.name}, one microbatch"
    terms = writer.terms(inner, tag)
    once = writer.time("t_layer" if lone else f"t{tag}", terms, f"{what}, forward and backward")
    alone = writer.local(f"t_alone{tag}", terms, f"{what} without its collectives")
    if writer.setting.accounting.gradient_sync == "with_backward" and bool(every.of("end").calls):
        beside = writer.terms(replace(mine, ops=(), calls=end.calls), f"_sync{tag[1:]}")
        together = joined(work, terms, beside)
        last = writer.time(f"t_last{tag}", together, "The last microbatch, with the reduction of the gradients")
        return RegionTime(region, once, alone, terms.network, None, last or once, beside.network)
    ends = writer.terms(end, f"_end{tag[1:]}" if lone else f"_end,{mark(region)}")
    whose = "one layer" if region.times else f"the {region.name}"
    name = "t_end" if lone else f"t_end,{mark(region)}"
    return RegionTime(region, once, alone, terms.network, writer.time(name, ends, f"The end of the batch, {whose}"),
                      end_network=ends.network)  # fmt: skip


def _together(
    work: Work, name: str, found: Sequence[RegionTime], held: pipeline.Held, what: str, text: str
) -> Form | None:
    """What the regions of a rank take one after the other, each as often as it stands there."""
    parts = [(held.times(one.region), getattr(one, what)) for one in found]
    terms = [product(count, form) for count, form in parts if form is not None]
    if len(terms) == 1 and parts[0][0] == num(1):
        return terms[0]
    return work.define(name, _add(terms), SECOND, "repeat", text) if terms else None


def _slot(writer: Writer, name: str, slot: Form, sent: Form) -> Form:
    """The time of a stage for one microbatch, with its messages."""
    overlaps = writer.setting.accounting.time == "overlap"
    form = Largest((slot, sent)) if overlaps else Total((slot, sent))
    text = "A stage computes one microbatch and sends what it made"
    text += " at the same time." if overlaps else ", one after the other."
    return writer.work.define(name, form, SECOND, "slot of the pipeline", text)


@dataclass(frozen=True)
class Stage:
    """Stages that are alike: how many there are, what one holds, and how a reader is told."""

    name: str
    count: Form
    regions: list[RegionTime]
    held: pipeline.Held
    text: str


def _stages(found: list[RegionTime], held: pipeline.Held, cut: PipelineCut, p: Form) -> list[Stage]:
    """The kinds of stages: the first one, those between, and the last one; or each, where the layers are given."""
    at = next(n for n, one in enumerate(found) if one.region.times)
    if p == num(1):
        return [Stage("only", num(1), found, held, "The only stage, one microbatch.")]
    if cut.layers:
        last = len(cut.layers) - 1
        return [
            Stage(str(n + 1), num(1), found[(0 if n == 0 else at) : (len(found) if n == last else at + 1)],
                  replace(held, layers=num(layers)), f"Stage {n + 1}, one microbatch.")
            for n, layers in enumerate(cut.layers)
        ]  # fmt: skip
    before = "The first stage, with what stands before the layers, one microbatch."
    behind = "The last stage, with what stands behind the layers, one microbatch."
    return [
        Stage("first", num(1), found[: at + 1], held, before),
        Stage("middle", Total((p, num(-2))), [found[at]], held, "A stage between, one microbatch."),
        Stage("last", num(1), found[at:], held, behind),
    ]


def _uneven(writer: Writer, stages: list[Stage], sent: Form | None, m: Form) -> tuple[list[Form], tuple[str, ...]]:
    """The slots of a pipeline whose stages differ.

    Source: Huang et al., arXiv 1811.06965: a microbatch passes all stages, the others follow at the slowest one's pace.
    """
    work = writer.work

    def slot(one: Stage, what: str, mark: str, text: str) -> Form:
        form = _together(work, f"t_{one.name}{mark}", one.regions, one.held, what, text)
        assert form is not None
        return form if sent is None else _slot(writer, f"t_slot,{one.name}{mark}", form, sent)

    slots = [slot(one, "once", "", one.text) for one in stages]
    # A stage between holds no more than the first one: it is never the slowest alone.
    wide = [n for n, one in enumerate(stages) if one.name != "middle"]
    slowest = work.define("t_slowest", Largest(tuple(slots[n] for n in wide)), SECOND, "slowest stage",
                          "The others wait for it.")  # fmt: skip
    text = "The first microbatch passes the stages one after the other."
    every = Total(tuple(product(one.count, form) for one, form in zip(stages, slots, strict=True)))
    passing = work.define("t_pass", every, SECOND, "pass through all stages", text)
    notes = () if len(wide) == len(stages) else (
        "The stages are at least two; the first and the last one hold more than layers.",
    )  # fmt: skip
    if not any(region.last is not None for one in stages for region in one.regions):
        return [passing, product(Total((m, num(-1))), slowest)], notes
    text = "The same with the reduction of the gradients."
    final = [slot(stages[n], "last", ",sync", text) for n in wide]
    end = work.define("t_slowest,sync", Largest(tuple(final)), SECOND, "slowest stage", "The last microbatch.")
    return [Total((passing, forms.negative(slowest))), product(Total((m, num(-1))), slowest), end], notes


def _message(writer: Writer, sends: Load) -> Form:
    """The time of a stage's messages: what it sends forward and what it sends back, one after the other."""
    terms = writer.terms(sends, "_send")
    return need(terms.network, "the messages of a pipeline")


def joined(work: Work, terms: Terms, beside: Terms) -> Terms:
    """The terms of two loads that run side by side."""

    def both(a: Form | None, b: Form | None, name: str) -> Form | None:
        if a is None or b is None:
            return a if b is None else b
        return work.define(name, Total((a, b)), SECOND, "add", "Both together.")

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
    **rates: Unpack[LinkedRates],
) -> Derivation:
    """The time of a training step under a strategy.

    The time of one training step; or how much of its communication is ``exposed``, ``hidden``, or there at all.

    A pipeline runs the usual ``schedule``, or one whose time follows from that of whole microbatches; where stages
    differ, as the first and last one do that hold more than layers, it runs GPipe's. The update is not counted.
    """
    if of not in ANSWERS:
        raise ValuesError(f"unknown answer '{of[:40]}'", hint=nearest(of, [*ANSWERS]))
    made = write(setting, strategy, microbatches, dtype, gradient_dtype, rates, schedule, chunks)
    work, writer = made.work, made.writer
    title = f"Time of a training step under {made.strategy.name.lower()}"
    steps = work.steps
    if of == "step":
        steps = [s for s in steps if not s.name.startswith(("t_alone", "T_alone", "T_network"))]
    elif made.network is None:
        raise ValuesError(f"{made.strategy.name} sends nothing", hint="name a strategy such as data(k)")
    elif of == "network":
        steps = [s for s in steps if not s.name.startswith(("t_alone", "T_alone"))]
    else:
        assert made.alone is not None
        exposed = work.define(
            "T_exposed",
            Total((made.time, negative(made.alone))),
            SECOND,
            "exposed",
            "What the step takes longer than it would without the network.",
        )
        if of == "hidden":
            work.define(
                "T_hidden",
                Total((made.network, negative(exposed))),
                SECOND,
                "hidden",
                "What is sent while something else takes longer.",
            )
    if of != "step":
        title = {"exposed": "Exposed communication", "hidden": "Hidden communication", "network": "Communication time"}[
            of
        ] + f" of a training step under {made.strategy.name.lower()}"
    shown = [exhibit(work.setting, made.load)] if made.strategy.mesh else []
    answer = replace(made.setting.derivation(title, steps, made.fields, shown, made.notes), where=made.where)
    return with_rates(answer, writer)
