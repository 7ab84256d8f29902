"""The memory of one rank over a training step, op by op: where the peak is and what it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import sympy as sp

from symcomm import form as forms
from symcomm.derivation import Derivation, Exhibit, Reason, Step, exact
from symcomm.errors import StrategyError, ValuesError, nearest
from symcomm.form import Form, Num, Sym, evaluate, names
from symcomm.parallel.placement import check_divisible
from symcomm.parallel.strategy import Strategy, parse_strategy
from symcomm.passes.activation_memory import named
from symcomm.passes.allocated_memory import ROUNDINGS, block
from symcomm.passes.capacity import in_bytes
from symcomm.passes.saved import ONE_RANK
from symcomm.passes.setting import Setting, Work
from symcomm.passes.state_memory import recipe_of
from symcomm.passes.stretches import STEPS, Course, Moment, Run, Stretch, add
from symcomm.units import BYTE, Quantity

KINDS = {
    "weights": "M_W", "gathered weights": "M_gathered", "gradients": "M_G", "gradient buckets": "M_bucket",
    "optimizer states": "M_O", "saved activations": "M_A", "temporaries": "M_T", "held tensors": "M_held",
    "workspaces": "M_work", "rounding": "M_round",
}  # fmt: skip


def derive(
    setting: Setting,
    strategy: Strategy | str | None = None,
    recipe: str = "mixed_adam",
    dtype: str | None = None,
    recomputation: str | Iterable[str] = "none",
    frozen: str | Iterable[str] | None = None,
    step: str = "later",
    held: str | Iterable[str] | None = None,
    workspace: object = None,
    rounding: str = "none",
    update_copies: object = 0,
    tables: str = "shared",
    units: str = "layer",
    buckets: str = "none",
    stretches: Sequence[Stretch] = (),
) -> Derivation:
    """The most bytes that are alive at once on one rank in a training step, and the op during which they are.

    Gradients come into being in the backward pass and are dropped after the update. Which op is the peak depends on
    the sizes, so all of them must be known. Raises ``ValuesError`` where one is not.

    ``step`` is ``forward`` (that pass alone), the ``first`` step (the update makes the optimizer's states, weight by
    weight) or a ``later`` one. Named terms that are no tensor of the graph: ``held`` tensors; a ``workspace`` for the
    thread of each pass; the ``rounding`` of an allocator (``requests`` or ``blocks``, as in ``allocated_memory``);
    ``update_copies`` of one weight in fp32 during its update; ``tables`` that are made ``per_layer``; ``units: model``
    (all weights are gathered at once); ``buckets: copy`` (a flat copy of all gradients). ``stretches`` are the parts of
    a model in the order they run.
    """
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if strategy is not None and strategy.pipeline is not None:
        raise StrategyError(
            "the timeline of a pipeline has many microbatches", hint="ask for activation_memory with a schedule"
        )
    for name, said, known in (("step", step, STEPS), ("rounding", rounding, ROUNDINGS),
                              ("tables", tables, ("shared", "per_layer")), ("units", units, ("layer", "model")),
                              ("buckets", buckets, ("none", "copy"))):  # fmt: skip
        if said not in known:
            raise ValuesError(f"unknown {name} '{str(said)[:40]}'", hint=nearest(str(said), [*known]))
    if strategy is None and (buckets != "none" or units != "layer"):
        given = "buckets: copy" if buckets != "none" else "units: model"
        raise StrategyError(f"'{given}' belongs to data parallelism", hint="say strategy: data(k) or fsdp(k)")
    if dtype:
        setting = replace(setting, dtype=dtype)
    stretches = tuple(stretches) or (Stretch(setting.graph.name, setting.graph),)
    if strategy is not None:
        for stretch in stretches:
            check_divisible(stretch.graph, strategy, setting.values)
    again = recomputation if isinstance(recomputation, str) else ", ".join(recomputation)
    run = Run(
        strategy or ONE_RANK, recipe_of(recipe), again, named(frozen), step, named(held), _count(update_copies),
        _bytes(workspace), tables == "per_layer", units == "model", buckets == "copy",
    )  # fmt: skip
    found = Course(setting, stretches, run).moments()
    values = setting.graph.relations.complete(setting.values)
    missing = [n for m in found for _, f in m.parts for n in names(f) if n not in values]
    if missing:
        raise ValuesError(
            f"which op is the peak depends on the sizes: no value is given for {', '.join(dict.fromkeys(missing))}",
            hint=f"for instance {missing[0]}=8",
        )
    worth = [_worth(moment, values, rounding) for moment in found]
    totals = [sum(w.values(), Fraction(0)) for w in worth]
    top = max(range(len(found)), key=lambda n: totals[n])
    peak = found[top]
    parts = {**dict(peak.parts), "rounding": Num(worth[top]["rounding"], BYTE)}
    work = Work(setting, *(strategy.sizes.values() if strategy else ()), *parts.values())
    where = f"{_where(peak)}, while it makes {peak.op}" if peak.phase != "optimizer" else "update by the optimizer"
    if peak.phase == "optimizer" and run.copies:
        where += f", in {peak.op.removeprefix('the ')}"
    terms: list[Form] = []
    for kind, letter in KINDS.items():
        if worth[top].get(kind):
            form = in_bytes(sp.factor_terms(setting.graph.relations.gather(sp.expand(forms.value(parts[kind])))))
            text = _SAID.get(kind, f"The {kind} that are alive at the peak: {where}.")
            work.steps.append(Step(_free(work, letter), form, BYTE, Reason("alive", text)))
            work.known[work.steps[-1].name] = forms.value(form)
            terms.append(Sym(work.steps[-1].name))
    work.define("M_peak", add(terms), BYTE, "add", f"The peak is in the {where}.")
    exhibit = _exhibit(found, worth, totals, top)
    return setting.derivation("Peak memory" + (f" under {strategy.name}" if strategy else ""), work.steps,
                              ["saved"], [exhibit])  # fmt: skip


_SAID = {
    "gathered weights": "All weights are one unit: they are gathered as long as any layer runs.",
    "gradient buckets": "Data parallelism keeps flat buckets besides the gradients, and reduces those.",
    "held tensors": "The program still refers to these.",
    "workspaces": "What a library keeps for itself, for each thread that calls it.",
    "rounding": "What the allocator's blocks hold more than was asked for. What comes after the forward pass is cut "
    "from memory that was freed.",
}


def _worth(moment: Moment, values: Mapping[str, Fraction], rounding: str) -> dict[str, Fraction]:
    """The bytes of each kind; of the rounding, what fresh storages take more than was asked for."""
    found = {kind: evaluate(form, values) for kind, form in moment.parts}
    more = Fraction(0)
    for count, sizes in moment.fresh if rounding != "none" else ():
        each = [evaluate(size, values) for size in sizes]
        more += evaluate(count, values) * sum((block(size, rounding) - size for size in each), Fraction(0))
    return {**found, "rounding": more}


def _count(said: object) -> int:
    count = exact(said, "update_copies")
    if count.denominator != 1 or not 0 <= count <= 100:
        raise ValuesError(f"update_copies is {count}", hint="a whole number, such as 5; at most 100")
    return int(count)


def _bytes(said: object) -> Fraction:
    size = Fraction(0) if said is None else exact(said, "workspace")
    if size < 0:
        raise ValuesError(f"a workspace of {size} B", hint="for instance 32 MiB")
    return size


def _free(work: Work, name: str) -> str:
    while name in work.taken or name in work.known:
        name += "'"
    return name


def _where(moment: Moment) -> str:
    if moment.phase == "optimizer":
        return "optimizer"
    return f"{moment.phase} pass of the {moment.place}"


# The columns of the timeline, and the kinds that each holds together.
_COLUMNS = {
    "weights": ("weights", "gathered weights"), "gradients": ("gradients", "gradient buckets"),
    "states": ("optimizer states",), "saved": ("saved activations",), "passing": ("temporaries",),
    "besides": ("held tensors", "workspaces", "rounding"),
}  # fmt: skip
_ROWS = 45


def _exhibit(found: list[Moment], worth: list[dict[str, Fraction]], totals: list[Fraction], top: int) -> Exhibit:
    """The timeline: of each table row in each phase the op with the most memory; where these are too many for a page,
    of each stretch in each phase.
    """
    columns = [c for c, kinds in _COLUMNS.items() if c != "besides" or any(w.get(k) for w in worth for k in kinds)]
    shown: list[int] = []
    for by_row in (True, False):
        best: dict[tuple[str, str], int] = {}
        for n, moment in enumerate(found):
            key = (_where(moment), moment.row if by_row else "")
            if key not in best or totals[n] > totals[best[key]]:
                best[key] = n
        shown = sorted(best.values())
        if len(shown) <= _ROWS:
            break
    unit, scale = ("MiB", 2**20) if totals[top] >= 10 * 2**20 else ("KiB", 2**10)

    def rounded(amount: Fraction) -> str:
        return f"{float(amount / scale):,.1f}".replace(",", " ")

    rows: list[tuple[str | Form | Quantity, ...]] = []
    for n in shown:
        moment, mark = found[n], " (peak)" if n == top else ""
        name = moment.op if moment.phase != "optimizer" or worth[n].get("temporaries") else "the update"
        place = moment.phase + (f", {moment.place}" if moment.phase != "optimizer" else "")
        amounts = [sum((worth[n].get(kind, Fraction(0)) for kind in _COLUMNS[c]), Fraction(0)) for c in columns]
        rows.append((place, f"{name}{mark}", *map(rounded, amounts), rounded(totals[n])))
    return Exhibit(f"The step, op by op, in {unit}", ("phase", "op", *columns, "total"), tuple(rows))
