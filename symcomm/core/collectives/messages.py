"""Collectives run message by message: who sends which pieces to whom in each round, and the bytes that this takes.

Knows none of the formulas of ``algorithms``: it is the witness of what they say. A rank holds pieces, each with the
ranks whose parts are in it; a run that counts a part twice, or does not end as the collective should, is an error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import prod

Message = tuple[int, int, Sequence[Hashable], bool, object]  # from, to, which pieces, whether they are added, the port
Rounds = Iterator[list[Message]]
MOST, MOST_EXCHANGING = 128, 24  # ranks that are run one by one


@dataclass(frozen=True)
class ExchangeCost:
    """The cost of a run: rounds, bytes one after another, bytes added one after another, and those of the ranks."""

    rounds: int
    path: Fraction
    reduced: Fraction
    sent: Fraction
    received: Fraction
    moved: Fraction
    total: Fraction


@dataclass
class Exchanged:
    """Counts what each rank sends and receives; a round lasts as long as the busiest port of it."""

    ranks: int
    size: Fraction  # of a piece, in bytes
    held: list[dict[Hashable, frozenset[int]]] = field(default_factory=list)
    sent: list[Fraction] = field(default_factory=list)
    received: list[Fraction] = field(default_factory=list)
    rounds: int = 0
    path: Fraction = Fraction(0)
    reduced: Fraction = Fraction(0)

    stages: list[tuple[int, Fraction, Fraction]] = field(default_factory=list)  # rounds, path and additions of each

    def __post_init__(self) -> None:
        self.held = self.held or [{} for _ in range(self.ranks)]
        self.sent, self.received = ([Fraction(0)] * self.ranks for _ in range(2))

    def run(self, *groups: Rounds, size: Fraction | None = None) -> None:
        """Runs groups of ranks side by side, round by round."""
        each = self.size if size is None else size
        before = self.rounds, self.path, self.reduced
        alive = [*groups]
        while alive:
            found = [(group, next(group, None)) for group in alive]
            alive = [group for group, messages in found if messages is not None]
            every = [message for _, messages in found for message in messages or ()]
            if not every:
                continue
            ports: defaultdict[tuple[int, object, bool], Fraction] = defaultdict(Fraction)
            added: defaultdict[int, Fraction] = defaultdict(Fraction)
            moving = [(m, [(p, self.held[m[0]][p]) for p in m[2]]) for m in every]
            for (source, target, names, adds, port), _ in moving:
                count = len(names) * each
                if port != "multicast":  # which the network does: sent by nobody
                    self.sent[source] += count
                    ports[source, port, True] += count
                self.received[target] += count
                ports[target, port, False] += count
                added[target] += count if adds else 0
            for (_, target, _, adds, _), pieces in moving:
                for piece, parts in pieces:
                    known = self.held[target].get(piece, frozenset()) if adds else frozenset()
                    assert not known & parts, f"rank {target} adds a part of {piece} twice"
                    self.held[target][piece] = known | parts
            self.rounds += 1
            self.path += max(ports.values())
            self.reduced += max(added.values(), default=Fraction(0))
        self.stages.append((self.rounds - before[0], self.path - before[1], self.reduced - before[2]))

    @property
    def taken(self) -> ExchangeCost:
        """The bytes and rounds sent so far."""
        both = [a + b for a, b in zip(self.sent, self.received, strict=True)]
        return ExchangeCost(self.rounds, self.path, self.reduced, max(self.sent), max(self.received), max(both),
                   sum(self.sent, Fraction(0)))  # fmt: skip


# -- rings --------------------------------------------------------------------------------------------


def _ring(group: Sequence[int], piece: Callable[[int], Hashable], reduces: bool, both: bool) -> Rounds:
    """Member i ends with piece i of a sum, or begins with it where pieces are gathered."""
    k = len(group)
    if not both:
        for step in range(k - 1):
            yield [(rank, group[(i + 1) % k], [piece((i - step - reduces) % k)], reduces, 0)
                   for i, rank in enumerate(group)]  # fmt: skip
        return
    for far in reversed(range(1, k // 2 + 1)) if reduces else range(1, k // 2 + 1):
        messages: list[Message] = []
        for i, rank in enumerate(group):
            for way in (1, -1) if 2 * far != k else (1,):
                # What is for the member so far away goes a step towards it; what came from so far goes a step on.
                other = (i + way * far) % k if reduces else (i - way * (far - 1)) % k
                messages.append((rank, group[(i + way) % k], [piece(other)], reduces, way))
        yield messages


def _ring_home(k: int) -> Rounds:
    """Each sum starts where it belongs, and comes back complete: the last send adds nothing."""
    for step in range(k):
        yield [(rank, (rank + 1) % k, [(rank - step) % k], step < k - 1, 0) for rank in range(k)]


def _edges(k: int, sides: int) -> Rounds:
    """Each rank's edges go to the ranks beside it: to the next one, and those of both sides to the one before, too."""
    on: list[Message] = [(rank, rank + 1, [(rank, 1)], False, 0) for rank in range(k - 1)]
    back: list[Message] = [(rank, rank - 1, [(rank, -1)], False, 0) for rank in range(1, k) if sides == 2]
    yield from [on + back] if k == 2 or sides == 1 else [on, back]


