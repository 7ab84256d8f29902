"""Files that a page shows: its pictures, the logo of its document, and what lies beside a template.

A picture stands in the source's folder, or inline in HTML; its name comes from the name of the document and its place
there, never from what the author wrote.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path

from symcomm.core.errors import RenderError
from symcomm.core.records import dataclass
from symcomm.documents.editions import Edition
from symcomm.documents.plots.drawing import Sketch
from symcomm.documents.plots.figure import said, written
from symcomm.documents.render.document import Document, Picture

KINDS = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".svg": "image/svg+xml",
         ".pdf": "application/pdf"}  # fmt: skip
_SHOWN = {"typ": (".png", ".jpg", ".jpeg", ".svg", ".pdf"), "tex": (".png", ".jpg", ".jpeg", ".pdf"),
          "html": (".png", ".jpg", ".jpeg", ".svg"), "md": (".png", ".jpg", ".jpeg", ".svg")}  # fmt: skip
SIZE_LIMIT = 5_000_000  # bytes of one file
COUNT_LIMIT = 50


@dataclass(frozen=True)
class Assets:
    """The files by the names a template uses, and what the logo is called there (in HTML the picture itself)."""

    files: dict[str, bytes] = field(default_factory=dict)
    logo: str = ""


def assets(document: Document, kind: str, templates: Path | None) -> Assets:
    """The files of a page in a template's language.

    Raises ``RenderError`` for a logo that is missing, too large, or that the language cannot show.
    """
    files: dict[str, bytes] = {}
    beside = sorted(templates.iterdir()) if templates is not None and templates.is_dir() else []
    for path in [p for p in beside if p.suffix.lower() in _SHOWN[kind] and p.is_file()][:COUNT_LIMIT]:
        files[path.name] = _read(path)
    said = dict(document.extra).get("logo", "")
    if not said:
        return Assets(files)
    folders = [Path(document.file).parent, *([templates] if templates is not None else [])]
    found = next((f / said for f in folders if _inside(f / said, f) and (f / said).is_file()), None)
    if found is None:
        where = " or ".join(str(folder) for folder in dict.fromkeys(folders))
        raise RenderError(f"there is no logo '{said[:60]}'", hint=f"put it into {where}")
    if found.suffix.lower() not in _SHOWN[kind]:
        hint = f"give it as {', '.join(end.lstrip('.') for end in _SHOWN[kind])}"
        raise RenderError(f"the logo '{said[:60]}' cannot be shown in this format ({kind})", hint=hint)
    data = _read(found)
    if kind == "html":
        return Assets(files, f"data:{KINDS[found.suffix.lower()]};base64,{base64.b64encode(data).decode()}")
    return Assets({**files, found.name: data}, found.name)


def _inside(path: Path, folder: Path) -> bool:
    """Whether a path stays below a folder."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except OSError:
        return False


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > SIZE_LIMIT:
            raise RenderError(f"{path} has more than {SIZE_LIMIT // 10**6} MB", hint="a logo is a small picture")
        return path.read_bytes()
    except OSError as error:
        raise RenderError(f"{path} cannot be read: {error.strerror}") from error


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
