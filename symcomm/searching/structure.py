"""One structure of a search: its strategy with symbolic degrees, and the closed forms of its time and memory.

Nothing is counted here. The passes for a step's time, for states and for activations are asked once, with symbols for
the degrees and the microbatches; a search then only puts numbers in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import sympy as sp

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.collected import Collected, Shared, Terms, collect
from symcomm.core.derivation import Derivation, Step
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.form import Form, Sym
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.libraries import Expr
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
from symcomm.core.quantities.time.step_calls import calls_apart, calls_told
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
    """The facts that all structures of a search share; ``varied`` are sizes of the model that it goes over.

    Of a decode step ``prompt`` are the tokens that come before it, and ``prompts`` are read at once. ``shared`` is how
    many ranks share each tier below the device that is limited.
    """

    model: Model
    varied: tuple[str, ...] = ()
    recipe: str = "mixed_adam"
    gradient_dtype: str | None = None
    call_overhead: Fraction = Fraction(0)
    accounting: Accounting = field(default_factory=Accounting)
    rates: tuple[tuple[str, Any], ...] = ()
    links: Links = field(default_factory=Links)
    frozen: frozenset[str] = frozenset()
    prompt: int | None = None
    prompts: int = 1
    shared: tuple[tuple[Literal["host", "nvme"], int], ...] = ()

    def rates_of(self, strategy: Strategy | None, nesting: Nesting | None = None) -> dict[str, object]:
        """The rates, and the links of the axes of the mesh that a strategy has."""
        links = self.links.given(strategy, nesting)
        return {**dict(self.rates), **({"links": links} if links else {})}


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
    """``divisor`` must divide ``size``: what is cut, and by what."""

    label: str
    size: Terms
    divisor: Terms


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
    """One kind of stage: each region with how often it is there and its times, and the contents of its memory.

    A region's name is empty for the model's first layer, where that is timed by itself. ``slots`` are the times of the
    pieces of work of a microbatch, with their messages; ``memory`` is all that it ``holds``.
    """

    kind: str
    regions: tuple[tuple[str, Form, RegionTime], ...]
    slots: tuple[tuple[str, Form], ...]
    holds: tuple[tuple[str, Form], ...]
    memory: Form


@dataclass(frozen=True)
class SolvedDraft:
    """A draft with its closed forms.

    ``symbols`` names the symbol of each varied axis, of the microbatches and of the buckets. ``told`` are the amounts
    that a reader is told of. ``apart`` are axes of the mesh with which the closed forms are others where they have one
    rank.
    """

    draft: Draft
    core: Core
    symbols: tuple[tuple[str, str], ...]
    told: Collected
    known: tuple[tuple[str, Fraction], ...]
    touched: tuple[str, ...]
    apart: tuple[str, ...]
    notes: tuple[str, ...]

    def at(self, values: Mapping[str, int]) -> dict[str, Fraction]:
        """The exact numbers that a result prints for one configuration, by the names of their steps."""
        given = {name: Fraction(value) for name, value in values.items()}
        return {**dict(self.known), **given, **self.told.at(given)}


@dataclass(frozen=True)
class Structure(SolvedDraft):
    """A structure of a training step.

    ``network`` lists calls: what they are, whether they come at the end of the batch, of which region, and their
    seconds in one repetition. ``stages`` are those of a pipeline that differ, or the only one. ``slots`` are how many
    of a microbatch there are; where pieces of work are timed apart, ``passes`` is the time of all microbatches, and
    ``letters`` are these pieces.
    """

    network: tuple[tuple[str, bool, str, Form], ...]
    stages: tuple[SearchStage, ...]
    slots: Form
    passes: Form | None
    letters: str


def structure(question: SearchQuestion, draft: Draft) -> Structure:
    """The closed forms of a draft.

    Raises ``StrategyError`` where its strategy cannot be applied to the model, ``ValuesError`` for missing numbers.
    """
    model, strategy = question.model, composed(draft.pieces)
    strategy = None if strategy is None else strategy.at({})
    accounting = replace(question.accounting, recomputation=CONVENTION[draft.recomputation])
    known = {n: v for n, v in model.graph.relations.complete(model.values).items() if n not in question.varied}
    graph = whole_words(model.graph, strategy, accounting)
    setting = Setting(model.graph, accounting, model.dtype, model.notation, known, question.frozen, told=False)
    m = fresh("m", setting, strategy)
    rates = question.rates_of(strategy, draft.nesting)
    cut_up: dict[str, Any] = {}
    if draft.bucketed:
        cut_up = {"buckets": fresh("n_b", setting, strategy), "call_overhead": question.call_overhead}
    setting = replace(setting, graph=graph, keeps=question.recipe)
    made = _timed(question, replace(draft, single=False), setting, strategy, m, draft.schedule or None, rates, cut_up)
    cut = made.strategy.pipeline
    micro = microbatched(setting, m)
    steps = named("", made.work.steps)
    touched = [*made.work.rests_on, *(["vocabulary"] if graph is not model.graph else [])]
    stages: list[SearchStage] = []
    away: dict[str, list[Form]] = {}
    # A pipeline's pass divides the batch into microbatches itself.
    whole, kept = (setting if cut is not None else micro), (made.strategy if strategy is not None else None)
    flying: dict[str, Any] = {"schedule": draft.schedule} if cut is not None else {}
    times = [region.times for region in model.graph.regions if region.times]
    adds = forms.num(1) if draft.single else m
    layers = tuple((name, known[name]) for name in times if len(times) > 1 and name in known)
    sizes = tuple(known.items()) if recipe_of(question.recipe).by_shape else layers
    for kind, number in pipeline.fullest(setting.graph, cut, setting.values):
        before = f"{kind} stage, " if kind else ""
        at = {**flying, **({"stage": number} if kind else {})}
        key = replace(draft, nesting=None, bucketed=False, single=False), number
        activations = _activations(question, key, whole, kept, at)
        touched += activations.touched
        held = pipeline.held(setting.graph, cut, number, setting.values)
        firsts = [one.first for one in made.regions if one.first is not None]
        mine: list[tuple[str, Form, RegionTime]] = [("", forms.num(1), first) for first in firsts]
        for one in (one for one in made.regions if one.region.name in held.regions):
            count = held.times(one.region)
            mine.insert(0, (one.region.name, count if one.first is None else forms.Total((count, forms.num(-1))), one))
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
            here = replace(whole, accounting=replace(accounting, offloading="on_device"))
            every = _activations(question, key, here, kept, at)  # those that the device has, and the host's
            steps += named(f"{before}all kept: ", every.steps)
            gone = forms.product(forms.num(-1), Sym(f"{before}kept: {activations.answer.name}"))
            away[on][-1] = forms.Total((Sym(f"{before}all kept: {every.answer.name}"), gone, away[on][-1]))
        slots = tuple((letter, form) for (letter, at), form in made.pipe.timed.items() if at == (kind or "only"))
        stages.append(SearchStage(kind, tuple(mine), slots, holds, Sym(f"{before}memory")))
    varied = [(axis, size.name) for axis, size in degrees(strategy).items() if isinstance(size, Sym)]
    varied.append((MICROBATCHES, m.name))
    varied += [(BUCKETS, cut_up["buckets"].name)] if cut_up else []
    steps.append(("time", made.time))
    if len(stages) > 1:
        steps.append(("memory", forms.Largest(tuple(stage.memory for stage in stages))))
    for on, ranks in question.shared:
        most = away[on][0] if len(away[on]) == 1 else forms.Largest(tuple(away[on]))
        steps.append((SHARED_MEMORY[on], forms.product(forms.num(ranks), most)))
    numbers = {**known, **dict(made.writer.machine.given)}
    variables = tuple(dict.fromkeys((*(name for _, name in varied), *question.varied)))
    amounts = [made.pipe.slots, *([made.pipe.passes] if made.pipe.passes is not None else []),
               *(form for stage in stages for form in _amounts(stage))]  # fmt: skip
    wanted = {"time", "memory", *SHARED_MEMORY.values(), *(name for form in amounts for name in forms.names(form))}
    told = collect(steps, [name for name, _ in steps if name in wanted], numbers, _shared(ByIdentity(question)))
    collected = told.only("time", "memory", *SHARED_MEMORY.values())
    check_known(steps, collected.names - {*variables})
    divides = (*constraints(micro.graph, made.strategy, m), *_places(draft, made.strategy))
    return Structure(
        draft, Core(variables, collected, rules(divides, numbers)), tuple(varied), told, tuple(numbers.items()),
        tuple(dict.fromkeys(touched)), calls_apart(made), made.notes,
        tuple(calls_told(made)), tuple(stages), made.pipe.slots, made.pipe.passes, made.pipe.run.letters,
    )  # fmt: skip


def rules(divides: Iterable[tuple[str, Form, Form]], numbers: Mapping[str, Fraction]) -> tuple[Constraint, ...]:
    """The constraints of sizes that must divide, all numbers put in."""
    found = []
    for label, size, divisor in divides:
        sums = collect((("size", size), ("divisor", divisor)), ("size", "divisor"), numbers).sums
        found.append(Constraint(label, *(terms for _, terms in sums)))
    return tuple(found)


def _amounts(stage: SearchStage) -> Iterator[Form]:
    """What is told of a stage: how often its regions stand and their terms, its slots, and what it holds."""
    for _, count, one in stage.regions:
        yield count
        yield from one.work.values()
        for terms in one.terms.values():
            yield from terms.every
    for _, form in (*stage.slots, *stage.holds, ("", stage.memory)):
        yield form


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


def _places(draft: Draft, strategy: Strategy) -> Iterator[tuple[str, Form, Form]]:
    """What must divide for the axes of a mesh to share out the places of a node."""
    if draft.nesting is not None:
        sizes = {name if name != PIPELINE else PIPE: size for name, size in degrees(strategy).items()}
        for places, top, bottom in draft.nesting.divisions(sizes):
            yield f"the places of a node of {places} ranks", top, bottom


def fresh(name: str, setting: Setting, strategy: Strategy | None) -> Sym:
    taken = {*setting.symbols, *(n for size in degrees(strategy).values() for n in forms.names(size))}
    for size in degrees(strategy).values():
        for used in forms.names(size):
            if used in setting.symbols:
                raise StrategyError(f"{used} is a size of the model and of the mesh", hint="call the degree otherwise")
    while name in taken:
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


def _timed(
    question: SearchQuestion, key: Draft, setting: Setting, strategy: Strategy | None, m: Sym, schedule: str | None,
    rates: Mapping[str, object], cut_up: Mapping[str, Any],
) -> step_time.StepTime:  # fmt: skip
    """The time of a draft's step: the same where a batch is one microbatch, which is asked for beside several."""
    last, dtype = _last(ByIdentity(question)), question.gradient_dtype
    made = last.get(key)
    if made is None:
        made = step_time.write(setting, strategy, m, None, dtype, rates, schedule, **cut_up)
        last.clear()
        last[key] = made
    return made


@lru_cache(maxsize=8)
def _last(held: ByIdentity[SearchQuestion]) -> dict[Draft, step_time.StepTime]:
    """The time that was asked for last."""
    return {}


def _activations(
    question: SearchQuestion, key: tuple[Draft, str | None], setting: Setting, strategy: Strategy | None,
    options: Mapping[str, Any],
) -> Derivation:  # fmt: skip
    """What a draft keeps on a stage: the same however the axes of its mesh fill nodes, and for one microbatch."""
    known, at = _kept(ByIdentity(question)), (*key, setting.accounting.offloading)
    if at not in known:
        known[at] = activation_memory.derive(setting, strategy, recomputation=key[0].recomputation, **options)
    return known[at]


@lru_cache(maxsize=8)
def _kept(held: ByIdentity[SearchQuestion]) -> dict[tuple[Draft, str | None, str], Derivation]:
    """What drafts keep, by stage and by what the host has."""
    return {}


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
