"""Collective algorithms: what share of the payload each rank sends. One record an algorithm.

The payload is the full tensor a call works on: the reduced tensor, the gathered one, the one before it is scattered
or exchanged. Shares are forms in ``k``, the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from symcomm.form import Form, Power, Product, Ratio, Total, num, product


@dataclass(frozen=True)
class Algorithm:
    """An algorithm: the share of the payload one rank sends, for each collective it can run."""

    name: str
    statement: str
    sent: Mapping[str, Callable[[Form], Form]]
    source: str = ""


def _one_less(k: Form) -> Form:
    return Total((k, num(-1)))


RING = Algorithm(
    "ring",
    "On a ring each rank passes k - 1 chunks of 1/k of the tensor to its neighbour, once to reduce and once to gather.",
    {
        "all-reduce": lambda k: Ratio(Product((num(2), _one_less(k))), k),
        "reduce-scatter": lambda k: Ratio(_one_less(k), k),
        "all-gather": lambda k: Ratio(_one_less(k), k),
        # Each rank holds 1/k of the tensor and keeps 1/k of that.
        "all-to-all": lambda k: Ratio(_one_less(k), Power(k, num(2))),
        "send": lambda k: num(1),
    },
    source="Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009",
)

ALGORITHMS: Mapping[str, Algorithm] = {RING.name: RING}

# What all ranks together put in, as a share of the payload: a partial sum each, or a part each.
_CONTRIBUTED: Mapping[str, Callable[[Form], Form]] = {
    "all-reduce": lambda k: k,
    "reduce-scatter": lambda k: k,
    "all-gather": lambda k: num(1),
    "all-to-all": lambda k: num(1),
    "send": lambda k: num(1),
}


@dataclass(frozen=True)
class Counting:
    """What an accounting counts of one call: a form in the payload's share that is sent, ranks and groups."""

    name: str
    count: Callable[[str, Form, Form, Form], Form]


# One row a counting: (collective, share one rank sends, ranks, groups side by side) -> share of the payload.
COUNTINGS: Mapping[str, Counting] = {
    c.name: c
    for c in (
        Counting("payload", lambda kind, sent, k, groups: num(1)),
        Counting("sent_per_rank", lambda kind, sent, k, groups: sent),
        Counting("sent_and_received_per_rank", lambda kind, sent, k, groups: product(num(2), sent)),
        # A message is sent by one rank of a group; a collective by all k.
        Counting("all_links", lambda kind, sent, k, groups: product(groups, *(() if kind == "send" else (k,)), sent)),
        Counting("contributed", lambda kind, sent, k, groups: product(groups, _CONTRIBUTED[kind](k))),
    )
}


def share(kind: str, counted: str, algorithm: str, k: Form, groups: Form) -> Form:
    """The share of the payload that an accounting counts for one call.

    ``groups`` is the number of groups of ranks that run the call side by side on a mesh of several axes; only
    countings over all ranks multiply by it.

    >>> from symcomm.form import Sym, evaluate
    >>> from fractions import Fraction
    >>> evaluate(share("all-reduce", "sent_per_rank", "ring", Sym("k"), num(1)), {"k": Fraction(8)})
    Fraction(7, 4)
    """
    return COUNTINGS[counted].count(kind, ALGORITHMS[algorithm].sent[kind](k), k, groups)
