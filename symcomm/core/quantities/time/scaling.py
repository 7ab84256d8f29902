"""The stages of a pipeline; how much faster a step gets with more ranks, at one batch (strong) or one a rank (weak)."""

from __future__ import annotations

from typing import Annotated, Literal, Unpack

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation
from symcomm.core.errors import StrategyError, ValuesError, nearest
from symcomm.core.form import Applied, Form, Ratio, Sym, num, product
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.parallel.strategy import parse_strategy
from symcomm.core.program import pipeline
from symcomm.core.quantities import options
from symcomm.core.quantities.communication.links import PIPE, by_axis
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import StrategyOption
from symcomm.core.quantities.time import step_time
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import ONE, Unit


def derive_stages(setting: Setting, strategy: StrategyOption) -> Derivation:
    """The number of pipeline stages."""
    strategy = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if strategy is None or strategy.pipeline is None:
        raise StrategyError("only a pipeline has stages", hint="for instance pipeline(layers_per_stage=4)")
    work = StepWriter(setting, *strategy.forms)
    form = pipeline.stage_count(strategy.pipeline, setting.graph)
    work.combine("p", form, Unit.parse("stage"), "cut", "Each stage holds its share of the layers.")
    return setting.derivation("Pipeline stages", work.steps)


def derive_scaling(
    setting: Setting,
    strategy: options.StrategyOption,
    kind: Annotated[
        Literal["strong", "weak", "speedup"], Meaning("with one batch, or with one batch per rank")
    ] = "strong",
    over: Annotated[str, Meaning("the symbol that counts the ranks, if the strategy has several")] = "",
    microbatches: options.Microbatches | None = None,
    dtype: options.Dtype | None = None,
    gradient_dtype: options.GradientDtype | None = None,
    schedule: options.ScheduleName | None = None,
    chunks: options.Chunks | None = None,
    **rates: Unpack[options.LinkedRates],
) -> Derivation:
    """The speed-up and the efficiency of more ranks.

    The speed-up of ``over`` (the size of a mesh axis, or the stages of a pipeline) against one rank, or the strong or
    weak efficiency.

    Strong: the batch stays. Weak: it grows with the ranks. Source: Amdahl, 1967; Gustafson, 1988.
    """
    placed = step_time.placed(strategy)
    cut = placed.pipeline
    known = {size.name: mesh for mesh, size in placed.sizes.items() if isinstance(size, Sym)}
    if cut is not None and isinstance(cut.stages, Sym):
        known[cut.stages.name] = PIPE
    over = over or (next(iter(known)) if len(known) == 1 else "")
    if over not in known:
        several = f"the ranks of {placed.name} can be counted by {' or by '.join(known) or 'no symbol'}"
        raise ValuesError(
            f"'{over[:40]}' is no symbol that sizes the mesh of {placed.name}" if over else several,
            hint=nearest(over, [*known]) if over else f"over: {next(iter(known))}" if known else "such as data(k)",
        )
    rates = {**rates, "links": by_axis(rates.get("links"), placed)}
    single = replace(placed, mesh=tuple((m, num(1) if m == known[over] else s) for m, s in placed.mesh))
    if cut is not None and known[over] == PIPE:
        single = replace(single, pipeline=replace(cut, stages=num(1)))
    grown = setting
    if kind == "weak":
        (batch,) = batch_axes(setting.graph)
        axis = setting.graph.axes[batch]
        bigger = replace(axis, size=axis.size * forms.value(Sym(over)))
        grown = replace(setting, graph=replace(setting.graph, axes={**setting.graph.axes, batch: bigger}))
    one = step_time.derive(setting, single, microbatches, "step", dtype, gradient_dtype, schedule, chunks, **rates)
    many = step_time.derive(grown, placed, microbatches, "step", dtype, gradient_dtype, schedule, chunks, **rates)
    work = StepWriter(setting, *placed.forms)
    # Both are times in seconds, so that their quotient is a number; the unit is told once, here.
    text = f"A step with {over} = 1, in s."
    first: Form = work.define("T_1", _bare(forms.from_expr(one.expr)), ONE, "one rank", text, witness=one.again)
    text = f"A step on all ranks{' with a batch that grows with them' if kind == 'weak' else ''}, in s."
    other = work.define("T_all", _bare(forms.from_expr(many.expr)), ONE, "all ranks", text, witness=many.again,
                        by=many.touched)  # fmt: skip
    if kind == "weak":
        work.combine("E", Ratio(first, other), ONE, "weak scaling", "It would be 1 if more ranks cost no time.")
    elif kind == "speedup":
        work.combine("S", Ratio(first, other), ONE, "speed-up", "How many times faster the step is.")
    else:
        work.combine("E", Ratio(first, product(Sym(over), other)), ONE, "strong scaling",
                     "The speed-up for each rank; it would be 1 if the work only were shared.")  # fmt: skip
    title = {"strong": "Strong scaling", "weak": "Weak scaling", "speedup": "Speed-up"}[kind]
    title = f"{title} of {placed.name.lower()} over {over}"
    made = setting.derivation(title, work.steps, notes=many.notes)
    where = tuple(dict.fromkeys((*one.where, *many.where)))
    given = tuple({**dict(made.given), **dict(many.given)}.items())
    return replace(made, given=given, where=where, checks=(*one.checks, *many.checks))


def _bare(form: Form) -> Form:
    """A form whose functions without a formula have no unit, as the symbols that came out of an expression."""
    if isinstance(form, Applied):
        return Applied(replace(form.rule, unit=ONE), form.arguments)
    return form.mapped(_bare)
