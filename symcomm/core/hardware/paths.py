"""The worth of a topology, as derivations: bandwidth of a pair, bisection, links, rings, NUMA nodes, lost cells.

The bandwidth of one NVLink is that of the GPU generation (``link_rate``, or the ``device``); the rates of PCIe paths
are given by their link type (``pcie``). What is not given stays a symbol.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from fractions import Fraction

from symcomm.core.accounting import Accounting
from symcomm.core.derivation import Derivation, Exhibit, Numbers, Reason, Relations, Step, Witness, exact
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form, Num, Product, Sym, Total, num, product
from symcomm.core.hardware.devices import Device, device
from symcomm.core.hardware.matrix import PCIE, Missing
from symcomm.core.hardware.topology import Topology, nvlinks, rank, rate_of
from symcomm.core.notation import Notation
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Quantity, Unit

_LINK = Unit.parse("link")
_GPU = Unit.parse("device")
_RATE = Unit.parse("byte/second")
_LINK_RATE = Unit.parse("byte/(second*link)")
_SHOWN = 24  # rows of a table beside the steps

MEANINGS = {
    "n_GPU": "number of GPUs",
    "n_NV": "NVLinks between two GPUs",
    "w_NV": "bandwidth of one NVLink in one direction",
    **{f"w_{kind}": f"bandwidth of a {kind} path in one direction" for kind in PCIE},
}
_WHAT = {
    "PIX": "at most one PCIe bridge",
    "PXB": "several PCIe bridges, but not the host bridge",
    "PHB": "a PCIe host bridge, typically the CPU",
    "NODE": "the PCIe host bridges of one NUMA node",
    "SYS": "PCIe and the interconnect between NUMA nodes",
}


@dataclass(frozen=True)
class Wiring:
    """A topology with the rates of its links; each method derives one quantity.

    Without a ``topology`` the answers hold for ``n_GPU`` GPUs joined pairwise by ``n_NV`` links. ``switch`` says
    whether the NVLinks lead to a switch, where that is known; otherwise the links of the matrix tell.
    """

    topology: Topology | None = None
    device: Device | None = None
    link_rate: Fraction | None = None
    pcie: Mapping[str, Fraction] = field(default_factory=dict)
    switch: bool | None = None
    gpus: int | None = None
    links: int | None = None
    accounting: Accounting = field(default_factory=Accounting)
    notation: Notation = field(default_factory=Notation)
    relations: Relations = field(default_factory=Relations)

    # -- what is given -----------------------------------------------------------------------------

    @property
    def rate(self) -> Fraction | None:
        """The bandwidth of one NVLink in one direction, where it is known."""
        if self.link_rate is not None or self.device is None:
            return self.link_rate
        return self.device.link().rate.quantity.value

    def _given(self, *names: str, **numbers: int | Fraction | None) -> tuple[tuple[str, Fraction], ...]:
        known: dict[str, Fraction | None] = {"w_NV": self.rate}
        known |= {f"w_{kind}": self.pcie.get(kind) for kind in PCIE}
        known |= {name: None if value is None else Fraction(value) for name, value in numbers.items()}
        return tuple((name, value) for name in names if (value := known.get(name)) is not None)

    def _made(self, title: str, steps: Iterable[Step], given: tuple[tuple[str, Fraction], ...] = (),
              touched: tuple[str, ...] = (), exhibits: Iterable[Exhibit] = (), notes: Iterable[str] = ()
              ) -> Derivation:  # fmt: skip
        written = Notation(self.notation.latex, {**MEANINGS, **self.notation.meanings})
        extra = list(notes)
        if self.topology is not None and self.topology.missing and "missing" not in title:
            count = len(self.topology.missing)
            extra.append(
                f"The printed matrix lost {count} cell{'s' if count > 1 else ''}; symmetry with the complete rows puts "
                f"{'them' if count > 1 else 'it'} back."
            )
        return Derivation(
            title, self.accounting, tuple(steps), touched, self.relations, tuple(exhibits), given, written, tuple(extra)
        )

    @property
    def _directions(self) -> int:
        return 2 if self.accounting.link == "bidirectional" else 1

    def _both(self, form: Form) -> Form:
        return form if self._directions == 1 else Product((num(2), form))

    def _whole(self) -> Topology:
        if self.topology is None:
            raise ValuesError("this needs a topology", hint="give the matrix that nvidia-smi topo -m prints")
        return self.topology

    def _path(self, kind: str) -> tuple[Form, str, tuple[str, ...]]:
        """The bandwidth of a link type, why, and the symbols it takes."""
        if nvlinks(kind):
            form = self._both(Product((Sym("n_NV", unit=_LINK), Sym("w_NV", whole=False, unit=_LINK_RATE))))
            return form, f"{kind} bonds {nvlinks(kind)} NVLinks, which carry in parallel", ("n_NV", "w_NV")
        return (
            self._both(Sym(f"w_{kind}", whole=False, unit=_RATE)),
            f"{kind}: the path crosses {_WHAT[kind]}",
            (f"w_{kind}",),
        )

    # -- what bears the steps out ------------------------------------------------------------------

    def _carried(self, kind: str) -> Witness:
        """What the lanes between two devices carry, one by one, each way that counts."""

        def carried(numbers: Numbers) -> Fraction:
            lane = numbers["w_NV" if kind.startswith("NV") else f"w_{kind}"]
            count = nvlinks(kind) if kind != "NV" else numbers["n_NV"]
            lanes = int(count) if kind.startswith("NV") else 1
            return sum((lane for _ in range(lanes) for _ in range(self._directions)), Fraction(0))

        return carried

    def _bonds(self, numbers: Numbers) -> Fraction:
        """The cables of the GPU that needs most, from a graph with an edge for each of them."""
        if self.topology is not None:
            joined = self.topology.graph
            return Fraction(max(sum(joined.edges[a, b]["links"] for b in self.topology.gpus if b != a)
                                for a in self.topology.gpus))  # fmt: skip
        others = range(int(numbers["n_GPU"]) - 1)
        return sum((numbers["n_NV"] for _ in others), Fraction(0))

    def _least_cut(self, numbers: Numbers) -> Fraction:
        """What crosses a cut into halves of GPUs that are all joined alike, cable by cable."""
        count = int(numbers["n_GPU"])
        left, right = range(count // 2), range(count // 2, count)
        others = [0] if self.switch else right  # a switch passes all links of the smaller half
        return sum((numbers["n_NV"] for _ in left for _ in others), Fraction(0))

    @property
    def _parallel(self) -> Reason:
        def carried(numbers: Numbers) -> Fraction:
            links = int(numbers["l_cut"])
            return sum((numbers["w_NV"] for _ in range(links) for _ in range(self._directions)), Fraction(0))

        return Reason("parallel", "Links carry in parallel.", witness=carried)

    # -- derivations -------------------------------------------------------------------------------

    def bandwidth(self, a: str = "", b: str = "") -> Derivation:
        """The bandwidth between two devices; between any two GPUs where none are named and all are joined alike."""
        kind, title = "", "Bandwidth between two GPUs"
        if self.topology is not None:
            if not a or not b:
                raise ValuesError("say which two devices", hint="for instance between: GPU0, GPU1")
            kind = self.topology.kind(a, b)
            if kind == "X":
                raise ValuesError(f"{a} is one device, not two")
            title = f"Bandwidth between {a} and {b}"
        elif a or b:
            self._whole()
        form, reason, names = self._path(kind or "NV1")
        if not kind:
            reason = "Bonded NVLinks carry in parallel"
        given = self._given(*names, n_NV=(nvlinks(kind) or None) if kind else self.links)
        way = "both directions are counted." if self._directions == 2 else "one direction is counted."
        step = Step("w_pair", form, _RATE, Reason("path", f"{reason}; {way}", witness=self._carried(kind or "NV")))
        return self._made(title, [step], given, ("link",), self._table() if kind else ())

    def direct_links(self) -> Derivation:
        """The NVLinks that one GPU would need if every bond were made of its own cables, without a switch."""
        n, links = self.gpus, self.links
        notes: list[str] = []
        form: Form = Product((Total((Sym("n_GPU", unit=_GPU), Num(Fraction(-1), _GPU))), Sym("n_NV", unit=_PER_GPU)))
        text = "One bond to each of the other GPUs."
        if self.topology is not None:
            bonds = {
                nvlinks(self.topology.kind(a, b)) for a in self.topology.gpus for b in self.topology.gpus if a != b
            }
            n = len(self.topology.gpus)
            if len(bonds) > 1:
                return self._uneven()
            links = bonds.pop() if bonds else 0
            if not links:
                raise ValuesError("no two GPUs of this topology are joined by NVLink")
        step = Step("l_direct", form, _LINK, Reason("count", text, witness=self._bonds))
        given = self._given("n_GPU", "n_NV", n_GPU=n, n_NV=links)
        if self.device is not None and n is not None and links is not None:
            notes.append(self._compared((n - 1) * links))
        return self._made("NVLinks of one GPU without a switch", [step], given, (), (), notes)

    def _uneven(self) -> Derivation:
        """The same where bonds differ: the GPU that needs most."""
        topology = self._whole()
        gpu = max(topology.gpus, key=topology.demand)
        bonds = [nvlinks(topology.kind(gpu, other)) for other in topology.gpus if other != gpu]
        form = Total(tuple(Num(Fraction(bond), _LINK) for bond in bonds if bond))
        if not form.terms:
            raise ValuesError("no two GPUs of this topology are joined by NVLink")
        step = Step(
            "l_direct", form, _LINK, Reason("count", f"The bonds of {gpu}, which needs most.", witness=self._bonds)
        )
        notes = [self._compared(sum(bonds))] if self.device is not None else []
        return self._made("NVLinks of one GPU without a switch", [step], (), (), (), notes)

    def _compared(self, needed: int) -> str:
        assert self.device is not None
        link = self.device.link()
        enough = "so the GPUs may be joined directly" if needed <= link.count else "so the bonds lead to a switch"
        return f"One {self.device.name} has {link.count} links of {link.name} ({link.rate.source}), {enough}."

    def bisection(self) -> Derivation:
        """The bandwidth across the cheapest cut of the GPUs into two halves."""
        title = "Bisection bandwidth"
        w = Sym("w_NV", whole=False, unit=_LINK_RATE)
        if self.topology is None:
            return self._symbolic_bisection(title, w)
        own = self.device.link().count if self.device else 0
        switch = self.topology.switched(own) if self.switch is None else self.switch
        cut = self.topology.bisection(switch)
        halves = f"{_listed(cut.left)} against {_listed(cut.right)}"
        topology, n = self.topology, len(self.topology.gpus)
        if not cut.crossing:
            form, why, names = self._path(cut.shared)
            text = f"No NVLink crosses {halves}; the halves share one path. {why}."
            step = Step("w_cut", form, _RATE, Reason("cut", text, witness=self._carried(cut.shared)))
            return self._made(title, [step], self._given(*names), ("link",))
        even = cut.crossing % (n // 2) == 0
        each = cut.crossing // (n // 2) if switch else 0
        if switch:
            count: Form = (
                Product((Num(Fraction(n // 2), _GPU), Num(Fraction(each), _PER_GPU))) if even
                else Num(Fraction(cut.crossing), _LINK)
            )  # fmt: skip
            why = self._why_switch()
            text = f"{why} A switch that blocks nothing passes what the smaller half can send: {halves}."
        else:
            text = f"Every NVLink between the halves is a cable of its own; the cheapest cut is {halves}."
            count = Num(Fraction(cut.crossing), _LINK)
            bond = {nvlinks(self.topology.kind(a, b)) for a in cut.left for b in cut.right}
            if len(bond) == 1:
                pairs = num(len(cut.left)), num(len(cut.right))
                count = Product((*pairs, Num(Fraction(bond.pop()), _LINK)))
        steps = [Step("l_cut", count, _LINK, Reason("cut", text, witness=lambda _: topology.crossing(switch)))]
        crossed: Form = Product((Sym("l_cut"), w))
        if self.pcie.get(cut.shared) is None:
            note = f"The halves also share a {cut.shared} path, whose bandwidth is not given: it is not counted."
            steps.append(Step("w_cut", self._both(crossed), _RATE, self._parallel))
            return self._made(title, steps, self._given("w_NV"), ("link",), notes=[note] if cut.shared else [])
        path, links = self._carried(cut.shared), self._parallel.witness
        assert links is not None
        reason = Reason("parallel", f"The links carry in parallel, and so does the {cut.shared} path of the halves.",
                        witness=lambda numbers: links(numbers) + path(numbers))  # fmt: skip
        both = Total((crossed, Sym(f"w_{cut.shared}", whole=False, unit=_RATE)))
        steps.append(Step("w_cut", self._both(both), _RATE, reason))
        return self._made(title, steps, self._given("w_NV", f"w_{cut.shared}"), ("link",))

    def _why_switch(self) -> str:
        topology = self._whole()
        if self.switch is not None:
            return "All NVLinks lead to a switch."
        gpu = max(topology.gpus, key=topology.demand)
        most = self.device.link().count if self.device else 18
        whose = f"of one {self.device.name}" if self.device else "that any GPU has"
        return f"Direct bonds would take {topology.demand(gpu)} links, more than the {most} {whose}: there is a switch."

    def _symbolic_bisection(self, title: str, w: Sym) -> Derivation:
        from symcomm.core.form import Ceiling, Floor, Ratio

        n, links = Sym("n_GPU"), Sym("n_NV", unit=_LINK)
        half: Form = Ratio(n, num(2))
        odd = self.gpus is None or self.gpus % 2
        less, more = (Floor(half), Ceiling(half)) if odd else (half, half)
        if self.switch is None:
            raise ValuesError("a bisection needs a topology, or whether there is a switch", hint="switch: yes or no")
        if self.gpus is not None and self.gpus < 2:
            raise ValuesError(f"a bisection needs two GPUs or more, and there is {self.gpus}")
        if self.switch:
            count, text = Product((less, links)), "All links of the smaller half lead out."
        else:
            count, text = Product((less, more, links)), "Each GPU of one half has a bond to each GPU of the other."
        steps = [Step("l_cut", count, _LINK, Reason("cut", text, witness=self._least_cut)),
                 Step("w_cut", self._both(Product((Sym("l_cut"), w))), _RATE, self._parallel)]  # fmt: skip
        given = self._given("n_GPU", "n_NV", "w_NV", n_GPU=self.gpus, n_NV=self.links)
        return self._made(title, steps, given, ("link",))

    def ring(self) -> Derivation:
        """The bandwidth of the poorest link along the best ring: what a ring collective runs at."""
        topology = self._whole()
        rates = {k: rate_of(k, self.rate, self.pcie) for k in {*PCIE, *self._gpu_kinds()}}
        known = all(rates[k] is not None for k in self._gpu_kinds())
        worth: Callable[[str], Fraction | int] = (lambda k: rates[k] or Fraction(0)) if known else rank
        found = topology.ring(worth)
        order = found.order
        hops = list(zip(order, (*order[1:], order[0]), strict=True))
        hops = hops[:1] if len(order) == 2 else hops
        form, why, names = self._path(found.bottleneck)
        count = sum(topology.kind(a, b) == found.bottleneck for a, b in hops)
        text = f"{why}; {count} of {len(hops)} links of the ring {_listed(order)} are such, and none is slower."
        poorest = self._carried(topology.poorest(order, worth))
        step = Step("w_ring", form, _RATE, Reason("bottleneck", text, witness=poorest))
        rows = tuple((f"{a} to {b}", topology.kind(a, b)) for a, b in hops[:_SHOWN])
        notes = ["In a ring every rank sends at once, so the slowest link sets the pace."]
        if not found.best:
            notes.append("The search stopped early: another ring may have a faster slowest link.")
        exhibit = Exhibit("The ring, link by link", ("link", "type"), rows)
        given = self._given(*names, n_NV=nvlinks(found.bottleneck) or None)
        return self._made("Bottleneck of the best ring", [step], given, ("link",), [exhibit], notes)

    def _gpu_kinds(self) -> set[str]:
        topology = self._whole()
        return {topology.kind(a, b) for a in topology.gpus for b in topology.gpus if a != b}

    def nic(self, gpu: str) -> Derivation:
        """The bandwidth between a GPU and the network card nearest to it."""
        topology = self._whole()
        cards, kind = topology.near(gpu)
        form, why, names = self._path(kind)
        text = f"{_listed(cards)} {'is' if len(cards) == 1 else 'are'} nearest. {why}."
        nearest_card = sorted((topology.kind(gpu, card) for card in topology.nics), key=rank)[-1]
        step = Step("w_NIC", form, _RATE, Reason("nearest card", text, witness=self._carried(nearest_card)))
        rows = []
        for other in topology.gpus[:_SHOWN]:
            near, how = topology.near(other)
            rows.append((other, _listed(near), how, topology.node(other)))
        exhibit = Exhibit("The network card nearest to each GPU", ("GPU", "card", "type", "NUMA node"), tuple(rows))
        given = self._given(*names, n_NV=nvlinks(kind) or None)
        return self._made(f"Bandwidth between {gpu} and its network card", [step], given, ("link",), [exhibit])

    def numa(self) -> Derivation:
        """The number of NUMA nodes, with the devices that hang on each."""
        topology = self._whole()
        nodes = topology.nodes
        if "unknown" in nodes:
            raise ValuesError(f"the matrix says no affinity for {_listed(nodes['unknown'])}")
        text = (
            "GPUs with the same NUMA affinity share a node; a network card belongs to the node that it reaches "
            "without SYS."
        )
        hung = {topology.node(gpu) for gpu in topology.gpus}
        reason = Reason("affinity", text, witness=lambda _: Fraction(len(hung)))
        step = Step("n_node", num(len(nodes)), ONE, reason)
        rows = tuple((name, _listed([n for n in inside if n in topology.gpus]), _listed([n for n in inside if n in
                      topology.nics]) or "none") for name, inside in nodes.items())  # fmt: skip
        exhibit = Exhibit("Devices of each NUMA node", ("NUMA node", "GPUs", "network cards"), rows)
        return self._made("NUMA nodes", [step], (), (), [exhibit])

    def missing(self, kind: str = "") -> Derivation:
        """The cells that the printed matrix lost, counted by row; ``kind`` counts those of one link type."""
        topology = self._whole()
        lost = [m for m in topology.missing if kind in ("", m.kind)]
        if kind and kind not in PCIE and not re.fullmatch(r"NV[1-9]\d{0,2}", kind):
            raise ValuesError(f"'{kind[:40]}' is no link type", hint=nearest(kind, [*PCIE, "NV18"]))
        per_row: dict[str, int] = {}
        for cell in lost:
            per_row[cell.row] = per_row.get(cell.row, 0) + 1
        groups: dict[int, list[str]] = {}
        for row, count in per_row.items():
            groups.setdefault(count, []).append(row)
        terms = [product(num(len(rows)), num(count)) for count, rows in groups.items()]
        form: Form = Total(tuple(terms)) if len(terms) > 1 else terms[0] if terms else num(0)
        told = "; ".join(f"{_listed(rows)} lost {count} each" if len(rows) > 1 else f"{rows[0]} lost {count}"
                         for count, rows in groups.items())  # fmt: skip
        text = f"Rows are as long as there are columns: {told or 'whole'}."
        step = Step("n_lost", form, ONE, Reason("symmetry", text, witness=lambda _: Fraction(len(lost))))
        rows = tuple((m.row, m.column, m.kind, _lost(m)) for m in lost[:_SHOWN])
        exhibits = [Exhibit("Missing cells, and what symmetry puts there", ("row", "column", "type", "why"), rows)]
        title = f"{kind} cells missing from the printed matrix" if kind else "Cells missing from the printed matrix"
        return self._made(title, [step], (), (), exhibits if lost else ())

    def _table(self) -> Iterable[Exhibit]:
        topology = self._whole()
        seen: dict[str, int] = {}
        names = [p.name for p in topology.matrix.places]
        for i, row in enumerate(topology.matrix.kinds):
            for kind in row[:i]:
                seen[kind] = seen.get(kind, 0) + 1
        if len(names) < 3:
            return ()
        rows = []
        for kind in sorted(seen, key=rank, reverse=True):
            rate = rate_of(kind, self.rate, self.pcie)
            said: Quantity | str = Quantity(rate * self._directions, _RATE) if rate is not None else "not given"
            rows.append((kind, str(seen[kind]), said))
        return (Exhibit("Link types of this topology", ("type", "pairs", "bandwidth"), tuple(rows)),)


_PER_GPU = Unit.parse("link/device")


def _lost(cell: Missing) -> str:
    doubt = "" if cell.certain else "; or an equal cell beside it"
    printed = f"prints {cell.printed}; " if cell.printed else ""
    return f"{printed}row {cell.column} says {cell.kind}{doubt}"


def _listed(names: Iterable[str]) -> str:
    """Names as a person lists them; runs of numbers are drawn together.

    >>> _listed(["GPU0", "GPU1", "GPU2", "NIC0"])
    'GPU0-GPU2 and NIC0'
    """
    runs: list[list[str]] = []
    for name in names:
        last = runs[-1][-1] if runs else ""
        stem = name.rstrip("0123456789")
        follows = last.startswith(stem) and last[len(stem) :].isdigit() and name[len(stem) :].isdigit()
        if follows and int(name[len(stem) :]) == int(last[len(stem) :]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    said = [part for run in runs for part in ([f"{run[0]}-{run[-1]}"] if len(run) > 2 else run)]
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} and {said[-1]}" if said else ""


def wiring(
    topology: Topology | None = None,
    device_name: str | Device | None = None,
    link_rate: object = None,
    pcie: Mapping[str, object] | None = None,
    switch: bool | None = None,
    **others: object,
) -> Wiring:
    """A topology with its rates, each checked: positive, and in bytes per second.

    >>> wiring(link_rate="25 GB/s", gpus=8, links=18).bandwidth().at().value
    Fraction(450000000000, 1)
    """
    found = device(device_name) if device_name is not None else None
    rate = positive(link_rate, "link_rate", "byte/second") if link_rate is not None else None
    paths = {kind: positive(value, kind.lower(), "byte/second") for kind, value in (pcie or {}).items()}
    unknown = next((kind for kind in paths if kind not in PCIE), "")
    if unknown:
        raise ValuesError(f"'{unknown[:40]}' is no PCIe link type", hint=nearest(unknown, [*PCIE]))
    known = [f.name for f in fields(Wiring)]
    strange = next((name for name in others if name not in known), "")
    if strange:
        raise ValuesError(f"wiring has no option '{strange[:60]}'", hint=nearest(strange, known))
    return replace(Wiring(topology, found, rate, paths, switch), **others)  # type: ignore[arg-type]


def positive(value: object, name: str, unit: str, zero: bool = False) -> Fraction:
    """A positive number in a unit; ``zero`` allows nothing at all. Raises ``ValuesError`` for a unit that does not fit.

    >>> positive("25 GB/s", "bandwidth", "byte/second")
    Fraction(25000000000, 1)
    """
    wanted = Unit.parse(unit)
    quantity = Quantity.parse(value) if isinstance(value, str) else value
    if isinstance(quantity, Quantity):
        quantity = quantity.within(wanted)  # in hours, where these are wanted
        if quantity.unit.powers and quantity.unit != wanted:
            samples = {"B/s": "such as 25 GB/s", "B": "such as 4 GB", "s": "such as 20 us or 1/50000 s"}
            must = f"must be in {wanted}" if wanted.powers else "is a plain number"
            raise ValuesError(f"{name} is given in {quantity.unit}, but {must}", hint=samples.get(str(wanted), ""))
    number = exact(quantity, name)
    if number < 0 or (not number and not zero):
        raise ValuesError(f"{name} = {value}: it must be positive")
    return number
