"""No derived collective is superfluous: without any one of them, some rank ends with wrong numbers.

A collective is left out as if nothing was sent: each rank goes on with the part it holds, and NaN for the rest.
"""

from __future__ import annotations

import pytest
from api import Accounting
from proof_cases import case, superfluous
from proof_tables import ALL, LAYERS, STRATEGIES, applies

CASES = [(layer, strategy) for layer in ALL for strategy in STRATEGIES if applies(layer, strategy)]
_EVERY = set(STRATEGIES)
# A bias of the keys shifts all scores of a query alike, which softmax ignores: its gradient is zero, sent or not.
ZERO = {"gpt": {"d(b^K)"}}
# What the default run removes from; all others are removed from in the long run.
SHORT = {
    "homework": _EVERY,
    "mixture of experts": _EVERY,
    "tied embeddings": _EVERY,
    "multi-query": {"tensor(2)", "tensor(2) + sequence", "context(2)", "fully-sharded(2) + tensor(2) + sequence"},
    "gpt": {"data(2)", "tensor(2)", "tensor(2) + sequence", "context(2)"},
    "llama": {"tensor(2)", "tensor(2) + sequence", "context(2)"},
    "lora block": {"tensor(2)", "tensor(2) + sequence"},
    "cross-attention": {"tensor(2) + sequence", "context(2)"},
    "experts after a dense layer": {"data(2) + tensor(2) + expert", "fully-sharded(2) + tensor(2) + expert"},
    "scan": {"sequence(2)", "context(2)"},
    "convolutions": {"data(2) + tensor(2)", "zero-3(2)"},
}


@pytest.mark.few(9)
@pytest.mark.parametrize(
    ("layer", "strategy"),
    [(layer, s) if s in SHORT.get(layer, ()) else pytest.param(layer, s, marks=pytest.mark.long) for layer, s in CASES],
)
def test_removing_any_one_collective_makes_the_run_fail(layer: str, strategy: str) -> None:
    found = superfluous(case(layer, strategy))
    assert [call for call in found if call.tensor not in ZERO.get(layer, ())] == []


@pytest.mark.parametrize(
    ("layer", "strategy"),
    [pytest.param(layer, s, marks=pytest.mark.long) for layer, s in CASES if layer in LAYERS],
)
def test_no_collective_is_superfluous_where_less_is_kept(layer: str, strategy: str) -> None:
    found = superfluous(case(layer, strategy, Accounting(gathered_activations="regather")))
    assert [call for call in found if call.tensor not in ZERO.get(layer, ())] == []
