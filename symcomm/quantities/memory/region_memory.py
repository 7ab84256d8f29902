"""The regions of a model in a training step: what all repetitions of each keep, and what is alive when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from symcomm.form import Form, Num, Ratio, Sym, Total, num, product
from symcomm.graph.graph import Region, Tensor
from symcomm.parallel.placement import Collective, Plan, place
from symcomm.parallel.strategy import Placed, Strategy
from symcomm.quantities.memory.activation_memory import bytes_of
from symcomm.quantities.memory.lifetimes import Lifetimes, bytes_of_weight
from symcomm.quantities.memory.recomputed_steps import made_by
from symcomm.quantities.memory.state_memory import Recipe
from symcomm.setting import Setting
from symcomm.units import BYTE


@dataclass(frozen=True)
class StepOptions:
    """How a step runs. ``step`` is ``forward``, the ``first`` step, in which the states come into being, or a ``later``
    one. ``copies`` of one weight are there while the update works on it. ``held`` are tensors that the program still
    refers to. ``workspace`` is there for each thread: one calls the forward pass and another one the backward pass.
    Of ``every`` so many layers only the first input is kept, where that is not 0. ``layers`` says of regions
    how often they run one after the other, where that is not always; a rank has ``chunks`` times as many.
    """

    strategy: Strategy
    recipe: Recipe
    recomputation: str = "none"
    step: str = "later"
    held: tuple[str, ...] = ()
    copies: int = 0
    workspace: Fraction = Fraction(0)
    tables: bool = False
    single_unit: bool = False
    buckets: bool = False
    every: int = 0
    layers: tuple[tuple[str, Form], ...] = ()
    chunks: int = 1


Fresh = tuple[tuple[Form, tuple[Form, ...]], ...]


@dataclass(frozen=True)
class OpMemory:
    """What one layer, or one stretch that is not repeated, has while one of its ops runs."""

    at: int
    op: str
    row: str
    saved: list[Form]
    passing: list[Form]
    gradients: list[Form]


NOTHING: Form = Num(Fraction(0), BYTE)


def add(terms: Iterable[Form]) -> Form:
    """The sum of sizes; nothing is zero bytes."""
    listed = [t for t in terms if t != NOTHING]
    return Total(tuple(listed)) if len(listed) > 1 else listed[0] if listed else NOTHING


@dataclass(frozen=True)
class Repetition:
    """A place in the backward pass of layers that are repeated: what other layers keep, what those of the same group
    have been computed again, and what gradients the layers behind have. ``again`` says that a group is computed again
    there, ``opens`` that the layer is the first one of its group.
    """

    place: str
    others: Form = NOTHING
    inner: Form = NOTHING
    grown: Form = NOTHING
    again: bool = True
    opens: bool = True


def scaled(times: int, form: Form) -> Form:
    """A whole number of times a size."""
    return NOTHING if not times or form == NOTHING else product(num(times), form) if times > 1 else form


@dataclass
class RegionMemory:
    """A region with its timeline and what all its repetitions have together.

    ``shared`` are weights that an earlier region on the same rank has already: they are one tensor. ``tied`` are those
    that a later one has, too: their gradients are there already.
    """

    region: Region
    setting: Setting
    plan: Plan
    rules: tuple[Placed, ...]
    run: StepOptions
    alone: bool
    shared: frozenset[str] = frozenset()
    tied: frozenset[str] = frozenset()
    lines: dict[tuple[str, bool, bool], Lifetimes] = field(default_factory=dict)

    def timeline(self, recomputation: str, there: bool = False, split: bool = False) -> Lifetimes:
        """The timeline of one layer; ``there`` says that its weights have gradients already, ``split`` that these are
        made apart.
        """
        key = (recomputation, there, split)
        if key not in self.lines:
            run, weights = self.run, frozenset(w.name for w in self.setting.graph.weights)
            self.lines[key] = Lifetimes(
                self.setting, self.plan, self.rules, run.recipe, recomputation, run.tables, run.single_unit,
                weights if there else self.tied, split,
            )  # fmt: skip
        return self.lines[key]

    @property
    def line(self) -> Lifetimes:
        return self.timeline("none" if self.grouped else self.recomputation)

    @property
    def recomputation(self) -> str:
        """What is computed again: of a model of several stretches, in the layers that are repeated."""
        return self.run.recomputation if self.alone or self.repeated else "none"

    @property
    def grouped(self) -> int:
        """The layers of a group that is computed again from its first input, or 0."""
        return self.run.every if self.repeated else 0

    @property
    def count(self) -> Form:
        """The layers that run one after the other."""
        return dict(self.run.layers).get(self.region.name, Sym(self.region.times)) if self.repeated else num(1)

    @property
    def repeated(self) -> bool:
        return bool(self.region.times)

    def times(self, less: int, form: Form) -> Form:
        """A size times the repetitions, or all but ``less`` of them."""
        if form == NOTHING or (not self.repeated and less):
            return NOTHING
        count = self.count if not less else Total((self.count, num(-less)))
        return product(count, form) if self.repeated else form

    @property
    def groups(self) -> Form:
        """How often something is kept: for each layer or for each group."""
        return Ratio(self.count, num(self.grouped)) if self.grouped > 1 else self.count

    @property
    def weights(self) -> tuple[Tensor, ...]:
        return tuple(w for w in self.setting.graph.weights if w.name not in self.shared)

    def pieces(self, role: str, width: int | Fraction, whole: bool = False) -> list[Form]:
        """The bytes of each weight, or of its gradient or state, on one rank."""
        graph, strategy = self.setting.graph, self.run.strategy
        rules = () if whole else self.rules
        return [
            bytes_of_weight(self.setting, strategy, w, (m for m, _ in place(w, graph, rules, role)), width)
            for w in self.weights
            if width and (role == "weight" or w.name not in self.setting.frozen)
        ]

    @property
    def kept(self) -> list[Form]:
        """What one repetition, or one group of layers, keeps for the backward pass."""
        line = self.timeline("full") if self.grouped else self.line
        return [*(bytes_of(self.setting, item) for item in line.kept), *line.constants]

    @property
    def given(self) -> Form:
        """Token ids and labels that all repetitions read; the program holds them before and after that, too."""
        return self.times(0, add(bytes_of(self.setting, item) for item in self.line.given))

    @property
    def fresh(self) -> tuple[Form, tuple[Form, ...]]:
        """How often the storages are there that a repetition or a group keeps."""
        return (self.groups if self.repeated else num(1)), tuple(self.kept)

    @property
    def left(self) -> Form:
        """What all repetitions keep for the backward pass."""
        return product(self.groups, add(self.kept)) if self.repeated and self.kept else add(self.kept)

    @property
    def made(self) -> list[Form]:
        """The gradients of one repetition."""
        return self.line.gradients(len(self.line.steps))

    def forward(self, opens: bool = True) -> list[OpMemory]:
        """One layer's forward pass: one that opens a group keeps its input, and one inside of a group does not."""
        line = self.timeline("full" if opens else "nothing") if self.grouped else self.line
        return self.op_memories(line, "forward")

    def again(self, opens: bool) -> list[OpMemory]:
        """The last layer of a group when it is computed again: what no gradient needs is left out."""
        needed = self.timeline("full").again
        found = self.op_memories(self.line, "forward", self.opening if opens else frozenset())
        made = [t for t in found if made_by(self.line.steps[t.at].work) in needed]
        return [replace(t, op=f"{t.op} again", passing=[*t.passing, *self.line.arriving]) for t in made]

    @property
    def waiting(self) -> tuple[list[Form], list[Form]]:
        """What one repetition has between the gradients of its inputs and those of its weights: kept, and gradients."""
        return self.timeline(self.recomputation, split=True).waiting

    def backward(self, opens: bool = True, there: bool = False, kind: str = "D") -> list[OpMemory]:
        """One layer's backward pass, with what runs again inside of it; ``there`` is as for ``timeline``. Of ``kind`` B
        or W it is that part of it.
        """
        if kind != "D":
            line = self.timeline(self.recomputation, there, True)
            return [one for one in self.op_memories(line, "backward") if (one.at >= line.middle) == (kind == "W")]
        if not self.grouped:
            return self.op_memories(self.timeline(self.recomputation, there), "backward")
        return self.op_memories(self.timeline("none", there), "backward", self.opening if opens else frozenset())

    @property
    def opening(self) -> frozenset[str]:
        """What is kept of the layer that opens a group; whatever else a layer of a group has is made again."""
        return frozenset(self.timeline("full").roots)

    def op_memories(self, line: Lifetimes, phase: str, kept: frozenset[str] | None = None) -> list[OpMemory]:
        """The steps of a phase; what is not in ``kept`` passes, where that is given."""
        targets = {op.row: op.output.split("·")[0] for op in self.setting.graph.ops}
        found, row = [], ""
        for at, turn in enumerate(line.steps):
            work = turn.work
            op = line.graph.producers.get(work.op) if isinstance(work, Collective) else work.op
            row = targets.get(op.row, row) if op is not None else row
            if turn.phase == phase:
                saved, made = line.saved(at, kept)
                passing = [*made, *line.temporaries(at)]
                found.append(OpMemory(at, line.shown(at), row, saved, passing, line.gradients(at)))
        return found

    def repetitions(self, kind: str = "D") -> list[Repetition]:
        """Where the backward pass (or its part B or W) may be at its peak: from one layer to the next, and from one
        group to the next, its memory grows or shrinks by the same amount.
        """
        n, kept, made = self.grouped, add(self.kept), add(self.made)
        if not self.repeated:
            return [Repetition("last")]
        if kind != "D":
            stays, passes = (self.times(1, add(sizes)) for sizes in self.waiting)
            if kind == "B":
                return [Repetition("last", self.times(1, kept)), Repetition("first", stays, passes)]
            return [Repetition("last", stays, passes), Repetition("first", grown=self.times(1, made))]
        if n < 2:
            others, grown = self.times(1, kept), self.times(1, made)
            return [Repetition("last", others), Repetition("first", grown=grown)]
        others = product(Total((self.groups, num(-1))), kept)
        inner = add([scaled(n - 2, add(self.remade())), add(self.remade(self.opening))])
        first = add(self.remade(self.opening, inside=True))
        grown = product(Total((self.count, num(-n))), made) if made != NOTHING else NOTHING
        return [
            Repetition("last", add([others, first]), inner, again=True, opens=False),
            Repetition("first of the last group", others, grown=scaled(n - 1, made), again=False),
            Repetition("last of the first group", first, inner, grown, again=True, opens=False),
            Repetition("first", grown=self.times(1, made), again=False),
        ]

    def remade(self, opening: frozenset[str] = frozenset(), inside: bool = False) -> list[Form]:
        """What a layer of a group has when it has been computed again: all but the ``opening``, or only that."""
        found = [bytes_of(self.setting, item) for item in self.line.kept if (item.tensor in opening) == inside]
        return found if inside else [*found, *self.line.constants]

