"""Causal attention under context parallelism: with neighbouring positions on a rank the last rank works longest."""

from __future__ import annotations

from fractions import Fraction

import pytest
from api import Accounting, Setting, StrategyError, matrix_flops, num, parse_strategy, shared_pairs
from api import form_evaluate as evaluate
from api import load_load as load

import symcomm as sc

LLAMA_8B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 1, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "attn_implementation": "eager",
}  # fmt: skip
MISTRAL = LLAMA_8B | {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}


def pairs_of_ranks(length: int, ranks: int, window: int, order: str = "contiguous") -> list[int]:
    """The pairs of a query and a key not behind it and not beyond the window, rank by rank."""
    part = length // ranks
    seen = [sum(1 for key in range(length) if key <= query < key + window) for query in range(length)]
    if order == "striped":
        return [sum(seen[rank::ranks]) for rank in range(ranks)]
    return [sum(seen[rank * part : (rank + 1) * part]) for rank in range(ranks)]


def of_scores(config: dict[str, object], order: str, strategy: str, phase: str, **sizes: int) -> Fraction:
    """The operations of one rank in the products that read the scores or make them, or their gradients."""
    model = sc.load(config, dtype="bf16")
    made = load(Setting(model.graph, Accounting.of("causal_half", order), "bf16"), parse_strategy(strategy))
    known = model.graph.relations.complete({**model.values, **{name: Fraction(n) for name, n in sizes.items()}})
    return sum((evaluate(one.flops, known) for one in made.of(phase).ops if one.pairs), Fraction(0))


@pytest.mark.parametrize(("order", "milliseconds"), [("contiguous", 33.3), ("balanced", 17.8)])
def test_the_two_products_of_llama_3_8b_take_15_eighths_as_long_on_the_last_rank(order: str, milliseconds: float):
    flops = of_scores(LLAMA_8B, order, "context(8)", "forward", B=1, L=131072)
    assert round(float(flops) / 989.4e12 * 1e3, 1) == milliseconds


@pytest.mark.few(6)
@pytest.mark.parametrize("order", ["contiguous", "balanced", "striped"])
@pytest.mark.parametrize(("length", "ranks", "window"), [(8, 2, 99), (12, 4, 99), (12, 4, 5), (12, 3, 2), (8, 4, 8)])
def test_the_operations_are_those_of_the_busiest_rank(length: int, ranks: int, window: int, order: str):
    """Every pair takes 2·D operations in each of two products, and in each of four in backward."""
    every = pairs_of_ranks(length, ranks, window, order)
    wanted = Fraction(max(every)) if order != "balanced" else Fraction(sum(every), ranks)
    config = LLAMA_8B if window == 99 else MISTRAL | {"sliding_window": window}
    for phase, products in (("forward", 2), ("backward", 4)):
        found = of_scores(config, order, f"context({ranks})", phase, B=3, L=length)
        assert found == 3 * products * 2 * 4096 * wanted, phase


@pytest.mark.few(2)
@pytest.mark.parametrize("order", ["contiguous", "balanced", "striped"])
@pytest.mark.parametrize("operations", ["matmul_only", "all_ops"])
def test_the_time_of_a_step_is_that_of_the_last_rank_and_names_the_order(order: str, operations: str):
    accounting = {"attention": "causal_half", "context_order": order, "operations": operations}
    asked = {"device": "H100-SXM", "network": "50 GB/s", "accounting": accounting}
    made = sc.load(LLAMA_8B, dtype="bf16").step_time("context(4) + tensor(2)", **asked)
    made.check(deep=True)
    assert "context_order" in made.touched


def test_the_order_changes_nothing_where_all_pairs_are_counted_or_no_positions_are_cut():
    model = sc.load(LLAMA_8B, dtype="bf16")
    for strategy, attention in (("context(4)", "full"), ("tensor(4)", "causal_half")):
        made = [
            model.step_time(strategy, device="H100-SXM", network="50 GB/s",
                            accounting={"attention": attention, "context_order": order})
            for order in ("contiguous", "balanced")
        ]  # fmt: skip
        assert made[0].expr == made[1].expr
        assert "context_order" not in made[0].touched


SCORES = (
    "| Computation | Input | Output |\n|---|---|---|\n| P = softmax(Q K^T) | Q [B, L, D], K [B, L, D] | P [B, L, L] |\n"
)


def test_a_rank_with_the_first_keys_has_as_many_pairs_as_one_with_the_last_queries():
    """Counted pair by pair: of 12 keys in 4 parts the first 3 are seen by 12 + 11 + 10 queries."""
    graph = sc.load(SCORES).graph
    op = next(o for o in graph.ops if o.kind == "contraction")
    queries, keys = op.output_indices[-2:]
    setting = Setting(graph, Accounting.of("causal_half", "contiguous"))
    assert shared_pairs(setting, graph, op, {"x": keys}) == shared_pairs(setting, graph, op, {"x": queries}) == ("x",)
    seen = [
        sum(1 for key in range(12) if key // 3 == part and key <= query) for part in range(4) for query in range(12)
    ]
    busiest = max(sum(seen[12 * part : 12 * part + 12]) for part in range(4))
    found = evaluate(matrix_flops(setting, graph, op, num(4)), {"B": Fraction(1), "L": Fraction(12), "D": Fraction(5)})
    assert found == 2 * 5 * busiest == 2 * 5 * 33


def test_queries_on_one_axis_of_the_mesh_and_keys_on_another_are_refused():
    graph = sc.load(SCORES).graph
    op = next(o for o in graph.ops if o.kind == "contraction")
    queries, keys = op.output_indices[-2:]
    with pytest.raises(StrategyError, match="'x' shares the queries of a causal attention and 'y' its keys"):
        shared_pairs(Setting(graph, Accounting.of("causal_half")), graph, op, {"x": queries, "y": keys})
    mean = Accounting.of("causal_half", "balanced")
    assert shared_pairs(Setting(graph, mean), graph, op, {"x": queries, "y": keys}) == ("x", "y")
