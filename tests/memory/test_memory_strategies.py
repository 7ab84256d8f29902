"""State and activation memory under strategies, recipes, recomputation and schedules; capacities; errors."""

from __future__ import annotations

from fractions import Fraction

import memory_tables as tables
import pytest
from api import RECIPES, AccountingError, StrategyError, ValuesError, recipe_of, symbol
from sympy import simplify

import symcomm as sc

B, L, D, E, F, C, k, t, N = (symbol(x) for x in ("B", "L", "D", "E", "F", "C", "k", "t", "N"))
GPT_SIZES = {"N": 12, "D": 768, "F": 3072, "n_h": 12, "H": 64, "L": 1024, "B": 8}


def gpt(**values: int) -> sc.Model:
    return tables.load(tables.GPT, repeat="N", values=GPT_SIZES | values)


# -- states -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "each"),
    [("mixed_adam", 16), ("mixed_adam_fp32_gradients", 18), ("fp32_adam", 16), ("fp32_momentum", 12), ("fp32_sgd", 8),
     ("fp32_lion", 12), ("mixed_lion", 12), ("mixed_momentum", 12)],
)  # fmt: skip
def test_each_recipe_keeps_its_bytes_for_each_parameter(recipe, each):
    model = tables.load(tables.HOMEWORK, repeat="N")
    assert simplify(model.state_memory(recipe=recipe).expr - each * model.parameters().expr) == 0


def test_every_recipe_is_tested_and_adamw_is_adam():
    parts = ("weight", "gradient", "state")
    by_shape = {name for name, one in RECIPES.items() if one.by_shape}  # in test_states_by_shape
    assert by_shape == {
        *(f"{p}_{o}" for p in ("fp32", "mixed") for o in ("adamw8bit", "adafactor", "muon", "shampoo")),
        *(f"{p}_{o}" for p in ("fp8", "qlora") for o in ("adam", "adamw")),
    }
    of_adamw = {name for name in RECIPES if "adamw" in name and "8bit" not in name}
    assert len(RECIPES) == 8 + len(by_shape) + len(of_adamw - by_shape)
    assert all(recipe_of("fp32_adamw").kept(p, recipe_of("fp32_adamw").classes[0])
               == RECIPES["fp32_adam"].kept(p, RECIPES["fp32_adam"].classes[0]) for p in parts)  # fmt: skip


def test_experts_are_spread_while_norms_and_routers_are_on_every_rank():
    whole = tables.load(tables.MOE).state_memory("expert + data(8)").expr
    assert simplify(whole - 16 * (2 * E * D * F / 8 + D * E + D)) == 0


def test_tensor_parallelism_cuts_matrices_and_leaves_norms_and_late_biases_whole():
    """Q, K, V, O and both matrices with the biases of their columns are cut; two norms and two biases are not."""
    derived = tables.load(tables.GPT).state_memory("tensor(t)").expr
    assert simplify(derived - 16 * ((4 * D**2 + 2 * D * F + 3 * D + F) / t + 6 * D)) == 0


def test_hybrid_sharding_divides_by_the_ranks_of_one_group_only():
    model = tables.load(tables.HOMEWORK)
    hybrid = model.state_memory("hybrid-sharded(4, 2)").at(D=64, n_h=4)
    assert hybrid == model.state_memory("zero-3(4)").at(D=64, n_h=4)


def test_a_pipeline_stage_keeps_its_layers():
    model = tables.load(tables.HOMEWORK, repeat="N")
    whole = model.state_memory().expr
    assert simplify(model.state_memory("pipeline(8)").expr - whole / 8) == 0
    assert simplify(model.state_memory("pipeline(layers_per_stage=4)").expr - whole * 4 / N) == 0


def test_frozen_weights_have_neither_gradients_nor_states_and_keep_less_for_backward():
    lora, r = tables.load(tables.LORA), symbol("R")
    states = lora.state_memory(frozen="W, U").expr
    assert (states - (2 * 2 * D * F + 16 * (F * r + r * D))).expand() == 0
    kept = lora.activation_memory(frozen="W, U").expr
    assert (kept - 2 * B * L * (F + r)).expand() == 0
    assert (lora.activation_memory().expr - kept - 2 * B * L * D).expand() == 0


# -- activations ------------------------------------------------------------------------------------------


def test_data_parallelism_divides_all_activations():
    model = gpt()
    whole, part = (model.activation_memory(s).at().value for s in (None, "data(4)"))
    assert part == whole / 4


