"""``symcomm new``: a commented file to begin with, which can be solved at once."""

from __future__ import annotations

import re
from pathlib import Path

import click

from symcomm.cli.shared import PATH

KINDS = ("homework", "exam", "worksheet")
STARTERS = Path(__file__).parent / "starters"


@click.command()
@click.argument("file", type=PATH)
@click.option("--kind", type=click.Choice(KINDS), help="What to begin; by default FILE's name, or a homework.")
def new(file: Path, kind: str | None) -> None:
    """Write a commented FILE to begin with.

    It is a homework, an exam, or a worksheet of your own formulas.

    \b
    symcomm new homework.md
    symcomm new midterm.md --kind exam
    symcomm new worksheet.md

    It can be solved at once. A file that is there is never written over.
    """
    kind = kind or (file.stem if file.stem in KINDS else "homework")
    for path in write_starter(file, kind):
        click.echo(str(path))
    shown = file.parent / (f"{file.stem}-homework.md" if kind == "worksheet" else f"{file.stem}.md")
    following = f"exam {shown} --variants 3 -o papers" if kind == "exam" else f"solve {shown}"
    click.echo(f"next: symcomm {following}", err=True)


def write_starter(file: Path, kind: str) -> list[Path]:
    """Writes the files of a kind, and returns their paths: a worksheet comes with a homework that asks it.

    Raises ``RenderError`` where a file is there already, or has another ending than ``.md``; then nothing is written.
    """
    from symcomm.core.errors import RenderError
    from symcomm.core.files import write_files

    if file.suffix not in ("", ".md"):
        raise RenderError(f"{file} is no name of a Markdown file", hint=f"for instance {file.with_suffix('.md')}")
    if not re.fullmatch(r"[\w-]+", file.stem, re.ASCII):
        raise RenderError(f"'{file.stem}' is no name for a {kind}", hint="use letters, digits, - and _: homework-1.md")
    words = {"FILE": f"{file.stem}.md", "STEM": file.stem, "WORKSHEET": f"{file.stem}.md"}
    names = {f"{file.stem}.md": f"{kind}.md"}
    if kind == "worksheet":
        homework = f"{file.stem}-homework.md"
        names[homework], words["FILE"] = f"{kind}-homework.md", homework
    there = next((file.parent / name for name in names if (file.parent / name).exists()), None)
    if there is not None:
        raise RenderError(f"{there} is there already", hint="choose another name, or move it away first")
    files = {}
    for name, starter in names.items():
        text = (STARTERS / starter).read_text(encoding="utf-8")
        files[name] = re.sub(r"\b(FILE|STEM|WORKSHEET)\b", lambda found: words[found[0]], text).encode()
    return write_files(files, file.parent)
