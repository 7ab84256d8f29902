"""Files that a page shows other than its pictures: the logo of a document, and what lies beside a template."""

from __future__ import annotations

import base64
from dataclasses import field
from pathlib import Path

from symcomm.core.errors import RenderError
from symcomm.core.records import dataclass
from symcomm.documents.render.document import Document

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
