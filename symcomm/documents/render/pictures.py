"""The pictures of a document as files beside it, in the source's folder, or inline in HTML.

A file's name comes from the name of the document and the picture's place in it, never from what the author wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from symcomm.documents.editions import Edition
from symcomm.documents.plots.drawing import Sketch
from symcomm.documents.plots.figure import said, written
from symcomm.documents.render.document import Document, Picture

# What each kind of source shows: Typst and browsers read SVG, TeX reads PDF.
KIND = {"md": "svg", "tex": "pdf", "typ": "svg", "html": "svg"}


def pictures(document: Document, edition: Edition) -> tuple[Picture, ...]:
    """The pictures that are shown, in order."""
    return tuple(block for block in document.shown(edition) if isinstance(block, Picture))


def file_name(stem: str, number: int, kind: str) -> str:
    """The name of a picture's file for a kind of source; pictures count from 1.

    >>> file_name("homework", 2, "tex")
    'homework-figure-2.pdf'
    """
    return f"{stem}-figure-{number}.{KIND[kind]}"


def files(
    document: Document, kind: str, stem: str, edition: Edition, templates: Path | None = None
) -> dict[str, bytes]:
    """The files of all pictures that a kind of source shows, in the document's language."""
    from symcomm.documents.render.words import words  # whoever only reads documents has no use for templates

    say = words(document.language.strip() or "en", templates).catalogue
    return {
        file_name(stem, n, kind): _in_words(picture, say, KIND[kind])
        for n, picture in enumerate(pictures(document, edition), 1)
    }


def _in_words(picture: Picture, say: Callable[[str], str], kind: str) -> bytes:
    if isinstance(picture.drawn, Sketch):
        return written(picture.drawn.said(say), kind)
    with said(picture.drawn, say):
        return written(picture.drawn, kind)


def inline(picture: Picture, number: int, say: Callable[[str], str] = str) -> str:
    """A picture as an element of an HTML page: its identifiers are its own, and it brings no metadata."""
    svg = _in_words(picture, say, "svg").decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    mark = f"figure-{number}-"
    svg = re.sub(r'(\bid=")', rf"\g<1>{mark}", svg)
    svg = re.sub(r'((?:xlink:)?href="#)', rf"\g<1>{mark}", svg)
    svg = re.sub(r"(url\(#)", rf"\g<1>{mark}", svg)
    # Without Matplotlib's style sheet, which would hold for the whole page, its two properties stand on the picture.
    opening = f'<svg role="img" aria-labelledby="{mark}caption" stroke-linejoin="round" stroke-linecap="butt"'
    return re.sub(r"\s*\n\s*", "\n", svg.replace("<svg", opening, 1)).strip()
