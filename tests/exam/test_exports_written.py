"""Exports of many variants: in several processes, and never half there."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from api import (
    EXPORTERS,
    DocumentError,
    Exporter,
    Template,
    draw_items,
    fill_export,
    main,
    packed,
    parse_template,
    zipped,
)
from api import exports_writing as writing
from click.testing import CliRunner

FORMATS = ("moodle", "stack", "qti12", "qti12-mathjax", "qti21", "prairielearn", "gradescope")
QUIZ = """---
title: Quiz
draw: {f: {from: 1.1, to: 2.4, step: 0.1, unit: GHz}, n: {from: 64, to: 36000, step: 4}}
---

# Peak rate (5 points)

It runs at {{ f }} and has {{ n }} processors. What is its peak rate?

```symcomm
ask: peak_rate
id: peak
given: {f: {{ f }}, n_SM: {{ n }} SM, n_FMA: 512 FMA/clock/SM}
```

# Symbols (3 points)

What is it in symbols, $f$, $n_{SM}$ and $n_{FMA}$?

```symcomm
ask: peak_rate
id: formula
```
"""

SUM = """---
draw: {x: [0.1, 0.01, 0.001, 0.3, 3], n: {multiples_of: 500, from: 500, to: 5000}, accumulator: [fp16, bf16]}
---

# Sum (3 points)

The number {{ x }} is added {{ n }} times in {{ accumulator }}. What is the sum?

```symcomm
ask: accumulation
id: sum
x: {{ x }}
n: {{ n }}
accumulator: {{ accumulator }}
```
"""
OTHER_PARTS = r"""---
draw: {columns: [P, Q], rows: [R, S, T]}
---
Words.

# Symbols (3 points)

How many parameters are there?

