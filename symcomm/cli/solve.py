"""``symcomm solve``: a problem file as a worked solution."""

from __future__ import annotations

from pathlib import Path

import click

from symcomm.cli.shared import PATH, accounting_option, comma, conventions, progress_bar

FORMATS = ("pdf", "md", "tex", "html")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--to", "formats", default="pdf", show_default=True, callback=comma(FORMATS), metavar="LIST",
    help="Formats, with commas: pdf, md, tex, html.",
)  # fmt: skip
@click.option("-o", "--output", default="out", show_default=True, type=PATH, help="A folder.")
@click.option("--templates", type=click.Path(path_type=Path), help="A folder with templates that replace ours.")
@click.option(
    "--engine", type=click.Choice(["typst", "latex"]), default="typst", show_default=True, help="What makes the PDF."
)
@accounting_option
def solve(
    file: Path, formats: tuple[str, ...], output: Path, templates: Path | None, engine: str, accounting: tuple[str, ...]
) -> None:
    """Solve a problem FILE: every question derived, as a worked solution.

    \b
    symcomm solve homework.md --to pdf,md,tex,html -o out/
    """
    from symcomm.problems.problem import read_problem
    from symcomm.problems.solve import solve as solved

    problem = read_problem(file)
    with progress_bar() as progress:
        document = solved(problem, progress, conventions(accounting))
    from symcomm.render import render

    for path in render(document, formats, output, templates=templates, engine=engine, name=file.stem):  # type: ignore[arg-type]  # click checked it
        click.echo(str(path))
