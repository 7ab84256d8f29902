"""Tokens a second against the time between two tokens: a curve a strategy over the batch, and the front of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from symcomm.core.units import Quantity
from symcomm.documents.plots.figure import COLOURS, GRID, figure, prefixed

Point = tuple[str, Quantity, Quantity]  # the batch as it is written, the time of a step, the tokens a second


def throughput_front(curves: Mapping[str, Sequence[Point]], over: str, per: str) -> tuple[Any, str]:
    """The picture and the words to it, for batches ``over`` and tokens ``per`` what; the front is filled.

    A point is on the front where no other one has more tokens a second in as short a step.
    """
    every = {(time.value, rate.value) for points in curves.values() for _, time, rate in points}
    front = {(t, r) for t, r in every if not any((a, b) != (t, r) and a <= t and b >= r for a, b in every)}
    made = figure(7.2, 3.9)
    from matplotlib.ticker import LogLocator, NullFormatter

    axes = made.add_subplot()
    xs, ys = zip(*((float(t), float(r)) for t, r in sorted(front)), strict=True)
    axes.step(xs, ys, where="post", color="#bbbbbb", linewidth=1.2, zorder=1)
    said: list[str] = []
    for n, (name, points) in enumerate(curves.items()):
        colour, best = COLOURS[n % len(COLOURS)], [(t.value, r.value) in front for _, t, r in points]
        axes.plot([float(t.value) for _, t, _ in points], [float(r.value) for *_, r in points], "-", color=colour,
                  linewidth=1, marker="o", markersize=5, markerfacecolor="white", label=name)  # fmt: skip
        for (batch, time, rate), filled in zip(points, best, strict=True):
            at = float(time.value), float(rate.value)
            axes.plot(*at, "o", color=colour, markersize=5, markerfacecolor=colour if filled else "white", zorder=3)
            axes.annotate(f"{over}={batch}", at, xytext=(5, -9), textcoords="offset points", fontsize=7.5)
        if any(best):
            said.append(f"{name} {over} = {', '.join(b for (b, *_), yes in zip(points, best, strict=True) if yes)}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("time between two tokens of a sequence")
    axes.set_ylabel(f"tokens a second of a {per}")
    second = next(iter(curves.values()))[0][1].unit
    for axis, form in ((axes.xaxis, prefixed(second)), (axes.yaxis, "{x:g}")):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(form)
        axis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.1)
    axes.tick_params(labelsize=8)
    axes.grid(which="major", color=GRID, linewidth=0.6)
    axes.legend(fontsize=8, loc="lower right")
    return made, f"On the front: {'; '.join(said)}."
