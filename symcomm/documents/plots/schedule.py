"""The Gantt picture of a pipeline schedule: a row a rank, a box a piece of work, the gaps between them visible."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from symcomm.core.errors import ValuesError
from symcomm.core.program.events import Execution
from symcomm.core.units import ONE, Quantity, Unit
from symcomm.documents.plots.figure import BLUE, GREEN, IDLE, ORANGE, SOFT, below, figure, save, words

_BOXES = 4000  # more cannot be told apart
# Of each kind: its colour, that of the number in it, and its name.
_KINDS = {
    "F": (BLUE, "white", "forward"), "D": (ORANGE, "black", "backward"),
    "B": (ORANGE, "black", "backward: input"), "W": (GREEN, "white", "backward: weights"),
}  # fmt: skip


def schedule_plot(
    made: Execution, path: str | Path | None = None, title: str | None = None, unit: Unit = ONE
) -> Any:  # fmt: skip
    """A Matplotlib figure of a schedule; written to ``path`` (.svg, .png or .pdf) where one is given.

    Boxes carry the number of their microbatch, from 1; with chunks, later ones are darker. What overlaps shares the
    height of its row. ``unit`` is that of the times; ``title`` stands in the place of a sentence on the time and the
    utilisation. Raises ``ValuesError`` for a schedule with too many boxes to be told apart.
    """
    events = list(made.events())
    if len(events) > _BOXES:
        raise ValuesError(f"{len(events)} boxes would be too small to read", hint=f"draw at most {_BOXES:,}")
    finish, rows = float(made.makespan), len(made.orders)
    # A figure is as wide as a page; boxes of one number need room for its digits.
    picture = figure(7.2, min(1.15 + 0.34 * max(rows, 2), 9.0))
    axes = picture.add_subplot()
    axes.barh(range(rows), [finish] * rows, height=0.84, color=IDLE, zorder=0)
    points = 7.2 * 72 * 0.86 / finish  # of a unit of time, in typographic points
    size = min(8.0, 0.34 * 72 * 0.4, 9.0 * 72 / rows * 0.4)
    digits = len(str(made.microbatches))
    held = [sorted({a.stage for item in order for a in item}) for order in made.orders]
    chunks = max(map(len, held))
    boxes: dict[tuple[float, float, str], list[tuple[float, float]]] = {}
    for rank, item, begin, stop in events:
        start, length, high = float(begin), float(stop - begin), 0.84 / len(item)
        for n, action in enumerate(item):
            colour, ink, _ = _KINDS[action.kind]
            chunk = held[rank].index(action.stage)
            low = rank - 0.42 + n * high
            boxes.setdefault((low, high, _darker(colour, chunk, chunks)), []).append((start, length))
            if length * points > size * 0.62 * digits + 1:
                axes.text(
                    start + length / 2, low + high / 2, str(action.microbatch + 1), ha="center",
                    va="center_baseline", fontsize=size / len(item) ** 0.5, color=ink if chunk == 0 else "white",
                )  # fmt: skip
    for (low, high, shade), spans in boxes.items():
        axes.broken_barh(spans, (low, high), facecolors=shade, edgecolor="white", linewidth=0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xlim(0, finish)
    shown = range(rows) if rows <= 24 else range(0, rows, -(-rows // 24))
    name = "rank" if chunks > 1 else "stage"
    axes.set_yticks([*shown], [f"{name} {s + 1}" for s in shown], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("time" + (f" ({unit})" if unit != ONE else ""), fontsize=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    kinds = dict.fromkeys(action.kind for _, item, _, _ in events for action in item)
    for kind in kinds:
        for chunk in dict.fromkeys((0, chunks - 1)):
            label = _KINDS[kind][2] + (f", chunk {chunk + 1}" if chunks > 1 else "")
            axes.barh(0, 0, color=_darker(_KINDS[kind][0], chunk, chunks), label=label)
    axes.barh(0, 0, color=IDLE, label="idle")
    below(axes)
    axes.set_title(says(made, unit) if title is None else words(title), fontsize=9, loc="left", color=SOFT)
    return save(picture, path)


def says(made: Execution, unit: Unit = ONE) -> str:
    """One sentence on the picture: the time and the share of it in which ranks work.

    >>> from symcomm.core.program.schedules import run
    >>> says(run("gpipe", 4, 4, backward=False))
    'Finished after 7; the stages work 4/7 ≈ 57.1 % of the time.'
    """
    share = made.utilisation
    same = "=" if (1000 * share).denominator == 1 else "≈"
    exactly = f"{share} {same} " if share.denominator < 1000 and share != 1 else ""
    shown = f"{float(100 * share):.1f}".removesuffix(".0")
    return f"Finished after {_time(made.makespan, unit)}; the stages work {exactly}{shown} % of the time."


def _time(value: Fraction, unit: Unit) -> str:
    if unit == ONE:
        return str(value) if value.denominator == 1 else f"{float(value):.6g}"
    return Quantity(value, unit).reading


def _darker(colour: str, chunk: int, chunks: int) -> str:
    """The colour of a chunk: later ones are darker, down to a half."""
    part = 1 - 0.5 * chunk / max(1, chunks - 1) if chunks > 1 else 1.0
    return "#" + "".join(f"{round(int(colour[i : i + 2], 16) * part):02x}" for i in (1, 3, 5))


def timetable(made: Execution) -> str:
    """The events as text: a row a rank, a column a unit of time, ``.`` where a rank waits and ``=`` where it continues.

    Of two chunks of a rank the second has small letters. Raises ``ValuesError`` where times are no whole numbers.

    >>> from symcomm.core.program.schedules import run
    >>> print(timetable(run("1f1b", 2, 2)))
    r0 F0 F1 .  .  D0 =  .  D1 =
    r1 .  F0 D0 =  F1 D1 =
    """
    if made.scale != 1:
        raise ValuesError("the times are no whole numbers", hint="give them in a smaller unit")
    rows = []
    for rank, order in enumerate(made.orders):
        held = sorted({a.stage for item in order for a in item})
        cells = ["."] * int(made.makespan)
        for item, start, stop in zip(order, made.starts[rank], made.stops[rank], strict=True):
            if len(held) > 2:
                label = "+".join(map(str, item))
            else:
                label = "+".join(f"{a.kind.lower() if held.index(a.stage) else a.kind}{a.microbatch}" for a in item)
            cells[start:stop] = [label, *["="] * (stop - start - 1)]
        while cells[-1] == ".":
            cells.pop()
        rows.append(cells)
    width = max(len(cell) for row in rows for cell in row)
    return "\n".join(f"r{n} " + " ".join(cell.ljust(width) for cell in row).rstrip() for n, row in enumerate(rows))
