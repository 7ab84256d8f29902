"""Active parameters, measured rates, traffic of single rows, and numbers that make no sense: against hand counts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from api import SymcommError, no_model
from api import model as sc

from symcomm import load

MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000, "num_local_experts": 8,
    "num_experts_per_tok": 2, "tie_word_embeddings": False, "max_position_embeddings": 32768, "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
}  # fmt: skip
LAYER = "Computation\tInput\tOutput\nh = relu(xW)\tx [B, D], W [D, F]\th [B, F]\ny = hU\th [B, F], U [F, D]\ty [B, D]\n"


@pytest.fixture(scope="module")
def mixtral() -> sc.Model:
    return load(MIXTRAL, dtype="bf16")


@pytest.fixture(scope="module")
def layer() -> sc.Model:
    return load(LAYER, repeat="N_layer")


def passed(experts: int) -> int:
    """The parameters of Mixtral 8x7B with so many experts, counted by hand."""
    width, hidden, kv = 4096, 14336, 8 * 128
    block = 2 * width * width + 2 * width * kv + width * 8 + 2 * width + experts * 3 * width * hidden
    return 2 * 32000 * width + 32 * block + width


# -- active parameters and utilisation ---------------------------------------------------------------------


def test_active_parameters_count_the_experts_that_a_token_goes_to(mixtral: sc.Model) -> None:
    assert mixtral.parameters().at().value == passed(8)
    assert mixtral.parameters(of="active").at().value == passed(2) == 12_879_925_248
    assert "active" in mixtral.parameters(of="active").title.lower()


def test_a_router_with_slots_of_its_own_has_as_many_active_experts_as_it_chooses() -> None:
    model = load("examples/layers/mixture-of-experts.md").at(D=8, F=32, E=16, N_layer=3)
    assert model.parameters(of="active").at().value == 3 * (8 * 16 + 2 * 2 * 8 * 32)
    assert model.parameters().at().value == 3 * (8 * 16 + 16 * 2 * 8 * 32)


def test_a_model_without_experts_has_no_other_active_parameters(layer: sc.Model) -> None:
    assert layer.parameters(of="active").expr == layer.parameters().expr


def test_an_unknown_choice_of_parameters_is_refused(layer: sc.Model) -> None:
    with pytest.raises(SymcommError, match="unknown choice 'activ' of 'of'\nhint: did you mean 'active'"):
        layer.parameters(of="activ")


def test_six_operations_a_parameter_are_those_of_active_parameters(mixtral: sc.Model) -> None:
    made = mixtral.throughput(of="flops_per_token", accounting="6nd").at(B=8, L=4096)
    assert made.value == 6 * passed(2)


MACHINE = {"devices_used": 64, "device": "A100-80GB-SXM"}
PEAK = 311_869_440_000_000  # 108 multiprocessors, 1.41 GHz, 1024 multiply-adds a clock


def test_a_measured_time_of_a_step_gives_utilisation_and_days(mixtral: sc.Model) -> None:
    sizes = {"B": 512, "L": 4096}
    tokens = 512 * 4096
    done = 6 * passed(2) * tokens
    found = mixtral.throughput(of="mfu", step="20 s", accounting="6nd", **MACHINE).at(**sizes).value
    assert found == Fraction(done, 20 * 64 * PEAK)
    more = {"model_flops": "6nd", "recomputation": "full_recomputation"}
    found = mixtral.throughput(of="hfu", step="20 s", accounting=more, **MACHINE).at(**sizes).value
    assert found == Fraction(done * 4 // 3, 20 * 64 * PEAK)
    days = mixtral.throughput(of="days", step="20 s", budget="300e9 tokens", devices_used=64).at(**sizes)
    assert days.value == Fraction(300 * 10**9 * 20, tokens * 86400)
    assert mixtral.throughput(step="T_it", devices_used=64).at(T_it=4, **sizes).value == Fraction(tokens, 4)


def test_an_achieved_rate_counts_what_is_computed_again(mixtral: sc.Model) -> None:
    sizes = {"B": 512, "L": 4096}
    rate = 150 * 10**12
    plain = {"accounting": {"model_flops": "6nd", "softmax": "library"}, "achieved": "150 TFLOP/s", **MACHINE}
    assert mixtral.throughput(of="mfu", **plain).at(**sizes).value == Fraction(rate, PEAK)
    again = {**plain, "accounting": plain["accounting"] | {"recomputation": "full_recomputation"}}
    assert mixtral.throughput(of="hfu", **again).at(**sizes).value == Fraction(rate, PEAK)
    assert mixtral.throughput(of="mfu", **again).at(**sizes).value == Fraction(rate * 3, PEAK * 4)
    speed = mixtral.throughput(**again).at(**sizes).value
    assert speed == Fraction(rate * 64, 8 * passed(2))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"of": "mfu", "mfu": "1/2"}, "mfu makes no difference to 'Model FLOP utilisation'\nhint: leave mfu out"),
        ({"of": "hfu", "mfu": "1/2"}, "mfu makes no difference to 'Hardware FLOP utilisation'"),
        ({"step": "2 s", "achieved": "1 TFLOP/s"}, "achieved makes no difference to 'Throughput'"),
        ({"step": "2 s", "schedule": "gpipe"}, "schedule makes no difference to 'Throughput'"),
        ({"step": "2 GB"}, "step is given in B, but must be in s\nhint: such as 20 us"),
        ({"step": "0 s"}, "step = 0 s: it must be positive"),
    ],
)
def test_what_says_the_speed_twice_or_asks_for_what_is_given_is_refused(
    layer: sc.Model, options: dict[str, str], text: str
) -> None:
    with pytest.raises(SymcommError) as caught:
        layer.throughput(devices_used=8, **options)
    assert text in str(caught.value)


# -- pipelines in throughput and scaling -------------------------------------------------------------------

FAST = {"peak": "1 TFLOP/s", "memory": "1000000 TB/s", "network": "1000000 TB/s"}


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", None), ("1f1b", None), ("interleaved", 2)])
def test_a_pipeline_scales_as_its_slots_say(layer: sc.Model, schedule: str, chunks: int | None) -> None:
    """All that computes: m/(m + (p - 1)/v) of the ranks' time is work."""
    sizes, m, p = {"N_layer": 16, "B": 64, "D": 32, "F": 64}, 16, 4
    said = {"schedule": schedule, "chunks": chunks, **FAST}
    strong = layer.at(**sizes).scaling(f"pipeline(p, microbatches={m})", over="p", **said)
    used = Fraction(m) / (m + Fraction(p - 1, chunks or 1))
    assert strong.at(p=p).value == used
    work = 16 * 6 * 2 * 64 * 32 * 64
    speed = layer.at(**sizes).throughput(f"pipeline({p}, microbatches={m})", **said).at().value
    assert speed == 64 / (Fraction(work, p * 10**12) / used)


