"""The models of the examples."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from symcomm.model import Model, load_known
from symcomm.problems.problem import read_problem
from symcomm.problems.solve import load_model

EXAMPLES = Path(__file__).parents[2] / "examples"
HOMEWORK = EXAMPLES / "comp4901y-homework2" / "homework.md"
LAYERS = sorted((EXAMPLES / "layers").glob("*.md"))


GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_head": 4, "n_layer": 4, "n_positions": 16, "vocab_size": 24}
LLAMA = {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": 4, "intermediate_size": 24, "vocab_size": 32, "tie_word_embeddings": False}  # fmt: skip
MIXTRAL = {"model_type": "mixtral", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2,
           "num_hidden_layers": 2, "intermediate_size": 24, "vocab_size": 32, "num_local_experts": 8,
           "num_experts_per_tok": 2}  # fmt: skip
T5 = {"model_type": "t5", "d_model": 16, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 32,
      "relative_attention_num_buckets": 8}  # fmt: skip
VIT = {"model_type": "vit", "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2,
       "intermediate_size": 24, "image_size": 16, "patch_size": 4, "num_channels": 3}  # fmt: skip


@cache
def configured(name: str) -> Model:
    """A model of a configuration: one with experts, with an encoder, with a class token."""
    made = load_known({"mixtral": MIXTRAL, "t5": T5, "vit": VIT}[name])
    assert made is not None
    return made


@cache
def whole(name: str) -> Model:
    """A whole model with its loss: embedding, layers, head."""
    made = load_known(GPT2 if name == "gpt2" else LLAMA, loss=True)
    assert made is not None
    return made


@cache
def model(path: Path) -> Model:
    return load_model(read_problem(path), "")


def layer(name: str) -> Model:
    return model(EXAMPLES / "layers" / f"{name}.md")
