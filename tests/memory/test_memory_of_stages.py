"""Which stage of a pipeline answers, what two stages of a rank hold, and what rests on the host."""

import pytest
from api import StrategyError

import symcomm as sc

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 8, "vocab_size": 2048,
    "num_attention_heads": 4, "num_key_value_heads": 4,
}  # fmt: skip
LAYER, WORDS = 4 * 64 * 64 + 3 * 64 * 256 + 2 * 64, 2048 * 64
MEMORY = ("state_memory", "activation_memory", "peak_memory")


@pytest.mark.few(2)
@pytest.mark.parametrize("quantity", MEMORY)
@pytest.mark.parametrize(
    "strategy",
    ["pipeline(4, microbatches=8)", "pipeline(4, microbatches=1)", "pipeline(layers=1:2:3:2, microbatches=8)"],
)
def test_a_pipeline_asked_without_a_stage_answers_for_the_one_with_the_most(quantity: str, strategy: str) -> None:
    model = sc.load(LLAMA).at(B=8, L=32)
    each = [model.derive(quantity, strategy=strategy, stage=n).at().value for n in range(4)]
    most = model.derive(quantity, strategy=strategy)
    assert most.at().value == max(each)
    number = each.index(max(each))
    which = {0: "the first one", 3: "the last one"}.get(number, f"stage {number} (0 is the first)")
    assert f"No stage has more than {which}." in most.notes


def test_the_largest_state_is_that_of_the_stage_with_the_head() -> None:
    """Two layers of eight, the words of the head and the gain before it: 64 numbers more than with the embedding."""
    model = sc.load(LLAMA)
    assert model.state_memory("pipeline(4)").at().value == 16 * (2 * LAYER + WORDS + 64)
    assert model.state_memory("pipeline(p)").at(p=4).value == 16 * (2 * LAYER + WORDS + 64)
    assert model.state_memory("pipeline(4)", stage=0).at().value == 16 * (2 * LAYER + WORDS)


def test_numbers_that_come_later_choose_the_stage_as_well() -> None:
    model, strategy = sc.load(LLAMA), "pipeline(4, microbatches=1)"
    kept = model.activation_memory(strategy)
    for B, L in ((8, 32), (16, 8)):
        sizes = {"B": B, "L": L}
        each = [model.activation_memory(strategy, stage=n).at(**sizes).value for n in range(4)]
        assert kept.at(**sizes).value == max(each) == each[-1]  # the logits are on the last one


