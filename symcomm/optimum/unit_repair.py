"""Units put back on the numbers of a formula: the algebra took ``6 s / m`` for ``6 / m``."""

from __future__ import annotations

from fractions import Fraction

from symcomm import form as forms
from symcomm.errors import DerivationError
from symcomm.form import Form, Num, Power, Product, Ratio, Root
from symcomm.units import ONE, Unit


def with_unit(form: Form, unit: Unit) -> Form:
    """The form in a unit, numbers given what their terms lack; raises ``DerivationError`` where that cannot be.

    >>> from symcomm.form import Sym, num
    >>> second = Unit.parse("second")
    >>> with_unit(forms.Total((Ratio(num(6), Sym("m")), Sym("o", False, second))), second).parts[0].parts[0]
    Num(number=Fraction(6, 1), unit=Unit(powers=(('second', 1),)))
    """
    made = _go(form, unit)
    found = forms.unit_of(made, {})
    if found != unit:
        raise DerivationError(f"a formula in {found} is wanted in {unit}")
    return made


def _go(form: Form, unit: Unit) -> Form:
    match form:
        case Num(number, bare) if bare == ONE:
            return Num(number, unit)
        case forms.Total() | forms.Largest() | forms.Smallest():
            return type(form)(tuple(_go(part, unit) for part in form.parts))
        case Product(factors):
            return _product(factors, unit)
        case Ratio(top, bottom):
            below = _likely(bottom)
            return Ratio(_go(top, unit * below), _go(bottom, below))
        case Root(inside):
            return Root(_go(inside, unit**2))
        case Power(base, exponent):
            return Power(_go(base, _root(unit, _number(exponent))), exponent)
        case forms.Ceiling(inside) | forms.Floor(inside):
            return type(form)(_go(inside, unit))
    missing = unit / forms.unit_of(form, {})
    return form if missing == ONE else forms.Product((Num(Fraction(1), missing), form))


def _product(factors: tuple[Form, ...], unit: Unit) -> Form:
    made: list[Form] = []
    missing, unsure = unit, None
    for i, factor in enumerate(factors):
        if isinstance(factor, Num):
            made.append(factor)
            continue
        try:
            likely = _likely(factor)
        except DerivationError:  # a root such as √(6 o): it has what the others leave
            if unsure is not None:
                raise
            unsure = i
            made.append(factor)
            continue
        made.append(_go(factor, likely))
        missing = missing / likely
    if unsure is not None:
        made[unsure] = _go(factors[unsure], missing)
    elif missing != ONE:
        at = next((i for i, f in enumerate(made) if isinstance(f, Num)), None)
        if at is None:
            made.insert(0, Num(Fraction(1)))
        number = made[at or 0]
        assert isinstance(number, Num)
        made[at or 0] = Num(number.number, number.unit * missing)
    return Product(tuple(made))


def _likely(form: Form) -> Unit:
    """The unit of a piece, told by its first term that has one."""
    match form:
        case forms.Total() | forms.Largest() | forms.Smallest():
            return next((u for u in map(_likely, form.parts) if u != ONE), ONE)
        case Product(factors):
            made = ONE
            for factor in factors:
                made = made * _likely(factor)
            return made
        case Ratio(top, bottom):
            return _likely(top) / _likely(bottom)
        case Root(inside):
            return _root(_likely(inside), Fraction(2))
        case Power(base, exponent):
            unit = _likely(base)
            return _root(unit, 1 / _number(exponent))
        case forms.Ceiling(inside) | forms.Floor(inside):
            return _likely(inside)
    return forms.unit_of(form, {})


def _number(exponent: Form) -> Fraction:
    if forms.names(exponent):
        return Fraction(1)  # a quantity without a unit, or none that can be told: the last check decides
    return forms.evaluate(exponent, {}) or Fraction(1)


def _root(unit: Unit, power: Fraction) -> Unit:
    """The unit whose ``power`` is this one."""
    powers = [(base, p / power) for base, p in unit.powers]
    if any(p.denominator != 1 for _, p in powers):
        raise DerivationError(f"no unit to the power {power} is {unit}")
    return Unit(tuple((base, int(p)) for base, p in powers))
