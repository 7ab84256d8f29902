"""Where two terms of a time are equal: the rate or the size at which one overtakes the other, solved symbolically."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Unpack

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Numbers, Relations, worked_out
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form, Ratio, Sym, Total, product
from symcomm.core.libraries import Expr, sp
from symcomm.core.optimum.dimension import in_unit
from symcomm.core.optimum.equality import Meeting, meeting, rises
from symcomm.core.printing.forms import width
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Dtype, GradientDtype, LinkedRates, OpName, Phase, StrategyOption
from symcomm.core.quantities.time import time
from symcomm.core.quantities.time.term_texts import need
from symcomm.core.quantities.time.terms import SECOND, Terms, TimeWriter
from symcomm.core.records import replace
from symcomm.core.setting import Setting
from symcomm.core.units import ONE, Unit

_HAIR = Fraction(1, 10**6)  # of a crossing that is found by numbers
_WORDS = {"compute": "computing", "memory": "the memory", "network": "the network"}
_ROOM = 28.0  # em: a form that one line holds


def derive(
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
    if len(pair) != 2 or pair[0] == pair[1] or not {*pair} <= {*time.TERMS}:
        raise ValuesError(f"'{between[:60]}' are no two terms", hint="write for instance between: network, compute")
    setting, work, writer, terms, _ = time.write(setting, strategy, phase, op, dtype, gradient_dtype, rates)
    if any(over in condition.names for condition in writer.machine.where):
        raise ValuesError(f"the number of {over} decides where the axes of the mesh lie in a node",
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
    sides = [forms.from_expr(worth[which]) for which in pair]
    work.steps = time.ending(work, *((Sym(n) for n in forms.names(rate[0])) if rate else ()), first, second)
    if rate is not None:
        form, unit = rate
        met = Meeting(forms.value(form, work.known), rises(gap, x, known))
    else:
        met, unit = meeting(gap, x, known, pair), ONE
        form = forms.from_expr(_by_rates(met.root, writer))
        if width(form) > _ROOM and all(e.is_polynomial(x) and e.as_poly(x).degree() == 1 for e in worth.values()):
            form = _by_slopes(writer, pair, (first, second), worth, x)
    if met.between is None and not _meet(sides, x, met.root, known):
        raise ValuesError(f"{pair[0]} and {pair[1]} do not meet at {over} = {met.root}")
    text = f"The value at which the {pair[0]} term and the {pair[1]} term are equal"
    if met.rises is not None:
        text += f"; {'above' if met.rises else 'below'} it the {pair[0]} term is the larger one"
    if met.between is not None:
        low = float(met.between.low)
        text += f". The sign of their difference is proved here and at {low:.12g}; it changes nowhere else"
    work.define(name, form, unit, "solve" if met.between is None else "bracket", f"{text}.",
                witness=partial(_met, sides, over, name, met.between is None))  # fmt: skip
    made = setting.derivation(f"Where {pair[0]} and {pair[1]} meet", work.steps)
    made = time.with_rates(made, writer)
    if met.where is not None:
        said = f"Where {met.where} does not hold, the {pair[0]} term and the {pair[1]} term meet at no {over}."
        made = replace(made, where=(*made.where, met.where), notes=(*made.notes, said))
    return replace(made, given=tuple((n, v) for n, v in made.given if n != over))


def _by_slopes(
    writer: TimeWriter, pair: Sequence[str], times: Sequence[Sym], worth: Mapping[str, Expr], x: Expr
) -> Form:
    """The size at which two linear times are equal: the difference of the fixed parts over that of the slopes."""
    units = {sym.name: sym.unit for sym in writer.machine.symbols}
    slopes: list[Form] = []
    fixed: list[Form] = []  # of the second time, less that of the first
    for term, sym in zip(pair, times, strict=True):
        slope, rest = (
            forms.substitute(forms.from_expr(e), lambda s: replace(s, unit=units.get(s.name, s.unit)))
            for e in worth[term].as_poly(x).all_coeffs()
        )
        told = f"Time of {_WORDS[term]} per additional unit of `{x.name}`."
        alone = Ratio(sym, forms.from_expr(x)) if rest == forms.num(0) else in_unit(slope, SECOND)
        slopes.append(writer.work.define(f"tau_{term}", alone, SECOND, "split", told))
        if rest != forms.num(0):
            told = f"The part of the time of {_WORDS[term]} that does not depend on `{x.name}`."
            made = writer.work.define(f"t_{term},fixed", in_unit(rest, SECOND), SECOND, "split", told)
            fixed.insert(0, made if len(slopes) > 1 else forms.negative(made))
    return Ratio(forms.total(*fixed), Total((slopes[0], forms.negative(slopes[1]))))


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


def _met(sides: Sequence[Form], over: str, name: str, exact: bool, numbers: Numbers) -> bool:
    """Whether both terms take equally long at the answer, or (not ``exact``) change places within a hair below it."""
    place = next(numbers[n] for n in reversed(numbers) if n.startswith(name))

    def gap(x: Fraction) -> tuple[Fraction, Fraction]:
        one, other = (worked_out(side, numbers.moved(over, x)) for side in sides)
        return one - other, abs(one)

    here, size = gap(place)
    return abs(here) * 10**30 <= size if exact else here * gap(place * (1 - _HAIR))[0] <= 0


def _meet(sides: Sequence[Form], x: Expr, solved: Expr, known: Mapping[str, Fraction]) -> bool:
    """Whether two terms are equal at the solution, at three points: a check that shares no algebra with it.

    The first one has the numbers that are known: at others a solution with a root need not be real.
    """
    rng = random.Random(20240327)  # noqa: S311  (probes, not secrets)
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
        if not _met(sides, x.name, x.name, True, numbers):
            return False
    return True


def _by_rates(solved: Expr, writer: TimeWriter) -> Expr:
    """A solution with its denominator in order of the rates of the machine."""
    top, bottom = sp.fraction(sp.together(solved))
    rates = [forms.value(symbol) for symbol in writer.machine.symbols if symbol != writer.machine.utilisation]
    if not bottom.has(*rates):
        return solved
    parts = sp.collect(sp.expand(bottom), rates, evaluate=False)
    return top / sp.Add(*(sp.factor_terms(inside) * rate for rate, inside in parts.items()))
