"""``symcomm practice``: scripts that train a model with each kind of parallelism, for students or complete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from symcomm.cli.shared import PATH, read_model, reading


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@reading
@click.option("-o", "--output", type=PATH, required=True, help="The folder of the scripts.")
@click.option(
    "--edition",
    type=click.Choice(["paper", "solution"]),
    default="solution",
    show_default=True,
    help="With gaps for students, or complete.",
)
def practice(file: Path, output: Path, edition: str, **read: Any) -> None:
    """Write practice scripts in PyTorch for the model of a FILE.

    They run data, fully sharded, pipeline and tensor parallelism.

    \b
    symcomm practice homework.md -o scripts/ --edition paper
    python scripts/check.py

    'check.py' runs them with two and four processes, and compares losses and collectives.
    """
    from symcomm.verify import practice as scripts

    model = read_model(file, **read)
    files = scripts.practice(model, edition)  # type: ignore[arg-type]  # click checked the name
    for path in scripts.write_practice(files, output):
        click.echo(str(path))
