"""The time of a collective under an algorithm, step by step, and the bandwidth of a measured one."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Annotated, Unpack

from symcomm.core.collectives.bounds import BOUNDS
from symcomm.core.collectives.cost import ONE as NUMBER_ONE
from symcomm.core.collectives.cost import times
from symcomm.core.derivation import Derivation, Numbers, Reason, Step, exact, worked_out
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Product, Ratio, Sym, evaluate, names
from symcomm.core.quantities import options
from symcomm.core.quantities.communication import collective_parts as parts
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Amount, CollectiveName, Measured, NoModel
from symcomm.core.quantities.witnesses import number, ran
from symcomm.core.units import ONE, Quantity


def derive_collective_time(
    setting: options.NoModel,
    collective: options.CollectiveName = "all-reduce",
    algorithm: options.AlgorithmName | None = None,
    dtype: options.ElementDtype | None = None,
    directions: options.Directions | None = None,
    **numbers: Unpack[options.CallNumbers],
) -> Derivation:
    """The time of a collective under an algorithm.

    ``algorithm`` comes before that of the accounting. Numbers that are left out stay symbols. Raises
    ``ValuesError`` for numbers that make no sense, ``AccountingError`` for an algorithm that cannot run the collective.

    >>> from symcomm.core.graph.graph import Graph
    >>> from symcomm.core.setting import Setting
    >>> ring = derive_collective_time(Setting(Graph("no model", {}, {}, ())), payload="8 MB", ranks=8, latency="20 us",
    ...               bandwidth="100 GB/s")
    >>> str(ring.at())
    '0.00042 s = 420 µs'
    """
    call = parts.read_call(setting, collective, dtype, directions, numbers)
    setting, record = parts.running(setting, call.kind, algorithm)
    writer = parts.CallWriter(setting, call, record)
    made, _ = writer.timed()
    notes = [f"Algorithm: {record.source}."]
    if collective in record.notes:
        notes.insert(0, record.notes[collective])
    notes.append(f"Lower bounds, for ranks that use one port: {BOUNDS[collective].source}.")
    title = f"Time of {collective} by {record.name.replace('_', ' ')}"
    return parts.derivation(setting, writer, title, (parts.bounds(call, made, writer),), tuple(notes))


_RINGS = ("all-reduce", "all-gather", "reduce-scatter")  # which a ring does with the least bytes


def derive_collective_bandwidth(
    setting: NoModel,
    collective: CollectiveName = "all-reduce",
    time: Annotated[Amount, Meaning("the measured time of one call")] = None,
    **numbers: Unpack[Measured],
) -> Derivation:
    """The algorithm or bus bandwidth of a measured collective.

    Payload over time (``algbw``), or what a rank must move at least over time (``busbw``).

    The bus bandwidth can be compared with that of a link, whatever the number of ranks; a note says where it
    is above the ``bandwidth`` of the given link.

    >>> from symcomm.core.graph.graph import Graph
    >>> from symcomm.core.setting import Setting
    >>> from symcomm.core.accounting import Accounting
    >>> setting = Setting(Graph("no model", {}, {}, ()), Accounting.of("busbw"))
    >>> str(derive_collective_bandwidth(setting, payload="8 GB", ranks=8, time="1/4 s").at())
    '56 000 000 000 B/s = 56 GB/s'
    """
    call = parts.read_call(setting, collective, None, None, numbers)
    known = dict(call.known)
    if time is not None:
        quantity = Quantity.parse(time) if isinstance(time, str) else Quantity(exact(time, "the time"))
        if quantity.unit not in (ONE, parts.SECOND):
            raise ValuesError(f"the time is given in {quantity.unit}, but it is in {parts.SECOND}")
        if quantity.value <= 0:
            raise ValuesError(f"the time is {quantity.value}, but it must be positive")
        known["t"] = quantity.value
    n, k, t = call.symbol("payload"), call.symbol("ranks"), Sym("t", False, parts.SECOND)
    steps = [
        Step(
            "algbw",
            Ratio(n, t),
            parts.RATE,
            Reason("algorithm bandwidth", "The payload over the time.", witness=partial(worked_out, Ratio(n, t))),
        )
    ]
    factor = BOUNDS[collective].share(k)
    if setting.accounting.bandwidth == "busbw" and factor != NUMBER_ONE:

        def busy(numbers: Numbers) -> Fraction:
            """The bytes over the link of a rank of a ring: all-reduce both ways, other collectives half of it."""
            made = ran(collective, "ring", number(k, numbers), numbers) if collective in _RINGS else None
            moved = made.sent if made else number(factor, numbers)
            return moved * number(n, numbers) / number(t, numbers)

        text = "Each rank must move at least this share of the payload; the bus bandwidth counts it."
        steps.append(
            Step("busbw", Product((factor, Sym("algbw"))), parts.RATE, Reason("bus bandwidth", text, witness=busy))
        )
        closed = times(factor, Ratio(n, t))
        steps.append(Step("busbw", closed, parts.RATE, Reason("algebra", "Substitute the names."), "="))
    used = {"n", "t"} | ({k.name} if len(steps) > 1 else set())
    notation = parts.notation(setting, call.rank_symbol)
    notation = type(notation)(notation.latex, {"t": "time of one call", **notation.meanings})
    return Derivation(
        f"Bandwidth of {collective}", setting.accounting, tuple(steps), ("bandwidth",), setting.graph.relations, (),
        tuple((name, v) for name, v in known.items() if name in used), notation,
        _impossible(factor, known),
    )  # fmt: skip


def _impossible(factor: Form, known: Mapping[str, Fraction]) -> tuple[str, ...]:
    """The note that no rank can have moved its share in the time, where the link is known."""
    share = evaluate(factor, known) if set(names(factor)) <= {*known} else None
    if share is None or not {"n", "t", "W"} <= {*known} or share * known["n"] <= known["W"] * known["t"]:
        return ()
    busy, link = (Quantity(value, parts.RATE).reading for value in (share * known["n"] / known["t"], known["W"]))
    return (
        f"The bus bandwidth of {busy} is above the {link} of the link: one such link cannot carry that in the time.",
    )
