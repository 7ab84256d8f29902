"""Documents as Markdown, LaTeX, HTML and PDF: a document is filled into a template, nothing is computed here."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from symcomm.core.errors import RenderError, nearest
from symcomm.core.files import write_files
from symcomm.core.notation import GREEK_LETTERS
from symcomm.documents.editions import Edition
from symcomm.documents.render import pictures
from symcomm.documents.render.document import Document
from symcomm.documents.render.pictures import assets

FORMATS = ("md", "tex", "html", "pdf", "json")
Engine = Literal["typst", "latex"]
Layout = Literal["solution", "exam"]
_BEHIND = re.compile(r"[,.;:)]+")  # punctuation behind a formula


def render(
    document: Document, formats: Collection[str], output: Path, *, name: str,
    editions: tuple[Edition, ...] = ("solution",), templates: Path | None = None, engine: Engine = "typst",
) -> list[Path]:  # fmt: skip
    """Writes editions of a document in each format, all of them or none: ``homework.pdf``, ``homework-paper.pdf``.

    The pictures of Markdown and LaTeX stand beside them, as ``<name>-figure-1.svg`` and ``.pdf``. The paper has no
    answers. ``templates`` is a folder whose files replace ours of the same name. Nothing is written where any format
    fails: ``RenderError`` says what is missing or not understood.
    """
    unknown = [f for f in formats if f not in FORMATS]
    if unknown:
        raise RenderError(f"unknown format '{unknown[0]}'", hint=nearest(unknown[0], list(FORMATS)))
    if engine not in ("typst", "latex"):
        raise RenderError(f"unknown engine '{engine}'", hint="typst or latex")
    wanted = [f for f in FORMATS if f in formats]
    files: dict[str, bytes] = {}
    for edition in editions:
        stem = safe_name(name) + (f"-{edition}" if edition != "solution" else "")
        for form in wanted:
            _keep(document.file, output / f"{stem}.{form}")
        made = contents(document, wanted, templates=templates, engine=engine, edition=edition, name=stem)
        files |= {f"{stem}.{form}": data for form, data in made.items()}
        for form in wanted:
            if form in ("md", "tex"):  # a PDF and an HTML page hold their pictures
                files |= pictures.files(document, form, stem, edition, templates)
                files |= (
                    assets(document, form, templates).files if form == "tex" or dict(document.extra).get("logo") else {}
                )
    return write_files(files, output)


def _keep(source: str, target: Path) -> None:
    """Raises ``RenderError`` where a write-up would take the place of the file it is made from."""
    try:
        same = bool(source) and target.samefile(source)
    except (OSError, ValueError):  # one of them is not there
        same = False
    if same:
        hint = "name another folder with -o, or another name"
        raise RenderError(f"{target} is the problem file itself, which would be overwritten", hint=hint)


def contents(
    document: Document,
    formats: Collection[str],
    *,
    templates: Path | None = None,
    engine: Engine = "typst",
    edition: Edition = "solution",
    name: str = "document",
    layout: Layout = "solution",
) -> dict[str, bytes]:
    """The bytes of the document in each format; ``name`` is what its files are called.

    Raises ``RenderError`` where the words of a paper tell an answer, and where a format fails.
    """
    if edition == "paper":
        from symcomm.documents.render.telling import telling

        for span in (*document.leaks, *telling(document)):
            hint = "put the sentence between :::solution and :::, or name the number in tells: of the front matter"
            raise RenderError("the paper would tell an answer", span, hint)
    made: dict[str, bytes] = {}
    for form in formats:
        if form == "json":
            from symcomm.documents.render.data import document_json

            made[form] = document_json(document, edition).encode()
        elif form == "pdf":
            from symcomm.documents.render import pdf

            kind = "tex" if engine == "latex" else "typ"
            text = source(document, kind, templates=templates, edition=edition, name=name, layout=layout)
            beside = assets(document, kind, templates).files | pictures.files(document, kind, name, edition, templates)
            made[form] = pdf.latex_pdf(text, files=beside) if kind == "tex" else pdf.typst_pages(text, beside)
        else:
            text = source(document, form, templates=templates, edition=edition, name=name, layout=layout)
            made[form] = text.encode()
    return made


def source(
    document: Document,
    kind: str,
    *,
    templates: Path | None = None,
    edition: Edition = "solution",
    name: str = "document",
    layout: Layout = "solution",
) -> str:
    """The text of the document in a template's language: ``md``, ``tex``, ``html`` or ``typ``.

    The ``layout`` of an exam is LaTeX's class of that name; elsewhere it is that of a solution.
    """
    from symcomm.documents.render.environment import fill
    from symcomm.documents.render.view import page
    from symcomm.documents.render.words import words

    if kind not in ("md", "tex", "html", "typ"):
        raise RenderError(f"there are no templates for '{kind}'")
    told = words(document.language.strip() or "en", templates)
    view = page(document, kind, edition, name, told.catalogue)  # type: ignore[arg-type]  # checked just above
    extras = _extras(document) | {"words": told, "logo": assets(document, kind, templates).logo}
    layout = layout if kind == "tex" else "solution"
    text = fill(kind, f"{layout}.{kind}.jinja", templates, {"page": view, **extras})
    return _with_punctuation(text) if kind == "html" else text


def _with_punctuation(text: str) -> str:
    """HTML in which no line begins with the comma behind a formula."""
    first, *others = text.split("</math>")
    done, before = [], first
    for after in others:
        if mark := _BEHIND.match(after):
            start = before.rfind("<math")
            done.append(f'{before[:start]}<span class="nowrap">{before[start:]}</math>{mark[0]}</span>')
        else:
            done.append(f"{before}</math>")
        before = after[mark.end() :] if mark else after
    return "".join([*done, before])


def _extras(document: Document) -> dict[str, object]:
    """The document's date as numbers and its language as a code and a region, for the templates that need them so."""
    from markupsafe import Markup

    date = re.fullmatch(r"(\d{4})-(\d{2})-(\d{2})", document.date.strip())
    language = re.fullmatch(r"([A-Za-z]{2,3})(?:[-_]([A-Za-z]{2}))?", document.language.strip() or "en")
    if language is None:
        raise RenderError(f"'{document.language[:40]}' is not a language", hint="write a code such as en or en-GB")
    return {
        "unicode": tuple((c, Markup(tex)) for c, tex in latex_characters()),  # noqa: S704  (our own table)
        "day": tuple(int(part) for part in date.groups()) if date else (),
        "lang": language[1].lower(),
        "region": (language[2] or "").upper(),
    }


