"""``symcomm measure``: the machine at hand as a device with a table of efficiency."""

from __future__ import annotations

import re
from pathlib import Path

import click

from symcomm.cli.shared import PATH, progress_bar, write


@click.command()
@click.option("--formats", default="fp32,bf16", show_default=True, help="Of the products, separated by commas.")
@click.option("--largest", default=1024, show_default=True, help="The longest side of a product.")
@click.option(
    "--processes", type=click.IntRange(1, 8), default=2, show_default=True, help="Of the all-reduces; 1: none."
)
@click.option("--name", default="this-machine", show_default=True, help="The name of the device.")
@click.option("-o", "--output", type=PATH, help="A YAML file of devices.")
def measure(formats: str, largest: int, processes: int, name: str, output: Path | None) -> None:
    """Measure this machine, and write it as a device.

    Matrix products, copies and all-reduces are timed.

    \b
    symcomm measure -o mine.yaml
    python -c 'import symcomm as sc; print(sc.devices("mine.yaml"))'

    One product is left out of the table; the last lines say how well the table predicts it.
    """
    from symcomm.core.errors import ValuesError
    from symcomm.verify import measure as machine

    if not re.fullmatch(r"[A-Za-z][\w.\-]{0,59}", name):
        raise ValuesError(f"'{name[:60]}' is no name of a device", hint="a letter, then letters, digits, - or _")
    with progress_bar("measuring") as told:
        found = machine.measure([one.strip() for one in formats.split(",")], largest, processes, told)
    click.echo(machine.text(found), nl=False)  # first, so that a file that cannot be written loses no measurement
    if output is not None:
        write(machine.device_yaml(found, name), output)
