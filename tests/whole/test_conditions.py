"""Where another place would send less: the note says it, and whether it is so at the sizes given."""

import pytest

import symcomm as sc

EMBEDDING = """
| Computation | Input | Output |
|---|---|---|
| h = embed(t, E) | t [B, L], E [V, D] | h [B, L, D] |
| y = h W | h [B, L, D], W [D, F] | y [B, L, F] |
| z = y U | y [B, L, F], U [F, D] | z [B, L, D] |
"""


def notes(**sizes: int) -> str:
    return " ".join(sc.load(EMBEDDING).at(**sizes).communication("tensor(2)").notes)


def test_the_condition_under_which_the_places_are_the_cheapest_stands_under_the_answer() -> None:
    # The partial sum is either the input's gradient, of B L D, or the table's, of V D: the first while B L < V.
    assert "while B L < V; otherwise another placement would send fewer" in notes()


def test_sizes_decide_whether_another_place_would_send_less() -> None:
    assert "while B L < V, as here" in notes(B=2, L=4, V=100)
    assert "That does not hold here (800 and 100): another placement would send fewer" in notes(B=20, L=40, V=100)


def test_what_holds_at_all_sizes_is_not_said() -> None:
    assert sc.load(EMBEDDING).communication("data(2)").notes == ()


def test_the_calls_stay_as_they_are_where_another_place_would_send_less() -> None:
    model = sc.load(EMBEDDING)
    few, many = (model.at(B=b, L=8, D=4, F=8, V=64).communication("tensor(2)") for b in (1, 1000))
    assert few.expr == many.expr == model.communication("tensor(2)").expr


def test_degrees_that_would_work_divide_all_that_the_ranks_cut() -> None:
    gpt2 = {"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 6, "n_inner": 64, "n_positions": 16,
            "vocab_size": 97}  # fmt: skip
    with pytest.raises(sc.SymcommError, match=r"n_H = 6 .*\nhint: tensor may be 2, the next that divides all"):
        sc.load(gpt2).communication("tensor(5)")  # 4 divides 64 columns, but not six heads; parts of words may differ
