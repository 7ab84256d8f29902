"""A training step of a model, region by region and op by op, and what is alive at each op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from symcomm.form import Form, Num, Total, num, product
from symcomm.parallel.strategy import resolve
from symcomm.program.program import program
from symcomm.quantities.memory.region_memory import NOTHING, Fresh, RegionMemory, StepOptions, add
from symcomm.quantities.memory.saved import held_outside, storage
from symcomm.setting import Setting
from symcomm.units import BYTE


@dataclass(frozen=True)
class Snapshot:
    """What is alive while one op runs, by kind. ``fresh`` are storages that no freed memory was there for. ``when`` is
    where in a pipeline's schedule it is.
    """

    phase: str
    place: str
    op: str
    row: str
    parts: tuple[tuple[str, Form], ...]
    fresh: Fresh = ()
    when: str = ""


@dataclass(frozen=True)
class Base:
    """What is there besides the pass that runs: kinds that are always there, activations of other microbatches, and
    gradients of earlier ones; ``there`` says that the weights of this pass have gradients, to which new ones are added.
    """

    always: tuple[tuple[str, Form], ...]
    fresh: Fresh
    saved: Form = NOTHING
    passing: Form = NOTHING
    gradients: Form = NOTHING
    there: bool = False


@dataclass
class StepMemory:
    """The step of a whole model: forward through its regions, backward through them, then the update."""

    setting: Setting
    run: StepOptions
    regions: frozenset[str] | None = None
    parts: list[RegionMemory] = field(init=False)

    def __post_init__(self) -> None:
        graph = self.setting.graph
        made = program(graph, self.run.strategy, self.setting.accounting, self.setting.frozen)
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
            plan = made.region(region.name)
            self.parts.append(RegionMemory(region, part, plan, rules, self.run, len(on_rank) == 1, shared, tied))
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
        size = part.line.size(graph.tensors[found], part.line.part(layout))
        return n, storage(graph, found, self.setting.accounting), size

    def on_rank(self, part: RegionMemory, form: Form, but: int = 0) -> Form:
        """A size of one repetition, for all that the rank has, or for all but so many."""
        if form == NOTHING or not part.repeated:
            return NOTHING if but else form
        count = product(num(self.run.chunks), part.count) if self.run.chunks > 1 else part.count
        return product(Total((count, num(-but))) if but else count, form)

    def all(self, role: str, width: int | Fraction, whole: bool = False) -> Form:
        """The weights, gradients or states of the whole model on one rank."""
        return add(self.on_rank(part, add(part.pieces(role, width, whole))) for part in self.parts)

    @property
    def always(self) -> tuple[tuple[str, Form], ...]:
        """What is there all the time, but for the optimizer's states."""
        recipe = self.run.recipe
        copied = self.run.step != "forward" and self.run.buckets
        buckets = (("gradient buckets", self.all("gradient", recipe.gradient)),) if copied else ()
        return ("weights", self.all("weight", recipe.weight)), *buckets

    @property
    def owned(self) -> Fresh:
        """The storages of the weights."""
        run = self.run
        return tuple(
            (product(num(run.chunks), p.count) if p.repeated else num(1), tuple(p.pieces("weight", run.recipe.weight)))
            for p in self.parts
        )

    @property
    def base(self) -> Base:
        """What is there while the passes run."""
        run, recipe = self.run, self.run.recipe
        found = [*self.always]
        if run.step == "later":
            found.append(("optimizer states", self.all("state", recipe.state)))
        if run.single_unit:
            found.append(("gathered weights", self.all("weight", recipe.weight, whole=True)))
        return Base(tuple(found), self.owned)

    def snapshots(self) -> list[Snapshot]:
        """What is alive at every op that may be the peak: of a repeated stretch, in the last repetition forward, in the
        last and the first one backward. In between, memory grows or shrinks by one repetition at a time.
        """
        every, base = range(len(self.parts)), self.base
        found = [m for n in every for m in self.forward(n, base, every)]
        if self.run.step == "forward":
            return found
        found += [m for n in reversed(every) for m in self.backward(n, base, every)]
        return [*found, *self.update()]

    def forward(self, n: int, base: Base, mine: Sequence[int]) -> list[Snapshot]:
        """The forward pass of a part, after those of the parts before it in ``mine``."""
        part, found = self.parts[n], []
        opens = part.grouped < 2  # inside of a group, what opens it and the layer's own input are both there
        before = [self.parts[k] for k in mine if k < n]
        fewer = Total((part.groups, num(-1))) if opens else part.groups
        others = product(fewer, add(part.kept)) if part.repeated and part.kept else NOTHING
        earlier = (*base.fresh, *(p.fresh for p in before), *([(fewer, tuple(part.kept))] if part.repeated else []))
        for one in part.forward(opens):
            held = self.held_at("forward", n, one.at)
            saved = add([base.saved, *(p.left for p in before), others, *one.saved, *self.given(n, mine)])
            parts = (*base.always, ("gradients", base.gradients), ("saved activations", saved),
                     ("temporaries", add([base.passing, *one.passing])), *self.beside(held, 1))  # fmt: skip
            fresh = (*earlier, (num(1), (*one.saved, *one.passing, *held)))
            found.append(Snapshot("forward", self.where(part, "last"), one.op, one.row, parts, fresh))
        return found

    def backward(self, n: int, base: Base, mine: Sequence[int], kind: str = "D") -> list[Snapshot]:
        """The backward pass of a part, after those of the parts behind it in ``mine``; or its ``kind`` B or W.

        Parts that have had their B and not their W have what waits for it.
        """
        part, found = self.parts[n], []
        before = [self.parts[k] for k in mine if k < n and kind != "W"]
        waiting = [self.parts[k] for k in mine if (kind == "B" and k > n) or (kind == "W" and k < n)]
        stays, passes = ([p.times(0, add(p.waiting[what])) for p in waiting] for what in (0, 1))
        after = [self.parts[k].times(0, add(self.parts[k].made)) for k in mine if k > n and kind != "B"]
        phase = {"D": "backward", "B": "input gradient", "W": "weight gradient"}[kind]
        for repetition in part.repetitions(kind):
            made = [] if base.there else [*after, repetition.grown]
            earlier = (*base.fresh, *(p.fresh for p in before))
            if kind == "D" and part.repeated and repetition.place == "last":
                earlier = (*earlier, (Total((part.groups, num(-1))), tuple(part.kept)))
            ops = part.backward(repetition.opens, base.there, kind)
            for one in [*part.again(repetition.opens), *ops] if repetition.again and part.grouped else ops:
                held = self.held_at("backward", n, one.at)
                left = [*(p.left for p in before), *stays, *self.given(n, mine)]
                saved = add([base.saved, *left, repetition.others, *one.saved])
                passing = add([base.passing, *passes, repetition.inner, *one.passing])
                parts = (*base.always, ("gradients", add([base.gradients, *made, *one.gradients])),
                         ("saved activations", saved), ("temporaries", passing), *self.beside(held, 2))  # fmt: skip
                fresh = (*earlier, (num(1), (*one.saved, *held)))
                found.append(Snapshot(phase, self.where(part, repetition.place), one.op, one.row, parts, fresh))
        return found

    def given(self, n: int, mine: Sequence[int]) -> list[Form]:
        """The token ids and labels that parts behind the n-th one read."""
        return [self.parts[k].given for k in mine if k > n]

    def update(self) -> list[Snapshot]:
        """The update goes from weight to weight; in the first step it makes the states on its way."""
        run, recipe, found = self.run, self.run.recipe, []
        always = (*self.always, ("gradients", self.all("gradient", recipe.gradient)))
        held = self.held_at("optimizer", 0, 0)
        whole = self.all("state", recipe.state)
        before: list[Form] = []
        fresh = (*self.owned, (num(1), tuple(held)))
        for part in self.parts:
            states = part.pieces("state", recipe.state)
            copies = part.pieces("state", 4) if run.copies else []
            before.append(self.on_rank(part, add(states), 1))
            names = [w.name for w in part.weights if w.name not in self.setting.frozen]
            for n, name in enumerate(names if run.copies else names[-1:]):
                made = [*before, *states[: n + 1]] if run.copies else [*before, *states]
                growing = add(made) if run.step == "first" else whole
                copied = product(num(run.copies), copies[n]) if run.copies else NOTHING
                parts = (*always, ("optimizer states", growing), ("temporaries", copied), *self.beside(held, 2))
                op = f"the update of `{name.split('·')[0]}`"
                found.append(Snapshot("optimizer", self.where(part, "last"), op, "", parts, fresh))
            before.extend(states)
        return found

    def where(self, part: RegionMemory, place: str) -> str:
        """The stretch of a snapshot, for a reader: a place is an ordinal, with the group where there are groups."""
        name = "layer" if part.alone else part.region.name
        ordinal, _, group = place.partition(" ")
        return " ".join(filter(None, (ordinal, name, group))) if part.alone or part.repeated else name

    def held_at(self, phase: str, n: int, at: int) -> list[Form]:
        """The held tensors that are there and not counted as kept or passing."""
        found = [*self.outside]
        for home, root, size in self.held:
            line = self.parts[home].line
            counted = (home == n and line.alive(root, at)) or (home < n and root in line.roots)
            made = home < n or (home == n and line.born(root) <= at) or root not in line.graph.producers
            if phase == "optimizer" or (not counted and (made or phase == "backward")):
                found.append(size)
        return found

    def beside(self, held: list[Form], threads: int) -> tuple[tuple[str, Form], ...]:
        threads = 2 if self.run.step == "later" else threads
        size = Num(threads * self.run.workspace, BYTE)
        return ("held tensors", add(held)), ("workspaces", size)
