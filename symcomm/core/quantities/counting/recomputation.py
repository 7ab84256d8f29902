"""What recomputation costs: the operations and the collectives of the forward pass that are run a second time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.dtypes import element_bytes
from symcomm.core.errors import StrategyError, ValuesError, nearest
from symcomm.core.form import Form, Total, num, product
from symcomm.core.graph.gradient import training
from symcomm.core.graph.graph import Graph, Op, Region
from symcomm.core.parallel.placement import Collective
from symcomm.core.parallel.strategy import Strategy, parse_strategy
from symcomm.core.program.program import program
from symcomm.core.program.rewrites.recomputation import run_again
from symcomm.core.quantities.counting.flops import counted, looped, made_again, row_totals
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Frozen, Recomputation, StrategyOption
from symcomm.core.quantities.witnesses import often
from symcomm.core.quantities.witnesses import size as length
from symcomm.core.setting import Setting, Work, mark, times
from symcomm.core.units import BYTE, FLOP, ONE

COUNTS = ("flops", "hardware_flops", "all-reduces", "bytes")


def derive(
    setting: Setting,
    recomputation: Annotated[
        Recomputation, Meaning("none, selective, full, or the tensors that are computed again")
    ] = "full",
    count: Annotated[Literal["flops", "hardware_flops", "all-reduces", "bytes"], Meaning("what is counted")] = "flops",
    strategy: StrategyOption | None = None,
    frozen: Frozen | None = None,
) -> Derivation:
    """What recomputation runs a second time.

    What is computed or communicated again: extra ``flops``, all ``hardware_flops`` of an iteration, ``all-reduces``
    of a layer and iteration, or the ``bytes`` of the collectives that run again. ``frozen`` weights get no gradient.

    Source: Korthikanti et al., arXiv 2205.05198, section 5.
    """
    if count not in COUNTS:
        raise ValuesError(f"'{count[:40]}' is not counted", hint=nearest(count, [*COUNTS]))
    again = recomputation if isinstance(recomputation, str) else ", ".join(recomputation)
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    setting = setting.freeze(frozen)
    names = run_again(setting.graph, again, setting.frozen)
    title = f"{_called(again)}: {count.replace('_', ' ')}"
    if count in ("flops", "hardware_flops"):
        return _flops(setting, names, count, title)
    if strategy is None:
        raise StrategyError("no strategy is named", hint="for instance tensor(8)")
    return _collectives(setting, names, count, strategy, title)


def _called(again: str) -> str:
    if again == "none":
        return "Without recomputation"
    if again in ("selective", "full"):
        return f"{again.capitalize()} recomputation"
    return "Recomputation of " + ", ".join(f"`{name.strip()}`" for name in again.split(","))


def _flops(setting: Setting, names: frozenset[str], count: str, title: str) -> Derivation:
    """What runs again, and the scores inside of a kernel, which its backward pass makes for itself."""
    graph, work, inside = setting.graph, Work(setting), made_again(setting)
    both = training(graph, frozen=setting.frozen)
    terms: list[Form] = []
    ran: list[tuple[Region, Op]] = []
    alone = len(setting.regions) == 1
    for region in setting.regions:
        mine = [o for o in both.ops if o.region == region.name]
        again = [o for o in mine if o.phase == "forward" for some in (names, inside) if o.output in some]
        phases = {"again": again} if again or alone else {}
        if count == "hardware_flops":
            phases = {short: [o for o in mine if o.phase == phase]
                      for short, phase in (("fwd", "forward"), ("bwd", "backward"))} | phases  # fmt: skip
        totals: list[Form] = []
        for short, ops in phases.items():
            found = counted(setting, both, ops)
            rows = row_totals(work, both, found, f"^{short}")
            if not rows and not alone:
                continue
            what = {"fwd": "The forward pass", "bwd": "The backward pass", "again": "What runs again"}[short]
            form = Total(tuple(rows)) if len(rows) > 1 else rows[0] if rows else forms.Num(Fraction(0), FLOP)
            once = [(Region(region.name), op) for op, _ in found]
            ran += [(region, op) for _, op in once]
            called, where = ("layer", "in one layer") if alone else (mark(region), f"in the {region.name}")
            totals.append(work.define(f"F_{called}^{short}", form, FLOP, "add the rows", f"{what}, {where}.",
                                      witness=partial(looped, setting.accounting, both, once)))  # fmt: skip
        if totals:
            terms.append(times(region, Total(tuple(totals)) if len(totals) > 1 else totals[0]))
    whole = Total(tuple(terms)) if len(terms) > 1 else terms[0] if terms else forms.Num(Fraction(0), FLOP)
    text = "Forward, backward and what runs again." if count == "hardware_flops" else "What runs again."
    work.define("F", whole, FLOP, "repeat" if graph.repeat else "add", text,
                witness=partial(looped, setting.accounting, both, ran))  # fmt: skip
    return setting.derivation(title, work.steps)


def _collectives(setting: Setting, names: frozenset[str], count: str, strategy: Strategy, title: str) -> Derivation:
    work = Work(setting, *strategy.forms)
    setting.choice("communication")
    made = program(setting.graph, strategy, setting.accounting, setting.frozen, input_gradient=True).plan
    stacked = {region.name for region in setting.regions if region.times} or {r.name for r in setting.regions}
    moved = [
        c for c in made.collectives
        if _of_activations(made.graph, c) and made.graph.producers[c.op].region in stacked
    ]  # fmt: skip
    again = [c for c in moved if c.phase == "forward" and c.op in names]
    if count == "all-reduces":
        groups = {
            "fwd": ("The forward pass", [c for c in moved if c.phase == "forward"]),
            "bwd": ("The backward pass", [c for c in moved if c.phase == "backward"]),
            "again": ("The forward pass that runs again", again),
        }
        counts: list[Form] = []
        for short, (what, calls) in groups.items():
            number = len([c for c in calls if c.kind == "all-reduce"])
            listed = ", ".join(f"`{c.tensor}`" for c in calls if c.kind == "all-reduce") or "none"
            counts.append(work.define(f"c_{short}", num(number), ONE, "all-reduces", f"{what} of one layer: {listed}."))
        every = (*moved, *again)
        work.define("c", Total(tuple(counts)), ONE, "add", "All-reduces of activations, in one layer and iteration.",
                    witness=lambda numbers: sum(c.kind == "all-reduce" for c in every))  # fmt: skip
        return setting.derivation(title, work.steps)
    formats = {n: t.dtype or setting.dtype for n, t in made.graph.tensors.items()}
    parts: list[Form] = []
    calls_of: list[tuple[Region, list[Collective]]] = []
    for region in setting.regions:
        mine = [c for c in again if made.graph.producers[c.op].region == region.name]
        if not mine and len(setting.regions) > 1:
            continue
        sizes: list[Form] = [
            product(setting.written(c.elements), element_bytes(formats[c.tensor.split(" @ ")[0]])) for c in mine
        ]
        listed = ", ".join(f"{c.kind} of `{c.tensor}`" for c in mine) or "none"
        form = Total(tuple(sizes)) if len(sizes) > 1 else sizes[0] if sizes else forms.Num(Fraction(0), BYTE)
        one = work.define("V_layer", form, BYTE, "collectives that run again", f"In one layer: {listed}.",
                          witness=partial(_payloads, [(Region(region.name), mine)], formats))  # fmt: skip
        parts.append(times(region, one))
        calls_of.append((region, mine))
    whole = Total(tuple(parts)) if len(parts) > 1 else parts[0] if parts else forms.Num(Fraction(0), BYTE)
    work.define("V", whole, BYTE, "repeat", "All layers are alike.", witness=partial(_payloads, calls_of, formats))
    return setting.derivation(title, work.steps)


def _of_activations(graph: Graph, call: Collective) -> bool:
    tensor = graph.tensors[call.tensor.split(" @ ")[0]]
    of = graph.tensors.get(tensor.of, tensor)
    return of.role in ("activation", "input") and call.phase != "update"


def _payloads(
    calls: Sequence[tuple[Region, Sequence[Collective]]], formats: Mapping[str, str], numbers: Numbers
) -> Fraction:
    """The bytes of the collectives of each region, as often as it stands."""
    found = Fraction(0)
    for region, mine in calls:
        for c in mine:
            wide = element_bytes(formats[c.tensor.split(" @ ")[0]]).number
            found += often(region, numbers) * length(c.elements, numbers) * wide
    return found
