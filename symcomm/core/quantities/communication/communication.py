"""The bytes a parallel strategy moves: the derived collectives and messages, counted under the accounting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Annotated, Literal

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.collectives.algorithms import algorithm, runs_by, share
from symcomm.core.collectives.cost import Case
from symcomm.core.derivation import Derivation, Exhibit, Numbers, put
from symcomm.core.derivation.chosen import LINES
from symcomm.core.dtypes import element_bytes, said_bytes
from symcomm.core.errors import AccountingError, StrategyError, ValuesError
from symcomm.core.form import Form, Num, Ratio, Sym, Total, combined, num, product, total
from symcomm.core.libraries import Expr
from symcomm.core.parallel.strategy import Strategy, degree, parse_strategy
from symcomm.core.program import pipeline
from symcomm.core.program.instructions import BETWEEN_STAGES, COPIES, TIERS
from symcomm.core.program.program import batch_of, program
from symcomm.core.quantities import options
from symcomm.core.quantities.communication.call import SHORT, TAKES_OUT, Call, calls, joint, keeping
from symcomm.core.quantities.communication.links import crossed, level_share, linked, node_limit
from symcomm.core.quantities.communication.reasons import lead, reasons
from symcomm.core.quantities.declared import Meaning, OneOf
from symcomm.core.quantities.witnesses import number, passes, ran, size
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter, rests_on
from symcomm.core.units import BYTE, ELEMENT, ONE


def volume(work: StepWriter, name: str, n: Form, members: Sequence[Call]) -> Payload:
    call = members[0]
    wide = element_bytes(call.dtype)
    text = f"{said_bytes(wide)[0].upper()}{said_bytes(wide)[1:]} an element ({call.dtype})"
    if call.meshes == BETWEEN_STAGES:

        def crossing(numbers: Numbers) -> Fraction:
            return sizes_of(members, numbers) * wide.number

        sent = work.define(f"V_{name}", product(n, wide), BYTE, "bytes", f"{text}.", witness=crossing)
        return Payload(name, call, sent, crossing)
    if call.region.times:
        each = f"each of the `{call.region.times}` layers" if call.every else "every layer but the first"
        text += f", in {each}"
    text += "; they are made for each microbatch" if call.microbatches != num(1) else ""

    def payload(numbers: Numbers) -> Fraction:
        return number(call.times, numbers) * sizes_of(members, numbers) * wide.number

    volume = work.define(f"V_{name}", product(call.times, n, wide), BYTE, "bytes", f"{text}.", witness=payload)
    return Payload(name, call, volume, payload)


@dataclass(frozen=True)
class Payload:
    """The bytes that some calls work on, by the name of a step, and what a witness counts of them."""

    name: str
    call: Call
    volume: Form
    counted: Callable[[Numbers], Fraction]


def shares(
    work: StepWriter, strategy: Strategy, payloads: Sequence[Payload], over: Callable[[Call], Form] | None = None
) -> list[Form]:
    """The counted part of the payloads: calls of one kind over one group of ranks have one share.

    ``over`` says which share goes over a level of the network, where only that counts.
    """
    accounting = work.setting.accounting
    if accounting.communication == "payload" or all(one.call.meshes in COPIES for one in payloads):
        return [one.volume for one in payloads]
    kinds: dict[tuple[str, tuple[str, ...]], list[Payload]] = {}
    for one in payloads:
        kinds.setdefault((one.call.kind, one.call.meshes), []).append(one)
    found: list[Form] = []
    for (kind, meshes), members in kinds.items():
        k = members[0].call.ranks(strategy)
        groups = strategy.ranks(m for m in strategy.sizes if m not in meshes)
        put_in = accounting.communication == "contributed"  # which is the same by each algorithm
        by = runs_by(accounting.algorithm, kind) if put_in else work.setting.runs_by(kind)
        part = share(kind, accounting.communication, by, k, groups) if over is None else over(members[0].call)
        if part == num(1):
            found += [one.volume for one in members]
            continue
        name = members[0].name if len(members) == 1 else SHORT[kind]
        name += f",{joint(meshes)}" if f"S_{name}" in work.known else ""
        volumes = combined(Total, [one.volume for one in members])
        witness = partial(_moved, members, kind, accounting, k, groups)
        if over is not None:
            witness = partial(_level_moved, members, part)
        found.append(work.define(
            f"S_{name}", product(part, volumes), BYTE, accounting.communication.replace("_", " "),
            _counted_text(accounting, kind) if over is None else "The busiest rank sends so much over this level.",
            witness=witness,
        ))  # fmt: skip
    return found


def _moved(
    members: Sequence[Payload], kind: str, accounting: Accounting, k: Form, groups: Form, numbers: Numbers
) -> Fraction:
    """What some calls of one kind move, as it is counted."""
    payload = sum((one.counted(numbers) for one in members), Fraction(0))
    return payload * _exchanged(kind, accounting, k, groups, numbers)


def _level_moved(members: Sequence[Payload], part: Form, numbers: Numbers) -> Fraction:
    """The bytes that some calls send over a level of the network."""
    return number(part, numbers) * sum((one.counted(numbers) for one in members), Fraction(0))


def sizes_of(members: Sequence[Call], numbers: Numbers) -> Fraction:
    """The elements that some calls work on."""
    return sum((size(c.elements, numbers) for c in members), Fraction(0))


def _exchanged(kind: str, accounting: Accounting, k: Form, groups: Form, numbers: Numbers) -> Fraction:
    """What an exchange among so many ranks moves of a payload of one, as it is counted."""
    ranks, side_by_side, how = number(k, numbers), number(groups, numbers), accounting.communication
    if how == "contributed" and kind.startswith("halo"):  # each rank puts in its edges, which is all that is sent
        how = "all_links"
    if how == "contributed":  # each rank puts in a whole tensor, or its part of it
        return side_by_side * (ranks if kind in ("all-reduce", "reduce-scatter", "ring-sum", "ring-sum-home") else 1)
    name = runs_by(accounting.algorithm, kind)
    made = ran(kind, name, ranks, numbers)
    if made is None:
        return number(share(kind, how, name, forms.rational(ranks), forms.rational(side_by_side)), numbers)
    return {"sent_per_rank": made.sent, "sent_and_received_per_rank": made.moved,
            "all_links": made.total * side_by_side}[how]  # fmt: skip


def _counted_text(accounting: Accounting, kind: str) -> str:
    if accounting.communication == "contributed":
        return "Every rank puts its own tensor in."
    record = algorithm(runs_by(accounting.algorithm, kind))
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


def sent_over_boundaries(work: StepWriter, strategy: Strategy, counted: list[Form], phase: str | None) -> Form:
    """The bytes that stages send: one direction or both, one boundary or all, one pipeline or all."""
    cut, accounting = strategy.pipeline, work.setting.accounting
    assert cut is not None
    choice = work.setting.choice("pipeline")
    sent = counted[0]
    if choice == "one_direction" and phase is None and len(counted) > 1:
        text = "Stage i sends activations to stage i + 1; as many bytes of gradients come back."
        sent = work.combine("V_direction", sent, BYTE, "one direction", text)
    elif len(counted) > 1:
        sent = work.combine("V_boundary", Total(tuple(counted)), BYTE, "both directions", "Over one boundary.")
    if choice == "per_microbatch":
        sent = work.combine("V_microbatch", Ratio(sent, cut.microbatches), BYTE, "one microbatch",
                            "The batch is sent in equal microbatches.")  # fmt: skip
    elif choice == "all_boundaries":
        stages = work.called("p", pipeline.stage_count(cut, work.setting.graph), ONE, "stages", "The number of stages.")
        name = f"`{stages.name}`" if isinstance(stages, Sym) else "the"
        one = sent
        sent = work.define(
            "V_all", product(Total((stages, num(-1))), sent), BYTE, "all boundaries",
            f"{name} stages have {name} - 1 boundaries.",
            witness=lambda numbers: number(one, numbers) * len([*pairwise(range(int(number(stages, numbers))))]),
        )  # fmt: skip
    ranks = [size for size in strategy.sizes.values() if size != num(1)]
    if accounting.communication in ("all_links", "contributed") and ranks:
        text = "Every rank of a stage sends what it has to the same rank of the next stage."
        return work.define("V_pipelines", product(*ranks, sent), BYTE, "all pipelines", text,
                           witness=lambda n: number(sent, n) * passes(number(one, n) for one in ranks))  # fmt: skip
    return sent


_PHASES = {"forward": "fwd", "recompute": "again", "backward": "bwd", "update": "upd"}


def derive_communication(
    setting: Setting,
    strategy: options.StrategyOption,
    collective: Annotated[str | None, OneOf(SHORT), Meaning("only calls of this kind")] = None,
    phase: Annotated[
        Literal["forward", "recompute", "backward", "microbatch", "update"] | None,
        Meaning("only calls of this phase; of a microbatch: all but those that finish gradients and update weights"),
    ] = None,
    dtype: options.Dtype | None = None,
    gradient_dtype: options.GradientDtype | None = None,
    stage: options.StageNumber | None = None,
    frozen: options.Frozen | None = None,
    microbatches: options.Microbatches | None = None,
    level: Annotated[
        str | None, Meaning("only bytes over the links of this level of the network; or host, or nvme")
    ] = None,
    device: options.DeviceName | None = None,
    links: options.Links | None = None,
    recipe: options.RecipeName | None = None,
) -> Derivation:
    """The bytes that a parallel strategy moves in a training iteration.

    A ``level`` of the network counts what the busiest rank sends there, of a ``device`` that names a network or of
    ``links`` inside and between nodes; the level ``host`` is what a rank copies to its host and back.
    ``nvme`` is what its host reads from disks and writes to them, the states of a ``recipe`` among it.

    ``collective`` and ``phase`` choose some of the calls. ``accounting`` chooses which bytes are counted. ``stage`` is
    the pipeline stage of the rank, where the bytes of one rank are counted; 0 is the first one. Without a ``stage`` the
    one that sends most answers, and a note names it: ends send one way, stages between both ways. ``microbatches``
    matter where weights are gathered or gradients reduced for each of them; a pipeline has its own. ``frozen`` weights
    get no gradient.

    Raises ``StrategyError`` where the strategy cannot be applied, ``ValuesError`` for an unknown choice,
    ``AccountingError`` where the bytes of one rank are to be those over all boundaries.
    """
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    setting = setting.in_format(dtype)
    cut = strategy.pipeline
    if microbatches is not None and cut is not None:
        hint = f"pipeline(..., microbatches={microbatches})"
        raise StrategyError("a pipeline takes its microbatches from its strategy", hint=hint)
    m = cut.microbatches if cut is not None else degree(microbatches or 1)
    setting = setting.divided(strategy)
    if cut is not None and m != num(1):
        setting = _in_microbatches(setting, strategy, m)
    setting = keeping(setting.freeze(frozen), recipe)
    every = calls(setting, strategy, gradient_dtype, None, m, level in TIERS)
    over = _over_level(setting, strategy, level, device, links)
    if m != num(1) and microbatches is not None and all(c.microbatches == num(1) for c in every):
        hint = "accounting: reduced_every_microbatch"
        raise ValuesError("'microbatches' change nothing where gradients are reduced once", hint=hint)
    if level not in TIERS or strategy.pipeline is not None:  # a rank's own copies are counted once
        setting.choice("communication")
    per_rank = setting.accounting.communication.endswith("per_rank")
    if stage is not None and not (per_rank and strategy.pipeline is not None):
        hint = "accounting: sent_per_rank"
        raise ValuesError("'stage' is for the bytes that one rank of a pipeline sends", hint=hint)
    held = pipeline.held(setting.graph, strategy.pipeline if per_rank else None, stage, setting.values)
    # A stage that is named sends on what it makes, and receives what it needs.
    sent: dict[str, int] = {}
    if cut is not None and stage is not None:
        both = setting.accounting.communication != "sent_per_rank"
        counts = pipeline.messages_of(setting.graph, cut, stage, setting.values)
        sent = {way: out + both * into for way, (out, into) in counts.items()}

    def wanted(setting: Setting) -> list[Call]:
        """The calls that the options choose."""
        mine = held if per_rank and cut is not None else None
        return [
            c for c in calls(setting, strategy, gradient_dtype, mine, m, level in TIERS)
            if collective in (None, c.kind)
            and (over is None or over(c) != num(0))
            and (phase in (None, c.phase) or (phase == "microbatch" and not c.finishes))
            and (c.kind != "send" or sent.get(c.phase, 1) > 0)
        ]  # fmt: skip

    chosen = wanted(setting)
    if over is None and any(node_limit(strategy, c) for c in chosen):
        raise ValuesError("a limit of nodes changes only the bytes of a level, and there is no level",
                          hint="level=between, links=node=8, inside=900 GB/s, between=50 GB/s")  # fmt: skip
    counted_as, stages = setting.accounting.communication, setting.accounting.pipeline
    if per_rank and stage is None and stages == "all_boundaries" and any(c.kind == "send" for c in chosen):
        raise AccountingError(f"{counted_as} counts one rank, but {stages} adds up what all stages send",
                              hint="name a stage, such as stage=1; or count all_links")  # fmt: skip
    work = StepWriter(setting, *strategy.forms, m)
    if m != num(1) and any(c.accumulates for c in chosen):
        setting.choice("accumulation")
    setting.decided((*TAKES_OUT, "recomputation"), wanted)
    title = (
        f"Communication of {strategy.name.lower() if strategy.name != strategy.name.upper() else strategy.name}"
        + (f", {collective}" if collective else "")
        + (f", {phase}" if phase else "")
        + (f", level {level}" if level else "")
    )
    if not chosen:
        kinds = ", ".join(dict.fromkeys(c.kind for c in every)) or "no collective at all"
        text = f"The strategy needs none; it needs {kinds}."
        work.define("V", Num(Fraction(0), BYTE), BYTE, "nothing to send", text, witness=partial(sizes_of, ()))
        answer = setting.derivation(title, work.steps)
        return replace(answer, where=(*answer.where, *held.where))
    groups: dict[tuple[str, str, tuple[str, ...], str, str, Form, Form], list[Call]] = {}
    for c in chosen:
        key = (c.kind, c.phase, c.meshes, c.dtype, c.region.name, c.layers, c.microbatches)
        groups.setdefault(key, []).append(c)
    several = {(kind, p) for kind, p, *_ in groups}
    regions = {c.region.name for c in chosen}
    many = len(groups) > LINES
    payloads: list[Payload] = []
    sends: list[Form] = []
    for (kind, p, meshes, fmt, region, *_), members in groups.items():
        name = SHORT.get(kind, kind)
        if len([1 for k, _ in several if k == kind]) > 1:
            name += f",{_PHASES[p]}"
        if len(regions) > 1 and kind != "send":
            name += f",{region.split()[0]}"
        while f"n_{name}" in work.known:
            place = joint(meshes).replace("_", "")
            name += f",{place}" if f"n_{name},{place}" not in work.known else f",{fmt}"
        elements = [setting.written(c.elements) for c in members]
        rule = "cut between stages" if kind == "send" else kind
        n = work.define(f"n_{name}", total(*elements), ELEMENT, rule, _text(members, many),
                        witness=partial(sizes_of, members), by=rests_on(members))  # fmt: skip
        made = volume(work, name, n, members)
        if kind == "send":
            sends.append(product(num(sent.get(p, 1)), made.volume))
        else:
            payloads.append(made)
    counted = shares(work, strategy, payloads, over)
    if sends:
        if sent:
            text = "Bytes that this stage sends, and receives if they count."
            counted.append(work.combine("V_stage", total(*sends), BYTE, "messages", text))
        else:
            counted.append(sent_over_boundaries(work, strategy, sends, phase))
    if len(counted) > 1:
        work.combine("V", Total(tuple(counted)), BYTE, "add", "All calls together.")
    notes = (*held.notes, *_cheapest(setting, strategy))
    plan = program(setting.graph, strategy, setting.accounting, setting.frozen)
    shown = [_exhibit(setting, strategy, chosen)]
    between = [c for c in chosen if c.meshes not in COPIES]
    if any(c.kind != "send" for c in between):
        shown.insert(0, reasons(setting, plan, between))
    told = lead(plan, strategy, every, between) if between else ()
    answer = setting.derivation(title, work.steps, exhibits=shown, notes=notes)
    return replace(answer, where=(*answer.where, *held.where), lead=told)


def _over_level(
    setting: Setting, strategy: Strategy, level: str | None, device: object, links: object
) -> Callable[[Call], Form] | None:  # fmt: skip
    """The bytes that the busiest rank sends over a level, as a share of a payload; None where all bytes count.

    Raises ``ValuesError`` for a level that there is not, ``AccountingError`` where not the bytes of a rank are counted.
    """
    if level is None:
        if device is not None or links is not None:
            raise ValuesError("where the ranks are changes no bytes", hint="ask for those over a level: level: between")
        return None
    if level in TIERS:
        return lambda call: num(int(call.meshes in TIERS[level]))
    made = linked(setting, strategy, {"device": device, "links": links})
    names = [link.name for link in made.levels]
    if level not in names:
        known = "links: node=8, inside=..., between=..."
        known = f"its levels are {', '.join(names)}, host and nvme" if names else known
        raise ValuesError(f"the network has no level '{level[:40]}'", hint=known)
    how = setting.accounting
    if not how.communication.endswith("per_rank"):
        raise AccountingError(f"{how.communication} counts no level: a rank sends over it, or it does not",
                              hint="accounting: sent_per_rank")  # fmt: skip

    def share_of(call: Call) -> Form:
        if crossed(made, strategy, how, call) is not None:
            setting.choice("rails")
        return level_share(made, strategy, how, level, call)

    return share_of


def _in_microbatches(setting: Setting, strategy: Strategy, m: Form) -> Setting:
    """The same where the batch of each rank falls into whole microbatches; as it is where no axis is the batch."""
    try:
        batch = batch_of(setting.graph)
    except StrategyError:
        return setting
    ranks = dict.fromkeys(rule.mesh for _, rule in strategy.rules if rule.axis == "batch")
    parts = product(m, *(strategy.sizes[mesh] for mesh in ranks))
    size = setting.written(setting.graph.axes[batch].size)
    return setting.in_parts(size, parts, "microbatches and ranks cut the batch into {} parts")


def _cheapest(setting: Setting, strategy: Strategy) -> Iterator[str]:
    """Where another place would be cheaper, and whether that is so at the sizes given."""
    names = [n for n in setting.values if n in setting.symbols]
    known = put({n: setting.values[n] for n in names})
    for c in program(setting.graph, strategy, setting.accounting, setting.frozen).plan.conditions:
        less, more = c.less.xreplace(known), c.more.xreplace(known)
        said = f"The collectives are placed so that they send the fewest bytes while {c}"
        if not (less.is_number and more.is_number):
            yield f"{said}; otherwise another placement would send fewer."
        elif less < more:
            yield f"{said}, as here."
        else:
            yield f"{said}. That does not hold here ({less} and {more}): another placement would send fewer."


def _text(members: list[Call], many: bool) -> str:
    """What the calls of a group move, and why they are needed; of ``many`` groups the table of reasons says which."""
    first = members[0]
    if many and first.kind != "send":
        calls = f"{len(members)} calls of {first.kind}" if len(members) > 1 else f"One {first.kind}"
        return f"{calls} for the {first.region.name} in the {first.phase} pass."
    listed = ", ".join(dict.fromkeys(c.shown for c in members[:8])) + (" and more" if len(members) > 8 else "")
    what = first.what.strip()
    plural = {"gradient of": "the gradients of", "weight": "the weights", "updated weight": "the updated weights",
              "activation": "the activations", "input": "the inputs", "statistics": "the statistics"}  # fmt: skip
    same = all(c.what == first.what for c in members)
    moved = (
        f"{plural.get(what, what) if len(members) > 1 else what} {listed}"
        if same
        else ", ".join(f"{c.what}{c.shown}" for c in members[:8])
    )
    if first.kind == "send":
        head = f"Sent to the next stage: {moved}"
    else:
        head = (
            f"{len(members)} calls of {first.kind}, for {moved}" if len(members) > 1 else f"One {first.kind}: {moved}"
        )
    general = {c.why.replace(f"`{c.tensor}`", "it") for c in members}
    why = first.why if first.kind == "send" and len(general) == 1 else ""  # the others have a table of reasons
    return f"{head}. {why[0].upper()}{why[1:]}." if why else f"{head}."


def _exhibit(setting: Setting, strategy: Strategy, chosen: list[Call]) -> Exhibit:
    """Which tensor, which collective, when and why: calls that are alike in all but the tensor share a row."""
    rows: dict[tuple[str, str, str, str, Form, Form], list[str]] = {}
    sizes: dict[tuple[Expr, str], Form] = {}
    for c in chosen:
        size = sizes.get((c.elements, c.dtype))
        if size is None:
            size = product(setting.written(c.elements), Num(element_bytes(c.dtype).number))
            size = sizes[c.elements, c.dtype] = forms.from_expr(forms.value(size))
        rows.setdefault((c.what.strip(), c.kind, c.phase, c.why, size, c.times), []).append(c.tensor)
    return Exhibit(
        "Which tensor, which collective, when and why",
        ("tensors", "collective", "phase", "why", "bytes each", "times"),
        tuple(
            (f"{what} {', '.join(f'`{t}`' for t in tensors)}", kind, phase, why, size, count)
            for (what, kind, phase, why, size, count), tensors in rows.items()
        ),
        "full",
    )
