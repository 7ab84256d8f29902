"""A cost as a function of a real number, for pictures: its numbers, its worth anywhere, and its terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, exact, put
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form
from symcomm.core.libraries import Expr, sp
from symcomm.core.notation import amount, symbol

Curve = Callable[[float], float]


def numbers(cost: Derivation, over: str, given: Mapping[str, object] | None) -> dict[str, Fraction]:
    """The numbers of a cost other than ``over``; raises ``ValuesError`` where one is missing."""
    values = dict(cost.given) | {name: exact(value, name) for name, value in (given or {}).items()}
    names = forms.names(forms.from_expr(cost.expr))
    kept = {*names, *(given or {})} - {over}
    values = {name: value for name, value in cost.relations.complete(values).items() if name in kept}
    missing = [n for n in names if n not in values and n != over]
    if missing and over:
        raise ValuesError(
            f"a picture needs numbers: no value is given for {', '.join(missing)}", hint=f"for instance {missing[0]}=8"
        )
    return values


def function(expr: Expr, over: str, values: Mapping[str, Fraction]) -> Curve:
    """An expression as a function of a real number, for drawing only."""
    x = amount(over)
    made = sp.lambdify([x], expr.xreplace({symbol(over): x, **put(values)}), modules="math", dummify=True)
    return lambda at: float(made(float(at)))


def terms(cost: Derivation, over: str, values: Mapping[str, Fraction], most: int) -> list[tuple[Form, Curve]]:
    """The terms of a cost that is a sum of at most so many, as it is written, each as a function."""
    form = cost.answer_form
    parts: Sequence[Form] = form.parts if isinstance(form, forms.Total) else ()
    if not parts:
        x = amount(over)
        powers = sp.collect(sp.expand(cost.expr.xreplace({symbol(over): x})), x, evaluate=False)
        parts = [forms.from_expr(sp.factor_terms(share) * power) for power, share in powers.items()]
    return [(part, function(forms.value(part), over, values)) for part in parts] if 1 < len(parts) <= most else []
