"""A Hugging Face configuration gives tables whose parameters are the published ones, and whose bytes are derived."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from api import Model, SymcommError, ValuesError, load_known, read_config

import symcomm as sc

GOLDEN = {g["id"]: g for g in json.loads((Path(__file__).parents[1] / "data" / "golden_models.json").read_text())}

BERT: dict[str, Any] = {
    "model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2,
}  # fmt: skip
MASKED = BERT | {"architectures": ["BertForMaskedLM"]}


def decoder(kind: str, d: int, layers: int, heads: int, kv: int, f: int, v: int, **more: Any) -> dict[str, Any]:
    return {
        "model_type": kind, "hidden_size": d, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "intermediate_size": f, "vocab_size": v, **more,
    }  # fmt: skip


LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
# Published counts: model cards and papers, or the number of elements in the published checkpoint.
PUBLISHED: list[tuple[str, dict[str, Any], int]] = [
    ("BERT-base", BERT, 109_482_240),
    ("BertForMaskedLM", MASKED, 109_514_298),
    ("GPT-2", {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257,
               "n_positions": 1024, "n_inner": None}, 124_439_808),
    ("Llama-2-7B", decoder("llama", 4096, 32, 32, 32, 11008, 32000), 6_738_415_616),
    ("Llama-3-8B", decoder("llama", 4096, 32, 32, 8, 14336, 128256), 8_030_261_248),
    ("Mistral-7B", decoder("mistral", 4096, 32, 32, 8, 14336, 32000), 7_241_732_096),
    ("Mixtral-8x7B", decoder("mixtral", 4096, 32, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2),
     46_702_792_704),
    ("Qwen2-7B", decoder("qwen2", 3584, 28, 28, 4, 18944, 152064), 7_615_616_512),
    ("Qwen3-8B", decoder("qwen3", 4096, 36, 32, 8, 12288, 151936, head_dim=128), 8_190_735_360),
    ("Gemma-2B", decoder("gemma", 2048, 18, 8, 1, 16384, 256000, head_dim=256), 2_506_172_416),
    ("Gemma-2-2B", decoder("gemma2", 2304, 26, 8, 4, 9216, 256000, head_dim=256), 2_614_341_888),
    ("DeepSeek-V2-Lite", decoder(
        "deepseek_v2", 2048, 27, 16, 16, 10944, 102400, q_lora_rank=None, moe_intermediate_size=1408,
        n_routed_experts=64, n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, **LATENT,
    ), 15_706_484_224),
]  # fmt: skip


def load(config: dict[str, Any], **options: Any) -> Model:
    made = load_known(json.dumps(config), **options)
    assert made is not None
    return made


@pytest.mark.few(8)
@pytest.mark.parametrize(("config", "parameters"), [(c, n) for _, c, n in PUBLISHED], ids=[n for n, _, _ in PUBLISHED])
def test_the_parameters_are_the_published_ones(config: dict[str, Any], parameters: int) -> None:
    model = load(config)
    assert model.parameters().at().value == parameters
    assert read_config(json.dumps(config)).count() == parameters


def test_deepseek_v3_counts_its_matrices_as_its_paper_names_them() -> None:
    """61 layers, 3 of them dense, 256 experts and one shared: 671.0 billion, without the router's correction biases."""
    config = decoder(
        "deepseek_v3", 7168, 61, 128, 128, 18432, 129280, q_lora_rank=1536, moe_intermediate_size=2048,
        n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, **LATENT,
    )  # fmt: skip
    attention = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168
    expert = 3 * 7168 * 2048
    layers = 61 * (attention + 2 * 7168) + 3 * 3 * 7168 * 18432 + 58 * (257 * expert + 7168 * 256)
    assert load(config).parameters().at().value == layers + 2 * 129280 * 7168 + 7168


@pytest.mark.parametrize("dense", [2, 3])
def test_layers_of_deepseek_v3_that_are_all_dense_have_no_experts_to_share(dense: int) -> None:
    """Two layers of width 8: 4 heads of 2 + 2 and 2 numbers, latents of 6 and 4, 12 in between, 20 words."""
    small = {**decoder("deepseek_v3", 8, 2, 4, 4, 12, 20), "q_lora_rank": 6, "kv_lora_rank": 4, "qk_nope_head_dim": 2,
             "qk_rope_head_dim": 2, "v_head_dim": 2, "moe_intermediate_size": 6, "n_routed_experts": 4,
             "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": dense,
             "tie_word_embeddings": False}  # fmt: skip
    attention = 8 * 6 + 6 + 6 * 4 * 4 + 8 * 6 + 4 + 4 * 4 * 4 + 4 * 2 * 8
    assert load(small).parameters().at().value == 2 * (attention + 2 * 8 + 3 * 8 * 12) + 2 * 20 * 8 + 8


