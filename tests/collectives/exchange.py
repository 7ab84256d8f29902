"""Ranks that exchange real arrays in rounds, and count every byte. Shares no code with the package.

Each algorithm is a generator over a group of ranks: it hands messages to the network, yields, and finds what has
arrived when it is resumed. Groups that work side by side are resumed together, so their messages share a round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable

import numpy as np

Array = np.ndarray
Inbox = dict[tuple[int, int, object], Array]
Steps = Generator[None, Inbox, None]
RankShare = dict[int, Array]


class Network:
    """Counts what each rank sends and receives, over which port, and adds up, in every round."""

    def __init__(self, ranks: int) -> None:
        self.rounds = self.path = 0
        self.sent, self.received = [0] * ranks, [0] * ranks
        self.slots: list[int] = []
        self.additions: defaultdict[tuple[int, int], int] = defaultdict(int)
        self.queue: list[tuple[int, int, object, Array, object, bool]] = []

    def send(self, source: int, target: int, data: Array, tag: object = None, port: object = None) -> None:
        assert source != target
        self.queue.append((source, target, tag, data.copy(), port, True))

    def multicast(self, source: int, targets: Iterable[int], data: Array, tag: object = None) -> None:
        """The network copies one message to many: received by each, counted as sent by nobody."""
        for target in targets:
            self.queue.append((source, target, tag, data.copy(), None, False))

    def add(self, rank: int, into: Array, data: Array) -> None:
        into += data
        self.additions[self.rounds, rank] += data.nbytes

    def deliver(self) -> Inbox:
        used: defaultdict[tuple[int, object, str], int] = defaultdict(int)
        inbox: Inbox = {}
        for source, target, tag, data, port, counted in self.queue:
            assert (source, target, tag) not in inbox, "two messages cannot be told apart"
            inbox[source, target, tag] = data
            if counted:
                self.sent[source] += data.nbytes
                used[source, port, "out"] += data.nbytes
            self.received[target] += data.nbytes
            used[target, port, "in"] += data.nbytes
        assert self.queue, "a round without a message"
        self.queue = []
        self.rounds += 1
        self.slots.append(max(used.values()))
        self.path += self.slots[-1]
        return inbox

    @property
    def reduced(self) -> int:
        """The sum over the rounds of the most bytes that one rank adds."""
        most: defaultdict[int, int] = defaultdict(int)
        for (r, _), count in self.additions.items():
            most[r] = max(most[r], count)
        return sum(most.values())

    def run(self, *groups: Steps) -> None:
        """Resumes all groups together, round by round, until all have finished."""
        alive = []
        for g in groups:
            try:
                next(g)
                alive.append(g)
            except StopIteration:
                pass
        while alive:
            inbox, still = self.deliver(), []
            for g in alive:
                try:
                    g.send(inbox)
                    still.append(g)
                except StopIteration:
                    pass
            alive = still


def cut(data: Array, parts: int) -> Array:
    """Equal chunks, the last ones padded with zeros; a row each."""
    size = -(-len(data) // parts)
    padded = np.zeros(size * parts, data.dtype)
    padded[: len(data)] = data
    return padded.reshape(parts, size)


# -- rings --------------------------------------------------------------------------------------------


def ring_reduce_scatter(net: Network, group: list[int], rows: RankShare) -> Steps:
    """``rows[rank]`` has a row a member; member i ends with row i summed."""
    k = len(group)
    for step in range(k - 1):
        for i, rank in enumerate(group):
            net.send(rank, group[(i + 1) % k], rows[rank][(i - step - 1) % k])
        inbox = yield
        for i, rank in enumerate(group):
            net.add(rank, rows[rank][(i - step - 2) % k], inbox[group[(i - 1) % k], rank, None])


def ring_all_gather(net: Network, group: list[int], rows: RankShare) -> Steps:
    """Member i begins with row i and ends with all."""
    k = len(group)
    for step in range(k - 1):
        for i, rank in enumerate(group):
            net.send(rank, group[(i + 1) % k], rows[rank][(i - step) % k])
        inbox = yield
        for i, rank in enumerate(group):
            rows[rank][(i - step - 1) % k] = inbox[group[(i - 1) % k], rank, None]


def ring_sum_home(net: Network, group: list[int], rows: RankShare) -> Steps:
    """The sum of row i begins at member i and comes back to it."""
    k = len(group)
    for step in range(k):
        for i, rank in enumerate(group):
            net.send(rank, group[(i + 1) % k], rows[rank][(i - step) % k])
        inbox = yield
        for i, rank in enumerate(group):
            came, row = inbox[group[(i - 1) % k], rank, None], (i - step - 1) % k
            if row == i:
                rows[rank][row] = came
            else:
                net.add(rank, rows[rank][row], came)


def two_way_all_gather(net: Network, group: list[int], rows: RankShare) -> Steps:
    """Rows run both ways round the ring at once; each is needed only half way."""
    k = len(group)
    for step in range(k // 2):
        last_of_even = k % 2 == 0 and step == k // 2 - 1  # the rank opposite is reached from one side
        for i, rank in enumerate(group):
            net.send(rank, group[(i + 1) % k], rows[rank][(i - step) % k], "right", "right")
            if not last_of_even:
                net.send(rank, group[(i - 1) % k], rows[rank][(i + step) % k], "left", "left")
        inbox = yield
        for i, rank in enumerate(group):
            rows[rank][(i - step - 1) % k] = inbox[group[(i - 1) % k], rank, "right"]
            if not last_of_even:
                rows[rank][(i + step + 1) % k] = inbox[group[(i + 1) % k], rank, "left"]


def two_way_reduce_scatter(net: Network, group: list[int], rows: RankShare) -> Steps:
    """The same backwards: partial sums run towards their owner from both sides."""
    k = len(group)
    for step in reversed(range(k // 2)):
        first_of_even = k % 2 == 0 and step == k // 2 - 1
        for i, rank in enumerate(group):
            net.send(rank, group[(i - 1) % k], rows[rank][(i - step - 1) % k], "left", "left")
            if not first_of_even:
                net.send(rank, group[(i + 1) % k], rows[rank][(i + step + 1) % k], "right", "right")
        inbox = yield
        for i, rank in enumerate(group):
            net.add(rank, rows[rank][(i - step) % k], inbox[group[(i + 1) % k], rank, "left"])
            if not first_of_even:
                net.add(rank, rows[rank][(i + step) % k], inbox[group[(i - 1) % k], rank, "right"])


def ring_all_to_all(net: Network, k: int, blocks: RankShare) -> Steps:
    """``blocks[rank][i]`` is for rank i; a block goes from neighbour to neighbour until it is there."""
    moving = {(a, b): blocks[a][b].copy() for a in range(k) for b in range(k) if a != b}
    at = {pair: pair[0] for pair in moving}
    while moving:
        loads: dict[int, list[tuple[int, int]]] = {}
        for pair in sorted(moving):
            loads.setdefault(at[pair], []).append(pair)
        for rank, load in loads.items():
            net.send(rank, (rank + 1) % k, np.concatenate([moving[pair] for pair in load]))
        yield
        for load in loads.values():
            for pair in load:
                at[pair] = (at[pair] + 1) % k
                if at[pair] == pair[1]:
                    blocks[pair[1]][pair[0]] = moving.pop(pair)


def two_way_all_to_all(net: Network, k: int, blocks: RankShare) -> Steps:
    """The same by the shorter way, in halves; the opposite rank gets one half from either side."""
    moving = {
        (a, b, half): (blocks[a][b].reshape(2, -1)[half].copy(), (1 if half else -1) if 2 * ((b - a) % k) == k
                       else 1 if 2 * ((b - a) % k) < k else -1)
        for a in range(k) for b in range(k) if a != b for half in (0, 1)
    }  # fmt: skip
    at = {key: key[0] for key in moving}
    while moving:
        loads: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        for key, (_, way) in sorted(moving.items(), key=lambda item: item[0]):
            loads.setdefault((at[key], way), []).append(key)
        for (rank, way), load in loads.items():
            net.send(rank, (rank + way) % k, np.concatenate([moving[key][0] for key in load]), way, way)
        yield
        for (_, way), load in loads.items():
            for key in load:
                at[key] = (at[key] + way) % k
                if at[key] == key[1]:
                    blocks[key[1]][key[0]].reshape(2, -1)[key[2]] = moving.pop(key)[0]


# -- trees --------------------------------------------------------------------------------------------


def tree_broadcast(net: Network, k: int, held: RankShare) -> Steps:
    reach = 1
    while reach < k:
        pairs = [(i, i + reach) for i in range(reach) if i + reach < k]
        for source, target in pairs:
            net.send(source, target, held[source])
        inbox = yield
        for source, target in pairs:
            held[target] = inbox[source, target, None]
        reach *= 2


def tree_reduce(net: Network, k: int, held: RankShare) -> Steps:
    reach = 1
    while reach < k:
        reach *= 2
    while reach > 1:
        reach //= 2
        pairs = [(i + reach, i) for i in range(reach) if i + reach < k]
        for source, target in pairs:
            net.send(source, target, held[source])
        inbox = yield
        for source, target in pairs:
            net.add(target, held[target], inbox[source, target, None])


def tree_scatter(net: Network, k: int, rows: RankShare) -> Steps:
    """Rank 0 has all rows; rank i ends with row i. A subtree is the ranks that share leading binary digits."""
    reach = 1
    while reach < k:
        reach *= 2
    while reach > 1:
        reach //= 2
        pairs = [(i, i + reach) for i in range(0, k, 2 * reach) if i + reach < k]
        for source, target in pairs:
            net.send(source, target, rows[source][target : min(target + reach, k)])
        inbox = yield
        for source, target in pairs:
            rows[target][target : min(target + reach, k)] = inbox[source, target, None]


def tree_gather(net: Network, k: int, rows: RankShare) -> Steps:
    reach = 1
    while reach < k:
        pairs = [(i + reach, i) for i in range(0, k, 2 * reach) if i + reach < k]
        for source, target in pairs:
            net.send(source, target, rows[source][source : min(source + reach, k)])
        inbox = yield
        for source, target in pairs:
            rows[target][source : min(source + reach, k)] = inbox[source, target, None]
        reach *= 2


def in_order_tree(k: int) -> dict[int, int]:
    """The parent of each rank but 0: odd ranks are leaves, the lowest binary digit of a rank is its height."""
    parents = {}
    for rank in range(1, k):
        low = rank & -rank
        up = (rank ^ low) | (low << 1)
        parents[rank] = up if up < k else rank ^ low
    return parents


def two_trees(k: int) -> list[dict[int, int]]:
    one = in_order_tree(k)
    if k % 2 == 0:
        return [one, {k - 1 - c: k - 1 - p for c, p in one.items()}]
    return [one, {(c + 1) % k: (p + 1) % k for c, p in one.items()}]


def double_tree_all_reduce(net: Network, k: int, rows: RankShare, chunks: int) -> Steps:
    """Rows 0 ... chunks - 1 use the first tree, the others the second; a chunk a level a round."""
    trees = two_trees(k)

    def depth(tree: dict[int, int], rank: int) -> int:
        return 1 + depth(tree, tree[rank]) if rank in tree else 0

    edges = [(t, c, p, depth(tree, c)) for t, tree in enumerate(trees) for c, p in tree.items()]
    deepest = max(d for *_, d in edges)
    for step in range(deepest + chunks - 1):
        moving = [(t, c, p, step - (deepest - d)) for t, c, p, d in edges if 0 <= step - (deepest - d) < chunks]
        for t, c, p, i in moving:
            net.send(c, p, rows[c][t * chunks + i], t)
        inbox = yield
        for t, c, p, i in moving:
            net.add(p, rows[p][t * chunks + i], inbox[c, p, t])
    for step in range(deepest + chunks - 1):
        moving = [(t, c, p, step - (d - 1)) for t, c, p, d in edges if 0 <= step - (d - 1) < chunks]
        for t, c, p, i in moving:
            net.send(p, c, rows[p][t * chunks + i], t)
        inbox = yield
        for t, c, p, i in moving:
            rows[c][t * chunks + i] = inbox[p, c, t]


# -- doubling and halving ------------------------------------------------------------------------------


def power_below(k: int) -> int:
    p = 1
    while 2 * p <= k:
        p *= 2
    return p


def fold_in(net: Network, k: int, p: int, held: RankShare) -> Steps:
    if k > p:
        for extra in range(p, k):
            net.send(extra, extra - p, held[extra])
        inbox = yield
        for extra in range(p, k):
            net.add(extra - p, held[extra - p], inbox[extra, extra - p, None])


def fold_out(net: Network, k: int, p: int, held: RankShare) -> Steps:
    if k > p:
        for extra in range(p, k):
            net.send(extra - p, extra, held[extra - p])
        inbox = yield
        for extra in range(p, k):
            held[extra] = inbox[extra - p, extra, None]


def doubling_all_reduce(net: Network, k: int, held: RankShare) -> Steps:
    p = power_below(k)
    yield from fold_in(net, k, p, held)
    apart = 1
    while apart < p:
        for rank in range(p):
            net.send(rank, rank ^ apart, held[rank])
        inbox = yield
        for rank in range(p):
            net.add(rank, held[rank], inbox[rank ^ apart, rank, None])
        apart *= 2
    yield from fold_out(net, k, p, held)


def halving_all_reduce(net: Network, k: int, held: RankShare, n: int) -> Steps:
    """Arrays of n elements; the p ranks in between work on p padded rows."""
    p = power_below(k)
    yield from fold_in(net, k, p, held)
    rows = {rank: cut(held[rank], p) for rank in range(p)}
    apart = p // 2
    while apart:
        for rank in range(p):
            other = (rank ^ apart) // apart * apart
            net.send(rank, rank ^ apart, rows[rank][other : other + apart])
        inbox = yield
        for rank in range(p):
            mine = rank // apart * apart
            net.add(rank, rows[rank][mine : mine + apart], inbox[rank ^ apart, rank, None])
        apart //= 2
    apart = 1
    while apart < p:
        for rank in range(p):
            mine = rank // apart * apart
            net.send(rank, rank ^ apart, rows[rank][mine : mine + apart])
        inbox = yield
        for rank in range(p):
            other = (rank ^ apart) // apart * apart
            rows[rank][other : other + apart] = inbox[rank ^ apart, rank, None]
        apart *= 2
    for rank in range(p):
        held[rank] = rows[rank].reshape(-1)[:n]
    yield from fold_out(net, k, p, held)


def known_to(rank: int, apart: int, p: int, k: int) -> list[int]:
    """The rows of the ranks that differ from ``rank`` in digits below ``apart``, and of those folded into them."""
    first = rank // apart * apart
    return [row for r in range(first, first + apart) for row in (r, r + p) if row < k]


def doubling_all_gather(net: Network, k: int, rows: RankShare) -> Steps:
    p = power_below(k)
    if k > p:
        for extra in range(p, k):
            net.send(extra, extra - p, rows[extra][extra])
        inbox = yield
        for extra in range(p, k):
            rows[extra - p][extra] = inbox[extra, extra - p, None]
    apart = 1
    while apart < p:
        for rank in range(p):
            net.send(rank, rank ^ apart, rows[rank][known_to(rank, apart, p, k)])
        inbox = yield
        for rank in range(p):
            rows[rank][known_to(rank ^ apart, apart, p, k)] = inbox[rank ^ apart, rank, None]
        apart *= 2
    if k > p:
        lacks = {extra: [r for r in range(k) if r != extra] for extra in range(p, k)}
        for extra in range(p, k):
            net.send(extra - p, extra, rows[extra - p][lacks[extra]])
        inbox = yield
        for extra in range(p, k):
            rows[extra][lacks[extra]] = inbox[extra - p, extra, None]


def halving_reduce_scatter(net: Network, k: int, rows: RankShare) -> Steps:
    p = power_below(k)
    if k > p:
        for extra in range(p, k):
            net.send(extra, extra - p, rows[extra][[r for r in range(k) if r != extra]])
        inbox = yield
        for extra in range(p, k):
            others = [r for r in range(k) if r != extra]
            into = rows[extra - p][others]
            net.add(extra - p, into, inbox[extra, extra - p, None])
            rows[extra - p][others] = into
    apart = p // 2
    while apart:
        for rank in range(p):
            net.send(rank, rank ^ apart, rows[rank][known_to(rank ^ apart, apart, p, k)])
        inbox = yield
        for rank in range(p):
            mine = known_to(rank, apart, p, k)
            into = rows[rank][mine]
            net.add(rank, into, inbox[rank ^ apart, rank, None])
            rows[rank][mine] = into
        apart //= 2
    if k > p:
        for extra in range(p, k):
            net.send(extra - p, extra, rows[extra - p][extra])
        inbox = yield
        for extra in range(p, k):
            net.add(extra, rows[extra][extra], inbox[extra - p, extra, None])


def bruck_all_gather(net: Network, k: int, rows: RankShare) -> Steps:
    known = 1
    while known < k:
        count = min(known, k - known)
        for rank in range(k):
            net.send(rank, (rank - known) % k, rows[rank][[(rank + i) % k for i in range(count)]])
        inbox = yield
        for rank in range(k):
            rows[rank][[(rank + known + i) % k for i in range(count)]] = inbox[(rank + known) % k, rank, None]
        known += count


def bruck_all_to_all(net: Network, k: int, blocks: RankShare) -> Steps:
    """``blocks[rank][i]`` is for rank i; ends with what rank i sent in place i."""
    # First by distance: place d holds what has still to go d ranks further.
    far = {rank: blocks[rank][[(rank + d) % k for d in range(k)]] for rank in range(k)}
    hop = 1
    while hop < k:
        places = [d for d in range(k) if d & hop]
        for rank in range(k):
            net.send(rank, (rank + hop) % k, far[rank][places])
        inbox = yield
        for rank in range(k):
            far[rank][places] = inbox[(rank - hop) % k, rank, None]
        hop *= 2
    for rank in range(k):
        for d in range(k):
            blocks[rank][(rank - d) % k] = far[rank][d]


# -- direct and pipelined ------------------------------------------------------------------------------


def pairwise_all_to_all(net: Network, k: int, blocks: RankShare) -> Steps:
    start = {rank: blocks[rank].copy() for rank in range(k)}
    for step in range(1, k):
        for rank in range(k):
            net.send(rank, (rank + step) % k, start[rank][(rank + step) % k])
        inbox = yield
        for rank in range(k):
            blocks[rank][(rank - step) % k] = inbox[(rank - step) % k, rank, None]


def pairwise_reduce_scatter(net: Network, k: int, rows: RankShare) -> Steps:
    for step in range(1, k):
        for rank in range(k):
            net.send(rank, (rank + step) % k, rows[rank][(rank + step) % k])
        inbox = yield
        for rank in range(k):
            net.add(rank, rows[rank][rank], inbox[(rank - step) % k, rank, None])


def pairwise_all_gather(net: Network, k: int, rows: RankShare) -> Steps:
    for step in range(1, k):
        for rank in range(k):
            net.send(rank, (rank + step) % k, rows[rank][rank])
        inbox = yield
        for rank in range(k):
            rows[rank][(rank - step) % k] = inbox[(rank - step) % k, rank, None]


def one_shot_all_reduce(net: Network, k: int, held: RankShare) -> Steps:
    for rank in range(k):
        for other in range(k):
            if other != rank:
                net.send(rank, other, held[rank])
    inbox = yield
    for rank in range(k):
        for other in range(k):
            if other != rank:
                net.add(rank, held[rank], inbox[other, rank, None])


def two_shot_all_reduce(net: Network, k: int, rows: RankShare) -> Steps:
    for adds in (True, False):
        for rank in range(k):
            for other in range(k):
                if other != rank:
                    net.send(rank, other, rows[rank][other if adds else rank])
        inbox = yield
        for rank in range(k):
            for other in range(k):
                if other != rank and adds:
                    net.add(rank, rows[rank][rank], inbox[other, rank, None])
                elif other != rank:
                    rows[rank][other] = inbox[other, rank, None]


def chain_broadcast(net: Network, k: int, rows: RankShare) -> Steps:
    chunks = len(rows[0])
    for step in range(k - 2 + chunks):
        moving = [(rank, step - rank) for rank in range(k - 1) if 0 <= step - rank < chunks]
        for rank, i in moving:
            net.send(rank, rank + 1, rows[rank][i])
        inbox = yield
        for rank, i in moving:
            rows[rank + 1][i] = inbox[rank, rank + 1, None]


def chain_reduce(net: Network, k: int, rows: RankShare) -> Steps:
    chunks = len(rows[0])
    for step in range(k - 2 + chunks):
        moving = [(rank, step - (k - 1 - rank)) for rank in range(1, k) if 0 <= step - (k - 1 - rank) < chunks]
        for rank, i in moving:
            net.send(rank, rank - 1, rows[rank][i])
        inbox = yield
        for rank, i in moving:
            net.add(rank - 1, rows[rank - 1][i], inbox[rank, rank - 1, None])


def owner_multicast_all_reduce(net: Network, k: int, rows: RankShare) -> Steps:
    yield from pairwise_reduce_scatter(net, k, rows)
    for rank in range(k):
        net.multicast(rank, [r for r in range(k) if r != rank], rows[rank][rank])
    inbox = yield
    for rank in range(k):
        for owner in range(k):
            if owner != rank:
                rows[rank][owner] = inbox[owner, rank, None]


# -- rings inside rings --------------------------------------------------------------------------------


def level_groups(sizes: tuple[int, ...], level: int) -> list[list[int]]:
    """The ranks that differ only in one coordinate; the first coordinate runs fastest."""
    total, stride = int(np.prod(sizes)), int(np.prod(sizes[:level], initial=1))
    starts = [r for r in range(total) if r // stride % sizes[level] == 0]
    return [[s + i * stride for i in range(sizes[level])] for s in starts]


def exchange(net: Network, group: list[int], rows: RankShare) -> Steps:
    """Row i is for member i; each member sends every other one its row."""
    start = {rank: rows[rank].copy() for rank in group}
    for step in range(1, len(group)):
        for i, rank in enumerate(group):
            to = (i + step) % len(group)
            net.send(rank, group[to], start[rank][to])
        inbox = yield
        for i, rank in enumerate(group):
            rows[rank][(i - step) % len(group)] = inbox[group[(i - step) % len(group)], rank, None]


def leveled_all_to_all(net: Network, sizes: tuple[int, ...], blocks: RankShare) -> None:
    """``blocks[rank][i]`` is for rank i: first to the rank of the node that has its place, then to its node."""
    inside, nodes = sizes
    rows = {r: b.reshape(nodes, inside, -1).transpose(1, 0, 2).copy() for r, b in blocks.items()}
    net.run(*(exchange(net, group, rows) for group in level_groups(sizes, 0)))
    rows = {r: x.transpose(1, 0, 2).copy() for r, x in rows.items()}  # for each node, from each of my own
    net.run(*(exchange(net, group, rows) for group in level_groups(sizes, 1)))
    for rank, found in rows.items():
        blocks[rank][:] = found.reshape(inside * nodes, -1)


def leveled(
    net: Network, sizes: tuple[int, ...], held: RankShare, scatters: bool, gathers: bool, two_ways: bool
) -> list[int]:
    """Reduce-scatter level by level, then all-gather back; gives the order in which the ranks own what is left."""
    scatter = two_way_reduce_scatter if two_ways else ring_reduce_scatter
    gather = two_way_all_gather if two_ways else ring_all_gather
    lengths = []
    everyone = range(int(np.prod(sizes)))
    place = {rank: [rank // int(np.prod(sizes[:i], initial=1)) % s for i, s in enumerate(sizes)] for rank in everyone}
    for level, size in enumerate(sizes):
        lengths.append(len(held[0]))
        rows = {rank: cut(held[rank], size) for rank in everyone}
        if scatters:
            net.run(*(scatter(net, g, rows) for g in level_groups(sizes, level)))
        for rank in everyone:
            held[rank] = rows[rank][place[rank][level]].copy()
    if gathers:
        for level in reversed(range(len(sizes))):
            rows = {}
            for rank in everyone:
                rows[rank] = np.zeros((sizes[level], len(held[rank])), held[rank].dtype)
                rows[rank][place[rank][level]] = held[rank]
            net.run(*(gather(net, g, rows) for g in level_groups(sizes, level)))
            for rank in everyone:
                held[rank] = rows[rank].reshape(-1)[: lengths[level]]
    return [i for rank in everyone for i in place[rank]]


Simulated = Callable[[Network, int, RankShare], Steps]
