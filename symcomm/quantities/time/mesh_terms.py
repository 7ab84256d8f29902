"""The time of computing, and that of the communication over each axis of the mesh by itself, on links of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from symcomm.derivation import Exhibit
from symcomm.errors import StrategyError, ValuesError, nearest
from symcomm.form import Form, Ratio, Smallest, Sym, Total, names, num, product
from symcomm.parallel.placement import check_divisible
from symcomm.parallel.strategy import Strategy, degree, parse_strategy
from symcomm.quantities.communication.communication import Call, joint
from symcomm.quantities.counting.load import load
from symcomm.quantities.setting import Setting, Work
from symcomm.quantities.time.machine import machine
from symcomm.quantities.time.terms import SECOND, Writer, exhibit, need, touched
from symcomm.units import BYTE, ONE

PHASES = {
    "forward": (("forward",), "the forward pass"),
    "backward": (("backward",), "the backward pass"),
    "training": (("forward", "backward", "end"), "forward, backward and the reduction of gradients"),
}


@dataclass(frozen=True)
class MeshTerms:
    """The names of the times: of computing, and of each axis of the mesh that something is sent along."""

    setting: Setting
    strategy: Strategy
    work: Work
    writer: Writer
    compute: Form
    sent: Mapping[str, Form]
    links: Mapping[str, Form]
    fields: tuple[str, ...]
    exhibits: tuple[Exhibit, ...]

    @property
    def known(self) -> dict[str, Fraction]:
        """All given numbers: sizes, degrees and rates."""
        return {**self.setting.values, **dict(self.writer.machine.given)}


def read_strategy(strategy: Strategy | str | None) -> Strategy:
    """A strategy of mesh axes; raises ``StrategyError`` where none is named or it is a pipeline."""
    if strategy is None:
        raise StrategyError("no strategy is named", hint="for instance fsdp(X) + tensor(Y)")
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if placed.pipeline is not None:
        raise StrategyError(
            "the messages of a pipeline are sent between stages, not within a layer", hint="leave the pipeline out"
        )
    return placed


def read_links(said: str | None, strategy: Strategy) -> dict[str, Form]:
    """How many links each axis of the mesh has, from text such as ``data=2, tensor=1``; one where it is not said.

    A mesh axis is named as in the strategy, or by the symbol of its size. Raises ``ValuesError`` for an unknown one
    and for a number that is no positive whole number.

    >>> fsdp = parse_strategy("fsdp(X) + tensor(Y)")
    >>> read_links("X=2, tensor=M", fsdp) == {"data": num(2), "tensor": Sym("M")}
    True
    """
    found: dict[str, Form] = {mesh: num(1) for mesh in strategy.sizes}
    named = {size.name: mesh for mesh, size in strategy.sizes.items() if isinstance(size, Sym)}
    seen: set[str] = set()
    for part in filter(None, (piece.strip() for piece in (said or "").split(","))):
        match = re.fullmatch(r"([^\s=]{1,60})\s*=\s*(\S{1,40})", part)
        if match is None:
            raise ValuesError(
                f"'{part[:60]}' says no number of links", hint="write for instance links: data=2, tensor=1"
            )
        mesh = named.get(match[1], match[1])
        if mesh not in found:
            raise ValuesError(
                f"the mesh has no axis '{match[1]}'", hint=nearest(match[1], [*found, *named])
            )  # fmt: skip
        if mesh in seen:
            raise ValuesError(f"the links of the mesh axis '{mesh}' are given twice")
        seen.add(mesh)
        try:
            found[mesh] = degree(match[2])
        except StrategyError:
            hint = "a positive whole number, or the name of a symbol"
            raise ValuesError(f"'{match[2]}' is no number of links of '{mesh}'", hint=hint) from None
    return found


def new_symbols(setting: Setting, strategy: Strategy, what: str, *counts: Form) -> None:
    """Raises ``ValuesError`` where a count goes by a symbol that means something else already."""
    degrees = {name for size in strategy.sizes.values() for name in names(size)}
    for name in (name for count in counts for name in names(count)):
        if name in setting.symbols or name in degrees:
            owner = "of the model" if name in setting.symbols else "of the strategy"
            raise ValuesError(f"{name} is a symbol {owner}", hint=f"name {what} otherwise")


def one_link(rates: Mapping[str, object]) -> None:
    """Raises ``ValuesError`` where the network would be all links of a torus together, of which a ring has but one."""
    if rates.get("device") is None or rates.get("network") is not None:
        return
    from symcomm.hardware.devices import Device, device

    name = rates["device"]
    found = device(name if isinstance(name, Device) else str(name))
    if found.links and "torus" in found.link().name:
        one = found.link().rate.quantity
        raise ValuesError(
            f"the bandwidth of {found.name} is that of its {found.link().count} links together, which are those of a "
            "torus",
            hint=f"give that of one as network: {one.lines()[-1][1]} in one direction, twice that in both",
        )


def settled(strategy: Strategy, values: Mapping[str, Fraction], rings: str) -> Strategy:
    """The strategy with the sizes put in for which no symbol may stand: one rank sends nothing, an odd ring is no even.

    Raises ``StrategyError`` for a size that is no positive whole number.
    """
    mesh: list[tuple[str, Form | None]] = []
    for name, size in strategy.sizes.items():
        value = values.get(size.name) if isinstance(size, Sym) else None
        if value is not None and (value.denominator != 1 or value < 1):
            raise StrategyError(f"the mesh axis '{name}' has {value} ranks", hint="a degree is at least 1")
        put = value is not None and (value == 1 or (rings == "both_ways" and value % 2 == 1))
        mesh.append((name, num(value) if put and value is not None else size))
    return replace(strategy, mesh=tuple(mesh))


def write(
    setting: Setting,
    strategy: Strategy,
    phase: str,
    links: str | None,
    dtype: str | None,
    gradient_dtype: str | None,
    rates: Mapping[str, object],
    *more: Form,
) -> MeshTerms:
    """The steps up to the times. ``more`` are forms whose symbols are in use besides.

    Raises ``ValuesError`` where nothing is computed or nothing is sent.
    """
    if phase not in PHASES:
        raise ValuesError(f"unknown phase '{phase[:40]}'", hint=nearest(phase, [*PHASES]))
    setting = replace(setting, dtype=dtype) if dtype else setting
    one_link(rates)
    lanes = read_links(links, strategy)
    new_symbols(setting, strategy, "the links", *lanes.values())
    strategy = settled(strategy, setting.values, setting.accounting.rings)
    check_divisible(setting.graph, strategy, setting.values)
    part = load(setting, strategy, gradient_dtype).of(*PHASES[phase][0])
    made = machine(setting, (*strategy.sizes.values(), *lanes.values(), *more), dtype=setting.dtype, **rates)
    work = Work(setting, *strategy.sizes.values(), *lanes.values(), *made.symbols, *more)
    writer = Writer(work, made, strategy, setting.dtype)
    writer.load = part
    done = need(writer.flops(part.ops), PHASES[phase][1])
    compute = work.define(
        "t_compute", Ratio(done, made.sustained(writer.rate())), SECOND, "computing",
        "Operations over the peak rate" + (", of which a part is sustained." if made.utilisation else "."),
    )  # fmt: skip
    sent: dict[str, Form] = {}
    called = (c.meshes for _, c in part.calls if c.kind != "send")
    groups = dict.fromkeys([*((mesh,) for mesh in strategy.sizes), *called])
    for meshes in groups:
        calls = [(p, c) for p, c in part.calls if c.meshes == meshes]
        if calls and strategy.ranks(meshes) != num(1):
            # A ring over several axes of the mesh goes over links of each: the fewest links are what it has.
            fewest = list(dict.fromkeys(lanes[m] for m in meshes if strategy.sizes[m] != num(1)))
            links_of = fewest[0] if len(fewest) == 1 else Smallest(tuple(fewest))
            sent[joint(meshes)] = _time(writer, joint(meshes), links_of, calls)
    if not sent:
        ranks = "one device" if all(s == num(1) for s in strategy.sizes.values()) else strategy.name.lower()
        raise ValuesError(
            f"nothing is sent on {ranks} in {PHASES[phase][1]}: computing is all there is, at every size",
            hint="cut the model over several devices: fsdp(X) + tensor(Y)",
        )
    shown = (exhibit(setting, part),) if part.ops else ()
    return MeshTerms(setting, strategy, work, writer, compute, sent, lanes, tuple(touched(setting, part)), shown)


def _time(writer: Writer, mesh: str, lanes: Form, calls: list[tuple[str, Call]]) -> Form:
    """The time of the calls over one axis of the mesh."""
    work, made = writer.work, writer.machine
    _, rounds = writer.calls(calls)
    formats: dict[str, list[Form]] = {}
    for count, dtype in writer.loads:
        formats.setdefault(dtype, []).append(count)
    text = f"What a link carries for the mesh axis `{mesh}`."
    parts = [writer.bytes(f"V_{mesh}", counts, dtype, len(formats) > 1, text) for dtype, counts in formats.items()]
    volume = writer.total(f"V_{mesh}", parts, BYTE, "add", "All formats together.")
    assert volume is not None
    form: Form = Ratio(volume, product(lanes, made.network))
    said = "Bytes over the bandwidth of its link."
    if lanes != num(1):
        said = "Bytes over the bandwidth of its links, which share them."
    if made.latency is not None:
        count = work.define(f"r_{mesh}", rounds[0] if len(rounds) == 1 else Total(tuple(rounds)), ONE, "rounds",
                            "Every round of messages takes one latency.")  # fmt: skip
        form, said = Total((product(count, made.latency), form)), f"The latencies, and b{said[1:]}"
    return work.define(f"t_{mesh}", form, SECOND, "network", said)
