"""Gradients of tensor ops as matrix formulas with shapes, read off the derived backward pass.

Nothing here knows an op: a contraction is written as a product of matrices where its indices allow it, the gradient of
a map is the expression of its record. The backward pass is the one whose operations and memory are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from string import ascii_lowercase
from typing import Any, cast

from symcomm.core import form as forms
from symcomm.core.form import Called, Elementwise, Form, Power, Ratio, Root, Sym, Total, Transposed, negative, num
from symcomm.core.graph.graph import Graph, Op, bare
from symcomm.core.graph.ops import MAP, AlongMax, AlongMean, AlongSum, Rotate, dy, u, y
from symcomm.core.libraries import Expr, sp
from symcomm.core.notation import Notation, amount
from symcomm.core.records import dataclass

_MARKS = ("\u0303", "\u0302")  # of what a row computes on its way to the tensor it is named after
SPREAD = "sigma"
ONES = "1"  # the vector of ones, which sums


Indices = tuple[int, ...]


@dataclass(frozen=True)
class Factor:
    """An operand of a product as it is there: its form and its rows and columns, by the sizes of their axes."""

    form: Form
    rows: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Gradient:
    """One gradient of a backward pass: the tensor it is of, its formula and shape, and what it reads.

    ``factors`` are those of a matrix product, for the reason why a shape is what it is; ``reads`` are tensors of the
    forward pass.
    """

    of: str
    name: str
    form: Form
    shape: tuple[str, ...]
    reads: tuple[str, ...]
    factors: tuple[Factor, ...]
    op: Op


Written = tuple[Form, tuple[Factor, ...]]


class Names:
    """How the tensors of a graph and their gradients are called in formulas."""

    def __init__(self, graph: Graph, notation: Notation) -> None:
        self.graph, self.latex = graph, dict(notation.latex)
        self.inner: dict[str, str] = {}
        self.meanings: list[tuple[str, Op]] = []
        self.rows = _rows(graph)
        for op in graph.ops:
            head, dot, _ = op.output.partition("·")
            if dot and op.phase == "forward" and op.kind != "onehot":
                made = sum(one.partition("·")[0] == head for one in self.inner)
                self.inner[op.output] = _accented(bare(head), made)
                self.meanings.append((self.inner[op.output], op))

    def of(self, tensor: str) -> str:
        """The name of a tensor, or of a gradient: ``dW``; parts of a sum of gradients are numbered."""
        made = self.graph.tensors[tensor]
        if made.role != "gradient":
            return self.inner.get(tensor, bare(tensor))
        of = made.of
        _, _, part = tensor.rpartition("·") if tensor.startswith("d(") and not tensor.endswith(")") else ("", "", "")
        base = self.inner.get(of, bare(of))
        name = f"d{base}" + (f"^{part}" if part else "")
        self.latex.setdefault(name, "d" + _latex(base, self.graph.tensors[of].latex) + (f"^{{{part}}}" if part else ""))
        return name

    def sym(self, tensor: str) -> Form:
        """The name as a form; what only stands for indices is said by them."""
        made = self.graph.producers.get(tensor)
        if made is not None and made.kind == "onehot":
            return Called("onehot", (self.sym(made.inputs[0]),))
        return Sym(self.of(tensor))

    def is_row(self, tensor: str) -> bool:
        """Whether a vector, or one whose gradient it is, is a row; others are columns."""
        return self.rows.get(self.graph.tensors[tensor].of or tensor, False)

    @property
    def notation(self) -> Notation:
        """The notation with the spelling of gradients."""
        return Notation({**self.latex, ONES: r"\mathbf{1}"}, {})


def _rows(graph: Graph) -> dict[str, bool]:
    """Which vectors are rows: those on the left of a matrix, or transposed on its right; sums and maps keep it."""
    found: dict[str, bool] = {}
    alike: list[list[str]] = []
    for op in (one for one in graph.ops if one.phase == "forward"):
        free = [[i for i in one if i not in op.summed and i in op.output_indices] for one in op.indices]
        if op.kind != "contraction" or len(op.inputs) != 2 or not op.summed:
            pairs = zip(op.inputs, op.indices, strict=True)
            alike.append([op.output, *(name for name, one in pairs if len(one) == len(op.output_indices))])
            continue
        batch = {*free[0]} & {*free[1]}
        turned = cast("Indices", op.attribute("turned", ()))
        vectors = [n for n in (0, 1) if {*free[n]} <= batch]
        for n in vectors:
            found.setdefault(op.inputs[n], (n == 0) != (n in turned))
        if len(vectors) == 1:
            found.setdefault(op.output, vectors == [0])
    size = -1
    while size < len(found):
        size = len(found)
        for group in (*alike, *reversed(alike)):
            known = [found[one] for one in group if one in found]
            found.update({one: known[0] for one in group if one not in found} if known else {})
    return found


def _accented(name: str, number: int) -> str:
    base, under, rest = name.partition("_")
    mark = _MARKS[number] if number < len(_MARKS) else f"^*{number}"
    return base + mark + under + rest if number < len(_MARKS) else name + mark


def _latex(name: str, author: str) -> str:
    for mark, accent in zip(_MARKS, ("tilde", "hat"), strict=True):
        if mark in name:
            base, _, rest = name.replace(mark, "").partition("_")
            return rf"\{accent}{{{base}}}" + (f"_{{{rest}}}" if rest else "")
    if author:
        return author.strip("$ ")
    base, _, rest = name.partition("_")
    body, _, upper = base.partition("^")
    lower, _, more = rest.partition("^")
    return body + (f"_{{{lower}}}" if lower else "") + (f"^{{{upper or more}}}" if upper or more else "")


def gradients(graph: Graph, ops: Sequence[Op], names: Names) -> tuple[Gradient, ...]:
    """The gradients that backward ops of a graph compute, in the order in which they run."""
    return tuple(_gradient(graph, op, names) for op in ops)


def _gradient(graph: Graph, op: Op, names: Names) -> Gradient:
    form, factors = _written(graph, op, names)
    tensor = graph.tensors[op.output]
    read = tuple(names.of(name) for name in op.inputs if graph.tensors[name].role != "gradient")
    return Gradient(tensor.of, names.of(op.output), form, labels(graph, tensor.of), read, factors, op)


def labels(graph: Graph, tensor: str) -> tuple[str, ...]:
    """The sizes of a tensor's axes as its author wrote them, the axis of a family before them."""
    return tuple(graph.axes[axis].label for axis in graph.tensors[tensor].axes)


