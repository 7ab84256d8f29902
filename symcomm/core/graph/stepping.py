"""Prefill and decode: the forward ops of a model with two sizes, new positions behind those that were there before.

One rule makes both. Walking back from the logits, each axis of positions of a tensor is *new* (computed in this step),
*all* (what a query reads), or the *last* one. A loop has the colour of its axis in the result; positions that are
summed away are all of them; the slots of an expert have the colour of the tokens that fill them. What has no new
position and is made of the data was there before: of it the step reads what is kept, which is a minimum cut among the
tensors that only keys and values are made of. An op that reaches back a few positions (``reach``) reads as many rows
of a state; a recurrence reads its own last result. No kind of layer is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from symcomm.core.accounting import CONVENTIONS, Accounting
from symcomm.core.elimination import PriceTable, Values, cheapest
from symcomm.core.errors import StrategyError, ValuesError
from symcomm.core.graph.axis_roles import find_vocabulary, sequence_axes, whole_indices
from symcomm.core.graph.graph import SOFTMAXES, Axis, Graph, Kept, Op, Role, Stepped, Tensor, bare
from symcomm.core.graph.ops import MAP
from symcomm.core.libraries import Expr, sp
from symcomm.core.notation import symbol
from symcomm.core.records import dataclass, replace

NEW, LAST, ALL, SHORT = "new", "last", "all", "last few"
Version = tuple[str, ...]  # of each axis of a tensor its colour, empty where it is no axis of positions
Node = tuple[str, Version]
CHOSEN = ("cache", "cached_keys", "mla", "logits")  # the conventions that decide what a step computes
LOSS = "cross-entropy"  # what is told of a loss is not of a step, which has none
# For numbers of positions, under names that a person does not give: new ones, earlier ones, those of a long context.
_NEW, _PAST, _LONG = symbol("new''''"), symbol("past''''"), symbol("long''''")
GROWN = 2**20  # positions that count as many, where it is asked what is cheaper at a long context


def chosen(accounting: Accounting) -> tuple[tuple[str, str], ...]:
    """The choices that decide what a step computes."""
    return tuple((name, str(getattr(accounting, name))) for name in CHOSEN)


def stepped(
    graph: Graph, new: Expr | None, past: Expr, phase: str, accounting: Accounting, values: Mapping[str, Fraction]
) -> Graph:
    """The graph of a step: ``new`` positions (as many as the model has, where it is not said) behind ``past`` ones.

    The loss and dropout are left out. ``values`` decide what is cheaper, where a choice says so. Raises ``ValuesError``
    where a position reads later ones, or a size depends on the number of positions in a way that cannot be cut.
    """
    return _stepped(graph, new, past, phase, chosen(accounting), tuple(sorted(values.items())))


def again(graph: Graph, accounting: Accounting, values: Mapping[str, Fraction] | None = None) -> Graph:
    """A step under other conventions, or where other values are known."""
    step = graph.step
    assert step is not None
    known = dict(step.values) if values is None else values
    return stepped(step.origin, step.new, step.past, step.phase, accounting, known)


@lru_cache(maxsize=64)
def _stepped(
    graph: Graph, new: Expr | None, past: Expr, phase: str, choices: tuple[tuple[str, str], ...],
    values: tuple[tuple[str, Fraction], ...],
) -> Graph:  # fmt: skip
    made = _Stepper(graph, graph, sp.Integer(1) if new is None else new, past, phase, dict(choices), dict(values))
    return replace(made, new=graph.axes[made.stream[0]].size).run() if new is None else made.run()


def marked(name: str, what: str) -> str:
    """A tensor's name with a mark above it.

    >>> marked("K_j", "all"), marked("S^C_j", "all"), marked("f", "past"), marked("P_i·3", "all")
    ('K^all_j', 'S^C,all_j', 'f^past', 'P^all_i·3')
    """
    head, dot, number = name.partition("·")
    stem, line, index = head.rpartition("_")
    stem, index = (stem, f"_{index}") if line and len(index) == 1 else (head, "")
    return f"{stem}{',' if '^' in stem else '^'}{what}{index}{dot}{number}"


@dataclass
class _Stepper:
    """The walk over the versions of tensors, and the graph that is made of them."""

    origin: Graph
    graph: Graph
    new: Expr
    past: Expr
    phase: str
    choices: dict[str, str]
    values: dict[str, Fraction]
    seen: dict[Node, None] = field(default_factory=dict)
    frontier: dict[Node, list[Op]] = field(default_factory=dict)  # what was there before, with its readers
    kept: dict[Node, None] = field(default_factory=dict)
    read: dict[str, None] = field(default_factory=dict)  # the conventions that decided something
    named: dict[Node, str] = field(default_factory=dict)
    ops: list[tuple[int, Op]] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    axes: dict[str, Axis] = field(default_factory=dict)
    held: list[Kept] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    orders: dict[tuple[Expr, bool], None] = field(default_factory=dict)  # of products, where sizes decide them
    coloured: dict[str, tuple[str, str]] = field(default_factory=dict)  # of axes of positions that are made

    def run(self) -> Graph:
        """The graph of the step."""
        self.graph = graph = _without_loss(self.graph)
        for op in graph.ops:
            if op.kind in SOFTMAXES and self.attends(op) and op.output not in graph.masked:
                self.reads_later(op)
        ends = self.ends()
        for end in ends:
            if NEW not in end[1] and LAST not in end[1]:
                what = f"`{bare(end[0])}` of {graph.name} has no positions"
                raise ValuesError(f"{what}: no step makes a part of it", hint="a language model's logits have them")
            self.visit(*end)
        before = -1
        while len(self.frontier) != before:  # rows that are kept are computed, which may read what is kept
            before = len(self.frontier)
            self.kept = dict.fromkeys(self.cut())
            for name, version in self.kept:
                self.visit(name, _of(version, NEW))
        self.read |= dict.fromkeys(self.decided())
        for end in ends:
            self.tensor(*end)
        ops = tuple(op for _, op in sorted(self.ops, key=lambda one: one[0]))
        regions = tuple(
            replace(r, carried=tuple((a, b) for a, b in r.carried if {a, b} <= self.tensors.keys()))
            for r in graph.regions if any(op.region == r.name for op in ops)
        )  # fmt: skip
        behind = {self.axis(a, c): p for a in self.stream for c, p in self.behind.items()}
        rolling = frozenset(self.axis(a, c) for a in self.stream for c in self.behind if c.startswith(SHORT))
        step = Stepped(
            self.origin, self.new, self.past, self.phase, tuple(self.held), behind if self.past != 0 else {},
            tuple(self.stream), tuple(self.choices.items()), tuple(self.read), tuple(self.values.items()),
            rolling if self.past != 0 else frozenset(), self.lengths, tuple(self.orders),
        )  # fmt: skip
        return replace(
            graph, axes=self.axes, tensors=self.tensors, ops=ops, regions=regions, step=step, limits=(),
            notes=(*(note for note in graph.notes if LOSS not in note), *self.notes),
        )  # fmt: skip

    # -- what the walk knows of the model ---------------------------------------------------------------------

    @cached_property
    def logits(self) -> tuple[Tensor, ...]:
        """The outputs of the model: logits over a vocabulary, or else all that nothing reads."""
        left = [t for t in self.graph.outputs if not self.graph.producers[t.name].attribute("whole")]  # no state
        return tuple([t for t in left if self.words & {*t.axes}] or left)

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(find_vocabulary(self.origin))

    @cached_property
    def stream(self) -> tuple[str, ...]:
        """The axis of the positions that are computed step by step."""
        try:
            found = sequence_axes(self.origin)
        except StrategyError as error:
            hint = "say which axis that is: axes: {L: sequence}"
            raise ValuesError(f"{self.graph.name} has no positions that a step could go along", hint=hint) from error
        mine = tuple(a for a in found if any(a in t.axes for t in self.logits))
        return mine[:1] or found[-1:]

    @cached_property
    def slots(self) -> dict[str, str]:
        """The axes of the slots of experts, each with that of the tokens that fill them."""
        routes = [self.graph.tensors[op.output].axes for op in self.graph.ops if op.kind == "route"]
        return {axes[-1]: token for axes in routes for token in axes[:-2] if token in self.stream}

    @cached_property
    def positions(self) -> frozenset[str]:
        return frozenset({*self.stream, *self.slots})

    @cached_property
    def windows(self) -> dict[str, Expr | None]:
        """How many positions a query sees in each region, where a mask says that it is not all before it."""
        found: dict[str, set[Expr | None]] = {}
        for op in self.graph.ops:
            if op.kind in SOFTMAXES and self.attends(op):
                _, _, window = self.graph.masked.get(op.output, (0, 0, None))
                found.setdefault(op.region, set()).add(window)
        return {region: next(iter(seen)) for region, seen in found.items() if len(seen) == 1}

    @cached_property
    def behind(self) -> dict[str, Expr]:
        """The colours of all positions, each with how many of them stand before the new ones."""
        found = {ALL: self.past}
        for window in self.windows.values():
            if window is not None:
                found[f"{ALL} {window}"] = sp.Min(self.past, window - 1)
        reached = [op.attribute("reach") for op in self.graph.ops]
        return found | {f"{SHORT} {one}": one - 1 for one in reached if isinstance(one, sp.Expr)}

    def mixes(self, op: Op) -> bool:
        """Whether an op reads positions beside the one of its result."""
        goes_on = op.kind in MAP and MAP[op.kind].carries
        return goes_on or op.attribute("reach") is not None or (op.kind in SOFTMAXES and self.attends(op))

    def attends(self, op: Op) -> bool:
        """Whether a softmax works along the positions of a sequence, for each of its positions."""
        along = op.attribute("along", ())
        assert isinstance(along, tuple)
        axes = self.graph.tensors[op.inputs[0]].axes
        keys = op.indices[0].index(along[0])
        return axes[keys] in self.stream and any(a in self.stream for a in (*axes[:keys], *axes[keys + 1 :]))

    @cached_property
    def made_of(self) -> dict[str, str]:
        """The tensors that are made of data: of the ``stream``, or of something ``else`` that a request brings."""
        graph, found = self.graph, dict[str, str]()
        for tensor in graph.tensors.values():
            if tensor.name in graph.producers:
                continue
            readers = graph.consumers.get(tensor.name, ())
            ids = bool(readers) and all(op.kind == "onehot" for op in readers)
            along = sum(a in self.stream for a in tensor.axes)
            if tensor.role == "input" or (tensor.role == "constant" and ids and len(tensor.axes) > along):
                found[tensor.name] = "stream" if along else "else"
        for op in graph.ops:
            of = [found[name] for name in op.inputs if name in found]
            if of:
                found[op.output] = "stream" if "stream" in of else "else"
        return found

    def old(self, name: str, version: Version) -> bool:
        """Whether a version was there before this step, or comes with the request."""
        return name in self.made_of and not {NEW, LAST} & {*version}

    # -- colours ----------------------------------------------------------------------------------------------

    def ends(self) -> list[Node]:
        """The versions that leave the step."""
        how = self.choices["logits"]
        last = how == "last" or (how == "generated" and self.phase == "prefill")
        found: list[Node] = []
        if how == "none":
            self.read["logits"] = None
            return self.before_logits()
        for tensor in self.logits:
            several = bool(self.words & {*tensor.axes}) and self.new != 1 and bool({*self.stream} & {*tensor.axes})
            if several:
                self.read["logits"] = None
            found.append((tensor.name, self.version(tensor.name, LAST if several and last else NEW)))
        return found

    def before_logits(self) -> list[Node]:
        """The input of the product with the vocabulary, at all new positions."""
        found, todo = dict[Node, None](), [(t.name, self.version(t.name, LAST)) for t in self.logits]
        while todo:
            name, version = todo.pop()
            op = self.graph.producers.get(name)
            if self.ends_here(name, version):
                found[name, _of(version, NEW)] = None
            elif op is not None:
                todo += self.operands(op, version)
        return [*found]

    def version(self, name: str, colour: str) -> Version:
        return tuple(colour if a in self.positions else "" for a in self.graph.tensors[name].axes)

    def colours(self, op: Op, version: Version) -> dict[int, str]:
        """The colour of each loop over positions, where the result of an op has some version."""
        names = self.graph.index_axes(op)
        found = {i: c for i, c in zip(op.output_indices, version, strict=True) if c}
        if op.attribute("reach") is not None:
            reading, *_ = whole_indices(op)
            found[reading] = f"{SHORT} {op.attribute('reach')}"
        for i in dict.fromkeys(i for ix in op.indices for i in ix):
            if i not in found and names[i] in self.positions:
                tied = [found[j] for j, a in names.items() if j in found and {names[i], a} & {*self.slots}]
                window = self.windows.get(op.region)
                found[i] = tied[0] if tied else ALL if window is None else f"{ALL} {window}"
        return found

    def operands(self, op: Op, version: Version) -> list[Node]:
        """The versions of the operands of an op; masks of dropout are left out."""
        colours = self.colours(op, version)
        return [
            (name, tuple(colours.get(i, "") for i in indices))
            for name, indices in zip(op.inputs, op.indices, strict=True) if not self.drops(name)
        ]  # fmt: skip

    def drops(self, name: str) -> bool:
        """Whether a tensor is the random mask of a dropout."""
        tensor = self.graph.tensors[name]
        return tensor.role == "constant" and tensor.dtype == "bool" and name not in self.graph.producers

    def ends_here(self, name: str, version: Version) -> bool:
        """Whether the last position of a tensor is taken out of all new ones: where the region of the logits begins.

        Of a region that reads across positions itself: where the product begins that makes the logits.
        """
        if LAST not in version:
            return False
        made, home = self.graph.producers.get(name), self.graph.producers[self.logits[0].name].region
        if made is None or made.region != home:
            return True
        local = not any(self.mixes(op) for op in self.graph.ops if op.region == home)
        if local:
            return False
        tail = self.logits[0].name
        while (op := self.graph.producers[tail]) and not (op.summed and len(op.inputs) > 1):
            tail = op.inputs[0]
        return name in op.inputs

    def visit(self, name: str, version: Version) -> None:
        """Walks back from a version; notes what it reads of what was there before."""
        if (name, version) in self.seen:
            return
        self.seen[name, version] = None
        if self.ends_here(name, version):
            self.visit(name, _of(version, NEW))
            return
        op = self.graph.producers.get(name)
        if op is None:
            return
        for node in self.operands(op, version):
            if self.old(*node) and not self.old(op.output, version):
                if op not in self.frontier.setdefault(node, []):
                    self.frontier[node].append(op)
                    self.check_causal(op, version)
            else:
                self.visit(*node)

    def check_causal(self, op: Op, version: Version) -> None:
        """Raises ``ValuesError`` where a new position reads later ones; a table without any mask is read as causal."""
        graph, colours = self.graph, self.colours(op, version)
        across = [i for i in op.summed if colours.get(i, "").startswith(ALL)]
        made = [graph.producers.get(name) for name in op.inputs]
        weighed = any(one is not None and one.kind in SOFTMAXES for one in made)
        if across and not weighed and not any(name in graph.masked for name in (*op.inputs, op.output)):
            self.reads_later(op)

    def reads_later(self, op: Op) -> None:
        """Raises ``ValuesError`` where rows write masks, and this one none; else reads it as causal."""
        if self.graph.masked or self.graph.explicit:
            raise ValuesError(
                f"{self.graph.name} cannot be run position by position: the row that computes "
                f"`{bare(op.output).partition('·')[0]}` reads later positions, which no mask hides", op.source,
                "decoders can: their softmax has a mask, causalsoftmax(...)",
            )  # fmt: skip
        self.notes["no row writes a mask: each position is read as reading itself and those before it"] = None

    # -- what is kept -----------------------------------------------------------------------------------------

    def inside(self, op: Op, version: Version) -> list[Node] | None:
        """The tensor that may be read instead of an op's earlier result; None where there is none."""
        how = self.choices["cache"]
        operands = [node for node in self.operands(op, version) if self.old(*node)]
        there = all((made := self.graph.producers.get(n)) is not None and made.region == op.region for n, _ in operands)
        if not operands or not there:
            return None
        if op.attribute("view"):
            return operands
        if op.kind == "rope" and self.choices["cached_keys"] == "plain":
            return operands
        product = op.kind == "contraction" and op.summed and len(operands) == 1 and not op.attribute("lookup")
        few = any(c.startswith(SHORT) for c in version)  # of a few rows what is read is kept as it is
        if not product or how in ("heads", "heads_with_rope") or (few and how != "smallest"):
            return None
        return operands if how == "smallest" or self.only(operands[0][0]) else None

    def only(self, name: str) -> bool:
        """Whether a tensor is read for keys and values alone: all that is made of it is read as all positions."""
        for op in self.graph.consumers.get(name, ()):
            if any(n == name and op in readers for (n, _), readers in self.frontier.items()):
                continue
            if op.output in {n for n, _ in self.frontier} or self.only(op.output):
                continue
            return False
        return bool(self.graph.consumers.get(name))

    def cut(self) -> Iterator[Node]:
        """The nodes that are the least to keep, so that all readers have what they read; of equal ones the nearest.

        A node is not needed (0), kept (1), or made again from the nodes that it is computed of (2).
        """
        far, tables = 1000, list[PriceTable]()
        place = {node: n for n, node in enumerate(self.frontier)}
        todo = [(node, 0) for node in self.frontier]
        again: dict[Values, int] = {(a, b): 0 for a in range(3) for b in range(3) if (a, b) != (2, 0)}
        for node, away in todo:
            op = self.graph.producers.get(node[0])
            plain = op is not None and op.kind == "rope" and self.choices["cached_keys"] == "plain"
            inside = self.inside(op, node[1]) if op is not None else None
            prices: dict[Values, int] = {} if node in self.frontier else {(0,): 0}
            prices |= {} if inside is None else {(2,): 0}
            prices |= {} if plain and inside else {(1,): self.numbers(node) * far + min(away, far - 1)}
            tables.append(PriceTable((place[node],), prices))
            for other in inside or ():
                todo += [] if other in place else [(other, away + 1)]
                tables.append(PriceTable((place[node], place.setdefault(other, len(place))), again))
        found = cheapest(tables, [3] * len(place))
        assert found is not None
        order = {op.output: n for n, op in enumerate(self.graph.ops)}
        yield from sorted((n for n in place if found[1][place[n]] == 1), key=lambda node: order.get(node[0], -1))

    def decided(self) -> Iterator[str]:
        """The conventions of which another choice would keep something else."""
        heads = replace(self, choices={**self.choices, "cache": "heads_with_rope"})
        heads.kept = dict.fromkeys(heads.cut())
        repeated = any(map(heads.repeats, heads.kept))
        for name in ("cache", "cached_keys"):
            for row in CONVENTIONS:
                if row.field == name and row.name != self.choices[name]:
                    other = replace(self, choices={**self.choices, name: row.name})
                    shared = "heads_with_rope" in (row.name, self.choices[name]) and repeated
                    if shared or dict.fromkeys(other.cut()) != self.kept:
                        yield name
                        break

    def repeats(self, node: Node) -> tuple[str, ...]:
        """The axes of heads that a kept tensor lacks and its readers have: those of what is kept beside it."""
        mine = {*self.graph.tensors[node[0]].axes}
        readers = self.frontier.get(node, ())
        read = {a for op in readers for a in self.graph.tensors[op.output].axes}
        homes = {op.region for op in readers}
        beside = dict.fromkeys(
            a for name, _ in self.kept for a in self.graph.tensors[name].axes
            if (made := self.graph.producers.get(name)) is not None and made.region in homes
        )  # fmt: skip
        return tuple(a for a in beside if a in read - mine and a not in self.positions)

    def number(self, size: Expr) -> int:
        """A size as a number: what is not known is taken as equal, but positions as many."""
        size = self.graph.relations.expand(size)
        known = {s: self.values.get(s.name) for s in size.free_symbols}
        put = {s: sp.Rational(v.numerator, v.denominator) if v is not None else sp.Integer(1024)
               for s, v in known.items()}  # fmt: skip
        return max(1, int(sp.ceiling(size.xreplace(put))))

    def numbers(self, node: Node) -> int:
        """The numbers in a version, at a long context."""
        found = 1
        for axis, colour in zip(self.graph.tensors[node[0]].axes, node[1], strict=True):
            few = colour.startswith(SHORT)
            length = self.behind[colour] if few else self.graph.axes[axis].size
            found *= GROWN if colour.startswith(ALL) else self.number(length)
        return found

    # -- the graph that is made -------------------------------------------------------------------------------

    def axis(self, axis: str, colour: str) -> str:
        """The axis of positions of a colour."""
        name, size = axis, self.length_of(axis, colour)
        if colour == LAST:
            name = f"{axis}^last"
        elif colour not in (NEW, "") and self.past != 0:
            window = colour.removeprefix(ALL).strip() if colour.startswith(ALL) else colour
            name = f"{axis}^{ALL}{f' of {window}' if window else ''}"
        label = f"({size})" if size.is_Add else str(size)
        self.axes.setdefault(name, replace(self.graph.axes[axis], name=name, size=size, label=label))
        self.coloured[name] = axis, colour
        return name

    def length_of(self, axis: str, colour: str) -> Expr:
        """The size of the axis of positions of a colour."""
        if colour == LAST:
            return sp.Integer(1)
        if colour == NEW or self.past == 0 or colour == "":
            return self.slot_size(axis) if axis in self.slots else self.new
        return self.new + self.behind[colour]

    @property
    def lengths(self) -> dict[str, Expr]:
        """The axes of positions with symbols for numbers of them: what is cheaper at any such number is asked so.

        The new positions of a decode step are few, whatever their number is.
        """
        new = _NEW if self.new.is_number and self.phase == "prefill" else self.new
        past = _PAST if self.past.is_number and self.past != 0 else self.past
        if (new, past) == (self.new, self.past):
            return {}
        other = replace(self, new=new, past=past)
        return {name: other.length_of(*one) for name, one in self.coloured.items()}

    def slot_size(self, slots: str) -> Expr:
        """The slots of an expert: an equal share of the tokens that fill them."""
        route = next(op for op in self.graph.ops
                     if op.kind == "route" and self.graph.tensors[op.output].axes[-1] == slots)  # fmt: skip
        *tokens, experts, _ = self.graph.tensors[route.output].axes
        filled = [op for op in self.graph.ops if slots in self.graph.tensors[op.output].axes and op is not route]
        apart = {a for op in filled for a in self.graph.tensors[op.output].axes if self.graph.producers.get(op.output)
                 and a not in self.stream} if filled else set()  # fmt: skip
        inside = [self.new if a in self.stream else self.graph.axes[a].size for a in tokens
                  if a in self.stream or a not in apart]  # fmt: skip
        return sp.Mul(route.attribute("k"), *inside) / self.graph.axes[experts].size

    def free(self, name: str) -> str:
        return name if name not in self.tensors else self.free(f"{name}'")

    def renamed(
        self, name: str, version: Version, new: str = "", before: tuple[str, ...] = (), **changes: Any
    ) -> str:  # fmt: skip
        """Adds the version of a tensor under a name of its own, or a free one, with axes ``before`` its own."""
        tensor = self.graph.tensors[name]
        mine = zip(tensor.axes, version, strict=True)
        axes = (*before, *(self.axis(a, c) if a in self.positions else a for a, c in mine))
        for a in axes:
            self.axes.setdefault(a, self.graph.axes.get(a) or self.axes[a])
        new = self.free(new or name)
        shape = self.shape(tensor, version) if not before else ()
        self.tensors[new] = replace(tensor, name=new, axes=axes, shape=shape, **changes)
        return new

    def shape(self, tensor: Tensor, version: Version) -> tuple[str, ...]:
        """The shape as its author printed it, with the sizes of the step."""
        labels = [(self.graph.axes[a].label, self.axes[self.axis(a, c)].label)
                  for a, c in zip(tensor.axes, version, strict=True) if c]  # fmt: skip
        found: list[str] = []
        for one in tensor.shape:
            at = next((n for n, (old, _) in enumerate(labels) if old == one), None)
            found.append(one if at is None else labels.pop(at)[1])
        return tuple(found)

    def plain(self, version: Version) -> Version:
        """A version as it is where nothing comes before: all positions are the new ones."""
        if self.past != 0:
            return version
        return tuple(NEW if _earlier(c) else c for c in version)

    def called(self, name: str, version: Version) -> str:
        """The name of a version: its tensor's name, marked where a tensor has new positions and all positions."""
        if any(map(_earlier, version)) and NEW not in version and (name, _of(version, NEW)) in self.seen:
            return marked(name, ALL)
        return marked(name, LAST) if LAST in version and (name, _of(version, NEW)) in self.seen else name

    def tensor(self, name: str, version: Version) -> str:
        """Adds a version with all that makes it; gives its name."""
        node = (name, self.plain(version))
        if node in self.named:
            return self.named[node]
        if (name, version) in self.kept:
            return self.keep(name, version)
        if self.ends_here(name, version):
            return self.last(name, version)
        op = self.graph.producers.get(name)
        if op is None:
            self.check_table(name, version)
            self.named[node] = self.renamed(name, node[1], self.called(*node))
            return self.named[node]
        absorbed = self.absorbed(op, version)
        if absorbed is not None:
            self.named[node] = absorbed
            return absorbed
        inputs = [self.tensor(*one) for one in self.operands(op, version)]
        self.named[node] = made = self.renamed(name, node[1], self.called(*node))
        here = [j for j, one in enumerate(op.inputs) if not self.drops(one)]
        loops = [self.spread(op, one, op.indices[j]) for j, one in zip(here, self.operands(op, version), strict=True)]
        kept = replace(op, name=made, inputs=tuple(inputs), output=made, indices=tuple(loops))
        if len(here) < len(op.inputs) and len(here) == 1:
            kept = replace(kept, attributes=(*op.attributes, ("view", True)))
        self.add(op, kept)
        if op.kind in MAP and MAP[op.kind].carries and NEW in version:
            self.carry(op, kept, version)
        for state in self.graph.states.get(name, ()):
            self.hand_on(op, kept, version, state)
        return made

    def hand_on(self, op: Op, made: Op, version: Version, state: str) -> None:
        """Keeps what the loop's next step reads of this one; what it reads itself was there before."""
        if self.past != 0 and self.new != 1:
            raise ValuesError(f"`{bare(state)}` is a state of a loop: a step that reads it has one position",
                              op.source, "decode with new=1, or a prefill")  # fmt: skip
        left, _ = self.last_row(op, made, next(n for n, c in enumerate(version) if c == NEW))
        before = self.tensor(state, version) if self.past != 0 else ""
        if before:
            self.tensors[before] = replace(self.tensors[before], role="state", of="")
        self.held.append(Kept(left, before, "state", op.region, why=f"`{bare(state)}`"))

    def carry(self, op: Op, made: Op, version: Version) -> None:
        """Continues a recurrence behind its earlier result, and keeps its last one."""
        (along,) = whole_indices(op)
        before = self.free(marked(op.output, "past")) if self.past != 0 else ""
        if before:
            indices = (*made.indices, tuple(i for i in made.output_indices if i != along))
            self.ops.remove((self.places[op.output], made))
            self.add(op, replace(made, inputs=(*made.inputs, before), indices=indices))
        left, alone = self.last_row(op, made, op.output_indices.index(along))
        if before:
            self.tensors[before] = replace(alone, name=before, role="state")
        self.held.append(Kept(left, before, "state", op.region, why=f"`{bare(op.output).partition('·')[0]}`"))

    def last_row(self, op: Op, made: Op, at: int) -> tuple[str, Tensor]:
        """Adds the last position of a result, along the axis at a place; gives its name and the tensor."""
        tensor, axes = self.graph.tensors[op.output], self.tensors[made.output].axes
        left, place = self.free(marked(op.output, LAST)), self.free(f"last({made.output})")
        alone = replace(tensor, name=left, axes=(*axes[:at], *axes[at + 1 :]), shape=(), latex="", parts=())
        self.tensors[left] = alone
        self.tensors[place] = Tensor(place, (axes[at],), "constant", virtual=True, source=tensor.source)
        loops = tuple(range(len(axes)))
        self.add(op, replace(op, name=left, kind="contraction", inputs=(made.output, place), output=left,
                             indices=(loops, (at,)), output_indices=tuple(n for n in loops if n != at),
                             attributes=(("lookup", True), ("slice", True), ("does", "last position"))))  # fmt: skip
        return left, alone

    def add(self, at: Op, op: Op) -> None:
        self.ops.append((self.places[at.output], op))

    @cached_property
    def places(self) -> dict[str, int]:
        return {op.output: n for n, op in enumerate(self.graph.ops)}

    def check_table(self, name: str, version: Version) -> None:
        """Raises ``ValuesError`` for a weight with a row for each position."""
        tensor = self.graph.tensors[name]
        whole = all(self.graph.axes[a].size == self.new for a in self.stream) and self.past == 0
        if tensor.role == "weight" and any(version) and not whole:
            raise ValuesError(
                f"`{bare(name)}` has a row for each of the positions, so that a step would have a weight of its own",
                tensor.source, "ids of positions choose from a table: Embed(p, W^P), W^P [n_pos, D]",
            )  # fmt: skip

    def last(self, name: str, version: Version) -> str:
        """The last position of a tensor: a slice, so nothing is stored or multiplied."""
        source = self.tensor(name, _of(version, NEW))
        tensor = self.graph.tensors[name]
        at = next(n for n, c in enumerate(version) if c == LAST)
        made = self.renamed(name, version, marked(name, LAST))
        self.tensors[made] = replace(self.tensors[made], role="activation")  # also of ids, which come from outside
        place = self.free(f"last({name})")
        new, one = self.tensors[source].axes[at], self.tensors[made].axes[at]
        self.tensors[place] = Tensor(place, (new, one), "constant", virtual=True, source=tensor.source)
        loops = tuple(range(len(version)))
        out = tuple(len(version) if n == at else n for n in loops)
        home = self.graph.producers[self.logits[0].name]
        op = Op(made, "contraction", (source, place), made, (loops, (at, len(version))), out,
                (("lookup", True), ("slice", True), ("does", "last position")), row=home.row, source=home.source,
                region=home.region)  # fmt: skip
        first = min(n for n, one in enumerate(self.graph.ops) if one.region == home.region)
        after = self.places.get(name, -1)
        self.ops.append((max(first, after), op))
        self.named[name, version] = made
        return made

    def keep(self, name: str, version: Version) -> str:
        """All rows of a tensor that is kept: those from before, and the new ones behind them."""
        tensor, op = self.graph.tensors[name], self.graph.producers.get(name)
        region = op.region if op is not None else self.frontier[name, version][0].region
        node = (name, self.plain(version))
        why = self.readers(name, version)
        again = self.again((name, version))
        if self.made_of[name] == "else":
            if self.past != 0:
                self.named[node] = self.renamed(name, version, name, role="request")
                self.held.append(Kept(name, self.named[node], "request", region, why=why))
                return self.named[node]
            self.kept.pop((name, version))
            made = self.tensor(name, version)
            self.kept[name, version] = None
            self.held.append(Kept(made, "", "request", region, why=why))
            return made
        grows, rows = any(c.startswith(ALL) for c in version), any(version)
        window = next((c.removeprefix(ALL).strip() for c in version if c.startswith(ALL)), "")
        new = self.tensor(name, _of(version, NEW)) if rows else self.update(name)
        role: Role = "cache" if grows else "state"
        like = op or self.frontier[name, version][0]
        place = self.places[like.output] if op is not None else self.places[like.output] - 1
        if again:
            new = self.repeated(new, name, version, again, place)
        seen = self.windows.get(region) if window else None
        if rows and not grows:
            seen = next(self.behind[c] + 1 for c in version if c)
        if self.past == 0:
            self.named[node] = new
            self.held.append(Kept(new, "", role, region, seen, why))
            return new
        before = self.renamed(name, version, marked(name, "past"), again, role=role, latex="")
        made = self.named[node] = self.renamed(name, version, marked(name, ALL), again, role="activation")
        self.held.append(Kept(new, before, role, region, seen, why))
        loops = tuple(range(len(again) + len(version)))
        base = Op(made, "add", (before, new), made, (loops, loops), loops, (("signs", (1, 1)), ("lookup", True)),
                  row=like.row, source=tensor.source, region=region)  # fmt: skip
        if not rows:
            self.ops.append((place, base))
            return made
        at = len(again) + next(n for n, c in enumerate(version) if c)
        where, part = self.free(f"place({new})"), self.free(f"{new}·{ALL}")
        end = self.tensors[made].axes[at]
        self.tensors[where] = Tensor(where, (self.tensors[new].axes[at], end), "constant", virtual=True)
        self.tensors[part] = replace(self.tensors[made], name=part, virtual=True)
        put = replace(
            base, name=part, kind="contraction", inputs=(new, where), output=part,
            indices=(loops, (at, len(loops))), output_indices=tuple(len(loops) if n == at else n for n in loops),
            attributes=(("lookup", True), ("slice", True), ("does", "new rows")),
        )  # fmt: skip
        joined = replace(base, inputs=(before, part), attributes=(*base.attributes, ("append", at), ("does", "append")))
        self.ops += [(place, put), (place, joined)]
        return made

    def repeated(self, new: str, name: str, version: Version, again: tuple[str, ...], place: int) -> str:
        """The new rows of a tensor once for each head."""
        op = self.graph.producers[name]
        made, loops = self.renamed(name, _of(version, NEW), marked(name, "heads"), again), tuple(range(len(version)))
        out = (*range(len(version), len(version) + len(again)), *loops)
        view = replace(op, name=made, kind="contraction", inputs=(new,), output=made, indices=(loops,),
                       output_indices=out, attributes=(("view", True),))  # fmt: skip
        self.ops.append((place, view))
        return made

    def spread(self, reader: Op, node: Node, indices: tuple[int, ...]) -> tuple[int, ...]:
        """The loops of an operand, those over heads first for which it is kept once each."""
        axes = self.graph.index_axes(reader)
        again = self.again(node) if node in self.kept else ()
        return (*(next(i for i in reader.output_indices if axes[i] == a) for a in again), *indices)

    def again(self, node: Node) -> tuple[str, ...]:
        return self.repeats(node) if self.choices["cache"] == "heads_with_rope" else ()

    def readers(self, name: str, version: Version) -> str:
        """The results that each step computes from a kept tensor, as a person reads it."""
        found, todo = dict[str, None](), [name]
        while todo:
            one = todo.pop()
            if (one, version) in self.frontier or any(n == one for n, _ in self.frontier):
                ops = [op for (n, _), readers in self.frontier.items() if n == one for op in readers]
                found |= dict.fromkeys(f"`{bare(op.output).partition('·')[0]}`" for op in ops)
            else:
                todo += [op.output for op in self.graph.consumers.get(one, ())]
        return " and ".join(found)

    def update(self, name: str) -> str:
        """The rows that are added to a state: the same op over them alone."""
        op = self.graph.producers[name]
        colours = self.colours(op, ("",) * len(op.output_indices))
        inputs = [self.tensor(n, tuple(NEW if colours.get(i) else "" for i in ix))
                  for n, ix in zip(op.inputs, op.indices, strict=True)]  # fmt: skip
        made = self.renamed(name, ("",) * len(op.output_indices), marked(name, NEW) if self.past != 0 else name)
        self.add(op, replace(op, name=made, inputs=tuple(inputs), output=made))
        return made

    # -- latents ----------------------------------------------------------------------------------------------

    def absorbed(self, reader: Op, version: Version) -> str | None:
        """The result of a reader whose keys or values are a product ``c W`` of what is kept, in the other order.

        ``W`` is multiplied first with the operand that it shares a summed loop with: ``(q W) c`` for scores, and
        ``(p c) W`` for sums of values. None where the order stays.
        """
        nodes = self.operands(reader, version)
        if (
            reader.kind != "contraction"
            or not len(reader.inputs) == len(nodes) == 2
            or self.old(reader.output, version)
        ):
            return None
        for j, node in enumerate(nodes):
            other = nodes[1 - j]
            found = self.expanded(node) if self.old(*node) and node not in self.kept else None
            if found is None or self.old(*other):
                continue
            product, turned = found
            self.read["mla"] = None
            how = self.choices["mla"]
            data, weight = self.split(product)
            # The product's loops, named as the reader's: those of its result are axes of the reader's operand.
            loops = {i: reader.indices[j][turned[n]] for n, i in enumerate(product.output_indices)}
            fresh = 1 + max(i for ix in (reader.output_indices, *reader.indices) for i in ix)
            for i in product.summed:
                loops[i], fresh = fresh, fresh + 1
            kept = tuple(loops[i] for i in product.indices[data])
            wide = tuple(loops[i] for i in product.indices[weight])
            own = reader.indices[1 - j]
            out = reader.output_indices
            first = {*wide} & {*own} & {*reader.summed}
            one, at = (own, wide) if first else (own, kept)
            rest = kept if first else wide
            inner = tuple(i for i in dict.fromkeys((*one, *at)) if i in {*out, *rest})
            if how == "expanded" or (how == "cheaper" and not self.pays(reader, version, product, j, inner, (one, at),
                                                                        (inner, rest), loops)):  # fmt: skip
                return None
            return self.reordered(reader, version, product, (other, own), (data, kept), (weight, wide), first, inner)
        return None

    def split(self, product: Op) -> tuple[int, int]:
        """The places of the data and of the weight among the operands of a product."""
        weight = next(j for j, n in enumerate(product.inputs) if n not in self.made_of)
        return 1 - weight, weight

    def expanded(self, node: Node) -> tuple[Op, list[int]] | None:
        """The product that a tensor is a view of, and the place in it of each axis of the product's result."""
        op = self.graph.producers.get(node[0])
        if op is None:
            return None
        turned = [*range(len(op.output_indices))]
        while op.attribute("view"):
            if len(op.inputs) != 1 or {*op.indices[0]} != {*op.output_indices}:
                return None
            turned = [turned[op.output_indices.index(i)] for i in op.indices[0]]
            op = self.graph.producers.get(op.inputs[0])
            if op is None:
                return None
        ready = op.kind == "contraction" and op.summed and len(op.inputs) == 2 and not op.attribute("lookup")
        if not ready or sum(n in self.made_of for n in op.inputs) != 1:
            return None
        # turned[n]: where axis n of the product's result stands in the node
        return op, turned

    def pays(
        self, reader: Op, version: Version, product: Op, j: int, inner: tuple[int, ...],
        first: tuple[tuple[int, ...], tuple[int, ...]], second: tuple[tuple[int, ...], tuple[int, ...]],
        loops: Mapping[int, int],
    ) -> bool:  # fmt: skip
        """Whether the other order takes fewer operations, at a long context; a size that is not known may decide it.

        Of unknown sizes, new positions of a decode step are few; all else is taken as equal.
        """
        colours = self.colours(reader, version)
        sizes = {i: self.length(a, colours.get(i, "")) for i, a in self.graph.index_axes(reader).items()}
        mine = self.graph.index_axes(product)
        for i, i_here in loops.items():
            sizes.setdefault(i_here, self.length(mine[i], ""))

        def passes(*groups: Iterable[int]) -> Expr:
            return sp.Mul(*(sizes[i] for i in dict.fromkeys(i for group in groups for i in group)))

        there, other = passes(*reader.indices) + passes(loops.values()), passes(*first) + passes(*second)
        saved = sp.Poly(self.graph.relations.expand(there - other), _LONG).LC()
        few = {s: sp.Integer(1) for s in self.new.free_symbols} if self.phase == "decode" else {}
        known = {s: sp.Rational(v.numerator, v.denominator) for s in saved.free_symbols
                 if (v := self.values.get(s.name)) is not None}  # fmt: skip
        found = bool(saved.xreplace({s: sp.Integer(1024) for s in saved.free_symbols} | few | known) > 0)
        apart = saved.xreplace({s: s + 1 for s in saved.free_symbols})  # sizes are one or more
        if saved.free_symbols and len({t.as_coeff_Mul()[0] > 0 for t in sp.Add.make_args(sp.expand(apart))}) > 1:
            self.orders[saved, found] = None
        return found

    def length(self, axis: str, colour: str) -> Expr:
        """The length of a loop, with a symbol for the positions of a long context."""
        if not colour:
            return self.graph.axes[axis].size
        if colour.startswith(ALL) and self.past != 0:
            return _LONG
        return sp.Integer(1) if colour == LAST else self.new

    def reordered(
        self, reader: Op, version: Version, product: Op, other: tuple[Node, tuple[int, ...]],
        data: tuple[int, tuple[int, ...]], weight: tuple[int, tuple[int, ...]], first: set[int],
        inner: tuple[int, ...],
    ) -> str:  # fmt: skip
        """The two products in the other order."""
        read = self.colours(reader, version)
        sides = {
            "data": (self.tensor(product.inputs[data[0]], tuple(read.get(i, "") for i in data[1])), data[1]),
            "weight": (self.tensor(product.inputs[weight[0]], ("",) * len(weight[1])), weight[1]),
            "other": (self.tensor(*other[0]), other[1]),
        }
        axes = {i: a for name, ix in sides.values() for i, a in zip(ix, self.tensors[name].axes, strict=True)}
        begin, then = ("weight", "data") if first else ("data", "weight")
        half = self.free(marked(reader.output.partition("·")[0], "r"))
        whole = self.renamed(reader.output, self.plain(version), self.called(reader.output, version))
        like = self.tensors[whole]
        self.tensors[half] = replace(like, name=half, axes=tuple(axes[i] for i in inner), parts=(), shape=(), latex="")
        pairs = ((half, (sides["other"], sides[begin]), inner), (whole, ((half, inner), sides[then]),
                                                                 reader.output_indices))  # fmt: skip
        for made, operands, out in pairs:
            op = replace(reader, name=made, inputs=tuple(n for n, _ in operands), output=made,
                         indices=tuple(ix for _, ix in operands), output_indices=out,
                         attributes=tuple((k, v) for k, v in reader.attributes if k != "turned"))  # fmt: skip
            self.add(reader, op)
        return whole


def _earlier(colour: str) -> bool:
    """Whether positions from before this step are among those of a colour."""
    return colour.startswith((ALL, SHORT))


def _of(version: Version, colour: str) -> Version:
    """A version with one colour for all its positions."""
    return tuple(colour if c else "" for c in version)


def _without_loss(graph: Graph) -> Graph:
    """The forward ops that do not follow from a loss, and do not make what it is taken against."""
    gone: set[str] = set()
    kept: list[Op] = []
    for op in graph.ops:
        loss = op.kind in MAP and MAP[op.kind].collapses
        if op.phase == "forward" and not loss and not gone & {*op.inputs}:
            kept.append(op)
        elif op.phase == "forward":
            gone.add(op.output)
    lost = {n for op in graph.ops if op.output in gone for n in op.inputs} - gone
    read = {n for op in kept for n in op.inputs}
    ends = {
        op.output for op in kept if graph.tensors[op.output].virtual and op.output in lost and op.output not in read
    }
    ops = tuple(op for op in kept if op.output not in ends)
    used = {n for op in ops for n in (*op.inputs, op.output)}
    return replace(graph, ops=ops, tensors={n: t for n, t in graph.tensors.items() if n in used})
