"""Times what matters to a user, and prints a table with ratios: ``python benchmarks/run.py``.

Cold times are those of whole processes, compared with that of importing SymPy alone; warm times are those of
derivations in a process that has done them once. The chain of distinct ops shows that time grows linearly. Exit status
1 where a limit is broken.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
CHAIN = 40  # times ``import sympy`` for a chain of 10,000 ops
HOMEWORK = ROOT / "examples" / "comp4901y-homework2" / "homework.md"


@dataclass(frozen=True)
class Row:
    """One line of the table: what was timed, in seconds, what it is compared with, and its limit in seconds."""

    name: str
    seconds: float
    ratio: str
    limit: float | None = None

    @property
    def broken(self) -> bool:
        """Whether it took longer than its limit."""
        return self.limit is not None and self.seconds > self.limit


def process(*arguments: str, repeat: int) -> float:
    """The median time of a process, in seconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)  # noqa: S603  (our own command)
        times.append(time.perf_counter() - start)
    return median(times)


def warm(work: Callable[[], object], repeat: int) -> float:
    """The median time of a function that has run once before."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def cold_rows(repeat: int) -> list[Row]:
    """Whole processes, compared with ``import sympy``."""
    base = process("-c", "import sympy", repeat=repeat)
    rows = [Row("import sympy (for comparison)", base, "1.00 x")]
    with tempfile.TemporaryDirectory() as folder:
        solve = ("-m", "symcomm", "solve", str(HOMEWORK), "-o", folder, "--to")
        for name, arguments, limit in (
            ("symcomm --help", ("-m", "symcomm", "--help"), 0.2),
            ("symcomm show homework, cold", ("-m", "symcomm", "show", str(HOMEWORK)), None),
            ("symcomm solve homework to Markdown, cold", (*solve, "md"), 2.0),
            ("symcomm solve homework to PDF, cold", (*solve, "pdf"), 4.0),
        ):
            seconds = process(*arguments, repeat=repeat)
            rows.append(Row(name, seconds, f"{seconds / base:.2f} x", limit))
    return rows


def warm_rows(repeat: int) -> list[Row]:
    """Deriving all quantities of one layer, and reading its table, in a warm process."""
    import symcomm as sc

    model = sc.load(HOMEWORK)

    def everything() -> None:
        model.parameters()
        for scope in ("forward", "backward", "training"):
            model.flops(scope)
        model.traffic()
        model.intensity()
        for strategy in ("data(k)", "fully-sharded(k)", "tensor(8)", "tensor(8) + sequence", "pipeline(8)"):
            model.communication(strategy)
        model.state_memory("fully-sharded(8)")

    seconds = warm(everything, repeat)
    rows = [Row("all quantities of one layer, warm", seconds, "", 0.1)]
    reading = warm(lambda: sc.load(HOMEWORK), repeat)
    return [*rows, Row("reading the homework, warm", reading, f"{reading / seconds:.2f} x of the line above")]


def chain(ops: int) -> str:
    """A table of distinct ops, each a matrix product of the one before."""
    rows = [
        f"y{n + 1} = y{n} W{n + 1}\ty{n} [B, D], W{n + 1} [D, D]\ty{n + 1} [B, D]" for n in range(ops)
    ]  # fmt: skip
    return "\n".join(["Computation\tInput\tOutput", *rows])


def processor(*arguments: str) -> float:
    """The processor time of a process, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)  # noqa: S603  (our own command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def chain_rows(sizes: tuple[int, ...]) -> list[Row]:
    """Reading a chain of distinct ops and deriving its quantities; linear where the ratio follows the size.

    The seconds are those of the processor, as are those of ``import sympy``, measured between them.
    """
    from symcomm.core import model as models

    rows: list[Row] = []
    first: dict[str, float] = {}
    for ops in sizes:
        text = chain(ops)
        base = [processor("-c", "import sympy") for _ in range(3)]
        start = time.process_time()
        model = models.load(text)
        steps = [("read", time.process_time() - start)]
        for name, work in (
            ("parameters", lambda m: m.parameters().expr),
            ("training FLOPs", lambda m: m.flops("training").expr),
            ("data-parallel communication", lambda m: m.communication("data(k)").expr),
        ):
            start = time.process_time()
            work(model)
            steps.append((name, time.process_time() - start))
            base.append(processor("-c", "import sympy"))
        steps.append(("together", sum(seconds for _, seconds in steps)))
        for name, seconds in steps:
            first.setdefault(name, seconds)
            ratio = f"{seconds / first[name]:.1f} x for {ops / sizes[0]:.0f} x the ops"
            ratio += f", {seconds / median(base):.1f} x import sympy"
            limit = CHAIN * median(base) if name == "together" and ops == 10_000 else None
            rows.append(Row(f"chain of {ops:,} ops: {name}", seconds, ratio, limit))
    return rows


def sweep_rows(quick: bool) -> list[Row]:
    """A million collective configurations, vectorised, against evaluating each expression by itself."""
    import collectives_sweep

    measured = collectives_sweep.measure(quick)
    sweep = measured[1]
    rows = []
    for row in measured:
        slower = sweep.rate / row.rate
        ratio = f"{slower:,.0f} x slower than the sweep" if row.name.startswith("loop") else ""
        limit = collectives_sweep.LIMIT if row is sweep else None
        rows.append(Row(f"{row.name}: {row.configurations:,}", row.seconds, ratio, limit))
    return rows


def search_rows() -> list[Row]:
    """A search of a million configurations that divide evenly, on one core and on two; peak memory is resident size."""
    import search

    rows = []
    for jobs in (1, 2):
        found = search.measure(jobs)
        told = f"{found.rate:,.0f}/s, peak {found.peak / search.GB:.2f} GB, {jobs} job{'s' * (jobs > 1)}"
        rows.append(Row(f"search: deriving the closed forms, {jobs} job{'s' * (jobs > 1)}", found.deriving, ""))
        rows.append(
            Row(f"search: {found.evaluated:,} configurations", found.seconds, told, found.evaluated / search.RATE)
        )
    return rows


def exam_rows(quick: bool) -> list[Row]:
    """The exam of a class: its keys, solutions, exports and grades, with processor seconds."""
    import exams

    return [
        Row(f"exam: {row.papers} {row.name}", row.seconds, f"{row.rate:,.1f}/s, {row.processor:.1f} s of processors",
            row.limit)
        for row in exams.measure(quick)
    ]  # fmt: skip


def main() -> int:
    """Prints the table; the status says whether all limits were kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, a shorter chain")
    quick = parser.parse_args().quick
    repeat, sizes = (1, (100, 300, 1000)) if quick else (5, (1000, 3000, 10000))
    rows = [
        *cold_rows(repeat),
        *warm_rows(repeat),
        *sweep_rows(quick),
        *search_rows(),
        *exam_rows(quick),
        *chain_rows(sizes),
    ]
    table = Table(title=f"symcomm on {os.cpu_count()} cores, Python {sys.version.split()[0]}", title_justify="left")
    for column, side in (("what", "left"), ("seconds", "right"), ("ratio", "left"), ("limit", "right"), ("", "left")):
        table.add_column(column, justify="right" if side == "right" else "left")
    for row in rows:
        limit = "" if row.limit is None else f"{row.limit:g}"
        verdict = "" if row.limit is None else "too slow" if row.broken else "kept"
        table.add_row(row.name, f"{row.seconds:.3f}", row.ratio, limit, verdict)
    Console(width=max(110, Console().width)).print(table)
    return 1 if any(row.broken for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
