"""Traces as tables, as courses print them, and as derivations whose steps are the rows of these tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

from symcomm.core import form as forms
from symcomm.core.derivation import Exhibit, Numbers, Reason, Step
from symcomm.core.form import Form, Num, Product, Related, Sym, Total, num
from symcomm.core.irrational import Irrational
from symcomm.core.libraries import Expr, sp
from symcomm.core.printing import plain
from symcomm.core.units import ONE, Quantity
from symcomm.teaching.differentiation import numeric
from symcomm.teaching.differentiation.comparison import beside_trace
from symcomm.teaching.differentiation.operations import OPERATION
from symcomm.teaching.differentiation.sweeps import Reverse, forward, reverse
from symcomm.teaching.differentiation.trace import BAR, DOT, EvaluationTrace, Variable, marked, variable

FORWARD = ("Forward primal", "Value", "Forward tangent", "Value ")
REVERSE = ("Forward primal", "Value", "Reverse adjoint", "Value ")
_READABLE = 24  # characters of an exact number in a cell; a longer one is told by its decimals alone


def cell(number: Expr) -> Quantity | Form:
    """An exact number as a cell: a fraction, or a short formula with its decimals.

    >>> from sympy import Rational, cos
    >>> plain(cell(Rational(-1, 2))), str(cell(2 - cos(5)))
    ('-1/2', '2 - cos(5) ≈ 1.71634')
    """
    if number.is_Rational:
        exact = Fraction(int(number.p), int(number.q))
        return Quantity(exact, ONE) if exact.denominator == 1 else forms.rational(exact)
    near = Fraction(str(sp.Float(number.evalf(40), 40)))
    form = forms.from_expr(number)
    if isinstance(form, Total):  # a sum begins with what is added
        form = Total(tuple(sorted(form.terms, key=lambda term: plain(term).startswith("-"))))
    text = plain(form)
    return Irrational(near, ONE, form, text if len(text) <= _READABLE else "")


def _equals(name: str, form: Form) -> Related:
    return Related(Sym(name), form)


def _primal(trace: EvaluationTrace, v: Variable) -> tuple[Related, Quantity | Form]:
    return _equals(v.name, trace.form(v)), cell(v.value)


def _ends(trace: EvaluationTrace) -> list[tuple[Related, Quantity | Form]]:
    return [(_equals(name, Sym(variable(k))), cell(trace[k].value)) for name, k in trace.outputs]


def primal(trace: EvaluationTrace) -> Exhibit:
    """The evaluation trace: a row an input, an operation, an output."""
    rows = [_primal(trace, v) for v in trace.variables] + _ends(trace)
    return Exhibit("Evaluation trace", FORWARD[:2], tuple(rows), beside=partial(beside_trace, rows))


def tangent(trace: EvaluationTrace, v: Variable) -> Form:
    """The formula of a tangent: each partial derivative times the tangent of its operand."""
    if v.input:
        return Sym(marked(v.input, DOT))
    return forms.combined(Total, [_times(p.form, Sym(variable(p.of, DOT))) for p in trace.partials(v.number)])


def _times(partial: Form, moved: Form) -> Form:
    """A partial derivative before a tangent: a one is not written, a minus stands in front."""
    if isinstance(partial, Product) and isinstance(partial.factors[0], Num):
        return Product((*partial.factors, moved))
    return partial * moved


def tangents(trace: EvaluationTrace, name: str) -> Exhibit:
    """The table of forward mode for one input."""
    worth = forward(trace, name)
    rows: list[tuple[Form | Quantity, ...]] = []
    for v in trace.variables:
        rows.append((*_primal(trace, v), _equals(variable(v.number, DOT), tangent(trace, v)), cell(worth[v.number])))
    for end, (output, k) in zip(_ends(trace), trace.outputs, strict=True):
        rows.append((*end, _equals(marked(output, DOT), Sym(variable(k, DOT))), cell(worth[k])))
    asked = ", ".join(f"d`{output}`/d`{name}`" for output, _ in trace.outputs)
    return Exhibit(f"Forward mode for {asked}", FORWARD, tuple(rows), laid_out=True, beside=partial(beside_trace, rows))


def adjoints(trace: EvaluationTrace, output: str, overwrite: bool = False) -> Exhibit:
    """The table of reverse mode for one output, to be read from the bottom up."""
    swept = reverse(trace, output, overwrite)
    lines: dict[int, list[tuple[Form, Quantity | Form]]] = {}
    for row in swept.rows:
        target = Sym(variable(row.target, BAR))
        part = Product((Sym(variable(row.row, BAR)), row.partial))
        formula: Form = Total((target, part)) if row.adds and not overwrite else part
        lines.setdefault(row.row, []).append((Related(target, formula), cell(row.after)))
    rows: list[tuple[str | Form | Quantity, ...]] = []
    for v in trace.variables:
        if v.input:
            last = _equals(marked(v.input, BAR), Sym(variable(v.number, BAR))), cell(swept.adjoints[v.number])
            rows.append((*_primal(trace, v), *last))
        for n, line in enumerate(lines.get(v.number, ())):
            rows.append((*_primal(trace, v), *line) if not n else ("", "", *line))
    seeded: set[int] = set()
    for end, (name, k) in zip(_ends(trace), trace.outputs, strict=True):
        seed = Sym(marked(name, BAR))
        seeds: Form = Total((Sym(variable(k, BAR)), seed)) if k in seeded else seed
        rows.append((*end, _equals(variable(k, BAR), seeds), cell(sp.Integer(int(name == output)))))
        seeded.add(k)
    asked = ", ".join(f"d`{output}`/d`{v.input}`" for v in trace.inputs)
    return Exhibit(
        f"Reverse mode for {asked}; read from the bottom up",
        REVERSE,
        tuple(rows),
        laid_out=True,
        beside=partial(beside_trace, rows),
    )


# -- derivations --------------------------------------------------------------------------------------------


def given_steps(trace: EvaluationTrace) -> list[Step]:
    """The primal rows as steps: the inputs, the operations, the outputs."""
    steps = [
        Step(v.input, forms.from_expr(v.value), ONE, Reason("given", "The point.", None, _worth(v.value)))
        for v in trace.inputs
    ]
    for v in trace.variables:
        rule = "input" if v.input else OPERATION[v.operation].rule
        text = "An input." if v.input else f"One operation: {rule}."
        steps.append(Step(v.name, trace.form(v), ONE, Reason(rule, text, v.span, _primal_witness(trace, v.number))))
    steps += [
        Step(name, Sym(variable(k)), ONE, Reason("output", "An output.", None, _primal_witness(trace, k)))
        for name, k in trace.outputs
    ]
    return steps


def tangent_steps(trace: EvaluationTrace, name: str) -> list[Step]:
    """The rows of forward mode for one input as steps."""
    told = "The derivative of `{}` for `{}`."
    steps = [_seed(v.input, DOT, v.input == name, told.format(v.input, name)) for v in trace.inputs]
    number = next(v.number for v in trace.inputs if v.input == name)
    for v in trace.variables:
        rule = OPERATION[v.operation].rule if v.operation else "input"
        reason = Reason(rule, f"The chain rule: {rule}.", v.span, _slope_witness(trace, v.number, number))
        steps.append(Step(variable(v.number, DOT), tangent(trace, v), ONE, reason))
    for output, k in trace.outputs:
        reason = Reason("output", f"The derivative of `{output}` for `{name}`.", None, _slope_witness(trace, k, number))
        steps.append(Step(marked(output, DOT), Sym(variable(k, DOT)), ONE, reason))
    return steps


def adjoint_steps(trace: EvaluationTrace, swept: Reverse) -> list[Step]:
    """The sums of reverse mode for one output as steps: each adjoint from those of all that read the variable."""
    end = dict(trace.outputs)[swept.output]
    told = "The derivative of `{}` for `{}` itself."
    steps = [_seed(name, BAR, name == swept.output, told.format(swept.output, name)) for name, _ in trace.outputs]
    parts: dict[int, list[Form]] = {}
    for name, k in trace.outputs:
        parts.setdefault(k, []).append(Sym(marked(name, BAR)))
    for row in swept.rows:
        parts.setdefault(row.target, []).append(Product((Sym(variable(row.row, BAR)), row.partial)))
    for v in reversed(trace.variables):
        found = parts.get(v.number, [num(0)])
        text = "Every variable that reads it adds its part." if len(found) > 1 else "The chain rule."
        reason = Reason("chain rule", text, v.span, _slope_witness(trace, end, v.number))
        steps.append(Step(variable(v.number, BAR), forms.combined(Total, found), ONE, reason))
    for v in trace.inputs:
        text = f"The derivative of `{swept.output}` for `{v.input}`."
        reason = Reason("input", text, None, _slope_witness(trace, end, v.number))
        steps.append(Step(marked(v.input, BAR), Sym(variable(v.number, BAR)), ONE, reason))
    return steps


def _seed(name: str, mark: str, one: bool, told: str) -> Step:
    """The step with which a pass begins: 1 for one input or output, and 0 for all others."""
    return Step(marked(name, mark), num(int(one)), ONE, Reason("seed", told, None, _worth(sp.Integer(int(one)))))


def last(steps: Sequence[Step], name: str) -> tuple[Step, ...]:
    """The steps with the one of a name at the end, where it is the answer; nothing else reads it."""
    return (*(step for step in steps if step.name != name), next(step for step in steps if step.name == name))


def _worth(value: Expr) -> Callable[[Numbers], Fraction]:
    return lambda numbers: numeric.fraction(numeric.number(value))


def _primal_witness(trace: EvaluationTrace, number: int) -> Callable[[Numbers], Fraction]:
    """The value of a variable by the operations done with floating-point numbers of many digits."""
    return lambda numbers: numeric.fraction(numeric.run(trace)[number])


def _slope_witness(trace: EvaluationTrace, of: int, by: int) -> Callable[[Numbers], Fraction]:
    """The central difference of one variable for another."""
    return lambda numbers: numeric.fraction(numeric.slope(trace, of, {by: 1}))
