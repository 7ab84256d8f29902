"""A question about a cost over values of a name; its working, and the witnesses of the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Derivation, Exhibit, Numbers, Reason, Step, Witness, exact, worked_out
from symcomm.core.errors import IrrationalError, ValuesError
from symcomm.core.form import Form, Sym
from symcomm.core.libraries import sp
from symcomm.core.optimum.cost import Cost
from symcomm.core.optimum.roots import Domain, bisect
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Quantity, Unit

if TYPE_CHECKING:
    from symcomm.core.derivation import Relation

Wanted = Literal["place", "value"]
_LARGEST_DIVIDED = 10**15  # factored in milliseconds
_STEP = Fraction(1, 10**8)  # of the variable, for a slope
_NEAR = Fraction(1, 10**6)  # of what a slope may differ by, whose digits end after 40
_PLACES = ("slope zero", "bounds", "whole numbers", "compare", "bracket", "equal", "edge")


@dataclass(frozen=True)
class CostQuestion:
    """A cost as a function of one name, and the values of it over which it is made small (``sense`` 1) or large (-1).

    There is at least one of what is counted, where no lower bound is given.
    """

    cost: Cost
    domain: Domain
    sense: int
    wanted: Wanted

    @property
    def words(self) -> tuple[str, str]:
        """The words for the result, as an adjective and as a noun."""
        return ("least", "minimum") if self.sense > 0 else ("greatest", "maximum")


class RefusedError(ValuesError):
    """A number that a cost cannot have."""


@dataclass(frozen=True)
class Found:
    """The best whole numbers, their value, everything that was compared, and why other numbers were not."""

    best: tuple[int, ...]
    value: Fraction
    tried: tuple[tuple[int, Fraction], ...]
    how: str = ""
    refused: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class CountQuestion:
    """A cost that is worked out anew at each of some whole numbers, which are in order.

    ``worth`` raises ``RefusedError`` for a number that the cost cannot have.
    """

    worth: Callable[[int], Fraction]
    numbers: Sequence[int]

    def each(self) -> Iterator[tuple[int, Fraction | RefusedError]]:
        """Each number with the cost, or why it has none."""
        for number in self.numbers:
            try:
                yield number, self.worth(number)
            except RefusedError as error:
                yield number, error

    def least(self, sense: int = 1) -> Found:
        """Where the cost is least (``sense`` -1: greatest); raises ``RefusedError`` where every number is refused.

        >>> CountQuestion(lambda n: Fraction(n + 12 // n), (2, 3, 4, 6)).least().best
        (3, 4)
        """
        every = [*self.each()]
        tried = tuple((n, value) for n, value in every if not isinstance(value, RefusedError))
        refused = tuple((n, error.message) for n, error in every if isinstance(error, RefusedError))
        if not tried:
            raise RefusedError(refused[0][1])
        best = (min if sense > 0 else max)(value for _, value in tried)
        return Found(tuple(n for n, value in tried if value == best), best, tried, refused=refused)

    def first(self, most: Fraction) -> int | None:
        """The first number at which the cost is no more than ``most``; None where there is none."""
        return next((n for n, value in self.each() if not isinstance(value, RefusedError) and value <= most), None)

    def edge(self, most: Fraction) -> tuple[int, int] | None:
        """The neighbours between which a cost that only rises, or only falls, passes ``most``; None where it does not.

        >>> CountQuestion(lambda n: Fraction(n * n), range(2, 1000, 2)).edge(Fraction(50))
        (6, 8)
        """
        within = self.worth(self.numbers[0]) <= most
        last = self.numbers.index(self.numbers[-1])  # where Python has 32 bits, a long range has no length

        def sign(place: Fraction) -> int:
            return 1 if (self.worth(self.numbers[int(place)]) <= most) == within else -1

        doubled = (Fraction(min(2**n - 1, last)) for n in range(1, last.bit_length() + 1))
        beyond = next((place for place in doubled if sign(place) < 0), None)
        if beyond is None:
            return None
        found = bisect(sign, Fraction(0), beyond, 1, whole=True)
        return self.numbers[int(found.low)], self.numbers[int(found.high)]


def ask(
    cost: Cost, sense: int, integer: bool, lower: object, upper: object, divides: object, wanted: Wanted
) -> CostQuestion:
    """The question, its range checked. Raises ``ValuesError`` where the range is empty or makes no sense."""
    low, high = _bound(lower, "lower", cost), _bound(upper, "upper", cost)
    if low is not None and high is not None and low > high:
        raise ValuesError(f"there is no {cost.over} from {low} to {high}")
    if integer:
        low = Fraction(1) if low is None else max(Fraction(0), Fraction(low.__ceil__()))
        high = None if high is None else Fraction(high.__floor__())
        if high is not None and low > high:
            raise ValuesError(f"there is no whole {cost.over} from {low} to {high}")
    elif cost.counts and low is None:
        low = Fraction(1)
        if high is not None and low > high:
            raise ValuesError(f"there is no {cost.over} from {low} to {high}", hint="there is at least one")
    if wanted not in ("place", "value"):
        raise ValuesError(f"'{str(wanted)[:40]}' cannot be asked of an optimum", hint="wanted is place or value")
    return CostQuestion(cost, Domain(low, high, integer, _divided(divides, integer)), sense, wanted)


def _divided(given: object, integer: bool) -> int | None:
    if given is None:
        return None
    number = exact(given, "divides")
    if not integer:
        raise ValuesError("only whole numbers divide a number", hint="use integer=True")
    if number < 1 or number.denominator != 1:
        raise ValuesError(f"divides={number}: a positive whole number is needed")
    if number > _LARGEST_DIVIDED:
        raise ValuesError(f"divides is larger than {_LARGEST_DIVIDED}: its divisors are not looked for")
    return int(number)


def _bound(given: object, name: str, cost: Cost) -> Fraction | None:
    if given is None:
        return None
    bound = cost.number(given, name, cost.over)
    if bound < 0 or (name == "upper" and not bound):
        raise ValuesError(f"{name} = {bound}: the values are positive")
    return bound


class OptimumSteps:
    """The working of one question, from the cost (the step ``f``) to the optimum."""

    def __init__(self, question: CostQuestion) -> None:
        self.question = question
        self.cost: Cost = question.cost
        self.steps: list[Step] = []
        self.exhibits: list[Exhibit] = []
        self.notes: list[str] = []
        self.where: list[Condition] = [*question.cost.where]
        self.place = ""  # the names of the steps that say where the optimum is, and what it is worth there
        self.value = ""
        cost = self.cost
        text = f"{cost.title}, a function of `{cost.over}`.{cost.said}"
        self.f = self.define("f", cost.form, cost.unit, "the cost", text)

    def step(self, name: str, form: Form, unit: Unit, rule: str, text: str, relation: Relation = ":=") -> str:
        """Adds a step; its name."""
        said = [s.name for s in self.steps]
        witness = of_optimum(self.question, name, said, rule) if relation == ":=" else None
        self.steps.append(Step(name, form, unit, Reason(rule, text, witness=witness), relation))
        return name

    def define(self, name: str, form: Form, unit: Unit, rule: str, text: str) -> str:
        """Adds a step under a free name; the name."""
        return self.step(self.cost.free(name, *(s.name for s in self.steps)), form, unit, rule, text)

    def rewrite(self, name: str, form: Form, unit: Unit, text: str) -> None:
        """Adds another way to write a step."""
        self.steps.append(Step(name, form, unit, Reason("algebra", text), "="))

    def put(self, place: str) -> Form:
        """The cost at the place that a step names."""
        at = Sym(place, False, self.cost.x_unit)
        return forms.substitute(self.cost.form, lambda s: at if s.name == self.cost.over else s)

    def at(self, n: int) -> Quantity | str:
        """The cost at a whole number, all other numbers known."""
        cost = self.cost
        written = forms.from_expr(cost.numbers)
        try:
            return Quantity(forms.evaluate(written, {cost.over: Fraction(n)}), cost.unit)
        except IrrationalError:
            return f"≈ {sp.N(forms.value(written).subs(cost.x, n), 8)} {cost.unit if cost.unit != ONE else ''}".strip()

    def finish(self, place: str) -> Derivation:
        """The derivation whose last step is what was wanted: the place of the optimum, or the cost there."""
        cost, question = self.cost, self.question
        last = self.steps[-1]
        if question.wanted == "value":
            if place != self.place or last.name != self.value:
                text = f"The cost at `{place}`."
                self.define("f^best", self.put(place), cost.unit, question.words[1], text)
        elif last.name != place:
            step = next(s for s in reversed(self.steps) if s.name == place)
            self.step(place, step.form, step.unit, "answer", f"There the cost is {question.words[0]}.", "=")
        kind = f"Best {'whole' if question.domain.whole else 'real'} `{cost.over}`"
        kind = f"{question.words[0].capitalize()} cost" if question.wanted == "value" else kind
        strict = {str(c) for c in self.where if c.relation == ">"}
        where = tuple(c for c in self.where if str(c).replace(">=", ">") not in strict or c.relation == ">")
        if where:
            beside = " and ".join(condition.told for condition in where)
            self.steps[-1] = replace(self.steps[-1], condition=beside)
        made = replace(cost, where=where).derivation(
            f"{kind}: {cost.title}", self.steps, exhibits=tuple(self.exhibits), notes=tuple(self.notes)
        )
        real = f"{cost.over}^*"
        has_real = question.domain.whole and question.wanted != "value" and any(s.name == real for s in self.steps)
        return replace(made, results=(real,)) if has_real else made


# -- witnesses --------------------------------------------------------------------------------------------------


def of_optimum(question: CostQuestion, name: str, said: Sequence[str], rule: str) -> Witness | None:
    """The witness of a step of an optimum; ``said`` are the steps before it, some of which say where it is."""
    cost, over = question.cost, question.cost.over

    def at(numbers: Numbers, x: Fraction) -> Fraction:
        return worked_out(cost.form, numbers.moved(over, x))

    def allowed(x: Fraction) -> bool:
        return x > 0 or x == 0 == question.domain.low

    def slope(numbers: Numbers) -> bool:
        x = numbers[over]
        step = x * _STEP
        low, here, high = (at(numbers, y) for y in (x - step, x, x + step))
        found = {"differentiate": (high - low) / (2 * step), "second order": (high - 2 * here + low) / step**2}[rule]
        size = abs(here) * (1 / x if rule == "differentiate" else 1 / x**2)
        return abs(numbers[name] - found) <= _NEAR * (abs(numbers[name]) + abs(found) + size)

    def best(numbers: Numbers) -> bool:
        place = numbers[name]
        if not allowed(place):
            return True  # no value is there to compare with
        in_range = rule in ("bounds", "compare", "whole numbers")

        def outside(x: Fraction) -> bool:
            return in_range and x not in question.domain

        whole = rule == "whole numbers" or (rule == "compare" and question.domain.whole)
        if (whole and place.denominator != 1) or outside(place):
            return False
        beside = [place - 1, place + 1] if whole else [place * (1 - _STEP), place * (1 + _STEP)]
        inside = [y for y in beside if allowed(y) and not outside(y)] if question.domain.divides is None else []
        here = question.sense * at(numbers, place)
        return all(question.sense * at(numbers, y) >= here - abs(here) / 10**30 for y in inside)

    def value(numbers: Numbers) -> bool:
        found = numbers[name]
        return any(abs(at(numbers, numbers[p]) - found) * 10**30 <= abs(found) for p in said if allowed(numbers[p]))

    if rule == "the cost":
        return lambda numbers: worked_out(cost.form, numbers)
    if rule == "unit":
        return lambda numbers: numbers[name] in [numbers[p] for p in said]
    if rule == "one more":
        return lambda numbers: at(numbers, numbers[over] + 1) - at(numbers, numbers[over])
    if rule in ("differentiate", "second order"):
        return slope
    return best if rule in _PLACES else value if rule == question.words[1] else None
