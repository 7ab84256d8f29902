"""Draws the op graph: as text for a terminal, as DOT for Graphviz, as SVG for a page."""

from __future__ import annotations

from collections.abc import Callable

from symcomm.core.drawing.as_svg import svg
from symcomm.core.drawing.as_text import dot, rails, text
from symcomm.core.drawing.picture import Box, Drawing, kind_text, picture, shape_text, shown_name
from symcomm.core.graph.graph import Graph

__all__ = [
    "WRITERS", "Box", "Drawing", "dot", "kind_text", "picture", "rails", "shape_text", "shown_name", "svg", "text",
]  # fmt: skip

WRITERS: dict[str, Callable[[Graph], str]] = {"text": text, "dot": dot, "svg": svg}
