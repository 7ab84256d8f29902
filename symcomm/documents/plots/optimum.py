"""Pictures of optima: a cost over its variable with its terms and best value, meeting points, and elasticities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation
from symcomm.core.errors import ValuesError
from symcomm.core.form import Sym
from symcomm.core.optimum import curve
from symcomm.core.optimum.crossover import crossovers
from symcomm.core.optimum.minimum import maximise, minimise
from symcomm.core.optimum.sensitivity import break_even, sensitivity
from symcomm.core.units import ONE, Quantity, Unit
from symcomm.documents.plots.figure import (
    BLUE,
    COLOURS,
    GRID,
    ORANGE,
    RED,
    SOFT,
    below,
    figure,
    maths,
    prefixed,
    save,
    words,
)

_POINTS = 200
_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
_TERMS = 6  # more lines than these cannot be told apart


def optimum_plot(
    cost: Derivation,
    over: str,
    path: str | Path | None = None,
    *,
    given: Mapping[str, object] | None = None,
    sense: Literal["least", "greatest"] = "least",
    title: str = "",
) -> Any:
    """A Matplotlib figure of a cost over ``over``: its terms, its best real value, and the whole numbers beside it.

    ``given`` are numbers besides those of the cost; all must be known. Written to ``path`` where one is given. Raises
    the errors of ``minimise``.
    """
    values = curve.numbers(cost, over, given)
    search = minimise if sense == "least" else maximise
    place = float(search(cost, over, values, integer=False).at().value)
    whole = int(search(cost, over, values).at().value)
    worth = curve.function(cost.expr, over, values)
    unit = cost.symbol_unit(over)
    low, high, log = _range(place)
    xs = _spread(low, high, log)
    made = figure(7.2, 3.9)
    axes = made.add_subplot()
    axes.plot(xs, [worth(x) for x in xs], color="black", linewidth=1.8, label=words(cost.title))
    for i, (form, term) in enumerate(curve.terms(cost, over, values, _TERMS)):
        axes.plot(xs, [term(x) for x in xs], "--", color=COLOURS[i % len(COLOURS)], linewidth=1.1,
                  label=maths(form, cost.notation))  # fmt: skip
    best = worth(place)
    axes.axvline(place, color=SOFT, linewidth=0.8, linestyle=":", zorder=0)
    axes.plot([place], [best], "o", color="black", markersize=6, zorder=5)
    at = f"{maths(Sym(over), cost.notation)} {_equal(place)} {_short(place, unit)}"
    said = f"{sense} at {at}\n{_short(best, cost.unit)}"
    made.set_label(f"{_short(best, cost.unit)} at `{over}` {_equal(place)} {_short(place, unit)}")
    axes.annotate(said, (place, best), xytext=(0, 26 if sense == "least" else -34), textcoords="offset points",
                  fontsize=8, ha="center", bbox=_WHITE,
                  arrowprops={"arrowstyle": "-", "color": SOFT, "lw": 0.6})  # fmt: skip
    if place >= 200:  # its neighbours cannot be told apart
        axes.plot([whole], [worth(whole)], "D", color=RED, markersize=5, label=f"best whole number, {whole}")
    else:
        near = sorted({n for n in (math.floor(place), math.ceil(place), whole) if n >= max(1, low)})
        for n in near:
            chosen = n == whole
            axes.plot([n], [worth(n)], "D", color=RED, markersize=6, markerfacecolor=RED if chosen else "white",
                      zorder=6, label=f"best whole number, {n}" if chosen else None)  # fmt: skip
    top = max(best * 3, best + 1e-300) if sense == "least" else best * 1.25
    axes.set_ylim(0, top)
    axes.set_xlim(low, high)
    _dress(axes, cost, over, unit, log)
    axes.set_title(
        words(title) or f"{words(cost.title)} over {words(cost.notation.meaning(over)) or over}", fontsize=10
    )
    below(axes)
    return save(made, path)


def crossover_plot(
    a: Derivation,
    b: Derivation,
    over: str,
    path: str | Path | None = None,
    between: tuple[object, object] | None = None,
    labels: Sequence[str] = (),
    title: str = "",
) -> Any:
    """A Matplotlib figure of two costs with every point at which one overtakes the other, as ``crossovers`` finds them.

    Without ``between`` the picture shows what lies around the points. Raises the errors of ``crossovers``, and
    ``ValuesError`` where a number is missing.
    """
    found = crossovers(a, b, over, between)
    points = [float(c.high) for c in found.crossings]
    if between is None and not points:
        raise ValuesError(f"the costs do not cross over {over}", hint="give the range to be drawn: between")
    limits = tuple(float(x) for x in found.between) if between is not None else (min(points) / 16, max(points) * 16)
    return _meeting(a, b, over, points, limits, labels, title, path)


def break_even_plot(
    a: Derivation,
    b: Derivation,
    over: str,
    path: str | Path | None = None,
    labels: Sequence[str] = (),
    title: str = "",
) -> Any:
    """A Matplotlib figure of two costs and the one point where they are equal, as ``break_even`` derives it."""
    point = float(break_even(a, b, over).at().value)
    return _meeting(a, b, over, [point], (point / 16, point * 16), labels, title, path)


def sensitivity_plot(
    cost: Derivation, path: str | Path | None = None, *, given: Mapping[str, object] | None = None, title: str = ""
) -> Any:
    """A Matplotlib figure of the elasticities of an answer to its parameters: a bar each, the longest on top.

    A bar of 1/2 says that the answer grows by half a per cent where the parameter grows by one. Raises the errors of
    ``sensitivity``, and ``ValuesError`` where an elasticity depends on a number that is not given.
    """
    values = curve.numbers(cost, "", given)
    names = forms.names(forms.from_expr(cost.expr))
    if not names:
        raise ValuesError(f"'{cost.title}' depends on nothing")
    found: list[tuple[str, float, str]] = []
    for name in names:
        exactly = sensitivity(cost, name, values).at().value
        shown = str(exactly) if exactly.denominator < 100 else f"{float(exactly):.3g}"
        found.append((name, float(exactly), shown.replace("-", "−")))
    found.sort(key=lambda one: abs(one[1]))
    made = figure(7.2, 1.1 + 0.36 * max(len(found), 2))
    axes = made.add_subplot()
    reach = max(abs(size) for _, size, _ in found) or 1.0
    for row, (_, size, shown) in enumerate(found):
        axes.barh(row, size, height=0.62, color=BLUE if size >= 0 else ORANGE)
        axes.annotate(shown, (size, row), xytext=(4 if size >= 0 else -4, 0), textcoords="offset points", fontsize=8.5,
                      va="center", ha="left" if size >= 0 else "right")  # fmt: skip
    labels = [f"{words(cost.notation.meaning(n))}  {maths(Sym(n), cost.notation)}".strip() for n, _, _ in found]
    axes.set_yticks(range(len(found)), labels, fontsize=8.5)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlim(-1.25 * reach, 1.25 * reach)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.set_xlabel("change of the answer in per cent, for one per cent of the parameter", fontsize=8.5)
    axes.set_title(words(title) or f"Sensitivity of the answer: {words(cost.title)}", fontsize=10)
    return save(made, path)


# -- what they share ---------------------------------------------------------------------------------------


def _meeting(
    a: Derivation, b: Derivation, over: str, points: Sequence[float], limits: tuple[float, ...],
    labels: Sequence[str], title: str, path: str | Path | None,
) -> Any:  # fmt: skip
    names = [words(label) for label in labels] or [words(f"{d.title[:1].lower()}{d.title[1:]}") for d in (a, b)]
    if len(names) != 2:
        raise ValuesError(f"two costs have {len(names)} labels")
    both = dict(a.given) | dict(b.given)
    unit = a.symbol_unit(over) if a.symbol_unit(over) != ONE else b.symbol_unit(over)
    low, high = limits
    log = high > 20 * low
    xs = _spread(low, high, log)
    if any(symbol.name == over and symbol.is_integer for symbol in a.expr.free_symbols):
        xs = [float(x) for x in sorted({max(1, round(x)) for x in xs})]  # steps of a count stand where they are
    made = figure(7.2, 3.9)
    axes = made.add_subplot()
    given = {name: value for name, value in both.items() if name != over}
    curves = [curve.function(d.expr, over, curve.numbers(d, over, given)) for d in (a, b)]
    for worth, name, colour in zip(curves, names, (BLUE, RED), strict=True):
        axes.plot(xs, [worth(x) for x in xs], color=colour, linewidth=1.7, label=name)
    few = len(points) == 1
    where = (f"`{over}` {_equal(point)} {_short(point, unit)}" for point in points[:_TERMS])
    made.set_label(", ".join(dict.fromkeys(where)))
    for number, point in enumerate(points, 1):
        y = curves[0](point)
        axes.axvline(point, color=SOFT, linewidth=0.8, linestyle=":", zorder=0)
        said = f"{maths(Sym(over), a.notation)} {_equal(point)} {_short(point, unit)}"
        listed = None if few or number > _TERMS else f"{number}: {said}"  # where points are close, words would overlap
        axes.plot([point], [y], "o", color="black", markersize=6, zorder=5, label=listed)
        text = f"{said}\n{_short(y, a.unit)}" if few else str(number) if listed else ""
        shift, side = ((7, -7), "top") if few else ((0, 7), "bottom")
        axes.annotate(text, (point, y), xytext=shift, textcoords="offset points", fontsize=8, va=side)
    _dress(axes, a, over, unit, log)
    ys = [worth(x) for worth in curves for x in (low, high)]
    if log and min(ys) > 0:
        from matplotlib.ticker import LogLocator, NullFormatter

        axes.set_yscale("log")
        if a.unit != ONE:
            axes.yaxis.set_major_formatter(prefixed(a.unit))
            axes.yaxis.set_minor_formatter(NullFormatter())
        if max(ys) < 300 * min(ys):
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.set_xlim(low, high)
    axes.set_title(words(title) or f"Where {names[0]} and {names[1]} are equal", fontsize=10)
    below(axes)
    return save(made, path)


def _dress(axes: Any, cost: Derivation, over: str, unit: Unit, log: bool) -> None:
    """The axes with their names, units and scale."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    meaning = cost.notation.meaning(over)
    axes.set_xlabel(
        f"{words(meaning)} {maths(Sym(over), cost.notation)}".strip() + (f" ({unit})" if unit != ONE else "")
    )
    axes.set_ylabel(f"{'time' if cost.unit == Unit.parse('second') else 'cost'} ({cost.unit})")
    if log:
        axes.set_xscale("log")
    for axis, measured in ((axes.xaxis, unit), (axes.yaxis, cost.unit)):
        if measured != ONE:
            axis.set_major_formatter(prefixed(measured))
            axis.set_minor_formatter(NullFormatter())
        elif log and axis is axes.xaxis:
            thousands = FuncFormatter(lambda x, _: f"{x:,.0f}".replace(",", "\u202f") if x >= 1 else f"{x:g}")
            axis.set_major_formatter(thousands)
    axes.grid(which="major", color=GRID, linewidth=0.6)
    axes.tick_params(labelsize=8)


def _range(place: float) -> tuple[float, float, bool]:
    """What is drawn around the best place, and whether on a logarithmic axis."""
    if place <= 24:
        return min(1.0, place / 4), max(4 * place, 4.0), False
    return place / 12, place * 12, True


def _spread(low: float, high: float, log: bool) -> list[float]:
    if log:
        ratio = math.log(high / low)
        return [low * math.exp(ratio * i / (_POINTS - 1)) for i in range(_POINTS)]
    return [low + (high - low) * i / (_POINTS - 1) for i in range(_POINTS)]


def _short(value: float, unit: Unit) -> str:
    return Quantity(Fraction(f"{value:.4g}"), unit).reading


def _equal(value: float) -> str:
    """What stands before a number that is read with four digits."""
    return "=" if float(f"{value:.4g}") == value else "≈"
