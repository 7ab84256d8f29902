"""What an answer is called and how a paper asks for it follow from its quantity and options, in every language."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml
from api import QUANTITIES, TEMPLATES, Document, page, parse_problem, questions, solve, source

import symcomm as sc

ROOT = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(p for p in ROOT.glob("**/*.md") if "```symcomm\n" in p.read_text(encoding="utf-8"))
LANGUAGES = {p.stem: yaml.safe_load(p.read_text(encoding="utf-8")) for p in (TEMPLATES / "questions").glob("*.yaml")}
LAYER = "| Computation | Input | Output |\n|---|---|---|\n| $y = x W$ | x [B, D], W [D, F] | y [B, F] |\n\n"
MODEL = "```symcomm\nmodel: layer\n```\n\n"


def document(asks: str, language: str = "en", words: str = "") -> Document:
    return solve(
        parse_problem(f"---\nlanguage: {language}\n---\n# 1 Task\n\n{words}\n\n{LAYER}{MODEL}```symcomm\n{asks}```\n")
    )


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_quantity_has_a_row_in_every_language_with_a_heading_and_a_sentence_why(language: str) -> None:
    rows = LANGUAGES[language]["rows"]
    named = {key.split(" ")[0] for key in rows}
    assert named <= {*QUANTITIES}
    assert len({*QUANTITIES} - named) <= 8, "a new quantity is called by its title until it has a row"
    assert {*rows} == {*LANGUAGES["en"]["rows"]}
    for key, text in rows.items():
        heading, question, why = (part.strip() for part in text.split("|"))
        assert heading, key
        assert why[-1:] in (".", "。"), key
        assert question[-1:] == "?" if language == "en" else not question, key
        assert max(len(sentence.split()) for sentence in (question, why)) <= 25, key


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_the_choices_of_a_row_are_choices_of_its_quantity_or_conventions(language: str) -> None:
    conventions = {"sent_per_rank", "all_links", "algbw", "busbw"}
    for key, text in LANGUAGES[language]["rows"].items():
        name, *choices = key.split(" ")
        options = {option.name: option for option in QUANTITIES[name].options}
        assert {*choices} <= {c for option in options.values() for c in option.choices} | conventions, key
        assert {*re.findall(r"\{(\w+)\}", text)} <= {*options, "kinds"}, key


def test_a_block_without_a_question_is_asked_for_by_its_quantity_and_options() -> None:
    ask = "ask: communication\nstrategy: fsdp(4)\naccounting: sent_per_rank\n"
    wanted = "How many bytes does one GPU send in a training step under FSDP on 4 GPUs?"
    assert wanted in source(document(ask), "md", edition="paper")
    assert wanted not in source(document(ask, words="What does a GPU send?"), "md", edition="paper")
    assert wanted not in source(document(ask), "md")
    assert wanted in source(document(ask), "html", edition="paper")


def test_a_question_in_words_asks_for_what_stands_below_it_up_to_the_next_words() -> None:
    asks = "```symcomm\n- ask: parameters\n- ask: flops\n```\n\nThen:\n\n```symcomm\nask: traffic\n```\n"
    text = f"# 1\n\nHow many?\n\n{LAYER}{MODEL}{asks}"
    assert [answer.unasked for answer in solve(parse_problem(text)).answers()] == [False, False, True]


@pytest.mark.parametrize(("language", "said"), [("de", "Gesucht: Zahl der Parameter."), ("zh", "求：参数量。")])
def test_a_question_is_asked_in_the_language_of_the_document(language: str, said: str) -> None:
    assert said in source(document("ask: parameters\n", language), "md", edition="paper")


def test_the_numbers_that_a_question_needs_stand_beside_it() -> None:
    text = source(document("ask: parameters\ngiven: {D: 3, F: 5}\n"), "md", edition="paper")
    assert "Given: $D = 3$, $F = 5$." in text


def test_what_has_no_row_is_called_by_its_title() -> None:
    made = sc.solve(sc.read_problem(ROOT / "own-worksheet" / "homework.md"))
    assert questions("en").row([*made.answers()][:1]).heading == "Share of the time that is lost"


@pytest.mark.few(3)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_no_two_answers_of_an_example_have_one_heading(path: Path) -> None:
    made = sc.solve(sc.read_problem(path))
    headings = [str(block.answer.label) for block in page(made, "md").blocks if block.answer]
    assert [heading for heading, times in Counter(headings).items() if times > 1 or not heading] == []
    paper = [block.text for block in page(made, "md", "paper").blocks if block.kind in ("prose", "heading")]
    assert any(re.search(r"[?]|\b(?:Draw|Find|Give)\b", str(text)) for text in paper)
