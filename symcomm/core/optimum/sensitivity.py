"""The sensitivity of an answer: an elasticity, and the value of a name from which one cost is below another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from symcomm.core import form as forms
from symcomm.core.derivation import Derivation, Reason, Step, put
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form
from symcomm.core.libraries import Expr, sp
from symcomm.core.notation import amount, symbol
from symcomm.core.optimum.cost import Cost, Formula, read
from symcomm.core.optimum.crossover import crossovers
from symcomm.core.units import ONE

_LARGE = 300  # operations from which an elasticity is not cancelled


def _elasticity(cost: Cost, name: str) -> Expr:
    x = amount(name)
    expr = _piece(cost.expr, put(cost.given)).xreplace({symbol(name): x})
    if expr.has(sp.ceiling, sp.floor, sp.Max, sp.Min):
        raise ValuesError("an answer with steps or kinks has no elasticity", hint="ask for the real optimum")
    found = sp.powsimp(x * sp.diff(expr, x) / expr)
    return sp.cancel(found) if found.count_ops() < _LARGE and not found.is_number else found


def _piece(expr: Expr, known: Mapping[Expr, Expr]) -> Expr:
    """The same near some numbers: of the largest and the smallest of several, the one that is so there."""
    for kind, best in ((sp.Max, max), (sp.Min, min)):
        for node in sorted(expr.atoms(kind), key=lambda n: n.count_ops()):
            worth = [argument.xreplace(known) for argument in node.args]
            if all(w.is_number for w in worth) and worth.count(best(worth)) == 1:
                expr = expr.xreplace({node: node.args[worth.index(best(worth))]})
    return expr


def sensitivity(cost: Derivation | Form | Expr | str, to: str, given: Mapping[str, object] | None = None) -> Derivation:
    """By what share an answer moves when a parameter moves by one per cent: the elasticity.

    Raises ``ValuesError`` where the answer has steps (a ceiling), or does not depend on ``to``.

    >>> from symcomm.core.form import Root, Sym, product
    >>> sensitivity(Root(product(Sym("s", False), Sym("o", False))), to="s").expr
    1/2
    """
    made = read(cost, to, given)
    known = (dict(cost.given) if isinstance(cost, Derivation) else {}) | dict(made.given)
    if given and to in given:
        known[to] = made.number(given[to], to, to)
    made = replace(made, given=known)
    elasticity = _elasticity(made, to)
    steps = [
        Step("f", made.form, made.unit, Reason("the answer", f"{made.title}.")),
        Step(
            f"e_{to.replace('_', ',').replace('^', ',')}", forms.from_expr(elasticity), ONE,
            Reason("elasticity", f"`{to}` times the derivative in `{to}`, over f: the relative change of f per "
                                 f"relative change of `{to}`."),
        ),
    ]  # fmt: skip
    return made.derivation(f"Elasticity to {to}: {made.title}", steps)


def break_even(
    first: Formula | Expr, second: Formula | Expr, over: str, given: Mapping[str, object] | None = None, title: str = ""
) -> Derivation:
    """The one positive value of ``over`` at which two costs are equal, in closed form, and which is below before it.

    The costs are derivations, forms or text. Raises ``ValuesError`` where they are not equal exactly once for sure, or
    there is no closed form.

    >>> break_even("o n", "s/n", over="n").expr
    sqrt(s)/sqrt(o)
    """
    made = crossovers(first, second, over, None, (), given, real=True)
    if made.less and not made.crossings:
        raise ValuesError("the costs are never equal", hint=made.derivation.notes[-1])
    if made.derivation.steps[-1].reason.rule != "solve":
        raise ValuesError("where the costs are equal has no closed form", hint="use crossover with numbers")
    return replace(made.derivation, title=title or f"Break-even of `{over}`")
