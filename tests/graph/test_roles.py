"""Data or weight follows from the contraction; a doubt is settled by a name or asked for, never guessed."""

from __future__ import annotations

from typing import Any

import pytest
from api import ShapeError, parse_problem, solve
from sympy import Expr

import symcomm as sc

HEAD = "Computation\tInput\tOutput\n"
Row = tuple[str, str, str]


def load(*rows: Row, **options: object) -> sc.Model:
    return sc.load(HEAD + "".join("\t".join(cell or "-" for cell in row) + "\n" for row in rows), **options)


def weights(*rows: Row, **options: object) -> str:
    model = load(*rows, **options)
    return " ".join(sorted(t.name for t in model.graph.weights))


D, F, B, L, K, R, V, H = 5, 7, 3, 4, 6, 2, 11, 8
SIZES = {"D": D, "F": F, "B": B, "L": L, "k": K, "r": R, "d": D, "V": V, "H": H}


def parameters(*rows: Row) -> int:
    model = load(*rows)
    names = {s.name for s in model.parameters().expr.free_symbols}
    return int(model.parameters().at(**{n: SIZES[n] for n in names}).value)


@pytest.mark.parametrize(
    ("row", "count"),
    [
        (("h = W x + b", "x [D], W [F, D], b [F]", "h [F]"), D * F + F),
        (("h = relu(x W^1)", "x [D], W^1 [D, F]", "h [F]"), D * F),
        (("h = x W + b", "x [1, D], W [D, F], b [1, F]", "h [1, F]"), D * F + F),
        (("h = W x + c", "x [D], W [F, D], c [F]", "h [F]"), D * F + F),
        (("h = x W + c", "x [1, D], W [D, F], c [1, F]", "h [1, F]"), D * F + F),
        (("h = x (W_0 + B A)", "x [L, d], W_0 [d, k], B [d, r], A [r, k]", "h [L, k]"), D * K + D * R + R * K),
        (("h = x (W_0 + B A)", "x [d], W_0 [d, k], B [d, r], A [r, k]", "h [k]"), D * K + D * R + R * K),
        ((r"y = \gamma \odot x + \beta", r"\gamma [D], x [B, D], \beta [D]", "y [B, D]"), 2 * D),
        ((r"y = \gamma \odot x + \beta", r"\gamma [D], x [D], \beta [D]", "y [D]"), 2 * D),
        ((r"y = x \odot \gamma", r"x [B, L, D], \gamma [D]", "y [B, L, D]"), D),
        (("y = P + x", "P [L, D], x [B, L, D]", "y [B, L, D]"), L * D),
        (("y = x + P", "x [B, L, D], P [L, D]", "y [B, L, D]"), L * D),
        (("y = x + r", "x [B, L, D], r [B, L, D]", "y [B, L, D]"), 0),
        (("z = E x^T", "E [V, D], x [L, D]", "z [V, L]"), V * D),
        (("z = E x", "E [V, D], x [D]", "z [V]"), V * D),
        (("s = tanh(W x + U h + b)", "W [H, D], x [D], U [H, H], h [H], b [H]", "s [H]"), H * (D + H + 1)),
        (("s = tanh(W x + U a)", "W [H, D], x [D, B], U [H, H], a [H, B]", "s [H, B]"), H * (D + H)),
        (("s = tanh(h U + x W)", "h [B, H], U [H, H], x [B, D], W [D, H]", "s [B, H]"), H * (D + H)),
    ],
)
def test_parameters_are_counted_by_hand(row: Row, count: int) -> None:
    assert parameters(row) == count


@pytest.mark.parametrize("batch", ["x [D]", "x [1, D]", "x [B, D]"])
def test_a_batch_of_one_costs_the_same_however_it_is_written(batch: str) -> None:
    """Forward 2DF, the weight's gradient 2DF, the input's gradient 2DF."""
    model = load(("h = x W", f"{batch}, W [D, F]", "h" + batch[1:].replace("D", "F")))
    known = {"B": 1} if "B" in batch else {}
    assert model.flops("training").at(D=D, F=F, **known).value == 6 * D * F
    assert model.flops("training", accounting={"flops": "mac"}).at(D=D, F=F, **known).value == 3 * D * F


