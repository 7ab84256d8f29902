"""What a call costs on the wire, by the record of its algorithm: the share of its payload that a link carries."""

from __future__ import annotations

from dataclasses import dataclass

from symcomm.collectives.algorithms import algorithm
from symcomm.collectives.cost import Case
from symcomm.form import Form, Sym, num, product


@dataclass(frozen=True)
class Wire:
    """Of one call over some ranks: shares of its payload and rounds.

    ``path`` are bytes that follow one another in the busier direction of a link, ``moved`` those that a rank sends and
    receives together.
    """

    path: Form
    moved: Form
    rounds: Form

    def through(self, link: str) -> Form:
        """The share that a link carries: in the busier direction, or in both directions together."""
        return self.moved if link == "bidirectional" else self.path


def wire(kind: str, name: str, k: Form) -> Wire:
    """The shares and rounds of a call of ``kind`` over ``k`` ranks.

    Raises ``AccountingError`` for a collective that the algorithm cannot run.

    >>> from fractions import Fraction
    >>> from symcomm.form import evaluate
    >>> cost = wire("all-reduce", "owner_multicast", Sym("p"))
    >>> evaluate(cost.path, {"p": Fraction(8)}), evaluate(cost.moved, {"p": Fraction(8)})
    (Fraction(7, 4), Fraction(21, 8))
    """
    record = algorithm(name)
    made = record.run(kind, Case(num(1), k, nodes=tuple(Sym(inner) for inner in record.inner)))
    # A message has one end on each rank, but every rank of a pipeline both sends and receives.
    return Wire(made.path, product(num(2), made.sent) if kind == "send" else made.moved, made.rounds)
