"""The least value over whole numbers by trying each, with fractions: nothing here shares code with the closed forms."""

from collections.abc import Callable, Iterable
from fractions import Fraction


def least(cost: Callable[[int], Fraction], allowed: Iterable[int]) -> tuple[list[int], Fraction]:
    """All whole numbers with the least cost, growing, and that cost."""
    worth = {n: cost(n) for n in allowed}
    lowest = min(worth.values())
    return [n for n in sorted(worth) if worth[n] == lowest], lowest


def least_of_a_valley(cost: Callable[[int], Fraction], low: int = 1, high: int | None = None) -> list[int]:
    """The best whole numbers of a cost that falls and then rises: every one is tried until it has risen for a while."""
    n, best, lowest, worse = low, [low], cost(low), 0
    while worse < 3 and (high is None or n < high):
        n += 1
        here = cost(n)
        if here < lowest:
            best, lowest, worse = [n], here, 0
        elif here == lowest:
            best.append(n)
        else:
            worse += 1
    return best
