"""Pictures of costs: whole files, the same each time, with the crossovers that exact evaluation finds."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from api import RenderError, ValuesError, no_model

pytest.importorskip("matplotlib")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "collectives"))
from plot import plot_costs  # the script of the example

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of matplotlib's own imports

LINK = {"payload": "1 MB", "ranks": 8, "latency": "20 us", "bandwidth": "100 GB/s"}
PAIR = [no_model().derive("collective_time", algorithm=name, **LINK) for name in ("ring", "tree")]


@pytest.mark.long
def test_a_picture_marks_the_payload_where_the_fastest_changes(tmp_path: Path) -> None:
    stretches = plot_costs(PAIR, "n", (1000, 10**9), tmp_path / "costs.svg", ["ring", "tree"])
    # 14 alpha + 14/8 n/W = 6 alpha + 6 n/W at n = 8 alpha W / (17/4) = 3.7647 MB.
    assert [s.best for s in stretches] == [1, 0]
    assert float(stretches[0].high) == pytest.approx(8 * 20e-6 * 1e11 / 4.25, rel=1e-5)
    text = (tmp_path / "costs.svg").read_text(encoding="utf-8")
    assert text.startswith("<?xml")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["svg", pytest.param("png", marks=pytest.mark.long)])
def test_the_same_input_gives_the_same_file(tmp_path: Path, kind: str) -> None:
    for name in ("a", "b"):
        plot_costs(PAIR, "n", (1000, 10**9), tmp_path / f"{name}.{kind}", points=30)
    assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    assert not re.search(rb"Matplotlib v|<dc:date>", (tmp_path / f"a.{kind}").read_bytes())


def test_a_picture_over_the_ranks_uses_whole_numbers(tmp_path: Path) -> None:
    plot_costs(PAIR, "k", (2, 64), tmp_path / "ranks.png", points=20)
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_format_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValuesError) as caught:
        plot_costs(PAIR, "n", (1, 100), tmp_path / "costs.gif")
    assert str(caught.value) == "'costs.gif' is no picture that can be written\nhint: end it with .svg, .png or .pdf"
    assert not list(tmp_path.iterdir())


def test_labels_must_be_as_many_as_costs(tmp_path: Path) -> None:
    with pytest.raises(ValuesError, match="2 costs have 1 labels"):
        plot_costs(PAIR, "n", (1, 100), tmp_path / "costs.svg", ["ring"])
    with pytest.raises(ValuesError, match="there is nothing to draw"):
        plot_costs([], "n", (1, 100), tmp_path / "costs.svg")


def test_a_file_that_cannot_be_written_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(RenderError, match=r"taken\.svg cannot be written"):
        plot_costs(PAIR, "n", (1000, 10**6), tmp_path / "taken.svg", points=5)
    assert [p.name for p in tmp_path.iterdir()] == ["taken.svg"]


def test_a_missing_matplotlib_is_named_with_the_extra_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(RenderError) as caught:
        plot_costs(PAIR, "n", (1000, 10**6), tmp_path / "costs.svg")
    assert str(caught.value) == 'a picture needs Matplotlib\nhint: pip install "matplotlib<4,>=3.8"'
