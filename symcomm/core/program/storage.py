"""Storage: what the instructions of one region's pass keep and free, derived from what they read and make.

A storage is known by its key: the tensor whose memory it is (views and gathered copies have that of what they view or
copy), what stands beside that tensor (a mask, statistics of rows), and the axes of the mesh that cut it. It is born by
the instruction that makes it and dies behind the last one that reads it; what runs again begins another life. An
activation that is alive when the backward pass begins is saved; any other one is temporary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from itertools import groupby

from symcomm.core.form import Form, value
from symcomm.core.graph.autocast import copies_of_weights
from symcomm.core.graph.gradient import gradient_name
from symcomm.core.graph.graph import Op
from symcomm.core.graph.ops import BY_HAND, INSIDE_BY_HAND, MAP
from symcomm.core.libraries import Expr
from symcomm.core.parallel.placement import Collective, Compute, Layout
from symcomm.core.program.autograd import AS_MADE, Autograd, Key, Saved, cut_meshes
from symcomm.core.program.instructions import TIERS, Instruction, Program, Send, made_by, weights_gathered
from symcomm.core.records import dataclass

SAVED, PASSING, GRADIENT, COPY = "saved activations", "temporaries", "gradients", "copies of weights"
AHEAD = "weights of the next layers"
Measure = Callable[["Expr", str], Form]  # the bytes of some numbers in a format, or of a weight, gradient or state


@dataclass
class Life:
    """A storage with the first and the last step during which it is there; -1 is before the first step."""

    key: Key
    size: Form
    kind: str
    born: int
    dies: int

    @property
    def root(self) -> str:
        """The tensor whose memory it is."""
        return self.key[0]


@dataclass
class Line:
    """The storages of one region's plan, with the steps between which they are alive.

    Where the program's recomputation is ``nothing``, not even the layer's input is kept, as inside of a group of layers
    that is computed again as a whole.
    """

    autograd: Autograd
    made: Program
    measure: Measure
    rests: Callable[[str], tuple[str, ...]]  # the mesh axes that cut the gradient of a weight that is kept
    tables: bool = False  # each layer makes its masks and rotations for itself
    added: frozenset[str] = frozenset()  # weights with a gradient already: a new one is added as soon as it is made
    split: bool = False  # the half W of the backward pass runs after the half B
    unreduced: bool = False  # the gradients of weights stay as each rank has made them
    hands: frozenset[str] = frozenset()  # tied weights: a part of their gradient goes to an earlier region of the rank
    tied: frozenset[str] = frozenset()  # tied weights of which a later region of the rank has made such a part
    lives: list[Life] = field(default_factory=list)
    current: dict[Key, Life] = field(default_factory=dict)
    unborn: list[Key] = field(default_factory=list)
    handed: dict[str, Form] = field(default_factory=dict)  # parts of gradients that are gone when they are added
    alone: dict[str, Key] = field(default_factory=dict)  # gradients with one part, and that
    copied: list[Life] = field(default_factory=list)  # of weights that rest on the host
    fetched: dict[bool, list[Form]] = field(default_factory=lambda: {True: [], False: []})  # ahead, in forward or not

    def __post_init__(self) -> None:
        self.plan, self.graph = self.made.plan, self.made.plan.graph
        self.eager = self.autograd.eager
        self.nothing = self.made.recomputation == "nothing"
        self.kept = () if self.nothing else self.autograd.kept(self.made.dropped, self.made.runs)
        self.steps = [instruction for instruction in self.made.instructions if self.passes(instruction)]
        self.start = next((n for n, t in enumerate(self.steps) if t.phase != "forward"), len(self.steps))
        if self.split:
            self.steps.sort(key=lambda t: t.half == "W")
        self.middle = sum(not self.split or t.half != "W" for t in self.steps)
        for at, instruction in enumerate(self.steps):
            if isinstance(instruction.work, Compute):
                self.computes(instruction, instruction.work, at)
            elif isinstance(instruction.work, Collective):
                self.moves(instruction.work, at, instruction.ring)
            elif instruction.work.meshes not in TIERS["nvme"]:
                self.copies_to_host(instruction, instruction.work, at)
        for life in self.lives:
            if life.kind == PASSING and life.born < self.start <= life.dies and self.activation(life.root):
                life.kind = SAVED
        self.drop_units()
        if self.autograd.accounting.weight_copies == "kept_in_context":
            self.cache()
        again = any(instruction.phase == "recompute" for instruction in self.steps)
        if self.eager and not self.split and (self.made.recomputation == "full" or not again):
            self.end_with_nodes()
        if self.tables:
            self.keep_tables()

    def passes(self, instruction: Instruction) -> bool:
        """Whether an instruction is of this region's passes, and makes something that is stored.

        The backward pass of a kernel stores nothing that it computes again, and what no gradient reads is not there.
        """
        home = {region.name for region in self.graph.regions}
        work, elsewhere = instruction.work, bool(home) and instruction.region.name not in home
        if instruction.early or instruction.between_stages or instruction.phase == "update" or elsewhere:
            return False
        last = work.tensor if isinstance(work, Send) else getattr(work, "stored", "")
        if self.unreduced and last in self.finished:
            return False
        makes, backward = {made_by(instruction), getattr(work, "stored", "")}, instruction.kernel.endswith(" backward")
        return instruction.phase != "recompute" or bool(makes & self.made.needed and not backward)

    # -- the walk -------------------------------------------------------------------------------------------------

    def root(self, name: str) -> str:
        return self.autograd.root(name)

    def key(self, stored: str, layout: Layout) -> Key:
        base = stored.partition(" @ ")[0]
        return self.root(base), "", self.autograd.part(base, layout)

    def size(self, key: Key) -> Form:
        item = self.items.get(key)
        if item is not None:
            return self.measure(item.elements, item.dtype)
        tensor = self.graph.tensors[key[0]]
        dtype = tensor.dtype or (self.graph.tensors[tensor.of].dtype if tensor.of in self.graph.tensors else None)
        return self.measure(self.autograd.cut(self.graph.elements(key[0]), key[2]), dtype or self.autograd.dtype)

    @cached_property
    def items(self) -> dict[Key, Saved]:
        """The tensor that gradients read, by its key."""
        return {item.key: item for item in self.autograd.kept()}

    @cached_property
    def beside(self) -> dict[str, list[Saved]]:
        """The further results of an op, by its first one."""
        found: dict[str, list[Saved]] = {}
        for item in self.items.values():
            for maker in item.makers if not item.is_tensor else ():
                found.setdefault(maker, []).append(item)
        return found

    def put(self, key: Key, kind: str, born: int, dies: int, size: Form | None = None) -> Life:
        life = Life(key, size or self.size(key), kind, born, dies)
        self.lives.append(life)
        self.current[key] = life
        return life

    def find(self, key: Key) -> Life | None:
        """The storage of a key; of what a rank has more of than it reads, the smallest."""
        if key in self.current:
            return self.current[key]
        larger = [k for k in self.current if k[:2] == key[:2] and {*k[2]} < {*key[2]}]
        return self.current[max(larger, key=lambda k: len(k[2]))] if larger else None

    def reads(self, key: Key, at: int) -> None:
        life = self.find(key)
        if life is None:  # it was there before the first step: an input, or the gradient of an output
            tensor = self.graph.tensors.get(key[0])
            born = self.start if tensor is not None and tensor.role == "gradient" else -1
            life = self.put(key, PASSING, born, born)
            self.unborn.append(key)
        life.dies = max(life.dies, at)

    def reads_tensor(self, stored: str, layout: Layout, at: int) -> None:
        """A read of a tensor; weights and tables stay where they are, statistics and one-hot tensors are small."""
        base, _, copy = stored.partition(" @ ")
        tensor, key = self.graph.tensors[base], self.key(stored, layout)
        weight = self.graph.tensors[key[0]].role == "weight" and not copy and "weight" not in self.made.host
        small = tensor.virtual or tensor.role == "statistic" or (tensor.role == "constant" and not copy)
        if not (weight or small or self.elsewhere(base)):
            self.reads(key, at)

    def computes(self, instruction: Instruction, work: Compute, at: int) -> None:
        """A computation: in the backward pass it reads of the forward pass what autograd has kept."""
        reads = list(zip(work.reads, work.layouts, strict=True))
        if instruction.phase == "backward":
            reads = [(stored, layout) for _, stored, layout, _ in self.autograd.operands(work)
                     if not self.activation(stored.partition(" @ ")[0])]  # fmt: skip
            if work.op.kind == "add" and self.graph.tensors[work.op.output].role == "gradient":
                reads = self.sums(work.op.output, reads, at)
        for stored, layout in reads:
            self.reads_tensor(stored, layout, at)
        for item in () if self.nothing else self.autograd.read_by(work):
            for source in self.autograd.sources(item):
                if source.key not in self.given:
                    self.reads(source.key, at)
        if work.part == "statistics":
            return
        for item in self.beside.get(work.op.output, ()) if work.op.phase == "forward" else ():
            known = self.current.get(item.key)
            if known is None or (known.born < self.start <= at):
                self.put(item.key, PASSING, at, at)
        self.makes(work.op.output, work.output, at, instruction.ring)

    def block(self, key: Key, ring: str, blocks: int = 1) -> Form:
        """The size of so many blocks of what goes round a ring; all of it where nothing does, or it is cut already."""
        if not ring or ring in key[2]:
            return self.size(key)
        tensor = self.graph.tensors[key[0]]
        part = self.autograd.cut(self.graph.elements(key[0]), tuple(sorted((*key[2], ring))))
        return self.measure(blocks * part, tensor.dtype or self.autograd.dtype)

    def loop_end(self, at: int) -> int:
        """The last step of the loop round a ring that a step begins: what passes is there until then."""
        instruction, again = self.steps[at], ("recompute", "backward")
        same = [n for n, t in enumerate(self.steps) if n >= at and t.ring == instruction.ring
                and (t.phase == instruction.phase or {t.phase, instruction.phase} <= {*again})]  # fmt: skip
        return same[-1]

    def activation(self, name: str) -> bool:
        """Whether it is of the forward pass: no weight, and no gradient."""
        tensor = self.graph.tensors.get(name)
        return tensor is None or tensor.role not in ("weight", "gradient")

    def makes(self, name: str, layout: Layout, at: int, ring: str = "") -> None:
        """A new storage; a view and a virtual tensor make none. Of what goes round a ring one block is there."""
        tensor, key = self.graph.tensors[name], self.key(name, layout)
        if tensor.virtual:
            return
        if key[0] != name and (self.find(key) is not None or self.graph.tensors[key[0]].role == "weight"):
            return
        if name in self.finished:
            if name in self.alone:  # the other parts are on other stages: there is nothing to add
                self.takes_over(tensor.of, key, self.alone[name])
            elif not self.elsewhere(name):  # else the part is added to the gradient that is there already
                self.finish(tensor.of, key, at)
            return
        weight = tensor.role == "gradient" and self.graph.tensors[tensor.of].role == "weight"
        weight = weight and name not in self.reduced
        unread = tensor.role == "gradient" and name not in self.graph.consumers
        if weight and unread:  # a part of the gradient of a weight that another region has, too, and adds its own to
            whole = tensor.of in self.hands and key[2] != self.rests(tensor.of)  # until the part of the other is there
            if tensor.of in self.added and not whole:
                self.put(key, PASSING, at, at)
            else:
                self.put(key, GRADIENT, at, len(self.steps), self.gradient(tensor.of, key[2]))
            return
        # The gradient of an input goes on to what made the input: it is there until the pass ends.
        end = self.middle - 1 if self.split else len(self.steps)
        self.put(key, PASSING, at, end if unread else at, self.block(key, ring))

    def elsewhere(self, name: str) -> bool:
        """Whether a tensor is a weight's gradient that is counted where another region makes a part of it."""
        tensor, made = self.graph.tensors[name], self.graph.producers.get(name)
        of = self.graph.tensors.get(tensor.of)  # none: a gradient that another region's sum passes on as it is
        if tensor.role != "gradient" or of is None or of.role != "weight" or name in self.alone:
            return False
        return made is None or (
            name in self.finished and tensor.of in self.added | self.tied and any(map(self.elsewhere, made.inputs))
        )

    def copies_to_host(self, instruction: Instruction, work: Send, at: int) -> None:
        """A copy between a rank and its host: what went there in the forward pass is there again when it comes back.

        A weight is there from its copy on. The gradient of a weight is gone with it; one to which another region has
        added its part, when the pass of this region ends.
        """
        tensor = self.graph.tensors[work.tensor]
        if tensor.role == "weight":
            self.copied.append(self.put(self.key(work.tensor, work.layout), PASSING, at, at))
        elif tensor.name in self.sent:
            made = self.key(tensor.name, work.layout)
            if self.find(made) is None:
                self.handed[tensor.of] = self.gradient(tensor.of, made[2])
            else:
                self.reads(made, at)
        key = next((one.key for one in self.kept if (one.tensor, one.elements) == (work.tensor, work.elements)), None)
        if key is None:
            return
        if instruction.phase == "forward":
            self.reads(key, at)
        else:
            self.put(key, PASSING, at, at)

    def moves(self, work: Collective, at: int, ring: str = "") -> None:
        """A collective works in place where each rank has as much after it as before.

        Of what goes round a ring two blocks are there, one that is read and one that arrives; of sums, one of each.
        """
        base = work.tensor.partition(" @ ")[0]
        self.reads_tensor(work.tensor, work.before, at)
        if cut_meshes(work.before) == cut_meshes(work.after) or self.graph.tensors[base].role == "statistic":
            root, _, part = self.key(work.tensor, work.before)
            if (root, AS_MADE, part) in self.items and work.stored == base and work.phase != "backward":
                self.put((root, AS_MADE, part), PASSING, at, at)  # a kernel reads what is exchanged in its own place
            return
        key = self.key(base if base in self.reduced else work.stored, work.after)
        if work.stored in self.finished:
            self.finish(self.graph.tensors[base].of, key, at)
        else:
            last = self.loop_end(at) if work.kind == "ring-pass" else at
            self.put(key, PASSING, at, last, self.block(key, ring, 2))
            if work.dtype:  # the sum that arrives, in its own format
                size = self.measure(self.autograd.cut(self.graph.elements(key[0]), key[2]), work.dtype)
                self.lives.append(Life((base, "the sum that arrives", key[2]), size, PASSING, at, at))

    @cached_property
    def reduced(self) -> frozenset[str]:
        """The parts of gradients of weights of which a rank keeps a part: another stage has the other ones."""
        calls = [instruction.work for instruction in self.steps if isinstance(instruction.work, Collective)]
        return frozenset(c.tensor for c in calls if c.stored in self.finished and c.tensor != c.stored
                         and cut_meshes(c.before) != cut_meshes(c.after))  # fmt: skip

    def finish(self, name: str, key: Key, at: int) -> None:
        """The gradient of a weight: a state once it is as it will be kept, before that a tensor like any other."""
        there = name in self.added or (name in self.tied and name not in self.handed)
        if not there and key[2] == self.rests(name) and gradient_name(name) not in self.sent:
            self.put(key, GRADIENT, at, len(self.steps), self.gradient(name, key[2]))
        else:
            self.put(key, PASSING, at, at)

    def takes_over(self, name: str, key: Key, part: Key) -> None:
        """The gradient of a weight is its only part."""
        life = self.find(part)
        assert life is not None
        self.current[key] = life
        if key[2] == self.rests(name) and name not in self.added and gradient_name(name) not in self.sent:
            life.kind, life.dies, life.size = GRADIENT, len(self.steps), self.gradient(name, key[2])

    def gradient(self, weight: str, part: tuple[str, ...]) -> Form:
        return self.measure(self.autograd.cut(self.graph.elements(weight), part), "gradient")

    @cached_property
    def sent(self) -> frozenset[str]:
        """The gradients of weights that go to the host when they are made."""
        sends = (instruction.work.tensor for instruction in self.steps if isinstance(instruction.work, Send))
        return frozenset(sends) & self.finished

    @cached_property
    def finished(self) -> frozenset[str]:
        return frozenset(gradient_name(w.name) for w in self.graph.weights)

    def sums(self, made: str, reads: list[tuple[str, Layout]], at: int) -> list[tuple[str, Layout]]:
        """The gradients that a sum still reads when it is made: each was added to the first as soon as it was made.

        The sum takes the place of the first one, as PyTorch's engine does it, where nothing reads that afterwards.
        """
        other = [(stored, cut_meshes(layout)) for stored, layout in reads if self.elsewhere(stored.partition(" @ ")[0])]
        weights = [(self.graph.tensors[stored.partition(" @ ")[0]].of, part) for stored, part in other]
        handed = (one for one in weights if one[0] in self.tied and one[1] != self.rests(one[0]))
        self.handed |= {name: self.gradient(name, part) for name, part in handed}
        reads = [(stored, layout) for stored, layout in reads if not self.elsewhere(stored.partition(" @ ")[0])]
        if len(reads) < 2:
            if weights and weights[0][0] not in self.tied:
                self.alone[made] = self.key(*reads[0])
            return reads
        for stored, layout in reads:
            if self.find(self.key(stored, layout)) is None:
                self.reads(self.key(stored, layout), self.start)
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
        steps = enumerate(instruction.work for instruction in self.steps)
        return {name: at for at, step in steps
                for name in (step.reads if isinstance(step, Compute) else [step.tensor])}  # fmt: skip

    # -- the engine's habits --------------------------------------------------------------------------------------

    def drop_units(self) -> None:
        """The weights of a unit are dropped together behind a pass; weights fetched early come before it."""
        units = {stored.partition(" @ ")[0] for stored in self.made.units}
        early = self.made.accounting.prefetch != "as_read"
        calls = [call for _, call in weights_gathered(self.steps, self.graph) if early]
        gathered = {call.stored.partition(" @ ")[0] for call in calls if call.stored not in self.made.kept}
        copied = {life.root for life in self.copied if early} - gathered
        for one in self.lives:
            here = any(one is copy for copy in self.copied)
            if one.kind == PASSING and (one.root in copied if here else one.root in units | gathered):
                forward = one.born < self.start
                one.dies = (self.start if forward else len(self.steps)) - 1
                one.born = (0 if forward else self.start) if early else one.born
                self.fetched[forward] += [one.size] if early else []

    def cache(self) -> None:
        """Autocast's copies of weights stay until its context ends: they are made once."""
        for one in [life for life in self.lives if life.root in self.copies]:
            if one.born < self.start:
                one.kind, one.dies = COPY, len(self.steps)
            else:
                self.lives.remove(one)

    @cached_property
    def copies(self) -> frozenset[str]:
        """The copies that autocast makes of weights."""
        return frozenset(op.output for op in copies_of_weights(self.graph))

    def end_with_nodes(self) -> None:
        """Autograd makes all gradients of one op before it drops what any of them reads, or adds one to another."""
        computed = [(at, t.work.op) for at, t in enumerate(self.steps)
                    if t.phase == "backward" and isinstance(t.work, Compute)]  # fmt: skip
        ends: dict[int, int] = {}
        for _, node in groupby(computed, lambda pair: self.node(pair[1])):
            first, *_, last = [at for at, _ in node] * 2
            ends |= dict.fromkeys(range(first, last), last)
        for one in self.lives:
            one.dies = ends.get(one.dies, one.dies)

    def node(self, op: Op) -> tuple[str, ...]:
        """The result whose gradient an op of the backward pass hands on; a sum of gradients stands for itself.

        The kernel of an attention hands on all of its gradients at once.
        """
        tensors = self.graph.tensors
        if self.autograd.kernels and op.output in self.graph.kernels:
            return (self.graph.kernels[op.output],)
        found = tuple(tensors[name].of for name in op.inputs if tensors[name].role == "gradient")
        return (op.output,) if tensors[op.output].of in found else found

    @cached_property
    def dying(self) -> dict[int, list[Life]]:
        """The storages by the step that they end with."""
        found: dict[int, list[Life]] = {}
        for one in self.lives:
            found.setdefault(one.dies, []).append(one)
        return found

    def inside(self, at: int) -> list[tuple[list[Form], list[Life]]]:
        """The tensors of the autograd ops behind a gradient, one after the other, and those that are gone by then.

        Cross-entropy is a logarithm of softmax and a choice: the gradient of the first is as large as the logits. A sum
        to which the gradient belongs takes it in as soon as the first of the ops has made its part.
        """
        step = self.steps[at].work
        forward = self.autograd.forward_of(step.op) if isinstance(step, Compute) else None
        if forward is None or not isinstance(step, Compute) or self.autograd.parts_of(forward) is None:
            return [([], [])]
        made = self.key(step.op.output, step.output)
        whole = self.size(made)
        last = [one for one in self.dying.get(at, ()) if one.key != made and self.counts(one)]
        rows = [one for one in last if one.key[:1] == (forward.output,) and one.key[1] and
                value(one.size) != value(whole)]  # fmt: skip
        gone = [*rows, *(one for one in last if one.kind == PASSING and one not in rows)]
        ops = INSIDE_BY_HAND if forward.kind in BY_HAND else MAP[forward.kind].gradients_inside
        pieces = {"copy": [whole], "row": [one.size for one in rows]}
        return [([size for name in op for size in pieces[name]], gone if n else []) for n, op in enumerate(ops)]

    def keep_tables(self) -> None:
        """The masks (a byte an element) and rotations (a cosine and a sine a pair) that a layer makes for itself."""
        for at, instruction in enumerate(self.steps):
            work = instruction.work
            if instruction.phase == "backward" or not isinstance(work, Compute) or work.op.kind not in ("mask", "rope"):
                continue
            kept = not self.nothing and work.op.output not in self.made.needed
            mask = work.op.kind == "mask"
            for name, indices in zip(work.op.inputs[1:], work.op.indices[1:], strict=True):
                part = tuple(sorted(mesh for mesh, index in work.cuts if index in indices))
                elements = self.autograd.cut(self.graph.elements(name), part)
                dtype = "bool" if mask else self.graph.tensors[name].dtype or self.autograd.dtype
                size = self.measure(elements if mask else elements / 2, dtype)
                last = len(self.steps) if kept or instruction.phase == "recompute" else at
                self.lives.append(Life((name, "", part), size, SAVED if kept else PASSING, at, last))

    # -- what is alive --------------------------------------------------------------------------------------------

    def counts(self, life: Life) -> bool:
        """Whether a storage is one of this region's pass: not of the step, and no scores inside of a kernel."""
        root, beside, _ = life.key
        tensor = self.graph.tensors.get(root)
        if life.dies < 0 or (root in self.shared and not beside and life.born < 0):
            return False
        if tensor is None or beside or life.kind != PASSING:
            return True
        return root not in self.early and (tensor.of or root) not in self.within

    @cached_property
    def early(self) -> frozenset[str]:
        """The weights whose copies are there for the whole step."""
        return frozenset(call.tensor.partition(" @ ")[0] for _, call in self.made.early)

    @cached_property
    def within(self) -> frozenset[str]:
        """The tensors that are never stored. These are the losses of each position, where eager PyTorch's loss function
        adds them up, and the scores of a fused attention, except those that it hands on.
        """
        collapsing = {name for name, kind in MAP.items() if kind.collapses and kind.eager}
        found = {op.output for op in self.graph.ops if self.eager and op.kind in collapsing and "·" in op.output}
        return frozenset(found) | self.autograd.inner

    @cached_property
    def shared(self) -> frozenset[str]:
        """The tensors that every repetition of the region reads, there before the first and after the last one."""
        return self.graph.shared(self.graph.regions[0]) if len(self.graph.regions) == 1 else frozenset()

    @property
    def shared_gradients(self) -> list[Form]:
        """The gradients of that, to which each repetition adds its own."""
        names = [gradient_name(name) for name in sorted(self.shared)]
        made = [s.work for s in self.steps if isinstance(s.work, Compute) and s.work.op.output in names]
        return [self.size((w.op.output, "", cut_meshes(w.output))) for w in made]

    @cached_property
    def given(self) -> dict[Key, Saved]:
        """Token ids and labels, which the program holds all the time."""
        return {item.key: item for item in self.items.values() if item.what == "indices" and not item.makers}

    @property
    def roots(self) -> frozenset[str]:
        """The tensors that are kept."""
        return frozenset(item.tensor for item in self.kept if item.is_tensor)

    @property
    def arriving(self) -> list[Form]:
        """The gradients of the outputs, which are there when the backward pass begins."""
        made = {t.work.op.output for t in self.steps if isinstance(t.work, Compute)}
        found = (one for one in self.lives if one.root in self.graph.tensors and one.root not in made)
        return [one.size for one in found if self.graph.tensors[one.root].role == "gradient"]

    def alive(self, root: str, at: int) -> bool:
        """Whether a tensor's storage is counted at a step, as kept or as passing."""
        return any(one.root == root and one.born <= at <= one.dies for one in self.lives)

    def born(self, root: str) -> int:
        """The step that makes a tensor's storage."""
        return min((one.born for one in self.lives if one.root == root), default=len(self.steps))
