"""The fewest ranks, or the largest batch, sequence or model, for the memory of one device."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import combinations
from math import ceil, gcd, prod
from typing import Annotated, Literal

import sympy as sp

from symcomm.core import form as forms
from symcomm.core.accounting import CONVENTIONS
from symcomm.core.derivation import Condition, Derivation, Numbers, Witness, exact, put
from symcomm.core.errors import StrategyError, ValuesError, nearest
from symcomm.core.form import Ceiling, Floor, Form, Num, Ratio, Smallest, Sym, Total, num, product
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.hardware.devices import device
from symcomm.core.libraries import Expr
from symcomm.core.optimum.dimension import in_unit
from symcomm.core.optimum.powers import terms
from symcomm.core.optimum.question import CountQuestion, RefusedError
from symcomm.core.optimum.roots import Domain
from symcomm.core.parallel.placement import cut_axes
from symcomm.core.parallel.strategy import Strategy, parse_strategy
from symcomm.core.program import pipeline
from symcomm.core.program.pipeline import check_divisible
from symcomm.core.program.program import ONE_RANK
from symcomm.core.program.vocabulary import cut_vocabulary
from symcomm.core.quantities import options
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.memory import activation_memory, state_memory
from symcomm.core.quantities.memory.asked import computed
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import BYTE, ONE, Quantity

MEANINGS = {c.name: c.statement for c in CONVENTIONS if c.field == "capacity" and c.name != "unnamed"}
_SCALES = {"nominal_GB": 10**9, "nominal_GiB": 2**30}


def capacity_and_meaning(said: object, meaning: str | None, named: object) -> tuple[Fraction, str]:
    """The bytes of a device; without a capacity they are what the device is sold with, or what its driver reports."""
    if said is None:
        if named is None:
            hint = "name a device, or say capacity: 80GB, capacity_is: nominal_GB"
            raise ValuesError("no capacity is given", hint=hint)
        memory = device(named).memory
        said = memory.nominal
        if meaning == "usable":
            if memory.usable is None:
                raise ValuesError("the usable bytes of this device are not known", hint="say capacity: 81559 MiB")
            said = memory.usable.quantity
    return capacity_of(said, meaning), str(meaning)  # which capacity_of knows


def capacity_of(said: object, meaning: str | None) -> Fraction:
    """The bytes of a device: ``80 GB`` may be 80·10^9, 80·2^30 or less, so what it means has to be said.

    >>> capacity_of("80 GB", "nominal_GiB") / 2**30, int(capacity_of("81559 MiB", "usable"))
    (Fraction(80, 1), 85520809984)
    """
    if meaning is None:
        raise ValuesError(
            f"what does a capacity of {said} mean?",
            hint="say capacity_is: nominal_GB (10^9), nominal_GiB (2^30) or usable",
        )
    if meaning not in MEANINGS:
        raise ValuesError(f"unknown meaning of a capacity '{meaning[:40]}'", hint=nearest(meaning, [*MEANINGS]))
    found = said if isinstance(said, Quantity) else Quantity.parse(str(said))
    if found.unit not in (ONE, BYTE):
        raise ValuesError(f"a capacity is in bytes, not in {found.unit}", hint="for instance 80 GB")
    if found.value <= 0:
        raise ValuesError("a capacity of nothing", hint="for instance 80 GB")
    if meaning == "usable":
        if found.unit == ONE:
            raise ValuesError("the usable bytes need a unit", hint="for instance 81559 MiB")
        return found.value
    if found.unit == ONE:
        return found.value * _SCALES[meaning]
    scale = 10**9
    if found.value % scale:
        if found.value % 2**30 == 0 and meaning == "nominal_GiB":
            return found.value
        raise ValuesError(f"{said} is not a whole number of GB", hint="usable takes any number of bytes")
    return found.value / scale * _SCALES[meaning]


def in_bytes(expr: Expr) -> Form:
    """An expression that counts bytes as a form in bytes: each term's number carries the unit."""
    return in_unit(forms.from_expr(expr), BYTE)


