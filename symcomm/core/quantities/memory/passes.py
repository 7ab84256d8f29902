"""The passes of a region in a training step: what each keeps and frees, in loops over its repetitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import field
from fractions import Fraction
from typing import TYPE_CHECKING

from symcomm.core.dtypes import element_bytes
from symcomm.core.form import Form, Num, Ratio, Sym, Total, num, product
from symcomm.core.graph.graph import Region, Tensor, bare
from symcomm.core.parallel.placement import Collective, Compute, Layout, place
from symcomm.core.parallel.strategy import Placed, Strategy
from symcomm.core.program.alive import Free, Instruction, Keep, OpRun
from symcomm.core.program.autograd import cut_meshes
from symcomm.core.program.instructions import Program, Turn
from symcomm.core.program.loops import Loop
from symcomm.core.program.rewrites.accumulation import summed
from symcomm.core.program.storage import COPY, GRADIENT, PASSING, SAVED, Life, Line, made_by
from symcomm.core.quantities.memory.activation_memory import bytes_of
from symcomm.core.quantities.memory.saved import autograd
from symcomm.core.quantities.memory.state_memory import Recipe
from symcomm.core.records import dataclass
from symcomm.core.setting import Setting

if TYPE_CHECKING:
    from sympy import Expr

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
    lines: dict[tuple[str, bool, bool], Line] = field(default_factory=dict)

    def timeline(self, recomputation: str, there: bool = False, split: bool = False) -> Line:
        """The timeline of one layer; ``there`` says that its weights have gradients already, ``split`` that these are
        made apart.
        """
        key = (recomputation, there, split)
        if key not in self.lines:
            run, weights = self.run, frozenset(w.name for w in self.setting.graph.weights)
            self.lines[key] = Line(
                autograd(self.setting, self.made.plan), self.made, self.measure, self.rests, recomputation, run.tables,
                weights if there else frozenset(), split, run.unreduced, self.shared, self.tied,
            )  # fmt: skip
        return self.lines[key]

    def measure(self, elements: Expr, dtype: str) -> Form:
        """The bytes of some numbers in a format, or in that of gradients that are kept."""
        byte = element_bytes("fp8").unit
        wide = Num(Fraction(self.run.recipe.gradient), byte) if dtype == GRADIENT else element_bytes(dtype)
        return product(self.setting.written(elements), wide)

    def rests(self, weight: str) -> tuple[str, ...]:
        """The mesh axes along which the gradient of a weight is cut when it is kept."""
        graph = self.setting.graph
        whole = self.run.unreduced
        return cut_meshes(summed(self.made.plan, weight) if whole else
                          place(self.made.graph.tensors[weight], graph, self.rules, "gradient"))  # fmt: skip

    def bytes_of_weight(self, weight: Tensor, layout: Iterable[tuple[str, int]], width: int | Fraction) -> Form:
        elements = self.line.autograd.cut(self.setting.graph.elements(weight.name), cut_meshes(tuple(layout)))
        return product(self.setting.written(elements), Num(Fraction(width), element_bytes("fp8").unit))

    @property
    def line(self) -> Line:
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
            self.bytes_of_weight(w, place(w, graph, rules, role), width)
            for w in (self.weights if role == "weight" else self.trained) if width
        ]  # fmt: skip

    def moved(self, turns: Iterable[tuple[Turn, Collective]], width: int | Fraction) -> list[Form]:
        """The bytes of each weight of the region that some calls gather, or of its gradient that they reduce: whole."""
        whole: dict[str, Layout] = {}
        for call in (call for turn, call in turns if turn.region.name == self.region.name):
            tensor = self.made.tensor(call)
            whole[tensor.of or tensor.name] = call.before if tensor.of else call.after
        return [
            self.bytes_of_weight(w, whole[w.name], width)
            for w in self.weights if w.name in whole
        ]  # fmt: skip

    @property
    def given(self) -> list[Form]:
        """Token ids and labels that a repetition reads; the program holds them before and after that, too."""
        return [bytes_of(self.setting, item) for item in self.line.given.values()]

    @property
    def shared_sizes(self) -> list[Form]:
        """What is kept once for all repetitions, of what each of them reads."""
        return [bytes_of(self.setting, item) for item in self.line.kept if item.tensor in self.line.shared]

    @property
    def opening(self) -> frozenset[str]:
        """What is kept of the layer that opens a group; whatever else a layer of a group has is made again."""
        return self.timeline("full").roots

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
        self, line: Line, kind: str, own: Collection[str] | None = None, there: Collection[str] = (),
        closed: bool = False,
    ) -> tuple[Instruction, ...]:  # fmt: skip
        """One layer's pass; ``again`` is its forward pass in a group, without what no gradient needs."""
        parts = {"F": (0, line.start), "again": (0, line.start), "D": (line.start, len(line.steps)),
                 "B": (line.start, line.middle), "W": (line.middle, len(line.steps))}  # fmt: skip
        steps = range(*parts[kind])
        if kind != "again":
            over = line.handed.values() if kind in "DW" else ()
            found = instructions(line, steps, self.shown(line, PHASES[kind]), own, closed=closed)
            return (*found, *(Free(GRADIENT, size) for size in over))
        needed, phase = self.timeline("full").again, self.shown(line, "backward", " again")
        cached = line.copies if line.autograd.accounting.weight_copies == "kept_in_context" else frozenset[str]()
        made = [made_by(turn) for turn in line.steps]
        return instructions(line, steps, lambda at: phase(at) if made[at] in needed else None, own, {*there, *cached})

    def shown(self, line: Line, phase: str, again: str = "") -> Callable[[int], OpRun]:
        """The steps of a timeline as a reader knows them, with the table rows that they belong to."""
        targets = {op.row: op.output.split("·")[0] for op in self.setting.graph.ops}
        rows, row = list[str](), ""
        for turn in line.steps:
            op = line.graph.producers.get(made_by(turn))
            row = targets.get(op.row, row) if op is not None else row
            rows.append(row)
        return lambda at: OpRun(phase, shown(line, at) + again, rows[at], self.number, at)


