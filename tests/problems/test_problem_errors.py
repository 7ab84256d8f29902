"""Every mistake in a problem file has its own error, with the exact line and column, and a hint where one helps."""

import re

import pytest
from api import SymcommError, parse_problem, read_problem, solve

TABLE = r"""| Computation | Input | Output |
|---|---|---|
| $Y = XW$ | $X \in \mathbb{R}^{B \times D}, W \in \mathbb{R}^{D \times K}$ | $Y \in \mathbb{R}^{B \times K}$ |
"""


def document(*blocks: str, front: str = "") -> str:
    """A problem with one table and these blocks; the first block's first key stands in line 6 (9 with front matter)."""
    head = f"---\n{front}\n---\n" if front else ""
    return head + TABLE + "".join(f"\n```symcomm\n{block}\n```\n" for block in blocks)


MODEL = "model: product\nvalues: {B: 2, D: 3, K: 5}"


def refusal(text: str) -> SymcommError:
    with pytest.raises(SymcommError) as caught:
        solve(parse_problem(text, "problem.md"))
    return caught.value


# One row a mistake: the document, the line, the word that is marked, what is said, what is hinted.
MISTAKES = [
    (document("modle: product"), 6, "modle", "neither a model nor a question", "did you mean 'model'?"),
    (document("model: product\nrepeet: N"), 7, "repeet", "unknown key 'repeet' in this model", "mean 'repeat'?"),
    (document(MODEL, "ask: flops\nscoop: training"), 12, "scoop", "unknown key 'scoop'", "did you mean 'scope'?"),
    (document(MODEL, "ask: flop"), 11, "flop", "unknown quantity 'flop'", "did you mean 'flops'?"),
    (document(MODEL, "ask: flops\nscope: trainin"), 12, "trainin", "unknown scope 'trainin'", "training"),
    (document(MODEL, "ask: flops\nmodel: prodct"), 12, "prodct", "unknown model 'prodct'", "did you mean 'product'?"),
    (document(MODEL, "ask: flops\nscope:"), 12, "scope", "'scope' has no value", ""),
    (document("model: product\nvalues: {B: }"), 7, "B", "'B' has no value", ""),
    (document("model: product\nvalues: 7"), 7, "7", "'values' must be a mapping, but is text", ""),
    (document("model: product\nvalues: {B: [1, 2]}"), 7, "[1, 2]", "'B' must be a number with a unit", ""),
    (document("model: product\nvalues: {B: many}"), 7, "many", "'many' is not a number with a unit", "80 GiB"),
    (document("model: product\nvalues: {B: 1.5}"), 7, "1.5", "'1.5' is not a whole number", ""),
    (document("model: product\nvalues: {B: 0}"), 7, "0", "'0' is not positive", ""),
    (document("model: product\nvalues: {B: -3}"), 7, "-3", "'-3' is not positive", ""),
    (document("model: product\nvalues: {B: 3 GHzz}"), 7, "3 GHzz", "unknown unit 'GHzz'", ""),
    (document("model: product\nvalues: {B: 2^11}"), 7, "2^11", "unknown unit ''", "as its result: 2048, not 2^11"),
    (document("model: product\nvalues: {B: 1e999}"), 7, "1e999", "'1e999' is out of range", "10^60"),
    (document('model: "a\\x1b"'), 6, '"a\\x1b"', "has the character U+001B", ""),
    (document('model: "a\\ud800"'), 6, '"a\\ud800"', "has the character U+D800", ""),
    (document("model: a\ninputs: [X, Q]"), 7, "Q", "the table has no tensor 'Q'", "known: W, X, Y"),
    (document("model: product\nvalues: {2B: 3}"), 7, "2B", "'2B' cannot be the name of a symbol", "a letter"),
    (document("model: product\ntable: 2"), 7, "2", "there is no table 2", "layer tables before this model: 1"),
    (document("model: product\ntable: first"), 7, "first", "must be the number of a table", "table: |"),
    (document("model: product\ndtype: fp17"), 7, "fp17", "unknown number format 'fp17'", "fp16"),
    (document("model: [a, b]"), 6, "[a, b]", "'model' must be text, but is a list", ""),
    (document("ask: flops"), 6, "flops", "'flops' needs a model", "add a symcomm block"),
    (document("model: a", "model: a"), 10, "a", "a second model called 'a'", "the first is in line 6"),
    (document("model: a\nmodel: b"), 7, "model", "the key 'model' is there twice", "first in line 6"),
    (document("just words"), 6, "just words", "a block holds keys and values", "model:, ask: or figure:"),
    (document("model: a\nsymbols: {B: {meening: x}}"), 7, "meening", "unknown key 'meening' in the symbol B", "mean"),
    (document(MODEL, "ask: flops\naccounting: fma3"), 12, "fma3", "unknown convention 'fma3'", "did you mean 'fma2'?"),
    (document(MODEL, "ask: flops\naccounting: {flop: fma2}"), 12, "flop", "unknown convention field 'flop'", "flops"),
    (document(MODEL, "ask: flops\naccounting: {flops: fma3}"), 12, "fma3", "'fma3' is no convention for flops", "fma2"),
    (document(MODEL, "ask: flops\npoints: ten"), 12, "ten", "'points' must be a whole number, but is 'ten'", ""),
    (
        document(MODEL, "ask: communication\nstrategy: dta(k)"),
        12, "dta(k)", "unknown strategy 'dta'", "did you mean 'data'?",
    ),
    (
        document(MODEL, "ask: communication\nstrategy: {pipeline: {stage: 4}}"),
        12, "stage", "pipeline has no 'stage'", "did you mean 'stages'?",
    ),
    (
        document(MODEL, "ask: communication\nstrategy: data(k)\ncollective: all-redcue"),
        13, "all-redcue", "unknown collective 'all-redcue'", "did you mean 'all-reduce'",
    ),
    (document("model: a\nx: &a [1]\ny: *a"), 7, "&a [", "has a YAML anchor or alias", "write the value out"),
    (document("model: !!python/name:os.system x"), 6, "!!python/name:os.system x", "has the YAML tag", "plain values"),
    (document("model: {a: [}"), 6, "}", "this block is not YAML", ""),
    (document("model: a\n  batch: B"), 7, ":", "this line is indented otherwise than", "begin in one column"),
    (document("  model: a\nbatch: B"), 7, "b", "this line is indented otherwise than", "begin in one column"),
    (document("model: a\nvalues: {N: 1 B: 2}"), 7, ":", "but got ':'", "put a comma between two values"),
    (document("model: a\nvalues: {N: 1"), 7, "v", "but got '<stream end>'", "close the bracket or the brace"),
    (document("model: a\nrepeat: N: 2"), 7, ":", "mapping values are not allowed here", "text with a colon in quotes"),
    (document("model: a\n\tbatch: B"), 7, "\t", "this block is not YAML", "indent with spaces"),
    (document('model: a\nformula: "$Y = X \\in W$"'), 7, "i", "unknown escape character", "single quotes"),
    (document('model: a\nformula: "$Y = X \\times W$"'), 7, '"$Y = X \\times W$"', "loses its backslashes", "single"),
    (document("model: a\nformula: '$Y = XW$'"), 7, "'$Y = XW$'", "needs an equation and the shapes", "for instance"),
    (document("model: a\nformula: x\ntable: 1"), 7, "formula", "a table or a formula, not both", ""),
    (document("- - model: a"), 6, "- model: a", "a list within a list", ""),
    (document(MODEL, front="titel: x"), 2, "titel", "unknown key 'titel' in the front matter", "did you mean 'title'"),
    (document(MODEL, front="language: klingon language"), 2, "klingon language", "is no language", "en"),
    (document(MODEL, front="repeat: N"), 2, "repeat", "'repeat' says something of a model", "put it below model:"),
    (document(MODEL, front="flops: mac"), 2, "flops", "'flops: mac' is a convention", "accounting: {flops: mac}"),
    (document(MODEL, front="symbols: [B]"), 2, "[B]", "'symbols' must be a mapping, but is a list", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "word", "said", "hint"), MISTAKES, ids=[m[3] for m in MISTAKES])
