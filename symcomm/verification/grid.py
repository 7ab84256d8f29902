"""Many models under many strategies: the runs of equally many processes share the time it takes to start them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from symcomm.errors import SymcommError
from symcomm.model import Model
from symcomm.records import dataclass
from symcomm.verification.conventions import CONVENTIONS
from symcomm.verification.launch import VerificationError, launch
from symcomm.verification.verify import Prepared, Verification, prepare

# What the grid runs: a strategy and, for a pipeline, its schedule.
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
)  # fmt: skip
BATCH = 24  # runs that share their processes


@dataclass(frozen=True)
class GridCell:
    """One model under one strategy: what was found, or why it was not run."""

    model: str
    strategy: str
    schedule: str
    found: Verification | None
    why: str = ""

    @property
    def mark(self) -> str:
        """How it is told in a table: ``=`` with the numbers of conventions, ``≠``, ``–`` where it does not apply.

        ``×`` is where PyTorch fails.
        """
        if self.found is None:
            return "×" if " failed: " in self.why else "–"
        numbers = map(str, sorted([*CONVENTIONS].index(name) + 1 for name in self.found.conventions))
        return ("=" if self.found.holds else "≠") + (f" ({', '.join(numbers)})" if self.found.conventions else "")


def grid(
    models: Sequence[Model], runs: Iterable[tuple[str, str]] = (*TWO, *FOUR), limit: float = 300,
    values: Mapping[str, Fraction] | None = None,
    told: Callable[[int, int, str], None] = lambda done, total, label: None,
) -> list[GridCell]:  # fmt: skip
    """Every model under every strategy that it can have; what fails is told in its cell."""
    runs = tuple(runs)
    ready: dict[int, list[tuple[int, Prepared]]] = {}
    cells: list[GridCell] = []
    for model in models:
        for strategy, schedule in runs:
            try:
                made = prepare(model, strategy or None, values, schedule=schedule or "1f1b")
            except SymcommError as error:
                cells.append(GridCell(model.name, strategy, schedule, None, error.message))
                continue
            ready.setdefault(made.case.ranks, []).append((len(cells), made))
            cells.append(GridCell(model.name, strategy, schedule, None))
    total, done = sum(len(some) for some in ready.values()), 0
    for some in ready.values():
        for start in range(0, len(some), BATCH):
            batch = some[start : start + BATCH]
            told(done, total, batch[0][1].case.model.name)
            for n, answer in zip((n for n, _ in batch), _together([made for _, made in batch], limit), strict=True):
                if isinstance(answer, Verification):
                    cells[n] = replace(cells[n], found=answer)
                else:
                    cells[n] = replace(cells[n], why=answer.message)
            done += len(batch)
    told(total, total, "")
    return cells


def _together(batch: Sequence[Prepared], limit: float) -> list[Verification | SymcommError]:
    """What each run found, or why it failed; where one of them ends them all, each is started by itself."""
    try:
        reports = launch([made.spec for made in batch], limit)
    except VerificationError as error:
        if len(batch) == 1:
            return [error]
        half = len(batch) // 2
        return _together(batch[:half], limit) + _together(batch[half:], limit)
    found: list[Verification | SymcommError] = []
    for made, report in zip(batch, reports, strict=True):
        try:
            found.append(made.compare(report))
        except VerificationError as error:
            found.append(error)
    return found


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