def _written(graph: Graph, op: Op, names: Names) -> tuple[Form, tuple[Factor, ...]]:
    operands = [names.sym(name) for name in op.inputs]
    if op.kind == "add":
        signs = op.attribute("signs")
        assert isinstance(signs, tuple)
        pairs = zip(operands, signs, strict=True)
        return Total(tuple(one if sign > 0 else negative(one) for one, sign in pairs)), ()
    if op.kind == "convolution":
        return Called("convtranspose" if op.attribute("part") == "input" else "correlate", tuple(operands)), ()
    if op.kind == "scan_gradient" or op.attribute("before") is not None:
        (position,) = cast("Indices", op.attribute("along", op.attribute("whole")))
        length = graph.axes[graph.index_axes(op)[position]].label
        if op.kind == "scan_gradient":
            return Called(f"scanback_{length}", tuple(operands)), ()
        operands[1] = _named_axes("before", [length], operands[1])  # the result one position before
    if op.kind == "contraction":
        form, factors = _contraction(graph, op, operands, names)
        if {*op.output_indices} - {i for indices in op.indices for i in indices} and "einsum" in getattr(
            form, "function", ""
        ):
            form = Called("unpool", tuple(operands))  # a number of a window for each position in it
        return _scaled(op.attribute("scale", 1), form), factors
    if {*cast("Indices", op.attribute("along", ()))} - {*op.output_indices[-1:]}:
        return Called(op.kind, tuple(operands)), ()  # of several axes: what it computes is told by its name
    if MAP[op.kind.removesuffix("_gradient")].collapses and op.indices[0]:  # one number a row
        axes, along = graph.index_axes(op), cast("Indices", op.attribute("along"))
        operands[0] = _named_axes("repeat", [graph.axes[axes[i]].label for i in along], operands[0])
    return _map(op, operands), ()


