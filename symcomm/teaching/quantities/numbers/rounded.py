"""A number rounded to a number format: the nearest one, and how far it is."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Exhibit, Numbers, exact
from symcomm.core.dtypes import NumberFormat, decimal, number_format
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, num
from symcomm.core.quantities.declared import Meaning, Reads
from symcomm.core.quantities.options import NoModel
from symcomm.core.setting import StepWriter
from symcomm.core.units import ONE, Quantity
from symcomm.teaching.quantities.numbers.number_format import FormatName

Number = Annotated[object, Reads("quantity"), Meaning("the number, such as 0.01 or 1/3")]


def derive(
    setting: NoModel,
    x: Number,
    dtype: FormatName,
    want: Annotated[Literal["value", "error", "relative_error", "spacing"], Meaning("the result to derive")] = "value",
) -> Derivation:
    """A number in a number format, rounded to the nearest, ties to even.

    ``error`` is what it becomes less what it is, ``relative_error`` that over the number; ``spacing`` is the distance
    of neighbours there. Raises ``ValuesError`` where it is too large for the format.

    >>> from symcomm.core.graph.graph import Graph
    >>> from symcomm.core.setting import Setting
    >>> str(derive(Setting(Graph("no model", {}, {}, ())), "0.1", "bf16").at())
    '205/2048 ≈ 0.100098'
    """
    f, given = number_format(dtype), exact(x, "x")
    work = StepWriter(setting)
    if want == "spacing":
        spacing = f.spacing(given)
        text = f"Neighbours in the binade of {decimal(given)} are this far apart."
        work.define("d", num(spacing), ONE, "spacing", text,
                    witness=lambda numbers: apart(f, given))  # fmt: skip
        return setting.derivation(f"Spacing of {f.name}", work.steps)
    near = round_step(work, given, f)
    exhibits = [_neighbours(f, given)] if f.least <= given <= f.largest else []
    if want != "value":
        less = near - given
        error = work.define("delta", less, ONE, "subtract", "The rounded number minus the number.",
                            witness=lambda numbers: numbers["x_r"] - given)  # fmt: skip
        if want == "relative_error":
            if not given:
                raise ValuesError("0 is rounded without an error: there is no relative one")
            work.define("delta_rel", error / abs(given), ONE, "divide", "Divided by the number itself.",
                        witness=lambda numbers: (numbers["x_r"] - given) / abs(given))  # fmt: skip
    return setting.derivation(f"{decimal(given)} in {f.name}", work.steps, exhibits=exhibits)


def round_step(work: StepWriter, x: Fraction, f: NumberFormat) -> Form:
    """The step that rounds a number. Raises ``ValuesError`` where it is none of the format's any more."""
    found = f.rounded(x)
    if isinstance(found, str):
        large = f"its largest number is {decimal(f.largest)}"
        raise ValuesError(f"{decimal(x)} in {f.name} becomes {found}", hint=large)
    if found == x:
        text = f"{decimal(x)} is a number of {f.name}."
    elif not f.floating:
        text = f"{f.name} has whole numbers only: fractions are cut off, and too large numbers wrap round."
    elif abs(x) > f.largest:
        text = f"A number that is too large becomes the largest number of {f.name}."
    else:
        low, high = f.neighbours(x)
        tie = (
            f", as near as {told(high if found == low else low)}, whose last bit is odd" if 2 * x == low + high else ""
        )
        text = f"{decimal(x)} lies between {told(low)} and {told(high)} in {f.name}; {told(found)} is nearest{tie}."
    return work.define(
        "x_r", num(found), ONE, "round to nearest", text, witness=lambda numbers: _nearest(f, x, numbers)
    )


def told(x: Fraction) -> str:
    """A number as it is named in a sentence: as a fraction where that is short.

    >>> told(Fraction(3, 8)), told(Fraction(5368709, 536870912))
    ('3/8', '5368709/536870912')
    """
    return str(x) if len(str(x)) <= 24 else decimal(x)


def _nearest(f: NumberFormat, x: Fraction, numbers: Numbers) -> Fraction:
    """The nearest number by bisection over the codes, which are in order of size."""
    if not f.floating:
        return Fraction((int(x) + 2**f.mantissa) % 2**f.bits - 2**f.mantissa)
    low, high = 0, 2 ** (f.bits - 1) - 1
    while isinstance(f.decoded(high), str):
        high -= 1 if f.mantissa < 12 else max(1, high & (2**f.mantissa - 1))
    size = abs(x)
    while high - low > 1:
        middle = (low + high) // 2
        value = f.decoded(middle)
        assert not isinstance(value, str)
        low, high = (middle, high) if value <= size else (low, middle)
    below, above = f.decoded(low), f.decoded(high)
    assert not isinstance(below, str)
    assert not isinstance(above, str)
    nearer = abs(size - below), abs(above - size)
    best = below if nearer[0] < nearer[1] or (nearer[0] == nearer[1] and low % 2 == 0) else above
    return best if x >= 0 else -best


def apart(f: NumberFormat, x: Fraction) -> Fraction:
    """The distance of two neighbours around a number, by going to the next ones on both sides."""
    found = f.rounded(x)
    if isinstance(found, str):
        raise ValuesError(f"{decimal(x)} in {f.name} becomes {found}")
    low, high = f.neighbours(found + f.spacing(x) / 4 if abs(found) <= abs(x) else x)
    return high - low


def _neighbours(f: NumberFormat, x: Fraction) -> Exhibit:
    low, high = f.neighbours(x)
    rows = tuple(
        (side, Quantity(value, ONE), Quantity(value - x, ONE)) for side, value in (("below", low), ("above", high))
    )
    return Exhibit(f"The numbers of {f.name} next to it", ("", "number", "away"), rows)
