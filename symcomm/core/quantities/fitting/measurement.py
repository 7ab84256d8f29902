"""Statistics of measured numbers: their mean and spread, a line through them, and a comparison of two."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated

from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Num, Power, Ratio, Root, Total, combined, negative, num, product
from symcomm.core.quantities.declared import Meaning, OneOf
from symcomm.core.quantities.options import NoModel
from symcomm.core.quantities.witnesses import number
from symcomm.core.setting import StepWriter
from symcomm.core.units import ONE, Quantity, Unit

WANTED = {
    "mean": 1, "deviation": 1, "sample_deviation": 2, "difference": 2, "ratio": 2, "increase": 2, "slope": 2,
    "intercept": 2, "slope_through_zero": 1,
}  # fmt: skip
_MOST = 100  # more numbers than that are no write-up


def derive(
    setting: NoModel,
    want: Annotated[str, OneOf(WANTED), Meaning("the result to derive")] = "mean",
    values: Annotated[str | None, Meaning("numbers with their unit, separated by commas, such as 0.8 s, 0.9 s")] = None,
    through: Annotated[str | None, Meaning("sizes and measurements, such as 16: 11 GB, 64: 38 GB")] = None,
) -> Derivation:
    """Statistics of measured numbers: a mean, a spread, a line, a comparison.

    A mean, a standard deviation (divided by n; ``sample_deviation`` by n - 1), or a comparison of two numbers.

    ``values`` are numbers with their unit and commas between them: ``0.796 s, 0.776 s``. ``difference`` is the first
    less the second, ``ratio`` the first over the second; ``increase`` goes from the first to the second one, over the
    first. ``slope`` and ``intercept`` are those of the line ``through`` points such as ``16: 10.9 GB, 64: 38.3 GB``
    (least squares where there are more than two); ``slope_through_zero`` is that of a line through the origin. Raises
    ``ValuesError`` for numbers that do not go together.

    >>> from symcomm.core.graph.graph import Graph
    >>> from symcomm.core.setting import Setting
    >>> setting = Setting(Graph("no model", {}, {}, ()))
    >>> str(derive(setting, "deviation", "0 B, 0 B, 3 B").at())
    '√(2) B ≈ 1.41421 B'
    >>> str(derive(setting, "slope", through="1: 5 s, 3: 9 s").at())
    '2 s'
    """
    line = want in ("slope", "intercept", "slope_through_zero")
    if line != bool(through) or line == bool(values):
        needed = "through: 16: 11 GB, 64: 38 GB" if line else "values: 0.8 s, 0.9 s"
        raise ValuesError(f"the {want} takes '{'through' if line else 'values'}' and nothing else", hint=needed)
    work = StepWriter(setting)
    if line:
        _line(work, want, *_points(str(through), least=WANTED[want]))
    else:
        found = _values(str(values).split(","), "value", mixed=want == "ratio")
        _few(want, len(found), exactly=want in ("difference", "ratio", "increase"))
        _numbers(work, want, [Num(q.value, q.unit) for q in found], found[0].unit)
    return setting.derivation(want.replace("_", " ").capitalize(), work.steps)


def _values(said: list[str], what: str, mixed: bool = False) -> list[Quantity]:
    if len(said) > _MOST:
        raise ValuesError(f"there are {len(said)} numbers; at most {_MOST} are read")
    found = [Quantity.parse(text.strip()) for text in said]
    odd = next((q for q in found if q.unit != found[0].unit), None)
    if odd is not None and not mixed:
        raise ValuesError(f"one {what} is in {found[0].unit}, but another one in {odd.unit}", hint="give them one unit")
    return found


def _points(said: str, least: int) -> tuple[list[Fraction], list[Num], Unit]:
    pairs = [part.split(":") for part in said.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise ValuesError("a point has a number, a colon and another number", hint="such as 16: 11 GB, 64: 38 GB")
    sizes, measured = _values([a for a, _ in pairs], "point"), _values([b for _, b in pairs], "measurement")
    x = [q.value for q in sizes]
    _few("line", len(x), exactly=False, least=least)
    if len({*x}) < 2 and (least > 1 or not any(x)):
        raise ValuesError(f"all points are at {x[0]}: they fit no single line", hint="measure at two sizes")
    return x, [Num(q.value, q.unit) for q in measured], sizes[0].unit


def _few(want: str, count: int, exactly: bool, least: int = 2) -> None:
    least = WANTED.get(want, least)
    if count < least or (exactly and count != least):
        raise ValuesError(f"the {want} needs {least} numbers, but there are {count}", hint="0.8 s, 0.9 s")


def _numbers(work: StepWriter, want: str, values: Sequence[Num], unit: Unit) -> None:
    if want in ("difference", "ratio", "increase"):
        first, second = values
        if want == "ratio" and not second.number:
            raise ValuesError("nothing is divided by 0")
        if want == "increase" and not first.number:
            raise ValuesError("an increase from 0 is no part of it")
        one, other = (
            work.combine(name, value, value.unit, "measured", f"The {which} measurement.")
            for name, value, which in (("x_1", first, "first"), ("x_2", second, "second"))
        )  # fmt: skip
        if want == "ratio":
            work.combine("r", Ratio(one, other), unit / second.unit, "divide", "The first over the second.")
        elif want == "difference":
            work.define("d", Total((one, negative(other))), unit, "subtract", "The first minus the second.",
                        witness=lambda numbers: first.number - second.number)  # fmt: skip
        else:
            more = work.define("d", Total((other, negative(one))), unit, "subtract", "The second minus the first.",
                               witness=lambda numbers: second.number - first.number)  # fmt: skip
            work.define("p", Ratio(more, one), ONE, "divide", "The difference over the first.",
                        witness=lambda numbers: second.number / first.number - 1)  # fmt: skip
        return
    text = f"The mean of {len(values)} numbers."
    mean = work.define("m", Ratio(combined(Total, values), num(len(values))), unit, "mean", text,
                       witness=lambda numbers: statistics.mean(v.number for v in values))  # fmt: skip
    if want == "mean":
        return
    less_one = want == "sample_deviation"
    squares = combined(Total, [Power(Total((value, negative(mean))), num(2)) for value in values])
    text = "The sum of the squared differences, over one less than their number."
    text = text if less_one else "The mean of the squared differences."
    spread = statistics.variance if less_one else statistics.pvariance
    variance = work.define("v", Ratio(squares, num(len(values) - less_one)), unit**2, "variance", text,
                           witness=lambda numbers: spread(v.number for v in values))  # fmt: skip

    def squared(numbers: Numbers) -> bool:
        exact_one, found = number(variance, numbers), numbers["s"] ** 2
        return abs(found - exact_one) * 10**30 <= exact_one

    text = "The standard deviation is in the unit of the numbers."
    work.define("s", Root(variance), unit, "root", text, witness=squared)


def _line(work: StepWriter, want: str, x: list[Fraction], y: Sequence[Num], of: Unit) -> None:
    at = [num(v, of) for v in x]
    unit = y[0].unit / of
    if want == "slope_through_zero":
        top = combined(Total, [product(w, m) for w, m in zip(at, y, strict=True)])
        form: Form = Ratio(top, combined(Total, [Power(w, num(2)) for w in at]))
        text = "The line through 0 with the least squared distances from the measurements."

        def level(numbers: Numbers) -> bool:
            """Whether no other slope is nearer: the distances, weighed with the sizes, cancel."""
            return not sum(v * (m.number - numbers["a"] * v) for v, m in zip(x, y, strict=True))

        work.define("a", form, unit, "slope", text, witness=level)
        return
    if len(x) == 2:
        form = Ratio(Total((y[1], negative(y[0]))), Total((at[1], negative(at[0]))))
        text = "Two points lie on one line: the difference of the measurements over the difference of the sizes."
    else:
        middle = sum(x, Fraction(0)) / len(x)
        weights = [num(v - middle, of) for v in x]
        form = Ratio(combined(Total, [product(w, m) for w, m in zip(weights, y, strict=True)]),
                     combined(Total, [Power(w, num(2)) for w in weights]))  # fmt: skip
        text = "The line with the least squared distances from the measurements."
    slope = work.define("a", form, unit, "slope", text, witness=lambda numbers: _fitted(x, y)[0])
    if want == "intercept":
        over: Form = y[0] if len(x) == 2 else Ratio(combined(Total, y), num(len(x)))
        place = at[0] if len(x) == 2 else num(sum(x, Fraction(0)) / len(x), of)
        text = "The value at size 0."
        work.define("b", Total((over, negative(product(slope, place)))), y[0].unit, "intercept", text,
                    witness=lambda numbers: _fitted(x, y)[1])  # fmt: skip


def _fitted(x: Sequence[Fraction], y: Sequence[Num]) -> tuple[Fraction, Fraction]:
    """Slope and intercept by the normal equations, n b + a sum x = sum y and b sum x + a sum x^2 = sum xy."""
    n, sx, sxx = len(x), sum(x), sum(v * v for v in x)
    sy, sxy = sum(m.number for m in y), sum(v * m.number for v, m in zip(x, y, strict=True))
    below = n * sxx - sx * sx
    return Fraction(n * sxy - sx * sy) / below, Fraction(sxx * sy - sx * sxy) / below
