"""Reverse mode: the adjoints of a trace, for one output or for each."""

from __future__ import annotations

from symcomm.core.derivation import Derivation
from symcomm.core.quantities.options import NoModel
from symcomm.teaching.differentiation.mistakes import mistaken
from symcomm.teaching.differentiation.sweeps import reverse
from symcomm.teaching.differentiation.tables import adjoint_steps, adjoints, given_steps, last
from symcomm.teaching.differentiation.trace import BAR, marked
from symcomm.teaching.quantities.differentiation import asked


def derive(
    setting: NoModel,
    formulas: asked.Formulas,
    point: asked.Point | None = None,
    of: asked.Output | None = None,
    by: asked.Input | None = None,
    outputs: asked.Outputs | None = None,
    slip: asked.Slip = None,
) -> Derivation:
    """The derivatives of an output of formulas by reverse mode, as a table of primals and adjoints.

    A value that is used several times adds the parts of all its uses. The answer is the derivative of ``of`` (the
    first one) for ``by`` (the first input); without ``of`` there is a table for each output.

    Source: Baydin et al., arXiv 1502.05767, section 3.2.
    """
    made = asked.traced(setting, formulas, point, outputs)
    names = [name for name, _ in made.outputs]
    chosen = asked.one_of(of, names, "output")
    wanted = asked.one_of(by, [v.input for v in made.inputs], "input") or made.inputs[0].input
    steps = [*given_steps(made), *adjoint_steps(made, reverse(made, chosen or names[0]))]
    if slip:
        steps = [*mistaken(steps, slip)]
    of_outputs = [chosen] if chosen else names
    tables = [adjoints(made, name) for name in of_outputs]
    worth = {name: reverse(made, name).adjoints for name in of_outputs}
    ends = [v for v in made.inputs if v.input == wanted or by is None]
    results = [
        asked.slope(name, v.input, marked(v.input, BAR), worth[name][v.number]) for name in of_outputs for v in ends
    ]
    return asked.answer(setting, f"d`{chosen or names[0]}`/d`{wanted}` by reverse mode",
                  last(steps, marked(wanted, BAR)), [] if slip else tables,
                  results=[] if slip or len(results) < 2 else results)  # fmt: skip
