"""The cost of a call on the wire, by the record of its algorithm: the share of its payload that a link carries."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from symcomm.core.collectives.algorithms import algorithm, level_names
from symcomm.core.collectives.cost import Case, minus, plus, times
from symcomm.core.form import Form, Num, Ratio, Sym, Total, negative, num, product
from symcomm.core.records import dataclass


@dataclass(frozen=True)
class Wire:
    """Of one call over some ranks: shares of its payload and rounds."""

    path: Form  # bytes that follow one another in the busier direction of a link
    moved: Form  # bytes that a rank sends and receives together
    rounds: Form
    own_links: bool = False  # a rank uses several links at once: both of a ring, or those of all axes of a torus
    how: str = ""  # how the call goes, in words
    by: str = ""  # the name of its algorithm

    def through(self, link: str) -> Form:
        """The share that a link carries: in the busier direction, or in both directions together."""
        if link != "bidirectional":
            return self.path
        # Each of several links is as busy in one direction as in the other.
        return times(num(2), self.path) if self.own_links else self.moved

    def part(self, share: Form) -> Wire:
        """The same of a share of its messages."""
        path, moved, rounds = (times(share, one) for one in (self.path, self.moved, self.rounds))
        return replace(self, path=path, moved=moved, rounds=rounds)

    def beside(self, other: Wire, how: str = "") -> Wire:
        """The same with the messages of another one over the same link."""
        path, moved = plus(self.path, other.path), plus(self.moved, other.moved)
        return replace(self, path=path, moved=moved, rounds=plus(self.rounds, other.rounds), how=how or self.how)


@lru_cache(maxsize=512)
def wire(kind: str, name: str, k: Form, rings: str = "one_way", torus: str = "one_axis_at_a_time") -> Wire:
    """The shares and rounds of a call of ``kind`` over ``k`` ranks.

    ``rings`` says how many ways rings run, ``torus`` how many of its axes are used at once. A symbol for the ranks of a
    ring that runs ``both_ways`` stands for an even number.

    Raises ``AccountingError`` for a collective that the algorithm cannot run.

    >>> from fractions import Fraction
    >>> from symcomm.core.form import evaluate
    >>> cost = wire("all-reduce", "owner_multicast", Sym("p"))
    >>> evaluate(cost.path, {"p": Fraction(8)}), evaluate(cost.moved, {"p": Fraction(8)})
    (Fraction(7, 4), Fraction(21, 8))
    >>> wire("all-gather", "ring", Sym("k"), "both_ways").through("bidirectional")
    Num(number=Fraction(1, 1), unit=Unit(powers=()))
    """
    record = algorithm(name)
    even = not record.inner and not (isinstance(k, Num) and k.number % 2)
    plain = Case(num(1), k, nodes=tuple(Sym(inner) for inner in record.inner))
    case = replace(plain, directions=1 + (rings == "both_ways"), even=even, at_once=record.uses_at_once(torus))
    made, alone = record.run(kind, case), record.run(kind, plain)
    # A message has one end on each rank, but every rank of a pipeline both sends and receives.
    moved = product(num(2), made.sent) if kind == "send" else made.moved
    return Wire(made.path, moved, made.rounds, made.path != alone.path, made.told, name)


def direct(kind: str, k: Form, inner: tuple[Form, ...]) -> list[Wire]:
    """The shares and rounds of messages from each rank to every other one, by the level that joins the two.

    ``inner`` are the ranks that each level but the last joins.

    >>> from fractions import Fraction
    >>> from symcomm.core.form import evaluate
    >>> [evaluate(level.path, {}) for level in direct("all-to-all", num(32), (num(8),))]
    [Fraction(7, 1024), Fraction(3, 128)]
    """
    record = algorithm("pairwise")
    made = record.run(kind, Case(num(1), k))
    each = times(made.path, Ratio(num(1), minus(k, 1)))
    joined = [product(*inner[: n + 1]) for n in range(len(inner))]
    where = ["in the same node", *["in other units of the level above"] * (len(inner) - 1), "in other nodes"]
    found: list[Wire] = []
    for n, (whole, said) in enumerate(zip((*joined, k), where, strict=True)):
        peers = Total((whole, negative(joined[n - 1]))) if n else minus(whole, 1)
        path = times(peers, each)
        told = f"{made.told} This many of them are {said}."
        found.append(Wire(path, times(num(2), path), peers, how=told, by=record.name))
    return found


def by_level(
    kind: str, k: Form, inner: tuple[Form, ...], rings: str = "one_way", lines: tuple[bool, ...] = ()
) -> list[Wire]:
    """The shares and rounds of a hierarchical call of ``kind`` over ``k`` ranks, level by level.

    ``inner`` are the ranks that each level but the last joins, ``lines`` says which levels are no rings.

    >>> from fractions import Fraction
    >>> from symcomm.core.form import evaluate
    >>> [evaluate(level.path, {}) for level in by_level("all-reduce", num(32), (num(8),))]
    [Fraction(7, 4), Fraction(3, 16)]
    """
    record = algorithm("hierarchical")
    case = Case(num(1), k, nodes=inner)
    made = record.run(kind, case)
    both = record.run(kind, replace(case, directions=2)) if rings == "both_ways" else made

    def level(name: str, line: bool) -> Wire:
        there, once = ([p for p in run.phases if p.link == name] for run in (made if line else both, made))
        moved = times(num(2), plus(*(p.path for p in once)))
        told = " ".join(dict.fromkeys(p.what for p in there))
        path, alone = (plus(*(p.path for p in phases)) for phases in (there, once))
        return Wire(path, moved, plus(*(p.rounds for p in there)), path != alone, told, record.name)

    every = level_names(len(inner) + 1)
    return [level(name, line) for name, line in zip(every, lines or (False,) * len(every), strict=True)]
