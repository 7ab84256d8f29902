"""Each law finds a difference where the code is broken: one change of the source for each, in a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from laws import OF_MODELS, OF_STRATEGIES

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
    # All that runs forward is said to run again.
    "work_is_counted_once": Change(
        "quantities/counting/recomputation.py", '"again": "recompute"}', '"again": "forward"}'
    ),
    "work_is_shared": Change(
        "quantities/counting/recomputation.py",
        '"again": "recompute"}',
        '"again": "forward"}',
        strategy="data(2)",
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
    # What is on the host is on the device, too.
    "host_has_the_rest": Change(
        "quantities/memory/state_memory.py",
        "setting.accounting.tier(role) != on and not adds_here",
        'on != "device" and setting.accounting.tier(role) != on',
        strategy="data(2)",
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
        "form = product(combined(Total, counts), one)",
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
    # The peak as a formula of the number of layers forgets the weights.
    "symbols_then_numbers": Change(
        "quantities/memory/peak_memory.py",
        "for kind in KINDS if worth[n].get(kind)))",
        "for kind in list(KINDS)[1:] if worth[n].get(kind)))",
    ),
    # A size whose name has an index does not count.
    "names_mean_nothing": Change(
        "quantities/counting/parameters.py",
        "sizes = [graph.axes[axis].size for axis in axes]",
        'sizes = [graph.axes[axis].size for axis in axes if "_" not in graph.axes[axis].label]',
    ),
    # The peak has the weights once more in place of the optimizer's states.
    "states_are_in_the_peak": Change(
        "program/step.py",
        'self.all("optimizer states", "state")',
        'self.all("optimizer states", "weight")',
        strategy="data(2)",
    ),
    # Ranks that are given at once are twice as many; those that are given later are not.
    "numbers_of_ranks": Change(
        "parallel/strategy.py", "return num(int(text))", "return num(2 * int(text))", strategy="data(2)"
    ),
    # An answer forgets the conventions that it used, or names one that it does not use.
    "named": Change("setting.py", "tuple(used)", "()"),
    "used": Change("setting.py", "tuple(used)", '(*used, "torus")'),
}
SCRIPT = """
import sys
from law_models import model
from laws import OF_MODELS, OF_STRATEGIES, differs
from test_conventions_used import matrix
law, name, strategy = sys.argv[1:]
if law in ("named", "used"):
    unnamed, unused = matrix(name, "flops", {"scope": "training"})
    sys.exit(3 if (unnamed if law == "named" else unused) else 0)
pairs = OF_STRATEGIES[law](model(name), strategy) if strategy else OF_MODELS[law](model(name))
sys.exit(3 if any(map(differs, pairs)) else 0)
"""


def test_every_law_is_broken_once() -> None:
    assert {*OF_MODELS, *OF_STRATEGIES} == {*CHANGES} - {"named", "used"}


@pytest.mark.parametrize("law", CHANGES)
def test_the_text_that_is_changed_is_there_once(law: str) -> None:
    change = CHANGES[law]
    assert (ROOT / "symcomm" / "core" / change.file).read_text().count(change.old) == 1


@pytest.mark.long
@pytest.mark.parametrize("law", CHANGES)
def test_a_law_finds_what_is_broken(law: str, tmp_path: Path) -> None:
    change = CHANGES[law]
    for folder in ("symcomm", "templates", "tests/laws", "tests/data", "examples/layers"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "tests" / "api.py", tmp_path / "tests")
    broken = tmp_path / "symcomm" / "core" / change.file
    broken.write_text(broken.read_text().replace(change.old, change.new))
    paths = os.pathsep.join(str(tmp_path / folder) for folder in ("", "tests", "tests/laws"))
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, law, change.model, change.strategy], cwd=tmp_path,
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert run.returncode == 3, run.stderr
