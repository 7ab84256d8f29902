"""Questions about traces of formulas: either mode, the Jacobian, what they cost, and the memory of a reverse sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from symcomm.core.derivation import Condition, Derivation, Exhibit, Numbers, Step
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form, Related, Sym, called, num
from symcomm.core.quantities.declared import Meaning, Reads
from symcomm.core.quantities.options import NoModel, Whole
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.text.spelling import plain_name
from symcomm.core.units import ELEMENT, ONE, Quantity, Unit
from symcomm.teaching.differentiation.costs import Segment, forward_cost, kept_values, peak, reverse_cost, segments
from symcomm.teaching.differentiation.mistakes import mistaken
from symcomm.teaching.differentiation.sweeps import forward, jacobian, reverse
from symcomm.teaching.differentiation.tables import (
    adjoint_steps,
    adjoints,
    cell,
    given_steps,
    last,
    primal,
    tangent_steps,
    tangents,
)
from symcomm.teaching.differentiation.trace import BAR, DOT, EvaluationTrace, marked, trace

if TYPE_CHECKING:
    from sympy import Expr

Formulas = Annotated[
    str,
    Reads("formula"),
    Meaning("the formulas, separated by semicolons or line ends: `y_1 = (x_1+x_2)^2; y_2 = ln(x_1)`"),
]
Point = Annotated[
    str | Mapping[str, object], Reads("formula"),
    Meaning("a value for each input: `x_1 = 2, x_2 = ln(3)`; default: the given numbers"),
]  # fmt: skip
Outputs = Annotated[
    str, Meaning("the outputs, separated by commas; default: y, y_1, ..., else names that no formula reads")
]
Input = Annotated[str, Meaning("the input of the derivative; default: all inputs")]
Output = Annotated[str, Meaning("the output of the derivative; default: all outputs")]


Slip = Annotated[
    Literal["adjoint_overwritten", "product_rule_forgotten", "inner_derivative_forgotten"] | None,
    Meaning("a mistake to make, for wrong answers in exams; the steps are then wrong"),
]


def traced(
    setting: Setting, of: str, point: str | Mapping[str, object] | None, outputs: str | None = None
) -> EvaluationTrace:
    """The trace of a question, at its point or at the given numbers."""
    said: str | Mapping[str, object] = (
        point if point is not None else {plain_name(name): value for name, value in setting.values.items()}
    )
    return trace(of, said, [name.strip() for name in (outputs or "").split(",") if name.strip()])


def one_of(name: str | None, known: Sequence[str], what: str) -> str | None:
    """The plain spelling of a name that is asked for; raises ``ValuesError`` where there is none."""
    if name is None:
        return None
    if plain_name(name) not in known:
        raise ValuesError(f"the trace has no {what} '{name[:60]}'", hint=nearest(plain_name(name), [*known]))
    return plain_name(name)


Results = Sequence[tuple[Related, Quantity | Form]]


def slope(of: str, by: str, found: str, number: Expr) -> tuple[Related, Quantity | Form]:
    """A derivative as a line of an answer: what it is, the variable of the sweep that it is, its number."""
    return Related(Sym(f"d{of}") / Sym(f"d{by}"), Sym(found)), cell(number)


def answer(setting: Setting, title: str, steps: Iterable[Step], exhibits: Iterable[Exhibit],
           notes: Sequence[str] = (), results: Results = ()) -> Derivation:  # fmt: skip
    """A derivation of a trace: what is known of a model does not enter it."""
    made = setting.derivation(title, tuple(steps), exhibits, notes)
    return replace(
        made, results=tuple(results), given=(), sizes=frozenset(), named=frozenset(name for name, _ in made.given)
    )


def derive_evaluation_trace(
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


def derive_forward_mode(
    setting: NoModel,
    formulas: Formulas,
    point: Point | None = None,
    by: Input | None = None,
    of: Output | None = None,
    outputs: Outputs | None = None,
    slip: Slip = None,
) -> Derivation:
    """The derivatives of formulas for an input by forward mode, as a table of primals and tangents.

    The answer is the derivative of ``of`` (the first one) for ``by`` (the first input); without ``by`` there is a
    table for each input.

    Source: Baydin et al., arXiv 1502.05767, section 3.1.
    """
    made = traced(setting, formulas, point, outputs)
    inputs = [v.input for v in made.inputs]
    chosen = one_of(by, inputs, "input")
    wanted = one_of(of, [name for name, _ in made.outputs], "output") or made.outputs[0][0]
    steps = [*given_steps(made), *tangent_steps(made, chosen or inputs[0])]
    if slip:
        steps = [*mistaken(steps, slip)]
    by_inputs = [chosen] if chosen else inputs
    tables = [tangents(made, name) for name in by_inputs]
    worth = {name: forward(made, name) for name in by_inputs}
    ends = [(name, k) for name, k in made.outputs if name == wanted or of is None]
    results = [slope(end, name, marked(end, DOT), worth[name][k]) for end, k in ends for name in by_inputs]
    return answer(setting, f"d`{wanted}`/d`{chosen or inputs[0]}` by forward mode",
                  last(steps, marked(wanted, DOT)), [] if slip else tables,
                  results=[] if slip or len(results) < 2 else results)  # fmt: skip


def derive_reverse_mode(
    setting: NoModel,
    formulas: Formulas,
    point: Point | None = None,
    of: Output | None = None,
    by: Input | None = None,
    outputs: Outputs | None = None,
    slip: Slip = None,
) -> Derivation:
    """The derivatives of an output of formulas by reverse mode, as a table of primals and adjoints.

    A value that is used several times adds the parts of all its uses. The answer is the derivative of ``of`` (the
    first one) for ``by`` (the first input); without ``of`` there is a table for each output.

    Source: Baydin et al., arXiv 1502.05767, section 3.2.
    """
    made = traced(setting, formulas, point, outputs)
    names = [name for name, _ in made.outputs]
    chosen = one_of(of, names, "output")
    wanted = one_of(by, [v.input for v in made.inputs], "input") or made.inputs[0].input
    steps = [*given_steps(made), *adjoint_steps(made, reverse(made, chosen or names[0]))]
    if slip:
        steps = [*mistaken(steps, slip)]
    of_outputs = [chosen] if chosen else names
    tables = [adjoints(made, name) for name in of_outputs]
    worth = {name: reverse(made, name).adjoints for name in of_outputs}
    ends = [v for v in made.inputs if v.input == wanted or by is None]
    results = [
        slope(name, v.input, marked(v.input, BAR), worth[name][v.number]) for name in of_outputs for v in ends
    ]
    return answer(setting, f"d`{chosen or names[0]}`/d`{wanted}` by reverse mode",
                  last(steps, marked(wanted, BAR)), [] if slip else tables,
                  results=[] if slip or len(results) < 2 else results)  # fmt: skip


def derive_jacobian(
    setting: NoModel,
    formulas: Formulas,
    point: Point | None = None,
    of: Output | None = None,
    by: Input | None = None,
    mode: Annotated[Literal["forward", "reverse"], Meaning("by which mode")] = "reverse",
    outputs: Outputs | None = None,
) -> Derivation:
    """The Jacobian of formulas at a point: a row an output, a column an input.

    Forward mode takes a pass for each input, reverse mode one for each output. The answer is the entry of ``of`` and
    ``by``, the first ones where they are not said.
    """
    made = traced(setting, formulas, point, outputs)
    names, inputs = [name for name, _ in made.outputs], [v.input for v in made.inputs]
    output, name = one_of(of, names, "output") or names[0], one_of(by, inputs, "input") or inputs[0]
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
    return answer(setting, f"Jacobian by {mode} mode: d`{output}`/d`{name}`", steps, [table], [passes])


def derive_differentiation_cost(
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


def _alive(part: Segment, numbers: Numbers) -> int:
    return len({*part.checkpoints, *part.again})


def derive_trace_memory(
    setting: NoModel,
    formulas: Formulas,
    point: Point | None = None,
    every: Annotated[Whole, Meaning("operations between two checkpoints; default: no checkpoints")] = 0,
    outputs: Outputs | None = None,
) -> Derivation:
    """The most values in memory while a trace is reversed, whole or with checkpoints.

    Without checkpoints every value that a partial derivative reads is kept. With them the values before a checkpoint
    that are read behind it are, and those of one segment are computed again. The table has every distance, and the
    best one.
    """
    made = traced(setting, formulas, point, outputs)
    if not isinstance(every, int):
        raise ValuesError(f"'every' is {every}, but a whole number is needed", hint="every: 4")
    total = len(made.operations)
    if every > total:
        raise ValuesError(f"'every' is {every}, but the trace has {total} operations", hint=f"every: 1 to {total}")
    work = StepWriter(setting)
    if every:
        parts = segments(made, every)
        names = [
            work.define(f"M_{n}", num(part.values), ELEMENT, "segment",
                        f"Operations {part.first} to {part.last}: {len(part.checkpoints)} values of checkpoints and "
                        f"{len(part.again)} that are computed again.",
                        witness=partial(_alive, part))
            for n, part in enumerate(parts, 1)
        ]  # fmt: skip
        if len(names) > 1:
            work.define("M", called("max", *names), ELEMENT, "largest", "The segment that needs the most memory.",
                        witness=lambda numbers: peak(made, every))  # fmt: skip
    else:
        kept = kept_values(made)
        listed = ", ".join(f"`{made[number].name}`" for number in kept) or "none"
        work.define("M", num(len(kept)), ELEMENT, "what partial derivatives read", f"Kept: {listed}.",
                    witness=lambda numbers: len(set(kept_values(made))))  # fmt: skip
    tried = [(k, peak(made, k), sum(len(s.again) for s in segments(made, k))) for k in range(1, total + 1)]
    least = min(number for _, number, _ in tried)
    rows = tuple((str(k), str(number), str(again), "least" if number == least else "") for k, number, again in tried)
    columns = ("operations between checkpoints", "values in memory", "computed again", "")
    return answer(setting, "Values kept for the reverse sweep", work.steps,
                  [Exhibit("Every distance of checkpoints", columns, rows)])  # fmt: skip


def derive_checkpoint_memory(
    setting: NoModel,
    operations: Annotated[Whole, Meaning("the operations of the chain, or their symbol")] = "T",
    every: Annotated[Whole, Meaning("operations between two checkpoints, or their symbol")] = "k",
) -> Derivation:
    """The most values in memory while a chain of operations is reversed with checkpoints at equal distances.

    Each operation reads the value before it. The values before each segment are checkpoints; those inside a segment are
    computed again when it is reversed. The least is near the square root of the number of operations.

    Source: Griewank and Walther, Evaluating Derivatives, chapter 12; Chen et al., arXiv 1604.06174, section 4.
    """
    total, distance = (Sym(one) if isinstance(one, str) else num(one) for one in (operations, every))
    work = StepWriter(setting, total, distance)
    kept = work.define("M_checkpoints", total / distance, ELEMENT, "one each segment",
                       "The value before each segment is kept.",
                       witness=lambda n: len(range(0, _count(operations, n), _count(every, n))))  # fmt: skip
    inside = work.define("M_segment", distance - 1, ELEMENT, "recompute",
                         "The values inside the segment that is reversed.",
                         witness=lambda numbers: len(range(1, _count(every, numbers))))  # fmt: skip
    work.define("M", kept + inside, ELEMENT, "add", "While the last segment is reversed.",
                witness=lambda numbers: chain(_count(operations, numbers), _count(every, numbers)))  # fmt: skip
    meanings = {"T": "operations of the chain", "k": "operations between two checkpoints"}
    own = replace(setting.notation, meanings={**meanings, **setting.notation.meanings})
    made = replace(setting, notation=own).derivation("Values kept for the reverse sweep of a chain", work.steps)
    whole = Condition(distance * (total // distance), "=", total)
    return replace(made, where=(whole,))


def _count(said: int | str, numbers: Numbers) -> int:
    return int(numbers[said] if isinstance(said, str) else said)


def chain(operations: int, every: int) -> int:
    """The most values in memory, by running the sweep: checkpoints, segments from the last on, values let go."""
    alive = set(range(0, operations, every))
    most = len(alive)
    for first in sorted(alive, reverse=True):
        for value in range(first + 1, min(first + every, operations)):  # computed again from the checkpoint
            alive.add(value)
            most = max(most, len(alive))
        for value in range(min(first + every, operations) - 1, first - 1, -1):  # each is read by the next operation
            alive.discard(value)
    return most
