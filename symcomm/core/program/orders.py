"""A pipeline schedule: one record that says, for each rank, what it does in which order.

When the work runs follows from the order, from what each action waits for and from the times of the stages; see
``core.program.events``. A record is written in the chunks of its rank; its placement says which stages these are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import product as pairs
from typing import NamedTuple

from symcomm.core.derivation import RELATIONS, Condition
from symcomm.core.errors import StrategyError, SymcommError, ValuesError
from symcomm.core.form import Form, Num, Sym, substitute
from symcomm.core.records import dataclass


class Action(NamedTuple):
    """One piece of work of one microbatch in one stage; stages and microbatches count from 0.

    ``kind`` is F (forward), B (gradient of the input), W (gradient of the weights) or D (both gradients at once).

    >>> str(Action("F", 2, 5))
    'F2.5'
    """

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.stage}.{self.microbatch}"


Item = tuple[Action, ...]  # what a rank starts at once: an action, or a forward and a backward that overlap


@dataclass(frozen=True)
class Placement:
    """The stage of a rank's chunk, of p ranks: ``stage(rank, chunk, p)``."""

    name: str
    why: str
    stage: Callable[[int, int, int], int]

    def copies(self, p: int, v: int) -> Fraction:
        """On how many ranks each stage is, with v chunks on each of p ranks.

        >>> str(TWO_WAY.copies(4, 2))
        '2'
        """
        return Fraction(p * v, len({self.stage(rank, chunk, p) for rank in range(p) for chunk in range(v)}))


LOOP = Placement("loop", "Stage s is on rank s mod p.", lambda rank, chunk, p: chunk * p + rank)
VEE = Placement(
    "V", "The second half of the stages goes back over the ranks.",
    lambda rank, chunk, p: 2 * p - 1 - rank if chunk else rank,
)  # fmt: skip
TWO_WAY = Placement(
    "two-way", "Two copies of every stage: microbatches enter at both ends.",
    lambda rank, chunk, p: p - 1 - min(rank, p - 1 - rank) if chunk else min(rank, p - 1 - rank),
)  # fmt: skip


