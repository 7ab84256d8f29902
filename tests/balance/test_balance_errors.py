"""What is never compute bound, or makes no sense, is refused with an error that says why; no answer is negative."""

from __future__ import annotations

from fractions import Fraction

import pytest
from api import StrategyError, SymcommError, ValuesError
from balance_models import BOOK, OVERLAP, block, xxl

import symcomm as sc

MESH = "fsdp(X) + tensor(Y)"
RATES = {"peak": "460 TFLOP/s", "network": "180 GB/s"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"links": "expert=2"}, "the mesh has no axis 'expert'"),
        ({"links": "data=0"}, "'0' is no number of links of 'data'"),
        ({"links": "data=-2"}, "'-2' is no number of links of 'data'"),
        ({"links": "data=1.5"}, "'1.5' is no number of links of 'data'"),
        ({"links": "two"}, "'two' says no number of links"),
        ({"links": "data=2, X=1"}, "the links of the mesh axis 'data' are given twice"),
        ({"links": "data=B"}, "B is a symbol of the model"),
        ({"links": "data=Y"}, "Y is a symbol of the strategy"),
        ({"over": "Q"}, "'Q' is no size of the model and no degree of the strategy"),
        ({"over": "n_block"}, "'n_block' is no size of the model"),
        ({"per": "rank"}, "unknown choice 'rank' of 'per'"),
        ({"numbers": "prime"}, "unknown choice 'prime' of 'numbers'"),
        ({"phase": "sideways"}, "unknown phase 'sideways'"),
        ({"over": "Y", "per": "device"}, "Y is not shared out over the devices"),
        ({"strategy": None}, "'compute_bound' needs the option 'strategy'"),
        ({"strategy": "pipeline(2)"}, "the messages of a pipeline are sent between stages"),
        ({"strategy": "fsdp(1) + tensor(1)"}, "nothing is sent on one device in the forward pass"),
        ({"strategy": "data(X)"}, "nothing is sent on data in the forward pass"),
        ({"network": "0 GB/s"}, "must be positive"),
        ({"device": "TPU-v5p"}, "the bandwidth of TPU-v5p counts its 6 links together, which form a torus"),
        ({"device": "TPU-v5q", "network": "180 GB/s"}, "unknown device 'TPU-v5q'"),
        ({"network": "180 GB"}, "the bandwidth of the network is in B/s"),
        ({"network": "D"}, "D is a symbol of the model"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(SymcommError) as error:
        block().derive("compute_bound", **{"strategy": MESH, "accounting": BOOK, **options})
    assert said in str(error.value)


def test_the_peak_rate_of_a_device_with_a_torus_goes_with_the_bandwidth_of_one_link() -> None:
    found = xxl().at(X=16, Y=4).derive("compute_bound", strategy=MESH, accounting=BOOK, device="TPU-v5p",
                                       network="180 GB/s")  # fmt: skip
    assert dict(found.given)["R"] == 458752 * 10**9
    assert found.at().value > 0


def test_a_number_of_ranks_that_is_none_is_refused() -> None:
    with pytest.raises(StrategyError, match="the mesh axis 'data' has 1/2 ranks"):
        block().at(X="0.5").derive("compute_bound", strategy=MESH, accounting=BOOK)


@pytest.mark.parametrize("accounting", [BOOK, OVERLAP], ids=["added", "overlapping"])
def test_too_much_tensor_parallelism_is_never_compute_bound_and_says_how_much_is_possible(
    accounting: dict[str, str],
) -> None:
    for y, times in ((32, "1.536"), (64, "3.072")):
        with pytest.raises(ValuesError) as error:
            xxl().at(X=16, Y=y).derive("compute_bound", strategy=MESH, accounting=accounting, **RATES)
        assert "no B is ever enough for computing to be the longer part" in str(error.value)
        assert f"the communication grows {times} times as fast with B as computing does" in str(error.value)
        assert "some B is enough with Y below 20.84" in str(error.value)  # F W / C


@pytest.mark.parametrize("accounting", [BOOK, OVERLAP], ids=["added", "overlapping"])
def test_the_formula_in_symbols_gives_no_negative_batch(accounting: dict[str, str]) -> None:
    derivation = block().derive("compute_bound", strategy=MESH, accounting=accounting)
    at = {"F": 100, "X": 4, "R": 50, "W_net": 10}
    assert derivation.at(**at, Y=2).value > 0
    with pytest.raises(ValuesError, match="no B is ever enough for computing to be the longer part: the communication"):
        derivation.at(**at, Y=40)
    relation = ">" if accounting is BOOK else ">="
    assert [str(condition) for condition in derivation.where] == [f"F·W_net {relation} R·Y"]


def test_growing_just_as_fast_is_enough_beside_but_not_added_to_another_time() -> None:
    at = {"F": 100, "X": 4, "R": 50, "W_net": 10, "Y": 20}
    assert block().derive("compute_bound", strategy=MESH, accounting=OVERLAP).at(**at).value == 20
    with pytest.raises(ValuesError, match="grows no slower than computing does"):
        block().derive("compute_bound", strategy=MESH, accounting=BOOK).at(**at)
    rates = {"peak": 50, "network": 10}
    known = block().at(F=100, D=4, X=4, Y=20)
    assert known.derive("compute_bound", strategy=MESH, accounting=OVERLAP, **rates).at().value == 20
    with pytest.raises(ValuesError, match="the communication grows as fast with B as computing does"):
        known.derive("compute_bound", strategy=MESH, accounting=BOOK, **rates)


def test_where_the_batch_decides_nothing_the_refusal_names_what_does() -> None:
    with pytest.raises(ValuesError) as error:
        block().derive("compute_bound", strategy="tensor(Y)", accounting=BOOK)
    assert "B decides nothing. The layer is compute bound at every B if F·W_net/(R·Y) is at least 1" in str(error.value)
    rates = {"peak": 50, "network": 10}
    every = block().at(F=100, D=4, Y=2).derive("compute_bound", strategy="tensor(Y)", accounting=BOOK, **rates)
    assert every.at().value == 0
    whole = (
        block()
        .at(F=100, D=4, Y=2)
        .derive("compute_bound", strategy="tensor(Y)", numbers="whole", accounting=BOOK, **rates)
    )
    assert whole.at().value == 1
    with pytest.raises(ValuesError, match="no B is ever enough"):
        block().at(F=100, D=4, Y=50).derive("compute_bound", strategy="tensor(Y)", accounting=BOOK, **rates)


def test_a_largest_number_of_ranks_below_one_is_refused() -> None:
    """Computing is 4 B D F/(R Y) and the sums of Y ranks 4 B D/W: as long where Y is F W/R."""
    found = block().derive("compute_bound", strategy="tensor(Y)", over="Y", numbers="whole", accounting=BOOK)
    assert [found.at(F=f, W_net=1, R=100).value for f in (100, 299, 301)] == [1, 2, 3]
    with pytest.raises(ValuesError, match=r"no Y is ever enough .*: even at Y = 1 the communication takes longer"):
        found.at(F=99, W_net=1, R=100)


def test_a_batch_that_the_table_fixes_is_no_symbol_to_solve_for() -> None:
    from api import model as sc

    text = "| Computation | Input | Output |\n|---|---|---|\n| y = xW | x [64, D], W [D, F] | y [64, F] |\n"
    with pytest.raises(ValuesError, match="the batch is 64 in the table, no symbol to solve for"):
        sc.load(text).derive("compute_bound", strategy="fsdp(X)", accounting=BOOK)


def test_times_with_a_square_in_the_length_are_compute_bound_from_their_positive_root() -> None:
    text = "| Computation | Input | Output |\n|---|---|---|\n"
    text += "| q = xW | x [B, L, D], W [D, D] | q [B, L, D] |\n| s = qq^T | q [B, L, D] | s [B, L, L] |\n"
    found = sc.load(text, dtype="fp16").derive("compute_bound", strategy="fsdp(X)", over="L", accounting=BOOK)
    at = {"B": 4, "D": 24, "X": 2, "R": 10, "W_net": 1}
    # 2·4·24·L·(24 + L)/(10·2) is 2·24²/1 (the whole matrix over the link) where L·(24 + L) is 120
    root = (-24 + (24**2 + 4 * 120) ** 0.5) / 2
    assert float(found.expr.subs({s: at[s.name] for s in found.expr.free_symbols})) == pytest.approx(root)


def test_a_value_of_the_batch_that_is_given_is_not_used() -> None:
    rates = {"accounting": BOOK, **RATES}
    one = xxl().at(X=16, Y=4).derive("compute_bound", strategy=MESH, **rates)
    two = xxl().at(X=16, Y=4, B=7).derive("compute_bound", strategy=MESH, **rates)
    assert one.at().value == two.at().value


@pytest.mark.parametrize("time", ["overlap", "serial"])
def test_a_layer_with_attention_has_a_bound_with_all_sizes_given(time: str) -> None:
    """What grows with the batch and what is divided by it stand in one sum: the batch goes out of the answer."""
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
              "intermediate_size": 96, "vocab_size": 128}  # fmt: skip
    layer = sc.load(config).at(B=4, L=128).part("layer")
    rates = {"peak": "100 TFLOP/s", "network": "50 GB/s"}
    made = layer.compute_bound("fsdp(2)", over="B", accounting={"time": time}, **rates)
    made.check(deep=True)
    least = made.at().value
    flops, weights = layer.flops().at(B=1).value, layer.parameters().at(N_layer=1).value
    # Computing is shared by two ranks; each sends half of the gathered weights on a ring.
    assert least * Fraction(flops, 4) / 2 / (100 * 10**12) == Fraction(2 * weights) / 2 / (50 * 10**9)
