"""What a table means, and what a table that does not fit says."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from api import Graph, Op, Setting, SymcommError, backward, is_matrix_product, matrix_flops
from api import form_evaluate as evaluate
from api import model as sc
from hypothesis import given, settings
from hypothesis import strategies as st

HEAD = "| Computation | Input | Output |\n|---|---|---|\n"


def table(*rows: tuple[str, str, str]) -> str:
    return HEAD + "".join("| " + " | ".join(f"${c}$" if c else "-" for c in row) + " |\n" for row in rows)


def real(*sizes: str) -> str:
    return r"\in \mathbb{R}^{" + r" \times ".join(sizes) + "}"


def load(*rows: tuple[str, str, str], **options: object) -> sc.Model:
    return sc.load(table(*rows), file="layer.md", **options)  # type: ignore[arg-type]


def axes(model: sc.Model, tensor: str) -> tuple[str, ...]:
    return model.graph.tensors[tensor].axes


def test_two_axes_of_equal_size_stay_two_axes() -> None:
    model = load(("y = xW", f"x {real('B', 'D')}, W {real('D', 'D')}", f"y {real('B', 'D')}"))
    first, second = axes(model, "W")
    assert first != second
    assert axes(model, "x")[1] == first
    assert axes(model, "y")[1] == second


def test_a_residual_sum_makes_the_axes_of_its_terms_one() -> None:
    model = load(
        ("h = xW", f"x {real('B', 'D')}, W {real('D', 'D')}", f"h {real('B', 'D')}"),
        ("y = x + h", "", f"y {real('B', 'D')}"),
    )
    assert axes(model, "h") == axes(model, "x") == axes(model, "y")


def test_the_scores_of_self_attention_have_one_axis_twice_and_those_of_cross_attention_two() -> None:
    own = load((r"S = q q^T", f"q {real('B', 'L', 'H')}", f"S {real('B', 'L', 'L')}"))
    assert axes(own, "S")[1] == axes(own, "S")[2]
    other = load((r"S = q k^T", f"q {real('B', 'L', 'H')}, k {real('B', 'M', 'H')}", f"S {real('B', 'L', 'M')}"))
    assert axes(other, "S")[1] != axes(other, "S")[2]


def test_weights_inputs_and_constants_are_told_apart_without_names() -> None:
    model = load(
        (
            r"h = \text{Embed}(t, P)",
            rf"t \in \mathbb{{Z}}^{{B \times L}}, P {real('V', 'D')}",
            f"h {real('B', 'L', 'D')}",
        ),
        ("y = h Q", f"Q {real('D', 'D')}", f"y {real('B', 'L', 'D')}"),
        ("z = y + m", f"m {real('B', 'L', 'D')}", f"z {real('B', 'L', 'D')}"),
    )
    roles = {name: model.graph.tensors[name].role for name in ("t", "P", "Q", "m")}
    assert roles == {"t": "constant", "P": "weight", "Q": "weight", "m": "input"}


def test_a_name_that_differs_in_case_only_is_the_declared_one() -> None:
    rows = (r"[Q_1, \dots, Q_{n_h}] = \text{Partition}_{-1}(Q)", f"Q {real('B', 'L', 'D')}",
            f"Q_i {real('B', 'L', 'H')}, i = 1, \\dots, n_h")  # fmt: skip
    model = load(rows, values={"n_H": 32, "H": 128, "D": 4096})
    assert [name for name, _ in model.graph.relations.equations] == ["D"]
    assert "'n_h' is read as 'n_H', which the document declares" in model.graph.notes


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [("y = xW", f"x {real('B', 'D')}, W {real('F', 'D')}", f"y {real('B', 'D')}")],
            "layer.md:3, column Computation: shapes do not fit: x has D columns, but W has F rows",
        ),
        (
            [("y = xW", f"x {real('B', 'D')}, W {real('D', 'F')}", f"y {real('B', 'D')}")],
            "layer.md:3, column Output: y is declared as B × D, but its formula has F where that says D",
        ),
        (
            [
                ("y = xW", f"x {real('B', 'D')}, W {real('D', 'F')}", f"y {real('B', 'F')}"),
                ("z = yW", f"W {real('F', 'D')}", f"z {real('B', 'D')}"),
            ],
            "layer.md:4, column Input: W is F × D here, but D × F above",
        ),
        (
            [
                ("y = xW", f"x {real('B', 'D')}, W {real('D', 'D')}", f"y {real('B', 'D')}"),
                ("y = xV", f"V {real('D', 'D')}", f"y {real('B', 'D')}"),
            ],
            "layer.md:4, column Computation: y is computed twice",
        ),
        (
            [(r"y = \text{frobnicate}(x)", f"x {real('B', 'D')}", f"y {real('B', 'D')}")],
            "layer.md:3, column Computation: unknown function 'frobnicate'",
        ),
        (
            [(r"y = x + D", f"x {real('B', 'D')}", f"y {real('B', 'D')}")],
            "layer.md:3, column Computation: a size is added to a tensor",
        ),
        (
            [(r"y = \text{relu}(x, x)", f"x {real('B', 'D')}", f"y {real('B', 'D')}")],
            "layer.md:3, column Computation: relu takes 1 argument, not 2",
        ),
        (
            [("y = x", f"x {real('0', 'D')}", f"y {real('0', 'D')}")],
            "layer.md:3, column Input: a size of 0",
        ),
        (
            [(r"y = \text{Combine}(x, m)", f"x {real('B', 'D')}, m {real('B', 'D')}", f"y {real('B', 'D')}")],
            "m does not say which expert gets which token",
        ),
        (
            [
                (
                    r"[a_1, \dots, a_n] = \text{Partition}(x)",
                    f"x {real('B', '4D')}",
                    f"a_i {real('B', 'H')}, i = 1, \\dots, n",
                ),
            ],
            "shapes do not fit: 4D is not n × H",
        ),
    ],
)  # fmt: skip
def test_a_table_that_does_not_fit_says_where_and_why(rows: list[tuple[str, str, str]], message: str) -> None:
    with pytest.raises(SymcommError) as caught:
        load(*rows)
    assert message in str(caught.value)
    assert "^" in str(caught.value)


@pytest.mark.parametrize("name", ["E", "S", "I", "N", "lambda", "Q", "O", "beta", "gamma", "zeta"])
def test_any_name_may_be_a_size(name: str) -> None:
    written = {"lambda": r"\lambda", "beta": r"\beta", "gamma": r"\gamma", "zeta": r"\zeta"}.get(name, name)
    model = load(("y = xW", f"x {real('B', written)}, W {real(written, 'F')}", f"y {real('B', 'F')}"))
    assert model.parameters().at(**{name: 3, "F": 5}).value == 15


def loop_count(graph: Graph, op: Op, sizes: dict[str, int]) -> int:
    """The multiply-adds of an op, counted one by one in nested loops."""
    of = graph.index_axes(op)
    window = op.attribute("window", ())
    assert isinstance(window, tuple)
    count = 0
    for _ in itertools.product(*(range(sizes[of[i]]) for i in of if i not in window)):
        count += 1
    return count


IMAGE = real("B", "C", "P", "R")
TABLES = {
    "linear": [("y = xW", f"x {real('B', 'D')}, W {real('D', 'F')}", f"y {real('B', 'F')}")],
    "attention": [
        (r"S = \text{softmax}(\frac{q k^T}{\sqrt{H}})", f"q, k {real('B', 'L', 'H')}", f"S {real('B', 'L', 'L')}"),
        ("Z = S v", f"v {real('B', 'L', 'H')}", f"Z {real('B', 'L', 'H')}"),
    ],
    "convolution": [
        (r"Y = \text{Conv}(X, W)", f"X {IMAGE}, W {real('D', 'C', '3', '3')}", f"Y {real('B', 'D', 'P', 'R')}")
    ],
    "swiglu": [
        ("g = xG", f"x {real('B', 'D')}, G {real('D', 'F')}", f"g {real('B', 'F')}"),
        ("u = xU", f"U {real('D', 'F')}", f"u {real('B', 'F')}"),
        (r"h = \text{silu}(g) \odot u", "", f"h {real('B', 'F')}"),
        ("y = hW", f"W {real('F', 'D')}", f"y {real('B', 'D')}"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_the_operations_of_every_matrix_product_are_twice_its_loop_count(name: str) -> None:
    model = load(*TABLES[name])
    graph = backward(model.graph)
    sizes = {"B": 2, "D": 3, "F": 4, "L": 3, "H": 2, "C": 2, "P": 3, "R": 2}
    values = {k: Fraction(v) for k, v in sizes.items()}
    by_axis = {a.name: int(a.size.subs({s: sizes[s.name] for s in a.size.free_symbols})) for a in graph.axes.values()}
    setting = Setting(model.graph)
    products = [op for op in graph.ops if is_matrix_product(op)]
    forward = sum(op.phase == "forward" for op in products)
    assert len(products) == 3 * forward  # each has a gradient for both operands
    for op in products:
        assert evaluate(matrix_flops(setting, graph, op), values) == 2 * loop_count(graph, op, by_axis)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("ABCD"), min_size=2, max_size=5))
def test_a_chain_of_products_costs_three_times_its_forward_pass_in_training(letters: list[str]) -> None:
    rows = []
    for n, (a, b) in enumerate(itertools.pairwise(letters)):
        rows.append(
            (f"x_{n + 1} = x_{n} W_{n}", f"x_{n} {real('T', a)}, W_{n} {real(a, b)}", f"x_{n + 1} {real('T', b)}")
        )
    model = load(*rows)
    at = {"T": 7, "A": 2, "B": 3, "C": 5, "D": 11}
    used = {k: v for k, v in at.items() if k == "T" or k in letters}
    forward, training = model.flops("forward").at(**used).value, model.flops("training").at(**used).value
    by_hand = sum(2 * 7 * at[a] * at[b] for a, b in itertools.pairwise(letters))
    assert (forward, training) == (by_hand, 3 * by_hand)


def test_causal_attention_counts_the_unmasked_pairs() -> None:
    model = load(*TABLES["attention"])
    half = model.flops(accounting="causal_half").at(B=2, L=5, H=3).value
    pairs = sum(1 for q in range(5) for k in range(5) if k <= q)
    assert half == 2 * (2 * 2 * 3 * pairs)  # two products, each two operations for batch x head dimension x pairs


def test_the_input_gradient_of_the_first_layer_can_be_left_out() -> None:
    model = load(*TABLES["linear"])
    assert model.flops("backward").at(B=2, D=3, F=4).value == 2 * 48
    assert model.flops("backward", accounting="not_needed").at(B=2, D=3, F=4).value == 48


# -- the order of axes ------------------------------------------------------------------------------------

SEQUENCE_FIRST = (
    ("Q = x W^Q", "x [L, B, D], W^Q [D, D]", "Q [L, B, D]"),
    ("K = x W^K", "W^K [D, D]", "K [L, B, D]"),
)


def test_scores_with_the_sequence_first_say_what_to_write() -> None:
    with pytest.raises(SymcommError) as caught:
        load(*SEQUENCE_FIRST, ("S = Q K^T", "", "S [B, L, L]"))
    assert str(caught.value).endswith(
        "hint: axis 1 should be L; products join the last two axes: write a row of its own, Permute(Q), before"
    )
    with pytest.raises(SymcommError) as caught:
        load(("Z = P V", "P [B, L, L], V [L, B, D]", "Z [B, L, D]"), inputs=["P", "V"])
    assert "P has L columns, but V has B rows" in str(caught.value)
    assert str(caught.value).endswith("bring L of V there in a row of its own, Permute(V)")


def test_permute_gives_the_axes_of_the_result() -> None:
    model = load(
        *SEQUENCE_FIRST,
        ("q = Permute(Q)", "", "q [B, L, D]"),
        ("k = Permute(K)", "", "k [B, L, D]"),
        ("S = q k^T", "", "S [B, L, L]"),
    )
    assert axes(model, "q") == (axes(model, "Q")[1], axes(model, "Q")[0], axes(model, "Q")[2])
    assert str(model.flops("forward", op="S").expr) == "2*B*D*L**2"


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (("y = Permute(x)", "x [L, L, D], W [D, D]", "y [D, L, L]"), "x has 2 axes of size L"),
        (("y = Permute(x)", "x [L, B, D]", "y [B, L, F]"), "x has no axes of size F"),
        (("y = Permute(x)", "x [L, B, D]", "y [B, D]"), "y does not have the axes of x"),
    ],
)
def test_permute_refuses_axes_that_sizes_do_not_tell_apart(row: tuple[str, str, str], text: str) -> None:
    with pytest.raises(SymcommError, match=text):
        load(row)
