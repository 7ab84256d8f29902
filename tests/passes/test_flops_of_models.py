"""FLOPs of whole models: each region counts as often as it stands, with a head or without one."""

from __future__ import annotations

import pytest
from api import derived_flops, make_case

import symcomm as sc

LLAMA = {
    "model_type": "llama", "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "vocab_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip


def by_hand(batch: int, length: int, layers: int) -> int:
    """Queries and output D·D, keys and values D·D/2, three matrices D·F a token, and two products of all pairs."""
    width, inner = 48, 80
    a_token = 2 * width * width + 2 * width * width // 2 + 3 * width * inner
    return layers * batch * (2 * length * a_token + 2 * 2 * length * length * width)


@pytest.mark.parametrize(("scope", "passes"), [("forward", 1), ("backward", 2), ("training", 3)])
def test_a_model_without_a_head_counts_all_its_layers(scope: str, passes: int):
    made = sc.load(LLAMA, architecture="LlamaModel").flops(scope)
    assert by_hand(2, 8, 3) == 1_843_200
    assert made.at(B=2, L=8).value == passes * by_hand(2, 8, 3)
    made.check(deep=True)


def test_the_first_layer_of_a_stack_behind_an_embedding_still_hands_its_gradient_on():
    made = sc.load(LLAMA, architecture="LlamaModel").flops("backward", accounting="not_needed")
    assert made.at(B=2, L=8).value == 2 * by_hand(2, 8, 3)


def test_a_run_is_held_against_the_public_flops(monkeypatch: pytest.MonkeyPatch):
    """What `verify` calls derived is what a user is told: a wrong public number shows."""
    eager = {**LLAMA, "attn_implementation": "eager"}  # one kernel would make its scores again: hardware FLOPs
    model = sc.load(eager, architecture="LlamaModel")
    case = make_case(model, None, {}, "1f1b", 2)
    right = derived_flops(case)
    assert right == model.flops("training").at(**case.known).value
    asked: list[str] = []
    derive = sc.Model.derive

    def spied(self: sc.Model, quantity: str, /, **options: object) -> sc.Derivation:
        asked.append(quantity)
        return derive(self, quantity, **options)

    monkeypatch.setattr(sc.Model, "derive", spied)
    assert derived_flops(case) == right
    assert asked == ["flops", "flops"]