def test_a_mistake_is_told_with_its_line_its_word_and_a_hint(text: str, line: int, word: str, said: str, hint: str):
    error = refusal(text)
    assert error.span is not None
    assert (error.span.file, error.span.line) == ("problem.md", line)
    assert error.span.word == word
    assert said in error.message
    assert hint in error.hint
    assert "^" in str(error)


def test_a_value_given_twice_with_different_numbers_names_both_places():
    text = document("model: a\nvalues: {B: 4}", front="symbols: {B: {value: 3}}")
    error = refusal(text)
    assert error.message == "B is 4 here, but 3 in problem.md:2"
    assert error.span is not None
    assert (error.span.line, error.span.word) == (10, "4")


def test_a_value_given_with_a_question_may_not_contradict_that_of_its_model():
    error = refusal(document(MODEL, "ask: flops\ngiven: {D: 4}"))
    assert "D is 4 here, but 3 in problem.md:7" in error.message


def test_a_value_given_to_a_question_that_means_nothing_to_it_is_refused():
    error = refusal(document(MODEL, "ask: flops\ngiven: {D: 3, unused: 9}", front="symbols: {B: {value: 2}}"))
    assert "Forward FLOPs has no symbol 'unused'" in error.message
    assert error.span.word == "9"
    assert "numbers of several questions go in 'values' of a model or in 'symbols'" in error.hint


def test_the_same_value_given_twice_and_a_value_of_the_document_that_nobody_needs_are_no_mistakes():
    front = "symbols: {B: {value: 2}, unused: {value: 9}}"
    text = document(MODEL, "ask: flops\ngiven: {D: 3}", front=front)
    [answer] = solve(parse_problem(text)).answers()
    assert answer.quantity is not None
    assert answer.quantity.value == 2 * 2 * 3 * 5


