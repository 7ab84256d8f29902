"""A structure of a search for serving: the times of a prefill and of a decode step, and what a rank holds.

Nothing is counted here: both steps are timed as everywhere, with symbols for the degrees, and the weights and the
cache come from the quantities.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Any

from symcomm.core import form as forms
from symcomm.core.collected import collect
from symcomm.core.derivation import whole_bytes
from symcomm.core.form import Form, Sym
from symcomm.core.graph.axis_roles import batch_axes
from symcomm.core.parallel.placement import cut_axes
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program import pipeline
from symcomm.core.program.vocabulary import whole_words
from symcomm.core.quantities.counting.load import microbatched
from symcomm.core.quantities.generating import step_of
from symcomm.core.quantities.memory import caches
from symcomm.core.quantities.time import generating_time, step_time, time
from symcomm.core.quantities.time.step_calls import StepCalls
from symcomm.core.quantities.time.terms import Terms
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting, StepWriter
from symcomm.core.units import BYTE, Quantity
from symcomm.searching import explain
from symcomm.searching import structure as training
from symcomm.searching.explain import Share
from symcomm.searching.options import batch_symbol
from symcomm.searching.result import RATE, SECOND, ServingConfiguration
from symcomm.searching.space import Grid
from symcomm.searching.structure import Core, Draft, Limit, Objective, SearchQuestion, SolvedDraft
from symcomm.searching.template import PIPELINE, degrees, written

FIRST, EACH, COST, MEMORY = "first token", "token of a sequence", "token", "memory"
PARTS = ("weights", "cache")


def objective(capacity: Fraction, first_token: Fraction | None, per_token: Fraction | None) -> Objective:
    """Most tokens a second first, then the least time between two tokens of a sequence, within bounds."""
    limits = [Limit(MEMORY, capacity, "does not fit in the memory")]
    for amount, most in ((FIRST, first_token), (EACH, per_token)):
        if most is not None:
            limits.append(Limit(amount, most, f"takes longer than allowed for the {_said(amount)}"))
    return Objective((COST, EACH), tuple(limits))


def _said(amount: str) -> str:
    return "first token" if amount == FIRST else "time per token"


@dataclass(frozen=True)
class ServingStructure(SolvedDraft):
    """A decode step."""

    regions: tuple[tuple[Form, Terms, Form], ...]  # what a token crosses: how often, the terms of a crossing, its time
    hops: Form | None  # the messages between stages
    # Of each kind of stage: a rank's memory, and what is in it.
    stages: tuple[tuple[Form, tuple[tuple[str, Form], ...]], ...]


def structure(question: SearchQuestion, draft: Draft) -> ServingStructure:
    """The closed forms of a draft.

    Raises ``StrategyError`` where its strategy cannot be applied to the model, ``ValuesError`` for missing numbers.
    """
    model = question.model
    known = question.known
    _, strategy = draft.placed(model.graph, known)
    strategy = None if strategy is None else strategy.at({})
    setting = Setting(model.graph, question.accounting, model.dtype, model.notation, known, told=False)
    rates = question.rates_of(draft, strategy)
    steps, touched, notes = [], list[str](), list[str]()
    constraints: dict[tuple[str, Form, Form], None] = {}
    apart: dict[str, None] = {}
    m = training.fresh("m", setting, strategy)
    numbers = dict(known)

    stages = generating_time.staged(setting, strategy)

    def timed(
        at: Setting, mark: str, amount: str, groups: Form, cut: Any = None
    ) -> tuple[Setting, list[tuple[Form, Terms, Form]], Form | None]:  # fmt: skip
        """The steps to the time of a forward pass, what it crosses, and its messages between stages."""
        at = replace(at, graph=whole_words(at.graph, strategy, question.accounting))
        hops: Form | None = None
        regions: list[tuple[Form, Terms, Form]] = []
        if stages is not None:
            piped = step_time.write(at, strategy, groups, draft.format or None, None, rates)
            made, work, writer, whole, hops = piped.setting, piped.work, piped.writer, piped.time, piped.pipe.hops
            regions = [(Sym(r.region.times) if r.region.times else forms.num(1), r.terms[""], r.work[""])
                       for r in piped.regions if r.work]  # fmt: skip
            at = microbatched(at, groups)
        else:
            made, work, writer, terms, _ = time.write(at, strategy, "forward", None, draft.format or None, None, rates)
            alone = writer.time("t", terms, "The step")
            assert alone is not None
            whole, regions = alone, [(forms.num(1), terms, alone)]
        found = training.named(mark, work.steps)
        every = [(name, form if cut is None else forms.substitute(form, cut)) for name, form in found]
        steps.extend([*every, *((amount, Sym(mark + name)) for name in forms.names(whole))])
        touched.extend(work.rests_on)
        notes.extend(writer.told(work.steps))
        numbers.update(dict(writer.machine.given))
        if strategy is not None:
            apart.update(dict.fromkeys(StepCalls.forward(made, strategy, writer.machine).apart(draft.ones)))
            for rule in (*training.constraints(at.graph, strategy, m), *training.places(draft, strategy)):
                if cut is None or batch not in {*forms.names(rule[1]), *forms.names(rule[2])}:
                    constraints[rule] = None
        return made, regions, hops

    batch = batch_symbol(model)
    made, regions, hops = timed(setting, "", EACH, stages or forms.num(1))
    if question.prompt is not None:
        origin = replace(setting, graph=model.graph.model)
        each = forms.product(forms.num(question.prompts), *_over_batch(setting, strategy))
        timed(step_of(origin, "prefill", question.prompt), "prefill: ", FIRST, forms.num(1),
              lambda s: each if s.name == batch else s)  # fmt: skip
    assert model.graph.step is not None
    far, held = forms.from_expr(model.graph.step.past), list[tuple[Form, tuple[tuple[str, Form], ...]]]()
    for kind, number in pipeline.fullest(model.graph, strategy.pipeline if strategy else None, setting.values):
        work = StepWriter(made, *(strategy.forms if strategy is not None else ()))
        weights = caches.weights(work, strategy, number)
        cache = caches.write(work, strategy, caches.shares(made, strategy, far, number, "batch"), "batch")
        mark = f"{kind} kept: " if kind else "kept: "
        steps += training.named(mark, work.steps)
        touched += work.rests_on
        holds = tuple((what, Sym(f"{mark}{name}")) for what, form in zip(PARTS, (weights, cache), strict=True)
                      for name in forms.names(form))  # fmt: skip
        steps.append((f"{mark}{MEMORY}", forms.Total(tuple(form for _, form in holds))))
        held.append((Sym(f"{mark}{MEMORY}"), holds))
    steps.append((MEMORY, forms.Largest(tuple(form for form, _ in held)) if len(held) > 1 else held[0][0]))
    steps.append((COST, forms.Ratio(Sym(EACH), forms.product(Sym(batch), forms.from_expr(model.graph.step.new)))))
    varied = [(axis, size.name) for axis, size in degrees(strategy).items() if isinstance(size, Sym)]
    variables = tuple(dict.fromkeys((*(name for _, name in varied), *question.varied)))
    amounts = (COST, EACH, MEMORY, *((FIRST,) if question.prompt is not None else ()))
    told_of = [form for often, terms, whole in regions for form in (often, whole, *terms.every)]
    told_of += [form for memory, holds in held for form in (memory, *(form for _, form in holds))]
    told_of += [hops] if hops is not None else []
    wanted = {*amounts, *(name for form in told_of for name in forms.names(form))}
    told = collect(steps, [name for name, _ in steps if name in wanted], numbers)
    collected = told.only(*amounts)
    training.check_known(steps, collected.names - {*variables})
    return ServingStructure(
        draft, Core(variables, collected, training.rules(constraints, numbers)), tuple(varied), told,
        tuple(numbers.items()), tuple(dict.fromkeys(touched)), tuple(apart), tuple(dict.fromkeys(notes)),
        tuple(regions), hops, tuple(held),
    )  # fmt: skip


def _over_batch(setting: Setting, strategy: Strategy | None) -> Iterator[Form]:
    """The sizes of the mesh axes that cut the sequences: each of their ranks reads prompts of its own."""
    if strategy is not None:
        batch = batch_axes(setting.graph)
        cuts = (meshes for _, axis, meshes in cut_axes(setting.graph, strategy) if axis.name in batch)
        yield from (strategy.sizes[mesh] for mesh in dict.fromkeys(mesh for some in cuts for mesh in some))


def configuration(
    s: ServingStructure, g: Grid, index: int, question: SearchQuestion, capacity: Fraction
) -> ServingConfiguration:
    """One configuration with exact numbers."""
    sizes, names = g.at(index), dict(s.symbols)
    values = {names.get(name, name): n for name, n in sizes.items()}
    worth = s.at({name: n for name, n in values.items() if name in s.core.variables})
    at = partial(explain.worth_of, worth)
    parts: dict[str, Fraction] = {}
    for often, terms, whole in s.regions:
        for what, n in explain.by_term(terms, at(whole), worth, question.accounting.time).items():
            parts[what] = parts.get(what, Fraction(0)) + at(often) * n
    parts[explain.MESSAGES] = at(s.hops) if s.hops is not None else Fraction(0)
    parts[explain.BUBBLE] = worth[EACH] - sum(parts.values())  # waiting for a turn on the slowest stage
    shares = explain.in_order([Share(what, n, n / worth[EACH]) for what, n in parts.items() if n])
    holds = next(holds for memory, holds in s.stages if at(memory) == worth[MEMORY])
    parts_held = [(what, at(form)) for what, form in holds]
    held = explain.told_bytes(parts_held, worth[MEMORY], s.touched, question.accounting)
    memory = Quantity(whole_bytes(worth[MEMORY], s.touched, question.accounting), BYTE)
    strategy = written(s.draft.pieces, sizes, sizes.get(PIPELINE, 1))
    return ServingConfiguration(
        strategy, tuple((axis, sizes[axis]) for axis in g.axes), tuple((n, sizes[n]) for n, _ in g.lists),
        s.draft.format, Quantity(1 / worth[COST], RATE), Quantity(worth[EACH], SECOND),
        Quantity(worth[FIRST], SECOND) if FIRST in worth else None, memory,
        shares, held, explain.sentence(shares, (), held, capacity), question.accounting,
    )  # fmt: skip
