"""The bytes a parallel strategy moves: the derived collectives and messages, counted under the accounting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Literal

from symcomm import form as forms
from symcomm.accounting import CONVENTIONS, Accounting
from symcomm.collectives.algorithms import algorithm, share
from symcomm.collectives.cost import Case
from symcomm.derivation import Derivation, Exhibit, Numbers, Witness, put
from symcomm.dtypes import element_bytes, row_dtype, said_bytes
from symcomm.errors import StrategyError, ValuesError
from symcomm.form import Form, Num, Ratio, Sym, Total, num, product
from symcomm.parallel.placement import Collective, Compute
from symcomm.parallel.strategy import Strategy, degree, parse_strategy
from symcomm.program import pipeline
from symcomm.program.instructions import BETWEEN_STAGES, Program, Send, Turn
from symcomm.program.program import program
from symcomm.quantities.communication.call import Call
from symcomm.quantities.communication.reasons import lead, reasons
from symcomm.quantities.declared import Meaning, OneOf
from symcomm.quantities.options import Dtype, Frozen, GradientDtype, Microbatches, StageNumber, StrategyOption
from symcomm.quantities.witnesses import number, over, passes, ring, size, together
from symcomm.setting import Setting, Work
from symcomm.units import BYTE, ELEMENT, ONE

if TYPE_CHECKING:
    pass

SHORT = {"all-reduce": "AR", "all-gather": "AG", "reduce-scatter": "RS", "all-to-all": "A2A", "send": "send"}
_PHASES = {"forward": "fwd", "recompute": "again", "backward": "bwd", "update": "upd"}


def joint(meshes: tuple[str, ...]) -> str:
    """How a group over some axes of the mesh is called."""
    return " × ".join(meshes)


def calls(setting: Setting, strategy: Strategy, gradient_dtype: str | None = None) -> tuple[Call, ...]:
    """Every call of one repetition of each region and training iteration; what runs again behind the rest."""
    made = program(setting.graph, strategy, setting.accounting, setting.frozen)
    found = [_counted(made, turn, turn.work, gradient_dtype, setting.dtype) for turn in made.turns
             if not isinstance(turn.work, Compute)]  # fmt: skip
    return tuple(sorted(found, key=lambda call: 2 if call.meshes == BETWEEN_STAGES else call.phase == "recompute"))


def _counted(made: Program, turn: Turn, work: Collective | Send, gradient_dtype: str | None, dtype: str) -> Call:
    tensor = made.tensor(work)
    of = made.graph.tensors.get(tensor.of, tensor)
    what = {"gradient": "gradient of ", "weight": "weight ", "activation": "activation "}.get(tensor.role, "input ")
    if isinstance(work, Send):
        what = "gradient of " if work.phase == "backward" else "activation "
    elif tensor.name.startswith("new("):
        what = "updated weight "
    wide = (gradient_dtype if made.of_weight(work) else None) or of.dtype or dtype
    if tensor.role == "statistic":
        of, what, wide = tensor, "statistics ", row_dtype(tensor.dtype or dtype)
    return Call(work.kind, of.name, what, work.elements, work.meshes, turn.phase, work.why, wide, turn.region,
                turn.every, turn.finishes, turn.once, turn.accumulates, tensor.name)  # fmt: skip


def derive(
    setting: Setting,
    strategy: StrategyOption,
    collective: Annotated[str | None, OneOf(SHORT), Meaning("only calls of this kind")] = None,
    phase: Annotated[
        Literal["forward", "recompute", "backward", "microbatch", "update"] | None,
        Meaning("only calls of this phase; of a microbatch: all but those that finish gradients and update weights"),
    ] = None,
    dtype: Dtype | None = None,
    gradient_dtype: GradientDtype | None = None,
    stage: StageNumber | None = None,
    frozen: Frozen | None = None,
    microbatches: Microbatches | None = None,
) -> Derivation:
    """The bytes that a parallel strategy moves in a training iteration.

    ``collective`` and ``phase`` choose some of the calls. Which bytes are meant, the accounting says. ``stage`` is that
    of the rank whose bytes are counted, where the bytes of one rank are and the stages of a pipeline differ; 0 is the
    first one. ``microbatches`` matter where weights are gathered or gradients reduced for each of them; a pipeline has
    its own. ``frozen`` weights get no gradient.

    Raises ``StrategyError`` where the strategy cannot be applied, ``ValuesError`` for an unknown choice.
    """
    if strategy is None:
        raise StrategyError("no strategy is named", hint="for instance data(k)")
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if collective is not None and collective not in SHORT:
        raise ValuesError(f"unknown collective '{collective[:40]}'", hint="known: " + ", ".join(SHORT))
    if phase is not None and phase not in (*_PHASES, "microbatch"):
        raise ValuesError(f"unknown phase '{phase[:40]}'", hint="known: " + ", ".join((*_PHASES, "microbatch")))
    setting = setting.in_format(dtype)
    cut = strategy.pipeline
    if microbatches is not None and cut is not None:
        hint = f"pipeline(..., microbatches={microbatches})"
        raise StrategyError("the microbatches of a pipeline are those of its strategy", hint=hint)
    m = cut.microbatches if cut is not None else degree(microbatches or 1)
    setting = setting.divided(strategy)
    setting = setting.freeze(frozen)
    every = calls(setting, strategy, gradient_dtype)
    if microbatches is not None and not any(_repeated(c) for c in every):
        hint = "accounting: reduced_every_microbatch"
        raise ValuesError("'microbatches' change nothing where gradients are reduced once", hint=hint)
    per_rank = setting.accounting.communication.endswith("per_rank")
    if stage is not None and not (per_rank and strategy.pipeline is not None):
        hint = "accounting: sent_per_rank"
        raise ValuesError("'stage' is for the bytes that one rank of a pipeline sends", hint=hint)
    held = pipeline.held(setting.graph, strategy.pipeline if per_rank else None, stage, setting.values)
    chosen = [
        c for c in every if collective in (None, c.kind)
        and (phase in (None, c.phase) or (phase == "microbatch" and not c.finishes))
        and (c.kind == "send" or c.region.name in held.regions)
    ]
    work = Work(setting, *strategy.forms, m)
    touched = _touched(setting, strategy, chosen, every, gradient_dtype)
    if m != num(1) and any(c.accumulates for c in chosen):
        touched.append("accumulation")
    title = (
        f"Communication of {_title(strategy)}"
        + (f", {collective}" if collective else "")
        + (f", {phase}" if phase else "")
    )
    if not chosen:
        kinds = ", ".join(dict.fromkeys(c.kind for c in every)) or "no collective at all"
        text = f"The strategy needs none; it needs {kinds}."
        work.define("V", Num(Fraction(0), BYTE), BYTE, "nothing to send", text, witness=partial(_sizes, ()))
        return replace(setting.derivation(title, work.steps, touched), where=held.where)
    groups: dict[tuple[str, str, tuple[str, ...], str, str, bool], list[Call]] = {}
    for c in chosen:
        groups.setdefault((c.kind, c.phase, c.meshes, c.dtype, c.region.name, c.every_layer), []).append(c)
    several = {(kind, p) for kind, p, *_ in groups}
    regions = {c.region.name for c in chosen}
    payloads: list[_Payload] = []
    sends: list[Form] = []
    for (kind, p, meshes, fmt, region, _), members in groups.items():
        name = SHORT[kind]
        if len([1 for k, _ in several if k == kind]) > 1:
            name += f",{_PHASES[p]}"
        if len(regions) > 1 and kind != "send":
            name += f",{region.split()[0]}"
        while f"n_{name}" in work.known:
            name += f",{joint(meshes)}" if f"n_{name},{joint(meshes)}" not in work.known else f",{fmt}"
        elements = [setting.written(c.elements) for c in members]
        n = work.define(f"n_{name}", Total(tuple(elements)) if len(elements) > 1 else elements[0], ELEMENT,
                        _rule(kind), _text(members), witness=partial(_sizes, members))  # fmt: skip
        made = _volume(work, name, n, members, held, m)
        if kind == "send":
            sends.append(made.volume)
        else:
            payloads.append(made)
    counted = _shares(work, strategy, payloads)
    if sends:
        counted.append(_sent_over_boundaries(work, strategy, sends, phase))
    if len(counted) > 1:
        work.define("V", Total(tuple(counted)), BYTE, "add", "All calls together.", witness=together(counted))
    notes = (*held.notes, *_cheapest(setting, strategy))
    times = [num(1) if c.kind == "send" else held.times(c.region, c.every_layer) for c in chosen]
    plan = program(setting.graph, strategy, setting.accounting, setting.frozen)
    shown = [_exhibit(setting, strategy, chosen, held)]
    if any(c.kind != "send" for c in chosen):
        shown.insert(0, reasons(setting, plan, chosen, times))
    told = lead(plan, strategy, every, chosen)
    return replace(setting.derivation(title, work.steps, touched, shown, notes), where=held.where, lead=told)


def _cheapest(setting: Setting, strategy: Strategy) -> Iterator[str]:
    """Where another place would be cheaper, and whether that is so at the sizes given."""
    names = [n for n in setting.values if n in setting.symbols]
    known = put({n: setting.values[n] for n in names})
    for c in program(setting.graph, strategy, setting.accounting, setting.frozen).plan.conditions:
        less, more = c.less.xreplace(known), c.more.xreplace(known)
        said = f"Each sum and gather stands where the least bytes are sent as long as {c}"
        if not (less.is_number and more.is_number):
            yield f"{said}; beyond that another place would send less, and the calls stay as they are."
        elif less < more:
            yield f"{said}, as it is at the sizes given."
        else:
            yield f"{said}. That is not so at the sizes given ({less} and {more}): another place would send less."


def _title(strategy: Strategy) -> str:
    return strategy.name.lower() if strategy.name != strategy.name.upper() else strategy.name


def _touched(
    setting: Setting, strategy: Strategy, chosen: list[Call], every: tuple[Call, ...], gradient_dtype: str | None
) -> list[str]:
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
    accounting = setting.accounting
    for name in ("input_gradient", "recomputation"):
        if getattr(accounting, name) != getattr(Accounting, name):
            others = (replace(setting, accounting=replace(accounting, **{name: row.name}))
                      for row in CONVENTIONS if row.field == name)  # fmt: skip
            if any(calls(other, strategy, gradient_dtype) != every for other in others):
                found.append(name)
    return found


def _rule(kind: str) -> str:
    return {"send": "cut between stages"}.get(kind, kind)


def _text(members: list[Call]) -> str:
    """What the calls of a group move, and why they are needed."""
    first = members[0]
    listed = ", ".join(dict.fromkeys(f"`{c.tensor}`" for c in members[:8])) + (" and more" if len(members) > 8 else "")
    what = first.what.strip()
    plural = {"gradient of": "the gradients of", "weight": "the weights", "updated weight": "the updated weights",
              "activation": "the activations", "input": "the inputs", "statistics": "the statistics"}  # fmt: skip
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
    why = first.why if first.kind == "send" and len(general) == 1 else ""  # the others have a table of reasons
    return f"{head}. {why[0].upper()}{why[1:]}." if why else f"{head}."


def _volume(
    work: Work, name: str, n: Form, members: Sequence[Call], held: pipeline.Held, microbatches: Form
) -> _Payload:
    call = members[0]
    wide = element_bytes(call.dtype)
    text = f"{said_bytes(wide)[0].upper()}{said_bytes(wide)[1:]} an element ({call.dtype})"
    if call.kind == "send":
        crossing = partial(_bytes, members, wide.number)
        sent = work.define(f"V_{name}", product(n, wide), BYTE, "bytes", f"{text}.", witness=crossing)
        return _Payload(name, call, sent, crossing)
    times = held.times(call.region, call.every_layer)
    if call.region.times:
        each = f"each of the `{call.region.times}` layers" if call.every_layer else "every layer but the first"
        text += f", in {each}"
    if _repeated(call) and microbatches != num(1):
        times = product(microbatches, times)
        text += "; they are made for each microbatch"

    def payload(numbers: Numbers) -> Fraction:
        return number(times, numbers) * _sizes(members, numbers) * wide.number

    volume = work.define(f"V_{name}", product(times, n, wide), BYTE, "bytes", f"{text}.", witness=payload)
    return _Payload(name, call, volume, payload)


@dataclass(frozen=True)
class _Payload:
    """The bytes that some calls work on, by the name of a step, and what a witness counts of them."""

    name: str
    call: Call
    volume: Form
    counted: Callable[[Numbers], Fraction]


def _shares(work: Work, strategy: Strategy, payloads: Sequence[_Payload]) -> list[Form]:
    """What the accounting counts of the payloads: calls of one kind over one group of ranks have one share."""
    accounting = work.setting.accounting
    if accounting.communication == "payload":
        return [one.volume for one in payloads]
    kinds: dict[tuple[str, tuple[str, ...]], list[_Payload]] = {}
    for one in payloads:
        kinds.setdefault((one.call.kind, one.call.meshes), []).append(one)
    found: list[Form] = []
    for (kind, meshes), members in kinds.items():
        k = members[0].call.ranks(strategy)
        groups = strategy.ranks(m for m in strategy.sizes if m not in meshes)
        part = share(kind, accounting.communication, accounting.algorithm, k, groups)
        if part == num(1):
            found += [one.volume for one in members]
            continue
        name = members[0].name if len(members) == 1 else SHORT[kind]
        name += f",{joint(meshes)}" if f"S_{name}" in work.known else ""
        volumes = members[0].volume if len(members) == 1 else Total(tuple(one.volume for one in members))
        found.append(work.define(
            f"S_{name}", product(part, volumes), BYTE, accounting.communication.replace("_", " "),
            _counted_text(accounting, kind), witness=partial(_moved, members, kind, accounting, k, groups),
        ))  # fmt: skip
    return found


def _moved(
    members: Sequence[_Payload], kind: str, accounting: Accounting, k: Form, groups: Form, numbers: Numbers
) -> Fraction:
    """What some calls of one kind move, as it is counted."""
    payload = sum((one.counted(numbers) for one in members), Fraction(0))
    return payload * _exchanged(kind, accounting, k, groups, numbers)


def _bytes(members: Sequence[Call], wide: Fraction, numbers: Numbers) -> Fraction:
    """The bytes that some calls work on, at so many an element."""
    return _sizes(members, numbers) * wide


def _sizes(members: Sequence[Call], numbers: Numbers) -> Fraction:
    """The elements that some calls work on."""
    return sum((size(c.elements, numbers) for c in members), Fraction(0))


def _exchanged(kind: str, accounting: Accounting, k: Form, groups: Form, numbers: Numbers) -> Fraction:
    """What an exchange among so many ranks moves of a payload of one, as it is counted."""
    ranks, side_by_side, how = number(k, numbers), number(groups, numbers), accounting.communication
    if how == "contributed":  # each rank puts in a whole tensor, or its part of it
        return side_by_side * (ranks if kind in ("all-reduce", "reduce-scatter") else 1)
    made = ring(kind, int(ranks)) if accounting.algorithm == "ring" and ranks.denominator == 1 else None
    if made is None:
        return number(
            share(kind, how, accounting.algorithm, forms.rational(ranks), forms.rational(side_by_side)), numbers
        )
    sent, moved, _ = made
    return {"sent_per_rank": sent, "sent_and_received_per_rank": moved, "all_links": ranks * sent * side_by_side}[how]


def _repeated(call: Call) -> bool:
    """Whether a call is made for each microbatch though its size is not that of the batch."""
    return not call.once and (call.accumulates or call.what == "weight ")


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
    return made.told + said[accounting.communication]


def _sent_over_boundaries(work: Work, strategy: Strategy, counted: list[Form], phase: str | None) -> Form:
    """What stages send, as the accounting says: one direction or both, one boundary or all, of one pipeline or all."""
    cut, accounting = strategy.pipeline, work.setting.accounting
    assert cut is not None
    choice = accounting.pipeline
    sent = counted[0]
    if choice == "one_direction" and phase is None and len(counted) > 1:
        text = "Stage i sends activations to stage i + 1; as many bytes of gradients come back."
        sent = work.define("V_direction", sent, BYTE, "one direction", text, witness=together(counted[:1]))
    elif len(counted) > 1:
        sent = work.define("V_boundary", Total(tuple(counted)), BYTE, "both directions", "Over one boundary.",
                           witness=together(counted))  # fmt: skip
    if choice == "per_microbatch":
        sent = work.define(
            "V_microbatch",
            Ratio(sent, cut.microbatches),
            BYTE,
            "one microbatch",
            "The batch is sent in equal microbatches.",
            witness=over(sent, cut.microbatches),
        )
    elif choice == "all_boundaries":
        stages = work.called("p", pipeline.stage_count(cut, work.setting.graph), ONE, "stages", "The number of stages.")
        sent = work.define("V_all", product(Total((stages, num(-1))), sent), BYTE, "all boundaries",
                           f"{maths_name(stages)} stages have {maths_name(stages)} - 1 boundaries.",
                           witness=_at_each_boundary(stages, sent))  # fmt: skip
    ranks = [size for size in strategy.sizes.values() if size != num(1)]
    if accounting.communication in ("all_links", "contributed") and ranks:
        sent = work.define("V_pipelines", product(*ranks, sent), BYTE, "all pipelines",
                           "Every rank of a stage sends what it has to the same rank of the next stage.",
                           witness=_by_each_rank(ranks, sent))  # fmt: skip
    return sent


def _at_each_boundary(stages: Form, sent: Form) -> Witness:
    return lambda numbers: number(sent, numbers) * len([*pairwise(range(int(number(stages, numbers))))])


def _by_each_rank(ranks: Sequence[Form], sent: Form) -> Witness:
    return lambda numbers: number(sent, numbers) * passes(number(one, numbers) for one in ranks)


def maths_name(form: Form) -> str:
    """A symbol as it stands in a sentence."""
    return f"`{form.name}`" if isinstance(form, Sym) else "the"


def _exhibit(setting: Setting, strategy: Strategy, chosen: list[Call], held: pipeline.Held) -> Exhibit:
    """Which tensor, which collective, when and why: calls that are alike in all but the tensor share a row."""
    rows: dict[tuple[str, str, str, str, Form, Form], list[str]] = {}
    for c in chosen:
        count = num(1) if c.kind == "send" else held.times(c.region, c.every_layer)
        size = forms.from_expr(forms.value(product(setting.written(c.elements), Num(element_bytes(c.dtype).number))))
        rows.setdefault((c.what.strip(), c.kind, c.phase, c.why, size, count), []).append(c.tensor)
    return Exhibit(
        "Which tensor, which collective, when and why",
        ("tensors", "collective", "phase", "why", "bytes each", "times"),
        tuple(
            (f"{what} {', '.join(f'`{t}`' for t in tensors)}", kind, phase, why, size, count)
            for (what, kind, phase, why, size, count), tensors in rows.items()
        ),
        "full",
    )
