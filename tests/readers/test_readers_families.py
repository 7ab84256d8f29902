"""Every family has the parameters of ``transformers``; what its tables do not have is refused or told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from api import ARCHITECTURES, Model, SymcommError, class_names, load_known, read_config
from family_cases import FAMILIES, SMALL

import symcomm as sc

# The first configuration of each family in the short suite, all of them in the long one.
_FIRST = {row["config"]["model_type"]: row["name"] for row in reversed(FAMILIES)}
_ROWS = [
    pytest.param(row, id=row["name"], marks=() if row["name"] in _FIRST.values() else pytest.mark.long)
    for row in FAMILIES
]
LLAMA: dict[str, Any] = {"model_type": "llama", **SMALL["LlamaForCausalLM"]}
BERT: dict[str, Any] = {"model_type": "bert", **SMALL["BertForMaskedLM"]}
MOE: dict[str, Any] = {"model_type": "qwen3_moe", **SMALL["Qwen3MoeForCausalLM"]}


def small(name: str, **options: Any) -> Model:
    made = load_known({"architectures": [name], **SMALL[name]}, **options)
    assert made is not None
    return made


def refusal(config: dict[str, Any]) -> SymcommError:
    with pytest.raises(SymcommError) as caught:
        read_config(json.dumps(config, indent=1), "config.json")
    return caught.value


@pytest.mark.few(13)
@pytest.mark.parametrize("row", _ROWS)
def test_the_parameters_are_those_of_the_model_that_transformers_makes(row: dict[str, Any]) -> None:
    assert read_config(json.dumps(row["config"])).count() == row["parameters"]


def test_every_family_has_a_configuration_and_a_small_model() -> None:
    assert _FIRST.keys() == ARCHITECTURES.keys()
    assert {class_names()[name][0].model_type for name in SMALL} == ARCHITECTURES.keys()


def test_t5_with_a_head_of_its_own_has_its_published_count() -> None:
    """google/t5-v1_1-base: 247 577 856; the tied one is a vocabulary of 32 128 rows of 768 smaller."""
    [row] = [r for r in FAMILIES if r["name"].startswith("t5-v1.1-base")]
    assert read_config(json.dumps({**row["config"], "tie_word_embeddings": False})).count() == 247_577_856
    assert row["parameters"] == 247_577_856 - 32128 * 768


# 16 tokens in each of 2 sequences; what torch.utils.flop_counter counts of the model that transformers makes.
FLOPS = {"OPTForCausalLM": 9_437_184, "GPTJForCausalLM": 13_631_488, "FalconForCausalLM": 11_796_480,
         "Qwen2MoeForCausalLM": 9_781_248, "GptOssForCausalLM": 20_512_768}  # fmt: skip


@pytest.mark.parametrize("name", FLOPS)
def test_the_flops_of_a_family_are_those_that_pytorch_counts(name: str) -> None:
    assert small(name).flops().at(B=2, L=16).value == FLOPS[name]


GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 1, "vocab_size": 100,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_local_experts": 4,
    "num_experts_per_tok": 2,
}  # fmt: skip


def test_gpt_oss_keeps_what_pytorch_keeps_but_for_its_rotations() -> None:
    """PyTorch keeps 255,104 bytes, 1,024 of them rotations; its router's softmax is over the chosen experts only."""
    derived = sc.load(GPT_OSS, dtype="fp32", loss=False).activation_memory(accounting="pytorch").at(B=2, L=16)
    assert derived.value == 255_104 - 2 * 4 * 16 * 8


def test_the_gates_of_gpt_oss_keep_seven_numbers_where_a_plain_one_keeps_four() -> None:
    """The operands of both limits, the limited gate, its sigmoid, gate, up + 1 and their product."""
    kept = sc.load(GPT_OSS, dtype="fp32", loss=False).activation_memory(accounting="pytorch").at(B=2, L=16).value
    wider = sc.load({**GPT_OSS, "intermediate_size": 49}, dtype="fp32", loss=False)
    more = wider.activation_memory(accounting="pytorch").at(B=2, L=16).value - kept
    assert more == 4 * 7 * (2 * 16 * 2)


def test_a_limit_of_gates_that_is_no_number_above_0_is_refused() -> None:
    said = refusal({**GPT_OSS, "swiglu_limit": -1})
    assert "swiglu_limit is -1" in str(said)
    assert said.hint == "how far from 0 a gate may be, such as 7.0"


ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("flops", {"scope": "training"}),
    ("state_memory", {"strategy": "fsdp(2)"}),
    ("activation_memory", {}),
    ("activation_memory", {"accounting": "pytorch"}),
    ("communication", {"strategy": "data(2)"}),
    ("communication", {"strategy": "fsdp(2)"}),
    ("communication", {"strategy": "tensor(4)"}),
    ("traffic", {}),
)