# -- traffic -----------------------------------------------------------------------------------------------


def test_keys_that_heads_share_are_read_once(mixtral: sc.Model) -> None:
    sizes = {"B": 2, "L": 64}
    width, kv, heads = 4096, 1024, 32
    mixtral = load({**MIXTRAL, "attn_implementation": "eager"}, dtype="bf16")  # scores are written and read
    scores = mixtral.traffic(op="P").at(**sizes).value
    assert scores == 2 * 2 * (64 * width + 64 * kv + heads * 64 * 64)
    results = mixtral.traffic(op="layer:Z_i").at(**sizes).value
    assert results == 2 * 2 * (heads * 64 * 64 + 64 * kv + 64 * width)
    one = mixtral.time(phase="forward", op="P", term="memory", memory="1 B/s").at(**sizes).value
    two = mixtral.time("tensor(2)", phase="forward", op="P", term="memory", memory="1 B/s").at(**sizes).value
    assert (one, two) == (scores, scores / 2)


def test_rows_without_a_product_move_what_they_read_and_write(mixtral: sc.Model) -> None:
    sizes = {"B": 2, "L": 64}
    width, kv, head = 4096, 1024, 128
    norm = mixtral.traffic(op="layer:n")
    assert norm.at(**sizes).value == 2 * (2 * 2 * 64 * width + width)
    assert "operations" not in norm.touched
    assert mixtral.traffic(op="S_j").at(**sizes).value == 2 * (2 * 2 * 64 * kv + 2 * 64 * head)  # sines and cosines
    assert mixtral.traffic(op="T_i").at(**sizes).value == 2 * 2 * 64 * (kv + width)
    with pytest.raises(SymcommError, match="`x` is looked up: how much of the table is read, the indices say"):
        mixtral.traffic(op="embedding:x")


# -- the reduction of gradients beside the backward pass ---------------------------------------------------


def test_a_backward_pass_with_its_reductions_is_compute_bound_from_a_batch_on(layer: sc.Model) -> None:
    at = {"D": 64, "F": 256, "k": 8, "R": 10**12, "W_net": 10**9}
    accounting = {"gradient_sync": "with_backward", "time": "serial"}
    found = layer.compute_bound("data(k)", phase="backward", accounting=accounting).at(**at).value
    for_one = Fraction(2 * 4 * 64 * 256, 8 * 10**12)  # two gradients of each product, shared by 8 ranks
    sent = Fraction(2 * 7, 8) * 2 * 2 * 64 * 256 / 10**9  # a ring of 8 over both weights in fp16
    assert found == sent / for_one
    with pytest.raises(SymcommError, match="nothing is sent on data in the backward pass"):
        layer.compute_bound("data(k)", phase="backward", accounting="serial")


