"""Gradients as matrix formulas: worked out with NumPy and compared with central differences of the forward pass."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

import symcomm as sc
from symcomm import form as forms
from symcomm.accounting import Accounting
from symcomm.differentiation.gradients import Gradient, Names, gradients, why
from symcomm.form import Called, Elementwise, Form, Num, Power, Product, Ratio, Root, Sym, Total, Transposed
from symcomm.graph.gradient import backward
from symcomm.problems.deriving import derive

HEAD = "Computation\tInput\tOutput\n"
ENTRIES = {e["id"]: e for e in json.loads((Path(__file__).parents[1] / "data/golden_differentiation.json").read_text())}
SIZES = {"B": 2, "L": 3, "D": 4, "D_1": 3, "D_2": 5, "H": 2, "n_h": 2, "V": 5, "C": 2, "C_2": 3, "N": 6, "K": 3,
         "N_2": 4, "L~2": 3}  # fmt: skip


def erf(x):
    return np.vectorize(math.erf)(x)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def spread(x, centred):
    inner = x - x.mean(-1, keepdims=True) * centred
    return np.sqrt((inner**2).mean(-1, keepdims=True) + 1e-5)


def layernorm(x):
    return (x - x.mean(-1, keepdims=True)) / spread(x, True)


def rmsnorm(x):
    return x / spread(x, False)


def gelu(x):
    return x / 2 * (1 + erf(x / math.sqrt(2)))


def conv(x, w):
    places = x.shape[2] - w.shape[2] + 1
    return np.stack([np.einsum("bck,ock->bo", x[:, :, n : n + w.shape[2]], w) for n in range(places)], -1)


def attention(v):
    return softmax(np.einsum("hqd,hkd->hqk", v["Q_i"], v["K_i"]) / math.sqrt(SIZES["H"]))


def silu(x):
    return x / (1 + np.exp(-x))


# A table, and what its last tensor is, written by hand.
TABLES = {
    "linear": ("Y = XW\tX [B, D_1], W [D_1, D_2]\tY [B, D_2]", lambda v: v["X"] @ v["W"]),
    "linear of tokens with a bias": ("Y = XW + b\tX [B, L, D_1], W [D_1, D_2], b [D_2]\tY [B, L, D_2]",
                                     lambda v: v["X"] @ v["W"] + v["b"]),
    "relu": ("Y = relu(X)\tX [B, D]\tY [B, D]", lambda v: np.maximum(v["X"], 0)),
    "gelu": ("Y = gelu(X)\tX [B, D]\tY [B, D]", lambda v: gelu(v["X"])),
    "silu": ("Y = silu(X)\tX [B, D]\tY [B, D]", lambda v: silu(v["X"])),
    "sigmoid": ("Y = sigmoid(X)\tX [B, D]\tY [B, D]", lambda v: 1 / (1 + np.exp(-v["X"]))),
    "tanh": ("Y = tanh(X)\tX [B, D]\tY [B, D]", lambda v: np.tanh(v["X"])),
    "softmax": ("Y = softmax(X)\tX [B, D]\tY [B, D]", lambda v: softmax(v["X"])),
    "layernorm": ("Y = layernorm(X, g, h)\tX [B, D], g [D], h [D]\tY [B, D]",
                  lambda v: layernorm(v["X"]) * v["g"] + v["h"]),
    "rmsnorm": ("Y = rmsnorm(X, g)\tX [B, L, D], g [D]\tY [B, L, D]", lambda v: rmsnorm(v["X"]) * v["g"]),
    "attention": (
        "S_i = softmax(Q_i K_i^T / sqrt(H)), i = 1, ..., n_h\tQ_i, K_i [L, H]\tS_i [L, L]\n"
        "Z_i = S_i V_i, i = 1, ..., n_h\tV_i [L, H]\tZ_i [L, H]",
        lambda v: attention(v) @ v["V_i"],
    ),
    "cross-entropy": (
        "l = crossentropy(z, t)\tz [B, V], t [B]\tl \\in R",
        lambda v: np.mean([np.log(np.exp(z).sum()) - z[t] for z, t in zip(v["z"], v["t"], strict=True)]),
    ),
    "convolution": ("Y = conv(X, W, b)\tX [B, C, N], W [C_2, C, K], b [C_2]\tY [B, C_2, N_2]",
                    lambda v: conv(v["X"], v["W"]) + v["b"][:, None]),
    "gated": ("Y = relu(X) \\odot silu(X)\tX [B, D]\tY [B, D]", lambda v: np.maximum(v["X"], 0) * silu(v["X"])),
    "residual": ("Y = X + X W\tX [B, D], W [D, D]\tY [B, D]", lambda v: v["X"] + v["X"] @ v["W"]),
    "scaled": ("Y = X W / D_1\tX [B, D_1], W [D_1, D_2]\tY [B, D_2]", lambda v: v["X"] @ v["W"] / SIZES["D_1"]),
    "mean": ("y = mean(X)\tX [B, D]\ty \\in R", lambda v: v["X"].mean()),
}  # fmt: skip


class Working:
    """Works forms of tensors out with NumPy."""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        self.values = values

    def of(self, g: Gradient) -> np.ndarray:
        """A gradient; the factors of a product are matrices, whatever axes their rows and columns are made of."""
        shape = tuple(SIZES[size] for size in g.shape)
        if not g.factors:
            return np.broadcast_to(self.form(g.form), shape)
        left, right = (self.matrix(f, shape, g) for f in g.factors)
        scale = sp.sympify(g.op.attribute("scale", 1))
        return (left @ right).reshape(shape) * float(scale.subs({s: SIZES[s.name] for s in scale.free_symbols}))

    def matrix(self, factor, shape, g) -> np.ndarray:
        rows, columns = (int(np.prod([SIZES[s] for s in side])) for side in (factor.rows, factor.columns))
        inner = factor.form.inside if isinstance(factor.form, Transposed) else factor.form
        value = self.form(inner)
        batch = value.shape[: value.ndim - len(factor.rows) - len(factor.columns)]
        if isinstance(factor.form, Transposed):
            return np.swapaxes(value.reshape(*batch, columns, rows), -1, -2)
        return value.reshape(*batch, rows, columns)

    def form(self, f: Form) -> np.ndarray:
        match f:
            case Num(number):
                return np.float64(number)
            case Sym("sigma"):
                return self.values["sigma"]
            case Sym(name) if name in self.values:
                return self.values[name]
            case Sym(name):
                return np.float64(SIZES[name])
            case Product((Transposed(inside), Sym("1"))):
                value = self.form(inside)
                return value.sum(tuple(range(value.ndim - 1)))
            case Product(factors):
                return self.times(factors)
            case Elementwise(factors):
                return self.times(factors)
            case Total(terms):
                return sum(self.form(t) for t in terms)
            case Ratio(top, bottom):
                return self.form(top) / self.form(bottom)
            case Power(base, exponent):
                return self.form(base) ** self.form(exponent)
            case Root(inside):
                return np.sqrt(self.form(inside))
            case Called(name, arguments):
                return self.called(name, [self.form(a) for a in arguments])
        raise AssertionError(f)

    def times(self, factors) -> np.ndarray:
        found = np.float64(1)
        for factor in factors:
            value = self.form(factor)
            if np.ndim(value) and np.ndim(found) > np.ndim(value):  # a number a row
                same = found.shape[: value.ndim] == value.shape and found.shape[-value.ndim :] != value.shape
                value = value.reshape(*value.shape, *[1] * (found.ndim - value.ndim)) if same else value
            elif np.ndim(found) and np.ndim(value) > np.ndim(found) and value.shape[: found.ndim] == found.shape:
                same = value.shape[-found.ndim :] != found.shape
                found = found.reshape(*found.shape, *[1] * (value.ndim - found.ndim)) if same else found
            found = found * value
        return found

    def called(self, name, values):
        if name.startswith("sum_"):  # over all axes but that of the channels
            return values[0].sum((0, *range(2, values[0].ndim)))
        simple = {
            "pi": lambda: math.pi, "exp": np.exp, "erf": erf, "softmax": softmax, "layernorm": layernorm,
            "rmsnorm": rmsnorm, "greater": lambda a, b: (a > b).astype(float),
            "sum": lambda a: a.sum(-1, keepdims=True), "mean": lambda a: a.mean(-1, keepdims=True),
            "onehot": lambda t: np.eye(SIZES["V"])[t.astype(int)],
            "convtranspose": lambda dy, w: transposed(dy, w), "correlate": lambda dy, x: correlated(dy, x),
        }  # fmt: skip
        return simple[name](*values)


def transposed(dy, w):
    out = np.zeros((dy.shape[0], w.shape[1], dy.shape[2] + w.shape[2] - 1))
    for n in range(dy.shape[2]):
        out[:, :, n : n + w.shape[2]] += np.einsum("bo,ock->bck", dy[:, :, n], w)
    return out


def correlated(dy, x):
    taps = x.shape[2] - dy.shape[2] + 1
    return np.stack([np.einsum("bon,bcn->oc", dy, x[:, :, k : k + dy.shape[2]]) for k in range(taps)], -1)


@pytest.mark.parametrize("kind", TABLES)
def test_the_formula_of_every_gradient_is_what_central_differences_say(kind):
    table, forward = TABLES[kind]
    graph = backward(sc.load(HEAD + table + "\n").graph)
    names = Names(graph, sc.Notation())
    found = gradients(graph, [op for op in graph.ops if op.phase == "backward"], names)
    rng = np.random.default_rng(5)
    given = {t.name for t in graph.tensors.values() if t.role in ("input", "weight")} | (
        {"t"} if "t [B]" in table else set()
    )
    values = {}
    for name in sorted(given):
        shape = tuple(SIZES[graph.axes[a].label] for a in graph.tensors[name].axes)
        values[name] = rng.integers(0, SIZES["V"], shape) if name == "t" else rng.normal(size=shape)
    weight = rng.normal(size=np.shape(forward(values)))

    def loss(changed: dict[str, np.ndarray]) -> float:
        return float((forward(changed) * weight).sum())

    known = dict(values)
    for op in graph.ops:  # the tensors on the way, and the results, as the formulas read them
        if op.phase == "forward" and op.kind != "onehot":
            known[names.of(op.output)] = computed(op, graph, names, known)
    if kind in ("layernorm", "rmsnorm"):
        known["sigma"] = spread(values["X"], kind == "layernorm")
    upstream = sc.load(HEAD + table + "\n").graph.outputs[0].name
    known[names.of(f"d({upstream})")] = weight
    for g in found:
        known[g.name] = Working(known).of(g)
    checked = 0
    for name in sorted(given - {"t"}):
        gradient, exact = known.get(names.of(f"d({name})")), np.zeros_like(values[name])
        for place in np.ndindex(values[name].shape):
            step = np.zeros_like(values[name])
            step[place] = 1e-6
            up, down = ({**values, name: values[name] + s} for s in (step, -step))
            exact[place] = (loss(up) - loss(down)) / 2e-6
        assert gradient is not None
        assert gradient.shape == values[name].shape
        np.testing.assert_allclose(gradient.astype(float), exact, rtol=1e-5, atol=1e-7)
        checked += 1
    assert checked == len(given - {"t"})


def computed(op, graph, names, known):
    """The result of a forward op, by NumPy's einsum and the functions above."""
    read = [known.get(names.of(n), None) for n in op.inputs]
    if op.kind == "contraction":
        letters = [("".join(chr(97 + i) for i in ix)) for ix in (*op.indices, op.output_indices)]
        scale = op.attribute("scale", 1)
        size = {s: SIZES[s.name] for s in sp.sympify(scale).free_symbols} if not isinstance(scale, int) else {}
        return np.einsum(",".join(letters[:-1]) + "->" + letters[-1], *read) * float(sp.sympify(scale).subs(size))
    if op.kind == "add":
        wide = np.zeros(tuple(SIZES[graph.axes[a].label] for a in graph.tensors[op.output].axes))
        for value, ix in zip(read, op.indices, strict=True):
            order = [op.output_indices.index(i) for i in ix]
            shape = [1] * wide.ndim
            for axis, place in enumerate(order):
                shape[place] = value.shape[axis]
            wide = wide + value.reshape(shape)
        return wide
    if op.kind == "scale":
        scale = op.attribute("scale")
        return read[0] * float(scale.subs({s: SIZES[s.name] for s in scale.free_symbols}))
    if op.kind == "crossentropy":
        z = read[0]
        return np.log(np.exp(z).sum(-1)) - z[range(len(z)), known["t"]]
    if op.kind == "convolution":
        return conv(*read)
    return {
        "relu": lambda x: np.maximum(x, 0),
        "gelu": gelu,
        "silu": silu,
        "softmax": softmax,
        "tanh": np.tanh,
        "layernorm": layernorm,
        "rmsnorm": rmsnorm,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    }[op.kind](*read)


