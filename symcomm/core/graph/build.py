"""From the rows of a layer table to the graph: which axes are one axis, which weights there are, what feeds what.

Computations join axes (the inner axis of a product, the shared positions of a sum), ``Partition`` and ``Merge`` split
and join them. Two axes that no computation joins stay two axes, however equal their sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, cast, get_args

import sympy as sp

from symcomm.core import form as forms
from symcomm.core.errors import ShapeError, Span, nearest
from symcomm.core.graph.drafts import Dim, DraftOp, DraftTensor, Label, Value, aliases, names_in, size_text
from symcomm.core.graph.formulas import Reader
from symcomm.core.graph.functions import FUNCTION
from symcomm.core.graph.graph import Axis, Graph, Op, Region, Tensor, bare
from symcomm.core.graph.roles import with_roles
from symcomm.core.notation import AxisRole, Notation, axis_role, symbol
from symcomm.core.records import dataclass, replace
from symcomm.core.text import tree

if TYPE_CHECKING:
    from symcomm.core.text.formula import LayerRow


def build(
    rows: Iterable[LayerRow],
    *,
    name: str = "layer",
    repeat: str = "",
    batch: str = "",
    inputs: Iterable[str] = (),
    weights: Iterable[str] = (),
    known: Iterable[str] = (),
    axes: Mapping[str, str] = MappingProxyType({}),
    notation: Notation | None = None,
) -> Graph:
    """The graph of a layer table.

    ``known`` are the symbols that the document declares; a size that differs from one of them in case only is it.

    ``repeat`` is the symbol that says how often the layer is stacked. ``batch`` puts a batch axis before every
    tensor that is not a weight, for tables that leave it out. ``inputs`` and ``weights`` say what a tensor is where
    the table alone would mislead; ``axes`` says which sizes are the batch and the sequence (``{"T": "sequence"}``),
    where neither the ops nor what ``notation`` says of the symbols tell. Raises ``ShapeError`` and ``FormulaError``,
    pointing at the cell.
    """
    rows = tuple(rows)
    same = aliases(rows, known)
    batched: frozenset[str] = frozenset()
    builder = partial(
        _Builder, rows=rows, inputs=frozenset(inputs), weights=frozenset(weights), renamed=same,
        notation=notation or Notation(),
    )  # fmt: skip
    if batch:
        plain = builder(axes={label: role for label, role in axes.items() if label != batch}).graph(name, repeat)
        batched = frozenset(t.name for t in plain.tensors.values() if t.role != "weight")
        axes = {batch: "batch", **axes}
        _refuse_twice(plain, batch, f"batch: {batch} puts another axis before it", "leave out 'batch'")
    reader = builder(axes=axes, batch=batch, batched=batched)
    graph = reader.graph(name, repeat)
    if repeat:
        _refuse_twice(graph, repeat, f"repeat: {repeat} stacks the layer as often", "such as repeat: N_layer")
        _check_stacked(graph)
    found = frozenset(w.name for w in graph.weights)
    if not any({t.name for t in chain[:2]} <= found and {t.name for t in chain} - found for chain in reader.chains):
        return graph
    return builder(axes=axes, batch=batch, batched=batched, known_weights=found).graph(name, repeat)


@dataclass(kw_only=True)
class _Builder(Reader):
    functions = {name: function.add for name, function in FUNCTION.items()}  # noqa: RUF012  (the class says ClassVar)
    subscripted = frozenset(name for name, function in FUNCTION.items() if function.below)

    rows: tuple[LayerRow, ...]
    inputs: frozenset[str]
    weights: frozenset[str]
    batch: str = ""
    batched: frozenset[str] = frozenset()
    ranges: dict[str, sp.Expr] = field(default_factory=dict)

    def size(self, node: tree.Node) -> sp.Expr:
        """How long an axis is; raises ``ShapeError`` where that can be no count."""
        size = forms.value(self.form(node))
        if (size.is_number and not size.is_Integer) or size.is_positive is False or size.is_integer is False:
            raise ShapeError(f"a size of {size}", node.span, "sizes are positive whole numbers")
        return size

    def declare(self, declaration: tree.Declaration) -> DraftTensor:
        name = declaration.name
        sizes = [self.size(node) for node in declaration.sizes]
        known = self.tensors.get((name.key, bool(name.index)))
        shape = tuple(size_text(s) for s in sizes)
        if known:
            old = known.dims[len(known.indices) + (known.name in self.batched and bool(self.batch)) :]
            fits = len(old) == len(sizes) and all(self.same(d.root().size, s) for d, s in zip(old, sizes, strict=True))
            if not fits and not declaration.lent:
                was = " × ".join(known.shape)
                raise ShapeError(
                    f"{known.name} is {' × '.join(shape)} here, but {was} above", declaration.span, "give it one shape"
                )
            return known
        full = name.key + (f"_{name.index}" if name.index else "")
        dims = [self.dim(s) for s in sizes]
        if full in self.batched and self.batch:
            dims.insert(0, self.dim(symbol(self.batch)))
        if name.index:
            if name.index not in self.ranges:
                raise ShapeError(
                    f"the index {name.index} of {full} has no range",
                    name.span,
                    f"write for instance {name.index} = 1, \\dots, n_h",
                )
            dims.insert(0, self.dim(self.ranges[name.index]))
        tensor = DraftTensor(
            full,
            name.latex,
            (name.index,) if name.index else (),
            tuple(dims),
            shape,
            declaration.domain,
            declaration.span,
        )
        self.tensors[name.key, bool(name.index)] = tensor
        return tensor

    def read(self, number: int, row: LayerRow) -> None:
        self.row = number
        equation = row.equation
        declared = (*row.inputs, *row.outputs)
        self.ranges = {}
        for some in (equation.ranges, *(d.ranges for d in declared)):
            for r in some:
                size = self.size(r.count)
                if r.index in self.ranges and not self.same(self.ranges[r.index], size):
                    raise ShapeError(f"{r.index} goes to {self.ranges[r.index]} and to {size} in one row", r.span)
                self.ranges[r.index] = size
        for declaration in declared:
            key = (declaration.name.key, True)
            if declaration.name.index and declaration.name.index not in self.ranges and key in self.tensors:
                self.ranges[declaration.name.index] = self.tensors[key].dims[0].root().size
        if isinstance(equation.target, tree.Family):
            counted = self.size(equation.target.count)
            for d in row.outputs:
                if d.name.key == equation.target.name.key and d.name.index:
                    self.ranges.setdefault(d.name.index, counted)
        for letter in {n.index for n in names_in(equation.formula) if n.index and n.index not in self.ranges}:
            for n in names_in(equation.formula):
                if n.index == letter and (n.key, True) in self.tensors:
                    self.ranges[letter] = self.tensors[n.key, True].dims[0].root().size
        family = isinstance(equation.target, tree.Family)
        name = equation.target.name if isinstance(equation.target, tree.Family) else equation.target
        assert isinstance(name, tree.Identifier)
        key = name.key, family or bool(name.index)
        earlier = key in self.tensors
        for declaration in declared:
            self.declare(declaration)
        target = self.tensors.get(key)
        if target is None:
            raise ShapeError(f"{name.key} has no shape", name.span, "declare it in the Output column")
        if target.role == "activation":
            raise ShapeError(f"{target.name} is computed twice", name.span, "give the second one another name")
        if earlier and any(target in op.inputs for op in self.ops):
            raise ShapeError(f"{target.name} is read here, and a row below computes it", target.source,
                             f"put the row of {target.name} above this one")  # fmt: skip
        self.target, self.formula = target, equation.formula
        value = self.tensor(equation.formula)
        self.settle(value, target, row.span)

    def settle(self, value: Value, target: DraftTensor, span: Span) -> None:
        """Makes the value of a row its declared result: same families, same shape."""
        made = value.tensor
        # ``h = x`` adds no op: x is what an earlier row made, and is still there.
        fresh = self.ops and self.ops[-1].row == self.row and self.ops[-1].output is made and not made.virtual
        letters = dict(value.family)
        if set(letters) != set(target.indices):
            missing = set(target.indices) ^ set(letters)
            raise ShapeError(
                f"{target.name} and its formula do not run over the same indices ({', '.join(sorted(missing))})", span
            )
        if len(value.dims) != len(target.dims) - len(target.indices):
            raise ShapeError(
                f"{target.name} is declared with {len(target.shape)} axes, but its formula has {len(value.dims)}",
                target.source,
            )
        ordered = (*(made.dims[letters[a]] for a in target.indices), *value.dims)
        for n, (a, b) in enumerate(zip(ordered, target.dims, strict=True)):
            if not self.same(a.root().size, b.root().size):
                moved = {d.root().label for d in ordered} == {d.root().label for d in target.dims}
                raise ShapeError(
                    f"{target.name} is declared as {' × '.join(target.shape)}, but its formula has "
                    f"{a.root().label} where that says {b.root().label}",
                    target.source,
                    f"axis {n + 1 - len(target.indices)} should be {a.root().label}"
                    + (
                        "; products join the last two axes: write a row of its own, Permute(Q), before" if moved else ""
                    ),
                )
            self.join(a, b, span, target.name)
        places = [*(letters[a] for a in target.indices), *value.places]
        if fresh:
            draft = self.ops[-1]
            draft.output = target
            draft.output_labels = tuple(draft.output_labels[p] for p in places)
        else:
            labels = [self.fresh() for _ in places]
            read = tuple(labels[places.index(p)] for p in range(len(made.dims)))
            self.ops.append(
                DraftOp("contraction", (made,), target, (read,), tuple(labels), {"view": True}, self.row, span)
            )
        target.role = "activation"
        if made in self.routes:
            self.routes[target] = self.routes[made]

    def graph(self, name: str, repeat: str) -> Graph:
        """The finished graph."""
        declared = {d.name.key for row in self.rows for d in (*row.inputs, *row.outputs)}
        for name_read in (n for row in self.rows for n in names_in(row.equation.formula)):
            if (key := name_read.key) in self.weights - declared:  # a number that is learned
                self.tensors.setdefault(
                    (key, False), DraftTensor(key, name_read.latex, (), (), (), "R", name_read.span)
                )
        for number, row in enumerate(self.rows, start=1):
            with row.span.meant():
                self.read(number, row)
        atoms: dict[Dim, Axis] = {}
        taken: dict[str, int] = {}

        def flatten(dim: Dim) -> tuple[Dim, ...]:
            root = dim.root()
            return tuple(a for p in root.parts for a in flatten(p)) if root.parts else (root,)

        def flat_labels(label: Label, dim: Dim) -> list[Label]:
            root = dim.root()
            if not root.parts:
                return [label]
            return [x for k, p in enumerate(root.parts) for x in flat_labels((label, k), p)]

        def axis(root: Dim) -> Axis:
            if root not in atoms:
                taken[root.label] = taken.get(root.label, 0) + 1
                unique = root.label if taken[root.label] == 1 else f"{root.label}~{taken[root.label]}"
                atoms[root] = Axis(unique, root.label, root.size)
            return atoms[root]

        def finished(t: DraftTensor) -> Tensor:
            axes = tuple(axis(a).name for d in t.dims for a in flatten(d))
            parts = tuple(len([*flatten(d)]) for d in t.dims)
            families.update(axis(a).name for d in t.dims[: len(t.indices)] for a in flatten(d))
            constant = t.domain != "R" or "mask" in t.name.lower()
            role = t.role or ("constant" if constant and t.name not in said else "input")
            of = t.of.name if t.of is not None else ""
            return Tensor(t.name, axes, role, t.latex, t.shape, t.dtype, t.virtual, of, t.source, parts)

        tensors: dict[str, Tensor] = {}
        families: set[str] = set()
        said = self.inputs | self.weights
        ops: list[Op] = []
        for draft in self.ops:
            numbers: dict[Label, int] = {}

            def indices(
                labels: Sequence[Label], dims: Sequence[Dim], numbers: dict[Label, int] = numbers
            ) -> tuple[int, ...]:
                flat = [x for label, d in zip(labels, dims, strict=True) for x in flat_labels(label, d)]
                return tuple(numbers.setdefault(x, len(numbers)) for x in flat)

            for t in (*draft.inputs, draft.output):
                if t.name not in tensors:
                    tensors[t.name] = finished(t)
            read = tuple(indices(ls, t.dims) for ls, t in zip(draft.labels, draft.inputs, strict=True))
            write = indices(draft.output_labels, draft.output.dims)
            dims = {
                label: d
                for ls, t in (*zip(draft.labels, draft.inputs, strict=True), (draft.output_labels, draft.output))
                for label, d in zip(ls, t.dims, strict=True)
            }
            attributes = dict(draft.attributes)
            for key in ("along", "whole", "window"):
                if key in attributes:
                    labels = attributes[key] if isinstance(attributes[key], tuple) else (attributes[key],)
                    flat = [
                        x for label in labels for x in (flat_labels(label, dims[label]) if label in dims else (label,))
                    ]
                    attributes[key] = tuple(numbers[x] for x in flat)
            ops.append(
                Op(
                    draft.output.name,
                    draft.kind,
                    tuple(t.name for t in draft.inputs),
                    draft.output.name,
                    read,
                    write,
                    tuple(attributes.items()),
                    "forward",
                    draft.row,
                    draft.source,
                    name,
                )
            )
        used = {t.name for t in tensors.values()}
        notes = tuple(
            f"{t.name} is declared but no row uses it" for t in self.tensors.values() if t.name not in used
        ) + tuple(note for row in self.rows for note in row.notes)
        notes += tuple(
            f"'{key}' is read as '{name}', which the document declares" for key, name in self.renamed.items()
        )
        notes += tuple(self.marks)
        region = Region(name, repeat)
        graph = Graph(
            name, {a.name: a for a in atoms.values()}, tensors, tuple(ops), self.relations(), (region,), notes
        )
        graph = _with_axis_roles(graph, self.axes, self.notation)
        loops = {t.name for t in tensors.values() if t.of}
        weights = self.weights | {t.name for t in self.tensors.values() if t.role == "weight"} - self.inputs
        graph = with_roles(graph, inputs=self.inputs | loops, weights=weights, families=families)
        return replace(graph, regions=(replace(region, carried=_carried(graph)),))


def _with_axis_roles(graph: Graph, said: Mapping[str, str], notation: Notation) -> Graph:
    """The graph with what its axes are said to be, by ``said`` (label to role) or by the meaning of their symbols."""
    labels = list(dict.fromkeys(a.label for a in graph.axes.values()))
    for label, role in said.items():
        if role not in get_args(AxisRole) or not role:
            raise ShapeError(f"an axis is the batch or the sequence, not '{role[:60]}'", hint=f"{label}: batch")
        if label not in labels:
            raise ShapeError(f"no tensor has an axis '{label[:60]}'", hint=nearest(label, labels))

    def role_of(axis: Axis) -> AxisRole:
        meant = axis_role(notation.usual(str(axis.size.name))) if axis.size.is_Symbol else ""
        return cast("AxisRole", said.get(axis.label, meant))

    return replace(graph, axes={name: replace(axis, role=role_of(axis)) for name, axis in graph.axes.items()})


def _refuse_twice(graph: Graph, name: str, why: str, hint: str) -> None:
    """Raises ``ShapeError`` where a size of the table has the name that an option gives to something else."""
    for tensor in graph.tensors.values():
        if tensor.source and any(name in {s.name for s in graph.axes[a].size.free_symbols} for a in tensor.axes):
            raise ShapeError(f"{name} is a size of {bare(tensor.name)} already, and {why}", tensor.source, hint)


def _check_stacked(graph: Graph) -> None:
    """Raises ``ShapeError`` where a layer that is repeated makes nothing that its next repetition could read."""
    if not graph.carried and graph.inputs and graph.outputs:
        into = next(t for t in graph.inputs if not t.of)
        out = next(t for t in graph.outputs if not graph.producers[t.name].attribute("whole"))
        made, read = (f"{bare(t.name)} [{', '.join(t.shape)}]" for t in (out, into))
        raise ShapeError(
            f"{graph.name} cannot be repeated: it makes {made}, and the next one would read {read}", out.source,
            "the result of a layer that is repeated has the shape of its input; leave out 'repeat', or add a row",
        )  # fmt: skip


def _carried(graph: Graph) -> tuple[tuple[str, str], ...]:
    """The output that becomes the input of the next repetition, with that input."""
    for out in reversed(graph.outputs):
        for into in (t for t in graph.inputs if not t.of and not graph.producers[out.name].attribute("whole")):
            a, b = (sp.Mul(*(graph.axes[x].size for x in t.axes)) for t in (out, into))
            if len(out.shape) == len(into.shape) and graph.same_size(a, b):
                return ((out.name, into.name),)
    return ()
