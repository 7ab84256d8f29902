"""Forward and reverse sweeps over a trace: tangents, adjoints, the Jacobian, and a Hessian times a vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symcomm.core import form as forms
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form
from symcomm.core.libraries import Expr, sp
from symcomm.core.records import dataclass
from symcomm.teaching.differentiation.operations import tidy
from symcomm.teaching.differentiation.trace import EvaluationTrace, variable


@dataclass(frozen=True)
class Row:
    """One line of a reverse sweep: the adjoint of ``target`` gets the adjoint of ``row`` times a partial derivative."""

    row: int
    target: int
    adds: bool  # the target had a value before, by an earlier line or as an output
    partial: Form
    worth: Expr
    after: Expr  # the value of the target then


@dataclass(frozen=True)
class Reverse:
    """The reverse sweep of one output: its lines from the last variable to the first, and all adjoints."""

    output: str
    rows: tuple[Row, ...]
    adjoints: dict[int, Expr]


def forward(trace: EvaluationTrace, direction: str | Mapping[str, Expr]) -> dict[int, Expr]:
    """The tangents of all variables: derivatives for one input, or along a direction of several.

    >>> from symcomm.teaching.differentiation.trace import trace
    >>> forward(trace("y = x_1^2 x_2", "x_1 = 3, x_2 = 5"), "x_1")[2]
    30
    """
    known = [v.input for v in trace.inputs]
    along = {direction: sp.Integer(1)} if isinstance(direction, str) else direction
    for name in along:
        if name not in known:
            raise ValuesError(f"the trace has no input {name}", hint=nearest(name, known))
    found = {v.number: along.get(v.input, sp.Integer(0)) for v in trace.inputs}
    for v in trace.operations:
        found[v.number] = tidy(sp.Add(*(p.value * found[p.of] for p in trace.partials(v.number))))
    return found


def reverse(trace: EvaluationTrace, output: str, overwrite: bool = False) -> Reverse:
    """The reverse sweep of one output; with ``overwrite`` a value replaces the one before it, which is a mistake.

    >>> from symcomm.teaching.differentiation.trace import trace
    >>> made = trace("y = x_1^2 x_1", "x_1 = 3")
    >>> reverse(made, "y").adjoints[0], reverse(made, "y", overwrite=True).adjoints[0]
    (27, 18)
    """
    ends = dict(trace.outputs)
    if output not in ends:
        raise ValuesError(f"the trace has no output {output}", hint=nearest(output, [*ends]))
    found = {v.number: sp.Integer(0) for v in trace.variables}
    found[ends[output]] = sp.Integer(1)
    touched = set(ends.values())
    rows = []
    for v in reversed(trace.operations):
        for p in trace.partials(v.number):
            part = p.value * found[v.number]
            found[p.of] = tidy(part if overwrite else found[p.of] + part)
            rows.append(Row(v.number, p.of, p.of in touched, p.form, p.value, found[p.of]))
            touched.add(p.of)
    return Reverse(output, tuple(rows), found)


def jacobian(trace: EvaluationTrace, mode: str = "reverse") -> tuple[tuple[Expr, ...], ...]:
    """The derivatives of all outputs (rows) for all inputs (columns), by passes of either mode."""
    inputs = [v.number for v in trace.inputs]
    if mode == "reverse":
        sweeps = [reverse(trace, name).adjoints for name, _ in trace.outputs]
        return tuple(tuple(found[number] for number in inputs) for found in sweeps)
    columns = [forward(trace, v.input) for v in trace.inputs]
    return tuple(tuple(column[number] for column in columns) for _, number in trace.outputs)


def hessian_product(trace: EvaluationTrace, output: str, direction: Mapping[str, Expr]) -> tuple[Expr, ...]:
    """The Hessian of one output times a vector, without the Hessian: forward over reverse.

    Tangents run forward, then adjoints and their own tangents run backward together; one pass whatever the number of
    inputs. Source: Pearlmutter, Fast exact multiplication by the Hessian, 1994.

    >>> from sympy import Integer
    >>> from symcomm.teaching.differentiation.trace import trace
    >>> hessian_product(trace("y = x_1^2 x_2", "x_1 = 3, x_2 = 5"), "y", {"x_1": Integer(1)})
    (10, 6)
    """
    moving = turned_adjoints(trace, output, direction)
    return tuple(moving[v.number] for v in trace.inputs)


def turned_adjoints(trace: EvaluationTrace, output: str, direction: Mapping[str, Expr]) -> dict[int, Expr]:
    """The tangents of the adjoints of all variables along a direction."""
    tangents = forward(trace, direction)
    adjoints = reverse(trace, output).adjoints
    moving = {v.number: sp.Integer(0) for v in trace.variables}  # the tangents of the adjoints
    for v in reversed(trace.operations):
        seconds = second(trace, v.number)
        worth = {forms.value(forms.Sym(variable(one))): trace[one].value for one in (*v.reads, v.number)}
        for place, p in enumerate(trace.partials(v.number)):
            turned = sp.Add(*(slope.xreplace(worth) * tangents[of] for of, slope in seconds[place]))
            moving[p.of] = tidy(moving[p.of] + moving[v.number] * p.value + adjoints[v.number] * turned)
    return moving


def second(trace: EvaluationTrace, number: int) -> tuple[Sequence[tuple[int, Expr]], ...]:
    """The derivatives of each partial derivative of a variable for the variables it is written in, as expressions."""
    v = trace[number]
    here = {variable(one): one for one in (*v.reads, number)}
    made: list[list[tuple[int, Expr]]] = []
    for p in trace.partials(number):
        pieces = [piece.function for piece in forms.walk(p.form) if isinstance(piece, forms.Called)]
        if {"greater", "sign"} & {*pieces}:
            made.append([])  # piecewise constant
            continue
        written = forms.value(p.form)
        slopes = [(one, sp.diff(written, forms.value(forms.Sym(name)))) for name, one in here.items()]
        made.append([(of, slope) for of, slope in slopes if slope != 0])
    return tuple(made)
