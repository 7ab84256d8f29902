"""The links that calls go over: those of an axis of the mesh, those inside and between nodes, or one network for all.

This is the one place that reads ``links``. Text and mappings say the same: ``tensor=600 GB/s @ 2 us, data=2`` or
``{"tensor": "600 GB/s @ 2 us", "data": 2}``; two levels are ``node=8, inside=900 GB/s, between=50 GB/s``. A network of
the hardware table has as many as it says.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil
from typing import Any

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.collectives.algorithms import runs_by, usual
from symcomm.core.collectives.cost import minus, times
from symcomm.core.derivation import Condition
from symcomm.core.errors import AccountingError, StrategyError, ValuesError, nearest
from symcomm.core.form import Form, Largest, Ratio, Smallest, Sym, combined, evaluate, from_expr, names, num, product
from symcomm.core.graph.experts import chosen_experts
from symcomm.core.hardware.devices import Device, Network, device, known_networks, network_if
from symcomm.core.parallel.strategy import OF_A_HEAD, Strategy, degree
from symcomm.core.program import pipeline
from symcomm.core.program.instructions import BETWEEN_STAGES, COPIES, HOST, READ, WRITTEN
from symcomm.core.quantities.communication.call import Call
from symcomm.core.quantities.communication.wire import Wire, by_level, direct, wire
from symcomm.core.quantities.machine import RATES, Machine, MachineLink, Rate, checked, host_bandwidth, machine
from symcomm.core.records import ByIdentity, dataclass, replace
from symcomm.core.setting import Setting
from symcomm.core.units import Quantity

PIPE, TO_HOST, *DISKS = (mesh[0] for mesh in (BETWEEN_STAGES, HOST, READ, WRITTEN))
BELOW = (TO_HOST, *DISKS)  # the links of the tiers below the device
NODE, LEVELS = "node", ("inside", "between")
HIERARCHY = (NODE, *LEVELS, *(f"latency_{level}" for level in LEVELS))
SHARED = "shared by"
COPIED = "Each rank copies its part."
_SPEED = RATES["network"].unit
_SYMBOL = r"[^\W\d]\w{0,39}"


def by_axis(said: object, strategy: Strategy) -> dict[str, object]:
    """The options of each axis of the mesh (by its name or the symbol of its size), of a hierarchy, of a host.

    Raises ``ValuesError`` for an unknown axis, with near names, and for one that is named twice.

    >>> from symcomm.core.parallel.strategy import parse_strategy
    >>> by_axis("X=2, tensor=600 GB/s", parse_strategy("fsdp(X) + tensor(Y)"))
    {'data': '2', 'tensor': '600 GB/s'}
    """
    axes = [*strategy.sizes, *([PIPE] if strategy.pipeline is not None else []), *BELOW]
    known = {**{key: key for key in HIERARCHY}, **{size.name: mesh for mesh, size in strategy.sizes.items()
             if isinstance(size, Sym)}, **{axis: axis for axis in axes}}  # fmt: skip
    found: dict[str, object] = {}
    for name, value in pairs(said):
        if name not in known:
            raise ValuesError(f"the mesh has no axis '{name[:60]}'", hint=nearest(name, [*known]))
        if known[name] in found:
            raise ValuesError(f"the links of the mesh axis '{known[name]}' are given twice")
        found[known[name]] = value
    return found


def _of_axes(said: Mapping[str, object], strategy: Strategy) -> dict[str, object]:
    """The options of the axes that a strategy has, where it is one of several."""
    axes = {*strategy.sizes, *(s.name for s in strategy.sizes.values() if isinstance(s, Sym))}
    axes |= {*BELOW} | ({PIPE} if strategy.pipeline is not None else set())
    return {name: value for name, value in said.items() if name in axes}


def pairs(said: object) -> Iterable[tuple[str, object]]:
    """The names with links, each with the text of its link."""
    if isinstance(said, Mapping):
        return [(str(name), value) for name, value in said.items()]
    found: list[tuple[str, object]] = []
    for part in filter(None, (piece.strip() for piece in ("" if said is None else str(said)).split(","))):
        match = re.fullmatch(r"([^\s=]{1,60})\s*=\s*(\S.{0,99})", part)
        if match is None:
            raise ValuesError(f"'{part[:60]}' says no number of links and no bandwidth",
                              hint="write for instance links: data=2, tensor=600 GB/s")  # fmt: skip
        found.append((match[1], match[2]))
    return found


@dataclass(frozen=True)
class _Link:
    """One link as it is given: how many of those of the network it is, or its bandwidth; and its latency."""

    count: Form = num(1)
    bandwidth: Fraction | None = None
    latency: Fraction | Sym | None = None


def _read(name: str, value: object) -> _Link:
    """Raises ``ValuesError`` for a number of links, a bandwidth or a latency that is none."""
    if isinstance(value, Quantity):
        return _Link(bandwidth=checked(_bandwidth(name), value))
    head, _, tail = (part.strip() for part in str(value).partition("@"))
    latency = _latency(name, tail) if tail else None
    head, shared_by, ranks = (part.strip() for part in head.partition(SHARED))
    if shared_by:
        if not re.fullmatch(r"[1-9]\d{0,5}", ranks):
            hint = f"for instance {name}=64 GB/s {SHARED} 2"
            raise ValuesError(f"'{ranks[:40]}' is no number of ranks that share a link of '{name}'", hint=hint)
        one = _read(name, head) if head else _Link()
        return replace(one, count=product(forms.rational(Fraction(1, int(ranks))), one.count), latency=latency)
    if re.fullmatch(rf"{_SYMBOL}|[-+.\d/]*", head):
        try:
            return _Link(count=degree(head) if head else num(1), latency=latency)
        except StrategyError:
            hint = "a positive whole number, the name of a symbol, or a bandwidth such as 600 GB/s"
            raise ValuesError(f"'{head}' is no number of links of '{name}'", hint=hint) from None
    return _Link(bandwidth=checked(_bandwidth(name), head), latency=latency)


def _bandwidth(name: str) -> Rate:
    return Rate(name, f"W_{name}", RATES["network"].unit, f"the bandwidth {spot(name)}", "600 GB/s")


def spot(name: str | MachineLink) -> str:
    """Where a link is, or the links of a name.

    >>> spot("between"), spot("data")
    ('between nodes', 'along `data`')
    """
    if isinstance(name, MachineLink):
        return name.where or spot(name.name)
    return _SPOTS.get(name, f"along `{name}`")


_SPOTS = {"inside": "inside a node", "between": "between nodes", PIPE: "between stages", TO_HOST: "to the host",
          DISKS[0]: "from NVMe disks", DISKS[1]: "to NVMe disks"}  # fmt: skip


def _latency(name: str, value: object) -> Fraction | Sym:
    unit = RATES["latency"].unit
    if isinstance(value, str) and re.fullmatch(_SYMBOL, value):
        return Sym(value, whole=False, unit=unit)
    rate = Rate(f"the latency of {name}", f"alpha_{name}", unit, f"the latency of a message {spot(name)}", "2 us")
    return checked(rate, value)


def new_symbols(setting: Setting, strategy: Strategy, what: str, *counts: Form) -> None:
    """Raises ``ValuesError`` where a count goes by a symbol that means something else already."""
    degrees = {name for size in strategy.sizes.values() for name in names(size)}
    for name in (name for count in counts for name in names(count)):
        if name in setting.symbols or name in degrees:
            owner = "of the model" if name in setting.symbols else "of the strategy"
            raise ValuesError(f"{name} is a symbol {owner}", hint=f"name {what} otherwise")


def linked(setting: Setting, strategy: Strategy, rates: Mapping[str, object], *others: Form) -> Machine:
    """The machine of a question with the links of each axis of the mesh; ``rates`` are its rates and ``links``.

    Raises ``ValuesError`` for links that make no sense, and where it cannot be told which axes lie inside a node.
    """
    rest = dict(rates)
    said = by_axis(rest.pop("links", None), strategy)
    # How many ranks a strategy has, where all its degrees are numbers.
    form = product(*_sizes(setting, strategy).values())
    ranks = int(evaluate(form, setting.values)) if {*names(form)} <= setting.values.keys() else None
    if NODE not in said and ranks != 1 and (by_name := network_if(rest.get("device"))) is not None:
        said[NODE] = by_name
    away, own = setting.accounting.row("offloading"), host_bandwidth(rest.get("device"), setting.accounting.link)
    supposed = {TO_HOST: own} if away.roles else {}
    supposed |= {DISKS[0]: ""} if away.deeper else {}
    supposed = {name: value for name, value in supposed.items() if name not in said}
    if str(said.get(TO_HOST)).startswith(SHARED):  # the link of a device, or one whose rate is a symbol
        said[TO_HOST] = f"{own.reading if isinstance(own, Quantity) else own} {said[TO_HOST]}"
    said |= supposed
    node, late = said.pop(NODE, None), {level: said.pop(f"latency_{level}", None) for level in LEVELS}
    node, nesting = node if isinstance(node, tuple) else (node, None)
    whole = node if isinstance(node, Network) else None
    if whole is not None:
        whole.holds(ranks)
    read = {name: _read(name, value) for name, value in said.items()}
    for level, value in late.items():
        if value is not None:
            found = read.get(level, _Link())
            if found.latency is not None:
                raise ValuesError(f"the latency {spot(level)} is given twice")
            read[level] = replace(found, latency=_latency(level, value))
    counts = [one.count for one in read.values()]
    free = [one.latency for one in read.values() if isinstance(one.latency, Sym)]
    new_symbols(setting, strategy, "the links", *counts, *free)
    in_use = (*strategy.sizes.values(), *others, *counts, *free)
    made = machine(setting, in_use, **rest)
    taken = {*setting.symbols, *(s.name for s in made.symbols), *(n for form in in_use for n in names(form))}
    given, symbols = list(made.given), [*free, *(c for c in counts if isinstance(c, Sym))]

    def symbol(rate: Rate, number: Fraction | None) -> Sym:
        name = rate.symbol
        while name in taken:
            name += "'"
        taken.add(name)
        given.extend([] if number is None else [(name, number)])
        symbols.append(Sym(name, whole=False, unit=rate.unit))
        return symbols[-1]

    links: dict[str, MachineLink] = {}
    for name, one in read.items():
        if one.bandwidth is None:
            rate = symbol(_bandwidth(name), None) if name in BELOW else made.network
        else:
            rate = symbol(_bandwidth(name), one.bandwidth)
        latency: Form | None = made.latency
        if isinstance(one.latency, Fraction):
            latency = symbol(Rate("latency", f"alpha_{name}", RATES["latency"].unit, "", ""), one.latency)
        elif one.latency is not None:
            latency = one.latency
        links[name] = MachineLink(name, rate, latency, one.count)
    routes: dict[str, tuple[tuple[MachineLink, Form], ...]] = {}
    notes: tuple[str, ...] = ()
    where: tuple[Condition, ...] = ()
    steps: tuple[MachineLink, ...] = ()
    if node is not None:
        if whole is not None:
            both = 1 + (setting.accounting.link == "bidirectional")
            steps = _steps(whole, made, both, symbol)
        else:
            said_levels = [links.pop(level, replace(made.one_network, name=level)) for level in LEVELS]
            if not {*LEVELS} & {*read}:
                raise ValuesError(
                    "links say how many ranks a node has, but not how fast it is inside and between nodes",
                    hint="for instance node=8, inside=900 GB/s, between=50 GB/s",
                )
            inside = replace(said_levels[0], where=spot("inside"))
            steps = inside, replace(said_levels[1], below=inside, unit=node_ranks(node), where=spot("between"))
        routes, notes, where = _laid(setting, strategy, steps, nesting)
    elif {*LEVELS} & {*links}:
        raise ValuesError("links say how fast it is inside or between nodes, but not how many ranks a node has",
                          hint="for instance node=8, inside=900 GB/s, between=50 GB/s")  # fmt: skip
    routes |= {name: ((link, strategy.sizes.get(name, num(2))),) for name, link in links.items()}
    named = tuple(name for name in read if name not in supposed)
    notes = (*([whole.told] if whole is not None else []), *notes)
    checks = _enough_experts(setting, strategy, routes, steps)
    owner = rest.get("device")
    if rest.get("network") is None and isinstance(owner, (str, Device, Network)):
        checks += _within(setting, strategy, device(owner), made.network, routes)
    return replace(made, given=tuple(given), routes=routes, levels=steps, of_links=tuple(symbols), named=named,
                   notes=notes, where=where, checks=checks)  # fmt: skip


def _sizes(setting: Setting, strategy: Strategy) -> dict[str, Form]:
    """The degree of each axis of the mesh, stages among them."""
    stages = {} if strategy.pipeline is None else {PIPE: pipeline.stage_count(strategy.pipeline, setting.graph)}
    return {**{mesh: strategy.sizes[mesh] for mesh in strategy.mesh_order}, **stages}


def beyond(found: Device, ranks: object) -> ValuesError:
    """The refusal of more ranks than the links of a device join."""
    link = found.link()
    inside = link.bandwidth("one").reading
    whole = [f"device {one.name}" for one in known_networks().values() if one.device.name == found.name]
    ways = [*whole[:1], f"links node={link.joins}, inside={inside}, between=50 GB/s",
            "a network of one bandwidth for all ranks"]  # fmt: skip
    return ValuesError(f"{link.name} joins {link.joins} {found.name}, but the mesh has {ranks} ranks on it",
                       hint="say what joins the nodes: " + ", or ".join(ways))  # fmt: skip


def _within(
    setting: Setting, strategy: Strategy, found: Device, network: Sym,
    routes: Mapping[str, tuple[tuple[MachineLink, Form], ...]],
) -> tuple[Callable[[Mapping[str, Fraction]], None], ...]:  # fmt: skip
    """Holds the ranks that go over the own links of a device against those that they join, now and for later numbers.

    Raises ``ValuesError`` for more.
    """
    if not found.links or not found.link().joins:
        return ()
    ranks: list[Form] = []
    for axis, size in _sizes(setting, strategy).items():
        route = routes.get(axis)
        if route is None or (axis == PIPE and route[0][0].rate == network):
            ranks.append(size)
        else:
            ranks += [count for link, count in route if link.rate == network and axis != PIPE]
    form = product(*ranks)

    def check(known: Mapping[str, Fraction]) -> None:
        if {*names(form)} <= known.keys() and (count := evaluate(form, known)) > found.link().joins:
            raise beyond(found, count)

    check(setting.values)
    return (check,)


def _enough_experts(
    setting: Setting, strategy: Strategy, routes: Mapping[str, tuple[tuple[MachineLink, Form], ...]],
    steps: tuple[MachineLink, ...],
) -> tuple[Callable[[Mapping[str, Fraction]], None], ...]:  # fmt: skip
    """Holds the experts of a token against those that its nodes have, now and for later numbers.

    Raises ``StrategyError`` where the nodes have fewer.
    """
    limits = [rule for _, rule in strategy.rules if rule.nodes and steps]
    routed = chosen_experts(setting.graph).values() if limits else ()
    found = {(one.chosen, setting.graph.axes[one.axis].size) for one in routed}

    def check(known: Mapping[str, Fraction]) -> None:
        for rule, (chosen, experts) in itertools.product(limits, found):
            ranks = product(*(count for link, count in routes[rule.mesh] if link == steps[0]))
            one = Ratio(product(ranks, from_expr(experts)), strategy.sizes[rule.mesh])
            if {*names(one), *names(from_expr(chosen))} <= known.keys():
                needed, have = evaluate(from_expr(chosen), known), evaluate(one, known)
                if needed > rule.nodes * have:
                    said = f"{rule.nodes} node{'s have' if rule.nodes > 1 else ' has'} {rule.nodes * have}"
                    raise StrategyError(f"a token goes to {needed} experts, but {said}",
                                        hint=f"expert(nodes={ceil(needed / have)})")  # fmt: skip

    check(setting.values)
    return (check,) if limits else ()


# -- levels ---------------------------------------------------------------------------------------------


def _steps(
    whole: Network, made: Machine, directions: int, symbol: Callable[[Rate, Fraction], Sym]
) -> tuple[MachineLink, ...]:
    """The links of each level of a network; a level without a rate has the rate of the one below."""
    found: list[MachineLink] = []
    for hop in whole.hops:
        name, level = hop.level.name, hop.level
        where = f"between {hop.below}s" if found else f"inside a {name}"
        rate: Form = found[-1].rate if found else made.network
        if level.rate is not None:
            rate = symbol(_bandwidth(name), directions * level.rate.quantity.value)
        latency: Form | None = made.latency
        if level.latency is not None:
            latency = symbol(Rate("latency", f"alpha_{name}", RATES["latency"].unit, "", ""), level.latency)
        cards = hop.cards if found and hop.rate is not None else None
        below = found[-1] if found else None
        count = num(1) if found or level.rate is None else forms.rational(hop.cards)
        found.append(MachineLink(name, rate, latency, count, below, hop.unit, cards, level.line, where, level.rails))
    return tuple(found)


@dataclass(frozen=True)
class Nesting:
    """How the axes of a mesh fill the units of a network, for degrees that are symbols.

    ``holds`` are the ranks of a unit of each level but the last, and ``spans`` the axes in order, each with the first
    and the last level that joins its ranks.

    >>> Nesting.of((8,), {"tensor": 4, "data": 6, "pipe": 2})
    Nesting(holds=(8,), spans=(('tensor', 0, 0), ('data', 0, 1), ('pipe', 1, 1)))
    """

    holds: tuple[int, ...]
    spans: tuple[tuple[str, int, int], ...] = ()

    @classmethod
    def of(cls, holds: tuple[int, ...], sizes: Mapping[str, int]) -> Nesting:
        """The way of numbers of ranks, in the order of the mesh."""
        spans: list[tuple[str, int, int]] = []
        before = 1
        for axis, size in sizes.items():
            spans.append((axis, sum(before >= some for some in holds), sum(before * size > some for some in holds)))
            before *= size
        return cls(holds, tuple((axis, min(low, high), high) for axis, low, high in spans))

    def without(self, axes: Iterable[str]) -> Nesting:
        """The same where some axes have one rank, which fills nothing."""
        return replace(self, spans=tuple(span for span in self.spans if span[0] not in {*axes}))

    def shares(self, sizes: Mapping[str, Form]) -> dict[str, tuple[Form, ...]]:
        """How many ranks of each axis every level joins: the ranks in its unit over the ranks in the level below."""
        found: dict[str, tuple[Form, ...]] = {}
        for place, (axis, low, high) in enumerate(self.spans):
            if axis not in sizes:
                continue
            before = product(*(sizes[one] for one, *_ in self.spans[:place] if one in sizes))
            ranks: list[Form] = [num(1)] * (len(self.holds) + 1)
            for level in range(low, high + 1):
                top: Form = num(self.holds[level]) if level < high else product(before, sizes[axis])
                below = before if level == low else num(self.holds[level - 1])
                part = top if below == num(1) else Ratio(top, below)
                ranks[level] = part if names(part) else forms.rational(evaluate(part, {}))
            found[axis] = tuple(ranks if low < high else [*ranks[:low], sizes[axis], *ranks[low + 1 :]])
        return found

    def divisions(self, sizes: Mapping[str, Form]) -> Iterator[tuple[int, Form, Form]]:
        """The numbers to divide, and by which, for axes that share out the places of a unit of so many ranks evenly."""
        for level, places in enumerate(self.holds):
            inside = [axis for axis, _, high in self.spans if high <= level and axis in sizes]
            filled = product(*(sizes[axis] for axis in inside))
            if filled != num(1):
                yield places, num(places), filled
            for axis in (axis for axis, low, high in self.spans if low <= level < high and axis in sizes):
                yield places, product(filled, sizes[axis]), num(places)


def _laid(
    setting: Setting, strategy: Strategy, steps: tuple[MachineLink, ...], nesting: Nesting | None
) -> tuple[dict[str, tuple[tuple[MachineLink, Form], ...]], tuple[str, ...], tuple[Condition, ...]]:
    """The links of each axis: axes fill a unit in the order of the mesh, and what does not fit lies in the next level.

    Besides, what is told of it, and the numbers of the degrees for which it holds.
    """
    sizes = _sizes(setting, strategy)
    holds = tuple(step.unit for step in steps[1:])
    told: list[str] = []
    where: list[Condition] = []
    numbers: dict[str, Form] = {}
    known: dict[str, int] = {}
    many = dict.fromkeys(sizes, "")
    if nesting is None:
        filled = 1
        for axis, size in sizes.items():
            if not holds or filled >= holds[-1]:  # whatever is left lies in the last level
                numbers[axis], known[axis] = size, 2
                continue
            if not {*names(size)} <= setting.values.keys():
                raise ValuesError(
                    f"whether '{axis}' lies inside a node of {holds[0]} ranks depends on its size, which is no number",
                    hint="give numbers for all degrees, or the links of each axis: tensor=900 GB/s, data=50 GB/s",
                )
            count = int(evaluate(size, setting.values))
            many[axis] = f" ({count} {'stages' if axis == PIPE else 'ranks'})"
            where += [Condition(size, "=", num(count))] if names(size) else []
            if count < 1:
                raise StrategyError(f"the mesh axis '{axis}' has {count} ranks", hint="a degree is at least 1")
            for places in (places for places in holds if places > filled):
                left = Fraction(places, filled)
                if (left / count).denominator != 1 and (count / left).denominator != 1:
                    raise ValuesError(
                        f"the {left} places that a node of {places} ranks has for '{axis}' do not share out its "
                        f"{count} ranks evenly", hint="one has to divide the other",
                    )  # fmt: skip
            numbers[axis], known[axis], filled = num(count), count, filled * count
        nesting = Nesting.of(holds, known)
        sizes = numbers
    routes: dict[str, tuple[tuple[MachineLink, Form], ...]] = {}
    for axis, ranks in nesting.shares(sizes).items():
        joined = [(link, n) for link, n in zip(steps, ranks, strict=True) if n != num(1)]
        if known and joined:
            told.append(f"`{axis}`{many[axis]} {_lies(ranks, steps)}")
        if axis == PIPE:
            joined = [(joined[-1][0] if joined else steps[0], num(2))]
        routes[axis] = tuple(joined)
    units = [f"{_unit(step)} {step.unit}" if n else f"A{_unit(step)[1:]} has {step.unit} ranks"
             for n, step in enumerate(steps[1:])]  # fmt: skip
    return routes, (f"{', '.join(units)}: {', '.join(told)}.",) if told and units else (), tuple(where)


def _unit(step: MachineLink) -> str:
    """The unit that a level joins, as ``a node``."""
    return f"a {step.where.removeprefix('between ').removesuffix('s')}"


def _lies(ranks: Sequence[Form], steps: tuple[MachineLink, ...]) -> str:
    """Where the ranks of an axis are: how many in a unit of each level, and between which units."""
    last = max(n for n, count in enumerate(ranks) if count != num(1))
    if last == 0:
        return "lies inside"
    told = [f"{evaluate(count, {})} {'ranks inside' if n == 0 else f'inside {_unit(steps[n + 1])}'}"
            for n, count in enumerate(ranks[:last]) if count != num(1)]  # fmt: skip
    return f"has {', '.join(told)} and goes {steps[last].where}" if told else f"goes {steps[last].where}"


def node_ranks(said: object) -> int:
    """How many ranks a node has; raises ``ValuesError`` for what is no such number."""
    if not re.fullmatch(r"[1-9]\d{0,11}", str(said).strip()):
        raise ValuesError(f"'{str(said)[:40]}' is no number of ranks of a node", hint="for instance node=8")
    return int(str(said))


@dataclass(frozen=True)
class Links:
    """The option ``links`` for many meshes, by the names of their axes, and the device that they join.

    A device that is a ``network`` is one of its devices, and the network joins the nodes.
    """

    said: tuple[tuple[str, Any], ...] = ()
    device: Device | None = None
    network: Network | None = None

    @classmethod
    def of(cls, said: object, named: object, ranks: int) -> Links:
        """The links of an option, and their device. Raises ``ValuesError`` where a network has fewer devices."""
        found = dict(pairs(said))
        if NODE in found or (whole := network_if(named)) is None:
            return cls(tuple(found.items()), None if named is None else device(named))  # looked up once for all meshes
        whole.holds(ranks)
        return cls((*found.items(), (NODE, whole)), whole.device, whole)

    def given(
        self, strategy: Strategy | None, nesting: Nesting | None, symbols: Mapping[str, str]
    ) -> dict[str, object]:
        """The links of the axes that a strategy has, with how its axes fill the nodes.

        ``symbols`` are those of the sizes of axes. The ranks that share a head have the links of its axis.
        """
        said = {symbols.get(name, name): value for name, value in self.said}
        axes = () if strategy is None else strategy.sizes
        said |= {axis: said[of] for axis in axes if (of := axis.removesuffix(OF_A_HEAD)) in said}
        found = _of_axes(said, strategy) if strategy is not None else {}
        if nesting is not None:
            levels = {name: value for name, value in self.said if name in HIERARCHY}
            found |= levels | {NODE: (levels[NODE], nesting)}
        return found

    @property
    def units(self) -> tuple[int, ...] | None:
        """The ranks of a unit of each level but the last; None where no option names nodes."""
        if (node := dict(self.said).get(NODE)) is None:
            return None
        return tuple(hop.unit for hop in node.hops[1:]) if isinstance(node, Network) else (node_ranks(node),)

    @property
    def of_a_node(self) -> int | None:
        """The ranks of a node, which share a host: a network's first level, or the ranks that links join."""
        node = dict(self.said).get(NODE)
        if (whole := network_if(node)) is not None:
            return whole.levels[0].size
        if node is not None:
            return int(str(node)) if str(node).isdecimal() else None
        return self.joined or None

    @property
    def joined(self) -> int:
        """How many ranks the device's own links join; 0 where it has none."""
        return self.device.link().joins if self.device is not None and self.device.links else 0

    def check(self, strategies: Sequence[Strategy]) -> None:
        """Raises ``ValuesError`` for links of an axis that no strategy has."""
        said = dict(self.said)
        if NODE not in said and {*LEVELS} & {*said}:
            raise ValuesError("links say how fast it is inside or between nodes, but not how many ranks a node has",
                              hint="for instance node=8, inside=900 GB/s, between=50 GB/s")  # fmt: skip
        known = {name for one in strategies for name in _of_axes(said, one)}
        axes = {axis for one in strategies for axis in (*one.sizes, *([PIPE] if one.pipeline is not None else []))}
        for name in said:
            if name not in known and name not in HIERARCHY:
                raise ValuesError(f"no strategy has an axis '{name[:60]}' for links", hint=nearest(name, sorted(axes)))

    def check_joined(self, ranks: int) -> None:
        """Raises ``ValuesError`` where so many ranks would be on a device's own links, which join fewer."""
        if self.device is not None and ranks > self.joined > 0 and NODE not in dict(self.said):
            raise beyond(self.device, ranks)


