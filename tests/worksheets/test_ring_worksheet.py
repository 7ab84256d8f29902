"""Pairs, times and overlap of ring attention, against golden cases and loops over queries and keys."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import symcomm as sc

DATA = Path(__file__).parents[1] / "data" / "golden_long_context.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text())["cases"]
ORDERS = {"contiguous": "contiguous", "zigzag": "balanced", "striped": "striped"}


def of(*areas: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["area"] in areas]


def worth(want: str, order: str = "", **said: Any) -> Fraction:
    causal = {"attention": "causal_half", "context_order": ORDERS[order]} if order else None
    made = sc.derive("ring_attention", want=want, accounting=causal, **said)
    made.check(deep=True)
    return Fraction(made.at().value)


@pytest.mark.parametrize("case", of("ring.causal"))
def test_pairs_of_a_causal_mask_are_those_that_were_counted(case: dict[str, Any]) -> None:
    at, order = case["at"], case["options"]["order"]
    said = {"length": int(at["L"]), "ranks": int(at["k"])}
    if case["unit"] == "1":
        assert worth("imbalance", order, **said) == Fraction(case["value"])
        return
    said |= {"heads": int(at["n_H"]), "head_size": int(at["H"]), "sequences": int(at["B"])}
    if isinstance(case["value"], str):  # the slowest rank of each step, added up: that is the busiest one's
        assert worth("flops", order, **said) == int(case["value"])
    elif order == "zigzag":
        assert {worth("flops", order, **said)} == {*map(int, case["value"])}
    else:
        every = [worth("flops", order, rank=rank, **said) for rank in range(said["ranks"])]
        assert every == [*map(int, case["value"])]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("length", "k"), [(16, 2), (24, 3), (24, 4)])
def test_the_busiest_rank_has_the_pairs_that_loops_find_and_the_most_in_every_step(
    length: int, k: int, order: str
) -> None:
    part = length // (2 * k)
    owner = {"contiguous": lambda i: i * k // length, "striped": lambda i: i % k,
             "zigzag": lambda i: min(i // part, 2 * k - 1 - i // part)}[order]  # fmt: skip
    pairs = [[0] * k for _ in range(k)]  # of each rank in each step
    for query in range(length):
        for key in range(query + 1):
            rank = owner(query)
            pairs[(rank - owner(key)) % k][rank] += 1
    every = [sum(step[rank] for step in pairs) for rank in range(k)]
    assert worth("most", order, length=length, ranks=k) == max(every) == sum(map(max, pairs))
    assert worth("imbalance", order, length=length, ranks=k) == Fraction(max(every) * k, sum(every))
    if order != "zigzag":
        assert [worth("pairs", order, length=length, ranks=k, rank=r) for r in range(k)] == every


def finished(k: int, takes: list[list[int]], send: int) -> int:
    """When the last rank is done: messages go one by one, each as soon as its block is there."""
    there = [[0] * k for _ in range(k)]
    for step in range(1, k):
        there[step] = [max(there[step - 1][r - 1], there[step - 1][r]) + send for r in range(k)]
    done = [0] * k
    for step in range(k):
        done = [max(done[r], there[step][r]) + takes[step][r] for r in range(k)]
    return max(done)


@pytest.mark.parametrize("case", of("ring.time"))
def test_the_time_of_a_ring_is_that_of_its_events(case: dict[str, Any]) -> None:
    at = case["at"]
    said = {"ranks": int(at["k"]), "send": f"{at['send']} s"}
    if "compute" in at:
        assert worth("time", compute=f"{at['compute']} s", **said) == int(case["value"])
    else:
        said |= {"length": int(at["L"]), "pair": f"{at['pair']} s"}
        assert worth("time", case["options"]["order"], **said) == int(case["value"])


@pytest.mark.parametrize("send", [1, 6, 20, 90])
def test_a_full_mask_and_striped_positions_take_the_time_of_their_events(send: int) -> None:
    k, c = 4, 6
    said = {"ranks": k, "length": k * c, "pair": "1 s", "send": f"{send} s"}
    assert worth("time", **said) == finished(k, [[c * c] * k] * k, send)
    takes = [[c * (c + 1) // 2 if step <= rank else c * (c - 1) // 2 for rank in range(k)] for step in range(k)]
    assert worth("time", "striped", **said) == finished(k, takes, send)


@pytest.mark.parametrize("case", of("ring.memory"))
def test_a_ring_holds_three_parts_of_the_keys_and_values(case: dict[str, Any]) -> None:
    """The paper's six blocks are a query, a key, a value, two that arrive, and an output: as many as three parts."""
    at = case["at"]
    said = {"sequences": int(at["B"]), "bytes": f"{at['b']} B"}
    if "c" in at:
        blocks = worth("memory", length=int(at["c"]), ranks=1, kv_heads=1, head_size=int(at["h"]), **said)
        assert blocks == int(case["value"])
        return
    said |= {"length": int(at["L"]), "ranks": int(at["k"]), "kv_heads": int(at["n_kv"]), "head_size": int(at["H"])}
    assert [worth(want, **said) for want in ("own", "memory", "gathered")] == [*map(int, case["value"])]