def test_context_parallelism_divides_all_but_the_keys_and_values_that_were_gathered():
    model = gpt()
    whole, part = (model.activation_memory(s).at().value for s in (None, "context(4)"))
    gathered = 12 * 2 * 2 * 8 * 1024 * 768
    assert part == (whole - gathered) / 4 + gathered


def test_sequence_parallelism_keeps_shards_unless_gathered_copies_are_to_be_kept():
    # As in Korthikanti et al. and Megatron, each rank keeps its part of everything and gathers again in backward.
    again = gpt().activation_memory("tensor(4) + sequence").at().value
    assert again == gpt().activation_memory().at().value / 4
    assert again == gpt().activation_memory("tensor(4) + sequence", accounting="regather").at().value
    kept = gpt().activation_memory("tensor(4) + sequence", accounting={"gathered_activations": "keep"})
    assert kept.at().value > again


def test_experts_keep_the_tokens_of_their_own_experts_only():
    sizes = {"B": 8, "L": 4, "D": 16, "E": 8, "F": 32, "C": 2, "k": 2}
    whole, part = (tables.load(tables.MOE).activation_memory(s).at(**sizes).value for s in (None, "expert + data(4)"))
    assert part == whole / 4


def test_gpipe_keeps_every_microbatch_and_1f1b_one_for_each_stage_that_follows():
    model, one = gpt(), gpt().activation_memory().at().value / 4 / 8
    for stage, flying in ((0, 4), (1, 3), (3, 1)):
        assert model.activation_memory("pipeline(4, microbatches=8)", stage=stage).at().value == flying * one
        gpipe = model.activation_memory("pipeline(4, microbatches=8)", schedule="gpipe", stage=stage)
        assert gpipe.at().value == 8 * one
    assert model.activation_memory("pipeline(4, microbatches=2)").at().value == 2 * 4 * one


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("microbatches", [1, 2, 4, 8])
def test_the_microbatches_in_flight_are_those_of_a_simulated_schedule(stages, microbatches):
    """1F1B event by event: stage i warms up with p - i - 1 forwards, then runs one forward and one backward in turn."""
    model = gpt()
    whole = model.activation_memory().at().value / stages / microbatches
    for stage in range(stages):
        alive = most = 0
        forwards = min(stages - stage - 1, microbatches)
        alive = most = forwards
        for _ in range(microbatches - forwards):
            alive += 1
            most = max(most, alive)
            alive -= 1
        derived = model.activation_memory(f"pipeline({stages}, microbatches={microbatches})", stage=stage)
        assert derived.at().value == most * whole


def test_recomputation_keeps_less_and_names_of_tensors_choose_what_runs_again():
    model = gpt()
    none, selective, full = (model.activation_memory(recomputation=r).at().value for r in ("none", "selective", "full"))
    assert none > selective > full == 12 * 2 * 8 * 1024 * 768
    chosen = model.activation_memory(recomputation="A").at().value
    # Both sides of gelu go; what they are computed from is kept for a weight anyway.
    assert none - chosen == 12 * 2 * 2 * 8 * 1024 * 3072
    assert model.activation_memory(every=3).at().value == full / 3
    assert model.activation_memory(accounting="full_recomputation").at().value == full


def test_repeated_key_heads_are_views_in_the_ideal_count_and_copies_in_pytorch():
    sizes = {"B": 2, "L": 8, "D": 32, "n_h": 4, "n_k": 2, "H": 8, "F": 64}
    model = tables.load(tables.LLAMA)
    ideal, eager = (model.activation_memory(accounting=a).at(**sizes).value for a in ("ideal", "pytorch"))
    narrow, wide = 2 * 2 * 8 * 2 * 8, 2 * 2 * 8 * 4 * 8
    # Of each RMS norm: a number a row in fp32, the normalised values, and an fp32 copy in place of the operand.
    rows, normed, copies = 2 * 4 * 2 * 8, 2 * 2 * 2 * 8 * 32, 2 * (4 - 2) * 2 * 8 * 32
    assert eager - ideal == 2 * (wide - narrow) + rows + normed + copies
    fused = model.activation_memory(accounting={"saved": "pytorch", "softmax": "fused"}).at(**sizes).value
    scores, sums = 2 * 2 * 4 * 8 * 8, 4 * 2 * 4 * 8
    assert eager - fused == 2 * (wide - narrow) + scores - sums


