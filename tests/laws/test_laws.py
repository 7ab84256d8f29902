"""The laws hold over all models and strategies: a share of the usual models by default, all models in the long run.
The usual models are tried under every strategy; of the others each law takes one strategy, the next model another one.
What a law leaves out stands in ``LEFT_OUT`` with its reason; there the law has to fail, so that the list stays true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    "stages_add_up": "a tied weight is on two stages",
    "layers_are_alike": "a table without repeat has no layers",
    "ranks_never_add_work": "stages hold what others do not",
}

DEFAULT = ("homework", "MixtralForCausalLM with loss")  # a table, and a model of several parts


def differences(pairs: Iterable[Pair]) -> tuple[int, list[str]]:
    """How many pairs are compared, and those that differ."""
    found = list(pairs)
    return len(found), [f"{said}: {one} and {other}" for said, one, other in found if one != other]


def cases() -> Iterator[tuple[str, str, str, bool]]:
    """Each law with the models and strategies that it is tried on, and whether by default: else that is long."""
    for number, name in enumerate(model_names()):
        for law in OF_MODELS:
            yield law, name, "", name in DEFAULT or name == "swiglu"
        for row, law in enumerate(OF_STRATEGIES):
            turn = STRATEGIES[(5 * number + 3 * row) % len(STRATEGIES)]
            for strategy in STRATEGIES if name in USUAL else (turn,):
                yield law, name, strategy, name in DEFAULT and strategy == turn


@pytest.mark.parametrize(
    ("law", "name", "strategy"),
    [pytest.param(*case, marks=() if usual else pytest.mark.long) for *case, usual in cases()],
)
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
    every = [*cases()]
    left = [law for law, name, strategy, _ in every
            if any((law, one, other) in LEFT_OUT for one in (name, "") for other in (strategy, ""))]  # fmt: skip
    assert len(left) <= len(every) / 20
