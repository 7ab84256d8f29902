"""The passes of a region in a training step: what each keeps and frees, in loops over its repetitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import field
from fractions import Fraction

from symcomm.form import Form, Ratio, Sym, Total, num
from symcomm.graph.graph import Region, Tensor
from symcomm.parallel.placement import Collective, Layout, place
from symcomm.parallel.strategy import Placed, Strategy
from symcomm.program.alive import Free, Instruction, Keep, OpRun
from symcomm.program.instructions import Program, Turn
from symcomm.program.loops import Loop
from symcomm.quantities.memory.activation_memory import bytes_of
from symcomm.quantities.memory.lifetimes import PASSING, Lifetimes, bytes_of_weight
from symcomm.quantities.memory.recomputed_steps import made_by
from symcomm.quantities.memory.state_memory import Recipe
from symcomm.records import dataclass
from symcomm.setting import Setting

PHASES = {"F": "forward", "D": "backward", "B": "input gradient", "W": "weight gradient"}


@dataclass(frozen=True)
class StepOptions:
    """How a step runs. ``step`` is ``forward``, the ``first`` step, in which the states come into being, or a ``later``
    one. ``copies`` of one weight are there while the update works on it. ``held`` are tensors that the program still
    refers to. ``workspace`` is there for each thread: one calls the forward pass and another one the backward pass.
    Of ``every`` so many layers only the first input is kept, where that is not 0. ``layers`` says of regions
    how often they run one after the other, where that is not always; a rank has ``chunks`` times as many.
    ``unreduced`` gradients are added on a rank, and made what they are to be when all are there.
    """

    strategy: Strategy
    recipe: Recipe
    recomputation: str = "none"
    step: str = "later"
    held: tuple[str, ...] = ()
    copies: int = 0
    workspace: Fraction = Fraction(0)
    tables: bool = False
    every: int = 0
    layers: tuple[tuple[str, Form], ...] = ()
    chunks: int = 1
    unreduced: bool = False


@dataclass
class RegionPasses:
    """A region, the ``number``-th one on a rank, with the timelines of its passes.

    ``shared`` are weights that an earlier region on the same rank has already: they are one tensor. ``tied`` are those
    that a later one has, too: their gradients are there already.
    """

    number: int
    region: Region
    setting: Setting
    made: Program
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
                self.setting, self.made, self.rules, run.recipe, recomputation, run.tables,
                weights if there else self.tied, split, run.unreduced,
            )  # fmt: skip
        return self.lines[key]

    @property
    def line(self) -> Lifetimes:
        return self.timeline("none" if self.grouped else self.recomputation)

    @property
    def recomputation(self) -> str:
        """What is computed again: of a model of several regions, in the layers that are repeated."""
        again = "full" if self.run.every == 1 else self.run.recomputation  # each layer is a group of its own
        return again if self.alone or self.repeated else "none"

    @property
    def grouped(self) -> int:
        """The layers of a group that is computed again from its first input, or 0 where each layer is by itself."""
        return self.run.every if self.repeated and self.run.every > 1 else 0

    @property
    def count(self) -> Form:
        """The layers that run one after the other."""
        return dict(self.run.layers).get(self.region.name, Sym(self.region.times)) if self.repeated else num(1)

    @property
    def repeated(self) -> bool:
        return bool(self.region.times)

    @property
    def weights(self) -> tuple[Tensor, ...]:
        return tuple(w for w in self.setting.graph.weights if w.name not in self.shared)

    @property
    def trained(self) -> list[Tensor]:
        """The weights that have a gradient."""
        return [w for w in self.weights if w.name not in self.setting.frozen]

    def pieces(self, role: str, width: int | Fraction) -> list[Form]:
        """The bytes of each weight, or of its gradient or state, on one rank."""
        graph, rules = self.setting.graph, self.rules
        return [
            bytes_of_weight(self.setting, self.run.strategy, w, (m for m, _ in place(w, graph, rules, role)), width)
            for w in (self.weights if role == "weight" else self.trained) if width
        ]  # fmt: skip

    def moved(self, turns: Iterable[tuple[Turn, Collective]], width: int | Fraction) -> list[Form]:
        """The bytes of each weight of the region that some calls gather, or of its gradient that they reduce: whole."""
        whole: dict[str, Layout] = {}
        for call in (call for turn, call in turns if turn.region.name == self.region.name):
            tensor = self.made.tensor(call)
            whole[tensor.of or tensor.name] = call.before if tensor.of else call.after
        return [
            bytes_of_weight(self.setting, self.run.strategy, w, self.line.part(whole[w.name]), width)
            for w in self.weights if w.name in whole
        ]  # fmt: skip

    @property
    def given(self) -> list[Form]:
        """Token ids and labels that a repetition reads; the program holds them before and after that, too."""
        return [bytes_of(self.setting, item) for item in self.line.given]

    @property
    def opening(self) -> frozenset[str]:
        """What is kept of the layer that opens a group; whatever else a layer of a group has is made again."""
        return frozenset(self.timeline("full").roots)

    def forward(self) -> tuple[Instruction, ...]:
        """The forward pass of all repetitions: one that opens a group keeps its input, one inside of it does not."""
        if not self.grouped:
            return self.repeat(self.passing(self.line, "F"))
        full, nothing = (self.passing(self.timeline(kept), "F", closed=True) for kept in ("full", "nothing"))
        inside = Loop("layer", num(self.grouped - 1), nothing, start=1)
        return (Loop("group", self.groups, (Loop("layer", num(1), full, ()), inside)),)

    def backward(self, kind: str = "D", there: bool = False) -> tuple[Instruction, ...]:
        """The backward pass of all repetitions, or its ``kind`` B or W; ``there`` is as for ``timeline``."""
        if kind != "D":
            return self.repeat(self.passing(self.timeline(self.recomputation, there, True), kind), reverse=True)
        if not self.grouped:
            layer, sums = self.passing(self.timeline(self.recomputation, there), kind), self.line.shared_gradients
            if not sums:
                return self.repeat(layer, reverse=True)
            rest = Loop("layer", Total((self.count, num(-1))), layer, ("last", "first"), reverse=True)
            return (Loop("layer", num(1), layer), *(Keep(PASSING, s) for s in sums), rest,
                    *(Free(PASSING, s) for s in sums))  # fmt: skip
        line = self.timeline("none", there)
        arriving = self.line.arriving
        opens, inner = (self.passing(line, "D", own) for own in (self.opening, ()))
        first, again = (self.passing(line, "again", own, own) for own in (self.opening, ()))
        begin = tuple(Keep(PASSING, size) for size in arriving)
        end = tuple(Free(PASSING, size) for size in arriving)
        one, others = num(1), num(self.grouped - 1)
        body: tuple[Instruction, ...] = (
            *begin, Loop("layer", one, first, ()), Loop("layer", others, again, start=1), *end,
            Loop("layer", others, inner, reverse=True, start=1), Loop("layer", one, opens, ("first",)),
        )  # fmt: skip
        return (Loop("group", self.groups, body, ("last", "first"), reverse=True),)

    @property
    def groups(self) -> Form:
        """How many groups there are."""
        return Ratio(self.count, num(self.grouped))

    def repeat(self, body: tuple[Instruction, ...], reverse: bool = False) -> tuple[Instruction, ...]:
        """A pass through all repetitions; forward, the most is there in the last one."""
        if not self.repeated:
            return body
        return (Loop("layer", self.count, body, ("last", "first") if reverse else ("last",), reverse),)

    def passing(
        self, line: Lifetimes, kind: str, own: Collection[str] | None = None, there: Collection[str] = (),
        closed: bool = False,
    ) -> tuple[Instruction, ...]:  # fmt: skip
        """One layer's pass; ``again`` is its forward pass in a group, without what no gradient needs."""
        parts = {"F": (0, line.start), "again": (0, line.start), "D": (line.start, len(line.steps)),
                 "B": (line.start, line.middle), "W": (line.middle, len(line.steps))}  # fmt: skip
        steps = range(*parts[kind])
        if kind != "again":
            return line.instructions(steps, self.shown(line, PHASES[kind]), own, closed=closed)
        needed, phase = self.timeline("full").again, self.shown(line, "backward", " again")
        cached = line.copies if line.setting.accounting.weight_copies == "kept_in_context" else frozenset[str]()
        return line.instructions(
            steps, lambda at: phase(at) if made_by(line.steps[at].work) in needed else None, own, {*there, *cached}
        )

    def shown(self, line: Lifetimes, phase: str, again: str = "") -> Callable[[int], OpRun]:
        """The steps of a timeline as a reader knows them, with the table rows that they belong to."""
        targets = {op.row: op.output.split("·")[0] for op in self.setting.graph.ops}
        rows, row = list[str](), ""
        for turn in line.steps:
            op = line.graph.producers.get(turn.work.op) if isinstance(turn.work, Collective) else turn.work.op
            row = targets.get(op.row, row) if op is not None else row
            rows.append(row)
        return lambda at: OpRun(phase, line.shown(at) + again, rows[at], self.number, at)