@pytest.mark.parametrize(
    ("quantity", "options"),
    [
        ("flops", {"scope": "training"}),
        ("flops", {"scope": "training", "accounting": "exact_adds"}),
        ("traffic", {}),
        ("activation_memory", {}),
        ("state_memory", {}),
        ("time", {}),
    ],
)
def test_an_example_without_a_batch_costs_what_a_batch_of_one_does(quantity: str, options: dict[str, Any]) -> None:
    def cost(x: str, h: str, formula: str = "h = x W + b", weight: str = "W [D, F]") -> Expr:
        made = load((formula, f"{x}, {weight}, b [F]", h)).derive(quantity, **options).expr
        return made.subs({s: 1 for s in made.free_symbols if s.name == "B"}).expand()

    plain = cost("x [D]", "h [F]")
    assert plain == cost("x [1, D]", "h [1, F]")
    assert plain == cost("x [B, D]", "h [B, F]")
    assert plain == cost("x [D]", "h [F]", "h = W x + b", "W [F, D]")


@pytest.mark.parametrize(
    ("x", "h", "bias"),
    [("x [D]", "h [F]", "b [F]"), ("x [1, D]", "h [1, F]", "b [F]"), ("x [1, D]", "h [1, F]", "b [1, F]")],
)
def test_the_gradient_of_a_bias_is_no_sum_where_there_is_one_example(x: str, h: str, bias: str) -> None:
    """Forward 2DF and F additions, backward 4DF: the gradient of the bias is that of h."""
    model = load(("h = x W + b", f"{x}, W [D, F], {bias}", h))
    for scope, worth in (("forward", 2 * D * F + F), ("backward", 4 * D * F)):
        assert model.flops(scope, accounting="all_ops").at(D=D, F=F).value == worth


def test_a_sum_of_all_examples_has_one_addition_less_where_additions_are_exact() -> None:
    model = load(("h = x W + b", "x [B, D], W [D, F], b [F]", "h [B, F]"))
    exact = {"flops": "exact_adds", "operations": "all_ops"}
    # dW: F D sums of B products; dx: B D sums of F products; db: F sums of B numbers.
    worth = F * D * (2 * B - 1) + B * D * (2 * F - 1) + F * (B - 1)
    assert model.flops("backward", accounting=exact).at(B=B, D=D, F=F).value == worth


def test_a_solution_tells_the_reading_once_below_the_first_answer() -> None:
    table = "| Computation | Input | Output |\n|---|---|---|\n| $h = Wx + b$ | x [D], W [F, D], b [F] | h [F] |\n"
    asks = "\n".join(f"\n```symcomm\nask: {quantity}\n```\n" for quantity in ("parameters", "flops"))
    problem = parse_problem(f"---\ntitle: T\n---\n{table}\n```symcomm\nmodel: m\n```\n{asks}", "t.md")
    first, second = solve(problem).answers()
    assert first.reading == "Read as data: `x`; weights: `W`, `b`."
    assert second.derivation.notes == ()


def test_queries_keys_and_values_of_a_batch_are_data() -> None:
    rows = [("P = softmax(Q K^T)", "Q, K [B, L, H]", "P [B, L, L]"), ("Z = P V", "V [B, L, H]", "Z [B, L, H]")]
    assert weights(*rows) == ""


def test_a_memory_is_data_without_being_said_to_be() -> None:
    assert (
        weights(
            ("Q = x W^Q", "x [B, L, D], W^Q [D, H]", "Q [B, L, H]"),
            ("K = m W^K", "m [B, S, D], W^K [D, H]", "K [B, S, H]"),
            ("P = softmax(Q K^T)", "", "P [B, L, S]"),
            ("Z = P K", "", "Z [B, L, H]"),
        )
        == "W^K W^Q"
    )


def test_matrices_of_experts_are_weights_though_they_keep_the_index_of_the_experts() -> None:
    row = (r"Y_e = X_e C_e, e = 1, \dots, E", "X_e [B, C, D], C_e [D, F]", "Y_e [B, C, F]")
    assert weights(row, inputs=["X_e"]) == "C_e"
    assert weights(row, inputs=["X"]) == "C_e"


def test_token_ids_are_followed_and_labels_are_no_beginning() -> None:
    ids = r"t \in \mathbb{Z}^{B \times L}"
    assert (
        weights(("a = Embed(t, T)", f"{ids}, T [V, D]", "a [B, L, D]"), ("o = a U", "U [D, V]", "o [B, L, V]")) == "T U"
    )
    head = ("o = a U", "a [B, L, D], U [D, V]", "o [B, L, V]")
    loss = (r"\ell = CrossEntropy(o, z)", r"z \in \mathbb{Z}^{B \times L}", r"\ell [B, L]")
    assert weights(head, loss) == "U"
    soft = (r"\ell = CrossEntropy(o, z)", "z [B, L, V]", r"\ell [B, L]")
    assert weights(head, soft) == "U"


