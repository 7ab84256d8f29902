"""Steps of generating text in problem files and on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from api import main, parse_problem, solve
from click.testing import CliRunner
from inference_models import configuration

import symcomm as sc

CONFIG = json.dumps(configuration("tiny-a"))
MODEL = f"```symcomm\nmodel: tiny\nconfig: {CONFIG}\n```\n"
DOCS = (Path(__file__).parents[2] / "docs" / "inference.md").read_text(encoding="utf-8")


def solved(block: str) -> list[str]:
    found = solve(parse_problem(f"{MODEL}\n```symcomm\n{block}\n```\n")).answers()
    return [str(one.quantity) for one in found]


def test_a_step_is_a_model_of_a_document() -> None:
    step = "- {model: step, of: tiny, phase: decode}\n"
    assert solved(step + "- {ask: flops, given: {B: 2, c: 6}}") == ["20 600 FLOP = 20.6 kFLOP"]
    assert solved(step + "- {ask: kv_cache, of: token}") == ["120 B"]
    prompt = "- {model: prompt, of: tiny, phase: prefill, new: S}\n"
    assert solved(prompt + "- {ask: flops, accounting: causal_half, given: {B: 2, S: 7}}") == [
        "123 560 FLOP = 123.56 kFLOP"
    ]
    verified = "- {model: verified, of: tiny, phase: decode, new: 3, past: 6}\n"
    assert solved(verified + "- {ask: flops, given: {B: 2}}") == ["66 120 FLOP = 66.12 kFLOP"]


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("{model: step, of: tiny, phase: training}", "'phase' is prefill or decode, not 'training'"),
        ("{model: step, of: tin, phase: decode}", "no model before this one is called 'tin'"),
        ("{model: step, of: tiny}", "'of' belongs to a step of generating text"),
        ("{model: step, of: tiny, phase: decode, new: 0}", "new is 0"),
        ("{model: step, of: tiny, phase: decode, dtype: fp8}", "dtype"),
    ],
)  # fmt: skip
def test_a_step_that_cannot_be_is_told_with_its_place(block: str, told: str) -> None:
    with pytest.raises(sc.SymcommError, match=re.escape(told)) as refused:
        solved(f"- {block}\n- {{ask: flops}}")
    assert refused.value.span is not None


def test_the_command_line_asks_a_step_as_a_model(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(CONFIG)

    def run(*arguments: str) -> str:
        return CliRunner().invoke(main, arguments, catch_exceptions=False).output

    asked = ("--model", str(file), "--phase", "decode")
    assert "= 20 600 FLOP" in run("derive", "flops", *asked, "--at", "B=2,c=6")
    assert "= 20 600 FLOP" in run("derive", "flops", *asked, "--past", "6", "--at", "B=2")
    assert "tensor, forward" in run("derive", "communication", *asked, "--strategy", "tensor(2)")
    assert "--phase decode" in run("derive", "flops", "--model", str(file), "--past", "6")
    shown = run("show", str(file), "--phase", "decode")
    assert "kept: S_j (cache of the layer), read by P_i" in shown
    assert "append" in shown


def test_the_page_says_what_comes_out(capsys: pytest.CaptureFixture[str]) -> None:
    for block in re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL):
        exec(compile(block, "docs/inference.md", "exec"), {})  # our own page
        printed = capsys.readouterr().out.splitlines()
        calls = [line for line in block.splitlines() if line.startswith("print(")]
        for call, line in zip(calls, printed, strict=True):
            told = call.partition("  # ")[2].partition(":")[0].partition(" ≈")[0]
            if re.match(r"[\d.]", told) and "ms" not in told:
                assert line.startswith(told), call
