"""Embedding and head under tensor parallelism: cut along the vocabulary, in parts of whole words or filled up."""

from fractions import Fraction

import pytest
from api import StrategyError, check_cuts

import symcomm as sc

LLAMA_70B = {
    "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
}  # fmt: skip
LLAMA_8B = LLAMA_70B | {
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32
}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}


def words(ranks: int, multiple: int = 1) -> int:
    """The words of the largest part, one by one: as many ranks as there are take a word in turn until none is left."""
    unit, held = ranks * multiple, 0
    while held * unit < 50257:
        held += 1
    return held * multiple


def states(ranks: int, rows: int | Fraction) -> int | Fraction:
    """16 bytes a parameter of GPT-2: matrices and the biases of columns cut, all else whole."""
    D, F = 768, 3072
    layer = (4 * D * D + 2 * D * F + 3 * D + F) // ranks + 6 * D
    return 16 * (rows * D + 1024 * D + 2 * D + 12 * layer)


@pytest.mark.parametrize("loss", [True, False, None])
def test_embedding_and_head_of_llama_3_70b_are_cut_with_and_without_a_loss(loss: bool | None) -> None:
    gains, every = (2 * 80 + 1) * 8192, 70_553_706_496
    kept = sc.load(LLAMA_70B, loss=loss).state_memory("tensor(8)").at().value
    assert kept == 16 * ((every - gains) // 8 + gains) == 141_125_877_760


def test_the_head_of_llama_3_8b_takes_an_eighth_of_its_time_on_eight_ranks() -> None:
    """Computing alone: three times the forward products of 32 768 tokens on eight ranks at 989.4 TFLOP/s."""
    tokens, layer = 8 * 4096, 2 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 4 * 4096 * 4096
    seconds = 3 * tokens * (32 * layer + 2 * 4096 * 128256) / (8 * 989.4e12)
    eager = {**LLAMA_8B, "attn_implementation": "eager"}  # no scores are made again
    for loss in (True, False):
        step = sc.load(eager, loss=loss).step_time("tensor(8)", device="H100-SXM").at(B=8, L=4096)
        assert round(1000 * float(step.value), 1) == 214.1
        assert 0 < float(step.value) - seconds < 0.0015  # the rest: what the network and memory bound


def test_the_note_says_what_was_counted() -> None:
    said = [next(n for n in sc.load(GPT2, loss=loss).notes if "entropy" in n) for loss in (None, True, False)]
    assert said == [
        "the cross-entropy of the logits is counted (loss: false leaves it out)",
        "the cross-entropy of the logits is counted",
        "the cross-entropy of the logits is not counted",
    ]


def test_every_quantity_of_a_training_step_counts_the_loss_or_none_does() -> None:
    """What it adds, by its eight operations an element or by what it keeps and sends."""
    B, L, V = 2, 8, 96
    config = {"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 6, "n_positions": 16, "vocab_size": V}
    default, counted, left_out = (sc.load(config, loss=loss).at(B=B, L=L) for loss in (None, True, False))
    asked = (
        lambda m: m.flops("training", accounting="all_ops").at().value,
        lambda m: m.activation_memory().at().value,
        lambda m: m.peak_memory().at().value,
        lambda m: m.communication("tensor(2)").at().value,
        lambda m: m.step_time("tensor(2)", peak="1 TFLOP/s", memory="1 TB/s", network="1 GB/s", accounting="serial")
        .at().value,
    )  # fmt: skip
    for quantity in asked:
        assert quantity(default) == quantity(counted) > quantity(left_out)


@pytest.mark.few(3)
@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 12])
def test_ranks_that_do_not_divide_the_words_hold_the_largest_part(ranks: int) -> None:
    model = sc.load(GPT2)
    made = model.state_memory(f"tensor({ranks})")
    assert made.at().value == states(ranks, words(ranks))
    assert "vocabulary" in made.touched
    made.check(deep=True)
    open_degree = model.state_memory("tensor(k)")
    assert open_degree.at(k=ranks).value == states(ranks, words(ranks))
    assert open_degree.sweep(k=[1, ranks])["value"].tolist() == [states(1, 50257), states(ranks, words(ranks))]


