"""From which batch on a layer is compute bound: the times of computing and communication compared, and solved."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Literal, Unpack

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Derivation, Exhibit, Reason, Step
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Ceiling, Floor, Form, Largest, Ratio, Smallest, Sym, num, product
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.libraries import Expr
from symcomm.core.optimum.comparison import ComparedTime, Comparison
from symcomm.core.optimum.equality import Reached, cancelled, limit
from symcomm.core.optimum.writing import whole
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.printing import plain
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Dtype, GradientDtype, Links, MeshPhase, NetworkRates, StrategyOption
from symcomm.core.quantities.time import mesh_terms, time
from symcomm.core.quantities.time.mesh_terms import PHASES, MeshTerms
from symcomm.core.quantities.time.terms import SECOND
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import ONE, Quantity

_NEVER = "no {} is ever enough for computing to be the longer part: {}"
_FEWER = "fewer ranks, more links or a faster network"


def derive(
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
    placed = mesh_terms.read_strategy(strategy)
    over, batch = variable(setting, placed, over)
    if per == "device" and not batch:
        raise ValuesError(f"{over} is not shared out over the devices", hint="per: total")
    setting = replace(setting, values={n: v for n, v in setting.values.items() if n != over})
    terms = mesh_terms.write(setting, placed, phase, links, dtype, gradient_dtype, rates)
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
