"""The cost of recomputation: the operations and the collectives of the forward pass that run a second time."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation
from symcomm.core.dtypes import element_bytes
from symcomm.core.errors import StrategyError
from symcomm.core.form import Form, Total, combined, num, product
from symcomm.core.graph.graph import Graph, Op, Region
from symcomm.core.libraries import Expr
from symcomm.core.parallel.placement import Collective
from symcomm.core.parallel.strategy import parse_strategy
from symcomm.core.program.instructions import Program
from symcomm.core.program.program import program
from symcomm.core.quantities.counting.flops import counted, looped, row_totals
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Frozen, Recomputation, StrategyOption
from symcomm.core.quantities.witnesses import laid_out
from symcomm.core.setting import Setting, StepWriter, mark, times
from symcomm.core.units import BYTE, FLOP, ONE


def derive(
    setting: Setting,
    recomputation: Annotated[Recomputation, Meaning("none, selective, full, or the tensors to compute again")] = "full",
    count: Annotated[
        Literal["flops", "hardware_flops", "all-reduces", "bytes"], Meaning("the operations or bytes to count")
    ] = "flops",
    strategy: StrategyOption | None = None,
    frozen: Frozen | None = None,
) -> Derivation:
    """The operations and collectives that recomputation runs a second time.

    What is computed or communicated again: extra ``flops``, all ``hardware_flops`` of an iteration, ``all-reduces``
    of a layer and iteration, or the ``bytes`` of the collectives that run again. ``frozen`` weights get no gradient.

    Source: Korthikanti et al., arXiv 2205.05198, section 5.
    """
    again = recomputation if isinstance(recomputation, str) else ", ".join(recomputation)
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    setting, of_flops = setting.freeze(frozen), count in ("flops", "hardware_flops")
    if placed is None and not of_flops:
        raise StrategyError("no strategy is named", hint="for instance tensor(8)")
    made = program(setting.graph, None if of_flops else placed, setting.accounting, setting.frozen, True, again)
    write, title = _flops if of_flops else _collectives, f"{_called(again)}: {count.replace('_', ' ')}"
    return write(setting, made, count, title)


def _called(again: str) -> str:
    if again == "none":
        return "Without recomputation"
    if again in ("selective", "full"):
        return f"{again.capitalize()} recomputation"
    return "Recomputation of " + ", ".join(f"`{name.strip()}`" for name in again.split(","))


def _flops(setting: Setting, made: Program, count: str, title: str) -> Derivation:
    """What runs again, the scores inside of a kernel included, which its backward pass makes for itself."""
    both, work = made.graph, StepWriter(setting)
    if setting.graph.scores:
        setting.choice("softmax")
    terms: list[Form] = []
    ran: list[tuple[Region, Op]] = []
    alone = len(setting.regions) == 1
    shown = {"fwd": "forward", "bwd": "backward", "again": "recompute"}
    for region in setting.regions:
        phases = {short: made.ops(region.name, phase) for short, phase in shown.items()}
        if count == "flops":
            phases = {"again": phases["again"]}
        if not (phases["again"] or alone):
            del phases["again"]
        totals: list[Form] = []
        for short, ops in phases.items():
            found = counted(setting, both, ops)
            rows = row_totals(work, both, found, f"^{short}")
            if not rows and not alone:
                continue
            what = {"fwd": "The forward pass", "bwd": "The backward pass", "again": "The recomputation"}[short]
            once = [(Region(region.name), op) for op, _ in found]
            ran += [(region, op) for _, op in once]
            called, where = ("layer", "in one layer") if alone else (mark(region), f"in the {region.name}")
            totals.append(work.define(f"F_{called}^{short}", combined(Total, rows, FLOP), FLOP, "add the rows",
                                      f"{what}, {where}.",
                                      witness=partial(looped, setting.accounting, both, once)))  # fmt: skip
        if totals:
            terms.append(times(region, combined(Total, totals)))
    text = "Forward, backward and recomputation." if count == "hardware_flops" else "The recomputation."
    work.define("F", combined(Total, terms, FLOP), FLOP, "repeat" if setting.graph.repeat else "add", text,
                witness=partial(looped, setting.accounting, both, ran))  # fmt: skip
    return setting.derivation(title, work.steps)


def _collectives(setting: Setting, made: Program, count: str, title: str) -> Derivation:
    work = StepWriter(setting, *made.strategy.forms)
    setting.choice("communication")
    stacked = {region.name for region in setting.regions if region.times} or {r.name for r in setting.regions}
    moved = [(t, t.work) for t in made.instructions if isinstance(t.work, Collective) and not t.between_stages
             and _of_activations(made.graph, t.work) and made.graph.producers[t.work.op].region in stacked]  # fmt: skip
    again = [call for instruction, call in moved if instruction.phase == "recompute"]
    if count == "all-reduces":
        groups = {
            "fwd": ("The forward pass", [c for instruction, c in moved if instruction.phase == "forward"]),
            "bwd": ("The backward pass", [c for instruction, c in moved if instruction.phase == "backward"]),
            "again": ("The recomputation", again),
        }
        counts: list[Form] = []
        for short, (what, calls) in groups.items():
            number = len([c for c in calls if c.kind == "all-reduce"])
            listed = ", ".join(f"`{c.tensor}`" for c in calls if c.kind == "all-reduce") or "none"
            counts.append(work.define(f"c_{short}", num(number), ONE, "all-reduces", f"{what} of one layer: {listed}."))
        every = [call for _, call in moved]
        work.define("c", Total(tuple(counts)), ONE, "add", "All-reduces of activations, in one layer and iteration.",
                    witness=lambda numbers: sum(c.kind == "all-reduce" for c in every))  # fmt: skip
        return setting.derivation(title, work.steps)
    formats = {n: t.dtype or setting.dtype for n, t in made.graph.tensors.items()}
    parts: list[Form] = []
    sent: list[tuple[Form, tuple[Expr], Fraction]] = []
    for region in setting.regions:
        mine = [c for c in again if made.graph.producers[c.op].region == region.name]
        if not mine and len(setting.regions) > 1:
            continue
        wide = [element_bytes(formats[c.tensor.split(" @ ")[0]]) for c in mine]
        sizes = [product(setting.written(c.elements), each) for c, each in zip(mine, wide, strict=True)]
        once = [((c.elements,), each.number) for c, each in zip(mine, wide, strict=True)]
        listed = ", ".join(f"{c.kind} of `{c.tensor}`" for c in mine) or "none"
        one = work.define("V_layer", combined(Total, sizes, BYTE), BYTE, "collectives that run again",
                          f"In one layer: {listed}.",
                          witness=partial(laid_out, [(num(1), *each) for each in once]))  # fmt: skip
        parts.append(times(region, one))
        sent += [(times(region, num(1)), *each) for each in once]
    work.define("V", combined(Total, parts, BYTE), BYTE, "repeat", "All layers are alike.",
                witness=partial(laid_out, sent))  # fmt: skip
    return setting.derivation(title, work.steps)


def _of_activations(graph: Graph, call: Collective) -> bool:
    tensor = graph.tensors[call.tensor.split(" @ ")[0]]
    of = graph.tensors.get(tensor.of, tensor)
    return of.role in ("activation", "input") and call.phase != "update"
