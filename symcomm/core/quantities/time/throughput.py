"""Throughput: tokens a second, utilisation of the machine with a named numerator, days and device-hours of a budget."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from functools import partial
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
from symcomm.core.quantities.witnesses import number as value
from symcomm.core.quantities.witnesses import over, passes, together
from symcomm.core.records import replace
from symcomm.core.setting import Setting, Work
from symcomm.core.units import FLOP, ONE, Number, Quantity, Unit

if TYPE_CHECKING:
    from sympy import Expr

TOKEN, DEVICE = Unit.parse("token"), Unit.parse("device")
MEASURED = {
    "step": Rate("step", "T_measured", Unit.parse("second"), "the time of a step", "12 s"),
    "achieved": Rate("achieved", "R_achieved", Unit.parse("FLOP/second"), "the rate of a device", "150 TFLOP/s"),
}
ANSWERS = ("tokens_per_second", "flops_per_token", "mfu", "hfu", "days", "device_hours", "devices")


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


def model_flops(setting: Setting, work: Work, count: Form) -> Form:
    """The operations that training one batch needs, as the convention counts them."""
    if setting.accounting.model_flops == "6nd":
        if isinstance(tokens(setting), forms.Total):
            raise ValuesError("six operations a parameter and token count one stream of tokens; this model has more",
                              hint="say model_flops: training_flops, which counts what each token passes")  # fmt: skip
        counted = parameters.derive(setting, "active")
        n = work.define(
            "P",
            forms.from_expr(counted.expr),
            Unit.parse("parameter"),
            "parameters",
            "The parameters of the model; of experts, those that a token passes.",
            witness=counted.again,
            by=("model_flops", *counted.touched),
        )
        per = Num(Fraction(6), FLOP / Unit.parse("parameter") / TOKEN)
        return work.define("F_model", product(per, n, count), FLOP, "6ND", "Six operations a parameter and token.",
                           witness=lambda numbers: 6 * passes([value(n, numbers), value(count, numbers)]))  # fmt: skip
    trained = flops.derive(setting, "training")
    return work.define(
        "F_model",
        forms.from_expr(trained.expr),
        FLOP,
        "model FLOPs",
        "The operations of the forward and backward pass of the whole model.",
        witness=trained.again,
        by=("model_flops", *trained.touched),
    )


_AGAIN = {
    "full": "The forward pass is computed again.",
    "none": "The kernel of attention computes its scores again for its backward pass.",
}


def hardware_flops(setting: Setting, work: Work, model: Form) -> Form:
    """The operations that the machine does: recomputed ones as well."""
    how = RECOMPUTED[setting.choice("recomputation")]
    if how == "none" and not flops.made_again(setting):
        return model
    if how == "full" and setting.accounting.model_flops == "6nd":
        again: Form = Ratio(model, num(3))
        text = "The forward pass, a third of them, is computed again."
    else:
        recomputed = recomputation.derive(setting, how)
        again = work.define(
            "F_again",
            forms.from_expr(recomputed.expr),
            FLOP,
            "recomputed",
            _AGAIN.get(how, "The core of attention is computed again."),
            witness=recomputed.again,
            by=recomputed.touched,
        )
        text = "What is recomputed comes on top."
    return work.define("F_hardware", forms.Total((model, again)), FLOP, "hardware FLOPs", text,
                       witness=together([model, again]))  # fmt: skip


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
        work = Work(setting, *placed.forms, *mach.symbols, number, *known)
        writer = TimeWriter(work, mach, placed)
    count = None
    if of == "devices":
        work.define("n_devices", number, DEVICE, "devices", "One device for each place of the mesh and each stage.",
                    witness=together([number]))  # fmt: skip
    else:
        count = work.define("n_tokens", tokens(setting), TOKEN, "tokens", "The tokens of one batch.",
                            witness=together([tokens(setting)]))  # fmt: skip
        time = made.time if needs_time else None
        if measured and of != "flops_per_token":
            time = _measured_time(setting, work, number, count, step, achieved, given)
        answer(setting, work, writer, time, number, count, of, mfu, budget, given)
    titles = {
        "tokens_per_second": "Throughput",
        "flops_per_token": "Operations of a token",
        "mfu": "Model FLOP utilisation",
        "hfu": "Hardware FLOP utilisation",
        "days": "Days of training",
        "device_hours": "Device-hours of training",
        "devices": "Devices",
    }
    under = f" under {placed.name.lower()}" if strategy is not None else ""
    notes, where = (made.notes, made.where) if needs_time else ((), ())
    result = replace(setting.derivation(titles[of] + under, work.steps, notes=notes), where=where)
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
    setting: Setting, work: Work, number: Form, count: Form, step: object, achieved: object, given: dict[str, object],
) -> Form | None:  # fmt: skip
    """The time of a step that was measured, or that follows from the operations a second; None from a utilisation."""
    if step is not None:
        return _known(MEASURED["step"], step, given)
    if achieved is None:
        return None
    done = hardware_flops(setting, work, model_flops(setting, work, count))
    rate = product(number, _known(MEASURED["achieved"], achieved, given))
    text = "All operations that are done, over those of all devices in a second."
    return work.define("T_step", Ratio(done, rate), SECOND, "measured rate", text, witness=over(done, rate))


def _known(rate: Rate, value: object, given: dict[str, object]) -> Sym:
    """What was measured as a symbol with its number, or the symbol that it is said to be."""
    if isinstance(value, str) and re.fullmatch(r"[^\W\d]\w{0,39}", value.strip()):
        return Sym(value.strip(), whole=False, unit=rate.unit)
    found = given[rate.symbol] = checked(rate, value)
    if not found:
        raise ValuesError(f"{rate.option} = {value}: {rate.meaning} must be positive", hint=f"such as {rate.sample}")
    return Sym(rate.symbol, whole=False, unit=rate.unit)


def answer(
    setting: Setting,
    work: Work,
    writer: TimeWriter,
    time: Form | None,
    number: Form,
    count: Form,
    of: str,
    mfu: object,
    budget: object,
    given: dict[str, object],
) -> None:
    """The steps from the time of a step to what is asked."""
    rate_unit = TOKEN / Unit.parse("second")
    if of in ("mfu", "hfu", "flops_per_token") or time is None:
        total = work.reused("F_model") or model_flops(setting, work, count)
        if of == "flops_per_token":
            work.define(
                "f_token",
                Ratio(total, count),
                FLOP / TOKEN,
                "a token",
                "Operations of a batch for each token.",
                witness=over(total, count),
            )
            return
        many = work.define("n_devices", number, ONE, "devices", "All devices.", witness=together([number]))
        peak = work.define(
            "R_all",
            product(many, writer.rate()),
            Unit.parse("FLOP/second"),
            "peak of all",
            "All devices at their peak rate.",
            witness=lambda numbers: passes([value(number, numbers), value(writer.rate(), numbers)]),
        )
        if time is not None:
            done = (work.reused("F_hardware") or hardware_flops(setting, work, total)) if of == "hfu" else total
            name, what = ("HFU", "that are done") if of == "hfu" else ("MFU", "that the model needs")
            work.define(
                name,
                Ratio(done, product(peak, time)),
                ONE,
                "definition",
                f"Operations {what}, over those that the devices could do in the same time.",
                # Alone, the devices would need so many seconds.
                witness=lambda numbers: value(done, numbers) / value(peak, numbers) / value(time, numbers),
            )
            return
        share = checked("utilisation", mfu)
        given["u_model"] = share
        useful = product(Sym("u_model", whole=False), peak)
        text = "Operations a second that serve the model, over operations a token."
        speed = work.define(
            "v",
            Ratio(useful, Ratio(total, count)),
            rate_unit,
            "throughput",
            text,
            witness=lambda numbers: value(useful, numbers) * value(count, numbers) / value(total, numbers),
        )
    else:
        text = "Tokens of a batch over the time of a step."
        speed = work.define("v", Ratio(count, time), rate_unit, "throughput", text, witness=over(count, time))
    if of == "tokens_per_second":
        return
    wanted = Sym("n_budget", whole=False, unit=TOKEN)
    if budget is not None:
        given["n_budget"] = _tokens(budget)
    seconds = work.define(
        "T_training",
        Ratio(wanted, speed),
        Unit.parse("second"),
        "training",
        "All tokens of the budget at this throughput.",
        witness=over(wanted, speed),
    )
    if of == "days":
        day = Num(Fraction(86400), Unit.parse("second/day"))
        work.define("T_days", Ratio(seconds, day), Unit.parse("day"), "days", "A day has 86400 seconds.",
                    witness=lambda numbers: value(seconds, numbers) / (24 * 60 * 60))  # fmt: skip
        return
    many = work.define("n_devices", number, ONE, "devices", "All devices.", witness=together([number]))
    hour = Num(Fraction(3600), Unit.parse("second/hour"))
    work.define(
        "C",
        product(many, Ratio(seconds, hour)),
        DEVICE * Unit.parse("hour"),
        "device-hours",
        "Every device is used for all hours.",
        witness=lambda numbers: value(number, numbers) * value(seconds, numbers) / (60 * 60),
    )


def _tokens(budget: object) -> object:
    quantity = Quantity.parse(budget) if isinstance(budget, str) else budget
    if isinstance(quantity, Quantity) and quantity.unit not in (ONE, TOKEN):
        raise ValuesError(f"budget is given in {quantity.unit}, but it is a number of tokens", hint="300e9 tokens")
    number = exact(quantity, "budget")
    if number <= 0:
        raise ValuesError(f"budget = {budget}: a budget of tokens is positive")
    return number
