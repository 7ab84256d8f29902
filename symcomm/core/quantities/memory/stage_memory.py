"""What is alive on one rank over several microbatches: the schedule of its stage, task by task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from itertools import chain

from symcomm.core.errors import StrategyError, ValuesError, where_given
from symcomm.core.form import Form, Ratio, Sym, evaluate, names, num
from symcomm.core.parallel.strategy import PipelineCut
from symcomm.core.program import pipeline
from symcomm.core.program.alive import Amounts, Fold, Instruction
from symcomm.core.program.program import program
from symcomm.core.program.rewrites.accumulation import unreduced
from symcomm.core.program.schedules import USUAL_SCHEDULE, find
from symcomm.core.quantities.counting.load import microbatched
from symcomm.core.quantities.memory.passes import StepOptions
from symcomm.core.quantities.memory.step_program import Snapshot, StepProgram
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting

WARM, STEADY, COOL = "warm-up", "steady state", "cool-down"
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
class TaskStart:
    """A task as it begins: when in the schedule, with how many pieces in flight, and whether its weights have gradients
    by then. ``beside`` is a forward that overlaps with it.
    """

    task: Task
    when: str
    count: int
    there: bool
    beside: Task | None = None


def started(items: Sequence[Sequence[Task]]) -> Iterator[TaskStart]:
    """Every task of a stage as it begins; those that overlap are one.

    A stage warms up until its first backward task, and cools down after its last forward task.
    """
    first = next(n for n, item in enumerate(items) if any(t.kind in "BD" for t in item))
    last = max(n for n, item in enumerate(items) if any(t.kind == "F" for t in item))
    flying: set[tuple[int, int]] = set()
    there: set[int] = set()
    for n, item in enumerate(items):
        count = len(flying | {(t.chunk, t.microbatch) for t in item})
        when = WARM if n < first else STEADY if n <= last else COOL
        forward, *after = sorted(item, key=lambda t: t.kind != "F")
        task, beside = (after[0], forward) if after else (forward, None)
        yield TaskStart(task, when, count, task.chunk in there, beside)
        for task in item:
            if task.kind in "FB":
                flying.add((task.chunk, task.microbatch))
            else:
                flying.discard((task.chunk, task.microbatch))
                there.add(task.chunk)


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
    program(graph, run.strategy, setting.accounting, setting.frozen)  # refuses boundaries between stages that differ
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
    run = replace(run, layers=each, chunks=at.chunks, unreduced=unreduced(setting.accounting, num(count)))
    ends = tuple(mine.index(end) if end in mine else None for end in (0, int(stages * share) - 1))
    step = StepProgram(microbatched(setting, cut.microbatches), run, held.regions)
    return _Walk(step, values, ends, "microbatch" if at.chunks == 1 else "chunk").snapshots(tasks)


def accumulated(setting: Setting, run: StepOptions, microbatches: Form) -> list[Snapshot]:
    """What is alive where a rank runs one microbatch after the other: from the second one on, all are alike.

    Raises ``ValuesError`` where their number is not known.
    """
    values = setting.graph.relations.complete(setting.values)
    count = whole(microbatches, values, "microbatches")
    run = replace(run, unreduced=unreduced(setting.accounting, num(count)))
    tasks = [[Task(kind, n)] for n in range(min(count, 2)) for kind in "FD"]
    return _Walk(StepProgram(microbatched(setting, microbatches), run), values).snapshots(tasks)


def whole(form: Form, values: Mapping[str, Fraction], what: str) -> int:
    """A number of stages, layers or microbatches; raises ``ValuesError`` where it is not known, or no whole number."""
    missing = [n for n in names(form) if n not in values]
    if missing:
        raise ValuesError(f"no value is given for {missing[0]}: the schedule of a pipeline is followed step by step",
                          hint=where_given(missing[0], "model."))  # fmt: skip
    found = evaluate(form, values)
    if found.denominator != 1 or found < 1:
        raise ValuesError(f"{what} = {found}: a whole number is needed")
    return int(found)


@dataclass
class _Walk:
    """Follows the tasks of a rank; ``ends`` are the chunks with what stands before the layers, and behind them."""

    step: StepProgram
    values: Mapping[str, Fraction]
    ends: tuple[int | None, ...] = (0, 0)
    pieces: str = "microbatch"
    bodies: dict[tuple[str, tuple[int, ...], bool], list[Instruction]] = field(default_factory=dict)

    def chunk(self, number: int) -> tuple[int, ...]:
        """The parts that a chunk runs through; what stands before or behind the layers is on the chunk at that end."""
        parts = self.step.parts
        layers = [n for n, part in enumerate(parts) if part.repeated] or [0, len(parts) - 1]
        return tuple(
            n for n in range(len(parts))
            if layers[0] <= n <= layers[-1] or number == self.ends[0 if n < layers[0] else 1]
        )  # fmt: skip

    def body(self, task: Task, there: bool = False) -> list[Instruction]:
        """What a task keeps and frees, and what it runs."""
        mine = self.chunk(task.chunk)
        key = (task.kind, mine, there)
        if key not in self.bodies:
            made = self.step.forward(mine) if task.kind == "F" else self.step.backward(mine, task.kind, there)
            self.bodies[key] = [*made]
        return self.bodies[key]

    def snapshots(self, tasks: Sequence[Sequence[Task]]) -> list[Snapshot]:
        """The ops that may be the peak. Of tasks that do the same at the same time of the schedule, that is the one
        which begins with the most.
        """
        starts = [*started(tasks)]
        fold, best = Fold(self.values), dict[tuple[object, ...], tuple[Fraction, int, Amounts]]()
        for start in starts:
            self.body(start.task, start.there)
        self.step.check_sizes(chain(self.step.start(), *self.bodies.values(), self.step.update()), self.values)
        for one in self.step.start():
            fold.skip(one)
        for n, start in enumerate(starts):
            beside = None if start.beside is None else self.chunk(start.beside.chunk)
            key = (start.when, start.task.kind, self.chunk(start.task.chunk), start.there, beside)
            if key not in best or fold.total > best[key][0]:
                best[key] = fold.total, n, dict(fold.alive)
            for task in (start.beside, start.task):
                fold.add(fold.change(self.body(task, start.there and task.kind != "F")) if task is not None else {})
        found = [shot for _, n, alive in sorted(best.values(), key=lambda b: b[1])
                 for shot in self.task(starts[n], fold.at(alive))]  # fmt: skip
        return [*found, *(self.step.snapshot(instant) for instant in fold.walk([*self.step.update()]))]

    def task(self, start: TaskStart, fold: Fold) -> Iterator[Snapshot]:
        """The ops of a task; the forward pass that it overlaps with is taken to be at its largest all the time."""
        beside, pieces = "", self.pieces + ("es" if self.pieces.endswith("ch") else "s")
        if start.beside is not None:
            top = max(fold.at(fold.alive).walk(self.body(start.beside)), key=lambda i: sum(i.bytes.values()))
            beside, fold = f", while the forward pass makes {top.run.op}", fold.at(top.alive)
        flying = f"one {self.pieces}" if start.count == 1 else f"{start.count} {pieces}"
        for instant in fold.walk(self.body(start.task, start.there)):
            yield self.step.snapshot(instant, f"{start.when}, {flying} in flight", beside)
