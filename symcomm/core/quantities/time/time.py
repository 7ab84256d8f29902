"""The time of a layer on one rank of a strategy: computing, memory and network, and which of them limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Annotated, Literal, Unpack

from symcomm.core.accounting import Accounting
from symcomm.core.derivation import Derivation, Exhibit, Reason, Step
from symcomm.core.form import Form, Num, Sym, num
from symcomm.core.form import names as names_of
from symcomm.core.parallel.strategy import Strategy, parse_strategy
from symcomm.core.quantities import options
from symcomm.core.quantities.communication.call import TAKES_OUT, Call, keeping
from symcomm.core.quantities.communication.links import linked
from symcomm.core.quantities.counting.flops import packed
from symcomm.core.quantities.counting.load import ONE_DEVICE, Load, load
from symcomm.core.quantities.declared import Extent, Meaning
from symcomm.core.quantities.memory.caches import too_large
from symcomm.core.quantities.time.term_texts import exhibit, need
from symcomm.core.quantities.time.terms import TERMS, Terms, TimeWriter
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import Unit

PHASES = {
    "forward": ("forward",),
    "backward": ("backward",),
    "microbatch": ("forward", "backward"),
    "end_of_batch": ("end",),
}


def write(
    setting: Setting,
    strategy: Strategy | str | None,
    phase: str,
    op: str | None,
    dtype: str | None,
    gradient_dtype: str | None,
    rates: Mapping[str, object],
    amounts: bool = False,
    only: Collection[str] = TERMS,
) -> tuple[Setting, StepWriter, TimeWriter, Terms, list[Exhibit]]:
    """The steps up to the terms, or ``only`` some of them: what ``time``, ``roofline`` and ``crossover`` begin with.

    Raises ``ValuesError`` where ``amounts`` of all ops are wanted, and a table says what each op achieves.
    """
    setting = setting.in_format(dtype)
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy or ONE_DEVICE
    setting = setting.divided(placed)

    def wanted(setting: Setting) -> Load:
        """The layer of a question: of repeated layers any one, whose input has a gradient."""
        if phase == "forward":  # nothing is computed again there
            plain = replace(setting.accounting, recomputation=Accounting.recomputation)
            setting = replace(setting, accounting=plain)
        found = load(setting, placed, gradient_dtype).of(*PHASES[phase]).row(setting, op)
        calls = tuple((at, _of_any_layer(call)) for at, call in found.calls)
        ops = tuple(replace(one, every=True) for one in found.ops)
        return replace(found, ops=ops, calls=calls)

    part = wanted(setting)
    made = linked(setting, placed, rates)
    if amounts:
        made.sustained(made.memory)
    work = StepWriter(setting, *placed.forms, *made.symbols)
    writer = TimeWriter(work, made, placed)
    setting.decided(TAKES_OUT, lambda one: (wanted(one).ops, wanted(one).calls))  # graphs of two choices differ
    terms = writer.terms(part, only=only)
    shown = [exhibit(setting, part)] if part.ops and placed.mesh else []
    return setting, work, writer, terms, shown


def _of_any_layer(call: Call) -> Call:
    """The call as a layer has it that is not the first one."""
    by = tuple(name for name in call.by if name != "input_gradient")
    return replace(call, layers=num(1), every=True, by=by) if call.region.times else call


def derive(
    setting: Setting,
    strategy: options.StrategyOption | None = None,
    phase: options.Phase = "microbatch",
    term: Annotated[Literal["compute", "memory", "network"] | None, Meaning("only this term")] = None,
    op: options.OpName | None = None,
    dtype: options.Dtype | None = None,
    gradient_dtype: options.GradientDtype | None = None,
    frozen: options.Frozen | None = None,
    documents: options.Documents | None = None,
    recipe: options.RecipeName | None = None,
    **rates: Unpack[options.LinkedRates],
) -> Annotated[Derivation, Extent("{layer}")]:
    """The time of a layer on one rank: computing, memory and network.

    The time that one layer takes on one rank: a pass, a microbatch (forward and backward) or the end of a batch.

    ``term`` chooses one of the terms instead. ``documents`` is the option of ``flops``; ``recipe`` says which states
    the NVMe disks hold. How terms combine, the accounting says (``time: overlap``, ``per_op`` or ``serial``). Rates
    that are not given stay symbols.

    Source: the roofline of Williams, Waterman and Patterson, 2009, with a third roof for the network.
    """
    setting = keeping(packed(setting.freeze(frozen), documents), recipe)
    only, asked = TERMS if term is None else (term,), setting
    setting, work, writer, terms, shown = write(setting, strategy, phase, op, dtype, gradient_dtype, rates, only=only)
    what = {
        "forward": "The forward pass",
        "backward": "The backward pass",
        "microbatch": "Forward and backward",
        "end_of_batch": "The end of a batch",
    }[phase]
    title = f"Time of {what[0].lower()}{what[1:]}" + (f" of {op}" if op else "")
    if term is not None:
        found = getattr(terms, term)
        if found is None and term == "network" and strategy is not None:
            second = Unit.parse("second")
            reason = Reason("nothing", "Nothing is sent.")
            steps = [Step("t_network", Num(Fraction(0), second), second, reason)]
        else:
            steps = ending(work, need(found, f"the {term} term"))
        return with_rates(setting.derivation(f"{title}: {term}", steps, exhibits=shown), writer)
    need(writer.time("t", terms, what), f"{what.lower()} of {writer.strategy.name.lower()}")
    notes = too_large(asked, strategy, dtype, rates.get("device"))
    return with_rates(setting.derivation(title, work.steps, exhibits=shown, notes=notes), writer)


def ending(work: StepWriter, *names: Form) -> list[Step]:
    """The steps that settle some names, and those they rest on."""
    wanted = {name.name for name in names if isinstance(name, Sym)}
    kept: list[Step] = []
    for step in reversed(work.steps):
        if step.name in wanted:
            kept.append(step)
            if step.relation == ":=":  # a collected form names symbols of the model only
                wanted |= set(names_of(step.form))
    return kept[::-1]


def with_rates(made: Derivation, writer: TimeWriter) -> Derivation:
    """A derivation that knows the rates that were given, and tells what links were named to no effect."""
    given = {**dict(made.given), **dict(writer.machine.given)}
    named = made.named | {symbol.name for symbol in writer.machine.symbols}
    machine = writer.machine
    told = (*writer.told(made.steps), *(machine.efficiency.notes if machine.efficiency is not None else ()))
    return replace(made, given=tuple(given.items()), named=named, notes=(*made.notes, *told),
                   where=(*made.where, *machine.where), checks=(*made.checks, *machine.checks))  # fmt: skip
