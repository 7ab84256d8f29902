"""What fits a device, against trying every size."""

from __future__ import annotations

from fractions import Fraction

import memory_tables as tables
import pytest
import whole_models as models
from api import ValuesError

import symcomm as sc

GB80 = 80 * 10**9
# The course's layer in half precision: 12 D^2 weights; 16 bytes of states for each.


def course(**values: int) -> sc.Model:
    return tables.load(tables.HOMEWORK, repeat="N", dtype="bf16", values={"n_h": 32, "L": 2048, "B": 8} | values)


def states(layers: int, width: int, ranks: int) -> Fraction:
    return Fraction(16 * 12 * width**2 * layers, ranks)


def kept(layers: int, width: int, ranks: int) -> int:
    """Counted by hand, two bytes a number: x, Q, K, V, Z, O and, twice as wide each way, U; and the softmax."""
    sequences, length, heads = 8 // ranks, 2048, 32
    return layers * 2 * sequences * (length * width * (1 + 3 + 1 + 1 + 4) + heads * length**2)


def fits(layers: int, width: int, ranks: int) -> bool:
    return states(layers, width, ranks) + kept(layers, width, ranks) <= GB80


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_the_most_layers_that_fit_are_those_found_by_trying_them_all(ranks):
    derived = course(D=4096).capacity("N", "80 GB", "nominal_GB", f"fsdp({ranks})").at().value
    assert derived == max(n for n in range(1, 400) if fits(n, 4096, ranks))


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_the_widest_model_that_fits_is_a_multiple_of_its_heads_and_found_by_trying_them_all(ranks):
    derived = course(N=16).capacity("D", "80 GB", "nominal_GB", f"fsdp({ranks})").at().value
    assert derived == max(d for d in range(32, 40_000, 32) if fits(16, d, ranks))


def test_the_largest_model_by_its_states_alone():
    model = course(N=32)
    derived = model.capacity("D", "80 GB", "nominal_GB", "fsdp(8)", include="states")
    widest = max(d for d in range(32, 40_000, 32) if states(32, d, 8) <= GB80)
    assert derived.at().value == widest == 10176
    assert "D = 10208 takes 80 028 106 752 B" in derived.steps[-1].reason.text


def test_tensor_parallelism_makes_the_heads_and_so_the_width_multiples_of_its_ranks():
    """Of 8 heads, each of 4 ranks has two; D is a multiple of the heads."""
    widest = course(N=16, n_h=8).capacity("D", "80 GB", "nominal_GB", "tensor(4)", include="states").at().value
    assert widest % 8 == 0
    assert states(16, int(widest), 4) <= GB80 < states(16, int(widest) + 8, 4)


def test_a_batch_that_is_shared_by_ranks_is_a_multiple_of_them():
    model = tables.load(tables.HOMEWORK, repeat="N", dtype="bf16", values={"N": 4, "D": 512, "n_h": 8, "L": 512})

    def needed(batch: int) -> Fraction:
        one = 4 * 2 * (512 * 512 * 10 + 8 * 512**2)
        return states(4, 512, 1) + Fraction(batch * one, 8)

    best = model.capacity("B", "2 GB", "nominal_GB", "data(8)").at().value
    assert best == max(b for b in range(8, 5000, 8) if needed(b) <= 2 * 10**9)


def test_layers_of_a_pipeline_are_as_many_on_every_stage():
    best = course(D=4096).capacity("N", "80 GB", "nominal_GB", "pipeline(4)", include="states").at().value
    assert best == max(n for n in range(4, 400, 4) if states(n, 4096, 4) <= GB80)


def test_a_size_that_the_given_numbers_tell_already_is_not_solved_for():
    with pytest.raises(ValuesError, match="D is 4096 already, by the given numbers"):
        course(N=16, H=128).capacity("D", "80 GB", "nominal_GB", include="states")


def test_the_most_layers_of_a_whole_model_leave_room_for_its_embedding_and_head():
    """A layer has 4 D^2 + 3 D F + 2 D weights, what stands around 2 V D + D; all have 16 bytes over 8 ranks."""
    width, hidden, words = 2560, 10240, 10000
    ends, layer = 2 * words * width + width, 4 * width**2 + 3 * width * hidden + 2 * width
    best = models.language_model().capacity(
        "N_layer", "80 GB", "nominal_GB", "fsdp(8)", include="states", recipe="fp32_adam"
    )
    assert best.at().value == max(n for n in range(1, 2000) if Fraction(16 * (ends + n * layer), 8) <= GB80)


def test_the_largest_batch_of_a_whole_model_fits_with_all_that_its_parts_keep():
    model = models.language_model()
    best = int(model.capacity("B", "80 GB", "nominal_GB", recipe="fp32_adam").at().value)

    def needed(batch: int) -> Fraction:
        return model.state_memory(recipe="fp32_adam").at().value + model.at(B=batch).activation_memory().at().value

    assert needed(best) <= GB80 < needed(best + 1)
    again = model.capacity("B", "80 GB", "nominal_GB", recipe="fp32_adam", recomputation="full").at().value
    assert again > best


BLOCK = "Computation\tInput\tOutput\nh = xU\tx [B, D], U [D, F]\th [B, F]\ny = hW\th [B, F], W [F, D]\ty [B, D]\n"


