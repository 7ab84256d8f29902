"""Worksheets of economics over a model, against values by hand and what their sources say."""

from __future__ import annotations

from fractions import Fraction

import pytest
from api import SymcommError

import symcomm as sc

HEAD = "| Computation | Input | Output |\n|---|---|---|\n"
BLOCK = HEAD + (
    "| A = xW^1 | x [B, L, D], W^1 [D, F] | A [B, L, F] |\n"
    "| A' = relu(A) | A [B, L, F] | A' [B, L, F] |\n"
    "| x' = A'W^2 | A' [B, L, F], W^2 [F, D] | x' [B, L, D] |\n"
)
SIZES = {"N": 3, "B": 2, "L": 4, "D": 8, "F": 16}
STATES = 16 * 3 * 2 * 8 * 16  # bytes: 16 a parameter, of two weights in each of three layers


def block() -> sc.Model:
    return sc.load(BLOCK, repeat="N").at(**SIZES)


# Eight tokens in two seconds: 14,400 tokens take an hour.
HOUR = {"step": "2 s", "budget": "14400 tokens", "devices_used": 8}


@pytest.mark.parametrize(
    ("of", "more", "value", "unit"),
    [
        ("dollars", {"price": "3 dollar/hour"}, 24, "dollar"),
        ("device_hours", {}, 8, "GPU·hour"),
        ("energy", {"power": "400 watt", "pue": "5/4"}, 4000, "Wh"),
        ("carbon", {"power": "400 watt", "pue": "5/4", "carbon": "0.4 kgCO2/kWh"}, Fraction(16, 10), "kgCO2"),
    ],
)
def test_a_run_of_an_hour_on_eight_devices_costs_what_they_take_in_an_hour(of, more, value, unit):
    made = block().training_cost(of=of, **more, **HOUR)
    made.check(deep=True)
    assert (made.at().value, str(made.unit)) == (value, unit)


def test_the_steps_of_a_fact_with_a_reason_are_one_line_and_name_its_conventions():
    made = block().training_cost("data(2)", of="device_hours", budget="1e9 tokens", device="A100-80GB-SXM")
    assert [step.name for step in made.steps] == ["n", "v", "T_run", "H"]
    assert {"time", "traffic", "gradient_sync"} <= {*made.touched}


FAILING = {"device_failures": "1000 h", "devices_used": 100}  # one failure in ten hours


def test_the_share_lost_is_that_of_failures_at_every_instant_of_an_interval():
    every, save, back = Fraction(1800), Fraction(60), Fraction(300)
    lost = sum(every * (2 * n + 1) / 2000 for n in range(1000)) / 1000  # work since the last checkpoint, on average
    share = save / every + (lost + back) / 36000
    asked = {"checkpoint_time": "60 s", "restart": "5 min", "interval": "30 min", **FAILING}
    for of, value in (("lost", share), ("goodput", 1 - share)):
        made = block().goodput(of=of, **asked)
        made.check(deep=True)
        assert made.at().value == value


def test_the_best_interval_is_that_of_young():
    made = block().goodput(of="interval", checkpoint_time="50 s", **FAILING)
    made.check(deep=True)
    assert float(made.at().value) == pytest.approx((2 * 50 * 36000) ** 0.5)
    assert str(made.unit) == "s"


@pytest.mark.parametrize(("store", "rate"), [("storage", 1), ("shard_storage", 100)])
def test_the_time_of_a_checkpoint_is_its_bytes_over_the_storage_or_over_that_of_all_devices(store, rate):
    asked = {store: "16 B/s", "interval": "3600 s", **FAILING}
    made = block().goodput(of="lost", **asked)
    made.check(deep=True)
    assert made.at().value == Fraction(STATES, 16 * rate * 3600) + Fraction(1800, 36000)


def test_at_the_critical_batch_steps_and_tokens_are_twice_the_least():
    found = {}
    for of, more in (("steps", {}), ("tokens", {}), ("time", {"device": "A100-80GB-SXM"})):
        made = block().noise_scale_batch(of=of, critical_batch="8 tokens", least_tokens="8000 tokens", **more)
        made.check(deep=True)
        found[of] = made.at().value
    step = block().step_time(device="A100-80GB-SXM").at().value
    assert found == {"steps": 2000, "tokens": 16000, "time": 2000 * step}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.training_cost(of="energy", power="1 watt", pue="1/2", **HOUR), "pue = 1/2 = 0.5: a data centre"),
        (lambda m: m.training_cost(price="3 dollar", **HOUR), "price is given in dollar, but must be in"),
        (lambda m: m.training_cost(of="energy", price="3 dollar/h", **HOUR), "price makes no difference to 'Energy"),
        (
            lambda m: m.goodput(interval="1 h", storage="1 GB/s", checkpoint_time="1 s", **FAILING),
            "checkpoint_time makes no difference to 'Goodput'",
        ),
        (lambda m: m.goodput(interval="5 s", checkpoint_time="6 s", **FAILING), "take 1.2 times the run"),
        (
            lambda m: m.goodput(of="run_time", interval="2 h", checkpoint_time="1 h", restart="1/2 h",
                                device_failures="2 h", devices_used=1),
            "an interval with its checkpoint takes 1.5 of the time between failures, a restart 0.25\n"
            "hint: choose a shorter interval",
        ),
    ],
    ids=["a small PUE", "another unit", "an idle price", "two times of a checkpoint", "nothing left",
         "hardly any work between failures"],
)
def test_a_question_of_economics_that_makes_no_sense_is_refused(ask, message):
    with pytest.raises(SymcommError) as caught:
        ask(block())
    assert message in str(caught.value)
