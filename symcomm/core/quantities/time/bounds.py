"""Where times are equal: the batch from which on a layer or a decode step is compute bound, or another name's value."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal, Unpack

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Derivation, Exhibit, Numbers, Reason, Step, put
from symcomm.core.errors import StrategyError, ValuesError, nearest
from symcomm.core.form import Ceiling, Floor, Form, Largest, Ratio, Smallest, Sym, from_expr, num, product
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.hardware.devices import device
from symcomm.core.libraries import Expr, sp
from symcomm.core.optimum.comparison import ComparedTime, Comparison
from symcomm.core.optimum.equality import Reached, cancelled, limit
from symcomm.core.optimum.writing import whole
from symcomm.core.parallel.strategy import Strategy, parse_strategy
from symcomm.core.printing import plain
from symcomm.core.program.pipeline import check_divisible
from symcomm.core.quantities.communication.call import joint
from symcomm.core.quantities.communication.links import by_axis, levels, linked
from symcomm.core.quantities.counting.load import load
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import step_of
from symcomm.core.quantities.options import (
    Dtype,
    GradientDtype,
    LinkedRates,
    Links,
    MeshPhase,
    NetworkRates,
    OpName,
    Phase,
    Rates,
    StrategyOption,
)
from symcomm.core.quantities.time import time
from symcomm.core.quantities.time.generating_time import Past
from symcomm.core.quantities.time.term_texts import exhibit, need
from symcomm.core.quantities.time.terms import SECOND, TERMS, TimeWriter
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import ONE, Quantity

PHASES = {
    "forward": (("forward",), "the forward pass"),
    "backward": (("backward",), "the backward pass"),
    "training": (("forward", "backward", "end"), "forward, backward and the reduction of gradients"),
}


@dataclass(frozen=True)
class MeshTerms:
    """The names of the times: of computing, and of each axis of the mesh that something is sent along."""

    setting: Setting
    strategy: Strategy
    work: StepWriter
    writer: TimeWriter
    compute: Form
    sent: Mapping[str, Form]
    exhibits: tuple[Exhibit, ...]

    @property
    def known(self) -> dict[str, Fraction]:
        """All given numbers: sizes, degrees and rates."""
        return {**self.setting.values, **dict(self.writer.machine.given)}

    def worth(self, name: Form) -> Expr:
        """The value of a step, in symbols."""
        return self.work.known[name.name]  # type: ignore[attr-defined]

    @property
    def worths(self) -> list[Expr]:
        """The values of the times: of computing, and along each axis."""
        return [self.worth(name) for name in (self.compute, *self.sent.values())]


def read_strategy(strategy: Strategy | str | None) -> Strategy:
    """A strategy of mesh axes; raises ``StrategyError`` where none is named or it is a pipeline."""
    if strategy is None:
        raise StrategyError("no strategy is named", hint="for instance fsdp(X) + tensor(Y)")
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if placed.pipeline is not None:
        raise StrategyError(
            "the messages of a pipeline are sent between stages, not within a layer", hint="leave the pipeline out"
        )
    return placed


def one_link(rates: Mapping[str, object]) -> None:
    """Raises ``ValuesError`` where the network would be all links of a torus together, of which a ring has but one."""
    if rates.get("device") is None or rates.get("network") is not None:
        return
    name = rates["device"]
    found = device(name)
    if found.links and "torus" in found.link().name:
        one = found.link().rate.quantity
        raise ValuesError(
            f"the bandwidth of {found.name} counts its {found.link().count} links together, which form a torus",
            hint=f"give one link as network: {one.lines()[-1][1]} in one direction, twice as much in both",
        )


def settled(strategy: Strategy, values: Mapping[str, Fraction], rings: str) -> Strategy:
    """The strategy with the sizes put in for which no symbol may stand: one rank sends nothing, an odd ring is no even.

    Raises ``StrategyError`` for a size that is no positive whole number.
    """
    mesh: list[tuple[str, Form | None]] = []
    for name, size in strategy.sizes.items():
        value = values.get(size.name) if isinstance(size, Sym) else None
        if value is not None and (value.denominator != 1 or value < 1):
            raise StrategyError(f"the mesh axis '{name}' has {value} ranks", hint="a degree is at least 1")
        put = value is not None and (value == 1 or (rings == "both_ways" and value % 2 == 1))
        mesh.append((name, num(value) if put and value is not None else size))
    return replace(strategy, mesh=tuple(mesh))


def write(
    setting: Setting,
    strategy: Strategy,
    phase: str,
    links: object,
    dtype: str | None,
    gradient_dtype: str | None,
    rates: Mapping[str, object],
    *more: Form,
) -> MeshTerms:
    """The steps up to the times. ``more`` are forms whose symbols are in use in addition.

    Raises ``ValuesError`` where nothing is computed or nothing is sent.
    """
    setting = setting.in_format(dtype)
    rates = {**rates, "links": by_axis(links, strategy)}
    strategy = settled(strategy, setting.values, setting.accounting.rings)
    check_divisible(setting.graph, strategy, setting.values)  # a bound may be asked between sizes that divide
    every = load(setting, strategy, gradient_dtype)
    part = every.of(*PHASES[phase][0])
    reduced = [(p, c) for p, c in every.calls if p == "end" and c.what.startswith("gradient")]
    if phase == "backward" and reduced and setting.choice("gradient_sync") == "with_backward":
        part = replace(part, calls=(*part.calls, *reduced))
    made = linked(setting, strategy, rates, *more)
    if any(link.rate == made.network for link, _ in levels(made, strategy, tuple(strategy.sizes))):
        one_link(rates)
    work = StepWriter(setting, *strategy.forms, *made.symbols, *more)
    writer = TimeWriter(work, made, strategy)
    writer.load = part
    done = need(writer.flops(part.ops), PHASES[phase][1])
    compute = work.define(
        "t_compute", Ratio(done, made.sustained(writer.rate())), SECOND, "computing",
        "Operations over the peak rate" + (", of which a part is sustained." if made.utilisation else "."),
        witness=partial(writer.computes, part, made.sustained(writer.rate())),
    )  # fmt: skip
    sent: dict[str, Form] = {}
    called = (c.meshes for _, c in part.calls if c.kind != "send")
    groups = dict.fromkeys([*((mesh,) for mesh in strategy.sizes), *called])
    for meshes in groups:
        calls = [(p, c) for p, c in part.calls if c.meshes == meshes]
        if calls and strategy.ranks(meshes) != num(1):
            name = joint(meshes)
            found, _ = writer.network(writer.calls(calls)[0], f"t_{name}", f"_{name}", [c for _, c in calls])
            assert found is not None
            sent[name] = found
    if not sent:
        ranks = "one device" if all(s == num(1) for s in strategy.sizes.values()) else strategy.name.lower()
        raise ValuesError(
            f"nothing is sent on {ranks} in {PHASES[phase][1]}: computing is all there is, at every size",
            hint="cut the model over several devices: fsdp(X) + tensor(Y)",
        )
    shown = (exhibit(setting, part),) if part.ops else ()
    return MeshTerms(setting, strategy, work, writer, compute, sent, shown)


# -- the batch of a strategy -----------------------------------------------------------------------------

_NEVER = "no {} is ever enough for computing to be the longer part: {}"
_FEWER = "fewer ranks, more links or a faster network"


def derive_compute_bound(
    setting: Setting,
    strategy: StrategyOption,
    phase: MeshPhase = "forward",
    over: Annotated[str | None, Meaning("the symbol to solve for; default: the batch")] = None,
    per: Annotated[Literal["total", "device"], Meaning("the batch of all devices, or of one")] = "total",
    numbers: Annotated[Literal["real", "whole"], Meaning("over real or whole numbers")] = "real",
    links: Links | None = None,
    dtype: Dtype | None = None,
    gradient_dtype: GradientDtype | None = None,
    **rates: Unpack[NetworkRates],
) -> Derivation:
    """The batch from which on computing takes longer than the communication of a strategy.

    The least batch at which computing takes at least as long as the communication over the axes of the mesh.

    The communication times add up under ``time: serial`` (and ``per_op``); under ``overlap`` computing has to be at
    least as long as each of them. ``over`` is another size or degree to solve for, ``per`` the batch of all devices or
    of one, ``numbers`` real or whole, ``links`` those of mesh axes (``data=2, tensor=90 GB/s``), ``phase`` forward,
    backward or training. Memory is left out. A value of ``over`` that is given is not used.

    Raises ``ValuesError`` where nothing is sent, no value is ever enough, or numbers are missing that decide.

    Source: Austin et al., How to Scale Your Model, 2025, "Training", for the comparison.
    """
    placed = read_strategy(strategy)
    over, batch = variable(setting, placed, over)
    if per == "device" and not batch:
        raise ValuesError(f"{over} is not shared out over the devices", hint="per: total")
    setting = replace(setting, values={n: v for n, v in setting.values.items() if n != over})
    terms = write(setting, placed, phase, links, dtype, gradient_dtype, rates)
    answer, kind, bounds = solve(terms, over)
    work = terms.work
    if per == "device":
        devices = product(*terms.strategy.sizes.values())
        text = "Each device works on an equal part."
        answer = work.combine(f"{over}_device^*", Ratio(answer, devices), ONE, "share", text)
    where = [bound.where for bound in bounds if bound.where is not None]
    if numbers == "whole":
        if kind == "at_most":
            said = _NEVER.format(over, f"even at {over} = 1 the communication takes longer")
            where.append(Condition(forms.from_expr(terms.worth(answer)), ">=", num(1), said, _FEWER))
        _whole(work, answer, f"{over}_device^whole" if per == "device" else f"{over}^whole", kind)
    both_sides = _both_sides(terms, over, kind)
    exhibits = [*terms.exhibits, *([both_sides] if both_sides else [])]
    name, verb = PHASES[phase][1], "are" if phase == "training" else "is"
    side, other = ("≥", "below") if kind == "at_least" else ("≤", "above")
    notes = [
        f"{name[0].upper()}{name[1:]} {verb} compute bound for `{over}` {side} `{over}^*`, communication bound {other}."
    ]
    which = "Smallest" if kind == "at_least" else "Largest"
    share = " per device" if per == "device" else ""
    title = f"{which} `{over}`{share} at which {name} {verb} compute bound"
    made = time.with_rates(terms.setting.derivation(title, work.steps, exhibits=exhibits, notes=notes), terms.writer)
    return replace(made, where=(*made.where, *where))


def solve(terms: MeshTerms, over: str) -> tuple[Form, str, list[Reached]]:
    """Writes the steps from the times to the bound; gives its name, ``at_least`` or ``at_most``, and what it rests on.

    Raises ``ValuesError`` where there is no bound.
    """
    work, name = terms.work, f"{over}^*"
    adds = terms.setting.accounting.time != "overlap"
    each = [(mesh, (time_of,)) for mesh, time_of in terms.sent.items()]
    parts = [("comm", tuple(terms.sent.values()))] if adds and len(each) > 1 else each
    symbols = {s.name: s for worth in terms.worths for s in worth.free_symbols}
    if over not in symbols:
        raise ValuesError(f"neither computing nor communication depends on '{over}'", hint=nearest(over, [*symbols]))
    machine = terms.writer.machine
    computing = ComparedTime("compute", "computing", (terms.compute,))
    found: list[tuple[Comparison, Reached, str]] = []
    for tag, sent in parts:
        other = ComparedTime(tag, "the communication", sent)
        met = Comparison(work, symbols[over], computing, other, machine.symbols, machine.given)
        found.append((met, _enough(terms, met), tag))
    bounds = [one for one in found if one[1].form is not None]
    kinds = {reached.kind for _, reached, _ in bounds}
    if len(kinds) > 1:
        raise ValuesError(
            f"one part of the communication asks for a large {over}, another one for a small one",
            hint="accounting time: serial compares with their sum",
        )
    either = next((reached for _, reached, _ in found if reached.kind == "either"), None)
    if not bounds and either is not None:
        growth = plain(forms.from_expr(cancelled(1 / either.ratio)))
        raise ValuesError(
            f"computing and communication change alike with {over}, so {over} decides nothing. The layer is compute "
            f"bound at every {over} if {growth} is at least 1, else at none",
            hint="give numbers for these symbols, or solve for another one (over)",
        )
    if len(each) > 1:
        terms.setting.choice("time")  # whether the times of several axes add up
    kind = next(iter(kinds), "at_least")
    side, extreme = ("≥", Largest) if kind == "at_least" else ("≤", Smallest)
    reached_all = [reached for _, reached, _ in found]
    if not bounds:
        text = f"The communication shrinks with computing: it takes less time at every `{over}`."
        return work.combine(name, num(0), ONE, "always", text), kind, reached_all
    if len(bounds) == 1:
        reads = "the sum of the communication times" if adds and len(each) > 1 else "the communication"
        text = f"Compute bound when computing takes at least as long as {reads}; solve for `{over}`: "
        met, reached, _ = bounds[0]
        return met.define(name, reached, "solve", f"{text}`{over}` {side} `{name}`."), kind, reached_all
    solved = tuple(met.define(f"{over}_{tag}", reached, "solve", f"There computing takes as long as `t_{tag}`.")
                   for met, reached, tag in bounds)  # fmt: skip
    text = "Computing must take at least as long as each communication time."
    return work.combine(name, extreme(solved), ONE, "solve", text), kind, reached_all


def _enough(terms: MeshTerms, met: Comparison) -> Reached:
    """What was found, with the text of its refusal. Raises ``ValuesError`` where none is enough, or numbers decide."""
    reached, over = met.solve(), met.x.name
    if not reached.kind:
        missing = {s.name for side in (met.first, met.second) for s in met.worth(side).free_symbols}
        raise ValuesError(f"numbers decide whether a large or a small {over} is compute bound",
                          hint=f"give {', '.join(sorted(missing - {over, *terms.known}))}")  # fmt: skip
    if reached.kind == "never":
        reason = "the communication alone takes longer"
        number = _number(reached.ratio, terms.known)
        if number:
            times = "as fast" if number == 1 else f"{float(number):.4g} times as fast"
            reason = f"the communication grows {times} with {over} as computing does"
        sizes = [size.name for size in terms.strategy.sizes.values() if isinstance(size, Sym)]
        most = {name: limit(1 - reached.ratio, forms.value(Sym(name))) for name in sizes}
        limits = [f"{name} below {float(number):.4g}" for name, worth in most.items()
                  if worth is not None and (number := _number(worth, terms.known)) is not None]  # fmt: skip
        hint = f"some {over} is enough with {' or '.join(limits)}" if limits else _FEWER
        raise ValuesError(_NEVER.format(over, reason), hint=hint)
    if reached.where is None:
        return reached
    faster = "faster than" if reached.kind == "either" else "no slower than"
    why = f"grows {faster} computing does" if reached.ratio else "alone takes longer"
    told = replace(reached.where, refusal=_NEVER.format(over, f"the communication {why}"), remedy=_FEWER)
    return replace(reached, where=told)


def _number(expr: Expr, known: Mapping[str, Fraction]) -> Fraction | None:
    """The value of an expression with the given numbers; None where some are missing."""
    form = forms.from_expr(expr)
    return forms.evaluate(form, known) if {*forms.names(form)} <= known.keys() else None


def _whole(work: StepWriter, answer: Form, name: str, kind: str) -> None:
    """The step that rounds the answer, and the same in the symbols that the answer was written in last."""
    assert isinstance(answer, Sym)
    if work.known[answer.name] == 0:
        work.combine(name, num(1), ONE, "whole numbers", "The smallest one there is.")
        return
    rounded = whole(name, answer, ONE, kind == "at_least")
    last = next(step for step in reversed(work.steps) if step.name == answer.name)
    work.known[name] = forms.value(rounded.form, work.known)
    work.steps.append(rounded)
    if last.relation == "=":
        again = rounded.form.mapped(lambda answer: last.form)
        work.steps.append(Step(name, again, ONE, Reason("algebra", "Substitute it."), "="))


def variable(setting: Setting, strategy: Strategy, over: str | None) -> tuple[str, bool]:
    """The symbol to solve for, and whether it is the batch.

    Raises ``ValuesError`` for one that is neither a size of the model nor a degree of the strategy.
    """
    graph = setting.graph
    degrees = [size.name for size in strategy.sizes.values() if isinstance(size, Sym)]
    sizes = list(dict.fromkeys(s.name for axis in graph.axes.values() for s in axis.size.free_symbols))
    batch = graph.axes[batch_axes(graph)[0]].size if over is None or over in sizes else None
    if over is None:
        assert batch is not None
        if not batch.is_Symbol:
            hint = "write a symbol into the table, or say over: and a symbol"
            raise ValuesError(f"the batch is {batch} in the table, no symbol to solve for", hint=hint)
        return batch.name, True
    if over not in (*sizes, *degrees):
        raise ValuesError(
            f"'{over[:40]}' is no size of the model and no degree of the strategy",
            hint=nearest(over, [*sizes, *degrees]),
        )
    return over, batch is not None and batch.is_Symbol and batch.name == over


def _both_sides(terms: MeshTerms, over: str, kind: str) -> Exhibit | None:
    """With all numbers: the times at the whole numbers on both sides of the bound."""
    known = terms.known
    every = [*map(forms.from_expr, terms.worths)]
    bound = forms.from_expr(terms.work.known[f"{over}^*"])
    if not {n for f in (*every, bound) for n in forms.names(f)} <= {*known, over}:
        return None
    first = forms.evaluate(Ceiling(bound) if kind == "at_least" else Floor(bound), known)
    rows: list[tuple[str | Form | Quantity, ...]] = []
    for value in (first - 1, first) if kind == "at_least" else (first, first + 1):
        if value < 1:
            continue
        times = [forms.evaluate(f, {**known, over: value}) for f in every]
        adds = terms.setting.accounting.time != "overlap"
        enough = times[0] >= (sum(times[1:]) if adds else max(times[1:]))
        assert enough == ((value >= first) == (kind == "at_least") or value == first)
        rows.append((str(value), *(Quantity(t, SECOND) for t in times), "computing" if enough else "communication"))
    return Exhibit(
        f"The times at whole `{over}` on both sides",
        (f"`{over}`", "computing", *(f"`{mesh}`" for mesh in terms.sent), "bound by"), tuple(rows),
    )  # fmt: skip


# -- two terms of a time ---------------------------------------------------------------------------------

_WORDS = {"compute": "computing", "memory": "the memory", "network": "the network"}


def derive_crossover(
    setting: Setting,
    between: Annotated[str, Meaning("two of compute, memory and network, separated by a comma")],
    over: Annotated[str, Meaning("the symbol to solve for")],
    strategy: StrategyOption | None = None,
    phase: Phase = "microbatch",
    op: OpName | None = None,
    dtype: Dtype | None = None,
    gradient_dtype: GradientDtype | None = None,
    **rates: Unpack[LinkedRates],
) -> Derivation:
    """The rate or size at which two terms of a time are equal.

    The value of ``over`` itself, where it is given, is not used. Raises ``ValuesError`` where the terms never meet.
    """
    pair = [part.strip() for part in between.split(",")]
    if len(pair) != 2 or pair[0] == pair[1] or not {*pair} <= {*TERMS}:
        raise ValuesError(f"'{between[:60]}' names no two terms", hint="write for instance between: network, compute")
    setting, work, writer, terms, _ = time.write(setting, strategy, phase, op, dtype, gradient_dtype, rates, True, pair)
    machine = writer.machine
    if any(over in condition.names for condition in machine.where):
        raise ValuesError(f"the number of {over} decides where the axes of the mesh lie in a node",
                          hint="name the links of each axis: tensor=900 GB/s, data=50 GB/s")  # fmt: skip
    first, second = sides = [
        ComparedTime(name, _WORDS[name], (need(getattr(terms, name), f"the {name} term"),)) for name in pair
    ]
    symbols = {s.name: s for one in sides for s in forms.value(one.parts[0], work.known).free_symbols}
    if over not in symbols:
        raise ValuesError(f"{' and '.join(pair)} do not depend on '{over[:40]}'", hint=nearest(over, [*symbols]))
    work.steps = time.ending(work, *first.parts, *second.parts)
    met = Comparison(work, symbols[over], first, second, machine.symbols, machine.given)
    found = met.solve()
    if found.form is None:
        longer = {"always": pair[0], "never": pair[1]}.get(found.kind)
        said = f": the {longer} term is longer at every one" if longer else ""
        raise ValuesError(f"the two terms are equal for no positive {over}{said}")
    text = f"The value at which the {pair[0]} term and the {pair[1]} term are equal"
    if found.rises is not None:
        text += f"; {'above' if found.rises else 'below'} it the {pair[0]} term is the larger one"
    if found.below is not None:
        low = float(found.below)
        text += f". The sign of their difference is proved here and at {low:.12g}; it changes nowhere else"
    met.define(f"{over.replace('^', '')}^*", found, "solve" if found.below is None else "bracket", f"{text}.")
    made = time.with_rates(setting.derivation(f"Where {pair[0]} and {pair[1]} meet", work.steps), writer)
    if found.where is not None:
        said = f"Where {found.where} does not hold, the {pair[0]} term and the {pair[1]} term meet at no {over}."
        made = replace(made, where=(*made.where, found.where), notes=(*made.notes, said))
    return replace(made, given=tuple((n, v) for n, v in made.given if n != over))


# -- decoding --------------------------------------------------------------------------------------------

Of = Annotated[Literal["batch", "context"], Meaning("the batch, or the context from which on no batch is enough")]

_SIDES = ("compute", "memory")
_REMEDY = "a shorter context, fewer bytes a number, or more queries for each key"


def derive_critical_batch(
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
