"""The homework on serving: its answers, worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from api import read_problem, solve

HOMEWORK = Path(__file__).parents[2] / "examples" / "serving" / "serving.md"
LAYER = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336  # matrices that a token multiplies with


def test_the_answers_of_the_homework_are_those_of_a_calculation_by_hand() -> None:
    found = [answer.derivation.at().value for answer in solve(read_problem(HOMEWORK)).answers()]
    token = 2 * 32 * 8 * 128 * 2  # keys and values, 32 layers, 8 heads of 128 numbers, 2 bytes
    head = 4096 * 128256
    pairs = 4 * 4096 * 8193  # scores and values of a query with 8192 positions and itself
    flops = 2 * (32 * LAYER + head) + 32 * pairs
    moved = 2 * (32 * LAYER + head) + 8193 * token + 2 * (4096 + 128256)
    weights = 2 * (32 * (LAYER + 2 * 4096) + 2 * head + 4096)
    rate, bandwidth = Fraction(98942976, 100) * 10**9, Fraction(3352) * 10**9
    assert found[:6] == [token, 8192 * token, 61 * 576 * 2, flops, moved, max(flops / rate, moved / bandwidth)]
    each = (2 * (32 * LAYER + head) + 32 * 4 * 4096 * 129) * bandwidth / rate - 129 * token - 2 * (4096 + 128256)
    assert found[6] == 2 * (32 * LAYER + head) / each
    assert found[7] == (80 * 10**9 - 2 * 10**9 - weights) // (8192 * token)
    assert found[8:10] == [1024 * token, 65 * 4096 * 2]  # two all-reduces a layer, one behind the table
    verified = 1 - Fraction(4, 5) ** 5
    assert found[10:12] == [5 * verified, 5 * verified / Fraction(6, 5)]
    gain = {q: 5 * (1 - Fraction(4, 5) ** q) / (Fraction(q - 1, 20) + 1) for q in range(1, 200)}
    assert found[12] == max(gain, key=lambda q: gain[q])
