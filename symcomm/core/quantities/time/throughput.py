"""Throughput: tokens a second, utilisation of the machine with a named numerator, days and device-hours of a budget."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, exact
from symcomm.core.errors import StrategyError, ValuesError, nearest
from symcomm.core.form import Form, Num, Ratio, Sym, evaluate, from_expr, names, num, product
from symcomm.core.graph.axis_roles import batch_axes, sequence_axes
from symcomm.core.parallel.strategy import Strategy, degree
from symcomm.core.program import pipeline
from symcomm.core.program.rewrites.recomputation import RECOMPUTED
from symcomm.core.quantities.counting import flops, parameters, recomputation
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.derived_amounts import DerivedAmount, DerivedAmounts
from symcomm.core.quantities.options import (
    Amount,
    Buckets,
    CallOverhead,
    Chunks,
    Dtype,
    Frozen,
    GradientDtype,
    LinkedRates,
    Microbatches,
    ScheduleName,
    StrategyOption,
    Whole,
)
from symcomm.core.quantities.time import step_time
from symcomm.core.quantities.time.links import linked
from symcomm.core.quantities.time.machine import Rate, checked
from symcomm.core.quantities.time.terms import SECOND, TimeWriter
from symcomm.core.quantities.time.time import with_rates
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import FLOP, ONE, Number, Quantity, Unit

if TYPE_CHECKING:
    from sympy import Expr

TOKEN, DEVICE, HOUR = Unit.parse("token"), Unit.parse("device"), Unit.parse("hour")
MEASURED = {
    "step": Rate("step", "T_measured", Unit.parse("second"), "the time of a step", "12 s"),
    "achieved": Rate("achieved", "R_achieved", Unit.parse("FLOP/second"), "the rate of a device", "150 TFLOP/s"),
}
# What is asked: the amount that answers it, and the title.
ANSWERS = {
    "tokens_per_second": ("v", "Throughput"),
    "flops_per_token": ("f_token", "Operations of a token"),
    "mfu": ("MFU", "Model FLOP utilisation"),
    "hfu": ("HFU", "Hardware FLOP utilisation"),
    "days": ("T_days", "Days of training"),
    "device_hours": ("C", "Device-hours of training"),
    "devices": ("n_devices", "Devices"),
}
_POSSIBLE = "over those that the devices could do in the same time."
_BUDGET = Sym("n_budget", whole=False, unit=TOKEN)
_DAY, _HOUR = Num(Fraction(86400), SECOND / Unit.parse("day")), Num(Fraction(3600), SECOND / HOUR)
AMOUNTS = tuple(starmap(DerivedAmount, (
    ("R_all", product(Sym("n_devices"), Sym("R")), FLOP / SECOND, "peak of all", "All devices at their peak rate."),
    ("MFU", Ratio(Sym("F_model"), product(Sym("R_all"), Sym("T_step"))), ONE, "definition",
     f"Operations that the model needs, {_POSSIBLE}"),
    ("HFU", Ratio(Sym("F_hardware"), product(Sym("R_all"), Sym("T_step"))), ONE, "definition",
     f"Operations that are done, {_POSSIBLE}"),
    ("f_token", Ratio(Sym("F_model"), Sym("n_tokens")), FLOP / TOKEN, "a token",
     "Operations of a batch for each token."),
    ("v", Ratio(Sym("n_tokens"), Sym("T_step")), TOKEN / SECOND, "throughput",
     "Tokens of a batch over the time of a step."),
    ("T_training", Ratio(_BUDGET, Sym("v")), SECOND, "training", "All tokens of the budget at this throughput."),
    ("T_days", Ratio(Sym("T_training"), _DAY), Unit.parse("day"), "days", "A day has 86400 seconds."),
    ("C", product(Sym("n_devices"), Ratio(Sym("T_training"), _HOUR)), DEVICE * HOUR, "device-hours",
     "Every device is used for all hours."),
    ("n_devices", Sym("devices"), ONE, "devices", "All devices."),
)))  # fmt: skip
OF_UTILISATION = DerivedAmount(
    "v", Ratio(product(Sym("u_model", whole=False), Sym("R_all")), Ratio(Sym("F_model"), Sym("n_tokens"))),
    TOKEN / SECOND, "throughput", "Operations a second that serve the model, over operations a token.",
)  # fmt: skip


def tokens(setting: Setting) -> Form:
    """The tokens of a batch: examples times positions, of all streams; examples where there are no positions."""
    graph = setting.graph
    batch = [graph.axes[a].size for a in batch_axes(graph)]
    streams: tuple[str, ...] = ()
    with suppress(StrategyError):
        streams = tuple(a for a in sequence_axes(graph) if all(a != k or a == q for q, k in graph.attention_pairs))
    if len(streams) < 2:
        return setting.sizes([*batch, *(graph.axes[a].size for a in streams)])
    return forms.Total(tuple(setting.sizes([*batch, graph.axes[a].size]) for a in streams))


def devices(setting: Setting, strategy: Strategy) -> Form:
    """The devices that a strategy uses: its mesh, times its stages."""
    parts = [*strategy.sizes.values()]
    if strategy.pipeline is not None:
        parts.append(pipeline.stage_count(strategy.pipeline, setting.graph))
    return product(*parts)


def model_flops(setting: Setting, work: StepWriter, count: Form) -> Form:
    """The operations that training one batch needs, as the convention counts them."""
    if setting.accounting.model_flops == "6nd":
        if isinstance(tokens(setting), forms.Total):
            raise ValuesError("six operations a parameter and token count one stream of tokens; this model has more",
                              hint="say model_flops: training_flops, which counts what each token passes")  # fmt: skip
        text = "The parameters of the model; of experts, those that a token passes."
        n = work.take("P", parameters.derive(setting, "active"), "parameters", text, ["model_flops"])
        per = Num(Fraction(6), FLOP / Unit.parse("parameter") / TOKEN)
        return work.combine("F_model", product(per, n, count), FLOP, "6ND", "Six operations a parameter and token.")
    text = "The operations of the forward and backward pass of the whole model."
    return work.take("F_model", flops.derive(setting, "training"), "model FLOPs", text, ["model_flops"])


_AGAIN = {
    "full": "The forward pass is computed again.",
    "none": "The kernel of attention computes its scores again for its backward pass.",
}


def hardware_flops(setting: Setting, work: StepWriter, model: Form) -> Form:
    """The operations that the machine does: recomputed ones as well."""
    how = RECOMPUTED[setting.choice("recomputation")]
    if how == "none" and not flops.made_again(setting):
        return model
    if how == "full" and setting.accounting.model_flops == "6nd":
        again: Form = Ratio(model, num(3))
        text = "The forward pass, a third of them, is computed again."
    else:
        again = work.take("F_again", recomputation.derive(setting, how), "recomputed",
                          _AGAIN.get(how, "The core of attention is computed again."))  # fmt: skip
        text = "What is recomputed comes on top."
    return work.combine("F_hardware", forms.Total((model, again)), FLOP, "hardware FLOPs", text)


def derive(
    setting: Setting,
    strategy: StrategyOption | None = None,
    of: Annotated[
        Literal["tokens_per_second", "flops_per_token", "mfu", "hfu", "days", "device_hours", "devices"],
        Meaning("what is asked"),
    ] = "tokens_per_second",
    microbatches: Microbatches | None = None,
    step: Annotated[Amount, Meaning("the measured time of a step, such as 12 s, where none is derived")] = None,
    achieved: Annotated[
        Amount, Meaning("the measured operations a second of each device, recomputed ones too, such as 150 TFLOP/s")
    ] = None,
    mfu: Annotated[Number | None, Meaning("the model FLOP utilisation, where no time is derived, such as 1/2")] = None,
    devices_used: Annotated[Whole | None, Meaning("how many devices, where no strategy says it")] = None,
    budget: Annotated[Amount, Meaning("the tokens to train on, such as 300e9 tokens")] = None,
    dtype: Dtype | None = None,
    gradient_dtype: GradientDtype | None = None,
    frozen: Frozen | None = None,
    schedule: ScheduleName | None = None,
    chunks: Chunks | None = None,
    buckets: Buckets | None = None,
    call_overhead: CallOverhead | None = None,
    **rates: Unpack[LinkedRates],
) -> Derivation:
    """Tokens a second, utilisation, days and device-hours of training.

    Tokens a second, MFU, HFU, days or device-hours for a budget of tokens, operations a token, or devices.

    The time of a step is derived under the strategy, as ``step_time`` does it; or it is a measured one (``step``), or
    follows from measured operations a second (``achieved``) or from a utilisation (``mfu``).
    MFU counts the operations that the model needs, HFU those that are done; both over the unlowered peak rate.

    Raises ``ValuesError`` where two of these are given, or a utilisation is asked for that is given.

    Source: MFU, Chowdhery et al., PaLM, arXiv 2204.02311, appendix B; HFU, Korthikanti et al., arXiv 2205.05198.
    """
    if of not in ANSWERS:
        raise ValuesError(f"unknown answer '{of[:40]}'", hint=nearest(of, [*ANSWERS]))
    setting = setting.in_format(dtype).freeze(frozen)
    placed = step_time.placed(strategy)
    given: dict[str, object] = {}
    said = {"step": step, "achieved": achieved, "mfu": mfu}
    measured = [name for name, value in said.items() if value is not None]
    if len(measured) > 1:
        raise ValuesError(f"{' and '.join(measured)} each say how fast a step is", hint="give one of them")
    if measured and any(option is not None for option in (schedule, chunks, microbatches, buckets, call_overhead)):
        raise ValuesError(f"'{measured[0]}' says how fast a step is: nothing is derived of a schedule or microbatches",
                          hint=f"leave {measured[0]} out, or the others")  # fmt: skip
    if measured == ["mfu"] and of in ("mfu", "hfu"):
        raise ValuesError(f"{of} is asked for, but mfu is given", hint="give step or achieved, or ask for days")
    if not measured and of in ("flops_per_token", "devices"):
        unused = {"schedule": schedule, "chunks": chunks, "microbatches": microbatches, "buckets": buckets,
                  "call_overhead": call_overhead}  # fmt: skip
        for option in (name for name, value in unused.items() if value is not None):
            raise ValuesError(f"'{option}' changes nothing in {of}, which hangs on no time of a step",
                              hint=f"leave {option} out, or ask for tokens_per_second")  # fmt: skip
    needs_time = of not in ("flops_per_token", "devices") and not measured
    number = devices(setting, placed) if devices_used is None else degree(str(devices_used))
    if needs_time:
        made = step_time.write(setting, strategy, microbatches, dtype, gradient_dtype, rates, schedule, chunks,
                               buckets=buckets, call_overhead=call_overhead)  # fmt: skip
        work, writer = made.work, made.writer
        setting = replace(setting, checks=made.setting.checks)
    else:
        mach = linked(setting, placed, rates, number)
        known = (Sym("u_model"), Sym("T_measured"), Sym("R_achieved"))
        work = StepWriter(setting, *placed.forms, *mach.symbols, number, *known)
        writer = TimeWriter(work, mach, placed)
    name, title = ANSWERS[of]
    if of == "devices":
        work.combine("n_devices", number, DEVICE, "devices", "One device for each place of the mesh and each stage.")
    else:
        count = work.combine("n_tokens", tokens(setting), TOKEN, "tokens", "The tokens of one batch.")
        time = made.time if needs_time else None
        if measured and of != "flops_per_token":
            time = _measured_time(setting, work, number, count, step, achieved, given)
        by_share = time is None and of != "flops_per_token"
        if by_share:
            given["u_model"] = checked("utilisation", mfu)
        made_of = DerivedAmounts(work, (*AMOUNTS, *([OF_UTILISATION] if by_share else [])), {
            "n_tokens": count,
            "F_model": lambda: work.reused("F_model") or model_flops(setting, work, count),
            "T_step": time or num(1),
            "devices": number,
            "R": writer.rate,
            "F_hardware": lambda: work.reused("F_hardware") or hardware_flops(setting, work, made_of("F_model")),
        })  # fmt: skip
        made_of(name)
        if budget is not None and of in ("days", "device_hours"):
            given["n_budget"] = _tokens(budget)
    under = f" under {placed.name.lower()}" if strategy is not None else ""
    notes, where = (made.notes, made.where) if needs_time else ((), ())
    result = replace(setting.derivation(title + under, work.steps, notes=notes), where=where)
    result = with_rates(result, writer)
    if measured and of in ("mfu", "hfu"):
        check = partial(_possible, of.upper(), measured[0], result.expr)
        check(result.relations.complete({**dict(result.given), **{k: exact(v, k) for k, v in given.items()}}))
        result = replace(result, checks=(*result.checks, check))
    return replace(result, given=tuple({**dict(result.given), **{k: exact(v, k) for k, v in given.items()}}.items()))


def _possible(name: str, option: str, share: Expr, known: Mapping[str, Fraction]) -> None:
    """Raises ``ValuesError`` where what was measured is faster than the peak rate, all numbers known."""
    form = from_expr(share)
    if {*names(form)} <= known.keys() and (found := evaluate(form, known)) > 1:
        shown = f"{float(found):,.{0 if found > 100 else 3}f}".replace(",", " ")
        raise ValuesError(f"{name} would be {shown}: no device is faster than its peak rate",
                          hint=f"'{option}' is measured over a whole step of the batch, on all devices")  # fmt: skip


def _measured_time(
    setting: Setting, work: StepWriter, number: Form, count: Form, step: object, achieved: object,
    given: dict[str, object],
) -> Form | None:  # fmt: skip
    """The time of a step that was measured, or that follows from the operations a second; None from a utilisation."""
    if step is not None:
        return _known(MEASURED["step"], step, given)
    if achieved is None:
        return None
    done = hardware_flops(setting, work, model_flops(setting, work, count))
    rate = product(number, _known(MEASURED["achieved"], achieved, given))
    text = "All operations that are done, over those of all devices in a second."
    return work.combine("T_step", Ratio(done, rate), SECOND, "measured rate", text)


def _known(rate: Rate, value: object, given: dict[str, object]) -> Sym:
    """What was measured as a symbol with its number, or the symbol that it is said to be."""
    if isinstance(value, str) and re.fullmatch(r"[^\W\d]\w{0,39}", value.strip()):
        return Sym(value.strip(), whole=False, unit=rate.unit)
    found = given[rate.symbol] = checked(rate, value)
    if not found:
        raise ValuesError(f"{rate.option} = {value}: {rate.meaning} must be positive", hint=f"such as {rate.sample}")
    return Sym(rate.symbol, whole=False, unit=rate.unit)


def _tokens(budget: object) -> object:
    quantity = Quantity.parse(budget) if isinstance(budget, str) else budget
    if isinstance(quantity, Quantity) and quantity.unit not in (ONE, TOKEN):
        raise ValuesError(f"budget is given in {quantity.unit}, but it is a number of tokens", hint="300e9 tokens")
    number = exact(quantity, "budget")
    if number <= 0:
        raise ValuesError(f"budget = {budget}: a budget of tokens is positive")
    return number
