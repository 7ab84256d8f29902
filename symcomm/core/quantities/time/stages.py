"""The number of pipeline stages."""

from __future__ import annotations

from symcomm.core.derivation import Derivation
from symcomm.core.errors import StrategyError
from symcomm.core.parallel.strategy import parse_strategy
from symcomm.core.program import pipeline
from symcomm.core.quantities.options import StrategyOption
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import Unit


def derive(setting: Setting, strategy: StrategyOption) -> Derivation:
    """The number of pipeline stages."""
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if strategy is None or strategy.pipeline is None:
        raise StrategyError("only a pipeline has stages", hint="for instance pipeline(layers_per_stage=4)")
    work = StepWriter(setting, *strategy.forms)
    form = pipeline.stage_count(strategy.pipeline, setting.graph)
    work.combine("p", form, Unit.parse("stage"), "cut", "Each stage holds its share of the layers.")
    return setting.derivation("Pipeline stages", work.steps)