# -- the way of a call -----------------------------------------------------------------------------------


def levels(made: Machine, strategy: Strategy, meshes: tuple[str, ...]) -> list[tuple[MachineLink, Form]]:
    """The links that a group over some axes of the mesh spans, each with the ranks that it joins."""
    return [*_levels(ByIdentity(made), ByIdentity(strategy), meshes)]


@lru_cache(maxsize=64)  # every call of a step asks
def _levels(
    held: ByIdentity[Machine], strategy_held: ByIdentity[Strategy], meshes: tuple[str, ...]
) -> tuple[tuple[MachineLink, Form], ...]:
    made, strategy = held.it, strategy_held.it
    found: dict[MachineLink, list[Form]] = {}
    for mesh in sorted(meshes, key=(*strategy.mesh_order, PIPE, *BELOW).index):
        mesh = DISKS[0] if mesh == DISKS[1] and mesh not in made.routes else mesh  # written as fast as they are read
        size = strategy.sizes.get(mesh, num(2))
        if size != num(1):
            for link, ranks in made.routes.get(mesh, ((made.one_network, size),)):
                found.setdefault(link, []).append(ranks)
    return tuple([(link, product(*ranks)) for link, ranks in found.items()])


def shared(link: MachineLink, inside: Callable[[MachineLink], Form]) -> MachineLink:
    """A link as one of several flows has it that leave a unit at once, one for each group of ranks.

    ``inside`` says how many ranks of a group are in one unit of a level: so many devices send as one flow. Of all the
    cards that a flow goes through it has at most one.
    """
    counts: dict[Form, list[Form]] = {}
    for step in (step for step in link.down if step.cards is not None):
        assert step.cards is not None
        part = forms.product(forms.rational(step.cards / step.unit), inside(step))
        if step.cards >= step.unit:
            part = num(1)
        elif not names(part):
            part = forms.rational(min(Fraction(1), evaluate(part, {})))
        else:
            part = Smallest((num(1), part))
        counts.setdefault(step.rate, []).append(part)
    if not counts:
        return link
    least = {rate: _least(parts) for rate, parts in counts.items()}
    if len(least) == 1:
        return replace(link, count=least[link.rate])
    rate = Smallest(tuple(product(part, rate) if part != num(1) else rate for rate, part in least.items()))
    return replace(link, rate=rate, count=num(1))


