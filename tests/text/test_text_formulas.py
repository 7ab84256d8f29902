"""Single formulas: every spelling, every refusal, and trees that survive printing and reading."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction

import pytest
from alone import declarations, equation
from api import (
    Exponentiation,
    Family,
    FormulaError,
    FunctionCall,
    Hadamard,
    Identifier,
    Multiplication,
    Node,
    Number,
    Quotient,
    Radical,
    Span,
    Sum,
    SymcommError,
    Transpose,
    bare,
    parse_answer,
    parse_size,
)
from hypothesis import given
from hypothesis import strategies as st


def show(node: object) -> str:
    """A tree on one line: names as they are, everything else as a call."""
    if isinstance(node, Identifier):
        return f"{node.key}[{node.index}]" if node.index else node.key
    if isinstance(node, Number):
        return str(node.value)
    if isinstance(node, Sum):
        return (
            "+("
            + " ".join(("" if sign > 0 else "-") + show(one) for one, sign in zip(node.terms, node.signs, strict=True))
            + ")"
        )
    if isinstance(node, Multiplication):
        return "*(" + " ".join(map(show, node.factors)) + ")"
    if isinstance(node, Hadamard):
        return "o(" + " ".join(map(show, node.factors)) + ")"
    if isinstance(node, Quotient):
        return f"/({show(node.top)} {show(node.bottom)})"
    if isinstance(node, Exponentiation):
        return f"^({show(node.base)} {show(node.exponent)})"
    if isinstance(node, Radical):
        return f"sqrt({show(node.inside)})"
    if isinstance(node, Transpose):
        return f"T({show(node.inside)})"
    if isinstance(node, FunctionCall):
        below = f"_{show(node.subscript)}" if node.subscript is not None else ""
        return f"{node.function}{below}(" + ", ".join(map(show, node.arguments)) + ")"
    assert isinstance(node, Family)
    return f"[{show(node.name)} 1..{show(node.count)}]"


TENSORS = (
    "x W b y Out g u Q K V S M t z A B X Q_i K_i V_i W^Q W^O W^1 W^E A' x' W^(1) W_up W_gate W_gate^(1) gamma alpha "
    "x_hat X_e W^1_e W1 score lambda"
)
NAMES = TENSORS.split()
SIZES = ["D", "H", "L", "r", "n_h", "E"]
FAMILIES = ("Y", "Z")


def formula(text: str, *extra: str) -> str:
    return show(equation(text, [*NAMES, *extra], SIZES, families=FAMILIES).formula)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("$Q = xW^Q$", "*(x W^Q)"),
        (r"y = x + \text{Out}", "+(x Out)"),
        (r"h = \text{silu}(g) \odot u", "o(silu(g) u)"),
        (r"h = \text{silu}(x W_{\text{gate}}) \odot x W_{up}", "o(silu(*(x W_gate)) *(x W_up))"),
        (r"h = \mathrm{RMSNorm}(x, \gamma)", "rmsnorm(x, gamma)"),
        (r"h = \text{LayerNorm}(x; \gamma, b)", "layernorm(x, gamma, b)"),
        (r"h = \text{Layer Norm}(x)", "layernorm(x)"),
        ("h = layer_norm(x)", "layernorm(x)"),
        (r"y = \operatorname{GELU}(x)", "gelu(x)"),
        (r"y = \sigma(xW)", "sigmoid(*(x W))"),
        ("y = σ(xW)", "sigmoid(*(x W))"),
        (r"y = \text{Dropout}(x)", "dropout(x)"),
        ("y = xW + b", "+(*(x W) b)"),
        ("y = x @ W + b", "+(*(x W) b)"),
        (r"y = \text{softmax}(S + M)", "softmax(+(S M))"),
        (r"y = \text{CausalSoftmax}(S)", "causalsoftmax(S)"),
        (r"y = \text{Embed}(t, W^E)", "embed(t, W^E)"),
        (r"\ell = \text{CrossEntropy}(z, t)", "crossentropy(z, t)"),
        (r"M = \text{TopK}_k(g)", "topk_k(g)"),
        ("M = TopK_k(g)", "topk_k(g)"),
        (r"M = \text{TopK}_{2}(g)", "topk_2(g)"),
        (r"Q = \text{Partition}_{-1}(K)", "partition_-1(K)"),
        ("Q = Partition_-1(K)", "partition_-1(K)"),
        (r"X_e = \text{Dispatch}(x, M), e = 1, \dots, E", "dispatch(x, M)"),
        (r"H_e = \text{relu}(X_e W^1_e), e = 1, \dots, E", "relu(*(X[e] W^1[e]))"),
        (r"y = \text{Combine}(Y_e, M)", "combine(Y[e], M)"),
        (r"y = xW + \frac{\alpha}{r} x A B", "+(*(x W) *(/(alpha r) x A B))"),
        (r"y = \text{Conv}(X, W)", "conv(X, W)"),
        ("y = Conv2d(X, W)", "conv2d(X, W)"),
        ("S_i = softmax(Q_i K_i^T / sqrt(D)), i = 1..n_h", "softmax(/(*(Q[i] T(K[i])) sqrt(D)))"),
        ("S_i = softmax(Q_iK_i^T/sqrt(D)) for i = 1,...,n_h", "softmax(/(*(Q[i] T(K[i])) sqrt(D)))"),
        (r"S = \text{softmax}\left(\frac{QK^\top}{\sqrt{D}}\right)V", "*(softmax(/(*(Q T(K)) sqrt(D))) V)"),
        ("S = softmax(QKᵀ/√D) V", "*(softmax(/(*(Q T(K)) sqrt(D))) V)"),
        (r"y_i = \text{RoPE}(Q_i), 1 \le i \le n_h", "rope(Q[i])"),
        (r"y_i = \text{RoPE}(Q_i), i \in \{1, \ldots, n_h\}", "rope(Q[i])"),
        (r"y = \bigl( \mathbf{X}\,W_{\text{up}} \bigr) ⊙ (X W_{gate}^{(1)})", "o(*(X W_up) *(X W_gate^(1)))"),
        (r"y = \hat{x} \mathrm{score} + W^{(1)} x^{\prime}", "+(*(x_hat score) *(W^(1) x'))"),
        ("y = x_hat score + W^(1) x^\\prime", "+(*(x_hat score) *(W^(1) x'))"),
        (r"y = \mathbf{XW}", "*(X W)"),
        ("y = Out W1", "*(Out W1)"),
        ("y = OutW1", "*(Out W1)"),
        ("y = X^T W", "*(T(X) W)"),
        ("y = X.T W", "*(T(X) W)"),
        (r"y = xW^{Q\top}", "*(x T(W^Q))"),
        (r"y = x (W^Q)^{\mathrm{T}}", "*(x T(W^Q))"),
        ("y = W^1_e^T X_e, e = 1..E", "*(T(W^1[e]) X[e])"),
        ("y = x^2 W^1", "*(^(x 2) W^1)"),
        ("y = x² W¹", "*(^(x 2) W^1)"),
        ("y = relu(x)^2", "^(relu(x) 2)"),
        ("y = x (W A) B", "*(x *(W A) B)"),
        ("y = -x W", "+(-*(x W))"),
        (r"y = x \cdot -2", "*(x -2)"),
        (r"y = [Z_1, Z_2, \dots, Z_{n_h}] W^O", "*([Z 1..n_h] W^O)"),
        ("y = Concat(Z_1, ..., Z_n_h) W^O", "*(concat([Z 1..n_h]) W^O)"),
        (r"y = \text{Concat}([A, B])", "concat(A, B)"),
        (r"y = \softmax(\Out)", "softmax(Out)"),
        (r"y = \left\lceil D / 2 \right\rceil x", "*(ceil(/(D 2)) x)"),
        (r"\begin{math}"[:0] + r"y = $x$ $W$", "*(x W)"),
        (r"\( y = x \)", "x"),
        (r"\[ y = x . \]", "x"),
        ("`y = x W`", "*(x W)"),
        (r"y = \sqrt[3]{x}", "^(x 1/3)"),
        (r"y = \frac12 x", "*(/(1 2) x)"),
        (r"y = x / D W", "*(/(x D) W)"),
    ],
)
def test_a_computation_is_read(text: str, tree: str) -> None:
    assert formula(text) == tree


def test_letters_in_a_font_keep_their_places() -> None:
    text = r"y = \mathbf{XW} b"
    node = equation(text, ["X", "W", "b"]).formula
    assert isinstance(node, Multiplication)
    assert [one.span.word for one in node.factors] == ["X", "W", "b"]


def test_a_declared_name_wins_over_a_transpose() -> None:
    assert formula("y = X^T W", "X^T") == "*(X^T W)"


def test_a_whole_name_wins_over_its_letters() -> None:
    assert formula("y = xW", "xW") == "xW"


def test_a_word_with_two_readings_is_refused() -> None:
    with pytest.raises(FormulaError) as caught:
        formula("y = xWb", "xW")
    assert str(caught.value) == (
        "<text>:1: 'xWb' may be `x W b` or `xW b`\n    y = xWb\n        ^^^\nhint: put spaces between the names"
    )


@pytest.mark.parametrize(
    ("text", "sizes", "domain"),
    [
        (r"$x \in \mathbb{R}^{B \times L \times D}$", "B L D", "R"),
        (r"W^1 \in \mathbb{R}^{D \times 4D}", "D *(4 D)", "R"),
        (r"t \in \mathbb{Z}^{B \times L}", "B L", "Z"),
        (r"\ell \in \mathbb{R}", "", "R"),
        (r"M \in \{0, 1\}^{B \times E}", "B E", "B"),
        (r"X \in \mathbb{R}^{4096 \times 32}", "4096 32", "R"),
        ("X in R^{4096x32}", "4096 32", "R"),
        ("x in R^{B x L x D}", "B L D", "R"),
        ("x in R^{BxLxD}", "B L D", "R"),
        ("x in R^(B x L x D)", "B L D", "R"),
        ("x in R^{B×L×D}", "B L D", "R"),
        ("x ∈ ℝ^{B×L×D}", "B L D", "R"),
        ("x [B, L, D]", "B L D", "R"),
        ("x: [B, L, D]", "B L D", "R"),
        ("x (B, L, D)", "B L D", "R"),
        ("x : B x L x D", "B L D", "R"),
        ("x in [D]", "D", "R"),
        (r"b \in \mathbb R^D", "D", "R"),
        (r"b \in \mathbb{R}^{d_{\text{ff}}}", "d_ff", "R"),
        (r"b \in R^{d_ff}", "d_ff", "R"),
        (r"b \in R^{d_{ff}}", "d_ff", "R"),
        (r"x \in \mathbb{R}^{B \times L \times n_h H}", "B L *(n_h H)", "R"),
        (r"x \in \mathbb{R}^{B \times n(H+1)}", "B *(n +(H 1))", "R"),
        (r"x \in \mathbb{R}^{B \times L+1 \times \frac{D}{2}}", "B +(L 1) /(D 2)", "R"),
        (r"x \in \mathbb{R}^{B \times D/2}", "B /(D 2)", "R"),
        (r"x \in \mathbb{R}^{\lceil D/2 \rceil}", "ceil(/(D 2))", "R"),
        (r"x \in \mathbb{R}^{D^2}", "^(D 2)", "R"),
    ],
)
def test_a_shape_is_read(text: str, sizes: str, domain: str) -> None:
    [one] = declarations(text)
    assert (" ".join(map(show, one.sizes)), one.domain) == (sizes, domain)


def test_several_names_share_a_shape() -> None:
    for text in (r"Q_i, K_i \in \mathbb{R}^{L \times H}", r"$Q_i$ and $K_i$ in $R^{L x H}$", "Q_i, K_i [L, H]"):
        assert [(one.name.key, len(one.sizes)) for one in declarations(text)] == [("Q_i", 2), ("K_i", 2)]


@pytest.mark.parametrize(
    "text",
    [r"Q_i \in \mathbb{R}^{L \times H}, i = 1, \dots, n", "Q_i [L, H] for i=1..n", r"Q_1, \dots, Q_n \in R^{L x H}"],
)
def test_a_family_is_declared_by_its_index(text: str) -> None:
    [one] = declarations(text)
    assert (one.name.key, one.name.index) == ("Q", "i")


def test_a_range_from_zero_is_counted() -> None:
    [one] = declarations(r"Q_i [L], i = 0, \dots, n-1")
    assert show(one.ranges[0].count) == "n"


@pytest.mark.parametrize(
    ("text", "key", "latex"),
    [
        (r"N_{\text{layer}}", "N_layer", r"N_{\text{layer}}"),
        ("N_layer", "N_layer", r"N_{\text{layer}}"),
        (r"\mathbf{W}_{\text{up}}^Q", "W_up^Q", r"\mathbf{W}_{\text{up}}^Q"),
        ("α", "alpha", r"\alpha"),
        ("beta", "beta", r"\beta"),
        ("Out", "Out", r"\text{Out}"),
        ("A^{\\prime}", "A'", "A'"),
        (r"\tilde{x}", "x_tilde", r"\tilde{x}"),
        (r"\text{d_model}", "d_model", r"\text{d_model}"),
        ("d_{model}", "d_model", "d_{model}"),
        ("x₁", "x_1", "x_{1}"),
        (r"\mathcal{L}", "calL", r"\mathcal{L}"),
    ],
)
def test_a_name_has_one_key_however_it_is_written(text: str, key: str, latex: str) -> None:
    [one] = declarations(text + " [B]")
    assert (one.name.key, one.name.latex) == (key, latex)


KNOWN = frozenset({"N_layer", "D", "k", "N", "B", "L", "n_h", "N_l"})


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("24 N_layer D^2", "*(24 N_layer ^(D 2))"),
        ("24*N_layer*D^2", "*(24 N_layer ^(D 2))"),
        ("24N_layerD^2", "*(24 N_layer ^(D 2))"),
        (r"$24 N_{\text{layer}} D^2$", "*(24 N_layer ^(D 2))"),
        ("24 * N_layer * D**2", "*(24 N_layer ^(D 2))"),
        ("2(k-1)/k", "/(*(2 +(k -1)) k)"),
        (r"\frac{2(k-1)}{k} N", "*(/(*(2 +(k -1)) k) N)"),
        ("2(k-1)/k N", "*(/(*(2 +(k -1)) k) N)"),
        ("1/2 N", "*(/(1 2) N)"),
        ("N/2/k", "/(/(N 2) k)"),
        ("N/k*D", "*(/(N k) D)"),
        ("0.5", "1/2"),
        (".5 N", "*(1/2 N)"),
        ("1e9", "1000000000"),
        ("1.5e-3", "3/2000"),
        (r"2 \cdot 10^9", "*(2 ^(10 9))"),
        ("12{,}884{,}901{,}888", "12884901888"),
        (r"12\,288", "12288"),
        ("max(N, 2k)", "max(N, *(2 k))"),
        (r"\max\{N, k\}", "max(N, k)"),
        (r"\lceil N/k \rceil", "ceil(/(N k))"),
        ("ceil(N/k)", "ceil(/(N k))"),
        (r"\sqrt{2N}", "sqrt(*(2 N))"),
        ("sqrt(N)", "sqrt(N)"),
        (r"\log_2(k)", "log_2(k)"),
        ("log2(k)", "log_2(k)"),
        (r"\log k", "log(k)"),
        ("−3 N", "+(-*(3 N))"),
        ("2^k", "^(2 k)"),
        ("k(k-1)", "*(k +(k -1))"),
        ("D²", "^(D 2)"),
        ("N_lD", "*(N_l D)"),
        ("N^-1", "^(N -1)"),
        ("N^DN", "*(^(N D) N)"),
        (r"\frac1.5 N", "*(/(1 1/2) N)"),
        # LaTeX takes one token where there are no braces.
        (r"\frac1kN", "*(/(1 k) N)"),
        (r"\frac kNB", "*(/(k N) B)"),
        (r"\frac{1}kN", "*(/(1 k) N)"),
        (r"\frac12N", "*(/(1 2) N)"),
        (r"\sqrt kN", "*(sqrt(k) N)"),
        (r"\sqrt[3]kN", "*(^(k 1/3) N)"),
        ("√kN^2", "*(sqrt(k) ^(N 2))"),
        ("2^kN", "*(^(2 k) N)"),
        ("(k+1)^kN", "*(^(+(k 1) k) N)"),
        (r"\frac{B}{kN}", "/(B *(k N))"),
        # Digits in groups of three are one number.
        ("k/10 000", "/(k 10000)"),
        ("N/1 024", "/(N 1024)"),
        ("12 345^2", "^(12345 2)"),
        ("12 345.5 N", "*(24691/2 N)"),
        ("2(-3)", "*(2 -3)"),
        ("N⁻¹", "^(N -1)"),
        (r"\ln k", "log(k)"),
        ("2^⌈N/k⌉", "^(2 ceil(/(N k)))"),
        ("D^√2", "^(D sqrt(2))"),
        ("2∗N⁄kᵏ", "/(*(2 N) ^(k k))"),
        ("N^(4^(1/2))", "^(N ^(4 /(1 2)))"),
        (r"N \log k \cdot B", "*(N log(k) B)"),
    ],
)
def test_an_answer_is_read(text: str, tree: str) -> None:
    assert show(parse_answer(text, KNOWN)) == tree


def test_a_letter_that_is_known_is_no_power_of_ten() -> None:
    assert show(parse_answer("3E+1", {"E"})) == "+(*(3 E) 1)"
    assert show(parse_answer("3E+1", {"D"})) == "30"
    assert show(parse_answer("3E1", {"E", "E1"})) == "*(3 E1)"
    with pytest.raises(FormulaError) as caught:
        parse_answer("3E1", {"E"})
    assert (caught.value.message, caught.value.hint) == (
        "'3E1' can be read in two ways",
        "write 3*10^1, or 3*E*1",
    )


@pytest.mark.parametrize(
    ("text", "also", "tree"),
    [
        (r"\frac{s}{nw}", "n w", "/(s *(n w))"),
        (r"\frac{s}{nw}", "", "/(s nw)"),
        ("n_bw + 1", "n_b w", "+(*(n_b w) 1)"),
        ("n + w + nw", "", "+(n w *(n w))"),
        ("nw", "n w nw", "nw"),
        ("3E+1", "E", "+(*(3 E) 1)"),
        ("3E+1", "", "30"),
        ("E^2 + 3E+1", "", "+(^(E 2) *(3 E) 1)"),
        ("1e9 k", "", "*(1000000000 k)"),
        ("1.5e-3n", "", "*(3/2000 n)"),
        ("n_{b}w", "", "*(n_b w)"),
        (r"N_{\text{layer}}D^2", "", "*(N_layer ^(D 2))"),
        (r"\mathrm{lr}^T", "", "^(lr T)"),
        ("n^* + x₁ + α", "", "+(n^* x_1 alpha)"),
        ("n^k (m+1)", "", "*(^(n k) +(m 1))"),
    ],
)
def test_where_any_name_may_stand_the_names_that_are_told_are_known(text: str, also: str, tree: str) -> None:
    assert show(parse_answer(text, None, also.split())) == tree


@pytest.mark.parametrize("text", [r"\alpha^2 (b+1)", r"\alpha^2(b+1)", "α²(b+1)", r"\text{alpha}^2(b+1)"])
def test_a_power_of_a_name_before_parentheses_is_no_function(text: str) -> None:
    assert show(parse_answer(text, {"alpha", "b"})) == "*(^(alpha 2) +(b 1))"


def test_a_decimal_is_exact() -> None:
    node = parse_answer("0.1", frozenset())
    assert isinstance(node, Number)
    assert node.value == Fraction(1, 10)


def test_a_size_is_read_with_known_names_only() -> None:
    assert show(parse_size("4D", {"D"})) == "*(4 D)"
    assert show(parse_size("dmodel")) == "dmodel"
    with pytest.raises(FormulaError, match="unknown size 'F'"):
        parse_size("4F", {"D"})


LOG = r"what `\log` takes can be read in two ways"
ANSWER_ERRORS = {
    "": ("there is nothing to read", "", "write a formula such as 24 N_layer D^2"),
    "foo(N)": ("unknown function 'foo'", "foo", "did you mean 'floor'?"),
    "Nlayer": ("unknown name 'Nlayer'", "Nlayer", "did you mean 'N_layer'?"),
    "24 N GiB": ("unknown name 'GiB'", "GiB", "known: B, D, L, N, N_l, N_layer, k, n_h"),
    "(2 + k": ("this `(` is never closed", "(", "write a `)` where it ends"),
    "2 + k)": ("this `)` closes nothing", ")", "take it away, or open it before"),
    r"\frac{N}{k": ("this `{` is never closed", "{", "write a `}` where it ends"),
    "(N + [k)]": ("this `[` is never closed: `)` comes first", "[", "write a `]` where it ends"),
    "$N": ("this `$` is never closed", "$", "write a `$` where the math ends"),
    "2 +": ("something is missing after `+`", "+", "a name, a number or a group belongs there"),
    "2 + * k": ("something is missing between `+` and `*`", "*", "a name, a number or a group belongs there"),
    "* k": ("the formula cannot begin with `*`", "*", "write a formula such as 24 N_layer D^2"),
    "N_": ("something is missing after `_`", "_", "a script is a letter, a number, or a group in braces"),
    r"\sqrt": (
        r"something is missing after `\sqrt`",
        r"\sqrt",
        r"give its argument in braces: \frac{a}{b}, \sqrt{a}, \hat{x}",
    ),
    "N = 3": ("`=` cannot stand here", "=", "a formula without a relation is wanted"),
    "1,000": ("one formula is wanted here, not a list", "000", "write numbers without commas: 1000"),
    "N, k": ("one formula is wanted here, not a list", "k", "take the comma away"),
    "12 28": ("two numbers stand side by side", "28", "write `*` between them, or one number without a gap"),
    "k^1 000": ("a number begins with 0: `000`", "000", "digits stand in groups of three: 12 000"),
    r"\sqrt12": ("a root without braces takes one digit", "12", r"write \sqrt{12}, or braces around one digit"),
    r"\log 2N": (LOG, r"\log 2N", r"write \log(2 N) or \log(2) N or \log_2(N)"),
    r"\log2 N": (LOG, r"\log2 N", r"write \log(2 N) or \log(2) N or \log_2(N)"),
    r"\log_2 NB": (r"what `\log_2` takes can be read in two ways", r"\log_2 NB", r"write \log_2(N B) or \log_2(N) B"),
    r"\log N (k+1)": (
        LOG,
        r"\log N (k+1)",
        r"write \log(N (k+1)) or \log(N) (k+1)",
    ),
    "1/2N": (
        "what stands below this `/` can be read in two ways",
        "/2N",
        r"write a/(b c) or (a/b) c, or \frac{a}{b} c",
    ),
    "N / k D": (
        "what stands below this `/` can be read in two ways",
        "/ k D",
        r"write a/(b c) or (a/b) c, or \frac{a}{b} c",
    ),
    "N^-k": ("something is missing between `-` and `k`", "k", "write braces: x^{-k}"),
    "N^(floor(10^4/3))": ("exponents go up to 1,000", "^(floor(10^4/3))", "write a smaller exponent"),
    "N^1001": ("exponents go up to 1,000", "^1001", "write a smaller exponent"),
    "9^{9^9}": ("exponents go up to 1,000", "^{9^9}", "write a smaller exponent"),
    "((N^{100})^{100})": ("exponents go up to 1,000", "^{100}", "write a smaller exponent"),
    "9^9^9^9": ("two exponents stand above each other", "^9", "write braces: a^{b^c} or {a^b}^c"),
    "1e1001": ("the exponent of this number is over 1,000", "1e1001", "write a smaller number"),
    "1" * 41: ("this number has more than 40 digits", "1" * 41, "write it as a product or a power"),
    "x" * 41: ("this name has 41 characters; names have at most 40", "x" * 41, "put spaces or operators between names"),
    "N!": ("unexpected character `!`", "!", "factorials are not read"),
    "|N|": ("unexpected character `|`", "|",
            "separate arguments with commas; an absolute value is written abs(x), where it can be read"),
    "N^T": ("a number has no transpose", "^T", "take it away"),
    r"N \odot k": (r"`\odot` multiplies tensors, not numbers", r"\odot", "write `*`"),
    r"\sum_i N": (
        r"`\sum` is not read here",
        r"\sum",
        r"write the sum out, or as a function such as \text{Combine}(Y_e, M)",
    ),
    r"N {\prime}": (r"`\prime` has nothing to stand at", r"\prime", "write a name before it"),
    "2_k": ("a number cannot have `_k`", "_k", "only names have it"),
    "()": ("`()` is empty", "()", "write a formula between them"),
    "max()": ("'max' is called without an argument", "()", "write f(x)"),
    "(N, k)": (
        "this is a list, but one formula is wanted",
        "(N, k)",
        r"a list is an argument, as in \text{Concat}(A, B), or a family, as in [Q_1, \dots, Q_n]",
    ),
}


@pytest.mark.parametrize("text", ANSWER_ERRORS)
def test_a_wrong_answer_text_is_refused_with_a_caret_and_a_hint(text: str) -> None:
    message, word, hint = ANSWER_ERRORS[text]
    with pytest.raises(FormulaError) as caught:
        parse_answer(text, KNOWN)
    error = caught.value
    assert error.span is not None
    assert (error.message, error.span.word, error.hint) == (message, word, hint)


EQUATION_ERRORS = {
    "xW": ("this computation has no `=`", "xW", "write the result, `=`, and what it is computed from: $Q = xW^Q$"),
    "y =": ("something is missing after `=`", "=", "a formula or a shape belongs there"),
    "y = x = b": ("this computation has more than one relation", "=", "write one computation in a row"),
    "y = x, z = b": ("one computation is wanted in a row, not a list", "z = b", "write a row for each of them"),
    "y, z = x": (
        "a row computes one result, not several",
        "y, z",
        r"write a row for each of them, or a family [Q_1, \dots, Q_n]",
    ),
    "2 = x": (
        "a name is wanted left of `=`",
        "2",
        "write the result, `=`, and what it is computed from: $Q = xW^Q$",
    ),
    "y : x": (
        "`:` stands where the computation's `=` belongs",
        ":",
        "write a computation such as $Q = xW^Q$; shapes stand in the columns Input and Output",
    ),
    "y = Dropout(x, p=0.1)": (
        "`=` cannot stand in an argument",
        "=",
        "write the value only, or leave it out: Dropout(x)",
    ),
    "y = [Z_1, Z_3, ..., Z_n_h]": ("member 2 of this family should be Z_2", "Z_3", "members count up from 1"),
    "y = [Z_1, ..., Y_n_h]": ("the last member of this family should be Z with a subscript", "Y_n_h", "such as Z_n"),
    "y = [Z_1, Z_2, ...]": (
        "a family has its first members, dots, and its last member",
        "...",
        r"write [Q_1, Q_2, \dots, Q_n]",
    ),
    "y_i = Q_i, i = 2..n_h": ("the index i should begin at 1", "i = 2..n_h", r"write $i = 1, \dots, n$"),
    r"y = x \otimes b": (
        r"`\otimes` is not read here",
        r"\otimes",
        r"for an elementwise product write \odot, for a matrix product nothing",
    ),
    "y = f_1_2(x)": ("a function has one subscript", "_2", "take it away"),
    "y = sqrt(x, b)": ("sqrt takes one argument, not 2", "(x, b)", "write sqrt(x)"),
}


@pytest.mark.parametrize("text", EQUATION_ERRORS)
def test_a_wrong_computation_is_refused_with_a_caret_and_a_hint(text: str) -> None:
    message, word, hint = EQUATION_ERRORS[text]
    with pytest.raises(FormulaError) as caught:
        formula(text)
    error = caught.value
    assert error.span is not None
    assert (error.message, error.span.word, error.hint) == (message, word, hint)


SHAPE = r"write $x \in \mathbb{R}^{B \times L \times D}$, or x [B, L, D]"
DECLARATION_ERRORS = {
    "x": ("`x` has no shape", "x", SHAPE),
    "x [B], W": ("`W` has no shape", "W", SHAPE),
    r"x \in \mathbb{R}^{}": ("the shape is missing between these braces", "{}", SHAPE),
    r"x \in \mathbb{R}^{B \times}": (
        r"something is missing between `\times` and `}`",
        "}",
        "a name, a number or a group belongs there",
    ),
    r"x \in \mathbb{C}^{B}": (
        r"`\mathbb{C}` is not a domain",
        r"\mathbb{C}",
        r"write \mathbb{R} (real) or \mathbb{Z} (whole)",
    ),
    r"x \in B \times L": ("a domain with a shape is wanted here", r"B \times L", SHAPE),
    "y = x": ("a shape is wanted here, not an equation", "y = x", SHAPE),
    "2 [B]": ("a name is wanted before its shape", "2", SHAPE),
    r"Q_i [B], i = 1, \dots": ("the last value of i is missing", r"\dots", r"write $i = 1, \dots, n$"),
    r"x \in \mathbb{R}^{\prime}": (r"`\prime` is not a shape", r"\prime", SHAPE),
    "x [B L D]": (
        "these sizes may be three axes or one product",
        "B L D",
        "write [B, L, D] for axes, [B*L*D] for a product",
    ),
    "x [B, ..., D]": ("a shape lists its sizes", "...", SHAPE),
    r"x \in \mathbb{R}_D": ("`_D` cannot stand at a domain", "_D", SHAPE),
    r"x \in \mathbb{R}^- {B}": ("something is missing between `-` and `{B}`", "{B}", "write braces: x^{-k}"),
}


@pytest.mark.parametrize("text", DECLARATION_ERRORS)
def test_a_wrong_shape_is_refused_with_a_caret_and_a_hint(text: str) -> None:
    message, word, hint = DECLARATION_ERRORS[text]
    with pytest.raises(FormulaError) as caught:
        declarations(text)
    error = caught.value
    assert error.span is not None
    assert (error.message, error.span.word, error.hint) == (message, word, hint)


def test_an_error_shows_the_line_and_a_caret() -> None:
    with pytest.raises(FormulaError) as caught:
        equation("$y = foo(x$", {"x"})
    assert str(caught.value) == (
        "<text>:1: this `(` is never closed\n    $y = foo(x$\n            ^\nhint: write a `)` where it ends"
    )


DEEP = {
    "(": ("(", "N", ")"),
    "{": ("{", "N", "}"),
    r"\frac": (r"\frac{1}{", "N", "}"),
    r"\sqrt": (r"\sqrt{", "N", "}"),
    "^": ("2^{", "N", "}"),
    "max": ("max(", "N", ")"),
    r"\left": (r"\left(", "N", r"\right)"),
}


@pytest.mark.parametrize("kind", DEEP)
def test_fifty_nine_levels_are_read_and_more_are_refused(kind: str) -> None:
    opening, middle, closing = DEEP[kind]
    assert parse_answer(opening * 59 + middle + closing * 59, KNOWN)
    for depth in (61, 10_000):
        with pytest.raises(FormulaError) as caught:
            parse_answer(opening * depth + middle + closing * depth, KNOWN)
        assert "deep" in caught.value.message or "2,000 are read" in caught.value.message


@pytest.mark.few(7)
@pytest.mark.parametrize(
    "piece", [r"\hat", r"\bf", r"\frac1", r"\sqrt", "-", "N^", "N_", "'", "N'", "[", "$", "x_a", "\\"]
)
def test_a_piece_repeated_without_end_is_refused(piece: str) -> None:
    for count in (1900 // len(piece), 10_000):
        with suppress(SymcommError):
            parse_answer(piece * count + "N", KNOWN)
        with suppress(SymcommError):
            declarations("x [" + piece * count + "N]")


def test_more_than_five_hundred_parts_are_refused() -> None:
    assert parse_answer("+".join("N" * 400), KNOWN)
    with pytest.raises(FormulaError, match="this formula has more than 500 parts"):
        parse_answer("+".join("N" * 501), KNOWN)


# -- trees that are printed and read back ------------------------------------------------------------------------------

HERE = Span("tree", 1, "", 0, 0)
SPELLINGS: dict[tuple[str, str], list[str]] = {
    ("x", ""): ["x", r"\mathbf{x}", "{x}"],
    ("W^Q", ""): ["W^Q", "W^{Q}", r"W^{\text{Q}}"],
    ("A'", ""): ["A'", r"A^{\prime}", r"A^\prime", "A′"],
    ("Out", ""): [r"\text{Out}", "Out", r"\mathrm{Out}"],
    ("alpha", ""): [r"\alpha", "alpha", "α"],
    ("N_layer", ""): [r"N_{\text{layer}}", "N_{layer}", "N_layer"],
    ("W_up^(1)", ""): [r"W_{\text{up}}^{(1)}", "W_up^(1)", "W^{(1)}_{up}"],
    ("Q", "i"): ["Q_i", "Q_{i}", r"\mathbf{Q}_i"],
    ("W^1", "i"): ["W^1_i", "W_i^1", "W^{1}_{i}"],
}
PLAIN_NAMES = [name for name in SPELLINGS if "^" not in name[0]]


def names() -> st.SearchStrategy[Node]:
    return st.sampled_from(sorted(SPELLINGS)).map(lambda name: Identifier(HERE, name[0], "", name[1]))


def numbers() -> st.SearchStrategy[Node]:
    return st.builds(
        lambda top, bottom: Number(HERE, Fraction(top, bottom)), st.integers(0, 10**6), st.sampled_from([1, 2, 5])
    )


def grown(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(inner, min_size=2, max_size=4).map(tuple)

    def signed(terms: tuple[Node, ...]) -> st.SearchStrategy[Node]:
        signs = st.lists(st.sampled_from([1, -1]), min_size=len(terms), max_size=len(terms)).map(tuple)
        return signs.map(lambda chosen: Sum(HERE, terms, chosen))

    below = st.one_of(st.none(), st.integers(-3, 9).map(lambda value: Number(HERE, Fraction(value))), names_plain())
    functions = st.sampled_from(["softmax", "relu", "topk", "myown"])
    family = st.just(Family(HERE, Identifier(HERE, "Q", ""), Identifier(HERE, "N_layer", "")))
    arguments = st.one_of(st.lists(inner, min_size=1, max_size=3).map(tuple), family.map(lambda one: (one,)))
    return st.one_of(
        several.map(lambda parts: Multiplication(HERE, parts)),
        several.map(lambda parts: Hadamard(HERE, parts)),
        several.flatmap(signed),
        st.builds(lambda top, bottom: Quotient(HERE, top, bottom), inner, inner),
        st.builds(
            lambda base, exponent: Exponentiation(HERE, base, Number(HERE, Fraction(exponent))),
            inner,
            st.integers(0, 3),
        ),
        inner.map(lambda inside: Radical(HERE, inside)),
        inner.filter(lambda inside: not isinstance(inside, Number)).map(lambda inside: Transpose(HERE, inside)),
        st.builds(
            lambda function, args, script: FunctionCall(HERE, function, args, script), functions, arguments, below
        ),
    )


def names_plain() -> st.SearchStrategy[Node]:
    return st.sampled_from(["k", "D"]).map(lambda key: Identifier(HERE, key, ""))


TREES = st.recursive(st.one_of(names(), numbers()), grown, max_leaves=12)


class Printer:
    """Writes a tree in one of its many spellings; ``choose`` picks among them."""

    def __init__(self, choose: st.DataObject) -> None:
        self.data = choose

    def one(self, *ways: str) -> str:
        return self.data.draw(st.sampled_from(ways))

    def group(self, node: Node) -> str:
        text = self.text(node)
        if isinstance(node, (Identifier, Number)) and not (isinstance(node, Identifier) and "^" in node.key):
            return text
        return self.one(f"({text})", rf"\left({text}\right)", rf"\bigl( {text} \bigr)")

    def factor(self, node: Node) -> str:
        return self.text(node) if isinstance(node, (Identifier, Number)) else self.group(node)

    def text(self, node: Node) -> str:
        if isinstance(node, Identifier):
            return self.one(*SPELLINGS.get((node.key, node.index), [node.key]))
        if isinstance(node, Number):
            value = node.value
            return str(value) if value.denominator == 1 else f"{value.numerator / value.denominator:.1f}"
        if isinstance(node, Multiplication):
            parts = [self.factor(part) for part in node.factors]
            text = parts[0]
            for part in parts[1:]:
                joined = [r" \cdot ", "*", r" \times ", " · "]
                text += self.one(*joined, *([] if part[:1].isdigit() else [" ", r"\,"])) + part
            return text
        if isinstance(node, Hadamard):
            return self.one(r" \odot ", " ⊙ ").join(self.factor(part) for part in node.factors)
        if isinstance(node, Sum):
            text = "-" if node.signs[0] < 0 else ""
            for number, (term, sign) in enumerate(zip(node.terms, node.signs, strict=True)):
                text += ((" + " if sign > 0 else " - ") if number else "") + self.factor(term)
            return text
        if isinstance(node, Quotient):
            return self.one(
                rf"\frac{{{self.text(node.top)}}}{{{self.text(node.bottom)}}}",
                f"{self.group(node.top)}/{self.group(node.bottom)}",
            )
        if isinstance(node, Exponentiation):
            return f"{self.group(node.base)}^" + self.one(
                f"{{{self.text(node.exponent)}}}", f"({self.text(node.exponent)})"
            )
        if isinstance(node, Transpose):
            return self.group(node.inside) + self.one("^T", r"^\top", "^{T}", "ᵀ", r"^{\mathrm{T}}")
        if isinstance(node, Radical):
            return self.one(rf"\sqrt{{{self.text(node.inside)}}}", f"sqrt({self.text(node.inside)})")
        if isinstance(node, Family):
            return self.one(r"[Q_1, Q_2, \dots, Q_{N_{layer}}]", r"Q_1, ..., Q_{N_{\text{layer}}}")
        assert isinstance(node, FunctionCall)
        name = self.one(
            rf"\text{{{node.function}}}", rf"\operatorname{{{node.function.upper()}}}", rf"\{node.function}"
        )
        below = "" if node.subscript is None else f"_{{{self.text(node.subscript)}}}"
        return name + below + "(" + ", ".join(self.text(one) for one in node.arguments) + ")"


@given(TREES, st.data())
def test_a_tree_in_any_spelling_is_read_back(tree: Node, data: st.DataObject) -> None:
    text = Printer(data).text(tree)
    known = [f"{key}_{index}" if index and "^" not in key else key for key, index in SPELLINGS]
    written = f"y = {text}, i = 1, \\dots, N_{{layer}}"
    try:
        read = equation(written, known, {"N_layer"}, families={"Q", "W^1"})
    except FormulaError as error:
        if "more than" in error.message:
            return
        raise
    assert bare(read.formula) == bare(tree)


# -- anything else -----------------------------------------------------------------------------------------------------

VALID = [
    r"$[Q_1, Q_2, \dots, Q_{n_h}] = \text{Partition}_{-1}(Q)$",
    r"$\text{Score}_i = \text{softmax}(\frac{Q_i K_i^T}{\sqrt{D}}), i = 1, \dots, n_h$",
    r"$Q_i, K_i \in \mathbb{R}^{B \times L \times H}, i = 1, \dots, n_h$",
    r"24 N_{\text{layer}} D^2 + \lceil \frac{2(k-1)}{k} \rceil - 1.5e3 \hat{x}^{\prime}",
    r"x: [B, L, D], W (D, 4D), M \in \{0,1\}^{B \times E}",
]
PIECES = [
    *"()[]{}^_'$,=+-*/.\\ 019xQKiTD⊙×",
    r"\frac",
    r"\sqrt",
    r"\text{",
    r"\hat",
    r"\mathbb{R}",
    r"\in",
    r"\dots",
    r"\odot",
]


def refusal(way: Callable[[], object]) -> SymcommError | None:
    try:
        way()
    except SymcommError as error:
        return error
    return None


def read_every_way(text: str) -> None:
    for way in (
        lambda: equation(text, NAMES, SIZES, families=FAMILIES),
        lambda: declarations(text),
        lambda: declarations(text, SIZES),
        lambda: parse_size(text),
        lambda: parse_answer(text, KNOWN),
    ):
        error = refusal(way)
        if error is not None:
            assert "Token(" not in str(error)
            assert error.hint
            assert error.span is not None


@given(st.text(max_size=120))
def test_any_text_is_read_or_refused_in_our_words(text: str) -> None:
    read_every_way(text)


@given(st.lists(st.sampled_from(PIECES), max_size=60))
def test_any_pieces_of_latex_are_read_or_refused_in_our_words(pieces: list[str]) -> None:
    read_every_way("".join(pieces))


@given(st.sampled_from(VALID), st.data())
def test_a_damaged_cell_is_read_or_refused_in_our_words(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(place, min(len(text), place + 5)))
        text = text[:place] + data.draw(st.sampled_from(["", *PIECES])) + text[stop:]
    read_every_way(text)


def test_the_exponent_of_a_function_without_parentheses_is_kept() -> None:
    assert bare(parse_answer(r"\log^2 N", KNOWN)) == bare(parse_answer(r"\log^2(N)", KNOWN))
    assert bare(parse_answer(r"\log^2 N", KNOWN)) != bare(parse_answer(r"\log N", KNOWN))
