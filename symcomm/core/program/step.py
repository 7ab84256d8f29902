"""The training step of one rank: what each pass of its regions keeps and frees, in loops, in the order of a schedule.

A rank runs tasks: a microbatch passes a chunk of its layers, forward or backward. One microbatch on one stage is the
shortest such order. In the passes of a region its layers are a loop, or groups of layers that run again together.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import Literal

from symcomm.core.errors import ValuesError, where_given
from symcomm.core.form import Form, Ratio, Total, num
from symcomm.core.graph.graph import Graph, Region, Tensor, bare
from symcomm.core.parallel.layouts import Layout
from symcomm.core.parallel.placement import Collective, Compute
from symcomm.core.program.alive import Amounts, Fold, Free, Instant, Keep, OpRun, StorageEvent, has_all, size_names
from symcomm.core.program.autograd import autograd, cut_meshes
from symcomm.core.program.instructions import Instruction, Program, made_by
from symcomm.core.program.loops import Loop
from symcomm.core.program.orders import Action, Item
from symcomm.core.program.pipeline import RankShare, added
from symcomm.core.program.resting import resting, summed
from symcomm.core.program.storage import AHEAD, COPY, GRADIENT, PASSING, SAVED, Life, Line, Measure
from symcomm.core.records import dataclass, replace

AHEAD_OF = {"as_read": 0, "none_ahead": 0, "one_ahead": 1, "two_ahead": 2}  # layers whose weights are fetched ahead
PHASES = {"F": "forward", "D": "backward", "B": "input gradient", "W": "weight gradient"}
WARM, STEADY, COOL = "warm-up", "steady state", "cool-down"


@dataclass(frozen=True)
class StepOptions:
    """How a step runs."""

    recomputation: str = "none"
    every: int = 0  # of so many layers only the first input is kept; 0: each layer by itself
    step: str = "later"  # forward alone, the first step, in which the states come into being, or a later one
    copies: int = 0  # of one weight while the update works on it
    tables: bool = False  # each layer makes its masks and rotations for itself
    unreduced: bool = False  # gradients are added up on a rank, and reduced when all are there


@dataclass
class RankStep:
    """The step of a rank that holds in each of its chunks some regions, the layers so often as the chunk says."""

    graph: Graph
    program: Callable[[str], Program]  # for a recomputation
    measure: Measure  # the bytes of some numbers in a format, or of a role of weights
    chunks: tuple[RankShare, ...]
    options: StepOptions
    dtype: str
    shaped: Mapping[str, Callable[[Tensor, Layout], Form]]  # bytes of a weight in roles where they depend on its shape
    parts: list[RegionPasses] = field(init=False)
    bodies: dict[tuple[str, int, bool], tuple[StorageEvent, ...]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.made = self.program("none")
        self.options = replace(self.options, unreduced=self.options.unreduced or bool(self.made.early))
        here = frozenset[str]().union(*(chunk.regions for chunk in self.chunks))
        regions = [r for r in self.graph.regions or (Region(self.graph.name),) if r.name in here]
        graphs = [self.graph.region(r.name) if self.graph.regions else self.graph for r in regions]
        weights, self.parts = [frozenset(w.name for w in graph.weights) for graph in graphs], []
        for n, (region, graph) in enumerate(zip(regions, graphs, strict=True)):
            shared, tied = (weights[n] & frozenset().union(*others) for others in (weights[:n], weights[n + 1 :]))
            self.parts.append(RegionPasses(n, region, graph, self, shared, tied))

    @cached_property
    def layout(self) -> Callable[[Tensor, str], Layout]:
        """How a weight, its gradient or its state is cut where it rests."""
        return resting(self.graph, self.made.strategy)

    def rests(self, weight: str) -> tuple[str, ...]:
        """The mesh axes along which the gradient of a weight is cut when it is kept."""
        if self.options.unreduced:
            return cut_meshes(summed(self.made.plan, weight))
        return cut_meshes(self.layout(self.graph.tensors[weight], "gradient"))

    # -- the instructions -----------------------------------------------------------------------------------------

    def often(self, part: RegionPasses) -> Form:
        """How often a rank has a region."""
        return added(chunk.times(part.region) for chunk in self.chunks if part.region.name in chunk.regions)

    def all(self, kind: str, role: str) -> list[Keep]:
        """The weights, gradients or states of the whole model on one rank."""
        return [Keep(kind, size, self.often(part)) for part in self.parts for size in part.sizes(role)]

    def moved(self, kind: str, role: str, calls: Iterable[tuple[Instruction, Collective]]) -> list[Keep]:
        """Whole weights that some calls gather, or whose gradients they reduce."""
        return [Keep(kind, size, self.often(part)) for part in self.parts for size in part.moved(calls, role)]

    @cached_property
    def gathered(self) -> list[Keep]:
        """The copies of weights that are there for the whole step."""
        return self.moved("gathered weights", "weight", self.made.early)

    def start(self) -> Iterator[StorageEvent]:
        """The tensors alive when the passes begin."""
        yield from self.all("weights", "weight")
        if self.options.step != "forward":
            yield from self.moved("gradient buckets", "gradient", self.made.bucketed)
        if self.options.step == "later":
            yield from self.all("optimizer states", "state")
        yield from self.gathered

    @cached_property
    def alike(self) -> list[int]:
        """For each chunk, the first one that holds the same."""
        return [self.chunks.index(chunk) for chunk in self.chunks]

    def body(self, task: Action, there: bool = False) -> tuple[StorageEvent, ...]:
        """The storages that a task keeps and frees, and its steps; ``there``: its weights have gradients already."""
        key = (task.kind, self.alike[task.stage], there)
        if key not in self.bodies:
            self.bodies[key] = tuple(self.storages(*key))
        return self.bodies[key]

    def storages(self, kind: str, stage: int, there: bool) -> Iterator[StorageEvent]:
        """The same by the kind of the task."""
        chunk = self.chunks[stage]
        mine = [(part, chunk.times(part.region)) for part in self.parts if part.region.name in chunk.regions]
        given = [Keep(SAVED, size, count) for part, count in mine for size in part.given]
        if kind == "F":
            yield from given
            for part, count in mine:
                yield from (Keep(SAVED, size) for size in part.shared_sizes)
                yield from part.forward(count)
            return
        for part, count in reversed(mine):
            yield from part.backward(count, kind, there)
            yield from () if kind == "B" else (Free(SAVED, size) for size in part.shared_sizes)
        yield from () if kind == "B" else (Free(one.kind, one.size, one.times) for one in given)

    def update(self) -> Iterator[StorageEvent]:
        """The update goes from weight to weight; in the first step it makes the states on its way."""
        options = self.options
        if options.step == "forward":
            return
        yield from (Free(one.kind, one.size, one.times) for one in self.gathered)
        if options.unreduced:  # until now gradients were whole
            for part in self.parts:
                yield from (Free(GRADIENT, s.size, self.often(part)) for s in part.line.lives if s.kind == GRADIENT)
            yield from self.all(GRADIENT, "gradient")
        for part in self.parts:
            states = part.sizes("state") if options.step == "first" else []
            copies = part.sizes("state", "fp32") if options.copies and "state" not in self.made.host else []
            body: list[StorageEvent] = []
            trained = part.trained
            for n, weight in enumerate(trained):
                body += [Keep("optimizer states", size) for size in states[n : n + 1]]
                if copies or n == len(trained) - 1:
                    copied = [(PASSING, size, num(options.copies)) for size in copies[n : n + 1]]
                    shown = OpRun("optimizer", f"the update of `{weight.name.split('·')[0]}`", "", part.number)
                    body += [*(Keep(*one) for one in copied), shown, *(Free(*one) for one in copied)]
            yield from [Loop("layer", self.often(part), tuple(body))] if part.repeated else body

    def events(self, starts: Iterable[TaskStart]) -> Iterator[StorageEvent]:
        """The storages of a whole step, and its steps, those of equal tasks once."""
        bodies = {id(body): body for body in (self.body(start.task, start.there) for start in starts)}
        yield from chain(self.start(), *bodies.values(), self.update())

    # -- the walk -------------------------------------------------------------------------------------------------

    def walk(
        self, tasks: Sequence[Item], values: Mapping[str, Fraction], unrolled: bool = False
    ) -> tuple[list[tuple[Instant, TaskStart | None, str]], bool]:
        """The tensors alive at ops that may be the peak, the task of these ops, the tensors of an overlapping pass.

        Of tasks that do the same at the same time of the schedule, that is the one which begins with the most; also
        whether the sizes of tensors decided which one. Raises ``ValuesError`` where a size is not known.
        """
        starts = [*started(tasks)]
        check_sizes(self.events(starts), values)
        fold, best, decided = Fold(values, unrolled), dict[tuple[object, ...], tuple[Fraction, int, Amounts]](), False
        for one in self.start():
            fold.skip(one)
        for n, start in enumerate(starts):
            other = None if start.beside is None else self.alike[start.beside.stage]
            key = (start.when, start.task.kind, self.alike[start.task.stage], start.there, other)
            total, _, most = best.get(key, (Fraction(-1), n, {}))
            decided |= not (has_all(fold.alive, most) or has_all(most, fold.alive))
            if fold.total > total:
                best[key] = fold.total, n, dict(fold.alive)
            for task in (start.beside, start.task):
                fold.add(fold.change(self.body(task, start.there and task.kind != "F")) if task is not None else {})
        found: list[tuple[Instant, TaskStart | None, str]] = []
        for _, n, alive in sorted(best.values(), key=lambda one: one[1]):
            start, here, beside = starts[n], fold.at(alive), ""
            if start.beside is not None:  # the forward pass that it overlaps with is at its largest all the time
                top = max(here.walk(self.body(start.beside)), key=lambda i: sum(i.bytes.values()))
                beside, here, decided = top.run.op, fold.at(top.alive), True
            found += ((instant, start, beside) for instant in here.walk(self.body(start.task, start.there)))
        return [*found, *((instant, None, "") for instant in fold.walk([*self.update()]))], decided


@dataclass(frozen=True)
class TaskStart:
    """A task as it begins: when in the schedule, with how many pieces in flight, and whether the gradients that it
    makes are there. ``beside`` is a forward that overlaps with it.
    """

    task: Action
    when: str
    count: int
    there: bool
    beside: Action | None = None


def started(items: Sequence[Item]) -> Iterator[TaskStart]:
    """Every task of a rank as it begins, where a stage is a number of its own; those that overlap are one.

    A stage warms up until its first backward task, and cools down after its last forward task.
    """
    first = next((n for n, item in enumerate(items) if any(t.kind in "BD" for t in item)), len(items))
    last = max(n for n, item in enumerate(items) if any(t.kind == "F" for t in item))
    flying: set[tuple[int, int]] = set()
    there: set[tuple[int, str]] = set()
    for n, item in enumerate(items):
        count = len(flying | {(t.stage, t.microbatch) for t in item})
        when = WARM if n < first else STEADY if n <= last else COOL
        forward, *after = sorted(item, key=lambda t: t.kind != "F")
        task, beside = (after[0], forward) if after else (forward, None)
        yield TaskStart(task, when, count, (task.stage, "B" if task.kind == "B" else "W") in there, beside)
        for task in item:
            if task.kind in "FB":
                flying.add((task.stage, task.microbatch))
            else:
                flying.discard((task.stage, task.microbatch))
            there |= {(task.stage, half) for half in ("BW" if task.kind == "D" else task.kind)}


def check_sizes(body: Iterable[StorageEvent], values: Mapping[str, Fraction]) -> None:
    """Raises ``ValuesError`` where a size is not known."""
    missing = next((name for name in size_names(body) if name not in values), None)
    if missing is not None:
        names = ", ".join(dict.fromkeys(name for name in size_names(body) if name not in values))
        raise ValuesError(f"which op is the peak depends on the sizes: no value is given for {names}",
                          hint=where_given(missing, "model."))  # fmt: skip


@dataclass
class RegionPasses:
    """A region, the ``number``-th one on a rank, with the storages of its passes."""

    number: int
    region: Region
    graph: Graph
    step: RankStep
    shared: frozenset[str]  # weights that an earlier region on the same rank has already: they are one tensor
    tied: frozenset[str]  # weights that a later one has, too: their gradients are there already
    lines: dict[tuple[str, bool, bool], Line] = field(default_factory=dict)

    def timeline(self, recomputation: str, there: bool = False, split: bool = False) -> Line:
        """The storages of one layer; ``there`` says that its weights have gradients already, ``split`` that these are
        made apart.
        """
        key, step = (recomputation, there, split), self.step
        if key not in self.lines:
            made, weights = step.program(recomputation), frozenset(w.name for w in self.graph.weights)
            there = there and (step.options.unreduced or "gradient" not in made.host)  # which adds them up there
            self.lines[key] = Line(
                autograd(made, self.region.name, step.dtype), made.region(self.region.name), step.measure, step.rests,
                step.options.tables, weights if there else frozenset(), split, step.options.unreduced, self.shared,
                self.tied,
            )  # fmt: skip
        return self.lines[key]

    @property
    def line(self) -> Line:
        return self.timeline("none" if self.grouped else self.again)

    @property
    def again(self) -> str:
        """The ops that are computed again; all of them where each layer is a group."""
        return "full" if self.step.options.every == 1 else self.step.options.recomputation

    @property
    def grouped(self) -> int:
        """The layers of a group that is computed again from its first input, or 0 where each layer is by itself."""
        return self.step.options.every if self.repeated and self.step.options.every > 1 else 0

    @property
    def repeated(self) -> bool:
        return bool(self.region.times)

    @property
    def weights(self) -> list[Tensor]:
        return [w for w in self.graph.weights if w.name not in self.shared]

    @property
    def trained(self) -> list[Tensor]:
        """The weights that have a gradient."""
        return [w for w in self.weights if w.name not in self.step.made.frozen]

    def size(self, weight: Tensor, layout: Iterable[tuple[str, int]], what: str) -> Form:
        """The bytes of a weight in a role, or in a format."""
        if what in self.step.shaped:
            return self.step.shaped[what](weight, tuple(layout))
        elements = self.line.autograd.cut(self.graph.elements(weight.name), cut_meshes(tuple(layout)))
        return self.step.measure(elements, what)

    def sizes(self, role: str, what: str = "") -> list[Form]:
        """The bytes of each weight, or of its gradient or state, on one rank; none of what rests on the host."""
        if role in self.step.made.host:
            return []
        weights = self.weights if role == "weight" else self.trained
        return [self.size(w, self.step.layout(w, role), what or role) for w in weights]

    def moved(self, instructions: Iterable[tuple[Instruction, Collective]], role: str) -> list[Form]:
        """The bytes of each weight of the region that some calls gather, or of its gradient that they reduce: whole.

        The calls of a tied weight are there once in a program; each stage that has the weight makes them.
        """
        whole: dict[str, Layout] = {}
        for _, call in instructions:
            tensor = self.step.made.tensor(call)
            whole[tensor.of or tensor.name] = call.before if tensor.of else call.after
        return [self.size(w, whole[w.name], role) for w in self.weights if w.name in whole]

    @property
    def given(self) -> list[Form]:
        """Token ids and labels that a repetition reads; the program holds them before and after that, too."""
        return [self.step.measure(item.elements, item.dtype) for item in self.line.given.values()]

    @property
    def shared_sizes(self) -> list[Form]:
        """The bytes kept once for all repetitions, of the tensors that each of them reads."""
        mine = (item for item in self.line.kept if item.tensor in self.line.shared and not item.is_copy)
        return [self.step.measure(item.elements, item.dtype) for item in mine]

    # -- the loops ------------------------------------------------------------------------------------------------

    def forward(self, count: Form) -> tuple[StorageEvent, ...]:
        """The forward pass of so many repetitions: one that opens a group keeps its input, others in it do not."""
        if not self.grouped:
            return self.ahead(self.line.fetched[True], self.passing(self.line, "F"), count)
        full, nothing = (self.passing(self.timeline(kept), "F", closed=True) for kept in ("full", "nothing"))
        inside = Loop("layer", num(self.grouped - 1), nothing, start=1)
        return (Loop("group", Ratio(count, num(self.grouped)), (Loop("layer", num(1), full, ()), inside)),)

    def backward(self, count: Form, kind: str = "D", there: bool = False) -> tuple[StorageEvent, ...]:
        """The backward pass of so many repetitions, or its ``kind`` B or W; ``there`` is as for ``timeline``."""
        if self.grouped:
            return self.group(count, there)
        line = self.timeline(self.again, there, kind != "D")
        layer = self.passing(line, kind)
        sums = self.line.shared_gradients if kind == "D" else []
        if not sums:
            return self.ahead(line.fetched[False] if kind != "W" else [], layer, count, reverse=True)
        rest = Loop("layer", Total((count, num(-1))), layer, ("last", "first"), reverse=True)
        return (Loop("layer", num(1), layer), *(Keep(PASSING, s) for s in sums), rest,
                *(Free(PASSING, s) for s in sums))  # fmt: skip

    def group(self, count: Form, there: bool) -> tuple[StorageEvent, ...]:
        """The backward pass of groups of layers: each runs forward again from the input of its first layer."""
        line, arriving = self.timeline("none", there), self.line.arriving
        opening = self.timeline("full").roots  # whatever else a layer of a group has is made again
        opens, inner = (self.passing(line, "D", own) for own in (opening, ()))
        first, again = (self.passing(line, "again", own, own) for own in (opening, ()))
        one, others = num(1), num(self.grouped - 1)
        body: tuple[StorageEvent, ...] = (
            *(Keep(PASSING, size) for size in arriving), Loop("layer", one, first, ()),
            Loop("layer", others, again, start=1), *(Free(PASSING, size) for size in arriving),
            Loop("layer", others, inner, reverse=True, start=1), Loop("layer", one, opens, ("first",)),
        )  # fmt: skip
        return (Loop("group", Ratio(count, num(self.grouped)), body, ("last", "first"), reverse=True),)

    def repeat(self, body: tuple[StorageEvent, ...], count: Form, reverse: bool = False) -> tuple[StorageEvent, ...]:
        """A pass through so many repetitions; forward, the most is there in the last one."""
        if not self.repeated:
            return body
        return (Loop("layer", count, body, ("last", "first") if reverse else ("last",), reverse),)

    def ahead(
        self, sizes: list[Form], body: tuple[StorageEvent, ...], count: Form, reverse: bool = False
    ) -> tuple[StorageEvent, ...]:  # fmt: skip
        """A pass with the weights of the next layers, of these sizes, beside the weights of the layer that runs.

        At the end of the pass there are fewer layers to come.
        """
        many = AHEAD_OF[self.step.made.accounting.prefetch]
        if not (many and sizes and self.repeated):
            return self.repeat(body, count, reverse)
        ends: tuple[Literal["first", "last"], ...] = ("last", "first") if reverse else ("first", "last")
        found: list[StorageEvent] = [Keep(AHEAD, size, num(many)) for size in sizes]
        found.append(Loop("layer", Total((count, num(-many))), body, ends, reverse))
        for _ in range(many):
            found += [*(Free(AHEAD, size) for size in sizes), Loop("layer", num(1), body, ends[1:], reverse)]
        return tuple(found)

    def passing(
        self, line: Line, kind: str, own: Collection[str] | None = None, there: Collection[str] = (),
        closed: bool = False,
    ) -> tuple[StorageEvent, ...]:  # fmt: skip
        """One layer's pass; ``again`` is its forward pass in a group, without what no gradient needs."""
        parts = {"F": (0, line.start), "again": (0, line.start), "D": (line.start, len(line.steps)),
                 "B": (line.start, line.middle), "W": (line.middle, len(line.steps))}  # fmt: skip
        steps = range(*parts[kind])
        if kind != "again":
            over = line.handed.values() if kind in "DW" else ()
            found = instructions(line, steps, self.shown(line, PHASES[kind]), own, closed=closed)
            return (*found, *(Free(GRADIENT, size) for size in over))
        needed, phase = self.step.program("full").needed, self.shown(line, "backward", " again")
        cached = line.copies if line.autograd.accounting.weight_copies == "kept_in_context" else frozenset[str]()
        made = [made_by(instruction) for instruction in line.steps]
        return instructions(line, steps, lambda at: phase(at) if made[at] in needed else None, own, {*there, *cached})

    def shown(self, line: Line, phase: str, again: str = "") -> Callable[[int], OpRun]:
        """The steps of a line as a reader knows them, with the table rows that they belong to."""
        targets = {op.row: op.output.split("·")[0] for op in self.graph.ops}
        rows, row = list[str](), ""
        for instruction in line.steps:
            op = line.graph.producers.get(made_by(instruction))
            row = targets.get(op.row, row) if op is not None else row
            rows.append(row)
        return lambda at: OpRun(phase, shown(line, at) + again, rows[at], self.number, at)


