"""The front of time and memory that a search found, with its fastest configurations (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from symcomm.core.errors import ValuesError
from symcomm.core.units import BYTE, Quantity
from symcomm.documents.plots.figure import COLOURS, GRID, SOFT, checked, figure, prefixed, save


class FrontPoint(Protocol):
    """A configuration in the picture: how it runs, where that puts it, and what the title and both axes say."""

    @property
    def strategy(self) -> str: ...
    @property
    def mesh(self) -> tuple[tuple[str, int], ...]: ...
    @property
    def family(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def place(self) -> tuple[Quantity, Quantity]: ...
    @property
    def axes(self) -> tuple[str, str, str]: ...


class SearchFront(Protocol):
    """The part of a search that is drawn."""

    @property
    def model(self) -> str: ...
    @property
    def devices(self) -> int: ...
    @property
    def capacity(self) -> Quantity: ...
    @property
    def front(self) -> Sequence[FrontPoint]: ...
    @property
    def top(self) -> Sequence[FrontPoint]: ...


def pareto_plot(found: SearchFront, path: str | Path | None = None) -> Any:
    """A Matplotlib figure of the front, written to ``path`` where one is given.

    Each family of strategies has its colour. Raises ``ValuesError`` where nothing fits, or for an unknown format, and
    ``RenderError`` where Matplotlib is missing or the file cannot be written.
    """
    if path is not None:
        checked(path)
    if not found.front:
        raise ValuesError("no configuration fits, so there is no front to draw")
    made = figure()
    axes = made.add_subplot()
    title, across, up = found.front[0].axes
    times, heights = zip(*sorted(map(_at, found.front)), strict=True)
    axes.step(times, heights, where="post", color="#bbbbbb", linewidth=1.2, zorder=1)
    families: dict[str, list[FrontPoint]] = {}
    for one in found.front:
        families.setdefault(one.family, []).append(one)
    for n, (name, members) in enumerate(families.items()):
        axes.plot(
            *zip(*map(_at, members), strict=True),
            "os^Dv"[n // len(COLOURS) % 5], color=COLOURS[n % len(COLOURS)], markersize=6, label=name, zorder=3,
        )  # fmt: skip
    top = [c for c in found.top if c not in found.front]
    if top:
        axes.plot(*zip(*map(_at, top), strict=True), "x", color=SOFT, markersize=5,
                  label="other fast ones", zorder=2)  # fmt: skip
    unit, wide, high = found.front[0].place[1].unit, times[-1] - times[0], max(heights)
    if unit == BYTE:
        high = float(found.capacity.value)
        axes.axhline(high, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
    labelled: list[tuple[float, float]] = []
    for one in found.front:
        at = _at(one)
        if any(abs(at[0] - x) < 0.4 * wide and abs(at[1] - y) < 0.06 * high for x, y in labelled):
            continue  # there is no room for its label
        labelled.append(at)
        left = at[0] > (times[0] + times[-1]) / 2
        said = " × ".join(str(n) for _, n in one.mesh) + f", {one.label}"
        axes.annotate(said, at, xytext=(-6 if left else 6, 5), textcoords="offset points", fontsize=7,
                      ha="right" if left else "left")  # fmt: skip
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.12)
    for axis, of in ((axes.xaxis, found.front[0].place[0].unit), (axes.yaxis, unit)):
        axis.set_major_formatter(prefixed(of))
    axes.grid(which="major", color=GRID, linewidth=0.6)
    axes.set_title(f"{found.model} on {found.devices:,} devices: {title}", fontsize=10)
    axes.legend(fontsize=7.5, loc="best")
    return save(made, path)


def _at(one: FrontPoint) -> tuple[float, float]:
    across, up = one.place
    return float(across.value), float(up.value)