def test_a_vocabulary_is_filled_up_to_128_words_a_rank_as_megatron_does() -> None:
    """Megatron-LM: 50257 words on four ranks become 50688, the next multiple of 512."""
    model = sc.load(GPT2)
    assert words(4, 128) == 12672 == 50688 // 4
    for strategy, values in (("tensor(4)", {}), ("tensor(k)", {"k": 4})):
        made = model.state_memory(strategy, accounting="padded_vocabulary")
        assert made.at(**values).value == states(4, 12672)
    assert model.state_memory("tensor(k)", accounting="padded_vocabulary").at(k=1).value == states(1, 50257)
    even = sc.load(LLAMA_8B)  # 128256 words are 1002 times 128, and no multiple of 8 times 128
    filled = even.state_memory("tensor(8)", accounting="padded_vocabulary").at().value
    assert filled - even.state_memory("tensor(8)").at().value == 16 * 2 * 4096 * (129024 - 128256) // 8


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_may_hold_the_mean_of_the_words_by_name(ranks: int) -> None:
    model, said = sc.load(GPT2), {"accounting": "mean_part"}
    for strategy, values in ((f"tensor({ranks})", {}), ("tensor(k)", {"k": ranks})):
        made = model.state_memory(strategy, **said)
        assert made.at(**values).value == states(ranks, Fraction(50257, ranks))
        assert "vocabulary" in made.touched
    with pytest.raises(sc.SymcommError, match=r"cuts n_H = 12 .* into 5 parts"):
        model.state_memory("tensor(5)", **said)


def test_a_convention_that_no_word_decides_is_not_named() -> None:
    model = sc.load(GPT2)
    assert "vocabulary" not in model.state_memory("data(4)").touched
    assert "vocabulary" not in model.communication("tensor(4)").touched
    told = model.communication("tensor(4)", accounting="padded_vocabulary").notes
    assert "Nothing here depends on `vocabulary: padded_vocabulary`." in told


@pytest.mark.few(1)
@pytest.mark.parametrize("convention", ["largest_part", "padded_vocabulary", "mean_part"])
def test_a_search_has_the_times_and_states_of_uneven_parts(convention: str) -> None:
    model = sc.load(GPT2).at(B=8, L=64)
    rates = {"peak": "100 TFLOP/s", "memory": "1 TB/s", "network": "100 GB/s"}
    found = sc.search(model, devices=4, capacity="1 TB", capacity_is="nominal_GB", strategies="data + tensor",
                      recomputation="none", microbatches="1", accounting=convention, top=10, **rates)  # fmt: skip
    assert {c.strategy for c in found.top} == {"data(4)", "data(2) + tensor(2)", "tensor(4)"}
    for c in found.top:
        assert c.time == model.step_time(c.strategy, accounting=convention, **rates).at().value
        held = [m(c.strategy, accounting=convention) for m in (model.state_memory, model.activation_memory)]
        assert c.memory == sum(one.at().value for one in held)


@pytest.mark.long
def test_what_fits_counts_whole_words() -> None:
    """Four ranks take 507 887 616 B; with a byte less six are the next that divide the heads."""
    ask = {"strategy": "tensor(k)", "solve_for": "k", "capacity_is": "usable", "include": "states"}
    model, four = sc.load(GPT2), states(4, words(4))
    assert four == 507_887_616
    assert model.derive("capacity", capacity=f"{four} B", **ask).at().value == 4
    less = model.derive("capacity", capacity=f"{four - 1} B", **ask)
    assert less.at().value == 6
    assert any("Parts of whole words take" in step.reason.text for step in less.steps)


def test_where_words_must_divide_the_error_says_how_to_fill_them_up() -> None:
    model = sc.load(GPT2)
    with pytest.raises(StrategyError, match="fill the vocabulary up to V = 50264; or give V and") as caught:
        check_cuts(model.graph, sc.Cut("V", 8), model.values)
    assert "may be 1" not in str(caught.value)
    assert model.state_memory(sc.Cut("V", 8)).at().value == 16 * (model.parameters().at().value - 768 * (50257 - 6283))


def test_what_has_no_vocabulary_is_padded_nowhere() -> None:
    table = "Computation\tInput\tOutput\ny = x W\tx [B, D], W [D, F]\ty [B, F]\nz = y U\tU [F, D]\tz [B, D]\n"
    made = sc.load(table).state_memory("tensor(k)", accounting="padded_vocabulary")
    assert made.at(k=2, D=6, F=4).value == Fraction(16 * 2 * 6 * 4, 2)
