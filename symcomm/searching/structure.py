"""One structure of a search: its strategy with symbolic degrees, and the closed forms of its time and memory.

Nothing is counted here. The passes for a step's time, for states and for activations are asked once, with symbols for
the degrees and the microbatches; a search then only puts numbers in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import sympy as sp

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.collected import Collected, Shared, collect
from symcomm.core.derivation import Derivation, Step
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.form import Form, Sym
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.libraries import Expr
from symcomm.core.parallel.copies import with_shared_heads
from symcomm.core.parallel.placement import cut_axes
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program import pipeline
from symcomm.core.program.rewrites.recomputation import RECOMPUTED
from symcomm.core.program.vocabulary import whole_words
from symcomm.core.quantities.communication.links import PIPE, Links, Nesting
from symcomm.core.quantities.counting.load import microbatched
from symcomm.core.quantities.memory import activation_memory, state_memory
from symcomm.core.quantities.recipes import recipe_of
from symcomm.core.quantities.time import step_time
from symcomm.core.quantities.time.region_time import RegionTime
from symcomm.core.quantities.time.step_calls import StepCalls
from symcomm.core.records import ByIdentity, dataclass, replace
from symcomm.core.setting import Setting
from symcomm.searching.template import PIPELINE, TemplatePiece, composed, degrees

if TYPE_CHECKING:
    from symcomm.core.graph.graph import Graph
    from symcomm.core.model import Model

CONVENTION = {how: name for name, how in RECOMPUTED.items()}  # none, selective, full
MICROBATCHES, BUCKETS = "microbatches", "buckets"
SHARED_MEMORY = {"host": "host memory", "nvme": "NVMe memory"}  # the tiers that ranks share


@dataclass(frozen=True)
class SearchQuestion:
    """The facts that all structures of a search share."""

    model: Model
    varied: tuple[str, ...] = ()  # sizes of the model that it goes over
    recipe: str = "mixed_adam"
    gradient_dtype: str | None = None
    call_overhead: Fraction = Fraction(0)
    accounting: Accounting = field(default_factory=Accounting)
    rates: tuple[tuple[str, Any], ...] = ()
    links: Links = field(default_factory=Links)
    frozen: frozenset[str] = frozenset()
    prompt: int | None = None  # the tokens before a decode step
    prompts: int = 1  # that are read at once
    shared: tuple[tuple[Literal["host", "nvme"], int], ...] = ()  # the ranks that share a tier that is limited

    def rates_of(self, draft: Draft, strategy: Strategy | None) -> dict[str, object]:
        """The rates, and the links of the axes of the mesh that the strategy of a draft has."""
        symbols = {text: axis for piece in draft.pieces for _, text, axis in piece.arguments if axis}
        links = self.links.given(strategy, draft.nesting, symbols)
        return {**dict(self.rates), **({"links": links} if links else {})}

    @property
    def known(self) -> dict[str, Fraction]:
        """The sizes of the model that are one number in all of the search."""
        model = self.model
        return {n: v for n, v in model.graph.relations.complete(model.values).items() if n not in self.varied}


@dataclass(frozen=True)
class Draft:
    """A structure before its closed forms are derived: the parts of its strategy, how it runs, how it fills nodes."""

    pieces: tuple[TemplatePiece, ...]
    recomputation: str = "none"
    schedule: str = ""
    bucketed: bool = False
    nesting: Nesting | None = None
    single: bool = False  # one microbatch: there are no gradients to be added
    format: str = ""  # the number formats of weights, cache and products, where they are not the model's
    shares: bool = False  # ranks outnumber the key/value heads, and have copies of them
    ones: tuple[str, ...] = ()  # axes that have one rank in some shapes

    def placed(self, graph: Graph, known: Mapping[str, Fraction]) -> tuple[Graph, Strategy | None]:
        """The graph and the strategy that cuts it, with copies of heads where ranks share them.

        Raises ``StrategyError`` where these ranks cannot.
        """
        strategy = composed(self.pieces)
        if strategy is None or not self.shares:
            return graph, strategy
        return with_shared_heads(graph, strategy, known)

    @property
    def degrees(self) -> dict[str, Form]:
        """The size of each axis of the mesh, the stages of a pipeline among them."""
        return degrees(composed(self.pieces))

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of the mesh."""
        return tuple(self.degrees)