def _ring_exchange(k: int, both: bool) -> Rounds:
    """Blocks (from, to, half) on their way, each by the shorter way where both are used."""

    def way(a: int, b: int, half: int) -> int:
        far = (b - a) % k
        return (1 if 2 * far < k or (2 * far == k and half) else -1) if both else 1

    at = {(a, b, half): a for a, b in product(range(k), repeat=2) if a != b for half in range(1 + both)}
    while at:
        loads: defaultdict[tuple[int, int], list[Hashable]] = defaultdict(list)
        for block, rank in at.items():
            loads[rank, way(*block)].append(block)
        yield [(rank, (rank + step) % k, blocks, False, step) for (rank, step), blocks in loads.items()]
        at = {block: (rank + way(*block)) % k for block, rank in at.items()}
        at = {block: rank for block, rank in at.items() if rank != block[1]}


# -- trees and chains ---------------------------------------------------------------------------------


def _powers(k: int) -> list[int]:
    """1, 2, 4, ... below k."""
    return [2**n for n in range(k.bit_length()) if 2**n < k]


def _tree(k: int, up: bool, pieces: Callable[[range], Sequence[Hashable]] | None = None) -> Rounds:
    """To rank 0 or from it; of ``pieces``, those of the ranks behind the other end, else the whole tensor."""
    for reach in _powers(k) if up == (pieces is not None) else reversed(_powers(k)):
        starts = range(reach) if pieces is None else range(0, k, 2 * reach)
        ends = [(i, i + reach) for i in starts if i + reach < k]
        yield [((b, a) if up else (a, b)) + (pieces(range(b, min(b + reach, k))) if pieces else ["t"],
                up and pieces is None, 0) for a, b in ends]  # fmt: skip


def _chain(k: int, chunks: int, reduces: bool) -> Rounds:
    """Chunk after chunk from the last rank to the first, adding, or from the first to the last."""
    for step in range(k - 2 + chunks):
        yield [((k - 1 - at, k - 2 - at) if reduces else (at, at + 1)) + ([step - at], reduces, 0)
               for at in range(k - 1) if 0 <= step - at < chunks]  # fmt: skip


# -- doubling and halving -----------------------------------------------------------------------------


def _within(rank: int, apart: int, p: int, k: int) -> list[Hashable]:
    """The pieces of the ranks that share the digits of ``rank`` from ``apart`` on, and of those folded into them."""
    first = rank // apart * apart
    return [piece for r in range(first, first + apart) for piece in (r, r + p) if piece < k]


