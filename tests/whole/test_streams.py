"""Models with more than one stream of positions: an encoder with a decoder, keys and values that come from outside."""

import pytest

import symcomm as sc

T5 = {
    "model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 3, "num_heads": 4, "vocab_size": 96,
    "relative_attention_num_buckets": 8,
}  # fmt: skip
FAST = {"peak": "1000000 FLOP/s", "memory": "1000000000000000000 B/s", "network": "1000000000000000000 B/s"}


def test_the_tokens_of_an_encoder_with_a_decoder_are_added():
    model = sc.load(T5, values={"B": 4, "L_enc": 10, "L_dec": 6})
    step, rate = model.step_time("data(4)", **FAST).at().value, model.throughput("data(4)", **FAST).at().value
    assert rate * step == 4 * 10 + 4 * 6  # each sequence is read by one of them and written by the other
    with pytest.raises(sc.SymcommError, match="count one stream of tokens; this model has more"):
        model.throughput("data(4)", of="mfu", accounting="6nd", **FAST)


def test_context_parallelism_gathers_keys_and_values_that_come_from_outside():
    rows = "S = Q K^T\tQ [B, L, H], K [B, L, H]\tS [B, L, L]\nA = softmax(S)\tS [B, L, L]\tA [B, L, L]\n"
    rows += "Z = A V\tA [B, L, L], V [B, L, H]\tZ [B, L, H]\n"
    attention = sc.load("Computation\tInput\tOutput\n" + rows, dtype="bf16", values={"B": 3, "L": 8, "H": 5})
    for phase, kind in (("forward", "all-gather"), ("backward", "reduce-scatter")):
        moved = attention.communication("context(4)", phase=phase, collective=kind)
        assert moved.at().value == 2 * (3 * 8 * 5) * 2  # K and V, 2 bytes an element
    tokens = (
        attention.throughput("context(4)", **FAST).at().value * attention.step_time("context(4)", **FAST).at().value
    )
    assert tokens == 3 * 8
