"""Tables of embeddings that ranks hold whole, as DLRM's: what is exchanged, kept and refused, by hand."""

from __future__ import annotations

import pytest
from api import SymcommError

import symcomm as sc

HEADER = "Computation\tInput\tOutput\n"
BAGS = r"e_n = EmbeddingBag(t_n, W_n), n = 1, \dots, T	$t_n \in Z^{B \times P}$, $W_n \in R^{V \times D}$	e_n [B,D]"
DENSE = "h = relu(x M)\tx [B,F], M [F,D]\th [B,D]\n"
MODEL = (
    f"{HEADER}{BAGS}\n" + r"E = Merge([e_1, \dots, e_T])	-	$E \in R^{B \times T D}$" + f"\n{DENSE}"
    + "y = h N + E U\t" + r"N [D,G], $U \in R^{T D \times G}$" + "\ty [B,G]\n"
)  # fmt: skip
SIZES = {"B": 64, "P": 3, "V": 1000, "D": 16, "T": 8, "F": 10, "G": 4}
LOOKED_UP, TABLES, OTHERS = 64 * 8 * 16, 8 * 1000 * 16, 10 * 16 + 16 * 4 + 8 * 16 * 4


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_what_is_looked_up_is_exchanged_both_ways_and_no_gradient_of_a_table_is_reduced(ranks: int) -> None:
    model = sc.load(MODEL).at(**SIZES)
    made = model.communication(f"data({ranks}) + tables")
    assert made.at().value == 2 * 2 * LOOKED_UP + 2 * OTHERS
    made.check(deep=True)
    exchanged = model.communication(f"data({ranks}) + tables", collective="all-to-all", accounting="sent_per_rank")
    assert exchanged.at().value * ranks == 2 * 2 * LOOKED_UP * (ranks - 1) / ranks
    # Without it every rank has all tables and their gradients are summed.
    assert model.communication(f"data({ranks})").at().value == 2 * (TABLES + OTHERS)


def test_a_rank_keeps_the_states_of_its_own_tables() -> None:
    model = sc.load(MODEL).at(**SIZES)
    assert model.state_memory("data(4) + tables").at().value == 16 * (TABLES // 4 + OTHERS)
    sharded = model.state_memory("zero-1(4) + tables").at().value
    assert sharded == 4 * (TABLES // 4 + OTHERS) + 12 * (TABLES // 4 + OTHERS // 4)


def test_a_dense_part_may_be_cut_over_other_ranks() -> None:
    """Rows of U are cut with D, so each rank needs its columns of what was looked up."""
    made = sc.load(MODEL).at(**SIZES).communication("data(4) + tables + cut(F, 2)", collective="all-to-all")
    assert made.at().value == 2 * 2 * LOOKED_UP


@pytest.mark.parametrize(
    ("table", "strategy", "message"),
    [
        (MODEL, "data(3) + tables", "Tables cuts T = 8 of W_n (row 1) into 3 parts, but 8 is not divisible by 3"),
        (MODEL, "tables", "the mesh axis 'data' has no size"),
        (
            HEADER + "e = EmbeddingBag(t, W)\tt [B,P], W [V,D]\te [B,D]\n"
            "f = EmbeddingBag(s, U)\ts [B,P], U [Y,D]\tf [B,D]",
            "data(2) + tables", "has no family of tables to spread\nhint: tables of one size are a family: e_n = "
            r"EmbeddingBag(t_n, W_n), n = 1, \dots, T, such as the largest",
        ),
        (HEADER + DENSE, "data(2) + tables", "has no family of tables to spread"),
    ],
)  # fmt: skip
def test_tables_that_cannot_be_spread_say_why(table: str, strategy: str, message: str) -> None:
    with pytest.raises(SymcommError) as caught:
        sc.load(table).at(**SIZES).state_memory(strategy).at()
    assert message in str(caught.value)
