"""Ring attention under a mask: which block each rank reads in each step, and which pairs each rank has to compute."""

from __future__ import annotations

from symcomm.core.errors import ValuesError
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, Sketch

MOST, LONGEST = 8, 32  # ranks, and positions of a mask; more are not read from a picture
ORDERS = {"contiguous": "side by side", "balanced": "first and last", "striped": "in turn"}
COLOURS = ("#1f3a5f", "#c98a4b", "#6f97b8", "#8c5a86", "#7d9a5b", "#b3541e", "#9fb4d2", "#d9c58b")
_WIDTH, _CELL = 470.0, 26.0


def owner(order: str, position: int, length: int, ranks: int) -> int:
    """The rank that has a position.

    >>> [owner("balanced", position, 8, 2) for position in range(8)]
    [0, 0, 1, 1, 1, 1, 0, 0]
    """
    if order == "striped":
        return position % ranks
    if order == "balanced":
        part = position * 2 * ranks // length
        return min(part, 2 * ranks - 1 - part)
    return position * ranks // length


def _pairs(order: str, length: int, ranks: int, causal: bool) -> list[list[int]]:
    """The pairs of each rank's queries with the keys of each rank."""
    found = [[0] * ranks for _ in range(ranks)]
    of = [owner(order, position, length, ranks) for position in range(length)]
    for query in range(length):
        for key in range(query + 1 if causal else length):
            found[of[query]][of[key]] += 1
    return found


def _checked(ranks: int, most: int = MOST) -> None:
    if not 2 <= ranks <= most:
        raise ValuesError(f"a ring of {ranks} ranks is not drawn", hint=f"ranks: 2 to {most}")


def ring_steps(order: str, ranks: int, causal: bool) -> tuple[Sketch, str]:
    """The picture of the steps of a ring, and a sentence on what is in it: a row a rank, a column a step.

    >>> ring_steps("contiguous", 4, False)[1]
    '4 ranks, 4 steps, 3 sends: in each step a rank reads one block of keys and values, and passes it on.'
    """
    _checked(ranks)
    length = 2 * ranks * 12  # divides, and is long enough for the diagonal to count little
    found, block = _pairs(order, length, ranks, causal), (length // ranks) ** 2
    wide, high, left, top = _CELL * 1.7, _CELL * 0.8, 58.0, 26.0
    drawing = Sketch(_WIDTH, top + high * ranks + 18)
    for step in range(ranks):
        drawing.text(left + (step + 0.46) * wide, 16, f"step {step + 1}", 7.5, SOFT)
    for rank in range(ranks):
        y = top + rank * high
        drawing.text(left - 6, y + high * 0.6, f"rank {rank + 1}", 7.5, SOFT, "end")
        for step in range(ranks):
            at, x = (rank - step) % ranks, left + step * wide
            share = found[rank][at] / block
            drawing.box(x, y, wide * 0.92, high * 0.86, "#ffffff", LINE)
            if share:
                drawing.box(x, y, wide * 0.92 * share, high * 0.86, "#c3d0e3", LINE)
            drawing.text(x + wide * 0.46, y + high * 0.6, f"K V {at + 1}", 7.5, INK)
        total = sum(found[rank]) * ranks / sum(map(sum, found))
        drawing.text(left + ranks * wide + 6, y + high * 0.6, f"{total:.2f}", 8, MARK, "start")
    drawing.text(left + ranks * wide + 6, 16, "work", 7.5, MARK, "start")
    drawing.text(left, top + high * ranks + 10, "Filled: the part of a block's pairs that the mask leaves. "
                 "Work: a rank's pairs over the mean.", 7.5, SOFT, "start")  # fmt: skip
    waits = " The slowest rank of a step sets its time." if causal and order == "contiguous" else ""
    return drawing, (f"{ranks} ranks, {ranks} steps, {ranks - 1} sends: in each step a rank reads one block of keys "
                     f"and values, and passes it on.{waits}")  # fmt: skip


def causal_balance(length: int, ranks: int) -> tuple[Sketch, str]:
    """The picture of a causal mask in three orders of positions, each pair in the colour of the rank that has it.

    >>> causal_balance(16, 4)[1]
    '16 positions, 4 ranks. Busiest over the mean: 1.71 (side by side), 1.00 (first and last), 1.18 (in turn).'
    """
    _checked(ranks)
    if length > LONGEST or length < 1 or length % (2 * ranks):
        raise ValuesError(f"{length} positions of {ranks} ranks are not drawn",
                          hint=f"length: a multiple of {2 * ranks}, at most {LONGEST}")  # fmt: skip
    side = 132.0
    cell, drawing, said = side / length, Sketch(_WIDTH, side + 30 + 11 * ranks), list[str]()
    for n, (order, words) in enumerate(ORDERS.items()):
        left, top = 6 + n * (side + 24), 20.0
        drawing.text(left + side / 2, 12, words, 8, SOFT)
        for query in range(length):
            rank = owner(order, query, length, ranks)
            drawing.box(left, top + query * cell, (query + 1) * cell, cell, COLOURS[rank], "#ffffff")
        mine = [sum(row) for row in _pairs(order, length, ranks, True)]
        for rank, pairs in enumerate(mine):
            y = top + side + 5 + 11 * rank
            drawing.box(left, y, pairs * ranks / length**2 * side * 0.6, 8, COLOURS[rank], "none")
            drawing.text(left + side, y + 7, f"rank {rank + 1}: {pairs}", 7.5, SOFT, "end")
        said.append(f"{max(mine) * ranks / sum(mine):.2f} ({words})")
    return drawing, f"{length} positions, {ranks} ranks. Busiest over the mean: {', '.join(said)}."
