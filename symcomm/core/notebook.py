"""How a model shows itself in a notebook: a line, and as Markdown or HTML its layer tables and its drawing to open."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from symcomm.core import drawing
from symcomm.core import form as forms
from symcomm.core.errors import RenderError, SymcommError
from symcomm.core.printing import html_text, markdown_text, math_element, mathml, plain
from symcomm.core.text import tree
from symcomm.core.text.finder import read_tables
from symcomm.core.text.formula import parse_layer
from symcomm.core.text.table import LAYER_COLUMNS
from symcomm.core.text.tree import size_form

if TYPE_CHECKING:
    from symcomm.core.derivation import Derivation
    from symcomm.core.graph.graph import Graph, Region

_CALL = re.compile(r"(?<![\\A-Za-z{])([A-Za-z]{2,})(?=_|\()")
_BETWEEN = re.compile(r"(?<=\]),\s+")  # from one tensor's shape to the next tensor


class Shown(Protocol):
    """The parts of a model that are shown."""

    @property
    def name(self) -> str: ...
    @property
    def graph(self) -> Graph: ...
    @property
    def tables(self) -> Sequence[str]: ...
    @property
    def values(self) -> Mapping[str, object]: ...
    @property
    def notes(self) -> Sequence[str]: ...
    def parameters(self) -> Derivation: ...


def summary(model: Shown) -> str:
    """A model in a line: its regions with how often each occurs, its ops and its parameters.

    >>> from symcomm.core.model import load
    >>> summary(load("Computation\\tInput\\tOutput\\ny = xW\\tx [B, D], W [D, D]\\ty [B, D]\\n", repeat="N"))
    'N × layer; 1 op, D²·N parameters'
    """
    ops = sum(op.phase == "forward" for op in model.graph.ops)
    counted = f"{ops} op{'s' if ops != 1 else ''}"
    try:
        made = model.parameters()
        known = made.relations.complete(dict(made.given))
        missing = [name for name in made.needs if name not in known]
        number = forms.from_expr(made.expr) if missing else forms.num(made.at().value)
    except SymcommError:  # a line about a model is never an error
        return f"{_regions(model, model.graph.regions)}; {counted}"
    return f"{_regions(model, model.graph.regions)}; {counted}, {plain(number)} parameters"


def _regions(model: Shown, regions: tuple[Region, ...]) -> str:
    return ", ".join(f"{model.values.get(r.times, r.times)} × {r.name}" if r.times else r.name for r in regions)


def _tables(model: Shown) -> list[tuple[str, list[list[str]]]]:
    """Each layer table under the regions that its rows are in, its cells as maths between dollar signs."""
    graph, found = model.graph, []
    for text in model.tables:
        _, *lines = text.splitlines()
        inside = {op.region for op in graph.ops if op.source is not None and op.source.text in lines}
        regions = tuple(r for r in graph.regions if r.name in inside or len(graph.regions) == 1)
        rows = [
            [_maths(cell) for cell in line.split("\t")] for line in lines if line and line != "\t".join(LAYER_COLUMNS)
        ]
        found.append((_regions(model, regions), rows))
    return found


def _maths(cell: str) -> str:
    """A cell of a layer table as it is typeset: what is LaTeX already stays, shapes and calls become it."""
    if "$" in cell or not cell:
        return cell
    pieces = (_CALL.sub(r"\\operatorname{\1}", piece) for piece in _BETWEEN.split(cell))
    return ", ".join(f"${piece}$" for piece in pieces)


def markdown(model: Shown) -> str:
    """The model as Markdown: its layer tables with LaTeX, its notes, and its graph as text."""
    out = [f"**{markdown_text(model.name)}**: {summary(model)}", ""]
    for title, rows in _tables(model):
        cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
        out += [f"*{markdown_text(title)}*", ""] if title else []
        out += [f"| {' | '.join(row)} |" for row in (LAYER_COLUMNS, ("---",) * len(LAYER_COLUMNS), *cells)]
        out.append("")
    out += [f"- {markdown_text(note)}" for note in model.notes]
    return "\n".join([*out, "", "```text", drawing.text(model.graph), "```", ""])


def html(model: Shown) -> str:
    """The model as HTML that needs no network: a line, its layer tables with MathML, and its drawing to open.

    Its graph is a picture, or text where it is too large for one.
    """
    out = [f"<p><strong>{html_text(model.name)}</strong>: {html_text(summary(model))}</p>"]
    head = "".join(f'<th scope="col">{column}</th>' for column in LAYER_COLUMNS)
    left = ' style="text-align:left"'
    tables = [
        f"<table><caption>{html_text(title)}</caption><thead><tr>{head}</tr></thead><tbody>"
        + "".join(f"<tr>{''.join(f'<td{left}>{cell}</td>' for cell in cells)}</tr>" for cells in _written(text))
        + "</tbody></table>"
        for (title, _), text in zip(_tables(model), model.tables, strict=True)
    ]
    # A layer is seen at once; a whole model is opened.
    out += tables if len(tables) == 1 else [_to_open("layer tables", "".join(tables))] if tables else []
    if model.notes:
        notes = "".join(f"<li>{html_text(note)}</li>" for note in model.notes)
        out.append(_to_open(f"notes ({len(model.notes)})", f"<ul>{notes}</ul>"))
    try:
        # As a picture of its own: the styles of an SVG inside of a page would hold for the whole page.
        data = b64encode(drawing.svg(model.graph).encode()).decode()
        drawn = f'<img alt="{html_text("Op graph of " + model.name)}" src="data:image/svg+xml;base64,{data}"/>'
    except RenderError:
        drawn = f"<pre>{html_text(drawing.text(model.graph))}</pre>"
    out.append(_to_open("op graph", f'<div style="max-height:600px;overflow:auto">{drawn}</div>'))
    return f"<div>{''.join(out)}</div>"


def _to_open(title: str, inside: str) -> str:
    return f"<details><summary>{html_text(title)}</summary>{inside}</details>"


def _written(text: str) -> list[list[str]]:
    """The rows of a layer table with MathML; a cell that no form can show stays text."""
    source = read_tables(text, "<table>")[0]
    cells = [line.split("\t") for line in text.splitlines() if line and line != "\t".join(LAYER_COLUMNS)]
    try:
        rows = parse_layer(source)
    except SymcommError:  # a row that only its model understands
        return [[html_text(cell) for cell in row] for row in cells]
    out = []
    for row, (said, *_) in zip(rows, cells, strict=True):
        try:
            left, right = (_form(node) for node in (row.equation.target, row.equation.formula))
            computed = math_element(mathml(forms.Related(left, right)), said)
        except _NoFormError:
            computed = f"<code>{html_text(said)}</code>"
        out.append([computed, *(", ".join(_shape(d) for d in side) for side in (row.inputs, row.outputs))])
    return out


def _shape(one: tree.Declaration) -> str:
    sizes = "<mo>×</mo>".join(f"<mrow>{mathml(size_form(size))}</mrow>" for size in one.sizes)
    name = mathml(forms.Sym(_key(one.name)))
    return math_element(f"{name}<mspace width='0.4em'></mspace><mo>[</mo>{sizes}<mo>]</mo>", _key(one.name))


class _NoFormError(Exception):
    """A computation that is shown as it was written."""


def _key(name: tree.Identifier) -> str:
    base = name.key.rstrip("'")  # primes stand last: K_i'
    return f"{base}_{name.index}{name.key[len(base) :]}" if name.index else name.key


def _form(node: tree.Node) -> forms.Form:
    """A computation of a layer table as a form, for its looks only."""
    match node:
        case tree.Number(value=number):
            return forms.rational(number)
        case tree.Identifier():
            return forms.Sym(_key(node))
        case tree.Multiplication(factors=factors):
            return forms.Product(tuple(map(_form, factors)))
        case tree.Hadamard(factors=factors):
            return forms.Elementwise(tuple(map(_form, factors)))
        case tree.Sum(terms=terms, signs=signs):
            signed = zip(map(_form, terms), signs, strict=True)
            return forms.Total(tuple(t if s > 0 else forms.negative(t) for t, s in signed))
        case tree.Quotient(top=top, bottom=bottom):
            return forms.Ratio(_form(top), _form(bottom))
        case tree.Exponentiation(base=base, exponent=exponent):
            return forms.Power(_form(base), _form(exponent))
        case tree.Radical(inside=inside):
            return forms.Root(_form(inside))
        case tree.Transpose(inside=inside):
            return forms.Transposed(_form(inside))
        case tree.FunctionCall(function=function, arguments=arguments, subscript=below):
            name = f"{function}_{plain(_form(below))}" if below else function
            made = tuple(map(_form, arguments))
            alone = made[0].arguments if len(made) == 1 and isinstance(made[0], forms.Called) else ()
            return forms.Called(name, alone if alone and made == (forms.Called("", alone),) else made)
        case tree.Family(name=name, count=count):
            first, second, last = (forms.Sym(_key(replace(name, index=i))) for i in ("1", "2", plain(_form(count))))
            return forms.Called("", (first, second, forms.Sym("…"), last))
    raise _NoFormError
