"""Pages of the reference, each made from the registry that the program itself reads."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

import click

import symcomm
from symcomm.cli import main
from symcomm.core.accounting import CONVENTIONS
from symcomm.core.collectives.algorithms import ALGORITHMS
from symcomm.core.dtypes import FORMATS, GROUPED
from symcomm.core.hardware.devices import known_devices, known_networks
from symcomm.core.parallel.strategy import STRATEGIES
from symcomm.core.printing import short
from symcomm.core.program.schedules import schedules
from symcomm.core.readers.architectures import ARCHITECTURES
from symcomm.exams.mistakes import MISTAKES


def reference() -> dict[str, str]:
    """The pages by their names, as Markdown."""
    return {
        "conventions": _conventions(),
        "strategies": _strategies(),
        "devices": _devices(),
        "formats": _table("Formats of numbers", ("name", "exponent bits", "mantissa bits", "source"),
                          [(f.name, f.exponent, f.mantissa, f.source) for f in FORMATS.values()])
                   + "\n## Formats quantised in groups\n\n"
                   + _rows(("name", "a number, and the scale of a group"),
                           [(f"`{name}`", f"`{made}`") for name, made in GROUPED.items()]),
        "mistakes": _table("Mistakes that are known", ("name", "what it says"), [(m.name, m.says) for m in MISTAKES]),
        "architectures": _table("Architectures that are read", ("model_type",), [(name,) for name in ARCHITECTURES]),
        "commands": _commands(),
        "names": _names(),
    }  # fmt: skip


def _conventions() -> str:
    fields: dict[str, list[tuple[object, ...]]] = {}
    for one in CONVENTIONS:
        fields.setdefault(one.field, []).append((f"`{one.name}`", one.statement))
    rows = (f"## {field}\n\n" + _rows(("name", "what it means"), found) for field, found in fields.items())
    return (
        "# Conventions\n\nThe first of each is the default. An answer names those that changed its number.\n\n"
        + "\n".join(rows)
    )


def _devices() -> str:
    rows = [
        (f"`{d.name}`", f"{short(d.capacity('nominal_GB'))}, {d.memory.bandwidth.text}",
         ", ".join(f"{key} {short(rate.peak)}" for key, rate in d.rates.items()),
         ", ".join(link.name for link in d.links.values()), d.source)
        for d in known_devices().values()
    ]  # fmt: skip
    return (
        _table("Devices and clusters", ("device", "memory", "dense peak rates", "links", "source"), rows)
        + "\n## Clusters\n\n"
        + _rows(("name", "what it is"), [(f"`{name}`", one.told) for name, one in known_networks().items()])
    )


def _strategies() -> str:
    text = _table("Strategies, schedules and collectives", ("strategy", "what it is"),
                  [(f"`{name}`", _first(make)) for name, make in STRATEGIES.items()])  # fmt: skip
    text += "\n## Schedules of a pipeline\n\n" + _rows(
        ("name", "what it is"), [(f"`{one.name}`", one.why) for one in schedules()]
    )
    return (
        text
        + "\n## Algorithms of collectives\n\n"
        + _rows(("name", "runs", "source"), [(f"`{a.name}`", ", ".join(a.runs), a.source) for a in ALGORITHMS.values()])
    )


def _commands() -> str:
    text = "# Commands and their options\n"
    for name, command in main.commands.items():
        context = click.Context(command, info_name=f"symcomm {name}")
        text += f"\n## symcomm {name}\n\n```text\n{command.get_help(context)}\n```\n"
    return text


def _names() -> str:
    text = "# Names in Python\n\n`import symcomm as sc` has these names.\n"
    for name in symcomm.__all__:
        found = getattr(symcomm, name)
        if name != "__version__":
            text += f"\n## sc.{name}\n\n{_docstring(inspect.getdoc(found) or '')}\n"
    return text


def _docstring(text: str) -> str:
    """A docstring as Markdown: what is indented or typed after ``>>>`` is code, the rest prose."""
    parts = []
    for part in re.split(r"\n{2,}(?! )", text.strip()):
        if part.startswith(">>>"):
            parts.append(f"```pycon\n{part}\n```")
        elif re.search(r"^ ", part, re.MULTILINE):
            parts.append(f"```text\n{part}\n```")
        else:
            parts.append(re.sub(r"([<>*_])(?=[^`]*(?:`[^`]*`[^`]*)*$)", r"\\\1", part.replace("``", "`")))
    return "\n\n".join(parts)


def _first(found: object) -> str:
    """The first sentence of a docstring."""
    return (inspect.getdoc(found) or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")


def _table(title: str, head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    return f"# {title}\n\n{_rows(head, rows)}"


def _rows(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)
