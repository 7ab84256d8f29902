"""The cache of earlier tokens while text is generated: what is kept of one sequence, of several, and beside weights."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Literal

from symcomm.core.derivation import Condition, Derivation, Numbers, exact
from symcomm.core.dtypes import element_bytes, said_bytes
from symcomm.core.errors import ValuesError
from symcomm.core.form import (
    Ceiling,
    Floor,
    Form,
    Num,
    Ratio,
    Smallest,
    Total,
    combined,
    evaluate,
    from_expr,
    negative,
    num,
    product,
    value,
)
from symcomm.core.form import names as names_of
from symcomm.core.graph.graph import Graph, Kept, Op, Region, bare
from symcomm.core.hardware.devices import device
from symcomm.core.libraries import Expr, sp
from symcomm.core.parallel.layouts import PARTIAL, Layout
from symcomm.core.parallel.strategy import Strategy, degree, parse_strategy
from symcomm.core.printing.quantities import short
from symcomm.core.program.pipeline import check_divisible, fullest, held
from symcomm.core.program.program import batch_of, program
from symcomm.core.program.resting import resting
from symcomm.core.quantities.counting import flops
from symcomm.core.quantities.counting.load import divided
from symcomm.core.quantities.declared import Meaning
from symcomm.core.quantities.generating import step_of, up_to
from symcomm.core.quantities.memory.capacity import MEANINGS, capacity_of
from symcomm.core.quantities.options import Amount, CapacityIs, Dtype, StageNumber, StrategyOption, Whole
from symcomm.core.quantities.witnesses import laid_out, number, passes, size
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter, mark, slug
from symcomm.core.units import BYTE, FLOP, ONE, Quantity, Unit

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

    They are the tokens of the prompt after a prefill, and those already in the cache before a later step.
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


def derive_kv_cache(
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


MOST = 100  # different lengths
Lengths = Annotated[str | Sequence[int], Meaning("the tokens of each sequence behind the prefix, such as 100, 700, 33")]


def derive_cache_of_sequences(
    setting: Setting,
    lengths: Lengths,
    of: Annotated[Literal["bytes", "used"], Meaning("the bytes, or the part of them that holds tokens")] = "bytes",
    page: Annotated[Whole | None, Meaning("the tokens of a page, in which caches are given out")] = None,
    reserved: Annotated[Whole | None, Meaning("the tokens that each sequence has room for")] = None,
    prefix: Annotated[Whole | None, Meaning("the tokens with which all sequences begin")] = None,
    prefix_is: Annotated[Literal["shared", "copied"], Meaning("kept once, or once a sequence")] = "shared",
    strategy: StrategyOption | None = None,
    stage: StageNumber | None = None,
    dtype: Dtype | None = None,
) -> Derivation:
    """The bytes of the caches of sequences of several lengths, or the part of these bytes that holds tokens.

    Each sequence takes its tokens, or all that is ``reserved``, rounded up to whole pages where a ``page`` is given. A
    shared prefix is kept once; with pages only its full pages are shared.

    Raises ``ValuesError`` for a length that is no whole number, for a sequence longer than the reserved room, and for
    ``prefix_is`` without a prefix.

    Source: Kwon et al., arXiv 2309.06180, sections 3 and 4.
    """
    first, every = _count(prefix or 0, "prefix", 0), _count(page or 1, "page")
    if not first and prefix_is == "copied":
        raise ValuesError("prefix_is changes nothing without a prefix", hint="prefix: 512")
    words = lengths.replace(",", " ").split() if isinstance(lengths, str) else [*lengths]
    held = [first + _count(word, "lengths") for word in words]
    if not held or len({*held}) > MOST:
        raise ValuesError(f"{len({*held})} different lengths: there are 1 to {MOST}", hint="lengths: 100, 700, 33")
    room = held if reserved is None else [_count(reserved, "reserved")] * len(held)
    if max(held) > max(room):
        raise ValuesError(f"a sequence of {max(held)} tokens, and {room[0]} are reserved",
                          hint=f"reserved: {max(held)}")  # fmt: skip
    taken = [-(-tokens // every) * every for tokens in room]
    setting = up_to(behind(setting)[0], num(max(held))).in_format(dtype)
    placed = parse_strategy(strategy) if isinstance(strategy, str) else strategy
    setting = setting.divided(placed) if placed is not None else setting
    work = StepWriter(setting, *(placed.forms if placed is not None else ()))

    def added(mark: str, tokens: Sequence[int], once: int, text: str) -> Form:
        """The steps that add up sequences; gives the name of their bytes."""
        groups = {length: tokens.count(length) for length in dict.fromkeys(tokens)}
        if once and len(tokens) > 1:
            groups[once] = groups.get(once, 0) + 1 - len(tokens)
        parts: list[Form] = []
        for length, often in groups.items():
            mine = shares(setting, placed, num(length), stage, "sequence")
            each = work.define(f"C{mark}_{length}", Total(tuple(share_bytes(setting, placed, one) for one in mine)),
                               BYTE, "keep", f"A sequence keeps {length} tokens.",
                               witness=partial(counted, placed, mine))  # fmt: skip
            parts.append(product(num(often), each))
        return work.combine(f"C{mark}", Total(tuple(parts)), BYTE, "add the sequences", text)

    shared = prefix_is == "shared"
    told = f"All {len(held)} sequences" + (", with what they share once." if shared and first else ".")
    whole = added("", taken, first // every * every if shared else 0, told)
    if of == "used":
        tokens = added("^used", held, first if shared else 0, "The tokens themselves.")
        work.combine("u", Ratio(tokens, whole), ONE, "used part", "The rest of the bytes holds no token.")
    return setting.derivation("Caches of several sequences" if of == "bytes" else "Used part of the caches", work.steps)


def _count(said: object, name: str, least: int = 1) -> int:
    """A whole number of tokens; raises ``ValuesError`` for anything else."""
    text = str(said)
    if not (text.isascii() and text.isdecimal() and least <= int(text[:16]) <= 10**12 and len(text) < 16):
        raise ValuesError(f"{name}: '{text[:20]}' is no number of tokens", hint=f"{name}: 16")
    return int(text)


def derive_serving_capacity(
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

    The memory that the weights of a rank leave on a device, over the cache of one sequence with its tokens; a tied
    weight is there once. Under a strategy the rank that holds the most counts. Caches are given out in pages
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
        takes = short(Quantity(evaluate(fits.left, setting.values), BYTE)).removeprefix("≈ ")
        raise ValuesError(f"the weights alone do not fit into {capacity}: they take {takes} a device",
                          hint="more ranks, or fewer bytes a number")  # fmt: skip
    return replace(made, where=(*made.where, fits) if fits.names else made.where)


def weights(work: StepWriter, strategy: Strategy | None, stage: object) -> Form:
    """The bytes of the weights of one rank, each in its own format; gives the name of the sum."""
    setting, graph = work.setting, work.setting.graph.model
    holds = held(graph, strategy.pipeline if strategy is not None else None, stage, setting.values)
    layout = resting(graph, strategy)
    formats = {t.name: t.dtype for t in setting.graph.weights}
    names: list[Form] = []
    if strategy is not None and any(rule.axis == "first" for _, rule in strategy.rules):
        setting.choice("shards")
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


def too_large(
    setting: Setting, strategy: StrategyOption | None, dtype: str | None, named: object, tokens: Form | None = None
) -> tuple[str, ...]:  # fmt: skip
    """A note where a step's weights and cache are known not to fit the memory of the device that is named.

    The cache is that of ``tokens`` of each sequence: of those behind a prefill or before a step, where none are said.
    Unless the meaning of the device's memory is named, it is taken as the most that may be meant.
    """
    asked, meaning = setting, setting.accounting.capacity
    if setting.graph.step is None or named is None or setting.accounting.off_device:
        return ()
    setting, said = behind(replace(setting, read={}))  # what is read here is of no step of the answer
    assert setting.graph.step is not None
    far = tokens or said or from_expr(setting.graph.step.past)
    if not {*names_of(far)} <= setting.values.keys():
        return ()
    setting, placed = setting.in_format(dtype), parse_strategy(strategy) if isinstance(strategy, str) else strategy
    alone = whole = Fraction(0)
    for _, stage in fullest(setting.graph, placed.pipeline if placed is not None else None, setting.values):
        work = StepWriter(setting, *(placed.forms if placed is not None else ()))
        mine = weights(work, placed, stage), write(work, placed, shares(setting, placed, far, stage, "batch"), "batch")
        numbers = dict(setting.values)
        for step in work.steps:
            if not {*names_of(step.form)} <= numbers.keys():
                return ()
            numbers[step.name] = evaluate(step.form, numbers)
        first, rest = (evaluate(one, numbers) for one in mine)
        alone, whole = max(alone, first), max(whole, first + rest)
    owner = device(named)
    meant = {m: owner.capacity(m) for m in MEANINGS if m != "usable" or owner.memory.usable is not None}
    room = meant.get(meaning) or max(meant.values(), key=lambda one: one.value)
    if whole <= room.value:
        return ()
    has = owner.memory.sold_as
    if meaning in meant:
        asked.choice("capacity")
        has = short(room)
    takes = short(Quantity(alone if alone > room.value else whole, BYTE)).removeprefix("≈ ")
    if alone > room.value:
        return (f"The weights alone take {takes} on a device, and {owner.name} has {has}: this cannot run. "
                "It would take more ranks or fewer bytes a number.",)  # fmt: skip
    return (f"The weights and the cache take {takes} on a device, and {owner.name} has {has}: this cannot run. "
            "It would take more ranks, fewer bytes a number, or fewer sequences or tokens.",)  # fmt: skip


def derive_attention_intensity(setting: Setting, dtype: Dtype | None = None) -> Derivation:
    """The operations of a decode step for each byte of the cache that it reads.

    Every cached token adds the same operations to a step, and the bytes of its keys and values. Products with weights
    do not grow with the context. A window counts as not yet full. The batch does not matter: each sequence reads its
    own cache.

    Raises ``ValuesError`` where nothing grows with the context.

    Source: Pope et al., arXiv 2211.05102, section 3; Austin et al., How to Scale Your Model, 2025, "Inference".
    """
    setting = step_of(setting, "decode").in_format(dtype)
    graph, work = setting.graph, StepWriter(setting)
    assert graph.step is not None
    past = next(iter(graph.step.past.free_symbols), None)
    mine = shares(setting, None, num(1), None, "token")
    if past is None or not mine:
        what = "the step says how many positions there are" if past is None else "nothing grows with the context"
        raise ValuesError(what, hint="ask the model itself, or a model with attention")
    size = graph.axes[batch_of(graph.model)].size
    worth = setting.graph.relations.expand(flops.derive(setting, "forward").expr)
    worth = sp.expand(worth.replace(sp.Min, lambda *args: past if past in args else sp.Min(*args)))
    grown = setting.graph.relations.gather(worth.coeff(past, 1) / size)
    ran = [(r, op) for r in graph.regions for op, _ in flops.counted(setting, graph, graph.ops) if op.region == r.name]
    text = "Each cached token meets every query of its sequence's new position, over all heads and layers."
    each = work.define("F_key", from_expr(grown), FLOP, "a cached token", text,
                       witness=partial(_one_more, setting, ran, str(past), str(size)))  # fmt: skip
    token = Total(tuple(share_bytes(setting, None, one) for one in mine))
    read = work.define("C_key", token, BYTE, "a cached token", "The step reads these bytes of it.",
                       witness=partial(counted, None, mine))  # fmt: skip
    work.combine("I", Ratio(each, read), Unit.parse("FLOP/byte"), "definition",
                 "Operations for each byte of the cache.")  # fmt: skip
    return setting.derivation("Intensity of attention in a decode step", work.steps)


def _one_more(
    setting: Setting, ran: list[tuple[Region, Op]], past: str, batch: str, numbers: Numbers
) -> Fraction:  # fmt: skip
    """The loops of a step behind one more position, less those without it; of a sequence, and no window full."""
    numbers = numbers.moved(batch, Fraction(1)) if batch.isidentifier() else numbers
    for window in setting.graph.model.windows:
        numbers = numbers.moved(str(window), Fraction(9)) if window.is_Symbol else numbers
    without, one = (
        flops.looped(setting.accounting, setting.graph, ran, numbers.moved(past, Fraction(n))) for n in (1, 2)
    )
    return one - without
