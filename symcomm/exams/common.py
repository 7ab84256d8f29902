"""Mistakes that are made often, in the solutions that graders get: what each is, and the number it gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from symcomm.core.errors import SymcommError
from symcomm.core.printing import short
from symcomm.documents.render.document import Answer, Block, Document
from symcomm.exams.key import Key, key_of, mistakes_of
from symcomm.exams.mistakes import BY_NAME
from symcomm.exams.problems.problem import Problem

# Slips of the pen that say nothing of the question; more than a few mistakes are not read.
_SLIPS = ("gb_for_gib", "bits_for_bytes", "elements_for_bytes", "inverse", "n_minus_1_for_n")
_MOST = 4


def with_mistakes(document: Document, problem: Problem) -> Document:
    """The document with common mistakes below each answer; what cannot be derived is left out."""
    asks = iter(problem.asks)
    blocks: list[Block] = []
    for block in document.blocks:
        if isinstance(block, Answer):
            ask = next(asks)
            with suppress(SymcommError):  # what follows from an earlier answer cannot be asked again by itself
                block = replace(block, mistakes=tuple(_told(key_of(problem, ask), block)))
        blocks.append(block)
    return replace(document, blocks=tuple(blocks))


def _told(key: Key, answer: Answer) -> Iterator[str]:
    values = {**dict(key.given), **key.values, **{g.name: Fraction(g.quantity.value) for g in answer.given}}
    seen: set[str] = set()
    for wrong in sorted(mistakes_of(key), key=lambda one: one.names[0] in BY_NAME):  # the author's own ones first
        if len(seen) == _MOST:
            return
        if len(wrong.names) > 1 or wrong.names[0] in _SLIPS or wrong.says[0] in seen:
            continue
        number = wrong.at(values)
        if number is not None and answer.quantity is not None and number != answer.quantity:
            seen.add(wrong.says[0])
            yield f"{wrong.says[0].rstrip('.')} ({short(number)})"
