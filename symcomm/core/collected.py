"""Formulas collected into monomials with exact coefficients, to be evaluated many times.

A sum of monomials is a mapping from powers of names to a coefficient. What is no polynomial (the largest of several, a
ceiling, the inverse of a sum) is a node with a name of its own, so that a monomial is made of names only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, reduce
from itertools import count
from typing import TypeVar

from symcomm.core import form as forms
from symcomm.core.errors import IrrationalError, ValuesError
from symcomm.core.form import (
    Algebra,
    Ceiling,
    Elementwise,
    Floor,
    Form,
    Logarithm,
    Num,
    Power,
    Product,
    Ratio,
    Related,
    Summed,
    Sym,
    Total,
    Transposed,
)
from symcomm.core.records import dataclass

Monomial = tuple[tuple[str, int], ...]  # names in order, with powers that are not zero
Terms = dict[Monomial, int | Fraction]  # whole coefficients are ints: Fractions take many times as long to add
WholeNumbers = tuple[int, int]  # above and below the line
Value = TypeVar("Value")

_WIDE = 400  # terms: a product of sums with more stays a product
_HIGH = 4  # the highest power of a sum that is multiplied out
_ONE: Monomial = ()


@dataclass(frozen=True)
class CollectedNode:
    """A form that is no polynomial: a form of the names 0, 1, ..., and the sums that they stand for."""

    shape: Form
    parts: tuple[Terms, ...]


@dataclass(frozen=True)
class Collected:
    """Sums of monomials by name, and the nodes in them, in an order in which they can be worked out.

    >>> made = collect([("t", forms.product(Sym("k"), Total((Sym("k"), forms.num(3)))))], ("t",))
    >>> made.at({"k": Fraction(2)})["t"]
    Fraction(10, 1)
    """

    nodes: tuple[tuple[str, CollectedNode], ...]
    sums: tuple[tuple[str, Terms], ...]

    @property
    def names(self) -> frozenset[str]:
        """The names that need a value."""
        made = {name for name, _ in self.nodes}
        every = (terms for _, node in self.nodes for terms in node.parts)
        used = {name for terms in (*every, *(terms for _, terms in self.sums)) for m in terms for name, _ in m}
        return frozenset(used - made)

    def only(self, *wanted: str) -> Collected:
        """Some of the sums, and the nodes that they need."""
        sums = tuple((name, terms) for name, terms in self.sums if name in wanted)
        needed = {name for _, terms in sums for m in terms for name, _ in m}
        kept = []
        for name, node in reversed(self.nodes):
            if name in needed:
                kept.append((name, node))
                needed |= {inner for part in node.parts for m in part for inner, _ in m}
        return Collected(tuple(reversed(kept)), sums)

    def at(self, values: Mapping[str, Fraction]) -> dict[str, Fraction]:
        """The exact number of every sum. Raises ``ValuesError`` where there is none."""
        made = self.worked_out(in_whole_numbers(values))
        return {name: _fraction(*number) for (name, _), number in zip(self.sums, made, strict=True)}

    def worked_out(self, known: Mapping[str, WholeNumbers]) -> list[WholeNumbers]:
        """The same in order, in whole numbers that are not cancelled; ``known`` may have more names."""
        nodes, monomials, sums = self._whole
        if nodes:
            known = dict(known)
            for name, shape, inside, parts in nodes:
                every = _multiplied_out(inside, known)
                worth = forms.evaluate(shape, {str(n): _fraction(*_added_up(p, every)) for n, p in enumerate(parts)})
                known[name] = worth.numerator, worth.denominator
        every = _multiplied_out(monomials, known)
        return [_added_up(terms, every) for terms in sums]

    @cached_property
    def _whole(self) -> tuple[list[tuple[str, Form, list[_Powers], list[_Sum]]], list[_Powers], list[_Sum]]:
        """The nodes and the sums in whole numbers; sums that are worked out together share their monomials."""
        nodes = [(name, node.shape, *_in_whole_numbers(node.parts)) for name, node in self.nodes]
        return nodes, *_in_whole_numbers([terms for _, terms in self.sums])

    def evaluated(
        self,
        values: Mapping[str, Value],
        add_up: Callable[[Terms, Mapping[str, Value]], Value],
        shaped: Callable[[Form, Mapping[str, Value]], Value],
    ) -> dict[str, Value]:
        """Every sum, by a way to add up monomials and one to work out the form of a node."""
        known = dict(values)
        for name, node in self.nodes:
            known[name] = shaped(node.shape, {str(n): add_up(part, known) for n, part in enumerate(node.parts)})
        return {name: add_up(terms, known) for name, terms in self.sums}


_Powers = tuple[list[tuple[str, int]], list[tuple[str, int]]]  # of a monomial, above and below the line
_Sum = list[tuple[int, int, int]]  # a coefficient, above and below the line, and the place of its monomial


def in_whole_numbers(values: Mapping[str, Fraction]) -> dict[str, WholeNumbers]:
    """Each number as what is above and below its line."""
    return {name: (value.numerator, value.denominator) for name, value in values.items()}


def _in_whole_numbers(sums: Iterable[Terms]) -> tuple[list[_Powers], list[_Sum]]:
    places: dict[Monomial, int] = {}
    found = [
        [(c.numerator, c.denominator, places.setdefault(m, len(places))) for m, c in terms.items()] for terms in sums
    ]
    return [([(n, p) for n, p in m if p > 0], [(n, -p) for n, p in m if p < 0]) for m in places], found


def _multiplied_out(monomials: Iterable[_Powers], known: Mapping[str, WholeNumbers]) -> list[WholeNumbers]:
    found = []
    for above, below in monomials:
        top = bottom = 1
        for name, power in above:
            over, under = known[name]
            top *= over if power == 1 else over**power
            if under != 1:
                bottom *= under if power == 1 else under**power
        for name, power in below:
            over, under = known[name]
            bottom *= over if power == 1 else over**power
            if under != 1:
                top *= under if power == 1 else under**power
        if not bottom:
            raise ValuesError("a division by zero")
        found.append((top, bottom))
    return found


def _added_up(terms: _Sum, monomials: Sequence[WholeNumbers]) -> WholeNumbers:
    if len(terms) == 1:
        [(over, under, place)] = terms
        top, bottom = monomials[place]
        return over * top, under * bottom
    found: dict[int, int] = {}
    for over, under, place in terms:
        top, bottom = monomials[place]
        bottom *= under
        found[bottom] = found.get(bottom, 0) + over * top
    if len(found) == 1:
        [(bottom, top)] = found.items()
        return top, bottom
    added = sum((Fraction(top, bottom) for bottom, top in found.items()), Fraction(0))
    return added.numerator, added.denominator


def _fraction(top: int, bottom: int) -> Fraction:
    return Fraction(top) if bottom == 1 else Fraction(top, bottom)


Shared = dict[int, tuple[Form, Terms]]  # forms that name no step, each with its monomials


def collect(
    steps: Iterable[tuple[str, Form]], wanted: Iterable[str], numbers: Mapping[str, Fraction] | None = None,
    shared: Shared | None = None, mark: str = "",
) -> Collected:  # fmt: skip
    """The wanted steps, with those before them and ``numbers`` put in; the names of nodes have a ``mark``.

    What is ``shared`` with a collection of other steps and the same numbers is worked out once. Raises ``ValuesError``
    for a division by zero.
    """
    made = _Collector(dict(steps), numbers or {}, {} if shared is None else shared, mark)
    sums = tuple((name, made.name(name)) for name in wanted)
    return Collected(tuple(made.nodes.items()), sums).only(*(name for name, _ in sums))


class _Collector:
    """The steps as they are worked out; each node is made once."""

    def __init__(self, steps: Mapping[str, Form], numbers: Mapping[str, Fraction], shared: Shared, mark: str) -> None:
        self.steps, self.numbers, self.shared, self.mark = steps, numbers, shared, mark
        self.own = 0  # how often something of these steps alone was met
        self.known: dict[str, Terms] = {}
        self.nodes: dict[str, CollectedNode] = {}
        self.made: dict[tuple[Form, tuple[frozenset[tuple[Monomial, int | Fraction]], ...]], str] = {}

    def name(self, name: str) -> Terms:
        self.own += name in self.steps
        if name not in self.known:
            given: Terms = _constant(Fraction(self.numbers[name])) if name in self.numbers else {((name, 1),): 1}
            self.known[name] = self(self.steps[name]) if name in self.steps else given
        return self.known[name]

    def __call__(self, form: Form) -> Terms:
        if isinstance(form, Sym):
            return self.name(form.name)
        if isinstance(form, Num):
            return _constant(form.number)
        if id(form) in self.shared:
            return self.shared[id(form)][1]
        own = self.own
        found = _SUMS(form, self)
        if own == self.own:
            self.shared[id(form)] = form, found
        return found

    def product(self, factors: list[Terms]) -> Terms:
        top, bottom, powers = 1, 1, dict[str, int]()
        sums: list[Terms] = []
        for factor in factors:
            if len(factor) != 1:
                sums.append(factor)
                continue
            [(monomial, coefficient)] = factor.items()
            top, bottom = top * coefficient.numerator, bottom * coefficient.denominator
            for name, power in monomial:
                powers[name] = powers.get(name, 0) + power
        found: Terms = {_monomial(powers): Fraction(top, bottom) if bottom != 1 else top}
        for other in sums:
            found = self.times(found, other)
        return found

    def times(self, a: Terms, b: Terms) -> Terms:
        if len(a) > 1 and len(b) > 1 and len(a) * len(b) > _WIDE:
            b = self.node(Sym("0"), (b,))
        found: Terms = {}
        for left, x in a.items():
            for right, y in b.items():
                key = _multiplied(left, right)
                found[key] = found[key] + x * y if key in found else x * y
        return {key: c for key, c in found.items() if c}

    def power(self, base: Terms, exponent: int) -> Terms:
        if len(base) == 1:
            return _raised(base, exponent)
        if not base and exponent < 0:
            raise ValuesError("a division by zero")
        if 0 <= exponent <= _HIGH:
            return reduce(self.times, [base] * exponent, _constant(Fraction(1)))
        return _raised(self.node(Sym("0"), (base,)), exponent)

    def node(self, shape: Form, parts: tuple[Terms, ...]) -> Terms:
        """The name of a node; a number where nothing in it has a name."""
        self.own += 1
        if all(not m for part in parts for m in part):
            try:
                values = {str(n): Fraction(part.get(_ONE, 0)) for n, part in enumerate(parts)}
                return _constant(forms.evaluate(shape, values))
            except IrrationalError:
                pass
        key = shape, tuple(frozenset(part.items()) for part in parts)
        if key not in self.made:
            self.made[key] = f"#{self.mark}{len(self.made)}"
            self.nodes[self.made[key]] = CollectedNode(shape, parts)
        return {((self.made[key], 1),): 1}


def _power(form: Power, terms: _Collector) -> Terms:
    if isinstance(form.exponent, Num) and form.exponent.number.denominator == 1:
        return terms.power(terms(form.base), int(form.exponent.number))
    return _node(form, terms)


def _node(form: Form, terms: _Collector) -> Terms:
    shape, inside = _shape(form)
    return terms.node(shape, tuple(map(terms, inside)))


_SUMS: Algebra[Terms] = Algebra({
    Total: lambda form, terms: _added([*map(terms, form.terms)]),
    Product: lambda form, terms: terms.product([*map(terms, form.factors)]),
    Ratio: lambda form, terms: terms.times(terms(form.top), terms.power(terms(form.bottom), -1)),
    Power: _power,
}, _node)  # fmt: skip


def _shape(form: Form) -> tuple[Form, tuple[Form, ...]]:
    """A form over the names 0, 1, ..., and what they stand for."""
    if isinstance(form, (Summed, Related, Transposed, Elementwise)):
        raise TypeError(f"no monomials for {type(form).__name__}")
    if isinstance(form, (Ceiling, Floor)) and isinstance(form.inside, Logarithm):  # exact only together
        shape, inside = _shape(form.inside)
        return type(form)(shape), inside
    names = (Sym(str(n)) for n in count())
    return form.mapped(lambda part: next(names)), form.parts


def _constant(number: Fraction) -> Terms:
    return {_ONE: number.numerator if number.denominator == 1 else number} if number else {}


def _raised(monomial: Terms, exponent: int) -> Terms:
    [(powers, coefficient)] = monomial.items()
    exact = coefficient if exponent > 0 else Fraction(coefficient)  # Python's power of an int may be a float
    return {tuple((name, p * exponent) for name, p in powers if exponent): exact**exponent}


def _added(parts: list[Terms]) -> Terms:
    found: Terms = dict(parts[0]) if parts else {}
    for part in parts[1:]:
        for monomial, coefficient in part.items():
            found[monomial] = found[monomial] + coefficient if monomial in found else coefficient
    return {monomial: c for monomial, c in found.items() if c}


def _multiplied(left: Monomial, right: Monomial) -> Monomial:
    if not left or not right:
        return left or right
    powers = dict(left)
    for name, power in right:
        powers[name] = powers.get(name, 0) + power
    return _monomial(powers)


def _monomial(powers: Mapping[str, int]) -> Monomial:
    return tuple(sorted((name, power) for name, power in powers.items() if power))
