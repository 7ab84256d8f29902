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
    conventions = {"sent_per_rank", "all_links", "algbw", "busbw", "host"}  # the last a level of any network
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


def test_a_paper_names_the_level_and_the_links_over_which_bytes_are_asked_for() -> None:
    links = "node=8, inside=900 GB/s, between=50 GB/s"
    ask = f"ask: communication\nstrategy: data(64)\nlevel: between\nlinks: {links}\naccounting: sent_per_rank\n"
    paper = source(document(ask), "md", edition="paper")
    assert "over level between" in paper
    assert "(links: node=8, inside=900 GB/s and between=50 GB/s)?" in paper
    pod = ask.replace("between\nlinks: " + links, "pod\ndevice: DGX-H100")
    assert "over level pod of DGX-H100 in a training step" in source(document(pod), "md", edition="paper")
    for language in ("de", "zh"):
        assert "node=8" in source(document(ask, language), "md", edition="paper")
        assert "DGX-H100" in source(document(pod, language), "md", edition="paper")
    copies = "ask: communication\nstrategy: data(64)\nlevel: host\naccounting: {offloading: states_on_host}\n"
    assert "How many bytes does one GPU copy to its host and back" in source(document(copies), "md", edition="paper")


def test_experts_on_few_nodes_are_called_so_in_every_language() -> None:
    told = {language: questions(language)._said("strategy", "Expert on 4 nodes: 64") for language in LANGUAGES}
    assert told["en"] == "expert parallelism (nodes per token: at most 4) on 64 GPUs"
    assert all("4" in text and "64" in text and "Expert on" not in text for text in told.values())


def test_an_example_for_authors_does_not_stand_beside_a_given_number() -> None:
    ask = "ask: speculative_decoding\nacceptance: 0.85\ndrafts: 2\n"
    meanings = {"en": "a draft is accepted)", "de": "angenommen wird)", "zh": "一个草稿被接受的概率)"}
    for language, meaning in meanings.items():
        made = source(document(ask, language), "md")
        assert meaning in made
        assert "4/5" not in made


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


def test_a_million_parameters_are_many_though_the_number_begins_with_a_one() -> None:
    made = source(document("ask: parameters\ngiven: {D: 1024, F: 1024}\n"), "md")
    assert re.search(r"1\D*048\D*576\D*parameters", made)
    assert re.search(r"= 1\D*parameter\b", source(document("ask: parameters\ngiven: {D: 1, F: 1}\n"), "md"))


def test_a_long_text_in_a_table_of_a_page_has_room_and_a_caption_is_no_column_on_a_phone() -> None:
    made = source(solve(parse_problem((ROOT / "cluster" / "cluster.md").read_text(encoding="utf-8"))), "html")
    assert '<td class="long">bytes of all ranks</td>' in made
    assert '<td class="long reason">' in made
    assert "td.long { min-width:" in made
    assert "table.layers caption { display: block; }" in made


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
