"""The least and the greatest value of a derived cost, with the working: slope, stationary point, bounds, whole numbers.

Where the cost is a sum of powers of the variable, Descartes' rule of signs says how it runs and the optimum is a closed
form; otherwise its numbers are needed, and every point where it can be least is compared exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from symcomm import form as forms
from symcomm.derivation import Derivation, Exhibit, Reason, Step, exact
from symcomm.errors import DerivationError, IrrationalError, ValuesError
from symcomm.form import Form, Sym
from symcomm.optimum import bracket, candidates
from symcomm.optimum.cost import Cost, Course, Terms, course, neat, read, root, terms, written
from symcomm.units import ONE, Quantity, Unit

if TYPE_CHECKING:
    from sympy import Expr

Wanted = Literal["place", "value"]


def minimise(
    cost: Derivation | Form | Expr,
    over: str,
    given: Mapping[str, object] | None = None,
    *,
    integer: bool = True,
    lower: object = None,
    upper: object = None,
    divides: int | None = None,
    wanted: Wanted = "place",
    title: str = "",
) -> Derivation:
    """Where a cost is least over the whole (or, without ``integer``, the real) positive values of a name.

    ``lower`` and ``upper`` bound the range, ``divides`` allows only divisors of a number; ``wanted`` is the ``place``
    or the ``value`` there. Raises ``ValuesError`` where there is no optimum, or where it hangs on numbers not given.

    >>> from symcomm.form import Ratio, product, total
    >>> s, o, w, n = (Sym(name, False) for name in "sown")
    >>> overhead = total(product(n, o), Ratio(s, product(n, w)))
    >>> minimise(overhead, over="n", integer=False).expr
    sqrt(s)/(sqrt(o)*sqrt(w))
    >>> str(minimise(overhead, over="n", given={"s": 8, "w": 1, "o": 1}).at())
    '3'
    """
    return _Search(read(cost, over, given, title), 1, integer, lower, upper, divides, wanted).derivation()


def maximise(
    cost: Derivation | Form | Expr,
    over: str,
    given: Mapping[str, object] | None = None,
    *,
    integer: bool = True,
    lower: object = None,
    upper: object = None,
    divides: int | None = None,
    wanted: Wanted = "place",
    title: str = "",
) -> Derivation:
    """Where a gain is greatest; the options of ``minimise``.

    >>> n = Sym("n", False)
    >>> gain = forms.total(forms.product(forms.num(7), n), forms.negative(forms.product(n, n)))
    >>> str(maximise(gain, over="n").at())
    '3'
    """
    return _Search(read(cost, over, given, title), -1, integer, lower, upper, divides, wanted).derivation()


@dataclass
class _Search:
    cost: Cost
    sense: int
    integer: bool
    lower: object
    upper: object
    divides: int | None
    wanted: Wanted

    def __post_init__(self) -> None:
        self.steps: list[Step] = []
        self.exhibits: list[Exhibit] = []
        self.notes: list[str] = []
        self.words = ("least", "minimum") if self.sense > 0 else ("greatest", "maximum")
        self.low, self.high = self._bound(self.lower, "lower"), self._bound(self.upper, "upper")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValuesError(f"there is no {self.cost.over} from {self.low} to {self.high}")
        if self.integer:
            self.low = Fraction(max(1, (self.low or Fraction(1)).__ceil__()))
            self.high = None if self.high is None else Fraction(self.high.__floor__())
            if self.high is not None and self.low > self.high:
                raise ValuesError(f"there is no whole {self.cost.over} from {self.low} to {self.high}")
        if self.divides is not None and not self.integer:
            raise ValuesError("only whole numbers divide a number", hint="use integer=True")
        if self.divides is not None and self.divides < 1:
            raise ValuesError(f"divides={self.divides}: a positive whole number is needed")

    def _bound(self, given: object, name: str) -> Fraction | None:
        if given is None:
            return None
        bound = exact(given, name)
        if bound < 0 or (name == "upper" and not bound):
            raise ValuesError(f"{name} = {bound}: the values are positive")
        return bound

    # -- steps ---------------------------------------------------------------------------------

    def step(self, name: str, form: Form, unit: Unit, rule: str, text: str, relation: str = ":=") -> str:
        self.steps.append(Step(name, form, unit, Reason(rule, text), relation))  # type: ignore[arg-type]
        return name

    def define(self, name: str, form: Form, unit: Unit, rule: str, text: str) -> str:
        """A step under a free name; the name."""
        return self.step(self.cost.free(name, *(s.name for s in self.steps)), form, unit, rule, text)

    def derivation(self) -> Derivation:
        """The working, from the cost to the optimum."""
        cost = self.cost
        unit, counted = cost.step_unit, f", counted in {cost.unit}" if cost.bare and cost.unit != ONE else ""
        self.f = self.define("f", cost.form, unit, "the cost", f"{cost.title}, a function of `{cost.over}`{counted}.")
        found = terms(cost.expr, cost.x)
        if found is None:
            runs: Course = Course("unknown", "the cost is not a sum of powers")
        else:
            slope = self._slope(found)
            runs = course(tuple((e, self.sense * c) for e, c in slope))
            if runs.kind == "unknown" and cost.given and not cost.missing:
                known = terms(cost.numbers, cost.x) or ()
                runs_known = course(tuple((e - 1, self.sense * e * c) for e, c in known if e != 0))
                if runs_known.kind != "unknown":
                    return self._closed(known, tuple((e - 1, e * c) for e, c in known if e != 0), runs_known, True)
        if found is None or runs.kind == "unknown" or self.divides is not None:
            return self._compared(runs)
        return self._closed(found, slope, runs, False)

    def _slope(self, found: Terms) -> Terms:
        import sympy as sp

        cost, slope = self.cost, tuple((sp.expand(e - 1), e * c) for e, c in found if e != 0)
        unit = cost.step_unit / cost.x_unit
        first = cost.write(sp.Add(*(c * cost.x**e for e, c in slope)))
        self.slope_name = self.define("f'", first, unit, "differentiate", f"With respect to `{cost.over}`.")
        return slope

    def _closed(self, found: Terms, slope: Terms, runs: Course, numeric: bool) -> Derivation:
        """The optimum of a sum of powers whose course is known."""
        import sympy as sp

        cost, x = self.cost, self.cost.x
        if numeric:
            self.step(
                self.f, cost.form, cost.step_unit, "numbers",
                "The signs of the terms follow from the given numbers only; they are put in from here on.", "=",
            )  # fmt: skip
        if not runs.sure and not cost.missing:  # the numbers tell whether a coefficient is zero
            known = terms(cost.numbers, x) or ()
            told = course(tuple((e - 1, self.sense * e * c) for e, c in known if e != 0))
            runs = told if told.kind in ("rises", "falls", "flat") else runs
        if runs.kind in ("rises", "falls", "flat"):
            return self._at_an_end(found, runs)
        if runs.kind == "hill":
            return self._at_one_of_two_ends(found, runs)
        second = tuple((sp.expand(e - 1), e * c) for e, c in slope if e != 0)
        bend = course(tuple((e, self.sense * c) for e, c in second))
        if not numeric:
            curve = cost.write(sp.Add(*(c * x**e for e, c in second)))
            convex = bend.kind == "rises"
            side = "positive" if self.sense > 0 else "negative"
            why = (
                f"Every term is {side} for `{cost.over}` > 0, so the stationary point is the only {self.words[1]}."
                if convex
                else f"Its sign may change, but that of the slope changes once: below the stationary point the cost "
                f"{'falls' if self.sense > 0 else 'rises'}, above it it {'rises' if self.sense > 0 else 'falls'}."
            )
            self.define("f''", curve, cost.step_unit / cost.x_unit**2, "second order", why)
        solved = root(slope)
        if solved is None:
            return self._without_closed_form(runs)
        worth, inside, degree = solved
        place = self._power(inside, degree)
        text = f"The slope is zero only here: {_once(self.sense)}."
        self.place = self.define(f"{cost.over}^*", place, cost.x_unit, "slope zero", text)
        if not runs.sure:
            self.notes.append(
                f"Where a coefficient of the slope is zero, the slope keeps its sign and the {self.words[1]} is at a "
                "bound of the range."
            )
        self._value(found, worth, place, degree)
        if self.integer:
            return self._whole(found, runs, worth)
        return self._finish(self._clamped(self.place))

    def _power(self, inside: Expr, degree: Expr) -> Form:
        base = self.cost.write(inside)
        if degree == 1:
            return base
        if degree == 2:
            return forms.Root(base)
        return forms.Power(base, written(1 / degree))

    def _value(self, found: Terms, worth: Expr, place: Form, degree: Expr) -> None:
        import sympy as sp

        cost = self.cost
        put = forms.substitute(cost.form, lambda s: Sym(self.place, False, cost.x_unit) if s.name == cost.over else s)
        there = f"The {self.words[0]} cost over the real numbers, at `{self.place}`."
        self.value = self.define("f^*", put, cost.step_unit, self.words[1], there)
        if degree in (1, 2):
            flat = sp.expand(sp.Add(*(c * worth**e for e, c in found)))
            form = cost.write(_gathered(found, worth, flat))
            if _valid(cost, self.steps, Step(self.value, form, cost.step_unit, Reason("algebra", "Collect."), "=")):
                self.step(self.value, form, cost.step_unit, "algebra", "Put the place in and collect.", "=")

    def _clamped(self, name: str) -> str:
        """The place, brought into the range."""
        cost, unit = self.cost, self.cost.x_unit
        bounded: Form = Sym(name, False, unit)
        if self.low is not None and not self.integer and self.low:
            bounded = forms.Largest((forms.Num(self.low, unit), bounded))
        if self.high is not None:
            bounded = forms.Smallest((forms.Num(self.high, unit), bounded))
        if isinstance(bounded, Sym):
            return name
        text = "The cost runs one way on each side of its stationary point: the nearest value of the range is best."
        return self.define(f"{cost.over}^best", bounded, unit, "bounds", text)

    def _finish(self, place: str) -> Derivation:
        """The last step is what was wanted."""
        cost = self.cost
        last = self.steps[-1]
        if self.wanted == "value":
            if place != self.place or last.name != self.value:
                at = Sym(place, False, cost.x_unit)
                put = forms.substitute(cost.form, lambda s: at if s.name == cost.over else s)
                text = f"The cost at `{place}`."
                self.define("f^best", put, cost.step_unit, self.words[1], text)
        elif last.name != place:
            step = next(s for s in reversed(self.steps) if s.name == place)
            self.step(place, step.form, step.unit, "answer", f"There the cost is {self.words[0]}.", "=")
        where = "real" if not self.integer else "whole"
        kind = f"{self.words[0].capitalize()} cost" if self.wanted == "value" else f"Best {where} `{cost.over}`"
        return cost.derivation(
            f"{kind}: {cost.title}", self.steps, exhibits=tuple(self.exhibits), notes=tuple(self.notes)
        )

    # -- at the ends of the range ---------------------------------------------------------------

    def _at_an_end(self, found: Terms, runs: Course) -> Derivation:
        cost = self.cost
        at_low = runs.kind in ("rises", "flat")
        end = self.low if at_low else self.high
        words = {"rises": "rises", "falls": "falls", "flat": "does not change"}
        moves = runs.kind if self.sense > 0 else {"rises": "falls", "falls": "rises", "flat": "flat"}[runs.kind]
        says = f"every term of the slope has one sign, so the cost {words[moves]} for all `{cost.over}` > 0"
        plain = says.replace("`", "")
        if end is None and runs.kind == "flat":
            raise ValuesError(f"the cost does not change with {cost.over}: every value is as good as another")
        if end is None or (not end and not self.integer):
            hint = "give a lower bound above zero" if at_low else "give an upper bound"
            raise ValuesError(f"there is no optimum: {plain}", hint=hint)
        text = f"{says[0].upper()}{says[1:]}: the {self.words[1]} is at the {'lower' if at_low else 'upper'} bound."
        self.place = self.define(f"{cost.over}^*", forms.Num(end, cost.x_unit), cost.x_unit, "bounds", text)
        self.value = ""
        return self._finish(self.place)

    def _at_one_of_two_ends(self, found: Terms, runs: Course) -> Derivation:
        if self.low is None or not self.low or self.high is None:
            raise ValuesError(
                f"there is no {self.words[1]} inside: the stationary point of the cost is its "
                f"{'greatest' if self.sense > 0 else 'least'} value",
                hint="give a lower bound above zero and an upper bound; the ends are then compared",
            )
        return self._compared(runs)

    # -- whole numbers ---------------------------------------------------------------------------

    def _whole(self, found: Terms, runs: Course, worth: Expr) -> Derivation:
        """The best whole number: the first one after which the cost rises."""
        import sympy as sp

        cost, x = self.cost, self.cost.x
        poly = _difference(found, x)
        solved = _whole_root(tuple((e, self.sense * c) for e, c in poly)) if poly is not None else None
        if solved is None:
            if cost.missing:
                raise ValuesError(
                    f"the best whole {cost.over} has no closed form; it is one of the two neighbours of the real one",
                    hint=f"give {', '.join(cost.missing)}, or ask for integer=False",
                )
            return self._compared(runs)
        after, condition = solved
        one = forms.Num(Fraction(1), cost.x_unit)
        following = forms.Total((Sym(cost.over, False, cost.x_unit), one))
        shifted = forms.substitute(cost.form, lambda s: following if s.name == cost.over else s)
        change = self.define(
            "Delta", forms.Total((shifted, forms.negative(cost.form))), cost.step_unit, "one more",
            f"What one more `{cost.over}` costs: f at `{cost.over}` + 1 less f at `{cost.over}`.",
        )  # fmt: skip
        short = cost.write(sp.Add(*(_shift(e, c, x) for e, c in found if e != 0)))
        if _valid(cost, self.steps, Step(change, short, cost.step_unit, Reason("algebra", "Cancel."), "=")):
            self.step(change, short, cost.step_unit, "algebra", "Cancel the terms that do not change.", "=")
        less, more = ("below", "above") if self.sense > 0 else ("above", "below")
        form: Form = forms.Ceiling(cost.write(after))
        assert self.low is not None
        if self.low > 1 or not runs.sure:
            form = forms.Largest((forms.Num(self.low, ONE), form))
        if self.high is not None:
            form = forms.Smallest((forms.Num(self.high, ONE), form))
        text = (
            f"`{change}` is {less} zero at first and {more} zero from some number on; the best whole number is the "
            "first where it is not " + less + " zero"
        )
        text += ", brought into the range." if self.high is not None or self.low > 1 else "."
        if cost.x_unit != ONE:
            form = forms.Product((form, forms.Num(Fraction(1), cost.x_unit)))
        best = self.define(f"{cost.over}^whole", form, cost.x_unit, "whole numbers", text)
        if condition is not None:
            low_side, middle, high_side = condition
            n = Sym(cost.over, False)
            shown = [forms.substitute(written(side), lambda s: n if s.name == x.name else s) for side in
                     (low_side, high_side)]  # fmt: skip
            self.exhibits.append(
                Exhibit(
                    f"A whole `{cost.over}` is optimal exactly when the ratio is not outside these bounds",
                    ("at least", "ratio", "at most"),
                    ((shown[0], cost.write(middle), shown[1]),),
                )
            )
            self.notes.append(
                f"Where the ratio equals its upper bound, `{cost.over}` and `{cost.over}` + 1 cost the same; the "
                "smaller one is given."
            )
        self._neighbours(best)
        return self._finish(best)

    def _neighbours(self, best: str) -> None:
        """With all numbers: the best whole number beside its neighbours."""
        cost = self.cost
        if cost.missing:
            return
        made = cost.derivation("whole", [s for s in self.steps if s.relation == ":="])
        n = int(made.at().value)
        function = forms.from_expr(cost.numbers)
        rows: list[tuple[str | Form | Quantity, ...]] = []
        for k in range(max(1, n - 2), n + 3):
            said = "outside the range" if (self.low and k < self.low) or (self.high and k > self.high) else ""
            value = _quantity(function, cost, k)
            rows.append((str(k), value, "best" if k == n else said))
        self.exhibits.append(Exhibit("The cost at neighbouring whole numbers", (cost.over, "cost", ""), tuple(rows)))

    # -- without a closed form -------------------------------------------------------------------

    def _needs_numbers(self, why: str) -> None:
        if self.cost.missing:
            raise ValuesError(
                f"where the cost is {self.words[0]} cannot be told: {why}",
                hint=f"give numbers for {', '.join(self.cost.missing)}",
            )

    def _without_closed_form(self, runs: Course) -> Derivation:
        self._needs_numbers("its slope has no root in closed form")
        return self._compared(runs)

    def _compared(self, runs: Course) -> Derivation:
        """The optimum by comparing all points where it can be, with all numbers known."""
        cost = self.cost
        why = runs.why or "the ends of the range must be compared"
        if self.divides is not None:
            why = "whether a divisor above or below the stationary point is better hangs on the numbers"
        self._needs_numbers(why)
        if not self.integer:
            return self._compared_real(runs)
        assert self.low is not None
        high = None if self.high is None else int(self.high)
        try:
            found = candidates.whole(cost.numbers, cost.x, int(self.low), high, self.divides, self.sense)
        except candidates.NotRationalError:
            found = bracket.whole(cost.numbers, cost.x, int(self.low), high, self.sense)
        self.notes.append(found.how)
        rows: list[tuple[str | Form | Quantity, ...]] = []
        function = forms.from_expr(cost.numbers)
        shown = found.tried if len(found.tried) <= 12 else sorted(found.tried, key=lambda t: self.sense * t[1])[:12]
        for n, _ in sorted(shown):
            rows.append((str(n), _quantity(function, cost, n), "best" if n in found.best else ""))
        self.exhibits.append(Exhibit("Whole numbers compared", (cost.over, "cost", ""), tuple(rows)))
        text = f"No other whole number costs {'less' if self.sense > 0 else 'more'}."
        if len(found.best) > 1:
            text = (
                f"It shares the {self.words[0]} cost with {', '.join(map(str, found.best[1:]))}; no other reaches it."
            )
        number = forms.Num(Fraction(found.best[0]), cost.x_unit)
        self.place = self.define(f"{cost.over}^whole", number, cost.x_unit, "compare", text)
        self.value = ""
        return self._finish(self.place)

    def _compared_real(self, runs: Course) -> Derivation:
        cost = self.cost
        low = self.low or Fraction(0)
        try:
            winners = candidates.real(self.sense * cost.numbers, cost.x, low, self.high, not low)
        except candidates.NotRationalError:
            winners = (bracket.real(self.sense * cost.numbers, cost.x, low, self.high),)
        best = winners[0]
        others = "" if len(winners) == 1 else f" It is one of {len(winners)} places with the same cost."
        what = {"kink": "two pieces of the cost meet", "slope zero": "the slope is zero"}.get(best.kind, best.kind)
        if best.closed:
            reason = f"Of the bounds, kinks and stationary points, the cost is {self.words[0]} where {what}.{others}"
            if "bound" in best.kind:
                reason = f"Of the bounds, kinks and stationary points, the {what} costs {_less(self.sense)}.{others}"
            form = written(best.number)
            if cost.x_unit != ONE:
                form = forms.product(form, forms.Num(Fraction(1), cost.x_unit))
            self.place = self.define(f"{cost.over}^*", form, cost.x_unit, "compare", reason)
            self.value = ""
            return self._finish(self.place)
        self.notes.append(
            f"There is no closed form: the slope changes its sign between the two ends, {_fraction_text(best.low)} and "
            f"{_fraction_text(best.high)}, checked with exact fractions."
        )
        name = f"{cost.over}^+"
        self.place = self.define(
            name, forms.Num(best.high, cost.x_unit), cost.x_unit, "bracket",
            f"No closed form; the {self.words[1]} lies less than {_fraction_text(best.high - best.low)} below.",
        )  # fmt: skip
        self.value = ""
        return self._finish(self.place)


def _fraction_text(value: Fraction) -> str:
    from symcomm.units import decimal_text

    return decimal_text(value, 16) if value.denominator != 1 else str(value)


def _less(sense: int) -> str:
    return "least" if sense > 0 else "most"


def _once(sense: int) -> str:
    runs = ("negative", "positive") if sense > 0 else ("positive", "negative")
    return f"it is {runs[0]} below and {runs[1]} above, by Descartes' rule of signs"


def _quantity(function: Form, cost: Cost, n: int) -> Quantity | str:
    try:
        return Quantity(forms.evaluate(function, {cost.over: Fraction(n)}), cost.unit)
    except IrrationalError:
        import sympy as sp

        return f"≈ {sp.N(forms.value(function).subs(cost.x, n), 8)} {cost.unit if cost.unit != ONE else ''}".strip()


def _valid(cost: Cost, steps: list[Step], more: Step) -> bool:
    try:
        cost.derivation("check", [*steps, more])
    except DerivationError:
        return False
    return True


def _gathered(found: Terms, worth: Expr, flat: Expr) -> Expr:
    """The value at the optimum, its roots collected: the terms of equal powers cancel into one."""
    import sympy as sp

    rest = sp.Add(*(c for e, c in found if e == 0))
    roots = sp.Add(*(c * worth**e for e, c in found if e != 0))
    whole = sp.Add(rest, roots)
    return whole if whole.count_ops() <= flat.count_ops() else flat


def _shift(e: Expr, c: Expr, x: Expr) -> Expr:
    """What one more does to a term."""
    if e == 1:
        return c
    if e == -1:
        return -c / (x * (x + 1))
    return c * (x + 1) ** e - c * x**e


def _difference(found: Terms, x: Expr) -> Terms | None:
    """The numerator of f(x + 1) - f(x) as a polynomial, lowest power first; None for powers that are not whole."""
    import sympy as sp

    if not all(e.is_Integer for e, _ in found):
        return None
    k = max(0, *(-int(e) for e, _ in found))
    if k + max(int(e) for e, _ in found) > 12:
        return None
    numerator = sp.expand(
        sp.Add(*(c * ((x + 1) ** (e + k) * x**k - x ** (e + k) * (x + 1) ** k) for e, c in found if e != 0))
    )
    made = terms(numerator, x)
    return None if made is None else tuple((e - made[0][0], c) for e, c in made if c != 0)


def _whole_root(poly: Terms) -> tuple[Expr, tuple[Expr, Expr, Expr] | None] | None:
    """The positive root of a difference with one change of sign, and (lower, ratio, upper) of the exact condition."""
    import sympy as sp

    from symcomm.notation import amount

    runs = course(poly)
    if runs.kind == "rises":
        return sp.Integer(0), None
    if runs.kind != "valley" or max(e for e, _ in poly) > 2:
        return None
    by = {int(e): c for e, c in poly}
    lead = by[max(by)]
    below, middle = sp.cancel(by.get(0, sp.Integer(0)) / lead), sp.cancel(by.get(1, sp.Integer(0)) / lead)
    if max(by) == 1:
        after = -below
        return after, None
    after = -middle / 2 + sp.sqrt(middle**2 + 4 * neat(-below)) / 2
    if middle != 1:
        return after, None
    n = amount("n")
    return after, (n * (n - 1), neat(-below), n * (n + 1))
