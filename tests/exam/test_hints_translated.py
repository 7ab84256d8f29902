"""Each hint of the reader of answers is said in German and Chinese, too."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from api import words_words as words

import symcomm as sc

TABLES = ("_WORDS", "_STRANGE", "_TIME_UP", "_SAID", "_MISPLACED", "_INDEX", "_WITHOUT_COMMA", "_SIDE_BY_SIDE",
          "_NOT_CLEAR", "_UNDER_THE_ROOT", "_MARKS")  # fmt: skip
EXAMS = Path(sc.__file__).parent / "exams"


def said(node: ast.expr | None) -> Iterator[str]:
    """The texts that an expression may make, with a name for each thing that is put in."""
    if isinstance(node, ast.IfExp):
        yield from said(node.body)
        yield from said(node.orelse)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        texts = [""]
        for part in node.values:
            more = [*said(part)] or ["D"] if isinstance(part, ast.Constant) else _held(part)
            texts = [one + other for one in texts for other in more]
        yield from texts


def _held(part: ast.expr) -> list[str]:
    assert isinstance(part, ast.FormattedValue)
    return [*said(part.value)] or ["D"]


def hints(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "UnreadError" and node.args:
            yield from said(node.args[0])
        if isinstance(node, ast.keyword) and node.arg == "hint":
            yield from said(node.value)

        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in TABLES:
            for one in ast.walk(node.value):
                yield from (re.sub(r"{.*?}", "D", text) for text in said(one) if " " in text)


MODULES = (EXAMS / "decision.py", *(EXAMS.parent / "core" / "answers").glob("*.py"))
ALL = sorted({one for module in MODULES for one in hints(module)})


TYPED = {"a D is not closed: D", "this is in D, but the answer is DD"}  # made of words that are put in: typed below


@pytest.mark.parametrize("language", ["de", "zh"])
def test_every_hint_is_translated(language: str):
    say = words(language).catalogue
    assert len(ALL) > 80
    assert [one for one in ALL if one and one not in TYPED and say(one) == one] == []


@pytest.fixture(scope="module")
def key() -> object:
    problem = sc.read_problem(EXAMS.parent / "cli" / "starters" / "homework.md")
    return sc.key_of(problem, problem.asks[0])


@pytest.mark.parametrize(
    ("answer", "german"),
    [
        ("16 n D^2", "n ist hier kein Name; meintest du N? Groß und klein zählt"),
        ("D2", "D2 ist kein Name: schreibe D^2 oder 2*D"),
        ("(16", "eine Klammer ist nicht geschlossen: ("),
        ("\\frac{16", "eine geschweifte Klammer ist nicht geschlossen: {"),
        ("1/2N", "wodurch teilt /? Schreibe /(2*N) oder /2*N"),
        ("16 N d^2", "das ist in s^2, aber die Antwort ist in B: groß und klein zählt, meintest du D?"),
        ("12 s", "das ist in s, aber die Antwort ist in B"),
    ],
)
def test_a_hint_keeps_what_was_typed(answer: str, german: str, key: object):
    assert words("de").catalogue(sc.check(answer, key).hint) == german
