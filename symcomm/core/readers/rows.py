r"""The rows of transformer parts in the language of layer tables, written from a few choices.

A tensor's shape is written where the tensor is first mentioned and remembered for the rows after it.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Literal

from symcomm.core.records import dataclass

STREAM = "B, L, D"


@dataclass
class Rows:
    r"""Rows of a layer table while they are written down.

    >>> rows = Rows()
    >>> rows.add("y = x W", "x [B, D]", "W [D, F]", to="y [B, F]")
    >>> rows.add("z = gelu(y)", "y", to="z [B, F]")
    >>> rows.lines[1]
    'z = gelu(y)\ty [B, F]\tz [B, F]\n'
    """

    shapes: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    length: str = "L"  # of this stream, where a model has several

    def add(self, computation: str, *inputs: str, to: str) -> None:
        """One row; an input without a shape has the one it had before."""
        written = [self.declared(one) for one in inputs if one]
        self.lines.append(f"{computation}\t{', '.join(dict.fromkeys(written))}\t{self.declared(to)}\n")

    def declared(self, one: str) -> str:
        """A tensor with its shape."""
        name = one.split(" [")[0].split(" \\in")[0]
        if name == one:
            return self.shapes[name]
        self.shapes[name] = re.sub(r"\bL\b", self.length, one)
        return self.shapes[name]

    @property
    def text(self) -> str:
        """The rows as the body of a tab-separated table."""
        return "".join(self.lines)


@dataclass(frozen=True)
class Attention:
    """The choices of an attention block of heads."""

    qkv_bias: bool = False
    out_bias: bool = False
    grouped: bool = False
    rope: bool = False
    head_norm: Literal["", "each", "all"] = ""
    rotated: str = ""  # how many features of a head turn, where it is a part of them
    causal: bool = True
    window: str = ""  # how many positions a query sees, where it is not all up to its own
    dropout: bool = False
    sinks: bool = False
    width: str = "D"  # heads times head dimension
    narrow: str = "D"  # key/value heads times head dimension
    few: str = "n_{kv}"  # key/value heads, where they are fewer
    memory: str = ""  # what keys and values are made of, where it is not the source
    keys: str = "L"  # the length of that
    positions: str = ""  # what is added to the scores of each head, with its shape
    scaled: bool = True
    mark: str = ""  # tells several blocks of a layer apart


def linear(
    rows: Rows, target: str, source: str, weight: str, shape: str, to: str, bias: str = "", act: str = ""
) -> None:
    """A row ``target = act(source W + b)``; ``shape`` is that of the weight."""
    formula = f"{source} W^{{{weight}}}" + (f" + b^{{{bias}}}" if bias else "")
    formula = f"{act}({formula})" if act else formula
    out = shape.split(",")[-1].strip()
    rows.add(
        f"{target} = {formula}", source, f"W^{{{weight}}} [{shape}]", f"b^{{{bias}}} [{out}]" if bias else "",
        to=f"{target} [{to}]",
    )  # fmt: skip


def norm(
    rows: Rows,
    target: str,
    argument: str,
    inputs: tuple[str, ...],
    kind: str,
    mark: str,
    to: str = STREAM,
    affine: bool = True,
) -> None:
    """A row that normalises, with its scale and, for layer norms, its shift, where it is ``affine``."""
    size = to.split(",")[-1].strip()
    letters = ("gamma", "beta") if kind == "layernorm" else ("gamma",)
    weights = [rf"\{letter}^{{{mark}}} [{size}]" for letter in letters if affine]
    names = ", ".join((argument, *(w.split(" [")[0] for w in weights)))
    rows.add(f"{target} = {kind}({names})", *inputs, *weights, to=f"{target} [{to}]")


def _heads(index: str, count: str) -> str:
    return rf"{index} = 1, \dots, {count}"


def _parts(rows: Rows, whole: str, size: str, count: str, index: str = "i", length: str = "L") -> None:
    rows.add(
        rf"[{whole}_1, \dots, {whole}_{{{count}}}] = Partition_{{-1}}({whole})", whole,
        to=f"{whole}_{index} [B, {length}, {size}], {_heads(index, count)}",
    )  # fmt: skip


def attention(rows: Rows, source: str, target: str, a: Attention) -> None:
    """Multi-head attention from ``source``; the result is ``target``."""
    rows.declared(f"{source} [{STREAM}]")
    memory, length = a.memory or source, a.keys
    rows.declared(f"{memory} [B, {length}, D]")

    def called(letter: str) -> str:
        return f"{letter}^{a.mark}" if a.mark else letter

    for letter, of, long, width in (
        ("Q", source, "L", a.width), ("K", memory, length, a.narrow), ("V", memory, length, a.narrow),
    ):  # fmt: skip
        whole, weight = a.head_norm == "all" and letter != "V", a.mark + letter
        made = f"{called(letter)}'" if whole else called(letter)
        linear(rows, made, of, weight, f"D, {width}", f"B, {long}, {width}", weight if a.qkv_bias else "")
        if whole:
            norm(rows, called(letter), made, (made,), "rmsnorm", weight, f"B, {long}, {width}")
    few, j = (a.few, "j") if a.grouped else ("n_H", "i")
    _parts(rows, called("Q"), "H", "n_H")
    _parts(rows, called("K"), "H", few, j, length)
    _parts(rows, called("V"), "H", few, j, length)
    q, k, v = (f"{called(letter)}_{index}" for letter, index in (("Q", "i"), ("K", j), ("V", j)))

    def each(name: str, count: str, long: str) -> str:
        of, index = name[0], name[-1]
        made, gain = f"{called({'Q': 'R', 'K': 'S'}[of])}_{index}", rf"\gamma^{{{a.mark}{of}}}"
        inner = f"rmsnorm({name}, {gain})" if a.head_norm == "each" else name
        formula = f"rope{f'_{{{a.rotated}}}' if a.rotated else ''}({inner})" if a.rope else inner
        rows.add(
            f"{made} = {formula}, {_heads(index, count)}", name, f"{gain} [H]" if a.head_norm == "each" else "",
            to=f"{made} [B, {long}, H]",
        )  # fmt: skip
        return made

    if a.rope or a.head_norm == "each":
        q, k = each(q, "n_H", "L"), each(k, few, length)
    if a.grouped:
        repeated = []
        for name, letter in ((k, "T"), (v, "U")):
            made = f"{called(letter)}_i"
            rows.add(
                f"{made} = Repeat({name}), {_heads('i', 'n_H')}", f"{name} [B, {length}, H], {_heads('j', few)}",
                to=f"{made} [B, {length}, H]",
            )  # fmt: skip
            repeated.append(made)
        k, v = repeated
    product = f"{q} {{{k}}}^T" if a.mark else f"{q} {k}^T"
    scores(rows, rf"\frac{{{product}}}{{\sqrt{{H}}}}" if a.scaled else product, (q, k), v, "H", a)
    z, merged = f"{called('Z')}_i [B, L, H], {_heads('i', 'n_H')}", called("Z")
    rows.add(rf"{merged} = Merge_{{-1}}([{merged}_1, \dots, {merged}_{{n_H}}])", z, to=f"{merged} [B, L, {a.width}]")
    linear(rows, target, merged, f"{a.mark}O", f"{a.width}, D", STREAM, f"{a.mark}O" if a.out_bias else "")


def scores(rows: Rows, formula: str, inputs: tuple[str, ...], values: str, size: str, a: Attention) -> None:
    """The rows of the softmax and of its product with the values."""
    p, z, mark = (f"{letter}^{a.mark}_i" if a.mark else f"{letter}_i" for letter in ("P", "Z", "A"))
    added = " - b_i^S" if a.sinks else f" + {a.positions.split(' [')[0]}" if a.positions else ""
    function = "softmax" if not a.causal else f"causalsoftmax_{{{a.window}}}" if a.window else "causalsoftmax"
    softmax = f"{function}({formula}{added})"
    if a.sinks:  # softmax does not change where a number is taken off all scores: then the sink is 0
        softmax = f"sink{softmax}" if not a.causal else f"sinksoftmax({softmax.replace('causalsoftmax', 'mask')})"
    sink = r"b_i^S \in \mathbb{R}" if a.sinks else a.positions
    rows.add(f"{p} = {softmax}, {_heads('i', 'n_H')}", *inputs, sink, to=f"{p} [B, L, {a.keys}]")
    if a.dropout:
        rows.add(f"{mark} = dropout({p}), {_heads('i', 'n_H')}", p, to=f"{mark} [B, L, {a.keys}]")
        p = mark
    rows.add(f"{z} = {p} {values}, {_heads('i', 'n_H')}", p, values, to=f"{z} [B, L, {size}]")


def latent_attention(rows: Rows, source: str, target: str, query_rank: bool, bias: bool) -> None:
    """Multi-head latent attention as in DeepSeek-V2, arXiv 2405.04434, section 2.1, its matrices named as there."""
    rows.declared(f"{source} [{STREAM}]")
    low, rank = source, "D"
    if query_rank:
        linear(rows, "a", source, "DQ", "D, r_Q", "B, L, r_Q", "DQ" if bias else "")
        norm(rows, "c", "a", ("a",), "rmsnorm", "DQ", "B, L, r_Q")
        low, rank = "c", "r_Q"
    linear(rows, "Q", low, "UQ", f"{rank}, n_H H", "B, L, n_H H")
    linear(rows, "R", low, "QR", f"{rank}, n_H H_R", "B, L, n_H H_R")
    linear(rows, "v", source, "DKV", "D, r_{KV}", "B, L, r_{KV}", "DKV" if bias else "")
    norm(rows, "f", "v", ("v",), "rmsnorm", "DKV", "B, L, r_{KV}")
    linear(rows, "l", source, "KR", "D, H_R", "B, L, H_R", "KR" if bias else "")
    rows.add("k = rope(l)", "l", to="k [B, L, H_R]")
    linear(rows, "K", "f", "UK", "r_{KV}, n_H H", "B, L, n_H H")
    linear(rows, "V", "f", "UV", "r_{KV}, n_H H_V", "B, L, n_H H_V")
    for letter, size in (("Q", "H"), ("R", "H_R"), ("K", "H"), ("V", "H_V")):
        _parts(rows, letter, size, "n_H")
    rows.add(f"S_i = rope(R_i), {_heads('i', 'n_H')}", "R_i", to="S_i [B, L, H_R]")
    a = Attention()
    scores(rows, r"\frac{Q_i K_i^T + S_i k^T}{\sqrt{H + H_R}}", ("Q_i", "K_i", "S_i", "k"), "V_i", "H_V", a)
    rows.add(r"Z = Merge_{-1}([Z_1, \dots, Z_{n_H}])", f"Z_i [B, L, H_V], {_heads('i', 'n_H')}", to="Z [B, L, n_H H_V]")
    linear(rows, target, "Z", "O", "n_H H_V, D", STREAM, "O" if bias else "")


def _dropped(rows: Rows, source: str, shape: str) -> str:
    rows.add(f"{source}' = dropout({source})", source, to=f"{source}' [{shape}]")
    return f"{source}'"


def plain_mlp(rows: Rows, source: str, target: str, act: str, bias: bool, dropout: bool = False) -> None:
    """Up, an activation function (and ``dropout``), down."""
    linear(rows, "u", source, "1", "D, F", "B, L, F", "1" if bias else "", act)
    linear(rows, target, _dropped(rows, "u", "B, L, F") if dropout else "u", "2", "F, D", STREAM, "2" if bias else "")


def gated_mlp(
    rows: Rows, source: str, target: str, act: str, bias: bool, dropout: bool = False, size: str = "F", mark: str = ""
) -> None:
    """A gate times the way up (and ``dropout``), then down (arXiv 2002.05202); ``mark`` tells several blocks apart."""
    wide = f"B, L, {size}"
    g, u, w = (f"{letter}^{{{mark}}}" if mark else letter for letter in "guw")
    linear(rows, g, source, f"gate{mark}", f"D, {size}", wide, f"gate{mark}" if bias else "", act)
    linear(rows, u, source, f"up{mark}", f"D, {size}", wide, f"up{mark}" if bias else "")
    rows.add(rf"{w} = {g} \odot {u}", g, u, to=f"{w} [{wide}]")
    w = _dropped(rows, w, wide) if dropout else w
    linear(rows, target, w, f"down{mark}", f"{size}, D", STREAM, f"down{mark}" if bias else "")


def experts(
    rows: Rows, source: str, target: str, act: str, biased: bool, shared: str, limit: str = "", gates: str = "softmax"
) -> None:
    """Routed experts of gated blocks; every expert takes an equal share of the tokens and none is dropped.

    ``gates`` is the function of the router. With a ``limit`` the gate is at most so much, and what it multiplies is at
    most so far from 0, plus 1. ``biased`` experts and routers have biases. ``shared`` experts take every token;
    ``gated`` ones are weighted by a number for each token.
    """
    share = r"\frac{n_{top} L}{E}"
    each = _heads("e", "E")
    router, bias = ("b^R [E]", " + b^R") if biased else ("", "")
    rows.add(f"r = {gates}({source} W^R{bias})", source, "W^R [D, E]", router, to="r [B, L, E]")
    rows.add("M = TopK_{n_{top}}(r)", "r", to=f"M [B, L, E, {share}]")
    rows.add(f"X_e = Dispatch({source}, M), {each}", source, "M", to=f"X_e [B, {share}, D]")

    def product(to: str, of: str, name: str, shape: str, function: str = "") -> None:
        size = shape.split(", ")[1]
        added, declared = (f" + b_e^{{{name}}}", f"b_e^{{{name}}} [{size}]") if biased else ("", "")
        formula = f"{of} W_e^{{{name}}}{added}"
        formula = function.format(formula) if "{" in function else f"{function}({formula})" if function else formula
        rows.add(
            f"{to} = {formula}, {each}", of, f"W_e^{{{name}}} [{shape}]", declared, to=f"{to} [B, {share}, {size}]"
        )

    clipped = rf"{act}(\min({{}}, {limit}))", rf"1 + clamp_{{{{{limit}}}}}({{}})"
    gate, up = clipped if limit else (act, "")
    product("G_e", "X_e", "gate", "D, F_E", gate)
    product("J_e", "X_e", "up", "D, F_E", up)
    rows.add(rf"I_e = G_e \odot J_e, {each}", "G_e", "J_e", to=f"I_e [B, {share}, F_E]")
    product("Y_e", "I_e", "down", "F_E, D")
    routed = "q" if shared else target
    rows.add(f"{routed} = Combine(Y_e, M)", f"Y_e [B, {share}, D], {each}", "M", to=f"{routed} [{STREAM}]")
    if not shared:
        return
    gated_mlp(rows, source, "s", act, False, False, "F_S", "S")
    last = "s"
    if shared == "gated":  # products align the last axes: the tokens of s are brought there, and back
        rows.add(f"k = sigmoid({source} w^G)", source, "w^G [D]", to="k [B, L]")
        rows.add("t = Permute(s)", "s", to="t [D, B, L]")
        rows.add(r"v = k \odot t", "k", "t", to="v [D, B, L]")
        rows.add("s' = Permute(v)", "v", to=f"s' [{STREAM}]")
        last = "s'"
    rows.add(f"{target} = q + {last}", "q", last, to=f"{target} [{STREAM}]")