def derive(
    setting: Setting,
    solve_for: Annotated[str, Meaning("the symbol to solve for: a degree of the strategy or a size")],
    capacity: Annotated[options.Amount, Meaning("the memory of a device, such as 80 GB")],
    capacity_is: options.CapacityIs | None = None,
    strategy: options.StrategyOption | None = None,
    recipe: options.RecipeName = "mixed_adam",
    include: Annotated[
        Literal["states", "activations", "states and activations"], Meaning("the memory that has to fit")
    ] = "states and activations",
    recomputation: options.Recomputation | None = None,
    frozen: options.Frozen | None = None,
    sharded: Annotated[
        options.Amount | None,
        Meaning("the share of the activations that the strategy divides, such as 1/2; default: all"),
    ] = None,
    stage: options.StageNumber | None = None,
) -> Derivation:
    """The fewest ranks, or the largest size, with which one rank's memory fits a device.

    ``solve_for`` is a symbol: a degree of the strategy (the fewest that fit) or a size of the model (the largest that
    fits). ``include`` is ``states``, ``activations`` or ``states and activations``. Of the activations a part may be
    ``sharded`` and the rest whole on every rank. A sequence ends where the model's table of positions does. ``stage``
    is that of a pipeline, 0 is the first one; of all the one with the most decides where none is named. Raises
    ``ValuesError`` where nothing fits, or where the meaning of the capacity is not said.
    """
    if capacity is None:
        raise ValuesError("no capacity is given", hint="say capacity: 80 GB, and capacity_is")
    if capacity_is is None and setting.accounting.capacity != "unnamed":
        capacity_is = setting.accounting.capacity
    size = capacity_of(capacity, capacity_is)
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    parts: list[tuple[str, str, Fraction, Derivation]] = []  # each a share of what is derived
    if "states" in include:
        states = state_memory.derive(setting, strategy, recipe, frozen, stage=stage)
        parts.append(("M_state", "weights, gradients and optimizer states", Fraction(1), states))
    if "activations" in include:
        kept = activation_memory.derive(setting, strategy, frozen=frozen, recomputation=recomputation, stage=stage)
        share = Fraction(1) if sharded is None else exact(sharded, "sharded")
        if not 0 <= share <= 1 or (share < 1 and (strategy is None or strategy.pipeline is not None)):
            told = "a share of the activations is from 0 to 1, and a strategy without a pipeline divides it"
            raise ValuesError(f"sharded: {sharded}", hint=told)
        alone = kept if share == 1 else activation_memory.derive(setting, frozen=frozen, recomputation=recomputation)
        for name, what, part, of in (("M_act", "activations kept for backward", share, kept),
                                     ("M_whole", "activations that stay whole", 1 - share, alone)):  # fmt: skip
            if part:
                parts.append((name, what if part == 1 else f"{what}, {part} of all", part, of))
    if not parts:
        raise ValuesError(f"'{include[:40]}' is not counted", hint="states, activations, or states and activations")
    work = StepWriter(setting, *(strategy.forms if strategy else ()))
    for name, what, part, found in parts:
        _said(work, name, part * found.expr, f"The {what} of one rank.", partial(_part, part, found), found.touched)
    whole = sp.Add(*(part * found.expr for _, _, part, found in parts))
    wanted = next((s for s in whole.free_symbols if s.name == solve_for), None)
    if wanted is None:
        known = sorted(s.name for s in whole.free_symbols)
        raise ValuesError(f"the bytes do not depend on '{solve_for[:40]}'", hint=nearest(solve_for, known))
    assert capacity_is is not None
    cap = work.combine("C", Num(size, BYTE), BYTE, capacity_is, MEANINGS[capacity_is])
    multiple = _multiple(setting, strategy, solve_for)
    fits = partial(_last, work, whole, solve_for, size, multiple)
    where = _solve(work, setting, whole, wanted, cap, size, multiple, fits)
    _within_table(work, setting, solve_for, multiple)
    if strategy is not None:
        _dividing(work, setting, solve_for, strategy, "activations" in include, whole, size)
        setting = setting.divided(computed(strategy, "activations" in include))
    staged = strategy is not None and strategy.pipeline is not None
    notes = list(dict.fromkeys(note for *_, one in parts for note in one.notes if staged))
    return replace(setting.derivation(f"What fits: `{solve_for}`", work.steps, notes=notes), where=where)


