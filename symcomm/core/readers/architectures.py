"""One record an architecture: where its configuration keeps each size, and which choices its layers make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any, Literal

from symcomm.core.notation import USUAL
from symcomm.core.records import dataclass

# Functions that a configuration may name, as they are spelled in a layer table.
ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_new", "gelu_fast": "gelu_fast", "gelu_pytorch_tanh": "gelu",
    "quick_gelu": "quick_gelu", "gelu_python": "gelu_python",
    "silu": "silu", "swish": "silu", "relu": "relu", "relu2": "squared_relu", "tanh": "tanh",
}  # fmt: skip

# What the symbols of every blueprint mean.
MEANINGS = {
    **{name: USUAL[name] for name in ("N_layer", "B", "L", "D", "n_H", "n_kv", "H", "F", "V", "E")},
    "n_pos": "number of learned positions",
    "n_type": "number of token types",
    "n_label": "number of labels",
    "n_bucket": "number of relative positions",
    "D_q": "query heads times head dimension",
    "D_kv": "key/value heads times head dimension",
    "D_E": "width of the word embedding",
    "C_P": "numbers of a patch: channels times its pixels",
    "n_top": "experts each token goes to",
    "F_E": "hidden dimension of an expert",
    "F_S": "hidden dimension of the shared experts",
    "H_R": "head dimension that is rotated",
    "H_V": "head dimension of the values",
    "r_Q": "rank of the queries",
    "r_KV": "rank of the keys and values",
    "N_dense": "number of layers without experts",
    "N_moe": "number of layers with experts",
    "N_sliding": "number of layers with a window",
    "N_full": "number of layers that see all positions",
    "L_w": "positions in the window of a query",
    "N_enc": "number of layers of the encoder",
    "N_dec": "number of layers of the decoder",
    "L_enc": "sequence length of the encoder",
    "L_dec": "sequence length of the decoder",
}

Keys = Mapping[str, str]
HeadKind = Literal["none", "pooler", "masked", "causal", "further", "classes", "first", "score", "tokens"]

_HEADS: Mapping[str, HeadKind] = {"ForCausalLM": "causal", "Model": "none", "ForSequenceClassification": "score"}
_COMMON: Keys = {
    "D": "hidden_size", "N_layer": "num_hidden_layers", "n_H": "num_attention_heads", "F": "intermediate_size",
    "V": "vocab_size",
}  # fmt: skip
_BERT: Keys = {**_COMMON, "n_pos": "max_position_embeddings", "n_type": "type_vocab_size"}
_ROUTED: Keys = {s: k for s, k in _COMMON.items() if s != "F"}
_GPT2: Keys = {"D": "n_embd", "N_layer": "n_layer", "n_H": "n_head", "F": "n_inner", "V": "vocab_size"}
_EXPERTS: Keys = {
    "F_E": "moe_intermediate_size", "E": "num_experts|num_local_experts", "n_top": "num_experts_per_tok",
}  # fmt: skip
_LATENT: Keys = {
    "r_KV": "kv_lora_rank", "H": "qk_nope_head_dim", "H_R": "qk_rope_head_dim", "H_V": "v_head_dim",
    "F_E": "moe_intermediate_size", "E": "n_routed_experts", "n_top": "num_experts_per_tok",
}  # fmt: skip


@dataclass(frozen=True)
class Switch:
    """A yes or no that a configuration may state: its key (or none) and what holds without it."""

    default: bool
    key: str = ""


@dataclass(frozen=True)
class Window:
    """The layers of a family that see only a window of positions, and its size."""

    size: int | None = None  # without the key ``sliding_window``
    sees: Callable[[int, int], bool] | None = None  # by a layer's place and the next number; all layers without it
    key: str = ""
    usual: int = 0  # without the key
    switched: bool = False  # it holds only where ``use_sliding_window`` says so


def _all_but_each(layer: int, every: int) -> bool:
    """Each layer but the last one of every so many."""
    return (layer + 1) % every != 0


@dataclass(frozen=True)
class Architecture:
    """A family of models: the keys of its sizes and the choices of its layers.

    ``sizes`` maps each symbol to the key it must stand under (``a|b``: either spelling). ``prefix`` is how the class
    names begin, ``heads`` says what stands behind the layers by how they end; the first is meant where a configuration
    names none. ``sdpa`` says whether its class attends by ``scaled_dot_product_attention`` unless told otherwise
    (``_supports_sdpa`` in transformers 5.23.0). ``norms`` says where the layers are normalised: at a branch's
    ``input``, at its ``output`` before the sum, or the ``sum``. In ``parallel`` layers attention and feed-forward read
    one stream. ``drops`` are the key and the usual rate of each dropout: embedding, attention, mixed, fed.
    """

    model_type: str
    prefix: str
    sizes: Keys = field(default_factory=lambda: dict(_COMMON))
    heads: Mapping[str, HeadKind] = field(default_factory=lambda: _HEADS)
    norm: Literal["layernorm", "rmsnorm"] = "rmsnorm"
    norms: tuple[Literal["input", "output", "sum"], ...] = ("input",)
    sums: Switch = Switch(False)  # the sums are normalised, whatever ``norms`` says
    affine: Switch = Switch(True)  # norms have a scale
    parallel: Switch = Switch(False)
    one_norm: Switch = Switch(False)  # of the two branches of a parallel layer
    positions: Literal["learned", "rotary", "relative"] = "rotary"
    more_positions: int = 0  # rows of the table beyond those that the configuration names
    first_position: int = 0  # the row of the first position: those before it are for padding
    token_types: bool = False
    patches: bool = False
    stacks: Literal["decoder", "encoder", "both"] = "decoder"
    gated: Switch = Switch(True)
    activation_key: str = "hidden_act"
    activation: str = "silu"
    pooled: Literal["tanh", "relu"] = "tanh"
    drops: Mapping[str, tuple[str, float]] = field(default_factory=lambda: {"attention": ("attention_dropout", 0.0)})
    qkv_bias: Switch = Switch(False)
    out_bias: Switch = Switch(False)
    mlp_bias: Switch = Switch(False)
    head_bias: bool = False
    router_bias: bool = False  # and the experts
    gates: str = "softmax"  # the function of the router, which weighs the experts' results
    sinks: bool = False
    clipped: tuple[str, int] | None = None  # the key of how far experts let gate and up go, and its usual value
    head_norm: Literal["", "each", "all"] = ""  # queries and keys are normalised: each head, or all heads at once
    grouped: str = "num_key_value_heads"  # the key of the key/value heads; empty where each query head has its own
    head_dim: int | None = None  # without the key head_dim; None is hidden_size over heads
    feedforward: int = 0  # F is so many D without its key; 0 where the key must be there
    tied: bool = False  # without the key tie_word_embeddings
    mixer: Literal["heads", "latent"] = "heads"
    sdpa: bool = True
    shared: Literal["", "plain", "gated"] = ""  # the experts every token goes to
    window: Window | None = None
    rotated: tuple[str, float] = ("partial_rotary_factor", 1)  # the share of a head that turns: its key, usual value
    rephrased: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None  # entries that follow from its own
    notes: tuple[str, ...] = ()
    source: str = ""

    @property
    def routed(self) -> bool:
        """Whether layers may have experts."""
        return "E" in self.sizes


_BIAS = Switch(False, "attention_bias")
_BIASED = Switch(True, "attention_bias")
_LAST = Window(4096, lambda n, first: n >= first, "max_window_layers", 28, switched=True)
_YES = Switch(True)
_NO = Switch(False)
_QKV = "queries, keys and values are one fused matrix, read as three: parameters and FLOPs are the same"
_SWIGLU = "gate and up are one fused matrix, read as two: parameters and FLOPs are the same"
_BERT_DROPS = {
    "embedding": ("hidden_dropout_prob", 0.1), "attention": ("attention_probs_dropout_prob", 0.1),
    "mixed": ("hidden_dropout_prob", 0.1), "fed": ("hidden_dropout_prob", 0.1),
}  # fmt: skip
_BERT_HEADS: Mapping[str, HeadKind] = {
    "Model": "pooler", "ForMaskedLM": "masked", "ForSequenceClassification": "classes",
    "ForTokenClassification": "tokens",
}  # fmt: skip


def _pdrop(rate: float) -> dict[str, tuple[str, float]]:
    return {"embedding": ("embd_pdrop", rate), "attention": ("attn_pdrop", rate), "mixed": ("resid_pdrop", rate),
            "fed": ("resid_pdrop", rate)}  # fmt: skip


def _falcon(said: Mapping[str, Any]) -> dict[str, Any]:
    """Falcon's layers: one key/value head unless it says otherwise, and one norm or two of parallel branches."""
    if said.get("new_decoder_architecture"):
        return {"one_norm": said.get("num_ln_in_parallel_attn") == 1}
    return {"num_kv_heads": 1 if said.get("multi_query", True) else said.get("num_attention_heads")}


