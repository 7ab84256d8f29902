"""Where two terms meet at a root, and how a step scales whose time is followed event by event."""

from math import isclose, sqrt

import pytest

import symcomm as sc

RATES = {"peak": "1 TFLOP/s", "memory": "1 TB/s", "network": "10 GB/s"}
GPT2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": 8, "vocab_size": 32}


def test_terms_that_meet_at_a_root_have_a_crossover():
    rows = "Q = x W^Q\tx [B, L, D], W^Q [D, D]\tQ [B, L, D]\nK = x W^K\tx [B, L, D], W^K [D, D]\tK [B, L, D]\n"
    rows += "S = Q K^T\tQ [B, L, D], K [B, L, D]\tS [B, L, L]\n"
    layer = sc.load("Computation\tInput\tOutput\n" + rows, dtype="bf16", values={"B": 2, "D": 4})
    met = layer.crossover("network, compute", "L", "fully-sharded(2)", peak="1 FLOP/s", network="1 B/s").at().value
    # Each rank: 3 (2 · 2BLD² + 2BL²D) / 2 operations; two gathers of 2D² weights of 2 bytes, half of them sent.
    assert isclose(met, (-192 + sqrt(192**2 + 4 * 24 * 64)) / 48)


@pytest.mark.parametrize("kind", ["strong", "speedup", "weak"])
def test_a_pipeline_of_uneven_stages_scales_as_its_steps_say(kind: str):
    model = sc.load(GPT2, loss=True, values={"L": 8})
    strategy = "data({}) + pipeline(layers=1:2, microbatches=2)"
    alone, shared = (
        model.step_time(strategy.format(k), **RATES).at(B=16 * (k if kind == "weak" else 1)).value for k in (1, 4)
    )
    wanted = alone / shared / (4 if kind == "strong" else 1)
    assert model.scaling(strategy.format("k"), kind, **RATES).at(B=16, k=4).value == wanted


def test_scaling_over_nothing_says_what_could_be_counted():
    model = sc.load(GPT2, values={"L": 8})
    with pytest.raises(sc.SymcommError, match="the ranks of Data can be counted by no symbol\nhint: such as data"):
        model.scaling("data(4)", **RATES)
    with pytest.raises(sc.SymcommError, match="can be counted by k or by t\nhint: over: k"):
        model.scaling("data(k) + tensor(t)", **RATES)
