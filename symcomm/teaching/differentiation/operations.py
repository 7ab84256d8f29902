"""One record an operation of a trace: how it is written, its partial derivatives, and where it is not defined.

A record is made of forms, so that what is printed and what is computed cannot disagree; the values follow from them.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import log10
from operator import neg, truediv

from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Num, Product, Total, called, num
from symcomm.core.libraries import Expr, sp
from symcomm.core.records import dataclass

DIGITS = 50  # to which numbers that no fraction says are compared
DECADES = 1_000  # values lie between 10^-1000 and 10^1000
# How long an exact value may get before it is refused: nodes of its expression, bits of its numbers.
_PARTS, _BITS = 400, 20_000
ONE, MINUS = num(1), num(-1)


@dataclass(frozen=True)
class Operation:
    """An operation: its form of the forms of its operands, and its partial derivative for each of them."""

    name: str
    spellings: tuple[str, ...]
    arity: int
    form: Callable[..., Form]
    partials: Callable[..., tuple[Form, ...]]  # of the operands and the result
    rule: str  # what a reader knows the derivative by
    undefined: Callable[..., str] = lambda *operands: ""  # why there is no value at some operands
    kink: Callable[..., str] = lambda *operands: ""  # why there is no derivative


def sign(number: Expr) -> int:
    """The sign of an exact number; 0 where it is 0 to 50 digits."""
    if number.is_Rational:
        return int(number.p > 0) - int(number.p < 0)
    near = number.evalf(DIGITS)
    if abs(near) < Fraction(1, 10 ** (DIGITS - 10)):
        return 0
    return 1 if near > 0 else -1


def _power_partials(base: Form, exponent: Form, result: Form) -> tuple[Form, Form]:
    if isinstance(exponent, Num):
        lower = exponent.number - 1
        raised = ONE if not lower else base if lower == 1 else base**lower
        by_base = num(0) if not exponent.number else exponent * raised
    else:
        by_base = exponent * base ** Total((exponent, MINUS))
    return by_base, Product((result, called("ln", base)))


def _power_undefined(base: Expr, exponent: Expr) -> str:
    s = sign(base)
    if not s and sign(exponent) <= 0:
        return f"0 to the power {exponent}"
    if s < 0 and not exponent.is_Integer:
        return f"a negative number to the power {exponent}"
    return ""


def _power_kink(base: Expr, exponent: Expr) -> str:
    if not sign(base) and sign(exponent - 1) < 0:
        return f"the slope of the power {exponent} is infinite at 0"
    return ""


def _corner(name: str) -> Callable[..., str]:
    told = f"{name} has a kink where its operands are equal: the one grows with its operand, the other does not"
    return lambda a, b: "" if sign(a - b) else told


_greater = partial(called, "greater")
OPERATIONS: tuple[Operation, ...] = (
    Operation("add", (), 2, lambda a, b: Total((a, b)), lambda a, b, v: (ONE, ONE), "sum"),
    Operation("sub", (), 2, lambda a, b: Total((a, -b)), lambda a, b, v: (ONE, MINUS), "difference"),
    Operation("mul", (), 2, lambda a, b: Product((a, b)), lambda a, b, v: (b, a), "product rule"),
    Operation("div", (), 2, truediv,
              lambda a, b, v: (ONE / b, -(v / b)), "quotient rule",
              undefined=lambda a, b: "" if sign(b) else "a division by 0"),
    Operation("neg", (), 1, neg, lambda u, v: (MINUS,), "sign"),
    Operation("pow", (), 2, pow, _power_partials, "power rule", _power_undefined, _power_kink),
    Operation("sin", ("sin",), 1, partial(called, "sin"), lambda u, v: (called("cos", u),), "sine"),
    Operation("cos", ("cos",), 1, partial(called, "cos"), lambda u, v: (-called("sin", u),),
              "cosine"),
    Operation("tan", ("tan",), 1, partial(called, "tan"), lambda u, v: (ONE + v**2,), "tangent",
              undefined=lambda u: "" if sign(sp.cos(u)) else f"tan({u})"),
    Operation("exp", ("exp",), 1, partial(called, "exp"), lambda u, v: (v,), "exponential"),
    Operation("ln", ("ln", "log"), 1, partial(called, "ln"), lambda u, v: (ONE / u,), "logarithm",
              undefined=lambda u: "" if sign(u) > 0 else f"ln({u})"),
    Operation("sqrt", ("sqrt",), 1, partial(called, "sqrt"), lambda u, v: (ONE / (num(2) * v),), "square root",
              undefined=lambda u: "" if sign(u) >= 0 else f"the square root of {u}",
              kink=lambda u: "" if sign(u) else "the slope of the square root is infinite at 0"),
    Operation("tanh", ("tanh",), 1, partial(called, "tanh"),
              lambda u, v: (ONE - v**2,), "hyperbolic tangent"),
    Operation("sigmoid", ("sigmoid", "sigma"), 1, partial(called, "sigmoid"),
              lambda u, v: (v * (ONE - v),), "logistic function"),
    Operation("abs", ("abs",), 1, partial(called, "abs"), lambda u, v: (called("sign", u),), "absolute value",
              kink=lambda u: "" if sign(u) else "abs has a kink at 0: left derivative -1, right derivative 1"),
    Operation("max", ("max",), 2, partial(called, "max"), lambda a, b, v: (_greater(a, b), _greater(b, a)),
              "maximum", kink=_corner("max")),
    Operation("min", ("min",), 2, partial(called, "min"), lambda a, b, v: (_greater(b, a), _greater(a, b)),
              "minimum", kink=_corner("min")),
)  # fmt: skip
OPERATION = {record.name: record for record in OPERATIONS}
SPELLED = {spelling: record for record in OPERATIONS for spelling in record.spellings}
FUNCTIONS = frozenset(SPELLED)


def tidy(number: Expr) -> Expr:
    """An exact number multiplied out; raises ``ValuesError`` where it is too long or too large to be worked with."""
    if not number.is_Rational:
        if sp.count_ops(number) > _PARTS:
            raise ValuesError("the exact value is too long to be written", hint="choose a point with simpler values")
        number = sp.expand(number.xreplace(_nested(number)), power_base=False, power_exp=False, log=False)
    bits = max((max(abs(n.p), n.q).bit_length() for n in number.atoms(sp.Rational)), default=0)
    near = number.evalf(20) if not number.is_Rational else number
    outside = near and not sp.Rational(1, 10**DECADES) < abs(near) < sp.Integer(10) ** DECADES
    if bits > _BITS or outside:
        raise ValuesError("the value is too large or too small", hint=f"values lie within 10^{DECADES}")
    if not near.is_real:
        raise ValuesError(f"{number} is not a real number")
    return number


def _nested(number: Expr) -> dict[Expr, Expr]:
    """tanh of the logarithm of a fraction is a fraction, which SymPy does not see."""
    found = {}
    for piece in number.atoms(sp.tanh):
        power = sp.exp(2 * piece.args[0])
        if power.is_Rational:
            found[piece] = (power - 1) / (power + 1)
    return found


def guard(record: Operation, operands: tuple[Expr, ...]) -> None:
    """Raises ``ValuesError`` where an operation has no value, or one that is out of all bounds."""
    if record.name == "exp" and abs(operands[0].evalf(20)) > 2 * DECADES:
        raise ValuesError("the value is too large or too small", hint=f"values lie within 10^{DECADES}")
    if record.name == "pow" and sign(operands[0]):
        base, exponent = abs(operands[0].evalf(20)), abs(operands[1].evalf(20))
        if exponent * abs(log10(base)) > DECADES or (operands[0].is_Rational and exponent > _BITS):
            raise ValuesError("the value is too large or too small", hint=f"values lie within 10^{DECADES}")
    problem = record.undefined(*operands)
    if problem:
        raise ValuesError(f"{problem} is not defined")
