"""The laws hold over all models and strategies: a share of the usual models by default, all models in the long run.
The usual models are tried under every strategy; of the others each law takes one strategy, the next model another one.
What a law leaves out stands in ``LEFT_OUT`` with its reason; there the law has to fail, so that the list stays true.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from api import ALIASES
from api import STRATEGIES as REGISTRY
from law_models import STRATEGIES, USUAL, model, model_names
from laws import OF_MODELS, OF_STRATEGIES, differs, repeats, shared, worth

import symcomm as sc

# (law, model or "", strategy or ""): why the two numbers differ there, and rightly so.
LEFT_OUT: dict[tuple[str, str, str], str] = {
    ("work_is_shared", "BertModel", "ring(2) + ulysses(2)"): "the pooled token is one position, which no rank shares",
}
# How many pairs a law asks for at least, whatever the model and the strategy.
LEAST = {
    "passes_add_up": 11, "layers_are_alike": 14, "parts_add_up": 2, "rows_add_up": 1, "work_is_counted_once": 8,
    "symbols_then_numbers": 6, "units_multiply": 2, "stages_add_up": 1, "names_mean_nothing": 5, "work_is_shared": 4,
    "recomputed_bytes": 2, "option_is_convention": 8, "states_are_in_the_peak": 1, "host_has_the_rest": 3,
    "kinds_add_up": 1, "sums_add_up": 8, "one_rank_changes_nothing": 14, "ranks_never_add_work": 6,
    "numbers_of_ranks": 7,
}  # fmt: skip


def not_asked(law: str, model: sc.Model, strategy: str) -> str:
    """Why a law asks for nothing there, or nothing."""
    graph, regions = model.graph, model.graph.regions
    known = dict(graph.relations.equations)
    reasons = {
        "rows_add_up": "a model of several parts has no table whose rows are its own" if len(regions) != 1 else "",
        "parts_add_up": "a table is its only part" if len(regions) < 2 else "",
        "names_mean_nothing": "a configuration names its sizes" if len(regions) != 1 or len(model.tables) != 1 else "",
        "stages_add_up": "a tied weight is on two stages" if shared(model) else "" if repeats(model) else "one layer",
        "layers_are_alike": "" if any(r.times and r.times not in known for r in regions) else "there are no layers",
        "ranks_never_add_work": "stages hold what others do not" if "pipeline" in strategy else "",
    }
    return reasons.get(law, "")


DEFAULT = ("homework", "MixtralForCausalLM with loss")  # a table, and a model of several parts


def cases() -> Iterator[tuple[str, str, str, bool]]:
    """Each law with the models and strategies that it is tried on, and whether by default: else that is long."""
    for number, name in enumerate(model_names()):
        for law in OF_MODELS:
            yield law, name, "", name in DEFAULT
        for row, law in enumerate(OF_STRATEGIES):
            turn = STRATEGIES[(7 * number + 3 * row + 1) % len(STRATEGIES)]
            for strategy in STRATEGIES if name in USUAL else (turn,):
                usual = name == DEFAULT[0] or (name in DEFAULT and row % 2 == 1)
                yield law, name, strategy, usual and strategy == turn


@pytest.mark.few(17)
@pytest.mark.parametrize(
    ("law", "name", "strategy"),
    [pytest.param(*case, marks=() if usual else pytest.mark.long) for *case, usual in cases()],
)
def test_a_law_holds(law: str, name: str, strategy: str) -> None:
    of = model(name)
    pairs = [*(OF_STRATEGIES[law](of, strategy) if strategy else OF_MODELS[law](of))]
    found = [f"{said}: {one} and {other}" for said, one, other in filter(differs, pairs)]
    if any((law, one, other) in LEFT_OUT for one in (name, "") for other in (strategy, "")):
        assert found, f"{law} holds for {name} under {strategy or 'no strategy'}: take it off the list"
        return
    assert not found, "\n".join(found)
    if why := not_asked(law, of, strategy):
        assert not pairs, why
        return
    assert len(pairs) >= LEAST[law]
    if not strategy or worth(of, "communication", strategy=strategy) is not None:
        unanswered = [said for said, *numbers in pairs if None in numbers]
        assert 2 * len(unanswered) <= len(pairs), f"half of what is asked has no answer: {unanswered}"


@pytest.mark.long
@pytest.mark.parametrize("name", USUAL)
def test_most_strategies_apply_to_a_usual_model(name: str) -> None:
    refused = [one for one in STRATEGIES if worth(model(name), "communication", strategy=one) is None]
    assert refused in ([], ["data(2) + expert"])


def test_every_strategy_of_the_registry_is_tried() -> None:
    tried = {part.partition("(")[0].strip() for one in STRATEGIES for part in one.split("+")}
    # ZeRO-3 is fully sharded; spatial needs images, and is tried below; no model of the laws has tables of embeddings
    # (tests/whole/test_spread_tables.py).
    assert {ALIASES.get(name, name) for name in tried} == {*REGISTRY} - {"zero-3", "spatial", "tables"}


@pytest.mark.parametrize("strategy", ["spatial(2)", "spatial(2) + data(2)"])
@pytest.mark.parametrize("law", OF_STRATEGIES)
def test_the_laws_of_strategies_hold_where_images_are_cut(law: str, strategy: str) -> None:
    of = model("convolution")
    pairs = [*OF_STRATEGIES[law](of, strategy)]
    assert [f"{said}: {one} and {other}" for said, one, other in filter(differs, pairs)] == []
    assert len(pairs) >= LEAST[law] or not_asked(law, of, strategy)


def test_at_most_one_case_in_twenty_is_left_out() -> None:
    every = [*cases()]
    left = [law for law, name, strategy, _ in every
            if any((law, one, other) in LEFT_OUT for one in (name, "") for other in (strategy, ""))]  # fmt: skip
    assert len(left) <= len(every) / 20


def test_what_is_left_out_is_among_what_is_tried() -> None:
    every = [*cases()]
    for law, name, strategy in LEFT_OUT:
        assert any(law == one and name in (of, "") and strategy in (under, "") for one, of, under, _ in every)
