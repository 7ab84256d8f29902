"""One rank communicates nothing, wherever it is said that there is one."""

import pytest

import symcomm as sc

LAYER = sc.load("Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\nz = yV\tV [F, D]\tz [B, D]\n")


@pytest.mark.parametrize("strategy", ["data(k)", "tensor(k)", "fsdp(k)", "zero-1(k)", "data(k) + tensor(k)"])
@pytest.mark.parametrize("accounting", ["payload", "sent_per_rank", "all_links"])
def test_an_axis_of_one_rank_sends_nothing(strategy: str, accounting: str):
    made = LAYER.communication(strategy, accounting=accounting)
    assert made.expr != 0
    assert made.at(B=8, D=16, F=32, k=1).value == 0
    assert LAYER.at(k=1).communication(strategy, accounting=accounting).at(B=8, D=16, F=32).value == 0
    assert LAYER.communication(strategy.replace("k", "1"), accounting=accounting).expr == 0


def test_an_axis_of_one_rank_beside_another_one_leaves_what_that_one_sends():
    both = LAYER.communication("data(k) + tensor(t)")
    numbers = {"B": 8, "D": 16, "F": 32}
    assert both.at(k=4, t=1, **numbers) == LAYER.communication("data(4)").at(**numbers)
    assert both.at(k=1, t=4, **numbers) == LAYER.communication("tensor(4)").at(**numbers)
    assert both.at(k=4, t=4, **numbers) == LAYER.communication("data(4) + tensor(4)").at(**numbers)
    frame = both.sweep(k=[1, 4], t=[1, 4], **numbers)
    assert frame["value"].tolist() == [float(both.at(k=k, t=t, **numbers)) for k in (1, 4) for t in (1, 4)]
