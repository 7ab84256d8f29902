"""Whole layer tables: the same trees from every format, names over rows, and errors that point."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from api import (
    Family,
    Identifier,
    LayerRow,
    Node,
    SymcommError,
    bare,
    children,
    layer_tables,
    parse_layer,
)

DATA = Path(__file__).parent.parent / "data"
COURSE = (DATA / "homework2_table.tsv").read_text()


def layer(*rows: str, file: str = "t.tsv") -> tuple[LayerRow, ...]:
    """The rows of a table whose cells are separated by ` | `."""
    text = "\n".join(["Computation\tInput\tOutput", *(row.replace(" | ", "\t") for row in rows)])
    [table] = layer_tables(text, file)
    return parse_layer(table)


def refused(*rows: str) -> str:
    with pytest.raises(SymcommError) as caught:
        layer(*rows)
    return str(caught.value)


def plain(rows: tuple[LayerRow, ...]) -> list[object]:
    return [(row.number, bare(row.equation), bare(row.inputs), bare(row.outputs), row.notes) for row in rows]


def walk(node: Node) -> list[Node]:
    return [node, *(one for child in children(node) for one in walk(child))]


def cells() -> list[list[str]]:
    return [line.split("\t") for line in COURSE.strip().split("\n")]


def as_markdown() -> str:
    lines = ["| " + " | ".join(row) + " |" for row in cells()]
    return "\n".join(["# A layer", "", lines[0], "|---|---|---|", *lines[1:], "", "That is all."])


def as_csv() -> str:
    out = io.StringIO()
    csv.writer(out).writerows(cells())
    return out.getvalue()


def as_latex() -> str:
    rows = [" & ".join(row) + r" \\" for row in cells()]
    body = "\n".join(["\\toprule", rows[0], "\\midrule", *rows[1:], "\\bottomrule"])
    return f"\\begin{{table}}\n\\begin{{tabular}}{{lll}}\n{body}\n\\end{{tabular}}\n\\end{{table}}\n"


FORMATS = {
    "t.tsv": COURSE,
    "t.md": as_markdown(),
    "t.csv": as_csv(),
    "t.tex": as_latex(),
    "t.txt": "Prose.\n\n" + COURSE,
}


@pytest.mark.parametrize("file", FORMATS)
def test_the_same_table_gives_equal_trees_in_every_format(file: str) -> None:
    [table] = layer_tables(FORMATS[file], file)
    [course] = layer_tables(COURSE, "course.tsv")
    assert plain(parse_layer(table)) == plain(parse_layer(course))


@pytest.mark.parametrize("file", FORMATS)
def test_every_node_points_at_what_was_written(file: str) -> None:
    text = FORMATS[file]
    [table] = layer_tables(text, file)
    lines = text.split("\n")
    for row in parse_layer(table):
        for node in [one for top in (row.equation, *row.inputs, *row.outputs) for one in walk(top)]:
            assert node.span.text == lines[node.span.line - 1].removesuffix("\r")
            assert node.span.word.strip()
            if isinstance(node, Identifier):
                assert node.span.word.replace("_i", "").replace("\\text", "").replace("{", "").replace("}", "") in (
                    node.key,
                    node.key.capitalize(),
                )


def test_the_course_table_says_what_it_says() -> None:
    rows = layer(*["\t".join(row) for row in cells()[1:]])
    first, partition, score, merge, last = rows[0], rows[3], rows[6], rows[8], rows[12]
    assert bare(first.equation) == (
        "Equation",
        ("Identifier", "Q", ""),
        ("Multiplication", (("Identifier", "x", ""), ("Identifier", "W^Q", ""))),
        (),
    )
    over_heads = ("Range", "i", ("Identifier", "n_h", ""))
    assert bare(partition.equation) == (
        "Equation",
        ("Family", ("Identifier", "Q", ""), ("Identifier", "n_h", "")),
        ("FunctionCall", "partition", (("Identifier", "Q", ""),), ("Number", -1)),
        (over_heads,),
    )
    assert [(one.name.key, one.name.index, bare(one.ranges)) for one in partition.outputs] == [
        ("Q", "i", (over_heads,))
    ]
    scaled = ("Multiplication", (("Identifier", "Q", "i"), ("Transpose", ("Identifier", "K", "i"))))
    assert bare(score.equation) == (
        "Equation",
        ("Identifier", "score", "i"),
        ("FunctionCall", "softmax", (("Quotient", scaled, ("Radical", ("Identifier", "D", ""))),), None),
        (over_heads,),
    )
    assert score.notes == ("'Score' is read as 'score', which the Output cell declares",)
    assert isinstance(score.equation.target, Identifier)
    assert score.equation.target.latex == r"\text{Score}_i"
    assert [one.name.key for one in score.inputs] == ["Q", "K"]
    assert all(bare(one.ranges) == (over_heads,) for one in score.inputs)
    assert bare(merge.equation.formula) == (
        "FunctionCall",
        "merge",
        (("Family", ("Identifier", "Z", ""), ("Identifier", "n_h", "")),),
        ("Number", -1),
    )
    assert bare(last.equation) == (
        "Equation",
        ("Identifier", "x'", ""),
        ("Multiplication", (("Identifier", "A'", ""), ("Identifier", "W^2", ""))),
        (),
    )
    assert bare(last.inputs[1].sizes) == (
        ("Multiplication", (("Number", 4), ("Identifier", "D", ""))),
        ("Identifier", "D", ""),
    )


def test_the_midterm_table_is_read_too() -> None:
    [table] = layer_tables((DATA / "midterm_table.tsv").read_text(), "midterm_table.tsv")
    rows = parse_layer(table)
    assert [row.number for row in rows] == list(range(1, 14))
    assert bare(rows[0].inputs[0].sizes) == (("Identifier", "L", ""), ("Identifier", "D", ""))


PLAIN = [
    "Q = x WQ | x [B, L, D], WQ [D, D] | Q [B, L, D]",
    "[Q_1, Q_2, ..., Q_n_h] = Partition_-1(Q) | Q in R^{B x L x D} | Q_i in R^(B x L x H), i = 1..n_h",
    "S_i = softmax(Q_i Q_i^T / sqrt(D)) | Q_i: [B, L, H], i=1,...,n_h | S_i ∈ ℝ^{B×L×L}",
]
LATEX = [
    r"$Q = xWQ$ | $x \in \mathbb{R}^{B \times L \times D}$, $WQ \in \mathbb{R}^{D \times D}$ | "
    r"$Q \in \mathbb{R}^{B \times L \times D}$",
    r"$[Q_1, Q_2, \dots, Q_{n_h}] = \text{Partition}_{-1}(Q)$ | $Q \in \mathbb{R}^{B \times L \times D}$ | "
    r"$Q_i \in \mathbb{R}^{B \times L \times H}, i = 1, \ldots, n_h$",
    r"$S_i = \mathrm{softmax}\left(\frac{Q_iQ_i^\top}{\sqrt D}\right)$ | "
    r"$Q_i \in \mathbb{R}^{B \times L \times H}$ for $i \in \{1, \dots, n_h\}$ | "
    r"$S_i \in \mathbb{R}^{B \times L \times L}$",
]


def test_plain_text_and_latex_give_the_same_trees() -> None:
    assert plain(layer(*PLAIN)) == plain(layer(*LATEX))


def test_names_of_earlier_rows_are_known_below() -> None:
    rows = layer("y = x W | x [B, D], W [D, D] | y [B, D]", "z = y W + x | - | z [B, D]")
    assert rows[1].inputs == ()


def test_names_of_later_rows_are_not_known_above() -> None:
    message = refused("y = x + z | x [B, D] | y [B, D]", "z = x | x [B, D] | z [B, D]")
    assert message == (
        "t.tsv:2, column Computation: unknown name 'z'\n"
        "    y = x + z x [B, D] y [B, D]\n"
        "            ^\n"
        "hint: declare it among the inputs of this row, or above it; known: B, D, x, y"
    )


def test_a_name_declared_nowhere_is_pointed_at_with_near_names() -> None:
    message = refused(r"y = x + \text{Owt} | $x, \text{Out} \in \mathbb{R}^{B}$ | y [B]")
    assert message == (
        "t.tsv:2, column Computation: unknown name 'Owt'\n"
        "    y = x + \\text{Owt} $x, \\text{Out} \\in \\mathbb{R}^{B}$ y [B]\n"
        "            ^^^^^^^^^^\n"
        "hint: did you mean 'Out'?"
    )


def test_a_target_that_the_output_cell_does_not_declare_is_refused() -> None:
    assert refused("y = x | x [B] | z [B]") == (
        "t.tsv:2, column Computation: this row computes 'y', but its Output cell declares 'z'\n"
        "    y = x x [B] z [B]\n"
        "    ^\n"
        "hint: give both the same name"
    )
    assert "declares 'z' and 'w'" in refused("y = x | x [B] | z, w [B]")
    assert "this row computes 'y', but its Output cell declares no result\n" in refused("y = x | x [B, D] | D")


def test_a_family_and_a_plain_name_are_different_tensors() -> None:
    message = refused("y = Q_i, i = 1..n | Q [B, D] | y [B, D]")
    assert "unknown name 'Q_i'" in message


def test_a_single_member_of_a_family_is_refused() -> None:
    assert refused("Q_i = x, i = 1..n | x [B] | Q_i [B]", "y = Q_1 | - | y [B]") == (
        "t.tsv:3, column Computation: 'Q_1' is one member of the family Q_i\n"
        "    y = Q_1 - y [B]\n"
        "        ^^^\n"
        "hint: a row computes all members at once: write Q_i"
    )


def test_a_later_row_knows_the_range_of_an_earlier_family() -> None:
    rows = layer(
        "X_e = Dispatch(x, M), e = 1, ..., E | x [T, D], M [T, E, C] | X_e [C, D]",
        "y = Combine(X_e, M) | X_e [C, D], M [T, E, C] | y [T, D]",
    )
    assert bare(rows[1].equation.ranges) == (("Range", "e", ("Identifier", "E", "")),)
    assert bare(rows[1].inputs[0].ranges) == (("Range", "e", ("Identifier", "E", "")),)


def test_another_index_of_a_family_keeps_its_range() -> None:
    rows = layer(
        "[K_1, ..., K_g] = Split(K) | K [L, D] | K_j [L, H], j = 1..g",
        "R_i = Repeat(K_j), i = 1..n | K_j [L, H] | R_i [L, H]",
    )
    assert bare(rows[1].equation.ranges) == (
        ("Range", "i", ("Identifier", "n", "")),
        ("Range", "j", ("Identifier", "g", "")),
    )


def test_an_index_with_two_ends_is_refused() -> None:
    assert refused("y_i = x, i = 1..n | x [B] | y_i [B], i = 1..m") == (
        "t.tsv:2, column Output: the index i runs to two different ends in this row: n and m\n"
        "    y_i = x, i = 1..n x [B] y_i [B], i = 1..m\n"
        "                                     ^^^^^^^^\n"
        "hint: give both the same end, or use another index"
    )


def test_letters_side_by_side_in_a_shape_are_a_product_where_each_is_a_size() -> None:
    [row] = layer(r"$y = x$ | $x \in \mathbb{R}^{BL \times D}$ | $y \in \mathbb{R}^{B \times L \times dmodel}$")
    assert bare(row.inputs[0].sizes) == (
        ("Multiplication", (("Identifier", "B", ""), ("Identifier", "L", ""))),
        ("Identifier", "D", ""),
    )
    assert bare(row.outputs[0].sizes)[2] == ("Identifier", "dmodel", "")  # type: ignore[index]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            " | x [B] | y [B]",
            "t.tsv:2, column Computation: row 1 has no Computation\n     x [B] y [B]\n    ^\n"
            "hint: write the computation, such as $Q = xW^Q$",
        ),
        (
            "y = x |  | y [B]",
            "t.tsv:2, column Input: row 1 has no Input\n    y = x  y [B]\n          ^\n"
            r"hint: write the shapes of what goes in, such as $x \in \mathbb{R}^{B \times L \times D}$; "
            "or `-` for none new",
        ),
        (
            "y = x | x [B] | -",
            "t.tsv:2, column Output: row 1 has no Output\n    y = x x [B] -\n                ^\n"
            r"hint: write the shape of the result, such as $Q \in \mathbb{R}^{B \times L \times D}$",
        ),
        (
            "y = x | i = 1, ..., n | y [B]",
            "t.tsv:2, column Input: this cell declares no shape\n    y = x i = 1, ..., n y [B]\n"
            "          ^^^^^^^^^^^^^\n"
            r"hint: write $x \in \mathbb{R}^{B \times L \times D}$, or x [B, L, D]",
        ),
    ],
)
def test_an_empty_cell_is_named(row: str, message: str) -> None:
    assert refused(row) == message


def test_a_layer_table_without_rows_is_refused() -> None:
    [table] = layer_tables("| Computation | Input | Output |\n|---|---|---|\n", "t.md")
    with pytest.raises(SymcommError, match="this layer table has no rows"):
        parse_layer(table)


def test_names_that_mean_something_to_python_or_sympy_are_only_names() -> None:
    [row] = layer("E = S I + N Q O lambda beta __import__ | S, I, N, Q, O, lambda, beta, __import__ [B] | E [B]")
    keys = [node.key for node in walk(row.equation.formula) if isinstance(node, Identifier)]
    assert keys == ["S", "I", "N", "Q", "O", "lambda", "beta", "__import__"]


def test_a_family_target_keeps_its_count() -> None:
    [row] = layer("[Q_1, Q_2, ..., Q_8] = Split(Q) | Q [B, D] | Q_i [B, H], i = 1..8")
    assert isinstance(row.equation.target, Family)
    assert bare(row.equation.target.count) == ("Number", 8)
