"""One record an architecture: where its configuration keeps each size, and which choices its layers make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# Functions that a configuration may name, as they are spelled in a layer table.
ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_new", "gelu_fast": "gelu_fast", "gelu_pytorch_tanh": "gelu",
    "quick_gelu": "quick_gelu", "gelu_python": "gelu_python",
    "silu": "silu", "swish": "silu", "relu": "relu", "relu2": "squared_relu", "tanh": "tanh",
}  # fmt: skip

# What the symbols of every blueprint mean, over the usual meanings.
MEANINGS = {
    "n_pos": "number of learned positions",
    "n_type": "number of token types",
    "n_label": "number of labels",
    "D_q": "query heads times head dimension",
    "D_kv": "key/value heads times head dimension",
    "n_top": "experts each token goes to",
    "F_E": "hidden dimension of an expert",
    "F_S": "hidden dimension of the shared experts",
    "H_R": "head dimension that is rotated",
    "H_V": "head dimension of the values",
    "r_Q": "rank of the queries",
    "r_KV": "rank of the keys and values",
    "N_dense": "number of layers without experts",
    "N_moe": "number of layers with experts",
}

_COMMON = {
    "D": "hidden_size", "N_layer": "num_hidden_layers", "n_H": "num_attention_heads", "F": "intermediate_size",
    "V": "vocab_size",
}  # fmt: skip
_GPT2 = {"D": "n_embd", "N_layer": "n_layer", "n_H": "n_head", "V": "vocab_size", "n_pos": "n_positions"}
_LATENT = {
    "r_KV": "kv_lora_rank", "H": "qk_nope_head_dim", "H_R": "qk_rope_head_dim", "H_V": "v_head_dim",
    "F_E": "moe_intermediate_size", "E": "n_routed_experts", "n_top": "num_experts_per_tok",
}  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A yes or no that a configuration may state: its key (or none) and what holds without it."""

    default: bool
    key: str = ""


@dataclass(frozen=True)
class Architecture:
    """A family of models: the keys of its sizes and the choices of its layers.

    ``sizes`` maps each symbol to the key it must stand under. ``prefix`` is how the class names begin.
    """

    model_type: str
    prefix: str
    sizes: Mapping[str, str] = field(default_factory=lambda: dict(_COMMON))
    norm: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    norms: Literal["before", "after", "around"] = "before"
    learned_positions: bool = False
    token_types: bool = False
    causal: bool = True
    gated: bool = True
    activation_key: str = "hidden_act"
    activation: str = "silu"
    dropout_keys: tuple[str, str, str] = ("", "", "")  # embedding, attention, residual
    dropout: float = 0.0  # without those keys
    qkv_bias: Choice = Choice(False)
    out_bias: Choice = Choice(False)
    mlp_bias: Choice = Choice(False)
    head_norm: bool = False
    head_dim: int | None = None  # without the key head_dim; None is hidden_size over heads
    tied: bool = False  # without the key tie_word_embeddings
    head: str = "ForCausalLM"  # without the key architectures
    mixer: Literal["heads", "latent"] = "heads"
    block: Literal["mlp", "experts", "experts after dense"] = "mlp"
    source: str = ""


_BIAS = Choice(False, "attention_bias")
_YES = Choice(True)

ARCHITECTURES: dict[str, Architecture] = {
    a.model_type: a
    for a in (
        Architecture(
            "bert", "Bert", {**_COMMON, "n_pos": "max_position_embeddings", "n_type": "type_vocab_size"},
            norm="layernorm", norms="after", learned_positions=True, token_types=True, causal=False, gated=False,
            activation="gelu", dropout=0.1,
            dropout_keys=("hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_dropout_prob"),
            qkv_bias=_YES, out_bias=_YES, mlp_bias=_YES, tied=True, head="Model", source="arXiv 1810.04805",
        ),
        Architecture(
            "gpt2", "GPT2", _GPT2, norm="layernorm", learned_positions=True, gated=False,
            activation_key="activation_function", activation="gelu_new", dropout=0.1,
            dropout_keys=("embd_pdrop", "attn_pdrop", "resid_pdrop"),
            qkv_bias=_YES, out_bias=_YES, mlp_bias=_YES, tied=True, head="LMHeadModel",
        ),
        Architecture(
            "llama", "Llama", qkv_bias=_BIAS, out_bias=_BIAS, mlp_bias=Choice(False, "mlp_bias"),
            source="arXiv 2302.13971",
        ),
        Architecture("mistral", "Mistral", source="arXiv 2310.06825"),
        Architecture(
            "mixtral", "Mixtral",
            {**{k: v for k, v in _COMMON.items() if k != "F"}, "F_E": "intermediate_size", "E": "num_local_experts",
             "n_top": "num_experts_per_tok"},
            block="experts", source="arXiv 2401.04088",
        ),
        Architecture("qwen2", "Qwen2", qkv_bias=_YES, source="arXiv 2407.10671"),
        Architecture("qwen3", "Qwen3", qkv_bias=_BIAS, out_bias=_BIAS, head_norm=True, head_dim=128,
                     source="arXiv 2505.09388"),
        Architecture("gemma", "Gemma", qkv_bias=_BIAS, out_bias=_BIAS, activation="gelu_pytorch_tanh", head_dim=256,
                     tied=True, source="arXiv 2403.08295"),
        Architecture("gemma2", "Gemma2", qkv_bias=_BIAS, out_bias=_BIAS, activation_key="hidden_activation",
                     activation="gelu_pytorch_tanh", head_dim=256, tied=True, norms="around",
                     source="arXiv 2408.00118"),
        Architecture("deepseek_v2", "DeepseekV2", {**_COMMON, **_LATENT}, mixer="latent", block="experts after dense",
                     qkv_bias=_BIAS, source="arXiv 2405.04434"),
        Architecture("deepseek_v3", "DeepseekV3", {**_COMMON, **_LATENT}, mixer="latent", block="experts after dense",
                     qkv_bias=_BIAS, source="arXiv 2412.19437"),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Head:
    """What stands behind the last layer; the class name ends in ``suffix``."""

    suffix: str
    kind: Literal["none", "pooler", "masked", "causal", "classes"]
    prefixes: tuple[str, ...] = ()  # only for these; empty for all


HEADS = (
    Head("ForMaskedLM", "masked", ("Bert",)),
    Head("ForSequenceClassification", "classes", ("Bert",)),
    Head("Model", "pooler", ("Bert",)),
    Head("ForCausalLM", "causal", tuple(a.prefix for a in ARCHITECTURES.values() if a.prefix not in ("Bert", "GPT2"))),
    Head("LMHeadModel", "causal", ("GPT2",)),
    Head("Model", "none", tuple(a.prefix for a in ARCHITECTURES.values() if a.prefix != "Bert")),
)


def class_names() -> dict[str, tuple[Architecture, Head]]:
    """Every class name that is read, with its architecture and head.

    >>> architecture, head = class_names()["BertForMaskedLM"]
    >>> architecture.model_type, head.kind
    ('bert', 'masked')
    """
    return {a.prefix + h.suffix: (a, h) for a in ARCHITECTURES.values() for h in HEADS if a.prefix in h.prefixes}
