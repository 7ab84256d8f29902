"""A strategy from text or YAML: what is said twice, in the wrong place or not at all is refused in plain words."""

from __future__ import annotations

from typing import Any

import pytest
from api import StrategyError, parse_strategy

REFUSED: list[tuple[Any, str, str]] = [
    ("cut(D)", "cut has no size", "such as cut(axis, size)"),
    ("cut(8, 2)", "'8' is no axis of the table", "a word, such as D"),
    ("tensor(2, 3)", "'3' is no name of a mesh axis", "a word, such as data"),
    ("data(2,,k)", "'' is no name of a mesh axis", "a word, such as data"),
    ("data(2, size=3)", "data has 'size' twice", "give it once"),
    ("pipeline(stages=2, stages=3)", "pipeline has 'stages' twice", "give it once"),
    ("pipeline(2, 4)", "'4' in pipeline has no name", "known: stages, layers_per_stage, microbatches, layers"),
    ("pipeline(layers=[8,8])", "'[8,8]' are no layers of stages", "for instance layers=7:8:8:7"),
    ({"data": {5: 2}}, "data has no '5'", "known: mesh, size"),
    ({"tensor": True}, "'True' is no size of a mesh axis", "a whole number or the name of a symbol"),
]


@pytest.mark.parametrize(("said", "what", "hint"), REFUSED)
def test_a_strategy_that_cannot_be_read_says_why(said: Any, what: str, hint: str) -> None:
    with pytest.raises(StrategyError) as refused:
        parse_strategy(said)
    assert (what, hint) == (refused.value.message, refused.value.hint)


def test_arguments_are_read_by_place_and_by_name() -> None:
    assert parse_strategy("data(2, outer)") == parse_strategy({"data": {"mesh": "outer", "size": 2}})
    assert parse_strategy("pipeline(2, microbatches=4)") == parse_strategy("pipeline( microbatches = 4 , stages = 2)")