def _t5(said: Mapping[str, Any]) -> dict[str, Any]:
    """The words of ``feed_forward_proj``: ``relu``, ``gated-gelu``, whose gelu is ``gelu_new`` in the library."""
    *gated, name = str(said.get("feed_forward_proj") or said.get("dense_act_fn") or "relu").split("-")
    name = "gelu_new" if said.get("feed_forward_proj") == "gated-gelu" else name
    return {"is_gated_act": bool(gated) or bool(said.get("is_gated_act")), "dense_act_fn": name}


ARCHITECTURES: dict[str, Architecture] = {
    a.model_type: a
    for a in (
        Architecture(
            "bert", "Bert", _BERT, _BERT_HEADS, norm="layernorm", norms=("sum",), positions="learned", token_types=True,
            stacks="encoder", gated=_NO, activation="gelu", drops=_BERT_DROPS, qkv_bias=_YES, out_bias=_YES,
            mlp_bias=_YES, grouped="", tied=True, source="arXiv 1810.04805",
        ),
        Architecture(
            "roberta", "Roberta", _BERT, _BERT_HEADS, norm="layernorm", norms=("sum",), positions="learned",
            first_position=2, token_types=True, stacks="encoder", gated=_NO, activation="gelu", drops=_BERT_DROPS,
            qkv_bias=_YES, out_bias=_YES, mlp_bias=_YES, grouped="", tied=True, source="arXiv 1907.11692",
        ),
        Architecture(
            "distilbert", "DistilBert",
            {"D": "dim", "N_layer": "n_layers", "n_H": "n_heads", "F": "hidden_dim", "V": "vocab_size",
             "n_pos": "max_position_embeddings"},
            {**_BERT_HEADS, "Model": "none"}, norm="layernorm", norms=("sum",), positions="learned", stacks="encoder",
            gated=_NO, activation_key="activation", activation="gelu", pooled="relu",
            drops={"embedding": ("dropout", 0.1), "attention": ("attention_dropout", 0.1), "fed": ("dropout", 0.1)},
            qkv_bias=_YES, out_bias=_YES, mlp_bias=_YES, grouped="", tied=True, source="arXiv 1910.01108",
        ),
        Architecture(
            "vit", "ViT", {s: k for s, k in _COMMON.items() if s != "V"},
            {"Model": "pooler", "ForImageClassification": "first"}, norm="layernorm", positions="learned", patches=True,
            stacks="encoder", gated=_NO, activation="gelu",
            drops={place: (key, 0.0) for place, (key, _) in _BERT_DROPS.items()}, qkv_bias=Switch(True, "qkv_bias"),
            out_bias=_YES, mlp_bias=_YES, grouped="", source="arXiv 2010.11929",
        ),
        Architecture(
            "gpt2", "GPT2", {**_GPT2, "n_pos": "n_positions"},
            {"LMHeadModel": "causal", "Model": "none", "ForSequenceClassification": "score"}, norm="layernorm",
            positions="learned", gated=_NO, activation_key="activation_function", activation="gelu_new",
            drops=_pdrop(0.1), qkv_bias=_YES, out_bias=_YES, mlp_bias=_YES, grouped="", feedforward=4, tied=True,
            notes=(_QKV,),
        ),
        Architecture(
            "gptj", "GPTJ", _GPT2, norm="layernorm", parallel=_YES, one_norm=_YES, gated=_NO,
            activation_key="activation_function", activation="gelu_new", drops=_pdrop(0.0), mlp_bias=_YES,
            head_bias=True, grouped="", feedforward=4, rotated=("rotary_dim", 64), sdpa=False,
        ),
        Architecture(
            "gpt_neox", "GPTNeoX", norm="layernorm", parallel=Switch(True, "use_parallel_residual"), gated=_NO,
            activation="gelu",
            drops={"embedding": ("hidden_dropout", 0.0), "attention": ("attention_dropout", 0.0),
                   "mixed": ("hidden_dropout", 0.0), "fed": ("hidden_dropout", 0.0)},
            qkv_bias=_BIASED, out_bias=_BIASED, mlp_bias=_YES,
            grouped="", rotated=("rotary_pct", 0.25), notes=(_QKV,), source="arXiv 2204.06745",
        ),
        Architecture(
            "opt", "OPT",
            {**_COMMON, "F": "ffn_dim", "n_pos": "max_position_embeddings"}, norm="layernorm",
            sums=Switch(False, "do_layer_norm_after"), affine=Switch(True, "layer_norm_elementwise_affine"),
            positions="learned", more_positions=2, first_position=2, gated=_NO, activation_key="activation_function",
            rephrased=lambda said: {"do_layer_norm_after": not said.get("do_layer_norm_before", True)},
            activation="relu",
            drops={"attention": ("attention_dropout", 0.0), "mixed": ("dropout", 0.1), "fed": ("dropout", 0.1)},
            qkv_bias=Switch(True, "enable_bias"), out_bias=Switch(True, "enable_bias"),
            mlp_bias=Switch(True, "enable_bias"), grouped="", tied=True, source="arXiv 2205.01068",
        ),
        Architecture(
            "falcon", "Falcon", {**_COMMON, "F": "ffn_hidden_size"}, norm="layernorm",
            parallel=Switch(True, "parallel_attn"), one_norm=Switch(True, "one_norm"), gated=_NO,
            activation_key="activation", activation="gelu",
            drops={"attention": ("attention_dropout", 0.0), "mixed": ("hidden_dropout", 0.0),
                   "fed": ("hidden_dropout", 0.0)},
            qkv_bias=Switch(False, "bias"), out_bias=Switch(False, "bias"), mlp_bias=Switch(False, "bias"),
            grouped="num_kv_heads", feedforward=4, tied=True, rephrased=_falcon, notes=(_QKV,),
            source="arXiv 2311.16867",
        ),
        Architecture(
            "llama", "Llama", qkv_bias=_BIAS, out_bias=_BIAS, mlp_bias=Switch(False, "mlp_bias"),
            source="arXiv 2302.13971",
        ),
        Architecture(
            "granite", "Granite", qkv_bias=_BIAS, out_bias=_BIAS, mlp_bias=Switch(False, "mlp_bias"),
            source="arXiv 2408.13359",
        ),
        Architecture("olmo2", "Olmo2", norms=("output",), qkv_bias=_BIAS, out_bias=_BIAS, head_norm="all",
                     source="arXiv 2501.00656"),
        Architecture("mistral", "Mistral", window=Window(4096), source="arXiv 2310.06825"),
        Architecture("mixtral", "Mixtral", {**_ROUTED, **_EXPERTS, "F_E": "intermediate_size"},
                     window=Window(), source="arXiv 2401.04088"),
        Architecture(
            "phi3", "Phi3", drops={**_pdrop(0.0), "embedding": ("", 0.0), "attention": ("attention_dropout", 0.0)},
            window=Window(), notes=(_QKV, _SWIGLU), source="arXiv 2404.14219",
        ),
        Architecture("qwen2", "Qwen2", qkv_bias=_YES, window=_LAST, source="arXiv 2407.10671"),
        Architecture("qwen2_moe", "Qwen2Moe", {**_COMMON, **_EXPERTS, "F_S": "shared_expert_intermediate_size"},
                     qkv_bias=Switch(True, "qkv_bias"), shared="gated",
                     window=replace(_LAST, sees=lambda n, first: n % 2 == 0 and n < first),
                     source="arXiv 2407.10671"),
        Architecture("qwen3", "Qwen3", qkv_bias=_BIAS, out_bias=_BIAS, head_norm="each", head_dim=128,
                     window=_LAST, source="arXiv 2505.09388"),
        Architecture("qwen3_moe", "Qwen3Moe", {**_COMMON, **_EXPERTS}, qkv_bias=_BIAS, out_bias=_BIAS,
                     head_norm="each", window=Window(4096, switched=True), source="arXiv 2505.09388"),
        Architecture("gemma", "Gemma", qkv_bias=_BIAS, out_bias=_BIAS, activation="gelu_pytorch_tanh", head_dim=256,
                     tied=True, source="arXiv 2403.08295"),
        Architecture("gemma2", "Gemma2", qkv_bias=_BIAS, out_bias=_BIAS, activation_key="hidden_activation",
                     activation="gelu_pytorch_tanh", head_dim=256, tied=True, norms=("input", "output"),
                     window=Window(4096, _all_but_each, "", 2), sdpa=False, source="arXiv 2408.00118"),
        Architecture(
            "gemma3_text", "Gemma3", heads={"ForCausalLM": "causal", "TextModel": "none"}, qkv_bias=_BIAS,
            out_bias=_BIAS, activation_key="hidden_activation", activation="gelu_pytorch_tanh", head_norm="each",
            head_dim=256, tied=True, norms=("input", "output"),
            window=Window(4096, _all_but_each, "sliding_window_pattern", 6), source="arXiv 2503.19786",
        ),
        Architecture(
            "gpt_oss", "GptOss", {**_ROUTED, **_EXPERTS, "F_E": "intermediate_size"},
            qkv_bias=_BIASED, out_bias=_BIASED, router_bias=True, gates="topsoftmax_{n_{top}}",
            sinks=True, clipped=("swiglu_limit", 7), head_dim=64, window=Window(128, _all_but_each, "", 2),
            notes=(_SWIGLU,), sdpa=False,
            source="arXiv 2508.10925",
        ),
        Architecture("deepseek_v2", "DeepseekV2", {**_COMMON, **_LATENT}, mixer="latent", qkv_bias=_BIAS,
                     shared="plain", source="arXiv 2405.04434"),
        Architecture("deepseek_v3", "DeepseekV3", {**_COMMON, **_LATENT},
                     {**_HEADS, "ForMultiTokenPrediction": "further"}, mixer="latent", qkv_bias=_BIAS,
                     shared="plain", source="arXiv 2412.19437",
                     notes=("the correction biases of the router are no parameters and left out",)),
        Architecture(
            "t5", "T5",
            {"D": "d_model", "N_enc": "num_layers", "n_H": "num_heads", "H": "d_kv", "F": "d_ff", "V": "vocab_size",
             "n_bucket": "relative_attention_num_buckets"},
            {"ForConditionalGeneration": "causal", "Model": "none", "EncoderModel": "none"}, stacks="both",
            positions="relative", gated=Switch(False, "is_gated_act"),
            activation_key="dense_act_fn", activation="relu", grouped="", tied=True, rephrased=_t5,
            drops=dict.fromkeys(("embedding", "attention", "mixed", "inner", "fed", "last"), ("dropout_rate", 0.1)),
            source="arXiv 1910.10683",
        ),
    )
}  # fmt: skip


def class_names() -> dict[str, tuple[Architecture, HeadKind]]:
    """Every class name that is read, with its architecture and head.

    >>> architecture, head = class_names()["BertForMaskedLM"]
    >>> architecture.model_type, head
    ('bert', 'masked')
    """
    return {a.prefix + suffix: (a, kind) for a in ARCHITECTURES.values() for suffix, kind in a.heads.items()}
