"""Exact quantities with their decimal and binary readings, in every dialect."""

from __future__ import annotations

import re

from symcomm.core.irrational import Irrational
from symcomm.core.printing.dialects import Dialect, DialectName
from symcomm.core.printing.forms import DIALECTS, print_form
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Quantity, decimal_text, decimals

_QUANTITY = re.compile(r"(-?)(\d+(?:\s\d{3})*)(\.\d+)?(?:/(\d+(?:\s\d{3})*))?(?:·10\^(-?\d+))?(?: (.*))?")


@dataclass(frozen=True)
class QuantityText:
    """One way to say a quantity: the relation before it, and its parts as they are read."""

    relation: str
    minus: bool
    groups: tuple[str, ...]
    decimals: str
    below: tuple[str, ...]
    exponent: str
    unit: str


def said(quantity: Quantity) -> tuple[QuantityText, ...]:
    """The ways to say a quantity, taken apart for the printers.

    >>> from symcomm.core.units import BYTE
    >>> from fractions import Fraction
    >>> [s.unit for s in said(Quantity(Fraction(3 * 2**30), BYTE))]
    ['B', 'GiB', 'GB']
    """
    out: list[QuantityText] = []
    for relation, text in quantity.lines():
        match = _QUANTITY.fullmatch(text.strip())
        if match is None:  # a text this pattern does not know is shown as it is
            out.append(QuantityText(relation, False, (), "", (), "", text))
            continue
        minus, whole, decimals, below, exponent, unit = match.groups()
        groups = tuple(re.findall(r"\d+", whole))
        lower = tuple(re.findall(r"\d+", below or ""))
        if len(groups) > 5 and not decimals and not lower and not exponent:  # 5.76·10^23 rather than all its noughts
            noughts = next(n for n, group in enumerate([*reversed(groups), "1"]) if group != "000")
            groups, exponent = (groups[:-noughts], str(3 * noughts)) if noughts > 2 else (groups, exponent)
        out.append(QuantityText(relation, bool(minus), groups, decimals or "", lower, exponent or "", unit or ""))
    return tuple(out)


def _amount(d: Dialect, s: QuantityText) -> str:
    number = d.digits([*s.groups[:-1], s.groups[-1] + s.decimals]) if s.groups else ""
    number = d.fraction(number, d.digits(s.below)) if s.below else number
    if s.exponent:
        number += d.dot + d.power_of_ten(s.exponent)
    unit = d.unit(s.unit) if s.unit else ""
    return (d.sign if s.minus else "") + number + (d.space if number and unit else "") + unit


RELATIONS: dict[str, dict[str, str]] = {
    name: {"": "", ":=": d.relations["="].strip(), **{sign: d.relations[sign].strip() for sign in "=≈"}}
    for name, d in DIALECTS.items()
}


def amounts(dialect: DialectName, quantity: Quantity) -> tuple[tuple[str, str], ...]:
    """The ways to say a quantity in a dialect, each with its printed relation.

    >>> from symcomm.core.units import BYTE
    >>> from fractions import Fraction
    >>> amounts("latex", Quantity(Fraction(2**30), BYTE))[1]
    ('=', '1\\\\ \\\\text{GiB}')
    """
    d = DIALECTS[dialect]
    ways = tuple((RELATIONS[dialect][s.relation], _amount(d, s)) for s in said(quantity))
    if isinstance(quantity, Irrational) and quantity.text and quantity.form is not None:  # the number is a formula
        unit = d.unit(str(quantity.unit)) if quantity.unit != ONE else ""
        written = print_form(d, quantity.form, None, None)
        if unit and quantity.text.startswith("("):
            written = f"<mo>(</mo>{written}<mo>)</mo>" if dialect == "mathml" else f"({written})"
        return (("", written + (d.space + unit if unit else "")), *ways[1:])
    return ways


def short(quantity: Quantity) -> str:
    """A quantity in one way, with a prefix: exact where one of its prefixes is, with a mark where digits are dropped.

    >>> from symcomm.core.units import BYTE
    >>> from fractions import Fraction
    >>> short(Quantity(Fraction(21 * 2**30), BYTE)), short(Quantity(Fraction(10**10, 3), BYTE))
    ('21 GiB', '≈ 3.333 GB')
    """
    ways = quantity.lines()
    if len(ways) == 1 and "second" in dict(quantity.unit.powers) and len(decimals(quantity.value)) > 6:
        return f"≈ {decimal_text(quantity.value, 4)} {quantity.unit}"
    if len(ways) == 1:
        return ways[0][1]
    found = next((way for way in ways[1:] if way[0] == "="), ways[1])
    return ("" if found[0] == "=" else "≈ ") + found[1]


def quantity_in(dialect: DialectName, quantity: Quantity) -> str:
    """A quantity in all its ways on one line.

    >>> from symcomm.core.units import BYTE
    >>> from fractions import Fraction
    >>> quantity_in("text", Quantity(Fraction(12 * 2**30), BYTE))
    '12 884 901 888 B = 12 GiB ≈ 12.88 GB'
    """
    joint = "" if dialect == "mathml" else " "
    return joint.join(p for pair in amounts(dialect, quantity) for p in pair if p)
