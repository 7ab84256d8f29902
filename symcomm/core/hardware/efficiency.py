"""Tables of efficiency: the share of a peak rate that is achieved, by the size of what is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from typing import Any

from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Applied, Form, NumericFunction
from symcomm.core.libraries import np
from symcomm.core.records import dataclass
from symcomm.core.units import BYTE, FLOP, ONE, Quantity, Unit

ROW_LIMIT = 200
_UNITS = {"products": FLOP, "memory": BYTE, "messages": BYTE}
_RATES = {"products": "the peak rate", "memory": "the bandwidth of the memory", "messages": "the bandwidth of a link"}
_SAMPLE = "products: 0 FLOP 1/10, 1 GFLOP 4/5; memory: 0 B 3/4"


@dataclass(frozen=True)
class Staircase(NumericFunction):
    """The share that is achieved from each amount on: of the peak rate, or of a bandwidth.

    >>> steps = staircase("products", "0 FLOP 1/10, 1 GFLOP 4/5")
    >>> steps.number((Fraction(10**8),)), steps.number((Fraction(10**9),))
    (Fraction(1, 10), Fraction(4, 5))
    """

    name: str
    unit: Unit = ONE
    rows: tuple[tuple[Fraction, Fraction], ...] = ()

    @property
    def key(self) -> str:
        """Its name with its rows."""
        return f"{self.name} {self.rows}"

    def number(self, arguments: tuple[Fraction, ...]) -> Fraction:
        """The share of the last row that begins at or below the amount.

        Raises ``ValuesError`` for an amount below the first row.
        """
        (amount,) = arguments
        if amount < self.rows[0][0]:
            raise self.gap(amount)
        return next(share for start, share in reversed(self.rows) if start <= amount)

    def numbers(self, arguments: Sequence[Any]) -> Any:
        """The same of an array."""
        starts, shares = (np.array([float(row[n]) for row in self.rows]) for n in (0, 1))
        at = np.searchsorted(starts, np.asarray(arguments[0], dtype=float) * (1 + 1e-12), side="right") - 1
        if (at < 0).any():
            raise self.gap(Fraction(float(np.min(arguments[0]))))
        return shares[at]

    def gap(self, amount: Fraction) -> ValuesError:
        """The refusal of an amount that the table does not reach."""
        unit = _UNITS[self.name]
        said, first = (Quantity(one, unit).reading for one in (amount, self.rows[0][0]))
        return ValuesError(f"the table of {self.name} begins at {first}, but {said} are asked for",
                           hint=f"a first row from 0 {unit}")  # fmt: skip

    @property
    def said(self) -> str:
        """Its rows for a reader, the last amounts first."""
        unit = _UNITS[self.name]
        return ", ".join(f"{Quantity(share, ONE).reading} from {Quantity(start, unit).reading}" if start else
                         f"{Quantity(share, ONE).reading} below" for start, share in reversed(self.rows))  # fmt: skip

    def of(self, amount: Form) -> Form:
        """The share of an amount, as a form."""
        return Applied(self, (amount,))


@dataclass(frozen=True)
class Efficiency:
    """The shares that a device achieves of its peak rate and its bandwidths.

    ``products`` may say so for single number formats; ``messages`` are of a link, by the bytes of a call. ``told`` is
    who measured it, when, and how far measurements were apart.
    """

    products: Mapping[str, Staircase] = field(default_factory=dict)
    memory: Staircase | None = None
    messages: Staircase | None = None
    told: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """The rows of each table, and who measured them, for a reader."""
        said = [f"Shares of {_RATES['products']}{f' in {dtype}' if dtype else ''}: {one.said}."
                for dtype, one in self.products.items()]  # fmt: skip
        others = [one for one in (self.memory, self.messages) if one is not None]
        said += [f"Shares of {_RATES[one.name]}: {one.said}." for one in others]
        return (*said, *([f"Measured: {self.told}."] if self.told else ()))

    def of_products(self, dtype: str) -> Staircase | None:
        """The table of a number format.

        Raises ``ValuesError`` where there are tables of others only.
        """
        found = self.products.get(dtype, self.products.get(""))
        if found is None and self.products:
            raise ValuesError(f"the table of products knows no {dtype}", hint=nearest(dtype, [*self.products]))
        return found


def staircase(name: str, text: str) -> Staircase:
    """The rows of a table: amounts with their unit, each with the share that is achieved from there on.

    Raises ``ValuesError`` for another unit, rows that do not rise, and a share that is not above 0 and at most 1.
    """
    rows: list[tuple[Fraction, Fraction]] = []
    for row in text.split(","):
        amount, _, share = row.strip().rpartition(" ")
        try:
            start, part = Quantity.parse(amount), Quantity.parse(share)
        except ValuesError as error:
            raise ValuesError(f"'{row.strip()[:40]}' is no row of a table of {name}", hint=_SAMPLE) from error
        if start.unit != _UNITS[name] or part.unit != ONE:
            raise ValuesError(f"'{row.strip()[:40]}' is no row of a table of {name}: it begins at {_UNITS[name]}",
                              hint=_SAMPLE)  # fmt: skip
        if not 0 < part.value <= 1:
            raise ValuesError(f"the share {share[:20]} of {_RATES[name]} is above 0 and at most 1", hint=_SAMPLE)
        if rows and start.value <= rows[-1][0]:
            raise ValuesError(f"the row '{row.strip()[:40]}' does not begin above the one before it", hint=_SAMPLE)
        rows.append((start.value, part.value))
    if len(rows) > ROW_LIMIT:
        raise ValuesError(f"a table of {len(rows)} rows; at most {ROW_LIMIT} are read")
    return Staircase(name, rows=tuple(rows))


def efficiency(text: str) -> Efficiency:
    """The tables in a text, by what they are of.

    >>> efficiency("products: 0 FLOP 1/2; memory: 0 B 3/4").memory.rows
    ((Fraction(0, 1), Fraction(3, 4)),)

    Raises ``ValuesError`` for an unknown table, or one that is named twice.
    """
    made: dict[str, Staircase] = {}
    for part in text.split(";"):
        name, _, rows = (one.strip() for one in part.partition(":"))
        if name not in _UNITS or name in made:
            what = f"the table of {name} is named twice" if name in made else f"'{name[:40]}' is no table of efficiency"
            raise ValuesError(what, hint=nearest(name, [*_UNITS]))
        made[name] = staircase(name, rows)
    products = {"": made["products"]} if "products" in made else {}
    return Efficiency(products, made.get("memory"), made.get("messages"))
