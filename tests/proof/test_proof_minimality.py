"""No plan sends less: under the places that a strategy fixes, an integer program finds no cheaper one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from proof_optimum import Question, paid
from proof_tables import ALL, STRATEGIES, applies, graph

from symcomm.accounting import Accounting
from symcomm.parallel.elimination import PriceTable, cheapest
from symcomm.parallel.placement import plan
from symcomm.parallel.reference import reference
from symcomm.parallel.strategy import parse_strategy

EVERY = [(layer, s) for layer in ALL for s in STRATEGIES if applies(layer, s)]
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
# The integer program of several axes of the mesh takes minutes on large tables: of the rest, every fifth with one axis.
ONE_AXIS = [(layer, s) for layer, s in EVERY if len(parse_strategy(s).sizes) == 1]
CASES = list(dict.fromkeys([*((n, s) for n, some in SHORT.items() for s in sorted(some)), *ONE_AXIS[::5]]))


@pytest.mark.parametrize(
    ("layer", "strategy"),
    [(layer, s) if s in SHORT.get(layer, ()) else pytest.param(layer, s, marks=pytest.mark.long)
     for layer, s in CASES],
)  # fmt: skip
def test_no_plan_sends_less(layer: str, strategy: str) -> None:
    made = plan(graph(layer), parse_strategy(strategy))
    sizes = reference(made.graph)
    least = Question(made, Accounting(), sizes).least()
    # With several axes of the mesh, each is placed given the others: that comes near the least of all at once.
    near = 1e-6 if len(made.strategy.sizes) == 1 else 0.02
    if any(rule.rests for _, rule in made.strategy.rules):
        near = max(near, 5e-4)  # losses and statistics, numbers a token, are not cut where only memory asks for it
    assert least * (1 - 1e-6) <= paid(made, sizes) <= least * (1 + near)


@pytest.mark.parametrize(("layer", "strategy"), [("multi-query", "tensor(2)"), ("homework", "tensor(2) + sequence")])
def test_a_call_too_much_is_noticed(layer: str, strategy: str) -> None:
    made = plan(graph(layer), parse_strategy(strategy))
    sizes = reference(made.graph)
    twice = replace(made, steps=(*made.steps, made.collectives[0]))
    assert paid(twice, sizes) > Question(made, Accounting(), sizes).least() * 1.01


@pytest.mark.parametrize(
    ("layer", "strategy", "conditions"),
    [
        ("lora block", "tensor(t)", ["D < B L"]),  # the gradient of S, of RD, against a sum of BLR
        ("mixture of experts", "tensor(t)", ["D < B L"]),  # that of the router, of DE, against one of BLE
        ("function embed", "tensor(t)", ["B L < V"]),  # the gradient of the table, of VD, against that of x
        ("homework", "data(k)", []),
    ],
)
def test_a_plan_says_where_it_is_the_cheapest(layer: str, strategy: str, conditions: list[str]) -> None:
    made = plan(graph(layer), parse_strategy(strategy))
    assert [str(c) for c in made.conditions] == conditions


PRICES = st.lists(st.none() | st.integers(0, 9), min_size=9, max_size=9)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), PRICES), min_size=1, max_size=8))
def test_elimination_finds_what_trying_everything_finds(pairs: list[tuple[int, int, list[int | None]]]) -> None:
    """Tables of two variables of three values each; a combination without a price is not allowed."""
    tables = []
    for a, b, prices in pairs:
        if a != b:
            listed = zip(product(range(3), range(3)), prices, strict=True)
            tables.append(PriceTable((a, b), {values: price for values, price in listed if price is not None}))
    tables += [PriceTable((v,), {(x,): 0 for x in range(3)}) for v in range(5)]

    def worth(values: tuple[int, ...]) -> int | None:
        prices = [t.prices.get(tuple(values[v] for v in t.variables)) for t in tables]
        return None if None in prices else sum(p for p in prices if p is not None)

    every = [w for w in map(worth, product(range(3), repeat=5)) if w is not None]
    found = cheapest(tables, [3] * 5)
    assert (found is None) == (not every)
    if found is not None:
        assert found[0] == min(every) == worth(tuple(found[1]))
