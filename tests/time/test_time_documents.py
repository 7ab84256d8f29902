"""The write-up of the linear layer: its answers are the published ones, and it becomes a PDF."""

from __future__ import annotations

from pathlib import Path

import pytest
from api import Answer, read_problem, solve
from time_models import published

EXAMPLE = Path(__file__).parents[2] / "examples" / "linear-layer-roofline" / "linear-layer.md"


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    return [block for block in solve(read_problem(EXAMPLE)).blocks if isinstance(block, Answer)]


def test_the_write_up_of_the_linear_layer_gives_the_published_times_and_crossovers(answers: list[Answer]) -> None:
    found = [answer.quantity.value for answer in answers if answer.quantity]
    names = ("time", "end_of_batch", "cross.net", "cross.flop8", "cross.b_net_global")
    assert found[:5] == [published(f"004.{name}") for name in names]
    assert len(found) == 6


def test_the_crossovers_say_which_side_is_limited_by_the_network(answers: list[Answer]) -> None:
    said = [" ".join(step.reason.text for step in answer.derivation.steps) for answer in answers[2:5]]
    assert "below it the network term is the larger one" in said[0]
    assert "above it the network term is the larger one" in said[1]
    assert "above it the network term is the larger one" in said[2]


def test_only_conventions_that_matter_are_mentioned(answers: list[Answer]) -> None:
    named = [{convention.name for convention in answer.derivation.conventions} for answer in answers]
    assert {"overlap", "owner_multicast", "eight_bit", "bidirectional"} <= named[0]
    assert "weights_and_reloaded_activations" not in named[2]  # the memory is not asked about
    assert "eight_bit" not in named[4]


def test_only_weights_are_loaded_where_activations_stay_in_the_cache() -> None:
    from time_models import linear

    at = {"b": 2, "d_in": 3, "d_out": 5}
    assert linear().traffic(accounting="weights_and_reloaded_activations").at(**at).value == 2 * 15
    assert linear().traffic().at(**at).value == 2 * (6 + 15 + 10)
