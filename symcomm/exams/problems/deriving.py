"""Derives one quantity as a document or the command line asks for it: by its name, with options and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from symcomm.core.accounting import Accounting
from symcomm.core.errors import ValuesError
from symcomm.core.notation import Notation

if TYPE_CHECKING:
    from symcomm.core.derivation import Derivation
    from symcomm.core.model import Model
    from symcomm.core.quantities.declared import DeclaredQuantity


def accounting_of(*layers: Iterable[tuple[str, str]]) -> Accounting:
    """The accounting of several layers of choices; a later one comes before an earlier one."""
    made = Accounting()
    for name, choice in (pair for layer in layers for pair in layer):
        made = Accounting.of(made, **{name: choice})
    return made


def no_model(notation: Notation | None = None) -> Model:
    """The empty model of a quantity that needs none: names only."""
    from symcomm.core.graph.graph import Graph
    from symcomm.core.model import Model

    return Model(Graph("no model", {}, {}, ()), notation=notation or Notation())


def derive(
    quantity: str | DeclaredQuantity, model: Model, options: Mapping[str, Any], accounting: Accounting,
    values: Mapping[str, Fraction], asked: tuple[str, ...] | None = None,
) -> Derivation:  # fmt: skip
    """Derives one quantity, by its name or as an author's worksheet says it.

    ``values`` are known besides the model's own, and come before them; ``asked`` are the conventions of which a note is
    wanted where they change nothing.
    """
    known = replace(model, values={**model.values, **values})
    sizes = {s.name for axis in model.graph.axes.values() for s in axis.size.free_symbols}
    sizes |= {region.times for region in model.graph.regions}
    for symbol, value in values.items():
        if symbol in sizes and value.denominator != 1:
            raise ValuesError(f"{symbol} is {value}, but a size is a whole number")
    return known.derive(quantity, accounting=accounting, asked=asked, **options)
