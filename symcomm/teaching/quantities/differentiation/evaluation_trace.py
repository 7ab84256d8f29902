"""The evaluation trace of formulas: one operation a row."""

from __future__ import annotations

from symcomm.core.derivation import Derivation
from symcomm.core.quantities.options import NoModel
from symcomm.teaching.differentiation.tables import given_steps, last, primal
from symcomm.teaching.quantities.differentiation.asked import Formulas, Output, Outputs, Point, answer, one_of, traced


def derive(
    setting: NoModel,
    formulas: Formulas,
    point: Point | None = None,
    of: Output | None = None,
    outputs: Outputs | None = None,
) -> Derivation:
    """The evaluation trace of formulas: inputs v_{1-n} to v_0, then one operation a row, and the outputs.

    Operations are numbered by level, and within a level from left to right; what occurs again is the same variable. The
    answer is the value of ``of`` (the first output).

    Source: Baydin et al., arXiv 1502.05767, section 3.
    """
    made = traced(setting, formulas, point, outputs)
    wanted = one_of(of, [name for name, _ in made.outputs], "output") or made.outputs[0][0]
    return answer(setting, f"Evaluation trace of `{wanted}`", last(given_steps(made), wanted), [primal(made)])
