"""``symcomm verify``: a strategy run in PyTorch processes, beside what is derived."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from symcomm.cli import shared

if TYPE_CHECKING:
    from fractions import Fraction

    from symcomm.verify.verify import Verification

GRID_START, GRID_END = "<!-- the grid, made by symcomm verify --grid -->", "<!-- end of the grid -->"


@click.command()
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@shared.reading
@shared.stepping
@click.option("--strategy", default="", help="For instance 'data(2)'; one process where it is left out.")
@click.option(
    "--at", multiple=True, metavar="NAME=VALUE,...", help="Sizes: D=16,L=8; small ones where they are left out."
)
@click.option("--schedule", default="1f1b", show_default=True, help="Of a pipeline.")
@click.option("--chunks", default=2, show_default=True, help="Of a rank, for schedules that have several.")
@click.option("--algorithm", default="", help="Count what goes through sockets for its collectives, too: ring.")
@click.option(
    "--softmax", default="as_given", show_default=True, help="fused: attention as one kernel; library: written out."
)
@click.option("--limit", default=120.0, show_default=True, help="Seconds after which all processes are ended.")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Processes meet at a port of this machine instead of by a file."
)
@click.option("--json", "as_json", is_flag=True, help="For a program.")
@click.option("--grid", is_flag=True, help="All strategies on two and four processes, of all FILES.")
@click.option("--resume", type=shared.PATH,
              help="Keep each run of the grid in this file; what it has is not run again.")  # fmt: skip
@click.option("--asked", is_flag=True, help="Run what the questions of a problem FILE ask for (verify:).")
@click.option("--time", "timed", is_flag=True, help="Time each row, beside the time that a table of the machine says.")
@click.option("--device", default="", help="With --time: a device, or mine.yaml; else the machine is measured first.")
@click.option("-o", "--output", type=shared.PATH, help="A file; of a page, the part between the marks.")
def verify(
    files: tuple[Path, ...], strategy: str, at: tuple[str, ...], schedule: str, chunks: int, algorithm: str,
    softmax: str, limit: float, port: int | None, as_json: bool, grid: bool, asked: bool, timed: bool, device: str,
    output: Path | None, resume: Path | None, **read: Any,
) -> None:  # fmt: skip
    """Run a model in PyTorch and compare it with what is derived.

    FILE has the model; it runs in one or several processes.

    \b
    symcomm verify homework.md --strategy 'tensor(2) + sequence'
    symcomm verify homework.md --strategy 'pipeline(2, microbatches=4)' --schedule gpipe --at L=8
    symcomm verify config.json --phase decode --strategy 'tensor(2)'

    Exit status 1 where something is different that no convention explains.
    """
    from symcomm.core.errors import ValuesError

    if not 0 < limit <= 86400:
        raise ValuesError(f"--limit is {limit:g}: a run takes more than 0 s and at most a day")
    if len(files) > 1 and not grid:
        raise ValuesError("several files are for --grid", hint="or verify one after the other")
    if asked:
        _end(_asked(files[0], schedule, chunks, limit))
        return
    tables = {"loss": None} if grid else {}  # they have theirs as a row
    models = [shared.read_model(file, **read | (tables if file.suffix == ".md" else {})) for file in files]
    values = shared.values(at)
    if device and not timed:
        raise ValuesError("--device is for --time", hint="symcomm verify FILE --time --device mine.yaml")
    if timed:
        from symcomm.verify import by_op

        rows = by_op.by_op(models[0], values, shared.device_of(device) if device else None)
        shared.write(json.dumps(rows.json(), indent=2) if as_json else by_op.text(rows), output, files[0])
        return
    if grid:
        from symcomm.verify import grid as grids

        with shared.progress_bar("running") as told:
            cells = grids.grid(models, limit=max(limit, 300), values=values, told=told, resume=resume)
        made = json.dumps(grids.json(cells), indent=1, ensure_ascii=False) if as_json else grids.markdown(cells)
        shared.write(_into(made, output), output)
        for cell in (one for one in cells if one.failed):
            click.echo(f"{cell.strategy} of {cell.model}: {cell.why}", err=True)
        _end(all(cell.found.holds if cell.found else not cell.failed for cell in cells))
        return
    from symcomm.verify import verify as running

    one = running.verify(models[0], strategy or None, values, schedule=schedule, chunks=chunks, limit=limit, port=port,
              algorithm=algorithm, softmax=softmax)  # fmt: skip
    shared.write(json.dumps(one.json(), indent=2, ensure_ascii=False) if as_json else _text(one), output, files[0])
    _end(one.holds)


def _asked(file: Path, schedule: str, chunks: int, limit: float) -> bool:
    """Runs what the questions of a document want run, and keeps it beside the document; whether all of it holds."""
    from fractions import Fraction

    problem = shared.read_template(file).problem()
    from symcomm import __version__
    from symcomm.core.errors import DocumentError, RenderError
    from symcomm.core.parallel.strategy import parse_strategy
    from symcomm.exams.problems.deriving import accounting_of
    from symcomm.exams.problems.solve import load_model
    from symcomm.exams.problems.verified import asked_strategy, cache_path, run_key
    from symcomm.verify import verify as running

    runs, holds, torch = {}, True, ""
    for ask in problem.asks:
        strategy = asked_strategy(ask)
        model = load_model(problem, ask.model) if strategy else None
        softmax = accounting_of(problem.conventions, ask.conventions).softmax
        if model is None or run_key(model, strategy, softmax) in runs:
            continue
        degrees = dict.fromkeys(parse_strategy(strategy).names, Fraction(2))
        try:
            made = running.verify(
                model, strategy, degrees, schedule=schedule, chunks=chunks, limit=limit, softmax=softmax
            )
        except RenderError as error:
            raise error.at(ask.section.span_of("verify")) from None
        runs[run_key(model, strategy, softmax)] = {key: value for key, value in made.json().items() if key != "calls"}
        holds, torch = holds and made.holds, made.torch
        click.echo(f"{strategy}: {'everything is explained' if made.holds else 'there are differences'}")
    if not runs:
        raise DocumentError(f"no question of {file} wants to be run", hint="verify: true beside its strategy")
    kept = {"symcomm": __version__, "torch": torch, "runs": runs}
    shared.write(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", cache_path(problem.file), file)
    return holds


def _end(holds: bool) -> None:
    if not holds:
        click.get_current_context().exit(1)


def _into(made: str, output: Path | None) -> str:
    """A table in the page it belongs to, where the file is one that marks the place."""
    if output is None or not output.exists():
        return made
    page = output.read_text(encoding="utf-8")
    if GRID_START not in page or GRID_END not in page:
        return made
    before, after = page.partition(GRID_START)[0], page.partition(GRID_END)[2]
    return f"{before}{GRID_START}\n\n{made}\n{GRID_END}{after}"


def _text(found: Verification) -> str:
    from rich.text import Text

    from symcomm.verify import verify as running
    from symcomm.verify.conventions import CONVENTIONS

    sizes = ", ".join(f"{name} = {size}" for name, size in found.sizes.items())
    title = f"{found.model}, {found.strategy}: {found.interface}, {_processes(found.ranks)}"
    numbers = ("derived", "measured", "difference")
    table = shared.new_table(title, ("", *numbers, "unit", "explained by"), numbers)
    for row in found.rows:
        worth = map(_number, (row.derived, row.measured, row.difference))
        table.add_row(*map(Text, (row.what, *worth, row.unit, ", ".join(row.explained))))
    lines = [f"sizes: {sizes}; fp32 on the CPU, PyTorch {found.torch}"]
    cached = "with a cache" in found.interface
    if (found.ranks > 1 or cached) and found.gradient_error is not None:
        fits = "as" if found.gradient_error <= running.TOLERANCE else "not as"
        what = f"results: {fits} in one pass over all positions" if cached else f"gradients: {fits} in one process"
        lines.append(f"{what} (largest relative difference {found.gradient_error:.1e})")
    lines += found.notes
    lines += [f"{name}: {CONVENTIONS[name].statement}\n  {CONVENTIONS[name].source}" for name in found.conventions]
    what = "Everything" if found.compares_saved else "All that was compared"
    lines.append(f"{what} is explained." if found.holds else "There are differences that no convention explains.")
    return "\n".join(line.rstrip() for line in shared.as_printed(table, lines).splitlines()) + "\n"


def _number(value: Fraction) -> str:
    return f"{int(value):,}".replace(",", " ") if value.denominator == 1 else str(value)


def _processes(ranks: int) -> str:
    return "one process" if ranks == 1 else f"{ranks} processes"
