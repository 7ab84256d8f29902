"""Computing against the communication as functions of one symbol: the inequality between their times, solved.

Both sides are sums of two neighbouring powers of the symbol. Which side of the solution is compute bound, or whether
every or no value is, follows from the signs of the two differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property, partial

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Numbers, Reason, Step, worked_out
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form, Largest, Ratio, Smallest, Sym, Total, negative, num, product
from symcomm.core.libraries import Expr, sp
from symcomm.core.optimum.dimension import in_unit
from symcomm.core.optimum.equality import cancelled, limit
from symcomm.core.optimum.powers import sign, terms
from symcomm.core.printing import plain
from symcomm.core.quantities.time.mesh_terms import MeshTerms
from symcomm.core.quantities.time.terms import SECOND
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import StepWriter
from symcomm.core.units import ONE

_NEVER = "no {} is ever enough for computing to be the longer part: {}"


@dataclass(frozen=True)
class Bound:
    """What one comparison of times asks of the variable.

    ``kind`` is ``at_least``, ``at_most`` or ``always``, or ``either`` where numbers tell whether every value is enough
    or none. ``where`` holds if some value is enough, in the words of ``needs``; None where that is so for any numbers.
    """

    kind: str
    form: Form | None = None
    sides: Sides | None = None
    where: Condition | None = None
    needs: str = ""


@dataclass(frozen=True)
class Sides:
    """The coefficients of one power of the variable: of computing and of what is sent, None where there is none."""

    compute: Form | None
    sent: Form | None
    terms: MeshTerms

    @property
    def both(self) -> bool:
        """Whether it is on both sides."""
        return self.compute is not None and self.sent is not None

    @property
    def known(self) -> dict[str, Expr]:
        """What the steps are worth."""
        return self.terms.work.known

    @cached_property
    def gap(self) -> Expr:
        """Computing less what is sent."""
        first, second = (sp.Integer(0) if f is None else forms.value(f, self.known) for f in (self.compute, self.sent))
        return sp.expand(first - second)

    @property
    def sign(self) -> int | None:
        """The sign of the difference, as far as symbols and given numbers tell it."""
        number = _number(self.terms, self.gap)
        return sign(self.gap) if number is None else (number > 0) - (number < 0)

    @cached_property
    def over_computing(self) -> Expr:
        """The difference over computing: factors of both, which the answer need not have, cancel."""
        assert self.compute is not None
        return cancelled(self.gap / forms.value(self.compute, self.known))

    def difference(self, sense: int) -> Form:
        """Computing less what is sent, or (``sense`` -1) the other way round, as it is written."""
        first, second = (self.compute, self.sent)[::sense]
        parts = [*([first] if first is not None else []), *([negative(second)] if second is not None else [])]
        return parts[0] if len(parts) == 1 else Total(tuple(parts))

    def limits(self) -> dict[str, Expr]:
        """The degrees of the strategy above which the difference is not positive."""
        sizes = [size for size in self.terms.strategy.sizes.values() if isinstance(size, Sym)]
        found = {size.name: limit(self.gap, forms.value(size)) for size in sizes}
        return {name: worth for name, worth in found.items() if worth is not None}


def _number(terms: MeshTerms, expr: Expr) -> Fraction | None:
    """What an expression is worth with the given numbers; None where some are missing."""
    form = forms.from_expr(expr)
    return forms.evaluate(form, terms.known) if {*forms.names(form)} <= terms.known.keys() else None


def solve(terms: MeshTerms, over: str) -> tuple[Form, str, list[Bound]]:
    """Writes the steps from the times to the bound; gives its name, ``at_least`` or ``at_most``, and what it rests on.

    Raises ``ValuesError`` where there is no bound.
    """
    groups = list(terms.sent.items())
    adds = terms.setting.accounting.time != "overlap"
    parts = [("comm", tuple(f for _, f in groups))] if adds else [(mesh, (f,)) for mesh, f in groups]
    if adds and len(groups) == 1:
        parts = [(groups[0][0], (groups[0][1],))]
    several = len(parts) > 1
    found = [_Comparison(terms, over, name, sent, several).bound() for name, sent in parts]
    bounds = [b for b in found if b.kind in ("at_least", "at_most")]
    kinds = {b.kind for b in bounds}
    either = next((b.sides for b in found if b.kind == "either"), None)
    name, work = f"{over}^*", terms.work
    if len(kinds) > 1:
        raise ValuesError(
            f"one part of the communication asks for a large {over}, another one for a small one",
            hint="accounting time: serial compares with their sum",
        )
    if not bounds and either is not None:
        growth = plain(forms.from_expr(cancelled(1 / (1 - either.over_computing))))
        raise ValuesError(
            f"computing and communication change alike with {over}, so {over} decides nothing: compute bound at every "
            f"{over} where {growth} is at least 1, at none where it is less",
            hint="give numbers for these symbols, or solve for another one (over)",
        )
    met = partial(_met, terms, over)
    if len(groups) > 1:
        terms.setting.choice("time")  # whether the times of several axes add up
    if not bounds:
        text = f"The communication shrinks with computing: it takes less time at every `{over}`."
        return work.define(name, num(0), ONE, "always", text, witness=met), "at_least", found
    kind = next(iter(kinds))
    side, size, extreme = ("≥", "large", Largest) if kind == "at_least" else ("≤", "small", Smallest)
    solved = tuple(b.form for b in bounds if b.form is not None)
    form: Form = extreme(solved) if len(solved) > 1 else solved[0]
    if len(solved) > 1:
        text = "Computing must take at least as long as each communication time."
    elif isinstance(form, Sym) and several:
        text = f"No other communication asks for a {size} `{over}`: compute bound for `{over}` {side} `{name}`."
    else:
        reads = "the sum of the communication times" if adds and len(groups) > 1 else "the communication"
        text = f"Compute bound when computing takes at least as long as {reads}; solve for `{over}`: "
        text += f"`{over}` {side} `{name}`."
    answer = work.define(name, form, ONE, "solve", text, witness=met)
    if isinstance(form, Sym):
        last = next(step for step in reversed(work.steps) if step.name == form.name)
        work.steps.append(Step(name, last.form, ONE, Reason("algebra", "Substitute it."), "="))
    worth = work.known[name]
    if any(s.name == over for s in worth.free_symbols):  # times that were divided by it left it in a sum
        work.known[name] = neat = cancelled(worth)
        work.steps.append(Step(name, work.setting.written(neat), ONE, Reason("algebra", f"`{over}` cancels."), "="))
    return answer, kind, found


def _met(terms: MeshTerms, over: str, numbers: Numbers) -> bool:
    """Whether computing takes as long as the communication at the answer, and longer on the side that is told.

    Raises ``ValuesError`` where no value is enough at these numbers.
    """
    adds = terms.setting.accounting.time != "overlap"
    computing, *sent = map(forms.from_expr, terms.worths)

    def gap(x: Fraction) -> Fraction:
        at = numbers.moved(over, x)
        times = [worked_out(form, at) for form in sent]
        return worked_out(computing, at) - (sum(times, Fraction(0)) if adds else max(times))

    place = next(numbers[name] for name in reversed(numbers) if name.startswith(f"{over}^*"))
    if place == 0:
        return gap(numbers[over]) >= 0
    if place < 0 or gap(place * 1000) <= 0 >= gap(place / 1000):
        raise ValuesError("no value is enough at these numbers")
    return gap(place) == 0


def _growing(sides: Sides, numbers: Numbers) -> Fraction:
    """The quotient of two coefficients, as far as each is a number here."""
    one, other = (worked_out(forms.from_expr(forms.value(side, sides.known)), numbers)
                  for side in (sides.compute, sides.sent) if side is not None)  # fmt: skip
    return one / other


def _alike(gap: Expr, name: str, numbers: Numbers) -> bool:
    """Whether a gap is closed at the number of ranks that was just told."""
    here = next(numbers[n] for n in reversed(numbers) if n.startswith(f"{name}^max"))
    return worked_out(forms.from_expr(gap), numbers.moved(name, here)) == 0


class _Comparison:
    """Computing against a part of the communication, both as functions of one variable."""

    def __init__(self, terms: MeshTerms, over: str, name: str, sent: Sequence[Form], several: bool) -> None:
        self.terms, self.over, self.name, self.sent, self.several = terms, over, name, sent, several
        self.work: StepWriter = terms.work
        symbols = {s.name: s for f in (terms.compute, *sent) for s in terms.worth(f).free_symbols}
        if over not in symbols:
            raise ValuesError(
                f"neither computing nor communication depends on '{over}'", hint=nearest(over, [*symbols])
            )
        self.x, self.sym = symbols[over], Sym(over)

    def bound(self) -> Bound:
        """What the comparison asks of the variable. Raises ``ValuesError`` where no value is enough."""
        powers = [(f, self._powers(f)) for f in (self.terms.compute, *self.sent)]
        exponents = {e for _, found in powers for e in found}
        low = min(exponents)
        if not exponents <= {low, low + 1} or low not in (-1, 0, 1):
            said = ", ".join(map(str, sorted(exponents)))
            raise ValuesError(
                f"the times are no straight line in {self.over}: its powers are {said}", hint="solve for another symbol"
            )
        low = -1 if exponents == {-1} else 0 if exponents <= {0, 1} else low
        higher, lower = (self._sides(powers, e, e + (low == -1)) for e in (low + 1, low))
        if higher.compute is higher.sent or lower.compute is lower.sent:  # one power alone: both change alike
            only = lower if higher.compute is higher.sent else higher
            if only.sign is not None and only.sign < 0:
                raise self._never(only)
            growth = self._growth(only)
            return Bound("always") if only.sign is not None else self._open("either", None, only, growth)
        signs = (higher.sign, lower.sign)
        if None not in signs and (higher.sign or 0) * (lower.sign or 0) >= 0:
            if min(s for s in signs if s is not None) < 0:
                raise self._never(higher)
            return Bound("always")
        if lower.sign == -1:  # at first the communication is longer
            growth = self._growth(higher)
            return self._solved("at_least", lower, higher, higher, growth)
        if higher.sign == -1:  # in the end it is
            return self._solved("at_most", lower, higher, lower, None)
        gaps = [forms.from_expr(sides.gap) for sides in (higher, lower)]
        missing = sorted({n for gap in gaps for n in forms.names(gap)} - self.terms.known.keys())
        raise ValuesError(
            f"numbers decide whether a large or a small {self.over} is compute bound",
            hint=f"give {', '.join(missing)}",
        )

    # -- taking times apart ---------------------------------------------------------------------

    def _powers(self, name: Form) -> dict[int, Expr]:
        """The coefficients of a time by the power of the variable."""
        found = terms(self.terms.worth(name), self.x)
        if found is None or not all(e.is_Integer for e, _ in found):
            raise ValuesError(f"the times are no sum of powers of {self.over}", hint="solve for another symbol")
        return {int(e): c for e, c in found}

    def _sides(self, powers: Sequence[tuple[Form, dict[int, Expr]]], e: int, shift: int) -> Sides:
        """The coefficients of one power on both sides, each under a name."""
        computing = self._named("compute", powers[:1], e, shift, "computing")
        return Sides(computing, self._named(self.name, powers[1:], e, shift, "the communication"), self.terms)

    def _named(
        self, tag: str, found: Sequence[tuple[Form, dict[int, Expr]]], e: int, shift: int, what: str
    ) -> Form | None:
        pieces: list[Form] = []
        for name, powers in found:
            if e in powers:
                alone = {0: name, 1: Ratio(name, self.sym), -1: product(name, self.sym)}
                pieces.append(alone[e] if len(powers) == 1 else self._in_seconds(powers[e]))
        if not pieces or (len(pieces) == 1 and isinstance(pieces[0], Sym)):
            return pieces[0] if pieces else None
        form = pieces[0] if len(pieces) == 1 else Total(tuple(pieces))
        if shift == 1:
            label, text = f"tau_{tag}", f"Time of {what} per additional unit of `{self.over}`."
        elif e == -1:
            label, text = (
                f"s_{tag}",
                (f"The part of the time of {what} that is divided by `{self.over}`, before the division."),
            )
        else:
            label, text = f"t_{tag},fixed", f"The part of the time of {what} that does not depend on `{self.over}`."
        if label in self.work.known and self.work.known[label] == forms.value(form, self.work.known):
            return Sym(label)  # computing is compared with several times
        before = len(self.work.steps)
        made = self.work.define(label, form, SECOND, "split", text)
        first, *again = self.work.steps[before:]
        if again and plain(first.form) == plain(again[0].form):  # only the units of its numbers differ
            self.work.steps.pop()
        return made

    def _in_seconds(self, expr: Expr) -> Form:
        """A part of a time as a form: the rates have their units, and the numbers count operations and bytes."""
        units = {sym.name: sym.unit for sym in self.terms.writer.machine.symbols}
        bare = self.terms.setting.written(expr)
        return in_unit(forms.substitute(bare, lambda s: replace(s, unit=units.get(s.name, s.unit))), SECOND)

    # -- the answer -----------------------------------------------------------------------------

    def _growth(self, sides: Sides) -> Form | None:
        """How many times as fast computing grows, and the degrees above which it does not grow faster."""
        if sides.compute is None or sides.sent is None:
            return None
        growth = self.work.define(
            f"g_{self.name}" if self.several else "g", Ratio(sides.compute, sides.sent), ONE, "growth",
            f"How many times as fast computing grows with `{self.over}` as the communication does.",
            witness=partial(_growing, sides),
        )  # fmt: skip
        for name, worth in sides.limits().items():
            if name != self.over:
                text = f"With fewer ranks a large `{self.over}` is compute bound; with as many or more, none is."
                grows = partial(_alike, sides.gap, name)
                self.work.define(f"{name}^max", forms.from_expr(worth), ONE, "limit", text, witness=grows)
        return growth

    def _solved(self, kind: str, lower: Sides, higher: Sides, decides: Sides, growth: Form | None) -> Bound:
        """The bound where the two sides are equal; ``decides`` has to be positive for there to be one."""
        sense = 1 if kind == "at_least" else -1
        form: Form = Ratio(lower.difference(-sense), higher.difference(sense))
        if self.several:
            text = f"There computing takes as long as `t_{self.name}`."
            form = self.work.define(f"{self.over}_{self.name}", form, ONE, "solve", text)
        return Bound(kind, form) if decides.sign is not None else self._open(kind, form, decides, growth)

    def _open(self, kind: str, form: Form | None, sides: Sides, growth: Form | None) -> Bound:
        """A bound with what has to be true for it, which the signs of the symbols do not tell."""
        equal = kind == "either"
        needs, why = "a positive answer", "the communication alone takes longer"
        if isinstance(growth, Sym):
            needs = f"`{growth.name}` {'at least' if equal else 'above'} 1"
            if isinstance(sides.compute, Sym) and isinstance(sides.sent, Sym):
                needs = f"`{sides.compute.name}` {'≥' if equal else '>'} `{sides.sent.name}`"
            why = f"the communication grows {'faster than' if equal else 'no slower than'} computing does"
        less, more = map(forms.from_expr, sp.fraction(cancelled(1 - sides.over_computing)))
        where = Condition(more, ">=" if equal else ">", less, _NEVER.format(self.over, why))
        told = f"This needs {needs}: otherwise no `{self.over}` is enough."
        return Bound(kind, form, sides, where, told)

    def _never(self, sides: Sides) -> ValuesError:
        reason, terms = "the communication alone takes longer", self.terms
        number = _number(terms, 1 - sides.over_computing) if sides.both else None
        if number is not None:
            times = "as fast" if number == 1 else f"{float(number):.4g} times as fast"
            reason = f"the communication grows {times} with {self.over} as computing does"
        limits = [f"{name} below {float(number):.4g}" for name, worth in sides.limits().items()
                  if (number := _number(terms, worth)) is not None]  # fmt: skip
        fewer = "fewer ranks, more links or a faster network"
        hint = f"some {self.over} is enough with {' or '.join(limits)}" if limits else fewer
        return ValuesError(_NEVER.format(self.over, reason), hint=hint)
