"""The same answer under other conventions: what the number would be, and by which factor it differs.

Each is derived like the answer itself, with one choice of its accounting changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from symcomm.core import form as forms
from symcomm.core.accounting import CONVENTIONS, Accounting
from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.errors import SymcommError
from symcomm.core.form import Form, num
from symcomm.core.libraries import Expr, sp
from symcomm.core.printing import short
from symcomm.core.units import Quantity

# The fields in which people count the same thing differently; the others say how something runs.
FIELDS = (
    "communication", "pipeline", "gathered_weights", "input_gradient", "flops", "operations", "attention",
    "model_flops", "accumulation",
)  # fmt: skip
_LEFT_OUT = (
    "contributed", "sent_and_received_per_rank", "layers", "whole_units", "at_once", "reduced_every_microbatch",
)  # fmt: skip
_STEPS, _ROWS = 24, 4  # of longer derivations another one takes too long


def others(
    derivation: Derivation, values: Mapping[str, Fraction], again: Callable[[Accounting], Derivation]
) -> Exhibit | None:
    """A table of the other conventions that change this number, with the factor; None where there are none.

    ``again`` derives the same under an accounting.
    """
    if len(derivation.steps) > _STEPS:
        return None
    rows: list[tuple[str | Form | Quantity, ...]] = []
    for row in CONVENTIONS:
        asked = row.field in derivation.touched and row.field in FIELDS and row.name not in _LEFT_OUT
        if not asked or getattr(derivation.accounting, row.field) == row.name:
            continue
        try:
            other = again(replace(derivation.accounting, **{row.field: row.name}))
            quantity = _at(other, values)
        except SymcommError:  # nothing of that kind can be asked here
            continue
        factor = _factor(other.expr, derivation.expr)
        if factor is None or factor == num(1) or other.unit != derivation.unit:
            continue
        number = _number(factor, values, derivation)
        told = row.statement[0].lower() + row.statement[1:].rstrip(".")
        rows.append((f"{told}: ×", factor, f"= {number}" if number else "", f"({short(quantity)})" if quantity else ""))
        if len(rows) == _ROWS:
            break
    return Exhibit("", ("counted otherwise", "factor", "", "number"), tuple(rows)) if rows else None


def _at(derivation: Derivation, values: Mapping[str, Fraction]) -> Quantity | None:
    known = derivation.values(values)
    return derivation.at(values) if all(name in known for name in derivation.needs) else None


def _factor(other: Expr, mine: Expr) -> Form | None:
    """The one over the other, where that is simpler than either of them."""
    if mine == 0 or other == 0:
        return None
    ratio = sp.cancel(other / mine) if other.is_rational_function() and mine.is_rational_function() else other / mine
    if ratio.count_ops() > 6:
        return None
    return forms.from_expr(sp.factor(ratio))


def _number(factor: Form, values: Mapping[str, Fraction], derivation: Derivation) -> str:
    """What a factor with symbols is worth; empty for a number, and where it has none."""
    known = derivation.values(values)
    if not forms.names(factor) or any(name not in known for name in forms.names(factor)):
        return ""
    worth = forms.evaluate(factor, known)
    return str(worth)
