"""A collective on a ring, run: which rank holds how much of which chunk before, between and after its rounds."""

from __future__ import annotations

from symcomm.core.errors import ValuesError
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, Sketch

MOST = 8  # ranks; more are not read from a picture
_WIDTH, _CELL = 470.0, 13.0
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
