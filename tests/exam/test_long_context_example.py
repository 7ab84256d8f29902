"""The homework on long sequences: its numbers against counts by hand, and the mistakes that it names."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

import symcomm as sc

HOMEWORK = Path(__file__).parents[2] / "examples" / "long-context" / "long-context.md"
KEYS = 8 * 128 * 131072 * 2 * 2  # bytes of all keys and values: 8 heads of 128 numbers, in 16 bits
QUERIES = 4 * KEYS // 2
PAIRS = [sum(range(rank * 16384 + 1, (rank + 1) * 16384 + 1)) for rank in range(8)]
IN_TURN = [sum(range(rank + 1, 131073, 8)) for rank in range(8)]
ANSWERS = {
    "1.1": Fraction(7 * KEYS, 8),
    "1.2": Fraction(7 * KEYS, 8),  # seven sends of an eighth
    "1.3": Fraction(7, 8) * Fraction(KEYS + 2 * QUERIES, 8),  # seven eighths of what a GPU holds leave it
    "2": Fraction(2 * 7 * KEYS, 8),
    "3a": Fraction(8 * max(PAIRS), sum(PAIRS)),
    "3b": Fraction(8 * max(IN_TURN), sum(IN_TURN)),
    # Two sends of 8 heads and 2 bytes at 50 GB/s last as long as 2 FLOPs a pair, number and head of the queries.
    "3c": Fraction(2 * 8 * 2 * 989 * 10**12, 2 * 32 * 50 * 10**9),
}


@cache
def keys() -> dict[str, sc.AnswerKey]:
    problem = sc.read_problem(HOMEWORK)
    return dict(zip(ANSWERS, (sc.key_of(problem, ask) for ask in problem.asks), strict=True))


@pytest.mark.parametrize("question", ANSWERS)
def test_each_answer_is_what_was_counted_by_hand(question: str) -> None:
    assert keys()[question].number.value == ANSWERS[question]


@pytest.mark.parametrize(
    ("question", "answer", "mistake"),
    [("1.2", 7 * 4 * KEYS // 8, "a_key_for_each_query_head"), ("2", 3 * 7 * KEYS // 8, "keys_and_values_too")],
)
def test_the_mistakes_of_the_homework_are_recognised(question: str, answer: int, mistake: str) -> None:
    verdict = keys()[question].check(f"{answer} B")
    assert (verdict.verdict, verdict.mistakes) == ("mistake", (mistake,))


def test_sums_in_the_format_of_activations_are_ruled_out_by_the_prompt() -> None:
    verdict = keys()["2"].check(f"{7 * KEYS // 8} B")
    assert (verdict.verdict, verdict.conventions) == ("other_convention", ("ring_format: as_activations",))
