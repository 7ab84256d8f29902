"""``symcomm derive``, ``quantities`` and ``schema``: one quantity, and what can be asked."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from symcomm.cli import shared

if TYPE_CHECKING:
    from fractions import Fraction

    from symcomm import Derivation
    from symcomm.core.quantities.declared import DeclaredQuantity

DERIVED = ("text", "json", "latex", "markdown", "html")


class _Derive(click.Group):
    """A command for each quantity, with its options; only the one that is asked for is read."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        from symcomm.core.quantities import QUANTITIES

        return [*QUANTITIES]

    def invoke(self, ctx: click.Context) -> Any:
        from symcomm.core.errors import SymcommError

        try:
            return super().invoke(ctx)
        except SymcommError as error:
            if error.span is None and ctx.invoked_subcommand:
                error.hint = shared.as_typed(error.hint, self.get_command(ctx, ctx.invoked_subcommand))
            raise

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        return _derive_command(_declared(name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from symcomm.core.quantities import QUANTITIES

        groups: dict[str, list[str]] = {}
        for name, group in QUANTITIES.groups.items():
            groups.setdefault(group, []).append(name)
        with formatter.section("Quantities"):
            formatter.write_dl([(group, ", ".join(names)) for group, names in groups.items()])


def _declared(name: str) -> DeclaredQuantity:
    from symcomm.core.errors import DocumentError
    from symcomm.core.quantities import QUANTITIES
    from symcomm.core.worksheets import read_worksheet

    if name.endswith(".md"):
        return QUANTITIES.of_worksheet(read_worksheet(name))
    if name not in QUANTITIES:
        raise DocumentError(f"unknown quantity '{name[:60]}'", hint=QUANTITIES.hint(name))
    return QUANTITIES[name]


@click.group(cls=_Derive, subcommand_metavar="QUANTITY [OPTIONS]")
def derive() -> None:
    """Derive one quantity, step by step.

    \b
    symcomm derive communication --model homework.md --strategy data --at N=32,D=4096
    symcomm derive peak_rate --clock '1.41 GHz' --units 108 --fma 512
    symcomm derive cost.md --model homework.md --strategy 'data(8)'    # a worksheet of your own

    'symcomm derive QUANTITY --help' tells the options of one, 'symcomm quantities' what each quantity is.
    """


_deriving = shared.options(
    click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="An option, in another way."),
    click.option("--at", multiple=True, metavar="NAME=VALUE,...", help="Numbers: N_layer=32,D=4096."),
    shared.accounting_option,
    click.option("--to", "form", type=click.Choice(DERIVED), default="text", show_default=True,
                 help="How it is written."),
    click.option("--detail", type=click.Choice(("brief", "full")), default="brief", show_default=True,
                 help="How much of the text: the answer and why, or every step."),
    click.option("--exact", is_flag=True, help="The exact number, also where it is a fraction of many digits."),
    click.option("-o", "--output", type=shared.PATH, help="A file instead of the terminal."),
)  # fmt: skip


def _derive_command(declared: DeclaredQuantity) -> click.Command:
    """The command of one quantity: the options that it declares, and those that all of them have."""

    def run(**given: Any) -> None:
        _derive(declared, given)

    run = _deriving(run)
    if declared.needs_model:
        run = shared.stepping(shared.reading(run), {one.name for one in declared.options})
        file = click.Path(path_type=Path)
        run = click.option("--model", "file", type=file, help="A file with a layer table, or a problem file.")(run)
    for one in reversed(declared.options):
        names = dict.fromkeys((f"--{one.name.replace('_', '-')}", f"--{one.name}"))
        run = click.option(*names, f"option_{one.name}", metavar=one.kind.upper(), help=plain(one.told))(run)
    return click.command(declared.name, help=plain(_without_python(declared.text)))(run)


def _without_python(text: str) -> str:
    """A docstring without its examples and the errors that it raises."""
    parts = (part for part in text.split("\n\n") if not part.lstrip().startswith(">>>"))
    told = (re.sub(r"\s*\bRaises\s+``.*?\.(?=\s|$)", "", part, flags=re.DOTALL) for part in parts)
    return "\n\n".join(part for part in told if part.strip())


def plain(text: str) -> str:
    return text.replace("``", "'")


def _derive(declared: DeclaredQuantity, given: dict[str, Any]) -> None:
    from symcomm.core.errors import DocumentError
    from symcomm.exams.problems.deriving import accounting_of, no_model
    from symcomm.exams.problems.deriving import derive as derived

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
    told = shared.quantities_of(given["at"])
    numbers = {option.name for option in declared.options if option.may_be_number} - said.keys()
    said |= {name: told.pop(name).exact.removesuffix(" 1") for name in numbers & told.keys()}
    steps = said.pop("phase") if said.get("phase") in shared.PHASES else given.get("phase")
    options = {name: declared.option(name).read(text) for name, text in said.items()}
    if str(said.get("device", "")).lower().endswith((".yaml", ".yml")):
        options["device"] = shared.device_of(said["device"])
    declared.check(options)
    file = given.get("file")
    model = no_model()
    if declared.needs_model:
        if file is None:
            raise DocumentError(f"'{declared.name}' needs a model", hint="name a file with a layer table: --model FILE")
        read = {key: given[key] for key in shared.READ if key in given}
        model = shared.read_model(file, **read | {"phase": steps})
    values = {symbol: number.value for symbol, number in told.items()}
    made = derived(
        declared if not declared.group else declared.name,
        model,
        options,
        accounting_of(shared.conventions(given["accounting"])),
        values,
    )
    made.check_names(told)
    known = made.values(**told)  # in their units
    brief = (given["form"], given["detail"]) == ("text", "brief")
    wide = shutil.get_terminal_size((80, 24)).columns if brief else 0
    text = _written(made, given["form"], values, wide, given["exact"])
    lacking = [name for name in made.needs if name not in known]
    text += f"\n\n  A number needs a value of {', '.join(lacking)}." if brief and known and lacking else ""
    text += "\n\n  --detail full: every step with its reason, all tables" if brief else ""
    shared.write(text, given["output"], file)


@click.command("quantities")
@click.argument("quantity", required=False)
@click.option("--json", "as_json", is_flag=True, help="For a program.")
def quantities(quantity: str | None, as_json: bool) -> None:
    """List what can be derived, or the options of one QUANTITY.

    \b
    symcomm quantities
    symcomm quantities communication
    """
    from symcomm.core.quantities import QUANTITIES

    chosen = [_declared(quantity)] if quantity else [*QUANTITIES.values()]
    if as_json:
        click.echo(json.dumps([one.json() for one in chosen], indent=2, ensure_ascii=False, default=str))
        return
    formatter = click.HelpFormatter(width=shutil.get_terminal_size().columns)
    if quantity:
        formatter.write(f"{quantity}: {plain(chosen[0].summary)}\n\n")
        formatter.write_dl([(o.name, o.told) for o in chosen[0].options])
    for group in dict.fromkeys(one.group for one in chosen) if not quantity else ():
        with formatter.section(group):
            formatter.write_dl([(one.name, plain(one.summary)) for one in chosen if one.group == group])
    click.echo(formatter.getvalue(), nl=False)


passes = click.Command("passes", params=quantities.params, callback=quantities.callback, hidden=True)


@click.command()
def schema() -> None:
    """Print the JSON schema of problem files, for editors."""
    from symcomm.exams.problems.schema import problem_schema

    click.echo(json.dumps(problem_schema(), indent=1, ensure_ascii=False))


def _written(made: Derivation, form: str, values: dict[str, Fraction], wide: int, exact: bool) -> str:
    if form == "json":
        from symcomm.core import report

        return json.dumps(report.derivation(made, values), indent=2, ensure_ascii=False)
    from symcomm.core.derivation.writing import written

    known = made.relations.complete(dict(made.given) | values)
    return written(made, form, known, wide, exact)  # type: ignore[arg-type]  # click checked the name
