"""Layer rows as courses spell them, with parameters and operations that were worked out by hand."""

from __future__ import annotations

import re

import pytest
from api import FormulaError, ShapeError

import symcomm as sc

SIZES = {"B": 2, "L": 3, "D": 8, "F": 5, "H": 4, "C": 3, "r": 2, "k": 7, "d": 6}


def costs(row: str) -> tuple[int, int]:
    """The parameters of a row, and the operations of its forward pass."""
    model = sc.load(f"Computation\tInput\tOutput\n{row}\n")
    counts = (model.parameters(), model.flops())
    at = [{s.name: SIZES[s.name] for s in count.expr.free_symbols} for count in counts]
    parameters, flops = (count.at(**sizes).value for count, sizes in zip(counts, at, strict=True))
    return int(parameters), int(flops)


@pytest.mark.parametrize(
    ("row", "parameters", "flops"),
    [
        # In columns the data stand last: B (A x) takes two small products, (B A) x would take D F r for the matrix.
        ("h = W_0 x + B A x\tx [d], W_0 [k, d], B [k, r], A [r, d]\th [k]", 42 + 14 + 12, 2 * (42 + 14 + 12)),
        ("y = W_3 W_2 W_1 x\tx [D], W_1 [F, D], W_2 [H, F], W_3 [C, H]\ty [C]", 72, 2 * (40 + 20 + 12)),
        ("Y = W_2 W_1 X\tX [D, B], W_1 [F, D], W_2 [H, F]\tY [H, B]", 60, 2 * 2 * (40 + 20)),
        ("y = x W_1 W_2 W_3\tx [B, D], W_1 [D, F], W_2 [F, H], W_3 [H, C]\ty [B, C]", 72, 2 * 2 * (40 + 20 + 12)),
        ("h = (W_0 + B A) x\tx [d], W_0 [k, d], B [k, r], A [r, d]\th [k]", 68, 2 * (7 * 2 * 6 + 42)),
        ("y = W_2 relu(W_1 x) + W_3 W_0 x\tx [D], W_1 [F, D], W_2 [D, F], W_0 [r, D], W_3 [D, r]\ty [D]", 112, 2 * 112),
        # A transposed vector is a row: a product of two vectors is one number.
        (r"s = w^T x + b" + "\tx [D], w [D], b \\in \\mathbb{R}\ts \\in \\mathbb{R}", 9, 16),
        (r"p = \sigma(w^\top x + b)" + "\tx [D], w [D], b \\in \\mathbb{R}\tp \\in \\mathbb{R}", 9, 16),
        (r"s = x^T A x" + "\tx [D], A [D, D]\ts \\in \\mathbb{R}", 64, 2 * 64 + 16),
        ("s = x w\tx [B, D], w [D]\ts [B]", 8, 2 * 2 * 8),
        # The larger one of 0 and a tensor is relu.
        (r"h = \max(0, x W_1 + b_1) W_2" + "\tx [B, D], W_1 [D, F], b_1 [F], W_2 [F, D]\th [B, D]", 85, 2 * 2 * 80),
        ("h = max(x W, 0)\tx [B, D], W [D, F]\th [B, F]", 40, 2 * 2 * 40),
        (r"y = LN(x W)" + "\tx [B, D], W [D, F]\ty [B, F]", 40, 2 * 2 * 40),
        # A gain of what comes from outside, as of what is computed.
        (r"y = x + \alpha \odot f" + "\tx [B, L, D], \\alpha [D], f [B, L, D]\ty [B, L, D]", 8, 0),
        (r"y = f \odot \alpha + x" + "\tx [B, L, D], \\alpha [D], f [B, L, D]\ty [B, L, D]", 8, 0),
        (r"y = x W" + "\tx [B, D], W [D, \\frac D2]\ty [B, \\frac D2]", 32, 2 * 2 * 32),
        # A number and a tensor: the number is at every element.
        (r"y = (1 - z) \odot h + z \odot u" + "\tz [B, D], h [B, D], u [B, D]\ty [B, D]", 0, 0),
        (r"y = (1 - \sigma(x W)) \odot x" + "\tx [B, D], W [D, D]\ty [B, D]", 64, 2 * 2 * 64),
        (r"y = (1 + \gamma) \odot x" + "\tx [B, D], \\gamma [D]\ty [B, D]", 8, 0),
        # A number that is learned.
        (r"y = \lambda x" + "\tx [B, D], \\lambda [1]\ty [B, D]", 1, 0),
        (r"y = x + \lambda x W" + "\tx [B, D], \\lambda \\in \\mathbb{R}, W [D, D]\ty [B, D]", 65, 2 * 2 * 64),
        (r"y = \lambda W x" + "\tx [D], \\lambda [1], W [F, D]\ty [F]", 41, 2 * 40),
        # Nothing is divided by a tensor, so these names are numbers.
        (r"y = \frac{\alpha}{r} x W" + "\tx [B, D], W [D, F]\ty [B, F]", 40, 2 * 2 * 40),
        (r"y = x W + \frac{\alpha}{\sqrt{r}} x A C" + "\tx [B, D], W [D, F], A [D, r], C [r, F]\ty [B, F]", 66, 4 * 66),
        (r"y = \alpha / r (x W)" + "\tx [B, D], W [D, F]\ty [B, F]", 40, 2 * 2 * 40),
        (r"y = softmax(\frac{x W}{\tau})" + "\tx [B, D], W [D, F]\ty [B, F]", 40, 2 * 2 * 40),
        # Rows of a table, by token ids.
        (r"x = E[t]" + "\tE [D, F], t \\in \\mathbb{Z}^{B \\times L}\tx [B, L, F]", 40, 0),
        (r"x = \sqrt{F} E[t] + P" + "\tE [D, F], P [L, F], t \\in \\mathbb{Z}^{B \\times L}\tx [B, L, F]", 55, 0),
        # Features side by side: D + H of them.
        ("h = [x, u] W\tx [B, D], u [B, H], W [D + H, F]\th [B, F]", 60, 2 * 2 * 60),
        ("h = [x; u] W\tx [B, D], u [B, H], W [D + H, F]\th [B, F]", 60, 2 * 2 * 60),
        (r"z = \sigma(W [h, x] + b)" + "\tx [D], h [H], W [H, D + H], b [H]\tz [H]", 52, 2 * 48),
        (r"h = Concat(x, u, x) W" + "\tx [B, D], u [B, H], W [2D + H, F]\th [B, F]", 100, 2 * 2 * 100),
    ],
)  # fmt: skip
def test_a_row_costs_what_is_worked_out_by_hand(row: str, parameters: int, flops: int) -> None:
    assert costs(row) == (parameters, flops)