@dataclass(frozen=True)
class Limit:
    """The most that an amount may be, and why a configuration with more of it cannot be."""

    amount: str
    most: Fraction
    refusal: str


@dataclass(frozen=True)
class Objective:
    """The two amounts that a search makes small, the first before the second, and what must stay below limits."""

    front: tuple[str, str]
    limits: tuple[Limit, ...]

    def amounts(self) -> tuple[str, ...]:
        """The names of all of them."""
        return tuple(dict.fromkeys((*self.front, *(limit.amount for limit in self.limits))))


@dataclass(frozen=True)
class Constraint:
    """The second of two sums, the ``divisor``, must divide the first one, the ``size``: what is cut, and by what."""

    label: str
    collected: Collected


@dataclass(frozen=True)
class Core:
    """The forms that every configuration evaluates, such as ``time`` and ``memory``, all numbers put in.

    ``variables`` are the symbols that are left.
    """

    variables: tuple[str, ...]
    collected: Collected
    constraints: tuple[Constraint, ...]


@dataclass(frozen=True)
class SearchStage:
    """One kind of stage: each region with how often it is there and its times, and the contents of its memory."""

    kind: str
    regions: tuple[tuple[str, Form, RegionTime], ...]  # without a name: the model's first layer, timed by itself
    slots: tuple[tuple[str, Form], ...]  # the times of the pieces of work of a microbatch, with their messages
    holds: tuple[tuple[str, Form], ...]
    memory: Form  # of all that it holds


@dataclass(frozen=True)
class SolvedDraft:
    """A draft with its closed forms."""

    draft: Draft
    core: Core
    symbols: tuple[tuple[str, str], ...]  # of each varied axis, of the microbatches and of the buckets
    told: Collected  # the amounts that a reader is told of
    known: tuple[tuple[str, Fraction], ...]
    touched: tuple[str, ...]
    apart: tuple[str, ...]  # mesh axes with which the closed forms are others where they have one rank
    notes: tuple[str, ...]

    def at(self, values: Mapping[str, int]) -> dict[str, Fraction]:
        """The exact numbers that a result prints for one configuration, by the names of their steps."""
        given = {name: Fraction(value) for name, value in values.items()}
        return {**dict(self.known), **given, **self.told.at(given)}


@dataclass(frozen=True)
class Structure(SolvedDraft):
    """A structure of a training step."""

    calls: StepCalls
    stages: tuple[SearchStage, ...]  # those of a pipeline that differ, or the only one
    slots: Form  # of a microbatch
    passes: Form | None  # the time of all microbatches, where pieces of work are timed apart
    letters: str  # these pieces


@dataclass(frozen=True)
class _TimedDraft:
    """The time of a draft's step, of each kind of stage its regions and slots, and all of that collected."""

    made: step_time.StepTime
    buckets: tuple[tuple[str, str], ...]
    stages: tuple[tuple[tuple[tuple[str, Form, RegionTime], ...], tuple[tuple[str, Form], ...]], ...]
    steps: tuple[tuple[str, Form], ...]
    collected: Collected


@dataclass(frozen=True)
class _HeldDraft:
    """The memory of each kind of stage: the kind, what it holds and the sum; and all of that collected."""

    stages: tuple[tuple[str, tuple[tuple[str, Form], ...], Form], ...]
    steps: tuple[tuple[str, Form], ...]
    collected: Collected
    touched: tuple[str, ...]


