"""Rings: a collective that is run, and attention under a mask; what each rank holds, reads and computes when."""

from __future__ import annotations

from symcomm.core.errors import ValuesError
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, Sketch

MOST, LONGEST = 8, 32  # ranks, and positions of a mask; more are not read from a picture
_WIDTH, _CELL, _BLOCK = 470.0, 13.0, 26.0
_PHASES = {"all-reduce": ("add", "pass on"), "reduce-scatter": ("add",), "all-gather": ("pass on",)}
_SHADES = ("#ffffff", "#e3e9f2", "#c3d0e3", "#9fb4d2", "#7d98c1", "#5d7eb0", "#40669c", "#2b4f80", INK)


def ring(collective: str, ranks: int) -> tuple[Sketch, str]:
    """The picture of a ring of some ranks, and a sentence on what is in it.

    Each rank of the run sends one chunk a round to its neighbour. Raises ``ValuesError`` for a collective that adds and
    passes on nothing, and for ranks that are no ring or too many to be drawn.

    >>> ring("reduce-scatter", 4)[1]
    '4 ranks, 4 chunks: a rank sends one chunk in each of 3 rounds. Then it holds one sum.'
    """
    if collective not in _PHASES:
        raise ValuesError(f"no ring is drawn of '{collective[:40]}'", hint=", ".join(_PHASES))
    if not 2 <= ranks <= MOST:
        raise ValuesError(f"a ring of {ranks} ranks is not drawn", hint=f"2 to {MOST} ranks")
    panels = _run(collective, ranks)
    drawing = Sketch(_WIDTH, 34 + _CELL * ranks * 1.25)
    wide = _CELL * ranks
    gap = (_WIDTH - 60 - wide * len(panels)) / max(1, len(panels) - 1)
    for n, (title, held, sent) in enumerate(panels):
        left = 46 + n * (wide + gap)
        drawing.text(left + wide / 2, 12, title, 7.5, SOFT)
        for rank in range(ranks):
            top = 22 + rank * _CELL * 1.25
            if n == 0:
                drawing.text(40, top + 9, f"rank {rank + 1}", 7.5, SOFT, "end")
            for chunk in range(ranks):
                of = len(held[rank][chunk])
                shade = _SHADES[round(of / ranks * (len(_SHADES) - 1))]
                drawing.box(left + chunk * _CELL, top, _CELL - 1.5, _CELL, shade, MARK if sent[rank] == chunk else LINE)
            if sent[rank] is not None:
                x, below = left + wide + 3, 22 + (rank + 1) % ranks * _CELL * 1.25
                if rank + 1 < ranks:
                    drawing.line(x, top + 7, x, below + 5, MARK, arrow=True)
    last = 22 + ranks * _CELL * 1.25
    key = "The stronger a chunk's contrast, the more ranks are in its sum; what is sent next has a red frame."
    drawing.text(46, last + 8, key, 7.5, SOFT, "start")
    return drawing, _says(collective, ranks)


def _says(collective: str, ranks: int) -> str:
    rounds = (ranks - 1) * len(_PHASES[collective])
    ends = {
        "all-reduce": f"It holds one sum after {ranks - 1} and all sums after {rounds}",
        "reduce-scatter": "Then it holds one sum",
        "all-gather": "Then it holds all chunks",
    }[collective]
    return f"{ranks} ranks, {ranks} chunks: a rank sends one chunk in each of {rounds} rounds. {ends}."


RankShare = list[list[frozenset[int]]]


def _run(collective: str, k: int) -> list[tuple[str, RankShare, list[int | None]]]:
    """The panels: a title, whose parts each rank has in each chunk, and which chunk it sends next."""
    phases = _PHASES[collective]
    everyone = frozenset(range(k))
    held: RankShare = [[frozenset({rank}) if phases[0] == "add" else everyone if rank == chunk else frozenset()
                   for chunk in range(k)] for rank in range(k)]  # fmt: skip
    shift = 0 if phases[0] == "add" else k  # who has added owns the chunk after its own
    panels: list[tuple[str, RankShare, list[int | None]]] = []
    done = 0
    for n, phase in enumerate(phases):
        start = 1 if n else 0
        for step in range(k - 1):
            sent: list[int | None] = [(rank + start + shift - step) % k for rank in range(k)]
            if step < 2 - (n > 0) or k == 2:
                panels.append((_title(done), [list(row) for row in held], sent))
            new = [list(row) for row in held]
            for rank in range(k):
                chunk, to = (rank + start + shift - step) % k, (rank + 1) % k
                new[to][chunk] = held[to][chunk] | held[rank][chunk] if phase == "add" else held[rank][chunk]
            held, done = new, done + 1
    panels.append((_title(done), held, [None] * k))
    return panels


def _title(rounds: int) -> str:
    return "before" if not rounds else f"after {rounds} round{'s' if rounds > 1 else ''}"


# -- attention: which block a rank reads in each step, and which pairs it has to compute ----------------------

ORDERS = {"contiguous": "side by side", "balanced": "first and last", "striped": "in turn"}
COLOURS = ("#1f3a5f", "#c98a4b", "#6f97b8", "#8c5a86", "#7d9a5b", "#b3541e", "#9fb4d2", "#d9c58b")


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
    wide, high, left, top = _BLOCK * 1.7, _BLOCK * 0.8, 58.0, 26.0
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