def _folded(k: int, p: int, names: Callable[[int], Sequence[Hashable]], back: bool, adds: bool) -> Rounds:
    """Each extra rank hands something to its partner, or gets it from there."""
    if k > p:
        yield [((e - p, e) if back else (e, e - p)) + (names(e), adds, 0) for e in range(p, k)]


def _pairs(k: int, p: int, apart: int, names: Callable[[int], Sequence[Hashable]], adds: bool) -> list[Message]:
    return [(rank, rank ^ apart, names(rank), adds, 0) for rank in range(p)]


def _doubling_gather(k: int, p: int) -> Rounds:
    yield from _folded(k, p, lambda e: [e], False, False)
    for apart in _powers(p):
        yield _pairs(k, p, apart, lambda rank, a=apart: _within(rank, a, p, k), False)  # type: ignore[misc]
    yield from _folded(k, p, lambda e: [r for r in range(k) if r != e], True, False)


def _halving_scatter(k: int, p: int) -> Rounds:
    yield from _folded(k, p, lambda e: [r for r in range(k) if r != e], False, True)
    for apart in reversed(_powers(p)):
        yield _pairs(k, p, apart, lambda rank, a=apart: _within(rank ^ a, a, p, k), True)  # type: ignore[misc]
    yield from _folded(k, p, lambda e: [e], True, True)


def _bruck_gather(k: int) -> Rounds:
    for known in _powers(k):
        count = min(known, k - known)
        yield [(r, (r - known) % k, [(r + i) % k for i in range(count)], False, 0) for r in range(k)]


def _bruck_exchange(k: int) -> Rounds:
    """A block is sent on by each power of two that its way has; by then it is so far from where it began."""
    for hop in _powers(k):
        yield [(r, (r + hop) % k, [((r - d % hop) % k, (r - d % hop + d) % k, 0) for d in range(k) if d & hop],
                False, 0) for r in range(k)]  # fmt: skip


def _double_tree(k: int, chunks: int) -> list[Rounds]:
    """Chunks up and down two trees at once, one for each half: the leaves of one have children in the other."""
    up: dict[int, int] = {}
    for rank in range(1, k):  # the lowest binary digit of a rank is its height
        low = rank & -rank
        above = (rank ^ low) | (low << 1)
        up[rank] = above if above < k else rank ^ low
    other = {k - 1 - c: k - 1 - p for c, p in up.items()} if k % 2 == 0 else {
        (c + 1) % k: (p + 1) % k for c, p in up.items()}  # fmt: skip

    def depth(tree: dict[int, int], rank: int) -> int:
        return 1 + depth(tree, tree[rank]) if rank in tree else 0

    edges = [(t, c, p, depth(tree, c)) for t, tree in enumerate((up, other)) for c, p in tree.items()]
    deepest = max(far for *_, far in edges)

    def rounds(back: bool) -> Rounds:
        for step in range(deepest + chunks - 1):
            at = [(t, c, p, step - (far - 1 if back else deepest - far)) for t, c, p, far in edges]
            yield [((p, c) if back else (c, p)) + ([(t, n)], not back, t) for t, c, p, n in at if 0 <= n < chunks]

    return [rounds(False), rounds(True)]


def _direct(group: Sequence[int], names: Callable[[int, int], Sequence[Hashable]], adds: bool) -> Rounds:
    for step in range(1, len(group)):
        pairs = zip(group, (*group[step:], *group[:step]), strict=True)
        yield [(a, b, names(a, b), adds, 0) for a, b in pairs]


def _at_once(group: Sequence[int], names: Callable[[int, int], Sequence[Hashable]], adds: bool) -> Rounds:
    yield [(a, b, names(a, b), adds, 0) for a in group for b in group if a != b]


# -- a collective from its beginning to its end ---------------------------------------------------------


