"""A mixture of experts reads the weights of those experts that its tokens hit."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from api import ExpectedExperts, Setting, ValuesError, parse_strategy
from api import form_evaluate as evaluate
from api import load_load as load

import symcomm as sc

MIXTRAL = {
    "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
    "num_local_experts": 8, "num_experts_per_tok": 2, "attn_implementation": "eager",
}  # fmt: skip
D, F, KV, V, LAYERS = 4096, 14336, 1024, 32000, 32
EXPERT = 3 * D * F  # parameters of one expert in one layer
OTHERS = LAYERS * (2 * D * D + 2 * D * KV + 8 * D) + D * V  # the other matrices, the router and the head


def hit_by_all_routings(experts: int, chosen: int, tokens: int) -> Fraction:
    """The mean number of experts that are hit, over every way in which tokens may be routed."""
    sets = [*combinations(range(experts), chosen)]
    ways = [len({one for mine in way for one in mine}) for way in product(sets, repeat=tokens)]
    return Fraction(sum(ways), len(ways))


@pytest.mark.parametrize(("experts", "chosen", "tokens"), [(8, 2, 1), (4, 2, 3), (5, 1, 4), (3, 3, 2), (6, 4, 2)])
def test_the_expected_experts_are_the_mean_over_every_routing(experts: int, chosen: int, tokens: int):
    found = ExpectedExperts().number((Fraction(experts), Fraction(chosen), Fraction(tokens)))
    assert abs(found - hit_by_all_routings(experts, chosen, tokens)) <= Fraction(1, 2 * 10**12)


def test_a_batch_of_decode_steps_has_exact_expected_experts_and_a_prompt_rounded_ones():
    chosen, every = Fraction(8), Fraction(256)
    exact = [256 * (1 - Fraction(31, 32) ** tokens) for tokens in (256, 257)]
    found = [ExpectedExperts().number((every, chosen, Fraction(tokens))) for tokens in (256, 257)]
    assert found == [exact[0], round(exact[1], 12)]


def test_arrays_of_expected_experts_are_the_exact_ones():
    columns = [np.array(row, dtype=float) for row in ([8, 64, 8], [2, 6, 2], [4, 100, 10**6])]
    exact = [float(ExpectedExperts().number(tuple(map(Fraction, row)))) for row in zip(*columns, strict=True)]
    assert np.allclose(ExpectedExperts().numbers(columns), exact, rtol=1e-12)


def weights_read(accounting: str, tokens: int) -> Fraction:
    """The bytes of weights that a forward pass of Mixtral reads: its traffic without the activations."""
    made = sc.load(MIXTRAL, dtype="bf16").traffic(accounting=accounting)
    scores = LAYERS * 2 * 32
    # n Q, n K, n V; R S P; P V Z; Z o; m r; 3 products of 2 experts; n o: what each reads and writes a token.
    own = LAYERS * ((D + D) + 2 * (D + KV) + 2 * (D + KV) + (D + D) + (D + 8) + 2 * 3 * (D + F)) + (D + V)
    return made.at(B=tokens, L=1).value - 2 * tokens * (own + scores)


def test_one_token_of_mixtral_reads_two_of_eight_experts():
    assert weights_read("expected", 1) == 2 * (OTHERS + 2 * LAYERS * EXPERT)
    assert round(float(weights_read("expected", 1)) / 1e9, 2) == 25.50
    assert weights_read("every_expert", 1) == 2 * (OTHERS + 8 * LAYERS * EXPERT)
    assert weights_read("every_expert", 1) == 93_142_908_928  # 93.15 GB with the activations


@pytest.mark.parametrize(("accounting", "hit"), [("expected", Fraction(175, 32)), ("at_most", Fraction(8)),
                                                 ("every_expert", Fraction(8))])  # fmt: skip
def test_four_tokens_of_mixtral_hit_5_47_experts_and_at_most_all(accounting: str, hit: Fraction):
    assert 8 * (1 - Fraction(3, 4) ** 4) == Fraction(175, 32)
    assert weights_read(accounting, 4) == 2 * (OTHERS + hit * LAYERS * EXPERT)


def test_a_long_batch_reads_all_experts():
    assert weights_read("expected", 4096 * 64) == weights_read("every_expert", 4096 * 64)


@pytest.mark.parametrize("accounting", ["expected", "at_most", "every_expert"])
def test_slots_of_an_expert_are_an_average_that_need_not_divide(accounting: str):
    made = sc.load(MIXTRAL, dtype="bf16")
    traffic = made.traffic(accounting=accounting)
    traffic.check(deep=True)
    assert traffic.at(B=1, L=3).value > 0
    assert "experts_read" in traffic.touched
    step = made.step_time(device="H100-SXM", accounting=accounting)
    assert step.at(B=1, L=3).value > 0
    assert "experts_read" in step.touched


def test_operations_do_not_depend_on_the_experts_that_are_read():
    made = sc.load(MIXTRAL, dtype="bf16")
    assert made.flops(accounting="every_expert").expr == made.flops().expr
    assert "experts_read" not in made.flops().touched


# Four sequences of one token: under data parallelism each rank has one of them, so it hits 2 experts. Tensor and expert
# parallelism cut what all four hit, 8(1 - (3/4)^4) experts, into four parts.
@pytest.mark.parametrize(
    ("strategy", "experts"),
    [("data(4)", Fraction(2)), ("tensor(4)", Fraction(175, 128)), ("data(4) + expert", Fraction(175, 128))],
)
def test_a_rank_reads_the_experts_that_its_own_tokens_hit(strategy: str, experts: Fraction):
    model = sc.load(MIXTRAL, dtype="bf16")
    made = load(Setting(model.graph, dtype="bf16"), parse_strategy(strategy))
    read = [m for one in made.of("forward").ops for m in one.moved if m.tensor.endswith("W^gate_e")]
    known = {**model.values, "B": Fraction(4), "L": Fraction(1)}
    assert [evaluate(m.elements, known) for m in read] == [experts * D * F]


ASKED = {"over": "B", "phase": "forward", "device": "H100-SXM"}
PEAK, MEMORY = 989_429_760_000_000, 3_352_000_000_000  # FLOP/s in bf16, byte/s


def read_at(convention: str, tokens: float) -> float:
    return {"expected": 8 * (1 - 0.75**tokens), "at_most": min(8.0, 2 * tokens), "every_expert": 8.0}[convention]


@pytest.mark.parametrize("convention", ["expected", "at_most", "every_expert"])
def test_a_product_of_experts_turns_compute_bound_at_the_batch_that_halving_finds(convention: str):
    """2 experts a token: operands and results of 2 bytes, and the matrices of the experts that are hit."""

    def gap(tokens: float) -> float:
        moved = 2 * tokens * D + 2 * tokens * F + read_at(convention, tokens) * D * F
        return 2 * 2 * tokens * D * F / PEAK - 2 * moved / MEMORY

    low, high = 1.0, 1e6
    assert gap(low) < 0 < gap(high)
    while high - low > 1e-9 * high:
        low, high = ((low + high) / 2, high) if gap((low + high) / 2) < 0 else (low, (low + high) / 2)
    layer = sc.load(MIXTRAL, dtype="bf16", values={"L": 16}).part("layer")
    made = layer.crossover("compute, memory", **ASKED, op="J_e", accounting=convention)
    made.check(deep=True)
    assert float(made.at().value) == pytest.approx(high / 16, rel=1e-8)
    assert any("above it the compute term is the larger one" in step.reason.text for step in made.steps)


def test_a_crossing_over_a_batch_that_decides_on_experts_needs_the_other_numbers():
    with pytest.raises(ValuesError, match="compute and the memory term are equal has no closed form in B, and L has"):
        sc.load(MIXTRAL, dtype="bf16").crossover("compute, memory", **ASKED)


def test_a_product_of_experts_on_a_slow_processor_is_compute_bound_at_every_batch():
    layer = sc.load(MIXTRAL, dtype="bf16", values={"L": 16}).part("layer")
    with pytest.raises(ValuesError, match="equal for no positive B: the compute term is longer at every one"):
        layer.crossover("compute, memory", "B", phase="forward", op="J_e", peak="1 GFLOP/s", memory="3 TB/s")


def test_each_wrong_choice_of_experts_read_is_refused():
    with pytest.raises(sc.SymcommError, match="'all' is no convention for experts_read"):
        sc.load(MIXTRAL).traffic(accounting={"experts_read": "all"})


@pytest.mark.parametrize(("strategy", "others"), [("expert(8)", 0), ("expert(2) + tensor(4)", 2048 * 64)])
def test_gradients_of_gates_are_gathered_for_the_experts_that_tokens_chose_alone(strategy, others):
    B, L, width, chosen, layers = 64, 1024, 2048, 2, 24  # of the example; fp16
    model = sc.load("examples/layers/mixture-of-experts.md")
    sums = 2 * B * L * width  # y forward and the gradient of x backward
    made = model.communication(strategy)
    assert made.at().value == 2 * layers * (sums + chosen * B * L + others)
    made.check(deep=True)
