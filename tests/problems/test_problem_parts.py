"""Models of several parts in a problem file, and printed numbers beside derived ones."""

import re

import pytest
from api import DocumentError, Model, SymcommError, load_model, parse_problem, solve, source

HEAD = "| Computation | Input | Output |\n|---|---|---|\n"
FILE = (
    HEAD
    + "| $x = q A$ | $q \\in R^{T \\times D}, A \\in R^{D \\times D}$ | $x \\in R^{T \\times D}$ |\n"
    + "| $h = x$ | $x \\in R^{T \\times D}$ | $h \\in R^{T \\times D}$ |\n"
    + "| $y = h C$ | $C \\in R^{D \\times D}$ | $y \\in R^{T \\times D}$ |\n"
    + "\n```symcomm\nmodel: ends\nlayers_before: h\nvalues: {D: 8}\ndtype: fp32\n```\n\n"
    + HEAD
    + "| $y = x W$ | $x \\in R^{T \\times D}, W \\in R^{D \\times D}$ | $y \\in R^{T \\times D}$ |\n"
    + "\n```symcomm\n- model: layer\n  repeat: N\n  dtype: fp32\n  values: {D: 8, N: 3}\n"
    + "- model: whole\n  parts: [ends, layer]\n  values: {T: 1000}\n```\n"
)


def file(*asks: str) -> str:
    return FILE + "".join(f"\n## Question {n}\n\n```symcomm\n{ask}\n```\n" for n, ask in enumerate(asks))


def answers(*asks: str):
    return [*solve(parse_problem(file(*asks), "parts.md")).answers()]


def test_a_model_of_parts_has_the_sums_and_the_peak_of_its_parts():
    parameters, states, peak = answers(
        "ask: parameters", "ask: state_memory\nrecipe: fp32_sgd", "ask: peak_memory\nrecipe: fp32_sgd"
    )
    assert parameters.quantity.value == 5 * 64
    assert states.quantity.value == 8 * 5 * 64
    assert peak.quantity.value == 6 * 256 + 7 * 32000  # as counted in the tests of peaks
    assert isinstance(load_model(parse_problem(FILE)), Model)


def test_printed_numbers_stand_beside_derived_ones_in_one_table_for_each_heading():
    first, second, third = answers(
        "- ask: parameters\n  label: All\n  printed: 320\n"
        "- ask: state_memory\n  label: States\n  recipe: fp32_sgd\n  printed: 3.0 kB",
        "ask: state_memory\nrecipe: fp32_adam\nprinted: 5.1 kB",
    )
    assert first.derivation.exhibits == ()
    [table] = second.derivation.exhibits
    assert table.rows == (
        ("All", "320 parameters", "320 parameters", "none, to the last printed digit"),
        ("States", "3 kB", "2.6 kB", "440 B (+17 %)"),
    )
    # 5120 B are 5.1 kB to the digits that are printed.
    assert third.derivation.exhibits[0].rows[0][-1] == "none, to the last printed digit"


@pytest.mark.parametrize("kind", ["md", "html", "tex"])
def test_every_format_shows_the_table(kind):
    text = source(solve(parse_problem(file("ask: parameters\nlabel: All\nprinted: 321"), "parts.md")), kind)
    assert "Printed and derived" in text
    assert re.search(r"1 parameter \(\+0\.31", text.replace("\\", "").replace("~", " "))


MISTAKES = [
    (
        FILE.replace("parts: [ends, layer]", "parts: [ends, layre]"),
        "layre",
        "no model before this one is called 'layre'",
    ),
    (
        FILE.replace("parts: [ends, layer]", "parts: [ends]"),
        "[ends]",
        "a model of parts has two or more different ones",
    ),
    (FILE.replace("parts: [ends, layer]", "parts: [ends, ends]"), "[ends, ends]", "two or more different ones"),
    (FILE.replace("parts: [ends, layer]", "parts: [ends, layer]\n  repeat: N"), "repeat", "unknown key 'repeat'"),
    (FILE.replace("layers_before: h", "layers_before: k"), "[ends, layer]", "no row of ends computes 'k'"),
    (FILE.replace("N: 3", "N: 3, T: 5"), "1000", "T is 1000 here, but 5"),
    (file("ask: parameters\nprinted: many"), "many", "'many' is not a number with a unit"),
    (file("ask: parameters\nprinted: 3 s"), "3 s", "the printed number is in s, but the derived one in parameter"),
    (file("ask: state_memory\nstrategy: zero-1(k)\nprinted: 3 B"), "3 B", "which needs a value for k"),
]


