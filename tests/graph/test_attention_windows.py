"""Attention with a window, partial rotation and linear biases, against loops over the positions written here."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest
from api import AccountingError, FormulaError, ReaderError, read_config
from hypothesis import given
from hypothesis import strategies as st

import symcomm as sc

ROWS = """Computation\tInput\tOutput
Q = xW^Q\tx [B, L, D], W^Q [D, D]\tQ [B, L, D]
K = xW^K\tx [B, L, D], W^K [D, D]\tK [B, L, D]
P = {softmax}(Q K^T)\tQ, K\tP [B, L, L]
Z = P x\tP, x\tZ [B, L, D]
y = x + Z\tx, Z\ty [B, L, D]
"""
WINDOW = sc.load(ROWS.format(softmax="causalsoftmax_{w}"))
CAUSAL = sc.load(ROWS.format(softmax="causalsoftmax"))
GEMMA: dict[str, Any] = {
    "model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 13, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 96, "sliding_window": 5, "head_dim": 16,
}  # fmt: skip
QWEN: dict[str, Any] = {
    "model_type": "qwen2_moe", "hidden_size": 64, "num_hidden_layers": 9, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 128, "vocab_size": 96, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "use_sliding_window": True,
    "max_window_layers": 6, "decoder_sparse_step": 3, "sliding_window": 7,
}  # fmt: skip


def pairs(length: int, window: int | None, convention: str) -> int:
    """Pairs of a query and a key, one by one."""
    found = 0
    for query, key in itertools.product(range(length), repeat=2):
        seen = key <= query and (window is None or key > query - window)
        found += seen if convention == "causal_half" else 1
    return length * min(length, window or length) if convention == "windowed" else found


sizes = st.fixed_dictionaries({name: st.integers(1, 9) for name in ("B", "L", "D", "w")})


@cache
def asked(quantity: str, convention: str, *options: str) -> sc.Derivation:
    return WINDOW.derive(
        quantity,
        accounting=sc.Accounting.of(*convention.split()),
        **dict(zip(options[::2], options[1::2], strict=True)),
    )


@given(sizes, st.sampled_from(("full", "causal_half", "windowed")))
def test_products_of_scores_are_counted_pair_by_pair(n: dict[str, int], convention: str) -> None:
    seen, linear = pairs(n["L"], n["w"], convention), 2 * 2 * n["B"] * n["L"] * n["D"] ** 2
    scores = 2 * 2 * n["B"] * seen * n["D"]
    assert asked("flops", convention).at(**n).value == linear + scores
    assert asked("flops", convention, "scope", "backward").at(**n).value == 2 * (linear + scores)


@pytest.mark.parametrize("convention", ["causal_half", "windowed", "windowed all_ops"])
def test_witnesses_of_windows_agree(convention: str) -> None:
    for quantity in ("flops", "activation_memory", "traffic"):
        asked(quantity, convention).check(deep=True)


@given(sizes, st.sampled_from(("full", "causal_half", "windowed")))
def test_the_softmax_is_counted_over_the_pairs_that_its_products_have(n: dict[str, int], convention: str) -> None:
    every, products = (asked("flops", f"{convention} {kind}", "op", "P").at(**n).value
                       for kind in ("all_ops", "matmul_only"))  # fmt: skip
    # The mask is an addition; the softmax subtracts, takes the exponential, adds, divides, and finds the largest.
    assert every - products == (1 + 5) * n["B"] * pairs(n["L"], n["w"], convention)


@given(sizes)
def test_scores_outside_the_window_are_kept_unless_they_are_never_made(n: dict[str, int]) -> None:
    kept = {c: asked("activation_memory", c).at(**n).value for c in ("full", "windowed")}
    assert kept["full"] - kept["windowed"] == 2 * n["B"] * n["L"] * (n["L"] - min(n["L"], n["w"]))
    moved = {c: asked("traffic", c).at(**n).value for c in ("full", "windowed")}
    assert moved["full"] - moved["windowed"] == 2 * (kept["full"] - kept["windowed"])  # P is written and read


def test_the_peak_has_no_scores_outside_the_window() -> None:
    n = {"B": 2, "L": 64, "D": 4, "w": 32}
    peak = {c: WINDOW.at(**n).peak_memory(accounting=c).at().value for c in ("full", "windowed")}
    assert peak["full"] - peak["windowed"] == 3 * 2 * 2 * 64 * (64 - 32)  # P, its gradient and that of the scores


def test_a_window_as_long_as_the_sequence_is_a_causal_mask() -> None:
    for convention in ("full", "causal_half"):
        ours, theirs = (m.flops("training", accounting=convention).at(B=2, L=6, D=4, **more)
                        for m, more in ((WINDOW, {"w": 6}), (CAUSAL, {})))  # fmt: skip
        assert ours == theirs


def test_what_holds_of_windows_is_said() -> None:
    said = WINDOW.activation_memory(accounting="windowed")
    assert "attention" in said.touched
    assert "attention" in WINDOW.activation_memory().touched
    assert "attention" not in CAUSAL.activation_memory().touched
    [note] = [n for n in CAUSAL.flops(accounting="windowed").notes if "windowed" in n]
    assert "Nothing here depends on" in note
    gathered = WINDOW.communication("context(2)", accounting="windowed")
    assert "all keys and values are gathered" in gathered.markdown()
    assert gathered.expr == WINDOW.communication("context(2)").expr


def test_two_windows_of_one_table_are_two() -> None:
    rows = ROWS.format(softmax="causalsoftmax_{w}").replace("y = x + Z\tx, Z\ty [B, L, D]\n", "")
    rows += "S = causalsoftmax_{3}(Q Q^T)\tQ\tS [B, L, L]\nY = S x\tS, x\tY [B, L, D]\n"
    rows += "T = softmax(K Q^T)\tK, Q\tT [B, L, L]\nU = T x\tT, x\tU [B, L, D]\n"
    rows += "y = x + Z + Y + U\tx, Z, Y, U\ty [B, L, D]\n"
    n = {"B": 2, "L": 8, "D": 4, "w": 5}
    for convention in ("causal_half", "windowed"):
        seen = pairs(8, 5, convention) + pairs(8, 3, convention) + 64  # the last one has no mask
        made = sc.load(rows).flops("forward", accounting=convention)
        assert made.at(**n).value == 4 * 2 * 8 * 16 + 4 * 2 * 4 * seen


def test_a_bias_that_two_attentions_add_makes_no_one_mask_of_them() -> None:
    rows = ROWS.format(softmax="causalsoftmax_{3}").replace("(Q K^T)\tQ, K", "(Q K^T + b)\tQ, K, b [L, L]")
    rows = rows.replace("y = x + Z\tx, Z", "S = softmax(K Q^T + b)\tK, Q, b\tS [B, L, L]\nY = S x\tS, x\tY [B, L, D]\n"
                        "y = x + Z + Y\tx, Z, Y")  # fmt: skip
    made = sc.load(rows, inputs=["x", "b"]).flops("forward", accounting="causal_half")
    assert made.at(B=2, L=8, D=4).value == 4 * 2 * 8 * 16 + 4 * 2 * 4 * (pairs(8, 3, "causal_half") + 64)


def test_of_an_encoder_and_a_decoder_only_the_masked_attention_is_halved() -> None:
    t5 = sc.load({"model_type": "t5", "d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 8, "d_ff": 32,
                  "vocab_size": 32, "relative_attention_num_buckets": 8})  # fmt: skip
    n = {"B": 2, "L_enc": 6, "L_dec": 5}
    full, half = (t5.flops("forward", accounting=c).at(**n).value for c in ("full", "causal_half"))
    assert full - half == 2 * 2 * 2 * 2 * 16 * (25 - 15)  # layers, products, two operations, batch, width, pairs


def test_exact_additions_within_a_window_are_refused() -> None:
    with pytest.raises(AccountingError, match="depend on the row"):
        WINDOW.flops("training", accounting=sc.Accounting.of("windowed", "exact_adds"))


@pytest.mark.parametrize("subscript", ["0", "-1", "1.5", "x"])
def test_a_window_is_a_count(subscript: str) -> None:
    with pytest.raises(FormulaError, match="the subscript of causalsoftmax says the positions of its window"):
        sc.load(ROWS.format(softmax=f"causalsoftmax_{{{subscript}}}"))


# -- configurations ----------------------------------------------------------------------------


def layers(config: dict[str, Any]) -> dict[str, int]:
    model = sc.load(config)
    return {r.name: int(model.values[r.times]) for r in model.graph.regions if r.times}


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (GEMMA, {"sliding layer": 11, "full layer": 2}),  # the 6th and the 12th see all
        ({**GEMMA, "sliding_window_pattern": 2}, {"sliding layer": 7, "full layer": 6}),
        ({**GEMMA, "layer_types": ["sliding_attention"] * 12 + ["full_attention"]},
         {"sliding layer": 12, "full layer": 1}),
        ({**GEMMA, "layer_types": ["full_attention"] * 13}, {"layer": 13}),
        ({**GEMMA, "model_type": "gemma2"}, {"sliding layer": 7, "full layer": 6}),
        ({**GEMMA, "model_type": "mistral"}, {"layer": 13}),
        # Layers 0, 2 and 4 have a window, 2, 5 and 8 have experts.
        (QWEN, {"sliding-dense layer": 2, "sliding layer with experts": 1, "full-dense layer": 4,
                "full layer with experts": 2}),
        ({**QWEN, "decoder_sparse_step": 4},  # experts in layers 3 and 7
         {"sliding-dense layer": 3, "full-dense layer": 4, "full layer with experts": 2}),
        ({**QWEN, "use_sliding_window": False}, {"dense layer": 6, "layer with experts": 3}),
        ({**QWEN, "model_type": "qwen3_moe", "shared_expert_intermediate_size": 0, "decoder_sparse_step": 1},
         {"layer": 9}),
    ],
)  # fmt: skip
def test_layers_that_alternate_are_kinds_of_layers(config: dict[str, Any], kinds: dict[str, int]) -> None:
    assert layers(config) == kinds


@pytest.mark.parametrize("stages", [[4, 3, 4, 2], [1, 12], [13]])
def test_a_stage_keeps_the_windows_and_the_whole_contexts_of_the_layers_that_stand_in_it(stages: list[int]) -> None:
    begin, model, c = 0, sc.load(GEMMA), 9
    for n, size in enumerate(stages):
        places = range(begin, begin + size)
        kept = sum(2 * 2 * 16 * 2 * (c if layer in (5, 11) else 5) for layer in places)  # K and V, 2 heads of 16, bf16
        strategy = f"pipeline(layers={':'.join(map(str, stages))})"
        assert model.kv_cache("sequence", strategy, stage=n, dtype="bf16").at(c=c).value == kept
        begin += size


def test_a_stage_has_the_experts_of_the_layers_that_stand_in_it() -> None:
    D, F, E, S, weights = 64, 128, 32, 64, []
    for layer in range(9):
        both = 2 * D + 4 * D * D + 3 * D  # two norms, attention, biases of queries, keys and values
        routed = layer % 3 == 2  # the others are dense
        weights.append(both + (D * 4 + 4 * 3 * D * E + 3 * D * S + D if routed else 3 * D * F))
    model = sc.load(QWEN)
    ends = {0: 96 * D, 2: 96 * D + D}  # the embedding; the last norm and the head
    for stage in range(3):
        held = sum(weights[3 * stage : 3 * stage + 3]) + ends.get(stage, 0)
        assert model.state_memory("pipeline(3)", stage=stage).at().value == 16 * held
    with pytest.raises(sc.SymcommError, match="alternate, so the layers of a stage depend on how many there are"):
        model.state_memory("pipeline(p)", stage=0)


def test_a_window_without_its_key_is_that_of_transformers() -> None:
    plain = {k: v for k, v in GEMMA.items() if k != "sliding_window"}
    found = {kind: sc.load({**plain, "model_type": kind}).values.get("L_w")
             for kind in ("mistral", "mixtral", "phi3", "gemma2", "gemma3_text", "qwen2", "llama")
             if kind != "mixtral"}  # fmt: skip
    assert found == {"mistral": 4096, "phi3": None, "gemma2": 4096, "gemma3_text": 4096, "qwen2": None, "llama": None}


@pytest.mark.parametrize("convention", ["full", "causal_half", "windowed"])
def test_gemma_s_scores_are_counted_layer_by_layer(convention: str) -> None:
    n = {"B": 2, "L": 11}
    linear = 2 * n["B"] * n["L"] * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128)
    total = 2 * n["B"] * n["L"] * 64 * 96
    for layer in range(13):
        window = None if layer in (5, 11) else 5
        total += linear + 2 * 2 * n["B"] * 64 * pairs(n["L"], window, convention)
    made = sc.load(GEMMA).flops("forward", accounting=convention)
    assert made.at(**n).value == total


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"layer_types": ["sliding_attention"] * 3}, "layer_types names 3 layers of 13"),
        ({"layer_types": "sliding_attention"}, 'layer_types names "sliding_attention" layers'),
        ({"layer_types": ["chunked_attention"] * 13}, 'layers of type "chunked_attention" are not read'),
        ({"sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        ({"sliding_window": -4}, "sliding_window is -4"),
        ({"num_hidden_layers": 10**8}, "100000000 layers of several kinds"),
    ],
)
def test_windows_that_make_no_sense_are_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ReaderError, match=message):
        sc.load({**GEMMA, **more})


NEOX: dict[str, Any] = {
    "model_type": "gpt_neox", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 32, "vocab_size": 24,
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "turned"),
    [({}, 4), ({"rotary_pct": 1.0}, 16), ({"rotary_pct": 0.5}, 8), ({"partial_rotary_factor": 0.5}, 8),
     ({"rope_parameters": {"partial_rotary_factor": 0.75}}, 12), ({"model_type": "gptj", "rotary_dim": 6}, 6),
     ({"model_type": "gptj"}, 16), ({"model_type": "gptj", "rotary_dim": None}, 16)],
)  # fmt: skip
def test_only_the_rotated_part_of_a_head_is_turned(more: dict[str, Any], turned: int) -> None:
    config = {**NEOX, **more}
    if config["model_type"] == "gptj":
        config |= {"n_embd": 64, "n_layer": 3, "n_head": 4}
    model = sc.load(config)
    row = "R_i"  # a multiplication by the cosine, one by the sine, an addition
    assert model.flops("forward", row, accounting="all_ops").at(B=2, L=5).value == 3 * 2 * 5 * 4 * turned
    assert model.flops("backward", row, accounting="all_ops").at(B=2, L=5).value == 3 * 2 * 5 * 4 * turned


def test_a_share_of_a_head_that_has_no_pair_is_refused() -> None:
    with pytest.raises(ReaderError, match="1 of the 16 features of a head would be rotated"):
        read_config('{"model_type": "gpt_neox", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,'
                    ' "intermediate_size": 32, "vocab_size": 24, "rotary_pct": 0.1}')  # fmt: skip


def test_alibi_is_an_addition_to_each_score_and_no_weight() -> None:
    config = {"model_type": "falcon", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
              "vocab_size": 24}  # fmt: skip
    with_bias, without = (sc.load({**config, "alibi": alibi}) for alibi in (True, False))
    assert with_bias.parameters().at() == without.parameters().at()
    turned = 3 * 2 * 5 * (64 + 16)  # queries of all heads, keys of one
    added = 2 * 4 * 5 * 5
    n = {"B": 2, "L": 5}
    every = [m.flops("forward", accounting="all_ops").at(**n).value for m in (with_bias, without)]
    assert every[0] - every[1] == 3 * (added - turned)


# -- subscripts that are no counts ---------------------------------------------------------------


def row(function: str) -> sc.Model:
    text = f"Computation\tInput\tOutput\nz = x W\tx [B, L, D], W [D, D]\tz [B, L, D]\ny = {function}\tz\ty [B, L, D]\n"
    return sc.load(text)


def test_a_softmax_along_another_axis_is_refused() -> None:
    with pytest.raises(FormulaError, match="softmax works along the last axis, not along -2"):
        row("softmax_{-2}(z)")
    assert row("softmax_{-1}(z)").notes == row("softmax_2(z)").notes == row("softmax(z)").notes == ()


def test_a_subscript_that_says_nothing_is_told() -> None:
    assert row("layernorm_2(z)").notes == ("the subscript of layernorm is a mark: it changes nothing",)
    assert row("softmax_{rows}(z)").notes == ("the subscript of softmax is a mark: it changes nothing",)
