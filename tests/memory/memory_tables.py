r"""The layers of these tests, as tables a person would write."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from api import Model

import symcomm as sc

DATA = Path(__file__).parent.parent / "data"


def table(*rows: str) -> str:
    """A Markdown table of rows ``computation ; input ; output``."""
    lines = ["| Computation | Input | Output |", "|---|---|---|"]
    return "\n".join([*lines, *("| " + " | ".join(part.strip() for part in row.split(";")) + " |" for row in rows)])


@cache
def _read(text: str, inputs: tuple[str, ...], options: tuple[tuple[str, str], ...]) -> Model:
    return sc.load(text, inputs=inputs, **dict(options))


def load(text: str, inputs: tuple[str, ...] = (), values: Mapping[str, int] | None = None, **options: str) -> Model:
    """The model of a table; each table is read once a session."""
    model = _read(text, inputs, tuple(options.items()))
    return model.at(**values) if values else model


def heads(name: str, shape: str, count: str, width: str) -> str:
    """The row that splits a tensor into heads."""
    parts = rf"[{name}_1, \dots, {name}_{{{count}}}]"
    return rf"${parts} = Partition({name})$ ; - ; ${name}_i \in R^{{{shape} \times {width}}}, i = 1, \dots, {count}$"


HOMEWORK = (DATA / "homework2_table.tsv").read_text(encoding="utf-8")

# The layer of arXiv 2205.05198, figure 2, in its letters: s positions, b sequences, h features, a heads.
PAPER = table(
    "n = layernorm(x, g, e) ; x [b,s,h], g [h], e [h] ; n [b,s,h]",
    *(f"{n} = n W^{n} + e^{n} ; W^{n} [h,h], e^{n} [h] ; {n} [b,s,h]" for n in "QKV"),
    *(heads(n, r"b \times s", "a", "H") for n in "QKV"),
    r"$S_i = dropout(softmax(\frac{Q_i K_i^T}{\sqrt{H}})), i = 1, \dots, a$ ; - ; S_i [b,s,s]",
    r"$Z_i = S_i V_i, i = 1, \dots, a$ ; - ; Z_i [b,s,H]",
    r"$Z = Merge([Z_1, \dots, Z_a])$ ; - ; Z [b,s,h]",
    "c = x + dropout(Z W^O + e^O) ; W^O [h,h], e^O [h] ; c [b,s,h]",
    "m = layernorm(c, g', e') ; g' [h], e' [h] ; m [b,s,h]",
    "A = gelu(m W^1 + e^1) ; W^1 [h,4h], e^1 [4h] ; A [b,s,4h]",
    "y = c + dropout(A W^2 + e^2) ; W^2 [4h,h], e^2 [h] ; y [b,s,h]",
)
# Its last layer: logits of v words for each position.
LOGITS = table("z = x W^U ; x [b,s,h], W^U [h,v] ; z [b,s,v]")

# A pre-norm GPT block with dropout after the scores, the attention and the feed-forward block.
GPT = table(
    "h = layernorm(x, g, e) ; x [B,L,D], g [D], e [D] ; h [B,L,D]",
    *(f"{n} = h W^{n} + e^{n} ; W^{n} [D,D], e^{n} [D] ; {n} [B,L,D]" for n in "QKV"),
    *(heads(n, r"B \times L", "n_h", "H") for n in "QKV"),
    r"$S_i = dropout(causalsoftmax(\frac{Q_i K_i^T}{\sqrt{H}})), i = 1, \dots, n_h$ ; - ; S_i [B,L,L]",
    r"$Z_i = S_i V_i, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
    r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
    "a = x + dropout(Z W^O + e^O) ; W^O [D,D], e^O [D] ; a [B,L,D]",
    "m = layernorm(a, g', e') ; g' [D], e' [D] ; m [B,L,D]",
    "A = gelu(m W^1 + e^1) ; W^1 [D,F], e^1 [F] ; A [B,L,F]",
    "y = a + dropout(A W^2 + e^2) ; W^2 [F,D], e^2 [D] ; y [B,L,D]",
)

LLAMA = table(
    "h = rmsnorm(x, g) ; x [B,L,D], g [D] ; h [B,L,D]",
    r"$Q_i = rope(h W_i^Q), i = 1, \dots, n_h$ ; $W_i^Q \in R^{D \times H}$ ; Q_i [B,L,H]",
    r"$K_j = rope(h W_j^K), j = 1, \dots, n_k$ ; $W_j^K \in R^{D \times H}$ ; K_j [B,L,H]",
    r"$V_j = h W_j^V, j = 1, \dots, n_k$ ; $W_j^V \in R^{D \times H}$ ; V_j [B,L,H]",
    r"$K'_i = Repeat(K_j), i = 1, \dots, n_h, j = 1, \dots, n_k$ ; - ; K'_i [B,L,H]",
    r"$V'_i = Repeat(V_j), i = 1, \dots, n_h, j = 1, \dots, n_k$ ; - ; V'_i [B,L,H]",
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

# The attention of document 002: one head, softmax written by hand, and a loss.
ATTENTION = table(
    r"$S = softmax(\frac{Q K^T}{\sqrt{d}})$ ; Q [b,s,d], K [b,s,d] ; S [b,s,s]",
    "O = S V ; V [b,s,d] ; O [b,s,d]",
    r"$l = mean(O)$ ; - ; $l \in R$",
)

# The model of document 002: a layer with RMSNorm and SwiGLU, and what stands around the layers.
SWIGLU_LAYER = table(
    "h = rmsnorm(x, g) ; x [B,L,D], g [D] ; h [B,L,D]",
    *(f"{n} = h W^{n} ; W^{n} [D,D] ; {n} [B,L,D]" for n in "QKV"),
    *(heads(n, r"B \times L", "n_h", "H") for n in "QKV"),
    r"$S_i = causalsoftmax(\frac{Q_i K_i^T}{\sqrt{H}}), i = 1, \dots, n_h$ ; - ; S_i [B,L,L]",
    r"$Z_i = S_i V_i, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
    r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
    "a = x + Z W^O ; W^O [D,D] ; a [B,L,D]",
    "m = rmsnorm(a, g') ; g' [D] ; m [B,L,D]",
    r"$A = silu(m W^1) \odot (m W^3)$ ; W^1 [D,F], W^3 [D,F] ; A [B,L,F]",
    "y = a + A W^2 ; W^2 [F,D] ; y [B,L,D]",
)
ENDS = table(
    r"x = Embed(t, W^E) ; $t \in Z^{B \times L}$, W^E [V,D] ; x [B,L,D]",
    "f = rmsnorm(x, g) ; g [D] ; f [B,L,D]",
    "z = f W^U ; W^U [D,V] ; z [B,L,V]",
)
XXL = table("u = relu(x W^1) ; x [T,D], W^1 [D,F] ; u [T,F]", "y = u W^2 ; W^2 [F,D] ; y [T,D]")

# BERT's encoder layer with dropout, and what stands around the layers of BertForMaskedLM.
BERT_LAYER = table(
    *(f"{n} = x W^{n} + e^{n} ; x [B,L,D], W^{n} [D,D], e^{n} [D] ; {n} [B,L,D]" for n in "QKV"),
    *(heads(n, r"B \times L", "n_h", "H") for n in "QKV"),
    r"$S_i = dropout(softmax(\frac{Q_i K_i^T}{\sqrt{H}})), i = 1, \dots, n_h$ ; - ; S_i [B,L,L]",
    r"$Z_i = S_i V_i, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
    r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
    "a = x + dropout(Z W^O + e^O) ; W^O [D,D], e^O [D] ; a [B,L,D]",
    "m = layernorm(a, g, e) ; g [D], e [D] ; m [B,L,D]",
    "A = gelu(m W^1 + e^1) ; W^1 [D,F], e^1 [F] ; A [B,L,F]",
    "c = m + dropout(A W^2 + e^2) ; W^2 [F,D], e^2 [D] ; c [B,L,D]",
    "y = layernorm(c, g', e') ; g' [D], e' [D] ; y [B,L,D]",
)
BERT_EMBEDDINGS = table(
    r"w = Embed(t, W^E) ; $t \in Z^{B \times L}$, W^E [V,D] ; w [B,L,D]",
    "f = layernorm(w, g, e) ; g [D], e [D] ; f [B,L,D]",
    "y = dropout(f) ; - ; y [B,L,D]",
)
BERT_HEAD = table(
    "u = gelu(x W^T + e^T) ; x [B,L,D], W^T [D,D], e^T [D] ; u [B,L,D]",
    "n = layernorm(u, g, e) ; g [D], e [D] ; n [B,L,D]",
    "z = n W^U + e^U ; W^U [D,V], e^U [V] ; z [B,L,V]",
    r"$\ell = CrossEntropy(z, r)$ ; $r \in Z^{B \times L}$ ; $\ell \in R$",
)

# Experts besides a norm and a router, which every rank has.
MOE = table(
    "n = rmsnorm(x, g) ; x [B,L,D], g [D] ; n [B,L,D]",
    "p = softmax(n W^R) ; W^R [D,E] ; p [B,L,E]",
    "$G = TopK_k(p)$ ; - ; G [B,L,E,C]",
    r"$X_e = Dispatch(n, G), e = 1, \dots, E$ ; - ; X_e [B,C,D]",
    r"$A_e = relu(X_e W_e^1), e = 1, \dots, E$ ; $W_e^1 \in R^{D \times F}$ ; A_e [B,C,F]",
    r"$Y_e = A_e W_e^2, e = 1, \dots, E$ ; $W_e^2 \in R^{F \times D}$ ; Y_e [B,C,D]",
    "y = x + Combine(Y_e, G) ; - ; y [B,L,D]",
)
LORA = table(
    "h = relu(x W) ; x [B,L,D], W [D,F] ; h [B,L,F]",
    "y = h U + h A C ; U [F,D], A [F,R], C [R,D] ; y [B,L,D]",
)
