"""Why a strategy communicates, in the words of the subject, read from its program: what is cut, and what that leaves.

Nothing here knows a strategy. A weight that an op reads in parts is cut by columns or by rows; one that rests in parts
and is read whole is gathered; a sum over a cut axis is incomplete on each rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from symcomm.core import form as forms
from symcomm.core.derivation import Exhibit
from symcomm.core.form import Form, Num, Sym, num, product
from symcomm.core.graph.gradient import gradient_name
from symcomm.core.graph.ops import MAP
from symcomm.core.parallel.placement import PARTIAL, Compute
from symcomm.core.parallel.strategy import Strategy
from symcomm.core.printing import plain
from symcomm.core.program.instructions import Program
from symcomm.core.quantities.communication.call import Call, summed_parts
from symcomm.core.setting import Setting

_QUIET = ("add", "scale", "embedding", "update")  # of which nobody thinks that they might communicate
_SUMS = ("all-reduce", "reduce-scatter", "ring-sum", "ring-sum-home")
CALLED = {
    "all-reduce": "AllReduce",
    "all-gather": "AllGather",
    "reduce-scatter": "ReduceScatter",
    "all-to-all": "AllToAll",
    "ring-pass": "RingPass",
    "ring-sum": "RingSum",
    "ring-sum-home": "RingSumHome",
    "halo-exchange": "HaloExchange",
    "halo-shift": "HaloShift",
    "send": "Send",
}


def lead(made: Program, strategy: Strategy, every: Sequence[Call], chosen: Sequence[Call]) -> tuple[str, ...]:
    """Sentences on the cut tensors and the products and sums that follow, a few for each axis of the mesh in use."""
    found: list[str] = []
    for mesh, size in strategy.sizes.items():
        if size == num(1) or not any(mesh in c.meshes for c in chosen):
            continue
        cut = _Cut(made, mesh)
        finished = any(mesh in c.meshes and c.finishes for c in every)
        kinds = {c.kind for c in chosen if mesh in c.meshes}
        found += [*cut.split_weights(finished, bool(kinds & {*_SUMS})), *cut.split_data(size, kinds)]
    sent = [c for c in chosen if c.kind == "send"]
    if sent:
        forward = next((c for c in every if c.kind == "send" and c.phase == "forward"), None)
        names = _listed(dict.fromkeys(_name(c.tensor) for c in every if c.kind == "send"))
        reads = f". {forward.why[:1].upper()}{forward.why[1:]}" if forward is not None else ""
        back = "; its gradient goes back the same way" if any(c.phase == "backward" for c in every) else ""
        found.append(f"A stage sends only what the next one reads{reads or f': {names}'}{back}.")
    return tuple(dict.fromkeys(found))


class _Cut:
    """What one axis of the mesh cuts, as the steps of the program say."""

    def __init__(self, made: Program, mesh: str) -> None:
        self.made, self.mesh, self.graph = made, mesh, made.plan.graph
        self.columns: dict[str, str] = {}
        self.rows: dict[str, str] = {}
        self.other: dict[str, str] = {}
        self.maps: dict[str, None] = {}
        self.stored: dict[str, None] = {}
        self.whole: dict[str, None] = {}
        for instruction in made.instructions:
            if isinstance(instruction.work, Compute) and instruction.phase == "forward":
                self.take(instruction.work)

    def take(self, step: Compute) -> None:
        op, cut = step.op, dict(step.cuts).get(self.mesh)
        for j, (name, layout) in enumerate(zip(step.inputs, step.layouts, strict=True)):
            tensor = self.graph.tensors[name]
            if tensor.role != "weight":
                continue
            position = dict(layout).get(self.mesh)
            rests = dict(self.made.plan.placements[name]).get(self.mesh)
            if position is None:
                (self.whole if rests is None else self.stored)[name] = None
            elif len(tensor.axes) > 1 and j < len(op.indices):
                index, label = op.indices[j][position], self.graph.axes[tensor.axes[position]].label
                summed = index not in op.output_indices
                shared = any(index in where for i, where in enumerate(op.indices) if i != j)
                (self.rows if summed else self.other if shared else self.columns)[name] = label
        if cut is not None and op.kind in MAP and op.kind not in _QUIET:
            self.maps[op.kind] = None

    def split_weights(self, finished: bool, sums: bool) -> Iterable[str]:
        """The weights cut by columns and by rows, and the ops that need no communication."""
        if not (self.columns or self.rows):
            if self.other:
                axis = _listed(dict.fromkeys(f"`{label}`" for label in self.other.values()))
                yield f"{_names(self.other)} {_are(self.other)} cut along {axis}: each rank has some of them whole."
            return
        parts = []
        if self.columns:
            parts.append(f"{_names(self.columns)} {_are(self.columns)} cut by columns")
        if self.rows:
            verb = "" if self.columns else f"{_are(self.rows)} cut "
            parts.append(f"{_names(self.rows)} {verb}by rows")
        axes = _listed(dict.fromkeys(f"`{label}`" for label in (*self.columns.values(), *self.rows.values())))
        text = " and ".join(parts) if len(parts) < 2 else f"{parts[0]}, {parts[1]}"
        text += f" (each rank has a part of {axes})"
        yield text[0].upper() + text[1:] + "."
        if self.maps and self.columns and self.rows:
            yield f"Each rank computes {_listed(self.maps)} on its part, without communication."
        if self.rows and sums:
            yield "A product with rows sums over the cut axis: each rank has a part of the sum; the parts are added."
        if not finished and self.columns and self.rows and any(op.phase == "backward" for op in self.graph.ops):
            yield "Gradients of the cut weights need none: each rank owns its rows or columns and sees every token."

    def split_data(self, size: Form, kinds: set[str]) -> Iterable[str]:
        """A sentence on ranks that work on other samples with the same weights."""
        inputs = [t for t in self.graph.tensors.values() if t.role == "input" and t.axes]
        at = [(t, position) for t in inputs for m, position in self.made.plan.placements[t.name]
              if m == self.mesh and position >= 0]  # fmt: skip
        if not at or self.columns or self.rows or not (self.whole or self.stored):
            return
        label = self.graph.axes[at[0][0].axes[at[0][1]]].label
        k = f"`{size.name}`" if isinstance(size, Sym) else plain(size if isinstance(size, Num) else product(size))
        placed = self.made.plan.placements
        trained = [w for w in (*self.whole, *self.stored) if gradient_name(w) in placed]
        updates = [w for w in trained if any(m == self.mesh for m, _ in placed.get(f"state({w})", ()))]
        held = "all other weights" if self.other else "all weights"
        sums = f"The gradient of a weight is a sum over all of `{label}`"
        if self.stored:
            gathered = ", gathered before use" if "all-gather" in kinds else ""
            own = f"Each of the {k} ranks has its own part of `{label}`"
            yield f"{own} and one part in {k} of each weight{gathered}."
            if trained and kinds & {*_SUMS}:
                yield f"{sums}; the ranks add their parts, and each keeps its share of the sum."
        elif updates:
            own = f"Each of the {k} ranks has {held} and its own part of `{label}`"
            yield f"{own}, but updates one part in {k} of them."
            yield f"{sums}; a rank updates its part with the whole sum, then shares it."
        else:
            yield f"Each of the {k} ranks has {held} and its own part of `{label}`."
            if trained:
                yield f"{sums}; each rank has only its part, so the ranks add their parts."


def reasons(setting: Setting, made: Program, chosen: Sequence[Call]) -> Exhibit:
    """A row for each group of calls: the pass, why something is summed or gathered, the calls and their elements."""
    collectives = [c for c in chosen if c.kind != "send"]
    several = len({c.region.name for c in collectives}) > 1
    rows: dict[tuple[tuple[object, ...], str, str, Form], list[Call]] = {}
    for c in collectives:
        rows.setdefault((_kind_of(made, c), c.phase, c.region.name if several else "", c.times), []).append(c)
    told: list[tuple[str | Form, ...]] = []
    for (*_, count), members in rows.items():
        first = members[0]
        elements = forms.value(forms.Total(tuple(setting.written(c.elements) for c in members)))
        size = setting.written(elements.expand())
        calls = CALLED[first.kind] if len(members) == 1 else f"{len(members)} {CALLED[first.kind]}"
        where = f"{first.phase}, {first.region.name}" if several else first.phase
        told.append((where, _why(made, members), calls, size, count))
    columns = ("pass", "what is summed or gathered", "calls", "elements", "times")
    if {row[-1] for row in told} == {num(1)}:
        return Exhibit("", columns[:-1], tuple(row[:-1] for row in told), "before")
    return Exhibit("", columns, tuple(told), "before")


def _kind_of(made: Program, call: Call) -> tuple[object, ...]:
    """What calls have in common that have one reason; the sum of an activation has one of its own."""
    of_weights = call.what.strip() in ("weight", "updated weight") or call.finishes
    axes = (
        tuple(label for _, label in _terms(made, call.name, call.meshes)[:1])
        if call.finishes and call.kind in _SUMS
        else ()
    )
    return call.kind, call.meshes, call.dtype, axes, "" if of_weights else call.name


def _why(made: Program, members: Sequence[Call]) -> str:
    first = members[0]
    names = _listed(dict.fromkeys(_name(c.name) for c in members))
    if first.kind in _SUMS:
        terms = _terms(made, first.name, first.meshes)
        axes = _listed(dict.fromkeys(f"`{label}`" for _, label in terms))
        if not terms:
            return first.why
        part = ", of which each rank keeps its part" if first.kind != "all-reduce" else ""
        if len(members) > 1:
            return f"{names}: each a sum over {axes}{part}"
        name = " + ".join(map(_name, summed_parts(made, first.name, first.meshes)))
        if "largest" in first.why and len(terms) == 1:
            return f"{name} = the largest over {axes} of {_name(terms[0][0].inputs[0])}{part}"
        tensors = made.plan.graph.tensors
        products = [
            _product(made, step) if tensors[step.makes].axes == tensors[first.name.split(" @ ")[0]].axes else ""
            for step in {step.makes: step for step, _ in terms}.values()
        ]
        if not all(products):  # what is summed passed other ops, or is no product: there is no equation to write
            kept = ", and keeps its part of the whole" if part else ""
            return f"{name}: each rank has a part of the sum over {axes}{kept}"
        summed = f"({' + '.join(products)})" if len(products) > 1 else products[0]
        added = ", added locally first" if len(products) > 1 else ""
        return f"{name} = Σ over {axes} of {summed}{added}{part}"
    if first.what == "weight ":
        return f"{names}: stored in parts, read whole"
    if first.what == "updated weight ":
        return f"{_listed(dict.fromkeys(_name(c.tensor) for c in members))}: updated in parts, needed whole"
    return f"{names} {first.why.removeprefix('it ')}" if first.why.startswith("it is") else f"{names}: {first.why}"


def _terms(made: Program, name: str, meshes: Sequence[str]) -> list[tuple[Compute, str]]:
    """The products that leave a part of a sum on each rank, and the axis over which it is cut."""
    computed, graph = made.plan.computed, made.plan.graph

    def go(at: str, mesh: str) -> list[tuple[Compute, str]]:
        step = computed.get(at)
        if step is None:
            return []
        cut = dict(step.cuts).get(mesh)
        if cut is not None:
            return [(step, graph.axes[graph.index_axes(step.op)[cut]].label)]
        pending = [n for n, layout in zip(step.inputs, step.layouts, strict=True) if (mesh, PARTIAL) in layout]
        return [found for one in pending for found in go(one, mesh)]

    return [found for mesh in meshes for found in go(name, mesh)]


def _product(made: Program, step: Compute) -> str:
    """A product whose rows and columns are those of its result, such as ``xᵀ dy``; empty where none can be written."""
    op, shown = step.op, [_operand(made, name) for name in step.inputs]
    if step.part != "whole" or op.kind != "contraction" or len(shown) > 2 or not all(shown):
        return ""
    if len(shown) == 1:
        return shown[0] if {*op.summed} == {index for _, index in step.cuts} & {*op.summed} else ""
    both = {*op.indices[0]} & {*op.indices[1]} & {*op.output_indices}
    out = [i for i in op.output_indices if i not in both]
    # The factor with the last index of the result stands on the right.
    order = (1, 0) if out and out[-1] in op.indices[0] else (0, 1)
    free = [[i for i in op.indices[j] if i in out] for j in order]
    turned = [_turned([i for i in op.indices[j] if i not in both], op.summed, n == 0) for n, j in enumerate(order)]
    if [*free[0], *free[1]] != out or None in turned:
        return ""
    return " ".join(f"{shown[j]}{mark}" for j, mark in zip(order, turned, strict=True))


def _turned(indices: Sequence[int], summed: Sequence[int], left: bool) -> str | None:
    """Whether a factor is transposed: on the left what is summed comes last, on the right first; None if in between.

    >>> _turned((0, 1), (1,), True), _turned((0, 1), (1,), False), _turned((0, 1, 2), (1,), True)
    ('', 'ᵀ', None)
    """
    inside = [index in summed for index in indices]
    if inside == sorted(inside, reverse=not left):
        return ""
    return "ᵀ" if inside == sorted(inside, reverse=left) else None


def _operand(made: Program, name: str) -> str:
    """A factor by its name in the table; empty for a result inside a row, which has none."""
    bare = name.split(" @ ")[0]
    op = made.plan.graph.producers.get(bare)
    if op is not None and op.kind == "onehot":
        return f"onehot({_name(op.inputs[0])})"
    whole = bare[: bare.rindex(")")] if bare.startswith("d(") else bare  # a part of a gradient is named by it
    return "" if "·" in whole else _name(bare)


def _name(name: str) -> str:
    """A tensor in a sentence: ``d(x)·1`` is the gradient of x.

    >>> _name("d(W^Q)"), _name("x"), _name("new(W)")
    ('d`W^Q`', '`x`', '`W`')
    """
    name = name.split(" @ ")[0].split("·")[0]
    name += ")" * (name.count("(") - name.count(")"))
    if name.startswith("d(") and name.endswith(")"):
        return f"d{_name(name[2:-1])}"
    if name.startswith("new(") and name.endswith(")"):
        return _name(name[4:-1])
    return f"`{name}`"


def _listed(names: Iterable[str]) -> str:
    """Names with commas between them, and more where they are many.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    every = [*names]
    if len(every) > 8:
        return f"{', '.join(every[:7])} and {len(every) - 7} more"
    return f"{', '.join(every[:-1])} and {every[-1]}" if len(every) > 1 else "".join(every)


def _names(found: Iterable[str]) -> str:
    return _listed(f"`{name}`" for name in found)


def _are(found: Iterable[str]) -> str:
    return "are" if len([*found]) > 1 else "is"
