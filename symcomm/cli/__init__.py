"""The command line: one file a command, ``symcomm solve``, ``derive``, ``quantities``, ``show`` and others.

Only Click is imported here; what a command needs is imported when it runs, so that ``--help`` answers at once.
Mistakes in the input are told with their place and end with status 2; a bug says that it is one.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any

import click

from symcomm import __version__
from symcomm.cli.check import check
from symcomm.cli.completion import completion
from symcomm.cli.derive import derive, passes, quantities, schema
from symcomm.cli.exam import exam
from symcomm.cli.grade import grade
from symcomm.cli.measure import measure
from symcomm.cli.new import new
from symcomm.cli.practice import practice
from symcomm.cli.search import search
from symcomm.cli.serve import serve
from symcomm.cli.shared import as_typed, shown_text
from symcomm.cli.show import show
from symcomm.cli.solve import solve
from symcomm.cli.verify import verify
from symcomm.core.garbage import collected_rarely

_ISSUES = "please report it with the command and the file"


class _Commands(click.Group):
    """A group whose commands report mistakes and bugs in their own way."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order in which a newcomer needs them."""
        return [*self.commands]

    def invoke(self, ctx: click.Context) -> Any:
        from symcomm.core.errors import SymcommError

        try:
            with _ends_politely(), collected_rarely():
                try:
                    return super().invoke(ctx)
                finally:
                    gc.freeze()  # the process ends: to look through all that it made would find nothing of use
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(128 + signal.SIGINT)
        except SymcommError as error:
            if ctx.params.get("debug"):
                raise
            if error.span is None and ctx.invoked_subcommand:  # of no file, so its options are those of the command
                error.hint = as_typed(error.hint, self.commands[ctx.invoked_subcommand])
            click.echo(f"error: {shown_text(str(error))}", err=True)
            ctx.exit(2)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            said = shown_text(" ".join(str(error).split())[:300])
            click.echo(f"internal error: {type(error).__name__}: {said}", err=True)
            click.echo(f"This is a bug in symcomm; {_ISSUES}. `symcomm --debug ...` shows the traceback.", err=True)
            ctx.exit(1)


@contextmanager
def _ends_politely() -> Iterator[None]:
    """While it lasts, SIGTERM ends the program so that what is waiting in temporary files is taken away."""
    if current_thread() is not main_thread():  # only the main thread may say what a signal does
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="symcomm")
@click.option("--debug", is_flag=True, help="Show tracebacks instead of messages.")
def main(debug: bool) -> None:
    """Derive the cost of neural networks in closed form from layer tables, every step shown.

    Exit status: 0 done, 1 a check failed or a bug in symcomm, 2 a mistake in the input, 130 interrupted.
    """


for _command in (
    new, solve, derive, quantities, passes, schema, search, show, check, exam, grade, verify, practice, measure,
    serve, completion,
):  # fmt: skip
    main.add_command(_command)
