"""Einsums against NumPy, against an exhaustive search and against values made without this code."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api import (
    COUNTS,
    Einsum,
    SymcommError,
    ValuesError,
    bound,
    orders,
    path,
    read_subscripts,
    sums_first,
    trees,
)
from api import einsum_gradients as gradients

import symcomm as sc

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_einsum.json").read_text(encoding="utf-8"))


def made(case: dict[str, Any]) -> Einsum:
    return bound(read_subscripts(case["einsum"]), case["shapes"])


def operations(said: str, shapes: list[list[int]], count: str = "fma2", want: str = "flops") -> Any:
    return sc.derive("einsum", subscripts=said, shapes=", ".join(map(str, shapes)), count=count, want=want).at().value


def numbers(einsum: Einsum, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-3, 4, einsum.shape(n)).astype(float) for n in range(len(einsum.operands))]


def by_loops(einsum: Einsum, arrays: list[Any]) -> Any:
    """The einsum by loops over all its indices."""
    result = np.zeros(einsum.output_shape)
    for point in product(*(range(einsum.sizes[i]) for i in einsum.indices)):
        at = dict(zip(einsum.indices, point, strict=True))
        term = 1.0
        for n, labels in enumerate(einsum.operands):
            places = tuple(0 if (n, k) in einsum.stretched else at[label] for k, label in enumerate(labels))
            term *= arrays[n][places]
        result[tuple(at[label] for label in einsum.output)] += term
    return result


def check_gradients(einsum: Einsum, arrays: list[Any], subscripts: str, seed: int) -> None:
    """An einsum is linear in each operand: <g, f(.., d, ..)> is <gradient, d>."""
    rng = np.random.default_rng(seed + 1)
    g = rng.integers(-3, 4, einsum.output_shape).astype(float)
    for n, gradient in enumerate(gradients(einsum)):
        pieces = []
        for operand in gradient.operands:
            if operand == "g":
                pieces.append(g)
            elif isinstance(operand, tuple):
                pieces.append(np.ones(operand[1]) if operand[0] == "ones" else np.eye(operand[1]))
            else:
                dropped = [k for k in range(arrays[operand].ndim) if (operand, k) in einsum.stretched]
                pieces.append(np.squeeze(arrays[operand], axis=tuple(dropped)))
                assert bool(dropped) == (operand in gradient.squeezed)
        theirs = np.einsum(gradient.subscripts, *pieces)
        assert gradient.reshaped == (theirs.shape != gradient.shape)
        theirs = theirs.reshape(gradient.shape)
        change = rng.integers(-3, 4, einsum.shape(n)).astype(float)
        moved = np.einsum(subscripts, *(change if k == n else a for k, a in enumerate(arrays)))
        assert np.sum(g * moved) == np.sum(theirs * change)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["id"])
def test_an_einsum_is_read_counted_and_differentiated(case: dict[str, Any]) -> None:
    einsum = made(case)
    assert einsum.explicit == case["explicit"]
    assert (list(einsum.output_shape), einsum.implicit) == (case["output_shape"], case["implicit"])
    assert {i: einsum.sizes[i] for i in einsum.ellipsis} == case["ellipsis_labels"]
    assert (sorted(einsum.summed), bool(einsum.diagonals)) == (case["summed"], case["diagonal"])
    assert {name: operations(case["einsum"], case["shapes"], name) for name in COUNTS} == case["flops"]
    assert operations(case["einsum"], case["shapes"], want="backward") == case["backward_fma2"]
    for gradient, row in zip(gradients(einsum), case["gradients"], strict=True):
        assert list(gradient.shape) == row["shape"]
        assert (gradient.reshaped, bool(gradient.squeezed or gradient.reshaped)) == (
            "reshape" in row, row.get("squeezed_operands", False))  # fmt: skip
        if row["needs"] in ("nothing", ["ones"]):
            assert gradient.subscripts == row["einsum"]
    check_gradients(einsum, numbers(einsum, 1), case["einsum"], 1)
    if "presum_fma2" in case:
        lean, before = sums_first(einsum)
        shapes = [[lean.sizes[label] for label in labels] for labels in lean.operands]
        assert before + operations(lean.explicit, shapes) == case["presum_fma2"]
    if "orders" in case:
        row, found = case["orders"], orders(einsum)
        assert (found.number, found.least, found.most) == (row["count"], row["best_fma2"], row["worst_fma2"])
        assert (found.ties, found.largest) == (row["number_of_best"], row["smallest_largest_intermediate_of_best"])
        assert str(found.best).replace(" ", "") in row["best_orders"]
        assert operations(case["einsum"], case["shapes"], want="left_to_right") == row["left_to_right"]
        presummed = operations(case["einsum"], case["shapes"], want="sums_first")
        assert min(found.least, presummed) == row["best_with_presum"]
        assert orders(einsum, "opt_einsum").least == row["opt_einsum_count_of_best"]


@pytest.mark.parametrize("case", GOLDEN["invalid"], ids=lambda case: case["id"])
def test_an_einsum_that_cannot_be_is_refused_with_its_reason_and_place(case: dict[str, Any]) -> None:
    with pytest.raises(SymcommError) as error:
        made(case)
    assert error.value.message == case["why"]
    assert error.value.span is not None
    assert error.value.span.text == case["einsum"]
    assert error.value.hint


def drawn(rng: random.Random) -> tuple[str, list[tuple[int, ...]]]:
    """Random subscripts with shapes that fit: repeated indices, ellipses, axes of length 1, an implicit result."""
    letters = rng.sample("abcdijkABZ", rng.randint(1, 5))
    sizes = {i: rng.randint(1, 3) for i in letters}
    batch = [rng.randint(2, 3) for _ in range(rng.choice([0, 0, 0, 1, 2]))]
    sides, shapes = [], []
    for _ in range(rng.randint(1, 4)):
        labels = [rng.choice(letters) for _ in range(rng.randint(0, 3))]
        at, mine = rng.randint(0, len(labels)), list[int]()
        dots = bool(batch) and rng.random() < 0.8
        if dots:
            mine = [rng.choice([1, b]) for b in batch[rng.randint(0, len(batch)) :]]
        shape = [sizes[i] for i in labels]
        shapes.append((*shape[:at], *mine, *shape[at:]))
        sides.append("".join(labels[:at]) + "..." * dots + "".join(labels[at:]))
    text = ",".join(sides)
    if rng.random() < 0.7:
        used = sorted({i for i in text if i.isalpha()})
        out = rng.sample(used, rng.randint(0, len(used)))
        text += "->" + "..." * bool(batch) + "".join(out)
    return text, shapes


def agree(count: int, seed: int) -> None:
    rng = random.Random(seed)
    for n in range(count):
        text, shapes = drawn(rng)
        einsum = bound(read_subscripts(text), shapes)
        arrays = numbers(einsum, n)
        theirs = np.einsum(text, *arrays)
        assert theirs.shape == einsum.output_shape, text
        assert (by_loops(einsum, arrays) == theirs).all(), text
        check_gradients(einsum, arrays, text, n)
        assert np.array_equal(np.einsum(einsum.explicit, *arrays), theirs) or einsum.stretched
        if len(einsum.operands) > 1:
            check_orders(einsum, arrays, theirs)


def check_orders(einsum: Einsum, arrays: list[Any], theirs: Any) -> None:
    """Every tree is walked: what it costs, and, of the best one, that its contractions give the result."""
    every = [path(einsum, tree) for tree in trees(tuple(range(len(arrays))))]
    costs = [sum(step.cost for step in steps) for steps in every]
    found = orders(einsum)
    assert (found.number, found.least, found.most) == (len(costs), min(costs), max(costs))
    assert found.ties == costs.count(min(costs))
    largest = [max(step.size for step in steps) for steps, cost in zip(every, costs, strict=True) if cost == min(costs)]
    assert found.largest == min(largest)
    done: dict[Any, Any] = dict(enumerate(arrays))
    for step in path(einsum, found.best):
        done[step.left, step.right] = np.einsum(step.subscripts, done[step.left], done[step.right])
    assert np.array_equal(done[found.best], theirs)


def test_random_einsums_are_numpys_with_their_gradients_and_orders() -> None:
    agree(500, 20241122)


@pytest.mark.long
def test_many_random_einsums_are_numpys_with_their_gradients_and_orders() -> None:
    agree(3000, 20241123)


def test_no_order_of_opt_einsum_is_cheaper_by_its_own_count() -> None:
    library = pytest.importorskip("opt_einsum")
    rng = random.Random(7)
    for _ in range(60):
        text, shapes = drawn(rng)
        if "." in text or len(shapes) < 3:
            continue
        einsum = bound(read_subscripts(text), shapes)
        if einsum.diagonals:
            continue
        arrays = numbers(einsum, 1)
        _, told = library.contract_path(einsum.explicit, *arrays, optimize="optimal")
        assert orders(einsum, "opt_einsum").least <= told.opt_cost, einsum.explicit


@pytest.mark.parametrize(
    ("text", "shapes", "message"),
    [
        ("i->i->i", [(2,)], "a second `->`"),
        ("ij->i,j", [(2, 3)], "a comma follows `->`"),
        ("i..->i", [(2, 3)], "a `.` that is no ellipsis"),
        ("......", [(2,)], "a second ellipsis"),
        ("i...->i", [(2, 3)], "PyTorch sums over the ellipsis, NumPy refuses it"),
        ("ij,jk->ik", [(2, 1), (3, 4)], "only the ellipsis stretches an axis of length 1 here"),
        ("ii->i", [(1, 3)], "index i is 1 and 3 in operand 1"),
        ("...,...", [(2,), (3,)], "the ellipsis is 2 in operand 1 and 3 in operand 2"),
        ("...ij", [(2,)], "operand 1 has 1 dimension, its subscripts name at least 2"),
        ("i" * 600, [(2,)], "these subscripts have 600 characters"),
        (",".join("i" * 21), [(2,)] * 21, "an einsum of 21 operands"),
        ("i...->i...", [(2,) * 70], "an einsum of more than 52 indices"),
    ],
)  # fmt: skip
def test_each_fault_of_subscripts_has_an_error_of_its_own(text: str, shapes: Any, message: str) -> None:
    with pytest.raises(SymcommError) as error:
        bound(read_subscripts(text), shapes)
    assert message in str(error.value)


def test_the_best_order_needs_numbers_and_few_operands() -> None:
    with pytest.raises(ValuesError, match="the best order depends on the sizes"):
        orders(bound(read_subscripts("i,i,i"), [("N",)] * 3))
    with pytest.raises(ValuesError, match="the orders of 11 operands are too many"):
        orders(bound(read_subscripts(",".join("i" * 11)), [(2,)] * 11))