def _least(parts: list[Form]) -> Form:
    numbers = [part for part in parts if not names(part)]
    rest = tuple(dict.fromkeys(part for part in parts if names(part)))
    least = [forms.rational(min(evaluate(part, {}) for part in numbers))] if numbers else []
    return combined(Smallest, [*least, *rest])


def slowest(links: Iterable[MachineLink]) -> MachineLink:
    """The link that calls over several ones are as slow as: the least bandwidth, and the largest latency."""
    every = list(links)
    inner = {step.name for link in every if link.below is not None for step in link.below.down}
    every = [link for link in every if link.name not in inner]
    if len(every) == 1:
        return every[0]
    rates, counts = (list(dict.fromkeys(forms)) for forms in ([x.rate for x in every], [x.count for x in every]))
    late = list(dict.fromkeys(x.latency for x in every if x.latency is not None))
    latency = combined(Largest, late) if late else None
    name = " × ".join(x.name for x in every)
    if len(rates) == 1:
        return MachineLink(name, rates[0], latency, combined(Smallest, counts))
    return MachineLink(name, Smallest(tuple(dict.fromkeys(x.bandwidth for x in every))), latency)


def nested(found: Sequence[tuple[MachineLink, Form]]) -> bool:
    """Whether several links are levels of one network, each over the one before."""
    return len(found) > 1 and all(a in [*b.down] for (a, _), (b, _) in pairwise(found))


