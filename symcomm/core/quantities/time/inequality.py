"""Computing against the communication as functions of one symbol: the inequality between their times, solved.

Both sides are sums of two powers of the symbol. Which side of the solution is compute bound, or whether every or no
value is, follows from the signs of the two differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.derivation import Numbers, Reason, Step, worked_out
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form, Largest, Ratio, Smallest, Sym, Total, negative, num, product
from symcomm.core.optimum.dimension import in_unit
from symcomm.core.printing import plain
from symcomm.core.quantities.time.mesh_terms import MeshTerms
from symcomm.core.quantities.time.terms import SECOND
from symcomm.core.records import dataclass
from symcomm.core.setting import Work
from symcomm.core.units import ONE

if TYPE_CHECKING:
    from sympy import Expr


@dataclass(frozen=True)
class Bound:
    """What one comparison of times asks of the variable.

    ``kind`` is ``at_least``, ``at_most``, ``always`` or ``never``, or ``either`` where it is one of the last two and
    the numbers tell which. ``gap``, over computing, has to be positive (or zero, where ``equal``) for the answer to
    hold; it is None where it always is.
    """

    kind: str
    form: Form | None = None
    gap: Expr | None = None
    growth: Form | None = None
    equal: bool = False
    condition: str = ""
    refusal: str = ""


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
    either = [b for b in found if b.kind == "either"]
    name = f"{over}^*"
    work = terms.work
    if len(kinds) > 1:
        raise ValuesError(
            f"one part of the communication asks for a large {over}, another one for a small one",
            hint="accounting time: serial compares with their sum",
        )
    if not bounds and either:
        growth = next(b.growth for b in either)
        said = _said(terms, growth)
        raise ValuesError(
            f"computing and communication change alike with {over}, so {over} decides nothing: compute bound at every "
            f"{over} where {said} is at least 1, at none where it is less",
            hint="give numbers for these symbols, or solve for another one (over)",
        )
    if not bounds:
        text = f"No part of the communication stays while computing shrinks: it takes less time at every `{over}`."
        return work.define(name, num(0), ONE, "always", text, witness=partial(_met, terms, over)), "at_least", found
    kind = next(iter(kinds))
    side = "≥" if kind == "at_least" else "≤"
    reads = "the sum of the communication times" if adds and len(groups) > 1 else "the communication"
    solved = [b.form for b in bounds if b.form is not None]
    if several and len(solved) > 1:
        form: Form = Largest(tuple(solved)) if kind == "at_least" else Smallest(tuple(solved))
        text = "Computing has to be at least as long as each of the communication times."
    else:
        form = solved[0]
        text = f"Computing takes no less than {reads}, solved for `{over}`: compute bound for `{over}` {side} `{name}`."
    if isinstance(form, Sym) and several:
        size = "large" if kind == "at_least" else "small"
        text = f"No other communication asks for a {size} `{over}`: compute bound for `{over}` {side} `{name}`."
    answer = work.define(name, form, ONE, "solve", text, witness=partial(_met, terms, over))
    if isinstance(form, Sym):
        last = next(step for step in reversed(work.steps) if step.name == form.name)
        work.steps.append(Step(name, last.form, ONE, Reason("algebra", "Put it in."), "="))
    _without(work, name, over)
    return answer, kind, found


def _without(work: Work, name: str, over: str) -> None:
    """Takes the variable out of the answer, where times that were divided by it left it in a sum."""
    import sympy as sp

    worth = work.known[name]
    if any(s.name == over for s in worth.free_symbols):
        neat = sp.cancel(worth)
        work.known[name] = neat
        form = work.setting.written(neat)
        work.steps.append(Step(name, form, ONE, Reason("algebra", f"`{over}` cancels."), "="))


def _growing(sides: _Sides, over: str, numbers: Numbers) -> Fraction:
    """The quotient of two coefficients, as far as each is a number here."""
    one, other = (worked_out(forms.from_expr(forms.value(side, sides.known)), numbers)
                  for side in (sides.compute, sides.sent) if side is not None)  # fmt: skip
    return one / other


def _alike(gap: Expr, name: str, numbers: Numbers) -> bool:
    """Whether a gap is closed at the number of ranks that was just told."""
    here = next(numbers[n] for n in reversed(numbers) if n.startswith(f"{name}^max"))
    return worked_out(forms.from_expr(gap), numbers.moved(name, here)) == 0


def _met(terms: MeshTerms, over: str, numbers: Numbers) -> bool:
    """Whether computing takes as long as the communication at the answer, and longer on the side that is told.

    Raises ``ValuesError`` where no value is enough at these numbers.
    """
    adds = terms.setting.accounting.time != "overlap"
    computing, *sent = (forms.from_expr(terms.work.known[f.name])  # type: ignore[attr-defined]
                        for f in (terms.compute, *terms.sent.values()))  # fmt: skip

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


_NEVER = "no {} is ever enough for computing to be the longer part: {}"


class _Comparison:
    """Computing against a part of the communication, both as functions of one variable."""

    def __init__(self, terms: MeshTerms, over: str, name: str, sent: Sequence[Form], several: bool) -> None:
        self.terms, self.over, self.name, self.sent, self.several = terms, over, name, sent, several
        self.work = terms.work
        every = [self.work.known[f.name] for f in (terms.compute, *sent)]  # type: ignore[attr-defined]
        symbols = {s.name: s for e in every for s in e.free_symbols}
        if over not in symbols:
            raise ValuesError(
                f"neither computing nor communication depends on '{over}'", hint=nearest(over, [*symbols])
            )
        self.x, self.sym = symbols[over], Sym(over)

    def bound(self) -> Bound:
        """What the comparison asks of the variable. Raises ``ValuesError`` where no value is enough."""
        over = self.over
        computing = self._powers(self.terms.compute)
        sending = [(f, self._powers(f)) for f in self.sent]
        exponents = {*computing, *(e for _, p in sending for e in p)}
        low = min(exponents)
        if not exponents <= {low, low + 1} or low not in (-1, 0, 1):
            said = ", ".join(map(str, sorted(exponents)))
            raise ValuesError(
                f"the times are no straight line in {over}: its powers are {said}", hint="solve for another symbol"
            )
        low = -1 if exponents == {-1} else 0 if exponents <= {0, 1} else low
        times_x = low == -1
        higher = self._sides(computing, sending, low + 1, times_x)
        lower = self._sides(computing, sending, low, times_x)
        gap_high, gap_low = (side.worth for side in (higher, lower))
        way_high, way_low = self._sign(gap_high), self._sign(gap_low)
        if not higher.terms or not lower.terms:  # both change alike
            only, way = (higher, way_high) if higher.terms else (lower, way_low)
            if way is None:
                return self._open("either", None, only.part, self._growth(only))
            if way < 0:
                raise self._never(only)
            self._growth(only)
            return Bound("always")
        if way_high is not None and way_low is not None and way_high * way_low >= 0:
            if way_high < 0 or way_low < 0:
                raise self._never(higher)
            return Bound("always")
        if way_low is not None and way_low < 0:  # at first the communication is longer
            growth = self._growth(higher)
            return self._solved("at_least", lower, higher, None if way_high else higher.part, growth)
        if way_high is not None and way_high < 0:  # in the end it is
            return self._solved("at_most", lower, higher, None if way_low else lower.part, None)
        raise self._undecided((gap_high, gap_low))

    # -- taking times apart ---------------------------------------------------------------------

    def _powers(self, name: Form) -> dict[int, Expr]:
        """The coefficients of a time by the power of the variable."""
        import sympy as sp

        found: dict[int, list[Expr]] = {}
        expr = self.work.known[name.name]  # type: ignore[attr-defined]
        for term in sp.Add.make_args(sp.expand(expr)):
            rest, power = term.as_independent(self.x, as_Add=False)
            base, exponent = power.as_base_exp()
            if power != 1 and (base != self.x or not exponent.is_Integer):
                raise ValuesError(f"the times are no sum of powers of {self.over}", hint="solve for another symbol")
            found.setdefault(0 if power == 1 else int(exponent), []).append(rest)
        return {e: sp.Add(*terms) for e, terms in found.items()}

    def _sides(
        self, computing: dict[int, Expr], sending: list[tuple[Form, dict[int, Expr]]], e: int, times_x: bool
    ) -> _Sides:
        """The coefficients of one power on both sides, each under a name."""
        shift = e + 1 if times_x else e
        first = self._named("compute", [(self.terms.compute, computing)], e, shift, "computing")
        second = self._named(self.name, sending, e, shift, "the communication")
        return _Sides(first, second, self.work.known)

    def _named(
        self, tag: str, found: Sequence[tuple[Form, dict[int, Expr]]], e: int, shift: int, what: str
    ) -> Form | None:
        pieces: list[Form] = []
        for name, powers in found:
            if e not in powers:
                continue
            if len(powers) == 1:
                part = {0: name, 1: Ratio(name, self.sym), -1: product(name, self.sym)}[e]
            else:
                part = self._in_seconds(powers[e])
            pieces.append(part)
        if not pieces:
            return None
        if len(pieces) == 1 and isinstance(pieces[0], Sym):
            return pieces[0]
        form = pieces[0] if len(pieces) == 1 else Total(tuple(pieces))
        if shift == 1:
            label, text = f"tau_{tag}", f"What each of `{self.over}` adds to the time of {what}."
        elif e == -1:
            label, text = f"s_{tag}", f"The part of the time of {what} that `{self.over}` divides, as a whole."
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

    def _growth(self, sides: _Sides) -> Form | None:
        """How many times as fast computing grows, and the degrees above which it does not grow faster."""
        if sides.compute is None or sides.sent is None:
            return None
        growth = self.work.define(
            f"g_{self.name}" if self.several else "g", Ratio(sides.compute, sides.sent), ONE, "growth",
            f"How many times as fast computing grows with `{self.over}` as the communication does.",
            witness=partial(_growing, sides, self.over),
        )  # fmt: skip
        for size in self.terms.strategy.sizes.values():
            if isinstance(size, Sym) and size.name != self.over:
                limit = _limit(sides.worth, forms.value(size))
                if limit is not None:
                    text = f"With fewer ranks a large `{self.over}` is compute bound; with as many or more, none is."
                    grows = partial(_alike, sides.worth, size.name)
                    self.work.define(f"{size.name}^max", forms.from_expr(limit), ONE, "limit", text, witness=grows)
        return growth

    def _solved(self, kind: str, lower: _Sides, higher: _Sides, gap: Expr | None, growth: Form | None) -> Bound:
        """The bound where the two sides are equal."""
        if kind == "at_least":
            top, bottom = lower.difference(-1), higher.difference(1)
        else:
            top, bottom = lower.difference(1), higher.difference(-1)
        form: Form = Ratio(top, bottom)
        if self.several:
            text = f"There computing takes as long as `t_{self.name}`."
            form = self.work.define(f"{self.over}_{self.name}", form, ONE, "solve", text)
        return self._open(kind, form, gap, growth) if gap is not None else Bound(kind, form)

    def _open(self, kind: str, form: Form | None, gap: Expr, growth: Form | None) -> Bound:
        """A bound with what has to be true for it, which the signs of the symbols do not tell."""
        equal = kind == "either"
        if isinstance(growth, Sym):
            least = "at least" if equal else "above"
            ratio = next(step.form for step in self.work.steps if step.name == growth.name)
            needs = f"`{growth.name}` {least} 1"
            if isinstance(ratio, Ratio) and isinstance(ratio.top, Sym) and isinstance(ratio.bottom, Sym):
                needs = f"`{ratio.top.name}` {'≥' if equal else '>'} `{ratio.bottom.name}`"
            condition = f"This needs {needs}: otherwise no `{self.over}` is enough."
            why = f"the communication grows {'faster than' if equal else 'no slower than'} computing does"
        else:
            condition = f"This needs a positive answer: otherwise no `{self.over}` is enough."
            why = "the communication alone takes longer"
        return Bound(kind, form, gap, growth, equal, condition, _NEVER.format(self.over, why))

    # -- signs ----------------------------------------------------------------------------------

    def _sign(self, expr: Expr) -> int | None:
        number = self._number(expr)
        if number is not None:
            return (number > 0) - (number < 0)
        return _sign_of(expr)

    def _number(self, expr: Expr) -> Fraction | None:
        form = forms.from_expr(expr)
        known = self.terms.known
        return forms.evaluate(form, known) if {*forms.names(form)} <= known.keys() else None

    def _never(self, sides: _Sides) -> ValuesError:
        over = self.over
        reason = "the communication alone takes longer"
        if sides.compute is not None and sides.sent is not None:
            ratio = forms.value(sides.sent, self.work.known) / forms.value(sides.compute, self.work.known)
            number = self._number(ratio)
            if number is not None:
                reason = f"the communication grows {float(number):.4g} times as fast with {over} as computing does"
                reason = reason if number != 1 else f"the communication grows as fast with {over} as computing does"
        limits = [
            f"{size.name} below {float(number):.4g}"
            for size in self.terms.strategy.sizes.values()
            if isinstance(size, Sym) and (limit := _limit(sides.worth, forms.value(size))) is not None
            and (number := self._number(limit)) is not None
        ]  # fmt: skip
        hint = (
            f"some {over} is enough with {' or '.join(limits)}"
            if limits
            else "fewer ranks, more links or a faster network"
        )
        return ValuesError(_NEVER.format(over, reason), hint=hint)

    def _undecided(self, gaps: Sequence[Expr]) -> ValuesError:
        missing = sorted({n for gap in gaps for n in forms.names(forms.from_expr(gap))} - self.terms.known.keys())
        return ValuesError(
            f"whether a large or a small {self.over} is compute bound hangs on numbers",
            hint=f"give {', '.join(missing)}",
        )


@dataclass(frozen=True)
class _Sides:
    """The coefficients of one power of the variable: of computing and of what is sent, None where there is none."""

    compute: Form | None
    sent: Form | None
    known: dict[str, Expr]

    @property
    def terms(self) -> tuple[Form, ...]:
        return tuple(f for f in (self.compute, self.sent) if f is not None)

    @property
    def worth(self) -> Expr:
        """Computing less what is sent."""
        import sympy as sp

        first, second = (sp.Integer(0) if f is None else forms.value(f, self.known) for f in (self.compute, self.sent))
        return sp.expand(first - second)

    @property
    def part(self) -> Expr:
        """The same over computing: factors of both, which the answer need not have, cancel."""
        assert self.compute is not None
        return cancelled(self.worth / forms.value(self.compute, self.known))

    def difference(self, sense: int) -> Form:
        """Computing less what is sent, or (``sense`` -1) the other way round, as it is written."""
        first, second = (self.compute, self.sent) if sense > 0 else (self.sent, self.compute)
        parts = [*([first] if first is not None else []), *([negative(second)] if second is not None else [])]
        return parts[0] if len(parts) == 1 else Total(tuple(parts))


@lru_cache(maxsize=1024)  # the same expressions are compared under other conventions and numbers
def _sign_of(expr: Expr) -> int | None:
    """The sign that the symbols of an expression tell, which are positive."""
    import sympy as sp

    if expr.is_zero:
        return 0
    for way in (expr, sp.factor_terms(sp.together(expr))):  # X - 1 is a sign, X/N - 1/N is none
        if way.is_nonnegative or way.is_nonpositive:
            return 1 if way.is_nonnegative else -1
    return None


@lru_cache(maxsize=1024)
def cancelled(expr: Expr) -> Expr:
    """One fraction of polynomials without common factors."""
    import sympy as sp

    return sp.cancel(expr)


@lru_cache(maxsize=1024)
def _limit(gap: Expr, size: Expr) -> Expr | None:
    """The size at which a gap closes that is open below it; None where it is no straight line that falls."""
    import sympy as sp

    top = sp.expand(sp.numer(sp.together(gap)))
    if not top.is_polynomial(size) or sp.degree(top, size) != 1:
        return None
    slope, rest = sp.Poly(top, size).all_coeffs()
    return sp.cancel(-rest / slope) if slope.is_negative and rest.is_positive else None


def _said(terms: MeshTerms, growth: Form | None) -> str:
    assert growth is not None
    return plain(forms.from_expr(terms.work.known[growth.name]))  # type: ignore[attr-defined]
