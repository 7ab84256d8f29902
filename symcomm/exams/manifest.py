"""The manifest of a folder: what each file was made from and its SHA-256, so that what is finished is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from symcomm.core.files import write_files

MANIFEST = "manifest.json"
Line = dict[str, str]  # file, from, sha256; and the paper or the number of questions


def read_manifest(output: Path) -> dict[str, Line]:
    """The lines of a manifest by their files; nothing where there is none that can be read."""
    try:
        read = json.loads((output / MANIFEST).read_text(encoding="utf-8"))
        return {line["file"]: line for line in read["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_manifest(output: Path, lines: Mapping[str, Line]) -> None:
    """Writes the manifest, whole or not at all."""
    told = ",\n".join(json.dumps(lines[name], ensure_ascii=False) for name in sorted(lines))
    write_files({MANIFEST: f'{{"files": [\n{told}\n]}}\n'.encode()}, output)


def is_whole(path: Path, line: Line | None, mark: str) -> bool:
    """Whether a file is there as it was made, and from the same."""
    if line is None or line.get("from") != mark:
        return False
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == line["sha256"]
    except OSError:
        return False


def fingerprint(words: Iterable[str]) -> str:
    """One word for the sources of something."""
    return hashlib.sha256("\0".join(words).encode()).hexdigest()
