"""The batch from which on a decode step is compute bound, and the context beyond which none is."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Annotated, Literal, Unpack

from symcomm.core.derivation import Condition, Derivation, Numbers, put
from symcomm.core.errors import ValuesError
from symcomm.core.form import from_expr
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.libraries import Expr, sp
from symcomm.core.optimum.comparison import ComparedTime, Comparison
from symcomm.core.optimum.equality import cancelled, limit
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import step_of
from symcomm.core.quantities.options import Dtype, Rates
from symcomm.core.quantities.time import time
from symcomm.core.quantities.time.decode_time import Past
from symcomm.core.quantities.time.terms import TimeWriter
from symcomm.core.records import replace
from symcomm.core.setting import Setting
from symcomm.core.units import ONE

Of = Annotated[Literal["batch", "context"], Meaning("the batch, or the context from which on no batch is enough")]

_SIDES = ("compute", "memory")
_REMEDY = "a shorter context, fewer bytes a number, or more queries for each key"


def derive(
    setting: Setting, past: Past | None = None, of: Of = "batch", dtype: Dtype | None = None, **rates: Unpack[Rates]
) -> Derivation:  # fmt: skip
    """The batch from which on computing a decode step takes as long as its memory traffic.

    Weights are read once for all sequences, a cache for each: with F operations and q bytes for each sequence and Q
    bytes for all of them it is Q/(F W/R - q). Where a sequence's cache takes longer than its operations (F W/R is at
    most q, from some context on) no batch is enough. What moves, the accounting says (``traffic``).

    Raises ``ValuesError`` where no batch is enough, and where the bytes do not grow by as much with each sequence.

    Source: Austin et al., How to Scale Your Model, 2025, "Inference".
    """
    made = step_of(setting, "decode", None, past)
    setting, work, writer, terms, _ = time.write(made, None, "forward", None, dtype, None, rates, True, _SIDES)
    if terms.compute is None or terms.memory is None:
        raise ValuesError(f"{setting.graph.name} has no op that is counted", hint="use operations: all_ops")
    machine, graph = writer.machine, setting.graph
    batch = graph.axes[batch_axes(graph)[0]].size
    if not batch.is_Symbol:
        raise ValuesError(f"the batch is {batch}, no symbol to solve for", hint="write a symbol into the table")
    assert graph.step is not None
    if batch in graph.step.past.free_symbols:
        raise ValuesError(f"the earlier positions are {graph.step.past}, and the batch {batch} is solved for",
                          hint="past: c")  # fmt: skip
    work.steps = time.ending(work, terms.compute, terms.memory)
    sides = (
        ComparedTime("compute", "computing", (terms.compute,)),
        ComparedTime("memory", "the memory", (terms.memory,)),
    )
    met = Comparison(work, batch, *sides, machine.symbols, machine.given)
    if not all(met.powers(side) for side in sides):
        raise ValuesError("each sequence does not add as much: how many experts are read depends on the batch",
                          hint="experts_read: every_expert")  # fmt: skip
    both, found = [*work.steps], met.solve()
    context = next(iter(graph.step.past.free_symbols), None)
    end = limit((1 - found.ratio).subs(put(met.known)), context) if context is not None else None
    never = f", from {context} = {float(end):.6g} on" if end is not None and end.is_number else ""
    if of == "context":
        if found.ratio == 0:
            raise ValuesError("no sequence adds to the bytes: this traffic counts no cache, at any context",
                              hint="traffic: matrices_and_cache")  # fmt: skip
        gap = sp.expand(sp.numer(sp.together(1 - found.ratio)))
        if context is None or gap.has(sp.Min) or sp.degree(gap, context) != 1:
            raise ValuesError("the context is a number here, or a window bounds what each sequence adds",
                              hint="leave out past; of: batch asks for the batch")  # fmt: skip
        last = setting.graph.relations.gather(-gap.coeff(context, 0)) / gap.coeff(context, 1)
        work.steps = both
        text = "From this context on the cache of a sequence takes at least as long as its operations."
        work.define("c^*", from_expr(last), ONE, "solve", text,
                    witness=partial(_crossing, writer, str(batch), str(context)))  # fmt: skip
        title = "Context from which on no batch is compute bound"
        made_here = time.with_rates(setting.derivation(title, work.steps), writer)
        return replace(made_here, where=(*made_here.where, *_closing(found.ratio, context)))
    told = f"no batch is compute bound: the cache of a sequence takes longer than its operations{never}"
    if found.form is None:
        raise ValuesError(told, hint=_REMEDY)
    met.define(f"{batch}^*", found, "solve", "At this batch computing and memory take equally long.")
    title = "Batch from which on a decode step is compute bound"
    note = "Below it the memory limits" + (f", and of any batch{never}." if never else ".")
    made_here = time.with_rates(setting.derivation(title, work.steps, notes=(note,)), writer)
    where = () if found.where is None else (replace(found.where, refusal=told, remedy=_REMEDY),)
    return replace(made_here, where=(*made_here.where, *where))


def _closing(ratio: Expr, context: Expr) -> list[Condition]:
    """That memory over computing of one more sequence is below 1 without a cache, and above 1 with a long one."""
    memory, computing = (sp.expand(side) for side in sp.fraction(sp.together(ratio)))
    every = "a batch is compute bound at every context"
    never, batch = "no batch is compute bound, however short the context is", "of: batch asks for the batch"
    faster = "a faster memory, or fewer bytes a number"
    sides = ((computing, memory, 0, never, faster), (memory, computing, 1, every, batch))
    found: list[Condition] = []
    for more, less, power, told, remedy in sides:
        above, below = more.coeff(context, power), less.coeff(context, power)
        above, below = sp.fraction(cancelled(above / below)) if below != 0 else (above, below)
        found.append(Condition(from_expr(above), ">", from_expr(below), told, remedy))
    return found


def _crossing(writer: TimeWriter, batch: str, context: str, numbers: Numbers) -> Fraction:
    """Where one more sequence adds as much to computing as to memory: a straight line through two contexts."""

    def gap(past: int) -> Fraction:
        found = Fraction(0)
        for sequences, sign in ((2, 1), (1, -1)):
            at = numbers.moved(batch, Fraction(sequences)).moved(context, Fraction(past))
            rate = writer.machine.sustained(writer.rate())
            found += sign * (writer.computes(writer.load, rate, at) - writer.moves(writer.load, at))
        return found

    return 1 - gap(1) / (gap(2) - gap(1))
