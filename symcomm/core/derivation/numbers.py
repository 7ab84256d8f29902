"""The numbers at which witnesses run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from symcomm.core import form as forms
from symcomm.core.derivation.relations import Relations, rational
from symcomm.core.errors import IrrationalError, LongNumberError, ValuesError
from symcomm.core.form import Form
from symcomm.core.libraries import sp
from symcomm.core.real_numbers import number_of

_SMALL = 10**6
_TINY = (12, 24, 8, 36, 6, 48, 18, 4, 60, 16, 2, 72)


class Numbers(dict[str, Fraction]):
    """Numbers by name: the known ones, and tiny ones, made on demand, that keep the relations."""

    def __init__(self, known: Mapping[str, Fraction], relations: Relations, seed: int = 0) -> None:
        super().__init__(known)
        self.made = seed
        self.rules = dict(relations.equations)

    def __missing__(self, name: str) -> Fraction:
        for left, right in self.rules.items():  # the rest of a whole that is known: D = n_H H
            if name in forms.names(right) and left in self:
                others = {n: self[n] for n in forms.names(right) if n != name and n in self}
                free = [n for n in forms.names(right) if n not in others]
                unit = forms.evaluate(right, {**others, **dict.fromkeys(free, Fraction(1))})
                self[name] = dict.__getitem__(self, left) / unit
                return self[name]
        if name in self.rules:
            self[name] = forms.evaluate(self.rules[name], {n: self[n] for n in forms.names(self.rules[name])})
        else:
            self[name] = Fraction(_TINY[self.made % len(_TINY)])
            self.made += 1
        return self[name]

    def only(self, names: Iterable[str]) -> Numbers:
        """Numbers that know some names and make up the same ones for others."""
        return Numbers(self.of(names), Relations(tuple(self.rules.items())), self.made)

    def moved(self, name: str, value: Fraction) -> Numbers:
        """The same with another number under a name, and what a relation makes of it."""
        made = self.only(self)
        made[name] = value
        for left, right in self.rules.items():
            if name in forms.names(right):
                made[left] = forms.evaluate(right, made.of(forms.names(right)))
        return made

    def of(self, names: Iterable[str]) -> dict[str, Fraction]:
        """The numbers of some names."""
        return {name: self[name] for name in names}


def worked_out(form: Form, numbers: Numbers) -> Fraction:
    """The number of a form, to 40 digits where it is irrational or long."""
    known = numbers.of(forms.names(form))
    try:
        return forms.evaluate(form, known)
    except LongNumberError:
        near = number_of(form, known)
        if near is None:
            raise
        return near
    except IrrationalError:
        # Decimals, where they are no small whole numbers: roots of exact ones would be taken apart into primes first.
        put = {name: sp.Float(rational(n), 80) if n.denominator > 1 or abs(n) > _SMALL else rational(n)
               for name, n in known.items()}  # fmt: skip
        near = sp.N(forms.value(form, put), 40)
        if not (near.is_Float or near.is_Rational):  # cos(2) times nothing is an exact 0
            raise ValuesError(f"{near} is not a real number") from None
        return Fraction(str(near))
