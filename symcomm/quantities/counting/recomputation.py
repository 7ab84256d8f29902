"""What recomputation costs: the operations and the collectives of the forward pass that are run a second time."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from symcomm import form as forms
from symcomm.derivation import Derivation
from symcomm.dtypes import element_bytes
from symcomm.errors import StrategyError, ValuesError, nearest
from symcomm.form import Form, Sym, Total, num, product
from symcomm.graph.gradient import backward
from symcomm.graph.graph import Graph
from symcomm.parallel.placement import Collective, plan
from symcomm.parallel.strategy import Strategy, parse_strategy
from symcomm.quantities.counting.flops import row_totals, touched
from symcomm.quantities.declared import Meaning
from symcomm.quantities.memory.saved import has_scores, rerun_ops
from symcomm.quantities.options import Recomputation, StrategyOption
from symcomm.quantities.setting import Setting, Work
from symcomm.units import BYTE, FLOP, ONE

COUNTS = ("flops", "hardware_flops", "all-reduces", "bytes")


def run_again(graph: Graph, recomputation: str) -> frozenset[str]:
    """The forward ops that run a second time.

    Selective recomputation runs the whole core of attention, up to the product with the values, as one function.
    """
    found = rerun_ops(graph, recomputation)
    if recomputation == "selective":
        core = {op.output for op in graph.ops if op.phase == "forward" and any(has_scores(graph, n) for n in op.inputs)}
        return found | core
    return found


def derive(
    setting: Setting,
    recomputation: Annotated[
        Recomputation, Meaning("none, selective, full, or the tensors that are computed again")
    ] = "full",
    count: Annotated[Literal["flops", "hardware_flops", "all-reduces", "bytes"], Meaning("what is counted")] = "flops",
    strategy: StrategyOption | None = None,
) -> Derivation:
    """What recomputation runs a second time.

    What is computed or communicated again: extra ``flops``, all ``hardware_flops`` of an iteration, ``all-reduces``
    of a layer and iteration, or the ``bytes`` of the collectives that run again.

    Source: Korthikanti et al., arXiv 2205.05198, section 5.
    """
    if count not in COUNTS:
        raise ValuesError(f"'{count[:40]}' is not counted", hint=nearest(count, [*COUNTS]))
    again = recomputation if isinstance(recomputation, str) else ", ".join(recomputation)
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    graph = setting.graph
    names = run_again(graph, again)
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
    graph, work = setting.graph, Work(setting)
    both = backward(graph, input_gradient=True)
    repeat: Form = Sym(graph.repeat) if graph.repeat else num(1)
    totals: dict[str, Form] = {}
    phases = {"again": [o for o in graph.ops if o.output in names]}
    if count == "hardware_flops":
        every = [o for o in both.ops if o.phase == "forward"], [o for o in both.ops if o.phase == "backward"]
        phases = {"fwd": every[0], "bwd": every[1], **phases}
    for short, ops in phases.items():
        rows = row_totals(work, both, ops, f"^{short}")
        what = {"fwd": "The forward pass", "bwd": "The backward pass", "again": "What runs again"}[short]
        form = Total(tuple(rows)) if len(rows) > 1 else rows[0] if rows else forms.Num(Fraction(0), FLOP)
        totals[short] = work.define(f"F_layer^{short}", form, FLOP, "add the rows", f"{what}, in one layer.")
    parts = tuple(totals.values())
    whole = product(repeat, Total(parts) if len(parts) > 1 else parts[0])
    text = "Forward, backward and what runs again." if len(parts) > 1 else "What runs again."
    work.define("F", whole, FLOP, "repeat" if graph.repeat else "add", text)
    return setting.derivation(title, work.steps, touched(setting, both, both.ops))


def _collectives(setting: Setting, names: frozenset[str], count: str, strategy: Strategy, title: str) -> Derivation:
    work = Work(setting, *strategy.sizes.values())
    made = plan(backward(setting.graph, input_gradient=True), strategy, setting.accounting)
    moved = [c for c in made.collectives if _of_activations(made.graph, c)]
    again = [c for c in moved if c.phase == "forward" and c.op in names]
    if count == "all-reduces":
        groups = {
            "fwd": ("The forward pass", [c for c in moved if c.phase == "forward"]),
            "bwd": ("The backward pass", [c for c in moved if c.phase == "backward"]),
            "again": ("The forward pass that runs again", again),
        }
        parts = []
        for short, (what, calls) in groups.items():
            number = len([c for c in calls if c.kind == "all-reduce"])
            listed = ", ".join(f"`{c.tensor}`" for c in calls if c.kind == "all-reduce") or "none"
            parts.append(work.define(f"c_{short}", num(number), ONE, "all-reduces", f"{what} of one layer: {listed}."))
        work.define("c", Total(tuple(parts)), ONE, "add", "All-reduces of activations, in one layer and iteration.")
        return setting.derivation(title, work.steps, ["communication"])
    size = element_bytes(setting.dtype)
    terms: list[Form] = [product(setting.written(c.elements), size) for c in again]
    listed = ", ".join(f"{c.kind} of `{c.tensor}`" for c in again) or "none"
    form = Total(tuple(terms)) if len(terms) > 1 else terms[0] if terms else forms.Num(Fraction(0), BYTE)
    one = work.define("V_layer", form, BYTE, "collectives that run again", f"In one layer: {listed}.")
    work.define("V", product(Sym(setting.graph.repeat), one) if setting.graph.repeat else one, BYTE, "repeat",
                "All layers are alike.")  # fmt: skip
    return setting.derivation(title, work.steps, ["communication"])


def _of_activations(graph: Graph, call: Collective) -> bool:
    tensor = graph.tensors[call.tensor.split(" @ ")[0]]
    of = graph.tensors.get(tensor.of, tensor)
    return of.role in ("activation", "input") and call.phase != "update"
