"""The graph of an evaluation trace: a node a variable, an arrow an operand; inputs on the left, outputs right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from symcomm.core.errors import ValuesError
from symcomm.core.form import Num, Power, Sym
from symcomm.core.notation import Notation
from symcomm.documents.plots.figure import BLUE, GREEN, ORANGE, SOFT, figure, maths, save
from symcomm.teaching.differentiation.operations import OPERATION
from symcomm.teaching.differentiation.trace import EvaluationTrace, Variable

_NODES = 60  # more cannot be read
_SIGNS = {"add": "$+$", "sub": "$-$", "mul": r"$\times$", "div": r"$\div$", "neg": "$-$", "sqrt": r"$\sqrt{\ }$"}


def trace_plot(trace: EvaluationTrace, path: str | Path | None = None) -> Any:
    """A Matplotlib figure of a trace; written to ``path`` (.svg, .png or .pdf) where one is given.

    A column holds the variables of one level. Raises ``ValuesError`` for a trace with too many variables to be read.
    """
    if len(trace.variables) > _NODES:
        raise ValuesError(f"{len(trace.variables)} variables would be too small to read", hint=f"draw at most {_NODES}")
    levels: dict[int, list[Variable]] = {}
    for v in trace.variables:
        levels.setdefault(v.level, []).append(v)
    places = {
        v.number: (1.7 * level, (len(column) - 1) / 2 - n) for level, column in levels.items()
        for n, v in enumerate(column)
    }  # fmt: skip
    right = 1.7 * (max(levels) + 1)
    tall = max(map(len, levels.values()))
    picture = figure(7.2, min(0.7 + 0.65 * tall, 9.0))
    axes = picture.add_subplot()
    ends: dict[int, list[str]] = {}
    for name, number in trace.outputs:
        ends.setdefault(number, []).append(name)
    for v in trace.variables:
        here = places[v.number]
        for n, read in enumerate(v.reads):
            twice = (0.18, -0.18)[n] if v.reads.count(read) > 1 else 0.0
            _arrow(axes, places[read], here, twice or _bend(places, read, v))
        colour = GREEN if v.input else ORANGE if v.number in ends else BLUE
        axes.plot(*here, "o", markersize=30, markerfacecolor="white", markeredgecolor=colour, markeredgewidth=1.4)
        axes.annotate(maths(Sym(v.name), Notation()), here, ha="center", va="center", fontsize=10)
        axes.annotate(_label(trace, v), here, (0, 20), textcoords="offset points", ha="center", fontsize=8, color=SOFT)
        for n, name in enumerate(ends.get(v.number, ())):
            end = (right, here[1] - 0.35 * n)
            _arrow(axes, here, end, 0.0)
            axes.annotate(maths(Sym(name), Notation()), end, (5, 0), textcoords="offset points", va="center")
    axes.set_xlim(-0.8, right + 0.7)
    axes.set_ylim(-tall / 2 - 0.2, tall / 2 + 0.2)
    axes.axis("off")
    return save(picture, path)


def _bend(places: dict[int, tuple[float, float]], read: int, v: Variable) -> float:
    """An arrow over several levels goes around what stands between."""
    (x, a), (z, b) = places[read], places[v.number]
    on_the_way = [p for n, p in places.items() if n not in (read, v.number) and x < p[0] < z]
    blocked = any(abs(a + (b - a) * (p[0] - x) / (z - x) - p[1]) < 0.35 for p in on_the_way)
    return 0.28 if blocked else 0.0


def _arrow(axes: Any, start: tuple[float, float], stop: tuple[float, float], bend: float) -> None:
    style = {"arrowstyle": "-|>", "color": SOFT, "shrinkA": 16, "shrinkB": 16, "linewidth": 0.9,
             "connectionstyle": f"arc3,rad={bend}"}  # fmt: skip
    axes.annotate("", stop, start, arrowprops=style)


def _label(trace: EvaluationTrace, v: Variable) -> str:
    """What a node does, in a sign or a word: its input, or its operation with the constants in it."""
    if v.input:
        return maths(Sym(v.input), Notation())
    constants = [one for one in v.operands if not isinstance(one, int)]
    form = trace.form(v)
    if v.operation == "pow" and isinstance(form, Power) and isinstance(form.exponent, Num):
        return f"$(\\cdot)^{{{form.exponent.number}}}$"
    if constants:
        return maths(form, Notation())
    return _SIGNS.get(v.operation, OPERATION[v.operation].name)


def says(trace: EvaluationTrace) -> str:
    """A sentence on what the picture shows."""
    inputs, outputs = len(trace.inputs), len(trace.outputs)
    ends = ", ".join(f"`{name}` is `v_{number}`" for name, number in trace.outputs)
    return (f"The graph of the trace: {inputs} input{'s' * (inputs > 1)}, {len(trace.operations)} operations, "
            f"{outputs} output{'s' * (outputs > 1)}; {ends}.")  # fmt: skip