@pytest.mark.long
@pytest.mark.parametrize("name", SMALL)
def test_every_quantity_is_derived_of_every_family(name: str) -> None:
    model = small(name)
    sizes = {"B": 2} if "L" in model.values else {"B": 2, "L": 16}
    sizes = {"B": 2, "L_enc": 16, "L_dec": 16} if name.startswith("T5") else sizes
    for quantity, options in ASKED:
        assert model.derive(quantity, **options).at(**sizes).value > 0, (quantity, options)
    assert model.at(**sizes).peak_memory().at().value > model.state_memory().at().value


def test_parallel_branches_share_one_all_reduce_where_sequential_ones_need_two() -> None:
    """Of B·L·D numbers of 2 bytes, forward and backward alike.

    The gradients of both branches pass their norms before they are summed, so that those of two scales and two shifts
    are partial sums as well: four times D numbers.
    """
    config = {"model_type": "gpt_neox", **SMALL["GPTNeoXForCausalLM"]}
    sent = [
        sc.load({**config, "use_parallel_residual": parallel}, loss=False).communication("tensor(4)")
        for parallel in (True, False)
    ]
    sent = [made.at(B=2, L=16).value for made in sent]
    stream = 2 * 16 * 64 * 2
    assert sent == [2 * stream + 4 * (2 * stream + 4 * 64 * 2), 2 * stream + 4 * 4 * stream]  # words are cut as well


# -- an encoder and a decoder --------------------------------------------------------------------

T5: dict[str, Any] = {"model_type": "t5", **SMALL["T5ForConditionalGeneration"], "dropout_rate": 0.0}


def t5(**sizes: int) -> dict[str, int]:
    """The sizes of the small model, of stacks that differ, with 24 tokens read and 20 written of 2 sequences."""
    return {"B": 2, "L_enc": 12, "L_dec": 10, **sizes}


@pytest.mark.parametrize("layers", [(4, 4), (3, 5)])
def test_an_encoder_with_a_decoder_costs_what_its_blocks_cost_one_by_one(layers: tuple[int, int]) -> None:
    """Products counted block by block: four projections and a feed-forward block, scores and their use, and in the
    decoder queries and output of every token written, keys and values of every token read.
    """
    N, M = layers
    model, (B, L, T) = sc.load({**T5, "num_layers": N, "num_decoder_layers": M}), (2, 12, 10)
    D, F, V = 64, 128, 128

    def product(rows: int, inner: int, columns: int) -> int:
        return 2 * rows * inner * columns

    def attention(queries: int, keys: int) -> int:
        projected = 2 * product(B * queries, D, D) + 2 * product(B * keys, D, D)
        return projected + 8 * B * (product(queries, 8, keys) + product(queries, keys, 8))

    def feed(tokens: int) -> int:
        return product(B * tokens, D, F) + product(B * tokens, F, D)

    forward = N * (attention(L, L) + feed(L)) + M * (attention(T, T) + attention(T, L) + feed(T)) + product(B * T, D, V)
    assert model.flops().at(**t5()).value == forward
    assert model.flops(scope="training").at(**t5()).value == 3 * forward


@pytest.mark.long
def test_what_an_encoder_hands_to_every_layer_of_its_decoder_is_kept_once() -> None:
    """Of two bytes: x, n, Q, K, V, Z, z, m and twice F numbers a token, P twice (n_H scores a pair); in the decoder
    besides v, l, and of its second attention Q and Z of what is written, K and V of what is read.
    """
    B, L, T, D, F, n = 2, 12, 10, 64, 128, 8
    layer, other = B * L * (8 * D + F) + B * n * L * L, B * T * (12 * D + F) + 2 * B * L * D + B * n * T * (T + L)
    eager = {**T5, "attn_implementation": "eager"}
    ends = 8 * (B * L + B * T + L * L + T * T) + 2 * (B * L * D + 2 * B * T * D)
    shared = 2 * B * L * D  # the encoder's result
    for N, M in ((4, 4), (3, 5)):
        model = sc.load({**eager, "num_layers": N, "num_decoder_layers": M}, loss=False)
        kept = model.activation_memory().at(**t5()).value
        assert kept == 2 * (N * layer + M * other) + ends + shared
    peaks = [sc.load({**eager, "num_decoder_layers": M}).at(**t5()).peak_memory().at().value for M in (5, 6, 7)]
    states = [sc.load({**eager, "num_decoder_layers": M}).state_memory().at().value for M in (5, 6, 7)]
    grown = {b - a - (t - s) for a, b, s, t in zip(peaks, peaks[1:], states, states[1:], strict=False)}
    assert len(grown) == 1
    assert grown.pop() <= 2 * other  # and no second copy of the encoder's result


