"""Worksheets: quantities that need no model, as text files of formulas with reasons, units and sources.

The files that come with symcomm stand in folders named as the groups of quantities.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from symcomm.core.records import ReadLater
from symcomm.core.sentences import SENTENCES
from symcomm.core.worksheets.sheet import Input, Worksheet, parse_worksheet, read_worksheet

__all__ = ["Input", "Worksheet", "built_in", "parse_worksheet", "read_worksheet"]


@cache
def built_in() -> Mapping[str, Worksheet]:
    """The worksheets that come with symcomm, by name; a formula is read at its first use.

    >>> built_in()["pipelined_broadcast"].summary
    'the time of a broadcast along a chain in chunks, and the best number of chunks'
    """
    files = {file.stem: file for file in sorted(Path(__file__).parent.glob("*/*.md"))}
    return ReadLater(files, lambda name, file: parse_worksheet(file.read_text(encoding="utf-8"), file.name))


def _sentences() -> dict[str, str]:
    """Reasons, notes and meanings by worksheet and line, question or symbol; the second text of a line has a 2."""
    found: dict[str, str] = {}
    for sheet, made in built_in().items():
        asked = made.read.questions
        said = [(symbol.name, symbol.meaning) for symbol in made.read.symbols.values()]
        said += [(line.name, line.reason) for line in (*made.read.lines, *(line for q in asked for line in q.lines))]
        said += [(q.title, text) for q in asked for text in (*q.notes, *(c.text for c in q.claims if not c.required))]
        for name, text in said:
            others = [one for one in found if one.partition(" ")[0] == f"{sheet}.{name}"]
            if text and text not in found.values():
                found[f"{sheet}.{name}" + (f" {len(others) + 1}" if others else "")] = text
    return found


SENTENCES["worksheets"] = _sentences
