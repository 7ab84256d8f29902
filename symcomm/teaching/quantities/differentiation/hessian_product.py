"""The Hessian of an output times a vector, forward over reverse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.quantities.declared import Meaning, Reads
from symcomm.core.quantities.options import NoModel
from symcomm.teaching.differentiation.second import hessian_steps
from symcomm.teaching.differentiation.sweeps import hessian_product
from symcomm.teaching.differentiation.tables import cell, last
from symcomm.teaching.differentiation.trace import constants
from symcomm.teaching.quantities.differentiation import asked


def derive(
    setting: NoModel,
    formulas: asked.Formulas,
    direction: Annotated[
        str | Mapping[str, object],
        Reads("formula"),
        Meaning("the vector: `x_1 = 1, x_2 = 0`; default: 0 for each name"),
    ],
    point: asked.Point | None = None,
    of: asked.Output | None = None,
    by: asked.Input | None = None,
    outputs: asked.Outputs | None = None,
) -> Derivation:
    """The Hessian of an output times a vector, without the Hessian: forward mode over reverse mode.

    Tangents run forward; then adjoints and their own tangents ``w`` run backward together, in one pass whatever the
    number of inputs. The answer is the component of ``by`` (the first input).

    Source: Pearlmutter, Fast exact multiplication by the Hessian, Neural Computation 6 (1994).
    """
    made = asked.traced(setting, formulas, point, outputs)
    inputs = [v.input for v in made.inputs]
    output = asked.one_of(of, [name for name, _ in made.outputs], "output") or made.outputs[0][0]
    name = asked.one_of(by, inputs, "input") or inputs[0]
    vector = constants(direction)
    for one in vector:
        if one not in inputs:
            raise ValuesError(f"the direction names '{one}', which is no input", hint=nearest(one, inputs))
    found = hessian_product(made, output, vector)
    rows = tuple((f"`{one}`", cell(vector.get(one, found[0] * 0)), cell(value))
                 for one, value in zip(inputs, found, strict=True))  # fmt: skip
    table = Exhibit(f"The Hessian of `{output}` times a vector", ("input", "vector", "product"), rows)
    steps, answer_name, sweep = hessian_steps(made, output, vector, name)
    components = [row[4:] for row in sweep.rows[: len(inputs)]] if by is None and len(inputs) > 1 else []
    return asked.answer(setting, f"Hessian of `{output}` times a vector, component of `{name}`",
                  last(steps, answer_name), [sweep] if components else [sweep, table],
                  results=components)  # type: ignore[arg-type]  # fmt: skip
