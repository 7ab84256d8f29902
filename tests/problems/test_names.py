"""``names:`` calls symbols of a quantity otherwise, in a question or in the whole document; two meanings are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from api import DocumentError, SymcommError, main, page, parse_problem, solve
from click.testing import CliRunner

LAYER = """
| Computation | Input | Output |
|---|---|---|
| $h = x W$ | x [B, D], W [D, w] | h [B, w] |

```symcomm
model: layer
values: {B: 8, D: 1024, w: 4096}
```
"""
BUCKETS = "ask: buckets\nwant: size\ngiven: {s: 8 GB, w: 100 GB/s, o: 200 us}"


def problem(*blocks: str, head: str = "", words: str = "How much is it?\n") -> str:
    asked = "".join(f"```symcomm\n{block}\n```\n\n" for block in blocks)
    return f"---\ntitle: T{head}\n---\n# 1 Task\n\n{words}\n{asked}"


def document(*blocks: str, **more: str):  # type: ignore[no-untyped-def]
    return solve(parse_problem(problem(*blocks, **more), "t.md"))


RENAMED = BUCKETS.replace("w:", "W:").replace("size", "number") + "\nnames: {w: W, V: t_left, f: g}"


def test_a_renamed_symbol_stands_on_the_page_in_formulas_sentences_and_given_values() -> None:
    made = document(RENAMED)
    (answer,) = made.answers()
    assert answer.quantity is not None
    # The best number is sqrt(s/(o w)) = sqrt(8e9/(2e-4 * 1e11)), 20 buckets of 400 MB.
    assert answer.quantity.value == 20
    assert {s.name for s in answer.derivation.expr.free_symbols} == {"s", "W", "o"}
    shown = next(block.answer for block in page(made, "md").blocks if block.answer)
    assert "√(s/(o·W))" in " ".join(row.alt for row in shown.box)
    text = answer.derivation.text()
    assert "T_left" not in text
    assert all(name in text for name in ("t_left", "g'", "g''"))
    assert answer.derivation.notation.meaning("W") == "algorithm bandwidth of the all-reduce"


def test_proofs_and_witnesses_of_a_renamed_derivation_still_hold() -> None:
    pipeline = "ask: pipeline_time\nwant: utilisation\nnames: {m: c, p: s}\ngiven: {c: 36, s: 4}"
    rate = "ask: peak_rate\nnames: {f: nu}\ngiven: {nu: 1.41 GHz, n_SM: 8 SM, n_FMA: 512 FMA/clock/SM}"
    for block in (RENAMED, pipeline, rate):
        (answer,) = document(block).answers()
        answer.derivation.check(deep=True)


def test_numbers_of_the_document_under_the_old_name_belong_to_something_else() -> None:
    wide = "ask: peak_rate\nnames: {f: nu}\ngiven: {nu: 2 GHz, n_SM: 100 SM, n_FMA: 500 FMA/clock/SM}"
    (answer,) = document(wide, head="\nsymbols: {f: {meaning: hidden width, value: 4096}}").answers()
    assert answer.quantity is not None
    assert answer.quantity.value == 2 * 10**9 * 100 * 500 * 2


def test_names_of_the_document_hold_where_a_question_has_such_a_symbol_and_never_for_a_model() -> None:
    text = problem(BUCKETS.replace("w:", "W_net:"), "ask: flops", head="\nnames: {w: W_net}", words=LAYER)
    buckets, flops = solve(parse_problem(text, "t.md")).answers()
    assert {s.name for s in buckets.derivation.expr.free_symbols} == {"s", "W_net", "o"}
    assert {s.name for s in flops.derivation.expr.free_symbols} == {"B", "D", "w"}  # 2 B D w
    assert flops.quantity is not None
    assert flops.quantity.value == 2 * 8 * 1024 * 4096


@pytest.mark.parametrize(
    ("block", "message", "hint", "word"),
    [
        (
            BUCKETS + "\nnames: {w: s}",
            "w cannot be called 's': that is bytes of all gradients here",
            "a free name",
            "s",
        ),
        (BUCKETS + "\nnames: {w: x, o: x}", "o cannot be called 'x': that is w, too here", "a free name", "x"),
        (BUCKETS + "\nnames: {wz: x}", "has no symbol 'wz'", "did you mean 'w'", "x"),
        ("ask: flops\nnames: {w: x}", "'w' is a symbol of the model or of an option", "rename it there", "x"),
        (BUCKETS + "\nnames: {w: 3}", "'3' cannot be the name of a symbol", "a letter", "3"),
    ],
)
def test_a_rename_that_clashes_is_an_error_with_its_place(block: str, message: str, hint: str, word: str) -> None:
    with pytest.raises(SymcommError) as found:
        solve(parse_problem(problem(block, words=LAYER), "t.md"))
    assert message in str(found.value)
    assert hint in found.value.hint
    assert found.value.span is not None
    assert found.value.span.word == word


def test_a_name_of_the_document_that_no_question_has_is_an_error_with_its_place() -> None:
    with pytest.raises(DocumentError, match="no question has a symbol 'q' to call 'W'") as found:
        document(BUCKETS, head="\nnames: {q: W}")
    assert found.value.span is not None
    assert found.value.span.line == 3


def test_two_meanings_of_one_letter_are_told_with_both_lines(tmp_path: Path) -> None:
    chain = "ask: broadcast\nplan: serial\nlatency: 0 s\ngiven: {S: 4 GB, w: 50 GB/s, n: 3}"
    (note,) = document(BUCKETS, chain).told
    assert note == (
        "line 15: w is 'bandwidth of a link in one direction' here, but 'algorithm bandwidth of the all-reduce' in "
        "line 9; names: {w: ...} in one question renames it there"
    )
    assert document(BUCKETS, chain.replace("w:", "W:") + "\nnames: {w: W}").told == ()
    (tmp_path / "t.md").write_text(problem(BUCKETS, chain), encoding="utf-8")
    made = CliRunner().invoke(main, ["solve", str(tmp_path / "t.md"), "--to", "md", "-o", str(tmp_path / "out")])
    assert made.exit_code == 0, made.output
    assert "note: " in made.output
    assert note in made.output


def test_students_answer_in_the_new_names(tmp_path: Path) -> None:
    block = "ask: buckets\nwant: size\nnames: {w: W}\nanswer: formula\nid: size"
    (tmp_path / "t.md").write_text(problem(block), encoding="utf-8")
    for answer, status in (("min(s, sqrt(s W o))", 0), ("min(s, sqrt(s W))", 1)):
        made = CliRunner().invoke(main, ["check", str(tmp_path / "t.md"), "size", answer])
        assert made.exit_code == status, made.output


def test_the_usual_name_of_a_symbol_is_read_too_unless_the_document_calls_something_else_so(tmp_path: Path) -> None:
    block = "ask: pipeline_time\nwant: utilisation\nnames: {m: mu}\ngiven: {p: 4, mu: 36}\nid: busy"
    for head, status, said in (
        ("", 0, "m was read as mu"),
        ("\nsymbols: {m: {meaning: rows of the result, value: 8}}", 1, "0.727273 is not right"),
    ):
        (tmp_path / "t.md").write_text(problem(block, head=head), encoding="utf-8")
        made = CliRunner().invoke(main, ["check", str(tmp_path / "t.md"), "busy", "m/(m + p - 1)"])
        assert said in made.output
        assert made.exit_code == status, made.output


def test_a_value_that_no_question_has_a_symbol_for_is_told_with_what_lacks_one() -> None:
    table = "| Computation | Input | Output |\n|---|---|---|\n| h = x W | x [B, D], W [D, T] | h [B, T] |\n"
    given = "model: m\nvalues: {B: 8, D: 64, tt: 384}"
    (note,) = document(given, "ask: parameters", words=table).told
    assert note == "line 12: no question has a symbol tt, for which a value is given; no value is given for T"
    assert document(given.replace("tt", "T"), "ask: parameters", words=table).told == ()


def test_a_number_without_a_unit_is_told_with_the_unit_it_is_read_in() -> None:
    (note,) = document(BUCKETS.replace("200 us", "20")).told
    assert note == "line 11: o is given without a unit and read as 20 s"


def test_a_formula_that_counts_says_so_in_the_plural(tmp_path: Path) -> None:
    table = "| Computation | Input | Output |\n|---|---|---|\n| h = x W | x [B, D], W [D, T] | h [B, T] |\n"
    (tmp_path / "t.md").write_text(problem("model: m", "ask: parameters", words=table), encoding="utf-8")
    made = CliRunner().invoke(main, ["solve", str(tmp_path / "t.md"), "--to", "md", "-o", str(tmp_path / "out")])
    assert made.exit_code == 0, made.output
    assert "(in parameters)" in (tmp_path / "out" / "t.md").read_text(encoding="utf-8")
