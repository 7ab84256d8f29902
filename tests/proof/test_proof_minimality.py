"""No plan sends less: under the places that a strategy fixes, an integer program finds no cheaper one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from api import Accounting, PriceTable, cheapest, move, parse_strategy, plan, reference
from hypothesis import given
from hypothesis import strategies as st
from proof_optimum import PARTIAL, WHOLE, Question, State, paid, price
from proof_tables import ALL, STRATEGIES, applies, graph

# Compositions of several axes of the mesh that no list of strategies names yet.
COMPOSED = (
    "data(2) + tensor(2) + sequence",
    "context(2) + tensor(2)",
    "sequence(2) + context(2)",
    "tensor(2) + expert(2)",
    "context(2) + expert(2)",
    "tensor(2) + cut(D, 2)",
    "context(2) + cut(D, 2)",
    "tensor(2) + sequence + cut(D, 2)",
    "context(2) + tensor(2) + cut(D, 2)",
    "fully-sharded(2) + context(2)",
    "optimizer-sharded(2) + tensor(2) + sequence",
    "fully-sharded(2) + tensor(2) + sequence + expert",
    "data(2) + context(2) + tensor(2) + sequence",
    "fully-sharded(2) + context(2) + tensor(2) + sequence",
    "hybrid-sharded(2, 2) + tensor(2) + sequence",
)
# Maps of one operand, point by point, are planned alike, and so are functions that are spelled in several ways.
ALIKE = {
    *(f"{name}, {where}" for where in ("around", "between") for name in (
        "squared_relu", "gelu", "gelu_new", "gelu_fast", "gelu_python", "quick_gelu", "silu", "sigmoid", "tanh")),
    *(f"function {name}" for name in ("merge", "dispatch", "combine", "conv", "convolution", "embedding", "lookup")),
}  # fmt: skip
EVERY = [(n, s) for n in ALL if n not in ALIKE for s in dict.fromkeys((*STRATEGIES, *COMPOSED)) if applies(n, s)]
SHORT = {
    "homework": {"data(2)", "zero-1(2)", "tensor(2)", "tensor(2) + sequence", "context(2)", "cut(D, 2)",
                 "context(2) + cut(D, 2)"},
    "llama": {"tensor(2)", "context(2)", "zero-3(2)"},
    "multi-query": {"tensor(2)", "context(2)", "data(2) + tensor(2)"},
    "mixture of experts": {"tensor(2)", "tensor(2) + sequence", "context(2)", "expert + data(2)",
                           "tensor(2) + expert(2)", "fully-sharded(2) + tensor(2) + sequence + expert"},
    "lora": {"tensor(2) + cut(D, 2)", "optimizer-sharded(2) + tensor(2) + sequence"},
    "lora block": {"tensor(2)", "tensor(2) + sequence", "data(2) + tensor(2)"},
    "language model": {"tensor(2)", "cut(D, 2)", "data(2) + tensor(2)"},
    "tied embeddings": {"hybrid-sharded(2, 2) + tensor(2) + sequence"},
    "pre-norm": {"cut(D, 2)", "tensor(2) + sequence"},
    "layernorm, around": {"cut(D, 2)"},
    "function transpose": {"context(2) + tensor(2) + sequence", "sequence(2) + context(2)", "tensor(2) + cut(D, 2)",
                           "data(2) + context(2) + tensor(2) + sequence"},
    "function causalsoftmax": {"context(2) + tensor(2) + sequence"},
    "function mask": {"context(2) + tensor(2) + sequence", "tensor(2) + sequence + cut(D, 2)"},
    "crossentropy": {"fully-sharded(2) + context(2) + tensor(2) + sequence"},
}  # fmt: skip


@pytest.mark.few(20)
@pytest.mark.parametrize(
    ("layer", "strategy"),
    [(layer, s) if s in SHORT.get(layer, ()) else pytest.param(layer, s, marks=pytest.mark.long)
     for layer, s in EVERY],
)  # fmt: skip
def test_no_plan_sends_less(layer: str, strategy: str) -> None:
    made = plan(graph(layer), parse_strategy(strategy))
    sizes = reference(made.graph)
    least = Question(made, Accounting(), sizes).least()
    assert paid(made, sizes) == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize(
    ("layer", "strategy"),
    [
        ("function transpose", "context(2) + tensor(2) + sequence"),
        ("lora", "tensor(2) + cut(D, 2)"),
        ("function mask", "data(2) + context(2) + tensor(2) + sequence"),
    ],
)
def test_axes_that_are_chosen_two_at_a_time_send_no_more(
    layer: str, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is how it is done where all axes of a mesh together have too many answers."""
    both = graph(layer), parse_strategy(strategy)
    together = plan(*both)
    monkeypatch.setattr("symcomm.core.parallel.cheapest._VALUES", 0)
    made = plan(*both)
    assert made.choice is not together.choice
    assert paid(made, reference(made.graph)) == paid(together, reference(made.graph))


def test_a_mesh_of_many_axes_is_planned() -> None:
    """Along each of ten axes the sequence may be cut or not: all together are too many to try."""
    made = plan(graph("gpt"), parse_strategy(" + ".join(f"cut(L, 2, {mesh})" for mesh in "abcdefghij")))
    assert {mesh for c in made.collectives for mesh in c.meshes} == {*"abcdefghij"}


@pytest.mark.parametrize(
    ("have", "need", "sent"),
    [
        ((1, 1), (WHOLE, 1), 64),  # parts of parts: the later axis is gathered with the earlier, by one call
        ((WHOLE, 1), (1, 1), 64),  # and a part of a part does not lie in a part of the whole
        ((1, WHOLE), (1, 1), 0),
        ((PARTIAL, PARTIAL), (WHOLE, WHOLE), 128),  # one call over both
        ((PARTIAL, 1), (PARTIAL, WHOLE), 64),  # a sum stays spread while it is gathered along the other axis
    ],
)
def test_a_move_along_several_axes_of_the_mesh_costs_its_calls(have: State, need: State, sent: int) -> None:
    """Of a tensor of 64, on four ranks along each axis."""
    assert price(64, have, need) == sent == move(have, need).units * 4


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