def structure(question: SearchQuestion, draft: Draft, settled: frozenset[str] = frozenset()) -> Structure:
    """The closed forms of a draft; ``settled`` are conventions that others of the same search rest on.

    Raises ``StrategyError`` where its strategy cannot be applied to the model, ``ValuesError`` for missing numbers.
    """
    this, plain = ByIdentity(question), replace(draft, nesting=None, bucketed=False)
    setting, strategy, m = _asked(this, replace(plain, single=False))
    timed, memory = _timed(this, replace(draft, single=False)), _held(this, plain, settled)
    made, axes = timed.made, setting.graph.axes
    words = [] if all(axes[name] is axis for name, axis in question.model.graph.axes.items()) else ["vocabulary"]
    touched = (*made.work.rests_on, *words, *memory.touched)
    stages = [SearchStage(kind, *times, holds, memory)
              for times, (kind, holds, memory) in zip(timed.stages, memory.stages, strict=True)]  # fmt: skip
    varied = [(axis, size.name) for axis, size in degrees(strategy).items() if isinstance(size, Sym)]
    varied += [(MICROBATCHES, m.name), *timed.buckets]
    numbers = {**setting.values, **dict(made.writer.machine.given)}
    variables = tuple(dict.fromkeys((*(name for _, name in varied), *question.varied)))
    one, other = timed.collected, memory.collected  # whose nodes have names of their own
    told = Collected((*one.nodes, *other.nodes), (*one.sums, *other.sums))
    collected = told.only("time", "memory", *SHARED_MEMORY.values())
    check_known((*timed.steps, *memory.steps), collected.names - {*variables})
    calls = StepCalls(replace(made.work.setting, checks=()), made.strategy, replace(made.writer.machine, checks=()),
                      made.load.calls)  # fmt: skip
    divides = (*constraints(made.work.setting.graph, made.strategy, m), *places(draft, made.strategy))
    return Structure(
        draft, Core(variables, collected, rules(divides, numbers)), tuple(varied), told, tuple(numbers.items()),
        tuple(dict.fromkeys(touched)), calls.apart(draft.ones), made.notes,
        calls, tuple(stages), made.pipe.slots, made.pipe.passes, made.pipe.run.letters,
    )  # fmt: skip


@lru_cache(maxsize=1)  # the ways to fill nodes are asked for one after the other, and one microbatch beside several
def _asked(held: ByIdentity[SearchQuestion], draft: Draft) -> tuple[Setting, Strategy | None, Sym]:
    """The setting of a draft's step, and its strategy with so many microbatches."""
    question, model, known = held.it, held.it.model, held.it.known
    graph, strategy = draft.placed(model.graph, known)
    strategy = None if strategy is None else strategy.at({})
    accounting = replace(question.accounting, recomputation=CONVENTION[draft.recomputation])
    setting = Setting(graph, accounting, model.dtype, model.notation, known, question.frozen, told=False)
    m = fresh("m", setting, strategy)
    setting = replace(setting, graph=whole_words(graph, strategy, accounting), keeps=question.recipe)
    if strategy is not None and strategy.pipeline is not None:
        strategy = replace(strategy, pipeline=replace(strategy.pipeline, microbatches=m))
    return setting, strategy, m