def test_cut_heads_sum_what_each_block_of_an_encoder_and_a_decoder_makes() -> None:
    """Four sums of B L D in a layer of the encoder, six of B T D in one of the decoder, and that of what it read.

    Cut words: the sums behind both embeddings and before the head; of the loss three numbers in fp32 for each token.
    """
    B, L, T, D, N, M = 2, 12, 10, 64, 3, 5
    model = sc.load({**T5, "num_layers": N, "num_decoder_layers": M})
    words = 2 * B * D * (L + T + T) + 3 * 4 * B * T
    assert model.communication("tensor(4)").at(**t5()).value == 2 * B * D * (4 * L * N + 6 * T * M + L * M) + words
    assert model.communication("data(2)").at(**t5()).value == 2 * model.parameters().at().value


def test_stages_of_an_encoder_and_a_decoder_are_refused() -> None:
    with pytest.raises(SymcommError, match="encoder layer and decoder layer hand on different tensors"):
        sc.load(T5).communication("pipeline(2)")
    with pytest.raises(SymcommError, match="encoder layer and decoder layer hand on different tensors"):
        sc.load(T5).at(B=4, L_enc=8, L_dec=8).peak_memory("pipeline(2, microbatches=2)")


# -- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["mamba", "llama4", "qwen4", "qwen3_next", "gpt_neo", "olmo", "phi", "mpt", "ministral", "bart", "vjt"]
)
def test_another_family_is_never_told_to_be_a_near_one(kind: str) -> None:
    error = refusal({**LLAMA, "model_type": kind})
    assert f"unknown architecture '{kind}'" in str(error)
    assert "did you mean" not in str(error)
    assert "a family of its own, whose layers no record here describes; read are bert, roberta" in error.hint


def test_a_misspelling_is_told_and_a_class_settles_what_is_meant() -> None:
    assert refusal({**LLAMA, "model_type": "mixtrall"}).hint == "did you mean 'mixtral'?"
    assert refusal({"model_type": "lama", "architectures": ["LlamaForCausalLM"]}).hint == "did you mean 'llama'?"
    own = refusal({**LLAMA, "model_type": "mixtrall", "architectures": ["MixtrallForCausalLM"]})
    assert "a family of its own" in own.hint


def test_a_text_model_is_read_under_the_name_of_its_whole_family() -> None:
    config = {**SMALL["Gemma3ForCausalLM"], "model_type": "gemma3", "architectures": ["Gemma3ForCausalLM"]}
    assert read_config(json.dumps(config)).name == "Gemma3ForCausalLM"
    whole = {"model_type": "gemma3", "text_config": {**config, "model_type": "gemma3_text"}}
    assert refusal(whole).hint == "its text_config is a gemma3_text model: give that mapping alone"


# -- keys --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({**BERT, "add_cross_attention": True}, "add_cross_attention is true: it changes the weights, and no table"),
        ({**BERT, "position_embedding_type": "relative_key"}, 'position_embedding_type is "relative_key": it changes'),
        ({**BERT, "pruned_heads": {"0": [1]}}, 'pruned_heads is {"0": [1]}: it changes'),
        ({**LLAMA, "num_experts": 8}, "num_experts is 8: it changes the weights, and no table of a llama model has"),
        ({**LLAMA, "vision_config": {"a": 1}}, "vision_config is"),
        ({**LLAMA, "layer_types": ["full_attention", "linear_attention"]}, 'layers of type "linear_attention" are not'),
        ({**MOE, "num_experts_per_tok": 16, "num_experts": 8}, "each token goes to 16 of 8 experts"),
        ({**MOE, "mlp_only_layers": 3}, "mlp_only_layers is 3, but a list of layers is needed"),
        ({"model_type": "gpt2", **SMALL["GPT2LMHeadModel"], "num_key_value_heads": 2}, "2 key/value heads, but each"),
        ({**LLAMA, "torch_dtype": "decimal"}, 'torch_dtype is "decimal"'),
        ({"model_type": "vit", **SMALL["ViTForImageClassification"], "patch_size": 7}, "patches of 7 do not divide an"),
        (
            {"model_type": "vit", **SMALL["ViTForImageClassification"], "pooler_output_size": 32,
             "architectures": ["ViTModel"]},
            "a pooler of 32 outputs is not read",
        ),
    ],
)  # fmt: skip
def test_what_changes_the_weights_and_is_not_modelled_is_refused(config: dict[str, Any], message: str) -> None:
    error = refusal(config)
    assert message in str(error)
    assert error.span is not None


