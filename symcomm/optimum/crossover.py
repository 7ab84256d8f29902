"""Where one cost overtakes another: the payload, rank count or bandwidth at which two derivations are equal.

Solved symbolically where the difference is a polynomial of degree 1 or 2 in the variable; otherwise bracketed exactly,
by a scan of whole numbers or by bisection with fractions. No float takes part in a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from symcomm import form as forms
from symcomm.accounting import Accounting
from symcomm.derivation import Derivation, Exhibit, Reason, Relations, Step, exact
from symcomm.errors import AccountingError, DerivationError, ValuesError, nearest
from symcomm.form import Form, Num, Sym, Total, negative
from symcomm.notation import Notation
from symcomm.units import ONE, Quantity, Unit

if TYPE_CHECKING:
    from sympy import Expr, Symbol

_SCAN = 5000  # so many whole numbers are tried one by one; a wider range on a grid
_PER_OCTAVE = 8
_FINE = Fraction(1, 2**40)  # relative width of a bracket of a number that need not be whole


@dataclass(frozen=True)
class Crossing:
    """One place where the sign of the difference changes: between ``low`` and ``high``, which are equal where exact."""

    low: Fraction
    high: Fraction

    @property
    def exact(self) -> bool:
        """Whether both costs are equal there."""
        return self.low == self.high


@dataclass(frozen=True)
class Crossovers:
    """All crossings of two costs in a range, and which of them is less between the crossings (-1, 0 or 1)."""

    over: str
    between: tuple[Fraction, Fraction]
    crossings: tuple[Crossing, ...]
    less: tuple[int, ...]
    derivation: Derivation


def crossover(
    a: Derivation,
    b: Derivation,
    over: str,
    between: tuple[object, object] | None = None,
    compared: Iterable[str] = ("algorithm",),
) -> Derivation:
    """The value of ``over`` at which two costs are equal, with steps; see ``crossovers``."""
    return crossovers(a, b, over, between, compared).derivation


def crossovers(
    a: Derivation,
    b: Derivation,
    over: str,
    between: tuple[object, object] | None = None,
    compared: Iterable[str] = ("algorithm",),
) -> Crossovers:
    """Every value of ``over`` in a range at which one of two costs overtakes the other.

    A value of ``over`` that the derivations were given is not used. Without ``between`` the range is 2 to 4096 for a
    whole number without a unit, 1 to 2^60 for one with a unit, and 2^-60 to 2^60 for any other amount. Raises
    ``AccountingError`` where the two are counted differently in another field than ``compared``, ``ValuesError`` where
    ``over`` appears in neither or numbers are missing that would decide.

    >>> from symcomm.form import product
    >>> def cost(title, form):
    ...     return Derivation(title, Accounting(), (Step("T", form, ONE, Reason("given", "A test.")),))
    >>> flat, steep = cost("flat", Total((Sym("a"), Sym("n")))), cost("steep", product(forms.num(3), Sym("n")))
    >>> crossover(flat, steep, "n").expr
    a/2
    """
    accounting = _comparable(a, b, tuple(compared))
    pair = _Pair.of(a, b, over)
    low, high = _range(pair, between)
    given = {name: value for name, value in pair.given.items() if name != over}
    missing = [name for name in pair.names if name not in given and name != over]
    steps = pair.first_steps()
    solved = pair.solution()
    crossings: tuple[Crossing, ...] = ()
    less: tuple[int, ...] = ()
    notes: list[str] = []
    exhibits: tuple[Exhibit, ...] = ()
    if not missing:
        sign = pair.sign(given)
        crossings = _exact_roots(pair, given, low, high)
        if crossings is _UNKNOWN:
            crossings = tuple(_search(sign, low, high, pair.whole))
        less = _between(sign, crossings, low, high, pair.whole)
        crossings, less = _real(crossings, less)
        exhibits = (_table(pair, crossings, less, low, high),)
        if not crossings:
            steps = steps[:2] + steps[3:]  # the equation has no solution to be found
            notes.append(_always(pair, less[0], low, high, given))
    elif solved is None:
        raise ValuesError(
            f"the crossover over {over} has no closed form, and {', '.join(missing)} have no value",
            hint=f"give {missing[0]} a value",
        )
    if solved is not None and (missing or len(crossings) == 1):
        steps += pair.solved(solved)
        if missing:
            notes.append(pair.sides(solved))
    elif crossings:
        steps += pair.bracketed(crossings)
    if len(crossings) > 1:
        notes.append(f"They cross {len(crossings)} times; the last crossing is the answer above, all are in the table.")
    derivation = Derivation(
        f"Crossover of {pair.titles[0]} and {pair.titles[1]} over {over}", accounting, tuple(steps),
        tuple(dict.fromkeys(f for f in (*a.touched, *b.touched) if f not in pair.differing)), pair.relations, exhibits,
        tuple(given.items()), pair.notation, (*pair.differences(), *notes),
    )  # fmt: skip
    return Crossovers(over, (low, high), crossings, less, derivation)


_UNKNOWN: tuple[Crossing, ...] = (Crossing(Fraction(-1), Fraction(-1)),)


def _comparable(a: Derivation, b: Derivation, compared: tuple[str, ...]) -> Accounting:
    for name in dict.fromkeys((*a.touched, *b.touched)):
        mine, theirs = getattr(a.accounting, name), getattr(b.accounting, name)
        if mine != theirs and name not in compared:
            raise AccountingError(
                f"'{a.title}' is counted under {name}: {mine}, but '{b.title}' under {name}: {theirs}",
                hint=f"derive both under one accounting, or compare them over it: compared=['{name}']",
            )
    if a.unit != b.unit:
        raise AccountingError(f"'{a.title}' is in {a.unit}, but '{b.title}' is in {b.unit}")
    return a.accounting


@dataclass(frozen=True)
class _Pair:
    """Two costs in one variable."""

    a: Derivation
    b: Derivation
    over: str
    variable: Symbol
    units: dict[str, Unit]
    given: dict[str, Fraction]
    relations: Relations
    cache: dict[str, Form] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, a: Derivation, b: Derivation, over: str) -> _Pair:
        relations = Relations(tuple((dict(a.relations.equations) | dict(b.relations.equations)).items()))
        symbols = {s.name: s for d in (a, b) for s in d.expr.free_symbols}
        if over not in symbols:
            raise ValuesError(f"neither cost depends on '{over[:40]}'", hint=nearest(over, [*symbols]))
        units = {
            piece.name: piece.unit
            for d in (a, b) for step in d.steps for piece in forms.walk(step.form)
            if isinstance(piece, Sym) and piece.unit != ONE
        }  # fmt: skip
        given = dict(a.given)
        for name, value in b.given:
            if given.setdefault(name, value) != value and name != over:
                raise ValuesError(f"{name} is {given[name]} in '{a.title}', but {value} in '{b.title}'")
        return cls(a, b, over, symbols[over], units, given, relations)

    @property
    def titles(self) -> tuple[str, str]:
        """What the two are called; told apart where their titles are equal."""
        one, two = (t[:1].lower() + t[1:] if t[1:2].islower() else t for t in (self.a.title, self.b.title))
        return (one, two) if one != two else (f"{one} (first)", f"{two} (second)")

    @property
    def differing(self) -> tuple[str, ...]:
        """The conventions in which they differ."""
        touched = dict.fromkeys((*self.a.touched, *self.b.touched))
        return tuple(f for f in touched if getattr(self.a.accounting, f) != getattr(self.b.accounting, f))

    def differences(self) -> tuple[str, ...]:
        """What is compared, as sentences."""
        return tuple(
            f"Compared: {f} {getattr(self.a.accounting, f)} with {getattr(self.b.accounting, f)}."
            for f in self.differing
        )

    @property
    def whole(self) -> bool:
        """Whether the variable is a whole number."""
        return bool(self.variable.is_integer)

    @property
    def difference(self) -> Expr:
        """The first cost less the second."""
        return self.a.expr - self.b.expr

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols of both."""
        return tuple(dict.fromkeys(s.name for d in (self.a, self.b) for s in _ordered(d.expr)))

    @property
    def notation(self) -> Notation:
        """The names of both."""
        one, two = self.a.notation, self.b.notation
        return Notation({**two.latex, **one.latex}, {**two.meanings, **one.meanings})

    def free(self, name: str) -> str:
        """A step's name that is no symbol."""
        while name in self.names:
            name += "'"
        return name

    def dressed(self, form: Form, unit: Unit) -> tuple[Form, Unit]:
        """A form with the units of its symbols, and its unit; none where a unit was said by a step only."""
        named = forms.substitute(form, lambda s: Sym(s.name, s.whole, self.units.get(s.name, ONE)))
        try:
            found = forms.unit_of(named, {})
        except DerivationError:
            return form, ONE
        return (named, unit) if found == unit or (unit / found).is_count else (form, ONE)

    def first_steps(self) -> list[Step]:
        """Both costs, and their difference."""
        (one, unit_one), (two, unit_two) = (
            self.dressed(d.answer_form(), d.unit) for d in (_Closed(self.a), _Closed(self.b))
        )
        unit = self.a.unit if unit_one == unit_two == self.a.unit else ONE
        said = "" if unit != ONE else f", in {self.a.unit}"
        x, y, d = (self.free(name) for name in ("X_1", "X_2", "X_diff"))
        return [
            Step(x, one, unit, Reason("first cost", f"{self.titles[0]}{said}.")),
            Step(y, two, unit, Reason("second cost", f"{self.titles[1]}{said}.")),
            Step(
                d, Total((Sym(x), negative(Sym(y)))), unit, Reason("difference", "Both are equal where this is zero.")
            ),
        ]

    def sign(self, given: dict[str, Fraction]) -> Callable[[Fraction], int]:
        """The sign of the difference at a value of the variable, exactly."""
        one, two = forms.from_expr(self.a.expr), forms.from_expr(self.b.expr)

        def at(x: Fraction) -> int:
            values = self.relations.complete({**given, self.over: x})
            gap = forms.evaluate(one, values) - forms.evaluate(two, values)
            return (gap > 0) - (gap < 0)

        return at

    def polynomial(self) -> list[Expr] | None:
        """The coefficients of the difference's numerator, highest power first; None where it is no polynomial."""
        import sympy as sp

        x = self.variable
        top, _ = sp.fraction(sp.together(self.difference))
        top = sp.expand(top)
        if not top.is_polynomial(x):
            return None
        found: list[Expr] = sp.Poly(top, x).all_coeffs()
        while len(found) > 1 and found[-1] == 0:  # a factor x has no positive root
            found.pop()
        return found

    def solution(self) -> Expr | None:
        """The positive solution as an expression, where it has one form for all values."""
        import sympy as sp

        found = self.polynomial()
        if found is None:
            return None
        if len(found) == 2:
            root = _readable(sp.together(-found[1] / found[0]))
            return None if root.is_nonpositive else root
        if len(found) == 3:
            p, q, r = found
            if (p.is_positive and r.is_negative) or (p.is_negative and r.is_positive):
                # Roots of different signs: exactly one is positive.
                if p.is_negative:
                    p, q, r = -p, -q, -r
                return (-q + sp.sqrt(sp.expand(q**2 - 4 * p * r))) / (2 * p)
        return None

    def solved(self, root: Expr) -> list[Step]:
        """The steps that name the solution."""
        left = self.difference.subs(self.variable, root)
        import sympy as sp

        if sp.cancel(sp.together(sp.expand(left))) != 0:
            raise DerivationError(f"{root} does not make {self.titles[0]} and {self.titles[1]} equal")
        form, unit = self.dressed(forms.from_expr(root), self.units.get(self.over, ONE))
        text = "Set the difference to zero and solve for it."
        return [Step(self.free(f"{self.over}_cross"), form, unit, Reason("solve", text))]

    def sides(self, root: Expr) -> str:
        """Which cost is less on which side of a symbolic solution."""
        coefficients = self.polynomial() or []
        slope = coefficients[0] if coefficients else None
        first, second = self.titles
        if slope is not None and slope.is_positive:
            return f"Below the crossover {first} is less, above it {second}."
        if slope is not None and slope.is_negative:
            return f"Below the crossover {second} is less, above it {first}."
        return (
            f"Where the crossover is positive, the costs change places there; where it is not, one of {first} and "
            f"{second} is less for every {self.over}. Which one, the other numbers decide."
        )

    def bracketed(self, crossings: Sequence[Crossing]) -> list[Step]:
        """The steps that name crossings found by search."""
        unit = self.units.get(self.over, ONE)
        steps = []
        for i, c in enumerate(crossings, 1):
            tag = f"{self.over}_cross" + (f",{i}" if len(crossings) > 1 else "")
            if c.exact:
                text = "Both costs are exactly equal there."
            elif self.whole:
                text = (
                    f"The first whole number on the other side: at {c.low} the sign of the difference is still another."
                )
            else:
                text = f"Bisection with exact fractions: the sign changes between {float(c.low):.9g} and this value."
            steps.append(Step(self.free(tag), Num(c.high, unit), unit, Reason("bracket", text)))
        return steps


