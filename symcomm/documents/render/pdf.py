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
from symcomm.core.records import dataclass

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
        path = _placed(folder / "main.typ", source, files)
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
_PAGE, _SHORT = 25.3, 13.5  # centimetres of text on a page, and of an answer that stays on one
_CLOSER = 0.15  # of a page is spared on each page before the last one, at most


@dataclass(frozen=True)
class _Layout:
    """Where things are: the pages, how full the last one is, and the answers on two pages that one would hold."""

    pages: int
    full: float
    broken: tuple[int, ...]


def typst_pages(source: str, files: Mapping[str, bytes] | None = None) -> bytes:
    """The same, set a little tighter where only little would stand on a last page of its own or an answer would break.

    A short answer stays on one page where the document has no more pages for it.
    """
    made = typst_pdf(source, files)
    if _LOOSE not in source or "<edge>" not in source or re.search(rb"/Pages\s*/Count 1\b", made):
        return made
    ways = [(source, _layout(source, files))]
    if ways[0][1].broken or ways[0][1].full <= _CLOSER * (ways[0][1].pages - 1) + 0.2:
        tight = source.replace(_LOOSE, _TIGHT, 1)
        ways.append((tight, _layout(tight, files)))
        if ways[1][1].pages < ways[0][1].pages:
            ways.pop(0)
    settled = _settled(*ways[0], files)
    if settled[1].broken and len(ways) > 1:
        settled = min(settled, _settled(*ways[1], files), key=lambda made: (made[1].pages, len(made[1].broken)))
    return typst_pdf(settled[0], files)


def _settled(source: str, best: _Layout, files: Mapping[str, bytes] | None) -> tuple[str, _Layout]:
    """The source that keeps together what belongs together where that takes no page more."""
    stuck = source.replace("#let stuck = false\n", "#let stuck = true\n", 1)
    if (found := _layout(stuck, files)).pages == best.pages:
        source, best = stuck, found
    kept = ""
    tried = 0
    while number := next((number for number in best.broken if number > tried), 0):
        tried = number
        changed = source.replace(f"#let kept = ({kept})\n", f"#let kept = ({kept}{number}, )\n", 1)
        found = _layout(changed, files)
        if found.pages == best.pages and len(found.broken) <= len(best.broken):
            source, best, kept = changed, found, f"{kept}{number}, "
    return source, best


def _layout(source: str, files: Mapping[str, bytes] | None) -> _Layout:
    """The layout of a document, as its template says it."""
    import json

    import typst

    with temporary_folder() as folder:
        path = _placed(folder / "main.typ", source, files)
        edges = json.loads(typst.query(str(path), "<edge>", field="value", root=str(folder), font_paths=_fonts()))
    first = {number: (page, at) for name, number, page, at in edges if name == "first"}
    ends = ((number, page, first[number], at) for name, number, page, at in edges if name == "last")
    broken = tuple(n for n, page, (begins, top), at in ends if 0 < page - begins < (_SHORT + top - at) / _PAGE)
    full, pages = next(((value, page) for name, value, page, _ in edges if name == "end"), (1.0, 1))
    return _Layout(pages, full, broken)


def _placed(path: Path, source: str, files: Mapping[str, bytes] | None) -> Path:
    """Writes a source, and its files beside it."""
    for name, data in (files or {}).items():
        (path.parent / name).write_bytes(data)
    path.write_text(source, encoding="utf-8")
    return path


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
        _placed(folder / "main.tex", source, files)
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
