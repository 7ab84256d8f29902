"""Attention as one kernel: what it moves, keeps and computes again, and which models attend so."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from api import ONE_DEVICE, ReaderError, Setting, class_names, parse_strategy
from api import form_evaluate as evaluate
from api import load_load as load

import symcomm as sc

LLAMA_70B = {
    "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64,
}  # fmt: skip
HEADER = "Computation\tInput\tOutput\n"
ONE_HEAD = HEADER + (
    "P = softmax(Q K^T)\tQ [B, T, H], K [B, S, H]\tP [B, T, S]\n"
    "Z = P V\tP [B, T, S], V [B, S, H]\tZ [B, T, H]\n"
)  # fmt: skip
GROUPED = HEADER + (
    "T_i = Repeat(K_j), i = 1, ..., n_H\tK_j [B, S, H], j = 1, ..., n_K\tT_i [B, S, H]\n"
    "U_i = Repeat(V_j), i = 1, ..., n_H\tV_j [B, S, H], j = 1, ..., n_K\tU_i [B, S, H]\n"
    "P_i = softmax(Q_i T_i^T), i = 1, ..., n_H\tQ_i [B, T, H], T_i\tP_i [B, T, S]\n"
    "Z_i = P_i U_i, i = 1, ..., n_H\tP_i, U_i\tZ_i [B, T, H]\n"
)  # fmt: skip
HOMEWORK = Path(__file__).parents[1] / "data" / "homework2_table.tsv"


def one_head() -> sc.Model:
    return sc.load(ONE_HEAD, inputs="QKV")


# -- what configurations do ------------------------------------------------------------------------------------------


def test_a_configuration_keeps_what_the_attention_of_its_library_keeps() -> None:
    """Scores of 2 bytes for each head and pair of positions, or a number of 4 bytes for each head and position."""
    scores, rows = 80 * 64 * 8192**2 * 2, 80 * 64 * 8192 * 4
    eager = sc.load({**LLAMA_70B, "attn_implementation": "eager"}, loss=False)
    written_out = eager.activation_memory().at(B=1, L=8192).value
    assert written_out == 904_895_987_712
    kernel = sc.load(LLAMA_70B, loss=False).activation_memory()
    assert kernel.at(B=1, L=8192).value == written_out - scores + rows == 217_868_992_512
    assert round(217_868_992_512 / 2**30, 1) == 202.9
    assert (kernel.accounting.softmax, "softmax" in kernel.touched) == ("fused", True)


@pytest.mark.parametrize(
    ("entries", "choice"),
    [
        ({}, "fused"),
        ({"attn_implementation": "sdpa"}, "fused"),
        ({"_attn_implementation": "flash_attention_2"}, "fused"),
        ({"attn_implementation": "eager"}, "library"),
    ],
)
def test_a_configuration_says_how_it_attends_and_a_question_decides_over_it(
    entries: dict[str, str], choice: str
) -> None:
    model = sc.load({**LLAMA, **entries})
    assert model.activation_memory().accounting.softmax == choice
    assert model.part("layer").activation_memory().accounting.softmax == choice
    for asked in ("library", "fused"):
        assert model.activation_memory(accounting=asked).accounting.softmax == asked
    said = "one kernel" if choice == "fused" else "written out (eager)"
    assert sum(f"attention is {said}" in note for note in model.notes) == 1


def test_a_class_without_a_kernel_writes_its_attention_out() -> None:
    gptj = {"model_type": "gptj", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64, "rotary_dim": 4}
    model = sc.load(gptj)
    assert model.activation_memory().accounting.softmax == "library"
    assert "attention is written out (eager), as GPTJForCausalLM does in transformers: its scores are kept; " \
           "softmax: fused is one kernel" in model.notes  # fmt: skip
    assert sc.load({**gptj, "attn_implementation": "flash_attention_2"}).graph.fused
    with pytest.raises(ReaderError) as caught:
        sc.load({**gptj, "attn_implementation": "sdpa"})
    assert str(caught.value) == (
        '<config>: attn_implementation is "sdpa", which the class GPTJForCausalLM does not have in transformers\n'
        "hint: eager, which keeps the scores, or flash_attention_2"
    )


def test_an_unknown_attention_is_refused_with_a_near_one() -> None:
    with pytest.raises(ReaderError) as caught:
        sc.load({**LLAMA, "attn_implementation": "eagre"})
    assert str(caught.value) == "<config>: unknown attention 'eagre'\nhint: did you mean 'eager'?"


@pytest.mark.torch
def test_the_classes_that_have_a_kernel_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    found = {n: (a.sdpa, getattr(transformers, n)._supports_sdpa) for n, (a, _) in class_names().items()
             if hasattr(transformers, n)}  # fmt: skip
    assert len(found) > 60
    assert {n for n, (mine, theirs) in found.items() if mine != theirs} == set()


def test_a_table_computes_what_it_writes() -> None:
    model = one_head()
    for made in (model.activation_memory(), model.traffic(), model.intensity(), model.time()):
        assert made.accounting.softmax == "library"
        assert "softmax" in made.touched


# -- what a kernel moves ---------------------------------------------------------------------------------------------


def test_the_intensity_of_a_head_is_that_of_its_operands_and_its_result() -> None:
    """4 B S T H operations over 2 B H (2 S + 2 T) bytes."""
    made = one_head().intensity(accounting="fused")
    assert str(made.expr) == "S*T/(S + T)"
    assert one_head().intensity(accounting="library").at(S=64, T=32, H=16).value == Fraction(
        4 * 64 * 32 * 16, 2 * (2 * 64 * 16 + 2 * 32 * 16 + 2 * 64 * 32)
    )


def test_heads_that_share_keys_and_values_read_them_once() -> None:
    """S T G / (S + T G) for G queries of each key and value head."""
    made = sc.load(GROUPED, inputs=["Q_i", "K_j", "V_j"]).intensity(accounting="fused")
    for n_H, n_K, S, T in ((8, 2, 64, 32), (6, 6, 16, 16), (32, 8, 4096, 1)):
        group = Fraction(n_H, n_K)
        assert made.at(n_H=n_H, n_K=n_K, S=S, T=T).value == S * T * group / (S + T * group)


def test_the_rows_of_a_kernel_move_together_what_the_kernel_moves() -> None:
    model = one_head()
    rows = [model.traffic(op=name, accounting="fused").expr for name in ("P", "Z")]
    assert sum(rows) == model.traffic(accounting="fused").expr
    assert str(rows[0]) == "2*B*H*(S + T)"


def test_backward_reads_each_operand_once_and_writes_three_gradients() -> None:
    """Q, dQ, the result and its gradient have T positions, K, V, dK and dV have S."""
    moved = one_head().time(phase="backward", term="memory", accounting="fused", memory="1 B/s")
    assert moved.at(B=3, S=10, T=6, H=4).value == 2 * 3 * 4 * (4 * 6 + 4 * 10)


def test_keys_that_are_the_values_are_read_once() -> None:
    table = HEADER + "Z = softmax(Q K^T) K\tQ [B, T, H], K [B, S, H]\tZ [B, T, H]\n"
    assert str(sc.load(table, inputs="QK").traffic(accounting="fused").expr) == "2*B*H*(S + 2*T)"


def test_a_kernel_is_one_op_where_ops_follow_one_another() -> None:
    """Its backward pass has five products: the scores again, the gradients of scores, values, queries and keys."""
    made = one_head().time(phase="backward", accounting={"softmax": "fused", "time": "per_op"})
    assert str(made.expr) == "Max((8*B*H*S + 8*B*H*T)/W_mem, 10*B*H*S*T/R)"


def test_what_leaves_an_attention_is_written() -> None:
    """Scores that the model hands on are no inner tensor, nor are those of a softmax without values."""
    table = HEADER + "P = softmax(Q K^T)\tQ [B, T, H], K [B, S, H]\tP [B, T, S]\n"
    assert sc.load(table, inputs="QK").graph.scores == frozenset()
    router = HEADER + "r = softmax(x W)\tx [B, L, D], W [D, E]\tr [B, L, E]\nY = r C\tr, C [E, F]\tY [B, L, F]\n"
    assert sc.load(router).graph.scores == frozenset()


# -- what a kernel computes again ------------------------------------------------------------------------------------


def test_model_flops_stay_and_the_scores_of_backward_are_hardware_flops() -> None:
    model = sc.load(LLAMA)
    again = 2 * 2 * 8**2 * 32 * 3  # 2 B L^2 D in each layer
    counted = {choice: model.flops("training", accounting=choice).at(B=2, L=8).value for choice in ("library", "fused")}
    assert len({*counted.values()}) == 1
    for choice, more in (("library", 0), ("fused", again)):
        hardware = model.recomputation("none", "hardware_flops", accounting=choice).at(B=2, L=8).value
        assert hardware == counted[choice] + more
        assert model.recomputation("none", accounting=choice).at(B=2, L=8).value == more


@pytest.mark.parametrize("how", ["activations_kept", "selective_recomputation", "full_recomputation"])
@pytest.mark.parametrize("choice", ["library", "fused"])
def test_a_step_runs_the_hardware_flops_of_its_recomputation(how: str, choice: str) -> None:
    """Loops by hand: a forward pass again, or the two products of attention again, and the scores inside a kernel."""
    model, known = sc.load(LLAMA).at(B=2, L=8), {"softmax": choice, "recomputation": how}
    word = {"activations_kept": "none", "selective_recomputation": "selective"}.get(how, "full")
    hardware = model.recomputation(word, "hardware_flops", accounting=known).at().value
    scores = 2 * 2 * 8**2 * 32 * 3
    layer = 2 * 2 * 8 * 3 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 48) + 2 * scores
    more = {"none": 0, "selective": 2 * scores, "full": layer}[word] + (scores if choice == "fused" else 0)
    assert hardware == model.flops("training").at().value + more
    setting = Setting(model.graph, sc.Accounting.of(**known), values=model.values)
    stands = {r.name: model.values[r.times] if r.times else 1 for r in model.graph.regions}
    run = load(setting, ONE_DEVICE)
    sizes = model.graph.relations.complete(model.values)
    assert sum(evaluate(o.flops, sizes) * stands[o.op.region] for o in run.ops) == hardware


def test_the_utilisation_of_the_hardware_counts_the_scores_that_are_made_again() -> None:
    model = sc.load(LLAMA).at(B=2, L=8)
    asked: dict[str, Any] = {"step": "1 ms", "device": "H100-SXM"}
    hfu, mfu = (model.throughput(of=of, **asked) for of in ("hfu", "mfu"))
    again = Fraction(2 * 2 * 8**2 * 32 * 3)
    trained = model.flops("training").at().value
    assert hfu.at().value / mfu.at().value == (trained + again) / trained
    assert "softmax" in hfu.touched


def test_a_rank_makes_the_scores_of_its_own_heads_again() -> None:
    model = sc.load(LLAMA).at(B=2, L=8)
    setting = Setting(model.graph, values=model.values)
    run = load(setting, parse_strategy("tensor(2)"))
    scores, sizes = [o for o in run.ops if o.again], model.graph.relations.complete(model.values)
    assert [evaluate(o.flops, sizes) for o in scores] == [2 * 2 * 8**2 * 32 // 2]


# -- gathered again --------------------------------------------------------------------------------------------------


def test_keys_and_values_that_context_gathers_are_gathered_again_for_backward() -> None:
    """K and V of B L D elements of two bytes each in each layer come on top, and only parts of them are kept."""
    model = sc.load(HOMEWORK, repeat="N_layer", values={"B": 8, "L": 64, "D": 16, "n_h": 4, "N_layer": 3, "k": 4})
    sent, kept = {}, {}
    for how in ("keep", "regather"):
        sent[how] = model.communication("context(k)", accounting={"gathered_activations": how}).at().value
        kept[how] = model.activation_memory("context(k)", accounting={"gathered_activations": how}).at().value
    assert sent["regather"] - sent["keep"] == 2 * 2 * 8 * 64 * 16 * 3
    assert kept["keep"] - kept["regather"] == 2 * 2 * 8 * 64 * 16 * 3 * 3 // 4


@pytest.mark.parametrize("heads", [4, 2])
def test_one_kernel_keeps_the_parts_of_keys_and_values_that_are_gathered_again_for_it(heads: int) -> None:
    """Of k ranks each keeps a k-th of everything; with the copies, all of K and V of every layer."""
    model = sc.load({**LLAMA, "num_key_value_heads": heads}).at(B=2, L=8)
    whole, width = model.activation_memory().at().value, 32 // 4 * heads
    for ranks in (2, 4):
        kept = {
            how: model.activation_memory(f"context({ranks})", accounting={"gathered_activations": how}).at().value
            for how in ("keep", "regather")
        }
        assert kept["regather"] * ranks == whole
        assert kept["keep"] - kept["regather"] == 3 * 2 * 2 * 2 * 8 * width * (ranks - 1) // ranks


@pytest.mark.few(3)
@pytest.mark.parametrize("kernel", ["fused", "by_hand"])
@pytest.mark.parametrize("heads", [4, 2, 1])
def test_heads_are_gathered_again_before_they_are_repeated(heads: int, kernel: str) -> None:
    """Forward and backward each gather K and V of B L n_kv H elements of two bytes in each of three layers."""
    model = sc.load({**LLAMA, "num_key_value_heads": heads}).at(B=2, L=8)
    once = 3 * 2 * 2 * (2 * 8 * heads * 8)
    for how, times in (("keep", 1), ("regather", 2)):
        asked = {"gathered_activations": how, "softmax": kernel}
        gathered = model.communication("context(4)", collective="all-gather", accounting=asked)
        assert gathered.at().value == times * once
    again = model.communication("context(4)", collective="all-gather", phase="backward", accounting="regather")
    assert again.at().value == once


@pytest.mark.parametrize("strategy", ["tensor(2)", "ulysses(2)"])
def test_a_head_that_all_queries_share_is_kept_whole_where_queries_are_cut(strategy: str) -> None:
    """Each rank keeps one head of keys and one of values: its own one of two, or a copy of the only one."""
    asked = {"strategy": strategy, "accounting": {"gathered_activations": "keep"}}
    kept = [
        sc.load({**LLAMA, "num_key_value_heads": heads}).at(B=2, L=8).activation_memory(**asked).at()
        for heads in (1, 2)
    ]
    assert kept[0] == kept[1]


def test_a_kernel_makes_its_three_gradients_while_all_that_it_reads_is_there() -> None:
    """x, m, Q, K, V, Z, dZ, dQ, dK and dV of L·D numbers, three weights, and a number a row."""
    rows = [f"{one} = {of}W^{one}\t{of} [B, L, D], W^{one} [D, D]\t{one} [B, L, D]\n" for one, of in ("Qx", "Km", "Vm")]
    rows += ["P = softmax(Q K^T)\tQ, K\tP [B, L, L]\n", "Z = P V\tP, V\tZ [B, L, D]\n"]
    length, width = 64, 2
    model = sc.load(HEADER + "".join(rows), dtype="fp32").at(B=1, L=length, D=width)
    accounting = {"saved": "pytorch", "softmax": "fused"}
    peak = model.peak_memory(recipe="fp32_sgd", step="backward", accounting=accounting)
    assert peak.at().value == 4 * (10 * length * width + 3 * width**2 + length)


def heads(*rotations: str) -> sc.Model:
    """Attention of heads that are parts of a product, with queries and keys as they are or rotated."""
    rows = [f"{one} = xW^{one}\tx [B, L, n_H H], W^{one} [n_H H, n_H H]\t{one} [B, L, n_H H]\n"
            f"[{one}_1, \\dots, {one}_{{n_H}}] = Partition_{{-1}}({one})\t{one} [B, L, n_H H]\t"
            f"{one}_i [B, L, H], i = 1, \\dots, n_H\n" for one in "QKV"]  # fmt: skip
    rows += [f"{new}_i = {rope}({one}_i), i = 1, \\dots, n_H\t{one}_i\t{new}_i [B, L, H]\n"
             for rope in rotations for new, one in ("RQ", "SK")]  # fmt: skip
    queries, keys = "RS" if rotations else "QK"
    rows += [f"P_i = softmax({queries}_i {keys}_i^T), i = 1, \\dots, n_H\t{queries}_i, {keys}_i\tP_i [B, L, L]\n",
             "Z_i = P_i V_i, i = 1, \\dots, n_H\tP_i, V_i\tZ_i [B, L, H]\n",
             "Z = Merge_{-1}([Z_1, \\dots, Z_{n_H}])\tZ_i\tZ [B, L, n_H H]\n",
             "m = Z W^O\tZ, W^O [n_H H, n_H H]\tm [B, L, n_H H]\n"]  # fmt: skip
    return sc.load(HEADER + "".join(rows), dtype="fp32")


def test_a_kernel_between_exchanges_keeps_its_result_as_it_made_it_beside_what_the_next_product_reads() -> None:
    """Of x, Q, K, V and Z half the numbers each, of Z once more by heads, and a number for each row of a head."""
    model = heads().at(B=1, L=64, n_H=4, H=2)
    asked = {"strategy": "ulysses(2)", "accounting": {"saved": "pytorch", "softmax": "fused"}}
    part, by_row, weight = 64 * 4 * 2 // 2, 64 * 4 // 2, 8 * 8
    assert model.activation_memory(**asked).at().value == 4 * (6 * part + by_row)
    # x, Q, K, V, Z by heads and four gradients are there when the kernel makes its three; of W^O the gradient, too.
    peak = model.peak_memory(recipe="fp32_sgd", step="backward", **asked)
    assert peak.at().value == 4 * (9 * part + by_row + 5 * weight)


@pytest.mark.parametrize(("rotation", "tensors"), [("rope", 5), ("rope_{H_R}", 6)])
def test_heads_that_are_rotated_in_part_are_copied_when_they_are_merged_behind_the_kernel(rotation: str, tensors: int):
    """Of x, R, S, V and Z once; a rotated part is joined to the rest of its head, so each head lies by itself."""
    model = heads(rotation).at(B=2, L=8, n_H=4, H=4, **({"H_R": 2} if "H_R" in rotation else {}))
    accounting = {"saved": "pytorch", "softmax": "fused"}
    kept = model.activation_memory(accounting=accounting).at().value
    assert kept == 4 * (tensors * 2 * 8 * 4 * 4 + 2 * 8 * 4)
    assert model.activation_memory(accounting={**accounting, "saved": "ideal"}).at().value == 4 * (5 * 256 + 64)