def _scaled(scale: Any, form: Form) -> Form:
    if scale == 1:
        return form
    if scale == -1:
        return negative(form)
    return forms.product(forms.from_expr(scale) if not isinstance(scale, int) else num(scale), form)


def _contraction(graph: Graph, op: Op, operands: Sequence[Form], names: Names) -> tuple[Form, tuple[Factor, ...]]:
    """A contraction as a product of matrices, an elementwise product, a sum or a repetition of rows, or an einsum."""
    axes, out, row = graph.index_axes(op), op.output_indices, names.is_row(op.output)

    def said(indices: Iterable[int]) -> tuple[str, ...]:
        return tuple(graph.axes[axes[i]].label for i in indices)

    def product(factors: Sequence[Form], indices: Sequence[Indices], rows: Sequence[bool]) -> Written | None:
        found, summed = _matrices(indices, rows, out, row)
        turned = [Transposed(factors[n]) if turn else factors[n] for n, turn, *_ in found]
        shapes = [Factor(one, said(up), said(along)) for one, (*_, up, along) in zip(turned, found, strict=True)]
        whole = forms.Product(tuple(turned))
        return (_named_axes("sum", said(summed), whole) if summed else whole, tuple(shapes)) if found else None

    if op.attribute("view") and len(operands) == 1:
        return _moved(graph, op, operands[0]), ()
    if len(operands) == 2 and (found := product(operands, op.indices, [*map(names.is_row, op.inputs)])):
        return found
    wide = max(op.indices, key=len)
    fits = all(not one or wide[-len(one) :] == one for one in op.indices)  # as NumPy broadcasts
    if fits and [i for i in wide if i in out] == [i for i in out if i in wide]:
        scales = [one for one, at in zip(operands, op.indices, strict=True) if not at]
        tensors = tuple(one for one, at in zip(operands, op.indices, strict=True) if at)
        whole = tensors[0] if len(tensors) == 1 else Elementwise(tensors)
        summed, new = ([i for i in one if i not in other] for one, other in ((wide, out), (out, wide)))
        kept = len(wide) - len(summed)
        flat = [names.is_row(op.inputs[op.indices.index(wide)]), False]
        if not wide and len(new) <= 2:
            ones = [Sym(ONES), Transposed(Sym(ONES))]
            return forms.product(*scales, *(ones if len(new) == 2 else ones[row:][: len(new)])), ()
        if not summed and not new:
            return forms.product(*scales, whole), ()
        if (new and len(wide) == 1) or (summed and (kept == 1 or (kept and wide[-1:] == (*summed,)))):
            found = product((whole, Sym(ONES)), (wide, (*summed, *new)), flat)
            if found:
                return forms.product(*scales, found[0]), ()
        labels, last = said(summed or new), not summed and out == (*wide, *new)
        if ((summed and not new) or last) and not {*labels} & {*said(i for i in wide if i not in summed)}:
            inside = forms.product(*scales, *([whole] if tensors else []))
            return _named_axes("sum" if summed else "repeat", labels, inside), ()
    letters = dict(zip(axes, ascii_lowercase, strict=False))
    spelled = ["".join(letters[i] for i in one) for one in (*op.indices, out)]
    return Called(f"einsum_{','.join(spelled[:-1])}→{spelled[-1]}", tuple(operands)), ()


def _named_axes(function: str, labels: Sequence[str], inside: Form) -> Form:
    return Called(f"{function}_{','.join(labels).replace('_', '')}", (inside,))


