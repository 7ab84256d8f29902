"""A model: its graph with number format, names and known values; the entry to every derivation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from symcomm.accounting import Accounting
from symcomm.derivation import Derivation, exact
from symcomm.dtypes import element_bytes
from symcomm.errors import AccountingError, StrategyError, SymcommError, TableError, ValuesError, nearest
from symcomm.form import evaluate, names
from symcomm.graph.build import build
from symcomm.graph.graph import Graph
from symcomm.notation import Notation
from symcomm.parallel.strategy import Strategy, parse_strategy
from symcomm.quantities import QUANTITIES
from symcomm.quantities.methods import DerivedQuantities
from symcomm.quantities.setting import Setting
from symcomm.text.finder import layer_tables
from symcomm.text.formula import parse_layer
from symcomm.text.table import Table
from symcomm.units import ONE


def _whole_ranks(setting: Setting, strategy: object) -> None:
    """Raises ``StrategyError`` where the number of ranks of a mesh axis is given as a fraction."""
    if isinstance(strategy, str) and strategy:
        strategy = parse_strategy(strategy)
    for axis, size in strategy.mesh if isinstance(strategy, Strategy) else ():
        if size is not None and {*names(size)} <= setting.values.keys():
            ranks = evaluate(size, setting.values)
            if ranks.denominator != 1:
                raise StrategyError(f"the mesh axis '{axis}' has {ranks} ranks", hint="a number of ranks is whole")


@dataclass(frozen=True)
class Model(DerivedQuantities):
    r"""A graph and what its numbers depend on besides; it has a method for each quantity that can be derived.

    >>> model = load("Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\n")
    >>> model.flops().expr, str(model.parameters().at(D=3, F=5))
    (2*B*D*F, '15 parameter')
    """

    graph: Graph
    name: str = "model"
    dtype: str = "fp16"
    values: Mapping[str, Fraction] = field(default_factory=dict)
    notation: Notation = field(default_factory=Notation)

    def derive(self, quantity: str, *, accounting: str | Accounting | Mapping[str, str] | None = None,
               **options: Any) -> Derivation:  # fmt: skip
        """The derivation of a quantity by its name; ``accounting`` is a name, a mapping or an ``Accounting``.

        Raises ``ValuesError`` for an unknown quantity or option, for a choice that there is not, and for a required
        option left out.
        """
        if quantity not in QUANTITIES:
            raise ValuesError(f"'{quantity[:60]}' cannot be derived", hint=nearest(quantity, [*QUANTITIES]))
        chosen = Accounting.of(**accounting) if isinstance(accounting, Mapping) else Accounting.of(accounting)
        known = self.graph.relations.complete(self.values)
        setting = Setting(self.graph, chosen, self.dtype, self.notation, known)
        said = {k: v for k, v in options.items() if v is not None}
        declared = QUANTITIES[quantity]
        declared.check(said)
        if declared.needs_model:
            _whole_ranks(setting, said.get("strategy"))
        return declared.derive(setting, **said)

    def at(self, /, **values: object) -> Model:
        """The same model with more values known."""
        return replace(self, values={**self.values, **{k: exact(v, k) for k, v in values.items()}})


def load(
    source: str | Path | Table,
    *,
    file: str | None = None,
    table: int | None = None,
    repeat: str = "",
    batch: str = "",
    dtype: str = "fp16",
    values: Mapping[str, object] | None = None,
    inputs: Iterable[str] = (),
    weights: Iterable[str] = (),
    notation: Notation | None = None,
    name: str = "",
) -> Model:
    """The model of a layer table: from a path, a text that holds the table, or a ``Table``.

    A text or file with several layer tables needs ``table`` (1 is the first). Raises ``TableError`` where there is no
    table with the columns Computation, Input and Output, and the errors of ``symcomm.graph.build.build``.
    """
    element_bytes(dtype)
    if not isinstance(source, Table):
        if isinstance(source, Path) or ("\n" not in source and len(source) < 1000):
            path = Path(source)
            file = file or str(source)
            text = read_text(path)
        else:
            text, file = source.removeprefix("\ufeff"), file or "<text>"
        found = layer_tables(text, file)
        if not found:
            raise TableError(
                f"{file}: there is no layer table", hint="a layer table has the columns Computation, Input and Output"
            )
        if table is None and len(found) > 1:
            lines = ", ".join(str(t.line) for t in found)
            raise TableError(f"{file}: there are {len(found)} layer tables (lines {lines})", hint="say which: table=1")
        if table is not None and not 1 <= table <= len(found):
            raise TableError(f"{file}: there is no layer table {table}", hint=f"there are {len(found)}")
        source = found[(table or 1) - 1]
    given = {k: exact(v, k) for k, v in (values or {}).items()}
    known = {*(notation.meanings if notation else ()), *given}
    rows = parse_layer(source)
    graph = build(rows, name=name or "layer", repeat=repeat, batch=batch, inputs=inputs, weights=weights, known=known)
    made = Model(graph, name or "layer", dtype, given, notation or Notation())
    graph.relations.complete(given)  # refuses values that contradict one another
    return made


_LARGEST_FILE = 2_000_000


def read_text(path: Path) -> str:
    """The text of a file; refuses one that is missing, too large or not UTF-8."""
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise SymcommError(f"{path}: {size} bytes; a file may have {_LARGEST_FILE}")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SymcommError(f"{path}: this is not UTF-8 text") from None
    except OSError as error:
        raise SymcommError(f"{path}: {error.strerror}", hint="give the path of a problem file or a table") from None


def ratio(a: Derivation, b: Derivation, title: str = "") -> Derivation:
    """The quotient of two derivations, with the steps of both; refuses ones under different accountings.

    Raises ``AccountingError`` naming both conventions where they differ.
    """
    from symcomm import form as forms
    from symcomm.derivation import Reason, Relations, Step

    accounting = a.same_accounting(b)
    equations = dict(a.relations.equations) | dict(b.relations.equations)
    if a.unit != b.unit:
        raise AccountingError(f"'{a.title}' is in {a.unit}, but '{b.title}' is in {b.unit}")
    # Both are counted in one unit, so their quotient is a number; the unit is told once, on each title.
    steps = [
        Step("a", forms.from_expr(a.expr), ONE, Reason("numerator", f"{a.title}, in {a.unit}.")),
        Step("b", forms.from_expr(b.expr), ONE, Reason("denominator", f"{b.title}, in {b.unit}.")),
        Step("r", forms.Ratio(forms.Sym("a"), forms.Sym("b")), ONE, Reason("divide", "One over the other.")),
    ]
    import sympy as sp

    relations = Relations(tuple(equations.items()))
    neat = sp.cancel(relations.expand(a.expr) / relations.expand(b.expr))
    steps.append(Step("r", forms.from_expr(neat), ONE, Reason("algebra", "Cancel."), "="))
    return Derivation(
        title or f"{a.title} over {b.title}", accounting, tuple(steps), tuple(dict.fromkeys((*a.touched, *b.touched))),
        relations, (), tuple({**dict(a.given), **dict(b.given)}.items()), a.notation,
    )  # fmt: skip


def peak_rate(clock: object = None, units: object = None, fma: object = None, accounting: Any = None) -> Derivation:
    """The peak rate of a processor.

    >>> str(peak_rate(clock="1.41 GHz", units=108, fma=512).at())
    '155 934 720 000 000 FLOP/s = 155.93472 TFLOP/s'
    """
    empty = Model(Graph("no model", {}, {}, ()))
    return empty.derive("peak_rate", accounting=accounting, clock=clock, units=units, fma=fma)
