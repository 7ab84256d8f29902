"""The cache of earlier tokens while text is generated: keys and values, latents, states."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core.derivation import Derivation, Numbers
from symcomm.core.dtypes import element_bytes, said_bytes
from symcomm.core.errors import ValuesError
from symcomm.core.form import Form, Num, Smallest, Total, combined, from_expr, num, product
from symcomm.core.graph.graph import Graph, Kept, bare
from symcomm.core.libraries import Expr
from symcomm.core.parallel.layouts import PARTIAL, Layout
from symcomm.core.parallel.strategy import Strategy, degree, parse_strategy
from symcomm.core.program.pipeline import check_divisible, held
from symcomm.core.program.program import batch_of, program
from symcomm.core.quantities.counting.load import divided
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import step_of, up_to
from symcomm.core.quantities.options import Dtype, StageNumber, StrategyOption, Whole
from symcomm.core.quantities.witnesses import number, passes, size
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter, slug
from symcomm.core.units import BYTE

Of = Annotated[
    Literal["token", "sequence", "batch"],
    Meaning("what one token adds, one sequence with its tokens, or all sequences of the batch"),
]
Tokens = Annotated[Whole, Meaning("the tokens of a sequence in the cache, where the step does not say how many; c")]

KeptRole = Annotated[
    Literal["cache", "state", "request"],
    Meaning("only what grows with the tokens, only states, or only what a request brings once; all unless told"),
]


@dataclass(frozen=True)
class KeptShare:
    """The share of a kept tensor on a rank: its sizes other than positions and batch, how many tokens, and its cuts."""

    kept: Kept
    sizes: tuple[Expr, ...]
    tokens: Form | None
    batch: Form
    layout: Layout
    times: Form
    bytes: Num


def behind(setting: Setting) -> tuple[Setting, Form | None]:
    """The setting of a step behind some tokens, which has a cache; and how many tokens there are, where that is said.

    A prefill leaves the tokens that it read, a later step reads those that were there.
    """
    graph, found = setting.graph, None
    if graph.step is not None:
        found = from_expr(graph.step.past + (graph.step.new if graph.step.phase == "prefill" else 0))
    return step_of(setting, "decode", again=True), found


def shares(
    setting: Setting, strategy: Strategy | None, tokens: Form, stage: object, of: str, role: str | None = None
) -> list[KeptShare]:  # fmt: skip
    """A rank's part of each tensor that is kept, or only of those with one ``role``.

    Of a single ``token`` only the tensors count that grow with the context.
    """
    graph, step = setting.graph, setting.graph.step
    assert step is not None
    plan = program(graph, strategy, setting.accounting).plan if strategy is not None else None
    holds = held(graph, strategy.pipeline if strategy is not None else None, stage, setting.values)
    batch = batch_of(graph.model)
    found: list[KeptShare] = []
    for kept in step.kept:
        wanted = (of != "token" or kept.role == "cache") and role in (None, kept.role)
        if kept.region not in holds.regions or not wanted:
            continue
        tensor = graph.tensors[kept.before]
        axes = [a for a in tensor.axes if a not in step.behind and a != batch]
        far: Form | None = None
        if kept.role == "cache":
            far = num(1) if of == "token" else tokens
        if kept.window is not None and of != "token":
            window = from_expr(kept.window)
            window = window if setting.choice("window_cache") == "w" else Total((window, num(-1)))
            far = Smallest((tokens, window)) if kept.role == "cache" else window
        many = from_expr(graph.axes[batch].size) if batch in tensor.axes and of == "batch" else num(1)
        layout: Layout = ()
        if plan is not None:
            cut = {m: p for m, p in plan.placements[kept.before] if p != PARTIAL}
            once = {tensor.axes.index(a) for a in tensor.axes if a == batch and of != "batch"}
            layout = tuple((m, p) for m, p in cut.items() if p not in once)
        region = next(r for r in graph.regions if r.name == kept.region)
        each = element_bytes(tensor.dtype or setting.dtype)
        found.append(
            KeptShare(kept, tuple(graph.axes[a].size for a in axes), far, many, layout, holds.times(region), each)
        )
    return found


def counted(strategy: Strategy | None, shares: Sequence[KeptShare], numbers: Numbers) -> Fraction:
    """The bytes of some tensors, position by position and head by head."""
    found = Fraction(0)
    for one in shares:
        lengths = [size(s, numbers) for s in one.sizes]
        parts = Fraction(1)
        for mesh, _ in one.layout:
            assert strategy is not None
            parts *= number(strategy.sizes[mesh], numbers)
        tokens = number(one.tokens, numbers) if one.tokens is not None else Fraction(1)
        found += passes([*lengths, tokens, number(one.batch, numbers), number(one.times, numbers)]) \
            / parts * one.bytes.number  # fmt: skip
    return found


def share_bytes(setting: Setting, strategy: Strategy | None, one: KeptShare) -> Form:
    """The bytes that a rank holds of a kept tensor."""
    factors = (one.times, one.batch, one.tokens, setting.sizes(one.sizes))
    form = product(*(f for f in factors if f is not None and f != num(1)), one.bytes)
    return divided(form, strategy, tuple(mesh for mesh, _ in one.layout)) if strategy is not None else form


def write(work: StepWriter, strategy: Strategy | None, mine: list[KeptShare], of: str) -> Form:
    """The steps that add up what a rank holds; gives the name of the sum."""
    setting, names = work.setting, list[Form]()
    meant = {"token": "one token", "sequence": "one sequence", "batch": "all sequences"}[of]
    for one in mine:
        kept = one.kept
        form = share_bytes(setting, strategy, one)
        told = {
            "cache": f"`{bare(kept.tensor)}` of {meant} is kept: later positions read it for {kept.why}.",
            "state": f"`{bare(kept.tensor)}` of {meant} is kept and updated: later positions read it for {kept.why}.",
            "request": f"`{bare(kept.tensor)}` is kept once a request: each step reads it for {kept.why}.",
        }[kept.role]
        told += f" {said_bytes(one.bytes)} a number."
        if strategy is not None and not one.layout:
            told += " Each rank has all of it."
        names.append(work.define(f"C_{slug(kept.tensor)}", form, BYTE, "keep", told,
                                 witness=partial(counted, strategy, [one])))  # fmt: skip
    text = "The whole cache." if names else "Nothing is kept of earlier tokens."
    return work.define("C", combined(Total, names, BYTE), BYTE, "add", text, witness=partial(counted, strategy, mine))


def _attending(graph: Graph) -> set[str]:
    """The tensors that are kept and what is made of them: what else ranks share has no say in the cache."""
    assert graph.step is not None
    before, found = {one.before for one in graph.step.kept}, {one.tensor for one in graph.step.kept}
    for _ in range(2):  # with the rows from before, and what reads them all
        before = {op.output for op in graph.ops if before & {*op.inputs}}
        found |= before
    return found


def derive(
    setting: Setting,
    of: Of = "batch",
    strategy: StrategyOption | None = None,
    tokens: Tokens | None = None,
    stage: StageNumber | None = None,
    dtype: Dtype | None = None,
    kept: KeptRole | None = None,
) -> Derivation:
    """The bytes of the cache: what is kept of earlier tokens.

    Later steps read some tensors of earlier positions. The smallest ones that only keys and values are made of are kept
    (``cache``), derived from the graph. Layers with a window keep no more than it (``window_cache``). Under a strategy
    it is what one rank holds: heads, positions, sequences or layers are cut; what no rule cuts every rank has whole.

    Source: Kwon et al., arXiv 2309.06180, section 2.2; DeepSeek-AI, arXiv 2405.04434, table 1.
    """
    setting, there = behind(setting)
    if tokens is not None and there is not None and there != degree(tokens):
        raise ValuesError(f"the step says how many tokens there are, and tokens = {str(tokens)[:20]} another number",
                          hint="leave out tokens, or ask the model itself")  # fmt: skip
    assert setting.graph.step is not None
    far = there if there is not None else degree(tokens) if tokens is not None else from_expr(setting.graph.step.past)
    setting = up_to(setting, far).in_format(dtype)
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    if placed is not None:
        check = partial(check_divisible, setting.graph, placed, only=_attending(setting.graph))
        check(setting.values)
        setting = replace(setting, checks=(*setting.checks, check))
    work = StepWriter(setting, *(placed.forms if placed is not None else ()))
    write(work, placed, shares(setting, placed, far, stage, of, kept), of)
    title = {"token": "Cache of a token", "sequence": "Cache of a sequence", "batch": "Cache"}[of]
    title += f" on one rank of {placed.name.lower()}" if placed is not None else ""
    notes = setting.graph.notes[len(setting.graph.model.notes) :]
    return setting.derivation(title, work.steps, notes=notes)
