"""Every printed gradient formula, read strictly as matrices in NumPy, is the derivative by central differences.

The reader knows nothing of an op: a formula must say by itself what is transposed, summed and broadcast. Its operands
come from the graph run in NumPy; all sizes differ, so that a product that does not fit cannot be worked out.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from api import (
    Called,
    Elementwise,
    Names,
    Notation,
    Num,
    Power,
    Product,
    Ratio,
    Root,
    Sym,
    Total,
    Transposed,
    backward,
    forward_form,
    plain,
)
from api import form as forms
from api import gradients_gradients as gradients
from proof_reference import EPSILON_VALUE, Sizes, outside, run
from proof_tables import ALL, table

import symcomm as sc

SIZES = {"B": 2, "L": 5, "M": 7, "D": 24, "F": 11, "V": 13, "H": 6, "n_h": 4, "n_k": 2, "E": 3, "C": 8, "k": 2, "R": 9,
         "c": 14, "d": 15, "e": 16, "N": 17, "K": 19}  # fmt: skip
VECTORS = {
    "matrix times column": table("y = A x ; A [M,N], x [N] ; y [M]"),
    "row times matrix": table("z = x W + b ; x [D], W [D,F], b [F] ; z [F]"),
    "transposed column times matrix": table("$y = x^T A$ ; x [M], A [M,N] ; y [N]"),
    "transposed matrix times column": table("$y = A^T x$ ; A [N,M], x [N] ; y [M]"),
    "transposed row": table("z = x W ; x [D], W [D,F] ; z [F]", "$y = U z^T$ ; U [K,F] ; y [K]"),
    "dot product": table("$s = x^T y$ ; x [N], y [N] ; $s \\in R$"),
    "row times column": table("s = x y ; x [N], y [N] ; $s \\in R$"),
    "bilinear form": table("$s = x^T A y$ ; x [M], A [M,N], y [N] ; $s \\in R$"),
    "quadratic form": table("$s = x^T A x$ ; x [N], A [N,N] ; $s \\in R$"),
    "column, then row": table("y = A x ; A [M,N], x [N] ; y [M]", "z = y W ; W [M,K] ; z [K]"),
    "layers of columns": table(
        "h = relu(W_1 x + b_1) ; x [D], W_1 [F,D], b_1 [F] ; h [F]", "y = W_2 h + b_2 ; W_2 [K,F], b_2 [K] ; y [K]"
    ),
    "layers of rows": table(
        "h = tanh(x U + a) ; x [D], U [D,F], a [F] ; h [F]", "y = h W + b ; W [F,K], b [K] ; y [K]"
    ),
    "softmax of a column": table("y = softmax(A x) ; A [M,N], x [N] ; y [M]"),
    "sigmoid of a column": table("y = A sigmoid(x) ; A [M,N], x [N] ; y [M]"),
    "matrix minus": table("y = x - A x ; A [N,N], x [N] ; y [N]"),
    "a number a token": table("y = X w ; X [B,L,D], w [D] ; y [B,L]"),
    "a number a row": table("y = X w ; X [B,D], w [D] ; y [B]"),
    "transpose": table("$Y = X^T$ ; X [B,D] ; Y [D,B]"),
    "transpose of a batch": table("$Y = X^T$ ; X [B,L,D] ; Y [B,D,L]"),
    "transposed product": table("$Y = (X W)^T$ ; X [B,D], W [D,F] ; Y [F,B]"),
    "both transposed": table("$Y = X^T W^T$ ; X [D,B], W [F,D] ; Y [B,F]"),
    "Gram matrix": table("$Y = A^T A$ ; A [M,N] ; Y [N,N]"),
    "sum of a vector": table("s = sum(x) ; x [N] ; $s \\in R$"),
    "mean of a matrix": table("s = mean(X) ; X [B,D] ; $s \\in R$"),
    "mean of three axes": table("s = mean(X) ; X [B,L,D] ; $s \\in R$"),
    "number times vector": table("y = s x ; $s \\in R$, x [N] ; y [N]"),
    "number times matrix": table("Y = s X ; $s \\in R$, X [B,D] ; Y [B,D]"),
    "loss of a column": table(
        "z = W x ; W [V,D], x [D] ; z [V]", "l = crossentropy(z, t) ; $t \\in N$ ; $l \\in R$"
    ),
    "loss of a batch": table("z = X W ; X [B,D], W [D,V] ; z [B,V]", "l = crossentropy(z, t) ; t [B] ; $l \\in R$"),
    "loss of tokens": table(
        "z = X W ; X [B,L,D], W [D,V] ; z [B,L,V]", "l = crossentropy(z, t) ; t [B,L] ; $l \\in R$"
    ),
    "a matrix for each batch": table("Y = X A ; X [B,L,D], A [B,D,K] ; Y [B,L,K]"),
    "a number for each pair": table('Y = einsum("bd,b->bd", X, w) ; X [B,D], w [B] ; Y [B,D]'),
    "convolution": table("Y = conv(X, W, b) ; X [B,c,6], W [d,c,3], b [d] ; Y [B,d,4]"),
    "one axis kept of three": table('y = einsum("bld,bd->bl", X, w) ; X [B,L,D], w [B,D] ; y [B,L]'),
}  # fmt: skip
TABLES = {name: layer.table for name, layer in ALL.items()} | VECTORS
ONE = Sym("1")


@dataclass(frozen=True)
class Laid:
    """An array with the label of each axis; the axis of a reduction that is kept has none."""

    array: np.ndarray
    labels: tuple[str, ...]


class Reader:
    """Works printed formulas out: ``known`` are arrays by name, ``lengths`` those of labels."""

    def __init__(self, known, lengths):
        self.known, self.lengths, self.sigma = known, lengths, None

    def laid(self, form, factors=(), shape=None) -> Laid:
        match form:
            case Num(number):
                return Laid(np.float64(number), ())
            case Sym("sigma"):
                return self.sigma
            case Sym("epsilon"):
                return Laid(np.float64(EPSILON_VALUE), ())
            case Sym(name) if name in self.known:
                return self.known[name]
            case Sym(name):
                return Laid(np.float64(SIZES[name]), ())
            case Transposed(inside):
                one = self.laid(inside)
                assert len(one.labels) > 1, f"{plain(form)}: a transpose needs two axes"
                return Laid(np.swapaxes(one.array, -1, -2), (*one.labels[:-2], one.labels[-1], one.labels[-2]))
            case Product(all_):
                return self.product(all_, factors, shape)
            case Elementwise(parts):
                return self.together(parts, np.multiply)
            case Total(terms):
                return self.together(terms, np.add)
            case Ratio(top, bottom):
                return self.together((top, bottom), np.divide)
            case Power(base, exponent):
                return self.together((base, exponent), np.power)
            case Root(inside):
                one = self.laid(inside)
                return Laid(np.sqrt(one.array), one.labels)
            case forms.Largest(choices):
                return self.together(choices, np.maximum)
            case Called(name, (Product(parts),)) if factors and name.startswith("sum_"):  # of one product for each
                made = self.product(parts, factors, (*name[4:].split(","), *shape))
                return Laid(made.array.sum(tuple(range(name.count(",") + 1))), shape)
            case Called("merge" | "partition" | "permute", (inside,)):  # axes go where the shape has them
                one = self.laid(inside)
                assert len({*shape}) == len(shape)
                return Laid(one.array.transpose([one.labels.index(label) for label in shape]), shape)
            case Called("onehot", (Sym(name),)):
                return self.known[f"onehot {name}"]
            case Called(name, arguments):
                return self.called(name, [self.laid(a) for a in arguments])
        raise AssertionError(form)

    def together(self, parts, work) -> Laid:
        """Element by element: the axes of each are the last ones of the largest, as NumPy broadcasts."""
        laid = [self.laid(part) for part in parts]
        wide = max((one.labels for one in laid), key=lambda labels: (len(labels), sum(map(bool, labels))))
        for one in laid:
            behind = wide[len(wide) - len(one.labels) :]
            assert all(a in (b, "") for a, b in zip(one.labels, behind, strict=True)), (parts, one.labels, wide)
        found = laid[0].array
        for one in laid[1:]:
            found = work(found, one.array)
        return Laid(found, wide)

    def product(self, parts, factors, shape) -> Laid:
        scale, tensors = np.float64(1), []
        for part in parts:
            one = None if {*forms.names(part)} == {"1"} else Sym("") if self.is_vector_turned(part) else self.laid(part)
            if isinstance(one, Laid) and not one.labels:
                scale = scale * one.array
            else:
                tensors.append(part)
        if len(tensors) < 2 and tensors != [ONE]:
            one = self.laid(tensors[0]) if tensors else Laid(np.float64(1), ())
            return Laid(scale * one.array, one.labels)
        if factors:
            assert tensors == [factor.form for factor in factors]
            sides = [self.matrix(factor) for factor in factors]
            made = (sides[0] @ sides[1]).reshape([self.lengths[label] for label in shape])
            return Laid(scale * made, shape)
        match tensors:
            case [Sym("1")] | [Sym("1"), Transposed(Sym("1"))]:
                assert len(shape) == len(tensors)
                return Laid(scale * np.ones([self.lengths[label] for label in shape]), shape)
            case [Transposed(inside), Sym("1")]:
                one = self.laid(inside)
                return Laid(scale * one.array.sum(tuple(range(one.array.ndim - 1))), one.labels[-1:])
            case [inside, Sym("1")]:
                one = self.laid(inside)
                assert len(one.labels) > 1
                return Laid(scale * one.array.sum(-1), one.labels[:-1])
            case [inside, Transposed(Sym("1"))]:
                one = self.laid(inside)
                assert len(one.labels) == 1
                assert shape[0] == one.labels[0]
                return Laid(scale * np.multiply.outer(one.array, np.ones(self.lengths[shape[1]])), shape)
            case [_, _]:  # as NumPy multiplies matrices and vectors
                a, b = (self.laid(side.inside if self.is_vector_turned(side) else side) for side in tensors)
                inner = -2 if len(b.labels) > 1 else -1
                assert a.labels[-1] == b.labels[inner], (tensors, a.labels, b.labels)
                rows = a.labels[:-1] if len(a.labels) >= len(b.labels) else b.labels[: -len(a.labels)] + a.labels[:-1]
                return Laid(scale * (a.array @ b.array), (*rows, *(b.labels[-1:] if inner == -2 else ())))
        raise AssertionError(parts)

    def is_vector_turned(self, form) -> bool:
        return isinstance(form, Transposed) and form.inside != ONE and len(self.laid(form.inside).labels) == 1

    def matrix(self, factor) -> np.ndarray:
        """A factor as the matrix that its rows and columns say; axes before them are those of a batch."""
        inside = factor.form.inside if isinstance(factor.form, Transposed) else factor.form
        sides = (factor.rows, factor.columns)
        if isinstance(factor.form, Transposed):
            sides = sides[::-1]
        one = self.laid(inside)
        wanted = tuple(cleaned(label) for side in sides for label in side)
        assert one.labels[len(one.labels) - len(wanted) :] == wanted, (factor, one.labels)
        batch = one.array.shape[: len(one.labels) - len(wanted)]
        made = one.array.reshape(*batch, *(math.prod(self.lengths[cleaned(s)] for s in side) for side in sides))
        return np.swapaxes(made, -1, -2) if isinstance(factor.form, Transposed) else made

    def called(self, name, values) -> Laid:
        one = values[0] if values else Laid(np.float64(0), ())
        head, _, below = name.partition("_")
        if head == "einsum":
            made = np.einsum(below.replace("→", "->"), *(v.array for v in values))
            letters = {c: label for v, part in zip(values, below.partition("→")[0].split(","), strict=True)
                       for c, label in zip(part, v.labels, strict=True)}  # fmt: skip
            return Laid(made, tuple(letters[c] for c in below.partition("→")[2]))
        if head == "sum" and below:
            gone = below.split(",")
            assert all(one.labels.count(label) == 1 for label in gone), (name, one.labels)
            places = tuple(one.labels.index(label) for label in gone)
            return Laid(one.array.sum(places), tuple(label for label in one.labels if label not in gone))
        if head == "before":
            at = one.labels.index(below)
            rows = np.moveaxis(one.array, at, 0)
            return Laid(np.moveaxis(np.concatenate([0 * rows[:1], rows[:-1]]), 0, at), one.labels)
        if head == "scanback":  # what arrives, and what the later positions got times their factor
            factor = values[1].array
            first = values[1].labels == one.labels[: factor.ndim]
            factor = factor.reshape(*factor.shape, *[1] * (one.array.ndim - factor.ndim)) if first else factor
            factor, at = np.broadcast_to(factor, one.array.shape), one.labels.index(below)
            rows, scaled = np.moveaxis(one.array.copy(), at, 0), np.moveaxis(factor, at, 0)
            for n in range(len(rows) - 2, -1, -1):
                rows[n] += scaled[n + 1] * rows[n + 1]
            return Laid(np.moveaxis(rows, 0, at), one.labels)
        if head == "repeat" and below:
            more = tuple(below.split(","))
            wide = (*one.array.shape, *(self.lengths[label] for label in more))
            spread = one.array.reshape(*one.array.shape, *[1] * len(more))
            return Laid(np.broadcast_to(spread, wide), (*one.labels, *more))
        kept = (*one.labels[:-1], "")
        reductions = {"sum": np.sum, "mean": np.mean, "max": np.max}
        if name in reductions:
            return Laid(reductions[name](one.array, -1, keepdims=True), kept)
        simple = {
            "pi": lambda: np.float64(math.pi), "exp": np.exp, "erf": np.vectorize(math.erf), "tanh": np.tanh,
            "abs": np.abs, "softmax": softmax, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "log": np.log,
            "sign": np.sign, "greater": lambda a, b: (a > b).astype(float), "rotate": rotate,
            "convtranspose": transposed_convolution, "correlate": correlation,
        }  # fmt: skip
        if name in ("layernorm", "rmsnorm"):
            centred = one.array - one.array.mean(-1, keepdims=True) * (name == "layernorm")
            return Laid(centred / self.sigma.array, one.labels)
        return Laid(simple[name](*(v.array for v in values)), one.labels)


def cleaned(label: str) -> str:
    return label.replace("_", "")


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def transposed_convolution(dy, w):
    out = np.zeros((dy.shape[0], w.shape[1], dy.shape[2] + w.shape[2] - 1))
    for n in range(dy.shape[2]):
        out[:, :, n : n + w.shape[2]] += np.einsum("bo,ock->bck", dy[:, :, n], w)
    return out


def correlation(dy, x):
    taps = x.shape[2] - dy.shape[2] + 1
    return np.stack([np.einsum("bon,bcn->oc", dy, x[:, :, k : k + dy.shape[2]]) for k in range(taps)], -1)


def rotate(x):
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], -1)


@cache
def case(name: str):
    graph = backward(sc.load(TABLES[name]).graph)
    sizes = Sizes(graph, SIZES)
    given = outside(sizes, seed=3)
    return graph, sizes, given, run(sizes, given)


def laid(graph, names, values):
    known = {}
    for name, tensor in graph.tensors.items():
        labels = tuple(cleaned(graph.axes[a].label) for a in tensor.axes)
        known[names.of(name)] = Laid(values[name], labels)
        made = graph.producers.get(name)
        if made is not None and made.kind == "onehot":
            known[f"onehot {names.of(made.inputs[0])}"] = Laid(values[name], labels)
    return known


def reader_of(name: str) -> tuple[Reader, Names]:
    graph, sizes, _, values = case(name)
    names = Names(graph, Notation())
    lengths = {cleaned(axis.label): sizes.axes[axis.name] for axis in graph.axes.values()}
    return Reader(laid(graph, names, values), lengths), names


def sigma(op, values) -> np.ndarray:
    """The number a row that a norm divides by."""
    read = values[op.inputs[-1]]
    centred = read - read.mean(-1, keepdims=True) * op.kind.startswith("layernorm")
    return np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON_VALUE)


def is_named(form, name: str) -> bool:
    """Whether a formula names a function that only the reference has; a convolution is worked out in one table."""
    called = {piece.function for piece in forms.walk(form) if isinstance(piece, Called)}
    convolutions = {"convtranspose", "correlate"} if name != "convolution" else set()
    return bool(
        called
        & {
            "batchnorm_gradient",
            "maxpool_gradient",
            "unpool",
            "logsumexp",
            "crossentropy",
            "rope",
            "mask",
            "conv",
            *convolutions,
        }
    )


@pytest.mark.few(24)
@pytest.mark.parametrize("name", TABLES)
def test_every_printed_gradient_is_what_the_backward_pass_computes(name):
    graph, _, _, values = case(name)
    reader, names = reader_of(name)
    for g in gradients(graph, [op for op in graph.ops if op.phase == "backward"], names):
        if is_named(g.form, name):
            continue
        if "norm" in g.op.kind:
            reader.sigma = Laid(sigma(g.op, values), (*reader.known[names.of(g.op.inputs[-1])].labels[:-1], ""))
        made = reader.laid(g.form, g.factors, tuple(map(cleaned, g.shape)))
        np.testing.assert_allclose(made.array, values[g.op.output], rtol=1e-9, atol=1e-12, err_msg=plain(g.form))


@pytest.mark.parametrize("name", VECTORS)
def test_what_a_row_computes_on_its_way_is_printed_as_it_is(name):
    graph, _, _, values = case(name)
    reader, names = reader_of(name)
    for inner, op in names.meanings:
        form = forward_form(graph, op, names)
        if not is_named(form, name):
            np.testing.assert_allclose(reader.laid(form).array, values[op.output], rtol=1e-9, err_msg=inner)


@pytest.mark.few(24)
@pytest.mark.parametrize("name", TABLES)
def test_the_backward_pass_is_the_derivative_by_central_differences(name):
    graph, _, given, values = case(name)
    forward = Sizes(graph.forward(), SIZES)
    outer = {t.of: given[t.name] for t in graph.tensors.values() if t.role == "gradient" and t.name in given}
    random = np.random.default_rng(8)
    for tensor in graph.tensors.values():
        if tensor.role not in ("input", "weight") or f"d({tensor.name})" not in values:
            continue
        way = random.normal(size=given[tensor.name].shape)
        losses = []
        for step in (1e-5, -1e-5):
            made = run(forward, {**given, tensor.name: given[tensor.name] + step * way})
            losses.append(sum(float((made[of] * weight).sum()) for of, weight in outer.items()))
        slope = (losses[0] - losses[1]) / 2e-5
        derived = float((values[f"d({tensor.name})"] * way).sum())
        assert derived == pytest.approx(slope, rel=1e-5, abs=1e-6), tensor.name


def test_columns_and_rows_have_the_gradients_of_a_textbook():
    def told(rows: str) -> dict[str, str]:
        made = sc.load(table(*rows.split("|"))).gradients()
        return {row[0].left.name: plain(row[0].right) for row in made.exhibits[0].rows}

    assert told("y = A x ; A [M,N], x [N] ; y [M]") == {"dA": "dy·xᵀ", "dx": "Aᵀ·dy"}
    assert told("z = x W + b ; x [D], W [D,F], b [F] ; z [F]") == {"dx": "dz·Wᵀ", "dW": "xᵀ·dz", "db": "dz"}
    assert told("$Y = X^T$ ; X [B,D] ; Y [D,B]") == {"dX": "dYᵀ"}
    assert told("$y = x^T A$ ; x [M], A [M,N] ; y [N]") == {"dA": "x·dy", "dx": "A·dyᵀ"}
    assert told("$y = X^T w$ ; X [B,D], w [B] ; y [D]") == {"dX": "w·dyᵀ", "dw": "X·dy"}


def test_the_shapes_of_a_product_say_which_vector_is_a_column():
    [note, _] = [n for n in sc.load(table("y = A x ; A [M,N], x [N] ; y [M]")).gradients().notes if "the product" in n]
    assert note.endswith("`dy` is `M` × `1` and the transpose of `x` is `1` × `N`: the product is `M` × `N`.")
