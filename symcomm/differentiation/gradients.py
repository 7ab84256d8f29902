"""Gradients of tensor ops as matrix formulas with shapes, read off the derived backward pass.

Nothing here knows an op: a contraction is written as a product of matrices where its indices allow it, the gradient of
a map is the expression of its record. The backward pass is the one whose operations and memory are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from symcomm import form as forms
from symcomm.form import Called, Elementwise, Form, Power, Ratio, Root, Sym, Total, Transposed, negative, num
from symcomm.graph.graph import Graph, Op, bare
from symcomm.graph.ops import MAP, AlongMax, AlongMean, AlongSum, Rotate, dy, u, y
from symcomm.notation import Notation
from symcomm.records import dataclass

if TYPE_CHECKING:
    from sympy import Expr

_MARKS = ("\u0303", "\u0302")  # of what a row computes on its way to the tensor it is named after
SPREAD = "sigma"
ONES = "1"  # the vector of ones, which sums


@dataclass(frozen=True)
class Factor:
    """An operand of a product as it stands there: its form and its rows and columns, by the sizes of their axes."""

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


class Names:
    """How the tensors of a graph and their gradients are called in formulas."""

    def __init__(self, graph: Graph, notation: Notation) -> None:
        self.graph, self.latex = graph, dict(notation.latex)
        self.inner: dict[str, str] = {}
        self.meanings: list[tuple[str, Op]] = []
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

    @property
    def notation(self) -> Notation:
        """The notation with the spelling of gradients."""
        return Notation({**self.latex, ONES: r"\mathbf{1}"}, {})


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
    if op.kind == "contraction":
        form, factors = _contraction(graph, op, operands)
        return _scaled(op.attribute("scale", 1), form), factors
    return _map(op, operands), ()


def _scaled(scale: Any, form: Form) -> Form:
    if scale == 1:
        return form
    if scale == -1:
        return negative(form)
    return forms.product(forms.from_expr(scale) if not isinstance(scale, int) else num(scale), form)


def _contraction(graph: Graph, op: Op, operands: Sequence[Form]) -> tuple[Form, tuple[Factor, ...]]:
    """A contraction as a product of matrices, an elementwise product, a sum of rows, or a sum over named indices."""
    axes = graph.index_axes(op)
    out, summed = op.output_indices, op.summed

    def said(indices: Sequence[int]) -> tuple[str, ...]:
        return tuple(graph.axes[axes[i]].label for i in indices)

    if op.attribute("view") and len(operands) == 1:
        return (operands[0] if op.indices[0] == out else Called("view", (operands[0],))), ()
    if len(operands) == 2 and summed and all(set(i) & set(out) - set(j) for i, j in (op.indices, op.indices[::-1])):
        batch = [i for i in out if i in op.indices[0] and i in op.indices[1]]
        kept = [i for i in out if i not in batch]
        first = 0 if kept[0] in op.indices[0] else 1  # the operand with the rows of the result stands first
        left, right = op.indices[first], op.indices[1 - first]
        rows, columns = [i for i in kept if i in left], [i for i in kept if i in right]
        shared = [i for i in left if i in summed]
        inner = [[i for i in one if i not in batch] for one in (left, right)]
        plain = (inner[0] == [*rows, *shared], inner[1] == [*shared, *columns])
        turned = (inner[0] == [*shared, *rows], inner[1] == [*columns, *shared])
        if kept == [*rows, *columns] and all(a or b for a, b in zip(plain, turned, strict=True)):
            forms_ = [operands[first], operands[1 - first]]
            forms_ = [one if straight else Transposed(one) for one, straight in zip(forms_, plain, strict=True)]
            shapes = ((said(rows), said(shared)), (said(shared), said(columns)))
            factors = tuple(Factor(one, *shape) for one, shape in zip(forms_, shapes, strict=True))
            return forms.Product(tuple(forms_)), factors
    whole: Form = operands[0] if len(operands) == 1 else Elementwise(tuple(operands))
    wide = max(op.indices, key=len)
    if not summed:
        return whole, ()
    kept = [i for i in wide if i in out]
    if list(wide) == [*summed, *kept]:  # the sum of the rows
        return forms.Product((Transposed(whole), Sym(ONES))), ()
    if list(wide) == [*kept, *summed]:
        return forms.Product((whole, Sym(ONES))), ()
    return Called("sum_" + ",".join(said(summed)).replace("_", ""), (whole,)), ()


def _map(op: Op, operands: Sequence[Form]) -> Form:
    """The gradient of a map, from the expression of its record: its own result is written as such where it stands."""
    record = MAP[op.kind.removesuffix("_gradient")]
    known = dict(zip(("dy", *record.gradient_reads), operands, strict=True))
    expression = record.derivative
    if record.name == "scale":
        import sympy as sp

        return _scaled(op.attribute("scale", sp.Integer(1)), known["dy"])
    if record.along and "u" in known:
        softmax = MAP["softmax"].expression
        if expression.has(*softmax.atoms(AlongSum)):
            expression = expression.subs(softmax, y)
            known["y"] = Called("softmax", (known["u"],))
        elif record.name != "rope":
            _top, bottom = record.expression.as_numer_denom()
            expression = expression.subs(record.expression, y).subs(bottom, _spread())
            known["y"] = Called(record.name, (known["u"],))
            known[SPREAD] = Sym(SPREAD)
    return tensor_form(expression, known)


def _spread() -> Expr:
    from symcomm.notation import amount

    return amount(SPREAD)


def tensor_form(expression: Expr, known: dict[str, Form]) -> Form:
    """An expression of tensors as a form: products are taken element by element, reductions along the last axis.

    >>> from symcomm.graph.ops import MAP
    >>> from symcomm.printing import plain
    >>> plain(tensor_form(MAP["softmax"].derivative, {"dy": Sym("dS"), "y": Sym("S")}))
    'S ⊙ (dS - sum(dS ⊙ S))'
    """
    import sympy as sp

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
        if isinstance(e, sp.Max):
            return forms.Largest(tuple(go(a) for a in sorted(e.args, key=lambda a: bool(a.is_Number))))
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
    sides = [f"{_named(f)} is {shape_text((*f.rows, *f.columns))}" for f in gradient.factors]
    whole = shape_text((*left.rows, *right.columns))
    return f"{sides[0][0].upper()}{sides[0][1:]} and {sides[1]}: the product is {whole}."


def _named(factor: Factor) -> str:
    turned = isinstance(factor.form, Transposed)
    inside = factor.form.inside if isinstance(factor.form, Transposed) else factor.form
    name = inside.name if isinstance(inside, Sym) else "it"
    return f"the transpose of `{name}`" if turned else f"`{name}`"


def forward_form(graph: Graph, op: Op, names: Names) -> Form:
    """What a forward op computes, written."""
    operands = [names.sym(name) for name in op.inputs]
    if op.kind in ("add", "contraction"):
        return _written(graph, op, names)[0]
    if op.kind == "scale":
        return _scaled(op.attribute("scale", 1), operands[0])
    if op.attribute("number") is not None:
        number = forms.from_expr(op.attribute("number"))
        return tensor_form(MAP[op.kind].expression, {"u": operands[0], "c": number})
    return Called({"convolution": "conv"}.get(op.kind, op.kind), tuple(operands))
