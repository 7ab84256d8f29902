"""The bytes a parallel strategy moves: the derived collectives and messages, counted under the accounting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal

from symcomm import form as forms
from symcomm.accounting import Accounting
from symcomm.collectives.algorithms import algorithm, share
from symcomm.collectives.cost import Case
from symcomm.derivation import Derivation, Exhibit
from symcomm.dtypes import element_bytes, said_bytes
from symcomm.errors import StrategyError, ValuesError
from symcomm.form import Form, Num, Ratio, Sym, Total, num, product
from symcomm.graph.gradient import backward
from symcomm.parallel import pipeline
from symcomm.parallel.placement import check_divisible, plan
from symcomm.parallel.strategy import PipelineCut, Strategy, parse_strategy
from symcomm.quantities.declared import Meaning, OneOf
from symcomm.quantities.options import Dtype, GradientDtype, StrategyOption
from symcomm.quantities.setting import Setting, Work
from symcomm.units import BYTE, ELEMENT, ONE

if TYPE_CHECKING:
    from sympy import Expr

SHORT = {"all-reduce": "AR", "all-gather": "AG", "reduce-scatter": "RS", "all-to-all": "A2A", "send": "send"}
_PHASES = {"forward": "fwd", "backward": "bwd", "update": "upd"}


@dataclass(frozen=True)
class Call:
    """One call as it is counted: a collective, or a message over a pipeline boundary."""

    kind: str
    tensor: str
    what: str
    elements: Expr
    mesh: str
    phase: str
    why: str
    dtype: str
    every_layer: bool = True
    op: str = ""


def calls(setting: Setting, strategy: Strategy, gradient_dtype: str | None = None) -> tuple[Call, ...]:
    """Every call of one layer and training iteration, in order."""
    graph, accounting = setting.graph, setting.accounting
    found: list[Call] = []
    needed = accounting.input_gradient == "needed"
    made = plan(backward(graph, input_gradient=needed or bool(graph.repeat)), strategy, accounting)
    fewer = made if needed else plan(backward(graph, input_gradient=False), strategy, accounting)
    spared = {(c.kind, c.tensor, c.phase) for c in fewer.collectives}
    for c in made.collectives:
        tensor = made.graph.tensors[c.tensor.split(" @ ")[0]]
        of = made.graph.tensors.get(tensor.of, tensor)
        weight_gradient = tensor.role == "gradient" and of.role == "weight"
        what = {"gradient": "gradient of ", "weight": "weight "}.get(tensor.role, "")
        what = "updated weight " if tensor.name.startswith("new(") else what
        what = what if what else "activation " if tensor.role == "activation" else "input "
        dtype = (gradient_dtype if weight_gradient else None) or of.dtype or setting.dtype
        every = needed or (c.kind, c.tensor, c.phase) in spared
        found.append(Call(c.kind, of.name, what, c.elements, c.mesh, c.phase, c.why, dtype, every, c.op))
    if accounting.gathered_weights == "whole_units":
        again = {(c.tensor, c.mesh) for c in found if c.kind == "all-gather" and c.phase == "backward"}
        why = "the unit it belongs to is gathered as a whole, though no gradient reads it"
        found += [
            replace(c, phase="backward", why=why)
            for c in found
            if (c.kind, c.phase, c.what) == ("all-gather", "forward", "weight ") and (c.tensor, c.mesh) not in again
        ]
    if strategy.pipeline is not None:
        for message in pipeline.messages(graph):
            tensor = graph.tensors[message.tensor]
            elements = graph.elements(tensor.name)
            for mesh, position in made.placements[tensor.name]:
                elements = elements / forms.value(strategy.sizes[mesh]) if position >= 0 else elements
            what = "gradient of " if message.phase == "backward" else "activation "
            found.append(
                Call(
                    "send",
                    tensor.name,
                    what,
                    elements,
                    "pipe",
                    message.phase,
                    message.why,
                    tensor.dtype or setting.dtype,
                )
            )
    return tuple(found)


def derive(
    setting: Setting,
    strategy: StrategyOption,
    collective: Annotated[str | None, OneOf(SHORT), Meaning("only calls of this kind")] = None,
    phase: Annotated[Literal["forward", "backward", "update"] | None, Meaning("only calls of this phase")] = None,
    dtype: Dtype | None = None,
    gradient_dtype: GradientDtype | None = None,
) -> Derivation:
    """The bytes that a parallel strategy moves in a training iteration.

    Those of its collectives and messages; ``collective`` and ``phase`` choose some of them. Which bytes
    are meant, the accounting says. Raises ``StrategyError`` where the strategy cannot be applied.
    """
    if strategy is None:
        raise StrategyError("no strategy is named", hint="for instance data(k)")
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if collective is not None and collective not in SHORT:
        raise ValuesError(f"unknown collective '{collective[:40]}'", hint="known: " + ", ".join(SHORT))
    if phase is not None and phase not in _PHASES:
        raise ValuesError(f"unknown phase '{phase[:40]}'", hint="known: " + ", ".join(_PHASES))
    if dtype:
        setting = replace(setting, dtype=dtype)
    check_divisible(setting.graph, strategy, setting.values)
    every = calls(setting, strategy, gradient_dtype)
    chosen = [c for c in every if collective in (None, c.kind) and phase in (None, c.phase)]
    work = Work(setting, *strategy.sizes.values())
    touched = _touched(setting, strategy, chosen)
    title = (
        f"Communication of {_title(strategy)}"
        + (f", {collective}" if collective else "")
        + (f", {phase}" if phase else "")
    )
    if not chosen:
        kinds = ", ".join(dict.fromkeys(c.kind for c in every)) or "no collective at all"
        text = f"The strategy needs none; it needs {kinds}."
        work.define("V", Num(Fraction(0), BYTE), BYTE, "nothing to send", text)
        return setting.derivation(title, work.steps, touched)
    groups: dict[tuple[str, str, str, str, bool], list[Call]] = {}
    for c in chosen:
        groups.setdefault((c.kind, c.phase, c.mesh, c.dtype, c.every_layer), []).append(c)
    several = {(kind, p) for kind, p, *_ in groups}
    counted: list[Form] = []
    for (kind, p, mesh, fmt, every_layer), members in groups.items():
        name = SHORT[kind]
        if len([1 for k, _ in several if k == kind]) > 1:
            name += f",{_PHASES[p]}"
        while f"n_{name}" in work.known:
            name += f",{mesh}" if f"n_{name},{mesh}" not in work.known else f",{fmt}"
        elements = [setting.written(c.elements) for c in members]
        n = work.define(f"n_{name}", Total(tuple(elements)) if len(elements) > 1 else elements[0], ELEMENT,
                        _rule(kind), _text(members))  # fmt: skip
        counted.append(_volume(work, strategy, name, n, kind, mesh, fmt, every_layer))
    _answer(work, strategy, chosen, counted, phase)
    return setting.derivation(title, work.steps, touched, [_exhibit(setting, strategy, chosen)])


def _title(strategy: Strategy) -> str:
    return strategy.name.lower() if strategy.name != strategy.name.upper() else strategy.name


def _touched(setting: Setting, strategy: Strategy, chosen: list[Call]) -> list[str]:
    found = ["communication"]
    if setting.accounting.communication not in ("payload", "contributed"):
        found.append("algorithm")
    if any(c.kind == "all-gather" and c.what.startswith("weight") for c in chosen):
        found.append("gathered_weights")
    if any(c.kind in ("all-gather", "all-to-all") and not c.what.startswith(("weight", "updated")) for c in chosen):
        found.append("gathered_activations")
    if any(c.kind == "send" for c in chosen):
        found.append("pipeline")
    if any(rule.axis == "paired" for _, rule in strategy.rules):
        found.append("input_gradient")
    return found


def _rule(kind: str) -> str:
    return {"send": "cut between stages"}.get(kind, kind)


def _text(members: list[Call]) -> str:
    """What the calls of a group move, and why they are needed."""
    first = members[0]
    listed = ", ".join(dict.fromkeys(f"`{c.tensor}`" for c in members[:8])) + (" and more" if len(members) > 8 else "")
    what = first.what.strip()
    plural = {"gradient of": "the gradients of", "weight": "the weights", "updated weight": "the updated weights",
              "activation": "the activations", "input": "the inputs"}  # fmt: skip
    same = all(c.what == first.what for c in members)
    moved = (
        f"{plural[what] if len(members) > 1 else what} {listed}"
        if same
        else ", ".join(f"{c.what}`{c.tensor}`" for c in members[:8])
    )
    if first.kind == "send":
        head = f"What crosses a boundary: {moved}"
    else:
        head = (
            f"{len(members)} calls of {first.kind}, for {moved}" if len(members) > 1 else f"One {first.kind}: {moved}"
        )
    general = {c.why.replace(f"`{c.tensor}`", "it") for c in members}
    why = first.why if len(members) == 1 else general.pop() if len(general) == 1 else ""
    return f"{head}. {why[0].upper()}{why[1:]}." if why else f"{head}."


def _layers(strategy: Strategy, setting: Setting, every_layer: bool) -> Form:
    """How many layers make the call: all of them, or for a count per rank those of one stage."""
    if not setting.graph.repeat:
        return num(1) if every_layer else num(0)
    count: Form = Sym(setting.graph.repeat)
    per_rank = setting.accounting.communication.endswith("per_rank")
    if strategy.pipeline is not None and per_rank:
        count = strategy.pipeline.layers_per_stage or Ratio(
            count, pipeline.stage_count(strategy.pipeline, setting.graph.repeat)
        )
    return count if every_layer else Total((count, num(-1)))


def _volume(work: Work, strategy: Strategy, name: str, n: Form, kind: str, mesh: str, fmt: str, every: bool) -> Form:
    setting = work.setting
    size = element_bytes(fmt)
    if kind == "send":
        text = f"An element takes {said_bytes(size)} in {fmt}."
        return work.define(f"V_{name}", product(n, size), BYTE, "bytes", text)
    times = _layers(strategy, setting, every)
    text = f"An element takes {said_bytes(size)} in {fmt}"
    text += "; every layer makes the calls." if every else "; every layer but the first makes the calls."
    if not setting.graph.repeat:
        text = f"An element takes {said_bytes(size)} in {fmt}."
    volume = work.define(f"V_{name}", product(times, n, size), BYTE, "bytes", text)
    accounting = setting.accounting
    if accounting.communication == "payload":
        return volume
    k = strategy.sizes[mesh]
    groups = product(*(s for m, s in strategy.sizes.items() if m != mesh))
    part = share(kind, accounting.communication, accounting.algorithm, k, groups)
    if part == num(1):
        return volume
    text = _counted_text(accounting, kind)
    return work.define(f"S_{name}", product(part, volume), BYTE, accounting.communication.replace("_", " "), text)


def _counted_text(accounting: Accounting, kind: str) -> str:
    if accounting.communication == "contributed":
        return "Every rank puts its own tensor in."
    record = algorithm(accounting.algorithm)
    made = record.run(kind, Case(num(1), Sym("k"), nodes=tuple(Sym(name) for name in record.inner)))
    # Whether all ranks are alike shows in numbers, however the forms are written: eight ranks, in pairs.
    numbers = {"k": Fraction(8), "q": Fraction(2), **{name: Fraction(2) for name in record.inner}}
    sent, moved, everyone = (forms.evaluate(f, numbers) for f in (made.sent, made.moved, made.total))
    said = {
        "sent_per_rank": "" if everyone == 8 * sent else " Counted for the rank that sends most.",
        "sent_and_received_per_rank": (
            " It receives as much as it sends." if moved == 2 * sent else " Counted for the rank that moves most."
        ),
        "all_links": " All k ranks do so." if everyone == 8 * sent else " Counted over all ranks.",
    }
    return record.statement + said[accounting.communication]


def _answer(work: Work, strategy: Strategy, chosen: list[Call], counted: list[Form], phase: str | None) -> None:
    """The last steps: one answer from the groups, pipeline messages counted as the accounting says."""
    cut = strategy.pipeline
    sends = [c for c in chosen if c.kind == "send"]
    if cut is not None and len(sends) == len(chosen):
        _pipeline_answer(work, cut, counted, phase)
    elif len(counted) > 1:
        work.define("V", Total(tuple(counted)), BYTE, "add", "All calls together.")


def _pipeline_answer(work: Work, cut: PipelineCut, counted: list[Form], phase: str | None) -> None:
    choice, repeat = work.setting.accounting.pipeline, work.setting.graph.repeat
    if choice == "one_direction" and phase is None and len(counted) > 1:
        work.define("V_direction", counted[0], BYTE, "one direction",
                    "Stage i sends activations to stage i + 1; as many bytes of gradients come back.")  # fmt: skip
        return
    both = counted[0]
    if len(counted) > 1:
        both = work.define("V_boundary", Total(tuple(counted)), BYTE, "both directions", "Over one boundary.")
    if choice == "per_microbatch":
        work.define("V_microbatch", Ratio(counted[0] if phase else both, cut.microbatches), BYTE, "one microbatch",
                    "The batch is sent in equal microbatches.")  # fmt: skip
    elif choice == "all_boundaries":
        stages = work.define("p", pipeline.stage_count(cut, repeat), ONE, "stages", "The number of stages.")
        work.define("V", product(Total((stages, num(-1))), both), BYTE, "all boundaries",
                    "p stages have p - 1 boundaries.")  # fmt: skip


def _exhibit(setting: Setting, strategy: Strategy, chosen: list[Call]) -> Exhibit:
    """Which tensor, which collective, when and why: calls that are alike in all but the tensor share a row."""
    rows: dict[tuple[str, str, str, str, Form, Form], list[str]] = {}
    for c in chosen:
        count = num(1) if c.kind == "send" else _layers(strategy, setting, c.every_layer)
        size = forms.from_expr(forms.value(product(setting.written(c.elements), Num(element_bytes(c.dtype).number))))
        rows.setdefault((c.what.strip(), c.kind, c.phase, c.why, size, count), []).append(c.tensor)
    return Exhibit(
        "Which tensor, which collective, when and why",
        ("tensors", "collective", "phase", "why", "bytes each", "times"),
        tuple(
            (f"{what} {', '.join(f'`{t}`' for t in tensors)}", kind, phase, why, size, count)
            for (what, kind, phase, why, size, count), tensors in rows.items()
        ),
    )
