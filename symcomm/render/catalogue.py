"""Sentences of ours in other languages: a catalogue by their English pattern, as gettext has them.

A pattern is a sentence with ``{}`` where names, numbers and lists stand; these are translated by the same catalogue, or
by its ``pieces``, which only stand within a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

_FOUND = r"((?:(?!\. [A-Z0-9`]).)+?)"  # what stands in a hole is no more than a sentence
_HOLE = re.compile(r"\{\d*\}")
_SENTENCES = re.compile(r"(?:(?<=\.)|(?<=`:)) (?=[A-Z0-9`])")  # after a full stop, and after a name that is explained
_DECIMAL = re.compile(r"(?<=\d)\.(?=\d)(?![^`]*`[^`]*(?:`[^`]*`[^`]*)*$)")  # in a number, not in a name
_MATHS = re.compile(r"`[^`]*`")
_WORDS = re.compile(r"[A-Za-z]{2,}.* [a-z]{2,}")  # more than a name, a unit or a number


@dataclass
class Catalogue:
    """The sentences and the pieces of sentences of one language; ``missing`` are those that it lacked.

    ``decimal`` stands in its numbers where English has a point.

    >>> german = Catalogue({"{} bytes an element ({}).": "{} Bytes je Element ({})."}, {"{} and {}": "{1} und {0}"})
    >>> german("4 bytes an element (a and b). All calls."), list(german.missing)
    ('4 Bytes je Element (b und a). All calls.', ['All calls.'])
    """

    sentences: Mapping[str, str] = field(default_factory=dict)
    pieces: Mapping[str, str] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    decimal: str = "."

    __hash__ = object.__hash__

    def __call__(self, text: str) -> str:
        """The text in the language, sentence by sentence; what has no translation stays and is noted."""
        if not self.sentences or not text:
            return text
        if self.decimal != ".":
            text = _DECIMAL.sub(self.decimal, text)
        found = self._whole(text, self._sentences)
        if found is not None:
            return found
        parts = _SENTENCES.split(text)
        if len(parts) > 1:
            return " ".join(map(self, parts))
        if text.endswith(".") and _WORDS.search(_MATHS.sub("", text)):
            self.missing[text] = None
        return text

    def _piece(self, text: str) -> str:
        for patterns in (self._pieces, self._sentences):
            found = self._whole(text, patterns)
            if found is not None:
                return found
        return text

    def _whole(self, text: str, patterns: tuple[tuple[re.Pattern[str], str], ...]) -> str | None:
        for pattern, told in patterns:
            match = pattern.fullmatch(text)
            if match:
                return told.format(*map(self._piece, match.groups()))
        return None

    @cached_property
    def _sentences(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        return _compiled(self.sentences)

    @cached_property
    def _pieces(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        return _compiled(self.pieces)


def _compiled(entries: Mapping[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    """The patterns, the most literal ones first."""
    order = sorted(entries, key=lambda pattern: len(_HOLE.sub("", pattern)), reverse=True)
    return tuple((re.compile(_FOUND.join(map(re.escape, _HOLE.split(p)))), entries[p]) for p in order)
