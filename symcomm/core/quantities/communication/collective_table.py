"""All algorithms of a collective side by side: rounds, bytes, time, and where one overtakes another."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Literal, Unpack

from symcomm.core import form as forms
from symcomm.core.accounting import field_of
from symcomm.core.collectives.algorithms import ALGORITHMS, Algorithm
from symcomm.core.collectives.bounds import BOUNDS
from symcomm.core.derivation import Derivation, Exhibit, Numbers, Reason, Step, Witness
from symcomm.core.derivation.tables import Short
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Sym
from symcomm.core.optimum.crossover import CheapestInterval, crossover, envelope
from symcomm.core.quantities import options
from symcomm.core.quantities.communication import collective_parts as parts
from symcomm.core.quantities.communication import collective_time
from symcomm.core.quantities.communication.wire import wire
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import CallNumbers, CollectiveName, Directions, ElementDtype, NoModel
from symcomm.core.quantities.witnesses import number
from symcomm.core.setting import Setting, rests_on
from symcomm.core.units import BYTE, Quantity

_NEEDED = ("payload", "ranks", "latency", "bandwidth")
_LARGEST = 2**50  # bytes: beyond any tensor


def times(
    setting: Setting, collective: str, dtype: str | None, directions: Directions | None, numbers: CallNumbers
) -> tuple[dict[str, Derivation], list[str]]:
    """The time of every algorithm that can run the collective, and sentences on those that were left out."""
    call = parts.read_call(setting, collective, dtype, directions, numbers)
    found: dict[str, Derivation] = {}
    notes: list[str] = []
    for name, record in ALGORITHMS.items():
        if collective not in record.runs or (collective == "send" and found):
            continue
        if record.at_once:
            notes.append(f"{_called(name).capitalize()} is left out: its messages to all ranks share one latency.")
            continue
        lacking = [s.meaning for s in parts.SYMBOLS.values() if s.name in _needs(record) and s.name not in call.known]
        if lacking:
            notes.append(f"{_called(name).capitalize()} is left out, as these are not given: {'; '.join(lacking)}.")
            continue
        ways = directions if record.inner or name == "ring" else None
        found[name] = collective_time.derive_collective_time(setting, collective, name, dtype, ways, **numbers)
    return found, notes


def _needs(record: Algorithm) -> set[str]:
    needed = {*record.inner, *(("q",) if record.chunked else ())}
    return needed | ({"alpha_out", "W_out"} if record.name == "hierarchical" else set())


def _called(name: str) -> str:
    return name.replace("_", " ")


def derive_collective_table(
    setting: NoModel,
    collective: CollectiveName = "all-reduce",
    dtype: ElementDtype | None = None,
    directions: Directions | None = None,
    **numbers: Unpack[CallNumbers],
) -> Derivation:
    """The fastest algorithm for a collective, and all others beside it.

    The time of the fastest algorithm, with all others in a table; all numbers must be known.

    Raises ``ValuesError`` where the payload, the ranks, the latency or the bandwidth has no value.
    """
    call = parts.read_call(setting, collective, dtype, directions, numbers)
    cost = setting.accounting.message_cost
    needed = [o for o in _NEEDED if o != "latency" or cost != "bandwidth_only"]
    needed += ["reduction"] if cost == "alpha_beta_gamma" else []
    missing = [o for o in needed if call.symbol(o).name not in call.known]
    if missing:
        raise ValuesError(f"the table of {collective} needs a value for {', '.join(missing)}")
    found, notes = times(setting, collective, dtype, directions, numbers)
    # Ranks cannot share fewer elements than the finest cut has chunks.
    wins = fastest(found, call)
    order = sorted(found, key=lambda name: found[name].at().value)
    rows = tuple(
        (_called(name), *_counted(found[name]), Short.of(found[name].at()), wins.get(name, "never")) for name in order
    )
    exhibit = Exhibit(
        f"All algorithms for {collective}, the fastest first",
        ("algorithm", "rounds", "bytes one after another", "time", "fastest for payloads"),
        rows,
    )
    bound = BOUNDS[collective]
    n, k = call.symbol("payload"), call.symbol("ranks")
    least = Exhibit(
        "Lower bounds for ranks that use one port",
        ("rounds", "bytes one after another"),
        ((bound.rounds(k), bound.path(n, k)),),
    )
    steps = _steps(found, order, collective)
    first = found[order[0]]
    notes += [f"{_called(name).capitalize()}: {ALGORITHMS[name].source}." for name in found]
    notes.append(f"Lower bounds: {bound.source}.")
    return replace(
        first,
        title=f"The fastest {collective}",
        steps=steps,
        touched=rests_on(steps),
        exhibits=(exhibit, least),
        given=tuple({n: v for d in found.values() for n, v in d.given}.items()),
        notes=tuple(notes),
    )


def _steps(found: dict[str, Derivation], order: list[str], collective: str) -> tuple[Step, ...]:
    steps = [
        Step(
            f"T_{name.replace('_', ',')}",
            found[name].answer.form,
            parts.SECOND,
            Reason(_called(name), wire(collective, name, Sym("k")).how, witness=_alone(found[name])),
            by=tuple(field for field in found[name].touched if field_of(field) != "algorithm"),
        )
        for name in order
    ]
    text = f"The least of them at the given numbers: {_called(order[0])}."

    def least(numbers: Numbers) -> Fraction:
        return min(number(Sym(f"T_{name.replace('_', ',')}"), numbers) for name in found)

    return (
        *steps,
        Step("T", Sym(f"T_{order[0].replace('_', ',')}"), parts.SECOND, Reason("choose", text, witness=least)),
    )


def _alone(d: Derivation) -> Witness | None:
    """The witness of an algorithm's own time."""
    return next((s.reason.witness for s in d.steps if s.name == d.answer.name and s.relation == ":="), None)