@pytest.mark.parametrize(("text", "word", "message"), MISTAKES, ids=[m for _, _, m in MISTAKES])
def test_mistakes_are_shown_where_they_stand(text, word, message):
    with pytest.raises(SymcommError) as caught:
        solve(parse_problem(text, "parts.md"))
    assert message in str(caught.value)
    assert caught.value.span is not None
    assert caught.value.span.word == word


def test_a_printed_number_of_days_or_hours_is_compared_with_derived_days():
    # 10^12 tokens at 6 · 64 · 64 operations, at half of 10^12 a second: 49 152 s, which are 0.569 days or 13.65 hours.
    table = "| Computation | Input | Output |\n|---|---|---|\n| $h = xW$ | x [B, D], W [D, F] | h [B, F] |\n"
    ask = "budget: 1e12 tokens\npeak: 1 TFLOP/s\nmemory: 1 PB/s\nutilisation: 50 %\nask: throughput\nof: days"
    for printed in ("0.57 days", "13.7 h"):
        text = f"---\ntitle: T\n---\n{table}\n```symcomm\nmodel: m\nvalues: {{B: 8, D: 64, F: 64}}\n```\n"
        text += f"\n```symcomm\n{ask}\nprinted: {printed}\n```\n"
        [answer] = solve(parse_problem(text, "days.md")).answers()
        [row] = answer.derivation.exhibits[-1].rows
        assert row[-1] == "none, to the last printed digit", row


# -- one answer over another one's ------------------------------------------------------------------------


def test_an_answer_is_divided_by_that_of_the_same_question_with_other_keys():
    sent, scopes = answers(
        "ask: communication\nmodel: layer\nstrategy: data(4)\naccounting: sent_per_rank\n"
        "divided_by: {accounting: payload}",
        "ask: flops\nmodel: layer\nscope: training\ngiven: {T: 5}\ndivided_by: {scope: forward}",
    )  # fmt: skip
    assert sent.quantity.value == 2 * (4 - 1) / 4  # a ring sends 2 (k - 1)/k of what is reduced
    assert sent.derivation.notes[0] == "Compared: communication sent_per_rank with payload."
    assert scopes.quantity.value == 3
    sent.derivation.check(deep=True)


DIVIDED = [
    ("divided_by: payload", "divided_by holds the keys that differ"),
    ("divided_by: {scop: forward}", "unknown key 'scop' in this question"),
    ("divided_by: {ask: parameters}", "'Forward FLOPs' is in FLOP, but 'Parameters' is in parameter"),
]


@pytest.mark.parametrize(("said", "told"), DIVIDED, ids=[told[:30] for _, told in DIVIDED])
def test_what_cannot_be_divided_is_refused(said: str, told: str):
    with pytest.raises(SymcommError, match=f"parts.md:.*{told}"):
        answers(f"ask: flops\nmodel: layer\n{said}")


def test_a_heading_with_points_and_without_a_question_is_told_with_its_line() -> None:
    rate = "```symcomm\nask: peak_rate\ngiven: {f: 1 GHz, n_SM: 8 SM, n_FMA: 64 FMA/clock/SM}\n```\n"
    text = "---\ntitle: T\n---\n# 1 All (5 points)\n\n## 1.1 Empty (3 points)\n\nWords.\n\n## 1.2 Task (2 points)\n\n"
    note = (
        "line 6: '1.1 Empty' has 3 points, but no question below: a ```symcomm block with ask: derives an answer, "
        ":::solution holds one in words"
    )
    assert solve(parse_problem(text + rate, "t.md")).told == (note,)
    written = text.replace("Words.", "Explain it.\n\n:::solution\nWords.\n:::")
    assert solve(parse_problem(written + rate, "t.md")).told == ()


def test_a_picture_that_has_no_model_is_an_error_with_its_place() -> None:
    with pytest.raises(DocumentError, match="'roofline' needs a model, and none is defined before") as found:
        parse_problem("# T\n\n```symcomm\nfigure: roofline\n```\n", "t.md")
    assert found.value.span is not None
    assert (found.value.span.line, found.value.span.word) == (4, "roofline")
