"""What a reader stumbles over: nothing of it is on a page of the examples, in any edition.

``test_render_examples.py`` looks for it on all of them; ``python tests/render/test_pages_read_well.py`` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from api import Document, page, parse_problem, solve, source

import symcomm as sc

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p for p in ROOT.glob("examples/**/*.md") if "```symcomm\n" in p.read_text(encoding="utf-8"))

_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_MATHS = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.DOTALL)
_IDENTIFIER = re.compile(
    r"\b[a-z]+(?:_[a-z0-9]+)+\b(?!=)|\bfma2\b|\b(?:cast|state|dispatch)\([^)]*|\bell\b|\b[A-Z]\^[A-Z0-9]"
)
_UNIT = re.compile(r"(?<=\d )[^\s=≈·]+")
_WORD = re.compile(r"\w[\w'’.,\-]*")


@cache
def document(path: Path) -> Document:
    return solve(sc.read_problem(path))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page in Markdown; a formula is one word."""
    text = _MATHS.sub(" X ", _CODE.sub(" X ", text))
    text = re.sub(r"!\[[^\]]*\]", "", re.sub(r"\\([._^*<>])", r"\1", text))  # a picture's text is spoken
    text = re.sub(r"Given: .*", "", text)  # a list
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for piece in re.split(r"\n\s*\n|\||\n\s*(?:[-*]|\d+\.)\s|\n#+ | · ", text):
        yield from re.split(r"(?<=[.?!:;])\s+", " ".join(piece.split()))


def findings(made: Document) -> Iterator[tuple[str, str]]:
    """What a reader stumbles over in the editions of a document: its kind, and the words."""
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
    """Whether a box says a formula (a unit is none), or stands below a step or a table that does."""
    if answer.steps or answer.reasons or answer.before:
        return True
    if answer.together is not None:
        return any(
            re.search(r"\$[^$]*[a-zA-Z][^$]*[\^(/+·\\ ][^$]*\$", str(c))
            for row in answer.together.rows
            for c in row[1:]
        )
    return all(re.search(r"[=≈] [^=≈]*[^\W\d_]", _UNIT.sub("", row.alt)) for row in answer.box)


def test_what_a_reader_stumbles_over_is_found() -> None:
    text = "# 1 Area\n\n{}\n\n```symcomm\nask: collective_time\n```\n"
    said = "How long? " + "word " * 26 + ". It needs latency_between and W^O."
    found = [kind for kind, _ in findings(solve(parse_problem(text.format(said))))]
    assert sorted({*found}) == ["a raw identifier", "a sentence of more than 25 words"]
    assert [*findings(solve(parse_problem(text.format("How long?"))))] == []


def boxes(stem: str) -> list[list[str]]:
    path = next(path for path in EXAMPLES if path.stem == stem)
    return [[row.alt for row in block.answer.box] for block in page(document(path), "md").blocks if block.answer]


def test_a_box_holds_all_derivatives_that_were_asked() -> None:
    forward, reverse, *_ = boxes("autodiff-traces")
    assert [row.split("= ")[-1] for row in forward] == ["12", "12", "-4", "4"]  # 2 (x_1 + x_2), then ±2 (x_1 - x_2)
    assert [row.split("= ")[-1] for row in reverse] == ["12", "12"]


def test_a_box_says_where_the_cost_is_least_over_the_real_numbers_beside_the_whole_one() -> None:
    best = next(box for box in boxes("ddp-buckets") if box[-1].startswith("n_b^whole"))
    assert best[0] == "n_b^* = √(s/(o·w))"
    assert best[-1].endswith("= 26")  # √(8 GB / (100 µs · 120 GB/s)) is 25.8


@pytest.mark.long
def test_the_fastest_collective_shows_its_own_formula_alone() -> None:
    path = next(path for path in EXAMPLES if path.stem == "collectives")
    fastest = [b.answer for b in page(document(path), "md").blocks if b.answer and "Fastest" in b.answer.label]
    assert len(fastest) == 3
    assert all(len(answer.steps) <= 1 for answer in fastest)


def test_experts_without_attention_have_no_output_projection_to_be_forgotten() -> None:
    path = next(path for path in EXAMPLES if path.stem == "mixture-of-experts")
    told = source(document(path), "md", edition="graders")
    assert "output projection" not in told
    assert "has all other weights" in told


if __name__ == "__main__":
    for path in EXAMPLES:
        print(path.stem, *(": ".join(pair) for pair in findings(document(path))), sep="\n    ")
