"""A trace run with floating-point numbers of many digits: the check of its exact values and derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from symcomm.core.libraries import Expr, mpmath
from symcomm.teaching.differentiation.trace import EvaluationTrace

_DIGITS = 160
_STEP = 40  # differences are taken over 10^-40: first and second ones are right to about 10^-80


def run(trace: EvaluationTrace, shifts: Mapping[int, Any] | None = None) -> dict[int, Any]:
    """The values of all variables; some are shifted by small numbers, and all that follows with them."""
    calls = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
        "neg": lambda u: -u, "pow": lambda a, b: a**b, "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan,
        "exp": mpmath.exp, "ln": mpmath.log, "sqrt": mpmath.sqrt, "tanh": mpmath.tanh, "abs": abs, "max": max,
        "min": min, "sigmoid": lambda u: 1 / (1 + mpmath.exp(-u)),
    }  # fmt: skip
    with mpmath.workdps(_DIGITS):
        found: dict[int, Any] = {}
        for v in trace.variables:
            if v.input:
                value = number(v.value)
            else:
                value = calls[v.operation](*(found[o] if isinstance(o, int) else number(o) for o in v.operands))
            found[v.number] = value + (shifts or {}).get(v.number, 0)
        return found


def slope(trace: EvaluationTrace, of: int, ways: Mapping[int, Any]) -> Any:
    """The central difference of a variable, for another one or along a direction: how far each variable goes."""
    with mpmath.workdps(_DIGITS):
        step = mpmath.mpf(10) ** -_STEP
        ahead, back = ({number: way * far for number, far in ways.items()} for way in (step, -step))
        return (run(trace, ahead)[of] - run(trace, back)[of]) / (2 * step)


def along(trace: EvaluationTrace, vector: Mapping[str, Expr]) -> dict[int, Any]:
    """The direction of a vector: how far each input goes."""
    return {v.number: number(vector[v.input]) for v in trace.inputs if v.input in vector}


def turned(trace: EvaluationTrace, of: int, by: int, ways: Mapping[int, Any]) -> Any:
    """The second difference of a variable, for one input and along a direction."""
    with mpmath.workdps(_DIGITS):
        step = mpmath.mpf(10) ** -_STEP

        def value(a: int, b: int) -> Any:
            shifts = {number: a * step * far for number, far in ways.items()}
            shifts[by] = shifts.get(by, 0) + b * step
            return run(trace, shifts)[of]

        return (value(1, 1) - value(1, -1) - value(-1, 1) + value(-1, -1)) / (4 * step**2)


def fraction(near: Any) -> Fraction:
    """A floating-point number as a fraction of 45 digits; what is next to nothing is 0.

    >>> from mpmath import mpf
    >>> fraction(mpf(1) / 4), fraction(mpf(10) ** -60)
    (Fraction(1, 4), Fraction(0, 1))
    """
    with mpmath.workdps(_DIGITS):
        return Fraction(0) if abs(near) < mpmath.mpf(10) ** -38 else Fraction(mpmath.nstr(near, 45))


def number(exact: Expr) -> Any:
    """An exact number as a floating-point one of many digits."""
    with mpmath.workdps(_DIGITS):
        return mpmath.mpf(int(exact.p)) / int(exact.q) if exact.is_Rational else mpmath.mpf(str(exact.evalf(_DIGITS)))
