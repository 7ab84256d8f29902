r"""Whole models of these tests: what stands before and behind the layers, and the layers, as tables a person writes."""

from __future__ import annotations

import memory_tables as tables

import symcomm as sc

# A layer as a course hands it out: RMSNorm, rotations and SwiGLU written by hand, so that every factor is kept.
HAND_WRITTEN_LAYER = tables.table(
    "h = rmsnorm(x, g) ; x [B,L,D], g [D] ; h [B,L,D]",
    *(rf"${n}_i = rope(h W_i^{n}), i = 1, \dots, n_h$ ; $W_i^{n} \in R^{{D \times H}}$ ; {n}_i [B,L,H]" for n in "QK"),
    r"$V_i = h W_i^V, i = 1, \dots, n_h$ ; $W_i^V \in R^{D \times H}$ ; V_i [B,L,H]",
    r"$S_i = causalsoftmax(\frac{Q_i K_i^T}{\sqrt{H}}), i = 1, \dots, n_h$ ; - ; S_i [B,L,L]",
    r"$Z_i = S_i V_i, i = 1, \dots, n_h$ ; - ; Z_i [B,L,H]",
    r"$Z = Merge([Z_1, \dots, Z_{n_h}])$ ; - ; Z [B,L,D]",
    "a = x + Z W^O ; W^O [D,D] ; a [B,L,D]",
    "m = rmsnorm(a, g') ; g' [D] ; m [B,L,D]",
    "G = m W^1 ; W^1 [D,F] ; G [B,L,F]",
    "s = sigmoid(G) ; - ; s [B,L,F]",
    r"$u = G \odot s$ ; - ; u [B,L,F]",
    r"$A = u \odot (m W^3)$ ; W^3 [D,F] ; A [B,L,F]",
    "y = a + A W^2 ; W^2 [F,D] ; y [B,L,D]",
)
UNTIED_ENDS = tables.table(
    r"x = Embed(t, W^E) ; $t \in Z^{B \times L}$, W^E [V,D] ; x [B,L,D]",
    "h = x ; x [B,L,D] ; h [B,L,D]",
    "f = rmsnorm(h, g) ; g [D] ; f [B,L,D]",
    "z = f W^U ; W^U [D,V] ; z [B,L,V]",
)
# BertForMaskedLM around its layers: positions and token types are two lists, the same for all samples.
BERT_ENDS = tables.table(
    r"w = Embed(t, W^E) + Embed(p, W^P) + Embed(s, W^T) ; $t \in Z^{B \times L}$, W^E [V,D], $p \in Z^{L}$, W^P [P,D],"
    r" $s \in Z^{L}$, W^T [S,D] ; w [B,L,D]",
    "f = layernorm(w, g^E, e^E) ; g^E [D], e^E [D] ; f [B,L,D]",
    "x = dropout(f) ; - ; x [B,L,D]",
    "h = x ; x [B,L,D] ; h [B,L,D]",
    "u = gelu(h W^M + e^M) ; W^M [D,D], e^M [D] ; u [B,L,D]",
    "n = layernorm(u, g', e') ; g' [D], e' [D] ; n [B,L,D]",
    r"$z = n {W^E}^T + e^U$ ; n [B,L,D], W^E [V,D], e^U [V] ; z [B,L,V]",
    r"$\ell = CrossEntropy(z, r)$ ; $r \in Z^{B \times L}$ ; $\ell \in R$",
)
TOY_ENDS = tables.table(
    "x = q A ; q [T,D], A [D,D] ; x [T,D]", "h = x ; x [T,D] ; h [T,D]", "y = h C ; C [D,D] ; y [T,D]"
)
TOY_LAYER = tables.table("y = x W ; x [T,D], W [D,D] ; y [T,D]")

LANGUAGE_SIZES = {"B": 4, "L": 128, "D": 2560, "F": 10240, "n_h": 32, "N_layer": 32, "V": 10000}
BERT_SIZES = {"D": 768, "F": 3072, "N_layer": 12, "n_h": 12, "V": 30522, "L": 512, "P": 512, "S": 2}


def whole(ends: str, layer: str, values: dict[str, int]) -> sc.Model:
    """The fp32 model of two tables; ``h`` is where the layers stand."""
    around = tables.load(ends, dtype="fp32", name="ends")
    return sc.model_of_parts(
        [(around, "h"), (tables.load(layer, repeat="N_layer", dtype="fp32"), "")], values=values
    )


def language_model(**values: int) -> sc.Model:
    return whole(UNTIED_ENDS, HAND_WRITTEN_LAYER, LANGUAGE_SIZES | values)


def bert(**values: int) -> sc.Model:
    return whole(BERT_ENDS, tables.BERT_LAYER, BERT_SIZES | values)


def toy(**values: int) -> sc.Model:
    return whole(TOY_ENDS, TOY_LAYER, {"T": 1000, "D": 8, "N_layer": 3} | values)
