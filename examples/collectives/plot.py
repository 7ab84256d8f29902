"""Draws the times of all all-reduce algorithms over the payload: ``python examples/collectives/plot.py [file]``.

The numbers are those of section 2.1 of ``collectives.md``, read from that file.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from symcomm.core.quantities.communication.collective_table import times
from symcomm.core.setting import Setting
from symcomm.documents.plots.curves import plot_costs
from symcomm.exams.problems.problem import read_problem
from symcomm.exams.problems.solve import no_model

HERE = Path(__file__).parent


def main(target: str | Path = HERE / "collectives.svg") -> None:
    """Writes the picture."""
    problem = read_problem(HERE / "collectives.md")
    asked = next(a for a in problem.asks if a.quantity == "collective_table")
    options = dict(asked.options)
    collective = options.pop("collective")
    setting = Setting(no_model().graph, notation=problem.notation)
    found, _ = times(setting, collective, None, None, options)
    costs = [replace(d, title=name) for name, d in found.items()]
    labels = [name.replace("_", " ") for name in found]
    title = f"{collective} among {options['ranks']} ranks: the fastest algorithm changes at the dots"
    plot_costs(costs, "n", (64, 2**33), target, labels, title)


if __name__ == "__main__":
    main(*sys.argv[1:2])
