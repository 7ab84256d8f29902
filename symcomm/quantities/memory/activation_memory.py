"""The bytes of activations that a rank keeps from the forward to the backward pass, derived from the gradients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from symcomm import form as forms
from symcomm.derivation import Derivation, Exhibit
from symcomm.dtypes import element_bytes, said_bytes
from symcomm.errors import StrategyError, ValuesError, nearest
from symcomm.form import Form, Ratio, Smallest, Sym, Total, num, product
from symcomm.parallel import pipeline
from symcomm.parallel.placement import check_divisible
from symcomm.parallel.schedule import SCHEDULES
from symcomm.parallel.strategy import PipelineCut, Strategy, degree, parse_strategy
from symcomm.quantities.memory.saved import RERUN, Saved, conventions, saved_tensors
from symcomm.quantities.options import (
    Chunks,
    Dtype,
    Every,
    Frozen,
    Recomputation,
    ScheduleName,
    StageNumber,
    StrategyOption,
)
from symcomm.quantities.setting import Setting, Work, slug
from symcomm.units import BYTE, ONE


def named(said: str | Iterable[str] | None) -> tuple[str, ...]:
    """Names in a list, or in a text with commas between them.

    >>> named("W, b"), named(["W"]), named(None)
    (('W', 'b'), ('W',), ())
    """
    if said is None:
        return ()
    found = said.split(",") if isinstance(said, str) else [str(name) for name in said]
    return tuple(name.strip() for name in found if name.strip())


def derive(
    setting: Setting,
    strategy: StrategyOption | None = None,
    dtype: Dtype | None = None,
    recomputation: Recomputation | None = None,
    every: Every | None = None,
    schedule: ScheduleName | None = None,
    stage: StageNumber | None = None,
    chunks: Chunks | None = None,
    frozen: Frozen | None = None,
) -> Derivation:
    """The bytes of activations that one rank keeps for the backward pass.

    ``recomputation`` is ``none``, ``selective``, ``full`` or tensors of the table that are computed again; ``every``
    keeps the input of every n-th layer only. ``schedule``, ``stage`` (0 is the first) and ``chunks`` belong to a
    pipeline. ``frozen`` weights get no gradient. Raises ``ValuesError`` and ``StrategyError`` for what does not fit.

    Source: the accounting of Korthikanti et al., arXiv 2205.05198, section 4.
    """
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if dtype:
        setting = replace(setting, dtype=dtype)
    if recomputation is None:  # the accounting may say so for every question
        recomputation = RERUN[setting.accounting.recomputation]
    again = recomputation if isinstance(recomputation, str) else ", ".join(recomputation)
    if every is not None:
        if again not in ("none", "full"):
            raise ValuesError("'every' goes with full recomputation", hint="leave one of the two out")
        if not setting.graph.repeat:
            raise ValuesError("every n-th layer is kept, but the model has one layer", hint="say 'repeat: N_layer'")
        again = "full"
    if strategy is not None:
        check_divisible(setting.graph, strategy, setting.values)
    kept = saved_tensors(setting, strategy, again, named(frozen))
    work = Work(setting, *(strategy.sizes.values() if strategy else ()))
    layer = _layer(work, kept)
    _all_layers(work, layer, strategy, every, schedule, stage, chunks)
    title = "Activation memory" + (f" under {strategy.name}" if strategy else "")
    if again != "none":
        title += f", {again} recomputation" if again in ("full", "selective") else ", recomputation"
    touched = conventions(setting.accounting, (setting.graph,), strategy)
    notes: tuple[str, ...] = ()
    if again != "none":
        notes = ("What is computed again is alive only while the backward pass works on it; it is not counted here.",)
    return setting.derivation(title, work.steps, touched, [_exhibit(setting, kept)], notes)


def bytes_of(setting: Setting, item: Saved) -> Form:
    """The bytes of a saved tensor, as written."""
    return product(setting.written(item.elements), element_bytes(item.dtype))


def _layer(work: Work, kept: tuple[Saved, ...]) -> Form:
    """One step a row of the table, and their sum."""
    setting = work.setting
    if not kept:
        return work.define("A", forms.Num(Fraction(0), BYTE), BYTE, "nothing", "No gradient reads an activation.")
    rows: dict[int, list[Saved]] = {}
    for item in kept:
        made = item.tensor in setting.graph.producers or item.what == "mask"
        rows.setdefault(item.row if made else 0, []).append(item)
    targets = {op.row: op.output for op in setting.graph.ops}
    parts: list[Form] = []
    for row in sorted(rows):
        items = rows[row]
        written = [bytes_of(setting, item) for item in items]
        name = "A_in" if not row else f"A_{slug(targets[row])}"
        form = written[0] if len(written) == 1 else Total(tuple(written))
        parts.append(work.define(name, form, BYTE, "what gradients read", _reason(items)))
    if len(parts) == 1 and not setting.graph.repeat:
        return parts[0]
    repeated = bool(setting.graph.repeat)
    name, text = ("A_layer", "one layer keeps") if repeated else ("A_saved", "is kept")
    text = f"What {text} for the backward pass."
    return work.define(name, Total(tuple(parts)) if len(parts) > 1 else parts[0], BYTE, "add the rows", text)


def _reason(items: list[Saved]) -> str:
    pieces = []
    for item in items[:6]:
        shown = item.tensor.split("·")[0]
        said = {
            "input": f"the input `{shown}`",
            "activation": f"`{shown}`" if "·" not in item.tensor else f"a value on the way to `{shown}`",
            "mask": "a random mask",
            "indices": f"the indices `{shown}`",
        }
        what = said.get(item.what, f"{item.what} for `{shown}`")
        readers = ", ".join(f"`{r}`" for r in dict.fromkeys(item.readers[:4]))
        pieces.append(f"{what} ({said_bytes(element_bytes(item.dtype))} each) for the gradient of {readers}")
    text = "; ".join(pieces) + ("; and more" if len(items) > 6 else "")
    return f"Kept: {text}."


def _all_layers(
    work: Work, layer: Form, strategy: Strategy | None, every: int | str | None, schedule: str | None,
    stage: int | str | None, chunks: int | str | None,
) -> None:  # fmt: skip
    repeat = work.setting.graph.repeat
    cut = strategy.pipeline if strategy else None
    if cut is None:
        for option, value in (("schedule", schedule), ("stage", stage), ("chunks", chunks)):
            if value is not None:
                raise StrategyError(f"'{option}' belongs to a pipeline", hint="such as pipeline(8, microbatches=32)")
    layers: Form = Sym(repeat) if repeat else num(1)
    text = "All layers are alike."
    if cut is not None:
        if not repeat:
            raise StrategyError("one layer cannot be cut into stages", hint="say 'repeat: N_layer'")
        stages = pipeline.stage_count(cut, repeat)
        p = stages if isinstance(stages, (Sym, forms.Num)) else work.define("p", stages, ONE, "stages", "The stages.")
        layers = cut.layers_per_stage or Ratio(layers, p)
        layer = work.define("A_mb", Ratio(layer, cut.microbatches), BYTE, "one microbatch",
                            "The batch is split into equal microbatches.")  # fmt: skip
        flying, text = _in_flight(work, cut, p, schedule or "1f1b", stage, chunks)
        layers = product(layers, flying)
    if every is not None:
        group = degree(every)
        layers, text = Ratio(layers, group), "Only the input of the first layer of each group is kept."
    if repeat:
        work.define("A", product(layers, layer), BYTE, "repeat", text)


def _in_flight(
    work: Work, cut: PipelineCut, p: Form, schedule: str, stage: int | str | None, chunks: int | str | None
) -> tuple[Form, str]:
    """How many microbatches a stage holds at once, in units of all its layers."""
    if schedule not in SCHEDULES:
        raise ValuesError(f"unknown schedule '{schedule[:40]}'", hint=nearest(schedule, [*SCHEDULES]))
    m = cut.microbatches
    at: Form = num(0) if stage is None or str(stage) == "0" else degree(stage)
    text = SCHEDULES[schedule].why
    if chunks is not None and schedule != "interleaved":
        raise StrategyError(f"the schedule {schedule} has no chunks", hint="interleaved has")
    if schedule == "gpipe":
        return work.define("w", m, ONE, "in flight", text), "The layers of a stage, for each microbatch in flight."
    following: Form = p if at == num(0) else Total((p, forms.negative(at)))
    if schedule == "1f1b":
        flying = work.define("w", Smallest((following, m)), ONE, "in flight", text)
        return flying, "The layers of a stage, for each microbatch in flight."
    if chunks is None:
        raise StrategyError("an interleaved schedule needs its chunks of layers per rank", hint="chunks=2")
    v = degree(chunks)
    # The warm-up runs 2 (p - i - 1) + (v - 1) p forwards of a chunk; the steady state holds one more.
    warm = Total((product(num(2), Total((following, num(-1)))), product(Total((v, num(-1))), p), num(1)))
    count = work.define("w_chunk", Smallest((warm, product(m, v))), ONE, "in flight", text)
    return Ratio(count, v), "Each chunk in flight is one part of the rank's layers."


def _exhibit(setting: Setting, kept: tuple[Saved, ...]) -> Exhibit:
    rows = []
    for item in kept:
        readers = ", ".join(f"`{r}`" for r in item.readers[:6]) + (" …" if len(item.readers) > 6 else "")
        size = forms.from_expr(forms.value(bytes_of(setting, item)))
        rows.append((f"`{item.tensor}`", item.what, readers, item.dtype, size))
    columns = ("tensor", "what", "for the gradient of", "format", "bytes")
    title = "What one layer keeps for backward" if setting.graph.repeat else "What is kept for backward"
    return Exhibit(title, columns, tuple(rows))
