"""From the rows of a layer table to the graph: which axes are one axis, which weights there are, what feeds what.

Each size in a table starts as an axis of its own. Computations join axes (the inner axis of a product, the shared
positions of a sum), ``Partition`` and ``Merge`` split and join them. Two axes that no computation joins stay two axes,
however equal their sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import sympy as sp

from symcomm import form as forms
from symcomm.derivation import Relations
from symcomm.errors import FormulaError, ShapeError, Span, SymcommError, nearest
from symcomm.form import Form
from symcomm.graph import ops as kinds
from symcomm.graph.graph import Axis, Graph, Op, Role, Tensor
from symcomm.notation import split_name
from symcomm.text import tree

if TYPE_CHECKING:
    from symcomm.text.formula import LayerRow

# A loop index while building: a number, or (index, part) for a part of a split axis.
Label = Any


@dataclass(eq=False)
class _Dim:
    """An axis while the table is read; ``parent`` joins it to another, ``parts`` split it."""

    size: sp.Expr
    label: str
    parent: _Dim | None = None
    parts: tuple[_Dim, ...] = ()

    def root(self) -> _Dim:
        """The axis it was joined to."""
        dim = self
        while dim.parent is not None:
            dim = dim.parent
        if dim is not self:
            self.parent = dim
        return dim


@dataclass(eq=False)
class _Tensor:
    """A tensor while the table is read: first the axes of its families, then those of its shape."""

    name: str
    latex: str
    indices: tuple[str, ...]
    dims: tuple[_Dim, ...]
    shape: tuple[str, ...]
    domain: str
    source: Span | None
    role: Role | None = None
    virtual: bool = False
    dtype: str | None = None


@dataclass(frozen=True)
class _Value:
    """A tensor as a formula sees it: which of its axes are families, and the order of the others."""

    tensor: _Tensor
    family: tuple[tuple[str, int], ...]
    places: tuple[int, ...]
    span: Span

    @property
    def dims(self) -> tuple[_Dim, ...]:
        return tuple(self.tensor.dims[p] for p in self.places)

    def labels(self, by_letter: Mapping[str, Label], by_dim: Sequence[Label]) -> tuple[Label, ...]:
        """The labels of all axes of the tensor, from those of its families and of its dims as seen."""
        found: dict[int, Label] = {place: by_letter[letter] for letter, place in self.family}
        found.update(zip(self.places, by_dim, strict=True))
        return tuple(found[p] for p in range(len(self.tensor.dims)))


@dataclass
class _DraftOp:
    kind: str
    inputs: tuple[_Tensor, ...]
    output: _Tensor
    labels: tuple[tuple[Label, ...], ...]
    output_labels: tuple[Label, ...]
    attributes: dict[str, Any]
    row: int
    source: Span | None


def size_form(node: tree.Node, aliases: Mapping[str, str] = MappingProxyType({})) -> Form:
    """A size or scalar of a table as a form; raises ``FormulaError`` for what is no size.

    ``aliases`` gives the name a symbol is declared by, where the table spells it otherwise.
    """

    def size_form(node: tree.Node) -> Form:
        return _size_form(node, aliases, size_form)

    return size_form(node)


def _size_form(node: tree.Node, aliases: Mapping[str, str], size_form: Callable[[tree.Node], Form]) -> Form:
    match node:
        case tree.Number(value=number):
            return forms.rational(number)
        case tree.Name(key=key):
            return forms.Sym(aliases.get(key, key))
        case tree.Product(factors=factors) | tree.Hadamard(factors=factors):
            return forms.product(*(size_form(f) for f in factors))
        case tree.Sum(terms=terms, signs=signs):
            written = [size_form(t) for t in terms]
            return forms.Total(tuple(t if s > 0 else forms.negative(t) for t, s in zip(written, signs, strict=True)))
        case tree.Quotient(top=top, bottom=bottom):
            return forms.Ratio(size_form(top), size_form(bottom))
        case tree.Power(base=base, exponent=exponent):
            return forms.Power(size_form(base), size_form(exponent))
        case tree.Root(inside=inside):
            return forms.Root(size_form(inside))
    raise FormulaError("this is not a size", node.span, "a size is made of numbers and symbols, such as 4D or n_h × H")


def aliases(rows: Iterable[LayerRow], known: Iterable[str]) -> dict[str, str]:
    """Sizes of a table that a document declares in another case: ``n_h`` for ``n_H``.

    Only where the declared spelling does not stand in the table itself, so that ``L`` and ``l`` can be two sizes.
    """
    used = {n.key for row in rows for d in (*row.inputs, *row.outputs) for s in (*d.sizes, *d.ranges) for n in _names(s)}
    used |= {n.key for row in rows for r in row.equation.ranges for n in _names(r)}
    declared = {*known}
    found: dict[str, str] = {}
    for key in used - declared:
        near = [name for name in declared if name.lower() == key.lower()]
        if len(near) == 1 and near[0] not in used:
            found[key] = near[0]
    return found


def build(
    rows: Iterable[LayerRow],
    *,
    name: str = "layer",
    repeat: str = "",
    batch: str = "",
    inputs: Iterable[str] = (),
    weights: Iterable[str] = (),
    known: Iterable[str] = (),
) -> Graph:
    """The graph of a layer table.

    ``known`` are the symbols that the document declares; a size that differs from one of them in case only is it.

    ``repeat`` is the symbol that says how often the layer is stacked. ``batch`` puts a batch axis before every
    tensor that is not a weight, for tables that leave it out. ``inputs`` and ``weights`` say what a tensor is where
    the table alone would mislead. Raises ``ShapeError`` and ``FormulaError``, pointing at the cell.
    """
    rows = tuple(rows)
    same = aliases(rows, known)
    batched: frozenset[str] = frozenset()
    if batch:
        plain = _Builder(rows, frozenset(inputs), frozenset(weights), same).graph(name, repeat)
        batched = frozenset(t.name for t in plain.tensors.values() if t.role != "weight")
    return _Builder(rows, frozenset(inputs), frozenset(weights), same, batch, batched).graph(name, repeat)


@dataclass
class _Builder:
    rows: tuple[LayerRow, ...]
    inputs: frozenset[str]
    weights: frozenset[str]
    renamed: Mapping[str, str]
    batch: str = ""
    batched: frozenset[str] = frozenset()
    tensors: dict[tuple[str, bool], _Tensor] = field(default_factory=dict)
    drafts: list[_DraftOp] = field(default_factory=list)
    equations: dict[str, Form] = field(default_factory=dict)
    routes: dict[_Tensor, _Tensor] = field(default_factory=dict)
    counter: int = 0
    ranges: dict[str, sp.Expr] = field(default_factory=dict)
    target: _Tensor | None = None
    row: int = 0
    span: Span | None = None

    # -- sizes and axes ------------------------------------------------------------------------

    def relations(self) -> Relations:
        return Relations(tuple(self.equations.items()))

    def form(self, node: tree.Node) -> Form:
        return size_form(node, self.renamed)

    def dim(self, size: sp.Expr) -> _Dim:
        return _Dim(size, str(size).replace("*", ""))

    def same(self, a: sp.Expr, b: sp.Expr) -> bool:
        relations = self.relations()
        return a == b or bool((relations.expand(a) - relations.expand(b)).expand() == 0)

    def join(self, a: _Dim, b: _Dim, span: Span, what: str) -> None:
        """Makes two axes one; ``what`` says in an error which axes those are."""
        a, b = a.root(), b.root()
        if a is b:
            return
        if not self.same(a.size, b.size):
            raise ShapeError(f"shapes do not fit: {what} ({a.label} against {b.label})", span, "both must have one size")
        if a.parts and b.parts:
            if len(a.parts) != len(b.parts):
                raise ShapeError(f"{a.label} is split in two different ways", span)
            for x, y in zip(a.parts, b.parts, strict=True):
                self.join(x, y, span, what)
        b.parent = a
        a.parts = a.parts or b.parts

    def split(self, whole: _Dim, parts: tuple[_Dim, ...], span: Span) -> None:
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

    # -- declarations --------------------------------------------------------------------------

    def declare(self, declaration: tree.Declaration) -> _Tensor:
        name = declaration.name
        sizes = [forms.value(self.form(s)) for s in declaration.sizes]
        for node, size in zip(declaration.sizes, sizes, strict=True):
            if size.is_number and not (size.is_Integer and size > 0):
                raise ShapeError(f"a size of {size}", node.span, "sizes are positive whole numbers")
        known = self.tensors.get((name.key, bool(name.index)))
        shape = tuple(str(s).replace("*", "") for s in sizes)
        if known:
            old = known.dims[len(known.indices) + (known.name in self.batched and bool(self.batch)) :]
            fits = len(old) == len(sizes) and all(self.same(d.root().size, s) for d, s in zip(old, sizes, strict=True))
            if not fits:
                was = " × ".join(known.shape)
                raise ShapeError(
                    f"{known.name} is {' × '.join(shape)} here, but {was} above", declaration.span, "give it one shape"
                )
            return known
        full = name.key + (f"_{name.index}" if name.index else "")
        dims = [self.dim(s) for s in sizes]
        if full in self.batched and self.batch:
            from symcomm.notation import symbol

            dims.insert(0, self.dim(symbol(self.batch)))
        if name.index:
            if name.index not in self.ranges:
                raise ShapeError(
                    f"the index {name.index} of {full} has no range",
                    name.span,
                    f"write for instance {name.index} = 1, \\dots, n_h",
                )
            dims.insert(0, self.dim(self.ranges[name.index]))
        tensor = _Tensor(
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

    # -- ops -----------------------------------------------------------------------------------

    def fresh(self) -> int:
        self.counter += 1
        return self.counter

    def emit(
        self,
        kind: str,
        operands: Sequence[_Value | _Tensor],
        labels: Sequence[tuple[Label, ...]],
        letters: Sequence[tuple[str, Label, _Dim]],
        dims: Sequence[tuple[Label, _Dim]],
        span: Span,
        **attributes: Any,
    ) -> _Value:
        """Adds an op; the result has the families of ``letters`` first, then ``dims``."""
        inputs = tuple(o.tensor if isinstance(o, _Value) else o for o in operands)
        made = _Tensor(
            f"{self.target.name if self.target else 'value'}·{len(self.drafts) + 1}",
            "",
            tuple(letter for letter, _, _ in letters),
            tuple(d for _, _, d in letters) + tuple(d for _, d in dims),
            (),
            "R",
            span,
            role="activation",
        )
        output_labels = tuple(label for _, label, _ in letters) + tuple(label for label, _ in dims)
        self.drafts.append(_DraftOp(kind, inputs, made, tuple(labels), output_labels, attributes, self.row, span))
        return self.seen(made, span)

    def seen(self, tensor: _Tensor, span: Span, letters: Sequence[str] | None = None) -> _Value:
        n = len(tensor.indices)
        letters = letters or tensor.indices
        return _Value(tensor, tuple((a, i) for i, a in enumerate(letters)), tuple(range(n, len(tensor.dims))), span)

    def fresh_labels(self, value: _Value) -> tuple[dict[str, Label], list[Label]]:
        return {letter: self.fresh() for letter, _ in value.family}, [self.fresh() for _ in value.places]

    def letters_of(self, *pairs: tuple[_Value, Mapping[str, Label]]) -> list[tuple[str, Label, _Dim]]:
        found: dict[str, tuple[str, Label, _Dim]] = {}
        for value, by_letter in pairs:
            for letter, place in value.family:
                found.setdefault(letter, (letter, by_letter[letter], value.tensor.dims[place]))
        return list(found.values())

    def share_families(self, a: _Value, of_a: Mapping[str, Label], b: _Value, of_b: dict[str, Label]) -> None:
        """Members with one index letter belong together: ``Q_i K_i^T`` multiplies pair by pair."""
        for letter, place in b.family:
            if letter in of_a:
                of_b[letter] = of_a[letter]
                mine = dict(a.family)[letter]
                self.join(a.tensor.dims[mine], b.tensor.dims[place], b.span, f"the index {letter}")

    def matmul(self, a: _Value, b: _Value, span: Span) -> _Value:
        if not a.dims or not b.dims:
            raise ShapeError("a product with a scalar tensor", span)
        of_a, la = self.fresh_labels(a)
        of_b, lb = self.fresh_labels(b)
        self.share_families(a, of_a, b, of_b)
        inner = -2 if len(b.dims) > 1 else -1
        if not self.same(a.dims[-1].root().size, b.dims[inner].root().size):
            raise ShapeError(
                f"shapes do not fit: {a.tensor.name} has {a.dims[-1].root().label} columns, "
                f"but {b.tensor.name} has {b.dims[inner].root().label} rows",
                span,
                "the last size of the left factor must be the last but one of the right factor",
            )
        lb[inner] = la[-1]
        self.join(a.dims[-1], b.dims[inner], span, f"the inner size of {a.tensor.name} {b.tensor.name}")
        batch_a, batch_b = list(range(len(a.dims) - 2, -1, -1))[1:], list(range(len(b.dims) - 2, -1, -1))[1:]
        if len(a.dims) >= 2 and len(b.dims) > 2:
            for i, j in zip(batch_a, batch_b, strict=False):
                lb[j] = la[i]
                self.join(a.dims[i], b.dims[j], span, f"the leading sizes of {a.tensor.name} and {b.tensor.name}")
        out: list[tuple[Label, _Dim]] = [(la[i], a.dims[i]) for i in range(len(a.dims) - 1)]
        if len(b.dims) > len(a.dims) > 0 and len(b.dims) > 2:
            out = [(lb[j], b.dims[j]) for j in range(len(b.dims) - len(a.dims))] + out
        if len(b.dims) > 1:
            out.append((lb[-1], b.dims[-1]))
        return self.emit(
            "contraction",
            (a, b),
            (a.labels(of_a, la), b.labels(of_b, lb)),
            self.letters_of((a, of_a), (b, of_b)),
            out,
            span,
        )

    def align(self, values: Sequence[_Value], span: Span) -> tuple[list[tuple[Label, ...]], list[Any], list[Any]]:
        """The labels of operands that are combined point by point, aligned at the last axis."""
        base = max(values, key=lambda v: (len(v.dims), len(v.family)))
        of_base, lbase = self.fresh_labels(base)
        labels, pairs = [], [(base, of_base)]
        for value in values:
            if value is base:
                labels.append(base.labels(of_base, lbase))
                continue
            of_value, lv = self.fresh_labels(value)
            self.share_families(base, of_base, value, of_value)
            for n in range(1, len(value.dims) + 1):
                lv[-n] = lbase[-n]
                self.join(base.dims[-n], value.dims[-n], value.span, f"{base.tensor.name} and {value.tensor.name}")
            labels.append(value.labels(of_value, lv))
            pairs.append((value, of_value))
        return labels, self.letters_of(*pairs), list(zip(lbase, base.dims, strict=True))

    def multiply(self, values: Sequence[_Value], span: Span, **attributes: Any) -> _Value:
        labels, letters, dims = self.align(values, span)
        return self.emit("contraction", values, labels, letters, dims, span, **attributes)

    def add(self, values: Sequence[_Value], signs: Sequence[int], span: Span) -> _Value:
        labels, letters, dims = self.align(values, span)
        return self.emit("add", values, labels, letters, dims, span, signs=tuple(signs))

    def map(self, kind: str, value: _Value, span: Span, *others: _Value, **attributes: Any) -> _Value:
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

    def constant(self, name: str, dims: Sequence[_Dim], span: Span, dtype: str | None = None) -> _Value:
        shape = tuple(d.root().label for d in dims)
        made = _Tensor(name, "", (), tuple(dims), shape, "B", span, role="constant", dtype=dtype)
        self.tensors.setdefault((name, False), made)
        return self.seen(made, span)

    def onehot(self, indices: _Value, classes: _Dim, span: Span) -> _Value:
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

    def reduce(self, value: _Value, span: Span, mean: bool) -> _Value:
        of, labels = self.fresh_labels(value)
        scale = 1 / sp.Mul(*(d.root().size for d in value.tensor.dims)) if mean else sp.Integer(1)
        return self.emit("contraction", (value,), (value.labels(of, labels),), (), (), span, scale=scale)

    # -- formulas ------------------------------------------------------------------------------

    def scalar(self, node: tree.Node) -> sp.Expr | None:
        """The worth of a formula without tensors, or None where a tensor is in it."""
        match node:
            case tree.Number() | tree.Name():
                if isinstance(node, tree.Name) and self.find(node) is not None:
                    return None
                return forms.value(self.form(node))
            case tree.Product(factors=parts) | tree.Sum(terms=parts) | tree.Hadamard(factors=parts):
                pass
            case tree.Quotient(top=top, bottom=bottom):
                parts = (top, bottom)
            case tree.Power(base=base, exponent=exponent):
                parts = (base, exponent)
            case tree.Root(inside=inside):
                parts = (inside,)
            case _:
                return None
        return None if any(self.scalar(p) is None for p in parts) else forms.value(self.form(node))

    def find(self, name: tree.Name) -> _Tensor | None:
        return self.tensors.get((name.key, bool(name.index)))

    def tensor(self, node: tree.Node) -> _Value:
        """The value of a formula that must be a tensor."""
        match node:
            case tree.Name():
                found = self.find(node)
                if found is None:
                    raise ShapeError(
                        f"{node.key} has no shape", node.span, nearest(node.key, [key for key, _ in self.tensors])
                    )
                return self.seen(found, node.span, (node.index,) if node.index else None)
            case tree.Transpose(inside=inside):
                value = self.tensor(inside)
                if len(value.places) < 2:
                    raise ShapeError("a transpose needs two axes", node.span)
                places = (*value.places[:-2], value.places[-1], value.places[-2])
                return _Value(value.tensor, value.family, places, node.span)
            case tree.Product(factors=factors):
                scale, result = sp.Integer(1), None
                for factor in factors:
                    number = self.scalar(factor)
                    if number is not None:
                        scale *= number
                        continue
                    value = self.tensor(factor)
                    result = value if result is None else self.matmul(result, value, node.span)
                assert result is not None
                return result if scale == 1 else self.map("scale", result, node.span, scale=scale)
            case tree.Quotient(top=top, bottom=bottom):
                number = self.scalar(bottom)
                if number is None:
                    raise FormulaError("a division by a tensor", bottom.span, "divide by a number or a size")
                return self.map("scale", self.tensor(top), node.span, scale=1 / number)
            case tree.Hadamard(factors=factors):
                return self.multiply([self.tensor(f) for f in factors], node.span)
            case tree.Sum(terms=terms, signs=signs):
                for term in terms:
                    if self.scalar(term) is not None:
                        raise FormulaError("a number is added to a tensor", term.span, "add tensors only")
                return self.add([self.tensor(t) for t in terms], signs, node.span)
            case tree.Call():
                return self.call(node)
        raise FormulaError("this is not something a layer computes", node.span)

    def call(self, node: tree.Call) -> _Value:
        function = node.function.replace(" ", "_")
        if function in kinds.SPELLED:
            kind = kinds.SPELLED[function]
            if kind.name in ("layernorm", "rmsnorm"):
                return self.norm(kind.name, node)
            if kind.name == "crossentropy":
                return self.crossentropy(node)
            self.expect(node, 1)
            value = self.tensor(node.arguments[0])
            if kind.name == "rope":
                where = value.dims[-2:] if len(value.dims) > 1 else value.dims
                tables = [self.constant(f"{f}({value.tensor.name})", where, node.span) for f in ("cos", "sin")]
                return self.map("rope", value, node.span, *tables)
            return self.map(kind.name, value, node.span)
        method: Callable[[tree.Call], _Value] | None = getattr(self, f"call_{_ALIASES.get(function, function)}", None)
        if method is None:
            raise FormulaError(f"unknown function '{node.function}'", node.span, nearest(function, kinds.functions()))
        return method(node)

    def expect(self, node: tree.Call, *counts: int) -> None:
        if len(node.arguments) not in counts:
            wanted = " or ".join(str(c) for c in counts)
            raise FormulaError(
                f"{node.function} takes {wanted} argument{'s' if counts != (1,) else ''}, not {len(node.arguments)}",
                node.span,
            )

    def result(self, node: tree.Call) -> _Tensor:
        """The row's declared result, for functions whose result shape only the table says."""
        if self.target is None or self.whole is not node:
            raise FormulaError(f"{node.function} stands inside another formula", node.span, "give it a row of its own")
        return self.target

    @property
    def whole(self) -> tree.Node:
        return self._whole

    _whole: tree.Node = None  # type: ignore[assignment]  # set for each row before it is read

    def norm(self, kind: str, node: tree.Call) -> _Value:
        self.expect(node, 1, 2, 3)
        value = self.map(kind, self.tensor(node.arguments[0]), node.span)
        if len(node.arguments) > 1:
            value = self.multiply([value, self.tensor(node.arguments[1])], node.span)
        if len(node.arguments) > 2:
            value = self.add([value, self.tensor(node.arguments[2])], (1, 1), node.span)
        return value

    def crossentropy(self, node: tree.Call) -> _Value:
        self.expect(node, 2)
        logits, targets = self.tensor(node.arguments[0]), self.tensor(node.arguments[1])
        chosen = targets
        if len(targets.dims) < len(logits.dims):
            for a, b in zip(logits.dims, targets.dims, strict=False):
                self.join(a, b, node.span, f"{logits.tensor.name} and {targets.tensor.name}")
            chosen = self.onehot(targets, logits.dims[-1], node.span)
        value = self.map("crossentropy", logits, node.span, chosen)
        scalar = self.target is not None and not self.target.dims
        return self.reduce(value, node.span, mean=True) if scalar else value

    def call_linear(self, node: tree.Call) -> _Value:
        self.expect(node, 2, 3)
        value = self.matmul(self.tensor(node.arguments[0]), self.tensor(node.arguments[1]), node.span)
        return value if len(node.arguments) == 2 else self.add([value, self.tensor(node.arguments[2])], (1, 1), node.span)

    def call_transpose(self, node: tree.Call) -> _Value:
        self.expect(node, 1)
        return self.tensor(tree.Transpose(node.span, node.arguments[0]))

    def call_mean(self, node: tree.Call) -> _Value:
        self.expect(node, 1)
        return self.reduce(self.tensor(node.arguments[0]), node.span, mean=True)

    def call_sum(self, node: tree.Call) -> _Value:
        self.expect(node, 1)
        return self.reduce(self.tensor(node.arguments[0]), node.span, mean=False)

    def call_dropout(self, node: tree.Call) -> _Value:
        self.expect(node, 1, 2)
        value = self.tensor(node.arguments[0])
        mask = _Tensor(
            f"mask({value.tensor.name})",
            "",
            value.tensor.indices,
            value.tensor.dims,
            tuple(d.root().label for d in value.tensor.dims),
            "B",
            node.span,
            role="constant",
            dtype="bool",
        )
        self.tensors[mask.name, False] = mask
        hidden = _Value(mask, value.family, value.places, node.span)
        return self.multiply([value, hidden], node.span)

    def call_mask(self, node: tree.Call) -> _Value:
        self.expect(node, 1)
        value = self.tensor(node.arguments[0])
        if len(value.dims) < 2:
            raise ShapeError("a mask hides pairs of positions: it needs two axes", node.span)
        return self.map("mask", value, node.span, self.constant(f"mask({value.tensor.name})", value.dims[-2:], node.span))

    def call_causalsoftmax(self, node: tree.Call) -> _Value:
        return self.map("softmax", self.call_mask(node), node.span)

    def call_partition(self, node: tree.Call) -> _Value:
        self.expect(node, 1)
        value, target = self.tensor(node.arguments[0]), self.result(node)
        if len(target.indices) != 1 or len(target.dims) != len(value.dims) + 1:
            raise ShapeError(
                f"Partition of {value.tensor.name} makes a family of tensors with as many axes", node.span,
                "write [Q_1, \\dots, Q_{n_h}] on its left",
            )  # fmt: skip
        at = self.axis_argument(node, len(value.dims))
        heads, parts = target.dims[0], target.dims[1:]
        self.split(value.dims[at], (heads, parts[at]), node.span)
        of, labels = self.fresh_labels(value)
        kept = [parts[i] if i == at else value.dims[i] for i in range(len(parts))]
        out = [((labels[i], 1) if i == at else labels[i], kept[i]) for i in range(len(parts))]
        letters = [*self.letters_of((value, of)), (target.indices[0], (labels[at], 0), heads)]
        return self.emit("contraction", (value,), (value.labels(of, labels),), letters, out, node.span, view=True)

    def call_merge(self, node: tree.Call) -> _Value:
        self.expect(node, 1)
        argument = node.arguments[0]
        if isinstance(argument, tree.Family):
            found = self.tensors.get((argument.name.key, True))
            if found is None:
                raise ShapeError(f"{argument.name.key} is no family of tensors", argument.span)
            value = self.seen(found, argument.span)
        else:
            value = self.tensor(argument)
        target = self.result(node)
        if len(value.family) != 1 or len(target.dims) != len(value.dims):
            raise ShapeError(
                "Merge joins a family of tensors into one with as many axes", node.span, "write Merge([Z_1, \\dots, Z_{n_h}])"
            )
        at = self.axis_argument(node, len(value.dims))
        heads = value.tensor.dims[value.family[0][1]]
        self.split(target.dims[at], (heads, value.dims[at]), node.span)
        whole = self.fresh()
        labels: list[Label] = [(whole, 1) if i == at else self.fresh() for i in range(len(value.dims))]
        out = [(whole if i == at else labels[i], (target if i == at else value).dims[i]) for i in range(len(labels))]
        read = value.labels({value.family[0][0]: (whole, 0)}, labels)
        return self.emit("contraction", (value,), (read,), (), out, node.span, view=True)

    def axis_argument(self, node: tree.Call, count: int) -> int:
        at = -1
        if node.subscript is not None:
            number = self.scalar(node.subscript)
            if number is None or not number.is_Integer or not -count <= int(number) < count:
                raise FormulaError(f"{node.function} has no such axis", node.subscript.span, f"-{count} to {count - 1}")
            at = int(number)
        return at % count

    def call_repeat(self, node: tree.Call) -> _Value:
        self.expect(node, 1)
        value, target = self.tensor(node.arguments[0]), self.result(node)
        if len(value.family) != 1 or len(target.indices) != 1 or len(target.dims) != len(value.tensor.dims):
            raise ShapeError(
                "Repeat makes a larger family of key/value heads from a smaller one", node.span,
                "write K'_i = Repeat(K_j), with ranges for i and j",
            )  # fmt: skip
        few, many = value.tensor.dims[value.family[0][1]], target.dims[0]
        group = self.dim(many.root().size / few.root().size)
        self.split(many, (few, group), node.span)
        whole = self.fresh()
        labels = [self.fresh() for _ in value.dims]
        read = value.labels({value.family[0][0]: (whole, 0)}, labels)
        out = list(zip(labels, value.dims, strict=True))
        return self.emit(
            "contraction", (value,), (read,), [(target.indices[0], whole, many)], out, node.span, view=True
        )

    def call_embed(self, node: tree.Call) -> _Value:
        self.expect(node, 2)
        indices, table = self.tensor(node.arguments[0]), self.tensor(node.arguments[1])
        if len(table.dims) != 2:
            raise ShapeError("an embedding table has two axes", node.arguments[1].span, "write W \\in R^{V \\times D}")
        value = self.matmul(self.onehot(indices, table.dims[0], node.span), table, node.span)
        self.drafts[-1].attributes["lookup"] = True
        return value

    def call_topk(self, node: tree.Call) -> _Value:
        self.expect(node, 1)
        gates, target = self.tensor(node.arguments[0]), self.result(node)
        if len(target.dims) != len(gates.dims) + 1 or target.indices:
            raise ShapeError(
                f"TopK gives each token slots in its experts: {target.name} needs one axis more than {gates.tensor.name}",
                node.span,
                "write M \\in R^{B \\times L \\times E \\times C} with C slots for each expert",
            )
        of, labels = self.fresh_labels(gates)
        slots = (self.fresh(), target.dims[-1])
        out = list(zip(labels, gates.dims, strict=True))
        chosen = self.scalar(node.subscript) if node.subscript is not None else sp.Integer(1)
        route = self.emit(
            "route", (gates,), (gates.labels(of, labels),), (), [*out, slots], node.span,
            k=chosen, whole=tuple(labels[1:]),
        )  # fmt: skip
        route.tensor.virtual, route.tensor.role, route.tensor.dtype = True, "constant", "bool"
        self.routes[target] = route.tensor
        of, labels = self.fresh_labels(gates)
        out = [*zip(labels, gates.dims, strict=True), (self.fresh(), target.dims[-1])]
        return self.emit(
            "contraction",
            (gates, route),
            (gates.labels(of, labels), tuple(label for label, _ in out)),
            (),
            out,
            node.span,
        )

    def routed(self, node: tree.Call, argument: tree.Node) -> tuple[_Value, _Tensor]:
        value = self.tensor(argument)
        if value.tensor not in self.routes:
            raise ShapeError(
                f"{value.tensor.name} does not say which expert gets which token", argument.span, "make it with TopK"
            )
        return value, self.routes[value.tensor]

    def call_dispatch(self, node: tree.Call) -> _Value:
        self.expect(node, 2)
        tokens, target = self.tensor(node.arguments[0]), self.result(node)
        _, route = self.routed(node, node.arguments[1])
        of, labels = self.fresh_labels(tokens)
        expert, slot = self.fresh(), self.fresh()
        grouped = len(target.dims) == len(tokens.dims) + 1  # the experts keep the batch axis
        if len(target.indices) != 1 or len(target.dims) not in (3, len(tokens.dims) + 1):
            raise ShapeError("Dispatch makes a family: the tokens of each expert", node.span, "write X_e = Dispatch(x, M)")
        # The route's expert axis and the experts' own are one size under two names: the router is not cut with them.
        self.fits(route.dims[-2], target.dims[0], node.span, "the number of experts")
        out = [(labels[0], tokens.dims[0])] if grouped else []
        out += [(slot, route.dims[-1]), (labels[-1], tokens.dims[-1])]
        self.join(route.dims[-1], target.dims[-2], node.span, "the slots of an expert")
        return self.emit(
            "contraction", (tokens, route), (tokens.labels(of, labels), (*labels[:-1], expert, slot)),
            [(target.indices[0], expert, target.dims[0])], out, node.span, lookup=True,
        )  # fmt: skip

    def call_combine(self, node: tree.Call) -> _Value:
        self.expect(node, 2)
        results, (gates, route) = self.tensor(node.arguments[0]), self.routed(node, node.arguments[1])
        if len(results.family) != 1:
            raise ShapeError("Combine adds up a family: the results of the experts", node.span, "write Combine(Y_e, M)")
        expert = results.tensor.dims[results.family[0][1]]
        self.fits(route.dims[-2], expert, node.span, "the number of experts")
        labels = [self.fresh() for _ in route.dims]
        of = {results.family[0][0]: labels[-2]}
        inner: list[Label] = [labels[-1], self.fresh()]
        self.join(route.dims[-1], results.dims[-2], node.span, "the slots of an expert")
        if len(results.dims) == 3:
            inner.insert(0, labels[0])
            self.join(route.dims[0], results.dims[0], node.span, "the batch")
        out = [*zip(labels[:-2], route.dims[:-2], strict=True), (inner[-1], results.dims[-1])]
        return self.emit(
            "contraction", (results, gates), (results.labels(of, inner), tuple(labels)), (), out, node.span, lookup=True
        )

    def fits(self, a: _Dim, b: _Dim, span: Span, what: str) -> None:
        if not self.same(a.root().size, b.root().size):
            raise ShapeError(f"shapes do not fit: {what} ({a.root().label} against {b.root().label})", span)

    def call_conv(self, node: tree.Call) -> _Value:
        self.expect(node, 2, 3)
        image, kernel = self.tensor(node.arguments[0]), self.tensor(node.arguments[1])
        target = self.result(node)
        n = len(kernel.dims) - 2
        if n < 1 or len(image.dims) != n + 2 or len(target.dims) != n + 2:
            raise ShapeError(
                "a convolution needs X of batch × channels × positions and W of channels out × channels in × kernel",
                node.span,
            )
        self.join(image.dims[1], kernel.dims[1], node.span, "the channels of X and W")
        self.join(kernel.dims[0], target.dims[1], node.span, "the channels of W and the result")
        self.join(image.dims[0], target.dims[0], node.span, "the batch of X and the result")
        b, ci, co = self.fresh(), self.fresh(), self.fresh()
        window, taps, places = ([self.fresh() for _ in range(n)] for _ in range(3))
        out = [(b, target.dims[0]), (co, target.dims[1]), *zip(places, target.dims[2:], strict=True)]
        value = self.emit(
            "convolution", (image, kernel), ((b, ci, *window), (co, ci, *taps)), (), out, node.span,
            window=tuple(window), whole=(*window, *taps, *places),
        )  # fmt: skip
        return value if len(node.arguments) == 2 else self.channel_bias(value, node)

    def channel_bias(self, value: _Value, node: tree.Call) -> _Value:
        bias = self.tensor(node.arguments[2])
        of, labels = self.fresh_labels(value)
        self.join(value.dims[1], bias.dims[-1], node.span, "the channels of the bias")
        out = list(zip(labels, value.dims, strict=True))
        return self.emit(
            "add", (value, bias), (value.labels(of, labels), (labels[1],)), (), out, node.span, signs=(1, 1)
        )

    # -- rows ----------------------------------------------------------------------------------

    def read(self, number: int, row: LayerRow) -> None:
        self.row, self.span = number, row.span
        equation = row.equation
        declared = (*row.inputs, *row.outputs)
        self.ranges = {}
        for some in (equation.ranges, *(d.ranges for d in declared)):
            for r in some:
                size = forms.value(self.form(r.count))
                if r.index in self.ranges and not self.same(self.ranges[r.index], size):
                    raise ShapeError(f"{r.index} goes to {self.ranges[r.index]} and to {size} in one row", r.span)
                self.ranges[r.index] = size
        for declaration in declared:
            key = (declaration.name.key, True)
            if declaration.name.index and declaration.name.index not in self.ranges and key in self.tensors:
                self.ranges[declaration.name.index] = self.tensors[key].dims[0].root().size
        if isinstance(equation.target, tree.Family):
            counted = forms.value(self.form(equation.target.count))
            for d in row.outputs:
                if d.name.key == equation.target.name.key and d.name.index:
                    self.ranges.setdefault(d.name.index, counted)
        for letter in {n.index for n in _names(equation.formula) if n.index and n.index not in self.ranges}:
            for n in _names(equation.formula):
                if n.index == letter and (n.key, True) in self.tensors:
                    self.ranges[letter] = self.tensors[n.key, True].dims[0].root().size
        for declaration in declared:
            self.declare(declaration)
        family = isinstance(equation.target, tree.Family)
        name = equation.target.name if isinstance(equation.target, tree.Family) else equation.target
        assert isinstance(name, tree.Name)
        target = self.tensors.get((name.key, family or bool(name.index)))
        if target is None:
            raise ShapeError(f"{name.key} has no shape", name.span, "declare it in the Output column")
        if target.role == "activation":
            raise ShapeError(f"{target.name} is computed twice", name.span, "give the second one another name")
        self.target, self._whole = target, equation.formula
        value = self.tensor(equation.formula)
        self.settle(value, target, row.span)

    def settle(self, value: _Value, target: _Tensor, span: Span) -> None:
        """Makes the value of a row its declared result: same families, same shape."""
        made = value.tensor
        fresh = self.drafts and self.drafts[-1].output is made and not made.virtual
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
                raise ShapeError(
                    f"{target.name} is declared as {' × '.join(target.shape)}, but its formula has "
                    f"{a.root().label} where that says {b.root().label}",
                    target.source,
                    f"axis {n + 1 - len(target.indices)} should be {a.root().label}",
                )
            self.join(a, b, span, target.name)
        places = [*(letters[a] for a in target.indices), *value.places]
        if fresh:
            draft = self.drafts[-1]
            draft.output = target
            draft.output_labels = tuple(draft.output_labels[p] for p in places)
        else:
            labels = [self.fresh() for _ in places]
            read = tuple(labels[places.index(p)] for p in range(len(made.dims)))
            self.drafts.append(
                _DraftOp("contraction", (made,), target, (read,), tuple(labels), {"view": True}, self.row, span)
            )
        target.role = "activation"
        if made in self.routes:
            self.routes[target] = self.routes[made]

    # -- the result ----------------------------------------------------------------------------

    def roles(self) -> None:
        """Says of every tensor that no row computes whether it is an input, a weight or a constant."""
        outside = [t for t in self.tensors.values() if t.role is None]
        read = [t for draft in self.drafts for t in draft.inputs if t.role is None]
        data = next((t for t in read if not _looks_like_weight(t.name)), read[0] if read else None)
        batch = data.dims[0].root() if data and data.dims else None
        for tensor in outside:
            roots = {d.root() for d in tensor.dims}
            if tensor.name in self.weights:
                tensor.role = "weight"
            elif tensor.name in self.inputs:
                tensor.role = "input"
            elif tensor.domain != "R" or "mask" in tensor.name.lower():
                tensor.role = "constant"
            elif tensor is data or (batch in roots and tensor in read):
                tensor.role = "input"
            else:
                tensor.role = "weight"

    def graph(self, name: str, repeat: str) -> Graph:
        """The finished graph."""
        for number, row in enumerate(self.rows, start=1):
            try:
                self.read(number, row)
            except SymcommError as error:
                raise error.at(row.span) from None
        self.roles()
        atoms: dict[_Dim, Axis] = {}
        taken: dict[str, int] = {}

        def flatten(dim: _Dim) -> tuple[_Dim, ...]:
            root = dim.root()
            return tuple(a for p in root.parts for a in flatten(p)) if root.parts else (root,)

        def flat_labels(label: Label, dim: _Dim) -> list[Label]:
            root = dim.root()
            if not root.parts:
                return [label]
            return [x for k, p in enumerate(root.parts) for x in flat_labels((label, k), p)]

        def axis(root: _Dim) -> Axis:
            if root not in atoms:
                taken[root.label] = taken.get(root.label, 0) + 1
                unique = root.label if taken[root.label] == 1 else f"{root.label}~{taken[root.label]}"
                atoms[root] = Axis(unique, root.label, root.size)
            return atoms[root]

        def finished(t: _Tensor) -> Tensor:
            axes = tuple(axis(a).name for d in t.dims for a in flatten(d))
            return Tensor(
                t.name, axes, t.role or "activation", t.latex, t.shape, t.dtype, t.virtual, source=t.source
            )

        tensors: dict[str, Tensor] = {}
        ops: list[Op] = []
        for draft in self.drafts:
            numbers: dict[Label, int] = {}

            def indices(labels: Sequence[Label], dims: Sequence[_Dim], numbers: dict[Label, int] = numbers) -> tuple[int, ...]:
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
                    flat = [x for label in labels for x in flat_labels(label, dims[label])]
                    attributes[key] = tuple(numbers[x] for x in flat)
            ops.append(
                Op(
                    draft.output.name, draft.kind, tuple(t.name for t in draft.inputs), draft.output.name,
                    read, write, tuple(attributes.items()), "forward", draft.row, draft.source,
                )  # fmt: skip
            )
        used = {t.name for t in tensors.values()}
        notes = tuple(
            f"{t.name} is declared but no row uses it" for t in self.tensors.values() if t.name not in used
        ) + tuple(note for row in self.rows for note in row.notes)
        notes += tuple(f"'{key}' is read as '{name}', which the document declares" for key, name in self.renamed.items())
        graph = Graph(
            name, {a.name: a for a in atoms.values()}, tensors, tuple(ops), self.relations(), repeat, (), notes
        )
        return _carry(graph)


