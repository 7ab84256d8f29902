"""Optima of a model's own costs: only numbers that the model can have, and under the conditions of the cost."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from api import Condition, Sym, SymcommError, ValuesError, derived, num

import symcomm as sc

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
ASKED = {"device": "H100-SXM", "latency": "10 us"}


def model() -> sc.Model:
    return sc.load(LLAMA, dtype="bf16").at(B=8, L=4096)


@pytest.mark.long
def test_the_best_tensor_degree_is_one_that_divides_the_heads() -> None:
    """Every degree asked by itself: 11 ranks would be fastest, but 8 key and value heads are not cut into 11 parts."""
    times: dict[int, Fraction] = {}
    for ranks in range(1, 33):
        try:
            times[ranks] = Fraction(model().step_time(f"tensor({ranks})", **ASKED).at().value)
        except SymcommError:
            continue
    cost = model().step_time("tensor(k)", **ASKED)
    assert 11 not in times
    best = sc.minimise(cost, "k", lower=2, upper=32)
    assert best.at().value == min((ranks for ranks in times if ranks > 1), key=times.__getitem__) == 8
    assert "Every whole number of the range that will do is compared." in best.notes
    assert sc.minimise(cost, "k", divides=12, lower=2).at().value in times


@pytest.mark.long
def test_a_best_degree_that_cuts_a_head_in_two_is_refused_where_no_range_says_how_far_to_look() -> None:
    with pytest.raises(ValuesError, match="k = 11 is best, which is refused") as error:
        sc.minimise(model().step_time("tensor(k)", **ASKED), "k")
    assert error.value.hint == "give an upper bound, or divides"


@pytest.mark.long
def test_an_optimum_holds_where_its_cost_does() -> None:
    time = model().step_time("pipeline(p, microbatches=q)", device="H100-SXM", network="50 GB/s")
    best = sc.minimise(time, "q", given={"B": 64, "p": 4}, upper=64)
    assert [str(condition) for condition in best.where] == [str(condition) for condition in time.where] == ["p >= 2"]


def test_a_crossover_holds_where_both_costs_do() -> None:
    held = Condition(Sym("a", False), ">=", num(2))
    one, two = replace(derived("a n", title="One"), where=(held,)), derived("b", title="Two")
    made = sc.crossover(one, two, "n")
    assert made.where[:1] == (held,)
    assert made.at(a=4, b=8).value == 2
    with pytest.raises(ValuesError, match="the closed form holds where a >= 2, and a = 1"):
        made.at(a=1, b=8)
