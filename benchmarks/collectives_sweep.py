"""Times a sweep of 1,000,000 collective configurations: ``python benchmarks/collectives_sweep.py``.

Sizes x ranks x algorithms are evaluated from the closed forms as NumPy arrays, and compared with evaluating each
expression in a loop, by substitution and exactly. Exit status 1 where the sweep takes a second or more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LIMIT = 1.0  # seconds for a million configurations
LINK = {"alpha": 5e-6, "W": 1e11, "q": 16, "g": 8, "k_x": 8, "k_y": 2, "alpha_out": 1e-5, "W_out": 2.5e10}
EXACT = {name: str(value) for name, value in LINK.items()}


@dataclass(frozen=True)
class Measured:
    """One way to evaluate: how many configurations it did, in how many seconds."""

    name: str
    configurations: int
    seconds: float

    @property
    def rate(self) -> float:
        """Configurations per second."""
        return self.configurations / self.seconds


def compiled_over_arrays(expressions: list[Any]) -> tuple[list[str], Callable[..., Any]]:
    """The names that expressions need, and one function of NumPy arrays for all of them.

    Rounded logarithms are taken from the binary exponent: the quotient of two of them may be 29.000...4.
    """
    import sympy as sp

    from symcomm.searching.evaluate import binary_ones, ceil_log2, floor_log2

    def exact(expr: Any) -> Any:
        logarithms = [(name, one) for name, kind in (("ceil_log2", sp.ceiling), ("floor_log2", sp.floor))
                      for one in expr.atoms(kind) if isinstance(one.args[0] * sp.log(2), sp.log)]  # fmt: skip
        return expr.subs({one: sp.Function(name)((one.args[0] * sp.log(2)).args[0]) for name, one in logarithms})

    symbols = sorted({s for e in expressions for s in e.free_symbols}, key=lambda s: str(s.name))
    modules = [{"ceil_log2": ceil_log2, "floor_log2": floor_log2, "ones": binary_ones}, "numpy"]
    made = sp.lambdify(symbols, [exact(e) for e in expressions], modules=modules, cse=True, dummify=True)
    return [str(s.name) for s in symbols], made


def measure(quick: bool = False) -> list[Measured]:
    """Compiling, the sweep, and the two loops (over a sample)."""
    import numpy as np

    from symcomm.core.collectives.algorithms import ALGORITHMS
    from symcomm.exams.problems.solve import no_model

    names = [name for name, a in ALGORITHMS.items() if "all-reduce" in a.runs]
    start = time.perf_counter()
    costs = {n: no_model().derive("collective_time", collective="all-reduce", algorithm=n) for n in names}
    needs, sweep = compiled_over_arrays([d.expr for d in costs.values()])
    compiled = time.perf_counter() - start
    sizes, ranks = np.geomspace(1e3, 1e10, 500).round(), np.arange(16, 16 + 16 * 201, 16)
    link = {name: value for name, value in LINK.items() if name in needs}
    best = float("inf")
    for _ in range(2 if quick else 7):
        start = time.perf_counter()
        given = {**link, "n": sizes[:, None], "k": ranks[None, :].astype(float)}
        rows_of = np.broadcast_arrays(*sweep(*(given[name] for name in needs)))
        table = np.stack(rows_of)
        best = min(best, time.perf_counter() - start)
    if table.size < 1_000_000 or not np.isfinite(table).all():
        raise SystemExit(f"the sweep has {table.size} values, or some that are not finite")
    sample = [(int(sizes[i]), int(ranks[i % len(ranks)])) for i in range(0, 500, 250 if quick else 50)]
    rows = [Measured("derive and compile all closed forms (once)", len(names), compiled)]
    rows.append(Measured("sweep, vectorised", table.size, best))
    start = time.perf_counter()
    for n, k in sample:
        for d in costs.values():
            here = {**link, "n": n, "k": k}
            float(d.expr.subs({s: here[s.name] for s in d.expr.free_symbols}))
    rows.append(Measured("loop of subs", len(sample) * len(names), time.perf_counter() - start))
    start = time.perf_counter()
    for n, k in sample:
        for d in costs.values():
            d.at(n=n, k=k, **{s: EXACT[s] for s in d.needs if s in EXACT})
    rows.append(Measured("loop of exact evaluations", len(sample) * len(names), time.perf_counter() - start))
    return rows


def main() -> int:
    """Prints the rates; the status says whether the limit was kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and a smaller sample")
    rows = measure(parser.parse_args().quick)
    fast = rows[1]
    for row in rows:
        ratio = f"{fast.rate / row.rate:,.0f} x slower than the sweep" if row.name.startswith("loop") else ""
        print(f"{row.name:45} {row.configurations:>9,} in {row.seconds:8.4f} s  {row.rate:>14,.0f}/s  {ratio}")
    return int(fast.seconds * 1_000_000 / fast.configurations >= LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