@pytest.mark.parametrize("data", ["x [D]", "x [1, D]", "x [B, D]"])
def test_a_product_of_two_vectors_is_trained_as_a_batch_of_one_is(data: str) -> None:
    row = ("s = w^T x" if data == "x [D]" else "s = x w") + f"\t{data}, w [D]\t"
    result = {"x [D]": "s \\in \\mathbb{R}", "x [1, D]": "s [1]", "x [B, D]": "s [B]"}[data]
    trained = sc.load(f"Computation\tInput\tOutput\n{row}{result}\n").flops("training")
    assert trained.at(D=8, **({"B": 1} if "B" in data else {})).value == 6 * 8


def test_the_larger_of_two_tensors_is_refused() -> None:
    with pytest.raises(FormulaError, match="the larger one of two tensors") as larger:
        costs("y = max(x, u)\tx [B, D], u [B, D]\ty [B, D]")
    assert larger.value.hint == r"read is \max(0, x), which is relu(x)"
    with pytest.raises(FormulaError, match="the smaller one of two tensors") as smaller:
        costs("y = min(x, u)\tx [B, D], u [B, D]\ty [B, D]")
    assert smaller.value.hint == r"read is \min(x, 7), with a number"
    with pytest.raises(FormulaError, match="clamp says how far from 0 its result is at most") as nothing:
        costs("y = clamp(x)\tx [B, D]\ty [B, D]")
    assert nothing.value.hint == "clamp_{7}(x)"
    with pytest.raises(FormulaError, match="topsoftmax says how many of a row are chosen") as none:
        costs("y = topsoftmax(x)\tx [B, D]\ty [B, D]")
    assert none.value.hint == "topsoftmax_{k}(g)"
    with pytest.raises(ShapeError, match=r"shapes do not fit: x and c \(L against 2\)"):
        costs("y = x + c\tx [B, L, D], c [2, D]\ty [B, L, D]")


@pytest.mark.parametrize(
    ("row", "same"),
    [
        ("Y = X W + b\tX [B, D], W [D, F], b [1, F]\tY [B, F]", "b [F]"),
        ("y = x + c\tx [B, L, D], c [1, 1, D]\ty [B, L, D]", "c [D]"),
        ("y = c + x\tx [B, L, D], c [1, L, D]\ty [B, L, D]", "c [L, D]"),
        (r"y = x \odot g" + "\tx [B, L, D], g [1, 1, D]\ty [B, L, D]", "g [D]"),
    ],
)
def test_an_operand_is_the_same_along_an_axis_of_size_one(row: str, same: str) -> None:
    """It costs what it costs without the axis."""
    name = same.split(" [")[0]
    there = re.search(rf"{name} \[[^\]]*\]", row)
    assert there is not None
    models = [sc.load(f"Computation\tInput\tOutput\n{one}\n") for one in (row, row.replace(there[0], same))]
    for model in models:
        assert [w.name for w in model.graph.weights][-1] == name
    asked: tuple[tuple[str, dict[str, str]], ...] = (
        ("parameters", {}), ("flops", {"scope": "training", "accounting": "all_ops"}), ("activation_memory", {}),
        ("communication", {"strategy": "data(2)"}), ("communication", {"strategy": "fsdp(2)"}),
    )  # fmt: skip
    for quantity, options in asked:
        one, other = (model.derive(quantity, **options).expr for model in models)
        assert one.equals(other), quantity
    peaks = [m.at(**{k: v for k, v in SIZES.items() if k in m.graph.axes}).peak_memory().at().value for m in models]
    assert peaks[0] == peaks[1]


