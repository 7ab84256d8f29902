"""The instructions of a program: instructions in their places, in the order in which they run.

An instruction names its region and phase; ``loops`` puts the instructions of a rank into the loops that repeat them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.graph.graph import Graph, Op, Region, Tensor
from symcomm.core.libraries import Expr
from symcomm.core.parallel.layouts import PARTIAL, Layout
from symcomm.core.parallel.placement import Collective, Compute, Plan
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.records import dataclass, replace

BETWEEN_STAGES = ("pipe",)  # the mesh axis that a pipeline adds
HOST = ("host",)  # what stands for a mesh axis where a rank copies to its host and back
READ, WRITTEN = ("nvme",), ("nvme_write",)  # and where its host reads or writes NVMe disks for it
TIERS = {"host": (HOST,), "nvme": (READ, WRITTEN)}  # the memories below the device, each over the one before
COPIES = (HOST, READ, WRITTEN)


@dataclass(frozen=True)
class Send:
    """A message over the boundary between two stages, or a ``copy`` from one memory to the next; in numbers a rank.

    The ``layout`` is that of a weight or its gradient as it rests.
    """

    tensor: str
    elements: Expr
    phase: str
    why: str
    kind: str = "send"
    meshes: tuple[str, ...] = BETWEEN_STAGES
    layout: Layout = ()


@dataclass(frozen=True)
class Instruction:
    """An instruction in its place: what runs, in which region and pass, how often."""

    work: Compute | Collective | Send
    region: Region
    phase: str  # forward, recompute, backward or update
    finishes: bool = False  # it completes the gradient of a weight, or a weight, and has the size of the weight
    every: bool = True  # the first repetition of the region has it, too
    once: bool = False  # in a step, not for every microbatch
    bucketed: bool = False  # a flat copy is reduced
    half: str = ""  # of a backward pass: B (gradients of inputs) or W (of weights)
    kernel: str = ""  # instructions of one kernel run in one launch
    ring: str = ""  # the mesh axis round which it runs for one block after the other
    by: tuple[str, ...] = ()  # conventions by which it is there, or runs so often

    @property
    def accumulates(self) -> bool:
        """Whether it reduces the gradient of a weight between replicas; stages that share a weight are none."""
        return self.phase == "backward" and self.finishes and not self.between_stages

    @property
    def between_stages(self) -> bool:
        """Whether it is between stages of a pipeline."""
        return getattr(self.work, "meshes", ()) == BETWEEN_STAGES

    @property
    def early(self) -> bool:
        """Whether it is done for the whole step before its first op."""
        return self.once and not self.finishes

    @property
    def stays(self) -> bool:
        """Whether it is inside of a stage, in the pass of its region, and no repetition of another one."""
        return not (self.early or self.between_stages or self.phase == "recompute")


@dataclass(frozen=True)
class Program:
    """The instructions of a training step, with the plan of the whole graph that they come from."""

    plan: Plan
    accounting: Accounting
    instructions: tuple[Instruction, ...] = ()
    frozen: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()  # gathered copies of weights that stay until the backward pass has read them
    units: frozenset[str] = frozenset()  # gathered copies that stay as long as the pass of their region runs
    host: frozenset[str] = frozenset()  # the roles that rest on the host
    inside: frozenset[str] = frozenset()  # of a kernel: never stored
    recomputation: str = "none"
    dropped: frozenset[str] = frozenset()  # results that are dropped after the forward pass
    runs: frozenset[str] = frozenset()  # the ops that run again
    needed: frozenset[str] = frozenset()  # what they make that gradients read, where that is not all

    @property
    def graph(self) -> Graph:
        """Forward, backward and update ops of all regions."""
        return self.plan.graph

    @property
    def strategy(self) -> Strategy:
        """The strategy that the program carries out."""
        return self.plan.strategy

    def ops(self, region: str, phase: str) -> list[Op]:
        """The ops that one rank computes of a phase of a region, each once with all its parts."""
        works = [t.work for t in self.instructions if t.region.name == region and t.phase == phase]
        return [w.op for w in works if isinstance(w, Compute) and w.part != "statistics"]

    def tensor(self, work: Collective | Send) -> Tensor:
        """The tensor that is moved: one of the graph, or one that is gathered of it."""
        return self.graph.tensors[work.tensor.split(" @ ")[0]]

    def part(self, name: str, layout: Layout) -> Expr:
        """The numbers that a rank has of a tensor in a layout."""
        elements = self.graph.elements(name)
        for mesh, position in layout:
            elements = elements / forms.value(self.strategy.sizes[mesh]) if position != PARTIAL else elements
        return elements

    def of_weight(self, work: Collective | Send) -> bool:
        """Whether the gradient of a weight is moved."""
        tensor = self.tensor(work)
        return tensor.role == "gradient" and self.graph.tensors[tensor.of].role == "weight"

    def region(self, name: str) -> Program:
        """The instructions of one region, for each microbatch, without recomputation.

        What it reads of other regions comes from outside.
        """
        graph = self.graph.region(name) if self.graph.regions else self.graph
        return replace(self, plan=replace(self.plan, graph=graph, steps=tuple(self.works(name))))

    def works(self, region: str = "") -> list[Compute | Collective]:
        """The computations and exchanges of one rank for one microbatch, of a region or of all, run once."""
        every = not region or len(self.graph.regions) < 2
        works = [instruction.work for instruction in self.instructions if instruction.stays]
        return [w for w in works if not isinstance(w, Send) and (every or home(self.graph, w) == region)]

    @property
    def host_copies(self) -> tuple[Send, ...]:
        """The copies of tensors to the host and back."""
        return tuple(t.work for t in self.instructions if isinstance(t.work, Send) and t.work.meshes == HOST)

    @property
    def early(self) -> tuple[tuple[Instruction, Collective], ...]:
        """The gathers of a model whose weights are one unit; its gradients are reduced when all are there."""
        return tuple((t, t.work) for t in self.instructions if t.early and isinstance(t.work, Collective))

    @property
    def bucketed(self) -> tuple[tuple[Instruction, Collective], ...]:
        """The reductions of gradients that are copied to buckets."""
        return tuple((t, t.work) for t in self.instructions if t.bucketed and isinstance(t.work, Collective))


def home(graph: Graph, step: Collective | Compute) -> str:
    """The region that a step of a plan belongs to."""
    return graph.producers[step.op].region if isinstance(step, Collective) else step.op.region


def made_by(instruction: Instruction) -> str:
    """The op that an instruction belongs to, by the tensor that it makes."""
    return instruction.work.op.output if isinstance(instruction.work, Compute) else getattr(instruction.work, "op", "")


def gathers_weight(graph: Graph, work: Compute | Collective | Send) -> bool:
    """Whether a weight is gathered before it is read."""
    if not isinstance(work, Collective) or work.kind != "all-gather":
        return False
    return graph.tensors[work.tensor.split(" @ ")[0]].role == "weight"


def weights_gathered(instructions: Iterable[Instruction], graph: Graph) -> Iterator[tuple[Instruction, Collective]]:
    """The instructions that gather weights before they are read."""
    for instruction in instructions:
        if isinstance(instruction.work, Collective) and gathers_weight(graph, instruction.work):
            yield instruction, instruction.work


@dataclass(frozen=True)
class Rewrite:
    """A change of a program that is no placement. Rewrites do not commute: they run in the order of their ``rank``.

    The instructions that it makes or changes are there by the choice of a ``convention``.
    """

    name: str
    rank: int
    apply: Callable[[Program], Program]
    convention: str = ""

    def __call__(self, program: Program) -> Program:
        """The program as the rewrite leaves it."""
        made = self.apply(program)
        if not self.convention or made.instructions == program.instructions:
            return made
        known = {id(instruction) for instruction in program.instructions}
        return replace(made, instructions=tuple(
            one if id(one) in known else replace(one, by=(*one.by, self.convention)) for one in made.instructions
        ))  # fmt: skip
