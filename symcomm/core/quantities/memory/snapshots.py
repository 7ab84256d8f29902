"""The tensors alive on a rank at the ops of a training step that may be its peak, as a reader knows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from functools import cached_property, lru_cache, partial

from symcomm.core.accounting import Accounting
from symcomm.core.collected import Collected, collect
from symcomm.core.dtypes import element_bytes
from symcomm.core.errors import StrategyError, SymcommError, ValuesError
from symcomm.core.form import Form, Num, Total, evaluate, from_expr, names, num, product
from symcomm.core.graph.graph import Graph
from symcomm.core.libraries import Expr
from symcomm.core.parallel.strategy import PipelineCut, Strategy
from symcomm.core.program import pipeline
from symcomm.core.program.alive import Instant, Place, counts_of, size_names
from symcomm.core.program.autograd import cut_meshes, storage
from symcomm.core.program.orders import Action, Item
from symcomm.core.program.program import program
from symcomm.core.program.rewrites.accumulation import unreduced
from symcomm.core.program.schedules import USUAL_SCHEDULE, find
from symcomm.core.program.step import RankStep, StepOptions, TaskStart, started
from symcomm.core.program.storage import GRADIENT, PASSING, SAVED
from symcomm.core.quantities.counting.load import microbatched
from symcomm.core.quantities.memory.allocated_memory import held_outside
from symcomm.core.quantities.memory.shaped_states import ShapeChoice, check_whole, kept_bytes
from symcomm.core.quantities.recipes import PARTS_KEPT, Recipe
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting

_PIECES = 40_000  # of work that are followed one by one
_WALKS = 15  # of one step that are kept


@dataclass(frozen=True)
class StepRun:
    """The run of a rank: its strategy and how its step runs."""

    strategy: Strategy
    recipe: Recipe
    options: StepOptions = StepOptions()
    held: tuple[str, ...] = ()  # tensors that the program still refers to
    workspace: Fraction = Fraction(0)  # for each of two threads: one calls the forward pass, another one the backward
    microbatches: Form | None = None  # if there are several
    schedule: str = USUAL_SCHEDULE
    stage: int = 0
    chunks: int = 1


@dataclass(frozen=True)
class Snapshot:
    """The memory while one op runs: bytes by kind, the pieces they are made of and how many, held tensors in addition.

    ``when`` is where in a schedule it is, ``loops`` the loops around it.
    """

    phase: str
    place: str
    op: str
    row: str
    bytes: Mapping[str, Fraction]
    alive: Mapping[tuple[str, Form], Expr | int]
    held: tuple[Form, ...] = ()
    when: str = ""
    loops: Place = ()


def step_of(
    setting: Setting, run: StepRun, chunks: tuple[pipeline.RankShare, ...] | None = None
) -> RankStep:  # fmt: skip
    """The step of a rank that holds all of a model, or of its stage of a pipeline so many chunks."""
    byte, recipe = element_bytes("fp8").unit, run.recipe
    if recipe.shaped("gradient"):
        raise ValuesError(f"{recipe.name} has gradients of several sizes: their peak is not counted",
                          hint="recipes whose gradients have as many bytes, or state_memory")  # fmt: skip
    by_shape = [role for role in PARTS_KEPT if recipe.shaped(role)]
    roles = {r: Num(Fraction(recipe.per_parameter(r)), byte) for r in PARTS_KEPT if r not in by_shape}
    for role in by_shape:
        check_whole(recipe, run.strategy, role)
    choice = ShapeChoice(recipe, setting)
    shaped = {role: partial(kept_bytes, choice, run.strategy, role) for role in by_shape}

    def measure(elements: Expr, what: str) -> Form:
        return product(setting.written(elements), roles[what] if what in roles else element_bytes(what))

    made = partial(program, setting.graph, run.strategy, setting.accounting, setting.frozen, None)
    chunks = chunks or (pipeline.held(setting.graph, None),)
    return RankStep(setting.graph, made, measure, chunks, run.options, setting.dtype, shaped)


@dataclass
class StepWalk:
    """The memory at every op that may be the peak, at some numbers, and at others where its loops run as often.

    How often one runs matters up to twice: then it has two ends. Without ``loops`` other numbers may decide more, such
    as what is kept of a weight.
    """

    found: list[Snapshot]
    names: frozenset[str] = frozenset()
    loops: tuple[tuple[Form, Fraction], ...] | None = None

    def is_alike(self, values: Mapping[str, Fraction]) -> bool:
        """Whether the same ops may be the peak, with the same tensors alive."""
        known = self.loops is not None and all(values.get(name, 0) > 0 for name in self.names)
        return known and all(_often(count, values) == often for count, often in self.loops or ())

    def at(self, values: Mapping[str, Fraction]) -> list[Snapshot]:
        """The same at other numbers."""
        every: list[dict[str, Fraction]] = [{**shot.bytes} for shot in self.found]
        for name, number in self._bytes.at(values).items():
            n, kind = name.split(" ", 1)
            every[int(n)][kind] = number
        return [replace(shot, bytes=amounts) for shot, amounts in zip(self.found, every, strict=True)]

    @cached_property
    def _steps(self) -> dict[str, Form]:
        """The bytes of each kind at each op, by its place and the kind."""
        found: dict[str, list[Form]] = {}
        for n, shot in enumerate(self.found):
            for (kind, size), count in shot.alive.items():
                found.setdefault(f"{n} {kind}", []).append(product(count_form(count), size))
        return {name: Total(tuple(some)) for name, some in found.items()}

    @cached_property
    def _bytes(self) -> Collected:
        return collect(self._steps.items(), self._steps)

    @cached_property
    def _totals(self) -> Collected:
        """All bytes at each op, by its place."""
        every: list[list[Form]] = [[*shot.held] for shot in self.found]
        for n, shot in enumerate(self.found):
            for kind in {*shot.bytes, *(kind for kind, _ in shot.alive)}:
                name = f"{n} {kind}"
                every[n].append(self._steps.get(name, num(shot.bytes.get(kind, 0))))
        return collect(((str(n), Total(tuple(some))) for n, some in enumerate(every)), map(str, range(len(every))))

    def rivals(self, top: int) -> Collected:
        """The bytes at one op, by its place, and at all others that may have the most at some sizes."""
        made = self._totals
        each = dict(made.sums)
        if any(count < 0 for _, node in made.nodes for part in node.parts for count in part.values()):
            return made  # more of a node may be fewer bytes
        kept = [each.pop(str(top))]
        found = [str(top)]
        for name, terms in sorted(each.items(), key=lambda one: -sum(one[1].values())):
            if all(any(terms.get(m, 0) > other.get(m, 0) for m in {*terms, *other}) for other in kept):
                kept.append(terms)
                found.append(name)
        return made.only(*found)


@dataclass(frozen=True)
class StepPeak:
    """The op of a step with the most memory, by its place."""

    setting: Setting
    run: StepRun
    walk: StepWalk
    top: int

    @cached_property
    def _rivals(self) -> Collected:
        return self.walk.rivals(self.top)

    @cached_property
    def _now(self) -> tuple[object, ...]:
        return self._asked(self.setting.values)

    def _asked(self, values: Mapping[str, Fraction]) -> tuple[object, ...]:
        part, *rest = _of_rank(replace(self.setting, values=values), self.run)
        return part.graph, *rest

    def at(self, values: Mapping[str, Fraction]) -> Fraction | None:
        """The most memory at other numbers; None where it is not known to be during the same op."""
        try:
            other = self._asked(values)
        except SymcommError:
            return None
        if other != self._now or not self.walk.is_alike(values):
            return None
        made = self._rivals.at(values)
        most = made[str(self.top)]
        first = all(amount < most or (amount == most and int(n) >= self.top) for n, amount in made.items())
        return most if first else None


def count_form(count: Expr | int) -> Form:
    """How many pieces there are, as a form."""
    return num(count) if isinstance(count, int) else from_expr(count)


def _often(count: Form, values: Mapping[str, Fraction]) -> Fraction:
    return max(min(evaluate(count, values), Fraction(2)), Fraction(-1))


def snapshots(setting: Setting, run: StepRun, unrolled: bool = False) -> list[Snapshot]:
    """The memory at every op that may be the peak (or at every one, where the loops are ``unrolled``).

    Raises what ``walked`` raises.
    """
    return walked(setting, run, unrolled)[1]


def walked(setting: Setting, run: StepRun, unrolled: bool = False) -> tuple[StepWalk, list[Snapshot]]:
    """The walk of a step, and the memory at the numbers that are known.

    Raises ``ValuesError`` and ``StrategyError`` for sizes that are not known, layers that the chunks do not divide, a
    stage that there is not, and what the schedule refuses.
    """
    part, run, chunks, tasks, pieces = _of_rank(setting, run)
    values = setting.graph.relations.complete(setting.values)
    return _maker(part, run, chunks).all(tasks, values, pieces, unrolled)


_OfRank = tuple[Setting, StepRun, "tuple[pipeline.RankShare, ...] | None", tuple[Item, ...], str]


def _of_rank(setting: Setting, run: StepRun) -> _OfRank:
    """One microbatch of a step on a rank, with its chunks, the order of its tasks, and what these work on."""
    values, cut = setting.graph.relations.complete(setting.values), run.strategy.pipeline
    if cut is not None:
        return _stage(setting, run, cut, values)
    count = 1 if run.microbatches is None else pipeline.whole(run.microbatches, values, "microbatches")
    kinds = "F" if run.options.step == "forward" else "FD"
    tasks = tuple((Action(kind, 0, n),) for n in range(min(count, 2)) for kind in kinds)
    _check_groups(setting, run, values, pipeline.held(setting.graph, None))
    part, one = _several(setting, run, run.microbatches or num(1), count)
    return part, one, None, tasks, "" if run.microbatches is None else "microbatch"


def _maker(setting: Setting, run: StepRun, chunks: tuple[pipeline.RankShare, ...] | None) -> SnapshotMaker:
    """The step of a rank; its numbers matter where they decide what is kept of a weight."""
    if run.recipe.by_shape:
        return SnapshotMaker(setting, run, step_of(setting, run, chunks))
    return _without_numbers(setting.graph, setting.accounting, setting.dtype, setting.frozen, run, chunks)


@lru_cache(maxsize=32)
def _without_numbers(
    graph: Graph, accounting: Accounting, dtype: str, frozen: frozenset[str], run: StepRun,
    chunks: tuple[pipeline.RankShare, ...] | None,
) -> SnapshotMaker:  # fmt: skip
    setting = Setting(graph, accounting, dtype, frozen=frozen)
    return SnapshotMaker(setting, run, step_of(setting, run, chunks))


def _several(setting: Setting, run: StepRun, microbatches: Form, count: int) -> tuple[Setting, StepRun]:
    """One of several microbatches, whose gradients are added."""
    options = replace(run.options, unreduced=unreduced(setting.accounting, num(count)))
    return microbatched(setting, microbatches), replace(run, options=options)


def _stage(
    setting: Setting, run: StepRun, cut: PipelineCut, values: Mapping[str, Fraction]
) -> _OfRank:
    """One microbatch on a stage of a pipeline."""
    graph, record = setting.graph, find(run.schedule).flushed("the peak of a step")
    counted = pipeline.layer_count(graph)
    stages = pipeline.whole(pipeline.stage_count(cut, graph), values, "stages")
    count = pipeline.whole(cut.microbatches, values, "microbatches")
    layers = pipeline.whole(counted, values, " + ".join(names(counted)))
    record.fitting(stages, count, run.chunks)
    if stages * count * run.chunks > _PIECES:
        raise ValuesError(
            f"{stages} stages and {count} microbatches are too many to be followed one by one",
            hint=f"at most {_PIECES:,} pieces of work",
        )
    program(graph, run.strategy, setting.accounting, setting.frozen)  # refuses boundaries between stages that differ
    share = run.chunks / record.placement.copies(stages, run.chunks)  # the parts of a rank's share of the layers
    if not cut.layers and layers % (stages * share):
        pieces = f"{stages} stages" + (f" of {share} chunks" if share > 1 else "")
        raise StrategyError(f"{layers} layers are not divisible into {pieces}", hint="each piece has as many layers")
    chunks = pipeline.held_in_chunks(graph, cut, run.stage, values, record, run.chunks)
    order = record.rank(run.stage, stages, count, run.chunks)
    if any(action.kind == "W" for item in order for action in item) and (
        run.options.recomputation != "none" or run.options.every
    ):
        raise StrategyError(
            f"{record.name} runs the gradients of the weights apart, and what is computed again is there once",
            hint="leave the recomputation out, or take a schedule that runs a backward as one piece",
        )
    mine = sorted({action.stage for item in order for action in item})
    tasks = tuple(tuple(action._replace(stage=mine.index(action.stage)) for action in item) for item in order)
    for chunk in chunks:
        _check_groups(setting, run, values, chunk)
    part, one = _several(setting, run, cut.microbatches, count)
    return part, one, chunks, tasks, "microbatch" if run.chunks == 1 else "chunk"


def _check_groups(setting: Setting, run: StepRun, values: Mapping[str, Fraction], chunk: pipeline.RankShare) -> None:
    """Raises ``ValuesError`` where layers that run one after the other cannot be put into groups."""
    every = run.options.every
    for region in (region for region in setting.regions if region.times and every and region.name in chunk.regions):
        layers = pipeline.whole(chunk.times(region), values, region.times)
        where = " that run one after the other on a stage" if run.strategy.pipeline is not None else ""
        if every > layers:
            raise ValuesError(f"groups of {every} layers, but there are {layers}{where}", hint=f"at most {layers}")
        if layers % every:
            raise ValuesError(
                f"{layers} layers{where} are no whole number of groups of {every}", hint=f"choose a divisor of {layers}"
            )


@dataclass
class SnapshotMaker:
    """A step as a reader knows it: where an op is, and what the program and its libraries hold in addition."""

    setting: Setting
    run: StepRun
    step: RankStep
    held: list[tuple[int, str, Form]] = field(default_factory=list)
    outside: list[Form] = field(default_factory=list)
    walks: dict[tuple[tuple[Item, ...], str], list[StepWalk]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.run.held:
            size = held_outside(self.setting, name)
            if size is None:
                self.held.append(self.find(name))
            else:
                self.outside.append(size)

    def all(
        self, tasks: tuple[Item, ...], values: Mapping[str, Fraction], pieces: str, unrolled: bool
    ) -> tuple[StepWalk, list[Snapshot]]:  # fmt: skip
        """The snapshots of some tasks, which work on ``pieces``, a microbatch or a chunk."""
        kept = self.walks.setdefault((tasks, pieces), [])
        known = None if unrolled else next((walk for walk in kept if walk.is_alike(values)), None)
        if known is not None:
            return known, known.at(values)
        found, decided = self.step.walk(tasks, values, unrolled)
        shots = [self.snapshot(instant, start, pieces, beside) for instant, start, beside in found]
        if unrolled or decided or self.run.recipe.by_shape:
            return StepWalk(shots), shots
        events = [*self.step.events(started(tasks))]
        loops = ((count, _often(count, values)) for count in dict.fromkeys(counts_of(events)))
        made = StepWalk(shots, frozenset(size_names(events)), tuple(loops))
        kept[:] = [*kept[-_WALKS:], made] if made.is_alike(values) else kept
        return made, shots

    def snapshot(self, instant: Instant, start: TaskStart | None, pieces: str, beside: str) -> Snapshot:
        """An instruction as it runs, with what the program and its libraries hold in addition."""
        run, held, when = instant.run, tuple(self.beside(instant.run.phase, instant.run.part, instant.run.at)), ""
        if start is not None and pieces:
            several = pieces + ("es" if pieces.endswith("ch") else "s")
            flying = f"one {pieces}" if start.count == 1 else f"{start.count} {several}"
            when = f"{start.when}, {flying} in flight"
        threads = 1 if self.run.options.step != "later" and run.phase == "forward" else 2
        found = {**instant.bytes, "workspaces": threads * self.run.workspace}
        passing = dict.fromkeys((SAVED, PASSING, GRADIENT) if run.phase != "optimizer" else (), Fraction(0))
        found, place = passing | {kind: n for kind, n in found.items() if n}, self.where(run.part, instant.place)
        op = run.op + (f", while the forward pass makes {beside}" if beside else "")
        alive = {piece: count for piece, (count, _) in instant.alive.items()}
        return Snapshot(run.phase, place, op, run.row, found, alive, held, when, instant.place)

    def where(self, number: int, place: Place) -> str:
        """The region of an instruction, for a reader: an ordinal, with the group where there are groups."""
        part, alone = self.step.parts[number], len(self.step.parts) == 1
        name = "layer" if alone else part.region.name
        if not (alone or part.repeated):
            return name
        ends = [str(end) for _, end in place]
        if len(ends) == 2 and ends[0] != ends[1]:
            return f"{ends[1]} {name} of the {ends[0]} group"
        return f"{ends[0] if ends else 'last'} {name}"

    def find(self, name: str) -> tuple[int, str, Form]:
        """The part that makes a tensor, its storage and its size."""
        found = self.setting.graph.find(name).name
        homes = [n for n, part in enumerate(self.step.parts) if found in part.graph.tensors]
        n = next((n for n in homes if found in self.step.parts[n].graph.producers), homes[-1])
        part = self.step.parts[n]
        size = part.line.size((found, "", cut_meshes(part.line.plan.placements.get(found, ()))))
        return n, storage(part.graph, found, self.setting.accounting), size

    def beside(self, phase: str, number: int, at: int) -> Iterator[Form]:
        """The held tensors that are there and neither kept nor passing."""
        yield from self.outside
        for home, root, size in self.held:
            line = self.step.parts[home].line
            told = root in {item.tensor for item in line.given.values()}
            counted = (home == number and line.alive(root, at)) or (home < number and root in line.roots) or told
            made = home < number or (home == number and line.born(root) <= at) or root not in line.graph.producers
            if phase == "optimizer" or (not counted and (made or phase == "backward")):
                yield size
