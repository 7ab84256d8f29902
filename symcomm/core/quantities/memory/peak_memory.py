"""The memory of one rank over a training step, op by op: where the peak is and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

import sympy as sp

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Derivation, Exhibit, exact, rational
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.form import Form, Largest, Sym, Total, evaluate, num
from symcomm.core.graph.autocast import copies_of_weights
from symcomm.core.libraries import Expr
from symcomm.core.parallel.strategy import Size, degree
from symcomm.core.program.closed_forms import chunks_of
from symcomm.core.program.instructions import HOST, Program, Send, gathers_weight
from symcomm.core.program.program import ONE_RANK, program
from symcomm.core.program.rewrites.halves import norm_weights
from symcomm.core.program.schedules import USUAL_SCHEDULE, find
from symcomm.core.program.step import AHEAD_OF, StepOptions
from symcomm.core.program.storage import AHEAD, COPY, PASSING, SAVED
from symcomm.core.quantities import options
from symcomm.core.quantities.declared import Extent, Meaning, Reads
from symcomm.core.quantities.memory.allocated_memory import block
from symcomm.core.quantities.memory.asked import of_step, other_saved, placed, read_choices, saved_differs, told_again
from symcomm.core.quantities.memory.capacity import in_bytes
from symcomm.core.quantities.memory.snapshots import Snapshot, StepPeak, StepRun, StepWalk, count_form, walked
from symcomm.core.quantities.memory.state_memory import batches, recipe_of, sharded_gradients
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter, named
from symcomm.core.units import BYTE, Quantity

_MANY = 10**6  # layers: the line that is the highest there has the steepest slope
KINDS = {
    "weights": "M_W",
    "gathered weights": "M_gathered",
    AHEAD: "M_ahead",
    COPY: "M_copies",
    "gradients": "M_G",
    "gradient buckets": "M_bucket",
    "optimizer states": "M_O",
    "saved activations": "M_A",
    "temporaries": "M_T",
    "held tensors": "M_held",
    "workspaces": "M_work",
    "rounding": "M_round",
}


def derive(
    setting: Setting,
    strategy: options.StrategyOption | None = None,
    recipe: options.RecipeName = "mixed_adam",
    dtype: options.Dtype | None = None,
    recomputation: options.Recomputation | None = None,
    every: options.Every | None = None,
    schedule: options.ScheduleName | None = None,
    stage: options.StageNumber | None = None,
    chunks: options.Chunks | None = None,
    frozen: options.Frozen | None = None,
    microbatches: options.Microbatches | None = None,
    step: Annotated[
        Literal["forward", "backward", "first", "later"],
        Meaning("the forward or the backward pass alone, the first step or a later one"),
    ] = "later",
    held: options.RankShare | None = None,
    workspace: Annotated[
        options.Amount, Meaning("a library's own buffers for the thread of each pass, such as 32 MiB")
    ] = None,
    rounding: Annotated[Literal["requests", "blocks", "none"], Meaning("how the allocator rounds")] = "none",
    update_copies: Annotated[
        int | str, Reads("count"), Meaning("the fp32 copies of a weight during its update, such as 5")
    ] = 0,
    tables: Annotated[
        Literal["shared", "per_layer"], Meaning("whether each layer makes its own masks and rotations")
    ] = "shared",
) -> Annotated[Derivation, Extent("rank")]:
    """The most bytes alive at once on one rank in a training step, and the op during which they are.

    Gradients come into being in the backward pass and are dropped after the update. Which op is the peak depends on
    the sizes, so all of them must be known; only the number of layers need not be, for one microbatch. Raises
    ``ValuesError`` and ``StrategyError`` for what is not known or does not fit.

    ``recomputation`` is that of ``activation_memory``: of a model of several parts, the layers that are repeated are
    computed again and what stands before and behind them is not. ``every`` computes groups of so many layers again,
    each from its first input. ``schedule``, ``stage`` (0 is the first) and ``chunks`` belong to a pipeline: what stands
    before the layers is on the first stage, what stands behind them on the last one. ``microbatches`` run one after the
    other; where gradients are reduced once for all of them, each rank adds up whole ones until then.

    ``step`` is ``forward`` or ``backward`` (that pass alone), the ``first`` step (the update makes the optimizer's
    states, weight by weight) or a ``later`` one. Named terms that are no tensor of the graph: ``held`` tensors; a
    ``workspace`` for the thread of each pass; the ``rounding`` of an allocator (as in ``allocated_memory``);
    ``update_copies`` of one weight in fp32 during its update; ``tables`` that are made ``per_layer``. Whether all
    weights are gathered at once, and gradients are copied to flat buckets, the accounting says.
    """
    strategy = placed(strategy, schedule=schedule, stage=stage, chunks=chunks)
    asked = recomputation
    setting, again = of_step(setting, strategy, dtype, frozen, recomputation, every)
    how = StepOptions(
        again,
        0 if every is None else _number(every, "every", 1),
        "later" if step == "backward" else step,
        _number(update_copies, "update_copies", 0, 100),
        tables == "per_layer",
    )
    size = Fraction(0) if workspace is None else exact(workspace, "workspace")
    if size < 0:
        raise ValuesError(f"a workspace of {size} B", hint="for instance 32 MiB")
    run = StepRun(strategy or ONE_RANK, recipe_of(recipe), how, named(held), size)
    cut = run.strategy.pipeline
    values = setting.graph.relations.complete(setting.values)

    def followed(layers: int | None = None, setting: Setting = setting) -> _Followed:
        known = values if layers is None else {**values, name: Fraction(layers)}
        setting, of_rank = replace(setting, values=known), _on_rank(setting, run, schedule, stage, chunks, microbatches)
        walk, found = walked(setting, of_rank)
        if step == "backward":
            found = [snapshot for snapshot in found if snapshot.phase not in ("forward", "optimizer")]
        worth = tuple(_worth(snapshot, known, rounding) for snapshot in found)
        totals = tuple(sum(w.values(), Fraction(0)) for w in worth)
        return _Followed(setting, of_rank, walk, tuple(found), worth, totals)

    counts = {region.times for region in setting.regions if region.times} - values.keys()
    linear = len(counts) == 1 and rounding == "none" and not (how.every or cut or microbatches is not None)
    name = next(iter(counts), "")
    few = 2 + AHEAD_OF[setting.accounting.prefetch]  # layers from which on each further one is like the others
    now = followed(few if linear else None)
    found, worth, totals = now.found, now.worth, now.totals
    tops = [now.top]
    if linear:  # each instant is a line over the layers: two counts say which of them are ever the highest
        tops = _highest(totals, [b - a for a, b in zip(totals, followed(few + 1).totals, strict=True)])
    pieces = [form for n in tops for form in (*(size for _, size in found[n].alive), *found[n].held)]
    work = StepWriter(setting, *(strategy.forms if strategy else ()), *pieces)
    if linear:
        lines: list[Form] = []
        for n in tops:
            alive = sp.Add(*(_alive(found[n], kind, worth[n]) for kind in KINDS if worth[n].get(kind)))
            form, text = _in_bytes(setting, alive), f"Memory in use in the {_during(found[n], run)}."
            lines.append(work.as_written("M_peak" if len(tops) == 1 else "M", form, BYTE, "alive", text))
        if len(lines) > 1:
            work.define("M_peak", Largest(tuple(lines)), BYTE, "most", f"The larger one depends on `{name}`.",
                        witness=lambda numbers: max(followed(int(numbers[name])).totals))  # fmt: skip
    terms: list[Form] = []
    for kind, letter in KINDS.items() if not linear else ():
        if worth[tops[0]].get(kind):
            form = _in_bytes(setting, _alive(found[tops[0]], kind, worth[tops[0]]))
            text = _SAID.get(kind, f"The {kind} in memory at the peak.")
            terms.append(work.as_written(letter, form, BYTE, "alive", text))
    if not linear:
        text = f"The peak is in the {_during(found[tops[0]], run)}."
        work.define("M_peak", forms.combined(Total, terms, BYTE), BYTE, "add", text,
                    witness=lambda numbers: max(totals))  # fmt: skip
    exhibits = [] if linear else [_exhibit(now, tops[0])]
    title = "Peak memory" + (f" under {strategy.name}" if strategy else "")
    notes: list[str] = []
    if again != "none" or how.every:
        notes += told_again(setting.regions)
    if cut is not None:
        notes.append("A stage frees an activation that it has sent, unless its own gradients read it.")
        if "+" in find(schedule or USUAL_SCHEDULE).kinds:
            notes.append("Where a forward overlaps with a backward, we assume both peaks at the same time.")
    stored = program(setting.graph, strategy, setting.accounting, setting.frozen, recomputation=again)
    if _fetches(stored) and setting.choice("prefetch") != "as_read" and how.every:
        raise ValuesError("weights are fetched ahead for layers that run one by one, not for groups of layers",
                          hint="leave 'every' out, or prefetch: as_read")  # fmt: skip
    read_choices(setting, [part.graph for part in setting.parts], stored, asked)
    other = replace(setting, accounting=other_saved(setting))
    several = (few, _MANY) if linear else (None,)
    compared = [(followed(n) if linear else now, followed(n, other)) for n in several]
    if saved_differs(setting, stored) or any(one.most != two.most for one, two in compared):
        setting.choice("saved")
    if strategy is not None and any(rule.axis == "first" and "weight" in rule.on for _, rule in strategy.rules):
        setting.choice("gathered_weights")
    kept = run.recipe
    away = setting.accounting.off_device - {"activation"}
    if any(kept.shaped(role) or kept.per_parameter(role) for role in away):
        setting.choice("offloading")
    if any(w.get("gradient buckets") for w in worth):
        setting.choice("gradient_buckets")
    if cut is None and microbatches is None and copies_of_weights(setting.graph):
        setting.choice("weight_copies")
    apart = cut is not None and "W" in find(schedule or USUAL_SCHEDULE).kinds
    if apart and norm_weights(setting.graph):
        setting.choice("norm_gradients")
    if sharded_gradients(strategy) and (microbatches is not None or cut is not None):
        setting.choice("accumulation")
    made = setting.derivation(title, work.steps, exhibits=exhibits, notes=notes)
    if linear:
        return replace(made, where=(Condition(Sym(name), ">=", num(few)),))
    if rounding != "none" or step == "backward":
        return made  # numbers decide more than the op of the peak
    (one, two), *_ = compared
    peaks = one.peak, two.peak
    return replace(made, same_at=partial(_is_same, peaks, one.most != two.most))


@dataclass(frozen=True)
class _Followed:
    """The memory of a step, op by op: bytes of each kind and in all."""

    setting: Setting
    run: StepRun
    walk: StepWalk
    found: tuple[Snapshot, ...]
    worth: tuple[dict[str, Fraction], ...]
    totals: tuple[Fraction, ...]

    @property
    def top(self) -> int:
        """The first op that has the most."""
        return self.totals.index(self.most)

    @property
    def most(self) -> Fraction:
        """The most bytes."""
        return max(self.totals)

    @property
    def peak(self) -> StepPeak:
        """The op that has them."""
        return StepPeak(self.setting, self.run, self.walk, self.top)


def _is_same(peaks: tuple[StepPeak, StepPeak], differ: bool, values: Mapping[str, Fraction]) -> bool:
    """Whether numbers have both peaks, under two choices of what is saved, during the same ops, and as (un)equal."""
    one, two = (peak.at(values) for peak in peaks)
    return one is not None and two is not None and (one != two) == differ


def _fetches(made: Program) -> bool:
    """Whether layers gather weights, or copy them from a host."""
    weights = {weight.name for weight in made.graph.weights}
    layers = (one.work for one in made.instructions if one.region.times and not one.early and one.phase != "update")
    return any(
        gathers_weight(made.graph, work)
        or (isinstance(work, Send) and work.meshes == HOST and work.tensor in weights)
        for work in layers
    )  # fmt: skip


def _highest(start: Sequence[Fraction], slopes: Sequence[Fraction]) -> list[int]:
    """Which of some lines are the highest anywhere from their start on.

    >>> _highest([Fraction(8), Fraction(5), Fraction(4)], [Fraction(0), Fraction(1), Fraction(3)])
    [0, 2]
    """
    found = [max(range(len(start)), key=lambda n: (start[n], slopes[n]))]
    while steeper := [n for n in range(len(start)) if slopes[n] > slopes[found[-1]]]:
        top = found[-1]
        meets = {n: (start[top] - start[n]) / (slopes[n] - slopes[top]) for n in steeper}
        found.append(min(steeper, key=lambda n: (meets[n], -slopes[n])))
    return found


def _in_bytes(setting: Setting, alive: Expr) -> Form:
    return in_bytes(sp.factor_terms(setting.graph.relations.gather(sp.expand(alive))))


def _during(peak: Snapshot, run: StepRun) -> str:
    """The op during which a snapshot is taken, for a reader."""
    where = f"{_where(peak)}, while it makes {peak.op}" if peak.phase != "optimizer" else "update by the optimizer"
    where += f" ({peak.when})" if peak.when else ""
    return where + (f", in {peak.op.removeprefix('the ')}" if peak.phase == "optimizer" and run.options.copies else "")


def _on_rank(
    setting: Setting, run: StepRun, schedule: str | None, stage: object, chunks: object, microbatches: Size | None
) -> StepRun:  # fmt: skip
    """The run of a step whose peak is asked for: of a whole model, or of one stage of its pipeline."""
    cut = run.strategy.pipeline
    if cut is not None:
        name = schedule or USUAL_SCHEDULE
        pieces = evaluate(chunks_of(find(name), None if chunks is None else _number(chunks, "chunks", 1)), {})
        run = replace(run, schedule=name, stage=_number(stage or 0, "stage", 0), chunks=int(pieces))
        batches(run.strategy, microbatches)
    elif microbatches is not None:
        run = replace(run, microbatches=degree(str(microbatches)))
    cached = setting.accounting.weight_copies == "kept_in_context" and bool(copies_of_weights(setting.graph))
    for option, wrong in (
        ("step: forward", run.options.step == "forward"), ("held", bool(run.held)),
        ("weight_copies: kept_in_context", cached),
    ):  # fmt: skip
        if wrong and cut is not None:
            raise StrategyError(f"'{option}' is of a model that is not cut into stages", hint="leave one of them out")
        if wrong and microbatches is not None:
            raise ValuesError(f"'{option}' is of a step of one microbatch", hint="leave 'microbatches' out")
    return run


_SAID = {
    "gathered weights": "All weights are one unit: they are gathered as long as any layer runs.",
    AHEAD: "The weights of the next layers are gathered, or copied in.",
    COPY: "Autocast keeps its copies of weights until its context ends.",
    "gradient buckets": "Data parallelism also keeps flat buckets of gradients and reduces the buckets.",
    "held tensors": "The program still holds these.",
    "workspaces": "A library's own buffers, for each thread that calls it.",
    "rounding": "The allocator rounds its blocks up. After the forward pass, new tensors reuse freed memory.",
}


def _worth(snapshot: Snapshot, values: Mapping[str, Fraction], rounding: str) -> dict[str, Fraction]:
    """The bytes of each kind; of the rounding, what storages take more than was asked for that no freed memory was
    there for: weights and what is kept, in the forward pass everything.
    """
    held = [evaluate(size, values) for size in snapshot.held]
    found, more = {**snapshot.bytes, "held tensors": sum(held, Fraction(0))}, Fraction(0)
    if rounding != "none":
        fresh = ("weights", SAVED, *([PASSING] if snapshot.phase == "forward" else []))
        alive = ((size, count_form(count)) for (kind, size), count in snapshot.alive.items() if kind in fresh)
        pieces = [(evaluate(count, values), evaluate(size, values)) for size, count in alive]
        pieces += [(Fraction(1), size) for size in held]
        more = sum((count * (block(size, rounding) - size) for count, size in pieces), Fraction(0))
    return {**found, "rounding": more}


def _alive(snapshot: Snapshot, kind: str, worth: Mapping[str, Fraction]) -> Expr:
    """The bytes of a kind as an expression in the sizes."""
    if kind == "held tensors":
        return sp.Add(*map(forms.value, snapshot.held))
    pieces = [count * forms.value(size) for (one, size), count in snapshot.alive.items() if one == kind]
    return sp.Add(*pieces) if pieces else rational(worth[kind])


def _number(said: object, name: str, least: int, most: int = 10**6) -> int:
    try:
        count = exact(said, name)
    except ValuesError:
        count = Fraction(-1, 2)
    if count.denominator != 1 or not least <= count <= most:
        raise ValuesError(f"{name} is {str(said)[:40]}", hint=f"a whole number from {least} to {most:,}")
    return int(count)


def _where(snapshot: Snapshot) -> str:
    if snapshot.phase == "optimizer":
        return "optimizer"
    return f"{snapshot.phase} pass of the {snapshot.place}"


# The columns of the timeline, and the kinds that each holds together.
_COLUMNS = {
    "weights": ("weights", "gathered weights", AHEAD, COPY),
    "gradients": ("gradients", "gradient buckets"),
    "states": ("optimizer states",),
    "saved": ("saved activations",),
    "passing": ("temporaries",),
    "other": ("held tensors", "workspaces", "rounding"),
}
_ROWS = 45


def _exhibit(step: _Followed, top: int) -> Exhibit:
    """The timeline: of each table row in each phase the op with the most memory; where these are too many for a page,
    of each region in each phase. The same for a pipeline, whose phases come three times.
    """
    found, worth, totals = step.found, step.worth, step.totals
    columns = [c for c, kinds in _COLUMNS.items() if c != "other" or any(w.get(k) for w in worth for k in kinds)]
    shown: list[int] = []
    for by_row in (False,) if found[0].when else (True, False):
        best: dict[tuple[str, str], int] = {}
        for n, snapshot in enumerate(found):
            key = (f"{snapshot.when} {_where(snapshot)}", snapshot.row if by_row else "")
            if key not in best or totals[n] > totals[best[key]]:
                best[key] = n
        shown = sorted(best.values())
        if len(shown) <= _ROWS:
            break
    unit, scale = ("MiB", 2**20) if totals[top] >= 10 * 2**20 else ("KiB", 2**10)

    def rounded(amount: Fraction) -> str:
        tenths = round(10 * amount / scale)  # exactly: what a float says ends at 10^308
        return f"{tenths // 10:,}.{tenths % 10}".replace(",", " ")

    rows: list[tuple[str | Form | Quantity, ...]] = []
    for n in shown:
        snapshot, mark = found[n], " (peak)" if n == top else ""
        name = snapshot.op if snapshot.phase != "optimizer" or worth[n].get("temporaries") else "the update"
        place = snapshot.phase + (f", {snapshot.place}" if snapshot.phase != "optimizer" else "")
        place = f"{snapshot.when}: {place}" if snapshot.when else place
        amounts = [sum((worth[n].get(kind, Fraction(0)) for kind in _COLUMNS[c]), Fraction(0)) for c in columns]
        rows.append((place, f"{name}{mark}", *map(rounded, amounts), rounded(totals[n])))
    return Exhibit(f"The step, op by op, in {unit}", ("phase", "op", *columns, "total"), tuple(rows))
