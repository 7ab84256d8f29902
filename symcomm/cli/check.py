"""``symcomm check``: an answer to a question of a problem document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from symcomm.cli.shared import read_template, shown_text

if TYPE_CHECKING:
    from symcomm.exams.problems.problem import Ask, Problem


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("question")
@click.argument("answer")
@click.option("--decimal-comma", is_flag=True, help="A comma in a number is a decimal comma.")
@click.option("--json", "as_json", is_flag=True, help="The verdict as JSON.")
def check(file: Path, question: str, answer: str, decimal_comma: bool, as_json: bool) -> None:
    """Check an answer to a question of a problem file.

    \b
    symcomm check homework.md 2.1 '24 N_layer D^2'
    symcomm check homework.md 2.1 '12.88 GB' --json

    QUESTION is its id or number, or its label. An answer that begins with a minus sign stands behind '--'.

    Exit status: 0 the answer is right, 1 it is not, 2 a mistake in the file or the command.
    """
    problem = read_template(file).problem()
    from symcomm.exams.key import check as checked
    from symcomm.exams.key import key_of
    from symcomm.exams.problems.solve import followed

    key = key_of(problem, followed(problem, _ask(problem, question)))
    verdict = checked(answer, key, decimal_comma=decimal_comma or None)
    if as_json:
        click.echo(json.dumps(verdict.record(), ensure_ascii=False, indent=2))
    else:
        click.echo(shown_text(str(verdict) + (f"\nread as: {verdict.read}" if verdict.read else "")))
    click.get_current_context().exit(0 if verdict.right else 1)


def _ask(problem: Problem, name: str) -> Ask:
    """The question of a name; raises ``DocumentError`` where there is none, or several."""
    from symcomm.core.errors import DocumentError, nearest

    named = dict(zip(problem.ids, problem.asks, strict=True))
    if name in named:
        return named[name]
    found = [ask for ask in problem.asks if ask.label == name]
    if len(found) == 1:
        return found[0]
    known = [*named, *(ask.label for ask in problem.asks if ask.label)]
    what = f"several questions are called '{name[:60]}'" if found else f"there is no question '{name[:60]}'"
    raise DocumentError(f"{what} in {problem.file}", hint=nearest(name, known) if known else "the file asks nothing")