def test_what_changes_nothing_is_read_over() -> None:
    plain = {"add_cross_attention": False, "pruned_heads": {}, "num_experts": 0, "position_embedding_type": "absolute"}
    assert read_config(json.dumps({**BERT, **plain})).parts == read_config(json.dumps(BERT)).parts


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ({**LLAMA, "sliding_window": 8}, "sliding_window is 8: layers of this family have no window: not used"),
        ({**LLAMA, "quantization_config": {"bits": 4}}, "every tensor has the number format of the model"),
        ({**LLAMA, "num_nextn_predict_layers": 1}, "the layers that predict further tokens are left out"),
        ({**LLAMA, "model_type": "qwen2", "attention_bias": True}, "attention_bias is true: layers of this family"),
        ({**LLAMA, "alibi": True}, "alibi is true: layers of this family have no such bias: not used"),
        ({"model_type": "falcon", **SMALL["FalconForCausalLM"], "alibi": True}, "the linear bias of the scores"),
        ({"model_type": "phi3", **SMALL["Phi3ForCausalLM"]}, "gate and up are one fused matrix, read as two"),
        ({**MOE, "decoder_sparse_step": 2}, "layers with experts are read behind those without"),
        ({"model_type": "gpt_oss", **SMALL["GptOssForCausalLM"]}, "a window of 128 positions"),
    ],
)
def test_what_is_left_out_is_told(config: dict[str, Any], note: str) -> None:
    assert any(note in said for said in read_config(json.dumps(config)).notes)


def test_a_window_that_is_switched_off_is_not_told() -> None:
    made = read_config(json.dumps({**LLAMA, "sliding_window": 8, "use_sliding_window": False}))
    assert not any("window" in note for note in made.notes)


def test_a_decoder_of_an_encoder_s_family_has_a_causal_mask() -> None:
    texts = ["".join(p.text for p in read_config(json.dumps({**BERT, "is_decoder": d})).parts) for d in (False, True)]
    assert ["causalsoftmax" in text for text in texts] == [False, True]


# -- number formats ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "dtype"),
    [({"torch_dtype": "bfloat16"}, "bf16"), ({"dtype": "float32"}, "fp32"), ({"torch_dtype": "torch.float16"}, "fp16"),
     ({"dtype": "float8_e4m3fn"}, "fp8"), ({"torch_dtype": None}, "fp16"), ({"torch_dtype": "auto"}, "fp16")],
)  # fmt: skip
def test_the_number_format_of_a_configuration_is_used(entry: dict[str, Any], dtype: str) -> None:
    model = sc.load({**LLAMA, **entry})
    assert model.dtype == dtype
    told = f"numbers are in {dtype}, as the configuration says"
    assert (told in model.notes) == (entry.popitem()[1] not in (None, "auto"))


def test_a_number_format_that_is_asked_for_stands_over_that_of_the_configuration_and_tells_it() -> None:
    model = sc.load({**LLAMA, "torch_dtype": "float32"}, dtype="bf16")
    assert model.tensor_size("W^E").at().value == 128 * 64 * 2
    assert "numbers are in bf16, as asked for; the configuration says fp32" in model.notes


def test_a_note_names_the_dropout_whose_masks_are_kept() -> None:
    """GPT-2 drops a tenth by default: one byte for each number of the embedding and of the two branches of a layer."""
    gpt2 = {"model_type": "gpt2", "n_embd": 16, "n_head": 4, "n_layer": 4, "n_positions": 16, "vocab_size": 24}
    off = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
    usual, without = sc.load(gpt2), sc.load(gpt2 | off)
    keys = ", ".join(off)
    note = f"dropout runs in training and keeps its masks, 1 byte a number; 0 as {keys} leaves it out"
    assert note in usual.notes
    assert not any("dropout" in one for one in without.notes)
    masks = usual.activation_memory().at(B=2, L=8).value - without.activation_memory().at(B=2, L=8).value
    assert masks == (1 + 2 * 4) * 2 * 8 * 16
