"""Worksheets: quantities that need no model, as text files of formulas with reasons, units and sources.

The files that come with symcomm stand in folders named as the groups of quantities.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from symcomm.core.worksheets.sheet import Input, Worksheet, parse_worksheet, read_worksheet

__all__ = ["Input", "Worksheet", "built_in", "parse_worksheet", "read_worksheet"]


@cache
def built_in() -> dict[str, Worksheet]:
    """The worksheets that come with symcomm, by name; a formula is read when it is asked for.

    >>> built_in()["pipelined_broadcast"].summary
    'the time of a broadcast along a chain in chunks, and the best number of chunks'
    """
    files = sorted(Path(__file__).parent.glob("*/*.md"))
    return {file.stem: parse_worksheet(file.read_text(encoding="utf-8"), file.name) for file in files}
