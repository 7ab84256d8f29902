"""The work of one rank in a training step: operations, memory traffic and calls, read off the plan of a strategy.

Nothing is counted twice and nothing is assumed per layer type: every op of the forward and backward pass is divided
over the ranks as the plan places it, and every collective is one the plan needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache

from symcomm.core import form as forms
from symcomm.core.accounting import Accounting
from symcomm.core.errors import AccountingError
from symcomm.core.form import Form, Ratio, num, product
from symcomm.core.graph.experts import EXPERTS_READ, chosen_experts
from symcomm.core.graph.gradient import trains_inputs
from symcomm.core.graph.graph import KEPT, Graph, Op, Region
from symcomm.core.libraries import Expr
from symcomm.core.parallel.placement import PARTIAL, Compute, Plan
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.program.instructions import Program
from symcomm.core.program.program import batch_of, program, unstaged
from symcomm.core.quantities.communication.call import Call, calls
from symcomm.core.quantities.counting.flops import counted, counts, shared_pairs
from symcomm.core.records import dataclass, replace
from symcomm.core.setting import Setting

ONE_DEVICE = Strategy("One device", (), (), "Everything runs on one device.")


@dataclass(frozen=True)
class Traffic:
    """A traffic convention: how often each kind of use moves a tensor, and whether collectives go through memory.

    The kinds of use: ``weight``, ``activation`` and ``gradient`` are read, ``saved`` is a tensor of the forward pass
    read in backward, ``result`` and ``weight_gradient`` are written. Of a step of generating text it may be the
    ``ends`` alone that move: weights, the ``cache`` and rows of an ``embedding`` are read, new rows of the cache (a
    ``result``) and ``logits`` are written.
    """

    name: str
    times: Mapping[str, int]
    collectives: bool
    ends: bool = False


USES = ("weight", "activation", "saved", "gradient", "result", "weight_gradient")
# One row a traffic convention; a use that is not named moves nothing.
TRAFFIC: dict[str, Traffic] = {
    t.name: t
    for t in (
        Traffic("compulsory", dict.fromkeys(USES, 1), collectives=False),
        *(
            Traffic(name, dict.fromkeys(uses.split(), 1), collectives=False, ends=True)
            for name, uses in (
                ("weights_and_cache", "weight embedding cache result logits"),
                ("matrices_and_cache", "weight cache result"),
                ("matrices_and_cache_read", "weight cache"),
                ("matrices", "weight"),
            )
        ),
        Traffic("weights_and_reloaded_activations", {"weight": 1, "saved": 1, "weight_gradient": 2}, collectives=True),
    )
}


@dataclass(frozen=True)
class Moved:
    """A tensor that an op moves between memory and processor: which, as what, how often, how many elements a rank.

    It does so ``by`` some conventions.
    """

    tensor: str
    use: str
    times: int
    elements: Form
    dtype: str
    by: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class OpLoad:
    """One op on one rank: its operations and what it moves."""

    op: Op
    phase: str
    flops: Form
    moved: tuple[Moved, ...]
    cuts: tuple[tuple[int, str], ...] = ()
    again: bool = False  # it is recomputed
    every: bool = True  # the model's first layer has it, too
    half: str = ""  # of the backward pass
    kernel: str = ""  # ops of one kernel run in one launch
    pairs: tuple[str, ...] = ()  # mesh axes along which ranks share the queries of a causal attention
    by: tuple[str, ...] = field(default=(), compare=False)  # conventions that decide its operations

    @property
    def launch(self) -> tuple[str, bool]:
        """The kernel it runs in, and whether that is one of the forward pass that runs again."""
        return self.kernel, self.again and self.kernel.endswith(" forward")


@dataclass(frozen=True)
class Load:
    """The work of a rank for one repetition of each region: ops and calls by phase (``end`` after the batch)."""

    graph: Graph
    strategy: Strategy
    ops: tuple[OpLoad, ...]
    calls: tuple[tuple[str, Call], ...]
    whole: bool = False  # all regions of a model, also where only one of them does anything

    def part(self, op: Callable[[OpLoad], bool], call: Callable[[str, Call], bool]) -> Load:
        """The ops, and the calls with their phases, that are chosen."""
        calls = tuple((phase, one) for phase, one in self.calls if call(phase, one))
        return replace(self, ops=tuple(one for one in self.ops if op(one)), calls=calls)

    def of(self, *phases: str) -> Load:
        """The part of some phases."""
        return self.part(lambda one: one.phase in phases, lambda phase, _: phase in phases)

    def region(self, name: str) -> Load:
        """The part of one region."""
        return self.part(lambda one: one.op.region == name, lambda _, call: call.region.name == name)

    @cached_property
    def first(self) -> Load:
        """The part that the model's first layer has, too."""
        return self.part(lambda one: one.every, lambda _, call: call.every)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """The regions that do anything, in order; all those of a whole model."""
        busy = {o.op.region for o in self.ops} | {c.region.name for _, c in self.calls}
        return tuple(region for region in self.graph.regions if self.whole or region.name in busy)

    def row(self, setting: Setting, op: str | None) -> Load:
        """The part of the table row that computes one tensor; its calls are left out."""
        if op is None:
            return replace(self, whole=True)
        wanted = {o.row for o in setting.rows(op).ops}
        return self.part(lambda one: one.op.row in wanted, lambda *_: False)


