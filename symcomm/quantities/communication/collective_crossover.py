"""Where one algorithm of a collective overtakes another: the payload, rank count, bandwidth or latency."""

from __future__ import annotations

from symcomm.derivation import Derivation
from symcomm.errors import ValuesError, nearest
from symcomm.optimum.crossover import crossover
from symcomm.quantities.communication import collective_parts as parts
from symcomm.quantities.communication import collective_time
from symcomm.quantities.setting import Setting

OVER = ("payload", "ranks", "bandwidth", "latency")


def derive(
    setting: Setting,
    collective: str = "all-reduce",
    algorithm: str = "ring",
    other: str = "tree",
    over: str = "payload",
    dtype: str | None = None,
    directions: object = None,
    **numbers: object,
) -> Derivation:
    """The value of ``over`` at which two algorithms take equally long; the options are those of the time.

    Raises ``ValuesError`` where ``over`` is unknown or both algorithms are the same.
    """
    if over not in OVER:
        raise ValuesError(f"a crossover over '{over[:40]}' is not known", hint=nearest(over, [*OVER]))
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