# -- the table of the course ---------------------------------------------------------------------------------

LINEAR = HEAD + "Y = XW\tX [B, D_1], W [D_1, D_2]\tY [B, D_2]\n"


def asked(**options):
    return derive("gradients", sc.load(LINEAR), options, Accounting(), {})


def test_a_linear_layer_has_the_formulas_shapes_and_reads_of_the_course():
    rows = {row[0].left.name: row for row in asked().exhibits[0].rows}
    assert str(forms.names(rows["dW"][0].right)) == "('X', 'dY')"
    assert rows["dW"][1:3] == ("`D_1` × `D_2`", "`X`")
    assert rows["dX"][1:3] == ("`B` × `D_1`", "`W`")
    notes = asked().notes
    assert any(
        "transpose of `X` is `D_1` × `B` and `dY` is `B` × `D_2`: the product is `D_1` × `D_2`" in n.lower()
        or "`D_1` × `B` and `dY` is `B` × `D_2`: the product is `D_1` × `D_2`" in n
        for n in notes
    )


@pytest.mark.parametrize(("entry", "of"), [("001.linear.dW", "W"), ("001.linear.dX", "X")])
def test_the_elements_of_a_gradient_are_those_of_its_tensor(entry, of):
    told, values = ENTRIES[entry], {"B": 2, "D_1": 3, "D_2": 5}
    made = asked(want="elements", of=of)
    assert made.at(**values).value == int(told["value"])
    made.check(deep=True)


