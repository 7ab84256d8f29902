"""Cells of exhibits: fractions on one line, numbers by their reading, columns of numbers to the right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from symcomm.core.derivation.steps import Exhibit
from symcomm.core.form import Form
from symcomm.core.irrational import Irrational
from symcomm.core.notation import Notation
from symcomm.core.printing.dialects import DialectName
from symcomm.core.printing.forms import inline
from symcomm.core.printing.quantities import amounts, said, short
from symcomm.core.records import dataclass
from symcomm.core.units import ONE, Converted, Quantity, decimal_text

NUMBER = re.compile(r"[-+−]?\d[\d\s]*(\.\d+)?(\s?%)?")
_LONG = re.compile(r"\d{5,40}")


@dataclass(frozen=True)
class Short(Quantity):
    """A quantity that a cell says in one way: with a prefix, exact where it can be.

    ``column`` is the unit of its whole column, with a prefix; an exact number longer than ``most`` is rounded there.
    """

    column: str = ""
    most: int = 9

    def lines(self) -> tuple[tuple[str, str], ...]:
        if not self.column:
            return super().lines()
        number = self.worth(self.column)
        text = decimal_text(number, 9)
        exact = Fraction(text.replace(" ", "").replace("·10^", "e")) == number
        if not exact or len(text) > self.most:
            text, exact = decimal_text(number, 4), False
        return (("" if exact else "≈", f"{text} {self.column}"),)

    def worth(self, unit: str) -> Fraction:
        """How many of a unit it is."""
        found = self.to(unit)
        return found.number if isinstance(found, Converted) else found.value

    @staticmethod
    def of(quantity: Quantity) -> Short:
        """The same amount, said in one way."""
        return Short(quantity.value, quantity.unit)


def cell_maths(dialect: DialectName, cell: object, notation: Notation | None = None) -> str | None:
    """A cell as maths in a dialect; None for text.

    An exact fraction that has a reading is left out: a column of times is compared, and the steps have shown it.

    >>> from symcomm.core.units import Unit
    >>> cell_maths("text", Quantity(Fraction(4096, 3), Unit.parse("FLOP/byte"))), cell_maths("text", "25302")
    ('≈ 1365.33 FLOP/B', '25 302')
    >>> cell_maths("text", "tensor") is None
    True
    """
    if isinstance(cell, Form):
        return inline(dialect, cell, notation)
    if isinstance(cell, str) and _LONG.fullmatch(cell):
        cell = Quantity(Fraction(cell))
    if not isinstance(cell, Quantity):
        return None
    if isinstance(cell, Short) and cell.column:
        return ("" if dialect == "mathml" else " ").join(filter(None, amounts(dialect, cell)[0]))
    if isinstance(cell, Short):
        lines, best = cell.lines(), short(cell)
        at = next((i for i, (_, text) in enumerate(lines) if text == best.removeprefix("≈ ")), 0)
        relation, text = amounts(dialect, Quantity(cell.value, cell.unit))[at]
        gap = "" if dialect == "mathml" else " "
        return f"{relation}{gap}{text}" if best.startswith("≈") else text
    joint = "" if dialect == "mathml" else " "
    return joint.join(part for pair in _ways(dialect, cell) for part in pair if part)


def _ways(dialect: DialectName, quantity: Quantity) -> tuple[tuple[str, str], ...]:
    ways = amounts(dialect, quantity)
    exact = said(quantity)[0]
    if len(ways) < 2 or not exact.below or isinstance(quantity, Irrational):
        return ways
    relation = ways[1][0] if said(quantity)[1].relation == "≈" else ""
    return ((relation, ways[1][1]), *ways[2:])


def in_one_unit(exhibit: Exhibit) -> Exhibit:
    """The table with one unit in each column of short numbers: the prefix of the greatest one.

    Where the least number would be below a hundredth of that, each keeps a prefix of its own: decimal ones, unless all
    are exact.

    >>> from symcomm.core.units import Unit
    >>> rows = tuple((Short(Fraction(n), Unit.parse("second")),) for n in ("0.0003", "0.0025"))
    >>> [cell_maths("text", row[0]) for row in in_one_unit(Exhibit("Times", ("t",), rows)).rows]
    ['0.3 ms', '2.5 ms']
    """
    columns = [_alike(column) for column in zip(*exhibit.rows, strict=True)]
    return replace(exhibit, rows=tuple(zip(*columns, strict=True)))


def _alike(column: Sequence[object]) -> list[object]:
    """A column whose short numbers of one unit are said in one way."""
    found = [*column]
    cells = [cell for cell in column if isinstance(cell, Short) and cell.value]
    cells = [cell for cell in cells if not cell.unit.is_count or len(cell.lines()) > 1]
    for base in {cell.unit for cell in cells} - {ONE}:  # a bare number has no prefix to share
        told = {cell: short(cell) for cell in cells if cell.unit == base}
        mixed = len({text.startswith("≈") for text in told.values()}) > 1
        if not mixed and len({*map(_unit, told.values())}) < 2:
            continue
        unit = _unit(told[max(told, key=lambda cell: abs(cell.value))])
        near = min(abs(cell.worth(unit)) for cell in told) * 100 >= 1
        if near or (mixed and str(base) != "s"):
            ways = {c: replace(c, column=unit if near else _unit(c.reading), most=6 if mixed else 9) for c in told}
            found = [ways.get(cell, cell) if isinstance(cell, Short) else cell for cell in found]
    return found


def _unit(text: str) -> str:
    return text.rpartition(" ")[2]


def to_the_right(exhibit: Exhibit) -> tuple[bool, ...]:
    """For each column, whether it holds numbers alone, each said in one way: they are set to the right.

    >>> to_the_right(Exhibit("Times", ("op", "ms"), (("y", "1 728.0"), ("h", "0.5"))))
    (False, True)
    """

    def number(cell: object) -> bool:
        if isinstance(cell, Short):
            return True
        if isinstance(cell, Quantity):
            return len(_ways("text", cell)) == 1
        return isinstance(cell, str) and (not cell or NUMBER.fullmatch(cell) is not None)

    columns = list(zip(*exhibit.rows, strict=True)) or [()] * len(exhibit.columns)
    return tuple(bool(any(column)) and all(number(cell) for cell in column) for column in columns)
