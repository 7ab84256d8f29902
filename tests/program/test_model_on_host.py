"""Weights and gradients on the host: what is copied when, what the device still has, and how long that takes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import symcomm as sc

T, D, F, N = 8, 64, 256, 6
ROWS = """Computation\tInput\tOutput
a = x W\tx [T, D], W [D, F]\ta [T, F]
u = relu(a)\ta [T, F]\tu [T, F]
y = u U\tU [F, D]\ty [T, D]
"""
P = N * 2 * D * F
MATRIX = 2 * D * F  # bytes
SLOW_HOST = {"peak": "1 PFLOP/s", "network": "1 PB/s", "memory": "1 PB/s", "links": {"host": "1 GB/s"}}


def layers() -> sc.Model:
    return sc.load(ROWS, repeat="N", dtype="fp16", values={"T": T, "D": D, "F": F, "N": N})


def copied(strategy: str, offloading: str, **options: Any) -> list[Fraction]:
    """The bytes of a rank that are copied in the forward pass, the backward pass and the update."""
    chosen: dict[str, Any] = {"offloading": offloading, "communication": "sent_per_rank"}
    chosen |= options.pop("accounting", {})
    asked = {"level": "host", "accounting": chosen, **options}
    return [layers().communication(strategy, phase=phase, **asked).at().value
            for phase in ("forward", "backward", "update")]  # fmt: skip


@pytest.mark.parametrize(("strategy", "ranks"), [("data(1)", 1), ("zero-2(4)", 4), ("fsdp(4)", 4), ("tensor(2)", 2)])
def test_zero_offload_sends_gradients_out_as_they_are_made_and_gets_weights_back(strategy: str, ranks: int) -> None:
    """Rajbhandari's cut of the data flow: 2P bytes out and 2P in, over the ranks."""
    assert copied(strategy, "states_and_gradients_on_host") == [0, Fraction(2 * P, ranks), Fraction(2 * P, ranks)]
    sixteen = layers().communication(strategy, level="host", phase="backward", gradient_dtype="fp32",
                                     accounting="states_and_gradients_on_host")  # fmt: skip
    assert sixteen.at().value == Fraction(4 * P, ranks)


@pytest.mark.parametrize(("strategy", "ranks"), [("data(1)", 1), ("fsdp(4)", 4), ("tensor(2)", 2)])
def test_each_pass_copies_the_weights_in_and_no_update_sends_any(strategy: str, ranks: int) -> None:
    """Weights in the forward and in the backward pass, where gradients leave, too."""
    assert copied(strategy, "model_on_host") == [Fraction(2 * P, ranks), Fraction(4 * P, ranks), 0]


def test_replicas_that_gather_new_weights_have_them_on_their_devices_first() -> None:
    """A quarter of the new weights comes in, is gathered, and the whole goes out."""
    assert copied("zero-1(4)", "model_on_host")[2] == 2 * P * (1 + Fraction(1, 4))


def test_copies_of_gathered_weights_are_made_as_often_as_these() -> None:
    for gathered, times in (("reshard", 2), ("whole_units", 2), ("keep", 1), ("at_once", 1)):
        forward, backward, _ = copied("fsdp(4)", "model_on_host", accounting={"gathered_weights": gathered})
        assert forward + backward == Fraction((times + 1) * 2 * P, 4), gathered


@pytest.mark.parametrize("offloading", ["on_device", "model_on_host"])
def test_weights_are_gathered_for_each_run_of_a_layer_or_once_for_both_of_the_backward_pass(offloading: str) -> None:
    """ZeRO-Infinity loads a weight three times where activations are computed again; FSDP gathers it twice."""
    for gathered, times in (("each_run", 3), ("reshard", 2)):
        how = {"gathered_weights": gathered, "recomputation": "full_recomputation", "offloading": offloading}
        made = layers().communication("fsdp(4)", collective="all-gather", accounting=how)
        made.check(deep=True)
        assert made.at().value == times * 2 * P, gathered
        if offloading == "model_on_host":
            copies = layers().communication("fsdp(4)", level="host", accounting=how)
            assert copies.at().value == (times + 1) * 2 * P // 4  # and the gradient out
        without = {**how, "recomputation": "activations_kept"}
        assert layers().communication("fsdp(4)", collective="all-gather", accounting=without).at().value == 2 * 2 * P
        assert layers().peak_memory("fsdp(4)", accounting=how).at().value > 0
        layers().step_time("fsdp(4)", accounting=how).check(deep=True)


