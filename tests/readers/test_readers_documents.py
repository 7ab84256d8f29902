"""A printed module in the prose of a document is read as if it were cut out of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from api import ReaderError

import symcomm as sc

BERT = (Path(__file__).parent.parent / "data" / "bert_printed.txt").read_text(encoding="utf-8")
BEFORE = "# Report\n\n## Task 3\n\nThe model (BERT) prints so:\n\n```\n"
AFTER = 'BertConfig {\n  "hidden_size": 768,\n```\n\n```\n"vocab_size": 30522\n}\n```\n\nIt has many layers (12).\n'


def test_a_document_gives_the_model_that_it_prints_with_its_own_line_numbers(tmp_path: Path) -> None:
    whole = BEFORE + BERT.rstrip("\n") + "\n" + AFTER
    path = tmp_path / "report.txt"
    path.write_text(whole, encoding="utf-8")
    alone = sc.load(BERT)
    for source in (whole, path):
        found = sc.load(source)
        assert found.parameters().at() == alone.parameters().at()
    first, moved = (next(note for note in one.notes if note.startswith("line ")) for one in (alone, found))
    assert int(moved.split()[1][:-1]) - int(first.split()[1][:-1]) == BEFORE.count("\n")


def test_a_tree_that_is_cut_off_in_a_document_is_an_error_with_its_line() -> None:
    cut = BERT.split("(output)")[0].rstrip() + "\n```\n\nand so on\n"
    with pytest.raises(ReaderError, match="the module text ends inside") as caught:
        sc.load(BEFORE + cut)
    assert caught.value.span is not None
    assert caught.value.span.line > BEFORE.count("\n")


def test_two_printed_modules_in_a_document_are_told_apart_by_their_lines() -> None:
    net = "Net(\n  (fc): Linear(in_features=2, out_features=3, bias=True)\n)\n"
    with pytest.raises(ReaderError) as caught:
        sc.load(f"One:\n{net}\nTwo:\n{net}")
    assert str(caught.value) == "<text> prints 2 modules, in lines 2, 7\nhint: give the text of one of them"


def test_a_document_with_a_layer_table_is_about_its_table() -> None:
    net = "Net(\n  (fc): Linear(in_features=2, out_features=3, bias=True)\n)\n"
    table = "Computation\tInput\tOutput\n$y = xW$\tx [B, D], W [D, F]\ty [B, F]\n"
    assert sc.load(f"A table:\n\n{table}\nand a print:\n\n{net}").parameters().at(D=5, F=7).value == 35