def instructions(
    line: Line, steps: range, run: Callable[[int], OpRun | None], own: Collection[str] | None = None,
    there: Collection[str] = (), closed: bool = False,
) -> tuple[StorageEvent, ...]:  # fmt: skip
    """The storages that some steps of a line keep and free, and the steps themselves as ``run`` has them.

    What is kept for backward is called a temporary where it is not in ``own``; what is ``there`` already is not kept
    again. Where the steps are ``closed``, nothing but what is kept is left.
    """
    end = steps[-1] if steps and (closed or steps[-1] == len(line.steps) - 1) else -1
    stays = (GRADIENT, COPY, SAVED) if closed else (GRADIENT, COPY)
    born, dead = dict[int, list[Life]](), dict[int, list[Life]]()
    for life in line.lives:
        if line.counts(life):
            born.setdefault(max(life.born, 0), []).append(life)
            # With the last step goes whatever is there and does not stay.
            last = end in steps and life.born <= end <= life.dies and life.kind not in stays
            if last or life.kind not in (GRADIENT, COPY):
                dead.setdefault(end if last else life.dies, []).append(life)
    found: list[StorageEvent] = []

    def piece(life: Life) -> tuple[str, Form]:
        other = life.kind == SAVED and own is not None and life.root not in own
        return PASSING if other else life.kind, life.size

    for at in steps:
        found += [Keep(*piece(life)) for life in born.get(at, ()) if life.root not in there]
        for inside, gone in line.inside(at):
            one = run(at)
            found += [*(Free(*piece(life)) for life in gone), *(Keep(PASSING, size) for size in inside)]
            found += [one] if one is not None else []
            found += [*(Free(PASSING, size) for size in inside), *(Keep(*piece(life)) for life in gone)]
        found += [Free(*piece(life)) for life in dead.get(at, ())]
    return tuple(found)


def shown(line: Line, at: int) -> str:
    """A step in words for a reader: the tensor it makes, or the collective."""
    graph, instruction = line.graph, line.steps[at]
    step, again = instruction.work, " again" if instruction.phase == "recompute" else ""
    if not isinstance(step, Compute):
        base = graph.tensors[step.tensor.split(" @ ")[0]]
        if base.role == "statistic":
            return f"the {step.kind} of `{base.name}`{again}"
        name = bare((base.of or base.name).split("·")[0])
        of = f"the gradient of `{name}`" if base.of else f"`{name}`"
        return f"the {step.kind} of {of}{again}"
    made = graph.tensors[step.op.output]
    name = bare((made.of or made.name).split("·")[0])
    return f"the gradient of `{name}`" if made.of else f"`{name}`{again}"
