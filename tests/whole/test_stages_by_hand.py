"""What single stages of a pipeline send and hold, by hand; a weight that the first and the last share is on both."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest

import symcomm as sc

D, F, N, HEADS, V, L, B = 12, 24, 4, 6, 18, 6, 24


@cache
def gpt2(tied: bool) -> sc.Model:
    config = {
        "model_type": "gpt2", "n_embd": D, "n_layer": N, "n_head": HEADS, "n_inner": F, "vocab_size": V,
        "n_positions": L, "tie_word_embeddings": tied,
    }  # fmt: skip
    return sc.load(config, dtype="fp32", loss=True, values={"B": B, "L": L})


def sent(tied: bool, strategy: str, stage: int, how: str = "sent_per_rank", **options: str) -> Fraction:
    asked = {"strategy": strategy, "stage": stage, "accounting": how, **options}
    return gpt2(tied).communication(**asked).at().value / 4  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("strategy", "cut"),
    [
        ("pipeline(2, microbatches=4)", 1),
        ("fsdp(3) + pipeline(4, microbatches=4)", 3),
        pytest.param("zero-1(3) + pipeline(2, microbatches=4)", 3, marks=pytest.mark.long),
        pytest.param("tensor(3) + pipeline(2, microbatches=2)", 3, marks=pytest.mark.long),
        pytest.param(
            "fsdp(2) + tensor(3) + sequence + pipeline(layers=1:3, microbatches=2)", 6, marks=pytest.mark.long
        ),
    ],
)
def test_a_tied_table_costs_both_stages_what_two_tables_do_and_their_sum(strategy: str, cut: int) -> None:
    last = 3 if "pipeline(4" in strategy else 1
    for stage in (0, last):
        one, two = (sent(tied, strategy, stage) for tied in (True, False))
        assert one - two == Fraction(V * D, cut), "an all-reduce between two stages sends each number once"
        for quantity in ("state_memory", "activation_memory", "peak_memory"):
            held = [getattr(gpt2(tied), quantity)(strategy, stage=stage).at() for tied in (True, False)]
            assert held[0] == held[1], (quantity, stage)
    if last > 1:
        assert sent(True, strategy, 1) == sent(False, strategy, 1)


@pytest.mark.parametrize("units", ["reshard", "whole_units", pytest.param("keep", marks=pytest.mark.long)])
def test_what_is_gathered_of_a_tied_table_is_what_is_gathered_of_two(units: str) -> None:
    how = {"communication": "sent_per_rank", "gathered_weights": units}
    for stage in (0, 1):
        one, two = (
            gpt2(tied).communication("fsdp(3) + pipeline(2, microbatches=4)", stage=stage, collective="all-gather",
                                     accounting=how).at()
            for tied in (True, False)
        )  # fmt: skip
        assert one == two


@pytest.mark.few(3)
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
@pytest.mark.parametrize("often", ["reduced_once", "reduced_every_microbatch"])
@pytest.mark.parametrize("units", ["reshard", "whole_units", "layers", "keep", "at_once"])
def test_the_peak_of_stages_with_a_tied_table_is_that_of_stages_with_two(units: str, often: str, schedule: str) -> None:
    """The table is most of both stages: each gathers it whole and reduces its own part of the gradient."""
    peaks = []
    for tied in (True, False):
        config = {"model_type": "gpt2", "n_embd": D, "n_layer": N, "n_head": HEADS, "n_inner": F, "vocab_size": 600,
                  "n_positions": L, "tie_word_embeddings": tied}  # fmt: skip
        model = sc.load(config, dtype="fp32", loss=True, values={"B": B, "L": L})
        asked = {"schedule": schedule, "accounting": {"gathered_weights": units, "accumulation": often}}
        peaks.append([
            model.peak_memory("fsdp(3) + pipeline(2, microbatches=4)", stage=stage, **asked).at() for stage in (0, 1)
        ])  # fmt: skip
    assert peaks[0] == peaks[1]


def test_a_sharded_tied_table_is_gathered_on_both_stages() -> None:
    strategy, layer = "fsdp(3) + pipeline(2, microbatches=4)", 4 * D * D + 2 * D * F + 9 * D + F
    for stage, ends in ((0, V * D + L * D), (1, V * D + 2 * D)):
        forward = sent(True, strategy, stage, collective="all-gather", phase="forward")
        assert forward == 4 * Fraction(2, 3) * (N // 2 * layer + ends)


@pytest.mark.parametrize(
    "strategy", ["data(2) + pipeline(4, microbatches=3)", "data(2) + pipeline(layers=1:1:2, microbatches=3)"]
)
def test_the_first_stage_sends_nothing_back_and_the_last_one_nothing_on(strategy: str) -> None:
    across, last = B // 2 * L * D, 3 if "pipeline(4" in strategy else 2
    for stage in range(last + 1):
        on, back = (sent(False, strategy, stage, collective="send", phase=way) for way in ("forward", "backward"))
        assert (on, back) == (across * (stage < last), across * (stage > 0))
        neighbours = (stage > 0) + (stage < last)
        assert sent(False, strategy, stage, collective="send") == neighbours * across
        both = sent(False, strategy, stage, "sent_and_received_per_rank", collective="send")
        assert both == 2 * neighbours * across
    whole = gpt2(False).communication(strategy, collective="send", accounting="all_boundaries").at().value / 4
    assert whole == sum(sent(False, strategy, stage, collective="send") for stage in range(last + 1))


@pytest.mark.parametrize(("stages", "phase", "messages", "which"), [
    (4, None, 2, "stage 1 (0 is the first)"), (4, "forward", 1, "the first one"),
    (4, "backward", 1, "stage 1 (0 is the first)"), (2, None, 1, "the first one"), (2, "backward", 1, "the last one"),
])  # fmt: skip
def test_without_a_stage_the_one_answers_that_sends_most(
    stages: int, phase: str | None, messages: int, which: str
) -> None:
    """A stage between two others sends activations on and gradients back; the ends do one of both."""
    asked = {"accounting": "sent_per_rank", "collective": "send", "phase": phase}
    most = gpt2(False).communication(f"pipeline({stages}, microbatches=4)", **asked)
    assert most.at().value == 4 * messages * B * L * D
    assert f"No stage sends more than {which}." in most.notes
    open_sizes = sc.load("Computation\tInput\tOutput\ny = x W\tx [T, D], W [D, D]\ty [T, D]\n", repeat="N")
    counted = open_sizes.communication(f"pipeline({stages}, microbatches=4)", **asked)
    assert counted.at(T=16, D=8, N=8).value == 2 * messages * 16 * 8
    later = open_sizes.communication("pipeline(p, microbatches=4)", **asked)
    assert later.at(T=16, D=8, N=8, p=stages).value == 2 * messages * 16 * 8
    assert any(note.startswith("Numbers decide which stage sends most") for note in later.notes)


@pytest.mark.parametrize(
    "strategy", ["tensor(3) + pipeline(4, microbatches=4)", "fsdp(3) + pipeline(4, microbatches=4)"]
)
def test_collectives_and_messages_of_a_rank_are_added_before_the_largest_is_taken(strategy: str) -> None:
    for how in ("sent_per_rank", "sent_and_received_per_rank"):
        most = gpt2(False).communication(strategy, accounting=how).at().value / 4
        assert most == max(sent(False, strategy, stage, how) for stage in range(4))


DEEPSEEK = {
    "model_type": "deepseek_v2", "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 8, "intermediate_size": 128, "moe_intermediate_size": 32, "vocab_size": 128,
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 3,
    "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
}  # fmt: skip
# The pieces of eight layers that each of two ranks has, in order, and how many pieces there are.
PIECES = {
    "1f1b": ([[0], [1]], 2), "zb-h1": ([[0], [1]], 2), "dualpipe": ([[0, 1], [1, 0]], 2),
    "zb-v": ([[0, 3], [1, 2]], 4), "dualpipev": ([[0, 3], [1, 2]], 4),
}  # fmt: skip


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("schedule", PIECES)
def test_a_rank_has_the_layers_of_its_chunks_where_they_are_of_two_kinds(schedule, rank):
    """Before, a rank of two chunks had the layers of one stage, twice under DualPipe."""
    attention = 64 * 24 + 24 + 24 * 8 * 12 + 64 * 20 + 16 + 16 * 8 * 16 + 8 * 8 * 64 + 2 * 64
    dense, experts = attention + 3 * 64 * 128, attention + 3 * 64 * 32 * (4 + 1) + 64 * 4
    layers, (ranks, pieces) = [dense] * 3 + [experts] * 5, PIECES[schedule]
    ends = {0: 128 * 64, pieces - 1: 128 * 64 + 64}
    right = sum(
        sum(layers[piece * 8 // pieces : (piece + 1) * 8 // pieces]) + ends.get(piece, 0) for piece in ranks[rank]
    )
    held = sc.load(DEEPSEEK).state_memory("pipeline(2, microbatches=8)", schedule=schedule, stage=rank, of="weights")
    assert held.at().value == 2 * right


def test_the_chunks_of_two_kinds_of_layers_have_to_be_said():
    with pytest.raises(sc.SymcommError) as error:
        sc.load(DEEPSEEK).state_memory("pipeline(2, microbatches=8)", schedule="interleaved")
    assert str(error.value) == ("which kinds of layers a rank of interleaved holds depends on its chunks\n"
                                "hint: peak_memory and activation_memory take chunks: 2")  # fmt: skip
