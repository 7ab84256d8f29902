"""The best split of devices into the two axes of a mesh: least communication, or least batch that is compute bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

import sympy as sp

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Exhibit, Numbers, Reason, Step, Witness, worked_out
from symcomm.core.errors import StrategyError, SymcommError, ValuesError, nearest
from symcomm.core.form import Form, Largest, Ratio, Sym, Total, num
from symcomm.core.optimum.cost import closed, written
from symcomm.core.optimum.equality import cancelled, positive_root
from symcomm.core.optimum.minimum import maximise, minimise
from symcomm.core.optimum.witnesses import no_better_beside
from symcomm.core.optimum.writing import continued
from symcomm.core.parallel.strategy import Strategy, degree
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Dtype, GradientDtype, Links, MeshPhase, NetworkRates, StrategyOption, Whole
from symcomm.core.quantities.time import inequality, mesh_terms, time
from symcomm.core.quantities.time.compute_bound import NUMBERS, variable
from symcomm.core.quantities.time.links import by_axis, new_symbols
from symcomm.core.quantities.time.mesh_terms import PHASES, MeshTerms
from symcomm.core.quantities.time.terms import SECOND
from symcomm.core.quantities.witnesses import largest, number, together
from symcomm.core.quantities.witnesses import over as quotient
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting
from symcomm.core.units import ONE, Quantity, Unit

if TYPE_CHECKING:
    from sympy import Expr

LEAST, WANTED = ("communication", "batch"), ("split", "least")
MOST_DEVICES, MOST_DIVISORS, MOST_ROWS = 10**12, 256, 12


@dataclass(frozen=True)
class _Split:
    """What is asked: the strategy with its two axes, the devices, and what every candidate is derived with."""

    setting: Setting
    strategy: Strategy
    axes: tuple[str, str]
    names: tuple[str, str]
    devices: Form
    least: str
    wants_least: bool
    phase: str
    links: dict[str, object]  # by the names of the mesh axes, whose sizes are no symbols in a candidate
    dtype: str | None
    gradient_dtype: str | None
    rates: Mapping[str, object]

    def terms(self, first: Form, second: Form) -> MeshTerms:
        """The times with these sizes of the two axes."""
        placed = replace(self.strategy, mesh=tuple(zip(self.axes, (first, second), strict=True)))
        return mesh_terms.write(
            self.setting, placed, self.phase, self.links, self.dtype, self.gradient_dtype, self.rates, self.devices
        )


def derive(
    setting: Setting,
    strategy: StrategyOption,
    devices: Annotated[Whole, Meaning("the number of devices, or its symbol")],
    least: Annotated[Literal["communication", "batch"], Meaning("what is made small")] = "communication",
    want: Annotated[Literal["split", "least"], Meaning("the size of the first axis, or what is least there")] = "split",
    numbers: Annotated[Literal["real", "whole"], Meaning("over the real numbers, or the divisors")] = "real",
    phase: MeshPhase = "forward",
    links: Links | None = None,
    dtype: Dtype | None = None,
    gradient_dtype: GradientDtype | None = None,
    **rates: Unpack[NetworkRates],
) -> Derivation:
    """The best split of devices into the two axes of a mesh.

    The best size of the first of two mesh axes, such as X of ``fsdp(X) + tensor(Y)``, for a number of devices; or
    (``want`` least) the time or the batch that is the least there.

    ``least`` is what is made small: the time of the ``communication`` at a given batch, or the ``batch`` from which on
    the layer is compute bound. ``numbers`` are real (a closed form where there is one) or whole (every divisor of N,
    for which all numbers are needed). The other options are those of ``compute_bound``.

    Raises ``StrategyError`` for a mesh that has not two axes of free size, ``ValuesError`` where numbers are missing or
    no split will do.

    Source: Austin et al., How to Scale Your Model, 2025, "Training", for the question.
    """
    for name, chosen, known in (("least", least, LEAST), ("numbers", numbers, NUMBERS), ("want", want, WANTED)):
        if chosen not in known:
            raise ValuesError(f"'{chosen[:40]}' is no {name}", hint=nearest(chosen, [*known]))
    if devices is None:
        raise ValuesError("the number of devices is not given", hint="devices: 64, or the name of a symbol")
    placed = mesh_terms.read_strategy(strategy)
    sizes = {mesh: size.name for mesh, size in placed.sizes.items() if isinstance(size, Sym)}
    if len(placed.sizes) != 2 or len(set(sizes.values())) != 2:
        raise StrategyError(
            f"devices are split into two mesh axes with symbols for their sizes, but {placed.name} has not two of them",
            hint="for instance fsdp(X) + tensor(Y)",
        )
    (first, x), (second, y) = sizes.items()
    free = {x, y, *([variable(setting, placed, None)[0]] if least == "batch" else [])}
    setting = replace(setting, values={n: v for n, v in setting.values.items() if n not in free})
    asked = _Split(setting, placed, (first, second), (x, y), degree(devices), least, want == "least", phase,
                   by_axis(links, placed), dtype,
                   gradient_dtype, rates)  # fmt: skip
    new_symbols(setting, placed, "the devices", asked.devices)
    return _real(asked) if numbers == "real" else _whole(asked)


# -- over the real numbers -----------------------------------------------------------------------------


def _real(asked: _Split) -> Derivation:
    x = asked.names[0]
    terms = asked.terms(Sym(x), Ratio(asked.devices, Sym(x)))
    if len(terms.sent) < 2:
        raise ValuesError(f"only the mesh axis '{next(iter(terms.sent))}' sends anything", hint="then it is best as 1")
    overlap = asked.setting.accounting.time == "overlap"
    if asked.least == "batch" and overlap:
        return _at_the_edge(asked, terms)
    cost = _cost(asked, terms)
    if overlap:
        return _where_equal(asked, terms, cost)
    try:
        best = (maximise if asked.least == "batch" else minimise)(cost, x, integer=False, lower=0)
    except ValuesError as error:
        raise ValuesError(error.message, hint="numbers: whole compares the divisors") from None
    found = continued(cost, best)
    more = _others(asked)
    if asked.least == "batch":
        name = more[-1].name
        worth = forms.from_expr(sp.cancel(1 / found.worth["f^*"]))
        more.append(Step(name, worth, ONE, Reason("algebra", "Put it in."), "="))
    return _finished(asked, found, more)


def _cost(asked: _Split, terms: MeshTerms) -> Derivation:
    """The derivation of what is made small; of the batch its reciprocal, which is a sum of powers."""
    work = terms.work
    if asked.least == "communication":
        sent = tuple(terms.sent.values())
        overlap = asked.setting.accounting.time == "overlap"
        text = "The longer of the communication times." if overlap else "The communication times one after the other."
        work.steps = time.ending(work, *sent)
        work.define("t_comm", Largest(sent) if overlap else Total(sent), SECOND, "combine", text,
                    witness=largest(sent) if overlap else together(sent))  # fmt: skip
        title = f"Communication time of {PHASES[asked.phase][1]}"
    else:
        over, _ = variable(asked.setting, asked.strategy, None)
        answer, kind, _ = inequality.solve(terms, over)
        worth = terms.worth(answer)
        if kind != "at_least" or worth == 0:
            raise ValuesError(f"no {over} has to be made small here", hint="least: communication")
        work.define("q", Ratio(num(1), answer), ONE, "reciprocal", f"`{over}^*` is least where this is greatest.",
                    witness=lambda numbers: 1 / number(answer, numbers))  # fmt: skip
        title = f"One over the least compute-bound `{over}` of {PHASES[asked.phase][1]}"
    fields = [field for field in terms.fields if field != "traffic"]
    if asked.least == "communication":
        fields = time.telling(work.steps, fields)
    return time.with_rates(asked.setting.derivation(title, work.steps, fields), terms.writer)


def _others(asked: _Split) -> list[Step]:
    """The steps that give the other axis, and the least batch, from the optimum."""
    x, y = asked.names
    steps = [Step(f"{y}^*", Ratio(asked.devices, Sym(f"{x}^*")), ONE, Reason("split", "The other mesh axis.",
             witness=quotient(asked.devices, Sym(f"{x}^*"))))]  # fmt: skip
    if asked.least == "batch":
        over, _ = variable(asked.setting, asked.strategy, None)
        text = f"The least `{over}` of all splits."
        steps.append(
            Step(
                f"{over}^least",
                Ratio(num(1), Sym("f^*")),
                ONE,
                Reason("least", text, witness=quotient(num(1), Sym("f^*"))),
            )
        )
    return steps


def _finished(asked: _Split, found: Derivation, more: list[Step]) -> Derivation:
    """The optimum with more steps; it is said again behind them, or what is least there."""
    x = asked.names[0]
    answer = next(s for s in found.steps if s.name == f"{x}^*" and s.relation == ":=")
    before = (
        found.steps[:-1] if found.steps[-1].name == answer.name and found.steps[-1].relation == "=" else found.steps
    )
    said = Step(answer.name, answer.form, answer.unit, Reason("answer", "There it is best."), "=")
    made = split = replace(found, steps=(*before, *more, said))
    if asked.wants_least:
        text = "The cost runs one way on each side of its best place, and an axis has 1 to all devices."
        bounded = forms.Smallest((asked.devices, Largest((num(1), Sym(answer.name)))))
        steps = (*before, Step(f"{x}^best", bounded, ONE, Reason("bounds", text, witness=_between(asked, answer.name))))
        last = _least(asked, found, f"{x}^best")
        made = replace(found, title=f"Least {_what(asked)}", steps=(*steps, last))
    known = {*dict(made.given)}
    if {*forms.names(forms.from_expr(split.expr)), *forms.names(asked.devices)} <= known:
        if asked.wants_least and made.at().value <= 0:
            raise ValuesError(f"no split of {forms.evaluate(asked.devices, dict(made.given))} devices will do: "
                              "the communication grows faster than computing", hint="fewer devices")  # fmt: skip
        place, most = split.at().value, forms.evaluate(asked.devices, dict(made.given))
        if not 1 <= place <= most:
            side = "below 1" if place < 1 else f"above {most}"
            made = replace(
                made, notes=(*made.notes, f"`{x}^*` is {side}: the best there is has all devices on one axis.")
            )
    return made


def _between(asked: _Split, name: str) -> Witness:
    """The middle one of the best place over all numbers and both ends."""
    return lambda numbers: sorted((Fraction(1), numbers[name], number(asked.devices, numbers)))[1]


def _name(asked: _Split) -> str:
    """The step that says what is made small."""
    return "t_comm" if asked.least == "communication" else f"{variable(asked.setting, asked.strategy, None)[0]}^*"


def _what(asked: _Split) -> str:
    """What is made small, in words."""
    if asked.least == "communication":
        return f"communication time of {PHASES[asked.phase][1]} over all splits"
    return f"compute-bound `{variable(asked.setting, asked.strategy, None)[0]}` over all splits"


def _least(asked: _Split, cost: Derivation, place: str) -> Step:
    """What is made small, where it is least."""
    name = _name(asked)
    at = next(i for i, step in enumerate(cost.steps) if step.name == name)
    x, alone = asked.names[0], replace(cost, steps=cost.steps[: at + 1])
    worth = forms.from_expr(alone.expr)
    form = forms.substitute(closed(alone), lambda s: Sym(place) if s.name == x else s)
    said = Reason("least", f"The least {_what(asked)}, at `{place}`.",
                  witness=lambda numbers: worked_out(worth, numbers.moved(x, numbers[place])))  # fmt: skip
    return Step(name.replace("_comm", "").replace("^*", "") + "^least", form, cost.steps[at].unit, said)


def _where_equal(asked: _Split, terms: MeshTerms, cost: Derivation) -> Derivation:
    """The longer of two times is least where both are equal, if one rises and the other one falls."""
    x = forms.value(Sym(asked.names[0]))
    first, second = (cost.worth[f.name] for f in terms.sent.values())  # type: ignore[attr-defined]
    slopes = [_slope(e, x) for e in (first, second)]
    ways = [1 if s.is_nonnegative else -1 if s.is_nonpositive else 0 for s in slopes]
    if sorted(ways) != [-1, 1]:
        raise ValuesError("how the communication times change with the split cannot be told", hint="numbers: whole")
    root = positive_root(first - second, x, dict(cost.given))
    names = [f.name for f in terms.sent.values() if isinstance(f, Sym)]
    rising, falling = names if ways[0] > 0 else names[::-1]
    text = f"`{rising}` rises with `{x.name}` and `{falling}` falls: the longer of them is least where both are equal."
    least = no_better_beside(forms.from_expr(cost.expr), x.name, f"{x.name}^*")
    step = Step(f"{x.name}^*", written(root), ONE, Reason("equal", text, witness=least))
    made = replace(cost, title=f"Best real `{x.name}`: {cost.title}", steps=(*cost.steps, step))
    return _finished(asked, made, _others(asked))


@lru_cache(maxsize=1024)
def _slope(expr: Expr, x: Expr) -> Expr:
    return sp.factor_terms(cancelled(sp.diff(expr, x)))


def _at_the_edge(asked: _Split, terms: MeshTerms) -> Derivation:
    """The batch of overlapping times: less with fewer ranks on the first axis, until no batch is enough any more."""
    x = forms.value(Sym(asked.names[0]))
    over, _ = variable(asked.setting, asked.strategy, None)
    answer, kind, bounds = inequality.solve(terms, over)
    worth = terms.worth(answer)
    gaps = [b.sides.over_computing for b in bounds if b.kind == "either" and b.sides is not None]
    gaps = [gap for gap in gaps if gap.has(x)]
    rises = [_slope(e, x).is_nonnegative for e in (worth, *gaps)]
    if kind != "at_least" or len(gaps) != 1 or rises != [True, True]:
        raise ValuesError("how the least batch changes with the split cannot be told", hint="numbers: whole")
    fields = [field for field in terms.fields if field != "traffic"]
    title = f"Best real `{x.name}`: least compute-bound `{over}` of {PHASES[asked.phase][1]}"
    cost = time.with_rates(asked.setting.derivation(title, terms.work.steps, fields), terms.writer)
    root = positive_root(gaps[0], x, dict(cost.given))
    text = f"`{over}^*` rises with `{x.name}`; with less than this, the communication grows faster than computing."
    gap = forms.from_expr(gaps[0])

    def closed(numbers: Numbers) -> bool:
        at = numbers.moved(x.name, numbers[f"{x.name}^*"])
        return abs(worked_out(gap, at)) * 10**30 <= abs(worked_out(gap, numbers.moved(x.name, 2 * at[x.name])))

    made = replace(
        cost, steps=(*cost.steps, Step(f"{x.name}^*", written(root), ONE, Reason("edge", text, witness=closed)))
    )
    return _finished(asked, made, _others(replace(asked, least="communication")))


# -- over the divisors ---------------------------------------------------------------------------------


def _whole(asked: _Split) -> Derivation:
    setting, (x, y) = asked.setting, asked.names
    if isinstance(asked.devices, Sym) and asked.devices.name not in setting.values:
        raise ValuesError(f"the divisors of {asked.devices.name} hang on its value", hint="devices: 64")
    count = forms.evaluate(asked.devices, setting.values)
    if count.denominator != 1 or not 1 < count <= MOST_DEVICES:
        raise ValuesError(f"{count} devices cannot be split", hint=f"a whole number from 2 to {MOST_DEVICES}")
    divisors = [int(d) for d in sp.divisors(int(count))]
    if len(divisors) > MOST_DIVISORS:
        said = f"{count} has {len(divisors)} divisors: at most {MOST_DIVISORS} are compared"
        raise ValuesError(said, hint="numbers: real gives the place of the best split")
    rows = [(d, *_candidate(asked, d, int(count) // d)) for d in divisors]
    worths = [cost for _, cost, _, _ in rows if cost is not None]
    if not worths:
        raise ValuesError(f"no split of {count} devices will do: {rows[0][2]}", hint="other devices or another batch")
    best = min(worths)
    winners = [d for d, cost, _, _ in rows if cost == best]
    terms = asked.terms(Sym(x), Ratio(asked.devices, Sym(x)))
    over = variable(setting, asked.strategy, None)[0] if asked.least == "batch" else ""
    work = terms.work
    unit: Unit = SECOND
    if over:
        inequality.solve(terms, over)
        unit = ONE
    else:
        cost = _cost(asked, terms)
        work.steps = [*cost.steps]
    others = f" It shares that with {', '.join(map(str, winners[1:]))}." if len(winners) > 1 else ""
    text = f"No other divisor of {count} needs less{f' `{over}`' if over else ' time'}.{others}"
    work.define(f"{x}^whole", num(winners[0]), ONE, "compare", text,
                witness=lambda numbers: min((cost, d) for d, cost, _, _ in rows if cost is not None)[1])  # fmt: skip
    if asked.wants_least:
        work.steps.append(_least(asked, setting.derivation("", work.steps, ()), f"{x}^whole"))
    shown = sorted(rows, key=lambda row: (row[1] is None, row[1] or 0, row[0]))[:MOST_ROWS]
    cells: list[tuple[str | Form | Quantity, ...]] = []
    for d, worth, why, times in sorted(shown, key=lambda row: row[0]):
        parts: list[str | Form | Quantity] = []
        if not over:
            parts = [Quantity(times.get(mesh, Fraction(0)), SECOND) if not why else "" for mesh in asked.axes]
        value = why if worth is None else Quantity(worth, unit)
        cells.append((str(d), str(int(count) // d), *parts, value, "best" if worth == best else ""))
    heads = [f"`{name}`" for name in ((x, y) if over else (x, y, *asked.axes))]
    heads += [f"least `{over}`" if over else "cost", ""]
    fields = [field for field in terms.fields if field != "traffic"]
    fields = fields if over else time.telling(work.steps, fields)
    title = f"Best whole `{x}`: " + (
        f"least compute-bound `{over}`" if over else f"communication time of {PHASES[asked.phase][1]}"
    )
    title = f"Least {_what(asked)}" if asked.wants_least else title
    exhibits = [Exhibit(f"Divisors of {count} compared", tuple(heads), tuple(cells))]
    return time.with_rates(setting.derivation(title, work.steps, fields, exhibits), terms.writer)


def _candidate(asked: _Split, first: int, second: int) -> tuple[Fraction | None, str, dict[str, Fraction]]:
    """The cost of one split, or why there is none, and its times."""
    try:
        terms = asked.terms(num(first), num(second))
        if asked.least == "batch":
            over, _ = variable(asked.setting, asked.strategy, None)
            answer, kind, _ = inequality.solve(terms, over)
            if kind != "at_least":
                return None, "no lower bound", {}
            return _number(terms, answer), "", {}
    except StrategyError:
        return None, "does not divide the sizes", {}
    except ValuesError as error:
        if asked.least == "batch" and "ever enough" in str(error):
            return None, "never compute bound", {}
        raise
    times = {mesh: _number(terms, name) for mesh, name in terms.sent.items()}
    overlap = asked.setting.accounting.time == "overlap"
    return max(times.values()) if overlap else sum(times.values(), Fraction(0)), "", times


def _number(terms: MeshTerms, name: Form) -> Fraction:
    form = forms.from_expr(terms.worth(name))
    missing = [n for n in forms.names(form) if n not in terms.known]
    if missing:
        raise SymcommError(
            f"which split is best hangs on numbers: {', '.join(missing)}", hint=f"give {missing[0]} a value"
        )
    return forms.evaluate(form, terms.known)