@dataclass(frozen=True)
class _Closed:
    """A derivation whose answer is written in symbols alone."""

    derivation: Derivation

    @property
    def unit(self) -> Unit:
        return self.derivation.unit

    def answer_form(self) -> Form:
        """The answer as it is written, where no step is named in it; its value otherwise."""
        form = self.derivation.answer.form
        steps = {step.name for step in self.derivation.steps}
        return form if not steps & {*forms.names(form)} else forms.from_expr(self.derivation.expr)


def _readable(root: Expr) -> Expr:
    """A fraction whose parts are positive where all its symbols are large: minus over minus is taken away."""
    import sympy as sp

    top, bottom = sp.fraction(root)
    point = {s: 997 + 2 * i for i, s in enumerate(_ordered(root))}
    if not bottom.subs(point).is_negative:
        return root
    # The minus goes into a sum, so that (1 - k) / -3 becomes (k - 1) / 3.
    factors = list(sp.Mul.make_args(top))
    i = next((i for i, f in enumerate(factors) if f.is_Add), 0)
    factors[i] = -factors[i]
    return sp.Mul(*factors) / sp.Add(*(-t for t in sp.Add.make_args(sp.expand(bottom))))


def _ordered(expr: Expr) -> list[Symbol]:
    return sorted(expr.free_symbols, key=lambda s: str(s.name))


