"""Configurations of every family: published ones with the counts of ``transformers``, and small ones for runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Each with the number of elements in all parameters of the model that transformers makes of it.
_DATA = Path(__file__).parents[1] / "data" / "families.json"
FAMILIES: list[dict[str, Any]] = json.loads(_DATA.read_text())["models"]

_D: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 128, "vocab_size": 128,
}  # fmt: skip
_FEW: dict[str, Any] = {**_D, "num_key_value_heads": 4}
_WIDE: dict[str, Any] = {**_FEW, "head_dim": 16}
_GPT2: dict[str, Any] = {"n_embd": 64, "n_layer": 4, "n_head": 8, "vocab_size": 128, "n_positions": 32}
_TOP: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LATENT: dict[str, Any] = {
    **_D, **_TOP, "num_key_value_heads": 8, "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
    "n_group": 1, "topk_group": 1,
}  # fmt: skip
# One small model of each family, by its class.
SMALL: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": {**_D, "max_position_embeddings": 32, "type_vocab_size": 2},
    "RobertaForMaskedLM": {**_D, "max_position_embeddings": 34, "type_vocab_size": 1},
    "DistilBertForMaskedLM": {"dim": 64, "n_layers": 4, "n_heads": 8, "hidden_dim": 128, "vocab_size": 128,
                              "max_position_embeddings": 32},
    "ViTForImageClassification": {**{k: v for k, v in _D.items() if k != "vocab_size"}, "image_size": 32,
                                  "patch_size": 8, "num_channels": 3},
    "GPT2LMHeadModel": _GPT2,
    "GPTJForCausalLM": {**_GPT2, "rotary_dim": 4},
    "GPTNeoXForCausalLM": _D,
    "OPTForCausalLM": {**{k: v for k, v in _D.items() if k != "intermediate_size"}, "ffn_dim": 128,
                       "max_position_embeddings": 32, "word_embed_proj_dim": 32},
    "FalconForCausalLM": _D,
    "LlamaForCausalLM": _FEW,
    "GraniteForCausalLM": _FEW,
    "Olmo2ForCausalLM": _FEW,
    "MistralForCausalLM": _FEW,
    "MixtralForCausalLM": {**_FEW, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Phi3ForCausalLM": {**_FEW, "pad_token_id": 0},
    "Qwen2ForCausalLM": _FEW,
    "Qwen2MoeForCausalLM": {**_FEW, **_TOP, "num_experts": 4, "shared_expert_intermediate_size": 48},
    "Qwen3ForCausalLM": _WIDE,
    "Qwen3MoeForCausalLM": {**_WIDE, **_TOP, "num_experts": 4},
    "GemmaForCausalLM": _WIDE,
    "Gemma2ForCausalLM": _WIDE,
    "Gemma3ForCausalLM": _WIDE,
    "GptOssForCausalLM": {**_WIDE, "num_local_experts": 4, "num_experts_per_tok": 2},
    "DeepseekV2ForCausalLM": _LATENT,
    "DeepseekV3ForCausalLM": _LATENT,
    "T5ForConditionalGeneration": {"d_model": 64, "num_layers": 4, "num_heads": 8, "d_kv": 8, "d_ff": 128,
                                   "vocab_size": 128, "relative_attention_num_buckets": 32},
}  # fmt: skip
