"""The memory of a chain of operations with checkpoints: the closed form, whose best distance is the square root."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from symcomm.core.derivation import Condition, Derivation, Numbers
from symcomm.core.form import Sym, num
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import NoModel, Whole
from symcomm.core.setting import StepWriter
from symcomm.core.units import ELEMENT


def derive(
    setting: NoModel,
    operations: Annotated[Whole, Meaning("the operations of the chain, or their symbol")] = "T",
    every: Annotated[Whole, Meaning("operations between two checkpoints, or their symbol")] = "k",
) -> Derivation:
    """The most values in memory while a chain of operations is reversed with checkpoints at equal distances.

    Each operation reads the value before it. The values before each segment are checkpoints; those inside a segment are
    computed again when it is reversed. The least is near the square root of the number of operations.

    Source: Griewank and Walther, Evaluating Derivatives, chapter 12; Chen et al., arXiv 1604.06174, section 4.
    """
    total, distance = (Sym(one) if isinstance(one, str) else num(one) for one in (operations, every))
    work = StepWriter(setting, total, distance)
    kept = work.define("M_checkpoints", total / distance, ELEMENT, "one each segment",
                       "The value before each segment is kept.",
                       witness=lambda n: len(range(0, _count(operations, n), _count(every, n))))  # fmt: skip
    inside = work.define("M_segment", distance - 1, ELEMENT, "recompute",
                         "The values inside the segment that is reversed.",
                         witness=lambda numbers: len(range(1, _count(every, numbers))))  # fmt: skip
    work.define("M", kept + inside, ELEMENT, "add", "While the last segment is reversed.",
                witness=lambda numbers: chain(_count(operations, numbers), _count(every, numbers)))  # fmt: skip
    meanings = {"T": "operations of the chain", "k": "operations between two checkpoints"}
    own = replace(setting.notation, meanings={**meanings, **setting.notation.meanings})
    made = replace(setting, notation=own).derivation("Values kept for the reverse sweep of a chain", work.steps)
    whole = Condition(distance * (total // distance), "=", total)
    return replace(made, where=(whole,))


def _count(said: int | str, numbers: Numbers) -> int:
    return int(numbers[said] if isinstance(said, str) else said)


def chain(operations: int, every: int) -> int:
    """The most values in memory, by running the sweep: checkpoints, segments from the last on, values let go."""
    alive = set(range(0, operations, every))
    most = len(alive)
    for first in sorted(alive, reverse=True):
        for value in range(first + 1, min(first + every, operations)):  # computed again from the checkpoint
            alive.add(value)
            most = max(most, len(alive))
        for value in range(min(first + every, operations) - 1, first - 1, -1):  # each is read by the next operation
            alive.discard(value)
    return most
