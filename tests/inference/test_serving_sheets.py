"""Worksheets on serving, against exact cases: the tests translate names, and compute nothing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from inference_models import GOLDEN

import symcomm as sc


def of(area: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in GOLDEN["cases"] if case["area"] == area]


def asked(sheet: str, want: str, **options: Any) -> Fraction:
    made = sc.derive(sheet, want=want, **options)
    made.check(deep=True)
    return made.at().value


@pytest.mark.parametrize("case", of("speculative.tokens"))
def test_a_verification_gives_the_expected_tokens(case: dict[str, Any]) -> None:
    at = case["at"]
    assert asked("speculative_decoding", "tokens", acceptance=at["a"], drafts=at["g"]) == Fraction(case["value"])


@pytest.mark.few(2)
@pytest.mark.parametrize("case", of("speculative.speedup"))
def test_drafts_gain_time_until_they_cost_more_than_they_save(case: dict[str, Any]) -> None:
    at, (gain, best, greatest) = case["at"], case["value"]
    said = {"acceptance": at["a"], "draft_cost": at["c"]}
    assert asked("speculative_decoding", "speedup", drafts=at["g"], **said) == Fraction(gain)
    assert asked("speculative_decoding", "positions", **said) - 1 == int(best)  # a position is the last token's
    assert asked("speculative_decoding", "greatest", **said) == Fraction(greatest)


def test_a_verification_that_takes_longer_than_a_step_gains_less() -> None:
    # 2101/625 tokens in 4 drafts of 1 ms each and a verification of 25 ms, where a step takes 20 ms.
    said = {"acceptance": "4/5", "drafts": "4", "draft_cost": "1/20", "step": "20 ms", "verification": "25 ms"}
    assert asked("speculative_decoding", "speedup", **said) == Fraction(2101, 625) * 20 / 29


@pytest.mark.parametrize("case", of("cost"))
def test_tokens_cost_the_hours_and_the_power_of_their_devices(case: dict[str, Any]) -> None:
    at = case["at"]
    said = {"devices": at["devices"], "tokens_per_second": f"{at['tokens/s']} token/second"}
    if "power" in at:
        assert asked("serving_cost", "energy", power=f"{at['power']} watt", **said) == Fraction(case["value"])
    else:
        price = f"{float(Fraction(at['price']))} dollar/hour"
        assert asked("serving_cost", "price", price=price, **said) == Fraction(case["value"])


@pytest.mark.parametrize("case", of("disaggregation.ratio"))
def test_as_many_requests_are_prefilled_as_leave(case: dict[str, Any]) -> None:
    at = case["at"]
    seconds = {name: f"{float(Fraction(at[key]))} s" for name, key in (("prefill", "T_p"), ("step", "T_d"))}
    found = asked("prefill_decode_balance", "replicas", **seconds, sequences=at["B"], generated=at["T"])
    assert found == Fraction(case["value"])


@pytest.mark.parametrize("case", of("disaggregation.evicted"))
def test_tokens_leave_the_caches_as_fast_as_they_come(case: dict[str, Any]) -> None:
    at = case["at"]
    found = asked("prefill_decode_balance", "evicted", sequences=at["B"], prompt=at["P"], generated=at["G"])
    assert found == Fraction(case["value"])


def test_where_all_drafts_are_accepted_each_is_a_token_and_no_number_of_them_is_the_best() -> None:
    # Five drafts of a twentieth of a step each: 6 tokens in 1.25 steps.
    assert asked("speculative_decoding", "speedup", acceptance="1", drafts="5", draft_cost="1/20") == Fraction(24, 5)
    for want in ("positions", "greatest"):
        with pytest.raises(sc.SymcommError, match="acceptance = 1: no number of drafts is the best\nhint: such as 4/5"):
            asked("speculative_decoding", want, acceptance="1", draft_cost="1/20")


def test_a_share_of_accepted_drafts_above_one_is_refused_and_so_is_one_in_the_general_formula() -> None:
    with pytest.raises(sc.SymcommError, match=r"acceptance = 1\.5 is more than 1\nhint: a probability, such as 4/5"):
        asked("speculative_decoding", "tokens", acceptance="3/2", drafts="5")
    with pytest.raises(sc.SymcommError, match="a = 1 is a case with its own formula\nhint: give this number"):
        sc.derive("speculative_decoding").at(a=1, g=5)


def test_drafts_may_cost_nothing_and_none_may_be_accepted() -> None:
    # 2101/625 tokens in one step; and one token in 1.2 steps, so that no draft at all is the best.
    assert asked("speculative_decoding", "speedup", acceptance="4/5", drafts="4", draft_cost="0") == Fraction(2101, 625)
    said = {"acceptance": "0", "draft_cost": "1/20"}
    assert asked("speculative_decoding", "speedup", drafts="4", **said) == Fraction(5, 6)
    assert [asked("speculative_decoding", want, **said) for want in ("positions", "greatest")] == [1, 1]
    refused = "draft_cost = 0: no number of drafts is the best\nhint: such as 1/20"
    for want in ("positions", "greatest"):
        with pytest.raises(sc.SymcommError, match=refused):
            asked("speculative_decoding", want, acceptance="4/5", draft_cost="0")


def test_a_power_may_be_in_watts_by_their_symbol() -> None:
    # 8 devices of 700 W make 1000 tokens a second.
    for power in ("700 W", "0.7 kW", "700 watt"):
        said = {"devices": 8, "tokens_per_second": "1000 token/second"}
        assert asked("serving_cost", "energy", power=power, **said) == Fraction(8 * 700, 1000)


def test_the_expected_tokens_are_a_formula_of_the_acceptance() -> None:
    assert str(sc.derive("speculative_decoding").expr) == "(1 - a**(g + 1))/(1 - a)"


def test_one_rank_may_have_the_shortest_step() -> None:
    # 34 kB in 34 ms; two ranks read half of it and send in 40 rounds of a second each.
    said = {"weights": "34 kB", "layers": 10, "payload": "10 B", "memory": "1 MB/s", "network": "100 B/s"}
    assert asked("tensor_latency", "cuts", latency="1 s", accounting="ring", **said) == 0
    assert asked("tensor_latency", "shortest", latency="1 s", accounting="ring", **said) == Fraction(34, 1000)