def _range(pair: _Pair, between: tuple[object, object] | None) -> tuple[Fraction, Fraction]:
    if between is None:
        counts = pair.whole and pair.over not in pair.units
        if counts:
            return Fraction(2), Fraction(4096)
        return (Fraction(1) if pair.whole else Fraction(1, 2**60)), Fraction(2**60)
    low, high = (exact(v, f"a limit of {pair.over}") for v in between)
    if not 0 < low < high:
        raise ValuesError(f"the range of {pair.over} from {low} to {high} is empty or not positive")
    if pair.whole and (low.denominator != 1 or high.denominator != 1):
        raise ValuesError(f"{pair.over} is a whole number, but its range is from {low} to {high}")
    return low, high


def _exact_roots(pair: _Pair, given: dict[str, Fraction], low: Fraction, high: Fraction) -> tuple[Crossing, ...]:
    """The roots in the range of a polynomial with known coefficients: rational ones exactly, others in brackets."""
    import sympy as sp

    from symcomm.notation import amount, symbol

    values = {
        s: sp.Rational(given[n].numerator, given[n].denominator)
        for n in given
        for s in (symbol(n), amount(n))
    }  # fmt: skip
    top, _ = sp.fraction(sp.together(pair.difference.xreplace(values)))
    top = sp.expand(top)
    if not top.is_polynomial(pair.variable) or not all(c.is_Rational for c in sp.Poly(top, pair.variable).all_coeffs()):
        return _UNKNOWN
    poly = sp.Poly(top, pair.variable)
    if poly.is_zero or poly.degree() < 1:
        return ()
    found: list[Crossing] = []
    for (left, right), _ in poly.intervals(eps=sp.Rational(1, 2**60)):
        lo, hi = Fraction(int(left.p), int(left.q)), Fraction(int(right.p), int(right.q))
        exactly = [r for r in _rational_roots(poly) if lo <= r <= hi]
        root = Crossing(exactly[0], exactly[0]) if exactly else Crossing(lo, hi)
        if low <= root.low and root.high <= high:
            found.append(root)
    return tuple(found)