def deepseek_v3(**said: Any) -> dict[str, Any]:
    return decoder(
        "deepseek_v3", 7168, 61, 128, 128, 18432, 129280, q_lora_rank=1536, moe_intermediate_size=2048,
        n_routed_experts=256, n_shared_experts=1, num_experts_per_tok=8, first_k_dense_replace=3, **LATENT,
        architectures=["DeepseekV3ForMultiTokenPrediction"], **{"num_nextn_predict_layers": 1, **said},
    )  # fmt: skip


def test_a_module_of_deepseek_v3_for_one_more_token_has_its_published_14_billion() -> None:
    """README_WEIGHTS.md: a layer, three norms and a matrix 2D x D of its own; 14 B with embedding and head, 0.9 B each.

    11.5 B of its own are published, 11.61 are in the tensors that it lists; 671 B + 14 B are 685 B.
    """
    attention = 7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128 * 128 * 7168
    layer = attention + 2 * 7168 + 257 * 3 * 7168 * 2048 + 7168 * 256
    own = layer + 3 * 7168 + 2 * 7168 * 7168
    assert load(deepseek_v3()).parameters().at().value == 671_026_404_352 + own
    assert round((own + 2 * 129280 * 7168) / 1e9, 1) == 13.5  # 14 B
    assert round((671_026_404_352 + own + 2 * 129280 * 7168) / 1e9, 1) == 684.5  # 685 B


def peak(model: Model) -> Any:
    return model.peak_memory("data(2)").at().value


@pytest.mark.few(1)
@pytest.mark.parametrize(("many", "tied"), [(1, False), (2, True)])
def test_a_further_token_costs_a_layer_a_join_and_a_head_and_shares_embedding_and_head(many: int, tied: bool) -> None:
    small = {**decoder("deepseek_v3", 8, 3, 4, 4, 12, 20), "q_lora_rank": 6, "kv_lora_rank": 4, "qk_nope_head_dim": 2,
             "qk_rope_head_dim": 2, "v_head_dim": 2, "moe_intermediate_size": 6, "n_routed_experts": 4,
             "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
             "tie_word_embeddings": tied}  # fmt: skip
    named = {"architectures": ["DeepseekV3ForMultiTokenPrediction"], "num_nextn_predict_layers": many}
    made = load({**small, **named})
    deeper = load({**small, "num_hidden_layers": 3 + many})
    sizes = {"B": 2, "L": 4}
    more = many * (2 * 8 * (2 * 8 * 8) + 2 * 8 * 8 * 20)
    assert made.flops().at(**sizes).value == deeper.flops().at(**sizes).value + more
    assert made.flops("training").at(**sizes).value == deeper.flops("training").at(**sizes).value + 3 * more
    parameters = deeper.parameters().at().value + many * (2 * 8 * 8 + 3 * 8)
    assert made.parameters().at().value == parameters
    assert made.communication("data(2)").at(**sizes).value == 2 * parameters  # each weight once
    # The gradient of the first loss is that of the sum, from a region behind it.
    assert peak(made.at(**sizes)) > peak(deeper.at(**sizes)) > peak(load(small).at(**sizes))


@pytest.mark.parametrize(
    ("many", "message"),
    [
        (None, "the configuration lacks num_nextn_predict_layers"),
        (0, "num_nextn_predict_layers is 0"),
        (17, "17 further tokens"),
    ],
)
def test_a_number_of_further_tokens_that_is_missing_or_none_is_refused(many: int | None, message: str) -> None:
    with pytest.raises(SymcommError, match=message):
        load(deepseek_v3(num_nextn_predict_layers=many))


def test_further_tokens_that_are_left_out_are_told_with_the_class_that_has_them() -> None:
    left = load({**deepseek_v3(), "architectures": ["DeepseekV3ForCausalLM"]})
    assert any("left out, as in transformers; the class DeepseekV3ForMultiTokenPrediction has them" in note
               for note in left.notes)  # fmt: skip
    assert any("1 further token is predicted" in note for note in load(deepseek_v3()).notes)


