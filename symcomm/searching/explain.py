"""Why a configuration is no faster: which term takes its time, and what its memory holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from functools import partial
from operator import itemgetter

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.derivation import whole_bytes
from symcomm.core.quantities.time.terms import Terms
from symcomm.core.records import dataclass
from symcomm.searching.structure import Structure
from symcomm.searching.template import PIPELINE

COMPUTE, MEMORY, NETWORK, MESSAGES, BUBBLE = (
    "computing", "memory traffic", "collectives", "pipeline messages", "pipeline bubble",
)  # fmt: skip
ZERO = Fraction(0)


@dataclass(frozen=True)
class Share:
    """A part of a whole: what it is, its amount, and its part of the whole."""

    what: str
    amount: Fraction
    part: Fraction


def times(
    structure: Structure, worth: Mapping[str, Fraction], convention: str
) -> tuple[tuple[Share, ...], tuple[Share, ...]]:
    """The step's time by the term that takes it, and the time of the collectives by call; both the largest first.

    ``worth`` are the numbers of all amounts. Where terms overlap, the time of a layer belongs to the longest of them:
    only that one, made shorter, would help. Of the stages of a pipeline the slowest counts, for which the others wait.
    """
    at = partial(worth_of, worth)
    total, microbatches = worth["time"], worth[dict(structure.symbols)["microbatches"]]
    letters = structure.letters
    ends = letters[:2]  # forwards, and what the backward of a stage sends
    ways = []
    for stage in structure.stages:
        regions = [(name, at(count), one) for name, count, one in stage.regions]
        slots = dict(stage.slots)
        # Of two stages each has one neighbour, and none is between others.
        two = letters and at(structure.draft.degrees[PIPELINE]) == 2
        for none in () if two and stage.kind == "middle" else ends if two and not stage.kind else " ":
            pieces = []
            for letter in letters or ("",):
                alone = sum((n * at(one.work.get(letter)) for _, n, one in regions), ZERO)
                slot = ZERO if letter == none else at(slots.get(letter))
                pieces.append((letter, slot or alone, alone))
            ways.append((sum((slot for _, slot, _ in pieces), ZERO), pieces, regions, slots))
    slowest, pieces, regions, slots = max(ways, key=itemgetter(0))
    busy = microbatches * slowest
    bubble = at(structure.passes) - busy if letters else (at(structure.slots) - microbatches) * slowest
    if not letters and "F" in slots:  # of the first stage and of the last one, which have one neighbour
        bubble -= 2 * slowest - at(slots["F"]) - at(slots["D"])
    found = {BUBBLE: bubble, MESSAGES: ZERO}
    for letter, slot, alone in pieces:
        waits = convention == "overlap" and slot > alone
        found[MESSAGES] += microbatches * (slot if waits else slot - alone)
        for _, count, one in () if waits else regions:
            layer = at(one.work.get(letter))
            for what, amount in by_term(one.terms.get(letter, Terms()), layer, worth, convention).items():
                found[what] = found.get(what, ZERO) + microbatches * count * amount
    at_the_end = total - bubble - busy  # what is reduced or gathered after the last microbatch, or beside it
    collectives = {False: found.get(NETWORK, ZERO), True: at_the_end}
    found[NETWORK] = sum(collectives.values(), ZERO)
    shares = [Share(what, amount, amount / total) for what, amount in found.items() if amount > 0]
    calls: list[Share] = []
    often = {name: count for name, count, _ in regions}
    for end in (False, True):
        seconds: dict[str, Fraction] = {}
        for label, at_end, name, form in structure.calls.told:
            if at_end == end and name in often:
                seconds[label] = seconds.get(label, ZERO) + often[name] * at(form)
        whole = sum(seconds.values(), ZERO)
        for label, amount in seconds.items():
            if amount and collectives[end] > 0:
                part = amount / whole * collectives[end]
                calls.append(Share(label, part, part / total))
    return in_order(shares), in_order(calls)


def worth_of(worth: Mapping[str, Fraction], form: forms.Form | None) -> Fraction:
    return ZERO if form is None else forms.evaluate(form, worth)


def by_term(terms: Terms, layer: Fraction, worth: Mapping[str, Fraction], convention: str) -> dict[str, Fraction]:
    """The time of one repetition of a region and one microbatch, by the term that takes it."""
    compute, memory, network = (worth_of(worth, form) for form in (terms.compute, terms.memory, terms.network))
    if convention == "overlap":
        slowest = max(((compute, COMPUTE), (memory, MEMORY), (network, NETWORK)), key=itemgetter(0))[1]
        return {slowest: layer}
    if convention == "serial":
        return {COMPUTE: compute, MEMORY: memory, NETWORK: network}
    if convention == "roofline":
        return {COMPUTE if compute >= memory else MEMORY: layer - network, NETWORK: network}
    # One op after the other: what an op takes longer than its computing, it waits for memory.
    return {COMPUTE: compute, MEMORY: layer - network - compute, NETWORK: network}


def bytes_of(structure: Structure, worth: Mapping[str, Fraction], accounting: Accounting) -> tuple[Share, ...]:
    """The contents of one rank's memory, the largest first; of several stages the one that holds most."""
    total = worth["memory"]
    stage = next(stage for stage in structure.stages if worth_of(worth, stage.memory) == total)
    found = [(what, worth_of(worth, form)) for what, form in stage.holds]
    return told_bytes(found, total, structure.touched, accounting)


def told_bytes(
    held: Iterable[tuple[str, Fraction]], total: Fraction, touched: Collection[str], accounting: Accounting
) -> tuple[Share, ...]:  # fmt: skip
    """The parts of a ``total`` by their kind, the largest first: in whole bytes, as the quantities tell them."""
    return in_order([Share(what, whole_bytes(n, touched, accounting), n / total) for what, n in held if n])


def in_order(shares: list[Share]) -> tuple[Share, ...]:
    return tuple(sorted(shares, key=lambda s: -s.part))


def percent(part: Fraction) -> str:
    """A part of one in percent, as a sentence says it.

    >>> percent(Fraction(43, 100)), percent(Fraction(1, 1000))
    ('43 %', 'under 1 %')
    """
    whole = round(part * 100)
    return f"{whole} %" if whole or not part else "under 1 %"


def sentence(
    time: tuple[Share, ...], calls: tuple[Share, ...], memory: tuple[Share, ...], capacity: Fraction | None
) -> str:
    """Why a configuration is limited, in one or two sentences."""
    first = time[0]
    what = first.what if first.what in (COMPUTE, MESSAGES, MEMORY) else f"the {first.what}"
    said = f"Limited by {what}: {percent(first.part)} of the step"
    if first.what == NETWORK and calls:
        said += f", most of it {calls[0].what} ({percent(calls[0].part)})"
    rest = [f"{s.what} {percent(s.part)}" for s in time[1:] if s.part * 100 >= 1]
    said += f"; {', '.join(rest)}." if rest else "."
    if capacity is not None and memory:  # all of it may be on the host
        held, most = sum((s.amount for s in memory), ZERO), memory[0]
        return f"{said} Memory: {percent(held / capacity)} of the capacity, {most.what} {percent(most.part)} of it."
    return said
