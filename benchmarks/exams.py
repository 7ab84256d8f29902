"""Makes the exam of a class from the midterm of the examples, as the command line does: keys, pages, exports, grades.

``python benchmarks/exams.py`` prints seconds and processor seconds, all processes and their start included; ``--quick``
takes a smaller class, names of rows (``keys md html moodle grades``) only these, and ``--of exam.md`` another document
than the midterm, which has no students to grade.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "midterm"
EXPORTS = ("moodle", "stack", "qti12", "qti21", "prairielearn")
CLASS = 40  # students whose answers are graded


@dataclass(frozen=True)
class Measured:
    """One measurement: what was made of how many papers, in seconds and processor seconds, with its limit."""

    name: str
    papers: int
    seconds: float
    processor: float
    limit: float | None = None  # seconds on two cores

    @property
    def rate(self) -> float:
        """Papers a second."""
        return self.papers / self.seconds


def _orders(papers: int, document: str) -> dict[str, tuple[str, int, float | None, tuple[str, ...]]]:
    variants = ("exam", document, "--variants", str(papers), "--seed", "7", "-o", "OUT", "--to")
    graded = ("grade", document, "--roster", "roster.csv", "--seed", "7", "--answers", "answers.csv", "-o", "OUT")
    return {
        "keys": ("keys", papers, 3, (*variants, "json", "--edition", "key")),
        "md": ("solutions in Markdown", papers, 12, (*variants, "md", "--edition", "solution")),
        "html": ("solutions in HTML", papers, 12, (*variants, "html", "--edition", "solution")),
        **{name: (f"variants for {name}", papers, 10, (*variants, name)) for name in EXPORTS},
        "grades": ("students graded", CLASS, None, graded),
    }


def measure(
    quick: bool = False, rows: tuple[str, ...] = (), document: Path = FOLDER / "midterm.md"
) -> Iterator[Measured]:  # fmt: skip
    """The rows that are named, or all, of a document; ``quick`` takes a smaller class.

    Modules are compiled before, as they are where symcomm is installed.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("md", "moodle"):
            words = ("exam", document, "--variants", "1", "-o", folder, "--to", kind)
            command = [sys.executable, "-m", "symcomm", *words]
            subprocess.run(command, cwd=document.parent, check=True, capture_output=True, env=environment)  # noqa: S603  (our own)
    for key, (name, papers, limit, words) in _orders(60 if quick else 500, document.name).items():
        if (rows and key not in rows) or (key == "grades" and document.parent != FOLDER):
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "symcomm", *(folder if word == "OUT" else word for word in words)]
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, cwd=document.parent, check=True, capture_output=True, env=environment)  # noqa: S603  (our own)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        yield Measured(name, papers, time.perf_counter() - start, processor, None if quick else limit)


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("rows", nargs="*")
    asked.add_argument("--quick", action="store_true")
    asked.add_argument("--of", type=Path, default=FOLDER / "midterm.md")
    said = asked.parse_args()
    for row in measure(said.quick, tuple(said.rows), said.of.resolve()):
        most = f" (at most {row.limit:g} s on two cores)" if row.limit else ""
        print(f"{row.papers} {row.name}: {row.seconds:.1f} s, {row.processor:.1f} s of processors, "
              f"{row.rate:,.1f}/s{most}", flush=True)  # fmt: skip
