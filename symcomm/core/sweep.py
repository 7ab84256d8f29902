"""A derivation at many numbers at once: a grid of values, worked out over NumPy arrays, as a pandas frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Any

from symcomm.core.errors import SymcommError, ValuesError
from symcomm.core.libraries import Expr, sp
from symcomm.core.units import Quantity

if TYPE_CHECKING:
    from pandas import DataFrame

MOST = 100_000  # combinations: each is checked like the numbers of ``at``


def sweep(
    expr: Expr,
    unit: str,
    values: Mapping[str, object],
    known_at: Callable[..., Mapping[str, Fraction]],
    otherwise: Callable[[Mapping[str, Fraction]], Fraction | None] = lambda known: None,
) -> DataFrame:
    """Every combination of the given numbers, a row each, with the value of an expression (a float) and its unit.

    ``known_at`` gives all numbers at one combination, or refuses it; ``otherwise`` the value where the expression does
    not hold. A list, a tuple or an array is swept over;
    anything else is one number. Raises ``ValuesError`` where a name or a number is refused, telling the combination,
    for an empty list, and for more than 100,000 combinations.

    >>> from symcomm.core.notation import symbol
    >>> sweep(symbol("D") * symbol("F"), "", {"D": [2, 4], "F": (1, 3)}, dict)["value"].tolist()
    [2.0, 6.0, 4.0, 12.0]
    """
    try:
        import numpy
        import pandas
    except ImportError as error:
        raise SymcommError.lacking("search", f"a sweep needs {error.name}, which is not installed") from None
    several = {n: value for n, value in values.items() if not isinstance(value, str) and hasattr(value, "__len__")}
    swept = {name: _listed(name, value) for name, value in several.items()}
    fixed = {name: value for name, value in values.items() if name not in swept}
    if not swept:
        raise ValuesError("a sweep needs a list of numbers", hint="for instance k=[2, 4, 8]; at() takes single numbers")
    count = 1
    for numbers in swept.values():
        count *= len(numbers)
    if count > MOST:
        raise ValuesError(f"a sweep of {count:,} combinations: there may be {MOST:,}", hint="give fewer values")
    known: dict[str, list[float]] = {}
    rows: list[dict[str, object]] = []
    others: dict[int, float] = {}
    for row in product(*swept.values()):
        chosen = dict(zip(swept, row, strict=True))
        try:
            found = known_at(**fixed, **chosen)
        except ValuesError as error:
            said = ", ".join(f"{name} = {_shown(value)}" for name, value in chosen.items())
            raise ValuesError(f"at {said}: {error.message}", hint=error.hint) from None
        other = otherwise(found)
        if other is not None:
            others[len(rows)] = float(other)
        rows.append(chosen)
        for name, value in found.items():
            known.setdefault(name, []).append(float(Quantity(value)))
    symbols = sorted(expr.free_symbols, key=str)
    missing = [s.name for s in symbols if len(known.get(s.name, ())) != count]
    if missing:
        raise ValuesError(f"the sweep needs a value for {', '.join(missing)}", hint=f"for instance {missing[0]}=8")
    function = sp.lambdify(symbols, expr, modules="numpy", cse=True, dummify=True)
    answer = numpy.broadcast_to(function(*(numpy.array(known[s.name]) for s in symbols)), (count,))
    answer = numpy.array(answer, dtype=float)
    answer[[*others]] = [*others.values()]
    return pandas.DataFrame(rows).assign(value=answer, unit=unit)


def _listed(name: str, value: Any) -> list[object]:
    if getattr(value, "ndim", 1) != 1:
        raise ValuesError(f"{name} is an array of {value.ndim} axes: a sweep takes lists")
    numbers = [*value]
    if not numbers:
        raise ValuesError(f"{name} has no values to sweep over")
    return numbers


def _shown(value: object) -> str:
    """A number as an error tells it; Python writes no whole number of more than 4,300 digits."""
    return "..." if isinstance(value, int) and value.bit_length() > 400 else str(value)[:80]
