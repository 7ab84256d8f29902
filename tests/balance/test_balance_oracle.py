"""Compute against communication, by a walk through the products at whole batches that shares no code."""

from __future__ import annotations

import random
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from balance_models import BOOK, OVERLAP, block, block_products, swiglu, swiglu_products, walk

sys.path.insert(0, str(Path(__file__).parents[1] / "collectives"))
import exchange as ex
from api import Derivation, Sym, ValuesError, wire
from api import form_evaluate as evaluate
from api import model as sc

ONE_WAY = {"time": "serial"}
MESH = "fsdp(X) + tensor(Y)"
MODELS = {"block": (block, block_products), "swiglu": (swiglu, swiglu_products)}
CONVENTIONS = {"added": BOOK, "overlapping": OVERLAP, "one way": ONE_WAY, "one way overlapping": {"time": "overlap"}}
MADE: dict[tuple[object, ...], Derivation] = {}


def whole(model: str, convention: str, **options: object) -> Derivation:
    key = (model, convention, *options.items())
    if key not in MADE:
        MADE[key] = MODELS[model][0]().derive(
            "compute_bound", strategy=MESH, links="X=M_X, Y=M_Y", numbers="whole", accounting=CONVENTIONS[convention],
            **options,
        )  # fmt: skip
    return MADE[key]


def enough(times: tuple[Fraction, ...], convention: str) -> bool:
    return times[0] >= (max(times[1:]) if "overlapping" in convention else sum(times[1:]))


MOST = 200  # batches that are tried one by one


@pytest.mark.few(2)
@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("model", MODELS)
def test_the_least_whole_batch_is_the_first_at_which_the_walk_is_compute_bound(model: str, convention: str) -> None:
    rng = random.Random(f"{model} {convention}")
    products = MODELS[model][1]
    seen = {"found": 0, "never": 0}
    derivation = whole(model, convention)
    for _ in range(30):
        at = {"D": rng.randint(1, 9), "F": rng.randint(1, 40), "X": 2 * rng.randint(1, 4), "Y": 2 * rng.randint(1, 3),
              "M_X": rng.randint(1, 3), "M_Y": rng.randint(1, 3), "R": rng.randint(1, 60),
              "W_net": rng.randint(1, 20)}  # fmt: skip
        both_ways = not convention.startswith("one way")
        first = next(
            (b for b in range(1, MOST) if enough(walk(products(at), {**at, "B": b}, both_ways), convention)), None
        )
        if not enough(walk(products(at), {**at, "B": 10**12}, both_ways), convention):  # however large it is
            assert first is None
            with pytest.raises(ValuesError, match="no B is ever enough"):
                derivation.at(**at)
            seen["never"] += 1
            continue
        answer = derivation.at(**at).value
        assert answer == first if first is not None else answer >= MOST
        seen["found"] += first is not None
    assert min(seen.values()) > 3, seen


def test_the_least_batch_of_one_device_is_the_first_at_which_the_walk_is_compute_bound() -> None:
    derivation = whole("block", "added", per="device")
    rng = random.Random(7)
    for _ in range(60):
        at = {"D": 8, "F": 64, "X": 2 * rng.randint(1, 4), "Y": 2, "M_X": 1, "M_Y": rng.randint(1, 3),
              "R": rng.randint(1, 60), "W_net": rng.randint(5, 20)}  # fmt: skip
        devices = at["X"] * at["Y"]
        first = next(b for b in range(1, 500) if enough(walk(block_products(at), {**at, "B": b * devices}), "added"))
        assert derivation.at(**at).value == first


@pytest.mark.parametrize("model", MODELS)
def test_training_needs_the_gathers_again_and_reduces_the_gradients(model: str) -> None:
    """Backward has two products for each one, gathers weights again, scatters their gradients, reduces the input's."""
    make, products = MODELS[model]
    derivation = make().derive("compute_bound", strategy=MESH, phase="training", accounting=BOOK)
    for seed in range(20):
        rng = random.Random(seed)
        at = {"D": rng.randint(1, 9), "F": rng.randint(30, 90), "X": 4, "Y": 2, "R": rng.randint(1, 9), "W_net": 20}
        one, two = (walk(products(at), {**at, "B": b}) for b in (10, 20))
        computing, fixed, growing = 3 * (two[0] - one[0]) / 10, 3 * one[1], 2 * (two[2] - one[2]) / 10
        assert derivation.at(**at).value == fixed / (computing - growing)