def test_ranks_that_compute_parts_divide_what_they_cut_and_shards_are_padded() -> None:
    """2 D F weights of 16 bytes: 22 ranks hold 100 MB each, but F = 16384 is cut into 32; shards go over 22."""
    model = sc.load(BLOCK, values={"D": 4096, "F": 16384, "B": 64})
    least = -(-16 * 2 * 4096 * 16384 // 10**8)
    cut = model.capacity("k", "100 MB", "usable", "tensor(k)", include="states")
    assert cut.at().value == next(k for k in range(least, 10**5) if 16384 % k == 0) == 32
    assert "from `k` = 22 on. Tensor cuts F = 16384 of U" in cut.steps[-1].reason.text
    assert model.capacity("k", "100 MB", "usable", "zero-3(k)", include="states").at().value == least == 22
    both = model.capacity("k", "100 MB", "usable", "fsdp(k)").at().value  # the batch is shared as well
    assert both == next(k for k in range(least, 100) if 64 % k == 0)


def test_where_no_number_of_ranks_divides_nothing_fits() -> None:
    model = sc.load(BLOCK, values={"D": 4096, "F": 16384, "B": 16})
    with pytest.raises(ValuesError, match="nothing fits: it takes k = 22 or more, but Fully sharded cuts B = 16"):
        model.capacity("k", "100 MB", "usable", "fsdp(k)")


def test_a_size_of_zero_is_no_answer() -> None:
    """One row of x and h takes 2 (4096 + 16384) bytes."""
    model = sc.load(BLOCK, values={"D": 4096, "F": 16384})
    assert model.capacity("B", "40960 B", "usable", include="activations").at().value == 1
    with pytest.raises(ValuesError, match=r"nothing fits: B = 1 needs 40 960 B .*, the capacity is 40 959 B"):
        model.capacity("B", "40959 B", "usable", include="activations")
    open_sizes = sc.load(BLOCK).capacity("B", "40959 B", "usable", include="activations")
    assert open_sizes.at(D=1, F=1).value == 40959 // 4
    with pytest.raises(ValuesError, match="the closed form holds where"):
        open_sizes.at(D=4096, F=16384)


def test_ranks_beside_the_stages_of_a_pipeline_may_be_more_than_there_are_layers() -> None:
    """Two of four layers on a stage, shared by the first divisor of the batch with which they fit."""
    model = sc.load(BLOCK, repeat="N", values={"D": 64, "F": 256, "B": 1024, "N": 4})

    def held(k: int) -> int:
        text = f"fsdp({k}) + pipeline(2, microbatches=1)"
        return int(model.state_memory(text).at().value + model.activation_memory(text).at().value)

    capacity = (held(64) + held(32)) // 2  # 64 fit, 32 do not; the least number that would do lies between them
    found = model.capacity("k", f"{capacity} B", "usable", "fsdp(k) + pipeline(2, microbatches=1)").at().value
    assert found == 64


def test_a_size_that_is_searched_for_is_the_last_that_fits_and_is_witnessed():
    gpt2 = {"model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 10**6, "vocab_size": 32,
            "attn_implementation": "eager"}  # scores grow with the square of L
    model = sc.load(gpt2, values={"B": 16})
    longest = model.capacity("L", "1 GB", "nominal_GB", "data(4)")
    longest.check(deep=True)
    last = int(longest.at().value)
    for length, fits in ((last, True), (last + 1, False)):
        kept = model.activation_memory("data(4)").at(L=length).value
        assert (model.state_memory("data(4)").at().value + kept <= 10**9) == fits
    assert [step.name for step in longest.steps[-2:]] == ["C", "L_max"]  # nothing that the answer does not need


GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 4, "n_head": 4,
        "vocab_size": 500, "n_positions": 48}  # fmt: skip


def test_no_sequence_is_longer_than_the_table_of_positions() -> None:
    made = sc.load(GPT2).at(B=2).capacity("L", "1 GB", "nominal_GB")
    made.check(deep=True)
    assert made.at().value == 48
    assert any("`n_pos` rows: no sequence is longer" in step.reason.text for step in made.steps)


@pytest.mark.long
def test_a_table_of_positions_that_is_long_enough_decides_nothing() -> None:
    model = sc.load(GPT2).at(B=2)
    made = model.capacity("L", "4500000 B", "usable")
    taken = [model.state_memory().at().value + model.activation_memory().at(L=length).value for length in range(1, 49)]
    assert made.at().value == sum(bytes_ <= 4_500_000 for bytes_ in taken) < 48
    assert not any("table of positions" in step.reason.text for step in made.steps)


LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
         "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 4000}  # fmt: skip


@pytest.mark.parametrize(("words", "microbatches", "decides"), [(4000, 1, "last"), (64, 8, "first")])
def test_the_stage_with_the_most_says_which_batch_fits(words: int, microbatches: int, decides: str) -> None:
    """Each stage asked by itself at every batch: the last one has the logits, the first one all that is in flight."""
    strategy, limit = f"pipeline(4, microbatches={microbatches})", 40 * 10**6
    model = sc.load(LLAMA | {"vocab_size": words}, loss=True).at(L=64)
    made = model.capacity("B", f"{limit} B", "usable", strategy)
    fits = []
    for stage in range(4):
        states = model.state_memory(strategy, stage=stage).at().value
        each = model.activation_memory(strategy, stage=stage)
        fits.append(max(b for b in range(0, 2000, microbatches) if states + (each.at(B=b).value if b else 0) <= limit))
    assert made.at().value == min(fits) < max(fits)
    assert any(f"The {decides} stage needs the most memory" in note for note in made.notes)


def test_a_stage_can_be_asked_what_fits_on_it() -> None:
    model, strategy = sc.load(LLAMA, loss=True).at(L=64), "pipeline(4, microbatches=1)"
    found = [model.capacity("B", "40 MB", "usable", strategy, stage=stage).at().value for stage in range(4)]
    assert model.capacity("B", "40 MB", "usable", strategy).at().value == min(found) == found[3] < found[1]