def ways(made: Machine, strategy: Strategy, how: Accounting, call: Call, k: Form) -> list[tuple[MachineLink, Wire]]:
    """The links that a call over some axes of the mesh goes over, and what it costs on each of them.

    Raises ``AccountingError`` where its tokens go to few nodes, but not straight to these.
    """
    most, copies = node_limit(strategy, call), call.copies
    over = _ways(made, strategy, how, call, k, straight=bool(copies is not None and most))
    by = over[0][1].by
    found = levels(made, strategy, call.meshes) if most else []
    if copies is None or not most or (len(found) == 1 and found[0][0] in made.levels[:1]):  # all in one node
        return over
    if not made.levels:
        hint = "for instance node=8, inside=900 GB/s, between=50 GB/s"
        raise ValuesError(f"the experts of a token are on {most} nodes, but the links have none", hint=hint)
    if by not in ("pairwise", "hierarchical"):
        hint = "algorithm: pairwise, or hierarchical"
        raise AccountingError(f"the algorithm '{by}' does not send a token to each of its nodes once", hint=hint)
    # A node gets one copy, at the rank of the same place, which hands it to all experts that are there.
    inner = found[0][1] if found[0][0] == made.levels[0] else num(1)
    part = times(_least([copies, num(most), times(k, Ratio(num(1), inner))]), Ratio(num(1), copies))
    inside, between = by_level(call.kind, k, (inner,))
    rounds = Ratio(num(1), inner if by == "pairwise" else num(1))
    out = [(link, replace(cost, path=times(part, cost.path), moved=times(part, cost.moved), how=between.how,
                          rounds=times(cost.rounds, rounds))) for link, cost in over[inner != num(1) :]]  # fmt: skip
    return [*([(over[0][0], inside)] if inner != num(1) else []), *out]


