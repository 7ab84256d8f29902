"""Devices: their peak rates, memory and links, each number with its source and its convention.

The numbers stand in ``devices.yaml``; ``device("A100-80GB-SXM")`` finds one, ``devices(path)`` reads a user's own file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Literal

from symcomm.core.accounting import Accounting
from symcomm.core.errors import AccountingError, ValuesError, nearest
from symcomm.core.files import read_text
from symcomm.core.hardware.reader import SIZE_LIMIT, Entry, read
from symcomm.core.records import dataclass
from symcomm.core.units import Quantity, Unit, exact_text

Direction = Literal["one", "both"]
DEVICE_LIMIT = 1_000
CAPACITIES = ("nominal_GB", "nominal_GiB", "usable")
_UNITS = ("SM", "CU", "MXU", "core")  # what a processor is made of


@dataclass(frozen=True)
class PublishedNumber:
    """A published number as its source prints it, and what it is worth exactly."""

    text: str
    quantity: Quantity
    source: str


@dataclass(frozen=True)
class Memory:
    """The memory of a device: what it is sold as, what the driver reports, and its bandwidth.

    ``sold_as`` is what the seller prints; only its bare number (80 of "80 GB") is certain.
    """

    kind: str
    sold_as: str
    bandwidth: PublishedNumber
    source: str
    usable: PublishedNumber | None = None

    @property
    def nominal(self) -> Fraction:
        """The bare number of ``sold_as``."""
        return Fraction(self.sold_as.split()[0])

    def capacity(self, convention: str = "", owner: str = "this device") -> Quantity:
        """The bytes it holds under a named convention: ``nominal_GB``, ``nominal_GiB`` or ``usable``.

        Raises ``AccountingError`` where no convention is named: what "80 GB" means is asked for, never guessed.
        """
        byte = Unit.parse("byte")
        if convention not in CAPACITIES:
            said = f"'{convention}' is no convention for capacity" if convention else "the capacity is ambiguous"
            decimal, binary = (exact_text(self.nominal * scale) for scale in (10**9, 2**30))
            raise AccountingError(
                f"{said}: {owner} is sold with {self.sold_as}, which may be {decimal} or {binary} bytes, "
                "or what the driver reports",
                hint=f"name one: {', '.join(CAPACITIES)}",
            )
        if convention == "usable":
            if self.usable is None:
                raise AccountingError(
                    f"the usable memory of {owner} is not known",
                    hint="name nominal_GB or nominal_GiB, or give a number",
                )
            return self.usable.quantity
        return Quantity(self.nominal * (10**9 if convention == "nominal_GB" else 2**30), byte)


@dataclass(frozen=True)
class Link:
    """What joins a device to others: how many links, and what one of them carries in one direction.

    ``joins`` is how many devices these links join, which make up a node; 0 where it is not known.
    """

    name: str
    count: int
    rate: PublishedNumber
    published: PublishedNumber | None = None
    published_direction: Direction = "both"
    joins: int = 0

    def bandwidth(self, direction: Direction) -> Quantity:
        """The bandwidth of all its links together, in ``one`` direction or in ``both`` added up.

        >>> str(device("H100-SXM").link("NVLink").bandwidth("one"))
        '450 000 000 000 B/s = 450 GB/s'
        """
        if direction not in ("one", "both"):
            raise ValuesError(f"'{direction}' is no direction of a link", hint="one, or both")
        one = self.rate.quantity
        return Quantity(one.value * self.count * (2 if direction == "both" else 1), one.unit)


@dataclass(frozen=True)
class RateParts:
    """What a peak rate is made of: a clock, units, and the multiply-adds each unit does in a cycle."""

    clock: Quantity
    units: int
    unit: str
    fma: int
    source: str


@dataclass(frozen=True)
class PeakRate:
    """The peak rate in one number format, as derived from its parts and as published; at least one of them is known.

    ``published`` is what the source prints; ``sparse`` says that it counts 2:4 sparsity, which doubles it.
    ``rounded_to`` is its last place.
    """

    dtype: str
    unit: Unit
    parts: RateParts | None = None
    published: PublishedNumber | None = None
    rounded_to: Fraction = Fraction(0)
    sparse: bool = False

    @property
    def derived(self) -> Quantity | None:
        """Clock x units x multiply-adds x 2, where the parts are known."""
        if self.parts is None:
            return None
        return Quantity(2 * self.parts.clock.value * self.parts.units * self.parts.fma, self.unit)

    @property
    def dense(self) -> Quantity | None:
        """The published rate without sparsity."""
        if self.published is None:
            return None
        return Quantity(self.published.quantity.value / (2 if self.sparse else 1), self.unit)

    @property
    def peak(self) -> Quantity:
        """The dense peak: derived where the parts are known, else published."""
        found = self.derived or self.dense
        assert found is not None
        return found

    @property
    def agrees(self) -> bool | None:
        """Whether the derived rate is the published one within its rounding; None where only one is known."""
        derived, dense = self.derived, self.dense
        if derived is None or dense is None:
            return None
        return abs(derived.value - dense.value) <= self.rounded_to / (4 if self.sparse else 2)


@dataclass(frozen=True)
class Device:
    """A processor with its memory and links; every number knows its source.

    >>> str(device("A100-80GB-SXM").peak("fp16"))
    '311 869 440 000 000 FLOP/s ≈ 311.9 TFLOP/s'
    """

    name: str
    maker: str
    source: str
    rates: Mapping[str, PeakRate]
    memory: Memory
    links: Mapping[str, Link]
    aliases: tuple[str, ...] = ()
    notes: str = ""

    def rate(self, dtype: str) -> PeakRate:
        """The peak rate in a number format. Raises ``ValuesError`` for one that the device is not known to compute."""
        key = dtype.strip().lower().replace("float", "fp")
        if key not in self.rates:
            raise ValuesError(f"{self.name} has no peak rate for '{dtype[:40]}'", hint=nearest(key, [*self.rates]))
        return self.rates[key]

    def peak(self, dtype: str) -> Quantity:
        """The dense peak rate in a number format."""
        return self.rate(dtype).peak

    def capacity(self, convention: str | Accounting = "") -> Quantity:
        """The bytes of its memory under ``nominal_GB``, ``nominal_GiB`` or ``usable``; refuses to guess.

        >>> device("A100-80GB-SXM").capacity("nominal_GB").value
        Fraction(80000000000, 1)
        """
        named = convention.capacity if isinstance(convention, Accounting) else convention
        return self.memory.capacity("" if named == "unnamed" else named, self.name)

    def link(self, name: str = "") -> Link:
        """A link by its name; without one, the link to its peers, which stands first."""
        if not name:
            return next(iter(self.links.values()))
        for key, link in self.links.items():
            if _folded(name) in (_folded(key), _folded(link.name)):
                return link
        raise ValuesError(f"{self.name} has no link '{name[:40]}'", hint=nearest(name, [*self.links]))


@dataclass(frozen=True)
class Cluster:
    """A machine of several nodes: so many devices each, joined by their own links, and by the network cards of a node.

    >>> cluster("DGX-H100").told
    'DGX-H100: nodes of 8 H100-SXM, joined by NVLink 4; 8 nodes, joined by ConnectX-7 with 50 GB/s a device.'
    """

    name: str
    device: Device
    node: int
    nodes: int
    cards: Link
    source: str

    def bandwidth(self, direction: Direction) -> Quantity:
        """What the network cards carry for one device."""
        found = self.cards.bandwidth(direction)
        return Quantity(found.value / self.node, found.unit)

    @property
    def told(self) -> str:
        """How it is joined, for a reader."""
        inside, between = self.device.link().name, self.bandwidth("one").reading
        return (f"{self.name}: nodes of {self.node} {self.device.name}, joined by {inside}; "
                f"{self.nodes} nodes, joined by {self.cards.name} with {between} a device.")  # fmt: skip

    def links(self, direction: Direction, ranks: int | None) -> dict[str, object]:
        """Its links as a question takes them. Raises ``ValuesError`` for more ranks than it has devices."""
        if ranks is not None and ranks > self.node * self.nodes:
            between = self.bandwidth("one").reading
            inside = self.device.link().bandwidth("one").reading
            raise ValuesError(f"{self.name} has {self.nodes} x {self.node} devices, but there are {ranks} ranks",
                              hint=f"links: node={self.node}, inside={inside}, between={between}")  # fmt: skip
        return {"node": self.node, "between": self.bandwidth(direction)}


# -- finding ----------------------------------------------------------------------------------------


def _folded(name: str) -> str:
    return re.sub(r"[\s_\-]+", "", name).lower()


@cache
def known_devices() -> Mapping[str, Device]:
    """The devices that symcomm knows, by name."""
    path = Path(__file__).with_name("devices.yaml")
    return _read(path.read_text(encoding="utf-8"), path.name, {})


@cache
def known_clusters() -> Mapping[str, Cluster]:
    """The machines of several nodes that symcomm knows, by name."""
    path = Path(__file__).with_name("devices.yaml")
    root = read(path.read_text(encoding="utf-8"), path.name, ours=True)
    return {name: _cluster(name, entry) for name, entry in root["machines"].items}


def cluster(name: object) -> Cluster | None:
    """The machine of a name, if it is one of several nodes; case, spaces and hyphens do not matter."""
    return next((c for c in known_clusters().values() if isinstance(name, str) and _folded(c.name) == _folded(name)),
                None)  # fmt: skip


def device(name: str | Device, among: Mapping[str, Device] | None = None) -> Device:
    """The device of a name or an alias, or of a machine; case, spaces and hyphens do not matter.

    ``among`` come before the known ones.

    Raises ``ValuesError`` for an unknown name, with near ones, and for one that several devices share.

    >>> device("a100 80gb sxm").name
    'A100-80GB-SXM'
    """
    if isinstance(name, Device):
        return name
    every = {**known_devices(), **(among or {})}
    wanted = _folded(name)
    for found in every.values():
        if wanted in map(_folded, (found.name, *found.aliases)):
            return found
    if (whole := cluster(name)) is not None:
        return whole.device
    several = [d.name for d in every.values() if wanted and _folded(d.name).startswith(wanted)]
    if len(several) > 1:
        raise ValuesError(f"'{name[:60]}' may be one of several devices", hint=f"say which: {', '.join(several)}")
    spelled = {_folded(n): n for d in every.values() for n in (*d.aliases, d.name)}
    near = f"did you mean '{_folded(several[0])}'?" if several else nearest(wanted, [*spelled])
    hint = re.sub(r"'([^']+)'", lambda m: f"'{spelled[m[1]]}'", near)
    raise ValuesError(
        f"unknown device '{name[:60]}'",
        hint=hint if near.startswith("did you mean") else "known: " + ", ".join(sorted(every)),
    )


def devices(path: str | Path) -> Mapping[str, Device]:
    """The devices of a user's own YAML file, by name; they may refer to the known ones with ``like:``.

    Raises ``DocumentError`` naming file, line and key for a file that is not as ``devices.yaml`` is.
    """
    text = read_text(path, "the path of a YAML file of devices", 4 * SIZE_LIMIT)
    return _read(text, str(path), known_devices())


# -- reading ----------------------------------------------------------------------------------------

_KEYS = ("like", "aliases", "maker", "source", "parts", "rates", "memory", "links", "notes")
_RATES = ("FLOP/second", "operation/second")


def _read(text: str, file: str, known: Mapping[str, Device]) -> Mapping[str, Device]:
    root = read(text, file, ours=not known)
    root.only(["devices"] if known else ["devices", "machines"], ["devices"])
    made: dict[str, Device] = {}
    taken = {_folded(n): d.name for d in known.values() for n in (d.name, *d.aliases)}
    items = root["devices"].items
    if len(items) > DEVICE_LIMIT:
        raise root["devices"].error(f"{len(items):,} devices; at most {DEVICE_LIMIT:,} are read")
    for name, entry in items:
        if len(name) > 60 or not re.fullmatch(r"[A-Za-z][\w.\-]*", name):
            raise entry.error(f"'{name[:60]}' is no name of a device", "a letter, then letters, digits, - or _")
        made[name] = _device(name, entry, {**known, **made})
        for alias in (name, *made[name].aliases):
            if _folded(alias) in taken and taken[_folded(alias)] != name:
                raise entry.error(f"'{alias}' is already a name of {taken[_folded(alias)]}")
            taken[_folded(alias)] = name
    return made


def _device(name: str, entry: Entry, known: Mapping[str, Device]) -> Device:
    entry = replace(entry, key=name)
    entry.only(_KEYS)
    base: Device | None = None
    like = entry.get("like")
    if like is not None:
        if like.text not in known:
            raise like.error(f"'{like.text[:60]}' is no device before this one", nearest(like.text, [*known]))
        base = known[like.text]
    else:
        entry.only(_KEYS, ["source", "rates", "memory"])

    def text(key: str, default: str) -> str:
        found = entry.get(key)
        return found.text if found else default

    source = text("source", base.source if base else "")
    rates, memory, links = entry.get("rates"), entry.get("memory"), entry.get("links")
    if rates is None and "parts" in dict(entry.items):
        raise entry["parts"].error("'parts' stands without 'rates'", "write both, or neither")
    aliases = entry.get("aliases")
    assert base is not None or (rates is not None and memory is not None)
    return Device(
        name,
        text("maker", base.maker if base else ""),
        source,
        _rates(rates, entry.get("parts"), source) if rates else base.rates if base else {},
        _memory(memory, source) if memory else base.memory,  # type: ignore[union-attr]  # asserted above
        {key: _link(item, source) for key, item in links.items} if links else base.links if base else {},
        aliases.texts if aliases else (),
        text("notes", ""),
    )


def _cluster(name: str, entry: Entry) -> Cluster:
    entry = replace(entry, key=name)
    entry.only(keys := ["device", "node", "nodes", "cards", "source"], keys)
    source = entry["source"].text
    found = known_devices().get(entry["device"].text)
    if found is None:
        near = nearest(entry["device"].text, [*known_devices()])
        raise entry["device"].error(f"'{entry['device'].text}' is no device above this machine", near)
    return Cluster(name, found, entry["node"].count, entry["nodes"].count, _link(entry["cards"], source), source)


def _figure(entry: Entry, source: str, *units: str) -> PublishedNumber:
    return PublishedNumber(entry.text, entry.quantity(*units), source)


def _source(entry: Entry, default: str, key: str = "source") -> str:
    found = entry.get(key)
    return found.text if found else default


def _rates(entry: Entry, parts: Entry | None, source: str) -> Mapping[str, PeakRate]:
    if parts is not None:
        parts.only(["clock", "units", "unit", "source"], ["clock", "units", "unit"])
    made: dict[str, PeakRate] = {}
    for dtype, item in entry.items:
        if not re.fullmatch(r"[a-z]+[0-9]+(_[a-z]+)?", dtype):
            raise item.error(f"'{dtype[:40]}' is no number format", "such as fp16, int8 or fp64_vector")
        item.only(["fma", "clock", "published", "rounded_to", "published_for", "source"])
        here = _source(item, source)
        made_of = None
        fma = item.get("fma")
        if fma is not None:
            if parts is None:
                raise fma.error(
                    "'fma' needs the clock and the units of the device", "write parts: {clock, units, unit}"
                )
            clock = (item.get("clock") or parts["clock"]).quantity("Hz")
            unit = parts["unit"].choice(_UNITS)
            made_of = RateParts(clock, parts["units"].count, unit, fma.count, _source(parts, here))
        published = item.get("published")
        if published is None and made_of is None:
            raise item.error(f"'{dtype}' needs fma, or a published rate")
        counted = Unit.parse(_RATES[dtype.startswith("int")])
        figure = _figure(published, here, str(counted)) if published else None
        rounded, kind = item.get("rounded_to"), item.get("published_for")
        made[dtype] = PeakRate(
            dtype,
            counted,
            made_of,
            figure,
            rounded.quantity(str(counted)).value if rounded else Fraction(0),
            kind is not None and kind.choice(["dense", "sparse"]) == "sparse",
        )
    if not made:
        raise entry.error("'rates' names no number format")
    return made


def _memory(entry: Entry, source: str) -> Memory:
    entry.only(["kind", "nominal", "bandwidth", "usable", "usable_source", "source"], ["kind", "nominal", "bandwidth"])
    nominal = entry["nominal"]
    nominal.quantity("byte")
    match = re.fullmatch(r"\d+(?:\.\d+)? (?:GB|GiB)", nominal.text)
    if match is None:
        raise nominal.error(f"'nominal' is what the seller prints, in GB or GiB, but is '{nominal.text[:40]}'")
    usable = entry.get("usable")
    here = _source(entry, source)
    return Memory(
        entry["kind"].text,
        nominal.text,
        _figure(entry["bandwidth"], here, "byte/second"),
        here,
        _figure(usable, _source(entry, here, "usable_source"), "byte") if usable else None,
    )


def _link(entry: Entry, source: str) -> Link:
    entry.only(["name", "count", "rate", "published", "direction", "joins", "source"], ["name", "count", "rate"])
    here = _source(entry, source)
    published, direction = entry.get("published"), entry.get("direction")
    if (published is None) != (direction is None):
        raise entry.error("'published' and 'direction' belong together", "say whether it counts one direction or both")
    counts: Direction = "one" if direction is not None and direction.choice(["one", "both"]) == "one" else "both"
    figure = _figure(published, here, "byte/second") if published else None
    joins = entry.get("joins")
    made = Link(entry["name"].text, entry["count"].count, _figure(entry["rate"], here, "byte/second"), figure, counts,
                joins.count if joins else 0)  # fmt: skip
    if published is not None and figure is not None and made.bandwidth(counts) != figure.quantity:
        raise published.error(
            f"{made.count} x {made.rate.text} are {made.bandwidth(counts)} in {counts} direction"
            f"{'s' if counts == 'both' else ''}, not {figure.text}"
        )
    return made
