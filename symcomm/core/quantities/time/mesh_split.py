"""The best split of devices into the two axes of a mesh: least communication, or least batch that is compute bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Annotated, Literal, Unpack

import sympy as sp

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Continued, Derivation, Exhibit, Reason, Step, worked_out
from symcomm.core.errors import StrategyError, SymcommError, ValuesError
from symcomm.core.form import Form, Largest, Ratio, Sym, Total, num
from symcomm.core.libraries import Expr
from symcomm.core.optimum.cost import closed, written
from symcomm.core.optimum.equality import cancelled, meets, positive_root
from symcomm.core.optimum.minimum import maximise, minimise
from symcomm.core.optimum.powers import course, has_both_signs, slope_of, terms
from symcomm.core.optimum.question import CountQuestion, RefusedError
from symcomm.core.optimum.roots import Domain
from symcomm.core.optimum.writing import continued
from symcomm.core.parallel.strategy import degree
from symcomm.core.patience import patience, trying
from symcomm.core.printing import plain
from symcomm.core.quantities.communication.links import by_axis, new_symbols
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import Dtype, GradientDtype, Links, MeshPhase, NetworkRates, StrategyOption, Whole
from symcomm.core.quantities.time import bounds, time
from symcomm.core.quantities.time.bounds import PHASES, MeshTerms, variable
from symcomm.core.quantities.time.terms import SECOND
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting
from symcomm.core.units import ONE, Quantity

MOST_DEVICES, MOST_DIVISORS, MOST_ROWS = 10**12, 256, 12


@dataclass(frozen=True)
class _Split:
    """What is asked: the two axes with their names, the devices, and the times at two sizes of the axes.

    ``over`` is the batch that is made small; of the time of the communication it is empty.
    """

    setting: Setting
    axes: tuple[str, str]
    names: tuple[str, str]
    devices: Form
    over: str
    wants_least: bool
    phase: str
    terms: Callable[[Form, Form], MeshTerms]

    @property
    def overlap(self) -> bool:
        """Whether the communication of the two axes runs at the same time."""
        return self.setting.accounting.time == "overlap"

    @property
    def what(self) -> str:
        """The cost that is made small, in words."""
        return f"compute-bound `{self.over}`" if self.over else f"communication time of {PHASES[self.phase][1]}"

    def made(self, title: str, terms: MeshTerms, exhibits: Sequence[Exhibit] = ()) -> Derivation:
        """The steps so far as a derivation."""
        return time.with_rates(self.setting.derivation(title, terms.work.steps, exhibits=exhibits), terms.writer)


def derive(
    setting: Setting,
    strategy: StrategyOption,
    devices: Annotated[Whole, Meaning("the number of devices, or its symbol")],
    least: Annotated[Literal["communication", "batch"], Meaning("the cost to minimise")] = "communication",
    want: Annotated[Literal["split", "least"], Meaning("the best size of the first axis, or the least cost")] = "split",
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
    placed = bounds.read_strategy(strategy)
    sizes = {mesh: size.name for mesh, size in placed.sizes.items() if isinstance(size, Sym)}
    if len(placed.sizes) != 2 or len(set(sizes.values())) != 2:
        raise StrategyError(
            f"devices are split into two mesh axes with symbols for their sizes, but {placed.name} has not two of them",
            hint="for instance fsdp(X) + tensor(Y)",
        )
    (first, x), (second, y) = sizes.items()
    over = variable(setting, placed, None)[0] if least == "batch" else ""
    setting = replace(setting, values={n: v for n, v in setting.values.items() if n not in (x, y, over)})
    shared = by_axis(links, placed)  # by the names of the axes, whose sizes are no symbols in a candidate
    many = degree(devices)

    def terms(*sizes: Form) -> MeshTerms:
        split = replace(placed, mesh=tuple(zip((first, second), sizes, strict=True)))
        return bounds.write(setting, split, phase, shared, dtype, gradient_dtype, rates, many)

    asked = _Split(setting, (first, second), (x, y), many, over, want == "least", phase, terms)
    new_symbols(setting, placed, "the devices", many)
    return _real(asked) if numbers == "real" else _whole(asked)


# -- over the real numbers -----------------------------------------------------------------------------


def _real(asked: _Split) -> Derivation:
    x = asked.names[0]
    terms = asked.terms(Sym(x), Ratio(asked.devices, Sym(x)))
    if len(terms.sent) < 2:
        raise ValuesError(f"only the mesh axis '{next(iter(terms.sent))}' sends anything", hint="then it is best as 1")
    if asked.overlap and asked.over:
        return _at_the_edge(asked, terms)
    cost = _cost(asked, terms)
    try:
        best = (maximise if asked.over else minimise)(cost, x, integer=False, lower=0)
    except ValuesError as error:
        raise ValuesError(error.message, hint="numbers: whole compares the divisors") from None
    found, more = continued(cost, best), [_other(asked)]
    if asked.over and "f^*" in found.worth:  # numbers that were compared have no such step
        inverse = Ratio(num(1), Sym("f^*"))
        said = Reason("least", f"The least `{asked.over}` of all splits.", witness=partial(worked_out, inverse))
        worth = forms.from_expr(sp.cancel(1 / found.worth["f^*"]))
        more += [Step(f"{asked.over}^least", inverse, ONE, said),
                 Step(f"{asked.over}^least", worth, ONE, Reason("algebra", "Substitute it."), "=")]  # fmt: skip
    return _finished(asked, found, more)


def _cost(asked: _Split, terms: MeshTerms) -> Derivation:
    """The derivation of what is made small; of the batch its reciprocal, which is a sum of powers."""
    work = terms.work
    if not asked.over:
        sent = tuple(terms.sent.values())
        text = "The longer of the communication times." if asked.overlap else (
            "The communication times one after the other.")  # fmt: skip
        work.steps = time.ending(work, *sent)
        terms.setting.choice("time")
        work.combine("t_comm", (Largest if asked.overlap else Total)(sent), SECOND, "combine", text)
        return asked.made(f"Communication time of {PHASES[asked.phase][1]}", terms)
    answer, kind, (bound, *_) = bounds.solve(terms, asked.over)
    if kind != "at_least" or terms.worth(answer) == 0:
        raise ValuesError(f"no {asked.over} has to be made small here", hint="least: communication")
    work.combine("q", Ratio(num(1), answer), ONE, "reciprocal", f"`{asked.over}^*` is least where this is greatest.")
    made = asked.made(f"One over the least compute-bound `{asked.over}` of {PHASES[asked.phase][1]}", terms)
    if bound.where is None or not asked.wants_least:
        return made
    x = forms.value(Sym(asked.names[0]))  # the split at which computing gains most on the communication decides
    most = {1: forms.value(asked.devices), -1: sp.Integer(1)}.get(_way(1 - bound.ratio, x), x)
    less, more = map(forms.from_expr, sp.fraction(cancelled(bound.ratio.subs(x, most))))
    refusal = f"no split of {plain(asked.devices)} devices will do: the communication grows faster than computing"
    return replace(made, where=(*made.where, Condition(more, ">", less, refusal, "fewer devices")))


def _other(asked: _Split) -> Step:
    """The step that gives the other axis."""
    x, y = asked.names
    form = Ratio(asked.devices, Sym(f"{x}^*"))
    return Step(f"{y}^*", form, ONE, Reason("split", "The other mesh axis.", witness=partial(worked_out, form)))


def _finished(asked: _Split, found: Derivation, more: Sequence[Step]) -> Derivation:
    """The optimum with more steps; it is said again behind them, or what is least there."""
    x = asked.names[0]
    answer = next(s for s in found.steps if s.name == f"{x}^*" and s.relation == ":=")
    last = found.steps[-1]
    before = found.steps[:-1] if last.name == answer.name and last.relation == "=" else found.steps
    said = Step(answer.name, answer.form, answer.unit, Reason("answer", "This split is best."), "=")
    made = split = replace(found, steps=Continued.of((*before, *more, said), (found,)))
    if asked.wants_least:
        text = "On each side of the minimum the cost only rises, and an axis has 1 to all devices."
        bounded = forms.Smallest((asked.devices, Largest((num(1), Sym(answer.name)))))
        inside = Reason("bounds", text, witness=partial(worked_out, bounded))
        steps = (*before, Step(f"{x}^best", bounded, ONE, inside), _least(asked, found, f"{x}^best"))
        made = replace(found, title=f"Least {asked.what} over all splits", steps=Continued.of(steps, (found,)))
    given = dict(made.given)
    if {*forms.names(forms.from_expr(split.expr)), *forms.names(asked.devices)} <= given.keys():
        most = forms.evaluate(asked.devices, given)
        place = split.at().value
        if not 1 <= place <= most:
            side = "below 1" if place < 1 else f"above {most}"
            told = f"`{x}^*` is {side}: the best there is has all devices on one axis."
            made = replace(made, notes=(*made.notes, told))
    return made


def _least(asked: _Split, cost: Derivation, place: str) -> Step:
    """What is made small, where it is least."""
    name = f"{asked.over}^*" if asked.over else "t_comm"
    at = next(i for i, step in enumerate(cost.steps) if step.name == name)
    x, alone = asked.names[0], replace(cost, steps=Continued.of(cost.steps[: at + 1], (cost,)))
    worth = forms.from_expr(alone.expr)
    form = forms.substitute(closed(alone), lambda s: Sym(place) if s.name == x else s)
    said = Reason("least", f"The least {asked.what} over all splits, at `{place}`.",
                  witness=lambda numbers: worked_out(worth, numbers.moved(x, numbers[place])))  # fmt: skip
    return Step(f"{asked.over or 't'}^least", form, cost.steps[at].unit, said)


@lru_cache(maxsize=1024)
def _way(expr: Expr, x: Expr) -> int:
    """Whether an expression rises (1) or falls (-1) with a symbol; 0 where that cannot be told."""
    powers = terms(expr, x)
    told = None if powers is None else {"rises": 1, "falls": -1}.get(course(slope_of(powers)).kind)
    if told is not None or any(step.has(x) for step in expr.atoms(sp.ceiling, sp.floor)):
        return told or 0
    slope = sp.diff(expr, x)
    if has_both_signs(slope):
        return 0
    slope = sp.factor_terms(cancelled(slope))
    return 1 if slope.is_nonnegative else -1 if slope.is_nonpositive else 0


def _at_the_edge(asked: _Split, terms: MeshTerms) -> Derivation:
    """The batch of overlapping times: less with fewer ranks on the first axis, until no batch is enough any more."""
    x, over = forms.value(Sym(asked.names[0])), asked.over
    answer, kind, found = bounds.solve(terms, over)
    gaps = [1 - bound.ratio for bound in found if bound.kind == "either"]
    gaps = [gap for gap in gaps if gap.has(x)]
    if kind != "at_least" or len(gaps) != 1 or {_way(e, x) for e in (terms.worth(answer), *gaps)} != {1}:
        raise ValuesError(
            "the change of the least batch with the split depends on unknown signs", hint="numbers: whole"
        )
    text = f"`{over}^*` rises with `{x.name}`; with less than this, the communication grows faster than computing."
    with patience(f"the search for the best real {x.name}", "numbers: whole compares the divisors", crossing=True):
        trying("the roots of a difference in closed form")
        root = positive_root(gaps[0], x, terms.known)
    place = f"{x.name}^*"
    witness = partial(meets, forms.from_expr(gaps[0]), x.name, False, place)
    terms.work.steps.append(Step(place, written(root), ONE, Reason("edge", text, witness=witness)))
    title = f"Best real `{x.name}`: least compute-bound `{over}` of {PHASES[asked.phase][1]}"
    return _finished(asked, asked.made(title, terms), [_other(asked)])


# -- over the divisors ---------------------------------------------------------------------------------


def _whole(asked: _Split) -> Derivation:
    setting, (x, y), over = asked.setting, asked.names, asked.over
    if isinstance(asked.devices, Sym) and asked.devices.name not in setting.values:
        raise ValuesError(f"the divisors of {asked.devices.name} hang on its value", hint="devices: 64")
    count = forms.evaluate(asked.devices, setting.values)
    if count.denominator != 1 or not 1 < count <= MOST_DEVICES:
        raise ValuesError(f"{count} devices cannot be split", hint=f"a whole number from 2 to {MOST_DEVICES}")
    divisors = Domain(divides=int(count)).numbers()
    if len(divisors) > MOST_DIVISORS:
        said = f"{count} has {len(divisors)} divisors: at most {MOST_DIVISORS} are compared"
        raise ValuesError(said, hint="numbers: real gives the place of the best split")
    times: dict[int, dict[str, Fraction]] = {}
    try:
        found = CountQuestion(partial(_worth, asked, int(count), times), divisors).least()
    except RefusedError as error:
        told = f"no split of {count} devices will do: {error.message}"
        raise ValuesError(told, hint="other devices or another batch") from None
    terms = asked.terms(Sym(x), Ratio(asked.devices, Sym(x)))
    if over:
        bounds.solve(terms, over)
    else:
        _cost(asked, terms)
    others = f" {', '.join(map(str, found.best[1:]))} is as good." if len(found.best) > 1 else ""
    text = f"No other divisor of {count} needs less{f' `{over}`' if over else ' time'}.{others}"
    work = terms.work
    work.define(f"{x}^whole", num(found.best[0]), ONE, "compare", text, witness=lambda numbers: found.best[0])
    if asked.wants_least:
        work.steps.append(_least(asked, setting.derivation("", work.steps), f"{x}^whole"))
    shown: list[tuple[int, Fraction | str]] = [*sorted(found.tried, key=lambda one: one[1]), *found.refused]
    cells: list[tuple[str | Form | Quantity, ...]] = []
    for d, worth in sorted(shown[:MOST_ROWS], key=lambda one: one[0]):
        sizes = dict(zip(asked.axes, (d, int(count) // d), strict=True))
        alone = [f"nothing is sent along `{mesh}`" for mesh, n in sizes.items() if n == 1]
        each: list[str | Quantity] = [Quantity(times[d].get(mesh, Fraction(0)), SECOND) if d in times else ""
                                      for mesh in sizes if not over]  # fmt: skip
        value = worth if isinstance(worth, str) else Quantity(worth, ONE if over else SECOND)
        told = "; ".join(["best"] * (d in found.best) + alone * (value is not worth))
        cells.append((*map(str, sizes.values()), *each, value, told))
    heads = [f"`{name}`" for name in ((x, y) if over else (x, y, *asked.axes))]
    heads += [f"least `{over}`" if over else "cost", ""]
    title = f"Least {asked.what} over all splits"
    if not asked.wants_least:
        title = f"Best whole `{x}`: {'least ' if over else ''}{asked.what}"
    return asked.made(title, terms, [Exhibit(f"Divisors of {count} compared", tuple(heads), tuple(cells))])


def _worth(asked: _Split, count: int, times: dict[int, dict[str, Fraction]], first: int) -> Fraction:
    """The cost of one split, whose times are noted; raises ``RefusedError`` where there is none."""
    try:
        terms = asked.terms(num(first), num(count // first))
        if asked.over:
            answer, kind, _ = bounds.solve(terms, asked.over)
            if kind != "at_least":
                raise RefusedError("no lower bound")
            return _number(terms, answer)
    except StrategyError:
        raise RefusedError("does not divide the sizes") from None
    except ValuesError as error:
        if asked.over and "ever enough" in str(error):
            raise RefusedError("never compute bound") from None
        raise
    times[first] = {mesh: _number(terms, name) for mesh, name in terms.sent.items()}
    return max(times[first].values()) if asked.overlap else sum(times[first].values(), Fraction(0))


def _number(terms: MeshTerms, name: Form) -> Fraction:
    form = forms.from_expr(terms.worth(name))
    missing = [n for n in forms.names(form) if n not in terms.known]
    if missing:
        raise SymcommError(
            f"the best split depends on numbers: {', '.join(missing)}", hint=f"give {missing[0]} a value"
        )
    return forms.evaluate(form, terms.known)
