"""The rates of a machine as a time needs them: peak, memory and network, each a symbol or a number with a unit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from symcomm.core.derivation import Condition, exact
from symcomm.core.dtypes import element_bytes, said_bytes
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form, Ratio, Sym, names, num, product
from symcomm.core.hardware.efficiency import Efficiency, efficiency
from symcomm.core.records import ByIdentity, dataclass
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import ONE, Quantity, Unit


@dataclass(frozen=True)
class Rate:
    """A rate that can be given: its option, its usual symbol, its unit and what it is."""

    option: str
    symbol: str
    unit: Unit
    meaning: str
    sample: str


# One row a rate.
RATES: dict[str, Rate] = {
    r.option: r
    for r in (
        Rate("peak", "R", Unit.parse("FLOP/second"), "the peak rate", "312 TFLOP/s"),
        Rate("memory", "W_mem", Unit.parse("byte/second"), "the bandwidth of the memory", "2039 GB/s"),
        Rate("network", "W_net", Unit.parse("byte/second"), "the bandwidth of the network", "900 GB/s"),
        Rate("latency", "alpha", Unit.parse("second"), "the latency of one message", "0.00001 s"),
        Rate("call_overhead", "o", Unit.parse("second"), "the overhead of a bucket's call", "20 us"),
        Rate("utilisation", "eta", ONE, "the part of the peak rates that is sustained", "4/5"),
    )
}


@dataclass(frozen=True)
class MachineLink:
    """The link of some calls: ``count`` links of a bandwidth ``rate`` each, and the latency of a message.

    A link of a level takes the calls that need the one ``below``, too.
    """

    name: str
    rate: Form
    latency: Form | None = None
    count: Form = num(1)
    below: MachineLink | None = None
    unit: int = 1  # how many devices one end has: those of a node, of a rack
    cards: Fraction | None = None  # of these devices together, where they share them
    line: bool = False  # what it joins is no ring
    where: str = ""
    rails: bool = False  # it joins only devices of one place in their units

    @property
    def down(self) -> Iterator[MachineLink]:
        """Itself and the levels that its messages go through."""
        yield self
        if self.below is not None:
            yield from self.below.down

    @property
    def bandwidth(self) -> Form:
        """That of all its links together."""
        return product(self.count, self.rate)


@dataclass(frozen=True)
class Machine:
    """The rates as forms, and the numbers that were given for them.

    An axis of the mesh without a route goes over the network.
    """

    peak: Sym
    memory: Sym
    network: Sym
    utilisation: Sym | None = None  # lowers the peak rate and the memory bandwidth, not the network
    latency: Sym | None = None  # without one only bandwidths count
    given: tuple[tuple[str, Fraction], ...] = ()
    # The links along an axis of the mesh, the inner one first, with the ranks that each joins.
    routes: Mapping[str, tuple[tuple[MachineLink, Form], ...]] = field(default_factory=dict)
    levels: tuple[MachineLink, ...] = ()  # all links of the network
    of_links: tuple[Sym, ...] = ()
    named: tuple[str, ...] = ()  # links of which something was said
    notes: tuple[str, ...] = ()  # where axes lie
    where: tuple[Condition, ...] = ()  # the degrees for which they lie there
    checks: tuple[Callable[[Mapping[str, Fraction]], None], ...] = field(default=(), compare=False)
    call_overhead: Sym | None = None  # of a bucket of gradients
    efficiency: Efficiency | None = None  # what each op and each call achieves, in place of a utilisation

    @property
    def symbols(self) -> tuple[Sym, ...]:
        """Every symbol of the machine."""
        more = (self.utilisation, self.latency, self.call_overhead, *self.of_links)
        every = (self.peak, self.memory, self.network, *more)
        return tuple(s for s in every if s is not None)

    @property
    def one_network(self) -> MachineLink:
        """The link of what has none of its own."""
        return MachineLink("network", self.network, self.latency)

    def sustained(self, rate: Form) -> Form:
        """A rate times the part of it that is sustained.

        Raises ``ValuesError`` where a table says that for each op: what is asked for has no ops.
        """
        if self.efficiency is not None:
            raise ValuesError("a table of efficiency is of single ops and calls, not of this quantity",
                              hint="step_time and time read it; here give one number, such as 4/5")  # fmt: skip
        return rate if self.utilisation is None else product(self.utilisation, rate)

    def usual(self, rate: Form) -> Form:
        """A rate times the part of it that every op achieves; with a table, that is for each op to say."""
        return rate if self.efficiency is not None else self.sustained(rate)

    def rate_of(self, work: StepWriter) -> Form:
        """The peak rate for the format of the products: the given one, or a part of the 8-bit rate."""
        if work.setting.accounting.rate == "of_format":
            return self.peak
        work.setting.choice("rate")
        dtype = work.setting.product_dtype
        size = element_bytes(dtype)
        if size.number == 1:
            return self.peak
        text = f"A number takes {said_bytes(size)} in {dtype}, so that the 8-bit rate is divided by {size.number}."
        return work.combine(f"R_{dtype}", Ratio(self.peak, num(size.number)), RATES["peak"].unit, "rate", text)


def checked(option: str | Rate, value: object) -> Fraction:
    """A given rate, of ``RATES`` or another one, as an exact number in its unit.

    Raises ``ValuesError`` for a wrong unit, zero or less, or a utilisation above one.

    >>> checked("memory", "3352 GB/s")
    Fraction(3352000000000, 1)
    >>> checked("memory", "80 GB")
    Traceback (most recent call last):
        ...
    symcomm.core.errors.ValuesError: memory is given in B, but the bandwidth of the memory is in B/s
    hint: for instance 2039 GB/s
    """
    rate = RATES[option] if isinstance(option, str) else option
    option = rate.option
    hint = f"for instance {rate.sample}"
    quantity = Quantity.parse(value) if isinstance(value, str) else value
    if isinstance(quantity, Quantity):
        bare = quantity.unit == ONE and not isinstance(value, str)
        if quantity.unit != rate.unit and not bare:
            said = quantity.unit if quantity.unit != ONE else "a number without a unit"
            raise ValuesError(f"{option} is given in {said}, but {rate.meaning} is in {rate.unit}", hint=hint)
    number = exact(quantity, option)
    if number < 0 or (number == 0 and rate.unit != RATES["latency"].unit):
        raise ValuesError(f"{option} = {value}: {rate.meaning} must be positive", hint=hint)
    if option == "utilisation" and number > 1:
        raise ValuesError(f"utilisation = {value}: {rate.meaning} is above 0 and at most 1", hint=hint)
    return number


def machine(
    setting: Setting,
    others: Iterable[Form] = (),
    /,
    *,
    device: object = None,
    **options: object,
) -> Machine:
    """The machine of a question: rates from a device, over which single rates may be given.

    A rate is a number with a unit (``"3352 GB/s"``), an exact number in base units, or the name of a symbol. ``others``
    are forms whose symbols a rate must not share.

    Raises ``ValuesError`` for a rate that makes no sense and for a device without the number format.
    """
    accounting = setting.accounting
    of_format = "" if device is None else setting.product_dtype
    held = device if device is None or isinstance(device, str) else ByIdentity(device)
    return _machine(setting.symbols, tuple(others), accounting.rate, accounting.link, of_format, held, **options)


@lru_cache(maxsize=256, typed=True)  # a sheet asks for each of its rates
def _machine(
    symbols: frozenset[str], others: tuple[Form, ...], rated: str, link: str, dtype: str,
    held: str | ByIdentity[object] | None, /, **options: object,
) -> Machine:  # fmt: skip
    taken = {*symbols, *(n for form in others for n in names(form))}
    chosen, device = dict(options), held.it if isinstance(held, ByIdentity) else held
    if device is not None:
        for option, number in device_rates(device, dtype, rated, link).items():
            chosen[option] = number if chosen.get(option) is None else chosen[option]
    made: dict[str, Sym | None] = {}
    given: list[tuple[str, Fraction]] = []
    table = _table(chosen.get("utilisation"), device)
    if table is not None:
        del chosen["utilisation"]
    for option, rate in RATES.items():
        value = chosen.pop(option, None)
        symbol = rate.symbol if option != "peak" or rated == "of_format" else "R_8bit"
        if isinstance(value, str) and re.fullmatch(r"[^\W\d][\w^]{0,39}", value.strip()):
            symbol, value, wanted = value.strip(), None, True
            if symbol in taken:
                raise ValuesError(f"{symbol} is a symbol of the model", hint=f"name {rate.meaning} otherwise")
        else:
            wanted = value is not None or option not in ("latency", "utilisation", "call_overhead")
            while symbol in taken:
                symbol += "'"
        if value is not None:
            given.append((symbol, checked(option, value)))
        made[option] = Sym(symbol, whole=False, unit=rate.unit) if wanted else None
    for option in chosen:
        raise ValuesError(f"'{option[:40]}' is none of the rates here", hint=nearest(option, [*RATES]))
    peak, memory, network = made["peak"], made["memory"], made["network"]
    assert peak is not None
    assert memory is not None
    assert network is not None
    return Machine(peak, memory, network, made["utilisation"], made["latency"], tuple(given),
                   call_overhead=made["call_overhead"], efficiency=table)  # fmt: skip


def _table(said: object, owner: object) -> Efficiency | None:
    """The table of efficiency that is said instead of a utilisation: as text, or the device's own.

    Raises ``ValuesError`` where the device has none.
    """
    from symcomm.core.hardware.devices import device

    if isinstance(said, Efficiency):
        return said
    if not isinstance(said, str) or (said.strip() != "measured" and ":" not in said):
        return None
    if said.strip() != "measured":
        return efficiency(said)
    found = device(owner).efficiency if owner is not None else None
    if found is None:
        what = f"nobody has measured what {device(owner).name} achieves" if owner is not None else "no device is named"
        raise ValuesError(f"utilisation: measured, but {what}",
                          hint="utilisation: products: 0 FLOP 1/2, 1 GFLOP 4/5; or symcomm measure")  # fmt: skip
    return found


def host_bandwidth(name: object, link: str) -> Quantity | str:
    """The bandwidth between a device of the hardware table and its host; a symbol's where it is not known.

    >>> str(host_bandwidth("A100-80GB-SXM", "full_duplex"))
    '32 000 000 000 B/s = 32 GB/s'
    """
    from symcomm.core.hardware.devices import device

    found = None if name is None else device(name)
    if found is None or "PCIe" not in found.links:
        return ""
    return found.link("PCIe").bandwidth("both" if link == "bidirectional" else "one")


def device_rates(name: object, dtype: str, rate: str, link: str) -> dict[str, object]:
    """The rates of a device of the hardware table, for a number format; its first link is the network.

    Raises ``ValuesError`` for an unknown device, and for one that does not compute in the format.

    >>> str(device_rates("A100-80GB-SXM", "fp16", "of_format", "full_duplex")["network"])
    '300 000 000 000'
    """
    from symcomm.core.hardware.devices import device

    found = device(name)
    wanted = dtype
    if rate == "eight_bit":
        wanted = next((d for d in ("fp8", "int8") if d in found.rates), "fp8")
    direction: Literal["one", "both"] = "both" if link == "bidirectional" else "one"
    rates = {"peak": found.peak(wanted), "memory": found.memory.bandwidth.quantity}
    if found.links:
        rates["network"] = found.link().bandwidth(direction)
    return {option: Quantity(quantity.value) for option, quantity in rates.items()}
