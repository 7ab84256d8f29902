"""One record per op kind that is not a contraction: what it computes, point by point or along one axis.

A contraction (matrix product, elementwise product, bias, sum over heads, lookup by a one-hot matrix) needs no record:
its shape, FLOPs and gradients follow from its indices. A *map* is described by its expression; the number of
operations, the gradient and what the gradient reads follow from the expression.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import sympy as sp

from symcomm.core.records import dataclass

# u is the operand, y the result, dy the gradient of the result, du that of the operand; the rest are further operands.
u, y, dy, du, c, s, t = sp.symbols("u y dy du c s t", real=True)
HALF = sp.Rational(1, 2)
EPSILON = sp.Symbol("epsilon", positive=True)


class AlongSum(sp.Function):  # type: ignore[misc]  # SymPy has no type hints
    """The sum along the axis of a map."""

    nargs = 1


class AlongMax(sp.Function):  # type: ignore[misc]  # SymPy has no type hints
    """The largest along the axis of a map."""

    nargs = 1


class AlongMean(sp.Function):  # type: ignore[misc]  # SymPy has no type hints
    """The mean along the axis of a map."""

    nargs = 1


class Rotate(sp.Function):  # type: ignore[misc]  # SymPy has no type hints
    """The halves of the axis exchanged, the first one negated: ``(a, b)`` becomes ``(-b, a)``."""

    nargs = 1


class Chosen(sp.Function):  # type: ignore[misc]  # SymPy has no type hints
    """1 where an operand is among the ``c`` largest along the axis, 0 elsewhere."""

    nargs = 2


class Before(sp.Function):  # type: ignore[misc]  # SymPy has no type hints
    """The value one position before, along the axis of a map; 0 before the first one."""

    nargs = 1


class After(sp.Function):  # type: ignore[misc]  # SymPy has no type hints
    """The value one position later, along the axis of a map; 0 behind the last one."""

    nargs = 1


REDUCTIONS = (AlongSum, AlongMax, AlongMean)
_RESULT_KEPT = {"tanh": sp.tanh, "sigmoid": lambda x: 1 / (1 + sp.exp(-x))}


class WrittenOut:
    """A value of a function of each element that is written out in eager PyTorch; ``kept`` is what gradients read.

    A product keeps both tensors, a power and erf their operand, tanh and sigmoid their result; sums and numbers keep
    nothing (PyTorch's tools/autograd/derivatives.yaml).
    """

    def __init__(self, kept: dict[WrittenOut, None]) -> None:
        self.kept = kept

    def _made(self, *keeps: WrittenOut) -> WrittenOut:
        self.kept |= dict.fromkeys(keeps)
        return WrittenOut(self.kept)

    def __add__(self, other: object) -> WrittenOut:
        return self._made()

    def __mul__(self, other: object) -> WrittenOut:
        return self._made(*((self, other) if isinstance(other, WrittenOut) else ()))

    def __pow__(self, power: object) -> WrittenOut:
        return self._made(self)

    __radd__, __rmul__ = __add__, __mul__

    def of(self, function: str) -> WrittenOut:
        """A function of the value."""
        result = self._made(*([] if function in _RESULT_KEPT else [self]))
        return result._made(result) and result if function in _RESULT_KEPT else result


def _of(function: str, value: Any) -> Any:
    if isinstance(value, WrittenOut):
        return value.of(function)
    return _RESULT_KEPT[function](value) if function in _RESULT_KEPT else sp.erf(value)


def _gelu_new(x: Any) -> Any:
    return HALF * x * (1 + _of("tanh", sp.sqrt(2 / sp.pi) * (x + sp.Rational(44715, 10**6) * x**3)))


def _gelu_fast(x: Any) -> Any:
    scale, cubic = sp.Rational(7978845608, 10**10), sp.Rational(44715, 10**6)
    return HALF * x * (1 + _of("tanh", x * scale * (1 + cubic * x * x)))


def _gelu_python(x: Any) -> Any:
    return x * HALF * (1 + _of("erf", x * (1 / sp.sqrt(2))))


def _quick_gelu(x: Any) -> Any:
    return x * _of("sigmoid", sp.Rational(1702, 1000) * x)


@dataclass(frozen=True)
class MapKind:
    """A map: ``value`` in ``u`` (and the further operands), and its ``gradient`` in ``dy``, ``u`` or ``y``.

    Both are functions of nothing: most tables have few of the maps, and SymPy takes its time to make an expression.
    ``gradient`` may be left out for a pointwise expression: it is then ``dy`` times the derivative; where a framework
    keeps the result instead of the operand, it is written in ``y``.
    A value with ``Before(y)`` in it is a recurrence: the result at a position is made of that one position before, so
    that a step reads the last one as its state. Its further operand gets a gradient, and is a factor of ``Before(y)``.

    ``eager`` is what eager PyTorch keeps, where it is not what the gradient reads: operands by name, ``copy`` (a tensor
    as large as the operand), ``row`` (a number a row), ``chosen`` (a number for each that is chosen in a row), ``one``
    (a number), each with a format where it is not that of the model: ``:int64``, or ``:wide`` for fp32 where the
    model's has fewer bits. ``inside`` lists the temporary tensors of a gradient that eager PyTorch makes in several
    steps, a tuple for each op of autograd: from the second one on, ``dy`` and what is kept of rows are freed.
    """

    name: str
    spellings: tuple[str, ...]
    value: Callable[[], Any]
    gradient: Callable[[], Any] | None = None
    along: bool = False  # it works along the last axis of its operand, which every rank then needs whole
    linear: bool = False  # a pending partial sum passes
    operands: tuple[str, ...] = ()  # the further ones, without a gradient if the map is not symmetric
    collapses: bool = False  # the axis is gone in the result
    examples: bool = False  # it works along all axes but the channels: examples of a batch are not independent
    differentiable: bool = True
    source: str = ""
    eager: tuple[str, ...] | None = None
    fused_gain: bool = False  # a gain is of the library's function: its gradient needs no normalised values
    inside: tuple[tuple[str, ...], ...] | None = ()  # None: as its expression says

    @classmethod
    def written(cls, name: str, function: Callable[[Any], Any], source: str = "") -> MapKind:
        """A function of each element that eager PyTorch has no kernel for: what is kept follows from how it is written.

        >>> MapKind.written("cube", lambda x: x * x * x).eager  # x, and x * x
        ('u', 'copy')
        """
        kept: dict[WrittenOut, None] = {}
        operand = WrittenOut(kept)
        function(operand)
        eager = tuple("u" if value is operand else "copy" for value in kept)
        return cls(name, (name.replace("_", ""), name), lambda: function(u), source=source, eager=eager, inside=None)

    @cached_property
    def expression(self) -> Any:
        """The formula that it computes."""
        return self.value()

    @cached_property
    def carries(self) -> bool:
        """Whether the result at a position is made of the result one position before."""
        return bool(self.expression.has(Before))

    @cached_property
    def symmetric(self) -> bool:
        """Whether its two operands may change places, as predictions and targets of a squared error may."""
        if self.along or self.operands != ("t",) or t not in self.derivative.free_symbols:
            return False
        return bool(sp.expand(self.expression - self.expression.subs({u: t, t: u}, simultaneous=True)) == 0)

    @cached_property
    def gradients_inside(self) -> tuple[tuple[str, ...], ...]:
        """``inside``; of a map that is written out one copy, and three for erf, whose derivative is made in steps."""
        if self.inside is None:
            return (("copy",) * (3 if self.expression.has(sp.erf) else 1),)
        return self.inside or ((),)

    @cached_property
    def derivative(self) -> Any:
        """The gradient of the operand, as an expression in ``dy``, ``u``, ``y`` and the further operands."""
        return self.gradient() if self.gradient is not None else dy * sp.diff(self.expression, u)

    @property
    def gradient_reads(self) -> tuple[str, ...]:
        """The tensors that the gradient reads with ``dy``: ``u``, ``y`` and further operands, in this order."""
        free = {symbol.name for symbol in self.derivative.free_symbols}
        return tuple(name for name in ("u", "y", *self.operands) if name in free)


def _exp() -> Any:
    return sp.exp(u - AlongMax(u))


def _centred() -> Any:
    return u - AlongMean(u)


def _spread() -> Any:
    return sp.sqrt(AlongMean(_centred() ** 2) + EPSILON)


def _size() -> Any:
    return sp.sqrt(AlongMean(u**2) + EPSILON)


def _norm_gradient(normal: Any, scale: Any, centred: bool) -> Any:
    mean = AlongMean(dy) if centred else 0
    return (dy - mean - normal * AlongMean(dy * normal)) / scale


MAPS: tuple[MapKind, ...] = (
    MapKind("relu", ("relu",), lambda: sp.Max(u, 0), lambda: dy * sp.Heaviside(y, 0)),
    MapKind(
        "squared_relu",
        ("squaredrelu", "squared_relu", "relu2"),
        lambda: sp.Max(u, 0) ** 2,
        lambda: dy * 2 * sp.Max(u, 0),
    ),
    MapKind(
        "gelu",
        ("gelu",),
        lambda: u / 2 * (1 + sp.erf(u / sp.sqrt(2))),
        source="Hendrycks and Gimpel, arXiv 1606.08415",
    ),
    MapKind.written("gelu_new", _gelu_new, source="transformers.activations.NewGELUActivation"),
    MapKind.written("gelu_fast", _gelu_fast, source="transformers.activations.FastGELUActivation"),
    MapKind.written("gelu_python", _gelu_python, source="transformers.activations.GELUActivation"),
    MapKind.written("quick_gelu", _quick_gelu, source="transformers.activations.QuickGELUActivation"),
    MapKind("silu", ("silu", "swish"), lambda: u / (1 + sp.exp(-u)), source="Elfwing et al., arXiv 1702.03118"),
    MapKind("sigmoid", ("sigmoid", "sigma"), lambda: 1 / (1 + sp.exp(-u)), lambda: dy * y * (1 - y)),
    MapKind(
        "softplus",
        ("softplus",),
        lambda: sp.log(1 + sp.exp(u)),
        lambda: dy / (1 + sp.exp(-u)),
        source="Dugas et al., NIPS 2000",
    ),
    MapKind("tanh", ("tanh",), lambda: sp.tanh(u), lambda: dy * (1 - y**2)),
    MapKind("exp", ("exp",), lambda: sp.exp(u), lambda: dy * y),
    MapKind(
        "softmax",
        ("softmax",),
        lambda: _exp() / AlongSum(_exp()),
        lambda: y * (dy - AlongSum(dy * y)),
        along=True,
    ),
    MapKind(
        "sinksoftmax",
        ("sinksoftmax", "sink_softmax"),
        lambda: _exp() / (AlongSum(_exp()) + sp.exp(-AlongMax(u))),
        lambda: y * (dy - AlongSum(dy * y)),
        along=True,
        source="Xiao et al., arXiv 2309.17453, eq. 2",
        eager=("y", "row", "row:int64"),  # the library's result has a column for the sink, and it takes the maxima off
    ),
    MapKind(
        "topsoftmax",
        ("topsoftmax", "top_softmax"),
        lambda: _exp() * Chosen(u, c) / AlongSum(_exp() * Chosen(u, c)),
        lambda: y * (dy - AlongSum(dy * y)),
        along=True,
        source="Shazeer et al., arXiv 1701.06538, eq. 3",
        eager=("chosen", "chosen:int64"),
    ),
    MapKind(
        "layernorm",
        ("layernorm", "ln"),
        lambda: _centred() / _spread(),
        lambda: _norm_gradient(_centred() / _spread(), _spread(), centred=True),
        along=True,
        source="Ba et al., arXiv 1607.06450",
        eager=("u", "row:wide", "row:wide"),
        fused_gain=True,
    ),
    MapKind(
        "rmsnorm",
        ("rmsnorm", "rms"),
        lambda: u / _size(),
        lambda: _norm_gradient(u / _size(), _size(), centred=False),
        along=True,
        source="Zhang and Sennrich, arXiv 1910.07467",
        eager=("u:wide", "row:wide"),
        # of u r: dy u and its sums; of the mean of u²: its share, u, 2 u and their product, beside dy r
        inside=(("copy", "row"), ("copy",) * 4),
    ),
    MapKind(
        "batchnorm",
        ("batchnorm", "bn", "syncbatchnorm"),
        lambda: _centred() / _spread(),
        lambda: _norm_gradient(_centred() / _spread(), _spread(), centred=True),
        along=True,
        examples=True,
        source="Ioffe and Szegedy, arXiv 1502.03167",
        eager=("u", "row:wide", "row:wide"),
        fused_gain=True,
    ),
    MapKind(
        "logsumexp",
        ("logsumexp", "lse"),
        lambda: sp.log(AlongSum(_exp())) + AlongMax(u),
        lambda: dy * (_exp() / AlongSum(_exp())),
        along=True,
        collapses=True,
        eager=("u", "row"),
        inside=(("copy",) * 2,),  # u - y and its exponential
    ),
    MapKind(
        "maxpool",
        ("maxpool", "maxpool1d", "maxpool2d", "maxpool3d"),
        lambda: AlongMax(u),
        lambda: dy * sp.Heaviside(u - y, 1),
        along=True,
        collapses=True,
        eager=("u", "row:int64"),
    ),
    MapKind(
        "rope",
        ("rope", "rotary"),
        lambda: u * c + Rotate(u) * s,
        lambda: dy * c - Rotate(dy * s),
        along=True,
        linear=True,
        operands=("c", "s"),
        source="Su et al., arXiv 2104.09864, eq. 34",
    ),
    MapKind(
        "crossentropy",
        ("crossentropy", "cross_entropy", "ce"),
        lambda: sp.log(AlongSum(_exp())) + AlongMax(u) - AlongSum(u * t),
        lambda: dy * (_exp() / AlongSum(_exp()) - t),
        along=True,
        operands=("t",),
        collapses=True,
        eager=("copy", "t", "one"),
        inside=((), ("copy",)),  # the gradient of what was chosen of the logarithms; then that of the logarithms
    ),
    MapKind(
        "squared_error",
        ("mse", "mseloss", "mse_loss"),
        lambda: (u - t) ** 2,
        lambda: dy * 2 * (u - t),
        operands=("t",),
        eager=("u", "t"),
        inside=(("copy",),),
    ),
    MapKind(
        "scan",
        ("scan",),
        lambda: c * Before(y) + u,
        lambda: dy + After(c * du),
        along=True,
        operands=("c",),
        source="Blelloch, CMU-CS-90-190, section 1.4; Gu and Dao, arXiv 2312.00752, eq. 2a",
    ),
    MapKind("scale", (), lambda: u * c, lambda: dy * c, linear=True),  # c is the scale of the op, a number
    MapKind("shift", (), lambda: u + c, lambda: dy),  # c is the number of the op
    MapKind("minus", (), lambda: c - u, lambda: -dy),
    MapKind("at_most", (), lambda: sp.Min(u, c), lambda: dy * sp.Heaviside(c - u, 1)),
    MapKind(
        "clamp",
        (),
        lambda: sp.Max(sp.Min(u, c), -c),
        lambda: dy * sp.Heaviside(c - u, 1) * sp.Heaviside(c + u, 1),
    ),
    MapKind("mask", (), lambda: u + t, lambda: dy, linear=False, operands=("t",)),
)
# What hand-written versions of a function keep in eager PyTorch: exp(u - max), its sums, the places of the maxima.
BY_HAND: dict[str, tuple[str, ...]] = {"softmax": ("copy", "row", "row:int64")}
INSIDE_BY_HAND = (("copy",) * 3,)  # of the quotient a/b not only dy/b, but also a/b, -dy and their product
MAP: dict[str, MapKind] = {kind.name: kind for kind in MAPS}
SPELLED: dict[str, MapKind] = {spelling: kind for kind in MAPS for spelling in kind.spellings}


@cache
def operations(kind: str, backward: bool = False) -> tuple[int, int]:
    """Operations of a map (or its gradient): per element, and per row along its axis.

    Counted from its expression with common pieces shared: an addition, a multiplication, a division, a comparison, a
    root, an exponential count one each; a reduction along the axis counts one for each element.

    >>> operations("relu"), operations("softmax")
    ((1, 0), (5, 0))
    """
    record = MAP[kind]
    expression = record.derivative if backward else record.expression
    element = row = 0
    seen: set[Any] = set()

    def is_row(e: Any) -> bool:
        """Whether a piece has one value a row: it mentions the operand only inside reductions."""
        if isinstance(e, REDUCTIONS):
            return True
        if e.is_Symbol or not e.args:
            return bool(e.is_number) or e == EPSILON
        return all(is_row(a) for a in e.args)

    def visit(e: Any, divides: bool = False) -> None:
        nonlocal element, row
        if e in seen or not e.args or e.is_number:
            return  # seen before, a symbol, or a constant such as sqrt(2)
        seen.add(e)
        if isinstance(e, REDUCTIONS):
            element += 1
            row += isinstance(e, AlongMean)
            visit(e.args[0])
            return
        args = [a for a in e.args if not (a.is_Number and a in (1, -1))] if e.is_Mul else list(e.args)
        args = [a for a in args if not isinstance(a, Chosen)]
        if isinstance(e, (Rotate, Chosen, Before, After)):
            cost = 0  # a change of places, whose sign is folded into the addition; or a choice
        elif e.is_Add or e.is_Mul or isinstance(e, (sp.Max, sp.Min)):
            # x - a is one subtraction and x / a one division: the sign and the reciprocal cost nothing more.
            cost = max(0, len(args) - 1)
        elif e.is_Pow and e.args[1] == -1:
            cost = int(not divides)
        else:
            cost = 1
        if is_row(e):
            row += cost
        else:
            element += cost
        for a in e.args:
            visit(a, bool(e.is_Mul) and len(args) > 1)

    visit(expression)
    return element, row
