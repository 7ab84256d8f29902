"""The values that a reverse sweep keeps, with checkpoints before every so many operations."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from symcomm.core.derivation import Derivation, Exhibit, Numbers
from symcomm.core.errors import ValuesError
from symcomm.core.form import called, num
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import NoModel, Whole
from symcomm.core.setting import StepWriter
from symcomm.core.units import ELEMENT
from symcomm.teaching.differentiation.costs import Segment, kept_values, peak, segments
from symcomm.teaching.quantities.differentiation.asked import Formulas, Outputs, Point, answer, traced


def _alive(part: Segment, numbers: Numbers) -> int:
    return len({*part.checkpoints, *part.again})


def derive(
    setting: NoModel,
    formulas: Formulas,
    point: Point | None = None,
    every: Annotated[Whole, Meaning("operations between two checkpoints; default: no checkpoints")] = 0,
    outputs: Outputs | None = None,
) -> Derivation:
    """The most values in memory while a trace is reversed, whole or with checkpoints.

    Without checkpoints every value that a partial derivative reads is kept. With them the values before a checkpoint
    that are read behind it are, and those of one segment are computed again. The table has every distance, and the
    best one.
    """
    made = traced(setting, formulas, point, outputs)
    if not isinstance(every, int):
        raise ValuesError(f"'every' is {every}, but a whole number is needed", hint="every: 4")
    total = len(made.operations)
    if every > total:
        raise ValuesError(f"'every' is {every}, but the trace has {total} operations", hint=f"every: 1 to {total}")
    work = StepWriter(setting)
    if every:
        parts = segments(made, every)
        names = [
            work.define(f"M_{n}", num(part.values), ELEMENT, "segment",
                        f"Operations {part.first} to {part.last}: {len(part.checkpoints)} values of checkpoints and "
                        f"{len(part.again)} that are computed again.",
                        witness=partial(_alive, part))
            for n, part in enumerate(parts, 1)
        ]  # fmt: skip
        if len(names) > 1:
            work.define("M", called("max", *names), ELEMENT, "largest", "The segment that needs the most memory.",
                        witness=lambda numbers: peak(made, every))  # fmt: skip
    else:
        kept = kept_values(made)
        listed = ", ".join(f"`{made[number].name}`" for number in kept) or "none"
        work.define("M", num(len(kept)), ELEMENT, "what partial derivatives read", f"Kept: {listed}.",
                    witness=lambda numbers: len(set(kept_values(made))))  # fmt: skip
    tried = [(k, peak(made, k), sum(len(s.again) for s in segments(made, k))) for k in range(1, total + 1)]
    least = min(number for _, number, _ in tried)
    rows = tuple((str(k), str(number), str(again), "least" if number == least else "") for k, number, again in tried)
    columns = ("operations between checkpoints", "values in memory", "computed again", "")
    return answer(setting, "Values kept for the reverse sweep", work.steps,
                  [Exhibit("Every distance of checkpoints", columns, rows)])  # fmt: skip
