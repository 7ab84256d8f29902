"""``symcomm grade``: answer sheets against the papers of a class."""

from __future__ import annotations

from pathlib import Path

import click

from symcomm.cli.shared import PATH, progress_bar


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--answers", required=True, type=click.Path(path_type=Path), help="Answer sheets: CSV, or JSON of forms.")
@click.option("--keys", type=click.Path(path_type=Path), help="The keys.json of the papers.")
@click.option("--roster", type=click.Path(path_type=Path), help="Instead of the keys: the roster of the papers.")
@click.option("--variants", type=int, metavar="N", help="Instead of the keys: the number of the papers.")
@click.option("--seed", default="0", show_default=True, help="The seed of the papers, without their keys.")
@click.option("--decisions", type=click.Path(path_type=Path), help="A look-at.csv with points filled in.")
@click.option("-o", "--output", default="grades", show_default=True, type=PATH, help="A folder.")
@click.option("--no-plot", is_flag=True, help="Write no picture.")
def grade(
    file: Path, answers: Path, keys: Path | None, roster: Path | None, variants: int | None, seed: str,
    decisions: Path | None, output: Path, no_plot: bool,
) -> None:  # fmt: skip
    """Grade the answers of a class.

    They are compared with the papers that were drawn from FILE.

    Writes grades.csv and grades.json (points and feedback), summary.md, summary.csv and summary.svg (each question),
    and look-at.csv: what a person has to decide. Fill in its points and give it back with --decisions.

    \b
    symcomm grade midterm.md --keys out/keys.json --answers answers.csv -o grades/
    symcomm grade midterm.md --keys out/keys.json --answers answers.csv --decisions grades/look-at.csv -o grades/
    """
    from symcomm.core.files import write_files
    from symcomm.exams import summary
    from symcomm.exams.grading import grade as graded

    def tell(done: int, total: int, what: str) -> None:
        progress(done, total, what)
        if not (done or no_plot):  # while other processes grade, Matplotlib is loaded in this one
            summary.picture(summary.Grades((), ()))

    with progress_bar("grading") as progress:
        made = graded(file, answers, keys=keys, roster=roster, variants=variants, seed=seed, decisions=decisions,
                      progress=tell, processes=None)  # fmt: skip
    files = {
        "grades.csv": summary.grades_csv(made).encode(), "grades.json": summary.grades_json(made).encode(),
        "summary.csv": summary.summary_csv(made).encode(), "summary.md": summary.markdown(made).encode(),
        "look-at.csv": summary.look_csv(made).encode(),
    }  # fmt: skip
    if not no_plot:
        from symcomm.documents.plots.figure import written

        files["summary.svg"] = written(summary.picture(made), "svg")
    for path in write_files(files, output):
        click.echo(str(path))
    click.echo(summary.markdown(made).split("\n", 1)[0])
    waiting = len(summary.look_at(made))
    if waiting:
        click.echo(f"{waiting} answers have to be looked at: {output / 'look-at.csv'}")