def node_limit(strategy: Strategy, call: Call) -> int:
    """The nodes that have the experts of a token of a call, at most; 0 where they may be on any."""
    limits = (rule.nodes for _, rule in strategy.rules if rule.mesh in call.meshes and call.kind == "all-to-all")
    return max(limits, default=0)


def crossed(made: Machine, strategy: Strategy, how: Accounting, call: Call) -> MachineLink | None:
    """The level whose rails the messages of a call change: it joins equal places, and a group has several in a node."""
    found = levels(made, strategy, call.meshes) if call.meshes not in COPIES else []
    several = len(found) > 1 and found[0][0] in made.levels[:1]
    on_one = runs_by(how.algorithm, call.kind) == "hierarchical" or call.kind == "send"
    return next((link for link, _ in found[1:] if link.rails and several and not on_one), None)


def _on_rails(
    made: Machine, how: Accounting, rail: MachineLink, over: list[tuple[MachineLink, Wire]], places: Form
) -> list[tuple[MachineLink, Wire]]:
    """Messages from each rank to every other one, where one level joins only equal places; so many are in a node.

    The others of that level go to their place inside the node first, or over the level above.
    """
    cost = next(cost for link, cost in over if link.name == rail.name)
    there, away = cost.part(Ratio(num(1), places)), cost.part(Ratio(minus(places, 1), places))
    if how.rails == "changed_inside":
        node, inside = over[0]
        return [(node, inside.beside(away, f"{inside.how} Messages to another rail change to it here.")), *over[1:]]
    spine, mine = _above(made, rail), {rail.name: there}
    if all(link.name != spine.name for link, _ in over):
        over = [*over, (shared(spine, lambda _: num(1)), replace(away, how="Messages to another rail go here."))]
    else:
        mine[spine.name] = next(cost for link, cost in over if link.name == spine.name).beside(away)
    return [(link, mine.get(link.name, cost)) for link, cost in over]


