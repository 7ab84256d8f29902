"""Einsums as rows of layer tables: what they are as ops, and what is refused, with its place."""

from __future__ import annotations

import pytest
from api import SymcommError

import symcomm as sc

HEAD = "| Computation | Input | Output |\n|---|---|---|\n"


def model(row: str, **options: object) -> sc.Model:
    return sc.load(HEAD + row, **options)  # type: ignore[arg-type]


def same(one: str, other: str) -> None:
    """Both rows are the same op to every quantity."""
    a, b = model(one), model(other)
    assert a.flops("training").expr == b.flops("training").expr
    assert a.activation_memory().expr == b.activation_memory().expr
    assert a.communication("data(4)").expr == b.communication("data(4)").expr


def test_a_batch_of_products_is_the_same_as_an_einsum() -> None:
    cells = "| x [B, L, D], $W$ [D, F] | y [B, L, F] |"
    same(f'| y = einsum("bld,df->blf", x, W) {cells}', f"| y = x W {cells}")


@pytest.mark.parametrize(
    "said",
    ['"bld,df->blf"', "'bld,df->blf'", "“bld, df -> blf”", r'\text{"bld,df->blf"}', '"...d,df->...f"', '"...d,df"'],
)
def test_subscripts_are_read_in_any_quotation_marks(said: str) -> None:
    row = rf"| $y = \mathrm{{einsum}}({said}, x, W)$ | $x$ [B, L, D], $W$ [D, F] | $y$ [B, L, F] |"
    assert str(model(row).flops().expr) == "2*B*D*F*L"


def test_several_operands_are_contracted_from_left_to_right() -> None:
    made = model('| y = einsum("ij,jk,kl->il", A, W, V) | A [I, J], W [J, K], V [K, L] | y [I, L] |')
    i, j, k, n = (made.graph.axes[name].size for name in "IJKL")
    assert (made.flops().expr - (2 * i * j * k + 2 * i * k * n)).expand() == 0


def test_a_diagonal_costs_nothing_and_keeps_two_axes() -> None:
    made = model('| y = einsum("ii,ij->j", A, W) | A [I, I], W [I, J] | y [J] |', inputs=["A"])
    assert len(set(made.graph.tensors["A"].axes)) == 2
    i, j = (made.graph.axes[name].size for name in "IJ")
    assert (made.flops().expr - 2 * i * j).expand() == 0


@pytest.mark.parametrize(
    ("row", "message", "word"),
    [
        ('C = einsum("ij,jk->ik", A, W)', "operand 1 has 3 dimensions, its subscripts name 2", "i"),
        ('C = einsum("bij,bjk->bil", A, W)', "index l of the output is in no operand", "l"),
        ('C = einsum("bij,bkj->bik", A, W)', "index j is J in operand 1 and K in operand 2", "j"),
        ('C = einsum("bij,bjk->bib", A, W)', "index b twice in the output", "b"),
        ('C = einsum("bij,bjk->bik", A)', "2 subscripts for 1 operand", "bij,bjk->bik"),
        ('C = einsum("b1j,bjk->bjk", A, W)', "'1' is no letter", "1"),
        ("C = einsum(A, W)", "einsum begins with its subscripts", "A"),
        ('C = A + "ij"', "this is not something a layer computes", "ij"),
        ('C = einsum("bij,bjk->bik, A, W)', 'unexpected character `"`', '"'),
        ("C = einsum()", "'einsum' is called without an argument", "()"),
        ('C = einsum("bij,bjk->bik", A, U)', "U", "U"),
    ],
)
def test_each_fault_of_an_einsum_has_an_error_with_its_place(row: str, message: str, word: str) -> None:
    with pytest.raises(SymcommError) as error:
        model(f"| {row} | A [B, I, J], W [B, J, K] | C [B, I, K] |")
    assert message in error.value.message
    assert error.value.span is not None
    assert (error.value.span.word, error.value.span.line) == (word, 3)


def test_subscripts_in_a_document_are_pointed_at_where_they_stand() -> None:
    from api import parse_problem

    text = "# Bad\n\n```symcomm\nask: einsum\nsubscripts: ij,jk->il\nshapes: A [2, 3], B [3, 4]\n```\n"
    with pytest.raises(SymcommError) as error:
        sc.solve(parse_problem(text, "bad.md"))
    assert error.value.span is not None
    assert (error.value.span.place, error.value.span.word) == ("bad.md:5", "l")
