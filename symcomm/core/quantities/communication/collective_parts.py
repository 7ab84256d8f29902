"""The common parts of the passes on collectives: checked numbers of a call, and its steps to seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import prod

from symcomm.core import form as forms
from symcomm.core.collectives.algorithms import BETWEEN, Algorithm, algorithm, runs_by
from symcomm.core.collectives.bounds import BOUNDS, LowerBound
from symcomm.core.collectives.cost import TWO, ZERO, Case, Exchange, Phase, plus, times
from symcomm.core.collectives.messages import run
from symcomm.core.derivation import Derivation, Exhibit, Numbers, Reason, Step, Witness, exact
from symcomm.core.dtypes import element_bytes, said_bytes
from symcomm.core.errors import DerivationError, ValuesError
from symcomm.core.form import Ceiling, Form, Num, Product, Ratio, Sym, evaluate, product
from symcomm.core.notation import Notation
from symcomm.core.quantities.witnesses import number
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting, rests_on
from symcomm.core.units import BYTE, ONE, Quantity, Unit

SECOND = Unit.parse("second")
RATE = Unit.parse("byte/second")


@dataclass(frozen=True)
class Amount:
    """A symbol of a call: how an option is called that gives it, its unit, and what it means."""

    name: str
    option: str
    meaning: str
    unit: Unit = ONE
    whole: bool = True
    least: int = 1

    @property
    def form(self) -> Sym:
        """The symbol in a formula."""
        return Sym(self.name, self.whole, self.unit)


SYMBOLS: dict[str, Amount] = {
    s.option: s
    for s in (
        Amount("n", "payload", "bytes of the full tensor", BYTE),
        Amount("k", "ranks", "number of ranks in the collective", least=2),
        Amount("alpha", "latency", "latency of a message", SECOND, False),
        Amount("W", "bandwidth", "bandwidth of a link in one direction", RATE, False),
        Amount("W_red", "reduction", "bytes a rank adds per second", RATE, False),
        Amount("alpha_out", "latency_between", "latency of a message between nodes", SECOND, False),
        Amount("W_out", "bandwidth_between", "bandwidth between nodes, of one rank in one direction", RATE, False),
        Amount("q", "chunks", "number of chunks of the pipeline"),
        Amount("g", "group", "number of ranks in a node"),
        Amount("k_x", "x_ranks", "number of ranks along the first axis"),
        Amount("k_y", "y_ranks", "number of ranks along the second axis"),
    )
}


@dataclass(frozen=True)
class TimedCall:
    """A collective to be timed: its kind, the number format, the directions of its rings, and the known numbers.

    Where no ``directions`` are given, the convention ``rings`` tells them.
    """

    kind: str
    element: Num | None
    directions: int | None
    known: Mapping[str, Fraction]
    rank_symbol: str = "k"

    def symbol(self, option: str) -> Sym:
        """The symbol of an option."""
        found = SYMBOLS[option].form
        return replace(found, name=self.rank_symbol) if option == "ranks" else found


def read_call(
    setting: Setting, collective: str, dtype: str | None, directions: object, options: Mapping[str, object]
) -> TimedCall:
    """The call that options describe; every number is checked.

    Raises ``ValuesError`` for a number that makes no sense or has the wrong unit.
    """
    rank_symbol = "k"
    known: dict[str, Fraction] = {}
    for option, symbol in SYMBOLS.items():
        value = options.get(option)
        name = symbol.name
        if option == "ranks" and isinstance(value, str) and value[:1].isalpha():
            name, value = value, None
            if other := next((s for s in SYMBOLS.values() if s.name == name and s.option != "ranks"), None):
                raise ValuesError(f"'{name}' cannot name the ranks: it is the {other.meaning}")
            rank_symbol = name
        if value is None and name in setting.values:
            value = setting.values[name]
        if value is not None:
            known[name] = _number(symbol, value)
    if directions not in (None, 1, 2):
        raise ValuesError(f"directions = {directions}: a ring runs in 1 or 2 directions")
    element = element_bytes(dtype) if dtype else None
    n = known.get("n")
    if n is not None and element is not None and (n / element.number).denominator != 1:
        raise ValuesError(f"a payload of {n} B is no whole number of {dtype} elements of {said_bytes(element)}")
    return TimedCall(collective, element, None if directions is None else 1 + (directions == 2), known, rank_symbol)


def _number(symbol: Amount, value: object) -> Fraction:
    what = f"the {symbol.option.replace('_', ' ')}"
    if isinstance(value, str):
        value = Quantity.parse(value)
    number = exact(value, what)
    if isinstance(value, Quantity) and value.unit not in (ONE, symbol.unit):
        wanted = f"in {symbol.unit}" if symbol.unit != ONE else "a plain number"
        hint = f"write {value.unit}/s for a rate" if value.unit * RATE == symbol.unit * BYTE else ""
        raise ValuesError(f"{what} is given in {value.unit}, but it is {wanted}: the {symbol.meaning}", hint=hint)
    if symbol.option == "ranks" and number == 1:
        raise ValuesError("one rank has nobody to exchange with: it moves 0 bytes", hint="give at least two ranks")
    if number <= 0:
        hint = "to leave latency out, count under message_cost: bandwidth_only" if symbol.unit == SECOND else ""
        raise ValuesError(f"{what} is {number}, but it must be positive", hint=hint)
    if symbol.whole and number.denominator != 1:
        raise ValuesError(f"{what} is {number}, but it must be a whole number")
    return number


class CallWriter:
    """Writes a call's steps under one algorithm."""

    def __init__(self, setting: Setting, call: TimedCall, record: Algorithm) -> None:
        self.setting, self.accounting, self.call, self.record = setting, setting.accounting, call, record
        self.steps: list[Step] = []
        self.chunks: dict[tuple[Form, Form], Form] = {}
        self.named: dict[str, Form] = {}
        setting.runs_by(call.kind)

    def define(
        self, name: str, form: Form, unit: Unit, rule: str, text: str, witness: Witness | None = None
    ) -> Sym:  # fmt: skip
        """A step that names a form."""
        taken = {*self.named, *(s.name for s in SYMBOLS.values()), self.call.rank_symbol}
        while name in taken:
            name += "'"
        self.steps.append(Step(name, form, unit, Reason(rule, text, witness=witness), by=self.setting.taken()))
        self.named[name] = form
        return Sym(name)

    def written_out(self, form: Form) -> Form:
        """A form with the names of earlier steps replaced by what they stand for."""
        return forms.substitute(form, lambda s: self.written_out(self.named[s.name]) if s.name in self.named else s)

    # -- bytes ---------------------------------------------------------------------------------

    def split(self, of: Form, parts: Form) -> Form:
        """One of so many equal chunks, as a step of its own."""
        if (of, parts) in self.chunks:
            return self.chunks[of, parts]
        self._enough(of, parts)
        unit = self.call.element
        if self.setting.choice("chunks") == "divisible":
            form, text = times(of, Ratio(forms.num(1), parts)), "The payload is cut into equal chunks."
        elif unit is None or unit.number == 1:
            form, text = Ceiling(Ratio(of, parts)), "The payload is cut into equal chunks of whole bytes."
        else:
            form = product(unit, Ceiling(Ratio(of, product(unit, parts))))
            text = f"The payload is cut into equal chunks of whole elements; an element takes {said_bytes(unit)}."
        name = "c" if not self.chunks else f"c_{len(self.chunks) + 1}"
        self.chunks[of, parts] = self.define(name, form, BYTE, "chunk", text)
        return self.chunks[of, parts]

    def _enough(self, of: Form, parts: Form) -> None:
        """Refuses more chunks than elements, where the numbers are known."""
        used = {*forms.names(self.written_out(of)), *forms.names(self.written_out(parts))}
        if not used <= {*self.call.known}:
            return
        size = self.call.element.number if self.call.element else Fraction(1)
        elements = forms.evaluate(self.written_out(of), self.call.known) / size
        count = forms.evaluate(self.written_out(parts), self.call.known)
        if count > elements:
            kind = "elements" if self.call.element and size != 1 else "bytes"
            raise ValuesError(
                f"{count} chunks are more than the {elements} {kind} that are to be cut",
                hint="take a larger payload, fewer ranks or fewer chunks",
            )

    def let(self, name: str, form: Form, text: str) -> Form:
        """A count that an algorithm names."""
        return self.define(name, form, ONE, "count", f"{text[0].upper()}{text[1:]}.")

    def exchange(self) -> Exchange:
        """The phases of the call, with chunks and counts as steps."""
        call, record = self.call, self.record
        rings = record.name in _TWO_WAYS and not (record.inner and call.kind == "all-to-all")
        if call.directions == 2 and not rings:
            raise ValuesError(
                f"the algorithm '{record.name}' runs in one direction", hint="two directions: " + ", ".join(_TWO_WAYS)
            )
        ways = call.directions or 1
        if call.directions is None and rings and self.accounting.rings == "both_ways":
            ways = 2
            self.setting.choice("rings")
        self.at_once = record.uses_at_once(self.accounting.torus if record.one_port else self.setting.choice("torus"))
        self.own_links = ways == 2 or self.at_once
        k = call.symbol("ranks")
        inner = tuple(SYMBOLS[_OPTION[name]].form for name in record.inner)
        self._whole_levels(call.known.get(k.name), record)
        self.plain = Case(
            call.symbol("payload"), k, chunks=SYMBOLS["chunks"].form, nodes=inner, directions=ways, at_once=self.at_once
        )
        return record.run(call.kind, replace(self.plain, split=self.split, let=self.let))

    def counted(self, numbers: Numbers) -> Exchange:
        """The exchange among so many ranks, in chunks of so many bytes, held against a run message by message."""
        plain, wide = self.plain, self.call.element.number if self.call.element else Fraction(1)

        def put(form: Form) -> Num:
            return Num(number(form, numbers))

        def split(of: Form, parts: Form) -> Form:
            pieces = evaluate(parts, {})
            size = evaluate(of, {}) / pieces
            return Num(size if self.accounting.chunks == "divisible" else -(-size // wide) * wide)

        nodes = tuple(map(put, plain.nodes))
        case = replace(plain, n=put(plain.n), k=put(plain.k), chunks=put(plain.chunks), nodes=nodes, split=split)
        made = self.record.run(self.call.kind, case)
        sizes = [evaluate(node, {}) for node in nodes] if self.record.inner else []
        sizes += [evaluate(case.k, {}) / prod(sizes)] if sizes else []
        ranks, chunks, *sizes = (evaluate(case.k, {}), evaluate(case.chunks, {}), *sizes)
        if any(size.denominator != 1 for size in (ranks, chunks, *sizes)):
            return made
        ran = run(self.record.name, self.call.kind, int(ranks), evaluate(case.n, {}),
                  None if self.accounting.chunks == "divisible" else wide, int(chunks) if self.record.chunked else 1,
                  tuple(map(int, sizes)), plain.directions == 2, self.at_once)  # fmt: skip
        for name in ("rounds", "path", "reduced", "sent", "received", "moved", "total") if ran is not None else ():
            found, written = Fraction(getattr(ran, name)), evaluate(getattr(made, name), {})
            if found != written:
                raise DerivationError(f"{self.call.kind} among {ranks} ranks by {self.record.name}: the messages have "
                                      f"{name} {found}, not {written}")  # fmt: skip
        return made

    def clocked(self, groups: Mapping[bool, Sequence[Phase]], numbers: Numbers) -> Fraction:
        """The time of the exchange: every round waits for a message, and the bytes follow one another."""
        made, cost, found = self.counted(numbers), self.accounting.message_cost, Fraction(0)
        for phase in made.phases:
            between = phase.link == BETWEEN
            alpha, width = ((numbers[SYMBOLS[f"{what}_between" if between else what].name])
                            for what in ("latency", "bandwidth"))  # fmt: skip
            found += evaluate(phase.rounds, {}) * alpha if cost != "bandwidth_only" else 0
            both = self.accounting.link == "bidirectional" and len(groups) == 1
            found += 0 if both else evaluate(phase.path, {}) / width
            if cost == "alpha_beta_gamma":
                found += evaluate(phase.reduced, {}) / numbers[SYMBOLS["reduction"].name]
        if self.accounting.link == "bidirectional" and len(groups) == 1:
            found += (2 * evaluate(made.path, {}) if self.own_links else evaluate(made.moved, {})) / width
        return found

    def _whole_levels(self, ranks: Fraction | None, record: Algorithm) -> None:
        inside = Fraction(1)
        for name in record.inner:
            if name not in self.call.known or ranks is None:
                return
            inside *= self.call.known[name]
        if ranks is not None and (ranks / inside).denominator != 1:
            said = " x ".join(f"{name} = {self.call.known[name]}" for name in record.inner)
            raise ValuesError(f"{ranks} ranks do not divide into groups of {said}")

    # -- seconds -------------------------------------------------------------------------------

    def timed(self, name: str = "T") -> tuple[Exchange, Form]:
        """Writes latency, bandwidth and reduction as separate steps, and their sum; gives the exchange and the time."""
        made, cost, link = self.exchange(), self.setting.choice("message_cost"), self.setting.choice("link")
        groups: dict[bool, list[Phase]] = {}
        for phase in made.phases:
            groups.setdefault(phase.link == BETWEEN, []).append(phase)
        several = len(groups) > 1
        parts: dict[str, list[Form]] = {"lat": [], "bw": [], "red": []}
        for between, phases in groups.items():
            tag = ("_out" if between else "_in") if several else ""
            where = (" between nodes" if between else " inside the nodes") if several else ""
            alpha = SYMBOLS["latency_between" if between else "latency"].form
            width = SYMBOLS["bandwidth_between" if between else "bandwidth"].form
            said = " ".join(dict.fromkeys(p.what for p in phases))
            if cost != "bandwidth_only":
                count = self.define(f"R{tag}", plus(*(p.rounds for p in phases)), ONE, "rounds", said)
                form = product(count, alpha)
                parts["lat"].append(self.define(
                    f"T_lat{tag}", form, SECOND, "latency", f"Each round{where} waits for one message."))  # fmt: skip
            if link == "bidirectional" and not several:
                through, text = made.moved, "The bytes that the busiest rank sends and receives share the link."
                if self.own_links:
                    through = times(TWO, made.path)
                    text = "The bytes that a link carries in both directions."
            else:
                through = plus(*(p.path for p in phases))
                text = f"Bytes sent one after another{where}, in the busier direction of a link."
            volume = self.define(f"S{tag}", through, BYTE, "bytes", text)
            parts["bw"].append(self.define(
                f"T_bw{tag}", Ratio(volume, width), SECOND, "bandwidth",
                f"These bytes over the bandwidth of a link{where}."))  # fmt: skip
            added = plus(*(p.reduced for p in phases))
            if cost == "alpha_beta_gamma" and added != ZERO:
                more = self.define(f"A{tag}", added, BYTE, "reduction", f"Bytes that are added{where}.")
                rate, text = SYMBOLS["reduction"].form, "A rank adds them at its rate."
                parts["red"].append(self.define(f"T_red{tag}", Ratio(more, rate), SECOND, "reduction", text))
        terms = [t for group in parts.values() for t in group]
        whole = self.define(name, plus(*terms), SECOND, "add", "The terms happen one after another.",
                            witness=partial(self.clocked, groups))  # fmt: skip
        closed = self.closed(plus(*terms))
        if closed != self.named[whole.name]:
            self.steps.append(Step(whole.name, closed, SECOND, Reason("algebra", "Substitute the names."), "="))
        return made, whole

    def closed(self, form: Form) -> Form:
        """A sum with every name put in, each term one fraction."""
        terms = form.terms if isinstance(form, forms.Total) else (form,)
        written = map(self.written_out, terms)
        return plus(*(times(*(t.factors if isinstance(t, Product) else (t,))) for t in written))


_TWO_WAYS = ("ring", "hierarchical", "torus_2d", "torus_3d")
_OPTION = {s.name: s.option for s in SYMBOLS.values()}


def notation(setting: Setting, rank_symbol: str = "k") -> Notation:
    """The setting's names with those of a call."""
    meanings = {s.name: s.meaning for s in SYMBOLS.values()} | {rank_symbol: SYMBOLS["ranks"].meaning}
    greek = {"alpha_out": r"\alpha_{\text{out}}"}
    return Notation({**greek, **setting.notation.latex}, {**meanings, **setting.notation.meanings})


def running(setting: Setting, kind: str, name: str | None) -> tuple[Setting, Algorithm]:
    """The setting with the algorithm that an option names, and its record; the accounting's own one otherwise."""
    if name is None:
        return setting, algorithm(runs_by(setting.accounting.algorithm, kind))
    record = algorithm(name).running(kind)
    return replace(setting, accounting=replace(setting.accounting, algorithm=record.name)), record


def bounds(call: TimedCall, made: Exchange, written_out: CallWriter) -> Exhibit:
    """The cost of the algorithm beside the least cost over one port."""
    bound: LowerBound = BOUNDS[call.kind]
    n, k = call.symbol("payload"), call.symbol("ranks")
    rows: list[tuple[str | Form | Quantity, ...]] = [
        ("rounds", written_out.closed(made.rounds), bound.rounds(k)),
        ("bytes one after another", written_out.closed(made.path), bound.path(n, k)),
        ("bytes the busiest rank sends", written_out.closed(made.sent), "none"),
        ("bytes of all ranks", written_out.closed(made.total), "none"),
    ]
    if bound.reduces:
        rows.append(("bytes added one after another", written_out.closed(made.reduced), bound.reduced(n, k)))
    return Exhibit("Beside the lower bounds", ("what", "this algorithm", "least possible"), tuple(rows))


def derivation(
    setting: Setting, writer: CallWriter, title: str, exhibits: tuple[Exhibit, ...], notes: tuple[str, ...]
) -> Derivation:
    """The derivation of a writer's steps."""
    appear = {name for step in writer.steps for name in forms.names(step.form)}
    given = tuple((name, v) for name, v in writer.call.known.items() if name in appear)
    return Derivation(
        title, writer.accounting, tuple(writer.steps), rests_on(writer.steps), setting.graph.relations,
        exhibits, given, notation(setting, writer.call.rank_symbol), notes,
    )  # fmt: skip