def divided(form: Form, strategy: Strategy, meshes: tuple[str, ...]) -> Form:
    """A count divided over mesh axes."""
    parts = [strategy.sizes[m] for m in meshes if strategy.sizes[m] != num(1)]
    return Ratio(form, product(*parts)) if parts else form


def last_part(accounting: Accounting, pairs: tuple[str, ...]) -> tuple[str, ...]:
    """Of the mesh axes along which ranks share queries those along which the last rank has the most pairs."""
    return pairs if accounting.context_order != "balanced" else ()


def degrees(strategy: Strategy, meshes: Iterable[str]) -> Form | None:
    """How many ranks there are along some mesh axes; None along none."""
    sizes = [strategy.sizes[mesh] for mesh in meshes]
    return product(*sizes) if sizes else None


def load(setting: Setting, strategy: Strategy, gradient_dtype: str | None = None) -> Load:
    """The work of one rank for one repetition of each region and one microbatch.

    Raises ``AccountingError`` where exact additions are asked for and a summed axis is cut.
    """
    keeps = setting.keeps if isinstance(setting.keeps, str) else ", ".join(f"{n}={b}" for n, b in setting.keeps.items())
    return _load(setting.graph, setting.accounting, setting.dtype, strategy, setting.frozen, gradient_dtype, keeps)


@lru_cache(maxsize=64)
def _load(
    model: Graph, accounting: Accounting, dtype: str, strategy: Strategy, frozen: frozenset[str],
    gradient_dtype: str | None, keeps: str,
) -> Load:  # fmt: skip
    setting = Setting(model, accounting, dtype, frozen=frozen, keeps=keeps)
    shared = replace(accounting, recomputation=Accounting.recomputation)
    graph, ops = _computed(model, shared, dtype, unstaged(strategy), frozen)
    made = program(model, strategy, accounting, frozen)
    counts, run = {one.op.output: one for one in ops}, list[OpLoad]()
    for instruction in made.instructions:
        one = counts.get(instruction.work.op.output) if isinstance(instruction.work, Compute) else None
        if one is not None and isinstance(instruction.work, Compute) and instruction.work.part != "statistics":
            again = instruction.phase == "recompute"
            moved = tuple(replace(m, by=(*m.by, *instruction.by)) for m in one.moved) if instruction.by else one.moved
            run.append(replace(one, phase="backward" if again else one.phase, again=again, every=instruction.every,
                               half=instruction.half, kernel=instruction.kernel, moved=moved,
                               by=(*one.by, *instruction.by)))  # fmt: skip
    phases = {"recompute": "backward"}
    every = calls(setting, strategy, gradient_dtype, copies=True)
    timed = tuple(("end" if c.once else phases.get(c.phase, c.phase), c) for c in every)
    run = sorted(run, key=lambda one: one.again)
    return Load(graph, strategy, _inside_kernels(setting, made, run) if made.inside else tuple(run), timed)


