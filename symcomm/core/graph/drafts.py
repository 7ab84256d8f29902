"""Drafts of axes, tensors and ops while a table is read, and the joining and splitting of axes.

Each size in a table starts as an axis of its own. ``TableDraft`` keeps what has been found so far and adds ops to it;
the builder turns the drafts into a graph once all rows are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sympy as sp

from symcomm.core import form as forms
from symcomm.core.derivation import Relations
from symcomm.core.errors import ShapeError, Span
from symcomm.core.form import Form
from symcomm.core.graph import ops as kinds
from symcomm.core.graph.graph import Role
from symcomm.core.records import dataclass
from symcomm.core.text import tree
from symcomm.core.text.tree import size_form

if TYPE_CHECKING:
    from symcomm.core.text.formula import LayerRow

# A loop index while building: a number, or (index, part) for a part of a split axis.
Label = Any


@dataclass(eq=False)
class Dim:
    """An axis while the table is read; ``parent`` joins it to another, ``parts`` split it."""

    size: sp.Expr
    label: str
    parent: Dim | None = None
    parts: tuple[Dim, ...] = ()

    def root(self) -> Dim:
        """The axis it was joined to."""
        dim = self
        while dim.parent is not None:
            dim = dim.parent
        if dim is not self:
            self.parent = dim
        return dim


@dataclass(eq=False)
class DraftTensor:
    """A tensor while the table is read: first the axes of its families, then those of its shape."""

    name: str
    latex: str
    indices: tuple[str, ...]
    dims: tuple[Dim, ...]
    shape: tuple[str, ...]
    domain: str
    source: Span | None
    role: Role | None = None
    virtual: bool = False
    dtype: str | None = None
    of: DraftTensor | None = None


@dataclass(frozen=True)
class Value:
    """A tensor as a formula sees it: which of its axes are families, and the order of the others.

    A transposed vector is a ``row``.
    """

    tensor: DraftTensor
    family: tuple[tuple[str, int], ...]
    places: tuple[int, ...]
    span: Span
    row: bool = False

    @property
    def dims(self) -> tuple[Dim, ...]:
        return tuple(self.tensor.dims[p] for p in self.places)

    def labels(self, by_letter: Mapping[str, Label], by_dim: Sequence[Label]) -> tuple[Label, ...]:
        """The labels of all axes of the tensor, from those of its families and of its dims as seen."""
        found: dict[int, Label] = {place: by_letter[letter] for letter, place in self.family}
        found.update(zip(self.places, by_dim, strict=True))
        return tuple(found[p] for p in range(len(self.tensor.dims)))


def _single(dim: Dim) -> bool:
    return bool(dim.root().size == 1)


@dataclass(eq=False)
class DraftOp:
    kind: str
    inputs: tuple[DraftTensor, ...]
    output: DraftTensor
    labels: tuple[tuple[Label, ...], ...]
    output_labels: tuple[Label, ...]
    attributes: dict[str, Any]
    row: int
    source: Span | None


@lru_cache(maxsize=4096)  # most tensors of a table have the same few
def size_text(size: sp.Expr) -> str:
    """A size as a shape prints it.

    >>> from symcomm.core.notation import symbol
    >>> size_text(4 * symbol("D")), size_text(symbol("H") * symbol("n_H")), size_text(symbol("D") ** 2)
    ('4D', 'H·n_H', 'D^2')
    """
    return re.sub(r"^(\d+)\*", r"\1", str(size)).replace("**", "^").replace("*", "·")


def aliases(rows: Iterable[LayerRow], known: Iterable[str]) -> dict[str, str]:
    """Sizes of a table that a document declares in another case: ``n_h`` for ``n_H``.

    Only where the declared spelling does not stand in the table itself, so that ``L`` and ``l`` can be two sizes.
    """
    used = {
        n.key for row in rows for d in (*row.inputs, *row.outputs) for s in (*d.sizes, *d.ranges) for n in names_in(s)
    }
    used |= {n.key for row in rows for r in row.equation.ranges for n in names_in(r)}
    declared = {*known}
    found: dict[str, str] = {}
    for key in used - declared:
        near = [name for name in declared if name.lower() == key.lower()]
        if len(near) == 1 and near[0] not in used:
            found[key] = near[0]
    return found


def names_in(node: tree.Node) -> list[tree.Identifier]:
    """All names in a formula, from right to left."""
    return [piece for piece in tree.walk(node) if isinstance(piece, tree.Identifier)][::-1]


@dataclass(kw_only=True)
class TableDraft:
    """The parts of a table read so far: tensors, ops, and the relations between sizes.

    ``target`` and ``formula`` are those of the row that is being read.
    """

    renamed: Mapping[str, str]
    tensors: dict[tuple[str, bool], DraftTensor] = field(default_factory=dict)
    ops: list[DraftOp] = field(default_factory=list)
    equations: dict[str, Form] = field(default_factory=dict)
    routes: dict[DraftTensor, DraftTensor] = field(default_factory=dict)
    target: DraftTensor | None = None
    formula: tree.Node | None = None
    row: int = 0
    counter: int = 0

    def relations(self) -> Relations:
        return Relations(tuple(self.equations.items()))

    def form(self, node: tree.Node) -> Form:
        return size_form(node, self.renamed)

    def dim(self, size: sp.Expr) -> Dim:
        return Dim(size, size_text(size))

    def same(self, a: sp.Expr, b: sp.Expr) -> bool:
        relations = self.relations()
        return a == b or bool((relations.expand(a) - relations.expand(b)).expand() == 0)

    def join(self, a: Dim, b: Dim, span: Span, what: str) -> None:
        """Makes two axes one; ``what`` says in an error which axes those are."""
        a, b = a.root(), b.root()
        if a is b:
            return
        if not self.same(a.size, b.size):
            raise ShapeError(
                f"shapes do not fit: {what} ({a.label} against {b.label})", span, "both must have one size"
            )
        if a.parts and b.parts:
            if len(a.parts) != len(b.parts):
                raise ShapeError(f"{a.label} is split in two different ways", span)
            for x, y in zip(a.parts, b.parts, strict=True):
                self.join(x, y, span, what)
        b.parent = a
        a.parts = a.parts or b.parts

    def split(self, whole: Dim, parts: tuple[Dim, ...], span: Span) -> None:
        """Says that an axis is made of parts, outermost first, and keeps the relation between the sizes."""
        whole = whole.root()
        if whole.parts:
            if len(whole.parts) != len(parts):
                raise ShapeError(f"{whole.label} is split in two different ways", span)
            for x, y in zip(whole.parts, parts, strict=True):
                self.join(x, y, span, f"the parts of {whole.label}")
            return
        size = sp.Mul(*(p.root().size for p in parts))
        if not self.same(whole.size, size):
            written = " × ".join(p.root().label for p in parts)
            names = {s.name for s in size.free_symbols}
            if not whole.size.is_Symbol or whole.size.name in self.equations or whole.size.name in names:
                raise ShapeError(
                    f"shapes do not fit: {whole.label} is not {written}", span, f"{whole.label} must be {written}"
                )
            self.equations[whole.size.name] = forms.product(*(forms.from_expr(p.root().size) for p in parts))
        whole.parts = parts

    def fresh(self) -> int:
        self.counter += 1
        return self.counter

    def emit(
        self,
        kind: str,
        operands: Sequence[Value | DraftTensor],
        labels: Sequence[tuple[Label, ...]],
        letters: Sequence[tuple[str, Label, Dim]],
        dims: Sequence[tuple[Label, Dim]],
        span: Span,
        **attributes: Any,
    ) -> Value:
        """Adds an op; the result has the families of ``letters`` first, then ``dims``."""
        inputs = tuple(o.tensor if isinstance(o, Value) else o for o in operands)
        made = DraftTensor(
            f"{self.target.name if self.target else 'value'}·{len(self.ops) + 1}",
            "",
            tuple(letter for letter, _, _ in letters),
            tuple(d for _, _, d in letters) + tuple(d for _, d in dims),
            (),
            "R",
            span,
            role="activation",
        )
        output_labels = tuple(label for _, label, _ in letters) + tuple(label for label, _ in dims)
        self.ops.append(DraftOp(kind, inputs, made, tuple(labels), output_labels, attributes, self.row, span))
        return self.seen(made, span)

    def seen(self, tensor: DraftTensor, span: Span, letters: Sequence[str] | None = None) -> Value:
        n = len(tensor.indices)
        letters = letters or tensor.indices
        return Value(tensor, tuple((a, i) for i, a in enumerate(letters)), tuple(range(n, len(tensor.dims))), span)

    def fresh_labels(self, value: Value) -> tuple[dict[str, Label], list[Label]]:
        return {letter: self.fresh() for letter, _ in value.family}, [self.fresh() for _ in value.places]

    def letters_of(self, *pairs: tuple[Value, Mapping[str, Label]]) -> list[tuple[str, Label, Dim]]:
        found: dict[str, tuple[str, Label, Dim]] = {}
        for value, by_letter in pairs:
            for letter, place in value.family:
                found.setdefault(letter, (letter, by_letter[letter], value.tensor.dims[place]))
        return list(found.values())

    def share_families(self, a: Value, of_a: Mapping[str, Label], b: Value, of_b: dict[str, Label]) -> None:
        """Members with one index letter belong together: ``Q_i K_i^T`` multiplies pair by pair."""
        for letter, place in b.family:
            if letter in of_a:
                of_b[letter] = of_a[letter]
                mine = dict(a.family)[letter]
                self.join(a.tensor.dims[mine], b.tensor.dims[place], b.span, f"the index {letter}")

    def alike(self, a: Value, b: Value) -> bool:
        """Whether tensors could be multiplied element by element: the axes of one are the last ones of the other."""
        pairs = zip(reversed(a.dims), reversed(b.dims), strict=False)
        return all(self.same(one.root().size, other.root().size) for one, other in pairs)

    def matmul(self, a: Value, b: Value, span: Span) -> Value:
        """The matrix product; a tensor of one number, where no matrix product fits, scales the other."""
        inner = -2 if len(b.dims) > 1 else -1
        fits = a.dims and b.dims and self.same(a.dims[-1].root().size, b.dims[inner].root().size)
        if not fits and any(all(map(_single, value.dims)) for value in (a, b)):
            return self.multiply([a, b], span, elementwise=True)
        of_a, la = self.fresh_labels(a)
        of_b, lb = self.fresh_labels(b)
        self.share_families(a, of_a, b, of_b)
        if b.row and len(a.dims) == 1 and not a.row:  # an outer product
            return self.emit("contraction", (a, b), (a.labels(of_a, la), b.labels(of_b, lb)),
                             self.letters_of((a, of_a), (b, of_b)), [(la[0], a.dims[0]), (lb[0], b.dims[0])], span,
                             turned=(1,))  # fmt: skip
        if not fits:
            label, name = a.dims[-1].root().label, b.tensor.name
            product = next((v.tensor for v in (a, b) if len(v.dims) == 1 and "·" in v.dims[0].root().label), None)
            elsewhere = any(d.root().label == label for d in b.dims[:inner])
            raise ShapeError(
                f"shapes do not fit: {a.tensor.name} has {a.dims[-1].root().label} columns, "
                f"but {b.tensor.name} has {b.dims[inner].root().label} rows",
                span,
                "the last size of the left factor must be the last but one of the right factor"
                + (r"; a product element by element is written \odot" if self.alike(a, b) else "")
                + (f"; {product.name} has one axis, and `×` or `,` separates several" if product else "")
                + (f"; bring {label} of {name} there in a row of its own, Permute({name})" if elsewhere else ""),
            )
        lb[inner] = la[-1]
        self.join(a.dims[-1], b.dims[inner], span, f"the inner size of {a.tensor.name} {b.tensor.name}")
        batch_a, batch_b = list(range(len(a.dims) - 2, -1, -1))[1:], list(range(len(b.dims) - 2, -1, -1))[1:]
        if len(a.dims) >= 2 and len(b.dims) > 2:
            for i, j in zip(batch_a, batch_b, strict=False):
                lb[j] = la[i]
                self.join(a.dims[i], b.dims[j], span, f"the leading sizes of {a.tensor.name} and {b.tensor.name}")
        out: list[tuple[Label, Dim]] = [(la[i], a.dims[i]) for i in range(len(a.dims) - 1)]
        if len(b.dims) > len(a.dims) > 0 and len(b.dims) > 2:
            out = [(lb[j], b.dims[j]) for j in range(len(b.dims) - len(a.dims))] + out
        if len(b.dims) > 1:
            out.append((lb[-1], b.dims[-1]))
        turned = tuple(n for n, value in enumerate((a, b)) if value.row)
        return self.emit(
            "contraction",
            (a, b),
            (a.labels(of_a, la), b.labels(of_b, lb)),
            self.letters_of((a, of_a), (b, of_b)),
            out,
            span,
            **({"turned": turned} if turned else {}),
        )

    def align(self, values: Sequence[Value], span: Span) -> tuple[list[tuple[Label, ...]], list[Any], list[Any]]:
        """The labels of operands that are combined point by point, aligned at the last axis.

        An operand is the same along an axis in which its own size is 1, and another's is not.
        """
        base = max(values, key=lambda v: (len(v.dims), sum(not _single(d) for d in v.dims), len(v.family)))
        of_base, lbase = self.fresh_labels(base)
        labels, pairs = [], [(base, of_base)]
        for value in values:
            if value is base:
                labels.append(base.labels(of_base, lbase))
                continue
            of_value, lv = self.fresh_labels(value)
            self.share_families(base, of_base, value, of_value)
            for n in range(1, len(value.dims) + 1):
                if _single(value.dims[-n]) and not _single(base.dims[-n]):
                    continue
                lv[-n] = lbase[-n]
                self.join(base.dims[-n], value.dims[-n], value.span, f"{base.tensor.name} and {value.tensor.name}")
            labels.append(value.labels(of_value, lv))
            pairs.append((value, of_value))
        return labels, self.letters_of(*pairs), list(zip(lbase, base.dims, strict=True))

    def narrowed(
        self, value: Value, labels: tuple[Label, ...], wanted: set[Label], span: Span
    ) -> tuple[Value, tuple[Label, ...]]:
        """A term without the axes of size 1 along which it is the same."""
        if {*labels} <= wanted:
            return value, labels
        letters = [(letter, labels[place], value.tensor.dims[place]) for letter, place in value.family]
        out = [(labels[p], value.tensor.dims[p]) for p in value.places if labels[p] in wanted]
        return self.emit("contraction", (value,), (labels,), letters, out, span, view=True), self.ops[-1].output_labels

    def multiply(self, values: Sequence[Value], span: Span, **attributes: Any) -> Value:
        labels, letters, dims = self.align(values, span)
        return self.emit("contraction", values, labels, letters, dims, span, **attributes)

    def add(self, values: Sequence[Value], signs: Sequence[int], span: Span) -> Value:
        labels, letters, dims = self.align(values, span)
        wanted = {label for _, label, _ in letters} | {label for label, _ in dims}
        terms = [self.narrowed(v, mine, wanted, span) for v, mine in zip(values, labels, strict=True)]
        values, labels = [v for v, _ in terms], [mine for _, mine in terms]
        return self.emit("add", values, labels, letters, dims, span, signs=tuple(signs))

    def map(self, kind: str, value: Value, span: Span, *others: Value, **attributes: Any) -> Value:
        if kinds.MAP[kind].along and not value.dims:
            raise ShapeError(f"{kind} needs an axis to work along", span)
        of_value, lv = self.fresh_labels(value)
        labels = [value.labels(of_value, lv)]
        for other in others:
            of_other, lo = self.fresh_labels(other)
            self.share_families(value, of_value, other, of_other)
            for n in range(1, len(other.dims) + 1):
                lo[-n] = lv[-n]
                self.join(value.dims[-n], other.dims[-n], span, f"{value.tensor.name} and {other.tensor.name}")
            labels.append(other.labels(of_other, lo))
        if kinds.MAP[kind].along:
            attributes["along"] = lv[-1]
        out = list(zip(lv, value.dims, strict=True))
        out = out[:-1] if kinds.MAP[kind].collapses else out
        return self.emit(kind, (value, *others), labels, self.letters_of((value, of_value)), out, span, **attributes)

    def constant(self, name: str, dims: Sequence[Dim], span: Span, dtype: str | None = None) -> Value:
        shape = tuple(d.root().label for d in dims)
        made = DraftTensor(name, "", (), tuple(dims), shape, "B", span, role="constant", dtype=dtype)
        self.tensors.setdefault((name, False), made)
        return self.seen(made, span)

    def carried(self, name: str, dims: Sequence[Dim], span: Span) -> Value:
        """A tensor that a loop hands on from one position to the next: zeros before the first one."""
        made = f"before({name})" if (f"before({name})", False) not in self.tensors else f"before({name})·{self.fresh()}"
        draft = DraftTensor(made, "", (), tuple(dims), (), "R", span, role="input")
        self.tensors[made, False] = draft
        value = self.seen(draft, span)
        of, labels = self.fresh_labels(value)
        out = [*zip(labels, dims, strict=True)]
        return self.emit("contraction", (value,), (value.labels(of, labels),), (), out, span, view=True)

    def becomes(self, value: Value, before: Value, span: Span) -> Value:
        """The value, which the next position reads as ``before``: it leaves the loop's body, position by position."""
        next(op.inputs[0] for op in self.ops if op.output is before.tensor).of = value.tensor
        self.stack(value, span, whole=True)
        for a, b in zip(value.dims, before.dims, strict=True):
            self.join(a, b, span, f"{value.tensor.name} and {before.tensor.name}")
        return value

    def stack(self, value: Value, span: Span, whole: bool = False) -> Value:
        """The results of all positions side by side; ``whole`` where each of them is made of the last one."""
        of, labels = self.fresh_labels(value)
        attributes = {"whole": (labels[-2],)} if whole else {"stacked": True}
        out = [*zip(labels, value.dims, strict=True)]
        return self.emit("contraction", (value,), (value.labels(of, labels),), (), out, span, view=True, **attributes)

    def onehot(self, indices: Value, classes: Dim, span: Span) -> Value:
        of, labels = self.fresh_labels(indices)
        out = list(zip(labels, indices.dims, strict=True))
        made = self.emit(
            "onehot",
            (indices,),
            (indices.labels(of, labels),),
            self.letters_of((indices, of)),
            [*out, (self.fresh(), classes)],
            span,
        )
        made.tensor.virtual, made.tensor.role = True, "constant"
        return made

    def reduce(self, value: Value, span: Span, mean: bool) -> Value:
        of, labels = self.fresh_labels(value)
        scale = 1 / sp.Mul(*(d.root().size for d in value.tensor.dims)) if mean else sp.Integer(1)
        return self.emit("contraction", (value,), (value.labels(of, labels),), (), (), span, scale=scale)
