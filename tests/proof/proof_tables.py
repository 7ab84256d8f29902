r"""The layers the proof runs, as tables a person would write, and the sizes they run at.

``LAYERS`` are whole layers. ``minimal`` makes one small table for each op kind of ``symcomm.core.graph.ops``, so that a
new record is proved without a new test; a function whose shape rule is its own needs one row in ``SHAPES``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod

from api import (
    FUNCTIONS,
    MAP,
    MAPS,
    Accounting,
    Graph,
    Plan,
    build,
    layer_tables,
    parse_layer,
    parse_strategy,
    plan,
    training,
)
from api import program_program_program as program
from proof_homework import HOMEWORK


@dataclass(frozen=True)
class Layer:
    """A table and its sizes: a number, or a number times the ranks of the mesh (``"2 ranks"``) or of its longest axis
    (``"2 side"``); several words multiply.
    """

    name: str
    table: str
    lacks: frozenset[str] = frozenset()  # the parts of strategies that find nothing to cut in it
    sizes: dict[str, int | str] = field(default_factory=dict)

    def values(self, mesh: Iterable[int]) -> dict[str, int]:
        """The sizes of the symbols on a mesh."""
        worth = {"ranks": prod(mesh), "side": max(mesh, default=1)}
        found: dict[str, int] = {}
        for name, size in (DEFAULTS | self.sizes).items():
            times, *words = str(size).split()
            found[name] = int(times) * prod(worth[word] for word in words)
        return found


# Every axis that a strategy may cut is divisible by what may cut it; equal sizes are avoided where that is possible.
DEFAULTS: dict[str, int | str] = {
    "B": "1 ranks",
    "L": "2 ranks",
    "M": "3 ranks",
    "D": "4 ranks",
    "F": "2 ranks",
    "V": "5 ranks",
    "H": "2 side",
    "n_h": "1 ranks",
    "n_k": "1 ranks",
    "E": "2 side",
    "C": "1 ranks",
    "k": 2,
    "R": "1 ranks",
    "c": "1 side",
    "d": "2 side",
    "e": "3 side",
}


def table(*rows: str) -> str:
    """A Markdown table of rows ``computation ; input ; output``."""
    lines = ["| Computation | Input | Output |", "|---|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(part.strip() for part in row.split(";")) + " |" for row in rows)])


def partition(n: str, length: str = "L") -> str:
    """The row that splits a tensor into heads."""
    shape = rf"{n}_i \in R^{{B \times {length} \times H}}"
    return rf"$[{n}_1, \dots, {n}_{{n_h}}] = Partition({n})$ ; - ; ${shape}, i = 1, \dots, n_h$"


def attention(x: str, out: str, residual: str = "") -> tuple[str, ...]:
    """Multi-head self-attention with biases from ``x`` to ``out``."""
    project = [f"{n} = {x} W^{n} + b^{n} ; {x} [B,L,D], W^{n} [D,D], b^{n} [D] ; {n} [B,L,D]" for n in "QKV"]
    split = [partition(n) for n in "QKV"]
    return (
        *project,
        *split,
        r"$S_i = causalsoftmax(\frac{Q_i K_i^T}{\sqrt{H}}), i = 1, \dots, n_h$ ; - ; S_i [B,L,L]",
        r"$Z_i = S_i V_i, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
        r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
        f"{out} = {residual}Z W^O + b^O ; W^O [D,D], b^O [D] ; {out} [B,L,D]",
    )


GPT = table(
    "h = layernorm(x, g, b) ; x [B,L,D], g [D], b [D] ; h [B,L,D]",
    *attention("h", "O"),
    "a = x + dropout(O) ; - ; a [B,L,D]",
    "m = layernorm(a, g', b') ; g' [D], b' [D] ; m [B,L,D]",
    "A = gelu(m W^1 + b^1) ; W^1 [D,F], b^1 [F] ; A [B,L,F]",
    "y = a + A W^2 + b^2 ; W^2 [F,D], b^2 [D] ; y [B,L,D]",
)

# Pre-norm without biases or gains: residual sums alone.
PRENORM = table(
    "h = layernorm(x) ; x [B,L,D] ; h [B,L,D]",
    "G = relu(h W^1) ; W^1 [D,F] ; G [B,L,F]",
    "a = x + G W^2 ; W^2 [F,D] ; a [B,L,D]",
    "m = layernorm(a) ; - ; m [B,L,D]",
    "A = relu(m W^3) ; W^3 [D,F] ; A [B,L,F]",
    "y = a + A W^4 ; W^4 [F,D] ; y [B,L,D]",
)

_REPEATED = (
    r"$K'_i = Repeat(K_j), i = 1, \dots, n_h, j = 1, \dots, n_k$ ; - ; K'_i [B,L,H]",
    r"$V'_i = Repeat(V_j), i = 1, \dots, n_h, j = 1, \dots, n_k$ ; - ; V'_i [B,L,H]",
)

LLAMA = table(
    "h = rmsnorm(x, g) ; x [B,L,D], g [D] ; h [B,L,D]",
    r"$Q_i = rope(h W_i^Q), i = 1, \dots, n_h$ ; $W_i^Q \in R^{D \times H}$ ; Q_i [B,L,H]",
    r"$K_j = rope(h W_j^K), j = 1, \dots, n_k$ ; $W_j^K \in R^{D \times H}$ ; K_j [B,L,H]",
    r"$V_j = h W_j^V, j = 1, \dots, n_k$ ; $W_j^V \in R^{D \times H}$ ; V_j [B,L,H]",
    *_REPEATED,
    r"$S_i = causalsoftmax(\frac{Q_i K_i'^T}{\sqrt{H}}), i = 1, \dots, n_h$ ; - ; S_i [B,L,L]",
    r"$Z_i = S_i V'_i, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
    r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
    "a = x + Z W^O ; W^O [D,D] ; a [B,L,D]",
    "m = rmsnorm(a, g') ; g' [D] ; m [B,L,D]",
    "G = m W^1 ; W^1 [D,F] ; G [B,L,F]",
    "U = m W^3 ; W^3 [D,F] ; U [B,L,F]",
    r"$A = silu(G) \odot U$ ; - ; A [B,L,F]",
    "y = a + A W^2 ; W^2 [F,D] ; y [B,L,D]",
)

# One key/value head: the family of key/value heads is gone.
MULTI_QUERY = table(
    r"$Q_i = x W_i^Q, i = 1, \dots, n_h$ ; x [B,L,D], $W_i^Q \in R^{D \times H}$ ; Q_i [B,L,H]",
    "K = x W^K ; W^K [D,H] ; K [B,L,H]",
    "V = x W^V ; W^V [D,H] ; V [B,L,H]",
    r"$S_i = softmax(\frac{Q_i K^T}{\sqrt{H}}), i = 1, \dots, n_h$ ; - ; S_i [B,L,L]",
    r"$Z_i = S_i V, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
    r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
    "y = Z W^O ; W^O [D,D] ; y [B,L,D]",
)

CROSS_ATTENTION = table(
    "Q = x W^Q ; x [B,L,D], W^Q [D,D] ; Q [B,L,D]",
    "K = c W^K ; c [B,M,D], W^K [D,D] ; K [B,M,D]",
    "V = c W^V ; c [B,M,D], W^V [D,D] ; V [B,M,D]",
    partition("Q"),
    partition("K", "M"),
    partition("V", "M"),
    r"$S_i = softmax(\frac{Q_i K_i^T}{\sqrt{H}}), i = 1, \dots, n_h$ ; - ; S_i [B,L,M]",
    r"$Z_i = S_i V_i, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
    r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
    "y = x + Z W^O ; W^O [D,D] ; y [B,L,D]",
)

PARALLEL_BLOCK = table(
    "h = layernorm(x) ; x [B,L,D] ; h [B,L,D]",
    *(f"{n} = h W^{n} ; W^{n} [D,D] ; {n} [B,L,D]" for n in "QKV"),
    *(partition(n) for n in "QKV"),
    r"$S_i = softmax(\frac{Q_i K_i^T}{\sqrt{H}}), i = 1, \dots, n_h$ ; - ; S_i [B,L,L]",
    r"$Z_i = S_i V_i, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
    r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
    "A = gelu(h W^1) ; W^1 [D,F] ; A [B,L,F]",
    "y = x + Z W^O + A W^2 ; W^O [D,D], W^2 [F,D] ; y [B,L,D]",
)

MOE = table(
    "g = softmax(x W^R) ; x [B,L,D], W^R [D,E] ; g [B,L,E]",
    "$G = TopK_k(g)$ ; - ; G [B,L,E,C]",
    r"$X_e = Dispatch(x, G), e = 1, \dots, E$ ; - ; X_e [B,C,D]",
    r"$A_e = relu(X_e W_e^1), e = 1, \dots, E$ ; $W_e^1 \in R^{D \times F}$ ; A_e [B,C,F]",
    r"$Y_e = A_e W_e^2, e = 1, \dots, E$ ; $W_e^2 \in R^{F \times D}$ ; Y_e [B,C,D]",
    "y = x + Combine(Y_e, G) ; - ; y [B,L,D]",
)

LORA = table(
    "y = x W + x A C ; x [B,L,D], W [D,F], A [D,R], C [R,F] ; y [B,L,F]",
)

LORA_BLOCK = table(
    "h = relu(x W^1 + x A C) ; x [B,L,D], W^1 [D,F], A [D,R], C [R,F] ; h [B,L,F]",
    "y = h W^2 + h P S ; W^2 [F,D], P [F,R], S [R,D] ; y [B,L,D]",
)

LANGUAGE_MODEL = table(
    r"x = Embed(t, W^E) ; $t \in Z^{B \times L}$, W^E [V,D] ; x [B,L,D]",
    "h = relu(x W^1) ; W^1 [D,F] ; h [B,L,F]",
    "a = x + h W^2 ; W^2 [F,D] ; a [B,L,D]",
    "z = a W^U ; W^U [D,V] ; z [B,L,V]",
    r"$\ell = CrossEntropy(z, s)$ ; $s \in Z^{B \times L}$ ; $\ell \in R$",
)

# The positions have no batch axis: nothing but the shards of the table is cut there.
POSITIONS = table(
    r"x = Embed(t, W^E) ; $t \in Z^{B \times L}$, W^E [V,D] ; x [B,L,D]",
    r"r = Embed(q, W^R) ; $q \in Z^L$, W^R [M,D] ; r [L,D]",
    "h = tanh((x + r) W^1) ; W^1 [D,F] ; h [B,L,F]",
    "y = h W^2 ; W^2 [F,D] ; y [B,L,D]",
)

TIED = table(
    r"x = Embed(t, W^E) ; $t \in Z^{B \times L}$, W^E [V,D] ; x [B,L,D]",
    "h = tanh(x W^1) ; W^1 [D,D] ; h [B,L,D]",
    "$z = h {W^E}^T$ ; - ; z [B,L,V]",
    r"$\ell = CrossEntropy(z, s)$ ; $s \in Z^{B \times L}$ ; $\ell \in R$",
)

# Two rows of experts' weights besides a router and a dense layer whose bias has one axis only.
MOE_BLOCK = table(
    "a = relu(x W^1 + b^1) ; x [B,L,D], W^1 [D,F], b^1 [F] ; a [B,L,F]",
    "h = a W^2 ; W^2 [F,D] ; h [B,L,D]",
    "g = softmax(h W^R) ; W^R [D,E] ; g [B,L,E]",
    "$G = TopK_k(g)$ ; - ; G [B,L,E,C]",
    r"$X_e = Dispatch(h, G), e = 1, \dots, E$ ; - ; X_e [B,C,D]",
    r"$P_e = silu(X_e W_e^3), e = 1, \dots, E$ ; $W_e^3 \in R^{D \times F}$ ; P_e [B,C,F]",
    r"$U_e = X_e W_e^4, e = 1, \dots, E$ ; $W_e^4 \in R^{D \times F}$ ; U_e [B,C,F]",
    r"$A_e = P_e \odot U_e, e = 1, \dots, E$ ; - ; A_e [B,C,F]",
    r"$Y_e = A_e W_e^5, e = 1, \dots, E$ ; $W_e^5 \in R^{F \times D}$ ; Y_e [B,C,D]",
    "y = h + Combine(Y_e, G) ; - ; y [B,L,D]",
)

CONVOLUTIONS = table(
    "h = conv(x, W^1, b) ; x [B,c,6,8], W^1 [d,c,3,3], b [d] ; h [B,d,6,8]",
    "a = relu(h) ; - ; a [B,d,6,8]",
    "y = conv(a, W^2) ; W^2 [e,d,2,2] ; y [B,e,3,4]",
)

_DENSE = frozenset({"expert", "ulysses"})  # no experts, no heads that attend
_ATTENDS = frozenset({"expert"})

# A recommender: tables of bags beside a dense part, as DLRM has them.
BAGS = table(
    r"$e_i = embeddingbag(t_i, W_i^E), i = 1, \dots, n_h$ ; $t_i \in Z^{B \times M}$, W_i^E [V,D] ; e_i [B,D]",
    r"$E = Merge([e_1, \dots, e_{n_h}])$ ; - ; $E \in R^{B \times n_h D}$",
    "h = tanh(x W^1) ; x [B,F], W^1 [F,D] ; h [B,D]",
    r"y = tanh(h W^2 + E W^3) W^4 ; $W^2 \in R^{D \times F}$, $W^3 \in R^{n_h D \times F}$, W^4 [F,D] ; y [B,D]",
)

LAYERS: dict[str, Layer] = {
    layer.name: layer
    for layer in (
        Layer("homework", HOMEWORK, _ATTENDS),
        Layer("pre-norm", PRENORM, _DENSE),
        Layer("sequence first", PRENORM.replace("[B,L,", "[L,B,"), _DENSE),
        Layer("gpt", GPT, _ATTENDS),
        Layer("llama", LLAMA, _ATTENDS, {"n_h": "1 ranks side"}),
        Layer("multi-query", MULTI_QUERY, _ATTENDS),
        Layer("cross-attention", CROSS_ATTENTION, _DENSE),
        Layer("parallel block", PARALLEL_BLOCK, _ATTENDS),
        Layer("mixture of experts", MOE, frozenset({"ulysses"})),
        Layer("experts after a dense layer", MOE_BLOCK, frozenset({"ulysses"})),
        Layer("lora", LORA, _DENSE),
        Layer("lora block", LORA_BLOCK, _DENSE),
        Layer("language model", LANGUAGE_MODEL, _DENSE),
        Layer("tied embeddings", TIED, _DENSE),
        Layer("position table", POSITIONS, _DENSE),
        Layer("tables of bags", BAGS, frozenset({"ulysses"})),
        Layer("convolutions", CONVOLUTIONS, frozenset({"expert", "sequence", "context", "ring", "ulysses", "cut"})),
    )
}

# -- one small table for each op kind ---------------------------------------------------------------------


def feed(of: str, features: str = "D") -> tuple[str, str]:
    """Two weights with an axis of their own between them; ``x`` is the input."""
    given = "x [B,L,D], " if of == "x" else ""
    return (
        f"a = {of} W^1 ; {given}W^1 [D,F] ; a [B,L,F]",
        f"b = a W^2 ; W^2 [F,{features}] ; b [B,L,{features}]",
    )


def around(function: str) -> str:
    """A function of an input, two weights, and the function again: sums arrive at it and at its gradient."""
    return table(f"h = {function}(x) ; x [B,L,D] ; h [B,L,D]", *feed("h"), f"y = {function}(b) ; - ; y [B,L,D]")


def between(function: str) -> str:
    """A function on the axis between two weights."""
    return table(
        "a = x W^1 ; x [B,L,D], W^1 [D,F] ; a [B,L,F]",
        f"h = {function}(a) ; - ; h [B,L,F]",
        "y = h W^2 ; W^2 [F,D] ; y [B,L,D]",
    )


# Functions of tables that are no maps, or maps with further operands, or spellings: the rows that use them.
SHAPES: dict[str, Layer] = {}


def _shape(name: str, *rows: str, lacks: frozenset[str] = _DENSE, sizes: dict[str, int | str] | None = None) -> None:
    SHAPES[name] = Layer(f"function {name}", table(*rows), lacks, sizes or {})


for _name in ("partition", "merge"):
    _shape(
        _name,
        "Q = x W^Q ; x [B,L,D], W^Q [D,D] ; Q [B,L,D]",
        partition("Q"),
        r"$Z_i = relu(Q_i), i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
        r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
        "y = Z W^O ; W^O [D,D] ; y [B,L,D]",
    )
_shape(
    "einsum",
    'Q = einsum("bld,de->ble", x, W^Q) ; x [B,L,D], W^Q [D,D] ; Q [B,L,D]',
    'S = softmax(einsum("...qd,...kd->...qk", Q, Q)) ; - ; S [B,L,L]',
    'Z = einsum("bqk,bkd->bqd", S, Q) ; - ; Z [B,L,D]',
    'y = einsum("ble,ed->bld", Z, W^O) ; W^O [D,D] ; y [B,L,D]',
)
_shape(  # a diagonal, and three operands from left to right
    "einsum, diagonal",
    'h = einsum("bld,dd,df->blf", x, G, W^1) ; x [B,L,D], G [D,D], W^1 [D,4D] ; h [B,L,4D]',
    'y = einsum("blf,fe->ble", h, W^2) ; W^2 [4D,D] ; y [B,L,D]',
)
_shape(
    "transpose",
    *feed("x"),
    "S = x transpose(b) ; - ; S [B,L,L]",
    "y = S x ; - ; y [B,L,D]",
)
# Attention with the sequence first: products join the last two axes, so the batch has to go before.
_shape(
    "permute",
    "Q = x W^Q ; x [L,B,D], W^Q [D,D] ; Q [L,B,D]",
    r"$[Q_1, \dots, Q_{n_h}] = Partition(Q)$ ; - ; $Q_i \in R^{L \times B \times H}, i = 1, \dots, n_h$",
    r"$P_i = permute(Q_i), i = 1, \dots, n_h$ ; - ; P_i [B,L,H]",
    r"$S_i = softmax(P_i P_i^T), i = 1, \dots, n_h$ ; - ; S_i [B,L,L]",
    r"$Y_i = S_i P_i, i = 1, \dots, n_h$ ; - ; Y_i [B,L,H]",
    r"$Z_i = permute(Y_i), i = 1, \dots, n_h$ ; - ; Z_i [L,B,H]",
    r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [L,B,D]",
    "y = x + Z W^O ; W^O [D,D] ; y [L,B,D]",
    lacks=_ATTENDS,
)
_shape(
    "repeat",
    r"$Q_i = x W_i^Q, i = 1, \dots, n_h$ ; x [B,L,D], $W_i^Q \in R^{D \times H}$ ; Q_i [B,L,H]",
    r"$K_j = x W_j^K, j = 1, \dots, n_k$ ; $W_j^K \in R^{D \times H}$ ; K_j [B,L,H]",
    _REPEATED[0],
    r"$Z_i = Q_i \odot K'_i, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
    r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
    "y = Z W^O ; W^O [D,D] ; y [B,L,D]",
    sizes={"n_h": "1 ranks side"},
)
_shape(
    "dropout",
    "h = dropout(x) ; x [B,L,D] ; h [B,L,D]",
    *feed("h"),
    "y = x + dropout(b) ; - ; y [B,L,D]",
)
_shape("max", "h = max(0, x W) ; x [B,L,D], W [D,F] ; h [B,L,F]", "y = h W' ; W' [F,D] ; y [B,L,D]")
_shape(
    "concat",
    "a = relu(x W^1) ; x [B,L,D], W^1 [D,D] ; a [B,L,D]",
    "c = [a, x] W^2 ; W^2 [2D,F] ; c [B,L,F]",
    "y = c W^3 ; W^3 [F,D] ; y [B,L,D]",
)
_shape("first", *feed("x"), "p = first(b) ; - ; p [B,D]", "y = p W^P ; W^P [D,D] ; y [B,D]")
for _name in ("embed", "embedding"):
    _shape(_name, rf"x = {_name}(t, W^E) ; $t \in Z^{{B \times L}}$, W^E [V,D] ; x [B,L,D]", *feed("x"))
_shape("lookup", r"x = W^E[t] ; $t \in Z^{B \times L}$, W^E [V,D] ; x [B,L,D]", *feed("x"))
_shape(
    "topk",
    *feed("x"),
    "g = sigmoid(b W^R) ; W^R [D,E] ; g [B,L,E]",
    "$G = TopK_k(g)$ ; - ; G [B,L,E,C]",
)
for _name in ("dispatch", "combine"):
    SHAPES[_name] = Layer(f"function {_name}", MOE, LAYERS["mixture of experts"].lacks)
for _name in ("conv", "convolution", "conv2d"):
    _spelled = CONVOLUTIONS.replace("conv(", f"{_name}(")
    SHAPES[_name] = Layer(f"function {_name}", _spelled, LAYERS["convolutions"].lacks)
_shape(
    "conv3d",
    "h = conv3d(x, W^1) ; x [B,c,3,2,4], W^1 [d,c,2,1,3] ; h [B,d,2,2,2]",
    "y = conv3d(h, W^2) ; W^2 [e,d,2,2,2] ; y [B,e,1,1,1]",
    lacks=LAYERS["convolutions"].lacks,
)
_shape(
    "conv1d",
    "h = conv1d(x, W^1) ; x [B,c,6], W^1 [d,c,3] ; h [B,d,4]",
    "y = conv1d(h, W^2) ; W^2 [e,d,2] ; y [B,e,2]",
    lacks=LAYERS["convolutions"].lacks,
)
for _name in ("causalconv", "causal_conv"):
    _shape(
        _name,
        "u = x W^1 ; x [B,L,D], W^1 [D,F] ; u [B,L,F]",
        f"v = {_name}(u, K, b) ; K [F,H], b [F] ; v [B,L,F]",
        "y = v W^2 ; W^2 [F,D] ; y [B,L,D]",
    )
_shape(
    "scan",
    "a = sigmoid(x W^a) ; x [B,L,D], W^a [D,F] ; a [B,L,F]",
    r"u = einsum(" + '"blf,bld->blfd"' + ", x W^1, x) ; W^1 [D,F] ; u [B,L,F,D]",
    "h = scan_L(a, u) ; - ; h [B,L,F,D]",
    r"y = scan_L(w, einsum(" + '"blfd,bld->blf"' + ", h, x)) W^2 ; w [F], W^2 [F,D] ; y [B,L,D]",
)
for _name, _gates in (("lstm", 4), ("gru", 3)):  # the body of a loop, whose states are given
    _shape(
        _name,
        f"h = {_name}(x, W, U) ; x [B,L,D], W [D,{_gates} F], U [F,{_gates} F] ; h [B,L,F]",
        "y = h V ; V [F,D] ; y [B,L,D]",
        lacks=_DENSE | {"sequence", "context", "ring"},
    )
for _name in ("causalsoftmax", "causalmask", "mask"):
    _shape(
        _name,
        rf"$S = {_name}(\frac{{x x^T}}{{D}})$ ; x [B,L,D] ; S [B,L,L]",
        "z = S x ; - ; z [B,L,D]",
        *feed("z"),
    )
_shape("layernorm", "h = layernorm(x, g, b') ; x [B,L,D], g [D], b' [D] ; h [B,L,D]", *feed("h"))
_shape("rmsnorm", "h = rmsnorm(x, g) ; x [B,L,D], g [D] ; h [B,L,D]", *feed("h"))
_shape(
    "linear",
    "h = linear(x, W^1, b^1) ; x [B,L,D], W^1 [D,F], b^1 [F] ; h [B,L,F]",
    "y = linear(h, W^2, b^2) ; W^2 [F,D], b^2 [D] ; y [B,L,D]",
)
# Signs, a bias taken off, and one tensor as two factors of a product.
_shape(
    "minus and square",
    "h = x - g ; x [B,L,D], g [D] ; h [B,L,D]",
    *feed("h"),
    "q = b - h ; - ; q [B,L,D]",
    r"y = q \odot q ; - ; y [B,L,D]",
)
_IMAGES = frozenset({"expert", "sequence", "context", "ring", "ulysses", "cut"})
_shape(
    "batchnorm",
    "h = conv(x, W^1) ; x [B,c,4,6], W^1 [d,c,1,1] ; h [B,d,4,6]",
    "a = batchnorm(h, g, b') ; g [d], b' [d] ; a [B,d,4,6]",
    "y = conv(a, W^2) ; W^2 [e,d,2,2] ; y [B,e,2,3]",
    lacks=_IMAGES,
)
for _name in ("maxpool", "avgpool"):
    _shape(
        _name,
        "h = conv(x, W^1) ; x [B,c,4,6], W^1 [d,c,3,3] ; h [B,d,4,6]",
        f"a = {_name}_{{2}}(h) ; - ; a [B,d,2,3]",
        "b = conv(a, W^2) ; W^2 [e,d,1,1] ; b [B,e,2,3]",
        f"y = {_name}(b) ; - ; y [B,e]",
        lacks=_IMAGES,
    )
_shape(
    "depthwise and dilated",
    "h = conv_{2}(x, W^1, b) ; x [B,c,8], W^1 [d,c,3], b [d] ; h [B,d,8]",
    "a = conv_{3}(h, W^2) ; W^2 [d,1,2] ; a [B,d,5]",
    "y = conv(a, W^3) ; W^3 [e,d,1] ; y [B,e,5]",
    lacks=_IMAGES,
)
_shape("embeddingbag", r"x = embeddingbag(t, W^E) ; $t \in Z^{B \times L \times 3}$, W^E [V,D] ; x [B,L,D]", *feed("x"))
# Two tokens ahead, as DeepSeek-V3 is trained: the module reads the hidden state and the next token, and has the
# embedding and the head of the model.
_shape(
    "multi-token prediction",
    r"x = Embed(t, W^E) ; $t \in Z^{B \times L}$, W^E [V,D] ; x [B,L,D]",
    "h = tanh(x W^1) ; W^1 [D,D] ; h [B,L,D]",
    "$z = h {W^E}^T$ ; - ; z [B,L,V]",
    r"$\ell_1 = CrossEntropy(z, s)$ ; $s \in Z^{B \times L}$ ; $\ell_1 \in R$",
    "e = Embed(s, W^E) ; - ; e [B,L,D]",
    "c = [rmsnorm(h), rmsnorm(e)] W^P ; W^P [2D,D] ; c [B,L,D]",
    "m = tanh(c W^2) ; W^2 [D,D] ; m [B,L,D]",
    "$u = m {W^E}^T$ ; - ; u [B,L,V]",
    r"$\ell_2 = CrossEntropy(u, r)$ ; $r \in Z^{B \times L}$ ; $\ell_2 \in R$",
    r"$\ell = \ell_1 + 0.3 \ell_2$ ; - ; $\ell \in R$",
)
_shape(  # a block of a diffusion transformer: scale, shift and gate come from the condition of an example
    "adaptive layer norm",
    "s = silu(c) W^S ; c [B,1,D], W^S [D,D] ; s [B,1,D]",
    "f = silu(c) W^F ; W^F [D,D] ; f [B,1,D]",
    "g = silu(c) W^G ; W^G [D,D] ; g [B,1,D]",
    r"$h = layernorm(x) \odot (1 + s) + f$ ; x [B,L,D] ; h [B,L,D]",
    "a = gelu(h W^1) ; W^1 [D,F] ; a [B,L,F]",
    r"$y = x + g \odot (a W^2)$ ; W^2 [F,D] ; y [B,L,D]",
)
_shape("squared_error", *feed("x"), r"$\ell = MSE(b, s)$ ; $s \in R^{B \times L \times D}$ ; $\ell \in R$")
_shape("reconstruction", *feed("x"), r"$\ell = MSE(b, x)$ ; - ; $\ell \in R$")
_shape("outer product", r"Y = u v^T ; u [F], v [D] ; Y [F,D]", r"z = x Y ; x [B,L,F] ; z [B,L,D]", *feed("z"))
for _name in ("mean", "sum"):
    _shape(
        _name,
        *feed("x"),
        rf"$\ell = {_name}(b)$ ; - ; $\ell \in R$",
    )

_shape("min", r"$a = \min(x W^1, 2)$ ; x [B,L,D], W^1 [D,F] ; a [B,L,F]", "y = a W^2 ; W^2 [F,D] ; y [B,L,D]")

# Maps that no table can spell as a function of one operand.
SPECIAL: dict[str, str] = {
    "scale": table(
        r"$a = \frac{x W^1}{\sqrt{D}}$ ; x [B,L,D], W^1 [D,F] ; a [B,L,F]",
        "y = 3 a W^2 ; W^2 [F,D] ; y [B,L,D]",
    ),
    "crossentropy": table(
        *feed("x", "V"),
        r"$l = crossentropy(b, s)$ ; $s \in Z^{B \times L}$ ; l [B,L]",
    ),
    "logsumexp": table(*feed("x", "V"), "l = logsumexp(b) ; - ; l [B,L]"),
    **{name: SHAPES[name].table for name in ("batchnorm", "maxpool", "squared_error")},
    "shift": table(r"$a = x W^1 + 1$ ; x [B,L,D], W^1 [D,F] ; a [B,L,F]", "y = (a - 3) W^2 ; W^2 [F,D] ; y [B,L,D]"),
    "minus": table(
        r"$z = \sigma(x W^1)$ ; x [B,L,D], W^1 [D,F] ; z [B,L,F]",
        r"$y = ((1 - z) \odot z) W^2$ ; W^2 [F,D] ; y [B,L,D]",
    ),
    "at_most": SHAPES["min"].table,
    "clamp": table(r"$a = clamp_{2}(x W^1)$ ; x [B,L,D], W^1 [D,F] ; a [B,L,F]", "y = a W^2 ; W^2 [F,D] ; y [B,L,D]"),
    "mask": SHAPES["mask"].table,
    "scan": SHAPES["scan"].table,
    "topsoftmax": around("topsoftmax_{2}"),
}


def minimal() -> Iterator[Layer]:
    """One small table or two for each record of ``ops.MAPS`` and each function of ``functions.FUNCTIONS``."""
    for kind in MAPS:
        if kind.name in SPECIAL:
            lacks = SHAPES[kind.name].lacks if kind.name in ("batchnorm", "maxpool") else _DENSE
            yield Layer(kind.name, SPECIAL[kind.name], lacks)
            continue
        yield Layer(f"{kind.name}, around", around(kind.spellings[0]), _DENSE)
        if not kind.along:
            yield Layer(f"{kind.name}, between", between(kind.spellings[0]), _DENSE)
    for function in FUNCTIONS:
        if function.name not in SHAPES and function.name not in MAP:
            raise LookupError(f"{function.name} is a function of tables: give it rows in SHAPES")
    yield from SHAPES.values()


ALL: dict[str, Layer] = LAYERS | {layer.name: layer for layer in minimal()}


@cache
def graph(name: str, input_gradient: bool = True) -> Graph:
    """A layer with its backward pass."""
    (found,) = layer_tables(ALL[name].table, f"{name}.md")
    return training(build(parse_layer(found)), input_gradient)


def planned(layer: str, strategy: str, accounting: Accounting | None = None, passes: str = "training") -> Plan:
    """What the ranks run: the steps of the program, what is gathered for the whole step before all others.

    What goes round a ring in blocks is gathered here; ``tests/whole/test_ring_attention.py`` runs the blocks.
    """
    found = parse_strategy(strategy)
    found = replace(found, rules=tuple((size, replace(rule, passes=False)) for size, rule in found.rules))
    if passes == "forward":
        return plan(graph(layer).forward(), found, accounting)
    made = program(_forward(layer), found, accounting, input_gradient=passes == "training")
    steps = (*(call for _, call in made.early), *made.works())
    return replace(made.plan, steps=steps)


@cache
def _forward(layer: str) -> Graph:
    return graph(layer).forward()


# -- strategies -------------------------------------------------------------------------------------------

STRATEGIES = (
    "data(2)",
    "data(3)",
    "zero-1(2)",
    "optimizer-sharded(2)",
    "zero-2(2)",
    "zero-3(2)",
    "fully-sharded(4)",
    "hybrid-sharded(2, 2)",
    "tensor(2)",
    "tensor(3)",
    "sequence(2)",
    "tensor(2) + sequence",
    "context(2)",
    "ring(2)",
    "ulysses(2)",
    "expert(2)",
    "cut(D, 2)",
    "data(2) + tensor(2)",
    "data(2) + context(2)",
    "context(2) + ulysses(2)",
    "ring(2) + ulysses(2)",
    "fully-sharded(2, over=context) + context(2)",
    "expert + data(2)",
    "zero-1(2) + tensor(2)",
    "zero-2(2) + expert",
    "fully-sharded(2) + tensor(2) + sequence",
    "context(2) + tensor(2) + sequence",
    "data(2) + tables",
    "zero-1(2) + tables + tensor(2)",
    "data(2) + tensor(2) + expert",
    "fully-sharded(2) + tensor(2) + expert",
    "hybrid-sharded(2, 2) + tensor(2)",
)


WITH_TABLES = {"tables of bags"}


def parts(strategy: str) -> frozenset[str]:
    """What a strategy is composed of."""
    return frozenset(piece.partition("(")[0].strip() for piece in strategy.split("+"))


def applies(layer: str, strategy: str) -> bool:
    """Whether every part of the strategy finds something to cut."""
    return not parts(strategy) & ALL[layer].lacks and ("tables" not in parts(strategy) or layer in WITH_TABLES)
