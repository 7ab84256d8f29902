"""The Gantt picture of a pipeline schedule: a row a stage, a box a piece of work, the gaps between them visible."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from symcomm.errors import ValuesError
from symcomm.parallel.schedule import Schedule
from symcomm.plots.figure import BLUE, IDLE, ORANGE, SOFT, below, figure, save, words
from symcomm.units import ONE, Quantity, Unit

_BOXES = 4000  # more cannot be told apart
_INK = {BLUE: "white", ORANGE: "black"}


def schedule_plot(
    schedule: Schedule, path: str | Path | None = None, title: str | None = None, unit: Unit = ONE
) -> Any:
    """A Matplotlib figure of a schedule; written to ``path`` (.svg, .png or .pdf) where one is given.

    Boxes carry the number of their microbatch, from 1; with chunks, later ones are darker. ``unit`` is that of the
    times; ``title`` stands in the place of a sentence on the time and the utilisation. Raises ``ValuesError`` for a
    schedule with too many boxes to be told apart.
    """
    if len(schedule.events) > _BOXES:
        raise ValuesError(f"{len(schedule.events)} boxes cannot be told apart", hint=f"draw at most {_BOXES:,}")
    finish = float(schedule.finish)
    rows = schedule.stages
    # A figure is as wide as a page; boxes of one number need room for its digits.
    height = 1.15 + 0.34 * max(rows, 2)
    made = figure(7.2, min(height, 9.0))
    axes = made.add_subplot()
    axes.barh(range(rows), [finish] * rows, height=0.84, color=IDLE, zorder=0)
    points = 7.2 * 72 * 0.86 / finish  # of a unit of time, in typographic points
    size = min(8.0, 0.34 * 72 * 0.4, 9.0 * 72 / rows * 0.4)
    digits = len(str(schedule.microbatches))
    boxes: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for event in schedule.events:
        start, length = float(event.start), float(event.stop - event.start)
        colour = BLUE if event.task.phase == "forward" else ORANGE
        shade = _darker(colour, event.task.chunk, schedule.chunks)
        boxes.setdefault((event.stage, shade), []).append((start, length))
        if length * points > size * 0.62 * digits + 1:
            axes.text(
                start + length / 2, event.stage, str(event.task.microbatch + 1), ha="center", va="center_baseline",
                fontsize=size, color=_INK[colour] if event.task.chunk == 0 else "white",
            )  # fmt: skip
    for (stage, shade), spans in boxes.items():
        axes.broken_barh(spans, (stage - 0.42, 0.84), facecolors=shade, edgecolor="white", linewidth=0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_xlim(0, finish)
    shown = range(rows) if rows <= 24 else range(0, rows, -(-rows // 24))
    axes.set_yticks([*shown], [f"stage {s + 1}" for s in shown], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("time" + (f" ({unit})" if unit != ONE else ""), fontsize=9)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    _legend(axes, schedule)
    axes.set_title(says(schedule, unit) if title is None else words(title), fontsize=9, loc="left", color=SOFT)
    return save(made, path)


def says(schedule: Schedule, unit: Unit = ONE) -> str:
    """What the picture shows, as a sentence: the time and the share of it in which stages work.

    >>> from symcomm.parallel.schedule import schedule
    >>> says(schedule("gpipe", 4, 4, 1, 0))
    'Finished after 7; the stages work 4/7 ≈ 57.1 % of the time.'
    """
    share = schedule.utilisation
    same = "=" if (1000 * share).denominator == 1 else "≈"
    exactly = f"{share} {same} " if share.denominator < 1000 and share != 1 else ""
    shown = f"{float(100 * share):.1f}".removesuffix(".0")
    return f"Finished after {_time(schedule.finish, unit)}; the stages work {exactly}{shown} % of the time."


def _time(value: Fraction, unit: Unit) -> str:
    if unit == ONE:
        return str(value) if value.denominator == 1 else f"{float(value):.6g}"
    ways = Quantity(value, unit).lines()
    return ways[min(1, len(ways) - 1)][1]


def _darker(colour: str, chunk: int, chunks: int) -> str:
    """The colour of a chunk: later ones are darker, down to a half."""
    part = 1 - 0.5 * chunk / max(1, chunks - 1) if chunks > 1 else 1.0
    return "#" + "".join(f"{round(int(colour[i : i + 2], 16) * part):02x}" for i in (1, 3, 5))


def _legend(axes: Any, schedule: Schedule) -> None:
    phases = dict.fromkeys(event.task.phase for event in schedule.events)
    colours = {"forward": BLUE, "backward": ORANGE}
    for phase in phases:
        for chunk in range(schedule.chunks):
            if chunk in (0, schedule.chunks - 1):
                label = phase + (f", chunk {chunk + 1}" if schedule.chunks > 1 else "")
                axes.barh(0, 0, color=_darker(colours[phase], chunk, schedule.chunks), label=label)
    axes.barh(0, 0, color=IDLE, label="idle")
    below(axes)
