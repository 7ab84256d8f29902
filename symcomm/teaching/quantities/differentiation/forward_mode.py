"""Forward mode: the tangents of a trace, for one input or for each."""

from __future__ import annotations

from symcomm.core.derivation import Derivation
from symcomm.core.quantities.options import NoModel
from symcomm.teaching.differentiation.mistakes import mistaken
from symcomm.teaching.differentiation.sweeps import forward
from symcomm.teaching.differentiation.tables import given_steps, last, tangent_steps, tangents
from symcomm.teaching.differentiation.trace import DOT, marked
from symcomm.teaching.quantities.differentiation import asked


def derive(
    setting: NoModel,
    formulas: asked.Formulas,
    point: asked.Point | None = None,
    by: asked.Input | None = None,
    of: asked.Output | None = None,
    outputs: asked.Outputs | None = None,
    slip: asked.Slip = None,
) -> Derivation:
    """The derivatives of formulas for an input by forward mode, as a table of primals and tangents.

    The answer is the derivative of ``of`` (the first one) for ``by`` (the first input); without ``by`` there is a
    table for each input.

    Source: Baydin et al., arXiv 1502.05767, section 3.1.
    """
    made = asked.traced(setting, formulas, point, outputs)
    inputs = [v.input for v in made.inputs]
    chosen = asked.one_of(by, inputs, "input")
    wanted = asked.one_of(of, [name for name, _ in made.outputs], "output") or made.outputs[0][0]
    steps = [*given_steps(made), *tangent_steps(made, chosen or inputs[0])]
    if slip:
        steps = [*mistaken(steps, slip)]
    by_inputs = [chosen] if chosen else inputs
    tables = [tangents(made, name) for name in by_inputs]
    worth = {name: forward(made, name) for name in by_inputs}
    ends = [(name, k) for name, k in made.outputs if name == wanted or of is None]
    results = [asked.slope(end, name, marked(end, DOT), worth[name][k]) for end, k in ends for name in by_inputs]
    return asked.answer(setting, f"d`{wanted}`/d`{chosen or inputs[0]}` by forward mode",
                  last(steps, marked(wanted, DOT)), [] if slip else tables,
                  results=[] if slip or len(results) < 2 else results)  # fmt: skip
