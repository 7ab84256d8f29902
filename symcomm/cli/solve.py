"""``symcomm solve``: a problem file as a worked solution."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from symcomm.cli.shared import PATH, accounting_option, comma, conventions, pages, progress_bar, read_template
from symcomm.documents.editions import DETAILS, EDITIONS

FORMATS = ("pdf", "md", "tex", "html", "json")


@click.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--to", "formats", default=["pdf"], multiple=True, show_default=True, callback=comma(FORMATS), metavar="LIST",
    help="Formats, with commas: pdf, md, tex, html, json.",
)  # fmt: skip
@click.option("-o", "--output", default="out", show_default=True, type=PATH, help="A folder.")
@pages
@click.option(
    "--edition", "editions", default=["solution"], multiple=True, show_default=True, callback=comma(EDITIONS),
    metavar="LIST", help="Editions, with commas: paper, solution, key, graders.",
)  # fmt: skip
@click.option("--detail", type=click.Choice(DETAILS), help="How much of each derivation is shown.")
@click.option("--mistakes", is_flag=True, help="Common mistakes below each answer; graders always get them.")
@accounting_option
def solve(files: tuple[Path, ...], **options: Any) -> None:
    """Solve problem FILEs: worked solutions of every question.

    \b
    symcomm solve homework.md --to pdf,md,tex,html -o out/
    symcomm solve homework.md --edition paper,solution,key,graders -o out/
    """
    twice = next((file for n, file in enumerate(files) if file.stem in [other.stem for other in files[:n]]), None)
    if twice is not None:
        raise click.UsageError(
            f"two files are called {twice.stem}, and so would their solutions; write one into another folder (-o)"
        )
    for file in files:
        _solve(file, **options)


def _solve(
    file: Path, formats: tuple[str, ...], output: Path, templates: Path | None, engine: str, editions: tuple[str, ...],
    detail: str | None, mistakes: bool, accounting: tuple[str, ...],
) -> None:  # fmt: skip
    """Writes the solution of one file."""
    problem = read_template(file).problem()
    from symcomm.exams.problems.solve import solve as solved

    with progress_bar(file.name) as progress:
        document = solved(problem, progress, conventions(accounting))
    if detail:
        document = replace(document, detail=detail)  # type: ignore[arg-type]  # click checked it
    if mistakes or "graders" in editions:
        from symcomm.exams.common import with_mistakes

        document = replace(with_mistakes(document, problem), mistakes_in=EDITIONS if mistakes else ("graders",))
    for note in document.told:
        click.echo(f"note: {document.file}: {note}", err=True)
    from symcomm.documents.render import render as rendered

    for path in rendered(document, formats, output, editions=editions, templates=templates, engine=engine,  # type: ignore[arg-type]  # click checked them
                         name=file.stem):  # fmt: skip
        click.echo(str(path))
    from symcomm.documents.render.words import words

    missing = [*words(document.language.strip() or "en", templates).catalogue.missing]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        click.echo(f"note: {document.file}: no translation into '{document.language}' of \"{missing[0]}\"{more}: they "
                   "stay in English; add them to the sentences of the language's file", err=True)  # fmt: skip
