"""Devices: their peak rates, memory and links, each number with its source and its convention.

The numbers stand in ``devices.yaml``; ``device("A100-80GB-SXM")`` finds one, ``devices(path)`` reads a user's own file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from symcomm.core.accounting import Accounting
from symcomm.core.blocks import Scalar, Section, Source, read
from symcomm.core.errors import AccountingError, DocumentError, ValuesError, nearest
from symcomm.core.files import read_text
from symcomm.core.keys import (
    POSITIVE,
    RAW,
    TEXT_SCHEMA,
    TEXTS,
    Sort,
    keyed,
    keys_of,
    mapping_of,
    one_of,
    read_keys,
    schema_of,
)
from symcomm.core.records import dataclass, replace
from symcomm.core.units import Quantity, Unit, exact_text

Direction = Literal["one", "both"]
Made = TypeVar("Made")
SIZE_LIMIT = 1_000_000  # characters of one file
DEVICE_LIMIT = 1_000
_TEXT_LIMIT = 2_000
CAPACITIES = ("nominal_GB", "nominal_GiB", "usable")


@dataclass(frozen=True)
class PublishedNumber:
    """A published number as its source prints it, and what it is worth exactly."""

    text: str
    quantity: Quantity
    source: str


# -- how values are read ------------------------------------------------------------------------------------


def _line(section: Section, name: str) -> str:
    said = " ".join(section.text(name).split())
    if not said:
        raise section.error(name, f"'{name}' has no value")
    if len(said) > _TEXT_LIMIT:
        raise section.error(name, f"'{name}' has {len(said):,} characters; at most {_TEXT_LIMIT:,} are read")
    return said


def _names(section: Section, name: str) -> tuple[str, ...]:
    found = section.texts(name)
    if not all(found):
        raise section.error(name, f"'{name}' has no value")
    return found


def _measured(section: Section, name: str, unit: str) -> Quantity:
    found = section.quantity(name)
    assert found is not None
    if found.unit != Unit.parse(unit):
        given = f"in {found.unit}" if found.unit.powers else "without a unit"
        raise section.error(name, f"'{name}' is given {given}, but must be in {Unit.parse(unit)}")
    return found


def _figure(unit: str, source: str = "source") -> Sort[Any]:
    """A published number in a unit; ``source`` is the key that says where it is from."""

    def made(section: Section, name: str) -> PublishedNumber | None:
        if name not in section:
            return None
        said = section.text(source) or section.text("source")
        return PublishedNumber(_line(section, name), _measured(section, name, unit), said)

    return Sort(made, TEXT_SCHEMA)


def _nominal(section: Section, name: str) -> str:
    _measured(section, name, "byte")
    said = _line(section, name)
    if not re.fullmatch(r"\d+(?:\.\d+)? (?:GB|GiB)", said):
        raise section.error(name, f"'{name}' is what the seller prints, in GB or GiB, but is '{said[:40]}'")
    return said


def _sourced(section: Section, source: str) -> Section:
    """A section that has the source of what it is a part of, unless it says its own."""
    if "source" in section:
        return section
    said = Scalar("source", section.span), Scalar(source, section.span, '"')
    return replace(section, entries=(*section.entries, said))


_LINE = Sort(_line, TEXT_SCHEMA, "")
_CLOCK = Sort(lambda section, name: _measured(section, name, "Hz"), TEXT_SCHEMA)
_SOLD = Sort(_nominal, TEXT_SCHEMA)
_SPEED = _figure("byte/second")
_COUNTED: Sort[Direction] = one_of(("one", "both"))
_NAMES = Sort(_names, TEXTS.schema, ())


# -- what is known of a device ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """The memory of a device: what it is sold as, what the driver reports, and its bandwidth.

    ``sold_as`` is what the seller prints; only its bare number (80 of "80 GB") is certain.
    """

    kind: str = keyed("what it is made of, such as HBM3", _LINE, needed=True)
    sold_as: str = keyed("what the seller prints, in GB or GiB", _SOLD, name="nominal", needed=True)
    bandwidth: PublishedNumber = keyed("its bandwidth", _SPEED, needed=True)
    source: str = keyed("where the numbers are from", _LINE)
    usable: PublishedNumber | None = keyed("the bytes that the driver reports", _figure("byte", "usable_source"))
    usable_source: str = keyed("where that is from", _LINE)

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

    name: str = keyed("what it is called", _LINE, needed=True)
    count: int = keyed("how many links there are", POSITIVE, needed=True)
    rate: PublishedNumber = keyed("that of one link in one direction", _SPEED, needed=True)
    published: PublishedNumber | None = keyed("what the seller prints for all of them", _SPEED)
    published_direction: Direction = keyed("what that counts", _COUNTED, name="direction", default="both")
    joins: int = keyed("the devices that they join, which make up a node", POSITIVE)
    source: str = keyed("where the numbers are from", _LINE)

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

    clock: Quantity = keyed("the clock", _CLOCK, needed=True)
    units: int = keyed("how many units there are", POSITIVE, needed=True)
    unit: str = keyed("what a unit is", one_of(("SM", "CU", "MXU", "core")), needed=True)
    source: str = keyed("where the numbers are from", _LINE)
    fma: int = 0


@dataclass(frozen=True)
class PeakRate:
    """The peak rate in one number format, as derived from its parts and as published; at least one of them is known.

    ``published`` is what the source prints, and ``rounded_to`` its last place.
    """

    dtype: str
    unit: Unit
    parts: RateParts | None = None
    fma: int = keyed("the multiply-adds of a unit in a cycle", POSITIVE)
    clock: Quantity | None = keyed("the clock, where this format has another one", _CLOCK)
    published: PublishedNumber | None = keyed("what the source prints", RAW.like(**TEXT_SCHEMA))
    rounded_to: Fraction = keyed("its last place", RAW.like(**TEXT_SCHEMA), default=Fraction(0))
    published_for: str = keyed("whether 2:4 sparsity counts, which doubles it", one_of(("dense", "sparse")))
    source: str = keyed("where the numbers are from", _LINE)

    @property
    def sparse(self) -> bool:
        """Whether the published rate counts sparsity."""
        return self.published_for == "sparse"

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


def _part(record: type[Made], check: Callable[[Section], Made] | None = None) -> Sort[Made]:
    """A mapping below a device that is a record of its own."""

    def made(section: Section, name: str) -> Made:
        found = section.section(name, f"'{name}'")
        assert found is not None
        said = _sourced(found, section.text("source"))
        return check(said) if check else read_keys(record, said)

    return Sort(made, schema_of(record))


def _link(section: Section) -> Link:
    made = read_keys(Link, section)
    if ("published" in section) != ("direction" in section):
        hint = "say whether it counts one direction or both"
        raise section.error("", "'published' and 'direction' belong together", hint)
    counts, said = made.published_direction, made.published
    if said is not None and made.bandwidth(counts) != said.quantity:
        where = "both directions" if counts == "both" else "one direction"
        told = f"{made.count} x {made.rate.text} are {made.bandwidth(counts)} in {where}, not {said.text}"
        raise section.error("published", told)
    return made


def _links(section: Section, name: str) -> Mapping[str, Link]:
    found = section.section(name, f"'{name}'")
    source = section.text("source")
    return {key.text: _link(_sourced(one, source)) for key, one in found.sections()} if found else {}


def _rates(section: Section, name: str) -> Mapping[str, PeakRate]:
    found = section.section(name, f"'{name}'")
    assert found is not None
    parts = _part(RateParts).read(section, "parts") if "parts" in section else None
    made: dict[str, PeakRate] = {}
    for key, item in found.sections():
        if not re.fullmatch(r"[a-z]+[0-9]+(_[a-z]+)?", key.text):
            raise item.error("", f"'{key.text[:40]}' is no number format", "such as fp16, int8 or fp64_vector")
        of = "operation/second" if key.text.startswith("int") else "FLOP/second"
        said = _sourced(item, section.text("source"))
        said.only([*keys_of(PeakRate)])
        rate = read_keys(
            PeakRate, said, dtype=key.text, unit=Unit.parse(of),
            published=_figure(of).read(said, "published"),
            rounded_to=_measured(said, "rounded_to", of).value if "rounded_to" in said else Fraction(0),
        )  # fmt: skip
        if rate.fma and parts is None:
            hint = "write parts: {clock, units, unit}"
            raise item.error("fma", "'fma' needs the clock and the units of the device", hint)
        if not rate.fma and rate.published is None:
            raise item.error("", f"'{key.text}' needs fma, or a published rate")
        own = replace(parts, fma=rate.fma, clock=rate.clock or parts.clock) if rate.fma and parts else None
        made[key.text] = replace(rate, parts=own)
    if not made:
        raise found.error("", f"'{name}' names no number format")
    return made


_LINKS = Sort(_links, mapping_of(schema_of(Link)), MappingProxyType({}))


@dataclass(frozen=True)
class Device:
    """A processor with its memory and links; every number knows its source.

    >>> str(device("A100-80GB-SXM").peak("fp16"))
    '311 869 440 000 000 FLOP/s ≈ 311.9 TFLOP/s'
    """

    name: str
    maker: str = keyed("who makes it", _LINE)
    source: str = keyed("where the numbers are from", _LINE, needed=True)
    rates: Mapping[str, PeakRate] = keyed("peak rates by number format", Sort(_rates, {"type": "object"}), needed=True)
    memory: Memory = keyed("its memory", _part(Memory), needed=True)
    links: Mapping[str, Link] = keyed("what joins it to others, by name; first to its peers", _LINKS)
    aliases: tuple[str, ...] = keyed("other names", _NAMES)
    notes: str = keyed("what else is known", _LINE)

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


def _known(section: Section, name: str) -> Device:
    said = section.text(name)
    if said not in known_devices():
        raise section.error(name, f"'{said}' is no device above this machine", nearest(said, [*known_devices()]))
    return known_devices()[said]


@dataclass(frozen=True)
class Cluster:
    """A machine of several nodes: so many devices each, joined by their own links, and by the network cards of a node.

    >>> cluster("DGX-H100").told
    'DGX-H100: nodes of 8 H100-SXM, joined by NVLink 4; 8 nodes, joined by ConnectX-7 with 50 GB/s a device.'
    """

    name: str
    device: Device = keyed("a device above this machine", Sort(_known, TEXT_SCHEMA), needed=True)
    node: int = keyed("the devices of a node", POSITIVE, needed=True)
    nodes: int = keyed("how many nodes there are", POSITIVE, needed=True)
    cards: Link = keyed("the network cards of a node", _part(Link, _link), needed=True)
    source: str = keyed("where the numbers are from", _LINE, needed=True)

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
    return _devices(_ours(), {})


@cache
def _ours() -> Section:
    path = Path(__file__).with_name("devices.yaml")
    return _root(path.read_text(encoding="utf-8"), path.name, ours=True)


@cache
def known_clusters() -> Mapping[str, Cluster]:
    """The machines of several nodes that symcomm knows, by name."""
    machines = _ours().section("machines", "'machines'")
    return {n.text: read_keys(Cluster, one, name=n.text) for n, one in machines.sections()} if machines else {}


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
    return _devices(_root(text, str(path)), known_devices())


# -- reading ----------------------------------------------------------------------------------------


def _root(text: str, file: str, ours: bool = False) -> Section:
    root = read(text, Source(file, 1, tuple(text.split("\n"))), "this file", SIZE_LIMIT, ours)
    if not isinstance(root, Section):
        raise DocumentError("a file of devices is a mapping that starts with devices:", root.span)
    root.only(["devices", "machines"] if ours else ["devices"])
    root.need("devices")
    return root


def _devices(root: Section, known: Mapping[str, Device]) -> Mapping[str, Device]:
    made: dict[str, Device] = {}
    taken = {_folded(n): d.name for d in known.values() for n in (d.name, *d.aliases)}
    found = root.section("devices", "'devices'")
    assert found is not None
    if len(found.entries) > DEVICE_LIMIT:
        raise found.error("", f"{len(found.entries):,} devices; at most {DEVICE_LIMIT:,} are read")
    for key, entry in found.sections():
        name = key.text
        if len(name) > 60 or not re.fullmatch(r"[A-Za-z][\w.\-]*", name):
            raise entry.error("", f"'{name[:60]}' is no name of a device", "a letter, then letters, digits, - or _")
        made[name] = _device(name, entry, {**known, **made})
        for alias in (name, *made[name].aliases):
            if _folded(alias) in taken and taken[_folded(alias)] != name:
                raise entry.error("", f"'{alias}' is already a name of {taken[_folded(alias)]}")
            taken[_folded(alias)] = name
    return made


def _device(name: str, entry: Section, known: Mapping[str, Device]) -> Device:
    base: Device | None = None
    if "like" in entry:
        said = entry.text("like")
        if said not in known:
            raise entry.error("like", f"'{said[:60]}' is no device before this one", nearest(said, [*known]))
        base = replace(known[said], aliases=(), notes="")
        entry = _sourced(entry, base.source)
    made = read_keys(Device, entry, ("like", "parts"), base, name=name)
    if "parts" in entry and "rates" not in entry:
        raise entry.error("parts", "'parts' stands without 'rates'", "write both, or neither")
    return made
