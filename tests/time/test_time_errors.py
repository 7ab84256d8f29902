"""What makes no sense is refused with an error that says why, and what to write instead."""

from __future__ import annotations

import sys

import pytest
from api import Accounting, AccountingError, RenderError, SymcommError, ValuesError
from time_models import PLACED, PRINTED, RATES, block, linear

import symcomm as sc


@pytest.mark.parametrize(
    ("rates", "said"),
    [
        ({"memory": "0 GB/s"}, "memory = 0 GB/s: the bandwidth of the memory must be positive"),
        ({"network": "-5 GB/s"}, "network = -5 GB/s: the bandwidth of the network must be positive"),
        ({"peak": 0}, "peak = 0: the peak rate must be positive"),
        ({"utilisation": "0"}, "utilisation = 0: the part of the peak rates that is sustained must be positive"),
        ({"utilisation": "5/4"}, "is above 0 and at most 1"),
        ({"latency": "-1 s"}, "latency = -1 s: the latency of one message must be positive"),
        ({"memory": "80 GB"}, "memory is given in B, but the bandwidth of the memory is in B/s"),
        ({"peak": "312 TB/s"}, "peak is given in B/s, but the peak rate is in FLOP/s"),
        ({"network": "900"}, "network is given in a number without a unit"),
        ({"network": 900e9}, "network is the float"),
        ({"utilisation": "80 GB"}, "utilisation is given in B"),
        ({"network": "d_in"}, "d_in is a symbol of the model"),
        ({"network": "tp_in"}, "tp_in is a symbol of the model"),
        ({"device": "H100-SXN"}, "unknown device 'H100-SXN'"),
    ],
)
def test_a_rate_that_makes_no_sense_is_refused(rates: dict[str, object], said: str) -> None:
    with pytest.raises(ValuesError) as error:
        linear().time(PLACED, **{**RATES, **rates})
    assert said in str(error.value)
    assert error.value.hint


def test_a_missing_rate_is_named() -> None:
    derivation = linear().time("data(2)", peak="1 TFLOP/s").at
    with pytest.raises(ValuesError, match="needs a value for W_mem"):
        derivation(b=8, d_in=8, d_out=8)


def test_a_device_that_does_not_compute_in_a_format_is_refused() -> None:
    with pytest.raises(ValuesError, match="A100-80GB-SXM has no peak rate for 'fp8'"):
        linear().time(device="A100-80GB-SXM", dtype="fp8")
    with pytest.raises(ValuesError, match="V100-16GB-SXM has no peak rate for 'fp8'"):
        linear().time(device="V100-16GB-SXM", accounting="eight_bit")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: m.time(phase="sideways"), "unknown phase 'sideways'"),
        (lambda m: m.time(term="disk"), "unknown term 'disk'"),
        (lambda m: m.time(phase="end_of_batch"), "nothing to time"),
        (lambda m: m.time(term="network"), "nothing to time"),
        (lambda m: m.time(op="Z"), "no row computes 'Z'"),
        (lambda m: m.crossover("network", "W_net", PLACED), "names no two terms"),
        (lambda m: m.crossover("network, network", "W_net", PLACED), "names no two terms"),
        (lambda m: m.crossover("network, compute", "W_mem", PLACED), "do not depend on 'W_mem'"),
        (lambda m: m.crossover("network, compute", "b", PLACED), "never meet at any|do not depend|no positive b"),
        (lambda m: m.bound("most_time"), "unknown choice 'most_time' of 'of'"),
        (lambda m: m.bound(measured="3 GB"), "measured is given in B, but must be in s"),
        (lambda m: m.bound(measured="0 s"), "measured = 0 s: it must be positive"),
        (lambda m: m.bound(tensor="Q"), "there is no tensor 'Q'"),
        (lambda m: m.step_time(of="exposed"), "sends nothing"),
        (lambda m: m.step_time("data(2)", of="wasted"), "unknown choice 'wasted' of 'of'"),
        (lambda m: m.step_time("pipeline(2)"), "no output has the shape of an input|one layer cannot be cut"),
        (lambda m: m.throughput(of="gold"), "unknown choice 'gold' of 'of'"),
        (lambda m: m.throughput(mfu="3/2"), "at most 1"),
        (lambda m: m.throughput(of="days", budget="3 GB"), "budget is given in B, but must be in token"),
        (lambda m: m.throughput(of="days", budget="0"), "budget = 0: it must be positive"),
        (lambda m: m.scaling("data(8)"), "can be counted by no symbol"),
        (lambda m: m.scaling("data(k)", "sideways"), "unknown kind 'sideways'"),
        (lambda m: m.scaling("data(k)", over="q"), "no symbol that sizes the mesh"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(call, said: str) -> None:
    with pytest.raises(SymcommError, match=said):
        call(linear())


def test_a_layer_alone_has_no_pipeline() -> None:
    with pytest.raises(SymcommError, match="one layer cannot be cut into stages"):
        block("").step_time("pipeline(2, microbatches=4)")


def test_an_algorithm_that_cannot_run_a_collective_is_refused() -> None:
    with pytest.raises(AccountingError, match="'owner_multicast' cannot run all-gather"):
        block().step_time("fully-sharded(4)", accounting={"algorithm": {"all-gather": "owner_multicast"}})


def test_times_under_different_conventions_are_not_combined() -> None:
    one = linear().time(PLACED, accounting=PRINTED)
    other = linear().time(PLACED, accounting=Accounting.of(PRINTED, "serial"))
    with pytest.raises(AccountingError, match=r"time: overlap.*time: serial"):
        sc.ratio(one, other)


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from api import roofline_plot

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RenderError, match="needs Matplotlib"):
        roofline_plot({"Y": linear().roofline(device="A100-80GB-SXM")}, b=8, d_in=8, d_out=8)
