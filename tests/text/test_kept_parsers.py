"""The parsers that a wheel holds are those of the grammars, and another grammar's is not used."""

from dataclasses import replace
from pathlib import Path

import lark
import pytest
from api import FORMULA, KEPT, MODULE, Grammar

NET = "Net(\n  (0-1): 2 x Linear(in_features=8, out_features=8)\n  (n): Norm((8, 4), eps=1e-05)\n)"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with copies of the grammars."""
    for one in (FORMULA, MODULE):
        (tmp_path / one.folder).mkdir()
        (tmp_path / one.folder / one.file).write_text(one.source)
    monkeypatch.setattr("symcomm.core.text.grammars.files", lambda name: tmp_path)
    return tmp_path


def fresh(grammar: Grammar) -> Grammar:
    """The same, which nobody has asked for its parser yet."""
    return replace(grammar, options={**grammar.options, "debug": False})


@pytest.mark.parametrize("grammar", [FORMULA, MODULE])
def test_a_kept_parser_is_used_where_it_is_that_of_the_grammar(package, grammar, monkeypatch):
    grammar = fresh(grammar)
    kept = grammar.keep(package)
    assert kept.name == grammar.file + KEPT
    built = grammar.built()
    monkeypatch.setattr(Grammar, "built", lambda self: pytest.fail("it was built"))
    parser = grammar.parser.__wrapped__(grammar)
    if grammar.folder == "readers":
        assert parser.parse(NET) == built.parse(NET)
    else:
        row = [lark.Token(kind, kind) for kind in ("WORD", "RELATION", "WORD", "TIMES", "NUMBER")]
        assert [*parser.parse(row).tokens()] == row


def test_a_parser_of_another_grammar_or_none_is_built_anew(package):
    kept = fresh(MODULE).keep(package)
    kept.write_bytes(b"another key\n" + b"no parser")
    assert MODULE.parser.__wrapped__(MODULE).parse(NET).children
    kept.unlink()
    assert MODULE.parser.__wrapped__(MODULE).parse(NET).children
