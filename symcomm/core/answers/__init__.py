"""Reads what students type: characters, numbers, units, names, formulas; nothing is evaluated as code."""

from __future__ import annotations


class UnreadError(Exception):
    """Why an answer is not read: ``hint`` tells how to write it; ``refused`` where it is hostile or too big."""

    def __init__(self, hint: str, *, refused: bool = False) -> None:
        super().__init__(hint)
        self.hint, self.refused = hint, refused
