"""The Jacobian of formulas, and how many passes each mode takes for it."""

from __future__ import annotations

from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import NoModel
from symcomm.teaching.differentiation.sweeps import jacobian, reverse
from symcomm.teaching.differentiation.tables import adjoint_steps, cell, given_steps, last, tangent_steps
from symcomm.teaching.differentiation.trace import BAR, DOT, marked
from symcomm.teaching.quantities.differentiation import asked


def derive(
    setting: NoModel,
    formulas: asked.Formulas,
    point: asked.Point | None = None,
    of: asked.Output | None = None,
    by: asked.Input | None = None,
    mode: Annotated[Literal["forward", "reverse"], Meaning("by which mode")] = "reverse",
    outputs: asked.Outputs | None = None,
) -> Derivation:
    """The Jacobian of formulas at a point: a row an output, a column an input.

    Forward mode takes a pass for each input, reverse mode one for each output. The answer is the entry of ``of`` and
    ``by``, the first ones where they are not said.
    """
    made = asked.traced(setting, formulas, point, outputs)
    names, inputs = [name for name, _ in made.outputs], [v.input for v in made.inputs]
    output, name = asked.one_of(of, names, "output") or names[0], asked.one_of(by, inputs, "input") or inputs[0]
    matrix = jacobian(made, mode)
    rows = tuple((f"`{one}`", *map(cell, row)) for one, row in zip(names, matrix, strict=True))
    table = Exhibit("Jacobian", ("", *inputs), rows, laid_out=True)
    if mode == "forward":
        steps = last([*given_steps(made), *tangent_steps(made, name)], marked(output, DOT))
    else:
        steps = last([*given_steps(made), *adjoint_steps(made, reverse(made, output))], marked(name, BAR))
    n, m = len(inputs), len(names)
    fewer = "as many" if n == m else "reverse mode takes fewer" if m < n else "forward mode takes fewer"
    passes = f"Forward mode takes a pass for each input, {n}; reverse mode one for each output, {m}: {fewer}."
    return asked.answer(setting, f"Jacobian by {mode} mode: d`{output}`/d`{name}`", steps, [table], [passes])