@lru_cache(maxsize=256)
def run(
    algorithm: str, kind: str, ranks: int, payload: Fraction, wide: Fraction | None = None, chunks: int = 1,
    sizes: tuple[int, ...] = (), both: bool = False, at_once: bool = False,
) -> ExchangeCost | None:  # fmt: skip
    """The cost of a collective, run message by message; None for what is not run here, and for very many ranks.

    Parts are whole elements of ``wide`` bytes, or divide without one. ``sizes`` are the ranks along each level of rings
    inside rings, the innermost first; ``both`` ways round a ring, and all axes ``at_once``, may be used.

    >>> run("tree", "broadcast", 5, Fraction(8)).rounds
    3
    """
    if (
        not 2 <= ranks <= (MOST_EXCHANGING if kind == "all-to-all" else MOST)
        or chunks > MOST
        or min(sizes, default=2) < 2
    ):
        return None
    if sizes and at_once:
        turns = [sizes[n:] + sizes[:n] for n in range(len(sizes))]
        each = [_leveled(kind, _part(payload, len(sizes), wide), wide, turn, both) for turn in turns]
        longest = [[max(found) for found in zip(*stage, strict=True)] for stage in
                   zip(*(net.stages for net in each), strict=True)]  # fmt: skip
        rounds, path, reduced = (sum(column) for column in zip(*longest, strict=True))
        sent = sum((net.taken.sent for net in each), Fraction(0))  # all ranks are alike
        return ExchangeCost(int(rounds), Fraction(path), Fraction(reduced), sent, sent, 2 * sent, ranks * sent)
    if sizes and kind == "all-to-all":
        return _leveled_exchange(_part(payload, ranks**2, wide), *sizes).taken
    if sizes:
        return _leveled(kind, payload, wide, sizes, both).taken
    if algorithm == "halving_doubling" and kind == "all-reduce":
        return _halving_all_reduce(ranks, payload, wide)
    stages = _stages(algorithm, kind, ranks, chunks, both)
    if not stages:
        return None
    names: list[Hashable] = [*range(ranks)]
    if kind == "all-to-all":
        names = [(a, b, half) for a, b in product(range(ranks), repeat=2) for half in range(1 + both)]
    elif kind in _HALO:
        names = [*(1, -1)[: _HALO[kind]]]
    elif algorithm == "double_tree":
        names = [*product(range(2), range(chunks))]
    elif algorithm == "chain":
        names = [*range(chunks)]
    elif (algorithm, kind) in _WHOLE:
        names = ["t"]
    net = Exchanged(ranks, _part(payload, len(names), wide))
    for rank in range(ranks):
        mine = names if kind in _REDUCING or rank == 0 else []
        mine = [rank] if kind in ("all-gather", "gather", "ring-pass") else mine
        mine = [(rank, way) for way in names] if kind in _HALO else mine
        mine = [name for name in names if name[0] == rank] if kind == "all-to-all" else mine  # type: ignore[index]
        net.held[rank] = {piece: frozenset({0 if kind not in _REDUCING else rank}) for piece in mine}
    for stage in stages:
        net.run(stage)
    _ended(net, kind, names)
    if algorithm == "double_tree":  # a round lasts until a rank has the chunks of two children, though few take both
        slot = 2 * net.size
        return replace(net.taken, path=net.rounds * slot, reduced=net.stages[0][0] * slot)
    return net.taken


_OWN_SUM = ("reduce-scatter", "ring-sum", "ring-sum-home")  # a rank ends with the sum of its own part
_HALO = {"halo-shift": 1, "halo-exchange": 2}  # from how many sides a rank gets edges
_REDUCING = ("all-reduce", "reduce", *_OWN_SUM)
_WHOLE = {*(("tree", kind) for kind in ("all-reduce", "broadcast", "reduce")), ("recursive_doubling", "all-reduce"),
          ("one_shot", "all-reduce")}  # fmt: skip


