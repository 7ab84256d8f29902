"""A pipeline, tick by tick: every rank looks at its next piece of work each tick. Shares nothing with the package."""

from __future__ import annotations

import random


def parse(token: str) -> list[tuple[str, int, int]]:
    return [(part[0], *map(int, part[1:].split("."))) for part in token.split("+")]  # type: ignore[misc]


def ticks(orders, forward, inputs, weights, pair=None, hop=0, overhead=0):
    """(start, stop) of every item of every rank; None where the ranks wait for ever. Times are whole numbers."""
    stages = 1 + max(s for order in orders for token in order for _, s, _ in parse(token))
    made: dict[tuple[str, int, int], tuple[int, int]] = {}  # what: (when, on which rank)
    place, free = [0] * len(orders), [0] * len(orders)
    found = [[] for _ in orders]
    total = sum(len(order) for order in orders)
    clock = 0
    limit = total * (max(forward) + max(inputs) + max(weights) + (pair or 0) + hop + overhead + 1) + 10

    def there(what, rank):
        return what in made and made[what][0] + (0 if made[what][1] == rank else hop) <= clock

    while sum(map(len, found)) < total:
        moved = True
        while moved:
            moved = False
            for rank, order in enumerate(orders):
                if place[rank] == len(order) or free[rank] > clock:
                    continue
                parts = parse(order[place[rank]])
                for kind, s, i in parts:
                    if kind == "F":
                        ready = s == 0 or there(("f", s - 1, i), rank)
                    elif kind == "W":
                        ready = there(("b", s, i), rank)
                    else:
                        ready = there(("f", s, i), rank) and (s == stages - 1 or there(("b", s + 1, i), rank))
                    if not ready:
                        break
                else:
                    length = overhead
                    if len(parts) > 1 and pair is not None:
                        length += pair
                    else:
                        for kind, s, _ in parts:
                            length += {"F": forward[s], "B": inputs[s], "W": weights[s], "D": inputs[s] + weights[s]}[
                                kind
                            ]
                    for kind, s, i in parts:
                        made[{"F": "f", "W": "w"}.get(kind, "b"), s, i] = (clock + length, rank)
                    found[rank].append((clock, clock + length))
                    place[rank] += 1
                    free[rank] = clock + length
                    moved = True
        clock += 1
        if clock > limit:
            return None
    return found


def held(order, until):
    """The most microbatches between their forward and the end of their ``until``, listing what is held each time."""
    now, most = set(), 0
    for token in order:
        parts = parse(token)
        now |= {(s, i) for kind, s, i in parts if kind == "F"}
        most = max(most, len(now))
        now -= {(s, i) for kind, s, i in parts if kind in ("D", until)}
    return most


def any_order(seed: int, ranks: int, chunks: int, microbatches: int, both_ways: bool) -> list[list[str]]:
    """An order in which nothing waits for ever: actions are taken at random among those that could be next."""
    dice = random.Random(seed)
    stages = ranks * chunks
    home = [s % ranks if both_ways else min(s % (2 * ranks), 2 * ranks - 1 - s % (2 * ranks)) for s in range(stages)]
    split = {(s, i): dice.random() < 0.5 for s in range(stages) for i in range(microbatches)}
    done: set[tuple[str, int, int]] = set()
    orders: list[list[str]] = [[] for _ in range(ranks)]
    left = [(k, s, i) for s in range(stages) for i in range(microbatches) for k in ("FBW" if split[s, i] else "FD")]

    def possible(action):
        kind, s, i = action
        if kind == "F":
            return s == 0 or ("F", s - 1, i) in done
        if kind == "W":
            return ("B", s, i) in done
        behind = s == stages - 1 or {("B", s + 1, i), ("D", s + 1, i)} & done
        return ("F", s, i) in done and bool(behind)

    while left:
        action = dice.choice([a for a in left if possible(a)])
        left.remove(action)
        done.add(action)
        orders[home[action[1]]].append(f"{action[0]}{action[1]}.{action[2]}")
    return orders
