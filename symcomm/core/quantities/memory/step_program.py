"""A training step of a model as a program of what is kept and freed: region by region and op by op."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from fractions import Fraction

from symcomm.core.errors import ValuesError, where_given
from symcomm.core.form import Form, num, product
from symcomm.core.parallel.strategy import resolve
from symcomm.core.program.alive import Amounts, Fold, Free, Instant, Instruction, Keep, OpRun, Place, size_names
from symcomm.core.program.autograd import cut_meshes, storage
from symcomm.core.program.loops import Loop
from symcomm.core.program.program import program, unstaged
from symcomm.core.program.storage import GRADIENT, PASSING, SAVED
from symcomm.core.quantities.memory.passes import RegionPasses, StepOptions
from symcomm.core.quantities.memory.saved import held_outside
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting


@dataclass(frozen=True)
class Snapshot:
    """What is alive while one op runs: bytes by kind, the pieces they are made of, and held tensors besides.

    ``when`` is where in a schedule it is.
    """

    phase: str
    place: str
    op: str
    row: str
    bytes: Mapping[str, Fraction]
    alive: Amounts
    held: tuple[Form, ...] = ()
    when: str = ""


@dataclass
class StepProgram:
    """The step of a whole model, or of the ``regions`` that a rank has of it: forward, backward, then the update."""

    setting: Setting
    run: StepOptions
    regions: frozenset[str] | None = None
    parts: list[RegionPasses] = field(init=False)

    def __post_init__(self) -> None:
        graph, inside = self.setting.graph, unstaged(self.run.strategy)
        self.made = made = program(graph, inside, self.setting.accounting, self.setting.frozen)
        self.run = replace(self.run, unreduced=self.run.unreduced or bool(made.early))
        if "state" in made.host:
            self.run = replace(self.run, recipe=replace(self.run.recipe, state=0), copies=0)
        rules = resolve(self.run.strategy, graph)
        on_rank = [
            (region, part) for region, part in zip(self.setting.regions, self.setting.parts, strict=True)
            if self.regions is None or region.name in self.regions
        ]  # fmt: skip
        weights = [{w.name for w in part.graph.weights} for _, part in on_rank]
        self.parts = []
        for n, (region, part) in enumerate(on_rank):
            shared = frozenset(weights[n].intersection(set().union(*weights[:n])))
            tied = frozenset(weights[n].intersection(set().union(*weights[n + 1 :])))
            mine, alone = made.region(region.name), len(on_rank) == 1
            self.parts.append(RegionPasses(n, region, part, mine, rules, self.run, alone, shared, tied))
        outside = {name: held_outside(self.setting, name) for name in self.run.held}
        self.held = [self.find(name) for name, size in outside.items() if size is None]
        self.outside = [size for size in outside.values() if size is not None]

    def find(self, name: str) -> tuple[int, str, Form]:
        """The part that makes a tensor, its storage and its size."""
        found = self.setting.graph.find(name).name
        homes = [n for n, part in enumerate(self.parts) if found in part.setting.graph.tensors]
        n = next((n for n in homes if found in self.parts[n].setting.graph.producers), homes[-1])
        part = self.parts[n]
        graph = part.setting.graph
        layout = part.line.plan.placements.get(found, ())
        size = part.line.size((found, "", cut_meshes(layout)))
        return n, storage(graph, found, self.setting.accounting), size

    def often(self, part: RegionPasses) -> Form:
        """How often a rank has a region."""
        return product(num(self.run.chunks), part.count) if part.repeated else num(1)

    def all(self, kind: str, role: str) -> list[Keep]:
        """The weights, gradients or states of the whole model on one rank."""
        width = getattr(self.run.recipe, role)
        return [Keep(kind, size, self.often(p)) for p in self.parts for size in p.pieces(role, width)]

    @property
    def gathered(self) -> list[Keep]:
        """The copies of weights that are there for the whole step."""
        width, early = self.run.recipe.weight, self.made.early
        return [Keep("gathered weights", size, self.often(p)) for p in self.parts for size in p.moved(early, width)]

    def start(self) -> Iterator[Instruction]:
        """What is there when the passes begin."""
        run = self.run
        yield from self.all("weights", "weight")
        if run.step != "forward":
            width, calls = run.recipe.gradient, self.made.bucketed
            for part in self.parts:
                yield from (Keep("gradient buckets", size, self.often(part)) for size in part.moved(calls, width))
        if run.step == "later":
            yield from self.all("optimizer states", "state")
        yield from self.gathered

    def whole(self) -> list[Instruction]:
        """The step of a model that is not cut into stages."""
        every = range(len(self.parts))
        forward = [*self.start(), *self.forward(every)]
        return forward if self.run.step == "forward" else [*forward, *self.backward(every), *self.update()]

    def snapshots(self, values: Mapping[str, Fraction], unrolled: bool = False) -> Iterator[tuple[Snapshot, Place]]:
        """What is alive at every op that may be the peak (or at every one), and the loops around the op."""
        body = self.whole()
        self.check_sizes(body, values)
        for instant in Fold(values, unrolled).walk(body):
            yield self.snapshot(instant), instant.place

    def check_sizes(self, body: Iterable[Instruction], values: Mapping[str, Fraction]) -> None:
        """Raises ``ValuesError`` where a size is not known."""
        missing = [*dict.fromkeys(name for name in size_names(body) if name not in values)]
        if missing:
            raise ValuesError(
                f"which op is the peak depends on the sizes: no value is given for {', '.join(missing)}",
                hint=where_given(missing[0], "model."),
            )

    def snapshot(self, instant: Instant, when: str = "", beside: str = "") -> Snapshot:
        """An instruction as it runs, with what the program and its libraries hold besides."""
        run, held = instant.run, tuple(self.beside(instant.run))
        threads = 1 if self.run.step != "later" and run.phase == "forward" else 2
        found = {**instant.bytes, "workspaces": threads * self.run.workspace}
        passing = dict.fromkeys((SAVED, PASSING, GRADIENT) if run.phase != "optimizer" else (), Fraction(0))
        found, place = passing | {kind: n for kind, n in found.items() if n}, self.where(run, instant.place)
        return Snapshot(run.phase, place, run.op + beside, run.row, found, instant.alive, held, when)

    def forward(self, mine: Sequence[int]) -> Iterator[Instruction]:
        """The forward pass through some parts."""
        yield from self.given(mine)
        for n in mine:
            yield from (Keep(SAVED, size) for size in self.parts[n].shared_sizes)
            yield from self.parts[n].forward()

    def backward(self, mine: Sequence[int], kind: str = "D", there: bool = False) -> Iterator[Instruction]:
        """The backward pass through some parts, or its ``kind`` B or W; ``there`` says that they have gradients."""
        for n in reversed(mine):
            yield from self.parts[n].backward(kind, there)
            yield from () if kind == "B" else (Free(SAVED, size) for size in self.parts[n].shared_sizes)
        yield from () if kind == "B" else (Free(one.kind, one.size, one.times) for one in self.given(mine))

    def given(self, mine: Sequence[int]) -> list[Keep]:
        """The token ids and labels that some parts read."""
        return [Keep(SAVED, size, self.parts[n].count) for n in mine for size in self.parts[n].given]

    def update(self) -> Iterator[Instruction]:
        """The update goes from weight to weight; in the first step it makes the states on its way."""
        run, recipe = self.run, self.run.recipe
        yield from (Free(one.kind, one.size, one.times) for one in self.gathered)
        if run.unreduced:  # until now gradients were whole
            for part in self.parts:
                yield from (Free(GRADIENT, s.size, self.often(part)) for s in part.line.lives if s.kind == GRADIENT)
            yield from self.all(GRADIENT, "gradient")
        for part in self.parts:
            states = part.pieces("state", recipe.state) if run.step == "first" else []
            copies = part.pieces("state", 4) if run.copies else []
            body: list[Instruction] = []
            for n, weight in enumerate(part.trained):
                body += [Keep("optimizer states", size) for size in states[n : n + 1]]
                if run.copies or n == len(part.trained) - 1:
                    copied = [(PASSING, size, num(run.copies)) for size in copies[n : n + 1]]
                    shown = OpRun("optimizer", f"the update of `{weight.name.split('·')[0]}`", "", part.number)
                    body += [*(Keep(*one) for one in copied), shown, *(Free(*one) for one in copied)]
            yield from [Loop("layer", self.often(part), tuple(body))] if part.repeated else body

    def where(self, run: OpRun, place: Place) -> str:
        """The region of an instruction, for a reader: an ordinal, with the group where there are groups."""
        part = self.parts[run.part]
        name = "layer" if part.alone else part.region.name
        if not (part.alone or part.repeated):
            return name
        ends = [str(end) for _, end in place]
        if len(ends) == 2 and ends[0] != ends[1]:
            return f"{ends[1]} {name} of the {ends[0]} group"
        return f"{ends[0] if ends else 'last'} {name}"

    def beside(self, run: OpRun) -> list[Form]:
        """The held tensors that are there and neither kept nor passing."""
        found = [*self.outside]
        for home, root, size in self.held:
            line, n = self.parts[home].line, run.part
            told = root in {item.tensor for item in line.given.values()}
            counted = (home == n and line.alive(root, run.at)) or (home < n and root in line.roots) or told
            made = home < n or (home == n and line.born(root) <= run.at) or root not in line.graph.producers
            if run.phase == "optimizer" or (not counted and (made or run.phase == "backward")):
                found.append(size)
        return found
