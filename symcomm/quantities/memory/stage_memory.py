"""What is alive on one stage of a pipeline: its schedule, task by task, with the microbatches in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from symcomm.errors import StrategyError, ValuesError
from symcomm.form import Form, Ratio, Sym, evaluate, names, num, product
from symcomm.parallel.strategy import PipelineCut
from symcomm.program import pipeline
from symcomm.program.schedules import USUAL_SCHEDULE, find
from symcomm.quantities.counting.load import microbatched
from symcomm.quantities.memory.region_memory import NOTHING, StepOptions, add
from symcomm.quantities.memory.step_memory import Base, Snapshot, StepMemory
from symcomm.setting import Setting

WARM, STEADY, COOL = "warm-up", "steady state", "cool-down"
_OWN = ("saved activations", "temporaries")
_PIECES = 40_000  # of work that are followed one by one


@dataclass(frozen=True)
class Task:
    """One piece of work: a microbatch passes a chunk of layers; its kind is F, B, W or D. All count from 0."""

    kind: str
    microbatch: int
    chunk: int = 0


@dataclass(frozen=True)
class StageMemory:
    """Which stage of a pipeline is looked at (0 is the first one), under which schedule, with how many chunks."""

    schedule: str = USUAL_SCHEDULE
    stage: int = 0
    chunks: int = 1


@dataclass(frozen=True)
class Instant:
    """A task of the schedule as it begins: the other pieces in flight by their chunk, and whether they wait for the
    gradients of the weights alone, and the chunks with gradients. ``beside`` is a forward that overlaps with it.
    """

    task: Task
    when: str
    flying: tuple[tuple[tuple[int, bool], int], ...]
    there: frozenset[int]
    beside: Task | None = None

    @property
    def count(self) -> int:
        """The pieces in flight, with those that the task and what overlaps with it work on."""
        return sum(n for _, n in self.flying) + (1 if self.beside is None else 2)


def instants(items: Sequence[Sequence[Task]]) -> list[Instant]:
    """Every task of a stage with what is in flight besides it.

    A stage warms up until its first backward task, and cools down after its last forward task.
    """
    first = next(n for n, item in enumerate(items) if any(t.kind in "BD" for t in item))
    last = max(n for n, item in enumerate(items) if any(t.kind == "F" for t in item))
    flying: dict[tuple[int, int], bool] = {}
    there: frozenset[int] = frozenset()
    found = []
    for n, item in enumerate(items):
        mine = {(t.chunk, t.microbatch) for t in item}
        when = WARM if n < first else STEADY if n <= last else COOL
        others = Counter((piece[0], waits) for piece, waits in flying.items() if piece not in mine)
        forward, *after = sorted(item, key=lambda t: t.kind != "F")
        task, beside = (after[0], forward) if after else (forward, None)
        found.append(Instant(task, when, tuple(sorted(others.items())), there, beside))
        for task in item:
            if task.kind in "FB":
                flying[task.chunk, task.microbatch] = task.kind == "B"
            else:
                flying.pop((task.chunk, task.microbatch))
                there |= {task.chunk}
    return found


def snapshots(setting: Setting, run: StepOptions, cut: PipelineCut, at: StageMemory) -> list[Snapshot]:
    """What is alive on a stage at every op that may be the peak; of tasks that differ in nothing but in what else is
    there, the one with the most.

    Raises ``ValuesError`` and ``StrategyError`` for sizes that are not known, layers that the chunks do not divide, a
    stage that there is not, and what the schedule refuses.
    """
    graph = setting.graph
    values = graph.relations.complete(setting.values)
    counted = pipeline.layer_count(graph)
    stages = whole(pipeline.stage_count(cut, graph), values, "stages")
    count = whole(cut.microbatches, values, "microbatches")
    layers = whole(counted, values, " + ".join(names(counted)))
    record = find(at.schedule)
    record.fitting(stages, count, at.chunks)
    if stages * count * at.chunks > _PIECES:
        raise ValuesError(
            f"{stages} stages and {count} microbatches are too many to be followed one by one",
            hint=f"at most {_PIECES:,} pieces of work",
        )
    held = pipeline.held(graph, cut, at.stage, values, record)
    order = record.rank(at.stage, stages, count, at.chunks)
    if any(action.kind == "W" for item in order for action in item) and (run.recomputation != "none" or run.every):
        raise StrategyError(
            f"{record.name} runs the gradients of the weights apart, and what is computed again is there once",
            hint="leave the recomputation out, or take a schedule that runs a backward as one piece",
        )
    mine = sorted({action.stage for item in order for action in item})
    tasks = [[Task(action.kind, action.microbatch, mine.index(action.stage)) for action in item] for item in order]
    share = at.chunks / record.placement.copies(stages, at.chunks)  # the parts of a rank's share of the layers
    if cut.layers and share > 1:
        raise StrategyError("layers are given for each stage, and chunks of a stage as well", hint="leave one out")
    if not cut.layers and layers % (stages * share):
        pieces = f"{stages} stages" + (f" of {share} chunks" if share > 1 else "")
        raise StrategyError(f"{layers} layers are not divisible into {pieces}", hint="each piece has as many layers")
    if share > 1 and len(pipeline.stacked(graph)) > 1:
        raise StrategyError(f"chunks of {record.name} would hold different kinds of layers", hint="schedule: 1f1b")
    counts = held.counts or tuple((region.name, Sym(region.times)) for region in pipeline.stacked(graph))
    each = tuple((name, Ratio(count, num(share)) if share > 1 else count) for name, count in counts)
    run = replace(run, layers=each, chunks=at.chunks)
    ends = tuple(mine.index(end) if end in mine else None for end in (0, int(stages * share) - 1))
    walk = _Walk(StepMemory(microbatched(setting, cut.microbatches), run, held.regions), ends, at, values)
    return [*walk.passes(instants(tasks)), *walk.step.update()]


def whole(form: Form, values: Mapping[str, Fraction], what: str) -> int:
    """A number of stages, layers or microbatches; raises ``ValuesError`` where it is not known, or no whole number."""
    missing = [n for n in names(form) if n not in values]
    if missing:
        raise ValuesError(f"no value is given for {missing[0]}: the schedule of a pipeline is followed step by step",
                          hint=f"for instance {missing[0]}=8")  # fmt: skip
    found = evaluate(form, values)
    if found.denominator != 1 or found < 1:
        raise ValuesError(f"{what} = {found}: a whole number is needed")
    return int(found)


@dataclass
class _Walk:
    step: StepMemory
    ends: tuple[int | None, ...]
    at: StageMemory
    values: Mapping[str, Fraction]

    def chunk(self, number: int) -> tuple[int, ...]:
        """The parts that a chunk runs through; what stands before or behind the layers is on the chunk at that end."""
        parts = self.step.parts
        layers = [n for n, part in enumerate(parts) if part.repeated]
        return tuple(
            n for n in range(len(parts))
            if layers[0] <= n <= layers[-1] or number == self.ends[0 if n < layers[0] else 1]
        )  # fmt: skip

    def left(self, number: int) -> Form:
        """What a microbatch in flight keeps of a chunk."""
        return add(self.step.parts[n].left for n in self.chunk(number))

    def gradients(self, number: int) -> Form:
        width = self.step.run.recipe.gradient
        parts = [self.step.parts[n] for n in self.chunk(number)]
        return add(part.times(0, add(part.pieces("gradient", width))) for part in parts)

    def base(self, instant: Instant) -> Base:
        plain = self.step.base
        saved: list[Form] = []
        passing: list[Form] = []
        fresh = list(plain.fresh)
        for (chunk, waits), n in instant.flying:
            for part in (self.step.parts[k] for k in self.chunk(chunk)):
                often, kept = part.fresh
                if waits:
                    stays, passes = part.waiting
                    kept = (*stays, *passes)
                    saved.append(_times(n, part.times(0, add(stays))))
                    passing.append(_times(n, part.times(0, add(passes))))
                fresh.append((product(num(n), often), kept))
            if not waits:
                saved.append(_times(n, self.left(chunk)))
        there = add(self.gradients(chunk) for chunk in sorted(instant.there))
        return Base(plain.always, tuple(fresh), add(saved), add(passing), there, instant.task.chunk in instant.there)

    def weight(self, instant: Instant) -> Fraction:
        """The bytes that are there besides the task."""
        base = self.base(instant)
        return sum((evaluate(form, self.values) for form in (base.saved, base.passing, base.gradients)), Fraction(0))

    def passes(self, found: list[Instant]) -> list[Snapshot]:
        """The ops of the tasks that may be the peak, in order."""
        best: dict[tuple[object, ...], tuple[Fraction, Instant]] = {}
        weights: dict[tuple[object, ...], Fraction] = {}
        for instant in found:
            state = (instant.flying, instant.there)
            if state not in weights:
                weights[state] = self.weight(instant)
            task = instant.task
            other = None if instant.beside is None else self.chunk(instant.beside.chunk)
            key = (instant.when, task.kind, self.chunk(task.chunk), task.chunk in instant.there, other)
            if key not in best or weights[state] > best[key][0]:
                best[key] = weights[state], instant
        ordered = [instant for instant in found if any(instant is one for _, one in best.values())]
        return [snapshot for instant in ordered for snapshot in self.snapshots(instant)]

    def snapshots(self, instant: Instant) -> list[Snapshot]:
        task, base, mine = instant.task, self.base(instant), self.chunk(instant.task.chunk)
        beside = ""
        if instant.beside is not None:
            top = self.largest(instant.beside, base)
            beside = f", while the forward pass makes {top.op}"
            more = dict(top.parts)
            base = replace(base, saved=more["saved activations"], passing=more["temporaries"], fresh=top.fresh)
        if task.kind == "F":
            listed = [m for n in mine for m in self.step.forward(n, base, mine)]
        else:
            listed = [m for n in reversed(mine) for m in self.step.backward(n, base, mine, task.kind)]
        pieces = "microbatch" if self.at.chunks == 1 else "chunk"
        when = f"{instant.when}, {instant.count} {pieces}{'es' * (pieces == 'microbatch') or 's'} in flight"
        if instant.count == 1:
            when = f"{instant.when}, one {pieces} in flight"
        return [replace(m, when=when, op=m.op + beside) for m in listed]

    def largest(self, forward: Task, base: Base) -> Snapshot:
        """The moment of a forward pass at which most is there."""
        mine = self.chunk(forward.chunk)
        found = [m for n in mine for m in self.step.forward(n, base, mine)]
        return max(found, key=lambda m: sum(evaluate(form, self.values) for kind, form in m.parts if kind in _OWN))


def _times(count: int, form: Form) -> Form:
    return NOTHING if form == NOTHING else product(num(count), form) if count > 1 else form
