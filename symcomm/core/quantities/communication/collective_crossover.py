"""Where one algorithm of a collective overtakes another: the payload, rank count, bandwidth or latency."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from symcomm.core.derivation import Derivation
from symcomm.core.errors import ValuesError
from symcomm.core.optimum.crossover import crossover
from symcomm.core.quantities import options
from symcomm.core.quantities.communication import collective_parts as parts
from symcomm.core.quantities.communication import collective_time
from symcomm.core.quantities.declared import Meaning


def derive(
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
        collective_time.derive(setting, collective, name, dtype, directions, **numbers) for name in (algorithm, other)
    )
    symbol = parts.SYMBOLS[over].name
    ranks = numbers.get("ranks")
    if over == "ranks" and isinstance(ranks, str) and ranks[:1].isalpha():
        symbol = ranks
    return crossover(one, two, symbol)
