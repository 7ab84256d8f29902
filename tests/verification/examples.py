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
