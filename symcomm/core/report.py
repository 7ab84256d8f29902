"""Results for programs: derivations, answers and op tables as plain data, ready for JSON.

Numbers are exact and so are text: ``"12884901888"`` or ``"4096/3"``, never a float. Keys are only ever added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from typing import Any

from symcomm.core import form as forms
from symcomm.core import printing
from symcomm.core.derivation import Derivation, Step
from symcomm.core.drawing import kind_text, shape_text, shown_name
from symcomm.core.errors import Span, StrategyError
from symcomm.core.form import Form
from symcomm.core.graph import axis_roles
from symcomm.core.graph.graph import Graph
from symcomm.core.model import Model
from symcomm.core.notation import Notation
from symcomm.core.quantities.counting.flops import counted
from symcomm.core.setting import Setting
from symcomm.core.units import Quantity

READINGS: dict[str, Callable[[Graph], tuple[str, ...]]] = {
    "batch": axis_roles.batch_axes,
    "sequence": axis_roles.sequence_axes,
    "vocabulary": axis_roles.vocabulary_axes,
    "experts": axis_roles.expert_axes,
    "pairs": axis_roles.paired_axes,
}
FORMAT = 1  # raised only when a key changes its meaning


def number(value: Fraction) -> str:
    """An exact number as text.

    >>> number(Fraction(4096, 3))
    '4096/3'
    """
    return str(value)


def quantity(amount: Quantity) -> dict[str, Any]:
    """A quantity: the exact number, its unit, and how a person reads it."""
    return {"exact": number(amount.value), "unit": str(amount.unit), "text": str(amount)}


def derivation(made: Derivation, values: Mapping[str, Fraction] | None = None) -> dict[str, Any]:
    """A derivation with all its steps; ``value`` is there where all numbers are known."""
    known = made.relations.complete(dict(made.given) | dict(values or {}))
    missing = [name for name in made.needs if name not in known]
    return {
        "format": FORMAT,
        "title": made.title,
        "expression": str(made.expr),
        "latex": printing.tex(forms.from_expr(made.expr), None, made.notation),
        "unit": str(made.unit),
        "accounting": made.accounting.chosen(made.touched),
        "given": {name: number(value) for name, value in known.items()},
        "needs": missing,
        "value": None if missing else quantity(made.at(values)),
        "steps": [_step(made, step) for step in made.steps],
        "exhibits": [
            {
                "title": shown.title,
                "columns": list(shown.columns),
                "rows": [[cell(one, made.notation) for one in row] for row in shown.rows],
            }
            for shown in made.exhibits
        ],
        "notes": list(made.notes),
    }


def _step(made: Derivation, step: Step) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": step.name,
        "relation": step.relation,
        "form": printing.plain(step.form, None, made.notation),
        "latex": printing.tex(step.form, None, made.notation),
        "unit": str(step.unit),
        "reason": {"rule": step.reason.rule, "text": step.reason.text, "source": _place(step.reason.source)},
    }
    if step.condition:
        shown["condition"] = step.condition
    return shown


def _place(span: Span | None) -> dict[str, Any] | None:
    return None if span is None else {"file": span.file, "line": span.line, "cell": span.cell}


def cell(one: str | Form | Quantity, notation: Notation | None = None) -> str:
    """A cell of a table as plain text."""
    return printing.plain(one, None, notation) if isinstance(one, Form) else str(one)


def op_rows(model: Model) -> list[dict[str, Any]]:
    """One row an op of the forward pass: what it is, what it makes, its parameters and its FLOPs.

    A weight counts where it is first used; FLOPs are those of the matrix products, as ``flops`` counts them.
    """
    graph = model.graph
    setting = Setting(graph, dtype=model.dtype, notation=model.notation, values=model.values)
    flops = {op.name: setting.written(forms.value(form)) for op, form in counted(setting, graph, graph.ops)}
    seen: set[str] = set()
    rows: list[dict[str, Any]] = []
    for op in graph.ops:
        if op.phase != "forward":
            continue
        fresh = [n for n in dict.fromkeys(op.inputs) if graph.tensors[n].role == "weight" and n not in seen]
        seen.update(fresh)
        parameters = [setting.elements(name) for name in fresh]
        rows.append(
            {
                "row": op.row,
                "region": op.region,
                "op": op.output,
                "name": shown_name(op.output),
                "kind": kind_text(graph, op),
                "shape": shape_text(graph, op.output),
                "weights": fresh,
                "parameters": " + ".join(printing.plain(p, None, model.notation) for p in parameters),
                "flops": printing.plain(flops[op.name], None, model.notation) if op.name in flops else "",
                "source": _place(op.source),
            }
        )
    return rows


def axes(graph: Graph) -> dict[str, list[str]]:
    """The roles of axes by their sizes, as the ops show them: batch, sequence, vocabulary, experts.

    ``pairs`` are those that tensor parallelism cuts. What there is not, or what reads in two ways, is left out here; a
    strategy that needs it asks for it.

    >>> from symcomm.core.model import load
    >>> axes(load("Computation\\tInput\\tOutput\\ny = xW\\tx [B, D], W [D, F]\\ty [B, F]\\n").graph)
    {'batch': ['B']}
    """
    found: dict[str, list[str]] = {}
    for role, read in READINGS.items():
        with suppress(StrategyError):
            found[role] = [*dict.fromkeys(graph.axes[name].label for name in read(graph))]
    return found


def model(made: Model) -> dict[str, Any]:
    """A model: its ops, tensors, relations between sizes, and totals with their numbers where these are known."""
    graph = made.graph
    totals = {"parameters": made.parameters(), "flops": made.flops()}
    return {
        "format": FORMAT,
        "name": made.name,
        "dtype": made.dtype,
        "repeat": graph.repeat,
        "regions": [{"name": r.name, "times": r.times, "carried": [*map(list, r.carried)]} for r in graph.regions],
        "values": {name: number(Fraction(value)) for name, value in made.values.items()},
        "relations": [f"{n} = {printing.plain(right, None, made.notation)}" for n, right in graph.relations.equations],
        "reading": graph.reading(),
        "axes": axes(graph),
        "ops": op_rows(made),
        "tensors": [
            {"name": t.name, "role": t.role, "shape": shape_text(graph, t.name)} for t in graph.tensors.values()
        ],
        "edges": [{"tensor": name, "into": into} for _, into, name in graph.forward().nx.edges(data="tensor")],
        "totals": {name: _total(total) for name, total in totals.items()},
        "notes": list(graph.notes),
    }


def _total(made: Derivation) -> dict[str, Any]:
    shown = derivation(made)
    form = printing.plain(made.answer_form, None, made.notation)
    return {key: shown[key] for key in ("expression", "unit", "value")} | {"form": form}
