"""The whole numbers that a search goes over, as a person writes them: ``1..64``, ``1, 2, 4``, ``1..64*2``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from symcomm.core.errors import ValuesError
from symcomm.core.libraries import sp

MOST = 100_000  # values of one size
LARGEST = 10**9
_HINT = "write 1, 2, 4, or 1..64 (each), 1..64*2 (doubling), 512..4096+512 (in steps)"


def whole_numbers(said: object, what: str) -> tuple[int, ...]:
    """The numbers in order, each once: from a number, a list of numbers, or a text.

    Raises ``ValuesError`` for what is no positive whole number, and for more than 100,000 of them.

    >>> whole_numbers("1..16*2, 12", "m"), whole_numbers("2..8+3", "m"), whole_numbers([4, 2], "m")
    ((1, 2, 4, 8, 12, 16), (2, 5, 8), (2, 4))
    """
    found: set[int] = set()
    for piece in _pieces(said, what):
        found.update(piece)
        if len(found) > MOST:
            raise ValuesError(f"{what} takes more than {MOST:,} values", hint="leave some out: 1..4096*2 doubles")
    if not found:
        raise ValuesError(f"{what} takes no value", hint=_HINT)
    if min(found) < 1 or max(found) > LARGEST:
        raise ValuesError(f"{what} takes values from 1 to {LARGEST:,}, not {min(found)} to {max(found)}")
    return tuple(sorted(found))


def _pieces(said: object, what: str) -> Iterable[Iterable[int]]:
    if isinstance(said, int) and not isinstance(said, bool):
        yield (said,)
    elif isinstance(said, str):
        if len(said) > 10_000:
            raise ValuesError(f"{what}: {len(said):,} characters", hint=_HINT)
        for piece in said.split(","):
            yield _range(piece.strip(), what)
    elif isinstance(said, Iterable):
        for n, one in enumerate(said):
            if n > MOST:
                raise ValuesError(f"{what} takes more than {MOST:,} values")
            if not isinstance(one, int) or isinstance(one, bool):
                raise ValuesError(f"{what}: {str(one)[:40]} is no whole number", hint=_HINT)
            yield (one,)
    else:
        raise ValuesError(f"{what}: {str(said)[:40]} is no list of whole numbers", hint=_HINT)


def _range(piece: str, what: str) -> Iterable[int]:
    match = re.fullmatch(r"(\d{1,10})(?:\s*\.\.\s*(\d{1,10})(?:\s*([*+])\s*(\d{1,10}))?)?", piece)
    if match is None:
        raise ValuesError(f"{what}: '{piece[:40]}' is no whole number and no range", hint=_HINT)
    first, last = int(match[1]), int(match[2] or match[1])
    sign, by = match[3] or "+", int(match[4] or 1)
    if last < first or first < 1 or by < (2 if sign == "*" else 1):
        raise ValuesError(f"{what}: '{piece}' has no values", hint=_HINT)
    if sign == "+":
        if (last - first) // by >= MOST:
            raise ValuesError(f"{what}: '{piece}' has more than {MOST:,} values", hint=_HINT)
        return range(first, last + 1, by)
    found = []
    while first <= last:
        found.append(first)
        first *= by
    return found


def divisors(n: int) -> tuple[int, ...]:
    """The divisors of a number, in order.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    return tuple(map(int, sp.divisors(n)))
