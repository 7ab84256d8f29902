"""Options and helpers that several commands share: options, how a file is read as a model, how a text is written."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fractions import Fraction

    from rich.table import Table

    from symcomm import Device, Model, Network, Quantity
    from symcomm.exams.problems.problem import Template


def as_typed(hint: str, command: click.Command) -> str:
    """A hint with a command's options as they are typed there, not as they are written in Python or in a block.

    >>> from symcomm.cli.search import search
    >>> as_typed("say capacity_is: usable, or batch=512", search)
    'say --capacity-is usable, or --batch 512'
    """
    options = [one for one in command.params if isinstance(one, click.Option)]
    known = {str(one.name).removeprefix("option_"): max(one.opts, key=len) for one in options}
    return re.sub(r"(?<![\w-])(\w+)(?:=|: )(?=\w)", lambda m: f"{known[m[1]]} " if m[1] in known else m[0], hint)


class _NamedPath(click.Path):
    """A path that has a name: ``-o ''`` is not the present folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("no file is named; for instance: -o out", param, ctx)
        return super().convert(value, param, ctx)


PATH = _NamedPath(path_type=Path)


def comma(
    choices: Sequence[str] | Callable[[], Sequence[str]],
) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[str, ...]]:
    """Reads an option that lists names with commas, or comes several times (``multiple``)."""

    def read(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
        from symcomm.core.errors import nearest

        names = tuple(dict.fromkeys(part.strip() for part in ",".join(value).split(",") if part.strip()))
        known = list(choices() if callable(choices) else choices)
        for name in names:
            if name not in known:
                raise click.BadParameter(f"unknown format '{name}'; {nearest(name, known)}")
        if not names:
            raise click.BadParameter("no format is named")
        return names

    return read


def networks_of(text: str) -> list[Network]:
    """The networks of a YAML file, or the network of a name; none for anything else."""
    from symcomm import SymcommError, network, networks

    if text.lower().endswith((".yaml", ".yml")):
        return [*networks(text).values()]
    with suppress(SymcommError, OSError):  # a name that is too long for a file
        return [] if Path(text).exists() else [network(text)]
    return []


def device_of(text: str) -> Device:
    """The one device of a YAML file, or the device of a name."""
    from symcomm import device, devices
    from symcomm.core.errors import ValuesError

    if not text.lower().endswith((".yaml", ".yml")):
        return device(text)
    found = [*devices(text).values()]
    if len(found) != 1:
        raise ValuesError(f"{text} has {len(found)} devices, not one", hint="a file for each")
    return found[0]


def shown_text(text: str) -> str:
    """Text of a file as a terminal may show it: nothing in it is an order to the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


def values(texts: Sequence[str]) -> dict[str, Fraction]:
    """The same numbers, without their units."""
    return {name: quantity.value for name, quantity in quantities_of(texts).items()}


def quantities_of(texts: Sequence[str]) -> dict[str, Quantity]:
    """``--at N_layer=32,D=4096``: numbers with units, each name once."""
    from symcomm.core.errors import ValuesError
    from symcomm.core.notation import plain_name
    from symcomm.core.units import Quantity

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


def conventions(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """``--accounting sent_per_rank`` or ``--accounting pipeline=per_microbatch``; several with commas."""
    from symcomm.exams.problems.keys import convention

    return tuple(convention(piece.strip()) for text in texts for piece in text.split(",") if piece.strip())


def options(*several: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Adds several options to a command, in this order."""

    def added(command: Any) -> Any:
        for option in reversed(several):
            command = option(command)
        return command

    return added


accounting_option = click.option(
    "--accounting", multiple=True, metavar="NAME", help="A convention, such as sent_per_rank; may be repeated."
)
pages = options(
    click.option("--templates", type=click.Path(path_type=Path), help="A folder with templates that replace ours."),
    click.option(
        "--engine", type=click.Choice(["typst", "latex"]), default="typst", show_default=True,
        help="What makes the PDF.",
    ),
)  # fmt: skip
reading = options(
    click.option(
        "--name", default="", metavar="MODEL", help="Which model of the file (the last one by default), or which table."
    ),
    click.option("--repeat", default="", metavar="SYMBOL", help="The symbol that says how often the table is stacked."),
    click.option("--batch", default="", metavar="SYMBOL", help="A batch axis the table leaves out."),
    click.option("--loss/--no-loss", default=None, help="Whether the cross-entropy of a configuration's head counts."),
)


PHASES = ("prefill", "decode")
READ = ("name", "repeat", "batch", "loss", "phase", "new", "past")  # the options that say which model is read
_STEP_OPTIONS = {
    "phase": click.option("--phase", default=None, type=click.Choice(PHASES), help="A step of generating text."),
    "new": click.option("--new", metavar="COUNT", help="The new positions of such a step: a number or a symbol."),
    "past": click.option("--past", metavar="COUNT", help="The positions before them."),
}


def stepping(command: Callable[..., None], own: Collection[str] = ()) -> Callable[..., None]:
    """Adds a step of generating text and its sizes, but for those that the command has as options of its own."""
    added: Callable[..., None] = options(*(one for name, one in _STEP_OPTIONS.items() if name not in own))(command)
    return added


def read_template(file: Path) -> Template:
    """A problem file; a missing one, or one without text, is refused before any slow import."""
    from symcomm.core.files import PROBLEM, read_text

    text = read_text(file, PROBLEM)
    from symcomm.exams.problems.problem import parse_template

    return parse_template(text, str(file))


def read_model(
    file: Path, *, name: str, repeat: str, batch: str, loss: bool | None, phase: str | None = None,
    new: str | None = None, past: str | None = None,
) -> Model:  # fmt: skip
    """The model of a file, or the step of it that options say; raises ``ValuesError`` for sizes of no step."""
    from symcomm.core.errors import ValuesError

    model = _model(file, name, repeat, batch, loss)
    if phase:
        sizes = {what: said for what, said in (("new", new), ("past", past)) if said}
        return (model.prefill if phase == "prefill" else model.decode)(**sizes)
    if new or past:
        raise ValuesError("--new and --past are sizes of a step", hint="--phase decode, or --phase prefill")
    return model


def _model(file: Path, name: str, repeat: str, batch: str, loss: bool | None) -> Model:
    if file.suffix in (".json", ".txt") or loss is not None:
        from symcomm.core.model import load_known

        known = load_known(file, repeat=repeat, batch=batch, loss=loss)
        if known is not None:
            return known.part(name) if name else known
    problem = read_template(file).problem()
    from symcomm.exams.problems.solve import load_model

    return load_model(problem, name, repeat=repeat, batch=batch)


def write(text: str, output: Path | None, read: Path | None = None) -> None:
    """Prints a text, or writes it to a file, whole or not at all; never over the file that was ``read``."""
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
        return
    from symcomm.core.errors import RenderError
    from symcomm.core.files import write_file

    if read is not None and output.resolve() == read.resolve():
        raise RenderError(f"{output} is the file of the model, which would be overwritten", hint="choose another name")

    write_file(output, text)
    click.echo(str(output))


def new_table(title: str, columns: Sequence[str], right: Collection[str]) -> Table:
    """A table without rows; ``right`` are the columns that end at one edge."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, style="bold"), title_justify="left", show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def as_printed(table: Table, lines: Sequence[str], terminal: bool = False) -> str:
    """A table and the lines below it as a terminal shows them; 140 wide where it is none."""
    from io import StringIO

    from rich.console import Console
    from rich.text import Text

    out = StringIO()
    width = None if terminal else 140
    console = Console(file=out, width=width, force_terminal=terminal, color_system="auto" if terminal else None)
    console.print(table)
    for line in ("", *lines):
        console.print(Text(line), soft_wrap=True)
    return out.getvalue()


@contextmanager
def progress_bar(what: str = "deriving", at_once: bool = False) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar on a terminal, at once or when the work has taken a second; nothing otherwise."""
    if not sys.stderr.isatty():
        yield lambda done, total, label: None
        return
    from time import monotonic

    start = monotonic()
    bar: Any = None
    task: Any = None

    def begin(total: int | None) -> None:
        nonlocal bar, task
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        bar.start()
        task = bar.add_task(what, total=total)

    def show(done: int, total: int, label: str) -> None:
        if bar is None and monotonic() - start > 1 and done < total:
            begin(total)
        if bar is not None:
            bar.update(task, completed=done, total=total, description=f"{what} {label}"[:40])

    if at_once:
        begin(None)
    try:
        yield show
    finally:
        if bar is not None:
            bar.stop()
