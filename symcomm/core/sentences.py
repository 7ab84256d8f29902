"""The tables of sentences that have an id: rewording one keeps its translations, which hang on the id."""

from __future__ import annotations

from collections.abc import Callable, Mapping

SENTENCES: dict[str, Callable[[], Mapping[str, str]]] = {}  # by the name of the table: its English sentences by id