def launches(load: Load) -> list[list[OpLoad]]:
    """The ops of a load by what runs in one launch, in the order of the first of each."""
    found: dict[tuple[object, ...], list[OpLoad]] = {}
    for n, one in enumerate(load.ops):
        found.setdefault((one.launch,) if one.kernel else (n,), []).append(one)
    return [*found.values()]


def _inside_kernels(setting: Setting, made: Program, ops: Sequence[OpLoad]) -> tuple[OpLoad, ...]:
    """The ops with what kernels move: each reads an operand once, and nothing that is made inside goes to memory.

    The backward pass of attention reads its result as well: with its gradient it gives the sums of the rows.
    """
    read: dict[tuple[str, bool], set[str]] = {}
    found: list[OpLoad] = []
    for one in ops:
        if not one.kernel:
            found.append(one)
            continue
        launch = one.launch
        moved = list(one.moved)
        if launch not in read and one.kernel.endswith(" backward"):
            forward = one.kernel.removesuffix("backward") + "forward"
            results = [o.op for o in ops if o.kernel == forward and not o.again and o.op.output not in made.inside]
            moved += [m for op in results for m in _moved_tensor(setting, made.plan, op.output, op, "saved")]
        known = read.setdefault(launch, set())
        moved = [m for m in moved if m.tensor not in known]
        known |= {m.tensor for m in moved}
        found.append(replace(one, moved=tuple(moved)))
    return tuple(found)


@lru_cache(maxsize=64)
def _computed(
    model: Graph, accounting: Accounting, dtype: str, strategy: Strategy, frozen: frozenset[str]
) -> tuple[Graph, tuple[OpLoad, ...]]:
    """The training graph, and what a rank computes for one microbatch."""
    setting = Setting(model, accounting, dtype, frozen=frozen)
    whole = program(model, strategy, accounting, frozen)
    made, graph = whole.plan, whole.graph
    backward = ("input_gradient",) if not model.repeat and trains_inputs(model) else ()
    ops: list[OpLoad] = []
    for step in whole.works():
        if not isinstance(step, Compute) or step.part == "statistics":  # an op is counted once, with all its parts
            continue
        cut = made.cuts[step.op.output]
        setting.taken()
        pairs = shared_pairs(setting, graph, step.op, cut)
        last = last_part(accounting, pairs)
        mine = counted(setting, graph, [step.op], degrees(strategy, last))
        if not mine and moves(setting, graph, step.op):
            mine = [(step.op, num(0))]
        for op, flops in mine:
            shared = ("context_order",) if pairs else ()
            by = (*setting.taken(), *shared, *(backward if op.phase == "backward" else ()))
            there = tuple(name for name in by if name in ("operations", *backward))
            if accounting.flops == "exact_adds" and any(index in op.summed for index in cut.values()):
                raise AccountingError("exact additions of a sum over several ranks", hint="use fma2 or mac")
            share = divided(flops, strategy, tuple(mesh for mesh in cut if mesh not in last))
            cuts = tuple((index, mesh) for mesh, index in cut.items())
            ops.append(OpLoad(op, op.phase, share, _moved(setting, made, op, there), cuts, pairs=pairs, by=by))
    return graph, tuple(ops)


def repeated(graph: Graph, name: str) -> Op | None:
    """The op that makes a tensor out of a smaller one whose numbers it only repeats, such as keys for all heads.

    Who reads such a tensor reads each number of the smaller one once.
    """
    made = graph.producers.get(name)
    if made is None or not made.attribute("view") or len(made.inputs) != 1:
        return None
    return None if graph.same_size(graph.elements(name), graph.elements(made.inputs[0])) else made


