"""Chinese PDFs: set in Chinese glyphs where a font is there; where none is, both ways to one are named."""

from pathlib import Path

import pytest
from api import RenderError, main, source, typst_pdf
from click.testing import CliRunner

import symcomm as sc

CHINESE = '#set document(title: "t")\n#set text(lang: "zh")\n训练'


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(main, ["new", "homework.md"])
    path = tmp_path / "homework.md"
    text = path.read_text(encoding="utf-8").replace("course:", "language: zh\ncourse:")
    path.write_text(text.replace("Homework 1: parallel training", "作业一：并行训练"), encoding="utf-8")
    return path


def test_a_pdf_without_a_chinese_font_names_the_extra_and_the_package_of_the_system():
    try:
        typst_pdf(CHINESE)
    except RenderError as error:
        told = error
    else:
        pytest.skip("this machine has a Chinese font")
    assert told.message.startswith("no font on this machine has '训")
    assert told.hint.startswith("pip install ")
    assert told.hint.endswith(", or apt-get install fonts-noto-cjk; or write --to html, which is set by the browser")


def test_a_chinese_page_asks_for_simplified_glyphs_and_an_english_one_for_none(paper: Path):
    assert '"Noto Serif CJK SC"' in source(sc.solve(sc.read_problem(paper)), "typ")
    paper.write_text(paper.read_text(encoding="utf-8").replace("language: zh\n", ""), encoding="utf-8")
    assert "CJK" not in source(sc.solve(sc.read_problem(paper)), "typ")


def test_the_font_of_the_extra_sets_chinese(paper: Path):
    pytest.importorskip("justmytype_intl_cjk", reason="pip install '.[cjk]'")
    pypdf = pytest.importorskip("pypdf")
    done = CliRunner().invoke(main, ["solve", "homework.md"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    fonts = {str(f.get_object()["/BaseFont"]) for page in pypdf.PdfReader("out/homework.pdf").pages
             for f in page["/Resources"]["/Font"].values()}  # fmt: skip
    assert any("SC" in font and "Noto" in font for font in fonts), fonts
    assert not any("JP" in font for font in fonts)
