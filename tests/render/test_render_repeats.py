"""An answer that begins like an earlier one of its document refers to it."""

import re
from pathlib import Path

import pytest

import symcomm as sc
from symcomm.render import contents

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
SAME = ASK + ASK + "  label: again\n  given: {N: 2, D: 3, K: 5}\n"


def test_the_steps_of_an_earlier_solution_are_not_written_again(tmp_path: Path):
    text = written(tmp_path, SAME, "md")
    first, second = text.split("**Solution 2: again**")
    assert "**Solution 1**" in first
    steps = len(re.findall(r"^\d+\. ", first, re.MULTILINE))
    assert f"*Steps (1) to ({steps - 1}) are those of solution 1.*" in second
    # The last step stands again, with its left side and its number.
    assert re.findall(r"^(\d+)\. ", second, re.MULTILINE) == [str(steps)]
    assert re.search(r"\\begin\{aligned\}\s*M &=", second)
    assert "960" in second  # 16 bytes for each of 2 * (3*5 + 5*3) parameters


@pytest.mark.parametrize("kind", ["html", "tex"])
def test_every_format_says_which_steps_are_repeated(tmp_path: Path, kind: str):
    text = written(tmp_path, SAME, kind)
    assert len(re.findall(r"Steps \(1\) to \(\d+\) are those of solution 1\.", text)) == 1
    assert "Solution 2: again" in text


def test_solutions_without_a_common_beginning_are_complete_and_carry_no_numbers(tmp_path: Path):
    text = written(tmp_path, "- ask: parameters\n- ask: flops\n  scope: training\n", "md")
    assert "**Solution**" in text
    assert "Solution 1" not in text
    assert "are those of solution" not in text
