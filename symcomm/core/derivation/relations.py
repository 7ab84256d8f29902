"""Equations between symbols, and the exact numbers that symbols are given."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from numbers import Rational

from symcomm.core import form as forms
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form
from symcomm.core.irrational import Irrational
from symcomm.core.libraries import Expr, sp
from symcomm.core.notation import amount, symbol
from symcomm.core.printing.forms import plain
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Quantity, Unit


@dataclass(frozen=True)
class Relations:
    """Equations that hold between symbols, such as ``D = n_H H``: each eliminates the symbol on its left.

    >>> str(Relations((("D", forms.product(forms.Sym("n_H"), forms.Sym("H"))),)).expand(forms.value(forms.Sym("D"))))
    'H*n_H'
    """

    equations: tuple[tuple[str, Form], ...] = ()

    @cached_property
    def _names(self) -> tuple[tuple[str, ...], ...]:
        """The names in each equation."""
        return tuple((name, *forms.names(right)) for name, right in self.equations)

    def expand(self, expr: Expr) -> Expr:
        """The expression without the eliminated symbols."""
        for name, right in reversed(self.equations):
            if expr.has(symbol(name)):
                expr = _put(expr, symbol(name), forms.value(right))
        return expr

    def gather(self, expr: Expr) -> Expr:
        """The expression with a whole right-hand side written as its symbol: ``n_H H`` becomes ``D``."""

        def one(term: Expr, left: Expr, right: dict[Expr, Expr], scale: Expr) -> Expr:
            coefficient, rest = term.as_coeff_Mul()
            powers = dict(rest.as_powers_dict())
            times = min((powers.get(s, 0) // p for s, p in right.items()), default=0)
            if times < 1:
                return term
            for s, p in right.items():
                powers[s] -= p * times
            powers[left] = powers.get(left, 0) + times
            return coefficient / scale**times * sp.Mul(*(s**p for s, p in powers.items()))

        for name, right_form in self.equations:
            scale, monomial = forms.value(right_form).as_coeff_Mul()
            right = dict(monomial.as_powers_dict())
            if len(right) < 2 or not all(s.is_Symbol and p.is_Integer and p > 0 for s, p in right.items()):
                continue
            left = symbol(name)
            if all(expr.has(s) for s in right):
                expr = sp.Add(*(one(t, left, right, scale) for t in sp.Add.make_args(sp.expand(expr))))
        return expr

    def complete(self, values: Mapping[str, Fraction]) -> dict[str, Fraction]:
        """The values with what the equations imply; raises ``ValuesError`` where they contradict one another."""
        known = dict(values)
        for _ in range(len(self.equations) + 1):
            before = len(known)
            for (name, right), names in zip(self.equations, self._names, strict=True):
                unknown = [n for n in names if n not in known]
                if not unknown:
                    given = forms.evaluate(right, known)
                    if given != known[name]:
                        numbers = plain(right, {n: known[n] for n in forms.names(right)})
                        raise ValuesError(
                            f"the given numbers break {name} = {plain(right)}: {name} = {known[name]}, "
                            f"but {plain(right)} = {numbers} = {given}",
                            hint=f"change one of {', '.join((name, *forms.names(right)))}",
                        )
                elif unknown == [name]:
                    known[name] = forms.evaluate(right, known)
                elif len(unknown) == 1:
                    x = symbol(unknown[0])
                    equation = forms.value(right, {n: rational(known[n]) for n in forms.names(right) if n in known})
                    solved = sp.solve(equation - rational(known[name]), x) if equation.has(x) else []
                    if equation.has(x) and not solved:  # a size is a whole number
                        said = ", ".join(f"{n} = {known[n]}" for n in (name, *forms.names(right)) if n in known)
                        raise ValuesError(f"{said} leaves no whole number for {x} in {name} = {plain(right)}")
                    if len(solved) == 1 and solved[0].is_Rational:
                        known[unknown[0]] = Fraction(int(solved[0].p), int(solved[0].q))
            if len(known) == before:
                return known
        return known


def rational(number: Fraction) -> Expr:
    """An exact number as SymPy has it."""
    return sp.Rational(number.numerator, number.denominator)


def exact(value: object, name: str = "a value", unit: Unit = ONE) -> Fraction:
    """An exact number from an int, a Fraction or text with a unit; floats are refused, they are not exact.

    A value in another unit than ``unit`` is refused, such as GB for a bandwidth in B/s; a bare number is taken to be in
    it, and any unit is taken where ``unit`` is not said.

    >>> exact("1.41 GHz"), exact(3), exact("2 ms", "t", Unit.parse("second"))
    (Fraction(1410000000, 1), Fraction(3, 1), Fraction(1, 500))
    """
    if type(value) is Fraction:
        return readable(value, name)
    if isinstance(value, bool):
        raise ValuesError(f"{name} is {value}: a number is needed")
    if isinstance(value, Rational):  # NumPy's integers, too
        return readable(Fraction(int(value.numerator), int(value.denominator)), name)
    if isinstance(value, Irrational):
        raise ValuesError(f"{name} is irrational, about {float(value.value):.6g}: an exact number is needed")
    if isinstance(value, (str, Quantity)):
        said = (Quantity.parse(value) if isinstance(value, str) else value).within(unit)
        if ONE not in (said.unit, unit) and said.unit != unit:
            raise ValuesError(f"{name} is given in {said.unit}, but it is in {unit}", hint=f"write it in {unit}")
        return said.value
    if isinstance(value, float):
        raise ValuesError(
            f"{name} is the float {value!r}, which is not exact", hint=f'write "{value!r}" as text or a Fraction'
        )
    raise ValuesError(f"{name} is {type(value).__name__}: a number is needed")


_BITS = 3.322  # of a decimal digit


def readable(value: Fraction, name: str, digits: int = 1000) -> Fraction:
    """A number as it is; raises ``ValuesError`` where it has more digits."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _BITS * digits:
        raise ValuesError(f"{name} has more than {digits:,} digits", hint="sizes, rates and times have a few")
    return value


def put(values: Mapping[str, Fraction], without: str = "") -> dict[Expr, Expr]:
    """Numbers to be put into an expression, whichever kind of symbol a name is there; none for ``without``.

    >>> [str(number) for number in put({"n": Fraction(1, 2)}).values()]
    ['1/2', '1/2']
    """
    return {s: rational(v) for name, v in values.items() if name != without for s in (symbol(name), amount(name))}


def _put(expr: Expr, name: Expr, worth: Expr) -> Expr:
    """The expression with a symbol's worth; unlike SymPy's, it does not compare all choices of each maximum anew."""
    if expr == name or not expr.has(name):
        return worth if expr == name else expr
    parts = [_put(part, name, worth) for part in expr.args]
    return forms.extreme(expr.func, parts) if isinstance(expr, (sp.Max, sp.Min)) else expr.func(*parts)
