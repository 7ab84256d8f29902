"""The orders in which several operands can be contracted two by two: the best one, its cost and its memory.

The cost of a set of operands does not depend on how it was reached, only on the indices it keeps: those that another
operand or the result has. So the best tree of a set is that of its best split (Bellman's principle), and all trees are
searched without being listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from math import prod
from typing import Any

from symcomm.core.errors import ValuesError
from symcomm.core.graph.subscripts import Einsum
from symcomm.core.records import dataclass

MOST = 10  # operands whose every order is searched
LISTED = 5  # operands whose orders can be listed one by one: 105 of them
Tree = Any  # the number of an operand from 0, or a pair of trees

# What an einsum of n operands over P combinations with R results costs.
COUNTS: dict[str, Callable[[int, Any, Any, bool], Any]] = {
    "fma2": lambda n, points, results, sums: n * points if n > 1 else points if sums else 0,
    "mul_add": lambda n, points, results, sums: (n - 1) * points + (points - results if sums else 0),
    "opt_einsum": lambda n, points, results, sums: points * (max(1, n - 1) + sums),
}


@dataclass(frozen=True)
class Contraction:
    """Two operands, or what earlier contractions made of some, contracted into one."""

    left: Tree
    right: Tree
    subscripts: str
    cost: int
    size: int


@dataclass(frozen=True)
class Orders:
    """The cost of all orders of an einsum: the least and the most, how many cost the least, and one of these.

    ``largest`` is the number of elements of the largest intermediate result of the best order; of several best ones
    that with the smallest is taken.
    """

    number: int
    least: int
    most: int
    ties: int
    best: Tree
    largest: int


class _Trees:
    def __init__(self, einsum: Einsum, count: str) -> None:
        self.einsum, self.count = einsum, COUNTS[count]
        self.labels = [frozenset(labels) for labels in einsum.operands]
        if any(not isinstance(size, int) for size in einsum.sizes.values()):
            raise ValuesError("the best order depends on the sizes", hint="give each index a number")
        if len(self.labels) > MOST:
            raise ValuesError(f"the orders of {len(self.labels)} operands are too many",
                              hint=f"at most {MOST} are searched")  # fmt: skip
        self.kept = cache(self._kept)
        self.found = cache(self._found)

    def members(self, some: int) -> list[int]:
        return [n for n in range(len(self.labels)) if some >> n & 1]

    def _kept(self, some: int) -> frozenset[str]:
        """The indices that a set of operands keeps: those that another one or the result has. One keeps all."""
        members = self.members(some)
        mine = frozenset[str]().union(*(self.labels[n] for n in members))
        if len(members) == 1:
            return mine
        others = [self.labels[n] for n in range(len(self.labels)) if n not in members]
        return mine & frozenset(self.einsum.output).union(*others)

    def size(self, labels: frozenset[str]) -> int:
        return prod(self.einsum.sizes[label] for label in labels)

    def cost(self, left: frozenset[str], right: frozenset[str], result: frozenset[str]) -> int:
        every = left | right
        return int(self.count(2, self.size(every), self.size(result), every != result))

    def splits(self, some: int) -> Iterator[tuple[int, int]]:
        """Each way to part a set in two, once; the left part has the first operand."""
        low = some & -some
        rest = some ^ low
        part = rest
        while part:
            part = (part - 1) & rest
            yield part | low, some ^ (part | low)

    def _found(self, some: int) -> tuple[int, int, int, int, int, Tree]:
        """Of a set: the least cost, its largest intermediate, the most, how many cost the least, how many, a tree."""
        members = self.members(some)
        if len(members) == 1:
            return 0, 0, 0, 1, 1, members[0]
        result, best, most, ties, number = self.kept(some), None, 0, 0, 0
        size = self.size(result)
        for one, other in self.splits(some):
            left, right = self.found(one), self.found(other)
            cost = self.cost(self.kept(one), self.kept(other), result)
            least, largest = left[0] + right[0] + cost, max(left[1], right[1], size)
            most, number = max(most, left[2] + right[2] + cost), number + left[4] * right[4]
            if best is None or least < best[0]:
                ties = 0
            if best is None or (least, largest) < best[:2]:
                best = least, largest, (left[5], right[5])
            if least == best[0]:
                ties += left[3] * right[3]
        assert best is not None
        return best[0], best[1], most, ties, number, best[2]

    def path(self, tree: Tree) -> list[Contraction]:
        """The contractions of a tree, one after the other."""
        found: list[Contraction] = []

        def go(tree: Tree) -> int:
            if isinstance(tree, int):
                return 1 << tree
            one, other = go(tree[0]), go(tree[1])
            left, right, result = self.kept(one), self.kept(other), self.kept(one | other)
            whole = one | other == (1 << len(self.labels)) - 1
            order = (*self.einsum.output, *self.einsum.indices)
            out = self.einsum.output if whole else [i for i in dict.fromkeys(order) if i in result]
            words = [self.written(part, labels) for part, labels in ((one, left), (other, right))]
            cost = self.cost(left, right, result)
            found.append(Contraction(tree[0], tree[1], f"{','.join(words)}->{''.join(out)}", cost, self.size(result)))
            return one | other

        go(tree)
        return found

    def written(self, some: int, labels: frozenset[str]) -> str:
        """The subscripts of an operand, or of what was made of several: in the order of the result, then the others."""
        members = self.members(some)
        if len(members) == 1:
            return "".join(self.einsum.operands[members[0]])
        return "".join(i for i in dict.fromkeys((*self.einsum.output, *self.einsum.indices)) if i in labels)


def sums_first(einsum: Einsum) -> tuple[Einsum, int]:
    """The einsum with the indices that one operand alone has summed before, where that is cheaper; and what it costs.

    >>> from symcomm.core.graph.subscripts import bound, read_subscripts
    >>> made, cost = sums_first(bound(read_subscripts("ij,jk->k"), [(2, 3), (3, 4)]))
    >>> made.explicit, cost
    ('j,jk->k', 6)
    """
    operands, cost = [], 0
    for n, labels in enumerate(einsum.operands):
        others = {label for k, more in enumerate(einsum.operands) if k != n for label in more}
        alone = {i for i in labels if i not in others and i not in einsum.output and einsum.sizes[i] != 1}
        operands.append(tuple(label for label in labels if label not in alone))
        cost += prod(einsum.sizes[i] for i in {*labels}) if alone else 0
    return Einsum(tuple(operands), einsum.output, einsum.sizes), cost


def orders(einsum: Einsum, count: str = "fma2") -> Orders:
    """The cost of all orders. Raises ``ValuesError`` for sizes that are no numbers, and for too many operands.

    >>> from symcomm.core.graph.subscripts import bound, read_subscripts
    >>> chain = bound(read_subscripts("ij,jk,kl->il"), [(10, 100), (100, 5), (5, 50)])
    >>> found = orders(chain)
    >>> found.least, found.most, found.best, found.largest
    (15000, 1000000, ((0, 1), 2), 500)
    """
    least, largest, most, ties, number, best = _Trees(einsum, count).found((1 << len(einsum.operands)) - 1)
    return Orders(number, least, most, ties, best, largest)


def path(einsum: Einsum, tree: Tree, count: str = "fma2") -> list[Contraction]:
    """The contractions of an order, one after the other."""
    return _Trees(einsum, count).path(tree)


def trees(members: tuple[int, ...]) -> Iterator[Tree]:
    """All binary trees over some operands, each once.

    >>> len([*trees((0, 1, 2, 3))])
    15
    """
    if len(members) == 1:
        yield members[0]
        return
    first, *rest = members
    for mask in range(2 ** len(rest) - 1):
        left = (first, *(m for n, m in enumerate(rest) if mask >> n & 1))
        right = tuple(m for m in rest if m not in left)
        for one in trees(left):
            for other in trees(right):
                yield one, other