def test_given_numbers_that_break_a_relation_of_the_table_are_refused_with_the_numbers():
    table = r"""| Computation | Input | Output |
|---|---|---|
| $[Q_1, \dots, Q_{n_H}] = Partition_{-1}(Q)$ | $Q \in R^{L \times D}$ | $Q_i \in R^{L \times H}, i = 1, \dots, n_H$ |
"""
    error = refusal(table + "\n```symcomm\nmodel: a\nvalues: {D: 10, n_H: 3, H: 4}\n```\n")
    assert "D = 10, but n_H·H = 3·4 = 12" in error.message
    assert error.span is not None
    assert error.span.line == 7


def test_a_strategy_that_cuts_an_axis_the_mesh_does_not_divide_is_refused_with_the_numbers():
    error = refusal(document("model: a\nvalues: {B: 6, D: 3, K: 5}", "ask: communication\nstrategy: data(4)"))
    assert "6 is not divisible by 4" in error.message
    assert error.span is not None
    assert (error.span.line, error.span.word) == (12, "data(4)")


@pytest.mark.parametrize("word", ["symcom", "sym-comm", "Symcomm", "symmcomm"])
def test_a_block_with_a_misspelt_name_is_not_silently_prose(word: str):
    error = refusal(f"# Words\n\n```{word}\nask: flops\n```\n")
    assert error.hint == "did you mean 'symcomm'?"
    assert error.span is not None
    assert error.span.line == 3


def test_blocks_of_other_languages_are_prose():
    problem = parse_problem("```python\nprint(1)\n```\n")
    assert [type(item).__name__ for item in problem.items] == ["Prose"]


def test_a_block_that_is_never_closed_is_refused():
    assert refusal("words\n\n```symcomm\nmodel: a\n").message == "this block is never closed"


def test_front_matter_that_is_never_closed_is_refused():
    assert refusal("---\ntitle: a\n\nwords\n").message == "the front matter is never closed"


def test_an_empty_block_is_refused():
    assert refusal("```symcomm\n```\n").message == "this block is empty"


def test_a_table_without_the_three_columns_is_refused_naming_the_missing_one():
    error = refusal("| Computation | Inputs |\n|---|---|\n| $y = x$ | $x$ |\n")
    assert error.message == "this table lacks the column Output of a layer table"


def test_a_table_block_without_a_layer_table_is_refused():
    error = refusal("```table\nA,B\n1,2\n```\n")
    assert "layer table" in error.message


def test_nesting_beyond_the_limit_is_refused_at_once():
    error = refusal(document("model: " + "[" * 10_000))
    assert error.message == "this block is nested more than 12 deep"


def test_a_block_larger_than_its_limit_is_refused():
    error = refusal(document("model: " + "a" * 200_000))
    assert "at most 100,000 are read" in error.message


def test_a_file_of_ten_megabytes_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "large.md"
    with path.open("wb") as stream:
        stream.truncate(10_000_000)
    with pytest.raises(SymcommError, match=r"large\.md has 10\.0 MB; at most 2 MB are read"):
        read_problem(path)


def test_a_missing_file_a_folder_and_a_binary_file_each_have_their_error(tmp_path):
    with pytest.raises(SymcommError, match=r"there is no file .*none\.md"):
        read_problem(tmp_path / "none.md")
    with pytest.raises(SymcommError, match="is a folder, not a file"):
        read_problem(tmp_path)
    (tmp_path / "binary.md").write_bytes(b"words\n\xff\xfe")
    with pytest.raises(SymcommError, match=r"binary\.md:2: the file is not UTF-8 text: byte 6"):
        read_problem(tmp_path / "binary.md")


def test_a_file_with_control_characters_is_refused(tmp_path):
    (tmp_path / "escape.md").write_text("words\n\x1b[31mred\n", encoding="utf-8")
    with pytest.raises(SymcommError, match=r"escape\.md:2: the file has the control character U\+001B"):
        read_problem(tmp_path / "escape.md")


@pytest.mark.parametrize("name", ["E", "S", "I", "N", "O", "Q", "lambda", "beta", "__import__", "no", "None"])
def test_a_symbol_may_have_any_name_and_is_only_ever_a_symbol(name: str):
    text = TABLE.replace("{D", "{" + f"\\text{{{name}}}" if len(name) > 1 else "{" + name)
    text = text.replace("B \\times D}", f"B \\times \\text{{{name}}}}}").replace("\\text{beta}", "\\beta")
    problem = parse_problem(f"{text}\n```symcomm\nmodel: a\nvalues: {{B: 2, {name}: 3, K: 5}}\n```\n"
                            "```symcomm\nask: parameters\n```\n")  # fmt: skip
    [answer] = solve(problem).answers()
    assert answer.quantity is not None
    assert answer.quantity.value == 15
    assert {str(s) for s in answer.derivation.expr.free_symbols} == {name, "K"}


def test_the_columns_of_an_error_in_an_indented_block_are_those_of_the_file():
    text = "1. First\n\n   ```symcomm\n   model: a\n   repeet: N\n   ```\n"
    error = refusal(text)
    assert error.span is not None
    assert error.span.text == "   repeet: N"
    assert re.search(r"^ {7}\^{6}$", str(error), re.MULTILINE)
