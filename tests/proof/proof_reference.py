"""A graph run in NumPy, op by op: the one machine that every parallel run must agree with.

``compute`` runs one op on arrays. It is told where the arrays begin in the whole tensors, so that the same function
serves a rank that holds a block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from typing import Any

import numpy as np
import sympy as sp
from api import EPSILON, MAP, AlongMax, AlongMean, AlongSum, Chosen, Graph, Op, Rotate, value

Array = np.ndarray
EPSILON_VALUE = 1e-3  # large, so that a forgotten epsilon shows
RATE = 0.1  # of the update


class ShapeMismatchError(Exception):
    """Operands of an op do not fit together: an index has two sizes."""


@dataclass(frozen=True)
class Sizes:
    """A graph with numbers for its symbols."""

    graph: Graph
    values: Mapping[str, int]
    groups: int = 1  # of tokens that fill slots of their own, where the ranks that hold them route by themselves
    worth: dict[Any, float] = field(default_factory=dict, compare=False)
    lengths: dict[str, dict[int, int]] = field(default_factory=dict, compare=False)

    @cached_property
    def numbers(self) -> dict[sp.Symbol, sp.Integer]:
        symbols = {s for axis in self.graph.axes.values() for s in axis.size.free_symbols}
        for op in self.graph.ops:
            symbols |= {s for _, v in op.attributes if isinstance(v, sp.Basic) for s in v.free_symbols}
        relations = {name: value(form) for name, form in self.graph.relations.equations}
        symbols |= {s for size in relations.values() for s in size.free_symbols}
        found: dict[sp.Symbol, sp.Integer] = {}
        for symbol in sorted(symbols, key=lambda s: (s.name in relations, s.name)):
            if symbol.name in relations:
                found[symbol] = relations[symbol.name].subs(found)
                assert found[symbol].is_Integer, f"{symbol} = {found[symbol]}"
            else:
                found[symbol] = sp.Integer(self.values[symbol.name])
        return found

    @cached_property
    def axes(self) -> dict[str, int]:
        """The length of each axis."""
        found = {name: axis.size.subs(self.numbers) for name, axis in self.graph.axes.items()}
        assert all(size.is_Integer and size > 0 for size in found.values()), found
        return {name: int(size) for name, size in found.items()}

    def shape(self, tensor: str) -> tuple[int, ...]:
        return tuple(self.axes[a] for a in self.graph.tensors[tensor].axes)

    def loops(self, op: Op) -> dict[int, int]:
        """The length of each loop of an op."""
        if op.output not in self.lengths:
            self.lengths[op.output] = {index: self.axes[axis] for index, axis in self.graph.index_axes(op).items()}
        return self.lengths[op.output]

    def filled(self, op: Op) -> list[tuple[int, int]]:
        """The loops over tokens and over the slots that they fill, where an op has both."""
        axes = self.graph.index_axes(op)
        found = []
        for made in self.graph.ops:
            if made.kind == "route":
                *_, tokens, _, slots = self.graph.tensors[made.output].axes
                pair = [[i for i, a in axes.items() if a == axis] for axis in (tokens, slots)]
                found += [(a, b) for a in pair[0][:1] for b in pair[1]]
        return found[:1]

    def number(self, expression: Any) -> float:
        """The worth of a scale or a size."""
        if expression not in self.worth:
            self.worth[expression] = float(sp.sympify(expression).subs(self.numbers))
        return self.worth[expression]


# -- maps: their own expressions, interpreted ------------------------------------------------------

Environment = Mapping[str, Any]


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def folded(*arguments: Any) -> Any:
        result = arguments[0]
        for argument in arguments[1:]:
            result = function(result, argument)
        return result

    return folded


def _power(base: Any, exponent: Any) -> Any:
    return 1 / base if np.ndim(exponent) == 0 and exponent == -1 else np.power(base, exponent)


_erf = np.vectorize(math.erf, otypes=[float])
_KNOWN: dict[Any, Callable[..., Any]] = {
    sp.Add: _fold(np.add),
    sp.Mul: _fold(np.multiply),
    sp.Pow: _power,
    sp.Max: _fold(np.maximum),
    sp.Min: _fold(np.minimum),
    sp.Min: _fold(np.minimum),
    sp.exp: np.exp,
    sp.log: np.log,
    sp.tanh: np.tanh,
    sp.erf: _erf,
    sp.Abs: np.abs,
    sp.sign: np.sign,
    sp.sin: np.sin,
    sp.cos: np.cos,
    sp.Heaviside: np.heaviside,
}


def _rotated(array: Array, along: tuple[int, ...]) -> Array:
    """The halves of the joined axes ``along`` exchanged, the first one negated; other axes stay."""
    moved = np.moveaxis(array, along, range(-len(along), 0))
    flat = moved.reshape(*moved.shape[: -len(along)], -1)
    half = flat.shape[-1] // 2
    turned = np.concatenate([-flat[..., half:], flat[..., :half]], axis=-1)
    return np.moveaxis(turned.reshape(moved.shape), range(-len(along), 0), along)


def _largest(array: Array, many: int, along: tuple[int, ...]) -> Array:
    """1 for the ``many`` largest along an axis, 0 elsewhere."""
    order = np.argsort(np.argsort(-array, axis=along[0], kind="stable"), axis=along[0], kind="stable")
    return (order < many).astype(float)


@cache
def interpreted(expression: Any) -> Callable[[Environment, tuple[int, ...]], Any]:
    """A function of operands (by name) and the axes that the map works along."""
    if expression.is_Symbol:
        name = "epsilon" if expression == EPSILON else expression.name
        return lambda environment, along: environment[name]
    if expression.is_number and not expression.has(AlongSum, AlongMean, AlongMax, Rotate):
        number = float(expression)
        return lambda environment, along: number
    parts = [interpreted(a) for a in expression.args]
    if isinstance(expression, Rotate):
        return lambda environment, along: _rotated(parts[0](environment, along), along)
    if isinstance(expression, Chosen):
        return lambda environment, along: _largest(parts[0](environment, along), parts[1](environment, along), along)
    for kind, reduction in ((AlongSum, np.sum), (AlongMax, np.max), (AlongMean, np.mean)):
        if isinstance(expression, kind):
            return lambda environment, along, reduction=reduction: reduction(
                parts[0](environment, along), axis=along, keepdims=True
            )
    function = _KNOWN[expression.func]
    return lambda environment, along: function(*(part(environment, along) for part in parts))


def aligned(array: Array, indices: Sequence[int], loops: Sequence[int]) -> Array:
    """The array with its axes in the order of the loops, and an axis of one where it has none."""
    order = sorted(range(len(indices)), key=lambda n: loops.index(indices[n]))
    lengths = dict(zip(indices, array.shape, strict=True))
    return array.transpose(order).reshape([lengths.get(i, 1) for i in loops])


def _map(op: Op, operands: Sequence[Array], sizes: Sizes) -> Array:
    backward = op.kind.endswith("_gradient")
    record = MAP[op.kind.removesuffix("_gradient")]
    if record.carries:
        return _recurrence(op, operands, backward)
    names = ["dy", *record.gradient_reads] if backward else ["u", *record.operands]
    along = op.attribute("along", ())
    loops = sorted({i for indices in (*op.indices, op.output_indices) for i in indices})
    environment: dict[str, Any] = {
        name: aligned(array, indices, loops) for name, array, indices in zip(names, operands, op.indices, strict=True)
    }
    environment["epsilon"] = EPSILON_VALUE
    for name in ("scale", "number"):
        if op.attribute(name) is not None:
            environment["c"] = sizes.number(op.attribute(name))
    assert isinstance(along, tuple)
    lengths: dict[int, int] = {}
    for array, indices in zip(operands, op.indices, strict=True):
        lengths |= dict(zip(indices, array.shape, strict=True))
    expression = record.derivative if backward else record.expression
    result = np.asarray(interpreted(expression)(environment, tuple(loops.index(i) for i in along)))
    result = np.broadcast_to(result, [lengths[i] if i in op.output_indices else 1 for i in loops])
    kept = result.reshape([lengths[i] for i in loops if i in op.output_indices])
    in_order = [i for i in loops if i in op.output_indices]
    return kept.transpose([in_order.index(i) for i in op.output_indices])


def _recurrence(op: Op, operands: Sequence[Array], backward: bool) -> Array:
    """``y = u + c * before`` position by position; backwards in time with the factor of the position after."""
    (along,) = op.attribute("along", ())
    loops = sorted(op.output_indices)
    first = aligned(operands[0], op.indices[0], loops)
    kept = [i for i in op.indices[1] if i in loops]  # it is the same along axes of size 1
    factor = operands[1].reshape([n for i, n in zip(op.indices[1], operands[1].shape, strict=True) if i in loops])
    factor = np.broadcast_to(aligned(factor, kept, loops), first.shape)
    found, place = np.zeros_like(first), loops.index(along)
    first, factor, rows = (np.moveaxis(one, place, 0) for one in (first, factor, found))
    before = aligned(operands[2], op.indices[2], [i for i in loops if i != along]) if len(operands) > 2 else 0.0
    length = len(rows)
    for n in range(length):
        if backward:
            n = length - 1 - n
            rows[n] = first[n] + (factor[n + 1] * rows[n + 1] if n + 1 < length else 0.0)
        else:
            rows[n] = first[n] + factor[n] * (rows[n - 1] if n else before)
    return found.transpose([loops.index(i) for i in op.output_indices])


# -- convolutions: the positions of the window written out as 0/1 matrices ----------------------------


def reach(window: int, taps: int, places: int, apart: int = 1) -> Array:
    """``[place, tap, position]`` is 1 where a tap of the kernel at a place meets a position of the window.

    As many places as fit is a convolution without padding; otherwise the stride is ``window / places`` and zeros are
    padded evenly at both ends, the odd one behind (the "same" padding of most frameworks). Taps may lie ``apart``.
    """
    stride, before = 1, 0
    if places != window - (taps - 1) * apart:
        assert window % places == 0, f"{places} places in {window} positions"
        stride = window // places
        before = max((places - 1) * stride + (taps - 1) * apart + 1 - window, 0) // 2
    found = np.zeros((places, taps, window))
    for place, tap in product(range(places), range(taps)):
        if 0 <= (position := place * stride + tap * apart - before) < window:
            found[place, tap, position] = 1
    return found


def _as_written(held: Sequence[int], indices: Sequence[int]) -> list[tuple[int, ...]]:
    """The loops behind each axis as its author wrote it: one, or its parts."""
    starts = [sum(held[:n]) for n in range(len(held))]
    return [tuple(indices[at : at + count]) for at, count in zip(starts, held, strict=True)]


def _convolution(op: Op, operands: Sequence[Array], sizes: Sizes, loops: Mapping[int, int]) -> Array:
    # image [b, in, window...], kernel [out, in, taps...], result [b, out, places...]: the letters tell them apart.
    part = op.attribute("part", "result")
    whole = sizes.loops(op)
    order = {"result": (0, 1, 2), "input": (2, 1, 0), "weight": (1, 2, 0)}[part]
    every = [*zip((*op.inputs, op.output), (*op.indices, op.output_indices), strict=True)]
    image, kernel, result = (_as_written(sizes.graph.tensors[name].held, i) for name, i in (every[n] for n in order))
    arguments: list[Any] = []
    for array, indices in zip(operands, op.indices, strict=True):
        arguments += [array, list(indices)]
    if op.attribute("reach") is not None:  # of each channel the taps that look back, zeros before the first position
        (w,), (_, t, p) = op.attribute("window"), op.attribute("whole")
        if (loops[w], loops[t], loops[p]) != (whole[w], whole[t], whole[p]):
            raise ShapeMismatchError("a convolution needs its positions whole")
        back = np.zeros((loops[p], loops[t], loops[w]))
        for place, tap in product(range(loops[p]), range(loops[t])):
            if (position := loops[w] - loops[p] + place - (loops[t] - 1) + tap) >= 0:
                back[place, tap, position] = 1
        return np.einsum(*arguments, back, [p, t, w], list(op.output_indices), optimize=True)
    for w, t, p in zip(image[2:], kernel[2:], result[2:], strict=True):
        if any(loops[i] != whole[i] for i in (*w, *t, *p)):
            raise ShapeMismatchError("a convolution needs its positions whole")
        lengths = [math.prod(whole[i] for i in group) for group in (w, t, p)]
        met = reach(*lengths, int(op.attribute("dilation", 1)))
        arguments += [met.reshape([whole[i] for i in (*p, *t, *w)]), [*p, *t, *w]]
    for index in {*op.output_indices} - {i for indices in arguments[1::2] for i in indices}:
        arguments += [np.ones(loops[index]), [index]]  # the one channel that a kernel of its own reads
    return np.einsum(*arguments, list(op.output_indices), optimize=True)


# -- routing -----------------------------------------------------------------------------------------


def route(gates: Array, k: int, slots: int, groups: int = 1) -> Array:
    """``[row, token, expert, slot]``: each token of a row takes its k largest gates, first come first served.

    With several groups, each takes its own part of the slots.
    """
    if groups > 1:
        parts = [route(part, k, slots // groups) for part in np.split(gates, groups, axis=1)]
        result = np.zeros((*gates.shape, slots))
        for n, part in enumerate(parts):
            at = (slice(None), slice(n * part.shape[1], (n + 1) * part.shape[1]), slice(None))
            result[(*at, slice(n * part.shape[-1], (n + 1) * part.shape[-1]))] = part
        return result
    rows, experts = gates.shape[0], gates.shape[-1]
    flat = gates.reshape(rows, -1, experts)
    found = np.zeros((*flat.shape, slots))
    if np.isnan(flat).any():
        return np.full((*gates.shape, slots), np.nan)
    for row in range(rows):
        taken = [0] * experts
        for token in range(flat.shape[1]):
            for expert in np.argsort(-flat[row, token], kind="stable")[:k]:
                if taken[expert] < slots:
                    found[row, token, expert, taken[expert]] = 1
                taken[expert] += 1
    return found.reshape(*gates.shape, slots)


# -- one op ------------------------------------------------------------------------------------------


def compute(
    op: Op,
    operands: Sequence[Array],
    sizes: Sizes,
    loops: Mapping[int, int],
    starts: Mapping[int, int] | None = None,
) -> Array:
    """One op on arrays; ``loops`` are the lengths of its loops here, ``starts`` where they begin in the whole."""
    starts = starts or {}
    for n, (array, indices) in enumerate(zip(operands, op.indices, strict=True)):
        earlier = op.attribute("whole") if n == op.attribute("before") else ()  # a part has one row more, but the first
        wanted = tuple(loops[i] + (i in earlier and starts.get(i, 0) > 0) for i in indices)
        if array.shape != wanted:
            raise ShapeMismatchError(f"{op.name}: {array.shape} where {wanted} is needed")
    if op.kind == "contraction":
        result = _contraction(op, operands, loops)
        return result * sizes.number(op.attribute("scale")) if op.attribute("scale") is not None else result
    if op.kind == "add":
        signs = op.attribute("signs")
        assert isinstance(signs, tuple)
        order = sorted(op.output_indices)
        total: Any = 0
        for sign, array, indices in zip(signs, operands, op.indices, strict=True):
            total = total + sign * aligned(array, indices, order)
        total = np.broadcast_to(total, [loops[i] for i in order])
        return total.transpose([order.index(i) for i in op.output_indices])
    if op.kind == "convolution":
        return _convolution(op, operands, sizes, loops)
    if op.kind == "onehot":
        (classes,) = set(op.output_indices) - set(op.indices[0])
        at = [op.indices[0].index(i) for i in op.output_indices if i != classes]
        ids = operands[0].transpose(at)[..., None]
        result = (ids == starts.get(classes, 0) + np.arange(loops[classes])).astype(float)
        return np.moveaxis(result, -1, op.output_indices.index(classes))
    if op.kind == "route":
        k = op.attribute("k")
        assert op.output_indices[:-1] == op.indices[0]
        whole, tokens, slots = sizes.loops(op), op.output_indices[-3], op.output_indices[-1]
        count = sizes.groups * loops[tokens] // whole[tokens]  # of the groups, those that are here
        own = whole[slots] // sizes.groups * count
        made = route(operands[0], int(sizes.number(k)), own, count)
        first = starts.get(tokens, 0) * whole[slots] // whole[tokens]
        behind = loops[slots] - first - own
        return np.pad(made, [(0, 0)] * (made.ndim - 1) + [(first, behind)])
    if op.kind == "update":
        weight, gradient, state = operands
        return weight - RATE * (gradient + state)
    return _map(op, operands, sizes)


def _contraction(op: Op, operands: Sequence[Array], loops: Mapping[int, int]) -> Array:
    arguments: list[Any] = []
    for n, (array, indices) in enumerate(zip(operands, op.indices, strict=True)):
        if n == op.attribute("before"):  # one position earlier, nothing before the first
            array = np.moveaxis(array, place := indices.index(index := op.attribute("whole")[0]), 0)
            array = np.concatenate([np.zeros_like(array[:1]), array[:-1]])[-loops[index] :]
            array = np.moveaxis(array, 0, place)
        arguments += [array, list(indices)]
    for index in op.output_indices:  # an index that no operand has: the result is the same all along it
        if not any(index in indices for indices in op.indices):
            arguments += [np.ones(loops[index]), [index]]
    return np.einsum(*arguments, list(op.output_indices))


# -- the whole graph -----------------------------------------------------------------------------------


def outside(sizes: Sizes, seed: int = 0) -> dict[str, Array]:
    """Arrays for everything that no op makes, by what the ops that read it need."""
    graph = sizes.graph
    random = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for name, tensor in graph.tensors.items():
        if name in graph.producers:
            continue
        readers = graph.consumers.get(name, ())
        shape = sizes.shape(name)
        classes = [sizes.axes[graph.tensors[op.output].axes[-1]] for op in readers if op.kind == "onehot"]
        if classes:
            found[name] = random.integers(0, min(classes), shape)
        elif any(op.kind == "mask" for op in readers):
            found[name] = np.where(np.tri(*shape) > 0, 0.0, -50.0)
        elif tensor.role == "constant" and tensor.dtype == "bool":
            found[name] = random.integers(0, 2, shape) * 2.0
        else:
            found[name] = random.normal(0, 1, shape) / (max(shape, default=1) ** 0.5 if tensor.role == "weight" else 1)
    return found


def targets_of_losses(graph: Graph) -> set[str]:
    """What a squared error is against and nothing else reads: targets that are given get no gradient."""
    reads = [(op.kind, name) for op in graph.forward().ops for name in op.inputs]
    targets = {name for kind, name in reads if kind == "squared_error"}
    return targets - {name for kind, name in reads if kind != "squared_error"}


def run(sizes: Sizes, given: Mapping[str, Array]) -> dict[str, Array]:
    """Every tensor of the graph, on one machine."""
    found = dict(given)
    for op in sizes.graph.ops:
        loops = sizes.loops(op)
        found[op.output] = compute(op, [found[name] for name in op.inputs], sizes, loops)
        for tokens, slots in sizes.filled(op):
            if tokens in op.output_indices and slots in op.output_indices and sizes.groups > 1:
                # What a token has to do with the slots of other groups, nobody reads.
                order = [op.output_indices.index(tokens), op.output_indices.index(slots)]
                blocks = [np.arange(loops[i]) * sizes.groups // loops[i] for i in (tokens, slots)]
                mask = (blocks[0][:, None] == blocks[1][None]).astype(float)
                shape = [loops[i] if i in (tokens, slots) else 1 for i in op.output_indices]
                found[op.output] = found[op.output] * (mask if order[0] < order[1] else mask.T).reshape(shape)
        assert found[op.output].shape == sizes.shape(op.output), f"{op.name}: {found[op.output].shape}"
    return found
