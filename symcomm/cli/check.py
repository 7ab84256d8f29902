"""``symcomm check``: an answer to a question of a problem document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from symcomm.cli.shared import read_template, shown_text

if TYPE_CHECKING:
    from symcomm.exams.problems.problem import Ask, Problem


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("question")
@click.argument("answer", nargs=-1, required=True)
@click.option("--decimal-comma", is_flag=True, help="A comma in a number is a decimal comma.")
@click.option("--json", "as_json", is_flag=True, help="The verdict as JSON.")
@click.option("--reveal", is_flag=True, help="Show the right answer, too.")
def check(file: Path, question: str, answer: tuple[str, ...], decimal_comma: bool, as_json: bool, reveal: bool) -> None:
    """Check an answer to a question: right or wrong, and why.

    \b
    symcomm check homework.md 1.1 '16 N D^2'
    symcomm check homework.md 1.1 '1.61 GB' --json

    FILE is a problem file. QUESTION is an id, a number or a label. An answer that begins with a minus sign
    comes after '--'.

    Exit status: 0 the answer is right, 1 it is not, 2 a mistake in the file or the command.
    """
    problem = read_template(file).problem()
    from symcomm.exams.key import check as checked
    from symcomm.exams.key import key_of
    from symcomm.exams.problems.solve import followed

    key = key_of(problem, followed(problem, _ask(problem, question)))
    verdict = checked(" ".join(answer), key, decimal_comma=decimal_comma or None)
    if as_json:
        made = verdict.record()
        if not reveal and "counterexample" in made:
            del made["counterexample"]["key"]
        click.echo(json.dumps(made, ensure_ascii=False, indent=2))
    else:
        told = re.sub(r"\Adifferent\b", "wrong", str(verdict if reveal else replace(verdict, counterexample=None)))
        read = f"read as: {_text(verdict.read)}" if verdict.read else ""
        lines = [told, *([] if reveal else _not_right(verdict)), read]
        click.echo(shown_text("\n".join(filter(None, lines))))
    click.get_current_context().exit(0 if verdict.right else 1)


def _not_right(verdict: Any) -> Iterator[str]:
    """What the answer comes to where it is not right, without the answer that is."""
    if verdict.counterexample is not None and verdict.verdict != "other_convention":
        at = ", ".join(f"{name} = {value}" for name, value in verdict.counterexample.values)
        yield f"{verdict.counterexample.answer.reading} is not right" + (f", at {at}" if at else "")


def _text(latex: str) -> str:
    r"""A formula as it is typed.

    >>> _text(r"24\,N_{\text{layer}}\,D^{2} + \frac{1}{k}")
    '24 N_layer D^2 + 1/k'
    >>> _text(r"\frac{1}{2}\,N + \frac{a + b}{2}")
    '(1/2) N + (a + b)/2'
    """
    fraction = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
    latex = re.sub(r"\\(?:text|mathrm|operatorname)\{([^{}]*)\}", r"\1", latex).replace(r"\cdot", "·")
    latex = re.sub(r"([_^])\{(\w+|-?\d+)\}", r"\1\2", latex.replace(r"\left", "").replace(r"\right", ""))
    while fraction.search(latex):
        latex = fraction.sub(_typed_fraction, latex)
    return " ".join(re.sub(r"\\[,;: ]", " ", latex).replace("\\", "").split())


def _typed_fraction(found: re.Match[str]) -> str:
    """A fraction in brackets where a factor is beside it, and its parts where they are no single number or name."""
    typed = "/".join(part if re.fullmatch(r"[\w.^]+", part) else f"({part})" for part in found.groups())
    before, after = (
        re.sub(r"\\[,;: ]|\s", "", text) for text in (found.string[: found.start()], found.string[found.end() :])
    )
    return f"({typed})" if re.search(r"[\w)}]\Z", before) or re.match(r"[\w(\\{^]", after) else typed


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
