"""A model as stretches that run one after the other, each a graph that is repeated or not, and what is alive when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from symcomm.errors import ValuesError, nearest
from symcomm.form import Form, Num, Total, num, product
from symcomm.graph.graph import Graph, Tensor
from symcomm.parallel.placement import Collective, place
from symcomm.parallel.strategy import Strategy, resolve
from symcomm.passes.activation_memory import bytes_of
from symcomm.passes.saved import frozen_weights, keeper, storage
from symcomm.passes.setting import Setting
from symcomm.passes.state_memory import Recipe, layers
from symcomm.passes.timeline import Timeline, bytes_of_weight, phase_of, shown
from symcomm.units import BYTE

STEPS = ("forward", "first", "later")


@dataclass(frozen=True)
class Stretch:
    """Rows that run together: a layer that is repeated, or what stands before or behind the layers.

    ``shared`` are weights that an earlier stretch has already: they are one tensor.
    """

    name: str
    graph: Graph
    shared: frozenset[str] = frozenset()


def split(graph: Graph, at: str, names: tuple[str, str]) -> tuple[Stretch, Stretch]:
    """What makes a tensor and what follows from it, as two stretches; the tensor goes from one to the other.

    Raises ``ValuesError`` where no row makes it.
    """
    if at not in graph.producers:
        raise ValuesError(f"no row of {graph.name} computes '{at[:60]}'", hint=nearest(at, [*graph.producers]))
    needed, queue = set[str](), [at]
    while queue:
        made = graph.producers.get(queue.pop())
        if made is not None and made.output not in needed:
            needed.add(made.output)
            queue += made.inputs
    found = []
    for n in (0, 1):
        ops = tuple(op for op in graph.ops if (op.output in needed) == (n == 0))
        used = {name for op in ops for name in (*op.inputs, op.output)}
        tensors = {name: t for name, t in graph.tensors.items() if name in used}
        if n == 1 and at in tensors:
            tensors[at] = replace(tensors[at], role="input")
        found.append(replace(graph, name=names[n], ops=ops, tensors=tensors))
    shared = frozenset(w.name for w in found[1].weights) & {w.name for w in found[0].weights}
    return Stretch(names[0], found[0]), Stretch(names[1], found[1], shared)


@dataclass(frozen=True)
class Run:
    """How a step runs. ``step`` is ``forward``, the ``first`` step, in which the states come into being, or a ``later``
    one. ``copies`` of one weight are there while the update works on it. ``held`` are tensors that the program still
    refers to. ``workspace`` is there for each thread: one calls the forward pass and another one the backward pass.
    """

    strategy: Strategy
    recipe: Recipe
    recomputation: str = "none"
    frozen: tuple[str, ...] = ()
    step: str = "later"
    held: tuple[str, ...] = ()
    copies: int = 0
    workspace: Fraction = Fraction(0)
    tables: bool = False
    single_unit: bool = False
    buckets: bool = False


@dataclass(frozen=True)
class Moment:
    """What is alive while one op runs, by kind. ``fresh`` are storages that no freed memory was there for."""

    phase: str
    place: str
    op: str
    row: str
    parts: tuple[tuple[str, Form], ...]
    fresh: tuple[tuple[Form, tuple[Form, ...]], ...] = ()


NOTHING: Form = Num(Fraction(0), BYTE)


def add(terms: Iterable[Form]) -> Form:
    """The sum of sizes; nothing is zero bytes."""
    listed = [t for t in terms if t != NOTHING]
    return Total(tuple(listed)) if len(listed) > 1 else listed[0] if listed else NOTHING


@dataclass
class Part:
    """A stretch with its timeline and what all its repetitions have together."""

    stretch: Stretch
    setting: Setting
    run: Run
    alone: bool

    @property
    def frozen(self) -> frozenset[str]:
        graph = self.stretch.graph
        names = [n for n in self.run.frozen if self.alone or any(_is(n, w.name) for w in graph.weights)]
        return frozen_weights(graph, names)

    @cached_property
    def line(self) -> Timeline:
        run = self.run
        return Timeline(self.setting, run.strategy, run.recipe, self.recomputation, self.frozen, run.tables,
                        run.single_unit)  # fmt: skip

    @property
    def recomputation(self) -> str:
        """What is computed again: of a model of several stretches, in the layers that are repeated."""
        return self.run.recomputation if self.alone or self.repeated else "none"

    @cached_property
    def count(self) -> Form:
        return layers(self.setting, self.run.strategy) or num(1)

    @property
    def repeated(self) -> bool:
        return bool(self.stretch.graph.repeat)

    def times(self, less: int, form: Form) -> Form:
        """A size times the repetitions, or all but ``less`` of them."""
        if form == NOTHING or (not self.repeated and less):
            return NOTHING
        count = self.count if not less else Total((self.count, num(-less)))
        return product(count, form) if self.repeated else form

    @property
    def weights(self) -> tuple[Tensor, ...]:
        return tuple(w for w in self.stretch.graph.weights if w.name not in self.stretch.shared)

    def pieces(self, role: str, width: int, whole: bool = False) -> list[Form]:
        """The bytes of each weight, or of its gradient or state, on one rank."""
        graph, strategy = self.stretch.graph, self.run.strategy
        rules = () if whole else resolve(strategy, graph)
        return [
            bytes_of_weight(self.setting, strategy, w, (m for m, _ in place(w, graph, rules, role)), width)
            for w in self.weights
            if width and (role == "weight" or w.name not in self.frozen)
        ]

    @cached_property
    def kept(self) -> list[Form]:
        """What one repetition keeps for the backward pass."""
        return [*(bytes_of(self.setting, item) for item in self.line.kept), *self.line.constants(len(self.line.steps))]

    @cached_property
    def again(self) -> list[Form]:
        """What recomputation brings back while the backward pass works on a layer."""
        if self.recomputation == "none":
            return []
        every = keeper(self.setting, self.line.plan, "none").collect()
        return [bytes_of(self.setting, item) for item in every if item.tensor not in self.line.roots]


def _is(said: str, name: str) -> bool:
    return said == name or (said.endswith("*") and name.startswith(said[:-1]))


@dataclass
class Course:
    """The step of a whole model: forward through its stretches, backward through them, then the update."""

    setting: Setting
    stretches: tuple[Stretch, ...]
    run: Run
    parts: list[Part] = field(init=False)

    def __post_init__(self) -> None:
        alone = len(self.stretches) == 1
        needed = replace(self.setting.accounting, input_gradient="needed")
        self.parts = []
        for n, stretch in enumerate(self.stretches):
            accounting = self.setting.accounting if n == 0 else needed
            setting = replace(self.setting, graph=stretch.graph, accounting=accounting)
            self.parts.append(Part(stretch, setting, self.run, alone))
        for name in () if alone else self.run.frozen:
            known = [w.name for part in self.parts for w in part.stretch.graph.weights]
            if not any(_is(name, w) for w in known):
                raise ValuesError(f"no weight is called '{name[:60]}'", hint=nearest(name, known))
        self.held = [self.find(name) for name in self.run.held]

    def find(self, name: str) -> tuple[int, str, Form]:
        """The stretch that makes a tensor, its storage and its size."""
        eager = self.setting.accounting.saved == "pytorch"
        for n, part in reversed([*enumerate(self.parts)]):
            graph = part.stretch.graph
            tensor = graph.tensors.get(name) or graph.tensors.get(f"{name}_i")
            if tensor is not None:
                made = part.line.plan.placements.get(tensor.name, ())
                return n, storage(graph, tensor.name, eager), part.line.size(tensor, part.line.part(made))
        known = [n for part in self.parts for n in part.stretch.graph.tensors]
        raise ValuesError(f"there is no tensor '{name[:60]}'", hint=nearest(name, known))

    def all(self, role: str, width: int, whole: bool = False) -> Form:
        """The weights, gradients or states of the whole model on one rank."""
        return add(part.times(0, add(part.pieces(role, width, whole))) for part in self.parts)

    def moments(self) -> list[Moment]:
        """What is alive at every op that may be the peak: of a repeated stretch, in the last repetition forward, in the
        last and the first one backward. In between, memory grows or shrinks by one repetition at a time.
        """
        run, recipe = self.run, self.run.recipe
        found: list[Moment] = []
        always = [("weights", self.all("weight", recipe.weight))]
        if run.step != "forward" and run.buckets:
            always.append(("gradient buckets", self.all("gradient", recipe.gradient)))
        states = [("optimizer states", self.all("state", recipe.state))] if run.step == "later" else []
        passing = [*always, *states]
        if run.single_unit:
            passing.append(("gathered weights", self.all("weight", recipe.weight, whole=True)))
        owned = tuple((p.count if p.repeated else num(1), tuple(p.pieces("weight", recipe.weight))) for p in self.parts)
        for n in range(len(self.parts)):
            found += self.forward(n, passing, owned)
        if run.step == "forward":
            return found
        for n in reversed(range(len(self.parts))):
            found += self.backward(n, passing, owned)
        gradients = ("gradients", self.all("gradient", recipe.gradient))
        return [*found, *self.update([*always, gradients], owned)]

    def forward(
        self, n: int, always: list[tuple[str, Form]], owned: tuple[tuple[Form, tuple[Form, ...]], ...]
    ) -> list[Moment]:
        part, found = self.parts[n], []
        below = [p.times(0, add(p.kept)) for p in self.parts[:n]]
        others = part.times(1, add(part.kept))
        earlier = tuple((p.count if p.repeated else num(1), tuple(p.kept)) for p in self.parts[:n])
        if part.repeated:
            earlier = (*earlier, (Total((part.count, num(-1))), tuple(part.kept)))
        for at, name, row in self.steps(part, "forward"):
            here, made = part.line.saved(at), part.line.temporaries(at)
            held = self.held_at("forward", n, at)
            parts = (*always, ("saved activations", add([*below, others, *here])), ("temporaries", add(made)),
                     *self.beside(held, 1))  # fmt: skip
            fresh = (*owned, *earlier, (num(1), (*here, *made, *held)))
            found.append(Moment("forward", self.where(part, "last"), name, row, parts, fresh))
        return found

    def backward(
        self, n: int, always: list[tuple[str, Form]], owned: tuple[tuple[Form, tuple[Form, ...]], ...]
    ) -> list[Moment]:
        part, found, end = self.parts[n], [], len(self.parts[n].line.steps)
        below = [p.times(0, add(p.kept)) for p in self.parts[:n]]
        # A tied weight has two gradients while the second one is made, which is then added to the first.
        after = [p.times(0, add(p.line.gradients(len(p.line.steps)))) for p in self.parts[n + 1 :]]
        earlier = tuple((p.count if p.repeated else num(1), tuple(p.kept)) for p in self.parts[:n])
        for repetition in ("last", "first") if part.repeated else ("last",):
            others = part.times(1, add(part.kept)) if repetition == "last" else NOTHING
            grown = part.times(1, add(part.line.gradients(end))) if repetition == "first" else NOTHING
            kept = earlier
            if part.repeated and repetition == "last":
                kept = (*earlier, (Total((part.count, num(-1))), tuple(part.kept)))
            for at, name, row in self.steps(part, "backward"):
                here, held = part.line.saved(at), self.held_at("backward", n, at)
                made = [*part.line.temporaries(at), *part.again]
                parts = (*always, ("gradients", add([*after, grown, *part.line.gradients(at)])),
                         ("saved activations", add([*below, others, *here])), ("temporaries", add(made)),
                         *self.beside(held, 2))  # fmt: skip
                fresh = (*owned, *kept, (num(1), (*here, *held)))
                found.append(Moment("backward", self.where(part, repetition), name, row, parts, fresh))
        return found

    def update(self, always: list[tuple[str, Form]], owned: tuple[tuple[Form, tuple[Form, ...]], ...]) -> list[Moment]:
        """The update goes from weight to weight; in the first step it makes the states on its way."""
        run, recipe, found = self.run, self.run.recipe, []
        held = self.held_at("optimizer", 0, 0)
        whole = self.all("state", recipe.state)
        before: list[Form] = []
        fresh = (*owned, (num(1), tuple(held)))
        for part in self.parts:
            states = part.pieces("state", recipe.state)
            copies = part.pieces("state", 4) if run.copies else []
            before.append(part.times(1, add(states)))
            names = [w.name for w in part.weights if w.name not in part.frozen]
            for n, name in enumerate(names if run.copies else names[-1:]):
                made = [*before, *states[: n + 1]] if run.copies else [*before, *states]
                growing = add(made) if run.step == "first" else whole
                copied = product(num(run.copies), copies[n]) if run.copies else NOTHING
                parts = (*always, ("optimizer states", growing), ("temporaries", copied), *self.beside(held, 2))
                op = f"the update of `{name.split('·')[0]}`"
                found.append(Moment("optimizer", self.where(part, "last"), op, "", parts, fresh))
            before.extend(states)
        return found

    def steps(self, part: Part, phase: str) -> list[tuple[int, str, str]]:
        """The steps of a phase: their number, what they make, and the row they belong to."""
        targets = {op.row: op.output.split("·")[0] for op in part.stretch.graph.ops}
        found, row = [], ""
        for at, step in enumerate(part.line.steps):
            op = part.line.graph.producers.get(step.op) if isinstance(step, Collective) else step.op
            row = targets.get(op.row, row) if op is not None else row
            if phase_of(step) == phase:
                found.append((at, shown(part.line.graph, step), row))
        return found

    def where(self, part: Part, repetition: str) -> str:
        """The stretch of a moment, for a reader."""
        if part.alone:
            return f"{repetition} layer"
        return f"{repetition} {part.stretch.name}" if part.repeated else part.stretch.name

    def held_at(self, phase: str, n: int, at: int) -> list[Form]:
        """The held tensors that are there and not counted as kept or passing."""
        found = []
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
