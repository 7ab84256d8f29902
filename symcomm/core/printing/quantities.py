"""Exact quantities with their decimal and binary readings, in every dialect."""

from __future__ import annotations

import re
from collections.abc import Callable

from symcomm.core.irrational import Irrational
from symcomm.core.printing.dialects import _NARROW, _SUPERSCRIPT, LATEX, DialectName
from symcomm.core.printing.escape import html_text, printable, tex_text, typst_string
from symcomm.core.printing.forms import PRINTERS
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Quantity, decimal_text, decimals

_QUANTITY = re.compile(r"(-?)(\d+(?:\s\d{3})*)(\.\d+)?(?:/(\d+(?:\s\d{3})*))?(?:·10\^(-?\d+))?(?: (.*))?")
# What stands in the singular in a unit is counted in the plural: 8 elements, 18 links/GPU.
_COUNTED = re.compile(
    r"^(element|parameter|token|sample|layer|stage|step|word|link|message|iteration|GPU|SM|minute|hour|day|week)(?=$|/)"
)


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
        unit = (unit or "") if re.match(r"-?1 \D", text.strip()) else _COUNTED.sub(r"\1s", unit or "")
        out.append(QuantityText(relation, bool(minus), groups, decimals or "", lower, exponent or "", unit))
    return tuple(out)


_UNIT_POWER = re.compile(r"\^(-?\d+)")


def _amount_tex(s: QuantityText) -> str:
    number = r"\,".join(s.groups) + s.decimals
    if s.below:
        number = LATEX.fraction(number, LATEX.digits(s.below))
    if s.exponent:
        number += rf" \cdot 10^{{{s.exponent}}}"
    parts = [tex_text_unit(p) for p in _UNIT_POWER.split(s.unit)[::2]]
    powers = _UNIT_POWER.findall(s.unit)
    unit = "".join(p + (f"^{{{powers[i]}}}" if i < len(powers) else "") for i, p in enumerate(parts))
    space = r"\ " if number and unit else ""
    return ("-" if s.minus else "") + number + space + unit


def tex_text_unit(unit: str) -> str:
    r"""A unit's name in LaTeX maths; signs stand outside of ``\text``, since ``$`` in it would end Markdown's maths.

    >>> tex_text_unit("FLOP/(B·s)"), tex_text_unit("µs")
    ('\\text{FLOP/(B}\\cdot\\text{s)}', '\\mu\\text{s}')
    """
    parts = re.split("([·µ])", unit)
    return "".join({"·": r"\cdot", "µ": r"\mu", "": ""}.get(p, rf"\text{{{tex_text(p)}}}") for p in parts)


def _amount_typst(s: QuantityText) -> str:
    number = " thin ".join(s.groups)
    if s.decimals:
        # A dot between digits is one number only where the digits touch it.
        number = " thin ".join([*s.groups[:-1], s.groups[-1] + s.decimals])
    if s.below:
        number = f"frac({number}, {' thin '.join(s.below)})"
    if s.exponent:
        number += f" dot.c 10^({s.exponent})"
    unit = typst_string(_superscripts(s.unit)) if s.unit else ""
    return ("-" if s.minus else "") + " med ".join(p for p in (number, unit) if p)


def _superscripts(unit: str) -> str:
    return _UNIT_POWER.sub(lambda m: m[1].translate(_SUPERSCRIPT), unit)


def _amount_mathml(s: QuantityText) -> str:
    number = f"<mn>{_NARROW.join(s.groups)}{s.decimals}</mn>" if s.groups else ""
    if s.below:
        number = f"<mfrac>{number}<mn>{_NARROW.join(s.below)}</mn></mfrac>"
    if s.exponent:
        number += f"<mo>·</mo><msup><mn>10</mn><mn>{s.exponent.replace('-', '−')}</mn></msup>"
    unit = f"<mtext>{html_text(_superscripts(s.unit))}</mtext>" if s.unit else ""
    space = '<mspace width="0.25em"></mspace>' if number and unit else ""
    return ('<mo form="prefix">−</mo>' if s.minus else "") + number + space + unit


def _amount_text(s: QuantityText) -> str:
    number = " ".join(s.groups) + s.decimals + (f"/{' '.join(s.below)}" if s.below else "")
    number += f"·10{s.exponent.translate(_SUPERSCRIPT)}" if s.exponent else ""
    return ("-" if s.minus else "") + " ".join(p for p in (number, _superscripts(printable(s.unit))) if p)


_AMOUNT: dict[str, Callable[[QuantityText], str]] = {
    "latex": _amount_tex,
    "typst": _amount_typst,
    "mathml": _amount_mathml,
    "text": _amount_text,
}
RELATIONS: dict[str, dict[str, str]] = {
    "latex": {"=": "=", ":=": "=", "≈": r"\approx", "": ""},
    "typst": {"=": "=", ":=": "=", "≈": "approx", "": ""},
    "mathml": {"=": "<mo>=</mo>", ":=": "<mo>=</mo>", "≈": "<mo>≈</mo>", "": ""},
    "text": {"=": "=", ":=": "=", "≈": "≈", "": ""},
}


def amounts(dialect: DialectName, quantity: Quantity) -> tuple[tuple[str, str], ...]:
    """The ways to say a quantity in a dialect, each with its printed relation.

    >>> from symcomm.core.units import BYTE
    >>> from fractions import Fraction
    >>> amounts("latex", Quantity(Fraction(2**30), BYTE))[1]
    ('=', '1\\\\ \\\\text{GiB}')
    """
    ways = tuple((RELATIONS[dialect][s.relation], _AMOUNT[dialect](s)) for s in said(quantity))
    if isinstance(quantity, Irrational) and quantity.text and quantity.form is not None:
        # The exact number is a formula; its unit is written as that of an amount without a number.
        alone = QuantityText("", False, (), "", (), "", str(quantity.unit))
        unit = _AMOUNT[dialect](alone) if quantity.unit != ONE else ""
        gap = {"latex": r"\ ", "typst": " med ", "mathml": '<mspace width="0.25em"></mspace>', "text": " "}[dialect]
        written = PRINTERS[dialect](quantity.form, None, None)
        if unit and quantity.text.startswith("("):
            written = f"<mo>(</mo>{written}<mo>)</mo>" if dialect == "mathml" else f"({written})"
        return (("", written + (gap + unit if unit else "")), *ways[1:])
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
        number, _, unit = ways[0][1].rpartition(" ")
        return ways[0][1] if not number or quantity.value == 1 else number + " " + _COUNTED.sub(r"\1s", unit)
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