# Characters that plain LaTeX does not know, with what it writes for them.
_SIGNS: dict[str, str] = dict(re.findall(r"(\S) (\S+)", r"""
    ≤ \leq  ≥ \geq  ≈ \approx  ≠ \neq  ≡ \equiv  ≪ \ll  ≫ \gg  ∈ \in  ∉ \notin  → \to  ← \leftarrow
    ↔ \leftrightarrow  ⇒ \Rightarrow  ∞ \infty  ∑ \sum  ∏ \prod  √ \surd  ∂ \partial  ∇ \nabla  ∝ \propto  ∀ \forall
    ∃ \exists  ⊂ \subset  ⊆ \subseteq  ∪ \cup  ∩ \cap  ⊙ \odot  ⊗ \otimes  ⊕ \oplus  ⌈ \lceil  ⌉ \rceil  ⌊ \lfloor
    ⌋ \rfloor  − -  × \times  · \cdot  ℝ \mathbb{R}  ℓ \ell  ⊤ \top  … \ldots  ′ '  ⋅ \cdot  ∥ \parallel
    ✓ \checkmark  ᵀ ^{\mathsf{T}}
"""))
_SCRIPTS = {c: f"^{{{i}}}" for i, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")} | {c: f"_{{{i}}}" for i, c in enumerate("₀₁₂₃₄₅₆₇₈₉")}
_SPACES = {"\N{THIN SPACE}": "\\,", "\N{NARROW NO-BREAK SPACE}": "\\,", "\N{REPLACEMENT CHARACTER}": "?"}


def latex_characters() -> tuple[tuple[str, str], ...]:
    r"""Each character with the LaTeX that sets it in text and in maths.

    >>> dict(latex_characters())["≤"]
    '\\ensuremath{\\leq}'
    """
    maths = _SIGNS | _SCRIPTS | {"⁻": "^{-}"} | {letter: f"\\{name}" for letter, name in GREEK_LETTERS.items()}
    return tuple((c, f"\\ensuremath{{{tex}}}") for c, tex in maths.items()) + tuple(_SPACES.items())


def safe_name(name: str) -> str:
    """A file's name without anything that could leave its folder.

    >>> safe_name("../../etc/passwd"), safe_name("homework 2: solution")
    ('etc-passwd', 'homework-2-solution')
    """
    kept = re.sub(r"[^\w.\-]+", "-", name).strip("-.")
    return re.sub(r"-?\.{2,}-?|-{2,}", "-", kept)[:120].strip("-.") or "document"
