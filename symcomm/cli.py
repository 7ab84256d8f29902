"""The command line: ``symcomm solve``, ``derive``, ``quantities``, ``show`` and others.

Only Click is imported here; what a command needs is imported when it runs, so that ``--help`` answers at once.
Mistakes in the input are told with their place and end with status 2; a bug says that it is one.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from symcomm import __version__

if TYPE_CHECKING:
    from fractions import Fraction

    from symcomm.derivation import Derivation
    from symcomm.model import Model
    from symcomm.quantities.declared import DeclaredQuantity
    from symcomm.units import Quantity

FORMATS = ("pdf", "md", "tex", "html")
DERIVED = ("text", "json", "latex", "markdown", "html")
SHOWN = ("text", "json", "svg", "dot")
_ISSUES = "please report it with the command and the file"


class _Commands(click.Group):
    """A group whose commands report mistakes and bugs in their own way."""

    def invoke(self, ctx: click.Context) -> Any:
        from symcomm.errors import SymcommError

        try:
            return super().invoke(ctx)
        except SymcommError as error:
            if ctx.params.get("debug"):
                raise
            click.echo(f"error: {_shown(str(error))}", err=True)
            ctx.exit(2)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            said = _shown(" ".join(str(error).split())[:300])
            click.echo(f"internal error: {type(error).__name__}: {said}", err=True)
            click.echo(f"This is a bug in symcomm; {_ISSUES}. `symcomm --debug ...` shows the traceback.", err=True)
            ctx.exit(1)


def _shown(text: str) -> str:
    """Text of a file as a terminal may show it: nothing in it is an order to the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="symcomm")
@click.option("--debug", is_flag=True, help="Show tracebacks instead of messages.")
def main(debug: bool) -> None:
    """Derive the cost of neural networks in closed form from layer tables, every step shown.

    Exit status: 0 done, 1 a check failed or a bug in symcomm, 2 a mistake in the input.
    """


# -- options that several commands share --------------------------------------------------------------


