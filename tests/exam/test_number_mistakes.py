"""Wrong answers to questions about einsums, number formats and sums: which mistake made them."""

from __future__ import annotations

import pytest
from api import parse_problem

import symcomm as sc

EINSUM = "ask: einsum\nsubscripts: ab,bc,cd->ad\nshapes: A [10, 20], B [20, 5], C [5, 40]\nwant: best_order"
CHAIN = EINSUM.replace("[10, 20], B [20, 5], C [5, 40]", "[10, 20], B [20, 30], C [30, 2]")


def verdict(block: str, answer: str) -> sc.Verdict:
    problem = parse_problem(f"# Numbers\n\n```symcomm\n{block}\n```\n")
    return sc.key_of(problem, problem.asks[0]).check(answer)


@pytest.mark.parametrize(
    ("block", "right", "wrong", "mistake"),
    [
        ("ask: accumulation\nx: 0.01\nn: 1000\naccumulator: fp16", "637/64", "4", "sum_in_another_format"),
        ("ask: accumulation\nx: 1\nn: 4096\naccumulator: fp16", "2048", "256", "sum_in_another_format"),
        (
            "ask: accumulation\nx: 0.01\nn: 1000\naccumulator: fp16\nwant: accumulation_error",
            "-803/16384", "35/16384", "representation_for_accumulation",
        ),
        ("ask: number_format\ndtype: bf16\nwant: unit_roundoff", "1/256", "1/128", "epsilon_for_unit_roundoff"),
        ("ask: number_format\ndtype: fp16\nwant: smallest_subnormal", "1/16777216", "1/16384", "subnormals_forgotten"),
        (EINSUM, "6000", "120000", "all_operands_at_once"),
        (CHAIN, "3200", "13200", "left_to_right_for_best"),
    ],
)  # fmt: skip
def test_a_wrong_answer_tells_the_mistake_that_made_it(block: str, right: str, wrong: str, mistake: str) -> None:
    assert verdict(block, right).verdict == "right"
    found = verdict(block, wrong)
    assert (found.verdict, mistake in found.mistakes) == ("mistake", True)
