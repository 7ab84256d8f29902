"""A printed module tree gives the counts of its modules; damage is repaired aloud, everything else is refused."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest
from api import LEAVES, Model, Module, SymcommError, ValuesError, count, parse_module
from hypothesis import given, settings
from hypothesis import strategies as st

import symcomm as sc

DATA = Path(__file__).parents[1] / "data"
GOLDEN = {g["id"]: g for g in json.loads((DATA / "golden_models.json").read_text())}
PRINTED = (DATA / "bert_printed.txt").read_text()
LAYER = "encoder.layer.0"

LLAMA = """LlamaForCausalLM(
  (model): LlamaModel(
    (embed_tokens): Embedding(128256, 4096)
    (layers): ModuleList(
      (0-31): 32 x LlamaDecoderLayer(
        (self_attn): LlamaAttention(
          (q_proj): Linear(in_features=4096, out_features=4096, bias=False)
          (k_proj): Linear(in_features=4096, out_features=1024, bias=False)
          (v_proj): Linear(in_features=4096, out_features=1024, bias=False)
          (o_proj): Linear(in_features=4096, out_features=4096, bias=False)
        )
        (mlp): LlamaMLP(
          (gate_proj): Linear(in_features=4096, out_features=14336, bias=False)
          (up_proj): Linear(in_features=4096, out_features=14336, bias=False)
          (down_proj): Linear(in_features=14336, out_features=4096, bias=False)
          (act_fn): SiLU()
        )
        (input_layernorm): LlamaRMSNorm((4096,), eps=1e-05)
        (post_attention_layernorm): LlamaRMSNorm((4096,), eps=1e-05)
      )
    )
    (norm): LlamaRMSNorm((4096,), eps=1e-05)
    (rotary_emb): LlamaRotaryEmbedding()
  )
  (lm_head): Linear(in_features=4096, out_features=128256, bias=False)
)
"""

GPT2 = """GPT2Model(
  (wte): Embedding(50257, 768)
  (wpe): Embedding(1024, 768)
  (drop): Dropout(p=0.1, inplace=False)
  (h): ModuleList(
    (0-11): 12 x GPT2Block(
      (ln_1): LayerNorm((768,), eps=1e-05, elementwise_affine=True)
      (attn): GPT2Attention(
        (c_attn): Conv1D(nf=2304, nx=768)
        (c_proj): Conv1D(nf=768, nx=768)
        (attn_dropout): Dropout(p=0.1, inplace=False)
        (resid_dropout): Dropout(p=0.1, inplace=False)
      )
      (ln_2): LayerNorm((768,), eps=1e-05, elementwise_affine=True)
      (mlp): GPT2MLP(
        (c_fc): Conv1D(nf=3072, nx=768)
        (c_proj): Conv1D(nf=768, nx=3072)
        (act): NewGELUActivation()
        (dropout): Dropout(p=0.1, inplace=False)
      )
    )
  )
  (ln_f): LayerNorm((768,), eps=1e-05, elementwise_affine=True)
)
"""


def load(text: str, **options: object) -> Model:
    made = sc.load(text, **options)
    assert isinstance(made, Model)
    return made


def test_the_damaged_print_of_bert_has_two_readings() -> None:
    model = load(PRINTED)
    assert model.parameters().at().value == int(GOLDEN["003.bert.total"]["value"]) == 109_482_240
    assert model.literal is not None
    assert model.literal.parameters().at().value == 57_518_592


def test_what_was_repaired_is_said_with_its_lines() -> None:
    notes = "\n".join(load(PRINTED).notes)
    assert "line 27: (intermediate) stands in a ModuleList" in notes
    assert "line 31: (output) stands in a ModuleList" in notes
    assert "the bracket that closes BertLayer came too early" in notes
    assert "settings that run on in the next line are read as one: lines 21, 33" in notes


@pytest.mark.parametrize(
    ("golden", "path"),
    [
        ("word", "embeddings.word_embeddings"),
        ("position", "embeddings.position_embeddings"),
        ("token_type", "embeddings.token_type_embeddings"),
        ("layernorm", "embeddings.LayerNorm"),
        ("embeddings", "embeddings"),
        ("attention", f"{LAYER}.attention"),
        ("intermediate", f"{LAYER}.intermediate"),
        ("output", f"{LAYER}.output"),
        ("pooler", "pooler"),
        ("encoder", "encoder"),
    ],
)
def test_each_module_of_bert_has_its_golden_count(golden: str, path: str) -> None:
    module = parse_module(PRINTED).repaired.at(path)
    assert module is not None
    assert count(module) == int(GOLDEN[f"003.bert.{golden}"]["value"])


def test_the_repeated_layer_and_its_projections_have_their_golden_counts() -> None:
    tree = parse_module(PRINTED).repaired
    layer, own = tree.at(LAYER), tree.at(f"{LAYER}.attention.self")
    assert layer is not None
    assert own is not None
    assert count(layer) == 12 * int(GOLDEN["003.bert.layer"]["value"])
    assert count(own) == int(GOLDEN["003.bert.qkv"]["value"])


def test_a_recognised_tree_gives_the_graph_of_its_architecture() -> None:
    printed, config = load(PRINTED), load(LLAMA)
    assert printed.graph.flow
    assert config.graph.flow
    assert printed.flops("training").at(B=1, L=128, n_H=12).value > 0
    assert config.parameters().at().value == 8_030_261_248
    assert config.part("layer").communication("tensor(8)").at(B=1, L=8, n_H=32).value == 32 * 4 * 8 * 4096 * 2


def test_gpt2_is_recognised_by_its_turned_linear_layers() -> None:
    assert load(GPT2).graph.flow
    assert load(GPT2).parameters().at().value == 124_439_808


def test_a_damaged_tree_that_is_not_the_architecture_is_not_taken_for_it() -> None:
    literal = load(PRINTED).literal
    assert literal is not None
    assert not literal.graph.flow


def test_a_tree_without_an_architecture_knows_its_weights_only() -> None:
    text = "Net(\n  (a): Linear(in_features=3, out_features=5, bias=True)\n  (b): Tanh()\n)"
    model = load(text, dtype="fp32")
    assert model.parameters().at().value == 20
    assert model.communication("data(2)").at().value == 80
    assert model.communication("fsdp(2)").at().value == 3 * 80
    with pytest.raises(ValuesError, match="not what feeds what"):
        model.flops()
    with pytest.raises(ValuesError, match="not what feeds what"):
        model.communication("tensor(2)")
    with pytest.raises(ValuesError, match="not what feeds what"):
        model.communication("pipeline(2, microbatches=2)")
    with pytest.raises(ValuesError, match=r"there is no time to search for: .* not what feeds what"):
        sc.search(model, devices=2, batch=4, device="A100-80GB-SXM", capacity_is="nominal_GB")


@pytest.mark.parametrize(
    ("text", "count"),  # counted in PyTorch 2.13
    [
        ("Linear(in_features=8, out_features=4, bias=True)", 36),
        ("LSTM(8, 16, num_layers=2)", 3840),
        ("LSTM(8, 16, proj_size=5, num_layers=3, bidirectional=True)", 6752),
        ("GRU(8, 16, bias=False, bidirectional=True)", 2304),
        ("RNN(4, 6, num_layers=2)", 156),
        ("Bilinear(in1_features=4, in2_features=5, out_features=6, bias=True)", 126),
        ("ConvTranspose2d(8, 12, kernel_size=(3, 2), stride=(1, 1), groups=4)", 156),
        ("EmbeddingBag(10, 4, mode='mean')", 40),
        ("PReLU(num_parameters=7)", 7),
        ("InstanceNorm2d(5, eps=1e-05, momentum=0.1, affine=True, track_running_stats=False)", 10),
    ],
)
def test_a_layer_that_prints_on_one_line_is_a_module(text: str, count: int) -> None:
    assert load(text).parameters().at().value == count
    assert load(f"Net(\n  (a): {text}\n)").parameters().at().value == count


def test_nested_repeats_multiply() -> None:
    text = (
        "Net(\n  (blocks): ModuleList(\n    (0-2): 3 x Block(\n      (experts): ModuleList(\n"
        "        (0-7): 8 x Linear(in_features=2, out_features=2, bias=False)\n      )\n"
        "      (gate): Linear(in_features=2, out_features=8, bias=False)\n    )\n  )\n)"
    )
    assert load(text).parameters().at().value == 3 * (8 * 4 + 16)


@pytest.mark.parametrize(
    ("line", "parameters"),
    [
        ("Conv2d(3, 8, kernel_size=(5, 5), stride=(1, 1))", 3 * 8 * 25 + 8),
        ("Conv2d(4, 8, kernel_size=(3, 3), stride=(1, 1), groups=2, bias=False)", 2 * 8 * 9),
        ("Conv1d(3, 8, kernel_size=(5,), stride=(1,))", 3 * 8 * 5 + 8),
        ("LayerNorm((4, 5), eps=1e-05, elementwise_affine=True)", 40),
        ("LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=False)", 4),
        ("Qwen2RMSNorm((16,), eps=1e-06)", 16),
        ("BatchNorm2d(6, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)", 12),
        ("Embedding(7, 3)", 21),
    ],
)
def test_each_known_layer_has_its_weights(line: str, parameters: int) -> None:
    assert count(parse_module(f"Net(\n  (0): {line}\n)").literal) == parameters


def test_every_layer_without_weights_is_read_bare() -> None:
    for leaf in LEAVES:
        if leaf.shapes.__name__ == "_nothing":
            assert count(Module("a", leaf.kind)) == 0


def test_a_layer_of_ones_own_is_declared_by_its_shapes() -> None:
    text = "Net(\n  (a): Mixer()\n  (b): Linear(in_features=2, out_features=2, bias=False)\n)"
    assert load(text, leaves={"Mixer": [(3, 4), (4,)]}).parameters().at().value == 20


def test_a_printed_tree_is_loaded_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "model.txt"
    path.write_text("```\n" + PRINTED + "```\n")
    assert sc.load(path).parameters().at().value == 109_482_240


# -- bad input ---------------------------------------------------------------------------------

HEAD = "Net(\n  (a): "
BAD = [
    ("cut in the middle", PRINTED[: len(PRINTED) // 2], "the module text ends inside BertAttention"),
    ("cut in the middle, counted", PRINTED[: len(PRINTED) // 2], "5 brackets are not closed"),
    ("a bracket too many", HEAD + "ReLU()\n)\n)\n", "this bracket closes nothing"),
    ("an unknown layer", HEAD + "Mambo()\n)", "unknown layer class 'Mambo'"),
    ("how to declare it", HEAD + "Mambo()\n)", "leaves={'Mambo': [(768, 768), (768,)]}"),
    ("a misspelled layer", HEAD + "Liner()\n)", "did you mean 'Linear' or 'Bilinear'?"),
    ("a size that lacks", HEAD + "Linear(in_features=3)\n)", "Linear does not say its out_features"),
    ("a negative size", HEAD + "Linear(in_features=-3, out_features=2)\n)", "in_features of Linear is -3"),
    ("text for a size", HEAD + "Embedding(abc, 2)\n)", "num_embeddings of Embedding is abc"),
    ("a flag that is none", HEAD + "Linear(in_features=3, out_features=2, bias=7)\n)", "bias of Linear is 7"),
    ("a count that is wrong", "Net(\n  (0-3): 3 x Linear(in_features=1, out_features=1)\n)", "are 4 modules, but 3 x"),
    ("a count of nothing", "Net(\n  (0): 0 x Linear(in_features=1, out_features=1)\n)", "a module 0 times"),
    ("no module", HEAD + "Linear(in_features==3)\n)", "`=` cannot stand here in a module tree"),
    ("very deep", "A(\n(a): " * 10_000, "brackets stand more than 60 deep"),
    ("10 MB", HEAD + "x" * 10_000_000, "at most 2,000,000 are read"),
    ("no weights", HEAD + "ReLU()\n)", "Net has no weights"),
]


@pytest.mark.parametrize(("text", "message"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_bad_module_texts_are_refused_with_words(text: str, message: str) -> None:
    with pytest.raises(SymcommError) as caught:
        sc.load(text)
    assert message in str(caught.value)


def test_an_error_has_a_caret_under_the_layer() -> None:
    with pytest.raises(SymcommError) as caught:
        sc.load(HEAD + "Mambo()\n)")
    assert "  (a): Mambo()\n           ^^^^^" in str(caught.value)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, len(PRINTED) - 3))
def test_a_print_cut_anywhere_is_an_error_and_never_a_smaller_model(place: int) -> None:
    text = PRINTED[:place].rstrip()
    with pytest.raises(SymcommError):
        parse_module(text)


@settings(max_examples=30, deadline=None)
@given(st.text("()[]:=,x 019-AaLinear\n", max_size=80))
def test_any_text_is_read_or_refused_with_a_symcomm_error(text: str) -> None:
    with contextlib.suppress(SymcommError):
        parse_module("Net(\n" + text)


def test_an_unrolled_model_of_very_many_weights_is_refused_with_a_hint() -> None:
    rows = "".join(f"  (l{n}): Linear(in_features=2, out_features=2, bias=True)\n" for n in range(3000))
    with pytest.raises(SymcommError, match="more than 5,000 different weights") as error:
        sc.load(f"Net(\n{rows})")
    assert "(0-11): 12 x Block(" in error.value.hint


def test_a_repeat_beyond_its_bound_shows_the_number_as_written() -> None:
    with pytest.raises(SymcommError, match="a module 100000000000 times") as error:
        sc.load("Net(\n  (0-99999999999): 100000000000 x Linear(in_features=2, out_features=2, bias=True)\n)")
    assert error.value.hint == "a layer stands 1 to 1,000,000 times"


# -- what a print leaves out -------------------------------------------------------------------

GPT2_HEAD = GPT2.replace("GPT2Model(", "GPT2LMHeadModel(\n  (transformer): GPT2Model(", 1)[:-2] + (
    "  )\n  (lm_head): Linear(in_features=768, out_features=50257, bias=False)\n)\n"
)


def printed(name: str, *children: str) -> str:
    return f"{name}(\n" + "".join(f"  {child}\n" for child in children) + ")\n"


WORDS = "(words): Embedding(100, 8)"
HEAD_OF_WORDS = "(lm_head): Linear(in_features=8, out_features=100, bias=False)"


def test_a_tied_head_of_a_known_class_counts_once_and_the_note_says_that_no_print_shows_it() -> None:
    model = load(GPT2_HEAD)
    assert model.graph.flow
    assert model.parameters().at().value == 124_439_808
    told = "lm_head: a print does not show whether this is the word embedding (tied); read as one tensor, which GPT2LM"
    assert any(note.startswith(told) for note in model.notes)


def test_a_head_that_may_be_tied_counts_and_is_told() -> None:
    model = load(printed("Net", WORDS, HEAD_OF_WORDS))
    assert model.parameters().at().value == 2 * 800
    assert any("lm_head: a print does not show" in n and "counted as a tensor of its own" in n for n in model.notes)
    assert any("a weight that is none, or is used twice" in note for note in model.notes)


def test_an_old_print_without_the_sizes_of_its_products_is_read_by_its_class() -> None:
    old = re.sub(r"Conv1D\(nf=\d+, nx=\d+\)", "Conv1D()", GPT2)
    assert load(old).parameters().at().value == 124_439_808
    assert any("Conv1D is printed without its sizes" in note for note in load(old).notes)
    llama = LLAMA.replace("LlamaRMSNorm((4096,), eps=1e-05)", "LlamaRMSNorm()")
    assert load(llama).parameters().at().value == 8_030_261_248


@pytest.mark.parametrize(
    ("line", "parameters", "note"),
    [
        ("FalconLinear(in_features=3, out_features=5, bias=False)", 15, "FalconLinear is read as a Linear"),
        ("OPTLearnedPositionalEmbedding(50, 8)", 400, "OPTLearnedPositionalEmbedding is read as a Embedding"),
        ("BloomLayerNorm((8,), eps=1e-05, elementwise_affine=True)", 16, "BloomLayerNorm is read as a LayerNorm"),
        ("T5LayerNorm()", 8, "T5LayerNorm is printed without its size: a scale as wide as the embedding, 8"),
        ("OlmoLayerNorm()", 0, ""),
        ("BloomGelu()", 0, ""),
    ],
)
def test_a_class_that_is_printed_like_a_known_layer_is_read_as_one(line: str, parameters: int, note: str) -> None:
    model = load(printed("Net", WORDS, f"(it): {line}"))
    assert model.parameters().at().value == 800 + parameters
    assert not note or any(said.startswith(note) for said in model.notes)


MAMBA = """MambaModel(
  (embeddings): Embedding(100, 8)
  (mixer): MambaMixer(
    (conv1d): Conv1d(16, 16, kernel_size=(4,), stride=(1,), groups=16)
    (in_proj): Linear(in_features=8, out_features=32, bias=False)
    (x_proj): Linear(in_features=16, out_features=9, bias=False)
    (dt_proj): Linear(in_features=1, out_features=16, bias=True)
    (out_proj): Linear(in_features=16, out_features=8, bias=False)
  )
)
"""


def test_weights_that_are_no_modules_are_counted_where_the_modules_say_how_large_they_are() -> None:
    """A_log is 16 channels by (9 - 1) / 2 states, D one a channel; attention has three products in one."""
    modules = 800 + (16 * 4 + 16) + 8 * 32 + 16 * 9 + (16 + 16) + 16 * 8
    assert load(MAMBA).parameters().at().value == modules + 16 * 4 + 16
    assert any("A_log and D of MambaMixer are no modules" in note for note in load(MAMBA).notes)
    out = "(out_proj): NonDynamicallyQuantizableLinear(in_features=8, out_features=8, bias=True)"
    attention = printed("MultiheadAttention", out)
    assert load(attention).parameters().at().value == 4 * (64 + 8)


def test_weights_that_are_no_modules_and_have_no_size_are_named() -> None:
    model = load(printed("ViTModel", "(e): ViTEmbeddings(\n    (projection): Conv2d(3, 8, kernel_size=(4, 4))\n  )"))
    assert model.parameters().at().value == 8 * 3 * 16 + 8
    told = "cls_token and position_embeddings of ViTEmbeddings are no modules: a print does not show them, and they are"
    assert any(note.startswith(told) for note in model.notes)


def test_experts_and_routers_are_refused_because_no_print_shows_their_weights() -> None:
    text = printed("Net", WORDS, "(gate): MixtralTopKRouter()", "(experts): MixtralExperts(\n  (act_fn): SiLU()\n)")
    with pytest.raises(SymcommError, match="a print shows none of the weights of MixtralTopKRouter") as caught:
        load(text)
    assert "leaves={'MixtralTopKRouter': [(8, 768)]}" in caught.value.hint
    said = {"MixtralTopKRouter": [(4, 8)], "MixtralExperts": [(4, 32, 8), (4, 8, 16)]}
    assert load(text, leaves=said).parameters().at().value == 800 + 32 + 4 * 48 * 8


def test_every_weight_of_a_tree_with_repeats_is_reduced() -> None:
    text = printed("Net", "(a): Linear(in_features=2, out_features=3)", "(b): ModuleList(\n"
                   "    (0-3): 4 x Linear(in_features=5, out_features=7)\n  )")  # fmt: skip
    assert load(text).communication("data(2)").at().value == 2 * (9 + 4 * 42)


def test_a_print_exchanges_what_a_table_with_its_weights_does():
    rows = (
        "x = z C\tz [B, 1], C \\in \\mathbb{Z}^{1 \\times 8}\tx [B, 8]\n"
        "y = x W\tx [B, 8], W [8, 4]\ty [B, 4]\n"
        "u = z A\tA \\in \\mathbb{Z}^{1 \\times 4}\tu [B, 4]\n"
        "v = u \\odot b\tu [B, 4], b [4]\tv [B, 4]\n"
    )
    table = load("Computation\tInput\tOutput\n" + rows)
    printed = load("Net(\n  (fc): Linear(in_features=8, out_features=4)\n)")
    for strategy in ("data(k)", "fsdp(k)", "zero-1(k)"):
        for accounting in ("payload", "sent_per_rank"):
            made = printed.communication(strategy, accounting=accounting)
            assert made.expr == table.communication(strategy, accounting=accounting).expr != 0
        assert printed.state_memory(strategy, "mixed_adam").expr == table.state_memory(strategy, "mixed_adam").expr


@pytest.mark.long
def test_a_thousand_different_layers_are_read():
    layers = "".join(f"  (fc{n}): Linear(in_features=8, out_features={n + 1})\n" for n in range(1000))
    made = load(f"Net(\n{layers})")
    assert made.parameters().at().value == sum(8 * n + n for n in range(1, 1001))
    assert len(made.graph.weights) == 2000


BART = """{kind}(
  (shared): BartScaledWordEmbedding(50265, 1024, padding_idx=1)
  (encoder): BartEncoder(
    (embed_tokens): BartScaledWordEmbedding(50265, 1024, padding_idx=1)
    (layernorm_embedding): LayerNorm((1024,), eps=1e-05, elementwise_affine=True)
  )
  (decoder): BartDecoder(
    (embed_tokens): BartScaledWordEmbedding(50265, 1024, padding_idx=1)
    (layernorm_embedding): LayerNorm((1024,), eps=1e-05, elementwise_affine=True)
  ){head}
)
"""


@pytest.mark.parametrize(
    ("kind", "head"),
    [("BartModel", ""),
     ("BartForConditionalGeneration", "\n  (lm_head): Linear(in_features=1024, out_features=50265, bias=False)")],
)  # fmt: skip
def test_the_shared_embedding_of_an_encoder_and_a_decoder_is_one_tensor(kind: str, head: str):
    """Three times, it was 102 942 720 parameters too many."""
    made = sc.load(BART.replace("{kind}", kind).replace("{head}", head))
    assert made.parameters().at().value == 50265 * 1024 + 4 * 1024
    assert 2 * 50265 * 1024 == 102_942_720