@lru_cache(maxsize=1)
def _timed(held: ByIdentity[SearchQuestion], draft: Draft) -> _TimedDraft:
    """The time of a draft's step: the same where a batch is one microbatch."""
    question, cut_up = held.it, dict[str, Any]()
    setting, strategy, m = _asked(held, replace(draft, nesting=None, bucketed=False))
    if draft.bucketed:
        cut_up = {"buckets": fresh("n_b", setting, strategy), "call_overhead": question.call_overhead}
    made = step_time.write(setting, strategy, m, None, question.gradient_dtype,
                           question.rates_of(draft, strategy), draft.schedule or None, **cut_up)  # fmt: skip
    stages = []
    for kind, number in pipeline.fullest(setting.graph, made.strategy.pipeline, setting.values):
        there = pipeline.held(setting.graph, made.strategy.pipeline, number, setting.values)
        mine: list[tuple[str, Form, RegionTime]] = [("", forms.num(1), r.first) for r in made.regions if r.first]
        for one in (one for one in made.regions if one.region.name in there.regions):
            count = there.times(one.region)
            mine.insert(0, (one.region.name, count if one.first is None else forms.Total((count, forms.num(-1))), one))
        slots = tuple((letter, form) for (letter, at), form in made.pipe.timed.items() if at == (kind or "only"))
        stages.append((tuple(mine), slots))
    steps = (*named("", made.work.steps), ("time", made.time))
    told = (form for regions, slots in stages for form in (*_amounts(regions), *(form for _, form in slots)))
    numbers = {**setting.values, **dict(made.writer.machine.given)}
    found = _collected(held, steps, [*told, made.pipe.slots, *filter(None, [made.pipe.passes])], numbers, "time")
    buckets = ((BUCKETS, cut_up["buckets"].name),) if cut_up else ()
    return _TimedDraft(made, buckets, tuple(stages), steps, found)


@lru_cache(maxsize=2)
def _held(held: ByIdentity[SearchQuestion], draft: Draft, settled: frozenset[str]) -> _HeldDraft:
    """What the ranks of a draft hold: the same however the axes of its mesh fill nodes."""
    question, plain = held.it, replace(draft, single=False)
    setting, kept, m = _asked(held, plain)
    graph, known = setting.graph, setting.values
    times = [region.times for region in graph.regions if region.times]
    adds = forms.num(1) if draft.single else m
    layers = tuple((name, known[name]) for name in times if len(times) > 1 and name in known)
    sizes = tuple(known.items()) if recipe_of(question.recipe).by_shape else layers
    steps, touched = list[tuple[str, Form]](), list[str]()
    stages: list[tuple[str, tuple[tuple[str, Form], ...], Form]] = []
    away: dict[str, list[Form]] = {}
    for kind, number in pipeline.fullest(graph, None if kept is None else kept.pipeline, known):
        before = f"{kind} stage, " if kind else ""
        stage = number if kind else None
        activations = _activations(held, plain, stage, settled)
        touched += activations.touched
        states, holds, fields = _states(
            graph, kept, question.recipe, question.frozen, number, before, sizes, adds, question.accounting
        )
        touched += fields
        steps += [*states, *named(f"{before}kept: ", activations.steps)]
        holds = (*holds, ("activations", Sym(f"{before}kept: {activations.answer.name}")))
        steps.append((f"{before}memory", forms.Total(tuple(form for _, form in holds))))
        for on, _ in question.shared:
            there, parts, _ = _states(graph, kept, question.recipe, question.frozen, number,
                                      f"{before}{on}, ", sizes, adds, question.accounting, on)  # fmt: skip
            steps += there
            away.setdefault(on, []).append(forms.total(*(form for _, form in parts)))
            if question.accounting.tier("activation") != on:
                continue
            every = _activations(held, plain, stage, settled, "on_device")  # on the device and the host
            steps += named(f"{before}all kept: ", every.steps)
            gone = forms.product(forms.num(-1), Sym(f"{before}kept: {activations.answer.name}"))
            away[on][-1] = forms.Total((Sym(f"{before}all kept: {every.answer.name}"), gone, away[on][-1]))
        stages.append((kind, holds, Sym(f"{before}memory")))
    if len(stages) > 1:
        steps.append(("memory", forms.Largest(tuple(memory for *_, memory in stages))))
    for on, ranks in question.shared:
        most = away[on][0] if len(away[on]) == 1 else forms.Largest(tuple(away[on]))
        steps.append((SHARED_MEMORY[on], forms.product(forms.num(ranks), most)))
    told = (form for _, holds, memory in stages for form in (*(form for _, form in holds), memory))
    found = _collected(held, steps, told, known, "memory", *SHARED_MEMORY.values())
    return _HeldDraft(tuple(stages), tuple(steps), found, tuple(touched))


