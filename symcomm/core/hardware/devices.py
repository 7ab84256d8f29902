"""Devices: their peak rates, memory and links, each number with its source and its convention.

The numbers stand in ``devices.yaml``; ``device("A100-80GB-SXM")`` finds one, ``devices(path)`` reads a user's own file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from symcomm.core.accounting import Accounting
from symcomm.core.blocks import Scalar, Section, Source, read, section_of
from symcomm.core.errors import AccountingError, DocumentError, ValuesError, nearest
from symcomm.core.files import read_text
from symcomm.core.hardware.efficiency import Efficiency, staircase
from symcomm.core.keys import (
    POSITIVE,
    RAW,
    TEXT,
    TEXTS,
    YES,
    Sort,
    keyed,
    keys_of,
    mapping_of,
    one_of,
    read_keys,
    schema_of,
)
from symcomm.core.records import ReadLater, dataclass, replace
from symcomm.core.units import Quantity, Unit, exact_text

Direction = Literal["one", "both"]
Made = TypeVar("Made")
SIZE_LIMIT = 1_000_000  # characters of one file
DEVICE_LIMIT = 1_000
LEVEL_LIMIT = 8
_BYTES = Unit.parse("byte/second")
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

    return Sort(made, TEXT.schema)


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


_LINE = Sort(_line, TEXT.schema, "")
_CLOCK = Sort(lambda section, name: _measured(section, name, "Hz"), TEXT.schema)
_SOLD = Sort(_nominal, TEXT.schema)
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
    """The links of a device to others: how many links, and what one of them carries in one direction.

    ``joins`` is how many devices these links join, which make up a node; 0 where it is not known.
    """

    name: str = keyed("what it is called", _LINE, needed=True)
    count: int = keyed("how many links there are", POSITIVE, needed=True)
    rate: PublishedNumber = keyed("that of one link in one direction", _SPEED, needed=True)
    published: PublishedNumber | None = keyed("what the seller prints for all of them", _SPEED)
    published_direction: Direction = keyed("what that counts", _COUNTED, name="direction", default="both")
    joins: int = keyed("the devices that they join, which make up a node", POSITIVE)
    axes: int = keyed("the axes of a torus", POSITIVE)
    wraps: int = keyed("the length of an axis of a 2D torus that wraps around, or the side of cubes that do", POSITIVE)
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
    """The factors of a peak rate: a clock, units, and the multiply-adds each unit does in a cycle."""

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
    published: PublishedNumber | None = keyed("what the source prints", RAW.like(**TEXT.schema))
    rounded_to: Fraction = keyed("its last place", RAW.like(**TEXT.schema), default=Fraction(0))
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


def _achieved(section: Section, name: str) -> Efficiency | None:
    """Tables by what they are of; those of products by number format."""
    found = section.section(name, f"'{name}'")
    if found is None:
        return None
    found.only(["products", "memory", "messages", "source", "date", "spread"])
    products = dict(found.pairs("products")) if isinstance(found.get("products"), Section) else None
    try:
        of = {dtype: staircase("products", text) for dtype, text in (products or {}).items()}
        if products is None and "products" in found:
            of = {"": staircase("products", found.text("products"))}
        rows = {key: staircase(key, found.text(key)) for key in ("memory", "messages") if key in found}
    except ValuesError as error:
        raise found.error("", error.message, error.hint) from None
    said = {key: _line(found, key) for key in ("source", "date", "spread") if key in found}
    return Efficiency(of, rows.get("memory"), rows.get("messages"), "; ".join(said.values()))


_ACHIEVED = Sort(_achieved, {"type": "object"}, None)
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
    efficiency: Efficiency | None = keyed("what was measured that it achieves", _ACHIEVED)

    def rate(self, dtype: str) -> PeakRate:
        """The peak rate in a number format. Raises ``ValuesError`` for one that the device is not known to compute."""
        key = dtype.strip().lower().replace("float", "fp")
        if key not in self.rates:
            hint = nearest(key, [*self.rates])
            if re.fullmatch("[a-z]+[2-8]", key):  # many store weights in fewer bits than they compute in
                hint = f"for weights alone weights={key}(128 fp16); {hint}"
            raise ValuesError(f"{self.name} has no peak rate for '{dtype[:40]}'", hint=hint)
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
        """A link by its name; without one, the link to its peers, which is first."""
        if not name:
            return next(iter(self.links.values()))
        for key, link in self.links.items():
            if _folded(name) in (_folded(key), _folded(link.name)):
                return link
        raise ValuesError(f"{self.name} has no link '{name[:40]}'", hint=nearest(name, [*self.links]))


def _latency(section: Section, name: str) -> Fraction | None:
    return _measured(section, name, "second").value if name in section else None


def _factor(section: Section, name: str) -> Fraction:
    found = section.quantity(name)
    if found is None or found.unit != Unit() or found.value < 1:
        raise section.error(name, f"'{name}' is how many times too little there is for all: a number from 1 on")
    return found.value


@dataclass(frozen=True)
class Level:
    """A level of a network: links that join so many units of the level below (devices, nodes, racks) into a larger one.

    A unit has ``cards`` of them; unless told, every device has one of its own. Where all devices send at once, an
    ``oversubscription`` of 3 leaves a third. A level without a ``rate`` has all the cards of the one below;
    the first level without one has the links of the device.
    """

    name: str
    size: int = keyed("how many units of the level below it joins", POSITIVE, needed=True)
    link: str = keyed("what joins them", _LINE)
    rate: PublishedNumber | None = keyed("the bandwidth of one card in one direction", _SPEED)
    cards: int = keyed("the cards of a unit that it joins; one for each of its devices unless told", POSITIVE)
    latency: Fraction | None = keyed("the latency of a message", Sort(_latency, TEXT.schema))
    oversubscription: Fraction = keyed("bandwidth below a level over its bandwidth upward", Sort(_factor, TEXT.schema),
                                       default=Fraction(1))  # fmt: skip
    line: bool = keyed("whether the units are a line, whose ends are not joined", YES)
    rails: bool = keyed("whether it joins only equal places of the units: each has a switch of its own", YES)
    source: str = keyed("where the numbers are from", _LINE)


@dataclass(frozen=True)
class Hop:
    """The links of a level, as messages meet them: ``cards`` lead out of a unit of so many devices.

    ``rate`` is the bandwidth of a card in one direction, None where the own links of the devices join them.
    """

    level: Level
    unit: int
    below: str
    cards: Fraction
    rate: Fraction | None

    @property
    def share(self) -> Fraction | None:
        """The bandwidth of a device in one direction where all devices send at once."""
        return None if self.rate is None else self.rate * min(Fraction(1), self.cards / self.unit)


def _levels(section: Section, name: str) -> tuple[Level, ...]:
    found = section.section(name, f"'{name}'")
    assert found is not None
    source = section.text("source")
    made = tuple(read_keys(Level, _sourced(one, source), name=key.text) for key, one in found.sections())
    for level in made:
        if not re.fullmatch(r"[A-Za-z]\w{0,19}", level.name):
            raise found.error("", f"'{level.name[:40]}' is no name of a level", "such as node, rack or pod")
    if not 1 <= len(made) <= LEVEL_LIMIT:
        raise found.error("", f"a network has 1 to {LEVEL_LIMIT} levels, this one {len(made)}")
    return made


def _known(section: Section, name: str) -> Device:
    said = section.text(name)
    if said not in known_devices():
        raise section.error(name, f"'{said}' is no device above this network", nearest(said, [*known_devices()]))
    return known_devices()[said]


@dataclass(frozen=True)
class Network:
    """Devices joined by levels of links, the innermost first: devices of a node, nodes of a rack, racks of a pod.

    >>> network("DGX-H100").told
    'DGX-H100: nodes of 8 H100-SXM, joined by NVLink 4; 8 nodes, joined by ConnectX-7 with 50 GB/s a device.'
    """

    name: str
    device: Device = keyed("a device above this network", Sort(_known, TEXT.schema), needed=True)
    levels: tuple[Level, ...] = keyed("its levels by name, the innermost first",
                                      Sort(_levels, mapping_of(schema_of(Level))), needed=True)  # fmt: skip
    source: str = keyed("where the numbers are from", _LINE, needed=True)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """Its levels with what each of them inherits from the one below."""
        made: list[Hop] = []
        unit, rate, every = 1, None, Fraction(1)
        for level in self.levels:
            own = level.rate is not None
            rate = level.rate.quantity.value if level.rate is not None else rate
            every = Fraction(level.cards or unit) if own or not made or rate is None else every
            below = made[-1].level.name if made else self.device.name
            made.append(Hop(level, unit, below, every / level.oversubscription, rate))
            unit, every = unit * level.size, every * level.size
        return tuple(made)

    @property
    def size(self) -> int:
        """How many devices it has."""
        return prod(level.size for level in self.levels)

    @property
    def told(self) -> str:
        """How it is joined, for a reader."""
        said: list[str] = []
        for hop in self.hops:
            level, last = hop.level, hop.level is self.levels[-1] and len(self.levels) > 1
            plural = hop.below if not said else f"{hop.below}s"
            units = f"{level.size} {plural}" if last else f"{level.name}s of {level.size} {plural}"
            link = level.link or ("links" if hop.rate is not None else self.device.link().name)
            with_ = f" with {Quantity(hop.share, _BYTES).reading} a device" if hop.share is not None else ""
            said.append(f"{units}, joined by {link}{with_}")
        return f"{self.name}: {'; '.join(said)}."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Of each level its name, what it joins, its devices, its links, the share of a device, and the latency."""
        found: list[tuple[str, ...]] = []
        for hop in self.hops:
            level, link = hop.level, self.device.link() if self.device.links else None
            share = link.bandwidth("one").value if hop.share is None and link is not None else hop.share
            cards = f"{level.cards or hop.unit} x {level.link}" if level.rate is not None else level.link
            cards += f", {level.oversubscription}:1" if level.oversubscription != 1 else ""
            cards += ", rails" if level.rails else ""
            found.append((
                level.name, f"{level.size} {hop.below}{'s' if found else ''}", str(hop.unit * level.size),
                cards or (link.name if link is not None else ""),
                "" if share is None else Quantity(share, _BYTES).reading,
                "" if level.latency is None else Quantity(level.latency, Unit.parse("second")).reading,
            ))  # fmt: skip
        return found

    def holds(self, ranks: int | None) -> None:
        """Raises ``ValuesError`` for more ranks than it has devices."""
        if ranks is not None and ranks > self.size:
            said = " x ".join(str(level.size) for level in reversed(self.levels))
            hint = ", ".join(f"{level.name} {level.size}" for level in self.levels)
            raise ValuesError(f"{self.name} has {said} devices, but there are {ranks} ranks",
                              hint=f"a network of your own with larger levels ({hint})")  # fmt: skip


