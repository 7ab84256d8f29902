"""The bytes of some calls as the accounting counts them: payloads, what ranks send, what crosses boundaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import pairwise

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.collectives.algorithms import algorithm, runs_by, share
from symcomm.core.collectives.cost import Case
from symcomm.core.derivation import Numbers
from symcomm.core.dtypes import element_bytes, said_bytes
from symcomm.core.form import Form, Ratio, Sym, Total, combined, num, product
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program import pipeline
from symcomm.core.program.instructions import BETWEEN_STAGES, COPIES
from symcomm.core.quantities.communication.call import SHORT, Call, joint
from symcomm.core.quantities.witnesses import number, passes, ran, size
from symcomm.core.records import dataclass
from symcomm.core.setting import StepWriter
from symcomm.core.units import BYTE, ONE


def volume(work: StepWriter, name: str, n: Form, members: Sequence[Call]) -> Payload:
    call = members[0]
    wide = element_bytes(call.dtype)
    text = f"{said_bytes(wide)[0].upper()}{said_bytes(wide)[1:]} an element ({call.dtype})"
    if call.meshes == BETWEEN_STAGES:
        crossing = partial(_bytes, members, wide.number)
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


def _bytes(members: Sequence[Call], wide: Fraction, numbers: Numbers) -> Fraction:
    """The bytes that some calls work on, at so many an element."""
    return sizes_of(members, numbers) * wide


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
