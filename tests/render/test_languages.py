"""Pages in the language of their document: every sentence of ours is translated, or told."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
import yaml
from api import (
    MISTAKES,
    SENTENCES,
    TEMPLATES,
    Answer,
    Catalogue,
    Exhibit,
    Kind,
    Notation,
    PageWriter,
    Quantity,
    RenderError,
    Sketch,
    Unit,
    Words,
    built_in,
    figure,
    main,
    page,
    said,
    schedules_schedules,
    source,
    table_view,
)
from api import accounting_CONVENTIONS as CONVENTIONS
from api import figure_written as written
from api import words_words as words
from click.testing import CliRunner

import symcomm as sc

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
WHOLE = ("comp4901y-homework2/homework.md", "zero-table/zero.md", "professor/quiz.md")  # read fully in every language
EVERY = [path for path in sorted(EXAMPLES.glob("*/*.md"))
         if "```symcomm\n" in path.read_text(encoding="utf-8") and path.name != "checkpoints.md"]  # fmt: skip
SAME = ("softmax", "einsum", "Python", "FLOPs", "data")  # the same word in every language, and the name of an axis
LANGUAGES = {p.stem: yaml.safe_load(p.read_text(encoding="utf-8")) for p in (TEMPLATES / "languages").glob("*.yaml")}
OTHERS = sorted({*LANGUAGES} - {"en"})
ENGLISH = yaml.safe_load((TEMPLATES / "sentences.yaml").read_text(encoding="utf-8"))


def catalogue(language: str) -> Catalogue:
    said = words(language).catalogue
    return Catalogue(said.sentences, said.pieces, decimal=said.decimal)


@pytest.mark.parametrize("example", WHOLE)
def test_no_sentence_of_these_examples_stays_english(example: str) -> None:
    document = sc.solve(sc.read_problem(EXAMPLES / example))
    for language in OTHERS:
        say = catalogue(language)
        page(replace(document, language=language), "md", say=say)
        assert [*say.missing] == []


@pytest.mark.long
@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.stem)
def test_no_example_has_a_sentence_or_a_heading_of_a_table_that_stays_english(path: Path, language: str) -> None:
    document = sc.solve(sc.read_problem(path))
    say = catalogue(language)
    for detail in ("normal", "full"):
        page(replace(document, language=language, detail=detail), "html", say=say)
    assert [*say.missing] == []
    exhibits = [e for block in document.blocks if isinstance(block, Answer) for e in block.derivation.exhibits]
    for heading in {text for e in exhibits for text in (e.title, *e.columns) if re.search("[a-z]{4}", text)}:
        if "`" not in heading and heading not in SAME:
            assert say(heading) != heading


@pytest.mark.parametrize("language", OTHERS)
def test_conventions_mistakes_and_worksheets_are_translated(language: str) -> None:
    say = catalogue(language)
    sheets = [sheet.read for sheet in built_in().values()]
    lines = [line for read in sheets for line in (*read.lines, *(x for q in read.questions for x in q.lines))]
    notes = [note for read in sheets for q in read.questions for note in (*q.notes, *(c.text for c in q.claims))]
    texts = [
        *(row.statement for row in CONVENTIONS),
        *(mistake.says for mistake in MISTAKES),
        *(line.reason for line in lines),
        *(symbol.meaning for read in sheets for symbol in read.symbols.values()),
        *(text.replace("{a}", "1/2") for text in notes if text.endswith(".")),
    ]
    assert len(texts) > 200
    assert [text for text in texts if text and say(text) == text] == []
    assert [*say.missing] == []
    stop = {"de": ".", "zh": "。"}[language]
    assert say("You left out the backward pass.").removesuffix(stop) in say("You left out the backward pass (≈ 3 GiB)")


@pytest.mark.parametrize("language", OTHERS)
def test_notes_on_what_does_not_fit_a_device_are_translated(language: str) -> None:
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
        "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 128256,
    }  # fmt: skip
    model, say = sc.load(config, dtype="bf16"), catalogue(language)
    for strategy, batch in ((None, 1), ("tensor(8)", 256)):  # the weights; a cache of 85.9 GB a rank
        [note] = [n for n in model.at(B=batch, c=8192).decode_time(strategy, device="H100-SXM").notes if "H100" in n]
        assert "GB" in say(note)
        assert "cannot run" not in say(note)
    assert [*say.missing] == []


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_holes_of_its_pattern(language: str) -> None:
    for kind in ("sentences", "pieces"):
        assert LANGUAGES[language][kind].keys() == ENGLISH[kind].keys()  # each hangs on an id of ours
        for key, told in LANGUAGES[language][kind].items():
            pattern = ENGLISH[kind][key]
            holes = re.findall(r"\{\d*\}", pattern)
            assert len(holes) == len(re.findall(r"\{\d*\}", told)), pattern
            marks = [f"<{n}>" for n, _ in enumerate(holes)]
            assert all(mark in told.format(*marks) for mark in marks), pattern
    assert {*LANGUAGES["en"]} <= {*LANGUAGES[language]}


@pytest.mark.parametrize("language", OTHERS)
def test_every_sentence_with_an_id_has_a_translation_of_that_id(language: str) -> None:
    assert all([schedules_schedules(), built_in(), MISTAKES])  # whoever says a sentence has brought its table
    ids = {table: {*texts()} for table, texts in SENTENCES.items()}
    assert ids.keys() == {"conventions", "mistakes", "schedules", "worksheets"}
    assert {table: ids[table] ^ {*LANGUAGES[language]["by_id"][table]} for table in ids} == {
        table: set() for table in ids
    }


def test_a_reworded_sentence_keeps_its_translation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = words("de").catalogue("You left out the gradients.")
    assert before != "You left out the gradients."
    reworded = dict(SENTENCES["mistakes"]()) | {"gradients_forgotten": "You forgot the gradients of `W` and `V`."}
    monkeypatch.setitem(SENTENCES, "mistakes", lambda: reworded)
    own = {"gradients_forgotten": "Zu `V` und `W` fehlen Gradienten."}
    assert (
        own_words(tmp_path, own).catalogue("You forgot the gradients of `a` and `b`.")
        == "Zu `b` und `a` fehlen Gradienten."
    )
    monkeypatch.setitem(SENTENCES, "mistakes", lambda: reworded | {"gradients_forgotten": "You forgot them."})
    assert own_words(tmp_path / "2", {}).catalogue("You forgot them.") == before
    with pytest.raises(RenderError, match=r"'Zu `V`' has other names than 'You forgot them\.'"):
        own_words(tmp_path / "3", {"gradients_forgotten": "Zu `V`"})
    with pytest.raises(RenderError, match=r"de\.yaml: mistakes have no 'gradient_forgotten'") as refused:
        own_words(tmp_path / "4", {"gradient_forgotten": "x"})
    assert "'gradients_forgotten'" in str(refused.value.hint)


SOURCES = [path for kind in ("py", "md", "yaml", "ws") for path in (ROOT / "symcomm").rglob(f"*.{kind}")]
COMPOSED = 52  # rows with a phrase that the code puts together from more than two parts; may only become fewer


def spelled(text: str) -> str:
    """The words of a text with a mark for each hole or name, one space between two."""
    plain = re.sub(r"\{[^{}]*\}|`[^`]*`", "{}", text).lower()
    return " ".join(re.findall(r"\{\}|[^\W_]+(?:['’.-][^\W_]+)*", plain))


@cache
def printed() -> str:
    """All strings of the source, a line each."""
    literals = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            nodes = [*ast.walk(ast.parse(text))]
            inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
            literals += [literal(node) for node in nodes if id(node) not in inner]
        else:
            literals.append(text)
    literals.append((TEMPLATES / "questions" / "en.yaml").read_text(encoding="utf-8"))
    return "\n".join(f" {spelled(text)} " for text in literals if text)


def literal(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return ""


def said_by_the_source(phrase: str) -> bool:
    """Whether the words of a phrase follow one another in the source, whole or as two parts."""
    parts = phrase.split()
    return any(
        all(f" {' '.join(part)} " in printed() for part in (parts[:n], parts[n:]) if part) for n in range(len(parts))
    )


def unsaid(rows: Mapping[str, str]) -> list[str]:
    """The ids of rows with a phrase that no source says; holes and punctuation end a phrase."""
    return [
        key
        for key, text in rows.items()
        if not all(map(said_by_the_source, filter(None, map(spelled, re.split(r"\{\d*\}|[.,:;()]", text)))))
    ]


def test_a_sentence_that_is_reworded_in_the_code_is_reworded_in_its_row() -> None:
    rows = {key: text for kind in ("sentences", "pieces") for key, text in ENGLISH[kind].items()}
    assert len(rows) > 1700
    assert len(unsaid(rows)) <= COMPOSED, unsaid(rows)
    reworded = {
        "a": "Each bucket contains the same share of the bytes.",
        "b": "{} calls of {}, due to the gradients of {}.",
    }
    assert unsaid(reworded) == ["a", "b"]
    assert unsaid({"a": "Each bucket holds the same share of the bytes."}) == []


def test_a_translation_hangs_on_the_id_of_our_sentence_or_on_a_pattern_of_ones_own(tmp_path: Path) -> None:
    entry = {"older_versions_of_weights": "Gleich viel.", "Nobody knows {}.": "Niemand kennt {}."}
    (tmp_path / "languages").mkdir()
    file = tmp_path / "languages" / "de.yaml"
    file.write_text(yaml.safe_dump({"sentences": entry}, allow_unicode=True), encoding="utf-8")
    say = words("de", tmp_path).catalogue
    assert say("Older versions of weights. Nobody knows `x`.") == "Gleich viel. Niemand kennt `x`."
    file.write_text("sentences: {older_versions_of_weight: x}", encoding="utf-8")
    with pytest.raises(
        RenderError, match=r"de\.yaml: no sentence has the id 'older_versions_of_weight'"
    ) as told:
        words("de", tmp_path / "languages" / "..")
    assert "older_versions_of_weights" in str(told.value.hint)


def own_words(folder: Path, mistakes: dict[str, str]) -> Words:
    (folder / "languages").mkdir(parents=True)
    entry = yaml.safe_dump({"by_id": {"mistakes": mistakes}})
    (folder / "languages" / "de.yaml").write_text(entry, encoding="utf-8")
    return words("de", folder)


def test_a_hole_is_translated_too_and_may_change_its_place() -> None:
    say = Catalogue({"{} of {}.": "{1}s {0}."}, {"{} and {}": "{} und {}", "weight": "Gewicht"})
    assert say("`a` and weight of `B`.") == "`B`s `a` und Gewicht."
    assert say("`a` of `B`. A sentence that nobody knows.") == "`B`s `a`. A sentence that nobody knows."
    assert [*say.missing] == ["A sentence that nobody knows."]


def test_of_a_list_each_thing_is_translated_by_itself() -> None:
    say = Catalogue({"Kept: {}.": "保留：{}。"}, {"{}; {}": "{}；{}", "{} for {}": "为 {1} 留 {0}", "{}, {}": "{}、{}"})
    assert say("Kept: `a` for `b`; `c` for `d`, `e`.") == "保留：为 `b` 留 `a`；为 `d`、`e` 留 `c`。"


def test_the_most_literal_pattern_counts_and_a_label_is_translated_wholly_or_not_at_all() -> None:
    say = Catalogue({"Rows are cut.": "Zeilen geteilt.", "{} are cut.": "{}: geteilt."}, {"{} and {}": "{} und {}"})
    assert say("Rows are cut.") == "Zeilen geteilt."
    assert say("rows are cut") == "Zeilen geteilt"
    assert say("`x` and `y` are cut.") == "`x` und `y`: geteilt."
    assert say("a word of mine and another of mine") == "a word of mine and another of mine"
    assert say("`x`: Rows are cut.") == "`x`: Zeilen geteilt."


def test_what_only_looks_like_a_decimal_keeps_its_point() -> None:
    say = catalogue("de")
    assert say("Source: Kalamkar et al., arXiv 1905.12322.") == "Quelle: Kalamkar et al., arXiv 1905.12322."
    assert say("A paper (version 1.04), section 2.2.2") == "A paper (version 1.04), section 2.2.2"
    assert say("Set bucket_cap_mb=12.5.") == "bucket_cap_mb=12.5 setzen."
    assert say("0.5 s and 1.5 GB") == "0,5 s und 1,5 GB"


def test_a_long_text_that_nearly_fits_takes_no_long_time_and_a_hole_alone_ends() -> None:
    say = Catalogue({"{} of {} of {} of {} is {} is {}.": "{} {} {} {} {} {}."}, {"{}": "{}!"})
    text = "a" + " of b is c" * 3000 + " of"
    assert say(text) == text
    assert say("a of b of c of d is e is f.") == "a! b! c! d! e! f!."


@pytest.mark.parametrize(
    ("pattern", "told"),
    [("{} of {}.", "{}."), ("{} of {}.", "{} {1}."), ("{} of {}.", "{0} {2}."), ("{}.", "{0.x}."), ("All.", "{x}")],
)
def test_a_translation_with_other_holes_than_its_pattern_is_refused(tmp_path: Path, pattern: str, told: str) -> None:
    (tmp_path / "languages").mkdir()
    entry = yaml.safe_dump({"decimal": ",", "sentences": {pattern: told}})
    (tmp_path / "languages" / "xx.yaml").write_text(entry, encoding="utf-8")
    with pytest.raises(RenderError, match="has other holes than") as refused:
        words("xx", tmp_path)
    assert refused.value.hint == "as many {} as there, or {1} and {0} in another order"


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


def test_a_figure_of_matplotlib_has_its_words_and_numbers_in_the_language_only_while_it_is_written() -> None:
    made = figure()
    axes = made.add_subplot()
    axes.plot([0, 1], [0, 1.5], label="best whole number, 26")
    axes.set_xlabel("number of buckets $n_b$")
    axes.set_ylabel("time (s)")
    axes.legend()
    before = written(made, "svg")
    with said(made, catalogue("de")):
        made.canvas.draw()
        assert axes.get_xlabel() == "Zahl der Buckets $n_b$"
        assert axes.get_ylabel() == "Zeit (s)"
        assert axes.get_legend().get_texts()[0].get_text() == "beste ganze Zahl, 26"
        assert "0,4" in [tick.get_text() for tick in axes.get_yticklabels()]
    with said(made, catalogue("zh")):
        assert axes.get_ylabel() == "time (s)"  # its fonts need not have the signs
    assert written(made, "svg") == before


@pytest.mark.parametrize("kind", ["md", "html", "typ"])
def test_a_number_has_the_word_of_its_unit_in_the_language(kind: Kind) -> None:
    count = Quantity(Fraction(1234), Unit.parse("token/parameter"))
    for language, told in (("de", "Token/Parameter"), ("zh", "词元/参数")):
        writer = PageWriter(kind, Notation(), catalogue(language))
        assert told in writer.stated("x", count)
    assert "tokens/parameter" in PageWriter(kind, Notation()).stated("x", count)
    assert catalogue("de")("≈ 17 tokens/parameter") == "≈ 17 Token/Parameter"


def test_columns_are_as_wide_as_their_words_in_the_language() -> None:
    made = Exhibit("", ("a", "b"), (("1", "2"),))
    long = Catalogue({"a": "einunglaublichlangeswort"})
    plain, told = (table_view(made, PageWriter("typ", Notation(), say)).shares for say in (str, long))
    assert plain[0] == plain[1]
    assert told[0] > 2 * told[1]


def test_a_sentence_without_translation_is_told_once(tmp_path: Path) -> None:
    sheet = "# Area\n\n## Symbols\n\n- a [count]: a side\n\n## Lines\n\n- A := a^2\n"
    sheet += "  square: Nobody knows this one.\n  run: loops(a, a)\n"
    (tmp_path / "own.md").write_text(sheet, encoding="utf-8")
    text = "---\nlanguage: de\n---\n```symcomm\nworksheet: own.md\nask: A\ngiven: {a: 4}\n```\n"
    (tmp_path / "t.md").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["solve", str(tmp_path / "t.md"), "--to", "md", "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert result.output.count("no translation into 'de' of") == 1
    result = CliRunner().invoke(main, ["solve", str(EXAMPLES / WHOLE[2]), "--to", "md", "-o", str(tmp_path / "out")])
    assert "no translation" not in result.output