```symcomm
- model: product
  formula: '$y = xW, x \in \mathbb{R}^{B \times {{ rows }}}, W \in \mathbb{R}^{ {{ rows }} \times {{ columns }}}, y \in \mathbb{R}^{B \times {{ columns }}}$'
- {ask: parameters, id: formula}
```
"""  # noqa: E501


@pytest.fixture
def quiz(monkeypatch) -> Template:
    monkeypatch.setattr(writing, "_CHUNK", 4)  # variants in a piece
    return parse_template(QUIZ, "quiz.md")


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def made_by(monkeypatch, break_at: int = 0) -> list[int]:
    """The first variants of the pieces that are made from now on; one of them may fail."""
    made: list[int] = []
    true = writing._draw

    def draw(variants, **order):
        numbers = [int(student.id) for student, _ in variants[:1]]
        if break_at and break_at in numbers:
            raise KeyboardInterrupt
        made.extend(numbers)
        return true(variants, **order)

    monkeypatch.setattr(writing, "_draw", draw)
    return made


def test_what_is_put_together_from_pieces_is_what_an_exporter_makes_of_all_items(quiz, tmp_path):
    writing.export(quiz, FORMATS, 9, "7", tmp_path, processes=1)
    items = draw_items(quiz, "7", 9)
    whole = {name: data for each in FORMATS for name, data in EXPORTERS[each].files("Quiz", items).items()}
    found = files(tmp_path)
    del found["manifest.json"]
    assert found == whole


def test_two_processes_export_what_one_does(quiz, tmp_path):
    for count in (1, 2):
        writing.export(quiz, ("moodle", "qti21"), 9, "7", tmp_path / str(count), processes=count)
    assert files(tmp_path / "1") == files(tmp_path / "2")


def test_an_interrupted_export_leaves_nothing_half_there(quiz, tmp_path, monkeypatch):
    writing.export(quiz, ("moodle",), 9, "7", tmp_path, processes=1)
    before = files(tmp_path)
    made = made_by(monkeypatch, break_at=5)
    with pytest.raises(KeyboardInterrupt):
        writing.export(quiz, ("moodle", "stack"), 9, "7", tmp_path, processes=1)
    assert (made, files(tmp_path)) == ([1], before)


def test_a_format_that_is_there_is_kept_and_a_damaged_one_is_made_again(quiz, tmp_path, monkeypatch):
    told = writing.export(quiz, ("moodle", "prairielearn"), 5, "7", tmp_path, processes=1)
    before = files(tmp_path)
    made = made_by(monkeypatch)
    assert writing.export(quiz, ("moodle", "prairielearn"), 5, "7", tmp_path, processes=1) == told
    assert (made, files(tmp_path)) == ([], before)
    (tmp_path / "prairielearn" / "peak" / "server.py").unlink()
    at = (tmp_path / "moodle.xml").stat().st_mtime_ns
    writing.export(quiz, ("moodle", "prairielearn"), 5, "7", tmp_path, processes=1)
    assert (made, files(tmp_path)) == ([1, 5], before)
    assert (tmp_path / "moodle.xml").stat().st_mtime_ns == at
    writing.export(quiz, ("moodle",), 5, "8", tmp_path, processes=1)
    assert (tmp_path / "moodle.xml").read_bytes() != before["moodle.xml"]


def test_variants_differ_though_their_first_draws_are_the_same(tmp_path):
    few = parse_template(QUIZ.replace("from: 1.1, to: 2.4, step: 0.1", "from: 1, to: 6").replace("to: 36000", "to: 76"))
    (told,) = writing.export(few, ("gradescope",), 24, "7", tmp_path, processes=1)  # all 24 combinations are needed
    items = draw_items(few, "7", 24)
    assert len({item.blocks for item in items if item.id == "peak"}) == 24
    assert EXPORTERS["gradescope"].files("Quiz", items)["gradescope.csv"] == told.path.read_bytes()
    with pytest.raises(DocumentError, match="25 students cannot have papers of their own: the draws give 24"):
        writing.export(few, ("gradescope",), 25, "7", tmp_path, processes=1)


def test_an_exporter_of_a_teacher_gets_what_it_made_of_each_item_question_by_question(quiz, tmp_path, monkeypatch):
    mine = Exporter("mine", "names", lambda title, item: item.name,
                    lambda title, pieces: {"mine.txt": " ".join(pieces).encode()})  # fmt: skip
    monkeypatch.setitem(EXPORTERS, "mine", mine)
    (told,) = writing.export(quiz, ("mine",), 2, "7", tmp_path)
    assert told.path.read_text() == "peak_v0001 peak_v0002 formula_v0001 formula_v0002"


def test_variants_of_other_parts_share_no_page_and_the_question_is_pointed_at(tmp_path):
    other = parse_template(OTHER_PARTS, "other.md")
    with pytest.raises(DocumentError, match="formula: its variants have other parts, and share one page") as caught:
        writing.export(other, ("prairielearn",), 5, "7", tmp_path, processes=1)
    assert caught.value.span is not None
    assert caught.value.span.place == "other.md:6"
    assert not [*tmp_path.glob("prairielearn/**/*.py")]


def test_numbers_share_a_page_whatever_mistakes_are_known_in_each_variant(tmp_path):
    sums = parse_template(SUM, "sum.md")
    items = draw_items(sums, "7", 12)
    assert len({tuple(one.names for one in item.parts[0].recognised) for item in items}) > 1
    writing.export(sums, ("prairielearn",), 12, "7", tmp_path, processes=1)
    assert (tmp_path / "prairielearn/sum/question.html").read_text().count("<pl-number-input") == 1


@pytest.mark.parametrize("data", [b"", b"one two " * 3_000])
def test_a_zip_file_of_packed_files_is_the_one_that_python_writes(data):
    files = {"b.xml": data, "a.xml": b"<a />", "folder/ä.svg": b"\x00" * 70_000}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.create_system, entry.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            archive.writestr(entry, files[name])
    sent = pickle.loads(pickle.dumps([packed(name, data) for name, data in files.items()]))  # from another process
    assert zipped(sent) == out.getvalue()


def test_what_a_template_is_given_ends_neither_an_element_nor_an_attribute():
    hostile = "]]> <b a='1'> \"x\" & &amp; {{ 1 }} << 1 >>"
    made = ElementTree.fromstring(fill_export("qti12.xml.jinja", title=hostile, groups=[]))
    assert made[0].get("title") == hostile
    assert (
        ElementTree.fromstring(fill_export("category.xml.jinja", path=hostile)).findtext(".//text")
        == f"$course$/{hostile}"
    )


@pytest.mark.parametrize(("language", "told"), [("fr", "English: there are none in 'fr'"), ("de", "")])
def test_an_export_in_a_language_without_words_tells_that_ours_are_english(language, told, tmp_path):
    file = tmp_path / "quiz.md"
    file.write_text(QUIZ.replace("title: Quiz", f"title: Quiz\nlanguage: {language}"), encoding="utf-8")
    made = CliRunner().invoke(main, ["exam", str(file), "--variants", "1", "--to", "moodle", "-o", str(tmp_path)])
    assert made.exit_code == 0, made.output
    assert told in made.stderr
    assert ("note:" in made.stderr) == bool(told)