def _rational_roots(poly: object) -> list[Fraction]:
    import sympy as sp

    _, factors = sp.factor_list(poly)
    roots = []
    for factor, _ in factors:
        if factor.degree() == 1:
            p, q = factor.all_coeffs()
            root = -q / p
            roots.append(Fraction(int(root.p), int(root.q)))
    return roots


def _search(sign: Callable[[Fraction], int], low: Fraction, high: Fraction, whole: bool) -> list[Crossing]:
    """Every change of sign between neighbouring points of a scan, narrowed by bisection."""
    found: list[Crossing] = []
    points = _points(low, high, whole)
    before, last = points[0], sign(points[0])
    if last == 0:
        found.append(Crossing(before, before))
    for point in points[1:]:
        now = sign(point)
        if now == 0 and last != 0:
            found.append(Crossing(point, point))
        elif now and last and now != last:
            found.append(_bisect(sign, before, point, last, whole))
        before, last = point, now
    return found


def _points(low: Fraction, high: Fraction, whole: bool) -> list[Fraction]:
    if whole and high - low <= _SCAN:
        return [Fraction(i) for i in range(int(low), int(high) + 1)]
    points, x = [low], low
    while x < high:
        # Eight steps an octave, each a fraction with a small denominator.
        x = x * Fraction(1116, 1024)
        x = Fraction(-(-x.numerator // x.denominator)) if whole else x.limit_denominator(10**12)
        points.append(min(x, high))
        x = points[-1]
    return points


def _bisect(sign: Callable[[Fraction], int], low: Fraction, high: Fraction, left: int, whole: bool) -> Crossing:
    while (high - low > 1) if whole else (high - low > low * _FINE):
        middle = Fraction((low + high) // 2) if whole else (low + high) / 2
        here = sign(middle)
        if here == 0:
            return Crossing(middle, middle)
        low, high = (middle, high) if here == left else (low, middle)
    return Crossing(low, high)


def _between(
    sign: Callable[[Fraction], int], crossings: Sequence[Crossing], low: Fraction, high: Fraction, whole: bool
) -> tuple[int, ...]:
    """The sign in each stretch between crossings; the stretches at the ends may be empty."""
    ends = [low, *(x for c in crossings for x in (c.low, c.high)), high]
    found: list[int] = []
    for left, right in zip(ends[::2], ends[1::2], strict=True):
        tried = [(left + right) / 2, left, right, left + 1, right - 1]
        inside = [Fraction(x.__floor__()) if whole else x for x in tried]
        found.append(next((s for x in inside if left <= x <= right and (s := sign(x))), 0))
    return tuple(found)


def _real(crossings: tuple[Crossing, ...], less: tuple[int, ...]) -> tuple[tuple[Crossing, ...], tuple[int, ...]]:
    """Without the places where the costs touch but keep their order, or where no number lies on one side."""
    kept: list[Crossing] = []
    sides = [less[0]]
    for c, side in zip(crossings, less[1:], strict=True):
        if side and sides[-1] and side != sides[-1]:
            kept.append(c)
            sides.append(side)
        elif side and not sides[-1]:
            sides[-1] = side
    return tuple(kept), tuple(sides)


def _table(pair: _Pair, crossings: Sequence[Crossing], less: Sequence[int], low: Fraction, high: Fraction) -> Exhibit:
    unit = pair.units.get(pair.over, ONE)
    names = {-1: pair.titles[0], 0: "equal", 1: pair.titles[1]}
    ends = [low, *(x for c in crossings for x in (c.low, c.high)), high]
    rows = tuple(
        (Quantity(left, unit), Quantity(right, unit), names[side])
        for left, right, side in zip(ends[::2], ends[1::2], less, strict=True)
    )
    return Exhibit(f"Which is less, by {pair.over}", ("from", "to", "less"), rows)


def _always(pair: _Pair, side: int, low: Fraction, high: Fraction, given: dict[str, Fraction]) -> str:
    unit = pair.units.get(pair.over, ONE)
    span = f"for every {pair.over} from {_said(low, unit)} to {_said(high, unit)}"
    if not side:
        return f"Both are equal {span}."
    better, worse = pair.titles if side < 0 else pair.titles[::-1]
    return f"There is no crossover: {better} is less than {worse} {span}."


@dataclass(frozen=True)
class Stretch:
    """A stretch of the variable in which one of several costs is the least, by its place in their order."""

    low: Fraction
    high: Fraction
    best: int


def envelope(
    costs: Sequence[Derivation], over: str, between: tuple[object, object] | None = None
) -> tuple[Stretch, ...]:
    """Which of several costs is the least, from stretch to stretch of a variable; the first one where several are.

    The costs must be in one unit, with all other numbers known. Costs that differ in the algorithm may be compared.
    """
    for other in costs[1:]:
        _comparable(costs[0], other, ("algorithm", "chunks"))
    pair = _Pair.of(costs[0], costs[-1], over)
    low, high = _range(pair, between)
    written = [forms.from_expr(d.expr) for d in costs]
    given = [{name: value for name, value in d.given if name != over} for d in costs]

    def best(x: Fraction) -> int:
        worth = [forms.evaluate(f, {**g, over: x}) for f, g in zip(written, given, strict=True)]
        return worth.index(min(worth))

    found: list[Stretch] = []
    points = _points(low, high, pair.whole)
    start, before, now = low, low, best(low)
    for point in points[1:]:
        while best(point) != now:
            here = now

            def same(x: Fraction, here: int = here) -> int:
                return 1 if best(x) == here else -1

            end = _bisect(same, before, point, 1, pair.whole)
            found.append(Stretch(start, end.low, now))
            start = before = end.high
            now = best(start)
        before = point
    found.append(Stretch(start, high, now))
    return tuple(found)


def _said(value: Fraction, unit: Unit) -> str:
    return str(Quantity(value, unit)).split(" = ")[0]
