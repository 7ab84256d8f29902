"""Why a configuration is no faster: which term takes its time, and what its memory holds."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from symcomm.core import form as forms
from symcomm.core.records import dataclass
from symcomm.searching.structure import STATES, Structure
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

    ``worth`` are the numbers of all steps. Where terms overlap, the time of a layer belongs to the longest of them:
    only that one, made shorter, would help. Of the stages of a pipeline the slowest counts, for which the others wait.
    """

    def at(name: str) -> Fraction:
        return worth.get(name, ZERO)

    def once(tag: str) -> Fraction:
        return at(f"t{tag or '_layer'}")

    total, microbatches = at("time"), worth[dict(structure.symbols)["microbatches"]]
    apart = "T_pipeline" in worth  # forwards and backwards of stages that differ
    ways = []
    for stage in structure.stages:
        counts = [(tag, forms.evaluate(count, worth)) for tag, count in stage.regions]
        kind = (stage.memory.split() or ["only"])[0]
        # Of two stages each has one neighbour, and none is between others.
        two = apart and forms.evaluate(structure.draft.degrees[PIPELINE], worth) == 2
        for none in () if two and kind == "middle" else "FD" if two and kind == "only" else " ":
            pieces = []
            for letter in "FD" if apart else ("",):
                tags = [("_" + ",".join(filter(None, (letter, tag[1:]))) if letter else tag, n) for tag, n in counts]
                alone = sum((n * once(tag) for tag, n in tags), ZERO)
                slot = ZERO if letter == none else at(f"t_slot,{letter},{kind}" if apart else "t_slot")
                pieces.append((slot or alone, alone, tags))
            ways.append((sum((slot for slot, _, _ in pieces), ZERO), pieces, counts))
    slowest, pieces, regions = max(ways, key=lambda way: way[0])
    busy = microbatches * slowest
    bubble = at("T_pipeline") - busy if apart else (at("n_slots") - microbatches) * slowest if at("n_slots") else ZERO
    bubble -= sum(slowest - at(f"t_slot,{end}") for end in "FD") if at("t_slot,F") else ZERO
    found = {BUBBLE: bubble, MESSAGES: ZERO}
    for slot, alone, tags in pieces:
        waits = convention == "overlap" and slot > alone
        found[MESSAGES] += microbatches * (slot if waits else slot - alone)
        for tag, count in () if waits else tags:
            for what, amount in _layer(worth, convention, tag, once(tag)).items():
                found[what] = found.get(what, ZERO) + microbatches * count * amount
    at_the_end = total - bubble - busy  # what is reduced or gathered after the last microbatch, or beside it
    collectives = {False: found.get(NETWORK, ZERO), True: at_the_end}
    found[NETWORK] = sum(collectives.values(), ZERO)
    shares = [Share(what, amount, amount / total) for what, amount in found.items() if amount > 0]
    calls: list[Share] = []
    for end in (False, True):
        seconds: dict[str, Fraction] = {}
        for label, at_end, tag, form in structure.network:
            if at_end == end and tag in dict(regions):
                seconds[label] = seconds.get(label, ZERO) + dict(regions)[tag] * forms.evaluate(form, worth)
        whole = sum(seconds.values(), ZERO)
        for label, amount in seconds.items():
            if amount and collectives[end] > 0:
                part = amount / whole * collectives[end]
                calls.append(Share(label, part, part / total))
    return _sorted(shares), _sorted(calls)


def _layer(worth: Mapping[str, Fraction], convention: str, tag: str, layer: Fraction) -> dict[str, Fraction]:
    """The time of one repetition of a region and one microbatch, by the term that takes it."""
    compute, memory, network = (worth.get(f"t_{name}{tag}", ZERO) for name in ("compute", "memory", "network"))
    if convention == "overlap":
        slowest = max(((compute, COMPUTE), (memory, MEMORY), (network, NETWORK)), key=lambda pair: pair[0])[1]
        return {slowest: layer}
    if convention == "serial":
        return {COMPUTE: compute, MEMORY: memory, NETWORK: network}
    # One op after the other: what an op takes longer than its computing, it waits for memory.
    return {COMPUTE: compute, MEMORY: layer - network - compute, NETWORK: network}


def bytes_of(structure: Structure, worth: Mapping[str, Fraction]) -> tuple[Share, ...]:
    """What the memory of one rank holds, the largest first; of several stages the one that holds most."""
    total = worth["memory"]
    stage = next(stage.memory for stage in structure.stages if worth[f"{stage.memory}memory"] == total)
    rows = (("weights", f"{STATES}M_W"), ("gradients", f"{STATES}M_G"), ("optimizer states", f"{STATES}M_O"))
    found = [(what, worth.get(stage + name, ZERO)) for what, name in (*rows, ("activations", "activations"))]
    return _sorted([Share(what, amount, amount / total) for what, amount in found if amount])


def _sorted(shares: list[Share]) -> tuple[Share, ...]:
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
    said = f"Limited by {_the(first.what)}: {percent(first.part)} of the step"
    if first.what == NETWORK and calls:
        said += f", most of it {calls[0].what} ({percent(calls[0].part)})"
    rest = [f"{s.what} {percent(s.part)}" for s in time[1:] if s.part * 100 >= 1]
    said += f"; {', '.join(rest)}." if rest else "."
    held = sum((s.amount for s in memory), ZERO)
    most = memory[0]
    if capacity is not None:
        return f"{said} Memory: {percent(held / capacity)} of the capacity, {most.what} {percent(most.part)} of it."
    return said


def _the(what: str) -> str:
    return what if what in (COMPUTE, MESSAGES, MEMORY) else f"the {what}"
