"""An answer that has lines of an earlier one of its document refers to it."""

from fractions import Fraction
from pathlib import Path

import pytest
from api import Notation, PageWriter, Quantity, Unit, contents

import symcomm as sc

TABLE = r"""
| Computation | Input | Output |
|---|---|---|
| $Y = XW$ | $X \in \mathbb{R}^{B \times D}, W \in \mathbb{R}^{D \times K}$ | $Y \in \mathbb{R}^{B \times K}$ |
| $Z = YV$ | $V \in \mathbb{R}^{K \times D}$ | $Z \in \mathbb{R}^{B \times D}$ |

```symcomm
model: layer
repeat: N
```
"""


def written(tmp_path: Path, asks: str, kind: str) -> str:
    path = tmp_path / "homework.md"
    path.write_text(f"---\ntitle: T\n---\n{TABLE}\n# Q\n\n```symcomm\n{asks}```\n", encoding="utf-8")
    return contents(sc.solve(sc.read_problem(path)), [kind])[kind].decode()


ASK = "- ask: state_memory\n  recipe: fp32_adam\n"
SAME = ASK + "```\n\nAnd in numbers:\n\n```symcomm\n" + ASK + "  label: again\n  given: {N: 2, D: 3, K: 5}\n"


def test_the_lines_of_an_earlier_solution_are_not_written_again(tmp_path: Path):
    text = written(tmp_path, SAME, "md")
    first, second = text.split("Solution 2: Model states on one GPU: again")
    assert "Solution 1" in first
    assert "as in solution 1." in second
    assert r"M_{W} &=" in first
    assert r"M_{W} &=" not in second
    assert "960" in second  # 16 bytes for each of 2 * (3*5 + 5*3) parameters


@pytest.mark.parametrize("kind", ["html", "tex"])
def test_every_format_says_which_lines_are_repeated(tmp_path: Path, kind: str):
    text = written(tmp_path, SAME, kind)
    assert text.count("as in solution 1.") == 1
    assert "Solution 2" in text


def test_solutions_without_common_lines_are_complete_and_carry_no_numbers(tmp_path: Path):
    text = written(tmp_path, "- ask: parameters\n- ask: flops\n  scope: training\n", "md")
    assert "Solution" in text
    assert "Solution 1" not in text
    assert "as in solution" not in text


def test_answers_of_one_kind_are_one_derivation_and_one_table(tmp_path: Path):
    asks = "".join(f"- ask: parameters\n  label: {n} layers\n  given: {{N: {n}, D: 3, K: 5}}\n" for n in (2, 4))
    text = written(tmp_path, asks, "md")
    assert text.count("\\begin{aligned}") == 1
    row = next(line for line in text.splitlines() if line.startswith("| 4 layers"))
    assert "120" in row  # 4 * (3*5 + 5*3)


def test_equal_amounts_in_other_units_are_each_written_in_their_own():
    hours, seconds = Quantity(Fraction(2), Unit.parse("hour")), Quantity(Fraction(7200), Unit.parse("second"))
    assert hours == seconds
    writer = PageWriter("md", Notation())
    assert writer.stated("t", hours) == r"$t = 2\ \text{hours}$"
    assert writer.stated("t", seconds) == r"$t = 7200\ \text{s}$"
    assert [link.lines for link in writer.links(hours)] != [link.lines for link in writer.links(seconds)]