def _matrices(
    indices: Sequence[Indices], rows: Sequence[bool], out: Indices, row: bool
) -> tuple[list[tuple[int, bool, Indices, Indices]], list[int]]:
    """The factors of a matrix product (which operand, whether it is transposed, its rows, its columns); empty for none.

    ``rows`` and ``row`` say which operands and whether the result are rows where they are vectors. There may be such a
    product for each element of axes that come first; the second result are those of them that are summed.
    """
    summed: list[int] = []
    first = True
    while all(indices):
        found = _matrix_product(indices, rows, out, row)
        if found and (first or all(up and along for *_, up, along in found)):
            return found, summed
        heads = [one[0] for one in indices]
        head = out[0] if out and out[0] in heads else heads[0]
        if any(head in one[1:] for one in indices) or (head not in out and heads != [head, head]):
            break
        first = False
        summed += [head] if head not in out else []
        indices = [one[one[0] == head :] for one in indices]
        out = out[head in out :]
    return [], []


def _matrix_product(
    sides: Sequence[Indices], rows: Sequence[bool], out: Indices, row: bool
) -> list[tuple[int, bool, Indices, Indices]]:
    shared = tuple(i for i in sides[0] if i in sides[1])
    free = [tuple(i for i in one if i not in shared) for one in sides]
    vectors = [not one or not shared for one in free]
    several = all(vector and len(one) > 1 for vector, one in zip(vectors, sides, strict=True))
    if {*free[0], *free[1]} != {*out} or several:  # two tensors of several axes are no vectors
        return []
    first = 0 if free[0] and out[0] in free[0] else 1
    if not all(free):  # the result is a vector, or a number
        first = int(row != bool(free[1])) if out else 0
    found = []
    for n in (first, 1 - first):
        up, along = (free[n], shared) if n == first else (shared, free[n])
        straight = sides[n] == (*up, *along) and (not vectors[n] or rows[n] != bool(up))
        if not straight and sides[n] != (*along, *up):
            return []
        found.append((n, not straight, up, along))
    return found if out == (*free[first], *free[1 - first]) else []


def _moved(graph: Graph, op: Op, operand: Form) -> Form:
    """A tensor whose axes are moved, split or joined, by the name that a table has for it."""
    at, out = op.indices[0], op.output_indices
    if at == out:
        return operand
    if len(at) > 1 and (*at[:-2], at[-1], at[-2]) == out:
        return Transposed(operand)
    before, after = (len(graph.tensors[name].held) for name in (op.inputs[0], op.output))
    return Called("merge" if before > after else "partition" if before < after else "permute", (operand,))


def _map(op: Op, operands: Sequence[Form]) -> Form:
    """The gradient of a map, from the expression of its record: its own result is written as such where it stands."""
    record = MAP[op.kind.removesuffix("_gradient")]
    known = dict(zip(("dy", *record.gradient_reads), operands, strict=True))
    expression = record.derivative
    if record.name == "scale":
        return _scaled(op.attribute("scale", sp.Integer(1)), known["dy"])
    if op.attribute("number") is not None:
        known["c"] = forms.from_expr(op.attribute("number"))
    if record.along and "u" in known:
        softmax = MAP["softmax"].expression
        if expression.has(*softmax.atoms(AlongSum)):
            expression = expression.subs(softmax, y)
            known["y"] = Called("softmax", (known["u"],))
        elif record.name != "rope":
            _top, bottom = record.expression.as_numer_denom()
            expression = expression.subs(record.expression, y).subs(bottom, amount(SPREAD))
            known["y"] = Called(record.name, (known["u"],))
            known[SPREAD] = Sym(SPREAD)
    return tensor_form(expression, known)


