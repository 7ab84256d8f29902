"""Times a search of 70,000,000 configurations of a GPT-3 sized model: ``python benchmarks/search.py``.

Over 18,000,000 of them divide evenly: their time, their memory and whether they fit are all evaluated, and they are
told apart. Deriving the closed forms is timed by itself. With one job the seconds are those of the processor, which
other programs do not lengthen. Beside it, a plain loop that asks a model for one configuration after the other. The
peak memory is the largest resident size (``resource.getrusage``) of this process, plus that of its largest worker for
each worker. Exit status 1 where a limit is broken.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

GPT3 = Path(__file__).resolve().parents[1] / "examples" / "search" / "gpt3.md"
LEAST = 18_000_000  # configurations that divide evenly
BATCHES = 576
RATE = 10_000_000  # configurations of the grid per second and job, after deriving
LOOP = 500  # configurations per second, one at a time
PEAK = 10**9  # bytes
GB = 10**9
MACHINE = {"device": "A100-80GB-SXM", "network": "300 GB/s"}  # one bandwidth for all ranks


@dataclass(frozen=True)
class Measured:
    """One search: how many configurations it tried and evaluated, its seconds before and after, its peak memory."""

    jobs: int
    tried: int
    evaluated: int
    feasible: int
    deriving: float
    seconds: float
    peak: int

    @property
    def rate(self) -> float:
        """Configurations in a second, after deriving; telling the result exactly is part of it."""
        return self.tried / self.seconds


def measure(jobs: int) -> Measured:
    """A search over shapes of a mesh of 1,536 GPUs, microbatches, and the batch."""
    import symcomm as sc

    clock = time.process_time if jobs == 1 else time.perf_counter
    model = sc.load(GPT3)
    stamps = [clock()]

    def progress(done: int, total: int, label: str) -> None:
        if label == "closed forms" and done == total:
            stamps.append(clock())

    found = sc.search(
        model, devices=1536, **MACHINE, capacity_is="nominal_GB", batch=f"1536..{1536 * BATCHES}+1536",
        microbatches="1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96", sizes={"L": "1024..4096*2"}, jobs=jobs,
        progress=progress,
    )  # fmt: skip
    end = clock()
    unfit = sum(n for why, n in found.refused if why.startswith("does not divide"))
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    if jobs > 1:
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True)  # children are counted once they have ended
        peak += jobs * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    return Measured(
        jobs, found.tried, found.tried - unfit, found.feasible, stamps[1] - stamps[0], end - stamps[1], peak
    )


def loop() -> float:
    """Configurations a second of a plain loop over ``step_time``, the first two derivations left out."""
    import symcomm as sc

    model = sc.load(GPT3)
    pairs = [(d, t) for d in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128) for t in (2, 4, 8, 16, 32)]

    def ask(d: int, t: int) -> object:
        return model.step_time(f"data({d}) + tensor({t})", microbatches=4, **MACHINE).at()

    ask(2, 4)
    ask(4, 2)
    start = time.process_time()
    for d, t in pairs:
        ask(d, t)
    return len(pairs) / (time.process_time() - start)


def main() -> int:
    """Prints the rate and the peak memory; the status says whether the limits were kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes (1)")
    found = measure(parser.parse_args().jobs)
    print(f"{found.tried:,} configurations tried, {found.evaluated:,} divide evenly, {found.feasible:,} fit")
    print(f"closed forms derived in {found.deriving:.2f} s; {found.seconds:.2f} s to search with {found.jobs} jobs")
    print(f"{found.rate:,.0f} configurations/s, peak memory {found.peak / GB:.2f} GB (resident, getrusage)")
    one_by_one = loop()
    print(f"{one_by_one:,.0f} configurations/s one at a time; the grid is {found.rate / one_by_one:,.0f} times as fast")
    return int(found.evaluated < LEAST or found.rate < RATE * found.jobs or found.peak > PEAK or one_by_one < LOOP)


if __name__ == "__main__":
    sys.exit(main())
