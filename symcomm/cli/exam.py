"""``symcomm exam``: papers of their own for a class, their keys, and a test of the template."""

from __future__ import annotations

from pathlib import Path

import click

from symcomm.cli.shared import comma, progress_bar

FORMATS = ("pdf", "md", "html", "tex", "json", "csv")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--variants", type=int, metavar="N", help="How many papers, numbered 001, 002, ...")
@click.option("--roster", type=click.Path(path_type=Path), help="A CSV file with the columns id, name, seat.")
@click.option("--seed", default="0", show_default=True, help="Another seed gives other papers.")
@click.option(
    "--to", "formats", default="pdf,json", show_default=True, callback=comma(FORMATS), metavar="LIST",
    help="With commas: pdf, md, html, tex (pages); json, csv (keys).",
)  # fmt: skip
@click.option(
    "--edition", type=click.Choice(["paper", "solution", "graders", "key"]), default="paper", show_default=True,
    help="The paper of each student, its solution, that with points for graders, or the keys only.",
)  # fmt: skip
@click.option("-o", "--output", default="out", show_default=True, type=click.Path(path_type=Path), help="A folder.")
@click.option("--templates", type=click.Path(path_type=Path), help="A folder with templates that replace ours.")
@click.option(
    "--engine", type=click.Choice(["typst", "latex"]), default="typst", show_default=True, help="What makes the PDF."
)
@click.option("--processes", type=click.IntRange(1, 256), help="How many processes (one for each core by default).")
@click.option("--test", "tested", is_flag=True, help="Test the template on hundreds of draws; nothing is written.")
@click.option("--draws", type=click.IntRange(1, 100_000), default=300, show_default=True, help="Draws of the test.")
def exam(
    file: Path, variants: int | None, roster: Path | None, seed: str, formats: tuple[str, ...], edition: str,
    output: Path, templates: Path | None, engine: str, processes: int | None, tested: bool, draws: int,
) -> None:  # fmt: skip
    """Make the papers of a class from a problem FILE: each student's own values, questions and order.

    \b
    symcomm exam midterm.md --roster roster.csv --seed 7 --to pdf,json,csv -o out/
    symcomm exam midterm.md --roster roster.csv --seed 7 --edition solution --to html -o solutions/
    symcomm exam midterm.md --test
    """
    from symcomm import __version__
    from symcomm.errors import DocumentError
    from symcomm.exam.roster import numbered, read_roster
    from symcomm.problems.problem import read_template

    template = read_template(file)
    if tested:
        from symcomm.exam.self_test import self_test

        with progress_bar("testing") as progress:
            report = self_test(template, seed, draws, progress)
        click.echo(report.text)
        if report.problems:
            raise click.exceptions.Exit(1)
        return
    if (variants is None) == (roster is None):
        raise DocumentError("say how many papers: --variants 30, or --roster roster.csv")
    from symcomm.exam.writing import PAGES, Order, make

    students = numbered(variants) if variants is not None else read_roster(roster or Path())
    if edition == "key":
        formats = tuple(f for f in formats if f not in PAGES) or ("json", "csv")
    order = Order(formats, edition, templates, engine, __version__)  # type: ignore[arg-type]  # click checked both
    with progress_bar("papers:") as progress:
        paths = make(template, students, seed, order, output, processes=processes, progress=progress)
    shown = [path for path in paths if path.suffix in (".json", ".csv") or len(students) <= 5]
    for path in shown:
        click.echo(str(path))
    if len(paths) > len(shown):
        click.echo(f"{len(paths) - len(shown)} pages in {output}")
