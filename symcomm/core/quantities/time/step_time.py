"""The time of a training step under a strategy: microbatches, layers, stages, and the end of the batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal, Unpack

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.derivation import Condition, Derivation
from symcomm.core.errors import AccountingError, StrategyError, ValuesError
from symcomm.core.form import Form, Ratio, Total, negative, num, product
from symcomm.core.graph.graph import Graph
from symcomm.core.parallel.placement import PARTIAL
from symcomm.core.parallel.strategy import PipelineCut, Size, Strategy, degree, parse_strategy
from symcomm.core.program import pipeline
from symcomm.core.program.closed_forms import chunks_of
from symcomm.core.program.closed_forms import slots as slots_of
from symcomm.core.program.instructions import BETWEEN_STAGES
from symcomm.core.program.program import batch_of, program
from symcomm.core.program.rewrites.halves import norm_weights
from symcomm.core.program.schedules import USUAL_SCHEDULE, find
from symcomm.core.program.uneven import APART, WHOLE
from symcomm.core.quantities import options
from symcomm.core.quantities.communication.call import Call, keeping
from symcomm.core.quantities.communication.links import linked
from symcomm.core.quantities.counting.flops import packed
from symcomm.core.quantities.counting.load import ONE_DEVICE, TRAFFIC, Load, load, microbatched
from symcomm.core.quantities.declared import Extent, Meaning
from symcomm.core.quantities.memory.caches import too_large
from symcomm.core.quantities.time.region_time import RegionTime, beside_backward, fetching, prefetched, region_time
from symcomm.core.quantities.time.slots import PipelineTime, Run, add_times
from symcomm.core.quantities.time.term_texts import exhibit, need
from symcomm.core.quantities.time.terms import SECOND, TimeWriter
from symcomm.core.quantities.time.time import with_rates
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import ONE


@dataclass(frozen=True)
class StepTime:
    """The results of the steps of a step's time, for quantities that are derived from it.

    ``regions`` are the times of one repetition of each, ``pipe`` those of the stages.
    """

    setting: Setting
    strategy: Strategy
    work: StepWriter
    writer: TimeWriter
    time: Form
    alone: Form | None
    network: Form | None
    load: Load
    regions: tuple[RegionTime, ...]
    pipe: PipelineTime
    notes: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()


BACK = "the first stage reads what the last one made"


def placed(strategy: Strategy | str | None) -> Strategy:
    """The given strategy, or one device."""
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
    buckets: Size | None = None,
    call_overhead: object = None,
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
    micro = microbatched(setting, m).divided(chosen)
    setting = replace(setting, checks=micro.checks)
    every = load(micro, chosen, gradient_dtype)
    micro.decided(("batch_statistics",), lambda one: load(one, chosen, gradient_dtype).calls)
    between = [(p, c) for p, c in every.calls if c.meshes == BETWEEN_STAGES]
    every = replace(every, calls=tuple(one for one in every.calls if one not in between))
    stages: tuple[Form, ...] = (pipeline.stage_count(cut, setting.graph),) if cut is not None else ()
    count = None if buckets is None else degree(buckets)
    others = (m, *stages, *([] if count is None else [count]))
    if count is not None:
        rates = {**rates, "call_overhead": "o" if call_overhead is None else call_overhead}
    elif call_overhead is not None:
        raise ValuesError("the overhead of a call goes with buckets", hint="for instance buckets=8")
    made = linked(setting, chosen, rates, *others)
    work = StepWriter(micro, *chosen.forms, *made.symbols, *others)
    writer = TimeWriter(work, made, chosen)

    kinds: Mapping[str, pipeline.RankShare] = pipeline.kinds(setting.graph, cut, setting.values)
    run = _run(setting, kinds, schedule, chunks, {"p": stages[0] if stages else num(1), "m": m}, every,
               any(c.kind == "send" for _, c in between))  # fmt: skip
    if count is not None:
        _check_buckets(setting, chosen, every, kinds)
    begins = run.sizes["p"] == num(1)
    cut_up = count is not None
    if fetching(setting, every):
        if parts or count is not None:
            raise ValuesError(f"under {setting.accounting.prefetch} only the whole step is timed, without buckets",
                              hint="prefetch: as_read")  # fmt: skip
        (region,) = every.regions
        total = [prefetched(writer, every, kinds["only"].times(region), m)]
        end = writer.time("t_end", writer.terms(every.region(region.name).of("end"), "_end"), "The end of the batch")
        total += [] if end is None else [product(kinds["only"].times(region), end)]
        text = "All microbatches, then the end of the batch."
        time = work.combine("T_step", add_times(total), SECOND, "add", text)
        notes = ("The first layer is timed as all others are.",) if every.first != every else ()
        pipe = PipelineTime(writer, (), kinds, run, num(1), replace(every, ops=(), calls=()))
        return StepTime(setting, chosen, work, writer, time, None, None, every, (), pipe, notes)
    found = [region_time(writer, every, region, run.letters, parts, begins, cut_up) for region in every.regions]
    if not any(one.work for one in found):
        need(None, "a training step")
    p = work.called("p", stages[0], ONE, "stages", "The number of stages.") if stages else num(1)
    if cut is not None and not cut.layers:
        kinds = _layers_named(work, setting.graph, cut, kinds, p)
    often = setting.accounting.accumulation != Accounting.accumulation  # then one microbatch, too, reduces earlier
    if (m != num(1) or often) and any(c.accumulates for _, c in every.calls):
        setting.choice("accumulation")
    if run.letters == APART and norm_weights(setting.graph) & _made_apart(every):
        setting.choice("norm_gradients")
    pipe = PipelineTime(writer, found, kinds, run, p, replace(every, ops=(), calls=tuple(between)), count)
    step = setting.graph.step
    if step is not None and cut is not None and stages[0] != num(1):
        decodes = step.phase == "decode"
        stream = partial(pipe.stream, decodes, _back(writer, every, between) if decodes else None)
        time = stream()
        alone, network = (stream("alone"), stream("network")) if parts else (None, None)
    else:
        time = pipe.step(ordered=len([region for region in setting.graph.regions if region.times]) == 1)
        if every.first != every and all(one.first is None for one in found):
            pipe.notes.append("The first layer is timed as all others are.")
        alone, network = (pipe.part("alone"), pipe.part("network")) if parts else (None, None)
    return StepTime(setting, chosen, work, writer, time, alone, network, every, tuple(found), pipe, tuple(pipe.notes),
                    tuple(pipe.where))  # fmt: skip


def _back(writer: TimeWriter, every: Load, between: Sequence[tuple[str, Call]]) -> Form | None:
    """The time of the message from the last stage to the first, which reads what was made: tokens, or a layer's input.

    The message is as large as what the first stage reads of one group, cut as the messages between stages are; a token
    is a number of 32 bits.
    """
    setting, sends = writer.setting, [call for _, call in between if call.phase == "forward"]
    graph, made = setting.graph, program(setting.graph, every.strategy, setting.accounting, setting.frozen)
    assert graph.step is not None
    own = {batch_of(graph), *graph.step.stream}
    cut = [(mesh, made.graph.tensors[one.tensor].axes[place]) for one in sends[:1]
           for mesh, place in made.plan.placements[one.tensor] if place != PARTIAL]  # fmt: skip
    calls: list[tuple[str, Call]] = []
    for tensor in graph.tensors.values():
        if sends and tensor.name not in graph.producers and own <= {*tensor.axes} and tensor.dtype != "bool":
            wide = tensor.dtype or ("int32" if tensor.role == "constant" else setting.dtype)
            layout = tuple((mesh, tensor.axes.index(axis)) for mesh, axis in cut if axis in tensor.axes)
            many, name = made.part(tensor.name, layout), tensor.name
            back = replace(
                sends[0], tensor=name, name=name, parts=(name,), what="input ", elements=many, dtype=wide, why=BACK
            )
            calls.append(("forward", back))
    return writer.terms(replace(every, ops=(), calls=tuple(calls)), "_back").network if calls else None


def _made_apart(every: Load) -> set[str]:
    """The weights whose gradients take time in one half of a backward pass or the other."""
    made = {every.graph.tensors[one.op.output].of for one in every.ops if one.half}
    return made | {call.tensor for phase, call in every.calls if phase == "backward" and call.half}


def _check_buckets(setting: Setting, strategy: Strategy, every: Load, kinds: Mapping[str, pipeline.RankShare]) -> None:
    """Raises ``SymcommError`` where gradients are not reduced in buckets that are all alike."""
    if setting.accounting.gradient_sync != Accounting.gradient_sync:
        raise AccountingError("buckets say when gradients are reduced", hint="leave gradient_sync at end_of_batch")
    if TRAFFIC[setting.accounting.traffic].collectives:
        raise AccountingError(f"buckets are timed by their links alone, not with {setting.accounting.traffic}",
                              hint="traffic: compulsory")  # fmt: skip
    if len(setting.regions) > 1 or "only" not in kinds:
        raise StrategyError(f"buckets are of layers that are alike, and {setting.graph.name} has more than layers",
                            hint="leave buckets out, or take its layer: part('layer')")  # fmt: skip
    if not any(c.accumulates and c.once and c.ranks(strategy) != num(1) for _, c in every.calls):
        raise StrategyError("no gradients are reduced between ranks", hint="buckets go with data parallelism")


def _run(
    setting: Setting, kinds: Mapping[str, pipeline.RankShare], schedule: str | None, chunks: Size | None,
    sizes: Mapping[str, Form], every: Load, sends: bool,
) -> Run:  # fmt: skip
    """How the schedule of a pipeline is timed. Raises ``StrategyError`` for sizes that it does not take."""
    step = setting.graph.step
    if step is not None and not (schedule is None and chunks is None):
        what = f"the groups of a {step.phase} follow one another through the stages: there is no schedule"
        raise StrategyError(what, hint="leave out schedule and chunks; microbatches are the groups")
    if step is not None or (schedule is None and sizes["p"] == num(1) and "only" in kinds):
        return Run(USUAL_SCHEDULE, {**sizes, "v": num(1)})
    said = schedule or USUAL_SCHEDULE
    record = find(said).flushed("the time of a step")
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
    # Where messages add up with the work, forwards and backwards are apart: the ends send in one direction alone.
    added = sends and setting.accounting.time != "overlap"
    passes = slots_of(record) if "only" in kinds and not added else None
    beside = beside_backward(setting, every)
    if passes is not None and not (beside and v != num(1)):
        return Run(said, sizes, "", passes, share)
    return Run(said, sizes, APART if "B" in record.kinds else WHOLE, None, share)


def _layers_named(
    work: StepWriter, graph: Graph, cut: PipelineCut, kinds: Mapping[str, pipeline.RankShare], p: Form
) -> Mapping[str, pipeline.RankShare]:
    """The stages with a name for the layers of one of them."""
    usual = kinds.get("middle", kinds.get("only"))
    if usual is None or not usual.counts:
        return kinds
    share = usual.counts[0][1]
    form = cut.layers_per_stage or Ratio(pipeline.layer_count(graph), p)
    n = work.combine("n_stage", form, ONE, "layers of a stage", "Each stage holds its share of the layers.")

    def put(count: Form) -> Form:
        rest = count.terms[1:] if isinstance(count, Total) and count != share else ()
        return n if count == share else Total((n, *rest)) if rest else count

    return {
        kind: replace(held, counts=tuple((name, put(count)) for name, count in held.counts))
        for kind, held in kinds.items()
    }


def derive(
    setting: Setting,
    strategy: options.StrategyOption | None = None,
    microbatches: options.Microbatches | None = None,
    of: Annotated[
        Literal["step", "exposed", "hidden", "network"], Meaning("the step, or a part of its communication")
    ] = "step",
    dtype: options.Dtype | None = None,
    gradient_dtype: options.GradientDtype | None = None,
    schedule: options.ScheduleName | None = None,
    chunks: options.Chunks | None = None,
    frozen: options.Frozen | None = None,
    buckets: options.Buckets | None = None,
    call_overhead: options.CallOverhead | None = None,
    documents: options.Documents | None = None,
    recipe: options.RecipeName | None = None,
    **rates: Unpack[options.LinkedRates],
) -> Annotated[Derivation, Extent("model step training")]:
    """The time of a training step under a strategy.

    The time of one training step; or how much of its communication is ``exposed``, ``hidden``, or there at all.

    A pipeline runs the usual ``schedule``, or the one that is named. Stages that are alike are timed in slots of a
    whole microbatch where that is enough; else forwards and backwards (or the gradients of inputs and weights) are
    timed apart, and the step is the longest way through the events of the schedule. The update is not counted. With
    ``buckets`` the gradients are reduced in so many equal parts, each when its share of the last backward pass is done.
    ``documents`` is the option of ``flops``; ``recipe`` says which states the NVMe disks hold.
    """
    setting = keeping(packed(setting.freeze(frozen), documents), recipe)
    made = write(setting, strategy, microbatches, dtype, gradient_dtype, rates, schedule, chunks, of != "step", buckets,
                 call_overhead)  # fmt: skip
    work, writer = made.work, made.writer
    whole, steps = f"training step under {made.strategy.name.lower()}", work.steps
    if setting.graph.step is not None:
        whole = setting.graph.step.phase + (" step" if setting.graph.step.phase == "decode" else "")
    if of == "network":
        steps = [s for s in steps if not s.name.startswith(("t_alone", "T_alone"))]
    if of != "step" and made.network is None:
        raise ValuesError(f"{made.strategy.name} sends nothing", hint="name a strategy such as data(k)")
    if of in ("exposed", "hidden"):
        assert made.alone is not None
        assert made.network is not None
        exposed = work.combine("T_exposed", Total((made.time, negative(made.alone))), SECOND, "exposed",
                               "Extra time of the step, compared with a free network.")  # fmt: skip
        if of == "hidden":
            work.combine("T_hidden", Total((made.network, negative(exposed))), SECOND, "hidden",
                         "Communication that other work hides.")  # fmt: skip
    title = {"step": "Time", "exposed": "Exposed communication", "hidden": "Hidden communication",
             "network": "Communication time"}[of] + f" of a {whole}"  # fmt: skip
    shown = [exhibit(work.setting, made.load)] if made.strategy.mesh else []
    notes = (*made.notes, *too_large(setting, strategy, dtype, rates.get("device")))
    answer = made.setting.derivation(title, steps, exhibits=shown, notes=notes)
    return with_rates(replace(answer, where=(*answer.where, *made.where)), writer)