@pytest.mark.parametrize("size", ["small", "medium", "large", "xl", "2_7B"])
def test_the_models_of_the_assignment_have_their_golden_counts(size: str) -> None:
    golden = GOLDEN[f"002.params.{size}"]
    p = golden["params"]
    heads = p["d_model"] // 64
    model = load(decoder("llama", p["d_model"], p["n_layer"], heads, heads, p["d_ff"], p["vocab"]))
    assert model.parameters().at().value == int(golden["value"])


def test_data_parallel_bert_sends_the_golden_bytes() -> None:
    model = load(MASKED, dtype="fp32")
    sent = model.communication("data(k)", accounting="sent_per_rank")
    assert sent.at(k=4).value == int(GOLDEN["003.comm.ddp"]["value"]) == 657_085_788


def test_the_pooler_reads_the_first_position_for_nothing_and_its_gradient_is_reduced() -> None:
    model = load(BERT, dtype="fp32")
    assert model.communication("data(4)").at().value == 4 * 109_482_240
    assert model.flops(op="c").at(B=2, L=16).value == 0
    assert model.flops(op="head:y").at(B=2, L=16).value == 2 * 2 * 768 * 768


def test_fully_sharded_bert_sends_the_golden_bytes_where_units_are_gathered_whole() -> None:
    model = load(MASKED, dtype="fp32")
    units = {"communication": "sent_per_rank", "gathered_weights": "whole_units"}
    whole = model.communication("fsdp(k)", accounting=units).at(k=4).value
    assert whole == int(GOLDEN["003.comm.fsdp"]["value"]) == 985_628_682


def test_what_no_gradient_reads_is_the_whole_difference_to_the_least_that_fully_sharded_needs() -> None:
    model = load(MASKED, dtype="fp32")
    least = model.communication("fsdp(4)", accounting="sent_per_rank").at().value
    d, f = 768, 3072
    unread = (512 + 2) * d + 3 * d + 30522 + 12 * (7 * d + f)  # positions, types, biases and shifts
    assert (985_628_682 - least) / 3 == unread


def test_the_fp32_bytes_of_bert_are_four_for_each_parameter() -> None:
    assert 4 * load(BERT).parameters().at().value == int(GOLDEN["003.bert.fp32"]["value"])


def test_a_tied_head_is_one_tensor_and_an_untied_one_is_a_second() -> None:
    config = decoder("llama", 8, 2, 2, 2, 16, 100)
    untied, tied = load(config), load(config | {"tie_word_embeddings": True})
    assert untied.parameters().at().value - tied.parameters().at().value == 8 * 100
    assert any("tied" in note for note in tied.notes)


def test_biases_follow_the_configuration() -> None:
    config = decoder("llama", 8, 3, 2, 1, 16, 100)
    with_bias = load(config | {"attention_bias": True, "mlp_bias": True})
    assert with_bias.parameters().at().value - load(config).parameters().at().value == 3 * (8 + 4 + 4 + 8 + 16 + 16 + 8)


def test_the_flops_of_a_mixture_are_those_of_the_experts_a_token_goes_to() -> None:
    config = decoder("mixtral", 8, 3, 2, 1, 16, 100, num_local_experts=4, num_experts_per_tok=2)
    flops = load(config).flops().at(B=2, L=6).value
    tokens, attention = 2 * 6, 8 * 8 + 8 * 4 + 8 * 4 + 8 * 8
    layer = 2 * tokens * (attention + 8 * 4 + 2 * 3 * 8 * 16) + 2 * 2 * (2 * 6 * 6 * 8)
    assert flops == 3 * layer + 2 * tokens * 8 * 100


def test_training_flops_and_state_memory_are_sums_over_the_parts() -> None:
    model = load(BERT)
    for quantity, options in (("flops", {"scope": "training"}), ("state_memory", {})):
        parts = [model.part(g.name).derive(quantity, **options).at(B=2, L=16).value for g in model.graph.regions]
        assert model.derive(quantity, **options).at(B=2, L=16).value == sum(parts)


ADDED = ("parameters", "flops", "communication", "state_memory", "activation_memory", "recomputation")


