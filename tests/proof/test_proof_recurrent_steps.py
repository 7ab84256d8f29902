"""Steps of layers that carry a state: recurrences and short convolutions, against loops and against a full run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from api import Graph, parse_strategy, plan, value
from proof_ranks import Mesh, Ranks, same
from proof_reference import Array, Sizes, outside, run

import symcomm as sc

HEADER = "Computation\tInput\tOutput\n"
MAMBA = (
    HEADER
    + r"""u = x W^x	x [B,L,D], W^x [D,E]	u [B,L,E]
v = silu(causalconv(u, W^c, b^c))	W^c [E,k], b^c [E]	v [B,L,E]
d = softplus(v W^r W^d + b^d)	W^r [E,R], W^d [R,E], b^d [E]	d [B,L,E]
b = v W^B	W^B [E,S]	b [B,L,S]
c = v W^C	W^C [E,S]	c [B,L,S]
a = exp(-einsum("ble,es->bles", d, A))	A [E,S]	a [B,L,E,S]
w = einsum("ble,bls->bles", d \odot v, b)	-	w [B,L,E,S]
h = scan_L(a, w)	-	h [B,L,E,S]
o = einsum("bles,bls->ble", h, c) + A_s \odot v	A_s [E]	o [B,L,E]
y = (o \odot silu(x W^z)) W^o	W^z [D,E], W^o [E,D]	y [B,L,D]
"""
)
# Sums weighted by a decay of each channel, with their normaliser (RWKV-4, arXiv 2305.13048, eq. 16 without the bonus).
RWKV = (
    HEADER
    + r"""r = sigmoid(x W^r)	x [B,L,D], W^r [D,E]	r [B,L,E]
K = exp(x W^k)	W^k [D,E]	K [B,L,E]
v = x W^v	W^v [D,E]	v [B,L,E]
n = scan_L(g, K \odot v)	g [E]	n [B,L,E]
m = scan_L(g, K)	-	m [B,L,E]
y = (r \odot n + m) W^o	W^o [E,D]	y [B,L,D]
"""
)
GATED = (
    HEADER
    + r"""q = x W^q	x [B,L,D], W^q [D,S]	q [B,L,S]
K = x W^k	W^k [D,S]	K [B,L,S]
v = x W^v	W^v [D,E]	v [B,L,E]
a = sigmoid(x W^a)	W^a [D,S]	a [B,L,S]
h = scan_L(a, einsum("bls,ble->blse", K, v))	-	h [B,L,S,E]
y = einsum("bls,blse->ble", q, h) W^o	W^o [E,D]	y [B,L,D]
"""
)
HYBRID = (
    GATED.replace("y = einsum", "z = x + einsum").replace("y [B,L,D]", "z [B,L,D]")
    + r"""Q = z W^Q	W^Q [D,P]	Q [B,L,P]
