"""A document shows the runs in PyTorch that it asks for, and only those of what it says now."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from api import DocumentError, cache_path, load_model, main, parse_problem, read_problem, run_key, solve
from click.testing import CliRunner

DOCUMENT = r"""# A layer

| Computation | Input | Output |
|---|---|---|
| $A = xW$ | $x \in \mathbb{R}^{B \times D}, W \in \mathbb{R}^{D \times F}$ | $A \in \mathbb{R}^{B \times F}$ |

```symcomm
model: layer
```

## What is sent?

```symcomm
ask: communication
strategy: data(k)
verify: true
```
"""
ROW = {"what": "FLOPs", "unit": "FLOP", "derived": 96, "expected": 96, "measured": 96, "explained": ["padded_rows"],
       "difference": 0}  # fmt: skip


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "homework.md"
    path.write_text(DOCUMENT, encoding="utf-8")
    return path


def keep(path: Path, softmax: str = "as_given") -> None:
    key = run_key(load_model(read_problem(path)), "data(k)", softmax)
    run = {"ranks": 2, "torch": "2.13.0", "interface": "DistributedDataParallel", "sizes": {"B": 2}, "rows": [ROW]}
    kept = {"symcomm": "0.1.0", "torch": "2.13.0", "runs": {key: run}}
    cache_path(str(path)).write_text(json.dumps(kept), encoding="utf-8")


def test_what_was_run_stands_in_the_write_up_with_the_versions_it_was_made_with(document: Path):
    keep(document)
    made = solve(read_problem(document))
    (answer,) = [block for block in made.blocks if hasattr(block, "derivation")]
    shown = answer.derivation.exhibits[-1]
    assert shown.title == "Run in PyTorch 2.13.0 by DistributedDataParallel on 2 processes, B = 2 (symcomm 0.1.0)"
    assert shown.rows == (("FLOPs", "96 FLOP", "96 FLOP", "0", "padded rows"),)


def test_what_was_not_run_or_has_changed_is_told_with_its_place(document: Path):
    with pytest.raises(DocumentError) as told:
        solve(read_problem(document))
    assert str(told.value) == (
        f"{document}:16: this question has not been run in PyTorch as it stands\n    verify: true\n"
        "            ^^^^\nhint: symcomm verify homework.md --asked"
    )
    keep(document)
    document.write_text(DOCUMENT.replace("F}", "G}"), encoding="utf-8")
    with pytest.raises(DocumentError, match="has not been run in PyTorch as it stands"):
        solve(read_problem(document))


def test_a_run_belongs_to_the_form_of_attention_that_the_document_names(document: Path):
    keep(document)
    asked = DOCUMENT.replace("verify: true", "verify: true\naccounting: {softmax: fused}")
    document.write_text(asked, encoding="utf-8")
    with pytest.raises(DocumentError, match="has not been run in PyTorch as it stands"):
        solve(read_problem(document))
    keep(document, "fused")
    solve(read_problem(document))


def test_what_a_document_asks_for_is_run_with_its_form_of_attention(document: Path, monkeypatch: pytest.MonkeyPatch):
    asked = DOCUMENT.replace("verify: true", "verify: true\naccounting: {softmax: fused}")
    document.write_text(asked + asked[asked.index("## What") :].replace("\naccounting: {softmax: fused}", ""), "utf-8")
    ran = []

    def verify(model: Any, strategy: str, degrees: Any, **options: Any) -> Any:
        ran.append(options["softmax"])
        return SimpleNamespace(json=lambda: {"rows": []}, holds=True, torch="2.13.0")

    monkeypatch.setattr("symcomm.verify.verify.verify", verify)
    made = CliRunner().invoke(main, ["verify", str(document), "--asked"])
    assert made.exit_code == 0, made.output
    assert ran == ["fused", "as_given"]
    assert len(json.loads(cache_path(str(document)).read_text())["runs"]) == 2


def test_a_file_of_runs_that_is_broken_counts_as_none(document: Path):
    cache_path(str(document)).write_text('{"runs": 3}', encoding="utf-8")
    with pytest.raises(DocumentError, match="has not been run in PyTorch"):
        solve(read_problem(document))


def test_a_question_without_a_strategy_names_the_one_to_be_run():
    text = DOCUMENT.replace("ask: communication\nstrategy: data(k)", "ask: flops")
    with pytest.raises(DocumentError, match="this question has no strategy that could be run"):
        solve(parse_problem(text, "t.md"))
    with pytest.raises(DocumentError, match=r"hint: symcomm verify t\.md --asked"):
        solve(parse_problem(text.replace("verify: true", "verify: data(2)"), "t.md"))
    solve(parse_problem(text.replace("verify: true", "verify: false"), "t.md"))
