"""How many sequences fit beside the weights while text is generated."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Annotated

from symcomm.core.derivation import Condition, Derivation, exact
from symcomm.core.dtypes import element_bytes
from symcomm.core.errors import ValuesError
from symcomm.core.form import Ceiling, Floor, Form, Num, Ratio, Total, from_expr, negative, num, product, value
from symcomm.core.libraries import Expr
from symcomm.core.parallel.strategy import Strategy, degree, parse_strategy
from symcomm.core.program.pipeline import held
from symcomm.core.program.resting import resting
from symcomm.core.quantities.counting.load import divided
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import up_to
from symcomm.core.quantities.memory.capacity import MEANINGS, capacity_of
from symcomm.core.quantities.memory.kv_cache import Tokens, behind, shares, write
from symcomm.core.quantities.options import Amount, CapacityIs, Dtype, StageNumber, StrategyOption, Whole
from symcomm.core.quantities.witnesses import laid_out
from symcomm.core.records import replace
from symcomm.core.setting import Setting, StepWriter, mark
from symcomm.core.units import BYTE, ONE


def derive(
    setting: Setting,
    capacity: Annotated[Amount, Meaning("the memory of a device, such as 80 GB")],
    tokens: Tokens | None = None,
    capacity_is: CapacityIs | None = None,
    strategy: StrategyOption | None = None,
    workspace: Annotated[Amount | None, Meaning("bytes for other things, such as 2 GB of activations")] = None,
    page: Annotated[Whole | None, Meaning("the tokens of a page, in which caches are given out")] = None,
    shared: Annotated[Whole | None, Meaning("the tokens of a prefix that all sequences share: its full pages")] = None,
    stage: StageNumber | None = None,
    dtype: Dtype | None = None,
) -> Derivation:
    """The number of sequences whose caches fit beside the weights.

    What a device has less the weights of its rank, divided by the cache of one sequence with its tokens; a tied weight
    is there once. Under a strategy of the ranks that one counts which holds the most. Caches are given out in pages
    where a ``page`` is said; room for the longest sequence is asked for by its number of ``tokens``.

    Raises ``ValuesError`` where the weights do not fit, or where the meaning of the capacity is not said.

    Source: Kwon et al., arXiv 2309.06180, section 4.
    """
    if capacity_is is None and setting.accounting.capacity != "unnamed":
        capacity_is = setting.accounting.capacity
    there_are = capacity_of(capacity, capacity_is)
    setting, said = behind(setting)
    assert setting.graph.step is not None
    far = degree(tokens) if tokens is not None else said or from_expr(setting.graph.step.past)
    setting = up_to(setting, far).in_format(dtype)
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    setting = setting.divided(placed) if placed is not None else setting
    work = StepWriter(setting, *(placed.forms if placed is not None else ()))
    mine = weights(work, placed, stage)
    paged: Form = far
    first: Form = num(0)
    if page is not None:
        paged = product(degree(page), Ceiling(Ratio(far, degree(page))))
    if shared is not None:
        first = degree(shared)
        first = product(degree(page), Floor(Ratio(first, degree(page)))) if page is not None else first
    cache = write(work, placed, shares(setting, placed, paged, stage, "sequence"), "sequence")
    kind = str(capacity_is)
    room: list[Form] = [work.combine("M_device", Num(there_are, BYTE), BYTE, kind, MEANINGS[kind])]
    room.append(negative(mine))
    kept = exact(workspace, "workspace", BYTE) if workspace is not None else Fraction(0)
    if kept:
        text = "This is kept free for other things."
        room.append(negative(work.combine("M_work", Num(kept, BYTE), BYTE, "given", text)))
    if shared is not None:
        before = write(work, placed, shares(setting, placed, first, stage, "sequence"), "sequence")
        room.append(negative(before))
        cache = work.combine("C_own", Total((cache, negative(before))), BYTE, "share",
                             "The prefix that sequences share is there once.")  # fmt: skip
    free = work.combine("M_free", Total(tuple(room)), BYTE, "subtract", "This is left for caches.")
    work.combine("S", Floor(Ratio(free, cache)), ONE, "whole sequences", "Only whole sequences count: round down.")
    left = from_expr(value(mine, work.known))
    fits = Condition(left, "<=", num(there_are), "the weights alone do not fit")
    made = setting.derivation("Sequences that fit", work.steps)
    if {*fits.names} <= setting.values.keys() and not fits.holds(setting.values):
        raise ValuesError(f"the weights alone do not fit into {capacity}", hint="more ranks, or fewer bytes a number")
    return replace(made, where=(*made.where, fits) if fits.names else made.where)


def weights(work: StepWriter, strategy: Strategy | None, stage: object) -> Form:
    """The bytes of the weights of one rank, each in its own format; gives the name of the sum."""
    setting, graph = work.setting, work.setting.graph.model
    holds = held(graph, strategy.pipeline if strategy is not None else None, stage, setting.values)
    layout = resting(graph, strategy)
    formats = {t.name: t.dtype for t in setting.graph.weights}
    names: list[Form] = []
    every: list[tuple[Form, list[Expr], Fraction]] = []
    for region, some in holds.weights(graph):
        parts: list[Form] = []
        mine: list[tuple[list[Expr], Fraction]] = []
        for weight in some:
            each = element_bytes(formats.get(weight.name, weight.dtype) or setting.dtype)
            cuts = layout(weight, "weight")
            share, lengths = setting.sizes(graph.sizes(weight.name)), [*graph.sizes(weight.name)]
            if strategy is not None:
                share = divided(share, strategy, tuple(mesh for mesh, _ in cuts))
                for mesh, position in cuts:  # each axis is cut by itself
                    lengths[position] /= value(strategy.sizes[mesh])
            parts.append(product(each, share))
            mine.append((lengths, each.number))
        if parts:
            made = work.define(f"W_{mark(region)}", Total(tuple(parts)), BYTE, "count the weights",
                               f"The weights of the {region.name} on one rank.",
                               witness=partial(laid_out, [(num(1), *one) for one in mine]))  # fmt: skip
            times = holds.times(region) if region.times else num(1)
            names.append(product(times, made))
            every += [(times, *one) for one in mine]
    return work.define("W", Total(tuple(names)), BYTE, "add", "All weights of one rank.",
                       witness=partial(laid_out, every))  # fmt: skip
