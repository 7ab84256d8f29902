"""The picture of a training step's memory: what is alive at every op, by kind, and the op at which it is most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

from symcomm.core.model import Model
from symcomm.core.parallel.strategy import Strategy, parse_strategy
from symcomm.core.quantities.memory.peak_memory import KINDS
from symcomm.core.timeline import Point, timeline
from symcomm.documents.plots.figure import COLOURS, GRID, SOFT, below, figure, save, sentence, words

# Each kind has its colour, whichever kinds there are.
_COLOUR = dict(zip(KINDS, (*COLOURS[:6], "#999999", "#8C6D31", "#444444", "#000000"), strict=False))


def timeline_plot(
    model: Model,
    strategy: Strategy | str | None = None,
    path: str | Path | None = None,
    title: str = "",
    **options: Any,
) -> Any:
    """A Matplotlib figure of the memory of a training step: areas by kind over the ops of all layers, the peak marked.

    ``options`` and errors are those of ``timeline``; written to ``path`` (.svg, .png or .pdf) where one is given.
    """
    points = timeline(model, strategy, **options)
    name, unit = _unit(max(p.total for p in points))
    made = figure(7.2, 4.2)
    axes = made.add_subplot()
    # Every op is a step of its own width; the update is drawn wider, for it is one op.
    ends = [0.0]
    for p in points:
        ends.append(ends[-1] + (1.0 if p.phase != "optimizer" else max(1.0, len(points) * 0.04)))
    xs = [x for pair in pairwise(ends) for x in pair]
    floor = [0.0] * len(xs)
    for kind in KINDS:
        heights = [float(p.parts.get(kind, Fraction(0)) / unit) for p in points for _ in (0, 1)]
        if any(heights):
            roof = [a + b for a, b in zip(floor, heights, strict=True)]
            axes.fill_between(xs, floor, roof, color=_COLOUR[kind], linewidth=0, label=kind)
            floor = roof
    top = max(range(len(points)), key=lambda n: points[n].total)
    _mark_phases(axes, points, ends)
    peak, x = points[top], (ends[top] + ends[top + 1]) / 2
    height = float(peak.total / unit)
    axes.axvline(x, color="black", linewidth=0.7, linestyle="--")
    axes.plot([x], [height], "v", color="black", markersize=6, clip_on=False, zorder=6)
    where = f"layer {peak.layer}, " if peak.layer and _layers(points) > 1 else ""
    said = f"peak {height:.3g} {name}: {peak.phase}, {where}{sentence(peak.op, model.notation)}"
    made.set_label(f"{height:.3g} {name} ({peak.phase}, {peak.op})")
    left = x > 0.5 * ends[-1]
    axes.annotate(said, (x, height), xytext=(-8 if left else 8, 9), textcoords="offset points", fontsize=8,
                  ha="right" if left else "left")  # fmt: skip
    axes.set_xlim(0, ends[-1])
    axes.set_ylim(0, height * 1.16)
    axes.set_ylabel(f"bytes alive ({name})", fontsize=9)
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    under = parse_strategy(strategy).name if isinstance(strategy, str) else strategy.name if strategy else ""
    axes.set_title(words(title) or "Memory of one training step" + (f" under {under}" if under else ""), fontsize=10)
    below(axes)
    return save(made, path)


def _layers(points: tuple[Point, ...]) -> int:
    return max(p.layer for p in points)


def _runs(
    points: tuple[Point, ...], ends: list[float], alike: Callable[[Point], Any]
) -> Iterator[tuple[Any, float, float]]:  # fmt: skip
    """Points that follow one another and are alike: what they share, where they begin and where they end."""
    at = 0
    for shared, run in groupby(points, alike):
        start, at = at, at + len([*run])
        yield shared, ends[start], ends[at]


def _mark_phases(axes: Any, points: tuple[Point, ...], ends: list[float]) -> None:
    """The phases, separated and named, and the numbers of the layers below them."""
    ticks: list[float] = []
    labels: list[str] = []
    count = _layers(points)
    every = max(1, -(-count // 8))
    for (layer, phase), start, stop in _runs(points, ends, attrgetter("layer", "phase")):
        opens = layer == (count if phase == "backward" else 1)
        shown = opens or layer == 1 or count <= 8 or (layer % every == 0 and layer != count)
        if layer and shown and count > 1:
            ticks.append((start + stop) / 2)
            labels.append(str(layer))
    for phase, start, stop in _runs(points, ends, attrgetter("phase")):
        axes.axvline(stop, color=SOFT, linewidth=0.7)
        axes.annotate(phase, ((start + stop) / 2, 0), xycoords=("data", "axes fraction"),
                      xytext=(0, -24 if count > 1 else -13), textcoords="offset points", fontsize=8.5, ha="center",
                      rotation=0)  # fmt: skip
    axes.set_xticks(ticks, labels, fontsize=7)
    axes.tick_params(axis="x", length=2)
    axes.set_xlabel("\n" if count > 1 else " ", fontsize=8)  # room for the names of the phases
    if count > 1:
        axes.annotate("layer", (0, 0), xycoords="axes fraction", xytext=(-6, -11), textcoords="offset points",
                      fontsize=7, ha="right")  # fmt: skip


def _unit(largest: Fraction) -> tuple[str, int]:
    """The binary prefix in which a person reads an amount."""
    for name, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if largest >= size:
            return name, size
    return "B", 1