def test_a_gated_block_answers_the_formula_that_was_worked_out_by_hand() -> None:
    """T_math = 6BDF/(XYR), T_FSDP = 6DF/(Y W M_X), T_TP = 4BD/(X W M_Y)."""
    derivation = swiglu().derive("compute_bound", strategy=MESH, links="X=M_X, Y=M_Y", accounting=BOOK)
    d, f, x, y, m_x, m_y, r, w = 4096, 11008, 8, 4, 2, 1, 10**15, 10**12
    by_hand = Fraction(6 * d * f, y * w * m_x) / (Fraction(6 * d * f, x * y * r) - Fraction(4 * d, x * w * m_y))
    assert derivation.at(F=f, X=x, Y=y, M_X=m_x, M_Y=m_y, R=r, W_net=w).value == by_hand


def test_grouped_query_attention_answers_what_its_products_say() -> None:
    path = Path(__file__).parents[2] / "examples/layers/grouped-query-attention.md"
    derivation = sc.load(path, dtype="bf16").derive("compute_bound", strategy=MESH, accounting=BOOK)
    for heads, groups in ((32, 8), (16, 16), (8, 2)):
        width, length, head, x, y, r, w = 4096, 2048, 128, 8, 2, 10**15, 10**13
        query, keys = heads * head, groups * head
        products = 2 * length * width * (2 * query + 2 * keys) + 2 * 2 * length**2 * query
        weights = width * (2 * query + 2 * keys)
        computing = Fraction(products, x * y * r)
        growing = Fraction(2 * 2 * length * width, x * w)
        fixed = Fraction(2 * weights, y * w)
        at = {"L": length, "n_H": heads, "n_kv": groups, "H": head, "D": width, "X": x, "Y": y, "R": r, "W_net": w}
        assert derivation.at(**at).value == fixed / (computing - growing)


def test_experts_send_tokens_both_ways_over_the_axis_that_also_gathers_the_router() -> None:
    path = Path(__file__).parents[2] / "examples/layers/mixture-of-experts.md"
    on_rings = {**BOOK, "algorithm": {"all-to-all": "ring"}}
    derivation = sc.load(path, dtype="bf16").derive("compute_bound", strategy="fsdp(X) + expert", accounting=on_rings)
    length, width, hidden, experts, slots, x, r, w = 1024, 2048, 8192, 64, 32, 8, 10**14, 10**12
    computing = Fraction(2 * length * width * experts + 2 * 2 * experts * slots * width * hidden, x * r)
    tokens = Fraction(experts * slots * width, x)  # of one sequence, on one rank
    # To the experts and back, 2 bytes each: a part for each rank, over as many links of the ring as lie between, on two
    # links each way.
    crossed = sum(min(i, x - i) for i in range(1, x))
    growing = 2 * 2 * tokens / x * crossed / w
    fixed = Fraction(2 * width * experts, w)
    at = {"L": length, "D": width, "F": hidden, "E": experts, "C": slots, "X": x, "R": r, "W_net": w}
    assert derivation.at(**at).value == fixed / (computing - growing)