def _collected(
    held: ByIdentity[SearchQuestion], steps: Sequence[tuple[str, Form]], told: Iterable[Form],
    numbers: Mapping[str, Fraction], *wanted: str,
) -> Collected:  # fmt: skip
    """The wanted steps, and the steps named in forms that a result shows."""
    every = {*wanted, *(name for form in told for name in forms.names(form))}
    return collect(steps, [name for name, _ in steps if name in every], numbers, _shared(held), wanted[0])


def rules(divides: Iterable[tuple[str, Form, Form]], numbers: Mapping[str, Fraction]) -> tuple[Constraint, ...]:
    """The constraints of sizes that must divide, all numbers put in."""
    found = []
    for label, size, divisor in divides:
        found.append(Constraint(label, collect((("size", size), ("divisor", divisor)), ("size", "divisor"), numbers)))
    return tuple(found)


def _amounts(regions: Iterable[tuple[str, Form, RegionTime]]) -> Iterator[Form]:
    """The forms that a result shows of the regions of a stage: how often each runs, and its terms."""
    for _, count, one in regions:
        yield count
        yield from one.work.values()
        for terms in one.terms.values():
            yield from terms.every


_HELD: Mapping[Literal["weights", "gradients", "states"], str] = {
    "weights": "weights", "gradients": "gradients", "states": "optimizer states",
}  # fmt: skip


def named(mark: str, steps: Iterable[Step]) -> list[tuple[str, Form]]:
    """The steps that define something, their names marked, so that those of several derivations stay apart."""
    defined = [step for step in steps if step.relation == ":="]
    if not mark:
        return [(step.name, step.form) for step in defined]
    own = {step.name for step in defined}

    def marked(s: Sym) -> Form:
        return Sym(mark + s.name, s.whole, s.unit) if s.name in own else s

    return [(mark + step.name, forms.substitute(step.form, marked)) for step in defined]


def places(draft: Draft, strategy: Strategy) -> Iterator[tuple[str, Form, Form]]:
    """The sizes that must divide, so that the axes of a mesh share out the places of a node."""
    if draft.nesting is not None:
        sizes = {name if name != PIPELINE else PIPE: size for name, size in degrees(strategy).items()}
        for places, top, bottom in draft.nesting.divisions(sizes):
            yield f"the places of a node of {places} ranks", top, bottom


def fresh(name: str, setting: Setting, strategy: Strategy | None) -> Sym:
    used = [n for size in degrees(strategy).values() for n in forms.names(size)]
    if both := [n for n in used if n in setting.symbols]:
        raise StrategyError(f"{both[0]} is a size of the model and of the mesh", hint="call the degree otherwise")
    while name in setting.symbols or name in used:
        name += "'"
    return Sym(name)


def check_known(steps: Iterable[tuple[str, Form]], missing: Iterable[str]) -> None:
    for name in (name for _, form in steps for name in forms.names(form)) if (wanted := {*missing}) else ():
        if name in wanted:
            raise ValuesError(f"a search needs a value for {name}", hint=_where(name))


def _where(name: str) -> str:
    rates = {"R": "peak", "R_8bit": "peak", "W_mem": "memory", "W_net": "network", "W_host": "links: host=32 GB/s",
             "W_nvme": "links: nvme=25 GB/s shared by 8"}
    return f"name a device, or give {rates[name]}" if name in rates else f"for instance sizes: {name}=8"