@pytest.mark.parametrize("microbatches", [8, 3])
def test_pipedream_keeps_the_weights_that_each_microbatch_in_flight_has_read(microbatches: int) -> None:
    """By hand: stage s has run p - s microbatches forward before the first one comes back, or all there are."""
    model, ends = sc.load(LLAMA), [WORDS, 0, 0, WORDS + 64]
    for stage in range(4):
        weights = 2 * LAYER + ends[stage]
        versions = min([4, 3, 2, 1][stage], microbatches)
        ask = {"schedule": "pipedream", "stage": stage, "recipe": "mixed_adam"}
        kept = model.state_memory(f"pipeline(4, microbatches={microbatches})", **ask)
        assert kept.at().value == (2 * versions + 2 + 12) * weights
        kept.check(deep=True)
        alone = model.state_memory(f"pipeline(4, microbatches={microbatches})", of="weights", **ask)
        assert alone.at().value == 2 * versions * weights
    symbols = model.state_memory("pipeline(p, microbatches=m)", schedule="pipedream", stage=1, of="weights")
    assert symbols.at(p=4, m=8).value == 2 * 3 * 2 * LAYER
    halves = model.state_memory("pipeline(4, microbatches=8) + tensor(2)", schedule="pipedream", stage=1, of="weights")
    assert halves.at().value == 2 * 3 * 2 * (LAYER // 2 + 64)  # each rank has the gains of both norms


def test_a_schedule_without_a_flush_has_no_step() -> None:
    model = sc.load(LLAMA)
    told = "pipedream updates the weights with each microbatch, so the {} of a step is not derived"
    hint = "\nhint: 1f1b, with one update a step; state_memory counts the versions of the weights"
    for what, ask in (("peak", model.peak_memory), ("time", model.step_time)):
        with pytest.raises(StrategyError) as caught:
            ask("pipeline(4, microbatches=8)", schedule="pipedream")
        assert str(caught.value) == told.format(what) + hint
    with pytest.raises(sc.SymcommError) as caught_too:
        model.state_memory("pipeline(4, microbatches=8)", schedule="pipedream", frozen="W^V")
    assert str(caught_too.value) == "pipedream keeps versions of weights that change, not of frozen ones\nhint: 1f1b"


@pytest.mark.parametrize("rank", range(4))
def test_a_rank_of_dualpipe_holds_the_layers_of_both_its_stages(rank: int) -> None:
    layers, model = [1, 2, 3, 2], sc.load(LLAMA)
    other = 3 - rank
    ends = 2 * WORDS + 64 if rank in (0, 3) else 0
    ask = {"schedule": "dualpipe", "stage": rank}
    held = model.state_memory("pipeline(layers=1:2:3:2, microbatches=8)", **ask)
    assert held.at().value == 16 * ((layers[rank] + layers[other]) * LAYER + ends)
    held.check(deep=True)
    even = model.state_memory("pipeline(layers=2:2:2:2, microbatches=8)", **ask).at()
    assert even == model.state_memory("pipeline(4, microbatches=8)", **ask).at()


@pytest.mark.parametrize("schedule", ["interleaved", "zb-v"])
def test_chunks_of_stages_with_layers_of_their_own_are_refused_by_time_and_memory(schedule: str) -> None:
    model, strategy = sc.load(LLAMA).at(B=8, L=32), "pipeline(layers=1:2:3:2, microbatches=8)"
    rates = {"peak": "1 TFLOP/s", "memory": "1 TB/s", "network": "1 GB/s"}
    with pytest.raises(StrategyError, match=f"a rank of {schedule} has several"):
        model.state_memory(strategy, schedule=schedule)
    with pytest.raises(StrategyError, match=f"{schedule} cuts them into chunks as well"):
        model.step_time(strategy, schedule=schedule, chunks=2, **rates)


TIED_MESHES = ("pipeline(2, microbatches=1)", "pipeline(2, microbatches=2)", "data(2) + pipeline(2, microbatches=2)",
               "zero-2(2) + pipeline(2, microbatches=2)", "fsdp(2) + pipeline(2, microbatches=2)",
               "fsdp(2) + tensor(2) + pipeline(2, microbatches=2)")  # fmt: skip
TIED_CASES = [
    (mesh, said) for mesh in TIED_MESHES for said in (
        {}, *([{"gathered_weights": how} for how in ("keep", "layers", "at_once")] if "fsdp" in mesh else []),
        *([{"gradient_buckets": "copied"}] if "data" in mesh else []))
]  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize(("mesh", "said"), TIED_CASES, ids=str)
def test_a_stage_with_one_end_of_a_tied_weight_has_the_peak_of_one_that_is_not_tied(
    mesh: str, said: dict[str, str], stage: int
) -> None:
    """It gathers the weight, and makes its gradient once: the other part of it is made on the other stage."""
    small = {**LLAMA, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    tied, apart = (
        sc.load({**small, "tie_word_embeddings": one}, loss=True).at(B=8, L=16).peak_memory(
            mesh, stage=stage, accounting=said).at()
        for one in (True, False)
    )  # fmt: skip
    assert tied == apart


def test_layers_that_do_not_divide_hint_at_a_list_of_them() -> None:
    with pytest.raises(StrategyError, match="8 layers are not divisible into 3 stages") as caught:
        sc.load(LLAMA).state_memory("pipeline(3)")
    assert "8 layers make 1, 2, 4 or 8 equal stages; of uneven ones say the layers: pipeline(layers=3:3:2)" in str(
        caught.value
    )


def test_the_memory_of_the_host_is_what_the_device_spares() -> None:
    model, ask = sc.load(LLAMA), {"strategy": "zero-1(4)"}
    parameters = 8 * LAYER + 2 * WORDS + 64
    whole = model.state_memory(**ask).at().value
    host = model.state_memory(**ask, on="host", accounting="states_on_host")
    device = model.state_memory(**ask, accounting="states_on_host").at().value
    assert host.at().value == 12 * parameters // 4  # fp32 weights and two moments, a quarter of each
    assert whole == host.at().value + device
    assert "offloading" in host.touched


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"on": "host"}, "nothing is on the host\nhint: offloading: states_on_host"),
        ({"on": "host", "of": "weights", "accounting": "states_on_host"},
         "the weights are on the device\nhint: on: device"),
        ({"of": "states", "accounting": "states_on_host"}, "the states are on the host\nhint: on: host, or offloading"),
    ],
)  # fmt: skip
def test_where_nothing_rests_the_error_says_where_it_is(said: dict[str, str], told: str) -> None:
    with pytest.raises(sc.SymcommError) as caught:
        sc.load(LLAMA).state_memory(**said)
    assert str(caught.value).startswith(told)
