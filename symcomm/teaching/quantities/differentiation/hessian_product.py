"""The Hessian of an output times a vector, forward over reverse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Exhibit, Numbers, Reason, Step
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form, Product, Related, Sym, Total, num
from symcomm.core.libraries import Expr
from symcomm.core.quantities.declared import Meaning, Reads
from symcomm.core.quantities.options import NoModel
from symcomm.core.units import ONE, Quantity
from symcomm.teaching.differentiation import numeric
from symcomm.teaching.differentiation.sweeps import forward, hessian_product, reverse, second, turned_adjoints
from symcomm.teaching.differentiation.tables import adjoint_steps, cell, given_steps, last, tangent
from symcomm.teaching.differentiation.trace import BAR, DOT, EvaluationTrace, constants, marked, variable
from symcomm.teaching.quantities.differentiation import traces

_COLUMNS = ("Forward tangent", "Value", "Adjoint", "Value ", "Tangent of the adjoint", "Value  ")
_TURNED = "w"  # of an adjoint: its tangent


def derive(
    setting: NoModel,
    formulas: traces.Formulas,
    direction: Annotated[
        str | Mapping[str, object],
        Reads("formula"),
        Meaning("the vector: `x_1 = 1, x_2 = 0`; default: 0 for each name"),
    ],
    point: traces.Point | None = None,
    of: traces.Output | None = None,
    by: traces.Input | None = None,
    outputs: traces.Outputs | None = None,
) -> Derivation:
    """The Hessian of an output times a vector, without the Hessian: forward mode over reverse mode.

    Tangents run forward; then adjoints and their own tangents ``w`` run backward together, in one pass whatever the
    number of inputs. The answer is the component of ``by`` (the first input).

    Source: Pearlmutter, Fast exact multiplication by the Hessian, Neural Computation 6 (1994).
    """
    made = traces.traced(setting, formulas, point, outputs)
    inputs = [v.input for v in made.inputs]
    output = traces.one_of(of, [name for name, _ in made.outputs], "output") or made.outputs[0][0]
    name = traces.one_of(by, inputs, "input") or inputs[0]
    vector = constants(direction)
    for one in vector:
        if one not in inputs:
            raise ValuesError(f"the direction names '{one}', which is no input", hint=nearest(one, inputs))
    found = hessian_product(made, output, vector)
    rows = tuple((f"`{one}`", cell(vector.get(one, found[0] * 0)), cell(value))
                 for one, value in zip(inputs, found, strict=True))  # fmt: skip
    table = Exhibit(f"The Hessian of `{output}` times a vector", ("input", "vector", "product"), rows)
    steps, answer_name, sweep = _steps(made, output, vector, name)
    components = [row[4:] for row in sweep.rows[: len(inputs)]] if by is None and len(inputs) > 1 else []
    return traces.answer(setting, f"Hessian of `{output}` times a vector, component of `{name}`",
                  last(steps, answer_name), [sweep] if components else [sweep, table],
                  results=components)  # type: ignore[arg-type]  # fmt: skip


def _steps(
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
                terms.append(Product((Sym(variable(v.number).replace("v", _TURNED, 1)), p.form)))
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
        name = variable(v.number).replace("v", _TURNED, 1)
        steps.append(Step(name, form, ONE, reason))
        lines[v.number] = Related(Sym(name), form), cell(worth[v.number])
    number = next(v.number for v in trace.inputs if v.input == by)
    rows = tuple(
        (Related(Sym(variable(v.number, DOT)), tangent(trace, v)), cell(moved[v.number]),
         Sym(variable(v.number, BAR)), cell(swept.adjoints[v.number]), *lines[v.number])
        for v in trace.variables
    )  # fmt: skip
    table = Exhibit(f"Forward over reverse mode for `{output}`", _COLUMNS, rows, laid_out=True)
    return steps, variable(number).replace("v", _TURNED, 1), table


def _moved(trace: EvaluationTrace, vector: Mapping[str, Expr], number: int) -> Callable[[Numbers], Fraction]:
    """The central difference of a variable along the vector."""
    return lambda numbers: numeric.fraction(numeric.slope(trace, number, numeric.along(trace, vector)))


def _turned(
    trace: EvaluationTrace, output: str, vector: Mapping[str, Expr], number: int
) -> Callable[[Numbers], Fraction]:
    """The second difference of the output, for a variable and along the vector."""
    of = dict(trace.outputs)[output]
    return lambda numbers: numeric.fraction(numeric.turned(trace, of, number, numeric.along(trace, vector)))
