"""What rewrites of the program change, in every quantity that follows from it, against counts by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest
from api import ValuesError

import symcomm as sc

T, D, N, K = 8, 256, 6, 4
WEIGHTS, BYTES = 2 * D * D + D, 4
ROWS = """Computation\tInput\tOutput
a = x W + c\tx [T, D], W [D, F], c [F]\ta [T, F]
u = relu(a)\ta [T, F]\tu [T, F]
y = u U\tU [F, D]\ty [T, D]
"""


def layers(**values):
    return sc.load(ROWS, repeat="N", dtype="fp32", values={"T": T, "D": D, "F": D, "N": N, **values})


def moved(accounting: dict[str, str], **options) -> int:
    return layers().communication(f"fsdp({K})", accounting=accounting, **options).at().value


@pytest.mark.parametrize(("how", "again"), [
    ("reshard", 2 * D * D), ("whole_units", WEIGHTS), ("layers", WEIGHTS), ("keep", 0), ("at_once", 0),
])  # fmt: skip
def test_weights_are_gathered_again_as_the_convention_of_resharding_says(how, again):
    """No gradient reads the bias; what is computed again does, so that it is gathered for that."""
    every = moved({"gathered_weights": how}, collective="all-gather")
    assert every == BYTES * N * (WEIGHTS + again)
    full = {"gathered_weights": how, "recomputation": "full_recomputation"}
    assert moved(full, collective="all-gather") == BYTES * N * (WEIGHTS + (WEIGHTS if again else 0))
    assert moved(full, collective="reduce-scatter") == BYTES * N * WEIGHTS


@pytest.mark.parametrize(("how", "times"), [("reshard", 4 * (WEIGHTS + 2 * D * D)), ("at_once", WEIGHTS)])
def test_weights_that_are_gathered_at_once_are_gathered_once_for_all_microbatches(how, times):
    said = {"gathered_weights": how, "accumulation": "reduced_every_microbatch"}
    assert moved(said, microbatches=4, collective="all-gather") == BYTES * N * times


@pytest.mark.parametrize("options", [
    {}, {"microbatches": 2},
])  # fmt: skip
def test_weights_that_are_gathered_at_once_are_whole_for_the_whole_step_and_so_are_gradients(options):
    """A quarter is kept, all of it is gathered, and at the end of backward all gradients are whole. Of a second
    microbatch the gradient of a matrix is there before it is added.
    """
    one = layers().peak_memory(f"fsdp({K})", recipe="fp32_sgd", accounting="at_once", **options).at().value
    weights = BYTES * N * WEIGHTS
    tokens = BYTES * 6 * T * D + BYTES * D * D * ("microbatches" in options)
    assert weights * (Fraction(1, K) + 2) <= one <= weights * (Fraction(1, K) + 2) + tokens


def test_a_pipeline_of_models_that_are_gathered_at_once_holds_those_of_its_stage():
    strategy = f"fsdp({K}) + pipeline(2, microbatches=2)"
    one = layers().peak_memory(strategy, recipe="fp32_sgd", accounting="at_once").at().value
    weights = BYTES * N // 2 * WEIGHTS
    assert weights * (Fraction(1, K) + 2) <= one <= weights * (Fraction(1, K) + 2) + BYTES * (12 * T * D + D * D)


@pytest.mark.parametrize("again", ["none", "full"])
def test_copies_of_weights_are_as_long_there_as_the_convention_of_resharding_says(again):
    """Many ranks, so that shards are small: kept copies are of all layers; units are of one layer, but whole."""
    ranks, tokens = 64, Fraction(BYTES * 4 * T * D * N, 64)
    shards = 2 * Fraction(BYTES * N * WEIGHTS, ranks)

    def temporaries(how: str) -> Fraction:
        made = layers(T=64).peak_memory(f"fsdp({ranks})", recipe="fp32_sgd", recomputation=again,
                                        accounting={"gathered_weights": how})  # fmt: skip
        return made.at().value

    kept, unit, single = map(temporaries, ("keep", "whole_units", "reshard"))
    matrix = BYTES * D * D
    assert N * 2 * matrix <= kept <= N * BYTES * WEIGHTS + matrix + shards + tokens * 8
    # Both matrices of a layer, and the gradient of one, before it is scattered.
    assert 3 * matrix <= unit <= 3 * matrix + BYTES * D * 2 + shards + tokens * 8
    if again == "full":  # gathered once for what runs again and for backward
        assert 2 * matrix < single <= unit
    else:
        assert single < unit


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "strategy", [None, "data(4)", "zero-1(4)", "fsdp(4)", "tensor(2) + pipeline(2, microbatches=2)"]
)
def test_states_on_the_host_take_no_memory_of_the_device(strategy):
    """In the update that makes the states, and in steps before which they are there; what is sent stays the same."""
    one = layers()
    here, there = (one.state_memory(strategy, accounting=how).at().value for how in ("on_device", "states_on_host"))
    states = one.state_memory(strategy, of="states").at().value
    assert here - there == states > 0
    for step in ("first", "later"):
        kept = one.peak_memory(strategy, step=step, recipe="mixed_adam", accounting="states_on_host")
        assert kept.at() == one.peak_memory(strategy, step=step, recipe="2+2+0").at()
        assert "offloading" in kept.touched
    with pytest.raises(ValuesError, match="the states are on the host"):
        one.state_memory(strategy, of="states", accounting="states_on_host")


def test_what_is_sent_between_ranks_does_not_hang_on_the_host():
    made = layers().communication("data(4)", accounting="states_on_host")
    assert made.at() == layers().communication("data(4)").at()
    assert any("Nothing here depends on `offloading: states_on_host`" in note for note in made.notes)


RATES = {"peak": "1 TFLOP/s", "memory": "1 TB/s", "network": "1 GB/s"}
HELD = {"capacity": "1 TB", "capacity_is": "usable", "microbatches": "1", "recomputation": "none"}


def test_a_search_fits_more_where_states_are_on_the_host_and_times_what_goes_there():
    found = [
        sc.search(layers(), devices=2, strategies="data", accounting=how, links=links, **RATES, **HELD).top[0]
        for how, links in (("on_device", None), ("states_on_host", "host=2 GB/s"))
    ]
    assert found[0].memory.value - found[1].memory.value == 12 * N * WEIGHTS
    assert found[1].time.value - found[0].time.value == Fraction(2 * BYTES * N * WEIGHTS, 2 * 10**9)
    copies = {"copy of weight gradients over host", "copy of updated weights over host"}
    assert copies <= {call.what for call in found[1].calls}
    with pytest.raises(ValuesError, match="needs a value for W_host\nhint: name a device, or give links: host=32 GB/s"):
        sc.search(layers(), devices=2, strategies="data", accounting="states_on_host", **RATES, **HELD)


@pytest.mark.few(3)
@pytest.mark.parametrize(("strategy", "copied"), [
    (None, Fraction(1)), ("data(4)", Fraction(1)), ("zero-1(4)", Fraction(1, 4)), ("zero-2(4)", Fraction(1, 4)),
    ("fsdp(4)", Fraction(1, 4)), ("data(2) + pipeline(2, microbatches=2)", Fraction(1, 2)),
])  # fmt: skip
def test_each_rank_copies_the_gradients_that_it_updates_and_gets_the_new_weights_back(strategy, copied):
    """Two bytes a weight, four a gradient; of a pipeline the weights of one stage."""
    model = sc.load(ROWS, repeat="N", dtype="fp16", values={"T": T, "D": D, "F": D, "N": N})
    asked = {**RATES, "strategy": strategy, "gradient_dtype": "fp32"}
    here = model.step_time(**asked, accounting="serial").at().value
    there = model.step_time(**asked, accounting=sc.Accounting.of("serial", "states_on_host"), links="host=1 GB/s").at()
    assert there.value - here == copied * 6 * N * WEIGHTS / 10**9


def test_what_is_frozen_goes_nowhere_and_the_device_says_how_fast_its_host_is():
    times = [
        layers().step_time("data(4)", frozen=frozen, device="H100-SXM", dtype="fp16", of="network",
                           accounting=sc.Accounting.of("serial", how)).at().value
        for frozen in (None, "W") for how in ("on_device", "states_on_host")
    ]  # fmt: skip
    assert times[1] - times[0] == Fraction(2 * 2 * N * WEIGHTS, 64 * 10**9)
    assert times[3] - times[2] == Fraction(2 * 2 * N * (WEIGHTS - D * D), 64 * 10**9)


def test_the_copies_of_a_whole_model_are_of_all_its_parameters_and_of_a_shared_one_once():
    config = {"model_type": "gpt2", "n_layer": 4, "n_embd": 8, "n_head": 2, "vocab_size": 12, "n_positions": 4}
    model = sc.load(config).at(B=2, L=4)
    how = sc.Accounting.of("serial", "states_on_host")
    asked = {"of": "network", "dtype": "fp16", **RATES, "links": "host=1 GB/s"}
    one = model.step_time("data(1)", accounting=how, **asked).at().value
    assert one == Fraction(2 * 2 * model.parameters().at().value, 10**9)


def test_the_times_of_copies_hold_against_their_witnesses():
    layers().step_time("zero-1(4)", microbatches=2, accounting="states_on_host").check(deep=True)
    made = layers().time("fsdp(4)", phase="end_of_batch", accounting="states_on_host", links="host=1 GB/s @ 3 us")
    made.check(deep=True)


def test_buckets_are_copies_of_the_gradients_that_replicas_reduce():
    for strategy, share in (("data(4)", 1), ("zero-1(4)", 1), ("data(2) + tensor(2)", Fraction(1, 2))):
        made = layers().peak_memory(strategy, recipe="fp32_sgd", accounting="copied")
        none = layers().peak_memory(strategy, recipe="fp32_sgd").at().value
        assert made.at().value - none == BYTES * N * WEIGHTS * share, strategy
        assert "gradient_buckets" in made.touched
    for strategy in ("fsdp(4)", "tensor(4)"):
        made = layers().peak_memory(strategy, accounting="copied")
        assert "Nothing here depends on `gradient_buckets: copied`." in made.notes
    made = layers().peak_memory("data(4)", accounting="at_once")
    assert "Nothing here depends on `gathered_weights: at_once`." in made.notes


def test_other_times_refuse_what_goes_to_the_host():
    for quantity in ("compute_bound", "roofline"):
        with pytest.raises(sc.SymcommError, match=f"{quantity} does not time what goes to the host and comes back"):
            layers().derive(quantity, accounting="states_on_host", **{"strategy": "data(4)"} if "_" in quantity else {})
    told = layers().step_time("data(4)", links="host=1 GB/s").notes
    assert "Nothing in this answer is sent to the host: `links` changes nothing there." in told
