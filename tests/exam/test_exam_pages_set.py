"""Papers as they are set: LaTeX without complaint, and QR codes that a reader reads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from api import Exam, MatrixCode, Order, RenderError, Student, make, matrix_code, numbered, parse_template
from api import problem_read_template as read_template
from hypothesis import given, settings
from test_exports import texts

MIDTERM = Path(__file__).parents[2] / "examples" / "midterm" / "midterm.md"
SHORT = """---
title: Quiz
draw: {f: {from: 1.1, to: 2.4, step: 0.1, unit: GHz}}
---

# Peak rate (5 points)

```symcomm
ask: peak_rate
label: of a very fast processor with a name that is far too long for its line
given: {f: {{ f }}, n_SM: 100 SM, n_FMA: 512 FMA/clock/SM}
```
"""
LABEL = "label: of a very fast processor with a name that is far too long for its line"
ANNA = Student("s001 é", "Anna", "")


def pages(folder: Path, form: str, edition: str = "paper", *, text: str = SHORT, qr: bool = True) -> str:
    order = Order((form,), edition, qr=qr)  # type: ignore[arg-type]
    (path,) = make(parse_template(text), (ANNA,), "0", order, folder, processes=1)
    return path.read_text()


def read(modules: list[list[bool]]) -> str:
    """What a reader of codes sees in dark and light modules."""
    zxingcpp = pytest.importorskip("zxingcpp", reason="pip install zxing-cpp")
    numpy = pytest.importorskip("numpy")
    picture = numpy.where(numpy.kron(numpy.array(modules), numpy.ones((6, 6), dtype=bool)), 0, 255)
    (found,) = zxingcpp.read_barcodes(picture.astype(numpy.uint8))
    return found.text


def told() -> str:
    return f"{Exam(parse_template(SHORT), '0').paper(ANNA).code} {ANNA.id}"


def test_the_code_of_a_page_is_read_back(tmp_path):
    pytest.importorskip("segno", reason="pip install segno")
    page = pages(tmp_path, "html")
    side = int(re.search(r'viewBox="0 0 (\d+)', page)[1])
    dark = [[False] * side for _ in range(side)]
    for column, row, length in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", page):
        for n in range(int(length)):
            dark[int(row)][int(column) + n] = True
    assert read(dark) == told()
    set_in_latex = [[False] * side for _ in range(side)]
    for column, row, length in re.findall(r"\\put\((\d+),(\d+)\)\{\\rule\{(\d+)", pages(tmp_path, "tex")):
        for n in range(int(length)):
            set_in_latex[side - 1 - int(row)][int(column) + n] = True
    assert set_in_latex == dark


def test_a_page_has_a_code_only_where_one_is_asked_for(tmp_path):
    assert "\\put(" not in pages(tmp_path, "tex", qr=False)


def test_a_code_says_what_is_missing_or_too_long(monkeypatch):
    pytest.importorskip("segno", reason="pip install segno")
    with pytest.raises(RenderError, match="is too long for a QR code"):
        matrix_code("x" * 5000)
    monkeypatch.setitem(__import__("sys").modules, "segno", None)
    with pytest.raises(RenderError, match="segno is missing") as caught:
        matrix_code("x")
    assert caught.value.hint == 'pip install "segno<2,>=1.6"'


def test_a_code_is_drawn_as_one_path():
    code = MatrixCode("x", 4, ((0, 1, 2), (3, 0, 1)))
    assert code.path == "M1 0h2v1h-2zM0 3h1v1h-1z"
    assert code.svg.startswith('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 4 4"><rect width="4" height="4"')


@pytest.mark.long
@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="pdftoppm is not installed")
@pytest.mark.parametrize("engine", ["typst", pytest.param("latex", marks=pytest.mark.latex)])
def test_the_code_of_a_pdf_is_read_back(tmp_path, engine):
    zxingcpp = pytest.importorskip("zxingcpp", reason="pip install zxing-cpp")
    numpy = pytest.importorskip("numpy")
    order = Order(("pdf",), "paper", engine=engine, qr=True)
    (path,) = make(parse_template(SHORT), (ANNA,), "0", order, tmp_path, processes=1)
    subprocess.run(["pdftoppm", "-r", "150", "-gray", "-singlefile", str(path), str(tmp_path / "page")], check=True)
    data = (tmp_path / "page.pgm").read_bytes()
    width, height = map(int, data.split(b"\n", 3)[1].split())
    picture = numpy.frombuffer(data[-width * height :], numpy.uint8).reshape(height, width)
    assert [found.text for found in zxingcpp.read_barcodes(picture)] == [told()]


# -- LaTeX ------------------------------------------------------------------------------------------


@cache
def _sources(edition: str) -> tuple[str, ...]:
    from api import paper_page, solution_page, source

    page = paper_page if edition == "paper" else solution_page
    exam = Exam(read_template(MIDTERM), "0")
    papers = [exam.paper(student) for student in numbered(2)]
    return tuple(source(page(exam, paper), "tex", edition=edition, layout="exam") for paper in papers)


@pytest.mark.long
@pytest.mark.latex
@pytest.mark.skipif(shutil.which("latexmk") is None, reason="latexmk is not installed")
@pytest.mark.parametrize("edition", ["paper", "solution", "graders"])
def test_latex_sets_every_edition_of_the_midterm_without_complaint(edition):
    from api import latex_run

    for text in _sources(edition):
        data, log = latex_run(text)
        assert data.startswith(b"%PDF-")
        found = re.findall(r"^.*(?:Overfull|undefined|multiply defined|Missing character).*$", log, re.MULTILINE)
        assert found == []


def test_the_room_for_an_answer_reaches_to_the_end_of_its_line_in_latex(tmp_path):
    page = pages(tmp_path, "tex", qr=False)
    assert "far too long for its line, with its unit, 3 significant digits): \\dotfill\\null\n" in page
    assert "\\ldots\\ldots" not in page


ESCAPED = {r"\textbackslash": "\\", r"\textasciitilde": "~", r"\textasciicircum": "^", r"\textless": "<",
           r"\textgreater": ">", r"\textbar": "|", r"\^": "^"}  # fmt: skip


def plain_tex(tex: str) -> str:
    """The text that LaTeX shows of escaped text, by a reader of its own; it knows no command but the escapes."""
    out, at = "", 0
    while at < len(tex):
        found = re.compile(r"\\(?:[A-Za-z]+ ?|.)", re.DOTALL).match(tex, at)
        if found:
            name = found[0].rstrip(" ") if len(found[0]) > 2 else found[0]
            assert name in ESCAPED or name in (r"\,", *(f"\\{c}" for c in "{}#$%&_ ")), name
            out += ESCAPED.get(name, "" if name == r"\," else name[1:])
            at = found.end() + (tex[found.end() : found.end() + 2] == "{}") * 2
        else:
            assert tex[at] not in "#$%&_~^", tex
            out += "" if tex[at] in "{}" else tex[at]
            at += 1
    return out.replace("``", '"').replace("''", '"').replace("`", "'").replace("---", "-").replace("--", "-")


def loosely(text: str) -> str:
    """A text as typography leaves it."""
    text = re.sub("[‘’`]", "'", re.sub("[“”]", '"', text)).replace("''", '"').replace("…", "...")
    return " ".join(re.sub("-{2,3}|[–—]", "-", text).split())


@given(texts)
@settings(max_examples=15)
def test_hostile_texts_arrive_in_latex_or_are_refused_with_the_place(text):
    from api import SymcommError, paper_page, source

    said = json.dumps(text, ensure_ascii=False)
    try:
        exam = Exam(parse_template(SHORT.replace(LABEL, f"label: {said}")), "0")
        made = source(paper_page(exam, exam.paper(Student("s1", text, ""))), "tex", layout="exam")
    except SymcommError as error:
        assert re.search(r"<text>:\d+: ", str(error))  # noqa: PT017  (where it is)
        return
    asked = r"(?:, with its unit)?(?:, 3 significant digits)?\): \\dotfill\\null\n"
    (shown,) = re.findall(r"\\textbf\{Answer [^}]*\} \((.*?)" + asked, made, re.DOTALL)
    assert loosely(plain_tex(shown)) == loosely(text) or not text.strip()
    (name,) = re.findall(r"\\vspace\{0\.3em\}\{\\large (.*) · paper ", made, re.DOTALL)
    assert loosely(plain_tex(name)) == loosely(text) or not text.strip()
