"""Two times as functions of one name: from which value on the first is at least as long as the second, with the steps.

Times of the same two neighbouring powers are split into them, as one solves by hand; all others are solved at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial

from symcomm.core import form as forms
from symcomm.core.derivation import Condition
from symcomm.core.form import Form, Product, Ratio, Sym, Total, negative, product, total
from symcomm.core.libraries import Expr, Symbol, sp
from symcomm.core.optimum.dimension import in_unit
from symcomm.core.optimum.equality import Reached, above_zero, meeting, meets
from symcomm.core.optimum.powers import has_both_signs, sign, terms
from symcomm.core.patience import patience, trying
from symcomm.core.printing import plain
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import StepWriter
from symcomm.core.units import ONE, Unit

_SECOND = Unit.parse("second")
_Powers = dict[Form, dict[int, "Expr"]]  # the coefficients of times by the power of the name
_PARTS = {  # by the power of the name: the part that grows, that stays, that shrinks
    1: ("tau_{}", "Time of {} per additional unit of `{}`."),
    0: ("t_{},fixed", "The part of the time of {} that does not depend on `{}`."),
    -1: ("s_{}", "The part of the time of {} that is divided by `{}`, before the division."),
}


@dataclass(frozen=True)
class ComparedTime:
    """One of two times: its mark in the names of steps, its words in their reasons, and the steps that add up to it."""

    tag: str
    words: str
    parts: tuple[Form, ...]


@dataclass(frozen=True)
class _Power:
    """The coefficients of one power of the name in both times, and the sign of their difference.

    ``told`` says that the given numbers decide about it.
    """

    power: int
    worth: tuple[Expr, Expr]
    gap: Expr
    sign: int | None
    told: bool


class Comparison:
    """Two times over one name, which has no number here; ``rates`` are the symbols with units, and their numbers."""

    def __init__(
        self, work: StepWriter, x: Symbol, first: ComparedTime, second: ComparedTime, rates: Iterable[Sym],
        given: Iterable[tuple[str, Fraction]],
    ) -> None:  # fmt: skip
        self.work, self.x, self.first, self.second = work, x, first, second
        self.known = {n: v for n, v in {**work.setting.values, **dict(given)}.items() if n != x.name}
        self.units = {rate.name: rate.unit for rate in rates}
        self.unit = self.units.get(x.name, ONE)

    def worth(self, side: ComparedTime) -> Expr:
        """The value of a side, in symbols."""
        return sp.Add(*(forms.value(part, self.work.known) for part in side.parts))

    def powers(self, side: ComparedTime) -> _Powers:
        """The coefficients of each time by the power of the name; none where a time is no sum of such powers.

        A time whose definition adds up terms of one power each is taken as these terms.
        """
        made: dict[Form, Form] = {Sym(step.name): step.form for step in self.work.steps if step.relation == ":="}
        found: _Powers = {}
        for part in side.parts:
            form = made.get(part)
            whole = self._terms(part)
            opened = {one: self._terms(one) for one in (form.terms if isinstance(form, Total) else ())}
            is_sum = opened and len(whole) > 1 and all(len(one) == 1 for one in opened.values())
            found |= opened if is_sum else {part: whole}
        return found if all(found.values()) else {}

    def _terms(self, part: Form) -> dict[int, Expr]:
        found = terms(forms.value(part, self.work.known), self.x)
        known = found is not None and all(e.is_Integer for e, _ in found)
        return {int(e): c for e, c in found or ()} if known else {}

    def solve(self) -> Reached:
        """Where the first is at least the second; writes down the parts that both are split into.

        Raises ``ValuesError`` where times that cannot be split are equal nowhere, at several values, or not for sure.
        """
        one, other = self.first.words, self.second.words
        what = f"the search for the {self.x} at which {one} and {other} take equally long"
        with patience(what, "give numbers for other names", crossing=True):
            return self._solved()

    def _solved(self) -> Reached:
        trying(f"the powers of {self.x} in both times")
        gap = self.worth(self.first) - self.worth(self.second)
        sides = [self.powers(side) for side in (self.first, self.second)]
        exponents = {e for side in sides for found in side.values() for e in found}
        low = -1 if -1 in exponents else 0
        if not all(sides) or not exponents <= {low, low + 1}:
            return meeting(gap, self.x, self.known, (self.first.tag, self.second.tag))
        higher, lower = (self._power(e, sides) for e in (low + 1, low))
        signs = [power.sign for power in (higher, lower) if power.gap != 0]
        if len(signs) < 2 and None in signs:
            only = higher if higher.gap != 0 else lower
            found = Reached("either", compared=only.worth)
            less, more = map(forms.from_expr, sp.fraction(found.ratio))
            return replace(found, where=Condition(more, ">=", less))
        if len(signs) < 2 or signs in ([1, 1], [-1, -1]):
            decides = lower if 0 in higher.worth else higher
            return Reached("never" if -1 in signs else "always", compared=decides.worth)
        (one, other), (slope, other_slope) = self._names(sides, lower), self._names(sides, higher)
        sense = -1 if higher.sign == -1 or lower.sign == 1 or (signs == [None, None] and other is None) else 1
        kind = "at_least" if lower.sign == -1 else "at_most" if higher.sign == -1 else ""
        form = Ratio(_less(one, other, -sense), _less(slope, other_slope, sense))
        told = higher.told and lower.told  # two numbers of different signs: nothing is left to be held
        where = None if told else above_zero(-lower.gap / higher.gap, self.x, self.known)
        rises = None if signs == [None, None] else sense == 1
        return Reached(kind, form, rises, where, (higher if sense == 1 else lower).worth)

    def define(self, name: str, reached: Reached, rule: str, text: str) -> Form:
        """The step that says where both are equal."""
        assert reached.form is not None
        gap = forms.from_expr(self.worth(self.first) - self.worth(self.second))
        witness = partial(meets, gap, self.x.name, False, name)
        return self.work.define(name, reached.form, self.unit, rule, text, witness=witness)

    # -- taking times apart ---------------------------------------------------------------------

    def _power(self, e: int, sides: Sequence[_Powers]) -> _Power:
        """What goes with one power."""
        one, other = (sp.Add(*(found.get(e, 0) for found in side.values())) for side in sides)
        gap = sp.expand(one - other)
        told = {s.name for s in gap.free_symbols} <= self.known.keys()
        if told:
            number = forms.evaluate(forms.from_expr(gap), self.known)
        way = (number > 0) - (number < 0) if told else _sign(gap)
        return _Power(e, (one, other), sp.Integer(0) if way == 0 else gap, way, told)

    def _names(self, sides: Sequence[_Powers], of: _Power) -> list[Form | None]:
        """The coefficients of one power under names, None where there is none."""
        return [self._named(side, of.power, parts, worth)
                for side, parts, worth in zip((self.first, self.second), sides, of.worth, strict=True)]  # fmt: skip

    def _named(self, side: ComparedTime, e: int, parts: _Powers, worth: Expr) -> Form | None:
        pieces = [self._piece(part, e, found) for part, found in parts.items() if e in found]
        if len(pieces) < 2 and all(isinstance(piece, Sym) for piece in pieces):
            return pieces[0] if pieces else None
        label, text = (said.format(*words) for said, words in zip(
            _PARTS[e], ((side.tag,), (side.words, self.x.name)), strict=True))  # fmt: skip
        if self.work.known.get(label) == worth:
            return Sym(label)  # one time is compared with several
        before = len(self.work.steps)
        made = self.work.define(label, total(*pieces), _SECOND / self.unit**e, "split", text)
        first, *again = self.work.steps[before:]
        if again and plain(first.form) == plain(again[0].form):  # only the units of its numbers differ
            self.work.steps.pop()
        self.work.known[first.name] = worth  # without the name: what was divided by it may have left it in a sum
        return made

    def _piece(self, part: Form, e: int, found: Mapping[int, Expr]) -> Form:
        """The part of a time that goes with a power, multiplied out."""
        if len(found) > 1 or found[e].has(sp.Min, sp.Max):  # which no division by the name would leave
            bare = self.work.setting.written(found[e])
            units = {**self.units, self.x.name: self.unit}
            named = forms.substitute(bare, lambda s: replace(s, unit=units.get(s.name, s.unit)))
            return in_unit(named, _SECOND / self.unit**e)
        if e != -1:
            return part if e == 0 else Ratio(part, self._x)
        form = next((step.form for step in self.work.steps if Sym(step.name) == part), part)
        if isinstance(form, Ratio):  # bytes over the bandwidth that is looked for: the bytes
            below = form.bottom.factors if isinstance(form.bottom, Product) else (form.bottom,)
            others = [factor for factor in below if not (isinstance(factor, Sym) and factor.name == self.x.name)]
            if len(others) < len(below):
                return Ratio(form.top, product(*others)) if others else form.top
        return product(part, self._x)

    @property
    def _x(self) -> Sym:
        return Sym(self.x.name, bool(self.x.is_integer), self.unit)


@lru_cache(maxsize=1024)
def _sign(gap: Expr) -> int | None:
    found = sign(gap)
    if found is not None or has_both_signs(gap):
        return found
    factored = sp.factor(gap)
    return 1 if factored.is_nonnegative else -1 if factored.is_nonpositive else None


def _less(one: Form | None, other: Form | None, sense: int) -> Form:
    """One less the other (``sense`` 1), or the other way round."""
    first, second = (one, other)[::sense]
    return total(*([] if first is None else [first]), *([] if second is None else [negative(second)]))
