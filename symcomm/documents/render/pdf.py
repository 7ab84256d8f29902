"""PDF from Typst source (the default) or from LaTeX source where TeX is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from symcomm.core.errors import RenderError
from symcomm.core.files import temporary_folder

_DEBIAN = "latexmk texlive-latex-extra texlive-fonts-recommended lmodern"
_LATEX_TIMEOUT = 180  # seconds
_CHINESE = re.compile("[\u2e80-\u9fff\uf900-\ufaff]")


def typst_pdf(source: str, files: Mapping[str, bytes] | None = None) -> bytes:
    """The tagged PDF (PDF/UA-1) of a Typst source, which can read no file but itself and ``files``.

    The same source gives the same bytes: only the fonts in Typst itself are used, unless the text needs others.
    """
    try:
        import typst
    except ImportError as error:
        raise RenderError.lacking("pdf", "the Typst compiler is missing: no PDF can be made") from error
    # Typst's own fonts know Latin, Greek, Cyrillic and mathematics; other scripts need the fonts of the system.
    foreign = re.search("[\u0590-\u1dff\u2e80-\ufaff\U0001f000-\U0010ffff]", source) is not None
    with temporary_folder() as folder:
        _beside(folder, files)
        path = folder / "main.typ"
        path.write_text(source, encoding="utf-8")
        try:
            made: object = typst.compile(
                str(path), root=str(folder), pdf_standards=["ua-1"], ignore_system_fonts=not foreign, timestamp=0,
                font_paths=_fonts() if foreign else [],
            )  # fmt: skip
        except typst.TypstError as error:
            lacking = re.search(r'the text `"(.+?)"` could not be displayed', str(error))
            if lacking:
                told = RenderError.lacking(
                    "cjk", f"no font on this machine has '{lacking[1][:20]}' (U+{ord(lacking[1][0]):04X}), so the PDF "
                    "cannot show it",
                )  # fmt: skip
                chinese = f"{told.hint}, or apt-get install fonts-noto-cjk" if _CHINESE.search(lacking[1]) else ""
                told.hint = (chinese or "install a font that has it, such as Noto") + (
                    "; or write --to html, which is set by the browser"
                )
                raise told from error
            # The diagnosis names the line of the source, which helps where the template is the user's.
            found = re.search(r"main\.typ:(\d+)", str(getattr(error, "diagnostic", "")))
            lines = source.splitlines()
            number = int(found[1]) if found else 0
            where = f" (line {number}: {_short(lines[number - 1])})" if 0 < number <= len(lines) else ""
            hints = "; ".join(getattr(error, "hints", None) or [])
            raise RenderError(f"Typst could not set the document: {_short(str(error))}{where}", hint=hints) from error
    if not isinstance(made, bytes):
        raise RenderError("Typst made no PDF")
    return made


def _fonts() -> list[str]:
    """The folder of the fonts that the extra ``cjk`` brings, where it is installed."""
    found = find_spec("justmytype_intl_cjk")
    return [str(Path(found.origin).parent / "fonts")] if found is not None and found.origin is not None else []


_LOOSE, _TIGHT = "#let tight = false\n", "#let tight = true\n"
_KEPT, _BROKEN = "#let kept = 12cm\n", "#let kept = 0cm\n"
_HEIGHTS = (12, 9, 7)  # of answers that are kept on one page, in cm; a taller one would leave half a page empty
_CLOSER = 0.15  # of a page is spared on each page before the last one, at most


def typst_pages(source: str, files: Mapping[str, bytes] | None = None) -> bytes:
    """The same, set a little tighter where only little would stand on a last page of its own.

    Answers of at most half a page stay on one page, or shorter ones, where the document has no more pages for it.
    """
    broken, made = _closer(source.replace(_KEPT, _BROKEN, 1), files)
    if _pages(made) < 2 or _BROKEN not in broken:
        return made
    tried = (typst_pdf(broken.replace(_BROKEN, f"#let kept = {height}cm\n", 1), files) for height in _HEIGHTS)
    return next((kept for kept in tried if _pages(kept) == _pages(made)), made)


def _closer(source: str, files: Mapping[str, bytes] | None) -> tuple[str, bytes]:
    """A source as it is best set, and its PDF."""
    made = typst_pdf(source, files)
    if _LOOSE not in source or _pages(made) < 2 or _last(source, files) > _CLOSER * (_pages(made) - 1) + 0.1:
        return source, made
    tight = source.replace(_LOOSE, _TIGHT, 1)
    closer = typst_pdf(tight, files)
    return (tight, closer) if _pages(closer) < _pages(made) else (source, made)


def _pages(pdf: bytes) -> int:
    return max((int(count) for count in re.findall(rb"/Type\s*/Pages\s*/Count (\d+)", pdf)), default=1)


def _last(source: str, files: Mapping[str, bytes] | None) -> float:
    """How much of its last page a document fills, as its template says."""
    import json

    import typst

    with temporary_folder() as folder:
        _beside(folder, files)
        path = folder / "main.typ"
        path.write_text(source, encoding="utf-8")
        found = json.loads(typst.query(str(path), "<end>", field="value", root=str(folder), font_paths=_fonts()))
    return float(found[0]) if found else 1.0


def _beside(folder: Path, files: Mapping[str, bytes] | None) -> None:
    for name, data in (files or {}).items():
        (folder / name).write_bytes(data)


def latex_pdf(source: str, epoch: int = 0, files: Mapping[str, bytes] | None = None) -> bytes:
    """The PDF of a LaTeX source, made by latexmk without shell escape in a folder of its own with ``files``."""
    return latex_run(source, epoch, files)[0]


def latex_run(source: str, epoch: int = 0, files: Mapping[str, bytes] | None = None) -> tuple[bytes, str]:
    """The PDF of a LaTeX source and TeX's log."""
    latexmk = shutil.which("latexmk")
    if latexmk is None or shutil.which("pdflatex") is None:
        raise RenderError(
            "latexmk or pdflatex is missing: --engine latex needs TeX",
            hint=f"on Debian or Ubuntu: apt-get install {_DEBIAN}; or use the default engine, which needs no TeX",
        )
    with temporary_folder() as folder:
        _beside(folder, files)
        (folder / "main.tex").write_text(source, encoding="utf-8")
        # TeX may read only below its own folder and write only there; dates come from the document alone.
        environment = os.environ | {
            "SOURCE_DATE_EPOCH": str(epoch),
            "FORCE_SOURCE_DATE": "1",
            "openin_any": "p",
            "openout_any": "p",
            "max_print_line": "1000",
        }
        options = ["-norc", "-pdf", "-no-shell-escape"]
        options += ["-interaction=nonstopmode", "-halt-on-error", "-file-line-error"]
        try:
            run = subprocess.run(  # noqa: S603  (our own arguments)
                [latexmk, *options, "main.tex"],
                cwd=folder,
                env=environment,
                capture_output=True,
                timeout=_LATEX_TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RenderError(f"LaTeX took more than {_LATEX_TIMEOUT} seconds") from error
        log_file, pdf = folder / "main.log", folder / "main.pdf"
        log = log_file.read_text(encoding="utf-8", errors="replace") if log_file.exists() else ""
        if run.returncode or not pdf.exists():
            raise RenderError(f"LaTeX could not set the document: {_latex_fault(log, source)}")
        return pdf.read_bytes(), log


def _latex_fault(log: str, source: str) -> str:
    missing = re.search(r"File `([^']+)' not found", log)
    if missing:
        return f"the package {missing[1]} is missing (on Debian or Ubuntu: apt-get install {_DEBIAN})"
    found = re.search(r"main\.tex:(\d+): (.*)", log)
    if not found:
        return _short(log[-300:] or "no log was written")
    lines = source.splitlines()
    number = int(found[1])
    return f"{found[2]} (line {number}: {_short(lines[number - 1]) if number <= len(lines) else ''})"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:297] + "..."
