"""Forms at exact random points modulo primes, where equal formulas are equal and others differ.

A rational formula of degree d that is not zero vanishes at a random point with a chance of d in 2^61 (Schwartz 1980,
Zippel 1979), at two points modulo two primes with its square. Each symbol is the twelfth power of a random number, so
that roots of products are exact, too; what is rounded, compared or has a logarithm is an unknown number of its own,
the same for the same arguments: equal there means equal, different there means that real numbers have to decide.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import product as combinations_of

from symcomm.core import form as forms
from symcomm.core.derivation import Relations
from symcomm.core.errors import SymcommError
from symcomm.core.form import Form, Num, Product, Ratio, Root, Sym
from symcomm.core.records import dataclass

# Square roots of small primes exist modulo each, and cube roots are unique.
PRIMES = (2305843009213682039, 2305843009213679711)
_ROOTS = 12
_MIXED = 0x10001
_SMALL_PRIMES = (2, 3, 5, 7, 11, 13)

Residues = tuple[int, ...]


class NoNumberError(Exception):
    """A formula has no number there: a division by zero, a root of a negative number."""


@dataclass(frozen=True)
class ResiduePoint:
    """Numbers modulo a prime: the worth of each symbol, and its twelfth root or what it is made of."""

    prime: int
    values: Mapping[str, int]
    roots: Mapping[str, int | Form]

    def worth(self, form: Form) -> int:
        """The residue of a form; raises ``NoNumberError``."""
        if type(form) is Sym:  # names and products are nearly all that is asked for
            return self.values[form.name]
        if type(form) is Product:
            found = 1
            for factor in form.factors:
                found = found * self.worth(factor) % self.prime
            return found
        return _RESIDUES(form, self)

    def inverse(self, number: int) -> int:
        """The residue whose product with another one is 1."""
        if not number:
            raise NoNumberError("division by zero")
        return pow(number, -1, self.prime)

    def root(self, form: Form, q: int) -> int:
        """The positive root of a form."""
        match form:
            case Sym(name):
                found = self.roots[name]
                if isinstance(found, int):
                    return pow(found, _ROOTS // q, self.prime) if _ROOTS % q == 0 else self.mix(6, q, found)
                return self.root(found, q)
            case Num(number):
                return _number_root(number, q, self.prime)
            case Product(factors):
                numbers, found = Fraction(1), 1
                for f in factors:
                    if isinstance(f, Num):
                        numbers *= f.number
                    else:
                        found = found * self.root(f, q) % self.prime
                return found * _number_root(numbers, q, self.prime) % self.prime
            case Ratio(top, bottom):
                return self.root(top, q) * self.inverse(self.root(bottom, q)) % self.prime
            case forms.Power(base, Num(n)):
                found = self.root(base, q * n.denominator)
                return pow(found if n > 0 else self.inverse(found), abs(n.numerator), self.prime)
            case Root(inside):
                return self.root(inside, 2 * q)
        return self.mix(6, q, self.worth(form))

    def mix(self, *numbers: int) -> int:
        """A number that depends on others in no way that a formula could."""
        found = 0x9E3779B97F4A7C15 % self.prime
        for n in numbers:
            found = pow(found * 0xBF58476D1CE4E5B9 + n + 1, _MIXED, self.prime)
        return found


@lru_cache(maxsize=4096)
def _residue(number: Fraction, prime: int) -> int:
    if number.denominator == 1:
        return number.numerator % prime
    bottom = number.denominator % prime
    if not bottom:
        raise NoNumberError("division by zero")
    return number.numerator * pow(bottom, -1, prime) % prime


def _power(form: forms.Power, point: ResiduePoint) -> int:
    exponent = form.exponent
    if not isinstance(exponent, Num):
        if not forms.names(exponent):
            return _power(forms.Power(form.base, Num(forms.evaluate(exponent, {}))), point)
        return point.mix(5, point.worth(form.base), point.worth(exponent))
    n, q = exponent.number.numerator, exponent.number.denominator
    base = point.worth(form.base) if q == 1 else point.root(form.base, q)
    return pow(point.inverse(base), -n, point.prime) if n < 0 else pow(base, n, point.prime)


def _extreme(form: forms.Largest | forms.Smallest, point: ResiduePoint) -> int:
    flat = {point.worth(c) for c in _flat(type(form), form.choices)}
    return flat.pop() if len(flat) == 1 else point.mix(2 if isinstance(form, forms.Largest) else 3, *sorted(flat))


_RESIDUES: forms.Algebra[int] = forms.Algebra({
    Num: lambda form, point: _residue(form.number, point.prime),
    forms.Total: lambda form, point: sum(map(point.worth, form.terms)) % point.prime,
    Ratio: lambda form, point: point.worth(form.top) * point.inverse(point.worth(form.bottom)) % point.prime,
    forms.Power: _power,
    Root: lambda form, point: point.root(form.inside, 2),
    forms.Ceiling: lambda form, point: point.mix(1, point.worth(form.inside)),
    forms.Floor: lambda form, point: -point.mix(1, -point.worth(form.inside) % point.prime) % point.prime,  # -⌈-x⌉
    forms.Largest: _extreme,
    forms.Smallest: _extreme,
    forms.Logarithm: lambda form, point: point.mix(7 + form.base, point.worth(form.inside)),
    forms.BinaryOnes: lambda form, point: point.mix(4, point.worth(form.inside)),
    forms.Applied: lambda form, point: point.mix(1000 + len(form.rule.name), *map(point.worth, form.arguments)),
}, forms.refused("number", NoNumberError))  # fmt: skip


def _flat(kind: type[Form], choices: tuple[Form, ...]) -> Iterator[Form]:
    for c in choices:
        if type(c) is kind:
            yield from _flat(kind, c.choices)  # type: ignore[attr-defined]
        else:
            yield c


@lru_cache(maxsize=4096)
def _number_root(number: Fraction, q: int, prime: int) -> int:
    if number < 0:
        raise NoNumberError("not a real number")
    if number == 0:
        return 0
    above, below = (_whole_root(n, q, prime) for n in (number.numerator, number.denominator))
    return above * pow(below, -1, prime) % prime


def _whole_root(number: int, q: int, prime: int) -> int:
    found = 1
    for small in _SMALL_PRIMES:
        while number % small == 0:
            number //= small
            found = found * _prime_root(small, q, prime) % prime
    return found * (_prime_root(number, q, prime) if number > 1 else 1) % prime


@lru_cache(maxsize=4096)
def _prime_root(number: int, q: int, prime: int) -> int:
    found = number % prime
    while q % 2 == 0:
        found, q = min(r := pow(found, (prime + 1) // 4, prime), prime - r), q // 2
    while q % 3 == 0:
        found, q = pow(found, pow(3, -1, prime - 1), prime), q // 3
    return found if q == 1 else pow(found * q + 17, _MIXED, prime)


def is_rational(form: Form) -> bool:
    """Whether a form has sums, products, fractions and whole powers only, so that residues decide.

    >>> from symcomm.core.form import num
    >>> is_rational(Ratio(Sym("a"), num(2))), is_rational(Root(Sym("a")))
    (True, False)
    """
    for piece in forms.walk(form):
        kind = type(piece)
        if kind is forms.Power:
            exponent = piece.exponent  # type: ignore[attr-defined]
            if not isinstance(exponent, Num) or exponent.number.denominator != 1:
                return False
        elif kind not in (Num, Sym, Product, forms.Total, Ratio):
            return False
    return True


def points(
    symbols: Mapping[str, bool], relations: Relations, fixed: Mapping[str, Fraction], seed: int
) -> list[tuple[ResiduePoint, ...]]:
    """Random points at which the relations hold and some symbols are ``fixed``.

    Each is a tuple of one point modulo each prime. There are several where a relation can be kept in several ways: a
    head dimension that is not said follows from the number of heads, or the other way round.
    """
    ways: list[list[tuple[str, Form]]] = []
    for left, right in relations.equations:
        group = [left, *forms.names(right)]
        loose = [n for n in group if n in symbols and n not in fixed]
        if not loose:
            continue
        held = [n for n in group if n in fixed]
        ways.append([made for name in (held or [left]) if (made := _solved(left, right, name)) is not None]
                    or [(left, right)])  # fmt: skip
    found: list[tuple[ResiduePoint, ...]] = []
    for chosen in list(combinations_of(*ways))[:4]:
        rng = random.Random(seed)  # noqa: S311  (probes, not secrets)
        found.append(tuple(_point(prime, symbols, dict(chosen), fixed, rng) for prime in PRIMES))
    return found


def _solved(left: str, right: Form, name: str) -> tuple[str, Form] | None:
    """A relation solved for one of its names, where it is a product of names."""
    if name == left:
        return left, right
    factors = right.factors if isinstance(right, Product) else ()
    if not all(isinstance(f, (Sym, Num)) for f in factors) or sum(f == Sym(name) for f in factors) != 1:
        return None
    others = tuple(f for f in factors if f != Sym(name))
    return name, Ratio(Sym(left), Product(others) if len(others) > 1 else others[0])


def _point(
    prime: int, symbols: Mapping[str, bool], dependent: Mapping[str, Form], fixed: Mapping[str, Fraction],
    rng: random.Random,
) -> ResiduePoint:  # fmt: skip
    values: dict[str, int] = {}
    roots: dict[str, int | Form] = {}
    for name in sorted({*symbols, *fixed}):
        number = fixed.get(name)
        if number is not None and name not in dependent:
            values[name], roots[name] = _residue(number, prime), Num(number)
        else:
            root = rng.randrange(2, prime - 1)
            values[name], roots[name] = pow(root, _ROOTS, prime), root
    point = ResiduePoint(prime, values, roots)
    for name, form in dependent.items():
        values[name], roots[name] = point.worth(form), form
    return point


def real_points(
    symbols: Mapping[str, bool], relations: Relations, fixed: Mapping[str, Fraction]
) -> list[dict[str, Fraction]]:
    """Real points at which the relations hold: small numbers and large ones, squares among them."""
    rng = random.Random(20261122)  # noqa: S311  (probes, not secrets)
    made: list[dict[str, Fraction]] = []
    for n in range(6):
        found: dict[str, Fraction] = {}
        for name, whole in sorted(symbols.items()):
            size = rng.randrange(2, (60, 4_000, 300_000)[n % 3])
            found[name] = fixed.get(name, Fraction(size**2 if n % 2 else size) / (1 if whole or n % 2 else 7))
        for left, right in relations.equations:
            if not {left, *forms.names(right)} <= fixed.keys():
                try:
                    found[left] = forms.evaluate(right, found)
                except (SymcommError, KeyError):
                    continue
        made.append(found)
    return made