def moves(setting: Setting, graph: Graph, op: Op) -> bool:
    """Whether what an op moves is counted: where its operations are, or where it is at an end of a step."""
    counted = counts(setting, graph, op)
    roles = {graph.tensors[name].role for name in op.inputs}
    if not TRAFFIC[setting.accounting.traffic].ends:
        return counted or "state" in roles
    ends = counted or bool(roles & KEPT) or op.output in _left(graph)
    ends = ends or ("weight" in roles and bool(op.attribute("lookup")))
    return ends and bool(uses(setting, graph, op))


def _at_the_ends(graph: Graph, op: Op) -> dict[str, tuple[str, int]]:
    """What an op reads of weights and of what is kept, and what it makes of that and of what leaves the step.

    Raises ``AccountingError`` for a training step.
    """
    if graph.step is None:
        raise AccountingError("only a step that generates text has this traffic of weights and cache",
                              hint="model.decode() or model.prefill(); compulsory counts any pass")  # fmt: skip
    roles = {name: graph.tensors[name].role for name in op.inputs if not graph.tensors[name].virtual}
    mine = {name: role for name, role in roles.items() if role in {"weight", *KEPT}}
    read = "embedding" if op.attribute("lookup") else "weight"
    found = {name: (read if role == "weight" else "cache", 1) for name, role in mine.items()}
    joins = bool({"cache", "state"} & {*roles.values()} and op.attribute("lookup"))
    if op.output in _left(graph) or joins:
        return found | {op.output: ("result", 1)}
    return found | ({op.output: ("logits", 1)} if op.output in {t.name for t in graph.outputs} else {})


def _left(graph: Graph) -> set[str]:
    """What a prefill leaves for later steps, and any step of its recurrences."""
    kept = graph.step.kept if graph.step is not None else ()
    made = graph.producers
    return {one.tensor for one in kept
            if not one.before or (one.tensor in made and made[one.tensor].attribute("slice"))}  # fmt: skip


def sizes_moved(graph: Graph, op: Op, name: str) -> tuple[Expr, ...]:
    """The sizes of what an op reads or writes of a tensor: of a table the rows that are looked up.

    Of what is kept the earlier positions are read, and the new ones written.
    """
    sizes, at = graph.sizes(name), op.attribute("append")
    if op.attribute("lookup") and name != op.output and graph.tensors[name].role == "weight":
        return graph.sizes(op.output)
    if isinstance(at, int) and graph.step is not None:
        axis = graph.tensors[name].axes[at]
        return (*sizes[:at], graph.step.new if name == op.output else graph.step.behind[axis], *sizes[at + 1 :])
    return sizes


def uses(setting: Setting, graph: Graph, op: Op) -> dict[str, tuple[str, int]]:
    """The tensors that an op moves under the traffic convention: as what, and how often.

    Of ops that run as one kernel the first one reads what they share, and what stays inside is not moved.
    """
    convention, kernel = TRAFFIC[setting.choice("traffic")], graph.kernels.get(op.output)
    if convention.ends:
        # The gain of a norm behind which rows are kept is no weight of a product.
        read = convention.times.keys() - (set() if counts(setting, graph, op) else {"weight"})
        return {name: one for name, one in _at_the_ends(graph, op).items() if one[0] in read}
    if kernel and setting.choice("softmax") != "fused":
        kernel = None
    there = graph.scores if kernel else frozenset[str]()
    found: dict[str, str] = {}
    states = [name for name in op.inputs if graph.tensors[name].role == "state"]
    if states and not counts(setting, graph, op):  # of an op that is not counted what it reads of earlier steps
        return dict.fromkeys(states, ("activation", convention.times["activation"]))
    for name in op.inputs:
        smaller = repeated(graph, name)
        if kernel:
            same = [other.output for other in graph.consumers[name] if graph.kernels.get(other.output) == kernel]
            there |= {name} if same[0] != op.output else frozenset()
        if name in there:
            continue
        name = name if smaller is None else smaller.inputs[0]
        role = graph.tensors[name].role
        found[name] = role if role in ("weight", "gradient") else "saved" if op.phase == "backward" else "activation"
    made = graph.tensors[op.output]
    of_weight = made.role == "gradient" and graph.tensors[made.of].role == "weight"
    if made.name not in there:
        found[made.name] = "weight_gradient" if of_weight else "result"
    moved = {name: (use, convention.times.get(use, 0)) for name, use in found.items()}
    return {name: (use, times) for name, (use, times) in moved.items() if times and not graph.tensors[name].virtual}


