"""Pages in the language of their document: every sentence of ours is translated, or told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import symcomm as sc
from symcomm.cli import main
from symcomm.plots.drawing import Sketch
from symcomm.render import source
from symcomm.render.catalogue import Catalogue
from symcomm.render.environment import TEMPLATES
from symcomm.render.view import page

EXAMPLES = Path(__file__).parents[2] / "examples"
WHOLE = ("comp4901y-homework2/homework.md", "zero-table/zero.md", "professor/quiz.md")  # read fully in every language
LANGUAGES = {p.stem: yaml.safe_load(p.read_text(encoding="utf-8")) for p in (TEMPLATES / "languages").glob("*.yaml")}
OTHERS = sorted({*LANGUAGES} - {"en"})


def catalogue(language: str) -> Catalogue:
    said = LANGUAGES[language]
    return Catalogue(said["sentences"], said["pieces"], decimal=said["decimal"])


@pytest.mark.parametrize("example", WHOLE)
def test_no_sentence_of_these_examples_stays_english(example: str) -> None:
    document = sc.solve(sc.read_problem(EXAMPLES / example))
    for language in OTHERS:
        say = catalogue(language)
        page(replace(document, language=language), "md", say=say)
        assert [*say.missing] == []


@pytest.mark.long
def test_the_sentences_of_all_examples_that_are_not_translated_do_not_grow() -> None:
    say, found = Catalogue({"\0": ""}), catalogue("de")
    for path in sorted(EXAMPLES.glob("*/*.md")):
        if "```symcomm\n" in path.read_text(encoding="utf-8") and path.name != "checkpoints.md":
            document = sc.solve(sc.read_problem(path))
            for one in (say, found):
                page(document, "md", say=one)
    assert len(found.missing) < len(say.missing)
    assert len(found.missing) <= MOST, "\n".join(found.missing)


MOST = 329  # sentences of all examples; a translated one makes it less


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_holes_of_its_pattern(language: str) -> None:
    english = {*LANGUAGES["de"]["sentences"]}
    assert {*LANGUAGES[language]["sentences"]} == english  # what one language has, the others have
    for kind in ("sentences", "pieces"):
        for pattern, told in LANGUAGES[language][kind].items():
            assert len(re.findall(r"\{\d*\}", pattern)) == len(re.findall(r"\{\d*\}", told)), pattern
    assert {*LANGUAGES["en"]} <= {*LANGUAGES[language]}


def test_a_hole_is_translated_too_and_may_change_its_place() -> None:
    say = Catalogue({"{} of {}.": "{1}s {0}."}, {"{} and {}": "{} und {}", "weight": "Gewicht"})
    assert say("`a` and weight of `B`.") == "`B`s `a` und Gewicht."
    assert say("`a` of `B`. A sentence that nobody knows.") == "`B`s `a`. A sentence that nobody knows."
    assert [*say.missing] == ["A sentence that nobody knows."]


def test_numbers_are_written_as_the_language_writes_them_and_names_are_not_touched() -> None:
    say = Catalogue({"x": "x"}, decimal=",")
    assert say("12.88 GB of `W_1.5` in 0.5 s") == "12,88 GB of `W_1.5` in 0,5 s"
    document = replace(sc.solve(sc.read_problem(EXAMPLES / WHOLE[0])), language="de")
    assert r"12{,}88\ \text{GB}" in source(document, "md")
    assert '12","88' in source(document, "typ")
    assert "<mn>12,88</mn>" in source(document, "html")
    assert ">Spalten<" in source(document, "html")
    assert ">columns<" not in source(document, "html")


def test_what_is_drawn_is_said_in_the_language() -> None:
    drawing = Sketch(100, 20)
    drawing.line(0, 0, 9, 9)
    drawing.text(5, 5, "rank 3")
    told = drawing.said(Catalogue({"rank {}": "Rang {}"}))
    assert b">Rang 3<" in told.svg()
    assert b">rank 3<" in drawing.svg()
    assert len(told.parts) == len(drawing.parts)


def test_a_sentence_without_translation_is_told_once(tmp_path: Path) -> None:
    text = "---\nlanguage: de\n---\n```symcomm\nask: pipeline_time\ngiven: {p: 4, m: 8}\n```\n"
    (tmp_path / "t.md").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["solve", str(tmp_path / "t.md"), "--to", "md", "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert result.output.count("no translation into 'de' of") == 1
    result = CliRunner().invoke(main, ["solve", str(EXAMPLES / WHOLE[2]), "--to", "md", "-o", str(tmp_path / "out")])
    assert "no translation" not in result.output