def _comma(choices: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], tuple[str, ...]]:
    def read(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[str, ...]:
        from symcomm.errors import nearest

        names = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        for name in names:
            if name not in choices:
                raise click.BadParameter(f"unknown format '{name}'; {nearest(name, list(choices))}")
        if not names:
            raise click.BadParameter("no format is named")
        return names

    return read


def _values(texts: Sequence[str]) -> dict[str, Fraction]:
    """The same numbers, without their units."""
    return {name: quantity.value for name, quantity in _quantities(texts).items()}


def _quantities(texts: Sequence[str]) -> dict[str, Quantity]:
    """``--at N_layer=32,D=4096``: numbers with units, each name once."""
    from symcomm.errors import ValuesError
    from symcomm.exam.keys import plain_name
    from symcomm.units import Quantity

    found: dict[str, Quantity] = {}
    for piece in (p.strip() for text in texts for p in text.split(",")):
        if not piece:
            continue
        name, equals, number = piece.partition("=")
        if not equals or not number.strip():
            raise ValuesError(f"--at: '{piece[:60]}' gives no value", hint="write for instance --at N_layer=32,D=4096")
        name = plain_name(name)
        value = Quantity.parse(number.strip())
        if value.value <= 0:
            raise ValuesError(f"--at: {name} is {number.strip()}, which is not positive")
        if found.setdefault(name, value) != value:
            raise ValuesError(f"--at: {name} is given twice, as {found[name]} and as {value}")
    return found


def _conventions(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """``--accounting sent_per_rank`` or ``--accounting pipeline=per_microbatch``; several with commas."""
    from symcomm.exam.keys import convention

    return tuple(convention(piece.strip()) for text in texts for piece in text.split(",") if piece.strip())


_accounting = click.option(
    "--accounting", multiple=True, metavar="NAME", help="A convention, such as sent_per_rank; may be repeated."
)
_read_options = (
    click.option(
        "--name", default="", metavar="MODEL", help="Which model of the file (the last one by default), or which table."
    ),
    click.option("--repeat", default="", metavar="SYMBOL", help="The symbol that says how often the table is stacked."),
    click.option("--batch", default="", metavar="SYMBOL", help="A batch axis the table leaves out."),
    click.option("--loss", is_flag=True, help="Count the cross-entropy of a configuration's head in."),
)


def _reading(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_read_options):
        command = option(command)
    return command


def _model(file: Path, name: str, repeat: str, batch: str, loss: bool) -> Model:
    from symcomm.exam.problem import read_problem
    from symcomm.exam.solve import load_model

    if file.suffix in (".json", ".txt") or loss:
        from symcomm.model import load_known

        known = load_known(file, repeat=repeat, batch=batch, loss=loss)
        if known is not None:
            return known.part(name) if name else known
    return load_model(read_problem(file), name, repeat=repeat, batch=batch)


def _write(text: str, output: Path | None, read: Path | None = None) -> None:
    """Prints a text, or writes it to a file, whole or not at all; never over the file that was ``read``."""
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
        return
    from symcomm.errors import RenderError

    if read is not None and output.resolve() == read.resolve():
        raise RenderError(f"{output} is the file of the model, which would be overwritten", hint="choose another name")

    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        part = output.with_name(f".{output.name}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(output)
    except OSError as error:
        raise RenderError(f"{output} cannot be written: {error.strerror}") from None
    click.echo(str(output))


# -- solve --------------------------------------------------------------------------------------------


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--to", "formats", default="pdf", show_default=True, callback=_comma(FORMATS), metavar="LIST",
    help="Formats, with commas: pdf, md, tex, html.",
)  # fmt: skip
@click.option("-o", "--output", default="out", show_default=True, type=click.Path(path_type=Path), help="A folder.")
@click.option("--templates", type=click.Path(path_type=Path), help="A folder with templates that replace ours.")
@click.option(
    "--engine", type=click.Choice(["typst", "latex"]), default="typst", show_default=True, help="What makes the PDF."
)
@_accounting
def solve(
    file: Path, formats: tuple[str, ...], output: Path, templates: Path | None, engine: str, accounting: tuple[str, ...]
) -> None:
    """Solve a problem FILE: every question derived, as a worked solution.

    \b
    symcomm solve homework.md --to pdf,md,tex,html -o out/
    """
    from symcomm.exam.problem import read_problem
    from symcomm.exam.solve import solve as solved

    problem = read_problem(file)
    with _progress() as progress:
        document = solved(problem, progress, _conventions(accounting))
    from symcomm.render import render

    for path in render(document, formats, output, templates=templates, engine=engine, name=file.stem):  # type: ignore[arg-type]  # click checked it
        click.echo(str(path))


@contextmanager
def _progress(what: str = "deriving") -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on a terminal, once the work has taken a second; nothing otherwise."""
    if not sys.stderr.isatty():
        yield lambda done, total, label: None
        return
    from time import monotonic

    start = monotonic()
    bar: Any = None
    task: Any = None

    def show(done: int, total: int, label: str) -> None:
        nonlocal bar, task
        if bar is None and monotonic() - start > 1 and done < total:
            from rich.console import Console
            from rich.progress import Progress

            bar = Progress(console=Console(stderr=True), transient=True)
            bar.start()
            task = bar.add_task(what, total=total)
        if bar is not None:
            bar.update(task, completed=done, total=total, description=f"{what} {label}"[:40])

    try:
        yield show
    finally:
        if bar is not None:
            bar.stop()


# -- derive -------------------------------------------------------------------------------------------


class _Derive(click.Group):
    """A command for each quantity, with its options; only the one that is asked for is read."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from symcomm.quantities import QUANTITIES

        return [*QUANTITIES]

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        return _derive_command(_declared(name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from symcomm.quantities import QUANTITIES

        groups: dict[str, list[str]] = {}
        for name, group in QUANTITIES.groups.items():
            groups.setdefault(group, []).append(name)
        with formatter.section("Quantities"):
            formatter.write_dl([(group, ", ".join(names)) for group, names in groups.items()])


def _declared(name: str) -> DeclaredQuantity:
    from symcomm.errors import DocumentError, nearest
    from symcomm.quantities import QUANTITIES

    if name not in QUANTITIES:
        raise DocumentError(f"unknown quantity '{name[:60]}'", hint=nearest(name, [*QUANTITIES]))
    return QUANTITIES[name]


@main.command(cls=_Derive, subcommand_metavar="QUANTITY [OPTIONS]")
def derive() -> None:
    """Derive one quantity, step by step.

    \b
    symcomm derive communication --model homework.md --strategy data --at N_layer=32,D=4096
    symcomm derive peak_rate --clock '1.41 GHz' --units 108 --fma 512

    'symcomm derive QUANTITY --help' tells the options of one, 'symcomm quantities' what each quantity is.
    """


_deriving = (
    click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="An option, in another way."),
    click.option("--at", multiple=True, metavar="NAME=VALUE,...", help="Numbers: N_layer=32,D=4096."),
    _accounting,
    click.option("--to", "form", type=click.Choice(DERIVED), default="text", show_default=True,
                 help="How it is written."),
    click.option("-o", "--output", type=click.Path(path_type=Path), help="A file instead of the terminal."),
)  # fmt: skip


def _derive_command(declared: DeclaredQuantity) -> click.Command:
    """The command of one quantity: the options that it declares, and those that all of them have."""

    def run(**given: Any) -> None:
        _derive(declared, given)

    for option in reversed(_deriving):
        run = option(run)
    if declared.needs_model:
        run = _reading(run)
        file = click.Path(path_type=Path)
        run = click.option("--model", "file", type=file, help="A file with a layer table, or a problem file.")(run)
    for one in reversed(declared.options):
        names = dict.fromkeys((f"--{one.name.replace('_', '-')}", f"--{one.name}"))
        run = click.option(*names, f"option_{one.name}", metavar=one.kind.upper(), help=_plain(one.told))(run)
    return click.command(declared.name, help=_plain(declared.text))(run)


def _plain(text: str) -> str:
    return text.replace("``", "'")


def _derive(declared: DeclaredQuantity, given: dict[str, Any]) -> None:
    from symcomm.errors import DocumentError
    from symcomm.exam.deriving import accounting_of, no_model
    from symcomm.exam.deriving import derive as derived
    from symcomm.exam.keys import convert

    said = {
        key.removeprefix("option_"): text
        for key, text in given.items()
        if key.startswith("option_") and text is not None
    }
    for setting in given["settings"]:
        key, equals, text = setting.partition("=")
        if not equals:
            raise DocumentError(f"--set: '{setting[:60]}' gives no value", hint="write --set NAME=VALUE")
        said[key.strip()] = text.strip()
    options = {name: convert(text, declared.option(name)) for name, text in said.items()}
    declared.check(options)
    file = given.get("file")
    model = no_model()
    if declared.needs_model:
        if file is None:
            raise DocumentError(f"'{declared.name}' needs a model", hint="name a file with a layer table: --model FILE")
        model = _model(file, given["name"], given["repeat"], given["batch"], given["loss"])
    told = _quantities(given["at"])
    values = {symbol: number.value for symbol, number in told.items()}
    made = derived(declared.name, model, options, accounting_of(_conventions(given["accounting"])), values)
    made.check_names(told)
    made.values(**told)  # their units
    _write(_written(made, given["form"], values), given["output"], file)


@main.command("quantities")
@click.argument("quantity", required=False)
@click.option("--json", "as_json", is_flag=True, help="For a program.")
def quantities(quantity: str | None, as_json: bool) -> None:
    """List the quantities that can be derived, or the options of one QUANTITY.

    \b
    symcomm quantities
    symcomm quantities communication
    """
    from symcomm.quantities import QUANTITIES

    chosen = [_declared(quantity)] if quantity else [*QUANTITIES.values()]
    if as_json:
        click.echo(json.dumps([one.json() for one in chosen], indent=2, ensure_ascii=False, default=str))
        return
    formatter = click.HelpFormatter(width=shutil.get_terminal_size().columns)
    if quantity:
        formatter.write(f"{quantity}: {_plain(chosen[0].summary)}\n\n")
        formatter.write_dl([(o.name, o.told) for o in chosen[0].options])
    for group in dict.fromkeys(one.group for one in chosen) if not quantity else ():
        with formatter.section(group):
            formatter.write_dl([(one.name, _plain(one.summary)) for one in chosen if one.group == group])
    click.echo(formatter.getvalue(), nl=False)


main.add_command(click.Command("passes", params=quantities.params, callback=quantities.callback, hidden=True))


@main.command()
def schema() -> None:
    """Print the JSON schema of the symcomm blocks of problem files, for editors."""
    from symcomm.exam.schema import problem_schema

    click.echo(json.dumps(problem_schema(), indent=1, ensure_ascii=False))


def _written(made: Derivation, form: str, values: dict[str, Fraction]) -> str:
    if form == "json":
        from symcomm import report

        return json.dumps(report.derivation(made, values), indent=2, ensure_ascii=False)
    from symcomm import printing

    known = made.relations.complete(dict(made.given) | values)
    return printing.derivation(made, form, known)  # type: ignore[arg-type]  # click checked the name


# -- search -------------------------------------------------------------------------------------------

_searching = (
    click.option("--devices", type=int, required=True, help="How many devices the mesh has."),
    click.option("--device", help="A device of the hardware table, for its rates: H100-SXM, ..."),
    click.option("--capacity", help="The memory of one device, where it is not the device's: '80 GB'."),
    click.option("--capacity-is", help="What a capacity means: nominal_GB, nominal_GiB or usable. Never supposed."),
    click.option("--strategy", "strategies", multiple=True, help="A strategy to try, without sizes; may be repeated."),
    click.option("--microbatches", help="Such as 1..64*2 or 1,2,3; all divisors of the batch unless told."),
    click.option("--recomputation", help="Some of none,selective,full; all of them unless told."),
    click.option("--schedule", "schedules", help="Some of 1f1b, gpipe and others that take as long; 1f1b unless told."),
    click.option("--sizes", multiple=True, metavar="NAME=RANGE", help="tensor=1..8, or L=1024,2048; may be repeated."),
    click.option("--buckets", help="Numbers of gradient buckets, such as 1..64*2."),
    click.option("--call-overhead", help="The overhead of one bucket's call: '20 us'."),
    click.option("--recipe", default="mixed_adam", show_default=True, help="What a parameter keeps."),
    click.option("--top", default=10, show_default=True, help="How many of the fastest are told."),
    click.option("--jobs", type=int, help="Worker processes."),
    click.option("--seconds", default=600.0, show_default=True, help="The longest that it may take."),
    click.option("--plot", "picture", type=click.Path(path_type=Path), help="A picture of the front: front.svg."),
    click.option("--json", "as_json", is_flag=True, help="For a program."),
    click.option("--links", help="The links of mesh axes: 'tensor=900 GB/s, data=50 GB/s @ 5 us, pipe=50 GB/s'."),
    *(click.option(f"--{rate}", help="A rate over that of the device.") for rate in
      ("peak", "memory", "network", "latency", "utilisation")),
)  # fmt: skip


def _search_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_searching):
        command = option(command)
    return command


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@_search_options
@click.option("--at", multiple=True, metavar="NAME=VALUE,...", help="Numbers: N_layer=32,D=4096.")
@_accounting
@_reading
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file instead of the terminal.")
def search(
    file: Path, strategies: tuple[str, ...], sizes: tuple[str, ...], at: tuple[str, ...], accounting: tuple[str, ...],
    name: str, repeat: str, batch: str, loss: bool, picture: Path | None, as_json: bool, output: Path | None,
    **options: Any,
) -> None:  # fmt: skip
    """Search strategies and sizes for the model of a FILE: the fastest that fit, and why they are limited.

    \b
    symcomm search model.md --devices 64 --device H100-SXM --capacity-is nominal_GB --batch 512

    --batch is the global batch here (512, or 256,512); the symbol of a batch axis that the table leaves out also goes
    there. Exit status 1 where nothing fits.
    """
    from symcomm.errors import ValuesError
    from symcomm.exam.deriving import accounting_of
    from symcomm.searching.run import search as searched

    number = batch[:1].isdigit()
    limits: dict[str, str] = {}
    for text in sizes:
        key, equals, said = text.partition("=")
        if not equals or key.strip() in limits:
            hint = "write --sizes tensor=1..8, each name once"
            raise ValuesError(f"--sizes: '{text[:60]}' gives no values", hint=hint)
        limits[key.strip()] = said
    model = _model(file, name, repeat, "" if number else batch, loss).at(**_values(at))
    with _progress("searching") as progress:
        found = searched(
            model, batch=batch if number else None, strategies=strategies or None, sizes=limits,
            accounting=accounting_of(_conventions(accounting)), progress=progress, **options,
        )  # fmt: skip
    if picture is not None and found.front:
        found.plot(picture)
    _write(json.dumps(found.json(), indent=2, ensure_ascii=False) if as_json else found.text(), output, file)
    if not found.feasible:
        sys.exit(1)


# -- show ---------------------------------------------------------------------------------------------


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@_reading
@click.option("--to", "form", type=click.Choice(SHOWN), default="text", show_default=True, help="How it is shown.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file instead of the terminal.")
def show(file: Path, name: str, repeat: str, batch: str, loss: bool, form: str, output: Path | None) -> None:
    """Show the model of a FILE: shapes, parameters and FLOPs of each op, and the graph.

    \b
    symcomm show homework.md
    symcomm show homework.md --to svg -o graph.svg
    """
    model = _model(file, name, repeat, batch, loss)
    if form in ("svg", "dot"):
        from symcomm import drawing

        _write(drawing.WRITERS[form](model.graph), output, file)
    elif form == "json":
        import json

        from symcomm import report

        _write(json.dumps(report.model(model), indent=2, ensure_ascii=False), output, file)
    else:
        _write(_table(model, output is None and sys.stdout.isatty()), output, file)


def _table(model: Model, terminal: bool) -> str:
    """The table of ops and the drawing below it, as a terminal shows them."""
    from io import StringIO

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from symcomm import drawing, report

    seen = report.model(model)
    regions = {region["name"]: region["times"] for region in seen["regions"]}
    table = Table(title=Text(seen["name"], style="bold"), title_justify="left", show_edge=False, pad_edge=False)
    for column in ("row", "op", "kind", "output shape", "parameters", "forward FLOPs"):
        table.add_column(column, justify="right" if column == "row" else "left", overflow="fold")
    titled = ""
    for row in seen["ops"]:
        if len(regions) > 1 and row["region"] != titled:
            titled = row["region"]
            times = f" × {regions[titled]}" if regions[titled] else ""
            table.add_section()
            table.add_row("", Text(f"{titled}{times}", style="bold"))
        cells = (str(row["row"]), row["name"], row["kind"], row["shape"], row["parameters"], row["flops"])
        table.add_row(*(Text(cell) for cell in cells))
    out = StringIO()
    width = None if terminal else 140
    console = Console(file=out, width=width, force_terminal=terminal, color_system="auto" if terminal else None)
    console.print(table)
    console.print()
    for title in ("parameters", "flops"):
        total = seen["totals"][title]
        value = f" = {total['value']['text']}" if total["value"] else f" {total['unit']}"
        label = {"parameters": "parameters", "flops": "forward FLOPs"}[title]
        console.print(Text(f"{label}: {total['form']}{value}"), soft_wrap=True)
    console.print(Text(f"read as {seen['reading']}"), soft_wrap=True)
    if seen["axes"]:
        told = "; ".join(f"{role} {', '.join(labels)}" for role, labels in seen["axes"].items())
        console.print(Text(f"axes: {told}".replace("pairs", "cut by tensor parallelism")), soft_wrap=True)
    for note in seen["notes"]:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    console.print()
    console.print(Text(drawing.text(model.graph)), soft_wrap=True)
    return out.getvalue()


# -- completion ---------------------------------------------------------------------------------------


@main.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a SHELL.

    \b
    symcomm completion bash >> ~/.bashrc
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(main, {}, "symcomm", "_SYMCOMM_COMPLETE").source())


if __name__ == "__main__":
    main()