@pytest.mark.parametrize("case", of("ring.overlap"))
def test_a_send_hides_behind_a_block_of_so_many_tokens(case: dict[str, Any]) -> None:
    at = case["at"]
    said = {"peak": f"{at['R']} FLOP/s", "bandwidth": f"{at['W']} B/s", "bytes": f"{at['b']} B",
            "heads": int(at["n_H"]), "kv_heads": int(at["n_kv"])}  # fmt: skip
    order = "zigzag" if "causal" in case["question"] else ""
    assert worth("tokens", order, **said) == Fraction(case["value"])


def test_a_condition_of_overlap_is_that_of_the_program() -> None:
    """What attention computes of a block, and what passes round meanwhile, are read off the program of a model."""
    config = {
        "model_type": "llama", "architectures": ["LlamaModel"], "num_hidden_layers": 1, "vocab_size": 16,
        "hidden_size": 64, "head_dim": 8, "intermediate_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2,
    }  # fmt: skip
    k, peak, bandwidth = 4, 10**6, 10**4
    tokens = worth("tokens", peak=f"{peak} FLOP/s", bandwidth=f"{bandwidth} B/s", heads=8, kv_heads=2)
    model = sc.load(config, dtype="bf16").at(B=1, L=int(tokens) * k)
    flops = sum(Fraction(model.flops("forward", op=op).at().value) for op in ("P_i", "Z_i")) / k
    asked = model.communication(f"ring({k})", collective="ring-pass", phase="forward", accounting="sent_per_rank")
    assert flops / k / peak == Fraction(asked.at().value) / (k - 1) / bandwidth


def test_ranks_that_do_not_divide_the_tokens_are_refused() -> None:
    with pytest.raises(sc.SymcommError) as caught:
        worth("most", "striped", length=10, ranks=4)
    assert str(caught.value) == "10 tokens do not divide among 4 ranks\nhint: such as length: 4096 and ranks: 8"


@pytest.mark.parametrize(("k", "c", "send"), [(8, 6, 19), (4, 8, 34), (3, 10, 52), (8, 6, 18), (8, 6, 21), (2, 6, 19)])
def test_a_zigzag_block_waits_for_a_place_where_its_send_is_shorter_than_the_own_block(
    k: int, c: int, send: int
) -> None:
    """A rank has two places: what comes after the next block comes when its own block is computed."""
    own, block = c * (c + 1) // 2, c * c // 2
    there, done = [[0] * k for _ in range(k)], [[own] * k for _ in range(k)]
    for step in range(1, k):
        for r in range(k):
            free = max(done[step - 2][r], there[step - 1][(r + 1) % k]) if step > 1 else 0
            there[step][r] = max(there[step - 1][r - 1], there[step - 1][r], free) + send
        done[step] = [max(done[step - 1][r], there[step][r]) + block for r in range(k)]
    said = {"ranks": k, "length": k * c, "pair": "1 s", "send": f"{send} s"}
    assert worth("time", "zigzag", **said) == max(done[-1])


def test_sends_that_take_no_time_leave_the_time_of_computing() -> None:
    assert worth("time", ranks=4, compute="3 s", send="0 s") == 4 * 3
    assert worth("time", "zigzag", ranks=4, length=24, pair="1 s", send="0 s") == 6 * 7 // 2 + 3 * 6 * 6 // 2


def test_a_ring_of_one_rank_is_refused() -> None:
    with pytest.raises(sc.SymcommError, match="one rank has no ring\nhint: ranks: 2, or more"):
        worth("time", ranks=1, compute="3 s", send="2 s")


def test_the_rank_makes_no_difference_where_all_have_as_many_pairs() -> None:
    with pytest.raises(sc.SymcommError, match="rank makes no difference to 'FLOPs of attention on a rank'"):
        worth("flops", "zigzag", length=16, ranks=4, rank=1, heads=2, head_size=4)
