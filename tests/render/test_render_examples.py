"""Every example becomes every kind of document, and common symbols of mathematics survive the way there."""

from __future__ import annotations

import re
from pathlib import Path

import pypdf
import pytest
from api import main, render, solve, telling
from click.testing import CliRunner
from test_pages_read_well import findings

import symcomm as sc

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p for p in ROOT.glob("examples/**/*.md") if "```symcomm\n" in p.read_text(encoding="utf-8"))

SYMBOLS = r"""\odot \otimes \oplus \ominus \bigotimes \bigoplus \cap \cup \bigcap \sqcap \in \notin \subseteq \leq
\geq \approx
\equiv \propto \sim \to \mapsto \Rightarrow \iff \forall \exists \nabla \partial \sum_{i=1}^{n} \prod \int \infty
\pm \times \cdot \ldots \langle \rangle \lceil \rceil \lfloor \rfloor \|x\| \hat{x} \tilde{y} \bar{z} \vec{v} \mathbf{W}
\mathbb{R} \mathcal{L} \text{softmax} \operatorname{argmax} \frac{a}{b} \sqrt{d} \left( \frac{1}{2} \right)
\begin{pmatrix} a & b \\ c & d \end{pmatrix} \alpha \beta \gamma \Gamma \varepsilon \theta \lambda \ell \top \perp
\angle \triangle \star \circ \bullet \mid"""


QUESTION = "```symcomm\nask: collective_time\n```\n"

# Each takes seconds: one with tables of all kinds, one with experts, one with pictures.
QUICK = {"homework", "mixture-of-experts", "linear-layer"}
EDITED = [p for p in EXAMPLES if p.parent.name not in ("midterm", "layers")]
CASES = [pytest.param(p, id=p.stem, marks=[] if p.stem in QUICK else [pytest.mark.long]) for p in EXAMPLES]


PAGES = {"homework": 4, "communication-accounting": 8, "bert": 7, "zero": 1, "ddp-buckets": 5, "pipeline-chunks": 6,
         "autodiff-traces": 4, "peak": 3, "serving": 6, "long-context": 4, "quiz": 2, "gpt3": 2}  # fmt: skip


@pytest.mark.parametrize("path", CASES)
def test_an_example_is_rendered_in_every_format_and_reads_well(path: Path, tmp_path: Path) -> None:
    document = solve(sc.read_problem(path))
    render(document, ("pdf", "html", "tex", "md"), tmp_path, editions=("solution",), name=path.stem)
    pictures = {p.name for p in tmp_path.iterdir() if re.search(r"-figure-\d+\.(svg|pdf)$|\.png$", p.name)}
    assert {p.name for p in tmp_path.iterdir()} - pictures == {f"{path.stem}.{f}" for f in ("pdf", "html", "tex", "md")}
    assert len(pypdf.PdfReader(tmp_path / f"{path.stem}.pdf").pages) <= PAGES.get(path.stem, 7)
    assert [*findings(document)] == []
    assert document.told == ()  # no letter has two meanings
    assert [*telling(document)] == []  # no paper has an answer in its words


@pytest.mark.long
@pytest.mark.parametrize("path", EDITED, ids=lambda p: p.stem)
def test_an_example_has_all_of_its_editions(path: Path, tmp_path: Path) -> None:
    editions = "paper,solution,key,graders"
    result = CliRunner().invoke(main, ["solve", str(path), "--edition", editions, "--to", "md", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert len([*tmp_path.glob("*.md")]) == 4


def test_the_usual_symbols_of_mathematics_reach_the_page(tmp_path: Path) -> None:
    source = tmp_path / "symbols.md"
    source.write_text("# Symbols\n\n$" + SYMBOLS.replace("\n", " ") + "$\n\n" + QUESTION, encoding="utf-8")
    result = CliRunner().invoke(main, ["solve", str(source), "--to", "pdf,html", "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
