"""The time of computing, and that of the communication over each axis of the mesh by itself, on links of its own."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial

from symcomm.core.derivation import Exhibit
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.form import Form, Ratio, Sym, num
from symcomm.core.hardware.devices import device
from symcomm.core.libraries import Expr
from symcomm.core.parallel.strategy import Strategy, parse_strategy
from symcomm.core.program.pipeline import check_divisible
from symcomm.core.quantities.communication.call import joint
from symcomm.core.quantities.communication.links import by_axis, levels, linked
from symcomm.core.quantities.counting.load import load
from symcomm.core.quantities.time.term_texts import exhibit, need
from symcomm.core.quantities.time.terms import SECOND, TimeWriter
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter

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
    work: StepWriter
    writer: TimeWriter
    compute: Form
    sent: Mapping[str, Form]
    exhibits: tuple[Exhibit, ...]

    @property
    def known(self) -> dict[str, Fraction]:
        """All given numbers: sizes, degrees and rates."""
        return {**self.setting.values, **dict(self.writer.machine.given)}

    def worth(self, name: Form) -> Expr:
        """The value of a step, in symbols."""
        return self.work.known[name.name]  # type: ignore[attr-defined]

    @property
    def worths(self) -> list[Expr]:
        """The values of the times: of computing, and along each axis."""
        return [self.worth(name) for name in (self.compute, *self.sent.values())]


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


def one_link(rates: Mapping[str, object]) -> None:
    """Raises ``ValuesError`` where the network would be all links of a torus together, of which a ring has but one."""
    if rates.get("device") is None or rates.get("network") is not None:
        return
    name = rates["device"]
    found = device(name)
    if found.links and "torus" in found.link().name:
        one = found.link().rate.quantity
        raise ValuesError(
            f"the bandwidth of {found.name} counts its {found.link().count} links together, which form a torus",
            hint=f"give one link as network: {one.lines()[-1][1]} in one direction, twice as much in both",
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
    links: object,
    dtype: str | None,
    gradient_dtype: str | None,
    rates: Mapping[str, object],
    *more: Form,
) -> MeshTerms:
    """The steps up to the times. ``more`` are forms whose symbols are in use in addition.

    Raises ``ValuesError`` where nothing is computed or nothing is sent.
    """
    setting = setting.in_format(dtype)
    rates = {**rates, "links": by_axis(links, strategy)}
    strategy = settled(strategy, setting.values, setting.accounting.rings)
    check_divisible(setting.graph, strategy, setting.values)  # a bound may be asked between sizes that divide
    every = load(setting, strategy, gradient_dtype)
    part = every.of(*PHASES[phase][0])
    reduced = [(p, c) for p, c in every.calls if p == "end" and c.what.startswith("gradient")]
    if phase == "backward" and reduced and setting.choice("gradient_sync") == "with_backward":
        part = replace(part, calls=(*part.calls, *reduced))
    made = linked(setting, strategy, rates, *more)
    if any(link.rate == made.network for link, _ in levels(made, strategy, tuple(strategy.sizes))):
        one_link(rates)
    work = StepWriter(setting, *strategy.forms, *made.symbols, *more)
    writer = TimeWriter(work, made, strategy)
    writer.load = part
    done = need(writer.flops(part.ops), PHASES[phase][1])
    compute = work.define(
        "t_compute", Ratio(done, made.sustained(writer.rate())), SECOND, "computing",
        "Operations over the peak rate" + (", of which a part is sustained." if made.utilisation else "."),
        witness=partial(writer.computes, part, made.sustained(writer.rate())),
    )  # fmt: skip
    sent: dict[str, Form] = {}
    called = (c.meshes for _, c in part.calls if c.kind != "send")
    groups = dict.fromkeys([*((mesh,) for mesh in strategy.sizes), *called])
    for meshes in groups:
        calls = [(p, c) for p, c in part.calls if c.meshes == meshes]
        if calls and strategy.ranks(meshes) != num(1):
            name = joint(meshes)
            found, _ = writer.network(writer.calls(calls)[0], f"t_{name}", f"_{name}", [c for _, c in calls])
            assert found is not None
            sent[name] = found
    if not sent:
        ranks = "one device" if all(s == num(1) for s in strategy.sizes.values()) else strategy.name.lower()
        raise ValuesError(
            f"nothing is sent on {ranks} in {PHASES[phase][1]}: computing is all there is, at every size",
            hint="cut the model over several devices: fsdp(X) + tensor(Y)",
        )
    shown = (exhibit(setting, part),) if part.ops else ()
    return MeshTerms(setting, strategy, work, writer, compute, sent, shown)