def _above(made: Machine, rail: MachineLink) -> MachineLink:
    """The level over one with rails; raises ``AccountingError`` where there is none."""
    above = [link for link in made.levels if rail in [*link.down][1:]]
    if not above:
        raise AccountingError(f"no level is above '{rail.name}', over which its rails are joined",
                              hint="rails: changed_inside")  # fmt: skip
    return above[0]


def _ways(
    made: Machine, strategy: Strategy, how: Accounting, call: Call, k: Form, straight: bool = False
) -> list[tuple[MachineLink, Wire]]:  # fmt: skip
    """The same where a token may go to any node; with ``straight`` each message goes to an equal place."""
    found, kind, meshes = levels(made, strategy, call.meshes), call.kind, call.meshes
    if meshes in COPIES:  # it goes one way, once
        return [(found[0][0], replace(wire("send", "ring", k), moved=num(1), how=COPIED))]
    name = runs_by(how.algorithm, kind)
    every = [shared(link, lambda _: num(1)) for link, _ in found]
    if name == "hierarchical" and kind != "send" and {*meshes} & {*made.routes}:
        if len(found) > 1:
            inner = tuple(ranks for _, ranks in found[:-1])
            return [*zip(every, by_level(kind, k, inner, how.rings, tuple(link.line for link in every)), strict=True)]
        name = usual(kind)  # one level of the hierarchy
    rail = None if straight else crossed(made, strategy, how, call)
    if name == "pairwise" and nested(found):
        over = [*zip(every, direct(kind, k, tuple(ranks for _, ranks in found[:-1])), strict=True)]
        return over if rail is None else _on_rails(made, how, rail, over, found[0][1])
    if rail is not None and how.rails == "over_spine" and _above(made, rail) not in [link for link, _ in found]:
        found.append((_above(made, rail), num(1)))

    def inside(step: MachineLink) -> Form:
        return product(*(ranks for link, ranks in found if link.unit < step.unit))

    flat = slowest(shared(link, inside) for link, _ in found)
    rings = "one_way" if flat.line else how.rings
    return [(flat, wire(kind, name, k, rings, how.torus))]


def level_share(made: Machine, strategy: Strategy, how: Accounting, level: str, call: Call) -> Form:
    """The bytes that the busiest rank sends over a level in a call, or also receives, as a share of the payload.

    Raises ``AccountingError`` for a flat algorithm whose messages are not known to go round the levels in order.
    """
    found = [] if call.meshes in COPIES else [link.name for link, _ in levels(made, strategy, call.meshes)]
    rail = crossed(made, strategy, how, call) if found else None
    if rail is not None and how.rails == "over_spine":
        found = [*dict.fromkeys([*found, _above(made, rail).name])]
    if level not in found:
        return num(0)
    over = ways(made, strategy, how, call, call.ranks(strategy))
    cost = next((cost for link, cost in over if link.name == level), over[0][1])
    if len(over) < len(found) and cost.by not in ("ring", "send"):
        raise AccountingError(f"which messages of the algorithm '{cost.by}' go over '{level}' is not known",
                              hint="algorithm: ring, or hierarchical")  # fmt: skip
    return cost.moved if how.communication != "sent_per_rank" else times(Ratio(num(1), num(2)), cost.moved)
