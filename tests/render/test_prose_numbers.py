"""Texts of many variants differ in their numbers; they are converted as each of them alone."""

from __future__ import annotations

from itertools import product

import pytest
from api import InlinePiece, Span, prose, with_numbers, without_numbers

# A and B stand for numbers; in most of these texts a number says more than itself.
TEXTS = (
    "$N = A$ layers of B columns", "A. first\nB. second", "A) first", "(A) first", "  A. x", "text\nA. more", "- A. x",
    "x^A and H~A~O", r"$\frac{A}{B}$, $\frac AB$, $\frac{A}2$, $\sqrt A B$", "$x_A^B$ and $2^{A}$ and $D^AB$",
    "| a | b |\n|---|--:|\n| A | B |", "`A` and `in_features=B`", "```text\nwidth=A, (B): 3e-A\n```",
    "a[^A]\n\n[^A]: B",
    "&#A; and &#xA;", r"\A and 'A and 'B's", "A--B, A-B, *A*, _B_, **A**B", "https://x.org/A?b=B and <https://x.org/A>",
    r"$A{,}B$ and $A\,B.5$ and $.A$", "A", "A B", "v1.A.B", "a $A$ b $$B = A$$ c", "> A. quoted", "73101000 A", "# A",
    "1 000 A", "**A.** B", "A.\n\nB.", "- [ ] A",
)  # fmt: skip
NUMBERS = (("7", "12"), ("2048", "1"), ("30", "123456789012"), ("0", "05"), ("2.5", "0.75"), ("1.5", "8"))


@pytest.mark.parametrize("target", ["html", "latex", "typst"])
def test_texts_that_differ_in_numbers_are_converted_as_each_alone(target, monkeypatch):
    monkeypatch.setattr(prose, "_written", {})
    monkeypatch.setattr(prose, "_kinds", {})
    monkeypatch.setattr(prose, "_once", {})
    pieces = [
        InlinePiece(text.replace("A", a).replace("B", b), Span("t.md", 1, text, 0, 1), inline)
        for (a, b), text, inline in product(NUMBERS, TEXTS, (False, True)) if not (inline and "\n" in text)
    ]  # fmt: skip
    together = prose.convert(pieces, target)
    alone = prose._convert(pieces, target)
    assert [together[piece] for piece in pieces] == alone
    assert sum(kind is not None for kind in prose._kinds.values()) > 10, "some of them are converted once"


def test_texts_that_come_one_after_the_other_are_converted_as_each_alone(monkeypatch):
    for name in ("_written", "_kinds", "_once"):
        monkeypatch.setattr(prose, name, {})
    run = prose.pandoc
    runs = []
    monkeypatch.setattr(prose, "pandoc", lambda *said: runs.append(said) or run(*said))
    texts = [f"has {n} layers of {n / 2:.1f} GB" for n in range(11, 19)]
    found = [
        prose.convert([piece], "html")[piece] for piece in (InlinePiece(t, Span("t.md", 1, t, 0, 1)) for t in texts)
    ]
    assert found == [f"<p>{text}</p>" for text in texts]
    assert len(runs) == 2 * 3, "the first, the second, and what they have in common: read and written"


@pytest.mark.parametrize("text", [*TEXTS, "", "<mn>12</mn><annotation>12^34</annotation> 7&#160;5"])
def test_numbers_come_back_to_their_places(text):
    assert with_numbers(*without_numbers(text)) == text
