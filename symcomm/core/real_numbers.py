"""The real number of a form: exact where it is rational and not too long, else to 50 digits; SymPy is never asked.

Digits can cancel, so that two formulas differ only where intervals that hold the numbers for certain do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

from symcomm.core import form as forms
from symcomm.core.collected import Collected, WholeNumbers, collect, in_whole_numbers
from symcomm.core.errors import IrrationalError, SymcommError
from symcomm.core.form import Algebra, Form, Num, Power, Root, Sym, of_parts
from symcomm.core.records import dataclass

if TYPE_CHECKING:
    from mpmath import MPContext

_DIGITS = 50
_MORE_DIGITS = 500  # where the intervals of 50 digits are too wide
_BITS = 60_000  # of an exact number
_EXPONENT = 40_000  # of two, in a number to 50 digits
_USUAL = 128  # bits of a given number, as sizes, rates and times have them at most


def number_of(form: Form, values: Mapping[str, Fraction], near: _ApproximateNumbers | None = None) -> Fraction | None:
    """The number of a form, to 50 digits where it is irrational or long; None where there is none.

    >>> number_of(Root(Num(Fraction(9))), {}), number_of(forms.Ratio(Num(Fraction(1)), Num(Fraction(0))), {})
    (Fraction(3, 1), None)
    """
    try:
        if _bits(form, values) < _BITS:
            return forms.evaluate(form, values)
    except IrrationalError:
        pass
    except (SymcommError, KeyError, OverflowError):
        return None
    return _near(form, values, near)


@dataclass(frozen=True)
class FormNumber:
    """A form whose number is wanted at many values: collected once, so that each is a few products of whole numbers.

    >>> FormNumber(forms.Ratio(Sym("a"), Sym("b"))).at({"a": Fraction(3), "b": Fraction(2)})
    Fraction(3, 2)
    """

    form: Form

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names in it, in order."""
        return forms.names(self.form)

    @cached_property
    def _collected(self) -> Collected | None:
        try:
            if _bits(self.form, dict.fromkeys(self.names, Fraction(1 << _USUAL))) < _BITS:
                return collect([("=", self.form)], ("=",))
        except (SymcommError, TypeError, ArithmeticError):
            pass
        return None

    def at(self, values: Mapping[str, Fraction], near: _ApproximateNumbers | None = None) -> Fraction | None:
        """The result of ``number_of``, faster where all numbers are positive and of usual length.

        ``near`` knows pieces of other forms at the same values.
        """
        collected = self._collected
        if collected is not None and all(name in values and _is_usual(values[name]) for name in self.names):
            try:
                return collected.at({name: values[name] for name in self.names})["="]
            except IrrationalError:
                return _near(self.form, values, near)
            except SymcommError:  # there is none
                pass
        return number_of(self.form, values, near)


