"""Each law finds a difference where the code is broken: one change of the source for each, in a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Change(NamedTuple):
    """A text of a file that is replaced, and the model (and strategy) that a law sees it on."""

    file: str
    old: str
    new: str
    model: str = "homework"
    strategy: str = ""


CHANGES = {
    # The first region was asked whether it repeats, not the one that answers: FLOPs were those of one layer.
    "passes_add_up": Change(
        "quantities/counting/flops.py", "elif counts[0].times:", "elif regions[0].times:", "GPT2Model"
    ),
    "parts_add_up": Change(
        "quantities/counting/flops.py", "elif counts[0].times:", "elif regions[0].times:", "GPT2Model"
    ),
    # Copies of one layer were counted.
    "layers_are_alike": Change(
        "quantities/memory/cast_copies.py", "parts += [times(region, one) for one in copies]", "parts += copies"
    ),
    # Of all rows the first one is counted.
    "rows_add_up": Change(
        "quantities/counting/flops.py",
        'parts.append(work.define(f"F_{called}{suffix}", Total(tuple(names)), FLOP,',
        'parts.append(work.define(f"F_{called}{suffix}", Total(tuple(names[:1])), FLOP,',
    ),
    # What runs again is no work of the hardware.
    "work_is_counted_once": Change(
        "quantities/counting/recomputation.py", '("bwd", "backward"))} | phases', '("bwd", "backward"))}'
    ),
    # A number of 32 bits has three bytes.
    "units_multiply": Change("dtypes.py", 'NumberFormat("fp32", 8, 23,', 'NumberFormat("fp32", 8, 15,'),
    # All stages hold what the first holds.
    "stages_add_up": Change(
        "quantities/memory/state_memory.py",
        "held = pipeline.held(graph, cut, stage, setting.values, order)",
        "held = pipeline.held(graph, cut, cut and 1, setting.values, order)",
        "GPT2Model",
    ),
    # Where one kind is asked for, all are counted.
    "kinds_add_up": Change(
        "quantities/memory/state_memory.py",
        'of not in ("all", _KINDS_OF[role])',
        "of not in _KINDS and of != 'all'",
        strategy="fsdp(2)",
    ),
    # The convention of recomputation is ignored, and only the option is read.
    "option_is_convention": Change(
        "quantities/memory/asked.py",
        "RECOMPUTED[setting.accounting.recomputation]",
        'RECOMPUTED["activations_kept"]',
        strategy="data(2)",
    ),
    # Calls of the backward pass are in no phase.
    "sums_add_up": Change(
        "quantities/communication/communication.py",
        "phase in (None, c.phase)",
        "phase is None or phase == c.phase != 'backward'",
        strategy="data(2)",
    ),
    # An axis of one rank still cuts and sends.
    "one_rank_changes_nothing": Change(
        "parallel/strategy.py", "if not alone and cut == self.pipeline:", "if True:", strategy="data(2)"
    ),
    # Every rank of the mesh is counted.
    "ranks_never_add_work": Change(
        "quantities/memory/state_memory.py",
        "form = product(counts[0] if len(counts) == 1 else Total(tuple(counts)), one)",
        "form = product(Total(tuple(counts)), one, *(strategy.sizes.values() if strategy else ()))",
        strategy="data(2)",
    ),
    # What is sent again is in no phase.
    "recomputed_bytes": Change(
        "quantities/communication/communication.py",
        "phase in (None, c.phase)",
        "phase in (None, c.phase) and c.phase != 'recompute'",
        strategy="tensor(2)",
    ),
}
SCRIPT = """
import sys
from law_models import model
from laws import OF_MODELS, OF_STRATEGIES
law, name, strategy = sys.argv[1:]
pairs = OF_STRATEGIES[law](model(name), strategy) if strategy else OF_MODELS[law](model(name))
sys.exit(3 if any(one != other for _, one, other in pairs) else 0)
"""


@pytest.mark.parametrize("law", CHANGES)
def test_the_text_that_is_changed_is_there_once(law: str) -> None:
    change = CHANGES[law]
    assert (ROOT / "symcomm" / "core" / change.file).read_text().count(change.old) == 1


@pytest.mark.long
@pytest.mark.parametrize("law", CHANGES)
def test_a_law_finds_what_is_broken(law: str, tmp_path: Path) -> None:
    change = CHANGES[law]
    for folder in ("symcomm", "templates", "tests/laws", "tests/data", "examples/layers"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    broken = tmp_path / "symcomm" / "core" / change.file
    broken.write_text(broken.read_text().replace(change.old, change.new))
    paths = os.pathsep.join((str(tmp_path), str(tmp_path / "tests" / "laws")))
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, law, change.model, change.strategy], cwd=tmp_path,
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert run.returncode == 3, run.stderr
