"""The tokens that decode steps make in a second."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.form import Ratio, from_expr, product
from symcomm.core.parallel.strategy import parse_strategy
from symcomm.core.program.program import batch_of
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import step_of
from symcomm.core.quantities.options import Dtype, LinkedRates, StrategyOption
from symcomm.core.quantities.time import step_time, time
from symcomm.core.quantities.time.decode_time import Past, staged
from symcomm.core.quantities.time.term_texts import need
from symcomm.core.records import ByIdentity, replace
from symcomm.core.setting import Setting
from symcomm.core.units import Unit


def derive(
    setting: Setting,
    strategy: StrategyOption | None = None,
    past: Past | None = None,
    per: Annotated[Literal["replica", "device"], Meaning("the tokens of all its devices, or of one")] = "replica",
    dtype: Dtype | None = None,
    **rates: Unpack[LinkedRates],
) -> Derivation:
    """The tokens a second of decode steps that follow one another: the batch over the time of a step.

    A ``replica`` is all devices of the strategy; of a ``device`` it is the share.
    """
    made = step_of(setting, "decode", None, past)
    stages, shown = staged(made, strategy), list[Exhibit]()
    timed = None if stages is None else step_time.write(made, strategy, None, dtype, None, rates)
    if timed is not None:
        setting, work, writer, step = timed.setting, timed.work, timed.writer, timed.time
    else:
        setting, work, writer, terms, shown = time.write(made, strategy, "forward", None, dtype, None, rates)
        step = need(writer.time("t", terms, "A decode step"), "a decode step")
    assert made.graph.step is not None
    batch, rate = from_expr(made.graph.axes[batch_of(ByIdentity(made.graph.model))].size), Unit.parse("1/second")
    tokens = product(batch, from_expr(made.graph.step.new))
    found = work.combine("X", Ratio(tokens, step), rate, "definition", "Each step makes a token for each sequence.")
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if per == "device" and placed is not None and (placed.mesh or stages is not None):
        ranks = product(*placed.sizes.values(), *([] if stages is None else [stages]))
        work.combine("X_device", Ratio(found, ranks), rate, "share", "Each device makes an equal part of them.")
    title = "Tokens a second of decode steps" + (" on one device" if per == "device" else "")
    answer = setting.derivation(title, work.steps, exhibits=shown, notes=timed.notes if timed is not None else ())
    return time.with_rates(answer if timed is None else replace(answer, where=timed.where), writer)
