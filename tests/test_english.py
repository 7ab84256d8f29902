"""What symcomm prints or documents is short, has actors, and names no identifiers; the counts only go down."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml
from api import MISTAKES, SENTENCES, TEMPLATES, built_in, schedules_schedules

ROOT = Path(__file__).parents[1]
RULES = {
    "more than 25 words": re.compile(r"(?:\S+\s+){25}\S"),
    "'What ...' as a subject": re.compile(r"^(?:What|Which|Who)\b.*[.:]$"),
    "no actor ('is told', 'is said')": re.compile(r"\b(?:is|are|was|be) (?:told|said|meant|asked for)\b"),
    "a pronoun for a noun ('that of')": re.compile(r"\b(?:that|those) (?:of|which|that)\b(?! [a-z]+ (?:is|are) )"),
    "a word of our own ('besides', 'stands')": re.compile(
        r"\b(?:besides|stands(?! for\b)|goes on|hangs on|has to be said)\b"
    ),
    "an identifier in prose": re.compile(r"\b[a-z]{2,}_[a-z_]+\b|\b[A-Z]\^[A-Z0-9]\b"),
}
# How many sentences of each kind break each rule. A new sentence breaks none; who mends some lowers the number.
ALLOWED = {
    "patterns": {"an identifier in prose": 1},  # an option of PyTorch
    "docstrings": {
        "no actor ('is told', 'is said')": 17,
        "a pronoun for a noun ('that of')": 107,
        "a word of our own ('besides', 'stands')": 1,
        "more than 25 words": 6,
    },
    "pages": {"more than 25 words": 2},  # lists of what is counted otherwise, as a page prints them
}


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a text, without code and formulas."""
    plain = re.sub(r"``[^`]*``|`[^`]*`|\$[^$]*\$", "X", " ".join(text.split()))
    yield from re.split(r"(?<=[.?!:]) (?=[A-Z])", plain)


@cache
def trees() -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "symcomm").rglob("*.py"))]


def literal(node: ast.expr) -> str:
    """A string in the source, with x for what is put in; empty for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    return ""


def tables() -> Iterator[str]:
    """Sentences that have an id."""
    assert all([schedules_schedules(), built_in(), MISTAKES])
    for texts in SENTENCES.values():
        yield from texts().values()


def patterns() -> Iterator[str]:
    """The other sentences of pages and their pieces, as their translations know them."""
    for rows in yaml.safe_load((TEMPLATES / "sentences.yaml").read_text(encoding="utf-8")).values():
        yield from (text.replace("{}", "x") for text in rows.values())


def errors() -> Iterator[str]:
    """What errors and their hints say."""
    for node in (node for tree in trees() for node in ast.walk(tree) if isinstance(node, ast.Raise)):
        for made in (one for one in ast.walk(node) if isinstance(one, ast.Call)):
            yield from (literal(arg) for arg in (*made.args, *(key.value for key in made.keywords)))


def docstrings() -> Iterator[str]:
    """The first sentence of each docstring of a public name."""
    kinds = ast.FunctionDef | ast.ClassDef | ast.Module
    for node in (node for tree in trees() for node in ast.walk(tree) if isinstance(node, kinds)):
        if not getattr(node, "name", "").startswith("_"):
            yield (ast.get_docstring(node) or "").partition("\n\n")[0]


def pages() -> Iterator[str]:
    """The paragraphs of the documentation; tables and code are left out."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"^( *`{3,}| *~{3,}).*?^\1 *$", "", text, flags=re.MULTILINE | re.DOTALL)
        for block in re.split(r"\n\s*\n|\n(?=\s*[-*|#>] )|\n(?=\s*\d+\. )", text):
            if path.name not in ("quantities.md", "api.md") and not block.lstrip().startswith(("|", "#", "<")):
                yield re.sub(r"\]\([^)]*\)|[\[\]*]", "", block.lstrip(" -*>"))


KINDS = {"tables": tables, "patterns": patterns, "errors": errors, "docstrings": docstrings, "pages": pages}


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_keep_the_rules_of_plain_english(kind: str) -> None:
    found: dict[str, list[str]] = {}
    for sentence in (one for text in KINDS[kind]() for one in sentences_of(text)):
        for rule, broken in RULES.items():
            named = kind in ("errors", "pages", "docstrings") and rule == "an identifier in prose"  # names of options
            if broken.search(sentence) and not named:
                found.setdefault(rule, []).append(sentence)
    worse = {rule: said for rule, said in found.items() if len(said) > ALLOWED.get(kind, {}).get(rule, 0)}
    assert not worse, Counter({rule: len(said) for rule, said in worse.items()})


def test_each_rule_finds_a_sentence_that_breaks_it() -> None:
    broken = (
        "word " * 26, "What a ring sends is not asked.", "A number is told.", "It is taken for that of all.",
        "Numbers given besides.", "The matrix W^O is missing.",
    )  # fmt: skip
    for rule, sentence in zip(RULES.values(), broken, strict=True):
        assert rule.search(sentence)
        assert not rule.search("You left out the output projection.")
