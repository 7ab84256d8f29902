"""Units in the algebra: a number with a unit counts units, and each base unit is a symbol that is worth one.

So ``6 s/m + o`` is differentiated and solved as ``6 second/m + o``, and what comes out has the right unit by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.errors import DerivationError
from symcomm.core.form import Form, Num, Power, Product, Ratio, Sym
from symcomm.core.libraries import Expr, sp
from symcomm.core.units import ONE, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping

_MARK = "*unit"  # no name of a person's has it


def counted(form: Form) -> Form:
    """The form with its units as symbols.

    >>> counted(Num(forms.num(6).number, Unit.parse("second"))).parts[1].name
    'second*unit'
    """
    if not isinstance(form, Num) or form.unit == ONE:
        return form.mapped(counted)
    units = ((Sym(base + _MARK, False), power) for base, power in form.unit.powers)
    return forms.product(forms.num(form.number), *(b if p == 1 else Power(b, forms.num(p)) for b, p in units))


def worth(expr: Expr) -> Expr:
    """The expression in numbers alone: one second is one."""
    return expr.xreplace({s: sp.Integer(1) for s in expr.free_symbols if s.name.endswith(_MARK)})


def with_units(form: Form, units: Mapping[str, Unit]) -> Form:
    """A form that the algebra gave, its units on its numbers and symbols again.

    >>> from symcomm.core.printing import plain
    >>> plain(with_units(Ratio(Product((forms.num(6), Sym("second*unit", False))), Sym("m")), {}))
    '6/m'
    """
    return times(*_split(form, units))


def in_unit(form: Form, unit: Unit) -> Form:
    """The form in a unit: what each of its terms lacks is on the term's number.

    >>> second = Unit.parse("second")
    >>> in_unit(forms.Total((Ratio(forms.num(6), Sym("m")), Sym("o", False, second))), second).parts[0].parts[0]
    Num(number=Fraction(6, 1), unit=Unit(powers=(('second', 1),)))
    """
    if isinstance(form, (forms.Total, forms.Largest, forms.Smallest)):
        return form.mapped(lambda part: in_unit(part, unit))
    try:
        return times(form, unit / forms.unit_of(form, {}))
    except DerivationError:  # the terms of a sum inside lack different units
        if isinstance(form, Ratio):
            return Ratio(in_unit(form.top, unit * forms.unit_of(form.bottom, {})), form.bottom)
        if not isinstance(form, Product):
            raise
        at = next(i for i, factor in enumerate(form.factors) if _mixed(factor))
        before, mine, behind = form.factors[:at], form.factors[at], form.factors[at + 1 :]
        rest = forms.unit_of(forms.product(*before, *behind), {})
        return Product((*before, in_unit(mine, unit / rest), *behind))


def _mixed(form: Form) -> bool:
    """Whether the terms of a form differ in their units, so that the whole has none."""
    try:
        forms.unit_of(form, {})
    except DerivationError:
        return True
    return False


def _split(form: Form, units: Mapping[str, Unit]) -> tuple[Form, Unit]:
    """A form without the units that multiply it, and these."""
    match form:
        case Sym(name) if name.endswith(_MARK):
            return forms.num(1), Unit(((name.removesuffix(_MARK), 1),))
        case Sym(name):
            return replace(form, unit=units.get(name, form.unit)), ONE
        case Power(base, Num(exponent)) if exponent.denominator == 1:
            inside, unit = _split(base, units)
            return (Power(inside, form.exponent) if inside != forms.num(1) else inside), unit ** int(exponent)
        case Product(factors):
            split = [_split(factor, units) for factor in factors]
            unit = ONE
            for _, one in split:
                unit = unit * one
            return forms.product(*(inside for inside, _ in split)), unit
        case Ratio(top, bottom):
            (above, unit), (below, less) = _split(top, units), _split(bottom, units)
            return (Ratio(above, below) if below != forms.num(1) else above), unit / less
    return form.mapped(lambda part: with_units(part, units)), ONE


def times(form: Form, unit: Unit) -> Form:
    """The form times a unit, which is on its number.

    >>> times(forms.product(forms.num(2), Sym("D")), Unit.parse("byte")).parts[0].unit
    Unit(powers=(('byte', 1),))
    """
    if unit == ONE:
        return form
    if isinstance(form, Num):
        return Num(form.number, form.unit * unit)
    if isinstance(form, Ratio):
        return Ratio(times(form.top, unit), form.bottom)
    if isinstance(form, Product):
        at = next((i for i, factor in enumerate(form.factors) if isinstance(factor, Num)), None)
        if at is not None:
            factors = list(form.factors)
            factors[at] = times(factors[at], unit)
            return Product(tuple(factors))
    return Product((Num(forms.num(1).number, unit), *(form.factors if isinstance(form, Product) else (form,))))