k' = z W^K	W^K [D,P]	k' [B,L,P]
V = z W^V	W^V [D,D]	V [B,L,D]
T = causalsoftmax(Q k'^T)	-	T [B,L,L]
y = z + T V	-	y [B,L,D]
"""
)
MAMBA2 = (Path(__file__).parents[1] / "data" / "mamba2.tsv").read_text()
TABLES = {"Mamba": MAMBA, "Mamba-2": MAMBA2, "decays of channels": RWKV, "gated": GATED, "hybrid": HYBRID}
SIZES = {"B": 2, "D": 6, "E": 4, "S": 10, "R": 2, "k": 3, "n": 4, "P": 2, "G": 2, "N": 1}
EVERY = 8
# The numbers that a sequence keeps of 8 tokens, by hand.
KEPT = {
    "Mamba": 4 * 10 + 3 * 4,
    "Mamba-2": 4 * 2 * 10 + 3 * (4 * 2 + 2 * 2 * 10),
    "decays of channels": 4 + 4,
    "gated": 10 * 4,
    "hybrid": 10 * 4 + EVERY * (2 + 6),
}


@cache
def full(name: str) -> tuple[dict[str, Array], dict[str, Array]]:
    sizes = Sizes(sc.load(TABLES[name]).graph, SIZES | {"L": EVERY})
    given = outside(sizes)
    return given, run(sizes, given)


def last_rows(graph: Graph, sizes: Sizes, tensor: str, array: Array) -> Array:
    """The last positions of a tensor of the full run, behind zeros where a step has more than there are."""
    assert graph.step is not None
    for place, axis in enumerate(graph.tensors[tensor].axes):
        if axis in (*graph.step.stream, *graph.step.behind):
            missing = max(0, sizes.axes[axis] - EVERY)
            array = np.concatenate([np.zeros_like(array.take(range(missing), axis=place)), array], axis=place)
            array = array.take(range(array.shape[place] - sizes.axes[axis], array.shape[place]), axis=place)
    return array


def given_to(name: str, graph: Graph, sizes: Sizes, new: int) -> dict[str, Array]:
    """Weights of the full run, and what its earlier positions left."""
    (before, every), found, step = full(name), dict[str, Array](), graph.step
    assert step is not None
    held = {one.before: one.tensor for one in step.kept}
    for tensor in graph.tensors:
        shape = sizes.shape(tensor)
        if tensor in graph.producers:
            continue
        if tensor.startswith("place("):
            found[tensor] = np.eye(shape[1])[-new:]
        elif tensor.startswith("last("):
            found[tensor] = np.eye(new)[-1]
        elif tensor in held and held[tensor].replace("^last", "") not in held.values():
            array = every[held[tensor].replace("^last", "")]
            along = next(n for n, length in enumerate(array.shape) if length == EVERY)
            found[tensor] = array.take(EVERY - new - 1, axis=along)
        elif tensor in held:
            array = last_rows(graph, sizes, tensor, every[held[tensor]]).copy()
            place = next(n for n, axis in enumerate(graph.tensors[tensor].axes) if axis in step.behind)
            np.moveaxis(array, place, 0)[-new:] = 0
            found[tensor] = array
        else:
            found[tensor] = last_rows(graph, sizes, tensor, before[tensor])
    return found


@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("name", TABLES)
def test_a_step_equals_the_last_rows_of_a_full_run(name: str, new: int) -> None:
    graph = sc.load(TABLES[name]).decode(new=new, past=EVERY - new).graph
    sizes = Sizes(graph, SIZES)
    found, (_, every) = run(sizes, given_to(name, graph, sizes, new)), full(name)
    compared = [one for one in graph.producers if one in every and "·all" not in one]
    assert len(compared) > 5
    assert [n for n in compared if not same(found[n], last_rows(graph, sizes, n, every[n]))] == []


@pytest.mark.few(4)
@pytest.mark.parametrize("strategy", ["data(2)", "tensor(2)", "context(2)", "tensor(2) + data(2)"])
@pytest.mark.parametrize("name", TABLES)
def test_every_rank_of_a_step_agrees_with_one_machine(name: str, strategy: str) -> None:
    graph = sc.load(TABLES[name]).decode(new=2, past=EVERY - 2).graph
    given = given_to(name, graph, Sizes(graph, SIZES), 2)
    made = plan(graph, parse_strategy(strategy))
    mesh = Mesh({axis: int(value(size)) for axis, size in made.strategy.sizes.items()})
    ranks = Ranks(made, Sizes(made.graph, SIZES), mesh)
    ranks.load(given)
    for _ in ranks.steps():
        pass
    one = run(Sizes(graph, SIZES), given)
    assert ranks.differences(one, [t for t in ranks.store if t in graph.producers]) == []


@pytest.mark.few(3)
@pytest.mark.parametrize("name", TABLES)
def test_what_is_kept_counted_and_moved_is_that_of_loops(name: str) -> None:
    made = sc.load(TABLES[name])
    assert made.kv_cache("sequence").at(SIZES | {"c": EVERY}).value == 2 * KEPT[name]
    for step in (made.decode(), made.prefill()):
        step.flops(accounting="all_ops").check(deep=True)
        step.traffic().check(deep=True)
        step.traffic(accounting="weights_and_cache").check(deep=True)
        step.kv_cache().check(deep=True)


def test_a_state_may_have_a_format_of_its_own_and_taps_as_many_places_as_are_read() -> None:
    made = sc.load(MAMBA)
    assert made.kv_cache("sequence", dtype="bf16, h=fp32").at(SIZES).value == 4 * 40 + 2 * 12
    assert made.kv_cache("sequence", accounting="w-1").at(SIZES).value == 2 * (40 + 8)
    assert made.kv_cache("sequence", "tensor(2)").at(SIZES).value == 2 * KEPT["Mamba"] / 2
    assert made.kv_cache("token").at(SIZES).value == 0  # nothing grows


def test_a_state_is_read_and_written_once_in_a_step() -> None:
    made, said = sc.load(GATED).decode(), "weights_and_cache"
    state, weights, result = 10 * 4, 3 * 6 * 10 + 2 * 6 * 4, 6
    for batch in (1, 3):
        moved = made.traffic(accounting=said).at(SIZES | {"B": batch}).value
        assert moved == 2 * (weights + batch * (2 * state + result))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("h = scan_M(x, x)	x [B,L,D]	h [B,L,D]", "none of its axes have that size"),
        ("h = scan(x, x)	x [B,Q,D]	h [B,Q,D]", "and none of its axes are known as positions"),
        ("h = scan_L(x, x)	x [B,L,L]	h [B,L,L]", "and several of its axes have that size"),
        ("h = scan_L(a, x)	x [L,D], a [L,D,E]	h [L,D]", "a has axes that x lacks"),
        ("h = causalconv(x, W)	x [B,L,D], W [E,4]	h [B,L,D]", "needs x of positions × channels and W of channels"),
        ("h = causalconv(x, W)	x [B,L,D], W [D,D,4]	h [B,L,D]", "conv(X, W) mixes channels"),
    ],
)  # fmt: skip
def test_a_recurrence_that_does_not_fit_says_what_would(row: str, told: str) -> None:
    with pytest.raises(sc.SymcommError) as caught:
        sc.load(HEADER + row + "\n")
    assert told in str(caught.value)


def test_a_loop_keeps_the_result_before_each_position_besides_what_its_gradient_reads() -> None:
    rows = "a = sigma(x W^a)\tx [B,L,D], W^a [D,D]\ta [B,L,D]\nh = scan_L(a, x)\t-\th [B,L,D]\n"
    rows += "y = h W^y\tW^y [D,D]\ty [B,L,D]\n"
    model, sizes = sc.load(HEADER + rows, dtype="fp32"), {"B": 2, "L": 6, "D": 4}
    # x, a and h are kept whole; PyTorch measures 160 B more, 2·(6 - 1)·4 numbers, where torch.stack copies the results
    assert model.activation_memory().at(**sizes).value == 3 * 2 * 6 * 4 * 4
    assert model.activation_memory(accounting="pytorch").at(**sizes).value == 3 * 2 * 6 * 4 * 4 + 2 * 5 * 4 * 4