@lru_cache(maxsize=64)
def _states(
    graph: Graph, strategy: Strategy | None, recipe: str, frozen: frozenset[str], stage: str | None,
    before: str, layers: tuple[tuple[str, Fraction], ...], microbatches: Form, accounting: Accounting,
    on: Literal["device", "host", "nvme"] = "device",
) -> tuple[list[tuple[str, Form]], tuple[tuple[str, Form], ...], tuple[str, ...]]:  # fmt: skip
    """The steps to the states, the amount of each kind, and what conventions touched them."""
    several: Any = microbatches
    if strategy is not None and strategy.pipeline is not None:
        strategy = replace(strategy, pipeline=replace(strategy.pipeline, microbatches=microbatches))
        several = None
    setting = Setting(graph, accounting, values=dict(layers), frozen=frozen, told=False)
    steps: list[tuple[str, Form]] = []
    holds: list[tuple[str, Form]] = []
    touched: dict[str, None] = {}
    for of, what in _HELD.items():
        try:
            made = state_memory.derive(setting, strategy, recipe, stage=stage, microbatches=several, of=of, on=on)
        except state_memory.UnknownSideError as missing:
            hint = "strategies with numbers, such as tensor(8) + data, or a recipe of bytes a parameter"
            raise ValuesError(missing.message, hint=hint) from None
        except ValuesError:  # not every recipe keeps all of them, nor does every stage have what is trained
            continue
        steps += named(f"{before}{of}: ", made.steps)
        holds.append((what, Sym(f"{before}{of}: {made.answer.name}")))
        touched |= dict.fromkeys(made.touched)
    if not holds and on == "device":
        state_memory.derive(setting, strategy, recipe, stage=stage, microbatches=several)  # says why
    return steps, tuple(holds), tuple(touched)


@lru_cache(maxsize=8)
def _shared(held: ByIdentity[SearchQuestion]) -> Shared:
    """What the structures of a search share of their monomials: all have the same numbers."""
    return {}


@lru_cache(maxsize=8)
def _activations(
    held: ByIdentity[SearchQuestion], draft: Draft, stage: str | None, settled: frozenset[str], offloading: str = "",
) -> Derivation:  # fmt: skip
    """What a draft keeps on a stage: the same for one microbatch as for several."""
    setting, strategy, m = _asked(held, draft)
    accounting = replace(setting.accounting, offloading=offloading or setting.accounting.offloading)
    setting, options = replace(setting, accounting=accounting, settled=settled), dict[str, Any]()
    if strategy is not None and strategy.pipeline is not None:
        options = {"schedule": draft.schedule, "stage": stage}
    else:  # a pipeline's pass divides the batch into microbatches itself
        setting = microbatched(setting, m)
    return activation_memory.derive(setting, strategy, recomputation=draft.recomputation, **options)


@lru_cache(maxsize=64)
def constraints(graph: Graph, strategy: Strategy, m: Sym) -> tuple[tuple[str, Form, Form], ...]:
    """The sizes to divide, and their divisors: each named axis that the strategy cuts, the batch, and the layers."""
    sizes = degrees(strategy)
    found: dict[tuple[Expr, Expr], tuple[str, Form, Form]] = {}

    def add(label: str, size: Expr, axes: tuple[str, ...]) -> None:
        top, bottom = sp.fraction(graph.relations.gather(size))
        divisor = sp.Mul(bottom, *(forms.value(sizes[axis]) for axis in axes))
        names = [*axes, *([MICROBATCHES] if divisor.has(forms.value(m)) else [])]
        if divisor != 1 and (top, divisor) not in found:
            label = f"{label} by {' × '.join(names)}"
            found[top, divisor] = label, forms.from_expr(top), forms.from_expr(divisor)

    for _, axis, meshes in cut_axes(graph, strategy):
        if not axis.size.has(sp.ceiling):  # words fall into parts that are whole
            add(axis.label, axis.size, meshes)
    for name in batch_axes(graph):
        # Where the strategy cuts the batch as well, that cut has said it already.
        if not any(top == sp.fraction(graph.axes[name].size)[0] for top, _ in found):
            add(graph.axes[name].label, graph.axes[name].size, ())
    if PIPELINE in sizes:
        layers = pipeline.layer_count(graph)
        add(" + ".join(forms.names(layers)), forms.value(layers), (PIPELINE,))
    return tuple(found.values())