def test_a_latency_is_a_part_of_the_communication_that_no_batch_makes_longer() -> None:
    derivation = block().derive("compute_bound", strategy=MESH, latency="alpha", accounting=BOOK)
    at = {"D": 16, "F": 90, "X": 4, "Y": 6, "R": 7, "W_net": 20}
    one, two = (walk(block_products(at), {**at, "B": b}) for b in (0, 1))
    rounds = 2 * (4 // 2) + 2 * (6 // 2)  # two gathers over 4 ranks; a reduction and a gather over 6
    wanted = (one[1] + rounds * 100) / (two[0] - two[2])
    assert derivation.at(**at, alpha=100).value == wanted


def test_gradients_in_four_bytes_are_reduced_in_twice_the_time() -> None:
    derivation = block().derive(
        "compute_bound", strategy="fsdp(X)", phase="training", gradient_dtype="fp32", accounting=BOOK
    )
    at = {"D": 16, "F": 90, "X": 4, "Y": 1, "R": 7, "W_net": 20, "B": 1}
    computing, gathered, _ = walk(block_products(at), at)
    assert derivation.at(X=4, R=7, W_net=20).value == (2 + 2) * gathered / (3 * computing)


def test_what_both_links_send_and_receive_goes_through_the_memory() -> None:
    choices = {**BOOK, "traffic": "weights_and_reloaded_activations"}
    at = {"B": 8, "D": 16, "F": 32, "X": 4, "W_mem": 1}
    memory = block().time("fsdp(X)", phase="forward", term="memory", accounting=choices).at(**at).value
    weights = 2 * 16 * 32
    assert memory == 2 * (weights + 2 * weights * Fraction(3, 4))  # read once; sent and received but for one's own part


def test_sequence_parallelism_sends_the_same_and_so_changes_nothing() -> None:
    text = "| Computation | Input | Output |\n|---|---|---|\n"
    text += "| h = xU | x [B, L, D], U [D, F] | h [B, L, F] |\n| y = hW | h [B, L, F], W [F, D] | y [B, L, D] |\n"
    model = sc.load(text, dtype="bf16")
    one, two = (model.derive("compute_bound", strategy=s, accounting=BOOK) for s in (MESH, f"{MESH} + sequence"))
    assert one.expr == two.expr


def test_tensor_parallelism_alone_is_limited_by_its_degree_and_by_no_batch() -> None:
    derivation = block().derive("compute_bound", strategy="tensor(Y)", over="Y", numbers="whole", accounting=BOOK)
    at = {"D": 8, "F": 640, "R": 70, "W_net": 9}
    found = int(derivation.at(F=640, R=70, W_net=9).value)

    def bound(y: int) -> bool:
        computing = Fraction(4 * at["D"] * at["F"], y * at["R"])
        return computing >= Fraction(2 * 2 * at["D"], at["W_net"])

    assert bound(found)
    assert not bound(found + 1)


def test_a_degree_of_one_sends_nothing_along_its_axis() -> None:
    at = {"X": 1, "Y": 4, "D": 64, "F": 512}
    with_one = block().at(**at).derive("compute_bound", strategy=MESH, over="Y", accounting=BOOK)
    alone = block().at(D=64, F=512).derive("compute_bound", strategy="tensor(Y)", over="Y", accounting=BOOK)
    assert with_one.expr == alone.expr


def test_an_odd_ring_both_ways_is_charged_what_it_really_sends() -> None:
    at = {"D": 8, "F": 640, "X": 3, "Y": 2, "R": 70, "W_net": 9}
    model = block().at(**{n: at[n] for n in ("D", "F", "X", "Y")})
    found = model.derive("compute_bound", strategy=MESH, numbers="whole", accounting=BOOK).at(R=70, W_net=9).value
    assert found == next(b for b in range(1, 999) if enough(walk(block_products(at), {**at, "B": b}), "added"))


@pytest.mark.parametrize("k", [2, 4, 6, 8, 16])
@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
def test_a_link_of_a_ring_that_runs_both_ways_carries_what_the_simulated_ranks_pass_on(kind: str, k: int) -> None:
    net = ex.Network(k)
    full = np.arange(k * 6, dtype=np.int64).reshape(k, 6)
    rows = {r: full.copy() for r in range(k)}
    net.run((ex.two_way_all_gather if kind == "all-gather" else ex.two_way_reduce_scatter)(net, [*range(k)], rows))
    cost = wire(kind, "ring", Sym("k"), "both_ways")
    at = {"k": Fraction(k)}
    assert evaluate(cost.path, at) * full.nbytes == net.path
    assert evaluate(cost.through("bidirectional"), at) * full.nbytes == full.nbytes
    assert evaluate(cost.rounds, at) == net.rounds
    assert evaluate(cost.moved, at) * full.nbytes == net.sent[0] + net.received[0]
