"""``sc.grade``: what ``symcomm grade`` does, from Python, with tables for a notebook."""

import sys
from pathlib import Path

import pytest
from api import DocumentError

import symcomm as sc

QUIZ = """---
title: Quiz
draw: {f: {from: 1.1, to: 1.4, step: 0.1, unit: GHz}}
---

# Peak rate (5 points)

```symcomm
ask: peak_rate
id: peak
given: {f: {{ f }}, n_SM: 100 SM, n_FMA: 512 FMA/clock/SM}
```
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "quiz.md").write_text(QUIZ)
    (tmp_path / "roster.csv").write_text("id,name\ns1,Anna\ns2,Ben\ns3,=1+1\n")
    (tmp_path / "answers.csv").write_text('id,peak\ns1,2 f n_SM n_FMA\ns2,f n_SM n_FMA\ns3,"24 12 f"\n')
    return tmp_path


def test_a_class_is_graded_from_python_and_shown_as_tables(folder):
    grades = sc.grade(folder / "quiz.md", str(folder / "answers.csv"), roster=folder / "roster.csv", seed=7)
    assert [float(grades.points(name)) for name in ("s1", "s2", "s3")] == [5, 2.5, 0]
    assert "<table>" in grades._repr_html_()
    pytest.importorskip("pandas")
    students = grades.frame()
    assert list(students["id"]) == ["s1", "s2", "s3"]
    assert list(students["points"]) == [5, 2.5, 0]
    assert students["name"][2] == "'=1+1"  # as it is written, so that no spreadsheet runs it
    (row,) = grades.frame("questions").to_dict("records")
    assert (row["question"], row["answers"], row["right"], row["average"]) == ("peak", 3, 1, 2.5)
    (look,) = grades.frame("look at").to_dict("records")
    assert (look["answer"], look["verdict"], look["students"]) == ("24 12 f", "unreadable", "s3")


def test_what_is_missing_is_said(folder, monkeypatch):
    with pytest.raises(DocumentError, match=r"say which papers: keys \(out/keys.json\)"):
        sc.grade(folder / "quiz.md", folder / "answers.csv")
    with pytest.raises(DocumentError, match="no paper was made for s1"):
        sc.grade(folder / "quiz.md", folder / "answers.csv", variants=2)
    grades = sc.grade(folder / "quiz.md", folder / "answers.csv", roster=folder / "roster.csv")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(DocumentError, match="pandas is missing"):
        grades.frame()
