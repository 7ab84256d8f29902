"""The cheapest assignment of values to variables whose price is a sum of small tables: exact, by elimination.

Source: Dechter, Bucket elimination: a unifying framework for reasoning, 1999.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf, prod

from symcomm.core.records import dataclass

Values = tuple[int, ...]


@dataclass(frozen=True)
class PriceTable:
    """The price of each allowed combination of values of some variables; what is not listed is not allowed."""

    variables: tuple[int, ...]
    prices: Mapping[Values, int]


def join(a: PriceTable, b: PriceTable) -> PriceTable:
    """Both prices together, for the combinations that both allow."""
    shared = [v for v in a.variables if v in b.variables]
    more = [n for n, v in enumerate(b.variables) if v not in a.variables]
    mine, theirs = [a.variables.index(v) for v in shared], [b.variables.index(v) for v in shared]
    fitting: dict[Values, list[tuple[Values, int]]] = {}
    for values, price in b.prices.items():
        rest = tuple([values[n] for n in more])
        fitting.setdefault(tuple([values[n] for n in theirs]), []).append((rest, price))
    found = {
        values + rest: price + other
        for values, price in a.prices.items()
        for rest, other in fitting.get(tuple([values[n] for n in mine]), ())
    }
    return PriceTable((*a.variables, *(b.variables[n] for n in more)), found)


def cheapest(tables: Iterable[PriceTable], sizes: Sequence[int], most: float = inf) -> tuple[int, list[int]] | None:
    """The least price and one value for each variable, or None where nothing is allowed.

    ``sizes`` are the numbers of values that the variables have. None, too, where a table might have more than ``most``
    entries.

    >>> either = PriceTable((0, 1), {(0, 1): 3, (1, 0): 2, (1, 1): 9})
    >>> cheapest([either, PriceTable((0,), {(0,): 0, (1,): 4})], [2, 2])
    (3, [0, 1])
    """
    # Tables of the same variables are one; a table inside of another one is joined to it when that is eliminated.
    count = len(sizes)
    held: dict[int, list[PriceTable]] = {v: [] for v in range(count)}
    near: dict[int, set[int]] = {v: set() for v in range(count)}
    total = 0

    def put(table: PriceTable) -> None:
        for v in table.variables:
            held[v].append(table)
            near[v].update(table.variables)

    for table in tables:
        put(table)
    order: list[tuple[int, PriceTable]] = []

    def left_over(v: int) -> int:
        """The most entries of the table that takes the place of a variable."""
        return prod(sizes[w] for w in near[v] if w != v)

    # The variable that leaves the smallest table comes next; an entry of the queue that is out of date is passed over.
    queue = [(left_over(v), v) for v in range(count)]
    heapify(queue)
    left = set(range(count))
    while left:
        size, v = heappop(queue)
        if v not in left or size != left_over(v):
            continue
        if size > most:
            return None
        left.discard(v)
        mine = sorted(held[v], key=lambda t: len(t.prices))
        if not mine:
            order.append((v, PriceTable((v,), {(0,): 0})))
            continue
        whole = mine[0]
        for table in mine[1:]:
            whole = join(whole, table)
        at = whole.variables.index(v)
        rest = whole.variables[:at] + whole.variables[at + 1 :]
        best: dict[Values, tuple[int, int]] = {}
        for values, price in whole.prices.items():
            key = values[:at] + values[at + 1 :]
            option = (price, values[at])
            if key not in best or option < best[key]:
                best[key] = option
        if not best:
            return None
        order.append((v, PriceTable((*rest, v), {(*key, value): price for key, (price, value) in best.items()})))
        gone = {id(t) for t in mine}
        for w in rest:
            held[w] = [t for t in held[w] if id(t) not in gone]
            near[w] = {u for t in held[w] for u in t.variables}
        if rest:
            put(PriceTable(rest, {key: price for key, (price, _) in best.items()}))
            for w in rest:
                heappush(queue, (left_over(w), w))
        else:
            total += best[()][0]
    chosen = [0] * count
    known: dict[int, int] = {}
    for v, table in reversed(order):
        # Of the combinations with what is known already there is exactly one.
        for values in table.prices:
            if all(known.get(w, value) == value for w, value in zip(table.variables[:-1], values[:-1], strict=True)):
                chosen[v] = known[v] = values[-1]
                break
    return total, chosen
