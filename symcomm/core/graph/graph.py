"""The graph of ops: named axes, tensors, ops, and the checks that hold when it is built.

An op is a contraction over named axes, or a map applied point by point or along one axis. ``Op.indices`` gives each
operand's axes as loop indices of the op, so that one axis may appear twice in an op (the queries' and the keys'
positions) without the two being confused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from fractions import Fraction
from functools import cached_property
from typing import Literal, cast

from symcomm.core.derivation import Relations
from symcomm.core.errors import ShapeError, Span, ValuesError, nearest
from symcomm.core.form import Form, evaluate, from_expr, names
from symcomm.core.libraries import Expr, nx, sp
from symcomm.core.notation import AxisRole
from symcomm.core.records import dataclass, replace

Role = Literal["input", "weight", "activation", "gradient", "constant", "statistic", "cache", "state", "request"]
# What a step reads of earlier ones: what grows with it, what does not, and what a request brings.
KEPT: frozenset[Role] = frozenset({"cache", "state", "request"})
Phase = Literal["forward", "backward"]
# What a number format may be said for beside a tensor: weights, and what steps keep of earlier tokens.
OF_ROLES: Mapping[str, frozenset[Role]] = {"weights": frozenset({"weight"}), "cache": KEPT}
SOFTMAXES = frozenset({"softmax", "sinksoftmax"})  # maps whose result may weigh the values of an attention


@dataclass(frozen=True)
class Axis:
    """An axis with its size; two axes of equal size are still two axes."""

    name: str  # unique in a graph
    label: str  # the size as the author wrote it, which strategies may name
    size: Expr
    # What the author says it is, or the symbol usually means, where the ops alone do not tell; copies share the
    # queries of a head.
    role: AxisRole | Literal["copies"] = ""
    uneven: bool = False  # ranks that do not divide it have the mean of it


@dataclass(frozen=True)
class Tensor:
    """A tensor: its axes in order, what it is for, and the shape its author printed.

    ``role`` is ``input``, ``weight``, ``activation``, ``gradient`` or ``constant`` (masks, rotation tables, token ids:
    no gradient).
    """

    name: str
    axes: tuple[str, ...]
    role: Role
    latex: str = ""
    shape: tuple[str, ...] = ()
    dtype: str | None = None
    virtual: bool = False  # never stored: a one-hot matrix stands for its indices
    of: str = ""  # the tensor that a gradient belongs to
    source: Span | None = None
    parts: tuple[int, ...] = ()  # how many axes each axis of the author's own is made of, families first

    @property
    def held(self) -> tuple[int, ...]:
        """How many axes each axis of the author's own is made of; one each where no author wrote them.

        >>> Tensor("Q", ("B", "L", "n_H", "H"), "activation", parts=(1, 1, 2)).held, Tensor("x", ("B",), "input").held
        ((1, 1, 2), (1,))
        """
        return self.parts if sum(self.parts) == len(self.axes) else (1,) * len(self.axes)

    @property
    def own_axes(self) -> tuple[tuple[str, ...], ...]:
        """The axes behind each axis of the author's own."""
        starts = [sum(self.held[:n]) for n in range(len(self.held))]
        return tuple(self.axes[at : at + count] for at, count in zip(starts, self.held, strict=True))


