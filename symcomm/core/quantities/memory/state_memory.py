"""The bytes that one rank keeps between iterations: weights, gradients and optimizer states, by their placements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.derivation import Condition, Derivation, Numbers, exact
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.form import Ceiling, Form, Num, Ratio, Sym, Total, combined, evaluate, from_expr, names, num, product
from symcomm.core.graph.graph import Graph, Tensor
from symcomm.core.optimum.dimension import in_unit
from symcomm.core.parallel.layouts import Layout
from symcomm.core.parallel.strategy import Placed, Size, Strategy, degree, resolve
from symcomm.core.program import pipeline
from symcomm.core.program.program import program, unstaged
from symcomm.core.program.resting import resting, summed
from symcomm.core.program.rewrites.accumulation import unreduced
from symcomm.core.program.schedules import find
from symcomm.core.quantities import options
from symcomm.core.quantities.declared import Extent, Meaning
from symcomm.core.quantities.memory.activation_memory import in_flight
from symcomm.core.quantities.memory.allocated_memory import REQUEST, block
from symcomm.core.quantities.memory.asked import computed, placed
from symcomm.core.quantities.memory.shaped_states import ShapeChoice, check_whole, shaped_states
from symcomm.core.quantities.memory.shaped_states import UnknownSideError as UnknownSideError
from symcomm.core.quantities.recipes import Recipe as Recipe
from symcomm.core.quantities.recipes import recipe_of as recipe_of
from symcomm.core.quantities.witnesses import number, passes
from symcomm.core.quantities.witnesses import size as length
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter, mark
from symcomm.core.units import BYTE, PARAMETER, Quantity, Unit


def derive(
    setting: Setting,
    strategy: options.StrategyOption | None = None,
    recipe: options.RecipeName = "mixed_adam",
    frozen: options.Frozen | None = None,
    stage: options.StageNumber | None = None,
    schedule: options.ScheduleName | None = None,
    of: Annotated[Literal["all", "weights", "gradients", "states"], Meaning("the states to count")] = "all",
    rounding: Annotated[Literal["requests", "none"], Meaning("whether the allocator rounds up to 512 bytes")] = "none",
    units: Annotated[
        Literal["weight", "model"], Meaning("one tensor of the allocator: each weight, or all weights flat")
    ] = "weight",
    microbatches: options.Microbatches | None = None,
    on: Annotated[Literal["device", "host", "nvme"], Meaning("the memory that counts")] = "device",
    per_host: Annotated[options.Whole | None, Meaning("the ranks that share a host and its disks, such as 8")] = None,
    host_capacity: Annotated[options.Amount, Meaning("the memory of the host, such as 2 TB")] = None,
    nvme_capacity: Annotated[options.Amount, Meaning("the room on its NVMe disks, such as 30 TB")] = None,
) -> Annotated[Derivation, Extent("model {rank}")]:
    """The bytes of weights, gradients and optimizer states on one rank, on its host or on NVMe disks of that.

    ``frozen`` weights have neither a gradient nor a state. ``stage`` is that of a pipeline, 0 is the first one;
    its ``schedule`` may put a second copy of every stage on another rank (``dualpipe``), or keep a version of the
    weights for each microbatch in flight (``pipedream``). The gradients of several
    ``microbatches`` that are reduced once are added as they are computed, whole, also where each rank keeps a shard of
    them in the end. With ``rounding: requests`` an allocator rounds every tensor up to 512 bytes: each of a rank's
    weights, gradients and states, or one of each kind where the model is one flat unit (``units: model``).

    On the host or its disks it is what ``per_host`` ranks have there together. Raises ``ValuesError`` where that is
    more than its ``host_capacity`` or ``nvme_capacity``.
    """
    if on == "device" and (per_host, host_capacity, nvme_capacity) != (None, None, None):
        raise ValuesError("'per_host', 'host_capacity' and 'nvme_capacity' are of what a host has",
                          hint="on: host, or on: nvme")  # fmt: skip
    capacity, other = (host_capacity, nvme_capacity) if on == "host" else (nvme_capacity, host_capacity)
    if other is not None:
        raise ValuesError(f"'{'nvme' if on == 'host' else 'host'}_capacity' is not of the memory that counts",
                          hint="on: host, or on: nvme")  # fmt: skip
    setting = setting.freeze(frozen)
    kept, work, graph, still = recipe_of(recipe), StepWriter(setting), setting.graph, setting.frozen
    strategy = placed(strategy, stage=stage, schedule=schedule)
    setting = setting.divided(computed(strategy, activations=False)) if strategy is not None else setting
    rules, rests = resolve(strategy, graph) if strategy else (), resting(graph, strategy)
    cut = strategy.pipeline if strategy else None
    several = batches(strategy, microbatches)
    known = graph.relations.complete(setting.values)
    several = num(evaluate(several, known)) if {*names(several)} <= known.keys() else several
    whole, adds = unreduced(setting.accounting, several), bool(rules) and sharded_gradients(strategy)
    plan = program(graph, unstaged(strategy), setting.accounting, still).plan if strategy and whole and adds else None

    def layout(weight: Tensor, role: str) -> Layout:
        if plan is not None and role == "gradient" and on == "device":
            return summed(plan, weight.name)
        return rests(weight, role)

    order = find(schedule) if schedule is not None else None
    copies = num(order.placement.copies(2, order.chunks or 1)) if order is not None else num(1)
    held = pipeline.held(graph, cut, stage, setting.values, order)
    if cut is not None and order is not None and pipeline.chunks_differ(graph, cut, order):
        copies = num(1)  # the layers of each copy have been added
    alone = len(held.regions) == 1
    elsewhere = setting.accounting.off_device - {"activation"}
    parts: list[Form] = []
    held_here: list[Callable[[Numbers], Fraction]] = []
    rows = (
        ("weight", "W", "weights"), ("gradient", "G", "gradients"), ("state", "O", f"optimizer states ({kept.states})"),
    )  # fmt: skip
    choice = ShapeChoice(kept, setting)
    versions: Form = num(1)
    flying: tuple[Condition, ...] = ()
    if order is not None and order.stashes and cut is not None and of in ("all", "weights"):
        if still:
            raise ValuesError(f"{order.name} keeps versions of weights that change, not of frozen ones", hint="1f1b")
        versions, _, flying = in_flight(work, cut, pipeline.stage_count(cut, graph), order.name, stage, None)
    away = False
    for role, letter, what in rows:
        if of not in ("all", _KINDS_OF[role]):
            continue
        size = 0 if kept.shaped(role) else kept.per_parameter(role)
        away = away or bool(role in elsewhere and (size or kept.shaped(role)))
        adds_here = role == "gradient" and whole and on == "device"  # which goes to the host when all are added
        if setting.accounting.tier(role) != on and not adds_here:
            continue
        if kept.shaped(role):
            if rounding == "requests":
                raise ValuesError(f"the requests of {kept.name} are not counted", hint="rounding: none")
            if setting.accounting.shards == "padded_shards" and rules:
                raise ValuesError(f"filled-up shards of {kept.name} are not counted", hint="shards: mean_shard")
            check_whole(kept, strategy, role)
            mine = [
                ("" if alone and not region.times else region.name,
                 product(copies, held.times(region)) if region.times else num(1),
                 [w for w in weights if role == "weight" or w.name not in still])
                for region, weights in held.weights(graph)
            ]  # fmt: skip
            said = f"{what[0].upper()}{what[1:]}." if role != "state" else f"Optimizer states: {kept.states}."
            part, witness = shaped_states(work, choice, strategy, role, f"M_{letter}", said, mine, layout)
            parts.append(part)
            held_here.append(witness)
            continue
        counts: list[Form] = []
        blocks: list[Form] = []
        every: list[tuple[Form, list[Tensor]]] = []
        shard = partial(_shard, setting, strategy, rules, role, layout)
        held_here.append(partial(_kept, shard, role, every, size, units if rounding == "requests" else None))
        for region, weights in held.weights(graph) if size else ():
            chosen = [w for w in weights if role == "weight" or w.name not in still]
            elements = _elements(setting, strategy, rules, role, chosen, layout)
            if elements is None:
                continue
            every.append((product(copies, held.times(region)) if region.times else num(1), chosen))
            if rounding == "requests" and units == "weight":
                each = [_elements(setting, strategy, rules, role, [w], layout) for w in chosen]
                given_out = Total(tuple(_rounded(role, size, one) for one in each if one is not None))
                blocks.append(product(copies, held.times(region), given_out) if region.times else given_out)
                continue
            whose = " of one layer" if region.times and alone else f" of the {region.name}" if not alone else ""
            text = f"The {what}{whose} on one rank"
            text += f", which has {copies.number} stages" if copies != num(1) and region.times else ""
            text += ", whole while microbatches add to them" if role == "gradient" and plan else ""
            text += "; frozen weights have none." if still and role != "weight" else "."
            name = f"P_{letter}" if alone else f"P_{letter},{mark(region)}"
            n = work.define(name, elements, PARAMETER, "place", text, witness=partial(_all, shard, chosen))
            counts.append(product(copies, held.times(region), n) if region.times else n)
        if rounding == "requests" and (blocks or counts):
            form = _rounded(role, size, combined(Total, counts)) if counts else Total(tuple(blocks))
            text = f"{size} bytes per parameter for {what}; every tensor is rounded up to 512 bytes."
            parts.append(work.define(f"M_{letter}", form, BYTE, "round up", text, witness=held_here[-1]))
        elif counts:
            one = Num(Fraction(size), Unit.parse("byte/parameter"))
            form = product(combined(Total, counts), one)
            text = f"{size} bytes per parameter for {what}."
            parts.append(work.define(f"M_{letter}", form, BYTE, "bytes", text, witness=held_here[-1]))
    if versions != num(1) and parts and setting.accounting.tier("weight") == on:
        newest, form = held_here[0], product(Total((versions, num(-1))), parts[0])
        held_here.append(lambda numbers: (number(versions, numbers) - 1) * newest(numbers))
        parts.append(work.define("M_V", form, BYTE, "versions", "Older versions of weights.", witness=held_here[-1]))
    used = {setting.accounting.tier(role) for role in elsewhere}
    if not parts and on != "device" and on not in used:
        raise ValuesError(f"nothing is {_PLACES[on]}", hint=f"offloading: states_on_{on}")
    if not parts and of != "all" and elsewhere:
        there = setting.accounting.tier(_ROLES_OF[of])
        hint = f"on: {there}" + (", or offloading: on_device" if on == "device" else "")
        raise ValuesError(f"the {of} are {_PLACES[there]}", hint=hint)
    said = "All states together."
    if not parts and away:
        said = "All of it is on another tier."
    elif not parts:
        told = f"the recipe {recipe} keeps no {of}" if graph.weights else f"{graph.name} has no weights"
        raise ValuesError(told, hint="only weights have states, and not under every recipe")
    work.define("M", combined(Total, parts, BYTE), BYTE, "add", said,
                witness=lambda numbers: sum((one(numbers) for one in held_here), Fraction(0)))  # fmt: skip
    ranks = num(1) if per_host is None else degree(per_host)
    if per_host is not None:
        work.combine(f"M_{on}", product(ranks, Sym("M")), BYTE, "share", "All ranks of a host keep theirs there.")
    fits = _fits(work, known, ranks, exact(capacity, f"{on}_capacity"), on) if capacity is not None else ()
    title = {"device": "State memory", "host": "State memory of the host", "nvme": "State memory of NVMe disks"}[on]
    title += f" under {strategy.name}" if strategy else ""
    adding = bool(adds) or "gradient" in elsewhere
    decides = {"shards": bool(rules), "accumulation": adding and several != num(1), "offloading": away}
    for name in (name for name, one in decides.items() if one):
        setting.choice(name)
    made = setting.derivation(title, work.steps, notes=held.notes)
    more = (Condition(several, ">=", num(2)),) if plan is not None and names(several) else ()
    return replace(made, where=(*held.where, *flying, *more, *choice.where, *fits))


def _fits(
    work: StepWriter, known: Mapping[str, Fraction], ranks: Form, capacity: Fraction, on: str
) -> tuple[Condition, ...]:  # fmt: skip
    """That a tier has room for what ranks keep there, for numbers given later; raises ``ValuesError`` for these."""
    taken = in_unit(from_expr(work.known[work.steps[-1].name]), BYTE)
    if not {*names(taken)} <= known.keys():
        return (Condition(taken, "<=", Num(capacity, BYTE)),)
    if (needed := evaluate(taken, known)) > capacity:
        who = "one rank keeps" if ranks == num(1) else f"{evaluate(ranks, known)} ranks keep"
        raise ValuesError(
            f"{who} {Quantity(needed, BYTE)} {_PLACES[on]}, which {'has' if on == 'host' else 'have'} "
            f"{Quantity(capacity, BYTE)}",
            hint="cut more of the model, put less there, or let fewer ranks share it",
        )
    return ()


def batches(strategy: Strategy | None, microbatches: Size | None) -> Form:
    """How many microbatches are added: the ones of a pipeline, or the given number.

    Raises ``StrategyError`` where both say it.
    """
    cut = strategy.pipeline if strategy is not None else None
    if cut is not None and microbatches is not None:
        hint = f"pipeline(..., microbatches={str(microbatches)[:20]})"
        raise StrategyError("a pipeline takes its microbatches from its strategy", hint=hint)
    return cut.microbatches if cut is not None else degree(1 if microbatches is None else microbatches)


def sharded_gradients(strategy: Strategy | None) -> bool:
    """Whether a strategy cuts the gradients of weights that every rank computes whole."""
    return strategy is not None and any(r.axis == "first" and "gradient" in r.on for _, r in strategy.rules)


def added_whole(strategy: Strategy | None, accounting: Accounting) -> bool:
    """Whether gradients rest elsewhere while several microbatches add to them.

    They are whole, though the strategy cuts them, or on the device, though they go to the host in the end.
    """
    apart = sharded_gradients(strategy) or accounting.tier("gradient") != "device"
    return apart and unreduced(accounting, num(2))


_PLACES = {"device": "on the device", "host": "on the host", "nvme": "on NVMe disks"}
_KINDS = ("weights", "gradients", "states")
_KINDS_OF = dict(zip(("weight", "gradient", "state"), _KINDS, strict=True))
_ROLES_OF = {kind: role for role, kind in _KINDS_OF.items()}


def _rounded(role: str, size: int | Fraction, elements: Form) -> Form:
    """The bytes that an allocator gives out for some elements; a state of more than 4 bytes is several tensors."""
    tensors = max(1, int(size // 4)) if role == "state" else 1
    whole, each = Num(Fraction(REQUEST), BYTE), Num(Fraction(size) / tensors, Unit.parse("byte/parameter"))
    return product(num(tensors), whole, Ceiling(Ratio(product(elements, each), whole)))


def _rows(graph: Graph, weight: Tensor) -> frozenset[int]:
    """The axes of a weight that a framework stores first, as rows: of a product those that it makes, of a table those
    that are looked up. What a product neither makes nor sums, such as experts, is many weights.
    """
    op = next(op for op in graph.consumers[weight.name] if op.phase == "forward")
    mine = op.indices[op.inputs.index(weight.name)]
    others = {i for name, operand in zip(op.inputs, op.indices, strict=True) if name != weight.name for i in operand}
    made = frozenset(n for n, i in enumerate(mine) if i in op.output_indices and i not in others)
    if op.attribute("lookup"):
        return frozenset(range(len(mine))) - made
    return made or frozenset(range(len(mine)))


def _elements(
    setting: Setting, strategy: Strategy | None, rules: tuple[Placed, ...], role: str, weights: list[Tensor],
    layout: Callable[[Tensor, str], Layout],
) -> Form | None:  # fmt: skip
    """The elements of some weights on one rank, those with the same cuts together."""
    ways: dict[Form, list[Form]] = {}
    sizes = strategy.sizes if strategy else {}
    for weight in weights:
        places, lengths = layout(weight, role), [setting.graph.axes[a].size for a in weight.axes]
        split = {placed.rule.mesh for placed in rules if placed.rule.axis == "first"}
        cut = product(*(sizes[m] for m, _ in places if m in split))
        if setting.accounting.shards == "padded_shards" and cut != num(1):
            rows = _rows(setting.graph, weight)
            whole: list[Form] = [num(1), num(1)]
            for n, axis in enumerate(weight.axes):
                apart = [sizes[m] for m, position in places if position == n and m not in split]
                size = forms.from_expr(setting.graph.axes[axis].size)
                whole[n in rows] = product(whole[n in rows], Ratio(size, product(*apart)) if apart else size)
            ways.setdefault(num(1), []).append(product(whole[0], Ceiling(Ratio(whole[1], cut))))
        else:
            ways.setdefault(product(*(sizes[m] for m, _ in places)), []).append(setting.sizes(lengths))
    found: list[Form] = []
    for k, counts in ways.items():
        count = combined(Total, counts)
        found.append(count if k == forms.num(1) else Ratio(count, k))
    return combined(Total, found) if found else None


def _shard(
    setting: Setting, strategy: Strategy | None, rules: tuple[Placed, ...], role: str,
    layout: Callable[[Tensor, str], Layout], weight: Tensor, numbers: Numbers,
) -> Fraction:  # fmt: skip
    """What one rank holds of a weight, each axis cut by itself, or all rows in equal parts that are padded."""
    graph, sizes = setting.graph, strategy.sizes if strategy else {}
    lengths = [length(graph.axes[a].size, numbers) for a in weight.axes]
    padded = {placed.rule.mesh for placed in rules if placed.rule.axis == "first"}
    parts = Fraction(1)
    for mesh, position in layout(weight, role):
        if setting.accounting.shards == "padded_shards" and mesh in padded:
            parts *= number(sizes[mesh], numbers)
        else:
            lengths[position] /= number(sizes[mesh], numbers)
    if parts == 1:
        return passes(lengths)
    rows = passes(lengths[n] for n in _rows(graph, weight))
    return passes(lengths) / rows * -(-rows // parts)


def _all(shard: Callable[[Tensor, Numbers], Fraction], weights: Sequence[Tensor], numbers: Numbers) -> Fraction:
    """What one rank holds of some weights."""
    return sum((shard(weight, numbers) for weight in weights), Fraction(0))


def _kept(
    shard: Callable[[Tensor, Numbers], Fraction], role: str, weights: Sequence[tuple[Form, Sequence[Tensor]]],
    size: int | Fraction, units: str | None, numbers: Numbers,
) -> Fraction:  # fmt: skip
    """The bytes of some weights, gradients or states, each weight, or all of them, in requests of an allocator."""

    def given_out(elements: Fraction) -> Fraction:
        tensors = max(1, int(size // 4)) if role == "state" else 1
        return tensors * block(elements * Fraction(size) / tensors, "requests")

    each = [(number(times, numbers), shard(weight, numbers)) for times, several in weights for weight in several]
    if units == "weight":
        return sum((times * given_out(elements) for times, elements in each), Fraction(0))
    whole = sum((times * elements for times, elements in each), Fraction(0))
    return given_out(whole) if units else whole * Fraction(size)