_ALIASES = {
    "convolution": "conv", "conv1d": "conv", "conv2d": "conv", "embedding": "embed", "causalmask": "mask",
    "causal_softmax": "causalsoftmax", "causal_mask": "mask", "top_k": "topk",
}  # fmt: skip


def _looks_like_weight(name: str) -> bool:
    return split_name(name)[0] in ("W", "w", "b", "bias", "weight")


def _names(node: tree.Node) -> list[tree.Name]:
    """All names in a formula."""
    found: list[tree.Name] = []
    stack: list[Any] = [node]
    while stack:
        piece = stack.pop()
        if isinstance(piece, tree.Name):
            found.append(piece)
        elif isinstance(piece, tree.Node):
            stack.extend(v for k, v in vars(piece).items() if k != "span" and isinstance(v, (tree.Node, tuple)))
        elif isinstance(piece, tuple):
            stack.extend(piece)
    return found


def _carry(graph: Graph) -> Graph:
    """The graph with the output that becomes the input of the next repetition."""
    from dataclasses import replace

    for out in reversed(graph.outputs):
        for into in graph.inputs:
            a, b = (sp.Mul(*(graph.axes[x].size for x in t.axes)) for t in (out, into))
            if len(out.shape) == len(into.shape) and graph.same_size(a, b):
                return replace(graph, carried=((out.name, into.name),))
    return graph


