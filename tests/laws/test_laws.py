"""The laws hold over all models and strategies: a share of the usual models by default, all of them in the long run.

What a law leaves out stands in ``LEFT_OUT`` with its reason; there, the law has to fail, so that the list cannot go stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

import pytest
from law_models import STRATEGIES, USUAL, model, model_names
from laws import OF_MODELS, OF_STRATEGIES, Pair

# (law, model or "", strategy or ""): why the two numbers differ there, and rightly so.
LEFT_OUT: dict[tuple[str, str, str], str] = {}
# A law that compares nothing there, with the reason; the other laws and models have to compare something.
NOT_ASKED = {
    "rows_add_up": "a model of several parts has no table whose rows are its own",
    "parts_add_up": "a table is its only part",
    "names_mean_nothing": "a configuration gives its sizes their names",
    "stages_add_up": "one strategy is a pipeline alone; a tied weight is on two stages",
    "layers_are_alike": "a table without repeat has no layers",
    "ranks_never_add_work": "stages hold what others do not",
}


def differences(pairs: Iterable[Pair]) -> tuple[int, list[str]]:
    """How many pairs are compared, and those that differ."""
    found = list(pairs)
    return len(found), [f"{said}: {one} and {other}" for said, one, other in found if one != other]


def cases() -> Iterator[object]:
    """Every law with every model (and strategy); all but a share of the usual models are long."""
    for name in model_names():
        for law in OF_MODELS:
            yield pytest.param(law, name, "", marks=() if name in USUAL else pytest.mark.long)
        for law in OF_STRATEGIES:
            for strategy in STRATEGIES:
                chosen = name in USUAL and crc32(f"{law} {name} {strategy}".encode()) % 24 == 0
                yield pytest.param(law, name, strategy, marks=() if chosen else pytest.mark.long)


@pytest.mark.parametrize(("law", "name", "strategy"), [*cases()])
def test_a_law_holds(law: str, name: str, strategy: str) -> None:
    if strategy:
        compared, found = differences(OF_STRATEGIES[law](model(name), strategy))
    else:
        compared, found = differences(OF_MODELS[law](model(name)))
    if any((law, one, other) in LEFT_OUT for one in (name, "") for other in (strategy, "")):
        assert found, f"{law} holds for {name} under {strategy or 'no strategy'}: take it off the list"
        return
    assert not found, "\n".join(found)
    if name in USUAL and not strategy and law not in NOT_ASKED:
        assert compared


@pytest.mark.long
@pytest.mark.parametrize("law", OF_STRATEGIES)
def test_a_law_of_strategies_compares_something_under_most_of_them(law: str) -> None:
    compared = [bool(differences(OF_STRATEGIES[law](model("homework"), one))[0]) for one in STRATEGIES[:9:2]]
    assert sum(compared) >= 3 or law in NOT_ASKED


def test_at_most_one_case_in_twenty_is_left_out() -> None:
    every = [(law, name, strategy) for law in OF_STRATEGIES for name in model_names() for strategy in STRATEGIES]
    every += [(law, name, "") for law in OF_MODELS for name in model_names()]
    left = [case for case in every
            if any((case[0], one, other) in LEFT_OUT for one in (case[1], "") for other in (case[2], ""))]  # fmt: skip
    assert len(left) <= len(every) / 20
