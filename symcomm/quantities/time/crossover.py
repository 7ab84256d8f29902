"""Where two terms of a time are equal: the rate or the size at which one overtakes the other, solved symbolically."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Unpack

from symcomm import form as forms
from symcomm.derivation import Derivation, Numbers, Relations, worked_out
from symcomm.errors import ValuesError, nearest
from symcomm.form import Form, Ratio, Sym, Total, product
from symcomm.optimum.equality import holding, positive_root, rises
from symcomm.quantities.declared import Meaning
from symcomm.quantities.options import Dtype, GradientDtype, LinkedRates, OpName, Phase, StrategyOption
from symcomm.quantities.time import time
from symcomm.quantities.time.term_texts import need
from symcomm.quantities.time.terms import Terms, TimeWriter
from symcomm.setting import Setting
from symcomm.units import ONE, Unit

if TYPE_CHECKING:
    from sympy import Expr


def derive(
    setting: Setting,
    between: Annotated[str, Meaning("two of compute, memory and network, with a comma between them")],
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
    from sympy.core.function import AppliedUndef

    pair = [part.strip() for part in between.split(",")]
    if len(pair) != 2 or pair[0] == pair[1] or not {*pair} <= {*time.TERMS}:
        raise ValuesError(f"'{between[:60]}' are no two terms", hint="write for instance between: network, compute")
    setting, work, writer, terms, fields, _ = time.write(setting, strategy, phase, op, dtype, gradient_dtype, rates)
    if any(over in condition.names for condition in writer.machine.where):
        raise ValuesError(f"where the axes of the mesh lie in a node hangs on the number of {over}",
                          hint="name the links of each axis: tensor=900 GB/s, data=50 GB/s")  # fmt: skip
    first, second = (need(getattr(terms, name), f"the {name} term") for name in pair)
    assert isinstance(first, Sym)
    assert isinstance(second, Sym)
    worth = {name: work.known[sym.name] for name, sym in zip(pair, (first, second), strict=True)}
    symbols = {s.name: s for e in worth.values() for s in e.free_symbols}
    if over not in symbols:
        raise ValuesError(f"{' and '.join(pair)} do not depend on '{over[:40]}'", hint=nearest(over, [*symbols]))
    x = symbols[over]
    name = f"{over.replace('^', '')}^*"
    known = {**setting.values, **dict(writer.machine.given)}
    rate = _rate_form(writer, terms, over, worth, pair)
    gap = worth[pair[0]] - worth[pair[1]]
    grows = rises(gap, x, known)
    text = f"The value at which the {pair[0]} term and the {pair[1]} term are equal"
    if grows is not None:
        text += f"; {'above' if grows else 'below'} it the {pair[0]} term is the larger one"
    text += "."

    def meet(numbers: Numbers) -> bool:
        """Whether both terms take equally long there."""
        at = numbers.moved(over, next(numbers[n] for n in reversed(numbers) if n.startswith(name)))
        one, other = (worked_out(forms.from_expr(worth[which]), at) for which in pair)
        return abs(one - other) * 10**30 <= abs(one)

    if rate is not None:
        form, unit = rate
        work.steps = time.ending(work, *(Sym(n) for n in forms.names(form)), first, second)
        work.define(name, form, unit, "solve", text, witness=meet)
        solved = work.known[name]
    else:
        if any(x in worked.free_symbols for worked in gap.atoms(AppliedUndef)):
            raise ValuesError(f"how many experts are read depends on {over}: no formula says where the two terms meet",
                              hint="experts_read: every_expert counts them all")  # fmt: skip
        solved = positive_root(gap, x, known, pair)
        work.steps = time.ending(work, first, second)
        work.define(name, forms.from_expr(_by_rates(solved, writer)), ONE, "solve", text, witness=meet)
    if not _meet(worth[pair[0]], worth[pair[1]], x, solved, known):
        raise ValuesError(f"{pair[0]} and {pair[1]} do not meet at {over} = {solved}")
    fields = [field for field in time.telling(work.steps, fields) if field != "time"]
    made = setting.derivation(f"Where {pair[0]} and {pair[1]} meet", work.steps, fields)
    made = time.with_rates(made, writer)
    where = holding(gap, x, solved, known)
    if where is not None:
        said = f"Where {where} does not hold, the {pair[0]} term and the {pair[1]} term meet at no {over}."
        made = replace(made, where=(*made.where, where), notes=(*made.notes, said))
    return replace(made, given=tuple((n, v) for n, v in made.given if n != over))


def _rate_form(
    writer: TimeWriter, terms: Terms, over: str, worth: Mapping[str, Expr], pair: list[str]
) -> tuple[Form, Unit] | None:
    """Where ``over`` is the rate of one term: its amount over the time of the other."""
    machine = writer.machine
    rows: list[tuple[str, Form, Form | None, tuple[Form | None, ...]]] = [
        ("compute", machine.peak, terms.flops, ()), ("memory", machine.memory, terms.moved, ())
    ]  # fmt: skip
    for one in terms.sending:  # what the network takes besides the bytes of this link
        others = [other.time for other in terms.sending if other != one]
        rows.append(("network", one.link.bandwidth, one.bytes, (one.latency, *others)))
    for term, symbol, amount, besides in rows:
        other = pair[1] if pair[0] == term else pair[0]
        if not isinstance(symbol, Sym) or symbol.name != over or term not in pair or amount is None:
            continue
        time_of: Form | None = getattr(terms, other)
        assert time_of is not None
        less = [form for form in besides if form is not None]
        if any(forms.value(form, writer.work.known).has(forms.value(symbol)) for form in (time_of, *less)):
            continue
        if less:
            time_of = Total((time_of, *map(forms.negative, less)))
        below = time_of
        if term != "network" and machine.utilisation is not None:
            below = product(machine.utilisation, time_of)
        top = amount
        if term == "compute" and writer.rate() != machine.peak:
            rate = writer.work.known[writer.rate().name]  # type: ignore[attr-defined]
            top = product(forms.from_expr(forms.value(machine.peak) / rate), amount)
        return Ratio(top, below), symbol.unit
    return None


def _meet(left: Expr, right: Expr, x: Expr, solved: Expr, known: Mapping[str, Fraction]) -> bool:
    """Whether two terms are equal at the solution, at three points: a check that shares no algebra with it.

    The first one has the numbers that are known: at others a solution with a root need not be real.
    """
    rng = random.Random(20240327)  # noqa: S311  (probes, not secrets)
    sides = [forms.from_expr(left), forms.from_expr(right)]
    root = forms.from_expr(solved)
    wanted = sorted({n for f in (*sides, root) for n in forms.names(f)} - {x.name})
    for probe in range(3):
        point = {name: Fraction(rng.randint(2, 997)) for name in wanted}
        numbers = Numbers({**point, **known} if probe == 0 else point, Relations(()))
        try:
            numbers[x.name] = worked_out(root, numbers)
        except ValuesError:
            if probe == 0:
                raise
            continue
        one, other = (worked_out(side, numbers) for side in sides)
        if abs(one - other) * 10**30 > abs(one):
            return False
    return True


def _by_rates(solved: Expr, writer: TimeWriter) -> Expr:
    """A solution with its denominator in order of the rates of the machine."""
    import sympy as sp

    top, bottom = sp.fraction(sp.together(solved))
    rates = [forms.value(symbol) for symbol in writer.machine.symbols if symbol != writer.machine.utilisation]
    if not bottom.has(*rates):
        return solved
    parts = sp.collect(sp.expand(bottom), rates, evaluate=False)
    return top / sp.Add(*(sp.factor_terms(inside) * rate for rate, inside in parts.items()))
