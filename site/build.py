"""Builds the site: ``python site/build.py`` writes it to ``out/site`` (needs ``pip install '.[site,pdf,search]'``).

    python site/build.py                  everything, with all documents of the gallery
    python site/build.py --gallery midterm,zero-table
    python site/build.py --gallery none   in a minute
    python site/build.py --page out/page  with the page that `symcomm serve --build -o out/page` wrote

Pages are those of ``docs/``; the reference is made from the registries and the gallery from ``examples/``. A link
that leads nowhere, and any other warning, fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RENAMED = {"search.md": "find-a-strategy.md"}  # Sphinx has a page "search" of its own
DOCS = ROOT / "docs"
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")


def main() -> None:
    """Reads the command line and builds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "out" / "site")
    parser.add_argument("--gallery", default="all", help="all, none, or folders of examples/ with commas")
    parser.add_argument("--page", type=Path, help="the folder of the page that runs in a browser")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        sources(source, documents(asked.gallery))
        if asked.page:
            with (source / "index.md").open("a", encoding="utf-8") as index:
                index.write("\n```{button-link} try/index.html\n:color: primary\nTry it in your browser\n```\n")
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "-n", "--keep-going", "-c", str(ROOT / "site"),
                   "-b", "html", "-d", str(source / ".doctrees"), str(source), str(asked.output)]  # fmt: skip
        status = subprocess.run(command, check=False).returncode  # noqa: S603  (our own command)
        if status == 0 and (source / "files").is_dir():
            shutil.copytree(source / "files", asked.output, dirs_exist_ok=True)
        if status == 0 and asked.page:
            shutil.copytree(asked.page, asked.output / "try", dirs_exist_ok=True)
    if status == 0:
        print(asked.output / "index.html")
    sys.exit(status)


def documents(gallery: str) -> list[Path]:
    """The documents of the gallery: Markdown files of ``examples/`` with a question or a layer table."""
    if gallery == "none":
        return []
    found = [p for p in sorted((ROOT / "examples").rglob("*.md")) if "```symcomm" in p.read_text(encoding="utf-8")]
    chosen = None if gallery == "all" else gallery.split(",")
    return [path for path in found if chosen is None or path.parent.name in chosen]


def sources(folder: Path, shown: list[Path]) -> None:
    """Writes all pages as Sphinx reads them."""
    sys.path[:0] = [str(ROOT), str(ROOT / "site")]
    from reference import reference

    for path in sorted(DOCS.rglob("*")):
        if path.suffix in (".md", ".png"):
            inside = path.relative_to(DOCS)
            target = folder / inside.with_name(RENAMED.get(inside.name, inside.name))
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                target.write_text(linked(path.read_text(encoding="utf-8"), path), encoding="utf-8")
            else:
                shutil.copy(path, target)
    for name, text in reference().items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "site" / "index.md", folder / "index.md")
    log = ROOT / "CHANGELOG.md"
    (folder / "changes.md").write_text(linked(log.read_text(encoding="utf-8"), log), encoding="utf-8")
    (folder / "gallery").mkdir()
    cards = [exhibit(path, folder) for path in shown]
    more = "\n".join(name for name, _ in cards)
    grid = "\n".join(text for _, text in cards) or "Built without its documents."
    if cards:
        grid = f"::::{{grid}} 2 2 3 3\n:gutter: 3\n\n{grid}\n::::\n\n```{{toctree}}\n:hidden:\n{more}\n```\n"
    (folder / "gallery" / "index.md").write_text(
        "# Gallery\n\nEach document is shown with its source, as PDF and as HTML.\n\n"
        + grid,
        encoding="utf-8",
    )  # fmt: skip


def linked(text: str, page: Path) -> str:
    """A page of the repository as one of the site: links to pages are kept, a file that is not on the site is named."""

    def link(found: re.Match[str]) -> str:
        said, target, anchor = found.groups()
        path = (page.parent / target).resolve()
        if not path.is_relative_to(DOCS) or path.suffix not in (".md", ".png"):
            name = path.relative_to(ROOT).as_posix()
            return f"`{name}`" if said.strip("`") == name else f"{said} (`{name}`)"
        inside = path.with_name(RENAMED.get(path.name, path.name))
        home = page.parent if page.is_relative_to(DOCS) else DOCS
        return f"[{said}]({os.path.relpath(inside, home)}{anchor or ''})"

    return _LINK.sub(link, text).replace("```csv\n", "```text\n")


def exhibit(path: Path, folder: Path) -> tuple[str, str]:
    """Solves a document, and writes its page: first page, source, and links to PDF and HTML. Returns its card."""
    import symcomm as sc
    from symcomm.documents.render import render

    name = path.stem if path.stem == path.parent.name else f"{path.parent.name}-{path.stem}"
    files = folder / "files" / "gallery" / name
    template = path.parent / "template"
    document = sc.solve(sc.read_problem(path))
    render(document, ("pdf", "html"), files, templates=template if template.is_dir() else None, name=name)
    thumbnail(files / f"{name}.pdf", folder / "gallery" / f"{name}.png")
    title = document.title or path.stem
    text = beside(name, title, path.read_text(encoding="utf-8"))
    (folder / "gallery" / f"{name}.md").write_text(text, encoding="utf-8")
    return name, f":::{{grid-item-card}} {title}\n:link: {name}\n:link-type: doc\n:img-top: {name}.png\n:::\n"


def beside(name: str, title: str, source: str) -> str:
    """The page of a document: its first page, and beside it the source, whose own fences are shorter than ours."""
    longest = max((len(run) for run in re.findall(r"^(:{3,}|`{3,})", source, re.MULTILINE)), default=3)
    item, grid, code = ":" * (longest + 1), ":" * (longest + 2), "`" * (longest + 1)
    return (f"# {title}\n\n{grid}{{grid}} 1 1 2 2\n\n{item}{{grid-item}}\n"
            f"{{bdg-link-primary}}`PDF <{name}/{name}.pdf>` {{bdg-link-primary}}`HTML <{name}/{name}.html>`\n\n"
            f"![The first page of {title}]({name}.png)\n{item}\n\n"
            f"{item}{{grid-item}}\n{code}markdown\n{source}\n{code}\n{item}\n{grid}\n")  # fmt: skip


def thumbnail(pdf: Path, picture: Path) -> None:
    """The first page of a PDF as a picture."""
    import pypdfium2

    with pypdfium2.PdfDocument(pdf) as document:
        document[0].render(scale=0.7).to_pil().save(picture)


if __name__ == "__main__":
    main()