def _network(section: Section, name: str) -> Network:
    """Raises ``DocumentError`` where a level is faster than the one that its messages go through."""
    made = read_keys(Network, section, name=name)
    own = made.device.link().bandwidth("one").value if made.device.links else None
    rate, late = made.hops[0].share or own, Fraction(0)
    for hop in made.hops:
        if rate is not None and hop.share is not None and hop.share > rate:
            said = [Quantity(one, _BYTES).reading for one in (hop.share, rate)]
            raise section.error("levels", f"'{hop.level.name}' gives a device {said[0]}, but its messages go through "
                                          f"'{hop.below}' with {said[1]}")  # fmt: skip
        if hop.level.latency is not None and hop.level.latency < late:
            raise section.error("levels", f"a message over '{hop.level.name}' is sooner there than over '{hop.below}'")
        rate, late = hop.share or rate, hop.level.latency or late
    return made


# -- finding ----------------------------------------------------------------------------------------


def _folded(name: str) -> str:
    return re.sub(r"[\s_\-]+", "", name).lower()


def _spelled(name: str, known: Iterable[str]) -> str | None:
    return next((one for one in known if _folded(one) == _folded(name)), None)


@cache
def known_devices() -> Mapping[str, Device]:
    """The devices that symcomm knows, by name; each is read at its first use."""
    return ReadLater(_ours("devices"), lambda name, text: _device(name, _entry(text), known_devices()))