def test_a_name_speaks_against_being_the_data_but_not_against_a_contraction() -> None:
    assert weights(("y = W a", "W [F, D], a [D]", "y [F]")) == "W"
    assert weights(("y = q A", "q [T, D], A [D, D]", "y [T, D]")) == "A"
    assert weights(("y = x h", "x [T, D], h [D, F]", "y [T, F]")) == "h"


MIRRORED = ("C = A B", "A [p, q], B [q, n]", "C [p, n]")


def test_mirrored_readings_are_asked_for() -> None:
    with pytest.raises(ShapeError) as caught:
        load(MIRRORED)
    assert str(caught.value) == (
        "<text>:2, column Input: layer can be read in two ways: A is the data and B a weight, or the other way round\n"
        "    C = A B A [p, q], B [q, n] C [p, n]\n"
        "            ^^^^^^^^\n"
        "hint: say which: inputs: [A] or inputs: [B]"
    )
    assert weights(MIRRORED, inputs=["B"]) == "A"
    assert weights(MIRRORED, weights=["B"]) == "B"
    assert weights(MIRRORED, inputs=["A", "B"]) == ""


def test_sums_of_equal_shapes_are_asked_for_where_no_batch_tells() -> None:
    row = ("y = x + p", "x [L, D], p [L, D]", "y [L, D]")
    with pytest.raises(ShapeError) as caught:
        load(row)
    assert "p can be read in two ways, as data or as a weight: it has the shape of the data that it meets in y" in str(
        caught.value
    )
    assert str(caught.value).endswith("hint: say which: inputs: [p] or weights: [p]")
    assert weights(row, weights=["p"]) == "p"
    assert weights(row, inputs=["p"]) == ""


def test_a_state_without_a_batch_or_a_name_is_asked_for() -> None:
    row = ("s = tanh(W x + U a)", "W [H, D], x [D], U [H, H], a [H]", "s [H]")
    with pytest.raises(ShapeError, match="in s the data meet a product that has none of their axes"):
        load(row)
    with pytest.raises(ShapeError, match=r"inputs: \[a\] or weights: \[a\]"):
        load(row, weights=["U"])
    assert weights(row, inputs=["a"]) == "U W"


def test_a_memory_without_a_batch_is_asked_for() -> None:
    rows = [
        ("Q = x W^Q", "x [T, D], W^Q [D, H]", "Q [T, H]"),
        ("K = m W^K", "m [S, D], W^K [D, H]", "K [S, H]"),
        ("P = softmax(Q K^T)", "", "P [T, S]"),
    ]
    with pytest.raises(ShapeError, match="m can be read in two ways"):
        load(*rows)
    assert weights(*rows, inputs=["m"]) == "W^K W^Q"


def test_values_of_a_sequence_without_a_batch_are_not_taken_for_a_mixing_matrix() -> None:
    rows = [("P = softmax(Q K^T)", "Q [L, H], K [L, H]", "P [L, L]"), ("Z = P U", "U [L, H]", "Z [L, H]")]
    with pytest.raises(ShapeError, match=r"U can be read in two ways.*a product sums the sequence"):
        load(*rows, inputs=["Q"])
    assert weights(*rows, inputs=["Q", "U"]) == ""


def test_the_reading_is_told() -> None:
    model = load(("h = W x + b", "x [D], W [F, D], b [F]", "h [F]"))
    assert model.graph.reading() == "data: x; weights: W, b"


def test_a_name_does_not_speak_against_what_follows_from_what_is_said() -> None:
    rows = """Computation\tInput\tOutput
h = relu(a W)\ta [B, D], W [D, F]\th [B, F]
y = h U + b X\tU [F, H], b [B, K], X [K, H]\ty [B, H]
"""
    model = sc.load(rows, inputs=["a", "b"])
    assert model.graph.reading() == "data: a, b; weights: W, U, X"
    kept = model.activation_memory().at(B=2, D=3, F=5, K=7).value
    assert kept == 2 * 2 * (3 + 5 + 7)  # a, h and b, and no weight
