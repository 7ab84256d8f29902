"""What is kept of routed tokens and of T5's activation, as PyTorch 2.13 was seen to keep it."""

from __future__ import annotations

import pytest

import symcomm as sc

EXPERTS = r"""| Computation | Input | Output |
|---|---|---|
| $r = softmax(x W^R)$ | $x$ [B, L, D], $W^R$ [D, E] | $r$ [B, L, E] |
| $M = TopK_{k}(r)$ | - | $M$ [B, L, E, C] |
| $X_e = Dispatch(x, M), e = 1, \dots, E$ | - | $X_e$ [B, C, D] |
| $A_e = relu(X_e W_e^1), e = 1, \dots, E$ | $W_e^1$ [D, F] | $A_e$ [B, C, F] |
| $Y_e = A_e W_e^2, e = 1, \dots, E$ | $W_e^2$ [F, D] | $Y_e$ [B, C, D] |
| $y = Combine(Y_e, M)$ | $Y_e$ [B, C, D] | $y$ [B, L, D] |
"""


@pytest.mark.parametrize("gradient", ["needed", "not_needed"])
def test_combine_keeps_the_order_of_tokens_whether_or_not_their_gradient_is_needed(gradient: str):
    """`index_add` keeps its index of 8 bytes a token and expert: PyTorch kept 3168 B in both cases."""
    kept = sc.load(EXPERTS, dtype="fp32").activation_memory(accounting={"saved": "pytorch", "input_gradient": gradient})
    sizes = {"B": 2, "L": 6, "D": 5, "E": 3, "k": 2, "F": 7, "C": 4}
    assert kept.at(**sizes).value == 3168
    kept.check(deep=True)


T5 = {
    "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "d_model": 32, "d_kv": 8, "d_ff": 64,
    "num_layers": 3, "num_heads": 4, "vocab_size": 96,
    "relative_attention_num_buckets": 8,
}  # fmt: skip


def kept_of(name: str) -> int:
    """Bytes of fp32 that a model of 3 layers keeps, encoder and decoder, for 2 sequences of 8 tokens."""
    made = sc.load(T5 | {"feed_forward_proj": name}, dtype="fp32")
    return int(made.activation_memory(accounting={"saved": "pytorch"}).at(B=2, L_enc=8, L_dec=8).value)


def test_the_gelu_of_t5_1_1_is_the_written_out_one_of_the_library():
    """`T5Config` runs gated-gelu as gelu_new, which keeps 3 numbers more for each of d_ff columns than a fused gelu."""
    fused = kept_of("gated-gelu_pytorch_tanh")
    tokens, layers = 2 * 8, 3 + 3
    assert kept_of("gated-gelu") - fused == 4 * 3 * 64 * tokens * layers
    assert kept_of("gated-gelu") == kept_of("gated-gelu_new")