def elements_moved(setting: Setting, graph: Graph, op: Op, name: str, parts: Form | None = None) -> Form:
    """The elements of a tensor that an op reads or writes: of experts those of the tokens that it works on.

    The tokens are divided into ``parts``, of which an op works on one.
    """
    routing, sizes = chosen_experts(graph).get(name), list(sizes_moved(graph, op, name))
    if routing is None or name == op.output:
        return setting.sizes(sizes)
    every, tokens = sizes.pop(routing.place), setting.sizes(routing.tokens)
    tokens = tokens if parts is None or parts == num(1) else Ratio(tokens, parts)
    how = EXPERTS_READ[setting.choice("experts_read")]
    return product(how(setting.written(every), setting.written(routing.chosen), tokens), setting.sizes(sizes))


def _moved(setting: Setting, made: Plan, op: Op, there: tuple[str, ...]) -> tuple[Moved, ...]:
    """What an op moves, which is ``there`` by some conventions."""
    every, by = uses(setting, made.graph, op).items(), (*there, *setting.taken())
    return tuple(m for name, (use, _) in every for m in _moved_tensor(setting, made, name, op, use, by))


def _moved_tensor(
    setting: Setting, made: Plan, name: str, op: Op, use: str, by: tuple[str, ...] = ("traffic",)
) -> tuple[Moved, ...]:
    """What a rank moves of a tensor as an op has it; nothing where the traffic convention moves no such use."""
    graph, times = made.graph, TRAFFIC[setting.accounting.traffic].times.get(use, 0)
    layouts = dict(made.layouts[op.output])
    for read in op.inputs:
        smaller = repeated(graph, read)
        if smaller is not None:
            layouts[smaller.inputs[0]] = made.layouts[smaller.output][smaller.inputs[0]]
    tensor, own = graph.tensors[name], dict(zip(op.inputs, op.indices, strict=True)).get(name, ())
    parts = [made.strategy.sizes[mesh] for mesh, index in made.cuts[op.output].items() if index not in own]
    size = elements_moved(setting, graph, op, name, product(*parts))
    share = divided(size, made.strategy, tuple(m for m, position in layouts[name] if position != PARTIAL))
    dtype = tensor.dtype or (graph.tensors[tensor.of].dtype if tensor.of else None) or setting.dtype
    return (Moved(name, use, times, share, dtype, (*by, *setting.taken())),) if times else ()


def microbatched(setting: Setting, microbatches: Form) -> Setting:
    """The same setting with the batch divided into microbatches, wherever a size is that of the batch."""
    if microbatches == num(1):
        return setting
    size = setting.written(setting.graph.axes[batch_of(setting.graph)].size)
    setting = setting.in_parts(size, microbatches, "the batch is cut into {} microbatches")
    return replace(setting, graph=_in_microbatches(setting.graph, microbatches))


@lru_cache(maxsize=64)
def _in_microbatches(graph: Graph, microbatches: Form) -> Graph:
    batch, parts = batch_of(graph), forms.value(microbatches)
    size = graph.axes[batch].size
    axes = {
        name: replace(axis, size=axis.size.xreplace({size: size / parts}))
        if size.is_Symbol or name == batch else axis
        for name, axis in graph.axes.items()
    }  # fmt: skip
    return replace(graph, axes=axes)
