"""Second derivatives as steps: the tangents of the adjoints, which a Hessian times a vector is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from symcomm.core import form as forms
from symcomm.core.derivation import Exhibit, Numbers, Reason, Step
from symcomm.core.form import Form, Product, Related, Sym, Total, num
from symcomm.core.libraries import Expr
from symcomm.core.units import ONE, Quantity
from symcomm.teaching.differentiation import numeric
from symcomm.teaching.differentiation.sweeps import forward, reverse, second, turned_adjoints
from symcomm.teaching.differentiation.tables import adjoint_steps, cell, given_steps, tangent
from symcomm.teaching.differentiation.trace import BAR, DOT, EvaluationTrace, marked, variable

COLUMNS = ("Forward tangent", "Value", "Adjoint", "Value ", "Tangent of the adjoint", "Value  ")
TURNED = "w"  # of an adjoint: its tangent


def hessian_steps(
    trace: EvaluationTrace, output: str, vector: Mapping[str, Expr], by: str
) -> tuple[list[Step], str, Exhibit]:
    """The steps of a Hessian times a vector, the name of the wanted component, and their table."""
    steps = given_steps(trace)
    moved = forward(trace, vector)
    for v in trace.inputs:
        seed = forms.from_expr(vector[v.input]) if v.input in vector else num(0)
        reason = Reason("direction", f"The vector, along `{v.input}`.", None, _moved(trace, vector, v.number))
        steps.append(Step(marked(v.input, DOT), seed, ONE, reason))
    for v in trace.variables:
        reason = Reason("chain rule", "Forward mode.", None, _moved(trace, vector, v.number))
        steps.append(Step(variable(v.number, DOT), tangent(trace, v), ONE, reason))
    swept = reverse(trace, output)
    adjoints = adjoint_steps(trace, swept)
    steps += [step for step in adjoints if not step.name.startswith(tuple(marked(v.input, BAR) for v in trace.inputs))]
    parts: dict[int, list[Form]] = {}
    for v in reversed(trace.operations):
        for p, slopes in zip(trace.partials(v.number), second(trace, v.number), strict=True):
            terms = parts.setdefault(p.of, [])
            if v.number in parts:
                terms.append(Product((Sym(variable(v.number).replace("v", TURNED, 1)), p.form)))
            for of, slope in slopes:
                written = forms.from_expr(slope)
                terms.append(Product((Sym(variable(v.number, BAR)), written, Sym(variable(of, DOT)))))
    worth = turned_adjoints(trace, output, vector)
    lines: dict[int, tuple[Related, Quantity | Form]] = {}
    for v in reversed(trace.variables):
        terms = parts.get(v.number, [])
        known = {step.name for step in steps}
        kept = [one for one in terms if all(name in known for name in forms.names(one))] or [num(0)]
        form = forms.combined(Total, kept)
        witness = _turned(trace, output, vector, v.number)
        reason = Reason("product rule", f"The tangent of the adjoint of `{v.name}`.", None, witness)
        name = variable(v.number).replace("v", TURNED, 1)
        steps.append(Step(name, form, ONE, reason))
        lines[v.number] = Related(Sym(name), form), cell(worth[v.number])
    number = next(v.number for v in trace.inputs if v.input == by)
    rows = tuple(
        (Related(Sym(variable(v.number, DOT)), tangent(trace, v)), cell(moved[v.number]),
         Sym(variable(v.number, BAR)), cell(swept.adjoints[v.number]), *lines[v.number])
        for v in trace.variables
    )  # fmt: skip
    table = Exhibit(f"Forward over reverse mode for `{output}`", COLUMNS, rows, laid_out=True)
    return steps, variable(number).replace("v", TURNED, 1), table


def _moved(trace: EvaluationTrace, vector: Mapping[str, Expr], number: int) -> Callable[[Numbers], Fraction]:
    """The central difference of a variable along the vector."""
    return lambda numbers: numeric.fraction(numeric.slope(trace, number, numeric.along(trace, vector)))


def _turned(
    trace: EvaluationTrace, output: str, vector: Mapping[str, Expr], number: int
) -> Callable[[Numbers], Fraction]:
    """The second difference of the output, for a variable and along the vector."""
    of = dict(trace.outputs)[output]
    return lambda numbers: numeric.fraction(numeric.turned(trace, of, number, numeric.along(trace, vector)))
