"""Bytes of attention whose sequence is cut, against cases that were counted by hand or measured in PyTorch.

A case gives sizes and what one layer sends; the tests say which public call that is, and compute nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from api import StrategyError

import symcomm as sc

DATA = Path(__file__).parents[1] / "data" / "golden_long_context.json"
CASES: list[dict[str, Any]] = json.loads(DATA.read_text())["cases"]


def of(area: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["area"] == area]


def one_layer(heads: int, shared: int, size: int, given: Mapping[str, str], number: int) -> sc.Model:
    """A layer with so many heads, and numbers of so many bytes."""
    config = {
        "model_type": "llama", "architectures": ["LlamaModel"], "num_hidden_layers": 1, "vocab_size": 16,
        "hidden_size": heads * size, "head_dim": size, "intermediate_size": heads * size,
        "num_attention_heads": heads, "num_key_value_heads": shared,
    }  # fmt: skip
    model = sc.load(config, dtype={2: "bf16", 4: "fp32"}[number])
    return model.at(B=int(given["B"]), L=int(given["L"]))


def sent(model: sc.Model, strategy: str, collective: str, phase: str = "forward", **more: Any) -> Fraction:
    """The bytes that a rank sends for the activations."""
    asked = model.communication(strategy, collective=collective, phase=phase, accounting="sent_per_rank", **more)
    return Fraction(asked.at().value)


@pytest.mark.parametrize("case", of("gather.bytes"))
def test_gathered_keys_are_sent_once_forward_and_once_or_twice_backward(
    case: dict[str, Any],
) -> None:
    at, k = case["at"], case["at"]["k"]
    model = one_layer(int(at["n_kv"]), int(at["n_kv"]), int(at["H"]), at, int(at["b"]))
    forward, kept, again, _ = map(int, case["value"])
    assert sent(model, f"context({k})", "all-gather") == forward
    assert sent(model, f"context({k})", "reduce-scatter", "backward") == kept
    regather = {"communication": "sent_per_rank", "gathered_activations": "regather"}
    more = model.communication(f"context({k})", collective="all-gather", phase="backward", accounting=regather)
    assert kept + more.at().value == again


@pytest.mark.parametrize("strategy", ["context(2)", "sequence(2)"])
def test_keys_and_values_are_gathered_before_their_heads_are_repeated(strategy: str) -> None:
    """4 heads share 2 of keys and values: a tensor of 3 sequences, 8 positions, 2 heads and 5 features in fp32."""
    model = one_layer(4, 2, 5, {"B": "3", "L": "8"}, 4)
    whole = 4 * 3 * 8 * 2 * 5
    assert sent(model, strategy, "all-gather") == 2 * whole / 2  # keys and values; a rank sends its half
    assert sent(model, strategy, "reduce-scatter", "backward") == 2 * whole / 2


@pytest.mark.few(2)
@pytest.mark.parametrize("case", of("ulysses.bytes"))
def test_ulysses_exchanges_what_a_rank_holds(case: dict[str, Any]) -> None:
    at, k = case["at"], int(case["at"]["k"])
    model = one_layer(int(at["n_H"]), int(at["n_kv"]), int(at["H"]), at, int(at["b"]))
    all_four, over_ring = int(case["value"][2]), Fraction(case["value"][3])
    assert sent(model, f"ulysses({k})", "all-to-all") == all_four
    assert sent(model, f"ulysses({k})", "all-to-all", "backward") == all_four
    assert all_four / sent(model, f"context({k})", "all-gather") == over_ring


@pytest.mark.parametrize("case", of("hybrid.bytes"))
def test_a_hybrid_exchanges_inside_and_moves_keys_of_its_own_heads_between(case: dict[str, Any]) -> None:
    at = case["at"]
    model = one_layer(int(at["n_H"]), int(at["n_kv"]), int(at["H"]), at, int(at["b"]))
    inside, between = map(int, case["value"])
    strategy = f"context({at['r']}) + ulysses({at['u']})"
    assert sent(model, strategy, "all-to-all") == inside
    assert sent(model, strategy, "all-gather") == between


@pytest.mark.few(2)
@pytest.mark.parametrize(("heads", "shared", "u", "r"), [(8, 1, 4, 2), (8, 2, 4, 2), (16, 2, 8, 3), (12, 2, 6, 2)])
def test_a_hybrid_copies_heads_where_the_ranks_inside_outnumber_them(heads: int, shared: int, u: int, r: int) -> None:
    model = one_layer(heads, shared, 4, {"B": "2", "L": str(6 * u * r)}, 2)
    numbers = 2 * 2 * 6 * u * r * 4 // (u * r)  # bytes of a head at the positions of a rank
    strategy = f"context({r}) + ulysses({u})"
    assert sent(model, strategy, "all-to-all") == Fraction(u - 1, u) * numbers * (2 * heads + 2 * max(shared, u))
    assert sent(model, strategy, "all-gather") == (r - 1) * u * numbers * 2 * max(shared, u) // u


@pytest.mark.few(2)
@pytest.mark.parametrize(("heads", "shared", "t", "u"), [(8, 2, 2, 2), (8, 2, 2, 4), (12, 4, 2, 6), (8, 4, 2, 2)])
def test_heads_are_copied_beside_tensor_parallelism_by_those_it_leaves_to_a_rank(
    heads: int, shared: int, t: int, u: int
) -> None:
    model = one_layer(heads, shared, 4, {"B": "2", "L": str(6 * u)}, 2)
    head = 2 * 2 * 6 * 4  # bytes of a head at the positions of a rank
    mine = 2 * heads // t + 2 * max(shared // t, u)  # queries and results, keys and values
    for phase in ("forward", "backward"):
        assert sent(model, f"tensor({t}) + ulysses({u})", "all-to-all", phase) == Fraction(u - 1, u) * head * mine


REFUSED = [
    (8, 2, 16, "there are only 8 query heads", "2, or 4, or 8"),
    (8, 4, 6, "4 key/value heads cannot be shared evenly", "4, or 8"),
    (12, 2, 8, "12 query heads cannot be shared evenly", "2, or 4, or 6, or 12"),
]


@pytest.mark.parametrize(("heads", "shared", "k", "why", "hint"), REFUSED)
def test_ranks_that_do_not_share_heads_are_refused(heads: int, shared: int, k: int, why: str, hint: str) -> None:
    with pytest.raises(StrategyError, match=f"Ulysses over {k} ranks: {why}\nhint: .* divisor of {hint}"):
        sent(one_layer(heads, shared, 4, {"B": "1", "L": "96"}, 2), f"ulysses({k})", "all-to-all")


def test_a_degree_that_is_known_later_copies_heads_then() -> None:
    model, keys = one_layer(8, 2, 4, {"B": "1", "L": "96"}, 2), {"phase": "forward", "accounting": "sent_per_rank"}
    assert (
        model.communication("ulysses(k)", **keys).at(k=4).value == model.communication("ulysses(4)", **keys).at().value
    )


MEASURED = [c for c in of("measured") if c.values[0]["options"]["method"] == "ulysses"]


@pytest.mark.parametrize("case", MEASURED)
def test_ulysses_makes_the_calls_that_were_measured(case: dict[str, Any]) -> None:
    at, k = case["at"], case["options"]["ranks"]
    heads, shared = int(at["nh"]), int(at["nkv"])
    model = one_layer(heads, shared, int(at["H"]), at, {"float32": 4, "bfloat16": 2}[case["options"]["dtype"]])
    for phase in ("forward", "backward"):
        calls = [int(size) for where, kind, *_, size in case["value"] if (where, kind) == (phase, "all_to_all")]
        assert len(calls) == 4
        # Of what a rank puts in, (k-1)/k leaves it.
        assert sent(model, f"ulysses({k})", "all-to-all", phase) == Fraction(k - 1, k) * sum(calls)