def test_a_fused_attention_keeps_no_score_matrix_but_a_number_for_each_row():
    fused = gpt().activation_memory(accounting={"softmax": "fused"}).at().value
    selective = gpt().activation_memory(recomputation="selective").at().value
    assert fused - selective == 12 * 4 * 8 * 12 * 1024


# -- the peak ---------------------------------------------------------------------------------------------


def test_the_peak_of_a_large_batch_is_in_the_backward_pass_of_the_last_layer():
    d = gpt().peak_memory()
    assert "backward pass of the last layer" in d.steps[-1].reason.text or "backward pass of the last layer" in d.text()
    states = gpt().state_memory().at().value
    assert gpt().activation_memory().at().value < d.at().value
    assert d.at().value < states + gpt().activation_memory().at().value * Fraction(11, 10)


def test_the_peak_of_a_small_batch_is_where_all_gradients_are_there():
    d = gpt(B=1, L=8).peak_memory(recipe="fp32_adam")
    assert d.at().value >= gpt().state_memory(recipe="fp32_adam").at().value
    assert "last layer" not in d.steps[-1].reason.text


def test_the_largest_row_of_the_timeline_is_the_peak():
    d = gpt().peak_memory("tensor(4) + sequence")
    totals = [float(str(row[-1]).removesuffix(" MiB").replace(" ", "")) for row in d.exhibits[0].rows]
    marked = [n for n, row in enumerate(d.exhibits[0].rows) if "(peak)" in str(row[1])]
    assert len(marked) == 1
    assert totals[marked[0]] == max(totals) == round(float(d.at().value / 2**20), 1)


def test_two_products_have_a_peak_that_is_counted_by_hand():
    """u = relu(xW), y = uU. With one token the peak is the last gradient of a weight: all weights, gradients and states
    are there, and besides them x, the gradient of relu's operand and, by then, that of x.
    """
    one = tables.load(tables.XXL, values={"T": 1, "D": 64, "F": 128})
    assert one.peak_memory().at().value == 16 * 2 * 64 * 128 + 2 * (64 + 128 + 64)
    # Many tokens: x and u are kept; u's gradient is there, and that of relu's operand is made from it.
    many = tables.load(tables.XXL, values={"T": 4096, "D": 64, "F": 128}).peak_memory()
    weights, states, gradient = 2 * 2 * 64 * 128, 12 * 2 * 64 * 128, 2 * 64 * 128
    tokens = 2 * 4096
    assert many.at().value == weights + states + gradient + tokens * (64 + 128) + tokens * (128 + 128)


# -- what fits --------------------------------------------------------------------------------------------


def test_the_largest_batch_fits_and_one_more_does_not():
    model = tables.load(tables.GPT, repeat="N", values={n: v for n, v in GPT_SIZES.items() if n != "B"})
    best = int(model.capacity("B", "80 GB", "nominal_GB").at().value)

    def needed(size: int) -> Fraction:
        return model.state_memory().at().value + model.activation_memory().at(B=size).value

    assert needed(best) <= 80 * 10**9 < needed(best + 1)


def test_the_longest_sequence_fits_and_one_more_position_does_not():
    model = tables.load(tables.GPT, repeat="N", values={n: v for n, v in GPT_SIZES.items() if n != "L"})
    best = int(model.capacity("L", "80 GB", "nominal_GB").at().value)

    def needed(size: int) -> Fraction:
        return model.state_memory().at().value + model.activation_memory().at(L=size).value

    assert needed(best) <= 80 * 10**9 < needed(best + 1)


