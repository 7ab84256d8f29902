"""Where a plan is the cheapest: inequalities between sizes, from plans that are cheaper at other sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd, lcm

from symcomm.core.libraries import Expr, sp
from symcomm.core.records import dataclass


@dataclass(frozen=True)
class CheapestWhere:
    """``less`` must be less than ``more``, or another place would be cheaper: ``B L < V``."""

    less: Expr
    more: Expr

    def __str__(self) -> str:
        return f"{_said(self.less)} < {_said(self.more)}"


def condition(price: Expr, other: Expr) -> CheapestWhere | None:
    """When one price is less than another one, without the factors that both sides share; None where always or never.

    >>> from symcomm.core.notation import symbol
    >>> B, L, D, V = map(symbol, "BLDV")
    >>> str(condition(2*B*L*D, 2*D*V))
    'B L < V'
    """
    terms = [t for t in sp.Add.make_args(sp.expand(price - other)) if t != 0]
    powers = [t.as_coeff_Mul()[1].as_powers_dict() for t in terms]
    shared = {s: min(p.get(s, 0) for p in powers) for s in {s for p in powers for s in p}}
    numbers = [t.as_coeff_Mul()[0] for t in terms]
    scale = sp.Rational(gcd(*(int(n.p) for n in numbers)), lcm(*(int(n.q) for n in numbers))) if terms else 1
    rest = [t / scale / sp.Mul(*(s**p for s, p in shared.items())) for t in terms]
    less = sp.Add(*(t for t in rest if t.as_coeff_Mul()[0] > 0))
    more = sp.Add(*(-t for t in rest if t.as_coeff_Mul()[0] < 0))
    if more == 0 or less in (0, 1):  # with one, two prices differ only where a size is 1 and nothing is cut
        return None
    return CheapestWhere(less, more)


def sent(calls: Iterable[tuple[str, Expr, Expr]]) -> Expr:
    """The bytes that a rank sends in calls of a kind, by those of each tensor and its ranks, without (k - 1)/k."""
    factor: Mapping[str, int] = {"all-reduce": 2}
    return sp.Add(*(n / k if kind == "all-to-all" else factor.get(kind, 1) * n for kind, n, k in calls))


def _said(expr: Expr) -> str:
    def monomial(term: Expr) -> str:
        number, rest = term.as_coeff_Mul()
        top, bottom = sp.fraction(rest)
        text = " ".join(
            f"{s}" if p == 1 else f"{s}^{p}" for s, p in sorted(top.as_powers_dict().items(), key=str) if s != 1
        )
        text = f"{number} {text}".strip() if number != 1 or not text else text
        return text if bottom == 1 else f"{text}/{monomial(bottom)}"

    return " + ".join(sorted(monomial(t) for t in sp.Add.make_args(expr)))