@dataclass(frozen=True)
class Op:
    """One op: ``output[output_indices] = kind(inputs[indices])``."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    output: str
    indices: tuple[tuple[int, ...], ...]  # ``indices[j][n]`` is the loop index of axis n of input j
    output_indices: tuple[int, ...]
    attributes: tuple[tuple[str, object], ...] = ()  # what the kind needs besides: a scale, the signs of a sum
    phase: Phase = "forward"
    row: int = 0  # of the table
    source: Span | None = None
    region: str = ""  # the part of the model it stands in

    def attribute(self, name: str, default: object = None) -> object:
        """An attribute of the op, or the default."""
        for key, value in self.attributes:
            if key == name:
                return value
        return default

    @cached_property
    def summed(self) -> tuple[int, ...]:
        """The loop indices that are summed away: in an input but not in the output."""
        seen = dict.fromkeys([i for operand in self.indices for i in operand])
        return tuple([i for i in seen if i not in self.output_indices])


def bare(name: str) -> str:
    """A tensor's name without the mark of its region.

    >>> bare("head:W^U"), bare("x")
    ('W^U', 'x')
    """
    return name.rpartition(":")[2]


def worded(name: str) -> str:
    """A tensor in a sentence: its name as maths, with the mark of its region above; a cast is the copy of its tensor.

    >>> worded("cast(W^1)·2"), worded("d(z·8)"), worded("head:o")
    ('the copy of `W^1`', 'the gradient of `z`', '`o^head`')
    """
    made = re.fullmatch(r"(cast|d)\(([^·]*?)(?:·[^)]*)?\)?(?:·.*)?", name)
    what = {"cast": "the copy of ", "d": "the gradient of "}[made[1]] if made else ""
    mark, _, name = (made[2] if made else name.partition("·")[0]).rpartition(":")
    return f"{what}`{name}^{mark}`" if mark.isalpha() and "^" not in name else f"{what}`{name}`"


@dataclass(frozen=True)
class Region:
    """A part of a model whose ops run together: an embedding, a layer, a head.

    ``times`` is the symbol that says how often it stands one behind the other (``N_layer``), or empty for once.
    ``carried`` pairs an output with the input it becomes in the next repetition.
    """

    name: str
    times: str = ""
    carried: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Kept:
    """A tensor of a step of generating text that later steps read."""

    tensor: str
    before: str  # its earlier rows in this step's graph, where there are any
    role: Role  # it grows with each position (cache), is updated (state), or comes once (request)
    region: str
    window: Expr | None = None  # no more positions are read than a query sees
    why: str = ""  # who reads it


@dataclass(frozen=True)
class Stepped:
    """The step of generating text that a graph is: ``new`` positions of the model ``origin`` behind ``past`` ones."""

    origin: Graph
    new: Expr
    past: Expr
    phase: str
    kept: tuple[Kept, ...]  # what later steps read
    behind: Mapping[str, Expr]  # the axes of all positions, each with how many of them stand before the new ones
    stream: tuple[str, ...]  # the axes of the new positions
    choices: tuple[tuple[str, str], ...] = ()  # of conventions that made it so
    by: tuple[str, ...] = ()  # those of them whose choice decided something
    values: tuple[tuple[str, Fraction], ...] = ()  # numbers that made it so
    rolling: frozenset[str] = frozenset()  # axes with a few rows of the past, as a short convolution keeps them
    lengths: Mapping[str, Expr] = field(default_factory=dict)  # axes of positions, with symbols where they have numbers
    # What another order of two products would cost more, times a positive number, and whether it was taken as more.
    orders: tuple[tuple[Expr, bool], ...] = ()

    def check_length(self, known: Mapping[str, Fraction], end: Form | None = None) -> None:
        """Raises ``ValuesError`` where there are more positions, up to ``end``, than the model's table of them has."""
        what = "the step ends" if end is None else "the text ends"
        last, streams = end or from_expr(self.new + self.past), {str(self.origin.axes[a].size) for a in self.stream}
        for length, rows, unused in self.origin.limits:
            given = length in streams and {*names(last), rows} <= known.keys()
            if given and evaluate(last, known) > known[rows] - unused:
                what += f" at position {evaluate(last, known)}"
                raise ValuesError(f"{what}, but the table of positions ends at {known[rows] - unused}",
                                  hint=f"choose fewer positions, or a larger {rows}")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Graph:
    """Ops in an order they can run in, their tensors and axes, the relations between sizes, and the regions.

    Each op names its region and stands once, however often the region does: what a repeated region hands on to the
    next one is what its last repetition makes, and its first one takes what the region before it made.

    A graph is equal to itself alone, so that it can be the key of what is derived from it.

    Raises ``ShapeError`` when an op's operands do not fit together.
    """

    name: str
    axes: Mapping[str, Axis]
    tensors: Mapping[str, Tensor]
    ops: tuple[Op, ...]
    relations: Relations = field(default_factory=Relations)
    regions: tuple[Region, ...] = ()
    notes: tuple[str, ...] = ()
    flow: bool = True  # else only the weights are known, and not what feeds what
    windowed: bool = False  # scores of attention that a window hides are left out
    limits: tuple[tuple[str, str, int], ...] = ()  # tables of positions: the length, the rows, those not used
    order: tuple[str, ...] = ()  # the region of each layer, where kinds alternate
    fused: bool = False  # the library it was read from runs attention as one kernel
    explicit: bool = False  # its rows write every mask
    documents: tuple[int, ...] = ()  # the tokens of each document of a row, where a mask keeps several apart
    step: Stepped | None = None  # where it is a step of generating text

    def __post_init__(self) -> None:
        made = {t.name for t in self.tensors.values() if t.role != "activation" and not t.of and not t.virtual}
        for op in self.ops:
            behind: dict[int, str] = {}
            for name, indices in (*zip(op.inputs, op.indices, strict=True), (op.output, op.output_indices)):
                tensor = self.tensors.get(name)
                if tensor is None:
                    raise ShapeError(f"{op.name} uses {name}, which no row declares", op.source)
                if len(indices) != len(tensor.axes):
                    raise ShapeError(
                        f"{op.name}: {name} has {len(tensor.axes)} axes, but is used with {len(indices)}", op.source
                    )
                for index, axis in zip(indices, tensor.axes, strict=True):
                    other = behind.setdefault(index, axis)
                    if other is axis or other == axis:
                        continue
                    known, size = self.axes[other].size, self.axes[axis].size
                    if known is not size and known != size and not self.same_size(known, size):
                        raise ShapeError(f"{op.name}: {name} has {size} where {known} is needed", op.source)
            if op.output in made and op.phase == "forward":
                raise ShapeError(f"{op.output} is computed twice", op.source, "give the second one another name")
            made.add(op.output)

    def same_size(self, a: Expr, b: Expr) -> bool:
        """Whether two sizes are equal under the relations."""
        return bool((self.relations.expand(a) - self.relations.expand(b)).expand() == 0)

    def __repr__(self) -> str:
        parts = ", ".join(f"{r.times} × {r.name}" if r.times else r.name for r in self.regions)
        return f"<Graph {self.name}: {parts + '; ' if parts else ''}{len(self.ops)} ops, {len(self.tensors)} tensors>"

    @property
    def repeat(self) -> str:
        """The symbol that says how often the only region is repeated; else empty."""
        return self.regions[0].times if len(self.regions) == 1 else ""

    @property
    def model(self) -> Graph:
        """The graph that says what axes mean: of a step that of the model, for a rewritten product may mislead."""
        return self if self.step is None else self.step.origin

    @property
    def from_zero(self) -> frozenset[str]:
        """The symbols of sizes that may be none: how many positions stand before those of a step."""
        return frozenset() if self.step is None else frozenset(s.name for s in self.step.past.free_symbols)

    @cached_property
    def states(self) -> Mapping[str, tuple[str, ...]]:
        """Of a loop over positions: of a result, what the next position reads of it."""
        held = [t for t in self.tensors.values() if t.of and t.role == "input"]
        return {t.of: tuple(s.name for s in held if s.of == t.of) for t in held}

    @cached_property
    def looped(self) -> Mapping[str, Expr]:
        """The tensors that a loop makes at each position for the next one, with the number of positions."""
        found: dict[str, Expr] = {}
        for op in self.ops if self.states else ():
            for state in self.states.get(op.inputs[0], ()) if op.attribute("view") and op.attribute("whole") else ():
                positions = self.axes[self.index_axes(op)[cast("tuple[int, ...]", op.attribute("whole"))[0]]].size
                ways = (state, op.output), (f"d({op.output})", f"d({state})")
                for start, end in ((a, b) for a, b in ways if {a, b} <= self.tensors.keys()):
                    body = ({start} | nx.descendants(self.nx, start)) & ({end} | nx.ancestors(self.nx, end))
                    found |= dict.fromkeys(body, positions)
        return found

    @property
    def carried(self) -> tuple[tuple[str, str], ...]:
        """The tensors that repetitions hand on: pairs of an output and the input it becomes."""
        return tuple(pair for region in self.regions for pair in region.carried)

    def find(self, name: str, made: bool = False) -> Tensor:
        """The tensor that a person calls so: by its name, by that of a family (``Q`` for ``Q_i``), in any region.

        ``made`` looks among what ops compute only. Of several regions that have one, the name needs the region's first
        word (``head:o``). Raises ``ValuesError`` where there is none, or more than one.
        """
        known = [n for n in self.tensors if n in self.producers] if made else [*self.tensors]
        where, _, base = name.rpartition(":")
        homes = {r.name.split()[0] for r in self.regions}

        def home(n: str) -> str:
            op = self.producers.get(n) or next(iter(self.consumers.get(n, ())), None)
            return op.region.split()[0] if op is not None else ""

        found = [n for n in known if bare(n) in (base, f"{base}_i") and (not where or home(n) == where)]
        if len({home(n) for n in found}) > 1:
            listed = [f"{home(n)}:{bare(n)}" for n in found]
            raise ValuesError(
                f"several tensors are called {base[:60]}: {', '.join(listed)}", hint=f"write for instance {listed[-1]}"
            )
        if not found or (where and where not in homes):
            what = f"no row computes '{name[:60]}'" if made else f"there is no tensor '{name[:60]}'"
            raise ValuesError(what, hint=nearest(base, [bare(n) for n in known]))
        return self.tensors[base if base in found else found[0]]

    def in_formats(self, named: Mapping[str, str]) -> Graph:
        """The same with the number formats of tensors, by names that ``find`` knows; a view has that of its tensor."""
        if not named:
            return self
        found: dict[str, str] = {}
        for name, dtype in named.items():
            kinds = OF_ROLES.get(name, frozenset())
            mine = [t.name for t in self.tensors.values() if t.role in kinds] if kinds else [self.find(name).name]
            found |= dict.fromkeys(mine, dtype)
        for op in self.ops:
            if op.attribute("append") is not None and op.inputs[0] in found:
                found[op.output] = found[op.inputs[0]]  # the same places, with new rows in them
        for kept in self.step.kept if self.step is not None else ():
            made = self.producers.get(kept.tensor)  # nothing makes what comes with a request
            if made is not None and made.attribute("slice") and made.inputs[0] in found:  # a recurrence's last result
                found |= dict.fromkeys({kept.tensor, kept.before} - {""}, found[made.inputs[0]])
        for op in self.ops:
            if op.attribute("view") and op.inputs[0] in found:
                found.setdefault(op.output, found[op.inputs[0]])
        tensors = {n: replace(t, dtype=found.get(n, t.dtype)) for n, t in self.tensors.items()}
        return replace(self, tensors=tensors)

    @cached_property
    def crossing(self) -> frozenset[str]:
        """The activations and gradients of activations that one region makes and another one reads."""
        made = {op.output: op.region for op in self.ops}
        found = set()
        for op in self.ops:
            for name in op.inputs:
                if op.kind != "update" and made.get(name, op.region) != op.region:
                    tensor = self.tensors[name]
                    of = self.tensors.get(tensor.of, tensor)
                    if of.role != "weight" and not tensor.virtual:
                        found.add(name)
        return frozenset(found)

    def shared(self, region: Region) -> frozenset[str]:
        """The tensors that every repetition of a region reads and none hands on, such as an encoder's result."""
        if not region.times or not region.carried:
            return frozenset()
        mine = [op for op in self.ops if op.region == region.name and op.phase == "forward"]
        known = {op.output for op in mine} | {into for _, into in region.carried}
        read = {name for op in mine for name in op.inputs} - known
        return frozenset(n for n in read if self.tensors[n].role in ("input", "activation"))

    def region(self, name: str) -> Graph:
        """One region as a graph of its own: what other regions make comes from outside.

        Raises ``ValuesError`` for an unknown name.
        """
        mine = tuple(region for region in self.regions if region.name == name)
        if not mine:
            known = [region.name for region in self.regions]
            raise ValuesError(f"the model has no part '{name[:60]}'", hint=nearest(name, known))
        if len(self.regions) == 1:
            return self
        ops = tuple(op for op in self.ops if op.region == name)
        made = {op.output for op in ops}
        used = {n for op in ops for n in (*op.inputs, op.output)}
        used |= {t.name for t in self.tensors.values() if t.role == "statistic"}
        tensors = {
            n: replace(t, role="input") if n not in made and t.role == "activation" else t
            for n, t in self.tensors.items()
            if n in used
        }
        axes = {a: self.axes[a] for t in tensors.values() for a in t.axes}
        step = self.step and replace(
            self.step, origin=self.step.origin.region(name), kept=tuple(k for k in self.step.kept if k.region == name)
        )
        return replace(self, name=name, axes=axes, tensors=tensors, ops=ops, regions=mine, step=step)

    def check_flow(self, why: str) -> None:
        """Raises ``ValuesError`` where only the weights are known; ``why`` says what cannot be done then."""
        if not self.flow:
            raise ValuesError(
                f"{why}: of {self.name} it is known which weights there are, but not what feeds what",
                hint="a layer table, or the config.json of a family that is read, says it; parameters and (fully "
                "sharded) data parallelism are known",
            )  # fmt: skip

    def check_trains(self, why: str) -> None:
        """Raises ``ValuesError`` for a step of generating text; ``why`` says what cannot be done then."""
        if self.step is not None:
            raise ValuesError(f"{why}: a {self.step.phase} step has no backward pass", hint="the model itself has one")

    @cached_property
    def _made_sizes(self) -> tuple[tuple[Axis, Form, Tensor], ...]:
        """The sizes made of several symbols, each with a tensor; slots of experts are averages, and not whole."""
        slots = [self.axes[self.tensors[op.output].axes[-1]].size for op in self.ops if op.kind == "route"]
        found: dict[Expr, tuple[Axis, Form, Tensor]] = {}
        for tensor in self.tensors.values():
            for axis in (self.axes[name] for name in tensor.axes):
                if not (axis.size.is_Symbol or axis.size.is_Integer) and axis.size not in (*slots, *found):
                    found[axis.size] = axis, from_expr(axis.size), tensor
        return tuple(found.values())

    def check_sizes(self, known: Mapping[str, Fraction]) -> None:
        """Raises ``ValuesError`` where a size (D/3, D - E) is not positive and whole, or longer than its table."""
        for length, rows, unused in self.limits:
            if {length, rows} <= known.keys() and known[length] > known[rows] - unused:
                what = f"{length} is {known[length]}, but the table of positions ends at {known[rows] - unused}"
                raise ValuesError(what, hint=f"choose {length} up to that, or {rows} = {known[length] + unused}")
        if self.step is not None:
            self.step.check_length(known)
        for axis, form, tensor in self._made_sizes:
            if {*names(form)} <= known.keys():
                size = evaluate(form, known)
                if size <= 0 or size.denominator != 1:
                    at = ", ".join(f"{name} = {known[name]}" for name in names(form))
                    what = f"{axis.label} of {bare(tensor.name)} is {size} at {at}"
                    what += ", but a size is a positive whole number"
                    raise ValuesError(what, tensor.source, f"choose other numbers for {' and '.join(names(form))}")

    @cached_property
    def producers(self) -> dict[str, Op]:
        """The op that makes each tensor."""
        return {op.output: op for op in self.ops}

    @cached_property
    def consumers(self) -> dict[str, tuple[Op, ...]]:
        """The ops that read each tensor, in order."""
        found: dict[str, list[Op]] = {}
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                found.setdefault(name, []).append(op)
        return {name: tuple(ops) for name, ops in found.items()}

    @cached_property
    def attention_pairs(self) -> frozenset[tuple[str, str]]:
        """The axes of query and key positions: a softmax works along the keys, and the queries are as many.

        Of a step the new positions and all of them.
        """
        found = set()
        if self.step is not None and self.step.behind:
            return frozenset((new, every) for new in self.step.stream for every in self.step.behind)
        for op in self.ops:
            along = op.attribute("along", ())
            if op.kind not in SOFTMAXES or not isinstance(along, tuple):
                continue
            names = self.tensors[op.inputs[0]].axes
            keys = op.indices[0].index(along[0])
            queries = [n for n in range(keys) if self.axes[names[n]].size == self.axes[names[keys]].size]
            if queries:
                found.add((names[queries[-1]], names[keys]))
        return frozenset(found)

    @cached_property
    def scores(self) -> frozenset[str]:
        """The scores that stay inside an attention kernel: a number for each query and key, with its gradient.

        What has them from another region, such as a bias of positions, or hands them on is outside.
        """
        pairs: dict[str, set[tuple[str, str]]] = {}
        for op in self.ops:
            if op.kind in SOFTMAXES and op.phase == "forward" and (pair := self._attends(op)) is not None:
                pairs.setdefault(op.region, set()).add(pair)

        def has(name: str, region: str) -> bool:
            axes = self.tensors[name].axes
            return any(one in axes and axes.count(two) > (one == two) for one, two in pairs[region])

        leaving = self.crossing | {t.name for t in self.outputs}
        ops = [op for op in self.ops if op.region in pairs]
        made = {op.output for op in ops if op.phase == "forward" and has(op.output, op.region)} - leaving
        constants = {
            n for op in ops if op.output in made for n in op.inputs
            if self.tensors[n].role == "constant" and has(n, op.region)
        }  # fmt: skip
        return frozenset(made | constants | {op.output for op in ops if self.tensors[op.output].of in made})

    def _attends(self, softmax: Op) -> tuple[str, str] | None:
        """The axes of queries and keys of a softmax in attention; None for another one.

        It works along the keys of a product of two activations, and its result weighs values that are then summed.
        """
        along = softmax.attribute("along", ())
        assert isinstance(along, tuple)
        todo, weighs = [(softmax.output, softmax.output_indices.index(along[0]))], False
        while todo and not weighs:
            name, keys = todo.pop()
            for op in self.consumers.get(name, ()):
                index = op.indices[op.inputs.index(name)][keys]
                if op.phase == "forward" and op.region == softmax.region:
                    weighs |= index in op.summed and len(op.inputs) > 1
                    todo += [(op.output, op.output_indices.index(index))] if index in op.output_indices else []
        todo = [(softmax.inputs[0], softmax.indices[0].index(along[0]))]
        while todo and weighs:
            name, keys = todo.pop()
            made = self.producers.get(name)
            if made is None or made.phase != "forward" or made.region != softmax.region:
                continue
            index, sides = made.output_indices[keys], [{*side} for side in made.indices]
            if made.summed and len(sides) == 2 and sum(index in side for side in sides) == 1:
                other = sides[0] if index in sides[1] else sides[1]
                own = [n for n, i in enumerate(made.output_indices) if i in other - sides[other is sides[0]]]
                axes, roles = self.tensors[name].axes, {self.tensors[n].role for n in made.inputs}
                return (axes[own[-1]], axes[keys]) if own and "weight" not in roles else None
            todo += [
                (n, ix.index(index)) for n, ix in zip(made.inputs, made.indices, strict=True) if index in ix
            ]  # fmt: skip
        return None

    @cached_property
    def kernels(self) -> dict[str, str]:
        """The ops that make scores or read them, by what they make: the name of an attention, and their phase."""
        home: dict[str, str] = {}
        ops = [op for op in self.ops if op.kind != "update" and self.scores & {op.output, *op.inputs}]
        inside = [[n for n in (op.output, *op.inputs) if n in self.scores] for op in ops]

        def root(name: str) -> str:
            while home.setdefault(name, name) != name:
                name = home[name]
            return name

        for first, *rest in inside:  # what hands scores to one another is one kernel
            for name in rest:
                home[root(name)] = root(first)
        return {op.output: f"{root(names[0])} {op.phase}" for op, names in zip(ops, inside, strict=True)}

    @cached_property
    def weights(self) -> tuple[Tensor, ...]:
        """The weights, in the order they are used."""
        return tuple(t for t in self.tensors.values() if t.role == "weight")

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that come from outside and are not weights or constants."""
        return tuple(t for t in self.tensors.values() if t.role == "input")

    def reading(self, mark: str = "") -> str:
        """The tensors of a table that are data and those that are weights, for a person: ``data: x; weights: W, b``.

        ``mark`` stands around each name.
        """
        read = [t for t in self.tensors.values() if t.latex and t.name not in self.producers]
        weights = [t.name for t in read if t.role == "weight"]
        said = {"data": [t.name for t in read if t.role != "weight"], "weights": weights}
        return "; ".join(
            f"{w}: {', '.join(f'{mark}{n}{mark}' for n in dict.fromkeys(map(bare, names)))}"
            for w, names in said.items()
            if names
        )

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """The activations that no op reads."""
        return tuple(
            t
            for t in self.tensors.values()
            if t.role == "activation" and t.name not in self.consumers and not t.virtual
        )

    @cached_property
    def masked(self) -> dict[str, tuple[int, int, Expr | None]]:
        """The scores that a mask hides: the places of queries and keys, and how many positions a query's window has.

        They are what a mask makes, and all scores that are made of them or that they are made of.
        """
        found: dict[str, tuple[int, int, Expr | None]] = {}
        masks = [op for op in self.ops if op.kind == "mask"]
        if not masks:
            return found
        ops: dict[str, list[Op]] = {}
        for op in self.ops:
            for name in dict.fromkeys((op.output, *op.inputs)):
                ops.setdefault(name, []).append(op)
        for mask in masks:
            todo = [mask.output]
            while todo:
                name = todo.pop()
                pair = self.pair(name)
                base = self.tensors.get(self.tensors[name].of, self.tensors[name])  # of a gradient what it belongs to
                made = self.producers.get(base.name)
                outside = base.role in ("input", "weight") or (made is not None and made.region != mask.region)
                if name in found or pair is None or outside:
                    continue
                found[name] = (*pair, cast("Expr | None", mask.attribute("positions")))
                todo += [n for op in ops[name] if op.region == mask.region for n in (op.output, *op.inputs)]
        return found

    def pair(self, name: str) -> tuple[int, int] | None:
        """The places of the query and key positions among the axes of a tensor of scores."""
        axes = self.tensors[name].axes
        for queries, keys in self.attention_pairs:
            at = [n for n, axis in enumerate(axes) if axis == queries]
            other = [n for n, axis in enumerate(axes) if axis == keys and n not in at[:1]]
            if at and other:
                return at[0], other[-1]
        return None

    @cached_property
    def windows(self) -> tuple[Expr, ...]:
        """How many positions the windows of attention have, of each size once."""
        return tuple(dict.fromkeys(w for _, _, w in self.masked.values() if w is not None))

    @cached_property
    def counts(self) -> tuple[Expr, ...]:
        """The sizes that no axis has: those of windows, and of the parts of heads that are rotated."""
        said = [op.attribute(name) for op in self.ops for name in ("positions", "features")]
        return tuple(dict.fromkeys(cast("Expr", count) for count in said if count is not None))

    @cached_property
    def _narrow(self) -> dict[str, tuple[int, Expr]]:
        """The tensors that have a part of an axis only: which place of theirs, and how many there."""
        found: dict[str, tuple[int, Expr]] = {}
        for op in self.ops:
            if op.kind == "rope" and op.attribute("features") is not None:
                found |= {
                    table: (len(self.tensors[table].axes) - 1, op.attribute("features")) for table in op.inputs[1:]
                }
        if self.windowed:
            for name, (_, keys, window) in self.masked.items():
                if window is not None:
                    found[name] = keys, sp.Min(self.axes[self.tensors[name].axes[keys]].size, window)
        return found

    def sizes(self, name: str) -> tuple[Expr, ...]:
        """The sizes of a tensor: those of its axes, but of the tables of a partial rotation and, where the graph is
        ``windowed``, of scores.
        """
        place, size = self._narrow.get(name, (-1, None))
        return tuple(size if n == place else self.axes[a].size for n, a in enumerate(self.tensors[name].axes))

    def loops(self, op: Op) -> dict[int, Expr]:
        """The size behind each loop index of an op, which is the least that an operand has there."""
        found = {index: self.axes[axis].size for index, axis in self.index_axes(op).items()}
        for name, indices in ((op.output, op.output_indices), *zip(op.inputs, op.indices, strict=True)):
            if name in self._narrow:
                place, size = self._narrow[name]
                found[indices[place]] = size
        return found

    def volume(self, name: str) -> Expr:
        """The product of a tensor's sizes."""
        return sp.Mul(*self.sizes(name))

    def elements(self, name: str) -> Expr:
        """The number of elements of a tensor; of one with a place for each token and slot those that are filled."""
        axes = self.tensors[name].axes
        return self.routed[axes] if axes in self.routed else self.volume(name)

    @cached_property
    def routes(self) -> tuple[Op, ...]:
        """The ops that route tokens to the slots of experts."""
        return tuple(op for op in self.ops if op.kind == "route")

    @cached_property
    def routed(self) -> dict[tuple[str, ...], Expr]:
        """The shapes of routing tensors (tokens, experts, slots), and their entries that are not zero: k a token."""
        found = [(op, self.tensors[op.output].axes) for op in self.routes]
        return {axes: sp.Mul(op.attribute("k"), *(self.axes[a].size for a in axes[:-2])) for op, axes in found}

    @cached_property
    def _behind(self) -> dict[str, tuple[Op, dict[int, str]]]:
        return {}

    def index_axes(self, op: Op) -> Mapping[int, str]:
        """The axis behind each loop index of an op; the output's name for it where the two differ."""
        known, found = self._behind.get(op.output, (None, {}))
        if known is not op:
            found = {}
            for name, indices in ((op.output, op.output_indices), *zip(op.inputs, op.indices, strict=True)):
                for index, axis in zip(indices, self.tensors[name].axes, strict=True):
                    found.setdefault(index, axis)
            self._behind[op.output] = op, found
        return found

    @cached_property
    def nx(self) -> nx.DiGraph:
        """The graph for NetworkX, frozen: a node an op or a tensor from outside, an edge a tensor that flows.

        A node is called as the tensor it stands for. All nodes have ``kind`` (of a tensor from outside: its role),
        ``region`` (the first one that reads it), ``phase``, ``row`` and ``source``; an op has its record as ``op``, a
        tensor from outside as ``tensor``. An edge has ``tensor`` (its name), ``role``, ``axes``, ``shape`` (a SymPy
        size for each axis), ``dtype`` (None: the model's), ``operands`` (the places at which the op reads it) and
        ``crosses`` (whether it leaves its region). ``nx.graph`` has the ``name`` and the ``regions``, each with how
        often it stands and what it hands on to its next repetition; that is no edge, so no cycle.

        >>> from symcomm.core.model import load
        >>> made = load("Computation\\tInput\\tOutput\\ny = relu(xW)\\tx [B, D], W [D, F]\\ty [B, F]\\n").graph.nx
        >>> [*made.edges], made.edges["W", "y·1"]["shape"]
        ([('x', 'y·1'), ('W', 'y·1'), ('y·1', 'y')], (D, F))
        """
        made = nx.DiGraph(name=self.name, regions=self.regions)
        for op in self.ops:
            for name in op.inputs:
                if name not in self.producers and name not in made:
                    t = self.tensors[name]
                    made.add_node(name, kind=t.role, region=op.region, phase=op.phase, row=op.row, source=t.source,
                                  tensor=t)  # fmt: skip
            made.add_node(op.output, kind=op.kind, region=op.region, phase=op.phase, row=op.row, source=op.source,
                          op=op)  # fmt: skip
        for op in self.ops:
            for name in dict.fromkeys(op.inputs):
                t = self.tensors[name]
                made.add_edge(
                    name, op.output, tensor=name, role=t.role, axes=t.axes, dtype=t.dtype,
                    shape=tuple(self.axes[a].size for a in t.axes),
                    operands=tuple(n for n, other in enumerate(op.inputs) if other == name),
                    crosses=name in self.crossing and self.producers[name].region != op.region,
                )  # fmt: skip
        return nx.freeze(made)

    def forward(self) -> Graph:
        """The graph without its backward ops."""
        ops = tuple(op for op in self.ops if op.phase == "forward")
        kept = {n for op in ops for n in (*op.inputs, op.output)}
        return replace(self, ops=ops, tensors={n: t for n, t in self.tensors.items() if n in kept})