@dataclass(frozen=True)
class Schedule:
    """A pipeline schedule: its name, a sentence why, and what each rank does in order."""

    name: str
    why: str
    # The items of a rank for p ranks, m microbatches and v chunks a rank; an ``Action`` has a chunk as its stage.
    order: Callable[[int, int, int, int], Iterable[Item]]
    source: str
    placement: Placement = LOOP
    chunks: int | None = 1  # the v that it is made for; None where any will do
    # Conditions on the sizes: each with the message where it does not hold (sizes in braces), and a hint.
    needs: tuple[tuple[str, str, str], ...] = ()
    stashes: bool = False  # each microbatch updates the weights; a version is kept for each one in flight

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions on the sizes."""
        return tuple(condition for text, _, _ in self.needs for condition in conditions(text))

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of its actions; ``+`` where some overlap.

        >>> from symcomm.core.program.schedules import find
        >>> sorted(find("zb-h1").kinds), "+" in find("dualpipe").kinds
        (['B', 'F', 'W'], True)
        """
        items: list[Item] = []
        only = {c.left: int(c.right.number) for c in self.conditions if c.relation == "=" and isinstance(c.right, Num)}
        sizes = pairs([only.get(Sym("p"), 0)] if only else (4, 3, 2, 1), [only.get(Sym("m"), 0)] if only else (8, 9))
        for p, m in sizes:
            try:
                items = [item for order in self.ranks(p, m) for item in order]
            except SymcommError:
                continue
            break
        return frozenset({a.kind for item in items for a in item} | {"+" for item in items if len(item) > 1})

    def fitting(self, p: int, m: int, v: int | None = None) -> int:
        """The chunks of a rank, where the schedule can have these sizes.

        Raises ``ValuesError`` for sizes below 1 and ``StrategyError`` for those that the schedule is not made for.
        """
        v = (self.chunks or 1) if v is None else v
        for what, size in (("stages", p), ("microbatches", m), ("chunks", v)):
            if size < 1:
                raise ValuesError(f"{what} = {size}: at least one is needed")
        if self.chunks and self.chunks != v:
            raise self.wrong_chunks(v)
        at = {"p": Fraction(p), "m": Fraction(m), "v": Fraction(v)}
        for text, told, hint in self.needs:
            if not all(condition.holds(at) for condition in conditions(text)):
                raise StrategyError(told.format(p=p, m=m, v=v), hint=hint.format(p=p, m=m, v=v, twice=2 * p))
        return v

    def ends(self, rank: int, p: int) -> tuple[bool, bool]:
        """Whether a rank has the first stage of the model, and whether it has the last one; -1 is the last rank.

        >>> from symcomm.core.program.schedules import find
        >>> find("zb-v").ends(0, 4), find("1f1b").ends(-1, 4)
        ((True, True), (False, True))
        """
        v = self.chunks or 1
        every = [{self.placement.stage(r, chunk, p) for chunk in range(v)} for r in range(p)]
        return 0 in every[rank], max(map(max, every)) in every[rank]

    def flushed(self, what: str) -> Schedule:
        """Itself; raises ``StrategyError`` where it has no step that ends with one update."""
        if self.stashes:
            hint = "1f1b, with one update a step; state_memory counts the versions of the weights"
            told = f"{self.name} updates the weights with each microbatch, so {what} is not derived"
            raise StrategyError(told, hint=hint)
        return self

    def wrong_chunks(self, said: object) -> StrategyError:
        """The error for other chunks than the schedule is made for."""
        if self.chunks == 1:
            return StrategyError(f"the schedule {self.name} has no chunks", hint="interleaved has")
        return StrategyError(
            f"the schedule {self.name} has {self.chunks} chunks a rank, not {said}", hint=f"chunks={self.chunks}"
        )

    def rank(self, rank: int, p: int, m: int, v: int | None = None) -> list[Item]:
        """The work of one rank, in order; the errors are as in ``fitting``."""
        v = self.fitting(p, m, v)
        stage = cache(lambda chunk: self.placement.stage(rank, chunk, p))
        return [tuple([Action(kind, stage(chunk), i) for kind, chunk, i in item]) for item in self.order(rank, p, m, v)]

    def ranks(self, p: int, m: int, v: int | None = None) -> list[list[Item]]:
        """The work of every rank, in order; the errors are as in ``fitting``.

        >>> from symcomm.core.program.schedules import find
        >>> for order in find("1f1b").ranks(2, 2):
        ...     print(written(order))
        F0.0 F0.1 D0.0 D0.1
        F1.0 D1.0 F1.1 D1.1
        """
        return [self.rank(rank, p, m, v) for rank in range(p)]


@cache
def conditions(text: str, symbols: tuple[Sym, ...] = ()) -> tuple[Condition, ...]:
    """Conditions from text with commas between them; names are sizes, or one of the symbols.

    >>> [str(condition) for condition in conditions("m >= 2p - 1, p = 2 ceil(p/2)")]
    ['m >= 2·p - 1', 'p = 2·⌈p/2⌉']
    """
    from symcomm.core.text.formula import read_form

    known = {symbol.name: symbol for symbol in symbols}

    def side(written: str) -> Form:
        return substitute(read_form(written.strip(), None, known), lambda s: known.get(s.name, s))

    found = []
    for part in filter(None, text.split(",")):
        relation = next(r for r in RELATIONS if r in part)
        left, right = part.split(relation)
        found.append(Condition(side(left), relation, side(right)))
    return tuple(found)


def written(order: Iterable[Item]) -> str:
    """An order as a line of text.

    >>> written([(Action("F", 2, 5), Action("D", 1, 3)), (Action("W", 0, 1),)])
    'F2.5+D1.3 W0.1'
    """
    return " ".join("+".join(map(str, item)) for item in order)


