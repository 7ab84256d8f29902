"""No plan sends less: under the places that a strategy fixes, an integer program finds no cheaper one."""

from __future__ import annotations

import pytest
from proof_optimum import Question, paid
from proof_tables import ALL, STRATEGIES, applies, graph

from symcomm.accounting import Accounting
from symcomm.parallel.placement import plan
from symcomm.parallel.reference import reference
from symcomm.parallel.strategy import parse_strategy

CASES = [(layer, s) for layer in ALL for s in STRATEGIES if applies(layer, s)]
SHORT = {
    "homework": {"data(2)", "zero-1(2)", "tensor(2)", "tensor(2) + sequence", "context(2)", "cut(D, 2)"},
    "llama": {"tensor(2)", "context(2)", "zero-3(2)"},
    "multi-query": {"tensor(2)", "context(2)", "data(2) + tensor(2)"},
    "mixture of experts": {"tensor(2)", "tensor(2) + sequence", "context(2)", "expert + data(2)"},
    "lora block": {"tensor(2)", "tensor(2) + sequence", "data(2) + tensor(2)"},
    "language model": {"tensor(2)", "cut(D, 2)", "data(2) + tensor(2)"},
    "pre-norm": {"cut(D, 2)", "tensor(2) + sequence"},
    "layernorm, around": {"cut(D, 2)"},
}


@pytest.mark.parametrize(
    ("layer", "strategy"),
    [(layer, s) if s in SHORT.get(layer, ()) else pytest.param(layer, s, marks=pytest.mark.long)
     for layer, s in CASES],
)  # fmt: skip
def test_no_plan_sends_less(layer: str, strategy: str) -> None:
    made = plan(graph(layer), parse_strategy(strategy))
    sizes = reference(made.graph)
    assert paid(made, sizes) == pytest.approx(Question(made, Accounting(), sizes).least(), rel=1e-6)
