"""The links that calls go over: those of an axis of the mesh, those inside and between nodes, or one network for all.

This is the one place that reads ``links``. Text and mappings say the same: ``tensor=600 GB/s @ 2 us, data=2`` or
``{"tensor": "600 GB/s @ 2 us", "data": 2}``; a hierarchy is ``node=8, inside=900 GB/s, between=50 GB/s``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction

from symcomm.core.derivation import Condition
from symcomm.core.errors import AccountingError, StrategyError, ValuesError, nearest
from symcomm.core.form import Form, Largest, Ratio, Smallest, Sym, evaluate, names, num, product
from symcomm.core.hardware.devices import Device, cluster, device, known_clusters
from symcomm.core.parallel.strategy import Strategy, degree
from symcomm.core.program import pipeline
from symcomm.core.program.instructions import BETWEEN_STAGES, HOST
from symcomm.core.program.rewrites.offloading import on_host
from symcomm.core.quantities.time.machine import (
    ONE_LINK,
    RATES,
    Machine,
    MachineLink,
    Rate,
    checked,
    host_bandwidth,
    machine,
)
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting
from symcomm.core.units import Quantity

PIPE, TO_HOST = BETWEEN_STAGES[0], HOST[0]
NODE, LEVELS = "node", ("inside", "between")
HIERARCHY = (NODE, *LEVELS, *(f"latency_{level}" for level in LEVELS))
_SYMBOL = r"[^\W\d]\w{0,39}"


def by_axis(said: object, strategy: Strategy) -> dict[str, object]:
    """What is said of each axis of the mesh, which goes by its name or the symbol of its size, of a hierarchy, a host.

    Raises ``ValuesError`` for an unknown axis, with near names, and for one that is named twice.

    >>> from symcomm.core.parallel.strategy import parse_strategy
    >>> by_axis("X=2, tensor=600 GB/s", parse_strategy("fsdp(X) + tensor(Y)"))
    {'data': '2', 'tensor': '600 GB/s'}
    """
    axes = [*strategy.sizes, *([PIPE] if strategy.pipeline is not None else []), TO_HOST]
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


def links_of(said: object, strategy: Strategy) -> dict[str, object]:
    """What is said of the axes that a strategy has, where it is one of several.

    >>> from symcomm.core.parallel.strategy import parse_strategy
    >>> links_of("tensor=600 GB/s, pipe=50 GB/s", parse_strategy("data(k) + tensor(t)"))
    {'tensor': '600 GB/s'}
    """
    axes = {*strategy.sizes, *(s.name for s in strategy.sizes.values() if isinstance(s, Sym))}
    axes |= {TO_HOST} | ({PIPE} if strategy.pipeline is not None else set())
    return {name: value for name, value in pairs(said) if name in axes}


def pairs(said: object) -> Iterable[tuple[str, object]]:
    """The names that links are given for, each with what is said of it."""
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
class _Said:
    """What is said of one link: how many of those of the network it is, or its bandwidth; and its latency."""

    count: Form = ONE_LINK
    bandwidth: Fraction | None = None
    latency: Fraction | Sym | None = None


def _read(name: str, value: object) -> _Said:
    """Raises ``ValuesError`` for a number of links, a bandwidth or a latency that is none."""
    if isinstance(value, Quantity):
        return _Said(bandwidth=checked(_bandwidth(name), value))
    head, _, tail = (part.strip() for part in str(value).partition("@"))
    latency = _latency(name, tail) if tail else None
    if re.fullmatch(rf"{_SYMBOL}|[-+.\d/]*", head):
        try:
            return _Said(count=degree(head) if head else num(1), latency=latency)
        except StrategyError:
            hint = "a positive whole number, the name of a symbol, or a bandwidth such as 600 GB/s"
            raise ValuesError(f"'{head}' is no number of links of '{name}'", hint=hint) from None
    return _Said(bandwidth=checked(_bandwidth(name), head), latency=latency)


def _bandwidth(name: str) -> Rate:
    return Rate(name, f"W_{name}", RATES["network"].unit, f"the bandwidth {spot(name)}", "600 GB/s")


def spot(name: str) -> str:
    """Where the links of a name are.

    >>> spot("between"), spot("data")
    ('between nodes', 'along `data`')
    """
    where = {"inside": "inside a node", "between": "between nodes", PIPE: "between stages", TO_HOST: "to the host"}
    return where.get(name, f"along `{name}`")


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
    ranks = known_ranks(setting, strategy)
    whole = cluster(rest.get("device")) if NODE not in said and ranks != 1 else None
    if whole is not None:
        said = {**whole.links("both" if setting.accounting.link == "bidirectional" else "one", ranks), **said}
    supposed = bool(on_host(setting.accounting)) and TO_HOST not in said
    if supposed:
        said |= {TO_HOST: host_bandwidth(rest.get("device"), setting.accounting.link)}
    node, late = said.pop(NODE, None), {level: said.pop(f"latency_{level}", None) for level in LEVELS}
    read = {name: _read(name, value) for name, value in said.items()}
    for level, value in late.items():
        if value is not None:
            found = read.get(level, _Said())
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
            rate = symbol(_bandwidth(name), None) if name == TO_HOST else made.network
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
    if node is not None:
        levels = {level: links.pop(level, replace(made.one_network, name=level)) for level in LEVELS if level in read}
        if not levels:
            raise ValuesError("links say how many ranks a node has, but not how fast it is inside and between nodes",
                              hint="for instance node=8, inside=900 GB/s, between=50 GB/s")  # fmt: skip
        inside, between = (levels.get(level, replace(made.one_network, name=level)) for level in LEVELS)
        routes, notes, where = _laid(setting, strategy, node, inside, replace(between, over=inside.name))
    elif {*LEVELS} & {*links}:
        raise ValuesError("links say how fast it is inside or between nodes, but not how many ranks a node has",
                          hint="for instance node=8, inside=900 GB/s, between=50 GB/s")  # fmt: skip
    routes |= {name: ((link, strategy.sizes.get(name, num(2))),) for name, link in links.items()}
    named = tuple(name for name in read if (name != TO_HOST or not supposed) and (whole is None or name not in LEVELS))
    notes = (*([whole.told] if whole is not None else []), *notes)
    checks: tuple[Callable[[Mapping[str, Fraction]], None], ...] = ()
    owner = rest.get("device")
    if rest.get("network") is None and isinstance(owner, (str, Device)):
        checks = _within(setting, strategy, device(owner), made.network, routes)
    return replace(made, given=tuple(given), routes=routes, of_links=tuple(symbols), named=named, notes=notes,
                   where=where, checks=checks)  # fmt: skip


def _sizes(setting: Setting, strategy: Strategy) -> dict[str, Form]:
    """The degree of each axis of the mesh, stages among them."""
    stages = {} if strategy.pipeline is None else {PIPE: pipeline.stage_count(strategy.pipeline, setting.graph)}
    return {**{mesh: strategy.sizes[mesh] for mesh in strategy.mesh_order}, **stages}


def known_ranks(setting: Setting, strategy: Strategy) -> int | None:
    """How many ranks a strategy has, where all its degrees are numbers."""
    form = product(*_sizes(setting, strategy).values())
    return int(evaluate(form, setting.values)) if {*names(form)} <= setting.values.keys() else None


def beyond(found: Device, ranks: object) -> ValuesError:
    """The refusal of more ranks than the links of a device join."""
    link = found.link()
    inside = link.bandwidth("one").reading
    machines = [f"device {c.name}" for c in known_clusters().values() if c.device.name == found.name]
    ways = [*machines, f"links node={link.joins}, inside={inside}, between=50 GB/s",
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


# -- a hierarchy -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Nesting:
    """How the axes of a mesh fill a node, for degrees that are symbols: some lie ``inside``, the next one may go
    ``across`` (it has ranks inside and between nodes), and the others lie between nodes.

    >>> Nesting.of(8, {"tensor": 4, "data": 6, "pipe": 2})
    Nesting(ranks=8, inside=('tensor',), across='data')
    """

    ranks: int
    inside: tuple[str, ...] = ()
    across: str = ""

    @classmethod
    def of(cls, ranks: int, sizes: Mapping[str, int]) -> Nesting:
        """The way of numbers of ranks, in the order of the mesh."""
        inside: list[str] = []
        filled = 1
        for axis, size in sizes.items():
            if filled * size > ranks:
                return cls(ranks, tuple(inside), axis if filled < ranks else "")
            inside, filled = [*inside, axis], filled * size
        return cls(ranks, tuple(inside))

    def filled(self, sizes: Mapping[str, Form]) -> Form:
        """The ranks of a node that the axes inside of it take; an axis of one rank may be left out of the mesh."""
        return product(*(sizes[one] for one in self.inside if one in sizes))

    def shares(self, axis: str, sizes: Mapping[str, Form]) -> tuple[Form, Form]:
        """How many ranks of an axis are together in a node, and how many of these groups it has."""
        if axis != self.across:
            return (sizes[axis], num(1)) if axis in self.inside else (num(1), sizes[axis])
        filled = self.filled(sizes)
        return Ratio(num(self.ranks), filled), Ratio(product(filled, sizes[axis]), num(self.ranks))

    def divisions(self, sizes: Mapping[str, Form]) -> Iterator[tuple[Form, Form]]:
        """What has to be divided, and by what: axes that share out the places of a node evenly."""
        filled = self.filled(sizes)
        if filled != num(1):
            yield num(self.ranks), filled
        if self.across:
            yield product(filled, sizes[self.across]), num(self.ranks)


def _laid(
    setting: Setting, strategy: Strategy, node: object, inside: MachineLink, between: MachineLink
) -> tuple[dict[str, tuple[tuple[MachineLink, Form], ...]], tuple[str, ...], tuple[Condition, ...]]:
    """The links of each axis: axes fill a node in the order of the mesh, and what does not fit lies between nodes.

    Besides, what is told of it, and the numbers of the degrees for which it holds.
    """
    sizes = {mesh: strategy.sizes[mesh] for mesh in strategy.mesh_order}
    if strategy.pipeline is not None:
        stages = pipeline.stage_count(strategy.pipeline, setting.graph)
        sizes[PIPE] = stages
    routes: dict[str, tuple[tuple[MachineLink, Form], ...]] = {}

    def route(axis: str, there: Form, out: Form) -> None:
        if axis == PIPE:
            routes[axis] = ((inside if out == num(1) else between, num(2)),)
        else:
            routes[axis] = tuple((link, n) for link, n in ((inside, there), (between, out)) if n != num(1))

    if isinstance(node, Nesting):
        for axis in sizes:
            route(axis, *node.shares(axis, sizes))
        return routes, (), ()
    whole = left = node_ranks(node)
    told: list[str] = []
    where: list[Condition] = []
    for axis, size in sizes.items():
        there, out, many = 1, size, ""
        if left > 1:
            if not {*names(size)} <= setting.values.keys():
                raise ValuesError(
                    f"whether '{axis}' lies inside a node of {whole} ranks hangs on its size, which is no number",
                    hint="give numbers for all degrees, or the links of each axis: tensor=900 GB/s, data=50 GB/s",
                )
            count = int(evaluate(size, setting.values))
            many = f" ({count} {'stages' if axis == PIPE else 'ranks'})"
            where += [Condition(size, "=", num(count))] if names(size) else []
            if count < 1:
                raise StrategyError(f"the mesh axis '{axis}' has {count} ranks", hint="a degree is at least 1")
            if left % count and count % left:
                raise ValuesError(f"the {left} places that a node of {whole} ranks has for '{axis}' do not share out "
                                  f"its {count} ranks evenly", hint="one has to divide the other")  # fmt: skip
            there = min(count, left)
            left, out = left // there, num(count // there)
        route(axis, num(there), out)
        if size != num(1):
            partly = f"has {there} ranks inside and goes between nodes" if there > 1 else "goes between nodes"
            told.append(f"`{axis}`{many} {'lies inside' if out == num(1) else partly}")
    return routes, (f"A node has {whole} ranks: {', '.join(told)}.",) if told else (), tuple(where)


def node_ranks(said: object) -> int:
    """How many ranks a node has; raises ``ValuesError`` for what is no such number."""
    if not re.fullmatch(r"[1-9]\d{0,11}", str(said).strip()):
        raise ValuesError(f"'{str(said)[:40]}' is no number of ranks of a node", hint="for instance node=8")
    return int(str(said))


# -- the way of a call -----------------------------------------------------------------------------------


def levels(made: Machine, strategy: Strategy, meshes: tuple[str, ...]) -> list[tuple[MachineLink, Form]]:
    """The links that a group over some axes of the mesh spans, each with the ranks that it joins."""
    found: dict[MachineLink, list[Form]] = {}
    for mesh in sorted(meshes, key=(*strategy.mesh_order, PIPE, TO_HOST).index):
        size = strategy.sizes.get(mesh, num(2))
        if size != num(1):
            for link, ranks in made.routes.get(mesh, ((made.one_network, size),)):
                found.setdefault(link, []).append(ranks)
    return [(link, product(*ranks)) for link, ranks in found.items()]


def slowest(links: Iterable[MachineLink]) -> MachineLink:
    """The link that calls over several ones are as slow as: the least bandwidth, and the largest latency."""
    every = list(links)
    every = [link for link in every if link.name not in {other.over for other in every}]
    if len(every) == 1:
        return every[0]
    rates, counts = (list(dict.fromkeys(forms)) for forms in ([x.rate for x in every], [x.count for x in every]))
    late = list(dict.fromkeys(x.latency for x in every if x.latency is not None))
    latency = Largest(tuple(late)) if len(late) > 1 else late[0] if late else None
    name = " × ".join(x.name for x in every)
    if len(rates) == 1:
        return MachineLink(name, rates[0], latency, Smallest(tuple(counts)) if len(counts) > 1 else counts[0])
    return MachineLink(name, Smallest(tuple(dict.fromkeys(x.bandwidth for x in every))), latency)


def two_links(found: list[tuple[MachineLink, Form]]) -> tuple[tuple[MachineLink, Form], tuple[MachineLink, Form]]:
    """The inner and the outer link of a hierarchical call; raises ``AccountingError`` for more than two."""
    if len(found) > 2:
        said = ", ".join(link.name for link, _ in found)
        raise AccountingError(f"the algorithm 'hierarchical' knows two kinds of links, but a call goes over {said}",
                              hint="give some of these axes the same links")  # fmt: skip
    return found[0], found[1]
