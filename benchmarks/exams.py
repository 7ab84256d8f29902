"""Makes the papers of a class from the midterm of the examples, as ``symcomm exam`` does: keys, and solved pages."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MIDTERM = ROOT / "examples" / "midterm" / "midterm.md"


@dataclass(frozen=True)
class Measured:
    """One measurement: what was made of how many papers, in seconds, all processes and their start included."""

    name: str
    papers: int
    seconds: float

    @property
    def rate(self) -> float:
        """Papers a second."""
        return self.papers / self.seconds


def measure(quick: bool = False, processes: int | None = None) -> list[Measured]:
    """The keys of a class, and its solutions in Markdown; ``quick`` takes a smaller class."""
    from symcomm import __version__
    from symcomm.exam.roster import Student
    from symcomm.exam.writing import Order, make
    from symcomm.problems.problem import read_template

    papers = 60 if quick else 500
    students = [Student(f"{number + 1:03}") for number in range(papers)]
    orders = (("keys", Order(("json",), "paper", version=__version__)),
              ("solutions in Markdown", Order(("md",), "solution", version=__version__)))  # fmt: skip
    found = []
    for name, order in orders:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            make(read_template(MIDTERM), students, "7", order, Path(folder), processes=processes)
            found.append(Measured(name, papers, time.perf_counter() - start))
    return found


if __name__ == "__main__":
    for row in measure("--quick" in sys.argv):
        print(f"{row.papers} {row.name}: {row.seconds:.2f} s, {row.rate:,.1f}/s")
