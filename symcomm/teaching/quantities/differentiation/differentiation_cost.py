"""The cost of the derivatives of formulas in either mode: passes and operations."""

from __future__ import annotations

from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Exhibit
from symcomm.core.form import num
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.options import NoModel
from symcomm.core.setting import StepWriter
from symcomm.core.units import ONE, Unit
from symcomm.teaching.differentiation.costs import forward_cost, kept_values, reverse_cost
from symcomm.teaching.quantities.differentiation.asked import Formulas, Outputs, Point, answer, traced


def derive(
    setting: NoModel,
    formulas: Formulas,
    point: Point | None = None,
    mode: Annotated[
        Literal["forward", "reverse", "cheaper"], Meaning("by which mode, or by the one with fewer operations")
    ] = "cheaper",
    want: Annotated[Literal["passes", "operations"], Meaning("passes, or their operations")] = "passes",
    outputs: Outputs | None = None,
) -> Derivation:
    """The passes or the operations of a whole Jacobian: forward mode takes a pass an input, reverse mode one an output.

    Of each pass the multiplications by partial derivatives (none by 1 or -1) and the additions are counted; the
    operations of the trace itself come once, and reverse mode has to keep the values that partial derivatives read.
    """
    made = traced(setting, formulas, point, outputs)
    n, m, trace = len(made.inputs), len(made.outputs), len(made.operations)
    costs = {"forward": (n, forward_cost(made)), "reverse": (m, reverse_cost(made))}
    total = {name: passes if want == "passes" else passes * cost.operations for name, (passes, cost) in costs.items()}
    best = min(costs, key=lambda name: (total[name], name)) if mode == "cheaper" else mode
    passes, cost = costs[best]
    work = StepWriter(setting)
    unit = Unit.parse("operation")
    what = "input" if best == "forward" else "output"
    count = work.define("P", num(passes), ONE, "a pass each", f"A pass of {best} mode for each {what}.",
                        witness=lambda numbers: len(made.inputs if best == "forward" else made.outputs))  # fmt: skip
    if want == "operations":
        each = work.define("F_pass", num(cost.operations), unit, "count the rows",
                           f"{cost.multiplications} multiplications and {cost.additions} additions.",
                           witness=lambda numbers: cost.multiplications + cost.additions)  # fmt: skip
        all_of = work.define("F_all", count * each, unit, "all passes", "Every pass costs the same.")
        work.define("F", all_of + num(trace, unit), unit, "add the trace",
                    f"The {trace} operations of the trace, once.",
                    witness=lambda numbers: trace + passes * cost.operations)  # fmt: skip
    rows = tuple(
        (name, str(k), str(c.multiplications), str(c.additions), str(trace + k * c.operations))
        for name, (k, c) in costs.items()
    )
    columns = ("mode", "passes", "multiplications a pass", "additions a pass", "operations with the trace")
    kept = ", ".join(f"`{made[number].name}`" for number in kept_values(made)) or "none"
    notes = [f"Reverse mode keeps the values that its partial derivatives read: {kept}. Forward mode keeps none."]
    return answer(setting, f"{want.capitalize()} of the Jacobian, {best} mode", work.steps,
                  [Exhibit("Both modes", columns, rows)], notes)  # fmt: skip
