"""The cases of a structure: where its closed forms hang on the numbers of its degrees, one structure for each of them.

Which layers a stage of several kinds holds hangs on the number of stages, and which links a collective goes over on how
the axes of the mesh fill a node. In each case the other degrees stay symbols.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from symcomm.core import form as forms
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program import pipeline
from symcomm.core.quantities.communication.links import PIPE, Nesting
from symcomm.core.quantities.memory.state_memory import added_whole
from symcomm.core.records import replace
from symcomm.searching.space import Grid
from symcomm.searching.structure import MICROBATCHES, Draft, SearchQuestion, constraints
from symcomm.searching.template import PIPELINE, composed

if TYPE_CHECKING:
    from symcomm.core.model import Model

Lists = tuple[tuple[str, tuple[int, ...]], ...]  # of a grid: names with their values


def cases(question: SearchQuestion, pairs: Iterable[tuple[Draft, Grid]]) -> Iterator[tuple[Draft, Grid]]:
    """Each structure with the shapes of its mesh that share their closed forms.

    Where heads have copies, each number of ranks that share them is one by itself. Raises ``ValuesError`` for kinds of
    layers whose numbers are not known.
    """
    holds = question.links.units
    for draft, found in pairs:
        groups: dict[tuple[int, Nesting | None, tuple[tuple[str, int], ...]], list[tuple[int, ...]]] = {}
        shared = dict[tuple[tuple[str, int], ...], Strategy | None]()
        heads = _cuts_heads(question, draft)
        for shape in found.shapes:
            sizes = dict(zip(found.axes, shape, strict=True))
            copied = tuple((axis, n) for axis, n in sizes.items() if axis in heads)
            if copied not in shared:
                shared[copied] = _copies(question, draft, dict(copied))
            laid = shared[copied] or composed(draft.pieces)
            copied = copied if shared[copied] is not None else ()
            nesting = None if holds is None or laid is None else _nesting(laid, holds, sizes)
            groups.setdefault((_stages(question, sizes.get(PIPELINE, 1)), nesting, copied), []).append(shape)
        for (stages, nesting, copied), some in groups.items():
            # Axes that have one rank in all shapes send nothing.
            sizes_of = dict(zip(found.axes, zip(*some, strict=True), strict=True))
            ones = tuple(axis for axis, every in sizes_of.items() if 1 in every)
            none = tuple(axis for axis in ones if {*sizes_of[axis]} == {1})
            fixed = {**dict.fromkeys(none, 1), **dict(copied), **({PIPELINE: stages} if stages else {})}
            nesting = nesting and nesting.without(none)
            for single, lists in _microbatches(question, draft, found):
                made = replace(_fixed(draft, fixed), nesting=nesting, single=single, shares=bool(copied), ones=ones)
                yield made, replace(found, shapes=tuple(some), lists=lists)


def _cuts_heads(question: SearchQuestion, draft: Draft) -> frozenset[str]:
    """The axes of the mesh that decide whether ranks share key/value heads; none where no strategy has copies."""
    strategy = composed(draft.pieces)
    rules = [] if strategy is None else [rule for _, rule in strategy.rules if rule.axis in ("paired", "heads")]
    if question.model.graph.step is None and all(rule.axis != "heads" for rule in rules):
        return frozenset()
    return frozenset(rule.mesh for rule in rules)


def _copies(question: SearchQuestion, draft: Draft, sizes: Mapping[str, int]) -> Strategy | None:
    """The strategy where ranks outnumber the key/value heads that they cut, else None; also where they do not divide.

    Its mesh has one more axis: the ranks that share a head.
    """
    if not sizes:
        return None
    known, fixed = question.known, replace(_fixed(draft, sizes), shares=True)
    try:
        graph, strategy = fixed.placed(question.model.graph, known)
        if strategy is None or strategy == composed(fixed.pieces):
            return None
        uneven = (forms.evaluate(size, known) % forms.evaluate(divisor, known)
                  for _, size, divisor in constraints(graph, strategy, forms.Sym("m"))
                  if {*forms.names(size), *forms.names(divisor)} <= known.keys())  # fmt: skip
        return None if any(uneven) else strategy
    except StrategyError:  # counted with what does not divide
        return None


def _microbatches(question: SearchQuestion, draft: Draft, found: Grid) -> Iterator[tuple[bool, Lists]]:
    """The lists of a grid; those with one microbatch apart where the gradients of several are added elsewhere."""
    whole = added_whole(composed(draft.pieces), question.accounting)
    if MICROBATCHES not in dict(found.lists) or not whole:
        yield False, found.lists
        return
    for single in (True, False):
        lists = tuple(
            (name, tuple(n for n in values if name != MICROBATCHES or (n == 1) == single))
            for name, values in found.lists
        )
        if all(values for _, values in lists):
            yield single, lists


def _nesting(strategy: Strategy, holds: tuple[int, ...], sizes: dict[str, int]) -> Nesting | None:
    known = {axis: int(size.number) for axis, size in strategy.sizes.items() if isinstance(size, forms.Num)}
    ordered = {axis: known[axis] if axis in known else sizes[axis] for axis in strategy.mesh_order}
    return Nesting.of(holds, ordered | ({PIPE: sizes[PIPELINE]} if PIPELINE in sizes else {}))


def _stages(question: SearchQuestion, stages: int) -> int:
    """The number of stages where it settles which kinds of layers each of them holds; else 0.

    It does not where the first stage holds all kinds but the last one and none alternate; a number that does not
    divide is refused anyway.
    """
    model = question.model
    layers = pipeline.stacked(model.graph) if stages > 1 else ()
    if len(layers) < 2:
        return 0
    counts = _counts(model, [r.times for r in layers], question.varied)
    share, rest = divmod(sum(counts), stages)
    return 0 if rest or (sum(counts[:-1]) <= share and not model.graph.order) else stages


def _counts(model: Model, names: list[str], varied: tuple[str, ...]) -> list[int]:
    known = model.graph.relations.complete(model.values)
    for name in names:
        if name in varied or name not in known:
            raise ValuesError(f"the layers of a stage depend on {name}, which has to be one number in a search",
                              hint=f"for instance {name}=3")  # fmt: skip
    return [int(known[name]) for name in names]


def apart(draft: Draft, found: Grid, axes: tuple[str, ...]) -> Iterator[tuple[Draft, Grid]]:
    """A structure and its shapes by which of some axes have one rank only."""
    groups: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
    for shape in found.shapes:
        alone = tuple(axis for axis, n in zip(found.axes, shape, strict=True) if n == 1 and axis in axes)
        groups.setdefault(alone, []).append(shape)
    for alone, some in groups.items():
        nesting = draft.nesting and draft.nesting.without(alone)  # an axis of one rank fills no node
        yield replace(_fixed(draft, dict.fromkeys(alone, 1)), nesting=nesting), replace(found, shapes=tuple(some))


def _fixed(draft: Draft, numbers: Mapping[str, int]) -> Draft:
    """A draft with numbers for the sizes of some axes of its mesh."""
    pieces = []
    for one in draft.pieces:
        strategy = one.strategy
        mesh = tuple(
            (axis, forms.num(numbers[axis]) if axis in numbers and size is not None else size)
            for axis, size in strategy.mesh
        )
        cut = strategy.pipeline
        if cut is not None and PIPELINE in numbers:
            cut = replace(cut, stages=forms.num(numbers[PIPELINE]))
        pieces.append(replace(one, strategy=replace(strategy, mesh=mesh, pipeline=cut)))
    return replace(draft, pieces=tuple(pieces))