def test_the_operations_are_those_of_the_backward_pass_twice_the_forward():
    values = {"B": 2, "D_1": 3, "D_2": 5}
    assert asked().at(**values).value == int(ENTRIES["001.linear.bwd"]["value"])
    forward = derive("flops", sc.load(LINEAR), {}, Accounting(), {})
    assert forward.at(**values).value == int(ENTRIES["001.linear.fwd"]["value"])
    sizes = derive("tensor_size", sc.load(LINEAR), {"tensor": "Y"}, Accounting(), {})
    assert sizes.at(**values).value == 2 * int(ENTRIES["001.linear.dY"]["value"])  # fp16: two bytes an element


def test_an_unknown_gradient_is_told_with_near_names():
    with pytest.raises(sc.SymcommError, match="no gradient of 'U'"):
        asked(of="U")


def test_the_reason_of_a_shape_names_the_factors():
    graph = backward(sc.load(LINEAR).graph)
    names = Names(graph, sc.Notation())
    [dx, dw] = gradients(graph, [op for op in graph.ops if op.phase == "backward"], names)
    assert why(dw) == "The transpose of `X` is `D_1` × `B` and `dY` is `B` × `D_2`: the product is `D_1` × `D_2`."
    assert why(dx).endswith("the product is `B` × `D_1`.")
