"""The roofline plot: the two roofs of a machine, and the ops below them, as SVG, PNG or PDF (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation
from symcomm.core.errors import ValuesError
from symcomm.documents.plots.drawing import INK, LINE, MARK, SOFT, Sketch
from symcomm.documents.plots.figure import COLOURS, figure, save

_WIDTH, _HEIGHT = 470.0, 118.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 458.0, 10.0, 92.0  # of the small one


def roofline_plot(
    ops: Mapping[str, Derivation], path: str | Path | None = None, title: str = "Roofline", **values: object
) -> Any:
    """A Matplotlib figure of roofline derivations of one machine by name; written to ``path`` where one is given.

    Each op stands on its roof at its arithmetic intensity. Raises ``ValuesError`` where a derivation is no roofline,
    lacks a number, or is of another machine.
    """
    if not ops:
        raise ValuesError("a roofline plot needs at least one op")
    points: dict[str, tuple[Fraction, Fraction]] = {}
    roofs: set[tuple[Fraction, Fraction]] = set()
    for name, derivation in ops.items():
        points[name] = (_worth(derivation, "I", values), derivation.at(values).value)
        # The ridge and the roof over it follow from the machine alone.
        roofs.add((_worth(derivation, "I_machine", values), _peak(derivation, values)))
    if len(roofs) > 1:
        raise ValuesError("the ops are on machines with different roofs", hint="plot one machine at a time")
    ((ridge, peak),) = roofs
    made = figure(7, 4.5)
    axes = made.subplots()
    intensities = [float(i) for i, _ in points.values()]
    low, high = min(*intensities, float(ridge)) / 4, max(*intensities, float(ridge)) * 4
    axes.plot([low, float(ridge), high], [float(peak / ridge) * low, float(peak), float(peak)], color="black", lw=1.5)
    axes.axvline(float(ridge), color="0.6", lw=0.8, ls="--")
    axes.annotate(
        f"ops:byte ratio\n{float(ridge):.4g} FLOP/B", (float(ridge), float(peak) / 2.4), (4, 0),
        textcoords="offset points", fontsize=8, color="0.35",
    )  # fmt: skip
    for n, (name, (intensity, rate)) in enumerate(points.items()):
        axes.plot([float(intensity)], [float(rate)], "o", ms=7, color=COLOURS[n % len(COLOURS)],
                  label=f"{name}: {float(intensity):.4g} FLOP/B, {float(rate) / 1e12:.4g} TFLOP/s")  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("arithmetic intensity (FLOP/B)")
    axes.set_ylabel("attainable rate (FLOP/s)")
    axes.set_title(title)
    axes.grid(True, which="major", color="0.9")
    axes.legend(loc="lower right", fontsize=8)
    return save(made, path)


def _worth(derivation: Derivation, name: str, values: Mapping[str, object]) -> Fraction:
    if name not in derivation.worth:
        raise ValuesError(f"'{derivation.title}' is no roofline", hint="use model.roofline(...)")
    return forms.evaluate(forms.from_expr(derivation.worth[name]), derivation.values(values))


def _peak(derivation: Derivation, values: Mapping[str, object]) -> Fraction:
    """The flat roof, which stands first in the answer."""
    answer = next(s for s in derivation.steps if s.name == derivation.answer.name and s.relation == ":=")
    flat = forms.value(answer.form.parts[0], derivation.worth)
    return forms.evaluate(forms.from_expr(flat), derivation.values(values))


def small_roofline(points: Mapping[str, tuple[float, float]], ridge: float, peak: float) -> tuple[Sketch, str]:
    """The roofs of a machine (``peak`` in FLOP/s from ``ridge`` FLOP/B on) and ops by name: intensity and rate."""
    every = [ridge, *(i for i, _ in points.values())]
    low, high = floor(log10(min(every) / 1.5)), ceil(log10(max(every) * 1.5))
    top = log10(peak) + 0.35
    bottom = top - max(1.2, log10(peak) - log10(min(r for _, r in points.values())) + 0.75)
    drawing = Sketch(_WIDTH, _HEIGHT)

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = _LEFT + (log10(intensity) - low) / (high - low) * (_RIGHT - _LEFT)
        return x, _BOTTOM - (log10(rate) - bottom) / (top - bottom) * (_BOTTOM - _TOP)

    drawing.line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM)
    drawing.line(_LEFT, _BOTTOM, _LEFT, _TOP)
    for n in range(low, high + 1):
        x = at(10.0**n, peak)[0]
        drawing.line(x, _BOTTOM, x, _BOTTOM + 3)
        drawing.text(x, _BOTTOM + 12, f"{10.0**n:g}", 7.5, SOFT)
    for n in range(ceil(bottom), floor(top) + 1):
        y = at(10.0**low, 10.0**n)[1]
        drawing.line(_LEFT - 3, y, _LEFT, y)
        drawing.text(_LEFT - 5, y + 2.5, f"{10.0 ** (n - 12):g}", 7.5, SOFT, "end")
    drawing.text((_LEFT + _RIGHT) / 2, _HEIGHT - 3, "arithmetic intensity (FLOP/B)", 8, SOFT)
    drawing.text(_LEFT + 4, _TOP + 2, "TFLOP/s", 7.5, SOFT, "start")
    start = max(10.0**low, ridge * 10.0**bottom / peak)
    (x0, y0), (xr, yr), (x1, y1) = at(start, peak * start / ridge), at(ridge, peak), at(10.0**high, peak)
    drawing.line(x0, y0, xr, yr, INK, wide=1.4)
    drawing.line(xr, yr, x1, y1, INK, wide=1.4)
    drawing.line(xr, yr, xr, _BOTTOM, LINE, dashed=True)
    drawing.text(xr + 3, _BOTTOM - 4, f"{ridge:.4g} FLOP/B", 7.5, SOFT, "start")
    taken = [(xr, _BOTTOM - 11, xr + 60, _BOTTOM), (xr, yr, xr, _BOTTOM)]  # left, upper, right and lower ends
    taken += [(x - 4, y - 4, x + 4, y + 4) for x, y in (at(*point) for point in points.values())]
    for name, (intensity, rate) in points.items():
        x, y = at(intensity, rate)
        drawing.dot(x, y, 3.2)
        text = f"{name}: {intensity:.4g}"
        # Beside the slope; on the flat roof above it or below it, in the first place that is free.
        places = [(x + 6, y + 9, "start"), (x - 6, y - 4, "end"), (x + 6, y + 19, "start")]
        if intensity >= ridge:
            sides = ((x, "middle"), (x, "end"), (x, "start"))
            places = [(px, y + shift, anchor) for shift in (-6, 13, 23, 33) for px, anchor in sides]
        spaces = [(place, _space(text, *place)) for place in places]
        inside = [pair for pair in spaces if pair[1][0] > _LEFT and pair[1][2] <= _WIDTH]
        place, space = next((pair for pair in inside if not any(_meet(pair[1], o) for o in taken)), spaces[0])
        taken.append(space)
        drawing.text(*place[:2], text, 8, MARK, place[2])
    told = ", ".join(f"{name} {'memory' if i < ridge else 'compute'} bound" for name, (i, _) in points.items())
    return drawing, f"On this machine: {told}."


def _space(text: str, x: float, y: float, anchor: str) -> tuple[float, float, float, float]:
    """Left, upper, right and lower end of a label."""
    wide = 4.1 * len(text)
    left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[anchor]
    return left, y - 7, left + wide, y + 1.5


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