@cache
def known_networks() -> Mapping[str, Network]:
    """The networks that symcomm knows, by name; each is read at its first use."""
    return ReadLater(_ours("networks"), lambda name, text: _network(_entry(text), name))


def _ours(key: str) -> dict[str, str]:
    """The lines of each entry below a key of the file of this package."""
    text = Path(__file__).with_name("devices.yaml").read_text(encoding="utf-8")
    below = re.split(r"\n(?=\w)", text.partition(f"\n{key}:\n")[2])[0]
    return dict(re.findall(r"^  (\S+):\n((?:    .*\n)+)", below, re.MULTILINE))


def _entry(text: str) -> Section:
    return section_of(text, "devices.yaml", ours=True)


def _networks(root: Section) -> Mapping[str, Network]:
    found = root.section("networks", "'networks'")
    return {name.text: _network(one, name.text) for name, one in found.sections()} if found else {}


def network(name: str) -> Network:
    """The network of a name, or a slice of a torus; case and hyphens do not matter.

    >>> network("dgx h100").size, [level.line for level in network("TPU-v5e 8x16").levels]
    (64, [True, False])

    Raises ``ValuesError`` for an unknown name, and for a slice that the torus of a device does not have.
    """
    found = network_if(name)
    if found is None:
        raise ValuesError(f"unknown network '{name[:60]}'", hint="known: " + ", ".join(known_networks()))
    return found