def test_a_bias_of_columns_has_an_axis_of_size_one() -> None:
    assert costs("Y = W X + b\tX [D, B], W [F, D], b [F, 1]\tY [F, B]") == (45, 160)


def test_a_gated_unit_costs_what_is_counted_by_hand() -> None:
    """Of h' = (1 - z) h + z n with z from [x, h] W: the products, and one operation for each sign."""
    rows = [r"z = \sigma([x, h] W)" + "\tx [B, D], h [B, H], W [D + H, H]\tz [B, H]",
            r"h' = (1 - z) \odot h + z \odot n" + "\tn [B, H]\th' [B, H]"]  # fmt: skip
    model = sc.load("Computation\tInput\tOutput\n" + "\n".join(rows) + "\n")
    at = {name: SIZES[name] for name in "BDH"}
    assert model.parameters().at(D=8, H=4).value == 48
    products = 2 * 2 * 12 * 4
    assert model.flops("training").at(**at).value == 3 * products
    # sigma takes 3 an element, 1 - z one, two products one each, their sum one.
    assert model.flops(accounting="all_ops").at(**at).value == products + 7 * 2 * 4
    # Kept are [x, h], z, 1 - z, h and n, with 2 bytes a number.
    assert model.activation_memory().at(**at).value == 2 * (2 * 12 + 4 * 2 * 4)
    # Over two ranks that share the batch, the gradient of W is summed: 2 bytes a number.
    assert model.communication("data(2)").at(D=8, H=4).value == 2 * 48


def test_a_learned_number_may_be_named_in_the_weights_alone() -> None:
    rows = "Computation\tInput\tOutput\n" + r"y = x + \lambda f" + "\tx [B, D], f [B, D]\ty [B, D]\n"
    assert sc.load(rows, weights=["lambda"]).parameters().at().value == 1
    with pytest.raises(FormulaError, match="unknown name 'lambda'"):
        sc.load(rows)


def test_a_name_that_is_read_as_a_number_is_told() -> None:
    rows = "Computation\tInput\tOutput\n" + r"y = \frac{\alpha}{r} x W" + "\tx [B, D], W [D, F]\ty [B, F]\n"
    notes = sc.load(rows).graph.notes
    assert [*notes] == [f"{name} is read as a number, for it has no shape" for name in ("alpha", "r")]


@pytest.mark.parametrize(
    ("row", "message", "hint"),
    [
        (r"y = \frac{s}{r} V" + "\tS [B, D], V [D, F]\ty [B, F]", "unknown name 's'", ""),
        (r"y = \frac{x}{d} W" + "\tx [B, D], W [D, F]\ty [B, F]", "unknown name 'd'", ""),
        (r"y = \alpha x" + "\tx [B, D]\ty [B, D]", "unknown name 'alpha'", ""),
        ("y = x W + b\tx [b, D], W [D, F]\ty [b, F]", "a size is added to a tensor",
         "add tensors and plain numbers; a tensor stands with its shape in the Input column"),
        ("x = E[t]\tE [V, D], t [B, L]\tx [B, L, D]", r"E\[t\] can be read in two ways: as rows of E, and as a product",
         r"token ids are declared as t \in \mathbb{Z}^{B \times L}; a product is E t"),
        ("h = [x; u] W\tx [B, D], u [B, D], W [2D, F]\th [B, F]",
         "x, u can be joined in two ways: along axis 0 and along axis 1",
         "say which: Concat_{0}(x, u) or Concat_{1}(x, u)"),
        ("h = [x, u] W\tx [B, D], u [L, H], W [D + H, F]\th [B, F]", "shapes do not fit: x, u side by side",
         "their sizes are equal in all axes but the one along which they are joined"),
    ],
)  # fmt: skip
def test_what_can_be_read_in_two_ways_is_refused(row: str, message: str, hint: str) -> None:
    with pytest.raises((FormulaError, ShapeError), match=message) as refused:
        costs(row)
    assert not hint or refused.value.hint == hint


def test_a_long_chain_of_rows_is_followed_to_its_end() -> None:
    """Columns: the last row multiplies from the data on, whatever stands above; W0 is named as W_0 is."""
    rows = "".join(f"x{n + 1} = W{n} x{n}\tW{n} [D, D], x{n} [D, B]\tx{n + 1} [D, B]\n" for n in range(600))
    model = sc.load(f"Computation\tInput\tOutput\n{rows}y = U V x600\tU [D, r], V [r, D], x600 [D, B]\ty [D, B]\n")
    # 600 products of 2 B D², and two of 2 B D r.
    assert model.flops().at(B=1, D=10, r=1).value == 600 * 200 + 40
    assert model.parameters().at(D=10, r=1).value == 600 * 100 + 20
