"""The time of one repetition of a region, pass by pass; of a step whose layers fetch the weights of the next one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from functools import partial

from symcomm.core.derivation import Numbers
from symcomm.core.errors import AccountingError
from symcomm.core.form import Form, Largest, Total, combined, num, product
from symcomm.core.graph.graph import Region
from symcomm.core.libraries import sp
from symcomm.core.program.instructions import HOST, READ
from symcomm.core.quantities.communication.call import Call
from symcomm.core.quantities.counting.load import Load
from symcomm.core.quantities.time.terms import SECOND, Terms, TimeWriter
from symcomm.core.quantities.witnesses import number
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter, mark


@dataclass(frozen=True)
class RegionTime:
    """The times of one repetition of a region and one microbatch, and of the end of the batch.

    Pieces of work are timed apart: a whole microbatch (``""``), or its forward ``F`` and its backward ``D``, or ``B``
    and ``W``, the gradients of the input and of the weights.
    """

    region: Region
    work: Mapping[str, Form]  # by piece of work, as the next two
    alone: Mapping[str, Form]  # without collectives
    network: Mapping[str, Form]  # the calls
    end: Form | None = None
    last: Form | None = None  # the last piece of work, where the reduction of gradients runs beside it
    end_network: Form | None = None
    first: RegionTime | None = None  # of the model's first layer, where it does less than all others
    backward: Form | None = None  # a backward pass, where gradients are reduced in buckets
    reduced: Form | None = None  # the transfer of gradients in buckets
    terms: Mapping[str, Terms] = field(default_factory=dict)  # what work is made of


WORK = {
    "": "forward and backward", "F": "forward", "D": "backward", "B": "gradients of its input",
    "W": "gradients of its weights",
}  # fmt: skip


def _piece(inner: Load, letter: str) -> Load:
    """What a rank does in a piece of work of one microbatch."""
    if letter in ("", "F", "D"):
        return inner.of(*{"": ("forward", "backward"), "F": ("forward",), "D": ("backward",)}[letter])
    back = inner.of("backward")
    ops = tuple(op for op in back.ops if (op.half == "W") == (letter == "W"))
    return replace(back, ops=ops, calls=tuple((p, c) for p, c in back.calls if (c.half == "W") == (letter == "W")))


def region_time(
    writer: TimeWriter, every: Load, region: Region, letters: str, parts: bool, begins: bool, bucketed: bool
) -> RegionTime:
    """The steps to the times of one repetition of a region, and of the model's first layer where that does less.

    ``begins`` says that the rank has the model's first layer, ``bucketed`` that gradients are reduced in buckets.
    """
    mine, label = every.region(region.name), "" if len(every.regions) == 1 else mark(region)
    what = "One layer and microbatch" if region.times else f"The {region.name}, one microbatch"
    last = mine.of("end")
    sums = replace(last, calls=tuple((p, c) for p, c in last.calls if c.accumulates))
    beside = sums if beside_backward(writer.setting, every) else None
    if beside is not None or bucketed:
        last = replace(last, calls=tuple((p, c) for p, c in last.calls if not c.accumulates))
    made = _passes(writer, mine, RegionTime(region, {}, {}, {}), label, what, letters, parts, beside)
    if begins and region.times and mine.first != mine:
        writer.setting.choice("input_gradient")
        said, name = "The first layer, one microbatch", f"{label},first" if label else "first"
        made = replace(made, first=_passes(writer, mine.first, made, name, said, letters, parts, beside))
    whose = "one layer" if region.times else f"the {region.name}"
    if bucketed:
        back = writer.time("t_back", writer.terms(_piece(mine, "D"), "_back"), f"The backward pass of {whose}")
        made = replace(made, backward=back, reduced=writer.transfer("t_reduce", sums))
    ends = writer.terms(last, f"_end,{label}" if label else "_end")
    end = writer.time(f"t_end,{label}" if label else "t_end", ends, f"The end of the batch, {whose}")
    both = [one for one in (made.end_network, ends.network) if one is not None]
    name = f"t_network,{label}" if label else "t_network,both"
    network = writer.total(name, both, SECOND, "add", "Beside the last backward pass, and at the end of the batch.")
    first = made.first and replace(made.first, end=end, end_network=network)
    return replace(made, end=end, end_network=network, first=first)


def beside_backward(setting: Setting, every: Load) -> bool:
    """Whether gradients are reduced beside the last backward pass."""
    reduced = any(c.accumulates for _, c in every.of("end").calls)
    return reduced and setting.choice("gradient_sync") == "with_backward"


def _passes(
    writer: TimeWriter, mine: Load, made: RegionTime, label: str, what: str, letters: str, parts: bool,
    beside: Load | None,
) -> RegionTime:  # fmt: skip
    """The times of the passes of one repetition; the last one with the reduction of gradients ``beside`` it."""
    work: dict[str, Form] = {}
    alone: dict[str, Form] = {}
    network: dict[str, Form] = {}
    made_of: dict[str, Terms] = {}
    terms, tag = Terms(), ""
    whole = "forward" if writer.setting.graph.step is not None else WORK[""]
    for letter in letters or ("",):
        tag = f"_{','.join(filter(None, (letter, label)))}" if letter or label else ""
        made_of[letter] = terms = writer.terms(_piece(mine, letter), tag)
        one = writer.time(f"t{tag or '_layer'}", terms, f"{what}, {WORK[letter] if letter else whole}")
        local = writer.local(f"t_alone{tag}", terms, f"{what} without its collectives") if parts else None
        for found, form in ((work, one), (alone, local), (network, terms.network)):
            if form is not None:
                found[letter] = form
    made = replace(made, work=work, alone=alone, network=network, terms=made_of)
    if beside is None:
        return made
    sync = writer.terms(replace(beside, ops=()), f"_sync,{label}" if label else "_sync")
    together = joined(writer.work, terms, sync)
    last = writer.time(f"t_last{tag}", together, "The last microbatch, with the reduction of the gradients")
    return replace(made, last=last, end_network=sync.network)


def joined(work: StepWriter, terms: Terms, beside: Terms) -> Terms:
    """The terms of two loads that run side by side."""

    def both(a: Form | None, b: Form | None, name: str) -> Form | None:
        if a is None or b is None:
            return a if b is None else b
        return work.combine(name, Total((a, b)), SECOND, "add", "Both together.")

    return replace(
        terms,
        memory=both(terms.memory, beside.memory, "t_memory,last"),
        network=both(terms.network, beside.network, "t_network,last"),
    )


def fetches(call: Call) -> bool:
    """Whether a call brings weights of a layer to a rank before a pass reads them."""
    over_links = call.kind == "all-gather" or call.meshes in (HOST, READ)
    return bool(call.what == "weight " and over_links and not call.once and call.region.times)


def fetching(setting: Setting, every: Load) -> bool:
    """Whether a step is timed fetch by fetch; raises ``SymcommError`` where it would be and cannot."""
    if setting.accounting.time != "overlap" or not any(fetches(call) for _, call in every.calls):
        return False
    how = setting.choice("prefetch")
    if how == "as_read":
        return False
    if how == "two_ahead":
        raise AccountingError("a step that fetches two layers ahead is not timed", hint="prefetch: one_ahead")
    if len(every.regions) > 1 or every.strategy.pipeline is not None:
        what = f"{how} is timed for layers that are alike on one rank, and {setting.graph.name} has more"
        raise AccountingError(what, hint="take its layer, part('layer'), without a pipeline; or prefetch: as_read")
    what = "" if setting.told else "a search"  # of many steps
    if what := what or setting.accounting.gradient_sync.replace("end_of_batch", ""):
        raise AccountingError(f"{what} is not timed under {how}", hint="prefetch: as_read")
    return True


def _together(calls: Iterable[tuple[str, Call]]) -> Iterator[tuple[str, Call]]:
    """The fetches of a pass, those over the same links as one call: all weights of a layer, as FSDP wraps them."""
    alike: dict[tuple[str, tuple[str, ...], str], list[tuple[str, Call]]] = {}
    for phase, call in calls:
        if fetches(call):
            alike.setdefault((call.kind, call.meshes, call.dtype), []).append((phase, call))
    for (phase, first), *others in alike.values():
        every = [first, *(call for _, call in others)]
        parts = tuple(part for call in every for part in call.parts)
        yield phase, replace(first, elements=sp.Add(*(call.elements for call in every)), parts=parts)


def prefetched(writer: TimeWriter, every: Load, layers: Form, m: Form) -> Form:
    """The time of all microbatches: a layer fetches its weights and then runs, or runs beside the next one's fetch.

    Behind the last layer's forward pass comes its backward pass, behind the first one's the next microbatch. Nothing
    hides the first fetch, and nothing is fetched beside the last backward pass.
    """
    (region,), none = every.regions, num(0)
    fetched: dict[str, Form] = {}
    other: dict[str, Terms] = {}
    for letter, phase in (("F", "forward"), ("D", "backward")):
        part = every.region(region.name).of(phase)
        rest = replace(part, calls=tuple(pair for pair in part.calls if not fetches(pair[1])))
        mine = replace(part, ops=(), calls=tuple(_together(part.calls)))
        fetched[letter] = writer.terms(mine, f"_fetch,{letter}").network or none
        other[letter] = writer.terms(rest, f"_{letter}")

    def beside(name: str, letter: str, fetch: Form) -> Form:
        """A pass of a layer beside a fetch."""
        sent = [one for one in (other[letter].network, fetch) if one is not None and one != none]
        units = [*other[letter].local, *([combined(Total, sent)] if sent else [])]
        text = "A layer runs beside the fetch of the next." if fetch != none else "A layer runs."
        return writer.work.combine(name, combined(Largest, units), SECOND, "prefetch", text)

    if writer.setting.accounting.prefetch == "none_ahead":
        each = [*fetched.values(), beside("t_F", "F", none), beside("t_D", "D", none)]
        parts, text = [product(m, layers, one) for one in each], "Each layer first fetches its weights, in both passes."
        return writer.work.combine("t_passes", Total(tuple(parts)), SECOND, "prefetch", text)
    others, less = product(m, Total((layers, num(-1)))), Total((m, num(-1)))
    slots = [("F", "F", fetched["F"], others), ("turn", "F", fetched["D"], m), ("D", "D", fetched["D"], others),
             ("again", "D", fetched["F"], less), ("last", "D", none, num(1))]  # fmt: skip
    parts = [fetched["F"], *(product(n, beside(f"t_{name}", at, fetch)) for name, at, fetch, n in slots if n != none)]
    return writer.work.define("t_passes", Total(tuple(parts)), SECOND, "prefetch",
                              "The first fetch; then layers run, each beside the fetch of what runs behind it.",
                              witness=partial(_followed, other, fetched, layers, m))  # fmt: skip


def _followed(
    other: dict[str, Terms], fetched: dict[str, Form], layers: Form, m: Form, numbers: Numbers
) -> Fraction:  # fmt: skip
    """When the last pass ends: links fetch for one pass while the one before it runs, and send what that makes."""
    count, batches = (int(number(one, numbers)) for one in (layers, m))
    order = (["F"] * count + ["D"] * count) * batches
    fetch = {letter: number(form, numbers) for letter, form in fetched.items()}
    start = fetch["F"]
    for letter, behind in zip(order, [*order[1:], ""], strict=True):
        ready = [start + number(form, numbers) for form in other[letter].local]
        sent = other[letter].network
        links = start + (number(sent, numbers) if sent is not None else 0) + fetch.get(behind, Fraction(0))
        start = max([*ready, links])
    return start
