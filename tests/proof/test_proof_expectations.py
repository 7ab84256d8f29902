"""What is known of each strategy from its paper, stated by hand and found in the derived plans."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
import sympy as sp
from api import Accounting, Collective, Plan, StrategyError, check_divisible, parse_strategy, value
from proof_tables import LAYERS, graph, planned


def calls(made: Plan, phase: str = "") -> list[tuple[str, str]]:
    return [(c.kind, c.tensor) for c in made.collectives if not phase or c.phase == phase]


def counted(made: Plan, phase: str = "") -> Counter[str]:
    return Counter(kind for kind, _ in calls(made, phase))


def same(layer: str, a: Any, b: Any) -> bool:
    """Whether two sizes are equal under the relations of the table."""
    return graph(layer).same_size(sp.sympify(a), sp.sympify(b))


def size(layer: str, tensor: str) -> Any:
    return graph(layer).elements(tensor)


DENSE = [name for name in LAYERS if "expert" not in name]


@pytest.mark.parametrize("layer", LAYERS)
def test_data_parallelism_sums_the_gradient_of_each_weight_once_and_nothing_else(layer: str) -> None:
    made = planned(layer, "data(k)")
    weights = [t.name for t in graph(layer).weights]
    assert sorted(calls(made)) == sorted(("all-reduce", f"d({name})") for name in weights)
    assert all(c.phase == "backward" for c in made.collectives)
    assert all(c.elements == size(layer, c.tensor) for c in made.collectives)


def test_tensor_parallelism_of_the_homework_layer_sums_four_tensors_of_b_l_d() -> None:
    made = planned("homework", "tensor(t)")
    assert calls(made, "forward") == [("all-reduce", "Out"), ("all-reduce", "x'")]
    assert calls(made, "backward") == [("all-reduce", "d(Out)"), ("all-reduce", "d(x)")]
    assert calls(made, "update") == []
    assert all(c.elements == size("homework", "x") for c in made.collectives)


def test_sequence_parallelism_turns_each_sum_into_a_gather_and_a_scattered_sum() -> None:
    made = planned("homework", "tensor(t) + sequence")
    assert counted(made, "forward") == {"all-gather": 2, "reduce-scatter": 2}
    # x and Out are saved as shards and gathered again for the gradients of W^Q, W^K, W^V and W^1: two gathers more.
    assert counted(made, "backward") == {"all-gather": 4, "reduce-scatter": 2}
    kept = planned("homework", "tensor(t) + sequence", Accounting(gathered_activations="keep"))
    for phase in ("forward", "backward"):
        assert counted(kept, phase) == {"all-gather": 2, "reduce-scatter": 2}
    scattered = [c.tensor for c in made.collectives if c.kind == "reduce-scatter"]
    assert scattered == [c.tensor for c in planned("homework", "tensor(t)").collectives]
    assert all(c.elements == size("homework", "x") for c in made.collectives)
    assert all(dict(c.before if c.kind == "all-gather" else c.after) == {"tensor": 1} for c in made.collectives)


def ring(made: Plan) -> Any:
    """What one rank of each ring sends, in elements."""
    total = []
    for c in made.collectives:
        k = value(made.strategy.sizes[c.meshes[0]])
        total.append((2 if c.kind == "all-reduce" else 1) * (k - 1) / k * c.elements)
    return sp.Add(*total)


@pytest.mark.few(23)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    ("strategy", "gathered", "times"),
    [
        ("data(k)", "reshard", 2),
        ("zero-1(k)", "reshard", 2),
        ("optimizer-sharded(k)", "reshard", 3),
        ("zero-2(k)", "reshard", 2),
        ("zero-3(k)", "reshard", 3),
        ("zero-3(k)", "keep", 2),
        ("zero-3(k)", "at_once", 2),
    ],
)
def test_zero_sends_two_or_three_times_the_parameters(layer: str, strategy: str, gathered: str, times: int) -> None:
    made = planned(layer, strategy, Accounting(gathered_weights=gathered))
    k = next(iter(made.strategy.sizes.values()))
    parameters = sp.Add(*(size(layer, t.name) for t in graph(layer).weights))
    # A gain and a bias are not read by their own gradients: fully sharded gathers them in the forward pass alone.
    unread = sp.Integer(0)
    if strategy.startswith("zero-3") and times == 3:
        backward = {c.tensor for c in made.collectives if c.kind == "all-gather" and c.phase == "backward"}
        unread = sp.Add(*(size(layer, t.name) for t in graph(layer).weights if t.name not in backward))
    expected = (times * parameters - unread) * (value(k) - 1) / value(k)
    assert sp.cancel(ring(made) - expected) == 0
    if layer == "homework":
        assert unread == 0


def test_a_sharded_table_is_gathered_even_where_no_batch_is_cut() -> None:
    made = planned("position table", "fsdp(k)")
    assert calls(made, "forward") == [("all-gather", name) for name in ("W^E", "W^R", "W^1", "W^2")]
    assert ("reduce-scatter", "d(W^R)") in calls(made, "backward")
    assert not any(c.kind == "all-reduce" for c in made.collectives)


def test_fully_sharded_gathers_twice_what_its_backward_pass_reads() -> None:
    made = planned("gpt", "fully-sharded(k)")
    forward = {c.tensor for c in made.collectives if c.kind == "all-gather" and c.phase == "forward"}
    backward = {c.tensor for c in made.collectives if c.kind == "all-gather" and c.phase == "backward"}
    weights = {t.name for t in graph("gpt").weights}
    assert forward == weights
    assert weights - backward == {name for name in weights if name.startswith("b")}  # no gradient reads a bias


def test_the_gradients_through_q_k_and_v_are_added_before_they_are_summed_over_ranks() -> None:
    made = planned("homework", "tensor(t)")
    adds = {op.output: op for op in made.graph.ops if op.kind == "add"}
    assert len(adds["d(x)"].inputs) == 3
    assert [c.tensor for c in made.collectives if "d(x)" in c.tensor] == ["d(x)"]


def test_the_two_gradients_of_tied_embeddings_are_added_before_they_are_summed_over_ranks() -> None:
    for strategy in ("data(k)", "zero-1(k)", "zero-2(k)", "zero-3(k)"):
        made = planned("tied embeddings", strategy)
        assert [c.tensor for c in made.collectives if c.tensor.startswith("d(W^E)")] == ["d(W^E)"], strategy


def test_a_parallel_block_sums_once_in_each_pass() -> None:
    made = planned("parallel block", "tensor(t)")
    assert calls(made, "forward") == [("all-reduce", "y")]
    # The gradient of the normalisation is linear in what arrives: before or behind it is one size, so it is before.
    assert calls(made, "backward") == [("all-reduce", "d(h)")]
    assert all(c.elements == size("parallel block", "x") for c in made.collectives)


@pytest.mark.parametrize("layer", ["pre-norm", "gpt", "llama"])
def test_a_residual_block_with_tensor_parallelism_sums_twice_in_each_pass(layer: str) -> None:
    made = planned(layer, "tensor(t)")
    assert counted(made, "forward") == {"all-reduce": 2}
    assert counted(made, "backward") == {"all-reduce": 2}
    assert all(same(layer, c.elements, size(layer, "x")) for c in made.collectives)


def test_experts_get_their_tokens_all_to_all_and_no_rank_gathers_tokens() -> None:
    made = planned("mixture of experts", "expert + data(k)")
    assert calls(made, "forward") == [("all-to-all", "X_e"), ("all-to-all", "Y_e")]
    assert sorted(calls(made, "backward")) == [
        ("all-reduce", "d(W^R)"),
        ("all-to-all", "d(X_e)"),
        ("all-to-all", "d(Y_e)"),
    ]
    sent = [c for c in made.collectives if c.kind == "all-to-all"]
    assert all(c.elements == size("mixture of experts", "X_e") for c in sent)
    assert made.placements["W^R"] == ()  # the router is on every rank
    assert dict(made.placements["W^1_e"]) == {"data": 0}
    assert counted(made)["all-gather"] == 0


def test_experts_with_tensor_parallelism_inside_keep_the_sums_of_tokens_apart() -> None:
    made = planned("mixture of experts", "data(a) + tensor(b) + expert")
    assert counted(made, "forward") == {"all-to-all": 2, "all-reduce": 1}
    assert counted(made, "backward") == {"all-to-all": 2, "all-reduce": 2}
    assert {c.meshes for c in made.collectives if c.kind == "all-to-all"} == {("data",)}


@pytest.mark.parametrize("layer", DENSE)
def test_hybrid_sharding_scatters_inside_a_group_and_sums_the_shard_across_groups(layer: str) -> None:
    made = planned(layer, "hybrid-sharded(s, r)")
    s = sp.Symbol("s", integer=True, positive=True)
    for tensor in graph(layer).weights:
        of = [c for c in made.collectives if c.tensor == f"d({tensor.name})"]
        assert [(c.kind, c.meshes) for c in of] == [("reduce-scatter", ("shard",)), ("all-reduce", ("replicate",))]
        whole, part = of[0].elements, of[1].elements
        assert whole == size(layer, tensor.name)
        ratio = sp.cancel(whole / part)
        assert ratio.name == s.name
    assert {c.meshes for c in made.collectives if c.kind == "all-gather"} == {("shard",)}


def test_context_parallelism_gathers_keys_and_values_and_scatters_their_gradients() -> None:
    made = planned("homework", "context(c)")
    assert calls(made, "forward") == [("all-gather", "K_i"), ("all-gather", "V_i")]
    backward = [call for call in calls(made, "backward") if not call[1].startswith("d(W")]
    assert backward == [("reduce-scatter", "d(V_i)"), ("reduce-scatter", "d(K_i)")]
    weights = [call for call in calls(made, "backward") if call[1].startswith("d(W")]
    assert sorted(weights) == sorted(("all-reduce", f"d({t.name})") for t in graph("homework").weights)


ATTENTION_MOVES = {"forward": ["Q_i", "K_i", "V_i", "Z_i"], "backward": ["d(Z_i)", "d(Q_i)", "d(K_i)", "d(V_i)"]}


@pytest.mark.parametrize("beside", ["", "data(d) + ", "tensor(t) + ", "fully-sharded(d) + "])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_ulysses_exchanges_positions_for_heads_four_times_a_pass(beside: str, phase: str) -> None:
    made = planned("homework", f"{beside}ulysses(u)")
    moved = sorted(tensor for kind, tensor in calls(made, phase) if kind == "all-to-all")
    assert moved == sorted(ATTENTION_MOVES[phase])
    assert {c.meshes for c in made.collectives if c.kind == "all-to-all"} == {("ulysses",)}
    others = {tensor for kind, tensor in calls(made, phase) if kind != "all-to-all" and "W" not in tensor}
    summed = {"Out", "x'"} if phase == "forward" else {"d(Out)", "d(x)"}
    assert others == (summed if beside.startswith("tensor") else set())


def test_ulysses_inside_of_context_parallelism_gathers_the_keys_of_its_own_heads() -> None:
    made = planned("homework", "ulysses(u) + context(c)")
    gathered = [c for c in made.collectives if c.kind == "all-gather"]
    assert [(c.tensor, c.meshes) for c in gathered] == [("K_i", ("context",)), ("V_i", ("context",))]
    u = sp.Symbol("u", integer=True, positive=True)
    assert all(same("homework", c.elements * u, size("homework", "K_i")) for c in gathered)
    assert counted(made)["all-to-all"] == 8


def test_one_key_value_head_is_gathered_where_ulysses_cuts_the_heads_of_queries() -> None:
    made = planned("multi-query", "ulysses(u)")
    assert counted(made, "forward") == {"all-gather": 2, "all-to-all": 2}


@pytest.mark.parametrize("strategy", ["fully-sharded(d, over=context)", "zero-2(d, over=context)"])
def test_shards_over_data_and_context_are_gathered_and_scattered_by_one_call(strategy: str) -> None:
    made = planned("homework", f"{strategy} + context(c)")
    for tensor in graph("homework").weights:
        of = [c for c in made.collectives if c.tensor in (tensor.name, f"d({tensor.name})", f"new({tensor.name})")]
        gathers = 2 if strategy.startswith("fully") else 1  # forward and backward, or after the update
        assert sorted(c.kind for c in of) == [*["all-gather"] * gathers, "reduce-scatter"]
        assert all(c.meshes == ("context", "data") and c.elements == size("homework", tensor.name) for c in of)
    with pytest.raises(StrategyError, match="the mesh axis 'context' has no size"):
        parse_strategy(strategy).sizes  # noqa: B018


def test_shards_over_one_axis_twice_are_refused() -> None:
    with pytest.raises(StrategyError) as caught:
        parse_strategy("zero-2(4, over=data)")
    assert str(caught.value) == "over=data is sharded anyway\nhint: another axis, such as over=context"


def test_ulysses_needs_heads_that_attend() -> None:
    with pytest.raises(StrategyError) as caught:
        planned("pre-norm", "ulysses(u)")
    assert str(caught.value) == ("layer has no self-attention to cut\nhint: context(k) cuts positions and gathers keys")


def test_the_keys_of_another_sequence_are_not_gathered() -> None:
    assert counted(planned("cross-attention", "context(c)"), "forward") == {}


def test_one_key_value_head_for_all_ranks_sums_its_gradients_besides_those_of_the_block() -> None:
    made = planned("multi-query", "tensor(t)")
    assert calls(made, "forward") == [("all-reduce", "y")]
    # K and V are whole on every rank, their gradients sums over its heads: dx = dQ W^Q' + dK W^K' + dV W^V' is added
    # first and summed once, and so are the gradients of W^K and W^V, of DH each: 4BLD + 4DH bytes in 16 bits.
    assert calls(made, "backward") == [("all-reduce", "d(W^V)"), ("all-reduce", "d(W^K)"), ("all-reduce", "d(x)")]
    moved = sp.Add(*(2 * c.elements for c in made.collectives))
    assert same("multi-query", moved, 4 * size("multi-query", "x") + 4 * size("multi-query", "W^K"))
    assert dict(made.placements["W^Q_i"]) == {"tensor": 0}
    assert made.placements["W^K"] == made.placements["W^V"] == ()


def test_grouped_heads_are_cut_by_groups_so_that_no_key_travels() -> None:
    made = planned("llama", "tensor(t)")
    axes = {name: made.graph.tensors[name].axes for name in ("W^Q_i", "W^K_j", "W^V_j", "W^O")}
    assert {axes[name][dict(made.placements[name])["tensor"]] for name in axes} == {"n_k"}


def test_the_low_rank_branch_of_a_cut_matrix_sums_no_activation_of_its_own() -> None:
    made = planned("lora block", "tensor(t)")
    # h P S is added to h W^2 while both are sums over F; only the gradients of S and A, of RD each, are sums besides.
    assert calls(made, "forward") == [("all-reduce", "y")]
    assert calls(made, "backward") == [("all-reduce", "d(S)"), ("all-reduce", "d(A)"), ("all-reduce", "d(x)")]
    assert same("lora block", made.collectives[1].elements, size("lora block", "S"))


def test_keys_and_values_are_gathered_before_they_are_repeated() -> None:
    made = planned("llama", "context(c)")
    # 2 B L n_k H elements: 32 heads that share 8 move a quarter of what 2 B L D would be.
    assert calls(made, "forward") == [("all-gather", "K_j"), ("all-gather", "V_j")]
    assert all(same("llama", c.elements, size("llama", "K_j")) for c in made.collectives[:2])
    scattered = [c.tensor for c in made.collectives if c.kind == "reduce-scatter"]
    assert scattered == ["d(V_j)", "d(K_j)"]


def test_a_table_of_words_beside_cut_features_sums_the_gradient_of_its_output() -> None:
    made = planned("function embed", "tensor(t)")
    # d(x) has B L D elements, the gradient of the table V D.
    (call,) = [c for c in made.collectives if c.phase == "backward"]
    assert (call.kind, call.tensor) == ("all-reduce", "d(x)")
    assert same("function embed", call.elements, size("function embed", "x"))


def test_experts_are_summed_after_they_are_combined() -> None:
    made = planned("mixture of experts", "tensor(t)")
    assert calls(made, "forward") == [("all-reduce", "y·9")]
    # The gates' gradients are sums as well: they are D E numbers in the router's.
    assert calls(made, "backward") == [("all-reduce", "d(W^R)"), ("all-reduce", "d(x)")]
    scattered = planned("mixture of experts", "tensor(t) + sequence")
    large = [
        c for c in scattered.collectives if same("mixture of experts", c.elements, size("mixture of experts", "x"))
    ]
    assert Counter(c.kind for c in large) == {"all-gather": 2, "reduce-scatter": 2}  # 4 B L D elements


def test_tokens_fill_slots_of_the_rank_that_holds_them() -> None:
    made = planned("mixture of experts", "context(c)")
    assert {c.tensor for c in made.collectives} == {"d(W^R)", "d(W^1_e)", "d(W^2_e)"}
    assert made.cuts["A_e·6"] == {"context": made.graph.producers["A_e·6"].output_indices[2]}


def test_a_cut_vocabulary_reduces_three_numbers_a_token() -> None:
    made = planned("language model", "cut(V, 4)")
    statistics = ["sum(onehot(s) z)", "max(z)", "sum(exp(z - max(z)))"]
    assert sorted(calls(made, "forward")[1:]) == sorted(("all-reduce", name) for name in statistics)
    assert calls(made, "forward")[0] == ("all-reduce", "x")
    # The gradient of the loss needs what the forward pass has reduced, and nothing more.
    assert calls(made, "backward") == [("all-reduce", "d(a)")]
    tokens = size("language model", "z") / made.graph.axes[made.graph.tensors["z"].axes[-1]].size
    assert all(c.elements == tokens for c in made.collectives if c.tensor in statistics)
    assert [c.tensor for c in made.collectives if c.reduces == "max"] == ["max(z)"]


@pytest.mark.parametrize(
    ("layer", "forward", "backward"),
    [("layernorm, around", 2, 2), ("rmsnorm, around", 1, 1), ("softmax, around", 2, 1)],
)
def test_a_map_along_a_cut_axis_reduces_statistics_of_its_rows(layer: str, forward: int, backward: int) -> None:
    made = planned(layer, "cut(D, 2)")
    names = {c.tensor for c in made.collectives if made.graph.tensors[c.tensor.split(" @ ")[0]].role == "statistic"}
    ops = {t: made.graph.tensors[t].of for t in names}
    for op, count in (("h", forward), ("y", forward), ("d(x)", backward), ("d(b)", backward)):
        assert sum(of == op for of in ops.values()) == count, op
    rows = size(layer, "x") / made.graph.axes["D"].size
    assert all(same(layer, c.elements, rows) for c in made.collectives if c.tensor in names)


def test_sums_over_two_axes_of_the_mesh_with_one_target_are_one_call() -> None:
    made = planned("gpt", "data(2) + context(2)")
    assert {c.meshes for c in made.collectives if c.kind == "all-reduce"} == {("context", "data")}
    moved = [c.elements for c in made.collectives if c.tensor.startswith("d(W")]
    assert sp.Add(*moved) == sp.Add(*(c.elements for c in planned("gpt", "data(4)").collectives
                                      if c.tensor.startswith("d(W")))  # fmt: skip


def test_sequence_parallelism_sums_the_gradients_of_gains_and_biases() -> None:
    made = planned("gpt", "tensor(t) + sequence")
    summed = {c.tensor for c in made.collectives if c.kind == "all-reduce"}
    assert summed == {"d(g)", "d(b)", "d(b^O)", "d(g')", "d(b')", "d(b^2)"}


def test_of_two_cuts_of_one_axis_the_inner_one_is_gathered_first() -> None:
    made = planned("homework", "tensor(t) + sequence + context(c)")
    first = next(c for c in made.collectives if c.kind == "all-gather")
    assert (first.tensor, first.meshes, first.before) == ("x", ("tensor",), (("context", 1), ("tensor", 1)))
    both = [c for c in planned("gpt", "fully-sharded(k) + tensor(t)").collectives if c.tensor == "b^1"]
    assert [(c.kind, c.meshes, c.before) for c in both] == [("all-gather", ("data",), (("tensor", 0), ("data", 0)))]


def test_a_convolution_has_no_sequence() -> None:
    with pytest.raises(StrategyError, match="no sequence axis"):
        planned("convolutions", "context(c)")


def test_shards_of_weights_need_not_divide_an_axis_but_experts_must() -> None:
    sizes = {"B": 64, "L": 8, "D": 96, "F": 8, "E": 8, "C": 2, "k": 2}
    numbers = {name: Fraction(n) for name, n in sizes.items()}
    check_divisible(graph("mixture of experts"), parse_strategy("fully-sharded(64)"), numbers)
    with pytest.raises(StrategyError, match="not divisible"):
        check_divisible(graph("mixture of experts"), parse_strategy("expert(64)"), numbers)


def test_no_step_of_a_plan_communicates_without_a_reason() -> None:
    for layer in LAYERS:
        for call in planned(layer, "data(2)").collectives:
            assert isinstance(call, Collective)
            assert call.why
