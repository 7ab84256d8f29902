"""The batch from which on a decode step is compute bound, and the context beyond which none is."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Unpack

from symcomm.core.derivation import Condition, Derivation, Numbers, Reason, Step
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Num, Ratio, Total, evaluate, from_expr, names, negative, num, product, value
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.libraries import Expr, sp
from symcomm.core.quantities.generating import step_of
from symcomm.core.quantities.options import Dtype, Rates
from symcomm.core.quantities.time import time
from symcomm.core.quantities.time.decode_time import Past
from symcomm.core.quantities.time.terms import TimeWriter
from symcomm.core.quantities.witnesses import number
from symcomm.core.records import replace
from symcomm.core.setting import Setting
from symcomm.core.units import BYTE, FLOP, ONE


def derive(
    setting: Setting, past: Past | None = None, dtype: Dtype | None = None, **rates: Unpack[Rates]
) -> Derivation:  # fmt: skip
    """The batch from which on computing a decode step takes as long as its memory traffic.

    Weights are read once for all sequences, a cache for each: with F operations and q bytes for each sequence and Q
    bytes for all of them it is Q/(F W/R - q). Where a sequence's cache takes longer than its operations (F W/R is at
    most q, from some context on) no batch is enough. What moves, the accounting says (``traffic``).

    Raises ``ValuesError`` where no batch is enough, and where the bytes do not grow by as much with each sequence.

    Source: Austin et al., How to Scale Your Model, 2025, "Inference".
    """
    made = step_of(setting, "decode", None, past)
    setting, work, writer, terms, _ = time.write(made, None, "forward", None, dtype, None, rates)
    if terms.flops is None or terms.moved is None:
        raise ValuesError(f"{setting.graph.name} has no op that is counted", hint="use operations: all_ops")
    machine, graph = writer.machine, setting.graph
    batch = graph.axes[batch_axes(graph)[0]].size
    if not batch.is_Symbol:
        raise ValuesError(f"the batch is {batch}, no symbol to solve for", hint="write a symbol into the table")
    flops, moved = (_of_batch(setting, value(form, work.known), batch) for form in (terms.flops, terms.moved))
    if flops[0] != 0:
        raise ValuesError("operations that are not of a sequence are counted", hint="operations: matmul_only")
    work.steps = time.ending(work, terms.flops, terms.moved)
    several = from_expr(batch)
    each = work.define("F_each", Ratio(terms.flops, several), FLOP, "of a sequence",
                       "Each sequence adds these operations.",
                       witness=partial(_counted, writer, "operations", str(batch), (-1, 1)))  # fmt: skip
    every = work.define("M_all", _in_bytes(moved[0]), BYTE, "of all",
                        "The step reads these bytes once for the whole batch.",
                        witness=partial(_counted, writer, "bytes", str(batch), (2, -1)))  # fmt: skip
    mine = work.define("M_each", Ratio(Total((terms.moved, negative(every))), several), BYTE, "of a sequence",
                       "Each sequence adds these bytes.",
                       witness=partial(_counted, writer, "bytes", str(batch), (-1, 1)))  # fmt: skip
    for name, worth, form, unit in (("F_each", flops[1], from_expr(flops[1]), FLOP),
                                    ("M_each", moved[1], _in_bytes(moved[1]), BYTE)):  # fmt: skip
        work.steps.append(Step(name, form, unit, Reason("algebra", "This does not depend on the batch."), "="))
        work.known[name] = worth
    writer.forget_rate()
    rate = writer.rate()
    while_computing = product(each, Ratio(machine.sustained(machine.memory), machine.sustained(rate)))
    there = work.combine("M_computing", while_computing, BYTE, "meanwhile",
                         "The memory moves these bytes while one sequence is computed.")  # fmt: skip
    work.combine("B^*", Ratio(every, Total((there, negative(mine)))), ONE, "solve",
                 "At this batch computing and memory take equally long.")  # fmt: skip
    left, right = (from_expr(value(form, work.known)) for form in (there, mine))
    never = _never(setting, left, right, {**setting.values, **dict(machine.given)})
    told = f"no batch is compute bound: the cache of a sequence takes longer than its operations{never}"
    where = Condition(left, ">", right, told)
    known = {**setting.values, **dict(machine.given)}
    if {*where.names} <= known.keys() and not where.holds(known):
        raise ValuesError(told, hint="a shorter context, fewer bytes a number, or more queries for each key")
    title = "Batch from which on a decode step is compute bound"
    note = "Below it the memory limits" + (f", and of any batch{never}." if never else ".")
    made_here = time.with_rates(setting.derivation(title, work.steps, notes=(note,)), writer)
    return replace(made_here, where=(*made_here.where, where))


def _of_batch(setting: Setting, worth: Expr, batch: Expr) -> tuple[Expr, Expr]:
    """What is there for any batch, and what each sequence adds; raises ``ValuesError`` where they add unequal parts."""
    worth = sp.expand(setting.graph.relations.expand(worth))
    each = worth.coeff(batch, 1)
    rest = sp.expand(worth - each * batch)
    if rest.has(batch):
        raise ValuesError("each sequence does not add as much: how many experts are read depends on the batch",
                          hint="experts_read: every_expert")  # fmt: skip
    return setting.graph.relations.gather(rest), setting.graph.relations.gather(each)


def _in_bytes(worth: Expr) -> Form:
    """A number of bytes: the bytes of a number times how many of them."""
    each, rest = sp.expand(worth).primitive()
    return product(Num(Fraction(int(each.p), int(each.q)), BYTE), from_expr(rest))


def _counted(writer: TimeWriter, what: str, batch: str, steps: tuple[int, ...], numbers: Numbers) -> Fraction:
    """Operations or bytes, counted one by one for one sequence and for two: so often the one and the other."""
    found = Fraction(0)
    for sequences, often in enumerate(steps, 1):
        at = numbers.moved(batch, Fraction(sequences))
        if what == "operations":
            found += often * writer.computes(writer.load, num(1), at)
        else:
            bandwidth = number(writer.machine.sustained(writer.machine.memory), at)
            found += often * writer.moves(writer.load, at) * bandwidth
    return found


def _never(setting: Setting, left: Form, right: Form, known: Mapping[str, Fraction]) -> str:
    """From which context on no batch is enough, where numbers tell it."""
    assert setting.graph.step is not None
    gap = sp.expand(value(Total((left, negative(right)))))
    past = next(iter(setting.graph.step.past.free_symbols), None)
    if past is None or gap.has(sp.Min) or sp.degree(gap, past) != 1:
        return ""
    slope = from_expr(gap.coeff(past, 1))
    end = from_expr(-gap.coeff(past, 0) / gap.coeff(past, 1))
    if not {*names(end), *names(slope)} <= known.keys() or evaluate(slope, known) >= 0:
        return ""
    return f", from {past} = {float(max(evaluate(end, known), Fraction(0))):.6g} on"
