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


@pytest.mark.parametrize("case", of("ulysses.bytes"))
def test_ulysses_exchanges_what_a_rank_holds(case: dict[str, Any]) -> None:
    at, k = case["at"], int(case["at"]["k"])
    model = one_layer(int(at["n_H"]), int(at["n_kv"]), int(at["H"]), at, int(at["b"]))
    if int(at["n_kv"]) % k:
        with pytest.raises(StrategyError, match=f"n_kv = {at['n_kv']} .* into {k} parts"):
            sent(model, f"ulysses({k})", "all-to-all")
        return
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


MEASURED = [c for c in of("measured") if c.values[0]["options"]["method"] == "ulysses"]


@pytest.mark.parametrize("case", MEASURED)
def test_ulysses_makes_the_calls_that_were_measured(case: dict[str, Any]) -> None:
    at, k = case["at"], case["options"]["ranks"]
    heads, shared = int(at["nh"]), int(at["nkv"])
    if shared % k:
        pytest.skip("heads of keys that are copied before the exchange are not derived: one head is gathered")
    model = one_layer(heads, shared, int(at["H"]), at, {"float32": 4, "bfloat16": 2}[case["options"]["dtype"]])
    for phase in ("forward", "backward"):
        calls = [int(size) for where, kind, *_, size in case["value"] if (where, kind) == (phase, "all_to_all")]
        assert len(calls) == 4
        # Of what a rank puts in, (k-1)/k leaves it.
        assert sent(model, f"ulysses({k})", "all-to-all", phase) == Fraction(k - 1, k) * sum(calls)