def network_if(name: object) -> Network | None:
    """The network of a name, or None where it is none of a network."""
    if isinstance(name, Network):
        return name
    if not isinstance(name, str):
        return None
    slice_ = re.fullmatch(r"(.{1,40}?)[ -](\d{1,6}(?:x\d{1,6})+)", name.strip())
    if (known := _spelled(name, known_networks())) is not None:
        return known_networks()[known]
    return _slice(slice_[1], [*map(int, slice_[2].split("x"))]) if slice_ else None


def _slice(name: str, sizes: list[int]) -> Network | None:
    """A part of a torus: one level for each of its axes; of a 3D torus all of them wrap around, or none.

    Raises ``ValuesError`` where the torus of the device has no such part.
    """
    device_ = _called(name, known_devices())
    link = next((one for one in device_.links.values() if one.wraps), None) if device_ is not None else None
    if device_ is None or link is None:
        return None
    text = "x".join(map(str, sizes))
    if len(sizes) != link.axes or prod(sizes) > (link.joins or 0) or not all(sizes):
        what = f"{device_.name} has no slice of {text}"
        hint = f"{link.axes} axes and at most {link.joins} devices, such as " + "x".join([str(link.wraps)] * link.axes)
        raise ValuesError(what, hint=hint)
    cubes = all(size % link.wraps == 0 for size in sizes)
    around = [size == link.wraps if link.axes == 2 else cubes for size in sizes]
    units = (*("row", "plane")[: len(sizes) - 1], "slice")
    levels = [Level(unit, size, f"{link.name} along {axis}{'' if wraps else ', a line'}", link.rate, line=not wraps)
              for unit, axis, size, wraps in zip(units, "xyz", sizes, around, strict=False)]  # fmt: skip
    return Network(f"{device_.name} {text}", device_, tuple(levels), link.source or device_.source)


def networks(path: str | Path) -> Mapping[str, Network]:
    """The networks of a user's own YAML file, by name, of known devices: levels of links, the innermost first.

    Raises ``DocumentError`` naming file, line and key for a file that is not as ``devices.yaml`` is.
    """
    text = read_text(path, "the path of a YAML file of networks", 4 * SIZE_LIMIT)
    return _networks(_root(text, str(path), "networks"))


def device(name: object, among: Mapping[str, Device] | None = None) -> Device:
    """The device of a name or an alias, or of a network; case, spaces and hyphens do not matter.

    ``among`` come before the known ones.

    Raises ``ValuesError`` for an unknown name, with near ones, and for one that several devices share.

    >>> device("a100 80gb sxm").name
    'A100-80GB-SXM'
    """
    if isinstance(name, Device | Network):
        return name if isinstance(name, Device) else name.device
    return _named(str(name)) if among is None else _among(str(name), {**known_devices(), **among})


@lru_cache(maxsize=256)  # every question about a machine asks for it
def _named(name: str) -> Device:
    return _among(name, known_devices())


def _called(name: str, every: Mapping[str, Device]) -> Device | None:
    """The device of a name or an alias; only an alias needs all of them."""
    if (spelled := _spelled(name, every)) is not None:
        return every[spelled]
    return next((found for found in every.values() if _folded(name) in map(_folded, found.aliases)), None)


def _among(name: str, every: Mapping[str, Device]) -> Device:
    if (found := _called(name, every)) is not None:
        return found
    if (whole := network_if(name)) is not None:
        return whole.device
    wanted = _folded(name)
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
    return _devices(_root(text, str(path), "devices"), known_devices())


# -- reading ----------------------------------------------------------------------------------------


def _root(text: str, file: str, key: str) -> Section:
    root = read(text, Source(file, 1, tuple(text.split("\n"))), "this file", SIZE_LIMIT)
    if not isinstance(root, Section):
        raise DocumentError(f"a file of {key} is a mapping that starts with {key}:", root.span)
    root.only([key])
    root.need(key)
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
        raise entry.error("parts", "'parts' needs 'rates'", "write both, or neither")
    return made
