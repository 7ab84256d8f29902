"""Many models under many strategies: a table of what agrees, and why something is not run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from json import dumps, loads
from pathlib import Path
from typing import Any

from symcomm.core.errors import SymcommError
from symcomm.core.model import Model
from symcomm.core.records import dataclass
from symcomm.verify.conventions import CONVENTIONS
from symcomm.verify.launch import Launcher, VerificationError
from symcomm.verify.verify import Verification, prepare

# What the grid runs: a strategy and, for a pipeline, its schedule.
ONE: tuple[tuple[str, str], ...] = (("", ""),)
TWO: tuple[tuple[str, str], ...] = (
    ("data(2)", ""), ("zero-1(2)", ""), ("optimizer-sharded(2)", ""), ("zero-2(2)", ""), ("fully-sharded(2)", ""),
    ("tensor(2)", ""), ("tensor(2) + sequence", ""), ("context(2)", ""), ("expert + data(2)", ""),
    ("pipeline(2, microbatches=4)", "gpipe"), ("pipeline(2, microbatches=4)", "1f1b"),
    ("pipeline(2, microbatches=4)", "interleaved"), ("pipeline(2, microbatches=4)", "zb-h1"),
    ("pipeline(2, microbatches=4)", "zb-v"),
)  # fmt: skip
FOUR: tuple[tuple[str, str], ...] = (
    ("data(4)", ""), ("zero-1(4)", ""), ("fully-sharded(4)", ""), ("hybrid-sharded(2, 2)", ""), ("tensor(4)", ""),
    ("tensor(4) + sequence", ""), ("context(4)", ""), ("expert + data(4)", ""), ("data(2) + tensor(2)", ""),
    ("data(2) + tensor(2) + sequence", ""), ("data(2) + context(2)", ""), ("context(2) + tensor(2)", ""),
    ("fully-sharded(2) + tensor(2)", ""), ("fully-sharded(2) + tensor(2) + sequence", ""),
    ("pipeline(4, microbatches=8)", "1f1b"), ("pipeline(4, microbatches=8)", "zb-v"),
    ("data(2) + pipeline(2, microbatches=4)", "1f1b"), ("pipeline(2, microbatches=4) + tensor(2)", "1f1b"),
    ("pipeline(2, microbatches=4) + tensor(2) + sequence", "1f1b"),
    ("pipeline(2, microbatches=4) + fully-sharded(2)", "1f1b"),
)  # fmt: skip


@dataclass(frozen=True)
class GridCell:
    """One model under one strategy: what was found, or why it was not run."""

    model: str
    strategy: str
    schedule: str
    found: Verification | None
    why: str = ""
    failed: bool = False

    @property
    def mark(self) -> str:
        """Its text in a table: ``=`` with the numbers of conventions, ``≠``, ``–`` where it does not apply.

        ``×`` is where a run failed or did not end.
        """
        if self.found is None:
            return "×" if self.failed else "–"
        numbers = map(str, sorted([*CONVENTIONS].index(name) + 1 for name in self.found.conventions))
        return ("=" if self.found.holds else "≠") + (f" ({', '.join(numbers)})" if self.found.conventions else "")


def grid(
    models: Sequence[Model], runs: Iterable[tuple[str, str]] = (*ONE, *TWO, *FOUR), limit: float = 300,
    values: Mapping[str, Fraction] | None = None,
    told: Callable[[int, int, str], None] = lambda done, total, label: None, resume: Path | None = None,
) -> list[GridCell]:  # fmt: skip
    """Every model under every strategy that it can have; a failure is a text in its cell.

    ``resume`` is a file in which each run is kept as it ends: what stands in it is not run again, but compared again.
    """
    cells: list[GridCell] = []
    every = [(model, *run) for model in models for run in runs]
    with Launcher() as launch:
        run = _kept(launch, resume) if resume else launch
        for n, (model, strategy, schedule) in enumerate(every):
            told(n, len(every), f"{strategy}: {model.name}")
            cell = GridCell(model.name, strategy, schedule, None)
            try:
                made = prepare(model, strategy or None, values, schedule=schedule or "1f1b")
            except SymcommError as error:
                cells.append(replace(cell, why=error.message))
                continue
            try:
                cells.append(replace(cell, found=made.compare(run(made.spec, limit))))
            except VerificationError as error:
                cells.append(replace(cell, why=error.message, failed=True))
    told(len(every), len(every), "")
    return cells


def _kept(launch: Launcher, path: Path) -> Callable[[Mapping[str, Any], float], list[dict[str, Any]]]:
    """Runs that are kept in a file, a line each: by what the ranks were told, the program of a rank and PyTorch."""
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            with suppress(ValueError, KeyError):  # the last line of one that was ended may be a part
                one = loads(line)
                found[one["key"]] = one["reports"]
        path.touch()
    except OSError as error:
        raise VerificationError(f"{path} cannot be written: {error.strerror}") from None
    files = (Path(__file__).with_name(f"{name}.py") for name in ("worker", "ways", "counters", "peak"))
    program = "".join(file.read_text(encoding="utf-8") for file in files)

    def run(spec: Mapping[str, Any], limit: float) -> list[dict[str, Any]]:
        key = sha256(dumps([spec, program, launch.torch], sort_keys=True).encode()).hexdigest()
        if key not in found:
            found[key] = launch(spec, limit)
            with path.open("a", encoding="utf-8") as out:
                out.write(dumps({"key": key, "reports": found[key]}) + "\n")
        return found[key]

    return run


def markdown(cells: Sequence[GridCell]) -> str:
    """The grid as tables: a row a strategy, a column a model; the conventions below, by number."""
    models = list(dict.fromkeys(cell.model for cell in cells))
    rows: dict[tuple[str, str], dict[str, GridCell]] = {}
    for cell in cells:
        rows.setdefault((cell.strategy, cell.schedule), {})[cell.model] = cell
    lines = ["| strategy | run by | " + " | ".join(models) + " |", "|---|---|" + "---|" * len(models)]
    for (strategy, schedule), found in rows.items():
        by = next((c.found.interface for c in found.values() if c.found is not None), "")
        name = f"`{strategy}`" + (f" {schedule}" if schedule else "") if strategy else "one process"
        lines.append(f"| {name} | {by} | " + " | ".join(found[m].mark if m in found else "–" for m in models) + " |")
    used = {name for cell in cells if cell.found is not None for name in cell.found.conventions}
    lines += ["", *(f"- ({n}) *{c.name}*: {c.statement} ([PyTorch]({c.source}))"
                    for n, c in enumerate(CONVENTIONS.values(), 1) if c.name in used)]  # fmt: skip
    return "\n".join(lines) + "\n"


def json(cells: Sequence[GridCell]) -> list[dict[str, Any]]:
    """The grid for a program."""
    return [
        {"model": c.model, "strategy": c.strategy, "schedule": c.schedule, "why": c.why}
        | ({"found": c.found.json()} if c.found is not None else {})
        for c in cells
    ]
