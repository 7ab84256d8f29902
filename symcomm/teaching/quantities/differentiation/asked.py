"""The common part of questions about traces: their formulas, their point, and the derivation made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from symcomm.core.derivation import Derivation, Exhibit, Step
from symcomm.core.errors import ValuesError, nearest
from symcomm.core.form import Form, Related, Sym
from symcomm.core.quantities.declared import Meaning, Reads
from symcomm.core.setting import Setting
from symcomm.core.text.spelling import plain_name
from symcomm.core.units import Quantity
from symcomm.teaching.differentiation.tables import cell
from symcomm.teaching.differentiation.trace import EvaluationTrace, trace

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
