"""``symcomm show``: what was read, as a table and a drawing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from symcomm.cli import shared

if TYPE_CHECKING:
    from symcomm import Model, Network

SHOWN = ("text", "json", "svg", "dot", "torch")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@shared.reading
@shared.stepping
@click.option("--to", "form", type=click.Choice(SHOWN), default="text", show_default=True, help="How it is shown.")
@click.option("-o", "--output", type=shared.PATH, help="A file instead of the terminal.")
def show(file: Path, form: str, output: Path | None, **read: Any) -> None:
    """Show the model of a FILE: each op, and the graph.

    Ops have shapes, parameters and FLOPs. Of a network the levels are shown.

    \b
    symcomm show homework.md
    symcomm show DGX-H100
    symcomm show homework.md --to svg -o graph.svg
    symcomm show homework.md --to torch -o model.py
    """
    if whole := shared.networks_of(str(file)):
        shared.write("\n".join(map(_levels, whole)), output, file)
        return
    model = shared.read_model(file, **read)
    if form in ("svg", "dot"):
        from symcomm.core import drawing

        shared.write(drawing.WRITERS[form](model.graph), output, file)
    elif form == "torch":
        from symcomm.verify.expected import batch_first
        from symcomm.verify.module import torch_module
        from symcomm.verify.sizes import small_sizes

        graph = batch_first(model.graph)
        shared.write(torch_module(graph, model.name, values=small_sizes(graph, {})).source, output, file)
    elif form == "json":
        import json

        from symcomm.core import report

        shared.write(json.dumps(report.model(model), indent=2, ensure_ascii=False), output, file)
    else:
        shared.write(_table(model, output is None and sys.stdout.isatty()), output, file)


def _levels(whole: Network) -> str:
    """The levels of a network, the innermost first."""
    head = ("level", "joins", "devices", "links of a unit", "a device has", "latency")
    columns = [max(map(len, column)) for column in zip(head, *whole.rows, strict=True)]
    lines = ["  ".join(cell.ljust(n) for cell, n in zip(row, columns, strict=True)).rstrip()
             for row in (head, *whole.rows)]  # fmt: skip
    return "\n".join([f"{whole.name}: {whole.size} {whole.device.name}", *lines, f"source: {whole.source}", ""])


def _table(model: Model, terminal: bool) -> str:
    """The table of ops and the drawing below it, as a terminal shows them."""
    from rich.text import Text

    from symcomm.core import drawing, report

    seen = report.model(model)
    regions = {region["name"]: region["times"] for region in seen["regions"]}
    columns = ("row", "op", "kind", "output shape", "parameters", "forward FLOPs")
    table = shared.new_table(seen["name"], columns, ("row",))
    titled = ""
    for row in seen["ops"]:
        if len(regions) > 1 and row["region"] != titled:
            titled = row["region"]
            times = f" × {regions[titled]}" if regions[titled] else ""
            table.add_section()
            table.add_row("", Text(f"{titled}{times}", style="bold"))
        cells = (str(row["row"]), row["name"], row["kind"], row["shape"], row["parameters"], row["flops"])
        table.add_row(*(Text(cell) for cell in cells))
    lines: list[str] = []
    for title in ("parameters", "flops"):
        total = seen["totals"][title]
        value = f" = {total['value']['text']}" if total["value"] else f" {total['unit']}"
        label = {"parameters": "parameters", "flops": "forward FLOPs"}[title]
        lines.append(f"{label}: {total['form']}{value}")
    lines.append(f"read as {seen['reading']}")
    if seen["axes"]:
        told = "; ".join(f"{role} {', '.join(labels)}" for role, labels in seen["axes"].items())
        lines.append(f"axes: {told}".replace("pairs", "cut by tensor parallelism"))
    for kept in model.graph.step.kept if model.graph.step is not None else ():
        told = f"kept: {kept.tensor} ({kept.role} of the {kept.region}), read by {kept.why}"
        lines.append(told.replace("`", ""))
    lines += [f"note: {note}" for note in seen["notes"]]
    return shared.as_printed(table, [*lines, "", drawing.text(model.graph)], terminal)
