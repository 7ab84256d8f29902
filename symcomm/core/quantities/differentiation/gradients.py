"""Gradients of the rows of a table as matrix formulas with shapes, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Annotated, Literal

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Exhibit, Numbers
from symcomm.core.errors import TableError, ValuesError, nearest
from symcomm.core.form import Called, Form, Related, Sym
from symcomm.core.graph.gradient_formulas import ONES, SPREAD, Gradient, Names, forward_form, labels, shape_text, why
from symcomm.core.graph.gradient_formulas import gradients as formulas_of
from symcomm.core.graph.graph import Graph, Op, bare
from symcomm.core.graph.ops import MAP
from symcomm.core.program.program import trained
from symcomm.core.quantities.counting import flops
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.memory.activation_memory import saved_tensors
from symcomm.core.quantities.options import Frozen, OpName
from symcomm.core.quantities.witnesses import number
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.text.spelling import plain_name
from symcomm.core.text.table import Table
from symcomm.core.units import Unit

Known = dict[str, tuple[tuple[str, ...], Gradient | None]]
TITLE = "Gradients"
COLUMNS = ("gradient", "shape", "reads", "FLOPs")
PRINTED = ("printed", "derived", "why")


def derive(
    setting: Setting,
    op: OpName | None = None,
    of: Annotated[str, Meaning("the tensor of the gradient, such as W; default: all tensors")] = "",
    want: Annotated[
        Literal["flops", "elements"], Meaning("the operations of the backward pass, or the size of one gradient")
    ] = "flops",
    frozen: Frozen | None = None,
) -> Derivation:
    """The gradients of a row, or of all rows, as matrix formulas with their shapes, what they read and what they cost.

    They are read off the derived backward pass, the one whose operations are counted and whose tensors are saved. Each
    gradient has the shape of the tensor it is of, since the loss is one number.
    """
    setting = setting.freeze(frozen)
    both = trained(setting.graph, setting.accounting, setting.frozen)
    rows = {one.row for one in setting.rows(op).ops}
    ops = [one for one in both.ops if one.phase == "backward" and (one.row in rows or (op is None and not one.row))]
    names = Names(both, setting.notation)
    found = formulas_of(both, ops, names)
    if of:
        wanted = [g for g in found if names.of(g.of) == of or bare(g.of) == of]
        if not wanted:
            raise ValuesError(f"there is no gradient of '{of[:60]}'", hint=nearest(of, [bare(g.of) for g in found]))
        found = (*(g for g in found if g is not wanted[-1]), wanted[-1]) if want == "elements" else tuple(wanted)
    made = _elements(setting, found[-1]) if want == "elements" else flops.derive(setting, "backward", op)
    exhibits = [
        _table(setting, both, found, _shapes(setting.graph, both, ops, names)),
        *_inner(both, names, found),
        *_saved(setting, rows),
    ]
    pieces = [piece for g in found for piece in forms.walk(g.form)]
    named = {piece.name for piece in pieces if isinstance(piece, Sym)}
    functions = {piece.function for piece in pieces if isinstance(piece, Called)}
    notes = [f"`{g.name}`: {why(g)}" for g in found if g.factors]
    notes += ["One is the vector of ones: it sums rows or columns."] if ONES in named else []
    notes += [f"`{SPREAD}` is one number per row; the norm divides by it."] if SPREAD in named else []
    if any(one.startswith(("sum_", "repeat_")) for one in functions):
        notes.append("A subscript names axes: `sum` adds up along them, `repeat` repeats along them.")
    if functions & {"sum", "mean", "max", *(one.name for one in MAP.values() if one.along)}:
        notes.append("Functions of rows (sum, mean) work along the last axis.")
    said = replace(made.notation, latex={**names.notation.latex, **made.notation.latex})
    title = f"{TITLE} of {op}" if op else TITLE
    title = f"Elements of `{found[-1].name}`" if want == "elements" else title
    return replace(made, title=title, exhibits=(*exhibits, *made.exhibits), notes=(*made.notes, *notes), notation=said)


def _elements(setting: Setting, gradient: Gradient) -> Derivation:
    """The number of elements of a gradient: that of the tensor it is of."""
    work = StepWriter(setting)
    tensor = setting.graph.tensors[gradient.of]
    sizes = [setting.graph.axes[axis].size for axis in tensor.axes]
    work.define(f"n_{bare(tensor.name)}", setting.sizes(sizes), Unit.parse("element"), "shape of the tensor",
                why(gradient), witness=lambda numbers: _counted(setting.graph, tensor.axes, numbers))  # fmt: skip
    return setting.derivation("Elements of a gradient", work.steps)


def _counted(graph: Graph, axes: Sequence[str], numbers: Numbers) -> int:
    lengths = [int(number(forms.from_expr(graph.axes[axis].size), numbers)) for axis in axes]
    return sum(1 for _ in product(*map(range, lengths)))


def _shapes(graph: Graph, both: Graph, ops: Sequence[Op], names: Names) -> Known:
    """The shapes of all tensors whose gradients may be printed, with the gradients that are derived."""
    found: Known = {bare(name): (labels(graph, name), None) for name in graph.tensors if "·" not in name}
    return found | {bare(g.of): (g.shape, g) for g in formulas_of(both, ops, names)}


def _table(setting: Setting, graph: Graph, found: Sequence[Gradient], known: Known) -> Exhibit:
    counts = {id(op): form for op, form in flops.counted(setting, graph, [g.op for g in found])}
    rows: list[tuple[str | Form, ...]] = []
    for g in found:
        reads = ", ".join(f"`{name}`" for name in g.reads) or "–"
        rows.append((Related(Sym(g.name), g.form), shape_text(g.shape), reads, counts.get(id(g.op), "–")))
    return Exhibit("Gradients, in the order in which they are computed", COLUMNS, tuple(rows),
                   beside=partial(beside_gradients, known))  # fmt: skip


def _inner(graph: Graph, names: Names, found: Sequence[Gradient]) -> list[Exhibit]:
    used = {name for g in found for name in (*forms.names(g.form), g.name)}
    rows = tuple(
        (Related(Sym(name), forward_form(graph, op, names)), shape_text([graph.axes[a].label for a in axes]))
        for name, op in names.meanings
        if used & {name, f"d{name}"}
        for axes in [graph.tensors[op.output].axes]
    )
    return [Exhibit("Intermediate results of a row", ("value", "shape"), rows)] if rows else []


def _saved(setting: Setting, rows: set[int]) -> list[Exhibit]:
    """What is kept between the forward and the backward pass, as the memory quantities have it."""
    if len(setting.parts) > 1:
        return []
    mine = {name.partition("·")[0] for op in setting.graph.ops if op.row in rows for name in (*op.inputs, op.output)}
    kept = [one for one in saved_tensors(setting) if one.row in rows or {*one.readers} & mine]
    lines = tuple(
        (
            f"`{bare(one.tensor.partition('·')[0])}`",
            one.what,
            setting.written(one.elements),
            ", ".join(f"`{reader}`" for reader in one.readers),
        )
        for one in kept
    )
    columns = ("tensor", "what", "elements", "for the gradient of")
    return [Exhibit("Saved for the backward pass", columns, lines, "full")] if lines else []


# -- printed shapes ------------------------------------------------------------------------------------------

_OF = re.compile(
    r"(?:\\frac\s*\{\s*\\partial\s*[^{}]*\}\s*\{\s*\\partial\s*|∂[^/]*/∂|\bd\s?)"
    r"(?:\\math(?:bf|rm|it)\s*\{([^{}]*)\}|([A-Za-z]\w*(?:[_^]\{?\w+\}?)*'*))"
)
_SPACE = re.compile(r"^.*?(?:\\mathbb\s*\{?R\}?|\bR|ℝ)\s*\^")  # what stands before the sizes


def beside_gradients(known: Known, printed: Table) -> Exhibit:
    """Printed shapes of gradients beside the derived ones; ``known`` has shapes by tensor, with their formulas.

    >>> known = {"W": (("D_1", "D_2"), None)}
    >>> from symcomm.core.text.finder import read_tables
    >>> table = read_tables("gradient\\tshape\\n$dW$\\t$B \\\\times H_2$", "t.tsv")[0]
    >>> beside_gradients(known, table).rows[0][1]
    '`D_1` × `D_2`'
    """
    sizes = {size for shape, _ in known.values() for size in shape}
    found: list[tuple[str, str, str]] = []
    agreeing = 0
    for row in printed.rows:
        head = row[0].text.partition("=")[0]
        match = _OF.search(head)
        tensor = re.sub(r"[{}\\\s]", "", match[1] or match[2]) if match else ""
        if tensor not in known:
            raise TableError(f"the table has no gradient of '{tensor or head.strip('$ ')}'", row[0].span(),
                             f"gradients: {', '.join(known)}")  # fmt: skip
        shape, gradient = known[tensor]
        told = _sizes(row[-1].text)
        if told == shape:
            agreeing += 1
            continue
        strange = [size for size in told if size not in sizes]
        reason = [why(gradient)] if gradient is not None else [f"A gradient has the shape of `{tensor}`."]
        if len(told) > 1 and told == shape[::-1]:
            reason.append("This is the transpose.")
        reason += [f"No axis here is called {', '.join(f'`{size}`' for size in strange)}."] if strange else []
        found.append((f"`d{tensor}`: " + shape_text(told), shape_text(shape), " ".join(reason)))
    title = f"Printed and derived shapes: {agreeing} agree" + (", and these cannot be" if found else "")
    return Exhibit(title, PRINTED, tuple(found))


def _sizes(text: str) -> tuple[str, ...]:
    inside = _SPACE.sub("", text.strip()).strip("$ {}[]()")
    return tuple(plain_name(part) for part in re.split(r"\\times|×|,|\bx\b", inside) if part.strip("{}$ "))