def instructions(
    line: Line, steps: range, run: Callable[[int], OpRun | None], own: Collection[str] | None = None,
    there: Collection[str] = (), closed: bool = False,
) -> tuple[Instruction, ...]:  # fmt: skip
    """What some steps of a line keep and free, and the steps themselves as ``run`` has them.

    What is kept for backward is called a temporary where it is not in ``own``; what is ``there`` already is not kept
    again. Where the steps are ``closed``, nothing but what is kept is left.
    """
    end = steps[-1] if steps and (closed or steps[-1] == len(line.steps) - 1) else -1
    stays = (GRADIENT, COPY, SAVED) if closed else (GRADIENT, COPY)
    counted = [life for life in line.lives if line.counts(life)]
    found: list[Instruction] = []

    def piece(life: Life) -> tuple[str, Form]:
        other = life.kind == SAVED and own is not None and life.root not in own
        return PASSING if other else life.kind, life.size

    for at in steps:
        found += [Keep(*piece(life)) for life in counted if max(life.born, 0) == at and life.root not in there]
        for inside, gone in line.inside(at):
            one = run(at)
            found += [*(Free(*piece(life)) for life in gone), *(Keep(PASSING, size) for size in inside)]
            found += [one] if one is not None else []
            found += [*(Free(PASSING, size) for size in inside), *(Keep(*piece(life)) for life in gone)]
        ends = [life for life in counted if (life.dies == at and life.kind not in (GRADIENT, COPY))
                or (at == end and life.born <= at <= life.dies and life.kind not in stays)]  # fmt: skip
        found += [Free(*piece(life)) for life in ends]
    return tuple(found)


def shown(line: Line, at: int) -> str:
    """What a step does, for a reader: the tensor it makes, or the collective."""
    graph, turn = line.graph, line.steps[at]
    step, again = turn.work, " again" if turn.phase == "recompute" else ""
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
