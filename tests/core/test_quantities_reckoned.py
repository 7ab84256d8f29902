"""Quantities are added, compared and said in other units; derivations are swept, and have the symbols one asks for."""

import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import sympy
from api import BYTE, ONE, Quantity, SymcommError, Unit, ValuesError, main
from click.testing import CliRunner

import symcomm as sc

GIB = Quantity.parse("1 GiB")
LAYER = sc.load("Computation\tInput\tOutput\ny = xW\tx [B, D], W [D, F]\ty [B, F]\n")


def test_quantities_of_one_unit_are_added_and_a_bare_number_is_in_that_unit():
    assert Quantity(Fraction(2**31), Unit.parse("byte")) == GIB + GIB
    assert (GIB + 1 - "1 B").value == 2**30
    assert (2**31 - GIB).value == 2**30
    assert (-GIB).value == -(2**30)


def test_products_and_quotients_have_the_unit_that_follows():
    assert (GIB / "1 GiB/s").unit == Unit.parse("second")
    assert GIB / GIB == 1
    assert (GIB / GIB).unit == ONE
    assert (3 * GIB).value == (GIB * Fraction(3)).value == 3 * 2**30
    assert (1 / Quantity.parse("4 s")).unit == Unit.parse("1/second")
    assert sum([GIB, GIB], start=0 * GIB) == "2 GiB"


def test_quantities_compare_with_numbers_and_texts_exactly():
    assert GIB > "1 GB"
    assert GIB <= 2**30
    assert GIB == "1024 MiB"
    assert GIB != "1 GB"
    assert GIB != "not a number"
    assert GIB not in (float("nan"), float("inf"))
    assert float(2**30) == GIB
    assert object() != GIB
    assert {GIB: 1}[Quantity.parse("1024 MiB")] == 1
    assert Quantity.parse("90 min") == "1.5 h"


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (lambda: GIB + "1 s", "cannot be added: they are in different units"),
        (lambda: GIB < "1 s", "cannot be compared: they are in different units"),
        (lambda: GIB * 0.5, "0.5 is a float, which is not exact"),
        (lambda: GIB / 0, "is divided by zero"),
        (lambda: GIB.to("s"), "has no number in s"),
        (lambda: GIB.to("furlong"), "unknown unit 'furlong'"),
        (lambda: int(Quantity(Fraction(1, 2))), "is no whole number"),
    ],
)
def test_what_does_not_fit_together_is_told(does, said: str):
    with pytest.raises(ValuesError, match=said):
        does()


def test_an_amount_is_said_in_another_unit_exactly_or_marked():
    assert str(GIB.to("MiB")) == "1024 MiB"
    assert float(GIB.to("GB")) == 1.073741824
    assert str(Quantity.parse("1/3 GiB").to("GiB")) == "1/3 GiB ≈ 0.333333 GiB"
    assert int(GIB.to("MiB")) == 1024


def test_a_notebook_shows_readings_as_html_without_a_network():
    shown = GIB._repr_html_()
    assert shown == "<span>1&nbsp;073&nbsp;741&nbsp;824&nbsp;B = 1&nbsp;GiB ≈ 1.074&nbsp;GB</span>"
    assert repr(GIB) == "<Quantity 1 073 741 824 B = 1 GiB ≈ 1.074 GB>"
    assert repr(LAYER.parameters()) == "<Derivation Parameters: D·F parameter>"
    assert repr(LAYER.parameters().steps[-1]).startswith("<Step ")


def test_symbols_are_those_of_derivations():
    D, F = sc.symbols("D, F")
    assert sympy.simplify(LAYER.parameters().expr - D * F) == 0
    cost = sc.minimise("n*o + s/(n*w)", over="n", integer=False)
    (w,) = sc.symbols("w", of=cost)
    assert w in cost.expr.free_symbols
    with pytest.raises(SymcommError, match="has no symbol 'bandwidth'"):
        sc.symbols("bandwidth", of=cost)
    with pytest.raises(SymcommError, match="cannot be the name of a symbol"):
        sc.symbols("2x")


def test_a_sweep_is_what_each_combination_gives():
    made = LAYER.communication("data(k)", accounting="sent_per_rank")
    frame = made.sweep(k=[2, 4], D=np.array([8, 16]), F=3)
    assert [*frame.columns] == ["k", "D", "value", "unit"]
    for row in frame.itertuples():
        assert row.value == float(made.at(k=row.k, D=int(row.D), F=3).value)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"D": 3}, "a sweep needs a list of numbers"),
        ({"D": []}, "D has no values to sweep over"),
        ({"D": [1, 2]}, "the sweep needs a value for F"),
        ({"D": [1, -2], "F": 1}, "at D = -2: D is -2, but it cannot be negative"),
        ({"D": range(1000), "F": range(1000)}, "a sweep of 1,000,000 combinations: there may be 100,000"),
        ({"D": np.ones((2, 2)), "F": 1}, "D is an array of 2 axes"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_told(values, said: str):
    with pytest.raises(ValuesError, match=said):
        LAYER.parameters().sweep(**values)


def test_a_fraction_of_many_digits_is_printed_rounded_and_exactly_on_request() -> None:
    long, short = Quantity(Fraction(10**10, 7), BYTE), Quantity(Fraction(4096, 3), Unit.parse("FLOP/B"))
    assert str(long) == "≈ 1.429 GB ≈ 1.33 GiB"  # 10^10/7 is 1.4286e9, and over 2^30 1.3305
    assert (long.exact, long.value) == ("10 000 000 000/7 B", Fraction(10**10, 7))
    assert str(short) == "4096/3 FLOP/B ≈ 1365.33 FLOP/B"
    assert str(Quantity(Fraction(123456789), BYTE)).startswith("123 456 789 B")  # a whole number is no fraction


def test_the_terminal_prints_long_fractions_on_request_alone(tmp_path: Path) -> None:
    table = tmp_path / "t.md"
    table.write_text("| Computation | Input | Output |\n|---|---|---|\n| $h = xW$ | x [B, D], W [D, F] | h [B, F] |\n")
    asked = ["derive", "intensity", "--model", str(table), "--at", "B=37,D=1021,F=4099"]
    # 37·1021·4099 = 154 847 923 over 37·1021 + 37·4099 + 1021·4099 = 4 374 519
    brief = CliRunner().invoke(main, asked).output
    assert "    ≈ 35.3977 FLOP/B" in brief
    assert "154 847 923" not in brief
    assert "= 154 847 923/4 374 519 FLOP/B ≈ 35.3977 FLOP/B" in CliRunner().invoke(main, [*asked, "--exact"]).output


def test_numbers_put_into_a_formula_are_no_long_fractions_either(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    config.write_text(json.dumps({"model_type": "llama", "vocab_size": 128, **sizes}))
    asked = ["derive", "step_time", "--model", str(config), "--strategy", "fully-sharded(8)", "--device", "H100-SXM"]
    asked += ["--at", "B=8,L=512"]
    assert re.search(r"\d{3}/\d{3}", CliRunner().invoke(main, asked).output) is None
    assert re.search(r"\d{3}/\d{3}", CliRunner().invoke(main, [*asked, "--exact"]).output) is not None


def test_words_of_options_are_no_symbols() -> None:
    meeting = LAYER.crossover("compute, memory", over="B", phase="forward", device="A100-80GB-SXM")
    with pytest.raises(ValuesError, match="has no symbol 'compute'") as refused:
        meeting.at(compute=3)
    assert "known: B, D, F, R, W_mem, W_net;" in refused.value.hint
