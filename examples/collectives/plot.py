"""Draws the times of all all-reduce algorithms over the payload: ``python examples/collectives/plot.py [file]``.

The numbers are those of section 2.1 of ``collectives.md``, read from that file.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, exact
from symcomm.core.errors import ValuesError
from symcomm.core.optimum.crossover import CheapestInterval, envelope
from symcomm.core.quantities.communication.collective_table import times
from symcomm.core.setting import Setting
from symcomm.core.units import ONE, Quantity, Unit
from symcomm.documents.plots.figure import COLOURS, checked, figure, prefixed, save
from symcomm.exams.problems.problem import read_problem
from symcomm.exams.problems.solve import no_model

HERE = Path(__file__).parent
_STYLES = ("-", "--")  # with the colours they make 16 curves


def plot_costs(
    costs: Sequence[Derivation],
    over: str,
    between: tuple[object, object],
    path: str | Path,
    labels: Sequence[str] = (),
    title: str = "",
    points: int = 240,
) -> tuple[CheapestInterval, ...]:
    """Draws costs over a variable into an SVG, PNG or PDF file, and gives the stretches in which each is the least.

    Every point is evaluated exactly and then rounded for the picture. The file appears only when it is whole, and is
    the same for the same input. Raises ``ValuesError`` for an unknown format or a number without a value,
    ``RenderError`` where matplotlib is missing or the file cannot be written.
    """
    target = checked(path)
    if not costs:
        raise ValuesError("there is nothing to draw")
    names = [*labels] or [d.title for d in costs]
    if len(names) != len(costs):
        raise ValuesError(f"{len(costs)} costs have {len(names)} labels")
    low, high = exact(between[0], over), exact(between[1], over)
    stretches = envelope(costs, over, (low, high))
    curves = [_curve(d, over, low, high, points) for d in costs]
    made = figure()
    axes = made.add_subplot()
    for i, (name, (xs, ys)) in enumerate(zip(names, curves, strict=True)):
        style = _STYLES[i // len(COLOURS) % len(_STYLES)]
        axes.plot(xs, ys, style, color=COLOURS[i % len(COLOURS)], linewidth=1.6, label=name)
    unit = costs[0].symbol_unit(over)
    for left, right in pairwise(stretches):
        x = float(right.low)
        y = float(_at(costs[right.best], over, right.low))
        axes.axvline(x, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
        axes.plot([x], [y], "o", color="black", markersize=5, zorder=5)
        said = f"{names[left.best]} → {names[right.best]}\n{Quantity(right.low, unit).reading}"
        axes.annotate(said, (x, y), xytext=(6, -6), textcoords="offset points", fontsize=7.5, va="top")
    axes.set_xscale("log")
    axes.set_yscale("log")
    meaning = costs[0].notation.meaning(over) or over
    axes.set_xlabel(f"{meaning} {over}" + (f" ({unit})" if unit != ONE else ""))
    axes.set_ylabel(f"{_what(costs[0])} ({costs[0].unit})")
    for axis, measured in ((axes.xaxis, unit), (axes.yaxis, costs[0].unit)):
        if measured != ONE:
            axis.set_major_formatter(prefixed(measured))
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.set_title(title or f"{_what(costs[0]).capitalize()} over {meaning}", fontsize=10)
    # The legend goes in the order of the curves' right ends, as the eye meets them.
    handles, texts = axes.get_legend_handles_labels()
    order = sorted(range(len(curves)), key=lambda i: -curves[i][1][-1])
    axes.legend([handles[i] for i in order], [texts[i] for i in order], fontsize=8, loc="upper left")
    save(made, target)
    return stretches


def _curve(d: Derivation, over: str, low: Fraction, high: Fraction, points: int) -> tuple[list[float], list[float]]:
    whole = next((bool(s.is_integer) for s in d.expr.free_symbols if s.name == over), True)
    ratio = math.log(float(high / low))
    xs: list[Fraction] = []
    for i in range(points):
        x = Fraction(float(low) * math.exp(ratio * i / (points - 1)))
        x = Fraction(round(x)) if whole else x
        x = min(max(x, low), high)
        if not xs or x != xs[-1]:
            xs.append(x)
    form = forms.from_expr(d.expr)
    given = dict(d.given)
    return [float(x) for x in xs], [float(forms.evaluate(form, {**given, over: x})) for x in xs]


def _at(d: Derivation, over: str, x: Fraction) -> Fraction:
    return forms.evaluate(forms.from_expr(d.expr), {**dict(d.given), over: x})


def _what(d: Derivation) -> str:
    return "time" if d.unit == Unit.parse("second") else "cost"


def main(target: str | Path = HERE / "collectives.svg") -> None:
    """Writes the picture."""
    problem = read_problem(HERE / "collectives.md")
    asked = next(a for a in problem.asks if a.quantity == "collective_table")
    options = dict(asked.options)
    collective = options.pop("collective")
    setting = Setting(no_model().graph, notation=problem.notation)
    found, _ = times(setting, collective, None, None, options)
    costs = [replace(d, title=name) for name, d in found.items()]
    labels = [name.replace("_", " ") for name in found]
    title = f"{collective} among {options['ranks']} ranks: the fastest algorithm changes at the dots"
    plot_costs(costs, "n", (64, 2**33), target, labels, title)


if __name__ == "__main__":
    main(*sys.argv[1:2])
