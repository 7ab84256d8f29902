"""How large the parts of a vocabulary are that several ranks share: whole words, by a convention."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from symcomm.core.accounting import Accounting
from symcomm.core.errors import StrategyError
from symcomm.core.form import Form, evaluate, from_expr, names, product, value
from symcomm.core.graph.axis_roles import find_vocabulary
from symcomm.core.graph.graph import Graph
from symcomm.core.libraries import sp
from symcomm.core.parallel.strategy import Strategy, resolve
from symcomm.core.records import dataclass, replace

MULTIPLE = 128  # to a multiple of this and of the ranks Megatron-LM fills a vocabulary up, unless told otherwise


@dataclass(frozen=True)
class CutVocabulary:
    """The axes of a vocabulary that a strategy cuts, and how many ranks share them."""

    axes: tuple[str, ...]
    ranks: Form

    def known(self, graph: Graph, values: Mapping[str, Fraction]) -> bool:
        """Whether words and ranks are known numbers."""
        return {*self.names(graph), *names(self.ranks)} <= values.keys()

    def names(self, graph: Graph) -> frozenset[str]:
        """The symbols of its size."""
        return frozenset(s.name for a in self.axes for s in graph.axes[a].size.free_symbols)

    def uneven(self, graph: Graph, values: Mapping[str, Fraction]) -> bool:
        """Whether the ranks do not divide the words, both known."""
        sizes = [from_expr(graph.axes[a].size) for a in self.axes] if self.known(graph, values) else []
        return any((evaluate(size, values) / evaluate(self.ranks, values)).denominator != 1 for size in sizes)

    def in_parts(self, graph: Graph, accounting: Accounting) -> Graph:
        """The graph with as many words as the ranks hold together, each a part as large as the largest, or the mean.

        It holds for each number of ranks that is a symbol: one rank has all words, and fills nothing up. So does the
        model that a step is of.
        """
        if (step := graph.step) is not None:
            graph = replace(graph, step=replace(step, origin=self.in_parts(step.origin, accounting)))
        if accounting.vocabulary == "mean_part":
            return replace(graph, axes={**graph.axes, **{a: replace(graph.axes[a], uneven=True) for a in self.axes}})
        ranks = value(self.ranks)
        several = 1 if ranks.is_number else sp.Min(1, ranks - 1)
        unit = ranks * (1 + (MULTIPLE - 1) * several if accounting.vocabulary == "padded_vocabulary" else 1)
        sizes = {a: replace(graph.axes[a], size=unit * sp.ceiling(graph.axes[a].size / unit)) for a in self.axes}
        return replace(graph, axes={**graph.axes, **sizes})


@lru_cache(maxsize=256)
def cut_vocabulary(graph: Graph, strategy: Strategy) -> CutVocabulary | None:
    """How a strategy cuts the vocabulary; None where there is none, or it stays whole."""
    words = find_vocabulary(graph)
    try:
        labels = {"paired", "vocabulary", *words, *(graph.axes[a].label for a in words)}
        rules = tuple(one for one in strategy.rules if one[1].axis in labels)
        found = resolve(replace(strategy, rules=rules), graph)
    except StrategyError:  # the quantity says what is wrong
        return None
    meshes = dict.fromkeys(p.rule.mesh for p in found if {*(p.axes or ())} & {*words})
    return CutVocabulary(words, product(*(strategy.sizes[mesh] for mesh in meshes))) if meshes else None


def whole_words(graph: Graph, strategy: Strategy | None, accounting: Accounting) -> Graph:
    """The graph with the words that ranks hold together under a strategy, whatever their numbers turn out to be.

    Strategies that cut the vocabulary alike share one graph, and all that is kept of it.
    """
    cut = cut_vocabulary(graph, strategy) if strategy is not None else None
    return graph if cut is None else _whole_words(graph, cut, accounting)


@lru_cache(maxsize=256)
def _whole_words(graph: Graph, cut: CutVocabulary, accounting: Accounting) -> Graph:
    return cut.in_parts(graph, accounting)


def in_parts(graph: Graph, strategy: Strategy, accounting: Accounting, values: Mapping[str, Fraction]) -> Graph:
    """The graph with the words that ranks hold under a strategy, where they do not divide them or fill them up.

    Where words and ranks are symbols, they are taken to divide; an answer at other numbers is derived anew.
    """
    return _in_parts(graph, strategy, accounting, tuple(values.items()))


@lru_cache(maxsize=256)
def _in_parts(
    graph: Graph, strategy: Strategy, accounting: Accounting, values: tuple[tuple[str, Fraction], ...]
) -> Graph:
    cut = cut_vocabulary(graph, strategy)
    if cut is None or not (accounting.vocabulary != "largest_part" or cut.uneven(graph, dict(values))):
        return graph
    return cut.in_parts(graph, accounting)
