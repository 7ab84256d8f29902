"""What an answer hangs on: elasticities, and the value of a name from which one cost is below another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from symcomm import form as forms
from symcomm.derivation import Derivation, Exhibit, Reason, Step
from symcomm.errors import AccountingError, ValuesError
from symcomm.form import Form
from symcomm.notation import amount, symbol
from symcomm.optimum.cost import Cost, read, written
from symcomm.optimum.pair import Pair
from symcomm.optimum.powers import course, neat, root, terms
from symcomm.units import ONE

if TYPE_CHECKING:
    from sympy import Expr

_LARGE = 300  # operations from which an elasticity is not cancelled


def _elasticity(cost: Cost, name: str) -> Expr:
    import sympy as sp

    x = amount(name)
    expr = cost.expr.xreplace({symbol(name): x})
    if expr.has(sp.ceiling, sp.floor, sp.Max, sp.Min):
        raise ValuesError("an answer with steps or kinks has no elasticity", hint="ask for the real optimum")
    found = sp.powsimp(x * sp.diff(expr, x) / expr)
    return sp.cancel(found) if found.count_ops() < _LARGE and not found.is_number else found


def sensitivity(cost: Derivation | Form | Expr | str, to: str, given: Mapping[str, object] | None = None) -> Derivation:
    """By what share an answer moves when a parameter moves by one per cent: the elasticity.

    Raises ``ValuesError`` where the answer has steps (a ceiling), or does not depend on ``to``.

    >>> from symcomm.form import Root, Sym, product
    >>> sensitivity(Root(product(Sym("s", False), Sym("o", False))), to="s").expr
    1/2
    """
    made = read(cost, to, given)
    known = (dict(cost.given) if isinstance(cost, Derivation) else {}) | dict(made.given)
    if given and to in given:
        known[to] = made.number(given[to], to, to)
    made = replace(made, given=known)
    bare = replace(made, bare=True)
    elasticity = _elasticity(made, to)
    steps = [
        Step("f", made.form, made.unit if not made.bare else ONE, Reason("the answer", f"{made.title}.")),
        Step(
            f"e_{to.replace('_', ',').replace('^', ',')}", forms.from_expr(elasticity), ONE,
            Reason("elasticity", f"`{to}` times the slope with respect to `{to}`, over f: the share by which f moves "
                   f"when `{to}` moves by a small share."),
        ),
    ]  # fmt: skip
    return bare.derivation(f"Elasticity to {to}: {made.title}", steps)


def elasticities(cost: Derivation, given: Mapping[str, object] | None = None) -> Exhibit:
    """The elasticities of an answer to all its parameters, as a table.

    >>> from symcomm.accounting import Accounting
    >>> from symcomm.form import Ratio, Sym
    >>> form = Ratio(Sym("s", False), Sym("w", False))
    >>> d = Derivation("T", Accounting(), (Step("T", form, ONE, Reason("r", "t.")),))
    >>> [row[0] for row in elasticities(d).rows]
    ['`s`', '`w`']
    """
    wanted = forms.names(forms.from_expr(cost.expr))
    rows = tuple((f"`{name}`", sensitivity(cost, name, given).answer.form) for name in wanted)
    return Exhibit("By what share the answer moves, for each share of the parameter", ("parameter", "elasticity"), rows)


def break_even(a: Derivation, b: Derivation, over: str, title: str = "") -> Derivation:
    """The one positive value of ``over`` at which two costs are equal, in closed form, and which is below before it.

    Raises ``ValuesError`` where they are not equal exactly once for sure, or there is no closed form.

    >>> from symcomm.accounting import Accounting
    >>> from symcomm.form import Product, Ratio, Sym
    >>> n = Sym("n", False)
    >>> def cost(form: Form) -> Derivation:
    ...     return Derivation("cost", Accounting(), (Step("T", form, ONE, Reason("r", "t.")),))
    >>> break_even(cost(Product((Sym("o", False), n))), cost(Ratio(Sym("s", False), n)), over="n").expr
    sqrt(s)/sqrt(o)
    """
    accounting = a.same_accounting(b)
    if a.unit != b.unit:
        raise AccountingError(f"'{a.title}' is in {a.unit}, but '{b.title}' is in {b.unit}")
    pair = Pair.of(a, b, over)
    (one, _), (two, _) = (pair.dressed(forms.from_expr(d.expr), d.unit) for d in (a, b))
    difference = forms.Total((one, forms.negative(two)))
    known = {n: v for n, v in pair.given.items() if n in forms.names(difference)}
    cost = read(difference, over, known, title or f"{a.title} and {b.title}")
    found = terms(cost.expr, cost.x)
    runs = course(found) if found is not None else None
    if found is not None and runs is not None and runs.kind == "unknown" and not cost.missing:
        found = terms(cost.numbers, cost.x)
        runs = course(found) if found is not None else None
    if found is None or runs is None or runs.kind == "unknown":
        why = runs.why if runs else "a cost is not a sum of powers"
        raise ValuesError(f"where the costs are equal has no closed form: {why}", hint="use crossover with numbers")
    if runs.kind not in ("valley", "hill"):
        less = a.title if runs.kind == "falls" else b.title
        raise ValuesError(f"the costs are never equal: '{less}' is the smaller one for all {over}")
    solved = root(found)
    if solved is None:
        raise ValuesError("where the costs are equal has no closed form", hint="use crossover with numbers")
    _, inside, degree = solved
    base = cost.write(neat(inside), cost.x_unit ** int(degree) if degree.is_Integer else cost.x_unit)
    form = base if degree == 1 else forms.Root(base) if degree == 2 else forms.Power(base, written(1 / degree))
    first = a.title if runs.kind == "valley" else b.title
    steps = (
        Step("g", cost.form, cost.step_unit, Reason("difference", f"{a.title} less {b.title}.")),
        Step(
            f"{over}^*", form, cost.x_unit if not cost.bare else ONE,
            Reason("equal", f"The signs of the terms change once: there is one root; below it, '{first}' costs less."),
        ),
    )  # fmt: skip
    return replace(cost, accounting=accounting).derivation(title or f"Break-even of `{over}`", steps)