@pytest.mark.parametrize("quantity", ADDED)
def test_an_added_quantity_grows_by_the_same_amount_with_each_layer(quantity: str) -> None:
    options = {"communication": {"strategy": "data(2)"}, "recomputation": {"recomputation": "full"}}.get(quantity, {})
    a, b, c = (
        load(BERT | {"num_hidden_layers": n}).derive(quantity, **options).at(B=2, L=16).value for n in (2, 3, 12)
    )
    assert b > a
    assert c - a == 10 * (b - a)


def test_the_work_of_deriving_does_not_grow_with_the_number_of_layers() -> None:
    few, many = load(BERT), load(BERT | {"num_hidden_layers": 100_000})
    assert len(few.graph.ops) == len(many.graph.ops)
    assert many.parameters().at().value == 109_482_240 + (100_000 - 12) * 7_087_872


def test_the_layers_of_a_llama_have_the_four_all_reduces_of_tensor_parallelism() -> None:
    model = load(decoder("llama", 4096, 32, 32, 8, 14336, 128256))
    layer = model.part("layer").communication("tensor(8)", collective="all-reduce")
    assert layer.at(B=1, L=8).value == 32 * 4 * 8 * 4096 * 2


def test_the_traffic_of_a_whole_model_is_that_of_its_layers_and_its_head() -> None:
    """Each product reads both operands and writes its result: 2 bytes an element."""
    config = {**decoder("llama", 8, 3, 2, 2, 16, 100), "attn_implementation": "eager"}
    tokens, d, f, v = 2 * 6, 8, 16, 100
    linears = 4 * (2 * tokens * d + d * d) + 3 * (tokens * (d + f) + d * f)
    attention = 2 * (2 * tokens * d + 2 * 2 * 6 * 6)  # heads x sequences x positions squared, read or written
    head = tokens * (d + v) + d * v
    assert load(config).traffic().at(B=2, L=6).value == 2 * (3 * (linears + attention) + head)


def test_a_tensor_that_several_parts_have_needs_the_name_of_its_part() -> None:
    model = load(BERT)
    assert model.tensor_size("W^E").at().value == 30522 * 768 * 2
    with pytest.raises(ValuesError, match="several tensors are called y: layer:y, head:y") as caught:
        model.tensor_size("y")
    assert caught.value.hint == "write for instance head:y"
    assert model.tensor_size("head:y").at(B=3).value == 3 * 768 * 2


def test_a_file_a_text_and_a_mapping_are_loaded_alike(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(BERT, indent=2))
    for source in (path, str(path), json.dumps(BERT), BERT, "BertConfig " + json.dumps(BERT)):
        assert sc.load(source).parameters().at().value == 109_482_240


def test_the_class_can_be_named_over_the_configuration() -> None:
    assert sc.load(BERT, architecture="BertForMaskedLM").parameters().at().value == 109_514_298


# -- bad input ---------------------------------------------------------------------------------


def without(*keys: str) -> dict[str, Any]:
    return {k: v for k, v in BERT.items() if k not in keys}


