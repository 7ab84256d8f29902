"""The homework on a cluster: its numbers against counts by hand, and the mistakes that it names."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from api import main
from click.testing import CliRunner

import symcomm as sc

HOMEWORK = Path(__file__).parents[2] / "examples" / "cluster" / "cluster.md"
WEIGHTS = 2 * 8192 * 28672
GB, BYTES = 10**9, 2 * WEIGHTS
RACK = Fraction(125, 10) * GB / 8  # eight GPUs share a card of 12.5 GB/s
ANSWERS = {
    "1.1": 2 * Fraction(7, 8) * Fraction(BYTES, 8),  # the reduction inside leaves an eighth for each GPU
    "1.2a": Fraction(2 * 63, 64) * GB / (50 * GB),
    "1.2b": Fraction(2 * 7, 8) * GB / (450 * GB) + Fraction(2 * 7, 8) * Fraction(GB, 8) / (50 * GB),
    # Two matrices, each three rounds there and back between four nodes of a rack.
    "1.3": Fraction(2 * 7, 8) * BYTES / (150 * GB) + Fraction(2 * 3, 4) * Fraction(BYTES, 8) / RACK
    + 12 * Fraction(1, 10**5),
    "2": 2 * Fraction(3, 4) * (1 + Fraction(1, 4) + Fraction(1, 16)) * GB / (100 * GB),
    "3a": 2 * BYTES,
    "3b": Fraction(70 * 10**12, 1024),  # as much time for the bytes as for the FLOPs
    # 6 FLOPs a weight and token.
    "4": 2 * Fraction(6 * WEIGHTS * 10**12, 400 * 10**12 * 3600),
}  # fmt: skip


@cache
def keys() -> dict[str, sc.AnswerKey]:
    problem = sc.read_problem(HOMEWORK)
    return dict(zip(ANSWERS, (sc.key_of(problem, ask) for ask in problem.asks), strict=True))


@pytest.mark.parametrize("question", ANSWERS)
def test_each_answer_is_what_was_counted_by_hand(question: str) -> None:
    assert float(keys()[question].number.value) == pytest.approx(float(ANSWERS[question]), rel=1e-7)  # whole chunks


@pytest.mark.parametrize(
    ("question", "answer", "mistake"),
    [("1.1", f"{2 * 63 * BYTES // 64 // 8} B", "a_ring_of_all_gpus"), ("3b", "34179687500 B/s", "copies_hidden")],
)
def test_the_mistakes_of_the_homework_are_recognised(question: str, answer: str, mistake: str) -> None:
    verdict = keys()[question].check(answer)
    assert (verdict.verdict, verdict.mistakes) == ("mistake", (mistake,))


def test_a_given_rate_that_reaches_the_price_through_the_throughput_keeps_its_unit(tmp_path: Path) -> None:
    assert CliRunner().invoke(main, ["solve", str(HOMEWORK), "--to", "md", "-o", str(tmp_path)]).exit_code == 0
    page = (tmp_path / "cluster.md").read_text(encoding="utf-8")
    assert r"R_{\text{achieved}} = 400\ \text{TFLOP/s}" in page