# -- measurements ------------------------------------------------------------------------------------------


def test_an_increase_goes_from_the_first_to_the_second() -> None:
    assert no_model().derive("measurement", want="increase", values="8 GB, 10 GB").at().value == Fraction(1, 4)
    assert no_model().derive("measurement", want="difference", values="8 GB, 10 GB").at().value == -2 * 10**9


# -- numbers that make no sense ----------------------------------------------------------------------------

GOOD = {"N_layer": 4, "B": 8, "D": 16, "F": 32, "t": 8}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"N_Layer": 4, "N_layer": None}, "of tensor has no symbol 'N_Layer'\nhint: did you mean 'N_layer'?"),
        ({"B": -8}, "B is -8, but it cannot be negative"),
        ({"B": "3/2"}, "B is 3/2, but it counts things: it must be whole"),
        ({"t": 5}, "Tensor cuts F = 32 of W (row 1) into 5 parts, but 32 is not divisible by 5"),
    ],
)
def test_numbers_are_refused_when_they_are_put_in_as_when_they_are_known_before(
    layer: sc.Model, change: dict[str, object], text: str
) -> None:
    made = layer.communication("tensor(t)")
    assert made.at(**GOOD).value == 4 * 2 * 2 * 8 * 16
    with pytest.raises(SymcommError) as caught:
        made.at(**{name: value for name, value in {**GOOD, **change}.items() if value is not None})
    assert text in str(caught.value)


def test_a_kept_derivation_refuses_the_same(layer: sc.Model) -> None:
    sizes = {name: value for name, value in GOOD.items() if name != "t"}
    for degree in (2, 4, 8):
        made = layer.communication(f"tensor({degree})")
        assert made.at(**sizes).value == 4 * 2 * 2 * 8 * 16
        with pytest.raises(SymcommError, match=f"into {degree} parts, but 33 is not divisible by {degree}"):
            made.at(**{**sizes, "F": 33})
        with pytest.raises(SymcommError, match="has no symbol 'N_Layer'"):
            made.at(**{n: v for n, v in sizes.items() if n != "N_layer"}, N_Layer=4)


def test_sizes_of_a_model_have_a_meaning_where_the_answer_does_not_depend_on_them(layer: sc.Model) -> None:
    assert layer.parameters().at(N_layer=2, B=8, D=4, F=8).value == 2 * 2 * 4 * 8
    assert layer.communication("data(k)").at(N_layer=2, B=8, D=4, F=8, k=4).value == 2 * 2 * 2 * 4 * 8
    of_several = {"N_layer": 2, "D": 4, "F": 8, "t": 4, "V": 100}
    assert layer.parameters().at(of_several).value == 2 * 2 * 4 * 8


def test_a_size_that_a_relation_makes_a_fraction_is_refused() -> None:
    rows = ("Q = xW\tx [B, L, D], W [D, D]\tQ [B, L, D]", "[Q_1, \\dots, Q_{n_H}] = Partition_{-1}(Q)\tQ [B, L, D]\t"
            "Q_i [B, L, H], i = 1, \\dots, n_H")  # fmt: skip
    heads = load("Computation\tInput\tOutput\n" + "\n".join(rows) + "\n")
    assert heads.flops().at(B=1, L=2, D=8, n_H=2).value == 2 * 2 * 8 * 8
    with pytest.raises(SymcommError, match="D = 7, n_H = 2 leaves no whole number for H in D = n_H·H"):
        heads.flops().at(B=1, L=2, D=7, n_H=2)


def test_a_negative_number_is_refused_where_a_model_is_given_it(layer: sc.Model) -> None:
    for bad in (lambda: layer.at(B=-1), lambda: load(LAYER, values={"B": -1})):
        with pytest.raises(SymcommError, match="B is -1, but it cannot be negative"):
            bad()


def test_a_payload_may_be_put_in_with_its_unit() -> None:
    made = no_model().derive("collective_time", ranks=8, bandwidth="25 GB/s", accounting="bandwidth_only")
    assert made.at(n="12 GiB").value == Fraction(2 * 7 * 12 * 2**30, 8 * 25 * 10**9)
    with pytest.raises(SymcommError, match="n is given in s, but it is in B"):
        made.at(n="12 s")
