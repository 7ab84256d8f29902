"""Quantities that became text give the answers that they gave before, in 1,828 questions of six models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from worksheets.ported_answers import KEPT, answer, questions

ASKED = [*zip(questions(), json.loads(KEPT.read_text(encoding="utf-8")), strict=True)]


def said(one: tuple[tuple[str, str, dict[str, Any], dict[str, str]], str]) -> str:
    (name, quantity, options, conventions), _ = one
    return f"{name} {quantity} {[v for v in options.values() if v is not None]} {[*conventions.values()]}"


@pytest.mark.few(30)
@pytest.mark.parametrize("one", ASKED, ids=map(said, ASKED))
def test_a_quantity_that_became_text_gives_the_answer_it_gave(one):
    question, kept = one
    found, expected = answer(*question), kept
    assert found.split()[:2] == expected.split()[:2]