def test_weights_come_in_for_each_microbatch_and_gradients_leave_once() -> None:
    assert copied("fsdp(4)", "model_on_host", microbatches=3) == [3 * P // 2, 3 * P // 2 + P // 2, 0]
    often = {"accumulation": "reduced_every_microbatch"}
    assert copied("fsdp(4)", "model_on_host", microbatches=3, accounting=often)[1] == 3 * (P // 2 + P // 2)


def test_first_layers_that_spare_a_gradient_read_no_weight_for_it() -> None:
    """The first product needs no gradient of x, so W of the first layer is not read again."""
    spared = copied("data(1)", "model_on_host", accounting={"input_gradient": "not_needed"})
    assert spared[1] == 4 * P - MATRIX


@pytest.mark.parametrize(("strategy", "least"), [("data(1)", Fraction(2)), ("fsdp(4)", Fraction(5, 4))])
def test_of_weights_and_gradients_the_device_has_those_of_one_layer_at_most(strategy: str, least: Fraction) -> None:
    """A matrix and its gradient; or a whole one beside its part, which comes in or goes out. And what tokens take."""
    kept = 2 * T * (D + F) * N
    peak = layers().peak_memory(strategy, accounting="model_on_host").at().value
    assert least * MATRIX <= peak <= least * MATRIX + kept + 2 * 3 * T * F
    here = layers().peak_memory(strategy, recipe="2+2+0").at().value
    assert here - peak >= (N - 1) * 4 * MATRIX // (4 if "fsdp" in strategy else 1)


def test_gradients_that_microbatches_add_are_on_the_device_until_all_are_there() -> None:
    model, asked = layers(), {"microbatches": 2, "accounting": "states_and_gradients_on_host"}
    assert model.state_memory("fsdp(4)", of="gradients", **asked).at().value == 2 * P
    assert model.state_memory("fsdp(4)", of="gradients", on="host", **asked).at().value == 2 * P // 4
    often = {"offloading": "model_on_host", "accumulation": "reduced_every_microbatch"}
    assert model.state_memory("fsdp(4)", microbatches=2, accounting=often).at().value == 0
    peaks = [model.peak_memory("fsdp(4)", microbatches=2, accounting={**often, "accumulation": how}).at().value
             for how in ("reduced_once", "reduced_every_microbatch")]  # fmt: skip
    assert peaks[0] - peaks[1] >= (N - 1) * 2 * MATRIX


def test_a_gradient_to_which_two_regions_add_leaves_when_it_is_whole() -> None:
    config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 4096, "n_positions": 4}
    model, table = sc.load(config).at(B=1, L=4), 2 * 16 * 4096
    everything = 2 * model.parameters().at().value
    out = model.communication("data(1)", level="host", accounting="states_and_gradients_on_host", phase="backward")
    assert out.at().value == everything
    peak = model.peak_memory(accounting="model_on_host").at().value
    assert 2 * table <= peak <= 2 * table + 6 * 4 * 4 * 4096 + everything - table


def test_gradients_hide_behind_the_backward_pass_where_reductions_do() -> None:
    """Weights in twice, gradients out; only the gradients of the last pass are beside it, and nothing computes long."""
    times = [layers().step_time("fsdp(4)", accounting=["model_on_host", "serial", how], **SLOW_HOST)
             for how in ("end_of_batch", "with_backward")]  # fmt: skip
    for made in times:
        made.check(deep=True)
        assert made.at().value == pytest.approx(3 * 2 * P / 4 / 1e9, rel=1e-3)
    slow = {**SLOW_HOST, "peak": "1 GFLOP/s"}
    end, beside = (layers().step_time("data(1)", accounting=["states_and_gradients_on_host", how], **slow).at().value
                   for how in ("end_of_batch", "with_backward"))  # fmt: skip
    assert end - beside == Fraction(2 * P, 10**9)


@pytest.mark.parametrize("strategy", ["zero-1(2)", "fsdp(2)", "fsdp(2) + pipeline(2, microbatches=2)"])
def test_every_answer_about_the_model_on_the_host_holds_against_its_witnesses(strategy: str) -> None:
    for said in ("states_and_gradients_on_host", "everything_on_host"):
        for on in ("device", "host"):
            layers().state_memory(strategy, on=on, accounting=said).check(deep=True)
        made = layers().communication(strategy, level="host", accounting=[said, "sent_per_rank"])
        made.check(deep=True)
        assert "offloading" in made.touched
        assert "offloading" in layers().peak_memory(strategy, accounting=said).touched


def test_a_search_fits_a_model_whose_weights_no_device_has() -> None:
    asked: dict[str, Any] = {"devices": 2, "strategies": "fsdp", "capacity": "0.3 MB", "capacity_is": "usable",
                             "recomputation": "none", "microbatches": "1", "jobs": 1, **SLOW_HOST}  # fmt: skip
    found = [sc.search(layers(), accounting=how, **asked).top for how in ("on_device", "model_on_host")]
    assert [len(one) for one in found] == [0, 1]
    step = layers().step_time("fsdp(2)", accounting="model_on_host", **SLOW_HOST)
    assert found[1][0].time.value == step.at().value


def test_ranks_of_a_host_share_its_memory_which_has_to_hold_what_they_keep() -> None:
    """Twelve bytes of states a parameter, a quarter of them on each of eight ranks: two groups of four."""
    asked: dict[str, Any] = {"strategy": "zero-1(4)", "on": "host", "accounting": "states_on_host"}
    made = layers().state_memory(**asked, per_host=8, host_capacity="5 MB")
    made.check(deep=True)
    assert made.at().value == 12 * P * 8 // 4 == 4_718_592
    with pytest.raises(sc.SymcommError) as caught:
        layers().state_memory(**asked, per_host=8, host_capacity="4 MB")
    assert str(caught.value) == (
        "8 ranks keep 4 718 592 B = 4.718592 MB = 4.5 MiB on the host, which has 4 000 000 B = 4 MB ≈ 3.815 MiB\n"
        "hint: cut more of the model, put less there, or let fewer ranks share it"
    )
    with pytest.raises(sc.SymcommError, match=r"one rank keeps 589 824 B = .* on the host, which has 500 000 B"):
        layers().state_memory(**asked, host_capacity="500 kB")
    later = layers().state_memory(**{**asked, "strategy": "zero-1(k)"}, host_capacity="500 kB")
    assert later.at(k=8).value == 12 * P // 8
    with pytest.raises(sc.SymcommError, match=r"the closed form holds where .* <= 500 000"):
        later.at(k=4)
    with pytest.raises(sc.SymcommError, match="'nvme_capacity' are of what a host has\nhint: on: host,"):
        layers().state_memory("zero-1(4)", per_host=8)


def test_ranks_that_share_a_link_to_the_host_have_their_part_of_it() -> None:
    asked: dict[str, Any] = {"strategy": "zero-1(2)", "accounting": ["states_on_host", "serial"]}
    rates = {name: SLOW_HOST[name] for name in ("peak", "network", "memory")}
    times = [layers().step_time(**asked, **rates, links=said).at().value
             for said in ("host=1 GB/s", "host=1 GB/s shared by 2", "host=0.5 GB/s")]  # fmt: skip
    assert times[1] == times[2] == times[0] + Fraction(4 * P, 2 * 10**9)
    of_device = [
        layers().step_time(**asked, device="H100-SXM", links=said) for said in ("host=64 GB/s", "host=shared by 4")
    ]
    of_device[1].check(deep=True)
    assert of_device[1].at().value - of_device[0].at().value == 3 * Fraction(4 * P, 2 * 64 * 10**9)
    with pytest.raises(sc.SymcommError) as caught:
        layers().step_time(**asked, **rates, links="host=1 GB/s shared by 0")
    assert str(caught.value) == (
        "'0' is no number of ranks that share a link of 'host'\nhint: for instance host=64 GB/s shared by 2"
    )


@pytest.mark.parametrize(("strategy", "said", "ahead"), [
    ("fsdp(4)", "on_device", True), ("data(1)", "model_on_host", True), ("data(1)", "states_on_host", False),
    ("zero-1(4)", "on_device", False),
])  # fmt: skip
def test_a_peak_tells_that_no_layer_is_fetched_ahead_where_layers_fetch_weights(
    strategy: str, said: str, ahead: bool
) -> None:
    assert ("prefetch" in layers().peak_memory(strategy, accounting=said).touched) == ahead