BAD: list[tuple[str, str, str]] = [
    ("missing keys", json.dumps(without("vocab_size", "hidden_size")), "lacks hidden_size, vocab_size"),
    ("no model type", json.dumps(without("model_type")), "lacks model_type"),
    ("unknown architecture", json.dumps(BERT | {"model_type": "berd"}), "unknown architecture 'berd'"),
    ("unknown class", json.dumps(BERT | {"architectures": ["BertForMaskedLN"]}), "'BertForMaskedLN' is not known"),
    ("text for a size", json.dumps(BERT | {"hidden_size": "768"}), 'hidden_size is "768", but a whole'),
    ("a float for a size", json.dumps(BERT | {"hidden_size": 768.0}), "hidden_size is 768.0, but a whole number"),
    ("true for a size", json.dumps(BERT | {"vocab_size": True}), "vocab_size is true, but a whole number is needed"),
    ("a negative size", json.dumps(BERT | {"num_hidden_layers": -12}), "num_hidden_layers is -12"),
    ("a batch of nothing", json.dumps(BERT | {"vocab_size": 0}), "vocab_size is 0"),
    ("a huge size", json.dumps(BERT | {"vocab_size": 10**30}), "vocab_size is 1000000000"),
    ("a list for the type", json.dumps(BERT | {"model_type": ["bert"]}), "model_type is"),
    ("no list of classes", json.dumps(BERT | {"architectures": "BertModel"}), "a list of class names is needed"),
    ("text for a flag", json.dumps(MASKED | {"tie_word_embeddings": "no"}), "true or false is needed"),
    ("a rate above 1", json.dumps(BERT | {"hidden_dropout_prob": 3}), "a probability below 1 is needed"),
    ("heads that do not divide", json.dumps(BERT | {"num_attention_heads": 7}), "768, which 7 heads do not divide"),
    ("key/value heads", json.dumps(decoder("llama", 8, 1, 4, 3, 8, 8)), "3 key/value heads do not divide 4 heads"),
    ("an unknown function", json.dumps(BERT | {"hidden_act": "gelo"}), "unknown activation function 'gelo'"),
    ("cut off", json.dumps(BERT)[:90], "this is no JSON"),
    (
        "not a number", '{"model_type": NaN}',
        '<config>:1: this is no JSON: NaN is no number\n    {"model_type": NaN}\n                   ^\nhint: give',
    ),
    ("very deep", '{"a":' * 10_000 + "1" + "}" * 10_000, "<config>:1: brackets stand more than 60 deep"),
    ("many digits", '{"model_type": ' + "9" * 10_000 + "}", ":1: this is no JSON: a number has more than 4,300"),
    (
        "a model inside",
        json.dumps({"model_type": "llava", "text_config": decoder("llama", 8, 1, 4, 3, 8, 8)}),
        "its text_config is a llama model: give that mapping alone",
    ),
    ("a size of 400 digits", json.dumps(BERT | {"vocab_size": 10**399}), "vocab_size is 1" + "0" * 36 + "..."),
    ("10 MB", '{"a": "' + "x" * 10_000_000 + '"}', "at most 2,000,000 are read"),
]


@pytest.mark.parametrize(("text", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_configurations_are_refused_with_words(text: str, message: str) -> None:
    with pytest.raises(SymcommError) as caught:
        load_known(text)
    assert message in str(caught.value)


def test_a_file_of_ten_megabytes_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b" " * 10_000_000)
    with pytest.raises(SymcommError, match=r"has 10\.0 MB; at most 2 MB are read"):
        sc.load(path)


def test_an_error_points_at_the_key_and_names_what_is_near() -> None:
    text = json.dumps(BERT | {"model_type": "mixtrall"}, indent=1)
    with pytest.raises(SymcommError) as caught:
        read_config(text, "config.json")
    shown = str(caught.value)
    assert "config.json:2" in shown
    assert "^^^^" in shown
    assert "did you mean 'mixtral'" in shown


def test_an_option_of_tables_is_refused() -> None:
    with pytest.raises(ValuesError, match="batch belongs to layer tables"):
        sc.load(BERT, batch="B")


def test_the_document_on_bert_adds_up_to_the_golden_counts_and_bytes() -> None:
    path = Path(__file__).parents[2] / "examples" / "bert-ddp-vs-fsdp" / "bert.md"
    found = [a.quantity.value for a in sc.solve(sc.read_problem(path)).answers() if a.quantity is not None]
    assert found[0] == int(GOLDEN["003.bert.mlm"]["value"])
    assert found[1] == int(GOLDEN["003.comm.ddp"]["value"])
    assert found[2] == int(GOLDEN["003.comm.fsdp"]["value"])
    assert found[3] == 4 * found[4] == 16 * found[0]
    # The peaks: nine bytes a parameter apart. Positions and token types are counted once for each sequence here.
    assert found[5] - found[6] == 9 * found[0]
    assert found[5] == 38_307_685_280 + 64 * 2 * 8 * 512


def test_a_byte_order_mark_is_no_part_of_a_text_or_a_file(tmp_path: Path) -> None:
    text = json.dumps(BERT, indent=2).replace("\n", "\r\n")
    path = tmp_path / "config.json"
    path.write_text("\ufeff" + text, encoding="utf-8")
    table = "\ufeffComputation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\n"
    known = str(load_known(BERT).parameters().at())  # type: ignore[union-attr]
    assert [str(sc.load(source).parameters().at()) for source in ("\ufeff" + text, path)] == [known, known]
    assert str(sc.load(table).parameters().at(D=3, F=5)) == "15 parameters"


def test_what_is_no_model_at_all_is_refused() -> None:
    with pytest.raises(SymcommError, match="a model cannot be read from a list"):
        sc.load([BERT])  # type: ignore[arg-type]
