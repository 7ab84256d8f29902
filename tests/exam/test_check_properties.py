"""Ways to write the right answer, and near misses: nothing wrong is right, and hardly anything undecided."""

import random
from functools import cache

import pytest
from rewritings import near_miss, rewritten
from test_answers_golden import QUESTIONS, key


@cache
def right(name):
    return key(name).expr


@pytest.mark.parametrize("pairs", [64, pytest.param(10_000, marks=pytest.mark.long)])
def test_rewritings_are_right_and_near_misses_are_not(pairs):
    rng = random.Random(7)
    undecided, complaints = 0, []
    for n in range(pairs):
        name = [*QUESTIONS][n % len(QUESTIONS)]
        wanted = right(name)
        wrong = n % 2 == 1
        text = rewritten(near_miss(wanted, rng) if wrong else wanted, rng)
        verdict = key(name).check(text)
        undecided += verdict.verdict == "undecided"
        if verdict.right == wrong and verdict.verdict != "undecided":
            complaints.append((name, text, str(verdict)))
    assert complaints == []
    assert undecided <= pairs / 1000
