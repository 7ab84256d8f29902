"""What a reader stumbles over, counted on all pages of the examples; the counts may only go down.

``python tests/render/test_pages_read_well.py`` prints each finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from api import Document, page, solve, source

import symcomm as sc

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p for p in ROOT.glob("examples/**/*.md") if "```symcomm\n" in p.read_text(encoding="utf-8"))

# How many there are still; a change may lower a number, never raise it.
MOST = {
    "a heading that does not say what is computed": 0,
    "an answer without a sentence": 0,
    "a box without its formula": 15,
    "a raw identifier": 24,
    "a sentence of more than 25 words": 13,
}

_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_MATHS = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.DOTALL)
_IDENTIFIER = re.compile(
    r"\b[a-z]+(?:_[a-z0-9]+)+\b|\bfma2\b|\b(?:cast|state|dispatch)\([^)]*|\bell\b|\b[A-Z]\^[A-Z0-9]"
)
_WORD = re.compile(r"\w[\w'’.,\-]*")


@cache
def document(path: Path) -> Document:
    return solve(sc.read_problem(path))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page in Markdown; a formula is one word."""
    text = _MATHS.sub(" X ", _CODE.sub(" X ", text)).replace("\\.", ".")
    text = re.sub(r"Given: .*", "", text)  # a list
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for piece in re.split(r"\n\s*\n|\||\n\s*(?:[-*]|\d+\.)\s|\n#+ | · ", text):
        yield from re.split(r"(?<=[.?!:;])\s+", " ".join(piece.split()))


def findings(path: Path) -> Iterator[tuple[str, str]]:
    """What a reader stumbles over in the editions of one example: its kind, and the words."""
    made = document(path)
    view = page(made, "md")
    for answer in (block.answer for block in view.blocks if block.answer):
        about = f"{answer.label} {' '.join(map(str, answer.lead))[:60]} {[row.alt[:60] for row in answer.box]}"
        if not answer.label:
            yield "a heading that does not say what is computed", about
        if not answer.lead:
            yield "an answer without a sentence", about
        if not has_formula(answer):
            yield "a box without its formula", about
    told: set[str] = set()
    for edition in ("solution", "paper", "key", "graders"):
        for sentence in sentences(source(made, "md", edition=edition)):
            if sentence in told or sentence.startswith("*Given:*"):  # a list
                continue
            told.add(sentence)
            if len(_WORD.findall(re.sub(r"X( , X)+", "X", sentence))) > 25:
                yield "a sentence of more than 25 words", sentence
            if found := _IDENTIFIER.search(sentence):
                yield "a raw identifier", f"{found[0]}: {sentence[:100]}"


def has_formula(answer) -> bool:  # type: ignore[no-untyped-def]  # a view
    """Whether a box says a formula, or stands below a step or a table that does."""
    if answer.together is not None:
        return bool(answer.steps)
    named = [re.search(r"[=≈] [^=≈]*[^\W\d_]", row.alt) for row in answer.box]
    return all(named) or bool(answer.steps or answer.reasons)


def counted(paths: list[Path]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {kind: [] for kind in MOST}
    for path in paths:
        for kind, words in findings(path):
            found[kind].append(f"{path.stem}: {words}")
    return found


@pytest.mark.long
def test_pages_have_no_more_that_a_reader_stumbles_over() -> None:
    found = counted(EXAMPLES)
    more = {kind: words for kind, words in found.items() if len(words) > MOST[kind]}
    assert not more, {kind: len(words) for kind, words in more.items()}


if __name__ == "__main__":
    for kind, words in counted(EXAMPLES).items():
        print(f"{len(words)} times {kind}", *words, sep="\n    ")
