"""Operations and memory traffic of an update, against loops over the weights that were written by hand."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from api import SymcommError

import symcomm as sc

LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, "head_dim": 16}  # fmt: skip
MATRICES = 3 * [(64, 64), (64, 32), (64, 32), (64, 64), (64, 160), (64, 160), (160, 64)]
TABLES, VECTORS = [(128, 64), (128, 64)], [64] * 7
EVERY = [*MATRICES, *TABLES, *((n, 1) for n in VECTORS)]
NUMBERS = sum(r * c for r, c in EVERY)


class Counted(float):
    """A number that counts what is done with it."""

    done = 0

    def _one(self, *_: object) -> Counted:
        Counted.done += 1
        return Counted(1)

    __mul__ = __rmul__ = __add__ = __radd__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = _one
    __abs__ = root = sign = _one


def adam(w: Counted, g: Counted, m: Counted, v: Counted) -> None:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    w -= 0.1 * m / (v.root() + 1e-8)


def adamw(w: Counted, g: Counted, m: Counted, v: Counted) -> None:
    adam(w, g, m, v)
    w = 0.99 * w


def lion(w: Counted, g: Counted, m: Counted, v: Counted) -> None:
    u = (0.9 * m + 0.1 * g).sign()
    m = 0.99 * m + 0.01 * g
    w -= 0.1 * (u + 0.01 * w)


def momentum(w: Counted, g: Counted, m: Counted, v: Counted) -> None:
    m = 0.9 * m + g
    w -= 0.1 * m


def sgd(w: Counted, g: Counted, m: Counted, v: Counted) -> None:
    w -= 0.1 * g


RULES = {one.__name__: one for one in (adam, adamw, lion, momentum, sgd)}


def done(rule: Callable[..., None]) -> int:
    Counted.done = 0
    rule(*(Counted(1) for _ in range(4)))
    return Counted.done


@pytest.mark.parametrize("name", RULES)
def test_an_update_has_the_operations_that_run_for_each_element(name: str) -> None:
    made = sc.load(LLAMA).update_flops(f"fp32_{name}", accounting="all_ops")
    assert made.at().value == NUMBERS * done(RULES[name])
    assert "operations" in made.touched
    made.check(deep=True)


def test_each_weight_is_updated_by_its_own_recipe() -> None:
    """Hidden matrices by Muon, with five iterations of three products; tables by momentum, vectors by Adam."""
    recipe = "fp32_momentum for tables, fp32_muon"
    products = sum(5 * (2 * s * t * s + 2 * s * s * s + 2 * s * s * t) for s, t in map(sorted, MATRICES))
    assert sc.load(LLAMA).update_flops(recipe).at().value == products
    # Momentum 2, norm 2, divided by it 1, step 2; an iteration adds two matrices and two squares.
    rules = sum(r * c * (7 + 5 * 2) + 5 * 3 * min(r, c) ** 2 for r, c in MATRICES)
    rules += sum(r * c for r, c in TABLES) * done(momentum) + sum(VECTORS) * done(adam)
    made = sc.load(LLAMA).update_flops(recipe, accounting="all_ops")
    assert made.at().value == products + rules
    made.check(deep=True)


def inverse_root(square: Any, tolerance: float) -> tuple[Any, int, int]:
    """The inverse fourth root of a matrix by coupled Newton iterations; their number, and that of products."""
    one, scale = np.eye(len(square)), 2.5 / np.linalg.norm(square, 2)
    rest, found, products, iterations = scale * square, scale**0.25 * one, 0, 0
    while np.abs(rest - one).max() > tolerance:
        step = (5 * one - rest) / 4
        found, twice = found @ step, step @ step
        rest = twice @ twice @ rest
        products, iterations = products + 4, iterations + 1
    return found, iterations, products


@pytest.mark.parametrize("size", [3, 40])
def test_eighteen_iterations_of_four_products_find_an_inverse_fourth_root(size: int) -> None:
    """Of a matrix without full rank, to which 10^-6 of its largest eigenvalue is added."""
    random = np.random.default_rng(size)
    tall = random.normal(size=(size, 2))
    square = tall @ tall.T
    square += 1e-6 * np.linalg.norm(square, 2) * np.eye(size)
    found, iterations, products = inverse_root(square, 1e-6)
    values, vectors = np.linalg.eigh(square)
    assert np.allclose(found, vectors @ np.diag(values**-0.25) @ vectors.T, rtol=1e-4)
    assert (iterations, products) == (18, 18 * 4)


@pytest.mark.parametrize(("bounds", "iterations", "every"), [("", 18, 1), (", iterations=10, every=100", 10, 100)])
def test_shampoo_makes_two_squares_and_two_roots_and_multiplies_by_them(
    bounds: str, iterations: int, every: int
) -> None:
    """A side of more than 100 has none of them."""
    found = rules = Fraction(0)
    for r, c in [*MATRICES, *TABLES]:
        rules += r * c * (2 + 2)  # momentum and step
        for side, other in ((r, c), (c, r)):
            if side <= 100:
                found += 2 * (2 * side * side * other) + Fraction(iterations, every) * 4 * (2 * side**3)
                # A square is added; (5 I - M)/4
                rules += side * side * (1 + Fraction(iterations, every) * 2)
    made = sc.load(LLAMA).update_flops(f"mixed_shampoo(most=100{bounds})")
    assert made.at().value == found
    made.check(deep=True)
    every_rule = sc.load(LLAMA).update_flops(f"mixed_shampoo(most=100{bounds})", accounting="all_ops")
    assert every_rule.at().value == found + rules + sum(VECTORS) * done(adam)
    every_rule.check(deep=True)


def test_a_root_tells_how_often_it_is_made() -> None:
    text = sc.load(LLAMA).update_flops("fp32_shampoo(every=100)").markdown()
    assert "Each matrix of the layer: 4 products; 8 products, 18 times in one update of 100." in text
    with pytest.raises(SymcommError, match="every of fp32_shampoo is '0'"):
        sc.load(LLAMA).update_flops("fp32_shampoo(every=0)")
    with pytest.raises(SymcommError, match="fp32_adafactor has no 'every'"):
        sc.load(LLAMA).update_flops("fp32_adafactor(every=2)", accounting="all_ops")


@pytest.mark.parametrize(("recipe", "each"), [
    ("fp32_adam", 4 + 2 * 8 + 2 * 4), ("mixed_adam", 2 + 2 * 12 + 2), ("fp32_sgd", 4 + 2 * 4),
    ("mixed_lion", 2 + 2 * 8 + 2), ("weights=2, gradients=2, master=4, states=2", 2 + 2 * 6 + 2),
])  # fmt: skip
def test_an_update_reads_gradients_and_reads_and_writes_states_and_weights(recipe: str, each: int) -> None:
    """A copy of the weights is read instead of them, so that these are only written."""
    made = sc.load(LLAMA).update_traffic(recipe)
    assert made.at().value == NUMBERS * each
    made.check(deep=True)


def test_the_traffic_of_states_by_shape_is_twice_their_memory() -> None:
    model = sc.load(LLAMA)
    for recipe in ("fp32_adafactor(side=32)", "fp32_shampoo", "fp32_adamw8bit(block=64)"):
        states = model.state_memory(recipe=recipe, of="states").at().value
        assert model.update_traffic(recipe).at().value == 2 * states + NUMBERS * (4 + 2 * 4)


def test_frozen_weights_are_not_updated() -> None:
    made = sc.load(LLAMA).update_traffic("fp32_adam", frozen="W*")
    assert made.at().value == sum(VECTORS) * 28
    flops = sc.load(LLAMA).update_flops("fp32_adam", frozen="W*", accounting="all_ops")
    assert flops.at().value == sum(VECTORS) * done(adam)


def test_a_recipe_of_bytes_alone_does_not_say_how_it_updates() -> None:
    with pytest.raises(SymcommError) as caught:
        sc.load(LLAMA).update_flops("2+2+12", accounting="all_ops")
    assert str(caught.value) == (
        "weights=2, gradients=2, states=12 does not say how it updates a weight\n"
        "hint: a named recipe, such as fp32_adam"
    )


def test_a_search_keeps_the_bounds_of_a_recipe() -> None:
    recipe = "fp32_adamw8bit(block=16)"
    model = sc.load(LLAMA, dtype="bf16").at(B=4, L=16)
    rates = {"peak": "1 PFLOP/s", "network": "1 TB/s", "memory": "1 PB/s"}
    memory = [
        sc.search(model, devices=2, capacity="1 GB", capacity_is="usable", recipe=said, strategies="data",
                  microbatches="1", recomputation="none", jobs=1, **rates).top[0].memory.value
        for said in (recipe, "4+4+0")
    ]  # fmt: skip
    assert memory[0] - memory[1] == model.state_memory(recipe=recipe, of="states").at().value


def test_a_search_over_degrees_that_decide_what_is_kept_is_refused() -> None:
    asked = {"devices": 2, "capacity": "1 GB", "capacity_is": "usable", "jobs": 1, "recipe": "fp32_adafactor(side=8)",
             "peak": "1 PFLOP/s", "network": "1 TB/s", "memory": "1 PB/s", "microbatches": "1",
             "recomputation": "none"}  # fmt: skip
    model = sc.load(LLAMA).at(B=4, L=16)
    with pytest.raises(SymcommError) as caught:
        sc.search(model, strategies="tensor", **asked)
    assert str(caught.value) == (
        "what fp32_adafactor(side=8) keeps depends on the sizes: no value is given for N_TP\n"
        "hint: strategies with numbers, such as tensor(8) + data, or a recipe of bytes a parameter"
    )
    found = sc.search(model, strategies="tensor(2)", **asked).top[0].memory.value
    less = sc.search(model, strategies="tensor(2)", **{**asked, "recipe": "4+4+0"}).top[0].memory.value
    assert found - less == model.state_memory("tensor(2)", recipe="fp32_adafactor(side=8)", of="states").at().value