def test_the_fewest_ranks_are_solved_for_in_symbols():
    d = tables.load(tables.HOMEWORK, repeat="N").capacity("k", "80 GB", "nominal_GB", "zero-1(k)", include="states")
    at = {"N": 32, "D": 4096, "n_h": 32}
    assert d.at(**at).value == -((-12 * 12 * 32 * 4096**2) // (80 * 10**9 - 4 * 12 * 32 * 4096**2))
    assert {s.name for s in d.expr.free_symbols} == {"N", "D"}


# -- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.capacity("B", "80 GB"), "what does a capacity of 80 GB mean"),
        (lambda m: m.capacity("B", "80 GB", "nominal"), "unknown capacity_is 'nominal'"),
        (lambda m: m.capacity("B", "80", "usable"), "the usable bytes need a unit"),
        (lambda m: m.capacity("B", "80 GHz", "usable"), "a capacity is in bytes, not in Hz"),
        (lambda m: m.capacity("q", "80 GB", "nominal_GB"), "the bytes do not depend on 'q'"),
        (lambda m: m.capacity("B", "0 GB", "nominal_GB"), "a capacity of nothing"),
        (lambda m: m.capacity("N", None), "'capacity' needs the option 'capacity'"),
        (lambda m: m.state_memory(recipe="fp32_adan"), "unknown recipe 'fp32_adan'"),
        (lambda m: m.state_memory(frozen="W^X"), "no weight is called 'W\\^X'"),
        (lambda m: m.state_memory(frozen="*"), "all weights are frozen"),
        (lambda m: m.activation_memory(recomputation="q"), "nothing is computed that is called 'q'"),
        (lambda m: m.activation_memory(recomputation="selective", every=2), "'every' goes with full recomputation"),
        (lambda m: m.recomputation(count="joules"), "unknown choice 'joules' of 'count'"),
        (lambda m: m.allocated_memory(held="nothing"), "there is no tensor 'nothing'"),
        (lambda m: m.allocated_memory(rounding="pages"), "unknown rounding 'pages'"),
        (lambda m: m.allocated_memory(rounding="blocks"), "the size of a block depends on the value of"),
        (lambda m: m.peak_memory(), "which op is the peak depends on the sizes: no value is given for"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValuesError, match=message):
        call(tables.load(tables.GPT, repeat="N"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "gpipe"}, "'schedule' belongs to a pipeline"),
        ({"strategy": "pipeline(4)", "chunks": 2}, "the schedule 1f1b has no chunks"),
        ({"strategy": "pipeline(4)", "schedule": "interleaved"}, "the interleaved schedule needs its chunks"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(StrategyError, match=message):
        tables.load(tables.GPT, repeat="N").activation_memory(**options)
    with pytest.raises(ValuesError, match="unknown schedule"):
        tables.load(tables.GPT, repeat="N").activation_memory("pipeline(4)", schedule="zigzag")
    with pytest.raises(StrategyError, match="one layer cannot be cut into stages"):
        tables.load(tables.GPT).activation_memory("pipeline(4)")


def test_nothing_fits_where_what_cannot_be_divided_is_too_large():
    with pytest.raises(ValuesError, match=r"nothing fits: .* do not depend on k"):
        gpt().capacity("k", "100 MiB", "usable", "zero-1(k)", include="states")
    model = tables.load(tables.GPT, repeat="N", values={n: v for n, v in GPT_SIZES.items() if n != "L"})
    with pytest.raises(ValuesError, match="nothing fits: L = 1 needs"):
        model.capacity("L", "1 MiB", "usable", include="activations")


def test_counts_under_different_countings_are_not_divided():
    model = gpt()
    ideal, eager = model.activation_memory(), model.activation_memory(accounting="pytorch")
    with pytest.raises(AccountingError, match="saved: ideal"):
        sc.ratio(ideal, eager)


def test_a_slice_keeps_its_part_ideally_and_in_eager_pytorch_the_whole_that_it_views() -> None:
    """The first position of each sequence goes into a matrix: its gradient reads B D numbers, of B L D."""
    rows = ("h = relu(x W) ; x [B,L,D], W [D,D] ; h [B,L,D]", "c = First(h) ; - ; c [B,D]",
            "y = c U ; U [D,D] ; y [B,D]")  # fmt: skip
    model = tables.load(tables.table(*rows), dtype="fp32")
    sizes = {"B": 3, "L": 5, "D": 7}
    x, h, c = 4 * 3 * 5 * 7, 4 * 3 * 5 * 7, 4 * 3 * 7
    # relu reads its result, so that h is there in any case, and c besides where it has a storage of its own.
    assert model.activation_memory(accounting="ideal").at(**sizes).value == x + h + c
    assert model.activation_memory(accounting="pytorch").at(**sizes).value == x + h


def test_the_option_of_recomputation_gathers_weights_for_what_runs_again_as_the_convention_does() -> None:
    """GPT-J's block reads one norm twice: a weight of D x D more is gathered while its forward pass runs again."""
    small = {"model_type": "gptj", "n_embd": 64, "n_layer": 4, "n_head": 8, "vocab_size": 128, "n_positions": 32,
             "rotary_dim": 4}  # fmt: skip
    model = sc.load(small, loss=False, values={"B": 4, "L": 8})
    named = model.peak_memory("fsdp(2)", accounting="full_recomputation").at()
    assert model.peak_memory("fsdp(2)", recomputation="full").at() == named