@dataclass(frozen=True)
class FormNumbers:
    """Several forms whose numbers are wanted at the same values: what they have in common is worked out once.

    >>> FormNumbers((FormNumber(Sym("a")), FormNumber(forms.Ratio(Sym("a"), Sym("b"))))).at({"a": Fraction(3)})
    [(3, 1), None]
    """

    several: tuple[FormNumber, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names in them, in order."""
        return tuple(dict.fromkeys(name for one in self.several for name in one.names))

    @cached_property
    def _collected(self) -> dict[frozenset[str], _AtOnce]:
        """By the names that have usual numbers: what is worked out at once."""
        return {}

    def together(self, known: Iterable[str]) -> _AtOnce:
        """The steps that some usual numbers decide at once: all that need no others."""
        names = frozenset(known)
        if names not in self._collected:
            places = [n for n, one in enumerate(self.several) if names.issuperset(one.names) and one._collected]
            try:
                made = collect([(f"={n}", self.several[n].form) for n in places], [f"={n}" for n in places])
            except (SymcommError, TypeError, ArithmeticError):
                places, made = [], Collected((), ())
            self._collected[names] = _AtOnce(tuple(places), made)
        return self._collected[names]

    def at(self, values: Mapping[str, Fraction]) -> list[WholeNumbers | None]:
        """The number of each alone, above and below a line and perhaps not cancelled; None where there is none."""
        known = {name: values[name] for name in self.names if name in values and _is_usual(values[name])}
        together = self.together(known)
        found: dict[int, WholeNumbers | None] = {}
        with suppress(SymcommError):  # of one of them
            found.update(zip(together.places, together.made.worked_out(in_whole_numbers(known)), strict=True))
        near = _ApproximateNumbers(_digits(), values)
        for n, one in enumerate(self.several):
            if n not in found:
                number = one.at(values, near)
                found[n] = None if number is None else (number.numerator, number.denominator)
        return [found[n] for n in range(len(self.several))]


@dataclass(frozen=True)
class _AtOnce:
    """Some of several forms, by their places, collected."""

    places: tuple[int, ...]
    made: Collected


def _is_usual(number: Fraction) -> bool:
    top = number.numerator
    return top > 0 and top.bit_length() + number.denominator.bit_length() <= _USUAL


def is_exact(form: Form, values: Mapping[str, Fraction]) -> bool:
    """Whether ``number_of`` works a form out exactly: nothing irrational is in it, and it is not too long."""
    for piece in forms.walk(form):
        whole = isinstance(piece, Power) and isinstance(piece.exponent, Num) and piece.exponent.number.denominator == 1
        if isinstance(piece, (Root, forms.Logarithm, Power)) and not whole:
            return False
    return _bits(form, values) < _BITS


def _bits(form: Form, values: Mapping[str, Fraction]) -> float:
    """A bound of the digits of two that the exact number takes, above and below."""
    return _LENGTHS.named(lambda sym, go: _length(values[sym.name]))(form)


def _length(number: Fraction) -> float:
    return number.numerator.bit_length() + number.denominator.bit_length()


def _power_length(power: Power, go: Callable[[Form], float]) -> float:
    exponent = power.exponent
    times = max(1.0, float(abs(exponent.number))) if isinstance(exponent, Num) else 2.0 ** min(60.0, go(exponent))
    return go(power.base) * times


_LENGTHS: Algebra[float] = Algebra(
    {Num: lambda num, go: _length(num.number), Power: _power_length}, lambda form, go: 1.0 + sum(map(go, form.parts)),
)  # fmt: skip


@lru_cache(maxsize=1)
def _digits() -> MPContext:
    """Arithmetic with 50 digits, which nobody else changes."""
    from mpmath import MPContext

    context = MPContext()
    context.dps = _DIGITS
    return context


def _near(form: Form, values: Mapping[str, Fraction], near: _ApproximateNumbers | None = None) -> Fraction | None:
    context = _digits()
    try:
        found = (near or _ApproximateNumbers(context, values)).go(form)
    except (ArithmeticError, ValueError, TypeError, KeyError, SymcommError):
        return None
    if not context.isfinite(found) or isinstance(found, context.mpc):
        return None
    sign, mantissa, exponent, _ = found._mpf_
    if abs(exponent) > 2 * _EXPONENT:
        return None
    whole, power = Fraction(int(mantissa)), int(exponent)
    size = whole * Fraction(1 << power) if power >= 0 else whole / Fraction(1 << -power)
    return -size if sign else size


def are_apart(one: Form, other: Form, values: Mapping[str, Fraction]) -> bool:
    """Whether two forms have different numbers for certain; otherwise they may be equal.

    >>> two = forms.Product((forms.Root(forms.num(2)), forms.Root(forms.num(2))))
    >>> are_apart(two, forms.num(2), {}), are_apart(two, forms.Num(Fraction(2) + Fraction(1, 10**60)), {})
    (False, True)
    """
    from mpmath.ctx_iv import MPIntervalContext

    for digits in (_DIGITS, _MORE_DIGITS):
        context = MPIntervalContext()
        context.dps = digits
        try:
            certain = _certain_numbers(context, values)
            found = certain(one) - certain(other)
        except (ArithmeticError, ValueError, TypeError, KeyError, SymcommError):
            return False
        if (found.a > 0) is True or (found.b < 0) is True:
            return True
    return False


class _ApproximateNumbers:
    """Works forms out in numbers of 50 digits; pieces that several forms have once, by identity."""

    def __init__(self, context: MPContext, values: Mapping[str, Fraction]) -> None:
        self._algebra = _near_numbers(context, values)
        self._known: dict[int, tuple[Form, Any]] = {}

    def go(self, form: Form) -> Any:
        if id(form) not in self._known:
            self._known[id(form)] = form, self._algebra(form, self.go)
        return self._known[id(form)][1]


def _near_numbers(mp: Any, values: Mapping[str, Fraction]) -> Algebra[Any]:
    """Numbers of many digits."""

    def logarithm(inside: Any, base: int) -> Any:
        if inside <= 0:
            raise ValueError("no logarithm")
        return mp.log(inside, base) if base else mp.log(inside)

    def power(base: Any, exponent: Any) -> Any:  # of a positive number, or a whole power
        if base < 0 and exponent != mp.floor(exponent):
            raise ValueError("not a real number")
        if base and exponent * mp.log(abs(base), 2) > _EXPONENT:  # one that is too small vanishes in a sum
            raise ValueError("too large")
        return base**exponent

    return _reals(mp, values, {
        forms.Total: mp.fsum, forms.Product: mp.fprod, Power: power, Root: lambda inside: power(inside, mp.mpf(1) / 2),
        forms.Ceiling: mp.ceil, forms.Floor: mp.floor, forms.Logarithm: logarithm,
    })  # fmt: skip


def _certain_numbers(mp: Any, values: Mapping[str, Fraction]) -> Algebra[Any]:
    """Intervals that hold the number of a form; raises ``ValueError`` where none is known."""
    from mpmath import mpf, workprec
    from mpmath.libmp import mpf_floor

    def floor(inside: Any) -> Any:
        with workprec(mp.prec):
            low, high = (mpf(mpf_floor(end)) for end in inside._mpi_)
        return mp.mpf([low, high])

    def extreme(pick: Callable[..., Any], choices: list[Any]) -> Any:
        return mp.mpf([pick(c.a for c in choices).a, pick(c.b for c in choices).b])

    def logarithm(inside: Any, base: int) -> Any:
        if not inside.a > 0:
            raise ValueError("no logarithm")
        return mp.log(inside) / mp.log(mp.mpf(base)) if base else mp.log(inside)

    def root(inside: Any) -> Any:  # of what lies above zero: below, a real root has nothing
        if inside.b < 0:
            raise ValueError("not a real number")
        return mp.sqrt(inside if inside.a >= 0 else mp.mpf([0, inside.b]))

    def power(base: Any, exponent: Any) -> Any:
        whole = exponent.a == exponent.b and floor(exponent).a == exponent.a
        size = abs(base).b
        if size > 0 and abs(exponent).b * abs(mp.log(size)).b > _EXPONENT:
            raise ValueError("too large")
        if whole is True:
            return base ** int(exponent.a)
        if not base.a > 0:
            raise ValueError("a root of what may be negative")
        return mp.exp(exponent * mp.log(base))

    return _reals(mp, values, {
        Power: power, Root: root, forms.Ceiling: lambda inside: -floor(-inside), forms.Floor: floor,
        forms.Logarithm: logarithm, forms.Largest: partial(extreme, max), forms.Smallest: partial(extreme, min),
    })  # fmt: skip


def _reals(mp: Any, values: Mapping[str, Fraction], functions: Mapping[type[Form], Callable[..., Any]]) -> Algebra[Any]:
    """Real numbers of a kind: ``functions`` differ from Python's operators, what has no function here is exact."""

    def number(exact: Fraction) -> Any:
        return mp.mpf(exact.numerator) / exact.denominator

    return Algebra({
        **of_parts({**forms.OPERATORS, **functions}),
        Num: lambda num, go: number(num.number),
        Sym: lambda sym, go: number(Fraction(values[sym.name])),
    }, lambda form, go: number(forms.evaluate(form, values)))  # fmt: skip
