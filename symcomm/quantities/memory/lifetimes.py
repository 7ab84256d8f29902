"""One graph's plan as a line of storages: between which steps each is alive, and of what kind it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import field
from fractions import Fraction
from functools import cached_property
from itertools import groupby

from symcomm import form as forms
from symcomm.dtypes import element_bytes
from symcomm.form import Form, Num, product
from symcomm.graph.autocast import copies_of_weights
from symcomm.graph.gradient import gradient_name
from symcomm.graph.graph import Op, Tensor, bare
from symcomm.graph.ops import BY_HAND, INSIDE_BY_HAND, MAP
from symcomm.parallel.placement import PARTIAL, Collective, Compute, Layout, place
from symcomm.parallel.strategy import Placed, Strategy
from symcomm.program.alive import Free, Instruction, Keep, OpRun
from symcomm.program.autograd import Saved, storage
from symcomm.program.instructions import Program
from symcomm.program.rewrites.accumulation import summed
from symcomm.program.rewrites.recomputation import recomputed_ops
from symcomm.quantities.memory.activation_memory import bytes_of
from symcomm.quantities.memory.recomputed_steps import PassStep, RecomputedSteps, phase_of
from symcomm.quantities.memory.saved import autograd
from symcomm.quantities.memory.state_memory import Recipe
from symcomm.records import dataclass
from symcomm.setting import Setting

SAVED, PASSING, GRADIENT, COPY = "saved activations", "temporaries", "gradients", "copies of weights"
TENSORS = ("input", "activation")  # of what is kept; the rest are masks, indices and statistics beside a tensor
Key = tuple[str, tuple[str, ...]]


@dataclass
class Storage:
    """A piece of memory with the first and the last step during which it is there; -1 is before the first step."""

    root: str
    size: Form
    kind: str
    born: int
    dies: int


@dataclass
class Lifetimes:
    """The storages of one region's plan, with the steps between which they are alive.

    ``recomputation`` may be ``nothing`` besides what ``recomputed_ops`` knows: then not even the layer's input is kept,
    as inside of a group of layers that is computed again as a whole. ``tables`` says that each layer makes its masks
    and rotations for itself. ``added`` names weights that have a gradient
    already, to which a new one is added as soon as it is made. ``split`` runs the gradients of weights after all
    others: what they read is alive between the two. ``unreduced`` leaves the gradients of weights as each rank
    has made them.
    """

    setting: Setting
    made: Program
    rules: tuple[Placed, ...]
    recipe: Recipe
    recomputation: str
    tables: bool = False
    added: frozenset[str] = frozenset()
    split: bool = False
    unreduced: bool = False
    storages: list[Storage] = field(default_factory=list)
    constants: list[Form] = field(default_factory=list)
    current: dict[Key, Storage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = self.made.plan
        self.graph = self.plan.graph
        self.strategy = self.plan.strategy
        self.eager = self.setting.accounting.saved == "pytorch"
        nothing = self.recomputation == "nothing"
        self.autograd = autograd(self.setting, self.plan)
        again = frozenset[str]() if nothing else recomputed_ops(self.setting.graph, self.recomputation)
        self.kept = () if nothing else self.autograd.kept(again)
        self.roots = {item.tensor for item in self.kept if item.what in TENSORS}
        whole = self.recomputation == "full"
        steps = tuple(s for s in self.plan.steps if not (self.unreduced and self.reduces(s)))
        repeated = RecomputedSteps(
            self.graph, steps, self.setting.accounting, frozenset(self.roots), whole, self.made.kept
        )  # fmt: skip
        self.again = frozenset[str]() if nothing else repeated.recomputed([item.tensor for item in self.back])
        self.steps = repeated.turns(self.again)
        self.start = next((n for n, s in enumerate(self.steps) if s.phase == "backward"), len(self.steps))
        late = self.for_weights if self.split else []
        self.steps = [turn for turn in self.steps if turn not in late] + late
        self.middle = len(self.steps) - len(late)
        for at, turn in enumerate(self.steps):
            step = turn.work
            if isinstance(step, Collective):
                self.uses(step.tensor, step.before, at, turn.again)
                self.moves(step, at)
                continue
            reads = [(self.autograd.known(step.op, name, stored), layout)
                     for name, stored, layout, _ in self.autograd.operands(step)]  # fmt: skip
            if step.op.kind == "add" and self.graph.tensors[step.op.output].role == "gradient":
                reads = self.sums(reads, at)
            for stored, layout in reads:
                self.uses(stored, layout, at, turn.again)
            if step.part != "statistics":
                self.makes(step.op.output, step.output, at)
        self.keep()
        if self.setting.accounting.weight_copies == "kept_in_context":
            self.cache()
        self.drop_units()
        if self.eager and not self.split and (whole or not self.again):
            self.end_with_nodes()
        if self.tables:
            self.keep_tables(nothing)

    @property
    def for_weights(self) -> list[PassStep]:
        """The steps of the backward pass that are in its half W."""
        late = {id(turn.work) for turn in self.made.turns if turn.half == "W"}
        return [step for step in self.steps if step.phase == "backward" and id(step.work) in late]

    @cached_property
    def back(self) -> tuple[Saved, ...]:
        """What gradients read but is not kept: it is computed again."""
        known = {(item.tensor, item.what, item.elements) for item in self.kept}
        return tuple(item for item in self.autograd.kept() if (item.tensor, item.what, item.elements) not in known)

    # -- the walk -------------------------------------------------------------------------------------------------

    def part(self, layout: Layout) -> tuple[str, ...]:
        return tuple(sorted(mesh for mesh, position in layout if position != PARTIAL))

    def size(self, tensor: Tensor, part: tuple[str, ...], width: Form | None = None) -> Form:
        elements = self.graph.elements(tensor.name)
        for mesh in part:
            elements = elements / forms.value(self.strategy.sizes[mesh])
        dtype = tensor.dtype or (self.graph.tensors[tensor.of].dtype if tensor.of in self.graph.tensors else None)
        return product(self.setting.written(elements), width or element_bytes(dtype or self.setting.dtype))

    def key(self, stored: str, layout: Layout) -> Key:
        base, _, copy = stored.partition(" @ ")
        return base if copy else storage(self.graph, base, self.setting.accounting), self.part(layout)

    def put(self, key: Key, kind: str, born: int, dies: int, size: Form | None = None) -> None:
        made = Storage(key[0], size or self.size(self.graph.tensors[key[0]], key[1]), kind, born, dies)
        self.storages.append(made)
        self.current[key] = made

    def makes(self, name: str, layout: Layout, at: int) -> None:
        """A new storage; a view and a virtual tensor make none."""
        tensor, key = self.graph.tensors[name], self.key(name, layout)
        if tensor.virtual or (tensor.role == "constant" and name not in self.graph.producers):
            return
        if key[0] != name and (key in self.current or self.graph.tensors[key[0]].role == "weight"):
            return
        if name in self.finished:
            if not self.elsewhere(name):  # else the part is added to the gradient that is there already
                self.finish(tensor.of, key, at)
            return
        if self.leaving(tensor):
            if tensor.of in self.added:
                self.put(key, PASSING, at, at)
                return
            width = self.recipe.gradient
            size = bytes_of_weight(self.setting, self.strategy, self.graph.tensors[tensor.of], key[1], width)
            self.put(key, GRADIENT, at, len(self.steps), size)
            return
        weight = tensor.role == "gradient" and self.graph.tensors[tensor.of].role == "weight"
        # The gradient of an input goes on to what made the input: it is there until the pass ends.
        leaves = tensor.role == "gradient" and not weight and name not in self.graph.consumers
        end = self.middle - 1 if self.split else len(self.steps)
        self.put(key, PASSING, at, end if leaves else at)

    def elsewhere(self, name: str) -> bool:
        """Whether a tensor is a weight's gradient that is counted where another region makes a part of it."""
        tensor, made = self.graph.tensors[name], self.graph.producers.get(name)
        if tensor.role != "gradient" or self.graph.tensors[tensor.of].role != "weight":
            return False
        return made is None or (
            name in self.finished and tensor.of in self.added and any(map(self.elsewhere, made.inputs))
        )

    def leaving(self, tensor: Tensor) -> bool:
        """Whether it is a part of the gradient of a weight that another region has, too, and adds its own to."""
        weight = tensor.role == "gradient" and self.graph.tensors[tensor.of].role == "weight"
        return weight and tensor.name not in self.finished and tensor.name not in self.graph.consumers

    def moves(self, step: Collective, at: int) -> None:
        """A collective works in place where each rank has as much after it as before."""
        base = step.tensor.partition(" @ ")[0]
        if self.part(step.before) == self.part(step.after) or self.graph.tensors[base].role == "statistic":
            return
        key = self.key(step.stored, step.after)
        if base in self.finished:
            self.finish(self.graph.tensors[base].of, key, at)
        else:
            self.put(key, PASSING, at, at)

    def finish(self, name: str, key: Key, at: int) -> None:
        """The gradient of a weight: a state once it is as it will be kept, before that a tensor like any other."""
        final = self.final(name)
        if name in self.added:
            self.put(key, PASSING, at, at)
        elif key[1] == final:
            weight = self.graph.tensors[name]
            width = self.recipe.gradient
            size = bytes_of_weight(self.setting, self.strategy, weight, final, width)
            self.put(key, GRADIENT, at, len(self.steps), size)
        else:
            self.put(key, PASSING, at, at)

    def final(self, weight: str) -> tuple[str, ...]:
        """The mesh axes along which the gradient of a weight is cut when it is kept."""
        if self.unreduced:
            return self.part(summed(self.plan, weight))
        return self.part(place(self.graph.tensors[weight], self.setting.graph, self.rules, "gradient"))

    def reduces(self, step: Collective | Compute) -> bool:
        """Whether a step makes the gradient of a weight what it is to be on each rank."""
        return isinstance(step, Collective) and step.tensor in self.finished

    @cached_property
    def finished(self) -> frozenset[str]:
        return frozenset(f"d({w.name})" for w in self.graph.weights)

    def uses(self, stored: str, layout: Layout, at: int, again: bool) -> None:
        base, _, copy = stored.partition(" @ ")
        tensor = self.graph.tensors[base]
        if tensor.role == "statistic" or (tensor.role in ("weight", "constant") and not copy) or self.elsewhere(base):
            return
        key = self.key(stored, layout)
        if self.graph.tensors[key[0]].role == "weight" and not copy:
            return  # a view of it
        if key not in self.current:  # it was there before the first step: an input, or the gradient of an output
            born = self.start if tensor.role == "gradient" else -1
            self.put(key, PASSING, born, born)
        # Of the forward pass, a gradient reads what is kept or computed again; what else its op names is not read.
        now = self.current[key]
        read = key[0] in self.roots or (now.born >= self.start and key[0] in self.remade)
        if at < self.start or again or copy or tensor.role == "gradient" or read:
            now.dies = max(now.dies, at)

    def sums(self, reads: list[tuple[str, Layout]], at: int) -> list[tuple[str, Layout]]:
        """What a sum of gradients still reads when its turn comes: each was added to the first as soon as it was made.

        The sum takes the place of the first one, as PyTorch's engine does it, where nothing reads that afterwards.
        """
        reads = [(stored, layout) for stored, layout in reads if not self.elsewhere(stored.partition(" @ ")[0])]
        if len(reads) < 2:
            return reads
        for stored, layout in reads:
            if self.key(stored, layout) not in self.current:
                self.uses(stored, layout, self.start, False)
        first = min(reads, key=lambda r: self.current[self.key(*r)].born)
        kept = [(s, layout) for s, layout in reads if len(self.graph.consumers[s.partition(" @ ")[0]]) > 1]
        if self.last_read[first[0]] > at:
            return [first, *kept]
        found = self.current[self.key(*first)]
        found.dies = max(found.dies, at - 1)
        return [read for read in kept if read != first]

    @cached_property
    def last_read(self) -> dict[str, int]:
        """The last step that reads each tensor or its copy."""
        steps = enumerate(turn.work for turn in self.steps)
        return {name: at for at, step in steps
                for name in ([step.tensor] if isinstance(step, Collective) else step.reads)}  # fmt: skip

    @cached_property
    def remade(self) -> frozenset[str]:
        """The tensors that gradients read and that are computed again."""
        return frozenset(item.tensor for item in self.back if item.what in TENSORS)

    # -- what is kept ---------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Says which storages are kept; masks and statistics are storages of their own, made beside a tensor."""
        for item in self.kept:
            if item in self.given:
                continue
            if item.tensor in self.shared:  # it is there before the first repetition, and after the last one
                for one in self.storages:
                    one.dies = -1 if self.owner(one.root) == item.tensor else one.dies
                continue
            size = bytes_of(self.setting, item)
            known = [s for s in self.storages if self.owner(s.root) == item.tensor and s.born < self.start
                     and forms.value(s.size) == forms.value(size)]  # fmt: skip
            if not known or item.what not in TENSORS:
                self.storages.append(Storage(item.tensor, size, SAVED, self.first_use(item), self.last_use(item)))
                continue
            last = max(known, key=lambda s: s.dies)
            last.kind = SAVED
            last.dies = len(self.steps) if last.dies < self.start else last.dies
        for item in self.back if any(t.again for t in self.steps) else ():
            if item.what not in TENSORS:
                born = max(self.first_use(item, self.start), self.start)
                self.storages.append(
                    Storage(item.tensor, bytes_of(self.setting, item), PASSING, born, self.last_use(item))
                )

    def cache(self) -> None:
        """Autocast's copies of weights stay until its context ends: they are made once."""
        for one in [s for s in self.storages if s.root in self.copies]:
            if one.born < self.start:
                one.kind, one.dies = COPY, len(self.steps)
            else:
                self.storages.remove(one)

    @cached_property
    def copies(self) -> frozenset[str]:
        """The copies that autocast makes of weights."""
        return frozenset(op.output for op in copies_of_weights(self.graph))

    def drop_units(self) -> None:
        """The weights of a unit are dropped together, behind the last op of the pass that gathered them."""
        units = {stored.partition(" @ ")[0] for stored in self.made.units}
        for one in self.storages:
            if one.root in units and one.kind == PASSING:
                one.dies = (self.start if one.born < self.start else len(self.steps)) - 1

    def end_with_nodes(self) -> None:
        """Autograd makes all gradients of one op before it drops what any of them reads, or adds one to another."""
        computed = [(at, t.work.op) for at, t in enumerate(self.steps)
                    if at >= self.start and not t.again and isinstance(t.work, Compute)]  # fmt: skip
        for _, node in groupby(computed, lambda pair: self.node(pair[1])):
            first, *_, last = [at for at, _ in node] * 2
            for one in self.storages:
                one.dies = last if first <= one.dies < last else one.dies

    def node(self, op: Op) -> tuple[str, ...]:
        """The result whose gradient an op of the backward pass hands on; a sum of gradients stands for itself."""
        tensors = self.graph.tensors
        found = tuple(tensors[name].of for name in op.inputs if tensors[name].role == "gradient")
        return (op.output,) if tensors[op.output].of in found else found

    def owner(self, root: str) -> str:
        """The tensor by whose name a storage is kept: a gathered copy of a view has that of what it views."""
        return storage(self.graph, root, self.setting.accounting)

    def first_use(self, item: Saved, start: int = 0) -> int:
        """When a mask, or the statistics of rows, come into being: with the first op that reads or makes them."""
        for at, turn in enumerate(self.steps[start:], start):
            step = turn.work
            if not isinstance(step, Collective) and (item.tensor in step.op.inputs or step.op.output == item.tensor):
                return at
        return -1

    @cached_property
    def shared(self) -> frozenset[str]:
        """What every repetition of the region reads."""
        return self.graph.shared(self.graph.regions[0]) if len(self.graph.regions) == 1 else frozenset()

    @property
    def shared_sizes(self) -> list[Form]:
        """What is kept of that, once for all repetitions."""
        return [bytes_of(self.setting, item) for item in self.kept if item.tensor in self.shared]

    @property
    def shared_gradients(self) -> list[Form]:
        """The gradients of that, to which each repetition adds its own."""
        names = [gradient_name(name) for name in sorted(self.shared)]
        work = [s.work for s in self.steps]
        made = [w for w in work if isinstance(w, Compute) and w.op.output in names]
        return [self.size(self.graph.tensors[w.op.output], self.part(w.output)) for w in made]

    @cached_property
    def given(self) -> tuple[Saved, ...]:
        """Token ids and labels, which the program holds all the time."""
        return tuple(item for item in self.kept if item.what == "indices" and item.tensor in self.graph.tensors)

    def last_use(self, item: Saved) -> int:
        """When a mask or statistics are read last; indices are inputs, which stay."""
        found = [at for at, t in enumerate(self.steps) if at >= self.start and not t.again and self.needs(t.work, item)]
        return max(found) if found and item.what != "indices" else len(self.steps)

    def needs(self, step: Collective | Compute, item: Saved) -> bool:
        if isinstance(step, Collective):
            return False
        if item.what == "mask":
            return item.tensor in step.op.inputs
        of = [self.autograd.forward_of(step.op), *(self.autograd.before_gain(step.op, name) for name in step.op.inputs)]
        return item.tensor in [made.output for made in of if made is not None]

    # -- what is alive --------------------------------------------------------------------------------------------

    def instructions(
        self, steps: range, run: Callable[[int], OpRun | None], own: Collection[str] | None = None,
        there: Collection[str] = (), closed: bool = False,
    ) -> tuple[Instruction, ...]:  # fmt: skip
        """What some steps keep and free, and the steps themselves as ``run`` has them.

        What is kept for backward is called a temporary where it is not in ``own``; what is ``there`` already is not
        kept again. Where the steps are ``closed``, nothing but what is kept is left.
        """
        end = steps[-1] if steps and (closed or steps[-1] == len(self.steps) - 1) else -1
        stays = (GRADIENT, COPY, SAVED) if closed else (GRADIENT, COPY)
        counted = [s for s in self.storages if s.dies >= 0 and (s.kind != PASSING or self.stored(s.root))]
        found: list[Instruction] = []
        for at in steps:
            found += [Keep(self.kind(s, own), s.size) for s in counted if max(s.born, 0) == at and s.root not in there]
            for inside, gone in self.inside(at):
                one = run(at)
                over = [(self.kind(s, own), s.size) for s in gone]
                found += [*(Free(*piece) for piece in over), *(Keep(PASSING, size) for size in inside)]
                found += [one] if one is not None else []
                found += [*(Free(PASSING, size) for size in inside), *(Keep(*piece) for piece in over)]
            ends = [s for s in counted if (s.dies == at and s.kind not in (GRADIENT, COPY))
                    or (at == end and s.born <= at <= s.dies and s.kind not in stays)]  # fmt: skip
            found += [Free(self.kind(s, own), s.size) for s in ends]
        return tuple(found)

    def kind(self, storage: Storage, own: Collection[str] | None) -> str:
        return PASSING if storage.kind == SAVED and own is not None and storage.root not in own else storage.kind

    def stored(self, root: str) -> bool:
        tensor = self.graph.tensors.get(root)
        if tensor is None:  # the places of chosen experts
            return True
        return root not in self.early and (tensor.of or root) not in self.within

    @cached_property
    def early(self) -> frozenset[str]:
        """The weights whose copies are there for the whole step."""
        return frozenset(call.tensor.partition(" @ ")[0] for _, call in self.made.early)

    @cached_property
    def within(self) -> frozenset[str]:
        """What is never stored: the losses of each position, where eager PyTorch's loss function adds them up itself;
        and the scores of a fused attention, but for those that it hands on.
        """
        collapsing = {name for name, kind in MAP.items() if kind.collapses and kind.eager}
        found = {op.output for op in self.graph.ops if self.eager and op.kind in collapsing and "·" in op.output}
        if self.setting.accounting.softmax == "fused":
            found |= self.graph.scores
        return frozenset(found)

    def alive(self, root: str, at: int) -> bool:
        """Whether a tensor's storage is counted at a step, as kept or as passing."""
        return any(s.root == root and s.born <= at <= s.dies for s in self.storages)

    def born(self, root: str) -> int:
        """The step that makes a tensor's storage."""
        return min((s.born for s in self.storages if s.root == root), default=len(self.steps))

    @property
    def arriving(self) -> list[Form]:
        """The gradients of the outputs, which are there when the backward pass begins."""
        made = {t.work.op.output for t in self.steps if isinstance(t.work, Compute)}
        gradients = (s for s in self.storages if s.root in self.graph.tensors and s.root not in made)
        return [s.size for s in gradients if self.graph.tensors[s.root].role == "gradient"]

    def inside(self, at: int) -> list[tuple[list[Form], list[Storage]]]:
        """What the ops of autograd behind a gradient have of their own, one after the other, and what is gone by then.

        Cross-entropy is a logarithm of softmax and a choice: the gradient of the first is as large as the logits. A sum
        to which the gradient belongs takes it in as soon as the first of the ops has made its part.
        """
        step = self.steps[at].work
        forward = self.autograd.forward_of(step.op) if isinstance(step, Compute) else None
        if forward is None or not isinstance(step, Compute) or self.autograd.parts_of(forward) is None:
            return [([], [])]
        made, own = self.key(step.op.output, step.output)[0], forward.output
        whole = self.size(self.graph.tensors[step.op.output], self.part(step.output))
        beside = [i for i in self.kept if i.tensor == own and i.what not in TENSORS and self.last_use(i) == at]
        sizes = [
            size for size in (bytes_of(self.setting, i) for i in beside) if forms.value(size) != forms.value(whole)
        ]
        gone = [Storage(own, size, SAVED, 0, at) for size in sizes]
        gone += [
            s for s in self.storages if (s.kind, s.dies) == (PASSING, at) and s.root != made and self.stored(s.root)
        ]
        ops = INSIDE_BY_HAND if forward.kind in BY_HAND else MAP[forward.kind].gradients_inside
        pieces = {"copy": [whole], "row": sizes}
        return [([size for name in op for size in pieces[name]], gone if n else []) for n, op in enumerate(ops)]

    def keep_tables(self, nothing: bool) -> None:
        """The masks (a byte an element) and rotations (a cosine and a sine a pair) that a layer makes for itself."""
        for at, turn in enumerate(self.steps):
            step = turn.work
            if phase_of(step) != "forward" or isinstance(step, Collective) or step.op.kind not in ("mask", "rope"):
                continue
            kept = not nothing and step.op.output not in self.again
            last = len(self.steps) if kept or turn.again else at
            for name, indices in zip(step.op.inputs[1:], step.op.indices[1:], strict=True):
                part = tuple(sorted(mesh for mesh, index in step.cuts if index in indices))
                width = element_bytes("bool") if step.op.kind == "mask" else None
                size = self.size(self.graph.tensors[name], part, width)
                size = size if step.op.kind == "mask" else forms.Ratio(size, forms.num(2))
                self.storages.append(Storage(name, size, SAVED if kept else PASSING, at, last))
                if kept:
                    self.constants.append(size)

    def shown(self, at: int) -> str:
        """What a step does, for a reader: the tensor it makes, or the collective."""
        graph, turn = self.graph, self.steps[at]
        step, again = turn.work, " again" if turn.again else ""
        if isinstance(step, Collective):
            base = graph.tensors[step.tensor.split(" @ ")[0]]
            if base.role == "statistic":
                return f"the {step.kind} of `{base.name}`{again}"
            name = bare((base.of or base.name).split("·")[0])
            of = f"the gradient of `{name}`" if base.of else f"`{name}`"
            return f"the {step.kind} of {of}{again}"
        made = graph.tensors[step.op.output]
        name = bare((made.of or made.name).split("·")[0])
        return f"the gradient of `{name}`" if made.of else f"`{name}`{again}"


def bytes_of_weight(
    setting: Setting, strategy: Strategy, weight: Tensor, part: Iterable[str], width: int | Fraction
) -> Form:
    elements = setting.graph.elements(weight.name)
    for mesh in part:
        elements = elements / forms.value(strategy.sizes[mesh])
    return product(setting.written(elements), Num(Fraction(width), element_bytes("fp8").unit))