def _part(of: Fraction, parts: int, wide: Fraction | None) -> Fraction:
    """The bytes of one of so many equal parts."""
    return of / parts if wide is None else -(-of // (wide * parts)) * wide


def _stages(algorithm: str, kind: str, k: int, chunks: int, both: bool) -> list[Rounds]:
    """The stages of an algorithm, which run one after the other; none for what is not run here."""
    p = 2 ** (k.bit_length() - 1)

    def ring(reduces: bool) -> Rounds:
        return _ring(range(k), lambda i: i, reduces, both)

    def behind(ranks: range) -> Sequence[Hashable]:
        return ranks

    match algorithm, kind:
        case "ring", "all-reduce":
            return [ring(True), ring(False)]
        case "ring", ("reduce-scatter" | "all-gather"):
            return [ring(kind == "reduce-scatter")]
        case "ring", "ring-pass":
            return [ring(False)]
        case "ring", ("halo-exchange" | "halo-shift"):
            return [_edges(k, _HALO[kind])]
        case "ring", "ring-sum":
            return [ring(True)]
        case "ring", "ring-sum-home":
            return [_ring_home(k)]
        case "ring", "all-to-all":
            return [_ring_exchange(k, both)]
        case "tree", "all-reduce":
            return [_tree(k, True), _tree(k, False)]
        case "tree", ("reduce" | "broadcast"):
            return [_tree(k, kind == "reduce")]
        case "tree", ("gather" | "scatter"):
            return [_tree(k, kind == "gather", behind)]
        case "scatter_allgather", "broadcast":
            return [_tree(k, False, behind), ring(False)]
        case "double_tree", "all-reduce":
            return _double_tree(k, chunks)
        case "recursive_doubling", "all-reduce":
            fold = [_folded(k, p, lambda e: ["t"], back, not back) for back in (False, True)]
            return [fold[0], iter([_pairs(k, p, apart, lambda rank: ["t"], True) for apart in _powers(p)]), fold[1]]
        case (("recursive_doubling" | "halving_doubling"), "all-gather"):
            return [_doubling_gather(k, p)]
        case "halving_doubling", "reduce-scatter":
            return [_halving_scatter(k, p)]
        case "bruck", "all-gather":
            return [_bruck_gather(k)]
        case "bruck", "all-to-all":
            return [_bruck_exchange(k)]
        case "pairwise", "all-to-all":
            return [_direct(range(k), lambda a, b: [(a, b, 0)], False)]
        case "pairwise", ("reduce-scatter" | "all-gather"):
            reduces = kind == "reduce-scatter"
            return [_direct(range(k), lambda a, b: [b if reduces else a], reduces)]
        case "one_shot", "all-reduce":
            return [_at_once(range(k), lambda a, b: ["t"], True)]
        case "two_shot", "all-reduce":
            return [_at_once(range(k), lambda a, b: [b], True), _at_once(range(k), lambda a, b: [a], False)]
        case "owner_multicast", "all-reduce":
            pairs = [(a, b) for a, b in product(range(k), repeat=2) if a != b]
            multicast: Rounds = iter([[(a, b, [a], False, "multicast") for a, b in pairs]])
            return [_direct(range(k), lambda a, b: [b], True), multicast]
        case "chain", "all-reduce":
            return [_chain(k, chunks, True), _chain(k, chunks, False)]
        case "chain", ("reduce" | "broadcast"):
            return [_chain(k, chunks, kind == "reduce")]
    return []


def _halving_all_reduce(k: int, payload: Fraction, wide: Fraction | None) -> ExchangeCost:
    """The ranks that double cut the tensor into a piece each; what is folded goes as it is, without padding."""
    p = 2 ** (k.bit_length() - 1)
    net = Exchanged(k, _part(payload, p, wide))
    for rank in range(k):
        net.held[rank] = {piece: frozenset({rank}) for piece in range(p)}
    net.run(_folded(k, p, lambda e: range(p), False, True), size=payload / p)
    net.run(_halving_scatter(p, p))
    net.run(_doubling_gather(p, p))
    net.run(_folded(k, p, lambda e: range(p), True, False), size=payload / p)
    _ended(net, "all-reduce", [*range(p)])
    return net.taken


def _leveled(kind: str, payload: Fraction, wide: Fraction | None, sizes: tuple[int, ...], both: bool) -> Exchanged:
    """Rings inside rings: scattered from the innermost level out, gathered from the outermost in."""
    net = Exchanged(prod(sizes), payload)
    place = [tuple(rank // prod(sizes[:n]) % size for n, size in enumerate(sizes)) for rank in range(net.ranks)]
    every: list[Hashable] = [*product(*map(range, sizes))]
    reduces = kind in _REDUCING
    for rank in range(net.ranks):
        mine = every if reduces else [place[rank]]
        net.held[rank] = {piece: frozenset({rank if reduces else 0}) for piece in mine}
    lengths = [payload]
    for size in sizes:
        lengths.append(_part(lengths[-1], size, wide))

    def one(rank: int, level: int, reducing: bool) -> Rounds:
        """The rounds of the ring that a rank begins; a piece of it is all that the outer levels cut it into."""
        group, inner = [rank + n * prod(sizes[:level]) for n in range(sizes[level])], place[rank][:level]
        outer = [*product(*map(range, sizes[level + 1 :]))]
        for messages in _ring(group, lambda i: i, reducing, both):
            yield [(a, b, [(*inner, i, *rest) for i in names for rest in outer], adds, port)
                   for a, b, names, adds, port in messages]  # fmt: skip

    levels = range(len(sizes))
    turns = [(level, True) for level in levels if reduces]
    turns += [(level, False) for level in reversed(levels) if kind != "reduce-scatter"]
    for level, reducing in turns:
        first = [rank for rank in range(net.ranks) if place[rank][level] == 0]
        net.run(*(one(rank, level, reducing) for rank in first), size=lengths[level + 1] / prod(sizes[level + 1 :]))
    _ended(net, kind, every, place)
    return net


def _leveled_exchange(block: Fraction, inside: int, nodes: int) -> Exchanged:
    """Blocks (from, to) go to the rank of their node that has their place, and from there to their node."""
    every = range(inside * nodes)
    net = Exchanged(len(every), block, [{(a, b): frozenset({0}) for b in every} for a in every])

    def placed(a: int, b: int) -> list[Hashable]:
        return [(a, to) for to in every if to % inside == b % inside]

    net.run(*(_direct(every[n * inside : (n + 1) * inside], placed, False) for n in range(nodes)))

    def aimed(a: int, b: int) -> list[Hashable]:
        return [(source, b) for source in every if source // inside == a // inside]

    net.run(*(_direct(every[n::inside], aimed, False) for n in range(inside)))
    _ended(net, "all-to-all", [(a, b) for a in every for b in every])
    return net


def _ended(net: Exchanged, kind: str, names: list[Hashable], own: Sequence[Hashable] = ()) -> None:
    """Raises ``AssertionError`` where a rank does not hold what the collective says."""
    done = frozenset(range(net.ranks)) if kind in _REDUCING else frozenset({0})
    for rank, held in enumerate(net.held):
        mine = [own[rank] if own else rank] if kind in ("scatter", *_OWN_SUM) else names
        mine = [name for name in names if name[1] == rank] if kind == "all-to-all" else mine  # type: ignore[index]
        mine = [] if kind in ("reduce", "gather") and rank else mine
        ways = (1, -1)[: _HALO.get(kind, 0)]
        mine = [(rank - way, way) for way in ways if 0 <= rank - way < net.ranks] if ways else mine
        assert all(held.get(piece) == done for piece in mine), f"rank {rank} ends with {held}"
