"""The bytes of activations that a rank keeps from the forward to the backward pass, derived from the gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import partial

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Derivation, Exhibit, Numbers
from symcomm.core.dtypes import element_bytes, said_bytes
from symcomm.core.form import Form, Largest, Num, Ratio, Sym, Total, combined, evaluate, num, product
from symcomm.core.graph.graph import Graph, Region, worded
from symcomm.core.parallel.halo import HALO_MARK
from symcomm.core.parallel.strategy import PipelineCut, Strategy, degree
from symcomm.core.program import pipeline
from symcomm.core.program.autograd import Saved, saved
from symcomm.core.program.closed_forms import chunks_of, held_on
from symcomm.core.program.events import simulate
from symcomm.core.program.orders import Schedule, flights
from symcomm.core.program.program import program
from symcomm.core.program.schedules import USUAL_SCHEDULE, find
from symcomm.core.quantities import options
from symcomm.core.quantities.counting.load import microbatched
from symcomm.core.quantities.memory.asked import of_step, placed, read_choices, saved_differs, told_again
from symcomm.core.quantities.witnesses import number, size
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter, mark, slug
from symcomm.core.units import BYTE, ONE

NOTHING: Form = Num(Fraction(0), BYTE)


def derive(
    setting: Setting,
    strategy: options.StrategyOption | None = None,
    dtype: options.Dtype | None = None,
    recomputation: options.Recomputation | None = None,
    every: options.Every | None = None,
    schedule: options.ScheduleName | None = None,
    stage: options.StageNumber | None = None,
    chunks: options.Chunks | None = None,
    frozen: options.Frozen | None = None,
) -> Derivation:
    """The bytes of activations that one rank keeps for the backward pass.

    ``recomputation`` is ``none``, ``selective``, ``full`` or tensors of the table that are computed again; ``every``
    keeps the input of every n-th layer only. ``schedule``, ``stage`` (0 is the first) and ``chunks`` belong to a
    pipeline. ``frozen`` weights get no gradient. Raises ``ValuesError`` and ``StrategyError`` for what does not fit.

    Source: the accounting of Korthikanti et al., arXiv 2205.05198, section 4.
    """
    strategy = placed(strategy, schedule=schedule, stage=stage, chunks=chunks)
    asked = recomputation
    setting, again = of_step(setting, strategy, dtype, frozen, recomputation, every)
    again = "full" if every is not None else again
    cut = strategy.pipeline if strategy is not None else None
    order = find(schedule or USUAL_SCHEDULE) if cut is not None else None
    apart = () if cut is None or order is None else _in_chunks(setting, cut, stage, order, chunks)
    rank = 0
    if cut is not None and apart:
        known = setting.graph.relations.complete(setting.values)
        rank = pipeline.stage_number(stage, evaluate(pipeline.stage_count(cut, setting.graph), known))
        held = pipeline.joined(setting.graph, apart, rank)
    else:
        held = pipeline.held(setting.graph, cut, stage, setting.values, order)
    for region in setting.regions:
        for share in apart or (held,):
            if every is not None and region.times and region.name in share.regions:
                setting = setting.in_parts(share.times(region), degree(every), "groups of {} layers are computed again")
    if cut is not None:  # what is kept is counted for one microbatch at a time
        setting = microbatched(setting, cut.microbatches)
    made = program(setting.graph, strategy, setting.accounting, setting.frozen, recomputation=again)
    work = StepWriter(setting, *(strategy.forms if strategy else ()))
    mine = [(region, part, saved(made, region.name, setting.dtype)) for region, part in zip(
        setting.regions, setting.parts, strict=True) if region.name in held.regions]  # fmt: skip
    homes = {_shared(region).name: region.name for region, _, _ in mine}
    mine = [one for region, part, kept in mine for one in _shared_apart(setting.graph, region, part, kept)]
    layers = [(region, _layer(work, part, region, kept, len(mine) == 1)) for region, part, kept in mine]
    where: tuple[Condition, ...] = ()
    if cut is not None and order is not None and apart:
        each = [[_often(chunk, region, homes, every) for region, _ in layers] for chunk in apart]
        p, m = (int(evaluate(form, known)) for form in (pipeline.stage_count(cut, setting.graph), cut.microbatches))
        _all_chunks(work, layers, each, order, rank, p, m)
    else:
        where = _all_layers(work, layers, strategy, held, every, schedule, stage, chunks)
    title = "Activation memory" + (f" under {strategy.name}" if strategy else "")
    if again != "none":
        title += f", {again} recomputation" if again in ("full", "selective") else ", recomputation"
    read_choices(setting, [part.graph for _, part, _ in mine], made, asked)
    if "saved" in setting.settled or saved_differs(setting, made):
        setting.choice("saved")
    notes: tuple[str, ...] = held.notes
    if again != "none":
        notes += ("Recomputed activations live only while the backward pass uses them; they do not count here.",)
        notes += told_again(region for region in setting.regions if region.name in held.regions)
    exhibits = (_exhibit(part, region, kept, len(mine) == 1) for region, part, kept in mine if kept or len(mine) == 1)
    return replace(setting.derivation(title, work.steps, exhibits=exhibits, notes=notes), where=(*held.where, *where))


def saved_tensors(setting: Setting) -> tuple[Saved, ...]:
    """The activations that one rank keeps of a model of one region between its forward and its backward pass."""
    made = program(setting.graph, None, setting.accounting, setting.frozen, recomputation="none")
    return saved(made, setting.regions[0].name, setting.dtype)


def _shared_apart(
    graph: Graph, region: Region, part: Setting, kept: tuple[Saved, ...]
) -> list[tuple[Region, Setting, tuple[Saved, ...]]]:
    """A region, behind what all its repetitions read: that is kept once."""
    names = graph.shared(region)
    once = tuple(item for item in kept if item.tensor in names and not item.is_copy)
    if not once:
        return [(region, part, kept)]
    rest = tuple(item for item in kept if item not in once)
    return [(_shared(region), part, once), (region, part, rest)]


def _shared(region: Region) -> Region:
    """What all repetitions of a region read, as a region of its own."""
    return Region(f"shared inputs of the {region.name}s")


def bytes_of(setting: Setting, item: Saved) -> Form:
    """The bytes of a saved tensor, as written."""
    return product(setting.written(item.elements), element_bytes(item.dtype))


def _layer(work: StepWriter, setting: Setting, region: Region, kept: tuple[Saved, ...], alone: bool) -> Form:
    """One step a row of the table of a region, and their sum."""
    if not kept and alone:
        return work.define("A", forms.Num(Fraction(0), BYTE), BYTE, "nothing", "No gradient reads an activation.",
                           witness=partial(_kept, kept))  # fmt: skip
    rows: dict[int, list[Saved]] = {}
    for item in kept:
        made = item.tensor in setting.graph.producers or item.what == "mask" or HALO_MARK in item.tensor
        rows.setdefault(item.row if made else 0, []).append(item)
    targets = {op.row: op.output for op in setting.graph.ops}
    parts: list[Form] = []
    for row in sorted(rows):
        items = rows[row]
        form = combined(Total, [bytes_of(setting, item) for item in items])
        name = "A_in" if not row else f"A_{slug(targets[row])}"
        parts.append(work.define(name, form, BYTE, "what gradients read", _reason(items),
                                 witness=partial(_kept, items)))  # fmt: skip
    if not parts or (len(parts) == 1 and alone and not region.times):
        return parts[0] if parts else NOTHING
    name, text = ("A_layer", "Saved by one layer") if region.times else ("A_saved", "Saved")
    if not alone:
        name, text = f"A_{mark(region)}", f"Saved by the {region.name}"
    text += " for the backward pass."
    return work.define(name, combined(Total, parts), BYTE, "add the rows", text, witness=partial(_kept, kept))


def _kept(items: Iterable[Saved], numbers: Numbers) -> Fraction:
    """The bytes of some tensors, one after the other."""
    return sum((size(item.elements, numbers) * element_bytes(item.dtype).number for item in items), Fraction(0))


def _named(item: Saved) -> str:
    shown = worded(item.tensor)
    inner = item.what == "activation" and "·" in item.tensor and shown[0] == "`"
    if HALO_MARK in item.tensor:
        return f"{shown} with its halo"
    return f"a value on the way to {shown}" if inner else shown


def _reason(items: list[Saved]) -> str:
    pieces = []
    for item in items[:6]:
        shown = worded(item.tensor)
        said = {
            "input": f"the input {shown}",
            "activation": _named(item),
            "mask": "a random mask",
            "indices": f"the indices {shown}",
        }
        what = said.get(item.what, f"{item.what} for {shown}")
        readers = ", ".join(map(worded, dict.fromkeys(item.readers[:4])))
        pieces.append(f"{what} ({said_bytes(element_bytes(item.dtype))} each) for the gradient of {readers}")
    text = "; ".join(pieces) + ("; and more" if len(items) > 6 else "")
    return f"Kept: {text}."


def _all_layers(
    work: StepWriter, parts: list[tuple[Region, Form]], strategy: Strategy | None, held: pipeline.RankShare,
    every: int | str | None, schedule: str | None, stage: int | str | None, chunks: int | str | None,
) -> tuple[Condition, ...]:  # fmt: skip
    """The steps from one repetition of each part to all of them, and where they hold."""
    where: tuple[Condition, ...] = ()
    cut = strategy.pipeline if strategy else None
    flying: Form = num(1)
    text = "All layers are alike."
    if cut is not None:
        stages = pipeline.stage_count(cut, work.setting.graph)
        p = stages if isinstance(stages, (Sym, forms.Num)) else work.combine("p", stages, ONE, "stages", "The stages.")
        flying, text, where = in_flight(work, cut, p, schedule or USUAL_SCHEDULE, stage, chunks)

    def in_all(numbers: Numbers) -> Fraction:
        groups = number(degree(every), numbers) if every is not None else 1
        at_once = number(flying, numbers)
        return sum((number(held.times(region), numbers) * at_once * number(layer, numbers)
                    / (groups if region.times else 1) for region, layer in parts), Fraction(0))  # fmt: skip

    terms: list[Form] = []
    for region, layer in parts:
        times = held.times(region)
        if every is not None and region.times:
            times, text = Ratio(times, degree(every)), "Only the input of the first layer of each group is kept."
        if layer != NOTHING:
            terms.append(product(product(times, flying), layer))
    if len(parts) > 1:
        text = "Together: " + ", ".join(region.name for region, _ in parts) + "."
        work.define("A", combined(Total, terms), BYTE, "add the parts", text, witness=in_all)
    elif parts[0][0].times:
        work.define("A", terms[0], BYTE, "repeat", text, witness=in_all)
    return where


def _often(chunk: pipeline.RankShare, region: Region, homes: Mapping[str, str], every: int | str | None) -> Form:
    """How often a chunk keeps what a part keeps for one microbatch."""
    if homes.get(region.name, region.name) not in chunk.regions:
        return num(0)
    return Ratio(chunk.times(region), degree(every)) if every is not None and region.times else chunk.times(region)


def _in_chunks(
    setting: Setting, cut: PipelineCut, stage: object, order: Schedule, chunks: int | str | None
) -> tuple[pipeline.RankShare, ...]:  # fmt: skip
    """What a rank holds in each of its chunks, where these may be unlike one another; else nothing.

    Raises ``ValuesError`` where the numbers that decide it are not known.
    """
    v, graph, known = chunks_of(order, chunks), setting.graph, setting.graph.relations.complete(setting.values)
    layers = {region.name for region in pipeline.stacked(graph)}
    if v == num(1) or not (
        cut.layers or len(layers) > 1 or pipeline.held(graph, cut, stage, known, order).regions - layers
    ):
        return ()
    p, m, pieces = (pipeline.whole(form, known, what) for form, what in (
        (pipeline.stage_count(cut, graph), "stages"), (cut.microbatches, "microbatches"), (v, "chunks")))  # fmt: skip
    order.fitting(p, m, pieces)
    return pipeline.held_in_chunks(graph, cut, stage, known, order, pieces)


def _all_chunks(
    work: StepWriter, parts: list[tuple[Region, Form]], each: list[list[Form]], order: Schedule, rank: int,
    p: int, m: int,
) -> None:  # fmt: skip
    """What chunks keep that are unlike one another, ``each`` so often each part: the most over all items of a rank."""
    items = order.rank(rank, p, m, len(each))
    places = sorted({action.stage for item in items for action in item})

    def amounts(held: Mapping[int, int]) -> dict[tuple[int, Form], Fraction]:
        """How often a rank has each part, apart where the numbers of layers are forms that differ."""
        found: dict[tuple[int, Form], Fraction] = {}
        for often, place in zip(each, places, strict=True):
            for n, form in enumerate(often):
                one, many = (num(1), form.number) if isinstance(form, Num) else (form, Fraction(1))
                found[n, one] = found.get((n, one), Fraction(0)) + many * held.get(place, 0)
        return found

    def run(numbers: Numbers) -> Fraction:
        """Item by item, with all that each microbatch in flight keeps."""
        sizes = [sum((number(often, numbers) * number(layer, numbers) for often, (_, layer) in zip(
            chunk, parts, strict=True)), Fraction(0)) for chunk in each]  # fmt: skip
        alive, most = dict[tuple[int, int], Fraction](), Fraction(0)
        for item in items:
            alive |= {(a.stage, a.microbatch): sizes[places.index(a.stage)] for a in item if a.kind == "F"}
            most = max(most, sum(alive.values(), Fraction(0)))
            for a in item:
                if a.kind in "DW":
                    del alive[a.stage, a.microbatch]
        return most

    times = [dict(held) for held in flights(items)]
    found = [amounts(held) for held in times]
    tops = [n for n, one in enumerate(found) if one not in found[:n] and not any(
        one != other and all(other[key] >= many for key, many in one.items()) for other in found)]  # fmt: skip
    kept = [[product(num(many), often, parts[n][1]) for (n, often), many in found[top].items()
             if many and parts[n][1] != NOTHING] for top in tops]  # fmt: skip
    written = [combined(Total, terms, BYTE) for terms in kept]
    told = "The most that is in flight at one of these times of the schedule."
    if len(tops) == 1:
        flying = {place: many for place, many in sorted(times[tops[0]].items()) if many}
        of, many = (", ".join(map(str, some)) for some in (flying, flying.values()))
        told = f"When the rank keeps most, stages {of} have {many} microbatches in flight."
    work.define("A", combined(Largest, written), BYTE, "in flight", told, witness=run)


def in_flight(
    work: StepWriter, cut: PipelineCut, p: Form, schedule: str, stage: int | str | None, chunks: int | str | None
) -> tuple[Form, str, tuple[Condition, ...]]:  # fmt: skip
    """How many microbatches a stage holds at once, in units of all its layers, and where that holds."""
    found = find(schedule)
    v = chunks_of(found, chunks)
    stages = pipeline.stage_count(cut, work.setting.graph)
    ends: dict[str, Form] = {"None": num(0), "0": num(0), "first": num(0), "last": Total((stages, num(-1)))}
    at = ends.get(str(stage)) or degree(str(stage))
    sizes = {"p": stages, "m": cut.microbatches, "v": v, "r": at}
    values = work.setting.graph.relations.complete(work.setting.values)
    settled = held_on(found, sizes, values)
    shown = held_on(found, {**sizes, "p": p}, values) if settled.cases else settled
    text = found.why
    if "B" in found.kinds:
        text += " An activation is kept until the gradient of the weights; the gradients kept with it are not counted."

    def run(numbers: Numbers) -> Fraction:
        """The most bytes that a rank holds, event by event."""
        ranks, batch, pieces, rank = (int(number(f, numbers)) for f in (stages, cut.microbatches, v, at))
        return Fraction(simulate(found.ranks(ranks, batch, pieces)).in_flight[rank])

    copies = found.placement.copies(2, int(v.number)) if isinstance(v, forms.Num) else Fraction(1)
    if v == num(int(copies)):
        flying = work.define("w", shown.form, ONE, "in flight", text, witness=run)
        return flying, "The layers of a stage, for each microbatch in flight.", settled.conditions
    count = work.define("w_chunk", shown.form, ONE, "in flight", text, witness=run)
    parts = num(v.number / copies) if isinstance(v, forms.Num) else v
    return Ratio(count, parts), "Each chunk in flight is one part of the rank's layers.", settled.conditions


def _exhibit(setting: Setting, region: Region, kept: tuple[Saved, ...], alone: bool) -> Exhibit:
    rows = []
    for item in kept:
        readers = ", ".join(map(worded, dict.fromkeys(item.readers[:6]))) + (" …" if len(item.readers) > 6 else "")
        size = forms.from_expr(forms.value(bytes_of(setting, item)))
        rows.append((_named(item), item.what, readers, item.dtype, size))
    columns = ("tensor", "what", "for the gradient of", "format", "bytes")
    title = "Saved by one layer for the backward pass" if region.times else "Saved tensors for the backward pass"
    title = title if alone else f"Saved by the {region.name} for the backward pass"
    # What is kept of few tensors has a line each in the steps already.
    return Exhibit(title, columns, tuple(rows), "full" if len(rows) <= 3 else "after")