def forward_only(orders: Iterable[Sequence[Item]]) -> list[list[Item]]:
    """The same orders without the backward pass."""
    kept = [[tuple(a for a in item if a.kind == "F") for item in order] for order in orders]
    return [[item for item in order if item] for order in kept]


def in_flight(order: Iterable[Item], until: str = "W") -> int:
    """The most microbatches of a chunk that a rank holds at once, as ``flights`` counts them.

    >>> in_flight([(Action("F", 0, 0),), (Action("F", 0, 1),), (Action("D", 0, 0),), (Action("D", 0, 1),)])
    2
    """
    return max((sum(held.values()) for held in flights(order, until)), default=0)


def flights(order: Iterable[Item], until: str = "W") -> Iterator[dict[int, int]]:
    """The microbatches that a rank holds of each of its stages, from their forward to their backward, item by item.

    They are held until their ``W``, the gradient of the weights, or until their ``B``, that of the input. The two of an
    overlapped pair are both held. Each time it is the same dict, as it is then.
    """
    held: dict[int, int] = {}
    for item in order:
        for action in item:
            held[action.stage] = held.get(action.stage, 0) + (action.kind == "F")
        yield held
        for action in item:
            held[action.stage] -= action.kind in ("D", until)


# -- pieces of orders -------------------------------------------------------------------------------------


def passes(kind: str, microbatches: Iterable[int], chunk: int = 0) -> list[Item]:
    """The same work for one microbatch after another."""
    return [(Action(kind, chunk, i),) for i in microbatches]


def one_by_one(forward: list[Item], backward: list[Item], warm: int) -> list[Item]:
    """``warm`` forwards, then a forward and a backward in turn, then the backwards that are left."""
    warm = min(warm, len(forward))
    turns = [item for pair in zip(forward[warm:], backward, strict=False) for item in pair]
    return forward[:warm] + turns + backward[len(forward) - warm :]


def late_weights(order: list[Item], lag: int) -> list[Item]:
    """The gradient of the weights of microbatch i right after the B of microbatch i + lag; the last ones at the end."""
    found: list[Item] = []
    count = 0
    for item in order:
        found.append(item)
        kind, chunk, i = item[0]
        count += kind == "B"
        if kind == "B" and i >= lag:
            found.append((Action("W", chunk, i - lag),))
    return found + passes("W", range(max(0, count - lag), count))


class Writer:
    """Writes the order of a rank, in which each action takes the next microbatch of its kind and chunk.

    Actions are written as a kind and a chunk: ``F0``, ``D1``, the pair ``F0+D1``. A plain ``W`` takes the oldest
    microbatch of any chunk that has had its B and not its W. ``first`` is the first microbatch of each chunk.

    >>> written(Writer().add("F0 F0 B0 W", times=2).items)
    'F0.0 F0.1 B0.0 W0.0 F0.2 F0.3 B0.1 W0.1'
    """

    def __init__(self, first: tuple[int, int] = (0, 0)) -> None:
        self.items: list[Item] = []
        self.first, self.done = first, Counter[tuple[str, int]]()
        self.pending: list[tuple[int, int]] = []

    def next(self, kind: str, chunk: int) -> int:
        """The microbatch that the next action of a kind takes; a D and a B take from the same ones."""
        return self.first[chunk] + self.done["B" if kind == "D" else kind, chunk]

    def add(self, text: str, times: int = 1) -> Writer:
        """Adds the actions of a text, so many times."""
        for word in text.split() * times:
            self.items.append(tuple(self._action(part) for part in word.split("+")))
        return self

    def _action(self, part: str) -> Action:
        kind = part[0]
        if part == "W":
            chunk, microbatch = self.pending.pop(0)
        else:
            chunk = int(part[1:])
            microbatch = self.next(kind, chunk)
            if kind == "B":
                self.pending.append((chunk, microbatch))
            elif kind == "W":
                self.pending.remove((chunk, microbatch))
        self.done["B" if kind == "D" else kind, chunk] += 1
        if kind == "D":  # it makes the gradient of the weights, too
            self.done["W", chunk] += 1
        return Action(kind, chunk, microbatch)
