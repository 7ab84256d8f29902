"""The three terms of a time: computing, memory and network, each written down step by step from the load of a rank."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial

from symcomm.core.collectives.algorithms import algorithm, runs_by, told
from symcomm.core.derivation import Numbers, Step
from symcomm.core.dtypes import element_bytes, said_bytes
from symcomm.core.form import Form, Largest, Ratio, Total, num, product
from symcomm.core.graph.graph import Region
from symcomm.core.hardware.efficiency import Staircase
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program.instructions import COPIES
from symcomm.core.quantities.communication.call import SHORT, Call, joint
from symcomm.core.quantities.communication.links import crossed, spot, ways
from symcomm.core.quantities.communication.wire import Wire
from symcomm.core.quantities.counting.flops import each_entry, looped, shown
from symcomm.core.quantities.counting.load import TRAFFIC, Load, Moved, OpLoad, degrees, last_part, launches
from symcomm.core.quantities.machine import Machine, MachineLink
from symcomm.core.quantities.time.term_texts import LINK_TEXTS, USE_TEXTS, call_text, listed, moved_text, sustained
from symcomm.core.quantities.witnesses import number, often, passes, ran, size
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter, rests_on, slug, times
from symcomm.core.units import BYTE, ELEMENT, FLOP, ONE, Unit

SECOND = Unit.parse("second")
TERMS = ("compute", "memory", "network")
TAGS = {"forward": "fwd", "backward": "bwd", "end": "end"}
AT_ONCE = "Messages have no latency here; the small ones of a step may take most of the time with it (latency: 3 us)."


@dataclass(frozen=True)
class Sent:
    """The load of a group of calls on a link: elements with their format, and the rounds of messages."""

    link: MachineLink
    elements: Form
    dtype: str
    rounds: Form


@dataclass(frozen=True)
class Sending:
    """The traffic of one link: the names of the bytes, of the latencies and of their time."""

    link: MachineLink
    bytes: Form
    latency: Form | None
    time: Form


@dataclass(frozen=True)
class Terms:
    """The names of the three times, and of the amounts behind them; None where nothing is done."""

    compute: Form | None = None
    memory: Form | None = None
    network: Form | None = None
    flops: Form | None = None
    moved: Form | None = None
    sending: tuple[Sending, ...] = ()
    per_op: tuple[Form, ...] = ()

    @property
    def local(self) -> tuple[Form, ...]:
        """Computing and memory."""
        return tuple(t for t in (self.compute, self.memory) if t is not None)

    @property
    def every(self) -> tuple[Form, ...]:
        """All terms there are."""
        return (*self.local, *(() if self.network is None else (self.network,)))


@dataclass(frozen=True)
class TimedLaunch:
    """One op, or a kernel of several, by its ``label``: the times of its computing and of what it moves."""

    ops: tuple[OpLoad, ...]
    op: OpLoad
    label: str
    computing: Form | None
    moving: Form | None

    @property
    def region(self) -> str:
        """The region in which it runs."""
        return self.op.op.region


class TimeWriter:
    """Writes the terms of loads into one derivation."""

    def __init__(self, work: StepWriter, machine: Machine, strategy: Strategy) -> None:
        self.work, self.machine, self.strategy = work, machine, strategy
        self.setting: Setting = work.setting
        self._rate: Form | None = None
        self.steps_of: dict[str, set[str]] = {}

    def rate(self) -> Form:
        """The peak rate of the format, defined when it is first needed."""
        if self._rate is None:
            self._rate = self.machine.rate_of(self.work)
        return self._rate

    def total(self, name: str, parts: list[Form], unit: Unit, rule: str, text: str) -> Form | None:
        """A sum under a name; the part itself where there is one, None where there is none."""
        if len(parts) < 2:
            return parts[0] if parts else None
        return self.work.combine(name, Total(tuple(parts)), unit, rule, text)

    # -- amounts -------------------------------------------------------------------------------

    def flops(self, ops: Iterable[OpLoad], tag: str = "") -> Form | None:
        """The operations of one rank: a step for each row and phase, then their sum."""
        rows: dict[tuple[str, bool, int, str], list[OpLoad]] = {}
        for one in (one for one in ops if one.flops != num(0)):
            rows.setdefault((one.phase, one.again, one.op.row, one.op.region), []).append(one)
        targets = {op.row: op.output for op in self.setting.graph.ops}
        if any(one.flops == num(0) and "attention" in one.by for one in self.load.ops):
            self.setting.choice("attention")
        names: list[Form] = []
        for (phase, again, row, region), members in rows.items():
            form = members[0].flops if len(members) == 1 else Total(tuple(m.flops for m in members))
            name = f"F_{slug(targets.get(row, 'sum'))}^{'again' if again else TAGS[phase]}"
            made = self.work.define(name, form, FLOP, "count the loops", self._flops_text(members), members[0].op,
                                    partial(self._counted, self.load, members), rests_on(members))  # fmt: skip
            names.append(self.often(region, made))
        return self.total(f"F{tag}", names, FLOP, "add", "The operations of one rank.")

    def often(self, region: str, form: Form) -> Form:
        """A count of one repetition of a region, as often as it occurs in a load of several regions."""
        every = self.load.regions
        return next((times(r, form) for r in every if r.name == region and len(every) > 1), form)

    def _flops_text(self, members: list[OpLoad]) -> str:
        if not self.setting.told:
            return ""
        graph = self.load.graph
        what = " and ".join(dict.fromkeys(shown(graph, m.op) for m in members[:4])) or "the row"
        what += " and more" if len(members) > 4 else ""
        cuts = dict.fromkeys(mesh for m in members for _, mesh in m.cuts)
        many = [m for m in cuts if self.strategy.sizes[m] != num(1)]
        how = each_entry(graph, [m.op for m in members], self.setting.accounting.flops)
        shared = f"; the ranks of {listed(many)} share them" if many else ""
        if any(last_part(self.setting.accounting, m.pairs) for m in members):
            shared += ", and the one with the last positions has the most pairs"
        again = ", computed again" if members[0].again else ""
        return f"{what[0].upper()}{what[1:]}{again}: {how}{shared}."

    def moved(self, ops: Iterable[OpLoad], calls: Iterable[tuple[Form, str]], tag: str = "") -> Form | None:
        """The bytes through memory: tensors grouped by what they are moved for, and what the collectives move."""
        groups: dict[tuple[str, str, int, str, str], list[Moved]] = {}
        for one in ops:
            for m in one.moved:
                phase = "again" if one.again else TAGS[one.phase]
                groups.setdefault((m.use, phase, m.times, m.dtype, one.op.region), []).append(m)
        bytes_of: dict[str, list[Form]] = {}
        for (use, phase, count, dtype, region), members in groups.items():
            sizes = tuple(m.elements for m in members)
            form = product(num(count), sizes[0] if len(sizes) == 1 else Total(sizes))
            (letter, rule), witness = USE_TEXTS[use], partial(self._moved, count, members)
            text = moved_text(use, phase, count, members) if self.setting.told else ""
            name = self.work.define(f"m_{letter}^{phase}", form, ELEMENT, rule, text, witness=witness,
                                    by=rests_on(members))  # fmt: skip
            bytes_of.setdefault(dtype, []).append(self.often(region, name))
        calls = [*calls]
        if TRAFFIC[self.setting.accounting.traffic].collectives:
            for words, dtype in calls:
                bytes_of.setdefault(dtype, []).append(words)
        if calls and bytes_of:
            self.setting.choice("traffic")
        parts = [
            self.bytes(f"M{tag}", words, dtype, len(bytes_of) > 1, "Everything that goes through the memory.")
            for dtype, words in bytes_of.items()
        ]
        return self.total(f"M{tag}", parts, BYTE, "add", "All formats together.")

    def bytes(self, name: str, words: list[Form], dtype: str, several: bool, text: str) -> Form:
        """Elements as bytes."""
        size = element_bytes(dtype)
        count = words[0] if len(words) == 1 else Total(tuple(words))
        text += f" {said_bytes(size)[0].upper()}{said_bytes(size)[1:]} an element ({dtype})."
        name = f"{name}_{dtype}" if several else name
        return self.work.combine(name, product(size, count), BYTE, "bytes", text)

    def calls(self, calls: Iterable[tuple[str, Call]]) -> tuple[list[Sent], list[tuple[Form, str]]]:
        """The load of each group of calls on its links, and its part through the memory, with its format.

        The share of the payload follows from the algorithm; what of it counts for a link the convention says.
        """
        groups: dict[tuple[str, str, tuple[str, ...], str, str, str], list[Call]] = {}
        steps = self.machine.efficiency.messages if self.machine.efficiency is not None else None
        for phase, c in calls:
            alone = c.tensor if steps is not None else ""
            groups.setdefault((c.kind, phase, c.meshes, c.dtype, c.region.name, alone), []).append(c)
        sent: list[Sent] = []
        words: list[tuple[Form, str]] = []
        how = self.setting.accounting
        for (kind, phase, meshes, dtype, region, _), members in groups.items():
            k = members[0].ranks(self.strategy)
            if k == num(1):
                continue
            over = self.over(members[0], k)
            decided = (*rests_on(members), *self.ran_by(members[0], over))
            sizes = tuple(self.setting.written(c.elements) for c in members)
            name, many = f"{SHORT.get(kind, kind)},{TAGS[phase]}", Call.number(members)
            if f"n_{name}" in self.work.known:
                name += f",{joint(meshes).replace('_', '')}"
            n = self.work.define(f"n_{name}", sizes[0] if len(sizes) == 1 else Total(sizes), ELEMENT, kind,
                                 call_text(members) if self.setting.told else "", by=decided)  # fmt: skip
            for link, cost in over:
                part = f"{name},{link.name}" if len(over) > 1 else name
                text = f"{cost.how} {LINK_TEXTS[how.link][1]}"
                text += f" These bytes go over the links {spot(link)}." if len(over) > 1 else ""
                through = self.work.define(f"c_{part}", product(cost.through(how.link), n), ELEMENT,
                                           LINK_TEXTS[how.link][0], text, by=decided)  # fmt: skip
                for used in (link.name, *meshes):
                    self.steps_of.setdefault(used, set()).add(through.name)  # type: ignore[attr-defined]  # a name
                one_call = Ratio(product(element_bytes(dtype), through), many)
                waits = through if steps is None else Ratio(through, self._achieved(part, num(1), steps, one_call))
                through, waits = self.often(region, through), self.often(region, waits)
                if (how.link == "bidirectional" and not cost.own_links) or not TRAFFIC[how.traffic].collectives:
                    words.append((through, dtype))
                else:
                    text = "Sent and received bytes go through the memory."
                    made = self.work.define(f"w_{part}", product(cost.moved, n), ELEMENT, "through memory", text)
                    words.append((self.often(region, made), dtype))
                rounds = self.often(region, product(many, cost.rounds))
                sent.append(Sent(link, waits, dtype, rounds))
        return sent, words

    def transfer(self, name: str, load: Load) -> Form | None:
        """The time of calls without their latencies."""
        self.load = load
        sent = [replace(one, link=replace(one.link, latency=None)) for one in self.calls(load.calls)[0]]
        return self.network(sent, name, name[1:], [c for _, c in load.calls])[0]

    def ran_by(self, call: Call, over: Sequence[tuple[MachineLink, Wire]]) -> Iterator[str]:
        """The conventions by which so much goes over the links; what is copied to a tier goes one way, once."""
        if call.meshes in COPIES:
            return
        how = self.setting.accounting
        yield from ("link", *told(how.algorithm, [call.kind]))
        yield from ["rings"] if any(cost.own_links for _, cost in over) and how.rings == "both_ways" else []
        yield from ["rails"] if crossed(self.machine, self.strategy, how, call) is not None else []
        yield from ["torus"] if not algorithm(runs_by(how.algorithm, call.kind)).one_port else []

    def over(self, call: Call, k: Form) -> list[tuple[MachineLink, Wire]]:
        """The links that a call goes over, and what it costs on each of them."""
        return ways(self.machine, self.strategy, self.setting.accounting, call, k)

    def network(
        self, sent: list[Sent], time: str, tag: str, calls: Iterable[Call]
    ) -> tuple[Form | None, tuple[Sending, ...]]:  # fmt: skip
        """The time of what goes over the links, as calls of one rank follow one another; and that of each link."""
        by_link: dict[MachineLink, dict[str, list[Sent]]] = {}
        for one in sent:
            by_link.setdefault(one.link, {}).setdefault(one.dtype, []).append(one)
        found: list[Sending] = []
        for link, formats in by_link.items():
            label = f"_{link.name}{tag}" if len(by_link) > 1 else tag
            carried = f"Bytes over a link {spot(link)}." if len(by_link) > 1 else "Bytes over a link."
            parts = [
                self.bytes(f"V{label}", [one.elements for one in ones], dtype, len(formats) > 1, carried)
                for dtype, ones in formats.items()
            ]
            volume = self.total(f"V{label}", parts, BYTE, "add", "All formats together.")
            assert volume is not None
            form: Form = Ratio(volume, link.bandwidth)
            text = "Bytes over the bandwidth of the network"
            text = text if link.name == "network" else f"Bytes over the bandwidth of the links {spot(link)}"
            shares = ", of which it has this part." if link.cards else ", which share them."
            text += "." if link.count == num(1) else shares
            latency = None
            if link.latency is not None:
                rounds = tuple(one.rounds for ones in formats.values() for one in ones)
                count = self.work.define(f"r{label}", rounds[0] if len(rounds) == 1 else Total(rounds), ONE, "rounds",
                                         "Every round of messages takes one latency.")  # fmt: skip
                latency = self.work.define(f"t_latency{label}", product(count, link.latency), SECOND, "latency",
                                           "Rounds times latency.")  # fmt: skip
                form, text = Total((latency, form)), f"The latencies, and b{text[1:]}"
            name = f"t{label}" if len(by_link) > 1 else time
            witness = partial(self._sends, [*calls], self.load.regions, link)
            made = self.work.define(name, form, SECOND, "network", text, witness=witness)
            found.append(Sending(link, volume, latency, made))
        text = "The calls of a rank follow one another, each over its links."
        return self.total(time, [one.time for one in found], SECOND, "add", text), tuple(found)

    def told(self, steps: Iterable[Step]) -> tuple[str, ...]:
        """Where the axes of the mesh lie, which links were named to no effect, and that messages have no latency."""
        kept = {step.name for step in steps}
        idle = [name for name in self.machine.named if not kept & self.steps_of.get(name, set())]
        said = f"Nothing in this answer is sent {' or '.join(map(spot, idle))}: `links` changes nothing there."
        return (*self.machine.notes, *([said] if idle else []), *([AT_ONCE] if self.at_once else []))

    @property
    def at_once(self) -> bool:
        """Whether messages of a decode step have a bandwidth in numbers, but no latency: they are small there."""
        machine, step = self.machine, self.setting.graph.step
        links = [*machine.levels, *(link for route in machine.routes.values() for link, _ in route)]
        late = machine.latency is not None or any(link.latency is not None for link in links)
        rates = {rate.name for rate in (machine.network, *machine.of_links)} & dict(machine.given).keys()
        return bool(step is not None and step.phase == "decode" and self.steps_of and rates) and not late

    # -- terms ---------------------------------------------------------------------------------

    def terms(self, load: Load, tag: str = "", only: Collection[str] = TERMS) -> Terms:
        """The wanted terms of a load: amounts over rates."""
        self.load = load
        machine, work = self.machine, self.work
        if not load.ops and not load.calls:
            return Terms()
        sent, words = self.calls(load.calls)
        tabled = machine.efficiency is not None
        each = [self.launch(ops) for ops in launches(load)] if tabled else []
        computing = [self.often(one.region, one.computing) for one in each if one.computing is not None]
        moving = [self.often(one.region, one.moving) for one in each if one.moving is not None]
        computing, moving = computing if "compute" in only else [], moving if "memory" in only else []
        if tabled and moving and TRAFFIC[self.setting.accounting.traffic].collectives:
            moving += [Ratio(product(element_bytes(dtype), form), machine.memory) for form, dtype in words]
        done = None if tabled or "compute" not in only else self.flops(load.ops, tag)
        moved = None if tabled or "memory" not in only else self.moved(load.ops, words, tag)
        computing = computing if done is None else [Ratio(done, machine.sustained(self.rate()))]
        moving = moving if moved is None else [Ratio(moved, machine.sustained(machine.memory))]
        compute = memory = None
        if computing:
            text, witness = "Operations over the peak rate", partial(self.computes, load, machine.usual(self.rate()))
            compute = work.define(f"t_compute{tag}", _sum(tuple(computing)), SECOND, "computing",
                                  sustained(text, machine), witness=witness)  # fmt: skip
        if moving:
            text = sustained("Bytes over the bandwidth of the memory", machine)
            memory = work.define(f"t_memory{tag}", _sum(tuple(moving)), SECOND, "memory", text,
                                 witness=partial(self.moves, load))  # fmt: skip
        if "network" not in only:
            return Terms(compute, memory, None, done, moved)
        network, sending = self.network(sent, f"t_network{tag}", tag, [c for _, c in load.calls])
        per_op: tuple[Form, ...] = ()
        if self.setting.accounting.time == "per_op":
            every = each if tabled else (self.launch(ops) for ops in launches(load))
            per_op = tuple(self.often(one.region, self.one_op(one, tag)) for one in every)  # behind its own amounts
        return Terms(compute, memory, network, done, moved, sending, per_op)

    def _passes(self, terms: Terms, numbers: Numbers) -> Fraction:
        """When the last unit is done: units that work side by side, or one piece of work after the other."""
        how, now = self.setting.accounting.time, Fraction(0)
        if how == "roofline":
            now = max((number(piece, numbers) for piece in terms.local), default=now)
            return now + (number(terms.network, numbers) if terms.network is not None else 0)
        pieces = (*terms.per_op, *filter(None, [terms.network])) if how == "per_op" else terms.every
        for piece in pieces:
            now = max(now, number(piece, numbers)) if how == "overlap" else now + number(piece, numbers)
        return now

    # -- witnesses: one op, one tensor and one call after the other ------------------------------

    @staticmethod
    def _stands(regions: Sequence[Region], region: str, numbers: Numbers) -> Fraction:
        """How often one of several regions stands."""
        count = next((r for r in regions if r.name == region and len(regions) > 1), None)
        return Fraction(1) if count is None else often(count, numbers)

    def computes(self, load: Load, rate: Form, numbers: Numbers) -> Fraction:
        """The loops of every op, shared by the ranks, at the rate of the processor, or at what each launch achieves."""
        steps = self.steps_of_products
        done = Fraction(0)
        for ops in launches(load) if steps is not None else [load.ops]:
            counted = [(one, self._counted(load, [one], numbers)) for one in ops if one.flops != num(0)]
            ran = sum((self._stands(load.regions, one.op.region, numbers) * many for one, many in counted), Fraction(0))
            once = sum((many for _, many in counted), Fraction(0))
            done += ran / steps.number((once,)) if steps is not None and once else ran
        return done / number(rate, numbers)

    def _counted(self, load: Load, ops: Sequence[OpLoad], numbers: Numbers) -> Fraction:
        """The loops of ops, one after the other, shared by the ranks."""
        done = Fraction(0)
        for one in ops:
            last = last_part(self.setting.accounting, one.pairs)
            mine, parts = [(Region(load.graph.name), one.op)], degrees(self.strategy, last)
            ran = looped(self.setting.accounting, load.graph, mine, numbers, parts)
            done += ran / passes(number(self.strategy.sizes[m], numbers) for _, m in one.cuts if m not in last)
        return done

    @staticmethod
    def _moved(times: int, members: Sequence[Moved], numbers: Numbers) -> Fraction:
        """Tensor after tensor, as often as each goes through the memory."""
        return sum((number(m.elements, numbers) for m in members for _ in range(times)), Fraction(0))

    def moves(self, load: Load, numbers: Numbers) -> Fraction:
        """Every tensor that goes through the memory, and what the calls send and receive."""
        moved, how = Fraction(0), self.setting.accounting
        steps = self.machine.efficiency.memory if self.machine.efficiency is not None else None
        for ops in launches(load) if steps is not None else [load.ops]:
            each = [(one, m.times * element_bytes(m.dtype).number * number(m.elements, numbers))
                    for one in ops for m in one.moved]  # fmt: skip
            ran = sum((self._stands(load.regions, one.op.region, numbers) * many for one, many in each), Fraction(0))
            once = sum((many for _, many in each), Fraction(0))
            moved += ran / steps.number((once,)) if steps is not None and once else ran
        for _, c in load.calls if TRAFFIC[how.traffic].collectives else ():
            for _, cost in self.over(c, c.ranks(self.strategy)):
                both = cost.through(how.link) if how.link == "bidirectional" and not cost.own_links else cost.moved
                moved += self._carried(load.regions, c, number(both, numbers), numbers)
        return moved / number(self.machine.usual(self.machine.memory), numbers)

    def _sends(self, calls: Sequence[Call], regions: Sequence[Region], link: MachineLink, numbers: Numbers) -> Fraction:
        """Every call over a link after the one before it, run message by message."""
        found, how = Fraction(0), self.setting.accounting
        steps = self.machine.efficiency.messages if self.machine.efficiency is not None else None
        for c in calls:
            k = c.ranks(self.strategy)
            for mine, cost in self.over(c, k) if k != num(1) else ():
                if mine.name != link.name:
                    continue
                ranks = number(k, numbers)
                alone = len(self.over(c, k)) == 1
                made = ran(c.kind, cost.by, ranks, numbers, how.rings == "both_ways", how.torus) if alone else None
                part, rounds = (number(f, numbers) for f in (cost.through(how.link), cost.rounds))
                if made is not None:
                    both = 2 * made.path if cost.own_links else made.moved
                    part, rounds = both if how.link == "bidirectional" else made.path, Fraction(made.rounds)
                carried = self._carried(regions, c, part, numbers)
                stands = self._stands(regions, c.region.name, numbers) * number(c.positions, numbers)
                if steps is not None:
                    carried /= steps.number((carried / stands,))
                found += carried / number(link.bandwidth, numbers)
                if link.latency is not None:
                    found += stands * rounds * number(link.latency, numbers)
        return found

    def _carried(self, regions: Sequence[Region], call: Call, part: Fraction, numbers: Numbers) -> Fraction:
        wide = element_bytes(call.dtype).number
        return self._stands(regions, call.region.name, numbers) * part * wide * size(call.elements, numbers)

    @property
    def steps_of_products(self) -> Staircase | None:
        """The table of what products achieve in the format that they are computed in."""
        found = self.machine.efficiency
        return None if found is None else found.of_products(self.setting.product_dtype)

    def launch(self, ops: Sequence[OpLoad]) -> TimedLaunch:
        """The operations and the bytes of one op, or of a kernel of several, each over what it achieves."""
        op = next((one for one in ops if not one.again), ops[0])
        work, table = self.work, self.machine.efficiency
        what = " and ".join(dict.fromkeys(shown(self.load.graph, one.op) for one in ops))
        label = f"{slug(op.op.output)}^{'again' if op.again else TAGS[op.phase]}"
        flops = op.flops if len(ops) == 1 else Total(tuple(one.flops for one in ops))
        computing: Form | None = None
        counted = any(one.flops != num(0) for one in ops)
        if table is None or counted:
            done = work.define(f"f_{label}", flops, FLOP, "one op", f"Operations of {what}.", op.op,
                               by=rests_on(ops))  # fmt: skip
            computing = Ratio(done, self._achieved(label, self.rate(), self.steps_of_products, done))
        formats: dict[str, list[Form]] = {}
        for m in (m for one in ops for m in one.moved):
            formats.setdefault(m.dtype, []).append(product(num(m.times), m.elements))
        parts: list[Form] = []
        for dtype, sizes in formats.items():
            name = f"m_{label}" + (f",{dtype}" if len(formats) > 1 else "")
            count = work.define(name, sizes[0] if len(sizes) == 1 else Total(tuple(sizes)), ELEMENT, "one op",
                                f"The tensors that {what} move through the memory." if len(ops) > 1
                                else f"Bytes that {what} reads and writes.", op.op,
                                by=rests_on(m for one in ops for m in one.moved))  # fmt: skip
            parts.append(product(element_bytes(dtype), count))
        moving: Form | None = None
        if parts:
            moved = parts[0] if len(parts) == 1 else Total(tuple(parts))
            steps = table.memory if table is not None else None
            moving = Ratio(moved, self._achieved(label, self.machine.memory, steps, moved))
        return TimedLaunch(tuple(ops), op, label, computing, moving)

    def _achieved(self, label: str, rate: Form, steps: Staircase | None, amount: Form) -> Form:
        """What is achieved of a rate, with a name for the share that a table says."""
        if steps is None:
            return self.machine.usual(rate)
        letter = {"products": "e", "memory": "e_mem", "messages": "e_net"}[steps.name]
        name = f"{letter}_{label}" if letter == "e" else f"{letter},{label}"
        share = self.work.define(name, steps.of(amount), ONE, "table", f"The share of the table of {steps.name}.",
                                 witness=lambda numbers: steps.number((number(amount, numbers),)))  # fmt: skip
        return product(share, rate)

    def one_op(self, launch: TimedLaunch, tag: str) -> Form:
        """The time of one launch alone: the longer of its computing and its memory traffic."""
        times = [form for form in (launch.computing, launch.moving) if form is not None]
        return self.work.define(f"t_{launch.label}{tag}", _largest(tuple(times)) if times else num(0), SECOND,
                                "one op", "The longer of computing and memory.", launch.op.op,
                                partial(self._alone, launch.ops))  # fmt: skip

    def _alone(self, ops: Sequence[OpLoad], numbers: Numbers) -> Fraction:
        """A launch by itself, once: the loops of its ops, or the tensors that it moves."""
        once = Load(self.load.graph, self.strategy, tuple(ops), ())
        return max(self.computes(once, self.machine.usual(self.rate()), numbers), self.moves(once, numbers))

    def time(self, name: str, terms: Terms, what: str) -> Form | None:
        """The time of a load from its terms, as the convention combines them."""
        if not terms.every:
            return None
        alone = len(terms.every) == 1 and len(self.load.ops) < 2  # there is nothing to combine
        how = self.setting.accounting.time if alone else self.setting.choice("time")
        form, text = COMBINED[how](terms)
        return self.work.define(name, form, SECOND, how.replace("_", " "), f"{what}: {text}",
                                witness=partial(self._passes, terms))  # fmt: skip

    def local(self, name: str, terms: Terms, what: str) -> Form | None:
        """The time without the network."""
        if not terms.local:
            return None
        alone = Terms(terms.compute, terms.memory, None, per_op=terms.per_op)
        form, text = COMBINED[self.setting.choice("time")](alone)
        return self.work.define(name, form, SECOND, "without the network", f"{what}: {text}",
                                witness=partial(self._passes, alone))  # fmt: skip


def _largest(parts: tuple[Form, ...]) -> Form:
    return parts[0] if len(parts) == 1 else Largest(parts)


def _sum(parts: tuple[Form, ...]) -> Form:
    return parts[0] if len(parts) == 1 else Total(parts)


def _per_op(terms: Terms) -> tuple[Form, str]:
    sent = () if terms.network is None else (terms.network,)
    return _sum((*terms.per_op, *sent)), "one op after the other, and the collectives between them."


# One row a convention of time: the form it makes of the terms, and how a reader is told.
COMBINED: dict[str, Callable[[Terms], tuple[Form, str]]] = {
    "overlap": lambda terms: (_largest(terms.every), "the longest of the terms."),
    "serial": lambda terms: (_sum(terms.every), "the terms one after the other."),
    "roofline": lambda terms: (
        _sum((*((_largest(terms.local),) if terms.local else ()), *terms.every[len(terms.local) :])),
        "computing or memory, then the network.",
    ),
    "per_op": _per_op,
}
