"""A paper has no number in its words that rounds to an answer or to the value of a step, and says so with the line."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from api import Document, DocumentError, RenderError, main, numbers_in, parse_problem, render, solve, telling
from click.testing import CliRunner

import symcomm as sc

ROOT = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(p for p in ROOT.glob("**/*.md") if "```symcomm\n" in p.read_text(encoding="utf-8"))

LAYER = """
| Computation | Input | Output |
|---|---|---|
| $h = x W^1$ | x [B, L, D], W^1 [D, F] | h [B, L, F] |
| $y = h W^2$ | W^2 [F, D] | y [B, L, D] |

```symcomm
model: layer
repeat: N
values: {N: 24, B: 8, L: 1024, D: 2048, F: 8192}
```
"""
# Worked out by hand: 24 layers of 2 * 2048 * 8192 parameters are 805 306 368, in FP16 1 610 612 736 bytes = 1.5 GiB.
BYTES = "```symcomm\nask: communication\nstrategy: data(4)\ncollective: all-reduce\n```\n"
PARAMETERS = "```symcomm\nask: parameters\n```\n"
PEAK = "```symcomm\nask: peak_rate\nclock: 1.41 GHz\nunits: 108 SM\nfma: 512 FMA/clock/SM\n```\n"  # 155.93472 TFLOP/s
IDLE = "```symcomm\nask: pipeline_time\nwant: utilisation\ngiven: {p: 4, m: 36}\n```\n"  # 12/13 = 0.923
RING = (
    "```symcomm\nask: collective_time\npayload: 12 GiB\nranks: 8\nbandwidth: 300 GB/s\nlatency: 20 us\n"
    "algorithm: ring\n```\n"
)
LOSS = "```symcomm\nask: scaling_law\nwant: exponent_parameters\ngiven: {alpha: 0.34, beta: 0.28}\n```\n"  # 14/31
SUM = "```symcomm\nask: number_format\ndtype: fp16\n```\n"  # (2 - 2^-10) * 2^15 = 65504
# Ring: 14 steps of 20 us and 14/8 of 12 GiB at 300 GB/s, 0.28 ms + 75.16 ms = 75.44 ms.

PLANTED = [
    (PARAMETERS, "The layers have 805 million parameters."),
    (PARAMETERS, "Together these are $805\\,306\\,368$ parameters."),
    (BYTES, "So 1.61 GB are reduced."),
    (BYTES, "That is $1.5\\ \\text{GiB}$ an iteration."),
    (BYTES, "The gradients of one layer have 33 554 432 elements."),  # a step: 2 * 2048 * 8192
    (PEAK, "Nobody reaches the 156 TFLOP/s of the data sheet."),
    (IDLE, "The stages work 92.3 % of the time."),
    (RING, "A benchmark takes\n75.4 ms for it."),
    (LOSS, "The exponent is $14/31$, not one half."),
    (SUM, "Numbers above 65,504 overflow."),
]


def paper(words: str, asks: str, head: str = "") -> str:
    return f"---\ntitle: T{head}\n---\n# 1 Task\n\nHow much is it?\n\n{words}\n\n{LAYER}\n{asks}"


@pytest.mark.parametrize(("asks", "words"), PLANTED, ids=[words[:24] for _, words in PLANTED])
def test_a_sentence_that_tells_an_answer_is_refused_with_its_line(asks: str, words: str, tmp_path: Path) -> None:
    document = solve(parse_problem(paper(words, asks), "t.md"))
    with pytest.raises(RenderError, match=r"t\.md:(8|9): the paper would tell an answer") as found:
        render(document, ("md",), tmp_path, editions=("solution", "paper"), name="t")
    assert "put the sentence between :::solution and :::" in str(found.value)
    assert [*tmp_path.iterdir()] == []  # nothing is written, the solution neither
    hidden = solve(parse_problem(paper(f":::solution\n{words}\n:::", asks), "t.md"))
    assert len(render(hidden, ("md",), tmp_path, editions=("solution", "paper"), name="t")) == 2


@pytest.mark.parametrize(
    "words",
    [
        "A GPU of 1.41 GHz has 108 multiprocessors.",  # given
        "In 2024, chapter 3 and page 155 said so; a link has 25 GB/s.",
        "There are 805 306 369 stars.",  # one more than the parameters
        "It has 155.94 TFLOP/s.",  # the peak is 155.93
        "Run `train --tokens 805306368`.",  # code
    ],
)
def test_numbers_that_are_given_or_others_are_left_alone(words: str) -> None:
    assert [*telling(solve(parse_problem(paper(words, PARAMETERS + PEAK), "t.md")))] == []


def test_the_author_may_say_which_numbers_a_paper_tells(tmp_path: Path) -> None:
    text = paper("Show that it is 155.9 TFLOP/s.", PEAK, "\ntells: 155.9 TFLOP/s")
    assert len(render(solve(parse_problem(text, "t.md")), ("md",), tmp_path, editions=("paper",), name="t")) == 1
    with pytest.raises(DocumentError, match="unknown key 'tels'"):
        parse_problem(paper("", PEAK, "\ntels: 155.9 TFLOP/s"), "t.md")


@cache
def solved(path: Path) -> Document:
    return sc.solve(sc.read_problem(path))


@pytest.mark.few(3)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_no_paper_of_an_example_tells_an_answer(path: Path) -> None:
    assert [*telling(solved(path))] == []


@pytest.mark.few(4)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_no_letter_of_an_example_has_two_meanings(path: Path) -> None:
    assert solved(path).told == ()


def test_an_edition_is_the_same_whatever_others_are_made_with_it(tmp_path: Path) -> None:
    quiz = str(ROOT / "professor" / "quiz.md")
    for editions in ("solution", "solution,graders", "graders"):
        made = CliRunner().invoke(
            main, ["solve", quiz, "--edition", editions, "--to", "md", "-o", str(tmp_path / editions)]
        )
        assert made.exit_code == 0, made.output
    both = tmp_path / "solution,graders"
    assert (both / "quiz.md").read_text() == (tmp_path / "solution" / "quiz.md").read_text()
    assert (both / "quiz-graders.md").read_text() == (tmp_path / "graders" / "quiz-graders.md").read_text()
    assert "Common mistakes" in (both / "quiz-graders.md").read_text()
    assert "Common mistakes" not in (both / "quiz.md").read_text()


def test_numbers_are_read_with_and_without_their_units() -> None:
    assert {int(n) for n in numbers_in("12 GiB, 1,024 and 6.5 million")} == {12, 12 * 2**30, 1024, 6_500_000, 6}
