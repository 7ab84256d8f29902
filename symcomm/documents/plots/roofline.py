"""The roofline plot: the two roofs of a machine, and the ops below them, as SVG, PNG or PDF (extra ``plot``)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation
from symcomm.core.errors import ValuesError
from symcomm.documents.plots.figure import COLOURS, figure, save


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
