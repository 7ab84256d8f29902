"""The least and the greatest value of a derived cost, with the working: slope, stationary point, bounds, whole numbers.

Where the cost is a sum of powers of the variable, Descartes' rule of signs says how it runs and the optimum is a closed
form; otherwise its numbers are needed, and every point where it can be least is compared exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.derivation import Condition, Derivation
from symcomm.core.form import Form
from symcomm.core.optimum import closed_form, comparison
from symcomm.core.optimum.cost import Cost, read
from symcomm.core.optimum.powers import Monotonicity, course, slope_of, terms, told_more
from symcomm.core.optimum.question import OptimumQuestion, Wanted, ask
from symcomm.core.optimum.working import Working
from symcomm.core.patience import patience

if TYPE_CHECKING:
    from sympy import Expr


_NARROW = "give a narrower range (lower, upper), or numbers for all names"


def minimise(
    cost: Derivation | Form | Expr | str,
    over: str,
    given: Mapping[str, object] | None = None,
    *,
    integer: bool = True,
    lower: object = None,
    upper: object = None,
    divides: int | None = None,
    wanted: Wanted = "place",
    title: str = "",
) -> Derivation:
    """Where a cost is least over the whole (or, without ``integer``, the real) positive values of a name.

    ``lower`` and ``upper`` bound the range, ``divides`` allows only divisors of a number; ``wanted`` is the ``place``
    or the ``value`` there. Raises ``ValuesError`` where there is no optimum, or where it hangs on numbers not given.

    >>> from symcomm.core.form import Ratio, Sym, product, total
    >>> s, o, w, n = (Sym(name, False) for name in "sown")
    >>> overhead = total(product(n, o), Ratio(s, product(n, w)))
    >>> minimise(overhead, over="n", integer=False).expr
    sqrt(s)/(sqrt(o)*sqrt(w))
    >>> str(minimise(overhead, over="n", given={"s": 8, "w": 1, "o": 1}).at())
    '3'
    """
    with patience(f"the search for the least value over {over[:40]}", _NARROW):
        return answer(ask(read(cost, over, given, title), 1, integer, lower, upper, divides, wanted))


def maximise(
    cost: Derivation | Form | Expr | str,
    over: str,
    given: Mapping[str, object] | None = None,
    *,
    integer: bool = True,
    lower: object = None,
    upper: object = None,
    divides: int | None = None,
    wanted: Wanted = "place",
    title: str = "",
) -> Derivation:
    """Where a gain is greatest; the options of ``minimise``.

    >>> from symcomm.core.form import Sym, negative, num, product, total
    >>> n = Sym("n", False)
    >>> gain = total(product(num(7), n), negative(product(n, n)))
    >>> str(maximise(gain, over="n").at())
    '3'
    """
    with patience(f"the search for the greatest value over {over[:40]}", _NARROW):
        return answer(ask(read(cost, over, given, title), -1, integer, lower, upper, divides, wanted))


def answer(question: OptimumQuestion) -> Derivation:
    """The optimum; at numbers that break a condition of its closed form it is found anew."""
    made = _closed(question)
    return replace(made, otherwise=partial(_again, question, made.where)) if made.where else made


def _again(
    question: OptimumQuestion, where: Sequence[Condition], known: Mapping[str, Fraction]
) -> Derivation | None:  # fmt: skip
    if all(condition.holds(known) for condition in where if known.keys() >= {*condition.names}):
        return None
    cost = question.cost
    given = {name: value for name, value in known.items() if name in forms.names(cost.form) and name != cost.over}
    return answer(replace(question, cost=replace(cost, given=given)))


def _closed(question: OptimumQuestion) -> Derivation:
    """In closed form where the signs of the slope's terms are known, else by comparing with known numbers."""
    cost, working = question.cost, Working(question)
    found = terms(cost.expr, cost.x)
    if found is None:
        return comparison.derivation(working, Monotonicity("unknown", "the cost is not a sum of powers"))

    def runs(one: Cost) -> Monotonicity:
        return course(tuple((e, question.sense * c) for e, c in slope_of(terms(one.expr, one.x) or ())))

    way = runs(cost)
    if way.kind == "unknown" and question.divides is None:
        told = next((one for one in told_more(cost) if runs(one).kind != "unknown"), None)
        if told is not None:
            return _closed(replace(question, cost=told))
    closed_form.show_slope(working, slope_of(found))
    if question.divides is not None or way.kind == "unknown":
        return comparison.derivation(working, way)
    return closed_form.derivation(working, found, way)
