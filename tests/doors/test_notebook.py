"""The notebook among the examples runs, and shows what it showed."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "symcomm.ipynb"


def plain(outputs: list[dict]) -> list[str]:
    """What the cells said as text; pictures are their names."""
    said = [one.get("text") or one.get("data", {}).get("text/plain", "") for one in outputs]
    return ["".join(one) for one in said]


def test_the_notebook_holds_outputs_and_no_error():
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    outputs = [one for cell in cells for one in cell["outputs"]]
    assert not [one for one in outputs if one["output_type"] == "error"]
    assert any("image/png" in one.get("data", {}) for one in outputs)
    assert plain(cells[2]["outputs"] + cells[3]["outputs"])[-1] == "0"  # the reader's own formula


@pytest.mark.long
def test_the_notebook_runs_and_says_the_same():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    kept = nbformat.read(NOTEBOOK, as_version=4)
    made = nbformat.read(NOTEBOOK, as_version=4)
    here = {"metadata": {"path": str(NOTEBOOK.parent)}}
    nbclient.NotebookClient(made, timeout=300, kernel_name="python3", resources=here).execute()
    for before, after in zip(kept.cells, made.cells, strict=True):
        if before.cell_type == "code":
            assert plain(after.outputs) == plain(before.outputs)
