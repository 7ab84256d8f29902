"""Each map is the function of its name: against definitions with ``math`` and NumPy that know none of our records."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from api import MAP, MAPS, Graph, Op, operations
from proof_reference import EPSILON_VALUE, Array, Sizes, compute

Row = Callable[..., Array]


def each(function: Callable[[float], float]) -> Row:
    """A function of one number, number by number."""
    return lambda u: np.array([function(float(number)) for number in u])


def softmax(u: Array) -> Array:
    return np.exp(u) / np.exp(u).sum()


def rope(u: Array, c: Array, s: Array) -> Array:
    """Pairs (a, b), half a row apart, turned by an angle each (Su et al., eq. 13)."""
    half = len(u) // 2
    turned = [complex(u[n], u[n + half]) * complex(c[n], s[n]) for n in range(half)]
    return np.array([z.real for z in turned] + [z.imag for z in turned])


# What is meant by each name, for one row; the derivative for those with a known closed form.
DEFINED: dict[str, Row] = {
    "relu": each(lambda x: x if x > 0 else 0.0),
    "squared_relu": each(lambda x: x * x if x > 0 else 0.0),
    # The normal distribution's part below x, times x: Hendrycks and Gimpel, section 2.
    "gelu": each(lambda x: x * math.erfc(-x / math.sqrt(2)) / 2),
    # Hendrycks and Gimpel's approximations, with the numbers that the code of transformers has.
    "gelu_new": each(lambda x: x / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "gelu_fast": each(lambda x: x / (1 + math.exp(-2 * 0.7978845608 * (x + 0.044715 * x**3)))),
    "gelu_python": each(lambda x: x * math.erfc(-x / math.sqrt(2)) / 2),
    "quick_gelu": each(lambda x: x / (1 + math.exp(-1.702 * x))),
    "silu": each(lambda x: x * math.exp(x) / (1 + math.exp(x))),
    "sigmoid": each(lambda x: math.exp(x) / (1 + math.exp(x))),
    "tanh": each(math.tanh),
    "exp": each(math.exp),
    "softmax": softmax,
    "sinksoftmax": lambda u: softmax(np.append(u, 0.0))[:-1],
    "topsoftmax": lambda u: np.where(u >= sorted(u)[-3], np.exp(u) / sum(np.exp(sorted(u)[-3:])), 0),
    "layernorm": lambda u: (u - np.mean(u)) / np.sqrt(np.var(u) + EPSILON_VALUE),
    "rmsnorm": lambda u: u / np.sqrt(np.dot(u, u) / len(u) + EPSILON_VALUE),
    "rope": rope,
    "crossentropy": lambda u, t: np.array(-np.log(softmax(u)[int(np.argmax(t))])),
    "batchnorm": lambda u: (u - np.mean(u)) / np.sqrt(np.var(u) + EPSILON_VALUE),
    "logsumexp": lambda u: np.array(math.log(sum(math.exp(x) for x in u))),
    "maxpool": lambda u: np.array(sorted(u)[-1]),
    "squared_error": lambda u, t: u * u - 2 * u * t + t * t,
    "softplus": each(lambda x: math.log1p(math.exp(x))),
    "scan": lambda u, c: np.array(
        [sum(u[m] * math.prod(c[m + 1 : n + 1]) for m in range(n + 1)) for n in range(len(u))]
    ),
    "scale": lambda u: 3 * u,
    "shift": lambda u: u + 3,
    "minus": lambda u: 3 - u,
    "at_most": each(lambda x: x if x < 3 else 3.0),
    "clamp": each(lambda x: math.copysign(min(abs(x), 3), x)),
    "mask": lambda u, t: np.where(t < 0, u + t, u),
}
ROWS, LENGTH = 3, 6


NUMBERS: dict[str, tuple[tuple[str, int], ...]] = {
    "scale": (("scale", 3),), "shift": (("number", 3),), "minus": (("number", 3),),
    "at_most": (("number", 3),), "clamp": (("number", 3),), "topsoftmax": (("number", 3),),
}  # fmt: skip


def computed(kind: str, operands: dict[str, Array]) -> Array:
    """A map by the reference run of a graph."""
    record = MAP[kind]
    indices = tuple((0, 1) for _ in operands)
    attributes = ((("along", (1,)),) if record.along else ()) + NUMBERS.get(kind, ())
    op = Op(kind, kind, tuple(operands), "out", indices, (0,) if record.collapses else (0, 1), attributes)
    return compute(op, [*operands.values()], Sizes(Graph("empty", {}, {}, ()), {}), {0: ROWS, 1: LENGTH})


def given(kind: str) -> dict[str, Array]:
    random = np.random.default_rng(3)
    found = {"u": random.normal(0, 2, (ROWS, LENGTH))}
    if kind == "rope":
        angle = np.tile(random.uniform(0, 6, (ROWS, LENGTH // 2)), 2)
        return {**found, "c": np.cos(angle), "s": np.sin(angle)}
    if kind == "crossentropy":
        return {**found, "t": np.eye(LENGTH)[[1, 3, 5]]}
    if kind == "squared_error":
        return {**found, "t": random.normal(0, 2, (ROWS, LENGTH))}
    if kind == "scan":
        return {**found, "c": random.uniform(0, 1, (ROWS, LENGTH))}
    if kind == "mask":
        return {**found, "t": np.where(random.random((ROWS, LENGTH)) < 0.5, -1e9, 0)}
    return found


@pytest.mark.parametrize("kind", [record.name for record in MAPS])
def test_a_map_is_the_function_of_its_name(kind: str) -> None:
    operands = given(kind)
    expected = np.stack([DEFINED[kind](*(array[n] for array in operands.values())) for n in range(ROWS)])
    assert np.allclose(computed(kind, operands), expected, rtol=1e-12, atol=1e-12)


# Worked out by hand: what one element takes with common pieces shared, and what one row takes besides.
COUNTED = {
    "relu": (1, 0),  # a comparison
    "sigmoid": (3, 0),  # an exponential, an addition, a division
    "silu": (3, 0),  # the same, the division is that of u
    "tanh": (1, 0),
    "scale": (1, 0),
    "minus": (1, 0),  # 1 - z is one subtraction
    "at_most": (1, 0),  # a comparison
    "clamp": (2, 0),
    "softmax": (5, 0),  # the largest, a subtraction, an exponential, the sum, a division
    "topsoftmax": (5, 0),  # the same: choosing computes nothing
    "rmsnorm": (3, 3),  # a square, its sum, a division; a row: the mean's division, epsilon, a root
    "layernorm": (5, 4),  # the sum, a subtraction, a square, its sum, a division; two divisions, epsilon, a root
    "batchnorm": (5, 4),
    "logsumexp": (4, 2),  # the largest, a subtraction, an exponential, the sum; a logarithm and an addition a row
    "maxpool": (1, 0),
    "squared_error": (2, 0),
    "rope": (3, 0),  # two products and a sum
    "scan": (2, 0),  # a product with what was before and a sum
}


@pytest.mark.parametrize("kind", COUNTED)
def test_the_operations_of_a_map_are_those_counted_by_hand(kind: str) -> None:
    assert operations(kind) == COUNTED[kind]
