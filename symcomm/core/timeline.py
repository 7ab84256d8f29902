"""The memory of a training step op by op: what is alive while each op of each layer runs, by kind."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from symcomm.core.accounting import Accounting
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.form import evaluate
from symcomm.core.model import Model
from symcomm.core.parallel.strategy import Strategy, parse_strategy
from symcomm.core.program.program import ONE_RANK
from symcomm.core.program.rewrites.recomputation import RECOMPUTED
from symcomm.core.program.step import StepOptions
from symcomm.core.quantities.memory.snapshots import StepRun, snapshots, step_of
from symcomm.core.quantities.recipes import recipe_of
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting

_LAYERS, _POINTS = 400, 60_000


@dataclass(frozen=True)
class Point:
    """The bytes alive while one op runs; ``layer`` counts from 1, and is 0 outside of the layers."""

    phase: str
    layer: int
    op: str
    parts: Mapping[str, Fraction]

    @property
    def total(self) -> Fraction:
        """All kinds together."""
        return sum(self.parts.values(), Fraction(0))


def timeline(
    model: Model, strategy: Strategy | str | None = None, *, accounting: Any = None, dtype: str | None = None,
    recipe: str = "mixed_adam", recomputation: str | None = None, every: int | None = None, frozen: str | None = None,
    step: str = "later", tables: str = "shared", values: Mapping[str, object] | None = None,
) -> tuple[Point, ...]:  # fmt: skip
    """Every op of a training step, from the first layer forward to the update, with the bytes alive while it runs.

    The options are those of ``peak_memory``, whose errors are raised; ``values`` are sizes besides the model's. Raises
    ``ValuesError`` where there are too many layers to be drawn one by one, and ``StrategyError`` for a pipeline.
    """
    model = model.at(**(values or {}))
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if placed is not None and placed.pipeline is not None:
        raise StrategyError(
            "a pipeline runs too many microbatches to be drawn op by op",
            hint="peak_memory has a table of its warm-up, steady state and cool-down",
        )
    options: dict[str, Any] = {"dtype": dtype, "recomputation": recomputation, "every": every, "frozen": frozen}
    options |= {"recipe": recipe, "step": step, "tables": tables}
    model.peak_memory(placed, accounting=accounting, **options)  # refuses what does not fit
    chosen = Accounting.given(accounting)
    known = model.graph.relations.complete(model.values)
    setting = Setting(model.graph, chosen, model.dtype, model.notation, known).in_format(dtype).freeze(frozen)
    again, points = recomputation or RECOMPUTED[chosen.recomputation], list[Point]()
    chosen_options = StepOptions(again, int(every or 0), step, tables=tables == "per_layer")
    run = StepRun(placed or ONE_RANK, recipe_of(recipe), chosen_options)
    whole = step_of(setting, run)
    for part in whole.parts:
        layers = int(evaluate(whole.often(part), known))
        if layers > _LAYERS or layers * len(part.line.steps) > _POINTS:
            raise ValuesError(f"{layers} layers are too many to be drawn one by one", hint=f"at most {_LAYERS}")
    for shot in snapshots(setting, run, unrolled=True):
        layer = sum(int(number) * (int(every or 1) if over == "group" else 1) for over, number in shot.loops)
        points.append(Point(shot.phase, layer + 1 if shot.loops else 0, shot.op, shot.bytes))
    update = (Point(shot.phase, 0, shot.op, shot.bytes) for shot in snapshots(setting, run))
    return (*(p for p in points if p.phase != "optimizer"), *(p for p in update if p.phase == "optimizer"))
