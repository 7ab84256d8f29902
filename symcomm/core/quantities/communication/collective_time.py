"""The time of a collective under an algorithm: rounds, bytes and additions, each a step of its own."""

from __future__ import annotations

from typing import Unpack

from symcomm.core.collectives.bounds import BOUNDS
from symcomm.core.derivation import Derivation
from symcomm.core.quantities import options
from symcomm.core.quantities.communication import collective_parts as parts


def derive(
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
    >>> ring = derive(Setting(Graph("no model", {}, {}, ())), payload="8 MB", ranks=8, latency="20 us",
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
