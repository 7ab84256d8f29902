"""Mistakes that are made in traces, as changes of the steps of a derivation: a wrong answer is derived, never given."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from symcomm.core.derivation import Step
from symcomm.core.form import Form, Product, Sym, Total
from symcomm.core.records import dataclass
from symcomm.teaching.differentiation.trace import BAR, DOT

_INNER = ("power rule", "sine", "cosine", "tangent", "exponential", "logarithm", "square root", "hyperbolic tangent",
          "logistic function")  # fmt: skip


@dataclass(frozen=True)
class TraceMistake:
    """A mistake: its name, one sentence for the student, and what becomes of a step's form; None where nothing does."""

    name: str
    says: str
    change: Callable[[Step], Form | None]


def _overwritten(step: Step) -> Form | None:
    """The last contribution to an adjoint alone."""
    if step.reason.rule != "chain rule" or not isinstance(step.form, Total) or step.name[1:2] != BAR:
        return None
    return step.form.terms[-1]


def _product_rule(step: Step) -> Form | None:
    """The product of the tangents for the tangent of a product."""
    if step.reason.rule != "product rule" or not isinstance(step.form, Total) or step.name[1:2] != DOT:
        return None
    moved = [p for term in step.form.terms if isinstance(term, Product) for p in term.factors if _is_tangent(p)]
    return Product(tuple(moved)) if len(moved) == 2 else None


def _inner(step: Step) -> Form | None:
    """The derivative of a function without that of what stands in it."""
    if step.reason.rule not in _INNER or not isinstance(step.form, Product) or step.name[1:2] != DOT:
        return None
    kept = tuple(factor for factor in step.form.factors if not _is_tangent(factor))
    return kept[0] if len(kept) == 1 else Product(kept) if kept else None


def _is_tangent(form: Form) -> bool:
    return isinstance(form, Sym) and form.name[1:2] == DOT


_MISTAKES = (
    TraceMistake(
        "adjoint_overwritten",
        "A value used several times adds the adjoints of all its uses; you kept only the last one.",
        _overwritten,
    ),
    TraceMistake(
        "product_rule_forgotten", "The derivative of a product is not the product of the derivatives.", _product_rule
    ),
    TraceMistake(
        "inner_derivative_forgotten", "You left out the derivative of the inner function.", _inner
    ),
)  # fmt: skip
TRACE_MISTAKES = {one.name: one for one in _MISTAKES}


def mistaken(steps: Iterable[Step], name: str) -> tuple[Step, ...]:
    """The steps as somebody writes them who makes a mistake; their witnesses do not bear them out any more."""
    found = []
    for step in steps:
        form = TRACE_MISTAKES[name].change(step)
        reason = replace(step.reason, witness=None)
        found.append(replace(step, form=form, reason=reason) if form is not None else replace(step, reason=reason))
    return tuple(found)
