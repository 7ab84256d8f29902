"""The one machine is right: loops for contractions and convolutions, differences for gradients."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from api import MAP, MAPS, Graph, Op
from proof_cases import numbers
from proof_ranks import same
from proof_reference import Array, Sizes, compute, outside, reach, route, run, targets_of_losses
from proof_tables import ALL, LAYERS, graph

SMALL = (2,)  # the mesh whose sizes are used


def looped(op: Op, operands: list[Array], lengths: dict[int, int], scale: float) -> Array:
    """A contraction as nested loops, one multiplication at a time."""
    result = np.zeros([lengths[i] for i in op.output_indices])
    names = sorted(lengths)
    for place in product(*(range(lengths[i]) for i in names)):
        at = dict(zip(names, place, strict=True))
        term = scale
        for array, indices in zip(operands, op.indices, strict=True):
            term = term * array[tuple(at[i] for i in indices)]
        result[tuple(at[i] for i in op.output_indices)] += term
    return result


@pytest.mark.parametrize("layer", LAYERS)
def test_contractions_equal_nested_loops(layer: str) -> None:
    sizes, _, found = numbers(layer, "training", SMALL)
    compared = 0
    for op in sizes.graph.ops:
        lengths = sizes.loops(op)
        if op.kind != "contraction" or np.prod([*lengths.values()]) > 5000:
            continue
        scale = sizes.number(op.attribute("scale", 1))
        assert same(found[op.output], looped(op, [found[n] for n in op.inputs], lengths, scale)), op.name
        compared += 1
    assert compared or layer == "convolutions"


def slid(image: Array, kernel: Array, places: tuple[int, ...]) -> Array:
    """A convolution as nested loops over places and taps; the padding as in ``reach``."""
    rows, channels = image.shape[0], kernel.shape[0]
    result = np.zeros((rows, channels, *places))
    for b, o, c in product(range(rows), range(channels), range(kernel.shape[1])):
        for place in product(*map(range, places)):
            for tap in product(*map(range, kernel.shape[2:])):
                position = []
                for n, (p, t) in enumerate(zip(place, tap, strict=True)):
                    window, taps = image.shape[2 + n], kernel.shape[2 + n]
                    valid = places[n] == window - taps + 1
                    stride = 1 if valid else window // places[n]
                    before = 0 if valid else max((places[n] - 1) * stride + taps - window, 0) // 2
                    position.append(p * stride + t - before)
                if all(0 <= q < image.shape[2 + n] for n, q in enumerate(position)):
                    result[(b, o, *place)] += image[(b, c, *position)] * kernel[(o, c, *tap)]
    return result


@pytest.mark.parametrize("layer", ["convolutions", "function conv1d"])
def test_convolutions_equal_nested_loops_and_their_gradients_are_their_adjoints(layer: str) -> None:
    sizes, _, found = numbers(layer, "training", SMALL)
    forward = {op.output: op for op in sizes.graph.ops if op.kind == "convolution" and op.phase == "forward"}
    adjoints = 0
    for op in forward.values():
        image, kernel = (found[n] for n in op.inputs)
        assert same(found[op.output], slid(image, kernel, found[op.output].shape[2:]))
    for op in sizes.graph.ops:
        if op.kind != "convolution" or op.phase == "forward":
            continue
        dy, other = (found[n] for n in op.inputs)
        random = np.random.default_rng(1).normal(size=found[op.output].shape)
        pair = (random, other) if op.attribute("part") == "input" else (other, random)
        # <dy, conv(v)> = <gradient, v> for every v, which is what a gradient of a linear map is.
        assert np.vdot(dy, slid(*pair, dy.shape[2:])) == pytest.approx(np.vdot(found[op.output], random))
        adjoints += 1
    assert adjoints == 2 * len(forward)


def test_a_convolution_without_padding_and_one_with_the_same_size() -> None:
    assert reach(4, 2, 3).sum() == 6  # every tap meets the window
    assert reach(4, 3, 4).sum() == 10  # two taps hang over, one at each end
    assert reach(6, 2, 3)[1, 0].tolist() == [0, 0, 1, 0, 0, 0]  # stride two


def test_tokens_take_slots_in_order_and_stay_away_where_there_is_none() -> None:
    gates = np.array([[[0.9, 0.1, 0.3], [0.8, 0.2, 0.1], [0.7, 0.1, 0.6]]])
    chosen = route(gates, 2, 2)
    assert chosen.sum(axis=(2, 3)).tolist() == [[2, 2, 1]]  # the third token finds its first expert full
    assert chosen[0, :, 0].tolist() == [[1, 0], [0, 1], [0, 0]]
    assert chosen[0, :, 2].tolist() == [[1, 0], [0, 0], [0, 1]]


# -- maps ------------------------------------------------------------------------------------------------


def _map_op(kind: str, backward: bool) -> Op:
    record = MAP[kind]
    reads = ["dy", *record.gradient_reads] if backward else ["u", *record.operands]
    result = (0, 1) if backward or not record.collapses else (0,)
    dy = (0,) if record.collapses else (0, 1)
    indices = tuple(dy if name in ("dy", "y") else (0, 1) for name in reads)
    attributes: dict[str, Any] = {"along": (1,)} if record.along else {}
    attributes |= {"scale": 3} if kind == "scale" else {}
    attributes |= {"number": 3} if kind in ("shift", "minus", "at_most", "clamp", "topsoftmax") else {}
    name = f"{kind}_gradient" if backward else kind
    return Op(name, name, tuple(reads), "out", indices, result, tuple(attributes.items()))


@pytest.mark.parametrize("kind", [record.name for record in MAPS if record.differentiable])
def test_the_gradient_of_a_map_equals_central_differences(kind: str) -> None:
    record, random = MAP[kind], np.random.default_rng(0)
    sizes = Sizes(Graph("empty", {}, {}, ()), {})
    loops = {0: 3, 1: 6}
    shape = (3,) if record.collapses else (3, 6)
    known = {"u": random.normal(0, 2, (3, 6)), "dy": random.normal(0, 1, shape)}
    known |= {name: random.normal(0, 1, (3, 6)) for name in record.operands}
    if "t" in known and record.collapses:
        known["t"] = np.eye(6)[[1, 3, 5]]
    forward, backward = _map_op(kind, False), _map_op(kind, True)

    def value(u: Array) -> Array:
        return compute(forward, [u if n == "u" else known[n] for n in forward.inputs], sizes, loops)

    known["y"] = value(known["u"])
    gradient = compute(backward, [known[n] for n in backward.inputs], sizes, loops)
    step, expected = 1e-6, np.zeros((3, 6))
    for place in np.ndindex(3, 6):
        moved = np.zeros((3, 6))
        moved[place] = step
        difference = value(known["u"] + moved) - value(known["u"] - moved)
        expected[place] = np.vdot(known["dy"], difference) / (2 * step)
    assert np.allclose(gradient, expected, rtol=1e-6, atol=1e-7)


# -- whole layers ------------------------------------------------------------------------------------------


@pytest.mark.few(20)
@pytest.mark.parametrize("layer", ALL)
def test_the_gradients_of_a_layer_equal_differences_along_random_directions(layer: str) -> None:
    sizes, given, found = numbers(layer, "training", SMALL)
    forward = Sizes(graph(layer).forward(), sizes.values)
    outputs = [t.name for t in forward.graph.outputs]
    random = np.random.default_rng(2)

    def loss(moved: dict[str, Array]) -> float:
        made = run(forward, {**given, **moved})
        return float(sum(np.vdot(found[f"d({name})"], made[name]) for name in outputs))

    step = 1e-6
    alone = targets_of_losses(graph(layer))
    for tensor in (t for t in (*graph(layer).weights, *graph(layer).inputs) if t.name not in alone):
        direction = random.normal(size=given[tensor.name].shape)
        ahead = loss({tensor.name: given[tensor.name] + step * direction})
        behind = loss({tensor.name: given[tensor.name] - step * direction})
        slope = float(np.vdot(found[f"d({tensor.name})"], direction))
        size = float(np.abs(found[f"d({tensor.name})"] * direction).sum())
        assert (ahead - behind) / (2 * step) == pytest.approx(slope, rel=1e-5, abs=1e-5 * max(size, 1.0)), tensor.name


def test_a_spoilt_gradient_is_noticed() -> None:
    sizes, given, found = numbers("homework", "training", SMALL)
    ops = tuple(replace(op, attributes=(("scale", 2),)) if op.output == "d(A')" else op for op in sizes.graph.ops)
    made = run(Sizes(replace(sizes.graph, ops=ops), sizes.values), given)
    assert not same(made["d(W^1)"], found["d(W^1)"])
    assert same(made["d(W^2)"], found["d(W^2)"])


def test_the_numbers_of_a_layer_are_the_same_on_every_call() -> None:
    sizes, given, _ = numbers("gpt", "training", SMALL)
    again = outside(sizes)
    assert all(np.array_equal(given[name], again[name]) for name in given)