def _within_table(work: StepWriter, setting: Setting, name: str, multiple: int) -> None:
    """A sequence is no longer than the model's table of positions."""
    found = next((limit for limit in setting.graph.limits if limit[0] == name), None)
    if found is None or f"{name}_max" not in work.known:
        return
    _, rows, unused = found
    fitting, known = Sym(f"{name}_max"), setting.graph.relations.complete(setting.values)
    most: Form = num(known[rows]) if rows in known else Sym(rows)
    most = Total((most, num(-unused))) if unused else most
    most = product(num(multiple), Floor(Ratio(most, num(multiple)))) if multiple > 1 else most
    longest = forms.from_expr(work.known[fitting.name])
    told = {*forms.names(longest), *forms.names(most)} <= known.keys()
    if told and forms.evaluate(longest, known) <= forms.evaluate(most, known):
        return
    less = f", of which {unused} are not used" if unused else ""
    work.define(
        f"{name}_table", Smallest((fitting, most)), ONE, "positions",
        f"The model's table of positions has `{rows}` rows{less}: no sequence is longer.",
        witness=lambda numbers: min(numbers[fitting.name], Fraction((numbers[rows] - unused) // multiple * multiple)),
    )  # fmt: skip


def _dividing(
    work: StepWriter, setting: Setting, name: str, strategy: Strategy, activations: bool, whole: Expr, size: Fraction
) -> None:
    """The least number of ranks from the one that fits on that divides what is computed in parts.

    Shards of weights and states that only rest so are padded, and need not be even. Parts of a vocabulary are whole
    words, with which the ``whole`` bytes have to fit the ``size``, too.
    """
    values = {k: v for k, v in setting.values.items() if k != name}
    found = work.known.get(f"{name}_min")
    if found is None or not {s.name for s in found.free_symbols} <= values.keys():
        return
    least = int(forms.evaluate(forms.from_expr(found), values))
    cutting, known = computed(strategy, activations), setting.graph.relations.complete(values)
    graph, shared = setting.graph, cut_vocabulary(setting.graph, cutting)
    if shared is not None and all(graph.axes[a].size.is_Symbol for a in shared.axes):
        parts = shared.in_parts(graph, setting.accounting)
        whole = whole.xreplace({graph.axes[a].size: parts.axes[a].size for a in shared.axes})
        graph = parts

    def takes(ranks: int) -> Fraction:
        at = {**known, name: Fraction(ranks)}
        try:
            check_divisible(graph, cutting, at)
        except StrategyError as error:
            raise RefusedError(error.message, hint=error.hint) from None
        return forms.evaluate(forms.from_expr(whole), at)

    try:
        if (bytes_taken := takes(least)) <= size:
            return
        why, hint = f"Parts of whole words take {Quantity(bytes_taken, BYTE)} on {least} ranks", ""
        next_one = "that fits"
    except RefusedError as error:
        why, hint, next_one = error.message, error.hint, "that divides it"
    cut = [
        (axis, meshes) for _, axis, meshes in cut_axes(graph, cutting)
        if any(name in forms.names(cutting.sizes[m]) for m in meshes) and not axis.size.has(sp.ceiling)
    ]  # fmt: skip
    sizes = (setting.graph.relations.expand(axis.size).xreplace(put(known)) for axis, _ in cut)
    lengths = {int(size) for size in sizes if size.is_Integer}
    stages = cutting.pipeline.stages if cutting.pipeline is not None else None
    staged = stages is not None and name in forms.names(stages)
    layers = [int(known[r.times]) for r in setting.regions if staged and r.times in known]
    divides = None if layers else gcd(*lengths) or None
    most = sum(layers) if layers else None if divides else 2 * least
    tried = Domain(Fraction(least), None if most is None else Fraction(most), True, divides).numbers()
    best = CountQuestion(takes, tried).first(size)
    if best is None:
        raise ValuesError(f"nothing fits: it takes {name} = {least} or more, but {why}", hint=hint)
    text = f"The bytes fit from `{name}` = {least} on. {why}: the answer is the next number {next_one}."

    def again(numbers: Numbers) -> Fraction:
        beyond = Domain(Fraction(ceil(numbers[f"{name}_min"]))).numbers()
        return Fraction(CountQuestion(takes, beyond).first(size) or 0)

    work.define(f"{name}_fit", num(best), ONE, "divides", text, witness=again)


def _said(
    work: StepWriter, name: str, expr: Expr, text: str, witness: Witness | None = None, by: tuple[str, ...] = ()
) -> Form:  # fmt: skip
    """A step for a part of the bytes whose derivation is known; it is written collected at once."""
    return work.as_written(name, in_bytes(sp.factor_terms(expr)), BYTE, "split", text, witness, by)


def _multiple(setting: Setting, strategy: Strategy | None, name: str) -> int:
    """What a size is a multiple of: of the heads, where it is heads times a width; of the ranks that cut it."""
    values = {k: v for k, v in setting.values.items() if k != name}
    relations = setting.graph.relations
    implied = relations.complete(values)
    if name in implied:
        raise ValuesError(
            f"{name} is {implied[name]} already, by the given numbers",
            hint=f"give no value for {name}, or for all it is made of",
        )
    found = 1
    for left, right in relations.equations:
        if left == name and isinstance(right, forms.Product):
            factors = [values[n] for n in forms.names(right) if n in values]
            found = int(prod(factors)) if factors and all(f.denominator == 1 for f in factors) else 1
    degrees = [int(d.number) for d in strategy.sizes.values() if isinstance(d, Num)] if strategy else []
    if strategy is not None and strategy.pipeline is not None and Sym(name) == pipeline.layer_count(setting.graph):
        stages = pipeline.stage_count(strategy.pipeline, setting.graph)
        found = int(stages.number) if isinstance(stages, Num) else found
    parts = strategy.pipeline.microbatches if strategy is not None and strategy.pipeline is not None else None
    if isinstance(parts, Num) and setting.written(setting.graph.axes[batch_axes(setting.graph)[0]].size) == Sym(name):
        found *= int(parts.number)
    products = {prod(chosen) for n in range(len(degrees) + 1) for chosen in combinations(degrees, n)}
    for more in sorted(products):
        try:
            check_divisible(
                setting.graph, strategy or ONE_RANK, relations.complete({**values, name: Fraction(found * more)})
            )
        except StrategyError:
            continue
        return found * more
    return found


def _solve(
    work: StepWriter, setting: Setting, whole: Expr, x: Expr, cap: Form, size: Fraction, multiple: int, fits: Witness
) -> tuple[Condition, ...]:
    """Writes the steps to the answer; what has to hold of numbers given later, so that anything fits."""
    relations = setting.graph.relations
    found = terms(whole, x)
    coefficients = {e: relations.gather(sp.expand(c)) for e, c in found or ()}
    name = x.name
    fixed: Form | None = None
    rest = {n for n in coefficients if n != 0}
    if 0 in coefficients:
        if rest in ({-1}, {1}):
            fixed = _said(work, "M_fixed", coefficients[0], f"These bytes do not depend on `{name}`.")
        known = setting.graph.relations.complete(setting.values)
        if {s.name for s in coefficients[0].free_symbols} <= known.keys():
            least = forms.evaluate(forms.from_expr(coefficients[0]), known)
            if least >= size:
                raise ValuesError(
                    f"nothing fits: {Quantity(least, BYTE)} do not depend on {name}, the capacity is "
                    f"{Quantity(size, BYTE)}", hint="shard more, recompute activations, or take a larger device",
                )  # fmt: skip
    left: Form = cap if fixed is None else Total((cap, forms.negative(fixed)))
    if rest == {-1}:
        shared = _said(work, "M_shared", coefficients[-1], f"These bytes are divided by `{name}`.")
        work.define(f"{name}_min", Ceiling(Ratio(shared, left)), ONE, "solve",
                    f"The smallest whole `{name}` that fits.",
                    witness=fits)  # fmt: skip
    elif rest == {1}:
        each = _said(work, "M_each", coefficients[1], f"Each additional unit of `{name}` adds these bytes.")
        q = num(multiple)
        most = Floor(Ratio(left, each)) if multiple == 1 else product(q, Floor(Ratio(left, product(q, each))))
        kind = "whole" if multiple == 1 else f"multiple of {multiple}, as"
        work.define(f"{name}_max", most, ONE, "solve",
                    f"The largest {kind} `{name}`{'' if multiple == 1 else ','} that fits.",
                    witness=fits)  # fmt: skip
        known = relations.complete({k: v for k, v in setting.values.items() if k != name})
        needed = sp.expand(whole.subs(x, multiple))
        if {s.name for s in needed.free_symbols} <= known.keys():
            _fits(forms.evaluate(forms.from_expr(needed), known), name, multiple, size)
        else:
            return (Condition(in_bytes(needed), "<=", Num(size, BYTE)),)
    else:
        _search(work, setting, whole, x, size, multiple, fits)
    return ()


def _fits(needed: Fraction, name: str, least: int, size: Fraction) -> None:
    """Raises ``ValuesError`` where not even the least size fits."""
    if needed > size:
        needs, have = Quantity(needed, BYTE), Quantity(size, BYTE)
        raise ValuesError(f"nothing fits: {name} = {least} needs {needs}, the capacity is {have}")


def _search(
    work: StepWriter, setting: Setting, whole: Expr, x: Expr, size: Fraction, multiple: int, fits: Witness
) -> None:  # fmt: skip
    """Where the bytes are no straight line: the last whole number that fits, found by halving."""
    relations = setting.graph.relations
    values = {k: v for k, v in setting.values.items() if k != x.name}
    form = forms.from_expr(whole)
    known = relations.complete({**values, x.name: Fraction(multiple)})
    missing = [n for n in forms.names(form) if n not in known]
    if missing:
        raise ValuesError(f"this is no straight line in {x.name}: give {', '.join(missing)}", hint=f"{missing[0]}=8")

    def takes(n: int) -> Fraction:
        return forms.evaluate(form, relations.complete({**values, x.name: Fraction(n)}))

    growing = takes(2 * multiple) > takes(multiple)
    if growing:
        _fits(takes(multiple), x.name, multiple, size)
    edge: tuple[int, int] | None = (multiple, multiple)
    if growing or takes(multiple) > size:
        edge = CountQuestion(takes, range(multiple, multiple * (2**60 + 1), multiple)).edge(size)
    if edge is None:
        raise ValuesError(f"no {x.name} fits", hint="the bytes hardly depend on it")
    found, beside = edge if growing else edge[::-1]
    taken, not_so = Quantity(takes(found), BYTE), Quantity(takes(beside), BYTE)
    text = f"{x.name} = {found} takes {taken}, which fits; {x.name} = {beside} takes {not_so}."
    text += f" It is a multiple of {multiple}." if multiple > 1 else ""
    which = "max" if growing else "min"
    work.define(f"{x.name}_{which}", forms.num(found), ONE, "search", text, witness=fits)


def _part(share: Fraction, of: Derivation, numbers: Numbers) -> Fraction:
    return share * of.again(numbers)


def _last(work: StepWriter, whole: Expr, name: str, capacity: Fraction, multiple: int, numbers: Numbers) -> bool:
    """Whether the answer fits, and the next size beyond it does not."""
    step = next(s for s in work.steps if s.name.startswith((f"{name}_min", f"{name}_max")))
    answer, relations = numbers[step.name], work.setting.graph.relations
    if answer < 1:
        raise ValuesError("nothing fits at these numbers")
    beyond = answer + (-multiple if step.name.endswith("_min") else multiple)
    written = forms.from_expr(whole)
    moved = {left for left, right in relations.equations if name in forms.names(right)} | {name}
    held = numbers.of({*forms.names(written)} - moved)

    def taken(size: Fraction) -> Fraction:
        return forms.evaluate(written, relations.complete({**held, name: size}))

    return taken(answer) <= capacity and (beyond < 1 or taken(beyond) > capacity)
