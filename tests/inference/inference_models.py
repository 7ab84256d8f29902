"""The models of the golden set as configurations: each size under the key that its family has for it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import symcomm as sc

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "golden_inference.json").read_text())
# Of OPT the set has matrices alone: GPT-NeoX has the same, and no table of positions.
FAMILIES = {
    "llama": "llama", "opt": "gpt_neox", "mixtral": "mixtral", "deepseek": "deepseek_v3", "t5": "t5",
    "window": "mistral",
    "pattern": "gemma3_text",
}  # fmt: skip
CLASSES = {
    "llama": "LlamaForCausalLM", "gpt_neox": "GPTNeoXForCausalLM", "mixtral": "MixtralForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM", "t5": "T5ForConditionalGeneration", "mistral": "MistralForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
}  # fmt: skip
KEYS = {
    "D": "hidden_size", "N": "num_hidden_layers", "nh": "num_attention_heads", "nkv": "num_key_value_heads",
    "H": "head_dim", "F": "intermediate_size", "V": "vocab_size", "tied": "tie_word_embeddings",
    "window": "sliding_window", "dn": "qk_nope_head_dim", "dr": "qk_rope_head_dim", "dv": "v_head_dim",
    "dc": "kv_lora_rank", "qr": "q_lora_rank", "dense": "first_k_dense_replace", "Fd": "intermediate_size",
    "shared": "n_shared_experts", "k": "num_experts_per_tok",
}  # fmt: skip
OTHER_KEYS = {
    "mixtral": {"E": "num_local_experts"},
    "deepseek_v3": {"E": "n_routed_experts", "F": "moe_intermediate_size"},
    "t5": {"D": "d_model", "N": "num_layers", "nh": "num_heads", "H": "d_kv", "F": "d_ff"},
}
LEFT_OUT = {"gpt_neox": {"nkv", "H"}, "t5": {"nkv", "Nenc"}}
FIXED: dict[str, dict[str, Any]] = {
    "gpt_neox": {"rotary_pct": 1.0},
    "mixtral": {"sliding_window": None},
    "t5": {"relative_attention_num_buckets": 32, "feed_forward_proj": "relu"},
}


def configuration(name: str) -> dict[str, Any]:
    """A configuration of the library with the sizes of a model."""
    sizes = dict(GOLDEN["models"][name])
    family = sizes.pop("family")
    family = FAMILIES["pattern" if "pattern" in sizes else "window" if "window" in sizes else family]
    found: dict[str, Any] = {"model_type": family, "architectures": [CLASSES[family]], "torch_dtype": "bfloat16"}
    pattern = sizes.pop("pattern", None)
    if pattern is not None:
        kinds = ("full_attention", "sliding_attention")
        found["layer_types"] = [kinds[pattern[n % len(pattern)]] for n in range(sizes["N"])]
    keys = {**KEYS, **OTHER_KEYS.get(family, {})}
    found |= {keys[size]: value or None if size == "qr" else value for size, value in sizes.items()
              if size not in LEFT_OUT.get(family, ())}  # fmt: skip
    return {**found, "tie_word_embeddings": sizes.get("tied", False), **FIXED.get(family, {})}


@cache
def model(name: str) -> sc.Model:
    """The model of the golden set with this name."""
    return sc.load(json.dumps(configuration(name)))
