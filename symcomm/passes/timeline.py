"""One graph's plan as a line of storages: between which steps each is alive, and of what kind it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from symcomm import form as forms
from symcomm.dtypes import element_bytes
from symcomm.form import Form, Num, product
from symcomm.graph.graph import Graph, Tensor
from symcomm.graph.ops import BY_HAND, MAP
from symcomm.parallel.placement import PARTIAL, Collective, Compute, Layout, place, plan
from symcomm.parallel.strategy import Strategy, resolve
from symcomm.passes.activation_memory import bytes_of
from symcomm.passes.saved import Saved, keeper, storage, training_graph
from symcomm.passes.setting import Setting
from symcomm.passes.state_memory import Recipe


@dataclass
class Storage:
    size: Form
    kind: str
    born: int
    dies: int


@dataclass
class Timeline:
    """The storages of one layer's plan, with the steps between which they are alive.

    ``tables`` says that each layer makes its masks and rotations for itself; ``single_unit`` that all weights of the
    model are gathered at once, so that no layer gathers its own and gradients are whole until all of them are there.
    """

    setting: Setting
    strategy: Strategy
    recipe: Recipe
    recomputation: str
    frozen: frozenset[str]
    tables: bool = False
    single_unit: bool = False
    storages: dict[tuple[str, tuple[str, ...]], Storage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        both = training_graph(self.setting, tuple(self.frozen))
        self.plan = plan(both, self.strategy, self.setting.accounting)
        self.graph = self.plan.graph
        self.kept = keeper(self.setting, self.plan, self.recomputation).collect()
        self.steps = [s for s in self.plan.steps if isinstance(s, Collective) or s.op.kind != "update"]
        self.roots = {item.tensor for item in self.kept}
        for at, step in enumerate(self.steps):
            if isinstance(step, Collective):
                self.uses(step.tensor, step.before, at)
                self.makes(step.tensor.split(" @ ")[0], step.stored, step.after, at)
                continue
            for stored, layout in zip(step.reads, step.layouts, strict=True):
                self.uses(stored, layout, at)
            self.makes(step.op.output, step.op.output, step.output, at)

    def part(self, layout: Layout) -> tuple[str, ...]:
        return tuple(sorted(mesh for mesh, position in layout if position != PARTIAL))

    def size(self, tensor: Tensor, part: tuple[str, ...], width: Form | None = None) -> Form:
        elements = self.graph.elements(tensor.name)
        for mesh in part:
            elements = elements / forms.value(self.strategy.sizes[mesh])
        dtype = tensor.dtype or (self.graph.tensors[tensor.of].dtype if tensor.of in self.graph.tensors else None)
        return product(self.setting.written(elements), width or element_bytes(dtype or self.setting.dtype))

    def key(self, stored: str, layout: Layout) -> tuple[str, tuple[str, ...]]:
        base, _, copy = stored.partition(" @ ")
        root = base if copy else storage(self.graph, base, self.setting.accounting.saved == "pytorch")
        return root, self.part(layout)

    def makes(self, name: str, stored: str, layout: Layout, at: int) -> None:
        """A new storage; a view, a virtual tensor and the gradient of a weight (which is a state) make none."""
        tensor = self.graph.tensors[name]
        if tensor.virtual or (tensor.role == "constant" and tensor.name not in self.graph.producers):
            return
        key = self.key(stored, layout)
        if key in self.storages:
            return
        weight = tensor.role == "gradient" and self.graph.tensors[tensor.of].role == "weight"
        kind = "gradients" if weight and name in self.finished else "temporaries"
        # The gradient of an input goes on to what made the input: it is there until the pass ends.
        leaves = tensor.role == "gradient" and not weight and name not in self.graph.consumers
        last = len(self.steps) if leaves else at
        self.storages[key] = Storage(self.size(self.graph.tensors[key[0]], key[1]), kind, at, last)

    @property
    def finished(self) -> set[str]:
        return {f"d({w.name})" for w in self.graph.weights}

    def uses(self, stored: str, layout: Layout, at: int) -> None:
        base, _, copy = stored.partition(" @ ")
        tensor = self.graph.tensors[base]
        if tensor.role in ("weight", "constant") and not copy:
            return
        key = self.key(stored, layout)
        if key not in self.storages:  # it was there before the first step: an input, or the gradient of an output
            if tensor.role == "gradient":
                self.storages[key] = Storage(self.size(tensor, key[1]), "temporaries", self.start, at)
            else:
                self.storages[key] = Storage(self.size(self.graph.tensors[key[0]], key[1]), "temporaries", -1, at)
        # What recomputation or the counting does not keep is dropped when the forward pass ends.
        if at >= self.start and tensor.role != "gradient" and not copy and key[0] not in self.roots:
            return
        self.storages[key].dies = max(self.storages[key].dies, at)

    @property
    def start(self) -> int:
        """The first step of the backward pass."""
        return next((n for n, s in enumerate(self.steps) if phase_of(s) == "backward"), len(self.steps))

    def temporaries(self, at: int) -> list[Form]:
        """What one step makes and reads that is neither kept nor a state, with gradients inside composite functions."""
        found = [s.size for (root, _), s in self.storages.items() if s.born <= at <= s.dies and self.passes(root, s)]
        return [*found, *self.inside(at)]

    def passes(self, root: str, made: Storage) -> bool:
        tensor = self.graph.tensors[root]
        gathered = self.single_unit and tensor.role == "weight"
        within = (tensor.of or root) in self.within
        return made.kind == "temporaries" and root not in self.roots and not gathered and not within

    @cached_property
    def within(self) -> frozenset[str]:
        """What eager PyTorch never stores: the losses of each position, where the loss function adds them up itself."""
        collapsing = {name for name, kind in MAP.items() if kind.collapses and kind.eager}
        eager = self.setting.accounting.saved == "pytorch"
        return frozenset(op.output for op in self.graph.ops if eager and op.kind in collapsing and "·" in op.output)

    def alive(self, root: str, at: int) -> bool:
        """Whether a tensor's storage is counted at a step, as kept or as passing."""
        spans = [s for (name, _), s in self.storages.items() if name == root]
        return any(s.born <= at <= (len(self.steps) if root in self.roots else s.dies) for s in spans)

    def born(self, root: str) -> int:
        """The step that makes a tensor's storage."""
        return min((s.born for (name, _), s in self.storages.items() if name == root), default=len(self.steps))

    def inside(self, at: int) -> list[Form]:
        """In eager PyTorch, the gradients of the intermediate values that a composite function keeps.

        Cross-entropy is a logarithm of softmax and a choice: the gradient of the first is as large as the logits.
        """
        step = self.steps[at]
        if isinstance(step, Collective) or not step.op.kind.endswith("_gradient"):
            return []
        if self.setting.accounting.saved != "pytorch":
            return []
        kind = step.op.kind.removesuffix("_gradient")
        by_hand = BY_HAND.get(kind) if self.setting.accounting.softmax == "by_hand" else None
        copies = (by_hand or MAP[kind].eager or ()).count("copy")
        return [self.size(self.graph.tensors[step.op.output], self.part(step.output))] * copies

    def constants(self, at: int) -> list[Form]:
        """The masks (a byte an element) and rotations (a cosine and a sine a pair) that a layer has made for itself."""
        found = []
        for step in self.steps[: at + 1] if self.tables else []:
            if isinstance(step, Collective) or phase_of(step) != "forward" or step.op.kind not in ("mask", "rope"):
                continue
            for name, indices in zip(step.op.inputs[1:], step.op.indices[1:], strict=True):
                tensor = self.graph.tensors[name]
                part = tuple(sorted(mesh for mesh, index in step.cuts if index in indices))
                width = element_bytes("bool") if step.op.kind == "mask" else element_bytes(self.setting.dtype)
                size = self.size(tensor, part, width)
                found.append(size if step.op.kind == "mask" else forms.Ratio(size, forms.num(2)))
        return found

    def saved(self, at: int) -> list[Form]:
        """What is kept of this layer while a step runs."""
        found = []
        for item in self.kept:
            span = [s for (root, _), s in self.storages.items() if root == item.tensor]
            born = min((s.born for s in span), default=self.uses_of(item))
            last = max((s.dies for s in span), default=len(self.steps))
            last = len(self.steps) if last < self.start else last
            if born <= at <= last:
                found.append(bytes_of(self.setting, item))
        return [*found, *self.constants(at)]

    def uses_of(self, item: Saved) -> int:
        """When a mask, or the statistics of rows, come into being: with the first op that reads or makes them."""
        for at, step in enumerate(self.steps):
            if not isinstance(step, Collective) and (item.tensor in step.op.inputs or step.op.output == item.tensor):
                return at
        return -1

    def gradients(self, at: int) -> list[Form]:
        """The gradients of this layer's weights that are finished or being made."""
        found: list[Form] = []
        rules = resolve(self.strategy, self.setting.graph)
        for weight in self.graph.weights:
            name = f"d({weight.name})"
            outputs = (n for n, s in enumerate(self.steps) if isinstance(s, Compute) and s.op.output == name)
            made = next(outputs, None)
            if made is not None and made <= at:
                cuts = () if self.single_unit else place(weight, self.setting.graph, rules, "gradient")
                part = tuple(m for m, _ in cuts)
                found.append(bytes_of_weight(self.setting, self.strategy, weight, part, self.recipe.gradient))
        return found


def shown(graph: Graph, step: Collective | Compute) -> str:
    """What a step does, for a reader: the tensor it makes, or the collective."""
    if isinstance(step, Collective):
        base = graph.tensors[step.tensor.split(" @ ")[0]]
        of = f"the gradient of `{base.of.split('·')[0]}`" if base.of else f"`{base.name.split('·')[0]}`"
        return f"the {step.kind} of {of}"
    made = graph.tensors[step.op.output]
    return f"the gradient of `{made.of.split('·')[0]}`" if made.of else f"`{made.name.split('·')[0]}`"


def phase_of(step: Collective | Compute) -> str:
    return step.phase if isinstance(step, Collective) else step.op.phase


def bytes_of_weight(setting: Setting, strategy: Strategy, weight: Tensor, part: Iterable[str], width: int) -> Form:
    elements = setting.graph.elements(weight.name)
    for mesh in part:
        elements = elements / forms.value(strategy.sizes[mesh])
    return product(setting.written(elements), Num(Fraction(width), element_bytes("fp8").unit))
