"""The time of a training step under a strategy: microbatches, layers, stages, and the end of the batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Unpack

from symcomm.derivation import Derivation
from symcomm.errors import ValuesError, nearest
from symcomm.form import Form, Largest, Ratio, Total, negative, num, product
from symcomm.parallel import pipeline
from symcomm.parallel.placement import check_divisible
from symcomm.parallel.strategy import Size, Strategy, degree, parse_strategy
from symcomm.quantities.counting.load import ONE_DEVICE, Load, load, microbatched
from symcomm.quantities.declared import Meaning
from symcomm.quantities.options import Dtype, GradientDtype, Microbatches, Rates, StrategyOption
from symcomm.quantities.setting import Setting, Work
from symcomm.quantities.time.machine import machine
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
) -> StepTime:
    """The steps of a step's time."""
    setting = replace(setting, dtype=dtype) if dtype else setting
    chosen = placed(strategy)
    cut = chosen.pipeline
    if cut is not None and microbatches is not None:
        chosen = replace(chosen, pipeline=replace(cut, microbatches=degree(microbatches)))
        cut = chosen.pipeline
    m = cut.microbatches if cut is not None else degree(microbatches or 1)
    check_divisible(setting.graph, chosen, setting.values)
    micro = microbatched(setting, m)
    every = load(micro, chosen, gradient_dtype)
    sends = [(p, c) for p, c in every.calls if c.kind == "send"]
    every = replace(every, calls=tuple((p, c) for p, c in every.calls if c.kind != "send"))
    stages: tuple[Form, ...] = (pipeline.stage_count(cut, setting.graph.repeat),) if cut is not None else ()
    made = machine(setting, (*chosen.sizes.values(), m, *stages), dtype=setting.dtype, **rates)
    work = Work(micro, *chosen.sizes.values(), *made.symbols, m, *stages)
    writer = Writer(work, made, chosen, setting.dtype)

    inner, end = every.of("forward", "backward"), every.of("end")
    terms = writer.terms(inner)
    layer = need(writer.time("t_layer", terms, "One layer and microbatch, forward and backward"), "a training step")
    last = None
    if setting.accounting.gradient_sync == "with_backward" and end.calls:
        beside = writer.terms(replace(every, ops=(), calls=end.calls), "_sync")
        together = joined(work, terms, beside)
        last = writer.time("t_last", together, "The last microbatch, with the reduction of the gradients")
        ends, end_time = beside, None
    else:
        ends = writer.terms(end, "_end")
        end_time = writer.time("t_end", ends, "The end of the batch, one layer")

    count: Form = setting.repeat
    if cut is not None:
        if not setting.graph.repeat:
            raise ValuesError("a pipeline needs a stack of layers", hint="say 'repeat: N_layer'")
        p = work.define("p", stages[0], ONE, "stages", "The number of stages.")
        per_stage = cut.layers_per_stage or Ratio(count, p)
        count = work.define("n_stage", per_stage, ONE, "layers of a stage", "Each stage holds its share of the layers.")
    slot = _times(work, "t_stage", count, layer, "All layers of a rank, one microbatch.")
    sent = None
    if sends:
        sent = _message(writer, replace(every, ops=(), calls=tuple(sends)))
        overlaps = setting.accounting.time == "overlap"
        form = Largest((slot, sent)) if overlaps else Total((slot, sent))
        text = "A stage computes one microbatch and sends what it made"
        text += " at the same time." if overlaps else ", one after the other."
        slot = work.define("t_slot", form, SECOND, "slot of the pipeline", text)
    slots: Form = m
    if cut is not None:
        slots = work.define(
            "n_slots",
            Total((m, p, num(-1))),
            ONE,
            "GPipe",
            "The last stage gets its first microbatch after p - 1 slots.",
        )
    parts: list[Form] = []
    if last is None:
        parts.append(product(slots, slot))
    else:
        final = _times(work, "t_stage,last", count, last, "All layers of a rank, the last microbatch.")
        if slots != num(1):
            parts.append(product(Total((slots, num(-1))), slot))
        parts.append(final)
    if end_time is not None:
        parts.append(product(count, end_time))
    total = work.define(
        "T_step",
        parts[0] if len(parts) == 1 else Total(tuple(parts)),
        SECOND,
        "add",
        "All microbatches" + (", then the end of the batch." if end_time is not None else "."),
    )

    alone = writer.local("t_alone", terms, "One layer and microbatch without its collectives")
    local = None
    if alone is not None:
        local = work.define(
            "T_alone",
            product(product(slots, count), alone),
            SECOND,
            "without the network",
            "The step if nothing had to be sent.",
        )
    busy: list[Form] = []
    if terms.network is not None:
        busy.append(product(product(slots, count), terms.network))
    if sent is not None:
        busy.append(product(slots, sent))
    if ends.network is not None:
        busy.append(product(count, ends.network))
    network = None
    if busy:
        network = work.define(
            "T_network",
            busy[0] if len(busy) == 1 else Total(tuple(busy)),
            SECOND,
            "all that is sent",
            "All calls of the step, as they follow one another on one rank.",
        )
    fields = [*touched(micro, every), *(["gradient_sync"] if end.calls else [])]
    return StepTime(setting, chosen, work, writer, total, local, network, tuple(fields), every)


def _times(work: Work, name: str, count: Form, each: Form, text: str) -> Form:
    return each if count == num(1) else work.define(name, product(count, each), SECOND, "repeat", text)


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
    **rates: Unpack[Rates],
) -> Derivation:
    """The time of a training step under a strategy.

    The time of one training step; or how much of its communication is ``exposed``, ``hidden``, or there at all.

    All stages and ranks are alike; a pipeline runs GPipe's schedule. Updating the weights is not counted.
    """
    if of not in ANSWERS:
        raise ValuesError(f"unknown answer '{of[:40]}'", hint=nearest(of, [*ANSWERS]))
    made = write(setting, strategy, microbatches, dtype, gradient_dtype, rates)
    work, writer = made.work, made.writer
    title = f"Time of a training step under {made.strategy.name.lower()}"
    steps = work.steps
    if of == "step":
        steps = [s for s in steps if s.name not in ("t_alone", "T_alone", "T_network")]
    elif made.network is None:
        raise ValuesError(f"{made.strategy.name} sends nothing", hint="name a strategy such as data(k)")
    elif of == "network":
        steps = [s for s in steps if s.name not in ("t_alone", "T_alone")]
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
    answer = made.setting.derivation(title, steps, made.fields, shown)
    return with_rates(answer, writer)
