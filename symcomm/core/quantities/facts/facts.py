"""Facts of a model that worksheets take other than quantities: what is counted, and the rates of a device."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, Unpack

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.form import num, product
from symcomm.core.graph.axis_roles import batch_axes, sequence_axes
from symcomm.core.parallel.strategy import Strategy, degree, parse_strategy
from symcomm.core.program import pipeline
from symcomm.core.program.program import batch_of
from symcomm.core.quantities.counting.flops import counts
from symcomm.core.quantities.counting.load import ONE_DEVICE
from symcomm.core.quantities.declared import Extent, Meaning
from symcomm.core.quantities.generating import step_of
from symcomm.core.quantities.machine import RATES, machine
from symcomm.core.quantities.options import (
    DeviceCount,
    Dtype,
    Frozen,
    NoModel,
    OpName,
    PeakRates,
    Phase,
    Rates,
    Roofs,
    StrategyOption,
    Utilisation,
)
from symcomm.core.quantities.time import time
from symcomm.core.quantities.time.terms import SECOND
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import ONE, Unit


def derive_devices(
    setting: Setting,
    strategy: StrategyOption | None = None,
    **more: Unpack[DeviceCount],
) -> Annotated[Derivation, Extent("devices")]:
    """The devices that a strategy uses: its mesh, times its stages."""
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    parts = [] if strategy is None else [*strategy.sizes.values()]
    if strategy is not None and strategy.pipeline is not None:
        parts.append(pipeline.stage_count(strategy.pipeline, setting.graph))
    said = more.get("devices_used")
    number = product(*parts) if said is None else degree(str(said))
    work = StepWriter(setting, number)
    text = "One device for each place of the mesh and each stage."
    work.combine("n_devices", number, ONE, "devices", text)
    return setting.derivation("Devices", work.steps)


def derive_layers(setting: Setting) -> Annotated[Derivation, Extent("layers")]:
    """The layers of a model."""
    work = StepWriter(setting)
    work.combine("n_layers", pipeline.layer_count(setting.graph), ONE, "layers", "All layers of the model.")
    return setting.derivation("Layers", work.steps)


def derive_tokens(
    setting: Setting,
    streams: Annotated[Literal["all", "one"], Meaning("whether a model may have several streams of tokens")] = "all",
    of: Annotated[Literal["batch", "decode"], Meaning("a batch, or the new ones of a decode step")] = "batch",
) -> Annotated[Derivation, Extent("step")]:
    """The tokens of a batch: examples times positions, of all streams; examples where there are no positions.

    Raises ``ValuesError`` where ``one`` stream is wanted and the model has more.
    """
    setting = step_of(setting, "decode") if of == "decode" else setting
    graph, work = setting.graph, StepWriter(setting)
    batch = [graph.axes[a].size for a in batch_axes(graph)]
    axes: tuple[str, ...] = ()
    with suppress(StrategyError):
        axes = tuple(a for a in sequence_axes(graph) if all(a != k or a == q for q, k in graph.attention_pairs))
    if len(axes) > 1 and streams == "one":
        raise ValuesError("six operations a parameter and token count one stream of tokens; this model has more",
                          hint="say model_flops: training_flops, which counts what each token passes")  # fmt: skip
    if graph.step is not None and of == "decode":
        size = graph.axes[batch_of(graph.model)].size
        work.combine("n_new", forms.product(forms.from_expr(size), forms.from_expr(graph.step.new)),
                     Unit.parse("token"), "tokens", "One for each sequence and new position.")  # fmt: skip
        return setting.derivation("Tokens of a decode step", work.steps)
    found = [setting.sizes([*batch, graph.axes[a].size]) for a in axes] or [setting.sizes(batch)]
    count = forms.combined(forms.Total, found)
    work.combine("n_tokens", count, Unit.parse("token"), "tokens", "The tokens of one batch.")
    return setting.derivation("Tokens of a batch", work.steps)


_OF = {"operations": "flops", "bytes": "moved", "computing": "compute", "memory": "memory"}


def derive_work(
    setting: Setting,
    of: Annotated[Literal["operations", "bytes", "computing", "memory"], Meaning("an amount, or its time")],
    strategy: StrategyOption | None = None,
    phase: Phase = "forward",
    op: OpName | None = None,
    dtype: Dtype | None = None,
    frozen: Frozen | None = None,
    **rates: Unpack[Rates],
) -> Annotated[Derivation, Extent("{layer} rank microbatch")]:
    """The operations of a rank in a pass or the bytes that it moves, or the time that these take."""
    setting, amounts = setting.freeze(frozen), of in ("operations", "bytes")
    only = ("compute" if of in ("operations", "computing") else "memory",)
    setting, work, writer, terms, shown = time.write(setting, strategy, phase, op, dtype, None, rates, amounts, only)
    found = getattr(terms, _OF[of])
    if found is None and (amounts or not writer.load.ops):
        raise ValuesError(f"{op or setting.graph.name} has no op that is counted", hint="use operations: all_ops")
    if found is None:
        found = work.combine("t_none", num(0, SECOND), SECOND, "nothing", "No op is counted.")
    for one in setting.rows(op).ops:
        counts(setting, setting.graph, one)  # reads the convention that leaves an op out
    steps = time.ending(work, found)
    return time.with_rates(setting.derivation(f"{of.capitalize()} of a rank", steps, exhibits=shown), writer)


def derive_peak(
    setting: NoModel,
    strategy: StrategyOption | None = None,
    dtype: Dtype | None = None,
    **rates: Unpack[PeakRates],
) -> Annotated[Derivation, Extent("rank")]:
    """The peak rate of a device in the format of the products, unlowered; its symbol is none of the strategy."""
    return rate(setting, "peak", strategy, dtype, rates, sustained=False)


def rate(
    setting: Setting, of: str, strategy: Strategy | str | None, dtype: str | None, rates: Mapping[str, Any],
    sustained: bool,
) -> Derivation:  # fmt: skip
    """The ``peak`` or the ``memory`` rate of a device, times its utilisation where it is the ``sustained`` one."""
    setting = setting.in_format(dtype)
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy or ONE_DEVICE
    made = machine(setting, placed.forms, **rates)
    known, named = {**setting.values, **dict(made.given)}, setting.named | {symbol.name for symbol in made.symbols}
    setting = replace(setting, values=known, named=named)
    work = StepWriter(setting, *placed.forms, *made.symbols)
    found = made.rate_of(work) if of == "peak" else made.memory
    form = made.sustained(found) if sustained else found
    if form != found or found in made.symbols:
        name = f"{RATES[of].symbol[0]}_{'sustained' if form != found else 'peak'}"
        work.combine(name, form, RATES[of].unit, "rate", f"{RATES[of].meaning.capitalize()} of a device.")
    return setting.derivation(f"{RATES[of].meaning[4:].capitalize()} of a device", work.steps)


class SustainedRoofs(Roofs, total=False):
    """The rates of one device, and the part of them that it sustains."""

    utilisation: Utilisation


def derive_roof(
    setting: NoModel,
    of: Annotated[Literal["peak", "memory"], Meaning("the rate of operations, or of bytes")],
    strategy: StrategyOption | None = None,
    dtype: Dtype | None = None,
    **rates: Unpack[SustainedRoofs],
) -> Annotated[Derivation, Extent("rank")]:
    """The rate that a device sustains: the peak rate or the bandwidth of its memory, times the utilisation."""
    return rate(setting, of, strategy, dtype, rates, sustained=True)
