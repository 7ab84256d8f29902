"""Costs over a size on logarithmic axes, with the places marked at which the least of them changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

from symcomm import form as forms
from symcomm.derivation import Derivation, exact
from symcomm.errors import RenderError, ValuesError
from symcomm.optimum.crossover import Stretch, envelope
from symcomm.units import ONE, Quantity, Unit

_FORMATS = ("svg", "png")
# Okabe and Ito's colours: told apart by readers who do not see red and green; with line styles they make 16 curves.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
_STYLES = ("-", "--")


def plot_costs(
    costs: Sequence[Derivation],
    over: str,
    between: tuple[object, object],
    path: str | Path,
    labels: Sequence[str] = (),
    title: str = "",
    points: int = 240,
) -> tuple[Stretch, ...]:
    """Draws costs over a variable into an SVG or PNG file, and gives the stretches in which each is the least.

    Every point is evaluated exactly and then rounded for the picture. The file appears only when it is whole, and is
    the same for the same input. Raises ``ValuesError`` for an unknown format or a number without a value,
    ``RenderError`` where matplotlib is missing or the file cannot be written.
    """
    target = Path(path)
    if target.suffix.lstrip(".") not in _FORMATS:
        raise ValuesError(f"'{target.name}' is no picture that can be written", hint="end it with .svg or .png")
    if not costs:
        raise ValuesError("there is nothing to draw")
    names = [*labels] or [d.title for d in costs]
    if len(names) != len(costs):
        raise ValuesError(f"{len(costs)} costs have {len(names)} labels")
    low, high = exact(between[0], over), exact(between[1], over)
    stretches = envelope(costs, over, (low, high))
    curves = [_curve(d, over, low, high, points) for d in costs]
    figure_type, formatter = _matplotlib()
    figure = figure_type(figsize=(7.2, 4.6), layout="constrained")
    axes = figure.add_subplot()
    for i, (name, (xs, ys)) in enumerate(zip(names, curves, strict=True)):
        style = _STYLES[i // len(_COLOURS) % len(_STYLES)]
        axes.plot(xs, ys, style, color=_COLOURS[i % len(_COLOURS)], linewidth=1.6, label=name)
    unit = _unit(costs[0], over)
    for left, right in pairwise(stretches):
        x = float(right.low)
        y = float(_at(costs[right.best], over, right.low))
        axes.axvline(x, color="#999999", linewidth=0.8, linestyle=":", zorder=0)
        axes.plot([x], [y], "o", color="black", markersize=5, zorder=5)
        said = f"{names[left.best]} → {names[right.best]}\n{_short(right.low, unit)}"
        axes.annotate(said, (x, y), xytext=(6, -6), textcoords="offset points", fontsize=7.5, va="top")
    axes.set_xscale("log")
    axes.set_yscale("log")
    meaning = costs[0].notation.meaning(over) or over
    axes.set_xlabel(f"{meaning} {over}" + (f" ({unit})" if unit != ONE else ""))
    axes.set_ylabel(f"{_what(costs[0])} ({costs[0].unit})")
    for axis, measured in ((axes.xaxis, unit), (axes.yaxis, costs[0].unit)):
        if measured != ONE:
            axis.set_major_formatter(formatter(unit=str(measured)))
    axes.grid(which="major", color="#dddddd", linewidth=0.6)
    axes.set_title(title or f"{_what(costs[0]).capitalize()} over {meaning}", fontsize=10)
    # The legend goes in the order of the curves' right ends, as the eye meets them.
    handles, texts = axes.get_legend_handles_labels()
    order = sorted(range(len(curves)), key=lambda i: -curves[i][1][-1])
    axes.legend([handles[i] for i in order], [texts[i] for i in order], fontsize=8, loc="upper left")
    _write(figure, target)
    return stretches


def _matplotlib() -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import EngFormatter
    except ImportError:
        raise RenderError("a picture needs matplotlib", hint="pip install 'symcomm[plot]'") from None
    return Figure, EngFormatter


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


def _unit(d: Derivation, over: str) -> Unit:
    pieces = (p for step in d.steps for p in forms.walk(step.form))
    return next((p.unit for p in pieces if isinstance(p, forms.Sym) and p.name == over and p.unit != ONE), ONE)


def _what(d: Derivation) -> str:
    return "time" if d.unit == Unit.parse("second") else "cost"


def _short(value: Fraction, unit: Unit) -> str:
    ways = Quantity(value, unit).lines()
    return ways[1][1] if len(ways) > 1 else ways[0][1]


def _write(figure: Any, target: Path) -> None:
    import matplotlib as mpl

    kind = target.suffix.lstrip(".")
    # No date, no version and no random identifiers: the same input gives the same file.
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    part = target.with_name(f".{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with mpl.rc_context({"svg.hashsalt": "symcomm", "svg.fonttype": "path"}):
            figure.savefig(part, format=kind, dpi=160, metadata=metadata)
        part.replace(target)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise RenderError(f"{target} cannot be written: {error.strerror}") from None
