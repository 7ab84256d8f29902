"""The models of the examples."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from api import Model, load_known, load_model, read_problem
from api import model_load as load

EXAMPLES = Path(__file__).parents[2] / "examples"
HOMEWORK = EXAMPLES / "comp4901y-homework2" / "homework.md"
LAYERS = sorted((EXAMPLES / "layers").glob("*.md"))
SMALL = EXAMPLES.parent / "tests" / "data" / "small_families.json"


GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_head": 4, "n_layer": 4, "n_positions": 16, "vocab_size": 24}
LLAMA = {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": 4, "intermediate_size": 24, "vocab_size": 32, "tie_word_embeddings": False}  # fmt: skip
MIXTRAL = {"model_type": "mixtral", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
           "num_hidden_layers": 2, "intermediate_size": 24, "vocab_size": 32, "num_local_experts": 8,
           "num_experts_per_tok": 2}  # fmt: skip
T5 = {"model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 32,
      "relative_attention_num_buckets": 8}  # fmt: skip
NEOX = {"model_type": "gpt_neox", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2,
        "intermediate_size": 24, "vocab_size": 32}  # fmt: skip
BERT = {"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 16, "num_attention_heads": 2,
        "num_hidden_layers": 2, "intermediate_size": 24, "vocab_size": 32, "max_position_embeddings": 16,
        "type_vocab_size": 2}  # fmt: skip
VIT = {"model_type": "vit", "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2,
       "intermediate_size": 24, "image_size": 16, "patch_size": 4, "num_channels": 3}  # fmt: skip


SHARED = r"""| Computation | Input | Output |
|---|---|---|
| Q = xW^Q | x [B, L, D], W^Q [D, n_H H] | Q [B, L, n_H H] |
| K = xW^K | x [B, L, D], W^K [D, H] | K [B, L, H] |
| V = xW^V | x [B, L, D], W^V [D, H] | V [B, L, H] |
| [Q_1, \dots, Q_{n_H}] = Partition_{-1}(Q) | Q [B, L, n_H H] | Q_i [B, L, H], i = 1, \dots, n_H |
| P_i = softmax(\frac{Q_i K^T}{\sqrt{H}}), i = 1, \dots, n_H | Q_i [B, L, H], K [B, L, H] | P_i [B, L, L] |
| Z_i = P_i V, i = 1, \dots, n_H | P_i [B, L, L], V [B, L, H] | Z_i [B, L, H] |
| Z = Merge_{-1}([Z_1, \dots, Z_{n_H}]) | Z_i [B, L, H], i = 1, \dots, n_H | Z [B, L, n_H H] |
| m = ZW^O | Z [B, L, n_H H], W^O [n_H H, D] | m [B, L, D] |
"""  # all heads share keys and values


@cache
def configured(name: str) -> Model:
    """A model of a configuration: one with experts, with an encoder, with a class token."""
    small = {"gpt_oss": "GptOssForCausalLM", "deepseek": "DeepseekV3ForCausalLM"}
    config = {"mixtral": MIXTRAL, "t5": T5, "vit": VIT}.get(name)
    if config is None:
        family = small[name]
        config = {"architectures": [family], **json.loads(SMALL.read_text())[family]}
    made = load_known(config)
    assert made is not None
    return made


@cache
def falcon() -> Model:
    """A model that adds a row of constants to the scores of each head (ALiBi)."""
    made = load_known({"model_type": "falcon", "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2,
                       "vocab_size": 32, "alibi": True, "multi_query": False}, loss=True)  # fmt: skip
    assert made is not None
    return made


@cache
def shared_keys() -> Model:
    """Attention with one head of keys and values."""
    return load(SHARED)


@cache
def whole(name: str, loss: bool = True) -> Model:
    """A whole model, with its loss or without: embedding, layers, head."""
    made = load_known({"gpt2": GPT2, "llama": LLAMA, "neox": NEOX, "bert": BERT}[name], loss=loss)
    assert made is not None
    return made


@cache
def model(path: Path) -> Model:
    return load_model(read_problem(path), "")


def layer(name: str) -> Model:
    return model(EXAMPLES / "layers" / f"{name}.md")
