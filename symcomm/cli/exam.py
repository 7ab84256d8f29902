"""``symcomm exam``: papers of their own for a class, their keys, and a test of the template."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from symcomm.cli.shared import PATH, comma, pages, progress_bar, read_template

if TYPE_CHECKING:
    from symcomm.exams.problems.problem import Template

FORMATS = ("pdf", "md", "html", "tex", "json", "csv")


def _known() -> tuple[str, ...]:
    """The formats of pages and keys, and the exports, also those that were registered."""
    from symcomm.exams.exports import EXPORTERS

    return (*FORMATS, *EXPORTERS)


class _To(click.Option):
    """The option ``--to``, whose help names the exports that there are."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        exports = ", ".join(_known()[len(FORMATS) :])
        self.help = (f"With commas: pdf, md, html, tex (pages); json, csv (keys); {exports} (each question in all "
                     "variants, for the system where an exam is held).")  # fmt: skip
        return super().get_help_record(ctx)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--variants", type=int, metavar="N", help="How many papers, numbered 001, 002, ...")
@click.option("--roster", type=click.Path(path_type=Path), help="A CSV file with the columns id, name, seat.")
@click.option("--seed", default="0", show_default=True, help="Another seed gives other papers.")
@click.option(
    "--to", "formats", cls=_To, default=["pdf,json"], multiple=True, show_default=True, callback=comma(_known),
    metavar="LIST",
)  # fmt: skip
@click.option(
    "--edition", type=click.Choice(["paper", "solution", "graders", "key"]), default="paper", show_default=True,
    help="The paper of each student, its solution, that with points for graders, or the keys only.",
)  # fmt: skip
@click.option("-o", "--output", default="out", show_default=True, type=PATH, help="A folder.")
@pages
@click.option("--processes", type=click.IntRange(1, 256), help="How many processes (one for each core by default).")
@click.option("--qr", is_flag=True, help="A QR code with the paper's code and the student's id (pdf, html, tex).")
@click.option("--tolerance", help="Of a number in an export, as a share of it; else half a unit of its third digit.")
@click.option("--test", "tested", is_flag=True, help="Test the template on hundreds of draws; nothing is written.")
@click.option("--draws", type=click.IntRange(1, 100_000), default=300, show_default=True, help="Draws of the test.")
def exam(
    file: Path, variants: int | None, roster: Path | None, seed: str, formats: tuple[str, ...], edition: str,
    output: Path, templates: Path | None, engine: str, processes: int | None, qr: bool, tolerance: str | None,
    tested: bool, draws: int,
) -> None:  # fmt: skip
    """Make the papers of a class from a problem FILE.

    Each student has own values, questions and an own order.

    \b
    symcomm exam midterm.md --roster roster.csv --seed 7 --to pdf,json,csv -o out/
    symcomm exam midterm.md --roster roster.csv --seed 7 --edition solution --to html -o solutions/
    symcomm exam midterm.md --variants 30 --to moodle,qti12 -o exports/
    symcomm exam midterm.md --test
    """
    template = read_template(file)
    from symcomm import __version__
    from symcomm.core.errors import DocumentError
    from symcomm.exams.roster import numbered, read_roster

    if tested:
        from symcomm.exams.self_test import self_test

        with progress_bar("testing") as progress:
            report = self_test(template, seed, draws, progress)
        click.echo(report.text)
        if report.problems:
            raise click.exceptions.Exit(1)
        return
    if (variants is None) == (roster is None):
        raise DocumentError("say how many papers: --variants 30, or --roster roster.csv")
    exports = tuple(name for name in formats if name not in FORMATS)
    formats = tuple(name for name in formats if name in FORMATS)
    if exports:
        if variants is None:
            raise DocumentError("a question is exported in so many variants, which a quiz draws from",
                                hint="--variants 30 in place of --roster")  # fmt: skip
        _export(template, exports, variants, seed, tolerance, output, processes)
        if not formats:
            return
    from symcomm.exams.writing import PAGES, Order, make

    students = numbered(variants) if variants is not None else read_roster(roster or Path())
    if edition == "key":
        formats = tuple(f for f in formats if f not in PAGES) or ("json", "csv")
    order = Order(formats, edition, templates, engine, __version__, qr)  # type: ignore[arg-type]  # click checked both
    with progress_bar("papers:") as progress:
        paths = make(template, students, seed, order, output, processes=processes, progress=progress)
    for line in order.notes(students):
        click.echo(f"note: {line}", err=True)
    shown = [path for path in paths if path.suffix in (".json", ".csv") or len(students) <= 5]
    for path in shown:
        click.echo(str(path))
    if len(paths) > len(shown):
        click.echo(f"{len(paths) - len(shown)} pages in {output}")


def _export(
    template: Template, names: tuple[str, ...], variants: int, seed: str, tolerance: str | None, output: Path,
    processes: int | None,
) -> None:  # fmt: skip
    """Writes all questions in so many variants for other systems, and tells what is large."""
    from symcomm import __version__
    from symcomm.core.units import Quantity
    from symcomm.exams.exports.writing import export

    share = Quantity.parse(tolerance).value if tolerance is not None else None
    with progress_bar("variants:") as progress:
        made = export(template, names, variants, seed, output, tolerance=share, version=__version__,
                      processes=processes, progress=progress)  # fmt: skip
    for line in dict.fromkeys(note for one in made for note in one.notes):
        click.echo(f"note: {line}", err=True)
    for one in made:
        several = f"/ ({one.files} files)" if one.files > 1 else ""
        questions = "1 question" if one.questions == 1 else f"{one.questions} questions"
        click.echo(f"{one.path}{several}: {questions}, {variants} variants of each, {one.size / 1e3:,.0f} kB")