def tensor_form(expression: Expr, known: dict[str, Form]) -> Form:
    """An expression of tensors as a form: products are taken element by element, reductions along the last axis.

    >>> from symcomm.core.graph.ops import MAP
    >>> from symcomm.core.printing import plain
    >>> plain(tensor_form(MAP["softmax"].derivative, {"dy": Sym("dS"), "y": Sym("S")}))
    'S ⊙ (dS - sum(dS ⊙ S))'
    """

    def go(e: Any) -> Form:
        if e.is_Symbol:
            return known[e.name] if e.name in known else Sym(e.name, False)
        if e.is_Rational:
            return forms.rational(Fraction(int(e.p), int(e.q)))
        if e == sp.pi:
            return Called("pi")
        if e.is_Add:
            terms = sorted(e.args, key=lambda t: (t.could_extract_minus_sign(), not t.has(dy), sp.count_ops(t)))
            return Total(tuple(go(t) for t in terms))
        if e.is_Mul:
            return product(e)
        if isinstance(e, sp.Pow):
            if e.exp == sp.Rational(1, 2):
                return Root(go(e.base))
            if e.exp.could_extract_minus_sign():
                return Ratio(num(1), go(e.base**-e.exp))
            return Power(go(e.base), go(e.exp))
        if isinstance(e, (AlongSum, AlongMean, AlongMax)):
            return Called(type(e).__name__.removeprefix("Along").lower(), (go(e.args[0]),))
        if isinstance(e, Rotate):
            return Called("rotate", (go(e.args[0]),))
        if isinstance(e, sp.Heaviside):
            return Called("greater", (go(e.args[0]), num(0)))
        if isinstance(e, (sp.Max, sp.Min)):
            kind = forms.Largest if isinstance(e, sp.Max) else forms.Smallest
            return kind(tuple(go(a) for a in sorted(e.args, key=lambda a: bool(a.is_Number))))
        return Called(type(e).__name__.lower(), tuple(go(a) for a in e.args))

    def product(e: Any) -> Form:
        top, bottom = sp.fraction(e)
        numbers = [f for f in sp.Mul.make_args(top) if f.is_number]
        tensors = sorted((f for f in sp.Mul.make_args(top) if not f.is_number), key=_place)
        written = tuple(go(f) for f in tensors)
        whole: Form = written[0] if len(written) == 1 else Elementwise(written) if written else num(1)
        scale = sp.Mul(*numbers)
        if scale == -1:
            whole = negative(whole)
        elif scale != 1:
            whole = forms.product(forms.from_expr(scale), whole)
        return whole if bottom == 1 else Ratio(whole, go(bottom))

    return go(expression)


def _place(factor: Any) -> tuple[int, str]:
    """Names come before what is longer; the gradient that is handed back first of all where it is a factor."""
    return (0 if factor == dy else 1 if factor in (y, u) else 2, str(factor))


def shape_text(shape: Sequence[str]) -> str:
    """A shape in a sentence: ``D_1 × D_2`` with its sizes as maths; a number has none."""
    return " × ".join(f"`{size}`" for size in shape) or "a number"


def why(gradient: Gradient) -> str:
    """Why a gradient has its shape: from the factors of a product, or because the loss is one number."""
    if not gradient.factors:
        return f"The loss is one number, so there is one derivative for each element: {shape_text(gradient.shape)}."
    left, right = gradient.factors
    sides = [f"{_named(f)} is {shape_text((*(f.rows or '1'), *(f.columns or '1')))}" for f in gradient.factors]
    whole = shape_text((*left.rows, *right.columns))
    return f"{sides[0][0].upper()}{sides[0][1:]} and {sides[1]}: the product is {whole}."


def _named(factor: Factor) -> str:
    turned = isinstance(factor.form, Transposed)
    inside = factor.form.inside if isinstance(factor.form, Transposed) else factor.form
    name = inside.name if isinstance(inside, Sym) else "it"
    return f"the transpose of `{name}`" if turned else f"`{name}`"


def forward_form(graph: Graph, op: Op, names: Names) -> Form:
    """The formula of a forward op."""
    operands = [names.sym(name) for name in op.inputs]
    if op.kind in ("add", "contraction"):
        return _written(graph, op, names)[0]
    if op.kind == "scale":
        return _scaled(op.attribute("scale", 1), operands[0])
    if op.attribute("number") is not None:
        number = forms.from_expr(op.attribute("number"))
        return tensor_form(MAP[op.kind].expression, {"u": operands[0], "c": number})
    return Called({"convolution": "conv"}.get(op.kind, op.kind), tuple(operands))