def _counted(d: Derivation) -> tuple[Form | Quantity, ...]:
    """The rounds and the bytes of a timed collective, from its own steps, at its numbers."""
    values = d.values()
    cells: list[Form | Quantity] = []
    for letter in ("R", "S"):
        worth = [d.worth[s.name] for s in d.steps if s.relation == ":=" and s.name.split("_")[0] == letter]
        total = sum((forms.evaluate(forms.from_expr(w), values) for w in worth), Fraction(0))
        cells.append(Short(total, BYTE) if letter == "S" else forms.num(total))
    return tuple(cells)


def fastest(found: dict[str, Derivation], call: parts.TimedCall) -> dict[str, str]:
    """For which payloads each algorithm is the fastest, as text; algorithms that never are have no entry."""
    said: dict[str, list[str]] = {}
    names = [*found]
    for interval in envelope([*found.values()], "n", _payloads(call)):
        said.setdefault(names[interval.best], []).append(_interval(interval))
    return {name: ", ".join(texts[:3]) + (", ..." if len(texts) > 3 else "") for name, texts in said.items()}


def _payloads(call: parts.TimedCall) -> tuple[int, int]:
    """From one element a rank (and a block, where all pairs exchange) to more than any tensor has."""
    size = int(call.element.number) if call.element and call.element.number.denominator == 1 else 1
    k = int(call.known[call.rank_symbol])
    parts_needed = max(k * k if call.kind == "all-to-all" else k, int(2 * call.known.get("q", 1)))
    return size * parts_needed, _LARGEST


def _interval(interval: CheapestInterval) -> str:
    low, high = (Quantity(value, BYTE).reading for value in (interval.low, interval.high))
    if interval.high == _LARGEST:
        return f"from {low}"
    return low if low == high else f"{low} to {high}"


def derive_collective_crossover(
    setting: options.NoModel,
    collective: options.CollectiveName = "all-reduce",
    algorithm: Annotated[options.AlgorithmName, Meaning("the first algorithm")] = "ring",
    other: Annotated[options.AlgorithmName, Meaning("the second algorithm")] = "tree",
    over: Annotated[
        Literal["payload", "ranks", "bandwidth", "latency"], Meaning("the number to solve for")
    ] = "payload",
    dtype: options.ElementDtype | None = None,
    directions: options.Directions | None = None,
    **numbers: Unpack[options.CallNumbers],
) -> Derivation:
    """Where one algorithm of a collective overtakes another.

    The value of ``over`` at which two algorithms take equally long; the options are those of the time.

    Raises ``ValuesError`` where both algorithms are the same.
    """
    if algorithm == other:
        raise ValuesError(f"'{algorithm}' is compared with itself", hint="name another algorithm: other: tree")
    one, two = (
        collective_time.derive_collective_time(setting, collective, name, dtype, directions, **numbers)
        for name in (algorithm, other)
    )
    symbol = parts.SYMBOLS[over].name
    ranks = numbers.get("ranks")
    if over == "ranks" and isinstance(ranks, str) and ranks[:1].isalpha():
        symbol = ranks
    return crossover(one, two, symbol)
