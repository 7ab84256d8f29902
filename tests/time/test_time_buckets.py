"""A step whose gradients are reduced in buckets: against a queue of calls, and against the search."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import symcomm as sc

TABLE = """Computation\tInput\tOutput
H = relu(X W_1)\tX [B, D], W_1 [D, F]\tH [B, F]
Y = H W_2\tH [B, F], W_2 [F, D]\tY [B, D]
"""
LAYERS, WIDE = 6, 24
MODEL = sc.load(TABLE, repeat="N").at(N=LAYERS, D=WIDE, F=WIDE)
FLOPS, BANDWIDTH = 10**9, 10**9
RATES = {"peak": FLOPS, "memory": 10**18, "network": BANDWIDTH}


@given(st.integers(1, 9), st.integers(1, 3), st.integers(0, 50), st.sampled_from([2, 3, 4]), st.integers(1, 40))
@pytest.mark.long
def test_a_step_in_buckets_ends_when_the_last_call_of_a_queue_does(
    buckets: int, microbatches: int, overhead: int, ranks: int, examples: int
) -> None:
    batch = microbatches * ranks * examples
    made = MODEL.step_time(f"data({ranks})", microbatches=microbatches, buckets=buckets,
                           call_overhead=Fraction(overhead, 10**6), **RATES)  # fmt: skip
    products = Fraction(2 * 2 * WIDE * WIDE * examples * LAYERS, FLOPS)  # two products forward, four backward
    transfer = Fraction(LAYERS * 2 * WIDE * WIDE * 2 * 2 * (ranks - 1), ranks * BANDWIDTH)
    now = (microbatches - 1) * 3 * products + products  # where the last backward pass begins
    ready, link = now, now
    for _ in range(buckets):
        ready += 2 * products / buckets
        link = max(link, ready) + Fraction(overhead, 10**6) + transfer / buckets
    assert made.at(B=batch).value == link


def test_what_is_exposed_and_hidden_of_buckets_is_all_that_is_sent() -> None:
    asked = {"buckets": 3, "call_overhead": "5 us", **RATES}
    whole, exposed, hidden, sent = (
        MODEL.step_time("data(2)", of=of, **asked).at(B=8).value for of in ("step", "exposed", "hidden", "network")
    )
    alone = MODEL.step_time("data(1)", **RATES).at(B=4).value
    assert exposed == whole - alone
    assert exposed + hidden == sent
    assert sent == 3 * Fraction(5, 10**6) + Fraction(LAYERS * 2 * WIDE * WIDE * 2, BANDWIDTH)


def test_a_search_with_buckets_tells_the_time_that_step_time_derives() -> None:
    asked = {"call_overhead": "20 us", "latency": "1 us", **RATES}
    found = sc.search(MODEL, devices=4, strategies="zero-1 + tensor", batch=8, microbatches="1,2", buckets="1..4",
                      capacity="80 GB", capacity_is="nominal_GB", **asked)  # fmt: skip
    in_buckets = [c for c in found.top if dict(c.sizes).get("buckets")]
    assert in_buckets
    for c in in_buckets:
        step = MODEL.step_time(c.strategy, microbatches=c.microbatches, buckets=dict(c.sizes)["buckets"], **asked)
        assert step.at(B=8).value == c.time.value


@pytest.mark.parametrize("examples", [1, 40])
def test_only_the_sums_of_gradients_run_beside_the_last_backward_pass(examples: int) -> None:
    """What gathers the updated weights of ZeRO-1 comes behind it, however fast the network is."""
    made = MODEL.step_time("zero-1(2)", accounting="with_backward", **RATES).at(B=2 * examples)
    layer = Fraction(3 * 2 * 2 * WIDE * WIDE * examples, FLOPS)  # two products forward, four backward
    half = Fraction(2 * WIDE * WIDE * 2, 2 * BANDWIDTH)  # a reduce-scatter of two matrices, and so an all-gather
    assert made.value == LAYERS * (max(layer, half) + half)
    sent = MODEL.step_time("zero-1(2)", accounting="with_backward", of="network", **RATES).at(B=2 * examples)
    assert sent.value == LAYERS * 2 * half


def test_the_steps_of_buckets_hold_against_their_witnesses() -> None:
    MODEL.step_time("data(4)", microbatches=2, buckets="n_b").check(deep=True)
    MODEL.step_time("data(2) + tensor(2)", buckets=5, of="network").check(deep=True)


def test_throughput_follows_from_the_step_in_buckets() -> None:
    asked = {"microbatches": 2, "buckets": 4, "call_overhead": "20 us", **RATES}
    step = MODEL.step_time("data(2)", **asked).at(B=8).value
    assert MODEL.throughput("data(2)", **asked).at(B=8).value == 8 / step


@pytest.mark.parametrize("option", ["buckets", "call_overhead", "microbatches"])
@pytest.mark.parametrize("of", ["devices", "flops_per_token"])
def test_what_hangs_on_no_step_refuses_options_of_its_time(option: str, of: str) -> None:
    with pytest.raises(sc.SymcommError, match=f"{option} makes no difference to '(Devices|Operations of a token)'"):
        MODEL.throughput("data(2)", of=of, **{option: 2})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"call_overhead": "20 us"}, "the overhead of a call goes with buckets\nhint: for instance buckets=8"),
        ({"buckets": 2, "accounting": "with_backward"}, "buckets say when gradients are reduced"),
        ({"buckets": 2, "strategy": "tensor(2)"}, "no gradients are reduced between ranks"),
        ({"buckets": 2, "strategy": "data(1)"}, "no gradients are reduced between ranks"),
        ({"buckets": 2, "accounting": "weights_and_reloaded_activations"}, "buckets are timed by their links alone"),
        ({"buckets": 2, "call_overhead": "20 B"}, "call_overhead is given in B, but the overhead of a bucket's call"),
        ({"buckets": 0}, "'buckets' is 0, but it must be positive"),
        ({"buckets": 2, "strategy": "data(2) + pipeline(layers=4:2)"}, "buckets are of layers that are alike"),
    ],
)  # fmt: skip
def test_buckets_that_cannot_be_are_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(sc.SymcommError, match=message):
        MODEL.step_time(**{"strategy": "data(2)", **asked})
